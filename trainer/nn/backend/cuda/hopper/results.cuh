/* Results of warp groups on their way from registers to memory, and their moments: 64 channels a group, by the pixels of a
 * tile. */
#ifndef ADAMOD_NN_CUDA_HOPPER_RESULTS_H
#define ADAMOD_NN_CUDA_HOPPER_RESULTS_H

#include "nn/backend/cuda/hopper/hopper.cuh"
#include "nn/backend/cuda/hopper/stem.h"
#include "nn/backend/cuda/moments.cuh"

enum { PART = 128 }; /* pixels that leave at once */

__device__ static inline uint32_t two_numbers(float a, float b) {
    const __nv_bfloat162 two = __floats2bfloat162_rn(a, b);
    return *reinterpret_cast<const uint32_t *>(&two);
}

/* 16 channels of the warp by 16 pixels: the four addresses' lines are pixels lane % 8 of the first and second 8. */
__device__ static inline void store_turned(uint32_t address, const float *sums) {
    asm volatile("stmatrix.sync.aligned.m8n8.x4.trans.shared::cta.b16 [%0], {%1, %2, %3, %4};" ::"r"(address),
                 "r"(two_numbers(sums[0], sums[1])), "r"(two_numbers(sums[2], sums[3])),
                 "r"(two_numbers(sums[4], sums[5])), "r"(two_numbers(sums[6], sums[7]))
                 : "memory");
}

/* All pixels of a warp group's sums, PART at a time by way of its shared memory; rows: image rows of a part. */
template <int PIXELS>
__device__ static inline void leave_pixels(const float (&sums)[PIXELS / 2], uint32_t stage, const CUtensorMap *map,
                                           box_place to, int rows, bool add) {
    const int lane = (int)threadIdx.x % 32, warp = (int)threadIdx.x / 32 % 4, group = (int)threadIdx.x / GROUP;
    const int pixel = lane / 16 * 8 + lane % 8, unit = warp * 2 + lane / 8 % 2;
    const uint32_t address = stage + (uint32_t)(pixel * LINE + ((unit ^ pixel % 8) << 4));
#pragma unroll
    for (int part = 0; part < PIXELS / PART; part++) {
        if (threadIdx.x % GROUP == 0) boxes_are_read();
        group_meet(group);
#pragma unroll
        for (int i = 0; i < PART / 16; i++) store_turned(address + i * 16 * LINE, sums + (part * PART / 16 + i) * 8);
        fence_for_boxes();
        group_meet(group);
        if (threadIdx.x % GROUP == 0) box_store(map, to, stage, add);
        to.d += rows;
    }
}

/* ---- moments of results ---- */

struct conv_moments {
    moments_work w;           /* to.first NULL: not wanted */
    const int64_t *live_rows; /* images of the batch; NULL: all */
    int64_t images, pixels;   /* pixels: of an image */
};

/* Of images of width x width, in tiles of so many pixels. */
static inline conv_moments moments_in_tiles(const hopper_moments &to, int64_t images, int64_t width, int64_t channels,
                                            int64_t pixels) {
    conv_moments m = {};
    m.w.partials = to.partials;
    m.w.counters = to.counters;
    m.w.to = to.to;
    m.w.tiles = parts(images * width * width, pixels);
    m.w.size = pixels;
    m.w.channels = channels;
    m.live_rows = to.live_rows;
    m.images = images;
    m.pixels = width * width;
    return m;
}

__device__ static inline int64_t live_images(const conv_moments &m) { return m.live_rows ? *m.live_rows : m.images; }

/* Of a tile, IMAGES images or a part of one: those of the group's 64 channels of pixels whose image is below live. A thread has
 * two channels, four threads have the same. */
template <int PIXELS, int WIDTH, int IMAGES>
__device__ static inline void leave_moments(const float (&sums)[PIXELS / 2], const moments_work &w, int64_t tile,
                                            int64_t channel, int64_t live) {
    const int lane = (int)threadIdx.x % 32, warp = (int)threadIdx.x / 32 % 4;
    const float n = live < IMAGES ? (float)((live < 0 ? 0 : live) * (PIXELS / IMAGES)) : PIXELS;
#pragma unroll
    for (int half = 0; half < 2; half++) {
        const float origin = __shfl_sync(0xffffffffu, sums[2 * half], lane & ~3);
        float sum = 0, squares = 0;
#pragma unroll
        for (int i = 0; i < PIXELS / 8; i++) {
            const uint32_t two = two_numbers(sums[4 * i + 2 * half], sums[4 * i + 2 * half + 1]);
            const float a = __uint_as_float(two << 16) - origin, b = __uint_as_float(two & 0xffff0000u) - origin;
            const int pixel = i * 8 + lane % 4 * 2;
            if (pixel / WIDTH % IMAGES < live) {
                sum += a + b;
                squares = fmaf(a, a, fmaf(b, b, squares));
            }
        }
        for (int step = 1; step < 4; step *= 2) {
            sum += __shfl_xor_sync(0xffffffffu, sum, step);
            squares += __shfl_xor_sync(0xffffffffu, squares, step);
        }
        const float d = n > 0 ? sum / n : 0;
        float *const to = w.partials + tile * 2 * w.channels + channel + warp * 16 + half * 8 + lane / 4;
        if (lane % 4 == 0) to[0] = origin + d, to[w.channels] = fmaxf(squares - sum * d, 0);
    }
}

/* After all of the block's results have left: joins the moments of all blocks, if it is the last. The shared memory that they
 * left by has room. Not inline, so that it takes no registers from products. */
template <int COLS, int THREADS>
__device__ static __noinline__ void join_block(const conv_moments &m, int64_t column, int64_t blocks) {
    join_tiles<COLS, THREADS>(m.w, column, blocks, live_images(m) * m.pixels,
                              (moment *)__cvta_shared_to_generic(shared_begin()));
}

#endif
