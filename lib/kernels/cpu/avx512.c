/* Kernels for x86-64 with AVX-512 (F, BW, DQ, VL). */
#include "optim/internal.h"

#ifdef ADAMOD_X86
#include "kernels/half.h"
#include "kernels/q8.h"

#include <immintrin.h>
#include <math.h>
#include <string.h>

#include "kernels/cpu/contract_off.inc.h"
#ifdef __clang__
#pragma clang attribute push(__attribute__((target("avx512f,avx512bw,avx512dq,avx512vl"))), apply_to = function)
#else
#pragma GCC target("avx512f,avx512bw,avx512dq,avx512vl")
#endif

static inline __attribute__((always_inline)) __m512i adamod__bf16_round_avx512(__m512 value, __m512i add) {
    const __m512i x = _mm512_castps_si512(value);
    const __mmask16 nan = _mm512_cmp_ps_mask(value, value, _CMP_UNORD_Q);
    return _mm512_mask_or_epi32(_mm512_add_epi32(x, add), nan, x, _mm512_set1_epi32(0x400000));
}

/* Moves the upper half of each word of even to the lower half of the word of odd at its place. */
static inline __attribute__((always_inline)) __m512i adamod__join_upper_avx512(__m512i even, __m512i odd) {
    const __m512i from = _mm512_set4_epi32(0x0f0e0f0e, 0x0b0a0b0a, 0x07060706, 0x03020302);
    return _mm512_mask_shuffle_epi8(odd, 0x3333333333333333u, even, from);
}

static inline __attribute__((always_inline)) __m512 adamod__bf16_load_avx512(const void *in) {
    const __m512i x = _mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i *)in));
    return _mm512_castsi512_ps(_mm512_slli_epi32(x, 16));
}

#define ISA avx512
#define TILE_ROWS 12
#define TILE_VECTORS 2
#define REAL float
#define TYPE f32
#define CONVERT_F32
#define WIDTH 16
#define SQRT(x) ((V)_mm512_sqrt_ps(x))
#define LESSER(x, y) ((V)_mm512_min_ps(x, y))
#define GREATER(x, y) ((V)_mm512_max_ps(x, y))
#define MULTIPLY_ADD(x, y, z) ((V)_mm512_fmadd_ps(x, y, z))
#define WIDEN(x) ((doubles)_mm512_cvtps_pd((__m256)(x))) /* of which gcc makes two conversions and two moves */
#define LOAD_BF16(in) ((V)adamod__bf16_load_avx512(in))
#define ROUND_BF16(x, add) adamod__bf16_round_avx512((__m512)(x), (__m512i)(add))
#define STORE_UPPER(out, bits)                                                                                         \
    _mm256_storeu_si256((__m256i *)(void *)(out), _mm512_cvtepi32_epi16(_mm512_srli_epi32((__m512i)(bits), 16)))
#define JOIN_UPPER(even, odd) adamod__join_upper_avx512((__m512i)(even), (__m512i)(odd))
#define SPREAD_LOW(x)                                                                                                  \
    _mm512_permutexvar_epi32(_mm512_set_epi32(7, 7, 6, 6, 5, 5, 4, 4, 3, 3, 2, 2, 1, 1, 0, 0), (__m512i)(x))
#define SPREAD_HIGH(x)                                                                                                 \
    _mm512_permutexvar_epi32(_mm512_set_epi32(15, 15, 14, 14, 13, 13, 12, 12, 11, 11, 10, 10, 9, 9, 8, 8), (__m512i)(x))
#define NANS unsigned
#define NANS_IN(x, y) (unsigned)_mm512_cmp_ps_mask((__m512)(x), (__m512)(y), _CMP_UNORD_Q)
#define ANY(nans) ((nans) != 0)
#define LOAD_F16(in) ((V)_mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)(const void *)(in))))
#define STORE_F16(out, x) _mm256_storeu_si256((__m256i *)(void *)(out), _mm512_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT))
#include "kernels/cpu/kernels.inc.h"

#define REAL double
#define TYPE f64
#define WIDTH 8
#define SQRT(x) ((V)_mm512_sqrt_pd(x))
#define LESSER(x, y) ((V)_mm512_min_pd(x, y))
#define GREATER(x, y) ((V)_mm512_max_pd(x, y))
#define MULTIPLY_ADD(x, y, z) ((V)_mm512_fmadd_pd(x, y, z))
#include "kernels/cpu/kernels.inc.h"

const kernel_set adamod__kernels_avx512 = {"avx512", &adamod__table_avx512_f32, &adamod__table_avx512_f64};

#ifdef __clang__
#pragma clang attribute pop
#endif
#include "kernels/cpu/contract_restore.inc.h"
#else
typedef int adamod__no_avx512; /* a translation unit may not be empty */
#endif
