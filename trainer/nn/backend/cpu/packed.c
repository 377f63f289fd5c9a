#include "nn/backend/cpu/packed.h"
#include "nn/backend/cpu/cpu.h"
#include "nn/backend/cpu/vector.h"

#include <stdlib.h>
#include <string.h>

enum {
    PANEL = 48, /* columns of y whose part of W is read row by row: three vectors of the widest kind */
    ROWS = 64,  /* of a task */
    BLOCK = 8   /* rows at once where a panel is not whole */
};

/* Panel i begins at i * PANEL * in, and is [in, width]; the last one's width is a multiple of NN_LANES. */
struct nn_packed {
    int64_t out, in;
    float *w;
    bool ready;
};

nn_packed *nn_packed_create(int64_t out, int64_t in) {
    nn_packed *p = calloc(1, sizeof *p);
    void *w = NULL;
    if (p && posix_memalign(&w, 64, (size_t)(nn_padded(out) * in) * sizeof(float)) == 0) {
        *p = (nn_packed){.out = out, .in = in, .w = w};
        return p;
    }
    free(p);
    return NULL;
}

void nn_packed_free(nn_packed *p) {
    if (p) free(p->w);
    free(p);
}

static int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }

typedef struct job {
    nn_packed *p;
    const nn_vector *v;
    const nn_product *product;
    int64_t parts; /* tasks of a panel */
} job;

static void copy_panel(void *context, int64_t i) {
    const job *j = context;
    const nn_packed *p = j->p;
    const int64_t first = i * PANEL, columns = least(PANEL, p->out - first);
    j->v->transpose(columns, p->in, j->product->b.data + first * p->in, p->in, p->w + first * p->in,
                    nn_padded(columns));
}

/* Goes through a local buffer, as nothing may be written behind the last column. */
static void last_panel(const job *j, nn_tile x, nn_tile w, int64_t rows, int64_t columns, float *y) {
    _Alignas(64) float part[BLOCK * PANEL];
    for (int64_t row = 0; row < rows; row += BLOCK) {
        const int64_t n = least(BLOCK, rows - row);
        j->v->product(n, w.row, j->p->in, (nn_tile){x.x + row * x.row, x.row, 1}, w, (nn_tile){part, w.row, 1}, false);
        for (int64_t i = 0; i < n; i++)
            memcpy(y + (row + i) * j->p->out, part + i * w.row, (size_t)columns * sizeof *y);
    }
}

static void multiply(void *context, int64_t task) {
    const job *j = context;
    const nn_packed *p = j->p;
    const nn_product *q = j->product;
    const int64_t column = task / j->parts * PANEL, row = task % j->parts * ROWS;
    const int64_t columns = least(PANEL, p->out - column), rows = least(ROWS, q->m - row);
    const nn_tile x = {(float *)(uintptr_t)(q->a.data + row * p->in), p->in, 1};
    const nn_tile w = {p->w + column * p->in, nn_padded(columns), 1};
    float *y = q->c + row * p->out + column;
    if (columns == w.row) j->v->product(rows, columns, p->in, x, w, (nn_tile){y, p->out, 1}, false);
    else last_panel(j, x, w, rows, columns, y);
    if (q->then) q->then(q->context, row, column, rows, columns);
}

void nn_packed_product(nn_packed *p, adamod_pool *pool, const nn_product *product) {
    job j = {p, nn_vector_choose(), product, nn_parts(product->m, ROWS)};
    const int64_t panels = nn_parts(p->out, PANEL);
    if (!p->ready) nn_parallel(pool, panels, copy_panel, &j);
    p->ready = true;
    nn_parallel(pool, panels * j.parts, multiply, &j);
}
