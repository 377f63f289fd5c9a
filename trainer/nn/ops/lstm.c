/* A layer of long short-term memory (Hochreiter and Schmidhuber 1997; Gers et al. 2000) over whole sequences. Row t * batch + b
 * is time step t of sequence b. With D the dropout of weights, drawn once for the run,
 *     (i, f, g, o) = x_t W_in^T + b_in + y_(t-1) D(W_state)^T + b_state, through sigmoids, of g through tanh,
 *     c_t = f c_(t-1) + i g,   y_t = o tanh(c_t).
 * Backward stops at the state that the run began with.
 *
 * Inputs: see lstm_view.h. Outputs: y, and the state after the last step. Attribute: dropout. */
#include "core/error.h"
#include "nn/ops/lstm_view.h"
#include "nn/ops/dropout.h"

#include <math.h>
#include <string.h>

static int lstm_shape(nn_node *node, const nn_shape *in, nn_shape *out) {
    const nn_shape *x = &in[LSTM_X], *state = &in[LSTM_H];
    if (x->ndim != 2) return adamod__refuse("x must be a matrix");
    if (state->ndim != 2 || state->rows || state->dim[0] < 1 || state->dim[1] < 1)
        return adamod__refuse("h must be a matrix of fixed size");
    const int64_t h = state->dim[1];
    const nn_shape wanted[LSTM_INPUTS] = {[LSTM_W_IN] = {.ndim = 2, .dim = {4 * h, x->dim[1]}},
                                          [LSTM_W_STATE] = {.ndim = 2, .dim = {4 * h, h}},
                                          [LSTM_B_IN] = {.ndim = 1, .dim = {4 * h}},
                                          [LSTM_B_STATE] = {.ndim = 1, .dim = {4 * h}},
                                          [LSTM_H] = *state,
                                          [LSTM_C] = *state,
                                          [LSTM_CARRIED] = {.ndim = 1, .dim = {1}}};
    for (int i = LSTM_W_IN; i < LSTM_INPUTS; i++) {
        const bool fixed = !in[i].rows || i == LSTM_CARRIED; /* an input has a symbol, of one row here */
        if (in[i].ndim == wanted[i].ndim && fixed && memcmp(in[i].dim, wanted[i].dim, sizeof in[i].dim) == 0) continue;
        return adamod__refuse("%s has the wrong shape for x of %lld columns and %lld units", node->op->inputs[i],
                              (long long)x->dim[1], (long long)h);
    }
    out[0] = (nn_shape){.rows = x->rows, .ndim = 2, .dim = {x->dim[0], h}};
    out[1] = out[2] = *state;
    node->saved = (nn_shape){.ndim = 1, .dim = {5 * h * x->dim[0] + 2 * h * state->dim[0]}};
    node->backward_needs = 1u << LSTM_X | 1u << LSTM_W_IN | 1u << LSTM_W_STATE | NN_NEEDS_OUTPUT;
    return nn_dropout_check(node);
}

void nn_lstm_begin(const nn_call *c, const lstm_view *v) {
    const bool carried = *(const int32_t *)c->input[LSTM_CARRIED].data;
    const size_t bytes = (size_t)(v->batch * v->h) * sizeof(float);
    float *const to[] = {v->h0, v->c0};
    for (int i = 0; i < 2; i++) {
        if (carried) memcpy(to[i], c->input[LSTM_H + i].data, bytes);
        else memset(to[i], 0, bytes);
    }
}

void nn_lstm_end(const nn_call *c, const lstm_view *v) {
    const size_t bytes = (size_t)(v->batch * v->h) * sizeof(float);
    memcpy(c->output[1].data, nn_lstm_y_before(v, v->steps), bytes);
    memcpy(c->output[2].data, nn_lstm_c_before(v, v->steps), bytes);
}

/* ---- reference kernels ---- */

static double sigmoid(double z) { return 1 / (1 + exp(-z)); }

/* The input of gate `gate` in row `row`, before the activation. */
static double lstm_sum(const nn_call *c, const lstm_view *v, int64_t row, int64_t gate) {
    const float *x = (const float *)c->input[LSTM_X].data + row * v->in;
    const float *w = (const float *)c->input[LSTM_W_IN].data + gate * v->in;
    const float *before = nn_lstm_y_before(v, row / v->batch) + row % v->batch * v->h;
    double sum = (double)((const float *)c->input[LSTM_B_IN].data)[gate] +
                 (double)((const float *)c->input[LSTM_B_STATE].data)[gate];
    for (int64_t e = 0; e < v->in; e++) sum += (double)x[e] * (double)w[e];
    for (int64_t e = 0; e < v->h; e++)
        sum += (double)before[e] * nn_dropped(c, c->input[LSTM_W_STATE].data, gate * v->h + e);
    return sum;
}

static void lstm_forward(const nn_call *c) {
    const lstm_view v = nn_lstm_view(c);
    const int64_t h = v.h;
    float *y = c->output[0].data;
    nn_lstm_begin(c, &v);
    for (int64_t row = 0; row < v.steps * v.batch; row++) {
        const float *before = nn_lstm_c_before(&v, row / v.batch) + row % v.batch * h;
        float *gates = v.gates + row * 4 * h;
        for (int64_t j = 0; j < h; j++) {
            const double i = sigmoid(lstm_sum(c, &v, row, j)), f = sigmoid(lstm_sum(c, &v, row, h + j));
            const double g = tanh(lstm_sum(c, &v, row, 2 * h + j)), o = sigmoid(lstm_sum(c, &v, row, 3 * h + j));
            const double cell = f * (double)before[j] + i * g;
            gates[j] = (float)i, gates[h + j] = (float)f, gates[2 * h + j] = (float)g, gates[3 * h + j] = (float)o;
            v.cells[row * h + j] = (float)cell;
            y[row * h + j] = (float)(o * tanh(cell));
        }
    }
    nn_lstm_end(c, &v);
}

/* The gradients of a row's gates before their activations, [4 h]; dc is the gradient of its sequence's cells. */
static void lstm_row_grad(const nn_call *c, const lstm_view *v, int64_t row, double *sums, double *dc) {
    const int64_t h = v->h;
    const float *gates = v->gates + row * 4 * h;
    const float *before = nn_lstm_c_before(v, row / v->batch) + row % v->batch * h;
    double *own = sums + row * 4 * h, *next = own + v->batch * 4 * h;
    for (int64_t j = 0; j < h; j++) {
        const double i = gates[j], f = gates[h + j], g = gates[2 * h + j], o = gates[3 * h + j];
        const double t = tanh((double)v->cells[row * h + j]);
        double dy = c->grad->output[0][row * h + j];
        for (int64_t k = 0; row / v->batch + 1 < v->steps && k < 4 * h; k++)
            dy += next[k] * nn_dropped(c, c->input[LSTM_W_STATE].data, k * h + j);
        const double d = dc[j] + dy * o * (1 - t * t);
        own[j] = d * g * i * (1 - i);
        own[h + j] = d * (double)before[j] * f * (1 - f);
        own[2 * h + j] = d * i * (1 - g * g);
        own[3 * h + j] = dy * t * o * (1 - o);
        dc[j] = d * f;
    }
}

/* dW = the sum over rows of the gates' gradients times their input; the state's weights only where dropout keeps
 * them. */
static void lstm_weight_grad(const nn_call *c, const lstm_view *v, const double *sums, int which) {
    const int64_t cols = which == LSTM_W_IN ? v->in : v->h;
    float *dw = c->grad->input[which];
    for (int64_t k = 0; dw && k < 4 * v->h; k++) {
        for (int64_t e = 0; e < cols; e++) {
            double sum = 0;
            for (int64_t row = 0; row < v->steps * v->batch; row++) {
                const float *with = which == LSTM_W_IN ? (const float *)c->input[LSTM_X].data + row * v->in
                                                       : nn_lstm_y_before(v, row / v->batch) + row % v->batch * v->h;
                sum += sums[row * 4 * v->h + k] * (double)with[e];
            }
            if (which == LSTM_W_STATE) sum *= nn_dropout_factor(c, k * cols + e);
            dw[k * cols + e] = (float)((c->grad->accumulate[which] ? (double)dw[k * cols + e] : 0) + sum);
        }
    }
}

static void lstm_bias_grad(const nn_call *c, const lstm_view *v, const double *sums, int which) {
    float *db = c->grad->input[which];
    for (int64_t k = 0; db && k < 4 * v->h; k++) {
        double sum = c->grad->accumulate[which] ? (double)db[k] : 0;
        for (int64_t row = 0; row < v->steps * v->batch; row++) sum += sums[row * 4 * v->h + k];
        db[k] = (float)sum;
    }
}

static void lstm_x_grad(const nn_call *c, const lstm_view *v, const double *sums) {
    const float *w = c->input[LSTM_W_IN].data;
    float *dx = c->grad->input[LSTM_X];
    for (int64_t row = 0; dx && row < v->steps * v->batch; row++) {
        for (int64_t e = 0; e < v->in; e++) {
            double sum = c->grad->accumulate[LSTM_X] ? (double)dx[row * v->in + e] : 0;
            for (int64_t k = 0; k < 4 * v->h; k++) sum += sums[row * 4 * v->h + k] * (double)w[k * v->in + e];
            dx[row * v->in + e] = (float)sum;
        }
    }
}

static void lstm_backward(const nn_call *c) {
    const lstm_view v = nn_lstm_view(c);
    double *dc = (double *)(void *)c->workspace, *sums = dc + v.batch * v.h;
    memset(dc, 0, (size_t)(v.batch * v.h) * sizeof *dc);
    for (int64_t row = v.steps * v.batch - 1; row >= 0; row--)
        lstm_row_grad(c, &v, row, sums, dc + row % v.batch * v.h);
    lstm_x_grad(c, &v, sums);
    lstm_weight_grad(c, &v, sums, LSTM_W_IN);
    lstm_weight_grad(c, &v, sums, LSTM_W_STATE);
    lstm_bias_grad(c, &v, sums, LSTM_B_IN);
    lstm_bias_grad(c, &v, sums, LSTM_B_STATE);
}

static size_t lstm_workspace(const nn_call *c) {
    const lstm_view v = nn_lstm_view(c);
    return 2 * (size_t)((v.batch + 4 * c->input[LSTM_X].rows) * v.h);
}

static double lstm_flops(const nn_node *node, const nn_shape *in) {
    (void)node;
    return 2. * (double)in[LSTM_X].dim[0] * 4 * (double)in[LSTM_H].dim[1] *
           (double)(in[LSTM_X].dim[1] + in[LSTM_H].dim[1]);
}

const nn_op nn_op_lstm = {
    .name = "lstm",
    .inputs = {"x", "W_in", "W_state", "b_in", "b_state", "h", "c", "carried"},
    .indices = 1u << LSTM_CARRIED,
    .attributes_size = sizeof(nn_lstm_attributes),
    .shape = lstm_shape,
    .biases = 1u << LSTM_B_IN | 1u << LSTM_B_STATE,
    .ref = {.forward = lstm_forward, .backward = lstm_backward, .workspace = lstm_workspace},
    .flops = lstm_flops,
    .matrices = 2,
    .aliases = {0, 1 + LSTM_H, 1 + LSTM_C},
    .full_inputs = 1u << LSTM_B_IN | 1u << LSTM_B_STATE | 1u << LSTM_H | 1u << LSTM_C,
};

nn_value nn_lstm(nn_graph *g, nn_value x, nn_value w_in, nn_value w_state, nn_value b_in, nn_value b_state, nn_value h,
                 nn_value c, nn_value carried, double dropout) {
    return nn_add_node(g, &nn_op_lstm, LSTM_INPUTS, (nn_value[]){x, w_in, w_state, b_in, b_state, h, c, carried},
                       &(nn_lstm_attributes){.dropout = dropout});
}
