/* small_recipe.h - recipes of tests: a text, and keys that are set on top of it. */
#ifndef SMALL_RECIPE_H
#define SMALL_RECIPE_H

#include "train/recipe.h"

/* Whether a text with some keys set is a recipe of the trainer's tasks; if not, the last message says why. A text that is not
 * a recipe by itself fails the test. assignments ends with NULL, and may be NULL. r was initialised before. */
bool small_recipe(recipe *r, const char *text, const char *const *assignments);
#define WITH(...) ((const char *const[]){__VA_ARGS__, NULL})

/* A recipe that is freed at the end of its block. It must be initialised. */
#define OWNED_RECIPE __attribute__((cleanup(recipe_free))) recipe

/* The recipe as YAML, to be freed. */
char *recipe_text(const recipe *r);
/* Whether all values are equal, bit for bit; with origins also where they came from. */
bool recipes_equal(const recipe *a, const recipe *b, bool origins);

#endif
