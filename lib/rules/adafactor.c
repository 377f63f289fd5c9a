/* Adafactor's driver. Its update needs sums over rows, columns and the whole array before the first element can move:
 *
 *   R = beta2 R + (1 - beta2) mean over columns of (g^2 + eps1)      C likewise over rows      beta2 = 1 - t^-c
 *   u = g / sqrt(R / mean(R)) / sqrt(C)          or, with fewer than two dimensions, g / sqrt(v)
 *   u = u / max(1, rms(u) / d)                   d is clip_threshold
 *   a = lr_t max(eps2, rms(p))                   p = p - a lambda p - a u
 *
 * in four passes over the chunks of all arrays. A chunk here is a number of whole rows. */
#include "optim/update.h"
#include "kernels/half.h"

#include <math.h>
#include <string.h>

typedef struct factors {
    int64_t rows, cols; /* of one matrix; there may be many behind each other */
    bool factored;
    int64_t chunk; /* elements */
} factors;

static factors adamod__factors(const adamod_span *x, const work_space *space) {
    const matrix_shape m = adamod__matrix_shape(x);
    if (m.cols == 0) return (factors){1, x->count, false, space->chunk};
    return (factors){m.rows, m.cols, true, (space->chunk + m.cols - 1) / m.cols * m.cols};
}

/* Everything a pass needs to know of one chunk. */
typedef struct pass {
    const work *w;
    const adamod_span *x;
    adamod__coef_f64 *coef;
    factors f;
    int64_t first, last; /* elements */
    int64_t chunk;
    block_source source;
} pass;

static pass adamod__pass(const work_context *c, int64_t chunk) {
    const size_t i = adamod__find_item(c->space, c->w->n, chunk);
    const work_item *item = &c->w->items[i];
    pass p = {.w = c->w, .x = item->span, .coef = &c->space->coefs[c->space->coef_of[i]], .chunk = chunk};
    p.f = adamod__factors(p.x, c->space);
    p.first = (chunk - c->space->first_chunk[i]) * p.f.chunk;
    p.last = p.first + p.f.chunk < p.x->count ? p.first + p.f.chunk : p.x->count;
    p.source = adamod__source(c->w, item, p.coef);
    return p;
}

static double adamod__average(const pass *p, double old, double mean) {
    const double x = p->coef->beta2 * old + p->coef->beta2c * (mean + p->coef->eps);
    return adamod__saturated(x, p->source.state_type == ADAMOD_F64);
}

/* Row r's or column c's running mean: states 1 and 2 of a factored array. */
static double adamod__get(const pass *p, int state, int64_t i) {
    return adamod__state_number(p->w, &p->source, state, i);
}

static void adamod__put(const pass *p, int state, int64_t i, double mean) {
    adamod__set_state_number(p->w, &p->source, state, i, adamod__average(p, adamod__get(p, state, i), mean));
}

/* Calls body(position in block, length, row of all rows, column) for the parts of a block that lie in one row. */
#define EACH_ROW(p, at, n, j, length, row, column)                                                                     \
    for (int64_t j = 0, row, column, length;                                                                           \
         j < (int64_t)(n) &&                                                                                           \
         (row = ((at) + j) / (p)->f.cols, column = ((at) + j) % (p)->f.cols,                                           \
         length = (p)->f.cols - column < (int64_t)(n)-j ? (p)->f.cols - column : (int64_t)(n)-j, 1);                   \
         j += length)

static const void *adamod__at(const pass *p, const void *array, int64_t j) {
    return (const char *)array + (size_t)j * adamod__type_size(p->source.compute);
}

/* v of an array that is not factored. */
static void adamod__unfactored_v(const pass *p, int64_t at, size_t n, const void *g, block_buffers *buffer) {
    const block_source *b = &p->source;
    void *v = (void *)(uintptr_t)adamod__read_block(p->w->kernels, b->compute, b->state[1], b->state_type, at, n,
                                                    buffer->state[1]);
    for (size_t i = 0; i < n; i++) {
        const double x = adamod__real_at(b->compute, g, i);
        const double new = adamod__average(p, adamod__real_at(b->compute, v, i), x * x);
        if (b->compute == ADAMOD_F64) ((double *)v)[i] = new;
        else ((float *)v)[i] = (float)new;
    }
    if (b->state_type != b->compute) {
        adamod__write_block(p->w->kernels, b->compute, b->state[1], b->state_type, at, n, v,
                            &(block_random){b->key, 2});
    }
}

/* First pass: R, or v; and the sum of squares of the parameter. */
static void adamod__pass_rows(void *context, int64_t chunk, int thread) {
    const work_context *c = context;
    const pass p = adamod__pass(c, chunk);
    const real_kernels *k = p.source.kernels;
    block_buffers *buffer = adamod__memory_of(c, thread).buffer;
    double params = 0, row_sum = 0;
    for (int64_t at = p.first; at < p.last; at += BLOCK) {
        const size_t n = adamod__block_length(p.last, at);
        const void *g = adamod__gradient(p.w, &p.source, at, n, buffer);
        params += k->sumsq(adamod__param(p.w, &p.source, at, n, buffer), n, 1);
        if (!p.f.factored) {
            adamod__unfactored_v(&p, at, n, g, buffer);
            continue;
        }
        EACH_ROW(&p, at, n, j, length, row, column) {
            row_sum += k->sumsq(adamod__at(&p, g, j), (size_t)length, 1);
            if (column + length < p.f.cols) continue;
            adamod__put(&p, 1, row, row_sum / (double)p.f.cols);
            row_sum = 0;
        }
    }
    c->space->partial[2 * chunk] = params;
}

/* Second pass, one array at a time: C. A task is up to BLOCK columns of one matrix. */
typedef struct column_context {
    const work_context *base;
    size_t item;
    int64_t strips; /* in one matrix */
} column_context;

static void adamod__pass_columns(void *context, int64_t task, int thread) {
    const column_context *c = context;
    pass p = adamod__pass(c->base, c->base->space->first_chunk[c->item]);
    const int64_t matrix = task / c->strips, from = task % c->strips * BLOCK;
    const int64_t width = p.f.cols - from < BLOCK ? p.f.cols - from : BLOCK;
    /* Narrow matrices are contiguous: read several rows at once. */
    const int64_t rows_at_once = width > 0 && width == p.f.cols ? BLOCK / width : 1;
    block_buffers *buffer = adamod__memory_of(c->base, thread).buffer;
    memset(buffer->sum, 0, sizeof buffer->sum);
    for (int64_t row = 0; row < p.f.rows; row += rows_at_once) {
        const int64_t rows = p.f.rows - row < rows_at_once ? p.f.rows - row : rows_at_once;
        const int64_t at = (matrix * p.f.rows + row) * p.f.cols + from;
        const void *g = adamod__gradient(p.w, &p.source, at, (size_t)(rows * width), buffer);
        for (int64_t r = 0; r < rows; r++) {
            p.source.kernels->add_squares(buffer->sum, adamod__at(&p, g, r * width), (size_t)width);
        }
    }
    for (int64_t j = 0; j < width; j++) {
        const int64_t i = matrix * p.f.cols + from + j;
        adamod__put(&p, 2, i, buffer->sum[j] / (double)p.f.rows);
    }
}

static double adamod__mean_row(const pass *p, int64_t matrix) {
    double sum = 0;
    for (int64_t r = 0; r < p->f.rows; r++) sum += adamod__get(p, 1, matrix * p->f.rows + r);
    return sum / (double)p->f.rows;
}

/* u times scale for one block, into out; with g NULL the learning rates alone. */
static void adamod__updates(const pass *p, int64_t at, size_t n, const void *g, double scale, void *out,
                            int64_t *matrix, double *mean, block_buffers *buffer) {
    const block_source *b = &p->source;
    if (!p->f.factored) {
        const void *v =
            adamod__read_block(p->w->kernels, b->compute, b->state[1], b->state_type, at, n, buffer->state[1]);
        b->kernels->factored(out, g, v, n, scale);
        return;
    }
    EACH_ROW(p, at, n, j, length, row, column) {
        if (row / p->f.rows != *matrix) {
            *matrix = row / p->f.rows;
            *mean = adamod__mean_row(p, *matrix);
        }
        const void *cols = adamod__read_block(p->w->kernels, b->compute, p->x->state[2], b->state_type,
                                              *matrix * p->f.cols + column, (size_t)length, buffer->state[2]);
        b->kernels->factored((void *)(uintptr_t)adamod__at(p, out, j), adamod__at(p, g, j), cols, (size_t)length,
                             scale / sqrt(adamod__get(p, 1, row) / *mean));
    }
}

/* Third pass: the sum of squares of u. */
static void adamod__pass_norm(void *context, int64_t chunk, int thread) {
    const work_context *c = context;
    const pass p = adamod__pass(c, chunk);
    block_buffers *buffer = adamod__memory_of(c, thread).buffer;
    double sum = 0, mean = 0;
    int64_t matrix = -1;
    for (int64_t at = p.first; at < p.last; at += BLOCK) {
        const size_t n = adamod__block_length(p.last, at);
        const void *g = adamod__gradient(p.w, &p.source, at, n, buffer);
        adamod__updates(&p, at, n, g, 1, buffer->step, &matrix, &mean, buffer);
        sum += p.source.kernels->sumsq(buffer->step, n, 1);
    }
    c->space->partial[2 * chunk + 1] = sum;
}

/* u of a block whose learning rates are in buffer->rates, with the momental bound; buffer->sum has the rates after it. */
static void adamod__bounded_updates(const pass *p, int64_t at, size_t n, const void *g, block_buffers *buffer) {
    const block_source *b = &p->source;
    void *s = (void *)(uintptr_t)adamod__read_block(p->w->kernels, b->compute, b->state[3], b->state_type, at, n,
                                                    buffer->state[3]);
    b->kernels->bound(buffer->u, buffer->sum, s, g, buffer->rates, n, p->coef);
    if (b->state_type != b->compute) {
        adamod__write_block(p->w->kernels, b->compute, b->state[3], b->state_type, at, n, s,
                            &(block_random){b->key, 1 + 3});
    }
}

/* Fourth pass: p. coef.high is what u is to be multiplied by. */
static void adamod__pass_update(void *context, int64_t chunk, int thread) {
    const work_context *c = context;
    pass p = adamod__pass(c, chunk);
    const thread_memory memory = adamod__memory_of(c, thread);
    block_buffers *buffer = memory.buffer;
    stats_counts *counts = p.w->stats ? memory.counts : NULL;
    const bool bounded = p.source.item->options[OPT_BOUND] == BOUND_MOMENTAL;
    const block_rates rates = {buffer->rates, bounded ? buffer->sum : buffer->rates};
    double mean = 0, params = 0;
    int64_t matrix = -1;
    for (int i = 0; (counts || bounded) && i < BLOCK; i++) {
        if (p.source.compute == ADAMOD_F64) buffer->ones[i] = 1;
        else ((float *)buffer->ones)[i] = 1;
    }
    if (counts) adamod__stats_clear(counts);
    /* v and s are this driver's, not the kernel's */
    p.source.state[1] = p.source.state[2] = p.source.state[3] = NULL;
    block_source states = adamod__source(p.w, p.source.item, p.coef);
    for (int64_t at = p.first; at < p.last; at += BLOCK) {
        const size_t n = adamod__block_length(p.last, at);
        pass q = p;
        q.source = states;
        const void *g = adamod__gradient(p.w, &states, at, n, buffer);
        if (counts) params += states.kernels->sumsq(g, n, 1);
        if (counts || bounded)
            adamod__updates(&q, at, n, buffer->ones, p.coef->high, buffer->rates, &matrix, &mean, buffer);
        if (bounded) adamod__bounded_updates(&q, at, n, g, buffer);
        else adamod__updates(&q, at, n, g, p.coef->high, buffer->u, &matrix, &mean, buffer);
        adamod__update_block(p.w, &p.source, at, n, buffer, buffer->u, &rates, counts);
    }
    if (!counts) return;
    c->space->partial[2 * chunk] = params;
    c->space->partial[2 * chunk + 1] = counts->update_sumsq;
    adamod__stats_merge(p.w->stats, p.source.item->group, counts);
}

static double adamod__item_sum(const work_space *space, size_t item, int which) {
    double sum = 0;
    for (int64_t i = space->first_chunk[item]; i < space->first_chunk[item + 1]; i++)
        sum += space->partial[2 * i + which];
    return sum;
}

static void adamod__adafactor_run(const work *w, work_space *space) {
    work_context context = {w, space};
    int64_t chunks = 0;
    for (size_t i = 0; i < w->n; i++) {
        const adamod_span *x = w->items[i].span;
        const int64_t size = adamod__factors(x, space).chunk;
        space->first_chunk[i] = chunks;
        if (x->grad) chunks += (x->count + size - 1) / size;
    }
    space->first_chunk[w->n] = chunks;
    adamod__pool_run(w->pool, chunks, adamod__pass_rows, &context);
    for (size_t i = 0; i < w->n; i++) {
        const adamod_span *x = w->items[i].span;
        const factors f = adamod__factors(x, space);
        if (!x->grad || !f.factored) continue;
        column_context columns = {&context, i, (f.cols + BLOCK - 1) / BLOCK};
        adamod__pool_run(w->pool, x->count / (f.rows * f.cols) * columns.strips, adamod__pass_columns, &columns);
    }
    for (size_t i = 0; i < w->n; i++) {
        const double *o = w->items[i].options;
        const double rms = sqrt(adamod__item_sum(space, i, 0) / (double)w->items[i].span->count);
        adamod__coef_f64 *c = &space->coefs[space->coef_of[i]];
        if (o[OPT_SCALE_PARAMETER] != 0) c->lr *= fmax(o[OPT_EPS2], rms);
        if (o[OPT_DECAY] == DECAY_DECOUPLED) c->decay = c->lr * o[OPT_WEIGHT_DECAY];
    }
    adamod__pool_run(w->pool, chunks, adamod__pass_norm, &context);
    for (size_t i = 0; i < w->n; i++) {
        const double rms = sqrt(adamod__item_sum(space, i, 1) / (double)w->items[i].span->count);
        adamod__coef_f64 *c = &space->coefs[space->coef_of[i]];
        c->high = c->lr / fmax(1, rms / w->items[i].options[OPT_CLIP_THRESHOLD]);
    }
    adamod__pool_run(w->pool, chunks, adamod__pass_update, &context);
    adamod__add_partial(w, space);
}

const rule_driver adamod__adafactor_driver = {.run = adamod__adafactor_run, .takes = UINT32_MAX};
