/* Adafactor's driver, in the passes of rules/adafactor.c over chunks of whole rows: R or v, and the size of the parameter;
 * C, the mean of each matrix's R, and the root by which R of each row is divided; the size of the update; the parameter.
 * Sums are in the library's order: warps store those of blocks, which are then added in order. */
#include "kernels/cuda/collect.cuh"
#include "kernels/cuda/formulas.cuh"
#include "kernels/cuda/joins.cuh"

#include <float.h>
#include <type_traits>

enum { THREADS = 256, WARPS = THREADS / 32 };
enum { NARROW = 8 };                 /* a thread takes a row of up to NARROW columns, else a warp */
enum { WIDE = 4096 };                /* a block of threads takes a row of more columns */
enum { EACH = 8, PART = 32 * EACH }; /* elements that a lane loads at a time, and a warp */
static_assert(BLOCK % PART == 0 && STRIP == 32, "a block is whole parts, a strip a warp");

/* The workspace: for each row, the root of R over its mean. */
static __device__ __forceinline__ double *roots_of(const view &v, int64_t tensor) {
    return (double *)v.workspace + v.first_row[tensor];
}

static int64_t workspace(const device_layout *l) {
    int64_t rows = 0;
    for (int64_t i = 0; i < l->n; i++) rows += rows_of(&l->tensors[i]);
    return rows * (int64_t)sizeof(double);
}

static __device__ __forceinline__ float root_of(float x) { return sqrtf(x); }
static __device__ __forceinline__ double root_of(double x) { return sqrt(x); }
static __device__ __forceinline__ float finite_of(float rate) { return rate > FLT_MAX ? FLT_MAX : rate; }
static __device__ __forceinline__ double finite_of(double rate) { return rate > DBL_MAX ? DBL_MAX : rate; }

/* 32-bit division is faster, and enough for most arrays. Others have fewer than 2^53 elements, so that the quotient of
 * doubles is at most one off. */
static __device__ __forceinline__ int64_t divide(int64_t a, int64_t b, int64_t *rest) {
    if (((uint64_t)a | (uint64_t)b) >> 32) {
        int64_t q = (int64_t)((double)a / (double)b), r = a - q * b;
        if (r < 0) q--, r += b;
        else if (r >= b) q++, r -= b;
        *rest = r;
        return q;
    }
    *rest = (int64_t)((uint32_t)a % (uint32_t)b);
    return (int64_t)((uint32_t)a / (uint32_t)b);
}

/* Types known only at run time. Not inlined, since there would be too many copies. */
template <class R> static __device__ __noinline__ R load_any(const void *array, int type, int64_t i) {
    return load_as<R>(array, type, i);
}
template <class R> static __device__ __noinline__ R param_any(const device_tensor *t, int64_t i) {
    return load_param<R>(*t, i);
}
template <class R>
static __device__ __noinline__ void store_any(const device_tensor *t, int which, int64_t block, uint32_t at, R x,
                                              uint64_t key) {
    if (which < 0) store_param<R>(*t, block, at, x, key);
    else store_state<R>(*t, which, 0, block, at, x, key);
}

/* ---- a chunk ---- */

/* Each way to read arrays has its own launches, which skip tensors of the other ways. */
enum { WAY_F64, WAY_F32, WAY_MASTER, WAY_BF16, WAY_ANY, WAYS };

static __host__ __device__ constexpr int way_of(bool f64, int path) {
    return f64                   ? WAY_F64
           : path == PATH_F32    ? WAY_F32
           : path == PATH_MASTER ? WAY_MASTER
           : path == PATH_BF16   ? WAY_BF16
                                 : WAY_ANY;
}
static __host__ __device__ inline int way_of(const device_tensor *t) {
    return way_of(t->p_type == ADAMOD_F64, t->path);
}

/* A chunk as a block of threads sees it. PATH: how its arrays are read, known at compile time so that loads run together. */
template <class R, int PATH> struct row_pass {
    typedef R real_type;
    enum { way = way_of(sizeof(R) == 8, PATH) };
    const view &v;
    const device_tensor t; /* a copy, which stores cannot alias */
    const typename real<R>::coef k;
    const array_step &now;
    uint64_t key;
    int64_t tensor;
    bool transform, factored;
    int64_t first, last;
    int64_t blocks; /* index of its first sum of a block */

    __device__ row_pass(const view &all, int64_t chunk)
        : v(all), t(all.tensors[all.row_chunks[chunk].tensor]), k(real<R>::of(all.now[all.row_chunks[chunk].tensor])),
          now(all.now[all.row_chunks[chunk].tensor]), key(now.key), tensor(all.row_chunks[chunk].tensor),
          transform(now.transform), factored(t.cols > 0) {
        const int64_t size = row_chunk(&t, v.chunk);
        first = all.row_chunks[chunk].index * size;
        last = first + size < t.count ? first + size : t.count;
        blocks = first_block(v, tensor, first, chunk);
    }

    static __device__ __forceinline__ R load(const void *array, int type, int64_t i, bool bf16) {
        if (PATH == PATH_ANY) return load_any<R>(array, type, i);
        return bf16 ? (R)bf16_to_f32(((const uint16_t *)array)[i]) : (R)((const float *)array)[i];
    }
    /* The gradient in memory, and as the rule sees it. */
    __device__ __forceinline__ R raw(int64_t i) const {
        return load(t.g, t.g_type, i, PATH == PATH_MASTER || PATH == PATH_BF16);
    }
    __device__ __forceinline__ R shape(R x, int64_t i) const {
        return shape_gradient(x, k.l2 != 0 ? param(i) : (R)0, k, transform);
    }
    __device__ __forceinline__ R param(int64_t i) const {
        if (PATH == PATH_MASTER) return (R)follow_bf16(t.master[i], bf16_to_f32(((const uint16_t *)t.p)[i]));
        return PATH == PATH_ANY ? param_any<R>(&v.tensors[tensor], i) : load(t.p, t.p_type, i, PATH == PATH_BF16);
    }
    __device__ __forceinline__ R state(int which, int64_t i) const {
        return load(t.state[which], t.state_type, i, PATH == PATH_BF16);
    }
    __device__ __forceinline__ double get(int which, int64_t i) const { return (double)state(which, i); }
    /* Element at of a block. */
    __device__ __forceinline__ void store(int which, int64_t block, uint32_t at, R x) const {
        if (PATH == PATH_ANY || PATH == PATH_BF16) store_any<R>(&v.tensors[tensor], which, block, at, x, key);
        else ((R *)t.state[which])[block + at] = x;
    }
    __device__ __forceinline__ void store_parameter(int64_t block, uint32_t at, R x) const {
        if (PATH == PATH_F32) {
            ((R *)t.p)[block + at] = x;
        } else if (PATH == PATH_MASTER) {
            t.master[block + at] = (float)x;
            ((uint16_t *)t.p)[block + at] = f32_to_bf16((float)x, to_nearest((float)x));
        } else {
            store_any<R>(&v.tensors[tensor], -1, block, at, x, key);
        }
    }
    /* A number written alone is a block of its own. */
    __device__ __forceinline__ void put(int which, int64_t i, double x) const { store(which, i, 0, (R)x); }
    /* The row of an element. */
    __device__ __forceinline__ int64_t row_of(int64_t i) const {
        int64_t column;
        return divide(i, t.cols, &column);
    }
    __device__ __forceinline__ double average(double old, double mean) const {
        const double x = now.wide.beta2 * old + now.wide.beta2c * (mean + now.wide.eps);
        return adamod__saturated(x, t.state_type == ADAMOD_F64);
    }
    /* The momental bound: the lesser of a rate and its running average, if there is one. g: the gradient. */
    __device__ __forceinline__ R bound(R rate, R g, int64_t block, uint32_t at) const {
        if (!t.state[3]) return rate;
        const R before = state(3, block + at), size = g < 0 ? -g : g;
        const R s = size + before <= k.idle ? (R)0 : k.beta3 * before + k.beta3c * rate;
        store(3, block, at, s);
        return s < rate ? s : rate;
    }

    /* Factors of gradients, times scale, for a lane's elements i, i + 32, ... before end. The warp's elements begin at i
     * minus the lane's number. */
    __device__ __forceinline__ void rates(R (&rate)[EACH], int64_t i, int64_t end, double scale) const {
        if (!factored) rates_of_v(rate, i, end, (R)scale);
        else rates_of_rows(rate, i, end, scale);
    }

    /* The factor of one element. */
    __device__ __forceinline__ R rate_of(int64_t i, double scale) const {
        if (!factored) return finite_of((R)scale / root_of(state(1, i)));
        int64_t column, in_matrix;
        const int64_t row = divide(i, t.cols, &column), matrix = divide(row, t.rows, &in_matrix);
        return finite_of((R)(scale / roots_of(v, tensor)[row]) / root_of(state(2, matrix * t.cols + column)));
    }

  private:
    __device__ __forceinline__ void rates_of_v(R (&rate)[EACH], int64_t i, int64_t end, R scale) const {
#pragma unroll
        for (int r = 0; r < EACH; r++) rate[r] = i + 32 * r < end ? state(1, i + 32 * r) : (R)1;
#pragma unroll
        for (int r = 0; r < EACH; r++) rate[r] = finite_of(scale / root_of(rate[r]));
    }
    __device__ __forceinline__ void rates_of_rows(R (&rate)[EACH], int64_t i, int64_t end, double scale) const {
        const double *roots = roots_of(v, tensor);
        const int lane = (int)threadIdx.x % 32;
        int64_t column, in_matrix;
        int64_t row = divide(i - lane, t.cols, &column), matrix = divide(row, t.rows, &in_matrix);
        if (column + PART <= t.cols) { /* all in one row */
            const R r1 = (R)(scale / roots[row]);
            const int64_t from = matrix * t.cols + column + lane;
#pragma unroll
            for (int r = 0; r < EACH; r++) rate[r] = i + 32 * r < end ? state(2, from + 32 * r) : (R)1;
#pragma unroll
            for (int r = 0; r < EACH; r++) rate[r] = finite_of(r1 / root_of(rate[r]));
            return;
        }
        double root[EACH];
#pragma unroll
        for (int r = 0; r < EACH; r++) {
            root[r] = 1;
            rate[r] = 1;
            if (i + 32 * r >= end) continue;
            row = divide(i + 32 * r, t.cols, &column);
            matrix = divide(row, t.rows, &in_matrix);
            root[r] = roots[row];
            rate[r] = state(2, matrix * t.cols + column);
        }
#pragma unroll
        for (int r = 0; r < EACH; r++) rate[r] = finite_of((R)(scale / root[r]) / root_of(rate[r]));
    }
};

typedef row_pass<double, PATH_ANY> pass_f64;
typedef row_pass<float, PATH_F32> pass_f32;
typedef row_pass<float, PATH_MASTER> pass_master;
typedef row_pass<float, PATH_BF16> pass_bf16;
typedef row_pass<float, PATH_ANY> pass_any;

template <class P> static __device__ __forceinline__ bool takes(const view &v, int64_t chunk) {
    const device_tensor &t = v.tensors[v.row_chunks[chunk].tensor];
    return !v.shared->skip && t.g && way_of(&t) == P::way;
}

/* A warp's sum of squares of n <= BLOCK elements of load and shape, in the library's order; lane 0 has it. */
template <class R, class LOAD, class SHAPE>
static __device__ __forceinline__ double warp_squares(int64_t first, int n, LOAD load, SHAPE shape) {
    const int lane = (int)threadIdx.x % 32;
    double sum = 0;
#pragma unroll
    for (int from = 0; from < BLOCK; from += 2 * PART) {
        R x[2 * EACH];
#pragma unroll
        for (int r = 0; r < 2 * EACH; r++) {
            const int at = from + 32 * r + lane;
            x[r] = at < n ? load(first + at) : (R)0;
        }
#pragma unroll
        for (int r = 0; r < 2 * EACH; r++) {
            const int at = from + 32 * r + lane;
            if (at < n) sum = add_square(sum, shape(x[r], first + at));
        }
    }
    return sum_lanes(sum);
}

template <class P> static __device__ __forceinline__ double gradient_squares(const P &p, int64_t first, int n) {
    return warp_squares<typename P::real_type>(
        first, n, [&](int64_t i) { return p.raw(i); },
        [&](typename P::real_type x, int64_t i) { return p.shape(x, i); });
}

/* Blocks of threads for a chunk. */
static int tiles_of(const view *v) { return (int)((v->chunk + WARPS * BLOCK - 1) / (WARPS * BLOCK)); }

/* Calls body(first element, elements, number in the chunk) for each block of elements that this warp takes. */
template <class P, class BODY>
static __device__ __forceinline__ void each_block(const P &p, int tile, int tiles, BODY body) {
    for (int64_t b = (int64_t)tile * WARPS + threadIdx.x / 32; p.first + b * BLOCK < p.last; b += tiles * WARPS) {
        const int64_t begin = p.first + b * BLOCK;
        body(begin, p.last - begin < BLOCK ? (int)(p.last - begin) : (int)BLOCK, b);
    }
}

/* ---- first pass: R, or v; and the sum of squares of the parameter ---- */

/* Sums n <= NARROW elements in one thread, in the order of sum_lanes. */
template <class P> static __device__ __forceinline__ double few_squares(const P &p, int64_t first, int n) {
    double c[NARROW];
#pragma unroll
    for (int j = 0; j < NARROW; j++) c[j] = j < n ? add_square(0.0, p.shape(p.raw(first + j), first + j)) : 0;
    return ((c[0] + c[1]) + (c[2] + c[3])) + ((c[4] + c[5]) + (c[6] + c[7]));
}

/* Elements from at on that lie in the same block of the chunk, and before end. */
template <class P> static __device__ __forceinline__ int left_in_block(const P &p, int64_t at, int64_t end) {
    const int64_t block_end = p.first + ((at - p.first) / BLOCK + 1) * BLOCK;
    return (int)((end < block_end ? end : block_end) - at);
}

template <class P> static __device__ __forceinline__ void put_row(const P &p, int64_t row, double sum) {
    p.put(1, row, p.average(p.get(1, row), sum / (double)p.t.cols));
}

/* squares(at, n) sums n elements from at on, within a block. Rows begin, begin + step, ... of the chunk. */
template <class P, class SQUARES>
static __device__ __forceinline__ void each_row(const P &p, int64_t begin, int step, bool puts, SQUARES squares) {
    const int64_t last = p.row_of(p.last);
    for (int64_t row = p.row_of(p.first) + begin; row < last; row += step) {
        const int64_t end = (row + 1) * p.t.cols;
        double sum = 0;
        for (int64_t at = row * p.t.cols; at < end;) {
            const int n = left_in_block(p, at, end);
            sum += squares(at, n);
            at += n;
        }
        if (puts) put_row(p, row, sum);
    }
}

/* A row's parts within a block of the chunk, a warp for each; thread 0 adds them up. */
template <class P>
static __device__ __forceinline__ void wide_rows(const P &p, int tile, int tiles, rounds<1> *shared) {
    const int64_t last = p.row_of(p.last);
    const int warp = (int)threadIdx.x / 32;
    int round = 0;
    for (int64_t row = p.row_of(p.first) + tile; row < last; row += tiles) {
        const int64_t begin = row * p.t.cols, end = begin + p.t.cols;
        const int64_t blocks = begin + left_in_block(p, begin, end) - BLOCK; /* of whole ones, and before */
        double sum = 0;
        for (int64_t from = blocks; from < end; from += WARPS * BLOCK, round++) {
            const int64_t block = from + warp * BLOCK, at = block < begin ? begin : block;
            double x[1] = {0};
            if (at < end) x[0] = gradient_squares(p, at, left_in_block(p, at, end));
            shared->gather(round, x, active_warps(from, end), [&](int, double y) { sum += y; });
        }
        if (threadIdx.x == 0) put_row(p, row, sum);
    }
}

template <class P> static __device__ __forceinline__ void update_v(const P &p, int64_t block, int n) {
    typedef typename P::real_type R;
    for (int at = (int)threadIdx.x % 32; at < n; at += 32) {
        const double g = (double)p.shape(p.raw(block + at), block + at);
        p.store(1, block, (uint32_t)at, (R)p.average(p.get(1, block + at), g * g));
    }
}

template <class P>
static __device__ __forceinline__ void pass_rows(const P &p, int tile, int tiles, rounds<1> *shared) {
    typedef typename P::real_type R;
    each_block(p, tile, tiles, [&](int64_t block, int n, int64_t number) {
        const double sum = warp_squares<R>(
            block, n, [&](int64_t i) { return p.param(i); }, [](R x, int64_t) { return x; });
        if (threadIdx.x % 32 == 0) p.v.block_sums[2 * (p.blocks + number)] = sum;
        if (!p.factored) update_v(p, block, n);
    });
    if (!p.factored) return;
    if (p.t.cols <= NARROW)
        each_row(p, tile * THREADS + threadIdx.x, tiles * THREADS, true,
                 [&](int64_t at, int n) { return few_squares(p, at, n); });
    else if (p.t.cols <= WIDE)
        each_row(p, tile * WARPS + threadIdx.x / 32, tiles * WARPS, threadIdx.x % 32 == 0,
                 [&](int64_t at, int n) { return gradient_squares(p, at, n); });
    else wide_rows(p, tile, tiles, shared);
}

template <class P>
static __global__ void __launch_bounds__(THREADS, 3) rows_kernel(const __grid_constant__ view v, int tiles) {
    __shared__ rounds<1> shared;
    const int64_t chunk = blockIdx.x / (unsigned)tiles;
    if (takes<P>(v, chunk)) pass_rows(P(v, chunk), (int)(blockIdx.x % (unsigned)tiles), tiles, &shared);
}

/* ---- second pass: C; of each row, the root of R over the mean of its matrix; and the size of the parameter ---- */

template <class P> static __device__ __forceinline__ void put_column(const P &p, int64_t column, double sum) {
    p.put(2, column, p.average(p.get(2, column), sum / (double)p.t.rows));
}

/* STRIP columns of a large matrix: all warps load, two tiles ahead, and store squares; one adds them, row by row. */
enum { DEEP = 8, STRIP_ROWS = WARPS * DEEP };
typedef double strip_tile[STRIP_ROWS][STRIP];

template <class P> struct strip_columns {
    typedef typename P::real_type R;
    const P &p;
    strip_tile *tiles;
    int lane, warp;
    bool adds;
    int64_t column, from, rows;
    double sum = 0;

    __device__ strip_columns(const P &pass, int64_t strip, strip_tile *memory)
        : p(pass), tiles(memory), lane((int)threadIdx.x % 32), warp((int)threadIdx.x / 32),
          adds(warp == (int)(strip % WARPS)), /* not always in the same quarter of a multiprocessor */
          column(strip * STRIP + lane) {
        int64_t in_row;
        const int64_t matrix = divide(column, p.t.cols, &in_row);
        from = matrix * p.t.rows * p.t.cols + in_row;
        rows = column * p.t.rows < p.t.count ? p.t.rows : 0;
    }
    __device__ __forceinline__ void ask(R (&x)[DEEP], int64_t first) const {
#pragma unroll
        for (int j = 0; j < DEEP; j++) {
            const int64_t row = first + warp * DEEP + j;
            x[j] = row < rows ? p.raw(from + row * p.t.cols) : (R)0;
        }
    }
    /* Adds the rows from first on, which x holds; then loads more. */
    __device__ __forceinline__ void add(R (&x)[DEEP], int64_t first, int tile) {
#pragma unroll
        for (int j = 0; j < DEEP; j++) {
            const int64_t row = first + warp * DEEP + j;
            const double y = row < rows ? (double)p.shape(x[j], from + row * p.t.cols) : 0;
            tiles[tile][warp * DEEP + j][lane] = y * y;
        }
        __syncthreads(); /* and no thread still reads what the next loads replace */
        ask(x, first + 2 * STRIP_ROWS);
        if (!adds) return;
        if (p.t.rows - first >= STRIP_ROWS) {
#pragma unroll
            for (int j = 0; j < STRIP_ROWS; j++) sum += tiles[tile][j][lane];
        } else {
            for (int j = 0; j < (int)(p.t.rows - first); j++) sum += tiles[tile][j][lane];
        }
    }
    __device__ __forceinline__ void run() {
        R even[DEEP], odd[DEEP];
        ask(even, 0);
        ask(odd, STRIP_ROWS);
        for (int64_t first = 0; first < p.t.rows; first += 2 * STRIP_ROWS) {
            add(even, first, 0);
            if (first + STRIP_ROWS < p.t.rows) add(odd, first + STRIP_ROWS, 1);
        }
        if (adds && rows > 0) put_column(p, column, sum);
    }
};

/* The matrices that begin in a chunk. */
template <class P> struct matrices_in {
    int64_t first, last;
    __device__ explicit matrices_in(const P &p) {
        int64_t rest;
        first = divide(p.row_of(p.first) + p.t.rows - 1, p.t.rows, &rest);
        last = divide(p.row_of(p.last) + p.t.rows - 1, p.t.rows, &rest);
    }
};

template <class P> static __device__ __forceinline__ double row_root(const P &p, int64_t row, double mean) {
    return sqrt(p.get(1, row) / mean);
}

/* Small matrices: a thread takes one, or a column. */
template <class P> static __device__ __forceinline__ void small_matrices(const P &p) {
    const matrices_in<P> all(p);
    for (int64_t m = all.first + threadIdx.x; m < all.last; m += THREADS) {
        const int64_t begin = m * p.t.rows, end = begin + p.t.rows;
        double sum = 0;
        for (int64_t row = begin; row < end; row++) sum += p.get(1, row);
        const double mean = sum / (double)p.t.rows;
        for (int64_t row = begin; row < end; row++) roots_of(p.v, p.tensor)[row] = row_root(p, row, mean);
    }
    for (int64_t c = all.first * p.t.cols + threadIdx.x; c < all.last * p.t.cols; c += THREADS) {
        int64_t in_row;
        const int64_t matrix = divide(c, p.t.cols, &in_row), from = matrix * p.t.rows * p.t.cols + in_row;
        double sum = 0;
#pragma unroll 4
        for (int64_t row = 0; row < p.t.rows; row++) {
            const int64_t i = from + row * p.t.cols;
            sum = add_square(sum, p.shape(p.raw(i), i));
        }
        put_column(p, c, sum);
    }
}

/* Other matrices: a warp adds up R of one, and a block of threads takes the roots. */
template <class P> static __device__ __forceinline__ void large_matrices(const P &p, double *numbers) {
    __shared__ double means[WARPS];
    const matrices_in<P> all(p);
    const int warp = (int)threadIdx.x / 32;
    for (int64_t m = all.first; m < all.last; m += WARPS) {
        const int64_t own = (m + warp) * p.t.rows;
        if (m + warp < all.last) {
            const double sum =
                sum_in_order(p.t.rows, numbers + warp * ORDERED, [&](int64_t row) { return p.get(1, own + row); });
            if (threadIdx.x % 32 == 0) means[warp] = sum / (double)p.t.rows;
        }
        __syncthreads();
        const int64_t begin = m * p.t.rows;
        const int64_t rows = (all.last - m < WARPS ? all.last - m : (int64_t)WARPS) * p.t.rows;
        for (int64_t row = threadIdx.x; row < rows; row += THREADS) {
            int64_t rest;
            roots_of(p.v, p.tensor)[begin + row] = row_root(p, begin + row, means[divide(row, p.t.rows, &rest)]);
        }
        __syncthreads(); /* means may be used again */
    }
}

/* Blocks of threads for chunks come first, since one of them may take long; then those for strips. */
template <class P> static __global__ void __launch_bounds__(THREADS, 3) columns_kernel(const __grid_constant__ view v) {
    __shared__ strip_tile memory[2];
    static_assert(sizeof memory >= WARPS * ORDERED * sizeof(double), "for either");
    const int64_t strip = (int64_t)blockIdx.x - v.n_row_chunks;
    const int64_t tensor = strip < 0 ? v.row_chunks[blockIdx.x].tensor : find_in(v.first_strip, v.n, strip);
    const int64_t chunk = strip < 0 ? (int64_t)blockIdx.x : v.first_row_chunk[tensor];
    if (v.tensors[tensor].cols == 0 || !takes<P>(v, chunk)) return;
    const P p(v, chunk);
    if (strip >= 0) strip_columns<P>(p, strip - v.first_strip[tensor], memory).run();
    else if (strips_of(&p.t) > 0) large_matrices(p, (double *)memory);
    else small_matrices(p);
}

/* ---- third pass: the sum of squares of u ---- */

template <class P> static __device__ __forceinline__ double update_squares(const P &p, int64_t block, int n) {
    typedef typename P::real_type R;
    const int lane = (int)threadIdx.x % 32;
    const int64_t end = block + n;
    double sum = 0;
    for (int64_t i = block + lane; i - lane < end; i += PART) {
        R g[EACH], rate[EACH];
#pragma unroll
        for (int r = 0; r < EACH; r++) g[r] = i + 32 * r < end ? p.raw(i + 32 * r) : (R)0;
        p.rates(rate, i, end, 1);
#pragma unroll
        for (int r = 0; r < EACH; r++) {
            if (i + 32 * r < end) sum = add_square(sum, p.shape(g[r], i + 32 * r) * rate[r]);
        }
    }
    return sum_lanes(sum);
}

template <class P>
static __global__ void __launch_bounds__(THREADS, 4) update_norm_kernel(const __grid_constant__ view v, int tiles) {
    const int64_t chunk = blockIdx.x / (unsigned)tiles;
    if (!takes<P>(v, chunk)) return;
    const P p(v, chunk);
    each_block(p, (int)(blockIdx.x % (unsigned)tiles), tiles, [&](int64_t block, int n, int64_t number) {
        const double sum = update_squares(p, block, n);
        if (threadIdx.x % 32 == 0) v.block_sums[2 * (p.blocks + number) + 1] = sum;
    });
}

/* ---- between the passes ---- */

/* Both sums of a chunk, by a warp. */
static __global__ void __launch_bounds__(THREADS) join_kernel(const __grid_constant__ view v) {
    __shared__ double numbers[WARPS][ORDERED];
    const int64_t chunk = blockIdx.x * (int64_t)WARPS + threadIdx.x / 32;
    if (v.shared->skip || chunk >= v.n_row_chunks) return;
    const piece c = v.row_chunks[chunk];
    const device_tensor &t = v.tensors[c.tensor];
    const int64_t size = row_chunk(&t, v.chunk), first = c.index * size;
    join_blocks(v, c.tensor, chunk, first, first + size < t.count ? first + size : t.count, numbers[threadIdx.x / 32]);
}

/* Coefficients of a parameter, by a warp: lr and decay from the root mean square of the parameter; high, the factor of u,
 * from that of the update. */
static __global__ void __launch_bounds__(THREADS) coefficients_kernel(const __grid_constant__ view v) {
    __shared__ double numbers[WARPS][ORDERED];
    const int64_t i = blockIdx.x * (int64_t)WARPS + threadIdx.x / 32;
    if (v.shared->skip || i >= v.n || !v.tensors[i].g) return;
    const double count = (double)v.tensors[i].count;
    double sum[2];
    join_chunks(v, v.first_row_chunk[i], v.first_row_chunk[i + 1], numbers[threadIdx.x / 32], sum);
    if (threadIdx.x % 32 != 0) return;
    const double *o = v.effective + v.tensors[i].group * OPT_COUNT;
    adamod__coef_f64 *c = &v.now[i].wide;
    if (o[OPT_SCALE_PARAMETER] != 0) c->lr *= fmax(o[OPT_EPS2], sqrt(sum[0] / count));
    if (o[OPT_DECAY] == DECAY_DECOUPLED) c->decay = c->lr * o[OPT_WEIGHT_DECAY];
    v.now[i].narrow.decay = (float)c->decay;
    c->high = c->lr / fmax(1.0, sqrt(sum[1] / count) / o[OPT_CLIP_THRESHOLD]);
}

/* ---- fourth pass: the parameter ---- */

/* Updates element at of a block by u; m is its average before. */
template <class RULE, class P>
static __device__ __forceinline__ element<typename RULE::R> apply(const P &p, int64_t block, uint32_t at,
                                                                  typename RULE::R before, typename RULE::R m,
                                                                  typename RULE::R u) {
    typedef typename RULE::R R;
    element<R> x = {};
    x.p = before;
    x.g = u;
    x.m = m;
    x = update_element<RULE>(x, p.k);
    if (RULE::states & STATE_M) p.store(0, block, at, x.m);
    p.store_parameter(block, at, x.p);
    return x;
}

template <class RULE, class P> static __device__ __forceinline__ void update_block(const P &p, int64_t block, int n) {
    typedef typename RULE::R R;
    const int lane = (int)threadIdx.x % 32;
    const int64_t end = block + n;
    for (int64_t i = block + lane; i - lane < end; i += PART) {
        R g[EACH], x[EACH], m[EACH], rate[EACH];
#pragma unroll
        for (int r = 0; r < EACH; r++) {
            const int64_t e = i + 32 * r;
            g[r] = e < end ? p.raw(e) : (R)0;
            x[r] = e < end ? p.param(e) : (R)0;
            m[r] = (RULE::states & STATE_M) && e < end ? p.state(0, e) : (R)0;
        }
        p.rates(rate, i, end, p.now.wide.high);
#pragma unroll
        for (int r = 0; r < EACH; r++) {
            const int64_t e = i + 32 * r;
            if (e >= end) continue;
            const R shaped = shape_gradient(g[r], x[r], p.k, p.transform);
            const uint32_t at = (uint32_t)(e - block);
            apply<RULE>(p, block, at, x[r], m[r], shaped * p.bound(rate[r], shaped, block, at));
        }
    }
}

template <class R> struct rules {
    enum { f32 = sizeof(R) == 4 };
    typedef typename std::conditional<f32, adafactor_rule_f32, adafactor_rule_f64>::type plain;
    typedef typename std::conditional<f32, adafactor_momentum_rule_f32, adafactor_momentum_rule_f64>::type momentum;
};

template <class P>
static __global__ void __launch_bounds__(THREADS, 3) update_kernel(const __grid_constant__ view v, int tiles) {
    typedef rules<typename P::real_type> rule;
    const int64_t chunk = blockIdx.x / (unsigned)tiles;
    if (!takes<P>(v, chunk)) return;
    const P p(v, chunk);
    each_block(p, (int)(blockIdx.x % (unsigned)tiles), tiles, [&](int64_t block, int n, int64_t) {
        if (p.t.variant) update_block<typename rule::momentum>(p, block, n);
        else update_block<typename rule::plain>(p, block, n);
    });
}

/* The update with statistics: a block of threads takes a chunk. */
template <class RULE, class P>
static __device__ void pass_collect(const P &p, shared_counts *counts, rounds<2> *shared) {
    typedef typename RULE::R R;
    double *to = p.v.row_sums + 2 * blockIdx.x;
    collect_elements<R>(p.v, p.t.group, p.first, p.last, counts, shared, to, [&](int64_t block, uint32_t at) {
        const R before = p.param(block + at), m = RULE::states & STATE_M ? p.state(0, block + at) : (R)0;
        const R g = shape_gradient(p.raw(block + at), before, p.k, p.transform);
        const R rate = p.rate_of(block + at, p.now.wide.high), step = p.bound(rate, g, block, at);
        element<R> x = apply<RULE>(p, block, at, before, m, g * step);
        x.eta = rate;
        x.step = step;
        return collected<R>{x, before, g, false};
    });
}

template <class P>
static __device__ __forceinline__ void collect_chunk(const P &p, shared_counts *counts, rounds<2> *shared) {
    typedef rules<typename P::real_type> rule;
    if (p.t.variant) pass_collect<typename rule::momentum>(p, counts, shared);
    else pass_collect<typename rule::plain>(p, counts, shared);
}

static __global__ void __launch_bounds__(THREADS) collect_kernel(const __grid_constant__ view v) {
    __shared__ shared_counts counts;
    __shared__ rounds<2> shared;
    if (v.shared->skip) return;
    const device_tensor &t = v.tensors[v.row_chunks[blockIdx.x].tensor];
    if (!t.g) {
        if (threadIdx.x == 0) v.row_sums[2 * blockIdx.x] = v.row_sums[2 * blockIdx.x + 1] = 0;
    } else if (t.p_type == ADAMOD_F64) {
        collect_chunk(pass_f64(v, blockIdx.x), &counts, &shared);
    } else {
        collect_chunk(pass_any(v, blockIdx.x), &counts, &shared);
    }
}

/* ---- launches ---- */

static unsigned blocks_for(int64_t warps) { return (unsigned)((warps + WARPS - 1) / WARPS); }

/* Calls body with a null pointer to the pass of each way that occurs. */
template <class BODY> static void each_way(const view *v, BODY body) {
    bool there[WAYS] = {};
    for (int64_t i = 0; i < v->n; i++) there[way_of(&v->host_tensors[i])] = true;
    if (there[WAY_F64]) body((pass_f64 *)NULL);
    if (there[WAY_F32]) body((pass_f32 *)NULL);
    if (there[WAY_MASTER]) body((pass_master *)NULL);
    if (there[WAY_BF16]) body((pass_bf16 *)NULL);
    if (there[WAY_ANY]) body((pass_any *)NULL);
}
#define PASS_OF(pointer) typename std::remove_pointer<decltype(pointer)>::type

static void run(const view *v, int collect, cudaStream_t stream) {
    const unsigned chunks = (unsigned)v->n_row_chunks, strips = (unsigned)v->n_strips;
    const int tiles = tiles_of(v);
    if (chunks == 0) return;
    each_way(v, [&](auto *p) { rows_kernel<PASS_OF(p)><<<chunks * tiles, THREADS, 0, stream>>>(*v, tiles); });
    if (v->workspace_bytes > 0) {
        each_way(v, [&](auto *p) { columns_kernel<PASS_OF(p)><<<chunks + strips, THREADS, 0, stream>>>(*v); });
    }
    each_way(v, [&](auto *p) { update_norm_kernel<PASS_OF(p)><<<chunks * tiles, THREADS, 0, stream>>>(*v, tiles); });
    join_kernel<<<blocks_for(chunks), THREADS, 0, stream>>>(*v);
    coefficients_kernel<<<blocks_for(v->n), THREADS, 0, stream>>>(*v);
    if (collect) collect_kernel<<<chunks, THREADS, 0, stream>>>(*v);
    else each_way(v, [&](auto *p) { update_kernel<PASS_OF(p)><<<chunks * tiles, THREADS, 0, stream>>>(*v, tiles); });
}

const cuda_driver cuda_adafactor_driver = {run, UINT32_MAX, true, workspace};
