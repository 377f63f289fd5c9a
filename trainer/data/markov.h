/* markov.h - a generated language whose entropy is known: after any `order` words, `branches` words may follow, each half as
 * likely as the one before it, the last as likely as its predecessor. Which ones is drawn from the seed. So the entropy of a
 * word is the same after all others, and no model can have a smaller loss, but by chance.
 *
 * SPDX-License-Identifier: MIT
 */
#ifndef ADAMOD_MARKOV_H
#define ADAMOD_MARKOV_H

#include <stdint.h>

typedef struct markov_language {
    int words, branches; /* branches <= words */
    int order;           /* words that the next one depends on: 1 or 2 */
    uint64_t seed;
} markov_language;

/* A text of n words, numbers from 0; texts of different streams are different. */
void markov_text(const markov_language *l, uint64_t stream, int64_t n, int32_t *out);

/* In nats a word. */
double markov_entropy(const markov_language *l);

#endif
