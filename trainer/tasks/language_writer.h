/* language_writer.h - a language model that writes, token by token.
 *
 *     language_writer *w;
 *     if (language_writer_create(&w, e)) ...
 *     language_writer_begin(w);
 *     language_writer_read(w, prompt, n, sink, context);
 *     language_writer_write(w, 100, seed, sink, context);
 *
 * It has a copy of the model, on the processor, and computes by the reference kernels: in double precision, in one order.
 * So what it writes follows from the weights, the prompt, the recipe's settings and the seed, whatever device the
 * experiment is on. */
#ifndef ADAMOD_LANGUAGE_WRITER_H
#define ADAMOD_LANGUAGE_WRITER_H

#include "tasks/language.h"

typedef struct language_writer language_writer;

/* With the weights that the experiment has now, and its generate.temperature, top_k and top_p. */
int language_writer_create(language_writer **out, const experiment *e);
void language_writer_free(language_writer *w); /* NULL is fine */

/* Takes a piece of text as it comes; -1 with a message ends the writing. */
typedef int (*language_sink)(void *context, text_slice piece);

/* Forgets all that was read and written. */
void language_writer_begin(language_writer *w);
/* Reads tokens, at least one after it began, before it can write. They go to sink, too, unless it is NULL. */
int language_writer_read(language_writer *w, const int32_t *tokens, int64_t n, language_sink sink, void *context);
int language_writer_write(language_writer *w, int64_t tokens, uint64_t seed, language_sink sink, void *context);

/* A prompt in tokens, to be freed, with what is read before it: the end of a line, where the text has such. Without words,
 * and without such ends, it is the most frequent token. unknown gets the words that are not in the vocabulary, "a, b and 3
 * more", which are read as <unk>; "": there are none. */
int language_prompt(const experiment *e, text_slice text, int32_t **tokens, int64_t *n, char *unknown,
                    size_t unknown_size);

#endif
