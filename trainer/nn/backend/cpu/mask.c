/* Dropout for all ops that drop: Philox in the lanes of vectors, and its use. */
#include "nn/backend/cpu/cpu.h"
#include "nn/ops/attributes.h"
#include "support/random.h"

#include <string.h>

/* Blocks drawn at once; of four numbers each. */
enum { BLOCKS = 16, NUMBERS = 4 * BLOCKS };

/* Factors of n blocks, a multiple of BLOCKS. */
static void mask_plain(uint64_t key, uint64_t block, int64_t n, uint32_t threshold, float scale, float *factor) {
    for (int64_t j = 0; j < n; j++) {
        const nn_random4 r = nn_philox(key, block + (uint64_t)j);
        for (int i = 0; i < 4; i++) factor[4 * j + i] = r.x[i] >= threshold ? scale : 0;
    }
}

#if defined(__x86_64__)
#include <immintrin.h>

/* Compilers make poor code of 32 x 32 -> 64 bit products in lanes, so these are written out: even lanes and odd lanes
 * are multiplied apart, and high and low halves put together again. Lane 4 q + b draws block (LANES / 4) b + q: with
 * that, unpacking within quarters of the register puts the numbers in order. */

__attribute__((target("avx512f"))) static inline void multiply_avx512(__m512i x, uint32_t by, __m512i *high,
                                                                      __m512i *low) {
    const __m512i factor = _mm512_set1_epi64(by);
    const __m512i even = _mm512_mul_epu32(x, factor), odd = _mm512_mul_epu32(_mm512_shuffle_epi32(x, 0xf5), factor);
    *high = _mm512_mask_shuffle_epi32(odd, 0x5555, even, 0xf5);
    *low = _mm512_mask_shuffle_epi32(even, 0xaaaa, odd, 0xa0);
}

__attribute__((target("avx512f"))) static void mask_avx512(uint64_t key, uint64_t block, int64_t n, uint32_t threshold,
                                                           float scale, float *factor) {
    const __m512i order = _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
    const __m512i least = _mm512_set1_epi32((int)threshold);
    const __m512 kept = _mm512_set1_ps(scale);
    for (int64_t j = 0; j < n; j += 16) {
        const uint64_t first = block + (uint64_t)j;
        const __m512i base = _mm512_set1_epi32((int)(uint32_t)first);
        __m512i x[4] = {_mm512_add_epi32(base, order), _mm512_set1_epi32((int)(first >> 32)), _mm512_setzero_si512(),
                        _mm512_setzero_si512()};
        /* A carry into the counter's upper half. */
        x[1] = _mm512_mask_add_epi32(x[1], _mm512_cmplt_epu32_mask(x[0], base), x[1], _mm512_set1_epi32(1));
        uint32_t k0 = (uint32_t)key, k1 = (uint32_t)(key >> 32);
        for (int round = 0; round < 10; round++, k0 += 0x9e3779b9u, k1 += 0xbb67ae85u) {
            __m512i high_a, low_a, high_b, low_b;
            multiply_avx512(x[0], 0xd2511f53u, &high_a, &low_a);
            multiply_avx512(x[2], 0xcd9e8d57u, &high_b, &low_b);
            x[0] = _mm512_xor_si512(_mm512_xor_si512(high_b, x[1]), _mm512_set1_epi32((int)k0));
            x[2] = _mm512_xor_si512(_mm512_xor_si512(high_a, x[3]), _mm512_set1_epi32((int)k1));
            x[1] = low_b;
            x[3] = low_a;
        }
        const __m512i a = _mm512_unpacklo_epi32(x[0], x[1]), b = _mm512_unpackhi_epi32(x[0], x[1]);
        const __m512i c = _mm512_unpacklo_epi32(x[2], x[3]), d = _mm512_unpackhi_epi32(x[2], x[3]);
        const __m512i r[4] = {_mm512_unpacklo_epi64(a, c), _mm512_unpackhi_epi64(a, c), _mm512_unpacklo_epi64(b, d),
                              _mm512_unpackhi_epi64(b, d)};
        for (int i = 0; i < 4; i++) {
            _mm512_storeu_ps(factor + 4 * j + 16 * i, _mm512_maskz_mov_ps(_mm512_cmpge_epu32_mask(r[i], least), kept));
        }
    }
}

__attribute__((target("avx2"))) static inline void multiply_avx2(__m256i x, uint32_t by, __m256i *high, __m256i *low) {
    const __m256i factor = _mm256_set1_epi64x(by);
    const __m256i even = _mm256_mul_epu32(x, factor), odd = _mm256_mul_epu32(_mm256_shuffle_epi32(x, 0xf5), factor);
    *high = _mm256_blend_epi32(_mm256_shuffle_epi32(even, 0xf5), odd, 0xaa);
    *low = _mm256_blend_epi32(even, _mm256_shuffle_epi32(odd, 0xa0), 0xaa);
}

__attribute__((target("avx2"))) static void mask_avx2(uint64_t key, uint64_t block, int64_t n, uint32_t threshold,
                                                      float scale, float *factor) {
    const __m256i order = _mm256_setr_epi32(0, 2, 4, 6, 1, 3, 5, 7);
    const __m256i least = _mm256_set1_epi32((int)threshold);
    const __m256 kept = _mm256_set1_ps(scale);
    for (int64_t j = 0; j < n; j += 8) {
        const uint64_t first = block + (uint64_t)j;
        const __m256i base = _mm256_set1_epi32((int)(uint32_t)first);
        __m256i x[4] = {_mm256_add_epi32(base, order), _mm256_set1_epi32((int)(first >> 32)), _mm256_setzero_si256(),
                        _mm256_setzero_si256()};
        /* A carry into the counter's upper half; the comparison is -1 where there is none. */
        const __m256i same = _mm256_cmpeq_epi32(_mm256_max_epu32(x[0], base), x[0]);
        x[1] = _mm256_add_epi32(x[1], _mm256_add_epi32(same, _mm256_set1_epi32(1)));
        uint32_t k0 = (uint32_t)key, k1 = (uint32_t)(key >> 32);
        for (int round = 0; round < 10; round++, k0 += 0x9e3779b9u, k1 += 0xbb67ae85u) {
            __m256i high_a, low_a, high_b, low_b;
            multiply_avx2(x[0], 0xd2511f53u, &high_a, &low_a);
            multiply_avx2(x[2], 0xcd9e8d57u, &high_b, &low_b);
            x[0] = _mm256_xor_si256(_mm256_xor_si256(high_b, x[1]), _mm256_set1_epi32((int)k0));
            x[2] = _mm256_xor_si256(_mm256_xor_si256(high_a, x[3]), _mm256_set1_epi32((int)k1));
            x[1] = low_b;
            x[3] = low_a;
        }
        const __m256i a = _mm256_unpacklo_epi32(x[0], x[1]), b = _mm256_unpackhi_epi32(x[0], x[1]);
        const __m256i c = _mm256_unpacklo_epi32(x[2], x[3]), d = _mm256_unpackhi_epi32(x[2], x[3]);
        const __m256i r[4] = {_mm256_unpacklo_epi64(a, c), _mm256_unpackhi_epi64(a, c), _mm256_unpacklo_epi64(b, d),
                              _mm256_unpackhi_epi64(b, d)};
        for (int i = 0; i < 4; i++) {
            const __m256i keep = _mm256_cmpeq_epi32(_mm256_max_epu32(r[i], least), r[i]);
            _mm256_storeu_ps(factor + 4 * j + 8 * i, _mm256_and_ps(_mm256_castsi256_ps(keep), kept));
        }
    }
}
#endif

static void mask_blocks(uint64_t key, uint64_t block, int64_t n, uint32_t threshold, float scale, float *factor) {
#if defined(__x86_64__)
    if (__builtin_cpu_supports("avx512f")) {
        mask_avx512(key, block, n, threshold, scale, factor);
        return;
    }
    if (__builtin_cpu_supports("avx2")) {
        mask_avx2(key, block, n, threshold, scale, factor);
        return;
    }
#endif
    mask_plain(key, block, n, threshold, scale, factor);
}

void nn_cpu_mask(uint64_t key, uint64_t first, int64_t n, uint32_t threshold, float scale, float *factor) {
    while (n > 0) {
        const int64_t skip = (int64_t)(first % 4);
        int64_t done = n / NUMBERS * NUMBERS;
        if (skip == 0 && done > 0) {
            mask_blocks(key, first / 4, done / 4, threshold, scale, factor);
        } else {
            float some[NUMBERS];
            done = n < NUMBERS - skip ? n : NUMBERS - skip;
            mask_blocks(key, first / 4, BLOCKS, threshold, scale, some);
            memcpy(factor, some + skip, (size_t)done * sizeof *some);
        }
        first += (uint64_t)done;
        factor += done;
        n -= done;
    }
}

nn_drop nn_cpu_drop(const nn_call *c) {
    const double p = nn_dropout_of(c->attributes);
    return (nn_drop){c->training && p > 0, c->key, nn_drop_threshold(p), (float)(1 / (1 - p))};
}

NN_CLONES
static void multiply_add(int64_t n, const float *x, const float *factor, const float *b, float *y) {
    if (x && factor) {
        for (int64_t i = 0; i < n; i++) {
            const float product = factor[i] * b[i];
            y[i] = x[i] + (factor[i] > 0 ? product : 0);
        }
    } else if (factor) {
        for (int64_t i = 0; i < n; i++) {
            const float product = factor[i] * b[i];
            y[i] = factor[i] > 0 ? product : 0;
        }
    } else if (x) {
        for (int64_t i = 0; i < n; i++) y[i] = x[i] + b[i];
    } else if (y != b) {
        memcpy(y, b, (size_t)n * sizeof *y);
    }
}

void nn_cpu_multiply_add(int64_t n, const float *x, const float *factor, const float *b, float *y) {
    multiply_add(n, x, factor, b, y);
}

void nn_cpu_add_dropped(const nn_drop *d, int64_t first, int64_t n, const float *x, const float *b, float *y) {
    enum { DRAWN = 1024 };
    float factor[DRAWN];
    for (const int64_t end = first + n; first < end; first += DRAWN) {
        const int64_t some = end - first < DRAWN ? end - first : DRAWN;
        if (d->drops) nn_cpu_mask(d->key, (uint64_t)first, some, d->threshold, d->scale, factor);
        nn_cpu_multiply_add(some, x ? x + first : NULL, d->drops ? factor : NULL, b + first, y + first);
    }
}

typedef struct drop_work {
    nn_drop drop;
    int64_t n;
    const float *x, *b;
    float *y;
} drop_work;

static void drop_task(void *context, int64_t i) {
    const drop_work *w = context;
    const int64_t first = i * NN_CHUNK, n = w->n - first < NN_CHUNK ? w->n - first : NN_CHUNK;
    nn_cpu_add_dropped(&w->drop, first, n, w->x, w->b, w->y);
}

void nn_cpu_add_dropped_array(const nn_call *c, nn_drop d, const float *x, const float *b, float *y) {
    drop_work w = {d, c->output[0].rows * c->output[0].cols, x, b, y};
    nn_parallel(c->pool, nn_parts(w.n, NN_CHUNK), drop_task, &w);
}
