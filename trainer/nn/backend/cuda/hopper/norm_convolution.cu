#include "nn/backend/cuda/hopper/norm_convolution.h"
#include "nn/backend/cuda/hopper/bordered_gradient.cuh"
#include "nn/backend/cuda/hopper/map.h"
#include "nn/backend/cuda/hopper/norm_reading.cuh"
#include "nn/backend/cuda/hopper/norm_rows.h"
#include "nn/backend/cuda/hopper/norm_shape.cuh"
#include "nn/backend/cuda/hopper/norm_weights.h"
#include "nn/backend/cuda/hopper/tile_output.cuh"
#include "nn/backend/cuda/sum_parts.cuh"

extern __shared__ __align__(1024) unsigned char shared_memory[];

/* All of W: for each tap and half of x's channels, a slab with a row for each channel of y. */
typedef bf16 all_weights[TAPS][HALVES][OUT * SLAB];

template <int THREADS> __device__ static inline void copy_weights(const bf16 *from, all_weights &to) {
    for (int at = (int)threadIdx.x; at < OUT * TAPS * (IN / 8); at += THREADS) {
        const int out = at / (TAPS * (IN / 8)), tap = at / (IN / 8) % TAPS, pack = at % (IN / 8);
        copy_async(&to[tap][pack / 8][slab_place(out, pack % 8)], from + at * 8, true);
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

/* Four groups of warps, each with 64 pixels. They have pixels below each other, and half of the channels of x at a time; or,
 * SPLIT, the same pixels, and a quarter of the channels each, whose sums are added up in the end. */
template <bool SPLIT> struct forward_shape {
    static constexpr int GROUPS = 4, THREADS = GROUPS * GROUP, WARPS = THREADS / 32;
    static constexpr bool IS_SPLIT = SPLIT;
    static constexpr int PIXELS = SPLIT ? 64 : 64 * GROUPS;
    static constexpr int SLABS = SPLIT ? HALVES : 1, STAGES = SPLIT ? 1 : 2; /* of channels at a time, of those */
    static constexpr int MOST_PLACES = SPLIT ? 144 : 400; /* with borders: of 4 images of 4 x 4, or 4 rows of 64 */
    static constexpr int PACKS = SLABS * 8, HELD = (MOST_PLACES * PACKS + THREADS - 1) / THREADS;
    struct memory {
        all_weights w;
        union {
            bf16 x[STAGES][SLABS][MOST_PLACES * SLAB];
            group_sums_of<OUT> sums[SPLIT ? GROUPS : 1];
        };
        bf16 out[SPLIT ? 1 : WARPS][16 * OUT];
        tile_sums<OUT, WARPS> found;
        float4 lines[IN / 2];
        int places[MOST_PLACES];
    };
};

/* Packs of a thread on their way to shared memory. */
template <typename S> struct held_packs {
    uint4 pack[S::HELD];
    unsigned there; /* bit i: pack i is of an image */
};

template <typename S>
__device__ static inline void fetch_packs(const forward_work &f, const int *places, int64_t first, int half,
                                          held_packs<S> &to) {
    const border_edges edges(f.s, first);
    const bf16 *const x = f.x + half * SLAB + threadIdx.x % S::PACKS * 8;
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

/* As relu(norm(x)), zeros outside of images. */
template <typename S>
__device__ static inline void settle_packs(const forward_work &f, const float4 *lines, int half,
                                           const held_packs<S> &from, bf16 (&to)[S::SLABS][S::MOST_PLACES * SLAB]) {
    const int pack = (int)threadIdx.x % S::PACKS;
    float4 line[4];
    for (int k = 0; k < 4; k++) line[k] = lines[half * (SLAB / 2) + pack * 4 + k];
#pragma unroll
    for (int i = 0; i < S::HELD; i++) {
        const int place = (int)(threadIdx.x + i * S::THREADS) / S::PACKS;
        const uint4 p = from.pack[i];
        uint4 z = make_uint4(0, 0, 0, 0);
        if (place >= f.s.places()) continue;
        if (from.there >> i & 1)
            z = make_uint4(normalised(p.x, line[0]), normalised(p.y, line[1]), normalised(p.z, line[2]),
                           normalised(p.w, line[3]));
        *reinterpret_cast<uint4 *>(to[pack / 8] + slab_place(place, pack % 8)) = z;
    }
}

/* acc += W * x, of KS times 16 channels from number `k` of them on, of a half of x's. Rows are the pixels whose nine places
 * begin at the lanes' corners. */
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
        for (int i = 0; i < 2; i++) load_matrices(now[i], x + slab_place(place, (k + step % KS + i) * 2 + lane / 16));
        products_begin();
#pragma unroll
        for (int i = 0; i < 2; i++)
            multiply_rows(acc, now[i], slab_matrix(w[tap][half] + (k + step % KS + i) * 16), add || step + i > 0);
        products_commit();
        products_wait<1>();
    }
    products_wait<0>();
}

/* A warp's 16 pixels from `pixel` on; zeros where they are not of the batch. */
template <typename S>
__device__ static inline void store_rows(const tile_output &to, typename S::memory &s, const float (&acc)[OUT / 8][4],
                                         int64_t pixel, bool first) {
    const int lane = (int)threadIdx.x % 32;
    bf16 *const out = s.out[S::IS_SPLIT ? 0 : threadIdx.x / 32];
    const bool lives[2] = {pixel + lane / 4 < to.live, pixel + 8 + lane / 4 < to.live};
    const auto place = [](int row, int pack) { return row * OUT + (pack ^ (row / 2 & 3)) * 8; };
#pragma unroll
    for (int n = 0; n < OUT / 8; n += 2) {
        uint32_t m[4];
#pragma unroll
        for (int i = 0; i < 4; i++)
            m[i] = lives[i % 2] ? narrow_pair(acc[n + i / 2][i % 2 * 2], acc[n + i / 2][i % 2 * 2 + 1]) : 0;
        store_matrices(out + place(lane % 16, n + lane / 16), m);
    }
    __syncwarp();
    uint4 packs[2];
#pragma unroll
    for (int i = 0; i < 2; i++) packs[i] = *reinterpret_cast<const uint4 *>(out + place(lane / 4 + i * 8, lane % 4));
    store_packs<4>(to, packs, pixel + lane / 4, 8, lane % 4 * 8, first, s.found);
    add_count<4>(s.found, count_live<2>(pixel + lane / 4, 8, to.live), first);
    __syncwarp();
}

/* A block has some pixels, which it takes PIXELS at a time, by halves of the channels: what it reads for the next half is on
 * its way while one is multiplied. SPLIT, it has PIXELS, and all channels at once. */
template <typename S> __global__ static void __launch_bounds__(S::THREADS, 1) convolution_kernel(const forward_work f) {
    typename S::memory &s = *reinterpret_cast<typename S::memory *>(shared_memory);
    copy_weights<S::THREADS>(f.w, s.w);
    copies_commit();
    find_places<S::THREADS>(f.s, s.places);
    wait_for_former();
    const int64_t live = f.live_rows ? *f.live_rows * f.pixels_a_row : f.pixels;
    const int64_t first = (int64_t)blockIdx.x * f.found.size;
    const int64_t end = first + f.found.size < f.pixels ? first + f.found.size : f.pixels;
    const tile_output to = {f.y, f.y_stride, end, live, f.found.to.first != NULL};
    const int group = (int)threadIdx.x / GROUP, warp = (int)threadIdx.x / 32;
    const int corner = corner_of(f.s, (S::IS_SPLIT ? warp % 4 : warp) * 16 + (int)threadIdx.x % 16);
    find_lines<S::THREADS>(f.norm, IN, IN, (float)live, s.lines);
    __syncthreads();
    held_packs<S> held;
    fetch_packs<S>(f, s.places, first, 0, held);
    settle_packs<S>(f, s.lines, 0, held, s.x[0]);
    copies_wait<0>();
    fence_for_boxes();
    float acc[OUT / 8][4];
    for (int64_t pixel = first; pixel < end; pixel += S::PIXELS) {
        if constexpr (S::IS_SPLIT) {
            __syncthreads();
            multiply_taps<2>(s.w, group / 2, group % 2 * 2, s.x[0][group / 2], corner, f.s.wide(), acc, false);
            store_sums<OUT, S::GROUPS>(to, s.sums, acc, pixel, s.found);
        } else {
#pragma unroll
            for (int half = 0; half < HALVES; half++) {
                const int64_t next = half + 1 < HALVES ? pixel : pixel + S::PIXELS;
                __syncthreads();
                if (next < end) fetch_packs<S>(f, s.places, next, half ^ 1, held);
                multiply_taps<4>(s.w, half, 0, s.x[half][0], corner, f.s.wide(), acc, half > 0);
                if (next < end) settle_packs<S>(f, s.lines, half ^ 1, held, s.x[half ^ 1]);
            }
            store_rows<S>(to, s, acc, pixel + warp * 16, pixel == first);
        }
    }
    if (f.found.to.first) leave_block(f.found, 0, live, s.found);
}

/* ---- backward: the gradient of x ---- */

enum {
    BACK_BLOCK = HALVES * GROUP, /* a group for each half of x's channels */
    BACK_PIXELS = 64,
    BACK_PLACES = 144,
    APPLY_BLOCK = 256,
    DY_ROW = OUT + 8 /* numbers of a place: 8 of them begin in different banks */
};

struct backward_work {
    const bf16 *x, *w;
    bordered_gradient dy;
    bf16 *dx; /* first g, the gradient of norm(x) */
    int64_t x_stride, dx_stride, pixels, size;
    border_shape s;
    norm_arrays norm;
    const int64_t *live_rows;
    int64_t pixels_a_row;
    float *partials; /* of each block: [2, IN]: sums of g, and of g (x - mean) */
    unsigned *counter;
    float *lines; /* [3, IN]: dx = lines_0 g + lines_1 + lines_2 x */
    target<float> dgamma, dbeta;
};

struct back_memory {
    all_weights w;
    union {
        struct {
            bf16 dy[BACK_PLACES * DY_ROW], y[BACK_PLACES * OUT], dz[HALVES][BACK_PIXELS * SLAB];
        };
        float sums[2][BACK_BLOCK / 32][SLAB];
        float4 parts[4][2 * IN / 4];
    };
    int places[BACK_PLACES];
    linear_lines linear;
};

/* Of a thread's 8 channels. */
struct back_channels {
    norm_line line[8];
    float sum[8], product[8];
};

/* Gradients of relu(norm(x)), of a half of the channels: rows are the pixels whose nine places begin at the lanes' corners. */
__device__ static inline void multiply_back(const all_weights &w, int half, const bf16 *dy, int corner, int wide,
                                            float (&acc)[SLAB / 8][4]) {
    const int lane = (int)threadIdx.x % 32;
    uint32_t left[2][OUT / 16][4];
#pragma unroll
    for (int tap = 0; tap < TAPS; tap++) {
        const bf16 *const from = dy + (corner + (2 - tap / 3) * wide + 2 - tap % 3) * DY_ROW + lane / 16 * 8;
#pragma unroll
        for (int k = 0; k < OUT / 16; k++) load_matrices(left[tap % 2][k], from + k * 16);
        products_begin();
#pragma unroll
        for (int k = 0; k < OUT / 16; k++)
            multiply_rows<true>(acc, left[tap % 2][k], slab_matrix(w[tap][half] + k * 16 * SLAB), tap > 0 || k > 0);
        products_commit();
        products_wait<1>();
    }
    products_wait<0>();
}

/* The slope of relu and the sums, of packs of x and of the gradient in shared memory; g to where dx will be. */
template <int R>
__device__ static inline void store_grads(const backward_work &b, const uint4 (&xs)[R], const bf16 *dz, int64_t first,
                                          int64_t channel, back_channels &of) {
    const int thread = (int)threadIdx.x % GROUP;
#pragma unroll
    for (int i = 0; i < R; i++) {
        const int row = thread / 8 + i * (GROUP / 8);
        if (first + row >= b.pixels) break;
        float x[8], g[8];
        widen_raw<bf16>(xs[i], x);
        load_floats<8>(dz + slab_place(row, thread % 8), g);
#pragma unroll
        for (int k = 0; k < 8; k++) {
            g[k] = fmaf(x[k], of.line[k].factor, of.line[k].shift) > 0 ? g[k] : 0;
            of.sum[k] += g[k];
            of.product[k] = fmaf(g[k], x[k] - of.line[k].mean, of.product[k]);
        }
        store_floats<8>(b.dx + (first + row) * b.dx_stride + channel, g);
    }
}

/* A block's sums over its pixels. */
__device__ static inline void leave_grads(const backward_work &b, back_memory &s, back_channels &of) {
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
    const int half = (int)threadIdx.x / SLAB % HALVES, which = (int)threadIdx.x / IN, col = (int)threadIdx.x % SLAB;
    float sum = 0;
    for (int k = 0; k < 4; k++) sum += s.sums[which][half * 4 + k][col];
    b.partials[(int64_t)blockIdx.x * 2 * IN + threadIdx.x] = sum;
}

/* The gradient of x is lines_0 g + lines_1 + lines_2 x: with mean(g) = sum / n and p = product scale^2 / n,
 * factor (g - mean(g) - (x - mean) p). */
__device__ static inline void tell_channel(const backward_work &b, int k, float sum, float product) {
    const norm_line line = saved_line(b.norm, IN, k);
    const float n = fmaxf((float)(b.live_rows ? *b.live_rows * b.pixels_a_row : b.pixels), 1);
    const float p = product * line.scale * line.scale / n;
    const float dgamma[1] = {product * line.scale}, dbeta[1] = {sum};
    put<1>(b.dgamma, k, dgamma);
    put<1>(b.dbeta, k, dbeta);
    b.lines[k] = line.factor;
    b.lines[IN + k] = -line.factor * (sum / n - line.mean * p);
    b.lines[2 * IN + k] = -line.factor * p;
}

/* The sums of all blocks, by the last of them. */
__device__ static inline void sum_blocks(const backward_work &b, back_memory &s) {
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
    tell_channel(b, (int)threadIdx.x, all[0], all[1]);
}

__global__ static void __launch_bounds__(BACK_BLOCK, 2) gradient_kernel(const backward_work b) {
    back_memory &s = *reinterpret_cast<back_memory *>(shared_memory);
    constexpr int R = BACK_PIXELS * 8 / GROUP;
    const int64_t first = (int64_t)blockIdx.x * b.size;
    const int64_t end = first + b.size < b.pixels ? first + b.size : b.pixels;
    const int half = (int)threadIdx.x / GROUP, thread = (int)threadIdx.x % GROUP, lane = thread % 32;
    const int channel = half * SLAB + thread % 8 * 8, row = thread / 32 * 16 + lane % 16;
    const int corner = corner_of(b.s, row);
    const auto load = [&](int64_t pixel) {
        if (pixel < end) copy_gradient<DY_ROW, BACK_BLOCK>(b.dy, b.s, s.places, pixel, s.dy, s.y);
        copies_commit();
    };
    copy_weights<BACK_BLOCK>(b.w, s.w);
    find_places<BACK_BLOCK>(b.s, s.places);
    wait_for_former();
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
            const int64_t p = pixel + thread / 8 + i * (GROUP / 8);
            xs[i] = load_raw<8>(b.x + p * b.x_stride + channel, p < end);
        }
        copies_wait<0>();
        add_linear<DY_ROW, BACK_BLOCK>(b.dy, b.s, s.places, s.linear, pixel, live, s.dy, s.y);
        fence_for_boxes();
        __syncthreads();
        float acc[SLAB / 8][4];
        multiply_back(s.w, half, s.dy, corner, b.s.wide(), acc);
        __syncthreads(); /* all have read dy */
        load(pixel + BACK_PIXELS);
#pragma unroll
        for (int n = 0; n < SLAB / 8; n += 2) {
            const uint32_t m[4] = {narrow_pair(acc[n][0], acc[n][1]), narrow_pair(acc[n][2], acc[n][3]),
                                   narrow_pair(acc[n + 1][0], acc[n + 1][1]),
                                   narrow_pair(acc[n + 1][2], acc[n + 1][3])};
            store_matrices(s.dz[half] + slab_place(row, n + lane / 16), m);
        }
        group_meet(half);
        store_grads(b, xs, s.dz[half], pixel, channel, of);
    }
    copies_wait<0>();
    leave_grads(b, s, of);
    sum_blocks(b, s);
}

/* dx from g, zeros in rows that are not of the batch. */
__global__ static void __launch_bounds__(APPLY_BLOCK) apply_kernel(const backward_work b) {
    constexpr int R = 4, PACKS = IN / 8, AT_ONCE = APPLY_BLOCK / PACKS;
    wait_for_former();
    const int64_t first = (int64_t)blockIdx.x * R * AT_ONCE + threadIdx.x / PACKS;
    const int64_t live = b.live_rows ? *b.live_rows * b.pixels_a_row : b.pixels;
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
              "what forward needs");
static_assert(2 * (sizeof(back_memory) + 1024 + 256) <= 228 << 10, "two blocks of backward");

static_assert((int)forward_shape<false>::PIXELS == (int)NORM_ROWS_PIXELS &&
                  (int)forward_shape<true>::PIXELS == (int)NORM_IMAGE_PIXELS,
              "cut in the same way");

/* Whether groups of warps have pixels of their own: where there are enough for most multiprocessors. */
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
    return c->training && w[0] == OUT && w[1] == 3 && c->attributes->padding == 1 && c->attributes->stride == 1 &&
           nn_channels(x) == IN && c->input[1].type == NN_BF16 && in_packs(x) && in_packs(&c->output[0]) &&
           !norm->input[1].shape && norm->attributes->activation == NN_RELU && norm->moments.first &&
           !norm->linear.first && !norm->accumulate[0] && shape_fits<forward_shape<true>>(c) &&
           (!is_wide(c) || shape_fits<forward_shape<false>>(c)) && norm_weights_fit(c) && hopper_is_here();
}

/* Blocks, and pixels of each. */
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
    if (!c->output_grad[0]) return moments_floats(cut_forward(c).tiles, OUT);
    return (size_t)(back_blocks(c) * 2 * IN + 3 * IN);
}

size_t norm_convolution_counters(const nn_call *) { return 1; }

template <typename S> static void run_forward(const nn_call *c, forward_work *f) {
    f->s = border_shape_of(c->output[0].shape, S::PIXELS);
    launch_reading(c, (const void *)convolution_kernel<S>, (unsigned)f->found.tiles, S::THREADS,
                   sizeof(typename S::memory), f);
}

void norm_convolution_forward(const nn_call *c, float *workspace, unsigned *counters) {
    const nn_array *x = &c->maker->input[0], *y = &c->output[0];
    forward_work f = {};
    f.x = (const bf16 *)x->data;
    f.w = (const bf16 *)c->input[1].data;
    f.y = (bf16 *)y->data;
    f.x_stride = x->stride;
    f.y_stride = y->stride;
    f.pixels = nn_pixels(y);
    f.norm = norm_arrays_of(c->maker);
    f.live_rows = x->live_rows;
    f.pixels_a_row = x->cols / IN;
    f.found = cut_forward(c);
    f.found.partials = workspace;
    f.found.counters = counters;
    f.found.to = c->output_moments;
    if (f.pixels == 0) return;
    if (is_wide(c) ? norm_rows_fit(c) : norm_image_fits(c)) norm_rows_forward(c, &f.found);
    else if (is_wide(c)) run_forward<forward_shape<false>>(c, &f);
    else run_forward<forward_shape<true>>(c, &f);
}

void norm_convolution_backward(const nn_call *c, float *workspace, unsigned *counters) {
    const nn_call *norm = c->maker;
    const nn_array *x = &norm->input[0];
    backward_work b = {};
    b.x = (const bf16 *)x->data;
    b.w = (const bf16 *)c->input[1].data;
    b.dy = bordered_gradient_of(c);
    b.dx = (bf16 *)norm->input_grad[0];
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
    b.dgamma = {norm->input_grad[2], norm->accumulate[2] || c->accumulate_sums};
    b.dbeta = {norm->input_grad[3], norm->accumulate[3] || c->accumulate_sums};
    if (b.pixels == 0) return;
    launch_reading(c, (const void *)gradient_kernel, (unsigned)back_blocks(c), BACK_BLOCK, sizeof(back_memory), &b);
    launch_reading(c, (const void *)apply_kernel, (unsigned)parts(b.pixels, 4 * APPLY_BLOCK / (IN / 8)), APPLY_BLOCK, 0,
                   &b);
}
