#include "lstm_case.h"

#include "nn/ops/lstm_view.h"

#include <math.h>

opcheck lstm_of(const lstm_case *a) {
    static const int32_t on = 1, off = 0;
    opcheck o = {.op = &nn_op_lstm,
                 .attributes = {.lstm = {.dropout = a->dropout}},
                 .n_inputs = LSTM_INPUTS,
                 .input = {OPCHECK_ROWS(1, a->steps * a->batch, a->in), OPCHECK_MATRIX(4 * a->h, a->in),
                           OPCHECK_MATRIX(4 * a->h, a->h), OPCHECK_VECTOR(4 * a->h), OPCHECK_VECTOR(4 * a->h),
                           OPCHECK_MATRIX(a->batch, a->h), OPCHECK_MATRIX(a->batch, a->h),
                           OPCHECK_INDEX(0, 1, 0, a->carried ? &on : &off)},
                 .training = a->training,
                 .seed = (uint64_t)(a->steps + 100 * a->h),
                 .longest_sum = a->in + a->h + 4 * a->h + a->steps * a->batch,
                 .slack = 4}; /* a step's errors go through the steps behind it */
    for (int i = LSTM_W_IN; i <= LSTM_B_STATE; i++) o.input[i].scale = i <= LSTM_W_STATE ? 1 / sqrt(a->h) : 0.5;
    o.input[LSTM_H].no_grad = o.input[LSTM_C].no_grad = true;
    return o;
}
