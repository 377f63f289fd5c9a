/* Muon's driver for matrices (rules/muon.c). Newton-Schulz steps are in bf16 with sums in f32, on tensor cores, as in
 * torch.optim.Muon; all else is in the type of computation.
 *
 * One launch finds the momentum and norms of all matrices. Then matrices come in batches for which the workspace has room:
 * a launch for each product of a batch, whatever the shapes. */
#include "kernels/cuda/collect.cuh"
#include "kernels/cuda/formulas.cuh"
#include "kernels/cuda/product.cuh"

enum { MOMENTUM = 1 }; /* the variant of matrices */

/* ---- batches ---- */

/* A matrix of the first dimension by all others. The workspace has X twice, since a product cannot overwrite its operand;
 * then the smaller of X X^T and X^T X, and the polynomial in it. */
struct muon_matrix {
    int64_t tensor, rows, cols;
    int64_t place; /* bytes from the workspace's beginning */
};

/* Tiles of a batch: of elements, of the lower half of a symmetric product, of a whole product. */
enum { CUT_ELEMENTS, CUT_HALF, CUT_WHOLE, CUTS };
enum { TILE = 4096, TILE_THREADS = 256 };

struct muon_batch {
    enum { MOST = 40 }; /* that fit in the parameters of a launch */
    muon_matrix all[MOST];
    uint32_t first[CUTS][MOST + 1]; /* tiles before each, and of all */
    int n;
    int launched; /* Newton-Schulz steps launched: at most these are taken */
};
static_assert(sizeof(muon_batch) + sizeof(view) < 4000, "a batch travels with a launch");

static __host__ __device__ inline int64_t padded(int64_t n, int64_t to) { return (n + to - 1) / to * to; }
static __host__ __device__ inline int64_t tiles_along(int64_t n) { return (n + PRODUCT_TILE - 1) / PRODUCT_TILE; }

/* Places of a matrix's parts. */
struct muon_parts {
    int64_t side, ld, gram_ld; /* the shorter side; elements from row to row */
    int64_t x[2], gram[2], end;

    __host__ __device__ explicit muon_parts(const muon_matrix &m) {
        side = m.rows < m.cols ? m.rows : m.cols;
        ld = padded(m.cols, 8);
        gram_ld = padded(side, 8);
        x[0] = m.place;
        x[1] = x[0] + padded(m.rows * ld * 2, 256);
        gram[0] = x[1] + padded(m.rows * ld * 2, 256);
        gram[1] = gram[0] + padded(side * gram_ld * 2, 256);
        end = gram[1] + padded(side * gram_ld * 2, 256);
    }
};

static __device__ __forceinline__ uint16_t *at_place(const view &v, int64_t place) {
    return (uint16_t *)((char *)v.workspace + place);
}

static bool is_matrix(const device_tensor *t) { return t->variant == MOMENTUM && t->count > 0; }

static muon_matrix matrix_of(const device_tensor *t, int64_t tensor, int64_t place) {
    return muon_matrix{tensor, t->first, t->count / t->first, place};
}

static int64_t workspace(const device_layout *l) {
    return batch_workspace(l, (int64_t)512 << 20, [](const device_tensor *t) {
        return is_matrix(t) ? muon_parts(matrix_of(t, 0, 0)).end : 0;
    });
}

/* Deep sums first, so that short ones end last. */
static int64_t depth_of(const muon_matrix &m) { return m.rows > m.cols ? m.rows : m.cols; }

static void add_sorted(muon_batch *b, const muon_matrix &m) {
    int i = b->n++;
    for (; i > 0 && depth_of(b->all[i - 1]) < depth_of(m); i--) b->all[i] = b->all[i - 1];
    b->all[i] = m;
}

static void count_tiles(muon_batch *b) {
    for (int i = 0; i < b->n; i++) {
        const muon_matrix &m = b->all[i];
        const int64_t rows = tiles_along(m.rows), cols = tiles_along(m.cols), side = rows < cols ? rows : cols;
        const int64_t tiles[CUTS] = {(m.rows * m.cols + TILE - 1) / TILE, side * (side + 1) / 2, rows * cols};
        for (int c = 0; c < CUTS; c++) b->first[c][i + 1] = b->first[c][i] + (uint32_t)tiles[c];
    }
}

/* The matrices from tensor number at on that there is room for; returns where the next begin. */
static int64_t next_batch(const view *v, int64_t at, muon_batch *b) {
    int64_t used = 0;
    *b = muon_batch{};
    for (; at < v->n && b->n < muon_batch::MOST; at++) {
        const device_tensor *t = &v->host_tensors[at];
        if (!is_matrix(t) || !t->g) continue;
        const muon_matrix m = matrix_of(t, at, used);
        const int64_t end = muon_parts(m).end;
        if (end > v->workspace_bytes) break;
        const int steps = (int)v->host_groups[t->group].options[OPT_NS_STEPS];
        b->launched = steps > b->launched ? steps : b->launched;
        add_sorted(b, m);
        used = end;
    }
    count_tiles(b);
    return at;
}

static __device__ __forceinline__ int steps_of(const view &v, const muon_batch &b, int64_t tensor) {
    const int steps = (int)options_of(v, tensor)[OPT_NS_STEPS];
    return steps < b.launched ? steps : b.launched;
}

/* ---- the momentum, and the norm of what it makes of the gradient ---- */

/* An element of a known type; TYPE -1: looked up. */
template <class R, int TYPE> static __device__ __forceinline__ R load_typed(const void *array, int type, int64_t i) {
    return load_as<R>(array, TYPE < 0 ? type : TYPE, i);
}

static __device__ __forceinline__ element<float> momentum_of(const element<float> &x, const array_step &now) {
    return muon_momentum_rule_f32::run(x, &now.narrow);
}
static __device__ __forceinline__ element<double> momentum_of(const element<double> &x, const array_step &now) {
    return muon_momentum_rule_f64::run(x, &now.wide);
}

/* Updates the momentum of a warp's block of n elements. Lane 0 has the sum of squares, in the library's order, and the
 * largest. */
template <class R, int G, int S>
static __device__ __forceinline__ void momentum_block(const device_tensor &t, const array_step &now, int64_t block,
                                                      int n, double (&found)[2]) {
    enum { EACH = 8 };
    const int lane = (int)threadIdx.x % 32;
    double sum = 0, most = 0;
    for (int from = lane; from < n; from += 32 * EACH) {
        element<R> x[EACH] = {};
#pragma unroll
        for (int r = 0; r < EACH; r++) {
            if (from + 32 * r >= n) continue;
            x[r].g = gradient_of<R, G>(t, now, block + from + 32 * r);
            x[r].m = load_typed<R, S>(t.state[0], t.state_type, block + from + 32 * r);
        }
#pragma unroll
        for (int r = 0; r < EACH; r++) {
            if (from + 32 * r >= n) continue;
            const element<R> y = momentum_of(x[r], now);
            if (S < 0) store_state<R>(t, 0, 0, block, (uint32_t)(from + 32 * r), y.m, now.key);
            else ((R *)t.state[0])[block + from + 32 * r] = y.m;
            sum += (double)y.p * (double)y.p;
            most = larger(most, fabs((double)y.p));
        }
    }
    found[0] = sum_lanes(sum);
    found[1] = largest_lane(most);
}

template <class R, int G, int S> static __device__ void momentum_chunk(const view &v, piece c, rounds<2> *shared) {
    const device_tensor &t = v.tensors[c.tensor];
    const int64_t first = c.index * v.chunk, last = first + v.chunk < t.count ? first + v.chunk : t.count;
    const int warps = (int)blockDim.x / 32, warp = (int)threadIdx.x / 32;
    double sum = 0, most = 0;
    int round = 0;
    for (int64_t at = first; at < last; at += warps * BLOCK, round++) {
        const int64_t block = at + warp * BLOCK;
        double x[2] = {0, 0};
        if (block < last) {
            const int n = last - block < BLOCK ? (int)(last - block) : (int)BLOCK;
            momentum_block<R, G, S>(t, v.now[c.tensor], block, n, x);
        }
        shared->gather(round, x, active_warps(at, last), [&](int j, double y) {
            if (j == 0) sum += y;
            else most = larger(most, y);
        });
    }
    if (threadIdx.x != 0) return;
    v.partial[blockIdx.x] = sum;
    v.largest[blockIdx.x] = most;
}

static __global__ void __launch_bounds__(SUM_THREADS) momentum_kernel(const __grid_constant__ view v) {
    __shared__ rounds<2> shared;
    const piece c = v.chunks[blockIdx.x];
    const device_tensor &t = v.tensors[c.tensor];
    if (v.shared->skip || t.variant != MOMENTUM || !t.g) return;
    if (t.p_type == ADAMOD_F64) momentum_chunk<double, -1, -1>(v, c, &shared);
    else if (t.state_type == ADAMOD_F32 && t.g_type == ADAMOD_F32)
        momentum_chunk<float, ADAMOD_F32, ADAMOD_F32>(v, c, &shared);
    else if (t.state_type == ADAMOD_F32 && t.g_type == ADAMOD_BF16)
        momentum_chunk<float, ADAMOD_BF16, ADAMOD_F32>(v, c, &shared);
    else momentum_chunk<float, -1, -1>(v, c, &shared);
}

/* The matrix to be made orthogonal, from the gradient and the stored momentum. */
template <class R, int G, int S>
static __device__ __forceinline__ R direction(const device_tensor &t, const array_step &now, int64_t i) {
    const typename real<R>::coef &k = real<R>::of(now);
    const R m = load_typed<R, S>(t.state[0], t.state_type, i);
    return k.flag ? k.beta1c * gradient_of<R, G>(t, now, i) + k.beta1 * m : m;
}

/* Squares of doubles may overflow or vanish where the numbers do not: sums once more, scaled. Slow, since this is one
 * block, and rare. Thread 0 has the norm. */
static __device__ double rescaled_norm(const view &v, int64_t tensor, double most, rounds<1> *shared) {
    const device_tensor &t = v.tensors[tensor];
    const double scale = 1 / fmax(most, 1e-300);
    const int warps = (int)blockDim.x / 32, warp = (int)threadIdx.x / 32, lane = (int)threadIdx.x % 32;
    double sum = 0;
    int round = 0;
    for (int64_t at = 0; at < t.count; at += warps * BLOCK, round++) {
        double x[1] = {0};
        for (int64_t i = at + warp * BLOCK + lane; i < at + (warp + 1) * BLOCK && i < t.count; i += 32) {
            const double y = direction<double, -1, -1>(t, v.now[tensor], i) * scale;
            x[0] += y * y;
        }
        x[0] = sum_lanes(x[0]);
        shared->gather(round, x, active_warps(at, t.count), [&](int, double y) { sum += y; });
    }
    return sqrt(sum) / scale;
}

/* Sets high, a matrix's factor; a block for each. */
static __global__ void __launch_bounds__(256) norms_kernel(const __grid_constant__ view v) {
    __shared__ rounds<1> shared;
    __shared__ double found[2];
    const int64_t i = blockIdx.x;
    const device_tensor &t = v.tensors[i];
    if (v.shared->skip || t.variant != MOMENTUM || !t.g || t.count == 0) return;
    if (threadIdx.x == 0) {
        double sum = 0, most = 0;
        for (int64_t c = v.first_chunk[i]; c < v.first_chunk[i + 1]; c++) {
            sum += v.partial[c];
            most = larger(most, v.largest[c]);
        }
        found[0] = sum;
        found[1] = most;
    }
    __syncthreads();
    const double sum = found[0], most = found[1];
    double norm = most;
    if (isfinite(sum) && sum > 1e-280) norm = sqrt(sum);
    else if (isfinite(most) && most != 0) norm = rescaled_norm(v, i, most, &shared);
    if (threadIdx.x != 0) return;
    v.now[i].wide.high = 1 / larger(norm, options_of(v, i)[OPT_NS_EPS]);
    v.now[i].narrow.high = (float)v.now[i].wide.high;
}

/* ---- passes over the matrices of a batch ---- */

/* Elements first to last of a matrix. */
struct muon_tile {
    const muon_matrix &m;
    const device_tensor &t;
    const array_step &now;
    muon_parts parts;
    int64_t first, last;

    /* Piece number index, of `size` elements. */
    __device__ muon_tile(const view &v, const muon_matrix &matrix, uint32_t index, int64_t size)
        : m(matrix), t(v.tensors[matrix.tensor]), now(v.now[matrix.tensor]), parts(matrix), first(index * size),
          last(first + size < t.count ? first + size : t.count) {}
    /* The place of element i in X, whose rows are padded. */
    __device__ __forceinline__ int64_t at(int64_t i) const {
        return parts.ld == m.cols ? i : i / m.cols * parts.ld + i % m.cols;
    }
    /* Whether four elements can be loaded at once. */
    __device__ __forceinline__ bool fours() const {
        return parts.ld == m.cols && (t.path == PATH_F32 || t.path == PATH_MASTER || t.path == PATH_COPY);
    }
};

enum { FOURS = TILE / TILE_THREADS / 4 }; /* of a thread */

/* f(r, i) for the thread's r-th four elements, from i on. */
template <class F> static __device__ __forceinline__ void each_four(const muon_tile &a, F f) {
#pragma unroll
    for (int r = 0; r < FOURS; r++) {
        const int64_t i = a.first + 4 * ((int64_t)threadIdx.x + r * TILE_THREADS);
        if (i < a.last) f(r, i);
    }
}

static __device__ __forceinline__ void load_four(float (&x)[4], const void *array, bool bf16, int64_t i) {
    if (bf16) {
        const uint2 two = *(const uint2 *)((const uint16_t *)array + i);
        x[0] = __uint_as_float(two.x << 16), x[1] = __uint_as_float(two.x & 0xffff0000u);
        x[2] = __uint_as_float(two.y << 16), x[3] = __uint_as_float(two.y & 0xffff0000u);
    } else {
        const float4 four = *(const float4 *)((const float *)array + i);
        x[0] = four.x, x[1] = four.y, x[2] = four.z, x[3] = four.w;
    }
}

static __device__ __forceinline__ void store_four(uint16_t *to, const float (&x)[4]) {
    *(uint2 *)to = make_uint2(pack_bf16(x[0], x[1]), pack_bf16(x[2], x[3]));
}

/* Fills X, four elements at a time. */
static __device__ void scale_fours(const muon_tile &a, uint16_t *x) {
    const adamod__coef_f32 &k = a.now.narrow;
    const bool bf16 = a.t.g_type == ADAMOD_BF16;
    float g[FOURS][4], m[FOURS][4];
    each_four(a, [&](int r, int64_t i) {
        load_four(g[r], a.t.g, bf16, i);
        load_four(m[r], a.t.state[0], false, i);
    });
    each_four(a, [&](int r, int64_t i) {
        float y[4];
#pragma unroll
        for (int j = 0; j < 4; j++) {
            const float shaped = shape_gradient(g[r][j], 0.0f, k, a.now.transform);
            y[j] = (k.flag ? k.beta1c * shaped + k.beta1 * m[r][j] : m[r][j]) * k.high;
        }
        store_four(x + i, y);
    });
}

template <class R> static __device__ void scale_any(const muon_tile &a, uint16_t *x) {
    for (int64_t i = a.first + threadIdx.x; i < a.last; i += TILE_THREADS) {
        const float y = (float)(direction<R, -1, -1>(a.t, a.now, i) * real<R>::of(a.now).high);
        const int64_t at = a.at(i);
        x[at] = f32_to_bf16(y, to_nearest(y));
        const bool last = a.parts.ld != a.m.cols && i % a.m.cols == a.m.cols - 1;
        for (int64_t pad = a.m.cols; last && pad < a.parts.ld; pad++) x[at + pad - a.m.cols + 1] = 0;
    }
}

static __global__ void __launch_bounds__(TILE_THREADS)
    scale_kernel(const __grid_constant__ view v, const __grid_constant__ muon_batch b) {
    if (v.shared->skip) return;
    const int i = find_in(b.first[CUT_ELEMENTS], b.n, blockIdx.x);
    const muon_tile a(v, b.all[i], blockIdx.x - b.first[CUT_ELEMENTS][i], TILE);
    uint16_t *x = at_place(v, a.parts.x[0]);
    if (a.t.p_type == ADAMOD_F64) scale_any<double>(a, x);
    else if (a.fours() && a.now.narrow.l2 == 0) scale_fours(a, x);
    else scale_any<float>(a, x);
}

/* Updates a parameter; x.g is X. */
template <class RULE>
static __device__ __forceinline__ element<typename RULE::R> step_element(const muon_tile &a, const uint16_t *x,
                                                                         int64_t i, typename RULE::R *before) {
    return step_param<RULE>(a.t, a.now, i, (typename RULE::R)bf16_to_f32(x[a.at(i)]), before);
}

template <class RULE> static __device__ void step_any(const muon_tile &a, const uint16_t *x) {
    typename RULE::R before;
    for (int64_t i = a.first + threadIdx.x; i < a.last; i += TILE_THREADS) step_element<RULE>(a, x, i, &before);
}

/* For f32 parameters, and bf16 with masters. */
template <bool MASTER> static __device__ void step_fours(const muon_tile &a, const uint16_t *x) {
    float p[FOURS][4], g[FOURS][4], master[FOURS][4];
    each_four(a, [&](int r, int64_t i) {
        load_four(p[r], a.t.p, MASTER, i);
        if (MASTER) load_four(master[r], a.t.master, false, i);
        load_four(g[r], x, true, i);
    });
    each_four(a, [&](int r, int64_t i) {
        float y[4];
#pragma unroll
        for (int j = 0; j < 4; j++) {
            element<float> e = {};
            e.p = MASTER ? follow_bf16(master[r][j], p[r][j]) : p[r][j];
            e.g = g[r][j];
            y[j] = update_element<muon_step_rule_f32>(e, a.now.narrow).p;
        }
        *(float4 *)(MASTER ? a.t.master + i : (float *)a.t.p + i) = make_float4(y[0], y[1], y[2], y[3]);
        if constexpr (MASTER) {
            uint16_t low[4];
            for (int j = 0; j < 4; j++) low[j] = f32_to_bf16(y[j], to_nearest(y[j]));
            *(uint2 *)((uint16_t *)a.t.p + i) =
                make_uint2(low[0] | (uint32_t)low[1] << 16, low[2] | (uint32_t)low[3] << 16);
        }
    });
}

static __device__ __forceinline__ const uint16_t *result_of(const view &v, const muon_batch &b, const muon_tile &a) {
    return at_place(v, a.parts.x[steps_of(v, b, a.m.tensor) % 2]);
}

static __global__ void __launch_bounds__(TILE_THREADS)
    step_kernel(const __grid_constant__ view v, const __grid_constant__ muon_batch b) {
    if (v.shared->skip) return;
    const int i = find_in(b.first[CUT_ELEMENTS], b.n, blockIdx.x);
    const muon_tile a(v, b.all[i], blockIdx.x - b.first[CUT_ELEMENTS][i], TILE);
    const uint16_t *x = result_of(v, b, a);
    if (a.t.p_type == ADAMOD_F64) step_any<muon_step_rule_f64>(a, x);
    else if (!a.fours()) step_any<muon_step_rule_f32>(a, x);
    else if (a.t.path == PATH_F32) step_fours<false>(a, x);
    else step_fours<true>(a, x);
}

/* A step of one matrix with statistics. */
template <class RULE>
static __device__ void collect_chunk(const view &v, const muon_tile &a, const uint16_t *x, shared_counts *counts,
                                     rounds<2> *shared, double *sums) {
    typedef typename RULE::R R;
    collect_elements<R>(v, a.t.group, a.first, a.last, counts, shared, sums, [&](int64_t block, uint32_t at) {
        R before;
        const R g = gradient_of<R, -1>(a.t, a.now, block + at);
        const element<R> y = step_element<RULE>(a, x, block + at, &before);
        return collected<R>{y, before, g, false};
    });
}

static __global__ void __launch_bounds__(UPDATE_THREADS)
    collect_kernel(const __grid_constant__ view v, const __grid_constant__ muon_batch b, int i) {
    __shared__ shared_counts counts;
    __shared__ rounds<2> shared;
    if (v.shared->skip) return;
    const muon_tile a(v, b.all[i], blockIdx.x, v.chunk);
    const uint16_t *x = result_of(v, b, a);
    double *sums = v.sums + 2 * (v.first_chunk[a.m.tensor] + blockIdx.x);
    if (a.t.p_type == ADAMOD_F64) collect_chunk<muon_step_rule_f64>(v, a, x, &counts, &shared, sums);
    else collect_chunk<muon_step_rule_f32>(v, a, x, &counts, &shared, sums);
}

/* Matrices without a gradient. */
static __global__ void no_sums_kernel(const __grid_constant__ view v) {
    const piece c = v.chunks[blockIdx.x];
    const device_tensor &t = v.tensors[c.tensor];
    if (v.shared->skip || t.variant != MOMENTUM || t.g) return;
    v.sums[2 * blockIdx.x] = v.sums[2 * blockIdx.x + 1] = 0;
}

/* ---- Newton-Schulz steps ---- */

/* First row and column of a tile of the lower half. */
static __device__ __forceinline__ void half_product(uint32_t tile, int64_t *row, int64_t *col) {
    uint32_t i, j;
    half_tile(tile, &i, &j);
    *row = (int64_t)i * PRODUCT_TILE;
    *col = (int64_t)j * PRODUCT_TILE;
}

/* A product as a block of threads sees it. */
struct muon_work {
    const muon_matrix &m;
    const muon_parts parts;
    const double *options;
    const uint16_t *x, *gram, *polynomial;
    uint16_t *next;
    bool wide;
    uint32_t tile;

    __device__ muon_work(const view &v, const muon_batch &b, int cut, int i, int step)
        : m(b.all[i]), parts(m), options(options_of(v, m.tensor)), x(at_place(v, parts.x[step % 2])),
          gram(at_place(v, parts.gram[0])), polynomial(at_place(v, parts.gram[1])),
          next(at_place(v, parts.x[1 - step % 2])), wide(m.rows <= m.cols), tile(blockIdx.x - b.first[cut][i]) {}
};

/* A = X X^T or X^T X. */
static __device__ __forceinline__ void multiply_gram(const muon_work &w, char *memory) {
    int64_t row, col;
    half_product(w.tile, &row, &col);
    const product_operand x = {w.x, w.parts.ld, w.parts.side};
    const uint32_t shared = (uint32_t)__cvta_generic_to_shared(memory);
    product_sums sums = {};
    if (w.wide) multiply_tile<false, false>(sums, x, x, row, col, w.m.cols, shared);
    else multiply_tile<true, true>(sums, x, x, row, col, w.m.rows, shared);
    const product_result to = {(uint16_t *)w.gram, NULL, w.parts.gram_ld, w.parts.side, w.parts.side, 1, 0, true};
    store_tile(to, sums, row, col, (float *)memory);
}

/* b A + c A^2. */
static __device__ __forceinline__ void multiply_square(const muon_work &w, char *memory) {
    int64_t row, col;
    half_product(w.tile, &row, &col);
    const product_operand a = {w.gram, w.parts.gram_ld, w.parts.side};
    product_sums sums = {};
    multiply_tile<false, false>(sums, a, a, row, col, w.parts.side, (uint32_t)__cvta_generic_to_shared(memory));
    const product_result to = {
        (uint16_t *)w.polynomial,   w.gram, w.parts.gram_ld, w.parts.side, w.parts.side, (float)w.options[OPT_NS_C],
        (float)w.options[OPT_NS_B], true};
    store_tile(to, sums, row, col, (float *)memory);
}

/* a X + (b A + c A^2) X, or with the last two exchanged. */
static __device__ __forceinline__ void multiply_apply(const muon_work &w, char *memory) {
    const uint32_t rows = (uint32_t)tiles_along(w.m.rows), cols = (uint32_t)tiles_along(w.m.cols);
    /* along the shorter side first, so that concurrent blocks read the same part of X */
    const int64_t row = (int64_t)(w.wide ? w.tile % rows : w.tile / cols) * PRODUCT_TILE;
    const int64_t col = (int64_t)(w.wide ? w.tile / rows : w.tile % cols) * PRODUCT_TILE;
    const product_operand x = {w.x, w.parts.ld, w.wide ? w.m.cols : w.m.rows};
    const product_operand a = {w.polynomial, w.parts.gram_ld, w.parts.side};
    const uint32_t shared = (uint32_t)__cvta_generic_to_shared(memory);
    product_sums sums = {};
    if (w.wide) multiply_tile<false, true>(sums, a, x, row, col, w.parts.side, shared);
    else multiply_tile<false, false>(sums, x, a, row, col, w.parts.side, shared);
    const product_result to = {w.next, w.x, w.parts.ld, w.m.rows, w.m.cols, 1, (float)w.options[OPT_NS_A], false};
    store_tile(to, sums, row, col, (float *)memory);
}

enum { GRAM, SQUARE, APPLY, PRODUCTS };

template <int PRODUCT>
static __global__ void __launch_bounds__(PRODUCT_THREADS, 2)
    product_kernel(const __grid_constant__ view v, const __grid_constant__ muon_batch b, int step) {
    extern __shared__ __align__(128) char memory[];
    const int cut = PRODUCT == APPLY ? CUT_WHOLE : CUT_HALF, i = find_in(b.first[cut], b.n, blockIdx.x);
    if (v.shared->skip || step >= steps_of(v, b, b.all[i].tensor)) return;
    const muon_work w(v, b, cut, i, step);
    if (PRODUCT == GRAM) multiply_gram(w, memory);
    else if (PRODUCT == SQUARE) multiply_square(w, memory);
    else multiply_apply(w, memory);
}

template <int PRODUCT> static void launch_product(const view *v, const muon_batch &b, int step, cudaStream_t stream) {
    const unsigned tiles = b.first[PRODUCT == APPLY ? CUT_WHOLE : CUT_HALF][b.n];
    (void)cudaFuncSetAttribute(product_kernel<PRODUCT>, cudaFuncAttributeMaxDynamicSharedMemorySize, PRODUCT_SHARED);
    product_kernel<PRODUCT><<<tiles, PRODUCT_THREADS, PRODUCT_SHARED, stream>>>(*v, b, step);
}

/* ---- launches ---- */

static void run_batch(const view *v, const muon_batch &b, int collect, cudaStream_t stream) {
    const unsigned tiles = b.first[CUT_ELEMENTS][b.n];
    scale_kernel<<<tiles, TILE_THREADS, 0, stream>>>(*v, b);
    for (int step = 0; step < b.launched; step++) {
        launch_product<GRAM>(v, b, step, stream);
        launch_product<SQUARE>(v, b, step, stream);
        launch_product<APPLY>(v, b, step, stream);
    }
    if (!collect) step_kernel<<<tiles, TILE_THREADS, 0, stream>>>(*v, b);
    for (int i = 0; collect && i < b.n; i++) {
        const int64_t chunks = (b.all[i].rows * b.all[i].cols + v->chunk - 1) / v->chunk;
        collect_kernel<<<(unsigned)chunks, UPDATE_THREADS, 0, stream>>>(*v, b, i);
    }
}

static void run(const view *v, int collect, cudaStream_t stream) {
    if (v->workspace_bytes == 0) return; /* no matrix */
    momentum_kernel<<<(unsigned)v->n_chunks, SUM_THREADS, 0, stream>>>(*v);
    norms_kernel<<<(unsigned)v->n, 256, 0, stream>>>(*v);
    if (collect) no_sums_kernel<<<(unsigned)v->n_chunks, 1, 0, stream>>>(*v);
    muon_batch b;
    for (int64_t at = 0; at < v->n;) {
        at = next_batch(v, at, &b);
        if (b.n > 0) run_batch(v, b, collect, stream);
    }
}

const cuda_driver cuda_muon_driver = {run, 1u << MOMENTUM, false, workspace};
