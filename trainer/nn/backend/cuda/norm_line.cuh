/* A batch norm as a line, for kernels that normalise what they read: y = relu(factor x + shift), in bf16. */
#ifndef ADAMOD_NN_CUDA_NORM_LINE_H
#define ADAMOD_NN_CUDA_NORM_LINE_H

#include "nn/backend/cuda/cuda.h"

__device__ static inline float low(uint32_t pair) { return __uint_as_float(pair << 16); }
__device__ static inline float high(uint32_t pair) { return __uint_as_float(pair & 0xffff0000u); }

__device__ static inline uint32_t narrow_pair(float a, float b) {
    uint32_t r;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(b), "f"(a));
    return r;
}

__device__ static inline uint32_t narrow_relu(float a, float b) {
    uint32_t r;
    asm("cvt.rn.relu.bf16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(b), "f"(a));
    return r;
}

/* z = factor x + shift, in forward and again in backward: the same bits. */
struct norm_line {
    float mean, scale, factor, shift;
};

__device__ static inline norm_line line_of(float mean, float scale, float gamma, float beta) {
    const float factor = scale * gamma;
    return {mean, scale, factor, fmaf(-mean, factor, beta)};
}

/* relu(z) of two channels: {factors, shifts}. */
__device__ static inline uint32_t normalised(uint32_t x, const float4 &k) {
    return narrow_relu(fmaf(low(x), k.x, k.z), fmaf(high(x), k.y, k.w));
}

/* The place of a channel's factor in an array of lines of two channels; its shift is two further. */
__device__ static inline float *place_in(float4 *lines, int64_t channel) {
    return reinterpret_cast<float *>(lines + channel / 2) + channel % 2;
}

/* The arrays of a norm with known moments. */
struct norm_arrays {
    nn_channel_pairs moments;
    const float *gamma, *beta;
    float *saved, *mean, *variance; /* running ones */
    float eps, momentum;
};

static inline norm_arrays norm_arrays_of(const nn_call *norm) {
    return {norm->fused->moments,
            (const float *)norm->input[2].data,
            (const float *)norm->input[3].data,
            norm->saved,
            (float *)norm->output[1].data,
            (float *)norm->output[2].data,
            (float)NN_ATTR(batch_norm, norm)->eps,
            (float)NN_ATTR(batch_norm, norm)->momentum};
}

/* As forward found it. */
__device__ static inline norm_line saved_line(const norm_arrays &norm, int64_t channels, int64_t k) {
    return line_of(norm.saved[k], norm.saved[channels + k], norm.gamma[k], norm.beta[k]);
}

/* Puts the lines of all channels into shared memory, and zeros behind them up to `room`. Each block stores what
 * backward needs, and the running statistics, of some channels. n: pixels of the batch. */
template <int THREADS>
__device__ static inline void find_lines(const norm_arrays &norm, int64_t channels, int64_t room, float n,
                                         float4 *lines) {
    constexpr int AHEAD = 4; /* channels of a thread whose numbers are on their way at once */
    const unsigned block = blockIdx.y * gridDim.x + blockIdx.x, blocks = gridDim.x * gridDim.y;
    for (int64_t first = threadIdx.x; first < room; first += AHEAD * THREADS) {
        float mean[AHEAD], v[AHEAD], gamma[AHEAD], beta[AHEAD], old_mean[AHEAD], old_v[AHEAD];
        bool told[AHEAD];
#pragma unroll
        for (int i = 0; i < AHEAD; i++) {
            const int64_t k = first + i * THREADS, at = k < channels ? k : 0;
            told[i] = k < channels && (unsigned)k / 32 % blocks == block;
            mean[i] = __ldg(norm.moments.first + at);
            v[i] = __ldg(norm.moments.first + norm.moments.stride + at);
            gamma[i] = __ldg(norm.gamma + at);
            beta[i] = __ldg(norm.beta + at);
            old_mean[i] = told[i] ? norm.mean[at] : 0;
            old_v[i] = told[i] ? norm.variance[at] : 0;
        }
#pragma unroll
        for (int i = 0; i < AHEAD; i++) {
            const int64_t k = first + i * THREADS;
            if (k >= room) break;
            const norm_line line = line_of(mean[i], 1 / sqrtf(v[i] + norm.eps), gamma[i], beta[i]);
            float *const to = place_in(lines, k);
            to[0] = k < channels ? line.factor : 0;
            to[2] = k < channels ? line.shift : 0;
            if (!told[i]) continue;
            norm.saved[k] = line.mean;
            norm.saved[channels + k] = line.scale;
            if (n == 0) continue;
            norm.mean[k] = (1 - norm.momentum) * old_mean[i] + norm.momentum * mean[i];
            norm.variance[k] = (1 - norm.momentum) * old_v[i] + norm.momentum * (v[i] * n / (n > 1 ? n - 1 : 1));
        }
    }
}

#endif
