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

extern "C" const nn_kernels nn_cuda_dropout = {.forward = NN_BY_TYPE(output[0], forward),
                                               .backward = NN_BY_TYPE(output[0], backward)};
