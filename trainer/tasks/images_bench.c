/* images_bench.c - pictures for `adamod bench train`: the paper's two networks on generated shapes. */
#include "tasks/images.h"
#include "train/task_bench.h"

#include <stdio.h>
#include <stdlib.h>

#define RECIPE(name, kind)                                                                                             \
    "name: " name "\n"                                                                                                 \
    "data: {task: images, set: shapes, train: 1280, valid: 1, test: 0, batch: 128}\n"                                  \
    "model: {kind: " kind "}\n"                                                                                        \
    "optimizer: {rule: adamod, lr: 1e-3}\n"

/* The shapes of docs/performance.md. */
static const task_shape shapes[] = {
    {"resnet34", RECIPE("resnet34", "resnet"), 10, 128, 3.0e-3, 0},
    {"densenet121", RECIPE("densenet121", "densenet"), 10, 128, 6.0e-3, 0},
    {0},
};

/* Builds the training graph without crops and mirrors, but with batch statistics. */
static nn_value check(experiment *e, nn_graph *g) {
    images *s = images_of(e);
    const nn_picture_options drawn = s->view;
    s->view.crop = s->view.mirror = false;
    const nn_value loss = e->task->build(e, g);
    s->view = drawn;
    return loss;
}

/* Writes the normalised centre of a picture: the input of the network without augmentation. */
static void show(const nn_picture_options *o, const uint8_t *picture, int64_t size, float *to) {
    const int64_t margin = (size - o->size) / 2;
    for (int64_t i = 0; i < o->size * o->size * 3; i++) {
        const int64_t row = margin + i / 3 / o->size, column = margin + i / 3 % o->size, c = i % 3;
        to[i] = ((float)picture[(row * size + column) * 3 + c] / 255 - o->mean[c]) / o->deviation[c];
    }
}

static task_array array(const experiment *e, nn_plan *plan) {
    const images *s = images_of(e);
    const int64_t n = nn_plan_rows(plan, s->rows), size = s->all.size, each = s->view.size * s->view.size * 3;
    const int32_t *places = nn_plan_data(plan, "places");
    task_array out = {"images", 4, {n, s->view.size, s->view.size, 3}, malloc((size_t)(n * each) * sizeof(float) + 1)};
    for (int64_t i = 0; out.data && i < n; i++)
        show(&s->view, s->all.bytes + (size_t)places[i] * (size_t)(size * size * 3), size, out.data + i * each);
    return out;
}

static void describe(const experiment *e, char *out, size_t size) {
    const task_model *m = recipe_model(&e->recipe);
    if (m->describe) m->describe(&e->recipe, out, size);
    else snprintf(out, size, "%s", m->kind);
}

const task_bench images_bench = {
    .peer = "vision", .shapes = shapes, .speedup = 1.2, .check = check, .array = array, .describe = describe};
