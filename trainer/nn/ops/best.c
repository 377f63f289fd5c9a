/* The n largest of y_v = x_v - log sum_w exp(x_w) in each row, in order, and their columns; forward only. The output
 * is [rows, 2 n]: values, then columns as f32. Among equals the lower column comes first. Attribute: n. */
#include "core/error.h"
#include "nn/op.h"
#include "nn/ops/attributes.h"

#include <math.h>

static int best_shape(nn_node *node, const nn_shape *in, nn_shape *out) {
    const int n = NN_ATTR(best, node)->n;
    if (in[0].ndim != 2) return adamod__refuse("x must be a matrix");
    if (n < 1 || n > in[0].dim[1])
        return adamod__refuse("the best %d of %lld columns are asked for", n, (long long)in[0].dim[1]);
    if (in[0].dim[1] > 1 << 24) return adamod__refuse("columns beyond 2^24 are no numbers of f32");
    *out = in[0];
    out->dim[1] = 2 * n;
    return 0;
}

static void best_forward(const nn_call *c) {
    const int64_t n = c->input[0].cols, size = NN_ATTR(best, c)->n;
    for (int64_t i = 0; i < c->output[0].rows; i++) {
        const float *x = (const float *)c->input[0].data + i * n;
        float *y = (float *)c->output[0].data + i * 2 * size;
        double most = x[0], sum = 0;
        int64_t found = 0;
        for (int64_t v = 1; v < n; v++) most = x[v] > most ? x[v] : most;
        for (int64_t v = 0; v < n; v++) sum += exp(x[v] - most);
        for (int64_t v = 0; v < n; v++) {
            const float value = (float)(x[v] - most - log(sum));
            if (found == size && !(value > y[size - 1])) continue;
            int64_t at = found < size ? found++ : size - 1;
            for (; at > 0 && value > y[at - 1]; at--) {
                y[at] = y[at - 1];
                y[size + at] = y[size + at - 1];
            }
            y[at] = value;
            y[size + at] = (float)v;
        }
    }
}

const nn_op nn_op_best = {
    .name = "best",
    .inputs = {"x"},
    .attributes_size = sizeof(nn_best_attributes),
    .shape = best_shape,
    .ref = {.forward = best_forward},
    .full_outputs = 1u << 0,
};

nn_value nn_best(nn_graph *g, nn_value x, int n) {
    return nn_add_node(g, &nn_op_best, 1, &x, &(nn_best_attributes){.n = n});
}
