/* Cross entropy on the processor: see ops/cross_entropy.c for the formulas. */
#include "nn/backend/cpu/cpu.h"
#include "nn/ops/attributes.h"
#include "nn/backend/cpu/vector.h"

#include <math.h>
#include <string.h>

enum { ROWS = 16 }; /* of a task, whose sums are added in the order of tasks */

typedef struct job {
    const nn_call *call;
    const nn_vector *x;
    double (*sums)[4];
} job;

static int64_t tasks(const nn_call *c) { return nn_parts(c->input[0].rows, ROWS); }

static size_t cross_entropy_workspace(const nn_call *c) { return (size_t)tasks(c) * sizeof(double[4]) / sizeof(float); }

static int64_t end_of(const nn_call *c, int64_t task) {
    const int64_t end = (task + 1) * ROWS;
    return end < c->input[0].rows ? end : c->input[0].rows;
}

/* Whether the target is the first of the largest. */
static bool is_first(const float *x, int64_t target, float most) {
    if (!(x[target] >= most)) return false;
    for (int64_t v = 0; v < target; v++) {
        if (x[v] >= most) return false;
    }
    return true;
}

static void forward_rows(void *context, int64_t task) {
    const job *j = context;
    const nn_call *c = j->call;
    const int64_t n = c->input[0].cols;
    const int32_t *targets = c->input[1].data;
    const double s = NN_ATTR(cross_entropy, c)->smoothing;
    double sums[4] = {0};
    for (int64_t i = task * ROWS; i < end_of(c, task); i++) {
        const float *x = (const float *)c->input[0].data + i * n;
        if (targets[i] < 0) continue;
        double sum_x;
        const float most = j->x->most(n, x);
        const double sum = j->x->sum_exp(n, x, most, &sum_x);
        const double lse = most + log(sum), nll = lse - x[targets[i]];
        c->saved[i] = (float)lse;
        sums[0] += s > 0 ? (1 - s) * nll + s * (lse - sum_x / (double)n) : nll;
        sums[1] += nll;
        sums[2] += is_first(x, targets[i], most);
        sums[3]++;
    }
    memcpy(j->sums[task], sums, sizeof sums);
}

static void cross_entropy_forward(const nn_call *c) {
    job j = {c, nn_vector_choose(), (double(*)[4])(void *)c->workspace};
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
    const int64_t n = c->input[0].cols;
    const int32_t *targets = c->input[1].data;
    const double s = NN_ATTR(cross_entropy, c)->smoothing, scale = c->grad->output[0][0];
    const float shift = (float)(scale * s / (double)n), target = (float)(scale * (1 - s));
    for (int64_t i = task * ROWS; i < end_of(c, task); i++) {
        float *dx = c->grad->input[0] + i * n;
        if (targets[i] >= 0) {
            const float *x = (const float *)c->input[0].data + i * n;
            j->x->softmax(n, x, c->saved[i], (float)scale, shift, dx, c->grad->accumulate[0]);
            dx[targets[i]] -= target;
        } else if (!c->grad->accumulate[0]) {
            memset(dx, 0, (size_t)n * sizeof(float));
        }
    }
}

static void cross_entropy_backward(const nn_call *c) {
    job j = {c, nn_vector_choose(), NULL};
    if (c->grad->input[0]) nn_parallel(c->pool, tasks(c), backward_rows, &j);
}

const nn_kernels nn_cpu_cross_entropy = {
    .forward = cross_entropy_forward, .backward = cross_entropy_backward, .workspace = cross_entropy_workspace};
