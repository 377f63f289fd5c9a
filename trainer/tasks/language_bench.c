/* language_bench.c - text for `adamod bench train`: the paper's LSTM, and GPT-2, on a generated language. */
#include "models/lstm.h"
#include "tasks/language_reader.h"
#include "train/task_bench.h"

#include <stdio.h>

/* Penn Treebank's vocabulary, and batches of 70 x 20 tokens, all of one length. */
static const task_shape shapes[] = {
    {"lstm",
     "name: lstm\n"
     "data: {task: language, set: generated, words: 10000, branches: 32, order: 1, train: 14020, valid: 20, test: 0,\n"
     "       batch: 20, length: 70, halved: 0, spread: 0, shortest: 5}\n"
     "model: {kind: lstm}\n"
     "optimizer: {rule: adamod, lr: 1e-3}\n",
     10000, 1400, 3.0e-3, 0},
    /* GPT-2 of 124 million parameters in windows of 1024 tokens. */
    {"gpt2",
     "name: gpt2\n"
     "data: {task: language, set: generated, words: 50257, branches: 32, order: 1, train: 327681, valid: 1025, test: 0,\n"
     "       batch: 32, length: 1024}\n"
     "model: {kind: gpt, size: d12}\n"
     "optimizer: {rule: adamod, lr: 1e-4, beta2: 0.95}\n",
     50257, 32768, 52e-3, 1.2},
    {0},
};

static int lstm_settings_of(const experiment *e, task_setting *out) {
    const lstm_settings *s = (const void *)e->recipe.model_settings;
    const task_setting all[] = {
        {"columns", language_settings_of(&e->recipe)->data.batch},
        {"layers", s->model.layers},
        {"output_dropout", s->model.output_dropout},
        {"layer_dropout", s->model.layer_dropout},
        {"input_dropout", s->model.input_dropout},
        {"word_dropout", s->model.word_dropout},
        {"weight_dropout", s->model.weight_dropout},
        {"activity", s->model.activity},
        {"change", s->model.change},
    };
    enum { N = sizeof all / sizeof *all };
    for (int i = 0; i < N; i++) out[i] = all[i];
    return N;
}

static int gpt_settings_of(const experiment *e, task_setting *out) {
    const gpt_config c = language_gpt(e);
    const task_setting all[] = {
        {"layers", c.layers},
        {"heads", c.heads},
        {"kv_heads", c.kv_heads},
        {"rotary_base", c.positions == GPT_ROTARY ? c.rotary_base : 0},
        {"swiglu", c.activation == GPT_SWIGLU},
        {"dropout", c.dropout},
        {"z_loss", c.z_loss},
    };
    enum { N = sizeof all / sizeof *all };
    for (int i = 0; i < N; i++) out[i] = all[i];
    return N;
}

static bool is_gpt(const experiment *e) { return language_reader_of(&e->recipe)->gpt; }

static int settings(const experiment *e, task_setting *out) {
    return is_gpt(e) ? gpt_settings_of(e, out) : lstm_settings_of(e, out);
}

static void describe(const experiment *e, char *out, size_t size) {
    const lstm_settings *s = (const void *)e->recipe.model_settings;
    if (is_gpt(e)) {
        const gpt_config c = language_gpt(e);
        snprintf(out, size, "%d layers, d %d, %d heads, ffn %d, windows of %d tokens", c.layers, c.d, c.heads, c.ffn,
                 language_settings_of(&e->recipe)->data.length);
    } else {
        snprintf(out, size, "%d layers, embedding %d, hidden %d", s->model.layers, s->model.embedding, s->model.hidden);
    }
}

const task_bench language_bench = {
    .peer = "language", .shapes = shapes, .speedup = 1.5, .settings = settings, .describe = describe};
