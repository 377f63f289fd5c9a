/* Dropout of whole rows by their ids: see ops/word_dropout.c. Both directions are one kernel. */
#include "nn/backend/cuda/cuda.h"

enum { THREADS = 256, CHUNK = 8 /* numbers of a thread */ };

/* N is CHUNK, where it divides cols, or 1. */
template <int N, typename T>
__global__ static void word_kernel(drop d, const int32_t *ids, int64_t cols, const T *from, target<T> to, int64_t n) {
    const int64_t first = N * ((int64_t)blockIdx.x * THREADS + threadIdx.x);
    const uint64_t key = drop_key(d);
    if (first >= n) return;
    float x[N];
    load_floats<N>(from + first, x);
    const bool kept = drop_keeps(d, key, ids[first / cols]);
    for (int k = 0; k < N; k++) x[k] = kept ? d.scale * x[k] : 0;
    put<N>(to, first, x);
}

template <typename T> static void drop_into(const nn_call *c, const void *from, target<T> to) {
    const int64_t cols = c->output[0].cols, n = c->output[0].rows * cols;
    const int32_t *ids = (const int32_t *)c->input[1].data;
    if (n == 0 || !to.to) return;
    if (cols % CHUNK == 0)
        word_kernel<CHUNK, T><<<(unsigned)parts(n, CHUNK * THREADS), THREADS, 0, stream_of(c)>>>(
            drop_of(c), ids, cols, (const T *)from, to, n);
    else
        word_kernel<1, T>
            <<<(unsigned)parts(n, THREADS), THREADS, 0, stream_of(c)>>>(drop_of(c), ids, cols, (const T *)from, to, n);
}

template <typename T> static void forward(const nn_call *c) {
    drop_into<T>(c, c->input[0].data, {(T *)c->output[0].data, false});
}

template <typename T> static void backward(const nn_call *c) {
    drop_into<T>(c, c->grad->output[0], target_of<T>(c, 0));
}

extern "C" const nn_kernels nn_cuda_word_dropout = {.forward = NN_BY_TYPE(output[0], forward),
                                                    .backward = NN_BY_TYPE(output[0], backward)};
