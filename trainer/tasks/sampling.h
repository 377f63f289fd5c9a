/* sampling.h - draws the next token by a model's scores.
 *
 * The candidates are the top_k likeliest tokens, reduced to the likeliest that together have the probability top_p. One of
 * them is drawn, in the order of token numbers, by a random number that depends on the seed and the number of the draw.
 * Scores that differ in their last bits give another token only if the random number falls between them. */
#pragma once

#include <stdint.h>

typedef struct sampling_options {
    double temperature; /* scores are divided by it; 0: always the likeliest */
    int64_t top_k;      /* 0: all */
    double top_p;       /* 1: all; at least one token is left */
} sampling_options;

typedef struct sampler sampler;

sampler *sampler_create(const sampling_options *o, int tokens); /* NULL: out of memory */
void sampler_free(sampler *s);                                  /* NULL is fine */

/* scores: log-probabilities up to a constant. The first of equal scores counts as likelier. -1: a score is NaN, or none is
 * above minus infinity. */
int32_t sampler_draw(sampler *s, const float *scores, uint64_t seed, uint64_t draw);
