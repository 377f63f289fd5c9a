/* adamod optim trace: runs a rule over recorded gradients, to check the library against another program. */
#include "cli/cli.h"
#include "core/error.h"
#include "support/array.h"
#include "data/npy.h"
#include "cli/cli_types.h"
#include "optim/optim.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define COMMAND "optim trace"

typedef struct setting {
    const char *option, *text;
    bool schedule;
} setting;

typedef struct request {
    const char *rule, *device;
    const char *params, *grads, *out, *load, *save; /* NULL: not given */
    bool states, help;
    int type; /* an adamod_type; -1: not given */
    int ndim; /* of --shape; -1: not given */
    int64_t shape[ADAMOD_MAX_DIMS];
    setting *settings;
    int n_settings;
} request;

/* An array written after every step. */
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
    void *param;                      /* the parameters in the type of the run */
    void *device_param, *device_grad; /* on a GPU: the parameters, and a step's gradients */
    adamod_tensor tensor;
    int64_t steps;
    output outputs[ADAMOD_MAX_STATES + 2]; /* the parameters, the states, the master */
    int n_outputs;
    void *row;  /* room for one row of an output in its file's type */
    void *copy; /* and for one from a GPU */
} trace;

/* ---- the command line ---- */

/* The rule decides what the other flags are, so it is looked for first. */
static const char *find_rule(int argc, char **argv) {
    const char *name = "adamod";
    for (int i = 0; i < argc && strcmp(argv[i], "--") != 0; i++) {
        if (strcmp(argv[i], "--rule") == 0 && i + 1 < argc) name = argv[++i];
        else if (strncmp(argv[i], "--rule=", 7) == 0) name = argv[i] + 7;
    }
    return name;
}

static int read_shape(void *to, const cli_flag *flag, const char *text) {
    request *ask = to;
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
    return cli_usage(COMMAND, "--%s is '%.40s', expected up to %d whole numbers as 3,4", flag->name, text,
                     ADAMOD_MAX_DIMS);
}

static int add_setting(request *ask, const char *option, const char *text, bool schedule) {
    if (!ARRAY_EXTEND(ask->settings, ask->n_settings)) return cli_fail(COMMAND, "out of memory");
    ask->settings[ask->n_settings++] = (setting){option, text, schedule};
    return 0;
}

static int read_option(void *to, const cli_flag *flag, const char *value) {
    return add_setting(to, flag->name, value, false);
}

static int read_schedule(void *to, const cli_flag *flag, const char *value) {
    if (strchr(value, '=')) return add_setting(to, NULL, value, true);
    return cli_usage(COMMAND, "--%s is '%.60s', expected OPTION=SCHEDULE as lr=warmup(1e-7,4000)", flag->name, value);
}

static int read_path(void *to, const cli_flag *flag, const char *value) {
    *(const char **)((char *)to + flag->member) = value;
    return *value ? 0 : cli_usage(COMMAND, "--%s is empty, expected a file name", flag->name);
}

static const char *const types[] = {"f32", "f64", "bf16", "f16", NULL}; /* as in adamod_type */

#define PATH(flag, text, to) CLI_FLAG(READ, flag, "FILE", text, .read = read_path, .member = offsetof(request, to))

static const cli_flag fixed[] = {
    CLI_TEXT("rule", "NAME", "the rule (adamod); 'adamod optim list' shows them", request, rule),
    PATH("params", "the parameters at the start: float32 or float64, of any shape, n elements", params),
    PATH("grads", "the gradients: [steps, n], or [steps, ...] with the shape of the parameters; same type", grads),
    PATH("out", "the parameters after every step: [steps, n]", out),
    CLI_SWITCH("states", "write every state after every step, too: OUT.STATE.npy (t.exp_avg.npy beside t.npy)", request,
               states),
    CLI_READ("schedule", "OPTION=TEXT", "a schedule for an option, as lr=warmup(1e-7,4000); may be repeated",
             read_schedule),
    CLI_CHOICE("type", "TYPE", "run the parameters as f32, f64, bf16 or f16 (default: as in the file)", request, type,
               types),
    CLI_READ("shape", "N,N,...", "the shape of the parameters, in place of the file's", read_shape),
    PATH("load", "start from the states in this file, as --save wrote it", load),
    PATH("save", "write the states after the last step to this file (safetensors)", save),
    CLI_TEXT("device", "NAME", "where: cpu, cuda or cuda:N (cpu)", request, device),
    CLI_FLAG(SWITCH, "help", NULL, "show this and exit", .member = offsetof(request, help), .letter = 'h'),
};
enum { FIXED = sizeof fixed / sizeof *fixed };

/* Returns the fixed flags and one for each option of the rule. Free them. */
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
        flags[FIXED + i] = (cli_flag)CLI_READ(o.name, kinds[o.kind], o.help, read_option);
    }
    return flags;
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

static bool same_file(const char *a, const char *b) {
    struct stat x, y;
    if (!a || !b) return false;
    if (strcmp(a, b) == 0) return true;
    return stat(a, &x) == 0 && stat(b, &y) == 0 && x.st_dev == y.st_dev && x.st_ino == y.st_ino;
}

static int check_request(const request *ask) {
    enum { PARAMS, GRADS, OUT, LOAD, SAVE };
    static const char *const names[] = {"params", "grads", "out", "load", "save"};
    const char *const paths[] = {ask->params, ask->grads, ask->out, ask->load, ask->save};
    /* An output must not replace an input. States alone may be saved to where they were loaded from. */
    static const int apart[][2] = {{SAVE, OUT}, {OUT, PARAMS},  {OUT, GRADS},
                                   {OUT, LOAD}, {SAVE, PARAMS}, {SAVE, GRADS}};
    for (int i = PARAMS; i <= OUT; i++) {
        if (!paths[i])
            return cli_usage(COMMAND, "--%s is missing; 'adamod help optim trace' shows what is needed", names[i]);
    }
    for (size_t i = 0; i < sizeof apart / sizeof *apart; i++) {
        const int a = apart[i][0], b = apart[i][1];
        if (same_file(paths[a], paths[b]))
            return cli_usage(COMMAND, "--%s and --%s name the same file, %s", names[a], names[b], paths[a]);
    }
    return 0;
}

static int read_request(request *ask, const cli_flag *flags, int argc, char **argv) {
    const cli_syntax syntax = {.command = COMMAND, .flags = flags};
    const int status = cli_parse(&syntax, argc, argv, ask);
    return status >= 0 ? status : ask->help ? 0 : check_request(ask);
}

/* ---- the files ---- */

/* Writes "[2, 3]", or "[steps, 2, 3]" with a first word. */
static void format_shape(char buffer[192], const char *first, int ndim, const int64_t *shape) {
    int used = snprintf(buffer, 192, "[%s", first);
    for (int d = 0; d < ndim; d++)
        used += snprintf(buffer + used, (size_t)(192 - used), "%s%lld", d || *first ? ", " : "", (long long)shape[d]);
    snprintf(buffer + used, (size_t)(192 - used), "]");
}

static bool grads_fit(const npy_array *grads, size_t n, int ndim, const int64_t *shape) {
    if (grads->ndim == 2 && grads->shape[1] == (int64_t)n) return true;
    return grads->ndim == ndim + 1 && memcmp(grads->shape + 1, shape, (size_t)ndim * sizeof *shape) == 0;
}

static int check_files(trace *t) {
    static const char *const dtypes[] = {"float32", "float64"};
    const request *ask = &t->ask;
    const npy_array *p = &t->params, *g = &t->grads;
    char a[192], b[192], c[192];
    if (g->type != p->type) {
        return cli_fail(COMMAND, "%s: dtype is %s, expected %s as in %s", ask->grads, dtypes[g->type], dtypes[p->type],
                        ask->params);
    }
    if (grads_fit(g, p->count, p->ndim, p->shape) || grads_fit(g, p->count, t->tensor.ndim, t->tensor.shape)) return 0;
    format_shape(a, "", g->ndim, g->shape);
    format_shape(b, "steps", 1, (const int64_t[]){(int64_t)p->count});
    if (t->tensor.ndim == 1) {
        return cli_fail(COMMAND, "%s: shape is %s, expected %s as %s has %zu elements", ask->grads, a, b, ask->params,
                        p->count);
    }
    format_shape(c, "steps", t->tensor.ndim, t->tensor.shape);
    return cli_fail(COMMAND, "%s: shape is %s, expected %s or %s as %s has %zu elements", ask->grads, a, b, c,
                    ask->params, p->count);
}

/* Fills in the parameter for the library: shape, types, arrays. */
static int describe_tensor(trace *t) {
    const request *ask = &t->ask;
    const adamod_type file_type = t->params.type == NPY_F64 ? ADAMOD_F64 : ADAMOD_F32;
    adamod_tensor *x = &t->tensor;
    *x = (adamod_tensor){.name = "param", .grad_type = file_type, .ndim = t->params.ndim};
    x->param_type = ask->type < 0 ? file_type : (adamod_type)ask->type;
    memcpy(x->shape, t->params.shape, sizeof t->params.shape);
    if (ask->ndim < 0) return 0;
    int64_t count = 1;
    for (int d = 0; d < ask->ndim; d++) {
        if (__builtin_mul_overflow(count, ask->shape[d], &count)) count = -1;
    }
    if (count != (int64_t)t->params.count) {
        char shape[192];
        format_shape(shape, "", ask->ndim, ask->shape);
        return cli_usage(COMMAND, "--shape is %s, expected a shape of %zu elements as %s has", shape, t->params.count,
                         ask->params);
    }
    x->ndim = ask->ndim;
    memcpy(x->shape, ask->shape, sizeof ask->shape);
    return 0;
}

static int read_files(trace *t) {
    if (npy_read(t->ask.params, &t->params) || npy_read(t->ask.grads, &t->grads)) return cli_failed(COMMAND);
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

static adamod__gpu gpu(const trace *t) { return adamod__gpu_of(t->opt); }

static int on_device(const trace *t, adamod_status status) {
    return status ? cli_fail(COMMAND, "%s", gpu(t).api->error()) : 0;
}

static int move_to_device(trace *t) {
    const adamod__device_api *api = gpu(t).api;
    adamod__device *d = gpu(t).device;
    const size_t bytes = t->params.count * type_size(t->tensor.param_type);
    if (!d) return 0;
    int failed = on_device(t, api->alloc(d, bytes, &t->device_param));
    if (!failed) failed = on_device(t, api->alloc(d, t->params.count * npy_type_size(t->grads.type), &t->device_grad));
    if (!failed && bytes) failed = on_device(t, api->copy_in(d, t->device_param, t->param, bytes));
    t->tensor.param = t->device_param;
    t->tensor.grad = t->steps ? t->device_grad : NULL;
    return failed;
}

/* Puts the gradients of a step where the optimizer reads them. */
static int give_grads(trace *t, const void *grads, size_t bytes) {
    if (gpu(t).device)
        return bytes ? on_device(t, gpu(t).api->copy_in(gpu(t).device, t->device_grad, grads, bytes)) : 0;
    const adamod_status status = adamod_set_grad(t->opt, 0, grads);
    return status ? cli_library(COMMAND, status) : 0;
}

static void free_device(trace *t) {
    if (t->device_param) gpu(t).api->release(gpu(t).device, t->device_param);
    if (t->device_grad) gpu(t).api->release(gpu(t).device, t->device_grad);
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
    if (!t->ask.load) return 0;
    status = adamod_load(t->opt, t->ask.load);
    return status ? cli_failed(COMMAND) : 0;
}

/* ---- the output ---- */

static int open_output(trace *t, const char *path, const void *data, adamod_type type, int64_t count) {
    output *o = &t->outputs[t->n_outputs];
    *o = (output){.data = data, .type = type, .count = (size_t)count};
    o->file_type = t->tensor.param_type == ADAMOD_F64 ? NPY_F64 : NPY_F32;
    const int64_t shape[2] = {t->steps, count};
    if (npy_writer_open(&o->writer, path, o->file_type, 2, shape)) return cli_failed(COMMAND);
    t->n_outputs++;
    return 0;
}

static int open_state(trace *t, const char *name) {
    const char *out = t->ask.out;
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

/* The states depend on the options; hyper knows them without making any. */
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
    if (!failed && !status && adamod_state(t->opt, 0, "master", &master, &type, &count) == ADAMOD_OK)
        failed = open_state(t, "master");
    return status ? cli_library(COMMAND, status) : failed;
}

static int open_outputs(trace *t) {
    int status = open_output(t, t->ask.out, t->tensor.param, t->tensor.param_type, (int64_t)t->params.count);
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
    if (gpu(t).device && o->count) {
        const size_t size = o->count * type_size(o->type);
        const int failed = on_device(t, gpu(t).api->copy_out(gpu(t).device, t->copy, o->data, size));
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
        if (status)
            return cli_fail(COMMAND, "%s: step %lld: %s", t->ask.grads, (long long)step + 1, adamod__last_message());
        for (int i = 0; i < t->n_outputs; i++) {
            if ((failed = write_row(t, &t->outputs[i]))) return failed;
        }
    }
    return 0;
}

/* The parameters come last, so that their file tells that all are complete. */
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
    if (!status && t->ask.save && adamod_save(t->opt, t->ask.save) != ADAMOD_OK) status = cli_failed(COMMAND);
    return status ? status : close_outputs(t);
}

int cli_optim_trace(int argc, char **argv) {
    trace t = {.ask = {.rule = find_rule(argc, argv), .device = "cpu", .type = -1, .ndim = -1}};
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
