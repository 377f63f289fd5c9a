/* shuffle.h - a shuffle determined by a key. */
#ifndef SHUFFLE_H
#define SHUFFLE_H

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

#endif
