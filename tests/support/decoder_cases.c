#include "decoder_cases.h"
#include "nn/ops/linear_cross_entropy.h"
#include "nn/ops/query_key.h"
#include "support/random.h"

#include <math.h>

opcheck gelu_case(int64_t rows, int64_t cols) {
    return (opcheck){.op = &nn_op_gelu,
                     .n_inputs = 1,
                     .input = {{.shape = {.rows = 1, .ndim = 2, .dim = {rows, cols}}, .scale = 3}},
                     .seed = (uint64_t)(rows + cols)};
}

opcheck swiglu_case(int64_t rows, int64_t cols) {
    opcheck o = gelu_case(rows, 2 * cols);
    o.op = &nn_op_swiglu;
    return o;
}

opcheck rms_norm_case(int64_t rows, int64_t cols) {
    opcheck o = {
        .op = &nn_op_rms_norm,
        .attributes = {.rms_norm = {.eps = 1e-5}},
        .n_inputs = 2,
        .input = {OPCHECK_ROWS(1, rows, cols), OPCHECK_VECTOR(cols)},
        .seed = (uint64_t)(rows + cols),
        .longest_sum = (double)(rows > cols ? rows : cols),
    };
    o.input[1].mean = 1;
    return o;
}

opcheck query_key_case(const query_key_sizes *s, int32_t *positions) {
    const int64_t cols = (int64_t)(s->heads + 2 * s->kv_heads) * s->size, summed = s->rows * s->heads;
    for (int64_t i = 0; i < s->rows; i++) positions[i] = (int32_t)nn_below(9, (uint64_t)i, 3000);
    opcheck o = {
        .op = &nn_op_query_key,
        .attributes = {.query_key = {.heads = s->heads, .kv_heads = s->kv_heads, .base = s->base, .eps = 1e-5}},
        .n_inputs = 4,
        .input = {OPCHECK_ROWS(1, s->rows, cols), OPCHECK_NONE, OPCHECK_NONE, OPCHECK_NONE},
        .seed = (uint64_t)(s->rows + cols),
        .longest_sum = (double)(summed > s->size ? summed : s->size),
    };
    if (s->base > 0) o.input[QUERY_KEY_POSITIONS] = (opcheck_input)OPCHECK_INDEX(1, s->rows, 0, positions);
    if (s->q_gain) o.input[QUERY_KEY_Q_GAIN] = (opcheck_input)OPCHECK_VECTOR(s->size);
    if (s->k_gain) o.input[QUERY_KEY_K_GAIN] = (opcheck_input)OPCHECK_VECTOR(s->size);
    o.input[QUERY_KEY_Q_GAIN].mean = o.input[QUERY_KEY_K_GAIN].mean = 1;
    return o;
}

opcheck linear_cross_entropy_case(int64_t rows, int64_t in, int64_t words, bool bias, double smoothing, double z,
                                  int32_t *targets) {
    for (int64_t i = 0; i < rows; i++) {
        targets[i] = nn_below(7, (uint64_t)i, 5) ? (int32_t)nn_below(8, (uint64_t)(i * words), (uint64_t)words) : -1;
    }
    const int64_t longest = words > rows ? words : rows;
    opcheck o = {
        .op = &nn_op_linear_cross_entropy,
        .attributes = {.linear_cross_entropy = {.smoothing = smoothing, .z = z}},
        .n_inputs = 4,
        .input = {OPCHECK_ROWS(1, rows, in), OPCHECK_MATRIX(words, in), OPCHECK_NONE,
                  OPCHECK_INDEX(1, rows, 0, targets)},
        .seed = (uint64_t)(rows + in + words),
        .weighted = 1,
        .longest_sum = (double)(in > longest ? in : longest),
    };
    o.input[LCE_W].scale = 1.5 / sqrt((double)in);
    if (bias) o.input[LCE_B] = (opcheck_input)OPCHECK_VECTOR(words);
    return o;
}
