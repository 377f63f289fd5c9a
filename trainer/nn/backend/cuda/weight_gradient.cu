#include "nn/backend/cuda/weight_gradient.h"
#include "nn/backend/cuda/bordered.cuh"
#include "nn/backend/cuda/sum_parts.cuh"

/* A block has CHANNELS of x, CHANNELS of y and a part of the pixels, of which it takes PIXELS at a time: whole rows of an
 * image, or whole images. Around them in shared memory is a border, of zeros outside an image. Its warps are pairs, one for
 * each half of x's channels; a pair has a quarter of the pixels. */
enum {
    CHANNELS = 32,
    PIXELS = 256,
    BLOCK = 256,
    PAIRS = 4,
    TAPS = 9,
    ROW = CHANNELS + 8,  /* numbers of a pixel in shared memory: 8 of them begin in different banks */
    MOST_BORDERED = 576, /* pixels with their borders: of 16 images of 4 x 4 */
    GRAD_STAGES = 2,
    GRAD_BLOCKS = 132 /* as many multiprocessors as chips for this have */
};

struct grad_stage {
    bf16 x[MOST_BORDERED * ROW], dy[PIXELS * ROW];
};
struct grad_memory {
    grad_stage stages[GRAD_STAGES];
    int places[MOST_BORDERED];
};

struct grad_work {
    const bf16 *x, *dy;
    int64_t x_stride, dy_stride, pixels, in, out, chunks, parts;
    border_shape s;
    target<float> dw; /* [parts, out, TAPS, in]; added to only where there is one part */
};

__device__ static inline void copy_dy(const grad_work &g, grad_stage &to, int64_t first, int64_t channel) {
#pragma unroll
    for (int i = 0; i < PIXELS * (CHANNELS / 8) / BLOCK; i++) {
        const int at = i * BLOCK + (int)threadIdx.x, pixel = at / (CHANNELS / 8), pack = at % (CHANNELS / 8);
        const bool there = first + pixel < g.pixels;
        copy_async(to.dy + pixel * ROW + pack * 8,
                   there ? g.dy + (first + pixel) * g.dy_stride + channel + pack * 8 : g.dy, there);
    }
}

/* 32 channels of y by 16 of x, for each tap. */
typedef float grad_tile[TAPS][2][2][4];

__device__ static inline void multiply_chunk(const grad_work &g, const grad_stage &from, int pair, int half,
                                             grad_tile &acc) {
    const int lane = (int)threadIdx.x % 32, wide = g.s.wide();
#pragma unroll 1
    for (int k = 0; k < PIXELS / PAIRS; k += 16) {
        const int first = pair * (PIXELS / PAIRS) + k;
        const bf16 *const x =
            from.x + corner_of(g.s, first + lane % 16) * ROW + half * 16 + lane / 16 * 8; /* the first tap's */
        uint32_t left[2][4];
#pragma unroll
        for (int m = 0; m < 2; m++)
            load_matrices_transposed(left[m],
                                     from.dy + (first + lane / 16 * 8 + lane % 8) * ROW + m * 16 + lane / 8 % 2 * 8);
#pragma unroll
        for (int tap = 0; tap < TAPS; tap++) {
            uint32_t right[4];
            load_matrices_transposed(right, x + (tap / 3 * wide + tap % 3) * ROW);
#pragma unroll
            for (int m = 0; m < 2; m++) {
                multiply_add(acc[tap][m][0], left[m], right[0], right[1]);
                multiply_add(acc[tap][m][1], left[m], right[2], right[3]);
            }
        }
    }
}

/* The sums of all pairs, in their order, to the block's part. */
__device__ static inline void leave_sums(const grad_work &g, float *shared, int pair, int half, const grad_tile &acc,
                                         int64_t part, int64_t to_out, int64_t to_in) {
    const int lane = (int)threadIdx.x % 32;
    constexpr int WIDTH = TAPS * CHANNELS, ODD = WIDTH + 8; /* numbers of a channel of y */
    for (int turn = 0; turn < PAIRS; turn++) {
        if (turn == pair) {
#pragma unroll
            for (int i = 0; i < TAPS * 2 * 2 * 2; i++) {
                const int tap = i / 8, m = i / 4 % 2, n = i / 2 % 2, low = i % 2;
                float2 *const at = reinterpret_cast<float2 *>(shared + (m * 16 + low * 8 + lane / 4) * ODD +
                                                              tap * CHANNELS + half * 16 + n * 8 + lane % 4 * 2);
                float2 v = turn ? *at : make_float2(0, 0);
                v.x += acc[tap][m][n][low * 2];
                v.y += acc[tap][m][n][low * 2 + 1];
                *at = v;
            }
        }
        __syncthreads();
    }
    for (int i = (int)threadIdx.x; i < CHANNELS * WIDTH / 4; i += BLOCK) {
        const int o = i / (WIDTH / 4), rest = i % (WIDTH / 4) * 4, tap = rest / CHANNELS, k = rest % CHANNELS;
        put<4>(g.dw, ((part * g.out + to_out + o) * TAPS + tap) * g.in + to_in + k, shared + o * ODD + rest);
    }
}

extern __shared__ __align__(128) unsigned char shared_memory[];

__global__ static void __launch_bounds__(BLOCK, 1) gradient_kernel(const grad_work g) {
    grad_memory &s = *reinterpret_cast<grad_memory *>(shared_memory);
    const int64_t columns = g.in / CHANNELS, tiles = columns * (g.out / CHANNELS);
    const int64_t tile = blockIdx.x % tiles, part = blockIdx.x / tiles;
    const int64_t to_in = tile % columns * CHANNELS, to_out = tile / columns * CHANNELS;
    const int warp = (int)threadIdx.x / 32, pair = warp / 2, half = warp % 2;
    const auto load = [&](int64_t chunk, int stage) {
        if (chunk < g.chunks) {
            copy_bordered<CHANNELS, ROW, BLOCK>(g.s, s.places, g.x + to_in, g.x_stride, g.pixels, chunk * PIXELS,
                                                s.stages[stage].x);
            copy_dy(g, s.stages[stage], chunk * PIXELS, to_out);
        }
        copies_commit();
    };
    grad_tile acc = {};
    int stage = 0;
    find_places<BLOCK>(g.s, s.places);
    __syncthreads();
    load(part, 0);
    for (int64_t chunk = part; chunk < g.chunks; chunk += g.parts, stage ^= 1) {
        load(chunk + g.parts, stage ^ 1);
        copies_wait<1>();
        __syncthreads();
        multiply_chunk(g, s.stages[stage], pair, half, acc);
        __syncthreads();
    }
    copies_wait<0>();
    __syncthreads();
    leave_sums(g, reinterpret_cast<float *>(shared_memory), pair, half, acc, part, to_out, to_in);
}

__global__ static void __launch_bounds__(PARTS_BLOCK)
    sum_kernel(const float *from, int64_t parts, int64_t fours, target<float> to) {
    sum_parts(from, parts, fours, blockIdx.x, to);
}

/* ---- launches ---- */

static_assert(sizeof(grad_memory) <= (144 << 10), "shared memory");
static_assert(CHANNELS * (TAPS * CHANNELS + 8) * sizeof(float) <= sizeof(grad_memory), "the sums have room");

static bool device_has_room(void) {
    int device = 0, bytes = 0;
    return cudaGetDevice(&device) == cudaSuccess &&
           cudaDeviceGetAttribute(&bytes, cudaDevAttrMaxSharedMemoryPerBlockOptin, device) == cudaSuccess &&
           bytes >= (int)sizeof(grad_memory) + 1024;
}

static border_shape shape_of(const nn_call *c) { return border_shape_of(c->input[0].shape, PIXELS); }

bool weight_gradient_fits(const nn_call *c, int64_t dy_stride) {
    const nn_array *x = &c->input[0], *y = &c->output[0];
    const border_shape s = shape_of(c);
    return x->type == NN_BF16 && c->input[1].shape->dim[1] == 3 && NN_ATTR(convolution, c)->stride == 1 &&
           NN_ATTR(convolution, c)->padding == 1 && s.pieces > 0 && s.places() <= MOST_BORDERED &&
           nn_channels(x) % CHANNELS == 0 && nn_channels(y) == CHANNELS && x->stride % 8 == 0 && x->offset % 8 == 0 &&
           dy_stride % 8 == 0 && device_has_room();
}

static grad_work cut(const nn_call *c) {
    grad_work g = {};
    g.pixels = nn_pixels(&c->input[0]);
    g.in = nn_channels(&c->input[0]);
    g.out = nn_channels(&c->output[0]);
    g.chunks = parts(g.pixels, PIXELS);
    g.s = shape_of(c);
    g.parts = GRAD_BLOCKS / (g.in / CHANNELS * (g.out / CHANNELS));
    if (g.parts > g.chunks) g.parts = g.chunks;
    if (g.parts < 1) g.parts = 1;
    return g;
}

size_t weight_gradient_workspace(const nn_call *c) {
    const grad_work g = cut(c);
    return g.parts == 1 ? 0 : (size_t)(g.parts * g.out * TAPS * g.in);
}

void weight_gradient_run(const nn_call *c, const void *dy, int64_t dy_stride, float *workspace) {
    grad_work g = cut(c);
    const nn_array *x = &c->input[0];
    g.x = (const bf16 *)x->data;
    g.dy = (const bf16 *)dy;
    g.x_stride = x->stride;
    g.dy_stride = dy_stride;
    g.dw = g.parts == 1 ? target_of<float>(c, 1) : target<float>{workspace, false};
    if (g.pixels == 0) return;
    const void *kernel = (const void *)gradient_kernel;
    void *arguments[] = {&g};
    const unsigned blocks = (unsigned)(g.in / CHANNELS * (g.out / CHANNELS) * g.parts);
    cudaError_t e = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, sizeof(grad_memory));
    if (e == cudaSuccess) e = cudaLaunchKernel(kernel, blocks, BLOCK, arguments, sizeof(grad_memory), stream_of(c));
    if (e != cudaSuccess) nn_cuda_launch_failed("a convolution's gradient", cudaGetErrorString(e));
    if (g.parts == 1) return;
    const int64_t fours = g.out * TAPS * g.in / 4;
    sum_kernel<<<(unsigned)parts(fours, PARTS_COLS), PARTS_BLOCK, 0, stream_of(c)>>>(workspace, g.parts, fours,
                                                                                     target_of<float>(c, 1));
}
