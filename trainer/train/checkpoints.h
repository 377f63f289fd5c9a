/* checkpoints.h - the checkpoints in a run's directory: names, lists, and which are undamaged.
 *
 *   last        the latest; --resume continues from it
 *   best        at the best evaluation so far
 *   averaged    mean of the last ones, made at the end (train.average)
 *   step-N      after update N: to average, or kept by train.keep_every
 *
 * last and those of train.keep_every have the optimizer's states; with train.keep_states all have them. */
#pragma once

#include "support/text.h"
#include "train/recipe.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* ---- by name; directory is the run's ---- */

/* DIRECTORY/checkpoints/NAME.safetensors. */
path_text checkpoints_path(const char *directory, const char *name);

/* Whether a text is a checkpoint's name, or a file or looks like one. */
bool checkpoints_is_name(const char *which);

/* Finds an existing checkpoint by name or path. *which NULL: the first of averaged, best and last, whose name it
 * becomes. */
int checkpoints_find(const char *directory, const char **which, char *path, size_t path_size);

/* Loads the recipe of a run into one with defaults: recipe.yaml, or the one in "last" if the process died between
 * writing that and recipe.yaml. */
int checkpoints_recipe(const char *directory, recipe *r);
/* The hash of recipe.yaml for checkpoint_meta.replaces; 0: it cannot be read. */
uint64_t checkpoints_recipe_now(const char *directory);

/* After the checkpoint at path could not be loaded: fails again and, if it is damaged, adds which others of the run are
 * not, and the flag that names one, "--resume-from" or "--checkpoint". resume: lists those with the optimizer's states,
 * or if there are none, those without. It reads all of them. */
int checkpoints_offer(const char *directory, const char *path, bool resume);

/* ---- directory is the run's "checkpoints" ---- */

/* DIRECTORY/step-N.safetensors; false: it does not fit. */
bool checkpoint_path(const char *directory, int64_t step, char *out, size_t size);
/* Lists the steps of such files, the latest first. *steps is to be freed. */
int checkpoint_list(const char *directory, int64_t **steps, size_t *n);
/* Deletes all of them except the latest `keep` and those for which kept is true (NULL: none); also temporary files of a
 * crash, so nothing may be saving there. */
typedef bool checkpoint_kept(const void *context, int64_t step);
int checkpoint_prune(const char *directory, size_t keep, checkpoint_kept *kept, const void *context);
/* Deletes those after more than `step` updates. */
int checkpoint_drop_after(const char *directory, int64_t step);
