/* Tests of Sophia with a Hessian, which the library's own updates leave at 0: with and without the momental bound, against
 * the formula in double, on every instruction set. Some elements never have an estimate, others lose theirs.
 *
 * SPDX-License-Identifier: MIT
 */
#include "check.h"
#include "option_sets.h"
#include "values.h"

#include <math.h>
#include <stdlib.h>

enum { N = 37, FIRST = 5, LOST = 30, UPDATES = 60 };

static const double lr = 1e-3, beta1 = 0.965, beta3 = 0.9, divided_by = 0.04 * 7;

/* h of element i in update t. */
static double estimate(int i, int t) {
    if (t < FIRST || i % 5 == 0 || (i % 5 == 1 && t >= LOST)) return 0;
    return exp(3 * noise((uint64_t)(i + N * (t / 10))));
}

typedef struct reference {
    double p[N], m[N], s[N];
} reference;

/* The momental bound begins with the first estimate, and again where there is none. */
static void step_reference(reference *r, const double *g, int t, bool bound) {
    for (int i = 0; i < N; i++) {
        const double h = estimate(i, t), eta = lr / (divided_by * h + 1e-15);
        r->m[i] = beta1 * r->m[i] + (1 - beta1) * g[i];
        r->s[i] = bound && h > 0 ? beta3 * r->s[i] + (1 - beta3) * eta : 0;
        const double rate = bound && h > 0 ? fmin(eta, r->s[i]) : eta;
        r->p[i] -= copysign(fmin(rate * fabs(r->m[i]), lr), r->m[i]);
    }
}

static double *state(adamod_optimizer *opt, const char *name) {
    void *data = NULL;
    CHECK_INT(adamod_state(opt, 0, name, &data, NULL, NULL), ADAMOD_OK);
    return data;
}

static adamod_optimizer *make(double *p, double *g, bool bound) {
    adamod_optimizer *opt = NULL;
    if (!CHECK_INT(adamod_create(&opt, "sophia"), ADAMOD_OK)) return NULL;
    apply("lr=0.001 bs=7 beta3=0.9", NULL, opt, -1, NULL);
    if (bound) apply("bound=momental", NULL, opt, -1, NULL);
    adamod_tensor t = {
        .param = p, .grad = g, .param_type = ADAMOD_F64, .grad_type = ADAMOD_F64, .ndim = 1, .shape = {N}};
    CHECK_INT(adamod_add_tensor(opt, 0, &t, NULL), ADAMOD_OK);
    return opt;
}

static void near(const double *found, const double *expected) {
    for (int i = 0; i < N; i++) CHECK(fabs(found[i] - expected[i]) <= 1e-12 * fabs(expected[i]));
}

static void compare(bool bound) {
    double p[N], g[N];
    reference r = {0};
    for (int i = 0; i < N; i++) r.p[i] = p[i] = noise((uint64_t)i);
    adamod_optimizer *opt = make(p, g, bound);
    if (!opt) return;
    int at_bound = 0;
    for (int t = 0; t < UPDATES; t++) {
        double *h = state(opt, "hessian");
        for (int i = 0; i < N; i++) {
            h[i] = estimate(i, t);
            g[i] = noise((uint64_t)(i + N * (t + 1000)));
        }
        CHECK_INT(adamod_step(opt), ADAMOD_OK);
        step_reference(&r, g, t, bound);
        near(p, r.p);
        if (bound) near(state(opt, "exp_avg_lr"), r.s);
        for (int i = 0; i < N; i++) at_bound += r.s[i] > 0 && r.s[i] < lr / (divided_by * h[i] + 1e-15);
    }
    CHECK(bound == (at_bound > UPDATES));
    adamod_free(opt);
}

TEST(it_is_the_formula_on_every_instruction_set) {
    const char *was = getenv("ADAMOD_ISA");
    char keep[64];
    snprintf(keep, sizeof keep, "%s", was ? was : "");
    for (int isa = 0; adamod_isa_name(isa); isa++) {
        setenv("ADAMOD_ISA", adamod_isa_name(isa), 1);
        compare(false);
        compare(true);
    }
    if (was) setenv("ADAMOD_ISA", keep, 1);
    else unsetenv("ADAMOD_ISA");
}

/* Before the first estimate, lr sign(m): the bits of the rule without the bound. */
TEST(the_bound_waits_for_the_first_estimate) {
    double p[N], q[N], g[N];
    for (int i = 0; i < N; i++) p[i] = q[i] = noise((uint64_t)i);
    adamod_optimizer *bounded = make(p, g, true), *free_one = make(q, g, false);
    if (!bounded || !free_one) return;
    for (int t = 0; t < 20; t++) {
        for (int i = 0; i < N; i++) g[i] = noise((uint64_t)(i + N * t));
        CHECK_INT(adamod_step(bounded), ADAMOD_OK);
        CHECK_INT(adamod_step(free_one), ADAMOD_OK);
        const double *s = state(bounded, "exp_avg_lr");
        for (int i = 0; i < N; i++) CHECK(p[i] == q[i] && s[i] == 0);
    }
    adamod_free(bounded);
    adamod_free(free_one);
}

RUN_TESTS(ENTRY(it_is_the_formula_on_every_instruction_set), ENTRY(the_bound_waits_for_the_first_estimate))
