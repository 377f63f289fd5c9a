/* The gradient of W for norm_convolution.h. */
#ifndef ADAMOD_NN_CUDA_HOPPER_NORM_WEIGHTS_H
#define ADAMOD_NN_CUDA_HOPPER_NORM_WEIGHTS_H

#include "nn/backend/cuda/cuda.h"

/* Whether there is a kernel for images of this shape. */
bool norm_weights_fit(const nn_call *c);
size_t norm_weights_workspace(const nn_call *c); /* floats */
void norm_weights_backward(const nn_call *c, float *workspace);

#endif
