/* bpe.h - subwords by byte pair encoding (Sennrich et al., ACL 2016), byte for byte equal to subword-nmt 0.3.8.
 *
 *     bpe_learner *l = bpe_learner_create();
 *     bpe_learner_add(l, line);                                // every line of every text
 *     char *codes = bpe_learner_run(l, 10000, 2, &merges);     // "#version: 0.2\ne r\n..."
 *
 *     bpe *b;
 *     if (bpe_parse(&b, text_of(codes), -1, "codes")) ...
 *     bpe_worker *w = bpe_worker_create(b, &(bpe_options){0});
 *     char *line = bpe_apply(w, text_of("lower"));             // "lo@@ wer"
 *
 * Words are separated by spaces. */
#pragma once

#include "support/text.h"

#include <stdbool.h>

/* ---- learning ---- */

typedef struct bpe_learner bpe_learner;

bpe_learner *bpe_learner_create(void);                /* NULL: out of memory */
void bpe_learner_free(bpe_learner *l);                /* NULL is fine */
int bpe_learner_add(bpe_learner *l, text_slice line); /* -1: out of memory */

/* Merges the most frequent pair of symbols up to `merges` times, as long as its frequency is at least min_frequency. Among
 * equally frequent pairs it takes the one whose strings are greatest. Returns the text of the codes file, which the caller
 * frees; NULL: out of memory. Call it once. */
char *bpe_learner_run(bpe_learner *l, int64_t merges, int64_t min_frequency, int64_t *done);

/* Lists the words with their counts, "word 12\n", by descending count and then in the order seen, as `subword-nmt
 * get-vocab` does. The caller frees the text; NULL: out of memory. */
char *bpe_learner_words(const bpe_learner *l);

/* ---- applying ---- */

typedef struct bpe bpe;

/* Parses the first `limit` codes of version 0.1 or 0.2, or all if limit is -1. name is for messages. A file with a version
 * alone has no merges; an empty one is refused. */
int bpe_parse(bpe **out, text_slice codes, int64_t limit, const char *name);
void bpe_free(bpe *b); /* NULL is fine */
int64_t bpe_merges(const bpe *b);
/* Splits subwords again that a vocabulary (lines "word 12") has fewer than threshold times. If no word is that frequent,
 * nothing is restricted, as in subword-nmt. */
int bpe_restrict(bpe *b, text_slice vocabulary, int64_t threshold, const char *separator, const char *name);
bool bpe_is_restricted(const bpe *b);

typedef struct bpe_options {
    const char *separator; /* after each subword but the last of a word; NULL: "@@" */
    double dropout;        /* probability to skip a merge (Provilkov et al., ACL 2020) */
    uint32_t seed;         /* for dropout, as for Python's random.seed() */
} bpe_options;

/* Has a cache of words. Use one per thread. */
typedef struct bpe_worker bpe_worker;
bpe_worker *bpe_worker_create(const bpe *b, const bpe_options *o); /* NULL: out of memory */
void bpe_worker_free(bpe_worker *w);                               /* NULL is fine */
/* The caller frees the result; NULL: out of memory. */
char *bpe_apply(bpe_worker *w, text_slice line);

/* ---- for both ---- */

/* Takes a line with its end from the front of a text. As in subword-nmt, lines end where Python ends them. */
int bpe_next_piece(text_slice *rest, text_slice *piece);
/* Without spaces and line ends at both ends. */
text_slice bpe_strip(text_slice text);
