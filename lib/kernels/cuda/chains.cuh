/* Matrix products in f32 or f64. Every number is one chain of fused multiply-adds in the order of the inner dimension, with
 * the bits of optim/matmul.h. A block of threads has a tile of the result, a thread a square of it. */
#ifndef ADAMOD_CUDA_CHAINS_CUH
#define ADAMOD_CUDA_CHAINS_CUH

#include "kernels/cuda/device.cuh"

enum { CHAIN_THREADS = 256, CHAIN_DEPTH = 16 };

/* A thread has four squares of HALF rows and columns, half the tile's side apart; a row of a square is 16 bytes. */
template <class R> struct chain_cut;
template <> struct chain_cut<float> {
    enum { TILE = 128, HALF = 4 };
    typedef float4 piece;
};
template <> struct chain_cut<double> {
    enum { TILE = 64, HALF = 2 };
    typedef double2 piece;
};

template <class R> static __host__ __device__ inline int64_t chain_tiles(int64_t n) {
    return (n + chain_cut<R>::TILE - 1) / chain_cut<R>::TILE;
}

/* Element (i, k) is at data[i * row + k * col]; row or col is 1. */
template <class R> struct chain_operand {
    const R *data;
    int64_t row, col;
};

/* c = beta c + (alpha a) b, with c m x n, a m x k, b k x n, and c neither a nor b. If symmetric, the lower half is
 * computed, and stored on both sides of the diagonal. */
template <class R> struct chain_product {
    chain_operand<R> a, b;
    R *c;
    int64_t m, n, k;
    R alpha, beta; /* beta 0: c is not read */
    bool symmetric;
};

template <class R> struct chain_memory {
    enum { ROW = chain_cut<R>::TILE + 16 / (int)sizeof(R) };
    alignas(16) R operand[2][2][CHAIN_DEPTH][ROW]; /* [now or next][a or b] */
};

static __device__ __forceinline__ float multiply_add_of(float a, float b, float c) { return __fmaf_rn(a, b, c); }
static __device__ __forceinline__ double multiply_add_of(double a, double b, double c) { return __fma_rn(a, b, c); }

static __device__ __forceinline__ void unpack(const float4 &p, float *x) {
    x[0] = p.x, x[1] = p.y, x[2] = p.z, x[3] = p.w;
}
static __device__ __forceinline__ void unpack(const double2 &p, double *x) { x[0] = p.x, x[1] = p.y; }

/* A thread's part of CHAIN_DEPTH k of an operand with count rows, from row first on. */
template <class R> struct chain_copy {
    enum { TILE = chain_cut<R>::TILE, EACH = TILE * CHAIN_DEPTH / CHAIN_THREADS };
    const R *from;
    int64_t rows, depth; /* left of the operand */
    int64_t col, step;   /* elements from one k to the next; from one of the thread's elements to its next */
    int i, k, next_i, next_k;
    R x[EACH];

    __device__ chain_copy(const chain_operand<R> &o, int64_t first, int64_t count, int64_t K)
        : rows(count - first), depth(K), col(o.col) {
        const int t = (int)threadIdx.x;
        const bool along = o.col == 1; /* whether consecutive k are adjacent */
        i = along ? t / CHAIN_DEPTH : t % TILE;
        k = along ? t % CHAIN_DEPTH : t / TILE;
        next_i = along ? CHAIN_THREADS / CHAIN_DEPTH : 0;
        next_k = along ? 0 : CHAIN_THREADS / TILE;
        from = o.data + (first + i) * o.row + k * o.col;
        step = next_i * o.row + next_k * o.col;
    }
    __device__ __forceinline__ void load(int64_t at, R factor) {
#pragma unroll
        for (int e = 0; e < EACH; e++) {
            const bool there = i + e * next_i < rows && at + k + e * next_k < depth;
            x[e] = there ? from[at * col + e * step] * factor : (R)0;
        }
    }
    template <int ROW> __device__ __forceinline__ void store(R (&to)[CHAIN_DEPTH][ROW]) const {
#pragma unroll
        for (int e = 0; e < EACH; e++) to[k + e * next_k][i + e * next_i] = x[e];
    }
};

template <class R> struct chain_sums {
    enum { TILE = chain_cut<R>::TILE, HALF = chain_cut<R>::HALF, EACH = 2 * HALF };
    R x[EACH][EACH];

    /* The place of the thread's number e along a side of the tile. */
    static __device__ __forceinline__ int at(int thread, int e) {
        return (e / HALF) * (TILE / 2) + thread * HALF + e % HALF;
    }
    static __device__ __forceinline__ int across() { return (int)threadIdx.x % 16; }
    static __device__ __forceinline__ int down() { return (int)threadIdx.x / 16; }

    __device__ __forceinline__ void add(const R *a, const R *b) {
        typedef typename chain_cut<R>::piece piece;
        R left[EACH], right[EACH];
        for (int h = 0; h < 2; h++) {
            unpack(*(const piece *)(a + at(down(), h * HALF)), left + h * HALF);
            unpack(*(const piece *)(b + at(across(), h * HALF)), right + h * HALF);
        }
#pragma unroll
        for (int i = 0; i < EACH; i++) {
#pragma unroll
            for (int j = 0; j < EACH; j++) x[i][j] = multiply_add_of(left[i], right[j], x[i][j]);
        }
    }
    /* f(number, row, column) for the thread's numbers. */
    template <class F> __device__ __forceinline__ void each(const chain_product<R> &p, int64_t row, int64_t col, F f) {
#pragma unroll
        for (int i = 0; i < EACH; i++) {
            const int64_t r = row + at(down(), i);
#pragma unroll
            for (int j = 0; j < EACH; j++) {
                const int64_t c = col + at(across(), j);
                if (r < p.m && c < p.n && (!p.symmetric || r >= c)) f(x[i][j], r, c);
            }
        }
    }
};

/* The tile whose first element is (row, col). */
template <class R>
static __device__ void multiply_chains(const chain_product<R> &p, int64_t row, int64_t col, chain_memory<R> *memory) {
    chain_copy<R> a(p.a, row, p.m, p.k), b({p.b.data, p.b.col, p.b.row}, col, p.n, p.k);
    chain_sums<R> sums = {};
    if (p.beta != 0) sums.each(p, row, col, [&](R &x, int64_t r, int64_t c) { x = p.c[r * p.n + c] * p.beta; });
    a.load(0, p.alpha);
    b.load(0, 1);
    for (int64_t at = 0, turn = 0; at < p.k; at += CHAIN_DEPTH, turn ^= 1) {
        auto &now = memory->operand[turn];
        a.store(now[0]);
        b.store(now[1]);
        __syncthreads(); /* one is enough: the memory overwritten next was read before it */
        if (at + CHAIN_DEPTH < p.k) {
            a.load(at + CHAIN_DEPTH, p.alpha);
            b.load(at + CHAIN_DEPTH, 1);
        }
        if (p.k - at >= CHAIN_DEPTH) {
#pragma unroll
            for (int k = 0; k < CHAIN_DEPTH; k++) sums.add(now[0][k], now[1][k]);
        } else {
            for (int k = 0; k < (int)(p.k - at); k++) sums.add(now[0][k], now[1][k]);
        }
    }
    sums.each(p, row, col, [&](R &x, int64_t r, int64_t c) {
        p.c[r * p.n + c] = x;
        if (p.symmetric && r != c) p.c[c * p.n + r] = x;
    });
}

#endif
