/* corpus.h - sentence pairs: as text, generated or read from two files; and as the ids of their tokens.
 *
 *     corpus_text train, valid, test;
 *     if (corpus_numbers(seed, 20000, 500, 500, &train, &valid, &test)) ...
 *     vocab *german, *english;
 *     if (corpus_vocab(&train, CORPUS_SOURCE, &(vocab_options){0}, &german)) ...
 *     if (corpus_vocab(&train, CORPUS_TARGET, &(vocab_options){0}, &english)) ...
 *     corpus pairs;
 *     if (corpus_encode(&pairs, &train, german, english)) ...
 *
 * Messages name the file, the line and what was expected. After a failure, what was to be made is empty and need not be
 * freed.
 *
 * SPDX-License-Identifier: MIT
 */
#ifndef CORPUS_H
#define CORPUS_H

#include "support/text.h"
#include "data/vocab.h"

#include <stddef.h>
#include <stdint.h>

/* ---- Pairs of text ----------------------------------------------------------------------------------------------- */

typedef struct corpus_lines {
    char *bytes;
    int64_t *at; /* [n + 1]: sentence i is bytes[at[i] .. at[i + 1]), without a newline */
} corpus_lines;

/* What became of the lines that were read; kept is corpus_text.n. Truncated pairs are kept. */
typedef struct corpus_report {
    int64_t lines, empty, ratio, too_long, truncated;
} corpus_report;

typedef struct corpus_text {
    int64_t n;
    text_unit unit; /* what its tokens are */
    corpus_lines src, tgt;
    corpus_report report;
} corpus_text;

static inline text_slice corpus_sentence(const corpus_lines *lines, int64_t i) {
    return (text_slice){lines->bytes + lines->at[i], (size_t)(lines->at[i + 1] - lines->at[i])};
}

void corpus_text_free(corpus_text *text); /* an empty one ({0}) and one that was freed already are fine */

/* ---- Two aligned files ------------------------------------------------------------------------------------------- */

typedef enum corpus_rule { CORPUS_REFUSE, CORPUS_SKIP, CORPUS_TRUNCATE } corpus_rule;

typedef struct corpus_options {
    text_unit unit;
    corpus_rule empty;    /* a pair with a line that is empty, or nothing but spaces: refuse or skip */
    int64_t max_tokens;   /* of a sentence, either side; 0: no limit. What exceeds it: */
    corpus_rule too_long; /* refuse, skip the pair, or truncate the sentence */
    double max_ratio;     /* pairs whose longer side has more tokens than this times the shorter are skipped; 0: none */
} corpus_options;

/* UTF-8, a sentence a line, as many in both; text_input.h says what files may be. A line may end in "\r\n".
 * Lengths do not count </s>. A pair is looked at for empty lines first, then for its ratio, before anything is
 * truncated, then for its length; the report counts it once. */
int corpus_bitext(corpus_text *out, const char *src_path, const char *tgt_path, const corpus_options *options);

/* The same for the bytes of two files in memory, unpacked and without a byte order mark; names are for messages only. */
typedef struct corpus_file {
    const char *name;
    text_slice bytes;
} corpus_file;

int corpus_parse(corpus_text *out, const corpus_file *src, const corpus_file *tgt, const corpus_options *options);

/* ---- German number words to English ------------------------------------------------------------------------------ */

/* Which numbers. Drawn uniformly, nine in ten would have six digits and almost none fewer than four. So every number of
 * digits, 1 to 6, gets an equal share, or all numbers it has where that is less; no number is drawn twice.
 *
 * Of the numbers of each length, a twentieth (rounded down) belong to the test set and another to the validation set,
 * fixed once for all; so the single digits, and with them the word zero, are always for training. From these sets and
 * from the rest, valid, test and train are drawn, each with its own shares. The seed draws the training pairs and their
 * order, and nothing else: valid and test depend on n_valid and n_test alone. A larger sample holds every smaller one.
 * Characters are tokens. */
#define CORPUS_NUMBERS_TRAIN 900002
#define CORPUS_NUMBERS_HELD_OUT 49999 /* of either held-out set */
#define CORPUS_NUMBERS_LONGEST 95     /* no sentence has more tokens */

int corpus_numbers(uint64_t seed, int64_t n_train, int64_t n_valid, int64_t n_test, corpus_text *train,
                   corpus_text *valid, corpus_text *test);

/* ---- Ids --------------------------------------------------------------------------------------------------------- */

enum { CORPUS_SOURCE = 1, CORPUS_TARGET = 2 };

/* The vocabulary of one side, or with CORPUS_SOURCE | CORPUS_TARGET a joint one. */
int corpus_vocab(const corpus_text *text, int sides, const vocab_options *options, vocab **out);

typedef struct corpus_side {
    int32_t *ids; /* of all sentences end to end, without <s> and </s> */
    int64_t *at;  /* [n + 1]: those of sentence i are ids[at[i] .. at[i + 1]) */
    int64_t unknown;
} corpus_side;

typedef struct corpus {
    int64_t n;
    corpus_side src, tgt;
} corpus;

static inline int64_t corpus_length(const corpus_side *side, int64_t i) { return side->at[i + 1] - side->at[i]; }

/* src and tgt may be one vocabulary. Neither they nor the text are kept. */
int corpus_encode(corpus *out, const corpus_text *text, const vocab *src, const vocab *tgt);
void corpus_free(corpus *c);

#endif
