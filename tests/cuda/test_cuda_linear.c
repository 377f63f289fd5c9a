/* linear on a device: against the reference, in f32 and bf16. */
#include "check.h"
#include "cudacheck.h"

#include <math.h>
#include <stdlib.h>

static opcheck linear_case(nn_activation activation, bool bias, int64_t rows, int64_t in, int64_t out) {
    opcheck o = {.op = &nn_op_linear,
                 .attributes = {.linear = {.activation = activation}},
                 .n_inputs = 3,
                 .input = {OPCHECK_ROWS(1, rows, in), OPCHECK_MATRIX(out, in), OPCHECK_NONE},
                 .longest_sum = (double)(in > rows ? in : rows),
                 .seed = 5};
    if (out > rows && out > in) o.longest_sum = (double)out;
    if (bias) o.input[2] = (opcheck_input)OPCHECK_VECTOR(out);
    o.input[1].scale = in > 16 ? 4 / sqrt((double)in) : 1;
    /* Numbers have few digits, so that all backends see the same z as 0. */
    for (int i = 0; activation == NN_RELU && i < 3; i++) o.input[i].step = 0.25;
    return o;
}

TEST(linear_on_a_device_is_the_reference) {
    static const int64_t sizes[][3] = {{1, 1, 1},     {1, 64, 48},     {2, 7, 130},    {7, 33, 5},
                                       {64, 16, 16},  {65, 48, 3},     {333, 96, 200}, {1100, 24, 130},
                                       {70, 600, 40}, {256, 128, 512}, {384, 512, 96}};
    if (!cudacheck_open()) SKIP("no device");
    const size_t step = getenv("ADAMOD_TEST_FAST") ? 2 : 1;
    for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s += step) {
        for (int a = NN_LINEAR; a <= NN_GELU; a++) {
            for (int bias = 0; bias < 2; bias++) {
                opcheck o = linear_case((nn_activation)a, bias, sizes[s][0], sizes[s][1], sizes[s][2]);
                o.input[0].no_grad = bias && s % 2; /* what a graph's input is */
                CHECK(cudacheck(&o, NN_F32));
                if (sizes[s][1] <= 64) {
                    o.slack = 4096; /* each factor is off by up to 2^-11, not 2^-24 */
                    CHECK(cudacheck_tf32(&o));
                    o.slack = 0;
                }
                /* z is stored before gelu, its slope before it is multiplied. */
                o.rounded = a == NN_GELU ? 2 : 1;
                CHECK(cudacheck(&o, NN_BF16));
            }
        }
    }
}

RUN_TESTS(ENTRY(linear_on_a_device_is_the_reference))
