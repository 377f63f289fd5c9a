/* normalizer.h - normalizes punctuation by the rules of Moses' normalize-punctuation.perl as implemented by sacremoses, and
 * converts to lower case.
 *
 * Quotation marks become ", apostrophes ', dashes -, an ellipsis three full stops. Spaces before : ; % and inside brackets
 * are removed. A non-breaking space between digits becomes the language's decimal mark. */
#pragma once

#include "data/points.h"

#include <stdbool.h>

typedef struct normalizer {
    char language[16];
    /* As Moses' own script, which differs from sacremoses: a right quotation mark that is no apostrophe becomes ", not ';
     * guillemets keep a space outside; a full stop moves behind a " at the end of a line, too. Set it after the start. */
    bool moses;
    points in, out; /* of the current rule */
} normalizer;

/* Starts from {0} with a language such as "de". The functions below return a line that the caller frees, or NULL: out of
 * memory. */
void normalizer_start(normalizer *n, const char *language);
char *normalizer_line(normalizer *n, text_slice line);
void normalizer_free(normalizer *n);

/* As Perl's lc and Moses' lowercase.perl: character by character, without final sigma. */
char *normalizer_lower(normalizer *n, text_slice line);
/* As Python's lower() and sacreBLEU: a capital sigma at the end of a word becomes a final sigma. */
char *normalizer_lower_words(normalizer *n, text_slice line);
