/* adamod optim trace: a rule over recorded gradients. How anyone checks the library against another program.
 *
 * SPDX-License-Identifier: MIT
 */
#include "cli/cli.h"
#include "core/error.h"
#include "data/npy.h"
#include "cli/cli_types.h"
#include "optim/optim.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define COMMAND "optim trace"

enum { RULE, PARAMS, GRADS, OUT, STATES, SCHEDULE, TYPE, SHAPE, LOAD, SAVE, DEVICE, HELP, FIXED };
static const cli_flag fixed[FIXED] = {
    {"rule", "NAME", "the rule (adamod); 'adamod optim list' shows them"},
    {"params", "FILE", "the parameters at the start: float32 or float64, of any shape, n elements"},
    {"grads", "FILE", "the gradients: [steps, n], or [steps, ...] with the shape of the parameters; same type"},
    {"out", "FILE", "the parameters after every step: [steps, n]"},
    {"states", NULL, "write every state after every step, too: OUT.STATE.npy (t.exp_avg.npy beside t.npy)"},
    {"schedule", "OPTION=TEXT", "a schedule for an option, as lr=warmup(1e-7,4000); may be repeated"},
    {"type", "TYPE", "run the parameters as f32, f64, bf16 or f16 (default: as in the file)"},
    {"shape", "N,N,...", "the shape of the parameters, in place of the file's"},
    {"load", "FILE", "start from the states in this file, as --save wrote it"},
    {"save", "FILE", "write the states after the last step to this file (safetensors)"},
    {"device", "NAME", "where: cpu, cuda or cuda:N (cpu)"},
    CLI_HELP_FLAG,
};

typedef struct setting {
    const char *option, *text;
    bool schedule;
} setting;

/* What the command line asks for. */
typedef struct request {
    const char *rule, *device;
    const char *path[FIXED]; /* by flag; NULL: not given */
    bool states, has_type, help;
    adamod_type type;
    int ndim; /* of --shape; -1: not given */
    int64_t shape[ADAMOD_MAX_DIMS];
    setting *settings;
    int n_settings;
} request;

/* An array that is written after every step. */
typedef struct output {
    npy_writer *writer;
    const void *data;
    adamod_type type;
    npy_type file_type;
    size_t count;
} output;

typedef struct trace {
    request ask;
    npy_array params, grads;
    adamod_optimizer *opt;
    void *param;                      /* the parameters in the type they are run in */
    void *device_param, *device_grad; /* on a GPU: the parameters, and a step's gradients */
    adamod_tensor tensor;
    int64_t steps;
    output outputs[ADAMOD_MAX_STATES + 2]; /* the parameters, the states, the master */
    int n_outputs;
    void *row;  /* room for one row of an output in its file's type */
    void *copy; /* and for one from a GPU */
} trace;

/* ---- the command line ---- */

/* The flags of a rule: the fixed ones and one for each of its options. Free it. */
static cli_flag *make_flags(const char *name) {
    static const char *const kinds[] = {"X", "N", "WORD"};
    adamod_option o;
    int n = 0;
    while (adamod_option_at(name, n, &o) == ADAMOD_OK) n++;
    cli_flag *flags = calloc((size_t)n + FIXED + 1, sizeof *flags);
    if (!flags) return NULL;
    memcpy(flags, fixed, sizeof fixed);
    for (int i = 0; i < n; i++) {
        adamod_option_at(name, i, &o);
        flags[FIXED + i] = (cli_flag){o.name, kinds[o.kind], o.help};
    }
    return flags;
}

/* The rule decides what the other flags are, so it is looked for first. */
static const char *find_rule(int argc, char **argv) {
    const char *name = "adamod";
    for (int i = 0; i < argc && strcmp(argv[i], "--") != 0; i++) {
        if (strcmp(argv[i], "--rule") == 0 && i + 1 < argc) name = argv[++i];
        else if (strncmp(argv[i], "--rule=", 7) == 0) name = argv[i] + 7;
    }
    return name;
}

static void print_help(const char *name, const cli_flag *flags) {
    cli_flag own[FIXED + 1] = {{0}};
    memcpy(own, fixed, sizeof fixed);
    printf(
        "usage: adamod optim trace --params FILE --grads FILE --out FILE [--rule NAME] [--OPTION VALUE]...\n\n"
        "Runs a rule over recorded gradients, which are .npy files, and writes the parameters after every step. The\n"
        "output is float64 if the parameters are run as f64, else float32. On a GPU the results are those of the\n"
        "processor: bit for bit in f32 and below, some last bits in f64.\n\n");
    cli_print_flags(stdout, own);
    printf("\nThe options of %s ('adamod optim list %s' shows defaults and bounds):\n\n", name, name);
    cli_print_flags(stdout, flags + FIXED);
}

static int parse_shape(const char *text, request *ask) {
    const char *at = text;
    for (ask->ndim = 0; ask->ndim < ADAMOD_MAX_DIMS;) {
        char *end;
        errno = 0;
        const long long d = strtoll(at, &end, 10);
        if (end == at || d < 0 || errno) break;
        ask->shape[ask->ndim++] = d;
        if (!*end) return 0;
        if (*end != ',') break;
        at = end + 1;
    }
    return cli_usage(COMMAND, "--shape is '%.40s', expected up to %d whole numbers as 3,4", text, ADAMOD_MAX_DIMS);
}

static int add_setting(request *ask, const char *option, const char *text, bool schedule) {
    setting *grown = realloc(ask->settings, (size_t)(ask->n_settings + 1) * sizeof *grown);
    if (!grown) return cli_fail(COMMAND, "out of memory");
    ask->settings = grown;
    grown[ask->n_settings++] = (setting){option, text, schedule};
    return 0;
}

static int read_flag(request *ask, const cli_flag *flags, int flag, const char *value) {
    switch (flag) {
        case CLI_BAD: return CLI_USAGE;
        case CLI_OPERAND: return cli_usage(COMMAND, "unexpected argument '%.40s'", value);
        case RULE: return 0;
        case STATES: ask->states = true; return 0;
        case HELP: ask->help = true; return 0;
        case DEVICE: ask->device = value; return 0;
        case SHAPE: return parse_shape(value, ask);
        case SCHEDULE:
            if (strchr(value, '=')) return add_setting(ask, NULL, value, true);
            return cli_usage(COMMAND, "--schedule is '%.60s', expected OPTION=SCHEDULE as lr=warmup(1e-7,4000)", value);
        case TYPE:
            ask->has_type = true;
            if (type_parse(value, &ask->type)) return 0;
            return cli_usage(COMMAND, "--type is '%.40s', expected f32, f64, bf16 or f16", value);
        case PARAMS:
        case GRADS:
        case OUT:
        case LOAD:
        case SAVE:
            ask->path[flag] = value;
            if (*value) return 0;
            return cli_usage(COMMAND, "--%s is empty, expected a file name", flags[flag].name);
        default: return add_setting(ask, flags[flag].name, value, false);
    }
}

static bool same_file(const char *a, const char *b) {
    struct stat x, y;
    if (!a || !b) return false;
    if (strcmp(a, b) == 0) return true;
    return stat(a, &x) == 0 && stat(b, &y) == 0 && x.st_dev == y.st_dev && x.st_ino == y.st_ino;
}

static int check_request(const request *ask) {
    static const int needed[] = {PARAMS, GRADS, OUT};
    /* What is written would replace what is read. States alone may be saved to where they were loaded from. */
    static const int apart[][2] = {{SAVE, OUT}, {OUT, PARAMS},  {OUT, GRADS},
                                   {OUT, LOAD}, {SAVE, PARAMS}, {SAVE, GRADS}};
    for (int i = 0; i < 3; i++) {
        if (!ask->path[needed[i]]) {
            return cli_usage(COMMAND, "--%s is missing; 'adamod help optim trace' shows what is needed",
                             fixed[needed[i]].name);
        }
    }
    for (size_t i = 0; i < sizeof apart / sizeof *apart; i++) {
        const int a = apart[i][0], b = apart[i][1];
        if (!same_file(ask->path[a], ask->path[b])) continue;
        return cli_usage(COMMAND, "--%s and --%s name the same file, %s", fixed[a].name, fixed[b].name, ask->path[a]);
    }
    return 0;
}

static int read_request(request *ask, const cli_flag *flags, int argc, char **argv) {
    cli_parser parser = {.command = COMMAND, .flags = flags, .argc = argc, .argv = argv};
    for (int flag; (flag = cli_next(&parser)) != CLI_END;) {
        const int status = read_flag(ask, flags, flag, parser.value);
        if (status) return status;
    }
    return ask->help ? 0 : check_request(ask);
}

/* ---- the files ---- */

/* "[2, 3]", or "[steps, 2, 3]" with a first word. */
static const char *format_shape(char *buffer, size_t size, const char *first, int ndim, const int64_t *shape) {
    snprintf(buffer, size, "[%s", first ? first : "");
    for (int d = 0; d < ndim; d++) {
        const size_t used = strlen(buffer);
        snprintf(buffer + used, size - used, "%s%lld", d || first ? ", " : "", (long long)shape[d]);
    }
    const size_t used = strlen(buffer);
    snprintf(buffer + used, size - used, "]");
    return buffer;
}

static bool same_shape(int ndim, const int64_t *a, const int64_t *b) {
    for (int d = 0; d < ndim; d++) {
        if (a[d] != b[d]) return false;
    }
    return true;
}

static bool grads_fit(const npy_array *grads, size_t n, int ndim, const int64_t *shape) {
    if (grads->ndim == 2 && grads->shape[1] == (int64_t)n) return true;
    return grads->ndim == ndim + 1 && same_shape(ndim, grads->shape + 1, shape);
}

static int check_files(trace *t) {
    static const char *const dtypes[] = {"float32", "float64"};
    const request *ask = &t->ask;
    const npy_array *p = &t->params, *g = &t->grads;
    char a[192], b[192], c[192];
    if (g->type != p->type) {
        return cli_fail(COMMAND, "%s: dtype is %s, expected %s as in %s", ask->path[GRADS], dtypes[g->type],
                        dtypes[p->type], ask->path[PARAMS]);
    }
    if (grads_fit(g, p->count, p->ndim, p->shape) || grads_fit(g, p->count, t->tensor.ndim, t->tensor.shape)) return 0;
    format_shape(a, sizeof a, NULL, g->ndim, g->shape);
    format_shape(b, sizeof b, "steps", 1, (const int64_t[]){(int64_t)p->count});
    if (t->tensor.ndim == 1) {
        return cli_fail(COMMAND, "%s: shape is %s, expected %s as %s has %zu elements", ask->path[GRADS], a, b,
                        ask->path[PARAMS], p->count);
    }
    format_shape(c, sizeof c, "steps", t->tensor.ndim, t->tensor.shape);
    return cli_fail(COMMAND, "%s: shape is %s, expected %s or %s as %s has %zu elements", ask->path[GRADS], a, b, c,
                    ask->path[PARAMS], p->count);
}

/* The parameter as the library will have it: shape, types, arrays. */
static int describe_tensor(trace *t) {
    const request *ask = &t->ask;
    const adamod_type file_type = t->params.type == NPY_F64 ? ADAMOD_F64 : ADAMOD_F32;
    adamod_tensor *x = &t->tensor;
    *x = (adamod_tensor){.name = "param", .grad_type = file_type, .ndim = t->params.ndim};
    x->param_type = ask->has_type ? ask->type : file_type;
    memcpy(x->shape, t->params.shape, sizeof t->params.shape);
    if (ask->ndim < 0) return 0;
    int64_t count = 1;
    for (int d = 0; d < ask->ndim; d++) {
        if (__builtin_mul_overflow(count, ask->shape[d], &count)) count = -1;
    }
    if (count != (int64_t)t->params.count) {
        char shape[192];
        format_shape(shape, sizeof shape, NULL, ask->ndim, ask->shape);
        return cli_usage(COMMAND, "--shape is %s, expected a shape of %zu elements as %s has", shape, t->params.count,
                         ask->path[PARAMS]);
    }
    x->ndim = ask->ndim;
    memcpy(x->shape, ask->shape, sizeof ask->shape);
    return 0;
}

static int read_files(trace *t) {
    if (npy_read(t->ask.path[PARAMS], &t->params) || npy_read(t->ask.path[GRADS], &t->grads)) {
        return cli_failed(COMMAND);
    }
    int status = describe_tensor(t);
    if (!status) status = check_files(t);
    if (status) return status;
    t->steps = t->grads.shape[0];
    t->param = malloc(t->params.count * type_size(t->tensor.param_type) + 1);
    if (!t->param) return cli_fail(COMMAND, "out of memory");
    type_convert(t->tensor.param_type, t->param, t->tensor.grad_type, t->params.data, t->params.count);
    t->tensor.param = t->param;
    t->tensor.grad = t->steps ? t->grads.data : NULL;
    return 0;
}

/* ---- a GPU's memory ---- */

static int on_device(trace *t, adamod_status status) {
    return status ? cli_fail(COMMAND, "%s", adamod__gpu_of(t->opt).api->error()) : 0;
}

static int move_to_device(trace *t) {
    const adamod__device_api *api = adamod__gpu_of(t->opt).api;
    adamod__device *d = adamod__gpu_of(t->opt).device;
    const size_t bytes = t->params.count * type_size(t->tensor.param_type);
    if (!d) return 0;
    int failed = on_device(t, api->alloc(d, bytes, &t->device_param));
    if (!failed) failed = on_device(t, api->alloc(d, t->params.count * npy_type_size(t->grads.type), &t->device_grad));
    if (!failed && bytes) failed = on_device(t, api->copy_in(d, t->device_param, t->param, bytes));
    t->tensor.param = t->device_param;
    t->tensor.grad = t->steps ? t->device_grad : NULL;
    return failed;
}

/* The gradients of a step, where the optimizer reads them. */
static int give_grads(trace *t, const void *grads, size_t bytes) {
    if (adamod__gpu_of(t->opt).device) {
        return bytes ? on_device(t, adamod__gpu_of(t->opt).api->copy_in(adamod__gpu_of(t->opt).device, t->device_grad,
                                                                        grads, bytes))
                     : 0;
    }
    const adamod_status status = adamod_set_grad(t->opt, 0, grads);
    return status ? cli_library(COMMAND, status) : 0;
}

static void free_device(trace *t) {
    if (t->device_param) adamod__gpu_of(t->opt).api->release(adamod__gpu_of(t->opt).device, t->device_param);
    if (t->device_grad) adamod__gpu_of(t->opt).api->release(adamod__gpu_of(t->opt).device, t->device_grad);
}

/* ---- the optimizer ---- */

static int set_schedule(adamod_optimizer *opt, const char *text) {
    char option[64];
    const char *equals = strchr(text, '=');
    snprintf(option, sizeof option, "%.*s", (int)(equals - text), text);
    for (char *c = option; *c; c++) *c = *c == '-' ? '_' : *c;
    adamod_schedule *schedule;
    adamod_status status = adamod_schedule_parse(&schedule, equals + 1);
    if (status) return cli_usage(COMMAND, "--schedule: %s", adamod__last_message());
    status = adamod_set_schedule(opt, -1, option, schedule);
    adamod_schedule_free(schedule);
    return status ? cli_usage(COMMAND, "--schedule: %s", adamod__last_message()) : 0;
}

static int make_optimizer(trace *t) {
    const request *ask = &t->ask;
    adamod_status status = adamod_create_on(&t->opt, ask->rule, ask->device);
    if (status) return cli_library(COMMAND, status);
    for (int i = 0; i < ask->n_settings; i++) {
        const setting *s = &ask->settings[i];
        if (s->schedule) {
            const int failed = set_schedule(t->opt, s->text);
            if (failed) return failed;
        } else if ((status = adamod_set_text(t->opt, s->option, s->text))) {
            return cli_library(COMMAND, status);
        }
    }
    return 0;
}

static int add_tensor(trace *t) {
    adamod_status status = adamod_add_tensor(t->opt, 0, &t->tensor, NULL);
    if (status) return cli_library(COMMAND, status);
    if (!t->ask.path[LOAD]) return 0;
    status = adamod_load(t->opt, t->ask.path[LOAD]);
    return status ? cli_failed(COMMAND) : 0;
}

/* ---- the output ---- */

static int open_output(trace *t, const char *path, const void *data, adamod_type type, int64_t count) {
    output *o = &t->outputs[t->n_outputs];
    *o = (output){.data = data, .type = type, .count = (size_t)count};
    o->file_type = t->tensor.param_type == ADAMOD_F64 ? NPY_F64 : NPY_F32;
    const int64_t shape[2] = {t->steps, count};
    if (npy_writer_open(&o->writer, path, o->file_type, 2, shape)) {
        return cli_failed(COMMAND);
    }
    t->n_outputs++;
    return 0;
}

static int open_state(trace *t, const char *name) {
    const char *out = t->ask.path[OUT];
    const size_t length = strlen(out);
    const bool suffix = length > 4 && strcmp(out + length - 4, ".npy") == 0;
    char path[4096];
    void *data;
    adamod_type type;
    int64_t count;
    const adamod_status status = adamod_state(t->opt, 0, name, &data, &type, &count);
    if (status) return cli_library(COMMAND, status);
    if (type == ADAMOD_Q8) return cli_fail(COMMAND, "--states: %s is in 8 bits; --save writes it", name);
    const int written = snprintf(path, sizeof path, "%.*s.%s.npy", (int)(suffix ? length - 4 : length), out, name);
    if (written >= (int)sizeof path) return cli_fail(COMMAND, "%s: the name is too long", out);
    return open_output(t, path, data, type, count);
}

/* The states a parameter has depend on the options, which hyper knows without making any. */
static int open_states(trace *t) {
    adamod_hyper *hyper;
    adamod_status status = adamod_hyper_create(&hyper, t->ask.rule);
    if (status) return cli_library(COMMAND, status);
    int failed = 0;
    for (int i = 0; i < t->ask.n_settings && !status; i++) {
        const setting *s = &t->ask.settings[i];
        if (!s->schedule) status = adamod_hyper_set_text(hyper, s->option, s->text);
    }
    for (int i = 0; i < ADAMOD_MAX_STATES && !status && !failed; i++) {
        adamod_state_desc desc;
        status = adamod_state_at(hyper, t->tensor.ndim, t->tensor.shape, i, &desc);
        if (!status && desc.name) failed = open_state(t, desc.name);
    }
    adamod_hyper_free(hyper);
    void *master;
    adamod_type type;
    int64_t count;
    if (!failed && !status && adamod_state(t->opt, 0, "master", &master, &type, &count) == ADAMOD_OK) {
        failed = open_state(t, "master");
    }
    return status ? cli_library(COMMAND, status) : failed;
}

static int open_outputs(trace *t) {
    int status = open_output(t, t->ask.path[OUT], t->tensor.param, t->tensor.param_type, (int64_t)t->params.count);
    if (!status && t->ask.states) status = open_states(t);
    if (status) return status;
    size_t largest = 0;
    for (int i = 0; i < t->n_outputs; i++) {
        const size_t bytes = t->outputs[i].count * npy_type_size(t->outputs[i].file_type);
        if (bytes > largest) largest = bytes;
    }
    t->row = malloc(largest + 1);
    t->copy = malloc(largest + 1); /* no type is wider than its file's */
    return t->row && t->copy ? 0 : cli_fail(COMMAND, "out of memory");
}

static int write_row(trace *t, const output *o) {
    const adamod_type type = o->file_type == NPY_F64 ? ADAMOD_F64 : ADAMOD_F32;
    const void *row = o->data;
    if (adamod__gpu_of(t->opt).device && o->count) {
        const size_t size = o->count * type_size(o->type);
        const int failed =
            on_device(t, adamod__gpu_of(t->opt).api->copy_out(adamod__gpu_of(t->opt).device, t->copy, o->data, size));
        if (failed) return failed;
        row = t->copy;
    }
    if (o->type != type) {
        type_convert(type, t->row, o->type, row, o->count);
        row = t->row;
    }
    const size_t bytes = o->count * npy_type_size(o->file_type);
    if (npy_writer_append(o->writer, row, bytes)) return cli_failed(COMMAND);
    return 0;
}

static int run_steps(trace *t) {
    const size_t row = t->params.count * npy_type_size(t->grads.type);
    for (int64_t step = 0; step < t->steps; step++) {
        int failed = give_grads(t, (const char *)t->grads.data + (size_t)step * row, row);
        if (failed) return failed;
        adamod_status status = adamod_step(t->opt);
        if (!status) status = adamod_sync(t->opt);
        if (status) {
            return cli_fail(COMMAND, "%s: step %lld: %s", t->ask.path[GRADS], (long long)step + 1,
                            adamod__last_message());
        }
        for (int i = 0; i < t->n_outputs; i++) {
            if ((failed = write_row(t, &t->outputs[i]))) return failed;
        }
    }
    return 0;
}

/* The parameters last: where they are, the rest is, too. */
static int close_outputs(trace *t) {
    while (t->n_outputs > 0) {
        npy_writer *writer = t->outputs[--t->n_outputs].writer;
        if (npy_writer_close(writer)) return cli_failed(COMMAND);
    }
    return 0;
}

static int run(trace *t) {
    int status = make_optimizer(t);
    if (!status) status = read_files(t);
    if (!status) status = move_to_device(t);
    if (!status) status = add_tensor(t);
    if (!status) status = open_outputs(t);
    if (!status) status = run_steps(t);
    if (!status && t->ask.path[SAVE] && adamod_save(t->opt, t->ask.path[SAVE]) != ADAMOD_OK) {
        status = cli_failed(COMMAND);
    }
    return status ? status : close_outputs(t);
}

int cli_optim_trace(int argc, char **argv) {
    trace t = {.ask = {.rule = find_rule(argc, argv), .device = "cpu", .ndim = -1}};
    adamod_option first;
    const adamod_status known = adamod_option_at(t.ask.rule, 0, &first);
    if (known) return cli_library(COMMAND, known);
    cli_flag *flags = make_flags(t.ask.rule);
    if (!flags) return cli_fail(COMMAND, "out of memory");
    int status = read_request(&t.ask, flags, argc, argv);
    if (!status && t.ask.help) print_help(t.ask.rule, flags);
    else if (!status) status = run(&t);
    for (int i = 0; i < t.n_outputs; i++) npy_writer_abort(t.outputs[i].writer);
    free_device(&t);
    adamod_free(t.opt);
    npy_free(&t.params);
    npy_free(&t.grads);
    free(t.param);
    free(t.row);
    free(t.copy);
    free(t.ask.settings);
    free(flags);
    return status;
}
