/* The best of log softmax of each row: see ops/best.c. A block takes a row: first its log-sum-exp, as log_softmax
 * does, then each thread finds the best of its own columns. The best of those is the row's; its thread then looks
 * for its next one, and so on. */
#include "nn/backend/cuda/cuda.h"

enum { THREADS = 256, WARPS = THREADS / 32 };

/* A number that is larger the better a column is: by its value, and among equals by its place. */
__device__ static inline uint64_t key_of(float value, int64_t column) {
    const uint32_t bits = __float_as_uint(value);
    const uint32_t ordered = bits & 0x80000000u ? ~bits : bits | 0x80000000u;
    return (uint64_t)ordered << 32 | (uint32_t) ~(uint32_t)column;
}

__device__ static inline float value_of(uint64_t key) {
    const uint32_t ordered = (uint32_t)(key >> 32);
    return __uint_as_float(ordered & 0x80000000u ? ordered & 0x7fffffffu : ~ordered);
}

__device__ static inline uint32_t column_of(uint64_t key) { return ~(uint32_t)key; }

/* The best of a thread's columns that is worse than the last one; 0: there is none. */
template <typename T>
__device__ static inline uint64_t best_below(const T *x, int64_t n, float most, float log_sum, uint64_t last) {
    uint64_t best = 0;
#pragma unroll 8
    for (int64_t i = threadIdx.x; i < n; i += THREADS) {
        const uint64_t key = key_of(widen(x[i]) - most - log_sum, i);
        if (key < last && key > best) best = key;
    }
    return best;
}

__device__ static inline uint64_t most_of_block(uint64_t key) {
    __shared__ uint64_t shared[WARPS];
    for (int step = 16; step > 0; step /= 2) {
        const uint64_t other = __shfl_xor_sync(0xffffffffu, key, step);
        key = other > key ? other : key;
    }
    __syncthreads(); /* all have read the last call's result */
    if (threadIdx.x % 32 == 0) shared[threadIdx.x / 32] = key;
    __syncthreads();
    for (int k = 0; k < WARPS; k++) key = shared[k] > key ? shared[k] : key;
    return key;
}

template <typename T>
__global__ static void __launch_bounds__(THREADS) best_kernel(const T *in, int64_t n, int size, float *out) {
    const T *x = in + (int64_t)blockIdx.x * n;
    float *y = out + (int64_t)blockIdx.x * 2 * size;
    exp_sum s = exp_sum_of_none();
    each_pack<2>(x, n, threadIdx.x, THREADS, [&](int64_t, auto &v) { exp_sum_add(&s, v); });
    s = exp_sum_of_block(s);
    const float log_sum = logf(s.sum);
    uint64_t mine = best_below(x, n, s.most, log_sum, ~(uint64_t)0);
    for (int k = 0; k < size; k++) {
        const uint64_t best = most_of_block(mine);
        if (threadIdx.x == 0) {
            y[k] = value_of(best);
            y[size + k] = (float)column_of(best);
        }
        if (mine == best) mine = best_below(x, n, s.most, log_sum, best);
    }
}

template <typename T> static void forward(const nn_call *c) {
    if (c->output[0].rows == 0) return;
    best_kernel<T><<<(unsigned)c->output[0].rows, THREADS, 0, stream_of(c)>>>(
        (const T *)c->input[0].data, c->input[0].cols, NN_ATTR(best, c)->n, (float *)c->output[0].data);
}

extern "C" const nn_kernels nn_cuda_best = {.forward = NN_BY_TYPE(input[0], forward)};
