/* y_v = x_v - log sum_w exp(x_w) in each row; forward only. */
#include "core/error.h"
#include "nn/op.h"

#include <math.h>

static int log_softmax_shape(nn_node *node, const nn_shape *in, nn_shape *out) {
    (void)node;
    if (in[0].ndim != 2 || in[0].dim[1] < 1) return adamod__refuse("x must be a matrix");
    *out = in[0];
    return 0;
}

static void log_softmax_forward(const nn_call *c) {
    const int64_t n = c->output[0].cols;
    for (int64_t i = 0; i < c->output[0].rows; i++) {
        const float *x = (const float *)c->input[0].data + i * n;
        float *y = (float *)c->output[0].data + i * n;
        double most = x[0], sum = 0;
        for (int64_t v = 1; v < n; v++) most = x[v] > most ? x[v] : most;
        for (int64_t v = 0; v < n; v++) sum += exp(x[v] - most);
        for (int64_t v = 0; v < n; v++) y[v] = (float)(x[v] - most - log(sum));
    }
}

const nn_op nn_op_log_softmax = {
    .name = "log_softmax",
    .inputs = {"x"},
    .shape = log_softmax_shape,
    .ref = {.forward = log_softmax_forward},
    .full_outputs = 1u << 0,
};

nn_value nn_log_softmax(nn_graph *g, nn_value x) { return nn_add_node(g, &nn_op_log_softmax, 1, &x, NULL); }
