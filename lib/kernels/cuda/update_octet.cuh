/* Updates of eight elements without a branch, for update_bf16.cuh and update_q8.cuh. */
#ifndef ADAMOD_CUDA_UPDATE_OCTET_CUH
#define ADAMOD_CUDA_UPDATE_OCTET_CUH

#include "kernels/cuda/formulas.cuh"

/* With small states, instructions are the limit, above all integer ones, which a GPU does at half the rate. So elements
 * are updated without branches: if one would need a branch, nothing is stored, and the block is updated element by
 * element. */
template <class RULE> struct octet {
    enum { STATES = 3 };
    float p[8], g[8], state[STATES][8];

    static __device__ __forceinline__ bool has(int i) { return RULE::states >> i & 1; }

    /* Rarely needed values are read from `now` each time, to save registers. False if a number is not finite, or out of
     * range for quick arithmetic. */
    __device__ __forceinline__ bool update(const adamod__coef_f32 &k, const array_step &now) {
#pragma unroll
        for (int e = 0; e < 8; e++) g[e] = g[e] * k.gscale;
        if (now.transform) {
#pragma unroll
            for (int e = 0; e < 8; e++) g[e] = clip_and_decay(g[e], p[e], now.narrow);
        }
        const float decay = now.narrow.decay;
        if (decay != 0) {
#pragma unroll
            for (int e = 0; e < 8; e++) p[e] = p[e] - decay * p[e];
        }
        uint32_t least = ~0u;
#pragma unroll
        for (int e = 0; e < 8; e++) {
            element<quick> x = {};
            x.p.x = p[e];
            x.g.x = g[e];
            if (has(0)) x.m.x = state[0][e];
            if (has(1)) x.v.x = state[1][e];
            if (has(2)) x.s.x = state[2][e];
            x = quick_of<RULE>::run(x, &k);
            p[e] = x.p.x;
            state[0][e] = x.m.x;
            state[1][e] = x.v.x;
            state[2][e] = x.s.x;
            least = min(least, __float_as_uint(x.v.x) - 1);
        }
        return !has(1) || quick_squares(least);
    }

    /* The largest magnitude, as bits. State 0 has a sign: the largest positive as signed integers, the largest negative as
     * unsigned ones. */
    static __device__ __forceinline__ uint32_t largest(const float (&x)[8], bool has_sign) {
        uint32_t most = 0;
        int32_t positive = 0;
#pragma unroll
        for (int e = 0; e < 8; e++) {
            most = max(most, __float_as_uint(x[e]));
            if (has_sign) positive = max(positive, __float_as_int(x[e]));
        }
        return has_sign ? max(most & 0x7fffffffu, (uint32_t)positive) : most;
    }
};

#endif
