/* adamod bench train: how fast a recipe trains, how near to the matrix library's own speed, and against PyTorch.
 *
 * The first batches of the recipe are used over and over. The contestants (a training step, its matrix products alone,
 * the same step in PyTorch) take turns, so that what else the machine does meets all of them alike.
 *
 * SPDX-License-Identifier: MIT
 */
#define _GNU_SOURCE
#include "bench_train.h"
#include "bench.h"
#include "graph.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { SET, THREADS, STEPS, SECONDS, DEVICE, PYTHON, NO_TORCH, JSON, DUMP, HELP };
static const cli_flag flags[] = {
    {"set", "KEY=VALUE", "override a key of the recipe; may be given again"},
    {"threads", "N", "threads of every contestant (the recipe's; 0: one for each core)"},
    {"steps", "N", "steps of each that count (as many as fit into --seconds)"},
    {"seconds", "N", "how long to measure (20)"},
    {"device", "cpu|auto", "where to compute (auto)"},
    {"python", "PROGRAM", "a Python with torch (default: python3, then /usr/bin/python3)"},
    {"no-torch", NULL, "leave PyTorch out"},
    {"json", "FILE", "write all results to this file, too"},
    {"dump", "FILE", "write weights, gradients of the first batch without dropout, and batches (safetensors)"},
    CLI_HELP_FLAG,
    {0},
};

static void print_help(void) {
    printf(
        "usage: adamod bench train RECIPE [--set KEY=VALUE]... [--threads N] [--steps N | --seconds N] [--no-torch]\n\n"
        "Trains on the recipe's first %d batches, over and over, and prints how fast: milliseconds a step (median and\n"
        "quartiles), tokens a second, GFLOP/s of the matrix products (attention's are not counted) and the share\n"
        "of the speed that the matrix library alone reaches on these shapes, the optimizer's share, memory. Where a\n"
        "Python can import torch, the same model with the same weights takes the same steps there, on padded\n"
        "batches, with torch's AdamW; they take turns. The losses of the first batch must agree.\n\n",
        BENCH_BATCHES);
    cli_print_flags(stdout, flags);
}

/* ---- the request ---- */

typedef struct request {
    const char *recipe, *python, *json, *dump;
    int64_t threads, steps, seconds; /* threads -1: the recipe's; steps 0: as many as fit */
    bool no_torch;
} request;

static int read_flag(request *ask, recipe *r, int flag, const char *value) {
    char message[1024];
    switch (flag) {
        case CLI_BAD: return CLI_USAGE;
        case CLI_OPERAND:
            if (ask->recipe) return cli_usage(BENCH_TRAIN, "unexpected argument '%.80s'", value);
            ask->recipe = value;
            return 0;
        case SET:
            if (r && recipe_set(r, value, message, sizeof message)) return cli_usage(BENCH_TRAIN, "%s", message);
            return 0;
        case THREADS: return cli_parse_int(BENCH_TRAIN, "threads", value, 0, 1024, &ask->threads) ? 0 : CLI_USAGE;
        case STEPS: return cli_parse_int(BENCH_TRAIN, "steps", value, 1, BENCH_MOST_STEPS, &ask->steps) ? 0 : CLI_USAGE;
        case SECONDS: return cli_parse_int(BENCH_TRAIN, "seconds", value, 1, 86400, &ask->seconds) ? 0 : CLI_USAGE;
        case DEVICE:
            if (strcmp(value, "cpu") == 0 || strcmp(value, "auto") == 0) return 0;
            return cli_usage(BENCH_TRAIN, "--device is '%.40s', expected cpu or auto", value);
        case PYTHON: ask->python = value; return 0;
        case NO_TORCH: ask->no_torch = true; return 0;
        case JSON: ask->json = value; return 0;
        default: ask->dump = value; return 0;
    }
}

/* One pass over the arguments; r NULL: without what changes the recipe, which is not loaded yet. *help: it was asked
 * for and printed. */
static int parse(int argc, char **argv, request *ask, recipe *r, bool *help) {
    cli_parser parser = {.command = BENCH_TRAIN, .flags = flags, .argc = argc, .argv = argv};
    *ask = (request){.threads = -1, .seconds = 20};
    for (int flag; (flag = cli_next(&parser)) != CLI_END;) {
        if (flag == HELP) return print_help(), *help = true, 0;
        const int status = read_flag(ask, r, flag, parser.value);
        if (status) return status;
    }
    return ask->recipe ? 0 : cli_usage(BENCH_TRAIN, "needs a recipe, say recipes/demo.yaml");
}

static int load_recipe(int argc, char **argv, request *ask, recipe *r, bool *help) {
    char message[1024];
    recipe_defaults(r);
    int status = parse(argc, argv, ask, NULL, help);
    if (status || *help) return status;
    if (recipe_load(r, ask->recipe, message, sizeof message)) return cli_usage(BENCH_TRAIN, "%s", message);
    if ((status = parse(argc, argv, ask, r, help))) return status;
    if (ask->threads >= 0) r->train.threads = (int)ask->threads;
    if (recipe_check(r, message, sizeof message)) return cli_usage(BENCH_TRAIN, "%s", message);
    return 0;
}

/* ---- memory ---- */

/* "VmRSS:", or "VmHWM:" for the most so far, in bytes; 0 where the system does not say. */
static double resident(const char *field) {
    char line[256];
    double kilobytes = 0;
    FILE *file = fopen("/proc/self/status", "r");
    while (file && kilobytes == 0 && fgets(line, sizeof line, file)) {
        if (strncmp(line, field, strlen(field)) == 0) kilobytes = strtod(line + strlen(field), NULL);
    }
    if (file) fclose(file);
    return 1024 * kilobytes;
}

/* VmHWM starts anew; where it cannot, what came before counts, too. */
static void forget_peak(void) {
    FILE *file = fopen("/proc/self/clear_refs", "w");
    if (!file) return;
    fputs("5", file);
    fclose(file);
}

/* ---- ours ---- */

typedef struct bench {
    request ask;
    experiment s;
    batch batches[BENCH_BATCHES];
    int64_t steps_done; /* for the random numbers of dropout */
    bench_products *products;
    double *samples[6]; /* of each step: */
    bench_train_result result;
} bench;
enum { TOTAL, FORWARD, BACKWARD, OPTIMIZER, PRODUCTS, TORCH, SAMPLES };

static int32_t *put(int32_t **at, const void *from, int64_t n) {
    int32_t *p = *at;
    memcpy(p, from, (size_t)n * sizeof *p);
    *at += n;
    return p;
}

/* In one block, which begins with src_ids. */
static bool copy_batch(const batch *b, batch *out) {
    const int64_t n = 2 * (int64_t)b->n_src + 3 * (int64_t)b->n_tgt + 4 * (int64_t)b->n;
    int32_t *at = malloc((size_t)(n + 1) * sizeof *at);
    if (!at) return false;
    *out = (batch){.n = b->n, .n_src = b->n_src, .n_tgt = b->n_tgt};
    out->src_ids = put(&at, b->src_ids, b->n_src);
    out->src_positions = put(&at, b->src_positions, b->n_src);
    out->src_ranges = (int32_t(*)[2])put(&at, b->src_ranges, 2 * (int64_t)b->n);
    out->tgt_in = put(&at, b->tgt_in, b->n_tgt);
    out->tgt_out = put(&at, b->tgt_out, b->n_tgt);
    out->tgt_positions = put(&at, b->tgt_positions, b->n_tgt);
    out->tgt_ranges = (int32_t(*)[2])put(&at, b->tgt_ranges, 2 * (int64_t)b->n);
    return true;
}

/* A training step as the trainer takes it; the seconds of its parts, and the loss a token. */
static int take_step(bench *b, const batch *x, double times[SAMPLES], double *loss) {
    experiment *s = &b->s;
    const double start = bench_now();
    experiment_feed(s->plan, &s->symbols, x);
    nn_plan_set_random(s->plan, s->recipe.train.seed, (uint64_t)++b->steps_done);
    nn_plan_forward(s->plan);
    const float *sums = nn_plan_data(s->plan, "loss");
    const double tokens = (double)sums[3];
    *loss = (double)sums[0] / tokens;
    const double forward = bench_now();
    nn_plan_backward(s->plan, false);
    const double backward = bench_now();
    if (!isfinite(*loss)) return cli_fail(BENCH_TRAIN, "the loss is not finite in step %lld", (long long)b->steps_done);
    adamod_status status = adamod_set(s->optimizer, "grad_scale", 1 / tokens);
    if (!status) status = adamod_step(s->optimizer);
    if (status) return cli_library(BENCH_TRAIN, status);
    const double end = bench_now();
    times[TOTAL] = end - start;
    times[FORWARD] = forward - start;
    times[BACKWARD] = backward - forward;
    times[OPTIMIZER] = end - backward;
    return 0;
}

/* Loss and gradients of the first batch without dropout. */
static int check_step(bench *b) {
    const nn_graph *g = b->s.graph;
    nn_plan *plan;
    nn_value loss = 0;
    while (!g->values[loss].output) loss++; /* the graph has no other */
    const nn_plan_options o = {.backend = b->s.recipe.train.backend, .loss = loss, .pool = b->s.pool};
    const adamod_status status = nn_plan_create(&plan, b->s.graph, &o);
    if (status) return cli_library(BENCH_TRAIN, status);
    experiment_feed(plan, &b->s.symbols, &b->batches[0]);
    nn_plan_forward(plan);
    nn_plan_backward(plan, false);
    const float *sums = nn_plan_data(plan, "loss");
    b->result.check = (double)sums[0] / (double)sums[3];
    nn_plan_free(plan);
    return isfinite(b->result.check) ? 0 : cli_fail(BENCH_TRAIN, "the loss of the first batch is not finite");
}

/* ---- torch ---- */

/* Within rounding of f32 in another order of sums. */
static int compare_losses(const bench *b) {
    const double ours = b->result.check, theirs = b->result.peer.loss;
    if (fabs(ours - theirs) <= 1e-4 * fabs(ours)) return 0;
    return cli_fail(BENCH_TRAIN, "the first batch's loss is %.9g here and %.9g in torch, expected the same within 1e-4",
                    ours, theirs);
}

/* The file is gone once torch has read it, unless it was asked for. */
static int start_torch(bench *b) {
    bench_train_result *r = &b->result;
    char path[512], message[1024];
    const char *folder = getenv("TMPDIR");
    snprintf(r->no_torch, sizeof r->no_torch, "--no-torch");
    if (b->ask.dump && bench_train_write(b->ask.dump, &b->s, b->batches, BENCH_BATCHES, message, sizeof message)) {
        return cli_fail(BENCH_TRAIN, "%s", message);
    }
    if (b->ask.no_torch) return 0;
    snprintf(path, sizeof path, "%s/adamod-bench-XXXXXX", folder && *folder ? folder : "/tmp");
    const int file = mkstemp(path);
    if (file < 0) return cli_fail(BENCH_TRAIN, "%s: cannot make a temporary file", path);
    close(file);
    int status = 0;
    if (bench_train_write(path, &b->s, b->batches, BENCH_BATCHES, message, sizeof message))
        status = cli_fail(BENCH_TRAIN, "%s", message);
    if (!status) bench_train_peer_start(&r->peer, b->ask.python, r->threads, path, r->no_torch, sizeof r->no_torch);
    unlink(path);
    return status || !r->peer.process ? status : compare_losses(b);
}

/* ---- the race ---- */

static int run_ours(bench *b, int first, int n) {
    double times[SAMPLES], loss;
    for (int i = first; i < first + n; i++) {
        const int status = take_step(b, &b->batches[i % BENCH_BATCHES], times, &loss);
        if (status) return status;
        for (int k = TOTAL; k <= OPTIMIZER; k++) b->samples[k][i] = times[k];
    }
    return 0;
}

static int run_products(bench *b, int first, int n) {
    for (int i = first; i < first + n; i++) {
        b->samples[PRODUCTS][i] = bench_products_run(b->products, &b->batches[i % BENCH_BATCHES]);
    }
    return 0;
}

static int run_torch(bench *b, int first, int n) {
    if (!b->result.peer.process) return 0;
    return bench_train_peer_run(&b->result.peer, first, n, b->samples[TORCH] + first);
}

/* Steps first .. first + n - 1 of each, another one first in each round. */
static int run_round(bench *b, int round, int first, int n) {
    static int (*const contestants[])(bench *, int, int) = {run_ours, run_products, run_torch};
    for (int i = 0; i < 3; i++) {
        bench_pause();
        const int status = contestants[(i + round) % 3](b, first, n);
        if (status) return status;
    }
    return 0;
}

/* Bursts of a quarter of a second, so that a step follows its own kind as in training. */
static int run_rounds(bench *b) {
    enum { LEAST_STEPS = 3 };
    const int most = b->ask.steps ? (int)b->ask.steps : BENCH_MOST_STEPS;
    const double step = b->samples[TOTAL][BENCH_BATCHES - 1];
    const int burst = step < 0.25 / BENCH_BATCHES ? BENCH_BATCHES : (int)ceil(0.25 / step);
    int status = run_round(b, 0, 0, burst); /* touches all memory; not counted */
    const double start = bench_now();
    int *done = &b->result.steps;
    for (int round = 0; !status && *done < most; round++) {
        if (!b->ask.steps && *done >= LEAST_STEPS && bench_now() - start > (double)b->ask.seconds) break;
        const int n = most - *done < burst ? most - *done : burst;
        status = run_round(b, round, *done, n);
        *done += n;
    }
    return status;
}

/* ---- the whole ---- */

static int open_experiment(bench *b, const recipe *r) {
    char message[1024];
    b->result.base = resident("VmRSS:");
    if (experiment_open(&b->s, r, EXPERIMENT_TRAIN, message, sizeof message))
        return cli_fail(BENCH_TRAIN, "%s", message);
    for (int i = 0; i < BENCH_BATCHES; i++) {
        if (!copy_batch(batcher_next(b->s.batches), &b->batches[i])) return cli_fail(BENCH_TRAIN, "out of memory");
    }
    for (int i = 0; i < SAMPLES; i++) {
        b->samples[i] = calloc(BENCH_MOST_STEPS + BENCH_BATCHES, sizeof **b->samples);
        if (!b->samples[i]) return cli_fail(BENCH_TRAIN, "out of memory");
    }
    b->result.threads = adamod_pool_threads(b->s.pool);
    return 0;
}

/* One step on each batch, before anything else is in memory. */
static int warm_up(bench *b) {
    forget_peak();
    for (int i = 0; i < BENCH_BATCHES; i++) {
        double times[SAMPLES];
        const int status = take_step(b, &b->batches[i], times, &b->result.losses[i]);
        if (status) return status;
        b->samples[TOTAL][i] = times[TOTAL];
    }
    b->result.peak = resident("VmHWM:");
    b->products = bench_products_create(&b->s, b->batches, BENCH_BATCHES);
    return b->products ? 0 : cli_fail(BENCH_TRAIN, "out of memory");
}

static bench_spread spread(double *x, int n) {
    return (bench_spread){bench_quantile(x, n, 0.25), bench_quantile(x, n, 0.5), bench_quantile(x, n, 0.75)};
}

static void summarize(bench *b) {
    bench_train_result *r = &b->result;
    size_t other;
    for (int i = 0; i < r->steps; i++) {
        const batch *x = &b->batches[i % BENCH_BATCHES];
        r->sentences += (double)x->n / r->steps;
        r->source += (double)x->n_src / r->steps;
        r->target += (double)x->n_tgt / r->steps;
        r->flops += bench_products_flops(b->products, x) / r->steps;
    }
    bench_spread *const spreads[SAMPLES] = {&r->step,      &r->forward,  &r->backward,
                                            &r->optimizer, &r->products, &r->peer_step};
    for (int i = 0; i < SAMPLES; i++) *spreads[i] = spread(b->samples[i], r->steps);
    r->s = &b->s;
    r->recipe = b->ask.recipe;
    r->memory = nn_plan_memory(b->s.plan);
    adamod_memory(b->s.optimizer, &r->states, &other);
    for (int i = 0; i < BENCH_BATCHES; i++) {
        r->rows += (double)(b->batches[i].n_src + b->batches[i].n_tgt);
    }
}

static int run(bench *b, const recipe *r) {
    char message[1024];
    int status = open_experiment(b, r);
    if (!status) status = check_step(b);
    if (!status) status = start_torch(b);
    if (!status) status = warm_up(b);
    if (!status) bench_warn_if_busy(BENCH_TRAIN);
    if (!status) status = run_rounds(b);
    if (!status && b->result.peer.process) status = bench_train_peer_memory(&b->result.peer);
    if (status) return status;
    summarize(b);
    bench_train_print(&b->result);
    if (b->ask.json && bench_train_print_json(&b->result, b->ask.json, message, sizeof message)) {
        return cli_fail(BENCH_TRAIN, "%s", message);
    }
    return 0;
}

int cli_bench_train(int argc, char **argv) {
    static recipe r;
    static bench b;
    bool help = false;
    int status = load_recipe(argc, argv, &b.ask, &r, &help);
    if (status || help) return status;
    status = run(&b, &r);
    bench_train_peer_stop(&b.result.peer);
    bench_products_free(b.products);
    for (int i = 0; i < SAMPLES; i++) free(b.samples[i]);
    for (int i = 0; i < BENCH_BATCHES; i++) free(b.batches[i].src_ids);
    experiment_close(&b.s);
    return status;
}
