/* Optimizers whose parameters are on a GPU: finds libadamod_cuda and tells it what it needs to know. */
#include "optim/device.h"
#include "core/library.h"
#include "optim/optimizer.h"
#include "optim/schedule.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- the library ---- */

#ifdef ADAMOD_NO_CUDA
static const adamod__device_api *adamod__load_cuda(void) {
    adamod__fail(ADAMOD_ERROR_NO_CUDA, "cuda: this library was compiled without it (ADAMOD_NO_CUDA)");
    return NULL;
}
#else
#define CUDA_LIBRARY "libadamod_cuda.so.0"

/* NULL, with the last error set, if it cannot be used. */
static const adamod__device_api *adamod__load_cuda(void) {
    static const char *const places[] = {"", "../lib/", "../lib64/", NULL}; /* for PREFIX/bin/PROGRAM */
    const char *why;
    void *library = adamod__library_open(CUDA_LIBRARY, "ADAMOD_CUDA_LIBRARY", places, &why);
    if (!library) {
        adamod__fail(ADAMOD_ERROR_NO_CUDA, "cuda: %s cannot be loaded: %s", CUDA_LIBRARY, why);
        return NULL;
    }
    adamod__device_entry entry;
    const adamod__device_api *api = adamod__library_function(library, ADAMOD__DEVICE_ENTRY, &entry) ? entry() : NULL;
    if (api && api->version == ADAMOD__DEVICE_VERSION) return api;
    adamod__fail(ADAMOD_ERROR_NO_CUDA, "cuda: %s is from another version of libadamod (interface %d, expected %d)",
                 CUDA_LIBRARY, api ? api->version : 0, ADAMOD__DEVICE_VERSION);
    return NULL;
}
#endif

static adamod_status adamod__api_result(const adamod__device_api *api, adamod_status status) {
    return status ? adamod__fail(status, "%s", api->error()) : ADAMOD_OK;
}

static adamod_status adamod__result(const adamod_optimizer *opt, adamod_status status) {
    return adamod__api_result(opt->api, status);
}

#define DEVICE_CALL(opt, function, ...) adamod__result(opt, (opt)->api->function((opt)->device, ##__VA_ARGS__))

adamod_status adamod_cuda_status(void) {
    const adamod__device_api *api = adamod__load_cuda();
    int devices = 0;
    return api ? adamod__api_result(api, api->count(&devices)) : ADAMOD_ERROR_NO_CUDA;
}

adamod_status adamod_cuda_device_at(int index, adamod_cuda_device *out) {
    if (!out) return adamod__refuse("out is NULL");
    const adamod__device_api *api = adamod__load_cuda();
    return api ? adamod__api_result(api, api->describe(index, out)) : ADAMOD_ERROR_NO_CUDA;
}

adamod__gpu adamod__gpu_of(const adamod_optimizer *opt) { return (adamod__gpu){opt->api, opt->device}; }

/* ---- create ---- */

adamod_status adamod__parse_device(const char *text, int *index) {
    *index = 0;
    if (strcmp(text, "cuda") == 0) return ADAMOD_OK;
    char *end = NULL;
    const bool number = strncmp(text, "cuda:", 5) == 0 && text[5] >= '0' && text[5] <= '9';
    errno = 0;
    const long n = number ? strtol(text + 5, &end, 10) : -1;
    if (!number || *end || errno || n > 1023) {
        return adamod__fail(ADAMOD_ERROR_NAME, "device is '%.40s', expected cpu, cuda or cuda:N", text);
    }
    *index = (int)n;
    return ADAMOD_OK;
}

static void adamod__limits(const rule *r, device_limit limits[OPT_COUNT]) {
    const option_spec *o;
    memset(limits, 0, OPT_COUNT * sizeof *limits);
    for (int i = 0; (o = adamod__option(r, i)); i++) {
        limits[o->id] = (device_limit){.min = o->info.min,
                                       .max = o->info.max,
                                       .in = {[RANGE_F32] = adamod__number_range(o->id, ADAMOD_F32),
                                              [RANGE_F64] = adamod__number_range(o->id, ADAMOD_F64)},
                                       .min_open = o->info.min_open != 0,
                                       .max_open = o->info.max_open != 0};
    }
}

adamod_status adamod_create_on(adamod_optimizer **out, const char *rule_name, const char *device) {
    if (!out || !device) return adamod__refuse("create: %s is NULL", out ? "the device" : "out");
    if (strcmp(device, "cpu") == 0) return adamod_create(out, rule_name);
    int index;
    adamod_optimizer *opt;
    ADAMOD__TRY(adamod__parse_device(device, &index));
    ADAMOD__TRY(adamod_create(&opt, rule_name));
    device_limit limits[OPT_COUNT];
    adamod__limits(opt->rule, limits);
    opt->api = adamod__load_cuda();
    const adamod_status status =
        opt->api ? adamod__result(opt, opt->api->open(&opt->device, index, (int)opt->rule->id, limits))
                 : ADAMOD_ERROR_NO_CUDA;
    if (status) {
        adamod_free(opt);
        return status;
    }
    snprintf(opt->device_name, sizeof opt->device_name, "cuda:%d", index);
    *out = opt;
    return ADAMOD_OK;
}

void adamod__device_close(adamod_optimizer *opt) {
    if (opt->device) opt->api->close(opt->device);
    free(opt->values);
    opt->device = NULL;
    opt->values = NULL;
}

const char *adamod_device(const adamod_optimizer *opt) { return !opt ? NULL : opt->device ? opt->device_name : "cpu"; }

/* ---- memory ---- */

adamod_status adamod__device_alloc(const adamod_optimizer *opt, size_t bytes, void **out) {
    return DEVICE_CALL(opt, alloc, bytes, out);
}

adamod_status adamod__device_fill(const adamod_optimizer *opt, const tensor *t, const state_ref *s) {
    if (s->data == &t->span.master) {
        return DEVICE_CALL(opt, widen, *s->data, t->span.param, t->span.param_type, t->span.count);
    }
    return DEVICE_CALL(opt, fill, *s->data, s->type, s->desc.count, s->desc.initial);
}

adamod_status adamod__device_in(const adamod_optimizer *opt, void *to, const void *from, size_t bytes) {
    return DEVICE_CALL(opt, copy_in, to, from, bytes);
}

adamod_status adamod__device_out(const adamod_optimizer *opt, void *to, const void *from, size_t bytes) {
    return DEVICE_CALL(opt, copy_out, to, from, bytes);
}

/* A name for the message; the array is a parameter or a gradient. */
adamod_status adamod__device_check(const adamod_optimizer *opt, const char *name, const char *what, const void *array) {
    if (!opt->device || !array) return ADAMOD_OK;
    const adamod_status status = opt->api->check(opt->device, array);
    return status ? adamod__fail(status, "%s: %s is %s", name, what, opt->api->error()) : ADAMOD_OK;
}

/* ---- what the device must know ---- */

static bool adamod__capturing(const adamod_optimizer *opt) {
    int yes = 0;
    return opt->api->capturing(opt->device, &yes) == ADAMOD_OK && yes;
}

adamod_status adamod__device_outside(const adamod_optimizer *opt, const char *what) {
    if (!opt->device || !adamod__capturing(opt)) return ADAMOD_OK;
    return adamod__fail(ADAMOD_ERROR_ORDER, "%s: not allowed while the stream is captured into a graph", what);
}

typedef struct flat_schedules {
    device_schedule *nodes;
    int64_t *numbers;
    int n, n_numbers;
} flat_schedules;

/* Writes a schedule at node at; its parts and their parts go behind all others. */
static void adamod__flatten(const adamod_schedule *s, int at, flat_schedules *out) {
    const int first = out->n;
    const int64_t n_list = s->list ? (s->parts ? s->whole - 1 : s->whole) : 0;
    out->nodes[at] = (device_schedule){s->kind, first, s->number, s->whole, out->n_numbers};
    for (int64_t i = 0; i < n_list; i++) out->numbers[out->n_numbers++] = s->list[i];
    if (!s->parts) return;
    out->n += (int)s->whole;
    for (int64_t i = 0; i < s->whole; i++) adamod__flatten(s->parts[i], first + (int)i, out);
}

static void adamod__count_schedule(const adamod_schedule *s, size_t *nodes, size_t *numbers) {
    ++*nodes;
    if (s->list) *numbers += (size_t)s->whole;
    for (int64_t i = 0; s->parts && i < s->whole; i++) adamod__count_schedule(s->parts[i], nodes, numbers);
}

/* The schedules of all groups. */
static adamod_status adamod__push_schedules(adamod_optimizer *opt) {
    size_t nodes = 0, numbers = 0;
    for (int i = 0; i < opt->n_groups * OPT_COUNT; i++) {
        const adamod_schedule *s = opt->groups[i / OPT_COUNT].schedule[i % OPT_COUNT];
        if (s) adamod__count_schedule(s, &nodes, &numbers);
    }
    flat_schedules all = {.nodes = calloc(nodes + 1, sizeof *all.nodes),
                          .numbers = calloc(numbers + 1, sizeof *all.numbers)};
    adamod_status status = ADAMOD_OK;
    if (!all.nodes || !all.numbers) {
        status = adamod__fail(ADAMOD_ERROR_MEMORY, "out of memory for %zu schedules", nodes);
    } else {
        for (int i = 0; i < opt->n_groups * OPT_COUNT; i++) {
            group *x = &opt->groups[i / OPT_COUNT];
            const adamod_schedule *s = x->schedule[i % OPT_COUNT];
            x->node[i % OPT_COUNT] = s ? all.n++ : -1;
            if (s) adamod__flatten(s, x->node[i % OPT_COUNT], &all);
        }
        status = DEVICE_CALL(opt, set_schedules, all.nodes, all.n, all.numbers, all.n_numbers);
    }
    free(all.nodes);
    free(all.numbers);
    return status;
}

static adamod_status adamod__push_group(const adamod_optimizer *opt, int g) {
    device_group to = {0};
    memcpy(to.options, opt->groups[g].options, sizeof to.options);
    for (int i = 0; i < RANGE_TYPES; i++) to.computes[i] = opt->groups[g].computes[i];
    for (int o = 0; o < OPT_COUNT; o++) {
        to.schedule[o] = opt->groups[g].node[o];
        if (g >= opt->n_values) continue;
        to.value[o] = opt->values[g].value[o];
        to.value_type[o] = opt->values[g].type[o];
    }
    return DEVICE_CALL(opt, set_group, g, &to);
}

static adamod_status adamod__push_groups(adamod_optimizer *opt) {
    adamod_status status = adamod__push_schedules(opt);
    for (int g = 0; g < opt->n_groups && !status; g++) status = adamod__push_group(opt, g);
    if (status == ADAMOD_OK) opt->groups_changed = false;
    return status;
}

static device_tensor adamod__describe_tensor(const adamod_optimizer *opt, const tensor *t) {
    const adamod_span *x = &t->span;
    const double *o = opt->groups[t->group].options;
    device_tensor d = {.p = x->param, .g = x->grad, .master = x->master, .count = x->count, .stream = x->stream};
    state_spec specs[ADAMOD_MAX_STATES];
    adamod__states(opt->rule, o, x->ndim, specs);
    bool states = false;
    for (int i = 0; i < ADAMOD_MAX_STATES; i++) {
        adamod_state_desc desc;
        states = states || x->state[i];
        if (adamod__state_size(&specs[i], o, x->ndim, x->shape, &desc) || desc.count == 0) continue;
        d.state[i] = x->state[i];
        d.scale[i] = x->scale[i];
    }
    d.has_sign = (uint8_t)adamod__signed_states(opt->rule);
    d.queue = specs[2].shape == ADAMOD_SHAPE_QUEUE ? (int32_t)o[OPT_WINDOW] : 0;
    const matrix_shape shape = adamod__matrix_shape(x);
    d.rows = shape.rows;
    d.cols = shape.cols;
    d.first = shape.first;
    d.group = t->group;
    adamod__coef_f64 c;
    adamod__coefs(opt->rule, o, &(step_info){1, o[OPT_LR], shape.rows, shape.cols, shape.first, x->count}, 1, &c);
    d.variant = c.variant;
    d.p_type = (uint8_t)x->param_type;
    d.g_type = (uint8_t)x->grad_type;
    d.state_type = (uint8_t)(states ? x->state_type : adamod__compute_type(x->param_type));
    return d;
}

static adamod_status adamod__push_counts(const adamod_optimizer *opt) {
    int64_t *steps = calloc((size_t)opt->n + 1, sizeof *steps);
    if (!steps) return adamod__fail(ADAMOD_ERROR_MEMORY, "out of memory for %lld counts", (long long)opt->n);
    for (int64_t i = 0; i < opt->n; i++) steps[i] = opt->tensors[i].span.step;
    const device_progress progress = {opt->steps, opt->skipped, opt->norm, steps};
    const adamod_status status = DEVICE_CALL(opt, set_progress, &progress);
    free(steps);
    return status;
}

adamod_status adamod__device_push(const adamod_optimizer *opt) {
    return opt->device && opt->laid_out ? adamod__push_counts(opt) : ADAMOD_OK;
}

adamod_status adamod__device_forget(const adamod_optimizer *opt) {
    return opt->device ? DEVICE_CALL(opt, forget) : ADAMOD_OK;
}

static adamod_status adamod__push_layout(adamod_optimizer *opt) {
    device_tensor *tensors = calloc((size_t)opt->n, sizeof *tensors);
    if (!tensors) return adamod__fail(ADAMOD_ERROR_MEMORY, "out of memory for %lld parameters", (long long)opt->n);
    int64_t total = 0;
    bool cautious = false;
    for (int64_t i = 0; i < opt->n; i++) {
        cautious = cautious || opt->groups[opt->tensors[i].group].options[OPT_CAUTIOUS] != 0;
        tensors[i] = adamod__describe_tensor(opt, &opt->tensors[i]);
        total += opt->tensors[i].span.count;
    }
    const device_layout layout = {tensors, opt->n, opt->n_groups, adamod__chunk_size(total), cautious};
    adamod_status status = DEVICE_CALL(opt, layout, &layout);
    free(tensors);
    if (status == ADAMOD_OK) status = adamod__push_counts(opt);
    if (status == ADAMOD_OK) opt->laid_out = true;
    return status;
}

adamod_status adamod__device_pull(adamod_optimizer *opt) {
    if (!opt->device || !opt->laid_out) return ADAMOD_OK;
    ADAMOD__TRY(adamod__device_outside(opt, "reading step counts"));
    int64_t *steps = calloc((size_t)opt->n + 1, sizeof *steps);
    if (!steps) return adamod__fail(ADAMOD_ERROR_MEMORY, "out of memory for %lld counts", (long long)opt->n);
    device_progress progress = {.tensor_steps = steps};
    const adamod_status status = DEVICE_CALL(opt, progress, &progress);
    if (status == ADAMOD_OK) {
        opt->steps = progress.steps;
        opt->skipped = progress.skipped;
        opt->norm = progress.norm;
        for (int64_t i = 0; i < opt->n; i++) opt->tensors[i].span.step = steps[i];
    }
    free(steps);
    return status;
}

adamod_status adamod__device_unlay(adamod_optimizer *opt) {
    if (!opt->device) return ADAMOD_OK;
    adamod_status status = adamod__device_outside(opt, "adding parameters or groups");
    if (status == ADAMOD_OK) status = adamod__device_pull(opt);
    if (status == ADAMOD_OK) opt->laid_out = false;
    return status;
}

/* After options changed: a group's are small enough to travel with a launch. */
adamod_status adamod__device_options(const adamod_optimizer *opt, int first, int last) {
    adamod_status status = ADAMOD_OK;
    if (!opt->device || !opt->laid_out || opt->groups_changed) return status;
    for (int g = first; g <= last && !status; g++) status = adamod__push_group(opt, g);
    return status;
}

void adamod__device_repoint(adamod_optimizer *opt, int64_t id) {
    if (!opt->device || !opt->laid_out) return;
    opt->api->repoint(opt->device, id, opt->tensors[id].span.param, opt->tensors[id].span.grad);
}

/* ---- steps ---- */

/* Fails because an option is out of range, with the message that a step on the CPU has. */
static adamod_status adamod__device_range(const adamod_optimizer *opt, const device_error *e) {
    const adamod_type type = e->range == RANGE_F64 ? ADAMOD_F64 : ADAMOD_F32;
    const range_fault fault = (range_fault)e->fault;
    const option_spec *o = adamod__option(opt->rule, 0);
    if (fault == RANGE_RATE || fault == RANGE_FINAL) {
        return adamod__combined_fault(opt->rule, fault, e->value, type, NULL);
    }
    for (int i = 0; o && (int)o->id != e->option; i++) o = adamod__option(opt->rule, i);
    if (o && fault == RANGE_TYPE) return adamod__check_number(opt->rule, o, e->value, type, NULL);
    return o ? adamod__check_value(opt->rule, o, e->value) : ADAMOD_ERROR_RANGE;
}

/* The error of a step that the device did not take, once. */
static adamod_status adamod__device_failure(adamod_optimizer *opt) {
    const device_error e = opt->api->failure(opt->device);
    if (e.count == opt->errors_seen) return ADAMOD_OK;
    opt->errors_seen = e.count;
    if (e.status == ADAMOD_ERROR_RANGE) return adamod__device_range(opt, &e);
    if (e.tensor < -1)
        return adamod__fail(ADAMOD_ERROR_NONFINITE, "a gradient of another process is not finite in update %lld",
                            (long long)e.step);
    return adamod__nonfinite(e.tensor >= 0 && e.tensor < opt->n ? &opt->tensors[e.tensor] : NULL, e.step, e.value);
}

adamod_status adamod__device_step(adamod_optimizer *opt) {
    ADAMOD__TRY(adamod__device_failure(opt));
    if (!opt->laid_out || opt->groups_changed) {
        ADAMOD__TRY(adamod__device_outside(opt, "step: take one outside first"));
        opt->groups_changed = true;
        ADAMOD__TRY(opt->laid_out ? ADAMOD_OK : adamod__push_layout(opt));
        ADAMOD__TRY(adamod__push_groups(opt));
    }
    const double *o = opt->groups[0].options;
    const device_step how = {.norm = isfinite(o[OPT_CLIP_NORM]) || o[OPT_NONFINITE] != NONFINITE_PASS || opt->collect,
                             .collect = opt->collect};
    return DEVICE_CALL(opt, step, &how);
}

adamod_status adamod_sync(adamod_optimizer *opt) {
    if (!opt) return adamod__null_handle();
    if (!opt->device) return ADAMOD_OK;
    adamod_status status = adamod__device_outside(opt, "sync");
    if (status == ADAMOD_OK) status = DEVICE_CALL(opt, sync);
    return status ? status : adamod__device_failure(opt);
}

adamod_status adamod__device_collect(adamod_optimizer *opt) {
    if (!opt->device || !opt->collect) return ADAMOD_OK;
    return DEVICE_CALL(opt, collect, opt->stats.edge, opt->stats.bin);
}

adamod_status adamod__device_statistics(adamod_optimizer *opt) {
    int filled = 0;
    ADAMOD__TRY(adamod__device_outside(opt, "statistics"));
    if (!opt->collect || !opt->laid_out) return ADAMOD_OK;
    for (int g = 0; g < opt->stats.n_groups; g++) adamod__stats_clear(&opt->stats.groups[g]);
    const adamod_status status = DEVICE_CALL(opt, statistics, opt->stats.groups, &filled);
    opt->stats.filled = status == ADAMOD_OK && filled;
    return status;
}

/* ---- what is set from device memory ---- */

static adamod_status adamod__needs_device(const adamod_optimizer *opt, const char *what) {
    if (!opt) return adamod__null_handle();
    if (opt->device) return ADAMOD_OK;
    return adamod__refuse("%s: this optimizer is on the CPU", what);
}

adamod_status adamod_set_stream(adamod_optimizer *opt, void *stream) {
    ADAMOD__TRY(adamod__needs_device(opt, "set_stream"));
    return DEVICE_CALL(opt, set_stream, stream);
}

adamod_status adamod__set_ranks(adamod_optimizer *opt, const adamod__ranks *parts) {
    ADAMOD__TRY(adamod__needs_device(opt, "set_ranks"));
    return DEVICE_CALL(opt, set_ranks, parts);
}

adamod_status adamod_set_scaler(adamod_optimizer *opt, const float *scale, const float *found_inf) {
    ADAMOD__TRY(adamod__needs_device(opt, "set_scaler"));
    ADAMOD__TRY(adamod__device_check(opt, "set_scaler", "scale", scale));
    ADAMOD__TRY(adamod__device_check(opt, "set_scaler", "found_inf", found_inf));
    return DEVICE_CALL(opt, set_scaler, found_inf, scale);
}

static adamod_status adamod__reserve_values(adamod_optimizer *opt) {
    if (opt->n_values >= opt->n_groups) return ADAMOD_OK;
    device_values *grown = adamod__resize(opt->values, (size_t)opt->n_groups, sizeof *grown);
    if (!grown) return adamod__fail(ADAMOD_ERROR_MEMORY, "out of memory for %d groups", opt->n_groups);
    memset(grown + opt->n_values, 0, (size_t)(opt->n_groups - opt->n_values) * sizeof *grown);
    opt->values = grown;
    opt->n_values = opt->n_groups;
    return ADAMOD_OK;
}

adamod_status adamod_set_device_value(adamod_optimizer *opt, int g, const char *option, const void *value,
                                      adamod_type type) {
    ADAMOD__TRY(adamod__needs_device(opt, "set_device_value"));
    ADAMOD__TRY(adamod__device_outside(opt, "set_device_value"));
    const option_spec *o = adamod__find_option(opt->rule, option);
    if (!o) return option ? ADAMOD_ERROR_NAME : ADAMOD_ERROR_ARGUMENT;
    ADAMOD__TRY(adamod__check_group_or_all(opt, g));
    if (o->info.kind != ADAMOD_REAL || o->info.structural || o->info.optimizer_wide) {
        return adamod__refuse("%s: %s cannot be read from the device", opt->rule->name, o->info.name);
    }
    if (type != ADAMOD_F32 && type != ADAMOD_F64) {
        return adamod__refuse("%s: its value on the device is %s, expected f32 or f64", o->info.name,
                              adamod__type_name(type));
    }
    ADAMOD__TRY(adamod__device_check(opt, o->info.name, "value", value));
    ADAMOD__TRY(adamod__reserve_values(opt));
    const int first = g == -1 ? 0 : g, last = g == -1 ? opt->n_groups - 1 : g;
    for (int i = first; i <= last; i++) {
        opt->values[i].value[o->id] = value;
        opt->values[i].type[o->id] = (uint8_t)type;
    }
    return adamod__device_options(opt, first, last);
}
