/* A GEMM with a row (M) for each pixel of x. N is the channels of y three times, for the three taps of a row of the filter:
 * what the pixel adds to y at its right, at itself and at its left. Other rows of the filter are the same GEMM with x an
 * image row further. So both operands of wgmma are in shared memory (SS), with no border at the sides of images, and the
 * epilogue adds the parts of neighbouring pixels in registers. */
#include "nn/backend/cuda/hopper/epilogue_rows.cuh"
#include "nn/backend/cuda/hopper/norm_prologue.cuh"
#include "nn/backend/cuda/hopper/norm_shape.cuh"

enum {
    WARPGROUPS = 4,
    THREADS = WARPGROUPS * WARPGROUP,
    WARPS = THREADS / 32,
    COLUMNS = 3 * OUT,
    ACC = COLUMNS / 2, /* accumulators of a thread */
    PIXELS = NORM_ROWS_PIXELS,
    STAGES = 3
};

struct rows_work {
    CUtensorMap x;
    const bf16 *w;
    bf16 *y;
    int64_t y_stride, pixels;
    int height;
    norm_arrays norm;
    const int64_t *live_rows;
    int64_t pixels_a_row;
    moments_work found;
};

/* For each half of x's channels and row of the filter, a tile with a row for each tap and channel of y. */
typedef bf16 row_weights[HALVES][3][COLUMNS * SW128_COLS];

template <int WIDTH> struct rows_shape {
    static constexpr int ROWS = PIXELS / WIDTH, BOX_PIXELS = (ROWS + 2) * WIDTH; /* with a row above and one below */
    struct memory {
        row_weights w;
        union {
            bf16 x[STAGES][BOX_PIXELS * SW128_COLS];
            tile_sums<OUT, WARPS> found;
        };
        bf16 out[WARPS][16 * OUT];
        float edges[WARPS][2][OUT];
        float4 lines[IN / 2];
        uint64_t full[STAGES];
    };
};

template <int BLOCK> __device__ static inline void copy_weights(const bf16 *from, row_weights &to) {
    for (int at = (int)threadIdx.x; at < OUT * TAPS * (IN / 8); at += BLOCK) {
        const int out = at / (TAPS * (IN / 8)), tap = at / (IN / 8) % TAPS, pack = at % (IN / 8);
        copy_async(&to[pack / 8][tap / 3][swizzled(tap % 3 * OUT + out, pack % 8)], from + at * 8, true);
    }
}

/* x, a pixel a row, becomes relu(norm(x)); pixels above and below an image stay 0. `row`: the image row of the first pixel. */
template <int WIDTH, int BOX_PIXELS, int THREADS_OF_IT>
__device__ static inline void normalise_pixels(const float4 *lines, int row, int height, bf16 *x) {
    const int thread = (int)threadIdx.x % THREADS_OF_IT, pack = thread % 8;
    const float4 held[4] = {lines[pack * 4], lines[pack * 4 + 1], lines[pack * 4 + 2], lines[pack * 4 + 3]};
#pragma unroll
    for (int line = thread / 8; line < BOX_PIXELS; line += THREADS_OF_IT / 8) {
        const int at_row = row + line / WIDTH;
        if (at_row < 0 || at_row >= height) continue;
        uint4 *const at = reinterpret_cast<uint4 *>(x + swizzled(line, pack));
        *at = normalised(*at, held);
    }
}

/* Issues the wgmma of a warpgroup's 64 pixels for half of the channels. x: the pixel an image row above the first of them. */
template <int WIDTH>
__device__ static inline void multiply_half(const bf16 *x, const bf16 (&w)[3][COLUMNS * SW128_COLS], bool add,
                                            float (&acc)[ACC]) {
    const uint64_t left = wgmma_descriptor(smem_address(x), SW128_ATOM, SW128_ATOM);
    const uint64_t right = wgmma_descriptor(smem_address(w), SW128_ATOM, SW128_ATOM);
    wgmma_fence();
#pragma unroll
    for (int row = 0; row < 3; row++) {
#pragma unroll
        for (int k = 0; k < SW128_COLS / 16; k++)
            wgmma_ss<0, 0>(acc, descriptor_advance(left, row * WIDTH * SW128_ROW + k * 32),
                           descriptor_advance(right, row * COLUMNS * SW128_ROW + k * 32), add || row > 0 || k > 0);
    }
    wgmma_commit_group();
}

/* Stores what a warp's last pixel adds to the next one, and its first to the one before, for the warps that have those. A
 * thread has pixels lane / 4 and lane / 4 + 8 of its warp's 16: of each 8 columns, two numbers of the first, then two of
 * the second. */
__device__ static inline void store_edges(const float (&acc)[ACC], float (&edges)[WARPS][2][OUT]) {
    const int lane = (int)threadIdx.x % 32, warp = (int)threadIdx.x / 32;
#pragma unroll
    for (int n = 0; n < OUT / 8; n++) {
#pragma unroll
        for (int e = 0; e < 2; e++) {
            const int col = n * 8 + lane % 4 * 2 + e;
            if (lane >= 28) edges[warp][0][col] = acc[n * 4 + 2 + e];
            if (lane < 4) edges[warp][1][col] = acc[(2 * OUT / 8 + n) * 4 + e];
        }
    }
}

/* y of a warp's 16 pixels: from the pixel at the left, itself, and the pixel at the right. A lane's neighbours are the
 * lanes 4 before and 4 after it; at an end of the 8, those of the other 8; at an end of the 16, another warp's if the image
 * row goes on there (CROSSES), and none if it ends. */
template <int WIDTH>
__device__ static inline void add_neighbours(const float (&acc)[ACC], const float (*edges)[2][OUT],
                                             float (&y)[OUT / 8][4]) {
    const int lane = (int)threadIdx.x % 32, warp = (int)threadIdx.x / 32;
    const int first = (warp * 16 + lane / 4) % WIDTH, second = (warp * 16 + lane / 4 + 8) % WIDTH; /* in their rows */
    constexpr bool CROSSES = WIDTH > 16;
#pragma unroll
    for (int i = 0; i < OUT / 8 * 2; i++) {
        const int n = i / 2, e = i % 2, col = n * 8 + lane % 4 * 2 + e;
        const float *const left = acc + n * 4 + e, *const right = acc + (2 * OUT / 8 + n) * 4 + e;
        const float up_first = __shfl_sync(0xffffffffu, left[0], (lane + 28) % 32);
        const float up_second = __shfl_sync(0xffffffffu, left[2], (lane + 28) % 32);
        const float down_first = __shfl_sync(0xffffffffu, right[0], (lane + 4) % 32);
        const float down_second = __shfl_sync(0xffffffffu, right[2], (lane + 4) % 32);
        float before[2] = {up_first, lane < 4 ? up_first : up_second};
        float after[2] = {lane < 28 ? down_first : down_second, down_second};
        if (CROSSES && lane < 4 && warp % 2 == 1) before[0] = edges[warp - 1][0][col];
        if (CROSSES && lane >= 28 && warp % 2 == 0) after[1] = edges[warp + 1][1][col];
        const float *const middle = acc + (OUT / 8 + n) * 4 + e;
        y[n][e] = middle[0] + (first > 0 ? before[0] : 0) + (first < WIDTH - 1 ? after[0] : 0);
        y[n][2 + e] = middle[2] + (second > 0 ? before[1] : 0) + (second < WIDTH - 1 ? after[1] : 0);
    }
}

/* A CTA takes its pixels PIXELS at a time, by halves of the channels: an item is one half of such pixels. An item is
 * normalised while the one before is multiplied and those after it are loaded. */
template <int WIDTH>
__global__ static void __launch_bounds__(THREADS, 1) rows_kernel(const __grid_constant__ rows_work f) {
    typedef rows_shape<WIDTH> S;
    typename S::memory &s = *reinterpret_cast<typename S::memory *>(smem);
    const int warpgroup = (int)threadIdx.x / WARPGROUP, warp = (int)threadIdx.x / 32;
    copy_weights<THREADS>(f.w, s.w);
    copies_commit();
    if (threadIdx.x == 0) {
        for (int i = 0; i < STAGES; i++) mbarrier_init(smem_address(&s.full[i]), 1);
        fence_mbarrier_init();
    }
    grid_dependency_sync();
    const int64_t live = live_pixels(f);
    const int64_t first = (int64_t)blockIdx.x * f.found.size;
    const int64_t end = first + f.found.size < f.pixels ? first + f.found.size : f.pixels;
    const int items = (int)parts(end - first, PIXELS) * HALVES;
    const auto row_of = [&](int item) { return (int)((first + item / HALVES * PIXELS) / WIDTH % f.height); };
    const auto load = [&](int item, int stage) {
        const int image = (int)((first + item / HALVES * PIXELS) / WIDTH / f.height);
        mbarrier_arrive_expect_tx(smem_address(&s.full[stage]), sizeof s.x[stage]);
        tma_load(smem_address(s.x[stage]), &f.x, {item % HALVES * SW128_COLS, 0, row_of(item) - 1, image},
                 smem_address(&s.full[stage]));
    };
    const auto normalise = [&](int item, const pipeline_state<STAGES> &at) {
        mbarrier_wait(smem_address(&s.full[at.stage]), at.phase);
        normalise_pixels<WIDTH, S::BOX_PIXELS, THREADS>(s.lines + item % HALVES * (SW128_COLS / 2), row_of(item) - 1,
                                                        f.height, s.x[at.stage]);
        fence_proxy_async();
    };
    if (threadIdx.x == 0)
        for (int i = 0; i < STAGES && i < items; i++) load(i, i);
    find_lines<THREADS>(f.norm, IN, IN, (float)live, s.lines);
    copies_wait<0>();
    __syncthreads();
    pipeline_state<STAGES> at;
    normalise(0, at);
    __syncthreads();
    const row_output to = {f.y, f.y_stride, end, live, f.found.to.first != NULL};
    float acc[ACC];
    lane_sums found = {};
    for (int item = 0; item < items; item++) {
        const int stage = at.stage, half = item % HALVES;
        multiply_half<WIDTH>(s.x[stage] + warpgroup * 64 * SW128_COLS, s.w[half], half > 0, acc);
        at.advance();
        if (item + 1 < items) normalise(item + 1, at);
        wgmma_wait_group<0>();
        wgmma_fence_operand(acc);
        const int64_t pixel = first + item / HALVES * PIXELS;
        if (half == HALVES - 1 && WIDTH > 16) store_edges(acc, s.edges);
        __syncthreads(); /* wgmma has read the stage, and the next one is normalised */
        if (threadIdx.x == 0 && item + STAGES < items) load(item + STAGES, stage);
        if (half < HALVES - 1) continue;
        float y[OUT / 8][4];
        add_neighbours<WIDTH>(acc, s.edges, y);
        store_rows<OUT>(to, s.out[warp], y, pixel + warpgroup * 64 + warp % 4 * 16, item == HALVES - 1, found);
    }
    if (f.found.to.first) store_lanes<PIXELS>(f.found, 0, first, end, live, found, s.found);
}

/* ---- an image of 8 x 8 for each CTA: each of its two warpgroups has half of the channels ---- */

enum { SIDE = 8, IMAGE_BOX_PIXELS = (SIDE + 2) * SIDE, IMAGE_THREADS = HALVES * WARPGROUP };

struct image_memory {
    row_weights w;
    bf16 x[HALVES][IMAGE_BOX_PIXELS * SW128_COLS];
    float other[OUT / 2][WARPGROUP]; /* the second warpgroup's part of y */
    bf16 out[IMAGE_THREADS / 32][16 * OUT];
    tile_sums<OUT, IMAGE_THREADS / 32> found;
    float4 lines[IN / 2];
    uint64_t full;
};

__global__ static void __launch_bounds__(IMAGE_THREADS, 1) image_kernel(const __grid_constant__ rows_work f) {
    image_memory &s = *reinterpret_cast<image_memory *>(smem);
    const int warpgroup = (int)threadIdx.x / WARPGROUP, thread = (int)threadIdx.x % WARPGROUP,
              warp = (int)threadIdx.x / 32;
    const int64_t first = (int64_t)blockIdx.x * SIDE * SIDE, end = first + SIDE * SIDE;
    copy_weights<IMAGE_THREADS>(f.w, s.w);
    copies_commit();
    if (threadIdx.x == 0) {
        mbarrier_init(smem_address(&s.full), 1);
        fence_mbarrier_init();
    }
    grid_dependency_sync();
    if (threadIdx.x == 0) {
        mbarrier_arrive_expect_tx(smem_address(&s.full), sizeof s.x);
        for (int h = 0; h < HALVES; h++)
            tma_load(smem_address(s.x[h]), &f.x, {h * SW128_COLS, 0, -1, (int)blockIdx.x}, smem_address(&s.full));
    }
    const int64_t live = live_pixels(f);
    find_lines<IMAGE_THREADS>(f.norm, IN, IN, (float)live, s.lines);
    copies_wait<0>();
    __syncthreads();
    mbarrier_wait(smem_address(&s.full), 0);
    normalise_pixels<SIDE, IMAGE_BOX_PIXELS, WARPGROUP>(s.lines + warpgroup * (SW128_COLS / 2), -1, SIDE,
                                                        s.x[warpgroup]);
    fence_proxy_async();
    __syncthreads();
    float acc[ACC], y[OUT / 8][4];
    multiply_half<SIDE>(s.x[warpgroup], s.w[warpgroup], false, acc);
    wgmma_wait_group<0>();
    wgmma_fence_operand(acc);
    add_neighbours<SIDE>(acc, NULL, y);
#pragma unroll
    for (int i = 0; i < OUT / 2; i++) {
        if (warpgroup == 1) s.other[i][thread] = y[i / 4][i % 4];
    }
    __syncthreads();
    lane_sums found = {};
    if (warpgroup == 0) {
#pragma unroll
        for (int i = 0; i < OUT / 2; i++) y[i / 4][i % 4] += s.other[i][thread];
        const row_output to = {f.y, f.y_stride, end, live, f.found.to.first != NULL};
        store_rows<OUT>(to, s.out[warp], y, first + warp * 16, true, found);
    }
    if (f.found.to.first) store_lanes<SIDE * SIDE>(f.found, 0, first, end, live, found, s.found);
}

/* ---- launches ---- */

static_assert(sizeof(rows_shape<32>::memory) <= MOST_SHARED && sizeof(rows_shape<16>::memory) <= MOST_SHARED,
              "shared memory");

bool norm_rows_fit(const nn_call *c) {
    const int64_t height = c->output[0].shape->dim[1], width = c->output[0].shape->dim[2];
    return (width == 16 || width == 32) && height % (PIXELS / width) == 0;
}

bool norm_image_fits(const nn_call *c) {
    return c->output[0].shape->dim[1] == SIDE && c->output[0].shape->dim[2] == SIDE;
}

/* Launches a kernel that loads x in boxes of `rows` image rows. */
static void run(const nn_call *c, rows_work *f, int64_t width, int rows, const void *kernel, unsigned threads,
                size_t bytes) {
    const nn_array *x = &c->fused->maker->input[0];
    const int64_t stride = x->stride, height = f->height;
    if (make_tensor_map(&f->x, x->data,
                        {{IN, width, height, x->rows},
                         {1, stride, width * stride, height * width * stride},
                         {SW128_COLS, (int)width, rows, 1}}))
        launch_norm_kernel(c, kernel, (unsigned)f->found.tiles, threads, bytes, f);
    else nn_cuda_launch_failed("a convolution of what is normalised", "no map of an array");
}

template <int WIDTH> static void run_rows(const nn_call *c, rows_work *f) {
    run(c, f, WIDTH, PIXELS / WIDTH + 2, (const void *)rows_kernel<WIDTH>, THREADS,
        sizeof(typename rows_shape<WIDTH>::memory));
}

void norm_rows_forward(const nn_call *c, const moments_work *found) {
    const nn_array *x = &c->fused->maker->input[0], *y = &c->output[0];
    rows_work f = {};
    f.w = (const bf16 *)c->input[1].data;
    f.y = (bf16 *)y->data;
    f.y_stride = y->stride;
    f.pixels = nn_pixels(y);
    f.height = (int)y->shape->dim[1];
    f.norm = norm_arrays_of(c->fused->maker);
    f.live_rows = x->live_rows;
    f.pixels_a_row = x->cols / IN;
    f.found = *found;
    if (y->shape->dim[2] == 32) run_rows<32>(c, &f);
    else if (y->shape->dim[2] == 16) run_rows<16>(c, &f);
    else run(c, &f, SIDE, SIDE + 2, (const void *)image_kernel, IMAGE_THREADS, sizeof(image_memory));
}
