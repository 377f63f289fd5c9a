/* Common to attention's kernels in all backends: how the inputs lie, what a query sees, and which random number
 * belongs to which weight. */
#pragma once

#include "nn/kernel.h"
#include "nn/ops/attributes.h"
#include "support/random.h"

enum { ATTENTION_Q, ATTENTION_KV, ATTENTION_Q_RANGES, ATTENTION_K_RANGES };

/* One call. Row r of the queries begins at q + r * q_stride, of the keys and values at k and v + r * k_stride; likewise
 * the gradients, NULL where not wanted. Within a row, head h has columns h * size .. (h + 1) * size - 1; of the keys and
 * values it sees head h / group. */
typedef struct nn_attention_view {
    const float *q, *k, *v;
    float *dq, *dk, *dv;
    bool add_q, add_k; /* gradients are added to what is there */
    int64_t q_rows, k_rows, q_stride, k_stride;
    int64_t sequences, heads, size;
    int64_t kv_heads, group;            /* heads of keys and values, and heads of queries that see the same */
    const int32_t *q_ranges, *k_ranges; /* begin and end of each sequence */
    bool causal;
    double scale;       /* of the scores: 1 / sqrt(size) */
    uint32_t threshold; /* of dropout; 0: none */
    float keep;         /* 1 / (1 - p): what kept weights are multiplied by */
} nn_attention_view;

static inline int nn_attention_kv_heads(const nn_attention_attributes *a) {
    return a->kv_heads ? a->kv_heads : a->heads;
}

static inline nn_attention_view nn_attention_of(const nn_call *c) {
    const nn_array *q = &c->input[ATTENTION_Q], *kv = &c->input[ATTENTION_KV];
    const nn_attention_attributes *a = (const nn_attention_attributes *)c->attributes;
    const bool packed = !kv->data; /* q is [q | k | v] */
    const int64_t d = c->output[0].cols, d_k = d / a->heads * nn_attention_kv_heads(a);
    nn_attention_view v = {.q = q->data, .dq = c->grad->input[ATTENTION_Q], .add_q = c->grad->accumulate[ATTENTION_Q]};
    v.k = packed ? v.q + d : kv->data;
    v.v = v.k + d_k;
    float *const d_kv = packed ? v.dq : c->grad->input[ATTENTION_KV];
    v.dk = d_kv && packed ? d_kv + d : d_kv;
    v.dv = v.dk ? v.dk + d_k : NULL;
    v.add_k = c->grad->accumulate[packed ? ATTENTION_Q : ATTENTION_KV];
    v.q_rows = q->rows;
    v.k_rows = packed ? q->rows : kv->rows;
    v.q_stride = q->cols;
    v.k_stride = packed ? q->cols : kv->cols;
    v.sequences = c->input[ATTENTION_Q_RANGES].rows;
    v.heads = a->heads;
    v.size = d / a->heads;
    v.kv_heads = nn_attention_kv_heads(a);
    v.group = v.heads / v.kv_heads;
    v.q_ranges = c->input[ATTENTION_Q_RANGES].data;
    v.k_ranges = c->input[ATTENTION_K_RANGES].data;
    v.causal = a->causal;
    v.scale = 1 / sqrt((double)v.size);
    v.threshold = c->training ? nn_drop_threshold(a->dropout) : 0;
    v.keep = (float)(1 / (1 - a->dropout));
    return v;
}

/* Keys that query j of nq sees, of nk. */
static inline int64_t nn_attention_seen(bool causal, int64_t nq, int64_t nk, int64_t j) {
    const int64_t n = causal ? nk - nq + j + 1 : nk;
    return n < 0 ? 0 : n;
}

/* The random number of a weight: of a head in the sequence whose queries begin at first_row and which has nk keys, the
 * weight of query j for key l. Rows of weights follow each other, each beginning a Philox block. */
static inline uint64_t nn_attention_index(int64_t first_row, int64_t heads, int64_t head, int64_t nk, int64_t j,
                                          int64_t l) {
    return ((uint64_t)(first_row * heads + head) << 32) + (uint64_t)(j * ((nk + 15) / 16 * 16) + l);
}
