/* y = gain h, h = x r, r = 1 / sqrt(mean(x^2) + eps) over columns  (Zhang and Sennrich 2019). With g = gain dy:
 *     dx = r (g - h mean(g h)),   dgain = sum of dy h,
 * means over columns, sums over rows.
 *
 * Inputs: x, gain. Attribute: eps. saved has room for each row's r, for backends that do not compute it twice. */
#include "core/error.h"
#include "nn/op.h"
#include "nn/ops/attributes.h"

#include <math.h>

static int rms_norm_shape(nn_node *node, const nn_shape *in, nn_shape *out) {
    const nn_shape *x = &in[0], *gain = &in[1];
    if (x->ndim != 2 || x->dim[1] < 1) return adamod__refuse("x must be a matrix");
    if (gain->ndim != 1 || gain->rows || gain->dim[0] != x->dim[1])
        return adamod__refuse("gain must be a vector of %lld, the columns of x", (long long)x->dim[1]);
    *out = *x;
    node->saved = (nn_shape){.rows = x->rows, .ndim = 1, .dim = {x->dim[0]}};
    node->backward_needs = 1u << 0 | 1u << 1;
    return 0;
}

static double scale_of(const nn_call *c, const float *x, int64_t n) {
    double squares = 0;
    for (int64_t j = 0; j < n; j++) squares += (double)x[j] * (double)x[j];
    return 1 / sqrt(squares / (double)n + NN_ATTR(rms_norm, c)->eps);
}

static void rms_norm_forward(const nn_call *c) {
    const int64_t n = c->output[0].cols;
    const float *gain = c->input[1].data;
    for (int64_t i = 0; i < c->output[0].rows; i++) {
        const float *x = (const float *)c->input[0].data + i * n;
        float *y = (float *)c->output[0].data + i * n;
        const double r = scale_of(c, x, n);
        for (int64_t j = 0; j < n; j++) y[j] = (float)((double)gain[j] * (double)x[j] * r);
    }
}

/* sums is the workspace: of dy h, for each column. */
static void rms_norm_backward(const nn_call *c) {
    const int64_t n = c->output[0].cols;
    const float *gain = c->input[1].data;
    double *sums = (double *)(void *)c->workspace;
    for (int64_t j = 0; j < n; j++) sums[j] = 0;
    for (int64_t i = 0; i < c->output[0].rows; i++) {
        const float *x = (const float *)c->input[0].data + i * n, *dy = c->grad->output[0] + i * n;
        float *dx = c->grad->input[0] ? c->grad->input[0] + i * n : NULL;
        const double r = scale_of(c, x, n);
        double mean = 0;
        for (int64_t j = 0; j < n; j++) {
            const double dy_h = (double)dy[j] * (double)x[j] * r;
            sums[j] += dy_h;
            mean += (double)gain[j] * dy_h / (double)n;
        }
        for (int64_t j = 0; dx && j < n; j++) {
            const double d = r * ((double)gain[j] * (double)dy[j] - (double)x[j] * r * mean);
            dx[j] = (float)((c->grad->accumulate[0] ? (double)dx[j] : 0) + d);
        }
    }
    float *dgain = c->grad->input[1];
    for (int64_t j = 0; dgain && j < n; j++)
        dgain[j] = (float)((c->grad->accumulate[1] ? (double)dgain[j] : 0) + sums[j]);
}

static size_t rms_norm_workspace(const nn_call *c) { return 2 * (size_t)c->output[0].cols; }

const nn_op nn_op_rms_norm = {
    .name = "rms_norm",
    .inputs = {"x", "gain"},
    .norms = 1u << 1,
    .attributes_size = sizeof(nn_rms_norm_attributes),
    .shape = rms_norm_shape,
    .ref = {.forward = rms_norm_forward, .backward = rms_norm_backward, .workspace = rms_norm_workspace},
    .in_place = 1u << 0,
};

nn_value nn_rms_norm(nn_graph *g, nn_value x, nn_value gain, double eps) {
    return nn_add_node(g, &nn_op_rms_norm, 2, (nn_value[]){x, gain}, &(nn_rms_norm_attributes){.eps = eps});
}
