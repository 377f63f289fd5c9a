/* y = activation(x W^T + b) and its gradient (ops/linear.c) by cuBLASLt, with bias and ReLU in its epilogue. (It could sum
 * the bias's gradient on the way to dW, too, or take ReLU's slope on the way to dx; but those kernels take 1.4 to 1.9 and
 * 1.5 to 3 times as long on an H200.) In bf16 the epilogue also does the work of a gelu or a residual addition behind it.
 *
 * cuBLASLt sees columns where we see rows, so each product is asked for transposed:
 *   y  [rows, out]: y^T = W x^T        dx [rows, in]: dx^T = W^T dz^T        dW [out, in]: dW^T = x^T dz
 * A small dW leaves most of the chip idle, so the plan may have two of them done as one.
 */
#include "nn/backend/cuda/product.h"
#include "nn/backend/cuda/slope.cuh"

#include <stdlib.h>
#include <string.h>

/* A node's plan in one direction: forward one product, backward two, for x and W. */
typedef struct linear_plan {
    product y, dx, dw;
    bool fused;      /* forward's bias and ReLU are in the epilogue; cuBLASLt lacks that for some shapes */
    bool finishes;   /* and so is the work of the op behind it */
    product pair;    /* dw of this and the paired call in one; not ready: there is none */
    void **pointers; /* of pair, on the device: two of x, two of dz, two of dW */
} linear_plan;

/* ---- shapes ---- */

static cudaDataType_t data_type(nn_type type) { return type == NN_BF16 ? CUDA_R_16BF : CUDA_R_32F; }

static int64_t in_of(const nn_call *c) { return c->input[1].cols; }
static int64_t out_of(const nn_call *c) { return c->output[0].cols; }

static product_shape forward_shape(const nn_call *c, bool fused) {
    const int64_t rows = c->output[0].rows, in = in_of(c), out = out_of(c);
    const bool relu = NN_ATTR(linear, c)->activation == NN_RELU;
    const cublasLtEpilogue_t epilogue = !fused ? CUBLASLT_EPILOGUE_DEFAULT
                                        : c->input[2].data
                                            ? (relu ? CUBLASLT_EPILOGUE_RELU_BIAS : CUBLASLT_EPILOGUE_BIAS)
                                        : relu ? CUBLASLT_EPILOGUE_RELU
                                               : CUBLASLT_EPILOGUE_DEFAULT;
    const cudaDataType_t type = data_type(c->input[0].type);
    return product_shape{true, false, out, rows, in, in, in, out, type, data_type(c->output[0].type), epilogue, 1};
}

static product_shape input_grad_shape(const nn_call *c) {
    const int64_t rows = c->output[0].rows, in = in_of(c), out = out_of(c);
    return product_shape{false,
                         false,
                         in,
                         rows,
                         out,
                         in,
                         out,
                         in,
                         data_type(c->input[0].type),
                         data_type(c->grad->type[0]),
                         CUBLASLT_EPILOGUE_DEFAULT,
                         1};
}

static product_shape weight_grad_shape(const nn_call *c, int count) {
    const int64_t rows = c->output[0].rows, in = in_of(c), out = out_of(c);
    return product_shape{
        false, true, in, out, rows, in, out, in, data_type(c->input[0].type), CUDA_R_32F, CUBLASLT_EPILOGUE_DEFAULT,
        count};
}

static void linear_release(void *prepared) {
    linear_plan *p = (linear_plan *)prepared;
    if (!p) return;
    product_free(&p->y);
    product_free(&p->dx);
    product_free(&p->dw);
    product_free(&p->pair);
    cudaFree(p->pointers);
    free(p);
}

/* ---- gelu or a residual addition behind it ---- */

/* In f32 the ops stay apart, with the bits they have alone. */
static bool linear_finishes(const nn_call *c, const char *reader_op, const nn_call *reader) {
    if (c->input[0].type != NN_BF16 || NN_ATTR(linear, c)->activation != NN_LINEAR) return false;
    return strcmp(reader_op, "gelu") == 0 || (strcmp(reader_op, "add") == 0 && nn_dropout_of(reader->attributes) == 0);
}

static bool is_addition(const nn_call *reader) { return reader->input[1].cols > 0; }

static product_shape finished_shape(const nn_call *c) {
    product_shape s = forward_shape(c, true);
    if (!is_addition(c->fused->reader))
        s.epilogue = c->input[2].data ? CUBLASLT_EPILOGUE_GELU_AUX_BIAS : CUBLASLT_EPILOGUE_GELU_AUX;
    return s;
}

/* gelu's backward reads y, which the epilogue leaves; an addition's does not. */
static void forward_finished(const nn_call *c, const linear_plan *p) {
    const nn_call *reader = c->fused->reader;
    const bool addition = is_addition(reader);
    const nn_array *other = &reader->input[reader->input[0].data == c->output[0].data ? 1 : 0];
    const product_more more = {c->input[2].data, addition ? other->data : NULL, addition ? NULL : c->output[0].data};
    product_run_more(c, &p->y, c->input[1].data, c->input[0].data, reader->output[0].data, &more);
}

/* The op behind it by its own kernel, where cuBLASLt has no such epilogue. */
static void forward_reader(const nn_call *reader) {
    (is_addition(reader) ? &nn_cuda_add : &nn_cuda_gelu)->forward(reader);
}

/* ---- making products ---- */

/* Fused, if that can be. */
static adamod_status prepare_forward(const nn_call *c, linear_plan *p) {
    const product_shape fused = forward_shape(c, true), plain = forward_shape(c, false);
    if (c->fused->reader) {
        const product_shape finished = finished_shape(c);
        p->finishes = product_try(&p->y, &finished, c->device->precision, c->training);
        if (p->finishes) return ADAMOD_OK;
    }
    p->fused = product_try(&p->y, &fused, c->device->precision, c->training);
    return p->fused ? ADAMOD_OK : product_make(&p->y, &plain, c->device->precision, c->training);
}

/* Without it, backward_weights computes one after the other. */
static adamod_status prepare_pair(const nn_call *c, linear_plan *p) {
    const product_shape s = weight_grad_shape(c, 2);
    if (!product_try(&p->pair, &s, c->device->precision, false)) return ADAMOD_OK;
    const void *const pointers[6] = {c->grad->paired_with->input[0].data,   c->input[0].data,
                                     c->grad->paired_with->grad->output[0], c->grad->output[0],
                                     c->grad->paired_with->grad->input[1],  c->grad->input[1]};
    cudaError_t e = cudaMalloc((void **)&p->pointers, sizeof pointers);
    /* on the stream that reads them, which waits for no other */
    if (e == cudaSuccess)
        e = cudaMemcpyAsync(p->pointers, pointers, sizeof pointers, cudaMemcpyHostToDevice, stream_of(c));
    return nn_cuda_failed(e, "pairing products");
}

static adamod_status prepare_backward(const nn_call *c, linear_plan *p) {
    adamod_status status = ADAMOD_OK;
    if (c->grad->input[0]) {
        const product_shape s = input_grad_shape(c);
        status = product_make(&p->dx, &s, c->device->precision, c->training);
    }
    if (!status && c->grad->input[1]) {
        const product_shape s = weight_grad_shape(c, 1);
        status = product_make(&p->dw, &s, c->device->precision, c->training);
    }
    return status || !c->grad->paired_with ? status : prepare_pair(c, p);
}

static adamod_status linear_prepare(const nn_call *c, void **prepared) {
    adamod_status status = product_library();
    if (status) return status;
    linear_plan *p = (linear_plan *)calloc(1, sizeof *p);
    if (!p) return nn_cuda_fail(ADAMOD_ERROR_MEMORY, "out of memory for a linear op");
    status = c->grad->output[0] ? prepare_backward(c, p) : prepare_forward(c, p);
    if (status) linear_release(p);
    else *prepared = p;
    return status;
}

static size_t linear_workspace(const nn_call *c) {
    const linear_plan *p = (const linear_plan *)c->prepared;
    const size_t bytes[] = {p->y.workspace, p->dx.workspace, p->dw.workspace, p->pair.workspace};
    size_t most = 0;
    for (size_t b : bytes) most = b > most ? b : most;
    return (size_t)parts((int64_t)most, sizeof(float));
}

/* ---- activations that the library does not fuse ---- */

__device__ static float normal_below(float z) { return 0.5f * erfcf(-0.70710678f * z); }

/* y holds z, or what b is to be added to. */
template <typename T>
__global__ static void activate_kernel(int64_t n, int64_t cols, nn_activation activation, const T *b, float *saved,
                                       T *y) {
    const int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    const float z = widen(y[i]) + (b ? widen(b[i % cols]) : 0);
    if (activation == NN_LINEAR) {
        y[i] = narrow<T>(z);
    } else if (activation == NN_RELU) {
        y[i] = narrow<T>(z < 0 ? 0 : z);
    } else {
        saved[i] = z;
        y[i] = narrow<T>(z * normal_below(z));
    }
}

template <typename T> static void launch_activate(const nn_call *c, bool bias) {
    const int64_t n = c->output[0].rows * out_of(c);
    const T *b = bias ? (const T *)c->input[2].data : NULL;
    activate_kernel<T><<<(unsigned)parts(n, 256), 256, 0, stream_of(c)>>>(n, out_of(c), NN_ATTR(linear, c)->activation,
                                                                          b, c->saved, (T *)c->output[0].data);
}

/* ---- slopes and sums over rows ---- */

struct no_slope {
    static constexpr bool writes = false;
    template <int N> __device__ uint4 load(int64_t, bool) const { return make_uint4(0, 0, 0, 0); }
    template <int N> __device__ void times(const uint4 &, int64_t, float (&)[N]) const {}
};

template <typename T> struct relu_slope {
    static constexpr bool writes = true;
    const T *y;
    template <int N> __device__ uint4 load(int64_t at, bool there) const { return load_raw<N>(y + at, there); }
    template <int N> __device__ void times(const uint4 &raw, int64_t, float (&g)[N]) const {
        float x[N];
        widen_raw<T>(raw, x);
        for (int k = 0; k < N; k++) g[k] = x[k] > 0 ? g[k] : 0;
    }
};

/* The slope of gelu(z) = z P(N < z). */
struct gelu_slope {
    static constexpr bool writes = true;
    const float *saved;
    template <int N> __device__ uint4 load(int64_t, bool) const { return make_uint4(0, 0, 0, 0); }
    template <int N> __device__ void times(const uint4 &, int64_t at, float (&g)[N]) const {
        float z[N];
        load_floats<N>(saved + at, z);
        for (int k = 0; k < N; k++) g[k] *= normal_below(z[k]) + z[k] * 0.39894228f * expf(-0.5f * z[k] * z[k]);
    }
};

/* dy becomes dz, in its place: nothing else reads it. */
template <typename T, class S> static void launch_dz(const nn_call *c, S slope) {
    T *const dz = (T *)c->grad->output[0];
    launch_slope<T, S>(stream_of(c), c->output[0].rows, out_of(c), slope, dz, dz,
                       c->grad->input[2] ? c->grad->partials : NULL);
}

template <typename T> static void find_dz(const nn_call *c) {
    switch (NN_ATTR(linear, c)->activation) {
        case NN_LINEAR: launch_dz<T>(c, no_slope{}); break;
        case NN_RELU: launch_dz<T>(c, relu_slope<T>{(const T *)c->output[0].data}); break;
        case NN_GELU: launch_dz<T>(c, gelu_slope{c->saved}); break;
    }
}

static size_t linear_partials(const nn_call *c) {
    return c->grad->input[2] ? slope_floats(c->output[0].rows, out_of(c)) : 0;
}

static void bias_grad(const nn_call *c) {
    const int64_t cols = out_of(c);
    const nn_sum sum = {c->grad->partials,     cols, slope_parts(c->output[0].rows), cols, c->grad->input[2],
                        c->grad->accumulate[2]};
    nn_cuda_sum(c, &sum);
}

/* ---- forward and backward ---- */

static void linear_forward(const nn_call *c) {
    linear_plan *p = (linear_plan *)c->prepared;
    const nn_activation activation = NN_ATTR(linear, c)->activation;
    void *bias = c->input[2].data;
    if (p->finishes) {
        forward_finished(c, p);
        return;
    }
    product_run(c, &p->y, c->input[1].data, c->input[0].data, c->output[0].data, false, p->fused ? bias : NULL);
    if (activation == NN_GELU || (!p->fused && (bias || activation == NN_RELU)))
        BY_TYPE(c->output[0].type, launch_activate, c, !p->fused);
    if (c->fused->reader) forward_reader(c->fused->reader);
}

/* find_dz also sums over rows. Without an activation, backward_weights calls it, as nothing waits for the sums. */
static void linear_backward(const nn_call *c) {
    linear_plan *p = (linear_plan *)c->prepared;
    if (NN_ATTR(linear, c)->activation != NN_LINEAR) BY_TYPE(c->output[0].type, find_dz, c);
    if (c->grad->input[0])
        product_run(c, &p->dx, c->input[1].data, c->grad->output[0], c->grad->input[0], c->grad->accumulate[0], NULL);
}

static void weights_alone(const nn_call *c, bool weight) {
    linear_plan *p = (linear_plan *)c->prepared;
    if (c->grad->input[2] && NN_ATTR(linear, c)->activation == NN_LINEAR) BY_TYPE(c->output[0].type, find_dz, c);
    bias_grad(c);
    if (c->grad->input[1] && weight)
        product_run(c, &p->dw, c->input[0].data, c->grad->output[0], c->grad->input[1], c->grad->accumulate[1], NULL);
}

static void linear_backward_weights(const nn_call *c) {
    linear_plan *p = (linear_plan *)c->prepared;
    if (c->grad->paired_with) {
        nn_call other = *c->grad->paired_with;
        nn_gradients grad = *other.grad;
        for (int k = 1; k < NN_MAX_INPUTS; k++) grad.accumulate[k] = c->grad->accumulate[k];
        other.grad = &grad;
        weights_alone(&other, !p->pair.ready);
    }
    weights_alone(c, !p->pair.ready);
    if (p->pair.ready)
        product_run(c, &p->pair, p->pointers, p->pointers + 2, p->pointers + 4, c->grad->accumulate[1], NULL);
}

const nn_kernels nn_cuda_linear = {.forward = linear_forward,
                                   .backward = linear_backward,
                                   .backward_weights = linear_backward_weights,
                                   .workspace = linear_workspace,
                                   .prepare = linear_prepare,
                                   .release = linear_release,
                                   .partials = linear_partials,
                                   .pairs = true,
                                   .fusion = {.finishes = linear_finishes}};
