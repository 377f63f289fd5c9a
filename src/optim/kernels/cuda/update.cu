/* The update: one launch for all parameters of a kind, whatever their number and sizes.
 *
 * Memory is the limit, so what matters is that many wide loads are on their way at any time: blocks stay and take one
 * tile after the other, and each thread asks for all it needs of several groups of four elements before it computes. The
 * launch overlaps prepare: only what prepare writes is waited for, after the first tile was asked for. */
#define MAKE_VARIANTS
struct variant_launch;
template <class RULE> static constexpr variant_launch make_variant();

#include "backend.h"

/* How one formula is launched. */
struct variant_launch {
    const void *kernel;
    void (*update)(const view *v, const update_class *c, cudaStream_t stream);
    void (*collect)(const view *v, const update_class *c, cudaStream_t stream);
    int threads, tile;
    bool stay;
    const char *name; /* of a tuning */
};

#include "formulas.cuh"

/* How an update is cut: threads of a block, groups of four elements for each, blocks that a multiprocessor must have room
 * for, what the caches are told, and whether blocks stay for one tile after the other. */
template <int THREADS, int GROUPS, int BLOCKS, int HINT, bool STAY> struct cut {
    enum { threads = THREADS, groups = GROUPS, blocks = BLOCKS, hint = HINT, stay = STAY, tile = 4 * GROUPS * THREADS };
    static_assert(tile % BLOCK == 0, "a tile is whole blocks of the library's");
};
enum {
    HINT_GRADIENT, /* gradients are read but once */
    HINT_STREAM,   /* nothing is read again before the next step */
    HINT_PASS      /* and nothing need be kept in the first cache */
};
typedef cut<256, 2, 3, HINT_STREAM, false> standard_cut;
/* Of states in 8 bits: a warp takes one of their blocks after the other, each two groups; the last says whether it
 * asks for the next before it computes. */
typedef cut<256, 8, 3, HINT_STREAM, false> q8_cut;

/* What `optim bench` can try in their place, for AdaMod in f32. */
#define TUNINGS(X)                                                                                                     \
    X(256, 2, 3, HINT_GRADIENT, true)                                                                                  \
    X(256, 2, 3, HINT_STREAM, true)                                                                                    \
    X(256, 2, 3, HINT_PASS, true)                                                                                      \
    X(256, 2, 3, HINT_GRADIENT, false)                                                                                 \
    X(256, 2, 3, HINT_STREAM, false)                                                                                   \
    X(256, 2, 4, HINT_STREAM, true)                                                                                    \
    X(256, 1, 4, HINT_STREAM, true)                                                                                    \
    X(256, 1, 4, HINT_STREAM, false)                                                                                   \
    X(256, 4, 2, HINT_STREAM, true)                                                                                    \
    X(512, 2, 2, HINT_STREAM, true)                                                                                    \
    X(512, 4, 1, HINT_STREAM, true)                                                                                    \
    X(128, 4, 4, HINT_STREAM, true)                                                                                    \
    X(128, 4, 4, HINT_STREAM, false)
#define Q8_TUNINGS(X)                                                                                                  \
    X(256, 2, 3, HINT_STREAM, false)                                                                                   \
    X(256, 4, 3, HINT_STREAM, false)                                                                                   \
    X(256, 8, 2, HINT_STREAM, false)                                                                                   \
    X(256, 8, 3, HINT_STREAM, false)                                                                                   \
    X(256, 8, 3, HINT_PASS, false)                                                                                     \
    X(256, 8, 3, HINT_GRADIENT, false)                                                                                 \
    X(256, 8, 4, HINT_STREAM, false)                                                                                   \
    X(256, 16, 3, HINT_STREAM, false)                                                                                  \
    X(128, 8, 6, HINT_STREAM, false)                                                                                   \
    X(128, 8, 7, HINT_STREAM, false)                                                                                   \
    X(128, 8, 8, HINT_STREAM, false)                                                                                   \
    X(256, 8, 3, HINT_STREAM, true)                                                                                    \
    X(256, 8, 4, HINT_STREAM, true)

/* ---- four elements at a time ---- */

template <int HINT, class T> static __device__ __forceinline__ T load_hinted(const T *p) {
    if (HINT == HINT_STREAM) return __ldcs(p);
    if (HINT == HINT_PASS) {
        T x;
        uint32_t *y = (uint32_t *)&x;
        if constexpr (sizeof(T) == 16) {
            asm volatile("ld.global.L1::no_allocate.v4.u32 {%0, %1, %2, %3}, [%4];"
                         : "=r"(y[0]), "=r"(y[1]), "=r"(y[2]), "=r"(y[3])
                         : "l"(p));
        } else if constexpr (sizeof(T) == 8) {
            asm volatile("ld.global.L1::no_allocate.v2.u32 {%0, %1}, [%2];" : "=r"(y[0]), "=r"(y[1]) : "l"(p));
        } else {
            asm volatile("ld.global.L1::no_allocate.u32 %0, [%1];" : "=r"(y[0]) : "l"(p));
        }
        return x;
    }
    return *p;
}

template <int HINT, class T> static __device__ __forceinline__ void store_hinted(T *p, T x) {
    if (HINT == HINT_GRADIENT) *p = x;
    else __stcs(p, x);
}

/* Four elements as they lie in memory, and as numbers. */
template <int TYPE> struct four;

template <> struct four<ADAMOD_F32> {
    float4 raw;
    template <int HINT> __device__ __forceinline__ void load(const void *array, int64_t i) {
        raw = load_hinted<HINT>((const float4 *)((const float *)array + i));
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
    template <int HINT> __device__ __forceinline__ void store(void *array, int64_t i) const {
        store_hinted<HINT>((float4 *)((float *)array + i), raw);
    }
};

template <> struct four<ADAMOD_BF16> {
    uint2 raw;
    template <int HINT> __device__ __forceinline__ void load(const void *array, int64_t i) {
        raw = load_hinted<HINT>((const uint2 *)((const uint16_t *)array + i));
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
    template <int HINT> __device__ __forceinline__ void store(void *array, int64_t i) const {
        store_hinted<HINT>((uint2 *)((uint16_t *)array + i), raw);
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

/* The tensor that a block is at: its arrays, which are known before prepare is done, and the numbers of its update.
 * Registers are scarce, so what a tile needs but once is looked up then. */
template <class RULE> struct site {
    const view &v;
    uint32_t tensor;
    bool begun, fresh;     /* prepare is done; the numbers are not read yet */
    bool transform, quick; /* quick_numbers */
    void *p;               /* the master, or the parameter itself */
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
            quick = quick_numbers(now.narrow);
            fresh = false;
        }
        return true;
    }
};

/* A tile from element first on. A warp has 128 elements a group, side by side. False if the step is not taken. */
template <class RULE, class CUT, int PATH>
static __device__ __forceinline__ bool update_tile(site<RULE> &a, int64_t first) {
    typedef path_types<PATH> types;
    enum { GROUPS = CUT::groups, HINT = CUT::hint, ONCE = HINT == HINT_GRADIENT ? HINT_STREAM : HINT };
    four<types::p> p[GROUPS];
    four<types::g> g[GROUPS];
    four<types::s> m[GROUPS], v[GROUPS], s[GROUPS];
    const int64_t begin = first + threadIdx.x / 32 * (128 * GROUPS) + threadIdx.x % 32 * 4;
#pragma unroll
    for (int u = 0; u < GROUPS; u++) {
        const int64_t i = begin + 128 * u;
        p[u].template load<HINT>(a.p, i);
        g[u].template load<ONCE>(a.g, i);
        if (RULE::states & STATE_M) m[u].template load<HINT>(a.state[0], i);
        if (RULE::states & STATE_V) v[u].template load<HINT>(a.state[1], i);
        if (RULE::states & STATE_S) s[u].template load<HINT>(a.state[2], i);
    }
    if (!a.ready()) return false;
    const uint64_t key = types::random ? a.v.now[a.tensor].key : 0;
#pragma unroll
    for (int u = 0; u < GROUPS; u++) {
        const int64_t i = begin + 128 * u;
        const uint32_t hash = types::random ? adamod__random_hash(0, adamod__block_key(key, i)) : 0;
        four<ADAMOD_BF16> out = {};
#pragma unroll
        for (int j = 0; j < 4; j++) {
            element<float> x = {};
            x.p = p[u].get(j);
            x.g = shape_gradient(g[u].get(j), x.p, a.k, a.transform);
            if (RULE::states & STATE_M) x.m = m[u].get(j);
            if (RULE::states & STATE_V) x.v = v[u].get(j);
            if (RULE::states & STATE_S) x.s = s[u].get(j);
            x = update_element<RULE>(x, a.k);
            p[u].set(j, x.p, hash * ADAMOD__RANDOM_FACTOR(j, 0) >> 16);
            if (types::master) out.set(j, x.p, to_nearest(x.p));
            if (RULE::states & STATE_M) m[u].set(j, x.m, hash * ADAMOD__RANDOM_FACTOR(j, 1) >> 16);
            if (RULE::states & STATE_V) v[u].set(j, x.v, hash * ADAMOD__RANDOM_FACTOR(j, 2) >> 16);
            if (RULE::states & STATE_S) s[u].set(j, x.s, hash * ADAMOD__RANDOM_FACTOR(j, 3) >> 16);
        }
        p[u].template store<HINT>(a.p, i);
        if (types::master) out.template store<HINT>(a.v.tensors[a.tensor].p, i);
        if (RULE::states & STATE_M) m[u].template store<HINT>(a.state[0], i);
        if (RULE::states & STATE_V) v[u].template store<HINT>(a.state[1], i);
        if (RULE::states & STATE_S) s[u].template store<HINT>(a.state[2], i);
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

template <class RULE>
static __device__ __noinline__ void update_any(const view &v, uint32_t tensor, int64_t first, int64_t last) {
    typedef typename RULE::R R;
    const device_tensor &t = v.tensors[tensor];
    const array_step &now = v.now[tensor];
    const typename RULE::K k = real<R>::of(now);
    for (int64_t i = first + threadIdx.x; i < last; i += blockDim.x) {
        R before;
        const int64_t block = i / BLOCK * BLOCK;
        const element<R> x = update_element<RULE>(load_element<RULE, false>(t, now, k, i, &before), k);
        store_element<RULE, false>(t, now, block, (uint32_t)(i - block), x);
    }
}

/* ---- states in 8 bits ---- */

/* The rules whose states can be kept in 8 bits (see adamod__has_q8), as formulas that divide and take roots quickly. */
template <class RULE> struct quick_of;
template <> struct quick_of<adamod_rule_f32> { typedef adamod_rule_quick rule; };
template <> struct quick_of<adam_rule_f32> { typedef adam_rule_quick rule; };
template <> struct quick_of<sgd_momentum_rule_f32> { typedef sgd_momentum_rule_quick rule; };

/* Where a lane's elements of a block begin, and the block's scales. */
struct place_q8 {
    float *p;
    const float *g;
    uint8_t *state[3];
    float *scale[3];

    __device__ __forceinline__ place_q8(const device_tensor &t, int64_t at) {
        const int64_t first = at + 4 * (threadIdx.x % 32);
        p = (float *)t.p + first;
        g = (const float *)t.g + first;
        for (int i = 0; i < 3; i++) {
            state[i] = (uint8_t *)t.state[i] + first;
            scale[i] = t.scale[i] + at / Q8_BLOCK;
        }
    }
    /* Asks for them, to be found in the second cache. */
    __device__ __forceinline__ void prefetch(int states) const {
        prefetch_one(p);
        prefetch_one(p + 128);
        prefetch_one(g);
        prefetch_one(g + 128);
        for (int i = 0; i < 3; i++) {
            if (!(states >> i & 1)) continue;
            prefetch_one(state[i]);
            prefetch_one(state[i] + 128);
        }
    }
    static __device__ __forceinline__ void prefetch_one(const void *p) {
        asm volatile("prefetch.global.L2 [%0];" ::"l"(p));
    }
};

/* A block of theirs, all f32 otherwise. A warp takes it at once, and so finds its scales by itself; a lane has two groups
 * of four elements. There is no branch for an element: where one would take another way, nothing was stored yet, and
 * update_any_q8 does it all. Integer instructions are the limit, so few are used: one for a code's place in a word, one
 * for its random bits. */
template <class RULE, int HINT> struct block_q8 {
    typedef typename quick_of<RULE>::rule quick_rule;
    enum { STATES = 3 };
    four<ADAMOD_F32> p[2], g[2];
    uint32_t codes[STATES][2];
    float scale[STATES];

    static __device__ __forceinline__ bool has(int i) { return RULE::states >> i & 1; }

    __device__ __forceinline__ void load(const place_q8 &from) {
#pragma unroll
        for (int u = 0; u < 2; u++) {
            p[u].template load<HINT>(from.p, 128 * u);
            g[u].template load<HINT_STREAM>(from.g, 128 * u);
#pragma unroll
            for (int i = 0; i < STATES; i++) {
                if (has(i)) codes[i][u] = load_hinted<HINT>((const uint32_t *)(from.state[i] + 128 * u));
            }
        }
#pragma unroll
        for (int i = 0; i < STATES; i++) scale[i] = has(i) ? load_hinted<HINT>((const float *)from.scale[i]) : 0;
    }

    __device__ __forceinline__ void store(const place_q8 &to) const {
#pragma unroll
        for (int u = 0; u < 2; u++) {
            p[u].template store<HINT>(to.p, 128 * u);
#pragma unroll
            for (int i = 0; i < STATES; i++) {
                if (has(i)) store_hinted<HINT>((uint32_t *)(to.state[i] + 128 * u), codes[i][u]);
            }
        }
#pragma unroll
        for (int i = 0; i < STATES; i++) {
            if (has(i) && threadIdx.x % 32 == 0) store_hinted<HINT>(to.scale[i], scale[i]);
        }
    }

    __device__ __forceinline__ void shape_gradients(float scale_by, const array_step &now) {
#pragma unroll
        for (int e = 0; e < 8; e++) g[e / 4].set(e % 4, g[e / 4].get(e % 4) * scale_by, 0);
        if (now.transform) {
#pragma unroll
            for (int e = 0; e < 8; e++) {
                const int u = e / 4, j = e % 4;
                g[u].set(j, clip_and_decay(g[u].get(j), p[u].get(j), now.narrow), 0);
            }
        }
        const float decay = now.narrow.decay;
        if (decay != 0) {
#pragma unroll
            for (int e = 0; e < 8; e++) {
                const float x = p[e / 4].get(e % 4);
                p[e / 4].set(e % 4, x - decay * x, 0);
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

    /* The largest of the warp's magnitudes. Of state 0, the largest of the positive as integers with a sign, and of the
     * negative as those without. */
    static __device__ __forceinline__ uint32_t largest(const float (&x)[8], int i) {
        uint32_t most = 0;
        int32_t positive = 0;
#pragma unroll
        for (int e = 0; e < 8; e++) {
            most = max(most, __float_as_uint(x[e]));
            if (i == 0) positive = max(positive, __float_as_int(x[e]));
        }
        if (i == 0) most = max(most & 0x7fffffffu, (uint32_t)positive);
        return __reduce_max_sync(0xffffffffu, most);
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

    /* False if this block is not to be updated so. What few updates need is read from now each time, for want of
     * registers. */
    __device__ __forceinline__ bool update(const adamod__coef_f32 &k, const array_step &now, uint32_t key) {
        const uint32_t lane = threadIdx.x % 32;
        float factor[STATES], next[STATES][8];
        bool good = true;
#pragma unroll
        for (int i = 0; i < STATES; i++) {
            good = good && adamod__q8_is_quick(scale[i], i);
            factor[i] = adamod__q8_quick_factor(scale[i], i);
        }
        shape_gradients(k.gscale, now);
        uint32_t least = ~0u;
#pragma unroll
        for (int e = 0; e < 8; e++) {
            const int u = e / 4, j = e % 4;
            element<quick> x = {};
            x.p.x = p[u].get(j);
            x.g.x = g[u].get(j);
            if (has(0)) x.m.x = decode(codes[0][u], j, factor[0], 0);
            if (has(1)) x.v.x = decode(codes[1][u], j, factor[1], 1);
            if (has(2)) x.s.x = decode(codes[2][u], j, factor[2], 2);
            x = quick_rule::run(x, &k);
            p[u].set(j, x.p.x, 0);
            next[0][e] = x.m.x;
            next[1][e] = x.v.x;
            next[2][e] = x.s.x;
            if (has(1)) least = min(least, __float_as_uint(x.v.x) - 1);
        }
        const uint32_t hash[2] = {adamod__random_hash(4 * lane, key), adamod__random_hash(128 + 4 * lane, key)};
#pragma unroll
        for (int i = 0; i < STATES; i++) {
            if (!has(i)) continue;
            scale[i] = adamod__q8_scale(largest(next[i], i));
            good = good && adamod__q8_is_quick(scale[i], i);
            encode(next[i], hash, i);
        }
        if (has(1)) good = good && quick_squares(least);
        return __all_sync(0xffffffffu, good);
    }
};

/* The blocks that begin at element at and every warps blocks from there on, up to element last; those whose bit is set
 * in left are. (That call is after all others, so that what they keep in registers need not survive it.) */
template <class RULE>
static __device__ __forceinline__ void update_left_q8(const view &v, uint32_t tensor, int64_t at, int64_t last,
                                                      uint32_t left) {
    const int64_t stride = (int64_t)blockDim.x / 32 * Q8_BLOCK;
    for (; at < last && left; at += stride, left >>= 1) {
        if (left & 1) update_any_q8<RULE>(v, tensor, at, last);
    }
}

/* Which of a warp's blocks in a tile are left to the slow way, a bit for each. */
template <class RULE, class CUT>
static __device__ __forceinline__ uint32_t update_tile_q8(const view &v, uint32_t tensor, int64_t at, int64_t last) {
    enum { WARPS = CUT::threads / 32, ROUNDS = CUT::tile / (WARPS * Q8_BLOCK) };
    static_assert(ROUNDS < 32, "a bit for each");
    const device_tensor &t = v.tensors[tensor];
    /* whole blocks of this warp's */
    const int n = t.path == PATH_Q8 && last > at ? (int)((last - at - 1) / (WARPS * Q8_BLOCK)) + 1 : 0;
    if (n > 0) place_q8(t, at).prefetch(RULE::states);
    wait_for_prepare();
    if (v.shared->skip) return 0;
    const array_step &now = v.now[tensor];
    const adamod__coef_f32 k = now.narrow;
    if (!quick_numbers(k)) return ~0u;
    uint32_t key = adamod__block_key(now.key, at), left = ~0u;
    for (int round = 0; round < n; round++) {
        const place_q8 place(t, at);
        block_q8<RULE, CUT::hint> x;
        x.load(place);
        at += WARPS * Q8_BLOCK;
        if (CUT::stay && round + 1 < n) place_q8(t, at).prefetch(RULE::states);
        if (x.update(k, now, key)) {
            x.store(place);
            left ^= 1u << round;
        }
        key = adamod__block_key((uint64_t)key << 32, WARPS * Q8_BLOCK);
    }
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
            if (taken) update_any<RULE>(v, a.tensor, first, whole ? first + CUT::tile : count);
        }
        if (next >= n_tiles) break;
        i = next;
        tile = ahead;
    }
    if (!a.begun) wait_for_prepare(); /* or the next launch might come before prepare is done */
}

/* States in 8 bits: a block of threads for each tile. */
template <class RULE, class CUT>
static __global__ void __launch_bounds__(CUT::threads, CUT::blocks)
    update_q8_kernel(const __grid_constant__ view v, const piece *tiles) {
    const piece tile = tiles[blockIdx.x];
    const int64_t first = (int64_t)tile.index * CUT::tile, count = v.tensors[tile.tensor].count;
    const int64_t last = count - first < CUT::tile ? count : first + CUT::tile;
    const int64_t at = first + threadIdx.x / 32 * Q8_BLOCK;
    uint32_t left = ~0u;
    if constexpr (sizeof(typename RULE::R) == 4) {
        const int64_t whole = first + (last - first) / Q8_BLOCK * Q8_BLOCK;
        left = v.tensors[tile.tensor].g ? update_tile_q8<RULE, CUT>(v, tile.tensor, at, whole) : 0;
    }
    wait_for_prepare(); /* or the next launch might come before prepare is done */
    if (v.shared->skip || !v.tensors[tile.tensor].g) return;
    update_left_q8<RULE>(v, tile.tensor, at, last, left);
}

/* The same with statistics. A block of threads takes a chunk, a warp BLOCK elements of it at a time, so that sums come
 * in the library's order. */
template <class RULE, bool Q8>
static __global__ void __launch_bounds__(UPDATE_THREADS)
    collect_kernel(const __grid_constant__ view v, int variant, int f64) {
    typedef typename RULE::R R;
    __shared__ shared_counts counts;
    __shared__ rounds<2> shared;
    const piece c = v.chunks[blockIdx.x];
    const device_tensor &t = v.tensors[c.tensor];
    if (v.shared->skip || t.variant != variant || (t.p_type == ADAMOD_F64) != (f64 != 0)) return;
    if ((t.state_type == ADAMOD_Q8) != Q8) return;
    if (threadIdx.x == 0) v.sums[2 * blockIdx.x] = v.sums[2 * blockIdx.x + 1] = 0;
    if (!t.g) return;
    counts.clear();
    const array_step &now = v.now[c.tensor];
    const typename RULE::K k = real<R>::of(now);
    const int64_t first = c.index * v.chunk, last = first + v.chunk < t.count ? first + v.chunk : t.count;
    const int warps = UPDATE_THREADS / 32, warp = (int)threadIdx.x / 32, lane = (int)threadIdx.x % 32;
    double grads = 0, updates = 0;
    int round = 0;
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
                counts.add(v, (double)x.eta, (double)x.step);
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
    __syncthreads();
    counts.flush(&v.counts[t.group]);
    if (threadIdx.x != 0) return;
    v.sums[2 * blockIdx.x] = grads;
    v.sums[2 * blockIdx.x + 1] = updates;
}

/* ---- launches ---- */

template <class RULE, class CUT, bool Q8>
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
    if constexpr (Q8) (void)cudaLaunchKernelEx(&config, update_q8_kernel<RULE, CUT>, *v, c->tiles);
    else (void)cudaLaunchKernelEx(&config, update_kernel<RULE, CUT>, *v, c->tiles, c->n_tiles);
}

template <class RULE, bool Q8> static void launch_collect(const view *v, const update_class *c, cudaStream_t stream) {
    collect_kernel<RULE, Q8><<<(unsigned)v->n_chunks, UPDATE_THREADS, 0, stream>>>(*v, c->variant, c->f64);
}

template <class RULE, class CUT, bool Q8> static constexpr const void *kernel_of() {
    if constexpr (Q8) return (const void *)update_q8_kernel<RULE, CUT>;
    else return (const void *)update_kernel<RULE, CUT>;
}

template <class RULE, class CUT, bool Q8> static constexpr variant_launch make_launch(const char *name) {
    return variant_launch{kernel_of<RULE, CUT, Q8>(),
                          launch_update<RULE, CUT, Q8>,
                          launch_collect<RULE, Q8>,
                          CUT::threads,
                          CUT::tile,
                          CUT::stay && !Q8,
                          name};
}

template <class RULE> static constexpr variant_launch make_variant() {
    return make_launch<RULE, standard_cut, false>("");
}

static const variant_launch *const variants[2][RULE_COUNT] = {
    {
#define RULE(name) name##_variants_f32,
#include "../../rules/list.inc.h"
#undef RULE
    },
    {
#define RULE(name) name##_variants_f64,
#include "../../rules/list.inc.h"
#undef RULE
    },
};

/* Those whose states can be kept in 8 bits: see adamod__has_q8. */
static const variant_launch *q8_launch(int rule, int f64) {
    static const variant_launch launches[2][3] = {
        {make_launch<adamod_rule_f32, q8_cut, true>(""), make_launch<adam_rule_f32, q8_cut, true>(""),
         make_launch<sgd_momentum_rule_f32, q8_cut, true>("")},
        {make_launch<adamod_rule_f64, q8_cut, true>(""), make_launch<adam_rule_f64, q8_cut, true>(""),
         make_launch<sgd_momentum_rule_f64, q8_cut, true>("")}};
    return &launches[f64][rule == RULE_adamod ? 0 : rule == RULE_adam ? 1 : 2];
}

#define NAME_TUNING(threads, groups, blocks, hint, stay)                                                               \
#threads " threads, " #groups " groups, " #blocks " blocks, " #hint ", stay " #stay
#define TUNING(...) make_launch<adamod_rule_f32, cut<__VA_ARGS__>, false>(NAME_TUNING(__VA_ARGS__)),
#define Q8_TUNING(...) make_launch<adamod_rule_f32, cut<__VA_ARGS__>, true>("q8, " NAME_TUNING(__VA_ARGS__)),
static const variant_launch tunings[] = {TUNINGS(TUNING)};
static const variant_launch q8_tunings[] = {Q8_TUNINGS(Q8_TUNING)};

static const variant_launch *tuning_at(int index, int q8) {
    const int n = (int)(q8 ? sizeof q8_tunings / sizeof *q8_tunings : sizeof tunings / sizeof *tunings);
    if (index < 0 || index >= n) return NULL;
    return q8 ? &q8_tunings[index] : &tunings[index];
}

const char *cuda_tuning(int index, int q8) {
    const variant_launch *found = tuning_at(index, q8);
    return found ? found->name : NULL;
}

static const variant_launch *launch_of(int rule, int tuning, int f64, int q8, int variant) {
    const variant_launch *tuned = rule == RULE_adamod && !f64 ? tuning_at(tuning, q8) : NULL;
    if (tuned) return tuned;
    return q8 ? q8_launch(rule, f64) : &variants[f64][rule][variant];
}

int64_t cuda_tile(int rule, int tuning, const device_tensor *t) {
    return launch_of(rule, tuning, t->p_type == ADAMOD_F64, t->state_type == ADAMOD_Q8, t->variant)->tile;
}

cudaError_t cuda_choose(int rule, int tuning, int processors, update_class *c) {
    int blocks = 1;
    c->launch = launch_of(rule, tuning, c->f64, c->q8, c->variant);
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
