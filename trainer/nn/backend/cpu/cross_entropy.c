/* Cross entropy on the processor: see ops/cross_entropy.c for the formulas. */
#include "nn/backend/cpu/cpu.h"
#include "nn/ops/attributes.h"
#include "nn/backend/cpu/entropy.h"

#include <string.h>

enum { ROWS = 16 }; /* of a task, whose sums are added in the order of tasks */

typedef struct job {
    const nn_call *call;
    nn_entropy row;
    double (*sums)[4];
} job;

static job job_of(const nn_call *c) {
    return (job){c,
                 {nn_vector_choose(), c->input[0].cols, .smoothing = NN_ATTR(cross_entropy, c)->smoothing},
                 (double(*)[4])(void *)c->workspace};
}

static int64_t tasks(const nn_call *c) { return nn_parts(c->input[0].rows, ROWS); }

static size_t cross_entropy_workspace(const nn_call *c) { return (size_t)tasks(c) * sizeof(double[4]) / sizeof(float); }

static int64_t end_of(const nn_call *c, int64_t task) {
    const int64_t end = (task + 1) * ROWS;
    return end < c->input[0].rows ? end : c->input[0].rows;
}

static void forward_rows(void *context, int64_t task) {
    const job *j = context;
    const nn_call *c = j->call;
    const int32_t *targets = c->input[1].data;
    double sums[4] = {0};
    for (int64_t i = task * ROWS; i < end_of(c, task); i++) {
        const float *x = (const float *)c->input[0].data + i * j->row.n;
        if (targets[i] >= 0) c->saved[i] = (float)nn_entropy_row(&j->row, x, targets[i], sums);
    }
    memcpy(j->sums[task], sums, sizeof sums);
}

static void cross_entropy_forward(const nn_call *c) {
    job j = job_of(c);
    double sums[4] = {0};
    nn_parallel(c->pool, tasks(c), forward_rows, &j);
    for (int64_t t = 0; t < tasks(c); t++) {
        for (int k = 0; k < 4; k++) sums[k] += j.sums[t][k];
    }
    for (int k = 0; k < 4; k++) ((float *)c->output[0].data)[k] = (float)sums[k];
}

static void backward_rows(void *context, int64_t task) {
    const job *j = context;
    const nn_call *c = j->call;
    const int32_t *targets = c->input[1].data;
    for (int64_t i = task * ROWS; i < end_of(c, task); i++) {
        const float *x = (const float *)c->input[0].data + i * j->row.n;
        nn_entropy_gradient(&j->row, x, targets[i], c->saved[i], (double)c->grad->output[0][0],
                            c->grad->input[0] + i * j->row.n, c->grad->accumulate[0]);
    }
}

static void cross_entropy_backward(const nn_call *c) {
    job j = job_of(c);
    if (c->grad->input[0]) nn_parallel(c->pool, tasks(c), backward_rows, &j);
}

const nn_kernels nn_cpu_cross_entropy = {
    .forward = cross_entropy_forward, .backward = cross_entropy_backward, .workspace = cross_entropy_workspace};
