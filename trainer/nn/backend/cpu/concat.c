/* Copies inputs that do not lie inside the result already; see ops/concat.c. */
#include "nn/backend/cpu/cpu.h"

#include <string.h>

enum { PIXELS = 256 }; /* of a task */

typedef struct job {
    const float *from;
    float *to;
    int64_t from_stride, to_stride, pixels, channels;
    bool add;
} job;

static void copy_task(void *context, int64_t task) {
    const job *j = context;
    const int64_t end = (task + 1) * PIXELS < j->pixels ? (task + 1) * PIXELS : j->pixels;
    for (int64_t p = task * PIXELS; p < end; p++) {
        const float *from = j->from + p * j->from_stride;
        float *to = j->to + p * j->to_stride;
        if (j->add) nn_cpu_multiply_add(j->channels, to, NULL, from, to);
        else memcpy(to, from, (size_t)j->channels * sizeof *to);
    }
}

static void copy(adamod_pool *pool, job j) { nn_parallel(pool, nn_parts(j.pixels, PIXELS), copy_task, &j); }

static void concat_forward(const nn_call *c) {
    float *y = c->output[0].data;
    for (int i = 0; i < 2; i++) {
        const nn_array *x = &c->input[i];
        if (x->data != y)
            copy(c->pool, (job){x->data, y, x->stride, c->output[0].stride, nn_pixels(x), nn_channels(x), false});
        y += nn_channels(x);
    }
}

static void concat_backward(const nn_call *c) {
    const float *dy = c->grad->output[0];
    for (int i = 0; i < 2; i++) {
        const nn_array *x = &c->input[i];
        float *dx = c->grad->input[i];
        if (dx && dx != dy)
            copy(c->pool,
                 (job){dy, dx, c->output[0].stride, x->stride, nn_pixels(x), nn_channels(x), c->grad->accumulate[i]});
        dy += nn_channels(x);
    }
}

const nn_kernels nn_cpu_concat = {.forward = concat_forward, .backward = concat_backward};
