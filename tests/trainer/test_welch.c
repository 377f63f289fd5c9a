/* Welch's test against R's t.test, mpmath 1.3 with 30 digits, and closed forms of the t distribution.
 *
 * SPDX-License-Identifier: MIT
 */
#include "check.h"

#include "report/welch.h"

#include <math.h>

static report_spread spread_of(const double *x, int n) {
    double copy[16];
    memcpy(copy, x, (size_t)n * sizeof *x);
    return report_spread_of(copy, n);
}

static const struct {
    double a[10], b[10];
    int n, m;
    double p;
} samples[] = {
    /* R: t.test(extra ~ group, data = sleep) says t = -1.8608, df = 17.776, p-value = 0.07939. */
    {{0.7, -1.6, -0.2, -1.2, -0.1, 3.4, 3.7, 0.8, 0.0, 2.0},
     {1.9, 0.8, 1.1, 0.1, -0.1, 4.4, 5.5, 1.6, 4.6, 3.4},
     10,
     10,
     0.0793941401873581383},
    {{94.31, 94.52, 94.44}, {94.20, 94.05, 94.29}, 3, 3, 0.0600399449036014511},
    {{10.0, 12.84}, {11.46, 11.45}, 2, 2, 0.984311866054267131}, /* spreads of two sizes */
    {{1, 1.0001, 0.9999}, {2, 2.0001, 2.0003, 1.9998}, 3, 4, 2.44336079125782803e-17},
};

TEST(p_of_samples) {
    for (size_t i = 0; i < sizeof samples / sizeof *samples; i++) {
        const report_spread a = spread_of(samples[i].a, samples[i].n), b = spread_of(samples[i].b, samples[i].m);
        CHECK_CLOSE(welch_p(&a, &b) / samples[i].p, 1, 1e-7); /* the data's own rounding */
        CHECK_CLOSE(welch_p(&b, &a), welch_p(&a, &b), 1e-15);
    }
}

TEST(p_of_t) {
    static const double of[][3] = {
        {3, 1.5, 0.230583865244823052},        {4, 2.776445, 0.0500000053820915621},
        {10, 2.228139, 0.0499999874528825695}, {30, 6, 1.39427687672047427e-6},
        {100, 0.01, 0.992041210234428501},     {2.5, 40, 0.000141956342904933829},
        {1000, 3.3, 0.00100099672500208931},   {0.7, 2, 0.36914815166652256},
    };
    for (size_t i = 0; i < sizeof of / sizeof *of; i++) {
        CHECK_CLOSE(welch_student_p(of[i][1], of[i][0]) / of[i][2], 1, 1e-12);
        CHECK_CLOSE(welch_student_p(-of[i][1], of[i][0]) / of[i][2], 1, 1e-12);
    }
    CHECK_CLOSE(welch_student_p(0, 4), 1, 0);
    CHECK_CLOSE(welch_student_p(INFINITY, 4), 0, 0);
}

/* One degree of freedom is Cauchy's distribution; two have a square root. */
TEST(closed_forms) {
    const double pi = acos(-1);
    for (double t = 1e-3; t < 1e4; t *= 1.7) {
        CHECK_CLOSE(welch_student_p(t, 1), 2 / pi * atan(1 / t), 1e-13);
        CHECK_CLOSE(welch_student_p(t, 2), 1 - t / sqrt(2 + t * t), 1e-13);
    }
}

TEST(critical_t) {
    static const double of[][2] = {{1, 12.7062047361747},  {2, 4.302652729749464},  {4, 2.776445105197794},
                                   {8, 2.306004135204167}, {18, 2.100922040241038}, {198, 1.972017477836315}};
    for (size_t i = 0; i < sizeof of / sizeof *of; i++) CHECK_CLOSE(welch_critical(of[i][0]), of[i][1], 1e-12);
}

static const report_spread low = {3, 1, 1, 0.1, 0.9, 1.1}, high = {3, 2, 2, 0.1, 1.9, 2.1};
static const report_spread single = {1, 9, 9, NAN, 9, 9}, none = {0, NAN, NAN, NAN, NAN, NAN};
static const report_spread still = {3, 3, 3, 0, 3, 3}, other = {3, 4, 4, 0, 4, 4};

TEST(no_p_without_spread) {
    CHECK(isnan(welch_p(&single, &low)));
    CHECK(isnan(welch_p(&low, &none)));
    CHECK(isnan(welch_p(&still, &other)));
    CHECK(welch_p(&still, &low) < 0.05); /* one that varies is enough */
}

TEST(better_only_beyond_chance) {
    CHECK(welch_better(&high, &low, METRIC_HIGHER));
    CHECK(!welch_better(&low, &high, METRIC_HIGHER));
    CHECK(welch_better(&low, &high, METRIC_LOWER));
    CHECK(!welch_better(&high, &low, METRIC_NEITHER));
    CHECK(!welch_better(&single, &low, METRIC_HIGHER));
    CHECK(!welch_better(&none, &low, METRIC_HIGHER));
    CHECK(!welch_better(&other, &still, METRIC_HIGHER));
    const report_spread wide = {3, 11.40, 11.40, 1.42, 10, 12.8}, near = {3, 11.46, 11.46, 0.2, 11.3, 11.7};
    CHECK(!welch_better(&near, &wide, METRIC_HIGHER));
}

/* At the difference that the sentence names, p is 0.05. */
TEST(power_is_the_least_difference) {
    char text[200];
    welch_power(3, text, sizeof text);
    CHECK_STR(text, "With 3 seeds each, two means count as different (p < 0.05) only if they are at least 2.3 standard "
                    "deviations of a run apart.");
    welch_power(10, text, sizeof text);
    CHECK_HAS(text, "With 10 seeds each");
    CHECK_HAS(text, "at least 0.9 standard");
    welch_power(1, text, sizeof text);
    CHECK_STR(text, "One seed each cannot tell a difference from chance.");
    for (int n = 2; n < 20; n += 3) {
        const double apart = welch_critical(2.0 * n - 2) * sqrt(2.0 / n);
        const report_spread a = {n, 0, 0, 1, 0, 0}, b = {n, apart, apart, 1, 0, 0};
        CHECK_CLOSE(welch_p(&a, &b), 0.05, 1e-12);
    }
}

RUN_TESTS(ENTRY(p_of_samples), ENTRY(p_of_t), ENTRY(closed_forms), ENTRY(critical_t), ENTRY(no_p_without_spread),
          ENTRY(better_only_beyond_chance), ENTRY(power_is_the_least_difference))
