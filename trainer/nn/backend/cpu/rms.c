/* RMS norm of n numbers. */
#include "nn/backend/cpu/rms.h"

#include <math.h>

float nn_rms_scale(const nn_vector *v, int64_t n, const float *x, double eps) {
    return (float)(1 / sqrt((double)v->dot(n, x, x) / (double)n + eps));
}

NN_CLONES
static void apply(int64_t n, const float *restrict x, float scale, const float *restrict gain, float *restrict y) {
    for (int64_t j = 0; j < n; j++) y[j] = x[j] * scale * gain[j];
}

void nn_rms_apply(int64_t n, const float *x, float scale, const float *gain, float *y) { apply(n, x, scale, gain, y); }

/* d = gain d, and sums += d h. */
NN_CLONES
static void through_gain(int64_t n, const float *restrict x, float scale, const float *restrict gain,
                         float *restrict sums, float *restrict d) {
    for (int64_t j = 0; j < n; j++) {
        sums[j] += d[j] * (x[j] * scale);
        d[j] *= gain[j];
    }
}

NN_CLONES
static void through_norm(int64_t n, const float *restrict x, float scale, float shift, float *restrict d) {
    for (int64_t j = 0; j < n; j++) d[j] = (d[j] - x[j] * shift) * scale;
}

void nn_rms_gradient(const nn_vector *v, int64_t n, const float *x, float scale, const float *gain, float *gain_sums,
                     float *d) {
    through_gain(n, x, scale, gain, gain_sums, d);
    const double mean = (double)v->dot(n, d, x) / (double)n;
    through_norm(n, x, scale, (float)(mean * (double)scale * (double)scale), d);
}
