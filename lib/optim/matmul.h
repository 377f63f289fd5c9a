/* Products of matrices in blocks, on the threads of a pool. Every number is one chain of fused multiply-adds in the order of
 * the inner dimension, so neither threads nor instruction sets change a bit. */
#ifndef ADAMOD_MATMUL_H
#define ADAMOD_MATMUL_H

#include "optim/internal.h"

/* An operand: element (i, j) is at data[i * row + j * col], so that its transpose is the same with the two exchanged. */
typedef struct product_matrix {
    const void *data;
    int64_t row, col;
} product_matrix;

/* c = beta c + alpha a b. c has m rows of n, one behind the other; a is m x k, b k x n, and k > 0. Either may be
 * c. */
typedef struct product {
    int64_t m, n, k;
    product_matrix a, b;
    void *c;
    double alpha, beta; /* beta 0: c is not read */
    bool symmetric;     /* c is: half of it is computed, and copied to the other */
    adamod_type type;   /* f32 or f64 */
    const real_kernels *kernels;
    adamod_pool *pool; /* NULL: on this thread */
    void *space;       /* aligned to 64, of adamod__product_space bytes */
} product;

size_t adamod__product_space(const product *p);
void adamod__product(const product *p);

#endif
