/* 3 x 3 convolutions in bf16 by wgmma: y, the gradient of x, and that of W. */
#ifndef ADAMOD_NN_CUDA_HOPPER_CONVOLUTION_H
#define ADAMOD_NN_CUDA_HOPPER_CONVOLUTION_H

#include "nn/backend/cuda/cudnn.h"

/* Whether there is a kernel for that convolution on this device; result is CONV_Y or CONV_DX. */
bool hopper_convolution_fits(const conv_shape *s, conv_result result);

/* y from x, or dx from dy; if add, added to what `to` holds. */
void hopper_convolution_run(const conv_shape *s, conv_result result, cudaStream_t stream, const void *from,
                            const void *w, void *to, bool add);

/* The gradient of W, in f32 (weights.cu). */
bool hopper_weights_fits(const conv_shape *s);
size_t hopper_weights_workspace(const conv_shape *s); /* floats */
void hopper_weights_run(const conv_shape *s, cudaStream_t stream, const void *x, const void *dy, float *dw, bool add,
                        float *workspace);

#endif
