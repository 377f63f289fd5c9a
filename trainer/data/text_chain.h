/* text_chain.h - sentences to the tokens of a model and back: normalizes punctuation, tokenizes and converts case.
 *
 *     text_chain *c = text_chain_create(&(text_chain_options){.language = "de", .lower = true});
 *     char *tokens = text_chain_split(c, text_of("Das ist es."));     // "das ist es ." */
#pragma once

#include "support/text.h"

#include <stdbool.h>

typedef struct text_chain text_chain;

/* The steps, in this order. */
typedef struct text_chain_options {
    const char *language;
    bool normalize;                        /* as Moses does (normalizer.h); unprintable characters become spaces */
    bool plain, split_hyphens, split_last; /* see tokenizer.h */
    bool lower;
} text_chain_options;

text_chain *text_chain_create(const text_chain_options *options); /* NULL: out of memory */
void text_chain_free(text_chain *c);                              /* NULL is fine */

/* The caller frees the result; NULL: out of memory. Use one chain per thread. */
char *text_chain_split(text_chain *c, text_slice line);
char *text_chain_join(text_chain *c, text_slice tokens); /* keeps the case of the tokens */
