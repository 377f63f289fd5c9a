/* The update: one launch for all parameters of a kind, whatever their number and sizes.
 *
 * Memory is the limit, so what matters is that many wide loads are on their way at any time: blocks stay and take one
 * tile after the other, and each thread asks for all it needs of several groups of four elements before it computes. The
 * launch overlaps prepare: only what prepare writes is waited for, after the first tile was asked for. */
#define MAKE_VARIANTS
struct variant_launch;
template <class RULE> static constexpr variant_launch make_variant();

#include "optim/kernels/cuda/cuda_backend.h"

/* How one formula is launched. */
struct variant_launch {
    const void *kernel;
    void (*update)(const view *v, const update_class *c, cudaStream_t stream);
    void (*collect)(const view *v, const update_class *c, cudaStream_t stream);
    int threads, tile;
    bool stay;
    const char *name; /* of a tuning */
};

#include "optim/kernels/cuda/formulas.cuh"

/* How an update is cut: threads of a block, groups of four elements for each, blocks that a multiprocessor must have room
 * for, and whether blocks stay for one tile after the other. Where a warp takes Q8_BLOCK elements at a time, so often in a
 * tile: from each to its next, and from its first to the next warp's first. */
template <int THREADS, int GROUPS, int BLOCKS, bool STAY> struct cut {
    enum { threads = THREADS, groups = GROUPS, blocks = BLOCKS, stay = STAY, tile = 4 * GROUPS * THREADS };
    enum { rounds = GROUPS / 2, step = THREADS / 32 * Q8_BLOCK, apart = Q8_BLOCK };
    static_assert(tile % BLOCK == 0, "a tile is whole blocks of the library's");
    static_assert(rounds <= 32, "a bit, or a lane, for each");
};
typedef cut<256, 2, 3, false> standard_cut;
/* Of all in bf16: the last says whether a warp asks for its next elements before it computes. */
typedef cut<256, 8, 3, false> bf16_cut;

/* Of states in 8 bits: WARPS of a block, ROUNDS of each; STAGES of them are on their way or at work. If RUN, they are side
 * by side. If STREAM, the second cache is told that not only gradients are not wanted again. */
template <int WARPS, int ROUNDS, int BLOCKS, int STAGES, bool RUN, bool STREAM>
struct ring_cut : cut<32 * WARPS, 2 * ROUNDS, BLOCKS, false> {
    enum { warps = WARPS, stages = STAGES, stream = STREAM };
    enum { step = RUN ? Q8_BLOCK : WARPS * Q8_BLOCK, apart = RUN ? ROUNDS * Q8_BLOCK : Q8_BLOCK };
};
typedef ring_cut<4, 8, 6, 3, false, false> q8_cut;

/* What `optim bench` can try in their place, for AdaMod in f32. */
#define TUNINGS(X)                                                                                                     \
    X(256, 2, 3, true)                                                                                                 \
    X(256, 2, 3, false)                                                                                                \
    X(256, 1, 4, false)                                                                                                \
    X(128, 4, 4, false)
#define BF16_TUNINGS(X)                                                                                                \
    X(256, 8, 3, false)                                                                                                \
    X(256, 16, 3, false)                                                                                               \
    X(256, 8, 3, true)
#define Q8_TUNINGS(X)                                                                                                  \
    X(4, 8, 6, 3, false, false)                                                                                        \
    X(4, 8, 6, 3, false, true)                                                                                         \
    X(4, 8, 6, 3, true, false)                                                                                         \
    X(4, 8, 6, 2, false, false)                                                                                        \
    X(4, 8, 5, 3, false, false)                                                                                        \
    X(4, 8, 4, 4, false, false)                                                                                        \
    X(4, 16, 6, 3, false, false)                                                                                       \
    X(8, 8, 3, 2, false, false)

/* ---- four elements at a time ---- */

/* Four elements as they lie in memory, and as numbers. Caches are told that nothing is read again before the next step. */
template <int TYPE> struct four;

template <> struct four<ADAMOD_F32> {
    float4 raw;
    __device__ __forceinline__ void load(const void *array, int64_t i) {
        raw = __ldcs((const float4 *)((const float *)array + i));
    }
    __device__ __forceinline__ float get(int j) const {
        return j == 0 ? raw.x : j == 1 ? raw.y : j == 2 ? raw.z : raw.w;
    }
    __device__ __forceinline__ void set(int j, float x, uint32_t) {
        if (j == 0) raw.x = x;
        else if (j == 1) raw.y = x;
        else if (j == 2) raw.z = x;
        else raw.w = x;
    }
    __device__ __forceinline__ void store(void *array, int64_t i) const { __stcs((float4 *)((float *)array + i), raw); }
};

template <> struct four<ADAMOD_BF16> {
    uint2 raw;
    __device__ __forceinline__ void load(const void *array, int64_t i) {
        raw = __ldcs((const uint2 *)((const uint16_t *)array + i));
    }
    __device__ __forceinline__ float get(int j) const {
        const uint32_t word = j < 2 ? raw.x : raw.y;
        return __uint_as_float(j % 2 ? word & 0xffff0000u : word << 16);
    }
    /* add is what bf16 takes before it is cut. The other half of the word stays: it may not have been read yet. */
    __device__ __forceinline__ void set(int j, float x, uint32_t add) {
        uint32_t &word = j < 2 ? raw.x : raw.y;
        const uint32_t half = f32_to_bf16(x, add);
        word = j % 2 ? (word & 0xffffu) | half << 16 : (word & 0xffff0000u) | half;
    }
    __device__ __forceinline__ void store(void *array, int64_t i) const {
        __stcs((uint2 *)((uint16_t *)array + i), raw);
    }
};

/* The types of a path. */
template <int PATH> struct path_types;
template <> struct path_types<PATH_F32> {
    enum { p = ADAMOD_F32, g = ADAMOD_F32, s = ADAMOD_F32, master = 0, random = 0 };
};
template <> struct path_types<PATH_MASTER> {
    enum { p = ADAMOD_F32, g = ADAMOD_BF16, s = ADAMOD_F32, master = 1, random = 0 };
};
template <> struct path_types<PATH_COPY> {
    enum { p = ADAMOD_F32, g = ADAMOD_F32, s = ADAMOD_F32, master = 1, random = 0 };
};
template <> struct path_types<PATH_BF16> {
    enum { p = ADAMOD_BF16, g = ADAMOD_BF16, s = ADAMOD_BF16, master = 0, random = 1 };
};

/* The tensor that a block is at: its arrays, which are known before prepare is done, and the coefficients of its
 * update. Registers are scarce, so what a tile needs but once is looked up then. */
template <class RULE> struct site {
    const view &v;
    uint32_t tensor;
    bool begun, fresh; /* prepare is done; the coefficients are not read yet */
    bool transform;
    void *p; /* the master, or the parameter itself */
    const void *g;
    void *state[3];
    typename RULE::K k;

    __device__ __forceinline__ explicit site(const view &all) : v(all), tensor(~0u), begun(false), fresh(true) {}

    __device__ __forceinline__ void go_to(uint32_t to) {
        if (to == tensor) return;
        const device_tensor &t = v.tensors[to];
        tensor = to;
        fresh = true;
        p = t.master ? t.master : t.p;
        g = t.g;
        for (int i = 0; i < 3; i++) state[i] = t.state[i];
        /* Rules with a queue have launches between prepare and this one. */
        if ((RULE::states & STATE_S) && t.queue) {
            const int bytes = t.state_type == ADAMOD_BF16 ? 2 : (int)sizeof(typename RULE::R);
            state[2] = (char *)t.state[2] + v.now[to].turn * bytes;
        }
    }

    /* Waits for prepare, and reads what it wrote; false: the step is not taken. */
    __device__ __forceinline__ bool ready() {
        if (!begun) {
            wait_for_prepare();
            begun = true;
            if (v.shared->skip) return false;
        }
        if (fresh) {
            const array_step &now = v.now[tensor];
            k = real<typename RULE::R>::of(now);
            transform = now.transform;
            fresh = false;
        }
        return true;
    }
};

/* A tile from element first on. A warp has 128 elements a group, side by side. False if the step is not taken. */
template <class RULE, class CUT, int PATH>
static __device__ __forceinline__ bool update_tile(site<RULE> &a, int64_t first) {
    typedef path_types<PATH> types;
    enum { GROUPS = CUT::groups };
    four<types::p> p[GROUPS];
    four<types::g> g[GROUPS];
    four<types::s> m[GROUPS], v[GROUPS], s[GROUPS];
    four<ADAMOD_BF16> half[GROUPS]; /* the parameter, where p is its master */
    const int64_t begin = first + threadIdx.x / 32 * (128 * GROUPS) + threadIdx.x % 32 * 4;
#pragma unroll
    for (int u = 0; u < GROUPS; u++) {
        const int64_t i = begin + 128 * u;
        p[u].load(a.p, i);
        if (types::master) half[u].load(a.v.tensors[a.tensor].p, i);
        g[u].load(a.g, i);
        if (RULE::states & STATE_M) m[u].load(a.state[0], i);
        if (RULE::states & STATE_V) v[u].load(a.state[1], i);
        if (RULE::states & STATE_S) s[u].load(a.state[2], i);
    }
    if (!a.ready()) return false;
    const uint64_t key = types::random ? a.v.now[a.tensor].key : 0;
#pragma unroll
    for (int u = 0; u < GROUPS; u++) {
        const int64_t i = begin + 128 * u;
        const uint32_t hash = types::random ? adamod__random_hash(0, adamod__block_key(key, i)) : 0;
#pragma unroll
        for (int j = 0; j < 4; j++) {
            element<float> x = {};
            x.p = types::master ? follow_bf16(p[u].get(j), half[u].get(j)) : p[u].get(j);
            x.g = shape_gradient(g[u].get(j), x.p, a.k, a.transform);
            if (RULE::states & STATE_M) x.m = m[u].get(j);
            if (RULE::states & STATE_V) x.v = v[u].get(j);
            if (RULE::states & STATE_S) x.s = s[u].get(j);
            x = update_element<RULE>(x, a.k);
            p[u].set(j, x.p, hash * ADAMOD__RANDOM_FACTOR(j, 0) >> 16);
            if (types::master) half[u].set(j, x.p, to_nearest(x.p));
            if (RULE::states & STATE_M) m[u].set(j, x.m, hash * ADAMOD__RANDOM_FACTOR(j, 1) >> 16);
            if (RULE::states & STATE_V) v[u].set(j, x.v, hash * ADAMOD__RANDOM_FACTOR(j, 2) >> 16);
            if (RULE::states & STATE_S) s[u].set(j, x.s, hash * ADAMOD__RANDOM_FACTOR(j, 3) >> 16);
        }
        p[u].store(a.p, i);
        if (types::master) half[u].store(a.v.tensors[a.tensor].p, i);
        if (RULE::states & STATE_M) m[u].store(a.state[0], i);
        if (RULE::states & STATE_V) v[u].store(a.state[1], i);
        if (RULE::states & STATE_S) s[u].store(a.state[2], i);
    }
    return true;
}

/* ---- one element at a time, whatever the types ---- */

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
    return x;
}

/* States in 8 bits are stored by whole blocks: states_q8. */
template <class RULE, bool Q8>
static __device__ __forceinline__ void store_element(const device_tensor &t, const array_step &now, int64_t block,
                                                     uint32_t at, const element<typename RULE::R> &x) {
    typedef typename RULE::R R;
    store_param<R>(t, block, at, x.p, now.key);
    if (Q8) return;
    if (RULE::states & STATE_M) store_state<R>(t, 0, 0, block, at, x.m, now.key);
    if (RULE::states & STATE_V) store_state<R>(t, 1, 0, block, at, x.v, now.key);
    if (RULE::states & STATE_S) store_state<R>(t, 2, now.turn, block, at, x.s, now.key);
}

/* A warp's new states of a block in 8 bits, until all of them are known. */
template <class RULE> struct states_q8 {
    enum { EACH = Q8_BLOCK / 32 };
    float m[EACH], v[EACH], s[EACH];

    __device__ __forceinline__ void keep(int r, const element<typename RULE::R> &x) {
        m[r] = (float)x.m;
        v[r] = (float)x.v;
        s[r] = (float)x.s;
    }

    /* All lanes. */
    __device__ __forceinline__ void store(const device_tensor &t, int64_t first, int64_t last, uint64_t key) const {
        if (RULE::states & STATE_M) store_state_q8(t, 0, first, last, m, key);
        if (RULE::states & STATE_V) store_state_q8(t, 1, first, last, v, key);
        if (RULE::states & STATE_S) store_state_q8(t, 2, first, last, s, key);
    }
};

/* A block of states in 8 bits, which begins at element begin, by a warp. */
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
    next.store(t, begin, last, now.key);
}

/* Elements i, i + step, ... before last. */
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

/* ---- eight elements without a branch ---- */

/* The rules whose divisors and roots quick_coefs and quick_squares know of. */
template <class RULE> struct quick_of { typedef void rule; };
template <> struct quick_of<adamod_rule_f32> { typedef adamod_rule_quick rule; };
template <> struct quick_of<adam_rule_f32> { typedef adam_rule_quick rule; };
template <> struct quick_of<sgd_momentum_rule_f32> { typedef sgd_momentum_rule_quick rule; };

/* Where states are small, instructions are the limit, and those on integers above all, of which a GPU does half as many.
 * So there is no branch for an element: where one would take another way, nothing was stored yet, and all is done over
 * again one by one. */
template <class RULE> struct octet {
    enum { STATES = 3 };
    float p[8], g[8], state[STATES][8];

    static __device__ __forceinline__ bool has(int i) { return RULE::states >> i & 1; }

    /* What few updates need is read from now each time, for want of registers. False if the update is not to be done so:
     * not finite, or out of the range of the quick ways. */
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
            x = quick_of<RULE>::rule::run(x, &k);
            p[e] = x.p.x;
            state[0][e] = x.m.x;
            state[1][e] = x.v.x;
            state[2][e] = x.s.x;
            least = min(least, __float_as_uint(x.v.x) - 1);
        }
        return !has(1) || quick_squares(least);
    }

    /* The largest magnitude, as bits. Of state 0, the largest of the positive as integers with a sign, and of the
     * negative as those without; the others have none. */
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

/* ---- all in bf16 ---- */

/* Where a lane's elements of a block begin. */
struct place {
    char *p, *state[3];
    const char *g;

    __device__ __forceinline__ place(const device_tensor &t, int64_t at) {
        const int64_t first = 2 * (at + 8 * (threadIdx.x % 32));
        p = (char *)t.p + first;
        g = (const char *)t.g + first;
        for (int i = 0; i < 3; i++) state[i] = (char *)t.state[i] + first;
    }
    /* Asks for them, to be found in the second cache. */
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

/* Q8_BLOCK elements here, too; a lane has eight side by side. */
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

    /* Finite numbers alone. */
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

    /* False if this block is not to be updated so. */
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

/* Which of a warp's blocks in a tile, from element at up to last, are left to be done one by one: a bit for each. */
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

/* ---- states in 8 bits ---- */

/* A block of theirs as it comes from memory, into shared memory. */
template <class RULE> struct slot_q8 {
    enum { STATES = RULE::states & STATE_S ? 3 : RULE::states & STATE_V ? 2 : 1 };
    float4 p[Q8_BLOCK / 4], g[Q8_BLOCK / 4];
    uint4 codes[STATES][Q8_BLOCK / 16];
};

/* What a lane asks for of a warp's blocks, 16 bytes at a time: of codes, for the lane that will want them or another. */
template <class RULE, class CUT> struct source_q8 {
    enum { STATES = slot_q8<RULE>::STATES, PAIRS = (STATES + 1) / 2 };
    float4 *p;
    const float4 *g;
    uint4 *codes[PAIRS];

    /* Of those from element at on. */
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

    /* What was asked for so many blocks ago, to be replaced by p and the slot's codes. */
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
    /* Left to itself, the compiler makes four stores of one. */
    template <class T> static __device__ __forceinline__ void store_to(T *to, T x) {
        const uint32_t *word = (const uint32_t *)&x;
        if (CUT::stream) __stcs(to, x);
        else {
            asm volatile("st.global.v4.u32 [%0], {%1, %2, %3, %4};" ::"l"(to), "r"(word[0]), "r"(word[1]), "r"(word[2]),
                         "r"(word[3])
                         : "memory");
        }
    }

    /* To the warp's next block. */
    __device__ __forceinline__ void go_on() {
        p += CUT::step / 4;
        g += CUT::step / 4;
#pragma unroll
        for (int u = 0; u < PAIRS; u++) codes[u] += CUT::step / 16;
    }
};

/* The same as numbers. A warp takes a block at once, and so finds its scales by itself; a lane has two groups of four
 * elements. A code takes one integer instruction for its random bits, and one or two for its place in a word. */
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

    /* Back again. */
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

    __device__ __forceinline__ void encode(const float (&x)[8], const uint32_t (&hash)[2], int i) {
        const float inverse = adamod__q8_quick_inverse(scale[i], i);
#pragma unroll
        for (int u = 0; u < 2; u++) {
            uint32_t code[4];
#pragma unroll
            for (int j = 0; j < 4; j++) {
                const uint32_t random = hash[u] * ADAMOD__RANDOM_FACTOR(j, 1 + i);
                const uint32_t bits = adamod__q8_quick_encode(x[4 * u + j], inverse, random, i);
                code[j] = i == 0 ? (bits << 4 & 0x7fffffffu) | (bits & 0x80000000u) : bits << 4;
            }
            codes[i][u] = upper_bytes(code);
        }
    }

    /* False if this block is not to be updated so. */
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
            good = good && adamod__q8_is_quick(scale[i], i);
            const float factor = adamod__q8_quick_factor(scale[i], i);
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
            good = good && adamod__q8_is_quick(scale[i], i);
            encode(x.state[i], hash, i);
        }
        return __all_sync(0xffffffffu, good);
    }
};

/* A warp's scales in a tile: lane l has those of its block l, so that they are read at once, and written. */
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

/* Which of a warp's blocks in a tile, from element at up to last, are left to be done one by one: a bit for each.
 * Registers have no room for a block on its way beside the one at work, and without, a warp would wait for memory each
 * time. So blocks come into a ring of slots in shared memory, which is the warp's alone. */
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
        __syncwarp(); /* the other lanes' have come, too, and all have read the slot that is free */
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

/* ---- kernels ---- */

/* False if there is no way to take the whole tile at once. */
template <class RULE, class CUT>
static __device__ __forceinline__ bool update_whole(site<RULE> &a, int64_t first, bool *taken) {
    if constexpr (sizeof(typename RULE::R) != 4) {
        return false;
    } else {
        switch (a.v.tensors[a.tensor].path) {
            case PATH_F32: *taken = update_tile<RULE, CUT, PATH_F32>(a, first); return true;
            case PATH_MASTER: *taken = update_tile<RULE, CUT, PATH_MASTER>(a, first); return true;
            case PATH_COPY: *taken = update_tile<RULE, CUT, PATH_COPY>(a, first); return true;
            case PATH_BF16: *taken = update_tile<RULE, CUT, PATH_BF16>(a, first); return true;
            default: return false;
        }
    }
}

/* There are no more blocks than tiles. */
template <class RULE, class CUT>
static __global__ void __launch_bounds__(CUT::threads, CUT::blocks)
    update_kernel(const __grid_constant__ view v, const piece *tiles, int64_t n_tiles) {
    int64_t i = blockIdx.x;
    piece tile = tiles[i];
    site<RULE> a(v);
    bool taken = true;
    while (taken) {
        const int64_t next = i + gridDim.x;
        const piece ahead = next < n_tiles ? tiles[next] : tile; /* asked for before it is needed */
        a.go_to(tile.tensor);
        const int64_t first = (int64_t)tile.index * CUT::tile;
        const int64_t count = v.tensors[tile.tensor].count;
        const bool whole = count - first >= CUT::tile;
        if (a.g && (!whole || !update_whole<RULE, CUT>(a, first, &taken))) {
            taken = a.ready();
            const int64_t last = whole ? first + CUT::tile : count;
            if (taken) update_any<RULE>(v, a.tensor, first + threadIdx.x, last, blockDim.x);
        }
        if (next >= n_tiles) break;
        i = next;
        tile = ahead;
    }
    if (!a.begun) wait_for_prepare(); /* or the next launch might come before prepare is done */
}

/* A tile of blocks for each block of threads. */
template <class RULE, class CUT, int KIND>
static __global__ void __launch_bounds__(CUT::threads, CUT::blocks)
    update_blocks_kernel(const __grid_constant__ view v, const piece *tiles) {
    const piece tile = tiles[blockIdx.x];
    const int64_t first = (int64_t)tile.index * CUT::tile, count = v.tensors[tile.tensor].count;
    int64_t at = first + threadIdx.x / 32 * CUT::apart;
    const int64_t end = at + CUT::rounds * CUT::step, last = count < end ? count : end;
    const int64_t whole = last / Q8_BLOCK * Q8_BLOCK; /* tiles begin with a block */
    uint32_t left = ~0u;
    const bool given = v.tensors[tile.tensor].g != NULL;
    if constexpr (sizeof(typename RULE::R) != 4) {
        /* one by one */
    } else if constexpr (KIND == KIND_Q8) {
        if (given) left = update_q8<RULE, CUT>(v, tile.tensor, at, whole);
    } else {
        if (given) left = update_bf16<RULE, CUT>(v, tile.tensor, at, whole);
    }
    wait_for_prepare(); /* or the next launch might come before prepare is done */
    if (v.shared->skip || !given) return;
    /* After all else, so that nothing is kept in registers across the call. */
    for (; at < last && left; at += CUT::step, left >>= 1) {
        if (!(left & 1)) continue;
        if (KIND == KIND_Q8) update_any_q8<RULE>(v, tile.tensor, at, last);
        else update_any<RULE>(v, tile.tensor, at + threadIdx.x % 32, last - at < Q8_BLOCK ? last : at + Q8_BLOCK, 32);
    }
}

/* The same with statistics. A block of threads takes a chunk, a warp BLOCK elements of it at a time, so that sums come
 * in the library's order. */
template <class RULE, bool Q8>
static __global__ void __launch_bounds__(UPDATE_THREADS)
    collect_kernel(const __grid_constant__ view v, int variant, int f64, int kind) {
    typedef typename RULE::R R;
    __shared__ shared_counts counts;
    __shared__ rounds<2> shared;
    const piece c = v.chunks[blockIdx.x];
    const device_tensor &t = v.tensors[c.tensor];
    if (v.shared->skip || t.variant != variant || (t.p_type == ADAMOD_F64) != (f64 != 0)) return;
    if (cuda_kind(&t, v.rule) != kind) return;
    if (threadIdx.x == 0) v.sums[2 * blockIdx.x] = v.sums[2 * blockIdx.x + 1] = 0;
    if (!t.g) return;
    counts.clear();
    const array_step &now = v.now[c.tensor];
    const typename RULE::K k = real<R>::of(now);
    const int64_t first = c.index * v.chunk, last = first + v.chunk < t.count ? first + v.chunk : t.count;
    const int warps = UPDATE_THREADS / 32, warp = (int)threadIdx.x / 32, lane = (int)threadIdx.x % 32;
    double grads = 0, updates = 0;
    int round = 0;
    extremes seen;
    for (int64_t at = first; at < last; at += warps * BLOCK, round++) {
        const int64_t block = at + warp * BLOCK;
        double sum[2] = {0, 0};
        states_q8<RULE> next;
        for (int r = 0; r < BLOCK && block + r < last; r += 32) {
            const int64_t i = block + r + lane;
            const int lanes = last - block - r < 32 ? (int)(last - block - r) : 32;
            double distance = 0;
            if (lane < lanes) {
                R before;
                element<R> x = load_element<RULE, Q8>(t, now, k, i, &before);
                sum[0] += (double)x.g * (double)x.g;
                x = update_element<RULE>(x, k);
                store_element<RULE, Q8>(t, now, block, (uint32_t)(r + lane), x);
                if (Q8) next.keep(r % Q8_BLOCK / 32, x);
                distance = (double)x.p - (double)before;
                counts.add(v, &seen, (double)x.eta, (double)x.step);
                counts.look(x.p, x.m, x.v, x.s);
            }
            sum[1] = add_in_order(sum[1], distance * distance, lanes);
            /* the last of a block in 8 bits */
            const int64_t begin = block + r / Q8_BLOCK * Q8_BLOCK;
            if (Q8 && ((r + 32) % Q8_BLOCK == 0 || block + r + 32 >= last)) {
                next.store(t, begin, last, now.key);
            }
        }
        sum[0] = sum_lanes(sum[0]);
        shared.gather(round, sum, active_warps(at, last), [&](int j, double y) {
            if (j == 0) grads += y;
            else updates += y;
        });
    }
    counts.flush(seen, &v.counts[t.group]);
    if (threadIdx.x != 0) return;
    v.sums[2 * blockIdx.x] = grads;
    v.sums[2 * blockIdx.x + 1] = updates;
}

/* ---- launches ---- */

template <class RULE, class CUT, int KIND> static constexpr auto kernel_of() {
    if constexpr (KIND == KIND_ANY) return update_kernel<RULE, CUT>;
    else return update_blocks_kernel<RULE, CUT, KIND>;
}

template <class RULE, class CUT, int KIND>
static void launch_update(const view *v, const update_class *c, cudaStream_t stream) {
    cudaLaunchConfig_t config = {};
    cudaLaunchAttribute early = {};
    early.id = cudaLaunchAttributeProgrammaticStreamSerialization;
    early.val.programmaticStreamSerializationAllowed = 1;
    config.gridDim = dim3((unsigned)(c->n_tiles < c->blocks ? c->n_tiles : c->blocks));
    config.blockDim = dim3(CUT::threads);
    config.stream = stream;
    config.attrs = &early;
    config.numAttrs = c->early ? 1 : 0;
    if constexpr (KIND == KIND_ANY)
        (void)cudaLaunchKernelEx(&config, kernel_of<RULE, CUT, KIND>(), *v, c->tiles, c->n_tiles);
    else (void)cudaLaunchKernelEx(&config, kernel_of<RULE, CUT, KIND>(), *v, c->tiles);
}

template <class RULE, int KIND> static void launch_collect(const view *v, const update_class *c, cudaStream_t stream) {
    const int kind = c->kind;
    collect_kernel<RULE, KIND == KIND_Q8>
        <<<(unsigned)v->n_chunks, UPDATE_THREADS, 0, stream>>>(*v, c->variant, c->f64, kind);
}

template <class RULE, class CUT, int KIND> static constexpr variant_launch make_launch(const char *name) {
    return variant_launch{(const void *)kernel_of<RULE, CUT, KIND>(),
                          launch_update<RULE, CUT, KIND>,
                          launch_collect<RULE, KIND>,
                          CUT::threads,
                          CUT::tile,
                          CUT::stay && KIND == KIND_ANY,
                          name};
}

template <class RULE> static constexpr variant_launch make_variant() {
    return make_launch<RULE, standard_cut, KIND_ANY>("");
}

static const variant_launch *const variants[2][RULE_COUNT] = {
    {
#define RULE(name) name##_variants_f32,
#include "optim/rules/list.inc.h"
#undef RULE
    },
    {
#define RULE(name) name##_variants_f64,
#include "optim/rules/list.inc.h"
#undef RULE
    },
};

/* Those whose states can be kept in 8 bits: see adamod__has_q8. */
static const variant_launch *q8_launch(int rule, int f64) {
    static const variant_launch launches[2][3] = {
        {make_launch<adamod_rule_f32, q8_cut, KIND_Q8>(""), make_launch<adam_rule_f32, q8_cut, KIND_Q8>(""),
         make_launch<sgd_momentum_rule_f32, q8_cut, KIND_Q8>("")},
        {make_launch<adamod_rule_f64, q8_cut, KIND_Q8>(""), make_launch<adam_rule_f64, q8_cut, KIND_Q8>(""),
         make_launch<sgd_momentum_rule_f64, q8_cut, KIND_Q8>("")}};
    return &launches[f64][rule == RULE_adamod ? 0 : rule == RULE_adam ? 1 : 2];
}

static const variant_launch *bf16_launch(int rule) {
    static const variant_launch launches[2] = {make_launch<adamod_rule_f32, bf16_cut, KIND_BF16>(""),
                                               make_launch<adam_rule_f32, bf16_cut, KIND_BF16>("")};
    return &launches[rule == RULE_adam];
}

#define NAME_TUNING(threads, groups, blocks, stay)                                                                     \
#threads " threads, " #groups " groups, " #blocks " blocks, stay " #stay
#define TUNING(...) make_launch<adamod_rule_f32, cut<__VA_ARGS__>, KIND_ANY>(NAME_TUNING(__VA_ARGS__)),
#define BF16_TUNING(...) make_launch<adamod_rule_f32, cut<__VA_ARGS__>, KIND_BF16>("bf16, " NAME_TUNING(__VA_ARGS__)),
#define Q8_TUNING(warps, rounds, blocks, stages, run, stream)                                                          \
    make_launch<adamod_rule_f32, ring_cut<warps, rounds, blocks, stages, run, stream>, KIND_Q8>(                       \
        "q8, " #warps " warps, " #rounds " rounds, " #blocks " blocks, " #stages " stages, run " #run                  \
        ", stream " #stream),
static const variant_launch tunings[] = {TUNINGS(TUNING)};
static const variant_launch q8_tunings[] = {Q8_TUNINGS(Q8_TUNING)};
static const variant_launch bf16_tunings[] = {BF16_TUNINGS(BF16_TUNING)};

template <int N> static const variant_launch *tuning_of(const variant_launch (&all)[N], int index) {
    return index >= 0 && index < N ? &all[index] : NULL;
}

static const variant_launch *tuning_at(int index, int kind) {
    return kind == KIND_Q8     ? tuning_of(q8_tunings, index)
           : kind == KIND_BF16 ? tuning_of(bf16_tunings, index)
                               : tuning_of(tunings, index);
}

const char *cuda_tuning(int index, int kind) {
    const variant_launch *found = tuning_at(index, kind);
    return found ? found->name : NULL;
}

static const variant_launch *launch_of(int rule, int tuning, int f64, int kind, int variant) {
    const variant_launch *tuned = rule == RULE_adamod && !f64 ? tuning_at(tuning, kind) : NULL;
    if (tuned) return tuned;
    return kind == KIND_Q8     ? q8_launch(rule, f64)
           : kind == KIND_BF16 ? bf16_launch(rule)
                               : &variants[f64][rule][variant];
}

int64_t cuda_tile(int rule, int tuning, const device_tensor *t) {
    return launch_of(rule, tuning, t->p_type == ADAMOD_F64, cuda_kind(t, rule), t->variant)->tile;
}

cudaError_t cuda_choose(int rule, int tuning, int processors, update_class *c) {
    int blocks = 1;
    c->launch = launch_of(rule, tuning, c->f64, c->kind, c->variant);
    if (c->kind == KIND_Q8) { /* or rings might find room for few blocks */
        const cudaError_t error = cudaFuncSetAttribute(
            c->launch->kernel, cudaFuncAttributePreferredSharedMemoryCarveout, cudaSharedmemCarveoutMaxShared);
        if (error) return error;
    }
    const cudaError_t error =
        cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, c->launch->kernel, c->launch->threads, 0);
    c->blocks = c->launch->stay ? (int64_t)processors * (blocks > 0 ? blocks : 1) : INT32_MAX;
    return error;
}

void cuda_update(const view *v, const update_class *c, cudaStream_t stream) {
    if (c->n_tiles > 0) c->launch->update(v, c, stream);
}

void cuda_update_collect(const view *v, const update_class *c, cudaStream_t stream) {
    if (v->n_chunks > 0) c->launch->collect(v, c, stream);
}
