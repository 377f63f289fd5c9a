/* optim.h - functions for the trainer beyond adamod.h. None of them is exported. The trainer includes no other header of
 * lib/optim. */
#ifndef ADAMOD_OPTIM_H
#define ADAMOD_OPTIM_H

#include "core/safetensors.h"
#include "optim/device.h"

#include <stdbool.h>

/* The index of "cuda" or "cuda:N". */
adamod_status adamod__parse_device(const char *text, int *index);

/* The instruction set that handles made now would use; NULL: ADAMOD_ISA names one that is not there, see
 * adamod_last_error. */
const char *adamod__chosen_isa(void);

/* Another name of rule number index, under which it has other defaults, and what that means; NULL: it has none. */
const char *adamod__rule_alias(int index, const char **summary);

/* The GPU that a handle is on, with the functions that work on it; both NULL: it is on the CPU. */
typedef struct adamod__gpu {
    const adamod__device_api *api;
    adamod__device *device;
} adamod__gpu;
adamod__gpu adamod__gpu_of(const adamod_optimizer *opt);

/* Makes the decisions of a step on the CPU, update number `update`, without taking it: the factor by which clip_norm
 * multiplies all gradients, their norm (negative: not computed), and whether nonfinite lets the step be taken. Fails as
 * the step would. */
adamod_status adamod__measure(adamod_optimizer *opt, int64_t update, double *factor, double *norm, bool *finite);

/* Tells this optimizer, on a GPU, that it has one part of the parameters, and other processes the rest: the norm of the
 * gradients and whether to take a step then follow from all parts. All processes must take each step. */
adamod_status adamod__set_ranks(adamod_optimizer *opt, const adamod__ranks *parts);

/* Whether the update of a parameter depends on all others, so that one optimizer must have them all. */
bool adamod__couples_arrays(const adamod_optimizer *opt);

/* ---- states in files ---- */

/* The part of a file that is an optimizer's: names of tensors and keys of metadata begin with prefix. adamod_save has none,
 * a checkpoint keeps parameters beside it. The data stay the optimizer's, or are copies from a device. */
#define ADAMOD__STATE_PAIRS 4
typedef struct adamod__state_list {
    adamod__st_tensor *tensors;
    size_t n;
    adamod__st_pair metadata[ADAMOD__STATE_PAIRS];
    bool copies; /* of states on a device: freed with the list */
} adamod__state_list;
adamod_status adamod__state_list_make(const adamod_optimizer *opt, const char *prefix, adamod__state_list *out);
void adamod__state_list_free(adamod__state_list *list);
/* Takes this optimizer's states, by their names without prefix, from the list of an optimizer with more parameters. */
adamod_status adamod__state_take(adamod_optimizer *opt, const adamod__state_list *list);
/* Restores the states from a file that has them under `prefix`; a failure changes nothing. path is for messages. */
adamod_status adamod__state_restore(adamod_optimizer *opt, const adamod__st_file *file, const char *path,
                                    const char *prefix);

/* Evaluation uses parameter + this (state z - parameter), of the first group; 0: the parameter itself. */
double adamod__evaluation_weight(const adamod_optimizer *opt);

#endif
