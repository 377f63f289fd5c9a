/* y = gelu(x) by the tanh approximation. As (1 + tanh(u)) / 2 is the sigmoid of 2 u, y = x s with s = sigmoid(2 u), which
 * keeps its digits where tanh(u) is near -1; formulas are in ops/gelu.c. */
#include "nn/backend/cpu/activation.h"
#include "nn/backend/cpu/cpu.h"

/* 2 u = x (A + B x^2) */
#define A 1.5957691216f
#define B 0.0713548163f

NN_CLONES
static void gelu_part(int64_t n, const float *restrict x, float *restrict y) {
    for (int64_t i = 0; i < n; i++) y[i] = x[i] * nn_sigmoid(x[i] * (A + B * x[i] * x[i]));
}

NN_CLONES
static void slope_part(int64_t n, const float *restrict x, const float *restrict dy, float *restrict to) {
    for (int64_t i = 0; i < n; i++) {
        float slope;
        const float s = nn_sigmoid_and_slope(x[i] * (A + B * x[i] * x[i]), &slope);
        to[i] = dy[i] * (s + x[i] * slope * (A + 3 * B * x[i] * x[i]));
    }
}

static int64_t numbers(const nn_call *c) { return c->output[0].rows * c->output[0].cols; }

static int64_t part_at(const nn_call *c, int64_t first, int64_t most) {
    return numbers(c) - first < most ? numbers(c) - first : most;
}

static void forward_task(void *context, int64_t task) {
    const nn_call *c = context;
    const int64_t first = task * NN_CHUNK;
    gelu_part(part_at(c, first, NN_CHUNK), (const float *)c->input[0].data + first, (float *)c->output[0].data + first);
}

/* dx may have x's memory: SOME numbers are computed before the first of them is written. */
static void backward_task(void *context, int64_t task) {
    enum { SOME = 1024 };
    const nn_call *c = context;
    float to[SOME];
    for (int64_t first = task * NN_CHUNK; first < (task + 1) * NN_CHUNK && first < numbers(c); first += SOME) {
        const int64_t n = part_at(c, first, SOME);
        float *dx = c->grad->input[0] + first;
        slope_part(n, (const float *)c->input[0].data + first, c->grad->output[0] + first, to);
        nn_cpu_multiply_add(n, c->grad->accumulate[0] ? dx : NULL, NULL, to, dx);
    }
}

static void gelu_forward(const nn_call *c) {
    nn_parallel(c->pool, nn_parts(numbers(c), NN_CHUNK), forward_task, (void *)(uintptr_t)c);
}

static void gelu_backward(const nn_call *c) {
    if (c->grad->input[0]) nn_parallel(c->pool, nn_parts(numbers(c), NN_CHUNK), backward_task, (void *)(uintptr_t)c);
}

const nn_kernels nn_cpu_gelu = {.forward = gelu_forward, .backward = gelu_backward};
