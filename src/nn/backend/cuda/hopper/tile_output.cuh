/* What groups of warps have computed, to where it belongs, with its moments. */
#ifndef ADAMOD_NN_CUDA_TILE_OUTPUT_H
#define ADAMOD_NN_CUDA_TILE_OUTPUT_H

#include "nn/backend/cuda/moments.cuh"
#include "nn/backend/cuda/norm_line.cuh"
#include "nn/backend/cuda/hopper/warp_group.cuh"

/* Pixels of y up to end, of which some live; y is that of the block's first channel. */
struct tile_output {
    bf16 *y;
    int64_t stride, end, live;
    bool moments; /* are wanted */
};

/* R packs of a lane, of different pixels, to y and into the sums of its warp. Lanes that are PACKS apart have the same
 * channels. */
template <int PACKS, int R, int COLS, int WARPS>
__device__ static inline void store_packs(const tile_output &to, const uint4 (&packs)[R], int64_t pixel, int64_t step,
                                          int channel, bool first, tile_sums<COLS, WARPS> &sums) {
    float origin[8], sum[8] = {}, squares[8] = {};
    const int warp = (int)threadIdx.x / 32;
    if (first) {
        const int lane = (int)threadIdx.x % PACKS; /* the one with the first pixel */
        const uint4 p =
            make_uint4(__shfl_sync(0xffffffffu, packs[0].x, lane), __shfl_sync(0xffffffffu, packs[0].y, lane),
                       __shfl_sync(0xffffffffu, packs[0].z, lane), __shfl_sync(0xffffffffu, packs[0].w, lane));
        widen_raw<bf16>(p, origin);
    } else {
        for (int k = 0; k < 8; k++) origin[k] = sums.origin[warp][channel + k];
    }
#pragma unroll
    for (int r = 0; r < R; r++) {
        const int64_t at = pixel + r * step;
        if (at < to.end) *reinterpret_cast<uint4 *>(to.y + at * to.stride + channel) = packs[r];
        if (at >= to.live) continue;
        float x[8];
        widen_raw<bf16>(packs[r], x);
        for (int k = 0; k < 8; k++) {
            const float d = x[k] - origin[k];
            sum[k] += d;
            squares[k] = fmaf(d, d, squares[k]);
        }
    }
    if (to.moments) add_sums<PACKS>(sums, channel, origin, sum, squares, first);
}

/* How many of R pixels live. */
template <int R> __device__ static inline float count_live(int64_t pixel, int64_t step, int64_t live) {
    float n = 0;
    for (int r = 0; r < R; r++) n += pixel + r * step < live;
    return n;
}

/* A group's products of 64 pixels and N channels. Four rows begin in different banks. */
template <int N> struct group_sums_of { float row[64][N + 8]; };

/* The sums of GROUPS groups' products of the same pixels, to y. `shared` is memory that others may be reading when it
 * begins. */
template <int N, int GROUPS, int WARPS>
__device__ static inline void store_sums(const tile_output &to, group_sums_of<N> *shared, float (&acc)[N / 8][4],
                                         int64_t pixel, tile_sums<N, WARPS> &sums) {
    constexpr int PACKS = N / 8, AT_ONCE = GROUPS * GROUP / PACKS, R = AT_ONCE < 64 ? 64 / AT_ONCE : 1;
    const int lane = (int)threadIdx.x % 32, group = (int)threadIdx.x / GROUP;
    const int row = (int)threadIdx.x % GROUP / 32 * 16 + lane / 4;
    __syncthreads();
#pragma unroll
    for (int n = 0; n < PACKS; n++) {
        float *const at = &shared[group].row[row][n * 8 + lane % 4 * 2];
        *reinterpret_cast<float2 *>(at) = make_float2(acc[n][0], acc[n][1]);
        *reinterpret_cast<float2 *>(at + 8 * (N + 8)) = make_float2(acc[n][2], acc[n][3]);
    }
    __syncthreads();
    const int mine = (int)threadIdx.x / PACKS, channel = (int)threadIdx.x % PACKS * 8;
    const bool there = mine < 64; /* the whole warp, or none of it */
    uint4 packs[R];
#pragma unroll
    for (int r = 0; r < R; r++) {
        float x[8] = {};
        for (int g = 0; there && g < GROUPS; g++)
            for (int k = 0; k < 8; k++) x[k] += shared[g].row[mine + r * AT_ONCE][channel + k];
        const bool lives = there && pixel + mine + r * AT_ONCE < to.live;
        packs[r] = lives ? make_uint4(narrow_pair(x[0], x[1]), narrow_pair(x[2], x[3]), narrow_pair(x[4], x[5]),
                                      narrow_pair(x[6], x[7]))
                         : make_uint4(0, 0, 0, 0);
    }
    const tile_output mine_to = {to.y, to.stride, there ? to.end : 0, there ? to.live : 0, to.moments};
    store_packs<PACKS>(mine_to, packs, pixel + mine, AT_ONCE, channel, true, sums);
    add_count<PACKS>(sums, there ? count_live<R>(pixel + mine, AT_ONCE, to.live) : 0, true);
}

#endif
