/* 128-bit numbers are pairs of 64-bit ones, because 32-bit processors have no larger type. */
#include "data/pcg64.h"

static uint64_t product_high(uint64_t a, uint64_t b) {
    const uint64_t al = (uint32_t)a, ah = a >> 32, bl = (uint32_t)b, bh = b >> 32;
    const uint64_t middle = ah * bl + (al * bl >> 32), other = al * bh + (uint32_t)middle;
    return ah * bh + (middle >> 32) + (other >> 32);
}

static void step(pcg64 *p) {
    static const uint64_t low = 0x4385df649fccf645u, high = 0x2360ed051fc65da4u;
    const uint64_t s = p->state[0];
    p->state[1] = product_high(s, low) + s * high + p->state[1] * low;
    p->state[0] = s * low + p->increment[0];
    p->state[1] += p->increment[1] + (p->state[0] < p->increment[0]);
}

/* ---- numpy's SeedSequence of one number ---- */

static uint32_t mix_in(uint32_t value, uint32_t *constant) {
    value ^= *constant;
    *constant *= 0x931e8875u;
    value *= *constant;
    return value ^ value >> 16;
}

static void fill_pool(uint32_t pool[4], uint32_t seed) {
    uint32_t constant = 0x43b0d7e5u;
    for (int i = 0; i < 4; i++) pool[i] = mix_in(i ? 0 : seed, &constant);
    for (int from = 0; from < 4; from++) {
        for (int to = 0; to < 4; to++) {
            if (from == to) continue;
            const uint32_t mixed = 0xca01f9ddu * pool[to] - 0x4973f715u * mix_in(pool[from], &constant);
            pool[to] = mixed ^ mixed >> 16;
        }
    }
}

void pcg64_seed(pcg64 *p, uint32_t seed) {
    uint32_t pool[4], constant = 0x8b51f9ddu;
    uint64_t word[4];
    fill_pool(pool, seed);
    for (int i = 0; i < 8; i++) {
        uint32_t x = pool[i % 4] ^ constant;
        constant *= 0x58f38dedu;
        x *= constant;
        x ^= x >> 16;
        word[i / 2] = i % 2 ? word[i / 2] | (uint64_t)x << 32 : x;
    }
    *p = (pcg64){.increment = {word[3] << 1 | 1, word[2] << 1 | word[3] >> 63}};
    step(p);
    p->state[0] += word[1];
    p->state[1] += word[0] + (p->state[0] < word[1]);
    step(p);
}

static uint64_t next64(pcg64 *p) {
    step(p);
    const uint64_t x = p->state[1] ^ p->state[0];
    const unsigned turn = (unsigned)(p->state[1] >> 58);
    return x >> turn | x << (-turn & 63);
}

static uint32_t next32(pcg64 *p) {
    if (p->has_half) {
        p->has_half = false;
        return p->half;
    }
    const uint64_t x = next64(p);
    p->half = (uint32_t)(x >> 32);
    p->has_half = true;
    return (uint32_t)x;
}

uint32_t pcg64_below(pcg64 *p, uint32_t n) { /* Lemire, 2019 */
    if (n < 2) return 0;
    uint64_t m = (uint64_t)next32(p) * n;
    if ((uint32_t)m < n) {
        const uint32_t least = (UINT32_MAX - (n - 1)) % n;
        while ((uint32_t)m < least) m = (uint64_t)next32(p) * n;
    }
    return (uint32_t)(m >> 32);
}
