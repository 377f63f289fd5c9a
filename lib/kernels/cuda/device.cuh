/* Shared by kernels: elements of any type, random rounding, sums in the library's order. */
#ifndef ADAMOD_CUDA_DEVICE_CUH
#define ADAMOD_CUDA_DEVICE_CUH

#include "kernels/q8.h"
#include "kernels/cuda/cuda_backend.h"

#include <math.h>

/* ---- elements ---- */

static __device__ __forceinline__ float bf16_to_f32(uint16_t x) { return __uint_as_float((uint32_t)x << 16); }

/* Adds `add` to the bits and cuts the lower half. NaNs and infinities stay. */
static __device__ __forceinline__ uint16_t f32_to_bf16(float value, uint32_t add) {
    const uint32_t x = __float_as_uint(value), magnitude = x & 0x7fffffffu;
    const uint32_t rounded = (magnitude >= 0x7f800000u ? x : x + add) >> 16;
    return (uint16_t)(rounded | (magnitude > 0x7f800000u ? 0x40u : 0u));
}

/* The `add` that rounds to nearest, ties to even. */
static __device__ __forceinline__ uint32_t to_nearest(float value) {
    return ((__float_as_uint(value) >> 16) & 1u) + 0x7fffu;
}

/* Through f32, which holds every bf16 and f16; an f64 is rounded to f32 if that is the type of computation. */
template <class R> static __device__ __forceinline__ R load_as(const void *array, int type, int64_t i) {
    switch (type) {
        case ADAMOD_F32: return (R)((const float *)array)[i];
        case ADAMOD_F64: return (R)((const double *)array)[i];
        case ADAMOD_BF16: return (R)bf16_to_f32(((const uint16_t *)array)[i]);
        default: return (R)adamod__f16_to_f32(((const uint16_t *)array)[i]);
    }
}

static __device__ __forceinline__ uint16_t nearest(int type, float x) {
    return type == ADAMOD_BF16 ? f32_to_bf16(x, to_nearest(x)) : adamod__f32_to_f16(x);
}

/* A parameter that is not its master rounded, bit for bit, was changed by the caller: the update starts from the parameter. */
static __device__ __forceinline__ float follow_bf16(float master, float param) {
    const uint32_t rounded = (uint32_t)f32_to_bf16(master, to_nearest(master)) << 16;
    return rounded == __float_as_uint(param) ? master : param;
}

/* Rounds at random. Slot 0 is the parameter, 1 + i state i; at is the element's place in its block, which begins at first. */
static __device__ __forceinline__ void store_random(void *array, int type, int64_t first, uint32_t at, float x,
                                                    uint64_t key, int slot) {
    const uint32_t bits = adamod__random_bits(at, slot, adamod__block_key(key, first)) >> 16;
    ((uint16_t *)array)[first + at] = type == ADAMOD_BF16 ? f32_to_bf16(x, bits) : adamod__f32_to_f16_random(x, bits);
}

template <class R> struct real;
template <> struct real<float> {
    enum { type = ADAMOD_F32 };
    typedef adamod__coef_f32 coef;
    static __device__ __forceinline__ const coef &of(const array_step &now) { return now.narrow; }
};
template <> struct real<double> {
    enum { type = ADAMOD_F64 };
    typedef adamod__coef_f64 coef;
    static __device__ __forceinline__ const coef &of(const array_step &now) { return now.wide; }
};

#define NARROW(name) (float)c.name,
static __device__ adamod__coef_f32 narrowed(const adamod__coef_f64 &c) {
    return adamod__coef_f32{ADAMOD_COEFS(NARROW) c.flag};
}
#undef NARROW

[[maybe_unused]] static __device__ void set_coefs(array_step *now, const adamod__coef_f64 &c) {
    now->wide = c;
    now->narrow = narrowed(c);
}

/* Stores a state in its type, R or bf16. */
template <class R>
static __device__ __forceinline__ void store_state(const device_tensor &t, int i, int64_t offset, int64_t first,
                                                   uint32_t at, R x, uint64_t key) {
    if (t.state_type == ADAMOD_BF16) {
        store_random((uint16_t *)t.state[i] + offset, ADAMOD_BF16, first, at, (float)x, key, 1 + i % KERNEL_STATES);
    } else {
        ((R *)t.state[i])[offset + first + at] = x;
    }
}

template <class R, bool Q8>
static __device__ __forceinline__ R load_state(const device_tensor &t, int i, int64_t offset, int64_t at) {
    if (!Q8) return load_as<R>(t.state[i], t.state_type, offset + at);
    const int kind = adamod__q8_kind(t.has_sign, i, false);
    const q8_block b = adamod__q8_block(t.scale[i][at / Q8_BLOCK], kind);
    return (R)adamod__q8_decode(((const uint8_t *)t.state[i])[at], &b, kind);
}

/* The scale of a warp's block; most: of the lane. */
static __device__ __forceinline__ float warp_q8_scale(uint32_t most) {
    return adamod__q8_scale(__reduce_max_sync(0xffffffffu, most));
}

/* Stores state i in 8 bits, for the block of elements first to last: lane l has l, l + 32, ... */
static __device__ __forceinline__ void store_state_q8(const device_tensor &t, int i, int64_t first, int64_t last,
                                                      const float *x, const array_step &now) {
    const int lane = (int)threadIdx.x % 32, kind = adamod__q8_kind(t.has_sign, i, now.narrow.idle == 0);
    const uint32_t random_key = adamod__block_key(now.key, first);
    uint32_t most = 0;
#pragma unroll
    for (int r = 0; r < Q8_BLOCK / 32; r++) {
        if (first + 32 * r + lane < last) most = max(most, __float_as_uint(x[r]) & 0x7fffffffu);
    }
    const float scale = warp_q8_scale(most);
    const q8_block b = adamod__q8_block(scale, kind);
#pragma unroll
    for (int r = 0; r < Q8_BLOCK / 32; r++) {
        const int64_t to = first + 32 * r + lane;
        if (to >= last) continue;
        const uint32_t random = adamod__random_bits((uint32_t)(32 * r + lane), 1 + i, random_key);
        const uint32_t code = adamod__q8_encode(adamod__q8_within(x[r]), &b, random, kind);
        ((uint8_t *)t.state[i])[to] = b.lost ? 0 : (uint8_t)code;
    }
    if (lane == 0) t.scale[i][first / Q8_BLOCK] = scale;
}

/* Stores the parameter in its type, and the master if there is one. */
template <class R>
static __device__ __forceinline__ void store_param(const device_tensor &t, int64_t first, uint32_t at, R x,
                                                   uint64_t key) {
    const int64_t i = first + at;
    if (t.master) {
        t.master[i] = (float)x;
        ((uint16_t *)t.p)[i] = nearest(t.p_type, (float)x);
    } else if (t.p_type == real<R>::type) {
        ((R *)t.p)[i] = x;
    } else {
        store_random(t.p, t.p_type, first, at, (float)x, key, 0);
    }
}

/* The parameter before the update: see follow_bf16. f64 has no masters. */
template <class R> static __device__ __forceinline__ R load_param(const device_tensor &t, int64_t i) {
    if (sizeof(R) == 4 && t.master && nearest(t.p_type, t.master[i]) == ((const uint16_t *)t.p)[i])
        return (R)t.master[i];
    return load_as<R>(t.p, t.p_type, i);
}

/* The gradient as the rule sees it: scaled, clipped, with L2 decay. */
template <class R, class K> static __device__ __forceinline__ R clip_and_decay(R g, R p, const K &k) {
    R x = g > k.clip ? k.clip : g;
    x = x < -k.clip ? -k.clip : x;
    return k.l2 != 0 ? x + k.l2 * p : x;
}
template <class R, class K> static __device__ __forceinline__ R shape_gradient(R g, R p, const K &k, bool transform) {
    return transform ? clip_and_decay(g * k.gscale, p, k) : g * k.gscale;
}

/* The gradient from memory, as the rule sees it. TYPE: its type if known, or -1. */
template <class R, int TYPE = -1>
static __device__ __forceinline__ R gradient_of(const device_tensor &t, const array_step &now, int64_t i) {
    const typename real<R>::coef &k = real<R>::of(now);
    const R p = k.l2 != 0 ? load_param<R>(t, i) : (R)0;
    return shape_gradient(load_as<R>(t.g, TYPE < 0 ? t.g_type : TYPE, i), p, k, now.transform);
}

[[maybe_unused]] static __device__ __forceinline__ const double *options_of(const view &v, int64_t tensor) {
    return v.effective + v.tensors[tensor].group * OPT_COUNT;
}

/* ---- launches that overlap ---- */

/* Called in the launch before: the next may start, up to its wait. */
static __device__ __forceinline__ void let_next_start() {
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

/* Called in the next launch: waits until the one before has ended and its writes are visible. */
static __device__ __forceinline__ void wait_for_prepare() {
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

/* ---- asynchronous copies to shared memory ---- */

/* Copies 16 bytes. FIRST: the L2 cache evicts them first. */
template <bool FIRST> static __device__ __forceinline__ void copy_async(void *to, const void *from) {
    const uint32_t shared = (uint32_t)__cvta_generic_to_shared(to);
    if (FIRST) {
        uint64_t policy;
        asm("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(policy));
        asm volatile("cp.async.cg.shared.global.L2::cache_hint [%0], [%1], 16, %2;" ::"r"(shared), "l"(from),
                     "l"(policy));
    } else {
        asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(shared), "l"(from));
    }
}

/* Commits the copies since the last call as a group. */
static __device__ __forceinline__ void end_of_copies() { asm volatile("cp.async.commit_group;" ::: "memory"); }

/* Waits for all of this thread's groups but the last GROUPS. */
template <int GROUPS> static __device__ __forceinline__ void wait_for_copies() {
    asm volatile("cp.async.wait_group %0;" ::"n"(GROUPS) : "memory");
}

/* ---- sums ---- */

/* The library keeps 32 running sums, which are a warp's lanes here, and adds them up in this order. All lanes call it;
 * the result is lane 0's. */
static __device__ __forceinline__ double sum_lanes(double x) {
    const unsigned all = 0xffffffffu;
    x += __shfl_down_sync(all, x, 8);
    x += __shfl_down_sync(all, x, 16);
    x += __shfl_down_sync(all, x, 1);
    x += __shfl_down_sync(all, x, 2);
    x += __shfl_down_sync(all, x, 4);
    return x;
}

/* The larger; a NaN stays. */
static __device__ __forceinline__ double larger(double a, double b) { return a != a || a > b ? a : b; }

static __device__ __forceinline__ double largest_lane(double x) {
    for (int step = 16; step > 0; step /= 2) x = larger(x, __shfl_down_sync(0xffffffffu, x, step));
    return x;
}

/* Adds the lanes' x in order, as a plain loop over the elements does; every lane has the result. */
static __device__ __forceinline__ double add_in_order(double sum, double x, int lanes) {
    for (int i = 0; i < 32; i++) {
        const double y = __shfl_sync(0xffffffffu, x, i);
        if (i < lanes) sum += y;
    }
    return sum;
}

/* Adds the numbers of each warp in a round, in the warps' order. One barrier a round is enough, since a round's numbers are
 * overwritten after the barrier of the next. */
template <int N> struct rounds {
    double part[2][N][32];
    /* Called by all threads with lane 0's x of each warp. Thread 0 calls add for the first `active` warps. */
    template <class ADD> __device__ __forceinline__ void gather(int round, const double (&x)[N], int active, ADD add) {
        if (threadIdx.x % 32 == 0) {
            for (int j = 0; j < N; j++) part[round & 1][j][threadIdx.x / 32] = x[j];
        }
        __syncthreads();
        if (threadIdx.x != 0) return;
        for (int w = 0; w < active; w++) {
            for (int j = 0; j < N; j++) add(j, part[round & 1][j][w]);
        }
    }
};

/* Warps that have a block of BLOCK elements in the round that begins at element at. */
static __device__ __forceinline__ int active_warps(int64_t at, int64_t last) {
    const int64_t blocks = (last - at + BLOCK - 1) / BLOCK;
    const int warps = (int)blockDim.x / 32;
    return blocks < warps ? (int)blocks : warps;
}

/* The last i < n with first[i] <= x, of numbers that ascend. */
template <class T, class N> static __device__ __forceinline__ N find_in(const T *first, N n, T x) {
    N low = 0, high = n;
    while (high - low > 1) {
        const N middle = low + (high - low) / 2;
        if (first[middle] <= x) low = middle;
        else high = middle;
    }
    return low;
}

/* Row and column of a tile of a lower half, whose tiles are counted row by row. */
[[maybe_unused]] static __device__ __forceinline__ void half_tile(uint32_t tile, uint32_t *row, uint32_t *col) {
    uint32_t i = (uint32_t)((sqrtf(8.0f * (float)tile + 1) - 1) / 2);
    while (i * (i + 1) / 2 > tile) i--;
    while ((i + 1) * (i + 2) / 2 <= tile) i++;
    *row = i;
    *col = tile - i * (i + 1) / 2;
}

/* ---- statistics ---- */

static __device__ __forceinline__ unsigned long long order_bits(double x) {
    const unsigned long long bits = (unsigned long long)__double_as_longlong(x), sign = 1ull << 63;
    return bits & sign ? ~bits : bits | sign;
}

/* A thread's extremes. */
struct extremes {
    unsigned long long least[2] = {~0ull, ~0ull}, most[2] = {0, 0};
};

/* The counts of one chunk, by a block of threads. */
struct shared_counts : counts_of<unsigned> {
    __device__ __forceinline__ void count(const view &v, extremes *seen, int which, double value, bool still) {
        const float x = value > 3e38 ? 3e38f : (float)value;
        const unsigned bin = __float_as_uint(x) >> 19 & (FINE_BINS - 1);
        unsigned wide = v.bin[bin];
        if (wide < ADAMOD_HIST_BINS - 1 && x >= v.edge[wide + 1]) wide++;
        atomicAdd(&bins.fine[which][bin], 1u);
        atomicAdd(&bins.histogram[which][wide], 1u);
        if (still) atomicAdd(&bins.idle[which][wide], 1u);
        const unsigned long long bits = order_bits(value);
        if (bits < seen->least[which]) seen->least[which] = bits;
        if (bits > seen->most[which]) seen->most[which] = bits;
    }

    /* still: it never had a gradient. */
    __device__ __forceinline__ void add(const view &v, extremes *seen, double eta, double step, bool still) {
        if (!isfinite(eta) || !isfinite(step)) return;
        atomicAdd(&elements, 1u);
        if (step < eta) atomicAdd(&bounded, 1u);
        count(v, seen, 0, eta, still);
        count(v, seen, 1, step, still);
    }

    /* Checks one element: its parameter, and zeros or its states. */
    template <class R> __device__ __forceinline__ void look(R p, R m, R v, R s, R t, R u) {
        const bool states = isfinite(m) && isfinite(v) && isfinite(s) && isfinite(t) && isfinite(u);
        if (!isfinite(p) || !states) atomicAdd(&nonfinite, 1u);
    }

    /* Called by all threads. */
    __device__ void flush(const extremes &seen, device_counts *to) {
        for (int i = 0; i < 2; i++) {
            atomicMin(&least[i], seen.least[i]);
            atomicMax(&most[i], seen.most[i]);
        }
        __syncthreads();
        for (int i = (int)threadIdx.x; i < BINS; i += (int)blockDim.x) {
            const unsigned n = ((const unsigned *)&bins)[i];
            if (n) atomicAdd((unsigned long long *)&to->bins + i, (unsigned long long)n);
        }
        if (threadIdx.x != 0) return;
        atomicAdd(&to->elements, (unsigned long long)elements);
        atomicAdd(&to->bounded, (unsigned long long)bounded);
        atomicAdd(&to->nonfinite, (unsigned long long)nonfinite);
        for (int i = 0; i < 2; i++) {
            atomicMin(&to->least[i], least[i]);
            atomicMax(&to->most[i], most[i]);
        }
    }
};

#endif
