/* Implicit GEMM over pixels (K). A warpgroup has 64 channels of y (M) by 64 channels of x for the three rows of one column
 * of the filter (N = 192). A stage has some rows of an image, or whole images; they lie in shared memory as in
 * convolution.cu, so that the pixels for another row of the filter are a fixed number of rows further: the 192 columns of
 * wgmma are 64 at three places, the leading offset of b's descriptor apart. Split-K: CTAs have parts of the pixels, whose
 * sums are added in order. */
#include "nn/backend/cuda/hopper/convolution.h"
#include "nn/backend/cuda/hopper/launch.cuh"
#include "nn/backend/cuda/hopper/ptx.cuh"
#include "nn/backend/cuda/hopper/stem.h"

enum {
    CHUNK = 128, /* pixels of whole images at a time */
    KERNEL = 3,
    TAPS = KERNEL * KERNEL,
    ACC = KERNEL * SW128_COLS / 2, /* accumulators of a thread */
    MOST_CTAS = 132                /* multiprocessors of an H100 or H200 */
};

/* OUTS times 64 channels of y by COLUMNS columns of the filter, a warpgroup each; ROWS rows of an image, or all rows of
 * several images, at a time. */
template <int WIDTH_, int ROWS_, int OUTS_, int COLUMNS_, int STAGES_> struct grad_tiles {
    static constexpr int WIDTH = WIDTH_, ROWS = ROWS_, OUTS = OUTS_, COLUMNS = COLUMNS_, STAGES = STAGES_;
    static constexpr int IMAGES = ROWS == WIDTH ? CHUNK / (WIDTH * WIDTH) : 1, PIECES = WIDTH / ROWS; /* of an image */
    static constexpr int ROW = WIDTH * IMAGES, PIXELS = ROWS * ROW;
    static constexpr int X_BOX = (ROWS + 2) * ROW * SW128_ROW, DY_BOX = PIXELS * SW128_ROW; /* x: a box a column */
    static constexpr int STAGE = OUTS * DY_BOX + COLUMNS * X_BOX;
    static constexpr int CONSUMERS = OUTS * COLUMNS, THREADS = CONSUMERS * WARPGROUP + 32;
    static constexpr int BYTES = SW128_ATOM + STAGES * STAGE;
    static_assert(PIXELS % 16 == 0 && DY_BOX % SW128_ATOM == 0 && X_BOX % SW128_ATOM == 0, "boxes begin at atoms");
    static_assert(BYTES <= 227 << 10, "shared memory");
};

struct grad_work {
    int in_tiles, out_tiles, column_tiles, chunks, parts; /* tiles of 64 in, 64 OUTS out, COLUMNS columns */
    int in, out;
    target<float> dw; /* [parts, out, TAPS, in]; added to only if there is one part */
};

struct grad_place {
    int in, out, column, part, first, end; /* chunks [first, end) */
    __device__ grad_place(const grad_work &g, int outs, int columns) {
        const int tiles = g.in_tiles * g.out_tiles * g.column_tiles, tile = (int)blockIdx.x % tiles;
        part = (int)blockIdx.x / tiles;
        in = tile % g.in_tiles * 64;
        column = tile / g.in_tiles % g.column_tiles * columns;
        out = tile / g.in_tiles / g.column_tiles * outs * 64;
        first = (int)((int64_t)part * g.chunks / g.parts);
        end = (int)((int64_t)(part + 1) * g.chunks / g.parts);
    }
};

template <typename T>
__device__ static inline void produce_chunks(const grad_place &at, uint32_t stages, const pipeline<T::STAGES> &pipe,
                                             const CUtensorMap *x, const CUtensorMap *dy) {
    pipeline_state<T::STAGES> p;
    for (int chunk = at.first; chunk < at.end; chunk++, p.advance()) {
        const int image = chunk / T::PIECES * T::IMAGES, row = chunk % T::PIECES * T::ROWS;
        const uint32_t to = stages + p.stage * T::STAGE, barrier = pipe.producer_acquire(p, T::STAGE);
        for (int i = 0; i < T::OUTS; i++) tma_load(to + i * T::DY_BOX, dy, {at.out + i * 64, 0, image, row}, barrier);
        for (int i = 0; i < T::COLUMNS; i++)
            tma_load(to + T::OUTS * T::DY_BOX + i * T::X_BOX, x, {at.in, at.column + i - 1, image, row - 1}, barrier);
    }
}

template <typename T>
__device__ static inline void consume_chunks(const grad_place &at, int warpgroup, uint32_t stages,
                                             const pipeline<T::STAGES> &pipe, float (&acc)[ACC]) {
    pipeline_state<T::STAGES> p;
    int last = -1;
    const uint32_t of_dy = warpgroup % T::OUTS * T::DY_BOX;
    const uint32_t of_x = T::OUTS * T::DY_BOX + warpgroup / T::OUTS * T::X_BOX;
    for (int chunk = at.first; chunk < at.end; chunk++) {
        const uint32_t stage = stages + p.stage * T::STAGE;
        const uint64_t a = wgmma_descriptor(stage + of_dy, SW128_ATOM, SW128_ATOM);
        const uint64_t b = wgmma_descriptor(stage + of_x, SW128_ATOM, T::ROW * SW128_ROW);
        pipe.consumer_wait(p);
        wgmma_fence();
#pragma unroll
        for (int k = 0; k < T::PIXELS / 16; k++)
            wgmma_ss<1, 1>(acc, descriptor_advance(a, k * 16 * SW128_ROW), descriptor_advance(b, k * 16 * SW128_ROW),
                           chunk > at.first || k > 0);
        wgmma_commit_group();
        wgmma_wait_group<1>();
        if (last >= 0) pipe.consumer_release(last);
        last = p.stage;
        p.advance();
    }
    wgmma_wait_group<0>();
}

__device__ static inline void store_two(const target<float> &to, int64_t i, float a, float b) {
    float2 *const p = reinterpret_cast<float2 *>(to.to + i);
    if (to.add) {
        const float2 before = *p;
        a += before.x, b += before.y;
    }
    *p = make_float2(a, b);
}

/* The epilogue, for a column of the filter. */
__device__ static inline void store_sums(const grad_work &g, const grad_place &at, int out, int column,
                                         const float (&acc)[ACC]) {
    const int lane = (int)threadIdx.x % 32, warp = (int)threadIdx.x / 32 % 4;
    const int64_t first = (int64_t)at.part * g.out + out + warp * 16 + lane / 4;
#pragma unroll
    for (int i = 0; i < ACC / 4; i++) {
        const int row = i / 8, in = at.in + i % 8 * 8 + lane % 4 * 2;
        const int64_t to = (first * TAPS + row * KERNEL + column) * g.in + in;
        store_two(g.dw, to, acc[i * 4], acc[i * 4 + 1]);
        store_two(g.dw, to + (int64_t)8 * TAPS * g.in, acc[i * 4 + 2], acc[i * 4 + 3]);
    }
}

template <typename T>
__global__ static void __launch_bounds__(T::THREADS, 1)
    hopper_gradient_kernel(const __grid_constant__ CUtensorMap x, const __grid_constant__ CUtensorMap dy,
                           const grad_work g) {
    __shared__ uint64_t barriers[2 * T::STAGES];
    const grad_place at(g, T::OUTS, T::COLUMNS);
    const uint32_t stages = smem_begin();
    const pipeline<T::STAGES> pipe(smem_address(barriers));
    const int warpgroup = (int)threadIdx.x / WARPGROUP;
    if (threadIdx.x == 0) {
        pipe.init(4 * T::CONSUMERS);
        fence_mbarrier_init();
    }
    __syncthreads();
    grid_dependency_sync();
    if (warpgroup == T::CONSUMERS) {
        if (threadIdx.x % 32 == 0) produce_chunks<T>(at, stages, pipe, &x, &dy);
        __syncwarp();
    } else {
        float acc[ACC];
        consume_chunks<T>(at, warpgroup, stages, pipe, acc);
        wgmma_fence_operand(acc);
        store_sums(g, at, at.out + warpgroup % T::OUTS * 64, at.column + warpgroup / T::OUTS, acc);
    }
}

/* ---- launches ---- */

template <typename T> static grad_work cut(const conv_shape *s) {
    grad_work g = {};
    g.in = (int)s->in;
    g.out = (int)s->out;
    g.in_tiles = g.in / 64;
    g.out_tiles = g.out / (64 * T::OUTS);
    g.column_tiles = KERNEL / T::COLUMNS;
    g.chunks = (int)parts(s->rows, T::IMAGES) * T::PIECES;
    g.parts = MOST_CTAS / (g.in_tiles * g.out_tiles * g.column_tiles);
    if (g.parts > g.chunks) g.parts = g.chunks;
    if (g.parts < 1) g.parts = 1;
    return g;
}

template <typename T>
static cudaError_t run_gradient(const conv_shape *s, cudaStream_t stream, const void *x, const void *dy,
                                target<float> dw, float *workspace) {
    grad_work g = cut<T>(s);
    CUtensorMap maps[2];
    if (!make_image_map(&maps[0], x, s->in, s->in, T::WIDTH, s->rows, T::IMAGES, T::ROWS + 2) ||
        !make_image_map(&maps[1], dy, s->out, s->out, T::WIDTH, s->rows, T::IMAGES, T::ROWS))
        return cudaErrorInvalidValue;
    g.dw = g.parts == 1 ? dw : target<float>{workspace, false};
    void *arguments[] = {&maps[0], &maps[1], &g};
    const void *kernel = (const void *)hopper_gradient_kernel<T>;
    const unsigned blocks = (unsigned)(g.in_tiles * g.out_tiles * g.column_tiles * g.parts);
    const cudaError_t e = hopper_launch(kernel, blocks, T::THREADS, 1, T::BYTES, arguments, stream);
    if (e != cudaSuccess || g.parts == 1) return e;
    return hopper_sum_parts(workspace, g.parts, s->out * TAPS * s->in / 4, dw, stream);
}

/* ---- by shape ---- */

/* f(tiles for the width). */
template <typename F> static auto by_width(int64_t width, F f) {
    if (width == 32) return f(grad_tiles<32, 4, 1, 3, 2>());
    if (width == 16) return f(grad_tiles<16, 8, 2, 1, 4>());
    return width == 8 ? f(grad_tiles<8, 8, 2, 1, 4>()) : f(grad_tiles<4, 4, 2, 1, 4>());
}

static bool is_stem(const conv_shape *s) { return s->in == STEM_IN && s->out == STEM_OUT && s->width == STEM_WIDTH; }

bool hopper_weights_fits(const conv_shape *s) {
    const int64_t w = s->width, outs = w == 32 ? 64 : 128;
    return s->type == NN_BF16 && s->kernel == KERNEL && s->stride == 1 && s->padding == 1 && s->height == w &&
           (w == 32 || w == 16 || w == 8 || w == 4) && (is_stem(s) || (s->in % 64 == 0 && s->out % outs == 0)) &&
           s->rows > 0 && s->rows < 1 << 20 && hopper_is_here();
}

size_t hopper_weights_workspace(const conv_shape *s) {
    if (is_stem(s)) return hopper_stem_floats(s->rows);
    const int parts = by_width(s->width, [&](auto tiles) { return cut<decltype(tiles)>(s).parts; });
    return parts == 1 ? 0 : (size_t)(parts * s->out * TAPS * s->in);
}

void hopper_weights_run(const conv_shape *s, cudaStream_t stream, const void *x, const void *dy, float *dw, bool add,
                        float *workspace) {
    const auto run = [&](auto tiles) { return run_gradient<decltype(tiles)>(s, stream, x, dy, {dw, add}, workspace); };
    const cudaError_t e =
        is_stem(s) ? hopper_stem_weights(s->rows, x, dy, {dw, add}, workspace, stream) : by_width(s->width, run);
    if (e != cudaSuccess) nn_cuda_launch_failed("a convolution's gradient", cudaGetErrorString(e));
}
