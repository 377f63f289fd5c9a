/* pcg64.h - PCG XSL RR 128/64 (O'Neill, 2014), seeded and read as numpy's default_rng(seed) is, so that resampling draws
 * the sentences that sacreBLEU draws.
 *
 * SPDX-License-Identifier: MIT
 */
#ifndef PCG64_H
#define PCG64_H

#include <stdbool.h>
#include <stdint.h>

typedef struct pcg64 {
    uint64_t state[2], increment[2]; /* low, high */
    uint32_t half;                   /* of the last number */
    bool has_half;
} pcg64;

void pcg64_seed(pcg64 *p, uint32_t seed);
uint64_t pcg64_next(pcg64 *p);
/* rng.integers(n) of a 64-bit type, for n of at most 2^32 - 1. */
uint32_t pcg64_below(pcg64 *p, uint32_t n);

#endif
