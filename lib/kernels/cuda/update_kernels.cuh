/* The kernels of the element-wise update: which path each tile takes. */
#ifndef ADAMOD_CUDA_UPDATE_KERNELS_CUH
#define ADAMOD_CUDA_UPDATE_KERNELS_CUH

#include "kernels/cuda/collect.cuh"
#include "kernels/cuda/update_any.cuh"
#include "kernels/cuda/update_bf16.cuh"
#include "kernels/cuda/update_four.cuh"
#include "kernels/cuda/update_q8.cuh"

/* False if no path takes the whole tile. */
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

/* There are at most as many blocks as tiles. */
template <class RULE, class CUT>
static __global__ void __launch_bounds__(CUT::threads, CUT::blocks)
    update_kernel(const __grid_constant__ view v, const piece *tiles, int64_t n_tiles) {
    int64_t i = blockIdx.x;
    piece tile = tiles[i];
    site<RULE> a(v);
    bool taken = true;
    while (taken) {
        const int64_t next = i + gridDim.x;
        const piece ahead = next < n_tiles ? tiles[next] : tile; /* loaded before it is needed */
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

/* A block of threads has a tile of blocks. */
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
    if constexpr (sizeof(typename RULE::R) != 4 || RULE::has & HAS_Q8_EACH) {
        /* one by one */
    } else if constexpr (KIND == KIND_Q8) {
        if (given) left = update_q8<RULE, CUT>(v, tile.tensor, at, whole);
    } else {
        if (given) left = update_bf16<RULE, CUT>(v, tile.tensor, at, whole);
    }
    wait_for_prepare(); /* or the next launch might come before prepare is done */
    if (v.shared->skip || !given) return;
    /* At the end, so that no registers are kept across the call. */
    for (; at < last && left; at += CUT::step, left >>= 1) {
        if (!(left & 1)) continue;
        if (KIND == KIND_Q8) update_any_q8<RULE>(v, tile.tensor, at, last);
        else update_any<RULE>(v, tile.tensor, at + threadIdx.x % 32, last - at < Q8_BLOCK ? last : at + Q8_BLOCK, 32);
    }
}

/* The update with statistics: a block of threads takes a chunk. */
template <class RULE, bool Q8>
static __global__ void __launch_bounds__(UPDATE_THREADS)
    collect_kernel(const __grid_constant__ view v, int variant, int f64, int kind) {
    typedef typename RULE::R R;
    __shared__ shared_counts counts;
    __shared__ rounds<2> shared;
    const piece c = v.chunks[blockIdx.x];
    const device_tensor &t = v.tensors[c.tensor];
    if (v.shared->skip || t.variant != variant || (t.p_type == ADAMOD_F64) != (f64 != 0)) return;
    if (kind_of(&t, RULE::has & HAS_BF16) != kind) return;
    if (threadIdx.x == 0) v.sums[2 * blockIdx.x] = v.sums[2 * blockIdx.x + 1] = 0;
    if (!t.g) return;
    const array_step &now = v.now[c.tensor];
    const typename RULE::K k = real<R>::of(now);
    const int64_t first = c.index * v.chunk, last = first + v.chunk < t.count ? first + v.chunk : t.count;
    states_q8<RULE> next;
    collect_elements<R>(
        v, t.group, first, last, &counts, &shared, v.sums + 2 * blockIdx.x,
        [&](int64_t block, uint32_t at) {
            collected<R> y;
            y.x = load_element<RULE, Q8>(t, now, k, block + at, &y.before);
            y.g = y.x.g;
            y.x = update_element<RULE>(y.x, k);
            store_element<RULE, Q8>(t, now, block, at, y.x);
            if (Q8) next.keep((int)at % Q8_BLOCK / 32, y.x);
            y.still = (RULE::states & STATE_V) && y.x.v == 0;
            return y;
        },
        [&](int64_t block, int r) { /* after the last elements of a block in 8 bits */
                                    if (Q8 && ((r + 32) % Q8_BLOCK == 0 || block + r + 32 >= last))
                                        next.store(t, now, block + r / Q8_BLOCK * Q8_BLOCK, last);
        });
}

#endif
