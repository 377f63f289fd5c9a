/* The sigmoid in gelu and swiglu. */
#ifndef ADAMOD_NN_CUDA_GATE_H
#define ADAMOD_NN_CUDA_GATE_H

#include "nn/backend/cuda/cuda.h"

/* s = 1 / (1 + exp(-x)); and its slope s (1 - s), which keeps its digits where s is near 1. */
struct gate {
    float s, slope;
};

__device__ static inline gate gate_of(float x) {
    const float e = expf(-fabsf(x)), above = 1 / (1 + e), below = e * above;
    return {x < 0 ? below : above, above * below};
}

#endif
