/* RMS norm of n numbers, for rows and for heads: formulas are in ops/rms_norm.c. */
#pragma once

#include "nn/backend/cpu/cpu.h"
#include "nn/backend/cpu/vector.h"

/* 1 / sqrt(mean(x^2) + eps). */
float nn_rms_scale(const nn_vector *v, int64_t n, const float *x, double eps);
/* y = gain scale x. */
void nn_rms_apply(int64_t n, const float *x, float scale, const float *gain, float *y);
/* d holds the gradient of y, and then that of x; the gain's is added to gain_sums. */
void nn_rms_gradient(const nn_vector *v, int64_t n, const float *x, float scale, const float *gain, float *gain_sums,
                     float *d);
