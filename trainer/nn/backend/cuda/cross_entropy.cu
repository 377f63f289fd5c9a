/* Label-smoothed cross entropy: see ops/cross_entropy.c for the formulas. A block takes a row, reads its logits once in
 * each direction, and never stores a probability. */
#include "nn/backend/cuda/cuda.h"

enum {
    THREADS = 256,
    SUM_THREADS = 1024,
    AHEAD = 5 /* loads under way: all of a row of 10,000 numbers of 2 bytes */
};

/* A part of a row: sum is the sum of exp(x - most), at the first place of most. */
struct logits_part {
    float most, sum, sum_x;
    int at;
};

__device__ static inline logits_part join(const logits_part &a, const logits_part &b) {
    const float most = fmaxf(a.most, b.most);
    const bool left = a.most > b.most || (a.most == b.most && (unsigned)a.at < (unsigned)b.at); /* -1: none */
    return {most, a.sum * __expf(a.most - most) + b.sum * __expf(b.most - most), a.sum_x + b.sum_x, left ? a.at : b.at};
}

__device__ static inline logits_part join_lanes(logits_part p, int lanes) {
    for (int step = lanes / 2; step > 0; step /= 2) {
        const logits_part other = {
            __shfl_xor_sync(0xffffffffu, p.most, step), __shfl_xor_sync(0xffffffffu, p.sum, step),
            __shfl_xor_sync(0xffffffffu, p.sum_x, step), __shfl_xor_sync(0xffffffffu, p.at, step)};
        p = join(p, other);
    }
    return p;
}

template <int N> __device__ static inline void add_logits(logits_part *p, int64_t i, const float (&x)[N]) {
    float most = x[0];
    for (int k = 1; k < N; k++) most = fmaxf(most, x[k]);
    if (most >= p->most) { /* seldom, after the first few */
        int first = N - 1;
        for (int k = N - 2; k >= 0; k--) first = x[k] == most ? k : first;
        const int at = (int)i + first;
        if (most > p->most || (unsigned)at < (unsigned)p->at) p->at = at;
        p->sum *= __expf(p->most - most);
        p->most = most;
    }
    for (int k = 0; k < N; k++) {
        p->sum += __expf(x[k] - p->most);
        p->sum_x += x[k];
    }
}

/* Loss, nll, correct and counted of each row into rows; its log-sum-exp into saved. What the target is matters only at the
 * end, so that nothing waits for it. */
template <typename T>
__global__ static void __launch_bounds__(THREADS)
    forward_kernel(const T *logits, int64_t n, const int32_t *targets, float smoothing, float *saved, float4 *rows) {
    __shared__ logits_part shared[THREADS / 32];
    const int64_t row = blockIdx.x;
    const T *x = logits + row * n;
    const int32_t goal = targets[row];
    logits_part p = {-3.402823466e38f, 0, 0, -1}; /* finite, so that -infinity may come first */
    each_pack<AHEAD>(x, n, threadIdx.x, THREADS, [&](int64_t i, auto &v) { add_logits(&p, i, v); });
    const float x_goal = threadIdx.x == 0 && goal >= 0 ? widen(x[goal]) : 0;
    p = join_lanes(p, 32);
    if (threadIdx.x % 32 == 0) shared[threadIdx.x / 32] = p;
    __syncthreads();
    if (threadIdx.x >= 32) return;
    p = join_lanes(shared[threadIdx.x % (THREADS / 32)], THREADS / 32);
    if (threadIdx.x > 0) return;
    const float log_sum = logf(p.sum), nll = p.most - x_goal + log_sum;
    const float all = p.most - p.sum_x / (float)n + log_sum; /* the mean over classes of -log p */
    const float loss = smoothing > 0 ? (1 - smoothing) * nll + smoothing * all : nll;
    rows[row] = goal < 0 ? make_float4(0, 0, 0, 0) : make_float4(loss, nll, p.at == goal ? 1 : 0, 1);
    saved[row] = (float)((double)p.most + log_sum);
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
    each_pack<AHEAD>(logits + row * n, n, threadIdx.x, THREADS, [&](int64_t i, auto &v) {
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
        forward_kernel<T><<<(unsigned)rows, THREADS, 0, stream_of(c)>>>(
            (const T *)c->input[0].data, c->input[0].cols, (const int32_t *)c->input[1].data,
            (float)NN_ATTR(cross_entropy, c)->smoothing, c->saved, results);
    }
    sum_kernel<<<1, SUM_THREADS, 0, stream_of(c)>>>(results, rows, (float *)c->output[0].data);
}

template <typename T> static void backward(const nn_call *c) {
    const int64_t rows = c->input[0].rows;
    if (rows == 0 || !c->grad->input[0]) return;
    backward_kernel<T><<<(unsigned)rows, THREADS, 0, stream_of(c)>>>(
        (const T *)c->input[0].data, c->input[0].cols, (const int32_t *)c->input[1].data,
        (float)NN_ATTR(cross_entropy, c)->smoothing, c->saved, c->grad->output[0], target_of<T>(c, 0));
}

static size_t cross_entropy_workspace(const nn_call *c) { return 4 * (size_t)c->input[0].rows; }

extern "C" const nn_kernels nn_cuda_cross_entropy = {.forward = NN_BY_TYPE(input[0], forward),
                                                     .backward = NN_BY_TYPE(input[0], backward),
                                                     .workspace = cross_entropy_workspace};
