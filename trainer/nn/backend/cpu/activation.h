/* Exponentials for loops that compilers vectorise: the same bits on every instruction set, NaN for NaN. */
#pragma once

#include <stdint.h>
#include <string.h>

#define NN_INLINE static inline __attribute__((always_inline))

/* exp(x) for x <= 0: 2^n e^r with |r| <= ln 2 / 2, and the series of e^r. */
NN_INLINE float nn_exp_negative(float x) {
    x = x > -87 ? x : -87;         /* NaN too: callers see to that */
    const float round = 0x1.8p23f; /* adding and subtracting it rounds to a whole number */
    const float n = (x * 1.44269504f + round) - round;
    const float r = x - n * 0.693359375f + n * 2.12194440e-4f; /* ln 2 in two parts, the first short */
    float e = 1.0f / 5040;
    e = e * r + 1.0f / 720;
    e = e * r + 1.0f / 120;
    e = e * r + 1.0f / 24;
    e = e * r + 1.0f / 6;
    e = e * r + 0.5f;
    e = e * r + 1;
    e = e * r + 1;
    const uint32_t bits = (uint32_t)((int32_t)n + 127) << 23;
    float power;
    memcpy(&power, &bits, sizeof power);
    return e * power;
}

/* 1 / (1 + exp(-x)), with a relative error below 2e-7 for x > -87. */
NN_INLINE float nn_sigmoid(float x) {
    const float e = nn_exp_negative(x < 0 ? x : -x), above = 1 / (1 + e), below = e * above;
    const float y = x < 0 ? below : above;
    return x == x ? y : x;
}

/* s = sigmoid(x), and its slope s (1 - s), which is accurate where s is near 1. */
NN_INLINE float nn_sigmoid_and_slope(float x, float *slope) {
    const float e = nn_exp_negative(x < 0 ? x : -x), above = 1 / (1 + e), below = e * above;
    const float y = x < 0 ? below : above;
    *slope = above * below;
    return x == x ? y : x;
}

/* The relative error is below 3e-7. Near 0, where 1 - exp(-2 x) loses digits, the odd polynomial of Cephes
 * (Moshier). */
NN_INLINE float nn_tanh(float x) {
    const float size = x < 0 ? -x : x, s = x * x, e = nn_exp_negative(-2 * size), far = (1 - e) / (1 + e);
    float p = -5.70498872745e-3f;
    p = p * s + 2.06390887954e-2f;
    p = p * s - 5.37397155531e-2f;
    p = p * s + 1.33314422036e-1f;
    p = p * s - 3.33332819422e-1f;
    const float near = p * s * x + x, signed_far = x < 0 ? -far : far;
    return size >= 0.625f ? signed_far : near; /* NaN is near */
}
