/* Products with a constant matrix, from a copy of it in the order in which the product reads. A library would make that copy
 * for each product, which for a few hundred rows takes nearly as long as the product itself. */
#pragma once

#include "nn/backend/cpu/gemm.h"

typedef struct nn_packed nn_packed;

/* For W [out, in]; NULL without memory. */
nn_packed *nn_packed_create(int64_t out, int64_t in);
void nn_packed_free(nn_packed *p);

/* C = A W^T, where the product's B is W, transposed, and all matrices are contiguous. The first call copies W. */
void nn_packed_product(nn_packed *p, adamod_pool *pool, const nn_product *product);
