/* bleu.h - corpus BLEU (Papineni et al., ACL 2002) and the rate of exact matches.
 *
 *     bleu score = {0};
 *     bleu_add(&score, hypothesis, reference);                              // for every sentence
 *     printf("%.2f\n", bleu_score(&score, BLEU_PLAIN));
 *
 * BLEU = 100 bp exp(1/4 sum over n = 1..4 of log(match[n] / total[n])), where total counts the n-grams of the hypotheses and
 * match those that are in the reference, each at most as often as there; bp = min(1, exp(1 - reference tokens / hypothesis
 * tokens)). One reference per hypothesis; case matters; words are separated by white space, as for Python's str.split().
 *
 * BLEU_PLAIN: an order without a match makes the score 0, as in multi-bleu.perl, fairseq, and sacreBLEU with tokenize "none"
 * and smooth_method "none". BLEU_EXP: sacreBLEU's default smoothing, as in NIST's mteval: the k-th order without a match
 * counts as 1 / (2^k total). Both are 0 if no hypothesis has a 4-gram or nothing matches. */
#pragma once

#include "support/text.h"

#include <stdint.h>

#define BLEU_ORDER 4

/* sacreBLEU's signature of the plain score of tokens. Scores equal those of this version (tests/trainer/test_bleu.c). */
#define BLEU_VERSION "2.6.0"
#define BLEU_TOKENS_SIGNATURE "nrefs:1|case:mixed|eff:no|tok:none|smooth:none|version:" BLEU_VERSION

typedef struct bleu {
    int64_t match[BLEU_ORDER], total[BLEU_ORDER];
    int64_t hyp_tokens, ref_tokens;
    int64_t sentences, exact; /* exact: equal to the reference */
} bleu;

typedef enum bleu_smoothing { BLEU_PLAIN, BLEU_EXP } bleu_smoothing;

/* Adds a sentence. -1: out of memory; nothing was added. */
int bleu_add(bleu *b, text_slice hyp, text_slice ref);
/* Adds a sentence of token ids. */
int bleu_add_ids(bleu *b, const int32_t *hyp, int64_t n_hyp, const int32_t *ref, int64_t n_ref);

/* 0 to 100. */
double bleu_score(const bleu *b, bleu_smoothing smoothing);
double bleu_brevity_penalty(const bleu *b);
/* The fraction of exact sentences; 0 if there are none. */
double bleu_exact(const bleu *b);
