/* text_chain.h - a sentence to the tokens that a model reads, and back: punctuation, tokens and case in one call, as the
 * preparation of a data set says.
 *
 *     text_chain *c = text_chain_create(&(text_chain_options){.language = "de", .lower = true});
 *     char *tokens = text_chain_split(c, text_of("Das ist es."));     // "das ist es ."
 *
 * SPDX-License-Identifier: MIT
 */
#ifndef TEXT_CHAIN_H
#define TEXT_CHAIN_H

#include "support/text.h"

#include <stdbool.h>

typedef struct text_chain text_chain;

/* What is done, in this order. */
typedef struct text_chain_options {
    const char *language;
    bool normalize;                 /* normalizer.h, as Moses has it; then characters that are not printed become
                                       spaces, as by remove-non-printing-char.perl */
    bool plain;                     /* tokens without XML entities; see tokenizer.h */
    bool split_hyphens, split_last; /* the same */
    bool lower;
} text_chain_options;

text_chain *text_chain_create(const text_chain_options *options); /* NULL: out of memory */
void text_chain_free(text_chain *c);                              /* NULL is fine */

/* To be freed; NULL: out of memory. Not to be called for one chain by two threads at once. */
char *text_chain_split(text_chain *c, text_slice line);
char *text_chain_join(text_chain *c, text_slice tokens); /* in the case the tokens have */

#endif
