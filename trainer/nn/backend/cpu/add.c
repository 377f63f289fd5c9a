/* y = x + dropout(branch). */
#include "nn/backend/cpu/cpu.h"

typedef struct add_work {
    const nn_call *c;
    nn_drop drop;
    int64_t n;
} add_work;

static void add_forward_task(void *context, int64_t i) {
    const add_work *w = context;
    const int64_t first = i * NN_CHUNK, n = w->n - first < NN_CHUNK ? w->n - first : NN_CHUNK;
    nn_cpu_add_dropped(&w->drop, first, n, w->c->input[0].data, w->c->input[1].data, w->c->output[0].data);
}

/* x and branch may be one value, so one gradient: x's is complete before branch's begins. */
static void add_backward_task(void *context, int64_t i) {
    const add_work *w = context;
    const nn_call *c = w->c;
    const int64_t first = i * NN_CHUNK, n = w->n - first < NN_CHUNK ? w->n - first : NN_CHUNK;
    for (int k = 0; k < 2; k++) {
        const nn_drop drop = k == 1 ? w->drop : (nn_drop){0};
        float *g = c->grad->input[k];
        if (g) nn_cpu_add_dropped(&drop, first, n, c->grad->accumulate[k] ? g : NULL, c->grad->output[0], g);
    }
}

static void add_run(const nn_call *c, void (*task)(void *context, int64_t i)) {
    add_work w = {c, nn_cpu_drop(c), c->output[0].rows * c->output[0].cols};
    nn_parallel(c->pool, nn_parts(w.n, NN_CHUNK), task, &w);
}

static void add_forward(const nn_call *c) { add_run(c, add_forward_task); }
static void add_backward(const nn_call *c) { add_run(c, add_backward_task); }

const nn_kernels nn_cpu_add = {.forward = add_forward, .backward = add_backward};
