#include "cli/bench.h"

#include <stdio.h>
#include <stdlib.h>
#include <time.h>

void bench_pause(void) { nanosleep(&(struct timespec){.tv_nsec = 5000000}, NULL); }

static int compare_doubles(const void *a, const void *b) {
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

double bench_quantile(double *x, int n, double share) {
    qsort(x, (size_t)n, sizeof *x, compare_doubles);
    const double at = share * (n - 1);
    const int below = (int)at;
    return below + 1 < n ? x[below] + (at - below) * (x[below + 1] - x[below]) : x[n - 1];
}

bool bench_torch_is_old(const char *version) { return strtol(version, NULL, 10) < 2; }

const char *bench_torch_name(const char *version, char out[96]) {
    snprintf(out, 96, "torch %.64s%s", version, bench_torch_is_old(version) ? ", which is old" : "");
    return out;
}

void bench_warn_if_busy(const char *command) {
    double load;
    if (getloadavg(&load, 1) == 1 && load > 0.5) {
        fprintf(stderr, "adamod: %s: the load average is %.1f; on an idle machine the times are better ones\n", command,
                load);
    }
}
