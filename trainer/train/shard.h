/* shard.h - divides the optimizer's states among ranks (ZeRO, stage 1).
 *
 * Each rank has whole, consecutive parameters, so rules that look at whole arrays work. It updates them and sends them to
 * all ranks. Clipping and the check for finite values use the whole gradient and decide alike on every rank. On the host,
 * parameters equal those of an unsharded run bit for bit. Checkpoints have all states: any number of ranks can resume
 * from them, sharded or not.
 *
 * All ranks call every function. */
#pragma once

#include "train/task.h"

/* Replaces the experiment's optimizer by that of this rank's parameters. To be called before exchange_open. */
int shard_open(shard **out, experiment *e);
void shard_free(shard *s); /* NULL is fine */

/* For exchange_options.parts; NULL: there is no shard. */
const int64_t *shard_parts(const shard *s);

/* One update with the gradients times scale. *taken: it was not skipped. */
adamod_status shard_step(shard *s, int64_t update, double scale, double *norm, bool *taken);
/* On a device, with the optimizer's grad_scale; can be recorded. */
adamod_status shard_step_on_device(shard *s);
/* adamod_evaluation for all parameters. */
int shard_evaluation(shard *s, bool on);

/* Collects all states in an optimizer on rank 0, to be freed; NULL on other ranks. */
int shard_gather(shard *s, adamod_optimizer **full);
/* Makes an optimizer of all parameters to load states into; shard_take copies the rank's states from it. */
int shard_full(shard *s, adamod_optimizer **full);
int shard_take(shard *s, adamod_optimizer *full);
