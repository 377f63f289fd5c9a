/* Pixels of images in shared memory with a border of one around them, zeros outside an image: what a 3 x 3 kernel meets.
 * As many at a time as make whole rows of an image, or whole images. */
#ifndef ADAMOD_NN_CUDA_BORDERED_H
#define ADAMOD_NN_CUDA_BORDERED_H

#include "nn/backend/cuda/matrix.cuh"

/* The layout of pixels in images: `pieces` of `rows` rows. All are powers of two; pieces 0: there is no such layout. */
struct border_shape {
    int height, width, rows, pieces;
    int width_bits, rows_bits;
    __host__ __device__ int wide() const { return width + 2; }
    __host__ __device__ int places() const { return pieces * (rows + 2) * wide(); }
};

/* The power of two that n is; -1: none. */
static inline int bits_of(int64_t n) {
    int bits = 0;
    while (bits < 20 && (int64_t)1 << bits < n) bits++;
    return (int64_t)1 << bits == n ? bits : -1;
}

/* The layout for `pixels` at a time, a power of two. */
static inline border_shape border_shape_of(const nn_shape *images, int pixels) {
    border_shape s = {};
    if (bits_of(images->dim[1]) < 0 || bits_of(images->dim[2]) < 0 || images->dim[2] > pixels) return s;
    s.height = (int)images->dim[1];
    s.width = (int)images->dim[2];
    const int rows = pixels / s.width;
    s.rows = rows < s.height ? rows : s.height;
    s.pieces = rows / s.rows;
    s.width_bits = bits_of(s.width);
    s.rows_bits = bits_of(s.rows);
    return s;
}

/* A place holds the index of its pixel times 4, plus whether the pixel is outside of its image: never (INSIDE), if the
 * first row is the image's first (ABOVE), if the last row is the image's last (BELOW), or always (OUTSIDE). */
enum place_kind { INSIDE, ABOVE, BELOW, OUTSIDE };

template <int BLOCK> __device__ static inline void find_places(const border_shape &s, int *places) {
    const int wide = s.wide(), piece_size = (s.rows + 2) * wide;
    for (int at = (int)threadIdx.x; at < s.places(); at += BLOCK) {
        const int piece = at / piece_size, i = at % piece_size / wide - 1, j = at % wide - 1;
        place_kind kind = i < 0 ? ABOVE : i == s.rows ? BELOW : INSIDE;
        if (j < 0 || j == s.width || (kind != INSIDE && s.pieces > 1)) kind = OUTSIDE;
        places[at] = ((piece * s.rows + i) * s.width + j) * 4 + kind;
    }
}

/* Tells the places that are outside of their images, for the pixels from `first` on. */
struct border_edges {
    bool top, bottom;
    __device__ border_edges(const border_shape &s, int64_t first) {
        const int row = (int)(first >> s.width_bits) & (s.height - 1);
        top = row == 0;
        bottom = row + s.rows == s.height;
    }
    __device__ bool outside(int place) const {
        const int kind = place & 3;
        return kind == OUTSIDE || (kind == ABOVE && top) || (kind == BELOW && bottom);
    }
};

/* Begins to copy CHANNELS channels of the pixels from `first` on, with their border, to places of ROW numbers. x
 * points at the first channel of pixel 0. */
template <int CHANNELS, int ROW, int BLOCK>
__device__ static inline void copy_bordered(const border_shape &s, const int *places, const bf16 *x, int64_t stride,
                                            int64_t pixels, int64_t first, bf16 *to) {
    constexpr int PACKS = CHANNELS / 8;
    const border_edges edges(s, first);
    for (int at = (int)threadIdx.x; at < s.places() * PACKS; at += BLOCK) {
        const int place = at / PACKS, pack = at % PACKS;
        const int64_t pixel = first + (places[place] >> 2);
        const bool there = !edges.outside(places[place]) && pixel < pixels;
        copy_async(to + place * ROW + pack * 8, there ? x + pixel * stride + pack * 8 : x, there);
    }
}

/* The place above and left of a pixel, which is where its nine begin. */
__device__ static inline int corner_of(const border_shape &s, int pixel) {
    const int row = pixel >> s.width_bits, piece = row >> s.rows_bits;
    return (row + 2 * piece) * s.wide() + (pixel & (s.width - 1));
}

#endif
