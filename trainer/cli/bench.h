/* What the benchmarks share.
 *
 * SPDX-License-Identifier: MIT
 */
#ifndef CLI_BENCH_H
#define CLI_BENCH_H

#include <stdbool.h>

/* So that threads of whoever ran last have gone to sleep. */
void bench_pause(void);
/* The value that a share of them lies below, 0.5 being the median; sorts x. */
double bench_quantile(double *x, int n, double share);
/* Whether this is a torch from before 2.0, of 2023, than which later ones are much faster; and what to say of it: "torch
 * 1.13.1" or "torch 1.13.1, which is old". */
bool bench_torch_is_old(const char *version);
const char *bench_torch_name(const char *version, char out[96]);
/* Work beside it distorts the times, and not in the same way for all. */
void bench_warn_if_busy(const char *command);

#endif
