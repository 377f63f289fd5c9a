/* tokenizer.h - text to tokens and back, by the rules of Moses' tokenizer.perl and detokenizer.perl as sacremoses has
 * them.
 *
 *     tokenizer *t = tokenizer_create(&(tokenizer_options){.language = "de"});
 *     char *tokens = tokenizer_split(t, text_of("Das ist es, z. B. hier."));     // "Das ist es , z. B. hier ."
 *     char *text = tokenizer_join(t, text_of(tokens));
 *
 * A full stop is a token unless its word is an abbreviation of the language (prefixes.h), holds another full stop and a
 * letter, or is followed by a small letter. Apostrophes go by the language: English, French and Italian have rules of
 * their own. The characters & | < > ' " [ ] are written as XML entities, unless plain.
 *
 * Differences to sacremoses 0.2.0: letters that Unicode has had since 2014 are letters, as they are in Perl; text that
 * holds sacremoses' own markers ("DOTMULTI") stays as it is; Czech decimal numbers and words with "-li" are joined as
 * Moses does, where sacremoses compares the wrong words or stops.
 *
 * SPDX-License-Identifier: MIT
 */
#ifndef TOKENIZER_H
#define TOKENIZER_H

#include "support/text.h"

#include <stdbool.h>

typedef struct tokenizer tokenizer;

typedef struct tokenizer_options {
    const char *language; /* "de"; of one without rules, see tokenizer_knows, those of any other */
    bool plain;           /* no XML entities: neither written nor read */
    bool split_hyphens;   /* a-b becomes a @-@ b; joining always undoes it */
    bool split_last;      /* the full stop of a line's last word is a token whatever the word is, as for Moses since
                             November 2018, but not for sacremoses */
} tokenizer_options;

/* NULL: out of memory. */
tokenizer *tokenizer_create(const tokenizer_options *options);
void tokenizer_free(tokenizer *t); /* NULL is fine */

/* Whether there are abbreviations of this language. Of others, English ones are used. */
bool tokenizer_knows(const char *language);

/* A line to one of tokens with a space between, and the way back; to be freed. NULL: out of memory. Not to be called for
 * one tokenizer by two threads at once. */
char *tokenizer_split(tokenizer *t, text_slice line);
char *tokenizer_join(tokenizer *t, text_slice line);

#endif
