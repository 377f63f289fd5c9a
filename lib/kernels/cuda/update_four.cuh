/* Updates of whole tiles, four elements of a thread at a time, for the types of a path. */
#ifndef ADAMOD_CUDA_UPDATE_FOUR_CUH
#define ADAMOD_CUDA_UPDATE_FOUR_CUH

#include "kernels/cuda/cuts.cuh"
#include "kernels/cuda/formulas.cuh"

/* Four elements in memory and as numbers. Caches are told that nothing is read again before the next step. */
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
    /* add: see f32_to_bf16. The other half of the word stays: it may not have been read yet. */
    __device__ __forceinline__ void set(int j, float x, uint32_t add) {
        uint32_t &word = j < 2 ? raw.x : raw.y;
        const uint32_t half = f32_to_bf16(x, add);
        word = j % 2 ? (word & 0xffffu) | half << 16 : (word & 0xffff0000u) | half;
    }
    __device__ __forceinline__ void store(void *array, int64_t i) const {
        __stcs((uint2 *)((uint16_t *)array + i), raw);
    }
};

/* The types of a path: of p (the master, if there is one), the gradient and states. */
template <int PATH> struct path_types {
    enum { master = PATH == PATH_MASTER || PATH == PATH_COPY, random = PATH == PATH_BF16 };
    enum { p = random ? ADAMOD_BF16 : ADAMOD_F32, s = p };
    enum { g = random || PATH == PATH_MASTER ? ADAMOD_BF16 : ADAMOD_F32 };
};

/* The tensor of a block: its arrays, known before prepare is done, and the coefficients of its update. To save
 * registers, values that a tile needs once are loaded where they are used. */
template <class RULE> struct site {
    const view &v;
    uint32_t tensor;
    bool begun, fresh; /* prepare is done; the coefficients are not read yet */
    bool transform;
    void *p; /* the master, or the parameter itself */
    const void *g;
    void *state[KERNEL_STATES];
    typename RULE::K k;

    __device__ __forceinline__ explicit site(const view &all) : v(all), tensor(~0u), begun(false), fresh(true) {}

    __device__ __forceinline__ void go_to(uint32_t to) {
        if (to == tensor) return;
        const device_tensor &t = v.tensors[to];
        tensor = to;
        fresh = true;
        p = t.master ? t.master : t.p;
        g = t.g;
        for (int i = 0; i < KERNEL_STATES; i++) state[i] = t.state[i];
        /* Rules with a queue have launches between prepare and this one. */
        if ((RULE::states & STATE_S) && t.queue) {
            const int bytes = t.state_type == ADAMOD_BF16 ? 2 : (int)sizeof(typename RULE::R);
            state[2] = (char *)t.state[2] + v.now[to].turn * bytes;
        }
    }

    /* Waits for prepare and reads its results; false: the step is not taken. */
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

/* Updates a tile from element first on. A warp has 128 adjacent elements a group. False if the step is not taken. */
template <class RULE, class CUT, int PATH>
static __device__ __forceinline__ bool update_tile(site<RULE> &a, int64_t first) {
    typedef path_types<PATH> types;
    enum { GROUPS = CUT::groups };
    four<types::p> p[GROUPS];
    four<types::g> g[GROUPS];
    four<types::s> m[GROUPS], v[GROUPS], s[GROUPS], t4[GROUPS], u5[GROUPS];
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
        if (RULE::states & STATE_T) t4[u].load(a.state[3], i);
        if (RULE::states & STATE_U) u5[u].load(a.state[4], i);
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
            if (RULE::states & STATE_T) x.t = t4[u].get(j);
            if (RULE::states & STATE_U) x.u = u5[u].get(j);
            x = update_element<RULE>(x, a.k);
            p[u].set(j, x.p, hash * ADAMOD__RANDOM_FACTOR(j, 0) >> 16);
            if (types::master) half[u].set(j, x.p, to_nearest(x.p));
            if (RULE::states & STATE_M) m[u].set(j, x.m, hash * ADAMOD__RANDOM_FACTOR(j, 1) >> 16);
            if (RULE::states & STATE_V) v[u].set(j, x.v, hash * ADAMOD__RANDOM_FACTOR(j, 2) >> 16);
            if (RULE::states & STATE_S) s[u].set(j, x.s, hash * ADAMOD__RANDOM_FACTOR(j, 3) >> 16);
            if (RULE::states & STATE_T) t4[u].set(j, x.t, hash * ADAMOD__RANDOM_FACTOR(j, 4) >> 16);
            if (RULE::states & STATE_U) u5[u].set(j, x.u, hash * ADAMOD__RANDOM_FACTOR(j, 5) >> 16);
        }
        p[u].store(a.p, i);
        if (types::master) half[u].store(a.v.tensors[a.tensor].p, i);
        if (RULE::states & STATE_M) m[u].store(a.state[0], i);
        if (RULE::states & STATE_V) v[u].store(a.state[1], i);
        if (RULE::states & STATE_S) s[u].store(a.state[2], i);
        if (RULE::states & STATE_T) t4[u].store(a.state[3], i);
        if (RULE::states & STATE_U) u5[u].store(a.state[4], i);
    }
    return true;
}

#endif
