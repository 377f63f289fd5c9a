#include "image_cases.h"

opcheck convolution_case(const conv_sizes *s) {
    opcheck o = {
        .op = &nn_op_convolution,
        .attributes = {.convolution = {.stride = s->stride, .padding = s->padding}},
        .n_inputs = 2,
        .input = {OPCHECK_IMAGES(1, s->rows, s->height, s->width, s->in), OPCHECK_KERNEL(s->out, s->size, s->in)},
        .training = true,
        .seed = (uint64_t)(s->rows + s->height + s->in + s->out),
        .gap = s->out_gap,
    };
    const int64_t n = s->size * s->size * (s->in > s->out ? s->in : s->out), pixels = s->rows * s->height * s->width;
    o.longest_sum = (double)(n > pixels ? n : pixels);
    o.input[0].gap = s->gap;
    return o;
}

opcheck batch_norm_case(int64_t rows, int64_t height, int64_t width, int64_t channels, bool residual, bool relu,
                        bool training) {
    opcheck o = {
        .op = &nn_op_batch_norm,
        .attributes = {.batch_norm = {.eps = 1e-5, .momentum = 0.1, .activation = relu ? NN_RELU : NN_LINEAR}},
        .n_inputs = 6,
        .input = {OPCHECK_IMAGES(1, rows, height, width, channels), OPCHECK_NONE, OPCHECK_VECTOR(channels),
                  OPCHECK_VECTOR(channels), OPCHECK_VECTOR(channels), OPCHECK_VECTOR(channels)},
        .training = training,
        .seed = (uint64_t)(rows + height + channels),
        .longest_sum = (double)(rows * height * width),
    };
    if (residual) o.input[1] = o.input[0];
    if (height == 0) { /* a matrix */
        o.input[0] = (opcheck_input)OPCHECK_ROWS(1, rows, channels);
        if (residual) o.input[1] = o.input[0];
        o.longest_sum = (double)rows;
    }
    o.input[0].mean = 1;
    o.input[2].mean = 1;
    o.input[4].no_grad = o.input[5].no_grad = true;
    o.input[5].mean = 2; /* a variance */
    o.input[5].scale = 0.2;
    return o;
}
