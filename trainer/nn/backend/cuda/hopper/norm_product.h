/* A 1 x 1 convolution with a batch norm as its prologue: y = relu(norm(x)) W^T, a pixel a row. norm(x) is never in global
 * memory; backward computes it again. */
#ifndef ADAMOD_NN_CUDA_HOPPER_NORM_PRODUCT_H
#define ADAMOD_NN_CUDA_HOPPER_NORM_PRODUCT_H

#include "nn/backend/cuda/moments.cuh"

/* Whether there are kernels for a 1 x 1 convolution after that batch norm: bf16, channels in multiples of 8, stride 1, 128
 * channels out, moments of x known, and the linear part of its gradient left to others. */
bool norm_product_fits(const nn_call *c, const nn_call *norm);

/* c->fused->maker is the norm. Forward also finds y's moments if they are wanted. */
size_t norm_product_workspace(const nn_call *c); /* floats */
size_t norm_product_counters(const nn_call *c);  /* unsigned numbers, 0 between launches */
void norm_product_forward(const nn_call *c, unsigned *counters);
void norm_product_backward(const nn_call *c);

#endif
