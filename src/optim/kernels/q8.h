/* States in 8 bits: codes in blocks of Q8_BLOCK, and for each block a scale, the value of its largest code.
 *
 * A code is a number with 3 bits after its leading one and an exponent that counts down from the scale: 8 codes for each
 * power of two, 0 for zero. State 0, an average of gradients, has a sign and 127 magnitudes, which reach down to 2e-5 of
 * the scale; states 1 and 2, of squares and of learning rates, have 255, down to 3e-10. In the bits of an f32 this is its
 * upper part less a number of the block's, so a code is made as a bf16 is: random bits are added, and the rest is cut.
 * Rounding at random makes small changes act on average; to nearest, averages with beta 0.999 would not move at all.
 *
 * All of it is integer arithmetic on the bits of f32, and so the same everywhere. */
#ifndef ADAMOD_Q8_H
#define ADAMOD_Q8_H

#include "half.h"

enum { Q8_BLOCK = 256, Q8_SHIFT = 20 };

/* The largest code of state i; of state 0 it is below the sign. */
static ADAMOD__DEVICE inline int32_t adamod__q8_top(int state) { return state == 0 ? 127 : 255; }

/* The scale of a block whose largest magnitude has these bits: rounded up to the next code. A block with what is not
 * finite, or as good as, is lost: its scale is a NaN, and so is all of it. */
static ADAMOD__DEVICE inline float adamod__q8_scale(uint32_t most) {
    const uint32_t step = 1u << Q8_SHIFT;
    return adamod__from_bits(most > 0x7f700000u ? 0x7fc00000u : (most + step - 1) & ~(step - 1));
}

/* What a block's codes and elements have to do with each other. */
typedef struct q8_block {
    int32_t offset; /* code + offset are the upper bits of the element */
    float least;    /* the value of code 1, over 2^16 */
    uint32_t lost;  /* the bits that make a NaN of every element, or 0 */
} q8_block;

static ADAMOD__DEVICE inline q8_block adamod__q8_block(float scale, int state) {
    q8_block b;
    b.offset = (int32_t)(adamod__to_bits(scale) >> Q8_SHIFT) - adamod__q8_top(state);
    b.least = b.offset < 0 ? 0 : adamod__from_bits((uint32_t)(b.offset + 1) << Q8_SHIFT) * 0x1p-16f;
    b.lost = scale == scale ? 0 : 0x7fc00000u;
    return b;
}

static ADAMOD__DEVICE inline float adamod__q8_decode(uint32_t code, const q8_block *b, int state) {
    const uint32_t magnitude = state == 0 ? code & 127u : code;
    const uint32_t bits = (magnitude + (uint32_t)b->offset) << Q8_SHIFT;
    const uint32_t sign = state == 0 ? (code & 128u) << 24 : 0;
    return adamod__from_bits((magnitude ? bits : 0) | sign | b->lost);
}

/* random has 16 bits. Of a block that is lost the result means nothing, and all codes are to be 0. Below code 1, state 0 is 0 or that, at random; the others are that, since dividing by the root of a
 * zero would be worse than a small error. */
static ADAMOD__DEVICE inline uint32_t adamod__q8_encode(float x, const q8_block *b, uint32_t random, int state) {
    const uint32_t bits = adamod__to_bits(x), magnitude = bits & 0x7fffffffu;
    int32_t code = (int32_t)((magnitude + (random << 4 | 8u)) >> Q8_SHIFT) - b->offset;
    const int32_t low = state == 0 ? adamod__from_bits(magnitude) > ((float)random + 0.5f) * b->least : 1;
    code = code < 1 ? low : code;
    code = magnitude ? code : 0;
    return (uint32_t)code | (state == 0 ? bits >> 24 & 128u : 0);
}

/* The 16 random bits of a state from the element's 32: independent of each other for states 1 and 2, and hardly less so
 * for state 0. */
static ADAMOD__DEVICE inline uint32_t adamod__q8_random(uint32_t bits, int state) {
    return state == 0 ? bits * 0x9e3779b1u >> 16 : state == 1 ? bits & 0xffffu : bits >> 16;
}

#endif
