/* Long attention on Hopper: the kernels that run before attention's, and the host code that forward and backward share. */
#include "nn/backend/cuda/hopper/long_attention_parts.cuh"

/* ---- before: lists of tiles, zeros in rows of no range, statistics for backward ---- */

__device__ static inline int warp_total(int x) { return __reduce_add_sync(0xffffffffu, x); }

/* Tile number r of a sequence, counted from the one with least work, has place number
 * sum over sequences j of max(0, tiles_j - r - 1), plus the sequences before it that have more than r tiles. */
__device__ static inline void list_tiles(const attention<bf16> &a, bool of_keys, int64_t n, tile *to) {
    const int lane = (int)threadIdx.x % 32, warp = (int)threadIdx.x / 32;
    const int2 *const ranges = of_keys ? a.k_ranges : a.q_ranges;
    const auto tiles_of = [&](int i) { return (int)parts(ranges[i].y - ranges[i].x, ROWS); };
    for (int i = warp; i < a.sequences; i += LIST_BLOCK / 32) {
        const int2 q = a.q_ranges[i], k = a.k_ranges[i];
        const int tiles = tiles_of(i);
        for (int r = 0; r < tiles; r++) {
            int place = 0;
            for (int j = lane; j < a.sequences; j += 32) {
                const int other = tiles_of(j);
                place += max(0, other - r - 1) + (j < i && other > r);
            }
            place = warp_total(place);
            const tile t = {q.x, q.y - q.x, k.x, k.y - k.x, (of_keys ? tiles - 1 - r : r) * ROWS, 1, {0, 0}};
            if (lane == 0 && place < n) to[place] = t;
        }
    }
    int total = 0;
    for (int j = lane; j < a.sequences; j += 32) total += tiles_of(j);
    total = warp_total(total);
    for (int64_t i = total + threadIdx.x; i < n; i += LIST_BLOCK) to[i] = {};
}

__device__ static inline void clear_row(bf16 *row, int64_t cols) {
    for (int64_t i = threadIdx.x % 32 * 8; i < cols; i += 32 * 8)
        *reinterpret_cast<uint4 *>(row + i) = make_uint4(0, 0, 0, 0);
}

/* The statistics of all heads of one query. Each lane has a pack of 8 columns; `lanes` lanes share a head. */
__device__ static inline void find_stats(const attention<bf16> &a, int64_t row, stat *to) {
    const int lane = (int)threadIdx.x % 32, lanes = a.size / 8;
    for (int64_t first = 0; first < a.cols; first += 32 * 8) {
        const int64_t col = first + lane * 8;
        float y[8], dy[8], dot = 0;
        widen_raw<bf16>(load_raw<8>(a.y + row * a.cols + col, col < a.cols), y);
        widen_raw<bf16>(load_raw<8>(a.dy + row * a.cols + col, col < a.cols), dy);
        for (int k = 0; k < 8; k++) dot = fmaf(y[k], dy[k], dot);
        for (int step = lanes / 2; step > 0; step /= 2) dot += __shfl_xor_sync(0xffffffffu, dot, step);
        if (col >= a.cols || lane % lanes) continue;
        const int64_t head = col / a.size;
        const float2 saved = *reinterpret_cast<const float2 *>(a.saved + 2 * (row * a.heads + head));
        to[head * stat_rows(a.q_rows) + row] = {fmaf(saved.x, LOG2E, -log2f(saved.y)), dot};
    }
}

/* Whether rows first ... + CLEARED_ROWS - 1 are in a range. */
__device__ static inline void find_inside(bool (&inside)[CLEARED_ROWS], const int2 *ranges, int n, int64_t first) {
    if (threadIdx.x < CLEARED_ROWS) inside[threadIdx.x] = false;
    __syncthreads();
    for (int i = threadIdx.x; i < n; i += LIST_BLOCK) {
        const int64_t begin = max((int64_t)ranges[i].x, first), end = min((int64_t)ranges[i].y, first + CLEARED_ROWS);
        for (int64_t row = begin; row < end; row++) inside[row - first] = true;
    }
}

__global__ static void __launch_bounds__(LIST_BLOCK) list_kernel(const list_work w) {
    __shared__ bool is_query[CLEARED_ROWS], is_key[CLEARED_ROWS];
    const attention<bf16> &a = w.a;
    const int lists = w.k_tiles ? 2 : 1, warp = (int)threadIdx.x / 32;
    const int64_t first = ((int64_t)blockIdx.x - lists) * CLEARED_ROWS;
    grid_dependency_sync();
    if (first < 0) {
        const bool of_keys = blockIdx.x == 1;
        list_tiles(a, of_keys, w.n, of_keys ? w.k_tiles : w.q_tiles);
        return;
    }
    find_inside(is_query, a.q_ranges, a.sequences, first);
    find_inside(is_key, a.k_ranges, a.sequences, first);
    __syncthreads();
    for (int i = warp; i < CLEARED_ROWS; i += LIST_BLOCK / 32) {
        const int64_t row = first + i;
        if (row < a.q_rows && w.stat && is_query[i]) find_stats(a, row, w.stat);
        if (row < a.q_rows && !is_query[i]) {
            if (!w.stat) clear_row(a.y + row * a.cols, a.cols);
            else if (a.dq) clear_row(a.dq + row * a.q_stride, a.cols);
        }
        if (row < a.k_rows && !is_key[i] && w.stat && a.dk) clear_row(a.dk + row * a.k_stride, 2 * a.k_cols);
    }
}

/* ---- launches ---- */

/* Tiles of the capacity, of queries or of keys. */
int64_t long_attention_parts(const nn_call *c) {
    return max(c->input[ATTENTION_Q].rows, keys_of(c)) / ROWS + c->input[ATTENTION_Q_RANGES].rows;
}

bool long_attention_fits(const nn_call *c) {
    const nn_attention_attributes *a = NN_ATTR(attention, c);
    const int64_t size = c->output[0].cols / a->heads, sequences = c->input[ATTENTION_Q_RANGES].rows;
    const nn_gradients *g = c->grad;
    const bool adds = g->accumulate[ATTENTION_Q] || g->accumulate[ATTENTION_KV];
    return c->output[0].type == NN_BF16 && (size == 64 || size == 128) && !(c->training && a->dropout > 0) && !adds &&
           sequences > 0 && min(c->input[ATTENTION_Q].rows, keys_of(c)) >= SHORTEST * sequences && hopper_is_here();
}

static int64_t list_floats(const nn_call *c) { return long_attention_parts(c) * (int64_t)(sizeof(tile) / 4); }

/* One list; in backward two, and the statistics of queries. */
size_t long_attention_workspace(const nn_call *c) {
    const int64_t stats = 2 * stat_rows(c->input[ATTENTION_Q].rows) * NN_ATTR(attention, c)->heads;
    return (size_t)(c->grad->output[0] ? 2 * list_floats(c) + stats : list_floats(c));
}

void launch_attention(const nn_call *c, const void *kernel, int64_t blocks, int threads, size_t bytes,
                      const void *work) {
    void *arguments[] = {(void *)work};
    const cudaError_t e = hopper_launch(kernel, (unsigned)blocks, threads, 1, (int)bytes, arguments, stream_of(c));
    if (e != cudaSuccess) nn_cuda_launch_failed("attention", cudaGetErrorString(e));
}

void list_attention(const nn_call *c, const list_work &w) {
    const int64_t rows = w.stat ? max(w.a.q_rows, w.a.k_rows) : w.a.q_rows;
    launch_attention(c, (const void *)list_kernel, (w.k_tiles ? 2 : 1) + parts(rows, CLEARED_ROWS), LIST_BLOCK, 0, &w);
}

/* Boxes of `rows` rows and 64 columns. */
static void map_rows(CUtensorMap *map, const bf16 *array, int64_t cols, int64_t n, int64_t stride, int rows) {
    if (!make_tensor_map(map, array, {{cols, n, 1, 1}, {1, stride, stride, stride}, {SW128_COLS, rows, 1, 1}}))
        nn_cuda_launch_failed("attention", "no map of an array");
}

void map_attention(work &w, int query_rows, int key_rows) {
    const attention<bf16> &a = w.a;
    map_rows(&w.q, a.q, a.cols, a.q_rows, a.q_stride, query_rows);
    map_rows(&w.k, a.k, a.k_cols, a.k_rows, a.k_stride, key_rows);
    map_rows(&w.v, a.v, a.k_cols, a.k_rows, a.k_stride, key_rows);
    if (a.dy) map_rows(&w.dy, a.dy, a.cols, a.q_rows, a.cols, query_rows);
}

int multiprocessors(void) {
    int device = 0, n = 1;
    cudaGetDevice(&device);
    cudaDeviceGetAttribute(&n, cudaDevAttrMultiProcessorCount, device);
    return n;
}
