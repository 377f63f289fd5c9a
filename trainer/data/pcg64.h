/* pcg64.h - PCG XSL RR 128/64 (O'Neill, 2014), with the seeds and numbers of numpy's default_rng, so that resampling draws
 * the same sentences as sacreBLEU. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

typedef struct pcg64 {
    uint64_t state[2], increment[2]; /* low, high */
    uint32_t half;                   /* unused half of the last number */
    bool has_half;
} pcg64;

void pcg64_seed(pcg64 *p, uint32_t seed);
/* rng.integers(n) of a 64-bit type, n < 2^32. */
uint32_t pcg64_below(pcg64 *p, uint32_t n);
