/* The gradient of W, in f32, of 3 x 3 convolutions in bf16 by wgmma. */
#ifndef ADAMOD_NN_CUDA_HOPPER_WEIGHTS_H
#define ADAMOD_NN_CUDA_HOPPER_WEIGHTS_H

#include "nn/backend/cuda/cudnn.h"

/* Whether there is a kernel for that convolution on this device. */
bool hopper_weights_fits(const conv_shape *s);
size_t hopper_weights_workspace(const conv_shape *s); /* floats */
void hopper_weights_run(const conv_shape *s, cudaStream_t stream, const void *x, const void *dy, float *dw, bool add,
                        float *workspace);

#endif
