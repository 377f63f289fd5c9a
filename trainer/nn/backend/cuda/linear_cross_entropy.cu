/* Output layer and cross entropy, some rows at a time: their logits are a product in the workspace, in the type of values,
 * and one kernel replaces them by their gradient. Formulas are in ops/linear_cross_entropy.c.
 *
 * In training, forward goes on to the gradients of a loss whose own gradient is 1, and keeps them behind the log-sum-exps: of
 * x in the type of values, of W and b in f32. Backward multiplies them. Without training it computes logits again.
 *
 * Products are those of linear.cu. All chunks have the same rows but the last, which has products of its own. */
#include "nn/backend/cuda/entropy.cuh"
#include "nn/backend/cuda/product.h"

#include <stdlib.h>

enum {
    THREADS = 512,    /* of a row of logits */
    AHEAD = 4,        /* loads under way */
    CHUNK_ROWS = 128, /* rows at a time are a multiple of this */
    SCALE_THREADS = 256,
    MOST_LOGITS = 1 << 28 /* at a time, about: half a gigabyte of bf16 */
};

enum { LCE_X, LCE_W, LCE_B, LCE_TARGETS }; /* as in ops/linear_cross_entropy.h */

static int64_t rows_of(const nn_call *c) { return c->input[LCE_X].rows; }
static int64_t in_of(const nn_call *c) { return c->input[LCE_W].cols; }
static int64_t words_of(const nn_call *c) { return c->input[LCE_W].rows; }

/* Words up to a multiple of 16 bytes, as tensor cores want them: numbers from row to row of the logits, and rows of W in
 * products. The words that are not there have weights and logits of 0. */
static int64_t stride_of(const nn_call *c) { return parts(words_of(c), 8) * 8; }

/* Whether products need a copy of W, with more rows. */
static bool is_padded(const nn_call *c) { return stride_of(c) > words_of(c); }

/* Rows of a chunk: as few chunks as the most allows, of about the same size. */
static int64_t chunk_of(const nn_call *c) {
    const int64_t most = MOST_LOGITS / stride_of(c) / CHUNK_ROWS * CHUNK_ROWS;
    const int64_t chunks = parts(rows_of(c), most > CHUNK_ROWS ? most : (int64_t)CHUNK_ROWS);
    const int64_t rows = chunks > 1 ? parts(parts(rows_of(c), chunks), CHUNK_ROWS) * CHUNK_ROWS : rows_of(c);
    return rows < rows_of(c) ? rows : rows_of(c);
}

/* Bytes of a number of type T of the call. */
static size_t bytes_of(const nn_call *c) { return c->input[LCE_X].type == NN_BF16 ? 2 : 4; }

static bool computes_gradients(const nn_call *c) { return c->training != (c->grad->output[0] != NULL); }

/* ---- products ---- */

/* The products of a chunk of a given number of rows; those not ready are not needed. */
typedef struct chunk_products {
    product y, dx, dw;
} chunk_products;

typedef struct entropy_plan {
    chunk_products whole, rest; /* rest: the last chunk, if it is smaller */
    size_t kept;                /* bytes of a row of logits, if blocks keep it in shared memory; else 0 */
} entropy_plan;

static cudaDataType_t data_type(nn_type type) { return type == NN_BF16 ? CUDA_R_16BF : CUDA_R_32F; }

static adamod_status make_product(const nn_call *c, product *p, bool trans_a, bool trans_b, int64_t m, int64_t n,
                                  int64_t k, int64_t ldb, int64_t ldd, cudaDataType_t out) {
    const product_shape s = {
        trans_a, trans_b, m, n, k, in_of(c), ldb, ldd, data_type(c->input[LCE_X].type), out, CUBLASLT_EPILOGUE_DEFAULT,
        1};
    return product_make(p, &s, c->device->precision, c->training);
}

/* y^T = W x^T,  dx^T = W^T g^T,  dW^T = x^T g, as cuBLASLt sees columns where we see rows. */
static adamod_status make_products(const nn_call *c, chunk_products *p, int64_t rows) {
    const int64_t in = in_of(c), stride = stride_of(c);
    const cudaDataType_t type = data_type(c->input[LCE_X].type);
    const bool forward = !c->grad->output[0], gradients = computes_gradients(c);
    const int64_t dw_rows = forward ? stride : words_of(c); /* forward keeps dW, backward writes it where it belongs */
    adamod_status status = ADAMOD_OK;
    if (rows == 0) return ADAMOD_OK;
    if (forward || gradients) status = make_product(c, &p->y, true, false, stride, rows, in, in, stride, type);
    if (!status && gradients && (forward || c->grad->input[LCE_X]))
        status = make_product(c, &p->dx, false, false, in, rows, stride, stride, in, type);
    if (!status && gradients && (forward || c->grad->input[LCE_W]))
        status = make_product(c, &p->dw, false, true, in, dw_rows, rows, stride, in, CUDA_R_32F);
    return status;
}

static void free_products(chunk_products *p) {
    product_free(&p->y);
    product_free(&p->dx);
    product_free(&p->dw);
}

static void linear_cross_entropy_release(void *prepared) {
    entropy_plan *p = (entropy_plan *)prepared;
    if (!p) return;
    free_products(&p->whole);
    free_products(&p->rest);
    free(p);
}

template <typename T> struct logit_rows;
template <typename T> __global__ static void rows_kernel(logit_rows<T> r, bool keeps);

/* Bytes of a row, if two blocks of a multiprocessor can keep one each: it is then read from memory once, not twice. The
 * kernel is always given the most that it may have, as plans with rows of other lengths share it. */
template <typename T> static void find_kept(const nn_call *c, size_t *kept) {
    enum { RESERVED = 2 << 10 }; /* for the system, and for variables of the kernel */
    int device = 0, all = 0;
    *kept = (size_t)stride_of(c) * sizeof(T);
    if (cudaGetDevice(&device) != cudaSuccess ||
        cudaDeviceGetAttribute(&all, cudaDevAttrMaxSharedMemoryPerMultiprocessor, device) != cudaSuccess ||
        *kept + RESERVED > (size_t)all / 2 ||
        cudaFuncSetAttribute(rows_kernel<T>, cudaFuncAttributeMaxDynamicSharedMemorySize, all / 2 - RESERVED) !=
            cudaSuccess) {
        cudaGetLastError();
        *kept = 0;
    }
}

static adamod_status linear_cross_entropy_prepare(const nn_call *c, void **prepared) {
    adamod_status status = product_library();
    if (status) return status;
    entropy_plan *p = (entropy_plan *)calloc(1, sizeof *p);
    if (!p) return nn_cuda_fail(ADAMOD_ERROR_MEMORY, "out of memory for a linear_cross_entropy op");
    const int64_t chunk = chunk_of(c);
    BY_TYPE(c->input[LCE_X].type, find_kept, c, &p->kept);
    status = make_products(c, &p->whole, chunk);
    if (!status) status = make_products(c, &p->rest, chunk > 0 ? rows_of(c) % chunk : 0);
    if (status) linear_cross_entropy_release(p);
    else *prepared = p;
    return status;
}

/* ---- memory ---- */

/* Floats up to a multiple of 256 bytes: products are chosen for arrays that begin there. */
static int64_t padded(int64_t n) { return parts(n, 64) * 64; }

/* Floats of n numbers of type T of the call. */
static int64_t floats_of(const nn_call *c, int64_t n) { return padded(parts(n * (int64_t)bytes_of(c), sizeof(float))); }

/* The workspace, in floats: that of products, a float4 for each row, W with more rows if it is padded, the logits of a
 * chunk. */
static size_t product_floats(const nn_call *c) {
    const entropy_plan *p = (const entropy_plan *)c->prepared;
    const product *all[] = {&p->whole.y, &p->whole.dx, &p->whole.dw, &p->rest.y, &p->rest.dx, &p->rest.dw};
    size_t most = 0;
    for (const product *x : all) most = x->workspace > most ? x->workspace : most;
    return (size_t)padded(parts((int64_t)most, sizeof(float)));
}

static int64_t weight_floats(const nn_call *c) { return is_padded(c) ? floats_of(c, stride_of(c) * in_of(c)) : 0; }

static size_t linear_cross_entropy_workspace(const nn_call *c) {
    return product_floats(c) +
           (size_t)(padded(4 * rows_of(c)) + weight_floats(c) + floats_of(c, chunk_of(c) * stride_of(c)));
}

static float4 *results_of(const nn_call *c) { return (float4 *)(c->workspace + product_floats(c)); }

static float *weights_of(const nn_call *c) { return c->workspace + product_floats(c) + padded(4 * rows_of(c)); }

template <typename T> static T *logits_of(const nn_call *c) { return (T *)(weights_of(c) + weight_floats(c)); }

/* W as products read it. */
template <typename T> static const T *product_weights(const nn_call *c) {
    const T *w = (const T *)c->input[LCE_W].data;
    const int64_t n = words_of(c) * in_of(c), more = stride_of(c) * in_of(c) - n;
    T *const copy = (T *)weights_of(c);
    if (!is_padded(c)) return w;
    cudaMemcpyAsync(copy, w, (size_t)n * sizeof(T), cudaMemcpyDeviceToDevice, stream_of(c));
    cudaMemsetAsync(copy + n, 0, (size_t)more * sizeof(T), stream_of(c));
    return copy;
}

/* Gradients that training keeps, behind the log-sum-exps. */
static float *kept_dw(const nn_call *c) { return c->saved + padded(rows_of(c)); }
static float *kept_db(const nn_call *c) { return kept_dw(c) + padded(stride_of(c) * in_of(c)); }
template <typename T> static T *kept_dx(const nn_call *c) { return (T *)(kept_db(c) + padded(words_of(c))); }

static size_t linear_cross_entropy_extra_saved(const nn_call *c) {
    const int64_t dx = parts(rows_of(c) * in_of(c) * (int64_t)bytes_of(c), 4);
    if (!c->training) return 0;
    return (size_t)(64 + padded(stride_of(c) * in_of(c)) + padded(words_of(c)) + dx);
}

/* ---- rows of logits ---- */

/* Rows of logits, which have no bias yet. */
template <typename T> struct logit_rows {
    T *logits;
    const T *bias; /* NULL: none */
    int64_t words, stride;
    const int32_t *targets; /* these and the next are the chunk's */
    float *lse;
    float4 *results;    /* NULL: log-sum-exps are known already */
    bool gradient;      /* replaces the logits by it */
    const float *scale; /* of the gradient; NULL: 1 */
    float smoothing, z;
};

template <typename T, int N>
__device__ static inline void add_bias(const T *bias, int64_t i, const float (&x)[N], float (&to)[N]) {
    for (int k = 0; k < N; k++) to[k] = bias ? x[k] + widen(bias[i + k]) : x[k];
}

/* The log-sum-exp of a row, for all threads. */
template <typename T> __device__ static inline float find_entropy(const logit_rows<T> &r, const T *x, int64_t row) {
    __shared__ logits_part shared[THREADS / 32];
    __shared__ float lse;
    const int32_t goal = r.targets[row];
    logits_part p = {-3.402823466e38f, 0, 0, -1}; /* finite, so that -infinity may come first */
    each_pack<AHEAD>(x, r.words, threadIdx.x, THREADS, [&](int64_t i, auto &v) {
        float with_bias[sizeof v / sizeof *v];
        add_bias(r.bias, i, v, with_bias);
        add_logits(&p, i, with_bias);
    });
    p = join_lanes(p, 32);
    if (threadIdx.x % 32 == 0) shared[threadIdx.x / 32] = p;
    __syncthreads();
    if (threadIdx.x < 32) p = join_lanes(shared[threadIdx.x % (THREADS / 32)], THREADS / 32);
    if (threadIdx.x == 0) {
        const float x_goal = goal < 0 ? 0 : widen(x[goal]) + (r.bias ? widen(r.bias[goal]) : 0);
        r.results[row] = entropy_of(p, goal, x_goal, r.words, r.smoothing, r.z);
        r.lse[row] = lse = log_sum_exp(p);
    }
    __syncthreads();
    return lse;
}

/* A row of whole packs to shared memory. All threads call it. */
template <typename T> __device__ static inline const T *keep_row(const T *x, int64_t n) {
    extern __shared__ uint4 kept[];
    const uint32_t to = (uint32_t)__cvta_generic_to_shared(kept);
    for (int64_t i = threadIdx.x; i < n / pack<T>::N; i += THREADS)
        asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(to + 16 * (uint32_t)i), "l"(x + i * pack<T>::N));
    asm volatile("cp.async.wait_all;" ::: "memory");
    __syncthreads();
    return (const T *)kept;
}

/* A block takes a row, which it keeps in shared memory if it may. */
template <typename T> __global__ static void __launch_bounds__(THREADS) rows_kernel(logit_rows<T> r, bool keeps) {
    const int64_t row = blockIdx.x;
    const int32_t goal = r.targets[row];
    T *const out = r.logits + row * r.stride;
    const T *const x = keeps ? keep_row(out, r.stride) : out;
    const float lse = r.results ? find_entropy(r, x, row) : r.lse[row];
    if (!r.gradient) return;
    const float scale = r.scale ? *r.scale : 1, rest = r.smoothing / (float)r.words, weight = 1 + 2 * r.z * lse;
    const target<T> to = {out, false};
    each_pack<AHEAD>(x, r.words, threadIdx.x, THREADS, [&](int64_t i, auto &v) {
        constexpr int N = sizeof v / sizeof *v;
        float d[N];
        add_bias(r.bias, i, v, d);
        for (int k = 0; k < N; k++) {
            const float hit = i + k == goal ? 1 - r.smoothing : 0;
            d[k] = goal < 0 ? 0 : scale * (weight * __expf(d[k] - lse) - hit - rest);
        }
        put<N>(to, i, d);
    });
}

/* Adds columns of the gradient up, in the order of rows. */
template <typename T>
__global__ static void __launch_bounds__(SCALE_THREADS)
    columns_kernel(const T *g, int64_t rows, int64_t words, int64_t stride, target<float> db) {
    const int64_t j = (int64_t)blockIdx.x * SCALE_THREADS + threadIdx.x;
    float sum = 0;
    if (j >= words) return;
    for (int64_t i = 0; i < rows; i++) sum += widen(g[i * stride + j]);
    put<1>(db, j, &sum);
}

/* ---- chunks ---- */

/* Computes all rows: log-sum-exps and results if forward, and the gradients that are wanted, if any. */
template <typename T>
static void run(const nn_call *c, bool forward, const float *scale, target<T> dx, target<float> dw, target<float> db) {
    const entropy_plan *p = (const entropy_plan *)c->prepared;
    const int64_t in = in_of(c), words = words_of(c), stride = stride_of(c), chunk = chunk_of(c);
    const T *x = (const T *)c->input[LCE_X].data, *w = product_weights<T>(c);
    T *const logits = logits_of<T>(c);
    const bool gradient = dx.to || dw.to || db.to;
    for (int64_t first = 0; first < rows_of(c); first += chunk) {
        const int64_t rows = rows_of(c) - first < chunk ? rows_of(c) - first : chunk;
        const chunk_products *now = rows < chunk ? &p->rest : &p->whole;
        const logit_rows<T> r = {logits,
                                 (const T *)c->input[LCE_B].data,
                                 words,
                                 stride,
                                 (const int32_t *)c->input[LCE_TARGETS].data + first,
                                 c->saved + first,
                                 forward ? results_of(c) + first : NULL,
                                 gradient,
                                 scale,
                                 (float)NN_ATTR(linear_cross_entropy, c)->smoothing,
                                 (float)NN_ATTR(linear_cross_entropy, c)->z};
        product_run(c, &now->y, w, x + first * in, logits, false, NULL);
        rows_kernel<T><<<(unsigned)rows, THREADS, p->kept, stream_of(c)>>>(r, p->kept > 0);
        if (dx.to) product_run(c, &now->dx, w, logits, dx.to + first * in, dx.add, NULL);
        if (dw.to) product_run(c, &now->dw, x + first * in, logits, dw.to, dw.add || first > 0, NULL);
        if (db.to)
            columns_kernel<T><<<(unsigned)parts(words, SCALE_THREADS), SCALE_THREADS, 0, stream_of(c)>>>(
                logits, rows, words, stride, target<float>{db.to, db.add || first > 0});
    }
}

/* to = scale from, or to += that. */
template <typename T, typename U>
__global__ static void __launch_bounds__(SCALE_THREADS)
    scale_kernel(const T *from, const float *scale, target<U> to, int64_t n) {
    constexpr int N = 8;
    const int64_t first = N * ((int64_t)blockIdx.x * SCALE_THREADS + threadIdx.x);
    if (first + N <= n) {
        float x[N];
        load_floats<N>(from + first, x);
        for (int k = 0; k < N; k++) x[k] *= *scale;
        put<N>(to, first, x);
        return;
    }
    for (int64_t i = first; i < n; i++) {
        const float x = widen(from[i]) * *scale;
        put<1>(to, i, &x);
    }
}

template <typename T, typename U> static void scale_array(const nn_call *c, const T *from, target<U> to, int64_t n) {
    if (!to.to || n == 0) return;
    scale_kernel<T, U>
        <<<(unsigned)parts(n, 8 * SCALE_THREADS), SCALE_THREADS, 0, stream_of(c)>>>(from, c->grad->output[0], to, n);
}

static void clear(const nn_call *c, target<float> to, int64_t n) {
    if (to.to && !to.add) cudaMemsetAsync(to.to, 0, (size_t)n * sizeof(float), stream_of(c));
}

/* ---- kernels ---- */

template <typename T> static void forward(const nn_call *c) {
    const target<T> no_dx = {NULL, false}, dx = {kept_dx<T>(c), false};
    const target<float> none = {NULL, false}, dw = {kept_dw(c), false}, db = {kept_db(c), false};
    const bool bias = c->input[LCE_B].data != NULL;
    run<T>(c, true, NULL, c->training ? dx : no_dx, c->training ? dw : none, c->training && bias ? db : none);
    sum_entropies(c, results_of(c), rows_of(c));
}

template <typename T> static void backward(const nn_call *c) {
    const target<T> dx = target_of<T>(c, LCE_X);
    const target<float> dw = target_of<float>(c, LCE_W), db = target_of<float>(c, LCE_B);
    const int64_t words = words_of(c), in = in_of(c);
    if (rows_of(c) == 0) {
        clear(c, dw, words * in);
        clear(c, db, words);
    } else if (c->training) {
        scale_array(c, kept_dx<T>(c), dx, rows_of(c) * in);
        scale_array(c, kept_dw(c), dw, words * in);
        scale_array(c, kept_db(c), db, words);
    } else {
        run<T>(c, false, c->grad->output[0], dx, dw, db);
    }
}

extern "C" const nn_kernels nn_cuda_linear_cross_entropy = {.forward = NN_BY_TYPE(input[0], forward),
                                                            .backward = NN_BY_TYPE(input[0], backward),
                                                            .workspace = linear_cross_entropy_workspace,
                                                            .prepare = linear_cross_entropy_prepare,
                                                            .release = linear_cross_entropy_release,
                                                            .extra_saved = linear_cross_entropy_extra_saved};
