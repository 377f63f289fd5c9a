/* patterns.h - patterns of parameter names in a recipe: "stem.*,*.bias" (key_matches). */
#pragma once

#include "nn/nn.h"

/* Fails if a pattern matches no parameter; the message begins with key and suggests names. */
int patterns_check(const nn_params *params, const char *key, const char *patterns);
