/* Epilogue of GEMMs whose rows (M) are pixels: accumulators to y in bf16, and moments of y (moments.cuh). */
#ifndef ADAMOD_NN_CUDA_HOPPER_EPILOGUE_ROWS_H
#define ADAMOD_NN_CUDA_HOPPER_EPILOGUE_ROWS_H

#include "nn/backend/cuda/hopper/ptx.cuh"
#include "nn/backend/cuda/moments.cuh"
#include "nn/backend/cuda/norm_line.cuh"

struct row_output {
    bf16 *y; /* pixel 0, the CTA's first channel */
    int64_t stride;
    int64_t end;  /* past the CTA's last pixel */
    int64_t live; /* past the batch's last pixel; later ones are 0, and do not count for moments */
    bool moments; /* wanted */
};

/* Stores R packs of 8 channels of a lane, at pixels `pixel`, pixel + step ..., and adds them to the warp's sums. Lanes that
 * are PACKS apart have the same channels. first: sums begin here, with the first pixel as their origin. */
template <int PACKS, int R, int COLS, int WARPS>
__device__ static inline void store_packs(const row_output &to, const uint4 (&packs)[R], int64_t pixel, int64_t step,
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

/* How many of R pixels, `step` apart, are below live. */
template <int R> __device__ static inline float count_live(int64_t pixel, int64_t step, int64_t live) {
    float n = 0;
    for (int r = 0; r < R; r++) n += pixel + r * step < live;
    return n;
}

/* ---- moments of a CTA, and of all: as leave_tile of moments.cuh, in fewer dependent steps ---- */

/* Joins N moments, `step` apart: first their mean, then the squares about it. */
template <int N> __device__ static inline moment join_all(const moment *from, int step) {
    moment all = {0, 0, 0};
#pragma unroll
    for (int i = 0; i < N; i++) {
        all.n += from[i * step].n;
        all.mean = fmaf(from[i * step].n, from[i * step].mean, all.mean);
    }
    all.mean = all.n > 0 ? all.mean / all.n : 0;
#pragma unroll
    for (int i = 0; i < N; i++) {
        const float d = from[i * step].mean - all.mean;
        all.squares += fmaf(from[i * step].n * d, d, from[i * step].squares);
    }
    return all;
}

/* Joins the warps' sums of a column. */
template <int COLS, int WARPS> __device__ static inline moment join_warps(const tile_sums<COLS, WARPS> &sums, int col) {
    moment all = {0, 0, 0};
#pragma unroll
    for (int i = 0; i < WARPS; i++) {
        all.n += sums.n[i];
        all.mean += fmaf(sums.n[i], sums.origin[i][col], sums.sum[i][col]);
    }
    all.mean = all.n > 0 ? all.mean / all.n : 0;
#pragma unroll
    for (int i = 0; i < WARPS; i++) {
        const float n = sums.n[i], s = sums.sum[i][col], mean = n > 0 ? s * __frcp_rn(n) : 0;
        const float d = sums.origin[i][col] + mean - all.mean;
        all.squares += fmaf(n * d, d, fmaxf(sums.squares[i][col] - s * mean, 0));
    }
    return all;
}

/* Stores the moments of this CTA's tile of COLS channels, number `column`; the last CTA joins those of all tiles. */
template <int COLS, int WARPS>
__device__ static inline void store_block(const moments_work &w, int64_t column, int64_t live,
                                          const tile_sums<COLS, WARPS> &sums) {
    constexpr int SLICES = 32 * WARPS / COLS;
    __shared__ moment room[SLICES][COLS];
    const int col = (int)threadIdx.x % COLS, slice = (int)threadIdx.x / COLS;
    const int64_t channel = column * COLS + col;
    __syncthreads();
    if (slice == 0) {
        const moment mine = join_warps(sums, col);
        float *const to = w.partials + (int64_t)blockIdx.x * 2 * w.channels + channel;
        to[0] = mine.mean;
        to[w.channels] = mine.squares;
    }
    if (!comes_last(w.counters + column, w.tiles)) return;
    moment all = {0, 0, 0};
#pragma unroll 1
    for (int64_t tile = slice; tile < w.tiles; tile += SLICES * JOINED)
        all = join(all, join_some(w, w.partials + channel, tile, SLICES, live));
    room[slice][col] = all;
    __syncthreads();
    if (slice == 0) tell_moments(w, channel, join_all<SLICES>(&room[0][col], COLS));
}

/* A lane's 8 channels, in a CTA that has several tiles: sums of x - origin and its square. */
struct lane_sums {
    uint4 origin;
    float sum[8], squares[8];
};

/* Stores a warp's 16 pixels from `pixel` on, of COLS channels, through `out`, the warp's shared memory; zeros beyond the
 * batch. Lanes that are COLS / 8 apart have the same channels. first: as in store_packs. */
template <int COLS>
__device__ static inline void store_rows(const row_output &to, bf16 *out, const float (&acc)[COLS / 8][4],
                                         int64_t pixel, bool first, lane_sums &sums) {
    constexpr int PACKS = COLS / 8, STEP = 32 / PACKS;
    const auto place = [](int row, int pack) {
        return row * COLS + (pack ^ (PACKS < 8 ? row / 2 & (PACKS - 1) : row & 7)) * 8;
    };
    const int lane = (int)threadIdx.x % 32, pack = lane % PACKS, row = lane / PACKS;
    const int there = to.end - pixel < 16 ? (int)(to.end - pixel) : 16;
    const int live = to.live - pixel < 16 ? (int)(to.live - pixel) : 16;
#pragma unroll
    for (int n = 0; n < PACKS; n += 2) {
        uint32_t m[4];
#pragma unroll
        for (int i = 0; i < 4; i++)
            m[i] =
                lane / 4 + i % 2 * 8 < live ? narrow_pair(acc[n + i / 2][i % 2 * 2], acc[n + i / 2][i % 2 * 2 + 1]) : 0;
        stmatrix_x4(out + place(lane % 16, n + lane / 16), m);
    }
    __syncwarp();
    if (first) sums.origin = *reinterpret_cast<const uint4 *>(out + place(0, pack));
    float origin[8];
    widen_raw<bf16>(sums.origin, origin);
    bf16 *const y = to.y + (pixel + row) * to.stride + pack * 8;
#pragma unroll
    for (int i = 0; i < 16; i += STEP) {
        const uint4 p = *reinterpret_cast<const uint4 *>(out + place(row + i, pack));
        if (row + i < there) *reinterpret_cast<uint4 *>(y + i * to.stride) = p;
        if (row + i >= live) continue;
        float x[8];
        widen_raw<bf16>(p, x);
#pragma unroll
        for (int k = 0; k < 8; k++) {
            const float d = x[k] - origin[k];
            sums.sum[k] += d;
            sums.squares[k] = fmaf(d, d, sums.squares[k]);
        }
    }
    __syncwarp();
}

/* store_block of a CTA's pixels [first, end), which it took ROWS at a time, each warp 16 of them. `room` is shared memory that
 * other threads may still be reading. */
template <int ROWS, int COLS, int WARPS>
__device__ static inline void store_lanes(const moments_work &w, int64_t column, int64_t first, int64_t end,
                                          int64_t live, const lane_sums &of, tile_sums<COLS, WARPS> &room) {
    constexpr int PACKS = COLS / 8, STEP = 32 / PACKS;
    const int lane = (int)threadIdx.x % 32, warp = (int)threadIdx.x / 32;
    float origin[8], n = 0;
    widen_raw<bf16>(of.origin, origin);
    __syncthreads();
    add_sums<PACKS>(room, lane % PACKS * 8, origin, of.sum, of.squares, true);
    for (int64_t pixel = first + warp * 16 + lane / PACKS; pixel < end; pixel += ROWS)
        n += count_live<16 / STEP>(pixel, STEP, live);
    add_count<PACKS>(room, n, true);
    store_block(w, column, live, room);
}

/* A warpgroup's sums of 64 pixels and N channels. Rows are padded by 8, so that four of them begin in different banks. */
template <int N> struct warpgroup_sums { float row[64][N + 8]; };

/* The split-K epilogue: adds the sums of WARPGROUPS warpgroups for the same 64 pixels, from `pixel` on. `shared` is memory
 * that other threads may still be reading. */
template <int N, int WARPGROUPS, int WARPS>
__device__ static inline void store_sums(const row_output &to, warpgroup_sums<N> *shared, float (&acc)[N / 8][4],
                                         int64_t pixel, tile_sums<N, WARPS> &sums) {
    constexpr int PACKS = N / 8, AT_ONCE = WARPGROUPS * WARPGROUP / PACKS, R = AT_ONCE < 64 ? 64 / AT_ONCE : 1;
    const int lane = (int)threadIdx.x % 32, warpgroup = (int)threadIdx.x / WARPGROUP;
    const int row = (int)threadIdx.x % WARPGROUP / 32 * 16 + lane / 4;
    __syncthreads();
#pragma unroll
    for (int n = 0; n < PACKS; n++) {
        float *const at = &shared[warpgroup].row[row][n * 8 + lane % 4 * 2];
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
        for (int g = 0; there && g < WARPGROUPS; g++)
            for (int k = 0; k < 8; k++) x[k] += shared[g].row[mine + r * AT_ONCE][channel + k];
        const bool lives = there && pixel + mine + r * AT_ONCE < to.live;
        packs[r] = lives ? make_uint4(narrow_pair(x[0], x[1]), narrow_pair(x[2], x[3]), narrow_pair(x[4], x[5]),
                                      narrow_pair(x[6], x[7]))
                         : make_uint4(0, 0, 0, 0);
    }
    const row_output mine_to = {to.y, to.stride, there ? to.end : 0, there ? to.live : 0, to.moments};
    store_packs<PACKS>(mine_to, packs, pixel + mine, AT_ONCE, channel, true, sums);
    add_count<PACKS>(sums, there ? count_live<R>(pixel + mine, AT_ONCE, to.live) : 0, true);
}

#endif
