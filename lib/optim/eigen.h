/* Orthogonal matrices for rules that work in another basis. Computed in f64, by one thread, with operations that IEEE 754
 * rounds exactly: the bits are the same everywhere. */
#ifndef ADAMOD_EIGEN_H
#define ADAMOD_EIGEN_H

#include <stdint.h>

/* Replaces a, symmetric and n x n, by its eigenvectors as columns, largest eigenvalues first, with unspecified signs:
 * Householder tridiagonalization, then the QL algorithm. space has 4 n numbers. If a is not finite, all are NaN. */
void adamod__eigenvectors(double *a, int64_t n, double *space);

/* Replaces a, n x n, by Q of its QR decomposition, by Householder reflections; signs are those of LAPACK. space has 2 n
 * numbers. */
void adamod__orthogonal_factor(double *a, int64_t n, double *space);

#endif
