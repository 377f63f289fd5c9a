/* markov.h - a generated language of known entropy, the lowest loss a model can reach: after any `order` words, one of
 * `branches` words follows, each half as likely as the one before, the last as likely as its predecessor. The seed
 * determines which. */
#pragma once

#include <stdint.h>

typedef struct markov_language {
    int words, branches; /* branches <= words */
    int order;           /* words that the next one depends on: 1 or 2 */
    uint64_t seed;
} markov_language;

/* Writes n words, numbers from 0. Each stream is another text. */
void markov_text(const markov_language *l, uint64_t stream, int64_t n, int32_t *out);

/* In nats per word. */
double markov_entropy(const markov_language *l);
