/* RMS norm of rows: see ops/rms_norm.c for the formulas. A block takes a row, and keeps it in registers: CHUNKS times N
 * columns side by side a thread. Rows of more than 4096 columns, or whose number of columns is no multiple of 8, are read
 * twice, number by number (N is 1, CHUNKS 0). In backward a block takes many rows and leaves their part of the gain's
 * gradient, a sum over rows. saved holds each row's 1 / sqrt(mean(x^2) + eps). */
#include "nn/backend/cuda/cuda.h"

enum {
    THREADS = 128,
    CHUNK = 8,           /* columns side by side of a thread */
    MOST_PARTS = 8 * 132 /* blocks of backward: eight for each multiprocessor of an H100 or H200 */
};

template <typename T> struct norm_rows {
    const T *x, *gain;
    int64_t rows, cols;
    float eps;
    float *saved;
};

template <typename T> static norm_rows<T> rows_of(const nn_call *c) {
    return {(const T *)c->input[0].data, (const T *)c->input[1].data,      c->output[0].rows,
            c->output[0].cols,           (float)NN_ATTR(rms_norm, c)->eps, c->saved};
}

__device__ static inline float block_sum(float x) {
    float sum[1] = {x};
    group_sums<THREADS / 32>(sum);
    return sum[0];
}

/* ---- rows in registers ---- */

/* The first column of a thread's chunk k. */
__device__ static inline int64_t column(int k) { return CHUNK * ((int64_t)k * THREADS + threadIdx.x); }

/* A thread's numbers of a row; zeros where there is nothing. */
template <int CHUNKS, typename T>
__device__ static inline void load_row(const T *row, int64_t cols, float (&x)[CHUNKS][CHUNK]) {
#pragma unroll
    for (int k = 0; k < CHUNKS; k++) {
        if (column(k) < cols) load_floats<CHUNK>(row + column(k), x[k]);
        else
            for (int e = 0; e < CHUNK; e++) x[k][e] = 0;
    }
}

template <int CHUNKS>
__device__ static inline float dot(const float (&a)[CHUNKS][CHUNK], const float (&b)[CHUNKS][CHUNK]) {
    float sum = 0;
#pragma unroll
    for (int k = 0; k < CHUNKS; k++) {
        for (int e = 0; e < CHUNK; e++) sum = fmaf(a[k][e], b[k][e], sum);
    }
    return sum;
}

template <typename T, int CHUNKS>
__global__ static void __launch_bounds__(THREADS) forward_kernel(norm_rows<T> p, T *y) {
    const int64_t row = blockIdx.x;
    float x[CHUNKS][CHUNK], gain[CHUNKS][CHUNK];
    load_row<CHUNKS>(p.x + row * p.cols, p.cols, x);
    load_row<CHUNKS>(p.gain, p.cols, gain);
    const float scale = 1 / sqrtf(block_sum(dot<CHUNKS>(x, x)) / (float)p.cols + p.eps);
    if (threadIdx.x == 0) p.saved[row] = scale;
#pragma unroll
    for (int k = 0; k < CHUNKS; k++) {
        for (int e = 0; e < CHUNK; e++) x[k][e] *= scale * gain[k][e];
        if (column(k) < p.cols) store_floats<CHUNK>(y + row * p.cols + column(k), x[k]);
    }
}

template <typename T, int CHUNKS>
__global__ static void __launch_bounds__(THREADS)
    backward_kernel(norm_rows<T> p, const T *dy, target<T> dx, float *sums) {
    float gain[CHUNKS][CHUNK], dgain[CHUNKS][CHUNK] = {};
    load_row<CHUNKS>(p.gain, p.cols, gain);
    for (int64_t row = blockIdx.x; row < p.rows; row += gridDim.x) {
        float h[CHUNKS][CHUNK], g[CHUNKS][CHUNK];
        load_row<CHUNKS>(p.x + row * p.cols, p.cols, h);
        load_row<CHUNKS>(dy + row * p.cols, p.cols, g);
        const float scale = p.saved[row];
#pragma unroll
        for (int k = 0; k < CHUNKS; k++) {
            for (int e = 0; e < CHUNK; e++) {
                h[k][e] *= scale;
                dgain[k][e] = fmaf(g[k][e], h[k][e], dgain[k][e]);
                g[k][e] *= gain[k][e];
            }
        }
        const float mean = block_sum(dot<CHUNKS>(g, h)) / (float)p.cols;
#pragma unroll
        for (int k = 0; k < CHUNKS; k++) {
            for (int e = 0; e < CHUNK; e++) g[k][e] = (g[k][e] - h[k][e] * mean) * scale;
            if (column(k) < p.cols) put<CHUNK>(dx, row * p.cols + column(k), g[k]);
        }
    }
#pragma unroll
    for (int k = 0; k < CHUNKS; k++) {
        if (sums && column(k) < p.cols) store_floats<CHUNK>(sums + blockIdx.x * p.cols + column(k), dgain[k]);
    }
}

/* ---- rows of any kind ---- */

template <typename T> __global__ static void __launch_bounds__(THREADS) any_forward_kernel(norm_rows<T> p, T *y) {
    const int64_t row = blockIdx.x;
    const T *x = p.x + row * p.cols;
    float squares = 0;
    for (int64_t j = threadIdx.x; j < p.cols; j += THREADS) squares = fmaf(widen(x[j]), widen(x[j]), squares);
    const float scale = 1 / sqrtf(block_sum(squares) / (float)p.cols + p.eps);
    if (threadIdx.x == 0) p.saved[row] = scale;
    for (int64_t j = threadIdx.x; j < p.cols; j += THREADS)
        y[row * p.cols + j] = narrow<T>(widen(x[j]) * (scale * widen(p.gain[j])));
}

/* A column is always the same thread's. */
template <typename T>
__global__ static void __launch_bounds__(THREADS)
    any_backward_kernel(norm_rows<T> p, const T *dy, target<T> dx, float *sums) {
    float *mine = sums ? sums + blockIdx.x * p.cols : NULL;
    for (int64_t j = threadIdx.x; mine && j < p.cols; j += THREADS) mine[j] = 0;
    for (int64_t row = blockIdx.x; row < p.rows; row += gridDim.x) {
        const T *x = p.x + row * p.cols, *d = dy + row * p.cols;
        const float scale = p.saved[row];
        float sum = 0;
        for (int64_t j = threadIdx.x; j < p.cols; j += THREADS) {
            const float dy_h = widen(d[j]) * (widen(x[j]) * scale);
            sum = fmaf(widen(p.gain[j]), dy_h, sum);
            if (mine) mine[j] += dy_h;
        }
        const float mean = block_sum(sum) / (float)p.cols;
        for (int64_t j = threadIdx.x; j < p.cols; j += THREADS) {
            const float g = (widen(d[j]) * widen(p.gain[j]) - widen(x[j]) * scale * mean) * scale;
            put<1>(dx, row * p.cols + j, &g);
        }
    }
}

/* ---- calls ---- */

static int64_t parts_of(const nn_call *c) {
    const int64_t n = c->output[0].rows;
    return n > 0 ? parts(n, parts(n, MOST_PARTS)) : 1;
}

template <typename T> static void (*forward_for(int64_t cols))(norm_rows<T>, T *) {
    const int64_t chunks = parts(cols, THREADS * CHUNK);
    if (cols % CHUNK || chunks > 4) return any_forward_kernel<T>;
    return chunks == 1 ? forward_kernel<T, 1> : chunks == 2 ? forward_kernel<T, 2> : forward_kernel<T, 4>;
}

template <typename T> static void (*backward_for(int64_t cols))(norm_rows<T>, const T *, target<T>, float *) {
    const int64_t chunks = parts(cols, THREADS * CHUNK);
    if (cols % CHUNK || chunks > 4) return any_backward_kernel<T>;
    return chunks == 1 ? backward_kernel<T, 1> : chunks == 2 ? backward_kernel<T, 2> : backward_kernel<T, 4>;
}

template <typename T> static void forward(const nn_call *c) {
    if (c->output[0].rows == 0) return;
    forward_for<T>(c->output[0].cols)<<<(unsigned)c->output[0].rows, THREADS, 0, stream_of(c)>>>(
        rows_of<T>(c), (T *)c->output[0].data);
}

template <typename T> static void backward(const nn_call *c) {
    const int64_t n = parts_of(c), cols = c->output[0].cols;
    float *sums = c->grad->input[1] ? c->grad->partials : NULL;
    backward_for<T>(cols)<<<(unsigned)n, THREADS, 0, stream_of(c)>>>(rows_of<T>(c), (const T *)c->grad->output[0],
                                                                     target_of<T>(c, 0), sums);
    const nn_sum gain = {sums, cols, n, cols, c->grad->input[1], c->grad->accumulate[1]};
    nn_cuda_sum(c, &gain);
}

static size_t rms_norm_partials(const nn_call *c) {
    return c->grad->input[1] ? (size_t)(parts_of(c) * c->output[0].cols) : 0;
}

extern "C" const nn_kernels nn_cuda_rms_norm = {.forward = NN_BY_TYPE(output[0], forward),
                                                .backward = NN_BY_TYPE(output[0], backward),
                                                .partials = rms_norm_partials};
