/* Dropout of a whole array: of values, of weights, or of the gradients of either. */
#ifndef ADAMOD_NN_CUDA_DROP_ARRAY_H
#define ADAMOD_NN_CUDA_DROP_ARRAY_H

#include "nn/backend/cuda/cuda.h"

enum { DROP_THREADS = 256, DROP_CHUNK = 8 /* numbers of a thread */ };

template <typename T, typename U>
__global__ static void __launch_bounds__(DROP_THREADS) drop_kernel(drop d, const T *from, target<U> to, int64_t n) {
    const int64_t first = DROP_CHUNK * ((int64_t)blockIdx.x * DROP_THREADS + threadIdx.x);
    const uint64_t key = drop_key(d);
    if (first + DROP_CHUNK <= n) {
        float x[DROP_CHUNK];
        load_floats<DROP_CHUNK>(from + first, x);
        const unsigned kept = drop_kept(d, key, first);
        for (int k = 0; k < DROP_CHUNK; k++) x[k] = kept >> k & 1 ? d.scale * x[k] : 0;
        put<DROP_CHUNK>(to, first, x);
        return;
    }
    for (int64_t i = first; i < n; i++) {
        const float x = drop_keeps(d, key, i) ? d.scale * widen(from[i]) : 0;
        put<1>(to, i, &x);
    }
}

/* n numbers, by the call's dropout; each call of an op drops the same ones. */
template <typename T, typename U> static void drop_array(const nn_call *c, const T *from, target<U> to, int64_t n) {
    const int64_t blocks = parts(n, DROP_CHUNK * DROP_THREADS);
    if (n == 0 || !to.to) return;
    drop_kernel<T, U><<<(unsigned)blocks, DROP_THREADS, 0, stream_of(c)>>>(drop_of(c), from, to, n);
}

#endif
