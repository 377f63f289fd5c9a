/* test_closed_forms.c - what has a closed form: AdaMod under a constant gradient, its bound, L2 decay, NosAdam's weights,
 * and rules whose numbers are sums of powers of two.
 *
 * SPDX-License-Identifier: MIT
 */
#include "bitwise.h"

#include <math.h>

/* ---- AdaMod ---- */

/* v / (1 - beta2^t) is g^2 and m / (1 - beta1^t) is g, so with an eps of nearly 0 every eta is lr / |g|, s is that times
 * 1 - beta3^t, and the step lr (1 - beta3^t) in the gradient's direction. In f64, with u = 2^-53 = 1.1e-16, off by
 *   v    2u an update of what fades as beta2: 2u / (1 - beta2) = 2000 u, halved by the root
 *   s    likewise 2u / (1 - beta3) = 2000 u (beta3 = 0.9999: 20000 u)
 *   m    2u / (1 - beta1) = 20 u
 *   1 - beta^t  u / (1 - beta) at t = 1: 1000 u, halved by the root for beta2; 10 u for beta1
 * at most, in all below 4000 u = 4.4e-13 for beta3 up to 0.999, and 22000 u for 0.9999. */
TEST(constant_gradient) {
    static const double betas[] = {0.9, 0.99, 0.999, 0.9999};
    const double gradient[5] = {1, -3, 0.007, 1e-5, -2e4};
    for (int k = 0; k < 4; k++) {
        double p[5] = {0}, lr = 0.001;
        adamod_optimizer *opt;
        if (!CHECK_INT(adamod_create(&opt, "adamod"), 0)) return;
        CHECK_INT(adamod_set(opt, "beta3", betas[k]), 0);
        CHECK_INT(adamod_set(opt, "eps", 1e-300), 0);
        const adamod_tensor x = {
            .param = p, .grad = gradient, .param_type = ADAMOD_F64, .grad_type = ADAMOD_F64, .ndim = 1, .shape = {5}};
        CHECK_INT(adamod_add_tensor(opt, 0, &x, NULL), 0);
        for (int t = 1; t <= 4000; t++) {
            memset(p, 0, sizeof p); /* so that p is the step */
            CHECK_INT(adamod_step(opt), 0);
            const double expected = lr * -expm1(t * log1p(betas[k] - 1));
            bool good = true;
            for (int i = 0; i < 5; i++) {
                const double tolerance = (betas[k] > 0.999 ? 22000 : 4000) * 0x1p-53 * expected;
                good = good && CHECK_CLOSE(p[i], gradient[i] > 0 ? -expected : expected, tolerance);
            }
            if (!good) break;
        }
        adamod_free(opt);
    }
}

/* After a fall of the learning rate the step is the new one at once; after a rise from lr to 10 lr in a settled state,
 * k updates later it is 1 - 0.9 beta3^k of the new one. Tolerance as above; 0.99^6000 is 6e-27, so it is settled. */
TEST(changes_of_the_learning_rate) {
    double p = 0;
    const double g = 2, beta3 = 0.99;
    adamod_optimizer *opt;
    if (!CHECK_INT(adamod_create(&opt, "adamod"), 0)) return;
    CHECK_INT(adamod_set(opt, "beta3", beta3), 0);
    CHECK_INT(adamod_set(opt, "eps", 1e-300), 0);
    const adamod_tensor x = {.param = &p, .grad = &g, .param_type = ADAMOD_F64, .grad_type = ADAMOD_F64};
    CHECK_INT(adamod_add_tensor(opt, 0, &x, NULL), 0);
    for (int t = 0; t < 6000; t++) CHECK_INT(adamod_step(opt), 0);
    CHECK_INT(adamod_set(opt, "lr", 0.01), 0);
    for (int k = 1; k <= 300; k++) {
        p = 0;
        CHECK_INT(adamod_step(opt), 0);
        if (!CHECK_CLOSE(p, -0.01 * (1 - 0.9 * pow(beta3, k)), 4000 * 0x1p-53 * 0.01)) break;
    }
    CHECK_INT(adamod_set(opt, "lr", 0.0001), 0);
    p = 0;
    CHECK_INT(adamod_step(opt), 0);
    CHECK_CLOSE(p, -0.0001, 4000 * 0x1p-53 * 0.0001);
    adamod_free(opt);
}

/* The step is eta or s, never above either; and s is never above the largest eta so far, H, except by rounding: with
 * beta3 and 1 - beta3 as the type has them, b and c, an s of at most R H gives the next one (1 + u)^2 (b R + c) H,
 * which is at most R H again if R = c (1 + u)^2 / (1 - b (1 + u)^2). In f32, b + c is off by up to 2^-24, so R is not
 * 1: 1.0002 for 0.999. */
static void check_bound(const kernel_set *set, adamod_type type, double beta3) {
    enum { N = 97 };
    const real_kernels *kernels = type == ADAMOD_F64 ? set->f64 : set->f32;
    _Alignas(64) double space[7][N] = {{0}}, highest[N] = {0};
    adamod__coef_f64 k = {.gscale = 1,
                          .clip = INFINITY,
                          .lr = 1e-3,
                          .beta1 = 0.9,
                          .beta1c = 1 - 0.9,
                          .beta2 = 0.999,
                          .beta2c = 1 - 0.999,
                          .beta3 = beta3,
                          .beta3c = 1 - beta3,
                          .eps = 1e-8};
    const double u = type == ADAMOD_F64 ? 0x1p-53 : 0x1p-24, grown = (1 + u) * (1 + u);
    const double b = type == ADAMOD_F64 ? k.beta3 : (double)(float)k.beta3;
    const double c = type == ADAMOD_F64 ? k.beta3c : (double)(float)k.beta3c;
    const double most = fmax(1, c * grown / (1 - b * grown));
    const block x = {.p = space[0],
                     .g = space[1],
                     .m = space[2],
                     .v = space[3],
                     .s = space[4],
                     .eta = space[5],
                     .step = space[6],
                     .n = N};
#define AT(array, i) (type == ADAMOD_F64 ? ((double *)(array))[i] : (double)((float *)(array))[i])
    for (int t = 1; t <= 1500; t++) {
        k.mscale = 1 / (1 - pow(k.beta1, t));
        k.vscale = 1 / (1 - pow(k.beta2, t));
        for (int i = 0; i < N; i++) {
            /* quiet and loud for some hundred updates at a time, so that eta falls and rises */
            const double g = (t / 300 % 2 ? 100 : 0.01) * (rng() % 9 ? uniform() - 0.5 : 0);
            if (type == ADAMOD_F64) space[1][i] = g;
            else ((float *)space[1])[i] = (float)g;
        }
        kernels->update[RULE_adamod][0].stats(&x, &k);
        for (int i = 0; i < N; i++) {
            const double s = AT(x.s, i), eta = AT(x.eta, i), step = AT(x.step, i);
            highest[i] = fmax(highest[i], eta);
            if (!CHECK(step <= eta && step <= s && (step == eta || step == s)) || !CHECK(s <= most * highest[i])) {
                printf("%s, beta3 %g, update %d, element %d: eta %.17g, s %.17g, step %.17g, largest eta %.17g\n",
                       set->name, beta3, t, i, eta, s, step, highest[i]);
                return;
            }
        }
    }
#undef AT
}

TEST(the_bound_holds) {
    for (int i = 0; adamod__kernels_at(i); i++) {
        for (int type = ADAMOD_F32; type <= ADAMOD_F64; type++) {
            rng_state = 4;
            check_bound(adamod__kernels_at(i), (adamod_type)type, 0.9);
            check_bound(adamod__kernels_at(i), (adamod_type)type, 0.999);
            check_bound(adamod__kernels_at(i), (adamod_type)type, 0.9999);
        }
    }
}

/* ---- other rules ---- */

/* l2 adds weight_decay * p to the gradient: the same bits as a run without decay that is given this sum. The gradient
 * is near -weight_decay p on purpose, which makes the sum small. */
TEST(l2_is_a_gradient) {
    enum { N = 1030 };
    rng_state = 5;
    for (int i = 0; adamod_rule_name(i); i++) {
        float p[2][N], g[2][N];
        adamod_optimizer *opt[2];
        for (int j = 0; j < N; j++) p[0][j] = p[1][j] = (float)(2 * uniform() - 1);
        for (int k = 0; k < 2; k++) {
            if (!CHECK_INT(adamod_create(&opt[k], adamod_rule_name(i)), 0)) return;
            if (!strcmp(adamod_rule_name(i), "adashift")) CHECK_INT(adamod_set(opt[k], "window", 2), 0);
            CHECK_INT(adamod_set_text(opt[k], "decay", k ? "none" : "l2"), 0);
            CHECK_INT(adamod_set(opt[k], "weight_decay", 0.01), 0);
            CHECK_INT(adamod_add(opt[k], "x", p[k], g[k], 1, (int64_t[]){N}), 0);
        }
        CHECK_INT(adamod_set(opt[0], "grad_scale", 0.3), 0);
        CHECK_INT(adamod_set(opt[0], "clip_value", 0.02), 0);
        for (int t = 0; t < 12; t++) {
            for (int j = 0; j < N; j++) {
                g[0][j] = -p[0][j] * 0.01f / 0.3f * (float)(1 + 1e-4 * (uniform() - 0.5));
                if (j % 7 == 0) g[0][j] = (float)(uniform() - 0.5);
                float x = g[0][j] * 0.3f;
                x = x > 0.02f ? 0.02f : x < -0.02f ? -0.02f : x;
                const float added = 0.01f * p[0][j];
                g[1][j] = x + added;
            }
            CHECK_INT(adamod_step(opt[0]), 0);
            CHECK_INT(adamod_step(opt[1]), 0);
            if (!CHECK(!memcmp(p[0], p[1], sizeof p[0]))) {
                printf("%s, update %d\n", adamod_rule_name(i), t + 1);
                break;
            }
        }
        adamod_free(opt[0]);
        adamod_free(opt[1]);
    }
}

static const int64_t weights_at[] = {1, 2, 3, 63, 64, 65, 66, 100, 1000, 65536, 1000000};
static int weights_checked(void) { return fast() ? 9 : 11; }

/* t^power / (1 + 2^power + ... + t^power) for t = weights_at[0], ..., with Kahan's correction. The library has the sum in
 * closed form. */
static void sum_weights(double power, double *weights) {
    double sum = 0, low = 0;
    int64_t t = 1;
    for (int c = 0; c < weights_checked(); c++) {
        for (; t <= weights_at[c]; t++) {
            const double term = pow((double)t, power) - low, next = sum + term;
            low = (next - sum) - term;
            sum = next;
        }
        weights[c] = pow((double)weights_at[c], power) / sum;
    }
}

static void update_two(const adamod_hyper *h, double p[2], double g[2], double m[2], double v[2], int64_t step) {
    const adamod_span x = {.param = p,
                           .grad = g,
                           .state = {m, v},
                           .param_type = ADAMOD_F64,
                           .grad_type = ADAMOD_F64,
                           .state_type = ADAMOD_F64,
                           .count = 2,
                           .step = step};
    CHECK_INT(adamod_update(h, &x, 1, NULL), 0);
}

/* NosAdam at any update: v from 0 with g = 1 becomes 1 - beta2, v from 1 with g = 0 becomes beta2. The sum is right to 1e-14.
 * Powers, quotient and products add a few u. */
TEST(weights_of_nosadam) {
    static const double gammas[] = {0, 0.1, 0.5, 1 - 1e-9, 1, 1.5, 3, 10};
    for (int k = 0; k < 8; k++) {
        adamod_hyper *h;
        double weights[11];
        if (!CHECK_INT(adamod_hyper_create(&h, "nosadam"), 0)) return;
        CHECK_INT(adamod_hyper_set(h, "gamma", gammas[k]), 0);
        sum_weights(-gammas[k], weights);
        for (int c = 0; c < weights_checked(); c++) {
            double p[2] = {0}, m[2] = {0}, v[2] = {0, 1}, g[2] = {1, 0};
            update_two(h, p, g, m, v, weights_at[c]);
            bool good = CHECK_CLOSE(v[0], weights[c], weights[c] * (1e-14 + 8 * 0x1p-53));
            good &= CHECK_CLOSE(v[1], 1 - weights[c], weights[c] * 1e-14 + 4 * 0x1p-53);
            if (!good) printf("gamma %.17g, update %lld\n", gammas[k], (long long)weights_at[c]);
        }
        adamod_hyper_free(h);
    }
}

/* Schedule-Free within its warm-up, where an update weighs t^(r + weight_lr_power): y = 0 goes to z = 1 by that weight. The sum
 * is right to 2e-14. */
TEST(weights_of_schedulefree) {
    static const double powers[][2] = {{0, 0}, {1.5, 2}, {2, 3}, {0, 6}, {5, 7}, {10, 10}};
    for (int k = 0; k < 6; k++) {
        adamod_hyper *h;
        double weights[11];
        if (!CHECK_INT(adamod_hyper_create(&h, "schedulefree_sgd"), 0)) return;
        CHECK_INT(adamod_hyper_set(h, "warmup_steps", 2000000), 0);
        CHECK_INT(adamod_hyper_set(h, "r", powers[k][0]), 0);
        CHECK_INT(adamod_hyper_set(h, "weight_lr_power", powers[k][1]), 0);
        sum_weights(powers[k][0] + powers[k][1], weights);
        for (int c = 1; c < weights_checked(); c++) { /* the first puts y into z */
            double y[2] = {0}, z[2] = {1, 1}, g[2] = {0};
            update_two(h, y, g, z, NULL, weights_at[c]);
            if (!CHECK_CLOSE(y[0], weights[c], weights[c] * (2e-14 + 8 * 0x1p-53)))
                printf("power %g, update %lld\n", powers[k][0] + powers[k][1], (long long)weights_at[c]);
        }
        adamod_hyper_free(h);
    }
}

/* Sums of powers of two are exact, so these are equalities. AdaShift does not move before its window is full. */
TEST(simple_rules_in_closed_form) {
    float p = 1;
    const float g = 0.5f;
    static const struct {
        const char *rule, *options;
        double after[4];
    } forms[] = {
        {"sgd", "lr=0.25", {1 - 0.125, 1 - 0.25, 1 - 0.375, 0.5}},
        {"sgd", "lr=0.25 momentum=0.5", {1 - 0.125, 1 - 0.3125, 1 - 0.53125, 1 - 0.765625}},
        {"sgd", "lr=0.25 momentum=0.5 dampening=0.5", {1 - 0.125, 1 - 0.25, 1 - 0.375, 0.5}},
        {"sgd", "lr=0.25 momentum=0.5 nesterov=1", {1 - 0.1875, 1 - 0.40625, 1 - 0.640625, 1 - 0.8828125}},
        {"sgd", "lr=0.25 maximize=1 grad_scale=2", {1.25, 1.5, 1.75, 2}},
        {"sgd", "lr=0.25 clip_value=0.125", {1 - 0.03125, 1 - 0.0625, 1 - 0.09375, 1 - 0.125}},
        {"sgd", "lr=0 decay=independent weight_decay=0.5", {0.5, 0.25, 0.125, 0.0625}},
        {"lamb", "lr=0 decay=independent weight_decay=0.5", {0.5, 0.25, 0.125, 0.0625}},
        {"sgd", "lr=0.5 grad_scale=1e-30 decay=decoupled weight_decay=0.5", {0.75, 0.5625, 0.421875, 0.31640625}},
        {"adashift", "window=2 lr=0.125 eps=0 spatial=none beta2=0.5", {1, 1, 0.875, 0.75}},
        {"adashift", "window=3 lr=0.125 eps=0 beta2=0.5 beta1=0.5", {1, 1, 1, 0.875}},
    };
    for (size_t k = 0; k < sizeof forms / sizeof *forms; k++) {
        adamod_optimizer *opt;
        if (!CHECK_INT(adamod_create(&opt, forms[k].rule), 0)) return;
        set_options(opt, forms[k].options);
        CHECK_INT(adamod_add(opt, "x", &p, &g, 0, NULL), 0);
        p = 1;
        for (int t = 0; t < 4; t++) {
            CHECK_INT(adamod_step(opt), 0);
            /* AdaShift with a beta1 that is no power of two: m is g to 3 u (its recursion), u = 2^-24 */
            const double tolerance = forms[k].rule[0] == 'a' ? (t + 1) * 4 * 0x1p-24 : 0;
            if (!CHECK_CLOSE(p, forms[k].after[t], tolerance))
                printf("%s {%s}, update %d\n", forms[k].rule, forms[k].options, t + 1);
        }
        adamod_free(opt);
    }
}

RUN_TESTS(ENTRY(constant_gradient), ENTRY(changes_of_the_learning_rate), ENTRY(the_bound_holds),
          ENTRY(l2_is_a_gradient), ENTRY(weights_of_nosadam), ENTRY(weights_of_schedulefree),
          ENTRY(simple_rules_in_closed_form))
