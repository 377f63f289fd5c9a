/* y_i = x_i / (1 - p) if element i is kept, else 0; y = x outside training. The call's key (random.h) decides which are
 * kept, so backward draws them again.
 *
 * Input: x. Attribute: dropout, the p. */
#include "core/error.h"
#include "nn/ops/dropout.h"

static int dropout_shape(nn_node *node, const nn_shape *in, nn_shape *out) {
    if (in[0].ndim < 1) return adamod__refuse("x is missing");
    *out = in[0];
    return nn_dropout_check(node);
}

static void dropout_forward(const nn_call *c) {
    const float *x = c->input[0].data;
    float *y = c->output[0].data;
    for (int64_t i = 0; i < c->output[0].rows * c->output[0].cols; i++) {
        y[i] = (float)nn_dropped(c, x, i);
    }
}

static void dropout_backward(const nn_call *c) {
    float *dx = c->grad->input[0];
    for (int64_t i = 0; dx && i < c->output[0].rows * c->output[0].cols; i++) {
        const double before = c->grad->accumulate[0] ? dx[i] : 0;
        dx[i] = (float)(before + nn_dropped(c, c->grad->output[0], i));
    }
}

const nn_op nn_op_dropout = {
    .name = "dropout",
    .inputs = {"x"},
    .attributes_size = sizeof(nn_dropout_attributes),
    .shape = dropout_shape,
    .ref = {.forward = dropout_forward, .backward = dropout_backward},
};

nn_value nn_dropout(nn_graph *g, nn_value x, double p) {
    return nn_add_node(g, &nn_op_dropout, 1, &x, &(nn_dropout_attributes){.dropout = p});
}
