/* bpe.h - subwords by byte pair encoding (Sennrich et al., ACL 2016), byte for byte as subword-nmt 0.3.8 has them.
 *
 *     bpe_learner *l = bpe_learner_create();
 *     bpe_learner_add(l, line);                                // every line of every text
 *     char *codes = bpe_learner_run(l, 10000, 2, &merges);     // "#version: 0.2\ne r\n..."
 *
 *     bpe *b;
 *     if (bpe_parse(&b, text_of(codes), "codes")) ...
 *     bpe_worker *w = bpe_worker_create(b, &(bpe_options){0});
 *     char *line = bpe_apply(w, text_of("lower"));             // "lo@@ wer"
 *
 * Words are what stands between spaces.
 *
 * SPDX-License-Identifier: MIT
 */
#ifndef BPE_H
#define BPE_H

#include "support/text.h"

#include <stdbool.h>

/* ---- learning ---- */

typedef struct bpe_learner bpe_learner;

bpe_learner *bpe_learner_create(void);                /* NULL: out of memory */
void bpe_learner_free(bpe_learner *l);                /* NULL is fine */
int bpe_learner_add(bpe_learner *l, text_slice line); /* -1: out of memory */

/* Merges the most frequent pair of symbols, so many times or until none is as frequent as min_frequency; of equally
 * frequent pairs the one whose strings are greater. The codes as a file has them, to be freed; NULL: out of memory. To be
 * called once. */
char *bpe_learner_run(bpe_learner *l, int64_t merges, int64_t min_frequency, int64_t *done);

/* The words and how often each was seen, "word 12\n", the most frequent first and equal ones as they came: what `subword-nmt
 * get-vocab` writes. To be freed; NULL: out of memory. */
char *bpe_learner_words(const bpe_learner *l);

/* ---- applying ---- */

typedef struct bpe bpe;

/* Codes of versions 0.1 and 0.2; the first so many, or all if limit is -1. name is for messages. A version alone is no
 * merges; nothing at all is refused, because no program writes that. */
int bpe_parse(bpe **out, text_slice codes, int64_t limit, const char *name);
void bpe_free(bpe *b); /* NULL is fine */
int64_t bpe_merges(const bpe *b);
/* Subwords that a vocabulary ("word 12" in each line) does not have at least so often are split again. If it has none so
 * often, all are left as they are, as in subword-nmt; bpe_is_restricted tells. */
int bpe_restrict(bpe *b, text_slice vocabulary, int64_t threshold, const char *separator, const char *name);

bool bpe_is_restricted(const bpe *b);

typedef struct bpe_options {
    const char *separator; /* at the end of a subword that is not a word's last; NULL: "@@" */
    double dropout;        /* probability that a merge is left out, each time (Provilkov et al., ACL 2020) */
    uint32_t seed;         /* of it, as Python's random.seed() takes it */
} bpe_options;

/* With a cache of words. One for each thread. */
typedef struct bpe_worker bpe_worker;
bpe_worker *bpe_worker_create(const bpe *b, const bpe_options *o); /* NULL: out of memory */
void bpe_worker_free(bpe_worker *w);                               /* NULL is fine */
/* To be freed; NULL: out of memory. */
char *bpe_apply(bpe_worker *w, text_slice line);

/* ---- for both ---- */

/* Takes what subword-nmt takes for a line from the front of a text, with its end: Python ends lines at more than '\n'. */
int bpe_next_piece(text_slice *rest, text_slice *piece);

#endif
