/* One update of many arrays: cut into chunks for threads and blocks for kernels, converted where types ask for it. */
#include "optim/update.h"
#include "kernels/half.h"
#include "kernels/q8.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- blocks ---- */

static const real_kernels *adamod__reals(const kernel_set *kernels, adamod_type compute) {
    return compute == ADAMOD_F64 ? kernels->f64 : kernels->f32;
}

const void *adamod__read_block(const kernel_set *kernels, adamod_type compute, const void *array, adamod_type type,
                               int64_t first, size_t n, void *buffer) {
    const void *from = (const char *)array + (size_t)first * adamod__type_size(type);
    if (type == compute) return from;
    const real_kernels *k = adamod__reals(kernels, compute);
    if (type == ADAMOD_BF16) k->load_bf16(buffer, from, n);
    if (type == ADAMOD_F16) k->load_f16(buffer, from, n);
    for (size_t i = 0; type == ADAMOD_F32 && i < n; i++) ((double *)buffer)[i] = adamod__real_at(ADAMOD_F32, from, i);
    for (size_t i = 0; type == ADAMOD_F64 && i < n; i++) {
        ((float *)buffer)[i] = (float)adamod__real_at(ADAMOD_F64, from, i);
    }
    return buffer;
}

void adamod__write_block(const kernel_set *kernels, adamod_type compute, void *array, adamod_type type, int64_t first,
                         size_t n, const void *buffer, const block_random *random) {
    const real_kernels *k = adamod__reals(kernels, compute);
    uint16_t *to = (uint16_t *)array + first;
    if (!random) {
        (type == ADAMOD_BF16 ? k->store_bf16 : k->store_f16)(to, buffer, n);
        return;
    }
    (type == ADAMOD_BF16 ? k->store_bf16_random
                         : k->store_f16_random)(to, buffer, n, adamod__block_key(random->key, first), random->slot);
}

/* Names the random numbers of one array's update. */
static uint64_t adamod__random_key(const work_item *item) {
    return adamod__array_key((uint64_t)item->options[OPT_SEED], item->span->stream, item->span->step);
}

/* Element 0 of state i in this update: a queue advances by one array each time. */
static void *adamod__state_base(const work_item *item, adamod_type type, int i, bool queue) {
    char *base = item->span->state[i];
    if (!base || !queue) return base;
    const int64_t turn = (item->span->step - 1) % (int64_t)item->options[OPT_WINDOW];
    return base + (size_t)(turn * item->span->count) * adamod__type_size(type);
}

/* The kernel that takes arrays of these types as they are; NULL: they are converted before and after. */
static update_fn adamod__low_kernel(const block_source *b, const adamod_span *x) {
    bool bf16 = x->grad_type == ADAMOD_BF16, f32 = true; /* the states; and the gradient */
    for (int i = 0; i < KERNEL_STATES; i++) {
        bf16 = bf16 && (!b->state[i] || b->state_type == ADAMOD_BF16);
        f32 = f32 && (!b->state[i] || b->state_type == ADAMOD_F32);
    }
    if (x->param_type != ADAMOD_BF16) return NULL;
    if (!x->master) return bf16 ? b->update.bf16 : NULL;
    return f32 && (x->grad_type == ADAMOD_BF16 || x->grad_type == ADAMOD_F32) ? b->update.master : NULL;
}

block_source adamod__source(const work *w, const work_item *item, const adamod__coef_f64 *coef) {
    const adamod_span *x = item->span;
    block_source b = {.item = item, .coef = coef, .compute = adamod__compute_type(x->param_type)};
    b.kernels = adamod__reals(w->kernels, b.compute);
    b.state_type = x->state_type == ADAMOD_BF16 || x->state_type == ADAMOD_Q8 ? x->state_type : b.compute;
    for (int k = 0; k < w->rule->n_states; k++) {
        const adamod_rule_state *s = &w->rule->states[k];
        const bool queue = s->shape == ADAMOD_SHAPE_QUEUE;
        if (s->index >= KERNEL_STATES || (s->shape != ADAMOD_SHAPE_SAME && !queue)) continue;
        if (!adamod__has_state(w->rule, item->options, x->ndim, s)) continue;
        b.state[s->index] = adamod__state_base(item, b.state_type, s->index, queue);
        b.scale[s->index] = x->scale[s->index];
        b.q8[s->index] = (uint8_t)adamod__q8_kind(adamod__signed_states(w->rule), s->index, coef->idle == 0);
    }
    b.transform = coef->l2 != 0 || coef->clip < INFINITY;
    b.update = b.kernels->update[w->rule->id][coef->variant];
    b.key = adamod__random_key(item);
    b.low = adamod__low_kernel(&b, x);
    return b;
}

static double adamod__distance_squared(adamod_type type, const void *a, const void *b, size_t n) {
    double sum = 0;
    for (size_t i = 0; i < n; i++) {
        const double d = adamod__real_at(type, a, i) - adamod__real_at(type, b, i);
        sum += d * d;
    }
    return sum;
}

/* Copies elements of the parameter that the user changed since the last update to the master: those that differ from the
 * rounded master, bit for bit. NaN needs no special case, since it always rounds to the same bits. */
static void adamod__follow_param(const work *w, const adamod_span *x, int64_t first, size_t n, float *buffer) {
    const uint16_t *param = (const uint16_t *)x->param + first;
    float *master = (float *)x->master + first;
    uint16_t rounded[BLOCK];
    adamod__write_block(w->kernels, ADAMOD_F32, rounded, x->param_type, 0, n, master, NULL);
    if (memcmp(rounded, param, n * sizeof *param) == 0) return;
    (void)adamod__read_block(w->kernels, ADAMOD_F32, param, x->param_type, 0, n, buffer);
    for (size_t i = 0; i < n; i++) master[i] = rounded[i] == param[i] ? master[i] : buffer[i];
}

void *adamod__param(const work *w, const block_source *b, int64_t first, size_t n, block_buffers *buffer) {
    const adamod_span *x = b->item->span;
    if (x->master) {
        adamod__follow_param(w, x, first, n, (float *)(void *)buffer->p);
        return (float *)x->master + first;
    }
    return (void *)(uintptr_t)adamod__read_block(w->kernels, b->compute, x->param, x->param_type, first, n, buffer->p);
}

const void *adamod__gradient(const work *w, const block_source *b, int64_t first, size_t n, block_buffers *buffer) {
    const adamod_span *x = b->item->span;
    const void *g = adamod__read_block(w->kernels, b->compute, x->grad, x->grad_type, first, n, buffer->g);
    const void *p = b->coef->l2 == 0 ? NULL : adamod__param(w, b, first, n, buffer);
    b->kernels->gradient(buffer->g, g, p, n, b->coef);
    return buffer->g;
}

static void adamod__update_with_counts(const work *w, const block_source *b, const block *data,
                                       const adamod__coef_f64 *coef, const block_rates *rates, void *before,
                                       stats_counts *counts) {
    memcpy(before, data->p, data->n * adamod__type_size(b->compute));
    counts->grad_sumsq += b->kernels->sumsq(data->g, data->n, 1);
    b->update.stats(data, coef);
    counts->update_sumsq += adamod__distance_squared(b->compute, data->p, before, data->n);
    adamod__stats_add(w->stats, counts, b->compute, rates ? rates->eta : data->eta, rates ? rates->step : data->step,
                      rates ? NULL : data->v, data->n);
    adamod__stats_nonfinite(counts, b->compute, data);
}

/* Converted by the kernel itself. */
static void adamod__update_low(const block_source *b, int64_t first, size_t n) {
    const adamod_span *x = b->item->span;
    const size_t size = adamod__type_size(b->state_type), g_size = adamod__type_size(x->grad_type);
    uint16_t *param = (uint16_t *)x->param + first;
    void *state[KERNEL_STATES];
    for (int i = 0; i < KERNEL_STATES; i++) state[i] = b->state[i] ? (char *)b->state[i] + (size_t)first * size : NULL;
    const block data = {.p = x->master ? (void *)((float *)x->master + first) : param,
                        .g = (const char *)x->grad + (size_t)first * g_size,
                        .m = state[0],
                        .v = state[1],
                        .s = state[2],
                        .t = state[3],
                        .u = state[4],
                        .n = n,
                        .key = adamod__block_key(b->key, first),
                        .half = x->master ? param : NULL,
                        .half_g = x->grad_type == ADAMOD_BF16};
    b->low(&data, b->coef);
}

/* State i as the rule reads it: the array itself or buffer. */
static void *adamod__read_state(const work *w, const block_source *b, int i, int64_t first, size_t n, void *buffer) {
    if (b->state_type != ADAMOD_Q8) {
        return (void *)(uintptr_t)adamod__read_block(w->kernels, b->compute, b->state[i], b->state_type, first, n,
                                                     buffer);
    }
    b->kernels->load_q8(buffer, (const uint8_t *)b->state[i] + first, b->scale[i] + first / Q8_BLOCK, n, b->q8[i]);
    return buffer;
}

static void adamod__write_state(const work *w, const block_source *b, int i, int64_t first, size_t n,
                                const void *buffer) {
    if (b->state_type != ADAMOD_Q8) {
        adamod__write_block(w->kernels, b->compute, b->state[i], b->state_type, first, n, buffer,
                            &(block_random){b->key, 1 + i});
        return;
    }
    b->kernels->store_q8((uint8_t *)b->state[i] + first, b->scale[i] + first / Q8_BLOCK, buffer, n, b->q8[i],
                         adamod__block_key(b->key, first), 1 + i);
}

static void adamod__write_states(const work *w, const block_source *b, int64_t first, const block *data) {
    const void *const state[KERNEL_STATES] = {data->m, data->v, data->s, data->t, data->u};
    for (int i = 0; i < KERNEL_STATES; i++) {
        if (state[i]) adamod__write_state(w, b, i, first, data->n, state[i]);
    }
}

double adamod__state_number(const work *w, const block_source *b, int state, int64_t i) {
    double buffer[1];
    const void *at =
        adamod__read_block(w->kernels, b->compute, b->item->span->state[state], b->state_type, i, 1, buffer);
    return adamod__real_at(b->compute, at, 0);
}

void adamod__set_state_number(const work *w, const block_source *b, int state, int64_t i, double value) {
    char *array = b->item->span->state[state];
    double buffer[1];
    if (b->compute == ADAMOD_F64) memcpy(buffer, &value, sizeof value);
    else memcpy(buffer, &(float){(float)value}, sizeof(float));
    if (b->state_type == b->compute) {
        const size_t size = adamod__type_size(b->compute);
        memcpy(array + (size_t)i * size, buffer, size);
    } else {
        adamod__write_block(w->kernels, b->compute, array, b->state_type, i, 1, buffer,
                            &(block_random){b->key, 1 + state % KERNEL_STATES});
    }
}

block adamod__load_block(const work *w, const block_source *b, int64_t first, size_t n, block_buffers *buffer,
                         const void *u, bool shaped, adamod__coef_f64 *coef) {
    const adamod_span *x = b->item->span;
    block data = {.n = n, .g = u};
    if (u || shaped) coef->gscale = 1;
    if (!u && shaped) data.g = adamod__gradient(w, b, first, n, buffer);
    else if (!u) data.g = adamod__read_block(w->kernels, b->compute, x->grad, x->grad_type, first, n, buffer->g);
    data.p = adamod__param(w, b, first, n, buffer);
    void **state[KERNEL_STATES] = {&data.m, &data.v, &data.s, &data.t, &data.u};
    for (int i = 0; i < KERNEL_STATES; i++) {
        if (b->state[i]) *state[i] = adamod__read_state(w, b, i, first, n, buffer->state[i]);
    }
    return data;
}

void adamod__update_block(const work *w, const block_source *b, int64_t first, size_t n, block_buffers *buffer,
                          const void *u, const block_rates *rates, stats_counts *counts) {
    if (b->low && !u && !b->transform && !counts) {
        adamod__update_low(b, first, n);
        return;
    }
    const adamod_span *x = b->item->span;
    adamod__coef_f64 coef = *b->coef;
    block data = adamod__load_block(w, b, first, n, buffer, u, b->transform || counts, &coef);
    if (counts) { /* else there may be more elements than a buffer has */
        data.eta = buffer->eta;
        data.step = buffer->step;
        adamod__update_with_counts(w, b, &data, &coef, rates, buffer->before, counts);
    } else {
        b->update.plain(&data, &coef);
    }
    if (b->state_type != b->compute) adamod__write_states(w, b, first, &data);
    if (x->param_type != b->compute) {
        adamod__write_block(w->kernels, b->compute, x->param, x->param_type, first, n, data.p,
                            x->master ? NULL : &(block_random){b->key, 0});
    }
}

/* Whether a kernel takes the arrays where they lie, without buffers, so that the number of elements does not matter. */
static bool adamod__as_it_is(const block_source *b, const stats_counts *counts) {
    const adamod_span *x = b->item->span;
    if (b->transform || counts) return false;
    if (b->low) return true;
    bool same = !x->master && x->param_type == b->compute && x->grad_type == b->compute;
    for (int i = 0; i < KERNEL_STATES; i++) same = same && (!b->state[i] || b->state_type == b->compute);
    return same;
}

/* ---- chunks ---- */

size_t adamod__find_item(const work_space *space, size_t n, int64_t chunk) {
    size_t low = 0, high = n; /* first_chunk[low] <= chunk < first_chunk[high] */
    while (high - low > 1) {
        const size_t middle = low + (high - low) / 2;
        if (space->first_chunk[middle] <= chunk) low = middle;
        else high = middle;
    }
    return low;
}

/* Makes room for n elements, if there is not enough. */
static void *adamod__grow(void *old, size_t *capacity, size_t n, size_t size) {
    if (n <= *capacity) return old;
    void *grown = adamod__resize(old, n, size);
    if (grown) *capacity = n;
    return grown;
}

static bool adamod__same_coefs(const work_item *a, const work_item *b) {
    return a->options == b->options && a->span->step == b->span->step && a->base_lr == b->base_lr &&
           a->grad_scale == b->grad_scale;
}

/* The rule's driver, or what cautious steps need; NULL: none. */
static const rule_driver *adamod__driver_of(const work *w) {
    if (!w->rule || w->rule->driver || !w->rule->cautious) return w->rule ? w->rule->driver : NULL;
    for (size_t i = 0; i < w->n; i++) {
        if (w->items[i].options[OPT_CAUTIOUS] != 0) return &adamod__sums_driver;
    }
    return NULL;
}

/* Whether item i has other coefficients than the one before. */
static bool adamod__new_coefs(const work *w, const work_space *space, size_t i) {
    return i == 0 || space->driver || !adamod__same_coefs(&w->items[i], &w->items[i - 1]);
}

/* A chunk is large enough to be worth a thread's while and small enough that all threads end together. Its size follows
 * from the arrays alone, not from the threads, since sums are taken chunk by chunk. */
int64_t adamod__chunk_size(int64_t total) {
#ifdef FUZZING_BUILD_MODE_UNSAFE_FOR_PRODUCTION
    enum { LEAST = BLOCK, CHUNKS = 1024 }; /* a fuzzer has no time for arrays that are worth a thread's while */
#else
    enum { LEAST = 8192, CHUNKS = 1024 };
#endif
    const int64_t chunk = total / CHUNKS < LEAST ? LEAST : total / CHUNKS;
    return (chunk + BLOCK - 1) / BLOCK * BLOCK;
}

static bool adamod__reserve_workspace(const work *w, work_space *space) {
    const rule_driver *driver = space->driver;
    const size_t bytes = driver && driver->workspace ? driver->workspace(w) : 0;
    if (bytes <= space->workspace_bytes) return true;
    if (bytes > SIZE_MAX - 63) return false;
    void *grown = aligned_alloc(64, (bytes + 63) / 64 * 64);
    if (!grown) return false;
    free(space->workspace);
    space->workspace = grown;
    space->workspace_bytes = bytes;
    return true;
}

adamod_status adamod__work_reserve(const work *w, work_space *space) {
    size_t coefs = 0;
    space->driver = adamod__driver_of(w);
    for (size_t i = 0; i < w->n; i++) coefs += adamod__new_coefs(w, space, i);
    int64_t total = 0, chunks = 0;
    for (size_t i = 0; i < w->n; i++) { /* frozen arrays count, which need not be there */
        if (__builtin_add_overflow(total, w->items[i].span->count, &total)) total = INT64_MAX;
    }
    space->chunk = adamod__chunk_size(total);
    for (size_t i = 0; i < w->n; i++) chunks += (w->items[i].span->count + space->chunk - 1) / space->chunk;
    size_t items = space->items, more = space->items, most = space->items;
    void *p;
#define GROW(array, capacity, n, each)                                                                                 \
    ((p = adamod__grow(space->array, capacity, n, (each) * sizeof *space->array)) && (space->array = p))
    if (GROW(first_chunk, &items, w->n + 1, 1) && GROW(coef_of, &more, w->n + 1, 1) &&
        GROW(sources, &most, w->n + 1, 1)) {
        space->items = items;
        const bool all = GROW(coefs, &space->n_coefs, coefs + 1, 1) &&
                         GROW(partial, &space->chunks, (size_t)chunks + 1, 2) && adamod__reserve_workspace(w, space);
        thread_memory *own = &space->caller;
        if (all && !own->buffer) own->buffer = aligned_alloc(64, sizeof *own->buffer);
        if (all && w->stats && !own->counts) own->counts = malloc(sizeof *own->counts);
        if (all && own->buffer && (own->counts || !w->stats)) return ADAMOD_OK;
    }
#undef GROW
    return adamod__fail(ADAMOD_ERROR_MEMORY, "out of memory updating %zu arrays", w->n);
}

void adamod__work_free(work_space *space) {
    free(space->first_chunk);
    free(space->coef_of);
    free(space->coefs);
    free(space->sources);
    free(space->partial);
    free(space->workspace);
    free(space->caller.buffer);
    free(space->caller.counts);
    *space = (work_space){0};
}

typedef bool (*takes_part_fn)(const work *w, const work_space *space, size_t item);

static bool adamod__has_gradient(const work *w, const work_space *space, size_t item) {
    (void)space;
    return w->items[item].span->grad != NULL;
}

static bool adamod__kernels_update(const work *w, const work_space *space, size_t item) {
    return w->items[item].span->grad && !adamod__driver_takes(w, &space->coefs[space->coef_of[item]]);
}

/* Lays out the chunks of each item; items that take no part have none. */
static int64_t adamod__lay_chunks(const work *w, work_space *space, takes_part_fn takes_part) {
    int64_t chunks = 0;
    for (size_t i = 0; i < w->n; i++) {
        const adamod_span *x = w->items[i].span;
        space->first_chunk[i] = chunks;
        if (takes_part(w, space, i)) chunks += (x->count + space->chunk - 1) / space->chunk;
    }
    space->first_chunk[w->n] = chunks;
    return chunks;
}

static void adamod__lay_coefs(const work *w, work_space *space) {
    int64_t last = -1;
    for (size_t i = 0; i < w->n; i++) {
        if (adamod__new_coefs(w, space, i)) {
            const work_item *x = &w->items[i];
            const matrix_shape shape = adamod__matrix_shape(x->span);
            const step_info info = {x->span->step, x->base_lr, shape.rows, shape.cols, shape.first, x->span->count};
            adamod__coefs(w->rule, x->options, &info, x->grad_scale, &space->coefs[++last]);
        }
        space->coef_of[i] = last;
    }
}

static void adamod__lay_sources(const work *w, work_space *space) {
    for (size_t i = 0; i < w->n; i++) {
        const work_item *x = &w->items[i];
        if (x->span->grad) space->sources[i] = adamod__source(w, x, &space->coefs[space->coef_of[i]]);
    }
}

int64_t adamod__lay_given(const work *w, work_space *space) {
    return adamod__lay_chunks(w, space, adamod__has_gradient);
}

void adamod__chunk_range(const work_context *c, int64_t chunk, size_t *item, int64_t *first, int64_t *last) {
    *item = adamod__find_item(c->space, c->w->n, chunk);
    *first = (chunk - c->space->first_chunk[*item]) * c->space->chunk;
    *last = *first + c->space->chunk;
    const int64_t count = c->w->items[*item].span->count;
    if (*last > count) *last = count;
}

static void adamod__update_chunk(void *context, int64_t chunk, int thread) {
    const work_context *c = context;
    size_t i;
    int64_t first, last;
    adamod__chunk_range(c, chunk, &i, &first, &last);
    const work_item *item = &c->w->items[i];
    const block_source *source = &c->space->sources[i];
    const thread_memory memory = adamod__memory_of(c, thread);
    stats_counts *counts = c->w->stats ? memory.counts : NULL;
    if (counts) adamod__stats_clear(counts);
    const int64_t size = adamod__as_it_is(source, counts) ? last - first : BLOCK;
    for (int64_t at = first; at < last; at += size) {
        const size_t n = last - at < size ? (size_t)(last - at) : (size_t)size;
        adamod__update_block(c->w, source, at, n, memory.buffer, NULL, NULL, counts);
    }
    if (!counts) return;
    c->space->partial[2 * chunk] = counts->grad_sumsq;
    c->space->partial[2 * chunk + 1] = counts->update_sumsq;
    adamod__stats_merge(c->w->stats, item->group, counts);
}

void adamod__add_partial(const work *w, const work_space *space) {
    for (size_t i = 0; w->stats && i < w->n; i++) {
        stats_counts *group = &w->stats->groups[w->items[i].group];
        for (int64_t chunk = space->first_chunk[i]; chunk < space->first_chunk[i + 1]; chunk++) {
            group->grad_sumsq += space->partial[2 * chunk];
            group->update_sumsq += space->partial[2 * chunk + 1];
        }
    }
}

/* ---- sums over gradients ---- */

typedef struct reduce_context {
    work_context base;
    double scale; /* besides each item's own */
    bool largest;
    bool outside; /* sums are scaled, not what is summed: squares of f32 gradients are exact then */
} reduce_context;

static double adamod__combine(double sum, double x, bool largest) { return largest ? adamod__larger(sum, x) : sum + x; }

static void adamod__reduce_chunk(void *context, int64_t chunk, int thread) {
    const reduce_context *c = context;
    size_t i;
    int64_t first, last;
    adamod__chunk_range(&c->base, chunk, &i, &first, &last);
    const work_item *item = &c->base.w->items[i];
    const adamod_span *x = item->span;
    const adamod_type compute = x->grad_type == ADAMOD_F64 ? ADAMOD_F64 : ADAMOD_F32;
    const real_kernels *k = adamod__reals(c->base.w->kernels, compute);
    double (*const reduce)(const void *, size_t, double) = c->largest ? k->maxabs : k->sumsq;
    double *buffer = adamod__memory_of(&c->base, thread).buffer->g;
    const double scale = item->grad_scale * c->scale;
    double sum = 0;
    for (int64_t at = first; at < last; at += BLOCK) {
        const size_t n = adamod__block_length(last, at);
        const void *g = adamod__read_block(c->base.w->kernels, compute, x->grad, x->grad_type, at, n, buffer);
        sum = adamod__combine(sum, reduce(g, n, c->outside ? 1 : scale), c->largest);
    }
    c->base.space->partial[chunk] = c->outside ? sum * (scale * scale) : sum;
}

/* Combines the chunks in 32 lanes, in the order of a GPU's warp. */
static double adamod__add_chunks(const double *partial, int64_t n, bool largest) {
    double sum[32] = {0};
    for (int64_t i = 0; i < n; i++) sum[i % 32] = adamod__combine(sum[i % 32], partial[i], largest);
    for (int step = 16; largest && step > 0; step /= 2) {
        for (int i = 0; i < step; i++) sum[i] = adamod__combine(sum[i], sum[i + step], true);
    }
    if (largest) return sum[0];
    for (int i = 0; i < 8; i++) sum[i] = (sum[i] + sum[i + 8]) + (sum[i + 16] + sum[i + 24]);
    return ((sum[0] + sum[1]) + (sum[2] + sum[3])) + ((sum[4] + sum[5]) + (sum[6] + sum[7]));
}

static double adamod__reduce(const work *w, work_space *space, double scale, bool largest, bool outside) {
    reduce_context context = {{w, space}, scale, largest, outside};
    const int64_t chunks = adamod__lay_given(w, space);
    adamod__pool_run(w->pool, chunks, adamod__reduce_chunk, &context);
    return adamod__add_chunks(space->partial, chunks, largest);
}

double adamod__work_norm(const work *w, work_space *space) {
    const double sum = adamod__reduce(w, space, 1, false, true);
    if (isfinite(sum) && sum > 1e-280) return sqrt(sum);
    /* Squares of doubles may overflow or vanish where the numbers themselves do not. */
    const double most = adamod__reduce(w, space, 1, true, false);
    if (!isfinite(most) || most == 0) return most;
    const double scale = 1 / fmax(most, 1e-300); /* finite also where most is subnormal */
    return sqrt(adamod__reduce(w, space, scale, false, false)) / scale;
}

double adamod__work_largest(const work *w, work_space *space) { return adamod__reduce(w, space, 1, true, false); }

/* ---- the update ---- */

void adamod__work_run(const work *w, work_space *space) {
    work_context context = {w, space};
    adamod__lay_coefs(w, space);
    adamod__lay_sources(w, space);
    if (space->driver) space->driver->run(w, space);
    const int64_t chunks = adamod__lay_chunks(w, space, adamod__kernels_update);
    adamod__pool_run(w->pool, chunks, adamod__update_chunk, &context);
    adamod__add_partial(w, space);
}
