/* The optimizers on a GPU give what the library gives on the CPU: the same bits, for every rule, type and option.
 * Skipped where there is no GPU. ADAMOD_TEST_LARGE=1 adds an array of more than 2^31 elements (70 GB on the device).
 *
 * SPDX-License-Identifier: MIT
 */
#define _GNU_SOURCE
#include "cuda_pair.h"
#include "rule_table.h"

#include <math.h>
#include <stdlib.h>

/* ---- rules, sizes, options ---- */

TEST(every_rule_gives_the_same_bits) {
    NEED_CUDA;
    static const int64_t sizes[] = {1, 2, 3, 31, 255, 256, 257, 2047, 2048, 2049, 4096, 100003};
    for (int r = 0; adamod_rule_name(r); r++) {
        pair *x = pair_new(adamod_rule_name(r));
        for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) pair_add(x, ADAMOD_F32, sizes[i]);
        pair_add_at(x, 0, ADAMOD_F32, ADAMOD_F32, 2, (int64_t[]){37, 29}, 0);
        pair_add_at(x, 0, ADAMOD_F32, ADAMOD_F32, 4, (int64_t[]){6, 5, 3, 3}, 0);
        pair_add_at(x, 0, ADAMOD_F32, ADAMOD_F32, 2, (int64_t[]){130, 1030}, 0);
        pair_add_at(x, 0, ADAMOD_F32, ADAMOD_F32, 0, NULL, 0);
        pair_add(x, ADAMOD_F32, 0);
        pair_run(x, 12);
        pair_free(x);
    }
}

TEST(options_of_rules) {
    NEED_CUDA;
    option_set set;
    for (int i = 0; rule_options(ROW_CUDA, i, &set); i++) {
        pair *x = pair_new(set.rule);
        pair_set(x, set.options);
        pair_add(x, ADAMOD_F32, 5000);
        pair_add(x, ADAMOD_F32, 33);
        pair_add_at(x, 0, ADAMOD_F32, ADAMOD_F32, 2, (int64_t[]){64, 700}, 0);
        pair_run(x, 10);
        pair_free(x);
    }
}

/* Later than the 64 terms that NosAdam adds one by one, and late enough for RAdam to be rectified. */
TEST(many_steps) {
    NEED_CUDA;
    for (int r = 0; adamod_rule_name(r); r++) {
        pair *x = pair_new(adamod_rule_name(r));
        pair_set(x, "weight_decay=0.001");
        pair_add(x, ADAMOD_F32, 2100);
        pair_run(x, getenv("ADAMOD_TEST_FAST") ? 70 : 150);
        pair_free(x);
    }
}

TEST(unaligned_arrays) {
    NEED_CUDA;
    static const adamod_type types[] = {ADAMOD_F32, ADAMOD_BF16, ADAMOD_F16, ADAMOD_F64};
    pair *x = pair_new("adamod");
    for (int i = 0; i < 4; i++) {
        for (size_t shift = 1; shift < 4; shift++) {
            pair_add_at(x, 0, types[i], types[i], 1, &(int64_t){7001}, shift);
        }
    }
    pair_run(x, 5);
    pair_free(x);
}

TEST(every_type) {
    NEED_CUDA;
    static const char *const rules[] = {"adamod", "sgd", "rmsprop", "adashift", "adafactor", "amsgrad", "adan", "muon"};
    static const char *const extra[] = {"", "momentum=0.9", "centered=1", "window=2", "beta1=0.9", "", "bound=momental",
                                        ""};
    static const char *const modes[] = {"", "low_precision=stochastic", "state_type=bf16",
                                        "low_precision=stochastic state_type=bf16 seed=99"};
    for (size_t r = 0; r < sizeof rules / sizeof *rules; r++) {
        for (int mode = 0; mode < 4; mode++) {
            pair *x = pair_new(rules[r]);
            pair_set(x, modes[mode]);
            pair_set(x, extra[r]);
            for (int p = 0; p < 4; p++) {
                for (int g = 0; g < 4; g++) {
                    pair_add_at(x, 0, (adamod_type)p, (adamod_type)g, 2, (int64_t[]){5, 1000}, 0);
                    pair_add_at(x, 0, (adamod_type)p, (adamod_type)g, 1, &(int64_t){513}, 0);
                }
            }
            pair_run(x, 6);
            pair_free(x);
        }
    }
}

TEST(states_in_8_bits) {
    NEED_CUDA;
    static const int64_t sizes[] = {1, 31, 255, 256, 257, 511, 513, 2048, 2049, 5000, 100003};
    static const adamod_type types[] = {ADAMOD_F32, ADAMOD_BF16, ADAMOD_F16, ADAMOD_F64};
    option_set set = {"sgd", ""}; /* without states; then all that have them */
    for (int r = 0; r == 0 || rule_options(ROW_Q8, r - 1, &set); r++) {
        for (int collect = 0; collect < 2; collect++) {
            pair *x = pair_new(set.rule);
            pair_set(x, "state_type=q8 seed=5");
            pair_set(x, set.options);
            for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) pair_add(x, ADAMOD_F32, sizes[i]);
            for (int t = 0; t < 4; t++) {
                pair_add(x, types[t], 3000);
                pair_add_at(x, 0, types[t], types[t], 1, &(int64_t){4099}, 1);
            }
            OK(adamod_collect(x->cpu, collect));
            OK(adamod_collect(x->gpu, collect));
            pair_run(x, 12);
            if (collect) pair_same_statistics(x, -1);
            ((float *)x->arrays[9].g)[300] = NAN; /* its block is lost, the others are not */
            pair_send_grads(x);
            pair_step(x);
            pair_run(x, 2);
            pair_free(x);
        }
    }
}

/* A block of zeros, then blocks of ever larger gradients: some are updated the quick way, and some are not. */
static void pair_grads_of_every_size(pair *x) {
    for (int k = 0; k < x->n; k++) {
        pair_array *a = &x->arrays[k];
        for (size_t i = 0; i < a->count; i++) {
            const int lot = (int)(i / 256) % 64;
            pair_put(a->grad_type, a->g, i, lot == 0 ? 0 : pair_uniform(x) * pow(10, lot - 32));
        }
    }
    pair_send_grads(x);
}

TEST(blocks_of_every_size) {
    NEED_CUDA;
    static const char *const rules[][2] = {{"adamod", ""},
                                           {"adamod", "eps=1.2e-38"},
                                           {"adamod", "lr=0"},
                                           {"adamod", "lr=1e-25"},
                                           {"adamod", "skip_idle=1"},
                                           {"adam", "clip_value=1e5 decay=l2 weight_decay=0.1"},
                                           {"adam", "weight_decay=0.1 eps=1e-30"},
                                           {"sgd", "momentum=0.9"}};
    for (size_t r = 0; r < sizeof rules / sizeof *rules; r++) {
        for (int q8 = 0; q8 < 2; q8++) {
            pair *x = pair_new(rules[r][0]);
            pair_set(x, q8 ? "state_type=q8" : "state_type=bf16 low_precision=stochastic");
            pair_set(x, rules[r][1]);
            pair_add(x, q8 ? ADAMOD_F32 : ADAMOD_BF16, 256 * 64 * 2 + 77);
            pair_add(x, q8 ? ADAMOD_F32 : ADAMOD_BF16, 8192);
            for (int t = 0; t < 4; t++) {
                pair_grads_of_every_size(x);
                pair_step(x);
            }
            CHECK(pair_same(x));
            pair_free(x);
        }
    }
}

/* Elements without gradients so far, in blocks that have others: zeros must stay zeros in every type of states. */
TEST(idle_elements) {
    NEED_CUDA;
    static const char *const options[] = {"skip_idle=1", "skip_idle=1 state_type=bf16", "skip_idle=1 state_type=q8"};
    for (int o = 0; o < 3; o++) {
        pair *x = pair_new("adamod");
        pair_set(x, options[o]);
        pair_add(x, ADAMOD_F32, 10007);
        pair_add(x, ADAMOD_BF16, 10007);
        pair_add(x, ADAMOD_F64, 5000);
        for (int t = 0; t < 6; t++) {
            pair_grads(x);
            for (int k = 0; k < x->n; k++) {
                pair_array *a = &x->arrays[k];
                for (size_t i = 0; i < a->count; i++) {
                    if (i % 3 == 2 || (i % 3 == 1 && t < 3)) pair_put(a->grad_type, a->g, i, 0);
                }
            }
            pair_send_grads(x);
            pair_step(x);
            CHECK(pair_same(x));
        }
        pair_free(x);
    }
}

TEST(many_small_arrays) {
    NEED_CUDA;
    pair *x = pair_new("adamod");
    for (int i = 0; i < 1000; i++) pair_add(x, ADAMOD_F32, 1 + i % 97);
    pair_run(x, 3);
    pair_free(x);
}

/* Matrices of every kind for rules that sum over rows and columns: with few and many rows that are short, long or cross
 * blocks; several matrices in an array, and more than a chunk of them. */
static void pair_add_matrices(pair *x, adamod_type param, adamod_type grad) {
    static const struct {
        int ndim;
        int64_t shape[4];
    } all[] = {{2, {3, 5000}},    {2, {300, 65}},  {3, {7, 66, 33}}, {4, {50, 7, 3, 3}}, {4, {9, 2, 1, 1}},
               {2, {2000, 8}},    {2, {200, 9}},   {2, {4, 1500}},   {2, {1, 9000}},     {2, {9000, 1}},
               {3, {700, 65, 1}}, {2, {129, 512}}, {3, {2, 3, 4}},   {3, {33, 64, 31}}};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) pair_add_at(x, 0, param, grad, all[i].ndim, all[i].shape, 0);
    pair_add_at(x, 0, param, grad, 2, (int64_t[]){70, 77}, 1); /* not aligned */
}

TEST(matrices_of_every_kind) {
    NEED_CUDA;
    static const char *const options[] = {"", "beta1=0.9 bound=momental weight_decay=0.1",
                                          "decay=l2 weight_decay=0.1 clip_value=0.5",
                                          "low_precision=stochastic state_type=bf16 beta1=0.5"};
    static const adamod_type types[][2] = {{ADAMOD_F32, ADAMOD_F32},
                                           {ADAMOD_BF16, ADAMOD_BF16},
                                           {ADAMOD_BF16, ADAMOD_F32},
                                           {ADAMOD_F16, ADAMOD_F16},
                                           {ADAMOD_F64, ADAMOD_F64}};
    for (size_t o = 0; o < sizeof options / sizeof *options; o++) {
        for (int collect = 0; collect < 2; collect++) {
            pair *x = pair_new("adafactor");
            pair_set(x, options[o]);
            for (size_t t = 0; t < sizeof types / sizeof *types; t++) pair_add_matrices(x, types[t][0], types[t][1]);
            OK(adamod_collect(x->cpu, collect));
            OK(adamod_collect(x->gpu, collect));
            pair_run(x, 3);
            if (collect) pair_same_statistics(x, -1);
            pair_free(x);
        }
    }
}

/* Sums over arrays of one and of many chunks, of which some end within a block. */
TEST(sums_over_large_arrays) {
    NEED_CUDA;
    static const char *const rules[][2] = {{"adafactor", ""},           {"lamb", ""},
                                           {"stableadamw", ""},         {"prodigy", ""},
                                           {"adashift", "window=2"},    {"lamb", "state_type=q8"},
                                           {"lamb", "state_type=bf16"}, {"stableadamw", "state_type=q8 bound=momental"},
                                           {"adam", "cautious=1"},      {"lion", "cautious=1 state_type=bf16"}};
    for (size_t r = 0; r < sizeof rules / sizeof *rules; r++) {
        pair *x = pair_new(rules[r][0]);
        pair_set(x, rules[r][1]);
        pair_add(x, ADAMOD_F32, 3000001);
        pair_add(x, ADAMOD_F32, 8192);
        pair_add(x, ADAMOD_F32, 8193);
        pair_add_at(x, 0, ADAMOD_F32, ADAMOD_F32, 2, (int64_t[]){20000, 40}, 0);
        pair_add_at(x, 0, ADAMOD_BF16, ADAMOD_BF16, 2, (int64_t[]){300, 1000}, 0);
        pair_run(x, 4);
        pair_free(x);
    }
}

/* ---- more than 2^31 elements ---- */

TEST(large_array) {
    NEED_CUDA;
    if (!getenv("ADAMOD_TEST_LARGE")) SKIP("ADAMOD_TEST_LARGE is not set");
    const int64_t count = (INT64_C(1) << 31) + 5000;
    adamod_optimizer *opt = NULL;
    adamod_type state_type = ADAMOD_F32;
    float *p = device_alloc((size_t)count * 4), *g = device_alloc((size_t)count * 4);
    DEVICE_OK(owner->api->fill(owner->device, p, ADAMOD_F32, count, 1));
    DEVICE_OK(owner->api->fill(owner->device, g, ADAMOD_F32, count, 0.5));
    OK(adamod_create_on(&opt, "sgd", "cuda"));
    OK(adamod_set(opt, "momentum", 0.9));
    OK(adamod_set(opt, "clip_norm", 1e9));
    OK(adamod_add(opt, "w", p, g, 1, &count));
    OK(adamod_step(opt));
    CHECK_CLOSE(adamod_grad_norm(opt), 0.5 * sqrt((double)count), 1e-6);
    static const int64_t where[] = {0, INT64_C(1) << 30, (INT64_C(1) << 31) - 1, INT64_C(1) << 31,
                                    (INT64_C(1) << 31) + 4999};
    for (int i = 0; i < 5; i++) {
        float x = 0;
        to_host(&x, p + where[i], sizeof x);
        CHECK(x == 1 - 0.01f * 0.5f);
        void *m;
        OK(adamod_state(opt, 0, "momentum_buffer", &m, &state_type, NULL));
        to_host(&x, (float *)m + where[i], sizeof x);
        CHECK(x == 0.5f);
    }
    adamod_free(opt);
    device_free(p);
    device_free(g);
}

RUN_TESTS(ENTRY(every_rule_gives_the_same_bits), ENTRY(options_of_rules), ENTRY(many_steps), ENTRY(unaligned_arrays),
          ENTRY(every_type), ENTRY(states_in_8_bits), ENTRY(blocks_of_every_size), ENTRY(idle_elements),
          ENTRY(many_small_arrays), ENTRY(matrices_of_every_kind), ENTRY(sums_over_large_arrays), ENTRY(large_array))
