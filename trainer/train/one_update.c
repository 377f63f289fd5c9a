#include "train/one_update.h"

#include "core/error.h"
#include "support/text.h"
#include "train/shard.h"

#include <math.h>
#include <stdio.h>

static bool on_device(const experiment *s) { return s->params->on_device; }

/* An update whose batches the host waits for cannot overlap the next one. */
bool update_is_pending(const experiment *s) {
    const int ranks = comm_size(s->comm);
    const bool waits = s->recipe.train.accumulate > ranks || (ranks > 1 && !exchange_is_on_device(s->exchange)) ||
                       (ranks > 1 && experiment_carries(s));
    return on_device(s) && !waits;
}

static int library_failed(const update *u) { return adamod__context("update %lld: ", (long long)u->step); }

static bool stops(const experiment *s) { return s->recipe.train.nonfinite == STOP_TRAINING; }

/* Ends all ranks if there are several: the others wait for this one and cannot be told. */
static int failed_alone(const experiment *s, const update *u) {
    library_failed(u);
    if (comm_size(s->comm) == 1) return -1;
    text_line(stderr, "adamod: rank %d: %s", comm_rank(s->comm), adamod__last_message());
    comm_abort(s->comm, 1);
}

/* The library sees the sum, so it finds values that are not finite on all ranks alike. */
static bool has_diverged(adamod_status status, update *u) {
    if (status != ADAMOD_ERROR_NONFINITE) return false;
    snprintf(u->diverged, sizeof u->diverged, "%s", adamod__last_message());
    return true;
}

/* ---- batches ---- */

/* Feeds batch i of the update to the plan. Every rank goes through all batches, also those of other ranks. */
static void feed(experiment *s, checkpoint_meta *at, int i, update *u) {
    const recipe *r = &s->recipe;
    task_batch b;
    s->task->next(s, &b);
    nn_plan_set_random(s->plan, r->train.seed, (uint64_t)((u->step - 1) * r->train.accumulate + i + 1));
    u->own_items += b.items;
    u->targets += (double)b.targets;
    u->lr_factors += b.lr_factor > 0 ? b.lr_factor : 1;
    at->samples += b.samples;
    at->epoch = b.epoch;
    at->batch = b.index;
}

static void add_loss(experiment *s, update *u) {
    const float *loss = nn_plan_data(s->plan, "loss");
    for (int k = 0; k < 4; k++) u->sums[k] += (double)loss[k];
}

/* Learning rates of the groups, to restore. */
typedef struct rates {
    int n; /* 0: unchanged */
    double lr[2 * (RECIPE_MAX_GROUPS + 1)];
} rates;

/* Scales learning rates by the mean factor of the batches, for one step; checkpoints must have the original ones. */
static adamod_status scale_lr(experiment *s, const update *u, rates *base) {
    const double factor = u->lr_factors / s->recipe.train.accumulate;
    const int n = factor == 1 ? 0 : recipe_library_groups(&s->recipe);
    adamod_status status = ADAMOD_OK;
    for (base->n = 0; !status && base->n < n; base->n++) {
        double *lr = &base->lr[base->n];
        status = adamod_group_get(s->optimizer, base->n, "lr", lr);
        if (!status) status = adamod_group_set(s->optimizer, base->n, "lr", *lr * factor);
    }
    return status;
}

static adamod_status restore_lr(experiment *s, const rates *base, adamod_status status) {
    for (int i = 0; i < base->n; i++) {
        const adamod_status restored = adamod_group_set(s->optimizer, i, "lr", base->lr[i]);
        if (!status) status = restored;
    }
    return status;
}

/* ---- on the processor ---- */

static adamod_status step(experiment *s, bool collect, update *u) {
    const int64_t skipped = adamod_skipped(s->optimizer);
    adamod_status status = adamod_collect(s->optimizer, collect && !s->shard);
    rates base = {0};
    if (!status) status = adamod_set(s->optimizer, "grad_scale", 1 / u->sums[3]);
    if (!status) status = scale_lr(s, u, &base);
    if (adamod_scheduled(s->optimizer, 0, "lr", &u->lr)) u->lr = NAN; /* not every rule has one */
    if (!status && s->shard) {
        status = shard_step(s->shard, u->step, 1 / u->sums[3], &u->norm, &u->taken);
        return restore_lr(s, &base, status);
    }
    if (!status) status = adamod_step(s->optimizer);
    status = restore_lr(s, &base, status);
    u->taken = adamod_skipped(s->optimizer) == skipped;
    u->norm = adamod_grad_norm(s->optimizer);
    return status;
}

/* Runs a round; place: the rank whose batch it is. A model that carries states runs forward through the batches before
 * its own. */
static void run_round(experiment *s, checkpoint_meta *at, int first, int ranks, update *u) {
    const int rank = comm_rank(s->comm), n = s->recipe.train.accumulate;
    double mine[4] = {0};
    exchange_begin(s->exchange, ranks, first == 0, first + ranks == n);
    for (int place = 0; place < ranks; place++) {
        feed(s, at, first + place, u);
        if (place > rank || (place < rank && !experiment_carries(s))) continue;
        nn_plan_forward(s->plan);
        if (place < rank) continue;
        const float *loss = nn_plan_data(s->plan, "loss");
        for (int k = 0; k < 4; k++) mine[k] = (double)loss[k];
        nn_plan_backward(s->plan, exchange_accumulates(s->exchange, first == 0));
    }
    exchange_gradients(s->exchange, ranks, first == 0, first + ranks == n);
    exchange_losses(s->exchange, ranks, mine, u->sums);
    (void)exchange_states(s->exchange, ranks); /* cannot fail on the host */
}

static int run_on_host(experiment *s, checkpoint_meta *at, bool collect, update *u) {
    const int n = s->recipe.train.accumulate, ranks = comm_size(s->comm);
    for (int i = 0; i < n; i += ranks) run_round(s, at, i, n - i < ranks ? n - i : ranks, u);
    u->taken = isfinite(u->sums[0]);
    if (!u->taken && stops(s)) {
        snprintf(u->diverged, sizeof u->diverged, "the loss is not finite in update %lld", (long long)u->step);
        return 0;
    }
    u->lr = NAN;
    const adamod_status status = u->taken ? step(s, collect, u) : ADAMOD_OK;
    if (has_diverged(status, u)) return 0;
    return status ? library_failed(u) : 0;
}

/* ---- on a device ---- */

enum { ADDS = 1, STEPS = 2, COLLECTS = 4 }; /* variant of a recording: what it does besides forward and backward */

typedef struct recorded {
    experiment *s;
    int variant;
} recorded;

static adamod_status step_on_device(experiment *s) {
    return s->shard ? shard_step_on_device(s->shard) : adamod_step(s->optimizer);
}

static adamod_status run_recorded(void *context) {
    const recorded *r = context;
    nn_plan_forward(r->s->plan);
    if (r->variant & STEPS) exchange_begin_on_device(r->s->exchange);
    nn_plan_backward(r->s->plan, r->variant & ADDS);
    adamod_status status = ADAMOD_OK;
    if (r->variant & STEPS && exchange_is_on_device(r->s->exchange)) status = exchange_on_device(r->s->exchange);
    if (!status && exchange_means_states(r->s->exchange)) status = exchange_mean_states(r->s->exchange);
    if (!(r->variant & STEPS)) return status;
    return status ? status : step_on_device(r->s);
}

/* Calls act with the gradient's scale and the learning rates of the update. */
static adamod_status with_scale(experiment *s, const update *u, adamod_status (*act)(void *context), void *context) {
    rates base = {0};
    adamod_status status = adamod_set(s->optimizer, "grad_scale", 1 / u->targets);
    if (!status) status = scale_lr(s, u, &base);
    if (!status) status = act(context);
    return restore_lr(s, &base, status);
}

static adamod_status replay(void *context) {
    recorded *r = context;
    return nn_plan_replay(r->s->plan, r->variant, run_recorded, r);
}

static adamod_status step_alone(void *context) {
    const recorded *r = context;
    const adamod_status status = step_on_device(r->s);
    return status ? status : adamod_sync(r->s->optimizer);
}

/* Runs the last batch with the step. The gradient's scale is set here, as it needs the targets of all batches and ranks. */
static adamod_status run_last(experiment *s, const update *u, recorded *r) {
    update whole = *u;
    double mine[2] = {u->own_targets, u->own_lr_factors};
    comm_add(s->comm, mine, 2);
    whole.targets = mine[0];
    whole.lr_factors = mine[1];
    r->variant |= STEPS;
    return with_scale(s, &whole, replay, r);
}

/* Sums on the host, then runs the step by itself. */
static adamod_status sum_and_step(experiment *s, bool collect, update *u) {
    const int n = s->recipe.train.accumulate, size = comm_size(s->comm);
    recorded r = {s, collect ? COLLECTS : 0};
    u->waited = true;
    adamod_status status = exchange_staged(s->exchange, n < size ? n : size);
    return status ? status : with_scale(s, u, step_alone, &r);
}

static adamod_status wait_for_batch(experiment *s, update *u) {
    const adamod_status status = nn_plan_wait(s->plan);
    if (!status) add_loss(s, u);
    return status;
}

static adamod_status run_batch(experiment *s, int i, bool collect, update *u) {
    const int n = s->recipe.train.accumulate, size = comm_size(s->comm);
    const bool staged = size > 1 && !exchange_is_on_device(s->exchange), last = i + size >= n && !staged;
    recorded r = {s, (i >= size ? ADDS : 0) | (last && collect ? COLLECTS : 0)};
    if (last) return run_last(s, u, &r);
    const adamod_status status = replay(&r);
    return status ? status : wait_for_batch(s, u);
}

/* Runs forward through another rank's earlier batch of the round, if states are carried. */
static adamod_status run_before(experiment *s, int i) {
    const int size = comm_size(s->comm), rank = comm_rank(s->comm);
    if (!experiment_carries(s) || i % size > rank) return ADAMOD_OK;
    nn_plan_forward(s->plan);
    return nn_plan_wait(s->plan);
}

static int run_on_device(experiment *s, checkpoint_meta *at, bool collect, update *u) {
    const int n = s->recipe.train.accumulate, ranks = comm_size(s->comm), rank = comm_rank(s->comm);
    collect = collect && !s->shard;
    adamod_status status = adamod_collect(s->optimizer, collect);
    for (int i = 0; !status && i < n; i++) {
        const double targets = u->targets, lr_factors = u->lr_factors;
        feed(s, at, i, u);
        if (i % ranks == rank) {
            u->own_targets += u->targets - targets;
            u->own_lr_factors += u->lr_factors - lr_factors;
            status = run_batch(s, i, collect, u);
        } else {
            status = run_before(s, i);
        }
        const bool ends = i % ranks == ranks - 1 || i == n - 1;
        if (!status && ends && ranks > 1 && !exchange_means_states(s->exchange))
            status = exchange_states(s->exchange, i % ranks + 1);
    }
    if (!status && ranks > 1 && !exchange_is_on_device(s->exchange)) status = sum_and_step(s, collect, u);
    if (!status || has_diverged(status, u)) return 0;
    return failed_alone(s, u);
}

/* Reads what the optimizer did. A refused update has no report; adamod_sync says why. */
static adamod_status read_report(experiment *s, update *u) {
    adamod_step_report report;
    if (adamod_report(s->optimizer, u->step - s->updates_before, &report)) return adamod_sync(s->optimizer);
    u->taken = u->taken && report.taken;
    u->norm = report.grad_norm;
    u->lr = report.lr;
    return ADAMOD_OK;
}

static int end_on_device(experiment *s, update *u) {
    adamod_status status = u->waited ? ADAMOD_OK : wait_for_batch(s, u);
    if (status) return failed_alone(s, u);
    comm_add(s->comm, u->sums, 4);
    u->taken = isfinite(u->sums[0]);
    u->norm = -1;
    if (!u->taken && stops(s)) {
        snprintf(u->diverged, sizeof u->diverged, "the loss is not finite in update %lld", (long long)u->step);
        return 0;
    }
    status = read_report(s, u);
    if (has_diverged(status, u)) return 0;
    return status ? library_failed(u) : 0;
}

/* ---- either ---- */

int update_begin(experiment *s, checkpoint_meta *at, bool collect, update *u) {
    *u = (update){.step = at->step + 1};
    const int failed = on_device(s) ? run_on_device(s, at, collect, u) : run_on_host(s, at, collect, u);
    if (failed || *u->diverged) return failed;
    at->step++;
    at->tokens += u->own_items;
    u->items = at->tokens;
    u->epoch = epochs_done(s->epoch, at->epoch, at->batch);
    return 0;
}

int update_end(experiment *s, update *u) { return on_device(s) ? end_on_device(s, u) : 0; }
