/* decoder_cases.h - what tests of the ops of decoder-only models check, on every backend. */
#ifndef DECODER_CASES_H
#define DECODER_CASES_H

#include "opcheck.h"

opcheck gelu_case(int64_t rows, int64_t cols);
opcheck swiglu_case(int64_t rows, int64_t cols); /* cols: of the result */
opcheck rms_norm_case(int64_t rows, int64_t cols);

typedef struct query_key_sizes {
    int64_t rows;
    int heads, kv_heads, size;
    bool q_gain, k_gain;
    double base;
} query_key_sizes;

/* positions: room for the rows. */
opcheck query_key_case(const query_key_sizes *s, int32_t *positions);

/* One of five rows has no target. targets: room for the rows. */
opcheck linear_cross_entropy_case(int64_t rows, int64_t in, int64_t words, bool bias, double smoothing, double z,
                                  int32_t *targets);

#endif
