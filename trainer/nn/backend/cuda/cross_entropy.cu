/* Label-smoothed cross entropy: see ops/cross_entropy.c for the formulas. A block takes a row, reads its logits once in
 * each direction, and never stores a probability. */
#include "nn/backend/cuda/entropy.cuh"

enum {
    THREADS = 256,
    AHEAD = 5 /* loads under way: all of a row of 10,000 numbers of 2 bytes */
};

/* Loss, nll, correct and counted of each row into rows; its log-sum-exp into saved. The target is needed only at the
 * end, so nothing waits for it. */
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
    rows[row] = entropy_of(p, goal, x_goal, n, smoothing, 0);
    saved[row] = log_sum_exp(p);
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
    sum_entropies(c, results, rows);
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
