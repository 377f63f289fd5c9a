/* Cross entropy of rows of logits, for ops that have them: formulas are in ops/cross_entropy.c, and
 * ops/linear_cross_entropy.c for z. */
#ifndef ADAMOD_NN_CUDA_ENTROPY_H
#define ADAMOD_NN_CUDA_ENTROPY_H

#include "nn/backend/cuda/cuda.h"

enum { SUM_THREADS = 1024 };

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

__device__ static inline float log_sum_exp(const logits_part &p) { return (float)((double)p.most + logf(p.sum)); }

/* Loss, nll, correct and counted of a row of n logits, x_goal that of the target; zeros if that is negative. */
__device__ static inline float4 entropy_of(const logits_part &p, int32_t goal, float x_goal, int64_t n, float smoothing,
                                           float z) {
    if (goal < 0) return make_float4(0, 0, 0, 0);
    const float log_sum = logf(p.sum), nll = p.most - x_goal + log_sum, lse = p.most + log_sum;
    const float all = p.most - p.sum_x / (float)n + log_sum; /* the mean over classes of -log p */
    const float loss = smoothing > 0 ? (1 - smoothing) * nll + smoothing * all : nll;
    return make_float4(z > 0 ? loss + z * lse * lse : loss, nll, p.at == goal ? 1 : 0, 1);
}

/* Sums over rows, by one block. */
__global__ static void sum_entropies_kernel(const float4 *rows, int64_t n, float *sums) {
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

static inline void sum_entropies(const nn_call *c, const float4 *rows, int64_t n) {
    sum_entropies_kernel<<<1, SUM_THREADS, 0, stream_of(c)>>>(rows, n, (float *)c->output[0].data);
}

#endif
