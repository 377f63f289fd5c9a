/* Means of windows, and their gradient: rows of windows are tasks. */
#include "nn/backend/cpu/cpu.h"
#include "nn/ops/attributes.h"

#include <string.h>

typedef struct job {
    const nn_call *c;
    int64_t channels, size, width; /* width: of x, in pixels */
    int64_t windows;               /* of a task */
} job;

static job job_of(const nn_call *c) {
    const int64_t *x = c->input[0].shape->dim;
    return (job){c, x[3], NN_ATTR(average_pool, c)->size, x[2], x[2] / NN_ATTR(average_pool, c)->size};
}

/* y = the mean of size x size pixels. */
NN_CLONES
static void mean_window(const job *j, const float *x, int64_t stride, float *restrict y) {
    const float share = 1 / (float)(j->size * j->size);
    memset(y, 0, (size_t)j->channels * sizeof *y);
    for (int64_t p = 0; p < j->size * j->size; p++) {
        const float *const from = x + (p / j->size * j->width + p % j->size) * stride;
        for (int64_t k = 0; k < j->channels; k++) y[k] += from[k];
    }
    for (int64_t k = 0; k < j->channels; k++) y[k] *= share;
}

NN_CLONES
static void spread_window(const job *j, const float *dy, float *dx, int64_t stride, bool add) {
    const float share = 1 / (float)(j->size * j->size);
    for (int64_t p = 0; p < j->size * j->size; p++) {
        float *const restrict to = dx + (p / j->size * j->width + p % j->size) * stride;
        for (int64_t k = 0; add && k < j->channels; k++) to[k] += dy[k] * share;
        for (int64_t k = 0; !add && k < j->channels; k++) to[k] = dy[k] * share;
    }
}

/* Windows lie in rows of x that are size high, and rows of images follow each other. */
static void forward_task(void *context, int64_t row) {
    const job *j = context;
    const nn_array *x = &j->c->input[0], *y = &j->c->output[0];
    for (int64_t i = 0; i < j->windows; i++)
        mean_window(j, (const float *)x->data + (row * j->size * j->width + i * j->size) * x->stride, x->stride,
                    (float *)y->data + (row * j->windows + i) * y->stride);
}

static void backward_task(void *context, int64_t row) {
    const job *j = context;
    const nn_array *x = &j->c->input[0], *y = &j->c->output[0];
    for (int64_t i = 0; i < j->windows; i++)
        spread_window(j, j->c->grad->output[0] + (row * j->windows + i) * y->stride,
                      j->c->grad->input[0] + (row * j->size * j->width + i * j->size) * x->stride, x->stride,
                      j->c->grad->accumulate[0]);
}

static void average_pool_forward(const nn_call *c) {
    job j = job_of(c);
    nn_parallel(c->pool, c->output[0].rows * c->output[0].shape->dim[1], forward_task, &j);
}

static void average_pool_backward(const nn_call *c) {
    job j = job_of(c);
    if (c->grad->input[0]) nn_parallel(c->pool, c->output[0].rows * c->output[0].shape->dim[1], backward_task, &j);
}

const nn_kernels nn_cpu_average_pool = {.forward = average_pool_forward, .backward = average_pool_backward};
