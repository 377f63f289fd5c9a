/* Attention over packed sequences, as ops/attention.c says. On a Hopper GPU, long ones are hopper/long_attention.cu's.
 *
 * A block takes TILE queries of a head of a sequence and goes over its keys, TILE at a time: scores, weights, sums of
 * values, without the scores ever leaving the block. Backward computes the weights again from what forward saved. Most
 * sequences have one tile of queries and one of keys, and a block of their own for each head, which backward then needs
 * once for all three gradients. For longer sequences, backward has blocks that own a tile of keys and go over the
 * queries (for dk or dv) and blocks that own a tile of queries and go over the keys (for dq), so that every number is
 * written once, by one block, whose sums have one order. Where several heads see the same keys, backward treats every
 * sequence as a long one, and a block that owns keys goes over the queries of all those heads.
 *
 * The grid depends on the capacity alone, and each block finds its work in the ranges. Blocks are, in this order:
 * those that share out the tiles of long sequences, each those of one head; one for each head of each sequence (with
 * nothing to do if it is a long one); and those that write zeros into rows in no range.
 *
 * If the sums over rows of gradients are asked for, each block of the first two kinds leaves its part of them: there is
 * a row [dq | dk | dv] for each sequence, and one for each group of blocks of the first kind that has all heads. */
#include "nn/backend/cuda/attention_call.cuh"
#include "nn/backend/cuda/attention_tile.cuh"
#include "nn/backend/cuda/hopper/long_attention.h"

enum {
    LONG_BLOCKS = 264, /* two for each multiprocessor of an H100 or H200 */
    LARGEST_HEAD = 128,
};

/* Blocks that a multiprocessor has shared memory for; registers must allow as many. */
template <typename T> constexpr int resident() { return sizeof(T) == 2 ? 5 : 2; }

static int long_blocks(const nn_call *c, bool backward) {
    const int heads = NN_ATTR(attention, c)->heads;
    const int64_t queries = c->input[ATTENTION_Q].rows, most = backward ? max(queries, keys_of(c)) : queries;
    const bool all = backward && group_of(c) > 1; /* sequences are long ones */
    if ((most <= TILE && !all) || c->input[ATTENTION_Q_RANGES].rows == 0) return 0;
    return heads < LONG_BLOCKS ? LONG_BLOCKS / heads * heads : heads;
}

/* Rows of sums. */
static int64_t parts_of(const nn_call *c) {
    return c->input[ATTENTION_Q_RANGES].rows + long_blocks(c, true) / NN_ATTR(attention, c)->heads;
}

/* ---- sequences ---- */

/* A head of a sequence. */
struct item {
    int q0, nq, k0, nk, head;
};

template <typename T> __device__ static inline item item_of(const attention<T> &a, int sequence, int head) {
    const int2 q = a.q_ranges[sequence], k = a.k_ranges[sequence];
    const item x = {q.x, q.y - q.x, k.x, k.y - k.x, head};
    return x;
}

/* Keys that query j sees. */
template <typename T> __device__ static inline int seen(const attention<T> &a, const item &x, int j) {
    const int n = a.causal ? x.nk - x.nq + j + 1 : x.nk;
    return max(0, min(n, x.nk));
}

/* Rows of a tile of x that begins at query or key `first`. */
template <typename T, typename X>
__device__ static inline rows<X> q_rows(const attention<T> &a, const item &x, int first, X *base, int64_t stride) {
    const rows<X> r = {base + (x.q0 + first) * stride + (int64_t)x.head * a.size, stride, min(TILE, x.nq - first),
                       a.size, a.wide};
    return r;
}

template <typename T, typename X>
__device__ static inline rows<X> k_rows(const attention<T> &a, const item &x, int first, X *base) {
    const rows<X> r = {base + (x.k0 + first) * a.k_stride + (int64_t)(x.head / a.group) * a.size, a.k_stride,
                       min(TILE, x.nk - first), a.size, a.wide};
    return r;
}

/* The sum of n over the threads before this one; *total is the sum over all. */
__device__ static inline int sum_before(int n, int *total) {
    __shared__ int sums[THREADS / 32];
    int sum = n;
    for (int step = 1; step < 32; step *= 2) {
        const int other = __shfl_up_sync(0xffffffffu, sum, step);
        if (lane() >= step) sum += other;
    }
    if (lane() == 31) sums[warp()] = sum;
    __syncthreads();
    *total = 0;
    for (int w = 0; w < THREADS / 32; w++) {
        if (w == warp()) sum += *total;
        *total += sums[w];
    }
    return sum - n;
}

/* This block's work(item, tile): a short sequence with tile ALONE, or its share of the tiles of long sequences. A long
 * sequence has tiles(item) of them, a short one 0. Each thread counts those of a part of the sequences, and later finds
 * the tiles that are there. */
enum { ALONE = -1 };
template <typename T, typename Tiles, typename Work>
__device__ static inline void each_tile(const attention<T> &a, Tiles tiles, Work work) {
    __shared__ int sequence, tile;
    const int block = (int)blockIdx.x - a.longs;
    const int share = (int)parts(a.sequences, THREADS), begin = min((int)threadIdx.x * share, a.sequences);
    int n = 0, before = 0, total = 0;
    if (block < 0) {
#pragma unroll 1
        for (int i = begin; i < min(begin + share, a.sequences); i++) n += tiles(item_of(a, i, 0));
        before = sum_before(n, &total);
    }
    const int64_t end = block < 0 ? (int64_t)total * a.heads : 1;
#pragma unroll 1
    for (int64_t next = block < 0 ? blockIdx.x : 0; next < end; next += a.longs) {
        int head = block % a.heads;
        if (block < 0) {
            int rest = (int)(next / a.heads) - before, i = begin;
            head = (int)(next % a.heads);
            if (0 <= rest && rest < n) {
#pragma unroll 1
                for (int here; rest >= (here = tiles(item_of(a, i, 0))); i++) rest -= here;
                sequence = i;
                tile = rest;
            }
            __syncthreads();
        }
        const item x = item_of(a, block < 0 ? sequence : block / a.heads, head);
        if (block >= 0 && tiles(x) > 0) return;
        work(x, block < 0 ? tile : ALONE);
        if (block >= 0) return;
        __syncthreads(); /* the block's memory is free again */
    }
}

/* Zeros in those of the rows first .. first + THREADS - 1 that are in no range. */
template <typename T>
__device__ static inline void clear_outside(const attention<T> &a, const int2 *ranges, int64_t first, int64_t n, T *to,
                                            int64_t stride, int64_t cols) {
    __shared__ bool inside[THREADS];
    inside[threadIdx.x] = false;
    __syncthreads();
    for (int i = threadIdx.x; i < a.sequences; i += THREADS) {
        const int64_t begin = max((int64_t)ranges[i].x, first), end = min((int64_t)ranges[i].y, first + THREADS);
        for (int64_t row = begin; row < end; row++) inside[row - first] = true;
    }
    __syncthreads();
    pack<T> zeros;
    for (int e = 0; e < pack<T>::N; e++) zeros.x[e] = narrow<T>(0);
    const int step = a.wide ? pack<T>::N : 1;
    for (int row = warp(); row < THREADS && first + row < n; row += THREADS / 32) {
        if (inside[row]) continue;
        T *x = to + (first + row) * stride;
        for (int64_t col = lane() * step; col < cols; col += 32 * step) {
            if (a.wide) store_pack(x + col, zeros);
            else x[col] = zeros.x[0];
        }
    }
    __syncthreads();
}

/* ---- weights ---- */

/* The thread's weights that dropout keeps, for queries at q and keys at k: bit 4 j + i is for acc[j][i]. A Philox
 * block has the four weights of a query that this lane and its neighbour hold: the even lane draws for its upper
 * row, the odd one for the lower, and they exchange. */
template <typename T>
__device__ static inline unsigned kept(const attention<T> &a, uint64_t key, const item &x, int q, int k) {
    if (!a.dropout.threshold) return 0xff;
    const bool odd = lane() % 2;
    const uint64_t first = (uint64_t)((int64_t)x.q0 * a.heads + x.head) << 30;
    const uint64_t row = (uint64_t)(q + row_at(odd)) * (uint64_t)((x.nk + 15) / 16 * 4);
    unsigned mine = 0;
#pragma unroll
    for (int j = 0; j < 2; j++) {
        const nn_random4 r = nn_philox(key, first + row + (uint64_t)((k + col_at<TILE>(j)) / 4));
#pragma unroll
        for (int i = 0; i < 4; i++) mine |= (r.x[i] >= a.dropout.threshold) << (4 * j + i);
    }
    const unsigned other = __shfl_xor_sync(0xffffffffu, mine, 1);
    /* The even lane needs the first two of each four bits of both rows, the odd lane the last two. */
    return odd ? (other >> 2 & 0x33) | (mine & 0xcc) : (mine & 0x33) | (other & 0x33) << 2;
}

/* ---- forward ---- */

template <typename T, int D> struct forward_memory {
    tile<T, D> q, k, v;
    tile<T, TILE> p;
    float part[2][TILE]; /* of a row, each half's */
};

/* A query's scores so far, of the thread's two rows: the largest, and the sum of exp(score - largest) over the thread's
 * columns. */
struct softmax {
    float most[2], sum[2];
};

/* The tile's scores become weights, not yet divided by their sum, in s.p; acc is rescaled to their largest. */
template <typename T, int D>
__device__ static inline void forward_weights(forward_memory<T, D> &s, const attention<T> &a, const item &x, int q,
                                              int k, unsigned keep, softmax &m, float (&acc)[D / 16][4]) {
    float w[2][4] = {};
    add_scores(w, s.q, s.k);
#pragma unroll
    for (int half = 0; half < 2; half++) {
        const int n = seen(a, x, q + row_at(half)) - k;
        float most = -INFINITY;
#pragma unroll
        for (int i = 0; i < 4; i++) {
            float &score = w[i / 2][2 * half + i % 2];
            score = col_at<TILE>(i / 2) + i % 2 < n ? score * a.scale : -INFINITY;
            most = fmaxf(most, score);
        }
        most = quad_max(most);
        if (lane() % 4 == 0) s.part[warp() % 2][row_at(half)] = most;
    }
    __syncthreads();
#pragma unroll
    for (int half = 0; half < 2; half++) {
        const int row = row_at(half);
        const float most = fmaxf(m.most[half], fmaxf(s.part[0][row], s.part[1][row]));
        const float base = most == -INFINITY ? 0 : most, rescale = expf(m.most[half] - base);
        m.most[half] = most;
        m.sum[half] *= rescale;
#pragma unroll
        for (int j = 0; j < D / 16; j++) {
            acc[j][2 * half] *= rescale;
            acc[j][2 * half + 1] *= rescale;
        }
#pragma unroll
        for (int j = 0; j < 2; j++) {
            const int i = 2 * half;
            const float p0 = expf(w[j][i] - base), p1 = expf(w[j][i + 1] - base);
            m.sum[half] += p0 + p1;
            store_pair(&s.p.x[row][col_at<TILE>(j)], keep >> (4 * j + i) & 1 ? p0 : 0,
                       keep >> (4 * j + i + 1) & 1 ? p1 : 0);
        }
    }
}

/* Divides by the sums, and saves them. */
template <typename T, int D>
__device__ static inline void forward_finish(forward_memory<T, D> &s, const attention<T> &a, const item &x, int q,
                                             const softmax &m, float (&acc)[D / 16][4]) {
#pragma unroll
    for (int half = 0; half < 2; half++) {
        const float sum = quad_sum(m.sum[half]);
        if (lane() % 4 == 0) s.part[warp() % 2][row_at(half)] = sum;
    }
    __syncthreads();
#pragma unroll
    for (int half = 0; half < 2; half++) {
        const int row = row_at(half);
        const bool any = seen(a, x, q + row) > 0;
        const float inverse = any ? 1 / (s.part[0][row] + s.part[1][row]) : 0;
        if (warp() % 2 == 0 && lane() % 4 == 0 && q + row < x.nq) {
            float *saved = a.saved + 2 * ((int64_t)(x.q0 + q + row) * a.heads + x.head);
            store_pair(saved, any ? m.most[half] : 0, inverse);
        }
        const float factor = inverse * a.dropout.scale;
#pragma unroll
        for (int j = 0; j < D / 16; j++) {
            acc[j][2 * half] *= factor;
            acc[j][2 * half + 1] *= factor;
        }
    }
}

template <typename T, int D>
__device__ static inline void forward_tile(forward_memory<T, D> &s, const attention<T> &a, uint64_t key, const item &x,
                                           int q) {
    float acc[D / 16][4] = {};
    softmax m = {{-INFINITY, -INFINITY}, {0, 0}};
    const int keys = seen(a, x, min(q + TILE, x.nq) - 1);
    load_tile(s.q, q_rows(a, x, q, a.q, a.q_stride));
    copies_commit();
#pragma unroll 1
    for (int k = 0; k < keys; k += TILE) {
        if (k > 0) __syncthreads(); /* the keys before are done with */
        load_tile(s.k, k_rows(a, x, k, a.k));
        copies_commit();
        load_tile(s.v, k_rows(a, x, k, a.v));
        copies_commit();
        const unsigned keep = kept(a, key, x, q, k); /* while they are on their way */
        copies_wait<1>();
        __syncthreads();
        forward_weights(s, a, x, q, k, keep, m, acc);
        copies_wait<0>();
        __syncthreads();
        add_product<false>(acc, s.p, s.v);
    }
    forward_finish(s, a, x, q, m, acc);
    stage(s.k, acc);
    copies_wait<0>(); /* of queries that see nothing */
    __syncthreads();
    store_tile(s.k, q_rows(a, x, q, a.y, a.cols));
}

template <typename T, int D>
__global__ static __launch_bounds__(THREADS, resident<T>()) void forward_kernel(attention<T> a) {
    extern __shared__ __align__(16) unsigned char memory[];
    forward_memory<T, D> &s = *reinterpret_cast<forward_memory<T, D> *>(memory);
    const uint64_t key = drop_key(a.dropout);
    const int64_t clearing = (int64_t)blockIdx.x - a.longs - (int64_t)a.sequences * a.heads;
    if (clearing >= 0) {
        clear_outside(a, a.q_ranges, clearing * THREADS, a.q_rows, a.y, a.cols, a.cols);
        return;
    }
    each_tile(
        a, [](const item &x) { return x.nq > TILE ? (int)parts(x.nq, TILE) : 0; },
        [&](const item &x, int tile) {
            if (x.nq > 0) forward_tile(s, a, key, x, max(tile, 0) * TILE);
        });
}

/* ---- forward of single queries ---- */

/* Decoding has one query in each sequence, so nothing is multiplied with tiles. A block has a head of a sequence; `lanes`
 * threads have a key, each a pack of its columns, and the groups of such threads go over the keys side by side. */
template <typename T> struct decode_memory {
    float most[THREADS], sum[THREADS]; /* of each group */
    alignas(16) float acc[THREADS][pack<T>::N];
};

/* A group's result over its keys so far: the largest score, the sum of weights, and its columns' sums of values. */
template <typename T> struct decode_state { float most, sum, acc[pack<T>::N]; };

template <typename T>
__device__ static inline decode_state<T> decode_keys(const attention<T> &a, const item &x, int j, int lanes) {
    constexpr int N = pack<T>::N, AHEAD = 4;
    const int group = (int)threadIdx.x / lanes, groups = THREADS / lanes, col = (int)threadIdx.x % lanes * N;
    const int n = seen(a, x, j);
    const rows<const T> query = {a.q + (x.q0 + j) * a.q_stride + (int64_t)x.head * a.size, 0, 1, a.size, true};
    rows<const T> keys = {a.k + x.k0 * a.k_stride + (int64_t)(x.head / a.group) * a.size, a.k_stride, n, a.size, true};
    rows<const T> values = keys;
    values.x += a.v - a.k;
    const pack<T> q = pack_at(query, 0, col);
    decode_state<T> r = {-INFINITY, 0, {}};
    for (int first = group; first - group < n; first += groups * AHEAD) { /* as often for every group */
        pack<T> k[AHEAD], v[AHEAD];
        float score[AHEAD], most = r.most;
#pragma unroll
        for (int u = 0; u < AHEAD; u++) k[u] = pack_at(keys, first + u * groups, col);
#pragma unroll
        for (int u = 0; u < AHEAD; u++) v[u] = pack_at(values, first + u * groups, col);
#pragma unroll
        for (int u = 0; u < AHEAD; u++) {
            float dot = 0;
            for (int e = 0; e < N; e++) dot = fmaf(widen(q.x[e]), widen(k[u].x[e]), dot);
            for (int step = lanes / 2; step > 0; step /= 2) dot += __shfl_xor_sync(0xffffffffu, dot, step);
            score[u] = first + u * groups < n ? dot * a.scale : -INFINITY;
            most = fmaxf(most, score[u]);
        }
        const float base = most == -INFINITY ? 0 : most, rescale = expf(r.most - base);
        r.most = most;
        r.sum *= rescale;
        for (int e = 0; e < N; e++) r.acc[e] *= rescale;
#pragma unroll
        for (int u = 0; u < AHEAD; u++) {
            const float p = expf(score[u] - base);
            r.sum += p;
            for (int e = 0; e < N; e++) r.acc[e] = fmaf(p, widen(v[u].x[e]), r.acc[e]);
        }
    }
    return r;
}

/* The groups' results become one, in their order. */
template <typename T>
__device__ static inline void decode_finish(decode_memory<T> &s, const attention<T> &a, const item &x, int j, int lanes,
                                            const decode_state<T> &r) {
    constexpr int N = pack<T>::N;
    const int group = (int)threadIdx.x / lanes, groups = THREADS / lanes, col = (int)threadIdx.x;
    if ((int)threadIdx.x % lanes == 0) {
        s.most[group] = r.most;
        s.sum[group] = r.sum;
    }
    for (int e = 0; e < N; e++) s.acc[threadIdx.x][e] = r.acc[e];
    __syncthreads();
    float most = -INFINITY, sum = 0, y = 0;
    for (int g = 0; g < groups; g++) most = fmaxf(most, s.most[g]);
    const float base = most == -INFINITY ? 0 : most;
    for (int g = 0; g < groups; g++) {
        const float weight = expf(s.most[g] - base);
        sum = fmaf(weight, s.sum[g], sum);
        if (col < a.size) y = fmaf(weight, s.acc[g * lanes + col / N][col % N], y);
    }
    const bool any = seen(a, x, j) > 0;
    const int64_t row = x.q0 + j;
    if (col < a.size) a.y[row * a.cols + (int64_t)x.head * a.size + col] = narrow<T>(any ? y / sum : 0);
    if (col == 0) store_pair(a.saved + 2 * (row * a.heads + x.head), any ? most : 0, any ? 1 / sum : 0);
    __syncthreads();
}

template <typename T> __global__ static __launch_bounds__(THREADS) void decode_kernel(attention<T> a, int lanes) {
    __shared__ decode_memory<T> s;
    const int block = (int)blockIdx.x, items = a.sequences * a.heads;
    if (block >= items) {
        clear_outside(a, a.q_ranges, (int64_t)(block - items) * THREADS, a.q_rows, a.y, a.cols, a.cols);
        return;
    }
    const item x = item_of(a, block / a.heads, block % a.heads);
    for (int j = 0; j < x.nq; j++) decode_finish(s, a, x, j, lanes, decode_keys(a, x, j, lanes));
}

/* ---- backward ---- */

/* With y = sum_l m_l p_l v_l:
 *   dv_l += m_l p_l dy,   ds_l = scale p_l (m_l dy . v_l - dy . y),   dq = sum_l ds_l k_l,   dk_l += ds_l q */
template <typename T, int D> struct backward_memory {
    tile<T, D> q, k, v, dy;
    tile<T, TILE> p, ds;             /* m p, and ds */
    float most[TILE], inverse[TILE]; /* of each query: what was saved */
    float dy_y[2][TILE];             /* dy . y = sum_l m_l p_l dy . v_l, in two parts */
    float sums[3][D];                /* over rows, of the block's dv, dk and dq */
};

/* The gradient that a block computes; ALL: all three, of a sequence with one tile of queries and keys. */
enum { DV, DK, DQ, ALL };

/* Loads dy and computes dy . y. A sequence of one tile does not need the latter: it has the whole sum over keys. */
template <typename T, int D>
__device__ static inline void load_dy(backward_memory<T, D> &s, const rows<const T> &dy, const rows<const T> &y) {
    constexpr int N = pack<T>::N;
    const int row = (int)threadIdx.x / 4; /* four neighbours have a row */
    float sum = 0;
#pragma unroll
    for (int i = 0; i < D / N / 4; i++) {
        const int col = (4 * i + (int)threadIdx.x % 4) * N;
        const pack<T> g = pack_at(dy, row, col), z = pack_at(y, row, col);
        store_pack(&s.dy.x[row][col], g);
        for (int e = 0; e < N; e++) sum = fmaf(widen(g.x[e]), widen(z.x[e]), sum);
    }
    sum = quad_sum(sum);
    if (threadIdx.x % 4) return;
    s.dy_y[0][row] = sum;
    s.dy_y[1][row] = 0;
}

template <typename T, int D>
__device__ static inline void load_queries(backward_memory<T, D> &s, const attention<T> &a, const item &x, int first,
                                           int what) {
    const rows<const T> dy = q_rows(a, x, first, a.dy, a.cols);
    load_tile(s.q, q_rows(a, x, first, a.q, a.q_stride));
    if (what == ALL) load_tile(s.dy, dy);
    copies_commit();
    if (what != ALL) load_dy(s, dy, q_rows(a, x, first, (const T *)a.y, a.cols));
    const int row = (int)threadIdx.x;
    if (row >= TILE) return;
    float2 saved = {0, 0};
    if (row < dy.n) {
        saved = *reinterpret_cast<const float2 *>(a.saved + 2 * ((int64_t)(x.q0 + first + row) * a.heads + x.head));
    }
    s.most[row] = saved.x;
    s.inverse[row] = saved.y;
}

template <typename T, int D>
__device__ static inline void load_keys(backward_memory<T, D> &s, const attention<T> &a, const item &x, int first) {
    load_tile(s.k, k_rows(a, x, first, a.k));
    load_tile(s.v, k_rows(a, x, first, a.v));
    copies_commit();
}

/* Waits for the tiles, then computes s.p and s.ds; dv needs only s.p. */
template <typename T, int D>
__device__ static inline void backward_weights(backward_memory<T, D> &s, const attention<T> &a, uint64_t key,
                                               const item &x, int q, int k, int what) {
    const unsigned keep = kept(a, key, x, q, k);
    copies_wait<0>();
    __syncthreads();
    float w[2][4] = {}, g[2][4] = {};
    add_scores(w, s.q, s.k);
    if (what != DV) add_scores(g, s.dy, s.v);
#pragma unroll
    for (int half = 0; half < 2; half++) { /* w becomes the weights p, g their gradients m_l dy . v_l */
        const int row = row_at(half), n = seen(a, x, q + row) - k;
        const float most = s.most[row], inverse = s.inverse[row];
        float sum = 0;
#pragma unroll
        for (int j = 0; j < 2; j++) {
            const int col = col_at<TILE>(j), i = 2 * half;
            float factor[2];
#pragma unroll
            for (int e = 0; e < 2; e++) {
                float &weight = w[j][i + e];
                factor[e] = keep >> (4 * j + i + e) & 1 ? a.dropout.scale : 0;
                weight = col + e < n ? expf(weight * a.scale - most) * inverse : 0;
                g[j][i + e] *= factor[e];
                sum = fmaf(weight, g[j][i + e], sum);
            }
            store_pair(&s.p.x[row][col], factor[0] * w[j][i], factor[1] * w[j][i + 1]);
        }
        sum = quad_sum(sum);
        if (what == ALL && lane() % 4 == 0) s.dy_y[warp() % 2][row] = sum;
    }
    if (what == ALL) __syncthreads();
#pragma unroll
    for (int half = 0; half < 2; half++) {
        const int row = row_at(half), i = 2 * half;
        const float dy_y = s.dy_y[0][row] + s.dy_y[1][row];
#pragma unroll
        for (int j = 0; j < 2; j++) {
            store_pair(&s.ds.x[row][col_at<TILE>(j)], a.scale * w[j][i] * (g[j][i] - dy_y),
                       a.scale * w[j][i + 1] * (g[j][i + 1] - dy_y));
        }
    }
    __syncthreads();
}

/* The tiles' part of a gradient. */
template <typename T, int D>
__device__ static inline void add_gradient(const backward_memory<T, D> &s, int what, float (&acc)[D / 16][4]) {
    if (what == DV) add_product<true>(acc, s.p, s.dy);
    else if (what == DK) add_product<true>(acc, s.ds, s.q);
    else add_product<false>(acc, s.ds, s.k);
}

/* Writes a gradient of the queries or keys from `first` on. It is staged in a tile that is no longer read: dv in s.v,
 * dk in s.dy, dq in s.q. */
template <typename T, int D>
__device__ static inline void store_gradient(backward_memory<T, D> &s, const attention<T> &a, const item &x, int first,
                                             int what, float (&acc)[D / 16][4]) {
    tile<T, D> &staged = what == DV ? s.v : what == DK ? s.dy : s.q;
    const rows<T> to =
        what == DQ ? q_rows(a, x, first, a.dq, a.q_stride) : k_rows(a, x, first, what == DV ? a.dv : a.dk);
    if (what == DQ ? a.add_q : a.add_k) add_rows<T, D>(acc, to);
    stage(staged, acc);
    __syncthreads();
    store_tile(staged, to);
    if (a.sums) add_column_sums(s.sums[what], staged); /* rows beyond the sequence are 0 */
}

/* `what` of the tile that begins at query or key `first`; of keys, from all heads that see them, x's being the first. */
template <typename T, int D>
__device__ static inline void backward_tile(backward_memory<T, D> &s, const attention<T> &a, uint64_t key, item x,
                                            int what, int first) {
    const bool of_keys = what == DV || what == DK;
    int q = what == DQ ? first : 0, k = of_keys ? first : 0, visits = 1;
    if (of_keys) {
        if (a.causal) q = max(0, first - (x.nk - x.nq)) / TILE * TILE; /* the queries before see none of the keys */
        visits = (int)parts(max(0, x.nq - q), TILE) * a.group;
    } else if (what == DQ) {
        visits = (int)parts(seen(a, x, min(first + TILE, x.nq) - 1), TILE);
    }
    const int begin = q;
    float acc[D / 16][4] = {};
#pragma unroll 1
    for (int i = 0; i < visits; i++) {
        if (i == 0 || !of_keys) load_keys(s, a, x, k);
        if (i == 0 || of_keys) load_queries(s, a, x, q, what);
        backward_weights(s, a, key, x, q, k, what);
        if (what == ALL) break;
        add_gradient(s, what, acc);
        __syncthreads();
        if (!of_keys) {
            k += TILE;
        } else if ((q += TILE) >= x.nq && i + 1 < visits) {
            q = begin;
            x.head++;
        }
    }
    if (what != ALL) {
        store_gradient(s, a, x, first, what, acc);
        return;
    }
#pragma unroll 1
    for (int gradient = a.dk ? DV : DQ; gradient <= (a.dq ? DQ : DK); gradient++) {
#pragma unroll
        for (int i = 0; i < D / 4; i++) acc[i / 4][i % 4] = 0;
        add_gradient(s, gradient, acc);
        store_gradient(s, a, x, 0, gradient, acc);
    }
}

template <typename T, int D> __device__ static inline void clear_sums(backward_memory<T, D> &s) {
    for (int i = (int)threadIdx.x; i < 3 * D; i += THREADS) s.sums[i / D][i % D] = 0;
    __syncthreads();
}

/* The block's row of sums, and in it the columns of its head. */
template <typename T, int D>
__device__ static inline void store_sums(const backward_memory<T, D> &s, const attention<T> &a) {
    const int block = (int)blockIdx.x - a.longs, index = block < 0 ? (int)blockIdx.x : block;
    const int64_t row = index / a.heads + (block < 0 ? a.sequences : 0);
    const int head = index % a.heads;
    float *to = a.sums + row * (a.cols + 2 * a.k_cols);
    const int64_t of_keys = a.cols + (int64_t)(head / a.group) * a.size;
    const int64_t at[3] = {of_keys + a.k_cols, of_keys, (int64_t)head * a.size}; /* of DV, DK and DQ */
    __syncthreads();
    for (int i = (int)threadIdx.x; i < 3 * D; i += THREADS) {
        if (i % D < a.size && (i / D == DQ || head % a.group == 0)) to[at[i / D] + i % D] = s.sums[i / D][i % D];
    }
}

template <typename T, int D>
__global__ static __launch_bounds__(THREADS, resident<T>()) void backward_kernel(attention<T> a) {
    extern __shared__ __align__(16) unsigned char memory[];
    backward_memory<T, D> &s = *reinterpret_cast<backward_memory<T, D> *>(memory);
    const uint64_t key = drop_key(a.dropout);
    const int64_t clearing = (int64_t)blockIdx.x - a.longs - (int64_t)a.sequences * a.heads;
    if (clearing >= 0) {
        const int64_t first = clearing * THREADS;
        if (a.dq && !a.add_q) clear_outside(a, a.q_ranges, first, a.q_rows, a.dq, a.q_stride, a.cols);
        if (a.dk && !a.add_k) clear_outside(a, a.k_ranges, first, a.k_rows, a.dk, a.k_stride, 2 * a.k_cols);
        return;
    }
    if (a.sums) clear_sums(s);
    each_tile(
        a,
        [&](const item &x) {
            const bool is_long = x.nq > TILE || x.nk > TILE || a.group > 1;
            return is_long ? (int)(parts(x.nq, TILE) + 2 * parts(x.nk, TILE)) : 0;
        },
        [&](const item &x, int tile) {
            const int of_keys = tile - (int)parts(x.nq, TILE); /* tiles of queries come first */
            const int what = tile == ALONE ? ALL : of_keys < 0 ? DQ : of_keys % 2 ? DK : DV;
            const int first = what == ALL ? 0 : (what == DQ ? tile : of_keys / 2) * TILE;
            if (what == ALL  ? x.nq > 0 || x.nk > 0
                : what == DQ ? a.dq != NULL
                             : a.dk != NULL && x.head % a.group == 0) {
                backward_tile(s, a, key, x, what, first);
            }
        });
    if (a.sums) store_sums(s, a);
}

/* ---- launches ---- */

/* Lets a kernel use more shared memory than it gets by default. */
template <typename Kernel> static adamod_status allow(Kernel kernel, size_t bytes) {
    cudaError_t e = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)bytes);
    if (e == cudaSuccess) {
        e = cudaFuncSetAttribute(kernel, cudaFuncAttributePreferredSharedMemoryCarveout,
                                 cudaSharedmemCarveoutMaxShared);
    }
    return nn_cuda_failed(e, "attention: shared memory");
}

template <typename T, int D> struct launcher {
    static adamod_status allow_memory() {
        const adamod_status status = allow(forward_kernel<T, D>, sizeof(forward_memory<T, D>));
        return status ? status : allow(backward_kernel<T, D>, sizeof(backward_memory<T, D>));
    }

    static void run(const attention<T> &a, cudaStream_t stream) {
        const bool backward = a.dy != NULL;
        const int64_t most = backward ? max(a.q_rows, a.k_rows) : a.q_rows;
        const unsigned blocks = (unsigned)(a.longs + (int64_t)a.sequences * a.heads + parts(most, THREADS));
        if (blocks == 0) return;
        if (backward) backward_kernel<T, D><<<blocks, THREADS, sizeof(backward_memory<T, D>), stream>>>(a);
        else forward_kernel<T, D><<<blocks, THREADS, sizeof(forward_memory<T, D>), stream>>>(a);
    }
};

template <typename T> static void run_tiles(const attention<T> &a, cudaStream_t stream) {
    if (a.size <= 32) launcher<T, 32>::run(a, stream);
    else if (a.size <= 64) launcher<T, 64>::run(a, stream);
    else launcher<T, LARGEST_HEAD>::run(a, stream);
}

template <typename T> static void run_decode(const attention<T> &a, cudaStream_t stream) {
    const unsigned blocks = (unsigned)((int64_t)a.sequences * a.heads + parts(a.q_rows, THREADS));
    int lanes = 1;
    while (lanes * pack<T>::N < a.size) lanes *= 2;
    if (blocks > 0) decode_kernel<T><<<blocks, THREADS, 0, stream>>>(a, lanes);
}

template <typename T> static attention<T> call_of(const nn_call *c) {
    attention<T> a = attention_of<T>(c);
    a.longs = long_blocks(c, a.dy != NULL);
    return a;
}

template <typename T> static void run_forward(const nn_call *c) {
    const attention<T> a = call_of<T>(c);
    if (long_attention_fits(c)) {
        long_attention_forward(c);
        return;
    }
    /* As many sequences as queries: they have one query each. */
    if (a.sequences == a.q_rows && a.wide && !a.dropout.threshold) run_decode(a, stream_of(c));
    else run_tiles(a, stream_of(c));
}

template <typename T> static void run_backward(const nn_call *c) {
    const attention<T> a = call_of<T>(c);
    const bool hopper = long_attention_fits(c);
    if (hopper) long_attention_backward(c);
    else run_tiles(a, stream_of(c));
    if (!wants_sums(c)) return;
    const int64_t q_cols = c->input[ATTENTION_Q].cols, kv_cols = c->input[ATTENTION_KV].cols;
    const int64_t n = hopper ? long_attention_parts(c) : parts_of(c);
    const int64_t stride = a.cols + 2 * a.k_cols;
    const nn_sum q = {a.sums, stride, n, q_cols, c->grad->row_sums[ATTENTION_Q], c->grad->accumulate_sums};
    const nn_sum kv = {a.sums + a.cols, stride, n, kv_cols, c->grad->row_sums[ATTENTION_KV], c->grad->accumulate_sums};
    nn_cuda_sum(c, &q);
    nn_cuda_sum(c, &kv);
}

template <typename T> static adamod_status allow_memory(int64_t size) {
    if (size <= 32) return launcher<T, 32>::allow_memory();
    return size <= 64 ? launcher<T, 64>::allow_memory() : launcher<T, LARGEST_HEAD>::allow_memory();
}

static adamod_status attention_prepare(const nn_call *c, void **prepared) {
    const int64_t size = c->output[0].cols / NN_ATTR(attention, c)->heads;
    *prepared = NULL;
    if (size > LARGEST_HEAD) {
        return nn_cuda_fail(ADAMOD_ERROR_RANGE, "cuda: attention: heads of %lld columns, expected at most %d",
                            (long long)size, (int)LARGEST_HEAD);
    }
    return c->output[0].type == NN_BF16 ? allow_memory<bf16>(size) : allow_memory<float>(size);
}

static size_t attention_partials(const nn_call *c) {
    const int64_t cols = c->output[0].cols;
    const int64_t n = long_attention_fits(c) ? long_attention_parts(c) : parts_of(c);
    return wants_sums(c) ? (size_t)(n * (cols + 2 * cols / group_of(c))) : 0;
}

static size_t attention_workspace(const nn_call *c) { return long_attention_fits(c) ? long_attention_workspace(c) : 0; }

extern "C" {
const nn_kernels nn_cuda_attention = {.forward = NN_BY_TYPE(output[0], run_forward),
                                      .backward = NN_BY_TYPE(output[0], run_backward),
                                      .workspace = attention_workspace,
                                      .prepare = attention_prepare,
                                      .partials = attention_partials,
                                      .row_sums = 1u << ATTENTION_Q | 1u << ATTENTION_KV};
}
