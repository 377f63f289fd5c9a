/* lstm: the part of x in the gates of a whole sequence is one product, and so are the gradients of x and of weights.
 * Only the products with the state go step by step. Their weights are copied once a sequence, after dropout, into
 * panels of GROUP columns, [k][GROUP]. Each step reads the panels from front to back, and computes gates and cells
 * while the sums are in the cache. The state, the other factor, is kept in columns, too. In mixed precision a row of
 * panels and of columns is pairs of bf16, of two units: half the bytes, which come from memory in each step. */
#include "nn/ops/lstm_view.h"
#include "nn/backend/cpu/activation.h"
#include "nn/backend/cpu/cpu.h"
#include "nn/backend/cpu/gemm.h"
#include "nn/backend/cpu/pairs.h"
#include "nn/backend/cpu/vector.h"

#include <string.h>

enum {
    GROUP = NN_LANES,  /* units of a task */
    TILE_ROWS = 64,    /* sequences whose sums are on the stack at a time */
    PACKED = 128,      /* numbers of a row that are dropped and copied at a time, */
    PACKED_ROWS = 256, /* ... and rows of a task */
    TURNED = 64,       /* rows and columns of a block that is transposed */
};

static int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }

/* ---- panels ---- */

typedef struct sequence {
    const nn_call *c;
    lstm_view v;
    const nn_vector *x;
    nn_drop drop;
    nn_pairs_product *pairs; /* mixed precision; else NULL */
    int64_t per, depth;      /* units in a row of panels or columns, 1 or 2; number of rows for all units */
    float *panels;           /* of dropped weights */
    float *columns[2];       /* y of the last step and of this one (backward: dgates), tile by tile, [depth][rows] */
    float *dgates, *dc;      /* backward: of all gates before their activations; of the cells that the next step read */
    float *before;           /* backward: the state that each row read */
    float *narrow;           /* mixed precision: room for rounded factors of products of all rows */
    int64_t t;               /* this step */
} sequence;

/* Moves to the next step (by 1) or to the previous one (by -1). */
static void go_on(sequence *s, int by) {
    float *const read = s->columns[0];
    s->columns[0] = s->columns[1];
    s->columns[1] = read;
    s->t += by;
}

/* Writes weights first .. first + n - 1 of the state, after dropout. */
static void dropped(const sequence *s, int64_t first, int64_t n, float *to) {
    const float *w = (const float *)s->c->input[LSTM_W_STATE].data + first;
    float factor[PACKED];
    if (s->drop.drops) nn_cpu_mask(s->drop.key, (uint64_t)first, n, s->drop.threshold, s->drop.scale, factor);
    nn_cpu_multiply_add(n, NULL, s->drop.drops ? factor : NULL, w, to);
}

/* to = rows of numbers, [n][width], as rows of panels or columns: pairs of them. */
static void pack_pairs(int64_t n, int64_t width, const float *rows, float *to) {
    for (int64_t i = 0; i < n; i += 2, rows += 2 * width, to += width)
        nn_pairs_pack(width, rows, i + 1 < n ? rows + width : NULL, (uint32_t *)(void *)to);
}

/* Forward: panel 4 g + q has gate q of group g, [depth][GROUP]. */
static void pack_forward(void *context, int64_t panel) {
    const sequence *s = context;
    const int64_t h = s->v.h, unit = panel / 4 * GROUP, n = least(GROUP, h - unit), first = panel % 4 * h + unit;
    float rows[GROUP * PACKED] = {0}, turned[PACKED * GROUP]; /* zeros for units past the end */
    for (int64_t k = 0; k < h; k += PACKED) {
        const int64_t some = least(PACKED, h - k);
        float *to = s->panels + (panel * s->depth + k / s->per) * GROUP;
        for (int64_t i = 0; i < n; i++) dropped(s, (first + i) * h + k, some, rows + i * PACKED);
        s->x->transpose(GROUP, some, rows, PACKED, s->pairs ? turned : to, GROUP);
        if (s->pairs) pack_pairs(some, GROUP, turned, to);
    }
}

/* Backward: panel g has the units of group g as columns, [4 depth][GROUP]. A task packs some rows of all panels. */
static void pack_backward_pairs(void *context, int64_t task) {
    const sequence *s = context;
    const int64_t h = s->v.h, first = task * PACKED_ROWS;
    for (int64_t k = first; k < least(first + PACKED_ROWS, 4 * s->depth); k++) {
        const int64_t unit_of_k = k % s->depth * 2, row = k / s->depth * h + unit_of_k;
        for (int64_t unit = 0; unit < h; unit += PACKED) {
            float rows[2][PACKED + GROUP] = {{0}};
            const int64_t some = least(PACKED, h - unit);
            for (int64_t i = 0; i < least(2, h - unit_of_k); i++) dropped(s, (row + i) * h + unit, some, rows[i]);
            for (int64_t i = 0; i < some; i += GROUP) {
                float *to = s->panels + (unit + i) * 4 * s->depth + k * GROUP;
                nn_pairs_pack(GROUP, rows[0] + i, rows[1] + i, (uint32_t *)(void *)to);
            }
        }
    }
}

static void pack_backward(void *context, int64_t task) {
    const sequence *s = context;
    const int64_t h = s->v.h, first = task * PACKED_ROWS;
    for (int64_t k = first; k < least(first + PACKED_ROWS, 4 * h); k++) {
        for (int64_t unit = 0; unit < h; unit += PACKED) {
            float row[PACKED + GROUP] = {0};
            const int64_t some = least(PACKED, h - unit);
            dropped(s, k * h + unit, some, row);
            for (int64_t i = 0; i < some; i += GROUP)
                memcpy(s->panels + ((unit + i) * 4 * h) + k * GROUP, row + i, GROUP * sizeof *row);
        }
    }
}

/* c = the product of a tile of columns, of k rows, and a panel. */
static void multiply(const sequence *s, int64_t rows, int64_t k, const float *columns, const float *panel, float *c) {
    if (s->pairs) s->pairs(rows, k, (const void *)columns, rows, (const void *)panel, c);
    else s->x->thin(rows, k, columns, rows, panel, c);
}

/* Transposes n units of some rows into columns: at most GROUP units, the first of them even. */
static void turn(const sequence *s, int64_t rows, int64_t n, const float *from, int64_t stride, float *to) {
    float turned[GROUP * TILE_ROWS];
    s->x->transpose(rows, n, from, stride, s->pairs ? turned : to, rows);
    if (s->pairs) pack_pairs(n, rows, turned, to);
}

/* Floats for the panels of either direction, or for the gradients of the weights before dropout, [4 h, h]. */
static int64_t panels_size(int64_t h) { return 4 * nn_parts(h, GROUP) * GROUP * h; }

/* ---- forward ---- */

/* Some units of a time step: arrays at the first of them in the first sequence. */
typedef struct units {
    int64_t h;
    const float *b_in, *b_state, *before;
    float *gates, *cells, *y;
} units;

/* sums: [4][TILE_ROWS][GROUP], what the state adds to the gates. */
NN_INLINE void finish_forward(int64_t n, const units *u, int64_t first, int64_t rows, const float *sums) {
    for (int64_t row = first; row < first + rows; row++, sums += GROUP) {
        float *gates = u->gates + row * 4 * u->h, z[4][GROUP], cell[GROUP], y[GROUP];
        const float *before = u->before + row * u->h;
        for (int64_t q = 0; q < 4; q++) {
            const float *b_in = u->b_in + q * u->h, *b_state = u->b_state + q * u->h;
            for (int64_t j = 0; j < n; j++)
                z[q][j] = gates[q * u->h + j] + sums[q * TILE_ROWS * GROUP + j] + b_in[j] + b_state[j];
        }
        for (int64_t j = 0; j < n; j++) {
            z[0][j] = nn_sigmoid(z[0][j]);
            z[1][j] = nn_sigmoid(z[1][j]);
            z[2][j] = nn_tanh(z[2][j]);
            z[3][j] = nn_sigmoid(z[3][j]);
            cell[j] = z[1][j] * before[j] + z[0][j] * z[2][j];
            y[j] = z[3][j] * nn_tanh(cell[j]);
        }
        for (int64_t q = 0; q < 4; q++) memcpy(gates + q * u->h, z[q], (size_t)n * sizeof(float));
        memcpy(u->cells + row * u->h, cell, (size_t)n * sizeof(float));
        memcpy(u->y + row * u->h, y, (size_t)n * sizeof(float));
    }
}

/* A whole group has loops of a constant number of turns. */
NN_CLONES
static void finish_units(int64_t n, const units *u, int64_t first, int64_t rows, const float *sums) {
    if (n == GROUP) finish_forward(GROUP, u, first, rows, sums);
    else finish_forward(n, u, first, rows, sums);
}

static void forward_task(void *context, int64_t task) {
    const sequence *s = context;
    const lstm_view *v = &s->v;
    const int64_t h = v->h, unit = task * GROUP, n = least(GROUP, h - unit), step = s->t * v->batch;
    const units u = {h,
                     (const float *)s->c->input[LSTM_B_IN].data + unit,
                     (const float *)s->c->input[LSTM_B_STATE].data + unit,
                     nn_lstm_c_before(v, s->t) + unit,
                     v->gates + step * 4 * h + unit,
                     v->cells + step * h + unit,
                     (float *)s->c->output[0].data + step * h + unit};
    _Alignas(64) float sums[4 * TILE_ROWS * GROUP];
    for (int64_t row = 0; row < v->batch; row += TILE_ROWS) {
        const int64_t rows = least(TILE_ROWS, v->batch - row);
        for (int64_t q = 0; q < 4; q++)
            multiply(s, rows, s->depth, s->columns[0] + row * s->depth, s->panels + (4 * task + q) * s->depth * GROUP,
                     sums + q * TILE_ROWS * GROUP);
        finish_units(n, &u, row, rows, sums);
        turn(s, rows, n, u.y + row * h, h, s->columns[1] + row * s->depth + unit / s->per * rows);
    }
}

/* Writes W_in as [in, 4 h], which libraries multiply faster, to the memory of the panels. A task transposes some rows. */
static void turn_task(void *context, int64_t task) {
    const sequence *s = context;
    const int64_t in = s->v.in, gates = 4 * s->v.h, first = task * TURNED, n = least(TURNED, gates - first);
    const float *from = (const float *)s->c->input[LSTM_W_IN].data + first * in;
    float block[TURNED * TURNED];
    for (int64_t k = 0; k < in; k += TURNED) {
        const int64_t some = least(TURNED, in - k);
        s->x->transpose(n, some, from + k, in, block, TURNED);
        for (int64_t i = 0; i < some; i++)
            memcpy(s->panels + (k + i) * gates + first, block + i * TURNED, (size_t)n * sizeof *block);
    }
}

static void input_gates(sequence *s) {
    const nn_call *c = s->c;
    const int64_t rows = s->v.steps * s->v.batch, gates = 4 * s->v.h, in = s->v.in;
    nn_parallel(c->pool, nn_parts(gates, TURNED), turn_task, s);
    nn_gemm(c->pool, &(nn_product){.m = rows,
                                   .n = gates,
                                   .k = in,
                                   .a = {.data = c->input[LSTM_X].data, .stride = in},
                                   .b = {.data = s->panels, .stride = gates},
                                   .c = s->v.gates,
                                   .ldc = gates,
                                   .narrow = s->narrow});
}

/* Floats for panels, or for W_in. */
static int64_t forward_size(int64_t in, int64_t h) {
    const int64_t turned = 4 * h * in;
    return turned > panels_size(h) ? turned : panels_size(h);
}

static sequence sequence_of(const nn_call *c) {
    sequence s = {.c = c, .v = nn_lstm_view(c), .x = nn_vector_choose(), .drop = nn_cpu_drop(c), .per = 1};
    if (c->mixed) s.pairs = nn_pairs_choose(), s.per = 2;
    s.depth = nn_parts(s.v.h, s.per);
    return s;
}

static void lstm_forward(const nn_call *c) {
    sequence s = sequence_of(c);
    const lstm_view *v = &s.v;
    const int64_t h = v->h, groups = nn_parts(h, GROUP);
    s.panels = c->workspace;
    s.columns[0] = s.panels + forward_size(v->in, h);
    s.columns[1] = s.columns[0] + h * v->batch;
    if (c->mixed) s.narrow = s.columns[1] + h * v->batch;
    nn_lstm_begin(c, v);
    for (int64_t row = 0, rows; row < v->batch; row += rows) {
        rows = least(TILE_ROWS, v->batch - row);
        for (int64_t unit = 0; unit < h; unit += GROUP)
            turn(&s, rows, least(GROUP, h - unit), v->h0 + row * h + unit, h,
                 s.columns[0] + row * s.depth + unit / s.per * rows);
    }
    if (v->steps > 0) {
        input_gates(&s);
        nn_parallel(c->pool, 4 * groups, pack_forward, &s);
    }
    for (; s.t < v->steps; go_on(&s, 1)) nn_parallel(c->pool, groups, forward_task, &s);
    nn_lstm_end(c, v);
}

/* ---- backward ---- */

/* Like units, for backward. The gradients of a step's gates follow from the gradient of its output (given) and from the
 * next step. */
typedef struct unit_grads {
    int64_t h;
    const float *gates, *before, *cells, *given;
    float *dgates, *dc;
} unit_grads;

/* sums: [.., GROUP], the gradient of the state that the next step read. */
NN_INLINE void finish_backward(int64_t n, const unit_grads *u, int64_t first, int64_t rows, const float *sums) {
    for (int64_t row = first; row < first + rows; row++, sums += GROUP) {
        const float *gates = u->gates + row * 4 * u->h, *before = u->before + row * u->h;
        const float *cells = u->cells + row * u->h, *given = u->given + row * u->h;
        float d[4][GROUP], dcs[GROUP], *dgates = u->dgates + row * 4 * u->h, *carried = u->dc + row * u->h;
        for (int64_t j = 0; j < n; j++) {
            const float i = gates[j], f = gates[u->h + j], g = gates[2 * u->h + j], o = gates[3 * u->h + j];
            const float t = nn_tanh(cells[j]), dy = given[j] + sums[j], dc = carried[j] + dy * o * (1 - t * t);
            d[0][j] = dc * g * i * (1 - i);
            d[1][j] = dc * before[j] * f * (1 - f);
            d[2][j] = dc * i * (1 - g * g);
            d[3][j] = dy * t * o * (1 - o);
            dcs[j] = dc * f;
        }
        for (int64_t q = 0; q < 4; q++) memcpy(dgates + q * u->h, d[q], (size_t)n * sizeof(float));
        memcpy(carried, dcs, (size_t)n * sizeof(float));
    }
}

NN_CLONES
static void finish_unit_grads(int64_t n, const unit_grads *u, int64_t first, int64_t rows, const float *sums) {
    if (n == GROUP) finish_backward(GROUP, u, first, rows, sums);
    else finish_backward(n, u, first, rows, sums);
}

static void backward_task(void *context, int64_t task) {
    const sequence *s = context;
    const lstm_view *v = &s->v;
    const int64_t h = v->h, unit = task * GROUP, n = least(GROUP, h - unit), step = s->t * v->batch;
    const unit_grads u = {h,
                          v->gates + step * 4 * h + unit,
                          nn_lstm_c_before(v, s->t) + unit,
                          v->cells + step * h + unit,
                          s->c->grad->output[0] + step * h + unit,
                          s->dgates + step * 4 * h + unit,
                          s->dc + unit};
    _Alignas(64) float sums[TILE_ROWS * GROUP] = {0};
    for (int64_t row = 0; row < v->batch; row += TILE_ROWS) {
        const int64_t rows = least(TILE_ROWS, v->batch - row);
        if (s->t + 1 < v->steps)
            multiply(s, rows, 4 * s->depth, s->columns[0] + row * 4 * s->depth, s->panels + task * 4 * s->depth * GROUP,
                     sums);
        finish_unit_grads(n, &u, row, rows, sums);
        for (int64_t q = 0; q < 4; q++)
            turn(s, rows, n, u.dgates + row * 4 * h + q * h, 4 * h,
                 s->columns[1] + row * 4 * s->depth + (q * s->depth + unit / s->per) * rows);
    }
}

/* The gradients of all gates before their activations, from the last step to the first. */
static void gate_grads(sequence *s) {
    const int64_t h = s->v.h;
    memset(s->dc, 0, (size_t)(s->v.batch * h) * sizeof *s->dc);
    nn_parallel(s->c->pool, nn_parts(4 * s->depth, PACKED_ROWS), s->pairs ? pack_backward_pairs : pack_backward, s);
    for (s->t = s->v.steps - 1; s->t >= 0; go_on(s, -1)) nn_parallel(s->c->pool, nn_parts(h, GROUP), backward_task, s);
}

/* Applies dropout to a tile of the gradient of the state's weights: in place, or, if it is to be added, from the memory
 * of the panels, which are no longer needed. */
static void drop_tile(void *context, int64_t row, int64_t col, int64_t rows, int64_t cols) {
    const sequence *s = context;
    const bool add = s->c->grad->accumulate[LSTM_W_STATE];
    float *to = s->c->grad->input[LSTM_W_STATE];
    for (int64_t i = row; i < row + rows; i++)
        nn_cpu_add_dropped(&s->drop, i * s->v.h + col, cols, add ? to : NULL, add ? s->panels : to, to);
}

/* States that the steps read: the initial one, then outputs, in one array for one product. */
static const float *states_before(const sequence *s) {
    const int64_t first = s->v.batch * s->v.h, rest = (s->v.steps - 1) * first;
    memcpy(s->before, s->v.h0, (size_t)first * sizeof *s->before);
    memcpy(s->before + first, s->v.y, (size_t)rest * sizeof *s->before);
    return s->before;
}

/* dgates^T x, where x is [rows, n]: the gradient of the weights that x was multiplied with. */
static nn_product weight_product(const sequence *s, const float *x, int64_t n, float *to, bool add) {
    const int64_t rows = s->v.steps * s->v.batch, gates = 4 * s->v.h;
    return (nn_product){.m = gates,
                        .n = n,
                        .k = rows,
                        .a = {s->dgates, gates, .transposed = true},
                        .b = {.data = x, .stride = n},
                        .c = to,
                        .ldc = n,
                        .add = add,
                        .narrow = s->narrow};
}

static nn_product input_product(const sequence *s) {
    const nn_call *c = s->c;
    const int64_t rows = s->v.steps * s->v.batch, gates = 4 * s->v.h, in = s->v.in;
    return (nn_product){.m = rows,
                        .n = in,
                        .k = gates,
                        .a = {.data = s->dgates, .stride = gates},
                        .b = {.data = c->input[LSTM_W_IN].data, .stride = in},
                        .c = c->grad->input[LSTM_X],
                        .ldc = in,
                        .add = c->grad->accumulate[LSTM_X],
                        .narrow = s->narrow};
}

/* The gradients of x and of weights, from those of all gates. */
static void products(sequence *s) {
    const nn_call *c = s->c;
    float *const *to = c->grad->input;
    nn_product all[3];
    int n = 0;
    if (to[LSTM_X]) all[n++] = input_product(s);
    if (to[LSTM_W_IN])
        all[n++] = weight_product(s, c->input[LSTM_X].data, s->v.in, to[LSTM_W_IN], c->grad->accumulate[LSTM_W_IN]);
    if (to[LSTM_W_STATE]) {
        const bool add = c->grad->accumulate[LSTM_W_STATE];
        nn_product *p = &all[n++];
        *p = weight_product(s, states_before(s), s->v.h, add ? s->panels : to[LSTM_W_STATE], false);
        p->then = add || s->drop.drops ? drop_tile : NULL;
        p->context = s;
    }
    nn_products(c->pool, all, n);
}

/* Both are the same sums. */
static void bias_grads(const sequence *s) {
    const nn_call *c = s->c;
    const int64_t rows = s->v.steps * s->v.batch, gates = 4 * s->v.h;
    float *const first = c->grad->accumulate[LSTM_B_IN] ? NULL : c->grad->input[LSTM_B_IN];
    for (int i = LSTM_B_IN; i <= LSTM_B_STATE; i++) {
        float *const to = c->grad->input[i];
        if (to && to != first && first && !c->grad->accumulate[i]) memcpy(to, first, (size_t)gates * sizeof *to);
        else if (to) nn_cpu_sum_rows(c->pool, s->dgates, gates, rows, gates, to, c->grad->accumulate[i]);
    }
}

/* Gradients of a run without rows: zeros, unless they accumulate. */
static void no_grads(const nn_call *c) {
    for (int i = LSTM_W_IN; i <= LSTM_B_STATE; i++) {
        if (c->grad->input[i] && !c->grad->accumulate[i])
            memset(c->grad->input[i], 0, (size_t)(c->input[i].rows * c->input[i].cols) * sizeof(float));
    }
}

static void lstm_backward(const nn_call *c) {
    sequence s = sequence_of(c);
    const lstm_view *v = &s.v;
    const int64_t rows = v->steps * v->batch, h = v->h;
    s.panels = c->workspace;
    s.dgates = s.panels + panels_size(h);
    s.dc = s.dgates + rows * 4 * h;
    s.columns[0] = s.dc + v->batch * h;
    s.columns[1] = s.columns[0] + v->batch * 4 * h;
    s.before = s.columns[1] + v->batch * 4 * h;
    if (c->mixed) s.narrow = s.before + rows * h;
    if (rows == 0) {
        no_grads(c);
        return;
    }
    gate_grads(&s);
    products(&s);
    bias_grads(&s);
}

static size_t lstm_workspace(const nn_call *c) {
    const int64_t in = c->input[LSTM_X].cols, h = c->input[LSTM_H].cols, batch = c->input[LSTM_H].rows;
    const int64_t rows = c->input[LSTM_X].rows;
    const int64_t forward = forward_size(in, h) + 2 * h * batch;
    const int64_t backward = panels_size(h) + 5 * h * rows + 9 * h * batch;
    const size_t narrow = !c->mixed ? 0
                                    : nn_narrow_floats(rows, 4 * h) + nn_narrow_floats(rows, in) +
                                          nn_narrow_floats(4 * h, in) + nn_narrow_floats(in, 4 * h) +
                                          nn_narrow_floats(rows, h);
    return (size_t)(forward > backward ? forward : backward) + narrow;
}

const nn_kernels nn_cpu_lstm = {.forward = lstm_forward, .backward = lstm_backward, .workspace = lstm_workspace};
