/* checkpoint.h - all that a run needs to go on, in one safetensors file.
 *
 *   tensors    every parameter by its name (F32); "optimizer/NAME.exp_avg", "optimizer/NAME.step", ... of the optimizer,
 *              in those that training can go on from
 *   metadata   "format"; "step", "epoch", ... as in checkpoint_meta; "data", the fingerprints of the data; "recipe", as
 *              YAML; "optimizer/rule", ...
 *
 * Any reader of safetensors reads it. It is written to a temporary file, synced and renamed: after a crash or on a full
 * disk the one before it is still there, whole. Loading checks everything before it changes anything: one in which any
 * byte was changed is refused, whatever of it is wanted. checkpoints.h has the names that a run gives them.
 *
 * Messages begin with the path.
 *
 * SPDX-License-Identifier: MIT
 */
#ifndef ADAMOD_CHECKPOINT_H
#define ADAMOD_CHECKPOINT_H

#include "adamod.h"
#include "nn/nn.h"
#include "train/recipe.h"
#include "train/run.h"

#define CHECKPOINT_DATA 512

typedef struct checkpoint_meta {
    int64_t step;            /* updates done */
    int64_t epoch, batch;    /* the batch that comes next */
    int64_t samples, tokens; /* seen in training */
    double seconds;          /* of training */
    double best;             /* validation metric so far; NAN: none yet */
    int64_t best_step;
    int64_t stale; /* evaluations since the best */
    /* Of the checkpoint "last" that was there when this one was saved: 0: none was; -1: not known, in files of earlier
     * versions. */
    int64_t last_step;
    /* Of the text of recipe.yaml that this one's recipe replaces, where that was to change with it; 0: none. */
    uint64_t replaces;
    char mark[RUN_MARK];        /* run_mark's, or "" */
    char data[CHECKPOINT_DATA]; /* fingerprints of the data, "data.source 0123456789abcdef data.target ..."; or "" */
    /* Of what parameters mean beyond their names and shapes, such as the vocabularies: see checkpoint_hash. 0: nothing.
     * checkpoint_load compares it, unless one of both is 0. */
    uint64_t fingerprint;
    /* Written; and compared by checkpoint_load (recipe_compare, but for what except says), unless NULL. */
    const recipe *recipe;
    int except;
} checkpoint_meta;

/* Parameters must have memory. optimizer NULL: parameters alone, to decode with. Its tensors, one for each parameter that
 * is trained, must have their names. */
int checkpoint_save(const char *path, const nn_params *params, const adamod_optimizer *optimizer,
                    const checkpoint_meta *meta);

/* Where one goes, and whether with the optimizer's states, to go on from; without them it has the weights that are used,
 * which some rules make from their states. (Of such a rule whose states are not f32 it keeps them in any case.) */
typedef struct checkpoint_target {
    const char *path;
    bool states;
} checkpoint_target;

/* The same, written to n places one after the other while the caller goes on: from a copy, by a thread of its own. Those that
 * are equal share one file, where the file system has hard links. Where a copy would take more than 1 GiB, it returns only
 * when all is written. Nothing else may be saving there before checkpoint_end. NULL: it was not begun. */
typedef struct checkpoint_writer checkpoint_writer;
checkpoint_writer *checkpoint_begin(const checkpoint_target *targets, int n, const nn_params *params,
                                    const adamod_optimizer *optimizer, const checkpoint_meta *meta);
/* Whether it is known already that it could not be written. */
bool checkpoint_has_failed(const checkpoint_writer *w);
/* Waits for it and frees it; fails if it could not be written. NULL: nothing to wait for. */
int checkpoint_end(checkpoint_writer *w);

/* Parameters and the model's persistent states; optimizer NULL: nothing else, whatever else is in the file. meta's recipe
 * and fingerprint are what the file must agree with, everything else is filled in; meta NULL: none of it is wanted. With
 * neither an optimizer nor a recipe, the model alone is taken: states by nn_carried stay as they are. */
int checkpoint_load(const char *path, nn_params *params, adamod_optimizer *optimizer, checkpoint_meta *meta);

/* What of a file's weights is taken. */
typedef struct checkpoint_weights {
    uint64_t fingerprint; /* of a checkpoint it must agree, unless all that match meaning are skipped */
    const char *skip;     /* patterns (key_matches) of parameters and states that stay as they are; NULL: none */
    const char *meaning;  /* patterns of parameters that mean what the fingerprint is of; NULL: not known */
    const char *other;    /* what other meaning is, in words: "other classes" */
    const char *way_out;  /* what a user can do then, in words that follow "; "; "": nothing */
} checkpoint_weights;

/* Parameters and persistent states, but those by nn_carried, of any safetensors file that has them by name, a checkpoint or
 * not. how NULL: all, whatever they mean. */
int checkpoint_load_weights(const char *path, nn_params *params, const checkpoint_weights *how);

/* Reads all of a checkpoint, and fails if it is not whole. *resumable tells whether it has an optimizer's state. */
int checkpoint_verify(const char *path, bool *resumable, checkpoint_meta *meta);

/* What a checkpoint says of itself, without its tensors. meta->recipe becomes NULL; the recipe, if it is wanted, is
 * written to r, which must have had its defaults. */
int checkpoint_info(const char *path, checkpoint_meta *meta, recipe *r);

/* The mean of the parameters of n checkpoints of one model, without an optimizer; everything else, persistent states too, is
 * the last one's. */
int checkpoint_average(const char *const *paths, size_t n, const char *out_path);

/* FNV-1a, to be begun with CHECKPOINT_HASH and continued with what it returned. */
#define CHECKPOINT_HASH UINT64_C(0xcbf29ce484222325)
uint64_t checkpoint_hash(uint64_t hash, const void *data, size_t n);

#endif
