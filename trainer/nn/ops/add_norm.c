/* y = gamma h + beta, h = (z - mean) / sqrt(variance + eps) over columns, z = x + dropout(branch)  (Ba et al. 2016).
 * With g = gamma dy:
 *     dz = (g - mean(g) - h mean(g h)) / sqrt(variance + eps),   dgamma = sum of dy h,   dbeta = sum of dy,
 * means over columns, sums over rows; dx = dz, and branch's is dz through the dropout.
 *
 * Inputs: x, branch or none, gamma, beta. Attributes: dropout, eps. Backward computes z again: it needs no memory of
 * its own then, and x is mostly needed by others too. saved has room for a row's mean and 1 / sqrt(variance + eps),
 * for backends that do not compute them twice. */
#include "core/error.h"
#include "nn/ops/dropout.h"

#include <math.h>

static bool is_vector_of(const nn_shape *s, int64_t n) { return s->ndim == 1 && !s->rows && s->dim[0] == n; }

static int add_norm_shape(nn_node *node, const nn_shape *in, nn_shape *out) {
    const nn_shape *x = &in[0], *branch = &in[1];
    if (x->ndim != 2 || x->dim[1] < 1) return adamod__refuse("x must be a matrix");
    if (node->input[1] >= 0 && !nn_same_shape(x, branch)) return adamod__refuse("x and branch must have one shape");
    if (!is_vector_of(&in[2], x->dim[1]) || !is_vector_of(&in[3], x->dim[1]))
        return adamod__refuse("gamma and beta must be vectors of %lld, the columns of x", (long long)x->dim[1]);
    *out = *x;
    node->saved = (nn_shape){.rows = x->rows, .ndim = 2, .dim = {x->dim[0], 2}};
    node->backward_needs = 1u << 0 | 1u << 1 | 1u << 2;
    return nn_dropout_check(node);
}

static double sum_input(const nn_call *c, int64_t i) {
    const float *x = c->input[0].data, *branch = c->input[1].data;
    return branch ? x[i] + nn_dropped(c, branch, i) : x[i];
}

typedef struct row_moments {
    double mean, scale; /* scale: 1 / sqrt(variance + eps) */
} row_moments;

static row_moments moments(const nn_call *c, int64_t row) {
    const int64_t n = c->output[0].cols;
    double sum = 0, squares = 0;
    for (int64_t j = 0; j < n; j++) sum += sum_input(c, row * n + j);
    const double mean = sum / (double)n;
    for (int64_t j = 0; j < n; j++) {
        const double d = sum_input(c, row * n + j) - mean;
        squares += d * d;
    }
    return (row_moments){mean, 1 / sqrt(squares / (double)n + NN_ATTR(add_norm, c)->eps)};
}

static void add_norm_forward(const nn_call *c) {
    const int64_t n = c->output[0].cols;
    const float *gamma = c->input[2].data, *beta = c->input[3].data;
    float *y = c->output[0].data;
    for (int64_t i = 0; i < c->output[0].rows; i++) {
        const row_moments m = moments(c, i);
        for (int64_t j = 0; j < n; j++) {
            y[i * n + j] = (float)(gamma[j] * (sum_input(c, i * n + j) - m.mean) * m.scale + beta[j]);
        }
    }
}

/* x and branch may be one value, with one gradient. So an element's dx is complete before its branch's gradient begins. */
static void row_grad(const nn_call *c, int64_t row, row_moments m) {
    const int64_t n = c->output[0].cols;
    const float *gamma = c->input[2].data;
    float *dx = c->grad->input[0], *db = c->grad->input[1];
    double mean_g = 0, mean_gh = 0;
    for (int64_t k = row * n; k < (row + 1) * n; k++) {
        const double g = (double)gamma[k - row * n] * c->grad->output[0][k] / (double)n;
        mean_g += g;
        mean_gh += g * (sum_input(c, k) - m.mean) * m.scale;
    }
    for (int64_t k = row * n; k < (row + 1) * n; k++) {
        const double g = (double)gamma[k - row * n] * c->grad->output[0][k], h = (sum_input(c, k) - m.mean) * m.scale;
        const double dz = (g - mean_g - h * mean_gh) * m.scale;
        if (dx) dx[k] = (float)((c->grad->accumulate[0] ? dx[k] : 0) + dz);
        if (db) db[k] = (float)((c->grad->accumulate[1] ? db[k] : 0) + nn_dropout_factor(c, k) * dz);
    }
}

/* sums is the workspace: of dy h, then of dy, for each column. */
static void add_norm_backward(const nn_call *c) {
    const int64_t n = c->output[0].cols;
    double *sums = (double *)(void *)c->workspace;
    for (int64_t j = 0; j < 2 * n; j++) sums[j] = 0;
    for (int64_t i = 0; i < c->output[0].rows; i++) {
        const row_moments m = moments(c, i);
        for (int64_t j = 0; j < n; j++) {
            sums[j] += c->grad->output[0][i * n + j] * (sum_input(c, i * n + j) - m.mean) * m.scale;
            sums[n + j] += c->grad->output[0][i * n + j];
        }
        if (c->grad->input[0] || c->grad->input[1]) row_grad(c, i, m);
    }
    for (int k = 2; k < 4; k++) {
        float *g = c->grad->input[k];
        for (int64_t j = 0; g && j < n; j++)
            g[j] = (float)((c->grad->accumulate[k] ? g[j] : 0) + sums[(k - 2) * n + j]);
    }
}

static size_t add_norm_workspace(const nn_call *c) { return 4 * (size_t)c->output[0].cols; }

const nn_op nn_op_add_norm = {
    .name = "add_norm",
    .inputs = {"x", "branch", "gamma", "beta"},
    .norms = 1u << 2 | 1u << 3,
    .attributes_size = sizeof(nn_add_norm_attributes),
    .shape = add_norm_shape,
    .ref = {.forward = add_norm_forward, .backward = add_norm_backward, .workspace = add_norm_workspace},
};

nn_value nn_add_norm(nn_graph *g, nn_value x, nn_value branch, double dropout, nn_value gamma, nn_value beta,
                     double eps) {
    return nn_add_node(g, &nn_op_add_norm, 4, (nn_value[]){x, branch, gamma, beta},
                       &(nn_add_norm_attributes){.dropout = dropout, .eps = eps});
}
