/* translation_bench.c - translation for `adamod bench train`: three Transformers, and text of random words for them. */
#include "tasks/translation.h"
#include "core/error.h"
#include "train/task_bench.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

/* With the end mark a sentence has 32 tokens. */
enum { WORDS = 31 };

#define RECIPE(layout, tokens, sizes, p)                                                                               \
    "name: " layout "\n"                                                                                               \
    "data: {task: bitext, tokens: words, joint: false, sentences: 0, max_tokens: " tokens ", max_length: 31}\n"        \
    "model: {kind: transformer, layers: 6, " sizes ", share_all: false, tie_output: true, dropout: " p                 \
    ", attention_dropout: " p ", smoothing: 0.1}\n"                                                                    \
    "optimizer: {rule: adamod, lr: 1e-4}\n"

/* The shapes of docs/performance.md. */
static const task_shape shapes[] = {
    {"small", RECIPE("transformer-small", "4000", "d: 512, ffn: 1024, heads: 4", "0.3"), 10000, 125, 3.0e-3, 2.5},
    {"base", RECIPE("transformer-base", "3584", "d: 512, ffn: 2048, heads: 8", "0.1"), 37000, 112, 4.5e-3, 0},
    {"big", RECIPE("transformer-big", "3584", "d: 1024, ffn: 4096, heads: 16", "0.3"), 37000, 112, 11e-3, 0},
    {0},
};

/* ---- text ---- */

/* Steps of a prime that does not divide the number of words reach all words equally often. */
static int write_side(const task_shape *s, int batches, const char *path, int64_t prime) {
    const int64_t words = s->vocabulary - VOCAB_SPECIALS;
    const int64_t needed = words / ((int64_t)s->samples * WORDS) + 1;
    const int64_t n = WORDS * s->samples * (needed > batches ? needed : batches);
    FILE *file = fopen(path, "w");
    if (!file) return adamod__fail(ADAMOD_ERROR_IO, "%s: cannot write: %s", path, strerror(errno));
    for (int64_t i = 0; i < n; i++) {
        fprintf(file, "w%lld%c", (long long)(i * prime % words), i % WORDS == WORDS - 1 ? '\n' : ' ');
    }
    const bool failed = ferror(file);
    if (fclose(file) || failed) return adamod__fail(ADAMOD_ERROR_IO, "%s: cannot write: %s", path, strerror(errno));
    return 0;
}

static int name_file(recipe *r, const char *key, const char *path) {
    char set[RECIPE_PATH + 64];
    snprintf(set, sizeof set, "data.%s=%s", key, path);
    return recipe_set(r, set);
}

static int make(const task_shape *shape, int batches, const char *folder, recipe *r) {
    static const struct {
        const char *side, *valid;
        int64_t prime;
    } sides[2] = {{"source", "valid_source", 7919}, {"target", "valid_target", 6151}};
    for (int i = 0; i < 2; i++) {
        char path[RECIPE_PATH];
        snprintf(path, sizeof path, "%s/%s", folder, sides[i].side);
        if (write_side(shape, batches, path, sides[i].prime)) return -1;
        if (name_file(r, sides[i].side, path)) return -1;
        if (name_file(r, sides[i].valid, path)) return -1;
    }
    return 0;
}

/* ---- the model ---- */

static int settings(const experiment *e, task_setting *out) {
    const transformer_config *m = &translation_of(e)->config;
    const task_setting all[] = {{"layers", m->encoder_layers}, {"d", m->d},
                                {"heads", m->heads},           {"pre_norm", m->pre_norm},
                                {"dropout", m->dropout},       {"attention_dropout", m->attention_dropout},
                                {"smoothing", m->smoothing}};
    memcpy(out, all, sizeof all);
    return sizeof all / sizeof *all;
}

static void describe(const experiment *e, char *out, size_t size) {
    const transformer_config *m = &translation_of(e)->config;
    snprintf(out, size, "%d layers, d %d", m->encoder_layers, m->d);
}

const task_bench translation_bench = {.peer = "transformer",
                                      .shapes = shapes,
                                      .share = 0.6,
                                      .speedup = 1.5,
                                      .make = make,
                                      .settings = settings,
                                      .describe = describe};
