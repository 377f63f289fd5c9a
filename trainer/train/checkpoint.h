/* checkpoint.h - the state of a run in one safetensors file.
 *
 *   tensors    every parameter by its name (F32); "state/NAME", persistent states of the model; if training can resume
 *              from it, "optimizer/NAME.exp_avg", "optimizer/NAME.step", ...
 *   metadata   "format"; "step", "epoch", ... as in checkpoint_meta; "data", the fingerprints of the data; "recipe", as
 *              YAML; "optimizer/rule", ...
 *
 * A checkpoint is written to a temporary file, synced and renamed, so a crash or a full disk leaves the previous one
 * whole. Loading checks everything before it changes anything, and refuses a file in which any byte was changed.
 * checkpoints.h has the names of a run's checkpoints.
 *
 * Messages begin with the path. */
#pragma once

#include "adamod.h"
#include "nn/nn.h"
#include "train/recipe.h"
#include "train/run.h"

#define CHECKPOINT_DATA 512

typedef struct checkpoint_meta {
    int64_t step;            /* updates done */
    int64_t epoch, batch;    /* of the next batch */
    int64_t samples, tokens; /* seen in training */
    double seconds;          /* of training */
    double best;             /* best validation metric; NAN: none yet */
    int64_t best_step;
    int64_t stale; /* evaluations since the best */
    /* Step of the checkpoint "last" at the time of saving; 0: there was none; -1: unknown, in files of earlier versions. */
    int64_t last_step;
    /* Hash of the recipe.yaml that this checkpoint's recipe is to replace; 0: none. */
    uint64_t replaces;
    char mark[RUN_MARK];        /* from run_mark, or "" */
    char data[CHECKPOINT_DATA]; /* fingerprints of the data, "data.source 0123456789abcdef data.target ..."; or "" */
    /* Fingerprint of the meaning of parameters beyond names and shapes, such as vocabularies; 0: none. checkpoint_load
     * compares it, unless either is 0. */
    uint64_t fingerprint;
    /* Saved, and compared by checkpoint_load (recipe_compare with except); NULL: neither. */
    const recipe *recipe;
    int except;
} checkpoint_meta;

/* Saves parameters, which must have memory, and the optimizer's states; optimizer NULL: parameters only. The optimizer's
 * tensors must have the names of the parameters. */
int checkpoint_save(const char *path, const nn_params *params, const adamod_optimizer *optimizer,
                    const checkpoint_meta *meta);

/* A file to write. Without the optimizer's states it has the weights for evaluation, which some rules compute from their
 * states; if such states are not f32, they are saved in any case. */
typedef struct checkpoint_target {
    const char *path;
    bool states;
} checkpoint_target;

/* Saves to n files, from a copy, by a thread of its own. Equal files are hard links if the file system has them. If the
 * copy would take more than 1 GiB, all is written on return. Nothing else may save there before checkpoint_end. Returns
 * NULL on failure. */
typedef struct checkpoint_writer checkpoint_writer;
checkpoint_writer *checkpoint_begin(const checkpoint_target *targets, int n, const nn_params *params,
                                    const adamod_optimizer *optimizer, const checkpoint_meta *meta);
/* Whether writing has failed so far. */
bool checkpoint_has_failed(const checkpoint_writer *w);
/* Waits for the writer and frees it; fails if a file could not be written. w may be NULL. */
int checkpoint_end(checkpoint_writer *w);

/* Loads parameters, persistent states of the model and, unless NULL, the optimizer's states. The file must agree with
 * meta's recipe and fingerprint; the other fields are filled in. meta may be NULL. With neither an optimizer nor a
 * recipe, states by nn_carried stay as they are. */
int checkpoint_load(const char *path, nn_params *params, adamod_optimizer *optimizer, checkpoint_meta *meta);

/* The weights of a file to load, and how to refuse others. */
typedef struct checkpoint_weights {
    uint64_t fingerprint; /* a checkpoint's must be equal, unless all parameters that match meaning are skipped */
    const char *skip;     /* patterns (key_matches) of parameters and states that stay as they are; NULL: none */
    const char *meaning;  /* patterns of parameters that the fingerprint is about; NULL: not known */
    const char *other;    /* names another meaning: "other classes" */
    const char *way_out;  /* advice for the message, after "; "; "": none */
} checkpoint_weights;

/* Loads parameters and persistent states, except those by nn_carried, from any safetensors file that has them by name.
 * how NULL: all, without a look at the fingerprint. */
int checkpoint_load_weights(const char *path, nn_params *params, const checkpoint_weights *how);

/* Reads a whole checkpoint and fails if it is damaged. *resumable: it has the optimizer's states. */
int checkpoint_verify(const char *path, bool *resumable, checkpoint_meta *meta);

/* Reads the metadata; meta->recipe becomes NULL. The recipe replaces *r, in which tasks must be set; r may be NULL. */
int checkpoint_info(const char *path, checkpoint_meta *meta, recipe *r);

/* Writes the mean of the parameters of n checkpoints, without an optimizer. Metadata and persistent states are those of
 * the last. */
int checkpoint_average(const char *const *paths, size_t n, const char *out_path);
