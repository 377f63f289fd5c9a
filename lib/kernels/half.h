/* IEEE half precision in plain C, with the bits the processors' own conversions give; and random bits. */
#ifndef ADAMOD_HALF_H
#define ADAMOD_HALF_H

#include "kernels/kernels.h"

#include <stdint.h>
#include <string.h>

static ADAMOD__DEVICE inline float adamod__from_bits(uint32_t bits) {
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

static ADAMOD__DEVICE inline uint32_t adamod__to_bits(float x) {
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

static ADAMOD__DEVICE inline float adamod__f16_to_f32(uint16_t h) {
    const uint32_t sign = (uint32_t)(h & 0x8000u) << 16, magnitude = h & 0x7fffu;
    if (magnitude > 0x7c00u) return adamod__from_bits(sign | 0x7fc00000u | magnitude << 13);
    if (magnitude == 0x7c00u) return adamod__from_bits(sign | 0x7f800000u);
    if (magnitude >= 0x0400u) return adamod__from_bits(sign | ((magnitude << 13) + (112u << 23)));
    const float x = (float)magnitude * 0x1p-24f;
    return sign ? -x : x;
}

/* Rounds to nearest, ties to even. */
static ADAMOD__DEVICE inline uint16_t adamod__f32_to_f16(float x) {
    const uint32_t bits = adamod__to_bits(x), magnitude = bits & 0x7fffffffu;
    const uint32_t sign = bits >> 16 & 0x8000u;
    if (magnitude > 0x7f800000u) return (uint16_t)(sign | 0x7e00u | (magnitude >> 13 & 0x1ffu));
    if (magnitude >= 0x477ff000u) return (uint16_t)(sign | 0x7c00u);
    if (magnitude >= 0x38800000u) {
        return (uint16_t)(sign | ((magnitude - (112u << 23) + 0xfffu + (magnitude >> 13 & 1u)) >> 13));
    }
    /* Subnormal: adding 1.5 * 2^-1 leaves the multiple of 2^-24, rounded, in the low bits. */
    const uint32_t sum = adamod__to_bits(adamod__from_bits(magnitude) + 0.5f);
    return (uint16_t)(sign | (sum - 0x3f000000u));
}

/* Rounds up or down at random, in proportion to the distances; random has 16 bits. */
static ADAMOD__DEVICE inline uint16_t adamod__f32_to_f16_random(float x, uint32_t random) {
    const uint32_t bits = adamod__to_bits(x), magnitude = bits & 0x7fffffffu;
    if (magnitude >= 0x477fe000u) return adamod__f32_to_f16(x); /* 65504 and more, infinity, NaN */
    if (magnitude >= 0x38800000u) {
        return adamod__f32_to_f16(adamod__from_bits((bits + (random >> 3)) & ~0x1fffu));
    }
    const float multiple = adamod__from_bits(magnitude) * 0x1p24f;
    uint32_t whole = (uint32_t)multiple;
    whole += (float)random * 0x1p-16f < multiple - (float)whole;
    return (uint16_t)((bits >> 16 & 0x8000u) | whole);
}

/* ---- gradients that are too large ---- */

/* Whether gradients of this norm, which includes scale, and their squares are finite in any update. A quick test that may
 * say no where the answer is yes. */
static ADAMOD__BOTH inline int adamod__surely_finite(double norm, double scale) {
    return norm < 1e19 && scale < 1e38 && norm / scale < 1e38;
}

/* Exact test for one array, whose largest element is most and which is updated in f64 (wide) or f32. factor is that of
 * clip_norm. clip is clip_value, which can bring a square back into range but does not make an infinity finite. */
static ADAMOD__BOTH inline int adamod__seen_finite(double most, double scale, double factor, double clip, int wide) {
    const double g = most / scale, by = scale * factor;
    const double seen = wide ? g * by : (double)((float)g * (float)by), x = seen > clip ? clip : seen;
    const double square = wide ? x * x : (double)((float)x * (float)x);
    return seen - seen == 0 && square - square == 0;
}

/* An average of squares computed in f64, limited to what the state's type, f64 (wide) or less, can hold: an infinity would
 * spread over the array and never decay. A NaN stays. */
static ADAMOD__DEVICE inline double adamod__saturated(double x, int wide) {
    const double most = wide ? 1e300 : 0x1.fep127; /* sums of many stay finite, too; bf16 has the latter exactly */
    return x > most ? most : x;
}

/* ---- random numbers ---- */

static ADAMOD__BOTH inline uint64_t adamod__mix64(uint64_t x) {
    x += 0x9e3779b97f4a7c15u;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
}

/* The checksum of a report, to detect one that is only half written. */
static ADAMOD__BOTH inline uint64_t adamod__report_check(int64_t attempt, int taken, double norm, double lr) {
    uint64_t bits[2];
    memcpy(&bits[0], &norm, sizeof norm);
    memcpy(&bits[1], &lr, sizeof lr);
    return adamod__mix64(adamod__mix64(adamod__mix64(2 * (uint64_t)attempt + (uint64_t)taken) ^ bits[0]) ^ bits[1]);
}

/* The key of the random numbers for one update of an array. */
static ADAMOD__DEVICE inline uint64_t adamod__array_key(uint64_t seed, uint64_t stream, int64_t step) {
    return adamod__mix64(adamod__mix64(adamod__mix64(seed) ^ stream) ^ (uint64_t)step);
}

/* The key for elements from first on, a multiple of 4. */
static ADAMOD__DEVICE inline uint32_t adamod__block_key(uint64_t key, int64_t first) {
    return (uint32_t)(key >> 32) + (uint32_t)((uint64_t)first / 4) * 0x9e3779b9u;
}

/* 32 random bits shared by four elements: the finalizer of MurmurHash3, a bijection. convert.inc.h has it for vectors. */
static ADAMOD__DEVICE inline uint32_t adamod__random_hash(uint32_t element, uint32_t key) {
    uint32_t x = element / 4 * 0x9e3779b9u + key;
    x = (x ^ (x >> 16)) * 0x85ebca6bu;
    x = (x ^ (x >> 13)) * 0xc2b2ae35u;
    return x ^ (x >> 16);
}

/* Each of the four elements multiplies them by a different factor for each array (slot 0: the parameter, 1 + i: state i),
 * as a multiplicative generator would (L'Ecuyer, Tables of linear congruential generators, 1999), and uses the upper
 * bits. */
#define ADAMOD__GENERATOR 2891336453u
#define ADAMOD__GENERATOR2 (ADAMOD__GENERATOR * ADAMOD__GENERATOR)
#define ADAMOD__GENERATOR4 (ADAMOD__GENERATOR2 * ADAMOD__GENERATOR2)
#define ADAMOD__GENERATOR8 (ADAMOD__GENERATOR4 * ADAMOD__GENERATOR4)
#define ADAMOD__GENERATOR16 (ADAMOD__GENERATOR8 * ADAMOD__GENERATOR8)
#define ADAMOD__RANDOM_FACTOR(element, slot)                                                                           \
    (((slot)&1 ? ADAMOD__GENERATOR : 1u) * ((slot)&2 ? ADAMOD__GENERATOR2 : 1u) *                                      \
     ((slot)&4 ? ADAMOD__GENERATOR16 : 1u) * /* not the elements' factors */                                           \
     ((element)&1 ? ADAMOD__GENERATOR4 : 1u) * ((element)&2 ? ADAMOD__GENERATOR8 : 1u))

/* 32 random bits; use the upper ones. */
static ADAMOD__DEVICE inline uint32_t adamod__random_bits(uint32_t element, int slot, uint32_t key) {
    return adamod__random_hash(element, key) * ADAMOD__RANDOM_FACTOR(element, slot);
}

#endif
