/* bleu.h - corpus BLEU (Papineni et al., ACL 2002) and the rate of exact matches, over sentences added one by one.
 *
 *     bleu score = {0};
 *     bleu_add(&score, hypothesis, reference);                              // for every sentence
 *     printf("%.2f\n", bleu_score(&score, BLEU_PLAIN));
 *
 * BLEU = 100 bp exp(1/4 sum over n = 1..4 of log(match[n] / total[n])), where match counts the n-grams of the
 * hypotheses that their references have, each at most as often as the reference has it, and total all of theirs;
 * bp = min(1, exp(1 - reference tokens / hypothesis tokens)). One reference each; case matters; words are split at
 * white space, all that Python's str.split() takes for it, and are otherwise taken as they are.
 *
 * Plain, an order without a match makes the score 0: multi-bleu.perl, fairseq, and sacreBLEU with tokenize "none" and
 * smooth_method "none". BLEU_EXP is sacreBLEU's default smoothing (NIST's mteval): the k-th order without a match
 * counts as 1 / (2^k total). Where hypotheses have no 4-gram at all, or nothing matches, both are 0, as sacreBLEU has
 * it.
 *
 * SPDX-License-Identifier: MIT
 */
#ifndef BLEU_H
#define BLEU_H

#include "support/text.h"

#include <stdint.h>

#define BLEU_ORDER 4

/* sacreBLEU's signature of the plain score over tokens as they are given. The version is the one whose numbers these are,
 * digit for digit (tests/trainer/test_bleu.c). */
#define BLEU_VERSION "2.6.0"
#define BLEU_TOKENS_SIGNATURE "nrefs:1|case:mixed|eff:no|tok:none|smooth:none|version:" BLEU_VERSION

typedef struct bleu {
    int64_t match[BLEU_ORDER], total[BLEU_ORDER];
    int64_t hyp_tokens, ref_tokens;
    int64_t sentences, exact; /* exact: with the very tokens of the reference */
} bleu;

typedef enum bleu_smoothing { BLEU_PLAIN, BLEU_EXP } bleu_smoothing;

/* -1: out of memory, and nothing was added. */
int bleu_add(bleu *b, text_slice hyp, text_slice ref);
/* The same on ids: any numbers, equal where tokens are. */
int bleu_add_ids(bleu *b, const int32_t *hyp, int64_t n_hyp, const int32_t *ref, int64_t n_ref);

/* 0 to 100. */
double bleu_score(const bleu *b, bleu_smoothing smoothing);
double bleu_brevity_penalty(const bleu *b);
/* The share of sentences that match exactly, 0 to 1; 0 if there are none. */
double bleu_exact(const bleu *b);

#endif
