/* The convolution of norm_convolution.h, as its kernels see it (norm_convolution.cu, norm_rows.cu, norm_weights.cu). */
#ifndef ADAMOD_NN_CUDA_HOPPER_NORM_SHAPE_H
#define ADAMOD_NN_CUDA_HOPPER_NORM_SHAPE_H

#include "nn/backend/cuda/hopper/warp_group.cuh"

enum {
    IN = 128, /* channels of x */
    OUT = 32, /* of y */
    TAPS = 9,
    HALVES = IN / SLAB /* of x's channels: a slab has one */
};

#endif
