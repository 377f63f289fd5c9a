/* y_i = scale table[ids_i] + position(positions_i), where column j of the first half of the d columns is
 * sin(position f_j), of the second half cos(position f_j), f_j = 10000^(-j / (d / 2 - 1)), as fairseq lays them out;
 * the last of an odd number of columns is 0.
 *
 * Inputs: ids, positions or none, table. Attribute: scale. The caller sees to it that ids are rows of the table. */
#include "core/error.h"
#include "nn/op.h"
#include "nn/ops/attributes.h"

#include <assert.h>
#include <math.h>

static int embedding_shape(nn_node *node, const nn_shape *in, nn_shape *out) {
    const nn_shape *ids = &in[0], *positions = &in[1], *table = &in[2];
    if (ids->ndim != 1) return adamod__refuse("ids must be a vector");
    if (table->ndim != 2) return adamod__refuse("the table must be a matrix");
    if (node->input[1] >= 0 &&
        (positions->ndim != 1 || positions->rows != ids->rows || positions->dim[0] != ids->dim[0]))
        return adamod__refuse("there are %lld positions for %lld ids, or of another symbol",
                              (long long)positions->dim[0], (long long)ids->dim[0]);
    *out = (nn_shape){.rows = ids->rows, .ndim = 2, .dim = {ids->dim[0], table->dim[1]}};
    node->backward_needs = 1;
    return 0;
}

static double sinusoid(int32_t position, int64_t column, int64_t d) {
    const int64_t half = d / 2, j = column < half ? column : column - half;
    if (column >= 2 * half) return 0;
    const double angle = position * exp(half > 1 ? -(double)j * log(10000.0) / (double)(half - 1) : 0);
    return column < half ? sin(angle) : cos(angle);
}

static void embedding_forward(const nn_call *c) {
    const int32_t *ids = c->input[0].data, *positions = c->input[1].data;
    const float *table = c->input[2].data;
    const int64_t d = c->output[0].cols;
    float *y = c->output[0].data;
    for (int64_t i = 0; i < c->output[0].rows; i++) {
        assert(ids[i] >= 0 && ids[i] < c->input[2].rows);
        for (int64_t e = 0; e < d; e++) {
            const double p = positions ? sinusoid(positions[i], e, d) : 0;
            y[i * d + e] = (float)(NN_ATTR(embedding, c)->scale * table[ids[i] * d + e] + p);
        }
    }
}

/* Each row of the table sums the gradients of its tokens, in their order. */
static void embedding_backward(const nn_call *c) {
    const int32_t *ids = c->input[0].data;
    const int64_t d = c->output[0].cols, n = c->input[2].rows;
    double *sums = (double *)(void *)c->workspace;
    if (!c->grad->input[2]) return;
    for (int64_t id = 0; id < n; id++) {
        float *g = c->grad->input[2] + id * d;
        for (int64_t e = 0; e < d; e++) sums[e] = c->grad->accumulate[2] ? g[e] : 0;
        for (int64_t i = 0; i < c->output[0].rows; i++) {
            if (ids[i] != id) continue;
            for (int64_t e = 0; e < d; e++) sums[e] += NN_ATTR(embedding, c)->scale * c->grad->output[0][i * d + e];
        }
        for (int64_t e = 0; e < d; e++) g[e] = (float)sums[e];
    }
}

static size_t embedding_workspace(const nn_call *c) { return 2 * (size_t)c->output[0].cols; }

const nn_op nn_op_embedding = {
    .name = "embedding",
    .inputs = {"ids", "positions", "table"},
    .indices = 1u << 0 | 1u << 1,
    .attributes_size = sizeof(nn_embedding_attributes),
    .shape = embedding_shape,
    .ref = {.forward = embedding_forward, .backward = embedding_backward, .workspace = embedding_workspace},
};

nn_value nn_embedding(nn_graph *g, nn_value ids, nn_value positions, nn_value table, double scale) {
    return nn_add_node(g, &nn_op_embedding, 3, (nn_value[]){ids, positions, table},
                       &(nn_embedding_attributes){.scale = scale});
}
