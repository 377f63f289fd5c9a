#include "train/exchange.h"

#include "core/error.h"
#include "core/thread.h"

#include <stdlib.h>
#include <string.h>

/* Blocks that a thread sums during a backward pass, in the order in which the pass completes them. */
typedef struct overlap {
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t told, done;
    int64_t *queue; /* first elements of blocks */
    int queued, taken, summed;
    int ranks; /* of the round */
    bool first, last, quit;
} overlap;

struct exchange {
    exchange_options o;
    float *sums;    /* this rank's part of each block, if an update has several rounds; else NULL */
    double *losses; /* four of each rank */
    /* Contribution of this rank's batch to running statistics on the host, then those of all ranks; NULL: none. */
    double *added;
    int64_t n_added;
    int blocks;
    overlap *beside;         /* NULL: sums follow the pass */
    bool active;             /* NCCL sums the gradients of this pass */
    adamod__failure failure; /* the first in functions that return nothing */
};

/* ---- blocks ---- */

static int64_t block_size(const exchange *x, int64_t at) {
    const int64_t left = x->o.params->count - at;
    return left < COMM_BLOCK ? left : COMM_BLOCK;
}

static int64_t part_first(const exchange *x, int64_t n) { return comm_part(x->o.comm, n, comm_rank(x->o.comm)); }
static int64_t part_size(const exchange *x, int64_t n) {
    return comm_part(x->o.comm, n, comm_rank(x->o.comm) + 1) - part_first(x, n);
}

/* A smaller block's part may be larger by a vector, due to rounding. */
static int64_t most_of_part(const exchange *x) { return part_size(x, COMM_BLOCK) + 32; }

/* Every rank adds its part of the block; after the last round all ranks get all parts. With one round the part is summed
 * in place. */
static void add_block(exchange *x, int64_t at, int ranks, bool first, bool last) {
    float *grad = x->o.params->grad + at;
    const int64_t n = block_size(x, at), own = part_size(x, n);
    float *sums = x->sums ? x->sums + at / COMM_BLOCK * most_of_part(x) : grad + part_first(x, n);
    comm_reduce_scatter(x->o.comm, grad, n, ranks, !first, sums);
    if (!last) return;
    if (x->sums) memcpy(grad + part_first(x, n), sums, (size_t)own * sizeof *sums);
    comm_all_gather(x->o.comm, grad, n);
}

/* ---- beside a pass ---- */

static void *sum_beside(void *context) {
    exchange *x = context;
    overlap *b = x->beside;
    pthread_mutex_lock(&b->lock);
    for (;;) {
        while (b->taken == b->queued && !b->quit) pthread_cond_wait(&b->told, &b->lock);
        if (b->quit) break;
        const int64_t at = b->queue[b->taken++];
        pthread_mutex_unlock(&b->lock);
        add_block(x, at, b->ranks, b->first, b->last);
        pthread_mutex_lock(&b->lock);
        if (++b->summed == x->blocks) pthread_cond_signal(&b->done);
    }
    pthread_mutex_unlock(&b->lock);
    return NULL;
}

/* Keeps a failure for the next function that can return it. */
static void note(exchange *x, int failed) {
    if (failed && !x->failure.status) adamod__save_failure(&x->failure);
}

static void sum_on_device(exchange *x, int64_t first, int64_t count) {
    const exchange_options *o = &x->o;
    float *grad = nn_params_memory(o->params, o->params->list).grad - o->params->list->offset + first;
    void *stream = nn_params_stream(o->params);
    note(x, o->parts ? nccl_sum_parts(o->nccl, grad, first, count, o->parts, stream)
                     : nccl_sum(o->nccl, grad, count, stream));
}

static void tell(void *context, int64_t first, int64_t count) {
    exchange *x = context;
    overlap *b = x->beside;
    if (b) {
        pthread_mutex_lock(&b->lock);
        b->queue[b->queued++] = first;
        pthread_cond_signal(&b->told);
        pthread_mutex_unlock(&b->lock);
    } else if (x->active && !x->failure.status) {
        sum_on_device(x, first, count);
    }
}

static int start_beside(exchange *x) {
    overlap *b = calloc(1, sizeof *b);
    if (b) b->queue = malloc((size_t)x->blocks * sizeof *b->queue);
    if (!b || !b->queue) {
        free(b);
        return adamod__fail(ADAMOD_ERROR_MEMORY, "out of memory for sums beside a backward pass");
    }
    pthread_mutex_init(&b->lock, NULL);
    pthread_cond_init(&b->told, NULL);
    pthread_cond_init(&b->done, NULL);
    x->beside = b;
    if (adamod__start_thread(&b->thread, sum_beside, x) == 0) return 0;
    free(b->queue);
    free(b);
    x->beside = NULL;
    return adamod__refuse("cannot start a thread for train.overlap");
}

static void stop_beside(exchange *x) {
    overlap *b = x->beside;
    if (!b) return;
    pthread_mutex_lock(&b->lock);
    b->quit = true;
    pthread_cond_signal(&b->told);
    pthread_mutex_unlock(&b->lock);
    pthread_join(b->thread, NULL);
    pthread_mutex_destroy(&b->lock);
    pthread_cond_destroy(&b->told);
    pthread_cond_destroy(&b->done);
    free(b->queue);
    free(b);
}

/* ---- open and close ---- */

static bool is_ordered(const exchange *x) { return x->o.order == COMM_ORDERED && !x->o.params->on_device; }

static int64_t sums_kept(const exchange *x) {
    return is_ordered(x) && x->o.batches > comm_size(x->o.comm) ? x->blocks * most_of_part(x) : 0;
}

static size_t added_bytes(const exchange *x) {
    return (size_t)x->n_added * ((size_t)comm_size(x->o.comm) + 1) * sizeof *x->added;
}

size_t exchange_memory(const exchange *x) {
    return (size_t)sums_kept(x) * sizeof *x->sums + added_bytes(x) + comm_memory(x->o.comm);
}

static int defer_statistics(exchange *x) {
    const exchange_options *o = &x->o;
    x->n_added = o->comm && o->plan && !o->carries && !o->params->on_device ? nn_plan_defers(o->plan) : 0;
    if (x->n_added == 0) return 0;
    if (!(x->added = malloc(added_bytes(x))))
        return adamod__fail(ADAMOD_ERROR_MEMORY, "out of memory for running statistics");
    nn_plan_defer(o->plan, x->added);
    return 0;
}

static int make(exchange *x) {
    const exchange_options *o = &x->o;
    const bool ordered = is_ordered(x);
    const int64_t n = sums_kept(x);
    x->losses = malloc(4 * (size_t)comm_size(o->comm) * sizeof *x->losses);
    if (n > 0) x->sums = malloc((size_t)n * sizeof *x->sums);
    if (!x->losses || (n > 0 && !x->sums))
        return adamod__fail(ADAMOD_ERROR_MEMORY, "out of memory for the sums of %lld gradients", (long long)n);
    if (defer_statistics(x)) return -1;
    const bool thread = ordered && o->overlap && o->comm;
    if (thread && start_beside(x)) return -1;
    if (!thread && !(o->nccl && o->overlap)) return 0;
    const int64_t numbers = o->nccl ? 4 * (int64_t)COMM_BLOCK : COMM_BLOCK; /* NCCL is faster with larger blocks */
    return nn_plan_watch(o->plan, numbers, tell, x);
}

int exchange_open(exchange **out, const exchange_options *o) {
    exchange *x = calloc(1, sizeof *x);
    if (!x) return adamod__fail(ADAMOD_ERROR_MEMORY, "out of memory for the sums of gradients");
    x->o = *o;
    x->blocks = (int)((o->params->count + COMM_BLOCK - 1) / COMM_BLOCK);
    if (make(x)) {
        x->o.nccl = NULL; /* stays the caller's */
        exchange_free(x);
        return -1;
    }
    *out = x;
    return 0;
}

void exchange_free(exchange *x) {
    if (!x) return;
    if (x->o.plan) (void)nn_plan_watch(x->o.plan, 1, NULL, NULL);
    if (x->added) nn_plan_defer(x->o.plan, NULL);
    stop_beside(x);
    nccl_free(x->o.nccl);
    free(x->sums);
    free(x->losses);
    free(x->added);
    free(x);
}

/* ---- gradients ---- */

bool exchange_accumulates(const exchange *x, bool first) { return x->o.order == COMM_FAST && !first; }

void exchange_begin(exchange *x, int ranks, bool first, bool last) {
    overlap *b = x->beside;
    if (!b) return;
    pthread_mutex_lock(&b->lock);
    b->ranks = ranks;
    b->first = first;
    b->last = last;
    b->queued = b->taken = b->summed = 0;
    pthread_mutex_unlock(&b->lock);
    if (comm_rank(x->o.comm) >= ranks) nn_plan_tell_all(x->o.plan);
}

static void wait_beside(exchange *x) {
    overlap *b = x->beside;
    pthread_mutex_lock(&b->lock);
    while (b->summed < x->blocks) pthread_cond_wait(&b->done, &b->lock);
    pthread_mutex_unlock(&b->lock);
}

void exchange_gradients(exchange *x, int ranks, bool first, bool last) {
    const int64_t count = x->o.params->count;
    const bool ordered = x->o.order == COMM_ORDERED && (x->sums || x->o.comm);
    if (x->beside) wait_beside(x);
    for (int64_t at = 0; !x->beside && ordered && at < count; at += COMM_BLOCK) add_block(x, at, ranks, first, last);
    if (x->o.order == COMM_FAST && last) comm_all_reduce(x->o.comm, x->o.params->grad, count, COMM_FAST);
}

/* ---- gradients on a device ---- */

bool exchange_is_on_device(const exchange *x) { return x->o.nccl != NULL; }

void exchange_begin_on_device(exchange *x) { x->active = x->o.nccl != NULL; }

static adamod_status noted(exchange *x) {
    if (!x->failure.status) return ADAMOD_OK;
    adamod__fail_again(&x->failure);
    const adamod_status status = x->failure.status;
    x->failure.status = ADAMOD_OK;
    return status;
}

adamod_status exchange_on_device(exchange *x) {
    const int64_t count = x->o.params->count, some = 4 * (int64_t)COMM_BLOCK;
    for (int64_t at = 0; !x->o.overlap && at < count; at += some) tell(x, at, count - at < some ? count - at : some);
    x->active = false;
    if (!x->failure.status) note(x, nccl_join(x->o.nccl, nn_params_stream(x->o.params)));
    return noted(x);
}

adamod_status exchange_staged(exchange *x, int ranks) {
    const adamod_status before = noted(x), status = before ? before : nn_params_fetch_grad(x->o.params);
    if (status) return status;
    exchange_gradients(x, ranks, true, true);
    return nn_params_store_grad(x->o.params);
}

/* ---- parts of parameters ---- */

/* Sends a rank's part through the host. */
static adamod_status spread_part(exchange *x, char *part, size_t bytes, int rank) {
    const bool mine = comm_rank(x->o.comm) == rank;
    char *copy = malloc(bytes + 1);
    if (!copy) comm_abort(x->o.comm, 1); /* the others are waiting */
    adamod_status status = mine ? nn_params_read(x->o.params, copy, part, bytes) : ADAMOD_OK;
    comm_broadcast(x->o.comm, copy, bytes, rank);
    if (!mine) status = nn_params_write(x->o.params, part, copy, bytes);
    free(copy);
    return status;
}

adamod_status exchange_spread(exchange *x, void *memory, size_t bytes) {
    const int64_t *parts = x->o.parts;
    if (x->o.nccl) {
        note(x, nccl_spread(x->o.nccl, memory, bytes, parts, nn_params_stream(x->o.params)));
        return noted(x);
    }
    adamod_status status = noted(x);
    for (int r = 0; r < comm_size(x->o.comm); r++) {
        char *part = (char *)memory + (size_t)parts[r] * bytes;
        const size_t n = (size_t)(parts[r + 1] - parts[r]) * bytes;
        if (!x->o.params->on_device) comm_broadcast(x->o.comm, part, n, r);
        else if (n > 0 && !status) status = spread_part(x, part, n, r);
    }
    return status;
}

void exchange_add(exchange *x, double *numbers, int64_t n) {
    const nn_params *p = x->o.params;
    const size_t bytes = (size_t)n * sizeof *numbers;
    if (!p->on_device) {
        comm_add(x->o.comm, numbers, n);
        return;
    }
    if (x->o.nccl) {
        note(x, nccl_add(x->o.nccl, numbers, n, nn_params_stream(p)));
        return;
    }
    double *copy = calloc((size_t)n, sizeof *copy);
    if (!copy) comm_abort(x->o.comm, 1);
    adamod_status status = nn_params_read(p, copy, numbers, bytes);
    comm_add(x->o.comm, copy, n);
    if (!status) status = nn_params_write(p, numbers, copy, bytes);
    note(x, status);
    free(copy);
}

/* ---- the rest ---- */

void exchange_losses(exchange *x, int ranks, const double mine[4], double sums[4]) {
    comm_gather(x->o.comm, mine, 4 * sizeof *mine, x->losses);
    for (int r = 0; r < ranks; r++) {
        for (int k = 0; k < 4; k++) sums[k] += x->losses[4 * r + k];
    }
}

static void mean_states(exchange *x, int ranks) {
    float *states = x->o.params->state_data;
    const int64_t count = x->o.params->state_count;
    for (int64_t at = 0; at < count; at += COMM_BLOCK) {
        const int64_t n = count - at < COMM_BLOCK ? count - at : COMM_BLOCK, first = part_first(x, n);
        comm_reduce_scatter(x->o.comm, states + at, n, ranks, false, states + at + first);
        for (int64_t i = first; i < first + part_size(x, n); i++) states[at + i] /= (float)ranks;
        comm_all_gather(x->o.comm, states + at, n);
    }
}

/* Applies the contributions in the order of batches. */
static void take_added(exchange *x, int ranks) {
    double *all = x->added + x->n_added;
    comm_gather(x->o.comm, x->added, (size_t)x->n_added * sizeof *all, all);
    for (int r = 0; r < ranks; r++) nn_plan_take(x->o.plan, all + r * x->n_added);
}

/* NCCL's mean needs a batch of every rank in every round. */
bool exchange_means_states(const exchange *x) {
    const exchange_options *o = &x->o;
    return o->nccl && !o->carries && o->batches % comm_size(o->comm) == 0 && nn_params_states(o->params);
}

adamod_status exchange_mean_states(exchange *x) {
    const nn_params *p = x->o.params;
    note(x, nccl_mean(x->o.nccl, nn_params_states(p), p->state_count, nn_params_stream(p)));
    return noted(x);
}

adamod_status exchange_states(exchange *x, int ranks) {
    nn_params *p = x->o.params;
    if (!x->o.comm || !p->state_data) return ADAMOD_OK;
    if (x->added) {
        take_added(x, ranks);
        return ADAMOD_OK;
    }
    const adamod_status status = nn_params_fetch_states(p);
    if (status) return status;
    if (x->o.carries)
        comm_broadcast(x->o.comm, p->state_data, (size_t)p->state_count * sizeof *p->state_data, ranks - 1);
    else mean_states(x, ranks);
    return nn_params_store_states(p);
}
