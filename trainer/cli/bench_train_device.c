/* The race of `adamod bench train` on a device: recorded steps as the trainer takes them there, two under way at a time,
 * against torch step by step, torch as a graph, and llm.c; then every kernel alone.
 *
 * The clock is read only at the ends of bursts, so that work of the host counts only if the device waits for it. */
#include "cli/bench_train.h"
#include "cli/bench.h"
#include "cli/phase.h"
#include "support/clock.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { WARM_STEPS = 3, LEAST_BURSTS = 3, EAGER_BURST = BENCH_BATCHES };

/* ---- steps ---- */

static adamod_status run_recorded(void *context) {
    experiment *s = context;
    nn_plan_forward(s->plan);
    nn_plan_backward(s->plan, false);
    return adamod_step(s->optimizer);
}

static adamod_status begin_step(bench *b, const bench_batch *x) {
    experiment *s = &b->s;
    bench_batch_feed(x, s->plan);
    nn_plan_set_random(s->plan, s->recipe.train.seed, (uint64_t)++b->steps_done);
    const adamod_status status = adamod_set(s->optimizer, "grad_scale", 1.0 / (double)x->counts.targets);
    return status ? status : nn_plan_replay(s->plan, 0, run_recorded, s);
}

static int end_step(bench *b, double *loss) {
    const adamod_status status = nn_plan_wait(b->s.plan);
    if (status) return cli_library(BENCH_TRAIN, status);
    const float *sums = nn_plan_data(b->s.plan, "loss");
    *loss = (double)sums[0] / (double)sums[3];
    return isfinite(*loss) ? 0 : cli_fail(BENCH_TRAIN, "the loss is not finite by step %lld", (long long)b->steps_done);
}

/* Takes steps on batches first, first + 1, ...; losses: receives the loss per target of each, or NULL. */
static int run_steps(bench *b, int first, int n, double *losses) {
    double loss;
    int status = 0;
    for (int i = 0; !status && i < n; i++) {
        const adamod_status begun = begin_step(b, &b->batches[(first + i) % BENCH_BATCHES]);
        if (begun) return cli_library(BENCH_TRAIN, begun);
        if (i > 0) status = end_step(b, losses ? &losses[i - 1] : &loss);
    }
    return status ? status : end_step(b, losses ? &losses[n - 1] : &loss);
}

/* Seconds of a step. */
static int run_burst(bench *b, int steps, double *seconds) {
    int status = run_steps(b, 0, WARM_STEPS, NULL);
    const double start = clock_seconds();
    if (!status) status = run_steps(b, WARM_STEPS, steps, NULL);
    *seconds = (clock_seconds() - start) / steps;
    return status;
}

/* ---- the race ---- */

static int run_ours(bench *b, int burst) {
    return run_burst(b, b->result.device.burst, &b->samples[BENCH_TOTAL][burst]);
}

static int run_peer(bench_train_peer *p, int steps, double *seconds) {
    if (!p->process) return 0;
    const int status = bench_train_peer_burst(p, 0, steps, seconds);
    *seconds /= steps;
    return status;
}

static int run_eager(bench *b, int burst) {
    return run_peer(&b->result.peer, EAGER_BURST, &b->samples[BENCH_TORCH][burst]);
}

static int run_graph(bench *b, int burst) {
    return run_peer(&b->result.device.graph, b->result.device.burst, &b->samples[BENCH_TORCH_GRAPH][burst]);
}

static int run_llmc(bench *b, int burst) {
    return run_peer(&b->result.llmc, EAGER_BURST, &b->samples[BENCH_LLMC][burst]);
}

/* Runs a burst of each contestant, starting with another one in each round. */
static int run_round(bench *b, int round, int burst) {
    static int (*const contestants[])(bench *, int) = {run_ours, run_eager, run_graph, run_llmc};
    for (int i = 0; i < 4; i++) {
        bench_pause();
        const int status = contestants[(i + round) % 4](b, burst);
        if (status) return status;
    }
    return 0;
}

/* A burst takes about a quarter of a second and uses all batches equally often. */
static int choose_burst(bench *b) {
    double seconds;
    const int status = run_burst(b, BENCH_BATCHES, &seconds);
    const double times = ceil(0.25 / (seconds * BENCH_BATCHES));
    b->result.device.burst = BENCH_BATCHES * (times < 1 ? 1 : times < 1000 ? (int)times : 1000);
    return status;
}

static int run_rounds(bench *b) {
    bench_train_result *r = &b->result;
    const int burst = r->device.burst;
    const int most = b->ask.steps ? (int)((b->ask.steps + burst - 1) / burst) : BENCH_MOST_STEPS;
    bench_train_measuring(b, (int64_t)most * burst);
    int status = run_round(b, 0, 0), done = 0; /* not counted */
    const double start = clock_seconds();
    while (!status && done < most) {
        if (!b->ask.steps && done >= LEAST_BURSTS && clock_seconds() - start > (double)b->ask.seconds) break;
        status = run_round(b, done, done);
        done++;
    }
    if (status) return status;
    r->steps = done * burst;
    r->step = bench_train_spread(b->samples[BENCH_TOTAL], done);
    r->peer_step = bench_train_spread(b->samples[BENCH_TORCH], done);
    r->device.graph_step = bench_train_spread(b->samples[BENCH_TORCH_GRAPH], done);
    r->llmc_step = bench_train_spread(b->samples[BENCH_LLMC], done);
    return 0;
}

static int ask_memory(bench *b) {
    bench_train_peer *const peers[] = {&b->result.peer, &b->result.device.graph, &b->result.llmc};
    int status = 0;
    for (int i = 0; !status && i < 3; i++) {
        if (peers[i]->process) status = bench_train_peer_memory(peers[i]);
    }
    return status;
}

/* ---- kernels alone ---- */

static adamod_status step_optimizer(void *context) { return adamod_step(context); }

static int longer_first(const void *a, const void *b) {
    const double x = ((const bench_kernel *)a)->step.seconds, y = ((const bench_kernel *)b)->step.seconds;
    return x > y ? -1 : x < y;
}

/* Adds a kernel to those of its kind and shape. */
static void add_kernel(bench_train_device *d, const nn_profile_step *s) {
    int i = 0, c = 0;
    while (c < d->n_classes && strcmp(d->classes[c].op, s->op) != 0) c++;
    if (c == d->n_classes) d->classes[d->n_classes++].op = s->op;
    d->classes[c].seconds[s->backward] += s->seconds;
    for (; i < d->n_kernels; i++) {
        const nn_profile_step *k = &d->kernels[i].step;
        if (strcmp(k->op, s->op) == 0 && k->backward == s->backward && strcmp(k->shape, s->shape) == 0) break;
    }
    if (i == d->n_kernels) {
        d->kernels[d->n_kernels++] = (bench_kernel){*s, 1};
    } else {
        d->kernels[i].step.seconds += s->seconds;
        d->kernels[i].calls++;
    }
}

/* The optimizer comes first: kernels run out of order spoil the gradients. */
static adamod_status time_kernels(bench *b) {
    enum { OPTIMIZER_CALLS = 5 };
    bench_train_device *d = &b->result.device;
    nn_plan *plan = b->s.plan;
    adamod_status status = nn_profile_time(plan, step_optimizer, b->s.optimizer, OPTIMIZER_CALLS, &d->optimizer);
    for (int i = 0; !status && i < nn_profile_steps(plan); i++) {
        nn_profile_step step;
        status = nn_profile_run(plan, i, &step);
        add_kernel(d, &step);
    }
    qsort(d->kernels, (size_t)d->n_kernels, sizeof *d->kernels, longer_first);
    return status ? status : nn_profile_peak(b->s.params, &d->peak);
}

static int profile(bench *b) {
    bench_train_device *d = &b->result.device;
    d->classes = calloc((size_t)nn_profile_steps(b->s.plan) + 1, sizeof *d->classes);
    d->kernels = calloc((size_t)nn_profile_steps(b->s.plan) + 1, sizeof *d->kernels);
    if (!d->classes || !d->kernels) return cli_fail(BENCH_TRAIN, "out of memory");
    const adamod_status status = time_kernels(b);
    return status ? cli_library(BENCH_TRAIN, status) : 0;
}

/* ---- the whole ---- */

static void describe(bench *b) {
    const experiment *s = &b->s;
    bench_train_device *d = &b->result.device;
    size_t states;
    adamod_memory(s->optimizer, &states, NULL);
    d->used = (double)(nn_profile_device_bytes(s->plan) + states);
    d->flops = bench_products_flops(s, NULL);
    nn_profile_device_name(s->plan, d->name, sizeof d->name);
}

int bench_train_on_device(bench *b) {
    phase_begin(BENCH_TRAIN, "recording a step and warming up");
    int status = run_steps(b, 0, b->result.n_losses, b->result.losses);
    if (!status) status = choose_burst(b);
    if (status) return status;
    describe(b);
    status = run_rounds(b);
    if (!status) status = ask_memory(b);
    phase_begin(BENCH_TRAIN, "timing each kernel alone");
    return status ? status : profile(b);
}
