#include "nn/backend/cuda/cudnn.h"
#include "nn/backend/cuda/trial.cuh"

#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#if __has_include(<cudnn_graph.h>)
#include <cudnn_graph.h>

/* ---- the library ---- */

#define FUNCTIONS(X)                                                                                                   \
    X(cudnnCreate)                                                                                                     \
    X(cudnnSetStream)                                                                                                  \
    X(cudnnGetErrorString)                                                                                             \
    X(cudnnBackendCreateDescriptor)                                                                                    \
    X(cudnnBackendDestroyDescriptor)                                                                                   \
    X(cudnnBackendSetAttribute) X(cudnnBackendGetAttribute) X(cudnnBackendFinalize) X(cudnnBackendExecute)

struct library {
#define MEMBER(name) decltype(&::name) name;
    FUNCTIONS(MEMBER)
#undef MEMBER
    bool ready;
    char why[200];
};

static library load(void) {
    library l = {};
    const char *named = secure_getenv("ADAMOD_CUDNN_LIBRARY");
    const char *name = named && *named ? named : "libcudnn.so.9";
    void *object = dlopen(name, RTLD_NOW | RTLD_LOCAL);
    l.ready = object;
    if (!object) snprintf(l.why, sizeof l.why, "%s", dlerror());
#define FIND(name)                                                                                                     \
    if (l.ready && !(l.name = (decltype(l.name))dlsym(object, #name))) {                                               \
        l.ready = false;                                                                                               \
        snprintf(l.why, sizeof l.why, "it has no " #name);                                                             \
    }
    FUNCTIONS(FIND)
#undef FIND
    return l;
}

static const library *cudnn(void) {
    static const library l = load();
    return &l;
}

enum { MAX_DEVICES = 64, CANDIDATES = 24, TRIED = 6, MOST_KNOWN = 256 };

static cudnnHandle_t handle_of_device(void) {
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    static cudnnHandle_t handles[MAX_DEVICES];
    int device = 0;
    cudaGetDevice(&device);
    if (!cudnn()->ready || device < 0 || device >= MAX_DEVICES) return NULL;
    pthread_mutex_lock(&lock);
    if (!handles[device] && cudnn()->cudnnCreate(&handles[device]) != CUDNN_STATUS_SUCCESS) handles[device] = NULL;
    pthread_mutex_unlock(&lock);
    return handles[device];
}

/* ---- descriptors ---- */

typedef cudnnBackendDescriptor_t descriptor;

/* A descriptor with attributes, the first failure of which is kept; freed at the end of its scope unless taken. */
struct builder {
    descriptor d = NULL;
    cudnnStatus_t status;
    explicit builder(cudnnBackendDescriptorType_t type) {
        status = cudnn()->cudnnBackendCreateDescriptor(type, &d);
        if (status != CUDNN_STATUS_SUCCESS) d = NULL;
    }
    builder(const builder &) = delete;
    ~builder() {
        if (d) cudnn()->cudnnBackendDestroyDescriptor(d);
    }
    void set(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type, int64_t n, const void *values) {
        if (status == CUDNN_STATUS_SUCCESS) status = cudnn()->cudnnBackendSetAttribute(d, name, type, n, values);
    }
    void set(cudnnBackendAttributeName_t name, const builder &other) {
        if (status == CUDNN_STATUS_SUCCESS) status = other.status;
        set(name, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &other.d);
    }
    bool finish(void) {
        if (status == CUDNN_STATUS_SUCCESS) status = cudnn()->cudnnBackendFinalize(d);
        return status == CUDNN_STATUS_SUCCESS;
    }
};

static cudnnDataType_t data_type(nn_type type) { return type == NN_BF16 ? CUDNN_DATA_BFLOAT16 : CUDNN_DATA_FLOAT; }

/* Names of the arrays, which a run gives addresses for. */
enum { NAME_X = 1, NAME_W, NAME_Y };

/* [n, h, w, c] in memory, which cuDNN wants to be told as n, c, h, w. */
static void describe_tensor(builder *t, int64_t name, nn_type type, int64_t n, int64_t h, int64_t w, int64_t c) {
    const cudnnDataType_t data = data_type(type);
    const int64_t dims[4] = {n, c, h, w}, strides[4] = {h * w * c, 1, w * c, c}, alignment = 16;
    t->set(CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_INT64, 1, &name);
    t->set(CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &data);
    t->set(CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, CUDNN_TYPE_INT64, 1, &alignment);
    t->set(CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, 4, dims);
    t->set(CUDNN_ATTR_TENSOR_STRIDES, CUDNN_TYPE_INT64, 4, strides);
    t->finish();
}

static void describe_window(builder *c, const conv_shape *s) {
    const cudnnDataType_t compute = CUDNN_DATA_FLOAT;
    const cudnnConvolutionMode_t mode = CUDNN_CROSS_CORRELATION;
    const int64_t dims = 2, dilation[2] = {1, 1}, stride[2] = {s->stride, s->stride},
                  padding[2] = {s->padding, s->padding};
    c->set(CUDNN_ATTR_CONVOLUTION_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &compute);
    c->set(CUDNN_ATTR_CONVOLUTION_CONV_MODE, CUDNN_TYPE_CONVOLUTION_MODE, 1, &mode);
    c->set(CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS, CUDNN_TYPE_INT64, 1, &dims);
    c->set(CUDNN_ATTR_CONVOLUTION_DILATIONS, CUDNN_TYPE_INT64, 2, dilation);
    c->set(CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, CUDNN_TYPE_INT64, 2, stride);
    c->set(CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, CUDNN_TYPE_INT64, 2, padding);
    c->set(CUDNN_ATTR_CONVOLUTION_POST_PADDINGS, CUDNN_TYPE_INT64, 2, padding);
    c->finish();
}

/* cuDNN's names for the parts of the operation, for each result. */
struct operation_names {
    cudnnBackendDescriptorType_t type;
    cudnnBackendAttributeName_t x, w, y, window, alpha, beta;
};

static const operation_names names_of[] = {
    {CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X,
     CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y,
     CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA,
     CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_BETA},
    {CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DX,
     CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_W, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DY,
     CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_CONV_DESC, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_ALPHA,
     CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_BETA},
    {CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_X,
     CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DW, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DY,
     CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_CONV_DESC, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_ALPHA,
     CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_BETA},
};

/* ---- choosing ---- */

/* Whether an engine repeats its bits, and computes as exactly as the precision wants. */
static bool engine_fits(descriptor config, nn_precision precision) {
    builder engine(CUDNN_BACKEND_ENGINE_DESCRIPTOR);
    cudnnBackendNumericalNote_t notes[CUDNN_NUMERICAL_NOTE_TYPE_COUNT];
    int64_t n = 0;
    if (engine.status != CUDNN_STATUS_SUCCESS ||
        cudnn()->cudnnBackendGetAttribute(config, CUDNN_ATTR_ENGINECFG_ENGINE, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &n,
                                          &engine.d) != CUDNN_STATUS_SUCCESS ||
        cudnn()->cudnnBackendGetAttribute(engine.d, CUDNN_ATTR_ENGINE_NUMERICAL_NOTE, CUDNN_TYPE_NUMERICAL_NOTE,
                                          CUDNN_NUMERICAL_NOTE_TYPE_COUNT, &n, notes) != CUDNN_STATUS_SUCCESS)
        return false;
    for (int64_t i = 0; i < n; i++) {
        switch (notes[i]) {
            case CUDNN_NUMERICAL_NOTE_TENSOR_CORE:
            case CUDNN_NUMERICAL_NOTE_DOWN_CONVERT_INPUTS:
                if (precision == NN_FULL) return false;
                break;
            case CUDNN_NUMERICAL_NOTE_STRICT_NAN_PROP: break;
            default: return false; /* sums in an order of their own, or transforms that lose digits */
        }
    }
    return true;
}

/* Runs a plan once. */
static cudnnStatus_t execute(descriptor plan, cudaStream_t stream, void *x, void *w, void *y, void *workspace) {
    const int64_t names[3] = {NAME_X, NAME_W, NAME_Y};
    void *const addresses[3] = {x, w, y};
    const cudnnHandle_t handle = handle_of_device();
    builder pack(CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR);
    pack.set(CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, CUDNN_TYPE_INT64, 3, names);
    pack.set(CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, CUDNN_TYPE_VOID_PTR, 3, addresses);
    pack.set(CUDNN_ATTR_VARIANT_PACK_WORKSPACE, CUDNN_TYPE_VOID_PTR, 1, &workspace);
    if (!pack.finish()) return pack.status;
    const cudnnStatus_t status = cudnn()->cudnnSetStream(handle, stream);
    return status == CUDNN_STATUS_SUCCESS ? cudnn()->cudnnBackendExecute(handle, plan, pack.d) : status;
}

/* Whether a plan can be captured: some do things that a graph cannot hold. Captured work does not run, so any address
 * will do. */
static bool can_be_recorded(descriptor plan) {
    cudaStream_t stream = NULL;
    cudaGraph_t graph = NULL;
    char *const anywhere = (char *)(uintptr_t)(1 << 20);
    bool ok = cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking) == cudaSuccess;
    ok = ok && cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal) == cudaSuccess;
    if (ok) {
        ok = execute(plan, stream, anywhere, anywhere, anywhere, anywhere) == CUDNN_STATUS_SUCCESS;
        ok = cudaStreamEndCapture(stream, &graph) == cudaSuccess && ok;
    }
    if (graph) cudaGraphDestroy(graph);
    if (stream) cudaStreamDestroy(stream);
    cudaGetLastError();
    return ok;
}

/* An execution plan of a configuration; NULL if there is none that fits. */
static descriptor plan_of(descriptor config, nn_precision precision, size_t *workspace) {
    if (!engine_fits(config, precision)) return NULL;
    const cudnnHandle_t handle = handle_of_device();
    builder plan(CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR);
    plan.set(CUDNN_ATTR_EXECUTION_PLAN_HANDLE, CUDNN_TYPE_HANDLE, 1, &handle);
    plan.set(CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &config);
    int64_t size = 0, n = 0;
    if (!plan.finish() || cudnn()->cudnnBackendGetAttribute(plan.d, CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE,
                                                            CUDNN_TYPE_INT64, 1, &n, &size) != CUDNN_STATUS_SUCCESS)
        return NULL;
    if (size > CONV_WORKSPACE || !can_be_recorded(plan.d)) return NULL;
    *workspace = (size_t)size;
    const descriptor made = plan.d;
    plan.d = NULL;
    return made;
}

/* ---- measuring ---- */

struct conv_trial {
    void *arrays[3]; /* x, W, y; one is the result of the first plan */
    void *second;    /* the result of another */
    void *workspace;
    unsigned *differences;
    int result;
    size_t bytes; /* of the result */
    cudaStream_t stream;
};

static int64_t numbers_of(const conv_shape *s, int which) {
    if (which == CONV_Y) return s->rows * s->y_height * s->y_width * s->out;
    return which == CONV_DX ? s->rows * s->height * s->width * s->in : s->out * s->kernel * s->kernel * s->in;
}

static void trial_close(conv_trial *t) {
    void *const all[] = {t->arrays[0], t->arrays[1], t->arrays[2], t->second, t->workspace, t->differences};
    for (void *p : all) cudaFree(p);
    if (t->stream) cudaStreamDestroy(t->stream);
    cudaGetLastError(); /* cudaMalloc may have failed */
}

static bool trial_open(conv_trial *t, const conv_shape *s, const conv_way *way) {
    static const int order[3] = {CONV_DX, CONV_DW, CONV_Y}; /* of arrays */
    const bool half = s->type == NN_BF16;
    *t = conv_trial{};
    bool ok = cudaStreamCreateWithFlags(&t->stream, cudaStreamNonBlocking) == cudaSuccess;
    for (int i = 0; ok && i < 3; i++) {
        const int64_t n = numbers_of(s, order[i]);
        ok = cudaMalloc(&t->arrays[i], (size_t)n * (half ? 2 : 4)) == cudaSuccess;
        if (ok) fill_at_random(half, t->arrays[i], n, (uint64_t)i + 1, t->stream);
        if (order[i] == way->result) t->result = i;
    }
    t->bytes = (size_t)numbers_of(s, way->result) * (half ? 2 : 4);
    ok = ok && cudaMalloc(&t->second, t->bytes) == cudaSuccess;
    ok = ok && cudaMalloc(&t->workspace, CONV_WORKSPACE) == cudaSuccess;
    return ok && cudaMalloc((void **)&t->differences, sizeof *t->differences) == cudaSuccess;
}

static bool trial_run(const conv_trial *t, descriptor plan, void *result) {
    void *arrays[3] = {t->arrays[0], t->arrays[1], t->arrays[2]};
    arrays[t->result] = result;
    return execute(plan, t->stream, arrays[0], arrays[1], arrays[2], t->workspace) == CUDNN_STATUS_SUCCESS;
}

/* Runs a trial on a result of zeros, so that trials that add to it begin alike. */
static bool trial_start(const conv_trial *t, descriptor plan, void *result) {
    return cudaMemsetAsync(result, 0, t->bytes, t->stream) == cudaSuccess && trial_run(t, plan, result);
}

/* The fastest of the plans that give the same bits as the first. */
static int fastest(const conv_trial *t, const descriptor *plans, int n) {
    void *const first = t->arrays[t->result];
    int best = 0;
    float least = 0;
    if (!trial_start(t, plans[0], first)) return 0;
    for (int i = 0; i < n; i++) {
        if (!trial_start(t, plans[i], t->second) ||
            !same_numbers(t->stream, first, t->second, t->bytes, t->differences))
            continue;
        const float ms = time_runs(t->stream, [&] { return trial_run(t, plans[i], t->second); });
        if (ms > 0 && (least == 0 || ms < least)) least = ms, best = i;
    }
    return best;
}

/* Shapes measured so far, with which of the recommendations was found. */
struct known_shape {
    conv_shape shape;
    conv_way way;
    int device;
    int64_t best;
};
static known_shape known[MOST_KNOWN];
static int known_count;
static pthread_mutex_t known_lock = PTHREAD_MUTEX_INITIALIZER;

static bool is_known(const known_shape *k, const conv_shape *s, const conv_way *way, int device) {
    const conv_shape *o = &k->shape;
    return k->device == device && k->way.result == way->result && k->way.precision == way->precision &&
           k->way.add == way->add && o->rows == s->rows && o->height == s->height && o->width == s->width &&
           o->in == s->in && o->y_height == s->y_height && o->y_width == s->y_width && o->out == s->out &&
           o->kernel == s->kernel && o->stride == s->stride && o->padding == s->padding && o->type == s->type;
}

/* -1: not known. */
static int64_t look_up(const conv_shape *s, const conv_way *way) {
    int device = 0;
    int64_t best = -1;
    cudaGetDevice(&device);
    pthread_mutex_lock(&known_lock);
    for (int i = 0; best < 0 && i < known_count; i++) {
        if (is_known(&known[i], s, way, device)) best = known[i].best;
    }
    pthread_mutex_unlock(&known_lock);
    return best;
}

static void remember(const conv_shape *s, const conv_way *way, int64_t best) {
    int device = 0;
    cudaGetDevice(&device);
    pthread_mutex_lock(&known_lock);
    if (known_count < MOST_KNOWN) known[known_count++] = known_shape{*s, *way, device, best};
    pthread_mutex_unlock(&known_lock);
}

/* Whether sums in another order would show in the bits: see product.cu. */
static bool can_compare(const conv_shape *s, const conv_way *way) {
    return s->type == NN_F32 || numbers_of(s, way->result) >= 1 << 20;
}

/* ---- the plan of a shape ---- */

/* The first few plans there are, by their places among the recommendations. */
static int make_plans(const descriptor *configs, int64_t n, nn_precision precision, int most, descriptor *plans,
                      int64_t *places, size_t *workspaces) {
    int made = 0;
    for (int64_t i = 0; made < most && i < n; i++) {
        plans[made] = plan_of(configs[i], precision, &workspaces[made]);
        if (plans[made]) places[made++] = i;
    }
    return made;
}

static descriptor choose_plan(const descriptor *configs, int64_t n, const conv_shape *s, const conv_way *way,
                              size_t *workspace) {
    const bool measured = way->measured && can_compare(s, way);
    const int64_t best_known = measured ? look_up(s, way) : -1;
    if (best_known >= 0 && best_known < n) return plan_of(configs[best_known], way->precision, workspace);
    descriptor plans[TRIED] = {};
    int64_t places[TRIED] = {};
    size_t workspaces[TRIED] = {};
    int best = 0;
    const int made = make_plans(configs, n, way->precision, measured ? TRIED : 1, plans, places, workspaces);
    if (measured && made > 1) {
        conv_trial t;
        if (trial_open(&t, s, way)) best = fastest(&t, plans, made);
        trial_close(&t);
    }
    if (measured && made > 0) remember(s, way, places[best]);
    for (int i = 0; i < made; i++) {
        if (i != best) cudnn()->cudnnBackendDestroyDescriptor(plans[i]);
    }
    *workspace = workspaces[best];
    return plans[best];
}

static descriptor recommended_plan(const builder *graph, cudnnBackendHeurMode_t mode, const conv_shape *s,
                                   const conv_way *way, size_t *workspace) {
    descriptor configs[CANDIDATES];
    int64_t n = 0, made = 0;
    builder heuristics(CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR);
    heuristics.set(CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, *graph);
    heuristics.set(CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE, 1, &mode);
    if (!heuristics.finish()) return NULL;
    while (made < CANDIDATES && cudnn()->cudnnBackendCreateDescriptor(CUDNN_BACKEND_ENGINECFG_DESCRIPTOR,
                                                                      &configs[made]) == CUDNN_STATUS_SUCCESS)
        made++;
    if (cudnn()->cudnnBackendGetAttribute(heuristics.d, CUDNN_ATTR_ENGINEHEUR_RESULTS, CUDNN_TYPE_BACKEND_DESCRIPTOR,
                                          made, &n, configs) != CUDNN_STATUS_SUCCESS)
        n = 0;
    const descriptor plan = choose_plan(configs, n < made ? n : made, s, way, workspace);
    for (int64_t i = 0; i < made; i++) cudnn()->cudnnBackendDestroyDescriptor(configs[i]);
    return plan;
}

static void choose(convolution *v, const conv_shape *s, const conv_way *way) {
    const operation_names *names = &names_of[way->result];
    const float one = 1, before = way->add ? 1 : 0;
    const cudnnHandle_t handle = handle_of_device();
    builder x(CUDNN_BACKEND_TENSOR_DESCRIPTOR), w(CUDNN_BACKEND_TENSOR_DESCRIPTOR), y(CUDNN_BACKEND_TENSOR_DESCRIPTOR);
    builder window(CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR), operation(names->type);
    builder graph(CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR);
    describe_tensor(&x, NAME_X, s->type, s->rows, s->height, s->width, s->in);
    describe_tensor(&w, NAME_W, s->type, s->out, s->kernel, s->kernel, s->in);
    describe_tensor(&y, NAME_Y, s->type, s->rows, s->y_height, s->y_width, s->out);
    describe_window(&window, s);
    operation.set(names->x, x);
    operation.set(names->w, w);
    operation.set(names->y, y);
    operation.set(names->window, window);
    operation.set(names->alpha, CUDNN_TYPE_FLOAT, 1, &one);
    operation.set(names->beta, CUDNN_TYPE_FLOAT, 1, &before);
    operation.finish();
    graph.set(CUDNN_ATTR_OPERATIONGRAPH_OPS, operation);
    graph.set(CUDNN_ATTR_OPERATIONGRAPH_HANDLE, CUDNN_TYPE_HANDLE, 1, &handle);
    if (!graph.finish()) return;
    v->plan = recommended_plan(&graph, CUDNN_HEUR_MODE_A, s, way, &v->workspace);
    if (v->plan) return;
    const conv_way first = {way->result, way->precision, way->add, false};
    v->plan = recommended_plan(&graph, CUDNN_HEUR_MODE_FALLBACK, s, &first, &v->workspace);
}

/* ---- make and run ---- */

bool convolution_try(convolution *v, const conv_shape *s, const conv_way *way) {
    *v = convolution{};
    if (handle_of_device()) choose(v, s, way);
    return v->plan;
}

adamod_status convolution_make(convolution *v, const conv_shape *s, const conv_way *way) {
    if (convolution_try(v, s, way)) return ADAMOD_OK;
    if (!cudnn()->ready) {
        return nn_cuda_fail(ADAMOD_ERROR_CUDA,
                            "cuda: convolutions need cuDNN 9 (or ADAMOD_CUDNN_LIBRARY with its path): %s",
                            cudnn()->why);
    }
    return nn_cuda_fail(
        ADAMOD_ERROR_CUDA, "cuda: cuDNN has no convolution of %lld x %lld x %lld x %lld to %lld channels",
        (long long)s->rows, (long long)s->height, (long long)s->width, (long long)s->in, (long long)s->out);
}

void convolution_free(convolution *v) {
    if (v->plan) cudnn()->cudnnBackendDestroyDescriptor((descriptor)v->plan);
    *v = convolution{};
}

void convolution_run(const convolution *v, cudaStream_t stream, void *x, void *w, void *y, void *workspace) {
    const cudnnStatus_t status = execute((descriptor)v->plan, stream, x, w, y, workspace);
    if (status != CUDNN_STATUS_SUCCESS) nn_cuda_launch_failed("a convolution", cudnn()->cudnnGetErrorString(status));
}

#else

bool convolution_try(convolution *v, const conv_shape *, const conv_way *) {
    *v = convolution{};
    return false;
}

adamod_status convolution_make(convolution *v, const conv_shape *s, const conv_way *way) {
    convolution_try(v, s, way);
    return nn_cuda_fail(ADAMOD_ERROR_CUDA,
                        "cuda: convolutions need cuDNN 9, and this build was made without its headers");
}

void convolution_free(convolution *) {}
void convolution_run(const convolution *, cudaStream_t, void *, void *, void *, void *) {}

#endif
