/* libadamod_cuda's table of functions: devices, memory, changes between steps, and the order of launches. */
#include "kernels/cuda/cuda_host.h"
#include "kernels/half.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- errors ---- */

/* One for each thread, as errno. */
static thread_local char message[400] = "no error";

adamod_status fail(adamod_status status, const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(message, sizeof message, format, arguments);
    va_end(arguments);
    return status;
}

static const char *last_error(void) { return message; }

adamod_status no_memory(void) { return fail(ADAMOD_ERROR_MEMORY, "cuda: out of host memory"); }

adamod_status failed_call(const adamod__device *d, cudaError_t error, const char *what) {
    (void)cudaGetLastError(); /* so that the next call does not report it */
    if (error == cudaErrorNoKernelImageForDevice) {
        return fail(ADAMOD_ERROR_DEVICE,
                    "cuda:%d (%s): this library has no code for it: build it for its compute "
                    "capability (ADAMOD_CUDA_ARCHITECTURES)",
                    d->index, d->name);
    }
    return fail(ADAMOD_ERROR_CUDA, "cuda:%d (%s): %s: %s (%s)", d->index, d->name, what, cudaGetErrorString(error),
                cudaGetErrorName(error));
}

adamod_status result_of(const adamod__device *d, cudaError_t error, const char *what) {
    return error == cudaSuccess ? ADAMOD_OK : failed_call(d, error, what);
}

static adamod_status launched(const adamod__device *d, const char *what) {
    return result_of(d, cudaGetLastError(), what);
}

/* ---- devices ---- */

static adamod_status count_devices(int *devices) {
    int driver = 0, runtime = 0;
    const cudaError_t error = cudaGetDeviceCount(devices);
    (void)cudaGetLastError();
    (void)cudaDriverGetVersion(&driver);
    (void)cudaRuntimeGetVersion(&runtime);
    if (error == cudaSuccess && *devices > 0) return ADAMOD_OK;
    if (driver == 0) return fail(ADAMOD_ERROR_NO_CUDA, "cuda: there is no NVIDIA driver (libcuda.so.1)");
    if (error == cudaErrorInsufficientDriver) {
        return fail(ADAMOD_ERROR_DRIVER, "cuda: the driver is for CUDA %d.%d, expected %d.%d or later", driver / 1000,
                    driver % 1000 / 10, runtime / 1000, runtime % 1000 / 10);
    }
    if (error == cudaSuccess || error == cudaErrorNoDevice) return fail(ADAMOD_ERROR_NO_CUDA, "cuda: there is no GPU");
    return fail(ADAMOD_ERROR_CUDA, "cuda: cannot count devices: %s (%s)", cudaGetErrorString(error),
                cudaGetErrorName(error));
}

static adamod_status check_index(int index) {
    int devices = 0;
    const adamod_status status = count_devices(&devices);
    if (status) return status;
    if (index >= 0 && index < devices) return ADAMOD_OK;
    return fail(ADAMOD_ERROR_DEVICE, "cuda:%d: no such device, there %s %d (cuda:0%s)", index,
                devices == 1 ? "is" : "are", devices, devices == 1 ? "" : ", ...");
}

static adamod_status describe(int index, adamod_cuda_device *out) {
    const adamod_status status = check_index(index);
    if (status) return status;
    adamod__device d = {};
    d.index = index;
    snprintf(d.name, sizeof d.name, "unknown");
    cudaDeviceProp properties;
    TRY(&d, cudaGetDeviceProperties(&properties, index));
    device_guard guard(index);
    memset(out, 0, sizeof *out);
    snprintf(out->name, sizeof out->name, "%s", properties.name);
    out->major = properties.major;
    out->minor = properties.minor;
    TRY(&d, cudaDriverGetVersion(&out->driver));
    TRY(&d, cudaMemGetInfo(&out->free_memory, &out->memory));
    return ADAMOD_OK;
}

/* ---- memory ---- */

adamod_status allocate(const adamod__device *d, size_t bytes, void **out) {
    *out = NULL;
    const cudaError_t error = cudaMalloc(out, bytes ? bytes : 1);
    if (error == cudaSuccess) return ADAMOD_OK;
    if (error != cudaErrorMemoryAllocation) return failed_call(d, error, "cudaMalloc");
    (void)cudaGetLastError();
    size_t available = 0, total = 0;
    (void)cudaMemGetInfo(&available, &total);
    const double gib = 1024.0 * 1024.0 * 1024.0;
    return fail(ADAMOD_ERROR_DEVICE_MEMORY,
                "cuda: out of device memory: %.4g GiB needed, %.4g GiB free on cuda:%d (%s)", (double)bytes / gib,
                (double)available / gib, d->index, d->name);
}

static adamod_status device_alloc(adamod__device *d, size_t bytes, void **out) {
    device_guard guard(d->index);
    return allocate(d, bytes, out);
}

static void device_release(adamod__device *d, void *memory) {
    device_guard guard(d->index);
    (void)cudaFree(memory);
}

void keep(adamod__device *d, void *memory) {
    if (!memory) return;
    void **grown = (void **)realloc(d->kept, (size_t)(d->n_kept + 1) * sizeof *grown);
    if (!grown) return; /* leaked, rather than freed under a graph */
    d->kept = grown;
    d->kept[d->n_kept++] = memory;
}

adamod_status copy_in(adamod__device *d, void *to, const void *from, size_t bytes) {
    device_guard guard(d->index);
    TRY(d, cudaMemcpyAsync(to, from, bytes, cudaMemcpyHostToDevice, d->stream));
    return CALL(d, cudaStreamSynchronize(d->stream));
}

adamod_status copy_out(adamod__device *d, void *to, const void *from, size_t bytes) {
    device_guard guard(d->index);
    TRY(d, cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToHost, d->stream));
    return CALL(d, cudaStreamSynchronize(d->stream));
}

static adamod_status copy_within(adamod__device *d, void *to, const void *from, size_t bytes, int hint) {
    device_guard guard(d->index);
    cuda_copy(to, from, bytes, hint, d->stream);
    return launched(d, "copying");
}

static adamod_status fill(adamod__device *d, void *to, adamod_type type, int64_t count, double value) {
    device_guard guard(d->index);
    cuda_fill(to, type, count, value, d->stream);
    return launched(d, "filling a state");
}

static adamod_status widen(adamod__device *d, float *to, const void *from, adamod_type type, int64_t count) {
    device_guard guard(d->index);
    cuda_widen(to, from, type, count, d->stream);
    return launched(d, "making a master");
}

static adamod_status check_memory(adamod__device *d, const void *memory) {
    device_guard guard(d->index);
    cudaPointerAttributes found;
    const cudaError_t error = cudaPointerGetAttributes(&found, memory);
    (void)cudaGetLastError();
    if (error == cudaSuccess && found.type == cudaMemoryTypeManaged) return ADAMOD_OK;
    /* Page-locked host memory that kernels reach by its own address: slow, and meant for states that do not fit. */
    if (error == cudaSuccess && found.type == cudaMemoryTypeHost && found.devicePointer == memory) return ADAMOD_OK;
    if (error == cudaSuccess && found.type == cudaMemoryTypeDevice) {
        if (found.device == d->index) return ADAMOD_OK;
        return fail(ADAMOD_ERROR_DEVICE, "memory of cuda:%d, expected of cuda:%d (%s)", found.device, d->index,
                    d->name);
    }
    return fail(ADAMOD_ERROR_DEVICE, "host memory, expected memory of cuda:%d (%s)", d->index, d->name);
}

/* ---- open and close ---- */

static const cuda_driver *driver_of(int rule) {
#define DRIVER(name)                                                                                                   \
    if (rule == RULE_##name) return &cuda_##name##_driver;
#include "rules/names.inc.h"
    return NULL;
}

static void close_device(adamod__device *d) {
    if (!d) return;
    device_guard guard(d->index);
    if (d->shared) (void)cudaStreamSynchronize(d->stream);
    void *const own[] = {d->shared, d->limits, d->schedules, d->arena,    d->workspace,
                         d->edge,   d->bin,    d->counts,    d->part_sums};
    for (size_t i = 0; i < sizeof own / sizeof *own; i++) (void)cudaFree(own[i]);
    for (int64_t i = 0; i < d->n_kept; i++) (void)cudaFree(d->kept[i]);
    if (d->mirror) (void)cudaFreeHost(d->mirror);
    if (d->event) (void)cudaEventDestroy(d->event);
    if (d->side) (void)cudaStreamDestroy(d->side);
    (void)cudaGetLastError();
    free(d->kept);
    free(d->tensors);
    free(d->groups);
    free(d->classes);
    free(d->chunk_list);
    free(d);
}

static adamod_status start(adamod__device *d, const device_limit *limits) {
    cudaDeviceProp properties;
    TRY(d, cudaGetDeviceProperties(&properties, d->index));
    snprintf(d->name, sizeof d->name, "%s", properties.name);
    d->processors = properties.multiProcessorCount;
    d->overlaps = properties.major >= 9;
    TRY(d, cudaStreamCreateWithFlags(&d->side, cudaStreamNonBlocking));
    TRY(d, cudaEventCreateWithFlags(&d->event, cudaEventDisableTiming));
    TRY(d, cudaHostAlloc((void **)&d->mirror, sizeof *d->mirror, cudaHostAllocMapped));
    memset(d->mirror, 0, sizeof *d->mirror);
    adamod_status status = allocate(d, sizeof *d->shared, (void **)&d->shared);
    if (status || (status = allocate(d, OPT_COUNT * sizeof *limits, (void **)&d->limits))) return status;
    TRY(d, cudaMemset(d->shared, 0, sizeof *d->shared));
    return CALL(d, cudaMemcpy(d->limits, limits, OPT_COUNT * sizeof *limits, cudaMemcpyHostToDevice));
}

static adamod_status open_device(adamod__device **out, int index, int rule, const device_limit limits[OPT_COUNT]) {
    adamod_status status = check_index(index);
    if (status) return status;
    adamod__device *d = (adamod__device *)calloc(1, sizeof *d);
    if (!d) return no_memory();
    d->index = index;
    d->rule = rule;
    d->driver = driver_of(rule);
    d->tuning = -1;
    snprintf(d->name, sizeof d->name, "unknown");
    device_guard guard(index);
    if ((status = start(d, limits))) {
        close_device(d);
        return status;
    }
    *out = d;
    return ADAMOD_OK;
}

adamod_status capturing(adamod__device *d, int *yes) {
    cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
    device_guard guard(d->index);
    *yes = 0;
    /* The default stream cannot be captured, and may not be queried while another is. */
    if (!d->stream) return ADAMOD_OK;
    TRY(d, cudaStreamIsCapturing(d->stream, &status));
    *yes = status != cudaStreamCaptureStatusNone;
    return ADAMOD_OK;
}

static adamod_status set_stream(adamod__device *d, void *stream) {
    const cudaStream_t to = (cudaStream_t)stream;
    int before = 0, after = 0;
    if (to == d->stream) return ADAMOD_OK;
    device_guard guard(d->index);
    adamod_status status = capturing(d, &before);
    const cudaStream_t from = d->stream;
    d->stream = to;
    if (!status) status = capturing(d, &after);
    if (status) {
        d->stream = from;
        return status;
    }
    /* A graph cannot wait for work outside it; the capturing program orders that. */
    if (before || after) return ADAMOD_OK;
    TRY(d, cudaEventRecord(d->event, from));
    return CALL(d, cudaStreamWaitEvent(to, d->event, 0));
}

static adamod_status sync_device(adamod__device *d) {
    device_guard guard(d->index);
    return CALL(d, cudaStreamSynchronize(d->stream));
}

/* ---- changes between steps ---- */

static void repoint(adamod__device *d, int64_t i, void *p, const void *g) {
    d->tensors[i].p = p;
    d->tensors[i].g = g;
    d->tensors[i].path = cuda_path(&d->tensors[i]);
    if (i < d->dirty_first) d->dirty_first = i;
    if (i > d->dirty_last) d->dirty_last = i;
}

static adamod_status set_group(adamod__device *d, int group, const device_group *to) {
    device_guard guard(d->index);
    d->groups[group] = *to;
    cuda_set_group(d->v.groups + group, to, d->stream);
    return launched(d, "setting options");
}

static adamod_status push_control(adamod__device *d) {
    cuda_set_control(d->shared, d->found_inf, d->loss_scale, (const device_schedule *)d->schedules, d->numbers,
                     d->stream);
    return launched(d, "setting pointers");
}

static adamod_status set_schedules(adamod__device *d, const device_schedule *nodes, int n, const int64_t *numbers,
                                   int n_numbers) {
    device_guard guard(d->index);
    const char *what = "copying schedules";
    bump b = {NULL, 0};
    b.take<device_schedule>(n);
    b.take<int64_t>(n_numbers);
    void *memory;
    adamod_status status = allocate(d, b.used, &memory);
    if (status) return status;
    b = bump{(char *)memory, 0};
    device_schedule *to = b.take<device_schedule>(n);
    int64_t *list = b.take<int64_t>(n_numbers);
    status =
        result_of(d, cudaMemcpyAsync(to, nodes, (size_t)n * sizeof *nodes, cudaMemcpyHostToDevice, d->stream), what);
    if (!status)
        status = result_of(
            d, cudaMemcpyAsync(list, numbers, (size_t)n_numbers * sizeof *numbers, cudaMemcpyHostToDevice, d->stream),
            what);
    if (!status) status = result_of(d, cudaStreamSynchronize(d->stream), what);
    if (status) {
        (void)cudaFree(memory);
        return status;
    }
    void *old = d->schedules;
    d->schedules = memory;
    d->numbers = list;
    status = push_control(d);
    if (!status) status = sync_device(d);
    (void)cudaFree(old);
    return status;
}

static adamod_status set_scaler(adamod__device *d, const float *found_inf, const float *loss_scale) {
    if (found_inf == d->found_inf && loss_scale == d->loss_scale) return ADAMOD_OK;
    device_guard guard(d->index);
    d->found_inf = found_inf;
    d->loss_scale = loss_scale;
    return push_control(d);
}

static adamod_status set_progress(adamod__device *d, const device_progress *from) {
    device_guard guard(d->index);
    TRY(d, cudaMemcpyAsync(&d->shared->steps, &from->steps, sizeof from->steps, cudaMemcpyHostToDevice, d->stream));
    TRY(d,
        cudaMemcpyAsync(&d->shared->skipped, &from->skipped, sizeof from->skipped, cudaMemcpyHostToDevice, d->stream));
    TRY(d, cudaMemcpyAsync(&d->shared->norm, &from->norm, sizeof from->norm, cudaMemcpyHostToDevice, d->stream));
    return copy_in(d, d->v.steps, from->tensor_steps, (size_t)d->v.n * sizeof *from->tensor_steps);
}

static adamod_status progress(adamod__device *d, device_progress *to) {
    control now;
    adamod_status status = copy_out(d, &now, d->shared, sizeof now);
    if (!status) status = copy_out(d, to->tensor_steps, d->v.steps, (size_t)d->v.n * sizeof *to->tensor_steps);
    if (status) return status;
    to->steps = now.steps;
    to->skipped = now.skipped;
    to->norm = now.norm;
    return ADAMOD_OK;
}

/* ---- parts of the parameters ---- */

static adamod_status set_ranks(adamod__device *d, const adamod__ranks *parts) {
    device_guard guard(d->index);
    void *memory = NULL;
    const size_t bytes = 2 * (size_t)(parts->ranks > 0 ? parts->ranks : 1) * sizeof(double);
    const adamod_status status = allocate(d, bytes, &memory);
    if (status) return status;
    if (d->part_sums) keep(d, d->part_sums);
    d->part_sums = (double *)memory;
    d->parts = *parts;
    return ADAMOD_OK;
}

/* ---- the step ---- */

/* A graph must not see pointers that change later, so it has its own table, copied outside the capture. */
static adamod_status freeze_table(adamod__device *d, view *v) {
    cudaStreamCaptureMode mode = cudaStreamCaptureModeRelaxed;
    const size_t bytes = (size_t)d->v.n * sizeof *d->tensors;
    void *table = NULL;
    TRY(d, cudaThreadExchangeStreamCaptureMode(&mode));
    adamod_status status = allocate(d, bytes, &table);
    if (!status) {
        const char *what = "copying pointers for a graph";
        status = result_of(d, cudaMemcpyAsync(table, d->tensors, bytes, cudaMemcpyHostToDevice, d->side), what);
        if (!status) status = result_of(d, cudaStreamSynchronize(d->side), what);
        keep(d, table);
    }
    TRY(d, cudaThreadExchangeStreamCaptureMode(&mode));
    v->tensors = (const device_tensor *)table;
    return status;
}

static adamod_status push_pointers(adamod__device *d) {
    if (d->dirty_first > d->dirty_last) return ADAMOD_OK;
    cuda_set_pointers((device_tensor *)(uintptr_t)d->v.tensors, d->tensors, d->dirty_first,
                      d->dirty_last - d->dirty_first + 1, d->stream);
    d->dirty_first = d->v.n;
    d->dirty_last = -1;
    return launched(d, "setting pointers");
}

static adamod_status step(adamod__device *d, const device_step *how) {
    device_guard guard(d->index);
    int captured = 0;
    adamod_status status = capturing(d, &captured);
    if (!status && how->collect) status = reserve_counts(d);
    view v = d->v;
    v.host_tensors = d->tensors;
    v.host_groups = d->groups;
    v.part_sums = d->part_sums;
    v.rank = d->parts.rank;
    v.ranks = d->parts.ranks;
    if (!status) status = captured ? freeze_table(d, &v) : push_pointers(d);
    if (status) return status;
    if (how->norm) cuda_norm(&v, d->stream);
    if (how->norm && v.ranks > 0) d->parts.add(d->parts.context, v.part_sums, 2 * (int64_t)v.ranks);
    cuda_prepare(&v, how, d->stream);
    if (how->collect) cuda_clear_counts(&v, d->stream);
    if (d->driver) d->driver->run(&v, how->collect, d->stream);
    for (int i = 0; i < d->n_classes; i++) {
        if (how->collect) cuda_update_collect(&v, &d->classes[i], d->stream);
        else cuda_update(&v, &d->classes[i], d->stream);
    }
    return launched(d, "launching a step");
}

static device_error failure(const adamod__device *d) {
    const volatile device_error *m = &d->mirror->error;
    device_error e = {};
    e.count = __atomic_load_n(&d->mirror->error.count, __ATOMIC_ACQUIRE);
    if (e.count == 0) return e;
    e.status = m->status;
    e.step = m->step;
    e.tensor = m->tensor;
    e.group = m->group;
    e.option = m->option;
    e.fault = m->fault;
    e.range = m->range;
    e.value = m->value;
    return e;
}

static int report(const adamod__device *d, int64_t attempt, adamod_step_report *out) {
    const volatile device_report *from = &d->mirror->reports[attempt % ADAMOD_REPORTS];
    adamod_step_report r;
    r.attempt = from->report.attempt;
    r.taken = from->report.taken;
    r.grad_norm = from->report.grad_norm;
    r.lr = from->report.lr;
    if (r.attempt != attempt) return 0;
    if (from->check != adamod__report_check(r.attempt, r.taken, r.grad_norm, r.lr)) return 0;
    *out = r;
    return 1;
}

static adamod_status forget(adamod__device *d) {
    const adamod_status status = sync_device(d);
    if (!status) memset(d->mirror->reports, 0, sizeof d->mirror->reports);
    return status;
}

/* ---- for benchmarks and tests ---- */

static adamod_status stream_create(adamod__device *d, void **out) {
    device_guard guard(d->index);
    cudaStream_t stream;
    TRY(d, cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    *out = stream;
    return ADAMOD_OK;
}

static void stream_destroy(adamod__device *d, void *stream) {
    device_guard guard(d->index);
    (void)cudaStreamDestroy((cudaStream_t)stream);
}

static adamod_status graph_begin(adamod__device *d) {
    device_guard guard(d->index);
    return CALL(d, cudaStreamBeginCapture(d->stream, cudaStreamCaptureModeGlobal));
}

static adamod_status graph_end(adamod__device *d, void **out) {
    device_guard guard(d->index);
    cudaGraph_t graph;
    cudaGraphExec_t executable;
    TRY(d, cudaStreamEndCapture(d->stream, &graph));
    const cudaError_t error = cudaGraphInstantiate(&executable, graph, 0);
    (void)cudaGraphDestroy(graph);
    if (error != cudaSuccess) return failed_call(d, error, "cudaGraphInstantiate");
    *out = executable;
    return ADAMOD_OK;
}

static adamod_status graph_launch(adamod__device *d, void *graph) {
    device_guard guard(d->index);
    return CALL(d, cudaGraphLaunch((cudaGraphExec_t)graph, d->stream));
}

static adamod_status graph_time(adamod__device *d, void *graph, int launches, double *seconds) {
    device_guard guard(d->index);
    cudaEvent_t begin, end;
    float ms = 0;
    TRY(d, cudaEventCreate(&begin));
    TRY(d, cudaEventCreate(&end));
    TRY(d, cudaEventRecord(begin, d->stream));
    for (int i = 0; i < launches; i++) TRY(d, cudaGraphLaunch((cudaGraphExec_t)graph, d->stream));
    TRY(d, cudaEventRecord(end, d->stream));
    TRY(d, cudaEventSynchronize(end));
    TRY(d, cudaEventElapsedTime(&ms, begin, end));
    (void)cudaEventDestroy(begin);
    (void)cudaEventDestroy(end);
    *seconds = 1e-3 * (double)ms / launches;
    return ADAMOD_OK;
}

static void graph_free(adamod__device *d, void *graph) {
    device_guard guard(d->index);
    if (graph) (void)cudaGraphExecDestroy((cudaGraphExec_t)graph);
}

static adamod_status tune(adamod__device *d, int index, adamod_type states, const char **name) {
    const int kind = states == ADAMOD_Q8 ? KIND_Q8 : states == ADAMOD_BF16 ? KIND_BF16 : KIND_ANY;
    *name = cuda_tuning(d->rule, index, kind);
    if (!*name) return fail(ADAMOD_ERROR_RANGE, "cuda: no tuning %d", index);
    d->tuning = index;
    return ADAMOD_OK;
}

/* ---- the table ---- */

extern "C" __attribute__((visibility("default"))) const adamod__device_api *adamod__cuda(void);
const adamod__device_api *adamod__cuda(void) {
    /* In the order of the struct. */
    static const adamod__device_api api = {
        ADAMOD__DEVICE_VERSION,
        last_error,
        count_devices,
        describe,
        open_device,
        close_device,
        set_stream,
        sync_device,
        capturing,
        device_alloc,
        device_release,
        copy_in,
        copy_out,
        fill,
        widen,
        check_memory,
        lay_out,
        repoint,
        set_group,
        set_schedules,
        set_scaler,
        set_ranks,
        set_progress,
        progress,
        step,
        failure,
        report,
        forget,
        collect,
        statistics,
        stream_create,
        stream_destroy,
        graph_begin,
        graph_end,
        graph_launch,
        graph_time,
        graph_free,
        copy_within,
        tune,
    };
    return &api;
}
