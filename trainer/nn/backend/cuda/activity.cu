/* The loss with the costs of activations: see ops/activity.c. Only the batch's rows count, not those behind them. */
#include "nn/backend/cuda/cuda.h"

enum { THREADS = 256, MOST_BLOCKS = 256 };

/* x and z, and how many numbers they have. */
template <typename T> struct activities {
    const T *x, *z;
    const int64_t *live_rows; /* NULL: rows */
    int64_t rows, cols, batch;
    double size, change; /* the factors of the paper's terms */
};

template <typename T> static activities<T> activities_of(const nn_call *c) {
    return {(const T *)c->input[1].data,
            (const T *)c->input[2].data,
            c->input[1].live_rows,
            c->input[1].rows,
            c->input[1].cols,
            NN_ATTR(activity, c)->batch,
            NN_ATTR(activity, c)->size,
            NN_ATTR(activity, c)->change};
}

template <typename T> __device__ static inline int64_t numbers_of(const activities<T> &a) {
    return (a.live_rows ? *a.live_rows : a.rows) * a.cols;
}

/* Factors of a square of x and of a squared change of z, for n numbers. */
template <typename T> __device__ static inline double size_factor(const activities<T> &a) {
    return a.size / (double)a.cols;
}
template <typename T> __device__ static inline double change_factor(const activities<T> &a, int64_t n) {
    const int64_t steps = n / a.cols / a.batch;
    return steps < 2 ? 0 : a.change * (double)steps / (double)(steps - 1) / (double)a.cols;
}

/* Sums of all threads of the block, in thread 0. */
__device__ static inline double2 sum_block(double2 s) {
    __shared__ double2 shared[THREADS / 32];
    for (int step = 16; step > 0; step /= 2) {
        s.x += __shfl_xor_sync(0xffffffffu, s.x, step);
        s.y += __shfl_xor_sync(0xffffffffu, s.y, step);
    }
    if (threadIdx.x % 32 == 0) shared[threadIdx.x / 32] = s;
    __syncthreads();
    double2 all = make_double2(0, 0);
    for (int w = 0; w < THREADS / 32; w++) all.x += shared[w].x, all.y += shared[w].y;
    return all;
}

/* Squares of x, and of changes of z, of a block's numbers. */
template <typename T> __global__ static void __launch_bounds__(THREADS) squares_kernel(activities<T> a, double2 *sums) {
    const int64_t n = numbers_of(a), step = a.batch * a.cols, stride = (int64_t)gridDim.x * THREADS;
    double2 s = make_double2(0, 0);
    for (int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x; i < n; i += stride) {
        const float x = widen(a.x[i]), change = i < step ? 0 : widen(a.z[i]) - widen(a.z[i - step]);
        s.x += (double)x * (double)x;
        s.y += (double)change * (double)change;
    }
    s = sum_block(s);
    if (threadIdx.x == 0) sums[blockIdx.x] = s;
}

template <typename T>
__global__ static void __launch_bounds__(THREADS)
    loss_kernel(activities<T> a, const double2 *sums, int blocks, const float *loss, float *out, int64_t cols) {
    double2 s = make_double2(0, 0);
    for (int i = (int)threadIdx.x; i < blocks; i += THREADS) s.x += sums[i].x, s.y += sums[i].y;
    s = sum_block(s);
    for (int64_t i = threadIdx.x; i < cols; i += THREADS) {
        const double cost = i ? 0 : size_factor(a) * s.x + change_factor(a, numbers_of(a)) * s.y;
        out[i] = (float)((double)loss[i] + cost);
    }
}

/* x and z may be one value, with one gradient. So a number's gradient of z is added after that of x. */
template <typename T>
__global__ static void __launch_bounds__(THREADS)
    backward_kernel(activities<T> a, const float *out_grad, int64_t loss_cols, target<float> dloss, target<T> dx,
                    target<T> dz) {
    const int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x, n = numbers_of(a), step = a.batch * a.cols;
    for (int64_t k = i; k < loss_cols; k += (int64_t)gridDim.x * THREADS) put<1>(dloss, k, out_grad + k);
    if (i >= a.rows * a.cols) return;
    const float size = (float)(2 * size_factor(a)) * out_grad[0],
                change = (float)(2 * change_factor(a, n)) * out_grad[0];
    float gx = 0, gz = 0;
    if (i < n) {
        const float z = widen(a.z[i]), before = i < step ? 0 : z - widen(a.z[i - step]),
                    after = i + step < n ? widen(a.z[i + step]) - z : 0;
        gx = size * widen(a.x[i]);
        gz = change * (before - after);
    }
    put<1>(dx, i, &gx);
    put<1>(dz, i, &gz);
}

static int blocks_of(const nn_call *c) {
    const int64_t blocks = parts(c->input[1].rows * c->input[1].cols, 4 * THREADS);
    return blocks < 1 ? 1 : blocks < MOST_BLOCKS ? (int)blocks : MOST_BLOCKS;
}

template <typename T> static void forward(const nn_call *c) {
    const activities<T> a = activities_of<T>(c);
    double2 *sums = (double2 *)c->workspace;
    const int blocks = blocks_of(c);
    squares_kernel<T><<<(unsigned)blocks, THREADS, 0, stream_of(c)>>>(a, sums);
    loss_kernel<T><<<1, THREADS, 0, stream_of(c)>>>(a, sums, blocks, (const float *)c->input[0].data,
                                                    (float *)c->output[0].data, c->output[0].cols);
}

template <typename T> static void backward(const nn_call *c) {
    const activities<T> a = activities_of<T>(c);
    const int64_t n = a.rows * a.cols, blocks = n > 0 ? parts(n, THREADS) : 1;
    backward_kernel<T><<<(unsigned)blocks, THREADS, 0, stream_of(c)>>>(
        a, c->grad->output[0], c->output[0].cols, target_of<float>(c, 0), target_of<T>(c, 1), target_of<T>(c, 2));
}

static size_t activity_workspace(const nn_call *c) { return (size_t)blocks_of(c) * sizeof(double2) / sizeof(float); }

extern "C" const nn_kernels nn_cuda_activity = {.forward = NN_BY_TYPE(input[1], forward),
                                                .backward = NN_BY_TYPE(input[1], backward),
                                                .workspace = activity_workspace};
