/* edit_distance.h - how far a mistyped name is from the intended one. */
#ifndef ADAMOD_CORE_EDIT_DISTANCE_H
#define ADAMOD_CORE_EDIT_DISTANCE_H

#include "core/platform.h" /* first */

#include <limits.h>

/* Returns the Levenshtein distance, ignoring case; EDIT_DISTANCE_FAR if either text is longer than 48 bytes, as no name
 * is. */
#define EDIT_DISTANCE_FAR INT_MAX
int adamod__edit_distance(const char *a, const char *b);

#endif
