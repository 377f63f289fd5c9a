/* Channels side by side (ops/concat.c): only what the plan has not placed inside the output is copied. */
#include "nn/backend/cuda/pixels.cuh"

template <typename T> static void forward(const nn_call *c) {
    T *y = (T *)c->output[0].data;
    for (int i = 0; i < 2; i++) {
        const nn_array *x = &c->input[i];
        if (x->data != y)
            copy_pixels<T>(c, nn_pixels(x), nn_channels(x), x->data, x->stride, y, c->output[0].stride, false);
        y += nn_channels(x);
    }
}

/* a and b may be one value, with one gradient. So the gradient of a is complete before that of b begins. */
template <typename T> static void backward(const nn_call *c) {
    const T *dy = (const T *)c->grad->output[0];
    for (int i = 0; i < 2; i++) {
        const nn_array *x = &c->input[i];
        T *dx = (T *)c->grad->input[i];
        if (dx && dx != dy)
            copy_pixels<T>(c, nn_pixels(x), nn_channels(x), dy, c->output[0].stride, dx, x->stride,
                           c->grad->accumulate[i]);
        dy += nn_channels(x);
    }
}

const nn_kernels nn_cuda_concat = {.forward = NN_BY_TYPE(output[0], forward),
                                   .backward = NN_BY_TYPE(output[0], backward)};
