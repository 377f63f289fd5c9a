/* Implicit GEMM by warp-specialised CTAs: one producer warp loads by TMA, two consumer warpgroups have 64 channels of the
 * result each (M), by the pixels of a tile (N). Pixels are N so that 64 channels are enough for the widest wgmma.
 *
 * A tile's pixels lie in shared memory row by row of all its images. The pixels one image row further are then a fixed number
 * of rows further in shared memory: one box, 64 channels of the pixels under one column of the 3 x 3 filter, serves the three
 * rows of that column. TMA fills in zeros outside an image.
 *
 * The gradient of x (BACK) is the same from that of y, with the filter rotated by 180 degrees and W transposed. */
#include "nn/backend/cuda/hopper/convolution.h"
#include "nn/backend/cuda/hopper/epilogue_tma.cuh"
#include "nn/backend/cuda/hopper/stem.h"
#include "nn/backend/cuda/hopper/launch.cuh"

enum {
    CONSUMERS = 2, /* warpgroups */
    THREADS = CONSUMERS * WARPGROUP + 32,
    WEIGHT_TILE = 64 * SW128_ROW, /* bytes: 64 by 64 channels of a tap */
    KERNEL = 3
};

#define HOPPER_KERNEL __global__ static void __launch_bounds__(THREADS, 1)

/* 64 channels of the result, for 64 of those that are summed over. */
template <int PIXELS, bool BACK>
__device__ static inline void multiply_tap(float (&acc)[PIXELS / 2], uint32_t weights, uint32_t pixels, int add) {
    const uint64_t a = wgmma_descriptor(weights, SW128_ATOM, SW128_ATOM);
    const uint64_t b = wgmma_descriptor(pixels, SW128_ATOM, SW128_ATOM);
#pragma unroll
    for (int k = 0; k < 4; k++)
        wgmma_ss<BACK, 0>(acc, descriptor_advance(a, BACK ? k * 16 * SW128_ROW : k * 32), descriptor_advance(b, k * 32),
                          add || k > 0);
}

/* ---- tiles of whole images, 128 channels ---- */

/* Tiles of PIXELS, some images of WIDTH x WIDTH. The SPLIT_K CTAs of a cluster share the sum over channels. */
template <int WIDTH_, int PIXELS_, int SPLIT_K_, int PIXEL_STAGES_, int WEIGHT_STAGES_> struct image_tiles {
    static constexpr int WIDTH = WIDTH_, PIXELS = PIXELS_, SPLIT_K = SPLIT_K_;
    static constexpr int PIXEL_STAGES = PIXEL_STAGES_, WEIGHT_STAGES = WEIGHT_STAGES_;
    static constexpr int IMAGES = PIXELS / (WIDTH * WIDTH),
                         ROW = WIDTH * IMAGES; /* ROW: pixels of a row of all images */
    static constexpr int CHANNELS = CONSUMERS * 64, BOX = (WIDTH + 2) * ROW * SW128_ROW,
                         WEIGHTS = CONSUMERS * WEIGHT_TILE;
    static constexpr int BYTES =
        SW128_ATOM + PIXEL_STAGES * BOX + WEIGHT_STAGES * WEIGHTS + CONSUMERS * EPILOGUE_PIXELS * SW128_ROW;
    static_assert(BYTES <= 227 << 10, "shared memory");
    static_assert(SPLIT_K == 1 || PIXELS / 2 * WARPGROUP * 4 <= PIXEL_STAGES * BOX, "room for another CTA's sums");
};

struct tile_work {
    int columns, chunks; /* columns of CHANNELS of the result; chunks of 64 channels that a CTA sums over */
    bool add;
};

template <typename T> struct tile_place {
    int column, image, split;
    uint32_t pixels, weights, epilogue; /* in shared memory */
    pipeline<T::PIXEL_STAGES> pixel_pipe;
    pipeline<T::WEIGHT_STAGES> weight_pipe;
    __device__ tile_place(const tile_work &g, uint32_t barriers)
        : pixel_pipe(barriers), weight_pipe(barriers + 8 * pipeline<T::PIXEL_STAGES>::BARRIERS) {
        const int cluster = (int)blockIdx.x / T::SPLIT_K;
        split = T::SPLIT_K > 1 ? (int)cluster_cta_rank() : 0;
        column = cluster % g.columns;
        image = cluster / g.columns * T::IMAGES;
        pixels = smem_begin();
        weights = pixels + T::PIXEL_STAGES * T::BOX;
        epilogue = weights + T::WEIGHT_STAGES * T::WEIGHTS;
    }
};

/* The weights of a tap. */
template <typename T, bool BACK>
__device__ static inline void load_weights(const tile_place<T> &at, const CUtensorMap *map, int chunk, int column,
                                           int row, int stage, uint32_t barrier) {
#pragma unroll
    for (int i = 0; i < CONSUMERS; i++) {
        const int mine = at.column * T::CHANNELS + i * 64, sum = chunk * 64;
        const tma_coords p =
            BACK ? tma_coords{mine, sum, KERNEL - 1 - column, KERNEL - 1 - row} : tma_coords{sum, mine, column, row};
        tma_load(at.weights + stage * T::WEIGHTS + i * WEIGHT_TILE, map, p, barrier);
    }
}

/* The producer. Weights of the first box do not depend on the kernel before, and are loaded while that one ends. */
template <typename T, bool BACK>
__device__ static inline void produce_tile(const tile_work &g, const tile_place<T> &at, const CUtensorMap *x,
                                           const CUtensorMap *w) {
    static_assert(T::WEIGHT_STAGES >= KERNEL, "room for the weights of a box");
    pipeline_state<T::PIXEL_STAGES> p;
    pipeline_state<T::WEIGHT_STAGES> q;
    for (int row = 0; row < KERNEL; row++, q.advance()) {
        const uint32_t barrier = at.weight_pipe.full + 8 * q.stage;
        mbarrier_arrive_expect_tx(barrier, T::WEIGHTS);
        load_weights<T, BACK>(at, w, at.split * g.chunks, 0, row, q.stage, barrier);
    }
    grid_dependency_sync();
    for (int box = 0; box < KERNEL * g.chunks; box++, p.advance()) {
        const int chunk = at.split * g.chunks + box / KERNEL, column = box % KERNEL;
        const uint32_t barrier = at.pixel_pipe.producer_acquire(p, T::BOX);
        tma_load(at.pixels + p.stage * T::BOX, x, {chunk * 64, column - 1, at.image, -1}, barrier);
        for (int row = 0; box > 0 && row < KERNEL; row++, q.advance())
            load_weights<T, BACK>(at, w, chunk, column, row, q.stage, at.weight_pipe.producer_acquire(q, T::WEIGHTS));
    }
}

/* The consumers' main loop. A stage is released when the wgmma group after its own has been issued. */
template <typename T, bool BACK>
__device__ static inline void consume_tile(const tile_work &g, const tile_place<T> &at, int warpgroup,
                                           float (&acc)[T::PIXELS / 2]) {
    pipeline_state<T::PIXEL_STAGES> p;
    pipeline_state<T::WEIGHT_STAGES> q;
    int last_weights = -1, last_pixels = -1;
    for (int box = 0; box < KERNEL * g.chunks; box++) {
        const uint32_t pixels = at.pixels + p.stage * T::BOX;
        at.pixel_pipe.consumer_wait(p);
#pragma unroll
        for (int row = 0; row < KERNEL; row++) {
            const uint32_t weights = at.weights + q.stage * T::WEIGHTS + warpgroup * WEIGHT_TILE;
            at.weight_pipe.consumer_wait(q);
            wgmma_fence();
            multiply_tap<T::PIXELS, BACK>(acc, weights, pixels + row * T::ROW * SW128_ROW, box > 0 || row > 0);
            wgmma_commit_group();
            wgmma_wait_group<1>();
            if (last_weights >= 0) at.weight_pipe.consumer_release(last_weights);
            if (row == 0 && last_pixels >= 0) at.pixel_pipe.consumer_release(last_pixels);
            last_weights = q.stage;
            q.advance();
        }
        last_pixels = p.stage;
        p.advance();
    }
    wgmma_wait_group<0>();
}

/* Split-K of two CTAs by distributed shared memory: warpgroup i of CTA i gets the other CTA's sums, in the memory of its
 * pixels, which both CTAs have read. */
template <typename T>
__device__ static inline void reduce_split_k(const tile_place<T> &at, int warpgroup, float (&acc)[T::PIXELS / 2]) {
    const uint32_t mine = at.pixels + threadIdx.x % WARPGROUP * 16;
    uint32_t there;
    asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(there) : "r"(mine), "r"(1 - at.split));
    if (warpgroup != at.split) {
#pragma unroll
        for (int i = 0; i < T::PIXELS / 2; i += 4)
            asm volatile("st.shared::cluster.v4.f32 [%0], {%1, %2, %3, %4};" ::"r"(there + i / 4 * WARPGROUP * 16),
                         "f"(acc[i]), "f"(acc[i + 1]), "f"(acc[i + 2]), "f"(acc[i + 3])
                         : "memory");
    }
    cluster_sync();
    if (warpgroup != at.split) return;
#pragma unroll
    for (int i = 0; i < T::PIXELS / 2; i += 4) {
        float x[4];
        asm volatile("ld.shared::cta.v4.f32 {%0, %1, %2, %3}, [%4];"
                     : "=f"(x[0]), "=f"(x[1]), "=f"(x[2]), "=f"(x[3])
                     : "r"(mine + i / 4 * WARPGROUP * 16)
                     : "memory");
        for (int k = 0; k < 4; k++) acc[i + k] += x[k];
    }
}

template <typename T, bool BACK>
HOPPER_KERNEL tile_kernel(const __grid_constant__ CUtensorMap x, const __grid_constant__ CUtensorMap w,
                          const __grid_constant__ CUtensorMap y, const __grid_constant__ tile_work g) {
    __shared__ uint64_t barriers[2 * (T::PIXEL_STAGES + T::WEIGHT_STAGES)];
    const tile_place<T> at(g, smem_address(barriers));
    const int warpgroup = (int)threadIdx.x / WARPGROUP;
    if (threadIdx.x == 0) {
        at.pixel_pipe.init(CONSUMERS * 4);
        at.weight_pipe.init(CONSUMERS * 4);
        fence_mbarrier_init();
    }
    __syncthreads();
    if (T::SPLIT_K > 1) cluster_sync();
    if (warpgroup == CONSUMERS) {
        if (threadIdx.x % 32 == 0) produce_tile<T, BACK>(g, at, &x, &w);
        __syncwarp();
        if (T::SPLIT_K > 1) cluster_sync(), cluster_sync(); /* as consumers do */
        return;
    }
    float acc[T::PIXELS / 2];
    consume_tile<T, BACK>(g, at, warpgroup, acc);
    wgmma_fence_operand(acc);
    if (T::SPLIT_K > 1) cluster_sync(); /* both CTAs have read their pixels */
    if (T::SPLIT_K > 1) reduce_split_k<T>(at, warpgroup, acc);
    if (T::SPLIT_K > 1 && warpgroup != at.split) return;
    const tma_coords to = {at.column * T::CHANNELS + warpgroup * 64, 0, at.image, 0};
    store_pixels<T::PIXELS>(acc, at.epilogue + warpgroup * EPILOGUE_PIXELS * SW128_ROW, &y, to,
                            EPILOGUE_PIXELS / T::ROW, g.add);
    if (threadIdx.x % WARPGROUP == 0) tma_store_wait_read();
}

/* ---- tiles of rows of 32 pixels, 64 channels ---- */

/* A persistent, ping-pong kernel: W stays in shared memory, and the two consumers take tiles of ROWS rows in turns, so that
 * one multiplies during the other's epilogue. */
enum {
    ROW_WIDTH = 32,
    ROWS = 8,
    ROW_PIXELS = ROWS * ROW_WIDTH,
    STAGES = 3, /* of boxes; a tile has KERNEL of them */
    ROW_BOX = (ROWS + 2) * ROW_WIDTH * SW128_ROW,
    ROW_WEIGHTS = KERNEL * KERNEL * WEIGHT_TILE,
    ROW_EPILOGUE = EPILOGUE_PIXELS * SW128_ROW,
    ROW_BYTES = SW128_ATOM + STAGES * ROW_BOX + ROW_WEIGHTS + CONSUMERS * ROW_EPILOGUE
};
static_assert(ROW_BYTES <= 227 << 10 && ROW_BOX % SW128_ATOM == 0, "shared memory");

struct row_work {
    int tiles, in_image; /* in_image: tiles of an image */
    bool add;
};

struct row_place {
    pipeline<STAGES> pipe;
    uint32_t boxes, weights, epilogue, weights_full; /* in shared memory */
    __device__ explicit row_place(uint32_t barriers) : pipe(barriers) {
        boxes = smem_begin();
        weights = boxes + STAGES * ROW_BOX;
        epilogue = weights + ROW_WEIGHTS;
        weights_full = barriers + 8 * pipe.BARRIERS;
    }
};

template <bool BACK>
__device__ static inline void produce_rows(const row_work &g, const row_place &at, const CUtensorMap *x,
                                           const CUtensorMap *w) {
    pipeline_state<STAGES> p;
    for (int column = 0; column < KERNEL; column++) {
        const uint32_t barrier = at.weights_full + 8 * column;
        mbarrier_arrive_expect_tx(barrier, KERNEL * WEIGHT_TILE);
        tma_load(at.weights + column * KERNEL * WEIGHT_TILE, w, {0, 0, BACK ? KERNEL - 1 - column : column, 0},
                 barrier);
    }
    grid_dependency_sync();
    for (int tile = (int)blockIdx.x; tile < g.tiles; tile += (int)gridDim.x) {
        for (int box = 0; box < KERNEL; box++, p.advance()) {
            const uint32_t barrier = at.pipe.producer_acquire(p, ROW_BOX);
            tma_load(at.boxes + p.stage * ROW_BOX, x, {0, box - 1, tile / g.in_image, tile % g.in_image * ROWS - 1},
                     barrier);
        }
    }
}

/* Waiting on an mbarrier distinguishes a phase only from the one before it. So a consumer waits for its boxes after the
 * other consumer has seen those of the tile before, and then signals the other, unless this is the last tile. */
template <bool BACK>
__device__ static inline void consume_rows(const row_place &at, int tile, bool is_last, float (&acc)[ROW_PIXELS / 2]) {
    int last = -1;
    if (tile > 0) order_wait(tile % CONSUMERS);
#pragma unroll 1
    for (int box = 0; box < KERNEL; box++) {
        const int n = tile * KERNEL + box, stage = n % STAGES;
        const uint32_t pixels = at.boxes + stage * ROW_BOX, weights = at.weights + box * KERNEL * WEIGHT_TILE;
        mbarrier_wait(at.pipe.full + 8 * stage, n / STAGES & 1);
        if (box == KERNEL - 1 && !is_last) order_arrive((tile + 1) % CONSUMERS);
        mbarrier_wait(at.weights_full + 8 * box, 0);
        wgmma_fence();
#pragma unroll
        for (int row = 0; row < KERNEL; row++)
            multiply_tap<ROW_PIXELS, BACK>(acc, weights + (BACK ? KERNEL - 1 - row : row) * WEIGHT_TILE,
                                           pixels + row * ROW_WIDTH * SW128_ROW, box > 0 || row > 0);
        wgmma_commit_group();
        wgmma_wait_group<1>();
        if (last >= 0) at.pipe.consumer_release(last);
        last = stage;
    }
    wgmma_wait_group<0>();
    at.pipe.consumer_release(last);
}

template <bool BACK>
HOPPER_KERNEL row_kernel(const __grid_constant__ CUtensorMap x, const __grid_constant__ CUtensorMap w,
                         const __grid_constant__ CUtensorMap y, const __grid_constant__ row_work g) {
    __shared__ uint64_t barriers[2 * STAGES + KERNEL];
    const row_place at(smem_address(barriers));
    const int warpgroup = (int)threadIdx.x / WARPGROUP;
    if (threadIdx.x == 0) {
        at.pipe.init(4);
        for (int i = 0; i < KERNEL; i++) mbarrier_init(at.weights_full + 8 * i, 1);
        fence_mbarrier_init();
    }
    __syncthreads();
    if (warpgroup == CONSUMERS) {
        if (threadIdx.x % 32 == 0) produce_rows<BACK>(g, at, &x, &w);
        __syncwarp();
    }
    const uint32_t epilogue = at.epilogue + warpgroup * ROW_EPILOGUE;
    for (int i = warpgroup; warpgroup < CONSUMERS && (int)blockIdx.x + i * (int)gridDim.x < g.tiles; i += CONSUMERS) {
        const int tile = (int)blockIdx.x + i * (int)gridDim.x;
        const tma_coords to = {0, 0, tile / g.in_image, tile % g.in_image * ROWS};
        float acc[ROW_PIXELS / 2];
        consume_rows<BACK>(at, i, tile + (int)gridDim.x >= g.tiles, acc);
        wgmma_fence_operand(acc);
        store_pixels<ROW_PIXELS>(acc, epilogue, &y, to, EPILOGUE_PIXELS / ROW_WIDTH, g.add);
    }
    if (threadIdx.x % WARPGROUP == 0) tma_store_wait_read();
}

/* ---- launches ---- */

/* A convolution, or the gradient of its x. */
struct conv_work {
    int64_t images, width, from_channels, to_channels;
    const void *from, *w, *to;
    int64_t in, out; /* of w */
    bool add;
    cudaStream_t stream;
};

struct conv_maps {
    CUtensorMap from, w, to;
};

/* W is [out, row, column, in]; a box has the taps of w_rows rows of the filter. */
static bool make_maps(const conv_work &c, int images, int from_rows, int w_rows, int to_rows, conv_maps *m) {
    return make_image_map(&m->from, c.from, c.from_channels, c.from_channels, c.width, c.images, images, from_rows) &&
           make_image_map(&m->to, c.to, c.to_channels, c.to_channels, c.width, c.images, images, to_rows) &&
           make_tensor_map(&m->w, c.w,
                           {{c.in, c.out, KERNEL, KERNEL},
                            {1, KERNEL * KERNEL * c.in, c.in, KERNEL * c.in},
                            {SW128_COLS, 64, 1, w_rows}});
}

template <typename T, bool BACK> static cudaError_t run_tiles(const conv_work &c) {
    tile_work g = {(int)(c.to_channels / T::CHANNELS), (int)(c.from_channels / 64 / T::SPLIT_K), c.add};
    const int64_t tiles = parts(c.images, T::IMAGES);
    conv_maps m;
    if (!make_maps(c, T::IMAGES, T::WIDTH + 2, 1, EPILOGUE_PIXELS / T::ROW, &m)) return cudaErrorInvalidValue;
    void *arguments[] = {&m.from, &m.w, &m.to, &g};
    return hopper_launch((const void *)tile_kernel<T, BACK>, (unsigned)(tiles * g.columns * T::SPLIT_K), THREADS,
                         T::SPLIT_K, T::BYTES, arguments, c.stream);
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
    if (!make_maps(c, 1, ROWS + 2, KERNEL, EPILOGUE_PIXELS / ROW_WIDTH, &m)) return cudaErrorInvalidValue;
    void *arguments[] = {&m.from, &m.w, &m.to, &g};
    return hopper_launch((const void *)row_kernel<BACK>, (unsigned)(g.tiles < room ? g.tiles : room), THREADS, 1,
                         ROW_BYTES, arguments, c.stream);
}

/* ---- by shape ---- */

/* Tiles were chosen by measurement on an H200, 128 images. */
typedef image_tiles<16, 256, 1, 3, 5> tiles_16;
typedef image_tiles<8, 128, 1, 4, 7> tiles_8;
typedef image_tiles<4, 128, 2, 4, 6> tiles_4;

typedef cudaError_t (*conv_function)(const conv_work &c);

static cudaError_t run_stem(const conv_work &c) {
    return hopper_stem(c.images, c.from, c.w, c.to, hopper_moments{}, c.stream);
}

/* NULL: there is no kernel. */
template <bool BACK> static conv_function function_of(int64_t width, int64_t from, int64_t to) {
    if (!BACK && width == STEM_WIDTH && from == STEM_IN && to == STEM_OUT) return run_stem;
    if (width == ROW_WIDTH && from == 64 && to == 64) return run_rows<BACK>;
    if (from % 64 || to % tiles_16::CHANNELS) return NULL;
    if (width == 16) return run_tiles<tiles_16, BACK>;
    if (width == 8) return run_tiles<tiles_8, BACK>;
    return width == 4 && from % (64 * tiles_4::SPLIT_K) == 0 ? run_tiles<tiles_4, BACK> : NULL;
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
