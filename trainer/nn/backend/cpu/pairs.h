/* Products of few rows, with factors of bf16 in pairs: a word holds the numbers of rows 2 p and 2 p + 1 of the inner
 * dimension, the first in the lower half. */
#pragma once

#include <stdint.h>

/* to = pairs of n numbers of two rows, rounded to the nearest; second NULL: zeros. */
void nn_pairs_pack(int64_t n, const float *first, const float *second, uint32_t *to);

/* c = a b, where a is m x 2 pairs with columns next to each other, stride words apart, b is 2 pairs x NN_LANES and c
 * m x NN_LANES: thin of vector.h. */
typedef void nn_pairs_product(int64_t m, int64_t pairs, const uint32_t *a, int64_t stride, const uint32_t *b, float *c);

/* The fastest that this processor has. */
nn_pairs_product *nn_pairs_choose(void);
