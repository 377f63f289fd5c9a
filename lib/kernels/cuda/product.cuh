/* Products of bf16 matrices on tensor cores (mma.sync), summed in f32; a block of threads has a tile of the result.
 *
 * Operands are copied to shared memory PRODUCT_DEPTH deep at a time, while the last ones are multiplied. Chunks of 16 bytes
 * are swizzled within a row, so that a column of chunks of eight rows lies in different banks. */
#ifndef ADAMOD_CUDA_PRODUCT_CUH
#define ADAMOD_CUDA_PRODUCT_CUH

#include "kernels/cuda/device.cuh"

/* Four warps, each with a quarter of the tile. */
enum { PRODUCT_THREADS = 128, PRODUCT_TILE = 128, PRODUCT_DEPTH = 64, PRODUCT_STAGES = 3 };
enum { PRODUCT_WARP = PRODUCT_TILE / 2, PRODUCT_OPERAND = PRODUCT_TILE * PRODUCT_DEPTH * 2 };
enum { PRODUCT_SHARED = PRODUCT_STAGES * 2 * PRODUCT_OPERAND };
/* Floats of a row of a finished tile. */
enum { PRODUCT_ROW = PRODUCT_TILE + 8 };
static_assert(PRODUCT_TILE * PRODUCT_ROW * 4 <= PRODUCT_SHARED, "a finished tile takes the operands' place");

/* An operand of count rows or columns, K deep. Element (i, k) is at data[i * ld + k] or, if transposed, at data[k * ld +
 * i]. ld is a multiple of 8, data aligned to 16 bytes; elements between the end of a row and ld are 0. */
struct product_operand {
    const uint16_t *data;
    int64_t ld, count;
};

/* c = alpha a b^T + beta d; ld is a multiple of 8. If mirrored, c is symmetric, and the tile is stored on both sides of the
 * diagonal. */
struct product_result {
    uint16_t *c;
    const uint16_t *d;
    int64_t ld, rows, cols;
    float alpha, beta;
    bool mirrored;
};

/* ---- instructions ---- */

/* Copies 16 bytes, or zeros if they are not there. */
static __device__ __forceinline__ void copy_or_zero(uint32_t to, const void *from, bool there) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(from), "r"(there ? 16 : 0) : "memory");
}

/* Four matrices of 8 x 8; lane 8 i + r has the address of row r of matrix i. */
template <bool TRANSPOSED> static __device__ __forceinline__ void load_matrices(uint32_t (&m)[4], uint32_t row) {
    if (TRANSPOSED) {
        asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                     : "=r"(m[0]), "=r"(m[1]), "=r"(m[2]), "=r"(m[3])
                     : "r"(row)
                     : "memory");
    } else {
        asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                     : "=r"(m[0]), "=r"(m[1]), "=r"(m[2]), "=r"(m[3])
                     : "r"(row)
                     : "memory");
    }
}

/* c += a b, where a is 16 x 16 and b is 16 x 8. */
static __device__ __forceinline__ void multiply_add(float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
                 "{%0, %1, %2, %3};"
                 : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

/* Two numbers rounded to nearest, the first in the lower half. */
static __device__ __forceinline__ uint32_t pack_bf16(float low, float high) {
    uint32_t x;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(x) : "f"(high), "f"(low));
    return x;
}

/* ---- operands ---- */

/* A thread's copies of an operand: TILE rows of DEPTH or, if transposed, DEPTH rows of TILE. */
template <bool TRANSPOSED> struct operand_copy {
    enum { PIECES = TRANSPOSED ? PRODUCT_TILE / 8 : PRODUCT_DEPTH / 8, ROWS = PRODUCT_THREADS / PIECES };
    enum { TIMES = (TRANSPOSED ? PRODUCT_DEPTH : PRODUCT_TILE) / ROWS, BYTES = PIECES * 16 };
    static_assert(ROWS % 8 == 0, "a thread's pieces are exchanged alike");
    const uint16_t *from;
    int64_t ld, left, depth; /* left: rows of the operand from the tile's first on */
    uint32_t to;
    int row, at; /* row, and first element in it, of the thread's first piece */

    __device__ operand_copy(const product_operand &x, int64_t first, int64_t K) : ld(x.ld), depth(K) {
        const int piece = (int)threadIdx.x % PIECES;
        row = (int)threadIdx.x / PIECES;
        at = 8 * piece;
        to = (uint32_t)(row * BYTES + (piece ^ (row % 8)) * 16);
        from = TRANSPOSED ? x.data + row * ld + first + at : x.data + (first + row) * ld + at;
        left = x.count - first;
    }

    __device__ __forceinline__ void run(uint32_t shared, int64_t k) const {
#pragma unroll
        for (int i = 0; i < TIMES; i++) {
            const int r = row + i * ROWS;
            const bool there = TRANSPOSED ? k + r < depth && at < left : r < left && k + at < depth;
            const uint16_t *piece = TRANSPOSED ? from + (k + i * ROWS) * ld : from + i * ROWS * ld + k;
            copy_or_zero(shared + to + (uint32_t)(i * ROWS * BYTES), piece, there);
        }
    }
};

/* Loads a 16 x 16 matrix for multiply_add, as a or as two b: rows from row on, k from 16 step on. */
template <bool TRANSPOSED, bool IS_B>
static __device__ __forceinline__ void load_part(uint32_t (&m)[4], uint32_t shared, int row, int step) {
    const int lane = (int)threadIdx.x % 32, low = lane % 8, one = lane / 8 % 2, two = lane / 16;
    /* Matrices 1 and 2 are swapped between a and b. */
    const int more_rows = IS_B ? two : one, more_depth = IS_B ? one : two;
    if (TRANSPOSED) {
        const int k = 16 * step + 8 * more_depth + low, piece = row / 8 + more_rows;
        load_matrices<true>(m, shared + (uint32_t)(k * PRODUCT_TILE * 2 + (piece ^ low) * 16));
    } else {
        const int r = row + 8 * more_rows + low, piece = 2 * step + more_depth;
        load_matrices<false>(m, shared + (uint32_t)(r * PRODUCT_DEPTH * 2 + (piece ^ low) * 16));
    }
}

/* ---- a tile ---- */

enum { PRODUCT_PARTS = PRODUCT_WARP / 16 }; /* 16 rows or columns each */
typedef float product_sums[PRODUCT_PARTS][2 * PRODUCT_PARTS][4];

template <bool TA, bool TB>
static __device__ __forceinline__ void load_parts(uint32_t (&a)[PRODUCT_PARTS][4], uint32_t (&b)[PRODUCT_PARTS][4],
                                                  uint32_t shared, int step) {
    const int warp = (int)threadIdx.x / 32, row = warp / 2 * PRODUCT_WARP, col = warp % 2 * PRODUCT_WARP;
#pragma unroll
    for (int i = 0; i < PRODUCT_PARTS; i++) load_part<TA, false>(a[i], shared, row + 16 * i, step);
#pragma unroll
    for (int i = 0; i < PRODUCT_PARTS; i++) load_part<TB, true>(b[i], shared + PRODUCT_OPERAND, col + 16 * i, step);
}

/* The sums of a tile, K > 0 deep. Overwrites all of shared memory. */
template <bool TA, bool TB>
static __device__ __forceinline__ void multiply_tile(product_sums &sums, const product_operand &a,
                                                     const product_operand &b, int64_t row, int64_t col, int64_t K,
                                                     uint32_t shared) {
    enum { STEPS = PRODUCT_DEPTH / 16 };
    const operand_copy<TA> copy_a(a, row, K);
    const operand_copy<TB> copy_b(b, col, K);
    const int rounds = (int)((K + PRODUCT_DEPTH - 1) / PRODUCT_DEPTH);
    const auto ask = [&](int round) {
        const uint32_t to = shared + (uint32_t)(round % PRODUCT_STAGES * 2 * PRODUCT_OPERAND);
        if (round < rounds) {
            copy_a.run(to, (int64_t)round * PRODUCT_DEPTH);
            copy_b.run(to + PRODUCT_OPERAND, (int64_t)round * PRODUCT_DEPTH);
        }
        end_of_copies();
    };
    uint32_t part_a[2][PRODUCT_PARTS][4], part_b[2][PRODUCT_PARTS][4];
    for (int round = 0; round < PRODUCT_STAGES - 1; round++) ask(round);
    for (int round = 0; round < rounds; round++) {
        wait_for_copies<PRODUCT_STAGES - 2>();
        __syncthreads(); /* all copies are here, and the next stage is read */
        const uint32_t from = shared + (uint32_t)(round % PRODUCT_STAGES * 2 * PRODUCT_OPERAND);
        load_parts<TA, TB>(part_a[0], part_b[0], from, 0);
        ask(round + PRODUCT_STAGES - 1);
#pragma unroll
        for (int step = 0; step < STEPS; step++) {
            const int now = step % 2;
            if (step + 1 < STEPS) load_parts<TA, TB>(part_a[1 - now], part_b[1 - now], from, step + 1);
#pragma unroll
            for (int i = 0; i < PRODUCT_PARTS; i++) {
#pragma unroll
                for (int j = 0; j < PRODUCT_PARTS; j++) {
                    multiply_add(sums[i][2 * j], part_a[now][i], part_b[now][j][0], part_b[now][j][1]);
                    multiply_add(sums[i][2 * j + 1], part_a[now][i], part_b[now][j][2], part_b[now][j][3]);
                }
            }
        }
    }
    wait_for_copies<0>();
    __syncthreads();
}

/* Stores eight numbers of a row of c, `there` of which exist. */
static __device__ __forceinline__ void store_eight(const product_result &to, int64_t at, const float (&x)[8],
                                                   int64_t there) {
    uint32_t d[4] = {0, 0, 0, 0}, out[4];
    if (to.beta != 0) {
        const uint4 four = *(const uint4 *)(to.d + at);
        d[0] = four.x, d[1] = four.y, d[2] = four.z, d[3] = four.w;
    }
#pragma unroll
    for (int i = 0; i < 4; i++) {
        const float low = to.alpha * x[2 * i] + to.beta * __uint_as_float(d[i] << 16);
        const float high = to.alpha * x[2 * i + 1] + to.beta * __uint_as_float(d[i] & 0xffff0000u);
        out[i] = pack_bf16(2 * i < there ? low : 0, 2 * i + 1 < there ? high : 0);
    }
    *(uint4 *)(to.c + at) = make_uint4(out[0], out[1], out[2], out[3]);
}

/* Stores through shared memory, 16 bytes at a time. */
static __device__ void store_tile(const product_result &to, const product_sums &sums, int64_t row, int64_t col,
                                  float *tile) {
    const int warp = (int)threadIdx.x / 32, lane = (int)threadIdx.x % 32;
    const int r = warp / 2 * PRODUCT_WARP + lane / 4, c = warp % 2 * PRODUCT_WARP + lane % 4 * 2;
#pragma unroll
    for (int i = 0; i < PRODUCT_PARTS; i++) {
#pragma unroll
        for (int j = 0; j < 2 * PRODUCT_PARTS; j++) {
            float *at = tile + (r + 16 * i) * PRODUCT_ROW + c + 8 * j;
            *(float2 *)at = make_float2(sums[i][j][0], sums[i][j][1]);
            *(float2 *)(at + 8 * PRODUCT_ROW) = make_float2(sums[i][j][2], sums[i][j][3]);
        }
    }
    __syncthreads();
    enum { PIECES = PRODUCT_TILE / 8 };
    for (int i = (int)threadIdx.x; i < PRODUCT_TILE * PIECES; i += PRODUCT_THREADS) {
        const int y = i / PIECES, x = i % PIECES * 8;
        if (row + y >= to.rows || col + x >= to.ld) continue;
        const float4 *from = (const float4 *)(tile + y * PRODUCT_ROW + x);
        const float eight[8] = {from[0].x, from[0].y, from[0].z, from[0].w, from[1].x, from[1].y, from[1].z, from[1].w};
        store_eight(to, (row + y) * to.ld + col + x, eight, to.cols - col - x);
    }
    if (!to.mirrored || row == col) return;
    for (int i = (int)threadIdx.x; i < PRODUCT_TILE * PIECES; i += PRODUCT_THREADS) {
        const int x = i % PRODUCT_TILE, y = i / PRODUCT_TILE * 8;
        if (col + x >= to.cols || row + y >= to.ld) continue;
        float eight[8];
#pragma unroll
        for (int j = 0; j < 8; j++) eight[j] = tile[(y + j) * PRODUCT_ROW + x];
        store_eight(to, (col + x) * to.ld + row + y, eight, to.rows - row - y);
    }
}

#endif
