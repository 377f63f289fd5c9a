/* Log softmax: see ops/log_softmax.c. The output is f32 whatever x is. */
#include "nn/backend/cuda/cuda.h"

enum { THREADS = 256 };

/* A block takes a row: once for its log-sum-exp, then, from the cache, for the result. */
template <typename T> __global__ static void log_softmax_kernel(const T *in, int64_t n, float *out) {
    const T *x = in + (int64_t)blockIdx.x * n;
    float *y = out + (int64_t)blockIdx.x * n;
    exp_sum s = exp_sum_of_none();
    each_pack<2>(x, n, threadIdx.x, THREADS, [&](int64_t, auto &v) { exp_sum_add(&s, v); });
    s = exp_sum_of_block(s);
    const float log_sum = logf(s.sum);
    each_pack<2>(x, n, threadIdx.x, THREADS, [&](int64_t i, auto &v) {
        constexpr int N = sizeof v / sizeof *v;
        float result[N];
        for (int k = 0; k < N; k++) result[k] = v[k] - s.most - log_sum;
        store_floats<N>(y + i, result); /* 16 bytes of x begin where 16 bytes of y do */
    });
}

template <typename T> static void forward(const nn_call *c) {
    if (c->output[0].rows == 0) return;
    log_softmax_kernel<T><<<(unsigned)c->output[0].rows, THREADS, 0, stream_of(c)>>>(
        (const T *)c->input[0].data, c->output[0].cols, (float *)c->output[0].data);
}

extern "C" const nn_kernels nn_cuda_log_softmax = {.forward = NN_BY_TYPE(input[0], forward)};
