/* Layer normalisation of z = x + dropout(branch), and its gradient: formulas are in ops/add_norm.c. saved holds a row's
 * mean and 1 / sqrt(variance + eps); behind that, forward leaves which numbers dropout kept, a bit each, which takes
 * backward less time to read than to draw again.
 *
 * A row is a group of 1 to 8 warps, which keep it in registers. Rows of more than 4096 columns, or whose number of
 * columns is no multiple of 8, take the kernels whose name begins with any_: a block for each, which reads it several
 * times. In backward a block takes many rows and leaves their part of sums over rows: of dgamma, of dbeta and, where it is
 * asked for, of the branch's gradient. */
#include "nn/backend/cuda/cuda.h"

enum {
    THREADS = 256,
    BACK_THREADS = 512, /* of backward: one for each multiprocessor, so that few partial sums remain */
    CHUNK = 8,          /* columns side by side of a thread */
    CHUNKS = 2,         /* of a thread */
    WARP_COLS = 32 * CHUNK * CHUNKS,
    MOST_PARTS = 132 /* blocks of backward: the multiprocessors of an H100 or H200 */
};

/* Rows that a block has at once, where a row is a group of `warps`. */
static constexpr __host__ __device__ int rows_at_once(int threads, int warps) { return threads / 32 / warps; }

template <typename T> struct norm_rows {
    const T *x, *branch, *gamma, *beta;
    int64_t rows, cols;
    drop dropout;
    float eps;
    float *saved;
    uint16_t *kept; /* of each thread's part of a row; not for rows of any kind */
};

template <typename T> static norm_rows<T> rows_of(const nn_call *c) {
    norm_rows<T> p = {(const T *)c->input[0].data,
                      (const T *)c->input[1].data,
                      (const T *)c->input[2].data,
                      (const T *)c->input[3].data,
                      c->output[0].rows,
                      c->output[0].cols,
                      drop_of(c),
                      (float)NN_ATTR(add_norm, c)->eps,
                      c->saved,
                      (uint16_t *)(c->saved + 2 * c->output[0].rows)};
    if (!p.branch) p.dropout.threshold = 0;
    return p;
}

/* ---- rows in registers ---- */

/* A thread's place: which group of its block, and its columns, CHUNK from column(k) on for k < CHUNKS. */
template <int warps> struct place {
    int group, lane;
    __device__ place() : group(threadIdx.x / (32 * warps)), lane(threadIdx.x % (32 * warps)) {}
    __device__ int column(int k) const { return CHUNK * (k * 32 * warps + lane); }
};

/* CHUNK numbers as they were loaded. */
template <typename T> struct chunk { uint4 raw[CHUNK / pack<T>::N]; };

template <typename T> __device__ static inline chunk<T> load_chunk(const T *p, bool there) {
    constexpr int N = pack<T>::N;
    chunk<T> c;
#pragma unroll
    for (int k = 0; k < CHUNK / N; k++) c.raw[k] = load_raw<N>(p + k * N, there);
    return c;
}

template <typename T> __device__ static inline void widen_chunk(const chunk<T> &c, float (&x)[CHUNK]) {
    constexpr int N = pack<T>::N;
#pragma unroll
    for (int k = 0; k < CHUNK / N; k++) widen_raw<T>(c.raw[k], *reinterpret_cast<float(*)[N]>(x + k * N));
}

/* A thread's numbers of a row of x and the branch, zeros where there is nothing. */
template <typename T> struct row_inputs { chunk<T> x[CHUNKS], branch[CHUNKS]; };

template <typename T, int warps>
__device__ static inline row_inputs<T> load_inputs(const norm_rows<T> &p, const place<warps> &at, int64_t row) {
    row_inputs<T> r;
#pragma unroll
    for (int k = 0; k < CHUNKS; k++) {
        const int64_t j = at.column(k), i = row * p.cols + j;
        const bool there = row < p.rows && j < p.cols;
        r.x[k] = load_chunk(p.x + i, there);
        r.branch[k] = load_chunk(p.branch + i, there && p.branch);
    }
    return r;
}

static_assert(CHUNKS * CHUNK == 16, "kept holds a bit for each");

/* The numbers of a thread's branch that dropout keeps, if there is dropout: bit e is for number e. */
template <typename T, int warps>
__device__ static inline unsigned draw_kept(const norm_rows<T> &p, const place<warps> &at, int64_t row) {
    const uint64_t key = drop_key(p.dropout);
    unsigned kept = 0;
#pragma unroll
    for (int k = 0; k < CHUNKS; k++) kept |= drop_kept(p.dropout, key, row * p.cols + at.column(k)) << (k * CHUNK);
    if (row < p.rows) p.kept[row * 32 * warps + at.lane] = (uint16_t)kept;
    return kept;
}

template <typename T, int warps>
__device__ static inline unsigned load_kept(const norm_rows<T> &p, const place<warps> &at, int64_t row) {
    return p.dropout.threshold && row < p.rows ? p.kept[row * 32 * warps + at.lane] : 0xffff;
}

template <typename T>
__device__ static inline void find_z(const norm_rows<T> &p, const row_inputs<T> &r, unsigned kept,
                                     float (&z)[CHUNKS][CHUNK]) {
#pragma unroll
    for (int k = 0; k < CHUNKS; k++) {
        float b[CHUNK];
        widen_chunk<T>(r.x[k], z[k]);
        widen_chunk<T>(r.branch[k], b);
        for (int e = 0; e < CHUNK; e++) {
            z[k][e] = kept >> (k * CHUNK + e) & 1 ? fmaf(p.dropout.scale, b[e], z[k][e]) : z[k][e];
        }
    }
}

template <typename T, int warps>
__global__ static void __launch_bounds__(THREADS, sizeof(T) == 2 ? 4 : 2) forward_kernel(norm_rows<T> p, T *y) {
    const place<warps> at;
    const int64_t row = (int64_t)blockIdx.x * rows_at_once(THREADS, warps) + at.group;
    const row_inputs<T> r = load_inputs(p, at, row);
    chunk<T> gamma[CHUNKS], beta[CHUNKS];
#pragma unroll
    for (int k = 0; k < CHUNKS; k++) { /* so that nothing waits for them later */
        gamma[k] = load_chunk(p.gamma + at.column(k), at.column(k) < p.cols);
        beta[k] = load_chunk(p.beta + at.column(k), at.column(k) < p.cols);
    }
    float z[CHUNKS][CHUNK], sum[1] = {0};
    find_z(p, r, p.dropout.threshold ? draw_kept(p, at, row) : 0xffff, z);
#pragma unroll
    for (int k = 0; k < CHUNKS; k++) {
        for (int e = 0; e < CHUNK; e++) sum[0] += z[k][e];
    }
    group_sums<warps>(sum);
    const float mean = sum[0] / (float)p.cols;
    sum[0] = 0;
#pragma unroll
    for (int k = 0; k < CHUNKS; k++) {
        for (int e = 0; e < CHUNK && at.column(k) < p.cols; e++) sum[0] += (z[k][e] - mean) * (z[k][e] - mean);
    }
    group_sums<warps>(sum);
    const float scale = 1 / sqrtf(sum[0] / (float)p.cols + p.eps);
    if (row >= p.rows) return;
    if (at.lane == 0) *reinterpret_cast<float2 *>(p.saved + 2 * row) = make_float2(mean, scale);
#pragma unroll
    for (int k = 0; k < CHUNKS; k++) {
        const int64_t j = at.column(k);
        float g[CHUNK], b[CHUNK];
        if (j >= p.cols) continue;
        widen_chunk<T>(gamma[k], g);
        widen_chunk<T>(beta[k], b);
        for (int e = 0; e < CHUNK; e++) z[k][e] = (z[k][e] - mean) * scale * g[e] + b[e];
        store_floats<CHUNK>(y + row * p.cols + j, z[k]);
    }
}

/* Inputs of a row's gradient. Without a branch, the dx that is added to stands in its place, and nothing of it is kept: a
 * read that begins with the others is not waited for before dx is written. */
template <typename T> struct row_grads {
    row_inputs<T> inputs;
    chunk<T> dy[CHUNKS];
    float2 saved;
    unsigned kept;
};

/* Only a branch has a gradient whose rows are summed: N is 3. */
template <int N, typename T> __device__ static inline bool has_branch(const norm_rows<T> &p) {
    return N > 2 || p.branch;
}

template <int N, typename T, int warps>
__device__ static inline row_grads<T> load_grads(const norm_rows<T> &p, const place<warps> &at, int64_t row,
                                                 const T *dy, target<T> dx) {
    row_grads<T> r;
    r.saved = row < p.rows ? *reinterpret_cast<const float2 *>(p.saved + 2 * row) : make_float2(0, 0);
    r.kept = has_branch<N>(p) ? load_kept(p, at, row) : 0;
#pragma unroll
    for (int k = 0; k < CHUNKS; k++) {
        const int64_t j = at.column(k);
        r.dy[k] = load_chunk(dy + row * p.cols + j, row < p.rows && j < p.cols);
    }
    r.inputs = load_inputs(p, at, row);
    if (has_branch<N>(p) || !dx.add) return r;
#pragma unroll
    for (int k = 0; k < CHUNKS; k++) {
        const int64_t j = at.column(k);
        r.inputs.branch[k] = load_chunk(dx.to + row * p.cols + j, row < p.rows && j < p.cols && dx.to);
    }
    return r;
}

/* A thread's sums over the rows its group had, for its columns: of dgamma, dbeta and, if N is 3, the branch's gradient. */
template <int N> struct columns_grad { float x[N][CHUNKS][CHUNK]; };

/* x and branch may be one value, with one gradient. So an element's dx is complete before its branch's gradient begins. */
template <typename T, int warps, int N>
__device__ static inline void row_grad(const norm_rows<T> &p, const place<warps> &at, int64_t row,
                                       const row_grads<T> &r, target<T> dx, target<T> db, columns_grad<N> *sums) {
    float h[CHUNKS][CHUNK], g[CHUNKS][CHUNK], mean[2] = {0};
    const float center = r.saved.x, scale = r.saved.y;
    find_z(p, r.inputs, r.kept, h);
#pragma unroll
    for (int k = 0; k < CHUNKS; k++) {
        const int64_t j = at.column(k);
        float gamma[CHUNK];
        widen_chunk<T>(load_chunk(p.gamma + j, j < p.cols), gamma);
        widen_chunk<T>(r.dy[k], g[k]); /* 0 where there is no number, and so is all that follows from it */
        for (int e = 0; e < CHUNK; e++) {
            h[k][e] = (h[k][e] - center) * scale;
            sums->x[0][k][e] += g[k][e] * h[k][e];
            sums->x[1][k][e] += g[k][e];
            g[k][e] = __fmul_rn(g[k][e], gamma[e]); /* never fused with what follows: g - mean(g) can be 0 */
            mean[0] += g[k][e];
            mean[1] += g[k][e] * h[k][e];
        }
    }
    group_sums<warps>(mean);
    const float mean_g = mean[0] / (float)p.cols, mean_gh = mean[1] / (float)p.cols;
#pragma unroll
    for (int k = 0; k < CHUNKS; k++) {
        const int64_t j = at.column(k), i = row * p.cols + j;
        if (row >= p.rows || j >= p.cols) continue;
        for (int e = 0; e < CHUNK; e++) g[k][e] = (g[k][e] - mean_g - h[k][e] * mean_gh) * scale;
        if (!has_branch<N>(p)) {
            float before[CHUNK];
            widen_chunk<T>(r.inputs.branch[k], before);
            for (int e = 0; e < CHUNK; e++) g[k][e] += before[e];
            if (dx.to) store_floats<CHUNK>(dx.to + i, g[k]);
            continue;
        }
        put<CHUNK>(dx, i, g[k]);
        for (int e = 0; e < CHUNK; e++) g[k][e] = r.kept >> (k * CHUNK + e) & 1 ? p.dropout.scale * g[k][e] : 0;
        put<CHUNK>(db, i, g[k]);
        for (int e = 0; N > 2 && e < CHUNK; e++) sums->x[N - 1][k][e] += g[k][e];
    }
}

/* The sums of a block's groups into its row of sums, [dgamma | dbeta | branch]. */
template <int warps, int N>
__device__ static inline void block_grad(const place<warps> &at, const columns_grad<N> &mine, int64_t cols,
                                         float *sums) {
    constexpr int GROUPS = rows_at_once(BACK_THREADS, warps);
    __shared__ __align__(16) float shared[GROUPS][WARP_COLS * warps];
#pragma unroll
    for (int n = 0; n < N; n++) {
        if (n > 0) __syncthreads();
#pragma unroll
        for (int k = 0; k < CHUNKS; k++) store_floats<CHUNK>(&shared[at.group][at.column(k)], mine.x[n][k]);
        __syncthreads();
        for (int64_t j = threadIdx.x; j < cols; j += BACK_THREADS) {
            float sum = 0;
            for (int group = 0; group < GROUPS; group++) sum += shared[group][j];
            sums[(blockIdx.x * N + n) * cols + j] = sum;
        }
    }
}

/* sums [blocks, N cols], or NULL if they are not wanted. The next row is on its way while this one is computed, unless it
 * would take too many registers. */
template <typename T, int warps, int N>
__global__ static void __launch_bounds__(BACK_THREADS, 1)
    backward_kernel(norm_rows<T> p, const T *dy, target<T> dx, target<T> db, float *sums) {
    constexpr bool AHEAD = sizeof(T) == 2;
    const place<warps> at;
    const int64_t rows = rows_at_once(BACK_THREADS, warps), step = gridDim.x * rows;
    row_grads<T> next = {};
    if (AHEAD) next = load_grads<N>(p, at, blockIdx.x * rows + at.group, dy, dx);
    columns_grad<N> mine = {};
    for (int64_t first = blockIdx.x * rows; first < p.rows; first += step) {
        const int64_t row = first + at.group;
        const row_grads<T> now = AHEAD ? next : load_grads<N>(p, at, row, dy, dx);
        if (AHEAD) next = load_grads<N>(p, at, row + step, dy, dx);
        row_grad<T, warps>(p, at, row, now, dx, db, &mine);
    }
    if (sums) block_grad<warps>(at, mine, p.cols, sums);
}

/* ---- rows of any kind ---- */

template <typename T> __device__ static inline float any_z(const norm_rows<T> &p, uint64_t key, int64_t i) {
    const float z = widen(p.x[i]);
    return p.branch && drop_keeps(p.dropout, key, i) ? fmaf(p.dropout.scale, widen(p.branch[i]), z) : z;
}

template <typename T> __global__ static void any_forward_kernel(norm_rows<T> p, T *y) {
    const int64_t first = (int64_t)blockIdx.x * p.cols;
    const uint64_t key = drop_key(p.dropout);
    float sum[1] = {0};
    for (int64_t j = threadIdx.x; j < p.cols; j += THREADS) sum[0] += any_z(p, key, first + j);
    group_sums<THREADS / 32>(sum);
    const float mean = sum[0] / (float)p.cols;
    sum[0] = 0;
    for (int64_t j = threadIdx.x; j < p.cols; j += THREADS) {
        const float d = any_z(p, key, first + j) - mean;
        sum[0] += d * d;
    }
    group_sums<THREADS / 32>(sum);
    const float scale = 1 / sqrtf(sum[0] / (float)p.cols + p.eps);
    if (threadIdx.x == 0) p.saved[2 * blockIdx.x] = mean, p.saved[2 * blockIdx.x + 1] = scale;
    for (int64_t j = threadIdx.x; j < p.cols; j += THREADS) {
        const float h = (any_z(p, key, first + j) - mean) * scale;
        y[first + j] = narrow<T>(h * widen(p.gamma[j]) + widen(p.beta[j]));
    }
}

/* mine: the block's row of sums, each thread's columns its own, or NULL. */
template <typename T, int N>
__device__ static inline void any_row_grad(const norm_rows<T> &p, uint64_t key, int64_t row, const T *dy, target<T> dx,
                                           target<T> db, float *mine) {
    const float center = p.saved[2 * row], scale = p.saved[2 * row + 1];
    float mean[2] = {0};
    for (int64_t j = threadIdx.x; j < p.cols; j += THREADS) {
        const int64_t i = row * p.cols + j;
        const float d = widen(dy[i]), h = (any_z(p, key, i) - center) * scale, g = __fmul_rn(d, widen(p.gamma[j]));
        mean[0] += g;
        mean[1] += g * h;
        if (mine) mine[j] += d * h, mine[p.cols + j] += d;
    }
    group_sums<THREADS / 32>(mean);
    const float mean_g = mean[0] / (float)p.cols, mean_gh = mean[1] / (float)p.cols;
    for (int64_t j = threadIdx.x; j < p.cols; j += THREADS) {
        const int64_t i = row * p.cols + j;
        const float h = (any_z(p, key, i) - center) * scale, g = __fmul_rn(widen(dy[i]), widen(p.gamma[j]));
        const float dz = (g - mean_g - h * mean_gh) * scale;
        const float dropped = drop_keeps(p.dropout, key, i) ? p.dropout.scale * dz : 0;
        put<1>(dx, i, &dz);
        put<1>(db, i, &dropped);
        if (N > 2 && mine) mine[2 * p.cols + j] += dropped;
    }
}

template <typename T, int N>
__global__ static void any_backward_kernel(norm_rows<T> p, const T *dy, target<T> dx, target<T> db, float *sums) {
    float *mine = sums ? sums + blockIdx.x * N * p.cols : NULL;
    const uint64_t key = drop_key(p.dropout);
    for (int n = 0; mine && n < N; n++) {
        for (int64_t j = threadIdx.x; j < p.cols; j += THREADS) mine[n * p.cols + j] = 0;
    }
    for (int64_t row = blockIdx.x; row < p.rows; row += gridDim.x) any_row_grad<T, N>(p, key, row, dy, dx, db, mine);
}

/* ---- calls ---- */

/* Warps of a row's group; 0: a row of any kind. */
static int warps_of(const nn_call *c) {
    const int64_t cols = c->output[0].cols;
    if (cols % CHUNK != 0) return 0;
    for (int warps = 1; warps <= THREADS / 32; warps *= 2) {
        if (cols <= warps * WARP_COLS) return warps;
    }
    return 0;
}

static int back_threads(const nn_call *c) { return warps_of(c) ? BACK_THREADS : THREADS; }

/* Blocks that have their rows all at once. */
static int64_t blocks_of(const nn_call *c, int threads) {
    const int warps = warps_of(c);
    return parts(c->output[0].rows, warps ? rows_at_once(threads, warps) : 1);
}

/* Blocks of backward, as few as have their rows in the same time: a number that follows from the shape alone. */
static int64_t parts_of(const nn_call *c) {
    const int64_t n = blocks_of(c, back_threads(c));
    return n > 0 ? parts(n, parts(n, MOST_PARTS)) : 1;
}

template <typename T> static void (*forward_for(int warps))(norm_rows<T>, T *) {
    switch (warps) {
        case 1: return forward_kernel<T, 1>;
        case 2: return forward_kernel<T, 2>;
        case 4: return forward_kernel<T, 4>;
        case 8: return forward_kernel<T, 8>;
        default: return any_forward_kernel<T>;
    }
}

template <typename T, int N>
static void (*backward_for(int warps))(norm_rows<T>, const T *, target<T>, target<T>, float *) {
    switch (warps) {
        case 1: return backward_kernel<T, 1, N>;
        case 2: return backward_kernel<T, 2, N>;
        case 4: return backward_kernel<T, 4, N>;
        case 8: return backward_kernel<T, 8, N>;
        default: return any_backward_kernel<T, N>;
    }
}

/* Sums over rows that are wanted, or might be: gamma's and beta's always come together. */
static int sums_of(const nn_call *c) {
    return c->grad->row_sums[1] ? 3 : c->grad->input[2] || c->grad->input[3] ? 2 : 0;
}

template <typename T> static void forward(const nn_call *c) {
    void (*const kernel)(norm_rows<T>, T *) = forward_for<T>(warps_of(c));
    if (c->output[0].rows == 0) return;
    kernel<<<(unsigned)blocks_of(c, THREADS), THREADS, 0, stream_of(c)>>>(rows_of<T>(c), (T *)c->output[0].data);
}

template <typename T> static void backward(const nn_call *c) {
    void (*const kernel)(norm_rows<T>, const T *, target<T>, target<T>, float *) =
        c->grad->row_sums[1] ? backward_for<T, 3>(warps_of(c)) : backward_for<T, 2>(warps_of(c));
    const int64_t n = parts_of(c), cols = c->output[0].cols, stride = sums_of(c) * cols;
    float *sums = stride ? c->grad->partials : NULL;
    kernel<<<(unsigned)n, (unsigned)back_threads(c), 0, stream_of(c)>>>(rows_of<T>(c), (const T *)c->grad->output[0],
                                                                        target_of<T>(c, 0), target_of<T>(c, 1), sums);
    if (!sums) return;
    const nn_sum all[3] = {{sums, stride, n, cols, c->grad->input[2], c->grad->accumulate[2]},
                           {sums + cols, stride, n, cols, c->grad->input[3], c->grad->accumulate[3]},
                           {sums + 2 * cols, stride, n, cols, c->grad->row_sums[1], c->grad->accumulate_sums}};
    for (int i = 0; i < 3; i++) nn_cuda_sum(c, &all[i]);
}

static size_t add_norm_extra_saved(const nn_call *c) {
    return c->input[1].cols && drop_of(c).threshold ? (size_t)(c->output[0].rows * warps_of(c)) * 32 / 2 : 0;
}

static size_t add_norm_partials(const nn_call *c) { return (size_t)(parts_of(c) * sums_of(c) * c->output[0].cols); }

extern "C" const nn_kernels nn_cuda_add_norm = {.forward = NN_BY_TYPE(output[0], forward),
                                                .backward = NN_BY_TYPE(output[0], backward),
                                                .extra_saved = add_norm_extra_saved,
                                                .partials = add_norm_partials,
                                                .row_sums = 1u << 1};
