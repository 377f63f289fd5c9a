/* Cross entropy (ops/cross_entropy.c) of the logits x W^T + b, with z lse_i^2 added to the loss of row i (the z-loss of
 * Chowdhery et al. 2022), for vocabularies whose logits would fill the memory. Kernels hold logits of some rows at a time.
 * With g_iv = (1 + 2 z lse_i) softmax_iv - (1 - s) [v = target_i] - s / V, 0 in rows that are left out:
 *     dx = g W,   dW = g^T x,   db = the sum of g's rows.
 *
 * Inputs: x [rows, in], W [words, in], b [words] or none, targets. Attributes: smoothing, z. Saved: lse, [rows]. */
#include "core/error.h"
#include "nn/op.h"
#include "nn/ops/linear_cross_entropy.h"

#include <math.h>
#include <string.h>

static int linear_cross_entropy_shape(nn_node *node, const nn_shape *in, nn_shape *out) {
    const nn_shape *x = &in[LCE_X], *w = &in[LCE_W], *b = &in[LCE_B], *targets = &in[LCE_TARGETS];
    const nn_linear_cross_entropy_attributes *a = NN_ATTR(linear_cross_entropy, node);
    if (x->ndim != 2) return adamod__refuse("x must be a matrix");
    if (w->ndim != 2 || w->rows || w->dim[0] < 1) return adamod__refuse("W must be a matrix of fixed size");
    if (x->dim[1] != w->dim[1])
        return adamod__refuse("x has %lld columns, W wants %lld", (long long)x->dim[1], (long long)w->dim[1]);
    if (node->input[LCE_B] >= 0 && (b->ndim != 1 || b->rows || b->dim[0] != w->dim[0]))
        return adamod__refuse("b must be a vector of %lld, as many as W has rows", (long long)w->dim[0]);
    if (targets->ndim != 1) return adamod__refuse("targets must be a vector");
    if (x->rows != targets->rows || x->dim[0] != targets->dim[0])
        return adamod__refuse("x has %lld rows, but there are %lld targets, or of another symbol", (long long)x->dim[0],
                              (long long)targets->dim[0]);
    if (!(a->smoothing >= 0 && a->smoothing < 1)) return adamod__refuse("smoothing must be in [0, 1)");
    if (!(a->z >= 0)) return adamod__refuse("z must be 0 or more");
    *out = (nn_shape){.ndim = 2, .dim = {1, 4}};
    node->saved = (nn_shape){.rows = x->rows, .ndim = 1, .dim = {x->dim[0]}};
    node->backward_needs = 1u << LCE_X | 1u << LCE_W | 1u << LCE_B | 1u << LCE_TARGETS;
    return 0;
}

static double linear_cross_entropy_flops(const nn_node *node, const nn_shape *in) {
    (void)node;
    return 2.0 * (double)in[LCE_X].dim[0] * (double)in[LCE_W].dim[0] * (double)in[LCE_W].dim[1];
}

/* The logits of a row, in the workspace. */
static double *logits_of(const nn_call *c, int64_t row) {
    const int64_t in = c->input[LCE_W].cols, words = c->input[LCE_W].rows;
    const float *x = (const float *)c->input[LCE_X].data + row * in, *w = c->input[LCE_W].data;
    const float *b = c->input[LCE_B].data;
    double *to = (double *)(void *)c->workspace;
    for (int64_t v = 0; v < words; v++) {
        to[v] = b ? (double)b[v] : 0;
        for (int64_t k = 0; k < in; k++) to[v] += (double)x[k] * (double)w[v * in + k];
    }
    return to;
}

/* Adds a row's numbers to sums; returns its log-sum-exp. */
static double add_row(const nn_call *c, const double *logits, int32_t target, double *sums) {
    const double s = NN_ATTR(linear_cross_entropy, c)->smoothing, z = NN_ATTR(linear_cross_entropy, c)->z;
    const int64_t words = c->input[LCE_W].rows;
    double most = -INFINITY, sum = 0, sum_logits = 0;
    int64_t best = -1;
    for (int64_t v = 0; v < words; v++) {
        if (logits[v] > most) {
            most = logits[v];
            best = v;
        }
    }
    for (int64_t v = 0; v < words; v++) {
        sum += exp(logits[v] - most);
        sum_logits += logits[v];
    }
    const double lse = most + log(sum), nll = lse - logits[target];
    sums[0] += (1 - s) * nll + s * (lse - sum_logits / (double)words) + z * lse * lse;
    sums[1] += nll;
    sums[2] += best == target;
    sums[3]++;
    return lse;
}

static void linear_cross_entropy_forward(const nn_call *c) {
    const int32_t *targets = c->input[LCE_TARGETS].data;
    double sums[4] = {0};
    for (int64_t i = 0; i < c->input[LCE_X].rows; i++) {
        if (targets[i] >= 0) c->saved[i] = (float)add_row(c, logits_of(c, i), targets[i], sums);
    }
    for (int k = 0; k < 4; k++) ((float *)c->output[0].data)[k] = (float)sums[k];
}

/* The workspace: logits of a row, then the gradients of W and b. */
static void row_backward(const nn_call *c, int64_t row, double *dw, double *db) {
    const nn_linear_cross_entropy_attributes *a = NN_ATTR(linear_cross_entropy, c);
    const int64_t in = c->input[LCE_W].cols, words = c->input[LCE_W].rows;
    const int32_t target = ((const int32_t *)c->input[LCE_TARGETS].data)[row];
    const float *x = (const float *)c->input[LCE_X].data + row * in, *w = c->input[LCE_W].data;
    float *dx = c->grad->input[LCE_X] ? c->grad->input[LCE_X] + row * in : NULL;
    const double scale = (double)c->grad->output[0][0], lse = (double)c->saved[row];
    double *g = target >= 0 ? logits_of(c, row) : NULL;
    for (int64_t v = 0; g && v < words; v++) {
        g[v] = (1 + 2 * a->z * lse) * exp(g[v] - lse) - a->smoothing / (double)words;
        g[v] = scale * (g[v] - (v == target ? 1 - a->smoothing : 0));
        db[v] += g[v];
        for (int64_t k = 0; k < in; k++) dw[v * in + k] += g[v] * (double)x[k];
    }
    for (int64_t k = 0; dx && k < in; k++) {
        double sum = c->grad->accumulate[LCE_X] ? (double)dx[k] : 0;
        for (int64_t v = 0; g && v < words; v++) sum += g[v] * (double)w[v * in + k];
        dx[k] = (float)sum;
    }
}

static void linear_cross_entropy_backward(const nn_call *c) {
    const int64_t in = c->input[LCE_W].cols, words = c->input[LCE_W].rows;
    double *dw = (double *)(void *)c->workspace + words, *db = dw + words * in;
    memset(dw, 0, (size_t)(words * in + words) * sizeof *dw);
    for (int64_t i = 0; i < c->input[LCE_X].rows; i++) row_backward(c, i, dw, db);
    const double *sums[] = {[LCE_W] = dw, [LCE_B] = db};
    const int64_t n[] = {[LCE_W] = words * in, [LCE_B] = words};
    for (int k = LCE_W; k <= LCE_B; k++) {
        float *to = c->grad->input[k];
        for (int64_t i = 0; to && i < n[k]; i++)
            to[i] = (float)((c->grad->accumulate[k] ? (double)to[i] : 0) + sums[k][i]);
    }
}

static size_t linear_cross_entropy_workspace(const nn_call *c) {
    return 2 * (size_t)(c->input[LCE_W].rows * (c->input[LCE_W].cols + 2));
}

const nn_op nn_op_linear_cross_entropy = {
    .name = "linear_cross_entropy",
    .inputs = {"x", "W", "b", "targets"},
    .indices = 1u << LCE_TARGETS,
    .biases = 1u << LCE_B,
    .attributes_size = sizeof(nn_linear_cross_entropy_attributes),
    .shape = linear_cross_entropy_shape,
    .ref = {.forward = linear_cross_entropy_forward,
            .backward = linear_cross_entropy_backward,
            .workspace = linear_cross_entropy_workspace},
    .flops = linear_cross_entropy_flops,
    .matrices = 1,
    .full_outputs = 1u << 0,
};

nn_value nn_linear_cross_entropy(nn_graph *g, nn_value x, nn_value w, nn_value b, nn_value targets, double smoothing,
                                 double z) {
    return nn_add_node(g, &nn_op_linear_cross_entropy, 4, (nn_value[]){x, w, b, targets},
                       &(nn_linear_cross_entropy_attributes){.smoothing = smoothing, .z = z});
}
