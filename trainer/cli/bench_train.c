/* adamod bench train: how fast a recipe trains, how near to the matrix library's own speed, and against PyTorch and llm.c.
 *
 * The first batches of the recipe are used over and over. The contestants (a training step, its matrix products alone,
 * the same step in PyTorch or llm.c) take turns, so that other load on the machine affects all of them. */
#include "cli/bench_train.h"
#include "core/error.h"
#include "cli/bench.h"
#include "support/clock.h"
#include "cli/phase.h"
#include "cli/run_recipe.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- the request ---- */

static int add_shape(bench_request *ask, const task_shape *shape) {
    for (int i = 0; i < ask->n_shapes; i++) {
        if (ask->shapes[i] == shape) return cli_usage(BENCH_TRAIN, "--shape names %s twice", shape->name);
    }
    ask->shapes[ask->n_shapes++] = shape;
    return 0;
}

/* "small" or "small,resnet34" */
static int read_shapes(void *to, const cli_flag *flag, const char *value) {
    bench_request *ask = to;
    char names[1024], name[64];
    ask->n_shapes = 0;
    for (const char *at = value;; at++) {
        const size_t n = strcspn(at, ",");
        snprintf(name, sizeof name, "%.*s", (int)n, at);
        const task_shape *shape = bench_train_find_shape(name);
        if (!shape)
            return cli_usage(BENCH_TRAIN, "--%s is '%.40s', expected %s", flag->name, value,
                             bench_train_shape_names(names, sizeof names));
        const int status = add_shape(ask, shape);
        if (status) return status;
        at += n;
        if (!*at) return 0;
    }
}

static void take_all_shapes(bench_request *ask) {
    const task_bench *of;
    ask->n_shapes = 0;
    while (ask->n_shapes < BENCH_MOST_SHAPES && (ask->shapes[ask->n_shapes] = bench_train_shape_at(ask->n_shapes, &of)))
        ask->n_shapes++;
}

static const cli_flag flags[] = {
    CLI_CHANGE("set", "KEY=VALUE", "override a key of the recipe; may be repeated", bench_request, changes, NULL),
    CLI_READ("shape", "NAME,..", "in place of a recipe: a model above that needs no data; of several, a table",
             read_shapes),
    CLI_SWITCH("all", "--shape with every shape", bench_request, all),
    CLI_WHOLE("threads", "N", "threads of each program; 0: one for each core (the recipe's)", bench_request, threads, 0,
              1024),
    CLI_WHOLE("steps", "N", "number of steps to measure (as many as fit into --seconds)", bench_request, steps, 1,
              BENCH_MOST_STEPS),
    CLI_WHOLE("seconds", "N", "how long to measure (20)", bench_request, seconds, 1, 86400),
    RECIPE_DEVICE_FLAG(bench_request, changes),
    CLI_CHANGE("precision", "NAME", "train.precision; mixed on a CPU is autocast to bf16 in PyTorch, too",
               bench_request, changes, "train.precision"),
    CLI_TEXT("python", "PROGRAM", "a Python with torch (default: python3, then /usr/bin/python3)", bench_request,
             python),
    CLI_SWITCH("no-torch", "do not run PyTorch", bench_request, no_torch),
    CLI_TEXT("llmc", "DIR", "for GPT-2: also build and run the llm.c in this directory", bench_request, llmc),
    CLI_SWITCH("verbose", "on a GPU: also print the time of kernels by shape", bench_request, verbose),
    CLI_TEXT("json", "FILE", "also write all results to this file", bench_request, json),
    CLI_WHOLE("losses", "N", "with --json, also the losses of N first steps, which are not measured (10)",
              bench_request, losses, BENCH_BATCHES, BENCH_MOST_STEPS),
    CLI_TEXT("dump", "FILE", "write weights, batches and the first batch's gradients without dropout (safetensors)",
             bench_request, dump),
    CLI_HELP_FLAG,
    {0},
};

_Static_assert(BENCH_BATCHES == 10, "the text below names it");
static const cli_syntax syntax = {
    .command = BENCH_TRAIN,
    .help =
        "usage: adamod bench train RECIPE [--set KEY=VALUE]... [--threads N] [--steps N | --seconds N] [--no-torch]\n"
        "       adamod bench train --shape small|base|big|resnet34|densenet121|lstm|gpt2,.. [--device cuda] ...\n"
        "       adamod bench train --all [--device cuda] ...\n\n"
        "Trains on the recipe's first 10 batches, over and over, and prints the speed: milliseconds per step (median\n"
        "and quartiles), tokens or images per second, GFLOP/s of the matrix products without attention's, their share\n"
        "of the matrix library's own speed on these shapes, the optimizer's share of the time, and memory.\n"
        "If Python can import torch, the same model with the same weights takes the same steps in PyTorch with its\n"
        "AdamW, in turns, on padded sentences or on images that are neither cropped nor flipped. The losses of the\n"
        "first batch must agree. So it is with the llm.c of --llmc, which is built in a temporary folder.\n\n"
        "On a GPU the share is relative to the speed of one large matrix product, time is shown by kind of kernel,\n"
        "and PyTorch runs twice: step by step, and compiled as one CUDA graph. Of several shapes each has a line: the\n"
        "step here and in PyTorch, the products of the step alone, memory, and whether goals are met.\n\n",
    .flags = flags,
    .takes = CLI_ONE_OPERAND,
    .operands = offsetof(bench_request, recipe)};

static int check_request(bench_request *ask) {
    if (ask->all) take_all_shapes(ask);
    if (ask->recipe && ask->n_shapes) return cli_usage(BENCH_TRAIN, "expected a recipe or --shape, not both");
    if (!ask->recipe && !ask->n_shapes)
        return cli_usage(BENCH_TRAIN, "needs a recipe, say recipes/demo.yaml, or --shape small");
    const char *single = ask->dump ? "dump" : ask->llmc ? "llmc" : ask->verbose ? "verbose" : NULL;
    if (ask->n_shapes > 1 && single)
        return cli_usage(BENCH_TRAIN, "--%s is for one shape, and there are %d", single, ask->n_shapes);
    return 0;
}

static int read_recipe(const bench_request *ask, recipe *r) {
    if (ask->recipe) return recipe_load(r, ask->recipe);
    return recipe_parse(r, ask->shape->recipe, strlen(ask->shape->recipe), ask->shape->name);
}

/* folder: receives the folder of a shape's data, to be dropped once they were read. */
static int load_recipe(const bench_request *ask, recipe *r, char folder[512]) {
    if (recipe_defaults(r, tasks_all)) return cli_failed(BENCH_TRAIN);
    if (read_recipe(ask, r) || recipe_change(r, &ask->changes)) return cli_refused(BENCH_TRAIN);
    if (ask->threads >= 0) r->train.threads = (int)ask->threads;
    if (ask->shape && bench_train_make_data(ask->shape, r, folder, 512)) return cli_failed(BENCH_TRAIN);
    return recipe_check(r) ? cli_refused(BENCH_TRAIN) : 0;
}

/* ---- memory ---- */

/* Bytes of "VmRSS:", or of "VmHWM:" for the most so far; 0: unknown. */
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

/* Resets VmHWM, if the system can. */
static void forget_peak(void) {
    FILE *file = fopen("/proc/self/clear_refs", "w");
    if (!file) return;
    fputs("5", file);
    fclose(file);
}

/* ---- ours ---- */

/* Takes a training step as the trainer does. Stores the seconds of its parts and the loss per target. */
static int take_step(bench *b, const bench_batch *x, double times[BENCH_SAMPLES], double *loss) {
    experiment *s = &b->s;
    const double start = clock_seconds();
    bench_batch_feed(x, s->plan);
    nn_plan_set_random(s->plan, s->recipe.train.seed, (uint64_t)++b->steps_done);
    nn_plan_forward(s->plan);
    const float *sums = nn_plan_data(s->plan, "loss");
    const double targets = (double)sums[3];
    *loss = (double)sums[0] / targets;
    const double forward = clock_seconds();
    nn_plan_backward(s->plan, false);
    const double backward = clock_seconds();
    if (!isfinite(*loss)) return cli_fail(BENCH_TRAIN, "the loss is not finite in step %lld", (long long)b->steps_done);
    adamod_status status = adamod_set(s->optimizer, "grad_scale", 1 / targets);
    if (!status) status = adamod_step(s->optimizer);
    if (status) return cli_library(BENCH_TRAIN, status);
    const double end = clock_seconds();
    times[BENCH_TOTAL] = end - start;
    times[BENCH_FORWARD] = forward - start;
    times[BENCH_BACKWARD] = backward - forward;
    times[BENCH_OPTIMIZER] = end - backward;
    return 0;
}

/* Computes loss and gradients of the first batch with nothing random, and copies the gradients to the host. */
static adamod_status run_check(bench *b, nn_plan *plan) {
    bench_batch_feed(&b->batches[0], plan);
    nn_plan_forward(plan);
    nn_plan_backward(plan, false);
    const adamod_status status = nn_plan_wait(plan);
    const float *sums = nn_plan_data(plan, "loss");
    b->result.check = (double)sums[0] / (double)sums[3];
    return status ? status : nn_params_fetch_grad(b->s.params);
}

/* training: the graph has nothing random in it. */
static adamod_status check_graph(bench *b, nn_graph *g, bool training) {
    nn_plan *plan;
    const nn_plan_options o = {.backend = b->s.recipe.train.backend,
                               .loss = nn_named_value(g, "loss"),
                               .pool = b->s.pool,
                               .training = training};
    adamod_status status = nn_plan_create(&plan, g, &o);
    if (status) return status;
    status = run_check(b, plan);
    nn_plan_free(plan);
    return status;
}

static int check_step(bench *b) {
    const task_bench *of = b->s.task->bench;
    nn_graph *own = of && of->check ? nn_graph_create(b->s.params) : NULL;
    if (of && of->check && !own) return cli_fail(BENCH_TRAIN, "out of memory");
    if (own) of->check(&b->s, own);
    const adamod_status status = check_graph(b, own ? own : b->s.graph, own);
    nn_graph_free(own);
    if (status) return cli_library(BENCH_TRAIN, status);
    return isfinite(b->result.check) ? 0 : cli_fail(BENCH_TRAIN, "the loss of the first batch is not finite");
}

/* ---- torch and llm.c ---- */

/* They may differ by rounding, since sums have another order. */
static int compare_losses(const bench *b, const bench_train_peer *p) {
    const char *precision = experiment_precision(&b->s);
    const char *tolerance = strcmp(precision, "full") == 0 ? "1e-4" : strcmp(precision, "tf32") == 0 ? "2e-3" : "2e-2";
    const double ours = b->result.check;
    if (fabs(ours - p->loss) <= strtod(tolerance, NULL) * fabs(ours)) return 0;
    return cli_fail(BENCH_TRAIN, "the first batch's loss is %.9g here and %.9g in %s, expected the same within %s",
                    ours, p->loss, p->name, tolerance);
}

/* On a device there is a second peer, whose step becomes one CUDA graph. */
static int start_torch(bench *b, const char *path) {
    bench_train_result *r = &b->result;
    const bool device = b->s.params->on_device;
    bench_train_peer *const peers[2] = {&r->peer, &r->device.graph};
    for (int i = 0; i < (device ? 2 : 1); i++) {
        phase_begin(BENCH_TRAIN, "starting torch%s", i ? " again, for a graph" : "");
        bench_train_peer_start(peers[i], &b->s, b->ask.python, r->threads, device, path);
        phase_end();
        if (i == 0 && peers[i]->process) bench_python_warn(peers[i]->process, BENCH_TRAIN, peers[i]->version);
        if (!peers[i]->process) {
            snprintf(r->no_torch, sizeof r->no_torch, "%s", adamod__last_message());
            return 0;
        }
        int status = compare_losses(b, peers[i]);
        if (!status && i == 1) {
            phase_begin(BENCH_TRAIN, "compiling torch's model into a CUDA graph");
            status = bench_train_peer_compile(peers[i]);
        }
        if (status) return status;
    }
    return 0;
}

static int start_llmc(bench *b, const char *path) {
    bench_train_result *r = &b->result;
    phase_begin(BENCH_TRAIN, "building and starting llm.c");
    bench_train_llmc_start(&r->llmc, b->ask.python, r->threads, path, b->ask.llmc);
    phase_end();
    if (r->llmc.process) return compare_losses(b, &r->llmc);
    snprintf(r->no_llmc, sizeof r->no_llmc, "%s", adamod__last_message());
    return 0;
}

/* The file is deleted once they have read it. */
static int start_peers(bench *b) {
    bench_train_result *r = &b->result;
    char path[512];
    const char *folder = getenv("TMPDIR");
    snprintf(r->no_torch, sizeof r->no_torch, "--no-torch");
    if (b->ask.dump && bench_train_write(b->ask.dump, &b->s, b->batches, BENCH_BATCHES)) return cli_failed(BENCH_TRAIN);
    if (b->ask.no_torch && !b->ask.llmc) return 0;
    snprintf(path, sizeof path, "%s/adamod-bench-XXXXXX", folder && *folder ? folder : "/tmp");
    const int file = mkstemp(path);
    if (file < 0) return cli_fail(BENCH_TRAIN, "%s: cannot make a temporary file", path);
    close(file);
    int status = bench_train_write(path, &b->s, b->batches, BENCH_BATCHES) ? cli_failed(BENCH_TRAIN) : 0;
    if (!status && !b->ask.no_torch) status = start_torch(b, path);
    if (!status && b->ask.llmc) status = start_llmc(b, path);
    unlink(path);
    return status;
}

/* ---- the race ---- */

static int run_ours(bench *b, int first, int n) {
    double times[BENCH_SAMPLES], loss;
    for (int i = first; i < first + n; i++) {
        const int status = take_step(b, &b->batches[i % BENCH_BATCHES], times, &loss);
        if (status) return status;
        for (int k = BENCH_TOTAL; k <= BENCH_OPTIMIZER; k++) b->samples[k][i] = times[k];
    }
    return 0;
}

static int run_products(bench *b, int first, int n) {
    for (int i = first; i < first + n; i++)
        b->samples[BENCH_PRODUCTS][i] = bench_products_run(b->products, &b->batches[i % BENCH_BATCHES]);
    return 0;
}

static int run_torch(bench *b, int first, int n) {
    if (!b->result.peer.process) return 0;
    return bench_train_peer_run(&b->result.peer, first, n, b->samples[BENCH_TORCH] + first);
}

static int run_llmc(bench *b, int first, int n) {
    if (!b->result.llmc.process) return 0;
    return bench_train_peer_run(&b->result.llmc, first, n, b->samples[BENCH_LLMC] + first);
}

static int run_convolutions(bench *b, int first, int n) {
    (void)first, (void)n; /* once a round will do */
    return b->result.peer.process ? bench_train_peer_convolutions(&b->result.peer) : 0;
}

/* Runs steps first .. first + n - 1 of each contestant, starting with another one in each round. */
static int run_round(bench *b, int round, int first, int n) {
    static int (*const contestants[])(bench *, int, int) = {run_ours, run_products, run_torch, run_llmc,
                                                            run_convolutions};
    for (int i = 0; i < 5; i++) {
        bench_pause();
        const int status = contestants[(i + round) % 5](b, first, n);
        if (status) return status;
    }
    return 0;
}

void bench_train_measuring(const bench *b, int64_t most) {
    const bool torch = b->result.peer.process, llmc = b->result.llmc.process;
    const char *versus = torch && llmc ? "adamod, torch and llm.c in turns"
                         : torch       ? "adamod and torch in turns"
                         : llmc        ? "adamod and llm.c in turns"
                                       : "adamod";
    if (b->ask.steps) phase_begin(BENCH_TRAIN, "measuring %s, %lld steps each", versus, (long long)most);
    else phase_begin(BENCH_TRAIN, "measuring %s, for %lld s", versus, (long long)b->ask.seconds);
}

/* Bursts take a quarter of a second, so that a step follows another step, as in training. */
static int run_rounds(bench *b) {
    enum { LEAST_STEPS = 3 };
    const int most = b->ask.steps ? (int)b->ask.steps : BENCH_MOST_STEPS;
    const double step = b->samples[BENCH_TOTAL][BENCH_BATCHES - 1];
    const int burst = step < 0.25 / BENCH_BATCHES ? BENCH_BATCHES : (int)ceil(0.25 / step);
    int status = run_round(b, 0, 0, burst); /* touches all memory; not counted */
    const double start = clock_seconds();
    int *done = &b->result.steps;
    bench_train_measuring(b, most);
    for (int round = 0; !status && *done < most; round++) {
        if (!b->ask.steps && *done >= LEAST_STEPS && clock_seconds() - start > (double)b->ask.seconds) break;
        const int n = most - *done < burst ? most - *done : burst;
        status = run_round(b, round, *done, n);
        *done += n;
    }
    return status;
}

/* ---- the whole ---- */

static int open_experiment(bench *b, const recipe *r) {
    b->result.base = resident("VmRSS:");
    if (experiment_open(&b->s, r, NULL, TASK_TRAIN)) return cli_failed(BENCH_TRAIN);
    for (int i = 0; i < BENCH_BATCHES; i++) {
        if (!bench_batch_take(&b->batches[i], &b->s)) return cli_fail(BENCH_TRAIN, "out of memory");
    }
    for (int i = 0; i < BENCH_SAMPLES; i++) {
        b->samples[i] = calloc(BENCH_MOST_STEPS + BENCH_BATCHES, sizeof **b->samples);
        if (!b->samples[i]) return cli_fail(BENCH_TRAIN, "out of memory");
    }
    b->result.threads = adamod_pool_threads(b->s.pool);
    b->result.n_losses = (int)b->ask.losses;
    b->result.losses = calloc((size_t)b->ask.losses, sizeof *b->result.losses);
    return b->result.losses ? 0 : cli_fail(BENCH_TRAIN, "out of memory");
}

/* Takes a step on each batch or more, before anything else is in memory. */
static int warm_up(bench *b) {
    forget_peak();
    for (int i = 0; i < b->result.n_losses; i++) {
        double times[BENCH_SAMPLES];
        const int status = take_step(b, &b->batches[i % BENCH_BATCHES], times, &b->result.losses[i]);
        if (status) return status;
        b->samples[BENCH_TOTAL][i % BENCH_BATCHES] = times[BENCH_TOTAL];
    }
    b->result.peak = resident("VmHWM:");
    b->products = bench_products_create(&b->s, b->batches, BENCH_BATCHES);
    return b->products ? 0 : cli_fail(BENCH_TRAIN, "out of memory");
}

bench_spread bench_train_spread(double *x, int n) {
    return (bench_spread){bench_quantile(x, n, 0.25), bench_quantile(x, n, 0.5), bench_quantile(x, n, 0.75)};
}

static void summarize(bench *b) {
    bench_train_result *r = &b->result;
    size_t other;
    const int steps = b->s.params->on_device ? BENCH_BATCHES : r->steps;
    for (int i = 0; i < steps; i++) {
        const bench_batch *x = &b->batches[i % BENCH_BATCHES];
        r->samples += (double)x->counts.samples;
        r->items += (double)x->counts.items;
        r->targets += (double)x->counts.targets;
        r->flops += bench_products_flops(&b->s, x);
    }
    double *const means[] = {&r->samples, &r->items, &r->targets, &r->flops};
    for (int i = 0; i < 4; i++) *means[i] /= steps;
    r->s = &b->s;
    r->recipe = b->ask.shape ? b->s.recipe.name : b->ask.recipe;
    r->shape = b->ask.shape;
    r->verbose = b->ask.verbose;
    r->memory = nn_plan_memory(b->s.plan);
    adamod_memory(b->s.optimizer, &r->states, &other);
    for (int i = 0; i < BENCH_BATCHES; i++) r->rows += (double)b->batches[i].counts.items;
}

static int run_here(bench *b) {
    bench_train_result *r = &b->result;
    phase_begin(BENCH_TRAIN, "warming up with %d steps", r->n_losses);
    int status = warm_up(b);
    phase_end();
    if (!status) bench_warn_if_busy(BENCH_TRAIN);
    if (!status) status = run_rounds(b);
    if (!status && r->peer.process) status = bench_train_peer_memory(&r->peer);
    if (!status && r->llmc.process) status = bench_train_peer_memory(&r->llmc);
    if (status) return status;
    bench_spread *const spreads[BENCH_SAMPLES] = {&r->step,     &r->forward,   &r->backward, &r->optimizer,
                                                  &r->products, &r->peer_step, &r->llmc_step};
    for (int i = 0; i < BENCH_SAMPLES; i++) *spreads[i] = bench_train_spread(b->samples[i], r->steps);
    return 0;
}

static int run(bench *b) {
    phase_begin(BENCH_TRAIN, "taking a step with nothing random, to compare with torch");
    int status = check_step(b);
    if (!status) status = start_peers(b);
    if (!status) status = b->s.params->on_device ? bench_train_on_device(b) : run_here(b);
    phase_end();
    if (status) return status;
    summarize(b);
    if (b->ask.head) bench_train_print_columns(&b->result);
    if (b->ask.row) bench_train_print_row(&b->result);
    else bench_train_print(&b->result);
    if (b->ask.json && bench_train_print_json(&b->result, b->ask.json)) return cli_failed(BENCH_TRAIN);
    return 0;
}

int bench_train_one(const bench_request *ask) {
    static recipe r;
    static bench b;
    char folder[512] = "";
    b.ask = *ask;
    int status = load_recipe(&b.ask, &r, folder);
    if (!status) phase_begin(BENCH_TRAIN, "reading data and building the model");
    if (!status) status = open_experiment(&b, &r);
    bench_train_drop_data(folder);
    if (!status) status = run(&b);
    bench_python_stop(b.result.peer.process);
    bench_python_stop(b.result.device.graph.process);
    bench_python_stop(b.result.llmc.process);
    free(b.result.losses);
    free(b.result.device.classes);
    free(b.result.device.kernels);
    bench_products_free(b.products);
    for (int i = 0; i < BENCH_SAMPLES; i++) free(b.samples[i]);
    for (int i = 0; i < BENCH_BATCHES; i++) bench_batch_free(&b.batches[i]);
    experiment_close(&b.s);
    return status;
}

int cli_bench_train(int argc, char **argv) {
    static bench_request ask = {.threads = -1, .seconds = 20, .losses = BENCH_BATCHES};
    int status = cli_parse(&syntax, argc, argv, &ask);
    if (status >= 0) return status;
    status = check_request(&ask);
    ask.shape = ask.n_shapes ? ask.shapes[0] : NULL;
    if (!status) status = ask.n_shapes > 1 ? bench_train_table(&ask) : bench_train_one(&ask);
    free(ask.changes.list);
    return status;
}
