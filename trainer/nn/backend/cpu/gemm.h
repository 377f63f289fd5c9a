/* Matrix products, row major. Results are the same bit for bit for any number of threads: each product is cut into
 * tiles that follow from its size alone, and a tile is computed by one thread. */
#pragma once

#include "adamod.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* A factor of a product: a stored matrix with `stride` numbers from row to row, or its transpose. */
typedef struct nn_factor {
    const float *data;
    int64_t stride;
    bool transposed;
} nn_factor;

/* C = A B, or C += A B; A is m x k, B is k x n. */
typedef struct nn_product {
    int64_t m, n, k;
    nn_factor a, b;
    float *c;
    int64_t ldc;
    bool add;
    /* Called for each tile of C while it is in the cache, with the tile's place and size; NULL: nothing to do. */
    void (*then)(void *context, int64_t row, int64_t col, int64_t rows, int64_t cols);
    void *context;
    /* Room for A and B rounded to bf16, which are multiplied then, unless the product is too small to gain. Products of one
     * call have the same room: nn_narrow_floats for each different factor. NULL: A and B are multiplied. */
    float *narrow;
} nn_product;

/* Floats of room for a rounded factor, rows x cols as it is stored. Fewer rows need less. */
size_t nn_narrow_floats(int64_t rows, int64_t cols);
/* The instructions that multiply rounded factors: "AMX_BF16", "AVX512_BF16"; NULL: none, so that products are of f32. */
const char *nn_narrow_instructions(void);

/* Computes independent products at once; at most NN_MAX_PRODUCTS. */
#define NN_MAX_PRODUCTS 16
void nn_products(adamod_pool *pool, const nn_product *products, int n);
static inline void nn_gemm(adamod_pool *pool, const nn_product *product) { nn_products(pool, product, 1); }

/* Prepares the library once, before the first product. Fails where memory is short, which later would end the program. */
adamod_status nn_gemm_prepare(void);

/* The library that computes products: "oneDNN 2.6.3". */
const char *nn_gemm_library(void);
