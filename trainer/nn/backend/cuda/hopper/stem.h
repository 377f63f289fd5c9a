/* The first convolution of networks for small pictures, with three channels in, and the gradient of its weights. */
#ifndef ADAMOD_NN_CUDA_HOPPER_STEM_H
#define ADAMOD_NN_CUDA_HOPPER_STEM_H

#include "nn/backend/cuda/hopper/convolution.h"

enum { STEM_WIDTH = 32, STEM_IN = 3, STEM_OUT = 64, STEM_TILE = 128 /* pixels */ };

/* The output of y's moments; to.first NULL: not wanted. */
typedef struct hopper_moments {
    nn_channel_pairs to;
    float *partials;
    unsigned *counters;       /* 0 between runs */
    const int64_t *live_rows; /* images of the batch; NULL: all */
} hopper_moments;

/* y from x. */
cudaError_t hopper_stem(int64_t images, const void *x, const void *w, const void *y, const hopper_moments &moments,
                        cudaStream_t stream, int64_t y_stride = STEM_OUT);
typedef struct hopper_moments_room {
    size_t floats, counters; /* of hopper_moments */
} hopper_moments_room;
hopper_moments_room hopper_stem_moments(int64_t images);

size_t hopper_stem_floats(int64_t images); /* workspace of hopper_stem_weights */
cudaError_t hopper_stem_weights(int64_t images, const void *x, const void *dy, target<float> dw, float *workspace,
                                cudaStream_t stream);

#endif
