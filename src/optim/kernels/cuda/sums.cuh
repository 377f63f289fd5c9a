/* Two sums over each tensor, of what formulas leave with SUMS_FLAG set: see ../../sums.c. */
#ifndef ADAMOD_CUDA_SUMS_CUH
#define ADAMOD_CUDA_SUMS_CUH

#include "optim/kernels/cuda/update_any.cuh"

/* A block of threads takes a chunk, a warp BLOCK elements of it at a time, so that sums come in the library's order. */
template <class RULE, bool SQUARES>
static __global__ void __launch_bounds__(UPDATE_THREADS)
    sums_kernel(const __grid_constant__ view v, int variant, int f64) {
    typedef typename RULE::R R;
    __shared__ rounds<2> shared;
    const piece c = v.chunks[blockIdx.x];
    const device_tensor &t = v.tensors[c.tensor];
    if (v.shared->skip || t.variant != variant || (t.p_type == ADAMOD_F64) != (f64 != 0) || !t.g) return;
    const array_step &now = v.now[c.tensor];
    typename RULE::K k = real<R>::of(now);
    k.flag |= SUMS_FLAG;
    const int64_t first = c.index * v.chunk, last = first + v.chunk < t.count ? first + v.chunk : t.count;
    const int warps = UPDATE_THREADS / 32, warp = (int)threadIdx.x / 32, lane = (int)threadIdx.x % 32;
    double sums[2] = {0, 0};
    int round = 0;
    for (int64_t at = first; at < last; at += warps * BLOCK, round++) {
        const int64_t block = at + warp * BLOCK;
        double sum[2] = {0, 0};
        for (int r = lane; r < BLOCK && block + r < last; r += 32) {
            R before;
            const element<R> x = update_element<RULE>(load_element<RULE, false>(t, now, k, block + r, &before), k);
            sum[0] += SQUARES ? (double)x.eta * (double)x.eta : (double)x.eta;
            sum[1] += SQUARES ? (double)x.step * (double)x.step : (double)x.step;
        }
        sum[0] = sum_lanes(sum[0]);
        sum[1] = sum_lanes(sum[1]);
        shared.gather(round, sum, active_warps(at, last), [&](int j, double y) { sums[j] += y; });
    }
    if (threadIdx.x != 0) return;
    v.partial[2 * blockIdx.x] = sums[0];
    v.partial[2 * blockIdx.x + 1] = sums[1];
}

/* The two sums of a tensor. */
static __device__ __forceinline__ void tensor_sums(const view &v, int64_t i, double (&sum)[2]) {
    sum[0] = sum[1] = 0;
    for (int64_t chunk = v.first_chunk[i]; chunk < v.first_chunk[i + 1]; chunk++) {
        sum[0] += v.partial[2 * chunk];
        sum[1] += v.partial[2 * chunk + 1];
    }
}

template <bool SQUARES, class... RULES>
static void run_sums(const view *v, cudaStream_t stream, int f64, rule_variants<RULES...>) {
    int variant = 0;
    (sums_kernel<RULES, SQUARES><<<(unsigned)v->n_chunks, UPDATE_THREADS, 0, stream>>>(*v, variant++, f64), ...);
}

#endif
