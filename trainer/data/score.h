/* score.h - BLEU and chrF of a text, equal to sacreBLEU 2.6.0, with its signatures, its confidence intervals and its
 * comparison of two systems by resampling.
 *
 *     score_options o = {.metric = SCORE_BLEU, .tokenize = SCORE_13A};
 *     score_text *s = score_create(&o);
 *     for (...) score_add(s, hypothesis, reference);
 *     printf("%s = %.2f\n", score_signature(&o, 0, line, sizeof line), score_value(s)); */
#pragma once

#include "support/text.h"
#include "data/bleu.h"

#include <stdbool.h>

typedef enum score_metric { SCORE_BLEU, SCORE_CHRF, SCORE_CHRF_PLUS } score_metric;
typedef enum score_tokens { SCORE_13A, SCORE_NONE, SCORE_CHAR } score_tokens;

typedef struct score_options {
    score_metric metric;
    score_tokens tokenize; /* for BLEU; chrF has its own way */
    bool lowercase;
    bool plain; /* BLEU without smoothing */
} score_options;

/* Keeps the counts of every sentence, for resampling. */
typedef struct score_text score_text;

score_text *score_create(const score_options *o);             /* NULL: out of memory */
void score_free(score_text *s);                               /* NULL is fine */
int score_add(score_text *s, text_slice hyp, text_slice ref); /* -1: out of memory */

double score_value(const score_text *s); /* 0 to 100 */
/* The parts of BLEU as sacreBLEU prints them after the score: "66.1/38.2/... (BP = ...". "" for chrF. Returns out. */
const char *score_details(const score_text *s, char *out, size_t size);

const char *score_name(const score_options *o); /* "BLEU", "chrF2", "chrF2++" */
/* sacreBLEU's signature; samples 0: without resampling. Returns out. */
const char *score_signature(const score_options *o, int64_t samples, char *out, size_t size);

enum { SCORE_SEED = 12345 }; /* sacreBLEU's */

/* Bootstrap: draws `samples` texts of as many sentences with replacement. Stores the mean of their scores and half the width
 * of the 95 % interval. -1: out of memory. */
typedef struct score_interval {
    double mean, half;
} score_interval;
int score_resample(const score_text *s, int64_t samples, score_interval *out);

/* The p-value of the difference between two systems on the same sentences, by paired bootstrap; 1 if no resample has a
 * difference. -1: out of memory. */
int score_compare(const score_text *baseline, const score_text *other, int64_t samples, double *p);
