/* Dropout: see ops/dropout.c. Both directions are one kernel, which draws the same numbers each time. */
#include "nn/backend/cuda/cuda.h"

enum { THREADS = 256, CHUNK = 8 /* numbers of a thread */ };

template <typename T> __global__ static void dropout_kernel(drop d, const T *from, target<T> to, int64_t n) {
    const int64_t first = CHUNK * ((int64_t)blockIdx.x * THREADS + threadIdx.x);
    const uint64_t key = drop_key(d);
    if (first + CHUNK <= n) {
        float x[CHUNK];
        load_floats<CHUNK>(from + first, x);
        const unsigned kept = drop_kept(d, key, first);
        for (int k = 0; k < CHUNK; k++) x[k] = kept >> k & 1 ? d.scale * x[k] : 0;
        put<CHUNK>(to, first, x);
        return;
    }
    for (int64_t i = first; i < n; i++) {
        const float x = drop_keeps(d, key, i) ? d.scale * widen(from[i]) : 0;
        put<1>(to, i, &x);
    }
}

template <typename T> static void drop_into(const nn_call *c, const void *from, target<T> to) {
    const int64_t n = c->output[0].rows * c->output[0].cols, blocks = parts(n, CHUNK * THREADS);
    if (n == 0 || !to.to) return;
    dropout_kernel<T><<<(unsigned)blocks, THREADS, 0, stream_of(c)>>>(drop_of(c), (const T *)from, to, n);
}

template <typename T> static void forward(const nn_call *c) {
    drop_into<T>(c, c->input[0].data, {(T *)c->output[0].data, false});
}

template <typename T> static void backward(const nn_call *c) { drop_into<T>(c, c->output_grad[0], target_of<T>(c, 0)); }

static void dropout_forward(const nn_call *c) { BY_TYPE(c->output[0].type, forward, c); }
static void dropout_backward(const nn_call *c) { BY_TYPE(c->output[0].type, backward, c); }

extern "C" const nn_kernels nn_cuda_dropout = {
    dropout_forward, dropout_backward, NULL, NULL, NULL, NULL, NULL, NULL, 0, false};
