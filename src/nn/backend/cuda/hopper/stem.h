/* The first convolution of networks for small pictures, of three channels, and the gradient of its weights. */
#ifndef ADAMOD_NN_CUDA_HOPPER_STEM_H
#define ADAMOD_NN_CUDA_HOPPER_STEM_H

#include "nn/backend/cuda/hopper/convolution.h"

enum { STEM_WIDTH = 32, STEM_IN = 3, STEM_OUT = 64, STEM_TILE = 128 /* pixels */ };

/* y from x; y's pixels are so many numbers apart. */
cudaError_t hopper_stem(int64_t images, const void *x, const void *w, const void *y, const hopper_moments &moments,
                        cudaStream_t stream, int64_t y_stride = STEM_OUT);
size_t hopper_stem_floats(int64_t images); /* workspace of the next */
cudaError_t hopper_stem_weights(int64_t images, const void *x, const void *dy, target<float> dw, float *workspace,
                                cudaStream_t stream);

#endif
