#include "train/training_step.h"

#include "base/error.h"
#include "base/text.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

bool update_is_pending(const experiment *s) { return s->params->on_device; }

static int library_failed(const update *u, char *message, size_t size) {
    return text_fail(message, size, "update %lld: %s", (long long)u->step, adamod__last_message());
}

static bool stops(const experiment *s) { return strcmp(s->recipe.train.nonfinite, "stop") == 0; }

/* ---- batches ---- */

/* Batch i of the update, as the plan's inputs. */
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

/* The learning rate that the update's batches want, for its step; and back to what it was, as checkpoints know it. */
static adamod_status scale_lr(experiment *s, const update *u, double *base) {
    const double factor = u->lr_factors / s->recipe.train.accumulate;
    *base = NAN; /* it stays */
    if (factor == 1) return ADAMOD_OK;
    const adamod_status status = adamod_get(s->optimizer, "lr", base);
    return status ? status : adamod_set(s->optimizer, "lr", *base * factor);
}

static adamod_status restore_lr(experiment *s, double base, adamod_status status) {
    const adamod_status restored = isnan(base) ? ADAMOD_OK : adamod_set(s->optimizer, "lr", base);
    return status ? status : restored;
}

/* ---- on the processor ---- */

static adamod_status step(experiment *s, bool collect, update *u) {
    const int64_t skipped = adamod_skipped(s->optimizer);
    adamod_status status = adamod_collect(s->optimizer, collect);
    double base = NAN;
    if (!status) status = adamod_set(s->optimizer, "grad_scale", 1 / u->sums[3]);
    if (!status) status = scale_lr(s, u, &base);
    if (adamod_scheduled(s->optimizer, 0, "lr", &u->lr)) u->lr = NAN; /* not every rule has one */
    if (!status) status = adamod_step(s->optimizer);
    status = restore_lr(s, base, status);
    u->taken = adamod_skipped(s->optimizer) == skipped;
    u->norm = adamod_grad_norm(s->optimizer);
    return status;
}

static int run_on_host(experiment *s, checkpoint_meta *at, bool collect, update *u, char *message, size_t size) {
    for (int i = 0; i < s->recipe.train.accumulate; i++) {
        feed(s, at, i, u);
        nn_plan_forward(s->plan);
        add_loss(s, u);
        nn_plan_backward(s->plan, i > 0);
    }
    u->taken = isfinite(u->sums[0]);
    if (!u->taken && stops(s)) {
        snprintf(u->diverged, sizeof u->diverged, "the loss is not finite in update %lld", (long long)u->step);
        return 0;
    }
    u->lr = NAN;
    const adamod_status status = u->taken ? step(s, collect, u) : ADAMOD_OK;
    if (status == ADAMOD_ERROR_NONFINITE) {
        snprintf(u->diverged, sizeof u->diverged, "%s", adamod__last_message());
        return 0;
    }
    return status ? library_failed(u, message, size) : 0;
}

/* ---- on a device ---- */

enum { ADDS = 1, STEPS = 2, COLLECTS = 4 }; /* what a recording does beside forward and backward: its variant */

typedef struct recorded {
    experiment *s;
    int variant;
} recorded;

static adamod_status run_recorded(void *context) {
    const recorded *r = context;
    nn_plan_forward(r->s->plan);
    nn_plan_backward(r->s->plan, r->variant & ADDS);
    return r->variant & STEPS ? adamod_step(r->s->optimizer) : ADAMOD_OK;
}

/* How many targets the batches of an update have is known only with the last of them, so that the gradient's scale is
 * set just before it runs. */
static int run_on_device(experiment *s, checkpoint_meta *at, bool collect, update *u, char *message, size_t size) {
    const int n = s->recipe.train.accumulate;
    adamod_status status = adamod_collect(s->optimizer, collect);
    for (int i = 0; !status && i < n; i++) {
        feed(s, at, i, u);
        const bool last = i == n - 1;
        recorded r = {s, (i > 0 ? ADDS : 0) | (last ? STEPS : 0) | (last && collect ? COLLECTS : 0)};
        if (last) status = adamod_set(s->optimizer, "grad_scale", 1 / u->targets);
        double base = NAN;
        if (last && !status) status = scale_lr(s, u, &base);
        if (!status) status = nn_plan_replay(s->plan, r.variant, run_recorded, &r);
        status = restore_lr(s, base, status);
        if (status || last) break;
        status = nn_plan_wait(s->plan);
        add_loss(s, u);
    }
    return status ? library_failed(u, message, size) : 0;
}

/* What the optimizer did. An update it refused has no report; the library says why. */
static adamod_status read_report(experiment *s, update *u) {
    adamod_step_report report;
    if (adamod_report(s->optimizer, u->step - s->updates_before, &report)) return adamod_sync(s->optimizer);
    u->taken = u->taken && report.taken;
    u->norm = report.grad_norm;
    u->lr = report.lr;
    return ADAMOD_OK;
}

static int end_on_device(experiment *s, update *u, char *message, size_t size) {
    adamod_status status = nn_plan_wait(s->plan);
    if (status) return library_failed(u, message, size);
    add_loss(s, u);
    u->taken = isfinite(u->sums[0]);
    u->norm = -1;
    if (!u->taken && stops(s)) {
        snprintf(u->diverged, sizeof u->diverged, "the loss is not finite in update %lld", (long long)u->step);
        return 0;
    }
    status = read_report(s, u);
    if (status == ADAMOD_ERROR_NONFINITE) {
        snprintf(u->diverged, sizeof u->diverged, "%s", adamod__last_message());
        return 0;
    }
    return status ? library_failed(u, message, size) : 0;
}

/* ---- either ---- */

int update_begin(experiment *s, checkpoint_meta *at, bool collect, update *u, char *message, size_t size) {
    *u = (update){.step = at->step + 1};
    const int failed = update_is_pending(s) ? run_on_device(s, at, collect, u, message, size)
                                            : run_on_host(s, at, collect, u, message, size);
    if (failed || *u->diverged) return failed;
    at->step++;
    at->tokens += u->own_items;
    u->items = at->tokens;
    u->epoch = epochs_done(s->epoch, at->epoch, at->batch);
    return 0;
}

int update_end(experiment *s, update *u, char *message, size_t size) {
    return update_is_pending(s) ? end_on_device(s, u, message, size) : 0;
}
