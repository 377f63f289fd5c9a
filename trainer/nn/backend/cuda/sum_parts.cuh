/* Sums over the parts in which a kernel has left its results, four numbers a thread, in an order that follows from their
 * count alone. */
#ifndef ADAMOD_NN_CUDA_SUM_PARTS_H
#define ADAMOD_NN_CUDA_SUM_PARTS_H

#include "nn/backend/cuda/cuda.h"

enum { PARTS_COLS = 32, PARTS_SLICES = 8, PARTS_BLOCK = PARTS_COLS * PARTS_SLICES };

__device__ static inline void add_to(float &a, float b) { a += b; }
__device__ static inline void add_to(float4 &a, const float4 &b) { a.x += b.x, a.y += b.y, a.z += b.z, a.w += b.w; }

/* Number first, first + STEP ... of n that are `apart` of each other, in this order; AHEAD loads are under way at once. */
template <int STEP, int AHEAD, typename T>
__device__ static inline void sum_apart(const T *from, int64_t apart, int64_t first, int64_t n, T &sum) {
    for (int64_t i = first; i < n; i += STEP * AHEAD) {
        T x[AHEAD];
#pragma unroll
        for (int k = 0; k < AHEAD; k++) { /* without a branch: that would wait for the load before it */
            const int64_t at = i + k * STEP;
            x[k] = __ldcg(from + (at < n ? at : first) * apart);
        }
#pragma unroll
        for (int k = 0; k < AHEAD; k++) {
            if (i + k * STEP < n) add_to(sum, x[k]);
        }
    }
}

/* Block `block` of parts(fours, PARTS_COLS), for parts of `fours` groups of four. */
__device__ static inline void sum_parts(const float *from, int64_t parts, int64_t fours, int64_t block,
                                        const target<float> &to) {
    __shared__ float4 shared[PARTS_SLICES][PARTS_COLS];
    const int col = (int)threadIdx.x % PARTS_COLS, slice = (int)threadIdx.x / PARTS_COLS;
    const int64_t at = block * PARTS_COLS + col;
    const float4 *p = reinterpret_cast<const float4 *>(from) + at;
    float4 sum = make_float4(0, 0, 0, 0);
    if (at < fours) sum_apart<PARTS_SLICES, 8>(p, fours, slice, parts, sum);
    shared[slice][col] = sum;
    __syncthreads();
    if (slice > 0 || at >= fours) return;
    for (int k = 1; k < PARTS_SLICES; k++) add_to(sum, shared[k][col]);
    const float x[4] = {sum.x, sum.y, sum.z, sum.w};
    put<4>(to, at * 4, x);
}

#endif
