/* y = dropout(x) with one mask for all time steps, drawn once for a run. */
#include "nn/backend/cpu/cpu.h"
#include "nn/ops/attributes.h"

typedef struct locked_work {
    const float *mask; /* of a time step; NULL: nothing is dropped */
    int64_t step, n;   /* numbers of a time step, and of all */
    const float *x;
    float *y;
    bool add;
} locked_work;

static void locked_task(void *context, int64_t t) {
    const locked_work *w = context;
    const int64_t first = t * w->step, n = w->n - first < w->step ? w->n - first : w->step;
    nn_cpu_multiply_add(n, w->add ? w->y + first : NULL, w->mask, w->x + first, w->y + first);
}

static void locked_run(const nn_call *c, const float *x, float *y, bool add) {
    const nn_drop d = nn_cpu_drop(c);
    locked_work w = {d.drops ? c->workspace : NULL,
                     NN_ATTR(locked_dropout, c)->batch * c->output[0].cols,
                     c->output[0].rows * c->output[0].cols,
                     x,
                     y,
                     add};
    if (d.drops) nn_cpu_mask(d.key, 0, w.step, d.threshold, d.scale, c->workspace);
    nn_parallel(c->pool, nn_parts(w.n, w.step), locked_task, &w);
}

static void locked_forward(const nn_call *c) { locked_run(c, c->input[0].data, c->output[0].data, false); }

static void locked_backward(const nn_call *c) {
    if (c->grad->input[0]) locked_run(c, c->grad->output[0], c->grad->input[0], c->grad->accumulate[0]);
}

static size_t locked_workspace(const nn_call *c) {
    return (size_t)(NN_ATTR(locked_dropout, c)->batch * c->output[0].cols);
}

const nn_kernels nn_cpu_locked_dropout = {
    .forward = locked_forward, .backward = locked_backward, .workspace = locked_workspace};
