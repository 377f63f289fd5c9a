/* Implicit GEMM with k = 27, padded to 32 (forward) or 64 (gradient of W): a row of shared memory has the 27 numbers under the
 * filter at one pixel (im2col), and zeros behind them. */
#include "nn/backend/cuda/hopper/stem.h"
#include "nn/backend/cuda/hopper/epilogue_tma.cuh"
#include "nn/backend/cuda/hopper/launch.cuh"
#include "nn/backend/cuda/moments.cuh"

enum {
    DEPTH = 9 * STEM_IN, /* numbers under the filter */
    CHUNKS = 4,          /* of 16 bytes, that they take */
    ROWS = STEM_TILE / STEM_WIDTH,
    TILES = STEM_WIDTH / ROWS, /* of an image */
    BOX = STEM_TILE * SW128_ROW,
    WEIGHTS = STEM_OUT * SW128_ROW,
    FORWARD_BYTES = SW128_ATOM + BOX + WEIGHTS + BOX,
    WARPGROUPS = 4, /* of a CTA of the gradient of W */
    BACK_BYTES = SW128_ATOM + WARPGROUPS * 2 * BOX,
    ACC = SW128_COLS / 2, /* accumulators of a thread */
    MOST_PARTS = 132      /* multiprocessors of an H100 or H200 */
};

__device__ static inline void store_chunk(uint32_t tile, int row, int chunk, const uint32_t (&w)[4]) {
    asm volatile(
        "st.shared::cta.v4.u32 [%0], {%1, %2, %3, %4};" ::"r"(tile + row * SW128_ROW + ((chunk ^ row % 8) << 4)),
        "r"(w[0]), "r"(w[1]), "r"(w[2]), "r"(w[3])
        : "memory");
}

__device__ static inline void store_row(uint32_t tile, int row, const uint16_t (&x)[CHUNKS * 8]) {
#pragma unroll
    for (int u = 0; u < CHUNKS; u++) {
        uint32_t w[4];
#pragma unroll
        for (int i = 0; i < 4; i++) w[i] = x[u * 8 + i * 2] | (uint32_t)x[u * 8 + i * 2 + 1] << 16;
        store_chunk(tile, row, u, w);
    }
}

/* im2col of the thread's pixel of a tile. */
__device__ static inline void load_pixel(uint32_t pixels, const uint16_t *x, int tile) {
    const int pixel = (int)threadIdx.x % WARPGROUP, column = pixel % STEM_WIDTH;
    const int row = tile % TILES * ROWS + pixel / STEM_WIDTH;
    const uint16_t *const image = x + (int64_t)(tile / TILES) * STEM_WIDTH * STEM_WIDTH * STEM_IN;
    uint16_t v[CHUNKS * 8] = {};
#pragma unroll
    for (int i = 0; i < DEPTH; i++) {
        const int r = row + i / (3 * STEM_IN) - 1, c = column + i / STEM_IN % 3 - 1;
        if (r >= 0 && r < STEM_WIDTH && c >= 0 && c < STEM_WIDTH)
            v[i] = __ldg(image + (r * STEM_WIDTH + c) * STEM_IN + i % STEM_IN);
    }
    store_row(pixels, pixel, v);
}

__device__ static inline void load_weights(uint32_t weights, const uint16_t *w) {
    uint16_t v[CHUNKS * 8] = {};
    if (threadIdx.x >= STEM_OUT) return;
#pragma unroll
    for (int i = 0; i < DEPTH; i++) v[i] = __ldg(w + (int)threadIdx.x * DEPTH + i);
    store_row(weights, (int)threadIdx.x, v);
}

/* ---- forward ---- */

struct stem_moments {
    moments_work w;           /* to.first NULL: not wanted */
    const int64_t *live_rows; /* images of the batch; NULL: all */
    int64_t images, pixels;   /* pixels of an image */
};

__device__ static inline int64_t live_images(const stem_moments &m) { return m.live_rows ? *m.live_rows : m.images; }

/* Moments of a tile's pixels, if its image lives. A thread has two channels, and the four threads of a quad have the same. */
__device__ static inline void store_moments(const float (&acc)[STEM_TILE / 2], const moments_work &w, int64_t tile,
                                            int64_t live) {
    const int lane = (int)threadIdx.x % 32, warp = (int)threadIdx.x / 32 % 4;
    const float n = live < 1 ? (float)((live < 0 ? 0 : live) * STEM_TILE) : STEM_TILE;
#pragma unroll
    for (int half = 0; half < 2; half++) {
        const float origin = __shfl_sync(0xffffffffu, acc[2 * half], lane & ~3);
        float sum = 0, squares = 0;
#pragma unroll
        for (int i = 0; i < STEM_TILE / 8; i++) {
            const uint32_t two = narrow_pair(acc[4 * i + 2 * half], acc[4 * i + 2 * half + 1]);
            const float a = low(two) - origin, b = high(two) - origin;
            if (live > 0) {
                sum += a + b;
                squares = fmaf(a, a, fmaf(b, b, squares));
            }
        }
        for (int step = 1; step < 4; step *= 2) {
            sum += __shfl_xor_sync(0xffffffffu, sum, step);
            squares += __shfl_xor_sync(0xffffffffu, squares, step);
        }
        const float d = n > 0 ? sum / n : 0;
        float *const to = w.partials + tile * 2 * w.channels + warp * 16 + half * 8 + lane / 4;
        if (lane % 4 == 0) to[0] = origin + d, to[w.channels] = fmaxf(squares - sum * d, 0);
    }
}

/* The last CTA joins the moments of all, in the shared memory of the epilogue. Not inline, so that it takes no registers from
 * wgmma. */
__device__ static __noinline__ void join_moments(const stem_moments &m) {
    join_tiles<STEM_OUT, WARPGROUP>(m.w, 0, m.w.tiles, live_images(m) * m.pixels,
                                    (moment *)__cvta_shared_to_generic(smem_begin()));
}

__global__ static void __launch_bounds__(WARPGROUP)
    stem_kernel(const __grid_constant__ CUtensorMap y, const uint16_t *x, const uint16_t *w,
                const __grid_constant__ stem_moments m) {
    const uint32_t pixels = smem_begin(), weights = pixels + BOX, epilogue = weights + WEIGHTS;
    const int tile = (int)blockIdx.x, image = tile / TILES;
    load_weights(weights, w);
    grid_dependency_sync();
    load_pixel(pixels, x, tile);
    fence_proxy_async();
    __syncthreads();
    float acc[STEM_TILE / 2];
    const uint64_t a = wgmma_descriptor(weights, SW128_ATOM, SW128_ATOM);
    const uint64_t b = wgmma_descriptor(pixels, SW128_ATOM, SW128_ATOM);
    wgmma_fence();
#pragma unroll
    for (int k = 0; k < 2; k++)
        wgmma_ss<0, 0>(acc, descriptor_advance(a, k * 32), descriptor_advance(b, k * 32), k > 0);
    wgmma_commit_group();
    wgmma_wait_group<0>();
    wgmma_fence_operand(acc);
    store_pixels<STEM_TILE>(acc, epilogue, &y, {0, 0, image, tile % TILES * ROWS}, ROWS, false);
    wgmma_fence_operand(acc);
    if (m.w.to.first) store_moments(acc, m.w, tile, live_images(m) - image);
    if (threadIdx.x == 0) tma_store_wait_read();
    if (m.w.to.first) join_moments(m);
}

/* ---- the gradient of W ---- */

/* Sums over tiles first, first + step ... of a warpgroup: 64 channels of dy by the rows of pixels. */
__device__ static inline void sum_tiles(const CUtensorMap *dy, const uint16_t *x, uint32_t gradients, uint32_t pixels,
                                        uint32_t barrier, int first, int step, int tiles, float (&acc)[ACC]) {
    const int warpgroup = (int)threadIdx.x / WARPGROUP;
    const uint64_t a = wgmma_descriptor(gradients, SW128_ATOM, SW128_ATOM);
    const uint64_t b = wgmma_descriptor(pixels, SW128_ATOM, SW128_ATOM);
    uint32_t phase = 0;
    for (int tile = first; tile < tiles; tile += step, phase ^= 1) {
        if (threadIdx.x % WARPGROUP == 0) {
            mbarrier_arrive_expect_tx(barrier, BOX);
            tma_load(gradients, dy, {0, 0, tile / TILES, tile % TILES * ROWS}, barrier);
        }
        load_pixel(pixels, x, tile);
        fence_proxy_async();
        warpgroup_sync(warpgroup);
        mbarrier_wait(barrier, phase);
        wgmma_fence();
#pragma unroll
        for (int k = 0; k < STEM_TILE / 16; k++)
            wgmma_ss<1, 1>(acc, descriptor_advance(a, k * 16 * SW128_ROW), descriptor_advance(b, k * 16 * SW128_ROW),
                           tile > first || k > 0);
        wgmma_commit_group();
        wgmma_wait_group<0>();
        wgmma_fence_operand(acc);
        warpgroup_sync(warpgroup); /* wgmma has read the rows */
    }
}

__global__ static void __launch_bounds__(WARPGROUPS *WARPGROUP, 1)
    stem_weights_kernel(const __grid_constant__ CUtensorMap dy, const uint16_t *x, int tiles, float *partials) {
    __shared__ uint64_t barriers[WARPGROUPS];
    const int warpgroup = (int)threadIdx.x / WARPGROUP, lane = (int)threadIdx.x % 32;
    const int warp = (int)threadIdx.x / 32 % 4, first = (int)blockIdx.x * WARPGROUPS + warpgroup;
    const uint32_t gradients = smem_begin() + warpgroup * 2 * BOX, barrier = smem_address(barriers + warpgroup);
    if (threadIdx.x % WARPGROUP == 0) {
        mbarrier_init(barrier, 1);
        fence_mbarrier_init();
    }
    for (int u = CHUNKS; u < SW128_ROW / 16; u++) /* behind the numbers of a pixel */
        store_chunk(gradients + BOX, (int)threadIdx.x % WARPGROUP, u, {0, 0, 0, 0});
    __syncthreads();
    grid_dependency_sync();
    float acc[ACC] = {};
    if (first < tiles)
        sum_tiles(&dy, x, gradients, gradients + BOX, barrier, first, (int)gridDim.x * WARPGROUPS, tiles, acc);
    __syncthreads();
    float *const shared = reinterpret_cast<float *>(smem);
#pragma unroll
    for (int i = 0; i < ACC; i++) {
        const int out = warp * 16 + i / 2 % 2 * 8 + lane / 4, k = i / 4 * 8 + lane % 4 * 2 + i % 2;
        if (k < DEPTH) shared[(warpgroup * STEM_OUT + out) * DEPTH + k] = acc[i];
    }
    __syncthreads();
    for (int i = (int)threadIdx.x; i < STEM_OUT * DEPTH; i += WARPGROUPS * WARPGROUP) {
        float sum = 0;
        for (int k = 0; k < WARPGROUPS; k++) sum += shared[k * STEM_OUT * DEPTH + i];
        partials[(int64_t)blockIdx.x * STEM_OUT * DEPTH + i] = sum;
    }
}

/* ---- launches ---- */

cudaError_t hopper_stem(int64_t images, const void *x, const void *w, const void *y, const hopper_moments &moments,
                        cudaStream_t stream, int64_t y_stride) {
    stem_moments m = {{moments.partials, moments.counters, moments.to, images * TILES, STEM_TILE, STEM_OUT},
                      moments.live_rows,
                      images,
                      STEM_WIDTH * STEM_WIDTH};
    CUtensorMap map;
    if (!make_image_map(&map, y, STEM_OUT, y_stride, STEM_WIDTH, images, 1, ROWS)) return cudaErrorInvalidValue;
    void *arguments[] = {&map, &x, &w, &m};
    return hopper_launch((const void *)stem_kernel, (unsigned)(images * TILES), WARPGROUP, 1, FORWARD_BYTES, arguments,
                         stream);
}

static int64_t parts_of(int64_t images) {
    const int64_t most = parts(images * TILES, WARPGROUPS);
    return most < MOST_PARTS ? most : (int64_t)MOST_PARTS;
}

hopper_moments_room hopper_stem_moments(int64_t images) { return {moments_floats(images * TILES, STEM_OUT), 1}; }

size_t hopper_stem_floats(int64_t images) { return (size_t)(parts_of(images) * STEM_OUT * DEPTH); }

cudaError_t hopper_stem_weights(int64_t images, const void *x, const void *dy, target<float> dw, float *workspace,
                                cudaStream_t stream) {
    const int64_t blocks = parts_of(images);
    int tiles = (int)images * TILES;
    CUtensorMap map;
    if (!make_image_map(&map, dy, STEM_OUT, STEM_OUT, STEM_WIDTH, images, 1, ROWS)) return cudaErrorInvalidValue;
    void *arguments[] = {&map, &x, &tiles, &workspace};
    const cudaError_t e = hopper_launch((const void *)stem_weights_kernel, (unsigned)blocks, WARPGROUPS * WARPGROUP, 1,
                                        BACK_BYTES, arguments, stream);
    return e == cudaSuccess ? hopper_sum_parts(workspace, blocks, STEM_OUT * DEPTH / 4, dw, stream) : e;
}
