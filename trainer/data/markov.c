#include "data/markov.h"

#include "support/random.h"

enum { FOLLOWERS = 0x6d6b7600 }; /* the stream that chooses what follows what; texts use the streams after it */

/* Counts the leading ones of random bits, up to branches - 1. */
static int draw_branch(uint32_t bits, int branches) {
    int k = 0;
    while (k < branches - 1 && (bits >> k & 1)) k++;
    return k;
}

void markov_text(const markov_language *l, uint64_t stream, int64_t n, int32_t *out) {
    const uint64_t followers = nn_key(l->seed, 0, FOLLOWERS), draws = nn_key(l->seed, 0, FOLLOWERS + 1 + stream);
    const uint64_t words = (uint64_t)l->words;
    for (int64_t i = 0; i < n; i++) {
        const uint64_t last = i > 0 ? (uint64_t)out[i - 1] : 0,
                       before = l->order > 1 && i > 1 ? (uint64_t)out[i - 2] : 0;
        const uint64_t first = nn_below(followers, before * words + last, words);
        const uint64_t branch = (uint64_t)draw_branch(nn_random_bits(draws, (uint64_t)i), l->branches);
        out[i] = (int32_t)((first + branch) % words);
    }
}

double markov_entropy(const markov_language *l) {
    double entropy = 0, p = 1;
    for (int k = 0; k < l->branches - 1; k++) {
        p /= 2;
        entropy -= p * log(p);
    }
    return entropy - p * log(p); /* the last branch has the rest */
}
