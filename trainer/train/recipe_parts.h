/* Internals of recipe.h: places in messages, and setting any key. */
#pragma once

#include "train/recipe.h"

/* The origin of a value, for messages. */
typedef struct recipe_place {
    const char *flag; /* "--beam", which stands for the key; NULL: none */
    const char *file;
    int line;   /* as in recipe_given */
    int column; /* 0: not known */
} recipe_place;

/* Fails with the place in front; returns -1. */
int recipe_fail(const recipe_place *at, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* A key and the struct that has its field. */
typedef struct recipe_key {
    const key_spec *k;
    void *settings;
} recipe_key;

/* Lists all keys of the loop, the chosen task and the chosen model, by section; returns how many. */
int recipe_list_keys(const recipe *r, recipe_key out[RECIPE_MAX_KEYS]);

/* Sets any key, also of tasks and models that are not chosen (yet). */
int recipe_set_path(recipe *r, const char *path, const char *text, const recipe_place *at);
/* Chooses the task or the model, without a note of where it was given. A value that is wrong is ignored, as it is
 * reported later. */
int recipe_choose(recipe *r, const char *path, const char *text);
int recipe_no_such_key(const recipe *r, const recipe_place *at, const char *path);

/* Whether a path is a section ("data", "optimizer.schedule"). */
bool recipe_is_section(const recipe *r, const char *path);
/* Whether a key takes a list. */
bool recipe_is_list(const recipe *r, const char *path);
/* Describes valid values of a key; false: there is no such key. */
bool recipe_expected(const recipe *r, const char *path, char *out, size_t size);

/* Whether another rule has this option, but not the recipe's rule. */
bool recipe_is_foreign(const recipe *r, const char *option);

/* ---- groups of parameters, recipe_groups.c ---- */

extern const char recipe_group_section[];
/* Whether a path is a group or below it ("optimizer.groups.head.lr"); gives the group's name. */
bool recipe_group_path(const char *path, char name[32]);
int recipe_check_group_value(const char *path, const char *text, const recipe_place *at);
int recipe_check_groups(const recipe *r);
/* Fails unless both recipes divide parameters into the same groups; options are not compared. */
int recipe_compare_groups(const recipe *was, const recipe *is, const recipe_place *at);

extern const char recipe_option_section[];

const char *recipe_leaf(const char *path);
