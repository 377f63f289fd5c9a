/* The library and the reference side by side: see against_reference.h. */
#include "against_reference.h"
#include "check.h"
#include "values.h"

#include <math.h>
#include <stdlib.h>

/* ---- numbers and arrays ---- */

double random_gradient(void) {
    if (rng() % 20 == 0) return 0;
    const double size = pow(10, -4 + 6 * uniform());
    return rng() & 1 ? size : -size;
}

double next_gradient(const ref_options *o, double p) {
    const double g = random_gradient();
    if (o->decay != REF_DECAY_L2 || o->weight_decay == 0) return g;
    const double size = pow(10, -1 + 3 * uniform());
    return copysign(size, p == 0 ? g : o->maximize ? -p : p);
}

double random_param(void) { return rng() % 50 == 0 ? 0 : 2 * uniform() - 1; }

const char *name_of(adamod_type type) { return ((const char *[]){"f32", "f64", "bf16", "f16"})[type]; }

array make_array(adamod_type type, int64_t n, int offset) {
    array a = {calloc((size_t)(n + offset) + 1, type_size(type)), NULL, type, n};
    if (!a.memory) abort();
    a.data = (char *)a.memory + (size_t)offset * type_size(type);
    return a;
}

void fill_array(array *a, double value) {
    for (int64_t i = 0; i < a->n; i++) put(a->type, a->data, i, value);
}

double *zeros(int64_t n) {
    double *x = calloc((size_t)n + 1, sizeof *x);
    if (!x) abort();
    return x;
}

int64_t count_of(int ndim, const int64_t *shape) {
    int64_t n = 1;
    for (int d = 0; d < ndim; d++) n *= shape[d];
    return n;
}

/* ---- the library's side ---- */

double scheduled(const char *text, double base, int t) {
    if (!text) return base;
    if (!strcmp(text, "warmup_rsqrt(1e-7,20)")) return t < 20 ? 1e-7 + (base - 1e-7) * t / 20 : base * sqrt(20.0 / t);
    if (!strcmp(text, "multistep(5,30;0.5)")) return base * (t > 30 ? 0.25 : t > 5 ? 0.5 : 1);
    if (!strcmp(text, "linear(1e-5,40)")) return t < 40 ? base + (1e-5 - base) * t / 40 : 1e-5;
    abort();
}

void subject_open(subject *s, const scenario *sc) {
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

void subject_close(subject *s) {
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

/* ---- the reference's side ---- */

void model_open(model *m, const scenario *sc) {
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

void model_close(model *m) {
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
    o.magnitudes = 1;
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
static void adashift_recursion(model *m, const double *magnitude) {
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

/* How the length of a step bears on the errors: see allowance(). */
static void lamb_norms(model *m, const double *before) {
    double step = 0, magnitudes = 0;
    for (int64_t i = 0; i < m->n; i++) {
        step += (m->p[i] - before[i]) * (m->p[i] - before[i]);
        magnitudes += m->moved[i] * m->moved[i];
    }
    if (step > 0) m->swell = fmax(m->swell, sqrt(magnitudes / step));
    m->rates += m->o.lr;
    m->least = fmin(m->least, rms(before, m->n));
}

static double *state_of(const ref_state *s, const char *name) { return (double *)(uintptr_t)ref_get(s, name, NULL); }

static double library_number(const subject *s, const char *name) {
    for (int i = 0; i < ADAMOD_MAX_STATES; i++) {
        if (!s->desc[i].name || strcmp(s->desc[i].name, name) != 0) continue;
        const array a = subject_state(s, i);
        return get(a.type, a.data, 0);
    }
    return 0;
}

/* prodigy: the estimate of d, from sums in which much cancels, is checked update by update; all else, given the library's. */
static void take_numbers(model *m, const subject *s) {
    static const char *const numbers[] = {"d", "d_max", "d_numerator"};
    for (int i = 0; i < 3; i++) {
        *state_of(m->ref, numbers[i]) = *state_of(m->shadow, numbers[i]) = library_number(s, numbers[i]);
    }
}

/* The allowed errors of its numbers, as multiples of a step's: the sum of g (p0 - p) by the path and by the
 * rounding of p, whatever cancels; d by that and by the sum of |s|. */
static void prodigy_numbers(model *m, const double *before, const double *magnitude, double d) {
    const double *s = state_of(m->ref, "s"), *most = state_of(m->shadow, "s");
    const double rate = (d > 0 ? d : m->o.d0) * (d > 0 ? d : m->o.d0) / m->o.d0 * m->o.lr;
    double size = 0, magnitudes = 0, rounded = 0;
    for (int64_t i = 0; i < m->n; i++) {
        size += fabs(s[i]);
        magnitudes += most[i];
        rounded += magnitude[i] * (m->path[i] + fabs(before[i]));
    }
    m->numerator = fabs(*state_of(m->ref, "d_numerator")) + rate * rounded * (m->o.use_bias_correction ? m->t : 1);
    m->found = size > 0 ? m->o.d_coef * m->numerator / size * (1 + magnitudes / size) : 0;
}

void model_step(model *m, const double *g, double lr, double factor) {
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
    ref_options shadow = shadow_options(m), o = m->o;
    o.grad_scale *= factor;
    double *before = zeros(m->n);
    memcpy(before, m->p, (size_t)m->n * sizeof *before);
    ref_step(m->ref, m->p, g, &o);
    if (is(m, "lamb")) shadow.factor = ref_factor(m->ref);
    const double d = is(m, "prodigy") ? *state_of(m->shadow, "d") : 0;
    ref_step(m->shadow, m->moved, magnitude, &shadow);
    if (is(m, "lamb")) lamb_norms(m, before);
    if (is(m, "prodigy")) prodigy_numbers(m, before, magnitude, d);
    free(before);
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
    if (is(m, "adashift")) adashift_recursion(m, magnitude);
    free(magnitude);
}

/* ---- whether they agree ---- */

static double unit_of(adamod_type type) { return type == ADAMOD_F64 ? 0x1p-53 : 0x1p-24; }

/* C, the multiple of u that a step may be off by (see the top of against_reference.h).
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
 *   e^(sum of rho d) by Gronwall.
 * stableadamw: the rms that divides lr is off by another C, and its sum by n 2^-53.
 * prodigy: d is the library's; its own error, by prodigy_numbers, is that of sums in which much cancels.
 * lamb: |u| is off by C of the norm of its magnitudes, which is up to "swell" times |u|, and |p| as adafactor's rms(p). */
static double allowance(const model *m) {
    const double t = m->t, c = 8 * t + 32;
    if (is(m, "adadelta")) return c + 1.5 * (1 - m->o.rho) * t * t;
    if (is(m, "nosadam")) return c + pow(t, m->o.gamma) * m->weights;
    const bool lamb = is(m, "lamb"), stable = is(m, "stableadamw");
    if ((!is(m, "adafactor") && !lamb && !stable) || m->n == 0) return c;
    const double all = (2 + m->swell) * c + (double)m->n * 0x1p-53 / unit_of(m->sc->param_type);
    if (stable || (!lamb && !m->o.scale_parameter)) return all;
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
    const bool linear = !strcmp(name, "exp_avg") || !strcmp(name, "grad_avg") || !strcmp(name, "grad_queue") ||
                        !strcmp(name, "neg_pre_grad") || !strcmp(name, "exp_avg_fast") || !strcmp(name, "exp_avg_slow");
    if (!strcmp(name, "z")) return m->o.weight_decay * m->t * m->o.lr + 1;
    if (!strcmp(name, "exp_avg_diff")) return 2 * m->o.weight_decay;
    return linear ? m->o.weight_decay : 0;
}

bool compare_state(const model *m, const char *name, const array *a) {
    int64_t count = 0;
    const double *ref = ref_get(m->ref, name, &count), *shadow = ref_get(m->shadow, name, NULL);
    if (m->n == 0) return true; /* sizes may differ where nothing is */
    if (!CHECK(ref && a->n == count)) return false;
    const double u = unit_of(a->type), c = allowance(m), back = returned(m, name);
    const double faded = 2 * m->t * (a->type == ADAMOD_F64 ? 0x1p-1074 : 0x1p-149);
    const bool average = is(m, "adashift") && !strcmp(name, "exp_avg");
    const bool position = !strcmp(name, "z"); /* as the parameter itself */
    const bool buffer = m->o.centered && !strcmp(name, "momentum_buffer");
    const double own = !strcmp(name, "d_numerator") ? m->numerator : m->found;
    const bool number = is(m, "prodigy") && (name[0] == 'd');
    for (int64_t i = 0; i < count; i++) {
        double tolerance = 2 * u *
                           (number    ? (8 * m->t + 32) * (own + fabs(ref[i]))
                            : average ? 16 * m->f[i]
                                      : c * fabs(shadow[i]));
        if (buffer) tolerance /= m->kappa[i];
        tolerance += faded;
        if (position) tolerance += 2 * u * 3 * m->t * m->most[i];
        if (back > 0) tolerance += back * param_tolerance(m, u, c, i % m->n);
        const double expected = number && !strcmp(name, "d") ? ref_factor(m->ref) : ref[i];
        if (!close_enough(m->sc, m->t, name, i, get(a->type, a->data, i), expected, tolerance)) {
            return CHECK(!"near the reference");
        }
    }
    return true;
}

bool compare_param(const model *m, const array *a) {
    const double u = unit_of(a->type), c = allowance(m);
    for (int64_t i = 0; i < m->n; i++) {
        const double tolerance = param_tolerance(m, u, c, i);
        if (!close_enough(m->sc, m->t, "param", i, get(a->type, a->data, i), m->p[i], tolerance)) {
            return CHECK(!"near the reference");
        }
    }
    return true;
}

bool compare(const subject *s, const model *m) {
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

bool check_against_reference(const scenario *sc) {
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
        if (is(&m, "prodigy")) take_numbers(&m, &s);
        good = CHECK_INT(subject_step(&s, t, lr), 0);
        if (is(&m, "prodigy")) m.o.factor = library_number(&s, "d");
        model_step(&m, g, lr, sc->clip_norm > 0 && norm > sc->clip_norm ? sc->clip_norm / norm : 1);
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
