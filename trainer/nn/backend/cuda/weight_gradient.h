/* The gradient of W of 3 x 3 convolutions, in bf16 with sums in f32: each pixel is fetched once for all nine places of the
 * kernel. */
#ifndef ADAMOD_NN_CUDA_WEIGHT_GRADIENT_H
#define ADAMOD_NN_CUDA_WEIGHT_GRADIENT_H

#include "nn/backend/cuda/cuda.h"

/* Whether it can do that convolution, with dy's pixels dy_stride numbers apart. */
bool weight_gradient_fits(const nn_call *c, int64_t dy_stride);
size_t weight_gradient_workspace(const nn_call *c); /* floats */
void weight_gradient_run(const nn_call *c, const void *dy, int64_t dy_stride, float *workspace);

#endif
