/* Cautious steps: against the reference in double for every rule that has them, and against what they come to by hand.
 *
 * SPDX-License-Identifier: MIT
 */
#include "check.h"
#include "option_sets.h"
#include "reference.h"
#include "values.h"

#include <math.h>
#include <stdlib.h>

enum { N = 601, UPDATES = 40, MANY = 5000 };

static bool has_option(const char *rule) {
    adamod_option o;
    return adamod_option_find(rule, "cautious", &o) == ADAMOD_OK;
}

static adamod_optimizer *make(const char *rule, const char *options, double *p, double *g, int64_t n) {
    adamod_optimizer *opt = NULL;
    if (!CHECK_INT(adamod_create(&opt, rule), ADAMOD_OK)) return NULL;
    apply(options, NULL, opt, -1, NULL);
    adamod_tensor t = {
        .param = p, .grad = g, .param_type = ADAMOD_F64, .grad_type = ADAMOD_F64, .ndim = 1, .shape = {n}};
    CHECK_INT(adamod_add_tensor(opt, 0, &t, NULL), ADAMOD_OK);
    return opt;
}

/* The number of elements that stayed where they were, over all updates; -1: the reference gives another result. */
static int compare(const char *rule, const char *options) {
    double p[N], q[N], g[N], before[N];
    ref_options o;
    int stayed = 0;
    ref_defaults(rule, &o);
    apply(options, &o, NULL, -1, NULL);
    for (int i = 0; i < N; i++) q[i] = p[i] = noise((uint64_t)i);
    adamod_optimizer *opt = make(rule, options, p, g, N);
    ref_state *ref = ref_create(rule, &o, 1, (int64_t[]){N});
    for (int t = 0; t < UPDATES; t++) {
        for (int i = 0; i < N; i++) g[i] = noise((uint64_t)(i + N * (t + 1000)));
        memcpy(before, p, sizeof p);
        CHECK_INT(adamod_step(opt), ADAMOD_OK);
        ref_step(ref, q, g, &o);
        for (int i = 0; i < N; i++) {
            stayed += p[i] == before[i];
            if (fabs(p[i] - q[i]) > 1e-10) stayed = -UPDATES * N;
        }
    }
    ref_free(ref);
    adamod_free(opt);
    return stayed < 0 ? -1 : stayed;
}

TEST(every_rule_agrees_with_the_reference) {
    int rules = 0;
    for (int r = 0; adamod_rule_name(r); r++) {
        const char *rule = adamod_rule_name(r);
        adamod_option o;
        if (!has_option(rule)) continue;
        rules++;
        const bool sgd = strcmp(rule, "sgd") == 0, bound = adamod_option_find(rule, "bound", &o) == ADAMOD_OK;
        const int plain = compare(rule, sgd ? "momentum=0.9 cautious=1" : "cautious=1");
        const int more = compare(rule, sgd     ? "momentum=0.9 nesterov=1 cautious=1"
                                       : bound ? "bound=momental beta3=0.9 cautious=1 maximize=1"
                                               : "cautious=1 grad_scale=0.5");
        if (!CHECK(plain > UPDATES * N / 50 && more > UPDATES * N / 50)) printf("    %s: %d %d\n", rule, plain, more);
    }
    CHECK_INT(rules, 8);
}

/* Without momentum a step never goes against its gradient, and sgd takes its usual step. */
TEST(sgd_without_momentum_has_nothing_to_be_cautious_about) {
    double p[2] = {1, 1}, g[2] = {0.5, 0};
    adamod_optimizer *opt = make("sgd", "lr=0.1 cautious=1", p, g, 2);
    CHECK_INT(adamod_step(opt), ADAMOD_OK);
    CHECK(p[0] == 1 - 0.1 * 0.5 && p[1] == 1);
    adamod_free(opt);
}

/* If all steps are against the gradient, nothing moves. If one of 5000 is with it, it goes 1000 times as far, not 5000
 * times. */
TEST(few_that_move_go_at_most_a_thousand_times_as_far) {
    double *p = calloc(MANY, sizeof *p), *g = calloc(MANY, sizeof *g);
    adamod_optimizer *opt = make("sgd", "lr=0.001 momentum=0.9 cautious=1", p, g, MANY);
    for (int i = 0; i < MANY; i++) g[i] = 1;
    CHECK_INT(adamod_step(opt), ADAMOD_OK); /* all move, none further */
    for (int i = 0; i < MANY; i++) CHECK(p[i] == -0.001);
    for (int i = 0; i < MANY; i++) g[i] = i == 7 ? 1 : -0.1;
    CHECK_INT(adamod_step(opt), ADAMOD_OK);
    CHECK_CLOSE(p[7], -0.001 - 0.001 * 1.9 * 1000, 1e-12);
    CHECK(p[6] == -0.001 && p[8] == -0.001);
    for (int i = 0; i < MANY; i++) g[i] = -0.1;
    CHECK_INT(adamod_step(opt), ADAMOD_OK);
    CHECK(p[6] == -0.001 && p[8] == -0.001);
    adamod_free(opt);
    free(p);
    free(g);
}

/* The factor is of each array alone; a group without caution steps as ever; and the option may change at any time. */
TEST(groups_differ_and_change) {
    double p[3][N], g[3][N], q[N], h[N];
    for (int i = 0; i < N; i++) {
        q[i] = noise((uint64_t)i);
        for (int k = 0; k < 3; k++) p[k][i] = q[i];
    }
    adamod_optimizer *opt = make("adam", "cautious=1", p[0], g[0], N), *plain = make("adam", "", q, h, N);
    int group = -1;
    CHECK_INT(adamod_add_group(opt, &group), ADAMOD_OK);
    CHECK_INT(adamod_group_set(opt, group, "cautious", 0), ADAMOD_OK);
    for (int k = 1; k < 3; k++) {
        adamod_tensor t = {
            .param = p[k], .grad = g[k], .param_type = ADAMOD_F64, .grad_type = ADAMOD_F64, .ndim = 1, .shape = {N}};
        CHECK_INT(adamod_add_tensor(opt, k == 1 ? group : 0, &t, NULL), ADAMOD_OK);
    }
    for (int t = 0; t < 20; t++) {
        for (int i = 0; i < N; i++) {
            h[i] = g[0][i] = g[1][i] = noise((uint64_t)(i + N * (t + 1000)));
            g[2][i] = i % 2 ? g[0][i] : 0;
        }
        CHECK_INT(adamod_step(opt), ADAMOD_OK);
        CHECK_INT(adamod_step(plain), ADAMOD_OK);
    }
    CHECK(memcmp(p[1], q, sizeof q) == 0);
    CHECK(p[0][1] != p[1][1] && p[0][1] != p[2][1]);
    CHECK_INT(adamod_set(opt, "cautious", 0), ADAMOD_OK);
    memcpy(q, p[1], sizeof q);
    CHECK_INT(adamod_step(opt), ADAMOD_OK);
    CHECK_INT(adamod_step(plain), ADAMOD_OK);
    CHECK(memcmp(p[1], q, sizeof q) == 0);
    adamod_free(opt);
    adamod_free(plain);
}

TEST(a_nan_shows) {
    double p[4] = {1, 1, 1, 1}, g[4] = {1, NAN, 1, -1};
    adamod_optimizer *opt = make("adamod", "cautious=1", p, g, 4);
    CHECK_INT(adamod_step(opt), ADAMOD_OK);
    CHECK(isnan(p[1]) && p[0] < 1 && p[3] > 1);
    adamod_free(opt);
}

RUN_TESTS(ENTRY(every_rule_agrees_with_the_reference), ENTRY(sgd_without_momentum_has_nothing_to_be_cautious_about),
          ENTRY(few_that_move_go_at_most_a_thousand_times_as_far), ENTRY(groups_differ_and_change), ENTRY(a_nan_shows))
