#include "core/crc32.h"

#include <pthread.h>
#include <string.h>

#if defined(__x86_64__) && defined(__GNUC__)
#define CRC32_FOLDS 1
#include <immintrin.h>
#endif

/* ---- Tables ------------------------------------------------------------------------------------------------------- */

/* crc32_table[k][b] is the CRC of byte b followed by k zero bytes. 16 tables process 16 bytes at once. */
static uint32_t crc32_table[16][256];
static pthread_once_t crc32_once = PTHREAD_ONCE_INIT;

static void crc32_make_table(void) {
    for (uint32_t b = 0; b < 256; b++) {
        uint32_t x = b;
        for (int i = 0; i < 8; i++) x = x >> 1 ^ (x & 1 ? UINT32_C(0xedb88320) : 0);
        crc32_table[0][b] = x;
    }
    for (int k = 1; k < 16; k++) {
        for (int b = 0; b < 256; b++) {
            const uint32_t x = crc32_table[k - 1][b];
            crc32_table[k][b] = x >> 8 ^ crc32_table[0][x & 0xff];
        }
    }
}

/* The contribution of the four bytes of x, with k bytes after the last of them. */
static uint32_t crc32_look_up(uint32_t x, int k) {
    return crc32_table[k + 3][x & 0xff] ^ crc32_table[k + 2][x >> 8 & 0xff] ^ crc32_table[k + 1][x >> 16 & 0xff] ^
           crc32_table[k][x >> 24];
}

/* Advances the internal state, an inverted CRC, by n bytes. */
static uint32_t crc32_bytes(uint32_t crc, const unsigned char *p, size_t n) {
    for (; n >= 16; p += 16, n -= 16) {
        uint32_t word[4];
        memcpy(word, p, 16);
        crc = crc32_look_up(word[0] ^ crc, 12) ^ crc32_look_up(word[1], 8) ^ crc32_look_up(word[2], 4) ^
              crc32_look_up(word[3], 0);
    }
    while (n--) crc = crc >> 8 ^ crc32_table[0][(crc ^ *p++) & 0xff];
    return crc;
}

uint32_t adamod__crc32_plain(uint32_t crc, const void *data, size_t n) {
    pthread_once(&crc32_once, crc32_make_table);
    return ~crc32_bytes(~crc, data, n);
}

/* ---- Folding by carry-less products ------------------------------------------------------------------------------- */

#ifdef CRC32_FOLDS

/* Returns x * X^distance + y, polynomials in X. by holds X^(distance+32) and X^(distance-32) modulo the CRC polynomial,
 * reflected and shifted by one (Gopal et al., "Fast CRC Computation for Generic Polynomials Using PCLMULQDQ
 * Instruction", Intel 2009). */
__attribute__((target("pclmul,sse2"))) static __m128i crc32_fold(__m128i x, __m128i by, __m128i y) {
    const __m128i low = _mm_clmulepi64_si128(x, by, 0x00), high = _mm_clmulepi64_si128(x, by, 0x11);
    return _mm_xor_si128(_mm_xor_si128(low, high), y);
}

/* n >= 64. Folds all whole groups of 16 bytes into 16 bytes with the same CRC, then adds the rest. */
__attribute__((target("pclmul,sse2"))) static uint32_t crc32_folded(uint32_t crc, const unsigned char *p, size_t n) {
    const __m128i by_512 = _mm_set_epi64x(0x1c6e41596, 0x154442bd4), by_128 = _mm_set_epi64x(0x0ccaa009e, 0x1751997d0);
    unsigned char rest[16];
    __m128i x[4];
    for (int i = 0; i < 4; i++) x[i] = _mm_loadu_si128((const __m128i *)(const void *)(p + 16 * i));
    x[0] = _mm_xor_si128(x[0], _mm_cvtsi32_si128((int)crc));
    for (p += 64, n -= 64; n >= 64; p += 64, n -= 64) {
        for (int i = 0; i < 4; i++) {
            x[i] = crc32_fold(x[i], by_512, _mm_loadu_si128((const __m128i *)(const void *)(p + 16 * i)));
        }
    }
    for (int i = 1; i < 4; i++) x[0] = crc32_fold(x[0], by_128, x[i]);
    for (; n >= 16; p += 16, n -= 16) {
        x[0] = crc32_fold(x[0], by_128, _mm_loadu_si128((const __m128i *)(const void *)p));
    }
    _mm_storeu_si128((__m128i *)(void *)rest, x[0]);
    return crc32_bytes(crc32_bytes(0, rest, sizeof rest), p, n);
}

uint32_t adamod__crc32(uint32_t crc, const void *data, size_t n) {
    if (n < 64 || !__builtin_cpu_supports("pclmul")) return adamod__crc32_plain(crc, data, n);
    pthread_once(&crc32_once, crc32_make_table);
    return ~crc32_folded(~crc, data, n);
}

#else

uint32_t adamod__crc32(uint32_t crc, const void *data, size_t n) { return adamod__crc32_plain(crc, data, n); }

#endif
