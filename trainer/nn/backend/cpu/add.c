/* y = x + dropout(branch). */
#include "nn/backend/cpu/cpu.h"

static void add_forward(const nn_call *c) {
    nn_cpu_add_dropped_array(c, nn_cpu_drop(c), c->input[0].data, c->input[1].data, c->output[0].data);
}

/* x and branch may be one value, with one gradient. So the gradient of x is complete before that of branch begins. */
static void add_backward(const nn_call *c) {
    const nn_drop drop[2] = {{0}, nn_cpu_drop(c)};
    for (int k = 0; k < 2; k++) {
        float *g = c->grad->input[k];
        if (g) nn_cpu_add_dropped_array(c, drop[k], c->grad->accumulate[k] ? g : NULL, c->grad->output[0], g);
    }
}

const nn_kernels nn_cpu_add = {.forward = add_forward, .backward = add_backward};
