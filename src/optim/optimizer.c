/* The optimizer's handle: options of groups, parameters and their states, the step. */
#define _GNU_SOURCE
#include "optimizer.h"
#include "schedule.h"
#include "update.h"
#include "kernels/half.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#ifdef __linux__
#include <sys/mman.h>
#endif

/* ---- memory ---- */

/* Large arrays ask for large pages, which save the processor look-ups while it streams through them. */
static void *adamod__default_alloc(void *context, size_t size, size_t alignment) {
    (void)context;
    const size_t huge = (size_t)1 << 21;
    void *p = NULL;
    if (posix_memalign(&p, size >= huge ? huge : alignment, size)) return NULL;
#if defined(__linux__) && defined(MADV_HUGEPAGE)
    if (size >= huge) (void)madvise(p, size, MADV_HUGEPAGE);
#endif
    return p;
}

static void adamod__default_free(void *context, void *pointer, size_t size) {
    (void)context, (void)size;
    free(pointer);
}

void *adamod__alloc(const adamod_optimizer *opt, size_t bytes) {
    return opt->allocator.alloc(opt->allocator.context, bytes, 64);
}

void adamod__free(const adamod_optimizer *opt, void *pointer, size_t bytes) {
    if (pointer) opt->allocator.free(opt->allocator.context, pointer, bytes);
}

/* ---- create and free ---- */

adamod_status adamod_create_with(adamod_optimizer **out, const char *rule_name, const adamod_allocator *allocator) {
    if (!out || (allocator && (!allocator->alloc || !allocator->free))) {
        return adamod__fail(ADAMOD_ERROR_ARGUMENT, "create: out or a function of the allocator is NULL");
    }
    const rule *r = adamod__find_rule(rule_name);
    if (!r) return rule_name ? ADAMOD_ERROR_NAME : ADAMOD_ERROR_ARGUMENT;
    const kernel_set *kernels = adamod__kernels_choose();
    if (!kernels) return ADAMOD_ERROR_NAME;
    const adamod_allocator standard = {adamod__default_alloc, adamod__default_free, NULL};
    const adamod_allocator a = allocator ? *allocator : standard;
    adamod_optimizer *opt = a.alloc(a.context, sizeof *opt, 64);
    group *groups = calloc(1, sizeof *groups);
    if (!opt || !groups) {
        if (opt) a.free(a.context, opt, sizeof *opt);
        free(groups);
        return adamod__fail(ADAMOD_ERROR_MEMORY, "no memory for an optimizer");
    }
    *opt =
        (adamod_optimizer){.rule = r, .kernels = kernels, .allocator = a, .groups = groups, .n_groups = 1, .norm = -1};
    adamod__default_options(r, groups[0].options);
    adamod__stats_init(&opt->stats);
    *out = opt;
    return ADAMOD_OK;
}

adamod_status adamod_create(adamod_optimizer **out, const char *rule_name) {
    return adamod_create_with(out, rule_name, NULL);
}

static void adamod__free_states(adamod_optimizer *opt, tensor *t) {
    state_ref s;
    for (int i = 0; adamod__state_ref(opt, t, i, &s); i++) {
        if (!*s.data) continue;
        opt->state_bytes -= s.bytes;
        if (opt->device) opt->api->release(opt->device, *s.data);
        else adamod__free(opt, *s.data, s.bytes);
        *s.data = NULL;
    }
}

static void adamod__drop_pool(adamod_optimizer *opt) {
    if (opt->own_pool) adamod_pool_free(opt->pool);
    opt->pool = NULL;
    opt->own_pool = false;
}

void adamod_free(adamod_optimizer *opt) {
    if (!opt) return;
    adamod__drop_pool(opt);
    for (int64_t i = 0; i < opt->n; i++) {
        adamod__free_states(opt, &opt->tensors[i]);
        free(opt->tensors[i].name);
    }
    adamod__device_close(opt);
    for (int g = 0; g < opt->n_groups; g++) {
        for (int o = 0; o < OPT_COUNT; o++) adamod_schedule_free(opt->groups[g].schedule[o]);
    }
    free(opt->groups);
    free(opt->tensors);
    free(opt->items);
    free(opt->stats.groups);
    pthread_mutex_destroy(&opt->stats.lock);
    adamod__work_free(&opt->space);
    const adamod_allocator a = opt->allocator;
    a.free(a.context, opt, sizeof *opt);
}

/* ---- options ---- */

static adamod_status adamod__null_handle(void) { return adamod__fail(ADAMOD_ERROR_ARGUMENT, "the optimizer is NULL"); }

static adamod_status adamod__check_group(const adamod_optimizer *opt, int g) {
    if (g >= 0 && g < opt->n_groups) return ADAMOD_OK;
    return adamod__fail(ADAMOD_ERROR_RANGE, "group is %d, expected 0 <= group < %d", g, opt->n_groups);
}

/* Whether a value would give a parameter that is there already other states. */
static bool adamod__changes_states(const adamod_optimizer *opt, int g, const option_spec *o, double value) {
    double options[OPT_COUNT];
    memcpy(options, opt->groups[g].options, sizeof options);
    options[o->id] = value;
    for (int64_t i = 0; i < opt->n; i++) {
        if (opt->tensors[i].group != g) continue;
        if (o->id == OPT_STATE_TYPE || o->id == OPT_LOW_PRECISION || o->id == OPT_WINDOW) return true;
        state_spec now[ADAMOD_MAX_STATES], then[ADAMOD_MAX_STATES];
        adamod__states(opt->rule, opt->groups[g].options, opt->tensors[i].span.ndim, now);
        adamod__states(opt->rule, options, opt->tensors[i].span.ndim, then);
        for (int s = 0; s < ADAMOD_MAX_STATES; s++) {
            if (now[s].shape != then[s].shape || now[s].initial != then[s].initial) return true;
        }
    }
    return false;
}

/* Sets one group's option, or with first 0 and last n_groups - 1 all. */
static adamod_status adamod__set_range(adamod_optimizer *opt, int first, int last, const option_spec *o, double value) {
    bool same = true;
    for (int g = first; g <= last; g++) same = same && opt->groups[g].options[o->id] == value;
    const adamod_status status = same ? ADAMOD_OK : adamod__device_outside(opt, o->info.name);
    if (status) return status;
    for (int g = first; g <= last; g++) {
        if (!o->info.structural || opt->groups[g].options[o->id] == value) continue;
        if (!adamod__changes_states(opt, g, o, value)) continue;
        return adamod__fail(ADAMOD_ERROR_ORDER,
                            "%s: %s decides which states exist, and group %d has parameters already", opt->rule->name,
                            o->info.name, g);
    }
    for (int g = first; g <= last; g++) opt->groups[g].options[o->id] = value;
    if (o->id == OPT_THREADS) adamod__drop_pool(opt);
    return same ? ADAMOD_OK : adamod__device_options(opt, first, last);
}

/* g < 0: all groups. text NULL: value is given. */
static adamod_status adamod__set_option(adamod_optimizer *opt, int g, const char *name, double value,
                                        const char *text) {
    if (!opt) return adamod__null_handle();
    const option_spec *o = adamod__find_option(opt->rule, name);
    if (!o) return name ? ADAMOD_ERROR_NAME : ADAMOD_ERROR_ARGUMENT;
    adamod_status status = g < 0 ? ADAMOD_OK : adamod__check_group(opt, g);
    if (status) return status;
    if (g >= 0 && o->info.optimizer_wide) {
        return adamod__fail(ADAMOD_ERROR_ARGUMENT, "%s is of the optimizer as a whole: use adamod_set, not a group's",
                            o->info.name);
    }
    status = text ? adamod__parse_value(opt->rule, o, text, &value) : adamod__check_value(opt->rule, o, value);
    return status ? status : adamod__set_range(opt, g < 0 ? 0 : g, g < 0 ? opt->n_groups - 1 : g, o, value);
}

adamod_status adamod_set(adamod_optimizer *opt, const char *option, double value) {
    return adamod__set_option(opt, -1, option, value, NULL);
}

adamod_status adamod_set_text(adamod_optimizer *opt, const char *option, const char *text) {
    if (!text) return adamod__fail(ADAMOD_ERROR_ARGUMENT, "the option's value is NULL");
    return adamod__set_option(opt, -1, option, 0, text);
}

adamod_status adamod_group_set(adamod_optimizer *opt, int g, const char *option, double value) {
    if (opt && g < 0) return adamod__check_group(opt, g);
    return adamod__set_option(opt, g, option, value, NULL);
}

adamod_status adamod_group_set_text(adamod_optimizer *opt, int g, const char *option, const char *text) {
    if (!text) return adamod__fail(ADAMOD_ERROR_ARGUMENT, "the option's value is NULL");
    if (opt && g < 0) return adamod__check_group(opt, g);
    return adamod__set_option(opt, g, option, 0, text);
}

adamod_status adamod_group_get(const adamod_optimizer *opt, int g, const char *option, double *out) {
    if (!opt) return adamod__null_handle();
    if (!out) return adamod__fail(ADAMOD_ERROR_ARGUMENT, "out is NULL");
    const adamod_status status = adamod__check_group(opt, g);
    if (status) return status;
    const option_spec *o = adamod__find_option(opt->rule, option);
    if (!o) return option ? ADAMOD_ERROR_NAME : ADAMOD_ERROR_ARGUMENT;
    *out = opt->groups[g].options[o->id];
    return ADAMOD_OK;
}

adamod_status adamod_get(const adamod_optimizer *opt, const char *option, double *out) {
    return adamod_group_get(opt, 0, option, out);
}

static bool adamod__copy_schedules(group *to, const group *from) {
    for (int o = 0; o < OPT_COUNT; o++) {
        to->schedule[o] = NULL;
        if (from->schedule[o] && !(to->schedule[o] = adamod__schedule_copy(from->schedule[o]))) {
            while (o-- > 0) adamod_schedule_free(to->schedule[o]);
            return false;
        }
    }
    return true;
}

adamod_status adamod_add_group(adamod_optimizer *opt, int *out) {
    if (!opt) return adamod__null_handle();
    if (!out) return adamod__fail(ADAMOD_ERROR_ARGUMENT, "out is NULL");
    const adamod_status status = adamod__device_unlay(opt);
    if (status) return status;
    const size_t n = (size_t)opt->n_groups;
    group *grown = realloc(opt->groups, (n + 1) * sizeof *grown);
    if (grown) opt->groups = grown;
    stats_counts *counts = opt->collect ? realloc(opt->stats.groups, (n + 1) * sizeof *counts) : NULL;
    if (counts) opt->stats.groups = counts;
    if (!grown || (opt->collect && !counts) || !adamod__copy_schedules(&grown[n], &grown[0])) {
        return adamod__fail(ADAMOD_ERROR_MEMORY, "no memory for group %zu", n);
    }
    memcpy(grown[n].options, grown[0].options, sizeof grown[n].options);
    if (opt->collect) {
        adamod__stats_clear(&opt->stats.groups[n]);
        opt->stats.n_groups = opt->n_groups + 1;
    }
    *out = opt->n_groups++;
    return ADAMOD_OK;
}

adamod_status adamod_set_schedule(adamod_optimizer *opt, int g, const char *option, const adamod_schedule *s) {
    if (!opt) return adamod__null_handle();
    const option_spec *o = adamod__find_option(opt->rule, option);
    if (!o) return option ? ADAMOD_ERROR_NAME : ADAMOD_ERROR_ARGUMENT;
    const adamod_status status = g == -1 ? ADAMOD_OK : adamod__check_group(opt, g);
    if (status) return status;
    if (o->info.kind != ADAMOD_REAL || o->info.structural || o->info.optimizer_wide) {
        return adamod__fail(ADAMOD_ERROR_ARGUMENT,
                            "%s: %s cannot have a schedule: only real options of a group that do not decide states can",
                            opt->rule->name, o->info.name);
    }
    const adamod_status outside = adamod__device_outside(opt, "set_schedule");
    if (outside) return outside;
    const int first = g == -1 ? 0 : g, last = g == -1 ? opt->n_groups - 1 : g;
    adamod_schedule **copies = calloc((size_t)(last - first) + 1, sizeof *copies);
    bool complete = copies != NULL;
    for (int i = first; complete && s && i <= last; i++)
        complete = (copies[i - first] = adamod__schedule_copy(s)) != NULL;
    for (int i = first; copies && i <= last; i++) {
        adamod_schedule **to = &opt->groups[i].schedule[o->id];
        adamod_schedule_free(complete ? *to : copies[i - first]);
        if (complete) *to = copies[i - first];
    }
    free(copies);
    opt->groups_changed = opt->groups_changed || complete;
    return complete ? ADAMOD_OK : adamod__fail(ADAMOD_ERROR_MEMORY, "no memory for a schedule of %s", o->info.name);
}

/* Counts that a device keeps are fetched where they are read; the handle's own are but a copy. */
static adamod_status adamod__refresh(const adamod_optimizer *opt) {
    return adamod__device_pull((adamod_optimizer *)(uintptr_t)opt);
}

adamod_status adamod_scheduled_at(const adamod_optimizer *opt, int g, const char *option, int64_t t, double *out) {
    double base = 0;
    const adamod_status status =
        out ? adamod_group_get(opt, g, option, &base) : adamod__fail(ADAMOD_ERROR_ARGUMENT, "out is NULL");
    if (status) return status;
    const option_spec *o = adamod__find_option(opt->rule, option);
    *out = adamod_schedule_value(opt->groups[g].schedule[o->id], base, t);
    return ADAMOD_OK;
}

adamod_status adamod_scheduled(const adamod_optimizer *opt, int g, const char *option, double *out) {
    double value;
    adamod_status status = adamod_scheduled_at(opt, g, option, 1, &value); /* is there such an option? */
    if (status) return status;
    if (!out) return adamod__fail(ADAMOD_ERROR_ARGUMENT, "out is NULL");
    if ((status = adamod__refresh(opt))) return status;
    return adamod_scheduled_at(opt, g, option, opt->steps + 1, out);
}

/* ---- parameters ---- */

adamod_type adamod__state_type(const adamod_optimizer *opt, const tensor *t) {
    const double type = opt->groups[t->group].options[OPT_STATE_TYPE];
    if (type == STATE_BF16) return ADAMOD_BF16;
    return type == STATE_Q8 ? ADAMOD_Q8 : adamod__compute_type(t->span.param_type);
}

static bool adamod__has_master(const adamod_optimizer *opt, const tensor *t) {
    const bool low = t->span.param_type == ADAMOD_BF16 || t->span.param_type == ADAMOD_F16;
    return low && opt->groups[t->group].options[OPT_LOW_PRECISION] == LOW_PRECISION_MASTER;
}

/* What the scales of a state in 8 bits are called. */
static const char *adamod__scale_name(const char *state) {
    static const char *const names[] = {"exp_avg_scale", "exp_avg_sq_scale", "exp_avg_lr_scale",
                                        "momentum_buffer_scale"};
    const size_t length = strlen(state);
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        if (strncmp(names[i], state, length) == 0 && strcmp(names[i] + length, "_scale") == 0) return names[i];
    }
    return NULL;
}

/* Makes of a state its scales. */
static void adamod__refer_to_scales(state_ref *s, void **data) {
    const int64_t blocks = (s->desc.count + ADAMOD_Q8_BLOCK - 1) / ADAMOD_Q8_BLOCK;
    s->data = data;
    s->type = ADAMOD_F32;
    s->desc =
        (adamod_state_desc){.name = adamod__scale_name(s->desc.name), .count = blocks, .ndim = 1, .shape = {blocks}};
}

/* As adamod__state_ref, those included that the user keeps. */
static bool adamod__any_state(const adamod_optimizer *opt, const tensor *t, int index, state_ref *out) {
    const double *o = opt->groups[t->group].options;
    state_spec specs[ADAMOD_MAX_STATES];
    adamod__states(opt->rule, o, t->span.ndim, specs);
    tensor *mutable = (tensor *)(uintptr_t)t;
    *out = (state_ref){0};
    for (int i = 0; i < ADAMOD_MAX_STATES; i++) {
        if (specs[i].shape == SHAPE_NONE) continue;
        const int parts = adamod__state_type(opt, t) == ADAMOD_Q8 ? 2 : 1; /* codes and scales */
        if (index >= parts) {
            index -= parts;
            continue;
        }
        out->data = &mutable->span.state[i];
        out->type = adamod__state_type(opt, t);
        /* cannot fail: it did not when the parameter was added */
        (void)adamod__state_size(&specs[i], o, t->span.ndim, t->span.shape, &out->desc);
        if (index == 1) adamod__refer_to_scales(out, &mutable->span.scale[i]);
        break;
    }
    if (!out->data) {
        if (index > 0 || !adamod__has_master(opt, t)) return false;
        out->data = &mutable->span.master;
        out->type = ADAMOD_F32;
        out->desc = (adamod_state_desc){.name = "master", .count = t->span.count, .ndim = t->span.ndim};
        memcpy(out->desc.shape, t->span.shape, sizeof out->desc.shape);
    }
    out->name = out->desc.name;
    out->bytes = (size_t)out->desc.count * adamod__type_size(out->type);
    return true;
}

bool adamod__state_ref(const adamod_optimizer *opt, const tensor *t, int index, state_ref *out) {
    for (int i = 0; adamod__any_state(opt, t, i, out); i++) {
        const bool given = out->data == &t->span.master ? t->given_master : t->given_states;
        if (!given && index-- == 0) return true;
    }
    return false;
}

static void adamod__fill_state(const adamod_optimizer *opt, const tensor *t, const state_ref *s) {
    memset(*s->data, 0, s->bytes);
    const bool master = s->data == &t->span.master;
    if (s->desc.initial == 0 && !master) return;
    double constant[BLOCK], buffer[BLOCK];
    const adamod_type compute = adamod__compute_type(t->span.param_type);
    for (int i = 0; i < BLOCK; i++) {
        if (compute == ADAMOD_F64) constant[i] = s->desc.initial;
        else memcpy((char *)constant + (size_t)i * sizeof(float), &(float){(float)s->desc.initial}, sizeof(float));
    }
    for (int64_t at = 0; at < s->desc.count; at += BLOCK) {
        const size_t n = s->desc.count - at < BLOCK ? (size_t)(s->desc.count - at) : BLOCK;
        const size_t size = adamod__type_size(s->type);
        const void *from = constant;
        if (master) {
            from = adamod__read_block(opt->kernels, ADAMOD_F32, t->span.param, t->span.param_type, at, n, buffer);
        }
        if (s->type == compute) memcpy((char *)*s->data + (size_t)at * size, from, n * size);
        else adamod__write_block(opt->kernels, compute, *s->data, s->type, at, n, from, NULL);
    }
}

static adamod_status adamod__make_states(adamod_optimizer *opt, tensor *t) {
    state_ref s;
    for (int i = 0; adamod__state_ref(opt, t, i, &s); i++) {
        if (s.bytes == 0) continue;
        adamod_status status = ADAMOD_OK;
        if (opt->device) status = adamod__device_alloc(opt, s.bytes, s.data);
        else if (!(*s.data = adamod__alloc(opt, s.bytes))) {
            status = adamod__fail(ADAMOD_ERROR_MEMORY, "%s: no memory for %s, %zu bytes", t->name, s.name, s.bytes);
        }
        if (*s.data) opt->state_bytes += s.bytes;
        if (!status && opt->device) status = adamod__device_fill(opt, t, &s);
        else if (!status) adamod__fill_state(opt, t, &s);
        if (status) {
            adamod__free_states(opt, t);
            return status;
        }
    }
    return ADAMOD_OK;
}

static size_t adamod__bytes(const adamod_span *x, adamod_type type) {
    return (size_t)x->count * adamod__type_size(type);
}

/* Of the scales of state k; 0: it has none. */
static size_t adamod__scale_bytes(const tensor *t, int k) {
    if (t->span.state_type != ADAMOD_Q8) return 0;
    return (t->state_bytes[k] + ADAMOD_Q8_BLOCK - 1) / ADAMOD_Q8_BLOCK * sizeof(float);
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

/* Nothing the optimizer writes may be written or read as anything else. */
static adamod_status adamod__check_apart(const adamod_optimizer *opt, const adamod_span *x, const char *name,
                                         int64_t self) {
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

/* The same for all arrays of a parameter that is not added yet. */
static adamod_status adamod__check_new_apart(const adamod_optimizer *opt, const tensor *t) {
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

/* And for all that are there, at once. */
static adamod_status adamod__check_all_apart(const adamod_optimizer *opt) {
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

uint64_t adamod__name_hash(const char *name) {
    uint64_t hash = 0xcbf29ce484222325u;
    for (; *name; name++) hash = (hash ^ (unsigned char)*name) * 0x100000001b3u;
    return hash;
}

/* Scales go with states in 8 bits that the user keeps. */
static adamod_status adamod__check_scales(const adamod_tensor *in, const tensor *t, const char *name) {
    for (int i = 0; i < ADAMOD_MAX_STATES; i++) {
        const bool wanted = t->given_states && adamod__scale_bytes(t, i) > 0;
        if (wanted && !in->scale[i]) {
            return adamod__fail(ADAMOD_ERROR_ARGUMENT, "%s: scale[%d] is NULL, and the states are in 8 bits", name, i);
        }
        const bool empty = t->given_states && in->state[i] && t->state_bytes[i] == 0;
        if (in->scale[i] && !wanted && !empty) {
            return adamod__fail(ADAMOD_ERROR_ARGUMENT, "%s: scale[%d] is given, and no state in 8 bits", name, i);
        }
    }
    return ADAMOD_OK;
}

/* Takes the states that the user keeps: all, or none. */
static adamod_status adamod__take_states(const adamod_optimizer *opt, const adamod_tensor *in, const char *name,
                                         tensor *t) {
    const double *o = opt->groups[t->group].options;
    state_spec specs[ADAMOD_MAX_STATES];
    int missing = -1;
    adamod_state_desc desc, first = {0};
    adamod__states(opt->rule, o, in->ndim, specs);
    for (int i = 0; i < ADAMOD_MAX_STATES; i++) {
        const adamod_status status = adamod__state_size(&specs[i], o, in->ndim, in->shape, &desc);
        if (status) return status;
        if (in->state[i] && !desc.name) {
            return adamod__fail(ADAMOD_ERROR_ARGUMENT, "%s: state[%d] is given, and %s has none there", name, i,
                                opt->rule->name);
        }
        t->span.state[i] = in->state[i];
        t->span.scale[i] = in->scale[i];
        t->state_bytes[i] = desc.name ? (size_t)desc.count * adamod__type_size(t->span.state_type) : 0;
        t->given_states = t->given_states || in->state[i];
        if (missing >= 0 || !desc.name || desc.count == 0 || in->state[i]) continue;
        missing = i;
        first = desc;
    }
    if (!t->given_states || missing < 0) return adamod__check_scales(in, t, name);
    return adamod__fail(ADAMOD_ERROR_ARGUMENT, "%s: state[%d], %s, is NULL, and others are given", name, missing,
                        first.name);
}

/* Of what the user keeps besides parameter and gradient. */
static adamod_status adamod__check_given(const adamod_optimizer *opt, const tensor *t, const char *name) {
    state_ref s;
    if (!t->given_states && !t->given_master) return ADAMOD_OK;
    for (int i = 0; adamod__any_state(opt, t, i, &s); i++) {
        if (!*s.data) continue;
        if (adamod__misaligned(*s.data, s.type)) {
            return adamod__fail(ADAMOD_ERROR_ARGUMENT, "%s: %s is not aligned to its elements", name, s.name);
        }
        const adamod_status status = opt->device ? adamod__device_check(opt, name, s.name, *s.data) : ADAMOD_OK;
        if (status) return status;
    }
    tensor named = *t;
    named.name = (char *)(uintptr_t)name;
    return adamod__check_new_apart(opt, &named);
}

/* Fills in t from what the user gave. */
static adamod_status adamod__describe(const adamod_optimizer *opt, int g, const adamod_tensor *in, const char *name,
                                      tensor *t) {
    if (in->ndim < 0 || in->ndim > ADAMOD_MAX_DIMS) {
        return adamod__fail(ADAMOD_ERROR_ARGUMENT, "%s: ndim is %d, expected 0 <= ndim <= %d", name, in->ndim,
                            ADAMOD_MAX_DIMS);
    }
    const int64_t count = adamod__element_count(in->ndim, in->shape);
    if (count < 0)
        return adamod__fail(ADAMOD_ERROR_ARGUMENT, "%s: a dimension is negative or the size overflows", name);
    t->group = g;
    t->span = (adamod_span){.param = in->param,
                            .grad = in->grad,
                            .master = in->master,
                            .param_type = in->param_type,
                            .grad_type = in->grad_type,
                            .ndim = in->ndim,
                            .count = count,
                            .step = 1,
                            .stream = adamod__name_hash(name)};
    memcpy(t->span.shape, in->shape, (size_t)in->ndim * sizeof *in->shape);
    if (in->master && !adamod__has_master(opt, t)) {
        return adamod__fail(ADAMOD_ERROR_ARGUMENT, "%s: a master is for bf16 and f16 with low_precision=master", name);
    }
    t->given_master = in->master;
    adamod_status status = adamod__check_arrays(&t->span, name);
    if (status || (status = adamod__check_apart(opt, &t->span, name, -1))) return status;
    if (opt->device && ((status = adamod__device_check(opt, name, "param", in->param)) ||
                        (status = adamod__device_check(opt, name, "grad", in->grad)))) {
        return status;
    }
    t->span.state_type = adamod__state_type(opt, t);
    if ((status = adamod__take_states(opt, in, name, t)) || (status = adamod__check_given(opt, t, name))) return status;
    t->span.step = 0;
    return ADAMOD_OK;
}

static adamod_status adamod__more_tensors(adamod_optimizer *opt) {
    if (opt->n < opt->capacity) return ADAMOD_OK;
    const size_t capacity = opt->capacity ? 2 * (size_t)opt->capacity : 16;
    tensor *tensors = realloc(opt->tensors, capacity * sizeof *tensors);
    if (tensors) opt->tensors = tensors;
    work_item *items = realloc(opt->items, capacity * sizeof *items);
    if (items) opt->items = items;
    if (!tensors || !items) return adamod__fail(ADAMOD_ERROR_MEMORY, "no memory for %zu parameters", capacity);
    opt->capacity = (int64_t)capacity;
    return ADAMOD_OK;
}

adamod_status adamod_add_tensor(adamod_optimizer *opt, int g, const adamod_tensor *in, int64_t *id) {
    if (!opt) return adamod__null_handle();
    if (!in) return adamod__fail(ADAMOD_ERROR_ARGUMENT, "the tensor is NULL");
    adamod_status status = adamod__check_group(opt, g);
    if (status || (status = adamod__more_tensors(opt))) return status;
    char standard[40];
    snprintf(standard, sizeof standard, "param.%lld", (long long)opt->n);
    const char *name = in->name ? in->name : standard;
    for (int64_t i = 0; i < opt->n; i++) {
        if (strcmp(opt->tensors[i].name, name) == 0) {
            return adamod__fail(ADAMOD_ERROR_NAME, "%s: there is a parameter of this name already", name);
        }
    }
    tensor t = {0};
    if ((status = adamod__describe(opt, g, in, name, &t)) || (status = adamod__device_unlay(opt))) return status;
    if (!(t.name = strdup(name))) return adamod__fail(ADAMOD_ERROR_MEMORY, "%s: no memory for the name", name);
    if ((status = adamod__make_states(opt, &t))) {
        free(t.name);
        return status;
    }
    opt->tensors[opt->n] = t;
    if (id) *id = opt->n;
    opt->n++;
    return ADAMOD_OK;
}

adamod_status adamod_add(adamod_optimizer *opt, const char *name, float *param, const float *grad, int ndim,
                         const int64_t *shape) {
    adamod_tensor t = {.name = name, .param = param, .grad = grad, .ndim = ndim};
    if (ndim > 0 && !shape) return adamod__fail(ADAMOD_ERROR_ARGUMENT, "%s: shape is NULL", name ? name : "parameter");
    for (int d = 0; d < ndim && d < ADAMOD_MAX_DIMS; d++) t.shape[d] = shape[d];
    return adamod_add_tensor(opt, 0, &t, NULL);
}

int64_t adamod_tensors(const adamod_optimizer *opt) { return opt ? opt->n : 0; }

static adamod_status adamod__check_id(const adamod_optimizer *opt, int64_t id) {
    if (!opt) return adamod__null_handle();
    if (id >= 0 && id < opt->n) return ADAMOD_OK;
    return adamod__fail(ADAMOD_ERROR_RANGE, "parameter number is %lld, expected 0 <= number < %lld", (long long)id,
                        (long long)opt->n);
}

static adamod_status adamod__repoint(adamod_optimizer *opt, int64_t id, void *param, const void *grad) {
    tensor *t = &opt->tensors[id];
    adamod_span x = t->span;
    if (x.param == param && x.grad == grad) return ADAMOD_OK;
    x.param = param;
    x.grad = grad;
    adamod_status status = adamod__check_arrays(&x, t->name);
    if (status || (status = adamod__check_apart(opt, &x, t->name, id))) return status;
    if (opt->device && ((param != t->span.param && (status = adamod__device_check(opt, t->name, "param", param))) ||
                        (grad != t->span.grad && (status = adamod__device_check(opt, t->name, "grad", grad))))) {
        return status;
    }
    t->span = x;
    adamod__device_repoint(opt, id);
    return ADAMOD_OK;
}

adamod_status adamod_set_param(adamod_optimizer *opt, int64_t id, void *param) {
    const adamod_status status = adamod__check_id(opt, id);
    return status ? status : adamod__repoint(opt, id, param, opt->tensors[id].span.grad);
}

adamod_status adamod_set_grad(adamod_optimizer *opt, int64_t id, const void *grad) {
    const adamod_status status = adamod__check_id(opt, id);
    return status ? status : adamod__repoint(opt, id, opt->tensors[id].span.param, grad);
}

/* What adamod_set_arrays replaces. */
typedef struct pointer_pair {
    void *param;
    const void *grad;
} pointer_pair;

static adamod_status adamod__check_moved(const adamod_optimizer *opt, const tensor *t, const pointer_pair *before) {
    const adamod_span *x = &t->span;
    adamod_status status = adamod__check_arrays(x, t->name);
    if (status || !opt->device) return status;
    if (x->param != before->param) status = adamod__device_check(opt, t->name, "param", x->param);
    if (!status && x->grad != before->grad) status = adamod__device_check(opt, t->name, "grad", x->grad);
    return status;
}

adamod_status adamod_set_arrays(adamod_optimizer *opt, int64_t n, const int64_t *ids, void *const *params,
                                const void *const *grads) {
    if (!opt) return adamod__null_handle();
    if (n < 0 || n > INT32_MAX) return adamod__fail(ADAMOD_ERROR_ARGUMENT, "set_arrays: n is %lld", (long long)n);
    for (int64_t i = 0; i < n; i++) {
        const adamod_status status = adamod__check_id(opt, ids ? ids[i] : i);
        if (status) return status;
    }
    pointer_pair *before = malloc(((size_t)n + 1) * sizeof *before);
    if (!before) return adamod__fail(ADAMOD_ERROR_MEMORY, "no memory for %lld pointers", (long long)n);
    adamod_status status = ADAMOD_OK;
    bool moved = false;
    int64_t done = 0;
    for (; done < n && !status; done++) {
        tensor *t = &opt->tensors[ids ? ids[done] : done];
        before[done] = (pointer_pair){t->span.param, t->span.grad};
        if (params) t->span.param = params[done];
        if (grads) t->span.grad = grads[done];
        if (t->span.param == before[done].param && t->span.grad == before[done].grad) continue;
        moved = true;
        status = adamod__check_moved(opt, t, &before[done]);
    }
    if (!status && moved) status = adamod__check_all_apart(opt);
    while (status && done-- > 0) { /* backwards, since an id may occur twice */
        adamod_span *x = &opt->tensors[ids ? ids[done] : done].span;
        x->param = before[done].param;
        x->grad = before[done].grad;
    }
    for (int64_t i = 0; !status && moved && i < n; i++) adamod__device_repoint(opt, ids ? ids[i] : i);
    free(before);
    return status;
}

adamod_status adamod_state(const adamod_optimizer *opt, int64_t id, const char *name, void **data, adamod_type *type,
                           int64_t *count) {
    const adamod_status status = adamod__check_id(opt, id);
    if (status) return status;
    if (!name || !data) return adamod__fail(ADAMOD_ERROR_ARGUMENT, "the state's name or data is NULL");
    state_ref s;
    char known[128] = "";
    for (int i = 0; adamod__any_state(opt, &opt->tensors[id], i, &s); i++) {
        if (strcmp(s.name, name) == 0) {
            *data = *s.data;
            if (type) *type = s.type;
            if (count) *count = s.desc.count;
            return ADAMOD_OK;
        }
        const size_t used = strlen(known);
        snprintf(known + used, sizeof known - used, "%s%s", i ? ", " : "", s.name);
    }
    return adamod__fail(ADAMOD_ERROR_NAME, "%s: no state '%.40s', there %s %s", opt->tensors[id].name, name,
                        *known ? "are" : "is", *known ? known : "none");
}

adamod_status adamod_tensor_steps(const adamod_optimizer *opt, int64_t id, int64_t *steps) {
    adamod_status status = adamod__check_id(opt, id);
    if (status) return status;
    if (!steps) return adamod__fail(ADAMOD_ERROR_ARGUMENT, "steps is NULL");
    if ((status = adamod__refresh(opt))) return status;
    *steps = opt->tensors[id].span.step;
    return ADAMOD_OK;
}

adamod_status adamod_all_tensor_steps(const adamod_optimizer *opt, int64_t n, int64_t *steps) {
    if (!opt) return adamod__null_handle();
    if (n < 0 || n > opt->n) {
        return adamod__fail(ADAMOD_ERROR_RANGE, "n is %lld, expected 0 <= n <= %lld, the number of parameters",
                            (long long)n, (long long)opt->n);
    }
    if (n > 0 && !steps) return adamod__fail(ADAMOD_ERROR_ARGUMENT, "steps is NULL");
    const adamod_status status = adamod__refresh(opt);
    for (int64_t i = 0; !status && i < n; i++) steps[i] = opt->tensors[i].span.step;
    return status;
}

adamod_status adamod_set_tensor_steps(adamod_optimizer *opt, int64_t id, int64_t steps) {
    adamod_status status = adamod__check_id(opt, id);
    if (status) return status;
    if (steps < 0 || steps == INT64_MAX) {
        return adamod__fail(ADAMOD_ERROR_RANGE, "%s: steps is %lld, expected 0 <= steps < 2^63 - 1",
                            opt->tensors[id].name, (long long)steps);
    }
    if ((status = adamod__refresh(opt))) return status;
    opt->tensors[id].span.step = steps;
    if (opt->steps < steps) opt->steps = steps;
    return adamod__device_push(opt);
}

/* ---- the step ---- */

/* The options of each group in update t: as set, or as their schedules say. */
static adamod_status adamod__schedule_options(adamod_optimizer *opt, int64_t t) {
    for (int g = 0; g < opt->n_groups; g++) {
        group *x = &opt->groups[g];
        memcpy(x->effective, x->options, sizeof x->effective);
        const option_spec *o;
        for (int i = 0; (o = adamod__option(opt->rule, i)); i++) {
            if (!x->schedule[o->id]) continue;
            x->effective[o->id] = adamod_schedule_value(x->schedule[o->id], x->options[o->id], t);
            const adamod_status status = adamod__check_value(opt->rule, o, x->effective[o->id]);
            if (status) return status;
        }
    }
    return ADAMOD_OK;
}

/* Whether there is more to do than waking a thread takes: some 50 us, in which one thread updates 60,000 elements
 * that it must fetch from memory. */
static bool adamod__worth_threads(const adamod_optimizer *opt) {
    enum { ELEMENTS = 65536 };
    int64_t total = 0;
    for (int64_t i = 0; i < opt->n; i++) total += opt->tensors[i].span.grad ? opt->tensors[i].span.count : 0;
    return total >= ELEMENTS;
}

/* Threads are made when there is work for them. */
static adamod_status adamod__ensure_pool(adamod_optimizer *opt) {
    const int threads = (int)opt->groups[0].options[OPT_THREADS];
    if (opt->pool || threads == 1 || !adamod__worth_threads(opt)) return ADAMOD_OK;
    const adamod_status status = adamod_pool_create(&opt->pool, threads);
    opt->own_pool = status == ADAMOD_OK;
    return status;
}

/* Whether the gradients, one parameter's or all, are finite as the update sees them. */
static bool adamod__finite(const work *w, work_space *space, double factor) {
    const work_item *item = w->items;
    if (!isfinite(adamod__work_norm(w, space))) return false;
    if (!item->span->grad || adamod__compute_type(item->span->param_type) == ADAMOD_F64) return true;
    return adamod__seen_finite(adamod__work_largest(w, space), item->grad_scale, factor);
}

/* The first parameter whose gradient is not; NULL: none. */
static const tensor *adamod__find_nonfinite(work *w, work_space *space, double factor) {
    const work all = *w;
    const tensor *found = NULL;
    for (size_t i = 0; i < all.n && !found; i++) {
        w->items = &all.items[i];
        w->n = 1;
        if (adamod__finite(w, space, factor)) continue;
        found = (const tensor *)(const void *)((const char *)all.items[i].span - offsetof(tensor, span));
    }
    *w = all;
    return found;
}

static adamod_status adamod__nonfinite(const adamod_optimizer *opt, const tensor *t) {
    const long long update = (long long)opt->steps + 1;
    if (!t) {
        return adamod__fail(ADAMOD_ERROR_NONFINITE, "the global norm of the gradients overflows in update %lld",
                            update);
    }
    return adamod__fail(ADAMOD_ERROR_NONFINITE, "%s: its gradient holds a NaN or an infinity in update %lld", t->name,
                        update);
}

/* The factor that brings the global norm down to clip_norm; *skip if the step must not be taken. */
static adamod_status adamod__clip(adamod_optimizer *opt, work *w, double *factor, bool *skip) {
    const double *o = opt->groups[0].options;
    *factor = 1;
    if (!isfinite(o[OPT_CLIP_NORM]) && o[OPT_NONFINITE] == NONFINITE_PASS && !opt->collect) {
        opt->norm = -1;
        return ADAMOD_OK;
    }
    const double norm = adamod__work_norm(w, &opt->space);
    if (norm > o[OPT_CLIP_NORM]) *factor = o[OPT_CLIP_NORM] / norm;
    if (o[OPT_NONFINITE] != NONFINITE_PASS && !adamod__surely_finite(norm, o[OPT_GRAD_SCALE])) {
        const tensor *bad = adamod__find_nonfinite(w, &opt->space, *factor);
        const bool nonfinite = bad || !isfinite(norm);
        if (nonfinite && o[OPT_NONFINITE] == NONFINITE_ERROR) return adamod__nonfinite(opt, bad);
        *skip = nonfinite;
    }
    opt->norm = norm;
    return ADAMOD_OK;
}

static void adamod__fill_items(adamod_optimizer *opt) {
    for (int64_t i = 0; i < opt->n; i++) {
        const group *g = &opt->groups[opt->tensors[i].group];
        opt->items[i] = (work_item){&opt->tensors[i].span, g->effective, g->options[OPT_LR], g->options[OPT_GRAD_SCALE],
                                    opt->tensors[i].group};
    }
}

static void adamod__count_step(adamod_optimizer *opt, int by) {
    for (int64_t i = 0; i < opt->n; i++) {
        if (opt->tensors[i].span.grad) opt->tensors[i].span.step += by;
    }
}

/* The attempt that was counted last. */
static void adamod__note_attempt(adamod_optimizer *opt, bool taken) {
    const int64_t attempt = opt->steps + opt->skipped;
    opt->reports[attempt % ADAMOD_REPORTS] =
        (adamod_step_report){attempt, taken, opt->norm, opt->groups[0].effective[OPT_LR]};
}

adamod_status adamod_step(adamod_optimizer *opt) {
    if (!opt) return adamod__null_handle();
    if (opt->n == 0) return adamod__fail(ADAMOD_ERROR_ORDER, "step: no parameters were added");
    if (opt->device) return adamod__device_step(opt);
    adamod_status status = adamod__schedule_options(opt, opt->steps + 1);
    if (status || (status = adamod__ensure_pool(opt))) return status;
    adamod__fill_items(opt);
    adamod_pool *pool = adamod__worth_threads(opt) ? opt->pool : NULL;
    work w = {opt->rule, opt->kernels, opt->items, (size_t)opt->n, pool, opt->collect ? &opt->stats : NULL};
    adamod__count_step(opt, 1);
    status = adamod__work_reserve(&w, &opt->space);
    double factor = 1;
    bool skip = false;
    if (status == ADAMOD_OK) status = adamod__clip(opt, &w, &factor, &skip);
    if (status || skip) {
        adamod__count_step(opt, -1);
        opt->skipped += skip;
        if (skip) adamod__note_attempt(opt, false);
        return status;
    }
    for (int64_t i = 0; i < opt->n; i++) opt->items[i].grad_scale *= factor;
    for (int g = 0; opt->collect && g < opt->stats.n_groups; g++) adamod__stats_clear(&opt->stats.groups[g]);
    adamod__work_run(&w, &opt->space);
    opt->stats.filled = opt->collect;
    opt->steps++;
    adamod__note_attempt(opt, true);
    return ADAMOD_OK;
}

int64_t adamod_steps(const adamod_optimizer *opt) {
    if (opt) (void)adamod__refresh(opt);
    return opt ? opt->steps : 0;
}

int64_t adamod_skipped(const adamod_optimizer *opt) {
    if (opt) (void)adamod__refresh(opt);
    return opt ? opt->skipped : 0;
}

double adamod_grad_norm(const adamod_optimizer *opt) {
    if (opt) (void)adamod__refresh(opt);
    return opt ? opt->norm : -1;
}

adamod_status adamod_report(const adamod_optimizer *opt, int64_t attempt, adamod_step_report *out) {
    if (!opt) return adamod__null_handle();
    if (!out) return adamod__fail(ADAMOD_ERROR_ARGUMENT, "out is NULL");
    if (attempt < 1) return adamod__fail(ADAMOD_ERROR_RANGE, "attempt is %lld, expected 1 or more", (long long)attempt);
    const adamod_step_report *kept = &opt->reports[attempt % ADAMOD_REPORTS];
    bool there = !opt->device && kept->attempt == attempt;
    if (there) *out = *kept;
    else if (opt->device) there = opt->api->report(opt->device, attempt, out) != 0;
    if (there) return ADAMOD_OK;
    return adamod__fail(ADAMOD_ERROR_ORDER, "attempt %lld is not done yet, or not among the last %d",
                        (long long)attempt, ADAMOD_REPORTS);
}

const char *adamod_isa(const adamod_optimizer *opt) { return !opt ? NULL : opt->device ? "cuda" : opt->kernels->name; }

adamod_status adamod_set_pool(adamod_optimizer *opt, adamod_pool *pool) {
    if (!opt) return adamod__null_handle();
    adamod__drop_pool(opt);
    opt->pool = pool;
    return ADAMOD_OK;
}

adamod_status adamod_collect(adamod_optimizer *opt, int on) {
    if (!opt) return adamod__null_handle();
    if (on && !opt->stats.groups) {
        opt->stats.groups = malloc((size_t)opt->n_groups * sizeof *opt->stats.groups);
        if (!opt->stats.groups) return adamod__fail(ADAMOD_ERROR_MEMORY, "no memory for statistics");
        opt->stats.n_groups = opt->n_groups;
    }
    if (!on) {
        free(opt->stats.groups);
        opt->stats.groups = NULL;
        opt->stats.n_groups = 0;
        opt->stats.filled = false;
    }
    const bool before = opt->collect;
    opt->collect = on != 0;
    return before ? ADAMOD_OK : adamod__device_collect(opt);
}

adamod_status adamod_get_statistics(const adamod_optimizer *opt, int g, adamod_statistics *out) {
    if (!opt) return adamod__null_handle();
    if (!out) return adamod__fail(ADAMOD_ERROR_ARGUMENT, "out is NULL");
    adamod_status status = g == -1 ? ADAMOD_OK : adamod__check_group(opt, g);
    if (status) return status;
    if (opt->device && (status = adamod__device_statistics((adamod_optimizer *)(uintptr_t)opt))) return status;
    if (!opt->stats.filled) {
        return adamod__fail(ADAMOD_ERROR_ORDER, "no statistics: switch them on with adamod_collect, then step");
    }
    adamod__stats_result(&opt->stats, g, out);
    return ADAMOD_OK;
}

void adamod_memory(const adamod_optimizer *opt, size_t *states, size_t *other) {
    if (states) *states = opt ? opt->state_bytes : 0;
    if (!other) return;
    *other = 0;
    if (!opt) return;
    const work_space *s = &opt->space;
    *other = sizeof *opt + (size_t)opt->n_groups * sizeof *opt->groups +
             (size_t)opt->capacity * (sizeof *opt->tensors + sizeof *opt->items) +
             s->items * (sizeof *s->first_chunk + sizeof *s->coef_of) + s->n_coefs * sizeof *s->coefs +
             s->chunks * 2 * sizeof *s->partial + (size_t)opt->stats.n_groups * sizeof *opt->stats.groups;
    for (int64_t i = 0; i < opt->n; i++) *other += strlen(opt->tensors[i].name) + 1;
}
