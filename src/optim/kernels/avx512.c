/* Kernels for x86-64 with AVX-512 (F, BW, DQ, VL). */
#include "internal.h"

#ifdef ADAMOD_X86
#include "kernels/half.h"

#include <immintrin.h>
#include <math.h>
#include <string.h>

#include "kernels/contract_off.inc.h"
#ifdef __clang__
#pragma clang attribute push(__attribute__((target("avx512f,avx512bw,avx512dq,avx512vl"))), apply_to = function)
#else
#pragma GCC target("avx512f,avx512bw,avx512dq,avx512vl")
#endif

#define ISA avx512
#define REAL float
#define TYPE f32
#define CONVERT_F32
#define WIDTH 16
#define SQRT(x) ((V)_mm512_sqrt_ps(x))
#define LESSER(x, y) ((V)_mm512_min_ps(x, y))
#define GREATER(x, y) ((V)_mm512_max_ps(x, y))
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
