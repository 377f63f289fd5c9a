/* What the convolutions that normalise what they read (norm_product.h, norm_convolution.h) have in common: the arrays they
 * take, and how they are launched. */
#ifndef ADAMOD_NN_CUDA_HOPPER_NORM_READING_H
#define ADAMOD_NN_CUDA_HOPPER_NORM_READING_H

#include "nn/backend/cuda/hopper/following.cuh"

enum {
    PROCESSORS = 132,       /* as many multiprocessors as chips for this have */
    MOST_SHARED = 218 << 10 /* bytes, beside what kernels have of a known size */
};

/* Whether everything begins at a pack. */
static inline bool in_packs(const nn_array *a) {
    return a->type == NN_BF16 && nn_channels(a) % 8 == 0 && a->stride % 8 == 0 && a->offset % 8 == 0;
}

/* A kernel whose only argument is `work`. Its limit of shared memory is the same for all: nodes of other shapes launch it,
 * too. */
static inline void launch_reading(const nn_call *c, const void *kernel, dim3 blocks, unsigned threads, size_t shared,
                                  void *work) {
    void *arguments[] = {work};
    cudaError_t e = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, MOST_SHARED);
    if (e == cudaSuccess) e = launch_following(kernel, blocks, threads, arguments, shared, stream_of(c));
    if (e != cudaSuccess) nn_cuda_launch_failed("a convolution of what is normalised", cudaGetErrorString(e));
}

#endif
