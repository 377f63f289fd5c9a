/* Updates of one element at a time, whatever the types: the remainder of other paths, and types without one. */
#ifndef ADAMOD_CUDA_UPDATE_ANY_CUH
#define ADAMOD_CUDA_UPDATE_ANY_CUH

#include "kernels/cuda/formulas.cuh"

template <class RULE, bool Q8>
static __device__ __forceinline__ element<typename RULE::R> load_element(const device_tensor &t, const array_step &now,
                                                                         const typename RULE::K &k, int64_t i,
                                                                         typename RULE::R *before) {
    typedef typename RULE::R R;
    element<R> x = {};
    x.p = load_param<R>(t, i);
    *before = x.p;
    x.g = shape_gradient(load_as<R>(t.g, t.g_type, i), x.p, k, now.transform);
    if (RULE::states & STATE_M) x.m = load_state<R, Q8>(t, 0, 0, i);
    if (RULE::states & STATE_V) x.v = load_state<R, Q8>(t, 1, 0, i);
    if (RULE::states & STATE_S) x.s = load_state<R, Q8>(t, 2, now.turn, i);
    if (RULE::states & STATE_T) x.t = load_state<R, Q8>(t, 3, 0, i);
    if (RULE::states & STATE_U) x.u = load_state<R, Q8>(t, 4, 0, i);
    return x;
}

/* States in 8 bits are stored by blocks: states_q8. */
template <class RULE, bool Q8>
static __device__ __forceinline__ void store_element(const device_tensor &t, const array_step &now, int64_t block,
                                                     uint32_t at, const element<typename RULE::R> &x) {
    typedef typename RULE::R R;
    store_param<R>(t, block, at, x.p, now.key);
    if (Q8) return;
    if (RULE::states & STATE_M) store_state<R>(t, 0, 0, block, at, x.m, now.key);
    if (RULE::states & STATE_V) store_state<R>(t, 1, 0, block, at, x.v, now.key);
    if (RULE::states & STATE_S) store_state<R>(t, 2, now.turn, block, at, x.s, now.key);
    if (RULE::states & STATE_T) store_state<R>(t, 3, 0, block, at, x.t, now.key);
    if (RULE::states & STATE_U) store_state<R>(t, 4, 0, block, at, x.u, now.key);
}

/* New states of a warp's block in 8 bits, until all are known. */
template <class RULE> struct states_q8 {
    enum { EACH = Q8_BLOCK / 32 };
    float m[EACH], v[EACH], s[EACH], t[EACH], u[EACH];

    __device__ __forceinline__ void keep(int r, const element<typename RULE::R> &x) {
        m[r] = (float)x.m;
        v[r] = (float)x.v;
        s[r] = (float)x.s;
        t[r] = (float)x.t;
        u[r] = (float)x.u;
    }

    /* Called by all lanes. */
    __device__ __forceinline__ void store(const device_tensor &to, const array_step &now, int64_t first,
                                          int64_t last) const {
        if (RULE::states & STATE_M) store_state_q8(to, 0, first, last, m, now);
        if (RULE::states & STATE_V) store_state_q8(to, 1, first, last, v, now);
        if (RULE::states & STATE_S) store_state_q8(to, 2, first, last, s, now);
        if (RULE::states & STATE_T) store_state_q8(to, 3, first, last, t, now);
        if (RULE::states & STATE_U) store_state_q8(to, 4, first, last, u, now);
    }
};

/* Updates a block of states in 8 bits from element begin on, by a warp. */
template <class RULE>
static __device__ __noinline__ void update_any_q8(const view &v, uint32_t tensor, int64_t begin, int64_t last) {
    typedef typename RULE::R R;
    const device_tensor &t = v.tensors[tensor];
    const array_step &now = v.now[tensor];
    const typename RULE::K k = real<R>::of(now);
    const int lane = (int)threadIdx.x % 32;
    const int64_t block = begin / BLOCK * BLOCK;
    states_q8<RULE> next = {};
#pragma unroll
    for (int r = 0; r < states_q8<RULE>::EACH; r++) {
        const int64_t i = begin + 32 * r + lane;
        if (i >= last) continue;
        R before;
        const element<R> x = update_element<RULE>(load_element<RULE, true>(t, now, k, i, &before), k);
        store_element<RULE, true>(t, now, block, (uint32_t)(i - block), x);
        next.keep(r, x);
    }
    next.store(t, now, begin, last);
}

/* Updates elements i, i + step, ... before last. */
template <class RULE>
static __device__ __noinline__ void update_any(const view &v, uint32_t tensor, int64_t i, int64_t last, int step) {
    typedef typename RULE::R R;
    const device_tensor &t = v.tensors[tensor];
    const array_step &now = v.now[tensor];
    const typename RULE::K k = real<R>::of(now);
    for (; i < last; i += step) {
        R before;
        const int64_t block = i / BLOCK * BLOCK;
        const element<R> x = update_element<RULE>(load_element<RULE, false>(t, now, k, i, &before), k);
        store_element<RULE, false>(t, now, block, (uint32_t)(i - block), x);
    }
}

#endif
