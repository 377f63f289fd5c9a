/* Updates with states in 8 bits. */
#ifndef ADAMOD_CUDA_UPDATE_Q8_CUH
#define ADAMOD_CUDA_UPDATE_Q8_CUH

#include "kernels/cuda/update_four.cuh"
#include "kernels/cuda/update_octet.cuh"

/* A block in shared memory, as it comes from global memory. */
template <class RULE> struct slot_q8 {
    enum { STATES = RULE::states & STATE_S ? 3 : RULE::states & STATE_V ? 2 : 1 };
    float4 p[Q8_BLOCK / 4], g[Q8_BLOCK / 4];
    uint4 codes[STATES][Q8_BLOCK / 16];
};

/* A lane's copies of a warp's blocks, 16 bytes at a time; codes may be for another lane. */
template <class RULE, class CUT> struct source_q8 {
    enum { STATES = slot_q8<RULE>::STATES, PAIRS = (STATES + 1) / 2 };
    float4 *p;
    const float4 *g;
    uint4 *codes[PAIRS];

    /* For blocks from element at on. */
    __device__ __forceinline__ source_q8(const device_tensor &t, int64_t at) {
        const int lane = (int)threadIdx.x % 32;
        p = (float4 *)((float *)t.p + at) + lane;
        g = (const float4 *)((const float *)t.g + at) + lane;
#pragma unroll
        for (int u = 0; u < PAIRS; u++) {
            const int i = 2 * u + lane / 16;
            codes[u] = (uint4 *)((char *)t.state[i < STATES ? i : 0] + at) + lane % 16;
        }
    }

    __device__ __forceinline__ void ask(slot_q8<RULE> *to) const {
        const int lane = (int)threadIdx.x % 32;
#pragma unroll
        for (int u = 0; u < 2; u++) {
            copy_async<CUT::stream>(&to->p[32 * u + lane], p + 32 * u);
            copy_async<true>(&to->g[32 * u + lane], g + 32 * u);
        }
#pragma unroll
        for (int u = 0; u < PAIRS; u++) {
            if (2 * u + lane / 16 < STATES) copy_async<CUT::stream>(&to->codes[0][32 * u + lane], codes[u]);
        }
    }

    /* Stores p and the slot's codes where the block AGO blocks before came from. */
    template <int AGO>
    __device__ __forceinline__ void replace(const float4 (&p_new)[2], const slot_q8<RULE> &from) const {
        const int lane = (int)threadIdx.x % 32;
#pragma unroll
        for (int u = 0; u < 2; u++) store_to(p + 32 * u - AGO * CUT::step / 4, p_new[u]);
        __syncwarp();
#pragma unroll
        for (int u = 0; u < PAIRS; u++) {
            if (2 * u + lane / 16 < STATES) store_to(codes[u] - AGO * CUT::step / 16, from.codes[0][32 * u + lane]);
        }
    }
    /* The compiler alone would make four stores. */
    template <class T> static __device__ __forceinline__ void store_to(T *to, T x) {
        const uint32_t *word = (const uint32_t *)&x;
        if (CUT::stream) __stcs(to, x);
        else {
            asm volatile("st.global.v4.u32 [%0], {%1, %2, %3, %4};" ::"l"(to), "r"(word[0]), "r"(word[1]), "r"(word[2]),
                         "r"(word[3])
                         : "memory");
        }
    }

    /* Goes to the warp's next block. */
    __device__ __forceinline__ void go_on() {
        p += CUT::step / 4;
        g += CUT::step / 4;
#pragma unroll
        for (int u = 0; u < PAIRS; u++) codes[u] += CUT::step / 16;
    }
};

/* A block as numbers. A warp has a whole block, and so finds its scales by itself; a lane has two groups of four elements.
 * A code takes one integer instruction for its random bits, and one or two for its place in a word. */
template <class RULE> struct block_q8 {
    enum { STATES = octet<RULE>::STATES };
    four<ADAMOD_F32> p[2], g[2];
    uint32_t codes[STATES][2];
    float scale[STATES];

    static __device__ __forceinline__ bool has(int i) { return octet<RULE>::has(i); }

    __device__ __forceinline__ void load(const slot_q8<RULE> &from) {
        const int lane = (int)threadIdx.x % 32;
#pragma unroll
        for (int u = 0; u < 2; u++) {
            p[u].raw = from.p[32 * u + lane];
            g[u].raw = from.g[32 * u + lane];
#pragma unroll
            for (int i = 0; i < STATES; i++) {
                if (has(i)) codes[i][u] = ((const uint32_t *)from.codes[i])[32 * u + lane];
            }
        }
    }

    /* Stores codes. */
    __device__ __forceinline__ void store(slot_q8<RULE> *to) const {
        const int lane = (int)threadIdx.x % 32;
#pragma unroll
        for (int u = 0; u < 2; u++) {
#pragma unroll
            for (int i = 0; i < STATES; i++) {
                if (has(i)) ((uint32_t *)to->codes[i])[32 * u + lane] = codes[i][u];
            }
        }
    }

    /* Code j of a word as decoding takes it. */
    static __device__ __forceinline__ float decode(uint32_t word, int j, float factor, int i) {
        const uint32_t bits = i == 0 ? (uint32_t)((int32_t)(word << (24 - 8 * j)) >> 4) & 0x87f00000u
                                     : (j == 3 ? word >> 4 : word << (20 - 8 * j)) & 0x0ff00000u;
        return adamod__q8_quick_decode(bits, factor);
    }

    /* The upper bytes of four numbers. */
    static __device__ __forceinline__ uint32_t upper_bytes(const uint32_t (&x)[4]) {
        return __byte_perm(__byte_perm(x[0], x[1], 0x73), __byte_perm(x[2], x[3], 0x73), 0x5410);
    }

    /* State 0 has a sign, the others have none. */
    template <bool ZEROS>
    __device__ __forceinline__ void encode(const float (&x)[8], const uint32_t (&hash)[2], int i) {
        const int kind = adamod__q8_kind(1, i, ZEROS);
        const float inverse = adamod__q8_quick_inverse(scale[i], kind);
#pragma unroll
        for (int u = 0; u < 2; u++) {
            uint32_t code[4];
#pragma unroll
            for (int j = 0; j < 4; j++) {
                const uint32_t random = hash[u] * ADAMOD__RANDOM_FACTOR(j, 1 + i);
                const uint32_t bits = adamod__q8_quick_encode(x[4 * u + j], inverse, random, kind);
                code[j] = i == 0 ? (bits << 4 & 0x7fffffffu) | (bits & 0x80000000u) : bits << 4;
            }
            codes[i][u] = upper_bytes(code);
        }
    }

    /* False if the block is out of range, and must be updated one by one. */
    __device__ __forceinline__ bool update(const adamod__coef_f32 &k, const array_step &now, uint32_t key) {
        const uint32_t lane = threadIdx.x % 32;
        octet<RULE> x;
        bool good = true;
#pragma unroll
        for (int e = 0; e < 8; e++) {
            x.p[e] = p[e / 4].get(e % 4);
            x.g[e] = g[e / 4].get(e % 4);
        }
#pragma unroll
        for (int i = 0; i < STATES; i++) {
            if (!has(i)) continue;
            const int kind = adamod__q8_kind(1, i, false);
            good = good && adamod__q8_is_quick(scale[i], kind);
            const float factor = adamod__q8_quick_factor(scale[i], kind);
#pragma unroll
            for (int e = 0; e < 8; e++) x.state[i][e] = decode(codes[i][e / 4], e % 4, factor, i);
        }
        good = x.update(k, now) && good;
#pragma unroll
        for (int e = 0; e < 8; e++) p[e / 4].set(e % 4, x.p[e], 0);
        const uint32_t hash[2] = {adamod__random_hash(4 * lane, key), adamod__random_hash(128 + 4 * lane, key)};
#pragma unroll
        for (int i = 0; i < STATES; i++) {
            if (!has(i)) continue;
            scale[i] = warp_q8_scale(octet<RULE>::largest(x.state[i], i == 0));
            good = good && adamod__q8_is_quick(scale[i], adamod__q8_kind(1, i, false));
            if (i > 0 && now.narrow.idle == 0) encode<true>(x.state[i], hash, i);
            else encode<false>(x.state[i], hash, i);
        }
        return __all_sync(0xffffffffu, good);
    }
};

/* A warp's scales in a tile: lane l has those of block l, so that they are loaded and stored at once. */
template <class RULE, int STEP> struct scales_q8 {
    enum { STATES = slot_q8<RULE>::STATES };
    float scale[STATES];

    __device__ __forceinline__ void load(const device_tensor &t, int64_t at, int n) {
        const int lane = (int)threadIdx.x % 32;
#pragma unroll
        for (int i = 0; i < STATES; i++) scale[i] = lane < n ? t.scale[i][(at + lane * STEP) / Q8_BLOCK] : 0;
    }
    __device__ __forceinline__ void get(float *to, int round) const {
#pragma unroll
        for (int i = 0; i < STATES; i++) to[i] = __shfl_sync(0xffffffffu, scale[i], round);
    }
    __device__ __forceinline__ void set(const float *to, int round) {
#pragma unroll
        for (int i = 0; i < STATES; i++) scale[i] = threadIdx.x % 32 == round ? to[i] : scale[i];
    }
    __device__ __forceinline__ void store(const device_tensor &t, int64_t at, int n, uint32_t left) const {
        const int lane = (int)threadIdx.x % 32;
        if (lane >= n || (left >> lane & 1)) return;
#pragma unroll
        for (int i = 0; i < STATES; i++) t.scale[i][(at + lane * STEP) / Q8_BLOCK] = scale[i];
    }
};

/* Updates a warp's blocks in a tile, from element at up to last. Returns a bit for each block that must be updated one by
 * one. Registers have no room for the next block beside the present one, and without it a warp would wait for memory each
 * time. So blocks come into a circular buffer in shared memory, one for each warp. */
template <class RULE, class CUT>
static __device__ __forceinline__ uint32_t update_q8(const view &v, uint32_t tensor, int64_t at, int64_t last) {
    enum { STEP = CUT::step, AHEAD = CUT::stages - 1 };
    __shared__ slot_q8<RULE> slots[CUT::warps][CUT::stages];
    slot_q8<RULE> *const ring = slots[threadIdx.x / 32], *here = ring, *free = ring + AHEAD;
    const device_tensor &t = v.tensors[tensor];
    const int n = t.path == PATH_Q8 && last > at ? (int)((last - at - 1) / STEP) + 1 : 0;
    source_q8<RULE, CUT> source(t, at);
#pragma unroll
    for (int round = 0; round < AHEAD; round++, source.go_on()) {
        if (round < n) source.ask(&ring[round]);
        end_of_copies();
    }
    scales_q8<RULE, STEP> scales;
    scales.load(t, at, n);
    wait_for_prepare();
    const array_step &now = v.now[tensor];
    const adamod__coef_f32 k = now.narrow;
    const bool skip = v.shared->skip;
    if (skip || ((RULE::states & STATE_V) && !quick_coefs(k))) {
        wait_for_copies<0>();
        return skip ? 0 : ~0u;
    }
    uint32_t key = adamod__block_key(now.key, at), left = ~0u;
#pragma unroll 1
    for (int round = 0; round < n; round++) {
        block_q8<RULE> x;
        wait_for_copies<AHEAD - 1>();
        __syncwarp(); /* the other lanes' copies are here, and all have read the free slot */
        if (round + AHEAD < n) source.ask(free);
        end_of_copies();
        x.load(*here);
        scales.get(x.scale, round);
        if (x.update(k, now, key)) {
            x.store(here);
            source.template replace<AHEAD>({x.p[0].raw, x.p[1].raw}, *here);
            scales.set(x.scale, round);
            left ^= 1u << round;
        }
        key = adamod__block_key((uint64_t)key << 32, STEP);
        source.go_on();
        free = here;
        here = here == ring + AHEAD ? ring : here + 1;
    }
    scales.store(t, at, n, left);
    return left;
}

#endif
