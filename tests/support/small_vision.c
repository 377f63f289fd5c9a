#include "small_vision.h"
#include "support/random.h"
#include "core/safetensors.h"
#include "fake_device.h"
#include "core/error.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

resnet_settings small_resnet(resnet_norm norm) {
    resnet_settings s;
    memset(&s, 0, sizeof s);
    key_defaults(&resnet_keys, &s);
    strcpy(s.model.blocks, "1,2");
    strcpy(s.model.widths, "16,32");
    s.model.norm = norm;
    return s;
}

densenet_settings small_densenet(void) {
    densenet_settings s;
    memset(&s, 0, sizeof s);
    key_defaults(&densenet_keys, &s);
    strcpy(s.model.blocks, "2,3");
    s.model.growth = 8;
    s.model.stem = 16;
    return s;
}

static void check(adamod_status status) {
    if (!status) return;
    printf("small_vision: %s\n", adamod_last_error());
    exit(1);
}

static int room = SMALL_IMAGES;

void small_vision_take(int images) { room = images; }

static small_vision build(const resnet_settings *r, const densenet_settings *d, int64_t side) {
    small_vision s = {.params = nn_params_create(), .side = side};
    s.graph = nn_graph_create(s.params);
    s.rows = nn_symbol(s.graph, "images", room);
    const nn_value x = nn_input_images(s.graph, "images", NN_F32, s.rows, side, side, 3);
    const nn_value targets = nn_input(s.graph, "targets", NN_I32, s.rows, 0);
    nn_pad(s.graph, targets, -1);
    const nn_value logits =
        r ? resnet_build(s.graph, r, x, SMALL_CLASSES) : densenet_build(s.graph, d, x, SMALL_CLASSES);
    s.loss = nn_cross_entropy(s.graph, logits, targets, 0);
    nn_output(s.graph, "loss", s.loss);
    check(nn_params_allocate(s.params, 3));
    return s;
}

/* Weights that begin at 0 would hide what is behind them. Those of a deep model stay as they are made to be. */
static void stir(nn_params *p) {
    if (nn_params_total(p) > 1000000) return;
    for (int64_t i = 0; i < p->count; i++) p->data[i] += 0.05f * (float)nn_normal(8, (uint64_t)i);
}

static void plan(small_vision *s, const char *backend, int rows, bool synced) {
    check(nn_plan_create(
        &s->plan, s->graph,
        &(nn_plan_options){.backend = backend, .loss = s->loss, .pool = s->pool, .training = true, .synced = synced}));
    float *x = nn_plan_data(s->plan, "images");
    int32_t *targets = nn_plan_data(s->plan, "targets");
    for (int64_t i = 0; i < rows * s->side * s->side * 3; i++) x[i] = (float)nn_normal(5, (uint64_t)i);
    for (int i = 0; i < rows; i++) targets[i] = 3 * i % SMALL_CLASSES;
    check(nn_plan_set_rows(s->plan, s->rows, rows));
}

small_vision small_vision_make(const resnet_settings *r, const densenet_settings *d, int64_t side, const char *backend,
                               int threads) {
    small_vision s = build(r, d, side);
    stir(s.params);
    check(adamod_pool_create(&s.pool, threads));
    plan(&s, backend, room - 1, false);
    return s;
}

small_vision small_vision_make_on(const resnet_settings *r, const densenet_settings *d, int64_t side,
                                  const char *device, nn_precision precision) {
    small_vision s = build(r, d, side);
    stir(s.params);
    check(nn_params_to_device(s.params, device, precision));
    plan(&s, NULL, room - 1, false);
    return s;
}

small_vision small_vision_make_with(const densenet_settings *d, const nn_backend *backend) {
    small_vision s = build(NULL, d, SMALL_SIDE);
    stir(s.params);
    check(fake_device_take(s.params, backend, NN_FULL));
    plan(&s, NULL, room, d->model.sync_norm);
    return s;
}

void small_vision_free(small_vision *s) {
    nn_plan_free(s->plan);
    nn_graph_free(s->graph);
    nn_params_free(s->params);
    adamod_pool_free(s->pool);
}

float small_vision_loss(small_vision *s) {
    nn_plan_forward(s->plan);
    nn_plan_backward(s->plan, false);
    check(nn_plan_wait(s->plan));
    check(nn_params_fetch_grad(s->params));
    return *(const float *)nn_plan_data(s->plan, "loss");
}

/* ---- for PyTorch ---- */

enum { STEPS = 10, MOST = 4096, NAME = 160, SETTINGS = 16 };

typedef struct contents {
    adamod__st_tensor *tensors;
    char (*names)[NAME];
    size_t n;
} contents;

/* A copy: what is dumped changes later. */
static void add(contents *c, const char *kind, const char *name, adamod__st_dtype type, int ndim, const int64_t *shape,
                const void *data) {
    adamod__st_tensor *t = &c->tensors[c->n];
    size_t bytes = 4;
    snprintf(c->names[c->n], NAME, "%s%s", kind, name);
    *t = (adamod__st_tensor){.name = c->names[c->n], .dtype = type, .ndim = ndim};
    for (int d = 0; d < ndim; d++) bytes *= (size_t)(t->shape[d] = shape[d]);
    void *copy = malloc(bytes);
    if (!copy || ++c->n == MOST) abort();
    t->data = memcpy(copy, data, bytes);
}

static void add_all(contents *c, const char *kind, const nn_param *list, int n, const float *data) {
    for (int i = 0; i < n; i++)
        add(c, kind, list[i].name, ADAMOD__ST_F32, list[i].ndim, list[i].shape, data + list[i].offset);
}

/* x -= the gradient / 1000. */
static void descend(small_vision *s) {
    for (int64_t i = 0; i < s->params->count; i++) s->params->data[i] -= 1e-3f * s->params->grad[i];
    check(nn_params_store(s->params));
}

static void train(small_vision *s, contents *c) {
    const nn_params *p = s->params;
    float losses[STEPS];
    for (int k = 0; k < STEPS; k++) {
        losses[k] = small_vision_loss(s);
        check(nn_params_fetch(p)); /* states, which a store would take back */
        if (k == 0) add_all(c, "gradient/", p->list, p->n, p->grad);
        descend(s);
    }
    add_all(c, "after/", p->list, p->n, p->data);
    add_all(c, "after/", p->states, p->n_states, p->state_data);
    add(c, "", "losses", ADAMOD__ST_F32, 1, &(int64_t){STEPS}, losses);
}

void small_vision_dump(small_vision *s, const key_table *keys, const void *settings, const char *path) {
    contents c = {calloc(MOST, sizeof *c.tensors), calloc(MOST, sizeof *c.names), 0};
    adamod__st_pair metadata[SETTINGS];
    char texts[SETTINGS][80], values[SETTINGS][32];
    const nn_params *p = s->params;
    if (!c.tensors || !c.names) abort();
    for (int i = 0; i < keys->n; i++) {
        snprintf(texts[i], sizeof texts[i], "\"%s\"", key_text(&keys->keys[i], settings, values[i]));
        metadata[i] = (adamod__st_pair){keys->keys[i].path, texts[i]};
    }
    const int64_t shape[] = {SMALL_ROWS, s->side, s->side, 3};
    add(&c, "", "images", ADAMOD__ST_F32, 4, shape, nn_plan_data(s->plan, "images"));
    add(&c, "", "targets", ADAMOD__ST_I32, 1, shape, nn_plan_data(s->plan, "targets"));
    add_all(&c, "weight/", p->list, p->n, p->data);
    add_all(&c, "weight/", p->states, p->n_states, p->state_data);
    train(s, &c);
    if (adamod__st_write(path, metadata, (size_t)keys->n, c.tensors, c.n)) {
        printf("small_vision: %s\n", adamod__last_message());
        exit(1);
    }
    for (size_t i = 0; i < c.n; i++) free((void *)(uintptr_t)c.tensors[i].data);
    free(c.tensors);
    free(c.names);
}
