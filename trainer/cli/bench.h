/* bench.h - for all benchmarks: a pause, quantiles, warnings. */
#pragma once

#include <stdbool.h>

/* Waits until the threads of the last contestant sleep. */
void bench_pause(void);
/* The quantile of x, 0.5: the median. Sorts x. */
double bench_quantile(double *x, int n, double share);
/* Whether this torch is from before 2.0, of 2023; later ones are much faster. */
bool bench_torch_is_old(const char *version);
/* "torch 2.3.0", or "torch 1.13.1, which is old". */
const char *bench_torch_name(const char *version, char out[96]);
/* Warns of other load, which distorts the times, and not equally. */
void bench_warn_if_busy(const char *command);
