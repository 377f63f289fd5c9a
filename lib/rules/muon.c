/* Muon's driver for matrices: momentum, which it makes nearly orthogonal by steps of Newton and Schulz, and the update. The
 * formulas before and after are in rules/muon.inc.h. */
#include "optim/matmul.h"
#include "optim/matrices.h"

#include <math.h>

enum { MOMENTUM = 1, STEP = 2 }; /* variants */

/* One matrix. x has as many numbers as the array, gram as the product of its shorter side with itself. */
typedef struct muon_matrix {
    work_context base;
    size_t item;
    matrix_shape shape;
    int64_t side; /* the shorter */
    char *x, *gram, *space;
    adamod_pool *pool;
    int thread; /* whose memory to use where there is no pool */
    double scale;
} muon_matrix;

/* ---- the workspace ---- */

/* Its three products: X X^T or X^T X, whichever is smaller; the polynomial in it; and X times that. */
typedef struct muon_products {
    product gram, square, apply;
} muon_products;

static muon_products adamod__muon_products(const muon_matrix *m, const block_source *b) {
    const double *o = b->item->options;
    const int64_t rows = m->shape.rows, cols = m->shape.cols, n = m->side;
    const bool wide = rows <= cols;
    const product_matrix x = {m->x, cols, 1}, transposed = {m->x, 1, cols}, gram = {m->gram, n, 1};
    const product any = {.type = b->compute, .kernels = b->kernels, .pool = m->pool, .space = m->space};
    muon_products all = {any, any, any};
    all.gram.m = all.gram.n = all.square.m = all.square.n = all.square.k = n;
    all.gram.k = wide ? cols : rows;
    all.gram.a = wide ? x : transposed;
    all.gram.b = wide ? transposed : x;
    all.square.a = all.square.b = gram;
    all.gram.c = all.square.c = m->gram;
    all.gram.symmetric = all.square.symmetric = true;
    all.gram.alpha = all.apply.alpha = 1;
    all.square.alpha = o[OPT_NS_C];
    all.square.beta = o[OPT_NS_B];
    all.apply.beta = o[OPT_NS_A];
    all.apply.m = rows;
    all.apply.n = cols;
    all.apply.k = n;
    all.apply.a = wide ? gram : x;
    all.apply.b = wide ? x : gram;
    all.apply.c = m->x;
    return all;
}

typedef struct muon_sizes {
    size_t x, gram, all;
} muon_sizes;

static muon_sizes adamod__muon_sizes(const work *w, const work_item *item) {
    const adamod_span *s = item->span;
    const adamod__coef_f64 none = {.variant = MOMENTUM};
    const block_source b = adamod__source(w, item, &none);
    muon_matrix m = {.shape = adamod__whole_shape(s)};
    m.side = m.shape.rows < m.shape.cols ? m.shape.rows : m.shape.cols;
    const muon_products all = adamod__muon_products(&m, &b);
    const product *const each[] = {&all.gram, &all.square, &all.apply};
    const size_t size = adamod__type_size(b.compute);
    muon_sizes sizes = {adamod__aligned((size_t)s->count * size), adamod__aligned((size_t)(m.side * m.side) * size), 0};
    for (int i = 0; i < 3; i++) {
        const size_t bytes = adamod__product_space(each[i]);
        sizes.all = bytes > sizes.all ? bytes : sizes.all;
    }
    sizes.all = adamod__more_bytes(adamod__more_bytes(sizes.all, 1, sizes.x), 1, sizes.gram);
    return sizes;
}

static bool adamod__muon_takes(const work_item *item) { return item->options[OPT_USE_MUON] != 0; }

static size_t adamod__muon_bytes(const work *w, const work_item *item) { return adamod__muon_sizes(w, item).all; }

/* ---- passes over the array ---- */

typedef struct muon_range {
    int64_t first, last;
    block_source source;
    thread_memory memory;
} muon_range;

static muon_range adamod__muon_range(const muon_matrix *m, int64_t chunk, int thread) {
    const work_context *c = &m->base;
    const work_item *item = &c->w->items[m->item];
    muon_range r = {.first = chunk * c->space->chunk};
    r.last = item->span->count - r.first < c->space->chunk ? item->span->count : r.first + c->space->chunk;
    r.source = adamod__source(c->w, item, &c->space->coefs[c->space->coef_of[m->item]]);
    r.memory = adamod__memory_of(c, m->pool ? thread : m->thread);
    return r;
}

static double *adamod__muon_partial(const muon_matrix *m, int64_t chunk) {
    return &m->base.space->partial[2 * (m->base.space->first_chunk[m->item] + chunk)];
}

static void *adamod__muon_at(const muon_matrix *m, const muon_range *r, int64_t at) {
    return m->x + (size_t)at * adamod__type_size(r->source.compute);
}

/* m, and u into x; sums of squares of u and of the gradient. */
static void adamod__muon_momentum(void *context, int64_t chunk, int thread) {
    const muon_matrix *m = context;
    const work *w = m->base.w;
    const muon_range r = adamod__muon_range(m, chunk, thread);
    const block_source *b = &r.source;
    adamod__coef_f64 coef = *b->coef;
    coef.gscale = 1;
    double *sums = adamod__muon_partial(m, chunk);
    sums[0] = sums[1] = 0;
    for (int64_t at = r.first; at < r.last; at += BLOCK) {
        block data = {.p = adamod__muon_at(m, &r, at), .n = adamod__block_length(r.last, at)};
        data.g = adamod__gradient(w, b, at, data.n, r.memory.buffer);
        data.m = (void *)(uintptr_t)adamod__read_block(w->kernels, b->compute, b->state[0], b->state_type, at, data.n,
                                                       r.memory.buffer->state[0]);
        b->update.plain(&data, &coef);
        if (b->state_type != b->compute) {
            adamod__write_block(w->kernels, b->compute, b->state[0], b->state_type, at, data.n, data.m,
                                &(block_random){b->key, 1});
        }
        sums[0] += b->kernels->sumsq(data.p, data.n, 1);
        if (w->stats) sums[1] += b->kernels->sumsq(data.g, data.n, 1);
    }
}

/* The largest number or, if m->scale is set, the sum of squares of numbers times it. */
static void adamod__muon_reduce(void *context, int64_t chunk, int thread) {
    const muon_matrix *m = context;
    const muon_range r = adamod__muon_range(m, chunk, thread);
    double *result = adamod__muon_partial(m, chunk);
    *result = 0;
    for (int64_t at = r.first; at < r.last; at += BLOCK) {
        const void *x = adamod__muon_at(m, &r, at);
        const size_t n = adamod__block_length(r.last, at);
        if (m->scale > 0) *result += r.source.kernels->sumsq(x, n, m->scale);
        else *result = adamod__larger(*result, r.source.kernels->maxabs(x, n, 1));
    }
}

/* x times scale. */
static void adamod__muon_scale(void *context, int64_t chunk, int thread) {
    const muon_matrix *m = context;
    const muon_range r = adamod__muon_range(m, chunk, thread);
    const adamod__coef_f64 coef = {.gscale = m->scale, .clip = INFINITY};
    for (int64_t at = r.first; at < r.last; at += BLOCK) {
        void *x = adamod__muon_at(m, &r, at);
        r.source.kernels->gradient(x, x, NULL, adamod__block_length(r.last, at), &coef);
    }
}

/* p, and statistics. */
static void adamod__muon_update(void *context, int64_t chunk, int thread) {
    const muon_matrix *m = context;
    const work *w = m->base.w;
    muon_range r = adamod__muon_range(m, chunk, thread);
    block_source *b = &r.source;
    stats_counts *counts = w->stats ? r.memory.counts : NULL;
    if (counts) adamod__stats_clear(counts);
    b->update = b->kernels->update[w->rule->id][STEP];
    b->state[0] = NULL; /* the momentum's */
    for (int64_t at = r.first; at < r.last; at += BLOCK) {
        adamod__update_block(w, b, at, adamod__block_length(r.last, at), r.memory.buffer, adamod__muon_at(m, &r, at),
                             NULL, counts);
    }
    if (!counts) return;
    double *sums = adamod__muon_partial(m, chunk);
    sums[0] = sums[1];
    sums[1] = counts->update_sumsq;
    adamod__stats_merge(w->stats, b->item->group, counts);
}

/* ---- one matrix ---- */

static double adamod__muon_sum(const muon_matrix *m, int64_t chunks, bool largest) {
    double sum = 0;
    for (int64_t i = 0; i < chunks; i++) {
        const double x = *adamod__muon_partial(m, i);
        sum = largest ? adamod__larger(sum, x) : sum + x;
    }
    return sum;
}

/* The norm of x, whose squares are summed already. Squares of doubles may overflow or vanish where the numbers themselves do
 * not: they are then summed again, scaled. */
static double adamod__muon_norm(muon_matrix *m, int64_t chunks) {
    const double sum = adamod__muon_sum(m, chunks, false);
    if (isfinite(sum) && sum > 1e-280) return sqrt(sum);
    adamod__pool_run(m->pool, chunks, adamod__muon_reduce, m);
    const double most = adamod__muon_sum(m, chunks, true);
    if (!isfinite(most) || most == 0) return most;
    m->scale = 1 / fmax(most, 1e-300);
    adamod__pool_run(m->pool, chunks, adamod__muon_reduce, m);
    return sqrt(adamod__muon_sum(m, chunks, false)) / m->scale;
}

static void adamod__muon_matrix(const work_context *base, size_t i, char *workspace, adamod_pool *pool, int thread) {
    const work_item *item = &base->w->items[i];
    const muon_sizes sizes = adamod__muon_sizes(base->w, item);
    const adamod__coef_f64 *coef = &base->space->coefs[base->space->coef_of[i]];
    const int64_t chunks = base->space->first_chunk[i + 1] - base->space->first_chunk[i];
    muon_matrix m = {
        .base = *base, .item = i, .shape = adamod__whole_shape(item->span), .pool = pool, .thread = thread};
    m.side = m.shape.rows < m.shape.cols ? m.shape.rows : m.shape.cols;
    m.x = workspace;
    m.gram = m.x + sizes.x;
    m.space = m.gram + sizes.gram;
    adamod__pool_run(pool, chunks, adamod__muon_momentum, &m);
    m.scale = 1 / adamod__larger(adamod__muon_norm(&m, chunks), item->options[OPT_NS_EPS]);
    adamod__pool_run(pool, chunks, adamod__muon_scale, &m);
    const block_source source = adamod__source(base->w, item, coef);
    const muon_products all = adamod__muon_products(&m, &source);
    for (int step = 0; step < (int)item->options[OPT_NS_STEPS]; step++) {
        adamod__product(&all.gram);
        adamod__product(&all.square);
        adamod__product(&all.apply);
    }
    adamod__pool_run(pool, chunks, adamod__muon_update, &m);
}

static const matrix_driver adamod__muon_matrices = {adamod__muon_takes, adamod__muon_bytes, adamod__muon_matrix};

const rule_driver adamod__muon_driver = {.run = adamod__matrices_run,
                                         .takes = 1u << MOMENTUM,
                                         .workspace = adamod__matrices_workspace,
                                         .matrices = &adamod__muon_matrices};
