/* Common to path_attention's kernels on the host. */
#pragma once

#include "nn/kernel.h"
#include "nn/ops/attributes.h"

#include <math.h>
#include <string.h>

enum { PATH_Q, PATH_CACHE, PATH_PATHS, PATH_POSITIONS };

/* One call. Row r of [q | k | v] begins at q + r * (d + 2 kv), row r of [k | v] at cache + r * 2 kv. Head h of q has columns
 * h * size .. (h + 1) * size - 1, and those of k and v that nn_path_column gives. */
typedef struct nn_path_view {
    const float *q;
    float *cache;
    const int32_t *paths, *positions;
    int64_t rows, length, heads, kv_heads, size;
    int64_t d, kv; /* columns of q, and of k or v */
} nn_path_view;

static inline nn_path_view nn_path_of(const nn_call *c) {
    nn_path_view v = {.q = c->input[PATH_Q].data,
                      .cache = c->output[1].data,
                      .paths = c->input[PATH_PATHS].data,
                      .positions = c->input[PATH_POSITIONS].data,
                      .rows = c->output[0].rows,
                      .length = c->input[PATH_PATHS].cols,
                      .heads = NN_ATTR(path_attention, c)->heads,
                      .kv_heads = NN_ATTR(path_attention, c)->kv_heads,
                      .d = c->output[0].cols,
                      .kv = c->output[1].cols / 2};
    v.size = v.d / v.heads;
    return v;
}

/* The first column of k, and of v, that a head of q sees. */
static inline int64_t nn_path_column(const nn_path_view *v, int64_t head) {
    return head * v->kv_heads / v->heads * v->size;
}

/* The cache row of a row's own token; negative: it is no hypothesis. */
static inline int32_t nn_path_row(const nn_path_view *v, int64_t row) {
    return v->paths[row * v->length + v->positions[row]];
}

/* Writes k and v of every row into the cache. */
static inline void nn_path_write(const nn_path_view *v) {
    for (int64_t row = 0; row < v->rows; row++) {
        const int32_t own = nn_path_row(v, row);
        const float *from = v->q + row * (v->d + 2 * v->kv) + v->d;
        if (own >= 0) memcpy(v->cache + own * 2 * v->kv, from, 2 * (size_t)v->kv * sizeof *from);
    }
}
