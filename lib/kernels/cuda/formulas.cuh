/* The rules' formulas (rules/NAME.inc.h) for one element on a device: the text of the CPU's kernels, as types that are
 * template arguments of kernels. */
#ifndef ADAMOD_CUDA_FORMULAS_CUH
#define ADAMOD_CUDA_FORMULAS_CUH

#include "kernels/cuda/device.cuh"

/* A float with division and square root as the compiler's, but without range-edge handling (a branch for each). Correctly
 * rounded for divisors of 2^-60 to 2^60, dividends of that or 0, and roots of 0 or 2^-100 to 2^100. quick_coefs checks a
 * tensor's coefficients, quick_squares its elements. */
struct quick {
    float x;
};
#define QUICK(op)                                                                                                      \
    static __device__ __forceinline__ quick operator op(quick a, quick b) { return quick{a.x op b.x}; }                \
    static __device__ __forceinline__ quick operator op(quick a, float b) { return quick{a.x op b}; }                  \
    static __device__ __forceinline__ quick operator op(float a, quick b) { return quick{a op b.x}; }
QUICK(+)
QUICK(-)
QUICK(*)
#undef QUICK

static __device__ __forceinline__ quick operator/(quick a, quick b) {
    float r;
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(r) : "f"(b.x));
    r = __fmaf_rn(r, __fmaf_rn(-b.x, r, 1), r);
    const float q = a.x * r;
    return quick{__fmaf_rn(r, __fmaf_rn(-b.x, q, a.x), q)};
}
static __device__ __forceinline__ quick operator/(float a, quick b) { return quick{a} / b; }
[[maybe_unused]] static __device__ __forceinline__ quick operator/(quick a, float b) { return a / quick{b}; }
[[maybe_unused]] static __device__ __forceinline__ quick operator-(quick a) { return quick{-a.x}; }

static __device__ __forceinline__ quick quick_sqrt(quick y) {
    float r;
    asm("rsqrt.approx.ftz.f32 %0, %1;" : "=f"(r) : "f"(y.x + 0x1p-126f)); /* it would be infinite for 0 */
    const float s = y.x * r;
    return quick{__fmaf_rn(__fmaf_rn(-s, s, y.x), 0.5f * r, s)};
}

/* Operands must not be NaN. */
static __device__ __forceinline__ quick quick_lesser(quick a, quick b) { return quick{fminf(a.x, b.x)}; }
static __device__ __forceinline__ quick quick_greater(quick a, quick b) { return quick{fmaxf(a.x, b.x)}; }
static __device__ __forceinline__ quick quick_where_positive(quick a, quick b) { return quick{a.x > 0 ? b.x : 0}; }
static __device__ __forceinline__ quick quick_zero_up_to(float limit, quick a, quick b) {
    return quick{a.x <= limit ? 0 : b.x};
}

template <class R> struct element {
    R p, g;          /* parameter, after decoupled decay; gradient */
    R m, v, s, t, u; /* states 0 to 4 */
    R eta, step;     /* read by statistics only */
};

enum { STATE_M = 1, STATE_V = 2, STATE_S = 4, STATE_T = 8, STATE_U = 16, STATES = 31 };
enum { HAS_Q8 = 32, HAS_BF16 = 64, HAS_TUNINGS = 128, HAS_Q8_EACH = 256, HAS_ANY_Q8 = HAS_Q8 | HAS_Q8_EACH };

/* The formulas of a rule, by variant. */
template <class... RULES> struct rule_variants {
    constexpr explicit rule_variants(RULES...) {}
};

/* The formula in quick arithmetic of a formula in f32. */
template <class RULE> struct quick_of;

/* See kernels.inc.h. */
#define M STATE_M
#define VV STATE_V
#define S STATE_S
#define T STATE_T
#define U STATE_U
#define COMPUTED 0
#define Q8 HAS_Q8
#define Q8_EACH HAS_Q8_EACH
#define BF16 HAS_BF16
#define TUNED HAS_TUNINGS
#define LESSER(x, y) ((x) < (y) ? (x) : (y))
#define GREATER(x, y) ((x) > (y) ? (x) : (y))
#define WHERE_POSITIVE(condition, x) ((condition) > 0 ? (x) : (V)0)
#define ZERO_UP_TO(limit, x, y) ((x) <= (limit) ? (V)0 : (y))

#define NAME3(name, type) name##_##type
#define NAME2(name, type) NAME3(name, type)
#define NAME(name) NAME2(name, TYPE)
#define FORMULA(name)                                                                                                  \
    static __device__ __forceinline__ element<V> NAME(name)(element<V> x, [[maybe_unused]] const COEF *k,              \
                                                            [[maybe_unused]] const bool bounded,                       \
                                                            [[maybe_unused]] const bool cautious)
#define KERNEL(name, mask) KERNELS(name, name, mask, false, false)
#define BOUNDED(name, formula, mask) KERNELS(name, formula, mask, true, false)
#define CAUTIOUS(name, formula, mask, bound)                                                                           \
    KERNELS(name, formula, (mask) & ~(HAS_Q8 | HAS_BF16 | HAS_TUNINGS) | CAUTIOUS_Q8(mask), bound, true)
/* Cautious steps have no fast kernels. */
#define CAUTIOUS_Q8(mask) ((mask)&HAS_ANY_Q8 ? HAS_Q8_EACH : 0)
#define KERNELS(name, formula, mask, bound, caution)                                                                   \
    struct NAME(name##_rule) {                                                                                         \
        typedef V R;                                                                                                   \
        typedef COEF K;                                                                                                \
        enum { states = (mask)&STATES, has = (mask) & ~states, is_cautious = caution };                                \
        static __device__ __forceinline__ element<V> run(element<V> x, const COEF *k) {                                \
            return NAME(formula)(x, k, bound, caution);                                                                \
        }                                                                                                              \
    };
#define VARIANTS(rule) [[maybe_unused]] static constexpr rule_variants NAME(rule##_variants)
#define VARIANT(name)                                                                                                  \
    NAME(name##_rule) {}

#define ADAMOD_RULE_FORMULAS
#define V float
#define COEF adamod__coef_f32
#define TYPE f32
#define SQRT(x) sqrtf(x)
#include "rules/list.inc.h"
#undef V
#undef COEF
#undef TYPE
#undef SQRT

#define V double
#define COEF adamod__coef_f64
#define TYPE f64
#define SQRT(x) sqrt(x)
#include "rules/list.inc.h"
#undef V
#undef COEF
#undef TYPE
#undef SQRT

#undef LESSER
#undef GREATER
#undef WHERE_POSITIVE
#undef ZERO_UP_TO
#undef KERNELS
#define WHERE_POSITIVE(condition, x) quick_where_positive(condition, x)
#define ZERO_UP_TO(limit, x, y) quick_zero_up_to(limit, x, y)
#define LESSER(x, y) quick_lesser(x, y)
#define GREATER(x, y) quick_greater(x, y)
#define KERNELS(name, formula, mask, bound, caution)                                                                   \
    template <> struct quick_of<name##_rule_f32> {                                                                     \
        static __device__ __forceinline__ element<quick> run(element<quick> x, const COEF *k) {                        \
            return NAME(formula)(x, k, bound, caution);                                                                \
        }                                                                                                              \
    };
#undef VARIANTS
#undef VARIANT
#define VARIANTS(rule) [[maybe_unused]] static const int NAME(rule##_variants)[] =
#define VARIANT(name) 0
#define V quick
#define COEF adamod__coef_f32
#define TYPE quick
#define SQRT(x) quick_sqrt(x)
#include "rules/list.inc.h"
#undef V
#undef COEF
#undef TYPE
#undef SQRT
#undef ADAMOD_RULE_FORMULAS

#undef M
#undef VV
#undef S
#undef T
#undef U
#undef BOUNDED
#undef CAUTIOUS
#undef CAUTIOUS_Q8
#undef KERNELS
#undef COMPUTED
#undef Q8
#undef Q8_EACH
#undef BF16
#undef TUNED
#undef LESSER
#undef GREATER
#undef WHERE_POSITIVE
#undef ZERO_UP_TO
#undef NAME3
#undef FORMULA
#undef KERNEL
#undef VARIANTS
#undef VARIANT

/* Updates an element in registers. x.g is the gradient as the rule sees it. */
template <class RULE>
static __device__ __forceinline__ element<typename RULE::R> update_element(element<typename RULE::R> x,
                                                                           const typename RULE::K &k) {
    if (k.decay != 0) x.p = x.p - k.decay * x.p;
    return RULE::run(x, &k);
}

/* Whether rules that divide lr by the root of state 1 plus eps can use quick arithmetic: for these coefficients, and for
 * elements of state 1 that are 0 or 2^-100 to 2^60, where least is the smallest of bits - 1. */
static __device__ __forceinline__ bool quick_coefs(const adamod__coef_f32 &k) {
    const bool rate = k.lr == 0 || (k.lr >= 0x1p-60f && k.lr <= 0x1p60f);
    return rate && k.eps >= 0x1p-60f && k.eps <= 0x1p40f && k.vscale >= 1 && k.vscale <= 0x1p40f;
}
static __device__ __forceinline__ bool quick_squares(uint32_t least) { return least >= (27u << 23) - 1; }

#endif
