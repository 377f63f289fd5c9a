#include "data/mersenne.h"

enum { N = 624, M = 397 };

/* init_by_array of one number, as Python's random.seed(n) for n below 2^32. */
void mersenne_seed(mersenne *m, uint32_t seed) {
    uint32_t *s = m->state;
    s[0] = 19650218;
    for (uint32_t i = 1; i < N; i++) s[i] = 1812433253u * (s[i - 1] ^ s[i - 1] >> 30) + i;
    uint32_t i = 1;
    for (int k = 0; k < N; k++) {
        s[i] = (s[i] ^ (s[i - 1] ^ s[i - 1] >> 30) * 1664525u) + seed;
        if (++i == N) s[0] = s[N - 1], i = 1;
    }
    for (int k = 0; k < N - 1; k++) {
        s[i] = (s[i] ^ (s[i - 1] ^ s[i - 1] >> 30) * 1566083941u) - i;
        if (++i == N) s[0] = s[N - 1], i = 1;
    }
    s[0] = 0x80000000u;
    m->at = N;
}

static uint32_t next32(mersenne *m) {
    uint32_t *s = m->state;
    if (m->at == N) {
        for (int i = 0; i < N; i++) {
            const uint32_t y = (s[i] & 0x80000000u) | (s[(i + 1) % N] & 0x7fffffffu);
            s[i] = s[(i + M) % N] ^ y >> 1 ^ (y & 1 ? 0x9908b0dfu : 0);
        }
        m->at = 0;
    }
    uint32_t y = s[m->at++];
    y ^= y >> 11;
    y ^= y << 7 & 0x9d2c5680u;
    y ^= y << 15 & 0xefc60000u;
    return y ^ y >> 18;
}

double mersenne_next(mersenne *m) {
    const uint32_t a = next32(m) >> 5, b = next32(m) >> 6;
    return (a * 67108864.0 + b) / 9007199254740992.0;
}
