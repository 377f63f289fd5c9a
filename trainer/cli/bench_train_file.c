/* The file of `adamod bench train` with model and batches, which PyTorch's side reads. */
#include "cli/bench_train.h"
#include "core/safetensors.h"
#include "core/error.h"

#include <stdlib.h>
#include <string.h>

enum { NAME = 160 };

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

static void add_batch(contents *c, int index, const bench_batch *b) {
    for (int i = 0; i < b->n_inputs; i++) {
        const nn_profile_input *x = &b->inputs[i];
        int64_t shape[NN_MAX_DIMS];
        memcpy(shape, x->shape.dim, sizeof shape);
        shape[0] = b->rows[i];
        snprintf(c->names[c->n], NAME, "batch/%d/%s", index, x->name);
        add(c, x->type == NN_I32 ? ADAMOD__ST_I32 : ADAMOD__ST_F32, x->shape.ndim, shape, b->data[i]);
    }
}

/* Adds the array that the batch's inputs refer to. Returns false if out of memory. */
static bool add_array(contents *c, int index, const bench_batch *b, const experiment *s, task_array *array) {
    if (!s->task->bench || !s->task->bench->array) return true;
    bench_batch_feed(b, s->plan);
    *array = s->task->bench->array(s, s->plan);
    if (!array->data) return false;
    snprintf(c->names[c->n], NAME, "batch/%d/%s", index, array->name);
    add(c, ADAMOD__ST_F32, array->ndim, array->shape, array->data);
    return true;
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

static int write_contents(contents *c, const char *path, const experiment *s, int batches) {
    enum { TEXTS = 2, MOST = TASK_MOST_SETTINGS + 1 + TEXTS };
    task_setting settings[TASK_MOST_SETTINGS + 1];
    int n = s->task->bench && s->task->bench->settings ? s->task->bench->settings(s, settings) : 0;
    settings[n++] = (task_setting){"batches", batches};
    const char *const texts[TEXTS][2] = {{"device", nn_params_device(s->params)},
                                         {"precision", experiment_precision(s)}};
    char values[MOST][64];
    adamod__st_pair metadata[MOST];
    for (int i = 0; i < n; i++) {
        snprintf(values[i], sizeof values[i], "%.17g", settings[i].value); /* whole numbers stay whole */
        metadata[i] = (adamod__st_pair){settings[i].key, values[i]};
    }
    for (int i = 0; i < TEXTS; i++) {
        snprintf(values[n + i], sizeof *values, "\"%s\"", texts[i][1]);
        metadata[n + i] = (adamod__st_pair){texts[i][0], values[n + i]};
    }
    return adamod__st_write(path, metadata, (size_t)n + TEXTS, c->tensors, c->n) ? -1 : 0;
}

int bench_train_write(const char *path, const experiment *s, const bench_batch *batches, int n) {
    const size_t most = 2 * (size_t)s->params->n + (size_t)n * ((size_t)batches[0].n_inputs + 1);
    contents c = {calloc(most, sizeof *c.tensors), calloc(most, sizeof *c.names), 0};
    task_array *arrays = calloc((size_t)n + 1, sizeof *arrays);
    bool memory = c.tensors && c.names && arrays;
    if (memory) add_parameters(&c, s->params);
    for (int i = 0; memory && i < n; i++) {
        add_batch(&c, i, &batches[i]);
        memory = add_array(&c, i, &batches[i], s, &arrays[i]);
    }
    const int status =
        memory ? write_contents(&c, path, s, n) : adamod__fail(ADAMOD_ERROR_MEMORY, "%s: out of memory", path);
    for (int i = 0; arrays && i < n; i++) free(arrays[i].data);
    free(arrays);
    free(c.tensors);
    free(c.names);
    return status;
}
