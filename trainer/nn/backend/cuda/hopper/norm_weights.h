/* The gradient of W of a convolution that normalises what it reads (norm_convolution.h). */
#ifndef ADAMOD_NN_CUDA_HOPPER_NORM_WEIGHTS_H
#define ADAMOD_NN_CUDA_HOPPER_NORM_WEIGHTS_H

#include "nn/backend/cuda/cuda.h"

/* Whether images lie as it wants them. */
bool norm_weights_fit(const nn_call *c);
size_t norm_weights_workspace(const nn_call *c); /* floats */
void norm_weights_backward(const nn_call *c, float *workspace);

#endif
