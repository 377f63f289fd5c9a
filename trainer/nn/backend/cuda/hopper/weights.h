/* The gradient of W of 3 x 3 convolutions in bf16 with the instructions of Hopper's warp groups, in f32. */
#ifndef ADAMOD_NN_CUDA_HOPPER_WEIGHTS_H
#define ADAMOD_NN_CUDA_HOPPER_WEIGHTS_H

#include "nn/backend/cuda/cudnn.h"

/* Whether it is for that convolution and this device. */
bool hopper_weights_fits(const conv_shape *s);
size_t hopper_weights_workspace(const conv_shape *s); /* floats */
void hopper_weights_run(const conv_shape *s, cudaStream_t stream, const void *x, const void *dy, float *dw, bool add,
                        float *workspace);

#endif
