/* The product has a row for each pixel of x. Its columns are the channels of y three times, for the three taps of a row of
 * the kernel: what the pixel gives y at its right, at itself and at its left. The kernel's other rows are the same product
 * with x a row of the image further. So relu(norm(x)) is multiplied where it lies in shared memory, with no border at its
 * sides, and what neighbours give each other is added up in registers. */
#include "nn/backend/cuda/hopper/norm_rows.h"
#include "nn/backend/cuda/hopper/map.h"
#include "nn/backend/cuda/hopper/norm_reading.cuh"
#include "nn/backend/cuda/hopper/norm_shape.cuh"
#include "nn/backend/cuda/hopper/tile_output.cuh"

enum {
    GROUPS = 4,
    THREADS = GROUPS * GROUP,
    WARPS = THREADS / 32,
    COLUMNS = 3 * OUT,
    SUMS = COLUMNS / 2, /* of a thread */
    PIXELS = NORM_ROWS_PIXELS,
    SLOTS = 3
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

/* For each half of x's channels and row of the kernel, a slab: a row for each tap and channel of y. */
typedef bf16 row_weights[HALVES][3][COLUMNS * SLAB];

template <int WIDTH> struct rows_shape {
    static constexpr int ROWS = PIXELS / WIDTH, LINES = (ROWS + 2) * WIDTH; /* with a row above and one below */
    struct memory {
        row_weights w;
        union {
            bf16 x[SLOTS][LINES * SLAB];
            tile_sums<OUT, WARPS> found;
        };
        bf16 out[WARPS][16 * OUT];
        float edges[WARPS][2][OUT];
        float4 lines[IN / 2];
        uint64_t full[SLOTS];
    };
};

template <int BLOCK> __device__ static inline void copy_weights(const bf16 *from, row_weights &to) {
    for (int at = (int)threadIdx.x; at < OUT * TAPS * (IN / 8); at += BLOCK) {
        const int out = at / (TAPS * (IN / 8)), tap = at / (IN / 8) % TAPS, pack = at % (IN / 8);
        copy_async(&to[pack / 8][tap / 3][slab_place(tap % 3 * OUT + out, pack % 8)], from + at * 8, true);
    }
}

/* Lines, a pixel each, become relu(norm(x)); those above and below an image stay 0. `row`: the image's row that the first
 * line is in. */
template <int WIDTH, int LINES, int THREADS_OF_IT>
__device__ static inline void normalise_lines(const float4 *lines, int row, int height, bf16 *x) {
    const int thread = (int)threadIdx.x % THREADS_OF_IT, pack = thread % 8;
    const float4 a = lines[pack * 4], b = lines[pack * 4 + 1], c = lines[pack * 4 + 2], d = lines[pack * 4 + 3];
#pragma unroll
    for (int line = thread / 8; line < LINES; line += THREADS_OF_IT / 8) {
        const int at_row = row + line / WIDTH;
        if (at_row < 0 || at_row >= height) continue;
        uint4 *const at = reinterpret_cast<uint4 *>(x + slab_place(line, pack));
        const uint4 p = *at;
        *at = make_uint4(normalised(p.x, a), normalised(p.y, b), normalised(p.z, c), normalised(p.w, d));
    }
}

/* Begins the product of a group's 64 pixels by half of the channels. x: the line a row above the first of them. */
template <int WIDTH>
__device__ static inline void multiply_half(const bf16 *x, const bf16 (&w)[3][COLUMNS * SLAB], bool add,
                                            float (&sums)[SUMS]) {
    const uint64_t left = matrix_at(shared_address(x), ATOM, ATOM);
    const uint64_t right = matrix_at(shared_address(w), ATOM, ATOM);
    products_begin();
#pragma unroll
    for (int row = 0; row < 3; row++) {
#pragma unroll
        for (int k = 0; k < SLAB / 16; k++)
            multiply<0, 0>(columns<COLUMNS>(), sums, matrix_moved(left, row * WIDTH * LINE + k * 32),
                           matrix_moved(right, row * COLUMNS * LINE + k * 32), add || row > 0 || k > 0);
    }
    products_commit();
}

/* A thread's sums are of pixels lane / 4 and lane / 4 + 8 of its warp's 16: of each 8 columns, two numbers of the first and
 * then two of the second. */

/* What the last pixel of a warp gives the next one, and the first pixel the one before, for the warps that have these. */
__device__ static inline void leave_edges(const float (&sums)[SUMS], float (&edges)[WARPS][2][OUT]) {
    const int lane = (int)threadIdx.x % 32, warp = (int)threadIdx.x / 32;
#pragma unroll
    for (int n = 0; n < OUT / 8; n++) {
#pragma unroll
        for (int e = 0; e < 2; e++) {
            const int col = n * 8 + lane % 4 * 2 + e;
            if (lane >= 28) edges[warp][0][col] = sums[n * 4 + 2 + e];
            if (lane < 4) edges[warp][1][col] = sums[(2 * OUT / 8 + n) * 4 + e];
        }
    }
}

/* y of a warp's 16 pixels: from the pixel at the left, itself, and that at the right. The neighbours of a lane's pixels are
 * those of the lanes 4 before and 4 behind it; at an end of the 8, the other 8's; at an end of the 16, another warp's if a
 * row of the image goes on there (CROSSES), and nobody's if it ends. */
template <int WIDTH>
__device__ static inline void add_neighbours(const float (&sums)[SUMS], const float (*edges)[2][OUT],
                                             float (&y)[OUT / 8][4]) {
    const int lane = (int)threadIdx.x % 32, warp = (int)threadIdx.x / 32;
    const int first = (warp * 16 + lane / 4) % WIDTH, second = (warp * 16 + lane / 4 + 8) % WIDTH; /* in their rows */
    constexpr bool CROSSES = WIDTH > 16;
#pragma unroll
    for (int i = 0; i < OUT / 8 * 2; i++) {
        const int n = i / 2, e = i % 2, col = n * 8 + lane % 4 * 2 + e;
        const float *const left = sums + n * 4 + e, *const right = sums + (2 * OUT / 8 + n) * 4 + e;
        const float up_first = __shfl_sync(0xffffffffu, left[0], (lane + 28) % 32);
        const float up_second = __shfl_sync(0xffffffffu, left[2], (lane + 28) % 32);
        const float down_first = __shfl_sync(0xffffffffu, right[0], (lane + 4) % 32);
        const float down_second = __shfl_sync(0xffffffffu, right[2], (lane + 4) % 32);
        float before[2] = {up_first, lane < 4 ? up_first : up_second};
        float after[2] = {lane < 28 ? down_first : down_second, down_second};
        if (CROSSES && lane < 4 && warp % 2 == 1) before[0] = edges[warp - 1][0][col];
        if (CROSSES && lane >= 28 && warp % 2 == 0) after[1] = edges[warp + 1][1][col];
        const float *const middle = sums + (OUT / 8 + n) * 4 + e;
        y[n][e] = middle[0] + (first > 0 ? before[0] : 0) + (first < WIDTH - 1 ? after[0] : 0);
        y[n][2 + e] = middle[2] + (second > 0 ? before[1] : 0) + (second < WIDTH - 1 ? after[1] : 0);
    }
}

extern __shared__ __align__(1024) unsigned char shared_memory[];

/* A block takes its pixels PIXELS at a time, by halves of the channels: an item is one half of such pixels. An item is
 * normalised while the one before is multiplied and those behind it are on their way. */
template <int WIDTH>
__global__ static void __launch_bounds__(THREADS, 1) rows_kernel(const __grid_constant__ rows_work f) {
    typedef rows_shape<WIDTH> S;
    typename S::memory &s = *reinterpret_cast<typename S::memory *>(shared_memory);
    const int group = (int)threadIdx.x / GROUP, warp = (int)threadIdx.x / 32;
    copy_weights<THREADS>(f.w, s.w);
    copies_commit();
    if (threadIdx.x == 0) {
        for (int i = 0; i < SLOTS; i++) barrier_init(shared_address(&s.full[i]), 1);
        barriers_are_made();
    }
    wait_for_former();
    const int64_t live = f.live_rows ? *f.live_rows * f.pixels_a_row : f.pixels;
    const int64_t first = (int64_t)blockIdx.x * f.found.size;
    const int64_t end = first + f.found.size < f.pixels ? first + f.found.size : f.pixels;
    const int items = (int)parts(end - first, PIXELS) * HALVES;
    const auto row_of = [&](int item) { return (int)((first + item / HALVES * PIXELS) / WIDTH % f.height); };
    const auto load = [&](int item, int slot) {
        const int image = (int)((first + item / HALVES * PIXELS) / WIDTH / f.height);
        barrier_expect(shared_address(&s.full[slot]), sizeof s.x[slot]);
        box_load(shared_address(s.x[slot]), &f.x, {item % HALVES * SLAB, 0, row_of(item) - 1, image},
                 shared_address(&s.full[slot]));
    };
    const auto normalise = [&](int item, const ring_place<SLOTS> &at) {
        barrier_wait(shared_address(&s.full[at.slot]), at.parity);
        normalise_lines<WIDTH, S::LINES, THREADS>(s.lines + item % HALVES * (SLAB / 2), row_of(item) - 1, f.height,
                                                  s.x[at.slot]);
        fence_for_boxes();
    };
    if (threadIdx.x == 0)
        for (int i = 0; i < SLOTS && i < items; i++) load(i, i);
    find_lines<THREADS>(f.norm, IN, IN, (float)live, s.lines);
    copies_wait<0>();
    __syncthreads();
    ring_place<SLOTS> at;
    normalise(0, at);
    __syncthreads();
    const tile_output to = {f.y, f.y_stride, end, live, f.found.to.first != NULL};
    float sums[SUMS];
    lane_sums found = {};
    for (int item = 0; item < items; item++) {
        const int slot = at.slot, half = item % HALVES;
        multiply_half<WIDTH>(s.x[slot] + group * 64 * SLAB, s.w[half], half > 0, sums);
        at.next();
        if (item + 1 < items) normalise(item + 1, at);
        products_wait<0>();
        keep_in_place(sums);
        const int64_t pixel = first + item / HALVES * PIXELS;
        if (half == HALVES - 1 && WIDTH > 16) leave_edges(sums, s.edges);
        __syncthreads(); /* the slot is read, the next one is normalised */
        if (threadIdx.x == 0 && item + SLOTS < items) load(item + SLOTS, slot);
        if (half < HALVES - 1) continue;
        float y[OUT / 8][4];
        add_neighbours<WIDTH>(sums, s.edges, y);
        store_rows<OUT>(to, s.out[warp], y, pixel + group * 64 + warp % 4 * 16, item == HALVES - 1, found);
    }
    if (f.found.to.first) leave_lanes<PIXELS>(f.found, 0, first, end, live, found, s.found);
}

/* ---- an image of 8 x 8 for each block: each of its two groups has half of the channels ---- */

enum { SIDE = 8, IMAGE_LINES = (SIDE + 2) * SIDE, IMAGE_THREADS = HALVES * GROUP };

struct image_memory {
    row_weights w;
    bf16 x[HALVES][IMAGE_LINES * SLAB];
    float other[OUT / 2][GROUP]; /* what the second group has of y */
    bf16 out[IMAGE_THREADS / 32][16 * OUT];
    tile_sums<OUT, IMAGE_THREADS / 32> found;
    float4 lines[IN / 2];
    uint64_t full;
};

__global__ static void __launch_bounds__(IMAGE_THREADS, 1) image_kernel(const __grid_constant__ rows_work f) {
    image_memory &s = *reinterpret_cast<image_memory *>(shared_memory);
    const int group = (int)threadIdx.x / GROUP, thread = (int)threadIdx.x % GROUP, warp = (int)threadIdx.x / 32;
    const int64_t first = (int64_t)blockIdx.x * SIDE * SIDE, end = first + SIDE * SIDE;
    copy_weights<IMAGE_THREADS>(f.w, s.w);
    copies_commit();
    if (threadIdx.x == 0) {
        barrier_init(shared_address(&s.full), 1);
        barriers_are_made();
    }
    wait_for_former();
    if (threadIdx.x == 0) {
        barrier_expect(shared_address(&s.full), sizeof s.x);
        for (int h = 0; h < HALVES; h++)
            box_load(shared_address(s.x[h]), &f.x, {h * SLAB, 0, -1, (int)blockIdx.x}, shared_address(&s.full));
    }
    const int64_t live = f.live_rows ? *f.live_rows * f.pixels_a_row : f.pixels;
    find_lines<IMAGE_THREADS>(f.norm, IN, IN, (float)live, s.lines);
    copies_wait<0>();
    __syncthreads();
    barrier_wait(shared_address(&s.full), 0);
    normalise_lines<SIDE, IMAGE_LINES, GROUP>(s.lines + group * (SLAB / 2), -1, SIDE, s.x[group]);
    fence_for_boxes();
    __syncthreads();
    float sums[SUMS], y[OUT / 8][4];
    multiply_half<SIDE>(s.x[group], s.w[group], false, sums);
    products_wait<0>();
    keep_in_place(sums);
    add_neighbours<SIDE>(sums, NULL, y);
#pragma unroll
    for (int i = 0; i < OUT / 2; i++) {
        if (group == 1) s.other[i][thread] = y[i / 4][i % 4];
    }
    __syncthreads();
    lane_sums found = {};
    if (group == 0) {
#pragma unroll
        for (int i = 0; i < OUT / 2; i++) y[i / 4][i % 4] += s.other[i][thread];
        const tile_output to = {f.y, f.y_stride, end, live, f.found.to.first != NULL};
        store_rows<OUT>(to, s.out[warp], y, first + warp * 16, true, found);
    }
    if (f.found.to.first) leave_lanes<SIDE * SIDE>(f.found, 0, first, end, live, found, s.found);
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

/* Launches a kernel that reads x in boxes of so many rows. */
static void run(const nn_call *c, rows_work *f, int64_t width, int rows, const void *kernel, unsigned threads,
                size_t bytes) {
    const nn_array *x = &c->maker->input[0];
    const int64_t stride = x->stride, height = f->height;
    const map_shape shape = {{IN, width, height, x->rows},
                             {1, stride, width * stride, height * width * stride},
                             {SLAB, (int)width, rows, 1}};
    if (hopper_map(&f->x, x->data, &shape)) launch_reading(c, kernel, (unsigned)f->found.tiles, threads, bytes, f);
    else nn_cuda_launch_failed("a convolution of what is normalised", "no map of an array");
}

template <int WIDTH> static void run_rows(const nn_call *c, rows_work *f) {
    run(c, f, WIDTH, PIXELS / WIDTH + 2, (const void *)rows_kernel<WIDTH>, THREADS,
        sizeof(typename rows_shape<WIDTH>::memory));
}

void norm_rows_forward(const nn_call *c, const moments_work *found) {
    const nn_array *x = &c->maker->input[0], *y = &c->output[0];
    rows_work f = {};
    f.w = (const bf16 *)c->input[1].data;
    f.y = (bf16 *)y->data;
    f.y_stride = y->stride;
    f.pixels = nn_pixels(y);
    f.height = (int)y->shape->dim[1];
    f.norm = norm_arrays_of(c->maker);
    f.live_rows = x->live_rows;
    f.pixels_a_row = x->cols / IN;
    f.found = *found;
    if (y->shape->dim[2] == 32) run_rows<32>(c, &f);
    else if (y->shape->dim[2] == 16) run_rows<16>(c, &f);
    else run(c, &f, SIDE, SIDE + 2, (const void *)image_kernel, IMAGE_THREADS, sizeof(image_memory));
}
