/* dW[out, tap, in] is a sum over pixels p of relu(norm(x))[p, in] dy[q, out], where q is the pixel of y to which the tap takes
 * p. As a GEMM, M is (tap, out), N is in, K is pixels. A warp has 16 rows, half of a tap's outs, with dy in registers (wgmma
 * RS); b is x as it lies in shared memory. So x is loaded once for all taps, and dy is read at nine places. */
#include "nn/backend/cuda/hopper/bordered_gradient.cuh"
#include "nn/backend/cuda/hopper/norm_convolution.h"
#include "nn/backend/cuda/hopper/norm_prologue.cuh"
#include "nn/backend/cuda/sum_parts.cuh"

enum {
    UNITS = TAPS * OUT / 16,             /* of 16 rows, one for a warp */
    BLOCK = (UNITS + 3) / 4 * WARPGROUP, /* the last warps have no unit: they multiply, and store nothing */
    PIXELS = 128,                        /* of a stage */
    MOST_PLACES = 288,                   /* with borders: 8 images of 4 x 4 */
    DY_ROW = OUT + 8,                    /* elements of a place, padded: 8 places begin in different banks */
    STAGES = 3,
    SUMS_ROW = SW128_COLS + 8
};

struct weights_work {
    const bf16 *x;
    bordered_gradient dy;
    int64_t x_stride, pixels;
    int chunks;
    border_shape s;
    norm_arrays norm;
    target<float> dw; /* [CTAs, OUT, TAPS, IN]; added to only if there is one CTA */
};

struct weights_memory {
    union {
        bf16 x[STAGES][HALVES][PIXELS * SW128_COLS];
        float sums[TAPS * OUT][SUMS_ROW];
    };
    bf16 dy[STAGES][MOST_PLACES * DY_ROW], y[STAGES - 1][MOST_PLACES * OUT];
    float4 lines[IN / 2];
    linear_lines linear;
    int places[MOST_PLACES];
};

__device__ static inline void copy_pixels(const weights_work &w, int64_t first,
                                          bf16 (&to)[HALVES][PIXELS * SW128_COLS]) {
    const int pack = (int)threadIdx.x % (IN / 8);
#pragma unroll 1
    for (int row = (int)threadIdx.x / (IN / 8); row < PIXELS; row += BLOCK / (IN / 8)) {
        const bool there = first + row < w.pixels;
        copy_async(to[pack / 8] + swizzled(row, pack % 8), there ? w.x + (first + row) * w.x_stride + pack * 8 : w.x,
                   there);
    }
}

/* relu(norm(x)) of what this thread has copied, as in forward. Beyond the last pixel it is not 0, but dy is. */
__device__ static inline void normalise_pixels(const float4 *lines, bf16 (&x)[HALVES][PIXELS * SW128_COLS]) {
    const int pack = (int)threadIdx.x % (IN / 8);
#pragma unroll 2
    for (int row = (int)threadIdx.x / (IN / 8); row < PIXELS; row += BLOCK / (IN / 8)) {
        uint4 *const at = reinterpret_cast<uint4 *>(x[pack / 8] + swizzled(row, pack % 8));
        *at = normalised(*at, lines + pack * 4); /* lines are loaded each time, for want of registers */
    }
}

typedef float weights_tile[HALVES][SW128_COLS / 8][4];

/* acc += dy^T x of a stage. `dy`: the first out of the warp's tap, for a pixel whose 3 x 3 places begin at place 0. */
__device__ static inline void multiply_chunk(const border_shape &s, const bf16 (&x)[HALVES][PIXELS * SW128_COLS],
                                             const bf16 *dy, weights_tile &acc) {
    const int lane = (int)threadIdx.x % 32, pixel = lane / 16 * 8 + lane % 8;
    const uint64_t right[HALVES] = {wgmma_descriptor(x[0]), wgmma_descriptor(x[1])};
#pragma unroll 1
    for (int k = 0; k < PIXELS; k += 16) { /* one wgmma group at a time: other warpgroups multiply meanwhile */
        uint32_t left[4];
        load_matrices_transposed(left, dy + corner_of(s, k + pixel) * DY_ROW);
        wgmma_fence();
#pragma unroll
        for (int h = 0; h < HALVES; h++) wgmma_rs<1>(acc[h], left, descriptor_advance(right[h], k * SW128_ROW), true);
        wgmma_commit_group();
        wgmma_wait_group<0>();
    }
}

/* The epilogue, through the shared memory of x. */
__device__ static inline void store_sums(const weights_work &w, weights_memory &s, int unit, const weights_tile &acc) {
    const int lane = (int)threadIdx.x % 32;
#pragma unroll
    for (int h = 0; h < HALVES; h++) {
        __syncthreads();
#pragma unroll
        for (int i = 0; i < SW128_COLS / 8 * 2; i++) {
            const int n = i / 2, below = i % 2;
            float *const to = &s.sums[unit < UNITS ? unit * 16 + below * 8 + lane / 4 : 0][n * 8 + lane % 4 * 2];
            if (unit < UNITS)
                *reinterpret_cast<float2 *>(to) = make_float2(acc[h][n][below * 2], acc[h][n][below * 2 + 1]);
        }
        __syncthreads();
        for (int i = (int)threadIdx.x; i < TAPS * OUT * (SW128_COLS / 4); i += BLOCK) {
            const int row = i / (SW128_COLS / 4), col = i % (SW128_COLS / 4) * 4, tap = row / OUT, out = row % OUT;
            put<4>(w.dw, (((int64_t)blockIdx.x * OUT + out) * TAPS + tap) * IN + h * SW128_COLS + col,
                   &s.sums[row][col]);
        }
    }
}

/* A CTA takes every gridDim.x-th chunk of PIXELS. */
__global__ static void __launch_bounds__(BLOCK, 1) weights_kernel(const weights_work w) {
    weights_memory &s = *reinterpret_cast<weights_memory *>(smem);
    const int lane = (int)threadIdx.x % 32, unit = (int)threadIdx.x / 32, tap = unit < UNITS ? unit / 2 : 0;
    const auto load = [&](int chunk, int stage, int turn) {
        if (chunk < w.chunks) {
            const int64_t first = (int64_t)chunk * PIXELS;
            copy_gradient<DY_ROW, BLOCK>(w.dy, w.s, s.places, first, s.dy[stage], s.y[turn]);
            copy_pixels(w, first, s.x[stage]);
        }
        copies_commit();
    };
    find_places<BLOCK>(w.s, s.places);
    grid_dependency_sync();
    const int64_t live = live_pixels(w.dy);
    find_linear(w.dy, s.linear);
    if (threadIdx.x < IN) load_line(w.norm, IN, threadIdx.x, s.lines);
    __syncthreads();
    const int step = (int)gridDim.x;
    load((int)blockIdx.x, 0, 0);
    load((int)blockIdx.x + step, 1, 1);
    weights_tile acc = {};
    int stage = 0, turn = 0;
    /* The filter is rotated: the tap i rows and j columns from its corner meets dy 2 - i rows and 2 - j columns from there. */
    const int begin = ((2 - tap / 3) * w.s.wide() + 2 - tap % 3) * DY_ROW + unit % 2 * 16 + lane / 8 % 2 * 8;
    for (int chunk = (int)blockIdx.x; chunk < w.chunks; chunk += step) {
        copies_wait<STAGES - 2>();
        add_linear<DY_ROW, BLOCK>(w.dy, w.s, s.places, s.linear, (int64_t)chunk * PIXELS, live, s.dy[stage], s.y[turn]);
        normalise_pixels(s.lines, s.x[stage]);
        fence_proxy_async();
        __syncthreads();
        load(chunk + (STAGES - 1) * step, stage == 0 ? STAGES - 1 : stage - 1, turn);
        multiply_chunk(w.s, s.x[stage], s.dy[stage] + begin, acc);
        stage = stage + 1 == STAGES ? 0 : stage + 1;
        turn ^= 1;
    }
    copies_wait<0>();
    store_sums(w, s, unit, acc);
}

__global__ static void __launch_bounds__(PARTS_BLOCK)
    sum_kernel(const float *from, int64_t parts, int64_t fours, target<float> to) {
    grid_dependency_sync();
    sum_parts(from, parts, fours, blockIdx.x, to);
}

/* ---- launches ---- */

static_assert(sizeof(weights_memory) <= MOST_SHARED && STAGES == 3, "shared memory; y has two stages");

static border_shape shape_of(const nn_call *c) { return border_shape_of(c->output[0].shape, PIXELS); }

bool norm_weights_fit(const nn_call *c) {
    const border_shape s = shape_of(c);
    return s.pieces > 0 && s.places() <= MOST_PLACES;
}

/* CTAs: at most one for each multiprocessor, with as many chunks each. */
static int64_t blocks_of(const nn_call *c) {
    const int64_t chunks = parts(nn_pixels(&c->output[0]), PIXELS);
    return chunks ? parts(chunks, parts(chunks, PROCESSORS)) : 0;
}

size_t norm_weights_workspace(const nn_call *c) {
    const int64_t blocks = blocks_of(c);
    return blocks > 1 ? (size_t)(blocks * OUT * TAPS * IN) : 0;
}

void norm_weights_backward(const nn_call *c, float *workspace) {
    const nn_array *x = &c->fused->maker->input[0];
    const int64_t blocks = blocks_of(c), fours = OUT * TAPS * IN / 4;
    weights_work w = {};
    w.x = (const bf16 *)x->data;
    w.dy = bordered_gradient_of(c);
    w.x_stride = x->stride;
    w.pixels = nn_pixels(x);
    w.chunks = (int)parts(w.pixels, PIXELS);
    w.s = shape_of(c);
    w.norm = norm_arrays_of(c->fused->maker);
    target<float> to = target_of<float>(c, 1);
    w.dw = blocks > 1 ? target<float>{workspace, false} : to;
    if (blocks == 0) return;
    void *arguments[] = {&w};
    const void *const kernel = (const void *)weights_kernel;
    cudaError_t e = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, sizeof(weights_memory));
    if (e == cudaSuccess)
        e = launch_dependent(kernel, (unsigned)blocks, BLOCK, arguments, sizeof(weights_memory), stream_of(c));
    if (e == cudaSuccess && blocks > 1) {
        int64_t n = blocks, numbers = fours;
        const float *from = workspace;
        void *sums[] = {&from, &n, &numbers, &to};
        e = launch_dependent((const void *)sum_kernel, (unsigned)parts(fours, PARTS_COLS), PARTS_BLOCK, sums, 0,
                             stream_of(c));
    }
    if (e != cudaSuccess) nn_cuda_launch_failed("a convolution's gradient", cudaGetErrorString(e));
}
