#include "train/exchange.h"

#include "base/error.h"
#include "base/text.h"

#include <stdlib.h>
#include <string.h>

struct exchange {
    comm *comm;
    nccl *nccl; /* NULL: sums are the host's */
    nn_params *params;
    comm_order order;
    float *sums;    /* this rank's part of each block, where an update has several rounds; else NULL */
    double *losses; /* four of each rank */
};

/* ---- open and close ---- */

static int64_t block_size(const exchange *x, int64_t at) {
    const int64_t left = x->params->count - at;
    return left < COMM_BLOCK ? left : COMM_BLOCK;
}

static int64_t part_first(const exchange *x, int64_t n) { return comm_part(x->comm, n, comm_rank(x->comm)); }
static int64_t part_size(const exchange *x, int64_t n) {
    return comm_part(x->comm, n, comm_rank(x->comm) + 1) - part_first(x, n);
}

static bool adds_up(const exchange *x, int batches) { return x->order == COMM_ORDERED && batches > comm_size(x->comm); }

static int64_t sums_size(const exchange *x) {
    int64_t n = 0;
    for (int64_t at = 0; at < x->params->count; at += COMM_BLOCK) n += part_size(x, block_size(x, at));
    return n;
}

int exchange_open(exchange **out, comm *c, nccl *on_device, nn_params *params, int batches, comm_order order,
                  char *message, size_t size) {
    exchange *x = calloc(1, sizeof *x);
    if (!x) return text_fail(message, size, "out of memory for the sums of gradients");
    *x = (exchange){.comm = c, .nccl = on_device, .params = params, .order = order};
    x->losses = malloc(4 * (size_t)comm_size(c) * sizeof *x->losses);
    const int64_t n = adds_up(x, batches) ? sums_size(x) : 0;
    if (n > 0) x->sums = malloc((size_t)n * sizeof *x->sums);
    if (!x->losses || (n > 0 && !x->sums)) {
        x->nccl = NULL; /* still the caller's */
        exchange_free(x);
        return text_fail(message, size, "out of memory for the sums of %lld gradients", (long long)n);
    }
    *out = x;
    return 0;
}

void exchange_free(exchange *x) {
    if (!x) return;
    nccl_free(x->nccl);
    free(x->sums);
    free(x->losses);
    free(x);
}

/* ---- gradients ---- */

bool exchange_accumulates(const exchange *x, bool first) { return x->order == COMM_FAST && !first; }

/* Part by part, each on the rank that has it; once all rounds are in, parts come to all. */
static void add_round(exchange *x, int ranks, bool first, bool last) {
    float *sums = x->sums;
    for (int64_t at = 0; at < x->params->count; at += COMM_BLOCK) {
        float *grad = x->params->grad + at;
        const int64_t n = block_size(x, at), own = part_size(x, n);
        comm_reduce_scatter(x->comm, grad, n, ranks, !first, sums);
        if (last) {
            memcpy(grad + part_first(x, n), sums, (size_t)own * sizeof *sums);
            comm_all_gather(x->comm, grad, n);
        }
        sums += own;
    }
}

/* The only round: parts need no place of their own. */
static void add_at_once(exchange *x, int ranks) {
    for (int64_t at = 0; at < x->params->count; at += COMM_BLOCK) {
        float *grad = x->params->grad + at;
        const int64_t n = block_size(x, at);
        comm_reduce_scatter(x->comm, grad, n, ranks, false, grad + part_first(x, n));
        comm_all_gather(x->comm, grad, n);
    }
}

void exchange_gradients(exchange *x, int ranks, bool first, bool last) {
    if (x->sums) add_round(x, ranks, first, last);
    else if (x->comm && x->order == COMM_ORDERED) add_at_once(x, ranks);
    else if (x->comm && last) comm_all_reduce(x->comm, x->params->grad, x->params->count, COMM_FAST);
}

/* ---- gradients on a device ---- */

bool exchange_is_on_device(const exchange *x) { return x->nccl != NULL; }

adamod_status exchange_on_device(exchange *x) {
    enum { BLOCK = 4 * COMM_BLOCK }; /* numbers: enough for a link to be at its full speed */
    void *stream = nn_params_stream(x->params);
    const nn_param *p = x->params->list;
    float *grad = nn_params_memory(x->params, p).grad - p->offset;
    char message[256];
    int failed = 0;
    for (int64_t at = 0; !failed && at < x->params->count; at += BLOCK) {
        const int64_t left = x->params->count - at;
        failed = nccl_sum(x->nccl, grad + at, left < BLOCK ? left : BLOCK, stream, message, sizeof message);
    }
    if (!failed) failed = nccl_join(x->nccl, stream, message, sizeof message);
    return failed ? adamod__fail(ADAMOD_ERROR_CUDA, "%s", message) : ADAMOD_OK;
}

adamod_status exchange_staged(exchange *x, int ranks) {
    const adamod_status status = nn_params_fetch_grad(x->params);
    if (status) return status;
    exchange_gradients(x, ranks, true, true);
    return nn_params_store_grad(x->params);
}

/* ---- the rest ---- */

void exchange_losses(exchange *x, int ranks, const double mine[4], double sums[4]) {
    comm_gather(x->comm, mine, 4 * sizeof *mine, x->losses);
    for (int r = 0; r < ranks; r++) {
        for (int k = 0; k < 4; k++) sums[k] += x->losses[4 * r + k];
    }
}

static void mean_states(exchange *x, int ranks) {
    float *states = x->params->state_data;
    const int64_t count = x->params->state_count;
    for (int64_t at = 0; at < count; at += COMM_BLOCK) {
        const int64_t n = count - at < COMM_BLOCK ? count - at : COMM_BLOCK, first = part_first(x, n);
        comm_reduce_scatter(x->comm, states + at, n, ranks, false, states + at + first);
        for (int64_t i = first; i < first + part_size(x, n); i++) states[at + i] /= (float)ranks;
        comm_all_gather(x->comm, states + at, n);
    }
}

adamod_status exchange_states(exchange *x, int ranks, bool carried) {
    nn_params *p = x->params;
    if (!x->comm || !p->state_data) return ADAMOD_OK;
    const adamod_status status = nn_params_fetch_states(p);
    if (status) return status;
    if (carried) comm_broadcast(x->comm, p->state_data, (size_t)p->state_count * sizeof *p->state_data, ranks - 1);
    else mean_states(x, ranks);
    return nn_params_store_states(p);
}
