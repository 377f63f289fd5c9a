/* Embedding: see ops/embedding.c for the formulas.
 *
 * Backward adds up, for each id, the rows of the tokens that are it, in their order. For that, tokens are sorted by id: a
 * token's place is the number of tokens with a smaller id, or with the same and before it. Counting those for every token
 * takes n^2 comparisons, but nothing waits for anything: a few microseconds for thousands of tokens. */
#include "nn/backend/cuda/cuda.h"

enum {
    CHUNK = 8, /* columns side by side of a thread */
    WARPS = 8, /* of a block; SORT_WARPS for sorting */
    SORT_WARPS = 32
};

/* ---- forward ---- */

/* Constants of the sinusoids: from column to column the angle shrinks by ratio = exp(-rate). */
typedef struct waves {
    double rate, ratio;
    int64_t half; /* columns of sines, and of cosines */
} waves;

static waves waves_of(int64_t cols) {
    const int64_t half = cols / 2;
    const double rate = half > 1 ? log(10000.0) / (double)(half - 1) : 0;
    return {rate, exp(-rate), half};
}

/* Turns for each position in column j; in double, so that positions in the thousands lose nothing. */
__device__ static inline double frequency(const waves &w, int64_t j) {
    return exp(-(double)j * w.rate) * 0.15915494309189535;
}

__device__ static inline void sin_cos(double turns, float *s, float *c) {
    sincospif((float)(2 * (turns - rint(turns))), s, c);
}

/* A warp for each row and 32 chunks of sines, each with the chunk of cosines of the same angles. */
template <typename T>
__global__ static void forward_kernel(const int32_t *ids, const int32_t *positions, const T *table, float scale,
                                      waves w, int64_t rows, T *y) {
    const int64_t row = (int64_t)blockIdx.x * WARPS + threadIdx.y;
    const int64_t j = ((int64_t)blockIdx.y * 32 + threadIdx.x) * CHUNK, cols = 2 * w.half;
    if (row >= rows || j >= w.half) return;
    const T *from = table + ids[row] * cols;
    T *to = y + row * cols;
    float x[2][CHUNK];
    for (int h = 0; h < 2; h++) load_floats<CHUNK>(from + h * w.half + j, x[h]);
    double turns = positions ? positions[row] * frequency(w, j) : 0;
    for (int e = 0; e < CHUNK; e++) {
        float wave[2] = {0, 0};
        if (positions) sin_cos(turns, &wave[0], &wave[1]);
        for (int h = 0; h < 2; h++) x[h][e] = fmaf(scale, x[h][e], wave[h]);
        turns *= w.ratio;
    }
    for (int h = 0; h < 2; h++) store_floats<CHUNK>(to + h * w.half + j, x[h]);
}

/* For any number of columns: a block for each row, a thread for each column. */
template <typename T>
__global__ static void any_forward_kernel(const int32_t *ids, const int32_t *positions, const T *table, float scale,
                                          waves w, int64_t cols, T *y) {
    const int64_t row = blockIdx.x;
    for (int64_t e = threadIdx.x; e < cols; e += blockDim.x) {
        float s = 0, c = 0;
        if (positions && e < 2 * w.half) sin_cos(positions[row] * frequency(w, e % w.half), &s, &c);
        y[row * cols + e] = narrow<T>(fmaf(scale, widen(table[ids[row] * cols + e]), e < w.half ? s : c));
    }
}

template <typename T> static void forward(const nn_call *c) {
    const int64_t rows = c->output[0].rows, cols = c->output[0].cols;
    const int32_t *ids = (const int32_t *)c->input[0].data, *positions = (const int32_t *)c->input[1].data;
    const T *table = (const T *)c->input[2].data;
    const float scale = (float)NN_ATTR(embedding, c)->scale;
    const waves w = waves_of(cols);
    T *y = (T *)c->output[0].data;
    if (rows == 0) return;
    if (cols % (2 * CHUNK) == 0) {
        const dim3 grid((unsigned)parts(rows, WARPS), (unsigned)parts(w.half, 32 * CHUNK));
        forward_kernel<T><<<grid, dim3(32, WARPS), 0, stream_of(c)>>>(ids, positions, table, scale, w, rows, y);
    } else {
        any_forward_kernel<T>
            <<<(unsigned)rows, 32 * WARPS, 0, stream_of(c)>>>(ids, positions, table, scale, w, cols, y);
    }
}

/* ---- backward ---- */

/* Tokens in the order of their ids. */
typedef struct sorted {
    int32_t *token, *id;
    int64_t n;
} sorted;

/* The number of ids[from] .. ids[to - 1] below bound; from is a multiple of 4. */
__device__ static inline int count_below(const int32_t *ids, int64_t from, int64_t to, int32_t bound) {
    int count = 0;
#pragma unroll 4
    for (; from + 4 <= to; from += 4) {
        const int4 four = *(const int4 *)(ids + from);
        count += (four.x < bound) + (four.y < bound) + (four.z < bound) + (four.w < bound);
    }
    for (; from < to; from++) count += ids[from] < bound;
    return count;
}

/* Lane l of every warp has token 32 blockIdx.x + l, and counts over the warp's part of the ids. */
__device__ static inline int count_before(const int32_t *ids, int64_t n, int64_t i, int32_t id) {
    const int64_t part = parts(parts(n, SORT_WARPS), 4) * 4, from = min(n, threadIdx.y * part),
                  to = min(n, from + part);
    const int64_t first = i - threadIdx.x, last = first + 32; /* the block's tokens */
    int count = count_below(ids, from, min(to, first), id + 1) + count_below(ids, max(from, last), to, id);
    for (int64_t k = max(from, first); k < min(to, last); k++) count += ids[k] < id + (k < i);
    return count;
}

/* Sorts; and, on the way, sets what is not added to to 0. */
__global__ static void __launch_bounds__(32 * SORT_WARPS)
    sort_kernel(const int32_t *ids, sorted s, float *zero, int64_t zeros) {
    __shared__ int counts[SORT_WARPS][32];
    const int64_t i = (int64_t)blockIdx.x * 32 + threadIdx.x;
    const int32_t id = i < s.n ? ids[i] : -1;
    counts[threadIdx.y][threadIdx.x] = count_before(ids, s.n, i, id);
    const int64_t stride = (int64_t)gridDim.x * 32 * SORT_WARPS;
    const int64_t mine = ((int64_t)blockIdx.x * SORT_WARPS + threadIdx.y) * 32 + threadIdx.x;
    for (int64_t k = mine; k < zeros / 4; k += stride) ((float4 *)zero)[k] = make_float4(0, 0, 0, 0);
    for (int64_t k = zeros / 4 * 4 + mine; k < zeros; k += stride) zero[k] = 0;
    __syncthreads();
    if (threadIdx.y > 0 || i >= s.n) return;
    int place = 0;
    for (int warp = 0; warp < SORT_WARPS; warp++) place += counts[warp][threadIdx.x];
    s.token[place] = (int32_t)i;
    s.id[place] = id;
}

/* Adds the rows of the tokens of this id from place `from` on, at most 32 of them, to sum: N columns of dy. */
template <int N, typename T>
__device__ static inline void add_tokens(const sorted &s, int64_t from, int32_t id, const T *dy, int64_t cols,
                                         int64_t column, float sum[N]) {
    const int64_t mine = from + threadIdx.x % 32;
    const bool same = mine < s.n && s.id[mine] == id;
    const int32_t token = same ? s.token[mine] : 0;
    const int count = __popc(__ballot_sync(0xffffffffu, same));
    if (column >= cols) column = 0; /* read for nothing, but without a branch, so that loads go out together */
#pragma unroll 4
    for (int k = 0; k < count; k++) {
        const int64_t row = __shfl_sync(0xffffffffu, token, k);
        float x[N];
        load_floats<N>(dy + row * cols + column, x);
        for (int e = 0; e < N; e++) sum[e] += x[e];
    }
}

/* An id with more than 32 tokens, the first at place `first`: warps take 32 tokens in turn. The whole block calls it. */
template <int N, typename T>
__device__ static inline void sum_many(const sorted &s, int64_t first, const T *dy, int64_t cols, int64_t column,
                                       float scale, target<float> grad) {
    __shared__ float shared[WARPS][32][N];
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    const int32_t id = s.id[first];
    float sum[N] = {0};
    for (int64_t from = first + 32 * warp; from < s.n && s.id[from] == id; from += 32 * WARPS) {
        add_tokens<N>(s, from, id, dy, cols, column, sum);
    }
    for (int e = 0; e < N; e++) shared[warp][lane][e] = sum[e];
    __syncthreads();
    for (int e = 0; e < N; e++) {
        sum[e] = 0;
        for (int k = 0; k < WARPS; k++) sum[e] += shared[k][lane][e];
        sum[e] = __fmul_rn(sum[e], scale);
    }
    if (warp == 0 && column < cols) put<N>(grad, id * cols + column, sum);
    __syncthreads();
}

/* A warp for each place at which an id begins, and 32 N columns. */
template <int N, typename T>
__global__ static void __launch_bounds__(32 * WARPS)
    sum_kernel(sorted s, const T *dy, int64_t cols, float scale, target<float> grad) {
    __shared__ bool many[WARPS];
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    const int64_t column = ((int64_t)blockIdx.y * 32 + lane) * N, place = (int64_t)blockIdx.x * WARPS + warp;
    const int32_t id = place < s.n ? s.id[place] : -1;
    const bool begins = place < s.n && (place == 0 || s.id[place - 1] != id);
    const bool is_many = begins && place + 32 < s.n && s.id[place + 32] == id;
    if (begins && !is_many) {
        float sum[N] = {0};
        add_tokens<N>(s, place, id, dy, cols, column, sum);
        for (int e = 0; e < N; e++) sum[e] = __fmul_rn(sum[e], scale); /* rounded also where it is added to others */
        if (column < cols) put<N>(grad, id * cols + column, sum);
    }
    if (lane == 0) many[warp] = is_many;
    __syncthreads();
    for (int k = 0; k < WARPS; k++) {
        if (many[k]) sum_many<N>(s, (int64_t)blockIdx.x * WARPS + k, dy, cols, column, scale, grad);
    }
}

template <int N, typename T> static void launch_sum(const nn_call *c, const sorted *s) {
    const dim3 grid((unsigned)parts(s->n, WARPS), (unsigned)parts(c->output[0].cols, 32 * N));
    sum_kernel<N, T><<<grid, 32 * WARPS, 0, stream_of(c)>>>(*s, (const T *)c->grad->output[0], c->output[0].cols,
                                                            (float)NN_ATTR(embedding, c)->scale,
                                                            target_of<float>(c, 2));
}

template <typename T> static void backward(const nn_call *c) {
    const int64_t n = c->output[0].rows, cols = c->output[0].cols, blocks = n > 0 ? parts(n, 32) : 1;
    int32_t *place = (int32_t *)c->workspace;
    const sorted s = {place, place + n, n};
    float *grad = c->grad->input[2];
    if (!grad) return;
    sort_kernel<<<(unsigned)blocks, dim3(32, SORT_WARPS), 0, stream_of(c)>>>(
        (const int32_t *)c->input[0].data, s, grad, c->grad->accumulate[2] ? 0 : c->input[2].rows * cols);
    if (n == 0) return;
    if (cols % CHUNK == 0) launch_sum<CHUNK, T>(c, &s);
    else launch_sum<1, T>(c, &s);
}

static size_t embedding_workspace(const nn_call *c) { return 2 * (size_t)c->output[0].rows; }

extern "C" const nn_kernels nn_cuda_embedding = {.forward = NN_BY_TYPE(output[0], forward),
                                                 .backward = NN_BY_TYPE(output[0], backward),
                                                 .workspace = embedding_workspace};
