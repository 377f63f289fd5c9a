/* exchange.h - the gradient of an update: the sum over its batches, wherever they were computed.
 *
 * Batch i of an update is rank i % size's. The batches that ranks compute at the same time are a round; the last round of an
 * update may have fewer of them than there are ranks. Gradients are added in the order of batches,
 *     ((g_0 + g_1) + g_2) + ...
 * so that the sum has the same bits for any number of ranks, one included. The other order, comm.h's COMM_FAST, adds those
 * of one rank first, and MPI adds what they give. */
#ifndef ADAMOD_EXCHANGE_H
#define ADAMOD_EXCHANGE_H

#include "comm/nccl.h"
#include "nn/nn.h"

typedef struct exchange exchange;

typedef struct exchange_options {
    comm *comm;
    nn_params *params;
    nn_plan *plan; /* that computes the gradients */
    int batches;   /* of an update */
    comm_order order;
    bool carries; /* a batch goes on from the persistent states that the one before it left */
    /* Sums begin while a backward pass goes on, the same on all ranks: on the host in a thread of their own, which
     * comm_threads must allow, where order is ORDERED. */
    bool overlap;
    /* Sums on the device, and is the exchange's then. NULL: parameters on a device come to the host for each sum, and a rank
     * adds up those of its own batches first. */
    nccl *nccl;
    /* Rank r has the parameters' numbers parts[r] to parts[r + 1] - 1: NCCL's sums are for those alone. NULL: every rank has
     * all. They live as long as the exchange. */
    const int64_t *parts;
} exchange_options;

int exchange_open(exchange **out, const exchange_options *o);
void exchange_free(exchange *x); /* NULL is fine */

/* Bytes on the host for sums of gradients beyond the gradients themselves. */
size_t exchange_memory(const exchange *x);

/* Whether a backward pass is to add to the gradients that are there: this is not the rank's first batch of the update, and
 * it adds up its own. */
bool exchange_accumulates(const exchange *x, bool first);

/* Before a round: in which the first `ranks` ranks have a batch each, this one among them or not. */
void exchange_begin(exchange *x, int ranks, bool first, bool last);
/* After the round in which the first `ranks` ranks had a batch each. first, last: of the update's rounds. After the last,
 * the gradients are the sums. */
void exchange_gradients(exchange *x, int ranks, bool first, bool last);

/* The same for a device, of all rounds at once: exchange_on_device, which can be recorded, where exchange_is_on_device says
 * so; else exchange_staged, once the device is done. */
bool exchange_is_on_device(const exchange *x);
void exchange_begin_on_device(exchange *x); /* before the backward pass */
adamod_status exchange_on_device(exchange *x);
adamod_status exchange_staged(exchange *x, int ranks);

/* Where options.parts are: each rank's part of all parameters comes to all, of a block at memory, on the device where
 * parameters are there; numbers have so many bytes. With NCCL it is only enqueued. */
adamod_status exchange_spread(exchange *x, void *memory, size_t bytes);
/* Numbers become their sums over ranks; on the device where parameters are there. With NCCL it is only enqueued, else
 * waited for. A failure is that of the next of the functions above. */
void exchange_add(exchange *x, double *numbers, int64_t n);

/* The numbers of the batches of a round, added to sums in the order of batches. */
void exchange_losses(exchange *x, int ranks, const double mine[4], double sums[4]);

/* The persistent states of all ranks become one: the last batch's, where it went on from those before it; running statistics on
 * the host as if one process had run batch after batch; else the mean of what the batches of the round left. Where they are on a device and exchange_means_states says so, exchange_mean_states does
 * it, which can be recorded. */
adamod_status exchange_states(exchange *x, int ranks);
bool exchange_means_states(const exchange *x);
adamod_status exchange_mean_states(exchange *x);

#endif
