/* A CTA takes tiles of ROWS queries of a head (forward, dq) or ROWS keys of a head (dk and dv), one after the other. One warp
 * loads what a tile needs by TMA, a block of keys or queries at a time, in a pipeline; two warpgroups compute, each for 64
 * rows. Scores are products of two tiles in shared memory; weights and gradients of scores stay in registers, as operand A
 * of the next product. Backward computes scores twice, once for dq and once for dk and dv, so that each sum has one
 * owner and one order.
 *
 * Lengths are known on the device only, so a kernel before lists the tiles, those with most work first. */
#ifndef ADAMOD_NN_CUDA_HOPPER_LONG_ATTENTION_PARTS_H
#define ADAMOD_NN_CUDA_HOPPER_LONG_ATTENTION_PARTS_H

#include "nn/backend/cuda/hopper/long_attention.h"
#include "nn/backend/cuda/attention_call.cuh"
#include "nn/backend/cuda/hopper/launch.cuh"
#include "nn/backend/cuda/hopper/ptx.cuh"
#include "nn/backend/cuda/norm_line.cuh"

enum {
    ROWS = 128,              /* of a tile: 64 for each of two warpgroups */
    CONSUMERS = 2,           /* warpgroups that compute */
    CONSUMER_WARPS = 8,      /* the same in warps */
    BLOCK = 3 * WARPGROUP,   /* threads */
    STAGES = 4,              /* of a pipeline: blocks of two turns are in use, two more are on their way */
    LIST_BLOCK = 1024,       /* threads of the kernel before */
    CLEARED_ROWS = 64,       /* rows of a CTA of that kernel */
    SHORTEST = 64,           /* the mean length from which these kernels are faster */
    QUERIES = 64,            /* of a block, for dk and dv */
    STATS = QUERIES + 2,     /* that are loaded for it, from an even row on: TMA wants 16 bytes */
    STATS_ROOM = 80,         /* for them, in multiples of 128 bytes */
    PRODUCER_REGISTERS = 40, /* setmaxnreg: 40 + 2 * 232 = 504, of the 512 that three warpgroups may have */
    CONSUMER_REGISTERS = 232,
};

/* ROWS queries or keys of a sequence, from `first` on. */
struct alignas(16) tile {
    int q0, nq, k0, nk;
    int first, there, unused[2]; /* there 0: the list has ended */
};

/* Statistics of a head begin at a multiple of 16 bytes, as TMA wants them. */
static inline __host__ __device__ int64_t stat_rows(int64_t queries) { return parts(queries, 2) * 2; }

struct stat {
    float log, dot; /* of a query: log2 of the sum of its exponentials; dy . y */
};

struct work {
    CUtensorMap q, k, v, dy, stats; /* k, v: boxes of a block, or of ROWS for dk and dv; q and dy the other way round */
    attention<bf16> a;
    const tile *tiles;
    int64_t n; /* tiles in the list, with those that are not there */
    const stat *stat;
    int64_t sums_stride;
};

__device__ static inline float exp2_fast(float x) {
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

constexpr float LOG2E = 1.4426950408889634f;

/* ---- tiles ---- */

__device__ static inline tile load_tile(const tile *from) {
    tile t;
    const int4 a = reinterpret_cast<const int4 *>(from)[0], b = reinterpret_cast<const int4 *>(from)[1];
    t.q0 = a.x, t.nq = a.y, t.k0 = a.z, t.nk = a.w, t.first = b.x, t.there = b.y;
    return t;
}

/* A CTA's tiles, one after the other, each for a head. The next one is on its way. */
struct tile_walk {
    const tile *tiles;
    int heads, end, i;
    tile next;
    __device__ tile_walk(const work &w, int n) : tiles(w.tiles), heads(n), end((int)w.n * n), i((int)blockIdx.x) {
        load(i);
    }
    __device__ void load(int j) {
        if (j < end) next = load_tile(tiles + j / heads);
    }
    __device__ bool more(void) const { return i < end; }
    __device__ void advance(void) { i += (int)gridDim.x; }
    __device__ tile take(void) {
        const tile t = next;
        load(i + (int)gridDim.x);
        return t;
    }
    __device__ int head(void) const { return i % heads; }
    __device__ int number(void) const { return i / heads; } /* in the list */
};

/* Keys before this one are seen by query j. */
__device__ static inline int limit_of(bool causal, const tile &t, int j) {
    return causal ? min(t.nk, t.nk - t.nq + j + 1) : t.nk;
}

/* Keys that any query of the tile sees. */
__device__ static inline int keys_seen(bool causal, const tile &t) {
    return max(0, limit_of(causal, t, min(t.first + ROWS, t.nq) - 1));
}

/* Blocks of queries that see keys of the tile: [begin, end). */
struct query_blocks {
    int begin, end;
    __device__ query_blocks(bool causal, const tile &t) {
        const int first = causal ? max(0, t.first - (t.nk - t.nq)) : 0;
        begin = min(first, t.nq) / QUERIES;
        end = (t.nq + QUERIES - 1) / QUERIES;
    }
};

/* The two warpgroups begin their products in turns, so that one computes weights while the other's products run. */
struct turns {
    int warpgroup;
    __device__ explicit turns(int of) : warpgroup(of) {
        if (warpgroup == 1) order_arrive(0);
    }
    __device__ void begin(void) const { order_wait(warpgroup); }
    __device__ void pass(void) const { order_arrive(1 - warpgroup); }
    /* Takes the turn that the other warpgroup passed last. */
    __device__ void end(void) const {
        if (warpgroup == 0) order_wait(0);
    }
};

/* ---- products ---- */

/* Known to the compiler to be the same in all threads of a warp, so that addresses made of it are in uniform registers. */
__device__ static inline int this_warpgroup(void) { return __shfl_sync(0xffffffffu, (int)threadIdx.x / WARPGROUP, 0); }

/* Tiles have D / 64 subtiles of 64 columns, one after the other, each swizzled. Addresses are in shared memory. */

/* d = a b^T: a has 64 rows of a tile of A_ROWS, b has N. */
template <int D, int A_ROWS, int N> __device__ static inline void scores(float (&d)[N / 8][4], uint32_t a, uint32_t b) {
    const uint64_t a0 = wgmma_descriptor(a, SW128_ATOM, 16), b0 = wgmma_descriptor(b, SW128_ATOM, 16);
#pragma unroll
    for (int k = 0; k < D / 16; k++) {
        const uint32_t column = (uint32_t)(k % 4 * 32);
        wgmma_ss<0, 0>(d, descriptor_advance(a0, (uint32_t)(k / 4 * A_ROWS * SW128_ROW) + column),
                       descriptor_advance(b0, (uint32_t)(k / 4 * N * SW128_ROW) + column), k > 0);
    }
}

/* scores() with a in registers. */
template <int D, int N>
__device__ static inline void scores(float (&d)[N / 8][4], const uint32_t (&a)[D / 16][4], uint32_t b) {
    const uint64_t b0 = wgmma_descriptor(b, SW128_ATOM, 16);
#pragma unroll
    for (int k = 0; k < D / 16; k++)
        wgmma_rs<0>(d, a[k], descriptor_advance(b0, (uint32_t)(k / 4 * N * SW128_ROW + k % 4 * 32)), k > 0);
}

/* d += a b: a in registers, K columns; b is a tile of K rows and D columns. */
template <int D, int K>
__device__ static inline void add_product(float (&d)[D / 8][4], const uint32_t (&a)[K / 16][4], uint32_t b) {
    const uint64_t b0 = wgmma_descriptor(b, SW128_ATOM, K * SW128_ROW);
#pragma unroll
    for (int k = 0; k < K / 16; k++) wgmma_rs<1>(d, a[k], descriptor_advance(b0, (uint32_t)(k * 16 * SW128_ROW)), 1);
}

/* Converts accumulators to operand A of the next wgmma. */
template <int N> __device__ static inline void narrow_all(uint32_t (&to)[N / 16][4], const float (&x)[N / 8][4]) {
#pragma unroll
    for (int k = 0; k < N / 16; k++) {
#pragma unroll
        for (int i = 0; i < 4; i++)
            to[k][i] = narrow_pair(x[2 * k + i / 2][i % 2 * 2], x[2 * k + i / 2][i % 2 * 2 + 1]);
    }
}

template <int N> __device__ static inline void fence_one(float (&x)[N][4]) {
    wgmma_fence_operand(reinterpret_cast<float(&)[N * 4]>(x));
}

template <int N> __device__ static inline void fence_one(uint32_t (&x)[N][4]) {
#pragma unroll
    for (int i = 0; i < N * 4; i++) asm volatile("" : "+r"(x[i / 4][i % 4])::"memory");
}

/* Registers of products, before they begin and after they end. */
template <typename... Arrays> __device__ static inline void fence_all(Arrays &...x) { (fence_one(x), ...); }

__device__ static inline float quad_sum(float x) {
    x += __shfl_xor_sync(0xffffffffu, x, 1);
    return x + __shfl_xor_sync(0xffffffffu, x, 2);
}

__device__ static inline float quad_max(float x) {
    x = fmaxf(x, __shfl_xor_sync(0xffffffffu, x, 1));
    return fmaxf(x, __shfl_xor_sync(0xffffffffu, x, 2));
}

/* Row in the tile of x[...][2 * half], and the first column of x[j]. */
__device__ static inline int row_of(int half) {
    return (int)threadIdx.x / 32 * 16 + (int)threadIdx.x % 32 / 4 + 8 * half;
}
__device__ static inline int col_of(int j) { return 8 * j + (int)threadIdx.x % 4 * 2; }

/* ---- results ---- */

/* A warp's 16 rows and 64 columns on their way to memory. */
typedef bf16 warp_rows[16 * SW128_COLS];

/* Stores the warp's 16 rows of which `n` are there, from `to` on. */
template <int D>
__device__ static inline void store_result(bf16 *to, int64_t stride, int n, const float (&x)[D / 8][4],
                                           warp_rows &out) {
    const int lane = (int)threadIdx.x % 32, pack = lane % 8;
#pragma unroll
    for (int part = 0; part < D / 64; part++) {
        __syncwarp();
#pragma unroll
        for (int j = 0; j < 8; j += 2) {
            uint32_t m[4];
#pragma unroll
            for (int i = 0; i < 4; i++)
                m[i] = narrow_pair(x[part * 8 + j + i / 2][i % 2 * 2], x[part * 8 + j + i / 2][i % 2 * 2 + 1]);
            stmatrix_x4(out + swizzled(lane % 16, j + lane / 16), m);
        }
        __syncwarp();
#pragma unroll
        for (int i = 0; i < 4; i++) {
            const int row = lane / 8 + 4 * i;
            if (row >= n) continue;
            *reinterpret_cast<uint4 *>(to + row * stride + part * 64 + pack * 8) =
                *reinterpret_cast<const uint4 *>(out + swizzled(row, pack));
        }
    }
}

/* The sums over a tile's rows, by column: first of each warp's 16. */
template <int D> struct row_sums { float warp[CONSUMER_WARPS][D]; };

__device__ static inline void consumers_sync(void) { asm volatile("bar.sync 5, 256;" ::: "memory"); }

/* Rows from `n` on are 0 in x. */
template <int D> __device__ static inline void store_row_sums(float *to, const float (&x)[D / 8][4], row_sums<D> &s) {
    const int lane = (int)threadIdx.x % 32, warp = (int)threadIdx.x / 32;
    consumers_sync(); /* the last ones have been read */
#pragma unroll
    for (int j = 0; j < D / 8; j++) {
#pragma unroll
        for (int i = 0; i < 2; i++) {
            float sum = x[j][i] + x[j][i + 2];
            for (int step = 4; step < 32; step *= 2) sum += __shfl_xor_sync(0xffffffffu, sum, step);
            if (lane < 4) s.warp[warp][8 * j + 2 * lane + i] = sum;
        }
    }
    consumers_sync();
    if (threadIdx.x >= D) return;
    float sum = 0;
    for (int w = 0; w < CONSUMER_WARPS; w++) sum += s.warp[w][threadIdx.x];
    to[threadIdx.x] = sum;
}

/* x = factor x, and 0 in rows from n on; n counts from the tile's first row. */
template <int D> __device__ static inline void finish(float (&x)[D / 8][4], float factor, int n) {
#pragma unroll
    for (int i = 0; i < D / 2; i++) {
        const float f = row_of(i / 2 % 2) < n ? factor : 0;
        x[i / 4][i % 4] = f == 0 ? 0 : x[i / 4][i % 4] * f;
    }
}

/* ---- kernels' common parts ---- */

__device__ static inline bool is_producer(void) {
    const bool is = threadIdx.x >= CONSUMERS * WARPGROUP;
    if (is) asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"((int)PRODUCER_REGISTERS));
    else asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"((int)CONSUMER_REGISTERS));
    return is;
}

/* Loads a tile of D columns and `rows` rows. */
template <int D>
__device__ static inline void load_rows(uint32_t to, const CUtensorMap *map, int column, int row, int rows,
                                        uint32_t barrier) {
#pragma unroll
    for (int part = 0; part < D / 64; part++)
        tma_load(to + (uint32_t)(part * rows * SW128_ROW), map, {column + part * 64, row, 0, 0}, barrier);
}

/* ---- launches: long_attention.cu ---- */

struct list_work {
    attention<bf16> a;
    tile *q_tiles, *k_tiles; /* k_tiles NULL: not wanted */
    int64_t n;               /* of each list */
    stat *stat;              /* NULL: not wanted */
};
/* The kernel before: lists tiles, clears rows in no range, and finds the statistics of queries. */
void list_attention(const nn_call *c, const list_work &w);

/* Makes the tensor maps of w, whose boxes have these rows. */
void map_attention(work &w, int query_rows, int key_rows);

int multiprocessors(void);
void launch_attention(const nn_call *c, const void *kernel, int64_t blocks, int threads, size_t bytes,
                      const void *work);

/* One CTA for each multiprocessor. */
template <typename Memory>
static inline void run_tiles(const nn_call *c, const void *kernel, const work &w, int64_t heads) {
    static_assert(sizeof(Memory) + SW128_ATOM <= 227 * 1024, "shared memory");
    launch_attention(c, kernel, min(w.n * heads, (int64_t)multiprocessors()), BLOCK, sizeof(Memory) + SW128_ATOM, &w);
}

#endif
