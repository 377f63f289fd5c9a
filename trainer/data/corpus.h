/* corpus.h - sentence pairs as text, generated or read from two files, and as ids of tokens.
 *
 *     corpus_text train, valid, test;
 *     if (corpus_numbers(seed, 20000, 500, 500, &train, &valid, &test)) ...
 *     vocab *german, *english;
 *     if (corpus_vocab(&train, CORPUS_SOURCE, &(vocab_options){0}, &german)) ...
 *     if (corpus_vocab(&train, CORPUS_TARGET, &(vocab_options){0}, &english)) ...
 *     corpus pairs;
 *     if (corpus_encode(&pairs, &train, german, english)) ...
 *
 * Messages name the file and line. After a failure, outputs are empty and need not be freed. */
#pragma once

#include "support/text.h"
#include "data/vocab.h"

#include <stddef.h>
#include <stdint.h>

/* ---- Pairs of text ----------------------------------------------------------------------------------------------- */

typedef struct corpus_lines {
    char *bytes;
    int64_t *at; /* [n + 1]: sentence i is bytes[at[i] .. at[i + 1]), without a newline */
} corpus_lines;

/* Counts of lines read and pairs skipped. Truncated pairs are kept. */
typedef struct corpus_counts {
    int64_t lines, empty, ratio, too_long, truncated;
} corpus_counts;

typedef struct corpus_text {
    int64_t n;
    text_unit unit; /* of its tokens */
    corpus_lines src, tgt;
    corpus_counts counts;
} corpus_text;

static inline text_slice corpus_sentence(const corpus_lines *lines, int64_t i) {
    return (text_slice){lines->bytes + lines->at[i], (size_t)(lines->at[i + 1] - lines->at[i])};
}

void corpus_text_free(corpus_text *text); /* {0} is fine */

/* ---- Two aligned files ------------------------------------------------------------------------------------------- */

typedef enum corpus_rule { CORPUS_REFUSE, CORPUS_SKIP, CORPUS_TRUNCATE } corpus_rule;

typedef struct corpus_options {
    text_unit unit;
    corpus_rule empty;    /* a pair with an empty or blank line: refuse or skip */
    int64_t max_tokens;   /* of a sentence, without </s>; 0: no limit */
    corpus_rule too_long; /* a longer sentence: refuse, skip the pair, or truncate */
    double max_ratio;     /* skips pairs with a higher ratio of tokens, longer side to shorter; 0: none */
} corpus_options;

/* Reads two files (text_input.h) of UTF-8 with one sentence per line and equally many lines. A pair is checked for empty
 * lines, then for its ratio, then for its length; counts have it once. */
int corpus_bitext(corpus_text *out, const char *src_path, const char *tgt_path, const corpus_options *options);

/* Reads two files in memory, unpacked and without a byte order mark; names are for messages. */
typedef struct corpus_file {
    const char *name;
    text_slice bytes;
} corpus_file;

int corpus_parse(corpus_text *out, const corpus_file *src, const corpus_file *tgt, const corpus_options *options);

/* ---- German number words to English ------------------------------------------------------------------------------ */

/* Drawn uniformly, nine in ten numbers would have six digits. So each length, 1 to 6 digits, gets an equal share, or all its
 * numbers if it has fewer. No number is drawn twice.
 *
 * A twentieth (rounded down) of the numbers of each length is reserved for test and another for validation, independent of
 * the seed; single digits, and so the word zero, are always for training. The seed determines the training pairs and their
 * order only. A larger sample contains every smaller one. Characters are tokens. */
#define CORPUS_NUMBERS_TRAIN 900002
#define CORPUS_NUMBERS_HELD_OUT 49999 /* in either held-out set */
#define CORPUS_NUMBERS_LONGEST 95     /* no sentence has more tokens */

int corpus_numbers(uint64_t seed, int64_t n_train, int64_t n_valid, int64_t n_test, corpus_text *train,
                   corpus_text *valid, corpus_text *test);

/* ---- Ids --------------------------------------------------------------------------------------------------------- */

enum { CORPUS_SOURCE = 1, CORPUS_TARGET = 2 };

/* Builds the vocabulary of one side, or with CORPUS_SOURCE | CORPUS_TARGET a joint one. */
int corpus_vocab(const corpus_text *text, int sides, const vocab_options *options, vocab **out);

typedef struct corpus_side {
    int32_t *ids; /* of all sentences end to end, without <s> and </s> */
    int64_t *at;  /* [n + 1]: sentence i is ids[at[i] .. at[i + 1]) */
    int64_t unknown;
} corpus_side;

typedef struct corpus {
    int64_t n;
    corpus_side src, tgt;
} corpus;

static inline int64_t corpus_length(const corpus_side *side, int64_t i) { return side->at[i + 1] - side->at[i]; }

/* src and tgt may be the same vocabulary. */
int corpus_encode(corpus *out, const corpus_text *text, const vocab *src, const vocab *tgt);
void corpus_free(corpus *c);
