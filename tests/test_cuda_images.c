/* Ops on images of the cuda backend against the reference, as test_ops_images.c does it for the processor. */
#include "check.h"
#include "cudacheck.h"
#include "nn/backend.h"

#define NEEDS_DEVICE()                                                                                                 \
    if (!cudacheck_open()) SKIP(adamod_last_error())

static void check_both(const opcheck *o) {
    CHECK(cudacheck(o, NN_F32));
    CHECK(cudacheck(o, NN_BF16));
}

/* ---- convolution ---- */

typedef struct conv_sizes {
    int64_t rows, height, width, in, out, size;
    int stride, padding;
    int64_t gap, out_gap;
} conv_sizes;

static opcheck convolution_case(const conv_sizes *s) {
    opcheck o = {
        .op = &nn_op_convolution,
        .attributes = {.stride = s->stride, .padding = s->padding},
        .n_inputs = 2,
        .input = {OPCHECK_IMAGES(1, s->rows, s->height, s->width, s->in), OPCHECK_KERNEL(s->out, s->size, s->in)},
        .training = true,
        .seed = (uint64_t)(s->rows + s->height + s->in + s->out),
        .gap = s->out_gap,
    };
    const int64_t n = s->size * s->size * (s->in > s->out ? s->in : s->out), pixels = s->rows * s->height * s->width;
    o.longest_sum = (double)(n > pixels ? n : pixels);
    o.input[0].gap = s->gap;
    return o;
}

TEST(convolutions) {
    static const conv_sizes sizes[] = {
        {2, 4, 4, 8, 8, 3, 1, 1, 0, 0},      {3, 8, 8, 64, 64, 3, 1, 1, 0, 0},     {2, 32, 32, 3, 64, 3, 1, 1, 0, 0},
        {5, 16, 16, 64, 128, 3, 2, 1, 0, 0}, {5, 16, 16, 64, 128, 1, 2, 0, 0, 0},  {2, 7, 5, 12, 9, 1, 3, 0, 4, 0},
        {2, 6, 6, 3, 16, 3, 1, 1, 2, 0},     {2, 5, 5, 7, 12, 3, 2, 1, 0, 0},      {9, 4, 4, 128, 256, 3, 1, 1, 0, 0},
        {3, 6, 5, 16, 24, 3, 1, 1, 8, 16},   {1, 5, 7, 8, 16, 3, 1, 1, 0, 8},      {3, 8, 8, 32, 64, 3, 1, 1, 16, 0},
        {2, 32, 32, 64, 64, 3, 1, 1, 0, 0},  {3, 16, 16, 128, 32, 3, 1, 1, 0, 96},
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

static opcheck norm_case(int64_t rows, int64_t size, int64_t channels, int64_t gap, bool residual, bool relu,
                         bool training) {
    opcheck o = {
        .op = &nn_op_batch_norm,
        .attributes = {.eps = 1e-5, .momentum = 0.1, .activation = relu ? NN_RELU : NN_LINEAR},
        .n_inputs = 6,
        .input = {OPCHECK_IMAGES(1, rows, size, size, channels), OPCHECK_NONE, OPCHECK_VECTOR(channels),
                  OPCHECK_VECTOR(channels), OPCHECK_VECTOR(channels), OPCHECK_VECTOR(channels)},
        .training = training,
        .seed = (uint64_t)(rows + size + channels),
        .longest_sum = (double)(rows * size * size),
    };
    o.input[0].mean = 1;
    o.input[0].gap = gap;
    if (residual) o.input[1] = o.input[0], o.input[1].gap = 2 * gap;
    o.gap = gap / 2;
    o.input[2].mean = 1;
    o.input[4].no_grad = o.input[5].no_grad = true;
    o.input[5].mean = 2; /* a variance */
    o.input[5].scale = 0.2;
    return o;
}

/* Channels that are whole packs and not, one block and many, what fits into shared memory and what does not. */
TEST(batch_norms) {
    static const int64_t sizes[][4] = {{2, 2, 8, 0},   {3, 5, 3, 0},    {3, 5, 3, 4},     {7, 8, 64, 0}, {7, 8, 64, 32},
                                       {5, 4, 200, 0}, {64, 16, 64, 0}, {9, 16, 256, 16}, {1, 1, 32, 0}};
    NEEDS_DEVICE();
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        for (int k = 0; k < 4; k++) {
            const int64_t *s = sizes[i];
            const opcheck o = norm_case(s[0], s[1], s[2], s[3], k & 1, k & 2, s[0] * s[1] > 1);
            check_both(&o);
        }
    }
    const opcheck evaluated = norm_case(3, 4, 24, 0, true, true, false);
    check_both(&evaluated);
}

TEST(batch_norm_of_matrices) {
    NEEDS_DEVICE();
    opcheck o = norm_case(70, 1, 40, 0, false, true, true);
    o.input[0] = (opcheck_input)OPCHECK_ROWS(1, 70, 40);
    check_both(&o);
}

/* ---- pooling, concatenation ---- */

TEST(average_pools) {
    static const int64_t sizes[][6] = {
        {2, 4, 2, 8, 2, 0}, {3, 4, 4, 64, 4, 0}, {1, 6, 3, 5, 3, 0}, {4, 8, 8, 32, 2, 16}};
    NEEDS_DEVICE();
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        const int64_t *s = sizes[i];
        opcheck o = {.op = &nn_op_average_pool,
                     .attributes = {.size = (int)s[4]},
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
                         .attributes = {.activation = k & 4 ? NN_RELU : NN_LINEAR},
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

RUN_TESTS(ENTRY(convolutions), ENTRY(convolutions_that_are_products), ENTRY(batch_norms), ENTRY(batch_norm_of_matrices),
          ENTRY(average_pools), ENTRY(concats), ENTRY(scales_and_shifts))
