/* Norm and rotation of the heads of queries and keys: see ops/query_key.c for the formulas.
 *
 * A group of `lanes` neighbouring lanes has a head; a lane has pairs, CHUNKS times N of them side by side, and keeps them in
 * registers. N is 8 where half a head is a multiple of 8, else 1. The heads of v are copied. Cosines and sines of all rows are
 * computed first: heads share them. In backward a block takes many heads and leaves its part of the gains' gradients. */
#include "nn/backend/cuda/cuda.h"

enum {
    THREADS = 256,
    LARGEST_HEAD = 128,
    MOST_PARTS = 8 * 132 /* blocks of backward: eight for each multiprocessor of an H100 or H200 */
};

enum { QUERY_KEY_X, QUERY_KEY_POSITIONS, QUERY_KEY_Q_GAIN, QUERY_KEY_K_GAIN }; /* as in ops/query_key.h */

/* One call. size is a head's; half of it is rounded up, as heads that are not rotated may have an odd size. */
template <typename T> struct query_key {
    const T *x, *q_gain, *k_gain; /* gains NULL: there is no norm */
    const float2 *turns;          /* cosine and sine of each row and pair; NULL: there is no rotation */
    int64_t rows, cols;
    int heads, kv_heads, size, half, lanes;
    float eps;
};

/* ---- angles ---- */

/* In double precision: positions of thousands leave no digits of f32 behind the point. */
__global__ static void __launch_bounds__(THREADS)
    turns_kernel(const int32_t *positions, int64_t rows, int half, double log2_base, float2 *turns) {
    const int64_t at = (int64_t)blockIdx.x * THREADS + threadIdx.x, row = at / half;
    if (row >= rows) return;
    const double frequency = exp2(-(double)(at % half) / half * log2_base);
    double sine, cosine;
    sincos(positions[row] * frequency, &sine, &cosine);
    turns[at] = make_float2((float)cosine, (float)sine);
}

/* ---- heads ---- */

/* A lane's numbers of a head: first[c][n] and second[c][n] are a pair. */
template <int N, int CHUNKS> struct pairs { float first[CHUNKS][N], second[CHUNKS][N]; };

/* The first pair of a lane's chunk c; it is not there if it is half or more. */
template <int N> __device__ static inline int pair_at(int lanes, int c) {
    return N * (c * lanes + (int)threadIdx.x % lanes);
}

/* Zeros where there is nothing. */
template <typename T, int N, int CHUNKS>
__device__ static inline pairs<N, CHUNKS> load_pairs(const query_key<T> &p, const T *head, bool there) {
    pairs<N, CHUNKS> r = {};
#pragma unroll
    for (int c = 0; c < CHUNKS; c++) {
        const int i = pair_at<N>(p.lanes, c);
        if (!there || i >= p.half) continue;
        load_floats<N>(head + i, r.first[c]);
        if (p.half + i < p.size) load_floats<N>(head + p.half + i, r.second[c]);
    }
    return r;
}

template <typename T, int N, int CHUNKS>
__device__ static inline void put_pairs(const query_key<T> &p, const target<T> &to, int64_t head,
                                        const pairs<N, CHUNKS> &r) {
#pragma unroll
    for (int c = 0; c < CHUNKS; c++) {
        const int i = pair_at<N>(p.lanes, c);
        if (i >= p.half) continue;
        put<N>(to, head + i, r.first[c]);
        if (p.half + i < p.size) put<N>(to, head + p.half + i, r.second[c]);
    }
}

/* The sum of products over a head, for all its lanes; all lanes of the warp call it. */
template <int N, int CHUNKS>
__device__ static inline float head_dot(int lanes, const pairs<N, CHUNKS> &a, const pairs<N, CHUNKS> &b) {
    float sum = 0;
#pragma unroll
    for (int c = 0; c < CHUNKS; c++) {
        for (int n = 0; n < N; n++) {
            sum = fmaf(a.first[c][n], b.first[c][n], sum);
            sum = fmaf(a.second[c][n], b.second[c][n], sum);
        }
    }
    for (int step = lanes / 2; step > 0; step /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, step);
    return sum;
}

/* sign -1: back. */
template <typename T, int N, int CHUNKS>
__device__ static inline void rotate(const query_key<T> &p, int64_t row, float sign, pairs<N, CHUNKS> &r) {
#pragma unroll
    for (int c = 0; c < CHUNKS; c++) {
        const int i = pair_at<N>(p.lanes, c);
        if (i >= p.half) continue;
        for (int n = 0; n < N; n++) {
            const float2 turn = p.turns[row * p.half + i + n];
            const float a = r.first[c][n], b = r.second[c][n], sine = sign * turn.y;
            r.first[c][n] = a * turn.x - b * sine;
            r.second[c][n] = b * turn.x + a * sine;
        }
    }
}

/* A head's row and place, by its number among all heads of q, k and v. */
struct place {
    int64_t row, at; /* at: of its first number */
    int head;
    bool there;
};

template <typename T> __device__ static inline place place_of(const query_key<T> &p, int64_t number) {
    const int all = p.heads + 2 * p.kv_heads;
    const int64_t row = number / all;
    const int head = (int)(number % all);
    return {row, row * p.cols + (int64_t)head * p.size, head, row < p.rows};
}

template <typename T> __device__ static inline bool is_value(const query_key<T> &p, const place &at) {
    return at.head >= p.heads + p.kv_heads;
}

/* NULL: the head has no norm. */
template <typename T> __device__ static inline const T *gain_of(const query_key<T> &p, const place &at) {
    return is_value(p, at) ? NULL : at.head < p.heads ? p.q_gain : p.k_gain;
}

template <typename T, int N, int CHUNKS>
__device__ static inline float scale_of(const query_key<T> &p, const pairs<N, CHUNKS> &x) {
    return 1 / sqrtf(head_dot(p.lanes, x, x) / (float)p.size + p.eps);
}

template <typename T, int N, int CHUNKS>
__global__ static void __launch_bounds__(THREADS) forward_kernel(query_key<T> p, T *y) {
    const place at = place_of(p, ((int64_t)blockIdx.x * THREADS + threadIdx.x) / p.lanes);
    pairs<N, CHUNKS> x = load_pairs<T, N, CHUNKS>(p, p.x + at.at, at.there);
    const float scale = scale_of(p, x);
    if (!at.there) return;
    const T *const gain = gain_of(p, at);
    if (gain) {
        const pairs<N, CHUNKS> g = load_pairs<T, N, CHUNKS>(p, gain, true);
#pragma unroll
        for (int c = 0; c < CHUNKS; c++) {
            for (int n = 0; n < N; n++) {
                x.first[c][n] *= scale * g.first[c][n];
                x.second[c][n] *= scale * g.second[c][n];
            }
        }
    }
    if (p.turns && !is_value(p, at)) rotate(p, at.row, 1, x);
    put_pairs(p, target<T>{y, false}, at.at, x);
}

/* d becomes the gradient of x; returns what the head adds to the gain's. All lanes of the warp call it. */
template <typename T, int N, int CHUNKS>
__device__ static inline pairs<N, CHUNKS> norm_gradient(const query_key<T> &p, const T *gain, const pairs<N, CHUNKS> &x,
                                                        pairs<N, CHUNKS> &d) {
    pairs<N, CHUNKS> dgain = {};
    const float scale = scale_of(p, x);
    const pairs<N, CHUNKS> g = load_pairs<T, N, CHUNKS>(p, gain, gain != NULL);
    if (gain) {
#pragma unroll
        for (int c = 0; c < CHUNKS; c++) {
            for (int n = 0; n < N; n++) {
                dgain.first[c][n] = d.first[c][n] * (x.first[c][n] * scale);
                dgain.second[c][n] = d.second[c][n] * (x.second[c][n] * scale);
                d.first[c][n] *= g.first[c][n];
                d.second[c][n] *= g.second[c][n];
            }
        }
    }
    const float shift = head_dot(p.lanes, d, x) / (float)p.size * scale * scale;
#pragma unroll
    for (int c = 0; c < CHUNKS && gain; c++) {
        for (int n = 0; n < N; n++) {
            d.first[c][n] = (d.first[c][n] - x.first[c][n] * shift) * scale;
            d.second[c][n] = (d.second[c][n] - x.second[c][n] * shift) * scale;
        }
    }
    return dgain;
}

template <int N, int CHUNKS> __device__ static inline void add_pairs(pairs<N, CHUNKS> &to, const pairs<N, CHUNKS> &x) {
#pragma unroll
    for (int c = 0; c < CHUNKS; c++) {
        for (int n = 0; n < N; n++) {
            to.first[c][n] += x.first[c][n];
            to.second[c][n] += x.second[c][n];
        }
    }
}

/* Adds a block's sums of a gain's gradient up over its groups, in their order, into to [size]. */
template <typename T, int N, int CHUNKS>
__device__ static inline void store_sums(const query_key<T> &p, const pairs<N, CHUNKS> &sums, float *to) {
    __shared__ float shared[THREADS / 32][LARGEST_HEAD];
    __syncthreads();
#pragma unroll
    for (int c = 0; c < CHUNKS; c++) {
        const int i = pair_at<N>(p.lanes, c);
        for (int n = 0; n < N; n++) {
            float first = sums.first[c][n], second = sums.second[c][n];
            for (int step = p.lanes; step < 32; step *= 2) {
                first += __shfl_xor_sync(0xffffffffu, first, step);
                second += __shfl_xor_sync(0xffffffffu, second, step);
            }
            if (threadIdx.x % 32 >= p.lanes || i >= p.half) continue;
            shared[threadIdx.x / 32][i + n] = first;
            if (p.half + i < p.size) shared[threadIdx.x / 32][p.half + i + n] = second;
        }
    }
    __syncthreads();
    for (int j = (int)threadIdx.x; j < p.size; j += THREADS) {
        float sum = 0;
        for (int w = 0; w < THREADS / 32; w++) sum += shared[w][j];
        to[j] = sum;
    }
}

/* dx may have x's memory: a head is read before it is written. sums: [blocks, 2 size], or NULL. */
template <typename T, int N, int CHUNKS>
__global__ static void __launch_bounds__(THREADS)
    backward_kernel(query_key<T> p, const T *dy, target<T> dx, float *sums) {
    const int64_t heads = p.rows * (p.heads + 2 * p.kv_heads), groups = THREADS / p.lanes;
    pairs<N, CHUNKS> dq = {}, dk = {};
    for (int64_t first = blockIdx.x * groups; first < heads; first += gridDim.x * groups) {
        const place at = place_of(p, first + threadIdx.x / p.lanes);
        const pairs<N, CHUNKS> x = load_pairs<T, N, CHUNKS>(p, p.x + at.at, at.there);
        pairs<N, CHUNKS> d = load_pairs<T, N, CHUNKS>(p, dy + at.at, at.there);
        if (at.there && p.turns && !is_value(p, at)) rotate(p, at.row, -1, d);
        const pairs<N, CHUNKS> dgain = norm_gradient(p, at.there ? gain_of(p, at) : NULL, x, d);
        if (at.head < p.heads) add_pairs(dq, dgain);
        else add_pairs(dk, dgain);
        if (at.there && dx.to) put_pairs(p, dx, at.at, d);
    }
    if (!sums) return;
    store_sums(p, dq, sums + blockIdx.x * 2 * p.size);
    store_sums(p, dk, sums + blockIdx.x * 2 * p.size + p.size);
}

/* ---- calls ---- */

static int size_of(const nn_call *c) {
    const nn_query_key_attributes *a = NN_ATTR(query_key, c);
    return (int)(c->output[0].cols / (a->heads + 2 * a->kv_heads));
}

static bool in_chunks(const nn_call *c) { return size_of(c) % 16 == 0; }

static int lanes_of(const nn_call *c) {
    int lanes = 1;
    while (in_chunks(c) && 16 * lanes < size_of(c)) lanes *= 2;
    return in_chunks(c) ? lanes : 32;
}

static int half_of(const nn_call *c) { return (size_of(c) + 1) / 2; }

static int64_t groups_of(const nn_call *c) {
    const nn_query_key_attributes *a = NN_ATTR(query_key, c);
    return parts(c->output[0].rows * (a->heads + 2 * a->kv_heads), THREADS / lanes_of(c));
}

/* Blocks of backward: a number that follows from the shape alone. */
static int64_t parts_of(const nn_call *c) {
    const int64_t n = groups_of(c);
    return n > 0 ? parts(n, parts(n, MOST_PARTS)) : 1;
}

static bool turns(const nn_call *c) { return NN_ATTR(query_key, c)->base > 0; }

static bool has_gains(const nn_call *c) { return c->grad->input[QUERY_KEY_Q_GAIN] || c->grad->input[QUERY_KEY_K_GAIN]; }

template <typename T> static query_key<T> query_key_of(const nn_call *c) {
    const nn_query_key_attributes *a = NN_ATTR(query_key, c);
    return {(const T *)c->input[QUERY_KEY_X].data,
            (const T *)c->input[QUERY_KEY_Q_GAIN].data,
            (const T *)c->input[QUERY_KEY_K_GAIN].data,
            turns(c) ? (const float2 *)c->workspace : NULL,
            c->output[0].rows,
            c->output[0].cols,
            a->heads,
            a->kv_heads,
            size_of(c),
            half_of(c),
            lanes_of(c),
            (float)a->eps};
}

static void find_turns(const nn_call *c) {
    const int64_t rows = c->output[0].rows, n = rows * half_of(c);
    if (!turns(c)) return;
    turns_kernel<<<(unsigned)parts(n, THREADS), THREADS, 0, stream_of(c)>>>(
        (const int32_t *)c->input[QUERY_KEY_POSITIONS].data, rows, half_of(c), log2(NN_ATTR(query_key, c)->base),
        (float2 *)c->workspace);
}

template <typename T> static void forward(const nn_call *c) {
    if (c->output[0].rows == 0) return;
    find_turns(c);
    (in_chunks(c) ? forward_kernel<T, 8, 1>
                  : forward_kernel<T, 1, 2>)<<<(unsigned)groups_of(c), THREADS, 0, stream_of(c)>>>(
        query_key_of<T>(c), (T *)c->output[0].data);
}

template <typename T> static void backward(const nn_call *c) {
    const int64_t n = parts_of(c), size = size_of(c);
    float *sums = has_gains(c) ? c->grad->partials : NULL;
    if (c->output[0].rows > 0) find_turns(c);
    (in_chunks(c) ? backward_kernel<T, 8, 1> : backward_kernel<T, 1, 2>)<<<(unsigned)n, THREADS, 0, stream_of(c)>>>(
        query_key_of<T>(c), (const T *)c->grad->output[0], target_of<T>(c, QUERY_KEY_X), sums);
    for (int k = QUERY_KEY_Q_GAIN; sums && k <= QUERY_KEY_K_GAIN; k++) {
        const nn_sum gain = {
            sums + (k - QUERY_KEY_Q_GAIN) * size, 2 * size, n, size, c->grad->input[k], c->grad->accumulate[k]};
        nn_cuda_sum(c, &gain);
    }
}

static adamod_status query_key_prepare(const nn_call *c, void **prepared) {
    *prepared = NULL;
    if (size_of(c) <= LARGEST_HEAD) return ADAMOD_OK;
    return nn_cuda_fail(ADAMOD_ERROR_RANGE, "cuda: query_key: heads of %d columns, expected at most %d", size_of(c),
                        (int)LARGEST_HEAD);
}

static size_t query_key_workspace(const nn_call *c) {
    return turns(c) ? 2 * (size_t)(c->output[0].rows * half_of(c)) : 0;
}

static size_t query_key_partials(const nn_call *c) { return has_gains(c) ? (size_t)(parts_of(c) * 2 * size_of(c)) : 0; }

extern "C" const nn_kernels nn_cuda_query_key = {.forward = NN_BY_TYPE(output[0], forward),
                                                 .backward = NN_BY_TYPE(output[0], backward),
                                                 .workspace = query_key_workspace,
                                                 .prepare = query_key_prepare,
                                                 .partials = query_key_partials};
