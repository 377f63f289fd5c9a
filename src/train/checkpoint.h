/* checkpoint.h - all that a run needs to go on, in one safetensors file.
 *
 *   tensors    every parameter by its name (F32); "optimizer/NAME.exp_avg", "optimizer/NAME.step", ... of the optimizer
 *   metadata   "format"; "step", "epoch", ... as in checkpoint_meta; "recipe", as YAML; "optimizer/rule", ...
 *
 * Any reader of safetensors reads it. It is written to a temporary file, synced and renamed: after a crash or on a full
 * disk the one before it is still there, whole. Loading checks everything before it changes anything.
 *
 * Functions return 0, or -1 with one line in message, which begins with the path.
 *
 * SPDX-License-Identifier: MIT
 */
#ifndef ADAMOD_CHECKPOINT_H
#define ADAMOD_CHECKPOINT_H

#include "adamod.h"
#include "nn/nn.h"
#include "train/recipe.h"
#include "train/run.h"

typedef struct checkpoint_meta {
    int64_t step;            /* updates done */
    int64_t epoch, batch;    /* the batch that comes next */
    int64_t samples, tokens; /* seen in training */
    double seconds;          /* of training */
    double best;             /* validation metric so far; NAN: none yet */
    int64_t best_step;
    int64_t stale;       /* evaluations since the best */
    char mark[RUN_MARK]; /* run_mark's, or "" */
    /* Of what parameters mean beyond their names and shapes, such as the vocabularies: see checkpoint_hash. 0: nothing.
     * checkpoint_load compares it, unless one of both is 0. */
    uint64_t fingerprint;
    /* Written; and compared by checkpoint_load (recipe_compare), unless NULL. */
    const recipe *recipe;
} checkpoint_meta;

/* Parameters must have memory. optimizer NULL: parameters alone, to decode with. Its tensors, one for each parameter,
 * must have their names. */
int checkpoint_save(const char *path, const nn_params *params, const adamod_optimizer *optimizer,
                    const checkpoint_meta *meta, char *message, size_t size);

/* Parameters and the model's persistent states; optimizer NULL: nothing else, whatever else is in the file. meta's recipe and fingerprint are what the file must
 * agree with, everything else is filled in; meta NULL: none of it is wanted. */
int checkpoint_load(const char *path, nn_params *params, adamod_optimizer *optimizer, checkpoint_meta *meta,
                    char *message, size_t size);

/* What a checkpoint says of itself, without its tensors. meta->recipe becomes NULL; the recipe, if it is wanted, is
 * written to r, which must have had its defaults. */
int checkpoint_info(const char *path, checkpoint_meta *meta, recipe *r, char *message, size_t size);

/* The mean of the parameters of n checkpoints of one model, without an optimizer; everything else, persistent states too, is
 * the last one's. */
int checkpoint_average(const char *const *paths, size_t n, const char *out_path, char *message, size_t size);

/* DIRECTORY/step-N.safetensors; false if it does not fit. */
bool checkpoint_path(const char *directory, int64_t step, char *out, size_t size);
/* The steps of which there are such files, the latest first. *steps is to be freed. */
int checkpoint_list(const char *directory, int64_t **steps, size_t *n, char *message, size_t size);
/* Deletes all of them but the latest `keep`, and temporary files that a crash left; so nothing may be saving there. */
int checkpoint_prune(const char *directory, size_t keep, char *message, size_t size);

/* FNV-1a, to be begun with CHECKPOINT_HASH and continued with what it returned. */
#define CHECKPOINT_HASH UINT64_C(0xcbf29ce484222325)
uint64_t checkpoint_hash(uint64_t hash, const void *data, size_t n);

#endif
