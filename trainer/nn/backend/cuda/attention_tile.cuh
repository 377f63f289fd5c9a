/* Tiles of attention: TILE rows of one head's queries, keys, values or gradients in shared memory, and their products.
 *
 * A block has 4 warps, and a result of TILE rows is cut in four: warp w has rows 16 (w / 2) .. + 15 and the half w % 2
 * of the columns. Within a warp numbers lie as in the accumulators of mma.m16n8k16: for 8 columns from column 8 j on,
 * lane 4 g + t has acc[j] = {(g, 2 t), (g, 2 t + 1), (g + 8, 2 t), (g + 8, 2 t + 1)}. Products of bf16 are the tensor
 * cores', those of f32 are plain fused multiply-adds; what is around them is the same. */
#ifndef ADAMOD_NN_CUDA_ATTENTION_TILE_H
#define ADAMOD_NN_CUDA_ATTENTION_TILE_H

#include "nn/backend/cuda/matrix.cuh"

enum { TILE = 32, THREADS = 128 };

/* ---- places ---- */

__device__ static inline int lane() { return threadIdx.x % 32; }
__device__ static inline int warp() { return threadIdx.x / 32; }

/* The warp's first row; and its first column of `cols`. */
__device__ static inline int warp_row() { return warp() / 2 * 16; }
template <int cols> __device__ static inline int warp_col() { return warp() % 2 * (cols / 2); }

/* Row and column of acc[j][2 * half], in the tile. */
__device__ static inline int row_at(int half) { return warp_row() + lane() / 4 + 8 * half; }
template <int cols> __device__ static inline int col_at(int j) { return warp_col<cols>() + 8 * j + lane() % 4 * 2; }

/* Sums and maxima over the four lanes that share a row. */
__device__ static inline float quad_sum(float x) {
    x += __shfl_xor_sync(0xffffffffu, x, 1);
    return x + __shfl_xor_sync(0xffffffffu, x, 2);
}

__device__ static inline float quad_max(float x) {
    x = fmaxf(x, __shfl_xor_sync(0xffffffffu, x, 1));
    return fmaxf(x, __shfl_xor_sync(0xffffffffu, x, 2));
}

/* ---- tiles ---- */

/* Rows are padded by 16 bytes, so that 8 rows of 16 bytes lie in different banks. */
template <typename T, int cols> struct tile { alignas(16) T x[TILE][cols + 16 / sizeof(T)]; };

/* The source or target of a tile: n rows of `cols` numbers. wide: everything is a multiple of 16 bytes. */
template <typename T> struct rows {
    T *x;
    int64_t stride;
    int n, cols;
    bool wide;
};

/* The pack at a row and a column; zeros where there is nothing. */
template <typename T> __device__ static inline pack<T> pack_at(const rows<const T> &from, int row, int col) {
    pack<T> r = {};
    const T *x = from.x + row * from.stride + col;
    if (row >= from.n || col >= from.cols) return r;
    if (from.wide) return load_pack(x);
    for (int e = 0; e < pack<T>::N; e++) r.x[e] = col + e < from.cols ? x[e] : narrow<T>(0);
    return r;
}

/* Calls f(row, column) for the packs of a tile that are this thread's. */
template <typename T, int D, typename F> __device__ static inline void each_pack(F f) {
    constexpr int N = pack<T>::N, PACKS = D / N;
#pragma unroll
    for (int i = 0; i < TILE * PACKS / THREADS; i++) {
        const int at = i * THREADS + (int)threadIdx.x;
        f(at / PACKS, at % PACKS * N);
    }
}

/* Fills with zeros beyond the last row and column. Done after copies_wait. */
template <typename T, int D> __device__ static inline void load_tile(tile<T, D> &to, const rows<const T> &from) {
    if (from.wide) {
        each_pack<T, D>([&](int row, int col) {
            const bool there = row < from.n && col < from.cols;
            copy_async(&to.x[row][col], there ? from.x + row * from.stride + col : from.x, there);
        });
        return;
    }
#pragma unroll 1
    for (int at = (int)threadIdx.x; at < TILE * D; at += THREADS) {
        const int row = at / D, col = at % D;
        to.x[row][col] = row < from.n && col < from.cols ? from.x[row * from.stride + col] : narrow<T>(0);
    }
}

template <typename T, int D> __device__ static inline void store_tile(const tile<T, D> &from, const rows<T> &to) {
    if (to.wide) {
        each_pack<T, D>([&](int row, int col) {
            if (row >= to.n || col >= to.cols) return;
            store_pack(to.x + row * to.stride + col, load_pack(&from.x[row][col]));
        });
        return;
    }
#pragma unroll 1
    for (int at = (int)threadIdx.x; at < to.n * D; at += THREADS) {
        const int row = at / D, col = at % D;
        if (col < to.cols) to.x[row * to.stride + col] = from.x[row][col];
    }
}

__device__ static inline void store_pair(float *to, float a, float b) {
    *reinterpret_cast<float2 *>(to) = make_float2(a, b);
}

__device__ static inline void store_pair(bf16 *to, float a, float b) {
    *reinterpret_cast<__nv_bfloat162 *>(to) = __floats2bfloat162_rn(a, b);
}

/* Adds the target's numbers. */
template <typename T, int D> __device__ static inline void add_rows(float (&acc)[D / 16][4], const rows<T> &there) {
#pragma unroll
    for (int i = 0; i < D / 4; i++) {
        const int row = row_at(i / 2 % 2), col = col_at<D>(i / 4) + i % 2;
        if (row < there.n && col < there.cols) acc[i / 4][i % 4] += widen(there.x[row * there.stride + col]);
    }
}

/* A result into a tile. */
template <typename T, int D> __device__ static inline void stage(tile<T, D> &to, const float (&acc)[D / 16][4]) {
#pragma unroll
    for (int j = 0; j < D / 16; j++) {
        store_pair(&to.x[row_at(0)][col_at<D>(j)], acc[j][0], acc[j][1]);
        store_pair(&to.x[row_at(1)][col_at<D>(j)], acc[j][2], acc[j][3]);
    }
}

/* ---- sums ---- */

/* Adds the sums over a tile's rows to `to`, by column; each column is always the same thread's. They are a product with a
 * matrix of ones, so that every row of the result has the sums: a warp has D / 4 columns, its first four lanes write. */
template <int D> __device__ static inline void add_column_sums(float (&to)[D], const tile<bf16, D> &from) {
    const uint32_t ones[4] = {0x3f803f80, 0x3f803f80, 0x3f803f80, 0x3f803f80};
    const int l = lane(), first = warp() * (D / 4);
#pragma unroll
    for (int j = 0; j < D / 4; j += 8) {
        uint32_t m[4];
        float sum[4] = {};
        load_matrices_transposed(m, &from.x[l][first + j]);
        multiply_add(sum, ones, m[0], m[1]);
        multiply_add(sum, ones, m[2], m[3]);
        if (l >= 4) continue;
        to[first + j + 2 * l] += sum[0];
        to[first + j + 2 * l + 1] += sum[1];
    }
}

template <int D> __device__ static inline void add_column_sums(float (&to)[D], const tile<float, D> &from) {
    static_assert(D <= THREADS, "a thread for each column");
    const int col = (int)threadIdx.x;
    float sum = 0;
    if (col >= D) return;
#pragma unroll 8
    for (int row = 0; row < TILE; row++) sum += from.x[row][col];
    to[col] += sum;
}

/* ---- products ---- */

/* acc += a b^T, TILE x TILE. */
template <int D>
__device__ static inline void add_scores(float (&acc)[2][4], const tile<bf16, D> &a, const tile<bf16, D> &b) {
    const int l = lane(), m = warp_row(), n = warp_col<TILE>();
#pragma unroll
    for (int k = 0; k < D; k += 16) {
        uint32_t x[4], y[4];
        load_matrices(x, &a.x[m + l % 16][k + l / 16 * 8]);
        load_matrices(y, &b.x[n + l / 16 * 8 + l % 8][k + l / 8 % 2 * 8]);
        multiply_add(acc[0], x, y[0], y[1]);
        multiply_add(acc[1], x, y[2], y[3]);
    }
}

__device__ static inline float add_dot(float sum, float4 a, float4 b) {
    return fmaf(a.w, b.w, fmaf(a.z, b.z, fmaf(a.y, b.y, fmaf(a.x, b.x, sum))));
}

template <int D>
__device__ static inline void add_scores(float (&acc)[2][4], const tile<float, D> &a, const tile<float, D> &b) {
#pragma unroll 4
    for (int k = 0; k < D; k += 4) {
        const float4 x0 = *reinterpret_cast<const float4 *>(&a.x[row_at(0)][k]);
        const float4 x1 = *reinterpret_cast<const float4 *>(&a.x[row_at(1)][k]);
#pragma unroll
        for (int j = 0; j < 2; j++) {
            const float4 y0 = *reinterpret_cast<const float4 *>(&b.x[col_at<TILE>(j)][k]);
            const float4 y1 = *reinterpret_cast<const float4 *>(&b.x[col_at<TILE>(j) + 1][k]);
            acc[j][0] = add_dot(acc[j][0], x0, y0);
            acc[j][1] = add_dot(acc[j][1], x0, y1);
            acc[j][2] = add_dot(acc[j][2], x1, y0);
            acc[j][3] = add_dot(acc[j][3], x1, y1);
        }
    }
}

/* acc += a b, or a^T b, where a is TILE x TILE and b is TILE x D. */
template <bool transposed, int D>
__device__ static inline void add_product(float (&acc)[D / 16][4], const tile<bf16, TILE> &a, const tile<bf16, D> &b) {
    const int l = lane(), m = warp_row(), n = warp_col<D>();
#pragma unroll
    for (int k = 0; k < TILE; k += 16) {
        uint32_t x[4], y[4];
        if (transposed) load_matrices_transposed(x, &a.x[k + l / 16 * 8 + l % 8][m + l / 8 % 2 * 8]);
        else load_matrices(x, &a.x[m + l % 16][k + l / 16 * 8]);
#pragma unroll
        for (int j = 0; j < D / 16; j += 2) {
            load_matrices_transposed(y, &b.x[k + l % 16][n + 8 * j + l / 16 * 8]);
            multiply_add(acc[j], x, y[0], y[1]);
            multiply_add(acc[j + 1], x, y[2], y[3]);
        }
    }
}

template <bool transposed, int D>
__device__ static inline void add_product(float (&acc)[D / 16][4], const tile<float, TILE> &a,
                                          const tile<float, D> &b) {
#pragma unroll 4
    for (int k = 0; k < TILE; k++) {
        const float x0 = transposed ? a.x[k][row_at(0)] : a.x[row_at(0)][k];
        const float x1 = transposed ? a.x[k][row_at(1)] : a.x[row_at(1)][k];
#pragma unroll
        for (int j = 0; j < D / 16; j++) {
            const float2 y = *reinterpret_cast<const float2 *>(&b.x[k][col_at<D>(j)]);
            acc[j][0] = fmaf(x0, y.x, acc[j][0]);
            acc[j][1] = fmaf(x0, y.y, acc[j][1]);
            acc[j][2] = fmaf(x1, y.x, acc[j][2]);
            acc[j][3] = fmaf(x1, y.y, acc[j][3]);
        }
    }
}

#endif
