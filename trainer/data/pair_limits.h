/* pair_limits.h - limits of sentence pairs by length, as in Moses' clean-corpus-n.perl. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

typedef struct pair_limits {
    int64_t min, max; /* words per side */
    double ratio;     /* most words of the longer side per word of the shorter */
} pair_limits;

static inline bool pair_limits_keep(const pair_limits *l, int64_t a, int64_t b) {
    const int64_t longer = a > b ? a : b, shorter = a > b ? b : a;
    return shorter >= l->min && longer <= l->max && (double)longer <= l->ratio * (double)shorter;
}
