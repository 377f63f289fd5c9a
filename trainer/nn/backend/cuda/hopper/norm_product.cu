/* Forward: TMA loads x and W in a pipeline of stages. A warp loads its rows of x by ldmatrix, normalises them in registers and
 * multiplies them by wgmma with a in registers (RS). Backward: wgmma of dy and W (SS) is the gradient of relu(norm(x)); in its
 * epilogue x becomes relu(norm(x)) in shared memory, for the wgmma of dy^T and x that is the gradient of W. */
#include "nn/backend/cuda/hopper/norm_product.h"
#include "nn/backend/cuda/hopper/epilogue_rows.cuh"
#include "nn/backend/cuda/hopper/norm_prologue.cuh"
#include "nn/backend/cuda/sum_parts.cuh"

enum {
    OUT = 128,           /* channels of y */
    DEEP_FROM = 512,     /* from this many channels of x, a CTA has all of y, so that x is loaded once */
    BACK_WARPGROUPS = 3, /* of a CTA of backward */
    BACK_BLOCK = BACK_WARPGROUPS * WARPGROUP
};

/* ---- forward ---- */

struct forward_work {
    CUtensorMap x, w;
    bf16 *y;
    int64_t y_stride, pixels, channels;
    norm_arrays norm;
    const int64_t *live_rows;
    int64_t pixels_a_row;
    moments_work found;
};

/* Tiles of N channels of y by WARPGROUPS warpgroups, each with 64 pixels and 64 channels of x at a time. Warpgroups have
 * different pixels or, if SPLIT_K, the same pixels and different channels, whose sums are added in the epilogue. */
template <int N, int WARPGROUPS, bool SPLIT_K, int PIPE_STAGES, int BLOCKS> struct forward_shape {
    static constexpr int COLS = N, THREADS = WARPGROUPS * WARPGROUP, WARPS = THREADS / 32, STAGES = PIPE_STAGES;
    static constexpr int BLOCKS_AT_ONCE = BLOCKS, ALL_WARPGROUPS = WARPGROUPS;
    static constexpr bool IS_SPLIT_K = SPLIT_K;
    static constexpr int ROWS = SPLIT_K ? 64 : 64 * WARPGROUPS, DEPTH = SPLIT_K ? SW128_COLS * WARPGROUPS : SW128_COLS;
    struct stage {
        bf16 x[WARPGROUPS][64 * SW128_COLS], w[SPLIT_K ? WARPGROUPS : 1][N * SW128_COLS];
    };
    typedef tile_sums<N, WARPS> moments;
    struct memory {
        union {
            stage stages[STAGES];
            warpgroup_sums<N> sums[SPLIT_K ? WARPGROUPS : 1];
            moments after; /* not SPLIT_K: when all tiles are done */
        };
        bf16 out[SPLIT_K ? 1 : WARPS][SPLIT_K ? 8 : 16 * N]; /* a warp's part of y */
        uint64_t full[STAGES];
        typename std::conditional<SPLIT_K, moments, int>::type beside;
        float4 lines[1]; /* one for each two channels, padded to whole stages */
    };
    static size_t bytes(int64_t channels) { return sizeof(memory) + (size_t)(parts(channels, DEPTH) * DEPTH / 2) * 16; }
};

typedef forward_shape<128, 4, false, 3, 1> wide_shape;
typedef forward_shape<128, 2, true, 3, 1> deep_shape;
typedef forward_shape<64, 2, true, 3, 2> half_shape;
typedef forward_shape<32, 4, true, 4, 1> quarter_shape;

/* Loads DEPTH channels from `channel` on, of the pixels from `pixel` on. TMA fills in zeros beyond the arrays. */
template <typename S>
__device__ static inline void load_stage(const forward_work &f, typename S::memory &s, int stage, int64_t pixel,
                                         int64_t channel) {
    typename S::stage &to = s.stages[stage];
    const int64_t out = blockIdx.y * S::COLS;
    mbarrier_arrive_expect_tx(smem_address(&s.full[stage]), sizeof to);
    if (!S::IS_SPLIT_K) tma_load(to.x[0], &f.x, channel, pixel, &s.full[stage]); /* one box for all warpgroups */
    for (int g = 0; S::IS_SPLIT_K && g < S::ALL_WARPGROUPS; g++)
        tma_load(to.x[g], &f.x, channel + g * SW128_COLS, pixel, &s.full[stage]);
    for (int g = 0; g < (S::IS_SPLIT_K ? S::ALL_WARPGROUPS : 1); g++)
        tma_load(to.w[S::IS_SPLIT_K ? g : 0], &f.w, channel + g * SW128_COLS, out, &s.full[stage]);
}

/* acc = relu(norm(x)) w^T, or acc += of it, for 64 channels of x. */
template <int N>
__device__ static inline void multiply_stage(const bf16 *x, const bf16 *w, const float4 *lines, float (&acc)[N / 8][4],
                                             bool add) {
    const int lane = (int)threadIdx.x % 32, row = (int)threadIdx.x % WARPGROUP / 32 * 16 + lane % 16;
    uint32_t left[SW128_COLS / 16][4];
#pragma unroll
    for (int k = 0; k < SW128_COLS / 16; k++) load_matrices(left[k], x + swizzled(row, k * 2 + lane / 16));
#pragma unroll
    for (int k = 0; k < SW128_COLS / 16; k++) {
        const float4 first = lines[k * 8 + lane % 4], second = lines[k * 8 + 4 + lane % 4];
#pragma unroll
        for (int i = 0; i < 4; i++) left[k][i] = normalised(left[k][i], i < 2 ? first : second);
    }
    wgmma_fence();
#pragma unroll
    for (int k = 0; k < SW128_COLS / 16; k++) wgmma_rs<0>(acc, left[k], wgmma_descriptor(w + k * 16), add || k > 0);
    wgmma_commit_group();
    wgmma_wait_group<0>();
}

/* A CTA has some pixels, ROWS at a time; loads for the next rows are under way during the epilogue. If SPLIT_K, it has ROWS
 * pixels in all. */
template <typename S>
__global__ static void __launch_bounds__(S::THREADS, S::BLOCKS_AT_ONCE)
    product_kernel(const __grid_constant__ forward_work f) {
    typename S::memory &s = *reinterpret_cast<typename S::memory *>(smem);
    if (threadIdx.x == 0) {
        for (int i = 0; i < S::STAGES; i++) mbarrier_init(smem_address(&s.full[i]), 1);
        fence_mbarrier_init();
    }
    grid_dependency_sync();
    __syncthreads();
    const int64_t live = live_pixels(f);
    const int64_t first = (int64_t)blockIdx.x * f.found.size;
    const int64_t end = first + f.found.size < f.pixels ? first + f.found.size : f.pixels;
    const int chunks = (int)parts(f.channels, S::DEPTH), warpgroup = (int)threadIdx.x / WARPGROUP,
              warp = (int)threadIdx.x / 32;
    int64_t to_load = first;
    int load_chunk = 0, stage_to_load = 0;
    const auto load = [&] {
        if (to_load < end && threadIdx.x == 0)
            load_stage<S>(f, s, stage_to_load, to_load, (int64_t)load_chunk * S::DEPTH);
        stage_to_load = stage_to_load + 1 == S::STAGES ? 0 : stage_to_load + 1;
        if (++load_chunk == chunks) load_chunk = 0, to_load += S::ROWS;
    };
    for (int i = 0; i < S::STAGES - 1; i++) load();
    find_lines<S::THREADS>(f.norm, f.channels, parts(f.channels, S::DEPTH) * S::DEPTH, (float)live, s.lines);
    float acc[S::COLS / 8][4];
    lane_sums sums = {};
    int stage = 0;
    uint32_t phase = 0;
    for (int64_t pixel = first; pixel < end; pixel += S::ROWS) {
        for (int i = 0; i < chunks; i++) {
            __syncthreads(); /* the stage that load() fills is read */
            load();
            mbarrier_wait(smem_address(&s.full[stage]), phase);
            const float4 *lines = s.lines + (i * S::DEPTH + (S::IS_SPLIT_K ? warpgroup * SW128_COLS : 0)) / 2;
            multiply_stage<S::COLS>(s.stages[stage].x[warpgroup], s.stages[stage].w[S::IS_SPLIT_K ? warpgroup : 0],
                                    lines, acc, i > 0);
            if (++stage == S::STAGES) stage = 0, phase ^= 1;
        }
        const row_output to = {f.y + blockIdx.y * S::COLS, f.y_stride, end, live, f.found.to.first != NULL};
        if constexpr (S::IS_SPLIT_K) store_sums<S::COLS, S::ALL_WARPGROUPS>(to, s.sums, acc, pixel, s.beside);
        else store_rows<OUT>(to, s.out[warp], acc, pixel + warp * 16, pixel == first, sums);
    }
    if (!f.found.to.first) return;
    if constexpr (S::IS_SPLIT_K) store_block(f.found, blockIdx.y, live, s.beside);
    else store_lanes<S::ROWS>(f.found, blockIdx.y, first, end, live, sums, s.after);
}

/* ---- backward ---- */

struct backward_work {
    CUtensorMap x, w, dy, dx;
    bool wanted, add; /* of dx */
    int64_t pixels, channels;
    norm_arrays norm;
    float *dw, *sums; /* of each part of the pixels: [OUT, channels]; [2, channels], sums of g and of g (x - mean) */
    int64_t columns, parts, tiles;
};

enum {
    TILE = 64,
    WEIGHTS_ROW = SW128_COLS + 8
}; /* pixels of a stage; floats of a row, padded against bank conflicts */

/* A warpgroup's tile: 64 pixels, 64 channels of x. */
struct back_stage {
    bf16 dy[OUT / SW128_COLS][TILE * SW128_COLS], x[TILE * SW128_COLS], dx[TILE * SW128_COLS];
};
struct back_memory {
    bf16 w[OUT * SW128_COLS];
    union {
        back_stage stages[2];
        float weights[OUT][WEIGHTS_ROW];
    } groups[BACK_WARPGROUPS];
    float sums[2][BACK_BLOCK / 32][SW128_COLS];
    float4 lines[SW128_COLS / 2];
    float2 means[SW128_COLS / 2];
    uint64_t full[BACK_WARPGROUPS][2], w_full;
};

typedef float back_tile[SW128_COLS / 8][4];

/* Sums over pixels of a thread's 16 channels: channel 8 n + 2 (lane % 4) + e is number 2 n + e. */
struct back_sums {
    float sum[SW128_COLS / 4], product[SW128_COLS / 4];
};

__device__ static inline void load_back_lines(const backward_work &b, back_memory &s, int64_t channel) {
    if (threadIdx.x >= SW128_COLS) return;
    const norm_line line = load_line(b.norm, b.channels, channel + threadIdx.x, s.lines);
    reinterpret_cast<float *>(s.means)[threadIdx.x] = line.mean;
}

/* Called by one thread of a warpgroup. */
__device__ static inline void load_tile(const backward_work &b, back_stage &to, int64_t tile, int64_t channel,
                                        uint64_t *full) {
    mbarrier_arrive_expect_tx(smem_address(full), sizeof to - (b.add ? 0 : sizeof to.dx));
    for (int h = 0; h < OUT / SW128_COLS; h++) tma_load(to.dy[h], &b.dy, h * SW128_COLS, tile * TILE, full);
    tma_load(to.x, &b.x, channel, tile * TILE, full);
    if (b.add) tma_load(to.dx, &b.dx, channel, tile * TILE, full);
}

/* acc = dy W, the gradient of relu(norm(x)). */
__device__ static inline void multiply_pixels(const back_stage &s, const bf16 *w, back_tile &acc) {
    wgmma_fence();
#pragma unroll
    for (int k = 0; k < OUT / 16; k++)
        wgmma_ss<0, 1>(acc, wgmma_descriptor(s.dy[k / 4] + k % 4 * 16), wgmma_descriptor(w + k * 16 * SW128_COLS),
                       k > 0);
    wgmma_commit_group();
    wgmma_wait_group<0>();
}

/* Issues acc += dy^T x. */
__device__ static inline void multiply_weights(const back_stage &s, back_tile (&acc)[OUT / SW128_COLS]) {
    wgmma_fence();
#pragma unroll
    for (int k = 0; k < TILE / 16; k++) {
#pragma unroll
        for (int h = 0; h < OUT / SW128_COLS; h++)
            wgmma_ss<1, 1>(acc[h], wgmma_descriptor(s.dy[h] + k * 16 * SW128_COLS),
                           wgmma_descriptor(s.x + k * 16 * SW128_COLS), true);
    }
    wgmma_commit_group();
}

/* The epilogue of dy W: through relu, into the sums and dx. x becomes relu(norm(x)), for the gradient of W. */
__device__ static inline void finish_pixels(const back_memory &m, bool add, back_stage &s, const back_tile &acc,
                                            back_sums &of) {
    const int lane = (int)threadIdx.x % 32, row = (int)threadIdx.x % WARPGROUP / 32 * 16 + lane % 16;
#pragma unroll
    for (int n = 0; n < SW128_COLS / 8; n += 2) {
        const int place = swizzled(row, n + lane / 16);
        uint32_t x[4], dx[4] = {};
        load_matrices(x, s.x + place);
        if (add) load_matrices(dx, s.dx + place);
#pragma unroll
        for (int i = 0; i < 4; i++) {
            const int block = n + i / 2;
            const float4 line = m.lines[block * 4 + lane % 4];
            const float2 mean = m.means[block * 4 + lane % 4];
            const float x0 = low(x[i]), x1 = high(x[i]);
            const float z0 = fmaf(x0, line.x, line.z), z1 = fmaf(x1, line.y, line.w);
            const float g0 = z0 > 0 ? acc[block][i % 2 * 2] : 0, g1 = z1 > 0 ? acc[block][i % 2 * 2 + 1] : 0;
            of.sum[2 * block] += g0;
            of.sum[2 * block + 1] += g1;
            of.product[2 * block] = fmaf(g0, x0 - mean.x, of.product[2 * block]);
            of.product[2 * block + 1] = fmaf(g1, x1 - mean.y, of.product[2 * block + 1]);
            dx[i] = narrow_pair(fmaf(g0, line.x, low(dx[i])), fmaf(g1, line.y, high(dx[i])));
            x[i] = narrow_relu(z0, z1);
        }
        stmatrix_x4(s.x + place, x);
        stmatrix_x4(s.dx + place, dx);
    }
}

/* Adds the CTA's sums over pixels: over the lanes of a warp that have the same columns, then over warps. */
__device__ static inline void store_columns(const backward_work &b, back_memory &s, int64_t channel, int64_t part,
                                            back_sums &of) {
    const int lane = (int)threadIdx.x % 32, warp = (int)threadIdx.x / 32;
#pragma unroll
    for (int i = 0; i < SW128_COLS / 4; i++) {
        for (int step = 4; step < 32; step *= 2) {
            of.sum[i] += __shfl_xor_sync(0xffffffffu, of.sum[i], step);
            of.product[i] += __shfl_xor_sync(0xffffffffu, of.product[i], step);
        }
        const int col = i / 2 * 8 + lane % 4 * 2 + i % 2;
        if (lane < 4) s.sums[0][warp][col] = of.sum[i], s.sums[1][warp][col] = of.product[i];
    }
    __syncthreads();
    const int which = (int)threadIdx.x / SW128_COLS, col = (int)threadIdx.x % SW128_COLS;
    if (which > 1 || channel + col >= b.channels) return;
    float sum = 0;
    for (int k = 0; k < BACK_BLOCK / 32; k++) sum += s.sums[which][k][col];
    b.sums[(part * 2 + which) * b.channels + channel + col] = sum;
}

/* Adds the gradient of W of all warpgroups, in their order. */
__device__ static inline void store_weights(const backward_work &b, back_memory &s, int64_t channel, int64_t part,
                                            const back_tile (&acc)[OUT / SW128_COLS]) {
    const int lane = (int)threadIdx.x % 32, warpgroup = (int)threadIdx.x / WARPGROUP;
    const int row = (int)threadIdx.x % WARPGROUP / 32 * 16 + lane / 4;
#pragma unroll
    for (int i = 0; i < OUT / SW128_COLS * (SW128_COLS / 8) * 2; i++) {
        const int h = i / (SW128_COLS / 4), n = i / 2 % (SW128_COLS / 8), below = i % 2;
        *reinterpret_cast<float2 *>(&s.groups[warpgroup].weights[h * 64 + below * 8 + row][n * 8 + lane % 4 * 2]) =
            make_float2(acc[h][n][below * 2], acc[h][n][below * 2 + 1]);
    }
    __syncthreads();
    for (int i = (int)threadIdx.x; i < OUT * SW128_COLS / 4; i += BACK_BLOCK) {
        const int out = i / (SW128_COLS / 4), col = i % (SW128_COLS / 4) * 4;
        float4 sum = make_float4(0, 0, 0, 0);
        for (int g = 0; g < BACK_WARPGROUPS; g++)
            add_to(sum, *reinterpret_cast<const float4 *>(&s.groups[g].weights[out][col]));
        if (channel + col < b.channels)
            *reinterpret_cast<float4 *>(b.dw + (part * OUT + out) * b.channels + channel + col) = sum;
    }
}

/* A CTA has 64 channels of x and a part of the pixels. Its warpgroups take tiles in turn, each with its own double-buffered
 * pipeline, and meet only at the end. */
__global__ static void __launch_bounds__(BACK_BLOCK, 1) product_back_kernel(const __grid_constant__ backward_work b) {
    back_memory &s = *reinterpret_cast<back_memory *>(smem);
    const int64_t channel = blockIdx.x % b.columns * SW128_COLS, part = blockIdx.x / b.columns;
    const int warpgroup = (int)threadIdx.x / WARPGROUP;
    const int64_t first = part * BACK_WARPGROUPS + warpgroup, step = b.parts * BACK_WARPGROUPS;
    const bool loads = threadIdx.x % WARPGROUP == 0;
    back_stage *const stages = s.groups[warpgroup].stages;
    if (threadIdx.x == 0) {
        for (int i = 0; i < 2 * BACK_WARPGROUPS; i++) mbarrier_init(smem_address(&s.full[i / 2][i % 2]), 1);
        mbarrier_init(smem_address(&s.w_full), 1);
        fence_mbarrier_init();
        mbarrier_arrive_expect_tx(smem_address(&s.w_full), sizeof s.w);
        tma_load(s.w, &b.w, channel, 0, &s.w_full);
    }
    grid_dependency_sync();
    load_back_lines(b, s, channel);
    __syncthreads();
    if (loads && first < b.tiles) load_tile(b, stages[0], first, channel, &s.full[warpgroup][0]);
    mbarrier_wait(smem_address(&s.w_full), 0);
    back_sums of = {};
    back_tile weights[OUT / SW128_COLS] = {};
    int stage = 0;
    uint32_t phase = 0;
    for (int64_t tile = first; tile < b.tiles; tile += step) {
        back_stage &now = stages[stage];
        if (loads && tile + step < b.tiles) {
            tma_store_wait_read();
            load_tile(b, stages[stage ^ 1], tile + step, channel, &s.full[warpgroup][stage ^ 1]);
        }
        mbarrier_wait(smem_address(&s.full[warpgroup][stage]), phase);
        back_tile acc;
        multiply_pixels(now, s.w, acc);
        finish_pixels(s, b.add, now, acc, of);
        fence_proxy_async();
        warpgroup_sync(warpgroup);
        multiply_weights(now, weights);
        if (loads && b.wanted) tma_store(&b.dx, {(int)channel, (int)(tile * TILE), 0, 0}, smem_address(now.dx), false);
        wgmma_wait_group<0>();
        warpgroup_sync(warpgroup);
        stage ^= 1;
        phase ^= stage == 0;
    }
    if (loads) tma_store_wait_read();
    store_columns(b, s, channel, part, of);
    store_weights(b, s, channel, part, weights);
}

/* ---- sums of all parts ---- */

struct sum_work {
    const float *dw, *sums, *gamma, *saved;
    int64_t parts, channels, weight_blocks;
    target<float> to_w, to_gamma, to_beta;
    nn_channel_pairs linear;
    bool linear_add;
    const int64_t *live_rows;
    int64_t pixels, pixels_a_row;
};

/* The gradient of x is factor (g - mean(g) - (x - mean) p) = dx + a + b x, with dx = factor g, mean(g) = sum / n and
 * p = product scale^2 / n. */
__device__ static inline void store_channel(const sum_work &s, int64_t k, float sum, float product) {
    const float mean = s.saved[k], scale = s.saved[s.channels + k], factor = s.gamma[k] * scale;
    const float n = fmaxf((float)live_pixels(s), 1);
    const float p = product * scale * scale / n;
    const float dgamma[1] = {product * scale}, dbeta[1] = {sum};
    put<1>(s.to_gamma, k, dgamma);
    put<1>(s.to_beta, k, dbeta);
    const float a[1] = {-factor * (sum / n - mean * p)}, b[1] = {-factor * p};
    put<1>(target<float>{s.linear.first, s.linear_add}, k, a);
    put<1>(target<float>{s.linear.first ? s.linear.first + s.linear.stride : NULL, s.linear_add}, k, b);
}

__device__ static inline void sum_channels(const sum_work &s) {
    __shared__ float shared[2][PARTS_SLICES][PARTS_COLS];
    const int col = (int)threadIdx.x % PARTS_COLS, slice = (int)threadIdx.x / PARTS_COLS;
    const int64_t k = (blockIdx.x - s.weight_blocks) * PARTS_COLS + col;
    float sums[2] = {0, 0};
    for (int i = 0; k < s.channels && i < 2; i++)
        sum_apart<PARTS_SLICES, 8>(s.sums + i * s.channels + k, 2 * s.channels, slice, s.parts, sums[i]);
    shared[0][slice][col] = sums[0];
    shared[1][slice][col] = sums[1];
    __syncthreads();
    if (slice > 0 || k >= s.channels) return;
    for (int i = 1; i < PARTS_SLICES; i++) sums[0] += shared[0][i][col], sums[1] += shared[1][i][col];
    store_channel(s, k, sums[0], sums[1]);
}

__global__ static void __launch_bounds__(PARTS_BLOCK) sum_kernel(const sum_work s) {
    grid_dependency_sync();
    if (blockIdx.x < s.weight_blocks) sum_parts(s.dw, s.parts, OUT * s.channels / 4, blockIdx.x, s.to_w);
    else sum_channels(s);
}

/* ---- launches ---- */

static_assert(sizeof(back_memory) <= MOST_SHARED, "shared memory of backward");

/* How forward is cut, so that most multiprocessors have work. */
struct forward_kind {
    const void *kernel;
    int64_t rows, cols;
    unsigned threads;
    size_t bytes;
    bool split;
};

template <typename S> static forward_kind kind_as(int64_t channels) {
    return {(const void *)product_kernel<S>, S::ROWS, S::COLS, S::THREADS, S::bytes(channels), S::IS_SPLIT_K};
}

static forward_kind kind_for(int64_t pixels, int64_t channels) {
    if (parts(pixels, wide_shape::ROWS) >= PROCESSORS / 2) return kind_as<wide_shape>(channels);
    if (parts(pixels, deep_shape::ROWS) >= PROCESSORS / 2)
        return channels < DEEP_FROM ? kind_as<half_shape>(channels) : kind_as<deep_shape>(channels);
    return kind_as<quarter_shape>(channels);
}

static forward_kind kind_of(const nn_call *c) {
    return kind_for(nn_pixels(&c->output[0]), nn_channels(&c->fused->maker->input[0]));
}

bool norm_product_fits(const nn_call *c, const nn_call *norm) {
    const nn_array *x = &norm->input[0];
    const int64_t *w = c->input[1].shape->dim;
    return c->training && w[0] == OUT && w[1] == 1 && NN_ATTR(convolution, c)->padding == 0 &&
           NN_ATTR(convolution, c)->stride == 1 && c->input[1].type == NN_BF16 && in_packs(x) &&
           in_packs(&c->output[0]) && kind_for(nn_pixels(x), nn_channels(x)).bytes <= MOST_SHARED &&
           !norm->input[1].shape && NN_ATTR(batch_norm, norm)->activation == NN_RELU && norm->fused->moments.first &&
           norm->fused->linear.first && hopper_is_here();
}

static backward_work cut_backward(const nn_call *c) {
    backward_work b = {};
    b.pixels = nn_pixels(&c->output[0]);
    b.channels = nn_channels(&c->fused->maker->input[0]);
    b.tiles = parts(b.pixels, TILE);
    b.columns = parts(b.channels, SW128_COLS);
    b.parts = PROCESSORS / b.columns;
    if (b.parts > parts(b.tiles, BACK_WARPGROUPS)) b.parts = parts(b.tiles, BACK_WARPGROUPS);
    if (b.parts < 1) b.parts = 1;
    return b;
}

/* CTAs along the pixels, and the pixels of each. */
static moments_work cut_forward(const nn_call *c) {
    const int64_t pixels = nn_pixels(&c->output[0]);
    const forward_kind kind = kind_of(c);
    moments_work w = {};
    w.size = kind.split ? kind.rows : parts(parts(pixels, kind.rows), PROCESSORS) * kind.rows;
    w.tiles = parts(pixels, w.size);
    w.channels = OUT;
    return w;
}

size_t norm_product_workspace(const nn_call *c) {
    if (!c->grad->output[0]) return moments_floats(cut_forward(c).tiles, OUT);
    const backward_work b = cut_backward(c);
    return (size_t)(b.parts * b.channels * (OUT + 2));
}

size_t norm_product_counters(const nn_call *c) { return c->grad->output[0] ? 0 : (size_t)(OUT / kind_of(c).cols); }

/* A matrix of n rows; a box is 64 columns wide. */
static void map_rows(CUtensorMap *map, const void *rows, int64_t columns, int64_t n, int64_t stride, int box) {
    if (!make_tensor_map(map, rows, {{columns, n, 1, 1}, {1, stride, stride, stride}, {SW128_COLS, box, 1, 1}}))
        nn_cuda_launch_failed("a convolution of what is normalised", "no map of an array");
}

void norm_product_forward(const nn_call *c, unsigned *counters) {
    const nn_call *norm = c->fused->maker;
    const nn_array *x = &norm->input[0], *y = &c->output[0];
    const forward_kind kind = kind_of(c);
    forward_work f = {};
    f.y = (bf16 *)y->data;
    f.y_stride = y->stride;
    f.pixels = nn_pixels(y);
    f.channels = nn_channels(x);
    f.norm = norm_arrays_of(norm);
    f.live_rows = x->live_rows;
    f.pixels_a_row = x->cols / f.channels;
    f.found = cut_forward(c);
    f.found.partials = c->workspace;
    f.found.counters = counters;
    f.found.to = c->fused->output_moments;
    if (f.pixels == 0) return;
    map_rows(&f.x, x->data, f.channels, f.pixels, x->stride, (int)kind.rows);
    map_rows(&f.w, c->input[1].data, f.channels, OUT, f.channels, (int)kind.cols);
    const dim3 blocks((unsigned)f.found.tiles, (unsigned)(OUT / kind.cols));
    launch_norm_kernel(c, kind.kernel, blocks, kind.threads, kind.bytes, &f);
}

static void sum_all(const nn_call *c, const backward_work &b) {
    const nn_call *norm = c->fused->maker;
    sum_work s = {};
    s.dw = b.dw;
    s.sums = b.sums;
    s.gamma = b.norm.gamma;
    s.saved = b.norm.saved;
    s.parts = b.parts;
    s.channels = b.channels;
    s.weight_blocks = parts(OUT * b.channels / 4, PARTS_COLS);
    s.to_w = target_of<float>(c, 1);
    s.to_gamma = {norm->grad->input[2], norm->grad->accumulate[2] || c->grad->accumulate_sums};
    s.to_beta = {norm->grad->input[3], norm->grad->accumulate[3] || c->grad->accumulate_sums};
    s.linear = norm->fused->linear;
    s.linear_add = norm->grad->accumulate[0];
    s.live_rows = norm->input[0].live_rows;
    s.pixels = b.pixels;
    s.pixels_a_row = norm->input[0].cols / b.channels;
    const unsigned blocks = (unsigned)(s.weight_blocks + parts(b.channels, PARTS_COLS));
    launch_norm_kernel(c, (const void *)sum_kernel, blocks, PARTS_BLOCK, 0, &s);
}

void norm_product_backward(const nn_call *c) {
    const nn_call *norm = c->fused->maker;
    backward_work b = cut_backward(c);
    const nn_array *x = &norm->input[0];
    b.wanted = norm->grad->input[0];
    b.add = b.wanted && norm->grad->accumulate[0];
    b.norm = norm_arrays_of(norm);
    b.dw = c->workspace;
    b.sums = b.dw + b.parts * OUT * b.channels;
    if (b.pixels == 0) return;
    map_rows(&b.x, x->data, b.channels, b.pixels, x->stride, TILE);
    map_rows(&b.w, c->input[1].data, b.channels, OUT, b.channels, OUT);
    map_rows(&b.dy, c->grad->output[0], OUT, b.pixels, c->output[0].stride, TILE);
    map_rows(&b.dx, b.wanted ? norm->grad->input[0] : x->data, b.channels, b.pixels, x->stride, TILE);
    launch_norm_kernel(c, (const void *)product_back_kernel, (unsigned)(b.columns * b.parts), BACK_BLOCK,
                       sizeof(back_memory), &b);
    sum_all(c, b);
}
