/* The window that random cropping and mirroring take from a picture; the same numbers on every backend. */
#pragma once

#include "support/random.h"
#include "nn/nn.h"

/* The window's first pixel, which is negative in the padding. */
typedef struct nn_window {
    int64_t top, left;
    bool mirror; /* left and right of the window */
} nn_window;

/* Word 0 of the block that a picture's draw counts is for the row, word 1 for the column, word 2 for the mirror. */
NN_RANDOM nn_window nn_draw_window(const nn_picture_options *o, bool training, int64_t height, int64_t width,
                                   uint64_t key, int32_t draw) {
    nn_window w = {(height - o->size) / 2, (width - o->size) / 2, false};
    if (!training || !(o->crop || o->mirror)) return w;
    const nn_random4 r = nn_philox(key, (uint64_t)(uint32_t)draw);
    if (o->crop) {
        const uint64_t rows = (uint64_t)(height + 2 * o->padding - o->size + 1);
        const uint64_t cols = (uint64_t)(width + 2 * o->padding - o->size + 1);
        w.top = (int64_t)(r.x[0] * rows >> 32) - o->padding;
        w.left = (int64_t)(r.x[1] * cols >> 32) - o->padding;
    }
    w.mirror = o->mirror && (r.x[2] >> 31);
    return w;
}

/* A byte as the network reads it: two exactly rounded divisions with a difference between them, which no compiler fuses. */
NN_RANDOM float nn_normal_byte(uint8_t x, float mean, float deviation) {
    return ((float)x / 255.0f - mean) / deviation;
}
