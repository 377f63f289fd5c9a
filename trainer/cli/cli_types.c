#include "cli/cli_types.h"

#include <math.h>
#include <string.h>

size_t type_size(adamod_type type) { return type == ADAMOD_F64 ? 8 : type == ADAMOD_F32 ? 4 : 2; }

/* bf16 and f16 differ in how many of their 15 bits are the exponent's. */
enum { EXPONENT_BF16 = 8, EXPONENT_F16 = 5 };

static uint16_t narrow(double x, int exponent_bits) {
    const int fraction_bits = 15 - exponent_bits, bias = (1 << (exponent_bits - 1)) - 1;
    const unsigned sign = signbit(x) ? 0x8000 : 0, infinity = ((1u << exponent_bits) - 1) << fraction_bits;
    if (isnan(x)) return (uint16_t)(sign | infinity | 1u << (fraction_bits - 1));
    if (isinf(x)) return (uint16_t)(sign | infinity);
    if (x == 0) return (uint16_t)sign;
    int e;
    frexp(x, &e);
    e--;                            /* 2^e <= |x| < 2^(e+1) */
    if (e < 1 - bias) e = 1 - bias; /* subnormal */
    const unsigned ulps =
        (unsigned)rint(ldexp(fabs(x), fraction_bits - e)); /* the leading 1 included, if there is one */
    const unsigned bits = ulps + ((unsigned)(e + bias - 1) << fraction_bits);
    return (uint16_t)(sign | (bits < infinity ? bits : infinity));
}

static double widen(uint16_t bits, int exponent_bits) {
    const int fraction_bits = 15 - exponent_bits, bias = (1 << (exponent_bits - 1)) - 1;
    const int fraction = bits & ((1 << fraction_bits) - 1);
    const int exponent = (bits & 0x7fff) >> fraction_bits;
    double x;
    if (exponent == (1 << exponent_bits) - 1) x = fraction ? NAN : INFINITY;
    else if (exponent == 0) x = ldexp(fraction, 1 - bias - fraction_bits);
    else x = ldexp(fraction + (1 << fraction_bits), exponent - bias - fraction_bits);
    return bits & 0x8000 ? -x : x;
}

static double load(adamod_type type, const void *from, size_t i) {
    switch (type) {
        case ADAMOD_F64: return ((const double *)from)[i];
        case ADAMOD_F32: return (double)((const float *)from)[i];
        case ADAMOD_BF16: return widen(((const uint16_t *)from)[i], EXPONENT_BF16);
        case ADAMOD_F16: return widen(((const uint16_t *)from)[i], EXPONENT_F16);
        case ADAMOD_Q8: break; /* no number without its scale */
    }
    return NAN;
}

void type_convert(adamod_type to_type, void *to, adamod_type from_type, const void *from, size_t n) {
    if (to_type == from_type) {
        if (n) memcpy(to, from, n * type_size(to_type));
        return;
    }
    for (size_t i = 0; i < n; i++) {
        const double x = load(from_type, from, i);
        switch (to_type) {
            case ADAMOD_F64: ((double *)to)[i] = x; break;
            case ADAMOD_F32: ((float *)to)[i] = (float)x; break;
            case ADAMOD_BF16: ((uint16_t *)to)[i] = narrow(x, EXPONENT_BF16); break;
            case ADAMOD_F16: ((uint16_t *)to)[i] = narrow(x, EXPONENT_F16); break;
            case ADAMOD_Q8: break;
        }
    }
}
