/* Descriptions of arrays for TMA, and launches of kernels that take them. */
#ifndef ADAMOD_NN_CUDA_HOPPER_MAP_H
#define ADAMOD_NN_CUDA_HOPPER_MAP_H

#include "nn/backend/cuda/cuda.h"

#include <cuda.h>

/* Four dimensions of bf16, the innermost first: their sizes, how many numbers apart they are, and their extent in a box. */
typedef struct map_shape {
    int64_t size[4], stride[4];
    int box[4];
} map_shape;

/* Whether the current device is a Hopper GPU, with a driver that makes them. */
bool hopper_is_here(void);
/* false: the array cannot be described. */
bool hopper_map(CUtensorMap *map, const void *array, const map_shape *s);

/* Blocks in clusters of so many, each with so many bytes of shared memory, of a kernel that waits for the former. */
cudaError_t hopper_launch(const void *kernel, unsigned blocks, int threads, int cluster, int bytes, void **arguments,
                          cudaStream_t stream);

#endif
