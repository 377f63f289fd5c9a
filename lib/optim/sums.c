/* Two sums over an array before its elements can move: LAMB's norms, StableAdamW's root mean square, the numbers that
 * Prodigy estimates d from. With SUMS_FLAG set in coef.flag, the formula leaves in eta and step the numbers to be summed,
 * squared or as they are, and kernels store nothing else. Also the driver of rules that need no more: their FINISH changes
 * the coefficients by the sums of squares, and the kernels then update as usual. */
#include "optim/update.h"

typedef struct sum_context {
    work_context base;
    bool squares;
} sum_context;

static void adamod__sum_block(const work *w, const block_source *b, int64_t first, size_t n, block_buffers *buffer,
                              bool squares, double sum[2]) {
    adamod__coef_f64 coef = *b->coef;
    block data = adamod__load_block(w, b, first, n, buffer, NULL, b->transform, &coef);
    data.eta = buffer->eta;
    data.step = buffer->step;
    coef.flag |= SUMS_FLAG;
    b->update.stats(&data, &coef);
    sum[0] += squares ? b->kernels->sumsq(data.eta, n, 1) : b->kernels->sum(data.eta, n);
    sum[1] += squares ? b->kernels->sumsq(data.step, n, 1) : b->kernels->sum(data.step, n);
}

static void adamod__sum_chunk(void *context, int64_t chunk, int thread) {
    const sum_context *all = context;
    const work_context *c = &all->base;
    size_t i;
    int64_t first, last;
    adamod__chunk_range(c, chunk, &i, &first, &last);
    const block_source *b = &c->space->sources[i];
    block_buffers *buffer = adamod__memory_of(c, thread).buffer;
    double sum[2] = {0, 0};
    for (int64_t at = first; at < last; at += BLOCK) {
        adamod__sum_block(c->w, b, at, adamod__block_length(last, at), buffer, all->squares, sum);
    }
    c->space->partial[2 * chunk] = sum[0];
    c->space->partial[2 * chunk + 1] = sum[1];
}

void adamod__sum_arrays(const work *w, work_space *space, bool squares) {
    sum_context context = {{w, space}, squares};
    adamod__pool_run(w->pool, adamod__lay_given(w, space), adamod__sum_chunk, &context);
}

void adamod__array_sums(const work_space *space, size_t item, double sum[2]) {
    sum[0] = sum[1] = 0;
    for (int64_t chunk = space->first_chunk[item]; chunk < space->first_chunk[item + 1]; chunk++) {
        sum[0] += space->partial[2 * chunk];
        sum[1] += space->partial[2 * chunk + 1];
    }
}

static void adamod__sums_run(const work *w, work_space *space) {
    adamod__sum_arrays(w, space, true);
    for (size_t i = 0; i < w->n; i++) {
        double sum[2];
        adamod__array_sums(space, i, sum);
        const work_item *item = &w->items[i];
        if (!item->span->grad || item->span->count == 0) continue;
        w->rule->finish(item->options, sum, item->span->count, &space->coefs[space->coef_of[i]]);
    }
}

const rule_driver adamod__sums_driver = {.run = adamod__sums_run};
