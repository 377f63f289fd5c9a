/* Operands are first copied into panels as wide as a tile of registers, so that one loop serves all transpositions; then
 * threads take blocks of the result, and go through them tile by tile. */
#include "optim/matmul.h"

#include <string.h>

/* A block of the result, whole tiles of every instruction set; and the depth that stays in the caches. */
enum { BLOCK_ROWS = 96, BLOCK_COLS = 192, DEPTH = 256, TILE_BYTES = 4096 };
/* The depth that is copied at a time, so that panels of few rows do not take much room; all where c is an operand. */
static int64_t adamod__slab(const product *p) {
    enum { SLAB = 4096 };
    return p->k < SLAB || p->a.data == p->c || p->b.data == p->c ? p->k : SLAB;
}

static int64_t adamod__parts(int64_t n, int64_t size) { return (n + size - 1) / size; }

/* One operand's panels: [number of panels][depth][width]. */
typedef struct panels {
    product_matrix from; /* element (i, d): i across the panels, d along them */
    int64_t count, width;
    double factor;
    char *to;
} panels;

typedef struct product_run {
    const product *p;
    size_t size; /* of an element */
    panels a, b;
    int64_t across;      /* blocks */
    int64_t from, depth; /* of the slab */
} product_run;

static size_t adamod__panel_bytes(const product_run *r, const panels *x) {
    const size_t bytes = (size_t)(adamod__parts(x->count, x->width) * x->width * r->depth) * r->size;
    return (bytes + 63) / 64 * 64;
}

static product_run adamod__product_run(const product *p) {
    product_run r = {.p = p, .size = adamod__type_size(p->type), .across = adamod__parts(p->n, BLOCK_COLS)};
    r.depth = adamod__slab(p);
    r.a = (panels){p->a, p->m, p->kernels->tile_rows, p->alpha, p->space};
    r.b = (panels){{p->b.data, p->b.col, p->b.row}, p->n, p->kernels->tile_cols, 1, NULL};
    r.b.to = (char *)p->space + adamod__panel_bytes(&r, &r.a);
    return r;
}

size_t adamod__product_space(const product *p) {
    product q = *p;
    char none[1];
    q.space = none;
    const product_run r = adamod__product_run(&q);
    return adamod__panel_bytes(&r, &r.a) + adamod__panel_bytes(&r, &r.b);
}

/* Rows i of DEPTH numbers each become columns of a panel; those beyond the last are zeros. */
#define COPY_PANEL(REAL, x, slab, k, first, depth, n)                                                                  \
    do {                                                                                                               \
        const REAL *from =                                                                                             \
            (const REAL *)(x)->from.data + (first) * (x)->from.row + ((slab) + (depth)) * (x)->from.col;               \
        REAL *to = (REAL *)(void *)(x)->to + (first) * (k) + (depth) * (x)->width;                                     \
        const REAL factor = (REAL)(x)->factor;                                                                         \
        const int64_t row = (x)->from.row, col = (x)->from.col, width = (x)->width;                                    \
        const int64_t there = (x)->count - (first) < width ? (x)->count - (first) : width;                             \
        if (row == 1) {                                                                                                \
            for (int64_t d = 0; d < (n); d++) {                                                                        \
                for (int64_t i = 0; i < there; i++) to[d * width + i] = from[d * col + i] * factor;                    \
                for (int64_t i = there; i < width; i++) to[d * width + i] = 0;                                         \
            }                                                                                                          \
        } else {                                                                                                       \
            for (int64_t i = 0; i < width; i++) {                                                                      \
                for (int64_t d = 0; d < (n); d++)                                                                      \
                    to[d * width + i] = i < there ? from[i * row + d * col] * factor : 0;                              \
            }                                                                                                          \
        }                                                                                                              \
    } while (0)

static void adamod__copy_panel(const product_run *r, const panels *x, int64_t first) {
    for (int64_t depth = 0; depth < r->depth; depth += DEPTH) {
        const int64_t n = r->depth - depth < DEPTH ? r->depth - depth : DEPTH;
        if (r->p->type == ADAMOD_F64) COPY_PANEL(double, x, r->from, r->depth, first, depth, n);
        else COPY_PANEL(float, x, r->from, r->depth, first, depth, n);
    }
}

/* Tasks are panels of a, then of b. */
static void adamod__copy_task(void *context, int64_t task, int thread) {
    const product_run *r = context;
    const int64_t first = adamod__parts(r->a.count, r->a.width);
    (void)thread;
    if (task < first) adamod__copy_panel(r, &r->a, task * r->a.width);
    else adamod__copy_panel(r, &r->b, (task - first) * r->b.width);
}

/* A tile at the edge goes through a whole one. */
static void adamod__edge_tile(const product_run *r, char *c, int64_t rows, int64_t cols, const void *a, const void *b,
                              int64_t depth, double beta) {
    _Alignas(64) char tile[TILE_BYTES] = {0};
    const size_t ld = (size_t)r->b.width, line = (size_t)cols * r->size, stride = (size_t)r->p->n * r->size;
    for (int64_t i = 0; i < rows; i++) memcpy(tile + (size_t)i * ld * r->size, c + (size_t)i * stride, line);
    r->p->kernels->tile(tile, ld, a, b, (size_t)depth, beta);
    for (int64_t i = 0; i < rows; i++) memcpy(c + (size_t)i * stride, tile + (size_t)i * ld * r->size, line);
}

static void adamod__tile(const product_run *r, int64_t row, int64_t col, int64_t from, int64_t depth) {
    const product *p = r->p;
    const char *a = r->a.to + (size_t)(row * r->depth + from * r->a.width) * r->size;
    const char *b = r->b.to + (size_t)(col * r->depth + from * r->b.width) * r->size;
    char *c = (char *)p->c + (size_t)(row * p->n + col) * r->size;
    const double beta = r->from + from == 0 ? p->beta : 1;
    const int64_t rows = p->m - row < r->a.width ? p->m - row : r->a.width;
    const int64_t cols = p->n - col < r->b.width ? p->n - col : r->b.width;
    if (rows < r->a.width || cols < r->b.width) adamod__edge_tile(r, c, rows, cols, a, b, depth, beta);
    else p->kernels->tile(c, (size_t)p->n, a, b, (size_t)depth, beta);
}

static void adamod__block_task(void *context, int64_t task, int thread) {
    const product_run *r = context;
    const product *p = r->p;
    const int64_t row = task / r->across * BLOCK_ROWS, col = task % r->across * BLOCK_COLS;
    const int64_t row_end = p->m - row < BLOCK_ROWS ? p->m : row + BLOCK_ROWS;
    const int64_t col_end = p->n - col < BLOCK_COLS ? p->n : col + BLOCK_COLS;
    (void)thread;
    for (int64_t from = 0; from < r->depth; from += DEPTH) {
        const int64_t depth = r->depth - from < DEPTH ? r->depth - from : DEPTH;
        for (int64_t j = col; j < col_end; j += r->b.width) {
            for (int64_t i = row; i < row_end; i += r->a.width) {
                if (!p->symmetric || j < i + r->a.width) adamod__tile(r, i, j, from, depth);
            }
        }
    }
}

/* Copies the half below the diagonal to the half above it; a task is the rows of a block. */
static void adamod__mirror_task(void *context, int64_t task, int thread) {
    enum { SIDE = 32 };
    const product_run *r = context;
    const int64_t n = r->p->n, first = task * SIDE, last = n - first < SIDE ? n : first + SIDE;
    (void)thread;
    for (int64_t col = first; col < n; col += SIDE) {
        const int64_t end = n - col < SIDE ? n : col + SIDE;
        for (int64_t i = first; i < last; i++) {
            for (int64_t j = col > i ? col : i + 1; j < end; j++) {
                if (r->p->type == ADAMOD_F64) ((double *)r->p->c)[i * n + j] = ((double *)r->p->c)[j * n + i];
                else ((float *)r->p->c)[i * n + j] = ((float *)r->p->c)[j * n + i];
            }
        }
    }
}

void adamod__product(const product *p) {
    product_run r = adamod__product_run(p);
    const int64_t copies = adamod__parts(p->m, r.a.width) + adamod__parts(p->n, r.b.width);
    for (const int64_t slab = r.depth; r.from < p->k; r.from += slab) {
        r.depth = p->k - r.from < slab ? p->k - r.from : slab;
        adamod__pool_run(p->pool, copies, adamod__copy_task, &r);
        adamod__pool_run(p->pool, adamod__parts(p->m, BLOCK_ROWS) * r.across, adamod__block_task, &r);
    }
    if (p->symmetric) adamod__pool_run(p->pool, adamod__parts(p->n, 32), adamod__mirror_task, &r);
}
