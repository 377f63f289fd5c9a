/* A small world, and whether it has changed: see world.h. */
#include "world.h"
#include "values.h"

#include <stdio.h>
#include <string.h>

void world_arrays(world *w, const char *rule) {
    memset(w, 0, sizeof *w);
    w->rule = rule;
    for (int i = 0; i < 35; i++) {
        w->matrix[i] = (float)noise((uint64_t)i);
        w->matrix_grad[i] = (float)noise(100 + (uint64_t)i);
    }
    for (int i = 0; i < 9; i++) {
        w->half[i] = to_bf16(noise(200 + (uint64_t)i));
        w->half_grad[i] = to_bf16(noise(300 + (uint64_t)i));
    }
    w->scalar = noise(400);
    w->scalar_grad = noise(401);
    for (int i = 0; i < 4; i++) {
        w->frozen[i] = (float)noise(500 + (uint64_t)i);
        w->frozen_grad[i] = (float)noise(600 + (uint64_t)i);
    }
}

adamod_tensor world_tensor(world *w, int which) {
    switch (which) {
        case MATRIX:
            return (adamod_tensor){"matrix", w->matrix, w->matrix_grad, ADAMOD_F32, ADAMOD_F32,
                                   2,        {5, 7},    NULL,           {NULL},     {NULL}};
        case HALF:
            return (adamod_tensor){"half", w->half, w->half_grad, ADAMOD_BF16, ADAMOD_BF16,
                                   1,      {9},     NULL,         {NULL},      {NULL}};
        case SCALAR:
            return (adamod_tensor){"scalar", &w->scalar, &w->scalar_grad, ADAMOD_F64, ADAMOD_F64, 0,
                                   {0},      NULL,       {NULL},          {NULL}};
        case EMPTY:
            return (adamod_tensor){"empty", w->empty, w->empty, ADAMOD_F32, ADAMOD_F32,
                                   2,       {0, 3},   NULL,     {NULL},     {NULL}};
        default:
            return (adamod_tensor){"frozen", w->frozen, NULL, ADAMOD_F32, ADAMOD_F32, 1, {4}, NULL, {NULL}, {NULL}};
    }
}

int world_make(world *w, const char *rule, int steps) {
    world_arrays(w, rule);
    if (!CHECK_INT(adamod_create(&w->opt, rule), ADAMOD_OK)) return 0;
    CHECK_INT(adamod_set(w->opt, "threads", 1), ADAMOD_OK);
    CHECK_INT(adamod_add_group(w->opt, &w->group), ADAMOD_OK);
    CHECK_INT(adamod_group_set(w->opt, w->group, "lr", 0.0625), ADAMOD_OK);
    for (int i = 0; i < PARAMETERS; i++) {
        const adamod_tensor t = world_tensor(w, i);
        int64_t id = -1;
        CHECK_INT(adamod_add_tensor(w->opt, i == HALF ? w->group : 0, &t, &id), ADAMOD_OK);
        CHECK_INT(id, i);
    }
    for (int i = 0; i < steps; i++) CHECK_INT(adamod_step(w->opt), ADAMOD_OK);
    return 1;
}

int64_t steps_of(const adamod_optimizer *opt, int64_t id) {
    int64_t steps = -1;
    CHECK_INT(adamod_tensor_steps(opt, id, &steps), ADAMOD_OK);
    return steps;
}

/* ---- whether it has changed ---- */

void snapshot_states(snapshot *s, const adamod_optimizer *opt, int64_t id) {
    for (int i = 0; state_names[i]; i++) {
        void *data;
        adamod_type type;
        int64_t count;
        if (adamod_state(opt, id, state_names[i], &data, &type, &count)) continue;
        snapshot_put(s, &count, sizeof count);
        snapshot_put(s, data, (size_t)count * type_size(type));
    }
}

static void put_options(snapshot *s, const adamod_optimizer *opt, const char *rule) {
    double value;
    for (int g = 0; adamod_group_get(opt, g, "lr", &value) == ADAMOD_OK; g++) {
        adamod_option o;
        for (int i = 0; adamod_option_at(rule, i, &o) == ADAMOD_OK; i++) {
            CHECK_INT(adamod_group_get(opt, g, o.name, &value), ADAMOD_OK);
            snapshot_put(s, &value, sizeof value);
        }
    }
}

static void take(const world *w, snapshot *s) {
    s->n = 0;
    snapshot_put(s, w, sizeof *w);
    if (!w->opt) return;
    const int64_t counts[] = {adamod_steps(w->opt), adamod_skipped(w->opt), adamod_tensors(w->opt)};
    const double norm = adamod_grad_norm(w->opt);
    size_t states;
    adamod_memory(w->opt, &states, NULL);
    snapshot_put(s, counts, sizeof counts);
    snapshot_put(s, &norm, sizeof norm);
    snapshot_put(s, &states, sizeof states);
    for (int64_t id = 0; id < adamod_tensors(w->opt); id++) {
        int64_t steps = -1;
        adamod_tensor_steps(w->opt, id, &steps);
        snapshot_put(s, &steps, sizeof steps);
        snapshot_states(s, w->opt, id);
    }
    put_options(s, w->opt, w->rule);
}

static snapshot before, after;

void world_remember(const world *w) { take(w, &before); }

bool world_unchanged(const world *w) {
    take(w, &after);
    return snapshot_same(&before, &after);
}

char message[600];

adamod_status keep_message(adamod_status status) {
    snprintf(message, sizeof message, "%s", adamod_last_error());
    return status;
}
