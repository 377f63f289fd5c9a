/* Mean and variance of each channel, found by the kernel that writes it.
 *
 * A block has a tile: some pixels of some channels. It leaves its mean and the squares about it; the last block joins
 * those of all. The last block may be another in each run; the order of joining is the same. */
#ifndef ADAMOD_NN_CUDA_MOMENTS_H
#define ADAMOD_NN_CUDA_MOMENTS_H

#include "nn/backend/cuda/cuda.h"

enum { JOINED = 16 }; /* tiles that are joined at once */

typedef struct moments_work {
    float *partials;     /* [tiles][2][channels]: mean, squares about it */
    unsigned *counters;  /* for each column of tiles; 0 between launches */
    nn_channel_pairs to; /* means and variances; first NULL: not wanted */
    int64_t tiles, size; /* tiles one below the other, pixels of one */
    int64_t channels;
} moments_work;

static inline size_t moments_floats(int64_t tiles, int64_t channels) { return (size_t)(tiles * 2 * channels); }

/* Live pixels in part i, of `size` pixels. */
__device__ static inline float live_in(int64_t live, int64_t i, int64_t size) {
    const int64_t n = live - i * size;
    return (float)(n < 0 ? 0 : n < size ? n : size);
}

struct moment {
    float n, mean, squares;
};

__device__ static inline moment join(const moment &a, const moment &b) {
    const float n = a.n + b.n, d = b.mean - a.mean, share = n > 0 ? b.n / n : 0;
    return {n, fmaf(d, share, a.mean), a.squares + b.squares + d * d * a.n * share};
}

/* Joins the moments of at most JOINED tiles of a channel: first, first + step ... */
__device__ static inline moment join_some(const moments_work &w, const float *channel, int64_t first, int64_t step,
                                          int64_t live) {
    float mean[JOINED], squares[JOINED];
#pragma unroll
    for (int i = 0; i < JOINED; i++) {
        const int64_t tile = first + i * step;
        const bool there = tile < w.tiles;
        mean[i] = there ? __ldcg(channel + tile * 2 * w.channels) : 0;
        squares[i] = there ? __ldcg(channel + (tile * 2 + 1) * w.channels) : 0;
    }
    moment all = {0, 0, 0};
#pragma unroll
    for (int i = 0; i < JOINED; i++) {
        const float n = live_in(live, first + i * step, w.size);
        all.n += n;
        all.mean = fmaf(n, mean[i], all.mean);
    }
    all.mean = all.n > 0 ? all.mean / all.n : 0;
#pragma unroll
    for (int i = 0; i < JOINED; i++) {
        const float n = live_in(live, first + i * step, w.size), d = mean[i] - all.mean;
        all.squares += squares[i] + n * d * d;
    }
    return all;
}

/* Whether this block is the last of n to come here; what the others wrote before, it sees after. */
__device__ static inline bool comes_last(unsigned *counter, int64_t n) {
    __shared__ bool last;
    __syncthreads();
    if (threadIdx.x == 0) {
        last = add_acquire_release(counter, 1) == (unsigned)n - 1;
        if (last) *counter = 0;
    }
    __syncthreads();
    return last;
}

__device__ static inline void tell_moments(const moments_work &w, int64_t channel, const moment &m) {
    w.to.first[channel] = m.mean;
    w.to.first[w.to.stride + channel] = m.n > 0 ? m.squares / m.n : 0;
}

/* Called by all blocks after each has left the moments of its tiles, of COLS channels: the last block joins all.
 * THREADS of the block work, all call it; room: for THREADS moments, in shared memory. */
template <int COLS, int THREADS>
__device__ static inline void join_tiles(const moments_work &w, int64_t column, int64_t blocks, int64_t live,
                                         moment *room) {
    constexpr int SLICES = THREADS / COLS;
    if (!comes_last(w.counters + column, blocks)) return;
    const int col = (int)threadIdx.x % COLS, slice = (int)threadIdx.x / COLS;
    const int64_t channel = column * COLS + col;
    moment all = {0, 0, 0};
#pragma unroll 1
    for (int64_t tile = slice; slice < SLICES && channel < w.channels && tile < w.tiles; tile += SLICES * JOINED)
        all = join(all, join_some(w, w.partials + channel, tile, SLICES, live));
    if (slice < SLICES) room[slice * COLS + col] = all;
    __syncthreads();
    if (slice > 0 || channel >= w.channels) return;
    for (int i = 1; i < SLICES; i++) all = join(all, room[i * COLS + col]);
    tell_moments(w, channel, all);
}

/* Sums of x - origin and its square over n pixels, for each channel of a block's tile and each of its warps. */
template <int COLS, int WARPS> struct tile_sums {
    float sum[WARPS][COLS], squares[WARPS][COLS], origin[WARPS][COLS], n[WARPS];
};

/* Adds a thread's sums to its warp's. A thread has 8 channels of the tile, from `channel` on; lanes that are PACKS apart have
 * the same, and all of a warp the same origin. */
template <int PACKS, int COLS, int WARPS>
__device__ static inline void add_sums(tile_sums<COLS, WARPS> &to, int channel, const float (&origin)[8],
                                       const float (&sum)[8], const float (&squares)[8], bool first) {
    const int warp = (int)threadIdx.x / 32;
#pragma unroll
    for (int k = 0; k < 8; k++) {
        float s = sum[k], q = squares[k];
        for (int step = 16; step >= PACKS; step /= 2) {
            s += __shfl_xor_sync(0xffffffffu, s, step);
            q += __shfl_xor_sync(0xffffffffu, q, step);
        }
        if ((int)threadIdx.x % 32 >= PACKS) continue;
        if (first) to.origin[warp][channel + k] = origin[k];
        to.sum[warp][channel + k] = s + (first ? 0 : to.sum[warp][channel + k]);
        to.squares[warp][channel + k] = q + (first ? 0 : to.squares[warp][channel + k]);
    }
}

/* And the pixels that it summed over. */
template <int PACKS, int COLS, int WARPS>
__device__ static inline void add_count(tile_sums<COLS, WARPS> &to, float n, bool first) {
    const int warp = (int)threadIdx.x / 32;
    for (int step = 16; step >= PACKS; step /= 2) n += __shfl_xor_sync(0xffffffffu, n, step);
    if (threadIdx.x % 32 == 0) to.n[warp] = n + (first ? 0 : to.n[warp]);
}

/* The moments of the block's tile, and of all if it is the last. */
template <int COLS, int WARPS>
__device__ static inline void leave_tile(const moments_work &w, int64_t tile, int64_t column, int64_t live,
                                         const tile_sums<COLS, WARPS> &sums) {
    __syncthreads();
    const int col = (int)threadIdx.x;
    const int64_t channel = column * COLS + col;
    if (col < COLS && channel < w.channels) {
        moment all = {0, 0, 0};
#pragma unroll
        for (int i = 0; i < WARPS; i++) {
            const float n = sums.n[i], s = sums.sum[i][col], d = n > 0 ? s / n : 0;
            all = join(all, {n, sums.origin[i][col] + d, fmaxf(sums.squares[i][col] - s * d, 0)});
        }
        float *const to = w.partials + tile * 2 * w.channels + channel;
        to[0] = all.mean;
        to[w.channels] = all.squares;
    }
    __shared__ moment room[32 * WARPS];
    join_tiles<COLS, 32 * WARPS>(w, column, w.tiles, live, room);
}

/* ---- of an array that is there, or copied ---- */

enum {
    MOMENTS_BLOCK = 256,
    MOMENTS_COLS = 32,
    MOMENTS_PACKS = MOMENTS_COLS / 8,
    MOMENTS_LANES = MOMENTS_BLOCK / MOMENTS_PACKS
};

/* Tiles as moments_kernel has them. */
static inline moments_work moments_of(int64_t pixels, int64_t channels) {
    moments_work w = {};
    const int64_t even = parts(pixels, 256);
    w.size = even > 128 ? even : 128;
    w.tiles = parts(pixels, w.size);
    w.channels = channels;
    return w;
}
static inline int64_t moments_columns(int64_t channels) { return parts(channels, MOMENTS_COLS); }

/* Pixels of bf16 in whole packs; to NULL: they stay where they are. */
__global__ static void __launch_bounds__(MOMENTS_BLOCK, 3)
    moments_kernel(moments_work w, int64_t pixels, const int64_t *live_rows, int64_t pixels_a_row, const bf16 *from,
                   int64_t from_stride, bf16 *to, int64_t to_stride) {
    const int64_t first = (int64_t)blockIdx.x * w.size, end = first + w.size < pixels ? first + w.size : pixels;
    const int64_t live = live_rows ? *live_rows * pixels_a_row : pixels;
    const int64_t channel = blockIdx.y * MOMENTS_COLS + threadIdx.x % MOMENTS_PACKS * 8;
    const bool there = channel < w.channels;
    float origin[8] = {}, sum[8] = {}, squares[8] = {}, n = 0;
    if (there) load_floats<8>(from + first * from_stride + channel, origin);
    constexpr int AHEAD = 4;
    for (int64_t p = first + threadIdx.x / MOMENTS_PACKS; there && p < end; p += AHEAD * MOMENTS_LANES) {
        uint4 raw[AHEAD];
#pragma unroll
        for (int k = 0; k < AHEAD; k++) {
            const int64_t at = p + k * MOMENTS_LANES;
            raw[k] = load_raw<8>(from + at * from_stride + channel, at < end);
        }
#pragma unroll
        for (int k = 0; k < AHEAD; k++) {
            const int64_t at = p + k * MOMENTS_LANES;
            if (at >= end) break;
            if (to) *reinterpret_cast<uint4 *>(to + at * to_stride + channel) = raw[k];
            float x[8];
            widen_raw<bf16>(raw[k], x);
            if (at >= live) continue;
            n++;
            for (int i = 0; i < 8; i++) {
                const float d = x[i] - origin[i];
                sum[i] += d;
                squares[i] = fmaf(d, d, squares[i]);
            }
        }
    }
    __shared__ tile_sums<MOMENTS_COLS, MOMENTS_BLOCK / 32> sums;
    add_sums<MOMENTS_PACKS>(sums, (int)threadIdx.x % MOMENTS_PACKS * 8, origin, sum, squares, true);
    add_count<MOMENTS_PACKS>(sums, n, true);
    leave_tile(w, blockIdx.x, blockIdx.y, live, sums);
}

static inline void find_moments(const nn_call *c, const moments_work &w, const nn_array *y, const void *from,
                                int64_t from_stride, void *to) {
    const dim3 blocks((unsigned)w.tiles, (unsigned)moments_columns(w.channels));
    moments_kernel<<<blocks, MOMENTS_BLOCK, 0, stream_of(c)>>>(w, nn_pixels(y), y->live_rows, y->cols / nn_channels(y),
                                                               (const bf16 *)from, from_stride, (bf16 *)to, y->stride);
}

#endif
