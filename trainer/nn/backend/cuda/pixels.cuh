/* Copies of pixels between arrays that may lie inside wider ones. */
#ifndef ADAMOD_NN_CUDA_PIXELS_H
#define ADAMOD_NN_CUDA_PIXELS_H

#include "nn/backend/cuda/cuda.h"

/* Copies pixels of `packs` packs from one array to another, or adds them. */
template <typename T, int N>
__global__ static void copy_kernel(int64_t pixels, int64_t packs, const T *from, int64_t from_stride, T *to,
                                   int64_t to_stride, bool add) {
    const int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= pixels * packs) return;
    const int64_t p = i / packs, j = i % packs * N;
    float x[N];
    load_floats<N>(from + p * from_stride + j, x);
    put<N>(target<T>{to, add}, p * to_stride + j, x);
}

/* Strides are numbers from pixel to pixel. */
template <typename T>
static void copy_pixels(const nn_call *c, int64_t pixels, int64_t channels, const void *from, int64_t from_stride,
                        void *to, int64_t to_stride, bool add) {
    constexpr int N = pack<T>::N;
    const bool packs = channels % N == 0 && from_stride % N == 0 && to_stride % N == 0 && (uintptr_t)from % 16 == 0 &&
                       (uintptr_t)to % 16 == 0;
    const int64_t n = pixels * (packs ? channels / N : channels);
    if (n == 0) return;
    const unsigned blocks = (unsigned)parts(n, 256);
    if (packs)
        copy_kernel<T, N><<<blocks, 256, 0, stream_of(c)>>>(pixels, channels / N, (const T *)from, from_stride, (T *)to,
                                                            to_stride, add);
    else
        copy_kernel<T, 1>
            <<<blocks, 256, 0, stream_of(c)>>>(pixels, channels, (const T *)from, from_stride, (T *)to, to_stride, add);
}

#endif
