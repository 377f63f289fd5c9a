#include "train/shard.h"

#include "core/error.h"
#include "optim/optim.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

struct shard {
    experiment *e;
    adamod_optimizer *whole; /* of all parameters, without states: for clipping and the check for finite values */
    int *first;              /* first parameter of each rank, and the end */
    int64_t *parts;          /* the same in elements */
    bool trains;             /* this rank has a parameter that is not frozen */
};

/* ---- division ---- */

/* Moves equal boundaries to the nearer end of a parameter; every rank gets a parameter if there are enough. */
static void divide(shard *s) {
    const nn_params *p = s->e->params;
    const int size = comm_size(s->e->comm);
    int i = 0;
    for (int r = 0; r < size; r++) {
        const double wanted = (double)p->count * r / size;
        if (r > 0 && i == s->first[r - 1] && i < p->n) i++;
        while (i < p->n - (size - r) && (double)p->list[i].offset + (double)p->list[i].count / 2 < wanted) i++;
        s->first[r] = i;
        s->parts[r] = i < p->n ? p->list[i].offset : p->count;
    }
    s->first[size] = p->n;
    s->parts[size] = p->count;
}

const int64_t *shard_parts(const shard *s) { return s ? s->parts : NULL; }

static int own_first(const shard *s) { return s->first[comm_rank(s->e->comm)]; }
static int own_end(const shard *s) { return s->first[comm_rank(s->e->comm) + 1]; }

/* ---- open and close ---- */

static const char *const of_whole[] = {"clip_norm", "clip_value", "nonfinite"};

/* Plain gradient descent has no states. */
static adamod_status make_whole(shard *s) {
    const nn_params *p = s->e->params;
    adamod_status status = adamod_create(&s->whole, "sgd");
    if (!status) status = adamod_set_pool(s->whole, s->e->pool);
    for (int i = 0; !status && i < 3; i++) {
        double value;
        status = adamod_get(s->e->optimizer, of_whole[i], &value);
        if (!status) status = adamod_set(s->whole, of_whole[i], value);
    }
    for (int i = 0; !status && i < p->n; i++) {
        const nn_param_memory m = nn_params_memory(p, &p->list[i]);
        if (!experiment_trains(s->e, &p->list[i])) continue;
        status = adamod_add(s->whole, p->list[i].name, m.data, m.grad, p->list[i].ndim, p->list[i].shape);
    }
    return status;
}

static void add_over_ranks(void *s, double *x, int64_t n) { exchange_add(((shard *)s)->e->exchange, x, n); }

/* On the host every rank has the whole gradient, and s->whole decides. On a device ranks add up their parts. */
static adamod_status leave_decisions(shard *s, adamod_optimizer *own) {
    const adamod__ranks parts = {comm_rank(s->e->comm), comm_size(s->e->comm), add_over_ranks, s};
    if (s->e->params->on_device) return adamod__set_ranks(own, &parts);
    adamod_status status = make_whole(s);
    if (!status) status = adamod_set(own, "clip_norm", INFINITY);
    return status ? status : adamod_set_text(own, "nonfinite", "pass");
}

static int take_part(shard *s) {
    adamod_optimizer *own = NULL;
    if (experiment_optimizer(s->e, own_first(s), own_end(s), false, &own)) return -1;
    const adamod_status status = leave_decisions(s, own);
    if (status) {
        adamod_free(own);
        return status;
    }
    adamod_free(s->e->optimizer);
    s->e->optimizer = own;
    return 0;
}

/* Whether a rank has a parameter that is not frozen. */
static bool trains_some(const shard *s, int rank) {
    for (int i = s->first[rank]; i < s->first[rank + 1]; i++) {
        if (experiment_trains(s->e, &s->e->params->list[i])) return true;
    }
    return false;
}

static const char *refused(const experiment *e) {
    if (e->params->on_device && e->params->n < comm_size(e->comm))
        return "train.shard: there are more ranks than parameters, and on a GPU each must have one";
    if (adamod__couples_arrays(e->optimizer))
        return "train.shard does not go with a rule that looks at all parameters together";
    return recipe_find_pair(&e->recipe.optimizer.schedules, "clip_norm")
               ? "train.shard does not go with a schedule of clip_norm"
               : NULL;
}

int shard_open(shard **out, experiment *e) {
    if (refused(e)) return adamod__refuse("%s", refused(e));
    shard *s = calloc(1, sizeof *s);
    if (s) s->first = calloc((size_t)comm_size(e->comm) + 1, sizeof *s->first);
    if (s) s->parts = calloc((size_t)comm_size(e->comm) + 1, sizeof *s->parts);
    if (!s || !s->first || !s->parts) {
        shard_free(s);
        return adamod__fail(ADAMOD_ERROR_MEMORY, "out of memory for shares of the optimizer");
    }
    s->e = e;
    divide(s);
    s->trains = trains_some(s, comm_rank(e->comm));
    int idle = 0;
    while (idle < comm_size(e->comm) && trains_some(s, idle)) idle++;
    if (e->params->on_device && idle < comm_size(e->comm)) {
        adamod__refuse("train.shard: all parameters of rank %d are frozen, and on a GPU each must train some", idle);
        shard_free(s);
        return -1;
    }
    if (take_part(s)) {
        shard_free(s);
        return -1;
    }
    *out = s;
    return 0;
}

void shard_free(shard *s) {
    if (!s) return;
    adamod_free(s->whole);
    free(s->first);
    free(s->parts);
    free(s);
}

/* ---- updates ---- */

/* Sends each rank's parameters to all. For evaluation the bf16 copy is enough, if there is one. */
static adamod_status spread(const shard *s, bool to_evaluate) {
    const nn_params *p = s->e->params;
    const nn_param_memory m = nn_params_memory(p, p->list); /* the first begins the block */
    if (to_evaluate && m.half) return exchange_spread(s->e->exchange, m.half, 2);
    const adamod_status status = exchange_spread(s->e->exchange, m.data, sizeof *m.data);
    if (!status && !to_evaluate) nn_params_narrow(p);
    return status;
}

static adamod_status agree(const shard *s, adamod_status status) {
    return (adamod_status)comm_agree(s->e->comm, status);
}

adamod_status shard_step(shard *s, int64_t update, double scale, double *norm, bool *taken) {
    double factor = 1;
    adamod_status status = adamod_set(s->whole, "grad_scale", scale);
    if (!status) status = adamod__measure(s->whole, update, &factor, norm, taken);
    if (status || !*taken) return status;
    status = adamod_set(s->e->optimizer, "grad_scale", scale * factor);
    if (!status && s->trains) status = adamod_step(s->e->optimizer);
    status = agree(s, status); /* before others wait for this rank's part */
    return status ? status : spread(s, false);
}

adamod_status shard_step_on_device(shard *s) {
    const adamod_status status = adamod_step(s->e->optimizer);
    return status ? status : spread(s, false);
}

int shard_evaluation(shard *s, bool on) {
    if (adamod__evaluation_weight(s->e->optimizer) == 0) return 0;
    int failed = adamod_evaluation(s->e->optimizer, on);
    failed = comm_agree(s->e->comm, failed);
    return failed ? -1 : spread(s, true);
}

/* ---- states of all ---- */

int shard_full(shard *s, adamod_optimizer **full) { return experiment_optimizer(s->e, 0, s->e->params->n, true, full); }

static size_t bytes_of(const adamod__st_tensor *t) {
    size_t bits = adamod__st_dtype_bits(t->dtype);
    for (int d = 0; d < t->ndim; d++) bits *= (size_t)t->shape[d];
    return bits / 8;
}

/* Reads or writes the entries of a list as one stream of bytes. */
typedef struct stream {
    const adamod__state_list *list;
    size_t entry, at;
} stream;

static size_t bytes_in(const adamod__state_list *list) {
    size_t bytes = 0;
    for (size_t i = 0; i < list->n; i++) bytes += bytes_of(&list->tensors[i]);
    return bytes;
}

static void move(stream *s, char *some, size_t n, bool writes) {
    while (n > 0) {
        const adamod__st_tensor *t = &s->list->tensors[s->entry];
        const size_t left = bytes_of(t) - s->at, now = left < n ? left : n;
        char *there = (char *)(uintptr_t)t->data + s->at;
        if (now > 0) memcpy(writes ? there : some, writes ? some : there, now);
        some += now;
        n -= now;
        s->at += now;
        if (now == left) s->entry++, s->at = 0;
    }
}

/* Copies the states of all ranks to rank 0, block by block. They are in the order of parameters, so ranks follow each
 * other. */
static void send_all(const shard *s, const adamod__state_list *own, const adamod__state_list *full) {
    enum { SOME = 1 << 16 };
    char some[SOME];
    comm *c = s->e->comm;
    stream to = {full, 0, 0};
    for (int r = 0; r < comm_size(c); r++) {
        const bool mine = comm_rank(c) == r;
        stream from = {own, 0, 0};
        uint64_t bytes = mine ? bytes_in(own) : 0;
        comm_broadcast(c, &bytes, sizeof bytes, r);
        for (uint64_t at = 0; at < bytes; at += SOME) {
            const size_t n = bytes - at < SOME ? (size_t)(bytes - at) : SOME;
            if (mine) move(&from, some, n, false);
            comm_broadcast(c, some, n, r);
            if (full) move(&to, some, n, true);
        }
    }
}

/* Sets the count of updates through the first parameter. */
static adamod_status count_updates(adamod_optimizer *opt, int64_t steps) {
    return adamod_tensors(opt) > 0 && steps > 0 ? adamod_set_tensor_steps(opt, 0, steps) : ADAMOD_OK;
}

int shard_gather(shard *s, adamod_optimizer **full) {
    adamod__state_list own = {0}, all = {0};
    const bool first = comm_rank(s->e->comm) == 0;
    *full = NULL;
    int failed = adamod__state_list_make(s->e->optimizer, "", &own);
    if (!failed && first) failed = shard_full(s, full);
    if (!failed && first) failed = adamod__state_list_make(*full, "", &all);
    failed = comm_agree(s->e->comm, failed);
    if (!failed) send_all(s, &own, first ? &all : NULL);
    int steps = (int)adamod_steps(s->e->optimizer); /* 0 if a rank has no parameters */
    if (!failed) comm_most(s->e->comm, &steps, 1);
    if (!failed && first) failed = count_updates(*full, steps);
    adamod__state_list_free(&own);
    adamod__state_list_free(&all);
    if (failed) {
        adamod_free(*full);
        *full = NULL;
    }
    return failed ? -1 : 0;
}

int shard_take(shard *s, adamod_optimizer *full) {
    adamod__state_list all = {0};
    adamod_status status = adamod__state_list_make(full, "", &all);
    if (!status) status = adamod__state_take(s->e->optimizer, &all);
    if (!status) status = count_updates(s->e->optimizer, adamod_steps(full));
    adamod__state_list_free(&all);
    return status;
}
