/* test_gradients.c - the norm of gradients, and gradients that are huge, tiny or not finite: an update that fails or is
 * skipped leaves everything as it was, to the last bit.
 *
 * SPDX-License-Identifier: MIT
 */
#include "bitwise.h"

#include <math.h>
#include <stdlib.h>

/* ---- the norm ---- */

static double norm_of(const adamod_span *spans, size_t n, adamod_pool *pool) {
    double norm = -1;
    CHECK_INT(adamod_norm(spans, n, pool, &norm), 0);
    return norm;
}

TEST(norm_has_the_same_bits) {
    adamod_span spans[6];
    static const int64_t counts[6] = {20001, 17, 0, 512, 19000, 470};
    bitwise_make_sources();
    int64_t at = 0;
    double sum = 0;
    for (int k = 0; k < 6; k++) {
        const adamod_type type = (adamod_type)(k % 4);
        spans[k] = (adamod_span){.grad = (char *)bitwise_gradients[type][0] + (size_t)at * adamod__type_size(type),
                                 .grad_type = type,
                                 .count = counts[k],
                                 .step = 1};
        for (int64_t i = 0; i < counts[k]; i++) {
            const uint16_t bits = type >= ADAMOD_BF16 ? ((const uint16_t *)spans[k].grad)[i] : 0;
            const double x = type == ADAMOD_F64   ? ((const double *)spans[k].grad)[i]
                             : type == ADAMOD_F32 ? (double)((const float *)spans[k].grad)[i]
                                                  : decode16(type, bits & 0x7fffu);
            sum += x * x;
        }
        at += counts[k];
    }
    const double norm = norm_of(spans, 6, NULL);
    CHECK_CLOSE(norm, sqrt(sum),
                TOTAL * 0x1p-53 * norm); /* as many sums, each off by u at most, on either side; halved */
    for (int threads = 1; threads <= 7; threads += threads < 4 ? 1 : 3) {
        adamod_pool *pool;
        if (!CHECK_INT(adamod_pool_create(&pool, threads), 0)) return;
        for (int i = 0; adamod_isa_name(i); i++) {
            setenv("ADAMOD_ISA", adamod_isa_name(i), 1);
            CHECK(norm_of(spans, 6, pool) == norm);
        }
        unsetenv("ADAMOD_ISA");
        adamod_pool_free(pool);
    }
    /* the way an array is aligned */
    for (int offset = 1; offset <= 3; offset++) {
        float *shifted = room(20001 + 3, sizeof *shifted);
        memcpy(shifted + offset, spans[0].grad, 20001 * sizeof *shifted);
        adamod_span moved[6];
        memcpy(moved, spans, sizeof moved);
        moved[0].grad = shifted + offset;
        CHECK(norm_of(moved, 6, NULL) == norm);
        free(shifted);
    }
}

/* Squares of these overflow or vanish; the norm does not. n equal numbers x have norm |x| sqrt(n); quotients, squares,
 * sums and root are off by less than n u, a few u here as all quotients are 1. A denormal x has few bits, all exact. */
TEST(norm_of_huge_and_tiny_numbers) {
    static const double sizes[] = {1e300, -1.7e308, 1e-300, 1e-308, 1e-310, 5e-324, 1e160, -1e-170, 1};
    double g[9];
    for (int k = 0; k < 9; k++) {
        for (int n = 1; n <= 9; n += 4) {
            for (int i = 0; i < 9; i++) g[i] = i % 2 ? sizes[k] : -sizes[k];
            const adamod_span x = {.grad = g, .grad_type = ADAMOD_F64, .count = n};
            const double expected = fabs(sizes[k]) * sqrt(n);
            if (!CHECK_CLOSE(norm_of(&x, 1, NULL), expected, 16 * 0x1p-53 * expected + 0x1p-1074)) {
                printf("%d times %g\n", n, sizes[k]);
            }
        }
    }
    float f[4] = {3e38f, -3e38f, 1e-45f, 3e38f};
    const adamod_span y = {.grad = f, .grad_type = ADAMOD_F32, .count = 4};
    CHECK_CLOSE(norm_of(&y, 1, NULL), (double)3e38f * sqrt(3), 1e23);
    g[3] = -INFINITY;
    const adamod_span x = {.grad = g, .grad_type = ADAMOD_F64, .count = 9};
    CHECK(isinf(norm_of(&x, 1, NULL)));
    g[8] = NAN;
    CHECK(isnan(norm_of(&x, 1, NULL)));
}

/* Through a handle: a finite gradient is no error however small or large, and clip_norm divides it. */
TEST(clip_norm_of_huge_and_tiny_numbers) {
    static const double sizes[] = {1e300, 1e-300, 1e-310, 5e-324};
    for (int k = 0; k < 4; k++) {
        double p[4] = {0}, g[4];
        for (int i = 0; i < 4; i++) g[i] = sizes[k];
        adamod_optimizer *opt;
        if (!CHECK_INT(adamod_create(&opt, "sgd"), 0)) return;
        CHECK_INT(adamod_set(opt, "clip_norm", 1), 0);
        CHECK_INT(adamod_set(opt, "lr", 1), 0);
        CHECK_INT(adamod_set_text(opt, "nonfinite", "error"), 0);
        const adamod_tensor x = {
            .param = p, .grad = g, .param_type = ADAMOD_F64, .grad_type = ADAMOD_F64, .ndim = 1, .shape = {4}};
        CHECK_INT(adamod_add_tensor(opt, 0, &x, NULL), 0);
        if (!CHECK_INT(adamod_step(opt), 0)) printf("%g: %s\n", sizes[k], adamod_last_error());
        /* norm 2 |x|; factor and product are off by u each, the norm by a few */
        const double expected = sizes[k] > 1 ? 0.5 : sizes[k];
        CHECK_CLOSE(-p[3], expected, 16 * 0x1p-53 * expected + 0x1p-1074);
        CHECK_CLOSE(adamod_grad_norm(opt), 2 * sizes[k], 32 * 0x1p-53 * sizes[k] + 0x1p-1074);
        adamod_free(opt);
    }
}

/* ---- gradients that are not finite ---- */

/* Updates with a gradient that is not finite, between others, are as if they had not been: the same bits afterwards as
 * those of a twin that had none of them. */
static void check_nonfinite(int v, int s, bool skip) {
    config c = config_of(v, s);
    /* The last is finite and its square is not, except in f16, where it is an infinity. Clipped it would be no poison. */
    const bool clipped = strstr(c.options, "clip_") || (c.more && strstr(c.more, "clip_"));
    const double poisons[] = {NAN, INFINITY, -INFINITY, clipped ? INFINITY : c.type == ADAMOD_F64 ? -1e200 : -1e30};
    bitwise_run r, twin;
    if (!bitwise_open(&r, &c) || !bitwise_open(&twin, &c)) return;
    CHECK_INT(adamod_set_text(r.opt, "nonfinite", skip ? "skip" : "error"), 0);
    CHECK_INT(adamod_set_text(twin.opt, "nonfinite", skip ? "skip" : "error"), 0);
    int skipped = 0;
    for (int t = 0; t < 3; t++) {
        const written_bytes before = bitwise_written(&r, true);
        int64_t counted[MIXED], steps;
        for (int k = 0; k < MIXED; k++) CHECK_INT(adamod_tensor_steps(r.opt, k, &counted[k]), 0);
        /* the first, last and middle element of the first, last and another array */
        const int k = t == 0 ? 0 : t == 1 ? 4 : MIXED - 1;
        const int64_t at = t == 0 ? r.start[k] : t == 1 ? (r.start[k] + r.start[k + 1]) / 2 : r.start[k + 1] - 1;
        const adamod_type type = grad_type_of(&c, k);
        for (int g = 0; g < 4; g++) {
            memcpy(r.grad[g], bitwise_gradients[g][t], TOTAL * adamod__type_size((adamod_type)g));
        }
        put(type, r.grad[type], at, poisons[(t + v) % 4]);
        const adamod_status status = adamod_step(r.opt);
        CHECK_INT(status, skip ? ADAMOD_OK : ADAMOD_ERROR_NONFINITE);
        skipped += skip;
        char name[32];
        snprintf(name, sizeof name, "param.%d", k);
        if (!skip) CHECK_HAS(adamod_last_error(), name);
        CHECK_INT(adamod_steps(r.opt), t);
        CHECK_INT(adamod_skipped(r.opt), skipped);
        for (int j = 0; j < MIXED; j++) {
            CHECK_INT(adamod_tensor_steps(r.opt, j, &steps), 0);
            CHECK_INT(steps, counted[j]);
        }
        const written_bytes after = bitwise_written(&r, true);
        bool good = same_bytes(&before, &after);
        good &= CHECK_INT(bitwise_step(&r), 0) && CHECK_INT(bitwise_step(&twin), 0);
        const written_bytes mine = bitwise_written(&r, true), other = bitwise_written(&twin, true);
        good &= same_bytes(&mine, &other);
        if (!good)
            printf("%s {%s %s}, type %d, %s\n", c.rule, c.options, c.more ? c.more : "", c.type,
                   skip ? "skip" : "error");
        free(before.bytes);
        free(after.bytes);
        free(mine.bytes);
        free(other.bytes);
    }
    bitwise_close(&r);
    bitwise_close(&twin);
}

TEST(nonfinite_error_changes_nothing) {
    EACH_KERNEL(v, s) {
        if (fast() ? v % 2 == 0 : s % 3 == v % 3) check_nonfinite(v, s, false);
    }
}

TEST(nonfinite_skip_changes_nothing_and_counts) {
    EACH_KERNEL(v, s) {
        if (fast() ? v % 2 == 1 : s % 3 == v % 3) check_nonfinite(v, s, true);
    }
}

static bool finite_at(adamod_type type, const void *data, int64_t i) {
    if (type == ADAMOD_F64) return isfinite(((const double *)data)[i]);
    if (type == ADAMOD_F32) return isfinite(((const float *)data)[i]);
    return (((const uint16_t *)data)[i] & 0x7fffu) < infinity16(type);
}

/* pass: the element itself is no longer finite once the rule has used the gradient, and others are untouched by it in
 * element-wise rules. */
TEST(nonfinite_pass_spreads) {
    static const double poisons[] = {NAN, INFINITY, -INFINITY};
    for (int v = 0; variant_of(v).rule; v++) {
        for (int type = ADAMOD_F32; type <= ADAMOD_F16; type++) {
            for (int k = 0; k < 3; k++) {
                enum { N = 40 };
                double p[N] = {0}, g[N];
                adamod_optimizer *opt;
                if (!CHECK_INT(adamod_create(&opt, variant_of(v).rule), 0)) return;
                set_options(opt, variant_of(v).options);
                CHECK_INT(adamod_set(opt, "clip_value", INFINITY), 0);
                for (int i = 0; i < N; i++) {
                    put((adamod_type)type, p, i, 0.5);
                    put((adamod_type)type, g, i, 1 + 0.125 * i);
                }
                const adamod_tensor x = {.param = p,
                                         .grad = g,
                                         .param_type = (adamod_type)type,
                                         .grad_type = (adamod_type)type,
                                         .ndim = 1,
                                         .shape = {N}};
                CHECK_INT(adamod_add_tensor(opt, 0, &x, NULL), 0);
                for (int t = 0; t < 5; t++) {
                    put((adamod_type)type, g, 7, t == 1 ? poisons[k] : 1.875);
                    CHECK_INT(adamod_step(opt), 0);
                }
                bool good = CHECK(!finite_at((adamod_type)type, p, 7)) & CHECK_INT(adamod_skipped(opt), 0);
                for (int i = 0; i < N && !variant_of(v).whole; i++)
                    good &= i == 7 || CHECK(finite_at((adamod_type)type, p, i));
                if (!good)
                    printf("%s {%s}, type %d, poison %g\n", variant_of(v).rule, variant_of(v).options, type,
                           poisons[k]);
                adamod_free(opt);
            }
        }
    }
}

/* ---- finite gradients at the ends of the range ---- */

/* Results must be the same everywhere; a NaN counts as equal to a NaN. If a rule divides by the size of the present
 * gradient, a finite gradient moves a parameter by an ordinary step, or by none where its square overflows: with
 * learning rates of 0.01 and 1 six updates end far below 1e6. (sgd, AdaBound's lower bound, RAdam's first updates and
 * AdaShift, which divides by an older one, follow a gradient wherever it goes.) The one exception is the variance of
 * centered rmsprop, the difference of two infinities then: it may be NaN, as in PyTorch, but not pass for 0, which
 * makes the step lr / eps times the gradient. */
TEST(gradients_at_the_ends_of_the_range) {
    static const double extremes[2][12] = {
        {0, -0.0, 1e-45, -1e-45, 1e-40, 1e-38, 1e-30, -1e-20, 1e19, -1e20, 1e30, 1e38},
        {0, -0.0, 5e-324, -5e-324, 1e-310, 1e-308, 1e-300, -1e-160, 1e154, -1e155, 1e300, 1.7e308},
    };
    enum { N = 50 };
    for (int v = 0; variant_of(v).rule; v++) {
        for (int type = ADAMOD_F32; type <= ADAMOD_F64; type++) {
            double first[N];
            for (int set = 0; adamod_isa_name(set); set++) {
                double p[N] = {0}, g[N] = {0};
                adamod_optimizer *opt;
                setenv("ADAMOD_ISA", adamod_isa_name(set), 1);
                const adamod_status status = adamod_create(&opt, variant_of(v).rule);
                unsetenv("ADAMOD_ISA");
                if (!CHECK_INT(status, 0)) return;
                set_options(opt, variant_of(v).options);
                CHECK_INT(adamod_set_text(opt, "decay", "none"), 0);
                const adamod_tensor x = {.param = p,
                                         .grad = g,
                                         .param_type = (adamod_type)type,
                                         .grad_type = (adamod_type)type,
                                         .ndim = 1,
                                         .shape = {N}};
                for (int i = 0; i < N; i++) put((adamod_type)type, p, i, 0.5);
                CHECK_INT(adamod_add_tensor(opt, 0, &x, NULL), 0);
                for (int t = 0; t < 6; t++) {
                    for (int i = 0; i < N; i++)
                        put((adamod_type)type, g, i, extremes[type][(i * (t + 1) + i / 12) % 12]);
                    CHECK_INT(adamod_step(opt), 0);
                }
                static const char *const following[] = {"sgd",      "radam",    "adabound",
                                                        "amsbound", "adashift", "schedulefree_sgd"};
                bool bounded = !variant_of(v).whole;
                for (size_t i = 0; i < sizeof following / sizeof *following; i++)
                    bounded = bounded && strcmp(variant_of(v).rule, following[i]) != 0;
                const bool centered = strstr(variant_of(v).options, "centered") != NULL;
                for (int i = 0; i < N; i++) {
                    const double end = type == ADAMOD_F64 ? p[i] : (double)((float *)p)[i];
                    if (set == 0) first[i] = end;
                    const bool same = end == first[i] || (isnan(end) && isnan(first[i]));
                    const bool small = !bounded || fabs(end) < 1e6 || (centered && isnan(end));
                    if (CHECK(same) && CHECK(small)) continue;
                    printf("%s {%s}, type %d, %s: element %d ends at %g\n", variant_of(v).rule, variant_of(v).options,
                           type, adamod_isa_name(set), i, end);
                    break;
                }
                adamod_free(opt);
            }
        }
    }
}

RUN_TESTS(ENTRY(norm_has_the_same_bits), ENTRY(norm_of_huge_and_tiny_numbers),
          ENTRY(clip_norm_of_huge_and_tiny_numbers), ENTRY_OF_ONE_THREAD(nonfinite_error_changes_nothing),
          ENTRY_OF_ONE_THREAD(nonfinite_skip_changes_nothing_and_counts), ENTRY(nonfinite_pass_spreads),
          ENTRY(gradients_at_the_ends_of_the_range))
