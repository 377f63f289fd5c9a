/* The optimizer's parameters and their states, its own and those that the caller keeps. */
#include "optim/optimizer.h"
#include "optim/update.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- states ---- */

adamod_type adamod__type_of_states(const double *options, const adamod_span *x) {
    const double type = options[OPT_STATE_TYPE];
    if (type == STATE_BF16) return ADAMOD_BF16;
    const bool q8 = type == STATE_Q8 && (double)x->count >= options[OPT_MIN_8BIT_SIZE];
    return q8 ? ADAMOD_Q8 : adamod__compute_type(x->param_type);
}

static adamod_type adamod__state_type(const adamod_optimizer *opt, const tensor *t) {
    return adamod__type_of_states(opt->groups[t->group].options, &t->span);
}

static bool adamod__has_master(const adamod_optimizer *opt, const tensor *t) {
    const bool low = t->span.param_type == ADAMOD_BF16 || t->span.param_type == ADAMOD_F16;
    return low && opt->groups[t->group].options[OPT_LOW_PRECISION] == LOW_PRECISION_MASTER;
}

const char *adamod__scale_name(const char *state) {
    static const char *const names[] = {
        "exp_avg_scale",      "exp_avg_sq_scale",   "exp_avg_lr_scale",   "momentum_buffer_scale",
        "sum_scale",          "square_avg_scale",   "acc_delta_scale",    "max_exp_avg_sq_scale",
        "exp_inf_scale",      "exp_avg_var_scale",  "exp_avg_fast_scale", "exp_avg_slow_scale",
        "exp_avg_diff_scale", "neg_pre_grad_scale", "exp_avg_step_scale",
    };
    const size_t length = strlen(state);
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        if (strncmp(names[i], state, length) == 0 && strcmp(names[i] + length, "_scale") == 0) return names[i];
    }
    return NULL;
}

/* The first code, or the first scale, of an 8-bit state. */
static double adamod__first_q8(const adamod_state_desc *desc, bool of_scale) {
    const float initial = (float)desc->initial;
    float scale = 0;
    uint8_t code = 0;
    (void)adamod_q8_encode(1, 1, &initial, &code, &scale);
    return of_scale ? (double)scale : code;
}

/* Turns the reference to a state into one to its scales. */
static void adamod__refer_to_scales(state_ref *s, void **data) {
    const int64_t blocks = (s->desc.count + ADAMOD_Q8_BLOCK - 1) / ADAMOD_Q8_BLOCK;
    const double initial = adamod__first_q8(&s->desc, true);
    s->data = data;
    s->type = ADAMOD_F32;
    s->desc = (adamod_state_desc){.name = adamod__scale_name(s->desc.name), .count = blocks, .ndim = 1};
    s->desc.shape[0] = blocks;
    s->desc.initial = initial;
}

/* Like adamod__state_ref, but including arrays of the user. */
static bool adamod__any_state(const adamod_optimizer *opt, const tensor *t, int index, state_ref *out) {
    const double *o = opt->groups[t->group].options;
    state_spec specs[ADAMOD_MAX_STATES];
    adamod__states(opt->rule, o, t->span.ndim, specs);
    tensor *mutable = (tensor *)(uintptr_t)t;
    *out = (state_ref){0};
    for (int i = 0; i < ADAMOD_MAX_STATES; i++) {
        if (!specs[i].name) continue;
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
        else if (out->type == ADAMOD_Q8) out->desc.initial = adamod__first_q8(&out->desc, false);
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
    memset(*s->data, s->type == ADAMOD_Q8 ? (int)s->desc.initial : 0, s->bytes);
    const bool master = s->data == &t->span.master;
    if (s->type == ADAMOD_Q8 || (s->desc.initial == 0 && !master)) return;
    double constant[BLOCK], buffer[BLOCK];
    /* scales are f32, whatever the type of computation */
    const adamod_type compute = s->type == ADAMOD_F32 ? ADAMOD_F32 : adamod__compute_type(t->span.param_type);
    for (int i = 0; i < BLOCK; i++) {
        if (compute == ADAMOD_F64) constant[i] = s->desc.initial;
        else memcpy((char *)constant + (size_t)i * sizeof(float), &(float){(float)s->desc.initial}, sizeof(float));
    }
    for (int64_t at = 0; at < s->desc.count; at += BLOCK) {
        const size_t n = adamod__block_length(s->desc.count, at);
        const size_t size = adamod__type_size(s->type);
        const void *from = constant;
        if (master) {
            from = adamod__read_block(opt->kernels, ADAMOD_F32, t->span.param, t->span.param_type, at, n, buffer);
        }
        if (s->type == compute) memcpy((char *)*s->data + (size_t)at * size, from, n * size);
        else adamod__write_block(opt->kernels, compute, *s->data, s->type, at, n, from, NULL);
    }
}

void adamod__free_states(adamod_optimizer *opt, tensor *t) {
    state_ref s;
    for (int i = 0; adamod__state_ref(opt, t, i, &s); i++) {
        if (!*s.data) continue;
        opt->state_bytes -= s.bytes;
        if (opt->device) opt->api->release(opt->device, *s.data);
        else adamod__free(opt, *s.data, s.bytes);
        *s.data = NULL;
    }
}

static adamod_status adamod__make_states(adamod_optimizer *opt, tensor *t) {
    state_ref s;
    for (int i = 0; adamod__state_ref(opt, t, i, &s); i++) {
        if (s.bytes == 0) continue;
        adamod_status status = ADAMOD_OK;
        if (opt->device) status = adamod__device_alloc(opt, s.bytes, s.data);
        else if (!(*s.data = adamod__alloc(opt, s.bytes))) {
            status = adamod__fail(ADAMOD_ERROR_MEMORY, "%s: out of memory for %s, %zu bytes", t->name, s.name, s.bytes);
        }
        if (*s.data) opt->state_bytes += s.bytes;
        if (!status && opt->device) status = adamod__device_fill(opt, t, &s);
        else if (!status) {
            const adamod__arithmetic before = adamod__enter_arithmetic();
            adamod__fill_state(opt, t, &s);
            adamod__leave_arithmetic(before);
        }
        if (status) {
            adamod__free_states(opt, t);
            return status;
        }
    }
    return ADAMOD_OK;
}

size_t adamod__scale_bytes(const tensor *t, int k) {
    if (t->span.state_type != ADAMOD_Q8) return 0;
    return (t->state_bytes[k] + ADAMOD_Q8_BLOCK - 1) / ADAMOD_Q8_BLOCK * sizeof(float);
}

/* ---- adding ---- */

/* FNV-1a. The random stream of a parameter follows from its name, and so not from the order of adding. */
static uint64_t adamod__name_hash(const char *name) {
    uint64_t hash = 0xcbf29ce484222325u;
    for (; *name; name++) hash = (hash ^ (unsigned char)*name) * 0x100000001b3u;
    return hash;
}

/* Scales go with states in 8 bits that the user keeps. */
static adamod_status adamod__check_scales(const adamod_tensor *in, const tensor *t, const char *name) {
    for (int i = 0; i < ADAMOD_MAX_STATES; i++) {
        const bool wanted = t->given_states && adamod__scale_bytes(t, i) > 0;
        if (wanted && !in->scale[i]) return adamod__refuse("%s: scale[%d] is NULL, but the states are 8-bit", name, i);
        const bool empty = t->given_states && in->state[i] && t->state_bytes[i] == 0;
        if (in->scale[i] && !wanted && !empty) {
            return adamod__refuse("%s: scale[%d] is set, but there is no 8-bit state for it", name, i);
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
        ADAMOD__TRY(adamod__state_size(&specs[i], o, in->ndim, in->shape, &desc));
        if (in->state[i] && !desc.name) {
            return adamod__refuse("%s: state[%d] is set, but %s has no such state", name, i, opt->rule->name);
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
    return adamod__refuse("%s: state[%d], %s, is NULL, but other states are set", name, missing, first.name);
}

/* Checks the master and states that the user owns. */
static adamod_status adamod__check_given(const adamod_optimizer *opt, const tensor *t, const char *name) {
    state_ref s;
    if (!t->given_states && !t->given_master) return ADAMOD_OK;
    for (int i = 0; adamod__any_state(opt, t, i, &s); i++) {
        if (!*s.data) continue;
        if (adamod__misaligned(*s.data, s.type)) {
            return adamod__refuse("%s: %s is not aligned to its elements", name, s.name);
        }
        ADAMOD__TRY(adamod__device_check(opt, name, s.name, *s.data));
    }
    tensor named = *t;
    named.name = (char *)(uintptr_t)name;
    return adamod__check_new_overlap(opt, &named);
}

/* Fills in t from what the user gave. */
static adamod_status adamod__describe(const adamod_optimizer *opt, int g, const adamod_tensor *in, const char *name,
                                      tensor *t) {
    ADAMOD__TRY(adamod__check_shape(name, in->ndim, in->shape));
    t->group = g;
    t->span = (adamod_span){.param = in->param,
                            .grad = in->grad,
                            .master = in->master,
                            .param_type = in->param_type,
                            .grad_type = in->grad_type,
                            .ndim = in->ndim,
                            .count = adamod__element_count(in->ndim, in->shape),
                            .step = 1,
                            .stream = adamod__name_hash(name)};
    memcpy(t->span.shape, in->shape, (size_t)in->ndim * sizeof *in->shape);
    if (in->master && !adamod__has_master(opt, t)) {
        return adamod__refuse("%s: only bf16 and f16 with low_precision=master have a master", name);
    }
    t->given_master = in->master;
    ADAMOD__TRY(adamod__check_arrays(&t->span, name));
    ADAMOD__TRY(adamod__check_overlap(opt, &t->span, name));
    ADAMOD__TRY(adamod__device_check(opt, name, "param", in->param));
    ADAMOD__TRY(adamod__device_check(opt, name, "grad", in->grad));
    t->span.state_type = adamod__state_type(opt, t);
    if (t->span.state_type == ADAMOD_Q8) ADAMOD__TRY(adamod__check_q8_options(opt->rule, opt->groups[g].options, name));
    ADAMOD__TRY(adamod__take_states(opt, in, name, t));
    ADAMOD__TRY(adamod__check_given(opt, t, name));
    t->span.step = 0;
    return ADAMOD_OK;
}

/* Like adamod__range_type, for a parameter without states so far. */
static int adamod__range_of(const adamod_optimizer *opt, const tensor *t) {
    return adamod__state_type(opt, t) == ADAMOD_F64 ? RANGE_F64 : RANGE_F32;
}

/* Checks that the options of its group suit its type. */
static adamod_status adamod__check_range(const adamod_optimizer *opt, const tensor *t, const char *name) {
    const int range = adamod__range_of(opt, t);
    const group *g = &opt->groups[t->group];
    const option_spec *o;
    const adamod_type type = range == RANGE_F64 ? ADAMOD_F64 : ADAMOD_F32;
    for (int i = 0; !g->computes[range] && (o = adamod__option(opt->rule, i)); i++) {
        if (o->info.kind != ADAMOD_REAL) continue;
        ADAMOD__TRY(adamod__check_number(opt->rule, o, g->options[o->id], type, name));
    }
    return ADAMOD_OK;
}

/* Returns the slot of a name in the hash table, free or taken. */
static int32_t *adamod__name_place(const adamod_optimizer *opt, const char *name) {
    const uint64_t hash = adamod__name_hash(name),
                   last = 2 * (uint64_t)opt->capacity - 1; /* a power of two, less one */
    uint64_t at = hash & last;
    while (opt->names[at]) {
        const tensor *t = &opt->tensors[opt->names[at] - 1];
        if (t->span.stream == hash && strcmp(t->name, name) == 0) break;
        at = (at + 1) & last;
    }
    return &opt->names[at];
}

static adamod_status adamod__more_tensors(adamod_optimizer *opt) {
    if (opt->n < opt->capacity) return ADAMOD_OK;
    const size_t capacity = opt->capacity ? 2 * (size_t)opt->capacity : 16;
    tensor *tensors = adamod__resize(opt->tensors, capacity, sizeof *tensors);
    if (tensors) opt->tensors = tensors;
    work_item *items = adamod__resize(opt->items, capacity, sizeof *items);
    if (items) opt->items = items;
    int32_t *names = tensors && items && capacity < INT32_MAX / 2 ? calloc(2 * capacity, sizeof *names) : NULL;
    if (!names) return adamod__fail(ADAMOD_ERROR_MEMORY, "out of memory for %zu parameters", capacity);
    free(opt->names);
    opt->names = names;
    opt->capacity = (int64_t)capacity;
    for (int64_t i = 0; i < opt->n; i++) *adamod__name_place(opt, opt->tensors[i].name) = (int32_t)i + 1;
    return ADAMOD_OK;
}

adamod_status adamod_add_tensor(adamod_optimizer *opt, int g, const adamod_tensor *in, int64_t *id) {
    if (!opt) return adamod__null_handle();
    if (!in) return adamod__refuse("the tensor is NULL");
    ADAMOD__TRY(adamod__check_group(opt, g));
    ADAMOD__TRY(adamod__more_tensors(opt));
    char standard[40];
    snprintf(standard, sizeof standard, "param.%lld", (long long)opt->n);
    const char *name = in->name ? in->name : standard;
    int32_t *place = adamod__name_place(opt, name);
    if (*place) return adamod__fail(ADAMOD_ERROR_NAME, "%s: another parameter has this name", name);
    if (!adamod__reserve_ranges(opt)) {
        return adamod__fail(ADAMOD_ERROR_MEMORY, "%s: out of memory for the ranges of its arrays", name);
    }
    tensor t = {0};
    ADAMOD__TRY(adamod__describe(opt, g, in, name, &t));
    ADAMOD__TRY(adamod__check_range(opt, &t, name));
    ADAMOD__TRY(adamod__device_unlay(opt));
    if (!(t.name = strdup(name))) return adamod__fail(ADAMOD_ERROR_MEMORY, "%s: out of memory for the name", name);
    const adamod_status status = adamod__make_states(opt, &t);
    if (status) {
        free(t.name);
        return status;
    }
    opt->tensors[opt->n] = t;
    *place = (int32_t)opt->n + 1;
    adamod__add_ranges(opt, opt->n);
    opt->groups[g].computes[adamod__range_of(opt, &t)] = true;
    if (id) *id = opt->n;
    opt->n++;
    return ADAMOD_OK;
}

adamod_status adamod_add(adamod_optimizer *opt, const char *name, float *param, const float *grad, int ndim,
                         const int64_t *shape) {
    adamod_tensor t = {.name = name, .param = param, .grad = grad, .ndim = ndim};
    if (ndim > 0 && !shape) return adamod__refuse("%s: shape is NULL", name ? name : "parameter");
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

/* ---- other arrays for the same parameter ---- */

typedef struct pointer_pair {
    void *param;
    const void *grad;
} pointer_pair;

/* Checks that the device can reach the arrays of x that have changed. */
static adamod_status adamod__check_moved(const adamod_optimizer *opt, const adamod_span *x, const pointer_pair *before,
                                         const char *name) {
    if (x->param != before->param) ADAMOD__TRY(adamod__device_check(opt, name, "param", x->param));
    return x->grad != before->grad ? adamod__device_check(opt, name, "grad", x->grad) : ADAMOD_OK;
}

static adamod_status adamod__repoint(adamod_optimizer *opt, int64_t id, void *param, const void *grad) {
    tensor *t = &opt->tensors[id];
    adamod_span x = t->span;
    if (x.param == param && x.grad == grad) return ADAMOD_OK;
    x.param = param;
    x.grad = grad;
    ADAMOD__TRY(adamod__check_arrays(&x, t->name));
    if (!adamod__reserve_ranges(opt)) {
        return adamod__fail(ADAMOD_ERROR_MEMORY, "%s: out of memory for the ranges of its arrays", t->name);
    }
    adamod__lift_range(opt, id, &t->span);
    const adamod_status status = adamod__check_overlap(opt, &x, t->name);
    adamod__lay_range(opt, id, &t->span);
    if (status) return status;
    ADAMOD__TRY(adamod__check_moved(opt, &x, &(pointer_pair){t->span.param, t->span.grad}, t->name));
    adamod__lift_range(opt, id, &t->span);
    t->span = x;
    adamod__lay_range(opt, id, &t->span);
    adamod__device_repoint(opt, id);
    return ADAMOD_OK;
}

adamod_status adamod_set_param(adamod_optimizer *opt, int64_t id, void *param) {
    ADAMOD__TRY(adamod__check_id(opt, id));
    return adamod__repoint(opt, id, param, opt->tensors[id].span.grad);
}

adamod_status adamod_set_grad(adamod_optimizer *opt, int64_t id, const void *grad) {
    ADAMOD__TRY(adamod__check_id(opt, id));
    return adamod__repoint(opt, id, opt->tensors[id].span.param, grad);
}

adamod_status adamod_set_arrays(adamod_optimizer *opt, int64_t n, const int64_t *ids, void *const *params,
                                const void *const *grads) {
    if (!opt) return adamod__null_handle();
    if (n < 0 || n > INT32_MAX)
        return adamod__refuse("set_arrays: n is %lld, expected 0 <= n <= %lld", (long long)n, (long long)opt->n);
    for (int64_t i = 0; i < n; i++) {
        ADAMOD__TRY(adamod__check_id(opt, ids ? ids[i] : i));
    }
    pointer_pair *before = adamod__resize(NULL, (size_t)n + 1, sizeof *before);
    if (!before) return adamod__fail(ADAMOD_ERROR_MEMORY, "out of memory for %lld pointers", (long long)n);
    adamod_status status = ADAMOD_OK;
    bool moved = false;
    int64_t done = 0;
    for (; done < n && !status; done++) {
        const int64_t id = ids ? ids[done] : done;
        tensor *t = &opt->tensors[id];
        before[done] = (pointer_pair){t->span.param, t->span.grad};
        if ((!params || params[done] == t->span.param) && (!grads || grads[done] == t->span.grad)) continue;
        if (!adamod__ranges_reserve(&opt->ranges, 2 * (size_t)n)) {
            status = adamod__fail(ADAMOD_ERROR_MEMORY, "out of memory for the ranges of %lld parameters", (long long)n);
            continue;
        }
        if (!t->lifted) adamod__lift_range(opt, id, &t->span);
        t->lifted = moved = true;
        if (params) t->span.param = params[done];
        if (grads) t->span.grad = grads[done];
        status = adamod__check_arrays(&t->span, t->name);
        if (!status) status = adamod__check_moved(opt, &t->span, &before[done], t->name);
    }
    for (int64_t i = 0; moved && i < done; i++) {
        tensor *t = &opt->tensors[ids ? ids[i] : i];
        if (t->lifted && !status) status = adamod__lay_range_checked(opt, ids ? ids[i] : i);
        t->lifted = false;
    }
    const bool failed = status;
    while (failed && done-- > 0) { /* backwards, since an id may occur twice */
        adamod_span *x = &opt->tensors[ids ? ids[done] : done].span;
        x->param = before[done].param;
        x->grad = before[done].grad;
    }
    if (failed && moved) adamod__renew_ranges(opt);
    for (int64_t i = 0; !status && moved && i < n; i++) adamod__device_repoint(opt, ids ? ids[i] : i);
    free(before);
    return status;
}

/* ---- reading ---- */

adamod_status adamod_state(const adamod_optimizer *opt, int64_t id, const char *name, void **data, adamod_type *type,
                           int64_t *count) {
    ADAMOD__TRY(adamod__check_id(opt, id));
    if (!name || !data) return adamod__refuse("%s is NULL", name ? "data" : "the state's name");
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
    ADAMOD__TRY(adamod__check_id(opt, id));
    if (!steps) return adamod__refuse("steps is NULL");
    ADAMOD__TRY(adamod__refresh(opt));
    *steps = opt->tensors[id].span.step;
    return ADAMOD_OK;
}

adamod_status adamod_all_tensor_steps(const adamod_optimizer *opt, int64_t n, int64_t *steps) {
    if (!opt) return adamod__null_handle();
    if (n < 0 || n > opt->n) {
        return adamod__fail(ADAMOD_ERROR_RANGE, "n is %lld, expected 0 <= n <= %lld, the number of parameters",
                            (long long)n, (long long)opt->n);
    }
    if (n > 0 && !steps) return adamod__refuse("steps is NULL");
    const adamod_status status = adamod__refresh(opt);
    for (int64_t i = 0; !status && i < n; i++) steps[i] = opt->tensors[i].span.step;
    return status;
}

adamod_status adamod_set_tensor_steps(adamod_optimizer *opt, int64_t id, int64_t steps) {
    ADAMOD__TRY(adamod__check_id(opt, id));
    if (steps < 0 || steps > ADAMOD__MOST_STEPS) {
        return adamod__fail(ADAMOD_ERROR_RANGE, "%s: steps is %lld, expected 0 <= steps < 2^62", opt->tensors[id].name,
                            (long long)steps);
    }
    ADAMOD__TRY(adamod__refresh(opt));
    opt->tensors[id].span.step = steps;
    if (opt->steps < steps) opt->steps = steps;
    return adamod__device_push(opt);
}
