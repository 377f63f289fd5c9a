/* Two sums over each tensor, of eta and step that formulas set under SUMS_FLAG (optim/sums.c). */
#ifndef ADAMOD_CUDA_SUMS_CUH
#define ADAMOD_CUDA_SUMS_CUH

#include "kernels/cuda/joins.cuh"
#include "kernels/cuda/update_any.cuh"
#include "kernels/cuda/update_four.cuh"

/* An element of a known type, so that loads run together. */
template <int TYPE> static __device__ __forceinline__ float load_known(const void *array, int64_t i) {
    return TYPE == ADAMOD_BF16 ? bf16_to_f32(((const uint16_t *)array)[i]) : ((const float *)array)[i];
}

template <class RULE, int PATH>
static __device__ __forceinline__ element<float> load_path(const device_tensor &t, int64_t i) {
    typedef path_types<PATH> types;
    element<float> x = {};
    if (types::master) x.p = follow_bf16(t.master[i], load_known<ADAMOD_BF16>(t.p, i));
    else x.p = load_known<types::p>(t.p, i);
    x.g = load_known<types::g>(t.g, i);
    if (RULE::states & STATE_M) x.m = load_known<types::s>(t.state[0], i);
    if (RULE::states & STATE_V) x.v = load_known<types::s>(t.state[1], i);
    if (RULE::states & STATE_S) x.s = load_known<types::s>(t.state[2], i);
    if (RULE::states & STATE_T) x.t = load_known<types::s>(t.state[3], i);
    if (RULE::states & STATE_U) x.u = load_known<types::s>(t.state[4], i);
    return x;
}

template <bool SQUARES, class R>
static __device__ __forceinline__ void add_element(double (&sum)[2], const element<R> &x) {
    sum[0] = SQUARES ? add_square(sum[0], x.eta) : sum[0] + (double)x.eta;
    sum[1] = SQUARES ? add_square(sum[1], x.step) : sum[1] + (double)x.step;
}

/* Sums of a whole block of elements, by a warp. */
template <class RULE, bool SQUARES, int PATH>
static __device__ __forceinline__ void sum_whole(double (&sum)[2], const device_tensor &t, const typename RULE::K &k,
                                                 bool transform, int64_t block) {
    const int64_t first = block + threadIdx.x % 32;
#pragma unroll
    for (int from = 0; from < BLOCK; from += 32 * 8) {
        element<float> x[8];
#pragma unroll
        for (int r = 0; r < 8; r++) x[r] = load_path<RULE, PATH>(t, first + from + 32 * r);
#pragma unroll
        for (int r = 0; r < 8; r++) {
            x[r].g = shape_gradient(x[r].g, x[r].p, k, transform);
            add_element<SQUARES>(sum, update_element<RULE>(x[r], k));
        }
    }
}

/* Sums of a last block, and of other types. */
template <class RULE, bool SQUARES, bool Q8>
static __device__ __forceinline__ void sum_any(double (&sum)[2], const device_tensor &t, const array_step &now,
                                               const typename RULE::K &k, int64_t block, int64_t last) {
    typedef typename RULE::R R;
    for (int64_t i = block + threadIdx.x % 32; i < block + BLOCK && i < last; i += 32) {
        R before;
        const element<R> x = load_element<RULE, Q8>(t, now, k, i, &before);
        add_element<SQUARES>(sum, update_element<RULE>(x, k));
    }
}

template <class RULE, bool SQUARES>
static __device__ __forceinline__ void sum_block(double (&sum)[2], const device_tensor &t, const array_step &now,
                                                 const typename RULE::K &k, int64_t block, int64_t last) {
    if constexpr (sizeof(typename RULE::R) == 4) {
        if (block + BLOCK <= last) {
            switch (t.path) {
                case PATH_F32: return sum_whole<RULE, SQUARES, PATH_F32>(sum, t, k, now.transform, block);
                case PATH_MASTER: return sum_whole<RULE, SQUARES, PATH_MASTER>(sum, t, k, now.transform, block);
                case PATH_BF16: return sum_whole<RULE, SQUARES, PATH_BF16>(sum, t, k, now.transform, block);
                default: break;
            }
        }
    }
    if constexpr (RULE::has & HAS_ANY_Q8) {
        if (t.state_type == ADAMOD_Q8) return sum_any<RULE, SQUARES, true>(sum, t, now, k, block, last);
    }
    sum_any<RULE, SQUARES, false>(sum, t, now, k, block, last);
}

/* Sums of blocks, a warp for each; `tiles` blocks of threads share a chunk. */
template <class RULE, bool SQUARES>
static __global__ void __launch_bounds__(UPDATE_THREADS, 3)
    sums_kernel(const __grid_constant__ view v, int variant, int f64, int tiles) {
    typedef typename RULE::R R;
    const int64_t chunk = blockIdx.x / (unsigned)tiles;
    const piece c = v.chunks[chunk];
    const device_tensor &t = v.tensors[c.tensor];
    if (v.shared->skip || t.variant != variant || (t.p_type == ADAMOD_F64) != (f64 != 0) || !t.g) return;
    const array_step &now = v.now[c.tensor];
    typename RULE::K k = real<R>::of(now);
    k.flag |= SUMS_FLAG;
    const int64_t first = c.index * v.chunk, last = first + v.chunk < t.count ? first + v.chunk : t.count;
    const int warps = UPDATE_THREADS / 32;
    double *to = v.block_sums + 2 * first_block(v, c.tensor, first, chunk);
    for (int64_t b = blockIdx.x % (unsigned)tiles * warps + threadIdx.x / 32; first + b * BLOCK < last;
         b += tiles * warps) {
        double sum[2] = {0, 0};
        sum_block<RULE, SQUARES>(sum, t, now, k, first + b * BLOCK, last);
        sum[0] = sum_lanes(sum[0]);
        sum[1] = sum_lanes(sum[1]);
        if (threadIdx.x % 32 == 0) to[2 * b] = sum[0], to[2 * b + 1] = sum[1];
    }
}

enum { JOIN_WARPS = 8 };

/* Sums of chunks, a warp for each. */
static __global__ void __launch_bounds__(32 * JOIN_WARPS) join_kernel(const __grid_constant__ view v) {
    __shared__ double numbers[JOIN_WARPS][ORDERED];
    const int64_t chunk = blockIdx.x * (int64_t)JOIN_WARPS + threadIdx.x / 32;
    if (v.shared->skip || chunk >= v.n_chunks) return;
    const piece c = v.chunks[chunk];
    const device_tensor &t = v.tensors[c.tensor];
    const int64_t first = c.index * v.chunk, last = first + v.chunk < t.count ? first + v.chunk : t.count;
    if (t.g) join_blocks(v, c.tensor, chunk, first, last, numbers[threadIdx.x / 32]);
}

static bool has_variant(const view *v, int variant, int f64) {
    bool has = false;
    for (int64_t i = 0; i < v->n && !has; i++) {
        const device_tensor &t = v->host_tensors[i];
        has = t.variant == variant && (t.p_type == ADAMOD_F64) == (f64 != 0);
    }
    return has;
}

/* Launches only variants that occur: an empty launch takes time, too. */
template <class RULE, bool SQUARES> static void run_sums_of(const view *v, cudaStream_t stream, int f64, int variant) {
    const int64_t tile = 2 * UPDATE_THREADS / 32 * BLOCK;
    const int tiles = (int)((v->chunk + tile - 1) / tile);
    const unsigned blocks = (unsigned)v->n_chunks * (unsigned)tiles;
    if (has_variant(v, variant, f64))
        sums_kernel<RULE, SQUARES><<<blocks, UPDATE_THREADS, 0, stream>>>(*v, variant, f64, tiles);
}

template <bool SQUARES, class... RULES>
static void run_sums(const view *v, cudaStream_t stream, int f64, rule_variants<RULES...>) {
    int variant = 0;
    (run_sums_of<RULES, SQUARES>(v, stream, f64, variant++), ...);
}

template <class RULE> static void run_sums_if_cautious(const view *v, cudaStream_t stream, int f64, int variant) {
    if constexpr (RULE::is_cautious) run_sums_of<RULE, true>(v, stream, f64, variant);
}

/* Cautious variants only. */
template <class... RULES>
[[maybe_unused]] static void run_cautious_sums(const view *v, cudaStream_t stream, int f64, rule_variants<RULES...>) {
    int variant = 0;
    (run_sums_if_cautious<RULES>(v, stream, f64, variant++), ...);
}

static void run_join(const view *v, cudaStream_t stream) {
    join_kernel<<<(unsigned)((v->n_chunks + JOIN_WARPS - 1) / JOIN_WARPS), 32 * JOIN_WARPS, 0, stream>>>(*v);
}

#endif
