/* Rounding to bf16, to the nearest and ties to even. */
#pragma once

#include <stdint.h>
#include <string.h>

/* Bits whose upper half is x as bf16; a NaN stays one. */
static inline uint32_t nn_rounded(float x) {
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    const uint32_t up = bits + 0x7fff + (bits >> 16 & 1);
    return (bits & 0x7fffffff) > 0x7f800000 ? bits | 0x400000 : up;
}
