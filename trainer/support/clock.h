/* clock.h - time in seconds. */
#pragma once

#include <time.h>

static inline double clock_read(clockid_t clock) {
    struct timespec t;
    clock_gettime(clock, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* Never set back: for measuring durations. */
static inline double clock_seconds(void) { return clock_read(CLOCK_MONOTONIC); }

/* Since 1970. */
static inline double clock_wall_seconds(void) { return clock_read(CLOCK_REALTIME); }
