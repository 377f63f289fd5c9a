/* tokenizer_internal.h - what tokenizer.c and detokenizer.c share. */
#ifndef TOKENIZER_INTERNAL_H
#define TOKENIZER_INTERNAL_H

#include "data/points.h"
#include "data/prefixes.h"
#include "data/tokenizer.h"

#include <stdio.h>

struct tokenizer {
    tokenizer_options options;
    char language[16];
    const prefixes *prefixes;
    bool han, hangul, kana; /* letters too */
    points in, out;         /* of the rule that is applied */
};

bool tokenizer__is_letter(const tokenizer *t, uint32_t c);
/* What was written is what the next rule reads. */
void tokenizer__swap(tokenizer *t);
/* White space to single spaces, none at the ends. */
void tokenizer__squeeze(tokenizer *t);
/* "&amp;" for '&'; NULL: the character stays. */
const char *tokenizer__entity_of(uint32_t c);

#endif
