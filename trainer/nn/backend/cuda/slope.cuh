/* A gradient times the slope of a function of single numbers, and the sums of its rows on the way.
 *
 * A slope is a struct:
 *   writes             whether there is one: else the gradient stays as it is, and is only summed
 *   load<N>(i, there)  N numbers from number i on that the slope follows from, as load_raw gives them
 *   times(raw, i, g)   multiplies g by the slope at those numbers */
#ifndef ADAMOD_NN_CUDA_SLOPE_H
#define ADAMOD_NN_CUDA_SLOPE_H

#include "nn/backend/cuda/cuda.h"

enum { SLOPE_ROWS = 32, SLOPE_LANES = 8 }; /* of a block: rows, and threads side by side */

/* dz may be dy. A block has SLOPE_ROWS rows of 32 N columns, N a pack or, where columns are no whole packs, one, and leaves
 * their sums in its row of sums, unless that is NULL. */
template <typename T, int N, class S>
__global__ static void __launch_bounds__(32 * SLOPE_LANES, 4)
    slope_kernel(int64_t rows, int64_t cols, unsigned across, S slope, const T *dy, T *dz, float *sums) {
    constexpr int ROWS = SLOPE_ROWS / SLOPE_LANES; /* of a thread */
    __shared__ __align__(16) float shared[SLOPE_LANES][32 * N];
    const int64_t part = blockIdx.x / across, column = (int64_t)(blockIdx.x % across) * 32 * N;
    const int64_t j = column + threadIdx.x * N, first = part * SLOPE_ROWS + threadIdx.y;
    uint4 g[ROWS], a[ROWS] = {};
#pragma unroll
    for (int i = 0; i < ROWS; i++) { /* all loads before the first store */
        const int64_t row = first + i * SLOPE_LANES, at = row * cols + j;
        const bool there = row < rows && j < cols;
        g[i] = load_raw<N>(dy + at, there);
        a[i] = slope.template load<N>(at, there);
    }
    float sum[N] = {};
#pragma unroll
    for (int i = 0; i < ROWS; i++) {
        const int64_t row = first + i * SLOPE_LANES, at = row * cols + j;
        float x[N];
        if (row >= rows || j >= cols) continue;
        widen_raw<T>(g[i], x);
        slope.times(a[i], at, x);
        if (S::writes) store_floats<N>(dz + at, x);
        for (int k = 0; k < N; k++) sum[k] += x[k];
    }
    if (!sums) return;
    store_floats<N>(&shared[threadIdx.y][threadIdx.x * N], sum);
    __syncthreads();
    for (int k = (int)(threadIdx.y * 32 + threadIdx.x); k < 32 * N && column + k < cols; k += 32 * SLOPE_LANES) {
        float all = 0;
        for (int lane = 0; lane < SLOPE_LANES; lane++) all += shared[lane][k];
        sums[part * cols + column + k] = all;
    }
}

/* Floats of the sums, and their rows. */
static inline int64_t slope_parts(int64_t rows) { return parts(rows, SLOPE_ROWS); }
static inline size_t slope_floats(int64_t rows, int64_t cols) { return (size_t)(slope_parts(rows) * cols); }

template <typename T, int N, class S>
static void launch_slope_by(cudaStream_t stream, int64_t rows, int64_t cols, S slope, const T *dy, T *dz, float *sums) {
    const int64_t across = parts(cols, 32 * N);
    const unsigned blocks = (unsigned)(across * slope_parts(rows));
    if (blocks == 0) return;
    slope_kernel<T, N, S>
        <<<blocks, dim3(32, SLOPE_LANES), 0, stream>>>(rows, cols, (unsigned)across, slope, dy, dz, sums);
}

template <typename T, class S>
static void launch_slope(cudaStream_t stream, int64_t rows, int64_t cols, S slope, const T *dy, T *dz, float *sums) {
    if (cols % pack<T>::N == 0) launch_slope_by<T, pack<T>::N, S>(stream, rows, cols, slope, dy, dz, sums);
    else launch_slope_by<T, 1, S>(stream, rows, cols, slope, dy, dz, sums);
}

#endif
