/* Label-smoothed cross entropy: see ops/cross_entropy.c for the formulas. Logits are read once in each direction, and
 * no probability is ever stored. Forward has a warp for each row, so that no thread waits for others; backward a block. */
#include "cuda.h"

enum { THREADS = 256, ROWS = 4, SUM_THREADS = 1024 };

/* Loss, nll, correct and counted of each row into results; its log-sum-exp into saved. */
template <typename T>
__global__ static void __launch_bounds__(32 * ROWS)
    forward_kernel(const T *logits, int64_t rows, int64_t n, const int32_t *targets, float smoothing, float *saved,
                   float4 *results) {
    const int64_t row = (int64_t)blockIdx.x * ROWS + threadIdx.x / 32;
    const unsigned lane = threadIdx.x % 32;
    if (row >= rows) return;
    const int32_t goal = targets[row];
    if (goal < 0) {
        if (lane == 0) results[row] = make_float4(0, 0, 0, 0);
        return;
    }
    const T *x = logits + row * n;
    const float x_goal = widen(x[goal]);
    exp_sum s = exp_sum_of_none();
    float sum_x = 0;
    bool beaten = !(x_goal > -INFINITY); /* another is larger, or as large and earlier */
    each_pack(x, n, lane, 32, [&](int64_t i, auto &v) {
        exp_sum_add(&s, v);
        for (float e : v) sum_x += e;
        if (beaten || s.most < x_goal) return;
        int64_t at = i;
        for (float e : v) {
            beaten = beaten || e > x_goal || (e == x_goal && at < goal);
            at++;
        }
    });
    s = exp_sum_of_warp(s);
    sum_x = warp_sum(sum_x);
    beaten = __any_sync(0xffffffffu, beaten);
    if (lane > 0) return;
    const float log_sum = logf(s.sum), nll = s.most - x_goal + log_sum;
    const float all = s.most - sum_x / (float)n + log_sum; /* the mean over classes of -log p */
    results[row] = make_float4(smoothing > 0 ? (1 - smoothing) * nll + smoothing * all : nll, nll, beaten ? 0 : 1, 1);
    saved[row] = (float)((double)s.most + log_sum);
}

/* Sums over rows, by one block. */
__global__ static void sum_kernel(const float4 *rows, int64_t n, float *sums) {
    __shared__ double shared[4][SUM_THREADS / 32];
    double s[4] = {0};
    for (int64_t i = threadIdx.x; i < n; i += SUM_THREADS) {
        const float4 r = rows[i];
        s[0] += r.x, s[1] += r.y, s[2] += r.z, s[3] += r.w;
    }
    for (int k = 0; k < 4; k++) {
        for (int step = 16; step > 0; step /= 2) s[k] += __shfl_xor_sync(0xffffffffu, s[k], step);
        if (threadIdx.x % 32 == 0) shared[k][threadIdx.x / 32] = s[k];
    }
    __syncthreads();
    if (threadIdx.x >= 4) return;
    double sum = 0;
    for (int w = 0; w < SUM_THREADS / 32; w++) sum += shared[threadIdx.x][w];
    sums[threadIdx.x] = (float)sum;
}

template <typename T>
__global__ static void __launch_bounds__(THREADS)
    backward_kernel(const T *logits, int64_t n, const int32_t *targets, float smoothing, const float *saved,
                    const float *loss_grad, target<T> grad) {
    const int64_t row = blockIdx.x;
    const int32_t goal = targets[row];
    if (goal < 0 && grad.add) return;
    const float scale = goal < 0 ? 0 : *loss_grad, lse = goal < 0 ? 0 : saved[row], rest = smoothing / (float)n;
    const target<T> dx = {grad.to + row * n, grad.add};
    each_pack(logits + row * n, n, threadIdx.x, THREADS, [&](int64_t i, auto &v) {
        constexpr int N = sizeof v / sizeof *v;
        float d[N];
        for (int k = 0; k < N; k++) {
            d[k] = goal < 0 ? 0 : scale * (__expf(v[k] - lse) - (i + k == goal ? 1 - smoothing : 0) - rest);
        }
        put<N>(dx, i, d);
    });
}

template <typename T> static void forward(const nn_call *c) {
    const int64_t rows = c->input[0].rows;
    float4 *results = (float4 *)c->workspace;
    if (rows > 0) {
        forward_kernel<T><<<(unsigned)parts(rows, ROWS), 32 * ROWS, 0, stream_of(c)>>>(
            (const T *)c->input[0].data, rows, c->input[0].cols, (const int32_t *)c->input[1].data,
            (float)c->attributes->smoothing, c->saved, results);
    }
    sum_kernel<<<1, SUM_THREADS, 0, stream_of(c)>>>(results, rows, (float *)c->output.data);
}

template <typename T> static void backward(const nn_call *c) {
    const int64_t rows = c->input[0].rows;
    if (rows == 0 || !c->input_grad[0]) return;
    backward_kernel<T><<<(unsigned)rows, THREADS, 0, stream_of(c)>>>(
        (const T *)c->input[0].data, c->input[0].cols, (const int32_t *)c->input[1].data,
        (float)c->attributes->smoothing, c->saved, c->output_grad, target_of<T>(c, 0));
}

static void cross_entropy_forward(const nn_call *c) { BY_TYPE(c->input[0].type, forward, c); }
static void cross_entropy_backward(const nn_call *c) { BY_TYPE(c->input[0].type, backward, c); }
static size_t cross_entropy_workspace(const nn_call *c) { return 4 * (size_t)c->input[0].rows; }

extern "C" const nn_kernels nn_cuda_cross_entropy = {
    cross_entropy_forward, cross_entropy_backward, NULL, cross_entropy_workspace, NULL, NULL, NULL, NULL, 0, false};
