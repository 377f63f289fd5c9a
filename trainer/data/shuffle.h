/* shuffle.h - a shuffle determined by a key. */
#pragma once

#include "support/random.h"

#include <stdint.h>

/* The first `take` steps of a Fisher-Yates shuffle: x[0..take) becomes a sample of all n without replacement. A smaller
 * sample is the beginning of a larger one. */
static inline void shuffle(int64_t *x, int64_t n, int64_t take, uint64_t key) {
    for (int64_t i = 0; i < take; i++) {
        int64_t other = i + (int64_t)nn_below(key, (uint64_t)i, (uint64_t)(n - i));
        int64_t kept = x[i];
        x[i] = x[other];
        x[other] = kept;
    }
}

/* The place of i in a permutation of 0..n-1, which the key determines: a Feistel network over the next power of four,
 * repeated until the result is below n. Needs no list, so n may be too large for one. */
static inline uint64_t shuffle_place(uint64_t i, uint64_t n, uint64_t key) {
    int half = 1;
    while (half < 32 && (uint64_t)1 << 2 * half < n) half++;
    const uint64_t mask = ((uint64_t)1 << half) - 1;
    do {
        uint64_t left = i >> half, right = i & mask;
        for (uint64_t round = 0; round < 6; round++) {
            const uint64_t next = left ^ (nn_mix(key + (round << 32) + right) & mask);
            left = right;
            right = next;
        }
        i = left << half | right;
    } while (i >= n);
    return i;
}
