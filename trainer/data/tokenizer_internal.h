/* tokenizer_internal.h - shared by tokenizer.c and detokenizer.c. */
#pragma once

#include "data/points.h"
#include "data/prefixes.h"
#include "data/tokenizer.h"

struct tokenizer {
    tokenizer_options options;
    char language[16];
    const prefixes *prefixes;
    bool han, hangul, kana; /* count as letters */
    points in, out;         /* of the current pass */
};

bool tokenizer__is_letter(const tokenizer *t, uint32_t c);
/* Runs a pass; its output becomes the input of the next. */
void tokenizer__run(tokenizer *t, void (*pass)(tokenizer *t));
/* A pass: white space becomes single spaces, none at the ends. */
void tokenizer__squeeze(tokenizer *t);
/* "&amp;" for '&'; NULL: the character stays. */
const char *tokenizer__entity_of(uint32_t c);
