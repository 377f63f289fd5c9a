/* language_writer.h - writes text with a language model, token by token.
 *
 *     language_writer *w;
 *     if (language_writer_create(&w, e)) ...
 *     language_writer_begin(w);
 *     language_writer_read(w, prompt, n, sink, context);
 *     language_writer_write(w, 100, seed, sink, context);
 *
 * The text depends on the weights, the prompt, the recipe's settings and the seed; an LSTM's not on the device: see
 * language_predictor.h. */
#pragma once

#include "tasks/language.h"

typedef struct language_writer language_writer;

/* Takes the experiment's generate.temperature, top_k and top_p. */
int language_writer_create(language_writer **out, const experiment *e);
void language_writer_free(language_writer *w); /* NULL is fine */

/* Receives the text piece by piece; -1 with a message ends the writing. */
typedef int (*language_sink)(void *context, text_slice piece);

/* Whether text is the numbers of its tokens, with spaces between them. */
void language_writer_numbers(language_writer *w, bool on);

/* Forgets everything read and written. */
void language_writer_begin(language_writer *w);
/* Tokens that can be read at once; 0: any number. */
int64_t language_writer_most(const language_writer *w);
/* Reads tokens, which also go to sink unless it is NULL. Writing needs at least one token read. */
int language_writer_read(language_writer *w, const int32_t *tokens, int64_t n, language_sink sink, void *context);
/* Writes tokens, fewer if one is generate.end. */
int language_writer_write(language_writer *w, int64_t tokens, uint64_t seed, language_sink sink, void *context);

/* Allocates the tokens of a prompt, after an <eos> if the text has these. An empty prompt without <eos> is the most frequent
 * token. unknown gets the words that are not in the vocabulary and are read as <unk>: "a, b and 3 more"; "": none. */
int language_prompt(const experiment *e, text_slice text, int32_t **tokens, int64_t *n, char *unknown,
                    size_t unknown_size);
