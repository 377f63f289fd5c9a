/* welch.h - can seeds tell two variants apart? */
#ifndef ADAMOD_WELCH_H
#define ADAMOD_WELCH_H

#include "report/variants.h"

/* The two-sided p of Welch's test that two means are equal. NAN: one of them has fewer than two numbers, or neither varies. */
double welch_p(const report_spread *a, const report_spread *b);

/* Whether the number of a is the better one by more than its spread allows for chance: p < 0.05. With one run each, or
 * without a better direction, never. */
bool welch_better(const report_spread *a, const report_spread *b, metric_better better);

/* What n seeds can tell, in a sentence: "With 3 seeds each, only a difference of at least 2.8 standard deviations of a
 * run would be found significant." */
void welch_power(int n, char *out, size_t size);

#endif
