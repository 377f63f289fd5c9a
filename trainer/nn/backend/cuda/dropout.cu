/* Dropout: see ops/dropout.c. Both directions are one kernel, which draws the same numbers each time. */
#include "nn/backend/cuda/drop_array.cuh"

template <typename T> static void drop_values(const nn_call *c, const void *from, target<T> to) {
    drop_array<T, T>(c, (const T *)from, to, c->output[0].rows * c->output[0].cols);
}

template <typename T> static void forward(const nn_call *c) {
    drop_values<T>(c, c->input[0].data, {(T *)c->output[0].data, false});
}

template <typename T> static void backward(const nn_call *c) {
    drop_values<T>(c, c->grad->output[0], target_of<T>(c, 0));
}

static void dropout_forward(const nn_call *c) { BY_TYPE(c->output[0].type, forward, c); }
static void dropout_backward(const nn_call *c) { BY_TYPE(c->output[0].type, backward, c); }

extern "C" const nn_kernels nn_cuda_dropout = {.forward = dropout_forward, .backward = dropout_backward};
