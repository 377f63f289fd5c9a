/* Cross entropy of one row of logits: formulas are in ops/cross_entropy.c, and ops/linear_cross_entropy.c for z. */
#pragma once

#include "nn/backend/cpu/vector.h"

#include <stdbool.h>
#include <stdint.h>

typedef struct nn_entropy {
    const nn_vector *x;
    int64_t n; /* logits of a row */
    double smoothing, z;
} nn_entropy;

/* Adds a row's loss, nll, hit and 1 to sums; returns its log-sum-exp. */
double nn_entropy_row(const nn_entropy *e, const float *logits, int32_t target, double sums[4]);
/* d = scale times the gradient of the row's loss, or d += that; d may be logits. A row with a negative target has 0. */
void nn_entropy_gradient(const nn_entropy *e, const float *logits, int32_t target, float lse, double scale, float *d,
                         bool add);
