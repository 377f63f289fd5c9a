#include "nn/backend/cuda/product.h"
#include "nn/backend/cuda/trial.cuh"

#include <pthread.h>

enum { MAX_DEVICES = 64, CANDIDATES = 8, MOST_KNOWN = 256 };

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

adamod_status product_library(void) {
    if (handle_of_device()) return ADAMOD_OK;
    return nn_cuda_fail(ADAMOD_ERROR_CUDA, "cuda: cuBLASLt: starting: %s",
                        cublasLtGetStatusString(CUBLAS_STATUS_NOT_INITIALIZED));
}

void product_free(product *p) {
    if (p->desc) cublasLtMatmulDescDestroy(p->desc);
    if (p->a) cublasLtMatrixLayoutDestroy(p->a);
    if (p->b) cublasLtMatrixLayoutDestroy(p->b);
    if (p->d) cublasLtMatrixLayoutDestroy(p->d);
    *p = product{};
}

/* ---- description ---- */

static cublasStatus_t lay_out(cublasLtMatrixLayout_t *out, cudaDataType_t type, int64_t rows, int64_t cols, int64_t ld,
                              int count) {
    cublasStatus_t e = cublasLtMatrixLayoutCreate(out, type, (uint64_t)rows, (uint64_t)cols, ld);
    if (e != CUBLAS_STATUS_SUCCESS || count == 1) return e;
#if CUBLAS_VER_MAJOR >= 13
    const int32_t n = count;
    const uint32_t mode = CUBLASLT_BATCH_MODE_POINTER_ARRAY;
    e = cublasLtMatrixLayoutSetAttribute(*out, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, &n, sizeof n);
    if (e != CUBLAS_STATUS_SUCCESS) return e;
    return cublasLtMatrixLayoutSetAttribute(*out, CUBLASLT_MATRIX_LAYOUT_BATCH_MODE, &mode, sizeof mode);
#else
    return CUBLAS_STATUS_NOT_SUPPORTED;
#endif
}

static bool keeps_before(const product_shape *s) {
    return s->epilogue == CUBLASLT_EPILOGUE_GELU_AUX || s->epilogue == CUBLASLT_EPILOGUE_GELU_AUX_BIAS;
}

static cublasStatus_t set_before(const product *p, const void *before) {
    return cublasLtMatmulDescSetAttribute(p->desc, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, &before, sizeof before);
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
    if (e == CUBLAS_STATUS_SUCCESS && keeps_before(s)) {
        e = cublasLtMatmulDescSetAttribute(p->desc, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, &s->ldd, sizeof s->ldd);
        if (e == CUBLAS_STATUS_SUCCESS)
            e = set_before(p, (const void *)(uintptr_t)256); /* aligned, as all arrays are */
    }
    const int64_t ra = s->trans_a ? s->k : s->m, ca = s->trans_a ? s->m : s->k;
    const int64_t rb = s->trans_b ? s->n : s->k, cb = s->trans_b ? s->k : s->n;
    if (e == CUBLAS_STATUS_SUCCESS) e = lay_out(&p->a, s->in, ra, ca, s->lda, s->count);
    if (e == CUBLAS_STATUS_SUCCESS) e = lay_out(&p->b, s->in, rb, cb, s->ldb, s->count);
    if (e == CUBLAS_STATUS_SUCCESS) e = lay_out(&p->d, s->out, s->m, s->n, s->ldd, s->count);
    return e;
}

static cublasStatus_t recommend(const product *p, cublasLtMatmulHeuristicResult_t found[CANDIDATES], int *n) {
    cublasLtMatmulPreference_t preference;
    const uint64_t workspace = PRODUCT_WORKSPACE;
    cublasStatus_t e = cublasLtMatmulPreferenceCreate(&preference);
    if (e != CUBLAS_STATUS_SUCCESS) return e;
    e = cublasLtMatmulPreferenceSetAttribute(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &workspace,
                                             sizeof workspace);
    if (e == CUBLAS_STATUS_SUCCESS) {
        e = cublasLtMatmulAlgoGetHeuristic(handle_of_device(), p->desc, p->a, p->b, p->d, p->d, preference, CANDIDATES,
                                           found, n);
    }
    cublasLtMatmulPreferenceDestroy(preference);
    return e == CUBLAS_STATUS_SUCCESS && *n == 0 ? CUBLAS_STATUS_NOT_SUPPORTED : e;
}

/* ---- measuring ---- */

/* Memory for one shape's trials. */
typedef struct trial {
    void *a, *b, *d[2], *before, *bias, *workspace;
    unsigned *differences;
    size_t result; /* bytes of d */
    cudaStream_t stream;
} trial;

static size_t size_of(cudaDataType_t type) { return type == CUDA_R_16BF ? 2 : 4; }

static void trial_close(trial *t) {
    void *const all[] = {t->a, t->b, t->d[0], t->d[1], t->before, t->bias, t->workspace, t->differences};
    for (void *p : all) cudaFree(p);
    if (t->stream) cudaStreamDestroy(t->stream);
    cudaGetLastError(); /* cudaMalloc may have failed */
}

static bool trial_open(trial *t, const product_shape *s) {
    *t = trial{};
    const int64_t a = s->lda * (s->trans_a ? s->m : s->k), b = s->ldb * (s->trans_b ? s->k : s->n);
    t->result = (size_t)(s->ldd * s->n) * size_of(s->out);
    bool ok = cudaStreamCreateWithFlags(&t->stream, cudaStreamNonBlocking) == cudaSuccess;
    ok = ok && cudaMalloc(&t->a, (size_t)a * size_of(s->in)) == cudaSuccess;
    ok = ok && cudaMalloc(&t->b, (size_t)b * size_of(s->in)) == cudaSuccess;
    ok = ok && cudaMalloc(&t->d[0], t->result) == cudaSuccess && cudaMalloc(&t->d[1], t->result) == cudaSuccess;
    ok = ok && (!keeps_before(s) || cudaMalloc(&t->before, t->result) == cudaSuccess);
    ok = ok && cudaMalloc(&t->bias, (size_t)s->m * size_of(s->out)) == cudaSuccess;
    ok = ok && cudaMalloc(&t->workspace, PRODUCT_WORKSPACE) == cudaSuccess;
    ok = ok && cudaMalloc((void **)&t->differences, sizeof *t->differences) == cudaSuccess;
    if (!ok) return false;
    for (void *d : t->d)
        cudaMemsetAsync(d, 0, t->result, t->stream); /* a checker does not see what the library stores */
    fill_at_random(s->in == CUDA_R_16BF, t->a, a, 1, t->stream);
    fill_at_random(s->in == CUDA_R_16BF, t->b, b, 2, t->stream);
    fill_at_random(s->out == CUDA_R_16BF, t->bias, s->m, 3, t->stream);
    return true;
}

static bool trial_run(const trial *t, const product *p, const cublasLtMatmulAlgo_t *algo, void *d) {
    const float one = 1, zero = 0;
    return cublasLtMatmul(handle_of_device(), p->desc, &one, t->a, p->a, t->b, p->b, &zero, d, p->d, d, p->d, algo,
                          t->workspace, PRODUCT_WORKSPACE, t->stream) == CUBLAS_STATUS_SUCCESS;
}

/* Whether an algorithm gives the bits of the first, which are in d[0]. */
static bool same_bits(const trial *t, const product *p, const cublasLtMatmulAlgo_t *algo) {
    return trial_run(t, p, algo, t->d[1]) && same_numbers(t->stream, t->d[0], t->d[1], t->result, t->differences);
}

/* Whether two algorithms cut the sums alike. */
static bool same_cut(const cublasLtMatmulAlgo_t *a, const cublasLtMatmulAlgo_t *b) {
    static const cublasLtMatmulAlgoConfigAttributes_t names[] = {
        CUBLASLT_ALGO_CONFIG_ID, CUBLASLT_ALGO_CONFIG_SPLITK_NUM, CUBLASLT_ALGO_CONFIG_REDUCTION_SCHEME};
    for (const cublasLtMatmulAlgoConfigAttributes_t name : names) {
        int32_t x = 0, y = 0;
        size_t size;
        if (cublasLtMatmulAlgoConfigGetAttribute(a, name, &x, sizeof x, &size) != CUBLAS_STATUS_SUCCESS ||
            cublasLtMatmulAlgoConfigGetAttribute(b, name, &y, sizeof y, &size) != CUBLAS_STATUS_SUCCESS || x != y)
            return false;
    }
    return true;
}

static int fastest(const trial *t, product *p, const product_shape *s, const cublasLtMatmulHeuristicResult_t *found,
                   int n) {
    const bool epilogue = s->epilogue != CUBLASLT_EPILOGUE_DEFAULT && s->epilogue != CUBLASLT_EPILOGUE_RELU;
    if (epilogue) cublasLtMatmulDescSetAttribute(p->desc, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &t->bias, sizeof t->bias);
    if (t->before) set_before(p, t->before);
    if (!trial_run(t, p, &found[0].algo, t->d[0])) return 0;
    int best = 0;
    float least = 0;
    for (int i = 0; i < n; i++) {
        if (!same_cut(&found[0].algo, &found[i].algo) || !same_bits(t, p, &found[i].algo)) continue;
        const float ms = time_runs(t->stream, [&] { return trial_run(t, p, &found[i].algo, t->d[1]); });
        if (ms > 0 && (least == 0 || ms < least)) least = ms, best = i;
    }
    return best;
}

/* Whether sums in another order would show in the bits. Simulated on a processor, 16 terms at a time in one sum or in two
 * halves, they do in a tenth of the results or more in f32, but rounded to bf16 in about 8 of a million with 64 terms, 70
 * with 512. */
static bool can_compare(const product_shape *s) { return s->out == CUDA_R_32F || s->m * s->n >= 1 << 20; }

/* Shapes measured so far, with what was found. */
typedef struct known_shape {
    product_shape shape;
    nn_precision precision;
    int device, best;
} known_shape;

static bool is_known(const known_shape *k, const product_shape *s, nn_precision precision, int device) {
    const product_shape *o = &k->shape;
    return k->device == device && k->precision == precision && o->trans_a == s->trans_a && o->trans_b == s->trans_b &&
           o->m == s->m && o->n == s->n && o->k == s->k && o->lda == s->lda && o->ldb == s->ldb && o->ldd == s->ldd &&
           o->in == s->in && o->out == s->out && o->epilogue == s->epilogue;
}

static int measure(product *p, const product_shape *s, nn_precision precision,
                   const cublasLtMatmulHeuristicResult_t *found, int n) {
    static known_shape known[MOST_KNOWN];
    static int count;
    int device = 0, best = -1;
    cudaGetDevice(&device);
    pthread_mutex_lock(&lock);
    for (int i = 0; best < 0 && i < count; i++) {
        if (is_known(&known[i], s, precision, device)) best = known[i].best;
    }
    pthread_mutex_unlock(&lock);
    if (best >= 0) return best < n ? best : 0;
    trial t;
    best = trial_open(&t, s) ? fastest(&t, p, s, found, n) : 0;
    trial_close(&t);
    pthread_mutex_lock(&lock);
    if (count < MOST_KNOWN) known[count++] = known_shape{*s, precision, device, best};
    pthread_mutex_unlock(&lock);
    return best;
}

/* ---- make and run ---- */

static cublasStatus_t choose(product *p, const product_shape *s, nn_precision precision, bool measured) {
    cublasLtMatmulHeuristicResult_t found[CANDIDATES];
    int n = 0;
    const cublasStatus_t e = recommend(p, found, &n);
    if (e != CUBLAS_STATUS_SUCCESS) return e;
    const bool several = n > 1 && s->count == 1;
    const int best = measured && several && can_compare(s) ? measure(p, s, precision, found, n) : 0;
    p->algo = found[best].algo;
    p->workspace = found[best].workspaceSize;
    return e;
}

static cublasStatus_t make(product *p, const product_shape *s, nn_precision precision, bool measured) {
    cublasStatus_t e = describe(p, s, precision);
    if (e == CUBLAS_STATUS_SUCCESS) e = choose(p, s, precision, measured);
    p->ready = e == CUBLAS_STATUS_SUCCESS;
    if (!p->ready) product_free(p);
    return e;
}

bool product_try(product *p, const product_shape *s, nn_precision precision, bool measured) {
    return make(p, s, precision, measured) == CUBLAS_STATUS_SUCCESS;
}

adamod_status product_make(product *p, const product_shape *s, nn_precision precision, bool measured) {
    const cublasStatus_t e = make(p, s, precision, measured);
    if (e == CUBLAS_STATUS_SUCCESS) return ADAMOD_OK;
    return nn_cuda_fail(ADAMOD_ERROR_CUDA, "cuda: cuBLASLt has no product of %lld x %lld x %lld: %s", (long long)s->m,
                        (long long)s->n, (long long)s->k, cublasLtGetStatusString(e));
}

void product_run_more(const nn_call *c, const product *p, const void *a, const void *b, void *d,
                      const product_more *more) {
    const float one = 1, beta = more->added ? 1 : 0;
    if (more->bias)
        cublasLtMatmulDescSetAttribute(p->desc, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &more->bias, sizeof more->bias);
    if (more->before) set_before(p, more->before);
    const cublasStatus_t e =
        cublasLtMatmul(handle_of_device(), p->desc, &one, a, p->a, b, p->b, &beta, more->added ? more->added : d, p->d,
                       d, p->d, &p->algo, c->workspace, p->workspace, stream_of(c));
    if (e != CUBLAS_STATUS_SUCCESS) nn_cuda_launch_failed("a product of matrices", cublasLtGetStatusString(e));
}

void product_run(const nn_call *c, const product *p, const void *a, const void *b, void *d, bool add,
                 const void *bias) {
    const product_more more = {bias, add ? d : NULL, NULL};
    product_run_more(c, p, a, b, d, &more);
}
