/* y = silu(a) b of x = [a | b], with silu(a) = a s and s = 1 / (1 + exp(-a))  (Shazeer 2020).
 *     da = dy b s (1 + a (1 - s)),   db = dy a s
 *
 * Input: x, [rows, 2 n]. */
#include "core/error.h"
#include "nn/op.h"

#include <math.h>

static int swiglu_shape(nn_node *node, const nn_shape *in, nn_shape *out) {
    if (in[0].ndim != 2) return adamod__refuse("x must be a matrix");
    if (in[0].dim[1] < 2 || in[0].dim[1] % 2)
        return adamod__refuse("x has %lld columns, not two equal parts", (long long)in[0].dim[1]);
    *out = in[0];
    out->dim[1] /= 2;
    node->backward_needs = 1u << 0;
    return 0;
}

static void swiglu_forward(const nn_call *c) {
    const int64_t n = c->output[0].cols;
    for (int64_t i = 0; i < c->output[0].rows; i++) {
        const float *a = (const float *)c->input[0].data + 2 * i * n, *b = a + n;
        float *y = (float *)c->output[0].data + i * n;
        for (int64_t j = 0; j < n; j++) y[j] = (float)((double)a[j] / (1 + exp(-(double)a[j])) * (double)b[j]);
    }
}

static void swiglu_backward(const nn_call *c) {
    const int64_t n = c->output[0].cols;
    for (int64_t i = 0; c->grad->input[0] && i < c->output[0].rows; i++) {
        const float *a = (const float *)c->input[0].data + 2 * i * n, *b = a + n, *dy = c->grad->output[0] + i * n;
        float *da = c->grad->input[0] + 2 * i * n, *db = da + n;
        for (int64_t j = 0; j < n; j++) {
            const double z = (double)a[j], s = 1 / (1 + exp(-z)), g = (double)dy[j];
            const double to_a = g * (double)b[j] * s * (1 + z * (1 - s)), to_b = g * z * s;
            da[j] = (float)((c->grad->accumulate[0] ? (double)da[j] : 0) + to_a);
            db[j] = (float)((c->grad->accumulate[0] ? (double)db[j] : 0) + to_b);
        }
    }
}

const nn_op nn_op_swiglu = {
    .name = "swiglu",
    .inputs = {"x"},
    .shape = swiglu_shape,
    .ref = {.forward = swiglu_forward, .backward = swiglu_backward},
    .in_place = 1u << 0,
};

nn_value nn_swiglu(nn_graph *g, nn_value x) { return nn_add_node(g, &nn_op_swiglu, 1, &x, NULL); }
