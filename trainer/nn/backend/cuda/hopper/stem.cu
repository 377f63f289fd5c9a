/* A line of shared memory has the 27 numbers under the kernel at a pixel, and zeros behind them. */
#include "nn/backend/cuda/hopper/stem.h"
#include "nn/backend/cuda/hopper/following.cuh"
#include "nn/backend/cuda/hopper/map.h"
#include "nn/backend/cuda/hopper/results.cuh"
#include "nn/backend/cuda/sum_parts.cuh"

enum {
    NUMBERS = 9 * STEM_IN, /* of a pixel */
    UNITS = 4,             /* of 16 bytes, that they take */
    ROWS = STEM_TILE / STEM_WIDTH,
    TILES = STEM_WIDTH / ROWS, /* of an image */
    BOX = STEM_TILE * LINE,
    WEIGHTS = STEM_OUT * LINE,
    FORWARD_BYTES = ATOM + BOX + WEIGHTS + BOX,
    GROUPS = 4, /* of a block that sums over pixels */
    BACK_BYTES = ATOM + GROUPS * 2 * BOX,
    SUMS = LINE_NUMBERS / 2, /* of a thread */
    MOST_PARTS = 132         /* as many multiprocessors as chips for this have */
};

/* Numbers with zeros behind them into a line. */
__device__ static inline void fill_line(uint32_t lines, int line, const uint16_t (&x)[UNITS * 8]) {
#pragma unroll
    for (int u = 0; u < UNITS; u++) {
        uint32_t w[4];
#pragma unroll
        for (int i = 0; i < 4; i++) w[i] = x[u * 8 + i * 2] | (uint32_t)x[u * 8 + i * 2 + 1] << 16;
        asm volatile("st.shared::cta.v4.u32 [%0], {%1, %2, %3, %4};" ::"r"(lines + line * LINE + ((u ^ line % 8) << 4)),
                     "r"(w[0]), "r"(w[1]), "r"(w[2]), "r"(w[3])
                     : "memory");
    }
}

/* The line of the thread's pixel of a tile. */
__device__ static inline void fill_pixel(uint32_t lines, const uint16_t *x, int tile) {
    const int pixel = (int)threadIdx.x % GROUP, column = pixel % STEM_WIDTH;
    const int row = tile % TILES * ROWS + pixel / STEM_WIDTH;
    const uint16_t *const image = x + (int64_t)(tile / TILES) * STEM_WIDTH * STEM_WIDTH * STEM_IN;
    uint16_t v[UNITS * 8] = {};
#pragma unroll
    for (int i = 0; i < NUMBERS; i++) {
        const int r = row + i / (3 * STEM_IN) - 1, c = column + i / STEM_IN % 3 - 1;
        if (r >= 0 && r < STEM_WIDTH && c >= 0 && c < STEM_WIDTH)
            v[i] = __ldg(image + (r * STEM_WIDTH + c) * STEM_IN + i % STEM_IN);
    }
    fill_line(lines, pixel, v);
}

__device__ static inline void fill_weights(uint32_t lines, const uint16_t *w) {
    uint16_t v[UNITS * 8] = {};
    if (threadIdx.x >= STEM_OUT) return;
#pragma unroll
    for (int i = 0; i < NUMBERS; i++) v[i] = __ldg(w + (int)threadIdx.x * NUMBERS + i);
    fill_line(lines, (int)threadIdx.x, v);
}

__global__ static void __launch_bounds__(GROUP) stem_kernel(const __grid_constant__ CUtensorMap y, const uint16_t *x,
                                                            const uint16_t *w, const __grid_constant__ conv_moments m) {
    const uint32_t pixels = shared_begin(), weights = pixels + BOX, stage = weights + WEIGHTS;
    const int tile = (int)blockIdx.x, image = tile / TILES;
    fill_weights(weights, w);
    wait_for_former();
    fill_pixel(pixels, x, tile);
    fence_for_boxes();
    __syncthreads();
    float sums[STEM_TILE / 2];
    const uint64_t a = matrix_at(weights, ATOM, ATOM), b = matrix_at(pixels, ATOM, ATOM);
    products_begin();
#pragma unroll
    for (int k = 0; k < 2; k++)
        multiply<0, 0>(columns<STEM_TILE>(), sums, matrix_moved(a, k * 32), matrix_moved(b, k * 32), k > 0);
    products_commit();
    products_wait<0>();
    keep_in_place(sums);
    leave_pixels<STEM_TILE>(sums, stage, &y, {0, 0, image, tile % TILES * ROWS}, ROWS, false);
    keep_in_place(sums);
    if (m.w.to.first) leave_moments<STEM_TILE, STEM_WIDTH, 1>(sums, m.w, tile, 0, live_images(m) - image);
    if (threadIdx.x == 0) boxes_are_read();
    if (m.w.to.first) join_block<STEM_OUT, GROUP>(m, 0, m.w.tiles);
}

/* ---- the gradient of W ---- */

/* Of the group's tiles, first, first + step ...: 64 channels by what is in the lines of pixels. */
__device__ static inline void sum_tiles(const CUtensorMap *dy, const uint16_t *x, uint32_t gradients, uint32_t pixels,
                                        uint32_t barrier, int first, int step, int tiles, float (&sums)[SUMS]) {
    const int group = (int)threadIdx.x / GROUP;
    const uint64_t a = matrix_at(gradients, ATOM, ATOM), b = matrix_at(pixels, ATOM, ATOM);
    uint32_t parity = 0;
    for (int tile = first; tile < tiles; tile += step, parity ^= 1) {
        if (threadIdx.x % GROUP == 0) {
            barrier_expect(barrier, BOX);
            box_load(gradients, dy, {0, 0, tile / TILES, tile % TILES * ROWS}, barrier);
        }
        fill_pixel(pixels, x, tile);
        fence_for_boxes();
        group_meet(group);
        barrier_wait(barrier, parity);
        products_begin();
#pragma unroll
        for (int k = 0; k < STEM_TILE / 16; k++)
            multiply<1, 1>(columns<LINE_NUMBERS>(), sums, matrix_moved(a, k * 16 * LINE),
                           matrix_moved(b, k * 16 * LINE), tile > first || k > 0);
        products_commit();
        products_wait<0>();
        keep_in_place(sums);
        group_meet(group); /* all have read the lines */
    }
}

/* What follows the numbers in the lines of a group's pixels. */
__device__ static inline void clear_lines(uint32_t pixels) {
    const int line = (int)threadIdx.x % GROUP;
    for (int u = UNITS; u < LINE / 16; u++)
        asm volatile(
            "st.shared::cta.v4.u32 [%0], {%1, %1, %1, %1};" ::"r"(pixels + line * LINE + ((u ^ line % 8) << 4)), "r"(0)
            : "memory");
}

__global__ static void __launch_bounds__(GROUPS *GROUP, 1)
    stem_weights_kernel(const __grid_constant__ CUtensorMap dy, const uint16_t *x, int tiles, float *partials) {
    __shared__ uint64_t barriers[GROUPS];
    const int group = (int)threadIdx.x / GROUP, lane = (int)threadIdx.x % 32, warp = (int)threadIdx.x / 32 % 4;
    const uint32_t gradients = shared_begin() + group * 2 * BOX, barrier = shared_address(barriers + group);
    const int first = (int)blockIdx.x * GROUPS + group;
    if (threadIdx.x % GROUP == 0) {
        barrier_init(barrier, 1);
        barriers_are_made();
    }
    clear_lines(gradients + BOX);
    __syncthreads();
    wait_for_former();
    float sums[SUMS] = {};
    if (first < tiles)
        sum_tiles(&dy, x, gradients, gradients + BOX, barrier, first, (int)gridDim.x * GROUPS, tiles, sums);
    __syncthreads();
    float *const shared = reinterpret_cast<float *>(shared_memory);
#pragma unroll
    for (int i = 0; i < SUMS; i++) {
        const int out = warp * 16 + i / 2 % 2 * 8 + lane / 4, k = i / 4 * 8 + lane % 4 * 2 + i % 2;
        if (k < NUMBERS) shared[(group * STEM_OUT + out) * NUMBERS + k] = sums[i];
    }
    __syncthreads();
    for (int i = (int)threadIdx.x; i < STEM_OUT * NUMBERS; i += GROUPS * GROUP) {
        float sum = 0;
        for (int k = 0; k < GROUPS; k++) sum += shared[k * STEM_OUT * NUMBERS + i];
        partials[(int64_t)blockIdx.x * STEM_OUT * NUMBERS + i] = sum;
    }
}

__global__ static void __launch_bounds__(PARTS_BLOCK)
    stem_sum_kernel(const float *from, int64_t parts, int64_t fours, target<float> to) {
    sum_parts(from, parts, fours, blockIdx.x, to);
}

/* ---- launches ---- */

static map_shape y_map(int64_t images, int64_t stride) {
    return {{STEM_OUT, STEM_WIDTH, images, STEM_WIDTH},
            {1, stride, STEM_WIDTH * STEM_WIDTH * stride, STEM_WIDTH * stride},
            {LINE_NUMBERS, STEM_WIDTH, 1, ROWS}};
}

cudaError_t hopper_stem(int64_t images, const void *x, const void *w, const void *y, const hopper_moments &moments,
                        cudaStream_t stream, int64_t y_stride) {
    const map_shape shape = y_map(images, y_stride);
    conv_moments m = moments_in_tiles(moments, images, STEM_WIDTH, STEM_OUT, STEM_TILE);
    CUtensorMap map;
    if (!hopper_map(&map, y, &shape)) return cudaErrorInvalidValue;
    void *arguments[] = {&map, &x, &w, &m};
    return hopper_launch((const void *)stem_kernel, (unsigned)(images * TILES), GROUP, 1, FORWARD_BYTES, arguments,
                         stream);
}

static int64_t parts_of(int64_t images) {
    const int64_t most = parts(images * TILES, GROUPS);
    return most < MOST_PARTS ? most : (int64_t)MOST_PARTS;
}

hopper_moments_room hopper_stem_moments(int64_t images) { return {moments_floats(images * TILES, STEM_OUT), 1}; }

size_t hopper_stem_floats(int64_t images) { return (size_t)(parts_of(images) * STEM_OUT * NUMBERS); }

cudaError_t hopper_stem_weights(int64_t images, const void *x, const void *dy, target<float> dw, float *workspace,
                                cudaStream_t stream) {
    const map_shape shape = y_map(images, STEM_OUT);
    const int64_t blocks = parts_of(images), fours = STEM_OUT * NUMBERS / 4;
    int tiles = (int)images * TILES;
    CUtensorMap map;
    if (!hopper_map(&map, dy, &shape)) return cudaErrorInvalidValue;
    void *arguments[] = {&map, &x, &tiles, &workspace};
    const cudaError_t e = hopper_launch((const void *)stem_weights_kernel, (unsigned)blocks, GROUPS * GROUP, 1,
                                        BACK_BYTES, arguments, stream);
    if (e != cudaSuccess) return e;
    stem_sum_kernel<<<(unsigned)parts(fours, PARTS_COLS), PARTS_BLOCK, 0, stream>>>(workspace, blocks, fours, dw);
    return cudaGetLastError();
}
