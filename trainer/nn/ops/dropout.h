/* Dropout inside the reference kernels of dropout, add and add_norm. */
#pragma once

#include "core/error.h"
#include "nn/op.h"
#include "nn/ops/attributes.h"
#include "support/random.h"

/* Fails if p is out of range. */
static inline int nn_dropout_check(const nn_node *node) {
    const double p = nn_dropout_of(node->attributes);
    if (p >= 0 && p < 1) return 0;
    return adamod__refuse("dropout is %g, expected 0 <= p < 1", p);
}

/* The factor of element i of the dropped array. */
static inline double nn_dropout_factor(const nn_call *c, int64_t i) {
    const double p = nn_dropout_of(c->attributes);
    if (!c->training || p == 0) return 1;
    return nn_random_bits(c->key, (uint64_t)i) >= nn_drop_threshold(p) ? 1 / (1 - p) : 0;
}

/* Element i of the dropped array, after dropout: 0 where it is dropped, whatever it was. */
static inline double nn_dropped(const nn_call *c, const float *x, int64_t i) {
    const double f = nn_dropout_factor(c, i);
    return f > 0 ? f * x[i] : 0;
}
