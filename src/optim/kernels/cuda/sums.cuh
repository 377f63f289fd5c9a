/* Two sums over each tensor, of what formulas leave with SUMS_FLAG set: see ../../sums.c. */
#ifndef ADAMOD_CUDA_SUMS_CUH
#define ADAMOD_CUDA_SUMS_CUH

#include "optim/kernels/cuda/joins.cuh"
#include "optim/kernels/cuda/update_any.cuh"

/* Elements of arrays that all have the type of computation: nothing in between keeps loads from being under way together. */
template <class RULE>
static __device__ __forceinline__ element<typename RULE::R> load_plain(const device_tensor &t, const array_step &now,
                                                                       const typename RULE::K &k, int64_t i) {
    typedef typename RULE::R R;
    element<R> x = {};
    x.p = ((const R *)t.p)[i];
    x.g = shape_gradient(((const R *)t.g)[i], x.p, k, now.transform);
    if (RULE::states & STATE_M) x.m = ((const R *)t.state[0])[i];
    if (RULE::states & STATE_V) x.v = ((const R *)t.state[1])[i];
    if (RULE::states & STATE_S) x.s = ((const R *)t.state[2])[i];
    if (RULE::states & STATE_T) x.t = ((const R *)t.state[3])[i];
    if (RULE::states & STATE_U) x.u = ((const R *)t.state[4])[i];
    return x;
}

template <bool SQUARES, class R>
static __device__ __forceinline__ void add_element(double (&sum)[2], const element<R> &x) {
    sum[0] += SQUARES ? (double)x.eta * (double)x.eta : (double)x.eta;
    sum[1] += SQUARES ? (double)x.step * (double)x.step : (double)x.step;
}

/* The sums of blocks, a warp for each; so many blocks of threads share a chunk. */
template <class RULE, bool SQUARES>
static __global__ void __launch_bounds__(UPDATE_THREADS)
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
    const int warps = UPDATE_THREADS / 32, lane = (int)threadIdx.x % 32;
    const int64_t number = blockIdx.x % (unsigned)tiles * warps + threadIdx.x / 32, block = first + number * BLOCK;
    if (block >= last) return;
    const int type = sizeof(R) == 8 ? ADAMOD_F64 : ADAMOD_F32;
    const bool plain = t.p_type == type && t.g_type == type && t.state_type == type;
    double sum[2] = {0, 0};
    if (plain && block + BLOCK <= last) {
#pragma unroll 8
        for (int r = 0; r < BLOCK; r += 32) {
            add_element<SQUARES>(sum, update_element<RULE>(load_plain<RULE>(t, now, k, block + r + lane), k));
        }
    } else {
        for (int r = lane; r < BLOCK && block + r < last; r += 32) {
            R before;
            const element<R> x = load_element<RULE, false>(t, now, k, block + r, &before);
            add_element<SQUARES>(sum, update_element<RULE>(x, k));
        }
    }
    double *to = v.block_sums + 2 * (first_block(v, c.tensor, first, chunk) + number);
    sum[0] = sum_lanes(sum[0]);
    sum[1] = sum_lanes(sum[1]);
    if (lane == 0) to[0] = sum[0], to[1] = sum[1];
}

enum { JOIN_WARPS = 8 };

/* Those of chunks, a warp for each. */
static __global__ void __launch_bounds__(32 * JOIN_WARPS) join_kernel(const __grid_constant__ view v) {
    __shared__ double numbers[JOIN_WARPS][ORDERED];
    const int64_t chunk = blockIdx.x * (int64_t)JOIN_WARPS + threadIdx.x / 32;
    if (v.shared->skip || chunk >= v.n_chunks) return;
    const piece c = v.chunks[chunk];
    const device_tensor &t = v.tensors[c.tensor];
    const int64_t first = c.index * v.chunk, last = first + v.chunk < t.count ? first + v.chunk : t.count;
    if (t.g) join_blocks(v, c.tensor, chunk, first, last, numbers[threadIdx.x / 32]);
}

template <bool SQUARES, class... RULES>
static void run_sums(const view *v, cudaStream_t stream, int f64, rule_variants<RULES...>) {
    int variant = 0;
    const int tiles = (int)((v->chunk + UPDATE_THREADS / 32 * BLOCK - 1) / (UPDATE_THREADS / 32 * BLOCK));
    const unsigned blocks = (unsigned)v->n_chunks * (unsigned)tiles;
    (sums_kernel<RULES, SQUARES><<<blocks, UPDATE_THREADS, 0, stream>>>(*v, variant++, f64, tiles), ...);
}

static void run_join(const view *v, cudaStream_t stream) {
    join_kernel<<<(unsigned)((v->n_chunks + JOIN_WARPS - 1) / JOIN_WARPS), 32 * JOIN_WARPS, 0, stream>>>(*v);
}

#endif
