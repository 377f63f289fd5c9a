/* Tests of options and groups: the bounds of each, in every way an option can be set, and which decide what states there
 * are.
 *
 * SPDX-License-Identifier: MIT
 */
#include "api_fixture.h"

#include <float.h>
#include <locale.h>
#include <math.h>

static double step_from(const adamod_option *o, double x, double towards) {
    return o->kind == ADAMOD_REAL ? nextafter(x, towards) : x + (towards > x ? 1 : -1);
}

/* An option set in every way there is: taken, or refused with the bounds in the message and nothing changed. */
static void try_value(adamod_optimizer *opt, adamod_hyper *h, const adamod_option *o, double value, bool allowed) {
    double was[3] = {-7, -7, -7}, now[3] = {-7, -7, -7};
    char text[64], expected[128];
    adamod_get(opt, o->name, &was[0]);
    adamod_group_get(opt, 1, o->name, &was[1]);
    adamod_hyper_get(h, o->name, &was[2]);
    snprintf(expected, sizeof expected, "%g %s %s %s %g", o->min, o->min_open ? "<" : "<=", o->name,
             o->max_open ? "<" : "<=", o->max);
    for (int way = 0; way < 6; way++) {
        if ((way == 2 || way == 3) && o->optimizer_wide) continue;
        /* what the raw interface has no use for has a test of its own */
        if (way >= 4 && o->optimizer_wide && strcmp(o->name, "grad_scale") != 0 && strcmp(o->name, "seed") != 0)
            continue;
        if (o->kind == ADAMOD_CHOICE && way % 2) continue;
        adamod_status status = ADAMOD_OK;
        snprintf(text, sizeof text, "%.17g", value);
        if (way == 0) status = adamod_set(opt, o->name, value);
        if (way == 1) status = adamod_set_text(opt, o->name, text);
        if (way == 2) status = adamod_group_set(opt, 1, o->name, value);
        if (way == 3) status = adamod_group_set_text(opt, 1, o->name, text);
        if (way == 4) status = adamod_hyper_set(h, o->name, value);
        if (way == 5) status = adamod_hyper_set_text(h, o->name, text);
        if (!CHECK_INT(status, allowed ? ADAMOD_OK : ADAMOD_ERROR_RANGE)) printf("  %s = %.17g\n", o->name, value);
        if (!allowed && o->max != 9007199254740991) CHECK_HAS(adamod_last_error(), expected); /* of that see below */
        adamod_get(opt, o->name, &now[0]);
        adamod_group_get(opt, 1, o->name, &now[1]);
        adamod_hyper_get(h, o->name, &now[2]);
        const int which = way / 2;
        CHECK(now[which] == (allowed ? value : was[which]));
        if (way == 0) CHECK(now[1] == now[0]); /* adamod_set is for all groups */
        if (!allowed) CHECK(memcmp(was, now, sizeof was) == 0);
    }
}

static void try_choices(adamod_optimizer *opt, const adamod_option *o) {
    int n = 0;
    double value = -7;
    for (; o->choices[n]; n++) {
        CHECK_INT(adamod_set_text(opt, o->name, o->choices[n]), ADAMOD_OK);
        CHECK_INT(adamod_get(opt, o->name, &value), ADAMOD_OK);
        CHECK_INT(value, n);
    }
    CHECK_INT(o->min, 0);
    CHECK_INT(o->max, n - 1);
}

TEST(bounds_of_every_option) {
    for (int r = 0; adamod_rule_name(r); r++) {
        const char *rule = adamod_rule_name(r);
        adamod_optimizer *opt = NULL;
        adamod_hyper *h = NULL;
        int group, i = 0;
        double value = -7;
        adamod_option o, same;
        CHECK_INT(adamod_create(&opt, rule), ADAMOD_OK);
        CHECK_INT(adamod_hyper_create(&h, rule), ADAMOD_OK);
        if (!opt || !h) return;
        CHECK_INT(adamod_add_group(opt, &group), ADAMOD_OK);
        for (; adamod_option_at(rule, i, &o) == ADAMOD_OK; i++) {
            CHECK_INT(adamod_option_find(rule, o.name, &same), ADAMOD_OK);
            CHECK(same.name == o.name && same.value == o.value && same.min == o.min && same.max == o.max);
            CHECK(o.help && *o.help && !strchr(o.help, '\n'));
            CHECK((o.kind == ADAMOD_CHOICE) == (o.choices != NULL));
            CHECK(!(o.structural && o.optimizer_wide));
            CHECK_INT(adamod_get(opt, o.name, &value), ADAMOD_OK);
            CHECK(value == o.value);
            CHECK_INT(adamod_hyper_get(h, o.name, &value), ADAMOD_OK);
            CHECK(value == o.value);
            const double just_below = o.min == -INFINITY ? NAN : step_from(&o, o.min, -INFINITY);
            const double just_above = o.max == INFINITY ? NAN : step_from(&o, o.max, INFINITY);
            try_value(opt, h, &o, o.value, true);
            try_value(opt, h, &o, o.min, !o.min_open);
            try_value(opt, h, &o, step_from(&o, o.min, INFINITY), true);
            try_value(opt, h, &o, just_below, false);
            try_value(opt, h, &o, o.max, !o.max_open);
            try_value(opt, h, &o, o.max == INFINITY ? DBL_MAX : step_from(&o, o.max, -INFINITY), true);
            try_value(opt, h, &o, just_above, false);
            try_value(opt, h, &o, NAN, false);
            try_value(opt, h, &o, -INFINITY, false);
            try_value(opt, h, &o, -1e300, false);
            if (o.max < INFINITY) try_value(opt, h, &o, INFINITY, false);
            if (o.kind != ADAMOD_REAL) try_value(opt, h, &o, o.min + 0.5, false);
            try_value(opt, h, &o, o.value, true);
            if (o.choices) try_choices(opt, &o);
        }
        CHECK(i >= 13);
        adamod_hyper_free(h);
        adamod_free(opt);
    }
}

TEST(bounds_tell_more_than_six_digits) {
    adamod_optimizer *opt = NULL;
    CHECK_INT(adamod_create(&opt, "adam"), ADAMOD_OK);
    CHECK_INT(adamod_set(opt, "seed", 9007199254740992.0), ADAMOD_ERROR_RANGE);
    /* not "seed is 9.0072e+15, expected ... <= 9.0072e+15" */
    CHECK_HAS(adamod_last_error(), "9007199254740992");
    CHECK_HAS(adamod_last_error(), "9007199254740991");
    adamod_free(opt);
}

TEST(shared_options) {
    static const struct {
        const char *name;
        double value;
        int structural, wide;
    } shared[] = {{"weight_decay", 0, 0, 0},  {"maximize", 0, 0, 0},         {"clip_value", INFINITY, 0, 0},
                  {"low_precision", 0, 1, 0}, {"state_type", 0, 1, 0},       {"grad_scale", 1, 0, 1},
                  {"min_8bit_size", 0, 1, 0}, {"clip_norm", INFINITY, 0, 1}, {"nonfinite", 0, 0, 1},
                  {"seed", 0, 0, 1},          {"threads", 0, 0, 1}};
    for (int r = 0; adamod_rule_name(r); r++) {
        const char *rule = adamod_rule_name(r);
        adamod_option o = {0};
        for (size_t i = 0; i < sizeof shared / sizeof *shared; i++) {
            CHECK_INT(adamod_option_find(rule, shared[i].name, &o), ADAMOD_OK);
            CHECK(o.value == shared[i].value);
            CHECK_INT(o.structural, shared[i].structural);
            CHECK_INT(o.optimizer_wide, shared[i].wide);
        }
        CHECK_INT(adamod_option_find(rule, "decay", &o), ADAMOD_OK);
        const bool l2 = strstr("sgd adagrad rmsprop adadelta", rule) != NULL;
        CHECK_STR(o.choices[(int)o.value], l2 ? "l2" : "decoupled");
        CHECK_INT(adamod_option_find(rule, "lr", &o), ADAMOD_OK);
        CHECK(!o.structural && !o.optimizer_wide && o.kind == ADAMOD_REAL);
    }
}

/* A rule, an option of it, the value it has when a parameter is added, one that needs other states, and one that does
 * not (or the same again). */
static const struct {
    const char *rule, *option;
    double first, other, same;
} structural[] = {
    {"adamod", "state_type", 0, 1, 0},   {"adamod", "low_precision", 0, 1, 0}, {"sgd", "momentum", 0.9, 0, 0.5},
    {"sgd", "momentum", 0, 0.9, 0},      {"rmsprop", "momentum", 0, 0.5, 0},   {"rmsprop", "momentum", 0.5, 0, 0.25},
    {"rmsprop", "centered", 0, 1, 0},    {"rmsprop", "centered", 1, 0, 1},     {"adagrad", "initial", 0, 0.5, 0},
    {"adagrad", "initial", 0.5, 0, 0.5}, {"adashift", "window", 3, 4, 3},      {"adashift", "spatial", 0, 1, 0},
    {"adashift", "spatial", 1, 0, 1},    {"adafactor", "beta1", 0, 0.5, 0},    {"adafactor", "beta1", 0.5, 0, 0.25},
};

TEST(structural_options) {
    for (size_t i = 0; i < sizeof structural / sizeof *structural; i++) {
        const char *option = structural[i].option;
        api_fixture f;
        adamod_option o;
        double value = -7;
        int empty_group = -1;
        api_fixture_arrays(&f, structural[i].rule);
        CHECK_INT(adamod_option_find(structural[i].rule, option, &o), ADAMOD_OK);
        CHECK_INT(o.structural, 1);
        CHECK_INT(adamod_create(&f.opt, structural[i].rule), ADAMOD_OK);
        CHECK_INT(adamod_set(f.opt, option, structural[i].other), ADAMOD_OK);
        CHECK_INT(adamod_set(f.opt, option, structural[i].first), ADAMOD_OK);
        CHECK_INT(adamod_add_group(f.opt, &f.group), ADAMOD_OK);
        adamod_tensor t = api_fixture_tensor(&f, MATRIX);
        CHECK_INT(adamod_add_tensor(f.opt, 0, &t, NULL), ADAMOD_OK);
        CHECK_INT(adamod_step(f.opt), ADAMOD_OK);
        REFUSED(&f, adamod_set(f.opt, option, structural[i].other), ADAMOD_ERROR_ORDER, option);
        CHECK_HAS(message, "group 0 has parameters already");
        REFUSED(&f, adamod_group_set(f.opt, 0, option, structural[i].other), ADAMOD_ERROR_ORDER,
                "decides which states");
        CHECK_INT(adamod_set(f.opt, option, structural[i].same), ADAMOD_OK);
        CHECK_INT(adamod_get(f.opt, option, &value), ADAMOD_OK);
        CHECK(value == structural[i].same);
        /* A group without parameters is free to differ. */
        CHECK_INT(adamod_group_set(f.opt, f.group, option, structural[i].other), ADAMOD_OK);
        t = api_fixture_tensor(&f, HALF);
        CHECK_INT(adamod_add_tensor(f.opt, f.group, &t, NULL), ADAMOD_OK);
        CHECK_INT(adamod_step(f.opt), ADAMOD_OK);
        REFUSED(&f, adamod_set(f.opt, option, structural[i].other), ADAMOD_ERROR_ORDER, "group 0");
        REFUSED(&f, adamod_set(f.opt, option, structural[i].first), ADAMOD_ERROR_ORDER, "group 1");
        CHECK_INT(adamod_add_group(f.opt, &empty_group), ADAMOD_OK);
        CHECK_INT(adamod_group_get(f.opt, empty_group, option, &value), ADAMOD_OK);
        CHECK(value == structural[i].same);
        adamod_free(f.opt);
    }
}

TEST(optimizer_wide_options) {
    api_fixture f;
    if (!api_fixture_make(&f, "adamod", 3)) return;
    adamod_option o;
    int seen = 0;
    for (int i = 0; adamod_option_at("adamod", i, &o) == ADAMOD_OK; i++) {
        if (!o.optimizer_wide) continue;
        seen++;
        REFUSED(&f, adamod_group_set(f.opt, 0, o.name, o.value), ADAMOD_ERROR_ARGUMENT, "use adamod_set");
        REFUSED(&f, adamod_group_set(f.opt, 1, o.name, o.value), ADAMOD_ERROR_ARGUMENT, o.name);
        if (!o.choices) {
            REFUSED(&f, adamod_group_set_text(f.opt, 1, o.name, "1"), ADAMOD_ERROR_ARGUMENT,
                    "belongs to the whole optimizer");
        }
        double all = -7, one = -8;
        CHECK_INT(adamod_get(f.opt, o.name, &all), ADAMOD_OK);
        CHECK_INT(adamod_group_get(f.opt, 1, o.name, &one), ADAMOD_OK);
        CHECK(all == one);
    }
    CHECK_INT(seen, 5);
    adamod_free(f.opt);
}

/* A hyper has no options that an update through raw pointers would ignore: a clip_norm that is taken and then never
 * clips is worse than one that is refused. */
TEST(hyper_refuses_what_it_would_ignore) {
    adamod_hyper *h = NULL;
    if (!CHECK_INT(adamod_hyper_create(&h, "adamod"), ADAMOD_OK)) return;
    CHECK_INT(adamod_hyper_set(h, "grad_scale", 0.5), ADAMOD_OK);
    CHECK_INT(adamod_hyper_set(h, "seed", 5), ADAMOD_OK);
    CHECK_INT(adamod_hyper_set(h, "clip_norm", 1), ADAMOD_ERROR_ARGUMENT);
    CHECK_INT(adamod_hyper_set_text(h, "nonfinite", "error"), ADAMOD_ERROR_ARGUMENT);
    CHECK_INT(adamod_hyper_set(h, "threads", 2), ADAMOD_ERROR_ARGUMENT);
    adamod_hyper_free(h);
}

TEST(groups) {
    adamod_optimizer *opt = NULL;
    if (!CHECK_INT(adamod_create(&opt, "adam"), ADAMOD_OK)) return;
    float p[3] = {1, 1, 1};
    const float g[3] = {1, 1, 1};
    int groups[2] = {-1, -1};
    double value = -7;
    CHECK_INT(adamod_set(opt, "lr", 0.5), ADAMOD_OK);
    CHECK_INT(adamod_add_group(opt, &groups[0]), ADAMOD_OK);
    CHECK_INT(adamod_group_set(opt, 0, "lr", 0.25), ADAMOD_OK);
    CHECK_INT(adamod_add_group(opt, &groups[1]), ADAMOD_OK);
    CHECK_INT(groups[0], 1);
    CHECK_INT(groups[1], 2);
    const double expected[] = {0.25, 0.5, 0.25};
    for (int i = 0; i < 3; i++) {
        CHECK_INT(adamod_group_get(opt, i, "lr", &value), ADAMOD_OK);
        CHECK(value == expected[i]);
        const adamod_tensor t = {.param = &p[i], .grad = &g[i]};
        CHECK_INT(adamod_add_tensor(opt, i, &t, NULL), ADAMOD_OK);
    }
    CHECK_INT(adamod_get(opt, "lr", &value), ADAMOD_OK);
    CHECK(value == 0.25);
    CHECK_INT(adamod_step(opt), ADAMOD_OK);
    /* Adam's first step is lr. */
    for (int i = 0; i < 3; i++) CHECK_CLOSE(p[i], 1 - expected[i], 1e-5);
    CHECK_INT(adamod_set(opt, "lr", 0), ADAMOD_OK);
    float still[3];
    memcpy(still, p, sizeof p);
    CHECK_INT(adamod_step(opt), ADAMOD_OK);
    CHECK(memcmp(still, p, sizeof p) == 0);
    adamod_free(opt);
}

/* Numbers do not depend on the locale's decimal point. */
TEST(numbers_have_a_point_in_every_locale) {
    static const char *const names[] = {"de_DE.UTF-8", "de_DE.utf8", "fr_FR.UTF-8",
                                        "nl_NL.UTF-8", "de_DE",      "ru_RU.UTF-8"};
    const char *found = NULL;
    for (size_t i = 0; i < sizeof names / sizeof *names && !found; i++) found = setlocale(LC_NUMERIC, names[i]);
    if (!found) SKIP("no locale with a decimal comma is installed");
    CHECK_INT(*localeconv()->decimal_point, ',');
    adamod_optimizer *opt;
    adamod_schedule *s;
    double x = 0;
    CHECK_INT(adamod_create(&opt, "adamod"), ADAMOD_OK);
    CHECK_INT(adamod_set_text(opt, "beta1", "0.75"), ADAMOD_OK);
    CHECK_INT(adamod_get(opt, "beta1", &x), ADAMOD_OK);
    CHECK(x == 0.75);
    CHECK_INT(adamod_set_text(opt, "beta1", "0,75"), ADAMOD_ERROR_RANGE);
    CHECK_INT(adamod_set_text(opt, "beta1", "1.5"), ADAMOD_ERROR_RANGE);
    CHECK_HAS(adamod_last_error(), "1.5");
    if (CHECK_INT(adamod_schedule_parse(&s, "multistep(1;0.5)"), ADAMOD_OK)) adamod_schedule_free(s);
    CHECK_INT(*localeconv()->decimal_point, ',');
    adamod_free(opt);
    setlocale(LC_NUMERIC, "C");
}

RUN_TESTS(ENTRY(bounds_of_every_option), ENTRY(bounds_tell_more_than_six_digits), ENTRY(shared_options),
          ENTRY(structural_options), ENTRY(optimizer_wide_options), ENTRY(hyper_refuses_what_it_would_ignore),
          ENTRY(groups), ENTRY(numbers_have_a_point_in_every_locale))
