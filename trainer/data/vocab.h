/* vocab.h - a vocabulary: tokens and their ids, learned from training text.
 *
 * The first three ids are special: <s> begins a target sentence, </s> ends a sentence, <unk> stands for all that is not
 * in the vocabulary. No text can forge the two marks: in text, "<s>" and "</s>" are unknown tokens like any other, and
 * "<unk>" is <unk>. There is no padding token, as sequences are packed end to end.
 *
 *     vocab_counter *counter = vocab_counter_create();
 *     vocab_counter_add(counter, TEXT_WORDS, line, 1);                      // for every line of the training text
 *     vocab *v;
 *     if (vocab_build(&v, counter, &(vocab_options){.min_count = 2})) ...
 *
 * A vocabulary does not change once it is made, and any number of threads may use it.
 *
 * Messages name the file, the line and what was expected.
 *
 * SPDX-License-Identifier: MIT
 */
#ifndef VOCAB_H
#define VOCAB_H

#include "support/text.h"

#include <stddef.h>
#include <stdint.h>

enum { VOCAB_START, VOCAB_END, VOCAB_UNK, VOCAB_SPECIALS };

typedef struct vocab vocab;
typedef struct vocab_counter vocab_counter;

/* How often each token occurs. Several texts may be added to one counter: both sides of a corpus make a joint
 * vocabulary. */
vocab_counter *vocab_counter_create(void); /* NULL: out of memory */
void vocab_counter_free(vocab_counter *counter);
/* Counts every token of a text, `times` times. -1: out of memory. */
int vocab_counter_add(vocab_counter *counter, text_unit unit, text_slice text, int64_t times);

typedef struct vocab_options {
    int64_t min_count; /* tokens that are rarer are unknown */
    int64_t max_size;  /* ids at most, the special ones included; 0: no limit */
} vocab_options;

/* Ids go by falling count, and among equal counts by the tokens' bytes. */
int vocab_build(vocab **out, const vocab_counter *counter, const vocab_options *options);
void vocab_free(vocab *v); /* NULL is fine */

int32_t vocab_size(const vocab *v);
/* The id of a token of text: never a mark's, VOCAB_UNK if there is none. */
int32_t vocab_find(const vocab *v, text_slice token);
/* The token of an id, as a string too; that of <unk> for an id there is not. */
text_slice vocab_token(const vocab *v, int32_t id);

/* The ids of a text, without marks. How many there are, of which the first `room` are written. */
int64_t vocab_encode(const vocab *v, text_unit unit, text_slice text, int32_t *ids, int64_t room);
/* The text of n ids, or up to the first </s>; <s> is passed over. Words are joined by one space. Like snprintf: what it
 * needs, without the terminating zero; written as far as size allows, and always terminated if size is not 0. */
size_t vocab_decode(const vocab *v, text_unit unit, const int32_t *ids, int64_t n, char *out, size_t size);

/* As a text file, one token a line in the order of ids, the special ones first. Loading takes exactly that: UTF-8, no
 * token twice, none empty, a newline after each. */
int vocab_save(const vocab *v, const char *path);
int vocab_load(vocab **out, const char *path);
/* The same for the bytes of a file in memory; name is for messages only. */
int vocab_parse(vocab **out, text_slice bytes, const char *name);

#endif
