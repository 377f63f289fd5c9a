/* Small dense loops on f32, built for each instruction set: products of tiles that fit the cache, and rows of softmax.
 *
 * Sums run in an order that does not depend on the width of vectors, so that all sets with a fused multiply-add compute
 * the same bits; so does the exponential, which uses none. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

enum { NN_LANES = 16 }; /* partial sums of a row, and what rows of a tile are padded to */

static inline int64_t nn_padded(int64_t n) { return (n + NN_LANES - 1) / NN_LANES * NN_LANES; }

/* Element (i, j) is x[i * row + j * column]. */
typedef struct nn_tile {
    float *x;
    int64_t row, column;
} nn_tile;

typedef struct nn_vector {
    const char *name;

    /* ---- tiles ---- */

    /* c = a b, or c += a b, where a is m x k and b is k x n; columns of b and c are next to each other, and n is a
     * multiple of NN_LANES. */
    void (*product)(int64_t m, int64_t n, int64_t k, nn_tile a, nn_tile b, nn_tile c, bool add);
    /* c = a b, where a is m x k with columns next to each other, stride apart, b is k x NN_LANES and c m x NN_LANES. For few
     * rows and a b that comes from memory: it is read in order, as rarely as registers allow, and what lies behind it is
     * fetched. */
    void (*thin)(int64_t m, int64_t k, const float *a, int64_t stride, const float *b, float *c);
    /* to = scale * from, [m, n], and 0 in columns n .. width - 1. */
    void (*copy)(int64_t m, int64_t n, const float *from, int64_t row, float scale, float *to, int64_t width);
    /* to = the transpose of from, which is [m, n], and 0 in columns m .. width - 1. */
    void (*transpose)(int64_t m, int64_t n, const float *from, int64_t row, float *to, int64_t width);

    /* ---- rows of n numbers ---- */

    /* y = scale * x, or y += scale * x. */
    void (*scale)(int64_t n, const float *x, float scale, float *y, bool add);
    float (*dot)(int64_t n, const float *x, const float *y);
    /* y_i = the dot of x and row i of w, for m rows of n numbers, stride apart, that come from memory. */
    void (*dots)(int64_t m, int64_t n, const float *w, int64_t stride, const float *x, float *y);
    float (*most)(int64_t n, const float *x);
    /* The sum of exp(x - most), and of x. */
    double (*sum_exp)(int64_t n, const float *x, float most, double *sum_x);
    /* y = scale exp(x - lse) - shift, or y += that. */
    void (*softmax)(int64_t n, const float *x, float lse, float scale, float shift, float *y, bool add);

    /* ---- rows of a tile, whose padding may be written ---- */

    /* s = exp(s - most) for the first n, 0 up to end, a multiple of NN_LANES; the sum. */
    float (*weights)(int64_t n, int64_t end, float most, float *s);
    /* s *= factor */
    void (*drop)(int64_t n, const float *factor, float *s);
    /* With weights p = scale s, ds the gradients with respect to factor p, and shift = sum of p factor ds:
     * ds = p (factor ds - shift), s = p factor. factor NULL: 1. */
    void (*weights_gradient)(int64_t n, float scale, float shift, const float *factor, float *s, float *ds);
} nn_vector;

/* The fastest that this processor has, or what the environment variable ADAMOD_ISA names. */
const nn_vector *nn_vector_choose(void);
