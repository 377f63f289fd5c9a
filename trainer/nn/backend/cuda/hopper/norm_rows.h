/* Forward of norm_convolution.h for many images with rows of 16 or 32 pixels, and for few images of 8 x 8. */
#ifndef ADAMOD_NN_CUDA_HOPPER_NORM_ROWS_H
#define ADAMOD_NN_CUDA_HOPPER_NORM_ROWS_H

#include "nn/backend/cuda/moments.cuh"

enum {
    NORM_ROWS_PIXELS = 256, /* that a block takes at a time, of rows */
    NORM_IMAGE_PIXELS = 64  /* of an image of 8 x 8: a block takes one */
};

bool norm_rows_fit(const nn_call *c);   /* rows of 16 or 32 pixels, images that are whole times NORM_ROWS_PIXELS */
bool norm_image_fits(const nn_call *c); /* 8 x 8 */
/* found: where y's moments go, and the pixels of a block: whole times NORM_ROWS_PIXELS, or NORM_IMAGE_PIXELS. */
void norm_rows_forward(const nn_call *c, const moments_work *found);

#endif
