/* score_tokens.h - splits lines into tokens as sacreBLEU does: "13a" (rules of mteval-v13a), "char", "none". */
#pragma once

#include "data/score.h"

/* Tokens separated by white space, which the caller frees; NULL: out of memory. */
char *score_split(score_tokens how, text_slice line);
