/* AdaShift's driver. With spatial = max, v is one number for an array: it takes the largest square among the gradients that
 * leave the queue, and lr is divided by its root here, once. */
#include "optim/update.h"
#include "optim/kernels/half.h"

#include <math.h>

/* The momental bound of the array's learning rate. */
static double adamod__adashift_bound(const work *w, const block_source *b, const adamod__coef_f64 *k, double rate) {
    const double s = k->beta3 * adamod__state_number(w, b, 3, 0) + k->beta3c * rate;
    adamod__set_state_number(w, b, 3, 0, s);
    return s < rate ? s : rate;
}

/* The largest magnitude in the queue's oldest gradient. */
static double adamod__adashift_largest(const work *w, const block_source *b, double buffer[BLOCK]) {
    const int64_t count = b->item->span->count;
    double most = 0;
    for (int64_t at = 0; at < count; at += BLOCK) {
        const size_t n = count - at < BLOCK ? (size_t)(count - at) : BLOCK;
        const void *g = adamod__read_block(w->kernels, b->compute, b->state[2], b->state_type, at, n, buffer);
        most = adamod__larger(most, b->kernels->maxabs(g, n, 1));
    }
    return most;
}

static void adamod__adashift_item(void *context, int64_t i, int thread) {
    const work_context *c = context;
    const work_item *item = &c->w->items[i];
    adamod__coef_f64 *k = &c->space->coefs[c->space->coef_of[i]];
    const bool spatial = k->variant == 1;
    if (!item->span->grad || !spatial || item->span->count == 0) return;
    const block_source b = adamod__source(c->w, item, k);
    const double most = adamod__adashift_largest(c->w, &b, adamod__memory_of(c, thread).buffer->g);
    const double v = k->beta2 * adamod__state_number(c->w, &b, 1, 0) + k->beta2c * most * most;
    adamod__set_state_number(c->w, &b, 1, 0, adamod__saturated(v, b.state_type == ADAMOD_F64));
    k->high = v > 0 ? k->lr / (sqrt(v * k->vscale) + k->eps) : v;
    k->lr = item->options[OPT_BOUND] == BOUND_MOMENTAL ? adamod__adashift_bound(c->w, &b, k, k->high) : k->high;
}

static void adamod__adashift_run(const work *w, work_space *space) {
    work_context context = {w, space};
    adamod__pool_run(w->pool, (int64_t)w->n, adamod__adashift_item, &context);
}

const rule_driver adamod__adashift_driver = {.run = adamod__adashift_run};
