/* Attention along the paths of hypotheses: see ops/path_attention.c. A warp takes a head of a row. It goes over the path 32
 * keys at a time: each lane has the score of one, then all lanes add up the values, each some of their columns. */
#include "nn/backend/cuda/cuda.h"

enum {
    WARPS = 4,
    LARGEST_HEAD = 256,
    COLUMNS = LARGEST_HEAD / 32 /* of a lane, at most */
};

enum { PATH_Q, PATH_CACHE, PATH_PATHS, PATH_POSITIONS }; /* as in ops/path_attention.h */

template <typename T> struct paths_call {
    const T *q;
    T *cache, *y;
    const int32_t *paths, *positions;
    int64_t rows, length, d, kv; /* columns of q, and of k or v */
    int heads, kv_heads, size;
    float scale;
    bool packs; /* heads are whole packs, at addresses of packs */
};

/* q . k; q is in shared memory. */
template <typename T> __device__ static inline float product(const float *q, const T *k, int size, bool packs) {
    float sum = 0;
    if (packs) {
        constexpr int N = pack<T>::N;
#pragma unroll 4
        for (int e = 0; e < size; e += N) {
            float x[N];
            load_floats<N>(k + e, x);
            for (int i = 0; i < N; i++) sum = fmaf(q[e + i], x[i], sum);
        }
    } else {
        for (int e = 0; e < size; e++) sum = fmaf(q[e], widen(k[e]), sum);
    }
    return sum;
}

template <typename T> __global__ static void __launch_bounds__(32 * WARPS) path_kernel(paths_call<T> p) {
    __shared__ __align__(16) float queries[WARPS][LARGEST_HEAD];
    const int lane = (int)threadIdx.x % 32, warp = (int)threadIdx.x / 32;
    const int64_t item = (int64_t)blockIdx.x * WARPS + warp, row = item / p.heads;
    if (row >= p.rows) return;
    const int head = (int)(item % p.heads), kv_head = head * p.kv_heads / p.heads;
    const int64_t column = (int64_t)head * p.size, seen = (int64_t)kv_head * p.size, kv = p.kv;
    const T *line = p.q + row * (p.d + 2 * kv), *q = line + column, *own_k = line + p.d + seen, *own_v = own_k + kv;
    const int32_t *path = p.paths + row * p.length;
    const int n = p.positions[row] + 1, own = path[n - 1];
    T *y = p.y + row * p.d + column;
    float sum[COLUMNS] = {}, most = -INFINITY, total = 0;
    if (own >= 0) {
        float *query = queries[warp];
        T *cache = p.cache + (int64_t)own * 2 * kv + seen;
        for (int e = lane; e < p.size; e += 32) {
            query[e] = widen(q[e]) * p.scale;
            cache[e] = own_k[e]; /* heads that share k and v write the same */
            cache[kv + e] = own_v[e];
        }
        __syncwarp();
        for (int first = 0; first < n; first += 32) {
            const int keys = min(32, n - first), at = lane < keys ? path[first + lane] : 0;
            const float score =
                lane < keys ? product(query, p.cache + (int64_t)at * 2 * kv + seen, p.size, p.packs) : -INFINITY;
            const float larger = fmaxf(most, warp_max(score)), down = expf(most - larger);
            const float weight = lane < keys ? expf(score - larger) : 0;
            total = total * down + warp_sum(weight);
            most = larger;
#pragma unroll
            for (int k = 0; k < COLUMNS; k++) sum[k] *= down;
            for (int l = 0; l < keys; l++) {
                const float w = __shfl_sync(0xffffffffu, weight, l);
                const T *value = p.cache + ((int64_t)__shfl_sync(0xffffffffu, at, l) * 2 + 1) * kv + seen;
#pragma unroll
                for (int k = 0; k < COLUMNS; k++) {
                    if (k * 32 + lane < p.size) sum[k] = fmaf(w, widen(value[k * 32 + lane]), sum[k]);
                }
            }
        }
    }
    const float inverse = own >= 0 ? 1 / total : 0;
#pragma unroll
    for (int k = 0; k < COLUMNS; k++) {
        if (k * 32 + lane < p.size) y[k * 32 + lane] = narrow<T>(sum[k] * inverse);
    }
}

static bool aligned(const void *p) { return (uintptr_t)p % 16 == 0; }

template <typename T> static void forward(const nn_call *c) {
    paths_call<T> p = {};
    p.q = (const T *)c->input[PATH_Q].data;
    p.cache = (T *)c->output[1].data;
    p.y = (T *)c->output[0].data;
    p.paths = (const int32_t *)c->input[PATH_PATHS].data;
    p.positions = (const int32_t *)c->input[PATH_POSITIONS].data;
    p.rows = c->output[0].rows;
    p.length = c->input[PATH_PATHS].cols;
    p.d = c->output[0].cols;
    p.kv = c->output[1].cols / 2;
    p.heads = NN_ATTR(path_attention, c)->heads;
    p.kv_heads = NN_ATTR(path_attention, c)->kv_heads;
    p.size = (int)(p.d / p.heads);
    p.scale = (float)(1 / sqrt((double)p.size));
    p.packs = p.size % pack<T>::N == 0 && aligned(p.cache);
    if (p.rows > 0) path_kernel<T><<<(unsigned)parts(p.rows * p.heads, WARPS), 32 * WARPS, 0, stream_of(c)>>>(p);
}

static adamod_status path_attention_prepare(const nn_call *c, void **prepared) {
    const int64_t size = c->output[0].cols / NN_ATTR(path_attention, c)->heads;
    *prepared = NULL;
    if (size <= LARGEST_HEAD) return ADAMOD_OK;
    return nn_cuda_fail(ADAMOD_ERROR_RANGE, "cuda: attention of heads with %lld columns, expected at most %d",
                        (long long)size, LARGEST_HEAD);
}

extern "C" const nn_kernels nn_cuda_path_attention = {.forward = NN_BY_TYPE(output[0], forward),
                                                      .prepare = path_attention_prepare};
