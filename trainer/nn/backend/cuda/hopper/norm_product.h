/* A convolution of one pixel that normalises what it reads: y = relu(norm(x)) W^T, a pixel a row. What the norm's own
 * kernels would write is never in memory; its numbers are computed again where backward needs them. */
#ifndef ADAMOD_NN_CUDA_NORM_PRODUCT_H
#define ADAMOD_NN_CUDA_NORM_PRODUCT_H

#include "nn/backend/cuda/moments.cuh"

/* Whether there are kernels for a convolution of one pixel, in steps of 1, after that batch norm: bf16, whole packs, 128
 * channels out. x's moments are known, and its gradient's linear part may be left to others. */
bool norm_product_fits(const nn_call *c, const nn_call *norm);

/* Of c->maker, the norm. Forward finds y's moments where they are wanted. */
size_t norm_product_workspace(const nn_call *c); /* floats */
size_t norm_product_counters(const nn_call *c);  /* unsigned numbers, 0 between launches */
void norm_product_forward(const nn_call *c, unsigned *counters);
void norm_product_backward(const nn_call *c);

#endif
