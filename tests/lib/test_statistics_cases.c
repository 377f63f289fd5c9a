/* Tests of the statistics: small cases whose numbers are known, values that are not finite, and when there are none.
 * test_statistics.c counts every element's learning rate in double.
 *
 * SPDX-License-Identifier: MIT
 */
#include "check.h"
#include "values.h"
#include "rule_table.h"

#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>

/* ---- Small cases --------------------------------------------------------------------------------------------------- */

typedef struct small {
    adamod_optimizer *opt;
    double p[8], g[8];
} small;

static void make_small(small *x, const char *rule, double lr) {
    memset(x, 0, sizeof *x);
    if (!CHECK_INT(adamod_create(&x->opt, rule), ADAMOD_OK)) abort();
    CHECK_INT(adamod_set(x->opt, "lr", lr), ADAMOD_OK);
    for (int i = 0; i < 8; i++) x->g[i] = i + 1;
    const adamod_tensor t = {
        .param = x->p, .grad = x->g, .param_type = ADAMOD_F64, .grad_type = ADAMOD_F64, .ndim = 1, .shape = {8}};
    CHECK_INT(adamod_add_tensor(x->opt, 0, &t, NULL), ADAMOD_OK);
    CHECK_INT(adamod_collect(x->opt, 1), ADAMOD_OK);
}

static adamod_statistics small_statistics(const small *x) {
    adamod_statistics s;
    memset(&s, 0xff, sizeof s);
    CHECK_INT(adamod_get_statistics(x->opt, 0, &s), ADAMOD_OK);
    return s;
}

/* The bin of a learning rate: with sgd it is the element's own. */
TEST(edges_of_bins) {
    static const struct {
        double lr;
        int bin;
    } cases[] = {
        {0, 0},      {5e-324, 0},   {1e-300, 0},   {1e-40, 0},   {1e-13, 0},   {1e-12, 0},  {1.2e-12, 0},  {1.3e-12, 1},
        {1e-11, 10}, {1e-10, 20},   {1e-9, 30},    {1e-8, 40},   {1e-7, 50},   {1e-6, 60},  {1e-5, 70},    {1e-4, 80},
        {1e-3, 90},  {1.25e-3, 90}, {1.26e-3, 91}, {1e-2, 100},  {1e-1, 110},  {0.99, 119}, {1, 120},      {1.01, 120},
        {10, 130},   {1e2, 140},    {1e4, 160},    {1e7, 190},   {7.9e7, 198}, {8e7, 199},  {9.99e7, 199}, {1e8, 199},
        {1e9, 199},  {1e38, 199},   {1e39, 199},   {1e150, 199},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        small x;
        make_small(&x, "sgd", cases[i].lr);
        CHECK_INT(adamod_step(x.opt), ADAMOD_OK);
        const adamod_statistics s = small_statistics(&x);
        CHECK_INT(s.elements, 8);
        if (!CHECK_INT(s.eta[cases[i].bin], 8) || !CHECK_INT(s.step[cases[i].bin], 8)) printf("  lr %g\n", cases[i].lr);
        CHECK(s.eta_min == cases[i].lr && s.eta_max == cases[i].lr && s.eta_median == cases[i].lr);
        CHECK(s.step_min == cases[i].lr && s.step_max == cases[i].lr && s.step_median == cases[i].lr);
        CHECK(s.bounded == 0);
        adamod_free(x.opt);
    }
}

TEST(medians) {
    /* The median of 8 elements is the lower of the two in the middle; Adam's first step has the rates lr / |g|. */
    small x;
    make_small(&x, "adam", 1);
    CHECK_INT(adamod_set(x.opt, "eps", 1e-30), ADAMOD_OK);
    CHECK_INT(adamod_step(x.opt), ADAMOD_OK);
    const adamod_statistics s = small_statistics(&x);
    CHECK_CLOSE(s.eta_min, 1.0 / 8, 1e-12);
    CHECK_CLOSE(s.eta_max, 1, 1e-12);
    CHECK_CLOSE(s.eta_median, 1.0 / 5, 0.2 * 0.0325); /* 1/8 1/7 1/6 1/5 | 1/4 1/3 1/2 1 */
    adamod_free(x.opt);
}

TEST(zeros_and_values_that_are_not_finite) {
    small x;
    adamod_statistics s;
    /* With a zero gradient eta is lr / eps. */
    make_small(&x, "adam", 0.5);
    CHECK_INT(adamod_set(x.opt, "eps", 0x1p-30), ADAMOD_OK);
    x.g[3] = x.g[5] = 0;
    CHECK_INT(adamod_step(x.opt), ADAMOD_OK);
    s = small_statistics(&x);
    CHECK_INT(s.elements, 8);
    CHECK(s.eta_max == 0x1p29);
    CHECK_CLOSE(s.grad_norm, sqrt(1 + 4 + 9 + 25 + 49 + 64), 1e-12);
    adamod_free(x.opt);
    /* NaN and infinity pass: they are not counted, and the norms say so. */
    const double bad[] = {NAN, INFINITY, -INFINITY};
    for (int i = 0; i < 3; i++) {
        make_small(&x, "adamod", 0.5);
        x.g[2] = bad[i];
        CHECK_INT(adamod_step(x.opt), ADAMOD_OK);
        s = small_statistics(&x);
        int64_t sum = 0;
        for (int b = 0; b < ADAMOD_HIST_BINS; b++) sum += s.eta[b];
        CHECK_INT(sum, s.elements);
        CHECK(s.elements >= 7); /* a learning rate of zero, lr / inf, is finite */
        CHECK(isfinite(s.eta_max) && isfinite(s.eta_median) && isfinite(s.step_max));
        CHECK(!isfinite(s.grad_norm) && !isfinite(s.update_norm));
        adamod_free(x.opt);
    }
    /* A learning rate of zero. */
    make_small(&x, "adamod", 0);
    CHECK_INT(adamod_step(x.opt), ADAMOD_OK);
    s = small_statistics(&x);
    CHECK_INT(s.eta[0], 8);
    CHECK_INT(s.step[0], 8);
    CHECK(s.eta_min == 0 && s.eta_median == 0 && s.eta_max == 0 && s.update_norm == 0 && s.bounded == 0);
    adamod_free(x.opt);
    /* Elements that never had a gradient under AdaMod: lr / eps, and bounded. */
    make_small(&x, "adamod", 1e-3);
    memset(x.g, 0, sizeof x.g);
    CHECK_INT(adamod_step(x.opt), ADAMOD_OK);
    s = small_statistics(&x);
    CHECK_CLOSE(s.eta_min, 1e5, 1e-6);
    CHECK_CLOSE(s.step_max, 1e2, 1e-6);
    CHECK(s.bounded == 1 && s.grad_norm == 0 && s.update_norm == 0);
    CHECK_INT(s.eta[170], 8);
    adamod_free(x.opt);
}

/* Elements whose parameter or states, all that are one number for each, are not finite. */
static int64_t count_nonfinite(const adamod_optimizer *opt, const char *rule, const double *p, int64_t n) {
    adamod_hyper *h;
    CHECK_INT(adamod_hyper_create(&h, rule), ADAMOD_OK);
    const void *arrays[ADAMOD_MAX_STATES + 1] = {p};
    for (int s = 0; s < ADAMOD_MAX_STATES; s++) {
        adamod_state_desc desc;
        CHECK_INT(adamod_state_at(h, 1, &n, s, &desc), ADAMOD_OK);
        if (!desc.name || desc.count != n) continue;
        void *data;
        CHECK_INT(adamod_state(opt, 0, desc.name, &data, NULL, NULL), ADAMOD_OK);
        arrays[s + 1] = data;
    }
    adamod_hyper_free(h);
    int64_t found = 0;
    for (int64_t i = 0; i < n; i++) {
        bool finite = true;
        for (int s = 0; s <= ADAMOD_MAX_STATES; s++) {
            finite = finite && (!arrays[s] || isfinite(((const double *)arrays[s])[i]));
        }
        found += !finite;
    }
    return found;
}

TEST(elements_that_are_not_finite_are_counted) {
    for (int r = 0; adamod_rule_name(r); r++) {
        static const double bad[] = {NAN, INFINITY, 1e200};
        for (int k = 0; k < 3; k++) {
            small x;
            make_small(&x, adamod_rule_name(r), 1e-3);
            bool finite = true;
            for (int t = 0; t < 30; t++) {
                x.g[2] = t == 3 ? bad[k] : 1;
                CHECK_INT(adamod_step(x.opt), ADAMOD_OK);
                const int64_t expected = count_nonfinite(x.opt, adamod_rule_name(r), x.p, 8);
                if (!CHECK_INT(small_statistics(&x).nonfinite, expected)) {
                    printf("  %s, %g, step %d\n", adamod_rule_name(r), bad[k], t);
                }
                finite = finite && expected == 0;
            }
            /* a square that overflows shows in all but those that keep none or recover */
            const char *rule = adamod_rule_name(r);
            if (!CHECK(finite == (k == 2 && rule_row_of(rule)->recovers))) printf("  %s, %g\n", rule, bad[k]);
            adamod_free(x.opt);
        }
    }
}

/* Sums of squares that a whole row or array shares are kept finite, so that one element does not stop all others. */
TEST(shared_squares_recover) {
    static const char *const names[] = {"adafactor", "adashift"};
    for (int r = 0; r < 2; r++) {
        for (int type = ADAMOD_F32; type <= ADAMOD_F64; type++) {
            for (int bf16 = 0; bf16 < 2; bf16++) {
                enum { N = 64 };
                double p[N], g[N], then[N];
                adamod_optimizer *opt;
                CHECK_INT(adamod_create(&opt, names[r]), ADAMOD_OK);
                CHECK_INT(adamod_set_text(opt, "state_type", bf16 ? "bf16" : "auto"), ADAMOD_OK);
                if (r == 1) CHECK_INT(adamod_set(opt, "window", 1) | adamod_set(opt, "beta2", 0.5), ADAMOD_OK);
                const adamod_tensor w = {.param = p,
                                         .grad = g,
                                         .param_type = (adamod_type)type,
                                         .grad_type = (adamod_type)type,
                                         .ndim = 2,
                                         .shape = {8, 8}};
                for (int i = 0; i < N; i++) put((adamod_type)type, p, i, 1);
                CHECK_INT(adamod_add_tensor(opt, 0, &w, NULL), ADAMOD_OK);
                bool finite = true;
                int still = 0;
                for (int t = 0; t < 3000; t++) {
                    for (int i = 0; i < N; i++) put((adamod_type)type, g, i, 1 + 0.01 * ((i + t) % 7));
                    if (t == 3) put((adamod_type)type, g, 20, type == ADAMOD_F64 && !bf16 ? 1e160 : 1e22);
                    CHECK_INT(adamod_step(opt), ADAMOD_OK);
                    for (int i = 0; i < N; i++) {
                        const double now = type == ADAMOD_F64 ? p[i] : (double)((float *)p)[i];
                        finite = finite && isfinite(now);
                        if (t == 10) then[i] = now;
                        if (t == 2999) still += then[i] == now;
                    }
                }
                if (!CHECK(finite) ||
                    !CHECK(still <= (r == 0 ? 15 : 1))) /* its row and column take longer, or itself */
                    printf("  %s, type %d, bf16 states %d, %d still\n", names[r], type, bf16, still);
                adamod_free(opt);
            }
        }
    }
}

TEST(frozen_and_empty) {
    small x;
    float p[3] = {1, 2, 3};
    const float g[3] = {1, 1, 1};
    make_small(&x, "adamod", 1e-3);
    CHECK_INT(adamod_add(x.opt, "frozen", p, NULL, 1, (const int64_t[]){3}), ADAMOD_OK);
    CHECK_INT(adamod_add(x.opt, "empty", NULL, NULL, 1, (const int64_t[]){0}), ADAMOD_OK);
    CHECK_INT(adamod_step(x.opt), ADAMOD_OK);
    CHECK_INT(small_statistics(&x).elements, 8);
    CHECK_INT(adamod_set_grad(x.opt, 1, g), ADAMOD_OK);
    CHECK_INT(adamod_step(x.opt), ADAMOD_OK);
    CHECK_INT(small_statistics(&x).elements, 11);
    for (int i = 0; i < 2; i++) CHECK_INT(adamod_set_grad(x.opt, i, NULL), ADAMOD_OK);
    CHECK_INT(adamod_step(x.opt), ADAMOD_OK);
    const adamod_statistics s = small_statistics(&x);
    CHECK_INT(s.elements, 0);
    CHECK(s.grad_norm == 0 && s.update_norm == 0 && s.eta_max == 0 && s.bounded == 0);
    adamod_free(x.opt);
}

/* ---- When there are none ------------------------------------------------------------------------------------------ */

TEST(statistics_that_were_not_collected) {
    small x;
    adamod_statistics s, untouched;
    memset(&s, 0x5a, sizeof s);
    untouched = s;
    make_small(&x, "adamod", 1e-3);
    CHECK_INT(adamod_collect(x.opt, 0), ADAMOD_OK);
    CHECK_INT(adamod_get_statistics(x.opt, -1, &s), ADAMOD_ERROR_ORDER);
    CHECK_HAS(adamod_last_error(), "adamod_collect");
    CHECK_INT(adamod_step(x.opt), ADAMOD_OK);
    CHECK_INT(adamod_get_statistics(x.opt, 0, &s), ADAMOD_ERROR_ORDER);
    CHECK_INT(adamod_collect(x.opt, 1), ADAMOD_OK);
    CHECK_INT(adamod_get_statistics(x.opt, 0, &s), ADAMOD_ERROR_ORDER); /* not yet */
    CHECK(memcmp(&s, &untouched, sizeof s) == 0);
    CHECK_INT(adamod_step(x.opt), ADAMOD_OK);
    CHECK_INT(adamod_get_statistics(x.opt, 0, &s), ADAMOD_OK);
    CHECK_INT(adamod_collect(x.opt, 1), ADAMOD_OK); /* once more is no change */
    CHECK_INT(adamod_get_statistics(x.opt, -1, &s), ADAMOD_OK);
    CHECK_INT(s.elements, 8);
    CHECK_INT(adamod_get_statistics(x.opt, 1, &s), ADAMOD_ERROR_RANGE);
    CHECK_INT(adamod_get_statistics(x.opt, -2, &s), ADAMOD_ERROR_RANGE);
    CHECK_INT(adamod_collect(x.opt, 0), ADAMOD_OK);
    CHECK_INT(adamod_get_statistics(x.opt, 0, &s), ADAMOD_ERROR_ORDER);
    CHECK_INT(adamod_step(x.opt), ADAMOD_OK);
    CHECK_INT(adamod_collect(x.opt, -5), ADAMOD_OK); /* anything but 0 is on */
    CHECK_INT(adamod_get_statistics(x.opt, 0, &s), ADAMOD_ERROR_ORDER);
    CHECK_INT(adamod_step(x.opt), ADAMOD_OK);
    CHECK_INT(adamod_get_statistics(x.opt, 0, &s), ADAMOD_OK);
    adamod_free(x.opt);
}

TEST(groups_that_come_later) {
    small x;
    adamod_statistics s;
    float p = 0;
    const float g = 1;
    int group = -1;
    make_small(&x, "sgd", 0.5);
    CHECK_INT(adamod_step(x.opt), ADAMOD_OK);
    CHECK_INT(adamod_add_group(x.opt, &group), ADAMOD_OK);
    CHECK_INT(adamod_get_statistics(x.opt, group, &s), ADAMOD_OK);
    CHECK_INT(s.elements, 0);
    CHECK_INT(adamod_get_statistics(x.opt, -1, &s), ADAMOD_OK);
    CHECK_INT(s.elements, 8);
    const adamod_tensor t = {.param = &p, .grad = &g};
    CHECK_INT(adamod_add_tensor(x.opt, group, &t, NULL), ADAMOD_OK);
    CHECK_INT(adamod_collect(x.opt, 0), ADAMOD_OK);
    CHECK_INT(adamod_add_group(x.opt, &group), ADAMOD_OK); /* while it is off */
    CHECK_INT(adamod_collect(x.opt, 1), ADAMOD_OK);
    CHECK_INT(adamod_step(x.opt), ADAMOD_OK);
    const int64_t expected[] = {9, 8, 1, 0};
    for (int i = -1; i < 3; i++) {
        CHECK_INT(adamod_get_statistics(x.opt, i, &s), ADAMOD_OK);
        CHECK_INT(s.elements, expected[i + 1]);
    }
    adamod_free(x.opt);
}

/* A step that fails leaves the statistics of the one before. */
TEST(steps_that_fail) {
    small x;
    make_small(&x, "adamod", 1e-3);
    CHECK_INT(adamod_set_text(x.opt, "nonfinite", "error"), ADAMOD_OK);
    CHECK_INT(adamod_step(x.opt), ADAMOD_OK);
    const adamod_statistics s = small_statistics(&x);
    x.g[0] = NAN;
    CHECK_INT(adamod_step(x.opt), ADAMOD_ERROR_NONFINITE);
    const adamod_statistics again = small_statistics(&x);
    CHECK(memcmp(&s, &again, sizeof s) == 0);
    adamod_free(x.opt);
}

static int64_t sum_of(const int64_t counts[ADAMOD_HIST_BINS]) {
    int64_t sum = 0;
    for (int i = 0; i < ADAMOD_HIST_BINS; i++) sum += counts[i];
    return sum;
}

/* Their eta, lr / eps, is the largest that there can be. Here 1e-3 / 1e-8: the first bin from 1e5 on. */
TEST(elements_without_a_gradient_are_counted_apart) {
    static const char *const names[] = {"adamod", "adam", "amsgrad", "nosadam", "adagrad", "sgd"};
    for (size_t r = 0; r < sizeof names / sizeof *names; r++) {
        small x;
        make_small(&x, names[r], 1e-3);
        const bool moments = strcmp(names[r], "sgd") != 0;
        for (int i = 0; i < 3; i++) x.g[i] = 0;
        for (int t = 0; t < 3; t++) {
            CHECK_INT(adamod_step(x.opt), ADAMOD_OK);
            const adamod_statistics s = small_statistics(&x);
            const int idle = !moments ? 0 : t < 2 ? 3 : 2;
            CHECK_INT(s.elements, 8);
            CHECK_INT(sum_of(s.eta), 8);
            if (!CHECK_INT(sum_of(s.idle_eta), idle) || !CHECK_INT(sum_of(s.idle_step), idle))
                printf("  %s\n", names[r]);
            if (!strcmp(names[r], "adam"))
                CHECK(s.eta[170] == idle && s.idle_eta[170] == idle && s.idle_step[170] == idle);
            if (t == 1) x.g[0] = 1; /* it had one; that it ends does not matter */
        }
        x.g[0] = 0;
        CHECK_INT(adamod_step(x.opt), ADAMOD_OK);
        CHECK_INT(sum_of(small_statistics(&x).idle_eta), moments ? 2 : 0);
        adamod_free(x.opt);
    }
}

RUN_TESTS(ENTRY(edges_of_bins), ENTRY(medians), ENTRY(zeros_and_values_that_are_not_finite),
          ENTRY(elements_that_are_not_finite_are_counted), ENTRY(shared_squares_recover), ENTRY(frozen_and_empty),
          ENTRY(statistics_that_were_not_collected), ENTRY(groups_that_come_later), ENTRY(steps_that_fail),
          ENTRY(elements_without_a_gradient_are_counted_apart))
