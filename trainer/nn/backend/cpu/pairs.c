#include "nn/backend/cpu/pairs.h"
#include "nn/backend/cpu/cpu.h"
#include "nn/backend/cpu/round.h"
#include "nn/backend/cpu/vector.h"
#include "optim/optim.h"

#include <string.h>

#ifdef ADAMOD_X86
#include <immintrin.h>
#endif

NN_CLONES
static void pack(int64_t n, const float *restrict first, const float *restrict second, uint32_t *restrict to) {
    for (int64_t i = 0; i < n; i++) to[i] = nn_rounded(first[i]) >> 16 | (nn_rounded(second[i]) & 0xffff0000);
}

NN_CLONES
static void pack_one(int64_t n, const float *restrict first, uint32_t *restrict to) {
    for (int64_t i = 0; i < n; i++) to[i] = nn_rounded(first[i]) >> 16;
}

void nn_pairs_pack(int64_t n, const float *first, const float *second, uint32_t *to) {
    if (second) pack(n, first, second, to);
    else pack_one(n, first, to);
}

/* ---- everywhere ---- */

typedef float lanes __attribute__((vector_size(NN_LANES * sizeof(float)), aligned(4), may_alias));
typedef uint32_t words __attribute__((vector_size(NN_LANES * sizeof(uint32_t)), aligned(4), may_alias));

static inline float from_bits(uint32_t bits) {
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

NN_CLONES
static void plain_product(int64_t m, int64_t pairs, const uint32_t *a, int64_t stride, const uint32_t *b, float *c) {
    for (int64_t i = 0; i < m; i++, a++, c += NN_LANES) {
        lanes sum = {0};
        for (int64_t p = 0; p < pairs; p++) {
            const words both = *(const words *)(b + p * NN_LANES);
            const uint32_t x = a[p * stride];
            sum += from_bits(x << 16) * (lanes)(both << 16);
            sum += from_bits(x & 0xffff0000) * (lanes)(both & 0xffff0000);
        }
        *(lanes *)c = sum;
    }
}

/* ---- AVX512_BF16 ---- */

#ifdef ADAMOD_X86
#define TARGET __attribute__((target("avx512f,avx512bf16")))

/* A constant number of rows, so that sums are in registers. FETCH words ahead is where memory answers in time. */
TARGET static inline __attribute__((always_inline)) void tall(int rows, int64_t pairs, const uint32_t *a,
                                                              int64_t stride, const uint32_t *b, float *c) {
    enum { MOST_ROWS = 20, FETCH = 32 * NN_LANES };
    __m512 sum[MOST_ROWS];
#pragma GCC unroll 20
    for (int i = 0; i < rows; i++) sum[i] = _mm512_setzero_ps();
    for (int64_t p = 0; p < pairs; p++, a += stride, b += NN_LANES) {
        const __m512bh right = (__m512bh)_mm512_loadu_si512(b);
        __builtin_prefetch(b + FETCH);
#pragma GCC unroll 20
        for (int i = 0; i < rows; i++) sum[i] = _mm512_dpbf16_ps(sum[i], (__m512bh)_mm512_set1_epi32((int)a[i]), right);
    }
#pragma GCC unroll 20
    for (int i = 0; i < rows; i++) _mm512_storeu_ps(c + i * NN_LANES, sum[i]);
}

TARGET static void bf16_product(int64_t m, int64_t pairs, const uint32_t *a, int64_t stride, const uint32_t *b,
                                float *c) {
    for (; m >= 20; m -= 20, a += 20, c += 20 * NN_LANES) tall(20, pairs, a, stride, b, c);
    for (; m >= 10; m -= 10, a += 10, c += 10 * NN_LANES) tall(10, pairs, a, stride, b, c);
    for (; m >= 4; m -= 4, a += 4, c += 4 * NN_LANES) tall(4, pairs, a, stride, b, c);
    for (; m >= 1; m -= 1, a += 1, c += NN_LANES) tall(1, pairs, a, stride, b, c);
}
#endif

nn_pairs_product *nn_pairs_choose(void) {
#ifdef ADAMOD_X86
    const char *isa = adamod__chosen_isa();
    if (isa && strcmp(isa, "avx512") == 0 && __builtin_cpu_supports("avx512bf16")) return bf16_product;
#endif
    return plain_product;
}
