/* The host's side of Hopper kernels: tensor maps for TMA, clusters, and programmatic dependent launch (PDL).
 *
 * With PDL a kernel begins while the one before it in the stream ends, so that what it does before griddepcontrol.wait costs
 * no time. Until then it reads nothing but parameters, and writes nothing. */
#ifndef ADAMOD_NN_CUDA_HOPPER_LAUNCH_H
#define ADAMOD_NN_CUDA_HOPPER_LAUNCH_H

#include "nn/backend/cuda/cuda.h"

#include <cuda.h>

/* Waits until the grid before is done and its writes are visible, and lets the next grid begin. Before sm_90, kernels have no
 * PDL. */
__device__ static inline void grid_dependency_sync(void) {
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.wait;" ::: "memory");
    asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

/* Whether the stream is being captured, and if so whether the next node depends on a single kernel. CUDA before 12.3 cannot
 * tell the latter: false. */
static inline cudaError_t find_capture(cudaStream_t stream, bool *captured, bool *one_kernel) {
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
    *captured = status == cudaStreamCaptureStatusActive;
    if (e == cudaSuccess && *captured && n == 1)
        *one_kernel = cudaGraphNodeGetType(nodes[0], &type) == cudaSuccess && type == cudaGraphNodeTypeKernel;
#else
    const cudaError_t e = cudaStreamIsCapturing(stream, &status);
    *captured = status == cudaStreamCaptureStatusActive;
#endif
    return e;
}

/* Whether a kernel that calls grid_dependency_sync may be launched with PDL: in a capture, behind a single kernel. Compiled
 * for older GPUs, it does not wait. */
static inline bool may_launch_dependent(const void *kernel, cudaStream_t stream) {
    bool captured = false, one_kernel = false;
    cudaFuncAttributes a;
    return find_capture(stream, &captured, &one_kernel) == cudaSuccess && one_kernel &&
           cudaFuncGetAttributes(&a, kernel) == cudaSuccess && a.ptxVersion >= 90;
}

static inline cudaError_t launch_grid(const void *kernel, dim3 blocks, unsigned threads, unsigned cluster,
                                      size_t shared, void **arguments, bool dependent, cudaStream_t stream) {
    cudaLaunchAttribute attributes[2] = {};
    cudaLaunchConfig_t config = {};
    config.gridDim = blocks;
    config.blockDim = threads;
    config.dynamicSmemBytes = shared;
    config.stream = stream;
    config.attrs = attributes;
    if (cluster > 1) {
        attributes[config.numAttrs].id = cudaLaunchAttributeClusterDimension;
        attributes[config.numAttrs++].val.clusterDim = {cluster, 1, 1};
    }
    if (dependent) {
        attributes[config.numAttrs].id = cudaLaunchAttributeProgrammaticStreamSerialization;
        attributes[config.numAttrs++].val.programmaticStreamSerializationAllowed = 1;
    }
    return cudaLaunchKernelExC(&config, kernel, arguments);
}

/* Launches a kernel that calls grid_dependency_sync: with PDL, unless it is captured and depends on more than one kernel. */
static inline cudaError_t launch_dependent(const void *kernel, dim3 blocks, unsigned threads, void **arguments,
                                           size_t shared, cudaStream_t stream) {
    bool captured = false, one_kernel = false;
    const bool known = find_capture(stream, &captured, &one_kernel) == cudaSuccess;
    return launch_grid(kernel, blocks, threads, 1, shared, arguments, known && (!captured || one_kernel), stream);
}

/* ---- launch.cu ---- */

/* An array of bf16 in four dimensions, the innermost first: sizes, strides in elements, and the extents of a box. */
typedef struct tensor_map_shape {
    int64_t size[4], stride[4];
    int box[4];
} tensor_map_shape;

/* Whether the current device is a Hopper GPU, with a driver that encodes tensor maps. */
bool hopper_is_here(void);
/* With the 128-byte swizzle. false: TMA cannot address the array. */
bool make_tensor_map(CUtensorMap *map, const void *array, const tensor_map_shape &s);
/* A matrix of floats, without swizzle; a box has `box` columns of one row. */
bool make_float_map(CUtensorMap *map, const float *array, int64_t cols, int64_t rows, int box);
/* Images of width x width pixels, `stride` elements apart. A box has 64 channels of some rows of some images; in it, a row of
 * all images comes before the next row. */
bool make_image_map(CUtensorMap *map, const void *array, int64_t channels, int64_t stride, int64_t width,
                    int64_t images, int box_images, int box_rows);

/* Launches clusters of `cluster` CTAs with `bytes` of shared memory each. The kernel calls grid_dependency_sync. */
cudaError_t hopper_launch(const void *kernel, unsigned blocks, int threads, int cluster, int bytes, void **arguments,
                          cudaStream_t stream);

/* to = the sum of parts, in their order, each of 4 `fours` floats. */
cudaError_t hopper_sum_parts(const float *from, int64_t parts, int64_t fours, target<float> to, cudaStream_t stream);

#endif
