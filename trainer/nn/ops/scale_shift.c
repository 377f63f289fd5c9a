/* y = activation(z), z = scale x + shift + residual, with one scale and one shift for all of x. With g the gradient of z:
 *     dx = scale g,   dscale = sum of g x,   dshift = sum of g,   dresidual = g.
 *
 * Inputs: x, scale [1] or none: 1, shift [1] or none: 0, residual or none. Attribute: activation, linear or relu, whose
 * gradient follows from y. */
#include "core/error.h"
#include "nn/op.h"
#include "nn/ops/attributes.h"

static int scale_shift_shape(nn_node *node, const nn_shape *in, nn_shape *out) {
    const nn_shape *x = &in[0], *residual = &in[3];
    const nn_activation a = NN_ATTR(scale_shift, node)->activation;
    if (x->ndim < 1) return adamod__refuse("x is missing");
    for (int i = 1; i < 3; i++) {
        if (node->input[i] >= 0 && (in[i].ndim != 1 || in[i].rows || in[i].dim[0] != 1))
            return adamod__refuse("%s must be one number", node->op->inputs[i]);
    }
    if (node->input[3] >= 0 && !nn_same_shape(x, residual)) return adamod__refuse("x and residual must have one shape");
    if (a != NN_LINEAR && a != NN_RELU) return adamod__refuse("the activation must be linear or relu");
    *out = *x;
    if (node->input[1] >= 0) node->backward_needs = 1u << 0 | 1u << 1;
    if (a == NN_RELU) node->backward_needs |= NN_NEEDS_OUTPUT;
    return 0;
}

static void scale_shift_forward(const nn_call *c) {
    const float *x = c->input[0].data, *scale = c->input[1].data, *shift = c->input[2].data, *r = c->input[3].data;
    float *y = c->output[0].data;
    for (int64_t i = 0; i < c->output[0].rows * c->output[0].cols; i++) {
        const double z = (scale ? (double)*scale : 1) * x[i] + (shift ? *shift : 0) + (r ? r[i] : 0);
        y[i] = (float)(NN_ATTR(scale_shift, c)->activation == NN_RELU && z < 0 ? 0 : z);
    }
}

/* x and residual may be one value, with one gradient. So a number's dx is complete before its residual's gradient
 * begins. */
static void scale_shift_backward(const nn_call *c) {
    const float *x = c->input[0].data, *scale = c->input[1].data, *y = c->output[0].data;
    float *dx = c->grad->input[0], *dr = c->grad->input[3];
    double sums[2] = {0, 0};
    for (int64_t i = 0; i < c->output[0].rows * c->output[0].cols; i++) {
        const double g = NN_ATTR(scale_shift, c)->activation == NN_RELU && !(y[i] > 0) ? 0 : c->grad->output[0][i];
        if (scale) sums[0] += g * x[i];
        sums[1] += g;
        if (dx) dx[i] = (float)((c->grad->accumulate[0] ? dx[i] : 0) + (scale ? *scale * g : g));
        if (dr) dr[i] = (float)((c->grad->accumulate[3] ? dr[i] : 0) + g);
    }
    for (int k = 0; k < 2; k++) {
        float *const to = c->grad->input[1 + k];
        if (to) *to = (float)((c->grad->accumulate[1 + k] ? *to : 0) + sums[k]);
    }
}

const nn_op nn_op_scale_shift = {
    .name = "scale_shift",
    .inputs = {"x", "scale", "shift", "residual"},
    .biases = 1u << 2,
    .norms = 1u << 1,
    .attributes_size = sizeof(nn_scale_shift_attributes),
    .shape = scale_shift_shape,
    .ref = {.forward = scale_shift_forward, .backward = scale_shift_backward},
    .full_inputs = 1u << 1 | 1u << 2,
};

nn_value nn_scale_shift(nn_graph *g, nn_value x, nn_value scale, nn_value shift, nn_value residual,
                        nn_activation activation) {
    return nn_add_node(g, &nn_op_scale_shift, 4, (nn_value[]){x, scale, shift, residual},
                       &(nn_scale_shift_attributes){.activation = activation});
}
