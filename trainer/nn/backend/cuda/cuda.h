/* The cuda backend's kernels, and their common code.
 *
 * Each op is one file, NAME.cu, with its kernels, the functions that launch them side by side forward and backward,
 * and `const nn_kernels nn_cuda_NAME` at the end. Launches go to c->device->stream and are recorded: they never wait
 * or allocate. Numbers are f32 inside, whatever the arrays hold; every sum has an order that depends on the sizes
 * alone (no floating-point atomics), so that runs repeat bit for bit. */
#ifndef ADAMOD_NN_CUDA_H
#define ADAMOD_NN_CUDA_H

extern "C" {
#include "nn/backend.h"
#include "nn/op.h"
#include "nn/ops/attributes.h"
}
#include "support/random.h"

#include <cuda_bf16.h>
#include <cuda_runtime.h>
#include <stdint.h>

extern "C" {
#define NN_CUDA_DECLARE(name) extern const nn_kernels nn_cuda_##name;
NN_DEVICE_OPS(NN_CUDA_DECLARE)
#undef NN_CUDA_DECLARE
}

/* A failure with a message, as adamod__fail; and the same for a call of the runtime ("cuda: cudaMalloc: out of memory").
 */
extern nn_fail nn_cuda_fail;
adamod_status nn_cuda_failed(cudaError_t error, const char *what);
/* Memory of a plan's node, filled with 0; cudaFree releases it. */
adamod_status nn_cuda_zeros(void **out, size_t bytes, const nn_call *c);
/* For what only enqueues: the next wait reports it. */
void nn_cuda_launch_failed(const char *what, const char *why);

typedef __nv_bfloat16 bf16;

static inline cudaStream_t stream_of(const nn_call *c) { return (cudaStream_t)c->device->stream; }

static inline __host__ __device__ int64_t parts(int64_t n, int64_t size) { return (n + size - 1) / size; }

/* Calls f<float>(...) or f<bf16>(...) by the type of an array. */
#define BY_TYPE(type, f, ...)                                                                                          \
    do {                                                                                                               \
        if ((type) == NN_BF16) f<bf16>(__VA_ARGS__);                                                                   \
        else f<float>(__VA_ARGS__);                                                                                    \
    } while (0)

/* A forward or backward of nn_kernels: f<float> or f<bf16> by the type of an array of the call. */
#define NN_BY_TYPE(array, f) [](const nn_call *c) { BY_TYPE(c->array.type, f, c); }

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

/* N numbers as f32; N is 1, or whole packs at an address of 16 bytes. */
template <int N, typename T> __device__ static inline void load_floats(const T *p, float x[N]) {
    if constexpr (N == 1) {
        x[0] = widen(*p);
    } else {
        for (int k = 0; k < N; k += pack<T>::N) {
            const pack<T> r = load_pack(p + k);
            for (int i = 0; i < pack<T>::N; i++) x[k + i] = widen(r.x[i]);
        }
    }
}

template <int N, typename T> __device__ static inline void store_floats(T *p, const float x[N]) {
    if constexpr (N == 1) {
        *p = narrow<T>(x[0]);
    } else {
        for (int k = 0; k < N; k += pack<T>::N) {
            pack<T> r;
            for (int i = 0; i < pack<T>::N; i++) r.x[i] = narrow<T>(x[k + i]);
            store_pack(p + k, r);
        }
    }
}

/* Numbers as they were loaded, so that those under way take no more registers than bytes: N of them, a pack or one. */
template <int N, typename T> __device__ static inline uint4 load_raw(const T *p, bool there) {
    static_assert(N == 1 || N == pack<T>::N, "a pack or one");
    uint4 r = make_uint4(0, 0, 0, 0);
    if (!there) return r;
    if constexpr (N > 1) return *reinterpret_cast<const uint4 *>(p);
    else if constexpr (sizeof(T) == 2) r.x = *reinterpret_cast<const uint16_t *>(p);
    else r.x = *reinterpret_cast<const uint32_t *>(p);
    return r;
}

template <typename T, int N> __device__ static inline void widen_raw(const uint4 &r, float (&x)[N]) {
    const uint32_t words[4] = {r.x, r.y, r.z, r.w};
    for (int k = 0; k < N; k++) {
        if (sizeof(T) == 4) x[k] = __uint_as_float(words[k]);
        else x[k] = __uint_as_float(k % 2 ? words[k / 2] & 0xffff0000u : words[k / 2] << 16);
    }
}

/* A target of results, and whether they are added to it; to is NULL: not wanted. */
template <typename T> struct target {
    T *to;
    bool add;
};

template <typename T> static inline target<T> target_of(const nn_call *c, int input) {
    return {(T *)c->grad->input[input], c->grad->accumulate[input]};
}

template <int N, typename T> __device__ static inline void put(const target<T> &t, int64_t i, const float x[N]) {
    if (!t.to) return;
    float sum[N] = {0};
    if (t.add) load_floats<N>(t.to + i, sum);
    for (int k = 0; k < N; k++) sum[k] += x[k];
    store_floats<N>(t.to + i, sum);
}

/* Calls f(i, x) for a row of n numbers, cut among `threads` threads: x[0] is number i, and x has a whole access or
 * one number. The row may begin at any address. AHEAD: loads in flight at once; f may write over its numbers. */
template <int AHEAD, typename T, typename F>
__device__ static inline void each_pack(const T *row, int64_t n, unsigned thread, unsigned threads, F f) {
    constexpr int N = pack<T>::N;
    const int64_t start = (int64_t)((16 - (uintptr_t)row % 16) % 16 / sizeof(T)), head = start < n ? start : n;
    const int64_t whole = (n - head) / N * N, end = head + whole, step = (int64_t)threads * N;
    for (int64_t first = head + (int64_t)thread * N; first < end; first += AHEAD * step) {
        uint4 raw[AHEAD];
#pragma unroll
        for (int k = 0; k < AHEAD; k++) raw[k] = load_raw<N>(row + first + k * step, first + k * step < end);
#pragma unroll
        for (int k = 0; k < AHEAD; k++) {
            float x[N];
            widen_raw<T>(raw[k], x);
            if (first + k * step < end) f(first + k * step, x);
        }
    }
    for (int64_t k = thread; k < n - whole; k += threads) {
        const int64_t i = k < head ? k : k + whole;
        const float x[1] = {widen(row[i])};
        f(i, x);
    }
}

/* ---- between blocks ---- */

/* Writes of a block's threads before a __syncthreads are released by one thread's store after it. */
__device__ static inline unsigned load_acquire(const unsigned *p) {
    unsigned x;
    asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(x) : "l"(p) : "memory");
    return x;
}

__device__ static inline unsigned add_acquire_release(unsigned *p, unsigned n) {
    unsigned before;
    asm volatile("atom.add.acq_rel.gpu.global.u32 %0, [%1], %2;" : "=r"(before) : "l"(p), "r"(n) : "memory");
    return before;
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
    const double p = c->training ? nn_dropout_of(c->attributes) : 0;
    drop d = {c->device->random, c->device->node, p > 0 ? nn_drop_threshold(p) : 0, (float)(1 / (1 - p))};
    return d;
}

/* Once for each thread, before it asks what is kept. */
__device__ static inline uint64_t drop_key(const drop &d) { return d.threshold ? nn_stream_key(*d.random, d.node) : 0; }

__device__ static inline bool drop_keeps(const drop &d, uint64_t key, int64_t i) {
    return !d.threshold || nn_random_bits(key, (uint64_t)i) >= d.threshold;
}

/* Bit k: element i + k is kept, for k < 8; i is a multiple of 4. A kept one is multiplied by d.scale. */
__device__ static inline unsigned drop_kept(const drop &d, uint64_t key, int64_t i) {
    if (!d.threshold) return 0xff;
    const nn_random4 r[2] = {nn_philox(key, (uint64_t)i / 4), nn_philox(key, (uint64_t)i / 4 + 1)};
    unsigned kept = 0;
    for (int k = 0; k < 8; k++) kept |= (unsigned)(r[k / 4].x[k % 4] >= d.threshold) << k;
    return kept;
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

/* Waits for the `warps` consecutive warps that this one is among, of a block of at most 16. Other groups do not wait. */
template <int warps> __device__ static inline void group_sync(void) {
    asm volatile("bar.sync %0, %1;" ::"r"((int)threadIdx.x / (32 * warps) + 1), "n"(32 * warps) : "memory");
}

/* Each of x becomes its sum over the warps of such a group. All its threads call it. */
template <int warps, int N> __device__ static inline void group_sums(float (&x)[N]) {
    for (int step = 16; step > 0; step /= 2) {
        for (int i = 0; i < N; i++) x[i] += __shfl_xor_sync(0xffffffffu, x[i], step);
    }
    if constexpr (warps > 1) {
        __shared__ float shared[N][16];
        const int warp = threadIdx.x / 32;
        group_sync<warps>(); /* all have read the last call's result */
        for (int i = 0; threadIdx.x % 32 == 0 && i < N; i++) shared[i][warp] = x[i];
        group_sync<warps>();
        for (int i = 0; i < N; i++) {
            x[i] = 0;
            for (int k = 0; k < warps; k++) x[i] += shared[i][warp / warps * warps + k];
        }
    }
}

/* The sum of exp(x - most) over numbers seen, most the largest of them: their log-sum-exp is most + log(sum). */
struct exp_sum {
    float most, sum;
};

/* Finite, so that -infinity may come first. */
__device__ static inline exp_sum exp_sum_of_none(void) { return {-3.402823466e38f, 0}; }

template <int N> __device__ static inline void exp_sum_add(exp_sum *s, const float (&x)[N]) {
    float most = s->most;
    for (int k = 0; k < N; k++) most = fmaxf(most, x[k]);
    if (most > s->most) s->sum *= __expf(s->most - most);
    s->most = most;
    for (int k = 0; k < N; k++) s->sum += __expf(x[k] - most);
}

/* Joins the sums of all threads of a block of at most 32 warps; all threads call it. */
__device__ static inline exp_sum exp_sum_of_block(exp_sum s) {
    __shared__ exp_sum shared[32];
    const float most = warp_max(s.most), sum = warp_sum(s.sum * __expf(s.most - most));
    __syncthreads();
    if (threadIdx.x % 32 == 0) shared[threadIdx.x / 32] = {most, sum};
    __syncthreads();
    exp_sum all = exp_sum_of_none();
    for (unsigned k = 0; k < blockDim.x / 32; k++) all.most = fmaxf(all.most, shared[k].most);
    for (unsigned k = 0; k < blockDim.x / 32; k++) all.sum += shared[k].sum * __expf(shared[k].most - all.most);
    return all;
}

/* At the end of the pass, or at once where nothing collects sums; to NULL: not at all. */
void nn_cuda_sum(const nn_call *c, const nn_sum *sum);

#endif
