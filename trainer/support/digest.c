/* Both digests work on blocks of 64 bytes and end with the number of bits. SHA-256 is big-endian, MD5 little-endian. */
#include "support/digest.h"

#include <stdbool.h>
#include <string.h>

/* Fractions of the cube roots of the first primes (SHA-256) and of sines (MD5), from the standards. */
static const uint32_t sha256_constants[64] = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
    0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
    0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
    0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
    0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
    0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
    0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
    0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2,
};
static const uint32_t md5_constants[64] = {
    0xd76aa478, 0xe8c7b756, 0x242070db, 0xc1bdceee, 0xf57c0faf, 0x4787c62a, 0xa8304613, 0xfd469501,
    0x698098d8, 0x8b44f7af, 0xffff5bb1, 0x895cd7be, 0x6b901122, 0xfd987193, 0xa679438e, 0x49b40821,
    0xf61e2562, 0xc040b340, 0x265e5a51, 0xe9b6c7aa, 0xd62f105d, 0x02441453, 0xd8a1e681, 0xe7d3fbc8,
    0x21e1cde6, 0xc33707d6, 0xf4d50d87, 0x455a14ed, 0xa9e3e905, 0xfcefa3f8, 0x676f02d9, 0x8d2a4c8a,
    0xfffa3942, 0x8771f681, 0x6d9d6122, 0xfde5380c, 0xa4beea44, 0x4bdecfa9, 0xf6bb4b60, 0xbebfbc70,
    0x289b7ec6, 0xeaa127fa, 0xd4ef3085, 0x04881d05, 0xd9d4d039, 0xe6db99e5, 0x1fa27cf8, 0xc4ac5665,
    0xf4292244, 0x432aff97, 0xab9423a7, 0xfc93a039, 0x655b59c3, 0x8f0ccc92, 0xffeff47d, 0x85845dd1,
    0x6fa87e4f, 0xfe2ce6e0, 0xa3014314, 0x4e0811a1, 0xf7537e82, 0xbd3af235, 0x2ad7d2bb, 0xeb86d391,
};

static uint32_t rotate_left(uint32_t x, int n) { return x << n | x >> (32 - n); }
static uint32_t rotate_right(uint32_t x, int n) { return x >> n | x << (32 - n); }

static uint32_t load(const uint8_t *b, bool big_endian) {
    const uint32_t x = (uint32_t)b[0] | (uint32_t)b[1] << 8 | (uint32_t)b[2] << 16 | (uint32_t)b[3] << 24;
    return big_endian ? x << 24 | (x & 0xff00) << 8 | (x >> 8 & 0xff00) | x >> 24 : x;
}

static void sha256_block(uint32_t state[8], const uint8_t *block) {
    uint32_t w[64];
    for (int i = 0; i < 16; i++) w[i] = load(block + 4 * i, true);
    for (int i = 16; i < 64; i++) {
        const uint32_t x = w[i - 15], y = w[i - 2];
        w[i] = w[i - 16] + w[i - 7] + (rotate_right(x, 7) ^ rotate_right(x, 18) ^ x >> 3) +
               (rotate_right(y, 17) ^ rotate_right(y, 19) ^ y >> 10);
    }
    uint32_t a = state[0], b = state[1], c = state[2], d = state[3];
    uint32_t e = state[4], f = state[5], g = state[6], h = state[7];
    for (int i = 0; i < 64; i++) {
        const uint32_t x = h + (rotate_right(e, 6) ^ rotate_right(e, 11) ^ rotate_right(e, 25)) + ((e & f) ^ (~e & g)) +
                           sha256_constants[i] + w[i];
        const uint32_t y =
            (rotate_right(a, 2) ^ rotate_right(a, 13) ^ rotate_right(a, 22)) + ((a & b) ^ (a & c) ^ (b & c));
        h = g, g = f, f = e, e = d + x;
        d = c, c = b, b = a, a = x + y;
    }
    state[0] += a, state[1] += b, state[2] += c, state[3] += d;
    state[4] += e, state[5] += f, state[6] += g, state[7] += h;
}

static void md5_block(uint32_t state[8], const uint8_t *block) {
    static const int turns[4][4] = {{7, 12, 17, 22}, {5, 9, 14, 20}, {4, 11, 16, 23}, {6, 10, 15, 21}};
    uint32_t a = state[0], b = state[1], c = state[2], d = state[3];
    for (int i = 0; i < 64; i++) {
        const int round = i / 16;
        const uint32_t f = round == 0   ? (b & c) | (~b & d)
                           : round == 1 ? (b & d) | (c & ~d)
                           : round == 2 ? b ^ c ^ d
                                        : c ^ (b | ~d);
        const int word = round == 0 ? i : round == 1 ? (5 * i + 1) % 16 : round == 2 ? (3 * i + 5) % 16 : 7 * i % 16;
        const uint32_t x = a + f + md5_constants[i] + load(block + 4 * word, false);
        a = d;
        d = c;
        c = b;
        b += rotate_left(x, turns[round][i % 4]);
    }
    state[0] += a;
    state[1] += b;
    state[2] += c;
    state[3] += d;
}

static void take_block(digest *d, const uint8_t *block) {
    if (d->kind == DIGEST_SHA256) sha256_block(d->state, block);
    else md5_block(d->state, block);
}

void digest_start(digest *d, digest_kind kind) {
    static const uint32_t first[2][8] = {
        {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a, 0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19},
        {0x67452301, 0xefcdab89, 0x98badcfe, 0x10325476}};
    *d = (digest){.kind = kind};
    memcpy(d->state, first[kind], sizeof d->state);
}

void digest_add(digest *d, const void *data, size_t n) {
    const uint8_t *at = data;
    const size_t used = (size_t)(d->n % 64);
    d->n += n;
    if (used) {
        const size_t some = n < 64 - used ? n : 64 - used;
        memcpy(d->block + used, at, some);
        if (used + some < 64) return;
        take_block(d, d->block);
        at += some;
        n -= some;
    }
    for (; n >= 64; at += 64, n -= 64) take_block(d, at);
    if (n) memcpy(d->block, at, n);
}

void digest_end(digest *d, char hex[DIGEST_HEX]) {
    static const uint8_t filling[64] = {0x80};
    static const char digits[] = "0123456789abcdef";
    const bool sha256 = d->kind == DIGEST_SHA256;
    const uint64_t bits = d->n * 8;
    uint8_t length[8];
    for (int i = 0; i < 8; i++) length[sha256 ? 7 - i : i] = (uint8_t)(bits >> 8 * i);
    digest_add(d, filling, 1 + (119 - (size_t)(d->n % 64)) % 64);
    digest_add(d, length, sizeof length);
    const int n = sha256 ? 32 : 16;
    for (int i = 0; i < n; i++) {
        const uint8_t byte = (uint8_t)(d->state[i / 4] >> 8 * (sha256 ? 3 - i % 4 : i % 4));
        hex[2 * i] = digits[byte >> 4];
        hex[2 * i + 1] = digits[byte & 15];
    }
    hex[2 * n] = 0;
}

const char *digest_name(digest_kind kind) { return kind == DIGEST_SHA256 ? "SHA-256" : "MD5"; }
