/* The results of `adamod bench train` as text. */
#include "cli/bench_train.h"
#include "cli/bench.h"

#include <math.h>
#include <string.h>

static double share_of_library(const bench_train_result *r) { return r->products.median / r->step.median; }
bool bench_train_has_source(const bench_train_result *r) { return r->items != r->targets; }

double bench_train_padding(const bench_train_result *r) { return r->peer.rows > 0 ? 1 - r->rows / r->peer.rows : 0; }

double bench_train_difference(const bench_train_result *r, const bench_train_peer *p) {
    return fabs(r->check - p->loss) / fabs(r->check);
}

/* ---- either ---- */

static void print_place(const bench_train_result *r) {
    if (*r->device.name) {
        printf("%s, %s precision\n", r->device.name, experiment_precision(r->s));
    } else {
        char mixed[64] = "";
        if (experiment_bf16(r->s)) snprintf(mixed, sizeof mixed, ", mixed precision (%s)", experiment_bf16(r->s));
        printf("%d thread%s, products by %s%s\n", r->threads, r->threads > 1 ? "s" : "", nn_profile_library(), mixed);
    }
}

/* The unit of throughput: "tok", "images". */
static const char *unit_of(const bench_train_result *r) {
    const char *items = r->s->task->items;
    return strcmp(items, "tokens") == 0 ? "tok" : items;
}

static void print_batch(const bench_train_result *r) {
    const task *t = r->s->task;
    printf("a step: %.0f %s", r->samples, t->samples);
    if (bench_train_has_source(r))
        printf(", %.0f source and %.0f target %s", r->items - r->targets, r->targets, t->items);
    else if (strcmp(t->items, t->samples) != 0) printf(", %.0f %s", r->items, t->items);
    printf("; ");
}

static void print_torch(const bench_train_result *r) {
    const bench_train_peer *p = &r->peer;
    printf("torch %s (%s): ", p->version, bench_python_name(p->process));
    if (*p->attention) printf("%s attention, ", p->attention);
    if (*p->layout) printf("%s, ", p->layout);
    printf("%s AdamW", p->optimizer);
    if (*p->how && !r->s->params->on_device) printf(", %s", p->how);
    if (p->rows > 0) printf(", %.0f %% of its rows are padding", 100 * bench_train_padding(r));
    printf("\n");
}

static void print_llmc(const bench_train_result *r) {
    const bench_train_peer *p = &r->llmc;
    if (*r->no_llmc) printf("llm.c is not measured: %s\n", r->no_llmc);
    if (!p->process) return;
    printf("llm.c%s%s: %s; loss of the first batch %.6f, relative difference %.1e\n", *p->version ? " " : "",
           p->version, p->how, p->loss, bench_train_difference(r, p));
}

static void print_setup(const bench_train_result *r) {
    const task_bench *of = r->s->task->bench;
    char model[128] = "";
    if (of && of->describe) of->describe(r->s, model, sizeof model);
    printf("adamod %s: %s, %lld parameters%s%s%s, rule %s\n", adamod_version_string(), r->recipe,
           (long long)nn_params_total(r->s->params), *model ? " (" : "", model, *model ? ")" : "",
           r->s->recipe.optimizer.rule);
    print_batch(r);
    print_place(r);
    if (r->s->recipe.train.accumulate > 1)
        printf("train.accumulate is %d; here every batch is an update\n", (int)r->s->recipe.train.accumulate);
    if (!r->peer.process) {
        printf("torch is not measured: %s\n", r->no_torch);
        print_llmc(r);
        return;
    }
    print_torch(r);
    const char *settings = bench_python_settings(r->peer.process);
    if (*settings) printf("torch is faster with %s, and has it\n", settings);
    printf("loss of the first batch, nothing random: %.6f here, %.6f in torch, relative difference %.1e\n", r->check,
           r->peer.loss, bench_train_difference(r, &r->peer));
    print_llmc(r);
}

static void print_contestant(const bench_train_result *r, const char *name, const bench_spread *s, double bytes) {
    printf("%-12s %9.2f  %7.2f -%8.2f", name, 1e3 * s->median, 1e3 * s->low, 1e3 * s->high);
    if (bench_train_has_source(r)) printf(" %12.0f", r->targets / s->median);
    printf(" %12.0f %10.1f\n", r->items / s->median, 1e-6 * bytes);
}

static void print_llmc_row(const bench_train_result *r) {
    if (!r->llmc.process) return;
    print_contestant(r, "llm.c", &r->llmc_step, r->llmc.peak);
    printf("a step of llm.c takes %.2f times as long as one of adamod\n", r->llmc_step.median / r->step.median);
}

static void print_head(const bench_train_result *r) {
    const char *unit = unit_of(r);
    printf("\n%-12s %9s  %17s", "", "ms/step", "quartiles");
    if (bench_train_has_source(r)) printf(" target %s/s    all %s/s", unit, unit);
    else printf(" %10s/s", unit);
    printf(" %10s\n", "memory MB");
}

typedef enum side { AT_LEAST, AT_MOST, BELOW } side;

static void print_goal(const char *goal, side of, double limit, double found) {
    static const char *const words[] = {"at least", "at most", "below"};
    const bool met = of == AT_LEAST ? found >= limit : of == AT_MOST ? found <= limit : found < limit;
    char number[32];
    printf("%-6s  %s: %s %.*f, found %s\n", met ? "met" : "MISSED", goal, words[of], of == BELOW ? 0 : 1, limit,
           metric_beside(found, limit, number));
}

/* A ratio needs the version it is relative to. */
static void print_torch_goal(const char *goal, const bench_train_peer *p, side of, double limit, double found) {
    char name[96], whole[192];
    snprintf(whole, sizeof whole, "%s %s", goal, bench_torch_name(p->version, name));
    print_goal(whole, of, limit, found);
}

/* ---- on the host ---- */

static void print_products(const bench_train_result *r) {
    printf("matrix products: %.3f GFLOP a step, %.1f GFLOP/s; alone %.1f GFLOP/s in %.2f ms (%.2f - %.2f), "
           "%.2f of a step\n",
           1e-9 * r->flops, 1e-9 * r->flops / r->step.median, 1e-9 * r->flops / r->products.median,
           1e3 * r->products.median, 1e3 * r->products.low, 1e3 * r->products.high, share_of_library(r));
    const double convolutions = r->peer.convolutions;
    if (convolutions > 0)
        printf("torch's convolutions alone: %.2f ms, %.2f of a step\n", 1e3 * convolutions,
               convolutions / r->step.median);
}

static void print_table(const bench_train_result *r) {
    print_head(r);
    print_contestant(r, "adamod", &r->step, r->peak - r->base);
    if (r->peer.process) print_contestant(r, "torch", &r->peer_step, r->peer.peak - r->peer.base);
    print_llmc_row(r);
    printf("\nforward %.2f ms, backward %.2f ms, optimizer %.2f ms (%.1f %% of a step)\n", 1e3 * r->forward.median,
           1e3 * r->backward.median, 1e3 * r->optimizer.median, 100 * r->optimizer.median / r->step.median);
    print_products(r);
    printf("by plan: values %.1f MB (%.1f without reuse), parameters and gradients %.1f MB, states %.1f MB\n",
           1e-6 * (double)r->memory.values, 1e-6 * (double)r->memory.without_reuse, 1e-6 * (double)r->memory.params,
           1e-6 * (double)r->states);
    printf("memory is the peak resident set less that %s; %d steps each\n",
           r->peer.process ? "of the program at its start, or of Python once torch is imported"
                           : "of the program at its start",
           r->steps);
}

static void print_here(const bench_train_result *r) {
    print_table(r);
    const task_bench *of = r->s->task->bench;
    const double share = share_of_library(r), goal = of ? of->share : 0;
    if (goal > 0 || r->peer.process) printf("\n");
    if (goal > 0) print_goal("share of the matrix library's own speed", AT_LEAST, goal, share);
    if (!r->peer.process) return;
    const double faster = r->peer_step.median / r->step.median;
    const double memory = (r->peak - r->base) / (r->peer.peak - r->peer.base);
    if (of->speedup > 0) print_torch_goal("speed over", &r->peer, AT_LEAST, of->speedup, faster);
    print_torch_goal("memory over that of", &r->peer, BELOW, 1, memory);
}

/* ---- on a device ---- */

static void print_device_table(const bench_train_result *r) {
    const bench_train_device *d = &r->device;
    if (d->graph.process) printf("torch's graph: %s\n", d->graph.how);
    else if (r->peer.process) printf("torch's graph is not measured: %s\n", r->no_torch);
    print_head(r);
    print_contestant(r, "adamod", &r->step, d->used);
    if (r->peer.process) print_contestant(r, "torch eager", &r->peer_step, r->peer.peak);
    if (d->graph.process) print_contestant(r, "torch graph", &d->graph_step, d->graph.peak);
    print_llmc_row(r);
    printf("\nmatrix products: %.1f GFLOP a step as run, %.1f for the %s of the batches; %.1f TFLOP/s, %.3f of the\n"
           "%.1f TFLOP/s that one product of 8192 x 8192 x 8192 reaches\n",
           1e-9 * d->flops, 1e-9 * r->flops, r->s->task->items, 1e-12 * d->flops / r->step.median,
           d->flops / r->step.median / d->peak, 1e-12 * d->peak);
    printf("memory: values %.1f MB (%.1f without reuse), workspace %.1f MB, parameters and gradients %.1f MB, states "
           "%.1f MB\n",
           1e-6 * (double)r->memory.values, 1e-6 * (double)r->memory.without_reuse, 1e-6 * (double)r->memory.workspace,
           1e-6 * (double)r->memory.params, 1e-6 * (double)r->states);
    printf("bursts of %d steps without a wait, %d steps in all\n", d->burst, r->steps);
    if (r->peer.process)
        printf("torch's memory is the most that its tensors took; it reserved %.1f MB, for the graph %.1f MB\n",
               1e-6 * r->peer.reserved, 1e-6 * d->graph.reserved);
}

static void print_class(const bench_train_result *r, const char *name, double forward, double backward) {
    printf("%-14s %8.3f  %8.3f  %6.1f %%\n", name, 1e3 * forward, 1e3 * backward,
           100 * (forward + backward) / r->step.median);
}

/* The rest is copies in and out and gaps between kernels, less what runs at the same time. */
static void print_classes(const bench_train_result *r) {
    const bench_train_device *d = &r->device;
    double all = d->optimizer;
    printf("\n%-14s %8s  %8s  %8s\n", "ms by kernel", "forward", "backward", "of a step");
    for (int i = 0; i < d->n_classes; i++) {
        const double *x = d->classes[i].seconds;
        all += x[0] + x[1];
        if (x[0] + x[1] > 0) print_class(r, d->classes[i].op, x[0], x[1]);
    }
    printf("%-14s %18.3f  %6.1f %%\n", "optimizer", 1e3 * d->optimizer, 100 * d->optimizer / r->step.median);
    printf("%-14s %18.3f  %6.1f %%\n", "rest", 1e3 * (r->step.median - all), 100 * (1 - all / r->step.median));
    printf("each kernel is timed alone, called many times in a row on the same data\n");
}

static void print_kernels(const bench_train_device *d) {
    printf("\n%9s %6s %9s\n", "us", "calls", "us each");
    for (int i = 0; i < d->n_kernels; i++) {
        const nn_profile_step *s = &d->kernels[i].step;
        printf("%9.1f %6d %9.2f  %s %s %s\n", 1e6 * s->seconds, d->kernels[i].calls,
               1e6 * s->seconds / d->kernels[i].calls, s->op, s->backward ? "backward" : "forward", s->shape);
    }
}

static void print_device_goals(const bench_train_result *r) {
    const task_shape *shape = r->shape;
    const bench_train_device *d = &r->device;
    printf("\n");
    print_goal("milliseconds a step", AT_MOST, 1e3 * shape->seconds, 1e3 * r->step.median);
    if (!d->graph.process) return;
    const double faster = d->graph_step.median / r->step.median, memory = d->used / d->graph.peak;
    if (shape->speedup > 0) print_torch_goal("speed over a graph of", &d->graph, AT_LEAST, shape->speedup, faster);
    print_torch_goal("memory over that of a graph of", &d->graph, BELOW, 1, memory);
}

static void print_there(const bench_train_result *r) {
    print_device_table(r);
    print_classes(r);
    if (r->verbose) print_kernels(&r->device);
    if (r->shape) print_device_goals(r);
}

void bench_train_print(const bench_train_result *r) {
    print_setup(r);
    if (*r->device.name) print_there(r);
    else print_here(r);
}

/* ---- a table of shapes ---- */

void bench_train_print_columns(const bench_train_result *r) {
    printf("adamod %s: ", adamod_version_string());
    print_place(r);
    if (!r->peer.process) printf("torch is not measured: %s\n", r->no_torch);
    else print_torch(r);
    printf("\n");
    printf("%-12s %9s %9s %9s %9s %10s %9s  %s\n", "", "ms/step", "torch ms", "torch/own", "products", "memory MB",
           "torch MB", "goals");
}

static void print_found(bool there, int decimals, double x) {
    if (there) printf(" %9.*f", decimals, x);
    else printf(" %9s", "-");
}

/* "3.0 ms missed, 2.5 times torch met"; "-": there is none, or nothing to compare with. */
static void print_row_goals(double most, double milliseconds, double least, double ratio) {
    if (most > 0) printf("%.4g ms %s", most, milliseconds <= most ? "met" : "missed");
    if (most > 0 && least > 0) printf(", ");
    if (least > 0) printf("%.4g times torch %s", least, ratio >= least ? "met" : "missed");
    printf("%s\n", most > 0 || least > 0 ? "" : "-");
}

void bench_train_print_row(const bench_train_result *r) {
    const bench_train_device *d = &r->device;
    const bool there = *d->name, graph = d->graph.process, torch = graph || r->peer.process;
    const double step = r->step.median, peer = graph ? d->graph_step.median : r->peer_step.median;
    const double alone = there ? d->flops / d->peak : r->products.median;
    const double memory = there ? d->used : r->peak - r->base;
    const double peer_memory = graph ? d->graph.peak : r->peer.peak - r->peer.base;
    const double speedup = there ? r->shape->speedup : r->s->task->bench->speedup;
    printf("%-12s %9.2f", r->shape->name, 1e3 * step);
    print_found(torch, 2, 1e3 * peer);
    print_found(torch, 2, peer / step);
    printf(" %9.2f %10.1f", 1e3 * alone, 1e-6 * memory);
    print_found(torch, 1, 1e-6 * peer_memory);
    printf("  ");
    print_row_goals(there ? 1e3 * r->shape->seconds : 0, 1e3 * step, torch ? speedup : 0, peer / step);
}
