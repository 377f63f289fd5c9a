/* welch.h - can seeds tell two variants apart? */
#pragma once

#include "report/variants.h"

/* The two-sided p of Welch's test that two means are equal. NAN: one of them has fewer than two numbers, or neither varies. */
double welch_p(const report_spread *a, const report_spread *b);

/* Whether the mean of a is the better one by more than its spread allows for chance: p < 0.05. With one run each, or
 * without a better direction, never. */
bool welch_better(const report_spread *a, const report_spread *b, metric_better better);

/* The two-sided p of Student's t with df degrees of freedom, and the t above which p is below 0.05. */
double welch_student_p(double t, double df);
double welch_critical(double df);

/* Writes what n seeds can tell, in a sentence: "With 3 seeds each, two means count as different (p < 0.05) only if they are
 * at least 2.3 standard deviations of a run apart." For runs that spread alike: the critical t of 2n - 2 degrees of freedom
 * times sqrt(2 / n). */
void welch_power(int n, char *out, size_t size);
