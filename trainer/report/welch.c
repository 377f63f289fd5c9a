#include "report/welch.h"

#include <math.h>

static const double level = 0.05;

/* ---- Student's t ------------------------------------------------------------------------------------------------- */

/* The continued fraction of the incomplete beta function (DLMF 8.17.22), from the front (Lentz's method). It converges fast
 * for x < (a + 1) / (a + b + 2). */
static double beta_fraction(double x, double a, double b) {
    enum { TERMS = 500 };
    const double tiny = 1e-300;
    double c = 1, d = 1 / fmax(1 - (a + b) * x / (a + 1), tiny), f = d;
    for (int m = 1; m < TERMS; m++) {
        const double even = m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m));
        const double odd = -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1));
        d = 1 / (1 + even * d);
        c = 1 + even / c;
        f *= c * d;
        d = 1 / (1 + odd * d);
        c = 1 + odd / c;
        f *= c * d;
        if (fabs(c * d - 1) < 1e-15) break;
    }
    return f;
}

/* The regularised incomplete beta function I_x(a, b), for x in (0, 1). y is 1 - x, which the caller knows more exactly. */
static double beta_share(double x, double y, double a, double b) {
    const double front = exp(lgamma(a + b) - lgamma(a) - lgamma(b) + a * log(x) + b * log(y));
    if (x < (a + 1) / (a + b + 2)) return front * beta_fraction(x, a, b) / a;
    return 1 - front * beta_fraction(y, b, a) / b;
}

double welch_student_p(double t, double df) {
    const double square = t * t;
    if (square == 0) return 1;
    if (isinf(square)) return 0;
    return beta_share(df / (df + square), square / (df + square), df / 2, 0.5);
}

double welch_critical(double df) {
    double low = 0, high = 1;
    while (welch_student_p(high, df) > level) high *= 2;
    for (int i = 0; i < 60; i++) {
        const double middle = (low + high) / 2;
        *(welch_student_p(middle, df) > level ? &low : &high) = middle;
    }
    return high;
}

/* ---- Variants ---------------------------------------------------------------------------------------------------- */

/* Welch 1947, with Satterthwaite's degrees of freedom. */
double welch_p(const report_spread *a, const report_spread *b) {
    if (a->n < 2 || b->n < 2) return NAN;
    const double u = a->std * a->std / a->n, v = b->std * b->std / b->n;
    if (!(u + v > 0)) return NAN;
    const double share = u / (u + v); /* of the variance of the difference; u * u may be below the smallest number */
    const double df = 1 / (share * share / (a->n - 1) + (1 - share) * (1 - share) / (b->n - 1));
    return welch_student_p((a->mean - b->mean) / sqrt(u + v), df);
}

bool welch_better(const report_spread *a, const report_spread *b, metric_better better) {
    return better * (a->mean - b->mean) > 0 && welch_p(a, b) < level;
}

void welch_power(int n, char *out, size_t size) {
    if (n < 2) {
        snprintf(out, size, "One seed each cannot tell a difference from chance.");
        return;
    }
    snprintf(out, size,
             "With %d seeds each, two means count as different (p < %.2f) only if they are at least %.1f standard "
             "deviations of a run apart.",
             n, level, welch_critical(2.0 * n - 2) * sqrt(2.0 / n));
}
