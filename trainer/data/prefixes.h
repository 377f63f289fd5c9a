/* prefixes.h - abbreviations by language: words that keep their full stop. */
#pragma once

#include "support/text.h"

#include <stdbool.h>

typedef struct prefixes prefixes;
typedef enum prefix_kind { PREFIX_NONE, PREFIX_ALWAYS, PREFIX_BEFORE_NUMBER } prefix_kind;

/* The abbreviations of a language such as "de"; English ones if it has none. */
const prefixes *prefixes_of(const char *language);
bool prefixes_known(const char *language);

/* word is without its full stop. */
prefix_kind prefixes_find(const prefixes *p, text_slice word);
