/* Tests that options keep to the range of the type of computation: what is infinite or 0 there is refused, as soon as the
 * type is known, and with what is accepted every number stays finite.
 *
 * SPDX-License-Identifier: MIT
 */
#include "check.h"
#include "values.h"

#include <float.h>
#include <math.h>
#include <stdbool.h>
#include <stdlib.h>

/* ---- one parameter ---- */

enum { N = 48 };

static const struct kind {
    const char *name;
    adamod_type param;
    const char *states;
    const char *range; /* whose range options must keep to */
} kinds[] = {{"f32", ADAMOD_F32, "auto", "f32"},
             {"f64", ADAMOD_F64, "auto", "f64"},
             {"bf16", ADAMOD_BF16, "auto", "f32"},
             {"f64 with bf16 states", ADAMOD_F64, "bf16", "f32"}};
enum { KINDS = sizeof kinds / sizeof *kinds };

typedef struct one {
    adamod_optimizer *opt;
    adamod_tensor tensor;
    double p[N], g[N];
} one;

/* Gradients are f32, so that those of bf16 parameters can be as small. Some elements never have one, nor has any of the
 * first row and column. */
static void gradients(one *x, int step, double scale) {
    for (int i = 0; i < N; i++) {
        const bool zero = i % 6 == 0 || i % 8 == 0 || i / 8 == 0;
        put(x->tensor.grad_type, x->g, i, zero ? 0 : (0.1 + fabs(noise((uint64_t)(i + N * step)))) * scale);
    }
}

static bool open_one(one *x, const char *rule, const struct kind *kind) {
    *x = (one){.opt = NULL};
    x->tensor = (adamod_tensor){.name = "w",
                                .param = x->p,
                                .grad = x->g,
                                .param_type = kind->param,
                                .grad_type = kind->param == ADAMOD_F64 ? ADAMOD_F64 : ADAMOD_F32,
                                .ndim = 2,
                                .shape = {6, 8}};
    for (int i = 0; i < N; i++) put(kind->param, x->p, i, 2 * noise((uint64_t)i));
    return CHECK_INT(adamod_create(&x->opt, rule), ADAMOD_OK) &&
           CHECK_INT(adamod_set_text(x->opt, "state_type", kind->states), ADAMOD_OK);
}

static bool finite_array(adamod_type type, const void *data, int64_t n) {
    for (int64_t i = 0; i < n; i++) {
        if (!isfinite(get(type, data, i))) return false;
    }
    return true;
}

/* The parameter and all states. */
static bool finite_one(const one *x, const char *rule) {
    adamod_hyper *h;
    bool finite = finite_array(x->tensor.param_type, x->p, N);
    if (!CHECK_INT(adamod_hyper_create(&h, rule), ADAMOD_OK)) return false;
    for (int s = 0; s < ADAMOD_MAX_STATES; s++) {
        adamod_state_desc desc;
        void *data;
        adamod_type type;
        int64_t count;
        CHECK_INT(adamod_state_at(h, 2, x->tensor.shape, s, &desc), ADAMOD_OK);
        if (!desc.name || adamod_state(x->opt, 0, desc.name, &data, &type, &count)) continue;
        finite = finite && finite_array(type, data, count);
    }
    adamod_hyper_free(h);
    return finite;
}

/* ---- every option ---- */

/* Ends of bounds, and of f32's and f64's ranges and their roots, a little within and beyond. */
static const double extremes[] = {0,      5e-324,   1e-310,  2.2e-308, 2.3e-308, 1e-300, 1e-100,  1e-60,
                                  1e-46,  1e-45,    1e-40,   1.1e-38,  1.2e-38,  1e-30,  1e-20,   1e-10,
                                  0.5,    1 - 1e-9, 1,       2,        1e3,      1e10,   9e17,    1.7e19,
                                  1.8e19, 1.9e19,   1e30,    3.3e38,   3.4e38,   3.5e38, 1e60,    1e100,
                                  9e152,  1.2e154,  1.3e154, 1.4e154,  1e200,    1e300,  1.7e308, DBL_MAX};
enum { EXTREMES = sizeof extremes / sizeof *extremes };

/* With the other options that make the rule read this one. */
static const char *prepare(adamod_optimizer *opt, const char *rule, const char *option, int way) {
    static const char *const decays[] = {"decoupled", "l2", "independent"};
    static const char *const flavours[] = {"paper", "published", "keras"};
    const bool adam = !strcmp(rule, "adamod") || !strcmp(rule, "adam") || !strcmp(rule, "amsgrad");
    if (adam) CHECK_INT(adamod_set_text(opt, "flavour", flavours[way]), ADAMOD_OK);
    CHECK_INT(adamod_set_text(opt, "decay", decays[way]), ADAMOD_OK);
    if (!strcmp(rule, "sgd") || !strcmp(rule, "rmsprop")) {
        CHECK_INT(adamod_set(opt, "momentum", way ? 0.9 : 0), ADAMOD_OK);
    }
    if (!strcmp(rule, "rmsprop")) CHECK_INT(adamod_set(opt, "centered", way == 2), ADAMOD_OK);
    if (!strcmp(rule, "adashift")) {
        CHECK_INT(adamod_set(opt, "window", 2), ADAMOD_OK);
        CHECK_INT(adamod_set_text(opt, "spatial", way ? "none" : "max"), ADAMOD_OK);
    }
    if (!strcmp(rule, "adafactor")) {
        CHECK_INT(adamod_set(opt, "relative_step", strcmp(option, "lr") != 0), ADAMOD_OK);
        CHECK_INT(adamod_set(opt, "beta1", way ? 0.9 : 0), ADAMOD_OK);
    }
    adamod_option bound;
    if (way == 2 && !adamod_option_find(rule, "bound", &bound)) {
        CHECK_INT(adamod_set_text(opt, "bound", "momental"), ADAMOD_OK);
    }
    return flavours[way];
}

/* How many updates can be expected to stay finite: with these the parameter grows by a factor in each, in any type. */
static int updates_for(const char *rule, const char *option, double value) {
    const bool adafactor = !strcmp(rule, "adafactor") && (!strcmp(option, "lr") || !strcmp(option, "eps2"));
    const bool length =
        !strcmp(option, "d_coef") || ((!strcmp(rule, "lamb") || !strcmp(rule, "prodigy")) && !strcmp(option, "lr"));
    /* first steps of 1 / sqrt(1 - beta2), and d is estimated from them */
    const bool uncorrected = !strcmp(rule, "prodigy") && !strcmp(option, "beta2") && value > 0.999;
    if (uncorrected) return 1;
    return (!strcmp(option, "weight_decay") || adafactor || length) && value > 1 ? 1 : fast() ? 3 : 10;
}

static bool sweep_value(const char *rule, const adamod_option *o, const struct kind *kind, int way, double value) {
    one x, late;
    bool good = true;
    if (!open_one(&x, rule, kind) || !open_one(&late, rule, kind)) return false;
    const char *flavour = prepare(x.opt, rule, o->name, way);
    prepare(late.opt, rule, o->name, way);
    if (strcmp(rule, "adafactor") == 0 && strcmp(o->name, "eps1") == 0 && way == 2) {
        x.tensor.ndim = late.tensor.ndim = 1;
        x.tensor.shape[0] = late.tensor.shape[0] = N;
    }
    /* set first, then the parameter is refused; or the other way round */
    CHECK_INT(adamod_set(x.opt, o->name, value), ADAMOD_OK);
    const adamod_status status = adamod_add_tensor(x.opt, 0, &x.tensor, NULL);
    char text[64], first[300];
    snprintf(first, sizeof first, "%s", adamod_last_error());
    snprintf(text, sizeof text, "%s: %s is ", rule, o->name);
    if (status) {
        good =
            CHECK_INT(status, ADAMOD_ERROR_RANGE) && CHECK_HAS(first, "adamod: w: ") && CHECK_HAS(first, text) && good;
        snprintf(text, sizeof text, " in %s", kind->range);
        good = CHECK_HAS(first, text) && good;
        good = CHECK_INT(adamod_tensors(x.opt), 0) && good;
    }
    CHECK_INT(adamod_add_tensor(late.opt, 0, &late.tensor, NULL), ADAMOD_OK);
    double before, after;
    CHECK_INT(adamod_get(late.opt, o->name, &before), ADAMOD_OK);
    /* some decide which states there are, and cannot be set any more */
    const adamod_status set = adamod_set(late.opt, o->name, value);
    if (!o->structural) good = CHECK_INT(set, status) && good;
    if (status && !o->structural) good = CHECK_STR(adamod_last_error() + 8, first + 11) && good;
    CHECK_INT(adamod_get(late.opt, o->name, &after), ADAMOD_OK);
    good = CHECK(after == (set ? before : value)) && good;
    const double scale = strcmp(o->name, "grad_scale") == 0 ? 1 / value : 1;
    for (int t = 0; !status && t < updates_for(rule, o->name, value); t++) {
        gradients(&x, t, way == 1 && t == 0 ? 0 : scale); /* or none has one at first */
        const adamod_status step = adamod_step(x.opt);
        if (step == ADAMOD_ERROR_RANGE && t == 0) {
            good = CHECK_HAS(adamod_last_error(), "eps is ") && CHECK_HAS(adamod_last_error(), kind->range) && good;
            break;
        }
        good = CHECK_INT(step, ADAMOD_OK) && CHECK(finite_one(&x, rule)) && good;
        if (!good) break;
    }
    if (!good)
        printf("  %s %s, %s=%.17g, %s: %s\n", rule, flavour, o->name, value, kind->name, status ? first : "accepted");
    adamod_free(x.opt);
    adamod_free(late.opt);
    return good;
}

TEST(every_option_at_the_ends_of_the_range) {
    for (int r = 0; adamod_rule_name(r); r++) {
        const char *rule = adamod_rule_name(r);
        adamod_option o;
        for (int i = 0; adamod_option_at(rule, i, &o) == ADAMOD_OK; i++) {
            if (o.kind != ADAMOD_REAL) continue;
            if (!strncmp(o.name, "ns_", 3)) continue; /* Muon's polynomial: of others than its own steps may diverge */
            for (int e = 0; e < EXTREMES + 3; e++) {
                const double ends[] = {o.min, o.max, nextafter(o.max, 0)};
                const double value = e < EXTREMES ? extremes[e] : ends[e - EXTREMES];
                const bool above = o.min_open ? value > o.min : value >= o.min;
                const bool below = o.max_open ? value < o.max : value <= o.max;
                for (int k = 0; above && below && k < KINDS; k++) {
                    for (int way = 0; way < 3; way++) {
                        if (fast() && (e + k + way) % 5) continue; /* every value in some way */
                        if (!sweep_value(rule, &o, &kinds[k], way, value)) return;
                    }
                }
            }
        }
    }
}

/* Values that were accepted before types had bounds, and give finite numbers, still are: the largest of each. */
TEST(bounds_of_types) {
    static const struct {
        const char *rule, *option;
        double f32, more_than_f32, f64, more_than_f64;
        const char *says;
    } cases[] = {
        {"adam", "lr", 1.8e19, 1e300, 1.3e154, 1e300, "adam: lr is 1e+300, expected lr <= 1.8e+19 in f32"},
        {"adam", "eps", 1.2e-38, 1e-46, 2.3e-308, 1e-310, "adam: eps is 1e-46, expected eps >= 1.2e-38 in f32"},
        {"adam", "clip_value", 1.2e-38, 1e-46, 1e-300, 1e-310, "clip_value is 1e-46, expected clip_value >= 1.2e-38"},
        {"adam", "clip_value", 1e300, 1e-50, INFINITY, 1e-310, "in f32"},
        {"adam", "grad_scale", 3.4e38, 1e39, 1.7e308, DBL_MAX,
         "grad_scale is 1e+39, expected grad_scale <= 3.4e+38 in f32"},
        {"adam", "beta2", 1 - 1e-9, NAN, 1 - 1e-16, NAN, ""},
        {"adagrad", "initial", 3.2e38, 1e39, 1.6e308, DBL_MAX, "expected initial <= 3.2e+38 in f32"},
        {"adabound", "final_lr", 1.8e19, 1e20, 1.3e154, 1e155, "expected final_lr <= 1.8e+19 in f32"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        for (int wide = 0; wide < 2; wide++) {
            const double taken = wide ? cases[i].f64 : cases[i].f32;
            const double refused = wide ? cases[i].more_than_f64 : cases[i].more_than_f32;
            one x;
            if (!open_one(&x, cases[i].rule, &kinds[wide])) return;
            CHECK_INT(adamod_set(x.opt, cases[i].option, taken), ADAMOD_OK);
            CHECK_INT(adamod_add_tensor(x.opt, 0, &x.tensor, NULL), ADAMOD_OK);
            adamod_free(x.opt);
            if (isnan(refused) || !open_one(&x, cases[i].rule, &kinds[wide])) continue;
            CHECK_INT(adamod_set(x.opt, cases[i].option, refused), ADAMOD_OK);
            CHECK_INT(adamod_add_tensor(x.opt, 0, &x.tensor, NULL), ADAMOD_ERROR_RANGE);
            if (!wide) CHECK_HAS(adamod_last_error(), cases[i].says);
            adamod_free(x.opt);
        }
    }
}

/* Each group by its own parameters; adamod_set by all. A refusal changes nothing. */
TEST(groups_of_two_types) {
    one x;
    double p64[N] = {0}, g64[N] = {0}, lr;
    int group;
    if (!open_one(&x, "adam", &kinds[0])) return;
    CHECK_INT(adamod_add_group(x.opt, &group), ADAMOD_OK);
    CHECK_INT(adamod_group_set(x.opt, 0, "lr", 1e100), ADAMOD_OK); /* nothing there yet */
    adamod_tensor wide = x.tensor;
    wide.name = "wide";
    wide.param = p64;
    wide.grad = g64;
    wide.param_type = wide.grad_type = ADAMOD_F64;
    CHECK_INT(adamod_add_tensor(x.opt, group, &wide, NULL), ADAMOD_OK);
    CHECK_INT(adamod_add_tensor(x.opt, 0, &x.tensor, NULL), ADAMOD_ERROR_RANGE);
    CHECK_INT(adamod_group_set(x.opt, 0, "lr", 1), ADAMOD_OK);
    CHECK_INT(adamod_add_tensor(x.opt, 0, &x.tensor, NULL), ADAMOD_OK);
    CHECK_INT(adamod_group_set(x.opt, group, "lr", 1e100), ADAMOD_OK);
    CHECK_INT(adamod_group_set(x.opt, 0, "lr", 1e100), ADAMOD_ERROR_RANGE);
    CHECK_INT(adamod_group_set_text(x.opt, 0, "lr", "1e100"), ADAMOD_ERROR_RANGE);
    CHECK_INT(adamod_set(x.opt, "lr", 1e50), ADAMOD_ERROR_RANGE);
    CHECK_INT(adamod_set(x.opt, "grad_scale", 1e100), ADAMOD_ERROR_RANGE);
    CHECK_INT(adamod_group_get(x.opt, 0, "lr", &lr), ADAMOD_OK);
    CHECK(lr == 1);
    CHECK_INT(adamod_group_get(x.opt, group, "lr", &lr), ADAMOD_OK);
    CHECK(lr == 1e100);
    adamod_free(x.opt);
}

/* ---- what is known at the step ---- */

TEST(schedules_that_leave_the_range) {
    static const struct {
        const char *rule, *option;
        double base;
        const char *schedule;
        int taken; /* updates */
        const char *says;
    } cases[] = {
        {"sgd", "lr", 1, "linear(1e30,1)", 0, "sgd: lr is 1e+30, expected lr <= 1.8e+19 in f32"},
        {"sgd", "lr", 1, "multistep(1,2,3;1e18)", 2, "sgd: lr is 1e+36, expected lr <= 1.8e+19 in f32"},
        {"sgd", "lr", 1, "multistep(1,2,3;1e-30)", 5, NULL}, /* a learning rate may vanish */
        {"adam", "eps", 1, "multistep(1,2,3;1e-20)", 2, "adam: eps is 1e-40, expected eps >= 1.2e-38 in f32"},
        {"adam", "lr", 1e-3, "multistep(1,2,3;1e5)", 5, NULL},
        {"adam", "eps", 1e-15, "multistep(1,2;1e-11)", 2,
         "adam: lr / (1 - beta1) / eps is 1e+39, expected at most 3.4e+38 in f32"},
        {"rmsprop", "eps", 1e-15, "multistep(1,2;1e-11)", 2,
         "rmsprop: lr / eps is 1e+39, expected at most 3.4e+38 in f32"},
        {"adabound", "lr", 1e-15, "multistep(1,2;1e14)", 2,
         "adabound: final_lr times lr's schedule is 1e+27, expected at most 1.8e+19 in f32"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        for (int wide = 0; wide < 2; wide++) {
            one x;
            adamod_schedule *s;
            if (!open_one(&x, cases[i].rule, &kinds[wide])) return;
            CHECK_INT(adamod_add_tensor(x.opt, 0, &x.tensor, NULL), ADAMOD_OK);
            if (!strcmp(cases[i].option, "eps")) {
                const double lr = !strcmp(cases[i].rule, "adam") ? (cases[i].base < 1 ? 10 : 1e-3) : 100;
                CHECK_INT(adamod_set(x.opt, "lr", lr), ADAMOD_OK);
            }
            CHECK_INT(adamod_set(x.opt, cases[i].option, cases[i].base), ADAMOD_OK);
            CHECK_INT(adamod_schedule_parse(&s, cases[i].schedule), ADAMOD_OK);
            CHECK_INT(adamod_set_schedule(x.opt, 0, cases[i].option, s), ADAMOD_OK);
            adamod_schedule_free(s);
            const int taken = wide ? 5 : cases[i].taken;
            for (int t = 0; t < 5; t++) {
                gradients(&x, t, 1);
                const bool good = CHECK_INT(adamod_step(x.opt), t < taken ? ADAMOD_OK : ADAMOD_ERROR_RANGE);
                if (!good) printf("  case %zu, %s, update %d: %s\n", i, kinds[wide].name, t, adamod_last_error());
                if (t == taken && cases[i].says) CHECK_HAS(adamod_last_error(), cases[i].says);
                CHECK(finite_one(&x, cases[i].rule));
            }
            CHECK_INT(adamod_steps(x.opt), taken);
            adamod_free(x.opt);
        }
    }
}

/* By eps alone an element that never had a gradient is divided: none may be 0, whichever way it is set. */
TEST(an_eps_of_zero) {
    static const char *const says = "adamod: %s: %s is 0, expected 0 < %s < inf: it alone divides where all gradients "
                                    "are zero; the default is %s";
    static const struct {
        const char *rule, *option, *say;
    } cases[] = {{"adamod", "eps", "1e-08"}, {"adabelief", "eps", "1e-16"}, {"adadelta", "eps", "1e-06"},
                 {"adopt", "eps", "1e-06"},  {"prodigy", "eps", "1e-08"},   {"adafactor", "eps1", "1e-30"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        one x;
        char expected[200];
        adamod_schedule *to_zero;
        adamod_hyper *h;
        double before, after;
        if (!open_one(&x, cases[i].rule, &kinds[0])) return;
        snprintf(expected, sizeof expected, says, cases[i].rule, cases[i].option, cases[i].option, cases[i].say);
        CHECK_INT(adamod_get(x.opt, cases[i].option, &before), ADAMOD_OK);
        CHECK_INT(adamod_set(x.opt, cases[i].option, 0), ADAMOD_ERROR_RANGE);
        CHECK_STR(adamod_last_error(), expected);
        CHECK_INT(adamod_group_set_text(x.opt, 0, cases[i].option, "-0"), ADAMOD_ERROR_RANGE);
        CHECK_INT(adamod_get(x.opt, cases[i].option, &after), ADAMOD_OK);
        CHECK(before == after);
        CHECK_INT(adamod_add_tensor(x.opt, 0, &x.tensor, NULL), ADAMOD_OK);
        CHECK_INT(adamod_schedule_parse(&to_zero, "linear(0,3)"), ADAMOD_OK);
        CHECK_INT(adamod_set_schedule(x.opt, 0, cases[i].option, to_zero), ADAMOD_OK);
        adamod_schedule_free(to_zero);
        adamod_status status = ADAMOD_OK;
        for (int t = 0; t < 5 && !status; t++) status = adamod_step(x.opt);
        CHECK_INT(status, ADAMOD_ERROR_RANGE);
        CHECK_STR(adamod_last_error(), expected);
        CHECK(finite_one(&x, cases[i].rule));
        adamod_free(x.opt);
        if (!CHECK_INT(adamod_hyper_create(&h, cases[i].rule), ADAMOD_OK)) return;
        CHECK_INT(adamod_hyper_set(h, cases[i].option, 0), ADAMOD_ERROR_RANGE);
        adamod_hyper_free(h);
    }
}

/* Prodigy multiplies eps by d: with the least of both, what is left would be 0 in either type. */
TEST(a_small_eps_of_prodigy) {
    for (int k = 0; k < KINDS; k++) {
        one x;
        if (!open_one(&x, "prodigy", &kinds[k])) return;
        CHECK_INT(adamod_set(x.opt, "d0", 1e-15), ADAMOD_OK);
        CHECK_INT(adamod_set(x.opt, "eps", strcmp(kinds[k].range, "f64") ? 1.2e-38 : 2.3e-308), ADAMOD_OK);
        CHECK_INT(adamod_set(x.opt, "lr", 1e-3), ADAMOD_OK);
        CHECK_INT(adamod_add_tensor(x.opt, 0, &x.tensor, NULL), ADAMOD_OK);
        for (int t = 0; t < 5; t++) {
            gradients(&x, t, t > 0);
            CHECK_INT(adamod_step(x.opt), ADAMOD_OK);
        }
        if (!CHECK(finite_one(&x, "prodigy"))) printf("  %s\n", kinds[k].name);
        adamod_free(x.opt);
    }
}

/* If neither its row nor its column has a gradient, Adafactor's rate is the others' gradient over eps1. */
TEST(large_gradients_beside_none) {
    for (int k = 0; k < KINDS; k++) {
        one x;
        if (!open_one(&x, "adafactor", &kinds[k])) return;
        CHECK_INT(adamod_add_tensor(x.opt, 0, &x.tensor, NULL), ADAMOD_OK);
        for (int t = 0; t < 3; t++) {
            gradients(&x, t, 1e12);
            CHECK_INT(adamod_step(x.opt), ADAMOD_OK);
        }
        if (!CHECK(finite_one(&x, "adafactor"))) printf("  %s\n", kinds[k].name);
        adamod_free(x.opt);
    }
}

/* lr / eps of an element that never had a gradient is multiplied by a zero. */
TEST(zero_gradients_and_a_small_eps) {
    static const char *const rules[] = {"adamod",  "adam",  "amsgrad",  "adagrad", "rmsprop",
                                        "nosadam", "radam", "adabound", "adashift"};
    for (size_t r = 0; r < sizeof rules / sizeof *rules; r++) {
        for (int wide = 0; wide < 2; wide++) {
            one x;
            if (!open_one(&x, rules[r], &kinds[wide])) return;
            CHECK_INT(adamod_add_tensor(x.opt, 0, &x.tensor, NULL), ADAMOD_OK);
            CHECK_INT(adamod_set(x.opt, "lr", 1e3), ADAMOD_OK);
            CHECK_INT(adamod_set(x.opt, "eps", wide ? 1e-306 : 1e-36), ADAMOD_OK);
            gradients(&x, 0, 1);
            CHECK_INT(adamod_step(x.opt), ADAMOD_ERROR_RANGE);
            CHECK_HAS(adamod_last_error(), wide ? "in f64" : "in f32");
            CHECK_INT(adamod_steps(x.opt), 0);
            CHECK_INT(adamod_set(x.opt, "lr", 0.1), ADAMOD_OK);
            for (int t = 0; t < 10; t++) {
                gradients(&x, t, 1);
                CHECK_INT(adamod_step(x.opt), ADAMOD_OK);
            }
            if (!CHECK(finite_one(&x, rules[r]))) printf("  %s, %s\n", rules[r], kinds[wide].name);
            adamod_free(x.opt);
        }
    }
}

/* ---- raw spans ---- */

TEST(raw_updates_refuse_the_same) {
    adamod_hyper *h, *good;
    float p[4] = {1, 1, 1, 1}, g[4] = {1, 1, 1, 1}, m[4] = {0}, v[4] = {0};
    double p64[4] = {1, 1, 1, 1}, m64[4] = {0}, v64[4] = {0};
    CHECK_INT(adamod_hyper_create(&h, "adam"), ADAMOD_OK);
    CHECK_INT(adamod_hyper_create(&good, "adam"), ADAMOD_OK);
    const adamod_span spans[2] = {{.param = p64,
                                   .grad = g,
                                   .state = {m64, v64},
                                   .param_type = ADAMOD_F64,
                                   .state_type = ADAMOD_F64,
                                   .count = 4,
                                   .step = 1},
                                  {.param = p, .grad = g, .state = {m, v}, .count = 4, .step = 1}};
    CHECK_INT(adamod_hyper_set(h, "lr", 1e100), ADAMOD_OK); /* the type is not known */
    CHECK_INT(adamod_hyper_check(h, ADAMOD_F64), ADAMOD_OK);
    CHECK_INT(adamod_hyper_check(h, ADAMOD_F32), ADAMOD_ERROR_RANGE);
    CHECK_STR(adamod_last_error(), "adamod: adam: lr is 1e+100, expected lr <= 1.8e+19 in f32");
    CHECK_INT(adamod_hyper_check(h, ADAMOD_BF16), ADAMOD_ERROR_RANGE);
    CHECK_INT(adamod_hyper_check(h, ADAMOD_Q8), ADAMOD_ERROR_ARGUMENT);
    CHECK_INT(adamod_hyper_check(NULL, ADAMOD_F32), ADAMOD_ERROR_ARGUMENT);
    CHECK_INT(adamod_update(h, spans, 2, NULL), ADAMOD_ERROR_RANGE);
    CHECK_STR(adamod_last_error(), "adamod: span 1: adam: lr is 1e+100, expected lr <= 1.8e+19 in f32");
    CHECK(p[0] == 1 && p64[0] == 1 && v64[0] == 0);
    CHECK_INT(adamod_check((const adamod_hyper *const[]){h, h}, spans, 2), ADAMOD_ERROR_RANGE);
    CHECK_INT(adamod_check((const adamod_hyper *const[]){h, good}, spans, 2), ADAMOD_OK);
    CHECK_INT(adamod_check((const adamod_hyper *const[]){good, h}, spans, 2), ADAMOD_ERROR_RANGE);
    CHECK_INT(adamod_update(h, spans, 1, NULL), ADAMOD_OK);
    CHECK_INT(adamod_hyper_set_text(h, "state_type", "bf16"), ADAMOD_OK);
    CHECK_INT(adamod_hyper_check(h, ADAMOD_F64), ADAMOD_ERROR_RANGE);
    CHECK_INT(adamod_hyper_set(good, "eps", 1e-37), ADAMOD_OK);
    CHECK_INT(adamod_hyper_check(good, ADAMOD_F32), ADAMOD_OK);
    CHECK_INT(adamod_hyper_set(good, "lr", 1e3), ADAMOD_OK);
    CHECK_INT(adamod_hyper_check(good, ADAMOD_F32), ADAMOD_ERROR_RANGE);
    CHECK_STR(adamod_last_error(), "adamod: adam: lr / (1 - beta1) / eps is 1e+41, expected at most 3.4e+38 in f32");
    adamod_hyper_free(h);
    adamod_hyper_free(good);
}

RUN_TESTS(ENTRY(every_option_at_the_ends_of_the_range), ENTRY(bounds_of_types), ENTRY(groups_of_two_types),
          ENTRY(schedules_that_leave_the_range), ENTRY(an_eps_of_zero), ENTRY(a_small_eps_of_prodigy),
          ENTRY(large_gradients_beside_none), ENTRY(zero_gradients_and_a_small_eps), ENTRY(raw_updates_refuse_the_same))
