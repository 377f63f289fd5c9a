/* patterns.h - patterns of parameters in a recipe: "stem.*,*.bias" (key_matches). */
#ifndef ADAMOD_PATTERNS_H
#define ADAMOD_PATTERNS_H

#include "nn/nn.h"

#include <stddef.h>

/* Each of them matches a parameter: 0. Else -1, and a line that begins with key says which does not, and what there is. */
int patterns_check(const nn_params *params, const char *key, const char *patterns);

#endif
