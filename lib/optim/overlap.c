/* Checks that arrays do not overlap: no array that the optimizer writes may be part of another. */
#include "optim/optimizer.h"

static size_t adamod__bytes(const adamod_span *x, adamod_type type) {
    return (size_t)x->count * adamod__type_size(type);
}

/* Lists the arrays that a parameter has. The order of an array tells its name. */
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
    if (t == u) return adamod__refuse("%s: %s and %s overlap", t->name, first, second);
    return adamod__refuse("%s: its %s overlaps %s of %s", u->name, second, first, t->name);
}

/* Fails because a new array of t overlaps a range. */
static adamod_status adamod__overlaps_range(const adamod_optimizer *opt, const tensor *t, const array_ref *mine,
                                            const adamod__range *other) {
    const tensor *u = &opt->tensors[other->owner];
    const array_ref theirs = {.order = other->order};
    if ((size_t)other->owner > mine->owner) return adamod__overlapping(opt, t, mine, u, &theirs);
    return adamod__overlapping(opt, u, &theirs, t, mine);
}

/* Fails because a parameter (param) or gradient overlaps another array. */
static adamod_status adamod__refuse_range(const adamod_optimizer *opt, const char *name, bool param,
                                          const adamod__range *other) {
    const char *what = param ? "its parameters overlap a state" : "its gradient overlaps a state";
    if (other->order == 0) what = param ? "its parameters overlap those" : "its gradient overlaps the parameters";
    if (other->order == 1) what = "its parameters overlap the gradient";
    return adamod__refuse("%s: %s of %s", name, what, opt->tensors[other->owner].name);
}

adamod_status adamod__check_overlap(const adamod_optimizer *opt, const adamod_span *x, const char *name) {
    const size_t bytes = adamod__bytes(x, x->param_type);
    const adamod__range *found = adamod__ranges_find(&opt->ranges, x->param, bytes, false); /* the worse fault */
    if (!found) found = adamod__ranges_find(&opt->ranges, x->param, bytes, true);
    if (found) return adamod__refuse_range(opt, name, true, found);
    found = adamod__ranges_find(&opt->ranges, x->grad, adamod__bytes(x, x->grad_type), false);
    return found ? adamod__refuse_range(opt, name, false, found) : ADAMOD_OK;
}

adamod_status adamod__check_new_overlap(const adamod_optimizer *opt, const tensor *t) {
    array_ref mine[TENSOR_ARRAYS];
    const array_ref *a, *b;
    const size_t n = adamod__list_arrays(t, (size_t)opt->n, mine);
    if (adamod__find_overlap(mine, n, &a, &b)) return adamod__overlapping(opt, t, a, t, b);
    for (size_t i = 0; i < n; i++) {
        const adamod__range *found = adamod__ranges_find(&opt->ranges, mine[i].data, mine[i].bytes, mine[i].written);
        if (found) return adamod__overlaps_range(opt, t, &mine[i], found);
    }
    return ADAMOD_OK;
}

/* ---- keeping the ranges ---- */

bool adamod__reserve_ranges(adamod_optimizer *opt) { return adamod__ranges_reserve(&opt->ranges, TENSOR_ARRAYS); }

void adamod__add_ranges(adamod_optimizer *opt, int64_t id) {
    array_ref mine[TENSOR_ARRAYS];
    const size_t n = adamod__list_arrays(&opt->tensors[id], (size_t)id, mine);
    for (size_t i = 0; i < n; i++) {
        adamod__ranges_add(&opt->ranges, mine[i].data, mine[i].bytes, id, mine[i].order, mine[i].written);
    }
}

void adamod__renew_ranges(adamod_optimizer *opt) {
    adamod__ranges_clear(&opt->ranges);
    for (int64_t i = 0; i < opt->n; i++) adamod__add_ranges(opt, i);
}

void adamod__lift_range(adamod_optimizer *opt, int64_t id, const adamod_span *x) {
    adamod__ranges_remove(&opt->ranges, x->param, adamod__bytes(x, x->param_type), id, 0);
    adamod__ranges_remove(&opt->ranges, x->grad, adamod__bytes(x, x->grad_type), id, 1);
}

void adamod__lay_range(adamod_optimizer *opt, int64_t id, const adamod_span *x) {
    adamod__ranges_add(&opt->ranges, x->param, adamod__bytes(x, x->param_type), id, 0, true);
    adamod__ranges_add(&opt->ranges, x->grad, adamod__bytes(x, x->grad_type), id, 1, false);
}

adamod_status adamod__lay_range_checked(adamod_optimizer *opt, int64_t id) {
    array_ref mine[TENSOR_ARRAYS];
    const size_t n = adamod__list_arrays(&opt->tensors[id], (size_t)id, mine);
    for (size_t i = 0; i < n && mine[i].order < 2; i++) {
        const adamod__range *found = adamod__ranges_find(&opt->ranges, mine[i].data, mine[i].bytes, mine[i].written);
        if (found) return adamod__overlaps_range(opt, &opt->tensors[id], &mine[i], found);
    }
    adamod__lay_range(opt, id, &opt->tensors[id].span);
    return ADAMOD_OK;
}
