/* lstm: what x adds to the gates of a whole sequence is one product, and so are the gradients of x and of weights. Only the
 * products with the state go step by step. */
#include "nn/ops/lstm_view.h"
#include "nn/backend/cpu/cpu.h"
#include "nn/backend/cpu/gemm.h"

#include <math.h>
#include <string.h>

/* Units of one task: some microseconds of exponentials. */
enum { LSTM_CHUNK = 512 };

static float sigmoid(float z) { return 1 / (1 + expf(-z)); }

/* ---- weights of the state after dropout ---- */

typedef struct drop_work {
    nn_drop drop;
    int64_t n;
    const float *from;
    float *to;
    bool add; /* to what is there */
} drop_work;

static void drop_task(void *context, int64_t i) {
    const drop_work *w = context;
    const int64_t first = i * NN_CHUNK, n = w->n - first < NN_CHUNK ? w->n - first : NN_CHUNK;
    nn_cpu_add_dropped(&w->drop, first, n, w->add ? w->to : NULL, w->from, w->to);
}

static void drop_weights(const nn_call *c, int64_t n, const float *from, float *to, bool add) {
    drop_work w = {nn_cpu_drop(c), n, from, to, add};
    nn_parallel(c->pool, nn_parts(n, NN_CHUNK), drop_task, &w);
}

static const float *dropped_weights(const nn_call *c, const lstm_view *v, float *room) {
    const float *w = c->input[LSTM_W_STATE].data;
    if (!nn_cpu_drop(c).drops) return w;
    drop_weights(c, 4 * v->h * v->h, w, room, false);
    return room;
}

/* ---- forward ---- */

typedef struct step_work {
    const nn_call *c;
    const lstm_view *v;
    int64_t t;
    float *dgates, *dy, *dc; /* backward: of all rows; of the state that the next step read, and of its cells */
} step_work;

static void forward_task(void *context, int64_t part) {
    const step_work *w = context;
    const lstm_view *v = w->v;
    const int64_t h = v->h, n = v->batch * h, first = part * LSTM_CHUNK;
    const int64_t last = first + LSTM_CHUNK < n ? first + LSTM_CHUNK : n;
    const float *b_in = w->c->input[LSTM_B_IN].data, *b_state = w->c->input[LSTM_B_STATE].data;
    const float *before = nn_lstm_c_before(v, w->t);
    float *y = (float *)w->c->output[0].data + w->t * n, *cells = v->cells + w->t * n;
    for (int64_t k = first; k < last; k++) {
        const int64_t j = k % h;
        float *gates = v->gates + (w->t * v->batch + k / h) * 4 * h + j;
        const float i = sigmoid(gates[0] + b_in[j] + b_state[j]);
        const float f = sigmoid(gates[h] + b_in[h + j] + b_state[h + j]);
        const float g = tanhf(gates[2 * h] + b_in[2 * h + j] + b_state[2 * h + j]);
        const float o = sigmoid(gates[3 * h] + b_in[3 * h + j] + b_state[3 * h + j]);
        gates[0] = i, gates[h] = f, gates[2 * h] = g, gates[3 * h] = o;
        cells[k] = f * before[k] + i * g;
        y[k] = o * tanhf(cells[k]);
    }
}

static void lstm_forward(const nn_call *c) {
    const lstm_view v = nn_lstm_view(c);
    const int64_t rows = v.steps * v.batch, h = v.h, parts = nn_parts(v.batch * h, LSTM_CHUNK);
    const float *weights = dropped_weights(c, &v, c->workspace);
    nn_lstm_begin(c, &v);
    if (rows > 0)
        nn_gemm(c->pool, false, true, rows, 4 * h, v.in, 1, c->input[LSTM_X].data, v.in, c->input[LSTM_W_IN].data, v.in,
                0, v.gates, 4 * h);
    for (int64_t t = 0; t < v.steps; t++) {
        step_work w = {.c = c, .v = &v, .t = t};
        nn_gemm(c->pool, false, true, v.batch, 4 * h, h, 1, nn_lstm_y_before(&v, t), h, weights, h, 1,
                v.gates + t * v.batch * 4 * h, 4 * h);
        nn_parallel(c->pool, parts, forward_task, &w);
    }
    nn_lstm_end(c, &v);
}

/* ---- backward ---- */

static void backward_task(void *context, int64_t part) {
    const step_work *w = context;
    const lstm_view *v = w->v;
    const int64_t h = v->h, n = v->batch * h, first = part * LSTM_CHUNK;
    const int64_t last = first + LSTM_CHUNK < n ? first + LSTM_CHUNK : n;
    const float *before = nn_lstm_c_before(v, w->t), *cells = v->cells + w->t * n;
    const float *given = w->c->output_grad[0] + w->t * n;
    for (int64_t k = first; k < last; k++) {
        const int64_t at = (w->t * v->batch + k / h) * 4 * h + k % h;
        const float *gates = v->gates + at;
        const float i = gates[0], f = gates[h], g = gates[2 * h], o = gates[3 * h], t = tanhf(cells[k]);
        const float dy = given[k] + w->dy[k], dc = w->dc[k] + dy * o * (1 - t * t);
        float *d = w->dgates + at;
        d[0] = dc * g * i * (1 - i);
        d[h] = dc * before[k] * f * (1 - f);
        d[2 * h] = dc * i * (1 - g * g);
        d[3 * h] = dy * t * o * (1 - o);
        w->dc[k] = dc * f;
    }
}

/* The gradients of all gates before their activations, from the last step to the first. */
static void gate_grads(const nn_call *c, const lstm_view *v, float *dgates, float *dy, float *dc,
                       const float *weights) {
    const int64_t h = v->h, parts = nn_parts(v->batch * h, LSTM_CHUNK);
    memset(dy, 0, (size_t)(v->batch * h) * sizeof *dy);
    memset(dc, 0, (size_t)(v->batch * h) * sizeof *dc);
    for (int64_t t = v->steps - 1; t >= 0; t--) {
        step_work w = {c, v, t, dgates, dy, dc};
        nn_parallel(c->pool, parts, backward_task, &w);
        if (t > 0)
            nn_gemm(c->pool, false, false, v->batch, h, 4 * h, 1, dgates + t * v->batch * 4 * h, 4 * h, weights, h, 0,
                    dy, h);
    }
}

/* The first step read the state that the run began with, the others the outputs. room: [4 h, h]. */
static void state_weight_grad(const nn_call *c, const lstm_view *v, const float *dgates, float *room) {
    const int64_t h = v->h, rows = (v->steps - 1) * v->batch;
    nn_gemm(c->pool, true, false, 4 * h, h, v->batch, 1, dgates, 4 * h, v->h0, h, 0, room, h);
    if (rows > 0)
        nn_gemm(c->pool, true, false, 4 * h, h, rows, 1, dgates + v->batch * 4 * h, 4 * h, v->y, h, 1, room, h);
    drop_weights(c, 4 * h * h, room, c->input_grad[LSTM_W_STATE], c->accumulate[LSTM_W_STATE]);
}

/* Of no rows: zeros, where nothing is added to. */
static void no_grads(const nn_call *c) {
    for (int i = LSTM_W_IN; i <= LSTM_B_STATE; i++) {
        if (c->input_grad[i] && !c->accumulate[i])
            memset(c->input_grad[i], 0, (size_t)(c->input[i].rows * c->input[i].cols) * sizeof(float));
    }
}

static void lstm_backward(const nn_call *c) {
    const lstm_view v = nn_lstm_view(c);
    const int64_t rows = v.steps * v.batch, h = v.h;
    float *dy = c->workspace, *dc = dy + v.batch * h, *room = dc + v.batch * h, *dgates = room + 4 * h * h;
    if (rows == 0) {
        no_grads(c);
        return;
    }
    gate_grads(c, &v, dgates, dy, dc, dropped_weights(c, &v, room));
    if (c->input_grad[LSTM_X])
        nn_gemm(c->pool, false, false, rows, v.in, 4 * h, 1, dgates, 4 * h, c->input[LSTM_W_IN].data, v.in,
                c->accumulate[LSTM_X] ? 1 : 0, c->input_grad[LSTM_X], v.in);
    if (c->input_grad[LSTM_W_IN])
        nn_gemm(c->pool, true, false, 4 * h, v.in, rows, 1, dgates, 4 * h, c->input[LSTM_X].data, v.in,
                c->accumulate[LSTM_W_IN] ? 1 : 0, c->input_grad[LSTM_W_IN], v.in);
    if (c->input_grad[LSTM_W_STATE]) state_weight_grad(c, &v, dgates, room);
    for (int i = LSTM_B_IN; i <= LSTM_B_STATE; i++) {
        if (c->input_grad[i]) nn_cpu_sum_rows(c->pool, dgates, 4 * h, rows, 4 * h, c->input_grad[i], c->accumulate[i]);
    }
}

static size_t lstm_workspace(const nn_call *c) {
    const lstm_view v = nn_lstm_view(c);
    return (size_t)(2 * v.batch * v.h + 4 * v.h * v.h + 4 * v.h * c->input[LSTM_X].rows);
}

const nn_kernels nn_cpu_lstm = {.forward = lstm_forward, .backward = lstm_backward, .workspace = lstm_workspace};
