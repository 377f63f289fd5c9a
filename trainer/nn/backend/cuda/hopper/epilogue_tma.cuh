/* Epilogue by TMA: sums of a warpgroup, 64 channels by the pixels of a tile, from registers to memory. */
#ifndef ADAMOD_NN_CUDA_HOPPER_EPILOGUE_TMA_H
#define ADAMOD_NN_CUDA_HOPPER_EPILOGUE_TMA_H

#include "nn/backend/cuda/hopper/ptx.cuh"
#include "nn/backend/cuda/norm_line.cuh"

enum { EPILOGUE_PIXELS = 128 }; /* pixels of a TMA store */

/* Stores all pixels, EPILOGUE_PIXELS at a time through shared memory; rows: image rows of a store. */
template <int PIXELS>
__device__ static inline void store_pixels(const float (&acc)[PIXELS / 2], uint32_t shared, const CUtensorMap *map,
                                           tma_coords to, int rows, bool add) {
    const int lane = (int)threadIdx.x % 32, warp = (int)threadIdx.x / 32 % 4;
    const int warpgroup = (int)threadIdx.x / WARPGROUP;
    const int pixel = lane / 16 * 8 + lane % 8, chunk = warp * 2 + lane / 8 % 2;
    const uint32_t address = shared + (uint32_t)(pixel * SW128_ROW + ((chunk ^ pixel % 8) << 4));
#pragma unroll
    for (int part = 0; part < PIXELS / EPILOGUE_PIXELS; part++) {
        if (threadIdx.x % WARPGROUP == 0) tma_store_wait_read();
        warpgroup_sync(warpgroup);
#pragma unroll
        for (int i = 0; i < EPILOGUE_PIXELS / 16; i++) {
            const float *x = acc + (part * EPILOGUE_PIXELS / 16 + i) * 8;
            stmatrix_x4_trans(address + i * 16 * SW128_ROW, {narrow_pair(x[0], x[1]), narrow_pair(x[2], x[3]),
                                                             narrow_pair(x[4], x[5]), narrow_pair(x[6], x[7])});
        }
        fence_proxy_async();
        warpgroup_sync(warpgroup);
        if (threadIdx.x % WARPGROUP == 0) tma_store(map, to, shared, add);
        to.d += rows;
    }
}

#endif
