/* tokenizer.h - text to tokens and back, by the rules of Moses' tokenizer.perl and detokenizer.perl as implemented by
 * sacremoses.
 *
 *     tokenizer *t = tokenizer_create(&(tokenizer_options){.language = "de"});
 *     char *tokens = tokenizer_split(t, text_of("Das ist es, z. B. hier."));     // "Das ist es , z. B. hier ."
 *     char *text = tokenizer_join(t, text_of(tokens));
 *
 * A full stop is a token unless its word is an abbreviation of the language (prefixes.h), holds another full stop and a
 * letter, or is followed by a lower-case letter. English, French and Italian have their own rules for apostrophes. The
 * characters & | < > ' " [ ] are written as XML entities, unless plain.
 *
 * Differences from sacremoses 0.2.0: letters added to Unicode since 2014 are letters, as in Perl; text that contains
 * sacremoses' own markers ("DOTMULTI") is not changed; Czech decimal numbers and words with "-li" are joined as in Moses,
 * where sacremoses has bugs. */
#pragma once

#include "support/text.h"

#include <stdbool.h>

typedef struct tokenizer tokenizer;

typedef struct tokenizer_options {
    const char *language; /* "de" */
    bool plain;           /* neither writes nor reads XML entities */
    bool split_hyphens;   /* a-b becomes a @-@ b; joining always undoes it */
    bool split_last; /* the full stop at the end of a line is always a token, as in Moses since November 2018, but not
                             in sacremoses */
} tokenizer_options;

/* NULL: out of memory. */
tokenizer *tokenizer_create(const tokenizer_options *options);
void tokenizer_free(tokenizer *t); /* NULL is fine */

/* Whether abbreviations of this language are known. Others use the English ones. */
bool tokenizer_knows(const char *language);

/* Text to tokens separated by spaces, and back. The caller frees the line; NULL: out of memory. Use one tokenizer per
 * thread. */
char *tokenizer_split(tokenizer *t, text_slice line);
char *tokenizer_join(tokenizer *t, text_slice line);
