/* test_conversions.c - the kernels that convert to and from bf16 and f16, over all of their numbers, against the
 * definition in values.h.
 *
 * SPDX-License-Identifier: MIT
 */
#include "check.h"
#include "optim/internal.h"
#include "values.h"

#include <math.h>

static bool nan16(adamod_type type, uint16_t bits) { return (bits & 0x7fffu) > infinity16(type); }

static float from_bits(uint32_t bits) {
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

static uint32_t to_bits(float x) {
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

/* Every pattern there is. */
TEST(loads_of_all_16_bit_numbers) {
    uint16_t in[512];
    for (int i = 0; adamod__kernels_at(i); i++) {
        for (int wide = 0; wide < 2; wide++) {
            const real_kernels *k = wide ? adamod__kernels_at(i)->f64 : adamod__kernels_at(i)->f32;
            const real_kernels *plain = wide ? adamod__kernels_plain.f64 : adamod__kernels_plain.f32;
            for (int type = ADAMOD_BF16; type <= ADAMOD_F16; type++) {
                int wrong = 0;
                for (unsigned base = 0; base < 0x10000; base += 512) {
                    double out[512], expected[512];
                    for (unsigned j = 0; j < 512; j++) in[j] = (uint16_t)(base + j);
                    (type == ADAMOD_BF16 ? k->load_bf16 : k->load_f16)(out, in, 512);
                    (type == ADAMOD_BF16 ? plain->load_bf16 : plain->load_f16)(expected, in, 512);
                    wrong += memcmp(out, expected, 512 * (wide ? sizeof(double) : sizeof(float))) != 0;
                    for (unsigned j = 0; j < 512; j++) {
                        const double x = wide ? out[j] : (double)((float *)out)[j];
                        const unsigned magnitude = in[j] & 0x7fffu;
                        wrong += (in[j] >> 15) != (signbit(x) != 0);
                        if (nan16((adamod_type)type, in[j])) wrong += !isnan(x);
                        else if (magnitude == infinity16((adamod_type)type)) wrong += !isinf(x);
                        else wrong += fabs(x) != decode16((adamod_type)type, magnitude);
                    }
                }
                CHECK_INT(wrong, 0);
            }
        }
    }
}

/* f32 numbers that are hard to round: around every bf16 and f16 number and every tie between two; infinities; NaNs with
 * all kinds of payloads; then anything. */
static uint32_t hard_pattern(uint32_t i) {
    const uint32_t near[8] = {0, 1, 0xffffffffu, 0x1000, 0xfff, 0x1001, 0x8000, 0x7fff};
    if (i < 0x80000) return ((i >> 3) << 16) + near[i & 7]; /* bf16 */
    if (i < 0x100000)
        return to_bits((float)(decode16(ADAMOD_F16, (i >> 3 & 0xffffu) % 0x7c01u) * (i & 4 ? -1 : 1))) + near[i & 7];
    if (i < 0x100400) { /* f16's subnormals and half of the least, with neighbours */
        const uint32_t j = i & 0x3ffu;
        return to_bits((float)(j / 2) * 0x1p-25f) + (j & 1 ? 1 : 0);
    }
    if (i < 0x100800) return 0x7f800000u | (uint32_t)rng() % 0x800000u | (uint32_t)(rng() & 1) << 31;
    if (i < 0x100820) return 0x7f800001u << (i & 1) | 1u << (i & 31);
    return (uint32_t)rng();
}

/* Stores to nearest: what the definition says, in every instruction set, of any length. f64 goes through f32. */
TEST(stores_to_nearest) {
    enum { N = 512 };
    float x[N];
    double wide[N];
    uint16_t out[N], expected[N];
    rng_state = 6;
    const uint32_t end = fast() ? 0x104000 : 0x180000;
    int wrong[4] = {0};
    for (uint32_t base = 0; base < end; base += N) {
        const size_t n = base / N % 7 ? N : N - 1 - base / N % 31;
        for (uint32_t j = 0; j < N; j++) {
            x[j] = from_bits(hard_pattern(base + j));
            wide[j] = (double)x[j];
        }
        for (int type = ADAMOD_BF16; type <= ADAMOD_F16; type++) {
            for (size_t j = 0; j < n; j++) {
                if (isnan(x[j])) { /* quiet, with the sign and the upper bits of the payload */
                    const uint32_t bits = to_bits(x[j]),
                                   payload = type == ADAMOD_BF16 ? bits >> 16 & 0x3fu : bits >> 13 & 0x1ffu;
                    expected[j] =
                        (uint16_t)((bits >> 16 & 0x8000u) | payload | (type == ADAMOD_BF16 ? 0x7fc0u : 0x7e00u));
                } else {
                    expected[j] = nearest16((adamod_type)type, (double)x[j]);
                }
            }
            for (int i = 0; adamod__kernels_at(i); i++) {
                const kernel_set *set = adamod__kernels_at(i);
                (type == ADAMOD_BF16 ? set->f32->store_bf16 : set->f32->store_f16)(out, x, n);
                for (size_t j = 0; j < n; j++) {
                    if (out[j] == expected[j] || wrong[i]++) continue;
                    printf("%s: %a (%08x) to type %d is %04x, expected %04x\n", set->name, (double)x[j], to_bits(x[j]),
                           type, out[j], expected[j]);
                }
                (type == ADAMOD_BF16 ? set->f64->store_bf16 : set->f64->store_f16)(out, wide, n);
                for (size_t j = 0; j < n; j++) {
                    if (out[j] == expected[j] || isnan(x[j]) || wrong[i]++) continue;
                    printf("%s: f64 %a to type %d is %04x, expected %04x\n", set->name, wide[j], type, out[j],
                           expected[j]);
                }
            }
        }
    }
    for (int i = 0; i < 4; i++) CHECK_INT(wrong[i], 0);
}

/* Stores at random: one of the two neighbours, and a number of the type is itself; the same bits in every instruction
 * set. Beyond the largest number the neighbours are that and infinity. */
TEST(stores_at_random_give_neighbours) {
    enum { N = 512 };
    float x[N];
    uint16_t out[N], expected[N];
    rng_state = 7;
    const uint32_t end = fast() ? 0x104000 : 0x180000;
    int wrong = 0, differ = 0;
    for (uint32_t base = 0; base < end; base += N) {
        const size_t n = base / N % 7 ? N : N - 1 - base / N % 31;
        const uint32_t key = (uint32_t)rng();
        for (uint32_t j = 0; j < N; j++) x[j] = from_bits(hard_pattern(base + j));
        for (int type = ADAMOD_BF16; type <= ADAMOD_F16; type++) {
            const real_kernels *plain = adamod__kernels_plain.f32;
            (type == ADAMOD_BF16 ? plain->store_bf16_random : plain->store_f16_random)(expected, x, n, key,
                                                                                       (int)(key & 3));
            for (size_t j = 0; j < n; j++) {
                if (isnan(x[j])) {
                    wrong += !nan16((adamod_type)type, expected[j]);
                    continue;
                }
                const unsigned low = below16((adamod_type)type, (double)x[j]), got = expected[j] & 0x7fffu;
                const bool exact = isinf(x[j]) || decode16((adamod_type)type, low) == fabs((double)x[j]);
                const bool good = got == low || (!exact && got == low + 1);
                if (good && (expected[j] >> 15) == (signbit(x[j]) != 0)) continue;
                if (wrong++ == 0) printf("%a to type %d is %04x\n", (double)x[j], type, expected[j]);
            }
            for (int i = 0; adamod__kernels_at(i); i++) {
                const real_kernels *k = adamod__kernels_at(i)->f32;
                (type == ADAMOD_BF16 ? k->store_bf16_random : k->store_f16_random)(out, x, n, key, (int)(key & 3));
                differ += memcmp(out, expected, n * sizeof *out) != 0;
            }
        }
    }
    CHECK_INT(wrong, 0);
    CHECK_INT(differ, 0);
}

/* How often the upper neighbour is chosen is binomial, with the distance as its probability: 6 deviations. 16 bits
 * decide for bf16 and 13 for f16, as many as f32 has more, so the probability is exact; for f16's subnormals 16 bits
 * do, and it is off by up to 2^-16. Neighbouring elements must not be alike either: how often two in a row are the same
 * is binomial too, with p^2 + (1 - p)^2. */
TEST(stores_at_random_are_unbiased) {
    enum { N = 512 };
    static const double shares[] = {1.0 / 1024, 0.03, 0.25, 0.5, 0.6, 0.9, 1023.0 / 1024};
    static const double bases[] = {1, -1.5, 3e4, 1e-3, 4e-5, -2e-6, 0}; /* the last three are subnormal in f16 */
    const int rounds = fast() ? 40 : 400;
    rng_state = 8;
    const real_kernels *k = adamod__kernels_at(0)->f32;
    for (int type = ADAMOD_BF16; type <= ADAMOD_F16; type++) {
        for (int b = 0; b < 7; b++) {
            for (int s = 0; s < 7; s++) {
                const unsigned low = below16((adamod_type)type, bases[b]);
                const double from = decode16((adamod_type)type, low), to = decode16((adamod_type)type, low + 1);
                const float value = (float)copysign(from + shares[s] * (to - from), bases[b]);
                const double p = (fabs((double)value) - from) / (to - from);
                float x[N];
                uint16_t out[N];
                double up = 0, alike = 0;
                for (int i = 0; i < N; i++) x[i] = value;
                for (int round = 0; round < rounds; round++) {
                    (type == ADAMOD_BF16 ? k->store_bf16_random : k->store_f16_random)(out, x, N, (uint32_t)rng(),
                                                                                       round % 4);
                    for (int i = 0; i < N; i++) {
                        up += (out[i] & 0x7fffu) == low + 1;
                        alike += i > 0 && out[i] == out[i - 1];
                    }
                }
                const double n = (double)N * rounds, pairs = (N - 1.0) * rounds, q = p * p + (1 - p) * (1 - p);
                bool good = CHECK_CLOSE(up, n * p, 6 * sqrt(n * p * (1 - p)) + n * 0x1p-16);
                /* pairs overlap: each is correlated with two others, so at most three times the variance */
                good &= CHECK_CLOSE(alike, pairs * q, 6 * sqrt(3 * pairs * q * (1 - q)) + n * 0x1p-16);
                if (!good) printf("type %d, %a, share %g\n", type, (double)value, p);
            }
        }
    }
}

RUN_TESTS(ENTRY(loads_of_all_16_bit_numbers), ENTRY(stores_to_nearest), ENTRY(stores_at_random_give_neighbours),
          ENTRY(stores_at_random_are_unbiased))
