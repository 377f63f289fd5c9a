/* score_tokens.h - how sacreBLEU splits lines into tokens before it counts: "13a" (mteval-v13a's rules), "char", "none".
 *
 * SPDX-License-Identifier: MIT
 */
#ifndef SCORE_TOKENS_H
#define SCORE_TOKENS_H

#include "data/score.h"

/* Tokens with white space between, to be freed; NULL: out of memory. */
char *score_split(score_tokens how, text_slice line);

#endif
