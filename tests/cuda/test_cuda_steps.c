/* Steps of optimizers on a GPU are those of the CPU, bit for bit, whatever comes between: gradients that are clipped, scaled
 * or not finite, schedules, groups, statistics, arrays that move, files. Skipped where there is no GPU.
 *
 * SPDX-License-Identifier: MIT
 */
#define _GNU_SOURCE
#include "cuda_pair.h"

#include <math.h>
#include <stdlib.h>
#include <unistd.h>

/* ---- gradients ---- */

TEST(clipping_and_scaling) {
    NEED_CUDA;
    static const char *const modes[] = {"clip_norm=1", "clip_norm=1000000", "grad_scale=0.001 clip_norm=0.1",
                                        "grad_scale=128 clip_value=3", "nonfinite=skip"};
    for (int i = 0; i < 5; i++) {
        pair *x = pair_new("adamod");
        pair_set(x, modes[i]);
        pair_add(x, ADAMOD_F32, 100003);
        pair_add_at(x, 0, ADAMOD_BF16, ADAMOD_BF16, 1, &(int64_t){9001}, 0);
        pair_add_at(x, 0, ADAMOD_F16, ADAMOD_F16, 1, &(int64_t){700}, 1);
        pair_add_at(x, 0, ADAMOD_F64, ADAMOD_F64, 1, &(int64_t){20000}, 0);
        for (int t = 0; t < 4; t++) {
            pair_grads(x);
            pair_step(x);
            CHECK(adamod_grad_norm(x->cpu) == adamod_grad_norm(x->gpu));
        }
        CHECK(pair_same(x));
        pair_free(x);
    }
}

/* Squares of these overflow, or vanish. */
TEST(norms_beyond_the_range_of_squares) {
    NEED_CUDA;
    static const double scales[] = {1e200, 1e-200, 0};
    for (int i = 0; i < 3; i++) {
        pair *x = pair_new("sgd");
        pair_set(x, "clip_norm=1");
        pair_add(x, ADAMOD_F64, 10000);
        pair_add(x, ADAMOD_F32, 3000);
        pair_grads(x);
        for (size_t k = 0; k < x->arrays[0].count; k++) ((double *)x->arrays[0].g)[k] *= scales[i];
        for (size_t k = 0; k < x->arrays[1].count; k++) ((float *)x->arrays[1].g)[k] = 0;
        pair_send_grads(x);
        pair_step(x);
        CHECK(adamod_grad_norm(x->cpu) == adamod_grad_norm(x->gpu));
        CHECK(pair_same(x));
        pair_free(x);
    }
}

TEST(gradients_that_are_not_finite) {
    NEED_CUDA;
    static const float bad[] = {NAN, INFINITY, -INFINITY};
    for (int i = 0; i < 3; i++) {
        pair *x = pair_new("adamod");
        pair_set(x, "nonfinite=skip clip_norm=5");
        pair_add(x, ADAMOD_F32, 5000);
        pair_add(x, ADAMOD_F32, 100);
        pair_run(x, 2);
        pair_grads(x);
        ((float *)x->arrays[1].g)[42] = bad[i];
        pair_send_grads(x);
        pair_step(x);
        CHECK_INT(adamod_skipped(x->gpu), 1);
        CHECK(pair_same(x));
        pair_run(x, 2);
        CHECK_INT(adamod_steps(x->gpu), 4);
        pair_set(x, "nonfinite=pass");
        pair_grads(x);
        ((float *)x->arrays[1].g)[42] = bad[i];
        pair_send_grads(x);
        pair_step(x);
        CHECK(pair_same(x));
        pair_free(x);
    }
}

TEST(gradients_beyond_f32) {
    NEED_CUDA;
    static const struct {
        const char *options;
        double g;
        int skipped;
    } cases[] = {{"", 1e300, 1},
                 {"clip_norm=1", 1e300, 1},
                 {"", 3.4e38, 1},
                 {"", 1.85e19, 1},
                 {"", 1.84e19, 0},
                 {"clip_norm=1", 3.4e38, 0},
                 {"clip_value=1", 3.4e38, 0},
                 {"clip_value=1e20", 3.4e38, 1},
                 {"grad_scale=1e30", 1e10, 1},
                 {"grad_scale=1e30 clip_norm=1", 1e10, 0}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        pair *x = pair_new("sgd");
        pair_set(x, "nonfinite=skip");
        pair_set(x, cases[i].options);
        pair_add_at(x, 0, ADAMOD_F32, ADAMOD_F64, 1, &(int64_t){700}, 0);
        for (size_t k = 0; k < 700; k++) ((double *)x->arrays[0].g)[k] = k == 600 ? cases[i].g : 0;
        pair_send_grads(x);
        pair_step(x);
        CHECK(pair_same(x));
        CHECK_INT(adamod_skipped(x->gpu), cases[i].skipped);
        pair_free(x);
    }
}

TEST(an_error_is_reported_once_and_nothing_changes) {
    NEED_CUDA;
    pair *x = pair_new("adamod");
    pair_set(x, "nonfinite=error");
    pair_add(x, ADAMOD_F32, 5000);
    pair_add(x, ADAMOD_F32, 3000);
    pair_run(x, 2);
    pair_grads(x);
    ((float *)x->arrays[1].g)[2999] = NAN;
    pair_send_grads(x);
    CHECK_INT(adamod_step(x->cpu), ADAMOD_ERROR_NONFINITE);
    char expected[256];
    snprintf(expected, sizeof expected, "%s", adamod_last_error());
    OK(adamod_step(x->gpu));
    CHECK_INT(adamod_sync(x->gpu), ADAMOD_ERROR_NONFINITE);
    CHECK_STR(adamod_last_error(), expected);
    OK(adamod_sync(x->gpu));
    CHECK(pair_same(x));
    OK(adamod_step(x->gpu)); /* the same gradients once more: the next step says so */
    DEVICE_OK(x->gpu->api->sync(x->gpu->device));
    CHECK_INT(adamod_step(x->gpu), ADAMOD_ERROR_NONFINITE);
    pair_run(x, 2);
    pair_free(x);
}

/* Finite, but its square is not: in f32 and f64, in the first and a later chunk, beside a NaN in another parameter. */
TEST(a_gradient_too_large_is_told_from_a_nan) {
    NEED_CUDA;
    for (int i = 0; i < 4; i++) {
        pair *x = pair_new("adam");
        pair_set(x, "nonfinite=error");
        pair_add(x, i % 2 ? ADAMOD_F64 : ADAMOD_F32, 30000);
        pair_add(x, ADAMOD_F32, 300);
        pair_run(x, 2);
        pair_grads(x);
        const size_t at = i < 2 ? 5 : 29999;
        if (i % 2) ((double *)x->arrays[0].g)[at] = -1e200;
        else ((float *)x->arrays[0].g)[at] = -1e30f;
        ((float *)x->arrays[1].g)[0] = NAN;
        pair_send_grads(x);
        CHECK_INT(adamod_step(x->cpu), ADAMOD_ERROR_NONFINITE);
        char expected[256];
        snprintf(expected, sizeof expected, "%s", adamod_last_error());
        CHECK_HAS(expected, i % 2 ? "the square of 1e+200 overflows f64" : "the square of 1e+30 overflows f32");
        OK(adamod_step(x->gpu));
        CHECK_INT(adamod_sync(x->gpu), ADAMOD_ERROR_NONFINITE);
        CHECK_STR(adamod_last_error(), expected);
        CHECK(pair_same(x));
        pair_run(x, 2);
        pair_free(x);
    }
}

/* ---- groups, schedules, freezing ---- */

TEST(schedules) {
    NEED_CUDA;
    static const char *const texts[] = {"constant",          "multistep(3,6,9;0.1)",
                                        "warmup(1e-7,5)",    "warmup_rsqrt(1e-7,4)",
                                        "constant_rsqrt(4)", "cosine(0,8)",
                                        "linear(0.1,7)",     "warmup(0,3)*3 > multistep(2;0.5)*4 > cosine(1e-5,5)"};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        pair *x = pair_new("adamod");
        pair_add(x, ADAMOD_F32, 3000);
        pair_schedule(x, -1, "lr", texts[i]);
        pair_schedule(x, -1, "beta3", "linear(0.9999,10)");
        snprintf(x->what, sizeof x->what, "%s", texts[i]);
        pair_run(x, 12);
        double cpu = 0, gpu = 1;
        OK(adamod_scheduled(x->cpu, 0, "lr", &cpu));
        OK(adamod_scheduled(x->gpu, 0, "lr", &gpu));
        CHECK(cpu == gpu);
        pair_set(x, "lr=0.002");
        pair_run(x, 3);
        pair_free(x);
    }
}

TEST(a_schedule_out_of_bounds_is_an_error) {
    NEED_CUDA;
    pair *x = pair_new("adamod");
    pair_add(x, ADAMOD_F32, 300);
    pair_schedule(x, -1, "beta1", "linear(1,2)");
    pair_run(x, 1);
    pair_grads(x);
    CHECK_INT(adamod_step(x->cpu), ADAMOD_ERROR_RANGE);
    OK(adamod_step(x->gpu));
    CHECK_INT(adamod_sync(x->gpu), ADAMOD_ERROR_RANGE);
    CHECK_HAS(adamod_last_error(), "beta1 is 1, expected 0 <= beta1 < 1");
    CHECK(pair_same(x));
    pair_free(x);
}

/* Bounds of types: what a schedule gives in f32, in one of two groups, and what options make together. The device says
 * what the CPU says. */
TEST(numbers_out_of_the_range_of_their_type) {
    NEED_CUDA;
    static const struct {
        const char *rule, *options, *option, *schedule, *says;
    } cases[] = {
        {"sgd", "lr=1", "lr", "multistep(1;1e30)", "sgd: lr is 1e+30, expected lr <= 1.8e+19 in f32"},
        {"adam", "eps=1", "eps", "multistep(1;1e-40)", "adam: eps is 1e-40, expected eps >= 1.2e-38 in f32"},
        {"adam", "eps=1 lr=1000", "eps", "multistep(1;1e-37)",
         "adam: lr / (1 - beta1) / eps is 1e+41, expected at most"},
        {"rmsprop", "eps=1 lr=1000", "eps", "multistep(1;1e-37)",
         "rmsprop: lr / eps is 1e+40, expected at most 3.4e+38"},
        {"adabound", "lr=1e-15", "lr", "multistep(1;1e30)", "final_lr times lr's schedule is 1e+29, expected at most"},
        {"adamod", "lr=1", "lr", "multistep(1;1e200)", "adamod: lr is 1e+200, expected lr <= 1.3e+154 in f64"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        pair *x = pair_new(cases[i].rule);
        int g;
        OK(adamod_add_group(x->cpu, &g));
        OK(adamod_add_group(x->gpu, &g));
        pair_set(x, cases[i].options);
        const bool wide = strstr(cases[i].says, "f64") != NULL;
        pair_add(x, wide ? ADAMOD_F64 : ADAMOD_F32, 300);
        pair_add_at(x, g, ADAMOD_F64, ADAMOD_F64, 1, &(int64_t){200}, 0);
        pair_schedule(x, 0, cases[i].option, cases[i].schedule);
        if (!wide) pair_schedule(x, g, cases[i].option, "multistep(1;1e10)");
        pair_run(x, 1);
        pair_grads(x);
        CHECK_INT(adamod_step(x->cpu), ADAMOD_ERROR_RANGE);
        char expected[256];
        snprintf(expected, sizeof expected, "%s", adamod_last_error());
        CHECK_HAS(expected, cases[i].says);
        CHECK_INT(adamod_set(x->gpu, "none", 0), ADAMOD_ERROR_NAME); /* so that the words below are the GPU's */
        OK(adamod_step(x->gpu));
        CHECK_INT(adamod_sync(x->gpu), ADAMOD_ERROR_RANGE);
        CHECK_STR(adamod_last_error(), expected);
        CHECK(pair_same(x));
        CHECK_INT(adamod_steps(x->gpu), 1);
        /* and at once where it is set */
        CHECK_INT(adamod_group_set(x->gpu, 0, "lr", 1e300), ADAMOD_ERROR_RANGE);
        pair_free(x);
    }
}

/* A number in the device's memory is refused, too. */
TEST(device_values_out_of_the_range_of_their_type) {
    NEED_CUDA;
    pair *x = pair_new("adam");
    pair_add(x, ADAMOD_F32, 300);
    pair_run(x, 1);
    double *lr = device_alloc(sizeof *lr);
    for (int i = 0; i < 2; i++) {
        to_device(lr, &(double){i ? 1e-3 : 1e30}, sizeof *lr);
        OK(adamod_set_device_value(x->gpu, -1, "lr", lr, ADAMOD_F64));
        pair_grads(x);
        pair_send_grads(x);
        OK(adamod_step(x->gpu));
        CHECK_INT(adamod_sync(x->gpu), i ? ADAMOD_OK : ADAMOD_ERROR_RANGE);
        if (i == 0) CHECK_STR(adamod_last_error(), "adamod: adam: lr is 1e+30, expected lr <= 1.8e+19 in f32");
        CHECK_INT(adamod_steps(x->gpu), 1 + i);
    }
    OK(adamod_set_device_value(x->gpu, -1, "lr", NULL, ADAMOD_F64));
    device_free(lr);
    pair_free(x);
}

TEST(groups_and_freezing) {
    NEED_CUDA;
    static const char *const rules[] = {"adamod", "adabound", "rmsprop", "adafactor", "adashift"};
    for (int r = 0; r < 5; r++) {
        pair *x = pair_new(rules[r]);
        int g[2];
        pair_add(x, ADAMOD_F32, 3000);
        for (int i = 0; i < 2; i++) {
            OK(adamod_add_group(x->cpu, &g[i]));
            OK(adamod_add_group(x->gpu, &g[i]));
        }
        pair_set_group(x, g[0], "lr=0.05 weight_decay=0.1");
        if (r == 2) pair_set_group(x, g[1], "momentum=0.9 centered=1"); /* another formula */
        if (r == 4) pair_set_group(x, g[1], "spatial=none window=2");
        pair_add_at(x, g[0], ADAMOD_F32, ADAMOD_F32, 2, (int64_t[]){50, 60}, 0);
        pair_add_at(x, g[1], ADAMOD_BF16, ADAMOD_BF16, 2, (int64_t[]){50, 60}, 0);
        pair_add_at(x, g[1], ADAMOD_F64, ADAMOD_F32, 1, &(int64_t){600}, 0);
        pair_schedule(x, g[1], "lr", "warmup(0,6)");
        pair_run(x, 3);
        OK(adamod_set_grad(x->cpu, 1, NULL));
        OK(adamod_set_grad(x->gpu, 1, NULL));
        pair_run(x, 3);
        OK(adamod_set_grad(x->cpu, 1, x->arrays[1].g));
        OK(adamod_set_grad(x->gpu, 1, x->arrays[1].device_g));
        pair_add_at(x, g[0], ADAMOD_F32, ADAMOD_F32, 1, &(int64_t){100}, 0); /* later than the others */
        pair_run(x, 3);
        pair_free(x);
    }
}

/* As frameworks do that allocate gradients anew for each step. */
TEST(pointers_that_change_every_step) {
    NEED_CUDA;
    enum { ARRAYS = 400, COPIES = 3 };
    pair *x = pair_new("adamod");
    for (int i = 0; i < ARRAYS; i++) pair_add(x, ADAMOD_F32, 10 + i);
    void *other[ARRAYS][COPIES];
    for (int i = 0; i < ARRAYS; i++) {
        for (int c = 0; c < COPIES; c++) other[i][c] = device_alloc((size_t)(10 + i) * 4 + 64);
    }
    for (int t = 0; t < 20; t++) {
        pair_grads(x);
        for (int i = 0; i < ARRAYS; i++) {
            void *g = (char *)other[i][t % COPIES] + 4 * (t % 5);
            to_device(g, x->arrays[i].g, x->arrays[i].count * 4);
            OK(adamod_set_grad(x->gpu, i, g));
        }
        pair_step(x);
    }
    CHECK(pair_same(x));
    for (int i = 0; i < ARRAYS * COPIES; i++) device_free(other[i / COPIES][i % COPIES]);
    pair_free(x);
}

/* The caller's states, begun from the CPU's after some steps, and gradients that move: one call a step. */
static void states_the_caller_keeps(const char *state_type) {
    enum { ARRAYS = 30, STEPS = 6, MOST = 9 };
    const bool q8 = strcmp(state_type, "q8") == 0;
    pair *x = pair_new("adamod");
    OK(adamod_set_text(x->cpu, "state_type", state_type));
    OK(adamod_set_text(x->gpu, "state_type", state_type));
    for (int i = 0; i < ARRAYS; i++) pair_add(x, i % 3 ? ADAMOD_F32 : ADAMOD_BF16, 100 + 77 * i);
    pair_run(x, STEPS);
    adamod_optimizer *mine = NULL;
    void *memory[ARRAYS][MOST] = {{NULL}}, *states[ARRAYS][MOST] = {{NULL}}, *params[ARRAYS];
    const void *grads[ARRAYS];
    OK(adamod_create_on(&mine, "adamod", "cuda"));
    OK(adamod_set_text(mine, "state_type", state_type));
    for (int i = 0; i < ARRAYS; i++) {
        pair_array *a = &x->arrays[i];
        adamod_tensor t = {.param_type = a->param_type, .grad_type = a->grad_type, .ndim = 1};
        state_ref s;
        t.shape[0] = (int64_t)a->count;
        for (int k = 0; adamod__state_ref(x->cpu, &x->cpu->tensors[i], k, &s); k++) {
            memory[i][k] = device_alloc(s.bytes + 16);
            void *to = states[i][k] = (char *)memory[i][k] + 4 * (i % 4); /* not all where vectors may begin */
            to_device(to, *s.data, s.bytes);
            if (k == (q8 ? 6 : 3)) t.master = to;
            else if (q8 && k % 2) t.scale[k / 2] = to;
            else t.state[q8 ? k / 2 : k] = to;
        }
        params[i] = t.param = memory[i][MOST - 2] = device_alloc(4 * a->count);
        to_device(t.param, a->p, a->count * adamod__type_size(a->param_type));
        OK(adamod_add_tensor(mine, 0, &t, NULL));
        OK(adamod_set_tensor_steps(mine, i, STEPS));
        grads[i] = memory[i][MOST - 1] = device_alloc(4 * a->count);
    }
    CHECK_INT(adamod_steps(mine), STEPS);
    for (int step = 0; step < STEPS; step++) {
        pair_grads(x);
        OK(adamod_step(x->cpu));
        for (int i = 0; i < ARRAYS; i++) {
            const size_t bytes = x->arrays[i].count * adamod__type_size(x->arrays[i].grad_type);
            grads[i] = step % 2 ? memory[i][MOST - 1] : x->arrays[i].device_g;
            to_device((void *)(uintptr_t)grads[i], x->arrays[i].g, bytes);
        }
        OK(adamod_set_arrays(mine, ARRAYS, NULL, params, grads));
        OK(adamod_step(mine));
        if (step == 2) OK(adamod_set_tensor_steps(mine, 1, STEPS + 3)); /* as it is */
    }
    OK(adamod_sync(mine));
    for (int i = 0; i < ARRAYS; i++) {
        const pair_array *a = &x->arrays[i];
        CHECK(same_array(x, "the parameters", i, a->param_type, a->p, params[i], a->count));
        state_ref s;
        for (int k = 0; adamod__state_ref(x->cpu, &x->cpu->tensors[i], k, &s); k++) {
            CHECK(same_array(x, s.name, i, s.type, *s.data, states[i][k], (size_t)s.desc.count));
        }
    }
    adamod_tensor t = {.param = params[0], .ndim = 1, .shape = {1}, .state = {grads, grads, grads}};
    adamod_free(mine);
    OK(adamod_create_on(&mine, "adamod", "cuda"));
    CHECK_INT(adamod_add_tensor(mine, 0, &t, NULL), ADAMOD_ERROR_DEVICE);
    CHECK_HAS(adamod_last_error(), "exp_avg is host memory");
    adamod_free(mine);
    for (int i = 0; i < ARRAYS * MOST; i++) device_free(memory[i / MOST][i % MOST]);
    pair_free(x);
}

TEST(states_the_caller_keeps) {
    NEED_CUDA;
    states_the_caller_keeps("auto");
    states_the_caller_keeps("q8");
}

/* ---- parameters changed by hand ---- */

/* Some elements of 16 bits, on both sides: other numbers, those next to them, and what is not finite if it may be. */
static void change_by_hand(pair *x, int one_in, bool finite) {
    static const uint16_t odd[] = {0x0000, 0x8000, 0x7f80, 0xff80, 0x7fc1, 0x0001, 0x7c00, 0x7bff};
    for (int k = 0; k < x->n; k++) {
        pair_array *a = &x->arrays[k];
        uint16_t *p = a->p, *device = malloc(2 * a->count);
        to_host(device, a->device_p, 2 * a->count);
        for (size_t i = 0; i < a->count; i++) {
            if ((int)(fabs(pair_uniform(x)) * one_in) != 0) continue;
            const double what = pair_uniform(x);
            const uint16_t before = p[i];
            if (what < 0) pair_put(a->param_type, p, i, 2 * pair_uniform(x));
            else if (finite || what < 0.9) p[i] ^= 1;
            else p[i] = odd[(int)(1e6 * what) % 8];
            /* Muon's may be a rounding away on the device: what is a change here must be one there. */
            if ((p[i] == before) != (p[i] == device[i])) p[i] ^= 2;
            device[i] = p[i];
        }
        to_device(a->device_p, device, 2 * a->count);
        free(device);
    }
}

TEST(parameters_changed_by_hand) {
    NEED_CUDA;
    for (int r = 0; adamod_rule_name(r); r++) {
        for (int kind = 0; kind < 3; kind++) {
            pair *x = pair_new(adamod_rule_name(r));
            if (kind) pair_set(x, kind == 1 ? "weight_decay=0.1 decay=l2" : "state_type=bf16 clip_norm=3");
            pair_add_at(x, 0, ADAMOD_BF16, ADAMOD_BF16, 2, (int64_t[]){130, 130}, 0);
            pair_add_at(x, 0, ADAMOD_BF16, ADAMOD_F32, 2, (int64_t[]){61, 700}, 0);
            pair_add_at(x, 0, ADAMOD_BF16, ADAMOD_BF16, 1, (int64_t[]){5000}, 1);
            pair_add_at(x, 0, ADAMOD_F16, ADAMOD_F16, 1, (int64_t[]){5001}, 0);
            pair_add_at(x, 0, ADAMOD_F16, ADAMOD_F32, 2, (int64_t[]){9, 9}, 3);
            pair_run(x, 2);
            for (int t = 0; t < 3; t++) {
                const int collect = t == 1 && kind == 0;
                OK(adamod_collect(x->cpu, collect));
                OK(adamod_collect(x->gpu, collect));
                change_by_hand(x, t == 0 ? 5 : t == 1 ? 3000 : 1, t < 2);
                pair_run(x, 1);
                if (collect) pair_same_statistics(x, -1);
            }
            pair_run(x, 1);
            pair_free(x);
        }
    }
}

/* ---- statistics ---- */

TEST(statistics_are_equal) {
    NEED_CUDA;
    for (int r = 0; adamod_rule_name(r); r++) {
        pair *x = pair_new(adamod_rule_name(r));
        int g;
        OK(adamod_add_group(x->cpu, &g));
        OK(adamod_add_group(x->gpu, &g));
        pair_set_group(x, g, "lr=0.3");
        pair_add(x, ADAMOD_F32, 30011);
        pair_add(x, ADAMOD_F32, 7);
        pair_add_at(x, g, ADAMOD_F32, ADAMOD_F32, 2, (int64_t[]){41, 530}, 0);
        pair_add_at(x, g, ADAMOD_BF16, ADAMOD_BF16, 1, &(int64_t){999}, 0);
        pair_run(x, 2);
        adamod_statistics none;
        CHECK_INT(adamod_get_statistics(x->gpu, -1, &none), ADAMOD_ERROR_ORDER);
        OK(adamod_collect(x->cpu, 1));
        OK(adamod_collect(x->gpu, 1));
        CHECK_INT(adamod_get_statistics(x->gpu, -1, &none), ADAMOD_ERROR_ORDER);
        for (int t = 0; t < 3; t++) {
            pair_run(x, 1);
            for (int which = -1; which < 2; which++) pair_same_statistics(x, which);
        }
        OK(adamod_collect(x->cpu, 0));
        OK(adamod_collect(x->gpu, 0));
        pair_run(x, 1);
        pair_free(x);
    }
}

/* Squares that overflow, not looked for: the same states, saturated or infinite, and the same counts. */
TEST(huge_gradients_that_pass) {
    NEED_CUDA;
    static const char *const states[] = {"state_type=auto", "state_type=bf16", "state_type=q8"};
    for (int r = 0; adamod_rule_name(r); r++) {
        for (int s = 0; s < 3; s++) {
            const char *name = adamod_rule_name(r);
            if (s == 2 && strcmp(name, "adamod") && strcmp(name, "adam") && strcmp(name, "sgd")) continue;
            for (int collect = 0; collect < 2; collect++) {
                pair *x = pair_new(name);
                if (!strcmp(name, "sgd")) pair_set(x, "momentum=0.9");
                if (!strcmp(name, "adashift")) pair_set(x, "window=2");
                pair_set(x, states[s]);
                pair_add(x, ADAMOD_F32, 10007);
                pair_add_at(x, 0, ADAMOD_F32, ADAMOD_F32, 2, (int64_t[]){37, 29}, 0);
                OK(adamod_collect(x->cpu, collect));
                OK(adamod_collect(x->gpu, collect));
                for (int t = 0; t < 6; t++) {
                    pair_grads(x);
                    if (t == 2) {
                        ((float *)x->arrays[0].g)[300] = 1e21f;
                        ((float *)x->arrays[0].g)[9999] = -1e30f;
                        ((float *)x->arrays[1].g)[100] = 1e25f;
                    }
                    pair_send_grads(x);
                    pair_step(x);
                    CHECK(pair_same(x));
                    adamod_statistics now;
                    if (!collect) continue;
                    OK(adamod_get_statistics(x->cpu, -1, &now));
                    const int64_t expected = now.nonfinite;
                    OK(adamod_get_statistics(x->gpu, -1, &now));
                    if (!CHECK_INT(now.nonfinite, expected)) printf("    %s %s\n", name, states[s]);
                }
                pair_free(x);
            }
        }
    }
}

TEST(statistics_outlive_a_skipped_step) {
    NEED_CUDA;
    pair *x = pair_new("adamod");
    pair_set(x, "nonfinite=skip");
    pair_add(x, ADAMOD_F64, 3000);
    pair_add(x, ADAMOD_F32, 3000);
    OK(adamod_collect(x->cpu, 1));
    OK(adamod_collect(x->gpu, 1));
    pair_run(x, 2);
    ((float *)x->arrays[1].g)[0] = NAN;
    pair_send_grads(x);
    pair_step(x);
    CHECK_INT(adamod_skipped(x->gpu), 1);
    pair_same_statistics(x, -1);
    pair_free(x);
}

/* ---- files ---- */

TEST(files_move_between_devices) {
    NEED_CUDA;
    char path[64];
    snprintf(path, sizeof path, "cuda_state.%d.tmp", (int)getpid());
    for (int r = 0; adamod_rule_name(r); r++) {
        pair *x = pair_new(adamod_rule_name(r));
        if (r == 0) pair_set(x, "state_type=q8");
        pair_add_at(x, 0, ADAMOD_F32, ADAMOD_F32, 2, (int64_t[]){40, 70}, 0);
        pair_add_at(x, 0, ADAMOD_BF16, ADAMOD_BF16, 1, &(int64_t){3000}, 0);
        pair_run(x, 3);
        /* The CPU goes on with what the GPU saved, and the other way round. */
        OK(adamod_save(x->gpu, path));
        OK(adamod_load(x->cpu, path));
        pair_run(x, 2);
        OK(adamod_save(x->cpu, path));
        pair_grads(x);
        OK(adamod_step(x->gpu)); /* loading undoes this step, except in the parameters */
        OK(adamod_load(x->gpu, path));
        for (int k = 0; k < x->n; k++) {
            const pair_array *a = &x->arrays[k];
            to_device(a->device_p, a->p, a->count * adamod__type_size(a->param_type));
        }
        CHECK(pair_same(x));
        adamod_step_report none;
        CHECK_INT(adamod_report(x->gpu, 5, &none), ADAMOD_ERROR_ORDER); /* of the file's run, not of this one */
        pair_run(x, 2);
        pair_free(x);
    }
    unlink(path);
}

/* The last count there is stays what it is, and what is saved there can be loaded. */
TEST(counts_that_end) {
    NEED_CUDA;
    const int64_t most = (INT64_C(1) << 62) - 1;
    char path[64];
    snprintf(path, sizeof path, "cuda_counts.%d.tmp", (int)getpid());
    for (int r = 0; adamod_rule_name(r); r++) {
        pair *x = pair_new(adamod_rule_name(r));
        pair_add(x, ADAMOD_F32, 300);
        pair_run(x, 1);
        OK(adamod_set_tensor_steps(x->cpu, 0, most - 1));
        OK(adamod_set_tensor_steps(x->gpu, 0, most - 1));
        for (int k = 0; k < 3; k++) {
            int64_t steps = 0;
            pair_run(x, 1);
            OK(adamod_tensor_steps(x->gpu, 0, &steps));
            CHECK_INT(steps, most);
            CHECK_INT(adamod_steps(x->gpu), most);
            OK(adamod_save(x->gpu, path));
            OK(adamod_load(x->gpu, path));
        }
        pair_free(x);
    }
    unlink(path);
}

TEST(weights_to_evaluate_with) {
    NEED_CUDA;
    pair *x = pair_new("schedulefree_adamw");
    pair_add(x, ADAMOD_F32, 5000);
    pair_add(x, ADAMOD_BF16, 700);
    pair_run(x, 4);
    for (int on = 1; on >= 0; on--) {
        OK(adamod_evaluation(x->cpu, on));
        OK(adamod_evaluation(x->gpu, on));
        CHECK(pair_same(x));
        if (on) CHECK_INT(adamod_step(x->gpu), ADAMOD_ERROR_ORDER);
    }
    pair_run(x, 2);
    pair_free(x);
}

RUN_TESTS(ENTRY(clipping_and_scaling), ENTRY(norms_beyond_the_range_of_squares), ENTRY(gradients_that_are_not_finite),
          ENTRY(gradients_beyond_f32), ENTRY(an_error_is_reported_once_and_nothing_changes),
          ENTRY(a_gradient_too_large_is_told_from_a_nan), ENTRY(schedules), ENTRY(a_schedule_out_of_bounds_is_an_error),
          ENTRY(numbers_out_of_the_range_of_their_type), ENTRY(device_values_out_of_the_range_of_their_type),
          ENTRY(groups_and_freezing), ENTRY(pointers_that_change_every_step), ENTRY(states_the_caller_keeps),
          ENTRY(parameters_changed_by_hand), ENTRY(statistics_are_equal), ENTRY(huge_gradients_that_pass),
          ENTRY(statistics_outlive_a_skipped_step), ENTRY(files_move_between_devices), ENTRY(counts_that_end),
          ENTRY(weights_to_evaluate_with))
