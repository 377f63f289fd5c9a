/* y = activation(x W^T + b) and its gradient (ops/linear.c) by cuBLASLt, with bias and ReLU in its epilogue. (It could sum
 * the bias's gradient on the way to dW, too; but those kernels take 1.4 to 1.9 times as long on an H200.)
 *
 * cuBLASLt sees columns where we see rows, so each product is asked for transposed:
 *   y  [rows, out]: y^T = W x^T        dx [rows, in]: dx^T = W^T dz^T        dW [out, in]: dW^T = x^T dz
 * The first algorithm it recommends is taken, always the same for the same shapes on the same chip, so that runs repeat.
 */
#include "cuda.h"

#include <cublasLt.h>
#include <pthread.h>
#include <stdlib.h>

enum { LIBRARY_WORKSPACE = 32 << 20, MAX_DEVICES = 64 };

/* ---- one product ---- */

typedef struct product {
    cublasLtMatmulDesc_t desc;
    cublasLtMatrixLayout_t a, b, d;
    cublasLtMatmulAlgo_t algo;
    bool ready;
} product;

/* What a node's direction has: forward its one product, backward those of x and W. fused: forward's bias and ReLU are in
 * the epilogue; cuBLASLt has that not for all shapes. */
typedef struct linear_plan {
    product y, dx, dw;
    bool fused; /* y's epilogue */
} linear_plan;

/* D [m, n] = op(A) op(B), by columns. */
typedef struct product_shape {
    bool trans_a, trans_b;
    int64_t m, n, k, lda, ldb, ldd;
    cudaDataType_t in, out;
    cublasLtEpilogue_t epilogue;
} product_shape;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static cublasLtHandle_t handle_of_device(void) {
    static cublasLtHandle_t handles[MAX_DEVICES];
    int device = 0;
    cudaGetDevice(&device);
    if (device < 0 || device >= MAX_DEVICES) return NULL;
    pthread_mutex_lock(&lock);
    if (!handles[device]) cublasLtCreate(&handles[device]);
    pthread_mutex_unlock(&lock);
    return handles[device];
}

static adamod_status library_failed(cublasStatus_t status, const char *what) {
    if (status == CUBLAS_STATUS_SUCCESS) return ADAMOD_OK;
    return nn_cuda_fail(ADAMOD_ERROR_CUDA, "cuda: cuBLASLt: %s: %s", what, cublasLtGetStatusString(status));
}

static void product_free(product *p) {
    if (p->desc) cublasLtMatmulDescDestroy(p->desc);
    if (p->a) cublasLtMatrixLayoutDestroy(p->a);
    if (p->b) cublasLtMatrixLayoutDestroy(p->b);
    if (p->d) cublasLtMatrixLayoutDestroy(p->d);
}

static cublasStatus_t describe(product *p, const product_shape *s, nn_precision precision) {
    const cublasComputeType_t compute = precision == NN_TF32 ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F;
    const cublasOperation_t ta = s->trans_a ? CUBLAS_OP_T : CUBLAS_OP_N, tb = s->trans_b ? CUBLAS_OP_T : CUBLAS_OP_N;
    cublasStatus_t e = cublasLtMatmulDescCreate(&p->desc, compute, CUDA_R_32F);
    if (e == CUBLAS_STATUS_SUCCESS)
        e = cublasLtMatmulDescSetAttribute(p->desc, CUBLASLT_MATMUL_DESC_TRANSA, &ta, sizeof ta);
    if (e == CUBLAS_STATUS_SUCCESS)
        e = cublasLtMatmulDescSetAttribute(p->desc, CUBLASLT_MATMUL_DESC_TRANSB, &tb, sizeof tb);
    if (e == CUBLAS_STATUS_SUCCESS)
        e = cublasLtMatmulDescSetAttribute(p->desc, CUBLASLT_MATMUL_DESC_EPILOGUE, &s->epilogue, sizeof s->epilogue);
    const int64_t ra = s->trans_a ? s->k : s->m, ca = s->trans_a ? s->m : s->k;
    const int64_t rb = s->trans_b ? s->n : s->k, cb = s->trans_b ? s->k : s->n;
    if (e == CUBLAS_STATUS_SUCCESS) e = cublasLtMatrixLayoutCreate(&p->a, s->in, (uint64_t)ra, (uint64_t)ca, s->lda);
    if (e == CUBLAS_STATUS_SUCCESS) e = cublasLtMatrixLayoutCreate(&p->b, s->in, (uint64_t)rb, (uint64_t)cb, s->ldb);
    if (e == CUBLAS_STATUS_SUCCESS)
        e = cublasLtMatrixLayoutCreate(&p->d, s->out, (uint64_t)s->m, (uint64_t)s->n, s->ldd);
    return e;
}

/* A pointer with the alignment an array of this plan has, for the choice of an algorithm. */
static cublasStatus_t choose(product *p) {
    cublasLtMatmulPreference_t preference;
    cublasLtMatmulHeuristicResult_t found;
    int n = 0;
    const uint64_t workspace = LIBRARY_WORKSPACE;
    cublasStatus_t e = cublasLtMatmulPreferenceCreate(&preference);
    if (e != CUBLAS_STATUS_SUCCESS) return e;
    e = cublasLtMatmulPreferenceSetAttribute(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &workspace,
                                             sizeof workspace);
    if (e == CUBLAS_STATUS_SUCCESS) {
        e = cublasLtMatmulAlgoGetHeuristic(handle_of_device(), p->desc, p->a, p->b, p->d, p->d, preference, 1, &found,
                                           &n);
    }
    cublasLtMatmulPreferenceDestroy(preference);
    if (e == CUBLAS_STATUS_SUCCESS && n == 0) e = CUBLAS_STATUS_NOT_SUPPORTED;
    if (e == CUBLAS_STATUS_SUCCESS) p->algo = found.algo;
    return e;
}

static adamod_status product_make(product *p, const product_shape *s, nn_precision precision) {
    cublasStatus_t e = describe(p, s, precision);
    if (e == CUBLAS_STATUS_SUCCESS) e = choose(p);
    p->ready = e == CUBLAS_STATUS_SUCCESS;
    if (p->ready) return ADAMOD_OK;
    return nn_cuda_fail(ADAMOD_ERROR_CUDA, "cuda: cuBLASLt has no product of %lld x %lld x %lld: %s", (long long)s->m,
                        (long long)s->n, (long long)s->k, cublasLtGetStatusString(e));
}

/* bias: what the epilogue adds or writes; NULL: none. */
static void product_run(const nn_call *c, product *p, const void *a, const void *b, void *d, bool add, void *bias) {
    const float one = 1, beta = add ? 1 : 0;
    if (bias) cublasLtMatmulDescSetAttribute(p->desc, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &bias, sizeof bias);
    const cublasStatus_t e = cublasLtMatmul(handle_of_device(), p->desc, &one, a, p->a, b, p->b, &beta, d, p->d, d,
                                            p->d, &p->algo, c->workspace, LIBRARY_WORKSPACE, stream_of(c));
    if (e != CUBLAS_STATUS_SUCCESS) nn_cuda_launch_failed("a product of matrices", cublasLtGetStatusString(e));
}

/* ---- shapes ---- */

static cudaDataType_t data_type(nn_type type) { return type == NN_BF16 ? CUDA_R_16BF : CUDA_R_32F; }

static int64_t in_of(const nn_call *c) { return c->input[1].cols; }
static int64_t out_of(const nn_call *c) { return c->output.cols; }

static product_shape forward_shape(const nn_call *c, bool fused) {
    const int64_t rows = c->output.rows, in = in_of(c), out = out_of(c);
    const bool relu = c->attributes->activation == NN_RELU;
    const cublasLtEpilogue_t epilogue = !fused ? CUBLASLT_EPILOGUE_DEFAULT
                                        : c->input[2].data
                                            ? (relu ? CUBLASLT_EPILOGUE_RELU_BIAS : CUBLASLT_EPILOGUE_BIAS)
                                        : relu ? CUBLASLT_EPILOGUE_RELU
                                               : CUBLASLT_EPILOGUE_DEFAULT;
    const cudaDataType_t type = data_type(c->input[0].type);
    return product_shape{true, false, out, rows, in, in, in, out, type, data_type(c->output.type), epilogue};
}

static product_shape input_grad_shape(const nn_call *c) {
    const int64_t rows = c->output.rows, in = in_of(c), out = out_of(c);
    return product_shape{false,
                         false,
                         in,
                         rows,
                         out,
                         in,
                         out,
                         in,
                         data_type(c->input[0].type),
                         data_type(c->input_grad_type[0]),
                         CUBLASLT_EPILOGUE_DEFAULT};
}

static product_shape weight_grad_shape(const nn_call *c) {
    const int64_t rows = c->output.rows, in = in_of(c), out = out_of(c);
    return product_shape{
        false, true, in, out, rows, in, out, in, data_type(c->input[0].type), CUDA_R_32F, CUBLASLT_EPILOGUE_DEFAULT};
}

static void linear_release(void *prepared) {
    linear_plan *p = (linear_plan *)prepared;
    if (!p) return;
    product_free(&p->y);
    product_free(&p->dx);
    product_free(&p->dw);
    free(p);
}

/* Tries the fused form first. */
static adamod_status make_either(linear_plan *p, product *to, const product_shape shapes[2], nn_precision precision) {
    p->fused = true;
    if (product_make(to, &shapes[0], precision) == ADAMOD_OK) return ADAMOD_OK;
    product_free(to);
    *to = product{};
    p->fused = false;
    return product_make(to, &shapes[1], precision);
}

static adamod_status linear_prepare(const nn_call *c, void **prepared) {
    if (!handle_of_device()) return library_failed(CUBLAS_STATUS_NOT_INITIALIZED, "starting");
    linear_plan *p = (linear_plan *)calloc(1, sizeof *p);
    if (!p) return nn_cuda_fail(ADAMOD_ERROR_MEMORY, "no memory for a linear op");
    adamod_status status = ADAMOD_OK;
    if (!c->output_grad) {
        const product_shape shapes[2] = {forward_shape(c, true), forward_shape(c, false)};
        status = make_either(p, &p->y, shapes, c->precision);
    }
    if (!status && c->output_grad && c->input_grad[0]) {
        const product_shape s = input_grad_shape(c);
        status = product_make(&p->dx, &s, c->precision);
    }
    if (!status && c->output_grad && c->input_grad[1]) {
        const product_shape s = weight_grad_shape(c);
        status = product_make(&p->dw, &s, c->precision);
    }
    if (status) linear_release(p);
    else *prepared = p;
    return status;
}

static size_t linear_workspace(const nn_call *c) {
    (void)c;
    return LIBRARY_WORKSPACE / sizeof(float);
}

/* ---- activations that the library does not fuse ---- */

__device__ static float normal_below(float z) { return 0.5f * erfcf(-0.70710678f * z); }

/* y holds z, or what b is to be added to. */
template <typename T>
__global__ static void activate(int64_t n, int64_t cols, nn_activation activation, const T *b, float *saved, T *y) {
    const int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    const float z = widen(y[i]) + (b ? widen(b[i % cols]) : 0);
    if (activation == NN_LINEAR) {
        y[i] = narrow<T>(z);
    } else if (activation == NN_RELU) {
        y[i] = narrow<T>(z < 0 ? 0 : z);
    } else {
        saved[i] = z;
        y[i] = narrow<T>(z * normal_below(z));
    }
}

template <typename T> static void launch_activate(const nn_call *c, bool bias) {
    const int64_t n = c->output.rows * out_of(c);
    const T *b = bias ? (const T *)c->input[2].data : NULL;
    activate<T><<<(unsigned)parts(n, 256), 256, 0, stream_of(c)>>>(n, out_of(c), c->attributes->activation, b, c->saved,
                                                                   (T *)c->output.data);
}

/* ---- slopes and sums over rows ---- */

enum { SUM_ROWS = 32, SUM_LANES = 8 }; /* of a block: rows, and threads that share them */

/* The gradient before the activation, given that after it. */
template <nn_activation A, typename T, int N>
__device__ static inline void times_slope(const uint4 &y, const float *saved, float (&g)[N]) {
    if (A == NN_RELU) {
        float x[N];
        widen_raw<T>(y, x);
        for (int k = 0; k < N; k++) g[k] = x[k] > 0 ? g[k] : 0;
    } else if (A == NN_GELU) {
        float z[N];
        load_floats<N>(saved, z);
        for (int k = 0; k < N; k++) g[k] *= normal_below(z[k]) + z[k] * 0.39894228f * expf(-0.5f * z[k] * z[k]);
    }
}

/* dy becomes dz, in its place: nothing else reads it. A block has SUM_ROWS rows of 32 N columns, N a pack or, where columns
 * are no whole packs, one, and leaves their sums in its row of sums, unless that is NULL. */
template <typename T, int N, nn_activation A>
__global__ static void __launch_bounds__(32 * SUM_LANES, 4)
    slope_and_sums(int64_t rows, int64_t cols, unsigned across, const T *y, const float *saved, T *dz, float *sums) {
    constexpr int ROWS = SUM_ROWS / SUM_LANES; /* of a thread */
    __shared__ __align__(16) float shared[SUM_LANES][32 * N];
    const int64_t part = blockIdx.x / across, column = (int64_t)(blockIdx.x % across) * 32 * N;
    const int64_t j = column + threadIdx.x * N, first = part * SUM_ROWS + threadIdx.y;
    uint4 g[ROWS], a[ROWS] = {};
#pragma unroll
    for (int i = 0; i < ROWS; i++) { /* all loads before the first store */
        const int64_t row = first + i * SUM_LANES, at = row * cols + j;
        const bool there = row < rows && j < cols;
        g[i] = load_raw<N>(dz + at, there);
        if (A == NN_RELU) a[i] = load_raw<N>(y + at, there);
    }
    float sum[N] = {};
#pragma unroll
    for (int i = 0; i < ROWS; i++) {
        const int64_t row = first + i * SUM_LANES, at = row * cols + j;
        float x[N];
        if (row >= rows || j >= cols) continue;
        widen_raw<T>(g[i], x);
        times_slope<A, T>(a[i], saved + at, x);
        if (A != NN_LINEAR) store_floats<N>(dz + at, x);
        for (int k = 0; k < N; k++) sum[k] += x[k];
    }
    if (!sums) return;
    store_floats<N>(&shared[threadIdx.y][threadIdx.x * N], sum);
    __syncthreads();
    for (int k = (int)(threadIdx.y * 32 + threadIdx.x); k < 32 * N && column + k < cols; k += 32 * SUM_LANES) {
        float all = 0;
        for (int lane = 0; lane < SUM_LANES; lane++) all += shared[lane][k];
        sums[part * cols + column + k] = all;
    }
}

template <typename T, int N> static void launch_slope(const nn_call *c) {
    const int64_t rows = c->output.rows, cols = out_of(c), across = parts(cols, 32 * N);
    const nn_activation activation = c->attributes->activation;
    void (*const kernel)(int64_t, int64_t, unsigned, const T *, const float *, T *, float *) =
        activation == NN_RELU   ? slope_and_sums<T, N, NN_RELU>
        : activation == NN_GELU ? slope_and_sums<T, N, NN_GELU>
                                : slope_and_sums<T, N, NN_LINEAR>;
    const unsigned blocks = (unsigned)(across * parts(rows, SUM_ROWS));
    if (blocks == 0) return;
    kernel<<<blocks, dim3(32, SUM_LANES), 0, stream_of(c)>>>(rows, cols, (unsigned)across, (const T *)c->output.data,
                                                             c->saved, (T *)c->output_grad,
                                                             c->input_grad[2] ? c->parts : NULL);
}

template <typename T> static void find_dz(const nn_call *c) {
    if (out_of(c) % pack<T>::N == 0) launch_slope<T, pack<T>::N>(c);
    else launch_slope<T, 1>(c);
}

static size_t linear_parts(const nn_call *c) {
    return c->input_grad[2] ? (size_t)(parts(c->output.rows, SUM_ROWS) * out_of(c)) : 0;
}

static void bias_grad(const nn_call *c) {
    const int64_t cols = out_of(c);
    const nn_sum sum = {c->parts, cols, parts(c->output.rows, SUM_ROWS), cols, c->input_grad[2], c->accumulate[2]};
    nn_cuda_sum(c, &sum);
}

/* ---- forward and backward ---- */

static void linear_forward(const nn_call *c) {
    linear_plan *p = (linear_plan *)c->prepared;
    const nn_activation activation = c->attributes->activation;
    void *bias = c->input[2].data;
    product_run(c, &p->y, c->input[1].data, c->input[0].data, c->output.data, false, p->fused ? bias : NULL);
    if (activation == NN_GELU || (!p->fused && (bias || activation == NN_RELU)))
        BY_TYPE(c->output.type, launch_activate, c, !p->fused);
}

/* Sums over rows come with the slope, where there is one; else nothing waits for them. */
static void linear_backward(const nn_call *c) {
    linear_plan *p = (linear_plan *)c->prepared;
    if (c->attributes->activation != NN_LINEAR) BY_TYPE(c->output.type, find_dz, c);
    if (c->input_grad[0])
        product_run(c, &p->dx, c->input[1].data, c->output_grad, c->input_grad[0], c->accumulate[0], NULL);
}

static void linear_late(const nn_call *c) {
    linear_plan *p = (linear_plan *)c->prepared;
    if (c->input_grad[2] && c->attributes->activation == NN_LINEAR) BY_TYPE(c->output.type, find_dz, c);
    bias_grad(c);
    if (c->input_grad[1])
        product_run(c, &p->dw, c->input[0].data, c->output_grad, c->input_grad[1], c->accumulate[1], NULL);
}

const nn_kernels nn_cuda_linear = {linear_forward,
                                   linear_backward,
                                   linear_late,
                                   linear_workspace,
                                   linear_prepare,
                                   linear_release,
                                   NULL,
                                   linear_parts,
                                   0};
