/* y = the mean of each size x size window; dx = dy / size^2.
 *
 * Input: x [rows, height, width, channels]. Attribute: size, which divides height and width. */
#include "core/error.h"
#include "nn/op.h"
#include "nn/ops/attributes.h"

static int average_pool_shape(nn_node *node, const nn_shape *in, nn_shape *out) {
    const nn_shape *x = &in[0];
    const int window = NN_ATTR(average_pool, node)->size;
    if (x->ndim != 4) return adamod__refuse("x must be images");
    if (window < 1 || x->dim[1] % window || x->dim[2] % window)
        return adamod__refuse("windows of %d x %d do not divide images of %lld x %lld", window, window,
                              (long long)x->dim[1], (long long)x->dim[2]);
    *out = *x;
    out->dim[1] /= window;
    out->dim[2] /= window;
    return 0;
}

/* The first pixel of an output pixel's window. */
static int64_t first_of(const nn_call *c, int64_t to) {
    const int64_t *x = c->input[0].shape->dim, size = NN_ATTR(average_pool, c)->size, width = x[2] / size,
                  height = x[1] / size;
    return (to / (width * height) * x[1] + to / width % height * size) * x[2] + to % width * size;
}

static void average_pool_forward(const nn_call *c) {
    const nn_array *x = &c->input[0], *y = &c->output[0];
    const int64_t size = NN_ATTR(average_pool, c)->size, width = x->shape->dim[2];
    for (int64_t to = 0; to < nn_pixels(y); to++) {
        const float *window = (const float *)x->data + first_of(c, to) * x->stride;
        for (int64_t k = 0; k < nn_channels(y); k++) {
            double sum = 0;
            for (int64_t p = 0; p < size * size; p++) sum += window[(p / size * width + p % size) * x->stride + k];
            ((float *)y->data)[to * y->stride + k] = (float)(sum / (double)(size * size));
        }
    }
}

static void average_pool_backward(const nn_call *c) {
    const nn_array *x = &c->input[0], *y = &c->output[0];
    const int64_t size = NN_ATTR(average_pool, c)->size, width = x->shape->dim[2];
    if (!c->grad->input[0]) return;
    for (int64_t to = 0; to < nn_pixels(y); to++) {
        float *window = c->grad->input[0] + first_of(c, to) * x->stride;
        for (int64_t k = 0; k < nn_channels(y); k++) {
            const double g = c->grad->output[0][to * y->stride + k] / (double)(size * size);
            for (int64_t p = 0; p < size * size; p++) {
                float *const dx = &window[(p / size * width + p % size) * x->stride + k];
                *dx = (float)((c->grad->accumulate[0] ? *dx : 0) + g);
            }
        }
    }
}

const nn_op nn_op_average_pool = {
    .name = "average_pool",
    .inputs = {"x"},
    .attributes_size = sizeof(nn_average_pool_attributes),
    .shape = average_pool_shape,
    .ref = {.forward = average_pool_forward, .backward = average_pool_backward},
    .strided_inputs = 1u << 0,
    .strided_outputs = 1u << 0,
};

nn_value nn_average_pool(nn_graph *g, nn_value x, int size) {
    return nn_add_node(g, &nn_op_average_pool, 1, &x, &(nn_average_pool_attributes){.size = size});
}
