/* For trials of a library's algorithms: what they are given, whether two give the same bits, and how long they take. */
#ifndef ADAMOD_NN_CUDA_TRIAL_H
#define ADAMOD_NN_CUDA_TRIAL_H

#include "nn/backend/cuda/cuda.h"

enum { TRIAL_RUNS = 10 };

/* Numbers between -1 and 1. */
template <typename T> __global__ static void fill_kernel(T *x, int64_t n, uint64_t key) {
    const int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) x[i] = narrow<T>((float)nn_random_bits(key, (uint64_t)i) * (2 / 4294967296.0f) - 1);
}

__global__ static void compare_kernel(const uint16_t *a, const uint16_t *b, int64_t n, unsigned *differences) {
    const int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n && a[i] != b[i]) *differences = 1;
}

static inline void fill_at_random(bool half, void *x, int64_t n, uint64_t key, cudaStream_t stream) {
    const unsigned blocks = (unsigned)parts(n, 256);
    if (half) fill_kernel<bf16><<<blocks, 256, 0, stream>>>((bf16 *)x, n, key);
    else fill_kernel<float><<<blocks, 256, 0, stream>>>((float *)x, n, key);
}

/* differences: a number on the device. */
static inline bool same_numbers(cudaStream_t stream, const void *a, const void *b, size_t bytes,
                                unsigned *differences) {
    const int64_t n = (int64_t)(bytes / 2);
    unsigned found = 1;
    bool ok = cudaMemsetAsync(differences, 0, sizeof found, stream) == cudaSuccess;
    compare_kernel<<<(unsigned)parts(n, 256), 256, 0, stream>>>((const uint16_t *)a, (const uint16_t *)b, n,
                                                                differences);
    ok = ok && cudaMemcpyAsync(&found, differences, sizeof found, cudaMemcpyDeviceToHost, stream) == cudaSuccess;
    return cudaStreamSynchronize(stream) == cudaSuccess && ok && found == 0;
}

/* Milliseconds of a graph, the better of two runs; 0: it failed. */
static inline float milliseconds(cudaStream_t stream, cudaGraphExec_t graph) {
    cudaEvent_t begin = NULL, end = NULL;
    float best = 0;
    bool ok = cudaEventCreate(&begin) == cudaSuccess && cudaEventCreate(&end) == cudaSuccess;
    for (int i = 0; ok && i < 3; i++) {
        float ms = 0;
        ok = cudaEventRecord(begin, stream) == cudaSuccess && cudaGraphLaunch(graph, stream) == cudaSuccess &&
             cudaEventRecord(end, stream) == cudaSuccess && cudaEventSynchronize(end) == cudaSuccess &&
             cudaEventElapsedTime(&ms, begin, end) == cudaSuccess;
        if (i > 0 && (i == 1 || ms < best)) best = ms;
    }
    if (begin) cudaEventDestroy(begin);
    if (end) cudaEventDestroy(end);
    return ok ? best : 0;
}

/* Milliseconds of TRIAL_RUNS calls of run, which enqueues on the stream and says whether it could, as one graph; 0: they
 * failed. */
template <typename Run> static inline float time_runs(cudaStream_t stream, Run run) {
    cudaGraph_t graph = NULL;
    cudaGraphExec_t exec = NULL;
    bool ok = cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal) == cudaSuccess;
    for (int i = 0; ok && i < TRIAL_RUNS; i++) ok = run();
    ok = cudaStreamEndCapture(stream, &graph) == cudaSuccess && ok;
    ok = ok && cudaGraphInstantiate(&exec, graph, 0) == cudaSuccess;
    const float ms = ok ? milliseconds(stream, exec) : 0;
    if (exec) cudaGraphExecDestroy(exec);
    if (graph) cudaGraphDestroy(graph);
    return ms;
}

#endif
