/* One call of attention on a device, as ops/attention.c defines it: what all its kernels are given. */
#ifndef ADAMOD_NN_CUDA_ATTENTION_CALL_H
#define ADAMOD_NN_CUDA_ATTENTION_CALL_H

#include "nn/backend/cuda/cuda.h"

enum { ATTENTION_Q, ATTENTION_KV, ATTENTION_Q_RANGES, ATTENTION_K_RANGES }; /* as in ops/attention.h */

/* One call: as nn_attention_view in ops/attention.h. */
template <typename T> struct attention {
    const T *q, *k, *v, *dy;
    T *y, *dq, *dk, *dv;
    float *saved;
    const int2 *q_ranges, *k_ranges;
    int64_t q_rows, k_rows, q_stride, k_stride, cols, k_cols; /* cols: of y; k_cols: of k, and of v */
    int sequences, heads, size, group;                        /* group: heads that see the same keys */
    bool causal, add_q, add_k, wide;
    float scale;
    drop dropout;
    int longs;   /* attention.cu: blocks that share out the tiles of long sequences, a multiple of heads */
    float *sums; /* of rows of gradients; NULL: they are not wanted */
};

static inline int64_t keys_of(const nn_call *c) {
    return c->input[c->input[ATTENTION_KV].cols ? ATTENTION_KV : ATTENTION_Q].rows;
}

/* Heads that see the same keys. */
static inline int group_of(const nn_call *c) {
    const nn_attention_attributes *a = NN_ATTR(attention, c);
    return a->kv_heads ? a->heads / a->kv_heads : 1;
}

static inline bool wants_sums(const nn_call *c) {
    return c->grad->row_sums[ATTENTION_Q] || c->grad->row_sums[ATTENTION_KV];
}

static inline bool aligned(const void *p) { return (uintptr_t)p % 16 == 0; }

template <typename T> static inline attention<T> attention_of(const nn_call *c) {
    const nn_array *q = &c->input[ATTENTION_Q], *kv = &c->input[ATTENTION_KV];
    const bool packed = !kv->data; /* q is [q | k | v] */
    attention<T> a = {};
    a.cols = c->output[0].cols;
    a.heads = NN_ATTR(attention, c)->heads;
    a.size = (int)(a.cols / a.heads);
    a.group = group_of(c);
    a.k_cols = a.cols / a.group;
    a.q = (const T *)q->data;
    a.k = packed ? a.q + a.cols : (const T *)kv->data;
    a.v = a.k + a.k_cols;
    a.y = (T *)c->output[0].data;
    a.dy = (const T *)c->grad->output[0];
    a.saved = c->saved;
    a.dq = (T *)c->grad->input[ATTENTION_Q];
    a.dk = packed ? a.dq : (T *)c->grad->input[ATTENTION_KV];
    if (packed && a.dk) a.dk += a.cols;
    a.dv = a.dk ? a.dk + a.k_cols : NULL;
    a.add_q = c->grad->accumulate[ATTENTION_Q];
    a.add_k = c->grad->accumulate[packed ? ATTENTION_Q : ATTENTION_KV];
    a.q_rows = q->rows;
    a.k_rows = keys_of(c);
    a.q_stride = q->cols;
    a.k_stride = packed ? q->cols : kv->cols;
    a.sequences = (int)c->input[ATTENTION_Q_RANGES].rows;
    a.q_ranges = (const int2 *)c->input[ATTENTION_Q_RANGES].data;
    a.k_ranges = (const int2 *)c->input[ATTENTION_K_RANGES].data;
    a.causal = NN_ATTR(attention, c)->causal;
    a.scale = (float)(1 / sqrt((double)a.size));
    a.dropout = drop_of(c);
    a.sums = wants_sums(c) ? c->grad->partials : NULL;
    a.wide = a.size % pack<T>::N == 0 && aligned(a.q) && aligned(a.k) && aligned(a.y) && aligned(a.dy) &&
             aligned(a.dq) && aligned(a.dk);
    return a;
}

#endif
