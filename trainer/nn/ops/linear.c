/* y = activation(z), z = x W^T + b. With g the gradient of z:
 *     dx = g W,   dW = g^T x,   db = the sum of g's rows.
 *
 * Inputs: x [rows, in], W [out, in], b [out] or none. Attribute: activation. relu's gradient follows from y; gelu's
 * needs z, which forward saves. */
#include "core/error.h"
#include "nn/op.h"
#include "nn/ops/attributes.h"

#include <math.h>

static int linear_shape(nn_node *node, const nn_shape *in, nn_shape *out) {
    const nn_shape *x = &in[0], *w = &in[1], *b = &in[2];
    if (x->ndim < 2) return adamod__refuse("x must be a matrix");
    if (w->ndim != 2 || w->rows) return adamod__refuse("W must be a matrix of fixed size");
    if (nn_columns(x) != w->dim[1])
        return adamod__refuse("x has %lld columns, W wants %lld", (long long)nn_columns(x), (long long)w->dim[1]);
    if (node->input[2] >= 0 && (b->ndim != 1 || b->rows || b->dim[0] != w->dim[0]))
        return adamod__refuse("b must be a vector of %lld, as many as W has rows", (long long)w->dim[0]);
    *out = (nn_shape){.rows = x->rows, .ndim = 2, .dim = {x->dim[0], w->dim[0]}};
    node->backward_needs = 1u << 0 | 1u << 1;
    if (NN_ATTR(linear, node)->activation == NN_RELU) node->backward_needs |= NN_NEEDS_OUTPUT;
    if (NN_ATTR(linear, node)->activation == NN_GELU) node->saved = *out;
    node->leaves_gradient = NN_ATTR(linear, node)->activation == NN_LINEAR;
    if (NN_ATTR(linear, node)->activation == NN_LINEAR && node->input[2] >= 0) node->bias = 2;
    return 0;
}

static double linear_flops(const nn_node *node, const nn_shape *in) {
    (void)node;
    return 2.0 * (double)in[0].dim[0] * (double)in[1].dim[0] * (double)in[1].dim[1];
}

/* z P(N < z) of a standard normal N. */
static double gelu(double z) { return 0.5 * z * (1 + erf(z * sqrt(0.5))); }

static double gelu_slope(double z) {
    return 0.5 * (1 + erf(z * sqrt(0.5))) + z * exp(-0.5 * z * z) * 0.3989422804014327; /* 1 / sqrt(2 pi) */
}

static void linear_forward(const nn_call *c) {
    const int64_t in = c->input[1].cols, out = c->output[0].cols;
    const float *x = c->input[0].data, *w = c->input[1].data, *b = c->input[2].data;
    float *y = c->output[0].data;
    for (int64_t i = 0; i < c->output[0].rows; i++) {
        for (int64_t o = 0; o < out; o++) {
            double z = b ? b[o] : 0;
            for (int64_t k = 0; k < in; k++) z += (double)x[i * in + k] * w[o * in + k];
            switch (NN_ATTR(linear, c)->activation) {
                case NN_LINEAR: y[i * out + o] = (float)z; break;
                case NN_RELU: y[i * out + o] = (float)(z < 0 ? 0 : z); break; /* NaN stays NaN */
                case NN_GELU:
                    c->saved[i * out + o] = (float)z;
                    y[i * out + o] = (float)gelu(z);
                    break;
            }
        }
    }
}

/* The gradient of z, in the workspace. */
static const double *pre_activation_grad(const nn_call *c) {
    double *dz = (double *)(void *)c->workspace;
    const float *y = c->output[0].data;
    for (int64_t k = 0; k < c->output[0].rows * c->output[0].cols; k++) {
        switch (NN_ATTR(linear, c)->activation) {
            case NN_LINEAR: dz[k] = c->grad->output[0][k]; break;
            case NN_RELU: dz[k] = y[k] > 0 ? c->grad->output[0][k] : 0; break;
            case NN_GELU: dz[k] = c->grad->output[0][k] * gelu_slope(c->saved[k]); break;
        }
    }
    return dz;
}

static size_t linear_workspace(const nn_call *c) { return 2 * (size_t)(c->output[0].rows * c->output[0].cols); }

static void input_grad(const nn_call *c, const double *dz, float *dx) {
    const int64_t in = c->input[1].cols, out = c->output[0].cols;
    const float *w = c->input[1].data;
    for (int64_t i = 0; i < c->output[0].rows; i++) {
        for (int64_t k = 0; k < in; k++) {
            double sum = c->grad->accumulate[0] ? dx[i * in + k] : 0;
            for (int64_t o = 0; o < out; o++) sum += dz[i * out + o] * w[o * in + k];
            dx[i * in + k] = (float)sum;
        }
    }
}

static void weight_grad(const nn_call *c, const double *dz, float *dw) {
    const int64_t in = c->input[1].cols, out = c->output[0].cols;
    const float *x = c->input[0].data;
    for (int64_t o = 0; o < out; o++) {
        for (int64_t k = 0; k < in; k++) {
            double sum = c->grad->accumulate[1] ? dw[o * in + k] : 0;
            for (int64_t i = 0; i < c->output[0].rows; i++) sum += dz[i * out + o] * x[i * in + k];
            dw[o * in + k] = (float)sum;
        }
    }
}

static void bias_grad(const nn_call *c, const double *dz, float *db) {
    const int64_t out = c->output[0].cols;
    for (int64_t o = 0; o < out; o++) {
        double sum = c->grad->accumulate[2] ? db[o] : 0;
        for (int64_t i = 0; i < c->output[0].rows; i++) sum += dz[i * out + o];
        db[o] = (float)sum;
    }
}

static void linear_backward(const nn_call *c) {
    const double *dz = pre_activation_grad(c);
    if (c->grad->input[0]) input_grad(c, dz, c->grad->input[0]);
    if (c->grad->input[1]) weight_grad(c, dz, c->grad->input[1]);
    if (c->grad->input[2]) bias_grad(c, dz, c->grad->input[2]);
}

const nn_op nn_op_linear = {
    .name = "linear",
    .inputs = {"x", "W", "b"},
    .biases = 1u << 2,
    .attributes_size = sizeof(nn_linear_attributes),
    .shape = linear_shape,
    .ref = {.forward = linear_forward, .backward = linear_backward, .workspace = linear_workspace},
    .flops = linear_flops,
    .matrices = 1,
};

nn_value nn_linear(nn_graph *g, nn_value x, nn_value w, nn_value b, nn_activation activation) {
    return nn_add_node(g, &nn_op_linear, 3, (nn_value[]){x, w, b}, &(nn_linear_attributes){.activation = activation});
}
