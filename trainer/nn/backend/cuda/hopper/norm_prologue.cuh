/* What convolutions with a batch norm as their prologue share (norm_product.h, norm_convolution.h): the arrays they take, and
 * their launch. */
#ifndef ADAMOD_NN_CUDA_HOPPER_NORM_PROLOGUE_H
#define ADAMOD_NN_CUDA_HOPPER_NORM_PROLOGUE_H

#include "nn/backend/cuda/hopper/launch.cuh"

enum {
    PROCESSORS = 132,       /* multiprocessors of an H100 or H200 */
    MOST_SHARED = 218 << 10 /* bytes of dynamic shared memory, beside static arrays */
};

extern __shared__ __align__(1024) unsigned char smem[];

/* Whether pixels begin at multiples of 16 bytes. */
static inline bool in_packs(const nn_array *a) {
    return a->type == NN_BF16 && nn_channels(a) % 8 == 0 && a->stride % 8 == 0 && a->offset % 8 == 0;
}

/* Launches a kernel whose only argument is `work`. The limit of shared memory is the same for all nodes, since nodes of other
 * shapes launch the same kernel. */
static inline void launch_norm_kernel(const nn_call *c, const void *kernel, dim3 blocks, unsigned threads,
                                      size_t shared, void *work) {
    void *arguments[] = {work};
    cudaError_t e = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, MOST_SHARED);
    if (e == cudaSuccess) e = launch_dependent(kernel, blocks, threads, arguments, shared, stream_of(c));
    if (e != cudaSuccess) nn_cuda_launch_failed("a convolution of what is normalised", cudaGetErrorString(e));
}

#endif
