/* Kernels for x86-64 with AVX-512 (F, BW, DQ, VL). */
#include "internal.h"

#ifdef ADAMOD_X86
#include "kernels/half.h"
#include "kernels/q8.h"

#include <immintrin.h>
#include <math.h>
#include <string.h>

#include "kernels/contract_off.inc.h"
#ifdef __clang__
#pragma clang attribute push(__attribute__((target("avx512f,avx512bw,avx512dq,avx512vl"))), apply_to = function)
#else
#pragma GCC target("avx512f,avx512bw,avx512dq,avx512vl")
#endif

static inline __attribute__((always_inline)) void adamod__bf16_store_avx512(void *out, __m512 value, __m512i add) {
    const __m512i x = _mm512_castps_si512(value), magnitude = _mm512_and_si512(x, _mm512_set1_epi32(0x7fffffff));
    const __m512i infinity = _mm512_set1_epi32(0x7f800000);
    const __mmask16 finite = _mm512_cmplt_epi32_mask(magnitude, infinity);
    const __mmask16 nan = _mm512_cmpgt_epi32_mask(magnitude, infinity);
    __m512i y = _mm512_mask_add_epi32(x, finite, x, add);
    y = _mm512_mask_or_epi32(y, nan, y, _mm512_set1_epi32(0x400000));
    _mm256_storeu_si256((__m256i *)out, _mm512_cvtepi32_epi16(_mm512_srli_epi32(y, 16)));
}

static inline __attribute__((always_inline)) __m512 adamod__bf16_load_avx512(const void *in) {
    const __m512i x = _mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i *)in));
    return _mm512_castsi512_ps(_mm512_slli_epi32(x, 16));
}

#define ISA avx512
#define REAL float
#define TYPE f32
#define CONVERT_F32
#define WIDTH 16
#define SQRT(x) ((V)_mm512_sqrt_ps(x))
#define LESSER(x, y) ((V)_mm512_min_ps(x, y))
#define GREATER(x, y) ((V)_mm512_max_ps(x, y))
#define LOAD_BF16(in) ((V)adamod__bf16_load_avx512(in))
#define STORE_BF16(out, x, add) adamod__bf16_store_avx512(out, (__m512)(x), (__m512i)(add))
#define LOAD_F16(in) ((V)_mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)(const void *)(in))))
#define STORE_F16(out, x) _mm256_storeu_si256((__m256i *)(void *)(out), _mm512_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT))
#include "kernels/kernels.inc.h"

#define REAL double
#define TYPE f64
#define WIDTH 8
#define SQRT(x) ((V)_mm512_sqrt_pd(x))
#define LESSER(x, y) ((V)_mm512_min_pd(x, y))
#define GREATER(x, y) ((V)_mm512_max_pd(x, y))
#include "kernels/kernels.inc.h"

const kernel_set adamod__kernels_avx512 = {"avx512", &adamod__table_avx512_f32, &adamod__table_avx512_f64};
#undef ISA

#ifdef __clang__
#pragma clang attribute pop
#endif
#include "kernels/contract_restore.inc.h"
#else
typedef int adamod__no_avx512; /* a translation unit may not be empty */
#endif
