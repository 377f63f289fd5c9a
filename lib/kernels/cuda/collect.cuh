/* Updates with statistics, and steps of drivers that update tensors themselves. */
#ifndef ADAMOD_CUDA_COLLECT_CUH
#define ADAMOD_CUDA_COLLECT_CUH

#include "kernels/cuda/formulas.cuh"

/* Updates the parameter of element i by a rule without states, for which x.g is g. *before: what it was. */
template <class RULE>
static __device__ __forceinline__ element<typename RULE::R> step_param(const device_tensor &t, const array_step &now,
                                                                       int64_t i, typename RULE::R g,
                                                                       typename RULE::R *before) {
    typedef typename RULE::R R;
    element<R> x = {};
    x.p = *before = load_param<R>(t, i);
    x.g = g;
    x = update_element<RULE>(x, real<R>::of(now));
    const int64_t block = i / BLOCK * BLOCK;
    store_param<R>(t, block, (uint32_t)(i - block), x.p, now.key);
    return x;
}

/* An element after its update, with its learning rate before and after the bound; the parameter before; the gradient; whether
 * it never had a gradient. */
template <class R> struct collected {
    element<R> x;
    R before, g;
    bool still;
};

/* A block of threads takes elements first to last, a warp BLOCK of them at a time, so that sums come in the library's order.
 * update(block, at) updates element at of a block; all lanes call after(block, r) when the 32 elements from r on are updated.
 * sums: of squares of gradients and of changes. */
template <class R, class UPDATE, class AFTER>
static __device__ __forceinline__ void collect_elements(const view &v, int group, int64_t first, int64_t last,
                                                        shared_counts *counts, rounds<2> *shared, double *sums,
                                                        UPDATE update, AFTER after) {
    const int warps = (int)blockDim.x / 32, warp = (int)threadIdx.x / 32, lane = (int)threadIdx.x % 32;
    double grads = 0, updates = 0;
    int round = 0;
    extremes seen;
    counts->clear();
    __syncthreads();
    for (int64_t at = first; at < last; at += warps * BLOCK, round++) {
        const int64_t block = at + warp * BLOCK;
        double sum[2] = {0, 0};
        for (int r = 0; r < BLOCK && block + r < last; r += 32) {
            const int lanes = last - block - r < 32 ? (int)(last - block - r) : 32;
            double distance = 0;
            if (lane < lanes) {
                const collected<R> y = update(block, (uint32_t)(r + lane));
                sum[0] += (double)y.g * (double)y.g;
                distance = (double)y.x.p - (double)y.before;
                counts->add(v, &seen, (double)y.x.eta, (double)y.x.step, y.still);
                counts->look(y.x.p, y.x.m, y.x.v, y.x.s, y.x.t, y.x.u);
            }
            sum[1] = add_in_order(sum[1], distance * distance, lanes);
            after(block, r);
        }
        sum[0] = sum_lanes(sum[0]);
        shared->gather(round, sum, active_warps(at, last), [&](int j, double y) {
            if (j == 0) grads += y;
            else updates += y;
        });
    }
    counts->flush(seen, &v.counts[group]);
    if (threadIdx.x != 0) return;
    sums[0] = grads;
    sums[1] = updates;
}

template <class R, class UPDATE>
static __device__ void collect_elements(const view &v, int group, int64_t first, int64_t last, shared_counts *counts,
                                        rounds<2> *shared, double *sums, UPDATE update) {
    collect_elements<R>(v, group, first, last, counts, shared, sums, update, [](int64_t, int) {});
}

#endif
