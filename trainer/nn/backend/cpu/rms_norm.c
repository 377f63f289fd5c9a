/* RMS norm of rows: see ops/rms_norm.c for the formulas. saved holds each row's 1 / sqrt(mean(x^2) + eps). */
#include "nn/backend/cpu/cpu.h"
#include "nn/backend/cpu/rms.h"
#include "nn/backend/cpu/vector.h"
#include "nn/ops/attributes.h"

#include <string.h>

typedef struct norm_work {
    const nn_call *c;
    const nn_vector *x;
    int64_t n, rows; /* columns; rows of a task */
} norm_work;

static norm_work norm_work_of(const nn_call *c) {
    const int64_t n = c->output[0].cols;
    return (norm_work){c, nn_vector_choose(), n, n < NN_CHUNK ? NN_CHUNK / n : 1};
}

static int64_t norm_tasks(const norm_work *w) { return nn_parts(w->c->output[0].rows, w->rows); }

static int64_t end_of(const norm_work *w, int64_t task) {
    const int64_t end = (task + 1) * w->rows;
    return end < w->c->output[0].rows ? end : w->c->output[0].rows;
}

/* For each task: the sum over its rows for the gain, and a row. */
static size_t rms_norm_workspace(const nn_call *c) {
    const norm_work w = norm_work_of(c);
    return (size_t)(norm_tasks(&w) * 2 * w.n);
}

static void forward_task(void *context, int64_t task) {
    const norm_work *w = context;
    const nn_call *c = w->c;
    for (int64_t row = task * w->rows; row < end_of(w, task); row++) {
        const float *x = (const float *)c->input[0].data + row * w->n;
        c->saved[row] = nn_rms_scale(w->x, w->n, x, NN_ATTR(rms_norm, c)->eps);
        nn_rms_apply(w->n, x, c->saved[row], c->input[1].data, (float *)c->output[0].data + row * w->n);
    }
}

static void backward_task(void *context, int64_t task) {
    const norm_work *w = context;
    const nn_call *c = w->c;
    float *gain_sums = c->workspace + task * 2 * w->n, *d = gain_sums + w->n;
    memset(gain_sums, 0, (size_t)w->n * sizeof *gain_sums);
    for (int64_t row = task * w->rows; row < end_of(w, task); row++) {
        const float *x = (const float *)c->input[0].data + row * w->n;
        float *dx = c->grad->input[0] ? c->grad->input[0] + row * w->n : NULL;
        memcpy(d, c->grad->output[0] + row * w->n, (size_t)w->n * sizeof *d);
        nn_rms_gradient(w->x, w->n, x, c->saved[row], c->input[1].data, gain_sums, d);
        if (dx) nn_cpu_multiply_add(w->n, c->grad->accumulate[0] ? dx : NULL, NULL, d, dx);
    }
}

static void rms_norm_forward(const nn_call *c) {
    norm_work w = norm_work_of(c);
    nn_parallel(c->pool, norm_tasks(&w), forward_task, &w);
}

static void rms_norm_backward(const nn_call *c) {
    norm_work w = norm_work_of(c);
    nn_parallel(c->pool, norm_tasks(&w), backward_task, &w);
    if (c->grad->input[1])
        nn_cpu_sum_rows(c->pool, c->workspace, 2 * w.n, norm_tasks(&w), w.n, c->grad->input[1], c->grad->accumulate[1]);
}

const nn_kernels nn_cpu_rms_norm = {
    .forward = rms_norm_forward, .backward = rms_norm_backward, .workspace = rms_norm_workspace};
