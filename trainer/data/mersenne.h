/* mersenne.h - MT19937 (Matsumoto and Nishimura, 1998), with the seeds and numbers of Python's `random`. */
#pragma once

#include <stdint.h>

typedef struct mersenne {
    uint32_t state[624];
    int at;
} mersenne;

void mersenne_seed(mersenne *m, uint32_t seed);
/* random.random(): 53 bits, 0 <= x < 1. */
double mersenne_next(mersenne *m);
