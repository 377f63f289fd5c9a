/* The loops of vector.inc.h for every instruction set there is, and the choice between them. */
#include "nn/backend/cpu/vector.h"
#include "core/error.h"
#include "optim/optim.h"

#include <math.h>
#include <string.h>

typedef float F4 __attribute__((vector_size(16)));
typedef float F8 __attribute__((vector_size(32)));
typedef float UNALIGNED4 __attribute__((vector_size(16), aligned(4), may_alias));

#ifdef __clang__
#define UNROLL _Pragma("clang loop unroll(full)")
#define UNROLL_TALL UNROLL
#else
#define UNROLL _Pragma("GCC unroll 8")
#define UNROLL_TALL _Pragma("GCC unroll 20")
#endif

#ifdef ADAMOD_X86
#include <immintrin.h>
#define TRANSPOSE4(x) _MM_TRANSPOSE4_PS(x[0], x[1], x[2], x[3])
#else
#define TRANSPOSE4(x) nn_transpose4(x)
static inline void nn_transpose4(F4 *x) {
    const F4 a = x[0], b = x[1], c = x[2], d = x[3];
    for (int e = 0; e < 4; e++) x[e] = (F4){a[e], b[e], c[e], d[e]};
}
#endif

/* ---- x86 ---- */

#ifdef ADAMOD_X86
#ifdef __clang__
#pragma clang attribute push(__attribute__((target("avx512f,avx512bw,avx512vl,avx512dq,fma"))), apply_to = function)
#else
#pragma GCC push_options
#pragma GCC target("avx512f,avx512bw,avx512vl,avx512dq,fma")
#endif

#define ISA avx512
#define WIDTH 16
#define ROWS 8
#define FMA(a, b, c) ((V)_mm512_fmadd_ps(a, b, c))
#define GREATER(a, b) ((V)_mm512_max_ps(a, b))
#define UNLESS_LESS(a, b, y) ((V)_mm512_maskz_mov_ps(_mm512_cmp_ps_mask(a, b, _CMP_NLT_UQ), y))
#define FIRST(n) ((__mmask16)((n) >= 16 ? 0xffff : (n) <= 0 ? 0 : (1 << (n)) - 1))
#define PART(p, n, fill) ((V)_mm512_mask_loadu_ps(fill, FIRST(n), p))
#define STORE_PART(p, n, x) _mm512_mask_storeu_ps(p, FIRST(n), x)
#define ADD8(a, b) ((a) + (b))
#define ADD4(a, b) ((a) + (b))
#define MAX8(a, b) _mm256_max_ps(a, b)
#define MAX4(a, b) _mm_max_ps(a, b)
#define FOLD(x, op) FOLD8(op##8(_mm512_castps512_ps256(x[0]), _mm512_extractf32x8_ps(x[0], 1)), op)
#define FOLD8(x, op) op##4(_mm256_castps256_ps128(x), _mm256_extractf128_ps(x, 1))
#include "nn/backend/cpu/vector.inc.h"
#undef FIRST

#ifdef __clang__
#pragma clang attribute pop
#pragma clang attribute push(__attribute__((target("avx2,fma"))), apply_to = function)
#else
#pragma GCC pop_options
#pragma GCC push_options
#pragma GCC target("avx2,fma")
#endif

/* n times -1, then 0. */
static inline __m256i nn_first8(int64_t n) {
    const int count = n > 8 ? 8 : n < 0 ? 0 : (int)n;
    return _mm256_cmpgt_epi32(_mm256_set1_epi32(count), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
}

#define ISA avx2
#define WIDTH 8
#define ROWS 4
#define FMA(a, b, c) ((V)_mm256_fmadd_ps(a, b, c))
#define GREATER(a, b) ((V)_mm256_max_ps(a, b))
#define UNLESS_LESS(a, b, y) ((V)_mm256_and_ps(_mm256_cmp_ps(a, b, _CMP_NLT_UQ), y))
#define PART(p, n, fill) ((V)_mm256_blendv_ps(fill, _mm256_maskload_ps(p, nn_first8(n)), (__m256)nn_first8(n)))
#define STORE_PART(p, n, x) _mm256_maskstore_ps(p, nn_first8(n), x)
#define FOLD(x, op) FOLD8(op##8(x[0], x[1]), op)
#include "nn/backend/cpu/vector.inc.h"

#ifdef __clang__
#pragma clang attribute pop
#else
#pragma GCC pop_options
#endif
#endif

/* ---- vectors of four, everywhere ---- */

static inline F4 nn_part4(const float *p, int64_t n, F4 fill) {
    for (int i = 0; i < 4 && i < n; i++) fill[i] = p[i];
    return fill;
}

static inline void nn_store_part4(float *p, int64_t n, F4 x) {
    for (int i = 0; i < 4 && i < n; i++) p[i] = x[i];
}

typedef int32_t I4 __attribute__((vector_size(16)));
static inline F4 nn_greater4(F4 a, F4 b) {
    const I4 mask = a > b;
    return (F4)(((I4)a & mask) | ((I4)b & ~mask));
}

#undef MAX4
#undef ADD4
#define ADD4(a, b) ((a) + (b))
#define MAX4(a, b) nn_greater4(a, b)
#define WIDTH 4
#ifdef ADAMOD_NEON
#include <arm_neon.h>
#define ISA neon
#define ROWS 8
#define FMA(a, b, c) ((V)vfmaq_f32((float32x4_t)(c), (float32x4_t)(a), (float32x4_t)(b)))
#else
#define ISA plain
#define ROWS 4
#define FMA(a, b, c) ((a) * (b) + (c))
#endif
#define GREATER(a, b) nn_greater4(a, b)
#define UNLESS_LESS(a, b, y) ((V)(~((a) < (b)) & (I4)(y)))
#define PART(p, n, fill) nn_part4(p, n, fill)
#define STORE_PART(p, n, x) nn_store_part4(p, n, x)
#define FOLD(x, op) op##4(op##4(x[0], x[2]), op##4(x[1], x[3]))
#include "nn/backend/cpu/vector.inc.h"

const nn_vector *nn_vector_choose(void) {
    const char *chosen = adamod__chosen_isa(), *name = chosen ? chosen : "plain";
#ifdef ADAMOD_X86
    if (strcmp(name, "avx512") == 0) return &nn_table_avx512;
    if (strcmp(name, "avx2") == 0 && __builtin_cpu_supports("fma")) return &nn_table_avx2;
    return &nn_table_plain;
#elif defined(ADAMOD_NEON)
    (void)name;
    return &nn_table_neon;
#else
    (void)name;
    return &nn_table_plain;
#endif
}
