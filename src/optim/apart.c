/* Nothing the optimizer writes may be written or read as anything else: arrays that users give lie apart. */
#include "optimizer.h"

#include <stdlib.h>

static size_t adamod__bytes(const adamod_span *x, adamod_type type) {
    return (size_t)x->count * adamod__type_size(type);
}

/* Whether an array given by the user lies in a state or master of any parameter. Sizes are at hand, since this is done
 * for all pairs of parameters. */
static const char *adamod__within_states(const adamod_optimizer *opt, const void *array, size_t bytes) {
    for (int64_t i = 0; i < opt->n; i++) {
        const tensor *t = &opt->tensors[i];
        /* A device's states are in memory that no user's pointer comes from. */
        if (opt->device && !t->given_states && !t->given_master) continue;
        if (adamod__overlap(array, bytes, t->span.master, adamod__bytes(&t->span, ADAMOD_F32))) return t->name;
        for (int k = 0; k < ADAMOD_MAX_STATES; k++) {
            if (adamod__overlap(array, bytes, t->span.state[k], t->state_bytes[k])) return t->name;
            if (adamod__overlap(array, bytes, t->span.scale[k], adamod__scale_bytes(t, k))) return t->name;
        }
    }
    return NULL;
}

adamod_status adamod__check_apart(const adamod_optimizer *opt, const adamod_span *x, const char *name, int64_t self) {
    const size_t param_bytes = adamod__bytes(x, x->param_type), grad_bytes = adamod__bytes(x, x->grad_type);
    for (int64_t i = 0; i < opt->n; i++) {
        const adamod_span *y = &opt->tensors[i].span;
        const size_t y_bytes = adamod__bytes(y, y->param_type);
        const char *what = NULL;
        if (i == self) continue;
        if (adamod__overlap(x->param, param_bytes, y->param, y_bytes)) what = "its parameters overlap those";
        else if (adamod__overlap(x->param, param_bytes, y->grad, adamod__bytes(y, y->grad_type)))
            what = "its parameters overlap the gradient";
        else if (adamod__overlap(x->grad, grad_bytes, y->param, y_bytes)) what = "its gradient overlaps the parameters";
        if (what) return adamod__fail(ADAMOD_ERROR_ARGUMENT, "%s: %s of %s", name, what, opt->tensors[i].name);
    }
    const char *owner = adamod__within_states(opt, x->param, param_bytes);
    if (owner) return adamod__fail(ADAMOD_ERROR_ARGUMENT, "%s: its parameters overlap a state of %s", name, owner);
    owner = adamod__within_states(opt, x->grad, grad_bytes);
    if (owner) return adamod__fail(ADAMOD_ERROR_ARGUMENT, "%s: its gradient overlaps a state of %s", name, owner);
    return ADAMOD_OK;
}

/* The arrays of a parameter that there are; the name of one follows from its order. */
enum { FIRST_SCALE = 3 + ADAMOD_MAX_STATES, TENSOR_ARRAYS = FIRST_SCALE + ADAMOD_MAX_STATES };
static size_t adamod__list_arrays(const tensor *t, size_t owner, array_ref *out) {
    const adamod_span *x = &t->span;
    size_t n = 0;
    const array_ref own[3] = {{NULL, x->param, adamod__bytes(x, x->param_type), owner, 0, true},
                              {NULL, x->grad, adamod__bytes(x, x->grad_type), owner, 1, false},
                              {NULL, x->master, adamod__bytes(x, ADAMOD_F32), owner, 2, true}};
    for (int i = 0; i < TENSOR_ARRAYS; i++) {
        array_ref a = {NULL, NULL, 0, owner, i, true};
        if (i < 3) a = own[i];
        else if (i < FIRST_SCALE) a.data = x->state[i - 3], a.bytes = t->state_bytes[i - 3];
        else a.data = x->scale[i - FIRST_SCALE], a.bytes = adamod__scale_bytes(t, i - FIRST_SCALE);
        if (a.data && a.bytes) out[n++] = a;
    }
    return n;
}

static const char *adamod__array_name(const adamod_optimizer *opt, const tensor *t, int order) {
    static const char *const own[3] = {"param", "grad", "master"};
    const double *o = opt->groups[t->group].options;
    state_spec specs[ADAMOD_MAX_STATES];
    adamod_state_desc desc = {0};
    if (order < 3) return own[order];
    adamod__states(opt->rule, o, t->span.ndim, specs);
    const int state = order < FIRST_SCALE ? order - 3 : order - FIRST_SCALE;
    (void)adamod__state_size(&specs[state], o, t->span.ndim, t->span.shape, &desc); /* it did not fail before */
    return order < FIRST_SCALE ? desc.name : adamod__scale_name(desc.name);
}

static adamod_status adamod__overlapping(const adamod_optimizer *opt, const tensor *t, const array_ref *a,
                                         const tensor *u, const array_ref *b) {
    const char *first = adamod__array_name(opt, t, a->order), *second = adamod__array_name(opt, u, b->order);
    if (t == u) return adamod__fail(ADAMOD_ERROR_ARGUMENT, "%s: %s and %s overlap", t->name, first, second);
    return adamod__fail(ADAMOD_ERROR_ARGUMENT, "%s: its %s overlaps %s of %s", u->name, second, first, t->name);
}

adamod_status adamod__check_new_apart(const adamod_optimizer *opt, const tensor *t) {
    array_ref mine[TENSOR_ARRAYS], theirs[TENSOR_ARRAYS];
    const array_ref *a, *b;
    const size_t n = adamod__list_arrays(t, (size_t)opt->n, mine);
    if (adamod__find_overlap(mine, n, &a, &b)) return adamod__overlapping(opt, t, a, t, b);
    for (int64_t i = 0; i < opt->n; i++) {
        const size_t m = adamod__list_arrays(&opt->tensors[i], (size_t)i, theirs);
        for (size_t k = 0; k < n * m; k++) {
            a = &theirs[k / n];
            b = &mine[k % n];
            if ((a->written || b->written) && adamod__overlap(a->data, a->bytes, b->data, b->bytes)) {
                return adamod__overlapping(opt, &opt->tensors[i], a, t, b);
            }
        }
    }
    return ADAMOD_OK;
}

adamod_status adamod__check_all_apart(const adamod_optimizer *opt) {
    array_ref *arrays = malloc(((size_t)opt->n + 1) * TENSOR_ARRAYS * sizeof *arrays);
    if (!arrays) {
        return adamod__fail(ADAMOD_ERROR_MEMORY, "no memory for the arrays of %lld parameters", (long long)opt->n);
    }
    size_t n = 0;
    for (int64_t i = 0; i < opt->n; i++) n += adamod__list_arrays(&opt->tensors[i], (size_t)i, arrays + n);
    const array_ref *a, *b;
    adamod_status status = ADAMOD_OK;
    if (adamod__find_overlap(arrays, n, &a, &b)) {
        status = adamod__overlapping(opt, &opt->tensors[a->owner], a, &opt->tensors[b->owner], b);
    }
    free(arrays);
    return status;
}
