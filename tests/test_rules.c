/* test_rules.c - every rule against tests/reference.c: all options, types, sizes and alignments, by handle and by raw
 * pointers.
 *
 * How near the library must come to the reference, which is in double:
 *
 * Let u be half the spacing of numbers near 1 in the type of computation (2^-24 in f32, 2^-53 in f64): every operation,
 * and every coefficient narrowed to the type, is off by at most u of itself. To first order in u, after T updates:
 *
 *   g   gradient        4u    scale and its coefficient, clamp's coefficient or the product and sum of l2
 *   m   average of g    each update multiplies what is there by beta and adds: 3u (coefficient, product, sum) an
 *                       update, and 3u + 4u on what is added. Of M, the same average of |g|: (3T + 7) u. Where m nearly
 *                       cancels that is much of m, so M it must be.
 *   v   average of g^2  (3T + 12) u of itself, as nothing cancels; so its root is off by (1.5T + 6) u
 *   eta lr / (root + eps) with corrections: (1.5T + 12) u
 *   s   average of eta  another (3T + 3) u; the lesser of the two is no further off than either
 *   step eta m          (7.5T + 26) u of eta M. We allow C = 8T + 32.
 *   p   a sum of steps  C u of the sum of eta M, and 3u |p| an update (store; decay's product and difference)
 *
 * The sum of eta M needs no formula of its own: it is how far the reference goes when it is given |g|, and no decay.
 * This second reference, "shadow" below, gives for every state the magnitude that its error is a multiple of, too. So
 * the tolerance is
 *
 *   2 u (C path + 3 T max|p|)   for parameters          2 u C shadow   for states
 *
 * per element; the 2 covers terms of second order and, with l2, that an error in p returns through the gradient (by a
 * factor of weight_decay times the sum of eta: with 0.01 and gradients whose mean square is 0.8^2 or more, and 300
 * updates of lr 0.01, that is 0.04). In f64 that is under 1e-12 of the path for 500 updates. States may fade away below
 * the least normal number, where an operation is off by half of the least number of all: with four of them an update,
 * 2 T of those in all. Where a rule does something else, allowance() says what.
 *
 * SPDX-License-Identifier: MIT
 */
#include "adamod.h"
#include "check.h"
#include "reference.h"

#include <math.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

static bool fast(void) {
    const char *text = getenv("ADAMOD_TEST_FAST");
    return text && *text && *text != '0';
}

/* ---- random numbers ---- */

static uint64_t rng_state;

static uint64_t rng(void) { /* splitmix64 */
    uint64_t x = rng_state += 0x9e3779b97f4a7c15u;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
}

static double uniform(void) { return (double)(rng() >> 11) * 0x1p-53; }

/* Of either sign, its size log-uniform from 1e-4 to 1e2; one in 20 is zero. */
static double random_gradient(void) {
    if (rng() % 20 == 0) return 0;
    const double size = pow(10, -4 + 6 * uniform());
    return rng() & 1 ? size : -size;
}

/* What an update is given. L2 decay adds to the gradient; here it never cancels it, since where it did the sum would be
 * all rounding, and so would the step of a rule that divides by its size (test_exact has the other sign). Nor are these
 * gradients below 0.1, so that no element has an eta by which an error in p would come back many times as large. */
static double next_gradient(const ref_options *o, double p) {
    const double g = random_gradient();
    if (o->decay != REF_DECAY_L2 || o->weight_decay == 0) return g;
    const double size = pow(10, -1 + 3 * uniform());
    return copysign(size, p == 0 ? g : o->maximize ? -p : p);
}

static double random_param(void) { return rng() % 50 == 0 ? 0 : 2 * uniform() - 1; }

/* ---- types ---- */

static size_t size_of(adamod_type type) { return type == ADAMOD_F64 ? 8 : type == ADAMOD_F32 ? 4 : 2; }
static const char *name_of(adamod_type type) { return ((const char *[]){"f32", "f64", "bf16", "f16"})[type]; }

/* The value of a bf16 or f16 whose sign bit is 0 and which is not a NaN; for the pattern of infinity the number that
 * would follow the largest. */
static double decode16(adamod_type type, unsigned bits) {
    const int fraction_bits = type == ADAMOD_BF16 ? 7 : 10, bias = type == ADAMOD_BF16 ? 127 : 15;
    const unsigned one = 1u << fraction_bits, fraction = bits & (one - 1);
    const int exponent = (int)(bits >> fraction_bits);
    if (exponent == 0) return ldexp(fraction, 1 - bias - fraction_bits);
    return ldexp(one + fraction, exponent - bias - fraction_bits);
}

static unsigned infinity16(adamod_type type) { return type == ADAMOD_BF16 ? 0x7f80u : 0x7c00u; }

/* To nearest, ties to even, found among all numbers of the type. Not for NaN. */
static uint16_t nearest16(adamod_type type, double x) {
    const double magnitude = fabs(x);
    unsigned low = 0, high = infinity16(type); /* decode(low) <= magnitude; high is above it, or infinity */
    if (magnitude >= decode16(type, high)) low = high;
    while (high - low > 1 && low < high) {
        const unsigned middle = (low + high) / 2;
        if (decode16(type, middle) <= magnitude) low = middle;
        else high = middle;
    }
    if (low < high) {
        const double below = magnitude - decode16(type, low), above = decode16(type, high) - magnitude;
        if (above < below || (above == below && low % 2)) low = high;
    }
    return (uint16_t)(low | (signbit(x) ? 0x8000u : 0));
}

static double get(adamod_type type, const void *data, int64_t i) {
    if (type == ADAMOD_F64) return ((const double *)data)[i];
    if (type == ADAMOD_F32) return (double)((const float *)data)[i];
    const uint16_t bits = ((const uint16_t *)data)[i];
    const double x = decode16(type, bits & 0x7fffu);
    return bits & 0x8000u ? -x : x;
}

static void put(adamod_type type, void *data, int64_t i, double x) {
    if (type == ADAMOD_F64) ((double *)data)[i] = x;
    else if (type == ADAMOD_F32) ((float *)data)[i] = (float)x;
    else ((uint16_t *)data)[i] = nearest16(type, x);
}

/* An array whose first element is some elements past where memory is aligned. */
typedef struct array {
    void *memory, *data;
    adamod_type type;
    int64_t n;
} array;

static array make_array(adamod_type type, int64_t n, int offset) {
    array a = {calloc((size_t)(n + offset) + 1, size_of(type)), NULL, type, n};
    if (!a.memory) abort();
    a.data = (char *)a.memory + (size_t)offset * size_of(type);
    return a;
}

static void fill_array(array *a, double value) {
    for (int64_t i = 0; i < a->n; i++) put(a->type, a->data, i, value);
}

static double *zeros(int64_t n) {
    double *x = calloc((size_t)n + 1, sizeof *x);
    if (!x) abort();
    return x;
}

/* ---- options, from text like "lr=0.1 flavour=keras", for both sides ---- */

#define FIELD(name)                                                                                                    \
    { #name, offsetof(ref_options, name), 0 }
#define COUNT(name)                                                                                                    \
    { #name, offsetof(ref_options, name), 1 }
static const struct {
    const char *name;
    size_t at;
    int whole;
} fields[] = {
    FIELD(lr),
    FIELD(beta1),
    FIELD(beta2),
    FIELD(beta3),
    FIELD(eps),
    FIELD(momentum),
    FIELD(dampening),
    FIELD(weight_decay),
    FIELD(lr_decay),
    FIELD(initial),
    FIELD(alpha),
    FIELD(rho),
    FIELD(final_lr),
    FIELD(gamma),
    FIELD(eps1),
    FIELD(eps2),
    FIELD(clip_threshold),
    FIELD(decay_rate),
    FIELD(clip_value),
    FIELD(grad_scale),
    COUNT(nesterov),
    COUNT(centered),
    COUNT(window),
    COUNT(relative_step),
    COUNT(bias_correction),
    COUNT(maximize),
    COUNT(scale_parameter),
    COUNT(warmup_init),
    COUNT(decay),
    COUNT(flavour),
};
enum { FIELDS = sizeof fields / sizeof *fields };

/* A reference's option by the library's name and numbers; false if it has none of that name. */
static bool set_reference(ref_options *o, const char *name, double value) {
    if (!strcmp(name, "spatial")) return o->spatial_max = value == 0, true;
    if (!strcmp(name, "lr")) o->base_lr = value;
    for (int i = 0; i < FIELDS; i++) {
        if (strcmp(fields[i].name, name) != 0) continue;
        if (fields[i].whole) *(int *)((char *)o + fields[i].at) = (int)value;
        else *(double *)((char *)o + fields[i].at) = value;
        return true;
    }
    return false;
}

static double get_reference(const ref_options *o, int field) {
    const char *at = (const char *)o + fields[field].at;
    return fields[field].whole ? *(const int *)at : *(const double *)at;
}

/* Words of choices, by their numbers in the library. */
static double value_of(const char *text) {
    static const char *const words[][4] = {
        {"paper", "published", "keras", ""}, {"none", "l2", "decoupled", "independent"}, {"max", "", "", ""}};
    for (int i = 0; i < 3; i++) {
        for (int j = 0; j < 4; j++) {
            if (!strcmp(words[i][j], text)) return j;
        }
    }
    return strtod(text, NULL);
}

/* Sets options in any of: the reference, a handle (group -1: all) and a hyper. Unknown names fail a check, but for
 * clip_norm, state_type and low_precision, which the reference does not have. */
static void apply(const char *text, ref_options *o, adamod_optimizer *opt, int group, adamod_hyper *h) {
    char copy[256];
    snprintf(copy, sizeof copy, "%s", text);
    for (char *rest = copy, *word; (word = strtok_r(rest, " ", &rest));) {
        char *value = strchr(word, '=');
        *value++ = '\0';
        if (o) {
            const double number = !strcmp(word, "spatial") && !strcmp(value, "none") ? 1 : value_of(value);
            const bool known = set_reference(o, word, number);
            CHECK(known || !strcmp(word, "clip_norm") || !strcmp(word, "state_type") || !strcmp(word, "low_precision"));
        }
        if (opt)
            CHECK_INT(group < 0 ? adamod_set_text(opt, word, value) : adamod_group_set_text(opt, group, word, value),
                      0);
        if (h) CHECK_INT(adamod_hyper_set_text(h, word, value), 0);
    }
}

/* ---- what is followed ---- */

enum { MAX_SHAPE = 4 };

typedef struct scenario {
    const char *rule, *options;
    adamod_type param_type, grad_type;
    int ndim;
    int64_t shape[MAX_SHAPE];
    int steps;
    int offset; /* of all arrays that are ours, in elements */
    bool raw;
    const char *schedule; /* of lr, or NULL: one that scheduled() knows */
    double clip_norm;     /* 0: none; by handle only */
} scenario;

static int64_t count_of(int ndim, const int64_t *shape) {
    int64_t n = 1;
    for (int d = 0; d < ndim; d++) n *= shape[d];
    return n;
}

/* The values adamod.h promises, written once more. */
static double scheduled(const char *text, double base, int t) {
    if (!text) return base;
    if (!strcmp(text, "warmup_rsqrt(1e-7,20)")) return t < 20 ? 1e-7 + (base - 1e-7) * t / 20 : base * sqrt(20.0 / t);
    if (!strcmp(text, "multistep(5,30;0.5)")) return base * (t > 30 ? 0.25 : t > 5 ? 0.5 : 1);
    if (!strcmp(text, "linear(1e-5,40)")) return t < 40 ? base + (1e-5 - base) * t / 40 : 1e-5;
    abort();
}

/* The library's side: one array and its states, by handle or by raw pointers. */
typedef struct subject {
    const scenario *sc;
    adamod_optimizer *opt; /* NULL: raw */
    adamod_hyper *h;
    adamod_state_desc desc[ADAMOD_MAX_STATES];
    array param, grad, state[ADAMOD_MAX_STATES];
} subject;

static void subject_open(subject *s, const scenario *sc) {
    const int64_t n = count_of(sc->ndim, sc->shape);
    *s = (subject){.sc = sc};
    CHECK_INT(adamod_hyper_create(&s->h, sc->rule), 0);
    apply(sc->options, NULL, NULL, -1, s->h);
    s->param = make_array(sc->param_type, n, sc->offset);
    s->grad = make_array(sc->grad_type, n, sc->offset ? sc->offset % 3 + 1 : 0);
    for (int64_t i = 0; i < n; i++) put(sc->param_type, s->param.data, i, random_param());
    const adamod_type compute = sc->param_type == ADAMOD_F64 ? ADAMOD_F64 : ADAMOD_F32;
    for (int i = 0; i < ADAMOD_MAX_STATES; i++) {
        CHECK_INT(adamod_state_at(s->h, sc->ndim, sc->shape, i, &s->desc[i]), 0);
        if (!sc->raw || !s->desc[i].name) continue;
        s->state[i] = make_array(compute, s->desc[i].count, sc->offset ? (sc->offset + i) % 4 : 0);
        fill_array(&s->state[i], s->desc[i].initial);
    }
    if (sc->raw) return;
    CHECK_INT(adamod_create(&s->opt, sc->rule), 0);
    apply(sc->options, NULL, s->opt, -1, NULL);
    CHECK_INT(adamod_set(s->opt, "threads", 2), 0);
    if (sc->clip_norm > 0) CHECK_INT(adamod_set(s->opt, "clip_norm", sc->clip_norm), 0);
    adamod_tensor t = {.name = "x",
                       .param = s->param.data,
                       .grad = s->grad.data,
                       .param_type = sc->param_type,
                       .grad_type = sc->grad_type,
                       .ndim = sc->ndim};
    for (int d = 0; d < sc->ndim; d++) t.shape[d] = sc->shape[d];
    CHECK_INT(adamod_add_tensor(s->opt, 0, &t, NULL), 0);
    if (!sc->schedule) return;
    adamod_schedule *schedule = NULL;
    CHECK_INT(adamod_schedule_parse(&schedule, sc->schedule), 0);
    CHECK_INT(adamod_set_schedule(s->opt, 0, "lr", schedule), 0);
    adamod_schedule_free(schedule);
}

static void subject_close(subject *s) {
    adamod_free(s->opt);
    adamod_hyper_free(s->h);
    free(s->param.memory);
    free(s->grad.memory);
    for (int i = 0; i < ADAMOD_MAX_STATES; i++) free(s->state[i].memory);
}

static adamod_status subject_step(subject *s, int t, double lr) {
    if (s->opt) return adamod_step(s->opt);
    if (s->sc->schedule) CHECK_INT(adamod_hyper_set(s->h, "lr", lr), 0);
    adamod_span x = {.param = s->param.data,
                     .grad = s->grad.data,
                     .param_type = s->sc->param_type,
                     .grad_type = s->sc->grad_type,
                     .state_type = s->sc->param_type == ADAMOD_F64 ? ADAMOD_F64 : ADAMOD_F32,
                     .ndim = s->sc->ndim,
                     .count = s->param.n,
                     .step = t};
    for (int d = 0; d < s->sc->ndim; d++) x.shape[d] = s->sc->shape[d];
    for (int i = 0; i < ADAMOD_MAX_STATES; i++) x.state[i] = s->state[i].data;
    return adamod_update(s->h, &x, 1, NULL);
}

static array subject_state(const subject *s, int i) {
    if (!s->opt) return s->state[i];
    array a = {0};
    CHECK_INT(adamod_state(s->opt, 0, s->desc[i].name, &a.data, &a.type, &a.n), 0);
    return a;
}

/* The reference's side, with the magnitudes its errors are multiples of. */
typedef struct model {
    const scenario *sc;
    ref_options o;
    ref_state *ref, *shadow;
    int64_t n;
    int t;
    double *p, *moved;    /* the parameter; scratch for shadow's */
    double *path, *most;  /* the sum of eta M; the largest |p| so far */
    double *kappa;        /* rmsprop centered: the least (v - a^2) / v so far */
    double *e, *f, *drag; /* adashift: see allowance() */
    double rates, least;  /* adafactor: the sum of rho; the least rms(p) */
    double weights;       /* nosadam: the sum of k^-gamma */
} model;

static void model_open(model *m, const scenario *sc) {
    *m = (model){.sc = sc, .n = count_of(sc->ndim, sc->shape), .least = INFINITY};
    ref_defaults(sc->rule, &m->o);
    apply(sc->options, &m->o, NULL, -1, NULL);
    m->ref = ref_create(sc->rule, &m->o, sc->ndim, sc->shape);
    m->shadow = ref_create(sc->rule, &m->o, sc->ndim, sc->shape);
    CHECK(m->ref && m->shadow);
    double **arrays[] = {&m->p, &m->moved, &m->path, &m->most, &m->kappa, &m->e, &m->f, &m->drag};
    for (size_t i = 0; i < sizeof arrays / sizeof *arrays; i++) *arrays[i] = zeros(m->n);
    for (int64_t i = 0; i < m->n; i++) m->kappa[i] = 1;
}

static void model_close(model *m) {
    ref_free(m->ref);
    ref_free(m->shadow);
    double *arrays[] = {m->p, m->moved, m->path, m->most, m->kappa, m->e, m->f, m->drag};
    for (size_t i = 0; i < sizeof arrays / sizeof *arrays; i++) free(arrays[i]);
}

static bool is(const model *m, const char *rule) { return !strcmp(m->sc->rule, rule); }

static double rms(const double *x, int64_t n) {
    double sum = 0;
    for (int64_t i = 0; i < n; i++) sum += x[i] * x[i];
    return n ? sqrt(sum / (double)n) : 0;
}

/* The options of the second reference: what was done to |g| already is switched off. */
static ref_options shadow_options(model *m) {
    ref_options o = m->o;
    o.decay = REF_DECAY_NONE;
    o.maximize = 0;
    o.clip_value = INFINITY;
    o.grad_scale = 1;
    if (is(m, "adafactor")) { /* a step relative to the true parameter, not to the shadow's */
        const double rho = o.relative_step ? fmin(o.warmup_init ? 1e-6 * m->t : 1e-2, 1 / sqrt(m->t)) : o.lr;
        const double size = rms(m->p, m->n);
        o.lr = o.scale_parameter ? rho * fmax(o.eps2, size) : rho;
        o.relative_step = o.scale_parameter = 0;
        m->rates += rho * fmin(m->o.clip_threshold, 1e3);
        m->least = fmin(m->least, fmax(m->o.eps2, size));
    }
    return o;
}

/* AdaShift's recursion for m, which the reference has as a sum: see allowance(). */
static void follow_recursion(model *m, const double *magnitude) {
    const ref_options *o = &m->o;
    const double *v = ref_get(m->ref, "exp_avg_sq", NULL);
    const double weights = o->beta1 < 1 ? (1 - pow(o->beta1, o->window)) / (1 - o->beta1) : o->window;
    for (int64_t i = 0; i < m->n; i++) {
        const double second = o->spatial_max ? v[0] : v[i];
        m->e[i] = o->beta1 * m->e[i] + magnitude[i] / weights;
        m->f[i] = o->beta1 * m->f[i] + m->e[i];
        if (m->t <= o->window || second <= 0) continue;
        m->drag[i] += o->lr / (sqrt(second / (1 - pow(o->beta2, m->t - o->window))) + o->eps) * m->f[i];
    }
}

/* One update; g as the library gets it, factor what clip_norm multiplies it by. */
static void model_step(model *m, const double *g, double lr, double factor) {
    double *magnitude = zeros(m->n);
    m->t++;
    m->o.lr = lr;
    m->weights += pow(m->t, -m->o.gamma);
    if (m->sc->raw) m->o.base_lr = lr;
    for (int64_t i = 0; i < m->n; i++) {
        magnitude[i] = fmin(fabs(g[i]) * m->o.grad_scale * factor, m->o.clip_value);
        if (m->o.decay == REF_DECAY_L2) magnitude[i] += m->o.weight_decay * fabs(m->p[i]);
        m->most[i] = fmax(m->most[i], fabs(m->p[i]));
        m->moved[i] = 0;
    }
    const ref_options shadow = shadow_options(m);
    ref_options o = m->o;
    o.grad_scale *= factor;
    ref_step(m->ref, m->p, g, &o);
    ref_step(m->shadow, m->moved, magnitude, &shadow);
    const double *v = ref_get(m->shadow, "square_avg", NULL), *a = ref_get(m->shadow, "grad_avg", NULL);
    for (int64_t i = 0; i < m->n; i++) {
        double kappa = 1;
        if (a && v[i] > 0) {
            kappa = (v[i] - a[i] * a[i]) / v[i];
            m->kappa[i] = fmin(m->kappa[i], kappa);
            if (m->o.momentum > 0) kappa = m->kappa[i];
        }
        m->path[i] += -m->moved[i] / kappa;
        m->most[i] = fmax(m->most[i], fabs(m->p[i]));
    }
    if (is(m, "adashift")) follow_recursion(m, magnitude);
    free(magnitude);
}

static double unit_of(adamod_type type) { return type == ADAMOD_F64 ? 0x1p-53 : 0x1p-24; }

/* C, the multiple of u that a step may be off by (see the top of this file).
 *
 * adadelta: d is sqrt(a + eps) / sqrt(v + eps) g and a an average of d^2, so what is wrong in v enters d, a, and d
 *   again: a's error grows by (1 - rho) of v's (3T u) an update, 1.5 (1 - rho) T^2 u in all.
 * nosadam: the reference has 1 - beta2 as 1 - B_{t-1} / B_t, in which u of 1 is t^gamma B_t u of the difference.
 * rmsprop centered: v - a^2 cancels; errors grow by kappa = (v - a^2) / v, by which model_step divides the path.
 * adashift: m = beta1 m + (g - beta1^n g_{t-n}) / W is off by 11u an update (3 of beta1 m, 4 of each of the others)
 *   and 4u of g, all of them at most E, E = beta1 E + |g| / W: what left the window leaves its rounding behind. These
 *   add up to 16u F, F = beta1 F + E, and in the parameter to 16u of the sum of eta F, "drag".
 * adafactor: the rms of u divides as well, with another C. Sums over the array are in double on both sides; the
 *   reference's, in one go, is off by n 2^-53 at worst, halved by the root, for each of rms(u) and rms(p). With
 *   scale_parameter, alpha follows rms(p) and is off by rms(error of p) / rms(p), which adds to the error of p in turn:
 *   e^(sum of rho d) by Gronwall. */
static double allowance(const model *m) {
    const double t = m->t, c = 8 * t + 32;
    if (is(m, "adadelta")) return c + 1.5 * (1 - m->o.rho) * t * t;
    if (is(m, "nosadam")) return c + pow(t, m->o.gamma) * m->weights;
    if (!is(m, "adafactor") || m->n == 0) return c;
    const double all = 2 * c + (double)m->n * 0x1p-53 / unit_of(m->sc->param_type);
    if (!m->o.scale_parameter) return all;
    return all + (all * rms(m->path, m->n) + 3 * t * rms(m->most, m->n)) / m->least * exp(m->rates);
}

static bool close_enough(const scenario *sc, int t, const char *what, int64_t i, double x, double reference,
                         double tolerance) {
    const double error = fabs(x - reference);
    if (error <= tolerance) return true;
    printf(
        "%s {%s}%s, %s with %s gradients, %lld elements: after update %d %s[%lld] is %.17g, expected %.17g +- %.3g\n",
        sc->rule, sc->options, sc->raw ? " raw" : "", name_of(sc->param_type), name_of(sc->grad_type),
        (long long)count_of(sc->ndim, sc->shape), t, what, (long long)i, x, reference, tolerance);
    return false;
}

static double param_tolerance(const model *m, double u, double c, int64_t i) {
    return 2 * u * (c * m->path[i] + 16 * m->drag[i] + 3 * m->t * m->most[i]);
}

/* How much of an error in the parameter L2 decay takes into a state: weight_decay of it into gradients and their
 * averages. In states that are made of squares it is of second order. */
static double returned(const model *m, const char *name) {
    if (m->o.decay != REF_DECAY_L2 || is(m, "adafactor")) return 0;
    if (is(m, "sgd")) return m->o.weight_decay / (1 - m->o.momentum);
    const bool linear = !strcmp(name, "exp_avg") || !strcmp(name, "grad_avg") || !strcmp(name, "grad_queue");
    return linear ? m->o.weight_decay : 0;
}

/* A state, found in the library, against the reference's of that name. */
static bool compare_state(const model *m, const char *name, const array *a) {
    int64_t count = 0;
    const double *ref = ref_get(m->ref, name, &count), *shadow = ref_get(m->shadow, name, NULL);
    if (m->n == 0) return true; /* sizes may differ where nothing is */
    if (!CHECK(ref && a->n == count)) return false;
    const double u = unit_of(a->type), c = allowance(m), back = returned(m, name);
    const double least = a->type == ADAMOD_F64 ? 0x1p-1074 : 0x1p-149;
    const bool average = is(m, "adashift") && !strcmp(name, "exp_avg");
    const bool buffer = m->o.centered && !strcmp(name, "momentum_buffer");
    for (int64_t i = 0; i < count; i++) {
        double tolerance = 2 * u * (average ? 16 * m->f[i] : c * shadow[i]);
        if (buffer) tolerance /= m->kappa[i];
        tolerance += 2 * m->t * least;
        if (back > 0) tolerance += back * param_tolerance(m, u, c, i % m->n);
        if (!close_enough(m->sc, m->t, name, i, get(a->type, a->data, i), ref[i], tolerance)) {
            return CHECK(!"near the reference");
        }
    }
    return true;
}

static bool compare_param(const model *m, const array *a) {
    const double u = unit_of(a->type), c = allowance(m);
    for (int64_t i = 0; i < m->n; i++) {
        const double tolerance = param_tolerance(m, u, c, i);
        if (!close_enough(m->sc, m->t, "param", i, get(a->type, a->data, i), m->p[i], tolerance)) {
            return CHECK(!"near the reference");
        }
    }
    return true;
}

static bool compare(const subject *s, const model *m) {
    if (!compare_param(m, &s->param)) return false;
    for (int i = 0; i < ADAMOD_MAX_STATES; i++) {
        if (!s->desc[i].name) continue;
        const array a = subject_state(s, i);
        if (!CHECK_INT(a.n, s->desc[i].count) || !compare_state(m, s->desc[i].name, &a)) return false;
    }
    return true;
}

static double norm_of(const double *g, int64_t n) {
    double sum = 0;
    for (int64_t i = 0; i < n; i++) sum += g[i] * g[i];
    return sqrt(sum);
}

/* Runs both sides on the same random gradients and compares parameters and states on the way: after every update of
 * small arrays, after the first and last of large ones. */
static bool follow(const scenario *sc) {
    subject s;
    model m;
    subject_open(&s, sc);
    model_open(&m, sc);
    const double base = m.o.lr;
    double *g = zeros(m.n);
    bool good = true;
    for (int64_t i = 0; i < m.n; i++) m.p[i] = get(sc->param_type, s.param.data, i);
    for (int t = 1; good && t <= sc->steps; t++) {
        for (int64_t i = 0; i < m.n; i++) {
            put(sc->grad_type, s.grad.data, i, next_gradient(&m.o, get(sc->param_type, s.param.data, i)));
            g[i] = get(sc->grad_type, s.grad.data, i);
        }
        const double lr = scheduled(sc->schedule, base, t), norm = norm_of(g, m.n) * m.o.grad_scale;
        model_step(&m, g, lr, sc->clip_norm > 0 && norm > sc->clip_norm ? sc->clip_norm / norm : 1);
        good = CHECK_INT(subject_step(&s, t, lr), 0);
        /* n squares and their sum, in double */
        if (sc->clip_norm > 0) good &= CHECK_CLOSE(adamod_grad_norm(s.opt), norm, norm * (double)(m.n + 4) * 0x1p-52);
        if (good && (m.n <= 64 || t == 1 || t == sc->steps)) good = compare(&s, &m);
    }
    if (s.opt) CHECK_INT(adamod_steps(s.opt), sc->steps);
    free(g);
    subject_close(&s);
    model_close(&m);
    return good;
}

/* ---- the lists ---- */

/* For every rule. */
static const char *const common_sets[] = {
    "",
    "lr=0.1",
    "weight_decay=0.02 decay=none",
    "weight_decay=0.01 decay=l2",
    "weight_decay=0.02 decay=decoupled",
    "weight_decay=0.002 decay=independent",
    "maximize=1",
    "clip_value=0.5",
    "grad_scale=0.0078125",
    "grad_scale=0.3 maximize=1 clip_value=2 weight_decay=0.01 decay=l2",
    "grad_scale=0.3 maximize=1 clip_value=2 weight_decay=0.01 decay=decoupled",
};

static const struct {
    const char *rule, *options;
} own_sets[] = {
    {"adamod", "flavour=paper beta3=0.9"},
    {"adamod", "flavour=published"},
    {"adamod", "flavour=keras"},
    {"adamod", "flavour=published beta3=0.9999 weight_decay=0.05"},
    {"adamod", "flavour=keras beta1=0.5 beta2=0.95 beta3=0.8 lr=0.02 eps=0.001"},
    {"adamod", "beta3=0"},
    {"adamod", "beta1=0 beta2=0"},
    {"adam", "flavour=published"},
    {"adam", "flavour=keras"},
    {"adam", "beta1=0 beta2=0.99 eps=0.1"},
    {"adam", "beta1=0.99 beta2=0.9 flavour=published eps=1e-7"},
    {"amsgrad", "flavour=published"},
    {"amsgrad", "flavour=keras"},
    {"amsgrad", "bias_correction=0"},
    {"amsgrad", "bias_correction=0 flavour=published beta2=0.9"},
    {"sgd", "momentum=0.9"},
    {"sgd", "momentum=0.9 nesterov=1"},
    {"sgd", "momentum=0.9 dampening=0.5"},
    {"sgd", "momentum=0.5 dampening=1 nesterov=1"},
    {"sgd", "momentum=0.9 nesterov=1 weight_decay=0.01 maximize=1"},
    {"adagrad", "lr_decay=0.1"},
    {"adagrad", "initial=0.1 eps=1e-7"},
    {"adagrad", "initial=3 lr_decay=0.01 weight_decay=0.01 decay=decoupled"},
    {"rmsprop", "alpha=0.9"},
    {"rmsprop", "momentum=0.9"},
    {"rmsprop", "centered=1"},
    {"rmsprop", "centered=1 momentum=0.8"},
    {"rmsprop", "centered=1 eps=0.1 weight_decay=0.01"},
    {"rmsprop", "momentum=0.5 eps=1 weight_decay=0.01 decay=decoupled"},
    {"adadelta", "rho=0.95 eps=1e-7"},
    {"adadelta", "rho=0.5 lr=0.3"},
    {"adadelta", "weight_decay=0.01 decay=decoupled"},
    {"adabound", "gamma=0.1"},
    {"adabound", "gamma=0"},
    {"adabound", "final_lr=0.001 gamma=0.01 lr=0.01"},
    {"amsbound", "gamma=0.1"},
    {"amsbound", "final_lr=0.001 gamma=0.01 beta2=0.9"},
    {"adashift", "spatial=none"},
    {"adashift", "window=1"},
    {"adashift", "window=1 spatial=none"},
    {"adashift", "window=3"},
    {"adashift", "window=3 spatial=none beta1=0.5 beta2=0.9"},
    {"adashift", "window=10 spatial=max lr=0.01 eps=0.001 weight_decay=0.02"},
    {"adashift", "window=10 spatial=none beta1=0"},
    {"nosadam", "bias_correction=0"},
    {"nosadam", "gamma=0"},
    {"nosadam", "gamma=1"},
    {"nosadam", "gamma=1.7 beta1=0.5"},
    {"adafactor", "beta1=0.9"},
    {"adafactor", "relative_step=0"},
    {"adafactor", "relative_step=0 scale_parameter=0"},
    {"adafactor", "relative_step=0 scale_parameter=0 beta1=0.8 weight_decay=0.1"},
    {"adafactor", "scale_parameter=0"},
    {"adafactor", "warmup_init=1"},
    {"adafactor", "warmup_init=1 beta1=0.5 weight_decay=3 clip_threshold=0.3"},
    {"adafactor", "decay_rate=0.5 clip_threshold=2 eps1=1e-8 eps2=0.9"},
    {"adafactor", "clip_threshold=inf relative_step=0"},
    {"radam", "beta2=0.9"},
    {"radam", "beta2=0.5"},
    {"radam", "beta1=0.5 beta2=0.99 lr=0.1 eps=0.001"},
};
enum { COMMON_SETS = sizeof common_sets / sizeof *common_sets, OWN_SETS = sizeof own_sets / sizeof *own_sets };

/* Set number i of all; false past the end. */
static bool set_at(int i, scenario *sc) {
    if (i < OWN_SETS) {
        sc->rule = own_sets[i].rule;
        sc->options = own_sets[i].options;
        return true;
    }
    i -= OWN_SETS;
    sc->rule = adamod_rule_name(i / COMMON_SETS);
    sc->options = common_sets[i % COMMON_SETS];
    return sc->rule != NULL;
}

/* ---- tests ---- */

TEST(names_and_defaults) {
    int i = 0;
    for (; adamod_rule_name(i); i++) CHECK_STR(adamod_rule_name(i), ref_rule_name(i));
    CHECK(!ref_rule_name(i));
    for (i = 0; adamod_rule_name(i); i++) {
        const char *rule = adamod_rule_name(i);
        ref_options o;
        adamod_option option;
        ref_defaults(rule, &o);
        for (int f = 0; f < FIELDS; f++) {
            if (adamod_option_find(rule, fields[f].name, &option)) continue;
            if (!CHECK(option.value == get_reference(&o, f))) printf("%s: default of %s\n", rule, fields[f].name);
        }
        if (!adamod_option_find(rule, "spatial", &option)) CHECK_INT(option.value == 0, o.spatial_max);
    }
}

/* Every set of options, updates in the hundreds. */
static void long_runs(adamod_type type, bool raw, int steps) {
    scenario sc = {
        .param_type = type, .grad_type = type, .ndim = 1, .shape = {37}, .steps = fast() ? steps / 8 : steps};
    sc.raw = raw;
    rng_state = 1 + (uint64_t)type;
    for (int i = 0; set_at(i, &sc); i++) follow(&sc);
}

TEST(long_runs_f64) { long_runs(ADAMOD_F64, false, 500); }
TEST(long_runs_f32) { long_runs(ADAMOD_F32, false, 300); }
TEST(long_runs_f64_raw) { long_runs(ADAMOD_F64, true, 200); }
TEST(long_runs_f32_raw) { long_runs(ADAMOD_F32, true, 200); }

/* Past the 64 terms of NosAdam's sum that are added one by one, and AdaBound's and RAdam's early phases. */
TEST(thousands_of_updates) {
    rng_state = 2;
    for (int i = 0; adamod_rule_name(i); i++) {
        scenario sc = {.rule = adamod_rule_name(i), .options = "", .param_type = ADAMOD_F64, .grad_type = ADAMOD_F64};
        sc.ndim = 1, sc.shape[0] = 3, sc.steps = fast() ? 400 : 4000;
        follow(&sc);
    }
}

/* Adafactor looks at the last two dimensions. 700 columns are more than one block of columns, 40 rows of them more than
 * one chunk of rows. */
TEST(shapes_of_adafactor) {
    static const struct {
        int ndim;
        int64_t shape[MAX_SHAPE];
    } shapes[] = {
        {0, {0}},          {1, {5}},       {1, {600}},     {2, {6, 7}},    {2, {1, 9}},     {2, {9, 1}},
        {2, {1, 1}},       {2, {40, 700}}, {2, {513, 3}},  {3, {2, 5, 4}}, {3, {3, 1, 17}}, {3, {2, 20, 600}},
        {4, {4, 3, 3, 3}}, {2, {0, 5}},    {3, {2, 3, 0}}, {1, {0}},
    };
    rng_state = 3;
    for (size_t k = 0; k < sizeof shapes / sizeof *shapes; k++) {
        const int64_t n = count_of(shapes[k].ndim, shapes[k].shape);
        for (int i = 0; i < OWN_SETS; i++) {
            if (strcmp(own_sets[i].rule, "adafactor") != 0) continue;
            for (int way = 0; way < 4; way++) {
                if (n > 1000 && way > 1 && i % 2) continue;
                scenario sc = {
                    .rule = "adafactor", .options = own_sets[i].options, .ndim = shapes[k].ndim, .raw = way / 2};
                sc.param_type = sc.grad_type = way % 2 ? ADAMOD_F32 : ADAMOD_F64;
                memcpy(sc.shape, shapes[k].shape, sizeof sc.shape);
                sc.steps = fast() ? (n > 100 ? 2 : 8) : n > 1000 ? 3 : 100;
                follow(&sc);
            }
        }
    }
}

/* Sizes around vectors and blocks (512), and several chunks; arrays that begin anywhere. */
TEST(sizes_and_alignment) {
    static const int64_t sizes[] = {0, 1, 2, 7, 15, 16, 17, 31, 511, 512, 513, 1025, 70001};
    rng_state = 4;
    int turn = 0;
    for (int i = 0; adamod_rule_name(i); i++) {
        for (size_t k = 0; k < sizeof sizes / sizeof *sizes; k++) {
            for (int way = 0; way < 4; way++) {
                if (sizes[k] > 60000 && (fast() ? way != i % 2 : way != i % 2 && way != 2 + i % 2)) continue;
                scenario sc = {.rule = adamod_rule_name(i), .options = "window=2", .ndim = 1, .raw = way / 2};
                if (strcmp(sc.rule, "adashift") != 0) sc.options = turn % 2 ? "weight_decay=0.01 decay=l2" : "";
                sc.param_type = sc.grad_type = way % 2 ? ADAMOD_F32 : ADAMOD_F64;
                sc.shape[0] = sizes[k];
                sc.offset = turn++ % 4;
                sc.steps = sizes[k] > 60000 ? (fast() ? 2 : 4) : sizes[k] > 500 ? (fast() ? 3 : 8) : 25;
                follow(&sc);
            }
        }
    }
}

/* The gradient's type is its own. */
TEST(types_of_gradients) {
    rng_state = 5;
    for (int i = 0; adamod_rule_name(i); i++) {
        for (int type = ADAMOD_F32; type <= ADAMOD_F16; type++) {
            for (int way = 0; way < 4; way++) {
                scenario sc = {.rule = adamod_rule_name(i), .options = "", .ndim = 1, .raw = way / 2, .offset = type};
                sc.param_type = way % 2 ? ADAMOD_F32 : ADAMOD_F64;
                sc.grad_type = (adamod_type)type;
                sc.options = i % 2 ? "grad_scale=3 clip_value=8" : "";
                sc.shape[0] = fast() ? 530 : 1025; /* three blocks, or two */
                sc.steps = fast() ? 4 : 15;
                follow(&sc);
            }
        }
    }
}

TEST(schedules_of_the_learning_rate) {
    static const char *const schedules[] = {"warmup_rsqrt(1e-7,20)", "multistep(5,30;0.5)", "linear(1e-5,40)"};
    rng_state = 6;
    for (int i = 0; adamod_rule_name(i); i++) {
        for (int k = 0; k < 12; k++) {
            scenario sc = {.rule = adamod_rule_name(i), .ndim = 1, .shape = {19}, .steps = 60, .raw = k / 6};
            sc.options = "weight_decay=0.02 decay=decoupled";
            if (!strcmp(sc.rule, "adafactor")) sc.options = "relative_step=0 weight_decay=0.02";
            sc.param_type = sc.grad_type = k % 6 < 3 ? ADAMOD_F64 : ADAMOD_F32;
            sc.schedule = schedules[k % 3];
            follow(&sc);
        }
    }
}

/* Any real option may have a schedule: beta3 here, from 0.9 to 0.9999. */
TEST(schedule_of_beta3) {
    const scenario sc = {.rule = "adamod",
                         .options = "beta3=0.9",
                         .param_type = ADAMOD_F64,
                         .grad_type = ADAMOD_F64,
                         .ndim = 1,
                         .shape = {19},
                         .steps = 100};
    subject s;
    model m;
    rng_state = 7;
    subject_open(&s, &sc);
    model_open(&m, &sc);
    adamod_schedule *schedule = NULL;
    CHECK_INT(adamod_schedule_linear(&schedule, 0.9999, 50), 0);
    CHECK_INT(adamod_set_schedule(s.opt, -1, "beta3", schedule), 0);
    adamod_schedule_free(schedule);
    for (int64_t i = 0; i < m.n; i++) m.p[i] = get(sc.param_type, s.param.data, i);
    double *g = s.grad.data;
    for (int t = 1; t <= sc.steps; t++) {
        for (int64_t i = 0; i < m.n; i++) g[i] = next_gradient(&m.o, 0);
        m.o.beta3 = t < 50 ? 0.9 + (0.9999 - 0.9) * t / 50 : 0.9999;
        model_step(&m, g, m.o.lr, 1);
        CHECK_INT(adamod_step(s.opt), 0);
        if (!compare(&s, &m)) break;
    }
    subject_close(&s);
    model_close(&m);
}

/* The norm is checked as well, and that gradients below it are not touched. */
TEST(clip_norm) {
    rng_state = 8;
    for (int i = 0; adamod_rule_name(i); i++) {
        for (int k = 0; k < 8; k++) {
            scenario sc = {
                .rule = adamod_rule_name(i), .ndim = 1, .shape = {k % 2 ? 1025 : 33}, .steps = k % 2 ? 10 : 60};
            sc.options = k / 2 % 2 ? "grad_scale=0.01 clip_value=0.5" : "";
            sc.param_type = k / 4 ? ADAMOD_F64 : ADAMOD_F32;
            sc.grad_type = (adamod_type)(k % 4);
            sc.clip_norm = k / 2 % 2 ? 1.5 : 100;
            follow(&sc);
        }
    }
}

/* ---- several parameters and groups ---- */

/* Of all rules. */
static const char *const state_names[] = {
    "exp_avg",  "exp_avg_sq",     "exp_avg_lr", "max_exp_avg_sq", "momentum_buffer", "square_avg",
    "grad_avg", "exp_avg_sq_row", "sum",        "acc_delta",      "exp_avg_sq_col",  "grad_queue"};

enum { TENSORS = 6 };

static const struct {
    int group;
    adamod_type param_type, grad_type;
    int ndim;
    int64_t shape[MAX_SHAPE];
    int frozen_from, frozen_to; /* updates without a gradient */
} layout[TENSORS] = {
    {0, ADAMOD_F32, ADAMOD_F32, 2, {7, 5}, 0, 0},         {1, ADAMOD_F64, ADAMOD_F32, 1, {33}, 5, 9},
    {2, ADAMOD_F64, ADAMOD_F64, 3, {2, 3, 4}, 0, 0},      {1, ADAMOD_F32, ADAMOD_BF16, 0, {0}, 1, 1},
    {0, ADAMOD_F64, ADAMOD_F16, 4, {2, 2, 3, 3}, 20, 40}, {2, ADAMOD_F32, ADAMOD_F64, 1, {0}, 0, 0},
};
static const char *const group_options[3] = {"weight_decay=0.01", "lr=0.02 decay=l2 weight_decay=0.005 maximize=1",
                                             "clip_value=0.7 weight_decay=0.001 decay=independent"};

/* Options of a group are its own, a schedule counts the optimizer's updates and bias corrections count the parameter's.
 * A frozen parameter, its states and its count stand still. */
static void run_groups(const char *rule) {
    static const char schedule_text[] = "warmup_rsqrt(1e-7,20)";
    adamod_optimizer *opt;
    scenario sc[TENSORS];
    model m[TENSORS];
    array param[TENSORS], grad[TENSORS];
    int updates[TENSORS] = {0};
    double base[TENSORS];
    int64_t steps;
    if (!CHECK_INT(adamod_create(&opt, rule), 0)) return;
    const char *first = !strcmp(rule, "adafactor") ? "relative_step=0" : "lr=0.005";
    apply(first, NULL, opt, -1, NULL);
    for (int i = 1; i < 3; i++) {
        int group = -1;
        CHECK_INT(adamod_add_group(opt, &group), 0);
        CHECK_INT(group, i);
    }
    for (int i = 0; i < 3; i++) apply(group_options[i], NULL, opt, i, NULL);
    adamod_schedule *schedule = NULL;
    CHECK_INT(adamod_schedule_parse(&schedule, schedule_text), 0);
    CHECK_INT(adamod_set_schedule(opt, 1, "lr", schedule), 0);
    adamod_schedule_free(schedule);
    for (int k = 0; k < TENSORS; k++) {
        sc[k] = (scenario){.rule = rule,
                           .options = group_options[layout[k].group],
                           .param_type = layout[k].param_type,
                           .grad_type = layout[k].grad_type,
                           .ndim = layout[k].ndim};
        memcpy(sc[k].shape, layout[k].shape, sizeof sc[k].shape);
        model_open(&m[k], &sc[k]);
        ref_defaults(rule, &m[k].o);
        apply(first, &m[k].o, NULL, -1, NULL);
        apply(sc[k].options, &m[k].o, NULL, -1, NULL);
        base[k] = m[k].o.base_lr = m[k].o.lr;
        param[k] = make_array(layout[k].param_type, m[k].n, k % 4);
        grad[k] = make_array(layout[k].grad_type, m[k].n, (k + 2) % 4);
        for (int64_t i = 0; i < m[k].n; i++) {
            put(param[k].type, param[k].data, i, random_param());
            m[k].p[i] = get(param[k].type, param[k].data, i);
        }
        adamod_tensor t = {.param = param[k].data,
                           .grad = grad[k].data,
                           .param_type = param[k].type,
                           .grad_type = grad[k].type,
                           .ndim = layout[k].ndim};
        memcpy(t.shape, layout[k].shape, sizeof layout[k].shape);
        int64_t id = -1;
        CHECK_INT(adamod_add_tensor(opt, layout[k].group, &t, &id), 0);
        CHECK_INT(id, k);
    }
    bool good = true;
    for (int t = 1; good && t <= 50; t++) {
        for (int k = 0; k < TENSORS; k++) {
            const bool frozen = t >= layout[k].frozen_from && t <= layout[k].frozen_to;
            double *g = zeros(m[k].n);
            for (int64_t i = 0; i < m[k].n; i++) {
                put(grad[k].type, grad[k].data, i, next_gradient(&m[k].o, get(param[k].type, param[k].data, i)));
                g[i] = get(grad[k].type, grad[k].data, i);
            }
            CHECK_INT(adamod_set_grad(opt, k, frozen ? NULL : grad[k].data), 0);
            if (!frozen) {
                model_step(&m[k], g, layout[k].group == 1 ? scheduled(schedule_text, base[k], t) : base[k], 1);
            }
            updates[k] += !frozen;
            free(g);
        }
        good = CHECK_INT(adamod_step(opt), 0);
        for (int k = 0; good && k < TENSORS; k++) {
            CHECK_INT(adamod_tensor_steps(opt, k, &steps), 0);
            CHECK_INT(steps, updates[k]);
            good = compare_param(&m[k], &param[k]);
            for (size_t i = 0; good && i < sizeof state_names / sizeof *state_names; i++) {
                array a = {0};
                const bool there = ref_get(m[k].ref, state_names[i], NULL) != NULL;
                const adamod_status status = adamod_state(opt, k, state_names[i], &a.data, &a.type, &a.n);
                good = CHECK_INT(status, there ? ADAMOD_OK : ADAMOD_ERROR_NAME);
                if (good && there) good = compare_state(&m[k], state_names[i], &a);
            }
        }
    }
    CHECK_INT(adamod_steps(opt), 50);
    adamod_free(opt);
    for (int k = 0; k < TENSORS; k++) {
        model_close(&m[k]);
        free(param[k].memory);
        free(grad[k].memory);
    }
}

TEST(several_groups) {
    rng_state = 9;
    for (int i = 0; adamod_rule_name(i); i++) run_groups(adamod_rule_name(i));
}

/* ---- bf16 and f16 ---- */

/* The same gradients to a parameter of 16 bits with its master and to one of f32: the masters and states are that
 * run's, bit for bit, and the parameter is its master, rounded. */
static bool master_run(const char *rule, const char *options, adamod_type type, adamod_type grad_type, int64_t n,
                       int steps) {
    adamod_optimizer *opt[2];
    array param[2], grad[2];
    bool good = true;
    for (int k = 0; k < 2; k++) {
        param[k] = make_array(k ? ADAMOD_F32 : type, n, k);
        grad[k] = make_array(k ? ADAMOD_F32 : grad_type, n, 1 - k);
    }
    for (int64_t i = 0; i < n; i++) {
        put(type, param[0].data, i, random_param());
        put(ADAMOD_F32, param[1].data, i, get(type, param[0].data, i));
    }
    for (int k = 0; k < 2; k++) {
        if (!CHECK_INT(adamod_create(&opt[k], rule), 0)) return false;
        apply(options, NULL, opt[k], -1, NULL);
        const adamod_tensor t = {.name = "x",
                                 .param = param[k].data,
                                 .grad = grad[k].data,
                                 .param_type = param[k].type,
                                 .grad_type = grad[k].type,
                                 .ndim = 1,
                                 .shape = {n}};
        CHECK_INT(adamod_add_tensor(opt[k], 0, &t, NULL), 0);
    }
    for (int t = 1; good && t <= steps; t++) {
        for (int64_t i = 0; i < n; i++) {
            /* a bf16 holds what an f16 does not; both hold 8 bits from 2^-13 to 2^8 */
            put(ADAMOD_BF16, grad[0].data, 0, random_gradient());
            const double g = get(ADAMOD_BF16, grad[0].data, 0);
            put(ADAMOD_F32, grad[1].data, i, fabs(g) < 0x1p-13 ? 0 : g);
        }
        for (int64_t i = 0; i < n; i++) put(grad_type, grad[0].data, i, get(ADAMOD_F32, grad[1].data, i));
        good = CHECK_INT(adamod_step(opt[0]), 0) && CHECK_INT(adamod_step(opt[1]), 0);
        void *master = NULL, *a = NULL, *b = NULL;
        adamod_type a_type, b_type;
        int64_t a_count, b_count;
        good = good && CHECK_INT(adamod_state(opt[0], 0, "master", &master, &a_type, &a_count), 0) &&
               CHECK_INT(a_type, ADAMOD_F32) && CHECK_INT(a_count, n);
        good = good && CHECK(!memcmp(master, param[1].data, (size_t)n * sizeof(float)));
        for (int64_t i = 0; good && i < n; i++) {
            good = CHECK_INT(((uint16_t *)param[0].data)[i], nearest16(type, get(ADAMOD_F32, master, i)));
        }
        for (size_t i = 0; good && i < sizeof state_names / sizeof *state_names; i++) {
            const adamod_status status = adamod_state(opt[0], 0, state_names[i], &a, &a_type, &a_count);
            good = CHECK_INT(adamod_state(opt[1], 0, state_names[i], &b, &b_type, &b_count), status);
            if (status) continue;
            good = good && CHECK_INT(a_type, b_type) && CHECK_INT(a_count, b_count) &&
                   CHECK(!memcmp(a, b, (size_t)a_count * size_of(a_type)));
        }
    }
    if (!good) printf("%s {%s}, %s with %s gradients\n", rule, options, name_of(type), name_of(grad_type));
    for (int k = 0; k < 2; k++) {
        adamod_free(opt[k]);
        free(param[k].memory);
        free(grad[k].memory);
    }
    return good;
}

TEST(masters_are_the_f32_run) {
    scenario sc = {0};
    rng_state = 10;
    for (int i = 0; set_at(i, &sc); i++) {
        for (int k = 0; k < 2; k++) {
            const adamod_type type = k ? ADAMOD_F16 : ADAMOD_BF16;
            master_run(sc.rule, sc.options, type, (adamod_type)((i + k) % 4), i % 5 ? 45 : 1030,
                       i % 5    ? (fast() ? 8 : 30)
                       : fast() ? 2
                                : 6);
        }
    }
    for (int i = 0; adamod_rule_name(i); i++) { /* bf16 states are rounded with the same random numbers on both sides */
        for (int type = ADAMOD_F32; type <= ADAMOD_F16; type++) {
            master_run(adamod_rule_name(i), "state_type=bf16", type % 2 ? ADAMOD_F16 : ADAMOD_BF16, (adamod_type)type,
                       601, 8);
        }
    }
}

/* ---- rounding at random, on average ---- */

static double mean_of(adamod_type type, const void *data, int64_t n) {
    double sum = 0;
    for (int64_t i = 0; i < n; i++) sum += get(type, data, i);
    return sum / (double)n;
}

/* How far two bf16 or f16 numbers next to x are apart. */
static double spacing(adamod_type type, double x) {
    const double least = type == ADAMOD_BF16 ? 0x1p-133 : 0x1p-24;
    return fmax(least, ldexp(1, ilogb(x) - (type == ADAMOD_BF16 ? 7 : 10)));
}

/* States that are averages, m = beta m + (1 - beta) x, are linear in what they were, so rounding without bias leaves
 * their mean over many elements what it would be without rounding. One rounding has a variance of at most a quarter of
 * the spacing squared, after t updates they add up to spacing^2 / 4 (1 - beta^2t) / (1 - beta^2), and the mean of n
 * elements to an n-th of that. 6 deviations, with the spacing at twice the mean, which no element reaches; what f32
 * itself rounds is (3t + 12) u of the state. When all arrays are bf16, kernels of their own are at work.
 *
 * Rounded to nearest instead, v would stop at 0.125: 0.001 of what is missing to 0.49 is less than half a spacing. */
TEST(bf16_states_are_right_on_average) {
    enum { N = 30000 };
    static const adamod_type types[] = {ADAMOD_F32, ADAMOD_F64, ADAMOD_BF16, ADAMOD_F16};
    const int updates = fast() ? 100 : 500;
    const double x = 0.7, beta1 = 0.9, beta2 = 0.999;
    for (int kind = 0; kind < 4; kind++) {
        const adamod_type type = types[kind];
        array param = make_array(type, N, 0), grad = make_array(type, N, 0);
        adamod_optimizer *opt;
        if (!CHECK_INT(adamod_create(&opt, "adam"), 0)) return;
        CHECK_INT(adamod_set_text(opt, "state_type", "bf16"), 0);
        CHECK_INT(adamod_set_text(opt, "low_precision", "stochastic"), 0);
        fill_array(&grad, x);
        const double g = get(type, grad.data, 0);
        const adamod_tensor t = {
            .param = param.data, .grad = grad.data, .param_type = type, .grad_type = type, .ndim = 1, .shape = {N}};
        CHECK_INT(adamod_add_tensor(opt, 0, &t, NULL), 0);
        for (int k = 1; k <= updates; k++) {
            CHECK_INT(adamod_step(opt), 0);
            for (int which = 0; which < 2; which++) {
                if (k != 1 && k != 10 && k != 60 && k != updates) continue;
                const double beta = which ? beta2 : beta1, exact = (which ? g * g : g) * -expm1(k * log(beta));
                const double one = pow(spacing(ADAMOD_BF16, 2 * exact), 2) / 4;
                const double variance = one * (1 - pow(beta, 2 * k)) / (1 - beta * beta);
                void *data = NULL;
                adamod_type state_type;
                int64_t count;
                CHECK_INT(adamod_state(opt, 0, which ? "exp_avg_sq" : "exp_avg", &data, &state_type, &count), 0);
                CHECK(state_type == ADAMOD_BF16 && count == N);
                const double mean = mean_of(ADAMOD_BF16, data, N);
                CHECK_CLOSE(mean, exact, 6 * sqrt(variance / N) + (3 * k + 12) * 0x1p-24 * exact);
            }
        }
        adamod_free(opt);
        free(param.memory);
        free(grad.memory);
    }
}

/* sgd without a master: every update is far below the spacing of the numbers, so rounding to nearest would leave the
 * parameter where it is. Its mean must move by all of them; the variance is a quarter of the spacing squared for each.
 * Elements differ, so that all fractions of the spacing come up. */
TEST(stochastic_parameters_are_right_on_average) {
    enum { N = 40000, UPDATES = 40 };
    for (int k = 0; k < 16; k++) {
        const adamod_type type = k % 2 ? ADAMOD_F16 : ADAMOD_BF16, grad_type = k / 8 ? type : ADAMOD_F32;
        const double scale = k / 2 % 2 ? -1 : 1, at = k / 4 % 2 ? 3 * 0x1p-16 : 0.8; /* subnormal in f16; not */
        const double widest = spacing(type, at), lr = widest / 64;
        array param = make_array(type, N, 1), grad = make_array(grad_type, N, 0);
        adamod_optimizer *opt;
        if (!CHECK_INT(adamod_create(&opt, "sgd"), 0)) return;
        CHECK_INT(adamod_set_text(opt, "low_precision", "stochastic"), 0);
        CHECK_INT(adamod_set(opt, "lr", lr), 0);
        CHECK_INT(adamod_set(opt, "seed", k), 0);
        rng_state = 11;
        fill_array(&param, scale * at);
        double expected = mean_of(type, param.data, N);
        for (int64_t i = 0; i < N; i++) {
            put(grad_type, grad.data, i, scale * uniform());
            expected -= lr * UPDATES * get(grad_type, grad.data, i) / N;
        }
        const adamod_tensor t = {.param = param.data,
                                 .grad = grad.data,
                                 .param_type = type,
                                 .grad_type = grad_type,
                                 .ndim = 1,
                                 .shape = {N}};
        CHECK_INT(adamod_add_tensor(opt, 0, &t, NULL), 0);
        for (int j = 0; j < UPDATES; j++) CHECK_INT(adamod_step(opt), 0);
        /* f32 rounds an update by u of the number at most; f16's subnormals have 16 random bits: 2^-16 spacings */
        const double bias = UPDATES * (0x1p-23 * at + 0x1p-16 * widest);
        CHECK_CLOSE(mean_of(type, param.data, N), expected, 6 * sqrt(UPDATES * widest * widest / 4 / N) + bias);
        adamod_free(opt);
        free(param.memory);
        free(grad.memory);
    }
}

RUN_TESTS(ENTRY(names_and_defaults), ENTRY(long_runs_f64), ENTRY(long_runs_f32), ENTRY(long_runs_f64_raw),
          ENTRY(long_runs_f32_raw), ENTRY(thousands_of_updates), ENTRY(shapes_of_adafactor), ENTRY(sizes_and_alignment),
          ENTRY(types_of_gradients), ENTRY(schedules_of_the_learning_rate), ENTRY(schedule_of_beta3), ENTRY(clip_norm),
          ENTRY(several_groups), ENTRY(masters_are_the_f32_run), ENTRY(bf16_states_are_right_on_average),
          ENTRY(stochastic_parameters_are_right_on_average))
