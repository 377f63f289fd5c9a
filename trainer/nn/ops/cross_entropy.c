/* Label-smoothed cross entropy, summed over the rows whose target is not negative: with nll_i = lse_i - x_it,
 *   loss = sum_i (1 - s) nll_i + s / V sum_v (lse_i - x_iv)
 * Output: that, the sum of nll, rows whose first largest logit is the target, rows counted. Saved: lse, [rows].
 *
 * Inputs: logits, targets. Attribute: smoothing. */
#include "core/error.h"
#include "nn/op.h"
#include "nn/ops/attributes.h"

#include <math.h>

static int cross_entropy_shape(nn_node *node, const nn_shape *in, nn_shape *out) {
    if (in[0].ndim != 2 || in[0].dim[1] < 1) return adamod__refuse("logits must be a matrix");
    if (in[1].ndim != 1) return adamod__refuse("targets must be a vector");
    if (in[0].rows != in[1].rows || in[0].dim[0] != in[1].dim[0])
        return adamod__refuse("logits have %lld rows, but there are %lld targets, or of another symbol",
                              (long long)in[0].dim[0], (long long)in[1].dim[0]);
    if (!(NN_ATTR(cross_entropy, node)->smoothing >= 0 && NN_ATTR(cross_entropy, node)->smoothing < 1))
        return adamod__refuse("smoothing must be in [0, 1)");
    *out = (nn_shape){.ndim = 2, .dim = {1, 4}};
    node->saved = (nn_shape){.rows = in[0].rows, .ndim = 1, .dim = {in[0].dim[0]}};
    node->backward_needs = 3;
    return 0;
}

/* Adds one row's numbers to sums; returns its log-sum-exp. */
static double add_row(const float *x, int64_t n, int32_t target, double smoothing, double *sums) {
    double most = -INFINITY, sum = 0, sum_x = 0;
    int64_t best = -1;
    for (int64_t v = 0; v < n; v++) {
        if (x[v] > most) {
            most = x[v];
            best = v;
        }
    }
    for (int64_t v = 0; v < n; v++) {
        sum += exp(x[v] - most);
        sum_x += x[v];
    }
    const double lse = most + log(sum), nll = lse - x[target];
    sums[0] += smoothing > 0 ? (1 - smoothing) * nll + smoothing * (lse - sum_x / (double)n) : nll;
    sums[1] += nll;
    sums[2] += best == target;
    sums[3]++;
    return lse;
}

static void cross_entropy_forward(const nn_call *c) {
    const float *x = c->input[0].data;
    const int32_t *targets = c->input[1].data;
    const int64_t n = c->input[0].cols;
    double sums[4] = {0};
    for (int64_t i = 0; i < c->input[0].rows; i++) {
        if (targets[i] < 0) continue;
        c->saved[i] = (float)add_row(x + i * n, n, targets[i], NN_ATTR(cross_entropy, c)->smoothing, sums);
    }
    for (int k = 0; k < 4; k++) ((float *)c->output[0].data)[k] = (float)sums[k];
}

/* dloss/dx_v = softmax_v - (1 - s) [v = target] - s / V */
static void cross_entropy_backward(const nn_call *c) {
    const float *x = c->input[0].data;
    const int32_t *targets = c->input[1].data;
    const int64_t n = c->input[0].cols;
    const double s = NN_ATTR(cross_entropy, c)->smoothing, scale = c->grad->output[0][0];
    if (!c->grad->input[0]) return;
    for (int64_t i = 0; i < c->input[0].rows; i++) {
        for (int64_t v = 0; v < n; v++) {
            float *dx = c->grad->input[0] + i * n + v;
            double d = 0;
            if (targets[i] >= 0) {
                d = scale * (exp(x[i * n + v] - (double)c->saved[i]) - (v == targets[i] ? 1 - s : 0) - s / (double)n);
            }
            *dx = (float)((c->grad->accumulate[0] ? *dx : 0) + d);
        }
    }
}

const nn_op nn_op_cross_entropy = {
    .name = "cross_entropy",
    .inputs = {"logits", "targets"},
    .indices = 1u << 1,
    .attributes_size = sizeof(nn_cross_entropy_attributes),
    .shape = cross_entropy_shape,
    .ref = {.forward = cross_entropy_forward, .backward = cross_entropy_backward},
    .full_outputs = 1u << 0,
    .in_place = 1u << 0,
};

nn_value nn_cross_entropy(nn_graph *g, nn_value logits, nn_value targets, double smoothing) {
    return nn_add_node(g, &nn_op_cross_entropy, 2, (nn_value[]){logits, targets},
                       &(nn_cross_entropy_attributes){.smoothing = smoothing});
}
