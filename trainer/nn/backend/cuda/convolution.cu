/* Convolution and its gradient (ops/convolution.c). A kernel of one pixel is a matrix product by cuBLASLt, a pixel a
 * row, in arrays inside wider ones, too; with a stride, the pixels it meets are gathered in the workspace first. The
 * rest is cuDNN's, which wants arrays without gaps: arrays inside wider ones are copied, and gradients that it
 * cannot add go through the workspace. For bf16 it also wants channels in packs of 8, or is many times slower: x and
 * W are copied with zeros behind each pixel. A copy of y finds its moments on the way, and a copy of its gradient
 * adds the linear part. */
#include "nn/backend/cuda/cudnn.h"
#include "nn/backend/cuda/hopper/convolution.h"
#include "nn/backend/cuda/hopper/norm_convolution.h"
#include "nn/backend/cuda/hopper/norm_product.h"
#include "nn/backend/cuda/hopper/stem.h"
#include "nn/backend/cuda/pixels.cuh"
#include "nn/backend/cuda/product.h"
#include "nn/backend/cuda/weight_gradient.h"

#include <stdlib.h>
#include <string.h>

/* ---- shapes ---- */

static int64_t in_of(const nn_call *c) { return nn_channels(&c->input[0]); }
static int64_t out_of(const nn_call *c) { return nn_channels(&c->output[0]); }
static int64_t size_of_kernel(const nn_call *c) { return c->input[1].shape->dim[1]; }

static bool is_product(const nn_call *c) { return size_of_kernel(c) == 1 && NN_ATTR(convolution, c)->padding == 0; }
static bool skips_pixels(const nn_call *c) { return is_product(c) && NN_ATTR(convolution, c)->stride > 1; }

static size_t size_of(nn_type type) { return type == NN_BF16 ? 2 : 4; }

/* Channels of x as cuDNN sees them. */
static int64_t padded_in(const nn_call *c) { return c->input[0].type == NN_BF16 ? parts(in_of(c), 8) * 8 : in_of(c); }

static bool x_is_copied(const nn_call *c) { return c->input[0].stride != padded_in(c); }
static bool w_is_copied(const nn_call *c) { return in_of(c) != padded_in(c); }
static bool y_is_copied(const nn_call *c) { return c->output[0].stride != out_of(c); }

static int64_t taps(const nn_call *c) { return nn_numbers(c->input[1].shape) / in_of(c); }
/* Whether the gradient of W is weight_gradient.h's, or, where a norm is taken in, norm_weights.h's. */
static bool own_weight_gradient(const nn_call *c) {
    return c->grad->output[0] && c->grad->input[1] && (c->fused->maker || weight_gradient_fits(c, out_of(c)));
}
static size_t round_up(int64_t bytes) { return (size_t)parts(bytes, 256) * 256; }

static conv_shape shape_of(const nn_call *c) {
    const int64_t *x = c->input[0].shape->dim, *y = c->output[0].shape->dim;
    return conv_shape{c->input[0].rows,
                      x[1],
                      x[2],
                      padded_in(c),
                      y[1],
                      y[2],
                      y[3],
                      size_of_kernel(c),
                      NN_ATTR(convolution, c)->stride,
                      NN_ATTR(convolution, c)->padding,
                      c->input[0].type};
}

/* As hopper/ sees it: with the channels that there are. */
static conv_shape hopper_shape(const nn_call *c) {
    conv_shape s = shape_of(c);
    s.in = in_of(c);
    return s;
}

static bool y_is_copied_in_packs(const nn_call *c) {
    const nn_array *y = &c->output[0];
    return !is_product(c) && y_is_copied(c) && y->type == NN_BF16 && out_of(c) % 8 == 0 && y->stride % 8 == 0 &&
           y->offset % 8 == 0;
}

/* Whether hopper/ takes y inside a wider array: a stem does. */
static bool is_stem_in_packs(const nn_call *c) {
    return in_of(c) == STEM_IN && out_of(c) == STEM_OUT && y_is_copied_in_packs(c);
}

/* Whether a result is hopper/'s. */
static bool is_hopper(const nn_call *c, conv_result result) {
    const conv_shape s = hopper_shape(c);
    if (is_product(c) || c->input[0].stride != s.in || (y_is_copied(c) && !is_stem_in_packs(c))) return false;
    return result == CONV_DW ? hopper_weights_fits(&s) : hopper_convolution_fits(&s, result);
}

static cudaDataType_t data_type(nn_type type) { return type == NN_BF16 ? CUDA_R_16BF : CUDA_R_32F; }

/* By columns, as in linear.cu: y^T = W x^T, dx^T = W^T dy^T, dW^T = x^T dy. */
static product_shape product_of(const nn_call *c, conv_result result) {
    const int64_t pixels = nn_pixels(&c->output[0]), in = in_of(c), out = out_of(c);
    const int64_t x = skips_pixels(c) ? in : c->input[0].stride, y = c->output[0].stride;
    const cudaDataType_t type = data_type(c->input[0].type);
    product_shape s = {true, false, out, pixels, in, in, x, y, type, type, CUBLASLT_EPILOGUE_DEFAULT, 1};
    if (result == CONV_DX) s = {false, false, in, pixels, out, in, y, x, type, type, CUBLASLT_EPILOGUE_DEFAULT, 1};
    if (result == CONV_DW) s = {false, true, in, out, pixels, x, y, in, type, CUDA_R_32F, CUBLASLT_EPILOGUE_DEFAULT, 1};
    return s;
}

/* ---- plans ---- */

/* A node's plan in one direction: forward for y, backward for dx and dW. */
typedef struct conv_plan {
    product products[3];
    convolution convolutions[3];
    bool hopper[3];     /* hopper/ has it, and nothing else here is made */
    bool adds;          /* dx's convolution can add to its target */
    unsigned *counters; /* NULL: none */
    /* A second stream for dW, if dx is computed, too. NULL: there is none. */
    cudaStream_t side;
    cudaEvent_t forked, joined;
} conv_plan;

static void conv_release(void *prepared) {
    conv_plan *p = (conv_plan *)prepared;
    if (!p) return;
    for (int i = 0; i < 3; i++) {
        product_free(&p->products[i]);
        convolution_free(&p->convolutions[i]);
    }
    cudaFree(p->counters);
    if (p->side) cudaStreamDestroy(p->side);
    if (p->forked) cudaEventDestroy(p->forked);
    if (p->joined) cudaEventDestroy(p->joined);
    free(p);
}

static adamod_status prepare_result(const nn_call *c, conv_plan *p, conv_result result) {
    if (is_product(c)) {
        const product_shape s = product_of(c, result);
        return product_make(&p->products[result], &s, c->device->precision, c->training);
    }
    p->hopper[result] = is_hopper(c, result);
    if (p->hopper[result]) {
        p->adds = result == CONV_DX || p->adds;
        return ADAMOD_OK;
    }
    const conv_shape s = shape_of(c);
    const bool add = result == CONV_DX && c->grad->accumulate[0] && !x_is_copied(c);
    const conv_way way = {result, c->device->precision, false, c->training},
                   adding = {result, c->device->precision, true, c->training};
    if (add && convolution_try(&p->convolutions[result], &s, &adding)) {
        p->adds = true;
        return ADAMOD_OK;
    }
    return convolution_make(&p->convolutions[result], &s, &way);
}

static moments_work moments_of_y(const nn_call *c) { return moments_of(nn_pixels(&c->output[0]), out_of(c)); }

/* Whether moments of y are found by hopper/, not on the way from workspace to y. */
static bool is_stem_with_moments(const nn_call *c) { return is_stem_in_packs(c) && is_hopper(c, CONV_Y); }

static size_t floats_of_moments(const nn_call *c) {
    if (is_stem_with_moments(c)) return hopper_stem_moments(c->input[0].rows).floats;
    return moments_floats(moments_of_y(c).tiles, out_of(c));
}

/* Counters that are 0 between launches: the block that comes last has work to do. */
static size_t counters_of(const nn_call *c) {
    if (c->fused->maker) return is_product(c) ? norm_product_counters(c) : norm_convolution_counters(c);
    if (!c->fused->output_moments.first || c->grad->output[0]) return 0;
    return is_stem_with_moments(c) ? hopper_stem_moments(0).counters : (size_t)moments_columns(out_of(c));
}

static adamod_status prepare_counters(const nn_call *c, conv_plan *p) {
    const size_t n = counters_of(c);
    return n ? nn_cuda_zeros((void **)&p->counters, n * sizeof *p->counters, c) : ADAMOD_OK;
}

/* Whether both gradients are wanted. */
static bool wants_both(const nn_call *c) {
    return c->grad->output[0] && c->grad->input[1] && (c->fused->maker || c->grad->input[0]);
}

static bool is_copied(const nn_call *c) { return x_is_copied(c) || w_is_copied(c) || y_is_copied(c); }

/* Whether they are computed at the same time: not where workspace would have to hold copies for both. */
static bool is_at_once(const nn_call *c) {
    if (!wants_both(c)) return false;
    if (is_product(c)) return !c->fused->maker;
    return own_weight_gradient(c) || is_hopper(c, CONV_DW) || (!c->fused->maker && !is_copied(c));
}

static adamod_status prepare_side(const nn_call *c, conv_plan *p) {
    if (!is_at_once(c)) return ADAMOD_OK;
    cudaError_t e = cudaStreamCreateWithFlags(&p->side, cudaStreamNonBlocking);
    if (e == cudaSuccess) e = cudaEventCreateWithFlags(&p->forked, cudaEventDisableTiming);
    if (e == cudaSuccess) e = cudaEventCreateWithFlags(&p->joined, cudaEventDisableTiming);
    return nn_cuda_failed(e, "preparing a convolution");
}

static adamod_status prepare_results(const nn_call *c, conv_plan *p) {
    adamod_status status = ADAMOD_OK;
    if (c->fused->maker) return status;
    if (!c->grad->output[0]) status = prepare_result(c, p, CONV_Y);
    if (c->grad->output[0] && c->grad->input[0]) status = prepare_result(c, p, CONV_DX);
    if (!status && c->grad->output[0] && c->grad->input[1] && !own_weight_gradient(c))
        status = prepare_result(c, p, CONV_DW);
    return status;
}

static adamod_status conv_prepare(const nn_call *c, void **prepared) {
    adamod_status status = is_product(c) ? product_library() : ADAMOD_OK;
    if (status) return status;
    conv_plan *p = (conv_plan *)calloc(1, sizeof *p);
    if (!p) return nn_cuda_fail(ADAMOD_ERROR_MEMORY, "out of memory for a convolution");
    status = prepare_counters(c, p);
    if (!status) status = prepare_side(c, p);
    if (!status) status = prepare_results(c, p);
    if (status) conv_release(p);
    else *prepared = p;
    return status;
}

/* Workspace: cuDNN's own, then x, y and W, or their gradients, without gaps or not yet added; then parts of the gradient of W,
 * and what moments or other sums are joined from. */
typedef struct conv_space {
    char *own, *side, *x, *y, *w, *parts, *sums; /* side: cuDNN's own for W, where that is computed meanwhile */
    size_t bytes;
} conv_space;

/* Bytes for parts of the gradient of W; 0: cuDNN computes it, or nothing does. */
static size_t bytes_of_parts(const nn_call *c, const conv_plan *p) {
    const conv_shape s = hopper_shape(c);
    if (!c->grad->output[0]) return 0;
    if (p->hopper[CONV_DW]) return round_up((int64_t)(hopper_weights_workspace(&s) * sizeof(float)));
    if (!own_weight_gradient(c)) return 0;
    return round_up(
        (int64_t)((c->fused->maker ? norm_weights_workspace(c) : weight_gradient_workspace(c)) * sizeof(float)));
}

static conv_space space_of(const nn_call *c) {
    const conv_plan *p = (const conv_plan *)c->prepared;
    conv_space s = {};
    size_t own = 0, side = 0;
    for (const convolution &v : p->convolutions) {
        size_t *const at = p->side && &v == &p->convolutions[CONV_DW] ? &side : &own;
        *at = v.workspace > *at ? v.workspace : *at;
    }
    own = round_up((int64_t)own);
    side = round_up((int64_t)side);
    const int64_t in = padded_in(c), size = (int64_t)size_of(c->input[0].type);
    const size_t x = round_up(nn_pixels(&c->input[0]) * in * size);
    const size_t w = round_up(taps(c) * in * size), parts = bytes_of_parts(c, p);
    const size_t y = round_up(nn_pixels(&c->output[0]) * out_of(c) * size);
    s.own = (char *)c->workspace;
    s.side = s.own + own;
    s.x = s.side + side;
    s.y = s.x + (x_is_copied(c) || (c->grad->output[0] && c->grad->accumulate[0] && !p->adds) ? x : 0);
    s.w = s.y + (y_is_copied(c) && !c->fused->maker ? y : 0);
    s.parts = s.w + (w_is_copied(c) || (c->grad->output[0] && parts == 0) ? w : 0);
    s.sums = s.parts + parts;
    s.bytes = (size_t)(s.sums - s.own);
    if (c->fused->maker) s.bytes += norm_convolution_workspace(c) * sizeof(float);
    else if (c->fused->output_moments.first) s.bytes += floats_of_moments(c) * sizeof(float);
    return s;
}

/* A product's own. */
static size_t product_bytes(const nn_call *c) {
    size_t most = 0;
    for (const product &p : ((const conv_plan *)c->prepared)->products) most = p.workspace > most ? p.workspace : most;
    return round_up((int64_t)most);
}

/* The pixels that a product meets, behind the product's own workspace. */
static size_t met_bytes(const nn_call *c) {
    return skips_pixels(c) ? round_up(nn_pixels(&c->output[0]) * in_of(c) * (int64_t)size_of(c->input[0].type)) : 0;
}

/* A product and the pixels that it meets. */
static size_t product_room(const nn_call *c) { return product_bytes(c) + met_bytes(c); }

static size_t conv_workspace(const nn_call *c) {
    const conv_plan *p = (const conv_plan *)c->prepared;
    if (c->fused->maker && is_product(c)) return norm_product_workspace(c);
    return (is_product(c) ? product_room(c) * (p->side ? 2 : 1) : space_of(c).bytes) / sizeof(float);
}

/* ---- copies ---- */

/* Adds the gradient of W from cuDNN's, whose pixels are padded. */
template <typename T>
__global__ static void add_kernel(int64_t n, int64_t in, int64_t padded, const T *from, float *to, bool add) {
    const int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) to[i] = (add ? to[i] : 0) + widen(from[i / in * padded + i % in]);
}

template <typename T> static void add_weights(const nn_call *c, const void *from) {
    const int64_t n = nn_numbers(c->input[1].shape);
    add_kernel<T><<<(unsigned)parts(n, 256), 256, 0, stream_of(c)>>>(n, in_of(c), padded_in(c), (const T *)from,
                                                                     c->grad->input[1], c->grad->accumulate[1]);
}

/* Pixels into workspace, with zeros behind those of fewer channels than there is room for. */
static void *copy_in(const nn_call *c, nn_type type, int64_t pixels, int64_t channels, const void *from, int64_t stride,
                     void *to, int64_t to_stride) {
    if (channels != to_stride) cudaMemsetAsync(to, 0, (size_t)(pixels * to_stride) * size_of(type), stream_of(c));
    BY_TYPE(type, copy_pixels, c, pixels, channels, from, stride, to, to_stride, false);
    return to;
}

static void *x_without_gaps(const nn_call *c, const conv_space *s) {
    const nn_array *x = &c->input[0];
    if (!x_is_copied(c)) return x->data;
    return copy_in(c, x->type, nn_pixels(x), in_of(c), x->data, x->stride, s->x, padded_in(c));
}

static void *w_without_gaps(const nn_call *c, const conv_space *s) {
    if (!w_is_copied(c)) return c->input[1].data;
    return copy_in(c, c->input[1].type, taps(c), in_of(c), c->input[1].data, in_of(c), s->w, padded_in(c));
}

/* Packs of bf16 with the linear part of a gradient, zeros in rows that are not of the batch. */
__global__ static void linear_kernel(int64_t pixels, int64_t packs, const int64_t *live_rows, int64_t pixels_a_row,
                                     const bf16 *dy, const bf16 *y, int64_t stride, nn_channel_pairs linear, bf16 *to) {
    const int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x, p = i / packs, j = i % packs * 8;
    const int64_t live = live_rows ? *live_rows * pixels_a_row : pixels;
    if (p >= pixels) return;
    float g[8] = {}, v[8];
    if (p < live) {
        load_floats<8>(dy + p * stride + j, g);
        load_floats<8>(y + p * stride + j, v);
        for (int k = 0; k < 8; k++) g[k] += fmaf(linear.first[linear.stride + j + k], v[k], linear.first[j + k]);
    }
    store_floats<8>(to + p * packs * 8 + j, g);
}

static void *dy_with_linear(const nn_call *c, const conv_space *s) {
    const nn_array *y = &c->output[0];
    const int64_t pixels = nn_pixels(y), packs = out_of(c) / 8;
    const unsigned blocks = (unsigned)parts(pixels * packs, 256);
    if (blocks)
        linear_kernel<<<blocks, 256, 0, stream_of(c)>>>(pixels, packs, y->live_rows, y->cols / out_of(c),
                                                        (const bf16 *)c->grad->output[0], (const bf16 *)y->data,
                                                        y->stride, c->fused->output_linear, (bf16 *)s->y);
    return s->y;
}

static void *dy_without_gaps(const nn_call *c, const conv_space *s) {
    const nn_array *y = &c->output[0];
    if (c->fused->output_linear.first) return dy_with_linear(c, s);
    if (!y_is_copied(c)) return c->grad->output[0];
    return copy_in(c, y->type, nn_pixels(y), out_of(c), c->grad->output[0], y->stride, s->y, out_of(c));
}

/* ---- pixels that a stride meets ---- */

struct met_pixels {
    int64_t pixels, channels; /* of the result */
    int64_t height, width, y_height, y_width, stride, x_stride;
};

static met_pixels met_of(const nn_call *c) {
    const int64_t *x = c->input[0].shape->dim, *y = c->output[0].shape->dim;
    return {nn_pixels(&c->output[0]),        in_of(c),          x[1], x[2], y[1], y[2],
            NN_ATTR(convolution, c)->stride, c->input[0].stride};
}

template <typename T, int N> __global__ static void gather_kernel(met_pixels m, const T *x, T *to) {
    const int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x, packs = m.channels / N;
    const int64_t p = i / packs, j = i % packs * N, row = p / (m.y_height * m.y_width);
    if (p >= m.pixels) return;
    const int64_t a = p / m.y_width % m.y_height * m.stride, b = p % m.y_width * m.stride;
    float v[N];
    load_floats<N>(x + ((row * m.height + a) * m.width + b) * m.x_stride + j, v);
    store_floats<N>(to + p * m.channels + j, v);
}

/* Every pixel of x, with 0 for those that were not met. */
template <typename T, int N>
__global__ static void scatter_kernel(met_pixels m, int64_t all, const T *from, target<T> dx) {
    const int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x, packs = m.channels / N;
    const int64_t p = i / packs, j = i % packs * N, row = p / (m.height * m.width);
    if (p >= all) return;
    const int64_t a = p / m.width % m.height, b = p % m.width;
    const int64_t ya = a / m.stride, yb = b / m.stride;
    const bool met = a % m.stride == 0 && b % m.stride == 0 && ya < m.y_height && yb < m.y_width;
    float v[N] = {};
    if (met) load_floats<N>(from + ((row * m.y_height + ya) * m.y_width + yb) * m.channels + j, v);
    if (met || !dx.add) put<N>(dx, p * m.x_stride + j, v);
}

template <typename T, int N> static void run_met(const nn_call *c, void *met, bool gather) {
    const met_pixels m = met_of(c);
    const int64_t all = nn_pixels(&c->input[0]), n = (gather ? m.pixels : all) * (m.channels / N);
    const unsigned blocks = (unsigned)parts(n, 256);
    if (blocks == 0) return;
    if (gather) gather_kernel<T, N><<<blocks, 256, 0, stream_of(c)>>>(m, (const T *)c->input[0].data, (T *)met);
    else scatter_kernel<T, N><<<blocks, 256, 0, stream_of(c)>>>(m, all, (const T *)met, target_of<T>(c, 0));
}

template <typename T> static void by_access(const nn_call *c, void *met, bool gather) {
    constexpr int N = pack<T>::N;
    const void *x = gather ? c->input[0].data : (const void *)c->grad->input[0];
    if (in_of(c) % N == 0 && c->input[0].stride % N == 0 && (uintptr_t)x % 16 == 0) run_met<T, N>(c, met, gather);
    else run_met<T, 1>(c, met, gather);
}

static void *met_place(const nn_call *c) { return (char *)c->workspace + product_bytes(c); }

/* x as products read it. */
static void *met_x(const nn_call *c) {
    if (!skips_pixels(c)) return c->input[0].data;
    BY_TYPE(c->input[0].type, by_access, c, met_place(c), true);
    return met_place(c);
}

/* ---- forward and backward ---- */

/* From workspace to where y is. */
static void place_y(const nn_call *c, const conv_space *s) {
    const nn_array *y = &c->output[0];
    if (!c->fused->output_moments.first) {
        BY_TYPE(y->type, copy_pixels, c, nn_pixels(y), out_of(c), s->y, out_of(c), y->data, y->stride, false);
        return;
    }
    moments_work w = moments_of_y(c);
    w.partials = (float *)s->sums;
    w.counters = ((conv_plan *)c->prepared)->counters;
    w.to = c->fused->output_moments;
    find_moments(c, w, y, s->y, out_of(c), y->data);
}

/* Into a wider array. */
static void run_stem(const nn_call *c, const hopper_moments &moments) {
    const nn_array *x = &c->input[0], *y = &c->output[0];
    const cudaError_t e =
        x->rows ? hopper_stem(x->rows, x->data, c->input[1].data, y->data, moments, stream_of(c), y->stride)
                : cudaSuccess;
    if (e != cudaSuccess) nn_cuda_launch_failed("a convolution", cudaGetErrorString(e));
}

static void conv_forward(const nn_call *c) {
    conv_plan *p = (conv_plan *)c->prepared;
    const nn_array *y = &c->output[0];
    if (is_product(c)) {
        if (c->fused->maker) norm_product_forward(c, p->counters);
        else product_run(c, &p->products[CONV_Y], c->input[1].data, met_x(c), y->data, false, NULL);
        return;
    }
    const conv_space s = space_of(c);
    if (c->fused->maker) {
        norm_convolution_forward(c, (float *)s.sums, p->counters);
        return;
    }
    if (p->hopper[CONV_Y]) {
        const conv_shape shape = hopper_shape(c);
        const hopper_moments moments = {c->fused->output_moments, (float *)s.sums, p->counters, y->live_rows};
        if (y_is_copied(c)) run_stem(c, moments);
        else hopper_convolution_run(&shape, CONV_Y, stream_of(c), c->input[0].data, c->input[1].data, y->data, false);
        return;
    }
    void *to = y_is_copied(c) ? s.y : y->data;
    convolution_run(&p->convolutions[CONV_Y], stream_of(c), x_without_gaps(c, &s), w_without_gaps(c, &s), to, s.own);
    if (y_is_copied(c)) place_y(c, &s);
}

static void product_input_backward(const nn_call *c, conv_plan *p) {
    const bool skips = skips_pixels(c);
    product_run(c, &p->products[CONV_DX], c->input[1].data, c->grad->output[0],
                skips ? met_place(c) : c->grad->input[0], !skips && c->grad->accumulate[0], NULL);
    if (skips) BY_TYPE(c->input[0].type, by_access, c, met_place(c), false);
}

static void product_weights_backward(const nn_call *c, conv_plan *p) {
    product_run(c, &p->products[CONV_DW], met_x(c), c->grad->output[0], c->grad->input[1], c->grad->accumulate[1],
                NULL);
}

static void input_backward(const nn_call *c, conv_plan *p, const conv_space *s, void *dy) {
    if (c->fused->maker) {
        norm_convolution_backward(c, (float *)s->sums, p->counters);
        return;
    }
    const nn_array *x = &c->input[0];
    if (p->hopper[CONV_DX]) {
        const conv_shape shape = hopper_shape(c);
        hopper_convolution_run(&shape, CONV_DX, stream_of(c), dy, c->input[1].data, c->grad->input[0],
                               c->grad->accumulate[0]);
        return;
    }
    const bool direct = !x_is_copied(c) && (p->adds || !c->grad->accumulate[0]);
    void *dx = direct ? (void *)c->grad->input[0] : s->x;
    convolution_run(&p->convolutions[CONV_DX], stream_of(c), dx, w_without_gaps(c, s), dy, s->own);
    if (!direct)
        BY_TYPE(x->type, copy_pixels, c, nn_pixels(x), in_of(c), dx, padded_in(c), c->grad->input[0], x->stride,
                c->grad->accumulate[0]);
}

static void weights_backward(const nn_call *c, conv_plan *p, const conv_space *s, void *dy) {
    const nn_type type = c->input[0].type;
    if (p->hopper[CONV_DW]) {
        const conv_shape shape = hopper_shape(c);
        hopper_weights_run(&shape, stream_of(c), c->input[0].data, dy, c->grad->input[1], c->grad->accumulate[1],
                           (float *)s->parts);
        return;
    }
    const bool direct = type == NN_F32 && !c->grad->accumulate[1] && !w_is_copied(c);
    void *dw = direct ? (void *)c->grad->input[1] : s->w;
    convolution_run(&p->convolutions[CONV_DW], stream_of(c), x_without_gaps(c, s), dw, dy, s->own);
    if (!direct) BY_TYPE(type, add_weights, c, dw);
}

static void own_weights_backward(const nn_call *c, const conv_space *s, void *dy) {
    if (c->fused->maker) norm_weights_backward(c, (float *)s->parts);
    else weight_gradient_run(c, dy, out_of(c), (float *)s->parts);
}

/* Computes both gradients in parallel: one alone often leaves most of a device idle, at least at its end. of_weights
 * launches its work on the stream of the call that it gets. */
template <typename W, typename I>
static void gradients_at_once(const nn_call *c, conv_plan *p, W of_weights, I of_input) {
    nn_call weights = *c;
    nn_on_device side = *c->device;
    side.stream = p->side;
    weights.device = &side;
    cudaEventRecord(p->forked, stream_of(c));
    cudaStreamWaitEvent(p->side, p->forked, 0);
    of_weights(&weights);
    cudaEventRecord(p->joined, p->side);
    of_input();
    cudaStreamWaitEvent(stream_of(c), p->joined, 0);
}

static void products_backward(const nn_call *c, conv_plan *p) {
    const auto of_weights = [&](nn_call *weights) {
        weights->workspace = (float *)((char *)c->workspace + product_room(c));
        product_weights_backward(weights, p);
    };
    if (p->side) {
        gradients_at_once(c, p, of_weights, [&] { product_input_backward(c, p); });
        return;
    }
    if (c->grad->input[0]) product_input_backward(c, p);
    if (c->grad->input[1]) product_weights_backward(c, p);
}

static void conv_backward(const nn_call *c) {
    conv_plan *p = (conv_plan *)c->prepared;
    if (is_product(c)) {
        if (c->fused->maker) norm_product_backward(c);
        else products_backward(c, p);
        return;
    }
    const conv_space s = space_of(c);
    void *dy = c->fused->maker ? NULL : dy_without_gaps(c, &s); /* kernels with a norm take it as it is */
    const auto of_weights = [&](const nn_call *weights) {
        conv_space meanwhile = s;
        meanwhile.own = s.side;
        if (own_weight_gradient(c)) own_weights_backward(weights, &s, dy);
        else weights_backward(weights, p, &meanwhile, dy);
    };
    if (p->side) {
        gradients_at_once(c, p, of_weights, [&] { input_backward(c, p, &s, dy); });
        return;
    }
    if (c->fused->maker || c->grad->input[0]) input_backward(c, p, &s, dy);
    if (own_weight_gradient(c)) own_weights_backward(c, &s, dy);
    else if (c->grad->input[1]) weights_backward(c, p, &s, dy);
}

/* ---- what is done for others ---- */

static bool conv_gives_moments(const nn_call *c) { return c->fused->maker || y_is_copied_in_packs(c); }

static bool conv_absorbs(const nn_call *c, const char *op, const nn_call *maker) {
    if (strcmp(op, "batch_norm") != 0) return false;
    if (is_product(c)) return norm_product_fits(c, maker);
    return y_is_copied_in_packs(c) && norm_convolution_fits(c, maker);
}

const nn_kernels nn_cuda_convolution = {
    .forward = conv_forward,
    .backward = conv_backward,
    .workspace = conv_workspace,
    .prepare = conv_prepare,
    .release = conv_release,
    .fusion = {.gives_moments = conv_gives_moments, .takes_linear = y_is_copied_in_packs, .absorbs = conv_absorbs}};
