/* Common to the LSTM's kernels: its inputs by name, and the layout of what forward saves. */
#pragma once

#include "nn/op.h"

enum { LSTM_X, LSTM_W_IN, LSTM_W_STATE, LSTM_B_IN, LSTM_B_STATE, LSTM_H, LSTM_C, LSTM_CARRIED, LSTM_INPUTS };

typedef struct lstm_view {
    int64_t steps, batch, in, h; /* time steps of this run, sequences, columns of x, units */
    /* Saved: the state before the first step [batch, h], then of each row the gates i, f, g, o [rows, 4 h], after their
     * activations, and the cells [rows, h]. */
    float *h0, *c0, *gates, *cells;
    const float *y; /* [rows, h] */
} lstm_view;

static inline lstm_view nn_lstm_view(const nn_call *c) {
    lstm_view v;
    v.batch = c->input[LSTM_H].rows;
    v.in = c->input[LSTM_X].cols;
    v.h = c->input[LSTM_H].cols;
    v.steps = c->input[LSTM_X].rows / v.batch;
    v.h0 = c->saved;
    v.c0 = v.h0 + v.batch * v.h;
    v.gates = v.c0 + v.batch * v.h;
    v.cells = v.gates + v.steps * v.batch * 4 * v.h;
    v.y = (const float *)c->output[0].data;
    return v;
}

/* The outputs and the cells before time step t. */
static inline const float *nn_lstm_y_before(const lstm_view *v, int64_t t) {
    return t ? v->y + (t - 1) * v->batch * v->h : v->h0;
}
static inline const float *nn_lstm_c_before(const lstm_view *v, int64_t t) {
    return t ? v->cells + (t - 1) * v->batch * v->h : v->c0;
}

/* Before the first step: the state as the last run left it, or zeros, into saved. */
void nn_lstm_begin(const nn_call *c, const lstm_view *v);
/* After the last: outputs and cells of that step into the state. */
void nn_lstm_end(const nn_call *c, const lstm_view *v);
