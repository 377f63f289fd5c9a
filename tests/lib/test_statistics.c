/* Tests of the statistics: against a count of every element's learning rate in double, from the states after the step;
 * that collecting changes no bit of an update, and that stateless updates count the same. test_statistics_cases.c has small
 * cases, and when there are none.
 *
 * SPDX-License-Identifier: MIT
 */
#include "check.h"
#include "values.h"

#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>

/* ---- A model of several groups and types -------------------------------------------------------------------------- */

enum { TENSORS = 5, GROUPS = 4 };
static const struct {
    int group;
    adamod_type type;
    int ndim;
    int64_t shape[2];
} layout[TENSORS] = {
    {0, ADAMOD_F32, 1, {31001}},     /* several chunks, and with the others enough for a handle to use threads */
    {1, ADAMOD_F32, 2, {23, 37}},    /* a matrix, for adafactor */
    {2, ADAMOD_F64, 1, {17000}},     /* f64, and more than one chunk */
    {1, ADAMOD_BF16, 2, {140, 120}}, /* with masters; small sides, whose cubes soap's time grows with */
    {0, ADAMOD_F32, 1, {1}},
};
/* Group 3 has no parameters. */

typedef struct model {
    adamod_optimizer *opt;
    void *p[TENSORS], *g[TENSORS];
    double *before[TENSORS]; /* the parameters, or their masters, before the last step */
    int64_t count[TENSORS];
} model;

static void set(adamod_type type, void *array, int64_t i, double x) {
    if (type == ADAMOD_F64) {
        ((double *)array)[i] = x;
    } else if (type == ADAMOD_F32) {
        ((float *)array)[i] = (float)x;
    } else {
        const float f = (float)x;
        uint32_t bits;
        memcpy(&bits, &f, sizeof bits);
        ((uint16_t *)array)[i] = (uint16_t)(bits >> 16);
    }
}

/* Gradients over many orders of magnitude, a few of them zero. */
static double gradient(int tensor, int64_t i, int number) {
    const uint64_t id = (uint64_t)tensor << 32 | (uint64_t)i;
    if (i % 1000 == 7) return 0;
    return noise(id * 64 + (uint64_t)number) * ldexp(1, (int)(10 * noise(id) - 7));
}

static int64_t count_of(int k) { return layout[k].shape[0] * (layout[k].ndim > 1 ? layout[k].shape[1] : 1); }

/* First parameters, and gradients by their number from 1: made once, for all models. */
static const void *source(int k, int number) {
    enum { MOST_STEPS = 4 };
    static void *made[TENSORS][MOST_STEPS + 1];
    if (number > MOST_STEPS) abort();
    if (!made[k][number]) {
        const int64_t n = count_of(k);
        void *array = made[k][number] = calloc((size_t)n, type_size(layout[k].type));
        if (!array) abort();
        for (int64_t i = 0; i < n; i++) {
            set(layout[k].type, array, i, number ? gradient(k, i, number) : noise((uint64_t)(1000000 * (k + 1) + i)));
        }
    }
    return made[k][number];
}

static void fill_gradients(model *m, int number) {
    for (int k = 0; k < TENSORS; k++) {
        memcpy(m->g[k], source(k, number), (size_t)m->count[k] * type_size(layout[k].type));
    }
}

static void make(model *m, const char *rule) {
    memset(m, 0, sizeof *m);
    if (!CHECK_INT(adamod_create(&m->opt, rule), ADAMOD_OK)) abort();
    for (int g = 1; g < GROUPS; g++) {
        int id = -1;
        CHECK_INT(adamod_add_group(m->opt, &id), ADAMOD_OK);
        CHECK_INT(id, g);
    }
}

static void add_tensors(model *m) {
    for (int k = 0; k < TENSORS; k++) {
        m->count[k] = count_of(k);
        const size_t n = (size_t)m->count[k];
        m->p[k] = calloc(n, type_size(layout[k].type));
        m->g[k] = calloc(n, type_size(layout[k].type));
        m->before[k] = calloc(n, sizeof(double));
        if (!m->p[k] || !m->g[k] || !m->before[k]) abort();
        memcpy(m->p[k], source(k, 0), n * type_size(layout[k].type));
        adamod_tensor t = {.param = m->p[k],
                           .grad = m->g[k],
                           .param_type = layout[k].type,
                           .grad_type = layout[k].type,
                           .ndim = layout[k].ndim};
        memcpy(t.shape, layout[k].shape, sizeof layout[k].shape);
        CHECK_INT(adamod_add_tensor(m->opt, layout[k].group, &t, NULL), ADAMOD_OK);
    }
}

static void unmake(model *m) {
    adamod_free(m->opt);
    for (int k = 0; k < TENSORS; k++) {
        free(m->p[k]);
        free(m->g[k]);
        free(m->before[k]);
    }
}

typedef struct state {
    const void *data;
    adamod_type type;
} state;

/* The array that an update acts on: the master if there is one. */
static state parameters_of(const model *m, int k) {
    void *master = NULL;
    if (adamod_state(m->opt, k, "master", &master, NULL, NULL)) return (state){m->p[k], layout[k].type};
    return (state){master, ADAMOD_F32};
}

static void step(model *m, int number) {
    fill_gradients(m, number);
    for (int k = 0; k < TENSORS; k++) {
        const state p = parameters_of(m, k);
        for (int64_t i = 0; i < m->count[k]; i++) m->before[k][i] = get(p.type, p.data, i);
    }
    CHECK_INT(adamod_step(m->opt), ADAMOD_OK);
}

/* ---- The same in double ------------------------------------------------------------------------------------------- */

static double option(const model *m, int group, const char *name) {
    double value = NAN;
    CHECK_INT(adamod_group_get(m->opt, group, name, &value), ADAMOD_OK);
    return value;
}

static state state_of(const model *m, int k, const char *name) {
    void *data = NULL;
    state s = {0};
    if (!CHECK_INT(adamod_state(m->opt, k, name, &data, &s.type, NULL), ADAMOD_OK)) abort();
    s.data = data;
    return s;
}

static double in(const state *s, int64_t i) { return get(s->type, s->data, i); }

/* The gradient as the rule sees it; options are looked up once, names being slow. */
typedef struct view {
    const model *m;
    int k;
    double scale, clip, l2;
} view;

static view view_of(const model *m, int k) {
    const int group = layout[k].group;
    const double sign = option(m, group, "maximize") != 0 ? -1 : 1;
    return (view){m, k, sign * option(m, group, "grad_scale"), option(m, group, "clip_value"),
                  option(m, group, "decay") == 1 ? option(m, group, "weight_decay") : 0};
}

static double seen(const view *v, int64_t i) {
    const double g = get(layout[v->k].type, v->m->g[v->k], i) * v->scale;
    return fmin(fmax(g, -v->clip), v->clip) + v->l2 * v->m->before[v->k][i];
}

static void rates_of_adam(const char *rule, const model *m, int k, double *eta, double *after) {
    const int group = layout[k].group;
    const double t = (double)adamod_steps(m->opt), lr = option(m, group, "lr"), eps = option(m, group, "eps");
    const double bc1 = 1 - pow(option(m, group, "beta1"), t), bc2 = 1 - pow(option(m, group, "beta2"), t);
    const state v = state_of(m, k, "exp_avg_sq");
    const bool bound = !strcmp(rule, "adabound"), adamod = !strcmp(rule, "adamod"), amsgrad = !strcmp(rule, "amsgrad");
    state s = {0};
    if (adamod) s = state_of(m, k, "exp_avg_lr");
    if (amsgrad) s = state_of(m, k, "max_exp_avg_sq");
    const double gamma = bound ? option(m, group, "gamma") : 0, last = bound ? option(m, group, "final_lr") : 0;
    for (int64_t i = 0; i < m->count[k]; i++) {
        eta[i] = bound ? lr * sqrt(bc2) / bc1 / (sqrt(in(&v, i)) + eps) : lr / (sqrt(in(&v, i) / bc2) + eps);
        after[i] = eta[i];
        if (adamod) after[i] = fmin(eta[i], in(&s, i));
        if (amsgrad) after[i] = lr / (sqrt(in(&s, i) / bc2) + eps);
        if (bound) after[i] = fmin(fmax(eta[i], last * (1 - 1 / (gamma * t + 1))), last * (1 + 1 / (gamma * t)));
    }
}

static void rates_of_adashift(const model *m, int k, double *eta, double *after) {
    const int group = layout[k].group;
    const double late = (double)adamod_steps(m->opt) - option(m, group, "window");
    const double scale = late > 0 ? 1 - pow(option(m, group, "beta2"), late) : 1;
    const bool shared = option(m, group, "spatial") == 0;
    const double lr = option(m, group, "lr"), eps = option(m, group, "eps");
    const state v = state_of(m, k, "exp_avg_sq");
    for (int64_t i = 0; i < m->count[k]; i++) {
        const double x = in(&v, shared ? 0 : i);
        eta[i] = lr / (sqrt(x / scale) + eps);
        after[i] = x > 0 ? eta[i] : 0;
        if (shared) eta[i] = after[i];
    }
}

/* 1 / sqrt(v) for each element, then times the step size and the clipping of the update. */
static void rates_of_adafactor(const model *m, int k, double *eta, double *after) {
    const int group = layout[k].group;
    const int64_t n = m->count[k], cols = layout[k].shape[1], rows = layout[k].shape[0];
    const view gradients = view_of(m, k);
    double u = 0, p = 0, mean = 0;
    if (layout[k].ndim == 2) {
        const state r = state_of(m, k, "exp_avg_sq_row"), c = state_of(m, k, "exp_avg_sq_col");
        for (int64_t i = 0; i < rows; i++) mean += in(&r, i) / (double)rows;
        for (int64_t i = 0; i < n; i++) eta[i] = 1 / sqrt(in(&r, i / cols) * in(&c, i % cols) / mean);
    } else {
        const state v = state_of(m, k, "exp_avg_sq");
        for (int64_t i = 0; i < n; i++) eta[i] = 1 / sqrt(in(&v, i));
    }
    for (int64_t i = 0; i < n; i++) {
        const double g = seen(&gradients, i) * eta[i];
        u += g * g / (double)n;
        p += m->before[k][i] * m->before[k][i] / (double)n;
    }
    const double rho = fmin(1e-2, 1 / sqrt((double)adamod_steps(m->opt)));
    const double alpha = rho * fmax(option(m, group, "eps2"), sqrt(p));
    const double factor = alpha / fmax(1, sqrt(u) / option(m, group, "clip_threshold"));
    for (int64_t i = 0; i < n; i++) after[i] = eta[i] = eta[i] * factor;
}

/* Learning rates of an array: the bins that they are in, where one that lies on the edge of two may be in either. */
typedef struct summary {
    double *values, least, most;
    int64_t surely[ADAMOD_HIST_BINS], perhaps[ADAMOD_HIST_BINS], unsure;
} summary;

static int in_range(double bin) { return bin < 0 ? 0 : bin >= ADAMOD_HIST_BINS ? ADAMOD_HIST_BINS - 1 : (int)bin; }

static void summarize(summary *s, int64_t n) {
    const double width = (ADAMOD_HIST_HIGH - ADAMOD_HIST_LOW) / ADAMOD_HIST_BINS, slack = log10(1 + 2e-6) / width;
    s->least = INFINITY;
    s->most = -INFINITY;
    for (int64_t i = 0; i < n; i++) {
        const double x = s->values[i], at = x > 0 ? (log10(x) - ADAMOD_HIST_LOW) / width : 0;
        const int low = in_range(floor(at - slack)), high = in_range(floor(at + slack));
        if (low == high) s->surely[low]++;
        for (int b = low; b <= high; b++) s->perhaps[b]++;
        s->unsure += low != high;
        s->least = fmin(s->least, x);
        s->most = fmax(s->most, x);
    }
}

/* An array's rates: eta, the step's rate, and how many of the latter are less. */
typedef struct rates {
    summary eta, step;
    int64_t surely, perhaps;
    double grad_sumsq, update_sumsq;
} rates;

static void find_rates(rates *r, const char *rule, const model *m, int k) {
    const int64_t n = m->count[k];
    memset(r, 0, sizeof *r);
    double *eta = r->eta.values = calloc((size_t)n, sizeof(double));
    double *after = r->step.values = calloc((size_t)n, sizeof(double));
    if (!eta || !after) abort();
    if (!strcmp(rule, "sgd")) {
        const double lr = option(m, layout[k].group, "lr");
        for (int64_t i = 0; i < n; i++) eta[i] = after[i] = lr;
    } else if (!strcmp(rule, "adashift")) {
        rates_of_adashift(m, k, eta, after);
    } else if (!strcmp(rule, "adafactor")) {
        rates_of_adafactor(m, k, eta, after);
    } else {
        rates_of_adam(rule, m, k, eta, after);
    }
    const view gradients = view_of(m, k);
    const state now = parameters_of(m, k);
    for (int64_t i = 0; i < n; i++) {
        const double g = seen(&gradients, i), d = get(now.type, now.data, i) - m->before[k][i];
        r->grad_sumsq += g * g;
        r->update_sumsq += d * d;
        r->surely += after[i] < eta[i] * (1 - 2e-6);
        r->perhaps += after[i] < eta[i] * (1 + 2e-6);
    }
    summarize(&r->eta, n);
    summarize(&r->step, n);
}

#define RELATIVE(a, b, tolerance) CHECK_CLOSE(a, b, (tolerance)*fabs(b))

/* Checks the summary of a group's arrays; n[k] is 0 for the others. */
static void check_summary(const summary *const s[TENSORS], const int64_t n[TENSORS], double least, double median,
                          double most, const int64_t *histogram) {
    int64_t total = 0, sum = 0, unsure = 0, below = 0, up_to = 0;
    double first = INFINITY, last = -INFINITY;
    for (int k = 0; k < TENSORS; k++) {
        if (!n[k]) continue;
        total += n[k];
        unsure += s[k]->unsure;
        first = fmin(first, s[k]->least);
        last = fmax(last, s[k]->most);
        for (int64_t i = 0; i < n[k]; i++) {
            below += s[k]->values[i] < median / 1.0325;
            up_to += s[k]->values[i] <= median / 0.9675;
        }
    }
    for (int b = 0; b < ADAMOD_HIST_BINS; b++) {
        int64_t surely = 0, perhaps = 0;
        for (int k = 0; k < TENSORS; k++) {
            if (n[k]) surely += s[k]->surely[b], perhaps += s[k]->perhaps[b];
        }
        if (!CHECK(histogram[b] >= surely && histogram[b] <= perhaps)) printf("  bin %d\n", b);
        sum += histogram[b];
    }
    CHECK_INT(sum, total);
    CHECK(unsure <= total / 1000 + 1); /* or this checks nothing */
    RELATIVE(least, first, 3e-6);
    RELATIVE(most, last, 3e-6);
    /* within 0.0325 of the lower of the two in the middle */
    CHECK(below <= (total - 1) / 2 && up_to > (total - 1) / 2);
}

static void check_group(const char *rule, const model *m, const rates r[TENSORS], int group) {
    adamod_statistics s;
    const summary *eta[TENSORS], *after[TENSORS];
    int64_t n[TENSORS], total = 0, surely = 0, perhaps = 0;
    double grad_sumsq = 0, update_sumsq = 0;
    for (int k = 0; k < TENSORS; k++) {
        eta[k] = &r[k].eta;
        after[k] = &r[k].step;
        n[k] = group < 0 || layout[k].group == group ? m->count[k] : 0;
        if (!n[k]) continue;
        total += n[k];
        surely += r[k].surely;
        perhaps += r[k].perhaps;
        grad_sumsq += r[k].grad_sumsq;
        update_sumsq += r[k].update_sumsq;
    }
    memset(&s, 0xff, sizeof s);
    CHECK_INT(adamod_get_statistics(m->opt, group, &s), ADAMOD_OK);
    CHECK_INT(s.elements, total);
    RELATIVE(s.grad_norm, sqrt(grad_sumsq), 1e-6);
    RELATIVE(s.update_norm, sqrt(update_sumsq), 1e-12);
    if (total == 0) {
        adamod_statistics none = {0};
        CHECK(memcmp(&s, &none, sizeof s) == 0);
        return;
    }
    const bool never = !strcmp(rule, "adam") || !strcmp(rule, "sgd") || !strcmp(rule, "adafactor");
    if (never) CHECK(s.bounded == 0);
    CHECK(s.bounded * (double)total > (double)surely - 0.5);
    CHECK(s.bounded * (double)total < (double)perhaps + 0.5);
    check_summary(eta, n, s.eta_min, s.eta_median, s.eta_max, s.eta);
    check_summary(after, n, s.step_min, s.step_median, s.step_max, s.step);
}

/* Checks the statistics of all parameters and of each group. */
static void check_statistics(const char *rule, const model *m) {
    static rates r[TENSORS];
    for (int k = 0; k < TENSORS; k++) find_rates(&r[k], rule, m, k);
    for (int group = -1; group < GROUPS; group++) check_group(rule, m, r, group);
    for (int k = 0; k < TENSORS; k++) {
        free(r[k].eta.values);
        free(r[k].step.values);
    }
}

/* ---- Tests -------------------------------------------------------------------------------------------------------- */

static const struct {
    const char *rule, *option;
    double value;
} rules[] = {
    {"adamod", NULL, 0},         {"adamod", "beta3", 0.9},   {"adam", NULL, 0},
    {"amsgrad", "beta2", 0.5},   {"adabound", "gamma", 0.1}, {"sgd", NULL, 0},
    {"sgd", "momentum", 0.9},    {"adashift", "window", 2},  {"adafactor", NULL, 0},
    {"adafactor", "beta1", 0.9},
};

TEST(against_a_count_in_double) {
    for (size_t i = 0; i < sizeof rules / sizeof *rules; i++) {
        model m;
        make(&m, rules[i].rule);
        if (rules[i].option) CHECK_INT(adamod_set(m.opt, rules[i].option, rules[i].value), ADAMOD_OK);
        for (int g = 0; g < GROUPS; g++) CHECK_INT(adamod_group_set(m.opt, g, "lr", 1.5e-3 * (g + 1)), ADAMOD_OK);
        CHECK_INT(adamod_set(m.opt, "threads", 2), ADAMOD_OK);
        CHECK_INT(adamod_collect(m.opt, 1), ADAMOD_OK);
        add_tensors(&m);
        for (int t = 1; t <= 4; t++) {
            step(&m, t);
            if (t == 2 || t == 3) continue; /* the first, and one when all is under way */
            check_statistics(rules[i].rule, &m);
        }
        unmake(&m);
    }
}

TEST(adashift_of_each_element) {
    model m;
    make(&m, "adashift");
    CHECK_INT(adamod_set_text(m.opt, "spatial", "none"), ADAMOD_OK);
    CHECK_INT(adamod_set(m.opt, "window", 1), ADAMOD_OK);
    CHECK_INT(adamod_set(m.opt, "lr", 1.5e-3), ADAMOD_OK); /* lr / eps lies on no edge */
    CHECK_INT(adamod_collect(m.opt, 1), ADAMOD_OK);
    add_tensors(&m);
    for (int t = 1; t <= 3; t++) {
        step(&m, t);
        check_statistics("adashift", &m);
        adamod_statistics s;
        CHECK_INT(adamod_get_statistics(m.opt, -1, &s), ADAMOD_OK);
        if (t == 1) CHECK(s.bounded == 1 && s.step_max == 0);            /* nothing moves yet */
        else CHECK(s.bounded > 0 && s.bounded < 0.01 && s.step_max > 0); /* the zeros of the first gradient */
    }
    unmake(&m);
}

/* The gradient of the norm is the one the rule sees. */
TEST(norms_of_what_the_rule_sees) {
    model m;
    make(&m, "adam");
    CHECK_INT(adamod_set(m.opt, "grad_scale", 0.125), ADAMOD_OK);
    CHECK_INT(adamod_set(m.opt, "clip_value", 0.013), ADAMOD_OK);
    CHECK_INT(adamod_set(m.opt, "lr", 1.5e-3), ADAMOD_OK);
    CHECK_INT(adamod_set(m.opt, "maximize", 1), ADAMOD_OK);
    CHECK_INT(adamod_group_set_text(m.opt, 1, "decay", "l2"), ADAMOD_OK);
    CHECK_INT(adamod_set(m.opt, "weight_decay", 0.25), ADAMOD_OK);
    CHECK_INT(adamod_collect(m.opt, 1), ADAMOD_OK);
    add_tensors(&m);
    for (int t = 1; t <= 2; t++) {
        step(&m, t);
        check_statistics("adam", &m);
    }
    /* The norm before clipping is adamod_grad_norm's. */
    double sum = 0;
    for (int k = 0; k < TENSORS; k++) {
        for (int64_t i = 0; i < m.count[k]; i++) sum += pow(get(layout[k].type, m.g[k], i) * 0.125, 2);
    }
    RELATIVE(adamod_grad_norm(m.opt), sqrt(sum), 1e-12);
    /* With a bound on the global norm alone, it is what clipping leaves. */
    CHECK_INT(adamod_set(m.opt, "clip_value", INFINITY), ADAMOD_OK);
    CHECK_INT(adamod_set(m.opt, "weight_decay", 0), ADAMOD_OK);
    CHECK_INT(adamod_set(m.opt, "clip_norm", 0.75), ADAMOD_OK);
    step(&m, 3);
    adamod_statistics s;
    CHECK_INT(adamod_get_statistics(m.opt, -1, &s), ADAMOD_OK);
    CHECK(adamod_grad_norm(m.opt) > 1);
    RELATIVE(s.grad_norm, 0.75, 1e-6);
    unmake(&m);
}

/* Every rule, in every combination of types and options that takes another way through the code: not a bit of
 * parameters and states differs with and without statistics, and none of the statistics with the number of threads. */
static void configure(model *m, int kind, int threads) {
    CHECK_INT(adamod_set(m->opt, "threads", threads), ADAMOD_OK);
    if (kind == 1) {
        CHECK_INT(adamod_set_text(m->opt, "low_precision", "stochastic"), ADAMOD_OK);
        CHECK_INT(adamod_set_text(m->opt, "state_type", "bf16"), ADAMOD_OK);
        CHECK_INT(adamod_set(m->opt, "grad_scale", 0.3), ADAMOD_OK);
    }
    if (kind == 2) {
        CHECK_INT(adamod_set(m->opt, "grad_scale", 0.7), ADAMOD_OK);
        CHECK_INT(adamod_set(m->opt, "clip_norm", 3), ADAMOD_OK);
        CHECK_INT(adamod_set(m->opt, "clip_value", 0.1), ADAMOD_OK);
        CHECK_INT(adamod_set(m->opt, "maximize", 1), ADAMOD_OK);
        CHECK_INT(adamod_set_text(m->opt, "decay", "l2"), ADAMOD_OK);
        CHECK_INT(adamod_set(m->opt, "weight_decay", 0.1), ADAMOD_OK);
    }
    add_tensors(m);
}

static void compare_models(const model *a, const model *b) {
    static const char *const names[] = {
        "exp_avg",    "exp_avg_sq",      "exp_avg_lr", "max_exp_avg_sq", "exp_avg_sq_row", "exp_avg_sq_col",
        "grad_queue", "momentum_buffer", "sum",        "square_avg",     "grad_avg",       "acc_delta",
        "master"};
    for (int k = 0; k < TENSORS; k++) {
        CHECK(memcmp(a->p[k], b->p[k], (size_t)a->count[k] * type_size(layout[k].type)) == 0);
        for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
            void *x = NULL, *y = NULL;
            adamod_type type = ADAMOD_F32;
            int64_t n = 0;
            if (adamod_state(a->opt, k, names[i], &x, &type, &n)) continue;
            CHECK_INT(adamod_state(b->opt, k, names[i], &y, NULL, NULL), ADAMOD_OK);
            CHECK(memcmp(x, y, (size_t)n * type_size(type)) == 0);
        }
    }
}

TEST(collecting_changes_no_bit) {
    for (int r = 0; adamod_rule_name(r); r++) {
        for (int kind = fast() ? r % 3 : 0; kind < (fast() ? r % 3 + 1 : 3); kind++) {
            model quiet, collected[2];
            static adamod_statistics s[2][GROUPS + 1];
            make(&quiet, adamod_rule_name(r));
            configure(&quiet, kind, 1);
            for (int i = 0; i < 2; i++) {
                make(&collected[i], adamod_rule_name(r));
                configure(&collected[i], kind, i ? 3 : 1);
                CHECK_INT(adamod_collect(collected[i].opt, 1), ADAMOD_OK);
            }
            for (int t = 1; t <= 2; t++) {
                fill_gradients(&quiet, t);
                CHECK_INT(adamod_step(quiet.opt), ADAMOD_OK);
                for (int i = 0; i < 2; i++) {
                    fill_gradients(&collected[i], t);
                    CHECK_INT(adamod_step(collected[i].opt), ADAMOD_OK);
                    for (int g = -1; g < GROUPS; g++) {
                        CHECK_INT(adamod_get_statistics(collected[i].opt, g, &s[i][g + 1]), ADAMOD_OK);
                    }
                }
                CHECK(memcmp(s[0], s[1], sizeof s[0]) == 0);
                CHECK(s[0][0].elements > 0);
            }
            int failures = check_failures;
            for (int i = 0; i < 2; i++) compare_models(&quiet, &collected[i]);
            if (check_failures > failures) printf("  %s, kind %d\n", adamod_rule_name(r), kind);
            unmake(&quiet);
            for (int i = 0; i < 2; i++) unmake(&collected[i]);
        }
    }
}

/* The stateless update counts what the handle counts, and changes no bit by it. */
TEST(of_raw_updates) {
    enum { ROWS = 131, COLS = 127, N = ROWS * COLS, MOST = 10 * N, STEPS = 12 };
    static float first[N], gradients[STEPS][N], p[N], g[N], raw[N], memory[ADAMOD_MAX_STATES][MOST];
    static adamod_statistics s, t;
    const int64_t shape[2] = {ROWS, COLS};
    adamod_pool *pool;
    CHECK_INT(adamod_pool_create(&pool, 3), ADAMOD_OK);
    for (int i = 0; i < N; i++) {
        first[i] = (float)noise((uint64_t)i);
        for (int k = 0; k < STEPS; k++) gradients[k][i] = (float)gradient(0, i, k + 1);
    }
    for (int r = 0; adamod_rule_name(r); r++) {
        adamod_optimizer *opt;
        adamod_hyper *h;
        adamod_state_desc d;
        adamod_span x = {.param = raw, .grad = g, .ndim = 2, .shape = {ROWS, COLS}, .count = N};
        CHECK_INT(adamod_create(&opt, adamod_rule_name(r)), ADAMOD_OK);
        CHECK_INT(adamod_hyper_create(&h, adamod_rule_name(r)), ADAMOD_OK);
        /* adashift stands still until its window is full */
        const int steps = fast() && strcmp(adamod_rule_name(r), "adashift") != 0 ? 3 : STEPS;
        memcpy(p, first, sizeof p);
        memcpy(raw, first, sizeof raw);
        CHECK_INT(adamod_add(opt, NULL, p, g, 2, shape), ADAMOD_OK);
        CHECK_INT(adamod_collect(opt, 1), ADAMOD_OK);
        for (int i = 0; i < ADAMOD_MAX_STATES; i++) {
            CHECK_INT(adamod_state_at(h, 2, shape, i, &d), ADAMOD_OK);
            if (!d.name || !CHECK(d.count <= MOST)) continue;
            for (int64_t k = 0; k < d.count; k++) memory[i][k] = (float)d.initial;
            x.state[i] = memory[i];
        }
        for (x.step = 1; x.step <= steps; x.step++) {
            memcpy(g, gradients[x.step - 1], sizeof g);
            memset(&t, 0xff, sizeof t);
            CHECK_INT(adamod_step(opt), ADAMOD_OK);
            CHECK_INT(adamod_update_collect(h, &x, 1, x.step % 2 ? pool : NULL, &t), ADAMOD_OK);
            CHECK_INT(adamod_get_statistics(opt, -1, &s), ADAMOD_OK);
            if (!CHECK(memcmp(&s, &t, sizeof s) == 0)) printf("  %s\n", adamod_rule_name(r));
            CHECK_INT(t.elements, N);
        }
        CHECK(memcmp(p, raw, sizeof p) == 0);
        x.step = 0;
        CHECK_INT(adamod_update_collect(h, &x, 1, NULL, &t), ADAMOD_ERROR_RANGE);
        CHECK_INT(adamod_update_collect(h, &x, 1, NULL, NULL), ADAMOD_ERROR_ARGUMENT);
        CHECK(memcmp(&s, &t, sizeof s) == 0);
        adamod_hyper_free(h);
        adamod_free(opt);
    }
    adamod_pool_free(pool);
}

RUN_TESTS(ENTRY(against_a_count_in_double), ENTRY(adashift_of_each_element), ENTRY(norms_of_what_the_rule_sees),
          ENTRY(collecting_changes_no_bit), ENTRY_OF_ONE_THREAD(of_raw_updates))
