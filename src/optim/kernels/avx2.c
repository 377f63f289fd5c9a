/* Kernels for x86-64 with AVX2 and F16C. */
#include "internal.h"

#ifdef ADAMOD_X86
#include "kernels/half.h"

#include <immintrin.h>
#include <math.h>
#include <string.h>

#include "kernels/contract_off.inc.h"
#ifdef __clang__
#pragma clang attribute push(__attribute__((target("avx2,f16c"))), apply_to = function)
#else
#pragma GCC target("avx2,f16c")
#endif

#define ISA avx2
#define REAL float
#define TYPE f32
#define CONVERT_F32
#define WIDTH 8
#define SQRT(x) ((V)_mm256_sqrt_ps(x))
#define LESSER(x, y) ((V)_mm256_min_ps(x, y))
#define GREATER(x, y) ((V)_mm256_max_ps(x, y))
#define LOAD_F16(in) ((V)_mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(const void *)(in))))
#define STORE_F16(out, x) _mm_storeu_si128((__m128i *)(void *)(out), _mm256_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT))
#include "kernels/kernels.inc.h"

#define REAL double
#define TYPE f64
#define WIDTH 4
#define SQRT(x) ((V)_mm256_sqrt_pd(x))
#define LESSER(x, y) ((V)_mm256_min_pd(x, y))
#define GREATER(x, y) ((V)_mm256_max_pd(x, y))
#include "kernels/kernels.inc.h"

const kernel_set adamod__kernels_avx2 = {"avx2", &adamod__table_avx2_f32, &adamod__table_avx2_f64};
#undef ISA

#ifdef __clang__
#pragma clang attribute pop
#endif
#include "kernels/contract_restore.inc.h"
#else
typedef int adamod__no_avx2; /* a translation unit may not be empty */
#endif
