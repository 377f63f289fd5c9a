/* checkpoints.h - the checkpoints in a run's directory: what they are called, which there are, which are whole.
 *
 *   last        where the run stands; --resume goes on from it
 *   best        of the evaluation that was the best so far
 *   averaged    the mean of the last ones, made at the end (train.average)
 *   step-N      after update N: those that the average is taken over, and those that train.keep_every keeps
 *
 * last and those of train.keep_every have the optimizer's states; others have the model alone, unless train.keep_states says
 * otherwise.
 *
 * SPDX-License-Identifier: MIT
 */
#ifndef ADAMOD_CHECKPOINTS_H
#define ADAMOD_CHECKPOINTS_H

#include "train/recipe.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* ---- by name, in DIRECTORY, a run's ---- */

/* Whether a text can say which checkpoint is meant: a name, or something that looks like a file or is one. */
bool checkpoints_is_name(const char *which);

/* The file of a run that is meant, which must be there: by a name, or else by its path. *which NULL: the first there is
 * of averaged, best and last, which it then names. */
int checkpoints_find(const char *directory, const char **which, char *path, size_t path_size);

/* The recipe that a run goes on with, into one that has its defaults: recipe.yaml, unless "last" has replaced it by
 * its own and the process died before that was written out. */
int checkpoints_recipe(const char *directory, recipe *r);
/* A fingerprint of recipe.yaml as it is, for checkpoint_meta's replaces; 0: it cannot be read. */
uint64_t checkpoints_recipe_now(const char *directory);

/* After one could not be read: fails again, adding which others of the run are whole, and by which flag they are named,
 * "--resume-from" or "--checkpoint", unless the file itself is whole and something else is wrong. resume: those that
 * training can go on from; or if there are none, those that it can with a new optimizer. It reads them all. */
int checkpoints_offer(const char *directory, const char *path, bool resume);

/* ---- in DIRECTORY, a run's "checkpoints" ---- */

/* DIRECTORY/step-N.safetensors; false if it does not fit. */
bool checkpoint_path(const char *directory, int64_t step, char *out, size_t size);
/* The steps of which there are such files, the latest first. *steps is to be freed. */
int checkpoint_list(const char *directory, int64_t **steps, size_t *n);
/* Deletes all of them but the latest `keep` and those that `kept` says (NULL: none), and temporary files that a crash
 * left; so nothing may be saving there. */
typedef bool checkpoint_kept(const void *context, int64_t step);
int checkpoint_prune(const char *directory, size_t keep, checkpoint_kept *kept, const void *context);
/* Deletes those after more than so many updates, which a run that goes back leaves behind. */
int checkpoint_drop_after(const char *directory, int64_t step);

#endif
