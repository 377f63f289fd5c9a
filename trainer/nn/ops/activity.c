/* The loss with penalties on large and on changing activations (Merity, McCann and Socher 2017): to its element 0
 *     size * rows * mean(x^2) + change * rows * mean((z_t - z_(t-1))^2)
 * is added, where means are over all numbers there are, so that dividing by rows gives the paper's terms. Row
 * t * batch + b is time step t of sequence b.
 *
 * Inputs: loss, x, z. Attributes: size, change, batch. */
#include "core/error.h"
#include "nn/op.h"
#include "nn/ops/attributes.h"

#include <string.h>

static int activity_shape(nn_node *node, const nn_shape *in, nn_shape *out) {
    if (in[0].ndim != 2 || in[0].rows || in[0].dim[0] != 1) return adamod__refuse("loss must be a row of numbers");
    if (in[1].ndim != 2) return adamod__refuse("x must be a matrix");
    if (!nn_same_shape(&in[1], &in[2])) return adamod__refuse("x and z must have one shape");
    if (!(NN_ATTR(activity, node)->size >= 0 && NN_ATTR(activity, node)->change >= 0))
        return adamod__refuse("factors must be 0 or more");
    if (NN_ATTR(activity, node)->batch < 1) return adamod__refuse("batch must be 1 or more");
    *out = in[0];
    node->backward_needs = 1u << 1 | 1u << 2;
    return 0;
}

/* Factors of a square of x, and of a squared change of z. */
static double size_factor(const nn_call *c) { return NN_ATTR(activity, c)->size / (double)c->input[1].cols; }
static double change_factor(const nn_call *c) {
    const int64_t steps = c->input[2].rows / NN_ATTR(activity, c)->batch;
    if (steps < 2) return 0;
    return NN_ATTR(activity, c)->change * (double)steps / (double)(steps - 1) / (double)c->input[2].cols;
}

static void activity_forward(const nn_call *c) {
    const float *loss = c->input[0].data, *x = c->input[1].data, *z = c->input[2].data;
    const int64_t n = c->input[1].rows * c->input[1].cols, step = NN_ATTR(activity, c)->batch * c->input[2].cols;
    float *out = c->output[0].data;
    double squares = 0, changes = 0;
    for (int64_t i = 0; i < n; i++) squares += (double)x[i] * (double)x[i];
    for (int64_t i = step; i < n; i++) {
        const double change = (double)z[i] - (double)z[i - step];
        changes += change * change;
    }
    memcpy(out, loss, (size_t)c->output[0].cols * sizeof *out);
    out[0] = (float)((double)loss[0] + size_factor(c) * squares + change_factor(c) * changes);
}

/* x and z may be one value, with one gradient. So the gradient of z is written once that of x is complete. */
static void activity_backward(const nn_call *c) {
    const float *x = c->input[1].data, *z = c->input[2].data;
    const int64_t n = c->input[1].rows * c->input[1].cols, step = NN_ATTR(activity, c)->batch * c->input[2].cols;
    const double g = (double)c->grad->output[0][0];
    const double size = 2 * g * size_factor(c), change = 2 * g * change_factor(c);
    for (int64_t i = 0; c->grad->input[0] && i < c->output[0].cols; i++) {
        float *d = &c->grad->input[0][i];
        *d = (c->grad->accumulate[0] ? *d : 0) + c->grad->output[0][i];
    }
    for (int64_t i = 0; c->grad->input[1] && i < n; i++) {
        float *d = &c->grad->input[1][i];
        *d = (float)((c->grad->accumulate[1] ? (double)*d : 0) + size * (double)x[i]);
    }
    for (int64_t i = 0; c->grad->input[2] && i < n; i++) {
        const double before = i >= step ? (double)z[i] - (double)z[i - step] : 0;
        const double after = i + step < n ? (double)z[i + step] - (double)z[i] : 0;
        float *d = &c->grad->input[2][i];
        *d = (float)((c->grad->accumulate[2] ? (double)*d : 0) + change * (before - after));
    }
}

const nn_op nn_op_activity = {
    .name = "activity",
    .inputs = {"loss", "x", "z"},
    .attributes_size = sizeof(nn_activity_attributes),
    .shape = activity_shape,
    .ref = {.forward = activity_forward, .backward = activity_backward},
    .full_inputs = 1u << 0,
    .full_outputs = 1u << 0,
};

nn_value nn_activity(nn_graph *g, nn_value loss, nn_value x, nn_value z, int64_t batch, double size, double change) {
    return nn_add_node(g, &nn_op_activity, 3, (nn_value[]){loss, x, z},
                       &(nn_activity_attributes){.size = size, .change = change, .batch = batch});
}
