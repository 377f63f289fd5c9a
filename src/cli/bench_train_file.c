/* Model and batches of `adamod bench train` as a file that torch_transformer.py reads.
 *
 * SPDX-License-Identifier: MIT
 */
#include "cli/bench_train.h"
#include "base/safetensors.h"

#include <stdlib.h>
#include <string.h>

enum { ARRAYS = 7, SETTINGS = 8, TEXTS = 2, NAME = 160 };

const char *bench_train_precision(const experiment *s) {
    if (!s->params->on_device) return "full";
    return strcmp(s->recipe.train.precision, "auto") == 0 ? "mixed" : s->recipe.train.precision;
}

typedef struct contents {
    adamod__st_tensor *tensors;
    char (*names)[NAME];
    size_t n;
} contents;

static void add(contents *c, adamod__st_dtype type, int ndim, const int64_t *shape, const void *data) {
    adamod__st_tensor *t = &c->tensors[c->n];
    *t = (adamod__st_tensor){.name = c->names[c->n], .dtype = type, .ndim = ndim, .data = data};
    for (int d = 0; d < ndim; d++) t->shape[d] = shape[d];
    c->n++;
}

static void add_batch(contents *c, int index, const batch *b) {
    const struct {
        const char *name;
        int64_t n;
        const void *data;
        int ndim;
    } arrays[ARRAYS] = {
        {"src_ids", b->n_src, b->src_ids, 1},   {"src_positions", b->n_src, b->src_positions, 1},
        {"src_ranges", b->n, b->src_ranges, 2}, {"tgt_in", b->n_tgt, b->tgt_in, 1},
        {"tgt_out", b->n_tgt, b->tgt_out, 1},   {"tgt_positions", b->n_tgt, b->tgt_positions, 1},
        {"tgt_ranges", b->n, b->tgt_ranges, 2},
    };
    for (int i = 0; i < ARRAYS; i++) {
        snprintf(c->names[c->n], NAME, "batch/%d/%s", index, arrays[i].name);
        add(c, ADAMOD__ST_I32, arrays[i].ndim, (int64_t[]){arrays[i].n, 2}, arrays[i].data);
    }
}

static void add_parameters(contents *c, const nn_params *params) {
    for (int i = 0; i < params->n; i++) {
        const nn_param *p = &params->list[i];
        snprintf(c->names[c->n], NAME, "%s", p->name);
        add(c, ADAMOD__ST_F32, p->ndim, p->shape, params->data + p->offset);
        snprintf(c->names[c->n], NAME, "gradient/%s", p->name);
        add(c, ADAMOD__ST_F32, p->ndim, p->shape, params->grad + p->offset);
    }
}

static int write_contents(contents *c, const char *path, const experiment *s, int batches, char *message, size_t size) {
    const transformer_config *m = &translation_of(s)->config;
    const struct {
        const char *key;
        double value;
    } settings[SETTINGS] = {{"layers", m->encoder_layers}, {"d", m->d},
                            {"heads", m->heads},           {"pre_norm", m->pre_norm},
                            {"dropout", m->dropout},       {"attention_dropout", m->attention_dropout},
                            {"smoothing", m->smoothing},   {"batches", batches}};
    const char *const texts[TEXTS][2] = {{"device", nn_params_device(s->params)},
                                         {"precision", bench_train_precision(s)}};
    char values[SETTINGS + TEXTS][64];
    adamod__st_pair metadata[SETTINGS + TEXTS];
    for (int i = 0; i < SETTINGS; i++) {
        snprintf(values[i], sizeof values[i], "%.17g", settings[i].value); /* whole numbers stay whole */
        metadata[i] = (adamod__st_pair){settings[i].key, values[i]};
    }
    for (int i = 0; i < TEXTS; i++) {
        snprintf(values[SETTINGS + i], sizeof *values, "\"%s\"", texts[i][1]);
        metadata[SETTINGS + i] = (adamod__st_pair){texts[i][0], values[SETTINGS + i]};
    }
    return adamod__st_write(path, metadata, SETTINGS + TEXTS, c->tensors, c->n, message, size) ? -1 : 0;
}

int bench_train_write(const char *path, const experiment *s, const batch *batches, int n, char *message, size_t size) {
    const size_t most = 2 * (size_t)s->params->n + (size_t)n * ARRAYS;
    contents c = {calloc(most, sizeof *c.tensors), calloc(most, sizeof *c.names), 0};
    int status = -1;
    if (c.tensors && c.names) {
        add_parameters(&c, s->params);
        for (int i = 0; i < n; i++) add_batch(&c, i, &batches[i]);
        status = write_contents(&c, path, s, n, message, size);
    } else {
        snprintf(message, size, "%s: out of memory", path);
    }
    free(c.tensors);
    free(c.names);
    return status;
}
