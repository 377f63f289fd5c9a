/* States in 8 bits: codes in blocks of Q8_BLOCK, and for each block a scale, a power of two.
 *
 * A code is a small floating-point number: 3 bits after the leading one, and an exponent of 5 bits, or of 4 and a sign
 * for averages of gradients. As with IEEE numbers, those of the least exponent have no leading one, so code 0 is zero. The
 * scale is the least number of the greatest exponent: codes reach down to 1e-10 of it, those with a sign to 8e-6.
 *
 * Scaled by a power of two, an f32 has the bits of its code from Q8_SHIFT on: its code is made by adding random bits and
 * cutting off the rest. Rounding at random makes small changes act on average; to nearest, averages with beta 0.999
 * would not move at all. All of it is exact or an operation that IEEE 754 rounds, and so the same everywhere. */
#ifndef ADAMOD_Q8_H
#define ADAMOD_Q8_H

#include "kernels/half.h"

enum { Q8_BLOCK = 256, Q8_SHIFT = 20 };

/* Kinds of states. No square or learning rate becomes 0 beside larger ones: dividing by the root of zero would be worse
 * than a small error. */
enum {
    Q8_SIGNED,
    Q8_POSITIVE,
    Q8_WITH_ZEROS /* positive, but what is 0 already stays so: see skip_idle */
};

/* The kind of state i; has_sign: a bit for each state. */
static ADAMOD__DEVICE inline int adamod__q8_kind(unsigned has_sign, int i, int zeros) {
    return has_sign >> i & 1 ? Q8_SIGNED : zeros ? Q8_WITH_ZEROS : Q8_POSITIVE;
}

/* The bits of the largest number that has a code, 1.875 * 2^127. */
#define Q8_MOST 0x7f700000u

/* The scale of a block, from the bits of its largest magnitude: so large that rounding up cannot exceed the largest
 * code. A block of zeros has 0. A block with a NaN is lost: its scale is a NaN, and so are all its elements. No scale
 * is below 2^-96 (1e-29), so that factors are exact. */
static ADAMOD__DEVICE inline float adamod__q8_scale(uint32_t most) {
    const uint32_t within = most > Q8_MOST ? Q8_MOST : most;
    const uint32_t up = (within + (1u << Q8_SHIFT) - 1) & 0x7f800000u, least = 31u << 23;
    const uint32_t scale = up < least ? least : up;
    return adamod__from_bits(most > 0x7f800000u ? 0x7fc00000u : most == 0 ? 0 : scale);
}

/* Limits x to what has a code, for blocks whose largest magnitude is above Q8_MOST. An infinity must neither spoil its
 * block nor stay for ever. */
static ADAMOD__DEVICE inline float adamod__q8_within(float x) {
    const uint32_t bits = adamod__to_bits(x), magnitude = bits & 0x7fffffffu;
    return adamod__from_bits(magnitude > Q8_MOST ? (bits & 0x80000000u) | Q8_MOST : bits);
}

/* Factors between the codes and the elements of a block. */
typedef struct q8_block {
    float unit;    /* the value of code 8, the least one with a leading one */
    float inverse; /* 1 / unit; any number if unit is 0 */
    uint32_t lost; /* the scale is a NaN */
} q8_block;

static ADAMOD__DEVICE inline q8_block adamod__q8_block(float scale, int kind) {
    q8_block b;
    const float least = 0x1p-96f;
    b.unit = scale * (kind == Q8_SIGNED ? 0x1p-14f : 0x1p-30f);
    b.inverse = (kind == Q8_SIGNED ? 0x1p14f : 0x1p30f) / (scale >= least ? scale : least);
    b.lost = scale != scale;
    return b;
}

/* Without a branch, which would keep compilers from making vectors of it. */
static ADAMOD__DEVICE inline uint32_t adamod__q8_choose(int condition, uint32_t x, uint32_t y) {
    const uint32_t mask = 0u - (uint32_t)condition;
    return (x & mask) | (y & ~mask);
}

/* A lost block decodes to NaN. */
static ADAMOD__DEVICE inline float adamod__q8_decode(uint32_t code, const q8_block *b, int kind) {
    const uint32_t sign = kind == Q8_SIGNED ? (code & 128u) << 24 : 0,
                   magnitude = kind == Q8_SIGNED ? code & 127u : code;
    const uint32_t small = adamod__to_bits((float)(int32_t)magnitude * 0.125f);
    const uint32_t large = (magnitude << Q8_SHIFT) + (126u << 23);
    const float x = adamod__from_bits(adamod__q8_choose(magnitude < 8, small, large)) * b->unit;
    return adamod__from_bits(adamod__to_bits(x) | sign);
}

/* The bits of |x| in units of the block's, with an exponent that begins at 1: below the unit, a multiple of 2^-23 of
 * it. */
static ADAMOD__DEVICE inline uint32_t adamod__q8_bits(float x, const q8_block *b) {
    const float y = adamod__from_bits(adamod__to_bits(x) & 0x7fffffffu) * b->inverse;
    const uint32_t small = adamod__to_bits(y + 1) - (127u << 23), large = adamod__to_bits(y) - (126u << 23);
    return adamod__q8_choose(adamod__to_bits(y) < 127u << 23, small, large);
}

/* The code of x; random has 32 bits. In a lost block the result is meaningless, and all codes must be 0. */
static ADAMOD__DEVICE inline uint32_t adamod__q8_encode(float x, const q8_block *b, uint32_t random, int kind) {
    const int zero = kind == Q8_SIGNED || (kind == Q8_WITH_ZEROS && (adamod__to_bits(x) & 0x7fffffffu) == 0);
    const uint32_t bits = adamod__q8_bits(x, b), least = zero ? 0 : 1u << Q8_SHIFT;
    const uint32_t code = ((bits < least ? least : bits) + (random >> (32 - Q8_SHIFT))) >> Q8_SHIFT;
    return code | (kind == Q8_SIGNED ? adamod__to_bits(x) >> 24 & 128u : 0);
}

/* ---- faster versions for GPUs, where subnormal numbers are as fast as others ---- */

/* Whether the faster versions work for this scale. */
static ADAMOD__DEVICE inline int adamod__q8_is_quick(float scale, int kind) {
    return scale <= (kind == Q8_SIGNED ? 0x1p14f : 0x1p30f);
}

static ADAMOD__DEVICE inline float adamod__q8_quick_factor(float scale, int kind) {
    return scale * (kind == Q8_SIGNED ? 0x1p112f : 0x1p96f);
}

/* bits: the code from Q8_SHIFT on, and its sign as the uppermost. */
static ADAMOD__DEVICE inline float adamod__q8_quick_decode(uint32_t bits, float factor) {
    return adamod__from_bits(bits) * factor;
}

/* One over the factor of a scale other than 0. */
static ADAMOD__DEVICE inline float adamod__q8_quick_inverse(float scale, int kind) {
    return adamod__from_bits(((kind == Q8_SIGNED ? 142u : 158u) << 23) - adamod__to_bits(scale));
}

/* The code from Q8_SHIFT on, rubbish below it, and the sign as the uppermost bit. */
static ADAMOD__DEVICE inline uint32_t adamod__q8_quick_encode(float x, float inverse, uint32_t random, int kind) {
    const float least = kind == Q8_WITH_ZEROS && x == 0 ? 0 : 0x1p-129f;
    float y = x * inverse;
    if (kind != Q8_SIGNED) y = y < least ? least : y;
    return adamod__to_bits(y) + (random >> (32 - Q8_SHIFT));
}

#endif
