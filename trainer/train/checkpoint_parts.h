/* What the files of checkpoint.h share: checkpoint.c saves and loads, checkpoint_average.c makes one of several. */
#ifndef ADAMOD_CHECKPOINT_PARTS_H
#define ADAMOD_CHECKPOINT_PARTS_H

#include "core/safetensors.h"
#include "train/checkpoint.h"

/* Of its header. The largest model that a recipe can ask for, 1000 layers, stays below it, so what is saved can be read;
 * and a file that is something else does not fill the memory. */
#define CHECKPOINT_MOST_HEADER ((uint64_t)48 << 20)

/* The metadata with the weight in checkpoint_to_evaluate_with. */
extern const char checkpoint_evaluation_key[];

int checkpoint_fail_memory(const char *path);

/* What a tensor is, by its name: the optimizer's, a persistent state of the model, or else a parameter. */
bool checkpoint_is_optimizers(const char *name);
bool checkpoint_is_state(const char *name);
bool checkpoint_is_param(const char *name);

/* Fails if the file is not a checkpoint. */
int checkpoint_read_metadata(const adamod__st_file *file, checkpoint_meta *meta, const char *path);

/* Rules that average their path train other weights than those to use: parameter + weight (z - parameter). y is a
 * parameter's, of n numbers. */
int checkpoint_to_evaluate_with(const adamod__st_file *file, const char *parameter, float *y, size_t n,
                                const char *path);

#endif
