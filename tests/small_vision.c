#include "small_vision.h"
#include "base/random.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

resnet_settings small_resnet(const char *norm) {
    resnet_settings s;
    memset(&s, 0, sizeof s);
    key_defaults(&resnet_keys, &s);
    strcpy(s.model.blocks, "1,2");
    strcpy(s.model.widths, "16,32");
    strcpy(s.model.norm, norm);
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

static small_vision build(const resnet_settings *r, const densenet_settings *d) {
    small_vision s = {.params = nn_params_create()};
    s.graph = nn_graph_create(s.params);
    s.rows = nn_symbol(s.graph, "images", SMALL_IMAGES);
    const nn_value x = nn_input_images(s.graph, "images", NN_F32, s.rows, SMALL_SIDE, SMALL_SIDE, 3);
    const nn_value targets = nn_input(s.graph, "targets", NN_I32, s.rows, 0);
    nn_pad(s.graph, targets, -1);
    const nn_value logits =
        r ? resnet_build(s.graph, r, x, SMALL_CLASSES) : densenet_build(s.graph, d, x, SMALL_CLASSES);
    s.loss = nn_cross_entropy(s.graph, logits, targets, 0);
    nn_output(s.graph, "loss", s.loss);
    check(nn_params_allocate(s.params, 3));
    return s;
}

/* Weights that begin at 0 would hide what is behind them. */
static void stir(nn_params *p) {
    for (int64_t i = 0; i < p->count; i++) p->data[i] += 0.05f * (float)nn_normal(8, (uint64_t)i);
}

static void plan(small_vision *s, const char *backend) {
    check(nn_plan_create(&s->plan, s->graph,
                         &(nn_plan_options){.backend = backend, .loss = s->loss, .pool = s->pool, .training = true}));
    float *x = nn_plan_data(s->plan, "images");
    int32_t *targets = nn_plan_data(s->plan, "targets");
    for (int i = 0; i < SMALL_ROWS * SMALL_SIDE * SMALL_SIDE * 3; i++) x[i] = (float)nn_normal(5, (uint64_t)i);
    for (int i = 0; i < SMALL_ROWS; i++) targets[i] = 3 * i % SMALL_CLASSES;
    check(nn_plan_set_rows(s->plan, s->rows, SMALL_ROWS));
}

small_vision small_vision_make(const resnet_settings *r, const densenet_settings *d, const char *backend, int threads) {
    small_vision s = build(r, d);
    stir(s.params);
    check(adamod_pool_create(&s.pool, threads));
    plan(&s, backend);
    return s;
}

small_vision small_vision_make_on(const resnet_settings *r, const densenet_settings *d, const char *device,
                                  nn_precision precision) {
    small_vision s = build(r, d);
    stir(s.params);
    check(nn_params_to_device(s.params, device, precision));
    plan(&s, NULL);
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
