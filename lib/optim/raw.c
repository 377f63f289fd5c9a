/* The raw interface: updates of arrays the caller owns. */
#include "optim/internal.h"
#include "kernels/q8.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

/* In a struct a double may be aligned to less than its size: to 4 bytes on 32-bit x86. */
bool adamod__misaligned(const void *p, adamod_type type) {
    struct member {
        char before;
        double x;
    };
    return (uintptr_t)p % (type == ADAMOD_F64 ? offsetof(struct member, x) : adamod__type_size(type)) != 0;
}

static adamod_status adamod__check_type(const char *name, const char *what, adamod_type type) {
    if (adamod__is_real(type)) return ADAMOD_OK;
    return adamod__refuse("%s: %s is %d, expected ADAMOD_F32, _F64, _BF16 or _F16", name, what, (int)type);
}

adamod_status adamod__check_arrays(const adamod_span *x, const char *name) {
    ADAMOD__TRY(adamod__check_type(name, "param_type", x->param_type));
    ADAMOD__TRY(adamod__check_type(name, "grad_type", x->grad_type));
    if (x->count > 0 && !x->param) return adamod__refuse("%s: param is NULL", name);
    if (adamod__misaligned(x->param, x->param_type) || adamod__misaligned(x->grad, x->grad_type)) {
        return adamod__refuse("%s: %s is not aligned to its elements", name,
                              adamod__misaligned(x->param, x->param_type) ? "param" : "grad");
    }
    const size_t n = (size_t)x->count;
    if (adamod__overlap(x->param, n * adamod__type_size(x->param_type), x->grad, n * adamod__type_size(x->grad_type))) {
        return adamod__refuse("%s: param and grad overlap", name);
    }
    return ADAMOD_OK;
}

enum { SPAN_ARRAYS = 3 + 2 * ADAMOD_MAX_STATES };

static int adamod__lower_address(const void *a, const void *b) {
    const uintptr_t x = (uintptr_t)((const array_ref *)a)->data, y = (uintptr_t)((const array_ref *)b)->data;
    return x < y ? -1 : x > y;
}

/* In the order of addresses, an array overlaps one before it iff it begins before the furthest end so far. */
bool adamod__find_overlap(array_ref *arrays, size_t n, const array_ref **first, const array_ref **second) {
    const array_ref *any = NULL, *written = NULL; /* those that reach furthest */
    qsort(arrays, n, sizeof *arrays, adamod__lower_address);
    for (size_t i = 0; i < n; i++) {
        const array_ref *a = &arrays[i], *b = a->written ? any : written;
        if (b && adamod__overlap(a->data, a->bytes, b->data, b->bytes)) {
            const bool swap = a->owner > b->owner || (a->owner == b->owner && a->order > b->order);
            *first = swap ? b : a;
            *second = swap ? a : b;
            return true;
        }
        if (!any || a->data + a->bytes > any->data + any->bytes) any = a;
        if (a->written && (!written || a->data + a->bytes > written->data + written->bytes)) written = a;
    }
    return false;
}

static adamod_status adamod__check_disjoint(array_ref *arrays, size_t n) {
    const array_ref *a, *b;
    if (!adamod__find_overlap(arrays, n, &a, &b)) return ADAMOD_OK;
    if (a->owner == b->owner) return adamod__refuse("span %zu: %s and %s overlap", a->owner, a->name, b->name);
    return adamod__refuse("%s of span %zu and %s of span %zu overlap", a->name, a->owner, b->name, b->owner);
}

static adamod_status adamod__check_count(const adamod_span *x, const char *name) {
    if (adamod__element_count(1, &x->count) >= 0) return ADAMOD_OK;
    return adamod__refuse("%s: count is %lld, expected 0 <= count < 2^%d", name, (long long)x->count,
                          ADAMOD__COUNT_BITS);
}

static adamod_status adamod__check_size(const adamod_span *x, const char *name) {
    ADAMOD__TRY(adamod__check_count(x, name));
    ADAMOD__TRY(adamod__check_shape(name, x->ndim, x->shape));
    const int64_t count = x->ndim ? adamod__element_count(x->ndim, x->shape) : x->count;
    if (count == x->count) return ADAMOD_OK;
    return adamod__refuse("%s: count is %lld, its shape gives %lld", name, (long long)x->count, (long long)count);
}

static bool adamod__has_q8_states(const rule *r, const adamod_span *x) { return x->state_type == ADAMOD_Q8 && r->q8; }

/* Checks sizes, types, step and master of a span. */
static adamod_status adamod__check_span_kind(const rule *r, const double *options, const adamod_span *x,
                                             const char *name) {
    ADAMOD__TRY(adamod__check_size(x, name));
    ADAMOD__TRY(adamod__check_arrays(x, name));
    const adamod_type compute = adamod__compute_type(x->param_type);
    const bool q8 = adamod__has_q8_states(r, x);
    if (x->state_type != compute && x->state_type != ADAMOD_BF16 && !q8) {
        return adamod__refuse("%s: state_type is %s, expected %s or bf16%s", name, adamod__type_name(x->state_type),
                              adamod__type_name(compute), r->q8 ? " or q8" : "");
    }
    if (q8) ADAMOD__TRY(adamod__check_q8_options(r, options, name));
    if (x->step < 1)
        return adamod__fail(ADAMOD_ERROR_RANGE, "%s: step is %lld, expected 1 or more", name, (long long)x->step);
    if (adamod__misaligned(x->master, ADAMOD_F32)) {
        return adamod__refuse("%s: master is not aligned to its elements", name);
    }
    if (x->master && adamod__type_size(x->param_type) != 2) {
        return adamod__refuse("%s: %s parameters take no master", name, adamod__type_name(x->param_type));
    }
    return ADAMOD_OK;
}

/* Arrays of all spans, for the check that none overlap. */
typedef struct array_list {
    array_ref *at;
    size_t n;
} array_list;

/* Checks state i of a span, and its scales if q8; adds them to the list. */
static adamod_status adamod__check_span_state(const adamod_span *x, int i, const adamod_state_desc *desc, bool q8,
                                              const char *name, size_t index, array_list *list) {
    if (!x->state[i]) return adamod__refuse("%s: state[%d], %s, is NULL", name, i, desc->name);
    if (adamod__misaligned(x->state[i], x->state_type)) {
        return adamod__refuse("%s: %s is not aligned to its elements", name, desc->name);
    }
    const size_t bytes = (size_t)desc->count * adamod__type_size(x->state_type);
    list->at[list->n++] = (array_ref){desc->name, x->state[i], bytes, index, 3 + i, true};
    if (!q8) return ADAMOD_OK;
    if (!x->scale[i] || adamod__misaligned(x->scale[i], ADAMOD_F32)) {
        return adamod__refuse("%s: scale[%d], of %s, is %s", name, i, desc->name,
                              x->scale[i] ? "not aligned to its elements" : "NULL");
    }
    const size_t scales = ((size_t)desc->count + ADAMOD_Q8_BLOCK - 1) / ADAMOD_Q8_BLOCK;
    list->at[list->n++] =
        (array_ref){"scale", x->scale[i], scales * sizeof(float), index, 3 + ADAMOD_MAX_STATES + i, true};
    return ADAMOD_OK;
}

/* Checks one span, except for overlaps, and adds its arrays to the list. */
static adamod_status adamod__check_span(const rule *r, const double *options, const adamod_span *x, size_t index,
                                        array_list *list) {
    char name[40];
    snprintf(name, sizeof name, "span %zu", index);
    ADAMOD__TRY(adamod__check_span_kind(r, options, x, name));
    const size_t n = (size_t)x->count;
    const array_ref own[3] = {{"param", x->param, n * adamod__type_size(x->param_type), index, 0, true},
                              {"grad", x->grad, n * adamod__type_size(x->grad_type), index, 1, false},
                              {"master", x->master, n * sizeof(float), index, 2, true}};
    for (int i = 0; i < 3; i++) {
        if (own[i].data && own[i].bytes) list->at[list->n++] = own[i];
    }
    state_spec specs[ADAMOD_MAX_STATES];
    const int ndim = x->ndim ? x->ndim : 1;
    const int64_t *shape = x->ndim ? x->shape : &x->count;
    const bool q8 = adamod__has_q8_states(r, x);
    adamod__states(r, options, x->ndim, specs);
    for (int i = 0; i < ADAMOD_MAX_STATES; i++) {
        adamod_state_desc desc;
        ADAMOD__TRY(adamod__state_size(&specs[i], options, ndim, shape, &desc));
        if (!desc.name || desc.count == 0) continue;
        ADAMOD__TRY(adamod__check_span_state(x, i, &desc, q8, name, index, list));
    }
    return ADAMOD_OK;
}

static work_item *adamod__raw_items(const adamod_span *spans, size_t n, const double *options) {
    work_item *items = n < SIZE_MAX ? adamod__resize(NULL, n + 1, sizeof *items) : NULL;
    for (size_t i = 0; items && i < n; i++) {
        items[i] =
            (work_item){&spans[i], options, options ? options[OPT_LR] : 0, options ? options[OPT_GRAD_SCALE] : 1, 0};
    }
    if (!items) adamod__fail(ADAMOD_ERROR_MEMORY, "out of memory for %zu arrays", n);
    return items;
}

/* Checks that a span can be computed with its options. *known has the options that were checked last, in f32 or f64. */
typedef struct checked_numbers {
    const adamod_hyper *hyper;
    bool in[RANGE_TYPES];
} checked_numbers;
static adamod_status adamod__check_span_numbers(const adamod_hyper *h, const adamod_span *x, size_t index,
                                                checked_numbers *known) {
    const bool wide = adamod__range_type(x) == ADAMOD_F64;
    if (known->hyper != h) *known = (checked_numbers){.hyper = h};
    if (known->in[wide ? RANGE_F64 : RANGE_F32]) return ADAMOD_OK;
    known->in[wide ? RANGE_F64 : RANGE_F32] = true;
    char name[40];
    snprintf(name, sizeof name, "span %zu", index);
    return adamod__check_numbers(h->rule, h->options, wide ? ADAMOD_F64 : ADAMOD_F32, name);
}

/* Checks spans, each with its own hyper, or all with one. */
static adamod_status adamod__check_spans(const adamod_hyper *all, const adamod_hyper *const *each,
                                         const adamod_span *spans, size_t n) {
    array_ref few[16 * SPAN_ARRAYS], *arrays = n <= 16 ? few : adamod__resize(NULL, n, SPAN_ARRAYS * sizeof *arrays);
    if (!arrays) return adamod__fail(ADAMOD_ERROR_MEMORY, "out of memory for %zu arrays", n);
    array_list list = {arrays, 0};
    checked_numbers known = {0};
    adamod_status status = ADAMOD_OK;
    for (size_t i = 0; status == ADAMOD_OK && i < n; i++) {
        const adamod_hyper *h = all ? all : each[i];
        if (h) status = adamod__check_span(h->rule, h->options, &spans[i], i, &list);
        else status = adamod__refuse("span %zu: its hyper is NULL", i);
        if (status == ADAMOD_OK) status = adamod__check_span_numbers(h, &spans[i], i, &known);
    }
    if (status == ADAMOD_OK) status = adamod__check_disjoint(arrays, list.n);
    if (arrays != few) free(arrays);
    return status;
}

adamod_status adamod_check(const adamod_hyper *const *hypers, const adamod_span *spans, size_t n) {
    if (n > 0 && (!hypers || !spans)) return adamod__refuse("check: %s is NULL", hypers ? "spans" : "hypers");
    return adamod__check_spans(NULL, hypers, spans, n);
}

static adamod_status adamod__raw_update(const adamod_hyper *h, const adamod_span *spans, size_t n, adamod_pool *pool,
                                        adamod__stats *stats) {
    if (!h || (n > 0 && !spans)) return adamod__refuse("update: %s is NULL", h ? "spans" : "the hyper");
    ADAMOD__TRY(adamod__check_spans(h, NULL, spans, n));
    work_item *items = adamod__raw_items(spans, n, h->options);
    if (!items) return ADAMOD_ERROR_MEMORY;
    const work w = {h->rule, h->kernels, items, n, pool, stats};
    work_space space = {0};
    const adamod_status status = adamod__work_reserve(&w, &space);
    if (status == ADAMOD_OK) adamod__work_run(&w, &space);
    adamod__work_free(&space);
    free(items);
    return status;
}

adamod_status adamod_update(const adamod_hyper *h, const adamod_span *spans, size_t n, adamod_pool *pool) {
    const adamod__arithmetic before = adamod__enter_arithmetic();
    const adamod_status status = adamod__raw_update(h, spans, n, pool, NULL);
    adamod__leave_arithmetic(before);
    return status;
}

adamod_status adamod_update_collect(const adamod_hyper *h, const adamod_span *spans, size_t n, adamod_pool *pool,
                                    adamod_statistics *out) {
    if (!out) return adamod__refuse("update_collect: out is NULL");
    struct {
        adamod__stats stats;
        stats_counts counts;
    } *all = malloc(sizeof *all);
    if (!all) return adamod__fail(ADAMOD_ERROR_MEMORY, "out of memory for statistics");
    const adamod__arithmetic before = adamod__enter_arithmetic();
    adamod__stats_init(&all->stats);
    adamod__stats_clear(&all->counts);
    all->stats.groups = &all->counts;
    all->stats.n_groups = 1;
    const adamod_status status = adamod__raw_update(h, spans, n, pool, &all->stats);
    if (status == ADAMOD_OK) adamod__stats_result(&all->stats, 0, out);
    adamod__leave_arithmetic(before);
    pthread_mutex_destroy(&all->stats.lock);
    free(all);
    return status;
}

/* ---- states in 8 bits ---- */

static adamod_status adamod__check_q8(int index, int64_t count, const void *values, const void *codes,
                                      const void *scales) {
    if (index < 0 || index >= ADAMOD_MAX_STATES) {
        return adamod__fail(ADAMOD_ERROR_RANGE, "q8: index is %d, expected 0 <= index < %d", index, ADAMOD_MAX_STATES);
    }
    if (count < 0) return adamod__refuse("q8: count is %lld, expected 0 or more", (long long)count);
    if (count > 0 && (!values || !codes || !scales)) {
        return adamod__refuse("q8: %s is NULL", !values ? "values" : !codes ? "codes" : "scales");
    }
    return ADAMOD_OK;
}

adamod_status adamod_q8_encode(int index, int64_t count, const float *values, uint8_t *codes, float *scales) {
    const adamod_status status = adamod__check_q8(index, count, values, codes, scales);
    const int kind = status ? 0 : adamod__q8_kind(1, index, true);
    const adamod__arithmetic before = adamod__enter_arithmetic();
    for (int64_t first = 0; !status && first < count; first += Q8_BLOCK) {
        const int64_t end = count - first < Q8_BLOCK ? count : first + Q8_BLOCK;
        uint32_t most = 0;
        for (int64_t i = first; i < end; i++) {
            const uint32_t magnitude = adamod__to_bits(values[i]) & 0x7fffffffu;
            if (magnitude > most) most = magnitude;
        }
        const float scale = scales[first / Q8_BLOCK] = adamod__q8_scale(most);
        const q8_block b = adamod__q8_block(scale, kind);
        for (int64_t i = first; i < end; i++) {
            const uint32_t nearest = 1u << 31; /* in place of 32 random bits, half of them */
            const float x = adamod__q8_within(values[i]);
            codes[i] = b.lost ? 0 : (uint8_t)adamod__q8_encode(x, &b, nearest, kind);
        }
    }
    adamod__leave_arithmetic(before);
    return status;
}

adamod_status adamod_q8_decode(int index, int64_t count, const uint8_t *codes, const float *scales, float *values) {
    const adamod_status status = adamod__check_q8(index, count, values, codes, scales);
    const adamod__arithmetic before = adamod__enter_arithmetic();
    if (!status)
        adamod__kernels_plain.f32->load_q8(values, codes, scales, (size_t)count, adamod__q8_kind(1, index, true));
    adamod__leave_arithmetic(before);
    return status;
}

adamod_status adamod_norm(const adamod_span *spans, size_t n, adamod_pool *pool, double *norm) {
    if (!norm || (n > 0 && !spans)) return adamod__refuse("norm: %s is NULL", norm ? "spans" : "norm");
    for (size_t i = 0; i < n; i++) {
        char name[40];
        snprintf(name, sizeof name, "span %zu", i);
        ADAMOD__TRY(adamod__check_count(&spans[i], name));
        ADAMOD__TRY(adamod__check_type(name, "grad_type", spans[i].grad_type));
        if (!adamod__misaligned(spans[i].grad, spans[i].grad_type)) continue;
        return adamod__refuse("%s: grad is not aligned to its elements", name);
    }
    /* Ignores ADAMOD_ISA: another thread may be changing the environment. */
    const kernel_set *kernels = pool ? adamod__pool_kernels(pool) : adamod__kernels_at(0);
    work_item *items = adamod__raw_items(spans, n, NULL);
    if (!items) return ADAMOD_ERROR_MEMORY;
    const work w = {NULL, kernels, items, n, pool, NULL};
    work_space space = {0};
    const adamod_status status = adamod__work_reserve(&w, &space);
    const adamod__arithmetic before = adamod__enter_arithmetic();
    if (status == ADAMOD_OK) *norm = adamod__work_norm(&w, &space);
    adamod__leave_arithmetic(before);
    adamod__work_free(&space);
    free(items);
    return status;
}
