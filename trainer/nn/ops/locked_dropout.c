/* Dropout with one mask for all time steps (Gal and Ghahramani 2016). Row t * batch + b is time step t of sequence b, and
 * element e of it is dropped with element b * columns + e of the stream.
 *
 * Input: x. Attributes: dropout, batch. */
#include "core/error.h"
#include "nn/ops/dropout.h"

static int locked_dropout_shape(nn_node *node, const nn_shape *in, nn_shape *out) {
    if (in[0].ndim != 2) return adamod__refuse("x must be a matrix");
    if (NN_ATTR(locked_dropout, node)->batch < 1) return adamod__refuse("batch must be 1 or more");
    *out = in[0];
    return nn_dropout_check(node);
}

static void locked_dropout_run(const nn_call *c, const float *x, float *y, bool add) {
    const int64_t period = NN_ATTR(locked_dropout, c)->batch * c->output[0].cols;
    for (int64_t i = 0; i < c->output[0].rows * c->output[0].cols; i++) {
        const double factor = nn_dropout_factor(c, i % period), before = add ? (double)y[i] : 0;
        y[i] = (float)(before + (factor > 0 ? factor * (double)x[i] : 0));
    }
}

static void locked_dropout_forward(const nn_call *c) {
    locked_dropout_run(c, c->input[0].data, c->output[0].data, false);
}

static void locked_dropout_backward(const nn_call *c) {
    if (c->grad->input[0]) locked_dropout_run(c, c->grad->output[0], c->grad->input[0], c->grad->accumulate[0]);
}

const nn_op nn_op_locked_dropout = {
    .name = "locked_dropout",
    .inputs = {"x"},
    .attributes_size = sizeof(nn_locked_dropout_attributes),
    .shape = locked_dropout_shape,
    .ref = {.forward = locked_dropout_forward, .backward = locked_dropout_backward},
};

nn_value nn_locked_dropout(nn_graph *g, nn_value x, int64_t batch, double p) {
    return nn_add_node(g, &nn_op_locked_dropout, 1, &x, &(nn_locked_dropout_attributes){.dropout = p, .batch = batch});
}
