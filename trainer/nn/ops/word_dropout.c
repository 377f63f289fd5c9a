/* Row i of x, as a whole, is dropped with element ids_i of the stream, as if rows of the embedding's table were
 * dropped.
 *
 * Inputs: x, ids. Attribute: dropout. */
#include "core/error.h"
#include "nn/ops/dropout.h"

static int word_dropout_shape(nn_node *node, const nn_shape *in, nn_shape *out) {
    if (in[0].ndim != 2) return adamod__refuse("x must be a matrix");
    if (in[1].ndim != 1 || in[1].rows != in[0].rows || in[1].dim[0] != in[0].dim[0])
        return adamod__refuse("ids must be a vector of as many rows as x");
    *out = in[0];
    node->backward_needs = 1u << 1;
    return nn_dropout_check(node);
}

static void word_dropout_run(const nn_call *c, const float *x, float *y, bool add) {
    const int32_t *ids = c->input[1].data;
    const int64_t cols = c->output[0].cols;
    for (int64_t row = 0; row < c->output[0].rows; row++) {
        const double factor = nn_dropout_factor(c, ids[row]);
        for (int64_t i = row * cols; i < (row + 1) * cols; i++)
            y[i] = (float)((add ? (double)y[i] : 0) + (factor > 0 ? factor * (double)x[i] : 0));
    }
}

static void word_dropout_forward(const nn_call *c) { word_dropout_run(c, c->input[0].data, c->output[0].data, false); }

static void word_dropout_backward(const nn_call *c) {
    if (c->grad->input[0]) word_dropout_run(c, c->grad->output[0], c->grad->input[0], c->grad->accumulate[0]);
}

const nn_op nn_op_word_dropout = {
    .name = "word_dropout",
    .inputs = {"x", "ids"},
    .indices = 1u << 1,
    .attributes_size = sizeof(nn_word_dropout_attributes),
    .shape = word_dropout_shape,
    .ref = {.forward = word_dropout_forward, .backward = word_dropout_backward},
};

nn_value nn_word_dropout(nn_graph *g, nn_value x, nn_value ids, double p) {
    return nn_add_node(g, &nn_op_word_dropout, 2, (nn_value[]){x, ids}, &(nn_word_dropout_attributes){.dropout = p});
}
