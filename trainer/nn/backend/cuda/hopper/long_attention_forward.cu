/* y = softmax(q k^T) v, for a tile of queries. The scores of a block of keys are computed while the weights of the block before
 * are multiplied with its values. */
#include "nn/backend/cuda/hopper/long_attention_parts.cuh"

template <int D> struct forward_memory {
    enum { KEYS = 128, STAGES = D == 64 ? 4 : 2 }; /* with 128 columns there is no room for more */
    bf16 q[ROWS * D], k[STAGES][KEYS * D], v[STAGES][KEYS * D];
    warp_rows out[CONSUMER_WARPS];
    uint64_t q_barriers[2], k_barriers[2 * STAGES], v_barriers[2 * STAGES];
};

template <int D> using forward_pipeline = pipeline<forward_memory<D>::STAGES>;

template <int D>
__device__ static inline void forward_produce(const work &w, forward_memory<D> &s, const pipeline<1> &q_pipe,
                                              const forward_pipeline<D> &k_pipe, const forward_pipeline<D> &v_pipe) {
    constexpr int KEYS = forward_memory<D>::KEYS;
    pipeline_state<1> q_at;
    pipeline_state<forward_memory<D>::STAGES> at;
#pragma unroll 1
    for (tile_walk walk(w, w.a.heads); walk.more(); walk.advance()) {
        const tile t = walk.take();
        const int head = walk.head(), k_col = head / w.a.group * D;
        const int blocks = (keys_seen(w.a.causal, t) + KEYS - 1) / KEYS;
        if (!t.there) return;
        if (blocks == 0) continue;
        load_rows<D>(smem_address(s.q), &w.q, head * D, t.q0 + t.first, ROWS,
                     q_pipe.producer_acquire(q_at, ROWS * D * sizeof(bf16)));
        q_at.advance();
#pragma unroll 1
        for (int b = blocks - 1; b >= 0; b--) {
            load_rows<D>(smem_address(s.k[at.stage]), &w.k, k_col, t.k0 + b * KEYS, KEYS,
                         k_pipe.producer_acquire(at, KEYS * D * sizeof(bf16)));
            load_rows<D>(smem_address(s.v[at.stage]), &w.v, k_col, t.k0 + b * KEYS, KEYS,
                         v_pipe.producer_acquire(at, KEYS * D * sizeof(bf16)));
            at.advance();
        }
    }
}

/* The largest score and the sum of weights of the thread's two rows, so far. */
struct softmax {
    float most[2], sum[2];
};

/* Scores become weights, relative to the largest so far; rescale is what sums until now are to be multiplied by. mask: some
 * of the keys are not seen, n[half] of them are. */
template <int KEYS>
__device__ static inline void weigh(float (&x)[KEYS / 8][4], softmax &m, float (&rescale)[2], float scale, bool mask,
                                    const int (&n)[2]) {
    if (mask) {
#pragma unroll
        for (int i = 0; i < KEYS / 2; i++)
            if (col_of(i / 4) + i % 2 >= n[i / 2 % 2]) x[i / 4][i % 4] = -INFINITY;
    }
#pragma unroll
    for (int half = 0; half < 2; half++) {
        float most = m.most[half];
#pragma unroll
        for (int j = 0; j < KEYS / 8; j++) most = fmaxf(most, fmaxf(x[j][2 * half], x[j][2 * half + 1]));
        most = quad_max(most);
        const float base = most == -INFINITY ? 0 : most * scale;
        rescale[half] = exp2_fast(m.most[half] * scale - base);
        m.most[half] = most;
        float sum = 0;
#pragma unroll
        for (int j = 0; j < KEYS / 8; j++) {
#pragma unroll
            for (int i = 2 * half; i < 2 * half + 2; i++) {
                x[j][i] = exp2_fast(fmaf(x[j][i], scale, -base));
                sum += x[j][i];
            }
        }
        m.sum[half] = fmaf(m.sum[half], rescale[half], sum);
    }
}

template <int D>
__device__ static inline void store_forward(const work &w, const tile &t, int head, softmax &m, float (&y)[D / 8][4],
                                            warp_rows &out) {
    float factor[2];
#pragma unroll
    for (int half = 0; half < 2; half++) {
        const int row = t.first + row_of(half);
        const float sum = quad_sum(m.sum[half]);
        factor[half] = sum > 0 ? 1 / sum : 0;
        if (threadIdx.x % 4 == 0 && row < t.nq)
            *reinterpret_cast<float2 *>(w.a.saved + 2 * ((int64_t)(t.q0 + row) * w.a.heads + head)) =
                make_float2(sum > 0 ? m.most[half] * w.a.scale : 0, factor[half]);
    }
#pragma unroll
    for (int i = 0; i < D / 2; i++) y[i / 4][i % 4] *= factor[i / 2 % 2];
    const int row = t.first + (int)threadIdx.x / 32 * 16;
    store_result<D>(w.a.y + (t.q0 + row) * w.a.cols + head * D, w.a.cols, t.nq - row, y, out);
}

/* What a consumer thread keeps from tile to tile. */
template <int D> struct forward_consumer {
    enum { KEYS = forward_memory<D>::KEYS };
    const work &w;
    forward_memory<D> &s;
    const pipeline<1> &q_pipe;
    const forward_pipeline<D> &k_pipe, &v_pipe;
    const int warpgroup;
    const turns order;
    pipeline_state<1> q_at;
    pipeline_state<forward_memory<D>::STAGES> k_at, v_at;

    /* A tile's sums so far, and the weights of the block of keys whose values come next. */
    struct tile_sums {
        softmax m;
        float y[D / 8][4];
        uint32_t p[KEYS / 16][4];
    };

    __device__ forward_consumer(const work &w, forward_memory<D> &s, const pipeline<1> &q_pipe,
                                const forward_pipeline<D> &k_pipe, const forward_pipeline<D> &v_pipe)
        : w(w), s(s), q_pipe(q_pipe), k_pipe(k_pipe), v_pipe(v_pipe), warpgroup(this_warpgroup()), order(warpgroup) {}

    /* Computes the scores of a block of keys, and meanwhile adds the values of the block before it, if there is one. */
    __device__ void scores_and_values(bool first, float (&x)[KEYS / 8][4], tile_sums &sums) {
        k_pipe.consumer_wait(k_at);
        order.begin();
        fence_all(x, sums.p, sums.y);
        wgmma_fence();
        scores<D, ROWS, KEYS>(x, smem_address(s.q) + (uint32_t)(warpgroup * 64 * SW128_ROW),
                              smem_address(s.k[k_at.stage]));
        wgmma_commit_group();
        if (!first) {
            v_pipe.consumer_wait(v_at);
            add_product<D, KEYS>(sums.y, sums.p, smem_address(s.v[v_at.stage]));
            wgmma_commit_group();
            order.pass();
            wgmma_wait_group<1>();
        } else {
            order.pass();
            wgmma_wait_group<0>();
        }
        fence_all(x);
        k_pipe.consumer_release(k_at.stage);
        k_at.advance();
    }

    __device__ void add_blocks(const tile &t, int blocks, tile_sums &sums) {
        /* Keys that each of the thread's two rows sees, and the fewest that any row of the warpgroup sees. */
        const int limit[2] = {limit_of(w.a.causal, t, t.first + row_of(0)),
                              limit_of(w.a.causal, t, t.first + row_of(1))};
        const int all_see = limit_of(w.a.causal, t, t.first + warpgroup * 64);
        float x[KEYS / 8][4], rescale[2];
#pragma unroll 1
        for (int b = blocks - 1; b >= 0; b--) {
            const bool first = b == blocks - 1;
            const int n[2] = {limit[0] - b * KEYS, limit[1] - b * KEYS};
            scores_and_values(first, x, sums);
            if (b == 0) q_pipe.consumer_release(0), q_at.advance();
            weigh<KEYS>(x, sums.m, rescale, w.a.scale * LOG2E, (b + 1) * KEYS > all_see, n);
            wgmma_wait_group<0>();
            fence_all(sums.y, sums.p);
            if (!first) v_pipe.consumer_release(v_at.stage), v_at.advance();
#pragma unroll
            for (int j = 0; j < D / 2; j++) sums.y[j / 4][j % 4] *= rescale[j / 2 % 2];
            narrow_all<KEYS>(sums.p, x);
        }
    }

    __device__ void add_last_values(tile_sums &sums) {
        v_pipe.consumer_wait(v_at);
        fence_all(sums.p, sums.y);
        wgmma_fence();
        add_product<D, KEYS>(sums.y, sums.p, smem_address(s.v[v_at.stage]));
        wgmma_commit_group();
        wgmma_wait_group<0>();
        fence_all(sums.y);
        v_pipe.consumer_release(v_at.stage);
        v_at.advance();
    }

    __device__ void run() {
#pragma unroll 1
        for (tile_walk walk(w, w.a.heads); walk.more(); walk.advance()) {
            const tile t = walk.take();
            const int head = walk.head(), blocks = (keys_seen(w.a.causal, t) + KEYS - 1) / KEYS;
            if (!t.there) break;
            tile_sums sums = {{{-INFINITY, -INFINITY}, {0, 0}}};
            if (blocks > 0) {
                q_pipe.consumer_wait(q_at);
                add_blocks(t, blocks, sums);
                add_last_values(sums);
            }
            store_forward<D>(w, t, head, sums.m, sums.y, s.out[threadIdx.x / 32]);
        }
        order.end();
    }
};

template <int D> __global__ static void __launch_bounds__(BLOCK, 1) forward_kernel(const __grid_constant__ work w) {
    forward_memory<D> &s = *reinterpret_cast<forward_memory<D> *>(smem + (smem_begin() - smem_address(smem)));
    const pipeline<1> q_pipe(smem_address(s.q_barriers));
    const forward_pipeline<D> k_pipe(smem_address(s.k_barriers)), v_pipe(smem_address(s.v_barriers));
    if (threadIdx.x == 0) {
        q_pipe.init(CONSUMER_WARPS);
        k_pipe.init(CONSUMER_WARPS);
        v_pipe.init(CONSUMER_WARPS);
        fence_mbarrier_init();
    }
    __syncthreads();
    grid_dependency_sync();
    if (is_producer()) {
        if (threadIdx.x == CONSUMERS * WARPGROUP) forward_produce<D>(w, s, q_pipe, k_pipe, v_pipe);
    } else {
        forward_consumer<D>(w, s, q_pipe, k_pipe, v_pipe).run();
    }
}

/* ---- launches ---- */

template <int D> static void forward(const nn_call *c, const attention<bf16> &a) {
    list_work lists = {a, (tile *)c->workspace, NULL, long_attention_parts(c), NULL};
    work w = {};
    w.a = a;
    w.tiles = lists.q_tiles;
    w.n = lists.n;
    map_attention(w, ROWS, forward_memory<D>::KEYS);
    list_attention(c, lists);
    run_tiles<forward_memory<D>>(c, (const void *)forward_kernel<D>, w, a.heads);
}

void long_attention_forward(const nn_call *c) {
    const attention<bf16> a = attention_of<bf16>(c);
    (a.size == 64 ? forward<64> : forward<128>)(c, a);
}
