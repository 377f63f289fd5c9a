/* The raw interface: updates of arrays the caller owns. */
#include "internal.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

static bool adamod__misaligned(const void *p, adamod_type type) { return (uintptr_t)p % adamod__type_size(type) != 0; }

adamod_status adamod__check_arrays(const adamod_span *x, const char *name) {
    if (!adamod__type_size(x->param_type) || !adamod__type_size(x->grad_type)) {
        return adamod__fail(ADAMOD_ERROR_ARGUMENT, "%s: param_type is %d and grad_type %d, expected an adamod_type",
                            name, (int)x->param_type, (int)x->grad_type);
    }
    if (x->count < 0) return adamod__fail(ADAMOD_ERROR_ARGUMENT, "%s: count is %lld", name, (long long)x->count);
    if (x->count > 0 && !x->param) return adamod__fail(ADAMOD_ERROR_ARGUMENT, "%s: param is NULL", name);
    if (adamod__misaligned(x->param, x->param_type) || adamod__misaligned(x->grad, x->grad_type)) {
        return adamod__fail(ADAMOD_ERROR_ARGUMENT, "%s: %s is not aligned to its elements", name,
                            adamod__misaligned(x->param, x->param_type) ? "param" : "grad");
    }
    const size_t n = (size_t)x->count;
    if (adamod__overlap(x->param, n * adamod__type_size(x->param_type), x->grad, n * adamod__type_size(x->grad_type))) {
        return adamod__fail(ADAMOD_ERROR_ARGUMENT, "%s: param and grad overlap", name);
    }
    return ADAMOD_OK;
}

/* One array among those of a span, for the check that no two overlap. */
typedef struct array_ref {
    const char *name;
    const void *data;
    size_t bytes;
} array_ref;

static adamod_status adamod__check_shape(const adamod_span *x, const char *name) {
    if (x->ndim < 0 || x->ndim > ADAMOD_MAX_DIMS) {
        return adamod__fail(ADAMOD_ERROR_ARGUMENT, "%s: ndim is %d, expected 0 <= ndim <= %d", name, x->ndim,
                            ADAMOD_MAX_DIMS);
    }
    const int64_t count = x->ndim ? adamod__element_count(x->ndim, x->shape) : x->count;
    if (count == x->count && adamod__element_count(1, &x->count) >= 0) return ADAMOD_OK;
    return adamod__fail(ADAMOD_ERROR_ARGUMENT, "%s: count is %lld, its shape gives %lld", name, (long long)x->count,
                        (long long)count);
}

/* Everything about one array: shape, types, which states there must be, and that nothing overlaps. */
static adamod_status adamod__check_span(const rule *r, const double *options, const adamod_span *x, const char *name) {
    adamod_status status = adamod__check_shape(x, name);
    if (status || (status = adamod__check_arrays(x, name))) return status;
    const adamod_type compute = adamod__compute_type(x->param_type);
    const adamod_type state_type = x->state_type == ADAMOD_BF16 ? ADAMOD_BF16 : compute;
    if (x->state_type != state_type && x->state_type != ADAMOD_F32) {
        return adamod__fail(ADAMOD_ERROR_ARGUMENT, "%s: state_type is %s, expected %s or bf16", name,
                            adamod__type_name(x->state_type), adamod__type_name(compute));
    }
    if (x->step < 1)
        return adamod__fail(ADAMOD_ERROR_RANGE, "%s: step is %lld, expected 1 or more", name, (long long)x->step);
    if (x->master && adamod__type_size(x->param_type) != 2) {
        return adamod__fail(ADAMOD_ERROR_ARGUMENT, "%s: %s parameters take no master", name,
                            adamod__type_name(x->param_type));
    }
    const size_t n = (size_t)x->count;
    array_ref arrays[3 + ADAMOD_MAX_STATES] = {{"param", x->param, n * adamod__type_size(x->param_type)},
                                               {"grad", x->grad, n * adamod__type_size(x->grad_type)},
                                               {"master", x->master, n * sizeof(float)}};
    state_spec specs[ADAMOD_MAX_STATES];
    const int ndim = x->ndim ? x->ndim : 1;
    const int64_t *shape = x->ndim ? x->shape : &x->count;
    adamod__states(r, options, x->ndim, specs);
    for (int i = 0; i < ADAMOD_MAX_STATES; i++) {
        adamod_state_desc desc;
        if ((status = adamod__state_size(&specs[i], options, ndim, shape, &desc))) return status;
        if (!desc.name) continue;
        if (desc.count > 0 && !x->state[i]) {
            return adamod__fail(ADAMOD_ERROR_ARGUMENT, "%s: state[%d], %s, is NULL", name, i, desc.name);
        }
        if (adamod__misaligned(x->state[i], state_type)) {
            return adamod__fail(ADAMOD_ERROR_ARGUMENT, "%s: %s is not aligned to its elements", name, desc.name);
        }
        arrays[3 + i] = (array_ref){desc.name, x->state[i], (size_t)desc.count * adamod__type_size(state_type)};
    }
    for (int i = 0; i < 3 + ADAMOD_MAX_STATES; i++) {
        for (int j = 0; j < i; j++) {
            if (!adamod__overlap(arrays[i].data, arrays[i].bytes, arrays[j].data, arrays[j].bytes)) continue;
            return adamod__fail(ADAMOD_ERROR_ARGUMENT, "%s: %s and %s overlap", name, arrays[j].name, arrays[i].name);
        }
    }
    return ADAMOD_OK;
}

static work_item *adamod__raw_items(const adamod_span *spans, size_t n, const double *options) {
    work_item *items = malloc((n + 1) * sizeof *items);
    for (size_t i = 0; items && i < n; i++) {
        items[i] =
            (work_item){&spans[i], options, options ? options[OPT_LR] : 0, options ? options[OPT_GRAD_SCALE] : 1, 0};
    }
    if (!items) adamod__fail(ADAMOD_ERROR_MEMORY, "no memory for %zu arrays", n);
    return items;
}

adamod_status adamod_update(const adamod_hyper *h, const adamod_span *spans, size_t n, adamod_pool *pool) {
    if (!h || (n > 0 && !spans)) return adamod__fail(ADAMOD_ERROR_ARGUMENT, "update: the hyper or the spans are NULL");
    for (size_t i = 0; i < n; i++) {
        char name[40];
        snprintf(name, sizeof name, "span %zu", i);
        const adamod_status status = adamod__check_span(h->rule, h->options, &spans[i], name);
        if (status) return status;
    }
    work_item *items = adamod__raw_items(spans, n, h->options);
    if (!items) return ADAMOD_ERROR_MEMORY;
    const work w = {h->rule, h->kernels, items, n, pool, NULL};
    work_space space = {0};
    const adamod_status status = adamod__work_reserve(&w, &space);
    if (status == ADAMOD_OK) adamod__work_run(&w, &space);
    adamod__work_free(&space);
    free(items);
    return status;
}

adamod_status adamod_norm(const adamod_span *spans, size_t n, adamod_pool *pool, double *norm) {
    if (!norm || (n > 0 && !spans)) return adamod__fail(ADAMOD_ERROR_ARGUMENT, "norm: the spans or out are NULL");
    for (size_t i = 0; i < n; i++) {
        if (adamod__type_size(spans[i].grad_type) && spans[i].count >= 0) continue;
        return adamod__fail(ADAMOD_ERROR_ARGUMENT, "span %zu: count is %lld, grad_type %s", i,
                            (long long)spans[i].count, adamod__type_name(spans[i].grad_type));
    }
    const kernel_set *kernels = adamod__kernels_choose();
    if (!kernels) return ADAMOD_ERROR_NAME;
    work_item *items = adamod__raw_items(spans, n, NULL);
    if (!items) return ADAMOD_ERROR_MEMORY;
    const work w = {adamod__rules[RULE_sgd], kernels, items, n, pool, NULL};
    work_space space = {0};
    const adamod_status status = adamod__work_reserve(&w, &space);
    if (status == ADAMOD_OK) *norm = adamod__work_norm(&w, &space);
    adamod__work_free(&space);
    free(items);
    return status;
}
