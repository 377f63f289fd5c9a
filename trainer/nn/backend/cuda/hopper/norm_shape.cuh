/* Shared by the kernels of norm_convolution.h (norm_convolution.cu, norm_rows.cu, norm_weights.cu). */
#ifndef ADAMOD_NN_CUDA_HOPPER_NORM_SHAPE_H
#define ADAMOD_NN_CUDA_HOPPER_NORM_SHAPE_H

#include "nn/backend/cuda/hopper/ptx.cuh"

enum {
    IN = 128, /* channels of x */
    OUT = 32, /* of y */
    TAPS = 9,
    HALVES = IN / SW128_COLS, /* of x's channels: a swizzled tile has one */
    NORM_ROWS_PIXELS = 256,   /* of a tile of rows */
    NORM_IMAGE_PIXELS = 64    /* of an image of 8 x 8, which is a tile */
};

/* ---- norm_rows.cu: forward for many images with rows of 16 or 32 pixels, and for few images of 8 x 8 ---- */

bool norm_rows_fit(const nn_call *c);   /* rows of 16 or 32 pixels, images of whole tiles */
bool norm_image_fits(const nn_call *c); /* 8 x 8 */
/* found: where y's moments go, and the pixels of a CTA: whole tiles of rows, or one image. */
void norm_rows_forward(const nn_call *c, const struct moments_work *found);

#endif
