/* normalizer.h - punctuation made uniform, by the rules of Moses' normalize-punctuation.perl as sacremoses has them, and
 * lower case.
 *
 * Quotation marks become ", apostrophes ', dashes -, an ellipsis three full stops; spaces before : ; % and around brackets
 * go; a non-breaking space between digits becomes the language's decimal mark.
 *
 * SPDX-License-Identifier: MIT
 */
#ifndef NORMALIZER_H
#define NORMALIZER_H

#include "data/points.h"

#include <stdbool.h>

typedef struct normalizer {
    char language[16];
    /* As Moses' own script has it, where sacremoses differs: a right quotation mark that is no apostrophe becomes ", not ',
     * French ones keep a space outside, and a full stop goes behind a " at the end of a line, too. May be set after the
     * start. */
    bool moses;
    points in, out; /* of the rule that is applied */
} normalizer;

/* Begins with {0}; language is "de". normalizer_line gives a line to be freed, or NULL without memory. */
void normalizer_start(normalizer *n, const char *language);
char *normalizer_line(normalizer *n, text_slice line);
void normalizer_free(normalizer *n);

/* As Perl's lc, and Moses' lowercase.perl: character by character, so a final sigma is like any other. */
char *normalizer_lower(normalizer *n, text_slice line);
/* As Python's lower(), and so sacreBLEU: a capital sigma that ends a word becomes a final one. */
char *normalizer_lower_words(normalizer *n, text_slice line);

#endif
