/* adamod optim bench: is a step as fast as memory allows, and how does it compare with PyTorch? */
#include "cli/optim_bench.h"
#include "core/error.h"
#include "support/json.h"
#include "support/metric.h"
#include "support/text.h"
#include "cli/bench.h"
#include "cli/cli.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define COMMAND "optim bench"

/* ---- the request ---- */

enum { CASE_FLAT = 1, CASE_RESNET = 2, CASE_BF16 = 4, CASE_MASTER = 8, CASE_LAYER = 16, CASE_SMALL = 32 };

typedef bench_optim_request request;

static int parse_sizes(void *to, const cli_flag *flag, const char *text) {
    request *ask = to;
    ask->n_sizes = 0;
    for (const char *at = text; ask->n_sizes < BENCH_MOST_SIZES;) {
        char *end;
        const long long n = strtoll(at, &end, 10);
        const int shift = *end == 'K' ? 10 : *end == 'M' ? 20 : *end == 'G' ? 30 : 0;
        if (end == at || n < 1 || n > (INT64_C(1) << 40 >> shift)) break;
        end += shift > 0;
        ask->sizes[ask->n_sizes++] = n << shift;
        if (!*end) return 0;
        if (*end != ',') break;
        at = end + 1;
    }
    return cli_usage(COMMAND, "--%s is '%.60s', expected up to %d sizes as 64K,1M,16M", flag->name, text,
                     BENCH_MOST_SIZES);
}

static int parse_cases(void *to, const cli_flag *flag, const char *text) {
    static const char *const names[] = {"flat", "resnet34", "bf16", "master", "layer", "small", NULL};
    request *ask = to;
    ask->cases = 0;
    for (const char *at = text;; at++) {
        char word[32];
        int i = 0;
        snprintf(word, sizeof word, "%.*s", (int)strcspn(at, ","), at);
        while (names[i] && strcmp(names[i], word) != 0) i++;
        if (!names[i]) break;
        ask->cases |= 1 << i;
        at += strcspn(at, ",");
        if (!*at) return 0;
    }
    return cli_usage(COMMAND, "--%s is '%.60s', expected some of flat,resnet34,bf16,master,layer,small", flag->name,
                     text);
}

static const cli_flag flags[] = {
    CLI_TEXT("rule", "NAME", "the rule (adamod)", request, rule),
    CLI_TEXT("device", "NAME", "where: cpu, cuda or cuda:N (cpu)", request, device),
    CLI_READ("sizes", "N,N,...", "elements of the flat f32 arrays (64K,1M,16M,64M); K and M are 2^10 and 2^20",
             parse_sizes),
    CLI_READ("cases", "NAME,...", "which to run (flat,resnet34,bf16,master)", parse_cases),
    CLI_WHOLE("threads", "N", "threads of every contestant (0: one for each core)", request, threads, 0, 1024),
    CLI_TEXT("isa", "NAME", "the instruction set, one of those 'adamod info' shows (default: the best)", request, isa),
    CLI_TEXT("python", "PROGRAM", "a Python with torch (default: python3, then /usr/bin/python3)", request, python),
    CLI_SWITCH("no-torch", "leave PyTorch out", request, no_torch),
    CLI_SWITCH("quick", "fewer rounds, and no array larger than 16M: some 20 seconds", request, quick),
    CLI_SWITCH("json", "print JSON, one object a line", request, json),
    CLI_HELP_FLAG,
    {0},
};

static const cli_syntax syntax = {
    .command = COMMAND,
    .help =
        "usage: adamod optim bench [--FLAG [VALUE]]...\n\n"
        "Measures adamod_step against a loop that only moves the same bytes and, where a Python can import torch,\n"
        "against its AdamW (fused, or foreach where it has no fused one) and the published AdaMod in its operations.\n"
        "All take turns in one run, with the same threads, on arrays that caches do not hold; times are medians.\n\n"
        "  flat      one f32 array of each size\n"
        "  resnet34  the 110 tensors of a ResNet-34 for CIFAR-10, and one array of as many elements\n"
        "  bf16      16M bf16 parameters rounded at random, states in bf16\n"
        "  master    16M bf16 parameters with f32 masters and states\n"
        "  layer     the matrices of a layer of Transformer-big; not unless it is asked for\n"
        "  small     the same of a layer that is 64 wide; not unless it is asked for\n\n"
        "'of loop' is the share of the loop's speed. 'x AdamW' is how many times faster than AdamW a needed byte is\n"
        "handled (AdamW needs 28 an element, AdaMod 36), 'x AdaMod' how many times faster a step is. With --rule muon the\n"
        "latter is 'x Muon', over torch.optim.Muon, with AdamW for vectors and embeddings on either side; with --rule\n"
        "adafactor 'x Adafactor'. SOAP's steps are timed in whole periods, with one that changes the bases in each, and\n"
        "counted in the line. With --quick, matrices whose first step would take too long are left out.\n\n"
        "With --device cuda the arrays are on a GPU, and 'of copy' is the share of the speed at which it copies its own\n"
        "memory: ResNet-34, Transformer-big and one array of 268M, in f32, bf16 with f32 masters, and bf16 alone. A step\n"
        "is a replay of a CUDA graph, 'eager' a call of adamod_step. --sizes, --cases, --threads and --isa do not "
        "apply.\n\n",
    .flags = flags};

/* ---- shapes ---- */

static int add_convolution(bench_shape *shapes, int n, int out, int in, int side) {
    shapes[n++] = (bench_shape){4, {out, in, side, side}};
    shapes[n++] = (bench_shape){1, {out}}; /* batch norm: weight, bias */
    shapes[n++] = (bench_shape){1, {out}};
    return n;
}

void bench_make_resnet34(bench_shape shapes[BENCH_RESNET_TENSORS]) {
    static const int blocks[] = {3, 4, 6, 3};
    int n = add_convolution(shapes, 0, 64, 3, 3), in = 64;
    for (int stage = 0; stage < 4; stage++) {
        const int out = 64 << stage;
        for (int i = 0; i < blocks[stage]; i++) {
            n = add_convolution(shapes, n, out, in, 3);
            n = add_convolution(shapes, n, out, out, 3);
            if (in != out) n = add_convolution(shapes, n, out, in, 1);
            in = out;
        }
    }
    shapes[n++] = (bench_shape){2, {10, 512}};
    shapes[n++] = (bench_shape){1, {10}};
}

/* Counts the states of a rule with a number or more for each parameter of an array of 1 or 2 dimensions, which a step must
 * move. */
static int count_states(const char *rule, int ndim, int *states) {
    const int64_t shape[2] = {1024, ndim == 2 ? 1024 : 1};
    adamod_hyper *hyper;
    adamod_status status = adamod_hyper_create(&hyper, rule);
    if (status) return cli_library(COMMAND, status);
    *states = 0;
    for (int i = 0; i < ADAMOD_MAX_STATES && !status; i++) {
        adamod_state_desc desc;
        status = adamod_state_at(hyper, ndim, shape, i, &desc);
        *states += !status && desc.name && desc.count >= shape[0] * shape[1];
    }
    adamod_hyper_free(hyper);
    return status ? cli_library(COMMAND, status) : 0;
}

/* ---- the run ---- */

enum { GOAL_LOOP, GOAL_ADAMW, GOAL_SAME, GOAL_LIST, GOALS };

typedef struct bench {
    request ask;
    int threads;
    bench_torch *torch;
    const char *isa;
    bench_verdict goals[GOALS];
    const char *same; /* the rule, if torch runs it, too */
    char label[64];
} bench;

void bench_judge(bench_verdict *v, double found, const char *where) {
    if (v->any && (v->at_most ? found <= v->found : found >= v->found)) return;
    v->any = true;
    v->found = found;
    snprintf(v->where, sizeof v->where, "%s", where);
}

void bench_name_peer(bench_verdict *v, const char *torch) { bench_torch_name(torch, v->peer); }

static const char *const type_names[] = {"f32", "bf16", "bf16, f32 master"};

void bench_print_columns(const bench_column *columns, int n, const char *rule, bool as_json) {
    for (const bench_column *c = columns; c < columns + n; c++) {
        char text[32] = "", key[32];
        if (as_json && c->key) {
            snprintf(key, sizeof key, c->key, rule ? rule : "adamod");
            snprintf(text, sizeof text, c->x > 0 && isfinite(c->x) ? "%.6g" : "null",
                     c->x); /* JSON has no other numbers */
            printf(", \"%s\": %s", key, text);
        } else if (!as_json && c->format) {
            snprintf(text, sizeof text, c->format, c->x);
            printf(" %*s", c->width, c->x > 0 ? text : "-");
        }
    }
}

static bool is(const char *rule, const char *name) { return rule && strcmp(rule, name) == 0; }

const char *bench_title(const char *rule) {
    return is(rule, "muon") ? "Muon" : is(rule, "adafactor") ? "Adafactor" : "AdaMod";
}

bench_verdict bench_goal_same(const char *rule, double adamod) {
    if (is(rule, "muon")) return (bench_verdict){.goal = "speed over torch.optim.Muon", .limit = 1};
    if (is(rule, "adafactor")) return (bench_verdict){.goal = "speed over torch.optim.Adafactor", .limit = 1};
    return (bench_verdict){.goal = "speed over the published AdaMod in torch", .limit = adamod};
}

typedef struct row {
    double ms, gb_per_s, of_loop, times_adamw, times_same;
} row;

static row make_row(const bench *b, const bench_race *race, int index) {
    const bench_case *c = &race->rows[index];
    const double *s = race->seconds;
    const double bytes = (double)bench_bytes(c->type, b->ask.states) * (double)c->elements;
    const double adamw_bytes = 28 * (double)c->elements;
    row r = {.ms = 1e3 * s[index], .gb_per_s = 1e-9 * bytes / s[index], .of_loop = s[BENCH_LOOP] / s[index]};
    if (s[BENCH_ADAMW] > 0) r.times_adamw = s[BENCH_ADAMW] / adamw_bytes / (s[index] / bytes);
    if (s[BENCH_SAME] > 0) r.times_same = s[BENCH_SAME] / s[index];
    return r;
}

static void print_row(const bench *b, const bench_race *race, int index) {
    const bench_case *c = &race->rows[index];
    const row r = make_row(b, race, index);
    const bench_column columns[] = {{"ms", "%.3f", 9, r.ms},
                                    {"gb_per_s", "%.1f", 7, r.gb_per_s},
                                    {"loop_ms", NULL, 0, 1e3 * race->seconds[BENCH_LOOP]},
                                    {"of_loop", "%.2f", 8, r.of_loop},
                                    {"adamw_ms", NULL, 0, 1e3 * race->seconds[BENCH_ADAMW]},
                                    {"times_adamw", "%.2f", 9, r.times_adamw},
                                    {"%s_ms", NULL, 0, 1e3 * race->seconds[BENCH_SAME]},
                                    {"times_%s", "%.2f", 9, r.times_same}};
    if (b->ask.json)
        printf(
            "{\"case\": \"%s\", \"type\": \"%s\", \"tensors\": %d, \"elements\": %lld, \"rounds\": %d, \"sets\": %d, "
            "\"steps\": %d",
            c->name, type_names[c->type], c->n_shapes, (long long)c->elements, race->rounds, c->sets,
            race->steps[index]);
    else printf("%-21s %-16s %9lld", c->name, type_names[c->type], (long long)c->elements);
    bench_print_columns(columns, sizeof columns / sizeof *columns, b->same, b->ask.json);
    if (b->ask.json) printf("}");
    else if (bench_period(race->rule, c) > 1) printf("  %d steps", race->steps[index]);
    printf("\n");
    fflush(stdout);
}

static void judge_row(bench *b, const bench_race *race, int index) {
    const bench_case *c = &race->rows[index];
    const row r = make_row(b, race, index);
    char where[64];
    snprintf(where, sizeof where, "%s, %lld", c->name, (long long)c->elements);
    if (c->type != BENCH_F32) return;
    if (r.times_same > 0) bench_judge(&b->goals[GOAL_SAME], r.times_same, where);
    if (bench_multiplies(b->ask.rule, c)) return;
    if (c->elements >= 1 << 20) bench_judge(&b->goals[GOAL_LOOP], r.of_loop, where);
    if (r.times_adamw > 0) bench_judge(&b->goals[GOAL_ADAMW], r.times_adamw, where);
}

static double available_memory(void) {
    char line[256];
    double kilobytes = 0;
    FILE *file = fopen("/proc/meminfo", "r");
    while (file && fgets(line, sizeof line, file)) {
        if (sscanf(line, "MemAvailable: %lf", &kilobytes) == 1) break;
    }
    if (file) fclose(file);
    return kilobytes > 0 ? 1024 * kilobytes : 1e18;
}

/* Enough sets that one step of all of them moves more than the last-level cache holds. */
static int count_sets(const bench *b, bench_type type, int64_t elements) {
    double enough = 256e6;
#ifdef _SC_LEVEL3_CACHE_SIZE
    const double cache = 1.5 * (double)sysconf(_SC_LEVEL3_CACHE_SIZE);
    if (cache > enough) enough = cache < 1e9 ? cache : 1e9;
#endif
    const double set = (type == BENCH_F32 ? 4.0 : 2.0) * (2 + b->ask.states) * (double)elements;
    return set >= enough ? 1 : (int)(enough / set) + 1;
}

#define QUICK_STEP 20.0 /* seconds that the first step may take with --quick */

static int run_race(bench *b, bench_race *race) {
    race->rule = b->ask.rule;
    race->states = b->ask.states;
    race->threads = b->threads;
    race->same = b->same;
    race->torch = race->rows[0].type == BENCH_F32 ? b->torch : NULL;
    race->budget = b->ask.quick ? 1.5 : 5;
    race->least_rounds = b->ask.quick ? 3 : 5;
    race->most = b->ask.quick ? 10 * race->budget : 0;
    for (int i = 0; i < race->n_rows; i++) { /* where matrices are multiplied, memory is not the limit */
        bench_case *c = &race->rows[i];
        c->sets = bench_multiplies(race->rule, c) ? 1 : count_sets(b, c->type, c->elements);
    }
    const double needed = bench_memory(race), available = available_memory();
    if (needed > 0.9 * available) {
        fprintf(stderr, "adamod: " COMMAND ": %s, %lld is left out: it takes %.1f GB of memory, %.1f are available\n",
                race->rows[0].name, (long long)race->rows[0].elements, 1e-9 * needed, 1e-9 * available);
        return 0;
    }
    double about = 0;
    int status = 0;
    for (int i = 0; i < race->n_rows && !status && about == 0 && b->ask.quick; i++) {
        if (bench_multiplies(race->rule, &race->rows[i]))
            status = bench_fits(&race->rows[i], QUICK_STEP, bench_attempt_ours, race, &about);
    }
    if (status || bench_is_too_long(&race->rows[0], about)) return status;
    status = bench_run(race);
    for (int i = 0; i < race->n_rows && !status; i++) {
        print_row(b, race, i);
        judge_row(b, race, i);
    }
    return status;
}

static int run_flat(bench *b, const char *name, bench_type type, int64_t elements) {
    const bench_shape shape = {1, {elements}};
    bench_race race = {.n_rows = 1};
    race.rows[0] = (bench_case){.name = name, .type = type, .shapes = &shape, .n_shapes = 1, .elements = elements};
    return run_race(b, &race);
}

static int run_resnet34(bench *b) {
    bench_shape shapes[BENCH_RESNET_TENSORS];
    const bench_shape flat = {1, {BENCH_RESNET_ELEMENTS}};
    bench_make_resnet34(shapes);
    bench_race race = {.n_rows = 2};
    race.rows[0] =
        (bench_case){"ResNet-34, 110 arrays", BENCH_F32, shapes, BENCH_RESNET_TENSORS, BENCH_RESNET_ELEMENTS, 0};
    race.rows[1] = (bench_case){"ResNet-34, one array", BENCH_F32, &flat, 1, BENCH_RESNET_ELEMENTS, 0};
    const int status = run_race(b, &race);
    if (!status && race.rounds > 0) bench_judge(&b->goals[GOAL_LIST], race.seconds[0] / race.seconds[1], "ResNet-34");
    return status;
}

/* With a rule that multiplies matrices, memory is not the limit here. */
static int run_layer(bench *b, const char *name, int64_t d) {
    const bench_shape shapes[] = {{2, {3 * d, d}}, {2, {d, d}}, {2, {4 * d, d}}, {2, {d, 4 * d}}};
    bench_race race = {.n_rows = 1};
    race.rows[0] = (bench_case){name, BENCH_F32, shapes, 4, 12 * d * d, 0};
    return run_race(b, &race);
}

static int run_cases(bench *b) {
    int status = 0;
    for (int i = 0; i < b->ask.n_sizes && !status && b->ask.cases & CASE_FLAT; i++) {
        if (b->ask.quick && b->ask.sizes[i] > 16 << 20) continue;
        status = run_flat(b, "flat", BENCH_F32, b->ask.sizes[i]);
    }
    if (!status && b->ask.cases & CASE_RESNET) status = run_resnet34(b);
    if (!status && b->ask.cases & CASE_BF16) status = run_flat(b, "flat", BENCH_BF16, 16 << 20);
    if (!status && b->ask.cases & CASE_MASTER) status = run_flat(b, "flat", BENCH_MASTER, 16 << 20);
    if (!status && b->ask.cases & CASE_LAYER) status = run_layer(b, "Transformer-big layer", 1024);
    if (!status && b->ask.cases & CASE_SMALL) status = run_layer(b, "layer 64 wide", 64);
    return status;
}

/* ---- what is printed before and after ---- */

static void print_setup_json(const bench *b, const char *why) {
    json j = {.spaced = true};
    json_open(&j, '{');
    json_pair(&j, "version", adamod_version_string());
    json_pair(&j, "rule", b->ask.rule);
    json_pair(&j, "isa", b->isa);
    json_pair_integer(&j, "threads", b->threads);
    json_pair_integer(&j, "bytes_per_element", bench_bytes(BENCH_F32, b->ask.states));
    json_pair(&j, "torch", b->torch ? b->torch->version : NULL);
    json_pair(&j, "adamw", !b->torch ? NULL : b->torch->fused ? "fused" : "foreach");
    if (!b->torch) json_pair(&j, "no_torch", why);
    json_close(&j, '}');
    (void)cli_print_json(COMMAND, &j, "\n");
}

static void print_setup(const bench *b, const char *why) {
    if (b->ask.json) {
        print_setup_json(b, why);
        return;
    }
    printf("adamod %s: rule %s, %d bytes an element in f32, %s, %d thread%s\n", adamod_version_string(), b->ask.rule,
           bench_bytes(BENCH_F32, b->ask.states), b->isa, b->threads, b->threads > 1 ? "s" : "");
    if (!b->torch) printf("torch is not measured: %s\n", why);
    else if (b->torch->fused) printf("torch %s (%s)\n", b->torch->version, bench_torch_python(b->torch));
    else {
        printf("torch %s (%s): fused AdamW is not available in it, foreach AdamW is measured\n", b->torch->version,
               bench_torch_python(b->torch));
    }
    char same[32];
    snprintf(same, sizeof same, "x %s", bench_title(b->same));
    printf("\n%-21s %-16s %9s %9s %7s %8s %9s %9s\n", "shape", "type", "elements", "ms/step", "GB/s", "of loop",
           "x AdamW", same);
    fflush(stdout);
}

void bench_print_verdict(const bench_verdict *v, bool as_json) {
    if (!v->any) return;
    const bool met = v->at_most ? v->found <= v->limit : v->found >= v->limit;
    const bench_column columns[] = {{"found", NULL, 0, v->found}};
    if (as_json) {
        printf("{\"goal\": \"%s\", \"%s\": %g", v->goal, v->at_most ? "at_most" : "at_least", v->limit);
        bench_print_columns(columns, 1, NULL, true);
        printf(", \"where\": \"%s\", \"met\": %s}\n", v->where, met ? "true" : "false");
    } else {
        char found[32];
        printf("%-6s  %s: %s %g, found %s (%s%s%s)\n", met ? "met" : "MISSED", v->goal,
               v->at_most ? "at most" : "at least", v->limit, metric_beside(v->found, v->limit, found), v->where,
               *v->peer ? "; " : "", v->peer);
    }
}

/* The library would name its environment variable in a message, not the flag. */
static int choose_isa(const char *isa) {
    char all[128] = "";
    for (int i = 0; adamod_isa_name(i); i++) {
        if (strcmp(isa, adamod_isa_name(i)) == 0) return setenv("ADAMOD_ISA", isa, 1);
        text_join(all, sizeof all, ", ", adamod_isa_name(i));
    }
    return cli_usage(COMMAND, "--isa is '%.40s', expected one this processor has: %s", isa, all);
}

static int start(bench *b, char *why, size_t size) {
    if (b->ask.isa && choose_isa(b->ask.isa)) return CLI_USAGE;
    adamod_optimizer *opt;
    adamod_status status = adamod_create(&opt, b->ask.rule);
    if (status) return cli_library(COMMAND, status);
    b->isa = adamod_isa(opt);
    adamod_free(opt);
    adamod_pool *pool;
    if ((status = adamod_pool_create(&pool, (int)b->ask.threads))) return cli_library(COMMAND, status);
    b->threads = adamod_pool_threads(pool);
    adamod_pool_free(pool);
    bench_warn_if_busy(COMMAND);
    if (!b->ask.no_torch) b->torch = bench_torch_start(b->ask.python, b->threads, "cpu");
    snprintf(why, size, "%s", b->ask.no_torch || b->torch ? "--no-torch" : adamod__last_message());
    return count_states(b->ask.rule, 2, &b->ask.states);
}

static int run(bench *b) {
    char why[512];
    int status = start(b, why, sizeof why);
    if (status) return status;
    b->same = b->torch && bench_torch_has(b->torch, b->ask.rule) ? b->ask.rule : NULL;
    const bool fused = b->torch && b->torch->fused;
    b->goals[GOAL_LOOP] = (bench_verdict){.goal = "share of the loop's speed, from 1M elements up", .limit = 0.9};
    b->goals[GOAL_ADAMW] = (bench_verdict){.goal = fused ? "speed per byte over torch's fused AdamW"
                                                         : "speed per byte over torch's foreach AdamW",
                                           .limit = 1};
    b->goals[GOAL_SAME] = bench_goal_same(b->same, 5);
    if (b->torch) bench_name_peer(&b->goals[GOAL_ADAMW], b->torch->version);
    if (b->torch) bench_name_peer(&b->goals[GOAL_SAME], b->torch->version);
    b->goals[GOAL_LIST] =
        (bench_verdict){.goal = "time of ResNet-34's 110 arrays over one array's", .limit = 1.1, .at_most = true};
    print_setup(b, why);
    status = run_cases(b);
    if (status) return status;
    if (!b->ask.json) printf("\n");
    for (int i = 0; i < GOALS; i++) bench_print_verdict(&b->goals[i], b->ask.json);
    return 0;
}

static int run_on_cuda(request *ask) {
    int status = count_states(ask->rule, 2, &ask->states);
    if (!status) status = count_states(ask->rule, 1, &ask->flat_states);
    return status ? status : bench_cuda(ask);
}

int cli_optim_bench(int argc, char **argv) {
    bench b = {.ask = {.rule = "adamod", .device = "cpu", .cases = CASE_FLAT | CASE_RESNET | CASE_BF16 | CASE_MASTER}};
    (void)parse_sizes(&b.ask, NULL, "64K,1M,16M,64M");
    int status = cli_parse(&syntax, argc, argv, &b.ask);
    if (status >= 0) return status;
    if (strcmp(b.ask.device, "cpu") != 0) return run_on_cuda(&b.ask);
    status = run(&b);
    bench_torch_stop(b.torch);
    return status;
}
