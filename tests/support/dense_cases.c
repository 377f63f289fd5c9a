/* See dense_cases.h. */
#include "dense_cases.h"
#include "support/random.h"

opcheck dropout_case(int64_t rows, int64_t cols, double p, bool training) {
    return (opcheck){
        .op = &nn_op_dropout,
        .attributes = {.dropout = {.dropout = p}},
        .n_inputs = 1,
        .input = {OPCHECK_ROWS(1, rows, cols)},
        .training = training,
        .seed = (uint64_t)(rows + cols),
    };
}

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

opcheck embedding_case(int64_t rows, int64_t n, int64_t d, int32_t *ids, int32_t *positions, uint64_t furthest) {
    for (int64_t i = 0; i < rows; i++) {
        ids[i] = (int32_t)nn_below(1, (uint64_t)i, (uint64_t)n);
        if (positions) positions[i] = (int32_t)nn_below(2, (uint64_t)i, furthest);
    }
    opcheck o = {
        .op = &nn_op_embedding,
        .attributes = {.embedding = {.scale = 1.5}},
        .n_inputs = 3,
        .input = {OPCHECK_INDEX(1, rows, 0, ids), OPCHECK_NONE, OPCHECK_MATRIX(n, d)},
        .seed = (uint64_t)(n + d),
        .longest_sum = (double)rows,
    };
    if (positions) o.input[1] = (opcheck_input)OPCHECK_INDEX(1, rows, 0, positions);
    return o;
}
