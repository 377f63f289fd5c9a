/* SOAP's matrices on a GPU: the bits of the CPU, for all shapes, types and other matrices beside them; across changes
 * of the basis, whose averages may be of any rank; degenerate matrices; graphs. Skipped where there is no GPU.
 *
 * SPDX-License-Identifier: MIT
 */
#include "cuda_pair.h"

#include <math.h>
#include <stdlib.h>

static const struct {
    int ndim;
    int64_t dims[4];
} shapes[] = {
    {2, {1, 1}},    {2, {1, 9}},    {2, {9, 1}},    {2, {2, 2}},        {2, {5, 7}},    {2, {7, 5}},
    {2, {33, 33}},  {2, {13, 100}}, {2, {100, 13}}, {3, {3, 4, 5}},     {2, {64, 64}},  {2, {16, 128}},
    {2, {130, 40}}, {2, {40, 129}}, {2, {3, 70}},   {4, {20, 3, 3, 3}}, {2, {128, 17}}, {2, {140, 131}},
};
enum { SHAPES = sizeof shapes / sizeof *shapes };

static void add_shapes(pair *x, adamod_type param, adamod_type grad) {
    for (int s = 0; s < SHAPES; s++) pair_add_at(x, 0, param, grad, shapes[s].ndim, shapes[s].dims, (size_t)s % 3);
    pair_add_at(x, 0, param, grad, 1, (int64_t[]){77}, 0);
}

/* Averages are of low rank when the basis begins, and of full rank or not when it changes. */
TEST(the_bits_of_the_cpu) {
    NEED_CUDA;
    static const char *const options[] = {
        "precondition_frequency=3",
        "precondition_frequency=1 beta1=0.5 beta2=0.9 shampoo_beta=0.7 eps=0.001 weight_decay=0.1",
        "precondition_frequency=2 max_precondition_dim=40 bias_correction=0 weight_decay=0.1 decay=l2 clip_norm=3",
        "precondition_frequency=2 max_precondition_dim=0 grad_scale=0.5",
    };
    for (size_t k = 0; k < sizeof options / sizeof *options; k++) {
        pair *x = pair_new("soap");
        pair_set(x, options[k]);
        add_shapes(x, ADAMOD_F32, ADAMOD_F32);
        pair_run(x, 1);
        pair_run(x, 1);
        pair_run(x, 4);
        pair_run(x, k ? 6 : 30);
        pair_free(x);
    }
}

TEST(every_type) {
    NEED_CUDA;
    static const char *const modes[] = {"", "low_precision=stochastic", "state_type=bf16",
                                        "low_precision=stochastic state_type=bf16 seed=99"};
    for (int mode = 0; mode < 4; mode++) {
        pair *x = pair_new("soap");
        pair_set(x, modes[mode]);
        pair_set(x, "precondition_frequency=3");
        for (int p = 0; p < 4; p++) {
            for (int g = 0; g < 4; g++) {
                pair_add_at(x, 0, (adamod_type)p, (adamod_type)g, 2, (int64_t[]){23, 35}, 0);
                pair_add_at(x, 0, (adamod_type)p, (adamod_type)g, 2, (int64_t[]){70, 9}, 1);
            }
        }
        pair_run(x, 1);
        pair_run(x, 8);
        pair_free(x);
    }
}

/* In f64 the averages do not depend on the learning rate's last bit, which differs. */
TEST(bases_in_f64) {
    NEED_CUDA;
    pair *x = pair_new("soap");
    pair_set(x, "precondition_frequency=2");
    add_shapes(x, ADAMOD_F64, ADAMOD_F64);
    pair_run(x, 6);
    x->loose = false;
    for (int k = 0; k < x->n; k++) {
        static const char *const names[] = {"GG_0", "GG_1", "Q_0", "Q_1"};
        for (int i = 0; i < 4 && k < SHAPES; i++) {
            void *cpu = NULL, *gpu = NULL;
            int64_t count = 0;
            OK(adamod_state(x->cpu, k, names[i], &cpu, NULL, &count));
            OK(adamod_state(x->gpu, k, names[i], &gpu, NULL, NULL));
            CHECK(same_array(x, names[i], k, ADAMOD_F64, cpu, gpu, (size_t)count));
        }
    }
    pair_free(x);
}

/* Bases of several blocks of threads, and sums of several chunks; with statistics. */
TEST(large_matrices) {
    NEED_CUDA;
    pair *x = pair_new("soap");
    pair_set(x, "precondition_frequency=2");
    pair_add_at(x, 0, ADAMOD_F32, ADAMOD_F32, 2, (int64_t[]){300, 520}, 0);
    pair_add_at(x, 0, ADAMOD_BF16, ADAMOD_BF16, 2, (int64_t[]){11000, 33},
                0); /* longer than the longest with a basis */
    pair_add_at(x, 0, ADAMOD_F32, ADAMOD_BF16, 2, (int64_t[]){257, 256}, 0);
    pair_run(x, 1);
    OK(adamod_collect(x->cpu, 1));
    OK(adamod_collect(x->gpu, 1));
    for (int t = 0; t < 4; t++) {
        pair_run(x, 1);
        pair_same_statistics(x, -1);
    }
    pair_free(x);
}

/* ---- company ---- */

/* More than a batch has room for, in groups with other options, some frozen. */
TEST(many_matrices) {
    NEED_CUDA;
    enum { N = 95 };
    pair *x = pair_new("soap");
    int g;
    OK(adamod_add_group(x->cpu, &g));
    OK(adamod_add_group(x->gpu, &g));
    /* without the correction, whose powers may differ by their last bit in f64 */
    pair_set(x, "precondition_frequency=2 bias_correction=0");
    pair_set_group(x, g, "precondition_frequency=3 lr=0.1");
    for (int i = 0; i < N; i++) {
        const adamod_type type = i % 11 == 3 ? ADAMOD_F64 : i % 7 == 2 ? ADAMOD_BF16 : ADAMOD_F32;
        pair_add_at(x, i % 3 ? 0 : g, type, type, 2, (int64_t[]){1 + i * 5 % 40, 3 + i * 7 % 67}, 0);
    }
    pair_run(x, 4);
    for (int i = 0; i < N; i += 13) {
        OK(adamod_set_grad(x->cpu, i, NULL));
        OK(adamod_set_grad(x->gpu, i, NULL));
    }
    OK(adamod_collect(x->cpu, 1));
    OK(adamod_collect(x->gpu, 1));
    pair_run(x, 3);
    for (int which = -1; which < 2; which++) pair_same_statistics(x, which);
    pair_free(x);
}

/* ---- degenerate matrices ---- */

TEST(zeros_and_nothing) {
    NEED_CUDA;
    pair *x = pair_new("soap");
    pair_set(x, "precondition_frequency=1");
    pair_add_at(x, 0, ADAMOD_F32, ADAMOD_F32, 2, (int64_t[]){0, 4}, 0);
    pair_add_at(x, 0, ADAMOD_F32, ADAMOD_F32, 2, (int64_t[]){4, 0}, 0);
    pair_add_at(x, 0, ADAMOD_F32, ADAMOD_F32, 0, NULL, 0);
    pair_run(x, 2);
    pair_add_at(x, 0, ADAMOD_F32, ADAMOD_F32, 2, (int64_t[]){30, 4}, 0);
    pair_add_at(x, 0, ADAMOD_F32, ADAMOD_F32, 2, (int64_t[]){6, 50}, 0);
    pair_add_at(x, 0, ADAMOD_F32, ADAMOD_F32, 2, (int64_t[]){20, 20}, 0);
    for (int t = 0; t < 9; t++) { /* zeros; a single number; the same row everywhere; anything */
        pair_grads(x);
        for (int k = 3; k < 6 && t < 6; k++) {
            float *g = x->arrays[k].g;
            for (size_t i = 0; i < x->arrays[k].count; i++)
                g[i] = t < 2 ? 0 : t < 4 ? (float)(i == 5) : (float)(i % 4 + 1);
        }
        pair_send_grads(x);
        pair_step(x);
        CHECK(pair_same(x));
    }
    pair_free(x);
}

TEST(large_and_small_gradients) {
    NEED_CUDA;
    static const double sizes[] = {1e-30, 1e-12, 1e10, 1e18};
    for (int k = 0; k < 4; k++) {
        pair *x = pair_new("soap");
        pair_set(x, "precondition_frequency=2");
        pair_add_at(x, 0, ADAMOD_F32, ADAMOD_F32, 2, (int64_t[]){14, 10}, 0);
        pair_add_at(x, 0, ADAMOD_F64, ADAMOD_F64, 2, (int64_t[]){14, 10}, 0);
        for (int t = 0; t < 7; t++) {
            pair_grads(x);
            for (size_t i = 0; i < 140; i++) {
                ((float *)x->arrays[0].g)[i] *= (float)sizes[k];
                ((double *)x->arrays[1].g)[i] *= sizes[k];
            }
            pair_send_grads(x);
            pair_step(x);
            CHECK(pair_same(x));
        }
        pair_free(x);
    }
}

TEST(not_finite) {
    NEED_CUDA;
    static const float bad[] = {NAN, INFINITY, -1e30f};
    for (int k = 0; k < 6; k++) {
        pair *x = pair_new("soap");
        pair_set(x, "precondition_frequency=2");
        if (k >= 3) pair_set(x, "nonfinite=skip");
        pair_add_at(x, 0, ADAMOD_F32, ADAMOD_F32, 2, (int64_t[]){20, 30}, 0);
        pair_add_at(x, 0, ADAMOD_F32, ADAMOD_F32, 2, (int64_t[]){20, 31}, 0);
        pair_run(x, 1);
        OK(adamod_collect(x->cpu, 1));
        OK(adamod_collect(x->gpu, 1));
        for (int t = 0; t < 6; t++) {
            pair_grads(x);
            if (t == 1) ((float *)x->arrays[0].g)[4] = bad[k % 3];
            pair_send_grads(x);
            pair_step(x);
            CHECK(pair_same(x));
        }
        float p[620];
        to_host(p, x->arrays[0].device_p, 600 * sizeof *p);
        for (int i = 0; i < 600; i++) CHECK(k >= 3 ? isfinite(p[i]) : isnan(p[i]));
        to_host(p, x->arrays[1].device_p, sizeof p);
        for (int i = 0; i < 620; i++) CHECK(isfinite(p[i]));
        adamod_statistics s;
        OK(adamod_get_statistics(x->gpu, -1, &s));
        CHECK_INT(s.nonfinite, k < 3 ? 600 : 0);
        pair_free(x);
    }
    /* from the first update on: there is no basis */
    pair *x = pair_new("soap");
    pair_set(x, "precondition_frequency=2");
    pair_add_at(x, 0, ADAMOD_F32, ADAMOD_F32, 2, (int64_t[]){20, 30}, 0);
    for (int t = 0; t < 5; t++) {
        pair_grads(x);
        if (t == 0) ((float *)x->arrays[0].g)[4] = INFINITY;
        pair_send_grads(x);
        pair_step(x);
        CHECK(pair_same(x));
    }
    pair_free(x);
}

/* ---- graphs ---- */

/* One recording serves the first update, those that change the basis and all others. */
TEST(a_graph) {
    NEED_CUDA;
    for (int k = 0; k < 2; k++) {
        pair *x = pair_new("soap");
        void *stream = NULL, *graph = NULL;
        pair_set(x, "precondition_frequency=3");
        pair_add_at(x, 0, ADAMOD_F32, ADAMOD_F32, 2, (int64_t[]){24, 140}, 0);
        pair_add_at(x, 0, ADAMOD_BF16, ADAMOD_BF16, 2, (int64_t[]){140, 24}, 0);
        pair_set(x, "nonfinite=skip");
        pair_grads(x);
        if (!k) ((float *)x->arrays[0].g)[0] = NAN; /* so that the first is yet to come */
        pair_send_grads(x);
        pair_step(x);
        DEVICE_OK(x->gpu->api->stream_create(x->gpu->device, &stream));
        OK(adamod_set_stream(x->gpu, stream));
        DEVICE_OK(x->gpu->api->graph_begin(x->gpu->device));
        OK(adamod_step(x->gpu));
        DEVICE_OK(x->gpu->api->graph_end(x->gpu->device, &graph));
        for (int t = 0; t < 12; t++) {
            if (t == 8) pair_set(x, "precondition_frequency=2");
            pair_grads(x);
            OK(adamod_step(x->cpu));
            DEVICE_OK(x->gpu->api->graph_launch(x->gpu->device, graph));
            OK(adamod_sync(x->gpu));
            CHECK(pair_same(x));
        }
        x->gpu->api->graph_free(x->gpu->device, graph);
        OK(adamod_set_stream(x->gpu, NULL));
        x->gpu->api->stream_destroy(x->gpu->device, stream);
        pair_free(x);
    }
}

RUN_TESTS(ENTRY(the_bits_of_the_cpu), ENTRY(every_type), ENTRY(bases_in_f64), ENTRY(large_matrices),
          ENTRY(many_matrices), ENTRY(zeros_and_nothing), ENTRY(large_and_small_gradients), ENTRY(not_finite),
          ENTRY(a_graph))
