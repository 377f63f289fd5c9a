/* AdaShift's driver. With spatial = max, v is one number for an array: it takes the largest square among the gradients that
 * leave the queue, and lr is divided by its root here, once. */
#include "optim/update.h"
#include "kernels/half.h"

#include <math.h>

/* The momental bound of the array's learning rate. */
static double adamod__adashift_bound(const work *w, const block_source *b, const adamod__coef_f64 *k, double rate) {
    const double s = k->beta3 * adamod__state_number(w, b, 3, 0) + k->beta3c * rate;
    adamod__set_state_number(w, b, 3, 0, s);
    return s < rate ? s : rate;
}

static bool adamod__adashift_spatial(const adamod__coef_f64 *k) { return k->variant == 1; }

/* The largest magnitude in a chunk of the queue's oldest gradient. */
static void adamod__adashift_largest(void *context, int64_t chunk, int thread) {
    const work_context *c = context;
    size_t i;
    int64_t first, last;
    adamod__chunk_range(c, chunk, &i, &first, &last);
    const block_source *b = &c->space->sources[i];
    if (!adamod__adashift_spatial(b->coef)) return;
    double *buffer = adamod__memory_of(c, thread).buffer->g, most = 0;
    for (int64_t at = first; at < last; at += BLOCK) {
        const size_t n = adamod__block_length(last, at);
        const void *g = adamod__read_block(c->w->kernels, b->compute, b->state[2], b->state_type, at, n, buffer);
        most = adamod__larger(most, b->kernels->maxabs(g, n, 1));
    }
    c->space->partial[chunk] = most;
}

static void adamod__adashift_item(const work *w, work_space *space, size_t i) {
    const block_source *b = &space->sources[i];
    adamod__coef_f64 *k = &space->coefs[space->coef_of[i]];
    double most = 0;
    for (int64_t chunk = space->first_chunk[i]; chunk < space->first_chunk[i + 1]; chunk++)
        most = adamod__larger(most, space->partial[chunk]);
    const double v = k->beta2 * adamod__state_number(w, b, 1, 0) + k->beta2c * most * most;
    adamod__set_state_number(w, b, 1, 0, adamod__saturated(v, b->state_type == ADAMOD_F64));
    k->high = v > 0 ? k->lr / (sqrt(v * k->vscale) + k->eps) : v;
    k->lr = w->items[i].options[OPT_BOUND] == BOUND_MOMENTAL ? adamod__adashift_bound(w, b, k, k->high) : k->high;
}

static void adamod__adashift_run(const work *w, work_space *space) {
    work_context context = {w, space};
    adamod__pool_run(w->pool, adamod__lay_given(w, space), adamod__adashift_largest, &context);
    for (size_t i = 0; i < w->n; i++) {
        const adamod_span *x = w->items[i].span;
        const bool spatial = adamod__adashift_spatial(&space->coefs[space->coef_of[i]]);
        if (x->grad && x->count > 0 && spatial) adamod__adashift_item(w, space, i);
    }
}

const rule_driver adamod__adashift_driver = {.run = adamod__adashift_run};
