/* Ops on images of the cuda backend against the reference, as test_ops_images.c does it for the processor. */
#include "check.h"
#include "cudacheck.h"
#include "image_cases.h"
#include "nn/backend.h"

#define NEEDS_DEVICE()                                                                                                 \
    if (!cudacheck_open()) SKIP(adamod_last_error())

static void check_both(const opcheck *o) {
    CHECK(cudacheck(o, NN_F32));
    CHECK(cudacheck(o, NN_BF16));
}

/* ---- convolution ---- */

TEST(convolutions) {
    static const conv_sizes sizes[] = {
        {2, 4, 4, 8, 8, 3, 1, 1, 0, 0},      {3, 8, 8, 64, 64, 3, 1, 1, 0, 0},     {2, 32, 32, 3, 64, 3, 1, 1, 0, 0},
        {5, 16, 16, 64, 128, 3, 2, 1, 0, 0}, {5, 16, 16, 64, 128, 1, 2, 0, 0, 0},  {2, 7, 5, 12, 9, 1, 3, 0, 4, 0},
        {2, 6, 6, 3, 16, 3, 1, 1, 2, 0},     {2, 5, 5, 7, 12, 3, 2, 1, 0, 0},      {9, 4, 4, 128, 256, 3, 1, 1, 0, 0},
        {3, 6, 5, 16, 24, 3, 1, 1, 8, 16},   {1, 5, 7, 8, 16, 3, 1, 1, 0, 8},      {3, 8, 8, 32, 64, 3, 1, 1, 16, 0},
        {2, 32, 32, 64, 64, 3, 1, 1, 0, 0},  {3, 16, 16, 128, 32, 3, 1, 1, 0, 96}, {1, 32, 32, 128, 32, 3, 1, 1, 0, 0},
        {5, 8, 8, 128, 32, 3, 1, 1, 64, 32}, {9, 4, 4, 128, 32, 3, 1, 1, 0, 0},    {3, 16, 16, 128, 128, 3, 1, 1, 0, 0},
        {5, 8, 8, 128, 256, 3, 1, 1, 0, 0},  {3, 8, 8, 64, 128, 3, 1, 1, 0, 0},    {17, 4, 4, 256, 128, 3, 1, 1, 0, 0},
    };
    NEEDS_DEVICE();
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        const opcheck o = convolution_case(&sizes[i]);
        check_both(&o);
    }
}

TEST(convolutions_that_are_products) {
    static const conv_sizes sizes[] = {
        {2, 4, 4, 8, 8, 1, 1, 0, 0, 0},    {3, 8, 8, 64, 128, 1, 1, 0, 192, 0}, {2, 16, 16, 96, 32, 1, 1, 0, 32, 64},
        {5, 7, 3, 24, 40, 1, 1, 0, 8, 16}, {1, 1, 1, 16, 8, 1, 1, 0, 0, 0},     {4, 8, 8, 256, 128, 1, 1, 0, 0, 0},
    };
    NEEDS_DEVICE();
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        const opcheck o = convolution_case(&sizes[i]);
        check_both(&o);
    }
}

/* ---- batch norm ---- */

static void check_norm(const int64_t s[4], bool residual, bool relu, bool training) {
    opcheck o = batch_norm_case(s[0], s[1], s[1], s[2], residual, relu, training);
    o.input[0].gap = s[3], o.input[1].gap = residual ? 2 * s[3] : 0, o.gap = s[3] / 2;
    check_both(&o);
}

/* Channels that are whole packs and not, one block and many, what fits into shared memory and what does in part. */
TEST(batch_norms) {
    static const int64_t sizes[][4] = {{2, 2, 8, 0},   {3, 5, 3, 0},    {3, 5, 3, 4},     {7, 8, 64, 0}, {7, 8, 64, 32},
                                       {5, 4, 200, 0}, {64, 16, 64, 0}, {9, 16, 256, 16}, {1, 1, 32, 0}};
    NEEDS_DEVICE();
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        for (int k = 0; k < 4; k++) {
            const int64_t *s = sizes[i];
            check_norm(s, k & 1, k & 2, s[0] * s[1] > 1);
        }
    }
    check_norm((const int64_t[]){220, 32, 8, 0}, true, true, true);
    check_norm((const int64_t[]){3, 4, 24, 0}, true, true, false);
}

/* The variance that lasts is of all processes' pixels, so that forward adds nothing. */
TEST(batch_norms_of_several_processes) {
    static const int64_t sizes[][3] = {{2, 2, 8}, {3, 5, 3}, {7, 8, 64}, {64, 16, 64}};
    NEEDS_DEVICE();
    for (int i = 0; i < 8; i++) {
        const int64_t *s = sizes[i / 2];
        opcheck o = batch_norm_case(s[0], s[1], s[1], s[2], i % 2, i % 2, true);
        o.attributes.batch_norm.synced = true;
        check_both(&o);
    }
}

TEST(batch_norm_of_matrices) {
    NEEDS_DEVICE();
    check_norm((const int64_t[]){70, 0, 40, 0}, false, true, true);
}

/* ---- pooling, concatenation ---- */

TEST(average_pools) {
    static const int64_t sizes[][6] = {
        {2, 4, 2, 8, 2, 0}, {3, 4, 4, 64, 4, 0}, {1, 6, 3, 5, 3, 0}, {4, 8, 8, 32, 2, 16}};
    NEEDS_DEVICE();
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        const int64_t *s = sizes[i];
        opcheck o = {.op = &nn_op_average_pool,
                     .attributes = {.average_pool = {.size = (int)s[4]}},
                     .n_inputs = 1,
                     .input = {OPCHECK_IMAGES(1, s[0], s[1], s[2], s[3])},
                     .training = true,
                     .longest_sum = (double)(s[4] * s[4]),
                     .gap = s[5]};
        o.input[0].gap = s[5];
        check_both(&o);
    }
}

TEST(concats) {
    static const int64_t sizes[][4] = {{2, 3, 8, 16}, {3, 2, 3, 5}, {4, 4, 32, 64}};
    NEEDS_DEVICE();
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        const int64_t *s = sizes[i];
        opcheck o = {.op = &nn_op_concat,
                     .n_inputs = 2,
                     .input = {OPCHECK_IMAGES(1, s[0], s[1], 2, s[2]), OPCHECK_IMAGES(1, s[0], s[1], 2, s[3])},
                     .training = true};
        check_both(&o);
        o.input[0].gap = 8, o.gap = 16;
        check_both(&o);
    }
}

/* ---- scale and shift ---- */

TEST(scales_and_shifts) {
    static const int64_t sizes[][4] = {{2, 2, 2, 3}, {3, 4, 4, 64}, {70, 16, 16, 64}};
    NEEDS_DEVICE();
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        const int64_t *s = sizes[i];
        for (int k = 0; k < 8; k++) {
            opcheck o = {.op = &nn_op_scale_shift,
                         .attributes = {.scale_shift = {.activation = k & 4 ? NN_RELU : NN_LINEAR}},
                         .n_inputs = 4,
                         .input = {OPCHECK_IMAGES(1, s[0], s[1], s[2], s[3]), OPCHECK_NONE, OPCHECK_VECTOR(1)},
                         .training = true,
                         .longest_sum = (double)(s[0] * s[1] * s[2] * s[3])};
            if (k & 1) o.input[1] = (opcheck_input)OPCHECK_VECTOR(1);
            if (k & 2) o.input[3] = o.input[0];
            check_both(&o);
        }
    }
}

RUN_TESTS(ENTRY(convolutions), ENTRY(convolutions_that_are_products), ENTRY(batch_norms),
          ENTRY(batch_norms_of_several_processes), ENTRY(batch_norm_of_matrices), ENTRY(average_pools), ENTRY(concats),
          ENTRY(scales_and_shifts))
