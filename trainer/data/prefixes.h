/* prefixes.h - abbreviations: words whose full stop belongs to them, by language.
 *
 * SPDX-License-Identifier: MIT
 */
#ifndef PREFIXES_H
#define PREFIXES_H

#include "support/text.h"

#include <stdbool.h>

typedef struct prefixes prefixes;
typedef enum prefix_kind { PREFIX_NONE, PREFIX_ALWAYS, PREFIX_BEFORE_NUMBER } prefix_kind;

/* Of a language by its code, "de"; English ones of a language that has none. */
const prefixes *prefixes_of(const char *language);
bool prefixes_known(const char *language);

/* What a word, without its full stop, is. */
prefix_kind prefixes_find(const prefixes *p, text_slice word);

#endif
