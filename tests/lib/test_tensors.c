/* Tests of parameters: which arrays, sizes and names are refused, other arrays for a parameter, and parameters that are
 * frozen for some steps.
 *
 * SPDX-License-Identifier: MIT
 */
#include "values.h"
#include "api_fixture.h"

#include <math.h>
#include <stdlib.h>
#include <time.h>

/* ---- Arrays, sizes, names ----------------------------------------------------------------------------------------- */

TEST(overlaps) {
    api_fixture f;
    if (!api_fixture_make(&f, "adamod", 3)) return;
    float more[12] = {0};
    void *state = NULL;
    adamod_tensor t = {.name = "t", .param = more, .grad = more + 4, .ndim = 1, .shape = {4}};
    const struct {
        void *param;
        const void *grad;
        const char *says;
    } refused[] = {
        {more, more, "t: param and grad overlap"},
        {more, more + 3, "t: param and grad overlap"},
        {more + 3, more, "t: param and grad overlap"},
        {f.matrix, more, "t: its parameters overlap those of matrix"},
        {f.matrix + 34, more, "overlap those of matrix"},
        {f.half, more, "overlap those of half"},
        {f.frozen, NULL, "overlap those of frozen"},
        {f.matrix_grad + 2, more, "t: its parameters overlap the gradient of matrix"},
        {f.half_grad, NULL, "overlap the gradient of half"},
        {more, f.matrix + 31, "t: its gradient overlaps the parameters of matrix"},
        {more, f.frozen, "t: its gradient overlaps the parameters of frozen"},
    };
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++) {
        t.param = refused[i].param;
        t.grad = refused[i].grad;
        REFUSED(&f, adamod_add_tensor(f.opt, 0, &t, NULL), ADAMOD_ERROR_ARGUMENT, refused[i].says);
    }
    REFUSED(&f, adamod_set_param(f.opt, MATRIX, f.matrix_grad), ADAMOD_ERROR_ARGUMENT, "matrix: param and grad");
    REFUSED(&f, adamod_set_grad(f.opt, MATRIX, f.matrix), ADAMOD_ERROR_ARGUMENT, "matrix: param and grad");
    REFUSED(&f, adamod_set_param(f.opt, FROZEN, f.matrix + 1), ADAMOD_ERROR_ARGUMENT, "frozen: its parameters overlap");
    REFUSED(&f, adamod_set_grad(f.opt, FROZEN, f.matrix + 31), ADAMOD_ERROR_ARGUMENT, "frozen: its gradient overlaps");
    REFUSED(&f, adamod_set_param(f.opt, FROZEN, f.matrix_grad), ADAMOD_ERROR_ARGUMENT, "the gradient of matrix");
    REFUSED(&f, adamod_add(f.opt, "t", f.matrix, NULL, 0, NULL), ADAMOD_ERROR_ARGUMENT, "t: its parameters overlap");
    /* Overlaps with the optimizer's own arrays are refused, too. */
    CHECK_INT(adamod_state(f.opt, MATRIX, "exp_avg", &state, NULL, NULL), ADAMOD_OK);
    REFUSED(&f, adamod_set_grad(f.opt, MATRIX, state), ADAMOD_ERROR_ARGUMENT, "overlap");
    REFUSED(&f, adamod_set_param(f.opt, FROZEN, state), ADAMOD_ERROR_ARGUMENT, "overlap");

    /* Neighbours do not overlap, and gradients, which are only read, may. */
    t.param = more;
    t.grad = more + 4;
    CHECK_INT(adamod_add_tensor(f.opt, 0, &t, NULL), ADAMOD_OK);
    t.name = "u";
    t.param = more + 8;
    CHECK_INT(adamod_add_tensor(f.opt, 0, &t, NULL), ADAMOD_OK);
    /* An array may be set to itself, and one without elements lie anywhere. */
    CHECK_INT(adamod_set_param(f.opt, MATRIX, f.matrix), ADAMOD_OK);
    CHECK_INT(adamod_set_param(f.opt, EMPTY, f.matrix), ADAMOD_OK);
    CHECK_INT(adamod_set_param(f.opt, EMPTY, NULL), ADAMOD_OK);
    CHECK_INT(adamod_step(f.opt), ADAMOD_OK);
    adamod_free(f.opt);
}

TEST(misaligned) {
    api_fixture f;
    if (!api_fixture_make(&f, "adamod", 3)) return;
    _Alignas(8) char bytes[200] = {0};
    static const adamod_type types[] = {ADAMOD_F32, ADAMOD_F64, ADAMOD_BF16, ADAMOD_F16};
    for (int i = 0; i < 4; i++) {
        const int size = (int)type_size(types[i]);
        for (int offset = 1; offset < size; offset++) {
            struct member {
                char before;
                double x;
            };
            if (types[i] == ADAMOD_F64 && offset % (int)offsetof(struct member, x) == 0) continue; /* 32-bit x86 */
            adamod_tensor t = {.name = "t", .param = bytes + offset, .param_type = types[i], .ndim = 1, .shape = {3}};
            REFUSED(&f, adamod_add_tensor(f.opt, 0, &t, NULL), ADAMOD_ERROR_ARGUMENT, "t: param is not aligned");
            t.param = bytes + 64;
            t.grad = bytes + offset;
            t.grad_type = types[i];
            REFUSED(&f, adamod_add_tensor(f.opt, 0, &t, NULL), ADAMOD_ERROR_ARGUMENT, "t: grad is not aligned");
        }
    }
    REFUSED(&f, adamod_set_param(f.opt, SCALAR, bytes + 2), ADAMOD_ERROR_ARGUMENT, "scalar: param is not aligned");
    REFUSED(&f, adamod_set_grad(f.opt, MATRIX, bytes + 2), ADAMOD_ERROR_ARGUMENT, "matrix: grad is not aligned");
    /* A vector's alignment is not needed, only an element's. */
    adamod_tensor t = {.name = "t",
                       .param = bytes + 2,
                       .param_type = ADAMOD_BF16,
                       .ndim = 1,
                       .shape = {17},
                       .grad = bytes + 100,
                       .grad_type = ADAMOD_F32};
    CHECK_INT(adamod_add_tensor(f.opt, 0, &t, NULL), ADAMOD_OK);
    CHECK_INT(adamod_step(f.opt), ADAMOD_OK);
    adamod_free(f.opt);
}

/* Arrays without elements, whatever their other dimensions, under every rule: added and stepped over, or refused where a
 * state would be too large; among those that have elements. */
TEST(empty_arrays) {
    static const int64_t sizes[] = {0, 1, 3, INT64_MAX};
    float p[6] = {0}, g[6] = {1, 1, 1, 1, 1, 1}, none[1], moved;
    int64_t shape[3];
    int added = 0;
    for (int r = 0; adamod_rule_name(r); r++) {
        adamod_optimizer *opt = NULL;
        adamod_hyper *h = NULL;
        CHECK_INT(adamod_create(&opt, adamod_rule_name(r)), ADAMOD_OK);
        CHECK_INT(adamod_hyper_create(&h, adamod_rule_name(r)), ADAMOD_OK);
        for (int k = 0; k < 64; k++) {
            for (int d = 0; d < 3; d++) shape[d] = sizes[k >> 2 * d & 3];
            if (shape[0] && shape[1] && shape[2]) continue;
            const adamod_status status = adamod_add(opt, NULL, none, none, 3, shape);
            if (status) CHECK_INT(status, ADAMOD_ERROR_ARGUMENT);
            added += !status;
            adamod_state_desc desc;
            bool described = true;
            for (int i = 0; i < ADAMOD_MAX_STATES; i++) described &= !adamod_state_at(h, 3, shape, i, &desc);
            CHECK_INT(described, !status);
            adamod_span span = {.param = none, .grad = none, .ndim = 3, .step = 1};
            memcpy(span.shape, shape, sizeof shape);
            static float states[ADAMOD_MAX_STATES][16];
            for (int i = 0; i < ADAMOD_MAX_STATES; i++) span.state[i] = states[i];
            if (described) CHECK_INT(adamod_update(h, &span, 1, NULL), ADAMOD_OK);
        }
        CHECK_INT(adamod_add(opt, "p", p, g, 2, (int64_t[]){2, 3}), ADAMOD_OK);
        moved = p[0];
        for (int t = 0; t < 12; t++) CHECK_INT(adamod_step(opt), ADAMOD_OK); /* AdaShift waits for its queue */
        CHECK(p[0] != moved);
        adamod_free(opt);
        adamod_hyper_free(h);
    }
    CHECK(added > 200);
    /* Counts of arrays that are not there may add up to more than there is. */
    adamod_span frozen[20];
    double norm = -1;
    for (int i = 0; i < 20; i++) frozen[i] = (adamod_span){.count = (INT64_C(1) << atoi(COUNT_BITS)) - 1};
    CHECK_INT(adamod_norm(frozen, 20, NULL, &norm), ADAMOD_OK);
    CHECK_CLOSE(norm, 0, 0);
}

TEST(sizes) {
    api_fixture f;
    if (!api_fixture_make(&f, "adamod", 3)) return;
    _Alignas(8) float x[4] = {0};
    int64_t id = 7;
    const adamod_tensor refused[] = {
        {.name = "t", .param = x, .ndim = 1, .shape = {-1}},
        {.name = "t", .param = x, .ndim = 2, .shape = {2, -2}},
        {.name = "t", .param = x, .ndim = 2, .shape = {-2, -2}},
        {.name = "t", .param = x, .ndim = 1, .shape = {INT64_MAX}},
        {.name = "t", .param = x, .ndim = 1, .shape = {INT64_MIN}},
        {.name = "t", .param = x, .ndim = 1, .shape = {INT64_MAX / 8 + 1}},
        {.name = "t", .param = x, .ndim = 2, .shape = {INT64_MAX / 2, 3}},
        {.name = "t", .param = x, .ndim = 3, .shape = {1 << 30, 1 << 30, 1 << 30}},
        {.name = "t", .param = x, .ndim = 8, .shape = {1000, 1000, 1000, 1000, 1000, 1000, 1000, 1000}},
        {.name = "t", .param = x, .ndim = -1},
        {.name = "t", .param = x, .ndim = 9},
        {.name = "t", .param = x, .ndim = INT32_MAX},
        {.name = "t", .param = x, .ndim = INT32_MIN},
        {.name = "t", .param = x, .ndim = 1, .shape = {4}, .param_type = (adamod_type)4},
        {.name = "t", .param = x, .ndim = 1, .shape = {4}, .param_type = (adamod_type)-1},
        {.name = "t", .param = x, .ndim = 1, .shape = {4}, .grad_type = (adamod_type)99},
    };
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++) {
        REFUSED(&f, adamod_add_tensor(f.opt, 0, &refused[i], &id), ADAMOD_ERROR_ARGUMENT, "t: ");
    }
    CHECK_INT(id, 7);
    REFUSED(&f, adamod_add_tensor(f.opt, 0, &refused[1], &id), ADAMOD_ERROR_ARGUMENT,
            "t: shape is [2, -2], expected no negative dimension and fewer than 2^" COUNT_BITS " elements");
    const adamod_tensor copied = {.name = "t", .param = x, .ndim = 1, .shape = {2}, .master = x + 2};
    REFUSED(&f, adamod_add_tensor(f.opt, 0, &copied, &id), ADAMOD_ERROR_ARGUMENT,
            "t: only bf16 and f16 with low_precision=master have a master");
    const int64_t shape[9] = {1, 1, 1, 1, 1, 1, 1, 1, 1};
    REFUSED(&f, adamod_add(f.opt, "t", x, NULL, 9, shape), ADAMOD_ERROR_ARGUMENT, "ndim is 9");
    REFUSED(&f, adamod_add(f.opt, "t", x, NULL, -1, shape), ADAMOD_ERROR_ARGUMENT, "ndim is -1");
    CHECK_INT(adamod_add(f.opt, "t", x, NULL, 8, shape), ADAMOD_OK);
    /* A zero makes a shape empty wherever it stands. */
    const adamod_tensor empty[] = {
        {.name = "e", .param = x, .ndim = 3, .shape = {0, INT64_MAX, INT64_MAX}},
        {.name = "f", .param = x, .ndim = 3, .shape = {INT64_MAX, INT64_MAX, 0}},
    };
    for (int i = 0; i < 2; i++) CHECK_INT(adamod_add_tensor(f.opt, 0, &empty[i], NULL), ADAMOD_OK);
    CHECK_INT(adamod_step(f.opt), ADAMOD_OK);
    adamod_free(f.opt);

    /* Here memory is missing, which is another failure. */
    api_fixture_arrays(&f, "adamod");
    CHECK_INT(adamod_create(&f.opt, "adamod"), ADAMOD_OK);
    const int64_t most = (INT64_C(1) << atoi(COUNT_BITS)) - 1;
    const adamod_tensor huge = {.name = "huge", .param = x, .param_type = ADAMOD_F64, .ndim = 1, .shape = {most}};
    REFUSED(&f, adamod_add_tensor(f.opt, 0, &huge, NULL), ADAMOD_ERROR_MEMORY, "huge: out of memory for exp_avg");
    adamod_free(f.opt);

    /* Sizes of states may overflow where those of parameters do not. */
    api_fixture_arrays(&f, "adashift");
    CHECK_INT(adamod_create(&f.opt, "adashift"), ADAMOD_OK);
    const adamod_tensor queue = {.name = "t", .param = x, .ndim = 1, .shape = {most / 4}};
    const adamod_tensor deep = {.name = "t", .param = x, .ndim = 8, .shape = {1, 1, 1, 1, 1, 1, 2, 2}};
    REFUSED(&f, adamod_add_tensor(f.opt, 0, &queue, NULL), ADAMOD_ERROR_ARGUMENT, "grad_queue: size overflows");
    REFUSED(&f, adamod_add_tensor(f.opt, 0, &deep, NULL), ADAMOD_ERROR_ARGUMENT, "at most 7 dimensions");
    adamod_free(f.opt);
}

TEST(names_of_parameters) {
    api_fixture f;
    if (!api_fixture_make(&f, "adamod", 3)) return;
    float x[8] = {0};
    adamod_tensor t = {.name = "matrix", .param = x};
    REFUSED(&f, adamod_add_tensor(f.opt, 0, &t, NULL), ADAMOD_ERROR_NAME, "matrix: another parameter has this name");
    REFUSED(&f, adamod_add_tensor(f.opt, 1, &t, NULL), ADAMOD_ERROR_NAME, "matrix: another parameter has this name");
    REFUSED(&f, adamod_add(f.opt, "frozen", x, NULL, 0, NULL), ADAMOD_ERROR_NAME, "frozen: another parameter");
    /* Names given by number: this one will be param.6, so the next without a name is taken already. */
    CHECK_INT(adamod_add(f.opt, "param.6", x, NULL, 0, NULL), ADAMOD_OK);
    REFUSED(&f, adamod_add(f.opt, NULL, x + 1, NULL, 0, NULL), ADAMOD_ERROR_NAME, "param.6: another parameter");
    CHECK_INT(adamod_add(f.opt, "", x + 1, NULL, 0, NULL), ADAMOD_OK);
    CHECK_INT(adamod_add(f.opt, NULL, x + 2, NULL, 0, NULL), ADAMOD_OK);
    REFUSED(&f, adamod_set_param(f.opt, 7, NULL), ADAMOD_ERROR_ARGUMENT, "param.7: ");
    /* Names are copied. */
    char name[] = "mine";
    CHECK_INT(adamod_add(f.opt, name, x + 3, NULL, 0, NULL), ADAMOD_OK);
    name[0] = 'X';
    REFUSED(&f, adamod_set_param(f.opt, 8, NULL), ADAMOD_ERROR_ARGUMENT, "mine: ");
    CHECK_INT(adamod_tensors(f.opt), 9);
    adamod_free(f.opt);
}

TEST(many_parameters) {
    enum { N = 500 };
    static float p[N], g[N];
    adamod_optimizer *opt = NULL;
    if (!CHECK_INT(adamod_create(&opt, "adam"), ADAMOD_OK)) return;
    CHECK_INT(adamod_set(opt, "lr", 0.5), ADAMOD_OK);
    for (int i = 0; i < N; i++) {
        p[i] = 0;
        g[i] = i % 2 ? 1 : -1;
        int64_t id = -1;
        const adamod_tensor t = {.param = &p[i], .grad = &g[i]};
        CHECK_INT(adamod_add_tensor(opt, 0, &t, &id), ADAMOD_OK);
        CHECK_INT(id, i);
    }
    CHECK_INT(adamod_tensors(opt), N);
    CHECK_INT(adamod_step(opt), ADAMOD_OK);
    for (int i = 0; i < N; i++) CHECK_CLOSE(p[i], i % 2 ? -0.5 : 0.5, 1e-5);
    adamod_free(opt);
}

TEST(empty_arrays_and_scalars) {
    for (int r = 0; adamod_rule_name(r); r++) {
        adamod_optimizer *opt = NULL;
        float scalar = 1, same = 1;
        const float grad = 0.5f;
        void *data = &opt;
        int64_t count = -1;
        if (!CHECK_INT(adamod_create(&opt, adamod_rule_name(r)), ADAMOD_OK)) return;
        CHECK_INT(adamod_add(opt, "nothing", NULL, NULL, 1, (const int64_t[]){0}), ADAMOD_OK);
        CHECK_INT(adamod_add(opt, "nothing with a gradient", NULL, &grad, 3, (const int64_t[]){4, 0, 2}), ADAMOD_OK);
        CHECK_INT(adamod_add(opt, "scalar", &scalar, &grad, 0, NULL), ADAMOD_OK);
        CHECK_INT(adamod_add(opt, "of one dimension", &same, &grad, 1, (const int64_t[]){1}), ADAMOD_OK);
        for (int i = 0; i < 15; i++) CHECK_INT(adamod_step(opt), ADAMOD_OK);
        CHECK(scalar == same);
        CHECK(scalar < 1);
        CHECK_INT(steps_of(opt, 0), 0);
        CHECK_INT(steps_of(opt, 1), 15);
        if (adamod_state(opt, 1, "exp_avg", &data, NULL, &count) == ADAMOD_OK) {
            CHECK(data == NULL);
            CHECK_INT(count, 0);
        }
        if (adamod_state(opt, 2, "exp_avg", &data, NULL, &count) == ADAMOD_OK) CHECK_INT(count, 1);
        adamod_free(opt);
    }
}

TEST(many_arrays_in_one_call) {
    api_fixture f;
    if (!api_fixture_make(&f, "adamod", 3)) return;
    float p[2][40] = {{0}}, g[2][40] = {{0}};
    const int64_t ids[3] = {FROZEN, MATRIX, FROZEN};
    void *params[3] = {p[0], p[1], f.frozen};
    const void *grads[3] = {g[0], g[1], NULL};
    REFUSED(&f, adamod_set_arrays(NULL, 1, ids, params, grads), ADAMOD_ERROR_ARGUMENT, "the optimizer is NULL");
    REFUSED(&f, adamod_set_arrays(f.opt, -1, ids, params, grads), ADAMOD_ERROR_ARGUMENT, "n is -1");
    REFUSED(&f, adamod_set_arrays(f.opt, PARAMETERS + 1, NULL, NULL, NULL), ADAMOD_ERROR_RANGE, "parameter number");
    params[1] = (char *)p[1] + 2;
    REFUSED(&f, adamod_set_arrays(f.opt, 3, ids, params, grads), ADAMOD_ERROR_ARGUMENT, "matrix: param is not aligned");
    params[1] = p[0] + 3;
    REFUSED(&f, adamod_set_arrays(f.opt, 2, ids, params, grads), ADAMOD_ERROR_ARGUMENT,
            "frozen: its param overlaps param of matrix");
    params[1] = NULL;
    REFUSED(&f, adamod_set_arrays(f.opt, 2, ids, params, grads), ADAMOD_ERROR_ARGUMENT, "matrix: param is NULL");
    /* Refused arrays are not there, not even the good half. */
    memcpy(f.frozen_grad, f.frozen, sizeof f.frozen);
    CHECK_INT(adamod_step(f.opt), ADAMOD_OK);
    CHECK(memcmp(f.frozen_grad, f.frozen, sizeof f.frozen) == 0);

    params[1] = p[1];
    for (int i = 0; i < 40; i++) g[0][i] = g[1][i] = 1;
    CHECK_INT(adamod_set_arrays(f.opt, 2, ids, params, grads), ADAMOD_OK);
    const float matrix = f.matrix[0];
    CHECK_INT(adamod_step(f.opt), ADAMOD_OK);
    CHECK(p[0][0] < 0 && p[1][34] < 0 && f.matrix[0] == matrix);
    /* An id twice, the last counts; the gradients alone; two that change places. */
    CHECK_INT(adamod_set_arrays(f.opt, 3, ids, params, grads), ADAMOD_OK);
    p[0][0] = 3;
    CHECK_INT(adamod_step(f.opt), ADAMOD_OK);
    CHECK(p[0][0] == 3 && memcmp(f.frozen_grad, f.frozen, sizeof f.frozen) == 0);
    CHECK_INT(adamod_set_arrays(f.opt, 1, ids, NULL, grads), ADAMOD_OK);
    CHECK_INT(adamod_step(f.opt), ADAMOD_OK);
    CHECK(memcmp(f.frozen_grad, f.frozen, sizeof f.frozen) != 0);
    CHECK_INT(adamod_set_arrays(f.opt, 2, ids, (void *[]){f.frozen, p[0]}, NULL), ADAMOD_OK);
    CHECK_INT(adamod_set_arrays(f.opt, 2, ids, (void *[]){p[0], p[1]}, (const void *[]){g[1], g[0]}), ADAMOD_OK);
    CHECK_INT(adamod_step(f.opt), ADAMOD_OK);
    CHECK_INT(adamod_set_arrays(f.opt, 0, NULL, NULL, NULL), ADAMOD_OK);
    adamod_free(f.opt);
}

/* ---- Frozen parameters -------------------------------------------------------------------------------------------- */

TEST(frozen_parameters) {
    api_fixture f;
    if (!api_fixture_make(&f, "adamod", 3)) return;
    api_fixture other;
    if (!api_fixture_make(&other, "adamod", 0)) return;
    CHECK_INT(adamod_steps(f.opt), 3);
    CHECK_INT(steps_of(f.opt, MATRIX), 3);
    CHECK_INT(steps_of(f.opt, FROZEN), 0);
    /* Thawed: its own first update is its first, with the bias corrections of a first. */
    CHECK_INT(adamod_set_grad(f.opt, FROZEN, f.frozen_grad), ADAMOD_OK);
    CHECK_INT(adamod_step(f.opt), ADAMOD_OK);
    CHECK_INT(adamod_set_grad(other.opt, FROZEN, other.frozen_grad), ADAMOD_OK);
    CHECK_INT(adamod_step(other.opt), ADAMOD_OK);
    CHECK(memcmp(f.frozen, other.frozen, sizeof f.frozen) == 0);
    CHECK(f.frozen[0] != (float)noise(500));
    CHECK_INT(steps_of(f.opt, FROZEN), 1);
    CHECK_INT(steps_of(f.opt, MATRIX), 4);
    CHECK_INT(adamod_steps(f.opt), 4);
    /* Frozen: nothing of it moves, states included. */
    CHECK_INT(adamod_set_grad(f.opt, MATRIX, NULL), ADAMOD_OK);
    snapshot *then = calloc(1, sizeof *then), *now = calloc(1, sizeof *now);
    if (!then || !now) abort();
    snapshot_states(then, f.opt, MATRIX);
    snapshot_put(then, f.matrix, sizeof f.matrix);
    for (int i = 0; i < 3; i++) CHECK_INT(adamod_step(f.opt), ADAMOD_OK);
    snapshot_states(now, f.opt, MATRIX);
    snapshot_put(now, f.matrix, sizeof f.matrix);
    CHECK(then->n == now->n && memcmp(then->bytes, now->bytes, now->n) == 0);
    CHECK_INT(steps_of(f.opt, MATRIX), 4);
    CHECK_INT(steps_of(f.opt, FROZEN), 4);
    CHECK_INT(adamod_steps(f.opt), 7);
    /* Other arrays: the parameter goes on where it was told to. */
    float moved[4], moved_grad[4];
    memcpy(moved, f.frozen, sizeof moved);
    memcpy(moved_grad, f.frozen_grad, sizeof moved);
    float left[4];
    memcpy(left, f.frozen, sizeof left);
    CHECK_INT(adamod_set_param(f.opt, FROZEN, moved), ADAMOD_OK);
    CHECK_INT(adamod_set_grad(f.opt, FROZEN, moved_grad), ADAMOD_OK);
    CHECK_INT(adamod_step(f.opt), ADAMOD_OK);
    CHECK(memcmp(f.frozen, left, sizeof left) == 0);
    CHECK(memcmp(moved, left, sizeof left) != 0);
    CHECK_INT(steps_of(f.opt, FROZEN), 5);
    /* All frozen: an update of nothing. */
    for (int i = 0; i < PARAMETERS; i++) CHECK_INT(adamod_set_grad(f.opt, i, NULL), ADAMOD_OK);
    CHECK_INT(adamod_set(f.opt, "clip_norm", 1), ADAMOD_OK);
    CHECK_INT(adamod_step(f.opt), ADAMOD_OK);
    CHECK_INT(adamod_steps(f.opt), 9);
    CHECK(adamod_grad_norm(f.opt) == 0);
    free(then);
    free(now);
    adamod_free(f.opt);
    adamod_free(other.opt);
}

TEST(frozen_under_every_rule) {
    for (int r = 0; adamod_rule_name(r); r++) {
        if (!strcmp(adamod_rule_name(r), "prodigy")) continue; /* d is one number for all: test_prodigy.c */
        api_fixture f, frozen_first;
        if (!api_fixture_make(&f, adamod_rule_name(r), 0) || !api_fixture_make(&frozen_first, adamod_rule_name(r), 13))
            return;
        /* 13 updates without it, then 12 with it, and 12 from the start: the same. */
        adamod_set_grad(f.opt, FROZEN, f.frozen_grad);
        adamod_set_grad(frozen_first.opt, FROZEN, frozen_first.frozen_grad);
        for (int i = 0; i < 12; i++) {
            CHECK_INT(adamod_step(f.opt), ADAMOD_OK);
            CHECK_INT(adamod_step(frozen_first.opt), ADAMOD_OK);
        }
        CHECK(memcmp(f.frozen, frozen_first.frozen, sizeof f.frozen) == 0);
        CHECK(f.frozen[1] != (float)noise(501));
        for (int i = 0; i < 4; i++) CHECK(isfinite(f.frozen[i]));
        adamod_free(f.opt);
        adamod_free(frozen_first.opt);
    }
}

TEST(steps_that_are_set) {
    api_fixture f;
    if (!api_fixture_make(&f, "adamod", 3)) return;
    int64_t steps = 0;
    REFUSED(&f, adamod_set_tensor_steps(NULL, 0, 1), ADAMOD_ERROR_ARGUMENT, "the optimizer is NULL");
    REFUSED(&f, adamod_set_tensor_steps(f.opt, 9, 1), ADAMOD_ERROR_RANGE, "parameter number is 9");
    REFUSED(&f, adamod_set_tensor_steps(f.opt, MATRIX, -1), ADAMOD_ERROR_RANGE, "matrix: steps is -1");
    REFUSED(&f, adamod_set_tensor_steps(f.opt, MATRIX, INT64_MAX), ADAMOD_ERROR_RANGE, "matrix: steps is 9223");
    REFUSED(&f, adamod_set_tensor_steps(f.opt, MATRIX, INT64_C(1) << 62), ADAMOD_ERROR_RANGE, "steps < 2^62");
    CHECK_INT(adamod_set_tensor_steps(f.opt, MATRIX, 1), ADAMOD_OK);
    CHECK_INT(adamod_steps(f.opt), 3);
    CHECK_INT(adamod_set_tensor_steps(f.opt, SCALAR, 40), ADAMOD_OK);
    CHECK_INT(adamod_steps(f.opt), 40);
    CHECK_INT(adamod_step(f.opt), ADAMOD_OK);
    CHECK_INT(adamod_tensor_steps(f.opt, MATRIX, &steps), ADAMOD_OK);
    CHECK_INT(steps, 2);
    CHECK_INT(adamod_tensor_steps(f.opt, SCALAR, &steps), ADAMOD_OK);
    CHECK_INT(steps, 41);
    CHECK_INT(adamod_steps(f.opt), 41);
    int64_t all[PARAMETERS], n = adamod_tensors(f.opt);
    CHECK_INT(adamod_all_tensor_steps(f.opt, n, all), ADAMOD_OK);
    for (int64_t i = 0; i < n; i++) {
        CHECK_INT(adamod_tensor_steps(f.opt, i, &steps), ADAMOD_OK);
        CHECK_INT(all[i], steps);
    }
    REFUSED(&f, adamod_all_tensor_steps(f.opt, n + 1, all), ADAMOD_ERROR_RANGE, "n is");
    REFUSED(&f, adamod_all_tensor_steps(f.opt, -1, all), ADAMOD_ERROR_RANGE, "n is -1");
    REFUSED(&f, adamod_all_tensor_steps(f.opt, n, NULL), ADAMOD_ERROR_ARGUMENT, "steps is NULL");
    REFUSED(&f, adamod_all_tensor_steps(NULL, n, all), ADAMOD_ERROR_ARGUMENT, "the optimizer is NULL");
    adamod_free(f.opt);
}

/* ---- many parameters ---- */

/* Seconds of this thread for n parameters: added, moved one by one and all at once, and refused where they overlap. */
static double time_of_many(int64_t n) {
    adamod_optimizer *opt = NULL;
    float *p = calloc((size_t)n * 4, sizeof *p), *g = calloc((size_t)n * 4, sizeof *g), *h = g + 2 * n;
    const void **grads = calloc((size_t)n, sizeof *grads);
    struct timespec from, to;
    if (!CHECK(p && g && grads)) return 0;
    CHECK_INT(adamod_create(&opt, "adamod"), ADAMOD_OK);
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &from);
    int64_t wrong = 0;
    for (int64_t i = 0; i < n; i++) {
        const int64_t at = i * 7919 % n; /* in no order of addresses */
        wrong += adamod_add(opt, NULL, p + 2 * at, g + 2 * at, 1, (int64_t[]){2}) != ADAMOD_OK;
        grads[i] = g + 2 * at;
    }
    wrong += adamod_add(opt, "end", p + 2 * n, NULL, 1, (int64_t[]){2}) != ADAMOD_OK;
    for (int64_t i = 0; i < n; i++) {
        wrong += adamod_set_grad(opt, i, h + i) != ADAMOD_OK; /* which overlap: they may */
        wrong += adamod_set_param(opt, i, p + 2 * (i * 7919 % n) + 1) != ADAMOD_ERROR_ARGUMENT;
    }
    wrong += adamod_set_arrays(opt, n, NULL, NULL, grads) != ADAMOD_OK;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &to);
    CHECK_INT(wrong, 0);
    CHECK_INT(adamod_add(opt, "param.17", p + 3 * n, NULL, 0, NULL), ADAMOD_ERROR_NAME);
    adamod_free(opt);
    free(p);
    free(g);
    free(grads);
    return (double)(to.tv_sec - from.tv_sec) + 1e-9 * (double)(to.tv_nsec - from.tv_nsec);
}

/* Time grows as n log n: eight times as many take about ten times as long, where squares would be 64. */
TEST(time_of_many_parameters) {
    const int64_t n = fast() ? 500 : 2000;
    double few = INFINITY, many = INFINITY;
    for (int i = 0; i < 3; i++) {
        few = fmin(few, time_of_many(n));
        many = fmin(many, time_of_many(8 * n));
    }
    if (!CHECK(many < 32 * few)) printf("%g s and %g s\n", few, many);
}

/* Overlaps are refused as a comparison of all with all finds them: random arrays in a small place, added and moved. */
enum { PLACE = 600, FEW = 40 };
typedef struct spot {
    int64_t param, grad, count; /* grad -1: frozen */
} spot;

static bool apart(const spot *s, int n) {
    for (int i = 0; i < n; i++) {
        for (int j = 0; j < n; j++) {
            const spot *a = &s[i], *b = &s[j];
            if (!a->count || !b->count) continue;
            if (i != j && a->param < b->param + b->count && b->param < a->param + a->count) return false;
            if (b->grad >= 0 && a->param < b->grad + b->count && b->grad < a->param + a->count) return false;
        }
    }
    return true;
}

TEST(overlaps_of_random_arrays) {
    static float place[PLACE + 64];
    uint32_t state = 1;
#define RANDOM(n) ((int64_t)((state = state * 1664525u + 1013904223u) >> 8) % (n))
    int refusals = 0, done = 0;
    for (int round = 0; round < (fast() ? 20 : 200); round++) {
        adamod_optimizer *opt = NULL;
        spot s[FEW], next[FEW];
        int n = 0;
        CHECK_INT(adamod_create(&opt, "sgd"), ADAMOD_OK);
        for (int step = 0; step < 200; step++) {
            memcpy(next, s, sizeof s);
            const int what = n < 2 ? 0 : (int)RANDOM(4), k = n < FEW && !what ? n : (int)RANDOM(n);
            adamod_status status;
            if (what == 0 && n < FEW) {
                const int64_t at = RANDOM(PLACE), other = RANDOM(3) ? RANDOM(PLACE) : -1;
                next[n] = (spot){at, other, RANDOM(6)};
                status = adamod_add(opt, NULL, place + next[n].param, next[n].grad < 0 ? NULL : place + next[n].grad, 1,
                                    &next[n].count);
            } else if (what == 1) {
                next[k].param = RANDOM(PLACE);
                status = adamod_set_param(opt, k, place + next[k].param);
            } else if (what == 2) {
                next[k].grad = RANDOM(3) ? RANDOM(PLACE) : -1;
                status = adamod_set_grad(opt, k, next[k].grad < 0 ? NULL : place + next[k].grad);
            } else { /* several, an id perhaps twice */
                int64_t ids[4];
                void *params[4];
                const void *grads[4];
                for (int i = 0; i < 4; i++) {
                    ids[i] = RANDOM(n);
                    spot *x = &next[ids[i]];
                    if (RANDOM(2)) x->param = RANDOM(PLACE);
                    if (RANDOM(2)) x->grad = RANDOM(3) ? RANDOM(PLACE) : -1;
                    params[i] = place + x->param;
                    grads[i] = x->grad < 0 ? NULL : place + x->grad;
                }
                status = adamod_set_arrays(opt, 4, ids, params, grads);
                /* One that is given twice is checked as it is first, too. */
                bool twice = false;
                for (int i = 0; i < 16; i++) twice |= i / 4 != i % 4 && ids[i / 4] == ids[i % 4];
                if (twice && status) continue;
            }
            const int count = what == 0 && n < FEW ? n + 1 : n;
            const bool good = apart(next, count);
            if (!CHECK_INT(status, good ? ADAMOD_OK : ADAMOD_ERROR_ARGUMENT)) return;
            done += good;
            refusals += !good;
            if (!good) continue;
            memcpy(s, next, sizeof s);
            n = count;
        }
        adamod_free(opt);
    }
#undef RANDOM
    CHECK(done > 100 && refusals > 100);
}

RUN_TESTS(ENTRY(overlaps), ENTRY(time_of_many_parameters), ENTRY(overlaps_of_random_arrays), ENTRY(misaligned),
          ENTRY(empty_arrays), ENTRY(sizes), ENTRY(names_of_parameters), ENTRY(many_parameters),
          ENTRY(empty_arrays_and_scalars), ENTRY(many_arrays_in_one_call), ENTRY(frozen_parameters),
          ENTRY(frozen_under_every_rule), ENTRY(steps_that_are_set))
