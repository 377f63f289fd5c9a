/* Orthogonal matrices for rules that work in another basis. All in f64 with operations that IEEE 754 rounds exactly, one
 * thread each: the same bits everywhere. */
#ifndef ADAMOD_EIGEN_H
#define ADAMOD_EIGEN_H

#include <stdint.h>

/* a, n x n and symmetric, is replaced by its eigenvectors, in columns, those of the largest eigenvalues first; which sign
 * each has is not said. By reflections to three diagonals and the QL algorithm. space has 4 n numbers. If a is not
 * finite, all are NaN. */
void adamod__eigenvectors(double *a, int64_t n, double *space);

/* a, n x n, is replaced by Q of its decomposition into an orthogonal and a triangular matrix, by reflections; signs are those
 * of LAPACK. space has 2 n numbers. */
void adamod__orthogonal_factor(double *a, int64_t n, double *space);

#endif
