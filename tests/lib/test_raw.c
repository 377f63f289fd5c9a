/* Tests of arrays that are the caller's: the raw interface, and states that the caller keeps for a handle.
 *
 * SPDX-License-Identifier: MIT
 */
#include "values.h"
#include "api_fixture.h"

#include <math.h>
#include <stdlib.h>

/* ---- Updates as the handle does them ------------------------------------------------------------------------------ */

TEST(state_descriptions) {
    adamod_hyper *h = NULL;
    adamod_state_desc desc;
    const int64_t shape[] = {2, 3, 4}, negative[] = {2, -3}, huge[] = {INT64_MAX, 2}, queue[] = {INT64_MAX / 16};
    const int64_t deep[] = {1, 1, 1, 1, 1, 1, 1, 1};
    if (!CHECK_INT(adamod_hyper_create(&h, "adafactor"), ADAMOD_OK)) return;
    CHECK_INT(adamod_state_at(h, 3, shape, 0, &desc), ADAMOD_OK);
    CHECK(desc.name == NULL && desc.count == 0);
    CHECK_INT(adamod_state_at(h, 3, shape, 1, &desc), ADAMOD_OK);
    CHECK_STR(desc.name, "exp_avg_sq_row");
    CHECK(desc.ndim == 2 && desc.shape[0] == 2 && desc.shape[1] == 3 && desc.count == 6 && desc.initial == 0);
    CHECK_INT(adamod_state_at(h, 3, shape, 2, &desc), ADAMOD_OK);
    CHECK_STR(desc.name, "exp_avg_sq_col");
    CHECK(desc.ndim == 2 && desc.shape[0] == 2 && desc.shape[1] == 4 && desc.count == 8);
    CHECK_INT(adamod_state_at(h, 3, shape, 3, &desc), ADAMOD_OK);
    CHECK(desc.name == NULL);
    CHECK_INT(adamod_state_at(h, 0, NULL, 1, &desc), ADAMOD_OK);
    CHECK_STR(desc.name, "exp_avg_sq");
    CHECK(desc.ndim == 0 && desc.count == 1);
    CHECK_INT(adamod_state_at(h, 1, NULL, 1, &desc), ADAMOD_ERROR_ARGUMENT);
    CHECK_HAS(adamod_last_error(), "state_at: shape is NULL");
    CHECK_INT(adamod_state_at(h, -1, shape, 1, &desc), ADAMOD_ERROR_ARGUMENT);
    CHECK_INT(adamod_state_at(h, 9, shape, 1, &desc), ADAMOD_ERROR_ARGUMENT);
    CHECK_INT(adamod_state_at(h, 2, negative, 1, &desc), ADAMOD_ERROR_ARGUMENT);
    CHECK_INT(adamod_state_at(h, 2, huge, 1, &desc), ADAMOD_ERROR_ARGUMENT);
    CHECK_INT(adamod_state_at(h, 3, shape, 8, &desc), ADAMOD_ERROR_RANGE);
    CHECK_HAS(adamod_last_error(), "state index is 8, expected 0 <= index < 8");
    CHECK_INT(adamod_state_at(h, 3, shape, -1, &desc), ADAMOD_ERROR_RANGE);
    CHECK_INT(adamod_state_at(h, 3, shape, 1, NULL), ADAMOD_ERROR_ARGUMENT);
    adamod_hyper_free(h);

    if (!CHECK_INT(adamod_hyper_create(&h, "adashift"), ADAMOD_OK)) return;
    CHECK_INT(adamod_hyper_set(h, "window", 5), ADAMOD_OK);
    CHECK_INT(adamod_state_at(h, 3, shape, 2, &desc), ADAMOD_OK);
    CHECK_STR(desc.name, "grad_queue");
    CHECK(desc.ndim == 4 && desc.shape[0] == 5 && desc.shape[1] == 2 && desc.shape[3] == 4 && desc.count == 120);
    CHECK_INT(adamod_state_at(h, 3, shape, 1, &desc), ADAMOD_OK);
    CHECK(desc.ndim == 0 && desc.count == 1);
    CHECK_INT(adamod_state_at(h, 1, queue, 2, &desc), ADAMOD_ERROR_ARGUMENT);
    CHECK_INT(adamod_state_at(h, 8, deep, 2, &desc), ADAMOD_ERROR_ARGUMENT);
    adamod_hyper_free(h);

    if (!CHECK_INT(adamod_hyper_create(&h, "adagrad"), ADAMOD_OK)) return;
    CHECK_INT(adamod_hyper_set(h, "initial", 0.25), ADAMOD_OK);
    CHECK_INT(adamod_state_at(h, 3, shape, 1, &desc), ADAMOD_OK);
    CHECK(desc.initial == 0.25 && desc.count == 24);
    adamod_hyper_free(h);
}

/* Arrays that belong to the caller, as adamod_state_at asks for them; in the type of computation. */
typedef struct owned {
    adamod_span span;
    void *blocks[ADAMOD_MAX_STATES];
} owned;

static void own(const adamod_hyper *h, owned *x, const adamod_tensor *t, adamod_type state_type) {
    memset(x, 0, sizeof *x);
    x->span = (adamod_span){.param = t->param,
                            .grad = t->grad,
                            .param_type = t->param_type,
                            .grad_type = t->grad_type,
                            .state_type = state_type,
                            .ndim = t->ndim,
                            .count = 1};
    memcpy(x->span.shape, t->shape, sizeof t->shape);
    for (int d = 0; d < t->ndim; d++) x->span.count *= t->shape[d];
    for (int i = 0; i < ADAMOD_MAX_STATES; i++) {
        adamod_state_desc desc;
        CHECK_INT(adamod_state_at(h, t->ndim, t->shape, i, &desc), ADAMOD_OK);
        if (!desc.name) continue;
        x->blocks[i] = x->span.state[i] = calloc((size_t)desc.count + 1, 8);
        CHECK(desc.initial == 0);
    }
}

static void disown(owned *x) {
    for (int i = 0; i < ADAMOD_MAX_STATES; i++) free(x->blocks[i]);
}

TEST(raw_updates_are_the_handles) {
    for (int r = 0; adamod_rule_name(r); r++) {
        api_fixture f, mine;
        owned x[PARAMETERS];
        adamod_span spans[PARAMETERS];
        adamod_hyper *h = NULL;
        float master[9];
        if (!api_fixture_make(&f, adamod_rule_name(r), 0)) return;
        api_fixture_arrays(&mine, adamod_rule_name(r));
        CHECK_INT(adamod_hyper_create(&h, adamod_rule_name(r)), ADAMOD_OK);
        CHECK_INT(adamod_hyper_set(h, "lr", 0.0625), ADAMOD_OK);
        CHECK_INT(adamod_set(f.opt, "lr", 0.0625), ADAMOD_OK);
        for (int i = 0; i < 9; i++) {
            const uint32_t bits = (uint32_t)mine.half[i] << 16;
            memcpy(&master[i], &bits, sizeof bits);
        }
        for (int i = 0; i < PARAMETERS; i++) {
            const adamod_tensor t = api_fixture_tensor(&mine, i);
            own(h, &x[i], &t, t.param_type == ADAMOD_F64 ? ADAMOD_F64 : ADAMOD_F32);
            if (i == HALF) x[i].span.master = master;
        }
        for (int step = 1; step <= 14; step++) {
            CHECK_INT(adamod_step(f.opt), ADAMOD_OK);
            for (int i = 0; i < PARAMETERS; i++) {
                spans[i] = x[i].span;
                spans[i].step = step;
                spans[i].stream = (uint64_t)i;
            }
            CHECK_INT(adamod_update(h, spans, PARAMETERS, NULL), ADAMOD_OK);
        }
        CHECK(memcmp(f.matrix, mine.matrix, sizeof f.matrix) == 0);
        CHECK(memcmp(f.half, mine.half, sizeof f.half) == 0);
        CHECK(f.scalar == mine.scalar);
        CHECK(memcmp(f.frozen, mine.frozen, sizeof f.frozen) == 0);
        for (int i = 0; i < PARAMETERS; i++) disown(&x[i]);
        adamod_hyper_free(h);
        adamod_free(f.opt);
    }
}

/* ---- States that the caller keeps -------------------------------------------------------------------------------- */

/* An optimizer whose states, masters included, are the caller's does what another does; halfway it is thrown away and a
 * new one goes on with the same states. */
TEST(states_the_caller_keeps) {
    for (int r = 0; adamod_rule_name(r); r++) {
        api_fixture f, mine;
        owned x[PARAMETERS];
        adamod_hyper *h = NULL;
        float master[9];
        if (!api_fixture_make(&f, adamod_rule_name(r), 0)) return;
        api_fixture_arrays(&mine, adamod_rule_name(r));
        CHECK_INT(adamod_hyper_create(&h, adamod_rule_name(r)), ADAMOD_OK);
        for (int i = 0; i < 9; i++) {
            const uint32_t bits = (uint32_t)mine.half[i] << 16;
            memcpy(&master[i], &bits, sizeof bits);
        }
        for (int i = 0; i < PARAMETERS; i++) {
            const adamod_tensor t = api_fixture_tensor(&mine, i);
            own(h, &x[i], &t, ADAMOD_F32);
        }
        for (int half = 0; half < 2; half++) {
            size_t states = 1;
            CHECK_INT(adamod_create(&mine.opt, adamod_rule_name(r)), ADAMOD_OK);
            CHECK_INT(adamod_add_group(mine.opt, &mine.group), ADAMOD_OK);
            CHECK_INT(adamod_group_set(mine.opt, mine.group, "lr", 0.0625), ADAMOD_OK);
            for (int i = 0; i < PARAMETERS; i++) {
                adamod_tensor t = api_fixture_tensor(&mine, i);
                memcpy(t.state, x[i].blocks, sizeof t.state);
                if (i == HALF) t.master = master;
                CHECK_INT(adamod_add_tensor(mine.opt, i == HALF ? mine.group : 0, &t, NULL), ADAMOD_OK);
                if (i != FROZEN) CHECK_INT(adamod_set_tensor_steps(mine.opt, i, 7 * half), ADAMOD_OK);
            }
            CHECK_INT(adamod_steps(mine.opt), 7 * half);
            adamod_memory(mine.opt, &states, NULL);
            CHECK_INT(states, 0);
            for (int step = 0; step < 7; step++) {
                CHECK_INT(adamod_step(f.opt), ADAMOD_OK);
                CHECK_INT(adamod_step(mine.opt), ADAMOD_OK);
            }
            CHECK_INT(adamod_steps(mine.opt), 7 * half + 7);
            adamod_free(mine.opt);
        }
        CHECK(memcmp(f.matrix, mine.matrix, sizeof f.matrix) == 0);
        CHECK(memcmp(f.half, mine.half, sizeof f.half) == 0);
        CHECK(f.scalar == mine.scalar);
        for (int i = 0; i < PARAMETERS; i++) disown(&x[i]);
        adamod_hyper_free(h);
        adamod_free(f.opt);
    }
}

TEST(states_the_caller_keeps_are_checked) {
    api_fixture f;
    if (!api_fixture_make(&f, "adamod", 3)) return;
    float a[48] = {0};
    void *state = NULL;
    adamod_tensor t = {.name = "t", .param = a, .grad = a + 4, .ndim = 1, .shape = {4}};
#define STATES(m, v, s, status, says)                                                                                  \
    t.state[0] = (m), t.state[1] = (v), t.state[2] = (s);                                                              \
    REFUSED(&f, adamod_add_tensor(f.opt, 0, &t, NULL), status, says)
    STATES(a + 8, NULL, a + 16, ADAMOD_ERROR_ARGUMENT, "t: state[1], exp_avg_sq, is NULL, but other states are set");
    STATES(NULL, NULL, a + 16, ADAMOD_ERROR_ARGUMENT, "t: state[0], exp_avg, is NULL");
    STATES(a + 8, a + 11, a + 16, ADAMOD_ERROR_ARGUMENT, "t: exp_avg and exp_avg_sq overlap");
    STATES(a + 8, a + 12, a + 3, ADAMOD_ERROR_ARGUMENT, "t: param and exp_avg_lr overlap");
    STATES(a + 8, a + 7, a + 16, ADAMOD_ERROR_ARGUMENT, "t: grad and exp_avg_sq overlap");
    STATES(f.matrix + 2, a + 12, a + 16, ADAMOD_ERROR_ARGUMENT, "t: its exp_avg overlaps param of matrix");
    STATES(a + 8, f.matrix_grad, a + 16, ADAMOD_ERROR_ARGUMENT, "t: its exp_avg_sq overlaps grad of matrix");
    STATES(a + 8, a + 12, (char *)(a + 16) + 2, ADAMOD_ERROR_ARGUMENT, "t: exp_avg_lr is not aligned");
    CHECK_INT(adamod_state(f.opt, MATRIX, "exp_avg", &state, NULL, NULL), ADAMOD_OK);
    STATES(a + 8, a + 12, state, ADAMOD_ERROR_ARGUMENT, "t: its exp_avg_lr overlaps exp_avg of matrix");
    t.state[3] = a + 20;
    STATES(a + 8, a + 12, a + 16, ADAMOD_ERROR_ARGUMENT, "t: state[3] is set, but adamod has no such state");
    t.state[3] = NULL;
#undef STATES
    /* They belong to the user as the parameter does: no other array may overlap them, and they are found by name. */
    CHECK_INT(adamod_add_tensor(f.opt, 0, &t, NULL), ADAMOD_OK);
    CHECK_INT(adamod_state(f.opt, PARAMETERS, "exp_avg_sq", &state, NULL, NULL), ADAMOD_OK);
    CHECK(state == a + 12);
    REFUSED(&f, adamod_set_grad(f.opt, MATRIX, a + 9), ADAMOD_ERROR_ARGUMENT, "matrix: its gradient overlaps a state");
    adamod_tensor u = {.name = "u", .param = a + 16, .ndim = 1, .shape = {2}};
    REFUSED(&f, adamod_add_tensor(f.opt, 0, &u, NULL), ADAMOD_ERROR_ARGUMENT, "u: its parameters overlap a state of t");
    u = (adamod_tensor){.name = "u", .param = a + 20, .ndim = 1, .shape = {4}, .state = {a + 24, a + 28, a + 15}};
    REFUSED(&f, adamod_add_tensor(f.opt, 0, &u, NULL), ADAMOD_ERROR_ARGUMENT, "u: its exp_avg_lr overlaps exp_avg");
    CHECK_INT(adamod_step(f.opt), ADAMOD_OK);
    CHECK_INT(adamod_save(f.opt, "test_raw_given.safetensors"), ADAMOD_OK);
    a[8] = 5;
    CHECK_INT(adamod_load(f.opt, "test_raw_given.safetensors"), ADAMOD_OK);
    CHECK(a[8] == 5);
    remove("test_raw_given.safetensors");
    adamod_free(f.opt);
}

/* ---- What is refused --------------------------------------------------------------------------------------------- */

/* All arrays of one bf16 parameter, apart from each other. */
typedef struct raw_arrays {
    uint16_t p[64];
    float g[64], master[64], m[64], v[64], s[64];
    _Alignas(8) float spare[600];
} raw_arrays;

static adamod_span raw_span(raw_arrays *a) {
    return (adamod_span){.param = a->p,
                         .grad = a->g,
                         .master = a->master,
                         .state = {a->m, a->v, a->s},
                         .param_type = ADAMOD_BF16,
                         .count = 64,
                         .step = 1};
}

/* adamod_update fails, says this, and leaves all arrays as they were; adamod_check finds the same. */
static void raw_refused(const adamod_hyper *h, raw_arrays *a, const adamod_span *spans, size_t n, adamod_status status,
                        const char *part, int line) {
    static raw_arrays copy;
    copy = *a;
    const adamod_hyper *hypers[4] = {h, h, h, h};
    check_int(n <= 4 && spans ? keep_message(adamod_check(hypers, spans, n)) : status, status, part, __FILE__, line);
    check_int(keep_message(adamod_update(h, spans, n, NULL)), status, part, __FILE__, line);
    check_has(message, part, "the message", __FILE__, line);
    check_true(memcmp(&copy, a, sizeof copy) == 0, "nothing changes", __FILE__, line);
}
#define RAW_REFUSED(spans, n, status, part) raw_refused(h, &a, spans, n, status, part, __LINE__)

static void raw_fill(raw_arrays *a) {
    memset(a, 0, sizeof *a);
    for (uint64_t i = 0; i < 64; i++) {
        a->p[i] = to_bf16(noise(i));
        a->master[i] = (float)noise(i);
        a->g[i] = (float)noise(64 + i);
    }
}

TEST(raw_overlaps) {
    static raw_arrays a;
    adamod_hyper *h = NULL;
    if (!CHECK_INT(adamod_hyper_create(&h, "adamod"), ADAMOD_OK)) return;
    raw_fill(&a);
    static const char *const names[] = {"param", "grad", "master", "exp_avg", "exp_avg_sq", "exp_avg_lr"};
    for (int i = 0; i < 6; i++) {
        for (int j = 0; j < 6; j++) {
            if (i == j) continue;
            /* array j begins in the last element of array i */
            adamod_span x = raw_span(&a);
            void **at[] = {&x.param, NULL, &x.master, &x.state[0], &x.state[1], &x.state[2]};
            char *from = i == 1 ? (char *)(uintptr_t)x.grad : *at[i];
            from += i == 0 ? 63 * 2 : 63 * 4;
            if (i == 0) from = (char *)a.p + 124; /* aligned for a float */
            if (j == 1) x.grad = from;
            else *at[j] = from;
            /* what follows array i in memory is not to be met as well */
            char both[64];
            snprintf(both, sizeof both, "%s and %s overlap", names[i < j ? i : j], names[i < j ? j : i]);
            const adamod_status status = keep_message(adamod_update(h, &x, 1, NULL));
            CHECK_INT(status, ADAMOD_ERROR_ARGUMENT);
            CHECK_HAS(message, "span 0: ");
            CHECK_HAS(message, "overlap");
            CHECK_HAS(message, names[j]);
            x = raw_span(&a);
            void **again[] = {&x.param, NULL, &x.master, &x.state[0], &x.state[1], &x.state[2]};
            from = i == 1 ? (char *)(uintptr_t)x.grad : *again[i];
            if (j == 1) x.grad = from; /* the very same array */
            else *again[j] = from;
            RAW_REFUSED(&x, 1, ADAMOD_ERROR_ARGUMENT, both);
        }
    }
    /* Two arrays of one call are updated at the same time, so what one writes the other must not touch. */
    static raw_arrays b;
    raw_fill(&b);
    for (int i = 0; i < 6; i++) {
        adamod_span both[2] = {raw_span(&a), raw_span(&b)};
        void **at[] = {&both[1].param, NULL, &both[1].master, &both[1].state[0], &both[1].state[1], &both[1].state[2]};
        const void *shared[] = {a.p, a.master, a.master, a.m, a.v, a.s};
        if (i == 1) both[1].grad = shared[i];
        else *at[i] = (void *)(uintptr_t)shared[i];
        RAW_REFUSED(both, 2, ADAMOD_ERROR_ARGUMENT, "overlap");
    }
    adamod_span both[2] = {raw_span(&a), raw_span(&b)};
    both[1].grad = a.g; /* only read */
    CHECK_INT(adamod_update(h, both, 2, NULL), ADAMOD_OK);
    adamod_hyper_free(h);
}

/* Groups that are updated one after the other are checked together before. */
TEST(raw_checks_of_several_groups) {
    adamod_hyper *adamod = NULL, *sgd = NULL;
    CHECK_INT(adamod_hyper_create(&adamod, "adamod"), ADAMOD_OK);
    CHECK_INT(adamod_hyper_create(&sgd, "sgd"), ADAMOD_OK);
    float p[20] = {0}, g[8] = {0}, m[8] = {0}, v[8] = {0}, s[8] = {0};
    const adamod_hyper *hypers[2] = {sgd, adamod};
    adamod_span x[2] = {{.param = p, .grad = g, .count = 8, .step = 1},
                        {.param = p + 8, .grad = g, .state = {m, v, s}, .count = 8, .step = 1}};
    CHECK_INT(adamod_check(hypers, x, 2), ADAMOD_OK);
    x[1].param = p + 7;
    CHECK_INT(adamod_check(hypers, x, 2), ADAMOD_ERROR_ARGUMENT);
    CHECK_HAS(adamod_last_error(), "param of span 0 and param of span 1 overlap");
    x[1].param = p + 8;
    x[1].state[2] = NULL; /* which the other rule has no need of */
    CHECK_INT(adamod_check(hypers, x, 2), ADAMOD_ERROR_ARGUMENT);
    CHECK_HAS(adamod_last_error(), "span 1: state[2], exp_avg_lr, is NULL");
    hypers[1] = NULL;
    CHECK_INT(adamod_check(hypers, x, 2), ADAMOD_ERROR_ARGUMENT);
    CHECK_HAS(adamod_last_error(), "span 1: its hyper is NULL");
    CHECK_INT(adamod_check(NULL, x, 2), ADAMOD_ERROR_ARGUMENT);
    CHECK_INT(adamod_check(hypers, NULL, 2), ADAMOD_ERROR_ARGUMENT);
    CHECK_INT(adamod_check(NULL, NULL, 0), ADAMOD_OK);
    adamod_hyper_free(adamod);
    adamod_hyper_free(sgd);
}

TEST(raw_arguments) {
    static raw_arrays a;
    adamod_hyper *h = NULL;
    if (!CHECK_INT(adamod_hyper_create(&h, "adamod"), ADAMOD_OK)) return;
    raw_fill(&a);
    adamod_span x[2];
#define WITH(change)                                                                                                   \
    x[0] = x[1] = raw_span(&a);                                                                                        \
    x[0].grad = NULL;                                                                                                  \
    x[0].param = x[0].master = x[0].state[0] = x[0].state[1] = x[0].state[2] = NULL;                                   \
    x[0].count = 0;                                                                                                    \
    x[1].change
    WITH(param = NULL);
    RAW_REFUSED(x, 2, ADAMOD_ERROR_ARGUMENT, "span 1: param is NULL");
    WITH(state[0] = NULL);
    RAW_REFUSED(x, 2, ADAMOD_ERROR_ARGUMENT, "span 1: state[0], exp_avg, is NULL");
    WITH(state[2] = NULL);
    RAW_REFUSED(x, 2, ADAMOD_ERROR_ARGUMENT, "span 1: state[2], exp_avg_lr, is NULL");
    WITH(count = -1);
    RAW_REFUSED(x, 2, ADAMOD_ERROR_ARGUMENT, "span 1: count is -1, expected 0 <= count < 2^" COUNT_BITS);
    WITH(count = INT64_MAX);
    RAW_REFUSED(x, 2, ADAMOD_ERROR_ARGUMENT, "span 1: count is");
    WITH(count = INT64_MAX / 8 + 1);
    RAW_REFUSED(x, 2, ADAMOD_ERROR_ARGUMENT, "span 1: count is");
    WITH(step = 0);
    RAW_REFUSED(x, 2, ADAMOD_ERROR_RANGE, "span 1: step is 0, expected 1 or more");
    WITH(step = INT64_MIN);
    RAW_REFUSED(x, 2, ADAMOD_ERROR_RANGE, "span 1: step is");
    WITH(ndim = -1);
    RAW_REFUSED(x, 2, ADAMOD_ERROR_ARGUMENT, "span 1: ndim is -1");
    WITH(ndim = 9);
    RAW_REFUSED(x, 2, ADAMOD_ERROR_ARGUMENT, "span 1: ndim is 9");
    WITH(ndim = 2);
    x[1].shape[0] = 8;
    x[1].shape[1] = 7;
    RAW_REFUSED(x, 2, ADAMOD_ERROR_ARGUMENT, "span 1: count is 64, its shape gives 56");
    WITH(param_type = (adamod_type)7);
    RAW_REFUSED(x, 2, ADAMOD_ERROR_ARGUMENT, "span 1: param_type is 7");
    WITH(grad_type = (adamod_type)-3);
    RAW_REFUSED(x, 2, ADAMOD_ERROR_ARGUMENT, "span 1: grad_type is -3, expected ADAMOD_F32, _F64, _BF16 or _F16");
    WITH(state_type = ADAMOD_F16);
    RAW_REFUSED(x, 2, ADAMOD_ERROR_ARGUMENT, "span 1: state_type is f16, expected f32 or bf16");
    WITH(state_type = ADAMOD_F64);
    RAW_REFUSED(x, 2, ADAMOD_ERROR_ARGUMENT, "span 1: state_type is f64, expected f32 or bf16");
    WITH(state_type = (adamod_type)12);
    RAW_REFUSED(x, 2, ADAMOD_ERROR_ARGUMENT, "span 1: state_type is");
    WITH(param_type = ADAMOD_F32);
    x[1].param = a.spare;
    RAW_REFUSED(x, 2, ADAMOD_ERROR_ARGUMENT, "span 1: f32 parameters take no master");
    WITH(param = (char *)a.p + 1);
    RAW_REFUSED(x, 2, ADAMOD_ERROR_ARGUMENT, "span 1: param is not aligned");
    WITH(grad = (char *)a.spare + 2);
    RAW_REFUSED(x, 2, ADAMOD_ERROR_ARGUMENT, "span 1: grad is not aligned");
    WITH(state[1] = (char *)a.spare + 2);
    RAW_REFUSED(x, 2, ADAMOD_ERROR_ARGUMENT, "span 1: exp_avg_sq is not aligned");
    WITH(master = (char *)a.spare + 2);
    RAW_REFUSED(x, 2, ADAMOD_ERROR_ARGUMENT, "span 1: master is not aligned");
    CHECK_INT(adamod_update(h, NULL, 1, NULL), ADAMOD_ERROR_ARGUMENT);
    CHECK_INT(adamod_update(h, NULL, 0, NULL), ADAMOD_OK);
    WITH(step = 1);
    CHECK_INT(adamod_update(h, x, 2, NULL), ADAMOD_OK);
    WITH(grad = NULL); /* passed over */
    const raw_arrays copy = a;
    CHECK_INT(adamod_update(h, x, 2, NULL), ADAMOD_OK);
    CHECK(memcmp(&copy, &a, sizeof a) == 0);
    /* bf16 states may lie where floats may not */
    WITH(state_type = ADAMOD_BF16);
    for (int i = 0; i < 3; i++) x[1].state[i] = (char *)a.spare + 2 + i * 200;
    CHECK_INT(adamod_update(h, x, 2, NULL), ADAMOD_OK);
    adamod_hyper_free(h);
}

/* States of f64 parameters are f64: whoever says f32 has arrays half as long as what would be written. */
TEST(raw_states_of_another_type) {
    static raw_arrays a;
    adamod_hyper *h = NULL;
    double p[8] = {0};
    if (!CHECK_INT(adamod_hyper_create(&h, "adamod"), ADAMOD_OK)) return;
    raw_fill(&a);
    adamod_span x = {.param = p,
                     .grad = a.g,
                     .state = {a.spare, a.spare + 100, a.spare + 200},
                     .count = 8,
                     .step = 1,
                     .param_type = ADAMOD_F64,
                     .state_type = ADAMOD_F32};
    RAW_REFUSED(&x, 1, ADAMOD_ERROR_ARGUMENT, "state_type is f32, expected f64 or bf16");
    x.state_type = ADAMOD_F16;
    RAW_REFUSED(&x, 1, ADAMOD_ERROR_ARGUMENT, "state_type is f16, expected f64 or bf16");
    x.state_type = ADAMOD_F64;
    CHECK_INT(adamod_update(h, &x, 1, NULL), ADAMOD_OK);
    x.state_type = ADAMOD_BF16;
    CHECK_INT(adamod_update(h, &x, 1, NULL), ADAMOD_OK);
    adamod_hyper_free(h);
}

/* ---- Norms and random numbers ------------------------------------------------------------------------------------- */

TEST(raw_norm) {
    const float g[] = {3, -4, NAN};
    const double d[] = {12, 84};
    double norm = 5;
    adamod_span x[] = {{.grad = g, .count = 2}, {.count = 1000}, {.grad = d, .count = 2, .grad_type = ADAMOD_F64}};
    CHECK_INT(adamod_norm(x, 1, NULL, &norm), ADAMOD_OK);
    CHECK(norm == 5);
    CHECK_INT(adamod_norm(x, 3, NULL, &norm), ADAMOD_OK);
    CHECK(norm == 85);
    CHECK_INT(adamod_norm(x, 0, NULL, &norm), ADAMOD_OK);
    CHECK(norm == 0);
    x[0].count = 3;
    CHECK_INT(adamod_norm(x, 3, NULL, &norm), ADAMOD_OK);
    CHECK(isnan(norm));
    const double infinite[] = {1, -INFINITY}, large[] = {3e200, -4e200}, small[] = {3e-200, 4e-200};
    x[0] = (adamod_span){.grad = infinite, .count = 2, .grad_type = ADAMOD_F64};
    CHECK_INT(adamod_norm(x, 1, NULL, &norm), ADAMOD_OK);
    CHECK(isinf(norm));
    x[0].grad = large;
    CHECK_INT(adamod_norm(x, 1, NULL, &norm), ADAMOD_OK);
    CHECK_CLOSE(norm / 5e200, 1, 1e-14);
    x[0].grad = small;
    CHECK_INT(adamod_norm(x, 1, NULL, &norm), ADAMOD_OK);
    CHECK_CLOSE(norm / 5e-200, 1, 1e-14);
    norm = 5;
    x[0].count = -1;
    CHECK_INT(adamod_norm(x, 1, NULL, &norm), ADAMOD_ERROR_ARGUMENT);
    CHECK_HAS(adamod_last_error(), "span 0: count is -1");
    x[0].count = 2;
    x[0].grad_type = (adamod_type)9;
    CHECK_INT(adamod_norm(x, 1, NULL, &norm), ADAMOD_ERROR_ARGUMENT);
    x[0].grad_type = ADAMOD_F64;
    x[0].grad = (const char *)large + 2;
    x[0].count = 1;
    CHECK_INT(adamod_norm(x, 1, NULL, &norm), ADAMOD_ERROR_ARGUMENT);
    CHECK_HAS(adamod_last_error(), "not aligned");
    x[0] = (adamod_span){.count = INT64_MAX};
    CHECK_INT(adamod_norm(x, 1, NULL, &norm), ADAMOD_ERROR_ARGUMENT);
    CHECK(norm == 5);
}

/* Random numbers of stochastic rounding: another for each stream, step and seed, the same for the same. */
TEST(raw_streams) {
    enum { N = 600 };
    static uint16_t p[5][N];
    static float g[N];
    adamod_hyper *h = NULL;
    if (!CHECK_INT(adamod_hyper_create(&h, "sgd"), ADAMOD_OK)) return;
    CHECK_INT(adamod_hyper_set(h, "lr", 1e-3), ADAMOD_OK);
    for (uint64_t i = 0; i < N; i++) g[i] = (float)noise(i);
    for (int k = 0; k < 5; k++) {
        for (uint64_t i = 0; i < N; i++) p[k][i] = to_bf16(noise(1000 + i));
        const adamod_span x = {.param = p[k],
                               .grad = g,
                               .param_type = ADAMOD_BF16,
                               .count = N,
                               .step = k == 2 ? 8 : 7,
                               .stream = k == 3 ? 6 : 5};
        CHECK_INT(adamod_hyper_set(h, "seed", k == 4 ? 4 : 3), ADAMOD_OK);
        CHECK_INT(adamod_update(h, &x, 1, NULL), ADAMOD_OK);
    }
    CHECK(memcmp(p[0], p[1], sizeof p[0]) == 0);
    for (int k = 2; k < 5; k++) CHECK(memcmp(p[0], p[k], sizeof p[0]) != 0);
    adamod_hyper_free(h);
}

RUN_TESTS(ENTRY(state_descriptions), ENTRY(raw_updates_are_the_handles), ENTRY(states_the_caller_keeps),
          ENTRY(states_the_caller_keeps_are_checked), ENTRY(raw_overlaps), ENTRY(raw_checks_of_several_groups),
          ENTRY(raw_arguments), ENTRY(raw_states_of_another_type), ENTRY(raw_norm), ENTRY(raw_streams))
