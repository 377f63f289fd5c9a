/* Implicit GEMM: a row of a is the 9 x 128 numbers of relu(norm(x)) under the filter at a pixel. Shared memory has each
 * number once, with a border of zeros (bordered.cuh). ldmatrix gathers the rows of a tap, and wgmma takes them from registers
 * (RS). All of W stays in shared memory. */
#include "nn/backend/cuda/hopper/norm_convolution.h"
#include "nn/backend/cuda/hopper/bordered_gradient.cuh"
#include "nn/backend/cuda/hopper/epilogue_rows.cuh"
#include "nn/backend/cuda/hopper/norm_prologue.cuh"
#include "nn/backend/cuda/sum_parts.cuh"

/* All of W: for each tap and half of x's channels, a tile with a row for each channel of y. */
typedef bf16 all_weights[TAPS][HALVES][OUT * SW128_COLS];

template <int THREADS> __device__ static inline void copy_weights(const bf16 *from, all_weights &to) {
    for (int at = (int)threadIdx.x; at < OUT * TAPS * (IN / 8); at += THREADS) {
        const int out = at / (TAPS * (IN / 8)), tap = at / (IN / 8) % TAPS, pack = at % (IN / 8);
        copy_async(&to[tap][pack / 8][swizzled(out, pack % 8)], from + at * 8, true);
    }
}

/* ---- forward ---- */

struct forward_work {
    const bf16 *x, *w;
    bf16 *y;
    int64_t x_stride, y_stride, pixels;
    border_shape s;
    norm_arrays norm;
    const int64_t *live_rows;
    int64_t pixels_a_row;
    moments_work found;
};

/* Four warpgroups with 64 pixels each. They have different pixels, and half of the channels of x at a time; or, if SPLIT_K,
 * the same pixels and a quarter of the channels each, whose sums are added in the epilogue. */
template <bool SPLIT_K> struct forward_shape {
    static constexpr int WARPGROUPS = 4, THREADS = WARPGROUPS * WARPGROUP, WARPS = THREADS / 32;
    static constexpr bool IS_SPLIT_K = SPLIT_K;
    static constexpr int PIXELS = SPLIT_K ? 64 : 64 * WARPGROUPS;
    static constexpr int TILES = SPLIT_K ? HALVES : 1, STAGES = SPLIT_K ? 1 : 2; /* TILES: of a stage */
    static constexpr int MOST_PLACES = SPLIT_K ? 144 : 400; /* with borders: 4 images of 4 x 4, or 4 rows of 64 */
    static constexpr int PACKS = TILES * 8, HELD = (MOST_PLACES * PACKS + THREADS - 1) / THREADS;
    struct memory {
        all_weights w;
        union {
            bf16 x[STAGES][TILES][MOST_PLACES * SW128_COLS];
            warpgroup_sums<OUT> sums[SPLIT_K ? WARPGROUPS : 1];
        };
        bf16 out[SPLIT_K ? 1 : WARPS][16 * OUT];
        tile_sums<OUT, WARPS> found;
        float4 lines[IN / 2];
        int places[MOST_PLACES];
    };
};

/* Packs of 8 channels in registers, between global and shared memory. */
template <typename S> struct held_packs {
    uint4 pack[S::HELD];
    unsigned there; /* bit i: pack i is inside an image */
};

template <typename S>
__device__ static inline void load_packs(const forward_work &f, const int *places, int64_t first, int half,
                                         held_packs<S> &to) {
    const border_edges edges(f.s, first);
    const bf16 *const x = f.x + half * SW128_COLS + threadIdx.x % S::PACKS * 8;
    to.there = 0;
#pragma unroll
    for (int i = 0; i < S::HELD; i++) {
        const int place = (int)(threadIdx.x + i * S::THREADS) / S::PACKS;
        to.pack[i] = make_uint4(0, 0, 0, 0);
        if (place >= f.s.places()) continue;
        const int64_t pixel = first + (places[place] >> 2);
        if (edges.outside(places[place]) || pixel >= f.pixels) continue;
        to.pack[i] = *reinterpret_cast<const uint4 *>(x + pixel * f.x_stride);
        to.there |= 1u << i;
    }
}

/* Stores relu(norm(x)), and zeros outside images. */
template <typename S>
__device__ static inline void store_normalised(const forward_work &f, const float4 *lines, int half,
                                               const held_packs<S> &from,
                                               bf16 (&to)[S::TILES][S::MOST_PLACES * SW128_COLS]) {
    const int pack = (int)threadIdx.x % S::PACKS;
    float4 line[4];
    for (int k = 0; k < 4; k++) line[k] = lines[half * (SW128_COLS / 2) + pack * 4 + k];
#pragma unroll
    for (int i = 0; i < S::HELD; i++) {
        const int place = (int)(threadIdx.x + i * S::THREADS) / S::PACKS;
        const uint4 p = from.pack[i];
        uint4 z = make_uint4(0, 0, 0, 0);
        if (place >= f.s.places()) continue;
        if (from.there >> i & 1) z = normalised(p, line);
        *reinterpret_cast<uint4 *>(to[pack / 8] + swizzled(place, pack % 8)) = z;
    }
}

/* acc += W * x, for KS times 16 channels of a half of x's, from the k-th 16 on. Rows are the pixels whose 3 x 3 places
 * begin at the lanes' corners. Registers are double-buffered: ldmatrix of a step runs during the wgmma of the step before. */
template <int KS>
__device__ static inline void multiply_taps(const all_weights &w, int half, int k, const bf16 *x, int corner, int wide,
                                            float (&acc)[OUT / 8][4], bool add) {
    const int lane = (int)threadIdx.x % 32;
    uint32_t left[2][2][4];
#pragma unroll
    for (int step = 0; step < TAPS * KS; step += 2) {
        const int tap = step / KS, place = corner + tap / 3 * wide + tap % 3;
        auto &now = left[step / 2 % 2];
#pragma unroll
        for (int i = 0; i < 2; i++) load_matrices(now[i], x + swizzled(place, (k + step % KS + i) * 2 + lane / 16));
        wgmma_fence();
#pragma unroll
        for (int i = 0; i < 2; i++)
            wgmma_rs<0>(acc, now[i], wgmma_descriptor(w[tap][half] + (k + step % KS + i) * 16), add || step + i > 0);
        wgmma_commit_group();
        wgmma_wait_group<1>();
    }
    wgmma_wait_group<0>();
}

/* The epilogue of a warp's 16 pixels from `pixel` on; zeros for rows beyond the batch. */
template <typename S>
__device__ static inline void store_rows(const row_output &to, typename S::memory &s, const float (&acc)[OUT / 8][4],
                                         int64_t pixel, bool first) {
    const int lane = (int)threadIdx.x % 32;
    bf16 *const out = s.out[S::IS_SPLIT_K ? 0 : threadIdx.x / 32];
    const bool lives[2] = {pixel + lane / 4 < to.live, pixel + 8 + lane / 4 < to.live};
    const auto place = [](int row, int pack) { return row * OUT + (pack ^ (row / 2 & 3)) * 8; };
#pragma unroll
    for (int n = 0; n < OUT / 8; n += 2) {
        uint32_t m[4];
#pragma unroll
        for (int i = 0; i < 4; i++)
            m[i] = lives[i % 2] ? narrow_pair(acc[n + i / 2][i % 2 * 2], acc[n + i / 2][i % 2 * 2 + 1]) : 0;
        stmatrix_x4(out + place(lane % 16, n + lane / 16), m);
    }
    __syncwarp();
    uint4 packs[2];
#pragma unroll
    for (int i = 0; i < 2; i++) packs[i] = *reinterpret_cast<const uint4 *>(out + place(lane / 4 + i * 8, lane % 4));
    store_packs<4>(to, packs, pixel + lane / 4, 8, lane % 4 * 8, first, s.found);
    add_count<4>(s.found, count_live<2>(pixel + lane / 4, 8, to.live), first);
    __syncwarp();
}

/* A CTA takes its pixels PIXELS at a time, by halves of the channels: the next half is loaded while one is multiplied. If
 * SPLIT_K, it has PIXELS pixels, and all channels at once. */
template <typename S> __global__ static void __launch_bounds__(S::THREADS, 1) convolution_kernel(const forward_work f) {
    typename S::memory &s = *reinterpret_cast<typename S::memory *>(smem);
    copy_weights<S::THREADS>(f.w, s.w);
    copies_commit();
    find_places<S::THREADS>(f.s, s.places);
    grid_dependency_sync();
    const int64_t live = live_pixels(f);
    const int64_t first = (int64_t)blockIdx.x * f.found.size;
    const int64_t end = first + f.found.size < f.pixels ? first + f.found.size : f.pixels;
    const row_output to = {f.y, f.y_stride, end, live, f.found.to.first != NULL};
    const int warpgroup = (int)threadIdx.x / WARPGROUP, warp = (int)threadIdx.x / 32;
    const int corner = corner_of(f.s, (S::IS_SPLIT_K ? warp % 4 : warp) * 16 + (int)threadIdx.x % 16);
    find_lines<S::THREADS>(f.norm, IN, IN, (float)live, s.lines);
    __syncthreads();
    held_packs<S> held;
    load_packs<S>(f, s.places, first, 0, held);
    store_normalised<S>(f, s.lines, 0, held, s.x[0]);
    copies_wait<0>();
    fence_proxy_async();
    float acc[OUT / 8][4];
    for (int64_t pixel = first; pixel < end; pixel += S::PIXELS) {
        if constexpr (S::IS_SPLIT_K) {
            __syncthreads();
            multiply_taps<2>(s.w, warpgroup / 2, warpgroup % 2 * 2, s.x[0][warpgroup / 2], corner, f.s.wide(), acc,
                             false);
            store_sums<OUT, S::WARPGROUPS>(to, s.sums, acc, pixel, s.found);
        } else {
#pragma unroll
            for (int half = 0; half < HALVES; half++) {
                const int64_t next = half + 1 < HALVES ? pixel : pixel + S::PIXELS;
                __syncthreads();
                if (next < end) load_packs<S>(f, s.places, next, half ^ 1, held);
                multiply_taps<4>(s.w, half, 0, s.x[half][0], corner, f.s.wide(), acc, half > 0);
                if (next < end) store_normalised<S>(f, s.lines, half ^ 1, held, s.x[half ^ 1]);
            }
            store_rows<S>(to, s, acc, pixel + warp * 16, pixel == first);
        }
    }
    if (f.found.to.first) store_block(f.found, 0, live, s.found);
}

/* ---- backward: the gradient of x ---- */

enum {
    BACK_BLOCK = HALVES * WARPGROUP, /* a warpgroup for each half of x's channels */
    BACK_PIXELS = 64,
    BACK_PLACES = 144,
    APPLY_BLOCK = 256,
    DY_ROW = OUT + 8 /* elements of a place, padded: 8 places begin in different banks */
};

struct backward_work {
    const bf16 *x, *w;
    bordered_gradient dy;
    bf16 *dx; /* between the kernels g, the gradient of norm(x) */
    int64_t x_stride, dx_stride, pixels, size;
    border_shape s;
    norm_arrays norm;
    const int64_t *live_rows;
    int64_t pixels_a_row;
    float *partials; /* of each CTA: [2, IN], sums of g and of g (x - mean) */
    unsigned *counter;
    float *lines; /* [3, IN]: dx = lines_0 g + lines_1 + lines_2 x */
    target<float> dgamma, dbeta;
};

struct back_memory {
    all_weights w;
    union {
        struct {
            bf16 dy[BACK_PLACES * DY_ROW], y[BACK_PLACES * OUT], dz[HALVES][BACK_PIXELS * SW128_COLS];
        };
        float sums[2][BACK_BLOCK / 32][SW128_COLS];
        float4 parts[4][2 * IN / 4];
    };
    int places[BACK_PLACES];
    linear_lines linear;
};

/* A thread's 8 channels. */
struct back_channels {
    norm_line line[8];
    float sum[8], product[8];
};

/* Gradients of relu(norm(x)) for a half of the channels. Rows are the pixels whose 3 x 3 places begin at the lanes'
 * corners. */
__device__ static inline void multiply_back(const all_weights &w, int half, const bf16 *dy, int corner, int wide,
                                            float (&acc)[SW128_COLS / 8][4]) {
    const int lane = (int)threadIdx.x % 32;
    uint32_t left[2][OUT / 16][4];
#pragma unroll
    for (int tap = 0; tap < TAPS; tap++) {
        const bf16 *const from = dy + (corner + (2 - tap / 3) * wide + 2 - tap % 3) * DY_ROW + lane / 16 * 8;
#pragma unroll
        for (int k = 0; k < OUT / 16; k++) load_matrices(left[tap % 2][k], from + k * 16);
        wgmma_fence();
#pragma unroll
        for (int k = 0; k < OUT / 16; k++)
            wgmma_rs<1>(acc, left[tap % 2][k], wgmma_descriptor(w[tap][half] + k * 16 * SW128_COLS), tap > 0 || k > 0);
        wgmma_commit_group();
        wgmma_wait_group<1>();
    }
    wgmma_wait_group<0>();
}

/* The epilogue, from x in registers and the gradient in shared memory: through relu, into the sums; stores g as dx. */
template <int R>
__device__ static inline void store_grads(const backward_work &b, const uint4 (&xs)[R], const bf16 *dz, int64_t first,
                                          int64_t channel, back_channels &of) {
    const int thread = (int)threadIdx.x % WARPGROUP;
#pragma unroll
    for (int i = 0; i < R; i++) {
        const int row = thread / 8 + i * (WARPGROUP / 8);
        if (first + row >= b.pixels) break;
        float x[8], g[8];
        widen_raw<bf16>(xs[i], x);
        load_floats<8>(dz + swizzled(row, thread % 8), g);
#pragma unroll
        for (int k = 0; k < 8; k++) {
            g[k] = fmaf(x[k], of.line[k].factor, of.line[k].shift) > 0 ? g[k] : 0;
            of.sum[k] += g[k];
            of.product[k] = fmaf(g[k], x[k] - of.line[k].mean, of.product[k]);
        }
        store_floats<8>(b.dx + (first + row) * b.dx_stride + channel, g);
    }
}

/* Stores the CTA's sums over its pixels. */
__device__ static inline void store_grads(const backward_work &b, back_memory &s, back_channels &of) {
    const int lane = (int)threadIdx.x % 32, warp = (int)threadIdx.x / 32;
    __syncthreads();
#pragma unroll
    for (int k = 0; k < 8; k++) {
        for (int step = 8; step < 32; step *= 2) {
            of.sum[k] += __shfl_xor_sync(0xffffffffu, of.sum[k], step);
            of.product[k] += __shfl_xor_sync(0xffffffffu, of.product[k], step);
        }
        if (lane < 8) s.sums[0][warp][lane * 8 + k] = of.sum[k], s.sums[1][warp][lane * 8 + k] = of.product[k];
    }
    __syncthreads();
    const int half = (int)threadIdx.x / SW128_COLS % HALVES, which = (int)threadIdx.x / IN,
              col = (int)threadIdx.x % SW128_COLS;
    float sum = 0;
    for (int k = 0; k < 4; k++) sum += s.sums[which][half * 4 + k][col];
    b.partials[(int64_t)blockIdx.x * 2 * IN + threadIdx.x] = sum;
}

/* The gradient of x is factor (g - mean(g) - (x - mean) p) = lines_0 g + lines_1 + lines_2 x, with mean(g) = sum / n and
 * p = product scale^2 / n. */
__device__ static inline void store_channel(const backward_work &b, int k, float sum, float product) {
    const norm_line line = saved_line(b.norm, IN, k);
    const float n = fmaxf((float)live_pixels(b), 1);
    const float p = product * line.scale * line.scale / n;
    const float dgamma[1] = {product * line.scale}, dbeta[1] = {sum};
    put<1>(b.dgamma, k, dgamma);
    put<1>(b.dbeta, k, dbeta);
    b.lines[k] = line.factor;
    b.lines[IN + k] = -line.factor * (sum / n - line.mean * p);
    b.lines[2 * IN + k] = -line.factor * p;
}

/* The last CTA adds the sums of all. */
__device__ static inline void sum_ctas(const backward_work &b, back_memory &s) {
    constexpr int FOURS = 2 * IN / 4, SLICES = BACK_BLOCK / FOURS;
    if (!comes_last(b.counter, gridDim.x)) return;
    const int col = (int)threadIdx.x % FOURS, slice = (int)threadIdx.x / FOURS;
    const float4 *const from = reinterpret_cast<const float4 *>(b.partials) + col;
    float4 sum = make_float4(0, 0, 0, 0);
    sum_apart<SLICES, 16>(from, FOURS, slice, gridDim.x, sum);
    s.parts[slice][col] = sum;
    __syncthreads();
    if (threadIdx.x >= IN) return;
    float all[2] = {0, 0};
    for (int i = 0; i < SLICES; i++) {
        const float *const part = reinterpret_cast<const float *>(s.parts[i]);
        for (int which = 0; which < 2; which++) all[which] += part[which * IN + threadIdx.x];
    }
    store_channel(b, (int)threadIdx.x, all[0], all[1]);
}

__global__ static void __launch_bounds__(BACK_BLOCK, 2) gradient_kernel(const backward_work b) {
    back_memory &s = *reinterpret_cast<back_memory *>(smem);
    constexpr int R = BACK_PIXELS * 8 / WARPGROUP;
    const int64_t first = (int64_t)blockIdx.x * b.size;
    const int64_t end = first + b.size < b.pixels ? first + b.size : b.pixels;
    const int half = (int)threadIdx.x / WARPGROUP, thread = (int)threadIdx.x % WARPGROUP, lane = thread % 32;
    const int channel = half * SW128_COLS + thread % 8 * 8, row = thread / 32 * 16 + lane % 16;
    const int corner = corner_of(b.s, row);
    const auto load = [&](int64_t pixel) {
        if (pixel < end) copy_gradient<DY_ROW, BACK_BLOCK>(b.dy, b.s, s.places, pixel, s.dy, s.y);
        copies_commit();
    };
    copy_weights<BACK_BLOCK>(b.w, s.w);
    find_places<BACK_BLOCK>(b.s, s.places);
    grid_dependency_sync();
    find_linear(b.dy, s.linear);
    const int64_t live = live_pixels(b.dy);
    __syncthreads();
    load(first);
    back_channels of;
#pragma unroll
    for (int k = 0; k < 8; k++) {
        of.line[k] = saved_line(b.norm, IN, channel + k);
        of.sum[k] = of.product[k] = 0;
    }
    for (int64_t pixel = first; pixel < end; pixel += BACK_PIXELS) {
        uint4 xs[R];
#pragma unroll
        for (int i = 0; i < R; i++) {
            const int64_t p = pixel + thread / 8 + i * (WARPGROUP / 8);
            xs[i] = load_raw<8>(b.x + p * b.x_stride + channel, p < end);
        }
        copies_wait<0>();
        add_linear<DY_ROW, BACK_BLOCK>(b.dy, b.s, s.places, s.linear, pixel, live, s.dy, s.y);
        fence_proxy_async();
        __syncthreads();
        float acc[SW128_COLS / 8][4];
        multiply_back(s.w, half, s.dy, corner, b.s.wide(), acc);
        __syncthreads(); /* dy is read */
        load(pixel + BACK_PIXELS);
#pragma unroll
        for (int n = 0; n < SW128_COLS / 8; n += 2) {
            const uint32_t m[4] = {narrow_pair(acc[n][0], acc[n][1]), narrow_pair(acc[n][2], acc[n][3]),
                                   narrow_pair(acc[n + 1][0], acc[n + 1][1]),
                                   narrow_pair(acc[n + 1][2], acc[n + 1][3])};
            stmatrix_x4(s.dz[half] + swizzled(row, n + lane / 16), m);
        }
        warpgroup_sync(half);
        store_grads(b, xs, s.dz[half], pixel, channel, of);
    }
    copies_wait<0>();
    store_grads(b, s, of);
    sum_ctas(b, s);
}

/* dx from g; zeros for rows beyond the batch. */
__global__ static void __launch_bounds__(APPLY_BLOCK) apply_kernel(const backward_work b) {
    constexpr int R = 4, PACKS = IN / 8, AT_ONCE = APPLY_BLOCK / PACKS;
    grid_dependency_sync();
    const int64_t first = (int64_t)blockIdx.x * R * AT_ONCE + threadIdx.x / PACKS;
    const int64_t live = live_pixels(b);
    const int channel = (int)threadIdx.x % PACKS * 8;
    uint4 xs[R], gs[R];
#pragma unroll
    for (int i = 0; i < R; i++) {
        const int64_t p = first + i * AT_ONCE;
        xs[i] = load_raw<8>(b.x + p * b.x_stride + channel, p < b.pixels);
        gs[i] = load_raw<8>((const bf16 *)b.dx + p * b.dx_stride + channel, p < b.pixels);
    }
    float lines[3][8];
    for (int k = 0; k < 3; k++) load_floats<8>(b.lines + k * IN + channel, lines[k]);
#pragma unroll
    for (int i = 0; i < R; i++) {
        const int64_t p = first + i * AT_ONCE;
        float x[8], g[8];
        widen_raw<bf16>(xs[i], x);
        widen_raw<bf16>(gs[i], g);
        for (int k = 0; k < 8; k++) g[k] = p < live ? fmaf(g[k], lines[0][k], fmaf(x[k], lines[2][k], lines[1][k])) : 0;
        if (p < b.pixels) store_floats<8>(b.dx + p * b.dx_stride + channel, g);
    }
}

/* ---- launches ---- */

static_assert(sizeof(forward_shape<false>::memory) <= MOST_SHARED && sizeof(forward_shape<true>::memory) <= MOST_SHARED,
              "shared memory of forward");
static_assert(2 * (sizeof(back_memory) + 1024 + 256) <= 228 << 10, "two CTAs of backward");

static_assert((int)forward_shape<false>::PIXELS == (int)NORM_ROWS_PIXELS &&
                  (int)forward_shape<true>::PIXELS == (int)NORM_IMAGE_PIXELS,
              "tiles of norm_rows.cu");

/* Whether warpgroups have different pixels: if there are enough for most multiprocessors. */
static bool is_wide(const nn_call *c) {
    return parts(nn_pixels(&c->output[0]), forward_shape<false>::PIXELS) >= PROCESSORS / 2;
}

template <typename S> static bool shape_fits(const nn_call *c) {
    const border_shape s = border_shape_of(c->output[0].shape, S::PIXELS);
    return s.pieces > 0 && s.places() <= S::MOST_PLACES;
}

bool norm_convolution_fits(const nn_call *c, const nn_call *norm) {
    const nn_array *x = &norm->input[0];
    const int64_t *w = c->input[1].shape->dim;
    return c->training && w[0] == OUT && w[1] == 3 && NN_ATTR(convolution, c)->padding == 1 &&
           NN_ATTR(convolution, c)->stride == 1 && nn_channels(x) == IN && c->input[1].type == NN_BF16 && in_packs(x) &&
           in_packs(&c->output[0]) && !norm->input[1].shape && NN_ATTR(batch_norm, norm)->activation == NN_RELU &&
           norm->fused->moments.first && !norm->fused->linear.first && !norm->grad->accumulate[0] &&
           shape_fits<forward_shape<true>>(c) && (!is_wide(c) || shape_fits<forward_shape<false>>(c)) &&
           norm_weights_fit(c) && hopper_is_here();
}

/* CTAs, and the pixels of each. */
static moments_work cut_forward(const nn_call *c) {
    const int64_t pixels = nn_pixels(&c->output[0]), wide = forward_shape<false>::PIXELS;
    moments_work w = {};
    w.size = is_wide(c) ? parts(parts(pixels, wide), PROCESSORS) * wide : (int64_t)forward_shape<true>::PIXELS;
    w.tiles = parts(pixels, w.size);
    w.channels = OUT;
    return w;
}

static int64_t back_size(const nn_call *c) {
    return parts(parts(nn_pixels(&c->output[0]), BACK_PIXELS), 2 * PROCESSORS) * BACK_PIXELS;
}
static int64_t back_blocks(const nn_call *c) { return parts(nn_pixels(&c->output[0]), back_size(c)); }

size_t norm_convolution_workspace(const nn_call *c) {
    if (!c->grad->output[0]) return moments_floats(cut_forward(c).tiles, OUT);
    return (size_t)(back_blocks(c) * 2 * IN + 3 * IN);
}

size_t norm_convolution_counters(const nn_call *) { return 1; }

template <typename S> static void run_forward(const nn_call *c, forward_work *f) {
    f->s = border_shape_of(c->output[0].shape, S::PIXELS);
    launch_norm_kernel(c, (const void *)convolution_kernel<S>, (unsigned)f->found.tiles, S::THREADS,
                       sizeof(typename S::memory), f);
}

void norm_convolution_forward(const nn_call *c, float *workspace, unsigned *counters) {
    const nn_array *x = &c->fused->maker->input[0], *y = &c->output[0];
    forward_work f = {};
    f.x = (const bf16 *)x->data;
    f.w = (const bf16 *)c->input[1].data;
    f.y = (bf16 *)y->data;
    f.x_stride = x->stride;
    f.y_stride = y->stride;
    f.pixels = nn_pixels(y);
    f.norm = norm_arrays_of(c->fused->maker);
    f.live_rows = x->live_rows;
    f.pixels_a_row = x->cols / IN;
    f.found = cut_forward(c);
    f.found.partials = workspace;
    f.found.counters = counters;
    f.found.to = c->fused->output_moments;
    if (f.pixels == 0) return;
    if (is_wide(c) ? norm_rows_fit(c) : norm_image_fits(c)) norm_rows_forward(c, &f.found);
    else if (is_wide(c)) run_forward<forward_shape<false>>(c, &f);
    else run_forward<forward_shape<true>>(c, &f);
}

void norm_convolution_backward(const nn_call *c, float *workspace, unsigned *counters) {
    const nn_call *norm = c->fused->maker;
    const nn_array *x = &norm->input[0];
    backward_work b = {};
    b.x = (const bf16 *)x->data;
    b.w = (const bf16 *)c->input[1].data;
    b.dy = bordered_gradient_of(c);
    b.dx = (bf16 *)norm->grad->input[0];
    b.x_stride = b.dx_stride = x->stride;
    b.pixels = nn_pixels(x);
    b.size = back_size(c);
    b.s = border_shape_of(c->output[0].shape, BACK_PIXELS);
    b.norm = norm_arrays_of(norm);
    b.live_rows = x->live_rows;
    b.pixels_a_row = x->cols / IN;
    b.lines = workspace;
    b.partials = workspace + 3 * IN;
    b.counter = counters;
    b.dgamma = {norm->grad->input[2], norm->grad->accumulate[2] || c->grad->accumulate_sums};
    b.dbeta = {norm->grad->input[3], norm->grad->accumulate[3] || c->grad->accumulate_sums};
    if (b.pixels == 0) return;
    launch_norm_kernel(c, (const void *)gradient_kernel, (unsigned)back_blocks(c), BACK_BLOCK, sizeof(back_memory), &b);
    launch_norm_kernel(c, (const void *)apply_kernel, (unsigned)parts(b.pixels, 4 * APPLY_BLOCK / (IN / 8)),
                       APPLY_BLOCK, 0, &b);
}
