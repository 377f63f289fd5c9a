/* The gradient of W: 64 channels of y a warp group, by 64 channels of x for the three rows of one column of the kernel. Sums
 * go over pixels, some rows of an image or whole images at a time; in shared memory they lie as in convolution.cu,
 * so that the pixels for another row of the kernel are so many lines further, and the 192 columns of the product are 64 at
 * three places. Blocks have parts of the pixels; their sums are added in the order of the parts. */
#include "nn/backend/cuda/hopper/weights.h"
#include "nn/backend/cuda/hopper/following.cuh"
#include "nn/backend/cuda/hopper/hopper.cuh"
#include "nn/backend/cuda/hopper/map.h"
#include "nn/backend/cuda/hopper/stem.h"
#include "nn/backend/cuda/sum_parts.cuh"

enum {
    CHUNK = 128, /* pixels of whole images at a time */
    KERNEL = 3,
    TAPS = KERNEL * KERNEL,
    SUMS = KERNEL * LINE_NUMBERS / 2, /* of a thread */
    MOST_BLOCKS = 132                 /* as many multiprocessors as chips for this have */
};

/* OUTS 64s of channels of y by COLUMNS columns of the kernel, a warp group each, ROWS rows of an image or all of several at a
 * time. */
template <int WIDTH_, int ROWS_, int OUTS_, int COLUMNS_, int STAGES_> struct grad_tiles {
    static constexpr int WIDTH = WIDTH_, ROWS = ROWS_, OUTS = OUTS_, COLUMNS = COLUMNS_, STAGES = STAGES_;
    static constexpr int IMAGES = ROWS == WIDTH ? CHUNK / (WIDTH * WIDTH) : 1, PIECES = WIDTH / ROWS; /* of an image */
    static constexpr int ROW = WIDTH * IMAGES, PIXELS = ROWS * ROW;
    static constexpr int X_BOX = (ROWS + 2) * ROW * LINE, DY_BOX = PIXELS * LINE; /* bytes; x has a box a column */
    static constexpr int STAGE = OUTS * DY_BOX + COLUMNS * X_BOX;
    static constexpr int GROUPS = OUTS * COLUMNS, THREADS = GROUPS * GROUP + 32, BYTES = ATOM + STAGES * STAGE;
    static_assert(PIXELS % 16 == 0 && DY_BOX % ATOM == 0 && X_BOX % ATOM == 0, "boxes begin at atoms");
    static_assert(BYTES <= 227 << 10, "shared memory");
};

struct grad_work {
    int in_tiles, out_tiles, column_tiles, chunks, parts; /* tiles of 64 in, 64 OUTS out, COLUMNS columns */
    int in, out;
    target<float> dw; /* [parts, out, TAPS, in]; added to only where there is one part */
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
__device__ static inline void load_chunks(const grad_place &at, uint32_t stages, uint32_t full, uint32_t empty,
                                          const CUtensorMap *x, const CUtensorMap *dy) {
    ring_place<T::STAGES> p;
    for (int chunk = at.first; chunk < at.end; chunk++) {
        const int image = chunk / T::PIECES * T::IMAGES, row = chunk % T::PIECES * T::ROWS;
        const uint32_t to = stages + p.slot * T::STAGE, barrier = full + 8 * p.slot;
        barrier_wait(empty + 8 * p.slot, p.parity ^ 1);
        barrier_expect(barrier, T::STAGE);
        for (int i = 0; i < T::OUTS; i++) box_load(to + i * T::DY_BOX, dy, {at.out + i * 64, 0, image, row}, barrier);
        for (int i = 0; i < T::COLUMNS; i++)
            box_load(to + T::OUTS * T::DY_BOX + i * T::X_BOX, x, {at.in, at.column + i - 1, image, row - 1}, barrier);
        p.next();
    }
}

template <typename T>
__device__ static inline void sum_chunks(const grad_place &at, int group, uint32_t stages, uint32_t full,
                                         uint32_t empty, float (&sums)[SUMS]) {
    ring_place<T::STAGES> p;
    int last = -1;
    const uint32_t of_dy = group % T::OUTS * T::DY_BOX, of_x = T::OUTS * T::DY_BOX + group / T::OUTS * T::X_BOX;
    for (int chunk = at.first; chunk < at.end; chunk++) {
        const uint32_t stage = stages + p.slot * T::STAGE;
        const uint64_t a = matrix_at(stage + of_dy, ATOM, ATOM), b = matrix_at(stage + of_x, ATOM, T::ROW * LINE);
        barrier_wait(full + 8 * p.slot, p.parity);
        products_begin();
#pragma unroll
        for (int k = 0; k < T::PIXELS / 16; k++)
            multiply<1, 1>(columns<KERNEL * LINE_NUMBERS>(), sums, matrix_moved(a, k * 16 * LINE),
                           matrix_moved(b, k * 16 * LINE), chunk > at.first || k > 0);
        products_commit();
        products_wait<1>();
        if (last >= 0 && threadIdx.x % 32 == 0) barrier_arrive(empty + 8 * last);
        last = p.slot;
        p.next();
    }
    products_wait<0>();
}

__device__ static inline void leave_two(const target<float> &to, int64_t i, float a, float b) {
    float2 *const p = reinterpret_cast<float2 *>(to.to + i);
    if (to.add) {
        const float2 before = *p;
        a += before.x, b += before.y;
    }
    *p = make_float2(a, b);
}

/* column: of the kernel. */
__device__ static inline void leave_sums(const grad_work &g, const grad_place &at, int out, int column,
                                         const float (&sums)[SUMS]) {
    const int lane = (int)threadIdx.x % 32, warp = (int)threadIdx.x / 32 % 4;
    const int64_t first = (int64_t)at.part * g.out + out + warp * 16 + lane / 4;
#pragma unroll
    for (int i = 0; i < SUMS / 4; i++) {
        const int row = i / 8, in = at.in + i % 8 * 8 + lane % 4 * 2;
        const int64_t to = (first * TAPS + row * KERNEL + column) * g.in + in;
        leave_two(g.dw, to, sums[i * 4], sums[i * 4 + 1]);
        leave_two(g.dw, to + (int64_t)8 * TAPS * g.in, sums[i * 4 + 2], sums[i * 4 + 3]);
    }
}

template <typename T>
__global__ static void __launch_bounds__(T::THREADS, 1)
    hopper_gradient_kernel(const __grid_constant__ CUtensorMap x, const __grid_constant__ CUtensorMap dy,
                           const grad_work g) {
    __shared__ uint64_t barriers[2 * T::STAGES];
    const grad_place at(g, T::OUTS, T::COLUMNS);
    const uint32_t stages = shared_begin();
    const uint32_t full = shared_address(barriers), empty = full + 8 * T::STAGES;
    const int group = (int)threadIdx.x / GROUP;
    if (threadIdx.x == 0) {
        for (int i = 0; i < T::STAGES; i++) barrier_init(full + 8 * i, 1), barrier_init(empty + 8 * i, 4 * T::GROUPS);
        barriers_are_made();
    }
    __syncthreads();
    wait_for_former();
    if (group == T::GROUPS) {
        if (threadIdx.x % 32 == 0) load_chunks<T>(at, stages, full, empty, &x, &dy);
        __syncwarp();
    } else {
        float sums[SUMS];
        sum_chunks<T>(at, group, stages, full, empty, sums);
        keep_in_place(sums);
        leave_sums(g, at, at.out + group % T::OUTS * 64, at.column + group / T::OUTS, sums);
    }
}

__global__ static void __launch_bounds__(PARTS_BLOCK)
    hopper_sum_kernel(const float *from, int64_t parts, int64_t fours, target<float> to) {
    sum_parts(from, parts, fours, blockIdx.x, to);
}

/* ---- launches ---- */

template <typename T> static grad_work cut(const conv_shape *s, int most) {
    grad_work g = {};
    g.in = (int)s->in;
    g.out = (int)s->out;
    g.in_tiles = g.in / 64;
    g.out_tiles = g.out / (64 * T::OUTS);
    g.column_tiles = KERNEL / T::COLUMNS;
    g.chunks = (int)parts(s->rows, T::IMAGES) * T::PIECES;
    g.parts = most / (g.in_tiles * g.out_tiles * g.column_tiles);
    if (g.parts > g.chunks) g.parts = g.chunks;
    if (g.parts < 1) g.parts = 1;
    return g;
}

template <typename T>
static cudaError_t run_gradient(const conv_shape *s, cudaStream_t stream, const void *x, const void *dy,
                                target<float> dw, float *workspace, int most) {
    grad_work g = cut<T>(s, most);
    const int64_t width = T::WIDTH;
    const map_shape of_x = {{s->in, width, s->rows, width},
                            {1, s->in, width * width * s->in, width * s->in},
                            {LINE_NUMBERS, T::WIDTH, T::IMAGES, T::ROWS + 2}};
    const map_shape of_dy = {{s->out, width, s->rows, width},
                             {1, s->out, width * width * s->out, width * s->out},
                             {LINE_NUMBERS, T::WIDTH, T::IMAGES, T::ROWS}};
    CUtensorMap maps[2];
    if (!hopper_map(&maps[0], x, &of_x) || !hopper_map(&maps[1], dy, &of_dy)) return cudaErrorInvalidValue;
    g.dw = g.parts == 1 ? dw : target<float>{workspace, false};
    void *arguments[] = {&maps[0], &maps[1], &g};
    const void *kernel = (const void *)hopper_gradient_kernel<T>;
    const unsigned blocks = (unsigned)(g.in_tiles * g.out_tiles * g.column_tiles * g.parts);
    const cudaError_t e = hopper_launch(kernel, blocks, T::THREADS, 1, T::BYTES, arguments, stream);
    if (e != cudaSuccess || g.parts == 1) return e;
    const int64_t fours = s->out * TAPS * s->in / 4;
    hopper_sum_kernel<<<(unsigned)parts(fours, PARTS_COLS), PARTS_BLOCK, 0, stream>>>(workspace, g.parts, fours, dw);
    return cudaGetLastError();
}

/* ---- by shape ---- */

/* f(its tiles), of a width. */
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
    const int parts = by_width(s->width, [&](auto tiles) { return cut<decltype(tiles)>(s, MOST_BLOCKS).parts; });
    return parts == 1 ? 0 : (size_t)(parts * s->out * TAPS * s->in);
}

void hopper_weights_run(const conv_shape *s, cudaStream_t stream, const void *x, const void *dy, float *dw, bool add,
                        float *workspace) {
    const auto run = [&](auto tiles) {
        return run_gradient<decltype(tiles)>(s, stream, x, dy, {dw, add}, workspace, MOST_BLOCKS);
    };
    const cudaError_t e =
        is_stem(s) ? hopper_stem_weights(s->rows, x, dy, {dw, add}, workspace, stream) : by_width(s->width, run);
    if (e != cudaSuccess) nn_cuda_launch_failed("a convolution's gradient", cudaGetErrorString(e));
}
