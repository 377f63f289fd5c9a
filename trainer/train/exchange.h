/* exchange.h - sums the gradients of an update over its batches and ranks.
 *
 * Rank i % size computes batch i of an update. A round is the batches that ranks compute at the same time; the last round
 * may have fewer batches than there are ranks. Gradients are added in the order of batches,
 *     ((g_0 + g_1) + g_2) + ...
 * so the sum has the same bits for any number of ranks. With COMM_FAST each rank adds its own batches first, and MPI
 * adds those sums. */
#pragma once

#include "comm/nccl.h"
#include "nn/nn.h"

typedef struct exchange exchange;

typedef struct exchange_options {
    comm *comm;
    nn_params *params;
    nn_plan *plan; /* that computes the gradients */
    int batches;   /* per update */
    comm_order order;
    bool carries; /* a batch starts with the persistent states of the previous one */
    /* Sums begin during the backward pass; equal on all ranks. On the host, with COMM_ORDERED only, a thread sums, which
     * comm_threads must allow. */
    bool overlap;
    /* Sums on the device; the exchange owns it. NULL: gradients on a device are copied to the host for each sum, and a
     * rank adds its own batches first. */
    nccl *nccl;
    /* Rank r has elements parts[r] to parts[r + 1] - 1 of all parameters, and NCCL gives it only their sums. NULL: every
     * rank has all. Must outlive the exchange. */
    const int64_t *parts;
} exchange_options;

int exchange_open(exchange **out, const exchange_options *o);
void exchange_free(exchange *x); /* NULL is fine */

/* Bytes on the host for sums, besides the gradients themselves. */
size_t exchange_memory(const exchange *x);

/* Whether a backward pass is to add to the gradients. first: it is the rank's first batch of the update. */
bool exchange_accumulates(const exchange *x, bool first);

/* Begins a round in which the first `ranks` ranks have a batch each. first, last: of the rounds of the update. */
void exchange_begin(exchange *x, int ranks, bool first, bool last);
/* Ends the round. After the last, the gradients are the sums. */
void exchange_gradients(exchange *x, int ranks, bool first, bool last);

/* On a device all rounds are summed at once: by exchange_on_device, which can be recorded, if exchange_is_on_device;
 * else by exchange_staged, after the device is done. */
bool exchange_is_on_device(const exchange *x);
void exchange_begin_on_device(exchange *x); /* before the backward pass */
adamod_status exchange_on_device(exchange *x);
adamod_status exchange_staged(exchange *x, int ranks);

/* Sends each rank's part (options.parts) of a block of all parameters to all ranks. memory is on the parameters' device;
 * an element has `bytes` bytes. With NCCL it is only enqueued. */
adamod_status exchange_spread(exchange *x, void *memory, size_t bytes);
/* Replaces numbers, on the parameters' device, by their sums over ranks. With NCCL it is only enqueued. A failure is
 * returned by the next function above that can fail. */
void exchange_add(exchange *x, double *numbers, int64_t n);

/* Adds four numbers of each batch of a round to sums, in the order of batches. */
void exchange_losses(exchange *x, int ranks, const double mine[4], double sums[4]);

/* Makes the persistent states of all ranks equal. Carried states become those of the last batch. Running statistics on
 * the host become those of one process that ran all batches. Others become the mean over the batches of the round. If
 * exchange_means_states, exchange_mean_states does it on the device, which can be recorded. */
adamod_status exchange_states(exchange *x, int ranks);
bool exchange_means_states(const exchange *x);
adamod_status exchange_mean_states(exchange *x);
