/* Rows of x into rows of the cache: see ops/cache_write.c. Rows past those of the batch have index -1. */
#include "nn/backend/cuda/cuda.h"

enum { THREADS = 128 };

/* A block copies a row; in packs where those of x and of the cache begin at 16 bytes. */
template <typename T>
__global__ static void copy_kernel(const T *x, int64_t width, const int32_t *index, T *cache, int64_t cols,
                                   bool packs) {
    const int32_t row = index[blockIdx.x];
    if (row < 0) return;
    const T *from = x + ((int64_t)blockIdx.x + 1) * width - cols;
    T *to = cache + row * cols;
    constexpr int N = pack<T>::N;
    if (packs) {
        for (int64_t j = threadIdx.x * N; j < cols; j += THREADS * N) store_pack(to + j, load_pack(from + j));
    } else {
        for (int64_t j = threadIdx.x; j < cols; j += THREADS) to[j] = from[j];
    }
}

template <typename T> static void forward(const nn_call *c) {
    const nn_array *x = &c->input[1];
    const int64_t cols = c->output[0].cols;
    if (x->rows == 0) return;
    copy_kernel<T><<<(unsigned)x->rows, THREADS, 0, stream_of(c)>>>(
        (const T *)x->data, x->cols, (const int32_t *)c->input[2].data, (T *)c->output[0].data, cols,
        cols % pack<T>::N == 0 && x->cols % pack<T>::N == 0);
}

static void cache_write_forward(const nn_call *c) { BY_TYPE(c->output[0].type, forward, c); }

extern "C" const nn_kernels nn_cuda_cache_write = {
    cache_write_forward, NULL, NULL, NULL, NULL, NULL, NULL, NULL, 0, false};
