/* Tests of core/crc32.c: published check values, and that the fast and the portable version agree.
 *
 * SPDX-License-Identifier: MIT
 */
#include "core/crc32.h"
#include "check.h"

#include <stdlib.h>

/* One bit at a time, as it is defined. */
static uint32_t by_definition(uint32_t crc, const unsigned char *p, size_t n) {
    crc = ~crc;
    for (; n; n--, p++) {
        crc ^= *p;
        for (int i = 0; i < 8; i++) crc = crc & 1 ? crc >> 1 ^ UINT32_C(0xedb88320) : crc >> 1;
    }
    return ~crc;
}

TEST(published_values) {
    CHECK_INT(adamod__crc32(0, "", 0), 0);
    CHECK_INT(adamod__crc32(0, "123456789", 9), 0xcbf43926); /* the check value of CRC-32/ISO-HDLC */
    CHECK_INT(adamod__crc32(0, "The quick brown fox jumps over the lazy dog", 43), 0x414fa339);
    CHECK_INT(adamod__crc32(adamod__crc32(0, "12345", 5), "6789", 4), 0xcbf43926);
}

TEST(every_length_and_place) {
    enum { N = 700 };
    unsigned char bytes[N + 16];
    for (int i = 0; i < N + 16; i++) bytes[i] = (unsigned char)((unsigned)i * 2654435761u >> 13);
    for (size_t n = 0; n <= N; n++) {
        const unsigned char *at = bytes + n % 16;
        const uint32_t start = (uint32_t)n * 2654435761u, expected = by_definition(start, at, n);
        if (!CHECK_INT(adamod__crc32_plain(start, at, n), expected) ||
            !CHECK_INT(adamod__crc32(start, at, n), expected))
            printf("  %zu bytes\n", n);
        /* in two parts */
        const size_t part = n * 3 / 7;
        CHECK_INT(adamod__crc32(adamod__crc32(start, at, part), at + part, n - part), expected);
    }
}

TEST(every_bit_matters) {
    unsigned char bytes[300] = {0};
    const uint32_t before = adamod__crc32(0, bytes, sizeof bytes);
    for (size_t bit = 0; bit < 8 * sizeof bytes; bit++) {
        bytes[bit / 8] ^= (unsigned char)(1u << bit % 8);
        CHECK(adamod__crc32(0, bytes, sizeof bytes) != before);
        bytes[bit / 8] ^= (unsigned char)(1u << bit % 8);
    }
}

TEST(many_bytes) {
    enum { MANY = 1 << 22 };
    unsigned char *bytes = malloc(MANY);
    if (!CHECK(bytes != NULL)) return;
    for (int i = 0; i < MANY; i++) bytes[i] = (unsigned char)((unsigned)i * 40503u >> 7);
    CHECK_INT(adamod__crc32(1, bytes, MANY), by_definition(1, bytes, MANY));
    CHECK_INT(adamod__crc32_plain(1, bytes, MANY), by_definition(1, bytes, MANY));
    free(bytes);
}

RUN_TESTS(ENTRY(published_values), ENTRY(every_length_and_place), ENTRY(every_bit_matters), ENTRY(many_bytes))
