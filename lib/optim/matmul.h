/* Matrix products in blocks, on the threads of a pool. Every element is one chain of fused multiply-adds in the order of
 * the inner dimension, so it does not depend on threads or instruction sets. */
#ifndef ADAMOD_MATMUL_H
#define ADAMOD_MATMUL_H

#include "optim/internal.h"

/* An operand: element (i, j) is at data[i * row + j * col]. Swapping row and col transposes it. */
typedef struct product_matrix {
    const void *data;
    int64_t row, col;
} product_matrix;

/* c = beta c + alpha a b, where a is m x k, b is k x n and c is m x n, contiguous; k > 0. a or b may be c. */
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
