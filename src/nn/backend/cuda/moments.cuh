/* Mean and variance of each channel, found by the kernel that writes it.
 *
 * A block has a tile: some pixels of some channels. It leaves its mean and the squares about it; the last block of a group
 * of tiles joins theirs, and the last group those of all. Who is last changes from run to run, in which order things are
 * joined does not. */
#ifndef ADAMOD_NN_CUDA_MOMENTS_H
#define ADAMOD_NN_CUDA_MOMENTS_H

#include "nn/backend/cuda/cuda.h"

enum { JOINED = 16 }; /* tiles or groups that are joined at once */

/* Tiles of a group: all, where they are few. */
static inline __host__ __device__ int64_t group_size(int64_t tiles) {
    return tiles <= 4 * JOINED ? 4 * JOINED : JOINED;
}
static inline __host__ __device__ int64_t group_count(int64_t tiles) { return parts(tiles, group_size(tiles)); }

typedef struct moments_work {
    float *partials;     /* [tiles, then groups][2][channels]: mean, squares about it */
    unsigned *counters;  /* for each column of tiles: of each group, then of all; 0 between launches */
    nn_channel_pairs to; /* means and variances; first NULL: not wanted */
    int64_t tiles, size; /* tiles one below the other, pixels of one */
    int64_t channels;
} moments_work;

static inline size_t moments_floats(int64_t tiles, int64_t channels) {
    return (size_t)((tiles + group_count(tiles)) * 2 * channels);
}
static inline size_t moments_counters(int64_t tiles, int64_t columns) {
    return (size_t)((group_count(tiles) + 1) * columns);
}

/* Of the pixels that live, those in part i of so many. */
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

/* Of at most JOINED parts of a channel from `first` on. */
__device__ static inline moment join_parts(const float *channel, int64_t channels, int64_t first, int64_t count,
                                           int64_t size, int64_t live) {
    float mean[JOINED], squares[JOINED];
#pragma unroll
    for (int i = 0; i < JOINED; i++) {
        const bool there = i < count;
        mean[i] = there ? __ldcg(channel + (first + i) * 2 * channels) : 0;
        squares[i] = there ? __ldcg(channel + ((first + i) * 2 + 1) * channels) : 0;
    }
    moment all = {0, 0, 0};
#pragma unroll
    for (int i = 0; i < JOINED; i++) {
        const float n = i < count ? live_in(live, first + i, size) : 0;
        all.n += n;
        all.mean = fmaf(n, mean[i], all.mean);
    }
    all.mean = all.n > 0 ? all.mean / all.n : 0;
#pragma unroll
    for (int i = 0; i < JOINED; i++) {
        const float n = i < count ? live_in(live, first + i, size) : 0, d = mean[i] - all.mean;
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

/* The same of any number. */
__device__ static inline moment join_all(const float *channel, int64_t channels, int64_t first, int64_t count,
                                         int64_t size, int64_t live) {
    moment all = {0, 0, 0};
#pragma unroll 1
    for (int64_t i = 0; i < count; i += JOINED)
        all = join(all, join_parts(channel, channels, first + i, count - i < JOINED ? count - i : JOINED, size, live));
    return all;
}

__device__ static inline void tell_moments(const moments_work &w, int64_t channel, const moment &m) {
    w.to.first[channel] = m.mean;
    w.to.first[w.to.stride + channel] = m.n > 0 ? m.squares / m.n : 0;
}

/* After the block has left its tile's moments: joins them, if it is the last. COLS: channels of a tile, no more than the
 * block has threads. */
template <int COLS>
__device__ static inline void join_tiles(const moments_work &w, int64_t tile, int64_t column, int64_t live) {
    const int64_t size = group_size(w.tiles), groups = group_count(w.tiles), group = tile / size, first = group * size;
    const int64_t count = w.tiles - first < size ? w.tiles - first : size;
    const int64_t channel = column * COLS + threadIdx.x;
    const bool mine = threadIdx.x < COLS && channel < w.channels;
    unsigned *const counters = w.counters + column * (groups + 1);
    if (!comes_last(counters + group, count)) return;
    if (mine) {
        const moment m = join_all(w.partials + channel, w.channels, first, count, w.size, live);
        float *const to = w.partials + (w.tiles + group) * 2 * w.channels + channel;
        to[0] = m.mean;
        to[w.channels] = m.squares;
        if (groups == 1) tell_moments(w, channel, m);
    }
    if (groups == 1 || !comes_last(counters + groups, groups) || !mine) return;
    const float *of_groups = w.partials + w.tiles * 2 * w.channels + channel;
    tell_moments(w, channel, join_all(of_groups, w.channels, 0, groups, w.size * size, live));
}

/* Sums of x - origin and its square, of each channel of a block's tile and each of its warps. */
template <int COLS, int BLOCK> struct tile_sums {
    float sum[BLOCK / 32][COLS], squares[BLOCK / 32][COLS], origin[COLS];
};

/* Adds a thread's sums to its warp's. A thread has 8 channels, those of pack threadIdx.x % (COLS / 8). */
template <int COLS, int BLOCK>
__device__ static inline void add_sums(tile_sums<COLS, BLOCK> &to, const float (&sum)[8], const float (&squares)[8],
                                       bool first) {
    const int channel = (int)threadIdx.x % (COLS / 8) * 8, warp = (int)threadIdx.x / 32;
#pragma unroll
    for (int k = 0; k < 8; k++) {
        float s = sum[k], q = squares[k];
        for (int step = 16; step >= COLS / 8; step /= 2) {
            s += __shfl_xor_sync(0xffffffffu, s, step);
            q += __shfl_xor_sync(0xffffffffu, q, step);
        }
        if ((int)threadIdx.x % 32 >= COLS / 8) continue;
        to.sum[warp][channel + k] = s + (first ? 0 : to.sum[warp][channel + k]);
        to.squares[warp][channel + k] = q + (first ? 0 : to.squares[warp][channel + k]);
    }
}

/* The moments of the block's tile, and of all if it is the last. */
template <int COLS, int BLOCK>
__device__ static inline void leave_tile(const moments_work &w, int64_t tile, int64_t column, int64_t live,
                                         const tile_sums<COLS, BLOCK> &sums) {
    __syncthreads();
    const int64_t channel = column * COLS + threadIdx.x;
    if (threadIdx.x < COLS && channel < w.channels) {
        float s = 0, q = 0;
        for (int k = 0; k < BLOCK / 32; k++) s += sums.sum[k][threadIdx.x], q += sums.squares[k][threadIdx.x];
        const float n = live_in(live, tile, w.size), d = n > 0 ? s / n : 0;
        float *const to = w.partials + tile * 2 * w.channels + channel;
        to[0] = sums.origin[threadIdx.x] + d;
        to[w.channels] = fmaxf(q - s * d, 0);
    }
    join_tiles<COLS>(w, tile, column, live);
}

/* ---- of an array that is there, or copied ---- */

enum { MOMENTS_BLOCK = 256, MOMENTS_COLS = 32, MOMENTS_LANES = MOMENTS_BLOCK / (MOMENTS_COLS / 8) };

/* Tiles as moments_kernel has them. */
static inline moments_work moments_of(int64_t pixels, int64_t channels) {
    moments_work w = {};
    const int64_t even = parts(pixels, 512);
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
    const int64_t channel = blockIdx.y * MOMENTS_COLS + threadIdx.x % (MOMENTS_COLS / 8) * 8;
    const bool there = channel < w.channels;
    float origin[8] = {}, sum[8] = {}, squares[8] = {};
    if (there) load_floats<8>(from + first * from_stride + channel, origin);
    constexpr int AHEAD = 4;
    for (int64_t p = first + threadIdx.x / (MOMENTS_COLS / 8); there && p < end; p += AHEAD * MOMENTS_LANES) {
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
            for (int i = 0; i < 8 && at < live; i++) {
                const float d = x[i] - origin[i];
                sum[i] += d;
                squares[i] = fmaf(d, d, squares[i]);
            }
        }
    }
    __shared__ tile_sums<MOMENTS_COLS, MOMENTS_BLOCK> sums;
    for (int k = 0; threadIdx.x < MOMENTS_COLS / 8 && k < 8; k++) sums.origin[threadIdx.x * 8 + k] = origin[k];
    add_sums(sums, sum, squares, true);
    leave_tile(w, blockIdx.x, blockIdx.y, live, sums);
}

static inline void find_moments(const nn_call *c, const moments_work &w, const nn_array *y, const void *from,
                                int64_t from_stride, void *to) {
    const dim3 blocks((unsigned)w.tiles, (unsigned)moments_columns(w.channels));
    moments_kernel<<<blocks, MOMENTS_BLOCK, 0, stream_of(c)>>>(w, nn_pixels(y), y->live_rows, y->cols / nn_channels(y),
                                                               (const bf16 *)from, from_stride, (bf16 *)to, y->stride);
}

#endif
