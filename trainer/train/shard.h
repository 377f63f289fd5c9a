/* shard.h - states of the optimizer shared out over ranks, so that each keeps a part of them alone (ZeRO, stage 1).
 *
 * Ranks have the parameters in their order, whole ones each, so that rules that look at whole arrays work too. A rank updates
 * its parameters, which then come to all. What is decided of the whole gradient, clipping and what to do where it is not
 * finite, is decided by every rank alike. On the host parameters are those of a run that is not sharded, bit for bit, and so
 * are checkpoints everywhere: any number of ranks goes on from them, sharded or not. States of all ranks are together on the
 * host only.
 *
 * Functions are called by all ranks. */
#ifndef ADAMOD_SHARD_H
#define ADAMOD_SHARD_H

#include "train/task.h"

/* The experiment's optimizer becomes that of this rank's parameters. Before the experiment has its exchange. */
int shard_open(shard **out, experiment *e);
void shard_free(shard *s); /* NULL is fine */

/* As exchange_options have them; NULL: there is no shard. */
const int64_t *shard_parts(const shard *s);

/* An update with the gradients that are there, times scale. *taken: it was not skipped. */
adamod_status shard_step(shard *s, int64_t update, double scale, double *norm, bool *taken);
/* On a device, with the optimizer's own grad_scale; it can be recorded. */
adamod_status shard_step_on_device(shard *s);
/* As adamod_evaluation, of all parameters. */
int shard_evaluation(shard *s, bool on);

/* Of all ranks' states: an optimizer on rank 0, to be freed; NULL on the others. */
int shard_gather(shard *s, adamod_optimizer **full);
/* An optimizer of all parameters; each rank then takes its own states from what was loaded into it, and frees it. */
int shard_full(shard *s, adamod_optimizer **full);
int shard_take(shard *s, adamod_optimizer *full);

#endif
