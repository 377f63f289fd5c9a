/* Internals of checkpoint.h: checkpoint.c saves and loads, checkpoint_average.c averages. */
#pragma once

#include "core/safetensors.h"
#include "train/checkpoint.h"

/* Largest header in bytes. A model of 1000 layers, the most in a recipe, stays below it; a file of another kind does not
 * fill the memory. */
#define CHECKPOINT_MOST_HEADER ((uint64_t)48 << 20)

/* Metadata key of the weight in checkpoint_to_evaluate_with. */
extern const char checkpoint_evaluation_key[];

int checkpoint_fail_memory(const char *path);

/* The kind of a tensor, by its name: the optimizer's, a persistent state of the model, else a parameter. */
bool checkpoint_is_optimizers(const char *name);
bool checkpoint_is_state(const char *name);
bool checkpoint_is_param(const char *name);

/* Fails if the file is not a checkpoint. */
int checkpoint_read_metadata(const adamod__st_file *file, checkpoint_meta *meta, const char *path);

/* Turns a parameter y of n numbers into the weights for evaluation: y + weight (z - y), where z is a state of the
 * optimizer. Rules that average the weights train others than they are evaluated with. */
int checkpoint_to_evaluate_with(const adamod__st_file *file, const char *parameter, float *y, size_t n,
                                const char *path);
