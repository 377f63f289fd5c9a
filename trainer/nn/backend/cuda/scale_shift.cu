/* y = activation(scale x + shift + residual) and its gradient (ops/scale_shift.c): one scale and one shift for all of x. In
 * backward a block leaves its part of their gradients' sums. */
#include "nn/backend/cuda/cuda.h"

enum { THREADS = 256, MOST_BLOCKS = 512 };

template <typename T> struct scale_work {
    int64_t n;
    const T *x, *residual, *y;
    const float *scale, *shift; /* NULL: 1 and 0 */
    bool relu;
};

template <typename T> static scale_work<T> work_of(const nn_call *c) {
    return {c->output[0].rows * c->output[0].cols,
            (const T *)c->input[0].data,
            (const T *)c->input[3].data,
            (const T *)c->output[0].data,
            (const float *)c->input[1].data,
            (const float *)c->input[2].data,
            NN_ATTR(scale_shift, c)->activation == NN_RELU};
}

static int64_t blocks_of(const nn_call *c) {
    const int64_t n = parts(c->output[0].rows * c->output[0].cols, THREADS * 8);
    return n < MOST_BLOCKS ? n : (int64_t)MOST_BLOCKS;
}

template <typename T, int N> __global__ static void forward_kernel(scale_work<T> w, T *y) {
    const float scale = w.scale ? *w.scale : 1, shift = w.shift ? *w.shift : 0;
    for (int64_t i = ((int64_t)blockIdx.x * THREADS + threadIdx.x) * N; i < w.n;
         i += (int64_t)gridDim.x * THREADS * N) {
        float x[N], other[N] = {};
        load_floats<N>(w.x + i, x);
        if (w.residual) load_floats<N>(w.residual + i, other);
        for (int k = 0; k < N; k++) {
            const float z = fmaf(scale, x[k], shift) + other[k];
            x[k] = w.relu && z < 0 ? 0 : z;
        }
        store_floats<N>(y + i, x);
    }
}

/* x and residual may be one value, with one gradient. So a number's dx is complete before its residual's gradient
 * begins. */
template <typename T, int N>
__global__ static void backward_kernel(scale_work<T> w, const T *dy, target<T> dx, target<T> dr, float *sums) {
    const float scale = w.scale ? *w.scale : 1;
    float sum[2] = {0, 0};
    for (int64_t i = ((int64_t)blockIdx.x * THREADS + threadIdx.x) * N; i < w.n;
         i += (int64_t)gridDim.x * THREADS * N) {
        float g[N], y[N], x[N] = {};
        load_floats<N>(dy + i, g);
        if (w.relu) load_floats<N>(w.y + i, y);
        if (w.scale) load_floats<N>(w.x + i, x);
        for (int k = 0; k < N; k++) {
            if (w.relu && !(y[k] > 0)) g[k] = 0;
            sum[0] = fmaf(g[k], x[k], sum[0]);
            sum[1] += g[k];
            x[k] = scale * g[k];
        }
        put<N>(dx, i, x);
        put<N>(dr, i, g);
    }
    group_sums<THREADS / 32>(sum);
    if (sums && threadIdx.x < 2) sums[2 * blockIdx.x + threadIdx.x] = sum[threadIdx.x];
}

template <typename T, int N> static void run(const nn_call *c) {
    const scale_work<T> w = work_of<T>(c);
    const unsigned blocks = (unsigned)blocks_of(c);
    if (blocks == 0) return;
    if (!c->grad->output[0]) forward_kernel<T, N><<<blocks, THREADS, 0, stream_of(c)>>>(w, (T *)c->output[0].data);
    else
        backward_kernel<T, N><<<blocks, THREADS, 0, stream_of(c)>>>(
            w, (const T *)c->grad->output[0], target_of<T>(c, 0), target_of<T>(c, 3), c->grad->partials);
}

template <typename T> static void by_access(const nn_call *c) {
    if (c->output[0].rows * c->output[0].cols % pack<T>::N == 0) run<T, pack<T>::N>(c);
    else run<T, 1>(c);
}

static size_t scale_partials(const nn_call *c) {
    return c->grad->input[1] || c->grad->input[2] ? (size_t)(2 * blocks_of(c)) : 0;
}

static void scale_shift_backward(const nn_call *c) {
    BY_TYPE(c->input[0].type, by_access, c);
    for (int k = 0; k < 2; k++) {
        const nn_sum sum = {c->grad->partials + k,     2, blocks_of(c), 1, c->grad->input[1 + k],
                            c->grad->accumulate[1 + k]};
        nn_cuda_sum(c, &sum);
    }
}

const nn_kernels nn_cuda_scale_shift = {
    .forward = NN_BY_TYPE(input[0], by_access), .backward = scale_shift_backward, .partials = scale_partials};
