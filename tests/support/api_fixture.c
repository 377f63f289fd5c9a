/* An optimizer over arrays of every kind, and whether it has changed: see api_fixture.h. */
#include "api_fixture.h"
#include "values.h"

#include <stdio.h>
#include <string.h>

void api_fixture_arrays(api_fixture *f, const char *rule) {
    memset(f, 0, sizeof *f);
    f->rule = rule;
    for (int i = 0; i < 35; i++) {
        f->matrix[i] = (float)noise((uint64_t)i);
        f->matrix_grad[i] = (float)noise(100 + (uint64_t)i);
    }
    for (int i = 0; i < 9; i++) {
        f->half[i] = to_bf16(noise(200 + (uint64_t)i));
        f->half_grad[i] = to_bf16(noise(300 + (uint64_t)i));
    }
    f->scalar = noise(400);
    f->scalar_grad = noise(401);
    for (int i = 0; i < 4; i++) {
        f->frozen[i] = (float)noise(500 + (uint64_t)i);
        f->frozen_grad[i] = (float)noise(600 + (uint64_t)i);
    }
}

adamod_tensor api_fixture_tensor(api_fixture *f, int which) {
    switch (which) {
        case MATRIX:
            return (adamod_tensor){"matrix", f->matrix, f->matrix_grad, ADAMOD_F32, ADAMOD_F32,
                                   2,        {5, 7},    NULL,           {NULL},     {NULL}};
        case HALF:
            return (adamod_tensor){"half", f->half, f->half_grad, ADAMOD_BF16, ADAMOD_BF16,
                                   1,      {9},     NULL,         {NULL},      {NULL}};
        case SCALAR:
            return (adamod_tensor){"scalar", &f->scalar, &f->scalar_grad, ADAMOD_F64, ADAMOD_F64, 0,
                                   {0},      NULL,       {NULL},          {NULL}};
        case EMPTY:
            return (adamod_tensor){"empty", f->empty, f->empty, ADAMOD_F32, ADAMOD_F32,
                                   2,       {0, 3},   NULL,     {NULL},     {NULL}};
        default:
            return (adamod_tensor){"frozen", f->frozen, NULL, ADAMOD_F32, ADAMOD_F32, 1, {4}, NULL, {NULL}, {NULL}};
    }
}

int api_fixture_make(api_fixture *f, const char *rule, int steps) {
    api_fixture_arrays(f, rule);
    if (!CHECK_INT(adamod_create(&f->opt, rule), ADAMOD_OK)) return 0;
    CHECK_INT(adamod_set(f->opt, "threads", 1), ADAMOD_OK);
    CHECK_INT(adamod_add_group(f->opt, &f->group), ADAMOD_OK);
    CHECK_INT(adamod_group_set(f->opt, f->group, "lr", 0.0625), ADAMOD_OK);
    for (int i = 0; i < PARAMETERS; i++) {
        const adamod_tensor t = api_fixture_tensor(f, i);
        int64_t id = -1;
        CHECK_INT(adamod_add_tensor(f->opt, i == HALF ? f->group : 0, &t, &id), ADAMOD_OK);
        CHECK_INT(id, i);
    }
    for (int i = 0; i < steps; i++) CHECK_INT(adamod_step(f->opt), ADAMOD_OK);
    return 1;
}

int64_t steps_of(const adamod_optimizer *opt, int64_t id) {
    int64_t steps = -1;
    CHECK_INT(adamod_tensor_steps(opt, id, &steps), ADAMOD_OK);
    return steps;
}

/* ---- whether it has changed ---- */

void snapshot_states(snapshot *s, const adamod_optimizer *opt, int64_t id) {
    for (int i = 0; state_name(i); i++) {
        void *data;
        adamod_type type;
        int64_t count;
        if (adamod_state(opt, id, state_name(i), &data, &type, &count)) continue;
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

static void take(const api_fixture *f, snapshot *s) {
    s->n = 0;
    snapshot_put(s, f, sizeof *f);
    if (!f->opt) return;
    const int64_t counts[] = {adamod_steps(f->opt), adamod_skipped(f->opt), adamod_tensors(f->opt)};
    const double norm = adamod_grad_norm(f->opt);
    size_t states;
    adamod_memory(f->opt, &states, NULL);
    snapshot_put(s, counts, sizeof counts);
    snapshot_put(s, &norm, sizeof norm);
    snapshot_put(s, &states, sizeof states);
    for (int64_t id = 0; id < adamod_tensors(f->opt); id++) {
        int64_t steps = -1;
        adamod_tensor_steps(f->opt, id, &steps);
        snapshot_put(s, &steps, sizeof steps);
        snapshot_states(s, f->opt, id);
    }
    put_options(s, f->opt, f->rule);
}

static snapshot before, after;

void api_fixture_remember(const api_fixture *f) { take(f, &before); }

bool api_fixture_unchanged(const api_fixture *f) {
    take(f, &after);
    return snapshot_same(&before, &after);
}

char message[600];

adamod_status keep_message(adamod_status status) {
    snprintf(message, sizeof message, "%s", adamod_last_error());
    return status;
}
