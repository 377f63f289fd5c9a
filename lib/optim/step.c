/* The optimizer's step, and what it counts and reports. */
#include "optim/optimizer.h"
#include "optim/schedule.h"
#include "kernels/half.h"

#include <math.h>
#include <string.h>

/* The options of each group in update t: as set, or as their schedules say. */
static adamod_status adamod__schedule_options(adamod_optimizer *opt, int64_t t) {
    for (int g = 0; g < opt->n_groups; g++) {
        group *x = &opt->groups[g];
        memcpy(x->effective, x->options, sizeof x->effective);
        const option_spec *o;
        for (int i = 0; (o = adamod__option(opt->rule, i)); i++) {
            if (!x->schedule[o->id]) continue;
            x->effective[o->id] = adamod_schedule_value(x->schedule[o->id], x->options[o->id], t);
            ADAMOD__TRY(adamod__check_value(opt->rule, o, x->effective[o->id]));
            ADAMOD__TRY(adamod__check_in_group(opt, g, o, x->effective[o->id]));
        }
        for (int i = 0; i < RANGE_TYPES; i++) {
            if (!x->computes[i]) continue;
            const adamod_type type = i == RANGE_F64 ? ADAMOD_F64 : ADAMOD_F32;
            ADAMOD__TRY(adamod__check_combined(opt->rule, x->effective, x->options[OPT_LR], type, NULL));
        }
    }
    return ADAMOD_OK;
}

/* Whether the update takes longer than waking a thread: some 50 us, in which one thread updates 60,000 elements from
 * memory. */
static bool adamod__worth_threads(const adamod_optimizer *opt) {
    enum { ELEMENTS = 65536 };
    int64_t total = 0;
    for (int64_t i = 0; i < opt->n; i++) total += opt->tensors[i].span.grad ? opt->tensors[i].span.count : 0;
    return total >= ELEMENTS;
}

/* Threads are made when there is work for them. */
static adamod_status adamod__ensure_pool(adamod_optimizer *opt) {
    const int threads = (int)opt->groups[0].options[OPT_THREADS];
    if (opt->own_pool && adamod__pool_gone(opt->pool)) adamod__drop_pool(opt);
    if (opt->pool || threads == 1 || !adamod__worth_threads(opt)) return ADAMOD_OK;
    const adamod_status status = adamod__update_pool(&opt->pool, threads, opt->kernels);
    opt->own_pool = status == ADAMOD_OK;
    return status;
}

/* The first parameter whose gradient or its square is not finite as the update sees it; NULL: none. *largest is that
 * gradient's largest element, scaled and clipped to the norm. */
static const tensor *adamod__find_nonfinite(work *w, work_space *space, double factor, double *largest) {
    const work all = *w;
    const tensor *found = NULL;
    for (size_t i = 0; i < all.n && !found; i++) {
        const work_item *item = w->items = &all.items[i];
        w->n = 1;
        if (!item->span->grad) continue;
        const double most = adamod__work_largest(w, space);
        const bool wide = adamod__range_type(item->span) == ADAMOD_F64;
        if (adamod__seen_finite(most, item->grad_scale, factor, item->options[OPT_CLIP_VALUE], wide)) continue;
        found = (const tensor *)(const void *)((const char *)item->span - offsetof(tensor, span));
        *largest = most * factor;
    }
    *w = all;
    return found;
}

adamod_status adamod__nonfinite(const tensor *t, int64_t update, double largest) {
    const long long number = (long long)update;
    if (!t) {
        return adamod__fail(ADAMOD_ERROR_NONFINITE, "the global norm of the gradients overflows in update %lld",
                            number);
    }
    if (!isfinite(largest)) {
        return adamod__fail(ADAMOD_ERROR_NONFINITE, "%s: its gradient holds a NaN or an infinity in update %lld",
                            t->name, number);
    }
    return adamod__fail(ADAMOD_ERROR_NONFINITE,
                        "%s: its gradient is too large in update %lld: the square of %.0e overflows %s", t->name,
                        number, largest, adamod__type_name(adamod__range_type(&t->span)));
}

/* The factor that brings the global norm down to clip_norm; *skip if the step must not be taken. */
static adamod_status adamod__clip(adamod_optimizer *opt, work *w, double *factor, bool *skip) {
    const double *o = opt->groups[0].options;
    *factor = 1;
    if (!isfinite(o[OPT_CLIP_NORM]) && o[OPT_NONFINITE] == NONFINITE_PASS && !opt->collect) {
        opt->norm = -1;
        return ADAMOD_OK;
    }
    const double norm = adamod__work_norm(w, &opt->space);
    if (norm > o[OPT_CLIP_NORM]) *factor = o[OPT_CLIP_NORM] / norm;
    if (o[OPT_NONFINITE] != NONFINITE_PASS && !adamod__surely_finite(norm, o[OPT_GRAD_SCALE])) {
        double largest = norm;
        const tensor *bad = adamod__find_nonfinite(w, &opt->space, *factor, &largest);
        const bool nonfinite = bad || !isfinite(norm);
        if (nonfinite && o[OPT_NONFINITE] == NONFINITE_ERROR) return adamod__nonfinite(bad, opt->steps + 1, largest);
        *skip = nonfinite;
    }
    opt->norm = norm;
    return ADAMOD_OK;
}

static void adamod__fill_items(adamod_optimizer *opt) {
    for (int64_t i = 0; i < opt->n; i++) {
        const group *g = &opt->groups[opt->tensors[i].group];
        opt->items[i] = (work_item){&opt->tensors[i].span, g->effective, g->options[OPT_LR], g->options[OPT_GRAD_SCALE],
                                    opt->tensors[i].group};
    }
}

/* Adds to the steps of parameters with a gradient. Returns the largest count of all. */
static int64_t adamod__count_step(adamod_optimizer *opt, int by) {
    int64_t most = 0;
    for (int64_t i = 0; i < opt->n; i++) {
        adamod_span *x = &opt->tensors[i].span;
        if (x->grad) x->step += by;
        if (x->step > most) most = x->step;
    }
    return most;
}

static void adamod__cap_steps(adamod_optimizer *opt) {
    for (int64_t i = 0; i < opt->n; i++) {
        if (opt->tensors[i].span.step > ADAMOD__MOST_STEPS) opt->tensors[i].span.step = ADAMOD__MOST_STEPS;
    }
}

/* Keeps a report of the attempt that was counted last. */
static void adamod__note_attempt(adamod_optimizer *opt, bool taken) {
    const int64_t attempt = opt->steps + opt->skipped;
    opt->reports[attempt % ADAMOD_REPORTS] =
        (adamod_step_report){attempt, taken, opt->norm, opt->groups[0].effective[OPT_LR]};
}

static adamod_status adamod__host_step(adamod_optimizer *opt) {
    ADAMOD__TRY(adamod__schedule_options(opt, opt->steps + 1));
    ADAMOD__TRY(adamod__ensure_pool(opt));
    adamod__fill_items(opt);
    adamod_pool *pool = adamod__worth_threads(opt) ? opt->pool : NULL;
    work w = {opt->rule, opt->kernels, opt->items, (size_t)opt->n, pool, opt->collect ? &opt->stats : NULL};
    const int64_t most = adamod__count_step(opt, 1);
    adamod_status status = adamod__work_reserve(&w, &opt->space);
    double factor = 1;
    bool skip = false;
    if (status == ADAMOD_OK) status = adamod__clip(opt, &w, &factor, &skip);
    if (status || skip) {
        adamod__count_step(opt, -1);
        opt->skipped += skip && opt->skipped < ADAMOD__MOST_STEPS;
        if (skip) adamod__note_attempt(opt, false);
        return status;
    }
    for (int64_t i = 0; i < opt->n; i++) opt->items[i].grad_scale *= factor;
    for (int g = 0; opt->collect && g < opt->stats.n_groups; g++) adamod__stats_clear(&opt->stats.groups[g]);
    adamod__work_run(&w, &opt->space);
    opt->stats.filled = opt->collect;
    opt->steps += opt->steps < ADAMOD__MOST_STEPS;
    if (most > ADAMOD__MOST_STEPS) adamod__cap_steps(opt);
    adamod__note_attempt(opt, true);
    return ADAMOD_OK;
}

adamod_status adamod__measure(adamod_optimizer *opt, int64_t update, double *factor, double *norm, bool *finite) {
    const adamod__arithmetic before = adamod__enter_arithmetic();
    bool skip = false;
    adamod_status status = adamod__schedule_options(opt, 1);
    if (!status) status = adamod__ensure_pool(opt);
    if (!status) {
        adamod__fill_items(opt);
        adamod_pool *pool = adamod__worth_threads(opt) ? opt->pool : NULL;
        work w = {opt->rule, opt->kernels, opt->items, (size_t)opt->n, pool, NULL};
        opt->steps = update - 1; /* for messages */
        status = adamod__work_reserve(&w, &opt->space);
        if (!status) status = adamod__clip(opt, &w, factor, &skip);
    }
    *norm = opt->norm;
    *finite = !skip;
    adamod__leave_arithmetic(before);
    return status;
}

adamod_status adamod_step(adamod_optimizer *opt) {
    if (!opt) return adamod__null_handle();
    if (opt->n == 0) return adamod__fail(ADAMOD_ERROR_ORDER, "step: no parameters were added");
    if (opt->kept) return adamod__evaluates("step");
    if (opt->device) return adamod__device_step(opt);
    const adamod__arithmetic before = adamod__enter_arithmetic();
    const adamod_status status = adamod__host_step(opt);
    adamod__leave_arithmetic(before);
    return status;
}

/* ---- results of steps ---- */

int64_t adamod_steps(const adamod_optimizer *opt) {
    if (opt) (void)adamod__refresh(opt);
    return opt ? opt->steps : 0;
}

int64_t adamod_skipped(const adamod_optimizer *opt) {
    if (opt) (void)adamod__refresh(opt);
    return opt ? opt->skipped : 0;
}

double adamod_grad_norm(const adamod_optimizer *opt) {
    if (opt) (void)adamod__refresh(opt);
    return opt ? opt->norm : -1;
}

adamod_status adamod_report(const adamod_optimizer *opt, int64_t attempt, adamod_step_report *out) {
    if (!opt) return adamod__null_handle();
    if (!out) return adamod__refuse("out is NULL");
    if (attempt < 1) return adamod__fail(ADAMOD_ERROR_RANGE, "attempt is %lld, expected 1 or more", (long long)attempt);
    const adamod_step_report *kept = &opt->reports[attempt % ADAMOD_REPORTS];
    bool there = !opt->device && kept->attempt == attempt;
    if (there) *out = *kept;
    else if (opt->device) there = opt->api->report(opt->device, attempt, out) != 0;
    if (there) return ADAMOD_OK;
    /* Reading how many a device has done would wait for it. */
    if (opt->device) {
        return adamod__fail(ADAMOD_ERROR_ORDER, "attempt %lld is not done yet, or not among the last %d",
                            (long long)attempt, ADAMOD_REPORTS);
    }
    if (attempt > opt->steps + opt->skipped)
        return adamod__fail(ADAMOD_ERROR_ORDER, "attempt %lld is not done yet", (long long)attempt);
    return adamod__fail(ADAMOD_ERROR_ORDER, "attempt %lld is no longer kept: only the last %d are", (long long)attempt,
                        ADAMOD_REPORTS);
}
