/* y = x + dropout(branch).
 *
 * Inputs: x, branch, of one shape. Attribute: dropout. */
#include "core/error.h"
#include "nn/ops/dropout.h"

static int add_shape(nn_node *node, const nn_shape *in, nn_shape *out) {
    const nn_shape *x = &in[0], *branch = &in[1];
    if (x->ndim < 1) return adamod__refuse("x is missing");
    if (!nn_same_shape(x, branch)) return adamod__refuse("x and branch must have one shape");
    *out = *x;
    if (nn_dropout_of(node->attributes) == 0) node->passes = 1u << 0 | 1u << 1;
    return nn_dropout_check(node);
}

static void add_forward(const nn_call *c) {
    const float *x = c->input[0].data, *branch = c->input[1].data;
    float *y = c->output[0].data;
    for (int64_t i = 0; i < c->output[0].rows * c->output[0].cols; i++) {
        y[i] = (float)(x[i] + nn_dropped(c, branch, i));
    }
}

/* x and branch may be one value, with one gradient. So the gradient of x is complete before that of branch begins. */
static void add_backward(const nn_call *c) {
    float *dx = c->grad->input[0], *db = c->grad->input[1];
    const int64_t n = c->output[0].rows * c->output[0].cols;
    for (int64_t i = 0; dx && i < n; i++)
        dx[i] = (float)((c->grad->accumulate[0] ? dx[i] : 0.0) + c->grad->output[0][i]);
    for (int64_t i = 0; db && i < n; i++) {
        db[i] = (float)((c->grad->accumulate[1] ? db[i] : 0.0) + nn_dropped(c, c->grad->output[0], i));
    }
}

const nn_op nn_op_add = {
    .name = "add",
    .inputs = {"x", "branch"},
    .attributes_size = sizeof(nn_add_attributes),
    .shape = add_shape,
    .ref = {.forward = add_forward, .backward = add_backward},
};

nn_value nn_add(nn_graph *g, nn_value x, nn_value branch, double dropout) {
    return nn_add_node(g, &nn_op_add, 2, (nn_value[]){x, branch}, &(nn_add_attributes){.dropout = dropout});
}
