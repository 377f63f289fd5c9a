/* small_recipe.h - recipes of tests: a text, and keys that are set on top of it.
 *
 * SPDX-License-Identifier: MIT
 */
#ifndef SMALL_RECIPE_H
#define SMALL_RECIPE_H

#include "train/recipe.h"

/* Whether a text, with some keys set, up to NULL, is a recipe of the trainer's tasks; if not, the last message says why. A text that
 * is none by itself fails the test. assignments may be NULL. */
bool small_recipe(recipe *r, const char *text, const char *const *assignments);
#define WITH(...) ((const char *const[]){__VA_ARGS__, NULL})

#endif
