/* y = x / 2 (1 + t), t = tanh(u), u = a (x + c x^3), a = sqrt(2 / pi), c = 0.044715: the approximation of Hendrycks and
 * Gimpel (2016), as GPT-2 has it.
 *     dx = dy ((1 + t) / 2 + x / 2 (1 - t^2) a (1 + 3 c x^2))
 *
 * Input: x, of any shape. */
#include "core/error.h"
#include "nn/op.h"

#include <math.h>

static int gelu_shape(nn_node *node, const nn_shape *in, nn_shape *out) {
    if (in[0].ndim < 1) return adamod__refuse("x is missing");
    *out = in[0];
    node->backward_needs = 1u << 0;
    return 0;
}

static const double A = 0.7978845608028654, C = 0.044715;

static void gelu_forward(const nn_call *c) {
    const float *x = c->input[0].data;
    float *y = c->output[0].data;
    for (int64_t i = 0; i < c->output[0].rows * c->output[0].cols; i++) {
        const double z = (double)x[i];
        y[i] = (float)(0.5 * z * (1 + tanh(A * (z + C * z * z * z))));
    }
}

static void gelu_backward(const nn_call *c) {
    const float *x = c->input[0].data, *dy = c->grad->output[0];
    float *dx = c->grad->input[0];
    for (int64_t i = 0; dx && i < c->output[0].rows * c->output[0].cols; i++) {
        const double z = (double)x[i], t = tanh(A * (z + C * z * z * z));
        const double slope = 0.5 * (1 + t) + 0.5 * z * (1 - t * t) * A * (1 + 3 * C * z * z);
        dx[i] = (float)((c->grad->accumulate[0] ? (double)dx[i] : 0) + slope * (double)dy[i]);
    }
}

const nn_op nn_op_gelu = {
    .name = "gelu",
    .inputs = {"x"},
    .shape = gelu_shape,
    .ref = {.forward = gelu_forward, .backward = gelu_backward},
    .in_place = 1u << 0,
};

nn_value nn_gelu(nn_graph *g, nn_value x) { return nn_add_node(g, &nn_op_gelu, 1, &x, NULL); }
