/* edit_distance.h - how far a mistyped name is from the one that was meant. */
#ifndef ADAMOD_CORE_EDIT_DISTANCE_H
#define ADAMOD_CORE_EDIT_DISTANCE_H

#include "core/platform.h" /* first */

#include <limits.h>

/* Letters to insert, to delete or to change, whatever their case. EDIT_DISTANCE_FAR if either is longer than 48 bytes,
 * which no name is. */
#define EDIT_DISTANCE_FAR INT_MAX
int adamod__edit_distance(const char *a, const char *b);

#endif
