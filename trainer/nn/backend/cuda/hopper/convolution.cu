/* The result, a block's: 64 channels a warp group, by the pixels of a tile. Pixels are columns, so that 64 channels are enough
 * for the widest products. The tile's pixels lie in shared memory row by row of all its images, so that the pixels a row
 * further are the same number of lines further: a box, of 64 channels of the pixels under one of the three columns of a
 * kernel, serves all three of its rows. Outside of an image TMA fills in zeros.
 *
 * The gradient of x is the same from that of y, with weights turned around. */
#include "nn/backend/cuda/hopper/convolution.h"
#include "nn/backend/cuda/hopper/following.cuh"
#include "nn/backend/cuda/hopper/hopper.cuh"
#include "nn/backend/cuda/hopper/map.h"
#include "nn/backend/cuda/hopper/results.cuh"
#include "nn/backend/cuda/hopper/stem.h"

enum {
    GROUPS = 2,
    THREADS = GROUPS * GROUP + 32, /* the last warp loads */
    BLOCK = 64 * LINE,             /* bytes of weights: 64 by 64 channels of a tap */
    KERNEL = 3
};

#define HOPPER_KERNEL __global__ static void __launch_bounds__(THREADS, 1)

/* ---- whole images, 128 channels ---- */

/* Tiles of PIXELS, some images of WIDTH x WIDTH. SPLIT blocks of a cluster share the sum over channels. */
template <int WIDTH_, int PIXELS_, int SPLIT_, int PIXEL_SLOTS_, int WEIGHT_SLOTS_> struct image_tiles {
    static constexpr int WIDTH = WIDTH_, PIXELS = PIXELS_, SPLIT = SPLIT_;
    static constexpr int PIXEL_SLOTS = PIXEL_SLOTS_, WEIGHT_SLOTS = WEIGHT_SLOTS_;
    static constexpr int IMAGES = PIXELS / (WIDTH * WIDTH),
                         ROW = WIDTH * IMAGES; /* ROW: pixels of a row of all images */
    static constexpr int CHANNELS = GROUPS * 64, BOX = (WIDTH + 2) * ROW * LINE, WEIGHTS = GROUPS * BLOCK;
    static constexpr int BYTES = ATOM + PIXEL_SLOTS * BOX + WEIGHT_SLOTS * WEIGHTS + GROUPS * PART * LINE;
    static_assert(BYTES <= 227 << 10, "shared memory");
    static_assert(SPLIT == 1 || PIXELS / 2 * GROUP * 4 <= PIXEL_SLOTS * BOX, "room for the sums of another block");
};

struct tile_work {
    int columns, chunks; /* blocks of CHANNELS of the result; 64s of channels that a block sums over */
    bool add;
};

template <typename T> struct tile_place {
    int column, image, split;
    uint32_t pixels, weights, stages, full, empty, weights_full, weights_empty; /* shared memory */
    __device__ tile_place(const tile_work &g, uint32_t barriers) {
        const int cluster = (int)blockIdx.x / T::SPLIT;
        split = T::SPLIT > 1 ? (int)cluster_rank() : 0;
        column = cluster % g.columns;
        image = cluster / g.columns * T::IMAGES;
        pixels = shared_begin();
        weights = pixels + T::PIXEL_SLOTS * T::BOX;
        stages = weights + T::WEIGHT_SLOTS * T::WEIGHTS;
        full = barriers;
        empty = full + 8 * T::PIXEL_SLOTS;
        weights_full = empty + 8 * T::PIXEL_SLOTS;
        weights_empty = weights_full + 8 * T::WEIGHT_SLOTS;
    }
};

/* The weights of a tap. */
template <typename T, bool BACK>
__device__ static inline void load_weights(const tile_place<T> &at, const CUtensorMap *map, int chunk, int column,
                                           int row, uint32_t to, uint32_t barrier) {
    barrier_expect(barrier, T::WEIGHTS);
#pragma unroll
    for (int i = 0; i < GROUPS; i++) {
        const int mine = at.column * T::CHANNELS + i * 64, sum = chunk * 64;
        const box_place p =
            BACK ? box_place{mine, sum, KERNEL - 1 - column, KERNEL - 1 - row} : box_place{sum, mine, column, row};
        box_load(to + i * BLOCK, map, p, barrier);
    }
}

/* The weights of the first box do not wait for what computes the pixels. */
template <typename T, bool BACK>
__device__ static inline void load_tile(const tile_work &g, const tile_place<T> &at, const CUtensorMap *x,
                                        const CUtensorMap *w) {
    static_assert(T::WEIGHT_SLOTS >= KERNEL, "room for the weights of a box");
    ring_place<T::PIXEL_SLOTS> p;
    ring_place<T::WEIGHT_SLOTS> q;
    for (int row = 0; row < KERNEL; row++, q.next())
        load_weights<T, BACK>(at, w, at.split * g.chunks, 0, row, at.weights + q.slot * T::WEIGHTS,
                              at.weights_full + 8 * q.slot);
    wait_for_former();
    for (int box = 0; box < KERNEL * g.chunks; box++) {
        const int chunk = at.split * g.chunks + box / KERNEL, column = box % KERNEL;
        barrier_wait(at.empty + 8 * p.slot, p.parity ^ 1);
        barrier_expect(at.full + 8 * p.slot, T::BOX);
        box_load(at.pixels + p.slot * T::BOX, x, {chunk * 64, column - 1, at.image, -1}, at.full + 8 * p.slot);
        for (int row = 0; box > 0 && row < KERNEL; row++) {
            barrier_wait(at.weights_empty + 8 * q.slot, q.parity ^ 1);
            load_weights<T, BACK>(at, w, chunk, column, row, at.weights + q.slot * T::WEIGHTS,
                                  at.weights_full + 8 * q.slot);
            q.next();
        }
        p.next();
    }
}

/* 64 channels of the result, for 64 of those that are summed over. */
template <int PIXELS, bool BACK>
__device__ static inline void multiply_tap(float (&sums)[PIXELS / 2], uint32_t weights, uint32_t pixels, int add) {
    const uint64_t a = matrix_at(weights, ATOM, ATOM), b = matrix_at(pixels, ATOM, ATOM);
#pragma unroll
    for (int k = 0; k < 4; k++)
        multiply<BACK, 0>(columns<PIXELS>(), sums, matrix_moved(a, BACK ? k * 16 * LINE : k * 32),
                          matrix_moved(b, k * 32), add || k > 0);
}

template <typename T, bool BACK>
__device__ static inline void sum_tile(const tile_work &g, const tile_place<T> &at, int group,
                                       float (&sums)[T::PIXELS / 2]) {
    ring_place<T::PIXEL_SLOTS> p;
    ring_place<T::WEIGHT_SLOTS> q;
    int last_weights = -1, last_pixels = -1;
    for (int box = 0; box < KERNEL * g.chunks; box++) {
        const uint32_t pixels = at.pixels + p.slot * T::BOX;
        barrier_wait(at.full + 8 * p.slot, p.parity);
#pragma unroll
        for (int row = 0; row < KERNEL; row++) {
            const uint32_t weights = at.weights + q.slot * T::WEIGHTS + group * BLOCK;
            barrier_wait(at.weights_full + 8 * q.slot, q.parity);
            products_begin();
            multiply_tap<T::PIXELS, BACK>(sums, weights, pixels + row * T::ROW * LINE, box > 0 || row > 0);
            products_commit();
            products_wait<1>();
            if (last_weights >= 0 && threadIdx.x % 32 == 0) barrier_arrive(at.weights_empty + 8 * last_weights);
            if (row == 0 && last_pixels >= 0 && threadIdx.x % 32 == 0) barrier_arrive(at.empty + 8 * last_pixels);
            last_weights = q.slot;
            q.next();
        }
        last_pixels = p.slot;
        p.next();
    }
    products_wait<0>();
}

/* The group whose number is the block's half of the sum gets the other half's sums. Both blocks have done with their pixels. */
template <typename T>
__device__ static inline void join_splits(const tile_place<T> &at, int group, float (&sums)[T::PIXELS / 2]) {
    const uint32_t mine = at.pixels + threadIdx.x % GROUP * 16;
    uint32_t there;
    asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(there) : "r"(mine), "r"(1 - at.split));
    if (group != at.split) {
#pragma unroll
        for (int i = 0; i < T::PIXELS / 2; i += 4)
            asm volatile("st.shared::cluster.v4.f32 [%0], {%1, %2, %3, %4};" ::"r"(there + i / 4 * GROUP * 16),
                         "f"(sums[i]), "f"(sums[i + 1]), "f"(sums[i + 2]), "f"(sums[i + 3])
                         : "memory");
    }
    cluster_meet();
    if (group != at.split) return;
#pragma unroll
    for (int i = 0; i < T::PIXELS / 2; i += 4) {
        float x[4];
        asm volatile("ld.shared::cta.v4.f32 {%0, %1, %2, %3}, [%4];"
                     : "=f"(x[0]), "=f"(x[1]), "=f"(x[2]), "=f"(x[3])
                     : "r"(mine + i / 4 * GROUP * 16)
                     : "memory");
        for (int k = 0; k < 4; k++) sums[i + k] += x[k];
    }
}

template <typename T, bool BACK>
__device__ static inline void leave_tile(const tile_work &g, const tile_place<T> &at, int group,
                                         float (&sums)[T::PIXELS / 2], const CUtensorMap *y) {
    const int channel = at.column * T::CHANNELS + group * 64;
    leave_pixels<T::PIXELS>(sums, at.stages + group * PART * LINE, y, {channel, 0, at.image, 0}, PART / T::ROW, g.add);
    if (threadIdx.x % GROUP == 0) boxes_are_read();
}

template <typename T, bool BACK>
HOPPER_KERNEL tile_kernel(const __grid_constant__ CUtensorMap x, const __grid_constant__ CUtensorMap w,
                          const __grid_constant__ CUtensorMap y, const __grid_constant__ tile_work g) {
    __shared__ uint64_t barriers[2 * (T::PIXEL_SLOTS + T::WEIGHT_SLOTS)];
    const tile_place<T> at(g, shared_address(barriers));
    const int group = (int)threadIdx.x / GROUP;
    if (threadIdx.x == 0) {
        for (int i = 0; i < T::PIXEL_SLOTS; i++)
            barrier_init(at.full + 8 * i, 1), barrier_init(at.empty + 8 * i, GROUPS * 4);
        for (int i = 0; i < T::WEIGHT_SLOTS; i++)
            barrier_init(at.weights_full + 8 * i, 1), barrier_init(at.weights_empty + 8 * i, GROUPS * 4);
        barriers_are_made();
    }
    __syncthreads();
    if (T::SPLIT > 1) cluster_meet();
    if (group == GROUPS) {
        if (threadIdx.x % 32 == 0) load_tile<T, BACK>(g, at, &x, &w);
        __syncwarp();
        if (T::SPLIT > 1) cluster_meet(), cluster_meet(); /* as the groups do */
    } else {
        float sums[T::PIXELS / 2];
        sum_tile<T, BACK>(g, at, group, sums);
        keep_in_place(sums);
        if (T::SPLIT > 1) cluster_meet(); /* nobody needs this block's barriers any more */
        if (T::SPLIT > 1) join_splits<T>(at, group, sums);
        if (T::SPLIT == 1 || group == at.split) leave_tile<T, BACK>(g, at, group, sums, &y);
    }
}

/* ---- 64 channels of rows of 32 pixels ---- */

/* The weights stay in shared memory; warp groups take tiles of some rows in turns, so that one multiplies while the other's
 * results leave. */
enum {
    ROW_WIDTH = 32,
    ROWS = 8,
    ROW_PIXELS = ROWS * ROW_WIDTH,
    SLOTS = 3, /* of boxes; a tile has KERNEL of them */
    ROW_BOX = (ROWS + 2) * ROW_WIDTH * LINE,
    ROW_WEIGHTS = KERNEL * KERNEL * BLOCK,
    ROW_STAGE = PART * LINE,
    ROW_BYTES = ATOM + SLOTS * ROW_BOX + ROW_WEIGHTS + GROUPS * ROW_STAGE
};
static_assert(ROW_BYTES <= 227 << 10 && ROW_BOX % ATOM == 0, "shared memory");

struct row_work {
    int tiles, in_image; /* of an image */
    bool add;
};

struct row_place {
    uint32_t boxes, weights, stages, full, empty, weights_full;
    __device__ explicit row_place(uint32_t barriers) {
        boxes = shared_begin();
        weights = boxes + SLOTS * ROW_BOX;
        stages = weights + ROW_WEIGHTS;
        full = barriers;
        empty = full + 8 * SLOTS;
        weights_full = empty + 8 * SLOTS;
    }
};

template <bool BACK>
__device__ static inline void load_rows(const row_work &g, const row_place &at, const CUtensorMap *x,
                                        const CUtensorMap *w) {
    ring_place<SLOTS> p;
    for (int column = 0; column < KERNEL; column++) {
        const uint32_t barrier = at.weights_full + 8 * column;
        barrier_expect(barrier, KERNEL * BLOCK);
        box_load(at.weights + column * KERNEL * BLOCK, w, {0, 0, BACK ? KERNEL - 1 - column : column, 0}, barrier);
    }
    wait_for_former();
    for (int tile = (int)blockIdx.x; tile < g.tiles; tile += (int)gridDim.x) {
        for (int box = 0; box < KERNEL; box++) {
            barrier_wait(at.empty + 8 * p.slot, p.parity ^ 1);
            barrier_expect(at.full + 8 * p.slot, ROW_BOX);
            box_load(at.boxes + p.slot * ROW_BOX, x, {0, box - 1, tile / g.in_image, tile % g.in_image * ROWS - 1},
                     at.full + 8 * p.slot);
            p.next();
        }
    }
}

template <bool BACK>
__device__ static inline void multiply_column(float (&sums)[ROW_PIXELS / 2], uint32_t weights, uint32_t pixels,
                                              int add) {
#pragma unroll
    for (int row = 0; row < KERNEL; row++) {
        multiply_tap<ROW_PIXELS, BACK>(sums, weights + (BACK ? KERNEL - 1 - row : row) * BLOCK,
                                       pixels + row * ROW_WIDTH * LINE, add || row > 0);
    }
}

/* A barrier tells its phases apart only from the one before: a group waits for its boxes when the other has seen those of
 * the tile before, which it tells unless this is the last tile. */
template <bool BACK>
__device__ static inline void sum_rows(const row_place &at, int tile, bool is_last, float (&sums)[ROW_PIXELS / 2]) {
    int last = -1;
    if (tile > 0) turn_wait(tile % GROUPS);
#pragma unroll 1
    for (int box = 0; box < KERNEL; box++) {
        const int n = tile * KERNEL + box, slot = n % SLOTS;
        const uint32_t pixels = at.boxes + slot * ROW_BOX;
        barrier_wait(at.full + 8 * slot, n / SLOTS & 1);
        if (box == KERNEL - 1 && !is_last) turn_give((tile + 1) % GROUPS);
        barrier_wait(at.weights_full + 8 * box, 0);
        products_begin();
        multiply_column<BACK>(sums, at.weights + box * KERNEL * BLOCK, pixels, box > 0);
        products_commit();
        products_wait<1>();
        if (last >= 0 && threadIdx.x % 32 == 0) barrier_arrive(at.empty + 8 * last);
        last = slot;
    }
    products_wait<0>();
    if (threadIdx.x % 32 == 0) barrier_arrive(at.empty + 8 * last);
}

template <bool BACK>
HOPPER_KERNEL row_kernel(const __grid_constant__ CUtensorMap x, const __grid_constant__ CUtensorMap w,
                         const __grid_constant__ CUtensorMap y, const __grid_constant__ row_work g) {
    __shared__ uint64_t barriers[2 * SLOTS + KERNEL];
    const row_place at(shared_address(barriers));
    const int group = (int)threadIdx.x / GROUP;
    if (threadIdx.x == 0) {
        for (int i = 0; i < SLOTS; i++) barrier_init(at.full + 8 * i, 1), barrier_init(at.empty + 8 * i, 4);
        for (int i = 0; i < KERNEL; i++) barrier_init(at.weights_full + 8 * i, 1);
        barriers_are_made();
    }
    __syncthreads();
    if (group == GROUPS) {
        if (threadIdx.x % 32 == 0) load_rows<BACK>(g, at, &x, &w);
        __syncwarp();
    }
    const uint32_t stage = at.stages + group * ROW_STAGE;
    for (int i = group; group < GROUPS && (int)blockIdx.x + i * (int)gridDim.x < g.tiles; i += GROUPS) {
        const int tile = (int)blockIdx.x + i * (int)gridDim.x;
        const box_place to = {0, 0, tile / g.in_image, tile % g.in_image * ROWS};
        float sums[ROW_PIXELS / 2];
        sum_rows<BACK>(at, i, tile + (int)gridDim.x >= g.tiles, sums);
        keep_in_place(sums);
        leave_pixels<ROW_PIXELS>(sums, stage, &y, to, PART / ROW_WIDTH, g.add);
    }
    if (threadIdx.x % GROUP == 0) boxes_are_read();
}

/* ---- launches ---- */

/* A convolution as both directions see it. */
struct conv_work {
    int64_t images, width, from_channels, to_channels;
    const void *from, *w, *to;
    int64_t in, out; /* of w */
    bool add;
    cudaStream_t stream;
};

static map_shape pixels_map(const conv_work &c, int64_t channels, int images, int rows, int wide) {
    return {{channels, c.width, c.images, c.width},
            {1, channels, c.width * c.width * channels, c.width * channels},
            {LINE_NUMBERS, wide, images, rows}};
}

/* Of [out, row, column, in]. */
static map_shape weights_map(const conv_work &c, int rows) {
    return {
        {c.in, c.out, KERNEL, KERNEL}, {1, KERNEL * KERNEL * c.in, c.in, KERNEL * c.in}, {LINE_NUMBERS, 64, 1, rows}};
}

struct conv_maps {
    CUtensorMap from, w, to;
};

static bool make_maps(const conv_work &c, const map_shape &from, const map_shape &w, const map_shape &to,
                      conv_maps *m) {
    return hopper_map(&m->from, c.from, &from) && hopper_map(&m->w, c.w, &w) && hopper_map(&m->to, c.to, &to);
}

template <typename T, bool BACK> static cudaError_t run_tiles(const conv_work &c) {
    tile_work g = {(int)(c.to_channels / T::CHANNELS), (int)(c.from_channels / 64 / T::SPLIT), c.add};
    const int64_t tiles = parts(c.images, T::IMAGES);
    conv_maps m;
    if (!make_maps(c, pixels_map(c, c.from_channels, T::IMAGES, T::WIDTH + 2, T::WIDTH), weights_map(c, 1),
                   pixels_map(c, c.to_channels, T::IMAGES, PART / T::ROW, T::WIDTH), &m))
        return cudaErrorInvalidValue;
    void *arguments[] = {&m.from, &m.w, &m.to, &g};
    return hopper_launch((const void *)tile_kernel<T, BACK>, (unsigned)(tiles * g.columns * T::SPLIT), THREADS,
                         T::SPLIT, T::BYTES, arguments, c.stream);
}

static int multiprocessors(void) {
    int device = 0, n = 0;
    cudaGetDevice(&device);
    return cudaDeviceGetAttribute(&n, cudaDevAttrMultiProcessorCount, device) == cudaSuccess && n > 0 ? n : 1;
}

template <bool BACK> static cudaError_t run_rows(const conv_work &c) {
    const int in_image = ROW_WIDTH / ROWS, room = multiprocessors();
    row_work g = {(int)c.images * in_image, in_image, c.add};
    conv_maps m;
    if (!make_maps(c, pixels_map(c, 64, 1, ROWS + 2, ROW_WIDTH), weights_map(c, KERNEL),
                   pixels_map(c, 64, 1, PART / ROW_WIDTH, ROW_WIDTH), &m))
        return cudaErrorInvalidValue;
    void *arguments[] = {&m.from, &m.w, &m.to, &g};
    return hopper_launch((const void *)row_kernel<BACK>, (unsigned)(g.tiles < room ? g.tiles : room), THREADS, 1,
                         ROW_BYTES, arguments, c.stream);
}

/* ---- by shape ---- */

/* Tiles were chosen by trial on an H200, 128 images. */
typedef image_tiles<16, 256, 1, 3, 5> tiles_16;
typedef image_tiles<8, 128, 1, 4, 7> tiles_8;
typedef image_tiles<4, 128, 2, 4, 6> tiles_4;

typedef cudaError_t (*conv_function)(const conv_work &c);

static cudaError_t run_stem(const conv_work &c) {
    return hopper_stem(c.images, c.from, c.w, c.to, hopper_moments{}, c.stream);
}

/* NULL: there is none. */
template <bool BACK> static conv_function function_of(int64_t width, int64_t from, int64_t to) {
    if (!BACK && width == STEM_WIDTH && from == STEM_IN && to == STEM_OUT) return run_stem;
    if (width == ROW_WIDTH && from == 64 && to == 64) return run_rows<BACK>;
    if (from % 64 || to % tiles_16::CHANNELS) return NULL;
    if (width == 16) return run_tiles<tiles_16, BACK>;
    if (width == 8) return run_tiles<tiles_8, BACK>;
    return width == 4 && from % (64 * tiles_4::SPLIT) == 0 ? run_tiles<tiles_4, BACK> : NULL;
}

static conv_function function_for(const conv_shape *s, conv_result result) {
    return result == CONV_DX ? function_of<true>(s->width, s->out, s->in) : function_of<false>(s->width, s->in, s->out);
}

bool hopper_convolution_fits(const conv_shape *s, conv_result result) {
    return s->type == NN_BF16 && s->kernel == KERNEL && s->stride == 1 && s->padding == 1 && s->height == s->width &&
           s->rows > 0 && s->rows < 1 << 20 && function_for(s, result) && hopper_is_here();
}

void hopper_convolution_run(const conv_shape *s, conv_result result, cudaStream_t stream, const void *from,
                            const void *w, void *to, bool add) {
    const bool back = result == CONV_DX;
    const conv_work c = {s->rows, s->width, back ? s->out : s->in, back ? s->in : s->out, from, w, to, s->in, s->out,
                         add,     stream};
    const cudaError_t e = function_for(s, result)(c);
    if (e != cudaSuccess) nn_cuda_launch_failed("a convolution", cudaGetErrorString(e));
}
