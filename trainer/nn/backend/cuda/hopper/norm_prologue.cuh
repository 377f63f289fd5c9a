/* Shared by convolutions with a batch norm as their prologue (norm_product.h, norm_convolution.h). */
#ifndef ADAMOD_NN_CUDA_HOPPER_NORM_PROLOGUE_H
#define ADAMOD_NN_CUDA_HOPPER_NORM_PROLOGUE_H

#include "nn/backend/cuda/hopper/launch.cuh"
#include "nn/backend/cuda/norm_line.cuh"

enum {
    PROCESSORS = 132,       /* multiprocessors of an H100 or H200 */
    MOST_SHARED = 218 << 10 /* bytes of dynamic shared memory, beside static arrays */
};

extern __shared__ __align__(1024) unsigned char smem[];

/* relu(norm(x)) of 8 channels. */
__device__ static inline uint4 normalised(const uint4 &x, const float4 *lines) {
    return make_uint4(normalised(x.x, lines[0]), normalised(x.y, lines[1]), normalised(x.z, lines[2]),
                      normalised(x.w, lines[3]));
}

/* The line of channel k, as forward found it, to place number threadIdx.x of lines. */
__device__ static inline norm_line load_line(const norm_arrays &norm, int64_t channels, int64_t k, float4 *lines) {
    norm_line line = {0, 0, 0, 0};
    if (k < channels) line = saved_line(norm, channels, k);
    float *const to = place_in(lines, threadIdx.x);
    to[0] = line.factor;
    to[2] = line.shift;
    return line;
}

/* Rows of x that are in the batch, in pixels. */
template <typename W> __device__ static inline int64_t live_pixels(const W &w) {
    return w.live_rows ? *w.live_rows * w.pixels_a_row : w.pixels;
}

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
