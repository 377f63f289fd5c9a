/* y = silu(a) b of x = [a | b]: see ops/swiglu.c. A thread takes N numbers side by side of a row, where the number of columns
 * is a multiple of that. */
#include "nn/backend/cuda/gate.cuh"

enum { THREADS = 256, CHUNK = 8 };

/* The place in x of number i of y. */
__device__ static inline int64_t place_in_x(int64_t i, int64_t cols) { return i + i / cols * cols; }

template <typename T, int N>
__global__ static void __launch_bounds__(THREADS) forward_kernel(const T *x, T *y, int64_t n, int64_t cols) {
    const int64_t i = N * ((int64_t)blockIdx.x * THREADS + threadIdx.x), at = place_in_x(i, cols);
    if (i >= n) return;
    float a[N], b[N];
    load_floats<N>(x + at, a);
    load_floats<N>(x + at + cols, b);
    for (int k = 0; k < N; k++) a[k] *= gate_of(a[k]).s * b[k];
    store_floats<N>(y + i, a);
}

/* dx may have x's memory. */
template <typename T, int N>
__global__ static void __launch_bounds__(THREADS)
    backward_kernel(const T *x, const T *dy, target<T> dx, int64_t n, int64_t cols) {
    const int64_t i = N * ((int64_t)blockIdx.x * THREADS + threadIdx.x), at = place_in_x(i, cols);
    if (i >= n) return;
    float a[N], b[N], g[N];
    load_floats<N>(x + at, a);
    load_floats<N>(x + at + cols, b);
    load_floats<N>(dy + i, g);
    for (int k = 0; k < N; k++) {
        const gate silu = gate_of(a[k]);
        const float to_a = g[k] * b[k] * (silu.s + a[k] * silu.slope);
        b[k] = g[k] * a[k] * silu.s;
        a[k] = to_a;
    }
    put<N>(dx, at, a);
    put<N>(dx, at + cols, b);
}

static int64_t count_of(const nn_call *c) { return c->output[0].rows * c->output[0].cols; }

static bool in_chunks(const nn_call *c) { return c->output[0].cols % CHUNK == 0; }

static unsigned blocks_of(const nn_call *c) {
    return (unsigned)parts(count_of(c), (in_chunks(c) ? (int)CHUNK : 1) * THREADS);
}

template <typename T> static void forward(const nn_call *c) {
    if (count_of(c) == 0) return;
    (in_chunks(c) ? forward_kernel<T, CHUNK> : forward_kernel<T, 1>)<<<blocks_of(c), THREADS, 0, stream_of(c)>>>(
        (const T *)c->input[0].data, (T *)c->output[0].data, count_of(c), c->output[0].cols);
}

template <typename T> static void backward(const nn_call *c) {
    if (count_of(c) == 0 || !c->grad->input[0]) return;
    (in_chunks(c) ? backward_kernel<T, CHUNK> : backward_kernel<T, 1>)<<<blocks_of(c), THREADS, 0, stream_of(c)>>>(
        (const T *)c->input[0].data, (const T *)c->grad->output[0], target_of<T>(c, 0), count_of(c), c->output[0].cols);
}

extern "C" const nn_kernels nn_cuda_swiglu = {.forward = NN_BY_TYPE(output[0], forward),
                                              .backward = NN_BY_TYPE(output[0], backward)};
