/* random.h - counter-based random numbers: Philox 4x32-10 (Salmon et al., SC 2011). A number depends on a key and an index
 * alone, so masks need not be stored, runs repeat, and all backends draw the same numbers. */
#pragma once

#include <math.h>
#include <stdint.h>

#ifdef __CUDACC__
#define NN_RANDOM static inline __host__ __device__
#else
#define NN_RANDOM static inline
#endif

typedef struct nn_random4 {
    uint32_t x[4];
} nn_random4;

/* The 64-bit product. On a device, the compiler does not find the instruction by itself. */
NN_RANDOM uint64_t nn_wide_product(uint32_t a, uint32_t b) {
#ifdef __CUDA_ARCH__
    uint64_t p;
    asm("mul.wide.u32 %0, %1, %2;" : "=l"(p) : "r"(a), "r"(b));
    return p;
#else
    return (uint64_t)a * b;
#endif
}

NN_RANDOM nn_random4 nn_philox(uint64_t key, uint64_t counter) {
    uint32_t k0 = (uint32_t)key, k1 = (uint32_t)(key >> 32);
    nn_random4 c = {{(uint32_t)counter, (uint32_t)(counter >> 32), 0, 0}};
    for (int round = 0; round < 10; round++) {
        const uint64_t a = nn_wide_product(0xd2511f53u, c.x[0]), b = nn_wide_product(0xcd9e8d57u, c.x[2]);
        const nn_random4 next = {
            {(uint32_t)(b >> 32) ^ c.x[1] ^ k0, (uint32_t)b, (uint32_t)(a >> 32) ^ c.x[3] ^ k1, (uint32_t)a}};
        c = next;
        k0 += 0x9e3779b9u;
        k1 += 0xbb67ae85u;
    }
    return c;
}

NN_RANDOM uint64_t nn_mix(uint64_t x) {
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
}

/* The key of a stream of numbers. nn_run_key is its first half, the same for all streams of a step. */
NN_RANDOM uint64_t nn_run_key(uint64_t seed, uint64_t step) {
    return nn_mix(nn_mix(seed + 0x9e3779b97f4a7c15u) + step);
}
NN_RANDOM uint64_t nn_stream_key(uint64_t run_key, uint64_t stream) { return nn_mix(run_key + stream); }
NN_RANDOM uint64_t nn_key(uint64_t seed, uint64_t step, uint64_t stream) {
    return nn_stream_key(nn_run_key(seed, step), stream);
}

/* Element i of a stream, 32 bits: word i % 4 of block i / 4. Kernels draw whole blocks. */
NN_RANDOM uint32_t nn_random_bits(uint64_t key, uint64_t i) { return nn_philox(key, i / 4).x[i % 4]; }

/* Dropout keeps element i iff its bits are >= this. */
static inline uint32_t nn_drop_threshold(double p) { return (uint32_t)(p * 4294967296.0); }

/* In [0, 1). */
static inline double nn_uniform(uint64_t key, uint64_t i) { return nn_random_bits(key, i) * 0x1p-32; }

static inline double nn_normal(uint64_t key, uint64_t i) {
    const nn_random4 r = nn_philox(key, i);
    const double u = (r.x[0] + 0.5) * 0x1p-32, v = r.x[1] * 0x1p-32;
    return sqrt(-2 * log(u)) * cos(6.283185307179586 * v);
}

/* A whole number in [0, n). */
static inline uint64_t nn_below(uint64_t key, uint64_t i, uint64_t n) {
    const nn_random4 r = nn_philox(key, i);
    /* The upper half of the product of 64 random bits and n, in parts of 32 bits. */
    const uint64_t high = n >> 32, low = n & 0xffffffffu;
    const uint64_t upper = r.x[0] * low + (r.x[1] * low >> 32), lower = r.x[1] * high + (upper & 0xffffffffu);
    return r.x[0] * high + (upper >> 32) + (lower >> 32);
}
