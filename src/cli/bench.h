/* What the benchmarks share.
 *
 * SPDX-License-Identifier: MIT
 */
#ifndef CLI_BENCH_H
#define CLI_BENCH_H

/* So that threads of whoever ran last have gone to sleep. */
void bench_pause(void);
/* The value that a share of them lies below, 0.5 being the median; sorts x. */
double bench_quantile(double *x, int n, double share);
/* Work beside it distorts the times, and not in the same way for all. */
void bench_warn_if_busy(const char *command);

#endif
