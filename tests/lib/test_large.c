/* test_large.c - an array of more than 2^31 elements, and of more than 2^32 bytes: counts and offsets that do not fit
 * into 32 bits, in the update and in the norm.
 *
 * Parameters are bf16 under sgd without a master, 4.3 GB; of gradients there is a small piece, mapped again and again.
 * Every number is a sum of few powers of two, so all of it is exact and every element can be compared.
 *
 * SPDX-License-Identifier: MIT
 */
#define _GNU_SOURCE
#include "adamod.h"
#include "check.h"

#include <math.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

enum { PIECE = 1 << 23 }; /* elements of the gradient's piece: 16 MiB */

/* 2^31 elements are 2^32 bytes; the rest is more than a piece, and no whole number of pieces, blocks or vectors. */
static const int64_t count = ((int64_t)1 << 31) + PIECE + 4096 + 7;

static double available_gigabytes(void) {
    FILE *f = fopen("/proc/meminfo", "r");
    char line[200];
    double kilobytes = 0;
    while (f && fgets(line, sizeof line, f)) {
        if (sscanf(line, "MemAvailable: %lf kB", &kilobytes) == 1) break;
    }
    if (f) fclose(f);
    return kilobytes / 1e6;
}

/* Element i of the piece. It differs between neighbours and between pieces of any power of two, so that an element
 * updated with another's gradient is seen: gradients are 2^-1 to 2^-6, chosen by a hash. */
static unsigned exponent_at(uint32_t i) {
    uint32_t x = i * 0x9e3779b9u;
    x = (x ^ (x >> 15)) * 0x85ebca6bu;
    return 1 + (x ^ (x >> 13)) % 6;
}

static uint16_t gradient_bits(unsigned exponent) { return (uint16_t)((127 - exponent) << 7); }

/* 1 - 2^-e in bf16 is 2^-1 (1 + (1 - 2^(1 - e))): e - 1 ones at the head of the fraction. */
static uint16_t result_bits(unsigned exponent) {
    return (uint16_t)(126u << 7 | (((1u << (exponent - 1)) - 1) << (8 - exponent)));
}

/* The piece at every place of a range of addresses, or NULL. */
static uint16_t *repeat(int file, size_t bytes) {
    const size_t piece = PIECE * sizeof(uint16_t);
    char *base = mmap(NULL, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (base == MAP_FAILED) return NULL;
    for (size_t at = 0; at < bytes; at += piece) {
        const size_t size = bytes - at < piece ? bytes - at : piece;
        if (mmap(base + at, size, PROT_READ, MAP_SHARED | MAP_FIXED, file, 0) == MAP_FAILED) {
            munmap(base, bytes);
            return NULL;
        }
    }
    return (uint16_t *)base;
}

/* All ones, by several threads: the first touch of so much memory takes longer than all else. */
enum { FILLERS = 4 };

static void *fill_part(void *argument) {
    uint16_t **part = argument;
    for (uint16_t *p = part[0]; p < part[1]; p++) *p = 0x3f80;
    return NULL;
}

static void fill(uint16_t *p) {
    uint16_t *part[FILLERS][2];
    pthread_t thread[FILLERS];
    bool started[FILLERS];
    for (int i = 0; i < FILLERS; i++) {
        part[i][0] = p + count / FILLERS * i;
        part[i][1] = i == FILLERS - 1 ? p + count : p + count / FILLERS * (i + 1);
        started[i] = pthread_create(&thread[i], NULL, fill_part, part[i]) == 0;
        if (!started[i]) fill_part(part[i]);
    }
    for (int i = 0; i < FILLERS; i++) {
        if (started[i]) pthread_join(thread[i], NULL);
    }
}

/* Whether all elements of p are those of the piece, over and over. */
static bool all_equal(const uint16_t *p, const uint16_t *piece) {
    for (int64_t at = 0; at < count; at += PIECE) {
        const int64_t n = count - at < PIECE ? count - at : PIECE;
        if (!memcmp(p + at, piece, (size_t)n * sizeof *p)) continue;
        int64_t i = 0;
        while (p[at + i] == piece[i]) i++;
        printf("element %lld is %04x, expected %04x\n", (long long)(at + i), p[at + i], piece[i]);
        return false;
    }
    return true;
}

static void update_and_compare(uint16_t *p, const uint16_t *g, const uint16_t *piece, const uint16_t *expected) {
    adamod_optimizer *opt;
    if (!CHECK_INT(adamod_create(&opt, "sgd"), 0)) return;
    CHECK_INT(adamod_set(opt, "lr", 1), 0);
    CHECK_INT(adamod_set_text(opt, "low_precision", "stochastic"), 0);
    const adamod_tensor t = {.name = "x",
                             .param = p,
                             .grad = g,
                             .param_type = ADAMOD_BF16,
                             .grad_type = ADAMOD_BF16,
                             .ndim = 1,
                             .shape = {count}};
    if (CHECK_INT(adamod_add_tensor(opt, 0, &t, NULL), 0) && CHECK_INT(adamod_step(opt), 0)) {
        static const int64_t around[] = {0, 1, (int64_t)1 << 30, (int64_t)1 << 31};
        for (int k = 0; k < 4; k++) { /* 2^30 elements are 2^31 bytes */
            for (int64_t i = around[k] - 2; i <= around[k] + 2; i++) {
                if (i >= 0) CHECK_INT(p[i], expected[i % PIECE]);
            }
        }
        CHECK_INT(p[count / 2], expected[count / 2 % PIECE]);
        CHECK_INT(p[count - 1], expected[(count - 1) % PIECE]);
        CHECK(all_equal(p, expected));
    }
    adamod_free(opt);
    /* Squares are 2^-2 to 2^-12, and fewer than 2^32 of them: every sum is exact. */
    double sum = 0, norm = -1;
    for (int64_t i = 0; i < PIECE; i++) {
        const double x = ldexp(1, -(int)exponent_at((uint32_t)i));
        sum += x * x * (double)(count / PIECE + (i < count % PIECE));
    }
    adamod_pool *pool = NULL;
    CHECK_INT(adamod_pool_create(&pool, 0), 0);
    const adamod_span x = {.grad = g, .grad_type = ADAMOD_BF16, .count = count};
    CHECK_INT(adamod_norm(&x, 1, pool, &norm), 0);
    CHECK(norm == sqrt(sum));
    adamod_pool_free(pool);
    CHECK(g[count - 1] == piece[(count - 1) % PIECE]);
}

TEST(more_than_two_to_the_31_elements) {
    const char *quick = getenv("ADAMOD_TEST_FAST");
#ifdef SANITIZED
    SKIP("a sanitizer would need several times the memory");
#endif
    if (quick && *quick && *quick != '0') SKIP("ADAMOD_TEST_FAST is set");
    if (sizeof(size_t) < 8) SKIP("addresses have 32 bits");
    if (available_gigabytes() < 7) SKIP("less than 7 GB of memory are free");
    const size_t bytes = (size_t)count * sizeof(uint16_t);
    const int file = memfd_create("gradient", MFD_CLOEXEC);
    if (file < 0 || ftruncate(file, PIECE * sizeof(uint16_t))) SKIP("no memory file");
    uint16_t *piece = mmap(NULL, PIECE * sizeof *piece, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    uint16_t *expected = malloc(PIECE * sizeof *expected);
    uint16_t *g = repeat(file, bytes);
    uint16_t *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (piece == MAP_FAILED || p == MAP_FAILED || !g || !expected) SKIP("the system does not map 4.3 GB");
#ifdef MADV_HUGEPAGE
    (void)madvise(p, bytes, MADV_HUGEPAGE);
#endif
    for (uint32_t i = 0; i < PIECE; i++) {
        piece[i] = gradient_bits(exponent_at(i));
        expected[i] = result_bits(exponent_at(i));
    }
    fill(p);
    update_and_compare(p, g, piece, expected);
    munmap(p, bytes);
    munmap(g, bytes);
    munmap(piece, PIECE * sizeof *piece);
    free(expected);
    close(file);
}

RUN_TESTS(ENTRY(more_than_two_to_the_31_elements))
