/* The gradient of y in shared memory, with a border around its pixels (bordered.cuh). If a part of it is left as a and b of
 * each channel (nn_call.output_linear), dy + a + b y is computed there, and never stored in global memory. */
#ifndef ADAMOD_NN_CUDA_HOPPER_BORDERED_GRADIENT_H
#define ADAMOD_NN_CUDA_HOPPER_BORDERED_GRADIENT_H

#include "nn/backend/cuda/bordered.cuh"
#include "nn/backend/cuda/hopper/norm_prologue.cuh"
#include "nn/backend/cuda/hopper/norm_shape.cuh"

enum { GRAD_PACKS = OUT / 8 };

/* linear.first NULL: the gradient is dy. Else it is dy + a + b y in rows of the batch, and 0 in others. */
struct bordered_gradient {
    const bf16 *dy, *y;
    int64_t stride, pixels;
    nn_channel_pairs linear;
    const int64_t *live_rows;
    int64_t pixels_a_row;
};

static inline bordered_gradient bordered_gradient_of(const nn_call *c) {
    const nn_array *y = &c->output[0];
    return {(const bf16 *)c->grad->output[0], (const bf16 *)y->data, y->stride,    nn_pixels(y),
            c->fused->output_linear,          y->live_rows,          y->cols / OUT};
}

/* {b, b, a, a} of each two channels. Threads synchronize before they read them. */
typedef float4 linear_lines[OUT / 2];

__device__ static inline void find_linear(const bordered_gradient &g, linear_lines &lines) {
    if (threadIdx.x >= OUT || !g.linear.first) return;
    float *const to = place_in(lines, threadIdx.x);
    to[0] = g.linear.first[g.linear.stride + threadIdx.x];
    to[2] = g.linear.first[threadIdx.x];
}

/* Issues the copies of the pixels from `first` on with their border: dy to places of ROW elements; y, if there is a linear
 * part, one pack after the other. */
template <int ROW, int BLOCK>
__device__ static inline void copy_gradient(const bordered_gradient &g, const border_shape &s, const int *places,
                                            int64_t first, bf16 *to, bf16 *ys) {
    const border_edges edges(s, first);
    const int pack = (int)threadIdx.x % GRAD_PACKS;
#pragma unroll 1
    for (int at = (int)threadIdx.x; at < s.places() * GRAD_PACKS; at += BLOCK) {
        const int place = at / GRAD_PACKS;
        const int64_t pixel = first + (places[place] >> 2);
        const bool there = !edges.outside(places[place]) && pixel < g.pixels;
        const int64_t from = there ? pixel * g.stride + pack * 8 : 0;
        copy_async(to + place * ROW + pack * 8, g.dy + from, there);
        if (g.linear.first) copy_async(ys + at * 8, g.y + from, there);
    }
}

__device__ static inline uint32_t with_linear(uint32_t dy, uint32_t y, const float4 &k) {
    return narrow_pair(low(dy) + fmaf(k.x, low(y), k.z), high(dy) + fmaf(k.y, high(y), k.w));
}

/* The gradient from what this thread has copied, after copies_wait. A thread has the packs that it copied, so no barrier is
 * needed in between. */
template <int ROW, int BLOCK>
__device__ static inline void add_linear(const bordered_gradient &g, const border_shape &s, const int *places,
                                         const linear_lines &lines, int64_t first, int64_t live, bf16 *to,
                                         const bf16 *ys) {
    const border_edges edges(s, first);
    const int pack = (int)threadIdx.x % GRAD_PACKS;
    if (!g.linear.first) return;
#pragma unroll 1
    for (int at = (int)threadIdx.x; at < s.places() * GRAD_PACKS; at += BLOCK) {
        const int place = at / GRAD_PACKS;
        const int64_t pixel = first + (places[place] >> 2);
        if (edges.outside(places[place])) continue;
        uint4 *const dy = reinterpret_cast<uint4 *>(to + place * ROW + pack * 8);
        const uint4 d = *dy, y = *reinterpret_cast<const uint4 *>(ys + at * 8);
        *dy = pixel < live
                  ? make_uint4(with_linear(d.x, y.x, lines[pack * 4]), with_linear(d.y, y.y, lines[pack * 4 + 1]),
                               with_linear(d.z, y.z, lines[pack * 4 + 2]), with_linear(d.w, y.w, lines[pack * 4 + 3]))
                  : make_uint4(0, 0, 0, 0);
    }
}

#endif
