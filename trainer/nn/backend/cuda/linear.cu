/* y = activation(x W^T + b) and its gradient (ops/linear.c) by cuBLASLt, with bias and ReLU in its epilogue. (It could sum
 * the bias's gradient on the way to dW, too, or take ReLU's slope on the way to dx; but those kernels take 1.4 to 1.9 and
 * 1.5 to 3 times as long on an H200.)
 *
 * cuBLASLt sees columns where we see rows, so each product is asked for transposed:
 *   y  [rows, out]: y^T = W x^T        dx [rows, in]: dx^T = W^T dz^T        dW [out, in]: dW^T = x^T dz
 * A small dW leaves most of the chip idle, so the plan may have two of them done as one.
 */
#include "nn/backend/cuda/product.h"

#include <stdlib.h>

/* A node's plan in one direction: forward one product, backward two, for x and W. */
typedef struct linear_plan {
    product y, dx, dw;
    bool fused;      /* forward's bias and ReLU are in the epilogue; cuBLASLt lacks that for some shapes */
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

/* Fused, if that can be. */
static adamod_status prepare_forward(const nn_call *c, linear_plan *p) {
    const product_shape fused = forward_shape(c, true), plain = forward_shape(c, false);
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

enum { SUM_ROWS = 32, SUM_LANES = 8 }; /* of a block: rows, and threads side by side */

/* The gradient before the activation, given that after it. */
template <nn_activation A, typename T, int N>
__device__ static inline void times_slope(const uint4 &y, const float *saved, float (&g)[N]) {
    if (A == NN_RELU) {
        float x[N];
        widen_raw<T>(y, x);
        for (int k = 0; k < N; k++) g[k] = x[k] > 0 ? g[k] : 0;
    } else if (A == NN_GELU) {
        float z[N];
        load_floats<N>(saved, z);
        for (int k = 0; k < N; k++) g[k] *= normal_below(z[k]) + z[k] * 0.39894228f * expf(-0.5f * z[k] * z[k]);
    }
}

/* dy becomes dz, in its place: nothing else reads it. A block has SUM_ROWS rows of 32 N columns, N a pack or, where columns
 * are no whole packs, one, and leaves their sums in its row of sums, unless that is NULL. */
template <typename T, int N, nn_activation A>
__global__ static void __launch_bounds__(32 * SUM_LANES, 4)
    slope_kernel(int64_t rows, int64_t cols, unsigned across, const T *y, const float *saved, T *dz, float *sums) {
    constexpr int ROWS = SUM_ROWS / SUM_LANES; /* of a thread */
    __shared__ __align__(16) float shared[SUM_LANES][32 * N];
    const int64_t part = blockIdx.x / across, column = (int64_t)(blockIdx.x % across) * 32 * N;
    const int64_t j = column + threadIdx.x * N, first = part * SUM_ROWS + threadIdx.y;
    uint4 g[ROWS], a[ROWS] = {};
#pragma unroll
    for (int i = 0; i < ROWS; i++) { /* all loads before the first store */
        const int64_t row = first + i * SUM_LANES, at = row * cols + j;
        const bool there = row < rows && j < cols;
        g[i] = load_raw<N>(dz + at, there);
        if (A == NN_RELU) a[i] = load_raw<N>(y + at, there);
    }
    float sum[N] = {};
#pragma unroll
    for (int i = 0; i < ROWS; i++) {
        const int64_t row = first + i * SUM_LANES, at = row * cols + j;
        float x[N];
        if (row >= rows || j >= cols) continue;
        widen_raw<T>(g[i], x);
        times_slope<A, T>(a[i], saved + at, x);
        if (A != NN_LINEAR) store_floats<N>(dz + at, x);
        for (int k = 0; k < N; k++) sum[k] += x[k];
    }
    if (!sums) return;
    store_floats<N>(&shared[threadIdx.y][threadIdx.x * N], sum);
    __syncthreads();
    for (int k = (int)(threadIdx.y * 32 + threadIdx.x); k < 32 * N && column + k < cols; k += 32 * SUM_LANES) {
        float all = 0;
        for (int lane = 0; lane < SUM_LANES; lane++) all += shared[lane][k];
        sums[part * cols + column + k] = all;
    }
}

template <typename T, int N> static void launch_slope(const nn_call *c) {
    const int64_t rows = c->output[0].rows, cols = out_of(c), across = parts(cols, 32 * N);
    const nn_activation activation = NN_ATTR(linear, c)->activation;
    void (*const kernel)(int64_t, int64_t, unsigned, const T *, const float *, T *, float *) =
        activation == NN_RELU   ? slope_kernel<T, N, NN_RELU>
        : activation == NN_GELU ? slope_kernel<T, N, NN_GELU>
                                : slope_kernel<T, N, NN_LINEAR>;
    const unsigned blocks = (unsigned)(across * parts(rows, SUM_ROWS));
    if (blocks == 0) return;
    kernel<<<blocks, dim3(32, SUM_LANES), 0, stream_of(c)>>>(rows, cols, (unsigned)across, (const T *)c->output[0].data,
                                                             c->saved, (T *)c->grad->output[0],
                                                             c->grad->input[2] ? c->grad->partials : NULL);
}

template <typename T> static void find_dz(const nn_call *c) {
    if (out_of(c) % pack<T>::N == 0) launch_slope<T, pack<T>::N>(c);
    else launch_slope<T, 1>(c);
}

static size_t linear_partials(const nn_call *c) {
    return c->grad->input[2] ? (size_t)(parts(c->output[0].rows, SUM_ROWS) * out_of(c)) : 0;
}

static void bias_grad(const nn_call *c) {
    const int64_t cols = out_of(c);
    const nn_sum sum = {c->grad->partials,     cols, parts(c->output[0].rows, SUM_ROWS), cols, c->grad->input[2],
                        c->grad->accumulate[2]};
    nn_cuda_sum(c, &sum);
}

/* ---- forward and backward ---- */

static void linear_forward(const nn_call *c) {
    linear_plan *p = (linear_plan *)c->prepared;
    const nn_activation activation = NN_ATTR(linear, c)->activation;
    void *bias = c->input[2].data;
    product_run(c, &p->y, c->input[1].data, c->input[0].data, c->output[0].data, false, p->fused ? bias : NULL);
    if (activation == NN_GELU || (!p->fused && (bias || activation == NN_RELU)))
        BY_TYPE(c->output[0].type, launch_activate, c, !p->fused);
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
                                   .pairs = true};
