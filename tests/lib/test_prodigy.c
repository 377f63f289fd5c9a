/* Tests of Prodigy's d, which depends on all arrays: against the reference over 200 updates; for any division of the
 * elements into arrays and groups; with arrays that are added late; without gradients; and that it needs no learning
 * rate.
 *
 * SPDX-License-Identifier: MIT
 */
#include "check.h"
#include "option_sets.h"
#include "reference.h"
#include "values.h"

#include <math.h>

enum { N = 60 };

/* An optimizer of p cut into arrays of these lengths, and one more of the rest. groups: each array has its own. */
static adamod_optimizer *cut(const char *options, double *p, double *g, const int *lengths, int n, bool groups) {
    adamod_optimizer *opt = NULL;
    if (!CHECK_INT(adamod_create(&opt, "prodigy"), ADAMOD_OK)) return NULL;
    apply(options, NULL, opt, -1, NULL);
    int at = 0;
    for (int i = 0; i <= n; i++) {
        int group = 0;
        if (groups && i > 0) CHECK_INT(adamod_add_group(opt, &group), ADAMOD_OK);
        adamod_tensor t = {
            .param = p + at, .grad = g + at, .param_type = ADAMOD_F64, .grad_type = ADAMOD_F64, .ndim = 1};
        t.shape[0] = i < n ? lengths[i] : N - at;
        at += (int)t.shape[0];
        CHECK_INT(adamod_add_tensor(opt, group, &t, NULL), ADAMOD_OK);
    }
    return opt;
}

static double number(adamod_optimizer *opt, int64_t tensor, const char *name) {
    void *data;
    CHECK_INT(adamod_state(opt, tensor, name, &data, NULL, NULL), ADAMOD_OK);
    return *(const double *)data;
}

static void start(double *p) {
    for (int i = 0; i < N; i++) p[i] = noise((uint64_t)i);
}

/* Noise around the way to 2, so that d grows. */
static void slope(const double *p, double *g, int t) {
    for (int i = 0; i < N; i++) g[i] = p[i] - 2 + 0.5 * noise((uint64_t)(i + N * t));
}

TEST(two_hundred_updates_are_the_reference) {
    static const char *const options[] = {"", "d0=0.001 growth_rate=1.02 weight_decay=0.1",
                                          "use_bias_correction=1 safeguard_warmup=1 d_coef=0.5",
                                          "bound=momental beta3=0.9"};
    for (int k = 0; k < 4; k++) {
        double p[N], q[N], g[N], h[N];
        const int64_t shape[1] = {N};
        ref_options o;
        ref_defaults("prodigy", &o);
        apply(options[k], &o, NULL, -1, NULL);
        ref_state *ref = ref_create("prodigy", &o, 1, shape);
        start(p);
        start(q);
        adamod_optimizer *opt = cut(options[k], p, g, (const int[]){17, 1, 30}, 3, true);
        if (!CHECK(ref) || !opt) return;
        for (int t = 1; t <= 200; t++) {
            slope(p, g, t);
            slope(q, h, t);
            CHECK_INT(adamod_step(opt), ADAMOD_OK);
            ref_step(ref, q, h, &o);
        }
        for (int i = 0; i < N; i++) CHECK_CLOSE(p[i], q[i], 1e-12);
        const double d = number(opt, 2, "d");
        CHECK_CLOSE(d, *ref_get(ref, "d", NULL), 1e-12 * d);
        CHECK(d > 1.001 * o.d0); /* else there was nothing to see */
        ref_free(ref);
        adamod_free(opt);
    }
}

/* A frozen array stands still; when it comes it takes the others' d, and its own beginning. */
TEST(arrays_that_come_late) {
    double p[N], g[N];
    start(p);
    adamod_optimizer *opt = cut("d0=0.01", p, g, (const int[]){20}, 1, false);
    if (!opt) return;
    const double first = p[0];
    CHECK_INT(adamod_set_grad(opt, 0, NULL), ADAMOD_OK);
    for (int t = 1; t <= 30; t++) {
        slope(p, g, t);
        CHECK_INT(adamod_step(opt), ADAMOD_OK);
    }
    const double d = number(opt, 1, "d");
    CHECK(p[0] == first && number(opt, 0, "d") == 0 && d > 0.02);
    CHECK_INT(adamod_set_grad(opt, 0, g), ADAMOD_OK);
    p[0] = 0.25;
    slope(p, g, 31);
    CHECK_INT(adamod_step(opt), ADAMOD_OK);
    CHECK(number(opt, 0, "p0") == 0.25);
    CHECK(number(opt, 0, "d") >= d && number(opt, 0, "d") == number(opt, 1, "d"));
    CHECK(number(opt, 0, "d_numerator") == number(opt, 1, "d_numerator"));
    CHECK(fabs(p[0] - 0.25) > 0.1 * d); /* as far as the others, not as far as d0 */
    adamod_free(opt);
}

/* A group whose learning rate is 0 stands still, and d is what it were without it; nor does d see updates at which that of all
 * is 0, as at the start of a warm-up. */
TEST(groups_without_a_learning_rate) {
    static const char *const options[] = {"d0=0.01", "d0=0.01 safeguard_warmup=1",
                                          "d0=0.01 safeguard_warmup=1 beta_d=0.9"};
    for (int k = 0; k < 3; k++) {
        double p[N], q[N], g[N], h[N];
        start(p);
        start(q);
        adamod_optimizer *opt = cut(options[k], p, g, (const int[]){20}, 1, true);
        adamod_optimizer *alone = cut(options[k], q, h, (const int[]){20}, 1, true);
        if (!opt || !alone) return;
        CHECK_INT(adamod_group_set(opt, 0, "lr", 0), ADAMOD_OK);
        CHECK_INT(adamod_set_grad(alone, 0, NULL), ADAMOD_OK);
        for (int t = 1; t <= 40; t++) {
            const bool none = t == 1 || t == 20; /* of the one alone, no update */
            CHECK_INT(adamod_group_set(opt, 1, "lr", none ? 0 : 1), ADAMOD_OK);
            slope(p, g, t);
            slope(q, h, t);
            CHECK_INT(adamod_step(opt), ADAMOD_OK);
            if (!none) CHECK_INT(adamod_step(alone), ADAMOD_OK);
        }
        for (int i = 0; i < N; i++) CHECK(p[i] == q[i]);
        CHECK(number(opt, 0, "exp_avg") == 0 && number(opt, 0, "exp_avg_sq") == 0 && number(opt, 0, "s") == 0);
        CHECK(number(opt, 1, "d") == number(alone, 1, "d") && number(opt, 0, "d") == number(opt, 1, "d"));
        CHECK(number(opt, 1, "d_numerator") == number(alone, 1, "d_numerator") && number(opt, 1, "d") > 0.02);
        adamod_free(opt);
        adamod_free(alone);
    }
}

TEST(no_gradients_change_nothing) {
    double p[N], g[N] = {0};
    start(p);
    adamod_optimizer *opt = cut("", p, g, (const int[]){20}, 1, true);
    if (!opt) return;
    for (int t = 0; t < 3; t++) CHECK_INT(adamod_step(opt), ADAMOD_OK);
    CHECK(number(opt, 0, "d") == 1e-6 && number(opt, 0, "d_max") == 1e-6 && number(opt, 0, "d_numerator") == 0);
    for (int i = 0; i < N; i++) CHECK(p[i] == noise((uint64_t)i));
    for (int i = 0; i < 2; i++) CHECK_INT(adamod_set_grad(opt, i, NULL), ADAMOD_OK);
    CHECK_INT(adamod_step(opt), ADAMOD_OK);
    adamod_free(opt);
}

/* One element that is not finite: d stays as it is, other elements go on with it. With nonfinite = skip it is as if the
 * update had not been. */
TEST(not_finite) {
    static const double bad[] = {NAN, INFINITY};
    for (int k = 0; k < 4; k++) {
        const bool skip = k >= 2;
        double p[N], g[N], before = 0;
        start(p);
        adamod_optimizer *opt = cut(skip ? "d0=0.01 nonfinite=skip" : "d0=0.01", p, g, (const int[]){20}, 1, true);
        if (!opt) return;
        for (int t = 1; t <= 40; t++) {
            slope(p, g, t);
            if (!isfinite(g[0])) g[0] = 1;
            if (t == 4) before = number(opt, 1, "d");
            if (t == 4) g[0] = bad[k % 2];
            CHECK_INT(adamod_step(opt), ADAMOD_OK);
        }
        CHECK(skip ? number(opt, 1, "d") > before : number(opt, 1, "d") == before);
        CHECK(skip ? isfinite(p[0]) : isnan(p[0]));
        for (int i = 1; i < N; i++) CHECK(isfinite(p[i]) && p[i] != noise((uint64_t)i));
        adamod_free(opt);
    }
}

/* Whatever the scale of the problem, with the same options. */
TEST(it_finds_its_learning_rate) {
    for (double far = 1e-2; far < 2e3; far *= 10) {
        double p[N] = {0}, g[N];
        adamod_optimizer *opt = cut("use_bias_correction=1", p, g, (const int[]){20}, 1, true);
        if (!opt) return;
        for (int t = 0; t < 1500; t++) {
            for (int i = 0; i < N; i++) g[i] = (1 + i % 3) * (p[i] - far);
            CHECK_INT(adamod_step(opt), ADAMOD_OK);
        }
        const double d = number(opt, 0, "d");
        CHECK(d > 0.1 * far && d < 10 * far);
        for (int i = 0; i < N; i++) CHECK_CLOSE(p[i], far, 0.01 * far);
        adamod_free(opt);
    }
}

RUN_TESTS(ENTRY(two_hundred_updates_are_the_reference), ENTRY(arrays_that_come_late),
          ENTRY(groups_without_a_learning_rate), ENTRY(no_gradients_change_nothing), ENTRY(not_finite),
          ENTRY(it_finds_its_learning_rate))
