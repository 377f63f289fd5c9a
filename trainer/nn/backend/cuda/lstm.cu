/* An LSTM layer: see ops/lstm.c for the formulas. The input's part of all gates is one product, and so are the
 * gradients of x and of both weights; only products with the state go step by step. If the weights of the state fit
 * on the chip, all steps are one kernel (lstm_resident.h); else a step is a product by cuBLASLt, which streams them,
 * and a kernel for the rest.
 *
 * Steps are recorded for the whole capacity. Steps past the batch's last compute nothing and leave zeros. */
#include "nn/backend/cuda/drop_array.cuh"
#include "nn/backend/cuda/lstm_resident.h"
#include "nn/backend/cuda/product.h"

extern "C" {
#include "nn/ops/lstm_view.h"
}

#include <stdlib.h>

enum { THREADS = 256, SUM_ROWS = 32 };

/* ---- memory ---- */

/* Takes bytes from a block, at addresses that cuBLASLt likes. */
static void *take(char **at, size_t bytes) {
    void *p = (void *)(((uintptr_t)*at + 255) / 256 * 256);
    *at = (char *)p + bytes;
    return p;
}

static size_t size_of(const nn_call *c) { return c->input[LSTM_X].type == NN_BF16 ? sizeof(bf16) : sizeof(float); }
static bool drops(const nn_call *c) { return c->training && NN_ATTR(lstm, c)->dropout > 0; }

/* Behind what the op saves: the outputs before each step, [rows, h]. */
static size_t lstm_extra_saved(const nn_call *c) {
    return (size_t)(c->output[0].rows * c->output[0].cols) * size_of(c) / sizeof(float) + 65;
}

/* A node's plan in one direction. */
typedef struct lstm_plan {
    bool resident;               /* all steps are one kernel */
    product x, step;             /* forward: all of x, and a step's state */
    product dx, dw_in, dw_state; /* backward, with step */
} lstm_plan;

/* A direction's workspace. */
typedef struct lstm_room {
    void *exchange;    /* of resident kernels, in the products' workspace; NULL: there are none */
    void *weights;     /* after dropout [4 h, h]; NULL: there is none */
    float *dw;         /* backward: of those, in their place when steps are done */
    void *state;       /* forward: the output of the last step [batch, h] */
    float *sums;       /* forward: what it adds to the gates [batch, 4 h] */
    void *dgates;      /* backward: of all rows [rows, 4 h] */
    void *step_dgates; /* backward: of a step [batch, 4 h] */
    float *dy, *dc;    /* backward: of the state that a step's successor read, and of cells [batch, h] */
    size_t bytes;
} lstm_room;

static lstm_room room_of(const nn_call *c, char *workspace) {
    const lstm_view v = nn_lstm_view(c);
    const size_t n = (size_t)(v.batch * v.h), size = size_of(c);
    const bool resident = ((const lstm_plan *)c->prepared)->resident, backward = c->grad->output[0];
    const size_t products = PRODUCT_WORKSPACE;
    const size_t exchange = resident ? lstm_resident_bytes(v.steps, v.batch, v.h, backward) : 0;
    char *at = workspace + (exchange > products ? exchange : products);
    lstm_room r = {};
    if (resident) r.exchange = workspace;
    if (drops(c)) r.weights = take(&at, (size_t)(4 * v.h * v.h) * (backward ? sizeof(float) : size));
    if (backward) {
        r.dw = (float *)r.weights;
        r.dgates = take(&at, 4 * n * (size_t)v.steps * size);
    }
    if (backward && !resident) {
        r.step_dgates = take(&at, 4 * n * size);
        r.dy = (float *)take(&at, n * sizeof(float));
        r.dc = (float *)take(&at, n * sizeof(float));
    } else if (!resident) {
        r.state = take(&at, n * size);
        r.sums = (float *)take(&at, 4 * n * sizeof(float));
    }
    r.bytes = (size_t)(at - workspace);
    return r;
}

template <typename T> static void fill_arrays(const nn_call *c, lstm_arrays<T> *a) {
    const lstm_view v = nn_lstm_view(c);
    const lstm_room r = room_of(c, (char *)c->workspace);
    char *behind = (char *)(v.cells + v.steps * v.batch * v.h);
    *a = {(int)v.steps,
          (int)v.batch,
          (int)v.h,
          c->input[LSTM_X].live_rows,
          v.gates,
          v.cells,
          v.c0,
          (T *)take(&behind, 0),
          (const T *)(r.weights ? r.weights : c->input[LSTM_W_STATE].data)};
}

static size_t lstm_workspace(const nn_call *c) { return room_of(c, NULL).bytes / sizeof(float) + 64; }

/* ---- products ---- */

static void lstm_release(void *prepared) {
    lstm_plan *p = (lstm_plan *)prepared;
    if (!p) return;
    product *const all[] = {&p->x, &p->step, &p->dx, &p->dw_in, &p->dw_state};
    for (product *one : all) product_free(one);
    free(p);
}

static adamod_status make(product *p, const nn_call *c, bool trans_a, bool trans_b, int64_t m, int64_t n, int64_t k,
                          nn_type out) {
    const cudaDataType_t type = c->input[LSTM_X].type == NN_BF16 ? CUDA_R_16BF : CUDA_R_32F;
    const product_shape s = {trans_a,
                             trans_b,
                             m,
                             n,
                             k,
                             trans_a ? k : m,
                             trans_b ? n : k,
                             m,
                             type,
                             out == NN_BF16 ? CUDA_R_16BF : CUDA_R_32F,
                             CUBLASLT_EPILOGUE_DEFAULT,
                             1};
    return product_make(p, &s, c->device->precision, c->training);
}

static adamod_status prepare_forward(const nn_call *c, const lstm_view *v, lstm_plan *p) {
    const int64_t rows = v->steps * v->batch, h = v->h;
    adamod_status status = make(&p->x, c, true, false, 4 * h, rows, v->in, NN_F32);
    if (!status && !p->resident) status = make(&p->step, c, true, false, 4 * h, v->batch, h, NN_F32);
    return status;
}

static adamod_status prepare_backward(const nn_call *c, const lstm_view *v, lstm_plan *p) {
    const int64_t rows = v->steps * v->batch, h = v->h;
    adamod_status status = ADAMOD_OK;
    if (!p->resident) status = make(&p->step, c, false, false, h, v->batch, 4 * h, NN_F32);
    if (!status && c->grad->input[LSTM_X])
        status = make(&p->dx, c, false, false, v->in, rows, 4 * h, c->grad->type[LSTM_X]);
    if (!status && c->grad->input[LSTM_W_IN]) status = make(&p->dw_in, c, false, true, v->in, 4 * h, rows, NN_F32);
    if (!status && c->grad->input[LSTM_W_STATE]) status = make(&p->dw_state, c, false, true, h, 4 * h, rows, NN_F32);
    return status;
}

static adamod_status lstm_prepare(const nn_call *c, void **prepared) {
    const lstm_view v = nn_lstm_view(c);
    adamod_status status = product_library();
    if (status) return status;
    lstm_plan *p = (lstm_plan *)calloc(1, sizeof *p);
    if (!p) return nn_cuda_fail(ADAMOD_ERROR_MEMORY, "out of memory for an lstm op");
    p->resident = c->input[LSTM_X].type == NN_BF16 && v.steps > 0 && lstm_resident_fits(v.steps, v.batch, v.h);
    if (v.steps > 0) status = c->grad->output[0] ? prepare_backward(c, &v, p) : prepare_forward(c, &v, p);
    if (status) lstm_release(p);
    else *prepared = p;
    return status;
}

/* ---- dropout of weights ---- */

/* Dropped weights of the state, for all steps of a direction. Forward and backward draw the same ones. */
template <typename T> static void drop_weights(const nn_call *c, const lstm_arrays<T> &a) {
    if (!drops(c)) return;
    drop_array<T, T>(c, (const T *)c->input[LSTM_W_STATE].data, {(T *)a.weights, false}, 4LL * a.h * a.h);
}

/* ---- forward ---- */

__device__ static inline float sigmoid(float z) { return 1 / (1 + expf(-z)); }

/* The state that a run begins with is what it ends with, too, until a step replaces it. */
template <typename T> __global__ static void begin_kernel(lstm_forward_arrays<T> a, T *state) {
    const int i = (int)(blockIdx.x * THREADS + threadIdx.x);
    if (i >= a.batch * a.h) return;
    const float h = *a.carried ? a.state_h[i] : 0, c = *a.carried ? a.state_c[i] : 0;
    state[i] = narrow<T>(h);
    if (a.steps > 0) a.before[i] = narrow<T>(h);
    a.c0[i] = c;
    a.state_h[i] = h;
    a.state_c[i] = c;
}

/* Step t, given what the state adds to the gates. */
template <typename T>
__global__ static void forward_kernel(lstm_forward_arrays<T> a, int t, const float *sums, T *state) {
    const int i = (int)(blockIdx.x * THREADS + threadIdx.x), n = a.batch * a.h, live = lstm_live_steps(a);
    if (i >= n) return;
    const int64_t at = (int64_t)t * n + i;
    T y = narrow<T>(0);
    if (t < live) {
        const int b = i / a.h, j = i % a.h;
        float *gates = a.gates + ((int64_t)t * a.batch + b) * 4 * a.h + j;
        float z[4];
        for (int k = 0; k < 4; k++) {
            const int gate = k * a.h + j;
            z[k] = gates[k * a.h] + sums[b * 4 * a.h + gate] + a.b_in[gate] + a.b_state[gate];
        }
        const float in = sigmoid(z[0]), forget = sigmoid(z[1]), g = tanhf(z[2]), out = sigmoid(z[3]);
        const float c = forget * (t ? a.cells[at - n] : a.c0[i]) + in * g;
        gates[0] = in, gates[a.h] = forget, gates[2 * a.h] = g, gates[3 * a.h] = out;
        a.cells[at] = c;
        y = narrow<T>(out * tanhf(c));
        state[i] = y;
        if (t == live - 1) a.state_h[i] = widen(y), a.state_c[i] = c;
    }
    a.y[at] = y;
    if (t + 1 < a.steps) a.before[at + n] = y;
}

template <typename T> static lstm_forward_arrays<T> forward_arrays(const nn_call *c) {
    lstm_forward_arrays<T> a;
    fill_arrays<T>(c, &a);
    a.b_in = (const float *)c->input[LSTM_B_IN].data;
    a.b_state = (const float *)c->input[LSTM_B_STATE].data;
    a.carried = (const int32_t *)c->input[LSTM_CARRIED].data;
    a.state_h = (float *)c->output[1].data;
    a.state_c = (float *)c->output[2].data;
    a.y = (T *)c->output[0].data;
    return a;
}

template <typename T> static void step_forward(const nn_call *c, const lstm_forward_arrays<T> &a) {
    const lstm_plan *p = (const lstm_plan *)c->prepared;
    const lstm_room r = room_of(c, (char *)c->workspace);
    const unsigned blocks = (unsigned)parts(a.batch * a.h, THREADS);
    begin_kernel<T><<<blocks, THREADS, 0, stream_of(c)>>>(a, (T *)r.state);
    for (int t = 0; t < a.steps; t++) {
        product_run(c, &p->step, a.weights, r.state, r.sums, false, NULL);
        forward_kernel<T><<<blocks, THREADS, 0, stream_of(c)>>>(a, t, r.sums, (T *)r.state);
    }
}

static void run_steps(const nn_call *c, const lstm_forward_arrays<float> &a) { step_forward<float>(c, a); }
static void run_steps(const nn_call *c, const lstm_forward_arrays<bf16> &a) {
    void *exchange = room_of(c, (char *)c->workspace).exchange;
    if (exchange) lstm_resident_forward(stream_of(c), a, exchange);
    else step_forward<bf16>(c, a);
}

template <typename T> static void forward(const nn_call *c) {
    const lstm_plan *p = (const lstm_plan *)c->prepared;
    const lstm_forward_arrays<T> a = forward_arrays<T>(c);
    if (a.steps > 0) {
        product_run(c, &p->x, c->input[LSTM_W_IN].data, c->input[LSTM_X].data, a.gates, false, NULL);
        drop_weights<T>(c, a);
    }
    run_steps(c, a);
}

/* ---- backward ---- */

/* Step t, given the gradients that the step behind it has left. */
template <typename T>
__global__ static void backward_kernel(lstm_backward_arrays<T> a, int t, const float *dy, float *dc, T *step_dgates) {
    const int i = (int)(blockIdx.x * THREADS + threadIdx.x), n = a.batch * a.h, live = lstm_live_steps(a);
    if (i >= n) return;
    const int b = i / a.h, j = i % a.h;
    const int64_t at = (int64_t)t * n + i, gate = ((int64_t)t * a.batch + b) * 4 * a.h + j;
    float d[4] = {0, 0, 0, 0};
    if (t < live) {
        const bool last = t == live - 1;
        const float *gates = a.gates + gate;
        const float in = gates[0], forget = gates[a.h], g = gates[2 * a.h], out = gates[3 * a.h],
                    tanh_c = tanhf(a.cells[at]);
        const float y = widen(a.dy[at]) + (last ? 0 : dy[i]),
                    cell = (last ? 0 : dc[i]) + y * out * (1 - tanh_c * tanh_c);
        d[0] = cell * g * in * (1 - in);
        d[1] = cell * (t ? a.cells[at - n] : a.c0[i]) * forget * (1 - forget);
        d[2] = cell * in * (1 - g * g);
        d[3] = y * tanh_c * out * (1 - out);
        dc[i] = cell * forget;
    }
    for (int k = 0; k < 4; k++) {
        a.dgates[gate + k * a.h] = narrow<T>(d[k]);
        step_dgates[(b * 4 + k) * a.h + j] = narrow<T>(d[k]);
    }
}

/* Sums of SUM_ROWS rows of dgates, which both biases have. */
template <typename T> __global__ static void sums_kernel(const T *dgates, int64_t rows, int64_t cols, float *partials) {
    const int64_t j = (int64_t)blockIdx.x * THREADS + threadIdx.x, first = (int64_t)blockIdx.y * SUM_ROWS;
    if (j >= cols) return;
    float sum = 0;
    for (int64_t row = first; row < first + SUM_ROWS && row < rows; row++) sum += widen(dgates[row * cols + j]);
    partials[blockIdx.y * cols + j] = sum;
}

static bool wants_biases(const nn_call *c) { return c->grad->input[LSTM_B_IN] || c->grad->input[LSTM_B_STATE]; }

static size_t lstm_partials(const nn_call *c) {
    return wants_biases(c) ? (size_t)(parts(c->output[0].rows, SUM_ROWS) * 4 * c->output[0].cols) : 0;
}

template <typename T> static void bias_grads(const nn_call *c, const T *dgates) {
    const int64_t rows = c->output[0].rows, cols = 4 * c->output[0].cols, n = parts(rows, SUM_ROWS);
    if (!wants_biases(c)) return;
    if (n > 0)
        sums_kernel<T><<<dim3((unsigned)parts(cols, THREADS), (unsigned)n), THREADS, 0, stream_of(c)>>>(
            dgates, rows, cols, c->grad->partials);
    for (int i = LSTM_B_IN; i <= LSTM_B_STATE; i++) {
        const nn_sum sum = {c->grad->partials, cols, n, cols, c->grad->input[i], c->grad->accumulate[i]};
        nn_cuda_sum(c, &sum);
    }
}

template <typename T> static void step_backward(const nn_call *c, const lstm_backward_arrays<T> &a) {
    const lstm_plan *p = (const lstm_plan *)c->prepared;
    const lstm_room r = room_of(c, (char *)c->workspace);
    const unsigned blocks = (unsigned)parts(a.batch * a.h, THREADS);
    for (int t = a.steps - 1; t >= 0; t--) {
        backward_kernel<T><<<blocks, THREADS, 0, stream_of(c)>>>(a, t, r.dy, r.dc, (T *)r.step_dgates);
        if (t > 0) product_run(c, &p->step, a.weights, r.step_dgates, r.dy, false, NULL);
    }
    bias_grads<T>(c, a.dgates);
}

static void run_steps(const nn_call *c, const lstm_backward_arrays<float> &a) { step_backward<float>(c, a); }
static void run_steps(const nn_call *c, const lstm_backward_arrays<bf16> &a) {
    void *exchange = room_of(c, (char *)c->workspace).exchange;
    if (exchange)
        lstm_resident_backward(stream_of(c), a, exchange, target_of<float>(c, LSTM_B_IN),
                               target_of<float>(c, LSTM_B_STATE));
    else step_backward<bf16>(c, a);
}

template <typename T> static void weight_grads(const nn_call *c, const lstm_arrays<T> &a, const lstm_room *r) {
    const lstm_plan *p = (const lstm_plan *)c->prepared;
    float *dw = c->grad->input[LSTM_W_STATE];
    if (c->grad->input[LSTM_W_IN])
        product_run(c, &p->dw_in, c->input[LSTM_X].data, r->dgates, c->grad->input[LSTM_W_IN],
                    c->grad->accumulate[LSTM_W_IN], NULL);
    if (!dw) return;
    if (!drops(c)) {
        product_run(c, &p->dw_state, a.before, r->dgates, dw, c->grad->accumulate[LSTM_W_STATE], NULL);
        return;
    }
    product_run(c, &p->dw_state, a.before, r->dgates, r->dw, false, NULL);
    drop_array<float, float>(c, r->dw, target_of<float>(c, LSTM_W_STATE), 4LL * a.h * a.h);
}

/* Gradients of a run without rows: zeros, unless they accumulate. */
static void no_grads(const nn_call *c) {
    for (int i = LSTM_W_IN; i <= LSTM_B_STATE; i++) {
        if (c->grad->input[i] && !c->grad->accumulate[i])
            cudaMemsetAsync(c->grad->input[i], 0, (size_t)(c->input[i].rows * c->input[i].cols) * sizeof(float),
                            stream_of(c));
    }
}

template <typename T> static void backward(const nn_call *c) {
    const lstm_plan *p = (const lstm_plan *)c->prepared;
    const lstm_room r = room_of(c, (char *)c->workspace);
    lstm_backward_arrays<T> a;
    fill_arrays<T>(c, &a);
    a.dy = (const T *)c->grad->output[0];
    a.dgates = (T *)r.dgates;
    if (a.steps == 0) {
        no_grads(c);
        return;
    }
    drop_weights<T>(c, a);
    run_steps(c, a);
    if (c->grad->input[LSTM_X])
        product_run(c, &p->dx, c->input[LSTM_W_IN].data, r.dgates, c->grad->input[LSTM_X], c->grad->accumulate[LSTM_X],
                    NULL);
    weight_grads<T>(c, a, &r);
}

static bool lstm_remark(const nn_call *c, char *out, size_t size) {
    const lstm_view v = nn_lstm_view(c);
    if (v.steps == 0 || ((const lstm_plan *)c->prepared)->resident) return false;
    lstm_resident_refuse(c->input[LSTM_X].type == NN_BF16, v.batch, v.h, out, size);
    return true;
}

static bool lstm_note(nn_note *out) {
    *out = {.op = "lstm", .title = "LSTM"};
    lstm_resident_describe(out->text, sizeof out->text);
    return true;
}

extern "C" const nn_kernels nn_cuda_lstm = {.forward = NN_BY_TYPE(input[LSTM_X], forward),
                                            .backward = NN_BY_TYPE(input[LSTM_X], backward),
                                            .workspace = lstm_workspace,
                                            .prepare = lstm_prepare,
                                            .release = lstm_release,
                                            .extra_saved = lstm_extra_saved,
                                            .partials = lstm_partials,
                                            .remark = lstm_remark,
                                            .note = lstm_note};
