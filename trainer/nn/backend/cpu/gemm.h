/* Matrix products, row major. Results are the same bit for bit for any number of threads: each product is cut into
 * tiles that follow from its size alone, and a tile is computed by one thread. */
#ifndef ADAMOD_NN_GEMM_H
#define ADAMOD_NN_GEMM_H

#include "adamod.h"

#include <stdbool.h>
#include <stdint.h>

/* C = alpha op(A) op(B) + beta C; op(A) is m x k, op(B) is k x n, transposed from what is stored if trans. beta 0: C
 * need not hold anything. */
void nn_gemm(adamod_pool *pool, bool trans_a, bool trans_b, int64_t m, int64_t n, int64_t k, float alpha,
             const float *a, int64_t lda, const float *b, int64_t ldb, float beta, float *c, int64_t ldc);

/* The same, with something to do for each tile of C while it is in the cache: its first row and column, rows and
 * columns. */
typedef struct nn_product {
    bool trans_a, trans_b;
    int64_t m, n, k;
    float alpha, beta;
    const float *a, *b;
    float *c;
    int64_t lda, ldb, ldc;
    void (*then)(void *context, int64_t row, int64_t col, int64_t rows, int64_t cols); /* NULL: nothing */
    void *context;
} nn_product;

/* Products that do not depend on each other, at once; at most NN_MAX_PRODUCTS. */
#define NN_MAX_PRODUCTS 16
void nn_products(adamod_pool *pool, const nn_product *products, int n);

/* To be called before the first of them: makes the library ready, once. Fails, with the last error set, where there is too
 * little memory for that; later it would end the program. */
adamod_status nn_gemm_prepare(void);

/* What computes them: "oneDNN 2.6.3". */
const char *nn_gemm_library(void);

#endif
