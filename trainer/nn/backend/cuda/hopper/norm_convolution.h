/* A 3 x 3 convolution from 128 channels to 32 with a batch norm as its prologue: y = W * relu(norm(x)). norm(x) is never in
 * global memory; backward computes it again. */
#ifndef ADAMOD_NN_CUDA_HOPPER_NORM_CONVOLUTION_H
#define ADAMOD_NN_CUDA_HOPPER_NORM_CONVOLUTION_H

#include "nn/backend/cuda/cuda.h"

/* Whether there are kernels for a convolution after that batch norm: bf16, channels in multiples of 8, stride 1, sides that
 * are powers of two, moments of x known, and all of its gradient computed here. */
bool norm_convolution_fits(const nn_call *c, const nn_call *norm);

/* c->fused->maker is the norm. Forward also finds y's moments if they are wanted. Backward computes the gradients of x and of
 * the norm's parameters, but not of W. */
size_t norm_convolution_workspace(const nn_call *c); /* floats */
size_t norm_convolution_counters(const nn_call *c);  /* unsigned numbers, 0 between launches */
void norm_convolution_forward(const nn_call *c, float *workspace, unsigned *counters);
void norm_convolution_backward(const nn_call *c, float *workspace, unsigned *counters);

/* The gradient of W (norm_weights.cu). */
bool norm_weights_fit(const nn_call *c);         /* whether there is a kernel for images of this shape */
size_t norm_weights_workspace(const nn_call *c); /* floats */
void norm_weights_backward(const nn_call *c, float *workspace);

#endif
