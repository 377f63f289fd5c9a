/* Ops on images: convolution, batch norm, pooling, concatenation. */
#include "check.h"
#include "image_cases.h"
#include "nn/backend/cpu/cpu.h"
#include "values.h"

#include <math.h>
#include <stdlib.h>

/* ---- convolution ---- */

TEST(gradients_of_convolution) {
    static const conv_sizes sizes[] = {
        {2, 4, 4, 2, 3, 3, 1, 1, 0, 0}, {1, 5, 3, 3, 2, 3, 2, 1, 2, 1}, {2, 3, 4, 2, 2, 1, 1, 0, 0, 3},
        {1, 5, 5, 1, 2, 1, 2, 0, 1, 0}, {1, 4, 5, 2, 1, 2, 1, 1, 0, 0}, {1, 3, 3, 1, 1, 3, 3, 2, 0, 0},
    };
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        const opcheck o = convolution_case(&sizes[i]);
        CHECK(opcheck_gradients(&o));
    }
}

TEST(convolution_on_the_cpu_is_the_reference) {
    static const conv_sizes sizes[] = {
        {0, 4, 4, 16, 16, 3, 1, 1, 0, 0},  {0, 4, 4, 3, 5, 3, 2, 1, 0, 0},    {0, 3, 3, 2, 2, 1, 1, 0, 0, 0},
        {1, 1, 1, 1, 1, 1, 1, 0, 0, 0},    {3, 8, 8, 3, 16, 3, 1, 1, 0, 0},   {2, 9, 7, 16, 32, 3, 2, 1, 5, 0},
        {2, 8, 8, 16, 16, 3, 1, 1, 0, 0},  {1, 12, 9, 32, 48, 3, 1, 1, 0, 0}, {3, 4, 4, 64, 32, 3, 1, 1, 16, 16},
        {2, 7, 6, 16, 64, 3, 1, 0, 3, 0},  {2, 5, 6, 16, 16, 3, 1, 2, 0, 7},  {130, 8, 8, 16, 16, 3, 1, 1, 0, 0},
        {2, 6, 5, 24, 40, 1, 1, 0, 8, 16}, {2, 7, 7, 20, 8, 1, 2, 0, 0, 2},   {1, 6, 6, 4, 4, 5, 1, 2, 0, 0},
        {3, 2, 2, 16, 16, 3, 1, 1, 0, 0},  {1, 40, 40, 8, 4, 3, 1, 1, 0, 1},  {1, 5, 4, 3, 2, 2, 3, 1, 0, 0},
    };
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        opcheck o = convolution_case(&sizes[i]);
        o.input[0].no_grad = i % 5 == 3; /* what a graph's input is */
        if (!CHECK(opcheck_kernels(&o, &nn_cpu_convolution))) printf("sizes %zu\n", i);
    }
}

TEST(convolution_says_which_shapes_do_not_fit) {
    const conv_sizes sizes = {2, 4, 4, 2, 3, 3, 1, 1, 0, 0};
    opcheck o = convolution_case(&sizes);
    CHECK(!opcheck_shape(&o));
    o.input[1].shape.dim[3] = 5;
    CHECK_STR(opcheck_shape(&o), "x has 2 channels, W wants 5");
    o = convolution_case(&sizes);
    o.input[1].shape.dim[2] = 2;
    CHECK_HAS(opcheck_shape(&o), "[out, size, size, in]");
    o = convolution_case(&sizes);
    o.attributes.convolution.padding = 3;
    CHECK_HAS(opcheck_shape(&o), "padding from 0 to 2");
    o = convolution_case(&sizes);
    o.attributes.convolution.stride = 0;
    CHECK_HAS(opcheck_shape(&o), "stride of 1 or more");
    o = convolution_case(&sizes);
    o.attributes.convolution.padding = 0;
    o.input[0].shape.dim[1] = 2;
    CHECK_HAS(opcheck_shape(&o), "smaller than the kernel");
    o.input[0].shape.ndim = 2;
    CHECK_STR(opcheck_shape(&o), "x must be images");
}

/* ---- batch norm ---- */

TEST(gradients_of_batch_norm) {
    for (int k = 0; k < 8; k++) {
        opcheck o = batch_norm_case(3, k & 1 ? 2 : 0, 2, 3, k & 2, k & 4, true);
        o.seed = 2; /* no z comes close to 0, where relu has no derivative */
        CHECK(opcheck_gradients(&o));
        o.training = false;
        o.input[0].gap = 2, o.input[1].gap = 1, o.gap = 3;
        CHECK(opcheck_gradients(&o));
    }
}

/* rows, height (0: a matrix), width, channels, gaps of x, residual and y. */
static const int64_t image_sizes[][7] = {
    {0, 3, 3, 5, 0, 0, 0},   {1, 1, 2, 1, 0, 0, 0},  {2, 3, 5, 16, 0, 0, 0}, {3, 2, 2, 33, 3, 1, 2},
    {6, 5, 5, 130, 8, 0, 0}, {7, 0, 1, 20, 0, 4, 0}, {2, 4, 4, 70, 0, 0, 6}, {2, 0, 1, 17000, 0, 0, 0},
};
enum { IMAGE_SIZES = sizeof image_sizes / sizeof *image_sizes };

/* Numbers of few bits in running statistics, so that all agree on which z are positive. */
TEST(batch_norm_on_the_cpu_is_the_reference) {
    for (int i = 0; i < IMAGE_SIZES; i++) {
        const int64_t *s = image_sizes[i];
        for (int k = s[3] > 1000 ? 6 : fast() ? i % 3 : 0; k < 8; k += fast() ? 3 : 1) {
            opcheck o = batch_norm_case(s[0], s[1], s[2], s[3], k & 1, k & 2, k & 4);
            o.input[0].gap = s[4], o.gap = s[6];
            if (k & 1) o.input[1].gap = s[5];
            /* With few pixels the variance can be small, which enlarges x's errors in y. */
            if (s[0] * (s[1] ? s[1] * s[2] : 1) < 8) o.slack = 40;
            if (!CHECK(opcheck_kernels(&o, &nn_cpu_batch_norm))) printf("sizes %d, case %d\n", i, k);
        }
    }
}

/* As torch.nn.BatchNorm2d: the variance that is kept is unbiased. */
static void check_running_statistics(const nn_kernels *kernels) {
    enum { PIXELS = 4 };
    const float x[PIXELS] = {1, 2, 3, 6};
    float one = 1, zero = 0, y[PIXELS], mean = 10, variance = 20, saved[2], workspace[256];
    const nn_shape images = {.rows = 1, .ndim = 4, .dim = {2, 1, 2, 1}}, vector = {.ndim = 1, .dim = {1}};
    const nn_batch_norm_attributes attributes = {.eps = 1e-5, .momentum = 0.25};
    nn_sync sync = {0};
    nn_call c = {.attributes = &attributes, .saved = saved, .workspace = workspace, .training = true, .sync = &sync};
    c.input[0] = (nn_array){.data = (void *)(uintptr_t)x, .rows = 2, .cols = 2, .stride = 1, .shape = &images};
    c.output[0] = (nn_array){.data = y, .rows = 2, .cols = 2, .stride = 1, .shape = &images};
    float *const vectors[4] = {&one, &zero, &mean, &variance};
    for (int i = 0; i < 4; i++)
        c.input[2 + i] = (nn_array){.data = vectors[i], .rows = 1, .cols = 1, .stride = 1, .shape = &vector};
    c.output[1] = c.input[4], c.output[2] = c.input[5];
    kernels->forward(&c);
    CHECK_CLOSE(mean, 0.75 * 10 + 0.25 * 3, 1e-6);
    CHECK_CLOSE(variance, 0.75 * 20 + 0.25 * 14 / 3, 1e-6); /* 4 + 1 + 0 + 9 over 4 - 1 */
    CHECK_CLOSE(y[0], -2 / sqrt(3.5 + 1e-5), 1e-6);
    double added[2];
    const float left[2] = {10, 20}; /* what is added, later, has the same bits */
    const float taken[2] = {mean, variance};
    sync.added = added;
    kernels->forward(&c);
    CHECK(mean == taken[0] && variance == taken[1]);
    for (int i = 0; i < 2; i++) CHECK(nn_run(left[i], 0.25, added[i]) == taken[i]);
    sync.added = NULL;
    c.training = false;
    kernels->forward(&c);
    CHECK_CLOSE(y[0], (1 - mean) / sqrt(variance + 1e-5), 1e-6);
    const float before = mean;
    c.input[0].rows = c.output[0].rows = 0; /* of nothing there are no statistics */
    c.training = true;
    kernels->forward(&c);
    CHECK(mean == before && isfinite(variance));
}

TEST(batch_norm_keeps_running_statistics) {
    check_running_statistics(&nn_op_batch_norm.ref);
    check_running_statistics(&nn_cpu_batch_norm);
}

TEST(batch_norm_says_what_does_not_fit) {
    opcheck o = batch_norm_case(2, 3, 3, 4, true, true, true);
    CHECK(!opcheck_shape(&o));
    o.input[5] = (opcheck_input)OPCHECK_VECTOR(3);
    CHECK_STR(opcheck_shape(&o), "variance must be a vector of 4, the channels of x");
    o = batch_norm_case(2, 3, 3, 4, true, true, true);
    o.input[1].shape.dim[2] = 2;
    CHECK_HAS(opcheck_shape(&o), "one shape");
    o = batch_norm_case(2, 3, 3, 4, false, true, true);
    o.attributes.batch_norm.activation = NN_GELU;
    CHECK_HAS(opcheck_shape(&o), "linear or relu");
    o.attributes.batch_norm = (nn_batch_norm_attributes){.eps = 0, .momentum = 0.1};
    CHECK_HAS(opcheck_shape(&o), "eps > 0");
    o.attributes.batch_norm = (nn_batch_norm_attributes){.eps = 1e-5, .momentum = 1.5};
    CHECK_HAS(opcheck_shape(&o), "momentum <= 1");
}

/* ---- scale and shift ---- */

static opcheck scale_case(int64_t rows, int64_t channels, unsigned there, bool relu) {
    opcheck o = {
        .op = &nn_op_scale_shift,
        .attributes = {.scale_shift = {.activation = relu ? NN_RELU : NN_LINEAR}},
        .n_inputs = 4,
        .input = {OPCHECK_IMAGES(1, rows, 3, 2, channels), OPCHECK_NONE, OPCHECK_NONE, OPCHECK_NONE},
        .training = true,
        .seed = 1, /* no z comes close to 0 */
        .longest_sum = (double)(6 * rows * channels),
    };
    if (there & 1) o.input[1] = (opcheck_input)OPCHECK_VECTOR(1);
    if (there & 2) o.input[2] = (opcheck_input)OPCHECK_VECTOR(1);
    if (there & 4) o.input[3] = o.input[0];
    return o;
}

TEST(gradients_of_scale_shift) {
    for (unsigned there = 0; there < 8; there++) {
        const opcheck o = scale_case(2, 2, there, false), relu = scale_case(2, 2, there, true);
        CHECK(opcheck_gradients(&o));
        CHECK(opcheck_gradients(&relu));
    }
}

TEST(scale_shift_on_the_cpu_is_the_reference) {
    static const int64_t sizes[][2] = {{0, 3}, {1, 1}, {2, 17}, {30, 92}};
    for (unsigned k = 0; k < 16; k += fast() ? 3 : 1) {
        for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
            opcheck o = scale_case(sizes[i][0], sizes[i][1], k & 7, k & 8);
            for (int n = 0; n < 4; n++) o.input[n].step = 0.25; /* both agree on which z are positive */
            CHECK(opcheck_kernels(&o, &nn_cpu_scale_shift));
        }
    }
}

TEST(scale_shift_says_what_does_not_fit) {
    opcheck o = scale_case(2, 2, 7, true);
    CHECK(!opcheck_shape(&o));
    o.input[2] = (opcheck_input)OPCHECK_VECTOR(2);
    CHECK_STR(opcheck_shape(&o), "shift must be one number");
    o.input[1] = (opcheck_input)OPCHECK_VECTOR(2);
    CHECK_STR(opcheck_shape(&o), "scale must be one number");
    o = scale_case(2, 2, 7, true);
    o.input[3].shape.dim[3] = 3;
    CHECK_HAS(opcheck_shape(&o), "one shape");
    o = scale_case(2, 2, 7, true);
    o.attributes.scale_shift.activation = NN_GELU;
    CHECK_HAS(opcheck_shape(&o), "linear or relu");
}

/* ---- pooling ---- */

static opcheck pool_case(int64_t rows, int64_t height, int64_t width, int64_t channels, int size) {
    return (opcheck){
        .op = &nn_op_average_pool,
        .attributes = {.average_pool = {.size = size}},
        .n_inputs = 1,
        .input = {OPCHECK_IMAGES(1, rows, height, width, channels)},
        .training = true,
        .seed = (uint64_t)(rows + height + channels),
        .longest_sum = (double)(size * size),
    };
}

TEST(gradients_of_average_pool) {
    opcheck o = pool_case(2, 4, 2, 3, 2);
    CHECK(opcheck_gradients(&o));
    o.input[0].gap = 1, o.gap = 2;
    CHECK(opcheck_gradients(&o));
    o = pool_case(1, 3, 3, 2, 3);
    CHECK(opcheck_gradients(&o));
}

TEST(average_pool_on_the_cpu_is_the_reference) {
    static const int64_t sizes[][6] = {{0, 4, 4, 3, 2, 0},  {1, 2, 2, 1, 2, 0},  {3, 4, 6, 17, 2, 5},
                                       {2, 9, 3, 40, 3, 0}, {5, 8, 8, 64, 8, 1}, {2, 3, 2, 5, 1, 0}};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        const int64_t *s = sizes[i];
        opcheck o = pool_case(s[0], s[1], s[2], s[3], (int)s[4]);
        o.input[0].gap = s[5], o.gap = 2 * s[5];
        CHECK(opcheck_kernels(&o, &nn_cpu_average_pool));
    }
}

TEST(average_pool_says_what_it_does_not_divide) {
    opcheck o = pool_case(2, 6, 4, 3, 4);
    CHECK_STR(opcheck_shape(&o), "windows of 4 x 4 do not divide images of 6 x 4");
    o.attributes.average_pool.size = 0;
    CHECK(opcheck_shape(&o) != NULL);
}

/* ---- concat ---- */

static opcheck concat_case(int64_t rows, int64_t height, int64_t a, int64_t b) {
    return (opcheck){
        .op = &nn_op_concat,
        .n_inputs = 2,
        .input = {OPCHECK_IMAGES(1, rows, height, 2, a), OPCHECK_IMAGES(1, rows, height, 2, b)},
        .training = true,
        .seed = (uint64_t)(rows + height + a),
    };
}

TEST(gradients_of_concat) {
    opcheck o = concat_case(2, 3, 3, 2);
    CHECK(opcheck_gradients(&o));
    o.input[0].gap = 1, o.input[1].gap = 4, o.gap = 2;
    CHECK(opcheck_gradients(&o));
}

TEST(concat_on_the_cpu_is_the_reference) {
    for (int64_t i = 0; i < 5; i++) {
        opcheck o = concat_case(100 * i, 3, 1 + 7 * i, 3 * i + 2);
        o.input[0].gap = i, o.input[1].gap = i % 3, o.gap = i % 2;
        CHECK(opcheck_kernels(&o, &nn_cpu_concat));
    }
}

TEST(concat_says_what_does_not_fit) {
    opcheck o = concat_case(2, 3, 3, 2);
    CHECK(!opcheck_shape(&o));
    o.input[1].shape.dim[1] = 4;
    CHECK_HAS(opcheck_shape(&o), "alike but in their last dimension");
    o.input[0].shape.ndim = 1;
    CHECK_HAS(opcheck_shape(&o), "a matrix or images");
}

RUN_TESTS(ENTRY(gradients_of_convolution), ENTRY(convolution_on_the_cpu_is_the_reference),
          ENTRY(convolution_says_which_shapes_do_not_fit), ENTRY(gradients_of_batch_norm),
          ENTRY(batch_norm_on_the_cpu_is_the_reference), ENTRY(batch_norm_keeps_running_statistics),
          ENTRY(batch_norm_says_what_does_not_fit), ENTRY(gradients_of_scale_shift),
          ENTRY(scale_shift_on_the_cpu_is_the_reference), ENTRY(scale_shift_says_what_does_not_fit),
          ENTRY(gradients_of_average_pool), ENTRY(average_pool_on_the_cpu_is_the_reference),
          ENTRY(average_pool_says_what_it_does_not_divide), ENTRY(gradients_of_concat),
          ENTRY(concat_on_the_cpu_is_the_reference), ENTRY(concat_says_what_does_not_fit))
