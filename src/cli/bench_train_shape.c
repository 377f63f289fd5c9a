/* Shapes of `adamod bench train` that need no data: the Transformers of the table that PyTorch was measured on, 32 tokens
 * in every sentence, words drawn evenly from the whole vocabulary.
 *
 * SPDX-License-Identifier: MIT
 */
#define _GNU_SOURCE
#include "cli/bench_train.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* The end mark makes them 32. */
enum { WORDS = 31 };

#define RECIPE(layout, tokens, sizes, p)                                                                               \
    "name: " layout "\n"                                                                                               \
    "data: {task: bitext, tokens: words, joint: false, sentences: 0, max_tokens: " tokens ", max_length: 31}\n"        \
    "model: {kind: transformer, layers: 6, " sizes ", share_all: false, tie_output: true, dropout: " p                 \
    ", attention_dropout: " p ", smoothing: 0.1}\n"                                                                    \
    "optimizer: {rule: adamod, lr: 1e-4}\n"

static const bench_train_shape shapes[] = {
    {"small", RECIPE("transformer-small", "4000", "d: 512, ffn: 1024, heads: 4", "0.3"), 10000, 125, 3.0e-3, 2.5},
    {"base", RECIPE("transformer-base", "3584", "d: 512, ffn: 2048, heads: 8", "0.1"), 37000, 112, 4.5e-3, 0},
    {"big", RECIPE("transformer-big", "3584", "d: 1024, ffn: 4096, heads: 16", "0.3"), 37000, 112, 11e-3, 0},
};

const bench_train_shape *bench_train_find_shape(const char *name) {
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        if (strcmp(shapes[i].name, name) == 0) return &shapes[i];
    }
    return NULL;
}

/* ---- text ---- */

static void path_of(char *out, size_t size, const char *folder, const char *side) {
    snprintf(out, size, "%s/%s", folder, side);
}

/* Steps of a prime that does not divide the number of words reach them all, in no order, and each as often as any. */
static int write_side(const bench_train_shape *s, const char *path, int64_t prime, char *message, size_t size) {
    const int64_t words = s->vocabulary - VOCAB_SPECIALS;
    const int64_t batches = words / ((int64_t)s->sentences * WORDS) + 1;
    const int64_t n = WORDS * s->sentences * (batches > BENCH_BATCHES ? batches : BENCH_BATCHES);
    FILE *file = fopen(path, "w");
    if (!file) return text_fail(message, size, "%s: cannot write: %s", path, strerror(errno));
    for (int64_t i = 0; i < n; i++) {
        fprintf(file, "w%lld%c", (long long)(i * prime % words), i % WORDS == WORDS - 1 ? '\n' : ' ');
    }
    const bool failed = ferror(file);
    if (fclose(file) || failed) return text_fail(message, size, "%s: cannot write: %s", path, strerror(errno));
    return 0;
}

static int name_file(recipe *r, const char *key, const char *path, char *message, size_t size) {
    char set[RECIPE_PATH + 64];
    snprintf(set, sizeof set, "data.%s=%s", key, path);
    return recipe_set(r, set, message, size);
}

int bench_train_make_text(const bench_train_shape *shape, recipe *r, char *folder, size_t folder_size, char *message,
                          size_t size) {
    static const struct {
        const char *side, *valid;
        int64_t prime;
    } sides[2] = {{"source", "valid_source", 7919}, {"target", "valid_target", 6151}};
    const char *where = getenv("TMPDIR");
    char path[RECIPE_PATH];
    snprintf(folder, folder_size, "%s/adamod-bench-XXXXXX", where && *where ? where : "/tmp");
    if (!mkdtemp(folder)) {
        const int status = text_fail(message, size, "%s: cannot make a temporary folder: %s", folder, strerror(errno));
        *folder = '\0';
        return status;
    }
    for (int i = 0; i < 2; i++) {
        path_of(path, sizeof path, folder, sides[i].side);
        if (write_side(shape, path, sides[i].prime, message, size)) return -1;
        if (name_file(r, sides[i].side, path, message, size)) return -1;
        if (name_file(r, sides[i].valid, path, message, size)) return -1;
    }
    return 0;
}

void bench_train_drop_text(const char *folder) {
    static const char *const sides[] = {"source", "target"};
    char path[RECIPE_PATH];
    if (!*folder) return;
    for (int i = 0; i < 2; i++) {
        path_of(path, sizeof path, folder, sides[i]);
        unlink(path);
    }
    rmdir(folder);
}
