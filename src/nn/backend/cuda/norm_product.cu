#include "nn/backend/cuda/norm_product.h"
#include "nn/backend/cuda/matrix.cuh"
#include "nn/backend/cuda/sum_parts.cuh"

#include <string.h>

enum {
    OUT = 128,      /* channels of y */
    DEPTH = 32,     /* channels of x that forward takes at a time */
    STAGES = 4,     /* of them in shared memory */
    MOST_IN = 4096, /* channels of x */
    TILE = 128,     /* pixels that backward takes at a time */
    COLUMNS = 64,   /* channels of x of a block of backward */
    BACK_BLOCK = 256,
    PROCESSORS = 132 /* as many multiprocessors as chips for this have */
};

/* ---- shared memory ---- */

/* Rows of WIDTH numbers, whose packs change places so that one pack of 8 rows lies in different banks. */
template <int WIDTH> __device__ static inline int swizzled(int row, int pack) {
    if (WIDTH == 32) return row * WIDTH + (pack ^ (row / 2 & 3)) * 8;
    return row * WIDTH + (pack ^ (row & 7)) * 8;
}

/* Begins to copy ROWS rows of WIDTH numbers; zeros beyond n rows and cols numbers. */
template <int ROWS, int WIDTH, int BLOCK>
__device__ static inline void copy_rows(bf16 *to, const bf16 *from, int64_t stride, int64_t n, int64_t cols) {
    constexpr int PACKS = WIDTH / 8;
#pragma unroll
    for (int i = 0; i < ROWS * PACKS / BLOCK; i++) {
        const int at = i * BLOCK + (int)threadIdx.x, row = at / PACKS, pack = at % PACKS;
        const bool there = row < n && pack * 8 < cols;
        copy_async(to + swizzled<WIDTH>(row, pack), there ? from + row * stride + pack * 8 : from, there);
    }
}

/* ---- numbers ---- */

__device__ static inline float low(uint32_t pair) { return __uint_as_float(pair << 16); }
__device__ static inline float high(uint32_t pair) { return __uint_as_float(pair & 0xffff0000u); }

__device__ static inline uint32_t narrow_pair(float a, float b) {
    uint32_t r;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(b), "f"(a));
    return r;
}

__device__ static inline uint32_t narrow_relu(float a, float b) {
    uint32_t r;
    asm("cvt.rn.relu.bf16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(b), "f"(a));
    return r;
}

/* z = factor x + shift, in forward and again in backward: the same bits. */
struct norm_line {
    float mean, scale, factor, shift;
};

__device__ static inline norm_line line_of(float mean, float scale, float gamma, float beta) {
    const float factor = scale * gamma;
    return {mean, scale, factor, fmaf(-mean, factor, beta)};
}

/* relu(z) of two channels: {factors, shifts}. */
__device__ static inline uint32_t normalised(uint32_t x, const float4 &k) {
    return narrow_relu(fmaf(low(x), k.x, k.z), fmaf(high(x), k.y, k.w));
}

/* ---- forward ---- */

struct forward_work {
    const bf16 *x, *w;
    bf16 *y;
    int64_t x_stride, y_stride, pixels, channels;
    nn_channel_pairs moments;
    const float *gamma, *beta;
    float *saved, *mean, *variance; /* running ones */
    float eps, momentum;
    const int64_t *live_rows;
    int64_t pixels_a_row;
    moments_work found;
};

template <typename W> __device__ static inline int64_t live_of(const W &w) {
    return w.live_rows ? *w.live_rows * w.pixels_a_row : w.pixels;
}

/* Lines of all channels into shared memory; one block tells them to everybody else. */
template <int BLOCK>
__device__ static inline void find_lines(const forward_work &f, float4 *lines, float n, bool tells) {
    for (int64_t k = threadIdx.x; k < parts(f.channels, DEPTH) * DEPTH; k += BLOCK) {
        norm_line line = {0, 0, 0, 0};
        if (k < f.channels) {
            const float mean = f.moments.first[k], v = f.moments.first[f.moments.stride + k];
            line = line_of(mean, 1 / sqrtf(v + f.eps), f.gamma[k], f.beta[k]);
            if (tells) f.saved[k] = line.mean, f.saved[f.channels + k] = line.scale;
            if (tells && n > 0) {
                f.mean[k] = (1 - f.momentum) * f.mean[k] + f.momentum * mean;
                f.variance[k] = (1 - f.momentum) * f.variance[k] + f.momentum * (v * n / (n > 1 ? n - 1 : 1));
            }
        }
        float *const to = reinterpret_cast<float *>(lines + k / 2) + k % 2;
        to[0] = line.factor;
        to[2] = line.shift;
    }
}

/* acc += relu(norm(a)) b^T, of DEPTH channels. A warp has MF times 16 pixels and NF times 8 channels out. */
template <int MF, int NF>
__device__ static inline void multiply_stage(const bf16 *a, const bf16 *b, const float4 *lines, int row, int col,
                                             float (&acc)[MF][NF][4]) {
    const int lane = (int)threadIdx.x % 32;
#pragma unroll
    for (int k = 0; k < DEPTH / 16; k++) {
        const float4 first = lines[k * 8 + lane % 4], second = lines[k * 8 + 4 + lane % 4];
        uint32_t left[MF][4], right[4];
#pragma unroll
        for (int m = 0; m < MF; m++) {
            load_matrices(left[m], a + swizzled<DEPTH>(row + m * 16 + lane % 16, k * 2 + lane / 16));
            for (int i = 0; i < 4; i++) left[m][i] = normalised(left[m][i], i < 2 ? first : second);
        }
#pragma unroll
        for (int n = 0; n < NF; n += 2) {
            load_matrices(right, b + swizzled<DEPTH>(col + n * 8 + lane / 16 * 8 + lane % 8, k * 2 + lane / 8 % 2));
#pragma unroll
            for (int m = 0; m < MF; m++) {
                multiply_add(acc[m][n], left[m], right[0], right[1]);
                multiply_add(acc[m][n + 1], left[m], right[2], right[3]);
            }
        }
    }
}

/* From a tile in shared memory to y, and into the sums of the block's tiles. */
template <int ROWS, int COLS, int BLOCK>
__device__ static inline void store_tile(const forward_work &f, const bf16 *tile, int64_t pixel, int64_t live,
                                         bool first, tile_sums<COLS, BLOCK> &sums) {
    constexpr int PACKS = COLS / 8;
    const int pack = (int)threadIdx.x % PACKS;
    float origin[8], sum[8] = {}, squares[8] = {};
    if (first) load_floats<8>(tile + swizzled<COLS>(0, pack), origin);
    for (int k = 0; k < 8; k++) {
        if (!first) origin[k] = sums.origin[pack * 8 + k];
        else if (threadIdx.x < PACKS) sums.origin[pack * 8 + k] = origin[k];
    }
#pragma unroll
    for (int row = (int)threadIdx.x / PACKS; row < ROWS; row += BLOCK / PACKS) {
        const bf16 *from = tile + swizzled<COLS>(row, pack);
        if (pixel + row < f.pixels)
            store_pack(f.y + (pixel + row) * f.y_stride + blockIdx.y * COLS + pack * 8, load_pack(from));
        if (pixel + row >= live) continue;
        float x[8];
        load_floats<8>(from, x);
        for (int k = 0; k < 8; k++) {
            const float d = x[k] - origin[k];
            sum[k] += d;
            squares[k] = fmaf(d, d, squares[k]);
        }
    }
    if (f.found.to.first) add_sums(sums, sum, squares, first);
}

/* A warp's part of a tile into shared memory; zeros in rows that are not of the batch. */
template <int COLS, int MF, int NF>
__device__ static inline void stage_tile(bf16 *tile, int row, int col, int64_t live_rows, float (&acc)[MF][NF][4]) {
    const int lane = (int)threadIdx.x % 32;
#pragma unroll
    for (int m = 0; m < MF; m++) {
#pragma unroll
        for (int i = 0; i < 2 * NF; i++) {
            const int r = row + m * 16 + i % 2 * 8 + lane / 4, n = i / 2;
            const uint32_t pair = r < live_rows ? narrow_pair(acc[m][n][i % 2 * 2], acc[m][n][i % 2 * 2 + 1]) : 0;
            *reinterpret_cast<uint32_t *>(tile + swizzled<COLS>(r, col / 8 + n) + lane % 4 * 2) = pair;
            acc[m][n][i % 2 * 2] = acc[m][n][i % 2 * 2 + 1] = 0;
        }
    }
}

extern __shared__ __align__(128) unsigned char shared_memory[];

/* ROWS pixels times COLS channels out at a time by a block of DOWN times ACROSS warps, which has some tiles one after the
 * other: what it reads for the next is on its way before the last is stored. */
template <int ROWS, int COLS, int DOWN, int ACROSS>
__global__ static void __launch_bounds__(32 * DOWN * ACROSS, 2) product_kernel(const forward_work f) {
    constexpr int BLOCK = 32 * DOWN * ACROSS, MF = ROWS / DOWN / 16, NF = COLS / ACROSS / 8;
    __shared__ tile_sums<COLS, BLOCK> sums;
    bf16 *const stages = reinterpret_cast<bf16 *>(shared_memory), *const out = stages + STAGES * (ROWS + COLS) * DEPTH;
    float4 *const lines = reinterpret_cast<float4 *>(out + ROWS * COLS);
    const int64_t first = (int64_t)blockIdx.x * f.found.size, live = live_of(f);
    const int64_t end = first + f.found.size < f.pixels ? first + f.found.size : f.pixels;
    const int chunks = (int)parts(f.channels, DEPTH), warp = (int)threadIdx.x / 32;
    const int row = warp / ACROSS * MF * 16, col = warp % ACROSS * NF * 8;
    int64_t to_load = first;
    int load_chunk = 0, load_stage = 0;
    const auto load = [&] {
        bf16 *const a = stages + load_stage * (ROWS + COLS) * DEPTH;
        const int64_t at = (int64_t)load_chunk * DEPTH;
        if (to_load < end) {
            copy_rows<ROWS, DEPTH, BLOCK>(a, f.x + to_load * f.x_stride + at, f.x_stride, end - to_load,
                                          f.channels - at);
            copy_rows<COLS, DEPTH, BLOCK>(a + ROWS * DEPTH, f.w + blockIdx.y * COLS * f.channels + at, f.channels, COLS,
                                          f.channels - at);
        }
        copies_commit();
        load_stage = load_stage + 1 == STAGES ? 0 : load_stage + 1;
        if (++load_chunk == chunks) load_chunk = 0, to_load += ROWS;
    };
    for (int i = 0; i < STAGES - 1; i++) load();
    find_lines<BLOCK>(f, lines, (float)live, blockIdx.x == 0 && blockIdx.y == 0);
    float acc[MF][NF][4] = {};
    int stage = 0;
    for (int64_t pixel = first; pixel < end; pixel += ROWS) {
        for (int i = 0; i < chunks; i++) {
            copies_wait<STAGES - 2>();
            __syncthreads();
            load();
            const bf16 *a = stages + stage * (ROWS + COLS) * DEPTH;
            multiply_stage<MF, NF>(a, a + ROWS * DEPTH, lines + i * DEPTH / 2, row, col, acc);
            stage = stage + 1 == STAGES ? 0 : stage + 1;
        }
        stage_tile<COLS, MF, NF>(out, row, col, live - pixel, acc);
        __syncthreads();
        store_tile<ROWS, COLS, BLOCK>(f, out, pixel, live, pixel == first, sums);
    }
    if (f.found.to.first) leave_tile(f.found, blockIdx.x, blockIdx.y, live, sums);
}

/* ---- backward ---- */

struct backward_work {
    const bf16 *x, *w, *dy;
    target<bf16> dx;
    int64_t x_stride, dy_stride, pixels, channels;
    const float *gamma, *beta, *saved;
    float *dw, *sums; /* of each part of the pixels: [OUT, channels]; [2, channels]: of g, and of g (x - mean) */
    int64_t columns, parts, tiles;
};

/* What a block has of COLUMNS channels and TILE pixels. */
struct back_stage {
    bf16 dy[TILE * OUT], x[TILE * COLUMNS], dx[TILE * COLUMNS];
};
struct back_memory {
    bf16 w[OUT * COLUMNS];
    back_stage stages[2];
};

/* Warps are 4 below each other and 2 side by side; each has 32 rows and 32 columns of a result. */
struct back_warp {
    int lane, row, col;
    __device__ back_warp() {
        lane = (int)threadIdx.x % 32;
        row = (int)threadIdx.x / 64 * 32;
        col = (int)threadIdx.x / 32 % 2 * 32;
    }
};

typedef float back_tile[2][4][4];

/* Gradients of relu(norm(x)): dy W. */
__device__ static inline void multiply_pixels(const back_warp &at, const bf16 *dy, const bf16 *w, back_tile &acc) {
#pragma unroll
    for (int k = 0; k < OUT / 16; k++) {
        uint32_t left[2][4], right[4];
#pragma unroll
        for (int m = 0; m < 2; m++)
            load_matrices(left[m], dy + swizzled<OUT>(at.row + m * 16 + at.lane % 16, k * 2 + at.lane / 16));
#pragma unroll
        for (int n = 0; n < 4; n += 2) {
            load_matrices_transposed(right,
                                     w + swizzled<COLUMNS>(k * 16 + at.lane % 16, at.col / 8 + n + at.lane / 16));
#pragma unroll
            for (int m = 0; m < 2; m++) {
                multiply_add(acc[m][n], left[m], right[0], right[1]);
                multiply_add(acc[m][n + 1], left[m], right[2], right[3]);
            }
        }
    }
}

/* acc += dy^T x. */
__device__ static inline void multiply_weights(const back_warp &at, const bf16 *dy, const bf16 *x, back_tile &acc) {
#pragma unroll
    for (int k = 0; k < TILE / 16; k++) {
        uint32_t left[2][4], right[4];
#pragma unroll
        for (int m = 0; m < 2; m++)
            load_matrices_transposed(left[m], dy + swizzled<OUT>(k * 16 + at.lane / 16 * 8 + at.lane % 8,
                                                                 at.row / 8 + m * 2 + at.lane / 8 % 2));
#pragma unroll
        for (int n = 0; n < 4; n += 2) {
            load_matrices_transposed(right,
                                     x + swizzled<COLUMNS>(k * 16 + at.lane % 16, at.col / 8 + n + at.lane / 16));
#pragma unroll
            for (int m = 0; m < 2; m++) {
                multiply_add(acc[m][n], left[m], right[0], right[1]);
                multiply_add(acc[m][n + 1], left[m], right[2], right[3]);
            }
        }
    }
}

/* Of a thread's 8 columns: 8 n + 2 (lane % 4) + e is number 2 n + e. */
struct back_columns {
    norm_line line[8];
    float sum[8], product[8];
    __device__ back_columns(const backward_work &b, const back_warp &at, int64_t channel) {
#pragma unroll
        for (int i = 0; i < 8; i++) {
            const int64_t k = channel + at.col + i / 2 * 8 + at.lane % 4 * 2 + i % 2;
            line[i] = {0, 0, 0, 0};
            if (k < b.channels) line[i] = line_of(b.saved[k], b.saved[b.channels + k], b.gamma[k], b.beta[k]);
            sum[i] = product[i] = 0;
        }
    }
};

/* The slope of relu, the sums, what is added to dx; and x becomes relu(norm(x)), for the gradient of W. */
__device__ static inline void finish_pixels(const back_warp &at, bool add, back_stage &s, const back_tile &acc,
                                            back_columns &of) {
#pragma unroll
    for (int m = 0; m < 2; m++) {
#pragma unroll
        for (int i = 0; i < 8; i++) {
            const int row = at.row + m * 16 + i % 2 * 8 + at.lane / 4, n = i / 2;
            const int place = swizzled<COLUMNS>(row, at.col / 8 + n) + at.lane % 4 * 2;
            uint32_t *const x = reinterpret_cast<uint32_t *>(s.x + place);
            uint32_t *const dx = reinterpret_cast<uint32_t *>(s.dx + place);
            const uint32_t pair = *x, before = add ? *dx : 0;
            const float xs[2] = {low(pair), high(pair)};
            float z[2], to[2] = {low(before), high(before)};
#pragma unroll
            for (int e = 0; e < 2; e++) {
                const norm_line &line = of.line[2 * n + e];
                z[e] = fmaf(xs[e], line.factor, line.shift);
                const float g = z[e] > 0 ? acc[m][n][i % 2 * 2 + e] : 0;
                of.sum[2 * n + e] += g;
                of.product[2 * n + e] = fmaf(g, xs[e] - line.mean, of.product[2 * n + e]);
                to[e] = fmaf(g, line.factor, to[e]);
            }
            *x = narrow_relu(z[0], z[1]);
            *dx = narrow_pair(to[0], to[1]);
        }
    }
}

__device__ static inline void store_dx(const backward_work &b, const back_stage &s, int64_t first, int64_t channel) {
#pragma unroll
    for (int i = 0; i < TILE * COLUMNS / 8 / BACK_BLOCK; i++) {
        const int at = i * BACK_BLOCK + (int)threadIdx.x, row = at / (COLUMNS / 8), pack = at % (COLUMNS / 8);
        if (first + row < b.pixels && channel + pack * 8 < b.channels)
            store_pack(b.dx.to + (first + row) * b.x_stride + channel + pack * 8,
                       load_pack(s.dx + swizzled<COLUMNS>(row, pack)));
    }
}

/* A part's sums over its pixels: over the lanes of a warp that have the same columns, then over warps. */
__device__ static inline void leave_columns(const backward_work &b, const back_warp &at, int64_t channel, int64_t part,
                                            back_columns &of) {
    __shared__ float shared[2][4][COLUMNS];
#pragma unroll
    for (int i = 0; i < 8; i++) {
        for (int step = 4; step < 32; step *= 2) {
            of.sum[i] += __shfl_xor_sync(0xffffffffu, of.sum[i], step);
            of.product[i] += __shfl_xor_sync(0xffffffffu, of.product[i], step);
        }
        const int col = at.col + i / 2 * 8 + at.lane % 4 * 2 + i % 2;
        if (at.lane < 4) shared[0][at.row / 32][col] = of.sum[i], shared[1][at.row / 32][col] = of.product[i];
    }
    __syncthreads();
    const int which = (int)threadIdx.x / COLUMNS, col = (int)threadIdx.x % COLUMNS;
    if (which > 1 || channel + col >= b.channels) return;
    float sum = 0;
    for (int k = 0; k < 4; k++) sum += shared[which][k][col];
    b.sums[(part * 2 + which) * b.channels + channel + col] = sum;
}

__device__ static inline void leave_weights(const backward_work &b, const back_warp &at, int64_t channel, int64_t part,
                                            const back_tile &acc) {
#pragma unroll
    for (int m = 0; m < 2; m++) {
#pragma unroll
        for (int i = 0; i < 8; i++) {
            const int out = at.row + m * 16 + i % 2 * 8 + at.lane / 4, n = i / 2;
            const int64_t k = channel + at.col + n * 8 + at.lane % 4 * 2;
            if (k < b.channels)
                *reinterpret_cast<float2 *>(b.dw + (part * OUT + out) * b.channels + k) =
                    make_float2(acc[m][n][i % 2 * 2], acc[m][n][i % 2 * 2 + 1]);
        }
    }
}

__global__ static void __launch_bounds__(BACK_BLOCK, 1) product_back_kernel(const backward_work b) {
    back_memory &s = *reinterpret_cast<back_memory *>(shared_memory);
    const int64_t channel = blockIdx.x % b.columns * COLUMNS, part = blockIdx.x / b.columns;
    const bool add = b.dx.to && b.dx.add;
    const back_warp at;
    const auto load = [&](int64_t tile) {
        back_stage &to = s.stages[tile / b.parts % 2];
        const int64_t first = tile * TILE, rows = b.pixels - first, cols = b.channels - channel;
        if (tile < b.tiles) {
            copy_rows<TILE, OUT, BACK_BLOCK>(to.dy, b.dy + first * b.dy_stride, b.dy_stride, rows, OUT);
            copy_rows<TILE, COLUMNS, BACK_BLOCK>(to.x, b.x + first * b.x_stride + channel, b.x_stride, rows, cols);
            if (add)
                copy_rows<TILE, COLUMNS, BACK_BLOCK>(to.dx, b.dx.to + first * b.x_stride + channel, b.x_stride, rows,
                                                     cols);
        }
        copies_commit();
    };
    copy_rows<OUT, COLUMNS, BACK_BLOCK>(s.w, b.w + channel, b.channels, OUT, b.channels - channel);
    load(part);
    back_columns of(b, at, channel);
    back_tile weights = {};
    for (int64_t tile = part; tile < b.tiles; tile += b.parts) {
        back_stage &now = s.stages[tile / b.parts % 2];
        load(tile + b.parts);
        copies_wait<1>();
        __syncthreads();
        back_tile acc = {};
        multiply_pixels(at, now.dy, s.w, acc);
        finish_pixels(at, add, now, acc, of);
        __syncthreads();
        if (b.dx.to) store_dx(b, now, tile * TILE, channel);
        multiply_weights(at, now.dy, now.x, weights);
        __syncthreads();
    }
    leave_columns(b, at, channel, part, of);
    leave_weights(b, at, channel, part, weights);
}

/* ---- the sums of all parts ---- */

struct sum_work {
    const float *dw, *sums, *gamma, *saved;
    int64_t parts, channels, weight_blocks;
    target<float> to_w, to_gamma, to_beta;
    nn_channel_pairs linear;
    bool linear_add;
    const int64_t *live_rows;
    int64_t pixels, pixels_a_row;
};

/* The gradient of x is dx + a + b x: with mean(g) = sum / n and p = product scale^2 / n,
 * factor (g - mean(g) - (x - mean) p). */
__device__ static inline void tell_channel(const sum_work &s, int64_t k, float sum, float product) {
    const float mean = s.saved[k], scale = s.saved[s.channels + k], factor = s.gamma[k] * scale;
    const float n = fmaxf((float)(s.live_rows ? *s.live_rows * s.pixels_a_row : s.pixels), 1);
    const float p = product * scale * scale / n;
    const float dgamma[1] = {product * scale}, dbeta[1] = {sum};
    put<1>(s.to_gamma, k, dgamma);
    put<1>(s.to_beta, k, dbeta);
    const float a[1] = {-factor * (sum / n - mean * p)}, b[1] = {-factor * p};
    put<1>(target<float>{s.linear.first, s.linear_add}, k, a);
    put<1>(target<float>{s.linear.first ? s.linear.first + s.linear.stride : NULL, s.linear_add}, k, b);
}

__device__ static inline void sum_channels(const sum_work &s) {
    __shared__ float shared[2][PARTS_SLICES][PARTS_COLS];
    const int col = (int)threadIdx.x % PARTS_COLS, slice = (int)threadIdx.x / PARTS_COLS;
    const int64_t k = (blockIdx.x - s.weight_blocks) * PARTS_COLS + col;
    float sums[2] = {0, 0};
#pragma unroll 4
    for (int64_t part = slice; k < s.channels && part < s.parts; part += PARTS_SLICES) {
        sums[0] += __ldcg(s.sums + part * 2 * s.channels + k);
        sums[1] += __ldcg(s.sums + (part * 2 + 1) * s.channels + k);
    }
    shared[0][slice][col] = sums[0];
    shared[1][slice][col] = sums[1];
    __syncthreads();
    if (slice > 0 || k >= s.channels) return;
    for (int i = 1; i < PARTS_SLICES; i++) sums[0] += shared[0][i][col], sums[1] += shared[1][i][col];
    tell_channel(s, k, sums[0], sums[1]);
}

__global__ static void __launch_bounds__(PARTS_BLOCK) sum_kernel(const sum_work s) {
    if (blockIdx.x < s.weight_blocks) sum_parts(s.dw, s.parts, OUT * s.channels / 4, blockIdx.x, s.to_w);
    else sum_channels(s);
}

/* ---- launches ---- */

enum { MOST_SHARED = 144 << 10 };
static_assert(sizeof(back_memory) <= MOST_SHARED, "what backward needs");
static_assert(STAGES * 256 * DEPTH * 2 + 128 * 128 * 2 + MOST_IN / 2 * sizeof(float4) <= MOST_SHARED,
              "what forward needs");

static bool device_has_room(void) {
    int device = 0, bytes = 0;
    return cudaGetDevice(&device) == cudaSuccess &&
           cudaDeviceGetAttribute(&bytes, cudaDevAttrMaxSharedMemoryPerBlockOptin, device) == cudaSuccess &&
           bytes >= MOST_SHARED + (16 << 10);
}

/* Everything begins at a pack. */
static bool in_packs(const nn_array *a) {
    return a->type == NN_BF16 && nn_channels(a) % 8 == 0 && a->stride % 8 == 0 && a->offset % 8 == 0;
}

bool norm_product_fits(const nn_call *c, const nn_call *norm) {
    const nn_array *x = &norm->input[0];
    const int64_t *w = c->input[1].shape->dim;
    return c->training && w[0] == OUT && w[1] == 1 && c->attributes->padding == 0 && c->attributes->stride == 1 &&
           c->input[1].type == NN_BF16 && in_packs(x) && in_packs(&c->output[0]) && nn_channels(x) <= MOST_IN &&
           !norm->input[1].shape && norm->attributes->activation == NN_RELU && norm->moments.first &&
           norm->linear.first && device_has_room();
}

/* Tiles of forward: large ones, or as many as there are multiprocessors. */
enum forward_kind { LARGE, MIDDLE, SMALL };

static forward_kind kind_of(int64_t pixels) {
    return parts(pixels, 128) >= 120 ? LARGE : parts(pixels, 64) >= 120 ? MIDDLE : SMALL;
}
static int64_t rows_of(forward_kind kind) { return kind == LARGE ? 128 : kind == MIDDLE ? 64 : 32; }
static int64_t cols_of(forward_kind kind) { return kind == SMALL ? 64 : 128; }

static backward_work cut_backward(const nn_call *c) {
    backward_work b = {};
    b.pixels = nn_pixels(&c->output[0]);
    b.channels = nn_channels(&c->maker->input[0]);
    b.tiles = parts(b.pixels, TILE);
    b.columns = parts(b.channels, COLUMNS);
    b.parts = PROCESSORS / b.columns;
    if (b.parts > b.tiles) b.parts = b.tiles;
    if (b.parts < 1) b.parts = 1;
    return b;
}

/* Blocks one below the other, and pixels of each, whole tiles. */
static moments_work cut_forward(const nn_call *c) {
    const int64_t pixels = nn_pixels(&c->output[0]), rows = rows_of(kind_of(pixels));
    moments_work w = {};
    w.size = parts(parts(pixels, rows), 2 * PROCESSORS) * rows;
    w.tiles = parts(pixels, w.size);
    w.channels = OUT;
    return w;
}

size_t norm_product_workspace(const nn_call *c) {
    if (!c->output_grad[0]) return moments_floats(cut_forward(c).tiles, OUT);
    const backward_work b = cut_backward(c);
    return (size_t)(b.parts * b.channels * (OUT + 2));
}

size_t norm_product_counters(const nn_call *c) {
    return c->output_grad[0] ? 0
                             : moments_counters(cut_forward(c).tiles, OUT / cols_of(kind_of(nn_pixels(&c->output[0]))));
}

/* One limit for all nodes that have a kernel. */
static void launch(const nn_call *c, const void *kernel, dim3 blocks, unsigned threads, size_t shared, void *work) {
    void *arguments[] = {work};
    cudaError_t e = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, MOST_SHARED);
    if (e == cudaSuccess) e = cudaLaunchKernel(kernel, blocks, threads, arguments, shared, stream_of(c));
    if (e != cudaSuccess) nn_cuda_launch_failed("a convolution of what is normalised", cudaGetErrorString(e));
}

void norm_product_forward(const nn_call *c, unsigned *counters) {
    const nn_call *norm = c->maker;
    const nn_array *x = &norm->input[0], *y = &c->output[0];
    const forward_kind kind = kind_of(nn_pixels(y));
    forward_work f = {};
    f.x = (const bf16 *)x->data;
    f.w = (const bf16 *)c->input[1].data;
    f.y = (bf16 *)y->data;
    f.x_stride = x->stride;
    f.y_stride = y->stride;
    f.pixels = nn_pixels(y);
    f.channels = nn_channels(x);
    f.moments = norm->moments;
    f.gamma = (const float *)norm->input[2].data;
    f.beta = (const float *)norm->input[3].data;
    f.saved = norm->saved;
    f.mean = (float *)norm->output[1].data;
    f.variance = (float *)norm->output[2].data;
    f.eps = (float)norm->attributes->eps;
    f.momentum = (float)norm->attributes->momentum;
    f.live_rows = x->live_rows;
    f.pixels_a_row = x->cols / f.channels;
    f.found = cut_forward(c);
    f.found.partials = c->workspace;
    f.found.counters = counters;
    f.found.to = c->output_moments;
    if (f.pixels == 0) return;
    const dim3 blocks((unsigned)f.found.tiles, (unsigned)(OUT / cols_of(kind)));
    const size_t shared = (size_t)(STAGES * (rows_of(kind) + cols_of(kind)) * DEPTH * 2) +
                          (size_t)(rows_of(kind) * cols_of(kind) * 2) +
                          (size_t)(parts(f.channels, DEPTH) * DEPTH / 2) * sizeof(float4);
    const void *kernels[] = {(const void *)product_kernel<128, 128, 4, 2>, (const void *)product_kernel<64, 128, 2, 4>,
                             (const void *)product_kernel<32, 64, 2, 2>};
    launch(c, kernels[kind], blocks, kind == SMALL ? 128 : 256, shared, &f);
}

static void sum_all(const nn_call *c, const backward_work &b) {
    const nn_call *norm = c->maker;
    sum_work s = {};
    s.dw = b.dw;
    s.sums = b.sums;
    s.gamma = b.gamma;
    s.saved = b.saved;
    s.parts = b.parts;
    s.channels = b.channels;
    s.weight_blocks = parts(OUT * b.channels / 4, PARTS_COLS);
    s.to_w = target_of<float>(c, 1);
    s.to_gamma = {norm->input_grad[2], norm->accumulate[2] || c->accumulate_sums};
    s.to_beta = {norm->input_grad[3], norm->accumulate[3] || c->accumulate_sums};
    s.linear = norm->linear;
    s.linear_add = norm->accumulate[0];
    s.live_rows = norm->input[0].live_rows;
    s.pixels = b.pixels;
    s.pixels_a_row = norm->input[0].cols / b.channels;
    const unsigned blocks = (unsigned)(s.weight_blocks + parts(b.channels, PARTS_COLS));
    launch(c, (const void *)sum_kernel, blocks, PARTS_BLOCK, 0, &s);
}

void norm_product_backward(const nn_call *c) {
    const nn_call *norm = c->maker;
    backward_work b = cut_backward(c);
    b.x = (const bf16 *)norm->input[0].data;
    b.w = (const bf16 *)c->input[1].data;
    b.dy = (const bf16 *)c->output_grad[0];
    b.dx = target_of<bf16>(norm, 0);
    b.x_stride = norm->input[0].stride;
    b.dy_stride = c->output[0].stride;
    b.gamma = (const float *)norm->input[2].data;
    b.beta = (const float *)norm->input[3].data;
    b.saved = norm->saved;
    b.dw = c->workspace;
    b.sums = b.dw + b.parts * OUT * b.channels;
    if (b.pixels == 0) return;
    launch(c, (const void *)product_back_kernel, (unsigned)(b.columns * b.parts), BACK_BLOCK, sizeof(back_memory), &b);
    sum_all(c, b);
}
