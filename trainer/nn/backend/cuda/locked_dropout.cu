/* Dropout with one mask for all time steps: see ops/locked_dropout.c. Both directions are one kernel. */
#include "nn/backend/cuda/cuda.h"

enum { THREADS = 256, CHUNK = 8 /* numbers of a thread */ };

/* Number i has the mask of number i % step; N is CHUNK, where it divides step, or 1. */
template <int N, typename T>
__global__ static void locked_kernel(drop d, int64_t step, const T *from, target<T> to, int64_t n) {
    const int64_t first = N * ((int64_t)blockIdx.x * THREADS + threadIdx.x);
    const uint64_t key = drop_key(d);
    if (first >= n) return;
    float x[N];
    load_floats<N>(from + first, x);
    const unsigned kept = N == 1 ? (unsigned)drop_keeps(d, key, first % step) : drop_kept(d, key, first % step);
    for (int k = 0; k < N; k++) x[k] = kept >> k & 1 ? d.scale * x[k] : 0;
    put<N>(to, first, x);
}

template <typename T> static void drop_into(const nn_call *c, const void *from, target<T> to) {
    const int64_t n = c->output[0].rows * c->output[0].cols,
                  step = NN_ATTR(locked_dropout, c)->batch * c->output[0].cols;
    if (n == 0 || !to.to) return;
    if (step % CHUNK == 0 && n % CHUNK == 0)
        locked_kernel<CHUNK, T><<<(unsigned)parts(n, CHUNK * THREADS), THREADS, 0, stream_of(c)>>>(
            drop_of(c), step, (const T *)from, to, n);
    else
        locked_kernel<1, T>
            <<<(unsigned)parts(n, THREADS), THREADS, 0, stream_of(c)>>>(drop_of(c), step, (const T *)from, to, n);
}

template <typename T> static void forward(const nn_call *c) {
    drop_into<T>(c, c->input[0].data, {(T *)c->output[0].data, false});
}

template <typename T> static void backward(const nn_call *c) {
    drop_into<T>(c, c->grad->output[0], target_of<T>(c, 0));
}

extern "C" const nn_kernels nn_cuda_locked_dropout = {.forward = NN_BY_TYPE(output[0], forward),
                                                      .backward = NN_BY_TYPE(output[0], backward)};
