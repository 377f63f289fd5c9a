/* The ops of decoder-only models on a CUDA device, against the reference: as test_ops_decoder.c does it for the processor, and
 * at the sizes of real models. Attention with grouped keys is in test_cuda_attention.c. */
#include "nn/backend.h"
#include "check.h"
#include "cudacheck.h"
#include "decoder_cases.h"
#include "small_gpt.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#define NEEDS_DEVICE()                                                                                                 \
    if (!cudacheck_open()) SKIP(adamod_last_error())

enum { MOST_ROWS = 2048 };
static int32_t numbers[MOST_ROWS];

static bool fast_tests(void) { return getenv("ADAMOD_TEST_FAST") != NULL; }

static bool is_ref(opcheck o) { return cudacheck(&o, NN_F32) && cudacheck(&o, NN_BF16); }

/* ---- gelu, swiglu, rms_norm ---- */

/* Columns that are multiples of 8 and others; more than 4096; more rows than blocks of backward. */
static const int64_t sizes[][2] = {{0, 5},    {1, 1},    {1, 64},   {2, 7},    {17, 65},   {64, 48},  {9, 768},
                                   {7, 1032}, {5, 2056}, {3, 4096}, {2, 4104}, {2, 17000}, {1500, 40}};
enum { SIZES = sizeof sizes / sizeof *sizes };

TEST(gelu_is_the_reference) {
    NEEDS_DEVICE();
    for (int s = 0; s < SIZES; s++) CHECK(is_ref(gelu_case(sizes[s][0], sizes[s][1])));
}

TEST(swiglu_is_the_reference) {
    NEEDS_DEVICE();
    for (int s = 0; s < SIZES; s++) CHECK(is_ref(swiglu_case(sizes[s][0], sizes[s][1])));
}

TEST(rms_norm_is_the_reference) {
    NEEDS_DEVICE();
    for (int s = 0; s < SIZES; s++) CHECK(is_ref(rms_norm_case(sizes[s][0], sizes[s][1])));
}

TEST(rms_norm_sums_over_many_rows) {
    NEEDS_DEVICE();
    if (fast_tests()) SKIP("ADAMOD_TEST_FAST is set");
    CHECK(is_ref(rms_norm_case(2500, 768)));
}

/* ---- query_key ---- */

static bool query_key_is_ref(query_key_sizes s) { return is_ref(query_key_case(&s, numbers)); }

TEST(query_key_is_the_reference) {
    static const int head_sizes[] = {2, 6, 16, 32, 34, 48, 64, 80, 112, 128};
    NEEDS_DEVICE();
    for (int i = 0; i < 10; i += fast_tests() ? 3 : 1) {
        for (int k = 0; k < 4; k++) {
            CHECK(query_key_is_ref((query_key_sizes){37, 6, 2, head_sizes[i], k & 1, k & 2, 10000}));
            /* an odd number of columns; not one column, whose norm is 1 or -1, with a slope that is rounding alone */
            const int odd = head_sizes[i] > 2 ? head_sizes[i] - 1 : 3;
            CHECK(query_key_is_ref((query_key_sizes){5, 3, 3, odd, k & 1, k & 2, 0}));
            CHECK(query_key_is_ref((query_key_sizes){5, 3, 1, head_sizes[i], k & 1, k & 2, 0}));
        }
    }
    CHECK(query_key_is_ref((query_key_sizes){0, 2, 2, 4, true, true, 10}));
}

TEST(query_key_sums_over_more_heads_than_blocks) {
    NEEDS_DEVICE();
    if (fast_tests()) SKIP("ADAMOD_TEST_FAST is set");
    CHECK(query_key_is_ref((query_key_sizes){2000, 12, 4, 128, true, true, 10000}));
    CHECK(query_key_is_ref((query_key_sizes){1500, 12, 12, 10, true, true, 10000}));
}

TEST(heads_that_are_too_large_are_refused) {
    NEEDS_DEVICE();
    const nn_query_key_attributes a = {.heads = 2, .kv_heads = 1};
    const nn_call c = {.attributes = &a, OPCHECK_NO_PARTS, .output = {{.cols = 4 * 136, .type = NN_BF16}}};
    void *prepared;
    CHECK_INT(nn_backend_kernels(nn_backend_find("cuda"), "query_key")->prepare(&c, &prepared), ADAMOD_ERROR_RANGE);
    CHECK_HAS(adamod_last_error(), "heads of 136 columns, expected at most 128");
}

/* ---- linear_cross_entropy ---- */

/* In training, forward computes the gradients; else backward does. In bf16, logits and their gradients are rounded on the
 * way to a result, and a logit, which may be 4, by as many times what a number of size 1 is. */
static bool entropy_is_ref(int64_t rows, int64_t in, int64_t words, bool bias, double smoothing, double z) {
    opcheck o = linear_cross_entropy_case(rows, in, words, bias, smoothing, z, numbers);
    bool ok = true;
    for (int training = 0; training < 2; training++) {
        o.training = training;
        o.slack = 0;
        o.rounded = 0;
        ok = cudacheck(&o, NN_F32) && ok;
        o.slack = 4;
        o.rounded = 2;
        ok = cudacheck(&o, NN_BF16) && ok;
    }
    return ok;
}

TEST(linear_cross_entropy_is_the_reference) {
    NEEDS_DEVICE();
    CHECK(entropy_is_ref(0, 4, 9, true, 0.1, 0.01));
    CHECK(entropy_is_ref(1, 1, 1, false, 0, 0));
    CHECK(entropy_is_ref(7, 5, 33, true, 0, 0));
    CHECK(entropy_is_ref(50, 16, 130, false, 0.1, 0));
    CHECK(entropy_is_ref(33, 24, 257, true, 0.1, 1e-3));
    CHECK(entropy_is_ref(200, 64, 504, false, 0, 1e-4));
    if (!fast_tests()) CHECK(entropy_is_ref(300, 64, 10000, true, 0.1, 1e-4));
}

/* More logits than are computed at a time: two chunks, the second of other size. */
TEST(linear_cross_entropy_is_the_reference_in_chunks) {
    NEEDS_DEVICE();
    if (fast_tests()) SKIP("ADAMOD_TEST_FAST is set");
    opcheck o = linear_cross_entropy_case(900, 8, 300000, false, 0, 1e-4, numbers);
    o.training = true;
    CHECK(cudacheck(&o, NN_F32));
}

/* ---- whole models ---- */

static small_gpt step_on(const char *device, nn_precision precision, gpt_activation activation) {
    gpt_settings settings = small_gpt_settings();
    settings.model.d = 64;
    settings.model.activation = activation;
    small_gpt s = small_gpt_make(settings, 50);
    if (device) CHECK_INT(nn_params_to_device(s.params, device, precision), ADAMOD_OK);
    small_gpt_step(&s);
    return s;
}

static double distance(const float *a, const float *b, int64_t n) {
    double apart = 0, size = 0;
    for (int64_t i = 0; i < n; i++) {
        apart += pow((double)a[i] - b[i], 2);
        size += pow((double)b[i], 2);
    }
    return sqrt(apart / size);
}

/* In mixed precision products do the gelus and residual additions behind them. */
TEST(a_gpt_has_the_loss_and_gradients_of_the_processor) {
    NEEDS_DEVICE();
    for (int activation = GPT_GELU; activation <= GPT_SWIGLU; activation++) {
        small_gpt cpu = step_on(NULL, NN_FULL, (gpt_activation)activation);
        for (int mixed = 0; mixed < 2; mixed++) {
            small_gpt cuda = step_on("cuda", mixed ? NN_MIXED : NN_FULL, (gpt_activation)activation);
            const double apart = distance(cuda.params->grad, cpu.params->grad, cpu.params->count);
            printf("loss %.6f, %.6f on the processor; gradients %.2g apart\n", cuda.loss, cpu.loss, apart);
            CHECK_CLOSE(cuda.loss, cpu.loss, (mixed ? 2e-3 : 1e-5) * cpu.loss);
            CHECK(apart < (mixed ? 5e-2 : 1e-5));
            small_gpt_free(&cuda);
        }
        small_gpt_free(&cpu);
    }
}

RUN_TESTS(ENTRY(gelu_is_the_reference), ENTRY(swiglu_is_the_reference), ENTRY(rms_norm_is_the_reference),
          ENTRY(rms_norm_sums_over_many_rows), ENTRY(query_key_is_the_reference),
          ENTRY(query_key_sums_over_more_heads_than_blocks), ENTRY(heads_that_are_too_large_are_refused),
          ENTRY(linear_cross_entropy_is_the_reference), ENTRY(linear_cross_entropy_is_the_reference_in_chunks),
          ENTRY(a_gpt_has_the_loss_and_gradients_of_the_processor))
