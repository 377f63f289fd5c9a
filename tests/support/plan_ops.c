/* See plan_ops.h. */
#include "plan_ops.h"
#include "core/error.h"
#include "nn/graph.h"

#include <string.h>

/* ---- two ways ---- */

static int two_ways_shape(nn_node *node, const nn_shape *in, nn_shape *out) {
    if (in[0].ndim != 2 || in[1].ndim != 1 || in[0].dim[1] != in[1].dim[0])
        return adamod__refuse("w must have the columns of x");
    out[0] = out[1] = in[0];
    out[2] = in[1];
    node->backward_needs = 1u << 0 | 1u << 1;
    return 0;
}

static void two_ways_forward(const nn_call *c) {
    const float *x = c->input[0].data, *w = c->input[1].data;
    const int64_t rows = c->input[0].rows, n = c->input[0].cols;
    float *y0 = c->output[0].data, *y1 = c->output[1].data, *mean = c->output[2].data;
    for (int64_t j = 0; j < n; j++) {
        double sum = 0;
        for (int64_t i = j; i < rows * n; i += n) {
            y0[i] = (float)((double)w[j] * x[i]);
            y1[i] = (float)((double)w[j] * x[i] * x[i]);
            sum += x[i];
        }
        mean[j] = (float)(sum / (double)rows);
    }
}

static void two_ways_backward(const nn_call *c) {
    const float *x = c->input[0].data, *w = c->input[1].data, *dy0 = c->grad->output[0], *dy1 = c->grad->output[1];
    float *dx = c->grad->input[0], *dw = c->grad->input[1];
    const int64_t rows = c->input[0].rows, n = c->input[0].cols;
    for (int64_t j = 0; j < n; j++) {
        double sum = dw && c->grad->accumulate[1] ? dw[j] : 0;
        for (int64_t i = j; i < rows * n; i += n) {
            const double g0 = dy0 ? dy0[i] : 0, g1 = dy1 ? dy1[i] : 0;
            sum += g0 * x[i] + g1 * x[i] * x[i];
            if (dx) dx[i] = (float)((c->grad->accumulate[0] ? dx[i] : 0) + w[j] * (g0 + 2 * g1 * x[i]));
        }
        if (dw) dw[j] = (float)sum;
    }
}

const nn_op plan_op_two_ways = {
    .name = "two_ways",
    .inputs = {"x", "w"},
    .shape = two_ways_shape,
    .ref = {.forward = two_ways_forward, .backward = two_ways_backward},
    .full_outputs = 1u << 2,
    .constant_outputs = 1u << 2,
};

nn_value plan_output_of(const nn_graph *g, nn_value v, int output) {
    return g->nodes[g->values[v].index].output[output];
}

nn_value plan_two_ways(nn_graph *g, nn_value x, nn_value w) {
    return nn_add_node(g, &plan_op_two_ways, 2, (nn_value[]){x, w}, NULL);
}

/* ---- center ---- */

static int center_shape(nn_node *node, const nn_shape *in, nn_shape *out) {
    (void)node;
    if (in[0].ndim < 2 || in[1].ndim != 1 || nn_columns(&in[0]) != in[1].dim[0])
        return adamod__refuse("one mean for each column");
    out[0] = in[0];
    out[1] = in[1];
    return 0;
}

/* On a device the rows of the batch are in its memory. */
static int64_t live_rows(const nn_array *a) { return a->live_rows ? *a->live_rows : a->rows; }

static double column_mean(const float *x, int64_t rows, int64_t cols) {
    double sum = 0;
    for (int64_t i = 0; i < rows; i++) sum += x[i * cols];
    return sum / (double)rows;
}

static void center_forward(const nn_call *c) {
    const int64_t n = c->input[0].cols, rows = live_rows(&c->input[0]);
    const float *x = c->input[0].data;
    float *y = c->output[0].data, *running = c->output[1].data;
    for (int64_t j = 0; j < n; j++) {
        const double mean = c->training ? column_mean(x + j, rows, n) : running[j];
        for (int64_t i = 0; i < c->output[0].rows; i++) y[i * n + j] = (float)(i < rows ? x[i * n + j] - mean : 0);
        if (c->training) running[j] = (float)(0.75 * running[j] + 0.25 * mean);
    }
}

static void center_backward(const nn_call *c) {
    const int64_t n = c->input[0].cols, rows = live_rows(&c->input[0]);
    float *dx = c->grad->input[0];
    for (int64_t j = 0; dx && j < n; j++) {
        const double mean = c->training ? column_mean(c->grad->output[0] + j, rows, n) : 0;
        for (int64_t i = 0; i < c->input[0].rows; i++) {
            const double g = i < rows ? c->grad->output[0][i * n + j] - mean : 0;
            dx[i * n + j] = (float)((c->grad->accumulate[0] ? dx[i * n + j] : 0) + g);
        }
    }
}

const nn_op plan_op_center = {
    .name = "center",
    .inputs = {"x", "running"},
    .shape = center_shape,
    .ref = {.forward = center_forward, .backward = center_backward},
    .aliases = {0, 1 + 1},
    .full_inputs = 1u << 1,
};

nn_value plan_center(nn_graph *g, nn_value x, nn_value running) {
    return nn_add_node(g, &plan_op_center, 2, (nn_value[]){x, running}, NULL);
}

/* ---- probe ---- */

static int probe_shape(nn_node *node, const nn_shape *in, nn_shape *out) {
    (void)node;
    out[0] = in[0];
    return 0;
}

static void probe_forward(const nn_call *c) {
    const size_t bytes = c->input[0].type == NN_BF16 ? 2 : 4;
    memcpy(c->output[0].data, c->input[0].data, (size_t)(c->input[0].rows * c->input[0].cols) * bytes);
}

const nn_op plan_op_probe = {
    .name = "probe",
    .inputs = {"x", "again", "w"},
    .shape = probe_shape,
    .ref = {.forward = probe_forward},
    .full_inputs = 1u << 1 | 1u << 2,
};

nn_value plan_probe(nn_graph *g, nn_value x, nn_value again, nn_value w) {
    return nn_add_node(g, &plan_op_probe, 3, (nn_value[]){x, again, w}, NULL);
}
