/* Two sums over each tensor, of what formulas leave with SUMS_FLAG set: see ../../sums.c. */
#ifndef ADAMOD_CUDA_SUMS_CUH
#define ADAMOD_CUDA_SUMS_CUH

#include "optim/kernels/cuda/update_any.cuh"

/* Elements of arrays that all have the type of computation: nothing in between keeps loads from being under way together. */
template <class RULE>
static __device__ __forceinline__ element<typename RULE::R> load_plain(const device_tensor &t, const array_step &now,
                                                                       const typename RULE::K &k, int64_t i) {
    typedef typename RULE::R R;
    element<R> x = {};
    x.p = ((const R *)t.p)[i];
    x.g = shape_gradient(((const R *)t.g)[i], x.p, k, now.transform);
    if (RULE::states & STATE_M) x.m = ((const R *)t.state[0])[i];
    if (RULE::states & STATE_V) x.v = ((const R *)t.state[1])[i];
    if (RULE::states & STATE_S) x.s = ((const R *)t.state[2])[i];
    if (RULE::states & STATE_T) x.t = ((const R *)t.state[3])[i];
    if (RULE::states & STATE_U) x.u = ((const R *)t.state[4])[i];
    return x;
}

template <bool SQUARES, class R>
static __device__ __forceinline__ void add_element(double (&sum)[2], const element<R> &x) {
    sum[0] += SQUARES ? (double)x.eta * (double)x.eta : (double)x.eta;
    sum[1] += SQUARES ? (double)x.step * (double)x.step : (double)x.step;
}

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
    const int type = sizeof(R) == 8 ? ADAMOD_F64 : ADAMOD_F32;
    const bool plain = t.p_type == type && t.g_type == type && t.state_type == type;
    double sums[2] = {0, 0};
    int round = 0;
    for (int64_t at = first; at < last; at += warps * BLOCK, round++) {
        const int64_t block = at + warp * BLOCK;
        double sum[2] = {0, 0};
        if (plain && block + BLOCK <= last) {
#pragma unroll 8
            for (int r = 0; r < BLOCK; r += 32) {
                add_element<SQUARES>(sum, update_element<RULE>(load_plain<RULE>(t, now, k, block + r + lane), k));
            }
        } else {
            for (int r = lane; r < BLOCK && block + r < last; r += 32) {
                R before;
                const element<R> x = load_element<RULE, false>(t, now, k, block + r, &before);
                add_element<SQUARES>(sum, update_element<RULE>(x, k));
            }
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
