/* The update: one launch for all parameters of a kind, whatever their number and sizes.
 *
 * Memory is the limit, so what matters is that many wide loads are on their way at any time: blocks stay and take one
 * tile after the other, and each thread asks for all it needs of two groups of four elements before it computes. */
#define MAKE_VARIANTS
struct variant_launch;
template <class RULE> static constexpr variant_launch make_variant();

#include "backend.h"

/* How one formula is launched. */
struct variant_launch {
    const void *kernel;
    void (*update)(const view *v, const update_class *c, cudaStream_t stream);
    void (*collect)(const view *v, const update_class *c, cudaStream_t stream);
};

#include "formulas.cuh"

/* ---- four elements at a time ---- */

/* Four elements as they lie in memory, and as numbers. */
template <int TYPE> struct four;

template <> struct four<ADAMOD_F32> {
    float4 raw;
    __device__ __forceinline__ void load(const void *array, int64_t i) {
        raw = *(const float4 *)((const float *)array + i);
    }
    /* What is read but once, and after that not before the next step, need not push anything out of the caches. */
    __device__ __forceinline__ void load_once(const void *array, int64_t i) {
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
    __device__ __forceinline__ void store(void *array, int64_t i) const { *(float4 *)((float *)array + i) = raw; }
};

template <> struct four<ADAMOD_BF16> {
    uint2 raw;
    __device__ __forceinline__ void load(const void *array, int64_t i) {
        raw = *(const uint2 *)((const uint16_t *)array + i);
    }
    __device__ __forceinline__ void load_once(const void *array, int64_t i) {
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
    __device__ __forceinline__ void store(void *array, int64_t i) const { *(uint2 *)((uint16_t *)array + i) = raw; }
};

/* The types of a path. */
template <int PATH> struct path_types;
template <> struct path_types<PATH_F32> {
    enum { p = ADAMOD_F32, g = ADAMOD_F32, s = ADAMOD_F32, master = 0, random = 0 };
};
template <> struct path_types<PATH_MASTER> {
    enum { p = ADAMOD_F32, g = ADAMOD_BF16, s = ADAMOD_F32, master = 1, random = 0 };
};
template <> struct path_types<PATH_BF16> {
    enum { p = ADAMOD_BF16, g = ADAMOD_BF16, s = ADAMOD_BF16, master = 0, random = 1 };
};

/* The arrays of one tensor, as an update meets them; read once for all of its tiles. */
struct arrays {
    void *p, *out; /* the master, or the parameter itself; the parameter where there is a master */
    const void *g;
    void *state[3];
    uint64_t key;
    int64_t count;
    int path;
    bool transform;
};

template <class RULE>
static __device__ __forceinline__ arrays look_up(const view &v, uint32_t tensor, typename RULE::K *k) {
    const device_tensor &t = v.tensors[tensor];
    const array_step &now = v.now[tensor];
    arrays a;
    a.p = t.master ? t.master : t.p;
    a.out = t.p;
    a.g = t.g;
    for (int i = 0; i < 3; i++) a.state[i] = t.state[i];
    a.key = now.key;
    a.count = t.count;
    a.path = t.path;
    a.transform = now.transform;
    if ((RULE::states & STATE_S) && t.queue) {
        a.state[2] = (char *)t.state[2] + now.turn * (t.state_type == ADAMOD_BF16 ? 2 : (int)sizeof(typename RULE::R));
    }
    *k = real<typename RULE::R>::of(now);
    return a;
}

/* TILE elements from element first on, two groups of four for each thread. */
template <class RULE, int PATH>
static __device__ __forceinline__ void update_tile(const arrays &a, const typename RULE::K &k, int64_t first) {
    typedef path_types<PATH> types;
    enum { GROUPS = TILE / 4 / UPDATE_THREADS };
    four<types::p> p[GROUPS];
    four<types::g> g[GROUPS];
    four<types::s> m[GROUPS], v[GROUPS], s[GROUPS];
    const int64_t begin = first + 4 * threadIdx.x;
#pragma unroll
    for (int u = 0; u < GROUPS; u++) {
        const int64_t i = begin + u * 4 * UPDATE_THREADS;
        p[u].load(a.p, i);
        g[u].load_once(a.g, i);
        if (RULE::states & STATE_M) m[u].load(a.state[0], i);
        if (RULE::states & STATE_V) v[u].load(a.state[1], i);
        if (RULE::states & STATE_S) s[u].load(a.state[2], i);
    }
#pragma unroll
    for (int u = 0; u < GROUPS; u++) {
        const int64_t i = begin + u * 4 * UPDATE_THREADS;
        const int64_t block = i / BLOCK * BLOCK;
        const uint32_t at = (uint32_t)(i - block);
        const uint32_t key0 = types::random ? adamod__block_key(a.key, 0, block) : 0;
        const uint32_t key1 = types::random ? adamod__block_key(a.key, 1, block) : 0;
        four<ADAMOD_BF16> out = {};
#pragma unroll
        for (int j = 0; j < 4; j++) {
            element<float> x = {};
            x.p = p[u].get(j);
            x.g = shape_gradient(g[u].get(j), x.p, k, a.transform);
            if (RULE::states & STATE_M) x.m = m[u].get(j);
            if (RULE::states & STATE_V) x.v = v[u].get(j);
            if (RULE::states & STATE_S) x.s = s[u].get(j);
            x = update_element<RULE>(x, k);
            const uint32_t r0 = types::random ? adamod__random_bits(at + j, key0) : 0;
            const uint32_t r1 = types::random ? adamod__random_bits(at + j, key1) : 0;
            p[u].set(j, x.p, r0 & 0xffffu);
            if (types::master) out.set(j, x.p, to_nearest(x.p));
            if (RULE::states & STATE_M) m[u].set(j, x.m, r0 >> 16);
            if (RULE::states & STATE_V) v[u].set(j, x.v, r1 & 0xffffu);
            if (RULE::states & STATE_S) s[u].set(j, x.s, r1 >> 16);
        }
        p[u].store(a.p, i);
        if (types::master) out.store(a.out, i);
        if (RULE::states & STATE_M) m[u].store(a.state[0], i);
        if (RULE::states & STATE_V) v[u].store(a.state[1], i);
        if (RULE::states & STATE_S) s[u].store(a.state[2], i);
    }
}

/* ---- one element at a time, whatever the types ---- */

template <class RULE>
static __device__ __forceinline__ element<typename RULE::R> load_element(const view &v, const device_tensor &t,
                                                                         const array_step &now,
                                                                         const typename RULE::K &k, int64_t i,
                                                                         typename RULE::R *before) {
    typedef typename RULE::R R;
    element<R> x = {};
    x.p = load_param<R>(t, i);
    *before = x.p;
    x.g = shape_gradient(load_as<R>(t.g, t.g_type, i), x.p, k, now.transform);
    if (RULE::states & STATE_M) x.m = load_as<R>(t.state[0], t.state_type, i);
    if (RULE::states & STATE_V) x.v = load_as<R>(t.state[1], t.state_type, i);
    if (RULE::states & STATE_S) x.s = load_as<R>(t.state[2], t.state_type, now.turn + i);
    return x;
}

template <class RULE>
static __device__ __forceinline__ void store_element(const device_tensor &t, const array_step &now, int64_t block,
                                                     uint32_t at, const element<typename RULE::R> &x) {
    typedef typename RULE::R R;
    if (RULE::states & STATE_M) store_state<R>(t, 0, 0, block, at, x.m, now.key);
    if (RULE::states & STATE_V) store_state<R>(t, 1, 0, block, at, x.v, now.key);
    if (RULE::states & STATE_S) store_state<R>(t, 2, now.turn, block, at, x.s, now.key);
    store_param<R>(t, block, at, x.p, now.key);
}

template <class RULE>
static __device__ __noinline__ void update_any(const view &v, uint32_t tensor, int64_t first, int64_t last) {
    typedef typename RULE::R R;
    const device_tensor &t = v.tensors[tensor];
    const array_step &now = v.now[tensor];
    const typename RULE::K k = real<R>::of(now);
    for (int64_t i = first + threadIdx.x; i < last; i += UPDATE_THREADS) {
        R before;
        const int64_t block = i / BLOCK * BLOCK;
        const element<R> x = update_element<RULE>(load_element<RULE>(v, t, now, k, i, &before), k);
        store_element<RULE>(t, now, block, (uint32_t)(i - block), x);
    }
}

/* ---- kernels ---- */

template <class RULE, bool F32> struct tile_update {
    static __device__ __forceinline__ bool run(const arrays &a, const typename RULE::K &k, int64_t first) {
        switch (a.path) {
            case PATH_F32: update_tile<RULE, PATH_F32>(a, k, first); return true;
            case PATH_MASTER: update_tile<RULE, PATH_MASTER>(a, k, first); return true;
            case PATH_BF16: update_tile<RULE, PATH_BF16>(a, k, first); return true;
            default: return false;
        }
    }
};

template <class RULE> struct tile_update<RULE, false> {
    static __device__ __forceinline__ bool run(const arrays &, const typename RULE::K &, int64_t) { return false; }
};

template <class RULE>
static __global__ void __launch_bounds__(UPDATE_THREADS, 3)
    update_kernel(const __grid_constant__ view v, const piece *tiles, int64_t n_tiles) {
    if (v.shared->skip) return;
    int64_t i = blockIdx.x;
    if (i >= n_tiles) return;
    piece tile = tiles[i];
    typename RULE::K k;
    uint32_t tensor = ~tile.tensor;
    arrays a;
    for (;;) {
        const int64_t next = i + gridDim.x;
        const piece ahead = next < n_tiles ? tiles[next] : tile; /* asked for before it is needed */
        if (tile.tensor != tensor) {
            tensor = tile.tensor;
            a = look_up<RULE>(v, tensor, &k);
        }
        const int64_t first = (int64_t)tile.index * TILE, left = a.count - first;
        if (a.g) {
            const bool whole = left >= TILE;
            if (!whole || !tile_update<RULE, sizeof(typename RULE::R) == 4>::run(a, k, first)) {
                update_any<RULE>(v, tensor, first, whole ? first + TILE : a.count);
            }
        }
        if (next >= n_tiles) return;
        i = next;
        tile = ahead;
    }
}

/* The same with statistics. A block of threads takes a chunk, a warp BLOCK elements of it at a time, so that sums come
 * in the library's order. */
template <class RULE>
static __global__ void __launch_bounds__(UPDATE_THREADS)
    collect_kernel(const __grid_constant__ view v, int variant, int f64) {
    typedef typename RULE::R R;
    __shared__ shared_counts counts;
    __shared__ rounds<2> shared;
    const piece c = v.chunks[blockIdx.x];
    const device_tensor &t = v.tensors[c.tensor];
    if (v.shared->skip || t.variant != variant || (t.p_type == ADAMOD_F64) != (f64 != 0)) return;
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
        for (int r = 0; r < BLOCK && block + r < last; r += 32) {
            const int64_t i = block + r + lane;
            const int lanes = last - block - r < 32 ? (int)(last - block - r) : 32;
            double distance = 0;
            if (lane < lanes) {
                R before;
                element<R> x = load_element<RULE>(v, t, now, k, i, &before);
                sum[0] += (double)x.g * (double)x.g;
                x = update_element<RULE>(x, k);
                store_element<RULE>(t, now, block, (uint32_t)(r + lane), x);
                distance = (double)x.p - (double)before;
                counts.add(v, (double)x.eta, (double)x.step);
            }
            sum[1] = add_in_order(sum[1], distance * distance, lanes);
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

template <class RULE> static void launch_update(const view *v, const update_class *c, cudaStream_t stream) {
    const int64_t blocks = c->n_tiles < c->blocks ? c->n_tiles : c->blocks;
    update_kernel<RULE><<<(unsigned)blocks, UPDATE_THREADS, 0, stream>>>(*v, c->tiles, c->n_tiles);
}

template <class RULE> static void launch_collect(const view *v, const update_class *c, cudaStream_t stream) {
    collect_kernel<RULE><<<(unsigned)v->n_chunks, UPDATE_THREADS, 0, stream>>>(*v, c->variant, c->f64);
}

template <class RULE> static constexpr variant_launch make_variant() {
    return variant_launch{(const void *)update_kernel<RULE>, launch_update<RULE>, launch_collect<RULE>};
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

cudaError_t cuda_occupancy(int rule, const update_class *c, int *blocks) {
    return cudaOccupancyMaxActiveBlocksPerMultiprocessor(blocks, variants[c->f64][rule][c->variant].kernel,
                                                         UPDATE_THREADS, 0);
}

void cuda_update(const view *v, const update_class *c, cudaStream_t stream) {
    if (c->n_tiles > 0) variants[c->f64][v->rule][c->variant].update(v, c, stream);
}

void cuda_update_collect(const view *v, const update_class *c, cudaStream_t stream) {
    if (v->n_chunks > 0) variants[c->f64][v->rule][c->variant].collect(v, c, stream);
}
