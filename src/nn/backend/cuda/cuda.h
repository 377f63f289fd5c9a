/* The cuda backend's kernels, and what they share.
 *
 * Each op is one file, NAME.cu, with its kernels, the functions that launch them side by side forward and backward, and
 * `const nn_kernels nn_cuda_NAME` at the end. Launches go to c->stream, never wait, never allocate: they are recorded.
 * Numbers are f32 inside whatever the arrays hold; every sum has an order that depends on the sizes alone (no
 * floating-point atomics), so that runs repeat bit for bit. */
#ifndef ADAMOD_NN_CUDA_H
#define ADAMOD_NN_CUDA_H

extern "C" {
#include "op.h"
}
#include "random.h"

#include <cuda_bf16.h>
#include <cuda_runtime.h>
#include <stdint.h>

extern "C" {
#define NN_CUDA_DECLARE(name) extern const nn_kernels nn_cuda_##name;
NN_OPS(NN_CUDA_DECLARE)
#undef NN_CUDA_DECLARE
}

/* A failure with a message, as adamod__fail; and the same for a call of the runtime ("cuda: cudaMalloc: out of memory").
 */
extern nn_fail nn_cuda_fail;
adamod_status nn_cuda_failed(cudaError_t error, const char *what);
/* For what only enqueues: the next wait reports it. */
void nn_cuda_launch_failed(const char *what, const char *why);

typedef __nv_bfloat16 bf16;

static inline cudaStream_t stream_of(const nn_call *c) { return (cudaStream_t)c->stream; }

static inline __host__ __device__ int64_t parts(int64_t n, int64_t size) { return (n + size - 1) / size; }

/* Calls f<float>(...) or f<bf16>(...) by the type of an array. */
#define BY_TYPE(type, f, ...)                                                                                          \
    do {                                                                                                               \
        if ((type) == NN_BF16) f<bf16>(__VA_ARGS__);                                                                   \
        else f<float>(__VA_ARGS__);                                                                                    \
    } while (0)

/* ---- numbers ---- */

__device__ static inline float widen(float x) { return x; }
__device__ static inline float widen(bf16 x) { return __bfloat162float(x); }
template <typename T> __device__ static inline T narrow(float x);
template <> __device__ inline float narrow<float>(float x) { return x; }
template <> __device__ inline bf16 narrow<bf16>(float x) { return __float2bfloat16_rn(x); }

/* As many numbers as one access of 16 bytes moves. */
template <typename T> struct pack {
    static constexpr int N = 16 / sizeof(T);
    alignas(16) T x[N];
};

template <typename T> __device__ static inline pack<T> load_pack(const T *p) {
    pack<T> r;
    *reinterpret_cast<uint4 *>(r.x) = *reinterpret_cast<const uint4 *>(p);
    return r;
}

template <typename T> __device__ static inline void store_pack(T *p, const pack<T> &r) {
    *reinterpret_cast<uint4 *>(p) = *reinterpret_cast<const uint4 *>(r.x);
}

/* ---- dropout ---- */

/* As ops/dropout.h: element i is kept iff its bits reach the threshold; nothing drops if threshold is 0. */
struct drop {
    const uint64_t *random;
    uint64_t node;
    uint32_t threshold;
    float scale;
};

static inline drop drop_of(const nn_call *c) {
    const double p = c->training ? c->attributes->dropout : 0;
    drop d = {c->random, c->node, p > 0 ? nn_drop_threshold(p) : 0, (float)(1 / (1 - p))};
    return d;
}

/* Once for each thread, before its factors. */
__device__ static inline uint64_t drop_key(const drop &d) {
    return d.threshold ? nn_key(d.random[0], d.random[1], d.node) : 0;
}

/* Factors of elements 4 * block .. 4 * block + 3. */
__device__ static inline void drop_factors(const drop &d, uint64_t key, uint64_t block, float factor[4]) {
    const nn_random4 r = nn_philox(key, block);
    for (int i = 0; i < 4; i++) factor[i] = r.x[i] >= d.threshold ? d.scale : 0;
}

/* ---- sums ---- */

__device__ static inline float warp_sum(float x) {
    for (int step = 16; step > 0; step /= 2) x += __shfl_xor_sync(0xffffffffu, x, step);
    return x;
}

__device__ static inline float warp_max(float x) {
    for (int step = 16; step > 0; step /= 2) x = fmaxf(x, __shfl_xor_sync(0xffffffffu, x, step));
    return x;
}

/* sum_j = the sum of column j of parts [n, cols] in the order of rows, added to what sum holds if add. */
void nn_cuda_sum_rows(cudaStream_t stream, const float *parts, int64_t stride, int64_t n, int64_t cols, float *sum,
                      bool add);

#endif
