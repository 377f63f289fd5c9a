/* Kernels for x86-64 with AVX2, FMA and F16C. */
#include "optim/internal.h"

#ifdef ADAMOD_X86
#include "kernels/half.h"
#include "kernels/q8.h"

#include <immintrin.h>
#include <math.h>
#include <string.h>

#include "kernels/cpu/contract_off.inc.h"
#ifdef __clang__
#pragma clang attribute push(__attribute__((target("avx2,fma,f16c"))), apply_to = function)
#else
#pragma GCC target("avx2,fma,f16c")
#endif

static inline __attribute__((always_inline)) __m256i adamod__bf16_round_avx2(__m256 value, __m256i add) {
    const __m256i x = _mm256_castps_si256(value), quiet = _mm256_or_si256(x, _mm256_set1_epi32(0x400000));
    const __m256 nan = _mm256_cmp_ps(value, value, _CMP_UNORD_Q), sum = _mm256_castsi256_ps(_mm256_add_epi32(x, add));
    return _mm256_castps_si256(_mm256_blendv_ps(sum, _mm256_castsi256_ps(quiet), nan));
}

static inline __attribute__((always_inline)) void adamod__store_upper_avx2(void *out, __m256i x) {
    const __m256i y = _mm256_srli_epi32(x, 16);
    /* the halves of each lane, side by side */
    const __m256i packed = _mm256_permute4x64_epi64(_mm256_packus_epi32(y, y), 0x08);
    _mm_storeu_si128((__m128i *)out, _mm256_castsi256_si128(packed));
}

static inline __attribute__((always_inline)) __m256 adamod__bf16_load_avx2(const void *in) {
    const __m256i x = _mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i *)in));
    return _mm256_castsi256_ps(_mm256_slli_epi32(x, 16));
}

#define ISA avx2
#define TILE_ROWS 6
#define TILE_VECTORS 2
#define REAL float
#define TYPE f32
#define CONVERT_F32
#define WIDTH 8
#define SQRT(x) ((V)_mm256_sqrt_ps(x))
#define LESSER(x, y) ((V)_mm256_min_ps(x, y))
#define GREATER(x, y) ((V)_mm256_max_ps(x, y))
#define MULTIPLY_ADD(x, y, z) ((V)_mm256_fmadd_ps(x, y, z))
#define WIDEN(x) ((doubles)_mm256_cvtps_pd((__m128)(x)))
#define LOAD_BF16(in) ((V)adamod__bf16_load_avx2(in))
#define ROUND_BF16(x, add) adamod__bf16_round_avx2((__m256)(x), (__m256i)(add))
#define STORE_UPPER(out, bits) adamod__store_upper_avx2(out, (__m256i)(bits))
#define JOIN_UPPER(even, odd)                                                                                          \
    _mm256_blend_epi16(_mm256_srli_epi32((__m256i)(even), 16), (__m256i)(odd), 0xaa) /* every other one */
#define SPREAD_LOW(x) _mm256_permutevar8x32_epi32((__m256i)(x), _mm256_set_epi32(3, 3, 2, 2, 1, 1, 0, 0))
#define SPREAD_HIGH(x) _mm256_permutevar8x32_epi32((__m256i)(x), _mm256_set_epi32(7, 7, 6, 6, 5, 5, 4, 4))
#define NANS __m256i
#define NANS_IN(x, y) _mm256_castps_si256(_mm256_cmp_ps((__m256)(x), (__m256)(y), _CMP_UNORD_Q))
#define ANY(nans) (_mm256_movemask_epi8(nans) != 0)
#define LOAD_F16(in) ((V)_mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(const void *)(in))))
#define STORE_F16(out, x) _mm_storeu_si128((__m128i *)(void *)(out), _mm256_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT))
#include "kernels/cpu/kernels.inc.h"

#define REAL double
#define TYPE f64
#define WIDTH 4
#define SQRT(x) ((V)_mm256_sqrt_pd(x))
#define LESSER(x, y) ((V)_mm256_min_pd(x, y))
#define GREATER(x, y) ((V)_mm256_max_pd(x, y))
#define MULTIPLY_ADD(x, y, z) ((V)_mm256_fmadd_pd(x, y, z))
#include "kernels/cpu/kernels.inc.h"

const kernel_set adamod__kernels_avx2 = {"avx2", &adamod__table_avx2_f32, &adamod__table_avx2_f64};

#ifdef __clang__
#pragma clang attribute pop
#endif
#include "kernels/cpu/contract_restore.inc.h"
#else
typedef int adamod__no_avx2; /* a translation unit may not be empty */
#endif
