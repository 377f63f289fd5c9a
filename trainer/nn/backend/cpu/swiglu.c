/* y = silu(a) b of x = [a | b]: see ops/swiglu.c for the formulas. */
#include "nn/backend/cpu/activation.h"
#include "nn/backend/cpu/cpu.h"

NN_CLONES
static void swiglu_part(int64_t n, const float *restrict a, const float *restrict b, float *restrict y) {
    for (int64_t j = 0; j < n; j++) y[j] = a[j] * nn_sigmoid(a[j]) * b[j];
}

NN_CLONES
static void slopes_part(int64_t n, const float *restrict a, const float *restrict b, const float *restrict dy,
                        float *restrict to_a, float *restrict to_b) {
    for (int64_t j = 0; j < n; j++) {
        float slope;
        const float s = nn_sigmoid_and_slope(a[j], &slope);
        to_a[j] = dy[j] * b[j] * (s + a[j] * slope);
        to_b[j] = dy[j] * a[j] * s;
    }
}

/* Rows of a task. */
static int64_t rows_of(const nn_call *c) { return c->output[0].cols < NN_CHUNK ? NN_CHUNK / c->output[0].cols : 1; }

static int64_t tasks(const nn_call *c) { return nn_parts(c->output[0].rows, rows_of(c)); }

static int64_t end_of(const nn_call *c, int64_t task) {
    const int64_t end = (task + 1) * rows_of(c);
    return end < c->output[0].rows ? end : c->output[0].rows;
}

static void forward_task(void *context, int64_t task) {
    const nn_call *c = context;
    const int64_t n = c->output[0].cols;
    for (int64_t i = task * rows_of(c); i < end_of(c, task); i++) {
        const float *a = (const float *)c->input[0].data + 2 * i * n;
        swiglu_part(n, a, a + n, (float *)c->output[0].data + i * n);
    }
}

/* dx may have x's memory: SOME numbers of both halves are computed before the first of them is written. */
static void backward_task(void *context, int64_t task) {
    enum { SOME = 512 };
    const nn_call *c = context;
    const int64_t n = c->output[0].cols;
    const bool add = c->grad->accumulate[0];
    float to_a[SOME], to_b[SOME];
    for (int64_t i = task * rows_of(c); i < end_of(c, task); i++) {
        for (int64_t j = 0; j < n; j += SOME) {
            const int64_t some = n - j < SOME ? n - j : SOME;
            const float *a = (const float *)c->input[0].data + 2 * i * n + j;
            float *da = c->grad->input[0] + 2 * i * n + j, *db = da + n;
            slopes_part(some, a, a + n, c->grad->output[0] + i * n + j, to_a, to_b);
            nn_cpu_multiply_add(some, add ? da : NULL, NULL, to_a, da);
            nn_cpu_multiply_add(some, add ? db : NULL, NULL, to_b, db);
        }
    }
}

static void swiglu_forward(const nn_call *c) { nn_parallel(c->pool, tasks(c), forward_task, (void *)(uintptr_t)c); }

static void swiglu_backward(const nn_call *c) {
    if (c->grad->input[0]) nn_parallel(c->pool, tasks(c), backward_task, (void *)(uintptr_t)c);
}

const nn_kernels nn_cpu_swiglu = {.forward = swiglu_forward, .backward = swiglu_backward};
