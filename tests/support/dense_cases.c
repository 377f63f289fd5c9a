/* See dense_cases.h. */
#include "dense_cases.h"
#include "support/random.h"

opcheck add_norm_case(int64_t rows, int64_t cols, bool branch, double dropout, bool training) {
    opcheck o = {
        .op = &nn_op_add_norm,
        .attributes = {.add_norm = {.dropout = dropout, .eps = 1e-5}},
        .n_inputs = 4,
        .input = {OPCHECK_ROWS(1, rows, cols), OPCHECK_NONE, OPCHECK_VECTOR(cols), OPCHECK_VECTOR(cols)},
        .training = training,
        .seed = (uint64_t)(rows + cols),
        .longest_sum = (double)(rows > cols ? rows : cols),
    };
    if (branch) o.input[1] = o.input[0];
    o.input[0].mean = 1;
    o.input[2].mean = 1;
    return o;
}

opcheck cross_entropy_case(int64_t rows, int64_t classes, double smoothing, int32_t *targets) {
    for (int64_t i = 0; i < rows; i++) {
        targets[i] =
            nn_below(7, (uint64_t)i, 5) ? (int32_t)nn_below(8, (uint64_t)(i * classes), (uint64_t)classes) : -1;
    }
    return (opcheck){
        .op = &nn_op_cross_entropy,
        .attributes = {.cross_entropy = {.smoothing = smoothing}},
        .n_inputs = 2,
        .input = {OPCHECK_ROWS(1, rows, classes), OPCHECK_INDEX(1, rows, 0, targets)},
        .seed = (uint64_t)(rows + classes),
        .weighted = 1,
        .longest_sum = 16,
    };
}
