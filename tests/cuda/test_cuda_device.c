/* Things that only an optimizer on a GPU has: streams and graphs, options that lie on the device, and errors that name it.
 * Skipped where there is no GPU.
 *
 * SPDX-License-Identifier: MIT
 */
#include "cuda_pair.h"
#include "values.h"

#include <math.h>

/* ---- streams and graphs ---- */

TEST(streams) {
    NEED_CUDA;
    pair *x = pair_new("adamod");
    void *stream[2] = {NULL, NULL};
    for (int i = 0; i < 2; i++) DEVICE_OK(x->gpu->api->stream_create(x->gpu->device, &stream[i]));
    pair_add(x, ADAMOD_F32, 100000);
    for (int t = 0; t < 9; t++) {
        OK(adamod_set_stream(x->gpu, t % 3 == 2 ? NULL : stream[t % 3]));
        pair_grads(x);
        pair_step(x);
        OK(adamod_sync(x->gpu));
    }
    CHECK(pair_same(x));
    OK(adamod_set_stream(x->gpu, NULL));
    for (int i = 0; i < 2; i++) x->gpu->api->stream_destroy(x->gpu->device, stream[i]);
    pair_free(x);
}

static void *capture(pair *x, void *stream) {
    void *graph = NULL;
    OK(adamod_set_stream(x->gpu, stream));
    DEVICE_OK(x->gpu->api->graph_begin(x->gpu->device));
    OK(adamod_step(x->gpu));
    DEVICE_OK(x->gpu->api->graph_end(x->gpu->device, &graph));
    return graph;
}

static void same_report(pair *x, int attempt) {
    adamod_step_report cpu = {0}, gpu = {0};
    OK(adamod_report(x->cpu, attempt, &cpu));
    OK(adamod_report(x->gpu, attempt, &gpu));
    CHECK_INT(gpu.attempt, attempt);
    CHECK_INT(gpu.taken, cpu.taken);
    CHECK(gpu.grad_norm == cpu.grad_norm && gpu.lr == cpu.lr);
}

TEST(a_captured_step_is_replayed_while_options_change) {
    NEED_CUDA;
    static const char *const rules[] = {"adamod", "adashift", "adafactor", "nosadam", "muon", "soap"};
    for (int r = 0; r < 6; r++) {
        pair *x = pair_new(rules[r]);
        void *stream = NULL;
        DEVICE_OK(x->gpu->api->stream_create(x->gpu->device, &stream));
        pair_set(x, "clip_norm=10 nonfinite=skip");
        for (int i = 0; i < 20; i++) {
            pair_add_at(x, 0, i % 2 ? ADAMOD_BF16 : ADAMOD_F32, i % 2 ? ADAMOD_BF16 : ADAMOD_F32, 2,
                        (int64_t[]){1 + i, 300}, 0);
        }
        pair_schedule(x, -1, "lr", "warmup(1e-5,7)*7 > cosine(0,10)");
        pair_run(x, 1);
        void *graph = capture(x, stream);
        for (int t = 0; t < 10; t++) {
            if (t == 3) pair_set(x, "lr=0.01");
            if (t == 5) pair_set(x, "weight_decay=0.1");
            if (t == 7) pair_set(x, "clip_norm=1");
            pair_grads(x);
            if (t == 6) ((float *)x->arrays[4].g)[0] = INFINITY;
            pair_send_grads(x);
            OK(adamod_step(x->cpu));
            DEVICE_OK(x->gpu->api->graph_launch(x->gpu->device, graph));
            OK(adamod_sync(x->gpu));
            same_report(x, t + 2);
        }
        CHECK(pair_same(x));
        CHECK_INT(adamod_steps(x->gpu), 10);
        for (int t = 4; t <= 11; t++) same_report(x, t);
        adamod_step_report none;
        CHECK_INT(adamod_report(x->gpu, 3, &none), ADAMOD_ERROR_ORDER);
        CHECK_INT(adamod_report(x->gpu, 12, &none), ADAMOD_ERROR_ORDER);
        CHECK_INT(adamod_skipped(x->gpu), 1);
        /* New pointers in a step outside a graph do not change the graph's. */
        void *elsewhere = device_alloc(x->arrays[0].count * 4);
        pair_grads(x);
        to_device(elsewhere, x->arrays[0].g, x->arrays[0].count * 4);
        OK(adamod_set_grad(x->gpu, 0, elsewhere));
        pair_step(x);
        OK(adamod_sync(x->gpu));
        pair_grads(x);
        OK(adamod_step(x->cpu));
        DEVICE_OK(x->gpu->api->graph_launch(x->gpu->device, graph));
        OK(adamod_sync(x->gpu));
        CHECK(pair_same(x));
        device_free(elsewhere);
        x->gpu->api->graph_free(x->gpu->device, graph);
        OK(adamod_set_stream(x->gpu, NULL));
        x->gpu->api->stream_destroy(x->gpu->device, stream);
        pair_free(x);
    }
}

TEST(what_a_graph_cannot_hold_is_refused) {
    NEED_CUDA;
    pair *x = pair_new("adamod");
    void *stream = NULL, *graph = NULL;
    DEVICE_OK(x->gpu->api->stream_create(x->gpu->device, &stream));
    pair_add(x, ADAMOD_F32, 100);
    pair_run(x, 1);
    OK(adamod_set_stream(x->gpu, stream));
    DEVICE_OK(x->gpu->api->graph_begin(x->gpu->device));
    OK(adamod_set(x->gpu, "lr", 1e-3)); /* as it was */
    CHECK_INT(adamod_set(x->gpu, "lr", 1), ADAMOD_ERROR_ORDER);
    CHECK_INT(adamod_sync(x->gpu), ADAMOD_ERROR_ORDER);
    CHECK_INT(adamod_save(x->gpu, "never.tmp"), ADAMOD_ERROR_ORDER);
    CHECK_INT(adamod_add(x->gpu, "late", x->arrays[0].device_p, NULL, 0, NULL), ADAMOD_ERROR_ARGUMENT);
    OK(adamod_step(x->gpu));
    DEVICE_OK(x->gpu->api->graph_end(x->gpu->device, &graph));
    x->gpu->api->graph_free(x->gpu->device, graph);
    OK(adamod_sync(x->gpu));
    CHECK_INT(adamod_steps(x->gpu), 1);
    OK(adamod_set_stream(x->gpu, NULL));
    x->gpu->api->stream_destroy(x->gpu->device, stream);
    pair_free(x);
}

/* ---- values on the device ---- */

TEST(options_from_device_memory) {
    NEED_CUDA;
    pair *x = pair_new("adamod");
    float *lr = device_alloc(sizeof *lr);
    double *beta3 = device_alloc(sizeof *beta3);
    pair_add(x, ADAMOD_F32, 3000);
    OK(adamod_set_device_value(x->gpu, -1, "lr", lr, ADAMOD_F32));
    OK(adamod_set_device_value(x->gpu, 0, "beta3", beta3, ADAMOD_F64));
    for (int t = 0; t < 6; t++) {
        const float rate = 0.01f / (float)(t + 1);
        const double decay = 0.9 + 0.01 * t;
        to_device(lr, &rate, sizeof rate);
        to_device(beta3, &decay, sizeof decay);
        OK(adamod_set(x->cpu, "lr", (double)rate));
        OK(adamod_set(x->cpu, "beta3", decay));
        pair_grads(x);
        pair_step(x);
    }
    CHECK(pair_same(x));
    const float bad = NAN;
    to_device(lr, &bad, sizeof bad);
    OK(adamod_step(x->gpu));
    CHECK_INT(adamod_sync(x->gpu), ADAMOD_ERROR_RANGE);
    CHECK(pair_same(x));
    OK(adamod_set_device_value(x->gpu, -1, "lr", NULL, ADAMOD_F32));
    OK(adamod_set_device_value(x->gpu, -1, "beta3", NULL, ADAMOD_F32));
    pair_set(x, "lr=0.001 beta3=0.99");
    pair_run(x, 2);
    CHECK_INT(adamod_set_device_value(x->gpu, -1, "flavour", lr, ADAMOD_F32), ADAMOD_ERROR_ARGUMENT);
    CHECK_INT(adamod_set_device_value(x->gpu, 3, "lr", lr, ADAMOD_F32), ADAMOD_ERROR_RANGE);
    CHECK_INT(adamod_set_device_value(x->gpu, 0, "lr", &bad, ADAMOD_F32), ADAMOD_ERROR_DEVICE);
    pair_free(x);
    device_free(lr);
    device_free(beta3);
}

TEST(loss_scaling_on_the_device) {
    NEED_CUDA;
    pair *x = pair_new("adamod");
    float *scale = device_alloc(sizeof *scale), *found_inf = device_alloc(sizeof *found_inf);
    pair_add(x, ADAMOD_F32, 3000);
    OK(adamod_set_scaler(x->gpu, scale, found_inf));
    for (int t = 0; t < 4; t++) {
        const float now = 65536.0f / (float)(1 << t), skip = t == 2;
        to_device(scale, &now, sizeof now);
        to_device(found_inf, &skip, sizeof skip);
        OK(adamod_set(x->cpu, "grad_scale", 1 / (double)now));
        pair_grads(x);
        if (t != 2) OK(adamod_step(x->cpu));
        OK(adamod_step(x->gpu));
    }
    CHECK_INT(adamod_skipped(x->gpu), 1);
    CHECK_INT(adamod_steps(x->gpu), 3);
    x->cpu->skipped = 1;
    CHECK(pair_same(x));
    OK(adamod_set_scaler(x->gpu, NULL, NULL));
    OK(adamod_set(x->cpu, "grad_scale", 1));
    pair_run(x, 2);
    pair_free(x);
    device_free(scale);
    device_free(found_inf);
}

/* ---- errors ---- */

TEST(errors_name_the_device) {
    NEED_CUDA;
    adamod_optimizer *opt = NULL;
    float host[4] = {0};
    CHECK_INT(adamod_create_on(&opt, "adamod", "cuda:99"), ADAMOD_ERROR_DEVICE);
    CHECK_HAS(adamod_last_error(), "cuda:99: no such device");
    adamod_cuda_device device;
    OK(adamod_cuda_device_at(0, &device));
    CHECK(device.name[0] && device.memory >= device.free_memory && device.free_memory > 0);
    CHECK_INT(adamod_cuda_device_at(99, &device), ADAMOD_ERROR_DEVICE);
    if (!OK(adamod_create_on(&opt, "adamod", "cuda:0"))) return;
    CHECK_STR(adamod_device(opt), "cuda:0");
    CHECK_INT(adamod_add(opt, "w", host, NULL, 1, (int64_t[]){4}), ADAMOD_ERROR_DEVICE);
    CHECK_HAS(adamod_last_error(), "w: param is host memory, expected memory of cuda:0");
    float *memory = device_alloc(64);
    to_device(memory, (float[16]){0}, 64);
    CHECK_INT(adamod_add(opt, "w", memory, host, 1, (int64_t[]){4}), ADAMOD_ERROR_DEVICE);
    CHECK_HAS(adamod_last_error(), "w: grad is host memory");
    CHECK_INT(adamod_tensors(opt), 0);
    OK(adamod_add(opt, "w", memory, memory + 8, 1, (int64_t[]){4}));
    OK(adamod_step(opt));
    CHECK_INT(adamod_set_grad(opt, 0, host), ADAMOD_ERROR_DEVICE);
    OK(adamod_step(opt));
    CHECK_INT(adamod_steps(opt), 2);
    size_t states, other;
    adamod_memory(opt, &states, &other);
    CHECK_INT(states, 48);
    adamod_free(opt);
    device_free(memory);
}

TEST(no_memory_on_the_device_is_told) {
    NEED_CUDA;
    if (fast()) SKIP("ADAMOD_TEST_FAST is set: memcheck counts every call of CUDA that fails");
    adamod_optimizer *opt = NULL;
    if (!OK(adamod_create_on(&opt, "adamod", "cuda:0"))) return;
    float *memory = device_alloc(64);
    to_device(memory, (float[16]){0}, 64);
    /* States of 2^50 elements; the array itself is never touched. */
    CHECK_INT(adamod_add(opt, "w", memory, NULL, 1, (int64_t[]){INT64_C(1) << 50}), ADAMOD_ERROR_DEVICE_MEMORY);
    CHECK_HAS(adamod_last_error(), "cuda: out of device memory");
    CHECK_HAS(adamod_last_error(), "free on cuda:0");
    CHECK_INT(adamod_tensors(opt), 0);
    /* It can do what takes less. */
    OK(adamod_add(opt, "w", memory, memory + 8, 1, (int64_t[]){4}));
    OK(adamod_step(opt));
    CHECK_INT(adamod_steps(opt), 1);
    adamod_free(opt);
    device_free(memory);
}

RUN_TESTS(ENTRY(streams), ENTRY(a_captured_step_is_replayed_while_options_change),
          ENTRY(what_a_graph_cannot_hold_is_refused), ENTRY(options_from_device_memory),
          ENTRY(loss_scaling_on_the_device), ENTRY(errors_name_the_device), ENTRY(no_memory_on_the_device_is_told))
