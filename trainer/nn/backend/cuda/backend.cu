/* The cuda backend: one device, its memory, its stream, its recordings; and the table of kernels. */
#include "nn/backend/cuda/cuda.h"

#include <cuda_profiler_api.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

nn_fail nn_cuda_fail;

adamod_status nn_cuda_failed(cudaError_t error, const char *what) {
    if (error == cudaSuccess) return ADAMOD_OK;
    cudaGetLastError(); /* it has been told */
    return nn_cuda_fail(error == cudaErrorMemoryAllocation ? ADAMOD_ERROR_DEVICE_MEMORY : ADAMOD_ERROR_CUDA,
                        "cuda: %s: %s", what, cudaGetErrorString(error));
}

adamod_status nn_cuda_zeros(void **out, size_t bytes, const nn_call *c) {
    cudaError_t e = cudaMalloc(out, bytes);
    if (e == cudaSuccess) e = cudaMemsetAsync(*out, 0, bytes, stream_of(c));
    return nn_cuda_failed(e, "preparing an op");
}

/* The first launch that a library refused, until a wait reports it. */
static thread_local char refused[160];

void nn_cuda_launch_failed(const char *what, const char *why) {
    if (!*refused) snprintf(refused, sizeof refused, "%s: %s", what, why);
}

struct nn_device {
    int index;
    cudaStream_t stream;
    nn_device_info info;
    cudaError_t failed; /* the first failure since the last wait */
    const char *failed_in;
    int64_t *moves; /* lists of move on the device, and as the host fills them */
    int64_t *moves_host;
    int64_t moves_capacity;
    cudaEvent_t moves_done;
};

/* Keeps the first failure of something that only enqueues. */
static void note(nn_device *d, cudaError_t error, const char *what) {
    if (error == cudaSuccess || d->failed != cudaSuccess) return;
    d->failed = error;
    d->failed_in = what;
}

/* ---- open and close ---- */

/* Why there is no device, in words that say what to do. */
static adamod_status no_device(cudaError_t error) {
    int driver = 0, runtime = 0;
    cudaDriverGetVersion(&driver);
    cudaRuntimeGetVersion(&runtime);
    cudaGetLastError();
    if (driver == 0) return nn_cuda_fail(ADAMOD_ERROR_NO_CUDA, "cuda: there is no NVIDIA driver on this machine");
    if (error == cudaErrorInsufficientDriver) {
        return nn_cuda_fail(ADAMOD_ERROR_DRIVER,
                            "cuda: the driver supports CUDA %d.%d, this build needs %d.%d or later", driver / 1000,
                            driver % 1000 / 10, runtime / 1000, runtime % 1000 / 10);
    }
    return nn_cuda_fail(ADAMOD_ERROR_NO_CUDA, "cuda: %s",
                        error == cudaSuccess ? "the driver found no device" : cudaGetErrorString(error));
}

static void device_close(nn_device *d) {
    if (!d) return;
    if (d->stream) cudaStreamSynchronize(d->stream);
    cudaFree(d->moves);
    cudaFreeHost(d->moves_host);
    if (d->moves_done) cudaEventDestroy(d->moves_done);
    if (d->stream) cudaStreamDestroy(d->stream);
    cudaGetLastError();
    free(d);
}

static adamod_status device_open(nn_device **out, int index) {
    int n = 0;
    const cudaError_t error = cudaGetDeviceCount(&n);
    if (error != cudaSuccess || n == 0) return no_device(error);
    if (index < 0 || index >= n) {
        return nn_cuda_fail(ADAMOD_ERROR_DEVICE, "cuda: there is no device %d, expected 0 to %d", index, n - 1);
    }
    nn_device *d = (nn_device *)calloc(1, sizeof *d);
    if (!d) return nn_cuda_fail(ADAMOD_ERROR_MEMORY, "out of memory for a device");
    d->index = index;
    cudaDeviceProp p;
    cudaError_t e = cudaSetDevice(index);
    if (e == cudaSuccess) e = cudaGetDeviceProperties(&p, index);
    if (e == cudaSuccess) e = cudaStreamCreateWithFlags(&d->stream, cudaStreamNonBlocking);
    if (e == cudaSuccess) e = cudaEventCreateWithFlags(&d->moves_done, cudaEventDisableTiming);
    adamod_status status = nn_cuda_failed(e, "opening the device");
    if (!status && p.major < 8) {
        status = nn_cuda_fail(ADAMOD_ERROR_DEVICE, "cuda: %s has compute capability %d.%d, expected 8.0 or later",
                              p.name, p.major, p.minor);
    }
    if (status) {
        device_close(d);
        return status;
    }
    snprintf(d->info.name, sizeof d->info.name, "%.100s", p.name);
    d->info.memory = p.totalGlobalMem;
    *out = d;
    return ADAMOD_OK;
}

static nn_device_info device_info(const nn_device *d) { return d->info; }
static void *device_stream(const nn_device *d) { return d->stream; }

/* ---- memory ---- */

static adamod_status device_allocate(nn_device *d, void **out, size_t bytes) {
    cudaSetDevice(d->index);
    const cudaError_t error = cudaMalloc(out, bytes ? bytes : 1);
    if (error != cudaSuccess) {
        size_t free_bytes = 0, total = 0;
        cudaGetLastError();
        if (error != cudaErrorMemoryAllocation || cudaMemGetInfo(&free_bytes, &total) != cudaSuccess) {
            return nn_cuda_failed(error, "allocating memory");
        }
        return nn_cuda_fail(
            ADAMOD_ERROR_DEVICE_MEMORY, "cuda: out of device memory: %.1f MiB needed, %.1f of %.1f MiB free on %s",
            (double)bytes / 1048576, (double)free_bytes / 1048576, (double)total / 1048576, d->info.name);
    }
    note(d, cudaMemsetAsync(*out, 0, bytes, d->stream), "clearing memory");
    d->info.used += bytes;
    if (d->info.used > d->info.most_used) d->info.most_used = d->info.used;
    return ADAMOD_OK;
}

static void device_release(nn_device *d, void *memory, size_t bytes) {
    if (!memory) return;
    cudaSetDevice(d->index);
    cudaStreamSynchronize(d->stream);
    cudaFree(memory);
    d->info.used -= bytes;
}

static adamod_status device_allocate_host(nn_device *d, void **out, size_t bytes) {
    cudaSetDevice(d->index);
    return nn_cuda_failed(cudaMallocHost(out, bytes ? bytes : 1), "allocating host memory");
}

static void device_release_host(nn_device *d, void *memory) {
    cudaSetDevice(d->index);
    cudaStreamSynchronize(d->stream);
    if (memory) cudaFreeHost(memory);
}

static void device_upload(nn_device *d, void *to, const void *from, size_t bytes) {
    note(d, cudaMemcpyAsync(to, from, bytes, cudaMemcpyHostToDevice, d->stream), "copying to the device");
}

static void device_download(nn_device *d, void *to, const void *from, size_t bytes) {
    note(d, cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToHost, d->stream), "copying from the device");
}

static void device_copy(nn_device *d, void *to, const void *from, size_t bytes) {
    note(d, cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToDevice, d->stream), "copying on the device");
}

__global__ static void move_kernel(char *base, int64_t row, int64_t n, const int64_t *list) {
    const int64_t i = blockIdx.x, words = list[2 * n + i] * row / 4;
    const uint32_t *from = (const uint32_t *)(base + list[i] * row);
    uint32_t *to = (uint32_t *)(base + list[n + i] * row);
    for (int64_t k = threadIdx.x; k < words; k += blockDim.x) to[k] = from[k];
}

static void device_move(nn_device *d, void *base, int64_t row, int64_t n, const int64_t *from, const int64_t *to,
                        const int64_t *rows) {
    if (n == 0) return;
    cudaSetDevice(d->index);
    if (n > d->moves_capacity) {
        cudaStreamSynchronize(d->stream);
        cudaFree(d->moves);
        cudaFreeHost(d->moves_host);
        d->moves = d->moves_host = NULL;
        d->moves_capacity = 0;
        const size_t size = (size_t)(6 * n) * sizeof *d->moves;
        cudaError_t e = cudaMalloc((void **)&d->moves, size);
        if (e == cudaSuccess) e = cudaMallocHost((void **)&d->moves_host, size);
        note(d, e, "allocating a list of moves");
        if (e != cudaSuccess) return;
        d->moves_capacity = 2 * n;
    }
    note(d, cudaEventSynchronize(d->moves_done), "waiting for moves"); /* the lists before these were read */
    const size_t size = (size_t)n * sizeof *from;
    memcpy(d->moves_host, from, size);
    memcpy(d->moves_host + n, to, size);
    memcpy(d->moves_host + 2 * n, rows, size);
    device_upload(d, d->moves, d->moves_host, 3 * size);
    note(d, cudaEventRecord(d->moves_done, d->stream), "marking");
    move_kernel<<<(unsigned)n, 128, 0, d->stream>>>((char *)base, row, n, d->moves);
}

/* ---- types ---- */

__global__ static void narrow_kernel(bf16 *to, const float *from, int64_t n) {
    const int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) to[i] = narrow<bf16>(from[i]);
}

static void device_narrow(nn_device *d, void *to, const float *from, int64_t n) {
    if (n > 0) narrow_kernel<<<(unsigned)parts(n, 256), 256, 0, d->stream>>>((bf16 *)to, from, n);
}

/* ---- order ---- */

static adamod_status device_wait(nn_device *d) {
    cudaSetDevice(d->index);
    note(d, cudaGetLastError(), "starting a kernel");
    note(d, cudaStreamSynchronize(d->stream), "running a kernel");
    const cudaError_t error = d->failed;
    d->failed = cudaSuccess;
    if (*refused) {
        const adamod_status status = nn_cuda_fail(ADAMOD_ERROR_CUDA, "cuda: %s", refused);
        *refused = '\0';
        return status;
    }
    return nn_cuda_failed(error, error == cudaSuccess ? "" : d->failed_in);
}

static adamod_status device_mark(nn_device *d, void **event) {
    if (!*event) {
        cudaEvent_t e;
        const cudaError_t error = cudaEventCreateWithFlags(&e, cudaEventDisableTiming);
        if (error != cudaSuccess) return nn_cuda_failed(error, "making an event");
        *event = e;
    }
    return nn_cuda_failed(cudaEventRecord((cudaEvent_t)*event, d->stream), "marking");
}

static adamod_status device_wait_for(nn_device *d, void *event) {
    const cudaError_t error = cudaEventSynchronize((cudaEvent_t)event);
    if (error == cudaSuccess && d->failed == cudaSuccess) return ADAMOD_OK;
    note(d, error, "running a kernel");
    return device_wait(d);
}

static void device_forget(nn_device *d, void *event) {
    (void)d;
    if (event) cudaEventDestroy((cudaEvent_t)event);
}

static adamod_status device_record_begin(nn_device *d) {
    cudaSetDevice(d->index);
    return nn_cuda_failed(cudaStreamBeginCapture(d->stream, cudaStreamCaptureModeThreadLocal), "recording");
}

static adamod_status device_record_end(nn_device *d, void **recording) {
    cudaGraph_t graph = NULL;
    cudaGraphExec_t exec = NULL;
    cudaError_t error = cudaStreamEndCapture(d->stream, &graph);
    if (error == cudaSuccess) error = cudaGraphInstantiate(&exec, graph, 0);
    if (graph) cudaGraphDestroy(graph);
    *recording = exec;
    return nn_cuda_failed(error, "recording");
}

static adamod_status device_replay(nn_device *d, void *recording) {
    return nn_cuda_failed(cudaGraphLaunch((cudaGraphExec_t)recording, d->stream), "replaying");
}

static void device_drop(nn_device *d, void *recording) {
    if (!recording) return;
    cudaStreamSynchronize(d->stream);
    cudaGraphExecDestroy((cudaGraphExec_t)recording);
}

/* ---- sums over rows ---- */

enum {
    SUM_LANES = 8,  /* rows of a block's threads */
    SUM_AHEAD = 8,  /* loads of a thread under way at once */
    SUM_COLS = 32,  /* columns of a block */
    MOST_SUMS = 127 /* of one launch: its arguments may take 4096 bytes */
};

struct sum_entry {
    const float *partials;
    float *to;
    int32_t stride, n, cols;
    uint32_t end : 31, add : 1; /* end: the first block after those of this sum */
};

struct sum_table {
    int count;
    sum_entry entry[MOST_SUMS];
};

__global__ static void __launch_bounds__(SUM_COLS *SUM_LANES) sum_kernel(const __grid_constant__ sum_table t) {
    __shared__ float shared[SUM_LANES][SUM_COLS];
    int low = 0, high = t.count - 1; /* the first whose end is behind this block */
    while (low < high) {
        const int middle = (low + high) / 2;
        if (t.entry[middle].end > blockIdx.x) high = middle;
        else low = middle + 1;
    }
    const sum_entry &e = t.entry[low];
    const int first = (int)(blockIdx.x - (low ? t.entry[low - 1].end : 0)) * SUM_COLS;
    const int j = first + (int)threadIdx.x;
    float sum = 0;
    for (int row = (int)threadIdx.y; row < e.n; row += SUM_AHEAD * SUM_LANES) {
        float x[SUM_AHEAD];
#pragma unroll
        for (int k = 0; k < SUM_AHEAD; k++) {
            const int i = row + k * SUM_LANES;
            x[k] = i < e.n && j < e.cols ? e.partials[(int64_t)i * e.stride + j] : 0;
        }
        for (int k = 0; k < SUM_AHEAD; k++) sum += x[k];
    }
    shared[threadIdx.y][threadIdx.x] = sum;
    __syncthreads();
    if (threadIdx.y > 0 || j >= e.cols) return;
    for (int k = 1; k < SUM_LANES; k++) sum += shared[k][threadIdx.x];
    e.to[j] = e.add ? e.to[j] + sum : sum;
}

static void launch_sums(cudaStream_t stream, int n, const nn_sum *sums) {
    for (int first = 0; first < n; first += MOST_SUMS) {
        sum_table t = {};
        uint32_t blocks = 0;
        t.count = n - first < MOST_SUMS ? n - first : MOST_SUMS;
        for (int i = 0; i < t.count; i++) {
            const nn_sum *s = &sums[first + i];
            blocks += (uint32_t)parts(s->cols, SUM_COLS);
            t.entry[i] = {s->partials, s->to, (int32_t)s->stride, (int32_t)s->n, (int32_t)s->cols, blocks, s->add};
        }
        if (blocks > 0) sum_kernel<<<blocks, dim3(SUM_COLS, SUM_LANES), 0, stream>>>(t);
    }
}

static void device_sum(nn_device *d, int n, const nn_sum *sums) { launch_sums(d->stream, n, sums); }

void nn_cuda_sum(const nn_call *c, const nn_sum *sum) {
    if (!sum->to) return;
    if (c->grad->sums) c->grad->sums->list[c->grad->sums->count++] = *sum;
    else launch_sums(stream_of(c), 1, sum);
}

static void device_watch(nn_device *d, bool on) {
    (void)d;
    if (on) cudaProfilerStart();
    else cudaProfilerStop();
}

/* ---- the table ---- */

static const nn_device_functions functions = {
    .open = device_open,
    .close = device_close,
    .info = device_info,
    .stream = device_stream,
    .allocate = device_allocate,
    .release = device_release,
    .allocate_host = device_allocate_host,
    .release_host = device_release_host,
    .upload = device_upload,
    .download = device_download,
    .copy = device_copy,
    .move = device_move,
    .narrow = device_narrow,
    .wait = device_wait,
    .mark = device_mark,
    .wait_for = device_wait_for,
    .forget = device_forget,
    .record_begin = device_record_begin,
    .record_end = device_record_end,
    .replay = device_replay,
    .drop = device_drop,
    .sum = device_sum,
    .watch = device_watch,
};

static const nn_backend_op ops[] = {
#define ENTRY(name) {#name, &nn_cuda_##name},
    NN_DEVICE_OPS(ENTRY)
#undef ENTRY
        {NULL, NULL},
};

static const nn_backend backend = {.name = "cuda", .ops = ops, .device = &functions};

extern "C" __attribute__((visibility("default"))) const nn_backend *nn_backend_cuda_get(int version, nn_fail fail) {
    nn_cuda_fail = fail;
    return version == NN_BACKEND_VERSION ? &backend : NULL;
}
