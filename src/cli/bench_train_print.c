/* What `adamod bench train` found, as text and as JSON.
 *
 * SPDX-License-Identifier: MIT
 */
#include "bench_train.h"
#include "backend/cpu/gemm.h"
#include "json.h"

#include <math.h>

static double share_of_library(const bench_train_result *r) { return r->products.median / r->step.median; }
static double padding(const bench_train_result *r) { return 1 - r->rows / r->peer.rows; }
static double difference(const bench_train_result *r) { return fabs(r->check - r->peer.loss) / fabs(r->check); }

/* ---- text ---- */

static void print_setup(const bench_train_result *r) {
    const transformer_config *c = &r->s->config;
    printf("adamod %s: %s, %lld parameters (%d layers, d %d), rule %s\n", adamod_version_string(), r->recipe,
           (long long)nn_params_total(r->s->params), c->encoder_layers, c->d, r->s->recipe.optimizer.rule);
    printf("a step: %.0f sentences, %.0f source and %.0f target tokens; %d thread%s, products by %s\n", r->sentences,
           r->source, r->target, r->threads, r->threads > 1 ? "s" : "", nn_gemm_library());
    if (!r->peer.process) {
        printf("torch is not measured: %s\n", r->no_torch);
        return;
    }
    printf("torch %s (%s): %s attention, %s AdamW, %.0f %% of its rows are padding\n", r->peer.version,
           bench_train_peer_python(&r->peer), r->peer.attention, r->peer.optimizer, 100 * padding(r));
    const char *settings = bench_train_peer_settings(&r->peer);
    if (*settings) printf("torch is faster with %s, and has it\n", settings);
    printf("loss of the first batch without dropout: %.6f here, %.6f in torch, relative difference %.1e\n", r->check,
           r->peer.loss, difference(r));
}

static void print_contestant(const bench_train_result *r, const char *name, const bench_spread *s, double bytes) {
    printf("%-12s %9.2f  %7.2f -%8.2f %12.0f %12.0f %10.1f\n", name, 1e3 * s->median, 1e3 * s->low, 1e3 * s->high,
           r->target / s->median, (r->source + r->target) / s->median, 1e-6 * bytes);
}

static void print_table(const bench_train_result *r) {
    printf("\n%-12s %9s  %17s %12s %12s %10s\n", "", "ms/step", "quartiles", "target tok/s", "all tok/s", "memory MB");
    print_contestant(r, "adamod", &r->step, r->peak - r->base);
    if (r->peer.process) print_contestant(r, "torch", &r->peer_step, r->peer.peak - r->peer.base);
    printf("\nforward %.2f ms, backward %.2f ms, optimizer %.2f ms (%.1f %% of a step)\n", 1e3 * r->forward.median,
           1e3 * r->backward.median, 1e3 * r->optimizer.median, 100 * r->optimizer.median / r->step.median);
    printf("matrix products: %.3f GFLOP a step, %.1f GFLOP/s; alone %.1f GFLOP/s in %.2f ms (%.2f - %.2f)\n",
           1e-9 * r->flops, 1e-9 * r->flops / r->step.median, 1e-9 * r->flops / r->products.median,
           1e3 * r->products.median, 1e3 * r->products.low, 1e3 * r->products.high);
    printf("by plan: values %.1f MB (%.1f without reuse), parameters and gradients %.1f MB, states %.1f MB\n",
           1e-6 * (double)r->memory.values, 1e-6 * (double)r->memory.without_reuse, 1e-6 * (double)r->memory.params,
           1e-6 * (double)r->states);
    printf("memory is the peak resident set less that %s; %d steps each\n",
           r->peer.process ? "of the program at its start, or of Python once torch is imported"
                           : "of the program at its start",
           r->steps);
}

static void print_goal(const char *goal, const char *bound, bool met, double found) {
    printf("%-6s  %s: %s, found %.2f\n", met ? "met" : "MISSED", goal, bound, found);
}

void bench_train_print(const bench_train_result *r) {
    print_setup(r);
    print_table(r);
    const double share = share_of_library(r);
    printf("\n");
    print_goal("share of the matrix library's own speed", "at least 0.6", share >= 0.6, share);
    if (!r->peer.process) return;
    const double faster = r->peer_step.median / r->step.median;
    const double memory = (r->peak - r->base) / (r->peer.peak - r->peer.base);
    print_goal("speed over torch", "at least 1.5", faster >= 1.5, faster);
    print_goal("memory over torch's", "below 1", memory < 1, memory);
}

/* ---- JSON ---- */

static void add(json *j, const char *key, double x) {
    json_key(j, key);
    json_number(j, x);
}

static void add_text(json *j, const char *key, const char *text) {
    json_key(j, key);
    json_string(j, text);
}

static void add_milliseconds(json *j, const char *key, const bench_spread *s) {
    json_key(j, key);
    json_open(j, '{');
    add(j, "median", 1e3 * s->median);
    add(j, "low", 1e3 * s->low);
    add(j, "high", 1e3 * s->high);
    json_close(j, '}');
}

static void add_rates(json *j, const bench_train_result *r, const bench_spread *s, double base, double peak) {
    add_milliseconds(j, "step_ms", s);
    add(j, "target_tokens_per_second", r->target / s->median);
    add(j, "tokens_per_second", (r->source + r->target) / s->median);
    add(j, "resident_base", base);
    add(j, "resident_peak", peak);
}

static void add_setup(json *j, const bench_train_result *r) {
    add_text(j, "version", adamod_version_string());
    add_text(j, "recipe", r->recipe);
    add_text(j, "rule", r->s->recipe.optimizer.rule);
    add_text(j, "library", nn_gemm_library());
    add(j, "parameters", (double)nn_params_total(r->s->params));
    add(j, "threads", r->threads);
    add(j, "steps", r->steps);
    add(j, "sentences", r->sentences);
    add(j, "source_tokens", r->source);
    add(j, "target_tokens", r->target);
    add(j, "check_loss", r->check);
    json_key(j, "losses");
    json_open(j, '[');
    for (int i = 0; i < BENCH_BATCHES; i++) json_number(j, r->losses[i]);
    json_close(j, ']');
}

static void add_ours(json *j, const bench_train_result *r) {
    add_rates(j, r, &r->step, r->base, r->peak);
    add_milliseconds(j, "forward_ms", &r->forward);
    add_milliseconds(j, "backward_ms", &r->backward);
    add_milliseconds(j, "optimizer_ms", &r->optimizer);
    add_milliseconds(j, "products_ms", &r->products);
    add(j, "optimizer_share", r->optimizer.median / r->step.median);
    add(j, "flops", r->flops);
    add(j, "gflops", 1e-9 * r->flops / r->step.median);
    add(j, "library_gflops", 1e-9 * r->flops / r->products.median);
    add(j, "library_share", share_of_library(r));
    add(j, "value_bytes", (double)r->memory.values);
    add(j, "value_bytes_without_reuse", (double)r->memory.without_reuse);
    add(j, "parameter_bytes", (double)r->memory.params);
    add(j, "state_bytes", (double)r->states);
}

static void add_torch(json *j, const bench_train_result *r) {
    json_key(j, "torch");
    if (!r->peer.process) {
        json_string(j, NULL);
        add_text(j, "no_torch", r->no_torch);
        return;
    }
    json_open(j, '{');
    add_text(j, "version", r->peer.version);
    add_text(j, "attention", r->peer.attention);
    add_text(j, "optimizer", r->peer.optimizer);
    add_text(j, "environment", bench_train_peer_settings(&r->peer));
    add(j, "padding", padding(r));
    add(j, "check_loss", r->peer.loss);
    add(j, "relative_difference", difference(r));
    add_rates(j, r, &r->peer_step, r->peer.base, r->peer.peak);
    add(j, "speedup", r->peer_step.median / r->step.median);
    json_close(j, '}');
}

int bench_train_print_json(const bench_train_result *r, const char *path, char *message, size_t size) {
    json j = {0};
    json_open(&j, '{');
    add_setup(&j, r);
    add_ours(&j, r);
    add_torch(&j, r);
    json_close(&j, '}');
    json_end_line(&j);
    const int status = j.failed ? text_fail(message, size, "%s: no memory to write it", path)
                                : text_write(path, (text_slice){j.text, j.n}, message, size);
    json_free(&j);
    return status;
}
