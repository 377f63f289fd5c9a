/* Updates where parameter, gradient and states are all bf16. */
#ifndef ADAMOD_CUDA_UPDATE_BF16_CUH
#define ADAMOD_CUDA_UPDATE_BF16_CUH

#include "kernels/cuda/update_octet.cuh"

/* Addresses of a lane's elements of a block. */
struct place {
    char *p, *state[3];
    const char *g;

    __device__ __forceinline__ place(const device_tensor &t, int64_t at) {
        const int64_t first = 2 * (at + 8 * (threadIdx.x % 32));
        p = (char *)t.p + first;
        g = (const char *)t.g + first;
        for (int i = 0; i < 3; i++) state[i] = (char *)t.state[i] + first;
    }
    /* Prefetches them to the L2 cache. */
    __device__ __forceinline__ void prefetch(int states) const {
        prefetch_one(p);
        prefetch_one(g);
        for (int i = 0; i < 3; i++) {
            if (states >> i & 1) prefetch_one(state[i]);
        }
    }
    static __device__ __forceinline__ void prefetch_one(const void *p) {
        asm volatile("prefetch.global.L2 [%0];" ::"l"(p));
    }
};

/* Q8_BLOCK elements, eight adjacent ones for a lane. */
template <class RULE> struct block_bf16 {
    enum { STATES = octet<RULE>::STATES };
    uint4 p, g, state[STATES];

    static __device__ __forceinline__ bool has(int i) { return octet<RULE>::has(i); }

    __device__ __forceinline__ void load(const place &from) {
        p = __ldcs((const uint4 *)from.p);
        g = __ldcs((const uint4 *)from.g);
#pragma unroll
        for (int i = 0; i < STATES; i++) {
            if (has(i)) state[i] = __ldcs((const uint4 *)from.state[i]);
        }
    }

    __device__ __forceinline__ void store(const place &to) const {
        __stcs((uint4 *)to.p, p);
#pragma unroll
        for (int i = 0; i < STATES; i++) {
            if (has(i)) __stcs((uint4 *)to.state[i], state[i]);
        }
    }

    static __device__ __forceinline__ void unpack(float (&to)[8], uint4 x) {
        const uint32_t word[4] = {x.x, x.y, x.z, x.w};
#pragma unroll
        for (int e = 0; e < 8; e++) to[e] = __uint_as_float(e % 2 ? word[e / 2] & 0xffff0000u : word[e / 2] << 16);
    }

    /* Numbers must be finite. */
    static __device__ __forceinline__ uint4 pack(const float (&x)[8], const uint32_t (&hash)[2], int slot) {
        uint32_t word[4];
#pragma unroll
        for (int w = 0; w < 4; w++) {
            uint32_t half[2];
#pragma unroll
            for (int h = 0; h < 2; h++) {
                const int e = 2 * w + h;
                half[h] = __float_as_uint(x[e]) + (hash[e / 4] * ADAMOD__RANDOM_FACTOR(e % 4, slot) >> 16);
            }
            word[w] = __byte_perm(half[0], half[1], 0x7632);
        }
        return make_uint4(word[0], word[1], word[2], word[3]);
    }

    /* False if the block is out of range, and must be updated one by one. */
    __device__ __forceinline__ bool update(const adamod__coef_f32 &k, const array_step &now, uint32_t key) {
        const uint32_t first = 8 * (threadIdx.x % 32);
        octet<RULE> x;
        unpack(x.p, p);
        unpack(x.g, g);
#pragma unroll
        for (int i = 0; i < STATES; i++) {
            if (has(i)) unpack(x.state[i], state[i]);
        }
        const bool good = x.update(k, now);
        uint32_t most = octet<RULE>::largest(x.p, true);
        const uint32_t hash[2] = {adamod__random_hash(first, key), adamod__random_hash(first + 4, key)};
        p = pack(x.p, hash, 0);
#pragma unroll
        for (int i = 0; i < STATES; i++) {
            if (!has(i)) continue;
            most = max(most, octet<RULE>::largest(x.state[i], i == 0));
            state[i] = pack(x.state[i], hash, 1 + i);
        }
        return __all_sync(0xffffffffu, good && most < (127u + 60) << 23); /* 2^60 */
    }
};

/* Updates a warp's blocks in a tile, from element at up to last. Returns a bit for each block that must be updated one by
 * one. */
template <class RULE, class CUT>
static __device__ __forceinline__ uint32_t update_bf16(const view &v, uint32_t tensor, int64_t at, int64_t last) {
    const device_tensor &t = v.tensors[tensor];
    const int n = t.path == PATH_BF16 && last > at ? (int)((last - at - 1) / CUT::step) + 1 : 0;
    if (n > 0) place(t, at).prefetch(RULE::states);
    wait_for_prepare();
    if (v.shared->skip) return 0;
    const array_step &now = v.now[tensor];
    const adamod__coef_f32 k = now.narrow;
    if ((RULE::states & STATE_V) && !quick_coefs(k)) return ~0u;
    uint32_t key = adamod__block_key(now.key, at), left = ~0u;
    for (int round = 0; round < n; round++) {
        const place here(t, at);
        block_bf16<RULE> x;
        x.load(here);
        at += CUT::step;
        if (CUT::stay && round + 1 < n) place(t, at).prefetch(RULE::states);
        if (x.update(k, now, key)) {
            x.store(here);
            left ^= 1u << round;
        }
        key = adamod__block_key((uint64_t)key << 32, CUT::step);
    }
    return left;
}

#endif
