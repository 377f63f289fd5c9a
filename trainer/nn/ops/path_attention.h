/* Common to path_attention's kernels on the host. */
#ifndef ADAMOD_NN_PATH_ATTENTION_H
#define ADAMOD_NN_PATH_ATTENTION_H

#include "nn/kernel.h"
#include "nn/ops/attributes.h"

#include <math.h>

enum { PATH_Q, PATH_CACHE, PATH_PATHS, PATH_POSITIONS };

/* One call. Row r of [q | k | v] begins at q + r * 3 d, row r of [k | v] at cache + r * 2 d; within each part, head h
 * has columns h * size .. (h + 1) * size - 1. */
typedef struct nn_path_view {
    const float *q;
    float *cache;
    const int32_t *paths, *positions;
    int64_t rows, length, d, heads, size;
} nn_path_view;

static inline nn_path_view nn_path_of(const nn_call *c) {
    nn_path_view v = {.q = c->input[PATH_Q].data,
                      .cache = c->output[1].data,
                      .paths = c->input[PATH_PATHS].data,
                      .positions = c->input[PATH_POSITIONS].data,
                      .rows = c->output[0].rows,
                      .length = c->input[PATH_PATHS].cols,
                      .d = c->output[0].cols,
                      .heads = NN_ATTR(path_attention, c)->heads};
    v.size = v.d / v.heads;
    return v;
}

/* The cache row of a row's own token; negative: it is no hypothesis. */
static inline int32_t nn_path_row(const nn_path_view *v, int64_t row) {
    return v->paths[row * v->length + v->positions[row]];
}

#endif
