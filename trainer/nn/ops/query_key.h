/* Common to the kernels of query_key in all backends. */
#pragma once

#include "nn/kernel.h"
#include "nn/ops/attributes.h"

enum { QUERY_KEY_X, QUERY_KEY_POSITIONS, QUERY_KEY_Q_GAIN, QUERY_KEY_K_GAIN };

/* Columns of a head. */
static inline int64_t nn_query_key_size(const nn_call *c) {
    const nn_query_key_attributes *a = (const nn_query_key_attributes *)c->attributes;
    return c->output[0].cols / (a->heads + 2 * a->kv_heads);
}
