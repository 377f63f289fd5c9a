/* The gradients of attention: dq for a tile of queries, dk and dv for a tile of keys. */
#include "nn/backend/cuda/hopper/long_attention_parts.cuh"

/* Keys of a block, for dq: with more columns accumulators leave room for fewer. */
template <int D> constexpr int dq_keys() { return D == 64 ? 128 : 64; }

/* ---- dq ---- */

template <int D> struct dq_memory {
    enum { KEYS = dq_keys<D>() };
    bf16 q[ROWS * D], dy[ROWS * D];
    struct {
        bf16 k[KEYS * D], v[KEYS * D];
    } stage[STAGES];
    warp_rows out[CONSUMER_WARPS];
    row_sums<D> sums;
    uint64_t q_barriers[2], barriers[2 * STAGES];
};

template <int D>
__device__ static inline void dq_produce(const work &w, dq_memory<D> &s, const pipeline<1> &q_pipe,
                                         const pipeline<STAGES> &pipe) {
    constexpr int KEYS = dq_memory<D>::KEYS;
    pipeline_state<1> q_at;
    pipeline_state<STAGES> at;
#pragma unroll 1
    for (tile_walk walk(w, w.a.heads); walk.more(); walk.advance()) {
        const tile t = walk.take();
        const int head = walk.head(), k_col = head / w.a.group * D;
        const int blocks = (keys_seen(w.a.causal, t) + KEYS - 1) / KEYS;
        if (!t.there) return;
        if (blocks == 0) continue;
        const uint32_t barrier = q_pipe.producer_acquire(q_at, 2 * ROWS * D * sizeof(bf16));
        load_rows<D>(smem_address(s.q), &w.q, head * D, t.q0 + t.first, ROWS, barrier);
        load_rows<D>(smem_address(s.dy), &w.dy, head * D, t.q0 + t.first, ROWS, barrier);
        q_at.advance();
#pragma unroll 1
        for (int b = blocks - 1; b >= 0; b--) {
            const uint32_t full = pipe.producer_acquire(at, 2 * KEYS * D * sizeof(bf16));
            load_rows<D>(smem_address(s.stage[at.stage].k), &w.k, k_col, t.k0 + b * KEYS, KEYS, full);
            load_rows<D>(smem_address(s.stage[at.stage].v), &w.v, k_col, t.k0 + b * KEYS, KEYS, full);
            at.advance();
        }
    }
}

/* Gradients of scores, in x: p (dp - dot), with p = 2^(scale x - log). n[half]: keys that are seen. */
template <int KEYS>
__device__ static inline void score_gradients(float (&x)[KEYS / 8][4], const float (&dp)[KEYS / 8][4],
                                              const stat (&of)[2], float scale, bool mask, const int (&n)[2]) {
#pragma unroll
    for (int i = 0; i < KEYS / 2; i++) {
        const int half = i / 2 % 2;
        float &to = x[i / 4][i % 4];
        to = exp2_fast(fmaf(to, scale, -of[half].log)) * (dp[i / 4][i % 4] - of[half].dot);
    }
    if (!mask) return;
#pragma unroll
    for (int i = 0; i < KEYS / 2; i++)
        if (col_of(i / 4) + i % 2 >= n[i / 2 % 2]) x[i / 4][i % 4] = 0;
}

/* What a consumer thread keeps from tile to tile. */
template <int D> struct dq_consumer {
    enum { KEYS = dq_memory<D>::KEYS };
    const work &w;
    dq_memory<D> &s;
    const pipeline<1> &q_pipe;
    const pipeline<STAGES> &pipe;
    const int warpgroup;
    const turns order;
    pipeline_state<1> q_at;
    pipeline_state<STAGES> at, done;

    __device__ dq_consumer(const work &w, dq_memory<D> &s, const pipeline<1> &q_pipe, const pipeline<STAGES> &pipe)
        : w(w), s(s), q_pipe(q_pipe), pipe(pipe), warpgroup(this_warpgroup()), order(warpgroup) {}

    /* Of the thread's two rows. */
    __device__ void load_stats(const tile &t, int head, stat (&of)[2]) const {
#pragma unroll
        for (int half = 0; half < 2; half++) {
            const bool there = t.there && t.first + row_of(half) < t.nq;
            of[half] = {INFINITY, 0};
            if (there) of[half] = w.stat[head * stat_rows(w.a.q_rows) + t.q0 + t.first + row_of(half)];
        }
    }

    /* Adds the products of all blocks of keys to dq: that of block b + 1 while the scores of block b are computed. */
    __device__ void add_blocks(const tile &t, int blocks, const stat (&of)[2], float (&dq)[D / 8][4]) {
        const uint32_t offset = (uint32_t)(warpgroup * 64 * SW128_ROW);
        const uint32_t q = smem_address(s.q) + offset, dy = smem_address(s.dy) + offset;
        const int limit[2] = {limit_of(w.a.causal, t, t.first + row_of(0)),
                              limit_of(w.a.causal, t, t.first + row_of(1))};
        const int all_see = limit_of(w.a.causal, t, t.first + warpgroup * 64);
        float x[KEYS / 8][4], dp[KEYS / 8][4];
        uint32_t ds[KEYS / 16][4];
#pragma unroll 1
        for (int b = blocks - 1; b >= -1; b--) {
            if (b >= 0) pipe.consumer_wait(at);
            order.begin();
            fence_all(x, dp, dq, ds);
            wgmma_fence();
            if (b < blocks - 1) {
                add_product<D, KEYS>(dq, ds, smem_address(s.stage[done.stage].k));
                wgmma_commit_group();
            }
            if (b >= 0) {
                scores<D, ROWS, KEYS>(x, q, smem_address(s.stage[at.stage].k));
                scores<D, ROWS, KEYS>(dp, dy, smem_address(s.stage[at.stage].v));
                wgmma_commit_group();
            }
            order.pass();
            wgmma_wait_group<0>();
            fence_all(x, dp, dq);
            if (b < blocks - 1) pipe.consumer_release(done.stage), done.advance();
            if (b < 0) break;
            if (b == 0) q_pipe.consumer_release(0), q_at.advance();
            at.advance();
            const int n[2] = {limit[0] - b * KEYS, limit[1] - b * KEYS};
            score_gradients<KEYS>(x, dp, of, w.a.scale * LOG2E, (b + 1) * KEYS > all_see, n);
            narrow_all<KEYS>(ds, x);
        }
    }

    __device__ void store(const tile &t, const tile_walk &walk, int head, float (&dq)[D / 8][4]) {
        finish<D>(dq, w.a.scale, t.there ? t.nq - t.first : 0);
        if (w.a.sums) store_row_sums<D>(w.a.sums + walk.number() * w.sums_stride + head * D, dq, s.sums);
        if (!t.there) return;
        const int row = t.first + (int)threadIdx.x / 32 * 16;
        store_result<D>(w.a.dq + (t.q0 + row) * w.a.q_stride + head * D, w.a.q_stride, t.nq - row, dq,
                        s.out[threadIdx.x / 32]);
    }

    __device__ void run() {
#pragma unroll 1
        for (tile_walk walk(w, w.a.heads); walk.more(); walk.advance()) {
            const tile t = walk.take();
            const int head = walk.head();
            const int blocks = t.there ? (keys_seen(w.a.causal, t) + KEYS - 1) / KEYS : 0;
            if (!t.there && !w.a.sums) break;
            stat of[2];
            load_stats(t, head, of);
            float dq[D / 8][4] = {};
            if (blocks > 0) q_pipe.consumer_wait(q_at);
            add_blocks(t, blocks, of, dq);
            store(t, walk, head, dq);
        }
        order.end();
    }
};

template <int D> __global__ static void __launch_bounds__(BLOCK, 1) dq_kernel(const __grid_constant__ work w) {
    dq_memory<D> &s = *reinterpret_cast<dq_memory<D> *>(smem + (smem_begin() - smem_address(smem)));
    const pipeline<1> q_pipe(smem_address(s.q_barriers));
    const pipeline<STAGES> pipe(smem_address(s.barriers));
    if (threadIdx.x == 0) {
        q_pipe.init(CONSUMER_WARPS);
        pipe.init(CONSUMER_WARPS);
        fence_mbarrier_init();
    }
    __syncthreads();
    grid_dependency_sync();
    if (is_producer()) {
        if (threadIdx.x == CONSUMERS * WARPGROUP) dq_produce<D>(w, s, q_pipe, pipe);
    } else {
        dq_consumer<D>(w, s, q_pipe, pipe).run();
    }
}

/* ---- dk and dv ---- */

/* Scores are computed with a row for each key. So weights and gradients of scores are, without a transposition, operand
 * A of dv = p^T dy and dk = ds^T q. */
template <int D> struct dkv_memory {
    bf16 k[ROWS * D], v[ROWS * D];
    struct {
        bf16 q[QUERIES * D], dy[QUERIES * D];
    } stage[STAGES];
    stat stats[STAGES][STATS_ROOM];
    warp_rows out[CONSUMER_WARPS];
    row_sums<D> sums;
    uint64_t k_barriers[2], barriers[2 * STAGES];
};

template <int D>
__device__ static inline void dkv_produce(const work &w, dkv_memory<D> &s, const pipeline<1> &k_pipe,
                                          const pipeline<STAGES> &pipe) {
    const int heads = w.a.heads / w.a.group;
    pipeline_state<1> k_at;
    pipeline_state<STAGES> at;
#pragma unroll 1
    for (tile_walk walk(w, heads); walk.more(); walk.advance()) {
        const tile t = walk.take();
        const int head = walk.head();
        const query_blocks blocks(w.a.causal, t);
        if (!t.there) return;
        if (blocks.begin >= blocks.end) continue;
        const uint32_t barrier = k_pipe.producer_acquire(k_at, 2 * ROWS * D * sizeof(bf16));
        load_rows<D>(smem_address(s.k), &w.k, head * D, t.k0 + t.first, ROWS, barrier);
        load_rows<D>(smem_address(s.v), &w.v, head * D, t.k0 + t.first, ROWS, barrier);
        k_at.advance();
#pragma unroll 1
        for (int q_head = head * w.a.group; q_head < (head + 1) * w.a.group; q_head++) {
#pragma unroll 1
            for (int b = blocks.begin; b < blocks.end; b++) {
                const int row = t.q0 + b * QUERIES;
                const uint32_t full = pipe.producer_acquire(at, 2 * QUERIES * D * sizeof(bf16) + STATS * sizeof(stat));
                load_rows<D>(smem_address(s.stage[at.stage].q), &w.q, q_head * D, row, QUERIES, full);
                load_rows<D>(smem_address(s.stage[at.stage].dy), &w.dy, q_head * D, row, QUERIES, full);
                tma_load(smem_address(s.stats[at.stage]), &w.stats, {row / 2 * 4, q_head, 0, 0}, full);
                at.advance();
            }
        }
    }
}

/* Replaces scores by the weights p, and gradients of weights by those of scores, ds; both have a row for each key.
 * mask: element (key, query) counts if from[half] <= query < n, counted from the block's first query. */
__device__ static inline void key_gradients(float (&x)[QUERIES / 8][4], float (&dp)[QUERIES / 8][4], const stat *stats,
                                            float scale, bool mask, const int (&from)[2], int n) {
#pragma unroll
    for (int j = 0; j < QUERIES / 8; j++) {
        const stat two[2] = {stats[col_of(j)], stats[col_of(j) + 1]};
#pragma unroll
        for (int i = 0; i < 4; i++) {
            x[j][i] = exp2_fast(fmaf(x[j][i], scale, -two[i % 2].log));
            dp[j][i] = x[j][i] * (dp[j][i] - two[i % 2].dot);
        }
    }
    if (!mask) return;
#pragma unroll
    for (int i = 0; i < QUERIES / 2; i++) {
        const int query = col_of(i / 4) + i % 2;
        if (query < from[i / 2 % 2] || query >= n) x[i / 4][i % 4] = dp[i / 4][i % 4] = 0;
    }
}

/* Loads a warp's 16 rows of a tile as operand A of wgmma. */
template <int D> __device__ static inline void load_factor(uint32_t (&to)[D / 16][4], const bf16 *from) {
    const int lane = (int)threadIdx.x % 32, row = (int)threadIdx.x / 32 * 16 + lane % 16;
#pragma unroll
    for (int k = 0; k < D / 16; k++)
        load_matrices(to[k], from + k / 4 * ROWS * SW128_COLS + swizzled(row, k % 4 * 2 + lane / 16));
}

/* What a consumer thread keeps from tile to tile. */
template <int D> struct dkv_consumer {
    /* With 128 columns there are not enough registers for either. */
    static constexpr bool REGISTERS = D == 64; /* k and v are in registers, which spares reads of shared memory */
    static constexpr bool LATER = D == 64;     /* a turn's products are computed with the next turn's scores */
    const work &w;
    dkv_memory<D> &s;
    const pipeline<1> &k_pipe;
    const pipeline<STAGES> &pipe;
    const int warpgroup;
    const turns order;
    pipeline_state<1> k_at;
    pipeline_state<STAGES> at, done;

    struct factors {
        uint32_t k[REGISTERS ? D / 16 : 1][4], v[REGISTERS ? D / 16 : 1][4];
    };
    /* The two sums, and the factors of the products that are added to them. */
    struct tile_sums {
        float dk[D / 8][4], dv[D / 8][4];
        uint32_t p[QUERIES / 16][4], ds[QUERIES / 16][4];
    };

    __device__ dkv_consumer(const work &w, dkv_memory<D> &s, const pipeline<1> &k_pipe, const pipeline<STAGES> &pipe)
        : w(w), s(s), k_pipe(k_pipe), pipe(pipe), warpgroup(this_warpgroup()), order(warpgroup) {}

    __device__ void load_factors(factors &f) {
        if constexpr (REGISTERS) {
            load_factor<D>(f.k, s.k);
            load_factor<D>(f.v, s.v);
            __syncwarp();
            k_pipe.consumer_release(0);
        }
    }

    __device__ void add_products(tile_sums &sums, int stage) {
        add_product<D, QUERIES>(sums.dv, sums.p, smem_address(s.stage[stage].dy));
        add_product<D, QUERIES>(sums.dk, sums.ds, smem_address(s.stage[stage].q));
        wgmma_commit_group();
    }

    __device__ void start_scores(const factors &f, float (&x)[QUERIES / 8][4], float (&dp)[QUERIES / 8][4]) {
        const uint32_t q = smem_address(s.stage[at.stage].q), dy = smem_address(s.stage[at.stage].dy);
        const uint32_t offset = (uint32_t)(warpgroup * 64 * SW128_ROW);
        if constexpr (REGISTERS) {
            scores<D, QUERIES>(x, f.k, q);
            scores<D, QUERIES>(dp, f.v, dy);
        } else {
            scores<D, ROWS, QUERIES>(x, smem_address(s.k) + offset, q);
            scores<D, ROWS, QUERIES>(dp, smem_address(s.v) + offset, dy);
        }
        wgmma_commit_group();
    }

    /* Adds the products of n blocks of queries: all that see the tile, head after head of its group. */
    __device__ void add_blocks(const tile &t, const query_blocks &blocks, int n, const factors &f, tile_sums &sums) {
        /* The first query that sees the key of each of the thread's rows, and the one that sees all of the warpgroup's. */
        const int shift = w.a.causal ? t.nk - t.nq : 1 << 30;
        const int from[2] = {t.first + row_of(0) - shift, t.first + row_of(1) - shift};
        const int see_all = t.first + warpgroup * 64 + 63 - shift;
        float x[QUERIES / 8][4], dp[QUERIES / 8][4];
        int b = blocks.begin;
#pragma unroll 1
        for (int turn = 0; turn < n + LATER; turn++) {
            if (turn < n) pipe.consumer_wait(at);
            order.begin();
            fence_all(x, dp, sums.dk, sums.dv, sums.p, sums.ds);
            wgmma_fence();
            if (LATER && turn > 0) add_products(sums, done.stage);
            if (turn < n) start_scores(f, x, dp);
            order.pass();
            wgmma_wait_group<0>();
            fence_all(x, dp, sums.dk, sums.dv);
            if (LATER && turn > 0) pipe.consumer_release(done.stage), done.advance();
            if (turn == n) break;
            const int first = b * QUERIES, begin[2] = {from[0] - first, from[1] - first};
            key_gradients(x, dp, s.stats[at.stage] + (t.q0 + first) % 2, w.a.scale * LOG2E,
                          first < see_all || first + QUERIES > t.nq, begin, t.nq - first);
            narrow_all<QUERIES>(sums.p, x);
            narrow_all<QUERIES>(sums.ds, dp);
            if (!LATER) {
                fence_all(sums.dk, sums.dv, sums.p, sums.ds);
                wgmma_fence();
                add_products(sums, at.stage);
                wgmma_wait_group<0>();
                fence_all(sums.dk, sums.dv);
                pipe.consumer_release(at.stage);
            }
            at.advance();
            if (++b == blocks.end) b = blocks.begin;
        }
    }

    __device__ void store(const tile &t, const tile_walk &walk, int head, tile_sums &sums) {
        const int there = t.there ? t.nk - t.first : 0, row = t.first + (int)threadIdx.x / 32 * 16;
        finish<D>(sums.dk, w.a.scale, there);
        finish<D>(sums.dv, 1, there);
        if (w.a.sums) {
            float *const to = w.a.sums + walk.number() * w.sums_stride + w.a.cols + head * D;
            store_row_sums<D>(to, sums.dk, s.sums);
            store_row_sums<D>(to + w.a.k_cols, sums.dv, s.sums);
        }
        if (!t.there) return;
        bf16 *const to = w.a.dk + (t.k0 + row) * w.a.k_stride + head * D;
        store_result<D>(to, w.a.k_stride, t.nk - row, sums.dk, s.out[threadIdx.x / 32]);
        store_result<D>(to + w.a.k_cols, w.a.k_stride, t.nk - row, sums.dv, s.out[threadIdx.x / 32]);
    }

    __device__ void run() {
#pragma unroll 1
        for (tile_walk walk(w, w.a.heads / w.a.group); walk.more(); walk.advance()) {
            const tile t = walk.take();
            const int head = walk.head();
            if (!t.there && !w.a.sums) break;
            const query_blocks blocks(w.a.causal, t);
            const int a_head = t.there ? max(0, blocks.end - blocks.begin) : 0, n = a_head * w.a.group;
            tile_sums sums = {};
            factors f;
            if (n > 0) {
                k_pipe.consumer_wait(k_at);
                load_factors(f);
            }
            add_blocks(t, blocks, n, f, sums);
            if (n > 0) {
                if (!REGISTERS) k_pipe.consumer_release(0);
                k_at.advance();
            }
            store(t, walk, head, sums);
        }
        order.end();
    }
};

template <int D> __global__ static void __launch_bounds__(BLOCK, 1) dkv_kernel(const __grid_constant__ work w) {
    dkv_memory<D> &s = *reinterpret_cast<dkv_memory<D> *>(smem + (smem_begin() - smem_address(smem)));
    const pipeline<1> k_pipe(smem_address(s.k_barriers));
    const pipeline<STAGES> pipe(smem_address(s.barriers));
    if (threadIdx.x == 0) {
        k_pipe.init(CONSUMER_WARPS);
        pipe.init(CONSUMER_WARPS);
        fence_mbarrier_init();
    }
    __syncthreads();
    grid_dependency_sync();
    if (is_producer()) {
        if (threadIdx.x == CONSUMERS * WARPGROUP) dkv_produce<D>(w, s, k_pipe, pipe);
    } else {
        dkv_consumer<D>(w, s, k_pipe, pipe).run();
    }
}

/* ---- launches ---- */

template <int D> static void backward(const nn_call *c, const attention<bf16> &a) {
    tile *const q_tiles = (tile *)c->workspace, *const k_tiles = q_tiles + long_attention_parts(c);
    stat *const stats = (stat *)(k_tiles + long_attention_parts(c));
    const list_work lists = {a, q_tiles, k_tiles, long_attention_parts(c), stats};
    work w = {};
    w.a = a;
    w.n = lists.n;
    w.stat = stats;
    w.sums_stride = a.cols + 2 * a.k_cols;
    list_attention(c, lists);
    if (a.dq) {
        w.tiles = q_tiles;
        map_attention(w, ROWS, dq_memory<D>::KEYS);
        run_tiles<dq_memory<D>>(c, (const void *)dq_kernel<D>, w, a.heads);
    }
    if (a.dk) {
        w.tiles = k_tiles;
        map_attention(w, QUERIES, ROWS);
        if (!make_float_map(&w.stats, &stats->log, 2 * stat_rows(a.q_rows), a.heads, 2 * STATS))
            nn_cuda_launch_failed("attention", "no map of statistics");
        run_tiles<dkv_memory<D>>(c, (const void *)dkv_kernel<D>, w, a.heads / a.group);
    }
}

void long_attention_backward(const nn_call *c) {
    const attention<bf16> a = attention_of<bf16>(c);
    (a.size == 64 ? backward<64> : backward<128>)(c, a);
}
