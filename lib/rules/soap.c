/* SOAP's driver for matrices: see rules/soap.inc.h. All arrays of a matrix are taken into the workspace in the type of
 * computation, and states are stored at the end. Eigenvectors and orthogonal factors are in f64 whatever the type, since the
 * rule needs bases that are orthogonal. */
#include "optim/eigen.h"
#include "optim/matmul.h"
#include "optim/matrices.h"

#include <math.h>
#include <string.h>

enum { SOAP_MATRIX = 1, SOAP_STEP = 2 };       /* variants */
enum { SOAP_MOMENT, SOAP_SQUARE, SOAP_FIRST }; /* states; those of side i are SOAP_FIRST + i and SOAP_FIRST + 2 + i */
/* arrays of the matrix's size: the gradient, states, and two for intermediate results */
enum { SOAP_G, SOAP_M, SOAP_V, SOAP_A, SOAP_B };

/* One side of a matrix. */
typedef struct soap_side {
    int64_t n;         /* 0: it has no basis */
    char *average, *q; /* L or R; QL or QR */
    char *times;       /* the one times the other */
    int64_t *order;    /* of columns */
    double *wide;      /* n x n, and 4 n */
} soap_side;

typedef struct soap_matrix {
    work_context base;
    size_t item;
    block_source source;
    size_t size; /* of an element */
    int64_t rows, cols;
    char *array[5], *space;
    soap_side side[2];
    adamod_pool *pool;
    int thread;
    bool begins; /* in the first update */
} soap_matrix;

/* ---- the workspace ---- */

static char *adamod__soap_take(char *base, size_t *used, int64_t count, size_t size) {
    char *at = base ? base + *used : NULL;
    *used = adamod__more_bytes(*used, count, size);
    return at;
}

static product adamod__soap_product(const soap_matrix *m, void *c, int64_t rows, int64_t cols, int64_t depth) {
    return (product){.m = rows,
                     .n = cols,
                     .k = depth,
                     .c = c,
                     .alpha = 1,
                     .type = m->source.compute,
                     .kernels = m->source.kernels,
                     .pool = m->pool,
                     .space = m->space};
}

static size_t adamod__soap_product_space(const soap_matrix *m) {
    const int64_t r = m->rows, c = m->cols, l = m->side[0].n, n = m->side[1].n;
    const int64_t shapes[][3] = {{r, c, l}, {r, c, n}, {l, l, c}, {n, n, r}, {l, l, l}, {n, n, n}};
    size_t most = 0;
    for (int i = 0; i < 6; i++) {
        const product p = adamod__soap_product(m, NULL, shapes[i][0], shapes[i][1], shapes[i][2]); /* c an operand */
        const size_t bytes = shapes[i][0] > 0 && shapes[i][2] > 0 ? adamod__product_space(&p) : 0;
        most = bytes > most ? bytes : most;
    }
    return most;
}

/* Fills in where everything is, from base on, and returns how much it takes. */
static size_t adamod__soap_lay(soap_matrix *m, char *base) {
    const double most = m->source.item->options[OPT_MAX_PRECONDITION_DIM];
    size_t used = 0;
    for (int i = 0; i < 5; i++) m->array[i] = adamod__soap_take(base, &used, m->rows * m->cols, m->size);
    for (int i = 0; i < 2; i++) {
        soap_side *s = &m->side[i];
        const int64_t n = i ? m->cols : m->rows;
        s->n = (double)n <= most ? n : 0;
        s->average = adamod__soap_take(base, &used, s->n * s->n, m->size);
        s->q = adamod__soap_take(base, &used, s->n * s->n, m->size);
        s->times = adamod__soap_take(base, &used, s->n * s->n, m->size);
        s->order = (int64_t *)(void *)adamod__soap_take(base, &used, s->n, sizeof(int64_t));
        s->wide = (double *)(void *)adamod__soap_take(base, &used, s->n * (s->n + 4), sizeof(double));
    }
    m->space = adamod__soap_take(base, &used, 1, adamod__soap_product_space(m) + 1);
    return used;
}

static soap_matrix adamod__soap_matrix(const work *w, const work_item *item, const adamod__coef_f64 *coef) {
    soap_matrix m = {.source = adamod__source(w, item, coef)};
    const matrix_shape shape = adamod__whole_shape(item->span);
    m.size = adamod__type_size(m.source.compute);
    m.rows = shape.rows;
    m.cols = shape.cols;
    return m;
}

static size_t adamod__soap_bytes(const work *w, const work_item *item) {
    const adamod__coef_f64 none = {.variant = SOAP_MATRIX};
    soap_matrix m = adamod__soap_matrix(w, item, &none);
    return adamod__soap_lay(&m, NULL);
}

/* ---- states in and out ---- */

static void adamod__soap_load(const soap_matrix *m, int state, int64_t count, char *to) {
    const block_source *b = &m->source;
    const thread_memory memory = adamod__memory_of(&m->base, m->thread);
    for (int64_t at = 0; at < count; at += BLOCK) {
        const size_t n = adamod__block_length(count, at);
        const void *from = adamod__read_block(m->base.w->kernels, b->compute, b->item->span->state[state],
                                              b->state_type, at, n, memory.buffer->state[0]);
        memcpy(to + (size_t)at * m->size, from, n * m->size);
    }
}

static void adamod__soap_store(const soap_matrix *m, int state, int64_t count, char *from) {
    const block_source *b = &m->source;
    char *to = b->item->span->state[state];
    if (b->state_type == b->compute) {
        if (count > 0) memcpy(to, from, (size_t)count * m->size);
        return;
    }
    for (int64_t at = 0; at < count; at += BLOCK) {
        adamod__write_block(m->base.w->kernels, b->compute, to, b->state_type, at, adamod__block_length(count, at),
                            from + (size_t)at * m->size, &(block_random){b->key, 1 + state % KERNEL_STATES});
    }
}

/* Loads or stores all states. */
static void adamod__soap_states(const soap_matrix *m, void (*move)(const soap_matrix *, int, int64_t, char *)) {
    move(m, SOAP_MOMENT, m->rows * m->cols, m->array[SOAP_M]);
    move(m, SOAP_SQUARE, m->rows * m->cols, m->array[SOAP_V]);
    for (int i = 0; i < 2; i++) {
        const soap_side *s = &m->side[i];
        move(m, SOAP_FIRST + i, s->n * s->n, s->average);
        move(m, SOAP_FIRST + 2 + i, s->n * s->n, s->q);
    }
}

/* Loads the gradient. Returns its sum of squares if statistics are wanted. */
static double adamod__soap_gradient(const soap_matrix *m) {
    const work *w = m->base.w;
    const thread_memory memory = adamod__memory_of(&m->base, m->thread);
    const int64_t count = m->rows * m->cols;
    double sum = 0;
    for (int64_t at = 0; at < count; at += BLOCK) {
        const size_t n = adamod__block_length(count, at);
        const void *g = adamod__gradient(w, &m->source, at, n, memory.buffer);
        memcpy(m->array[SOAP_G] + (size_t)at * m->size, g, n * m->size);
        if (w->stats) sum += m->source.kernels->sumsq(g, n, 1);
    }
    return sum;
}

/* ---- loops over numbers of the type of computation ---- */

#define SOAP_MOMENTS(REAL, m, k)                                                                                       \
    do {                                                                                                               \
        const REAL *g = (const REAL *)(void *)(m)->array[SOAP_G], *u = (const REAL *)(void *)(m)->array[SOAP_B];       \
        REAL *first = (REAL *)(void *)(m)->array[SOAP_M], *second = (REAL *)(void *)(m)->array[SOAP_V];                \
        const REAL b1 = (REAL)(k)->beta1, c1 = (REAL)(k)->beta1c, b2 = (REAL)(k)->beta2, c2 = (REAL)(k)->beta2c;       \
        for (int64_t i = 0; i < (m)->rows * (m)->cols; i++) {                                                          \
            first[i] = b1 * first[i] + c1 * g[i];                                                                      \
            second[i] = b2 * second[i] + c2 * u[i] * u[i];                                                             \
        }                                                                                                              \
    } while (0)

/* The averages; the second is of the gradient in the other basis. */
static void adamod__soap_moments(const soap_matrix *m) {
    if (m->source.compute == ADAMOD_F64) SOAP_MOMENTS(double, m, m->source.coef);
    else SOAP_MOMENTS(float, m, m->source.coef);
}

static void adamod__soap_divide(const soap_matrix *m) {
    const int64_t count = m->rows * m->cols;
    if (m->source.compute == ADAMOD_F64) {
        double *x = (double *)(void *)m->array[SOAP_B], *v = (double *)(void *)m->array[SOAP_V];
        for (int64_t i = 0; i < count; i++) x[i] /= sqrt(v[i]) + m->source.coef->eps;
    } else {
        float *x = (float *)(void *)m->array[SOAP_B], *v = (float *)(void *)m->array[SOAP_V];
        for (int64_t i = 0; i < count; i++) x[i] /= sqrtf(v[i]) + (float)m->source.coef->eps;
    }
}

static void adamod__soap_put(const soap_matrix *m, char *array, int64_t i, double x) {
    if (m->source.compute == ADAMOD_F64) ((double *)(void *)array)[i] = x;
    else ((float *)(void *)array)[i] = (float)x;
}

/* ---- products ---- */

/* Turns the matrix `from` into the other basis, or back; the result is B, and A is overwritten. */
static void adamod__soap_turn(const soap_matrix *m, const char *from, bool back) {
    const int64_t r = m->rows, c = m->cols;
    const soap_side *left = &m->side[0], *right = &m->side[1];
    const size_t bytes = (size_t)(r * c) * m->size;
    if (left->n > 0) {
        product p = adamod__soap_product(m, m->array[SOAP_A], r, c, r);
        p.a = back ? (product_matrix){left->q, r, 1} : (product_matrix){left->q, 1, r};
        p.b = (product_matrix){from, c, 1};
        adamod__product(&p);
        from = m->array[SOAP_A];
    }
    if (right->n > 0) {
        product p = adamod__soap_product(m, m->array[SOAP_B], r, c, c);
        p.a = (product_matrix){from, c, 1};
        p.b = back ? (product_matrix){right->q, 1, c} : (product_matrix){right->q, c, 1};
        adamod__product(&p);
    } else if (from != m->array[SOAP_B]) {
        memcpy(m->array[SOAP_B], from, bytes);
    }
}

/* L, R */
static void adamod__soap_averages(const soap_matrix *m) {
    const double *o = m->source.item->options;
    const double beta = o[OPT_SHAMPOO_BETA] < 0 ? o[OPT_BETA2] : o[OPT_SHAMPOO_BETA];
    const product_matrix g = {m->array[SOAP_G], m->cols, 1}, transposed = {m->array[SOAP_G], 1, m->cols};
    for (int i = 0; i < 2; i++) {
        const soap_side *s = &m->side[i];
        if (s->n == 0) continue;
        product p = adamod__soap_product(m, s->average, s->n, s->n, i ? m->rows : m->cols);
        p.a = i ? transposed : g;
        p.b = i ? g : transposed;
        p.alpha = 1 - beta;
        p.beta = beta;
        p.symmetric = true;
        adamod__product(&p);
    }
}

/* ---- bases ---- */

/* The basis of side i from its numbers in wide: eigenvectors of the average, or later the orthogonal factor of a step. */
static void adamod__soap_basis(void *context, int64_t i, int thread) {
    const soap_matrix *m = context;
    const soap_side *s = &m->side[i];
    const int64_t count = s->n * s->n;
    (void)thread;
    if (count > 0) (m->begins ? adamod__eigenvectors : adamod__orthogonal_factor)(s->wide, s->n, s->wide + count);
    for (int64_t k = 0; k < count; k++) adamod__soap_put(m, s->q, k, s->wide[k]);
}

static void adamod__soap_begin(const soap_matrix *m) {
    for (int i = 0; i < 2; i++) {
        const soap_side *s = &m->side[i];
        for (int64_t k = 0; k < s->n * s->n; k++) {
            s->wide[k] = adamod__real_at(m->source.compute, s->average, (size_t)k);
        }
    }
}

/* Sorts columns by the sums of q times (average times q), which estimate eigenvalues, the largest first. Equal ones keep
 * their order. */
static void adamod__soap_order(const soap_matrix *m, const soap_side *s) {
    double *found = s->wide + s->n * s->n;
    for (int64_t j = 0; j < s->n; j++) found[j] = 0;
    for (int64_t k = 0; k < s->n * s->n; k++) {
        found[k % s->n] += adamod__real_at(m->source.compute, s->q, (size_t)k) *
                           adamod__real_at(m->source.compute, s->times, (size_t)k);
    }
    for (int64_t j = 0; j < s->n; j++) {
        int64_t at = j;
        for (; at > 0 && found[s->order[at - 1]] < found[j]; at--) s->order[at] = s->order[at - 1];
        s->order[at] = j;
    }
}

/* v's rows or columns in this order; A is overwritten. */
static void adamod__soap_reorder(const soap_matrix *m, int side, const int64_t *order) {
    const size_t bytes = (size_t)(m->rows * m->cols) * m->size;
    memcpy(m->array[SOAP_A], m->array[SOAP_V], bytes);
    for (int64_t i = 0; i < m->rows; i++) {
        for (int64_t j = 0; j < m->cols; j++) {
            const int64_t row = side ? i : order[i], col = side ? order[j] : j;
            memcpy(m->array[SOAP_V] + (size_t)(i * m->cols + j) * m->size,
                   m->array[SOAP_A] + (size_t)(row * m->cols + col) * m->size, m->size);
        }
    }
}

/* One step of the power method from the present basis, whose orthogonal factor is the next. */
static void adamod__soap_follow(const soap_matrix *m) {
    for (int i = 0; i < 2; i++) {
        const soap_side *s = &m->side[i];
        if (s->n == 0) continue;
        product p = adamod__soap_product(m, s->times, s->n, s->n, s->n);
        p.a = (product_matrix){s->average, s->n, 1};
        p.b = (product_matrix){s->q, s->n, 1};
        adamod__product(&p);
        adamod__soap_order(m, s);
        adamod__soap_reorder(m, i, s->order);
        for (int64_t k = 0; k < s->n * s->n; k++) {
            s->wide[k] = adamod__real_at(m->source.compute, s->times, (size_t)(k / s->n * s->n + s->order[k % s->n]));
        }
    }
}

/* ---- one matrix ---- */

/* Updates p by the direction of Adam in the other basis; and statistics. */
static void adamod__soap_step(soap_matrix *m, double *moved) {
    const work *w = m->base.w;
    const thread_memory memory = adamod__memory_of(&m->base, m->thread);
    const int64_t count = m->rows * m->cols;
    block_source b = m->source;
    stats_counts *counts = w->stats ? memory.counts : NULL;
    if (counts) adamod__stats_clear(counts);
    b.update = b.kernels->update[w->rule->id][SOAP_STEP];
    b.state[SOAP_MOMENT] = b.state[SOAP_SQUARE] = NULL;
    for (int64_t at = 0; at < count; at += BLOCK) {
        adamod__update_block(w, &b, at, adamod__block_length(count, at), memory.buffer,
                             m->array[SOAP_B] + (size_t)at * m->size, NULL, counts);
    }
    if (!counts) return;
    *moved = counts->update_sumsq;
    adamod__stats_merge(w->stats, b.item->group, counts);
}

static void adamod__soap_update(const work_context *c, size_t i, char *workspace, adamod_pool *pool, int thread) {
    const work_item *item = &c->w->items[i];
    soap_matrix m = adamod__soap_matrix(c->w, item, &c->space->coefs[c->space->coef_of[i]]);
    const int64_t count = item->span->count, t = item->span->step - 1;
    double *sums = &c->space->partial[2 * c->space->first_chunk[i]];
    m.base = *c;
    m.item = i;
    m.pool = pool;
    m.thread = thread;
    m.begins = t == 0;
    (void)adamod__soap_lay(&m, workspace);
    memset(sums, 0, (size_t)(2 * (c->space->first_chunk[i + 1] - c->space->first_chunk[i])) * sizeof *sums);
    sums[0] = adamod__soap_gradient(&m);
    adamod__soap_states(&m, adamod__soap_load);
    if (t > 0) {
        adamod__soap_turn(&m, m.array[SOAP_G], false);
        adamod__soap_moments(&m);
        adamod__soap_turn(&m, m.array[SOAP_M], false);
        adamod__soap_divide(&m);
        adamod__soap_turn(&m, m.array[SOAP_B], true);
    } else {
        memset(m.array[SOAP_B], 0, (size_t)count * m.size);
    }
    adamod__soap_step(&m, &sums[1]);
    adamod__soap_averages(&m);
    const bool follows = t > 0 && t % (int64_t)item->options[OPT_PRECONDITION_FREQUENCY] == 0;
    if (m.begins) adamod__soap_begin(&m);
    if (follows) adamod__soap_follow(&m);
    if (m.begins || follows) adamod__pool_run(pool, 2, adamod__soap_basis, &m);
    adamod__soap_states(&m, adamod__soap_store);
}

static const matrix_driver adamod__soap_matrices = {NULL, adamod__soap_bytes, adamod__soap_update};
const rule_driver adamod__soap_driver = {.run = adamod__matrices_run,
                                         .takes = 1u << SOAP_MATRIX,
                                         .workspace = adamod__matrices_workspace,
                                         .matrices = &adamod__soap_matrices};
