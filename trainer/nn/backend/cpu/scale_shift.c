/* y = activation(scale x + shift + residual), some numbers at a time; formulas are in ops/scale_shift.c. Sums are in double
 * precision, those of tasks added in order. */
#include "nn/backend/cpu/cpu.h"
#include "nn/ops/attributes.h"

typedef struct job {
    const nn_call *c;
    int64_t n, tasks;
    float scale, shift;
    double *sums; /* of g x and of g, of each task */
} job;

static job job_of(const nn_call *c) {
    const float *scale = c->input[1].data, *shift = c->input[2].data;
    const int64_t n = c->output[0].rows * c->output[0].cols;
    return (job){c, n, nn_parts(n, NN_CHUNK), scale ? *scale : 1, shift ? *shift : 0, (double *)(void *)c->workspace};
}

static size_t scale_shift_workspace(const nn_call *c) {
    return 4 * (size_t)nn_parts(c->output[0].rows * c->output[0].cols, NN_CHUNK);
}

static int64_t end_of(const job *j, int64_t task) {
    return (task + 1) * NN_CHUNK < j->n ? (task + 1) * NN_CHUNK : j->n;
}

NN_CLONES
static void forward_part(int64_t n, const float *x, const float *r, float scale, float shift, bool relu,
                         float *restrict y) {
    for (int64_t i = 0; r && i < n; i++) y[i] = scale * x[i] + shift + r[i];
    for (int64_t i = 0; !r && i < n; i++) y[i] = scale * x[i] + shift;
    for (int64_t i = 0; relu && i < n; i++) y[i] = y[i] < 0 ? 0 : y[i];
}

static void forward_task(void *context, int64_t task) {
    const job *j = context;
    const nn_call *c = j->c;
    const int64_t first = task * NN_CHUNK;
    const float *r = c->input[3].data;
    forward_part(end_of(j, task) - first, (const float *)c->input[0].data + first, r ? r + first : NULL, j->scale,
                 j->shift, NN_ATTR(scale_shift, c)->activation == NN_RELU, (float *)c->output[0].data + first);
}

static void scale_shift_forward(const nn_call *c) {
    job j = job_of(c);
    nn_parallel(c->pool, j.tasks, forward_task, &j);
}

/* Sixteen sums each, so that their order does not depend on the width of vectors. y NULL: there is no relu. */
NN_CLONES
static void sum_part(int64_t n, const float *dy, const float *y, const float *x, double sums[2]) {
    enum { LANES = 16 };
    double gx[LANES] = {0}, all[LANES] = {0};
    for (int64_t i = 0; i < n; i += LANES) {
        const int64_t lanes = n - i < LANES ? n - i : LANES;
        for (int64_t k = 0; k < lanes; k++) {
            const double g = !y || y[i + k] > 0 ? dy[i + k] : 0;
            gx[k] += x ? g * x[i + k] : 0;
            all[k] += g;
        }
    }
    sums[0] = sums[1] = 0;
    for (int k = 0; k < LANES; k++) sums[0] += gx[k], sums[1] += all[k];
}

NN_CLONES
static void grad_part(int64_t n, const float *dy, const float *y, float scale, bool add, float *restrict dx) {
    for (int64_t i = 0; i < n; i++) {
        const float g = !y || y[i] > 0 ? dy[i] * scale : 0;
        dx[i] = add ? dx[i] + g : g;
    }
}

/* x and residual may be one value, with one gradient. So the residual's part is added second. */
static void backward_task(void *context, int64_t task) {
    const job *j = context;
    const nn_call *c = j->c;
    const int64_t first = task * NN_CHUNK, n = end_of(j, task) - first;
    const float *dy = c->grad->output[0] + first, *x = c->input[1].data ? c->input[0].data : NULL;
    const float *y = NN_ATTR(scale_shift, c)->activation == NN_RELU ? (const float *)c->output[0].data + first : NULL;
    float *dx = c->grad->input[0], *dr = c->grad->input[3];
    if (c->grad->input[1] || c->grad->input[2]) sum_part(n, dy, y, x ? x + first : NULL, j->sums + 2 * task);
    if (dx) grad_part(n, dy, y, j->scale, c->grad->accumulate[0], dx + first);
    if (dr) grad_part(n, dy, y, 1, c->grad->accumulate[3], dr + first);
}

static void scale_shift_backward(const nn_call *c) {
    job j = job_of(c);
    nn_parallel(c->pool, j.tasks, backward_task, &j);
    for (int k = 0; k < 2; k++) {
        float *const to = c->grad->input[1 + k];
        double sum = to && c->grad->accumulate[1 + k] ? *to : 0;
        for (int64_t t = 0; to && t < j.tasks; t++) sum += j.sums[2 * t + k];
        if (to) *to = (float)sum;
    }
}

const nn_kernels nn_cpu_scale_shift = {
    .forward = scale_shift_forward, .backward = scale_shift_backward, .workspace = scale_shift_workspace};
