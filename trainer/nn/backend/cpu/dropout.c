/* y = dropout(x). */
#include "nn/backend/cpu/cpu.h"

static void dropout_forward(const nn_call *c) {
    nn_cpu_add_dropped_array(c, nn_cpu_drop(c), NULL, c->input[0].data, c->output[0].data);
}

static void dropout_backward(const nn_call *c) {
    float *dx = c->grad->input[0];
    if (dx) nn_cpu_add_dropped_array(c, nn_cpu_drop(c), c->grad->accumulate[0] ? dx : NULL, c->grad->output[0], dx);
}

const nn_kernels nn_cpu_dropout = {.forward = dropout_forward, .backward = dropout_backward};
