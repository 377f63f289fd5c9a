/* language_bench.c - text for `adamod bench train`: the paper's LSTM on a generated language. */
#include "models/lstm.h"
#include "tasks/language.h"
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
    {0},
};

static int settings(const experiment *e, task_setting *out) {
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

static void describe(const experiment *e, char *out, size_t size) {
    const lstm_settings *s = (const void *)e->recipe.model_settings;
    snprintf(out, size, "%d layers, embedding %d, hidden %d", s->model.layers, s->model.embedding, s->model.hidden);
}

const task_bench language_bench = {
    .peer = "language", .shapes = shapes, .speedup = 1.5, .settings = settings, .describe = describe};
