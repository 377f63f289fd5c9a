/* 3 x 3 convolutions in bf16 with the instructions of Hopper's warp groups, y and the gradient of x. */
#ifndef ADAMOD_NN_CUDA_HOPPER_CONVOLUTION_H
#define ADAMOD_NN_CUDA_HOPPER_CONVOLUTION_H

#include "nn/backend/cuda/cudnn.h"

/* Whether they are for that convolution and this device; result is CONV_Y or CONV_DX. */
bool hopper_convolution_fits(const conv_shape *s, conv_result result);

/* Where the moments of y go; to.first NULL: they are not wanted. */
typedef struct hopper_moments {
    nn_channel_pairs to;
    float *partials;
    unsigned *counters;       /* 0 between runs */
    const int64_t *live_rows; /* images of the batch; NULL: all */
} hopper_moments;

/* Numbers that they take, of a convolution that fits; 0: it does not give them. */
typedef struct hopper_moments_room {
    size_t floats, counters;
} hopper_moments_room;
hopper_moments_room hopper_convolution_moments(const conv_shape *s);

/* y from x, or dx from dy, added to what is there if add. moments NULL: none. */
void hopper_convolution_run(const conv_shape *s, conv_result result, cudaStream_t stream, const void *from,
                            const void *w, void *to, bool add, const hopper_moments *moments);

#endif
