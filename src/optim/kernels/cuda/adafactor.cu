/* Adafactor's driver: its update, in the passes of ../../adafactor.c, over chunks of whole rows: R or v and the size of the
 * parameter; C; the means of R; the size of the update; the parameter. Sums are taken in the library's order. */
#include "optim/kernels/cuda/formulas.cuh"

enum { ROW_THREADS = 256, COLUMN_THREADS = 128 };

/* The workspace: the mean of each matrix's R. */
static __device__ __forceinline__ double *means_of(const view &v) { return (double *)v.workspace; }

static int64_t workspace(const device_layout *l) {
    int64_t matrices = 0;
    for (int64_t i = 0; i < l->n; i++) matrices += matrices_of(&l->tensors[i]);
    return matrices * (int64_t)sizeof(double);
}

/* One chunk, as a block of threads sees it. */
template <class R> struct row_pass {
    const view &v;
    const device_tensor &t;
    const array_step &now;
    typename real<R>::coef k; /* of the gradient */
    uint32_t tensor;
    bool factored;
    int64_t first, last;

    __device__ row_pass(const view &all, piece c)
        : v(all), t(all.tensors[c.tensor]), now(all.now[c.tensor]), k(real<R>::of(all.now[c.tensor])), tensor(c.tensor),
          factored(t.cols > 0) {
        const int64_t size = row_chunk(&t, v.chunk);
        first = c.index * size;
        last = first + size < t.count ? first + size : t.count;
    }

    __device__ __forceinline__ R gradient(int64_t i) const {
        return shape_gradient(load_as<R>(t.g, t.g_type, i), k.l2 != 0 ? load_param<R>(t, i) : (R)0, k, now.transform);
    }
    __device__ __forceinline__ double get(int state, int64_t i) const {
        return (double)load_as<R>(t.state[state], t.state_type, i);
    }
    /* A number that is written alone is a block of its own. */
    __device__ __forceinline__ void put(int state, int64_t i, double x) const {
        store_state<R>(t, state, 0, i, 0, (R)x, now.key);
    }
    __device__ __forceinline__ double average(double old, double mean) const {
        const double x = now.wide.beta2 * old + now.wide.beta2c * (mean + now.wide.eps);
        return adamod__saturated(x, t.state_type == ADAMOD_F64);
    }
    /* What the gradient of element i is multiplied by, times scale. */
    __device__ __forceinline__ R rate(int64_t i, double scale) const {
        if (!factored) return (R)scale / root_of(load_as<R>(t.state[1], t.state_type, i));
        const int64_t row = i / t.cols, matrix = row / t.rows;
        const R r = (R)(scale / sqrt(get(1, row) / means_of(v)[v.first_matrix[tensor] + matrix]));
        return r / root_of(load_as<R>(t.state[2], t.state_type, matrix * t.cols + i % t.cols));
    }
    /* The lesser of a rate and its running average, if there is one: the momental bound. */
    __device__ __forceinline__ R bound(R rate, int64_t block, uint32_t at) const {
        if (!t.state[3]) return rate;
        const R s = k.beta3 * load_as<R>(t.state[3], t.state_type, block + at) + k.beta3c * rate;
        store_state<R>(t, 3, 0, block, at, s, now.key);
        return s < rate ? s : rate;
    }
    static __device__ __forceinline__ float root_of(float x) { return sqrtf(x); }
    static __device__ __forceinline__ double root_of(double x) { return sqrt(x); }
};

/* A warp's sum of squares of f(i), first <= i < first + n, in the library's order; lane 0 has it. */
template <class F> static __device__ __forceinline__ double warp_squares(int64_t first, int n, F f) {
    double sum = 0;
    for (int i = (int)threadIdx.x % 32; i < n; i += 32) {
        const double x = (double)f(first + i);
        sum += x * x;
    }
    return sum_lanes(sum);
}

/* The sum over a chunk of f's squares, block by block; thread 0 has it. */
template <class R, class F> static __device__ double chunk_sum(const row_pass<R> &p, rounds<1> *shared, F f) {
    const int warps = (int)blockDim.x / 32, warp = (int)threadIdx.x / 32;
    double total = 0;
    int round = 0;
    for (int64_t at = p.first; at < p.last; at += warps * BLOCK, round++) {
        const int64_t begin = at + warp * BLOCK;
        double x[1] = {0};
        if (begin < p.last) x[0] = warp_squares(begin, p.last - begin < BLOCK ? (int)(p.last - begin) : (int)BLOCK, f);
        shared->gather(round, x, active_warps(at, p.last), [&](int, double y) { total += y; });
    }
    __syncthreads();
    return total;
}

/* ---- first pass: R, or v; and the sum of squares of the parameter ---- */

template <class R> static __device__ void update_rows(const row_pass<R> &p) {
    const int warps = ROW_THREADS / 32, warp = (int)threadIdx.x / 32;
    for (int64_t row = p.first / p.t.cols + warp; row < p.last / p.t.cols; row += warps) {
        double sum = 0;
        const int64_t end = (row + 1) * p.t.cols;
        for (int64_t at = row * p.t.cols; at < end;) {
            const int64_t block_end = p.first + ((at - p.first) / BLOCK + 1) * BLOCK;
            const int n = (int)((end < block_end ? end : block_end) - at);
            sum += warp_squares(at, n, [&](int64_t i) { return p.gradient(i); });
            at += n;
        }
        if (threadIdx.x % 32 == 0) p.put(1, row, p.average(p.get(1, row), sum / (double)p.t.cols));
    }
}

template <class R> static __device__ void update_v(const row_pass<R> &p) {
    for (int64_t i = p.first + threadIdx.x; i < p.last; i += ROW_THREADS) {
        const int64_t block = p.first + (i - p.first) / BLOCK * BLOCK;
        const double g = (double)p.gradient(i);
        store_state<R>(p.t, 1, 0, block, (uint32_t)(i - block), (R)p.average(p.get(1, i), g * g), p.now.key);
    }
}

template <class R> static __device__ void pass_rows(const view &v, piece c, rounds<1> *shared) {
    const row_pass<R> p(v, c);
    const double params = chunk_sum(p, shared, [&](int64_t i) { return load_param<R>(p.t, i); });
    if (p.factored) update_rows(p);
    else update_v(p);
    if (threadIdx.x == 0) v.partial[2 * blockIdx.x] = params;
}

static __global__ void __launch_bounds__(ROW_THREADS) rows_kernel(const __grid_constant__ view v) {
    __shared__ rounds<1> shared;
    const piece c = v.row_chunks[blockIdx.x];
    if (v.shared->skip || !v.tensors[c.tensor].g) return;
    if (v.tensors[c.tensor].p_type == ADAMOD_F64) pass_rows<double>(v, c, &shared);
    else pass_rows<float>(v, c, &shared);
}

/* ---- second pass: C, a thread for each column; and the mean of each matrix's R, a warp for each ---- */

template <class R> static __device__ void pass_column(const view &v, int64_t tensor, int64_t column) {
    const row_pass<R> p(v, piece{(uint32_t)tensor, 0});
    const int64_t matrix = column / p.t.cols;
    const int64_t from = matrix * p.t.rows * p.t.cols + column % p.t.cols;
    double sum = 0;
#pragma unroll 8
    for (int64_t row = 0; row < p.t.rows; row++) {
        const double x = (double)p.gradient(from + row * p.t.cols);
        sum += x * x;
    }
    p.put(2, column, p.average(p.get(2, column), sum / (double)p.t.rows));
}

static __global__ void __launch_bounds__(COLUMN_THREADS) columns_kernel(const __grid_constant__ view v) {
    const int64_t i = blockIdx.x * (int64_t)COLUMN_THREADS + threadIdx.x;
    if (v.shared->skip || i >= v.n_columns) return;
    const int64_t tensor = find_in(v.first_column, v.n, i);
    if (!v.tensors[tensor].g) return;
    if (v.tensors[tensor].p_type == ADAMOD_F64) pass_column<double>(v, tensor, i - v.first_column[tensor]);
    else pass_column<float>(v, tensor, i - v.first_column[tensor]);
}

template <class R> static __device__ double mean_row(const view &v, int64_t tensor, int64_t matrix) {
    const row_pass<R> p(v, piece{(uint32_t)tensor, 0});
    const int lane = (int)threadIdx.x % 32;
    double sum = 0;
    for (int64_t row = 0; row < p.t.rows; row += 32) {
        const int lanes = p.t.rows - row < 32 ? (int)(p.t.rows - row) : 32;
        sum = add_in_order(sum, lane < lanes ? p.get(1, matrix * p.t.rows + row + lane) : 0, lanes);
    }
    return sum / (double)p.t.rows;
}

static __global__ void __launch_bounds__(COLUMN_THREADS) means_kernel(const __grid_constant__ view v) {
    const int64_t i = (blockIdx.x * (int64_t)COLUMN_THREADS + threadIdx.x) / 32;
    if (v.shared->skip || i >= v.n_matrices) return;
    const int64_t tensor = find_in(v.first_matrix, v.n, i);
    if (!v.tensors[tensor].g) return;
    const int64_t matrix = i - v.first_matrix[tensor];
    const double mean = v.tensors[tensor].p_type == ADAMOD_F64 ? mean_row<double>(v, tensor, matrix)
                                                               : mean_row<float>(v, tensor, matrix);
    if (threadIdx.x % 32 == 0) means_of(v)[i] = mean;
}

/* ---- between the passes: a parameter's own coefficients ---- */

static __device__ double chunks_sum(const view &v, int64_t tensor, int which) {
    double sum = 0;
    for (int64_t i = v.first_row_chunk[tensor]; i < v.first_row_chunk[tensor + 1]; i++) sum += v.partial[2 * i + which];
    return sum;
}

/* lr and decay, from the root mean square of the parameter. */
static __global__ void learning_rates_kernel(const __grid_constant__ view v) {
    if (v.shared->skip) return;
    for (int64_t i = threadIdx.x; i < v.n; i += blockDim.x) {
        if (!v.tensors[i].g) continue;
        const double *o = v.effective + v.tensors[i].group * OPT_COUNT;
        const double rms = sqrt(chunks_sum(v, i, 0) / (double)v.tensors[i].count);
        adamod__coef_f64 *c = &v.now[i].wide;
        if (o[OPT_SCALE_PARAMETER] != 0) c->lr *= fmax(o[OPT_EPS2], rms);
        if (o[OPT_DECAY] == DECAY_DECOUPLED) c->decay = c->lr * o[OPT_WEIGHT_DECAY];
        v.now[i].narrow.decay = (float)c->decay;
    }
}

/* high: what u is to be multiplied by, from the root mean square of the update. */
static __global__ void clipping_kernel(const __grid_constant__ view v) {
    if (v.shared->skip) return;
    for (int64_t i = threadIdx.x; i < v.n; i += blockDim.x) {
        if (!v.tensors[i].g) continue;
        const double *o = v.effective + v.tensors[i].group * OPT_COUNT;
        const double rms = sqrt(chunks_sum(v, i, 1) / (double)v.tensors[i].count);
        adamod__coef_f64 *c = &v.now[i].wide;
        c->high = c->lr / fmax(1.0, rms / o[OPT_CLIP_THRESHOLD]);
    }
}

/* ---- third pass: the sum of squares of u ---- */

template <class R> static __device__ void pass_norm(const view &v, piece c, rounds<1> *shared) {
    const row_pass<R> p(v, c);
    const double sum = chunk_sum(p, shared, [&](int64_t i) { return p.gradient(i) * p.rate(i, 1); });
    if (threadIdx.x == 0) v.partial[2 * blockIdx.x + 1] = sum;
}

static __global__ void __launch_bounds__(ROW_THREADS) update_norm_kernel(const __grid_constant__ view v) {
    __shared__ rounds<1> shared;
    const piece c = v.row_chunks[blockIdx.x];
    if (v.shared->skip || !v.tensors[c.tensor].g) return;
    if (v.tensors[c.tensor].p_type == ADAMOD_F64) pass_norm<double>(v, c, &shared);
    else pass_norm<float>(v, c, &shared);
}

/* ---- fourth pass: the parameter ---- */

/* before: the parameter. */
template <class RULE>
static __device__ __forceinline__ element<typename RULE::R> apply(const row_pass<typename RULE::R> &p,
                                                                  const typename RULE::K &k, int64_t block, uint32_t at,
                                                                  typename RULE::R u, typename RULE::R *before) {
    typedef typename RULE::R R;
    const int64_t i = block + at;
    element<R> x = {};
    x.p = *before = load_param<R>(p.t, i);
    x.g = u;
    if (RULE::states & STATE_M) x.m = load_as<R>(p.t.state[0], p.t.state_type, i);
    x = update_element<RULE>(x, k);
    if (RULE::states & STATE_M) store_state<R>(p.t, 0, 0, block, at, x.m, p.now.key);
    store_param<R>(p.t, block, at, x.p, p.now.key);
    return x;
}

template <class RULE> static __device__ void pass_update(const view &v, piece c) {
    typedef typename RULE::R R;
    const row_pass<R> p(v, c);
    for (int64_t i = p.first + threadIdx.x; i < p.last; i += ROW_THREADS) {
        const int64_t block = p.first + (i - p.first) / BLOCK * BLOCK;
        R before;
        const uint32_t at = (uint32_t)(i - block);
        apply<RULE>(p, p.k, block, at, p.gradient(i) * p.bound(p.rate(i, p.now.wide.high), block, at), &before);
    }
}

static __global__ void __launch_bounds__(ROW_THREADS) update_kernel(const __grid_constant__ view v) {
    const piece c = v.row_chunks[blockIdx.x];
    const device_tensor &t = v.tensors[c.tensor];
    if (v.shared->skip || !t.g) return;
    if (t.p_type == ADAMOD_F64) {
        if (t.variant) pass_update<adafactor_momentum_rule_f64>(v, c);
        else pass_update<adafactor_rule_f64>(v, c);
    } else {
        if (t.variant) pass_update<adafactor_momentum_rule_f32>(v, c);
        else pass_update<adafactor_rule_f32>(v, c);
    }
}

/* The same with statistics. */
template <class RULE>
static __device__ void pass_collect(const view &v, piece c, shared_counts *counts, rounds<2> *shared) {
    typedef typename RULE::R R;
    const row_pass<R> p(v, c);
    const int warps = ROW_THREADS / 32, warp = (int)threadIdx.x / 32, lane = (int)threadIdx.x % 32;
    double grads = 0, updates = 0;
    int round = 0;
    extremes seen;
    counts->clear();
    for (int64_t at = p.first; at < p.last; at += warps * BLOCK, round++) {
        const int64_t block = at + warp * BLOCK;
        double sum[2] = {0, 0};
        for (int r = 0; r < BLOCK && block + r < p.last; r += 32) {
            const int lanes = p.last - block - r < 32 ? (int)(p.last - block - r) : 32;
            double distance = 0;
            if (lane < lanes) {
                const R g = p.gradient(block + r + lane), rate = p.rate(block + r + lane, p.now.wide.high);
                R before;
                sum[0] += (double)g * (double)g;
                const R step = p.bound(rate, block, (uint32_t)(r + lane));
                const element<R> x = apply<RULE>(p, p.k, block, (uint32_t)(r + lane), g * step, &before);
                distance = (double)x.p - (double)before;
                counts->add(v, &seen, (double)rate, (double)step, false);
                counts->look(x.p, x.m, x.v, x.s, x.t, x.u);
            }
            sum[1] = add_in_order(sum[1], distance * distance, lanes);
        }
        sum[0] = sum_lanes(sum[0]);
        shared->gather(round, sum, active_warps(at, p.last), [&](int j, double y) {
            if (j == 0) grads += y;
            else updates += y;
        });
    }
    counts->flush(seen, &v.counts[p.t.group]);
    if (threadIdx.x != 0) return;
    v.row_sums[2 * blockIdx.x] = grads;
    v.row_sums[2 * blockIdx.x + 1] = updates;
}

static __global__ void __launch_bounds__(ROW_THREADS) collect_kernel(const __grid_constant__ view v) {
    __shared__ shared_counts counts;
    __shared__ rounds<2> shared;
    const piece c = v.row_chunks[blockIdx.x];
    const device_tensor &t = v.tensors[c.tensor];
    if (v.shared->skip) return;
    if (!t.g) {
        if (threadIdx.x == 0) v.row_sums[2 * blockIdx.x] = v.row_sums[2 * blockIdx.x + 1] = 0;
    } else if (t.p_type == ADAMOD_F64) {
        if (t.variant) pass_collect<adafactor_momentum_rule_f64>(v, c, &counts, &shared);
        else pass_collect<adafactor_rule_f64>(v, c, &counts, &shared);
    } else {
        if (t.variant) pass_collect<adafactor_momentum_rule_f32>(v, c, &counts, &shared);
        else pass_collect<adafactor_rule_f32>(v, c, &counts, &shared);
    }
}

static void run(const view *v, int collect, cudaStream_t stream) {
    const unsigned chunks = (unsigned)v->n_row_chunks;
    if (chunks == 0) return;
    rows_kernel<<<chunks, ROW_THREADS, 0, stream>>>(*v);
    if (v->n_columns > 0) {
        const int64_t column_blocks = (v->n_columns + COLUMN_THREADS - 1) / COLUMN_THREADS;
        const int64_t mean_blocks = (v->n_matrices * 32 + COLUMN_THREADS - 1) / COLUMN_THREADS;
        columns_kernel<<<(unsigned)column_blocks, COLUMN_THREADS, 0, stream>>>(*v);
        means_kernel<<<(unsigned)mean_blocks, COLUMN_THREADS, 0, stream>>>(*v);
    }
    learning_rates_kernel<<<1, 256, 0, stream>>>(*v);
    update_norm_kernel<<<chunks, ROW_THREADS, 0, stream>>>(*v);
    clipping_kernel<<<1, 256, 0, stream>>>(*v);
    if (collect) collect_kernel<<<chunks, ROW_THREADS, 0, stream>>>(*v);
    else update_kernel<<<chunks, ROW_THREADS, 0, stream>>>(*v);
}

extern const cuda_driver cuda_adafactor_driver;
const cuda_driver cuda_adafactor_driver = {run, UINT32_MAX, true, workspace};
