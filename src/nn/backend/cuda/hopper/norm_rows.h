/* Forward of a convolution that normalises what it reads (norm_convolution.h), of many images of 16 or 32 pixels a row, or of
 * some of 8 x 8. */
#ifndef ADAMOD_NN_CUDA_HOPPER_NORM_ROWS_H
#define ADAMOD_NN_CUDA_HOPPER_NORM_ROWS_H

#include "nn/backend/cuda/moments.cuh"

enum { NORM_ROWS_PIXELS = 256, NORM_IMAGE_PIXELS = 64 }; /* that a block takes at a time; of an image of 8 x 8 */

bool norm_rows_fit(const nn_call *c);
bool norm_image_fits(const nn_call *c);
/* found: how pixels are cut, in whole times so many of rows, or in images, and where moments go. */
void norm_rows_forward(const nn_call *c, const moments_work *found);

#endif
