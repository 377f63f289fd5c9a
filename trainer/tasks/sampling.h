/* sampling.h - which token comes next, drawn by a model's scores.
 *
 * The tokens that may come are chosen first: the top_k likeliest, then of these the likeliest that together have the
 * probability top_p. One of them is drawn in the order of their numbers, from random numbers that follow from the seed and
 * the number of the draw. So scores that differ in their last bits give another token only where a border between two falls
 * between them. */
#ifndef ADAMOD_SAMPLING_H
#define ADAMOD_SAMPLING_H

#include <stdint.h>

typedef struct sampling_options {
    double temperature; /* scores are divided by it; 0: always the likeliest */
    int64_t top_k;      /* 0: all */
    double top_p;       /* 1: all; at least one token is left */
} sampling_options;

typedef struct sampler sampler;

sampler *sampler_create(const sampling_options *o, int tokens); /* NULL: out of memory */
void sampler_free(sampler *s);                                  /* NULL is fine */

/* Of tokens whose log-probabilities are these, or these and a constant. Of equal ones the first is the likelier. -1: there
 * is a NaN, or none above minus infinity. */
int32_t sampler_draw(sampler *s, const float *scores, uint64_t seed, uint64_t draw);

#endif
