/* The inner loops, written once (kernels.inc.h, rules/) and built for every instruction set.
 *
 * They use only operations that IEEE 754 rounds exactly: + - * /, square roots, comparisons, and fused multiply-adds where
 * the source says MULTIPLY_ADD. So every instruction set gives the same bits. */
#ifndef ADAMOD_KERNELS_H
#define ADAMOD_KERNELS_H

#include <stddef.h>
#include <stdint.h>

/* Functions that CUDA also compiles: for the device only, or for host and device. */
#ifdef __CUDACC__
#define ADAMOD__DEVICE __device__
#define ADAMOD__BOTH __host__ __device__
#else
#define ADAMOD__DEVICE
#define ADAMOD__BOTH
#endif

/* Rules, in the order of adamod_rule_name. */
typedef enum rule_id {
#define RULE(name) RULE_##name,
#include "rules/names.inc.h"
    RULE_COUNT
} rule_id;

/* The coefficients of formulas; their meaning is up to the rule. */
#define ADAMOD_COEFS(X)                                                                                                \
    X(gscale) /* gradients are multiplied by this: scale, clipping of the norm, sign of maximize */                    \
    X(decay)  /* p -= decay * p before the update */                                                                   \
    X(l2)     /* g += l2 * p */                                                                                        \
    X(clip)   /* g is clamped to [-clip, clip] */                                                                      \
    X(lr)                                                                                                              \
    X(beta1)                                                                                                           \
    X(beta1c) /* 1 - beta1, computed in double */                                                                      \
    X(beta2)                                                                                                           \
    X(beta2c)                                                                                                          \
    X(beta3) /* of the momental bound */                                                                               \
    X(beta3c)                                                                                                          \
    X(idle)  /* the bound's average stays 0 up to this: 0 with skip_idle, else -infinity */                            \
    X(beta4) /* of a rule's third average */                                                                           \
    X(beta4c)                                                                                                          \
    X(eps)                                                                                                             \
    X(mscale) /* 1 / (1 - beta1^t), or 1 */                                                                            \
    X(vscale) /* 1 / (1 - beta2^t), or 1 */                                                                            \
    X(low)                                                                                                             \
    X(high)                                                                                                            \
    X(weight)                                                                                                          \
    X(caution) /* of cautious steps: what the elements that move are multiplied by */

#define ADAMOD_FIELD_F64(name) double name;
#define ADAMOD_FIELD_F32(name) float name;
typedef struct adamod__coef_f64 {
    ADAMOD_COEFS(ADAMOD_FIELD_F64)
    int variant; /* which of the rule's kernels */
    int flag;    /* a flag that the rule defines */
    int decays;  /* decay stays 0: the rule's formula has it, or this update has none */
} adamod__coef_f64;
typedef struct adamod__coef_f32 {
    ADAMOD_COEFS(ADAMOD_FIELD_F32)
    int flag;
} adamod__coef_f32;

/* Words of rules/, for C and CUDA. BOUND, in a formula after x.eta, sets x.step: to x.eta, or with the momental bound to the
 * lesser of x.eta and its running average, which is the given state. With skip_idle, the average begins when x.v is no longer
 * 0; BOUND_SINCE names something else that is 0 without a gradient. */
#define BOUND(state) BOUND_SINCE(state, x.v)
#define BOUND_SINCE(state, seen)                                                                                       \
    x.step = x.eta;                                                                                                    \
    if (bounded) {                                                                                                     \
        x.state = ZERO_UP_TO(k->idle, seen, k->beta3 * x.state + k->beta3c * x.eta);                                   \
        x.step = LESSER(x.state, x.eta);                                                                               \
    }
/* 0 until an element has had a gradient; for rules that add eps to v. */
#define SEEN(state) (GREATER(x.g, -x.g) + x.state)
/* MOVE, at the end of a formula, takes the step from x.p. In cautious kernels, elements whose step would go against their
 * gradient stay, and the others go further: Liang et al., "Cautious Optimizers: Improving Training with One Line of Code",
 * arXiv 2411.16085. With SUMS_FLAG, when k->caution is 1, x.eta says which elements move, to be counted. */
#define MOVE(update)                                                                                                   \
    {                                                                                                                  \
        const V whole = (update), part = WHERE_POSITIVE(whole * x.g, (V){0} + k->caution);                             \
        x.p = x.p - (cautious ? whole * part : whole);                                                                 \
        x.eta = cautious && k->flag & SUMS_FLAG ? part : x.eta;                                                        \
    }
/* The kernels of a rule with one formula: without the bound, and with it, for which bound_state has the average. */
#define BOUNDABLE(name, states, bound_state)                                                                           \
    KERNEL(name, states)                                                                                               \
    BOUNDED(name##_bounded, name, states | bound_state)                                                                \
    VARIANTS(name){VARIANT(name), VARIANT(name##_bounded)};
/* Likewise, with and without caution. */
#define CAUTIOUS_BOUNDABLE(name, states, bound_state)                                                                  \
    KERNEL(name, states)                                                                                               \
    BOUNDED(name##_bounded, name, states | bound_state)                                                                \
    CAUTIOUS(name##_cautious, name, states, 0)                                                                         \
    CAUTIOUS(name##_bounded_cautious, name, states | bound_state, 1)                                                   \
    VARIANTS(name){VARIANT(name), VARIANT(name##_bounded), VARIANT(name##_cautious), VARIANT(name##_bounded_cautious)};
/* The kernel of a rule with one formula and no bound. */
#define ONLY_KERNEL(name, states)                                                                                      \
    KERNEL(name, states)                                                                                               \
    VARIANTS(name){VARIANT(name)};

/* States of formulas: m, v, s, t, u. A rule may have more for its driver. */
enum { KERNEL_STATES = 5 };

/* Bit of coef.flag: the formula only leaves values to sum in eta and step, and nothing else is stored. See sums.c. */
enum { SUMS_FLAG = 2 };

/* Consecutive elements, in the type of computation. Pointers need no alignment. */
typedef struct block {
    void *p;
    const void *g;
    void *m, *v, *s, *t, *u; /* states 0 to 4; those the kernel does not use are not read */
    void *eta, *step;        /* written by the statistics kernels only */
    size_t n;
    uint32_t key; /* of kernels whose arrays are all bf16: names the random numbers */
    void *half;   /* of kernels with masters: the parameter in bf16, with its master in p */
    int half_g;   /* and whether g is bf16, too */
} block;

typedef void (*update_fn)(const block *b, const adamod__coef_f64 *c);

typedef struct update_pair {
    update_fn plain;
    update_fn stats; /* also writes block.eta and block.step */
    /* NULL for f64: */
    update_fn bf16;   /* p, g and states are bf16, rounded at random */
    update_fn master; /* p is bf16, with a master; g bf16 or f32; states f32 */
} update_pair;

typedef struct real_kernels {
    const update_pair *update[RULE_COUNT]; /* [rule][variant] */
    /* out = clamp(gscale * g, clip) + l2 * p */
    void (*gradient)(void *out, const void *g, const void *p, size_t n, const adamod__coef_f64 *c);
    /* The sum of (scale * g)^2 and the largest |scale * g|, in double; NaN if there is one. */
    double (*sumsq)(const void *g, size_t n, double scale);
    double (*sum)(const void *g, size_t n); /* as they are, in the same order */
    double (*maxabs)(const void *g, size_t n, double scale);
    /* For drivers: out = g * (row / sqrt(column)); sum[i] += g[i]^2 */
    void (*factored)(void *out, const void *g, const void *column, size_t n, double row);
    void (*add_squares)(double *sum, const void *g, size_t n);
    /* The momental bound: s = beta3 s + (1 - beta3) eta, but 0 where |g| + s <= idle; step = the lesser of s and eta,
     * u = g * step */
    void (*bound)(void *u, void *step, void *s, const void *g, const void *eta, size_t n, const adamod__coef_f64 *c);
    /* For products (matmul.c): c = beta c + a b, in the order of k, every step a fused multiply-add. c has tile_rows rows
     * of tile_cols, ld apart; a is [k][tile_rows], b [k][tile_cols]. beta 0: c is not read. */
    void (*tile)(void *c, size_t ld, const void *a, const void *b, size_t k, double beta);
    int tile_rows, tile_cols;
    void (*load_bf16)(void *out, const uint16_t *in, size_t n);
    void (*load_f16)(void *out, const uint16_t *in, size_t n);
    void (*store_bf16)(uint16_t *out, const void *in, size_t n);
    void (*store_f16)(uint16_t *out, const void *in, size_t n);
    /* Rounded up or down at random, in proportion to the distances; key names the random numbers, slot the array: see
     * half.h. */
    void (*store_bf16_random)(uint16_t *out, const void *in, size_t n, uint32_t key, int slot);
    void (*store_f16_random)(uint16_t *out, const void *in, size_t n, uint32_t key, int slot);
    /* A state in 8 bits of a kind (q8.h), from the beginning of a block of the codes on. */
    void (*load_q8)(void *out, const uint8_t *codes, const float *scales, size_t n, int kind);
    void (*store_q8)(uint8_t *codes, float *scales, const void *in, size_t n, int kind, uint32_t key, int slot);
} real_kernels;

typedef struct kernel_set {
    const char *name;
    const real_kernels *f32, *f64;
} kernel_set;

extern const kernel_set adamod__kernels_plain;
#ifdef ADAMOD_X86
extern const kernel_set adamod__kernels_avx2, adamod__kernels_avx512;
#endif
#ifdef ADAMOD_NEON
extern const kernel_set adamod__kernels_neon;
#endif

/* The sets this processor can run, best first; NULL past the end. */
const kernel_set *adamod__kernels_at(int index);
/* The one to use: the best, or the one ADAMOD_ISA names; NULL with the last error set if that one cannot run here. */
const kernel_set *adamod__kernels_choose(void);

#endif
