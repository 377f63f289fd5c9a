/* Sums over chunks, from sums of blocks of BLOCK elements that warps have stored, added in the library's order. */
#ifndef ADAMOD_CUDA_JOINS_CUH
#define ADAMOD_CUDA_JOINS_CUH

#include "kernels/cuda/device.cuh"

/* sum + x x. The square of an f32 is exact in f64, so a fused multiply-add gives the same bits. */
[[maybe_unused]] static __device__ __forceinline__ double add_square(double sum, float x) {
    return __fma_rn((double)x, (double)x, sum);
}
[[maybe_unused]] static __device__ __forceinline__ double add_square(double sum, double x) { return sum + x * x; }

enum { ORDERED = 256 }; /* numbers that a warp has in shared memory at a time */

/* f(0) + f(1) + ... + f(n - 1) in order, as a plain loop adds. Called by a warp; every lane has it. */
template <class F> static __device__ __forceinline__ double sum_in_order(int64_t n, double *numbers, F f) {
    enum { OWN = ORDERED / 32 };
    const int lane = (int)threadIdx.x % 32;
    double x[OWN], sum = 0;
    const auto ask = [&](int64_t from) {
#pragma unroll
        for (int i = 0; i < OWN; i++) x[i] = from + 32 * i + lane < n ? f(from + 32 * i + lane) : 0;
    };
    ask(0);
    for (int64_t from = 0; from < n; from += ORDERED) {
#pragma unroll
        for (int i = 0; i < OWN; i++) numbers[32 * i + lane] = x[i];
        __syncwarp();
        ask(from + ORDERED);
        if (n - from >= ORDERED) {
#pragma unroll 32
            for (int i = 0; i < ORDERED; i++) sum += numbers[i];
        } else {
            for (int i = 0; i < (int)(n - from); i++) sum += numbers[i];
        }
        __syncwarp();
    }
    return sum;
}

/* Index of a chunk's first sum of a block, in pairs. Chunks do not overlap, since each leaves room for one block more than
 * it needs. */
static __device__ __forceinline__ int64_t first_block(const view &v, int64_t tensor, int64_t first, int64_t chunk) {
    return (v.first_element[tensor] + first) / BLOCK + chunk;
}

/* The two sums of a chunk, elements first to last of a tensor. Called by a warp. */
static __device__ __forceinline__ void join_blocks(const view &v, int64_t tensor, int64_t chunk, int64_t first,
                                                   int64_t last, double *numbers) {
    const double *sums = v.block_sums + 2 * first_block(v, tensor, first, chunk);
    const int64_t blocks = (last - first + BLOCK - 1) / BLOCK;
    for (int j = 0; j < 2; j++) {
        const double sum = sum_in_order(blocks, numbers, [&](int64_t i) { return sums[2 * i + j]; });
        if (threadIdx.x % 32 == 0) v.partial[2 * chunk + j] = sum;
    }
}

/* The two sums of several chunks. Called by a warp; every lane has them. */
static __device__ __forceinline__ void join_chunks(const view &v, int64_t first, int64_t last, double *numbers,
                                                   double (&sum)[2]) {
    for (int j = 0; j < 2; j++) {
        sum[j] = sum_in_order(last - first, numbers, [&](int64_t i) { return v.partial[2 * (first + i) + j]; });
    }
}

#endif
