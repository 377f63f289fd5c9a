/* The results of `adamod bench train` as JSON. */
#include "cli/bench_train.h"
#include "core/error.h"
#include "support/json.h"
#include "support/text.h"

#include <string.h>

static void add_milliseconds(json *j, const char *key, const bench_spread *s) {
    json_pair_open(j, key, '{');
    json_pair_number(j, "median", 1e3 * s->median);
    json_pair_number(j, "low", 1e3 * s->low);
    json_pair_number(j, "high", 1e3 * s->high);
    json_close(j, '}');
}

/* A key around what the task counts: "source_tokens", "images_per_second". */
static void add_of(json *j, const char *before, const char *what, const char *after, double x) {
    char key[96];
    snprintf(key, sizeof key, "%s%s%s", before, what, after);
    json_pair_number(j, key, x);
}

static void add_counts(json *j, const bench_train_result *r) {
    const task *t = r->s->task;
    json_pair_number(j, t->samples, r->samples);
    if (bench_train_has_source(r)) {
        add_of(j, "source_", t->items, "", r->items - r->targets);
        add_of(j, "target_", t->items, "", r->targets);
    } else if (strcmp(t->items, t->samples) != 0) {
        json_pair_number(j, t->items, r->items);
    }
}

static void add_rates(json *j, const bench_train_result *r, const bench_spread *s, double base, double peak) {
    add_milliseconds(j, "step_ms", s);
    if (bench_train_has_source(r)) add_of(j, "target_", r->s->task->items, "_per_second", r->targets / s->median);
    add_of(j, "", r->s->task->items, "_per_second", r->items / s->median);
    if (*r->device.name) {
        json_pair_number(j, "device_bytes", peak);
        return;
    }
    json_pair_number(j, "resident_base", base);
    json_pair_number(j, "resident_peak", peak);
}

static void add_setup(json *j, const bench_train_result *r) {
    json_pair(j, "version", adamod_version_string());
    json_pair(j, "recipe", r->recipe);
    json_pair(j, "rule", r->s->recipe.optimizer.rule);
    json_pair(j, "library", nn_profile_library());
    if (!*r->device.name) json_pair(j, "precision", experiment_precision(r->s));
    if (experiment_bf16(r->s)) json_pair(j, "bf16", experiment_bf16(r->s));
    json_pair_number(j, "parameters", (double)nn_params_total(r->s->params));
    json_pair_number(j, "threads", r->threads);
    json_pair_number(j, "steps", r->steps);
    add_counts(j, r);
    json_pair_number(j, "check_loss", r->check);
    json_pair_open(j, "losses", '[');
    for (int i = 0; i < r->n_losses; i++) json_number(j, r->losses[i]);
    json_close(j, ']');
}

static void add_ours(json *j, const bench_train_result *r) {
    add_rates(j, r, &r->step, r->base, r->peak);
    add_milliseconds(j, "forward_ms", &r->forward);
    add_milliseconds(j, "backward_ms", &r->backward);
    add_milliseconds(j, "optimizer_ms", &r->optimizer);
    add_milliseconds(j, "products_ms", &r->products);
    json_pair_number(j, "optimizer_share", r->optimizer.median / r->step.median);
    json_pair_number(j, "flops", r->flops);
    json_pair_number(j, "gflops", 1e-9 * r->flops / r->step.median);
    json_pair_number(j, "library_gflops", 1e-9 * r->flops / r->products.median);
    json_pair_number(j, "library_share", r->products.median / r->step.median);
}

static void add_memory(json *j, const bench_train_result *r) {
    json_pair_number(j, "value_bytes", (double)r->memory.values);
    json_pair_number(j, "value_bytes_without_reuse", (double)r->memory.without_reuse);
    json_pair_number(j, "parameter_bytes", (double)r->memory.params);
    json_pair_number(j, "state_bytes", (double)r->states);
}

/* The members of one peer, in an object of its own. */
static void add_peer(json *j, const bench_train_result *r, const bench_train_peer *p, const bench_spread *step) {
    json_open(j, '{');
    json_pair(j, "version", p->version);
    json_pair(j, "python", bench_python_name(p->process));
    if (*p->attention) json_pair(j, "attention", p->attention);
    if (*p->layout) json_pair(j, "layout", p->layout);
    json_pair(j, "optimizer", p->optimizer);
    json_pair(j, "environment", bench_python_settings(p->process));
    if (p->rows > 0) json_pair_number(j, "padding", bench_train_padding(r));
    json_pair_number(j, "check_loss", p->loss);
    json_pair_number(j, "relative_difference", bench_train_difference(r, p));
    add_rates(j, r, step, p->base, p->peak);
    json_pair_number(j, "speedup", step->median / r->step.median);
    if (p->convolutions > 0) {
        json_pair_number(j, "convolutions_ms", 1e3 * p->convolutions);
        json_pair_number(j, "convolutions_share", p->convolutions / r->step.median);
    }
    if (*r->device.name) {
        json_pair(j, "how", p->how);
        json_pair_number(j, "reserved_bytes", p->reserved);
    }
    json_close(j, '}');
}

static void add_torch(json *j, const bench_train_result *r) {
    json_key(j, "torch");
    if (r->peer.process) {
        add_peer(j, r, &r->peer, &r->peer_step);
    } else {
        json_string(j, NULL);
        json_pair(j, "no_torch", r->no_torch);
    }
    if (!r->device.graph.process) return;
    json_key(j, "torch_graph");
    add_peer(j, r, &r->device.graph, &r->device.graph_step);
}

/* Nothing where it was not asked for. */
static void add_llmc(json *j, const bench_train_result *r) {
    const bench_train_peer *p = &r->llmc;
    if (*r->no_llmc) json_pair(j, "no_llmc", r->no_llmc);
    if (!p->process) return;
    json_pair_open(j, "llmc", '{');
    json_pair(j, "version", p->version);
    json_pair(j, "how", p->how);
    json_pair_number(j, "check_loss", p->loss);
    json_pair_number(j, "relative_difference", bench_train_difference(r, p));
    add_rates(j, r, &r->llmc_step, p->base, p->peak);
    json_pair_number(j, "speedup", r->llmc_step.median / r->step.median);
    json_close(j, '}');
}

/* ---- on a device ---- */

static const char *const directions[2] = {"forward", "backward"};

static void add_kernels(json *j, const bench_train_device *d) {
    json_pair_open(j, "kernel_ms", '{');
    for (int i = 0; i < d->n_classes; i++) {
        for (int k = 0; k < 2; k++) {
            char key[64];
            snprintf(key, sizeof key, "%s_%s", d->classes[i].op, directions[k]);
            if (d->classes[i].seconds[k] > 0) json_pair_number(j, key, 1e3 * d->classes[i].seconds[k]);
        }
    }
    json_pair_number(j, "optimizer", 1e3 * d->optimizer);
    json_close(j, '}');
}

static void add_shapes(json *j, const bench_train_device *d) {
    json_pair_open(j, "kernels", '[');
    for (int i = 0; i < d->n_kernels; i++) {
        const nn_profile_step *s = &d->kernels[i].step;
        json_open(j, '{');
        json_pair(j, "op", s->op);
        json_pair(j, "direction", directions[s->backward]);
        json_pair(j, "shape", s->shape);
        json_pair_number(j, "calls", d->kernels[i].calls);
        json_pair_number(j, "ms", 1e3 * s->seconds);
        json_close(j, '}');
    }
    json_close(j, ']');
}

static void add_device(json *j, const bench_train_result *r) {
    const bench_train_device *d = &r->device;
    json_pair(j, "device", d->name);
    json_pair(j, "precision", experiment_precision(r->s));
    json_pair_number(j, "burst", d->burst);
    add_rates(j, r, &r->step, 0, d->used);
    json_pair_number(j, "flops", r->flops);
    json_pair_number(j, "flops_run", d->flops);
    json_pair_number(j, "peak_flops", d->peak);
    json_pair_number(j, "peak_share", d->flops / r->step.median / d->peak);
    json_pair_number(j, "workspace_bytes", (double)r->memory.workspace);
    add_kernels(j, d);
    add_shapes(j, d);
}

int bench_train_print_json(const bench_train_result *r, const char *path) {
    json j = {0};
    json_open(&j, '{');
    add_setup(&j, r);
    if (*r->device.name) add_device(&j, r);
    else add_ours(&j, r);
    add_memory(&j, r);
    add_torch(&j, r);
    add_llmc(&j, r);
    json_close(&j, '}');
    json_end_line(&j);
    return json_save(&j, path);
}
