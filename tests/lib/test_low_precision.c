/* test_low_precision.c - parameters and states of 16 bits: with masters they are the f32 run's, and rounded at random they
 * are right on average.
 *
 * SPDX-License-Identifier: MIT
 */
#include "check.h"
#include "against_reference.h"
#include "kernels/kernels.h"
#include "values.h"

#include <math.h>
#include <stdlib.h>

/* ---- masters ---- */

/* Other values for some elements of a parameter, and for the same ones of its f32 copy. */
static void change_some(array *param, array *copy) {
    for (int64_t i = 3; i < param->n; i += 7) {
        const uint16_t before = ((uint16_t *)param->data)[i];
        put(param->type, param->data, i, random_param());
        if (((uint16_t *)param->data)[i] == before) continue; /* then the master stays what it is */
        put(ADAMOD_F32, copy->data, i, get(param->type, param->data, i));
    }
}

/* A parameter of 16 bits with its master and one of f32 get the same gradients: the masters and states equal the f32
 * run's bit for bit, and the parameter is its master, rounded. Elements that are changed between steps take their masters
 * with them. */
static bool master_run(const char *rule, const char *options, adamod_type type, adamod_type grad_type, int64_t n,
                       int steps) {
    adamod_optimizer *opt[2];
    array param[2], grad[2];
    bool good = true;
    for (int k = 0; k < 2; k++) {
        param[k] = make_array(k ? ADAMOD_F32 : type, n, k);
        grad[k] = make_array(k ? ADAMOD_F32 : grad_type, n, 1 - k);
    }
    for (int64_t i = 0; i < n; i++) {
        put(type, param[0].data, i, random_param());
        put(ADAMOD_F32, param[1].data, i, get(type, param[0].data, i));
    }
    for (int k = 0; k < 2; k++) {
        if (!CHECK_INT(adamod_create(&opt[k], rule), 0)) return false;
        apply(options, NULL, opt[k], -1, NULL);
        const adamod_tensor t = {.name = "x",
                                 .param = param[k].data,
                                 .grad = grad[k].data,
                                 .param_type = param[k].type,
                                 .grad_type = grad[k].type,
                                 .ndim = 1,
                                 .shape = {n}};
        CHECK_INT(adamod_add_tensor(opt[k], 0, &t, NULL), 0);
    }
    for (int t = 1; good && t <= steps; t++) {
        if (t == 2) change_some(&param[0], &param[1]);
        for (int64_t i = 0; i < n; i++) {
            /* a bf16 holds what an f16 does not; both hold 8 bits from 2^-13 to 2^8 */
            put(ADAMOD_BF16, grad[0].data, 0, random_gradient());
            const double g = get(ADAMOD_BF16, grad[0].data, 0);
            put(ADAMOD_F32, grad[1].data, i, fabs(g) < 0x1p-13 ? 0 : g);
        }
        for (int64_t i = 0; i < n; i++) put(grad_type, grad[0].data, i, get(ADAMOD_F32, grad[1].data, i));
        good = CHECK_INT(adamod_step(opt[0]), 0) && CHECK_INT(adamod_step(opt[1]), 0);
        void *master = NULL, *a = NULL, *b = NULL;
        adamod_type a_type, b_type;
        int64_t a_count, b_count;
        good = good && CHECK_INT(adamod_state(opt[0], 0, "master", &master, &a_type, &a_count), 0) &&
               CHECK_INT(a_type, ADAMOD_F32) && CHECK_INT(a_count, n);
        good = good && CHECK(!memcmp(master, param[1].data, (size_t)n * sizeof(float)));
        for (int64_t i = 0; good && i < n; i++) {
            good = CHECK_INT(((uint16_t *)param[0].data)[i], nearest16(type, get(ADAMOD_F32, master, i)));
        }
        for (int i = 0; good && state_name(i); i++) {
            if (!strcmp(state_name(i), "master")) continue;
            const adamod_status status = adamod_state(opt[0], 0, state_name(i), &a, &a_type, &a_count);
            good = CHECK_INT(adamod_state(opt[1], 0, state_name(i), &b, &b_type, &b_count), status);
            if (status) continue;
            good = good && CHECK_INT(a_type, b_type) && CHECK_INT(a_count, b_count) &&
                   CHECK(!memcmp(a, b, (size_t)a_count * type_size(a_type)));
        }
    }
    if (!good) printf("%s {%s}, %s with %s gradients\n", rule, options, name_of(type), name_of(grad_type));
    for (int k = 0; k < 2; k++) {
        adamod_free(opt[k]);
        free(param[k].memory);
        free(grad[k].memory);
    }
    return good;
}

TEST(masters_are_the_f32_run) {
    option_set set;
    rng_state = 10;
    for (int i = 0; set_at(i, &set); i++) {
        for (int k = 0; k < 2; k++) {
            const adamod_type type = k ? ADAMOD_F16 : ADAMOD_BF16;
            if (fast() && i % 2 != k) continue;
            master_run(set.rule, set.options, type, (adamod_type)((i + k) % 4), i % 5 ? 45 : 1030,
                       i % 5    ? (fast() ? 8 : 30)
                       : fast() ? 2
                                : 6);
        }
    }
    for (int i = 0; adamod_rule_name(i); i++) { /* bf16 states are rounded with the same random numbers on both sides */
        for (int type = ADAMOD_F32; type <= ADAMOD_F16; type++) {
            if (fast() && i % 4 != type) continue;
            master_run(adamod_rule_name(i), "state_type=bf16", type % 2 ? ADAMOD_F16 : ADAMOD_BF16, (adamod_type)type,
                       601, 8);
        }
    }
}

/* ---- rounding at random, on average ---- */

static double mean_of(adamod_type type, const void *data, int64_t n) {
    double sum = 0;
    for (int64_t i = 0; i < n; i++) sum += get(type, data, i);
    return sum / (double)n;
}

/* How far two bf16 or f16 numbers next to x are apart. */
static double spacing(adamod_type type, double x) {
    const double least = type == ADAMOD_BF16 ? 0x1p-133 : 0x1p-24;
    return fmax(least, ldexp(1, ilogb(x) - (type == ADAMOD_BF16 ? 7 : 10)));
}

/* States that are averages, m = beta m + (1 - beta) x, are linear in what they were, so rounding without bias leaves
 * their mean over many elements what it would be without rounding. One rounding has a variance of at most a quarter of
 * the spacing squared, after t updates they add up to spacing^2 / 4 (1 - beta^2t) / (1 - beta^2), and the mean of n
 * elements to an n-th of that. 6 deviations, with the spacing at twice the mean, which no element reaches; what f32
 * itself rounds is (3t + 12) u of the state. When all arrays are bf16, kernels of their own are at work.
 *
 * Rounded to nearest instead, v would stop at 0.125: 0.001 of what is missing to 0.49 is less than half a spacing. */
TEST(bf16_states_are_right_on_average) {
    enum { N = 30000 };
    static const adamod_type types[] = {ADAMOD_F32, ADAMOD_F64, ADAMOD_BF16, ADAMOD_F16};
    const int updates = fast() ? 100 : 500;
    const double x = 0.7, beta1 = 0.9, beta2 = 0.999;
    for (int kind = 0; kind < 4; kind++) {
        const adamod_type type = types[kind];
        array param = make_array(type, N, 0), grad = make_array(type, N, 0);
        adamod_optimizer *opt;
        if (!CHECK_INT(adamod_create(&opt, "adam"), 0)) return;
        CHECK_INT(adamod_set_text(opt, "state_type", "bf16"), 0);
        CHECK_INT(adamod_set_text(opt, "low_precision", "stochastic"), 0);
        fill_array(&grad, x);
        const double g = get(type, grad.data, 0);
        const adamod_tensor t = {
            .param = param.data, .grad = grad.data, .param_type = type, .grad_type = type, .ndim = 1, .shape = {N}};
        CHECK_INT(adamod_add_tensor(opt, 0, &t, NULL), 0);
        for (int k = 1; k <= updates; k++) {
            CHECK_INT(adamod_step(opt), 0);
            for (int which = 0; which < 2; which++) {
                if (k != 1 && k != 10 && k != 60 && k != updates) continue;
                const double beta = which ? beta2 : beta1, exact = (which ? g * g : g) * -expm1(k * log(beta));
                const double one = pow(spacing(ADAMOD_BF16, 2 * exact), 2) / 4;
                const double variance = one * (1 - pow(beta, 2 * k)) / (1 - beta * beta);
                void *data = NULL;
                adamod_type state_type;
                int64_t count;
                CHECK_INT(adamod_state(opt, 0, which ? "exp_avg_sq" : "exp_avg", &data, &state_type, &count), 0);
                CHECK(state_type == ADAMOD_BF16 && count == N);
                const double mean = mean_of(ADAMOD_BF16, data, N);
                CHECK_CLOSE(mean, exact, 6 * sqrt(variance / N) + (3 * k + 12) * 0x1p-24 * exact);
            }
        }
        adamod_free(opt);
        free(param.memory);
        free(grad.memory);
    }
}

/* sgd without a master: every update is far below the spacing of the numbers, so rounding to nearest would leave the
 * parameter where it is. Its mean must move by all of them; the variance is a quarter of the spacing squared for each.
 * Elements differ, so that all fractions of the spacing come up. */
TEST(stochastic_parameters_are_right_on_average) {
    enum { N = 40000, UPDATES = 40 };
    for (int k = 0; k < 16; k++) {
        const adamod_type type = k % 2 ? ADAMOD_F16 : ADAMOD_BF16, grad_type = k / 8 ? type : ADAMOD_F32;
        const double scale = k / 2 % 2 ? -1 : 1, at = k / 4 % 2 ? 3 * 0x1p-16 : 0.8; /* subnormal in f16; not */
        const double widest = spacing(type, at), lr = widest / 64;
        array param = make_array(type, N, 1), grad = make_array(grad_type, N, 0);
        adamod_optimizer *opt;
        if (!CHECK_INT(adamod_create(&opt, "sgd"), 0)) return;
        CHECK_INT(adamod_set_text(opt, "low_precision", "stochastic"), 0);
        CHECK_INT(adamod_set(opt, "lr", lr), 0);
        CHECK_INT(adamod_set(opt, "seed", k), 0);
        rng_state = 11;
        fill_array(&param, scale * at);
        double expected = mean_of(type, param.data, N);
        for (int64_t i = 0; i < N; i++) {
            put(grad_type, grad.data, i, scale * uniform());
            expected -= lr * UPDATES * get(grad_type, grad.data, i) / N;
        }
        const adamod_tensor t = {.param = param.data,
                                 .grad = grad.data,
                                 .param_type = type,
                                 .grad_type = grad_type,
                                 .ndim = 1,
                                 .shape = {N}};
        CHECK_INT(adamod_add_tensor(opt, 0, &t, NULL), 0);
        for (int j = 0; j < UPDATES; j++) CHECK_INT(adamod_step(opt), 0);
        /* f32 rounds an update by u of the number at most; f16's subnormals have 16 random bits: 2^-16 spacings */
        const double bias = UPDATES * (0x1p-23 * at + 0x1p-16 * widest);
        CHECK_CLOSE(mean_of(type, param.data, N), expected, 6 * sqrt(UPDATES * widest * widest / 4 / N) + bias);
        adamod_free(opt);
        free(param.memory);
        free(grad.memory);
    }
}

/* ---- what is not finite ---- */

static bool is_nan16(uint16_t bits) { return (bits & 0x7fff) > 0x7f80; }

/* bf16 everywhere, some of it NaN of either kind or infinite; every instruction set leaves the same numbers, and NaNs in
 * the same places. */
TEST(bf16_that_is_not_finite) {
    enum { N = 333, MOST = 20, ARRAYS = 1 + ADAMOD_MAX_STATES };
    static const uint16_t odd[] = {0x7f80, 0xff80, 0x7fc0, 0xffff, 0x7f81, 0xffbf, 0x8000, 0x0001};
    static uint16_t memory[2][ARRAYS][MOST * N], grad[N];
    const char *was = getenv("ADAMOD_ISA");
    char keep[32] = "";
    if (was) snprintf(keep, sizeof keep, "%s", was);
    for (int r = 0; adamod_rule_name(r); r++) {
        int isas = 0;
        while (adamod_isa_name(isas)) isas++;
        for (int isa = isas - 1; isa >= 0; isa--) { /* plain is the last, and what the others must be */
            uint16_t(*m)[MOST * N] = memory[isa < isas - 1];
            adamod_hyper *h = NULL;
            setenv("ADAMOD_ISA", adamod_isa_name(isa), 1);
            CHECK_INT(adamod_hyper_create(&h, adamod_rule_name(r)), 0);
            adamod_span x = {.param = m[0], .grad = grad, .count = N, .stream = 7};
            x.param_type = x.grad_type = x.state_type = ADAMOD_BF16;
            rng_state = 31 + (uint64_t)r;
            memset(m, 0, sizeof memory[0]);
            for (int i = 0; i < ADAMOD_MAX_STATES; i++) {
                adamod_state_desc d;
                CHECK_INT(adamod_state_at(h, 1, &x.count, i, &d), 0);
                if (d.name && CHECK(d.count <= MOST * N)) x.state[i] = m[1 + i];
                for (int64_t j = 0; d.name && j < d.count; j++)
                    m[1 + i][j] = rng() % 9 ? 0x3c00 : odd[rng() % 8] & 0x7fff;
            }
            for (int j = 0; j < N; j++) m[0][j] = rng() % 9 ? to_bf16(random_param()) : odd[rng() % 8];
            for (x.step = 1; x.step <= 3; x.step++) {
                for (int j = 0; j < N; j++) grad[j] = rng() % 9 ? to_bf16(random_gradient()) : odd[rng() % 8];
                CHECK_INT(adamod_update(h, &x, 1, NULL), 0);
            }
            adamod_hyper_free(h);
            int64_t wrong = 0;
            for (int a = 0; m != memory[0] && a < ARRAYS; a++) {
                for (int j = 0; j < MOST * N; j++) {
                    const uint16_t u = memory[0][a][j], v = memory[1][a][j];
                    wrong += u != v && !(is_nan16(u) && is_nan16(v));
                }
            }
            if (!CHECK_INT(wrong, 0)) printf("%s, %s\n", adamod_rule_name(r), adamod_isa_name(isa));
        }
    }
    if (was) setenv("ADAMOD_ISA", keep, 1);
    else unsetenv("ADAMOD_ISA");
}

/* A coefficient that is a NaN, with a payload that a bf16 has no room for: random bits added to it must not make a number
 * of it. */
TEST(a_coefficient_that_is_a_nan) {
    enum { N = 200 };
    static const int rules[] = {RULE_adamod, RULE_adam, RULE_amsgrad, RULE_sgd};
    const uint64_t payload = 0x7fffffffe0000000; /* 0x7fffffff as an f32 */
    adamod__coef_f64 c = {
        .lr = 0.1, .beta1 = 0.5, .beta1c = 0.5, .beta2 = 0.5, .beta2c = 0.5, .vscale = 1, .mscale = 1};
    const kernel_set *set;
    memcpy(&c.gscale, &payload, sizeof payload);
    for (int isa = 0; (set = adamod__kernels_at(isa)); isa++) {
        for (int r = 0; r < 4; r++) {
            uint16_t x[5][N];
            for (int i = 0; i < 5 * N; i++) x[i / N][i % N] = 0x3f80;
            const block b = {.p = x[0], .g = x[1], .m = x[2], .v = x[3], .s = x[4], .n = N, .key = 5};
            set->f32->update[rules[r]][0].bf16(&b, &c);
            int numbers = 0;
            for (int i = 0; i < N; i++) numbers += !is_nan16(x[0][i]);
            if (!CHECK_INT(numbers, 0)) printf("%s, rule %d\n", set->name, rules[r]);
        }
    }
}

RUN_TESTS(ENTRY(masters_are_the_f32_run), ENTRY(bf16_states_are_right_on_average),
          ENTRY(stochastic_parameters_are_right_on_average), ENTRY(bf16_that_is_not_finite),
          ENTRY(a_coefficient_that_is_a_nan))
