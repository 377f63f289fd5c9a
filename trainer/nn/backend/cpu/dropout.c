/* y = dropout(x). */
#include "nn/backend/cpu/cpu.h"

typedef struct dropout_work {
    nn_drop drop;
    int64_t n;
    const float *x;
    float *y;
    bool add;
} dropout_work;

static void dropout_task(void *context, int64_t i) {
    const dropout_work *w = context;
    const int64_t first = i * NN_CHUNK, n = w->n - first < NN_CHUNK ? w->n - first : NN_CHUNK;
    nn_cpu_add_dropped(&w->drop, first, n, w->add ? w->y : NULL, w->x, w->y);
}

static void dropout_run(const nn_call *c, const float *x, float *y, bool add) {
    dropout_work w = {nn_cpu_drop(c), c->output[0].rows * c->output[0].cols, x, y, add};
    nn_parallel(c->pool, nn_parts(w.n, NN_CHUNK), dropout_task, &w);
}

static void dropout_forward(const nn_call *c) { dropout_run(c, c->input[0].data, c->output[0].data, false); }

static void dropout_backward(const nn_call *c) {
    if (c->grad->input[0]) dropout_run(c, c->grad->output[0], c->grad->input[0], c->grad->accumulate[0]);
}

const nn_kernels nn_cpu_dropout = {.forward = dropout_forward, .backward = dropout_backward};
