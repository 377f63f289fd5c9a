/* Products with a matrix that does not change, from a copy of it in the order in which the product reads: a library would
 * make one for each product, which for a few hundred rows takes nearly as long as the product itself. */
#ifndef ADAMOD_NN_PACKED_H
#define ADAMOD_NN_PACKED_H

#include "nn/kernel.h"

typedef struct nn_packed nn_packed;

/* For W [out, in]; NULL without memory. */
nn_packed *nn_packed_create(int64_t out, int64_t in);
void nn_packed_free(nn_packed *p);

/* y [rows, out] = x W^T. The first call copies W. then(context, row, column, rows, columns), if not NULL, follows each part
 * of y as soon as it is there. */
void nn_packed_product(nn_packed *p, adamod_pool *pool, const float *w, int64_t rows, const float *x, float *y,
                       void (*then)(void *context, int64_t row, int64_t column, int64_t rows, int64_t columns),
                       void *context);

#endif
