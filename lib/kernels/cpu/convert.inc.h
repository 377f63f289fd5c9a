/* Conversions between the type of computation and bf16 or f16. Part of kernels.inc.h, whose includer may define for f32
 *   LOAD_F16(in), STORE_F16(out, x)   WIDTH elements by the processor's own conversion
 *   LOAD_BF16(in)                     the same for bf16
 *   ROUND_BF16(x, add)                the bits of x with add added, or of a NaN that stays one: the upper halves are bf16
 *   STORE_UPPER(out, bits)            the upper halves of bits
 *   JOIN_UPPER(even, odd)             the upper halves of two, in turns
 * or else they are defined here. If WIDTH is not 1, it must define
 *   SPREAD_LOW(x), SPREAD_HIGH(x)     the lower half of x's lanes, or the upper, each twice
 * and may define, if every NaN result is quiet and has the payload of an operand or none,
 *   NANS, NANS_IN(x, y), ANY(nans)    a mask of the lanes in which x or y is a NaN; whether there is one */

#define BITS NAME(bits)
#define HALF NAME(half)

#ifdef CONVERT_F32
#if WIDTH == 1
typedef uint32_t BITS;
typedef uint16_t HALF;
#define CONVERT(x, type) ((type)(x))
#define CHOOSE(condition, x, y) ((condition) ? (x) : (y))
#else
typedef uint32_t BITS __attribute__((vector_size(WIDTH * 4)));
typedef uint16_t HALF __attribute__((vector_size(WIDTH * 2)));
#define CONVERT(x, type) __builtin_convertvector(x, type)
#define CHOOSE(condition, x, y) (((BITS)(condition) & (x)) | (~(BITS)(condition) & (y)))
#endif

INLINE BITS NAME(load_bits)(const void *in) {
    BITS x;
    memcpy(&x, in, sizeof x);
    return x;
}

INLINE HALF NAME(load_half)(const void *in) {
    HALF x;
    memcpy(&x, in, sizeof x);
    return x;
}

INLINE V NAME(from_bits)(BITS x) {
    V y;
    memcpy(&y, &x, sizeof y);
    return y;
}

INLINE V NAME(bf16_in)(const uint16_t *in) {
#ifdef LOAD_BF16
    return LOAD_BF16(in);
#else
    return NAME(from_bits)(CONVERT(NAME(load_half)(in), BITS) << 16);
#endif
}

/* A NaN stays a NaN though its payload loses the low bits. An infinity stays one by itself: whatever is added is less than
 * 2^16, and its lower half is 0. */
INLINE BITS NAME(bf16_bits)(V value, BITS add) {
#ifdef ROUND_BF16
    return (BITS)ROUND_BF16(value, add);
#else
    const BITS x = NAME(load_bits)(&value);
    return CHOOSE((x & 0x7fffffffu) > 0x7f800000u, x | 0x400000u, x + add);
#endif
}

/* The number to add before truncation, to round to nearest, ties to even. */
INLINE BITS NAME(to_nearest)(V value) { return (NAME(load_bits)(&value) >> 16 & 1u) + 0x7fffu; }

INLINE void NAME(bf16_out)(uint16_t *out, V value, BITS add) {
    const BITS x = NAME(bf16_bits)(value, add);
#ifdef STORE_UPPER
    STORE_UPPER(out, x);
#else
    const HALF h = CONVERT(x >> 16, HALF);
    memcpy(out, &h, sizeof h);
#endif
}

/* Elements of the parameter that differ from the rounded master were changed by the user: the update starts from them. */
INLINE V NAME(follow_bf16)(V master, const uint16_t *param) {
    const V value = NAME(bf16_in)(param);
    const BITS x = NAME(load_bits)(&value), differs = NAME(bf16_bits)(master, NAME(to_nearest)(master)) ^ x;
    return NAME(from_bits)(CHOOSE(differs >> 16 == 0u, NAME(load_bits)(&master), x));
}

/* 2 * WIDTH elements at once: those with even numbers and those with odd ones, which are halves of the same words. That takes
 * half of the instructions for vectors. */
typedef struct NAME(pair) {
    V even, odd;
} NAME(pair);

INLINE NAME(pair) NAME(bf16_pair_in)(const uint16_t *in) {
#if WIDTH == 1
    return (NAME(pair)){NAME(bf16_in)(in), NAME(bf16_in)(in + 1)};
#else
    const BITS x = NAME(load_bits)(in);
    return (NAME(pair)){NAME(from_bits)(x << 16), NAME(from_bits)(x & 0xffff0000u)};
#endif
}

/* nans: whether there may be any. */
INLINE void NAME(bf16_pair_out)(uint16_t *out, V even, V odd, BITS add_even, BITS add_odd, int nans) {
#if WIDTH == 1
    (void)nans;
    NAME(bf16_out)(out, even, add_even);
    NAME(bf16_out)(out + 1, odd, add_odd);
#else
    const BITS x = nans ? NAME(bf16_bits)(even, add_even) : NAME(load_bits)(&even) + add_even;
    const BITS y = nans ? NAME(bf16_bits)(odd, add_odd) : NAME(load_bits)(&odd) + add_odd;
#ifdef JOIN_UPPER
    const BITS joined = (BITS)JOIN_UPPER(x, y);
#else
    const BITS joined = (x >> 16) | (y & 0xffff0000u);
#endif
    memcpy(out, &joined, sizeof joined);
#endif
}

/* Four elements share 32 random bits (half.h). For WIDTH elements from first on, returns the bits of each one's four. */
INLINE BITS NAME(random_mix)(BITS x) {
    x = (x ^ (x >> 16)) * 0x85ebca6bu;
    x = (x ^ (x >> 13)) * 0xc2b2ae35u;
    return x ^ (x >> 16);
}

#define TIMES(n) ((n)*0x9e3779b9u)
#define FOUR_TIMES(n) TIMES(n), TIMES(n), TIMES(n), TIMES(n)
#define FOUR_FROM(n) TIMES(n), TIMES(n + 1), TIMES(n + 2), TIMES(n + 3)
INLINE BITS NAME(random_hash)(uint32_t first, uint32_t key) {
    static const uint32_t steps[16] = {FOUR_TIMES(0u), FOUR_TIMES(1u), FOUR_TIMES(2u), FOUR_TIMES(3u)};
    return NAME(random_mix)(NAME(load_bits)(steps) + (TIMES(first / 4) + key));
}

/* Returns the bits of WIDTH groups of four elements, one group in each lane. SPREAD_LOW gives the bits for the even
 * elements of the first pair of vectors, which are also those of its odd elements; SPREAD_HIGH those of the second
 * pair. */
INLINE BITS NAME(random_fours)(uint32_t first, uint32_t key) {
    static const uint32_t steps[16] = {FOUR_FROM(0u), FOUR_FROM(4u), FOUR_FROM(8u), FOUR_FROM(12u)};
    return NAME(random_mix)(NAME(load_bits)(steps) + (TIMES(first / 4) + key));
}
#if WIDTH == 1
#define SPREAD_LOW(x) (x)
#define SPREAD_HIGH(x) (x)
#endif
#undef TIMES
#undef FOUR_TIMES
#undef FOUR_FROM

/* 16 random bits for each element, which differ between arrays (slot). */
#define FOUR(a, b, c, d, slot)                                                                                         \
    ADAMOD__RANDOM_FACTOR(a, slot), ADAMOD__RANDOM_FACTOR(b, slot), ADAMOD__RANDOM_FACTOR(c, slot),                    \
        ADAMOD__RANDOM_FACTOR(d, slot)
#define ROW(...)                                                                                                       \
    { FOUR(__VA_ARGS__), FOUR(__VA_ARGS__), FOUR(__VA_ARGS__), FOUR(__VA_ARGS__) }
#define FACTORS(...)                                                                                                   \
    {                                                                                                                  \
        ROW(__VA_ARGS__, 0), ROW(__VA_ARGS__, 1), ROW(__VA_ARGS__, 2), ROW(__VA_ARGS__, 3), ROW(__VA_ARGS__, 4),       \
            ROW(__VA_ARGS__, 5)                                                                                        \
    }
INLINE BITS NAME(random_half)(BITS hash, uint32_t first, int slot) {
    static const uint32_t factors[1 + KERNEL_STATES][16] = FACTORS(0, 1, 2, 3);
    return hash * NAME(load_bits)(&factors[slot][first % 4]) >> 16;
}

INLINE BITS NAME(random_pair_half)(BITS hash, uint32_t first, int slot, int odd) {
    static const uint32_t factors[2][1 + KERNEL_STATES][16] = {FACTORS(0, 2, 0, 2), FACTORS(1, 3, 1, 3)};
    return hash * NAME(load_bits)(&factors[odd][slot][first % 4 / 2]) >> 16;
}
#undef FACTORS
#undef ROW
#undef FOUR

#ifndef LOAD_F16
#define LOAD_F16(in) adamod__f16_to_f32(*(in))
#define STORE_F16(out, x) (*(out) = adamod__f32_to_f16(x))
#endif

/* Defines a function for n elements by a statement that converts one vector: from `from` to `to`, both from element i
 * on. The statement runs on whole vectors in place, then on padded copies of the rest. */
#define CONVERSION(name, out_type, in_type, parameters, ...)                                                           \
    static void NAME(name) parameters {                                                                                \
        const size_t whole = n - n % WIDTH;                                                                            \
        size_t i = 0;                                                                                                  \
        for (; i < whole; i += WIDTH) {                                                                                \
            const in_type *from = (const in_type *)in + i;                                                             \
            out_type *to = (out_type *)out + i;                                                                        \
            __VA_ARGS__;                                                                                               \
        }                                                                                                              \
        if (i < n) {                                                                                                   \
            in_type from[WIDTH] = {0};                                                                                 \
            out_type to[WIDTH];                                                                                        \
            memcpy(from, (const in_type *)in + i, (n - i) * sizeof(in_type));                                          \
            __VA_ARGS__;                                                                                               \
            memcpy((out_type *)out + i, to, (n - i) * sizeof(out_type));                                               \
        }                                                                                                              \
    }
CONVERSION(load_bf16, float, uint16_t, (void *out, const uint16_t *in, size_t n), STORE(to, 0, NAME(bf16_in)(from)))
CONVERSION(load_f16, float, uint16_t, (void *out, const uint16_t *in, size_t n), STORE(to, 0, LOAD_F16(from)))
CONVERSION(store_f16, uint16_t, float, (uint16_t * out, const void *in, size_t n), STORE_F16(to, LOAD(from, 0)))
CONVERSION(store_bf16, uint16_t, float, (uint16_t * out, const void *in, size_t n),
           NAME(bf16_out)(to, LOAD(from, 0), NAME(to_nearest)(LOAD(from, 0))))
CONVERSION(store_bf16_random, uint16_t, float, (uint16_t * out, const void *in, size_t n, uint32_t key, int slot),
           NAME(bf16_out)(to, LOAD(from, 0), NAME(random_half)(NAME(random_hash)((uint32_t)i, key), (uint32_t)i, slot)))

static void NAME(store_f16_random)(uint16_t *out, const void *in, size_t n, uint32_t key, int slot) {
    for (size_t i = 0; i < n; i++) {
        const uint32_t random = adamod__random_bits((uint32_t)i, slot, key) >> 16;
        out[i] = adamod__f32_to_f16_random(NAME(at)(in, i), random);
    }
}

/* Plain loops that compilers vectorise; kind is a constant in each copy. */
INLINE void NAME(load_q8_of)(float *out, const uint8_t *codes, const float *scales, size_t n, int kind) {
    for (size_t first = 0; first < n; first += Q8_BLOCK) {
        const q8_block b = adamod__q8_block(scales[first / Q8_BLOCK], kind);
        const size_t end = n - first < Q8_BLOCK ? n : first + Q8_BLOCK;
        for (size_t i = first; i < end; i++) out[i] = adamod__q8_decode(codes[i], &b, kind);
    }
}

INLINE void NAME(random_q8)(uint32_t *random, size_t first, size_t n, uint32_t key, int slot) {
    const uint32_t factors[4] = {ADAMOD__RANDOM_FACTOR(0, slot), ADAMOD__RANDOM_FACTOR(1, slot),
                                 ADAMOD__RANDOM_FACTOR(2, slot), ADAMOD__RANDOM_FACTOR(3, slot)};
    for (size_t i = 0; i < n; i += 4) {
        const uint32_t hash = adamod__random_hash((uint32_t)(first + i), key);
        for (size_t j = 0; j < 4; j++) random[i + j] = hash * factors[j];
    }
}

INLINE void NAME(store_q8_of)(uint8_t *codes, float *scales, const float *in, size_t n, int kind, uint32_t key,
                              int slot) {
    for (size_t first = 0; first < n; first += Q8_BLOCK) {
        const size_t count = n - first < Q8_BLOCK ? n - first : Q8_BLOCK;
        uint32_t random[Q8_BLOCK], most = 0;
        NAME(random_q8)(random, first, count, key, slot);
        for (size_t i = first; i < first + count; i++) {
            const uint32_t magnitude = adamod__to_bits(in[i]) & 0x7fffffffu;
            most = magnitude > most ? magnitude : most;
        }
        const float scale = adamod__q8_scale(most);
        const q8_block b = adamod__q8_block(scale, kind);
        for (size_t i = 0; i < count; i++) {
            codes[first + i] = (uint8_t)adamod__q8_encode(in[first + i], &b, random[i], kind);
        }
        for (size_t i = 0; most > Q8_MOST && i < count;
             i++) { /* seldom, and apart so that the loop above stays quick */
            const float x = adamod__q8_within(in[first + i]);
            codes[first + i] = b.lost ? 0 : (uint8_t)adamod__q8_encode(x, &b, random[i], kind);
        }
        scales[first / Q8_BLOCK] = scale;
    }
}

static void NAME(load_q8)(void *out, const uint8_t *codes, const float *scales, size_t n, int kind) {
    if (kind == Q8_SIGNED) NAME(load_q8_of)(out, codes, scales, n, Q8_SIGNED);
    else NAME(load_q8_of)(out, codes, scales, n, Q8_POSITIVE);
}

static void NAME(store_q8)(uint8_t *codes, float *scales, const void *in, size_t n, int kind, uint32_t key, int slot) {
    if (kind == Q8_SIGNED) NAME(store_q8_of)(codes, scales, in, n, Q8_SIGNED, key, slot);
    else if (kind == Q8_POSITIVE) NAME(store_q8_of)(codes, scales, in, n, Q8_POSITIVE, key, slot);
    else NAME(store_q8_of)(codes, scales, in, n, Q8_WITH_ZEROS, key, slot);
}

#undef CONVERSION
#undef LOAD_F16
#undef STORE_F16
#undef LOAD_BF16
#undef ROUND_BF16
#undef STORE_UPPER
#undef JOIN_UPPER

#else /* f64: through f32, which holds every bf16 and f16 */

#define NAME_F32(name) NAME2(name, ISA, f32)
#define IN_F64(from, parameters, arguments)                                                                            \
    static void NAME(load_##from) parameters {                                                                         \
        float x[BLOCK];                                                                                                \
        NAME_F32(load_##from) arguments;                                                                               \
        for (size_t i = 0; i < n; i++) ((REAL *)out)[i] = (REAL)x[i];                                                  \
    }
#define OUT_F64(to, parameters, arguments)                                                                             \
    static void NAME(store_##to) parameters {                                                                          \
        float x[BLOCK];                                                                                                \
        for (size_t i = 0; i < n; i++) x[i] = (float)NAME(at)(in, i);                                                  \
        NAME_F32(store_##to) arguments;                                                                                \
    }
IN_F64(bf16, (void *out, const uint16_t *in, size_t n), (x, in, n))
IN_F64(f16, (void *out, const uint16_t *in, size_t n), (x, in, n))
IN_F64(q8, (void *out, const uint8_t *codes, const float *scales, size_t n, int kind), (x, codes, scales, n, kind))
OUT_F64(bf16, (uint16_t * out, const void *in, size_t n), (out, x, n))
OUT_F64(f16, (uint16_t * out, const void *in, size_t n), (out, x, n))
OUT_F64(bf16_random, (uint16_t * out, const void *in, size_t n, uint32_t key, int slot), (out, x, n, key, slot))
OUT_F64(f16_random, (uint16_t * out, const void *in, size_t n, uint32_t key, int slot), (out, x, n, key, slot))
OUT_F64(q8, (uint8_t * codes, float *scales, const void *in, size_t n, int kind, uint32_t key, int slot),
        (codes, scales, x, n, kind, key, slot))
#undef IN_F64
#undef OUT_F64
#undef NAME_F32
#endif
