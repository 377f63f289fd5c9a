/* Between the type of computation and bf16 or f16. Part of kernels.inc.h. For f32 the includer of that defines
 *   LOAD_F16(in), STORE_F16(out, x)          WIDTH elements by the processor's own conversion
 *   LOAD_BF16(in), STORE_BF16(out, x, add)   the same for bf16, with add added to the bits before the lower half is cut
 * Those not defined are made here. */

#define BITS NAME(bits)
#define HALF NAME(half)
#define ROWS(n) for (size_t i = 0; i < (n); i += WIDTH)

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

INLINE V NAME(bf16_in)(const uint16_t *in) {
#ifdef LOAD_BF16
    return LOAD_BF16(in);
#else
    const BITS x = CONVERT(NAME(load_half)(in), BITS) << 16;
    V y;
    memcpy(&y, &x, sizeof y);
    return y;
#endif
}

/* A NaN stays a NaN though its payload loses the low bits; so does an infinity though random bits are added. */
INLINE void NAME(bf16_out)(uint16_t *out, V value, BITS add) {
#ifdef STORE_BF16
    STORE_BF16(out, value, add);
#else
    const BITS x = NAME(load_bits)(&value), magnitude = x & 0x7fffffffu;
    const BITS rounded = CHOOSE(magnitude >= 0x7f800000u, x, x + add) >> 16;
    const HALF h = CONVERT(rounded | CHOOSE(magnitude > 0x7f800000u, (BITS){0} + 0x40u, (BITS){0}), HALF);
    memcpy(out, &h, sizeof h);
#endif
}

/* The random bits of the four that each of the elements from first on is one of: see half.h. */
INLINE BITS NAME(random_hash)(uint32_t first, uint32_t key) {
#define SAME(x) (x), (x), (x), (x)
    static const uint32_t steps[16] = {SAME(0u), SAME(0x9e3779b9u), SAME(2 * 0x9e3779b9u), SAME(3 * 0x9e3779b9u)};
#undef SAME
    BITS x = NAME(load_bits)(steps) + (first / 4 * 0x9e3779b9u + key);
    x = (x ^ (x >> 16)) * 0x85ebca6bu;
    x = (x ^ (x >> 13)) * 0xc2b2ae35u;
    return x ^ (x >> 16);
}

/* 16 of an array's own for each, from them. */
INLINE BITS NAME(random_half)(BITS hash, uint32_t first, int slot) {
#define FOUR(slot)                                                                                                     \
    ADAMOD__RANDOM_FACTOR(0, slot), ADAMOD__RANDOM_FACTOR(1, slot), ADAMOD__RANDOM_FACTOR(2, slot),                    \
        ADAMOD__RANDOM_FACTOR(3, slot)
#define ROW(slot)                                                                                                      \
    { FOUR(slot), FOUR(slot), FOUR(slot), FOUR(slot) }
    static const uint32_t factors[4][16] = {ROW(0), ROW(1), ROW(2), ROW(3)};
#undef ROW
#undef FOUR
    return hash * NAME(load_bits)(&factors[slot][first % 4]) >> 16;
}

#ifndef LOAD_F16
#define LOAD_F16(in) adamod__f16_to_f32(*(in))
#define STORE_F16(out, x) (*(out) = adamod__f32_to_f16(x))
#endif

/* Calls body for whole vectors in place, then once more on padded copies of the rest. */
#define EACH(in_type, in, out_type, out, n, body)                                                                      \
    const size_t whole = (n) - (n) % WIDTH;                                                                            \
    ROWS(whole) { body((out) + i, (in) + i, i); }                                                                      \
    if (whole < (n)) {                                                                                                 \
        in_type rest_in[WIDTH] = {0};                                                                                  \
        out_type rest_out[WIDTH];                                                                                      \
        memcpy(rest_in, (in) + whole, ((n)-whole) * sizeof(in_type));                                                  \
        body(rest_out, rest_in, whole);                                                                                \
        memcpy((out) + whole, rest_out, ((n)-whole) * sizeof(out_type));                                               \
    }

static void NAME(load_bf16)(void *out, const uint16_t *in, size_t n) {
    float *o = out;
#define BODY(to, from, i) STORE(to, 0, NAME(bf16_in)(from))
    EACH(uint16_t, in, float, o, n, BODY)
#undef BODY
}

static void NAME(store_bf16)(uint16_t *out, const void *in, size_t n) {
    const float *x = in;
    /* to nearest, ties to even */
#define BODY(to, from, i) NAME(bf16_out)(to, LOAD(from, 0), ((NAME(load_bits)(from) >> 16) & 1u) + 0x7fffu)
    EACH(float, x, uint16_t, out, n, BODY)
#undef BODY
}

static void NAME(store_bf16_random)(uint16_t *out, const void *in, size_t n, uint32_t key, int slot) {
    const float *x = in;
#define BODY(to, from, i)                                                                                              \
    NAME(bf16_out)                                                                                                     \
    (to, LOAD(from, 0), NAME(random_half)(NAME(random_hash)((uint32_t)(i), key), (uint32_t)(i), slot))
    EACH(float, x, uint16_t, out, n, BODY)
#undef BODY
}

static void NAME(load_f16)(void *out, const uint16_t *in, size_t n) {
    float *o = out;
#define BODY(to, from, i) STORE(to, 0, LOAD_F16(from))
    EACH(uint16_t, in, float, o, n, BODY)
#undef BODY
}

static void NAME(store_f16)(uint16_t *out, const void *in, size_t n) {
    const float *x = in;
#define BODY(to, from, i) STORE_F16(to, LOAD(from, 0))
    EACH(float, x, uint16_t, out, n, BODY)
#undef BODY
}

static void NAME(store_f16_random)(uint16_t *out, const void *in, size_t n, uint32_t key, int slot) {
    for (size_t i = 0; i < n; i++) {
        const uint32_t random = adamod__random_bits((uint32_t)i, slot, key) >> 16;
        out[i] = adamod__f32_to_f16_random(NAME(at)(in, i), random);
    }
}

/* Plain loops, with state a constant in each copy, which compilers make vectors of. */
INLINE void NAME(load_q8_of)(float *out, const uint8_t *codes, const float *scales, size_t n, int state) {
    for (size_t first = 0; first < n; first += Q8_BLOCK) {
        const q8_block b = adamod__q8_block(scales[first / Q8_BLOCK], state);
        const size_t end = n - first < Q8_BLOCK ? n : first + Q8_BLOCK;
        for (size_t i = first; i < end; i++) out[i] = adamod__q8_decode(codes[i], &b, state);
    }
}

INLINE void NAME(random_q8)(uint32_t *random, size_t first, size_t n, int state, uint32_t key) {
    for (size_t i = 0; i < n; i += 4) {
        const uint32_t hash = adamod__random_hash((uint32_t)(first + i), key);
        for (size_t j = 0; j < 4; j++) random[i + j] = hash * ADAMOD__RANDOM_FACTOR(j, 1 + state);
    }
}

INLINE void NAME(store_q8_of)(uint8_t *codes, float *scales, const float *in, size_t n, int state, uint32_t key) {
    for (size_t first = 0; first < n; first += Q8_BLOCK) {
        const size_t count = n - first < Q8_BLOCK ? n - first : Q8_BLOCK;
        uint32_t random[Q8_BLOCK], most = 0;
        NAME(random_q8)(random, first, count, state, key);
        for (size_t i = first; i < first + count; i++) {
            const uint32_t magnitude = adamod__to_bits(in[i]) & 0x7fffffffu;
            most = magnitude > most ? magnitude : most;
        }
        const float scale = adamod__q8_scale(most);
        const q8_block b = adamod__q8_block(scale, state);
        for (size_t i = 0; i < count; i++) {
            codes[first + i] = (uint8_t)adamod__q8_encode(in[first + i], &b, random[i], state);
        }
        for (size_t i = 0; most > Q8_MOST && i < count;
             i++) { /* seldom, and apart so that the loop above stays quick */
            const float x = adamod__q8_within(in[first + i]);
            codes[first + i] = b.lost ? 0 : (uint8_t)adamod__q8_encode(x, &b, random[i], state);
        }
        scales[first / Q8_BLOCK] = scale;
    }
}

static void NAME(load_q8)(void *out, const uint8_t *codes, const float *scales, size_t n, int state) {
    if (state == 0) NAME(load_q8_of)(out, codes, scales, n, 0);
    else NAME(load_q8_of)(out, codes, scales, n, 1);
}

static void NAME(store_q8)(uint8_t *codes, float *scales, const void *in, size_t n, int state, uint32_t key) {
    if (state == 0) NAME(store_q8_of)(codes, scales, in, n, 0, key);
    else if (state == 1) NAME(store_q8_of)(codes, scales, in, n, 1, key);
    else NAME(store_q8_of)(codes, scales, in, n, 2, key);
}

#undef EACH
#undef LOAD_F16
#undef STORE_F16
#undef LOAD_BF16
#undef STORE_BF16

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
IN_F64(q8, (void *out, const uint8_t *codes, const float *scales, size_t n, int state), (x, codes, scales, n, state))
OUT_F64(bf16, (uint16_t * out, const void *in, size_t n), (out, x, n))
OUT_F64(f16, (uint16_t * out, const void *in, size_t n), (out, x, n))
OUT_F64(bf16_random, (uint16_t * out, const void *in, size_t n, uint32_t key, int slot), (out, x, n, key, slot))
OUT_F64(f16_random, (uint16_t * out, const void *in, size_t n, uint32_t key, int slot), (out, x, n, key, slot))
OUT_F64(q8, (uint8_t * codes, float *scales, const void *in, size_t n, int state, uint32_t key),
        (codes, scales, x, n, state, key))
#undef IN_F64
#undef OUT_F64
#undef NAME_F32
#endif

#undef ROWS
