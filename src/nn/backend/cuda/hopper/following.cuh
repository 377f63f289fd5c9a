/* Kernels that begin while the one before them in the stream ends: what they do before they wait for it costs no time. Before
 * that, they read nothing but parameters, and write nothing. */
#ifndef ADAMOD_NN_CUDA_FOLLOWING_H
#define ADAMOD_NN_CUDA_FOLLOWING_H

#include "nn/backend/cuda/cuda.h"

/* Until the kernel before is done, and what it wrote can be seen; then the next one may begin. */
__device__ static inline void wait_for_former(void) {
    asm volatile("griddepcontrol.wait;" ::: "memory");
    asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
}

/* Of a kernel that waits for the former, which is the only one that its stream waits for. */
static inline cudaError_t launch_following(const void *kernel, dim3 blocks, unsigned threads, void **arguments,
                                           size_t shared, cudaStream_t stream) {
    cudaLaunchAttribute follows = {};
    follows.id = cudaLaunchAttributeProgrammaticStreamSerialization;
    follows.val.programmaticStreamSerializationAllowed = 1;
    cudaLaunchConfig_t config = {};
    config.gridDim = blocks;
    config.blockDim = threads;
    config.dynamicSmemBytes = shared;
    config.stream = stream;
    config.attrs = &follows;
    config.numAttrs = 1;
    return cudaLaunchKernelExC(&config, kernel, arguments);
}

#endif
