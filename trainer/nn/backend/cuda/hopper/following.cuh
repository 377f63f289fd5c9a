/* Kernels that begin while the one before them in the stream ends: what they do before they wait for it costs no time. Before
 * that, they read nothing but parameters, and write nothing. */
#ifndef ADAMOD_NN_CUDA_FOLLOWING_H
#define ADAMOD_NN_CUDA_FOLLOWING_H

#include "nn/backend/cuda/cuda.h"

/* Until the kernel before is done, and what it wrote can be seen; then the next one may begin. Older chips have no such
 * kernels. */
__device__ static inline void wait_for_former(void) {
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.wait;" ::: "memory");
    asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

/* Whether a stream is being recorded; if so, whether what comes next in it waits for one kernel alone. CUDA before 12.3 does
 * not tell: false. */
static inline cudaError_t find_recording(cudaStream_t stream, bool *recorded, bool *one_kernel) {
    cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
    *one_kernel = false;
#if CUDART_VERSION >= 12030
    const cudaGraphNode_t *nodes = NULL;
    const cudaGraphEdgeData *edges = NULL;
    cudaGraphNodeType type = cudaGraphNodeTypeEmpty;
    size_t n = 0;
#if CUDART_VERSION >= 13000
    const cudaError_t e = cudaStreamGetCaptureInfo(stream, &status, NULL, NULL, &nodes, &edges, &n);
#else
    const cudaError_t e = cudaStreamGetCaptureInfo_v3(stream, &status, NULL, NULL, &nodes, &edges, &n);
#endif
    *recorded = status == cudaStreamCaptureStatusActive;
    if (e == cudaSuccess && *recorded && n == 1)
        *one_kernel = cudaGraphNodeGetType(nodes[0], &type) == cudaSuccess && type == cudaGraphNodeTypeKernel;
#else
    const cudaError_t e = cudaStreamIsCapturing(stream, &status);
    *recorded = status == cudaStreamCaptureStatusActive;
#endif
    return e;
}

/* Whether what comes next in a stream may begin before all that it waits for is done: where it is recorded, it must wait for
 * one kernel alone. */
static inline bool may_begin_early(cudaStream_t stream) {
    bool recorded = false, one_kernel = false;
    return find_recording(stream, &recorded, &one_kernel) == cudaSuccess && (!recorded || one_kernel);
}

/* Of a kernel that waits for the former. */
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
    config.numAttrs = may_begin_early(stream);
    return cudaLaunchKernelExC(&config, kernel, arguments);
}

/* Whether a kernel that waits for the former may be launched so: where it is recorded behind one kernel alone. Compiled for
 * older chips, it does not wait. */
static inline bool may_follow(const void *kernel, cudaStream_t stream) {
    bool recorded = false, one_kernel = false;
    cudaFuncAttributes a;
    return find_recording(stream, &recorded, &one_kernel) == cudaSuccess && one_kernel &&
           cudaFuncGetAttributes(&a, kernel) == cudaSuccess && a.ptxVersion >= 90;
}

#endif
