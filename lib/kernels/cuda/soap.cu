/* SOAP's driver for matrices, with the bits of rules/soap.c. Products are chains of fused multiply-adds in the type of
 * computation, not on tensor cores; eigenvectors and orthogonal factors are in f64.
 *
 * Matrices come in batches for which the workspace has room, f64 by themselves: a launch for each product of a batch,
 * whatever the shapes. A step can be captured, so that all of it is always launched; kernels return at once if their update
 * does not need them. */
#include "kernels/cuda/bases.cuh"
#include "kernels/cuda/chains.cuh"
#include "kernels/cuda/collect.cuh"

#include <type_traits>

enum { SOAP_MATRIX = 1 };                      /* the variant of matrices */
enum { SOAP_MOMENT, SOAP_SQUARE, SOAP_FIRST }; /* states; those of side i are SOAP_FIRST + i and SOAP_FIRST + 2 + i */
enum { TILE = 4096, TILE_THREADS = 256 };

/* ---- batches ---- */

/* A matrix of the first dimension by all others. */
struct soap_matrix {
    int64_t tensor, rows, cols;
    int64_t place; /* bytes from the workspace's beginning */
    bool has[2];   /* a basis of its rows, of its columns */
    bool kept;     /* states have the type of computation, and need no copy */

    __host__ __device__ int64_t count() const { return rows * cols; }
    /* 0: the side has no basis */
    __host__ __device__ int64_t side(int i) const { return !has[i] ? 0 : i ? cols : rows; }
};

/* Blocks of threads for the basis of a side. */
struct soap_team {
    uint32_t first, blocks;
};

/* Tiles of a batch: elements of matrices; tiles of a product as large as the matrix; elements of both sides' squares; the
 * lower halves of these as products, and all of them; columns of eigenvectors. */
enum { CUT_ELEMENTS, CUT_WHOLE, CUT_SQUARES, CUT_HALVES, CUT_TIMES, CUT_TURNS, CUTS };

struct soap_batch {
    enum { MOST = 40 }; /* that fit in the parameters of a launch */
    soap_matrix all[MOST];
    uint32_t first[CUTS][MOST + 1]; /* tiles before each, and of all */
    soap_team team[2 * MOST];
    uint32_t blocks; /* of all teams, which may share blocks */
    int n;
    bool kept; /* by all of them */
};
static_assert(sizeof(soap_batch) + sizeof(view) < 4000, "a batch travels with a launch");

/* Places of a matrix's parts: the gradient, two temporary arrays, and copies of states in the type of computation. */
struct soap_parts {
    int64_t g, a, b, m, v, average[2], q[2], times[2], basis[2], met[2], end;

    __host__ __device__ soap_parts(const soap_matrix &x, int64_t size) {
        end = x.place;
        g = take(x.count() * size);
        a = take(x.count() * size);
        b = take(x.count() * size);
        m = take(x.kept ? 0 : x.count() * size);
        v = take(x.kept ? 0 : x.count() * size);
        for (int i = 0; i < 2; i++) {
            const int64_t n = x.side(i);
            average[i] = take(x.kept ? 0 : n * n * size);
            q[i] = take(x.kept ? 0 : n * n * size);
            times[i] = take(n * n * size);
            basis[i] = take(n > 0 ? basis_numbers(n) * 8 : 0);
            met[i] = take(n > 0 ? 4 : 0);
        }
    }

  private:
    __host__ __device__ int64_t take(int64_t bytes) {
        const int64_t at = end;
        end += (bytes + 255) / 256 * 256;
        return at;
    }
};

static bool is_matrix(const device_tensor *t) { return t->variant == SOAP_MATRIX && t->count > 0; }
static bool is_f64(const device_tensor *t) { return t->p_type == ADAMOD_F64; }
static int64_t size_of(const device_tensor *t) { return is_f64(t) ? 8 : 4; }

static soap_matrix matrix_of(const device_tensor *t, int64_t tensor, int64_t place) {
    soap_matrix m = {tensor, t->first, t->count / t->first, place, {}, false};
    for (int i = 0; i < 2; i++) m.has[i] = t->state[SOAP_FIRST + i] != NULL;
    m.kept = t->state_type == (is_f64(t) ? ADAMOD_F64 : ADAMOD_F32);
    return m;
}

static int64_t workspace(const device_layout *l) {
    return batch_workspace(l, (int64_t)2 << 30, [](const device_tensor *t) {
        return is_matrix(t) ? soap_parts(matrix_of(t, 0, 0), size_of(t)).end : 0;
    });
}

static int64_t tiles_of(int64_t elements) { return (elements + TILE - 1) / TILE; }

template <class R> static void count_tiles(soap_batch *b) {
    for (int i = 0; i < b->n; i++) {
        const soap_matrix &m = b->all[i];
        int64_t tiles[CUTS] = {tiles_of(m.count()), chain_tiles<R>(m.rows) * chain_tiles<R>(m.cols)};
        for (int s = 0; s < 2; s++) {
            const int64_t n = m.side(s), along = chain_tiles<R>(n);
            tiles[CUT_SQUARES] += tiles_of(n * n);
            tiles[CUT_HALVES] += along * (along + 1) / 2;
            tiles[CUT_TIMES] += along * along;
            tiles[CUT_TURNS] += turn_blocks(n);
        }
        for (int c = 0; c < CUTS; c++) b->first[c][i + 1] = b->first[c][i] + (uint32_t)tiles[c];
    }
}

/* Places teams side by side while there is room, then again from block 0 on. A block works for its teams in order. */
static void form_teams(soap_batch *b, uint32_t room) {
    uint32_t at = 0;
    for (int s = 0; s < 2 * b->n; s++) {
        const int64_t wanted = basis_blocks(b->all[s / 2].side(s % 2));
        const uint32_t blocks = wanted < room ? (uint32_t)wanted : room;
        if (at + blocks > room) at = 0;
        b->team[s] = soap_team{at, blocks};
        at += blocks;
        b->blocks = at > b->blocks ? at : b->blocks;
    }
}

/* The matrices from tensor number at on for which there is room; returns the tensor after them. */
template <class R> static int64_t next_batch(const view *v, int64_t at, uint32_t room, soap_batch *b) {
    int64_t used = 0;
    *b = soap_batch{};
    b->kept = true;
    for (; at < v->n && b->n < soap_batch::MOST; at++) {
        const device_tensor *t = &v->host_tensors[at];
        if (!is_matrix(t) || !t->g || is_f64(t) != (sizeof(R) == 8)) continue;
        const soap_matrix m = matrix_of(t, at, used);
        const int64_t end = soap_parts(m, sizeof(R)).end;
        if (end > v->workspace_bytes) break;
        b->all[b->n++] = m;
        b->kept = b->kept && m.kept;
        used = end;
    }
    count_tiles<R>(b);
    form_teams(b, room);
    return at;
}

/* ---- a matrix ---- */

/* The matrix of a tile, as a block of threads sees it. */
template <class R> struct soap_work {
    const soap_matrix &m;
    const device_tensor &t;
    const array_step &now;
    const double *options;
    const soap_parts parts;
    char *workspace;
    int64_t done; /* updates before this one */
    uint32_t tile;

    __device__ soap_work(const view &v, const soap_batch &b, int i, uint32_t index)
        : m(b.all[i]), t(v.tensors[m.tensor]), now(v.now[m.tensor]), options(v.effective + t.group * OPT_COUNT),
          parts(m, sizeof(R)), workspace((char *)v.workspace), done(v.steps[m.tensor] - 1), tile(index) {}

    __device__ __forceinline__ R *array(int64_t place) const { return (R *)(workspace + place); }
    __device__ __forceinline__ R *state(int i, int64_t place) const { return m.kept ? (R *)t.state[i] : array(place); }
    __device__ __forceinline__ R *g() const { return array(parts.g); }
    __device__ __forceinline__ R *a() const { return array(parts.a); }
    __device__ __forceinline__ R *b() const { return array(parts.b); }
    __device__ __forceinline__ R *moment() const { return state(SOAP_MOMENT, parts.m); }
    __device__ __forceinline__ R *square() const { return state(SOAP_SQUARE, parts.v); }
    __device__ __forceinline__ R *average(int i) const { return state(SOAP_FIRST + i, parts.average[i]); }
    __device__ __forceinline__ R *q(int i) const { return state(SOAP_FIRST + 2 + i, parts.q[i]); }
    __device__ __forceinline__ R *times(int i) const { return array(parts.times[i]); }
    __device__ __forceinline__ double *space(int i) const { return (double *)(workspace + parts.basis[i]); }
    __device__ __forceinline__ unsigned *met(int i) const { return (unsigned *)(workspace + parts.met[i]); }
    __device__ __forceinline__ const int64_t *order(int i) const { return basis(space(i), m.side(i)).order; }

    /* The first update moves nothing. */
    __device__ __forceinline__ bool begins() const { return done == 0; }
    __device__ __forceinline__ bool follows() const {
        const bool any = m.has[0] || m.has[1];
        return any && done > 0 && done % (int64_t)options[OPT_PRECONDITION_FREQUENCY] == 0;
    }

    /* f(i) for the tile's elements. */
    template <class F> __device__ __forceinline__ void elements(F f) const {
        const int64_t first = (int64_t)tile * TILE, last = first + TILE < m.count() ? first + TILE : m.count();
        for (int64_t i = first + threadIdx.x; i < last; i += TILE_THREADS) f(i);
    }
    /* f(side, i) for a tile of squares. */
    template <class F> __device__ __forceinline__ void squares(F f) const {
        const int64_t before = (m.side(0) * m.side(0) + TILE - 1) / TILE;
        const int side = tile < before ? 0 : 1;
        const int64_t n = m.side(side) * m.side(side), first = (tile - (side ? before : 0)) * TILE;
        for (int64_t i = first + threadIdx.x; i < first + TILE && i < n; i += TILE_THREADS) f(side, i);
    }
};

template <class R>
static __device__ __forceinline__ soap_work<R> work_of(const view &v, const soap_batch &b, int cut, uint32_t tile) {
    const int i = (int)find_in(b.first[cut], (int64_t)b.n, tile);
    return soap_work<R>(v, b, i, tile - b.first[cut][i]);
}

/* PASS over a tile of each matrix. */
template <class R, int CUT, void (*PASS)(const soap_work<R> &)>
static __global__ void __launch_bounds__(TILE_THREADS)
    pass_kernel(const __grid_constant__ view v, const __grid_constant__ soap_batch b) {
    if (!v.shared->skip) PASS(work_of<R>(v, b, CUT, blockIdx.x));
}

/* ---- in and out ---- */

template <class R> static __device__ __forceinline__ void load(const soap_work<R> &w) {
    for (int s = 0; s < 2 && w.tile == 0 && threadIdx.x == 0; s++) {
        if (w.m.has[s]) *w.met(s) = 0;
    }
    w.elements([&](int64_t i) {
        w.g()[i] = gradient_of<R>(w.t, w.now, i);
        if (w.m.kept) return;
        w.moment()[i] = load_as<R>(w.t.state[SOAP_MOMENT], w.t.state_type, i);
        w.square()[i] = load_as<R>(w.t.state[SOAP_SQUARE], w.t.state_type, i);
    });
}

template <class R> static __device__ __forceinline__ void load_squares(const soap_work<R> &w) {
    if (w.m.kept) return;
    w.squares([&](int side, int64_t i) {
        w.average(side)[i] = load_as<R>(w.t.state[SOAP_FIRST + side], w.t.state_type, i);
        w.q(side)[i] = load_as<R>(w.t.state[SOAP_FIRST + 2 + side], w.t.state_type, i);
    });
}

template <class R> static __device__ __forceinline__ void put_state(const soap_work<R> &w, int state, int64_t i, R x) {
    const int64_t block = i / BLOCK * BLOCK;
    store_state<R>(w.t, state, 0, block, (uint32_t)(i - block), x, w.now.key);
}

/* a = the second averages in the new order. */
template <class R> static __device__ __forceinline__ void reorder(const soap_work<R> &w) {
    if (!w.follows()) return;
    const int64_t *rows = w.m.has[0] ? w.order(0) : NULL, *cols = w.m.has[1] ? w.order(1) : NULL;
    w.elements([&](int64_t i) {
        const int64_t row = i / w.m.cols, col = i % w.m.cols;
        w.a()[i] = w.square()[(rows ? rows[row] : row) * w.m.cols + (cols ? cols[col] : col)];
    });
}

template <class R> static __device__ __forceinline__ void settle(const soap_work<R> &w) {
    if (w.m.kept && !w.follows()) return;
    w.elements([&](int64_t i) {
        put_state(w, SOAP_SQUARE, i, w.follows() ? w.a()[i] : w.square()[i]);
        if (!w.m.kept) put_state(w, SOAP_MOMENT, i, w.moment()[i]);
    });
}

template <class R> static __device__ __forceinline__ void settle_squares(const soap_work<R> &w) {
    if (w.m.kept) return;
    w.squares([&](int side, int64_t i) {
        put_state(w, SOAP_FIRST + side, i, w.average(side)[i]);
        put_state(w, SOAP_FIRST + 2 + side, i, w.q(side)[i]);
    });
}

/* ---- products ---- */

/* The gradient to the other basis, the first averages to it, and Adam's direction back from it. */
enum { TURN_GRADIENT, TURN_MOMENT, TURN_BACK };

/* The result of a turn. */
template <class R> static __device__ __forceinline__ R *turned(const soap_work<R> &w, int turn) {
    const bool left = w.m.has[0], right = w.m.has[1];
    if (turn == TURN_BACK) return left != right ? w.a() : w.b();
    return right ? w.b() : left ? w.a() : turn == TURN_GRADIENT ? w.g() : w.moment();
}

/* From the left first: a = QL^T x or QL x; then from the right, Q' QR or Q' QR^T of that. */
template <class R>
static __device__ __forceinline__ chain_product<R> turn_of(const soap_work<R> &w, int turn, int side) {
    const int64_t r = w.m.rows, c = w.m.cols;
    const bool back = turn == TURN_BACK;
    const R *x = turn == TURN_GRADIENT ? w.g() : turn == TURN_MOMENT ? w.moment() : w.b();
    chain_product<R> p = {{}, {}, w.a(), r, c, side ? c : r, 1, 0, false};
    if (side == 0) {
        p.a = back ? chain_operand<R>{w.q(0), r, 1} : chain_operand<R>{w.q(0), 1, r};
        p.b = chain_operand<R>{x, c, 1};
    } else {
        p.a = chain_operand<R>{w.m.has[0] ? w.a() : x, c, 1};
        p.b = back ? chain_operand<R>{w.q(1), 1, c} : chain_operand<R>{w.q(1), c, 1};
        p.c = turned(w, turn);
    }
    return p;
}

template <class R>
static __global__ void __launch_bounds__(CHAIN_THREADS, 2)
    turn_kernel(const __grid_constant__ view v, const __grid_constant__ soap_batch b, int turn, int side) {
    __shared__ chain_memory<R> memory;
    if (v.shared->skip) return;
    const soap_work<R> w = work_of<R>(v, b, CUT_WHOLE, blockIdx.x);
    if (w.begins() || !w.m.has[side]) return;
    const uint32_t across = (uint32_t)chain_tiles<R>(w.m.cols);
    const int64_t row = w.tile / across * chain_cut<R>::TILE, col = w.tile % across * chain_cut<R>::TILE;
    multiply_chains(turn_of(w, turn, side), row, col, &memory);
}

/* L and R. */
template <class R>
static __global__ void __launch_bounds__(CHAIN_THREADS, 2)
    averages_kernel(const __grid_constant__ view v, const __grid_constant__ soap_batch b) {
    __shared__ chain_memory<R> memory;
    if (v.shared->skip) return;
    const soap_work<R> w = work_of<R>(v, b, CUT_HALVES, blockIdx.x);
    const uint32_t along = (uint32_t)chain_tiles<R>(w.m.side(0)), before = along * (along + 1) / 2;
    const int side = w.tile < before ? 0 : 1;
    const int64_t n = w.m.side(side), c = w.m.cols;
    const chain_operand<R> g = {w.g(), c, 1}, transposed = {w.g(), 1, c};
    const double *o = w.options, beta = o[OPT_SHAMPOO_BETA] < 0 ? o[OPT_BETA2] : o[OPT_SHAMPOO_BETA];
    uint32_t row, col;
    half_tile(w.tile - (side ? before : 0), &row, &col);
    const chain_product<R> p = {side ? transposed : g, side ? g : transposed, w.average(side), n,   n,
                                side ? w.m.rows : c,   (R)(1 - beta),         (R)beta,         true};
    multiply_chains(p, (int64_t)row * chain_cut<R>::TILE, (int64_t)col * chain_cut<R>::TILE, &memory);
}

/* The averages times the bases. */
template <class R>
static __global__ void __launch_bounds__(CHAIN_THREADS, 2)
    times_kernel(const __grid_constant__ view v, const __grid_constant__ soap_batch b) {
    __shared__ chain_memory<R> memory;
    if (v.shared->skip) return;
    const soap_work<R> w = work_of<R>(v, b, CUT_TIMES, blockIdx.x);
    if (!w.follows()) return;
    const uint32_t left = (uint32_t)chain_tiles<R>(w.m.side(0)), before = left * left;
    const int side = w.tile < before ? 0 : 1;
    const int64_t n = w.m.side(side);
    const uint32_t tile = w.tile - (side ? before : 0), across = (uint32_t)chain_tiles<R>(n);
    const chain_product<R> p = {{w.average(side), n, 1}, {w.q(side), n, 1}, w.times(side), n, n, n, 1, 0, false};
    multiply_chains(p, (int64_t)(tile / across) * chain_cut<R>::TILE, (int64_t)(tile % across) * chain_cut<R>::TILE,
                    &memory);
}

/* ---- Adam in the other basis ---- */

template <class R> static __device__ __forceinline__ void moments(const soap_work<R> &w) {
    if (w.begins()) return;
    const typename real<R>::coef &k = real<R>::of(w.now);
    const R *g = w.g(), *u = turned(w, TURN_GRADIENT);
    R *first = w.moment(), *second = w.square();
    w.elements([&](int64_t i) {
        first[i] = k.beta1 * first[i] + k.beta1c * g[i];
        second[i] = k.beta2 * second[i] + k.beta2c * u[i] * u[i];
    });
}

static __device__ __forceinline__ float root(float x) { return sqrtf(x); }
static __device__ __forceinline__ double root(double x) { return sqrt(x); }

template <class R> static __device__ __forceinline__ void divide(const soap_work<R> &w) {
    if (w.begins()) return;
    const typename real<R>::coef &k = real<R>::of(w.now);
    const R *x = turned(w, TURN_MOMENT), *second = w.square();
    R *to = w.b();
    w.elements([&](int64_t i) { to[i] = x[i] / (root(second[i]) + k.eps); });
}

/* Updates a parameter; x.g is the direction. */
template <class R>
static __device__ __forceinline__ element<R> step_element(const soap_work<R> &w, int64_t i, R *before) {
    typedef typename std::conditional<sizeof(R) == 4, soap_step_rule_f32, soap_step_rule_f64>::type rule;
    return step_param<rule>(w.t, w.now, i, w.begins() ? (R)0 : turned(w, TURN_BACK)[i], before);
}

template <class R> static __device__ __forceinline__ void step_elements(const soap_work<R> &w) {
    w.elements([&](int64_t i) {
        R before;
        step_element(w, i, &before);
    });
}

/* ---- statistics ---- */

/* The step with statistics: a warp has BLOCK elements of a matrix. Sums go over the whole matrix, block by block. */
template <class R>
static __global__ void __launch_bounds__(32)
    collect_kernel(const __grid_constant__ view v, const __grid_constant__ soap_batch b, int i) {
    __shared__ shared_counts counts;
    __shared__ rounds<2> shared;
    if (v.shared->skip) return;
    const soap_work<R> w(v, b, i, blockIdx.x);
    const int64_t first = (int64_t)blockIdx.x * BLOCK, count = w.m.count();
    double *sums = v.block_sums + 2 * (first_block(v, w.m.tensor, 0, v.first_chunk[w.m.tensor]) + blockIdx.x);
    collect_elements<R>(v, w.t.group, first, first + BLOCK < count ? first + BLOCK : count, &counts, &shared, sums,
                        [&](int64_t block, uint32_t at) {
                            R before;
                            const R g = w.g()[block + at];
                            const element<R> x = step_element(w, block + at, &before);
                            return collected<R>{x, before, g, false};
                        });
}

/* A warp for each tensor; a matrix's first chunk has the sums of all. */
static __global__ void __launch_bounds__(32) sums_kernel(const __grid_constant__ view v) {
    __shared__ double numbers[ORDERED];
    const int64_t i = blockIdx.x, first = v.first_chunk[i], last = v.first_chunk[i + 1];
    const device_tensor &t = v.tensors[i];
    if (v.shared->skip || t.variant != SOAP_MATRIX || t.count == 0) return;
    const int64_t blocks = t.g ? (t.count + BLOCK - 1) / BLOCK : 0;
    const double *sums = v.block_sums + 2 * first_block(v, i, 0, first);
    for (int64_t c = first + threadIdx.x; c < last; c += 32) v.sums[2 * c] = v.sums[2 * c + 1] = 0;
    __syncwarp();
    for (int j = 0; j < 2; j++) {
        const double sum = sum_in_order(blocks, numbers, [&](int64_t k) { return sums[2 * k + j]; });
        if (threadIdx.x == 0) v.sums[2 * first + j] = sum;
    }
}

/* ---- bases ---- */

/* Sorts columns by the sums of q times (average times q), which estimate eigenvalues, the largest first. Equal ones keep
 * their order, and all do if one is NaN. */
template <class R> static __device__ void order_columns(team &t, const R *q, const R *times) {
    const int64_t n = t.n;
    double *found = t.w[0];
    t.columns([&](int64_t j) {
        double sum = 0;
#pragma unroll 8
        for (int64_t i = 0; i < n; i++) sum += (double)q[i * n + j] * (double)times[i * n + j];
        found[j] = sum;
    });
    t.meet();
    for (int64_t j = t.first(); j < n; j += t.stride()) {
        const double mine = found[j];
        int64_t place = 0;
        bool numbers = true;
        for (int64_t i = 0; i < n; i++) {
            const double x = found[i];
            numbers = numbers && x == x;
            place += x > mine || (x == mine && i < j);
        }
        t.order[numbers ? place : j] = j;
    }
    t.meet();
}

/* A step of the power method from the present basis, and the orthogonal factor of the result. */
template <class R> static __device__ void follow_basis(team &t, const R *times, R *q) {
    const int64_t n = t.n;
    order_columns(t, q, times);
    for (int64_t i = t.first(); i < n * n; i += t.stride()) t.a[i] = (double)times[i / n * n + t.order[i % n]];
    t.meet();
    orthogonal_factor(t);
    for (int64_t i = t.first(); i < n * n; i += t.stride()) q[i] = (R)t.a[i];
}

template <class R>
static __global__ void __launch_bounds__(BASIS_THREADS, 2)
    bases_kernel(const __grid_constant__ view v, const __grid_constant__ soap_batch b) {
    __shared__ basis_memory memory;
    if (v.shared->skip) return;
    for (int s = 0; s < 2 * b.n; s++) {
        const soap_team &x = b.team[s];
        if (blockIdx.x < x.first || blockIdx.x >= x.first + x.blocks) continue;
        const soap_work<R> w(v, b, s / 2, 0);
        if (!w.begins() && !w.follows()) continue;
        const int side = s % 2;
        team t(w.space(side), w.m.side(side), (int)(blockIdx.x - x.first), (int)x.blocks, w.met(side), &memory);
        const R *average = w.average(side);
        if (w.begins()) begin_eigenvectors(t, [&](int64_t i) { return (double)average[i]; });
        else follow_basis(t, w.times(side), w.q(side));
        __syncthreads(); /* the next team uses the same memory */
    }
}

template <class R>
static __global__ void __launch_bounds__(TURN_THREADS)
    eigenvectors_kernel(const __grid_constant__ view v, const __grid_constant__ soap_batch b) {
    __shared__ turn_memory memory;
    if (v.shared->skip) return;
    const soap_work<R> w = work_of<R>(v, b, CUT_TURNS, blockIdx.x);
    if (!w.begins()) return;
    const int64_t before = turn_blocks(w.m.side(0));
    const int side = w.tile < before ? 0 : 1;
    const basis x(w.space(side), w.m.side(side));
    const int64_t block = w.tile - (side ? before : 0), i = block * TURN_THREADS + threadIdx.x;
    const int64_t *place = end_eigenvectors(x, block, &memory);
    R *q = w.q(side);
    for (int64_t j = 0; i < x.n && j < x.n; j++) q[i * x.n + j] = place ? (R)x.a[place[j] * x.n + i] : (R)NAN;
}

/* Blocks of bases_kernel that the device can hold at once. */
template <class R> static uint32_t room_for_bases() {
    int device = 0, processors = 1, each = 1;
    if (cudaGetDevice(&device) != cudaSuccess) return 1;
    if (cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, device) != cudaSuccess) return 1;
    if (cudaOccupancyMaxActiveBlocksPerMultiprocessor(&each, bases_kernel<R>, BASIS_THREADS, 0) != cudaSuccess)
        return 1;
    return (uint32_t)(processors * each);
}

/* ---- launches ---- */

template <class R, int CUT, void (*PASS)(const soap_work<R> &)>
static void pass(const view *v, const soap_batch &b, cudaStream_t stream) {
    pass_kernel<R, CUT, PASS><<<b.first[CUT][b.n], TILE_THREADS, 0, stream>>>(*v, b);
}

template <class R> static void turn(const view *v, const soap_batch &b, int which, cudaStream_t stream) {
    for (int side = 0; side < 2; side++) {
        turn_kernel<R><<<b.first[CUT_WHOLE][b.n], CHAIN_THREADS, 0, stream>>>(*v, b, which, side);
    }
}

template <class R> static void step(const view *v, const soap_batch &b, int collect, cudaStream_t stream) {
    if (!collect) pass<R, CUT_ELEMENTS, step_elements<R>>(v, b, stream);
    for (int i = 0; collect && i < b.n; i++) {
        const int64_t blocks = (b.all[i].count() + BLOCK - 1) / BLOCK;
        collect_kernel<R><<<(unsigned)blocks, 32, 0, stream>>>(*v, b, i);
    }
}

template <class R> static void renew_bases(const view *v, const soap_batch &b, cudaStream_t stream) {
    void *arguments[] = {(void *)(uintptr_t)v, (void *)(uintptr_t)&b};
    averages_kernel<R><<<b.first[CUT_HALVES][b.n], CHAIN_THREADS, 0, stream>>>(*v, b);
    times_kernel<R><<<b.first[CUT_TIMES][b.n], CHAIN_THREADS, 0, stream>>>(*v, b);
    (void)cudaLaunchCooperativeKernel(bases_kernel<R>, dim3(b.blocks), dim3(BASIS_THREADS), arguments, 0, stream);
    eigenvectors_kernel<R><<<b.first[CUT_TURNS][b.n], TURN_THREADS, 0, stream>>>(*v, b);
    pass<R, CUT_ELEMENTS, reorder<R>>(v, b, stream);
}

template <class R> static void run_batch(const view *v, const soap_batch &b, int collect, cudaStream_t stream) {
    const bool squares = b.first[CUT_SQUARES][b.n] > 0;
    pass<R, CUT_ELEMENTS, load<R>>(v, b, stream);
    if (!b.kept && squares) pass<R, CUT_SQUARES, load_squares<R>>(v, b, stream);
    turn<R>(v, b, TURN_GRADIENT, stream);
    pass<R, CUT_ELEMENTS, moments<R>>(v, b, stream);
    turn<R>(v, b, TURN_MOMENT, stream);
    pass<R, CUT_ELEMENTS, divide<R>>(v, b, stream);
    turn<R>(v, b, TURN_BACK, stream);
    step<R>(v, b, collect, stream);
    if (squares) renew_bases<R>(v, b, stream);
    pass<R, CUT_ELEMENTS, settle<R>>(v, b, stream);
    if (!b.kept && squares) pass<R, CUT_SQUARES, settle_squares<R>>(v, b, stream);
}

template <class R> static void run_type(const view *v, int collect, cudaStream_t stream) {
    const uint32_t room = room_for_bases<R>();
    soap_batch b;
    for (int64_t at = 0; at < v->n;) {
        at = next_batch<R>(v, at, room, &b);
        if (b.n > 0) run_batch<R>(v, b, collect, stream);
    }
}

static void run(const view *v, int collect, cudaStream_t stream) {
    if (v->workspace_bytes == 0) return; /* no matrix */
    run_type<float>(v, collect, stream);
    run_type<double>(v, collect, stream);
    if (collect) sums_kernel<<<(unsigned)v->n, 32, 0, stream>>>(*v);
}

const cuda_driver cuda_soap_driver = {run, 1u << SOAP_MATRIX, false, workspace};
