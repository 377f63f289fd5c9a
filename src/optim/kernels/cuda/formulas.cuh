/* The rules' formulas (../../rules) for one element on a device: the same text the CPU's kernels are made of, as types
 * that kernels take as parameters. */
#ifndef ADAMOD_CUDA_FORMULAS_CUH
#define ADAMOD_CUDA_FORMULAS_CUH

#include "device.cuh"

template <class R> struct element {
    R p, g;      /* parameter, after decoupled decay; gradient */
    R m, v, s;   /* states 0, 1, 2 */
    R eta, step; /* read by statistics only */
};

#define M 1
#define VV 2
#define S 4
#define LESSER(x, y) ((x) < (y) ? (x) : (y))
#define GREATER(x, y) ((x) > (y) ? (x) : (y))
#define WHERE_POSITIVE(condition, x) ((condition) > 0 ? (x) : (V)0)

#define NAME3(name, type) name##_##type
#define NAME2(name, type) NAME3(name, type)
#define NAME(name) NAME2(name, TYPE)
#define FORMULA(name)                                                                                                  \
    static __device__ __forceinline__ element<V> NAME(name)(element<V> x, [[maybe_unused]] const COEF *k)
#define KERNEL(name, mask)                                                                                             \
    struct NAME(name##_rule) {                                                                                         \
        typedef V R;                                                                                                   \
        typedef COEF K;                                                                                                \
        enum { states = mask };                                                                                        \
        static __device__ __forceinline__ element<V> run(element<V> x, const COEF *k) { return NAME(name)(x, k); }     \
    };
#ifdef MAKE_VARIANTS
#define VARIANTS(rule) static const variant_launch NAME(rule##_variants)[] =
#define VARIANT(name) make_variant<NAME(name##_rule)>()
#else
#define VARIANTS(rule) [[maybe_unused]] static const int NAME(rule##_variants)[] =
#define VARIANT(name) 0
#endif

#define ADAMOD_FORMULAS
#define V float
#define COEF adamod__coef_f32
#define TYPE f32
#define SQRT(x) sqrtf(x)
#include "../../rules/all.inc.h"
#undef V
#undef COEF
#undef TYPE
#undef SQRT

#define V double
#define COEF adamod__coef_f64
#define TYPE f64
#define SQRT(x) sqrt(x)
#include "../../rules/all.inc.h"
#undef V
#undef COEF
#undef TYPE
#undef SQRT
#undef ADAMOD_FORMULAS

#undef M
#undef VV
#undef S
#undef LESSER
#undef GREATER
#undef WHERE_POSITIVE
#undef NAME3
#undef FORMULA
#undef KERNEL
#undef VARIANTS
#undef VARIANT

enum { STATE_M = 1, STATE_V = 2, STATE_S = 4 };

/* What happens to an element between reading and writing. x.g comes as the rule is to see it. */
template <class RULE>
static __device__ __forceinline__ element<typename RULE::R> update_element(element<typename RULE::R> x,
                                                                           const typename RULE::K &k) {
    if (k.decay != 0) x.p = x.p - k.decay * x.p;
    return RULE::run(x, &k);
}

#endif
