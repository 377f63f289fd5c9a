/* vocab.h - a vocabulary: the tokens of a training text and their ids.
 *
 * The first three ids are special: <s> begins a target sentence, </s> ends a sentence, <unk> replaces tokens that are not
 * in the vocabulary. Text cannot forge them: in text, "<s>", "</s>" and "<unk>" are unknown tokens. There is no padding
 * token, because sequences are packed end to end.
 *
 *     vocab_counter *counter = vocab_counter_create();
 *     vocab_counter_add(counter, TEXT_WORDS, line, 1);                      // for every line of the training text
 *     vocab *v;
 *     if (vocab_build(&v, counter, &(vocab_options){.min_count = 2})) ...
 *
 * A vocabulary never changes, and any number of threads may use it. Messages name the file and line. */
#pragma once

#include "support/text.h"

#include <stddef.h>
#include <stdint.h>

enum { VOCAB_START, VOCAB_END, VOCAB_UNK, VOCAB_SPECIALS };

typedef struct vocab vocab;
typedef struct vocab_counter vocab_counter;

/* Counts tokens. Both sides of a corpus, added to one counter, give a joint vocabulary. */
vocab_counter *vocab_counter_create(void); /* NULL: out of memory */
void vocab_counter_free(vocab_counter *counter);
/* Counts every token of a text `times` times. -1: out of memory. */
int vocab_counter_add(vocab_counter *counter, text_unit unit, text_slice text, int64_t times);

typedef struct vocab_options {
    int64_t min_count; /* rarer tokens are unknown */
    int64_t max_size;  /* most ids, the special ones included; 0: no limit */
} vocab_options;

/* Sorts tokens by descending count, then by their bytes. */
int vocab_build(vocab **out, const vocab_counter *counter, const vocab_options *options);
void vocab_free(vocab *v); /* NULL is fine */

int32_t vocab_size(const vocab *v);
/* VOCAB_UNK for a token that is special or not in the vocabulary. */
int32_t vocab_find(const vocab *v, text_slice token);
/* The token of an id, zero-terminated; <unk> for an invalid id. */
text_slice vocab_token(const vocab *v, int32_t id);

/* Writes the first `room` ids of a text, without <s> and </s>. Returns how many ids the text has. */
int64_t vocab_encode(const vocab *v, text_unit unit, text_slice text, int32_t *ids, int64_t room);
/* Writes the text of n ids up to the first </s>, without <s>; words are joined by one space. As snprintf does, it returns
 * the length of the whole text and writes at most size bytes, the last of them 0. */
size_t vocab_decode(const vocab *v, text_unit unit, const int32_t *ids, int64_t n, char *out, size_t size);

/* A vocabulary file has one token per line in the order of ids, the special ones first. Loading requires UTF-8, no empty
 * or repeated token, and a newline after each. */
int vocab_save(const vocab *v, const char *path);
int vocab_load(vocab **out, const char *path);
/* Parses the bytes of such a file; name is for messages. */
int vocab_parse(vocab **out, text_slice bytes, const char *name);
