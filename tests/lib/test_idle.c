/* skip_idle: the momental bound's average of an element begins with its first gradient other than 0, for every rule that has
 * the bound, in every type of states.
 *
 * SPDX-License-Identifier: MIT
 */
#define _GNU_SOURCE
#include "check.h"
#include "option_sets.h"
#include "reference.h"
#include "values.h"

#include <math.h>
#include <stdlib.h>

enum { N = 600, FIRST = 25, UPDATES = 60 };

/* Of three elements, one has gradients from the first update on, one from update FIRST on, one never. */
static bool is_idle(int i, int t) { return i % 3 == 2 || (i % 3 == 1 && t < FIRST); }
static double gradient(int i, int t) {
    const double x = noise((uint64_t)(i + N * t));
    return is_idle(i, t) ? 0 : x + copysign(0.1, x);
}

static bool has_option(const char *rule) {
    adamod_option o;
    return adamod_option_find(rule, "skip_idle", &o) == ADAMOD_OK;
}

/* The options that switch the bound on. */
static const char *bound_of(const char *rule) { return strcmp(rule, "adamod") == 0 ? "" : "bound=momental"; }

typedef struct setting {
    adamod_optimizer *opt;
    double wide[N];
    float narrow[N];
    union {
        double wide[N];
        float narrow[N];
    } g;
    bool f64;
    int t;
} setting;

static bool open_setting(setting *x, const char *rule, const char *options, adamod_type type, const char *isa) {
    *x = (setting){.f64 = type == ADAMOD_F64};
    if (isa) setenv("ADAMOD_ISA", isa, 1);
    const adamod_status status = adamod_create(&x->opt, rule);
    unsetenv("ADAMOD_ISA");
    if (!CHECK_INT(status, ADAMOD_OK)) return false;
    apply(bound_of(rule), NULL, x->opt, -1, NULL);
    apply(options, NULL, x->opt, -1, NULL);
    for (int i = 0; i < N; i++) x->narrow[i] = (float)(x->wide[i] = noise((uint64_t)(i + 1000000)));
    adamod_tensor t = {.name = "w", .param_type = type, .grad_type = type, .ndim = 1, .shape = {N}};
    t.param = x->f64 ? (void *)x->wide : x->narrow;
    t.grad = &x->g;
    return CHECK_INT(adamod_add_tensor(x->opt, 0, &t, NULL), ADAMOD_OK);
}

static void step_setting(setting *x) {
    for (int i = 0; i < N; i++) {
        if (x->f64) x->g.wide[i] = gradient(i, x->t);
        else x->g.narrow[i] = (float)gradient(i, x->t);
    }
    CHECK_INT(adamod_step(x->opt), ADAMOD_OK);
    x->t++;
}

/* A state's values, whatever its type. */
static void read_state(const setting *x, const char *name, double *out) {
    void *data = NULL, *scales = NULL;
    adamod_type type = ADAMOD_F32;
    char scale[64];
    snprintf(scale, sizeof scale, "%s_scale", name);
    CHECK_INT(adamod_state(x->opt, 0, name, &data, &type, NULL), ADAMOD_OK);
    float decoded[N];
    if (type == ADAMOD_Q8) {
        CHECK_INT(adamod_state(x->opt, 0, scale, &scales, NULL, NULL), ADAMOD_OK);
        CHECK_INT(adamod_q8_decode(1, N, data, scales, decoded), ADAMOD_OK);
        for (int i = 0; i < N; i++) out[i] = (double)decoded[i];
    } else {
        for (int i = 0; i < N; i++) out[i] = get(type, data, i);
    }
}

TEST(every_rule_agrees_with_the_reference) {
    int rules = 0;
    for (int r = 0; adamod_rule_name(r); r++) {
        const char *rule = adamod_rule_name(r);
        if (!has_option(rule)) continue;
        rules++;
        setting x;
        if (!open_setting(&x, rule, "skip_idle=1 beta3=0.9", ADAMOD_F64, NULL)) return;
        ref_options o;
        double p[N], g[N], s[N];
        ref_defaults(rule, &o);
        CHECK(ref_set(&o, "bound", strcmp(rule, "adamod") != 0) && ref_set(&o, "skip_idle", 1));
        CHECK(ref_set(&o, "beta3", 0.9));
        ref_state *ref = ref_create(rule, &o, 1, (int64_t[]){N});
        memcpy(p, x.wide, sizeof p);
        bool near = true;
        for (int t = 0; t < UPDATES && near; t++) {
            step_setting(&x);
            for (int i = 0; i < N; i++) g[i] = gradient(i, t);
            ref_step(ref, p, g, &o);
            const double *expected = ref_get(ref, "exp_avg_lr", NULL);
            read_state(&x, "exp_avg_lr", s);
            for (int i = 0; i < N; i++) {
                near = near && fabs(s[i] - expected[i]) <= 1e-9 * expected[i] && fabs(x.wide[i] - p[i]) <= 1e-9;
                near = near && (!is_idle(i, t) || s[i] == 0);
            }
        }
        for (int i = 0; i < N; i++) near = near && (s[i] > 0) == !is_idle(i, UPDATES);
        if (!CHECK(near)) printf("    %s\n", rule);
        ref_free(ref);
        adamod_free(x.opt);
    }
    CHECK(rules >= 19);
}

/* Rules whose average begins late by itself, and those that have none, do not take the option. */
TEST(other_rules_do_not_have_it) {
    static const char *const rules[] = {"adashift", "sophia", "sgd", "lion", "adabound", "muon", "soap"};
    for (size_t i = 0; i < sizeof rules / sizeof *rules; i++) CHECK(!has_option(rules[i]));
}

/* As published: s fills with lr / eps, so that the bound does nothing for long. */
TEST(the_default_is_as_published) {
    setting x;
    double s[N];
    if (!open_setting(&x, "adamod", "", ADAMOD_F32, NULL)) return;
    for (int t = 0; t < UPDATES; t++) step_setting(&x);
    read_state(&x, "exp_avg_lr", s);
    const double full = 1e-3 / 1e-8;
    for (int i = 2; i < N; i += 3) CHECK_CLOSE(s[i], full * (1 - pow(0.999, UPDATES)), 1e-3 * full);
    CHECK(s[1] > 1000 && s[0] < 1);
    adamod_free(x.opt);
}

/* After its first gradient, an element's s is near that in f32; without one it stays exactly 0, beside larger ones, too. */
TEST(every_type_of_states) {
    static const char *const rules[] = {"adamod", "adam"};
    static const struct {
        const char *options;
        double near;
    } types[] = {{"state_type=auto", 0}, {"state_type=bf16", 0.05}, {"state_type=q8", 0.3}};
    for (int r = 0; r < 2; r++) {
        setting f32;
        double expected[N], s[N];
        if (!open_setting(&f32, rules[r], "skip_idle=1 beta3=0.9", ADAMOD_F32, NULL)) return;
        for (int t = 0; t < UPDATES; t++) step_setting(&f32);
        read_state(&f32, "exp_avg_lr", expected);
        for (size_t k = 0; k < sizeof types / sizeof *types; k++) {
            setting x;
            char options[64];
            snprintf(options, sizeof options, "skip_idle=1 beta3=0.9 %s", types[k].options);
            if (!open_setting(&x, rules[r], options, ADAMOD_F32, NULL)) return;
            for (int t = 0; t < UPDATES; t++) step_setting(&x);
            read_state(&x, "exp_avg_lr", s);
            double off = 0;
            for (int i = 0; i < N; i++) {
                if (i % 3 == 2) CHECK(s[i] == 0 && x.narrow[i] == f32.narrow[i]);
                else off += fabs(s[i] / expected[i] - 1) / (N - N / 3);
            }
            if (!CHECK(off <= types[k].near)) printf("    %s %s: %g\n", rules[r], types[k].options, off);
            adamod_free(x.opt);
        }
        adamod_free(f32.opt);
    }
}

TEST(instruction_sets_agree) {
    static const char *const types[] = {"state_type=auto", "state_type=bf16", "state_type=q8"};
    for (int k = 0; k < 3; k++) {
        setting first;
        double expected[N], s[N];
        for (int isa = 0; adamod_isa_name(isa); isa++) {
            setting x;
            char options[64];
            snprintf(options, sizeof options, "skip_idle=1 %s", types[k]);
            if (!open_setting(&x, "adamod", options, ADAMOD_F32, adamod_isa_name(isa))) return;
            for (int t = 0; t < UPDATES; t++) step_setting(&x);
            read_state(&x, "exp_avg_lr", isa ? s : expected);
            if (isa) CHECK(memcmp(x.narrow, first.narrow, sizeof x.narrow) == 0 && memcmp(s, expected, sizeof s) == 0);
            else first = x;
            if (isa) adamod_free(x.opt);
        }
        adamod_free(first.opt);
    }
}

/* Codes of states that were saved and loaded as numbers are the same. */
TEST(zeros_stay_zeros_in_8_bits) {
    float values[N], back[N], scales[3];
    uint8_t codes[N];
    for (int i = 0; i < N; i++) values[i] = i % 3 == 2 ? 0 : (float)exp(3 * noise((uint64_t)i));
    CHECK_INT(adamod_q8_encode(1, N, values, codes, scales), ADAMOD_OK);
    CHECK_INT(adamod_q8_decode(1, N, codes, scales, back), ADAMOD_OK);
    for (int i = 0; i < N; i++) CHECK((back[i] == 0) == (values[i] == 0));
}

RUN_TESTS(ENTRY(every_rule_agrees_with_the_reference), ENTRY(other_rules_do_not_have_it),
          ENTRY(the_default_is_as_published), ENTRY(every_type_of_states), ENTRY(instruction_sets_agree),
          ENTRY(zeros_stay_zeros_in_8_bits))
