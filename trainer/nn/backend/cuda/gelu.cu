/* y = gelu(x) by the tanh approximation: see ops/gelu.c. (1 + tanh(u)) / 2 is the sigmoid of 2 u. */
#include "nn/backend/cuda/gate.cuh"
#include "nn/backend/cuda/slope.cuh"

enum { THREADS = 256, CHUNK = 8 /* numbers of a thread */ };

/* 2 u = x (A + B x^2) */
__device__ static constexpr float A = 1.5957691216f, B = 0.0713548163f;

__device__ static inline float gelu(float x) { return x * gate_of(x * (A + B * x * x)).s; }

__device__ static inline float gelu_slope(float x) {
    const gate g = gate_of(x * (A + B * x * x));
    return g.s + x * g.slope * (A + 3 * B * x * x);
}

template <int N, typename T> __device__ static inline void forward_numbers(const T *x, T *y, int64_t i) {
    float v[N];
    load_floats<N>(x + i, v);
    for (int k = 0; k < N; k++) v[k] = gelu(v[k]);
    store_floats<N>(y + i, v);
}

/* dx may have x's memory. */
template <int N, typename T>
__device__ static inline void backward_numbers(const T *x, const T *dy, const target<T> &dx, int64_t i) {
    float v[N], g[N];
    load_floats<N>(x + i, v);
    load_floats<N>(dy + i, g);
    for (int k = 0; k < N; k++) g[k] *= gelu_slope(v[k]);
    put<N>(dx, i, g);
}

template <typename T> __global__ static void __launch_bounds__(THREADS) forward_kernel(const T *x, T *y, int64_t n) {
    const int64_t first = CHUNK * ((int64_t)blockIdx.x * THREADS + threadIdx.x);
    if (first + CHUNK <= n) forward_numbers<CHUNK>(x, y, first);
    else
        for (int64_t i = first; i < n; i++) forward_numbers<1>(x, y, i);
}

template <typename T>
__global__ static void __launch_bounds__(THREADS) backward_kernel(const T *x, const T *dy, target<T> dx, int64_t n) {
    const int64_t first = CHUNK * ((int64_t)blockIdx.x * THREADS + threadIdx.x);
    if (first + CHUNK <= n) backward_numbers<CHUNK>(x, dy, dx, first);
    else
        for (int64_t i = first; i < n; i++) backward_numbers<1>(x, dy, dx, i);
}

static int64_t count_of(const nn_call *c) { return c->output[0].rows * c->output[0].cols; }

static unsigned blocks_of(const nn_call *c) { return (unsigned)parts(count_of(c), CHUNK * THREADS); }

template <typename T> static void forward(const nn_call *c) {
    if (count_of(c) == 0) return;
    forward_kernel<T>
        <<<blocks_of(c), THREADS, 0, stream_of(c)>>>((const T *)c->input[0].data, (T *)c->output[0].data, count_of(c));
}

/* As slope.cuh wants it. */
template <typename T> struct tanh_slope {
    static constexpr bool writes = true;
    const T *x;
    template <int N> __device__ uint4 load(int64_t at, bool there) const { return load_raw<N>(x + at, there); }
    template <int N> __device__ void times(const uint4 &raw, int64_t, float (&g)[N]) const {
        float v[N];
        widen_raw<T>(raw, v);
        for (int k = 0; k < N; k++) g[k] *= gelu_slope(v[k]);
    }
};

/* dx, which is not added to, and the sums of its rows: the gradient of the bias in x. */
template <typename T> static void backward_with_sums(const nn_call *c) {
    const int64_t rows = c->output[0].rows, cols = c->output[0].cols;
    const tanh_slope<T> slope = {(const T *)c->input[0].data};
    const nn_sum sum = {c->grad->partials,       cols, slope_parts(rows), cols, c->grad->row_sums[0],
                        c->grad->accumulate_sums};
    launch_slope<T>(stream_of(c), rows, cols, slope, (const T *)c->grad->output[0], (T *)c->grad->input[0],
                    c->grad->partials);
    nn_cuda_sum(c, &sum);
}

static size_t gelu_partials(const nn_call *c) {
    return c->grad->row_sums[0] ? slope_floats(c->output[0].rows, c->output[0].cols) : 0;
}

template <typename T> static void backward(const nn_call *c) {
    if (c->grad->row_sums[0]) {
        backward_with_sums<T>(c);
        return;
    }
    if (count_of(c) == 0 || !c->grad->input[0]) return;
    backward_kernel<T><<<blocks_of(c), THREADS, 0, stream_of(c)>>>(
        (const T *)c->input[0].data, (const T *)c->grad->output[0], target_of<T>(c, 0), count_of(c));
}

extern "C" const nn_kernels nn_cuda_gelu = {.forward = NN_BY_TYPE(output[0], forward),
                                            .backward = NN_BY_TYPE(output[0], backward),
                                            .partials = gelu_partials,
                                            .row_sums = 1u << 0};
