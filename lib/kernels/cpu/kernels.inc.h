/* The kernels for one instruction set and one type. The includer defines
 *   ISA             the instruction set's name
 *   REAL, TYPE      float and f32, or double and f64
 *   WIDTH           elements in a vector; 1: V is REAL itself
 *   SQRT, LESSER    square root; x < y ? x : y (so the second where either is NaN)
 *   GREATER         x > y ? x : y
 *   MULTIPLY_ADD    x * y + z, rounded once
 *   TILE_ROWS, TILE_VECTORS   of products (tile in kernels.h): about as many as there are registers
 *   WIDEN           half a vector as doubles, where the compiler's own conversion is slow
 * and for f32 alone what convert.inc.h needs. V is a vector on which + - * / work, so formulas read as formulas. */

#define NAME3(name, isa, type) adamod__##name##_##isa##_##type
#define NAME2(name, isa, type) NAME3(name, isa, type)
#define NAME(name) NAME2(name, ISA, TYPE)
#define COEF2(type) adamod__coef_##type
#define COEF1(type) COEF2(type)
#define COEF COEF1(TYPE)

#define V NAME(vector)
#define UNALIGNED NAME(unaligned)
#define ELEMENT NAME(element)
#if WIDTH == 1
typedef REAL V;
typedef REAL UNALIGNED __attribute__((aligned(1), may_alias));
#else
typedef REAL V __attribute__((vector_size(WIDTH * sizeof(REAL))));
typedef REAL UNALIGNED __attribute__((vector_size(WIDTH * sizeof(REAL)), aligned(1), may_alias));
#endif
#define SCALAR_SQRT(x) _Generic((REAL)0, float : sqrtf, double : sqrt)(x)
#define SCALAR_MOST _Generic((REAL)0, float : FLT_MAX, double : DBL_MAX)
#define LOAD(pointer, i) (*(const UNALIGNED *)((pointer) + (i)))
#define STORE(pointer, i, value) (*(UNALIGNED *)((pointer) + (i)) = (value))
/* ZERO_UP_TO: 0 where x is at most the limit, else y, also where x is NaN. */
#if WIDTH == 1
#define WHERE_POSITIVE(condition, x) ((condition) > 0 ? (x) : 0)
#define ZERO_UP_TO(limit, x, y) ((x) <= (limit) ? 0 : (y))
#else
#define WHERE_POSITIVE(condition, x) ((V)(((condition) > (V){0}) & (__typeof__((condition) > (V){0}))(x)))
#define ZERO_UP_TO(limit, x, y) ((V)(~((x) <= (V){0} + (limit)) & (__typeof__((x) <= (V){0}))(y)))
#endif
#define INLINE static inline __attribute__((always_inline))
#ifdef __clang__
#define UNROLL _Pragma("clang loop unroll(full)")
#else
#define UNROLL _Pragma("GCC unroll 32")
#endif

/* The elements that a formula updates, as many as V has. */
typedef struct ELEMENT {
    V p, g;          /* parameter, after decoupled decay; gradient */
    V m, v, s, t, u; /* states 0 to 4 */
    V eta, step;     /* the element's learning rate before and after a bound; read by statistics only */
} ELEMENT;

/* FORMULA(name) { ... return x; } is a rule's update of x, with its coefficients in k. KERNEL makes the loops of it;
 * the states it names are read and written. */
#define FORMULA(name)                                                                                                  \
    INLINE ELEMENT NAME(name)(ELEMENT x, const COEF *k __attribute__((unused)),                                        \
                              const int bounded __attribute__((unused)), const int cautious __attribute__((unused)))
#define M 1
#define VV 2
#define S 4
#define T 8
#define U 16
/* Flag beside the states: every stored value is the result of an operation, none is stored as loaded. */
#define COMPUTED 256
/* Additional kernels of CUDA: for 8-bit states, for arrays that are all bf16, and for `optim bench` to try. In formulas of
 * the first two, states are m, or m and v, or m, v and s, square roots are of v * vscale, and divisions are of lr by such a
 * root plus eps. Q8_EACH is for 8-bit states of other formulas, which take one element at a time. */
#define Q8 0
#define Q8_EACH 0
#define BF16 0
#define TUNED 0
#define KERNEL(name, states) KERNELS(name, name, states, 0, 0)
#define BOUNDED(name, formula, states) KERNELS(name, formula, states, 1, 0)
#define CAUTIOUS(name, formula, states, bound) KERNELS(name, formula, states, bound, 1)
#define KERNELS(name, formula, states, bound, caution)                                                                 \
    INLINE ELEMENT NAME(name##_update)(ELEMENT x, const COEF *k) { return NAME(formula)(x, k, bound, caution); }       \
    static void NAME(name##_loop)(const block *b, const COEF *c) { LOOP(NAME(name##_update), states, 0) }              \
    static void NAME(name##_stats_loop)(const block *b, const COEF *c) { LOOP(NAME(name##_update), states, 1) }        \
    static void NAME(name##_plain)(const block *b, const adamod__coef_f64 *c) {                                        \
        NAME(run)(b, c, NAME(name##_loop), WIDTH, ALL_REAL);                                                           \
    }                                                                                                                  \
    static void NAME(name##_stats)(const block *b, const adamod__coef_f64 *c) {                                        \
        NAME(run)(b, c, NAME(name##_stats_loop), WIDTH, ALL_REAL);                                                     \
    }                                                                                                                  \
    LOW_KERNELS(name, states)
#define ALL_REAL ((NAME(sizes)){sizeof(REAL), sizeof(REAL), sizeof(REAL), 0})
#define VARIANTS(rule) static const update_pair NAME(rule##_variants)[] =
#define VARIANT(name)                                                                                                  \
    { NAME(name##_plain), NAME(name##_stats), LOW_ENTRIES(name) }

/* Prefetches 1 KiB ahead. Loops without conversions are limited by memory and prefetch into the second-level cache; into
 * the first, SGD was a third slower on Zen 4. Loops that convert prefetch into the first. docs/performance-log.md has
 * the measurements. A prefetch beyond the end of an array does nothing. Scalar loops are too slow to gain from it. */
#define L1 3
#define L2 2
#define AHEAD(pointer, i, write, cache)                                                                                \
    if (WIDTH > 1) __builtin_prefetch((const char *)((pointer) + (i)) + 1024, write, cache)
#define STATE_AHEAD(name, slot, i, cache) AHEAD(name, i, 1, cache)
/* Does something for each state that a kernel has: DO(name, slot of its random numbers, ...). */
#define EACH_STATE(states, DO, ...)                                                                                    \
    if ((states)&M) DO(m, 1, __VA_ARGS__);                                                                             \
    if ((states)&VV) DO(v, 2, __VA_ARGS__);                                                                            \
    if ((states)&S) DO(s, 3, __VA_ARGS__);                                                                             \
    if ((states)&T) DO(t, 4, __VA_ARGS__);                                                                             \
    if ((states)&U) DO(u, 5, __VA_ARGS__)
#define LOAD_STATE(name, slot, i) x.name = LOAD(name, i)
#define STORE_STATE(name, slot, i) STORE(name, i, x.name)

/* No store can alias a copy of the coefficients, so it stays in registers. With SUMS_FLAG, only eta and step are stored. */
#define LOOP(formula, states, stats)                                                                                   \
    const COEF k = *c;                                                                                                 \
    REAL *p = b->p, *m = b->m, *v = b->v, *s = b->s, *t = b->t, *u = b->u, *eta = b->eta, *step = b->step;             \
    const REAL *g = b->g;                                                                                              \
    const size_t n = b->n;                                                                                             \
    (void)m, (void)v, (void)s, (void)t, (void)u, (void)eta, (void)step;                                                \
    for (size_t i = 0; i < n; i += WIDTH) {                                                                            \
        ELEMENT x;                                                                                                     \
        x.m = x.v = x.s = x.t = x.u = x.eta = x.step = (V){0};                                                         \
        AHEAD(p, i, 1, L2);                                                                                            \
        AHEAD(g, i, 0, L2);                                                                                            \
        EACH_STATE(states, STATE_AHEAD, i, L2);                                                                        \
        x.p = LOAD(p, i);                                                                                              \
        x.g = LOAD(g, i) * k.gscale;                                                                                   \
        EACH_STATE(states, LOAD_STATE, i);                                                                             \
        if (k.decay != 0) x.p = x.p - k.decay * x.p;                                                                   \
        x = formula(x, &k);                                                                                            \
        if (!(stats) || !(k.flag & SUMS_FLAG)) {                                                                       \
            STORE(p, i, x.p);                                                                                          \
            EACH_STATE(states, STORE_STATE, i);                                                                        \
        }                                                                                                              \
        if (stats) {                                                                                                   \
            STORE(eta, i, x.eta);                                                                                      \
            STORE(step, i, x.step);                                                                                    \
        }                                                                                                              \
    }

#define COEF_COPY(name) .name = (REAL)c->name,
static COEF NAME(narrow)(const adamod__coef_f64 *c) { return (COEF){ADAMOD_COEFS(COEF_COPY).flag = c->flag}; }

/* Bytes of an element of each of a kernel's arrays: p, g, each state, half. */
typedef struct NAME(sizes) {
    size_t p, g, state, half;
} NAME(sizes);

/* Runs the loop in place on whole groups of at_once elements, and on the rest through a padded copy, so that every
 * element meets the same instructions. */
static void NAME(run)(const block *b, const adamod__coef_f64 *c, void (*loop)(const block *, const COEF *),
                      size_t at_once, NAME(sizes) of) {
    const COEF k = NAME(narrow)(c);
    const size_t whole = b->n - b->n % at_once, rest = b->n - whole;
    block part = *b;
    part.n = whole;
    if (whole) loop(&part, &k);
    if (!rest) return;
    enum { ARRAYS = 10, G = 1 };
    REAL copy[ARRAYS][4 * WIDTH];
    memset(copy, 0, sizeof copy);
    void *const source[ARRAYS] = {b->p,   (void *)(uintptr_t)b->g, b->m, b->v, b->s, b->t, b->u, b->half, b->eta,
                                  b->step};
    const size_t size[ARRAYS] = {of.p,     of.g,     of.state, of.state,     of.state,
                                 of.state, of.state, of.half,  sizeof(REAL), sizeof(REAL)};
    for (int a = 0; a < ARRAYS; a++) {
        if (source[a]) memcpy(copy[a], (char *)source[a] + whole * size[a], rest * size[a]);
    }
    part = (block){copy[0], copy[1], copy[2], copy[3], copy[4], copy[5],  copy[6],
                   copy[8], copy[9], at_once, b->key,  copy[7], b->half_g};
    part.key += (uint32_t)whole / 4 * 0x9e3779b9u;
    loop(&part, &k);
    for (int a = 0; a < ARRAYS; a++) {
        if (a != G && source[a]) memcpy((char *)source[a] + whole * size[a], copy[a], rest * size[a]);
    }
}

INLINE REAL NAME(at)(const void *array, size_t i) {
    REAL x;
    memcpy(&x, (const char *)array + i * sizeof x, sizeof x);
    return x;
}

#include "kernels/cpu/convert.inc.h"

#ifdef CONVERT_F32
/* A loop like LOOP over bf16 arrays, which converts two pairs of vectors at a time and draws random numbers once for all of
 * them. */
#define PAIR_IN(name, slot, x)                                                                                         \
    do {                                                                                                               \
        const NAME(pair) pair = NAME(bf16_pair_in)((name) + at);                                                       \
        x[0].name = pair.even;                                                                                         \
        x[1].name = pair.odd;                                                                                          \
    } while (0)
#define PAIR_OUT(name, slot, nans)                                                                                     \
    NAME(bf16_pair_out)                                                                                                \
    ((name) + at, x[0].name, x[1].name, NAME(random_pair_half)(hash, (uint32_t)at, slot, 0),                           \
     NAME(random_pair_half)(hash, (uint32_t)at, slot, 1), nans)
#define PAIRS_OUT(states, nans)                                                                                        \
    PAIR_OUT(p, 0, nans);                                                                                              \
    EACH_STATE(states, PAIR_OUT, nans)

/* Whether there may be a NaN that rounding at random could change into another number. The NaNs of bf16 arrays have zeros in
 * their lower halves, to which the random bits are added; operations keep the zeros and make NaNs quiet. So if all is
 * COMPUTED, only the NaN of a coefficient needs care. Otherwise all numbers are tested. */
#ifdef NANS
INLINE int NAME(coef_is_nan)(const COEF *k) {
#define IS_NAN(name) || k->name != k->name
    return 0 ADAMOD_COEFS(IS_NAN);
#undef IS_NAN
}

#define ADD_NANS(name, slot, x) nans |= NANS_IN((x)[0].name, (x)[1].name)
INLINE int NAME(any_nan)(const ELEMENT x[2], int states, int coef_is_nan) {
    if (states & COMPUTED) return coef_is_nan;
    NANS nans = NANS_IN(x[0].p, x[1].p);
    EACH_STATE(states, ADD_NANS, x);
    return ANY(nans);
}
#else
INLINE int NAME(coef_is_nan)(const COEF *k __attribute__((unused))) { return 1; }
INLINE int NAME(any_nan)(const ELEMENT x[2], int states, int coef_is_nan) {
    (void)x, (void)states, (void)coef_is_nan;
    return 1;
}
#endif

#define BF16_ONE(formula, x)                                                                                           \
    x.g = x.g * k.gscale;                                                                                              \
    if (k.decay != 0) x.p = x.p - k.decay * x.p;                                                                       \
    x = formula(x, &k)
#define BF16_PAIR(formula, states, first, spread)                                                                      \
    do {                                                                                                               \
        const size_t at = (first);                                                                                     \
        const BITS hash = (BITS)(spread);                                                                              \
        ELEMENT x[2];                                                                                                  \
        x[0].m = x[0].v = x[0].s = x[0].t = x[0].u = x[0].eta = x[0].step = (V){0};                                    \
        x[1] = x[0];                                                                                                   \
        AHEAD(p, at, 1, L1);                                                                                           \
        AHEAD(g, at, 0, L1);                                                                                           \
        EACH_STATE(states, STATE_AHEAD, at, L1);                                                                       \
        PAIR_IN(p, 0, x);                                                                                              \
        PAIR_IN(g, 0, x);                                                                                              \
        EACH_STATE(states, PAIR_IN, x);                                                                                \
        BF16_ONE(formula, x[0]);                                                                                       \
        BF16_ONE(formula, x[1]);                                                                                       \
        if (__builtin_expect(NAME(any_nan)(x, states, coef_is_nan), 0)) {                                              \
            PAIRS_OUT(states, 1);                                                                                      \
        } else {                                                                                                       \
            PAIRS_OUT(states, 0);                                                                                      \
        }                                                                                                              \
    } while (0)

#define BF16_LOOP(formula, states)                                                                                     \
    const COEF k = *c;                                                                                                 \
    uint16_t *p = b->p, *m = b->m, *v = b->v, *s = b->s, *t = b->t, *u = b->u;                                         \
    const uint16_t *g = b->g;                                                                                          \
    const uint32_t key = b->key;                                                                                       \
    const size_t n = b->n;                                                                                             \
    const int coef_is_nan = NAME(coef_is_nan)(&k);                                                                     \
    (void)m, (void)v, (void)s, (void)t, (void)u;                                                                       \
    for (size_t i = 0; i < n; i += 4 * WIDTH) {                                                                        \
        const BITS fours = NAME(random_fours)((uint32_t)i, key);                                                       \
        BF16_PAIR(formula, states, i, SPREAD_LOW(fours));                                                              \
        BF16_PAIR(formula, states, i + 2 * WIDTH, SPREAD_HIGH(fours));                                                 \
    }

/* The f32 loop for masters: p is the master, half the parameter, and the gradient may be bf16. */
#define MASTER_LOOP(formula, states)                                                                                   \
    const COEF k = *c;                                                                                                 \
    REAL *p = b->p, *m = b->m, *v = b->v, *s = b->s, *t = b->t, *u = b->u;                                             \
    uint16_t *half = b->half;                                                                                          \
    const REAL *g = b->g;                                                                                              \
    const uint16_t *g16 = b->g;                                                                                        \
    const int half_g = b->half_g;                                                                                      \
    const size_t n = b->n;                                                                                             \
    (void)m, (void)v, (void)s, (void)t, (void)u;                                                                       \
    for (size_t i = 0; i < n; i += WIDTH) {                                                                            \
        ELEMENT x;                                                                                                     \
        x.m = x.v = x.s = x.t = x.u = x.eta = x.step = (V){0};                                                         \
        AHEAD(p, i, 1, L1);                                                                                            \
        AHEAD(half, i, 1, L1);                                                                                         \
        EACH_STATE(states, STATE_AHEAD, i, L1);                                                                        \
        x.p = NAME(follow_bf16)(LOAD(p, i), half + i);                                                                 \
        if (half_g) {                                                                                                  \
            AHEAD(g16, i, 0, L1);                                                                                      \
            x.g = NAME(bf16_in)(g16 + i) * k.gscale;                                                                   \
        } else {                                                                                                       \
            AHEAD(g, i, 0, L1);                                                                                        \
            x.g = LOAD(g, i) * k.gscale;                                                                               \
        }                                                                                                              \
        EACH_STATE(states, LOAD_STATE, i);                                                                             \
        if (k.decay != 0) x.p = x.p - k.decay * x.p;                                                                   \
        x = formula(x, &k);                                                                                            \
        STORE(p, i, x.p);                                                                                              \
        NAME(bf16_out)(half + i, x.p, NAME(to_nearest)(x.p));                                                          \
        EACH_STATE(states, STORE_STATE, i);                                                                            \
    }

#define LOW_KERNELS(name, states)                                                                                      \
    static void NAME(name##_bf16_loop)(const block *b, const COEF *c) { BF16_LOOP(NAME(name##_update), states) }       \
    static void NAME(name##_bf16)(const block *b, const adamod__coef_f64 *c) {                                         \
        NAME(run)(b, c, NAME(name##_bf16_loop), 4 * WIDTH, (NAME(sizes)){2, 2, 2, 0});                                 \
    }                                                                                                                  \
    static void NAME(name##_master_loop)(const block *b, const COEF *c) { MASTER_LOOP(NAME(name##_update), states) }   \
    static void NAME(name##_master)(const block *b, const adamod__coef_f64 *c) {                                       \
        const size_t real = sizeof(REAL);                                                                              \
        NAME(run)(b, c, NAME(name##_master_loop), WIDTH, (NAME(sizes)){real, b->half_g ? 2 : real, real, 2});          \
    }
#define LOW_ENTRIES(name) NAME(name##_bf16), NAME(name##_master)
#else
#define LOW_KERNELS(name, states)
#define LOW_ENTRIES(name) NULL, NULL
#endif

#define ADAMOD_RULE_FORMULAS
#include "rules/list.inc.h"
#undef ADAMOD_RULE_FORMULAS

static void NAME(gradient)(void *out, const void *g, const void *p, size_t n, const adamod__coef_f64 *c) {
    const REAL scale = (REAL)c->gscale, clip = (REAL)c->clip, l2 = (REAL)c->l2;
    REAL *o = out;
    for (size_t i = 0; i < n; i++) {
        REAL x = NAME(at)(g, i) * scale;
        x = x > clip ? clip : x;
        x = x < -clip ? -clip : x;
        if (l2 != 0) x = x + l2 * NAME(at)(p, i);
        o[i] = x;
    }
}

#ifndef WIDEN
#define WIDEN(x) __builtin_convertvector(x, doubles)
#endif
/* 32 running sums whatever the instruction set, so that the order of additions is always the same. */
INLINE double NAME(sum_up)(const void *g, size_t n, double scale, const int squares) {
    enum { SUMS = 32, LANES = WIDTH * sizeof(REAL) > 32 ? 8 : 4, VECTORS = SUMS / LANES };
    typedef double doubles __attribute__((vector_size(LANES * sizeof(double))));
    typedef REAL reals __attribute__((vector_size(LANES * sizeof(REAL))));
    doubles sums[VECTORS] = {{0}};
    size_t i = 0;
    for (; i + SUMS <= n; i += SUMS) {
        UNROLL
        for (int j = 0; j < VECTORS; j++) {
            reals x;
            memcpy(&x, (const char *)g + (i + LANES * (size_t)j) * sizeof(REAL), sizeof x);
            const doubles d = WIDEN(x) * scale;
            sums[j] += squares ? d * d : d;
        }
    }
    double sum[SUMS];
    memcpy(sum, sums, sizeof sum);
    for (; i < n; i++) {
        const double d = (double)NAME(at)(g, i) * scale;
        sum[i % SUMS] += squares ? d * d : d;
    }
    for (int j = 0; j < 8; j++) sum[j] = (sum[j] + sum[8 + j]) + (sum[16 + j] + sum[24 + j]);
    return ((sum[0] + sum[1]) + (sum[2] + sum[3])) + ((sum[4] + sum[5]) + (sum[6] + sum[7]));
}

/* A constant 1 takes no multiplication. */
static double NAME(sumsq)(const void *g, size_t n, double scale) {
    return scale == 1 ? NAME(sum_up)(g, n, 1, 1) : NAME(sum_up)(g, n, scale, 1);
}
static double NAME(sum)(const void *g, size_t n) { return NAME(sum_up)(g, n, 1, 0); }

static double NAME(maxabs_each)(const void *g, size_t first, size_t n, double scale, double most) {
    for (size_t i = first; i < n; i++) {
        const double d = fabs((double)NAME(at)(g, i) * scale);
        if (d != d) return d;
        most = d > most ? d : most;
    }
    return most;
}

/* In vectors as long as everything is finite, since x - x is not 0 otherwise. The largest times the scale is the largest product. */
static double NAME(maxabs)(const void *g, size_t n, double scale) {
    const REAL *from = g;
    V most = {0}, other = {0};
    size_t i = 0;
    for (; i + WIDTH <= n; i += WIDTH) {
        const V x = LOAD(from, i), negative = -x;
        other = other + (x - x); /* NOLINT(misc-redundant-expression): not 0 if it is not finite */
        most = GREATER(most, GREATER(x, negative));
    }
    REAL lanes[WIDTH], others[WIDTH], largest = 0;
    STORE(lanes, 0, most); /* gcc would keep no copy of it in a register for memcpy */
    STORE(others, 0, other);
    for (int j = 0; j < WIDTH; j++) {
        if (others[j] != 0) return NAME(maxabs_each)(g, 0, n, scale, 0);
        largest = lanes[j] > largest ? lanes[j] : largest;
    }
    return NAME(maxabs_each)(g, i, n, scale, fabs((double)largest * scale));
}

/* If neither a row nor a column has gradients, the rate can overflow; it is then multiplied by zero. */
static void NAME(factored)(void *out, const void *g, const void *column, size_t n, double row) {
    const REAL r = (REAL)row;
    REAL *o = out;
    for (size_t i = 0; i < n; i++) {
        const REAL rate = r / SCALAR_SQRT(NAME(at)(column, i));
        o[i] = NAME(at)(g, i) * (rate > SCALAR_MOST ? SCALAR_MOST : rate);
    }
}

static void NAME(add_squares)(double *sum, const void *g, size_t n) {
    for (size_t i = 0; i < n; i++) {
        const double x = (double)NAME(at)(g, i);
        sum[i] += x * x;
    }
}

static void NAME(bound)(void *u, void *step, void *s, const void *g, const void *eta, size_t n,
                        const adamod__coef_f64 *c) {
    const REAL beta3 = (REAL)c->beta3, beta3c = (REAL)c->beta3c, idle = (REAL)c->idle;
    REAL *to = u, *rate = step, *average = s;
    for (size_t i = 0; i < n; i++) {
        const REAL x = NAME(at)(eta, i), size = NAME(at)(g, i) < 0 ? -NAME(at)(g, i) : NAME(at)(g, i);
        average[i] = size + average[i] <= idle ? 0 : beta3 * average[i] + beta3c * x;
        rate[i] = average[i] < x ? average[i] : x;
        to[i] = NAME(at)(g, i) * rate[i];
    }
}

/* One loop over rows and vectors, which compilers unroll, so that sum is registers. */
static void NAME(tile)(void *to, size_t ld, const void *left, const void *right, size_t k, double factor) {
    enum { N = TILE_ROWS * TILE_VECTORS };
    const REAL beta = (REAL)factor, *a = left, *b = right;
    REAL *c = to;
    V sum[N];
    UNROLL for (size_t i = 0; i < N; i++) {
        sum[i] = (V){0};
        if (beta != 0) sum[i] = LOAD(c, i / TILE_VECTORS * ld + i % TILE_VECTORS * WIDTH) * beta;
    }
    for (size_t at = 0; at < k; at++, a += TILE_ROWS, b += TILE_VECTORS * WIDTH) {
        UNROLL for (size_t i = 0; i < N; i++) {
            sum[i] = MULTIPLY_ADD((V){0} + a[i / TILE_VECTORS], LOAD(b, i % TILE_VECTORS * WIDTH), sum[i]);
        }
    }
    UNROLL for (size_t i = 0; i < N; i++) STORE(c, i / TILE_VECTORS * ld + i % TILE_VECTORS * WIDTH, sum[i]);
}

#define RULE(rule) [RULE_##rule] = NAME(rule##_variants),
static const real_kernels NAME(table) = {
    .update =
        {
#include "rules/names.inc.h"
        },
    .gradient = NAME(gradient),
    .sumsq = NAME(sumsq),
    .sum = NAME(sum),
    .maxabs = NAME(maxabs),
    .factored = NAME(factored),
    .add_squares = NAME(add_squares),
    .bound = NAME(bound),
    .tile = NAME(tile),
    .tile_rows = TILE_ROWS,
    .tile_cols = TILE_VECTORS * WIDTH,
    .load_bf16 = NAME(load_bf16),
    .load_f16 = NAME(load_f16),
    .store_bf16 = NAME(store_bf16),
    .store_f16 = NAME(store_f16),
    .store_bf16_random = NAME(store_bf16_random),
    .store_f16_random = NAME(store_f16_random),
    .load_q8 = NAME(load_q8),
    .store_q8 = NAME(store_q8),
};
#undef NAME
#undef NAME2
#undef NAME3
#undef COEF
#undef COEF1
#undef COEF2
#undef COEF_COPY
#undef V
#undef UNALIGNED
#undef ELEMENT
#undef LOAD
#undef SCALAR_SQRT
#undef SCALAR_MOST
#undef STORE
#undef INLINE
#undef WHERE_POSITIVE
#undef ZERO_UP_TO
#undef FORMULA
#undef KERNEL
#undef M
#undef VV
#undef S
#undef T
#undef U
#undef BOUNDED
#undef CAUTIOUS
#undef KERNELS
#undef COMPUTED
#undef Q8
#undef Q8_EACH
#undef BF16
#undef TUNED
#undef VARIANTS
#undef VARIANT
#undef LOOP
#undef AHEAD
#undef ALL_REAL
#undef STATE_AHEAD
#undef EACH_STATE
#undef LOAD_STATE
#undef STORE_STATE
#undef ADD_NANS
#undef L1
#undef L2
#undef PAIR_IN
#undef PAIR_OUT
#undef PAIRS_OUT
#undef BF16_ONE
#undef BF16_PAIR
#undef SPREAD_LOW
#undef SPREAD_HIGH
#undef NANS
#undef NANS_IN
#undef ANY
#undef BF16_LOOP
#undef MASTER_LOOP
#undef LOW_KERNELS
#undef LOW_ENTRIES
#undef BITS
#undef HALF
#undef CONVERT
#undef CHOOSE
#ifndef CONVERT_F32 /* f64 comes last */
#undef ISA
#undef TILE_ROWS
#undef TILE_VECTORS
#endif
#undef CONVERT_F32
#undef REAL
#undef TYPE
#undef WIDTH
#undef SQRT
#undef LESSER
#undef GREATER
#undef MULTIPLY_ADD
#undef UNROLL
#undef WIDEN
