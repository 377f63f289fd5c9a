/* A 3 x 3 convolution from 128 channels to 32 that normalises what it reads: y = W * relu(norm(x)). What the norm's own
 * kernels would write is never in memory; its numbers are computed again where backward needs them. */
#ifndef ADAMOD_NN_CUDA_NORM_CONVOLUTION_H
#define ADAMOD_NN_CUDA_NORM_CONVOLUTION_H

#include "nn/backend/cuda/moments.cuh"

/* Whether there are kernels for a convolution after that batch norm: bf16, whole packs, in steps of 1, sides that are powers
 * of two. x's moments are known, and its gradient is left to nobody. */
bool norm_convolution_fits(const nn_call *c, const nn_call *norm);

/* Of c->maker, the norm. Forward finds y's moments where they are wanted. Backward is the gradient of x and those of the
 * norm's parameters, but not that of W. */
size_t norm_convolution_workspace(const nn_call *c); /* floats */
size_t norm_convolution_counters(const nn_call *c);  /* unsigned numbers, 0 between launches */
void norm_convolution_forward(const nn_call *c, float *workspace, unsigned *counters);
void norm_convolution_backward(const nn_call *c, float *workspace, unsigned *counters);

#endif
