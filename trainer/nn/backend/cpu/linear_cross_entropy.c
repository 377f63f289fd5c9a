/* Output layer and cross entropy, some rows at a time: their logits are a product in the workspace, which the gradient then
 * replaces. Formulas are in ops/linear_cross_entropy.c.
 *
 * In training, forward goes on to the gradients of a loss whose own gradient is 1, and keeps them; backward multiplies
 * them. Else backward would compute all logits again, a quarter of this op's work. Without training forward keeps log-sum-exps
 * alone, and backward does so. */
#include "nn/ops/linear_cross_entropy.h"
#include "nn/backend/cpu/cpu.h"
#include "nn/backend/cpu/entropy.h"
#include "nn/backend/cpu/gemm.h"

#include <string.h>

/* Rows of a task, whose sums are added in the order of tasks; and about how many logits are in the workspace: few
 * enough to need little memory, and enough rows for the products, each of which reads and writes all of W and its
 * gradient. */
enum { TASK_ROWS = 16, MOST_LOGITS = 1 << 25 };

typedef struct job {
    const nn_call *c;
    nn_entropy row;
    int64_t rows, in, words, chunk; /* chunk: rows at a time */
    const int32_t *targets;
    /* In the workspace. */
    float *logits;
    float *narrow; /* mixed precision: room for rounded logits (or their gradient), x and W */
    double (*sums)[4];
    /* In saved; the first three in training. */
    float *dw, *dx, *db, *lse;
    int64_t first, end;     /* the rows being computed */
    bool forward, gradient; /* whether to compute sums and log-sum-exps; the gradient of logits, which replaces them */
    double scale;           /* of the gradient */
} job;

/* The target of the gradients. */
typedef struct gradients {
    float *dx, *dw, *db; /* NULL: not wanted */
    bool add_x, add_w, add_b;
} gradients;

static int64_t tasks_of(int64_t rows) { return nn_parts(rows, TASK_ROWS); }

static int64_t sums_floats(int64_t rows) { return 8 * tasks_of(rows); } /* four doubles each */

/* Chunks have about equal size: a chunk of few rows would read and write all of the weights' gradient for little work. */
static int64_t rows_at_once(int64_t rows, int64_t words) {
    const int64_t fit = MOST_LOGITS / words, most = fit < 4 * TASK_ROWS ? 4 * TASK_ROWS : fit / TASK_ROWS * TASK_ROWS;
    if (rows <= most) return rows;
    return nn_parts(nn_parts(rows, nn_parts(rows, most)), TASK_ROWS) * TASK_ROWS;
}

static job job_of(const nn_call *c) {
    const nn_linear_cross_entropy_attributes *a = NN_ATTR(linear_cross_entropy, c);
    const nn_array *w = &c->input[LCE_W];
    job j = {.c = c, .rows = c->input[LCE_X].rows, .in = w->cols, .words = w->rows};
    j.row = (nn_entropy){nn_vector_choose(), j.words, a->smoothing, a->z};
    j.targets = c->input[LCE_TARGETS].data;
    j.chunk = rows_at_once(j.rows, j.words);
    j.sums = (double(*)[4])(void *)c->workspace;
    j.logits = c->workspace ? c->workspace + sums_floats(j.rows) : NULL;
    j.narrow = c->mixed && j.logits ? j.logits + j.chunk * j.words : NULL;
    j.lse = c->saved;
    if (c->training && c->saved) {
        j.dw = c->saved;
        j.dx = j.dw + j.words * j.in;
        j.db = j.dx + j.rows * j.in;
        j.lse = j.db + j.words;
    }
    return j;
}

static size_t linear_cross_entropy_workspace(const nn_call *c) {
    const job j = job_of(c);
    const size_t narrow = !c->mixed ? 0
                                    : nn_narrow_floats(j.chunk, j.words) + nn_narrow_floats(j.chunk, j.in) +
                                          nn_narrow_floats(j.words, j.in);
    return (size_t)(sums_floats(j.rows) + j.chunk * j.words) + narrow;
}

static size_t linear_cross_entropy_extra_saved(const nn_call *c) {
    const job j = job_of(c);
    return c->training ? (size_t)((j.words + j.rows) * j.in + j.words) : 0;
}

/* ---- rows ---- */

static void rows_task(void *context, int64_t task) {
    const job *j = context;
    const float *b = j->c->input[LCE_B].data;
    const int64_t first = j->first + task * TASK_ROWS;
    double sums[4] = {0};
    for (int64_t i = first; i < first + TASK_ROWS && i < j->end; i++) {
        float *logits = j->logits + (i - j->first) * j->words;
        if (b && j->targets[i] >= 0) nn_cpu_multiply_add(j->words, logits, NULL, b, logits);
        if (j->forward && j->targets[i] >= 0) j->lse[i] = (float)nn_entropy_row(&j->row, logits, j->targets[i], sums);
        if (j->gradient) nn_entropy_gradient(&j->row, logits, j->targets[i], j->lse[i], j->scale, logits, false);
    }
    if (j->forward) memcpy(j->sums[first / TASK_ROWS], sums, sizeof sums);
}

static const float *x_of(const job *j) { return (const float *)j->c->input[LCE_X].data + j->first * j->in; }

static nn_product logits_product(const job *j) {
    return (nn_product){.m = j->end - j->first,
                        .n = j->words,
                        .k = j->in,
                        .a = {.data = x_of(j), .stride = j->in},
                        .b = {j->c->input[LCE_W].data, j->in, .transposed = true},
                        .c = j->logits,
                        .ldc = j->words,
                        .narrow = j->narrow};
}

/* Computes the gradients of x's rows, and what these rows add to the gradients of W and b. */
static void chunk_gradients(const job *j, const gradients *g) {
    nn_product products[2];
    int n = 0;
    if (g->dw)
        products[n++] = (nn_product){.m = j->words,
                                     .n = j->in,
                                     .k = j->end - j->first,
                                     .a = {j->logits, j->words, .transposed = true},
                                     .b = {.data = x_of(j), .stride = j->in},
                                     .c = g->dw,
                                     .ldc = j->in,
                                     .add = g->add_w || j->first > 0,
                                     .narrow = j->narrow};
    if (g->dx)
        products[n++] = (nn_product){.m = j->end - j->first,
                                     .n = j->in,
                                     .k = j->words,
                                     .a = {.data = j->logits, .stride = j->words},
                                     .b = {.data = j->c->input[LCE_W].data, .stride = j->in},
                                     .c = g->dx + j->first * j->in,
                                     .ldc = j->in,
                                     .add = g->add_x,
                                     .narrow = j->narrow};
    nn_products(j->c->pool, products, n);
    if (g->db)
        nn_cpu_sum_rows(j->c->pool, j->logits, j->words, j->end - j->first, j->words, g->db, g->add_b || j->first > 0);
}

/* Computes all rows. */
static void run(job *j, const gradients *g) {
    for (j->first = 0; j->first < j->rows; j->first = j->end) {
        j->end = j->first + j->chunk < j->rows ? j->first + j->chunk : j->rows;
        const nn_product logits = logits_product(j);
        nn_gemm(j->c->pool, &logits);
        nn_parallel(j->c->pool, tasks_of(j->end - j->first), rows_task, j);
        if (j->gradient) chunk_gradients(j, g);
    }
}

/* ---- kernels ---- */

static void clear(float *x, int64_t n, bool add) {
    if (x && !add) memset(x, 0, (size_t)n * sizeof *x);
}

static void linear_cross_entropy_forward(const nn_call *c) {
    job j = job_of(c);
    double sums[4] = {0};
    j.forward = true;
    j.gradient = c->training;
    j.scale = 1;
    run(&j, &(gradients){.dx = j.dx, .dw = j.dw, .db = c->input[LCE_B].data ? j.db : NULL});
    for (int64_t t = 0; t < tasks_of(j.rows); t++) {
        for (int k = 0; k < 4; k++) sums[k] += j.sums[t][k];
    }
    for (int k = 0; k < 4; k++) ((float *)c->output[0].data)[k] = (float)sums[k];
}

/* to = scale from, or to += that. */
typedef struct scaling {
    const nn_vector *x;
    int64_t n;
    const float *from;
    float scale, *to;
    bool add;
} scaling;

static void scale_task(void *context, int64_t task) {
    const scaling *s = context;
    const int64_t first = task * NN_CHUNK, n = s->n - first < NN_CHUNK ? s->n - first : NN_CHUNK;
    s->x->scale(n, s->from + first, s->scale, s->to + first, s->add);
}

static void linear_cross_entropy_backward(const nn_call *c) {
    job j = job_of(c);
    float *const *to = c->grad->input;
    const bool *add = c->grad->accumulate;
    const int64_t numbers[] = {[LCE_X] = j.rows * j.in, [LCE_W] = j.words * j.in, [LCE_B] = j.words};
    const float *kept[] = {[LCE_X] = j.dx, [LCE_W] = j.dw, [LCE_B] = j.db};
    j.gradient = true;
    j.scale = (double)c->grad->output[0][0];
    if (!c->training || j.rows == 0) {
        for (int k = LCE_W; k <= LCE_B && j.rows == 0; k++) clear(to[k], numbers[k], add[k]);
        run(&j, &(gradients){to[LCE_X], to[LCE_W], to[LCE_B], add[LCE_X], add[LCE_W], add[LCE_B]});
        return;
    }
    for (int k = LCE_X; k <= LCE_B; k++) {
        scaling s = {j.row.x, numbers[k], kept[k], (float)j.scale, to[k], add[k]};
        if (to[k]) nn_parallel(c->pool, nn_parts(s.n, NN_CHUNK), scale_task, &s);
    }
}

const nn_kernels nn_cpu_linear_cross_entropy = {.forward = linear_cross_entropy_forward,
                                                .backward = linear_cross_entropy_backward,
                                                .workspace = linear_cross_entropy_workspace,
                                                .extra_saved = linear_cross_entropy_extra_saved};
