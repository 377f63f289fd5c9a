/* Tests of the sums and of the largest number that kernels find in an array: the same bits with every instruction set, in
 * the order that is documented, for every length, place and value.
 *
 * SPDX-License-Identifier: MIT
 */
#include "optim/internal.h"
#include "check.h"
#include "values.h"

#include <math.h>

enum { MOST = 140, OFFSETS = 3, ARRAYS = 5 };
static double wide[ARRAYS][MOST + OFFSETS];
static float narrow[ARRAYS][MOST + OFFSETS];

/* Ordinary numbers, numbers whose squares are lost in f32 or in sums, an infinity, a NaN, all zeros. */
static void make_arrays(void) {
    for (int a = 0; a < ARRAYS; a++) {
        for (int i = 0; i < MOST + OFFSETS; i++) {
            const double x = a == 4 ? 0 : noise((uint64_t)(1000 * a + i)) * (a == 1 && i % 3 ? 1e-25 : 1);
            narrow[a][i] = (float)(wide[a][i] = x);
        }
    }
    narrow[2][20] = -INFINITY;
    wide[2][20] = -INFINITY;
    narrow[3][50] = (float)(wide[3][50] = NAN);
}

/* 32 running sums, then eights, then halves. */
static double expected_sum(const double *x, size_t n, double scale, bool squares) {
    double sum[32] = {0};
    for (size_t i = 0; i < n; i++) {
        const double d = x[i] * scale;
        sum[i % 32] += squares ? d * d : d;
    }
    for (int j = 0; j < 8; j++) sum[j] = (sum[j] + sum[8 + j]) + (sum[16 + j] + sum[24 + j]);
    return ((sum[0] + sum[1]) + (sum[2] + sum[3])) + ((sum[4] + sum[5]) + (sum[6] + sum[7]));
}

static double expected_largest(const double *x, size_t n, double scale) {
    double most = 0;
    for (size_t i = 0; i < n; i++) {
        const double d = fabs(x[i] * scale);
        if (d != d) return d;
        most = d > most ? d : most;
    }
    return most;
}

static bool same(double a, double b) { return a == b || (a != a && b != b); }

static void check_set(const kernel_set *set, int array, size_t offset, size_t n, bool is_wide) {
    const real_kernels *k = is_wide ? set->f64 : set->f32;
    double x[MOST];
    for (size_t i = 0; i < n; i++) x[i] = is_wide ? wide[array][offset + i] : (double)narrow[array][offset + i];
    const void *from = is_wide ? (const void *)(wide[array] + offset) : (const void *)(narrow[array] + offset);
    bool ok = same(k->sum(from, n), expected_sum(x, n, 1, false));
    for (int scaled = 0; scaled < 2; scaled++) {
        const double scale = scaled ? 0.3 : 1;
        ok = ok && same(k->sumsq(from, n, scale), expected_sum(x, n, scale, true));
        ok = ok && same(k->maxabs(from, n, scale), expected_largest(x, n, scale));
    }
    if (!CHECK(ok))
        printf("  %s, array %d from %zu, %zu numbers, %s\n", set->name, array, offset, n, is_wide ? "f64" : "f32");
}

TEST(every_set_of_kernels_adds_in_the_same_order) {
    make_arrays();
    for (int s = 0; adamod__kernels_at(s); s++) {
        for (int array = 0; array < ARRAYS; array++) {
            for (size_t offset = 0; offset < OFFSETS; offset++) {
                for (size_t n = 0; n <= MOST; n++) {
                    check_set(adamod__kernels_at(s), array, offset, n, false);
                    check_set(adamod__kernels_at(s), array, offset, n, true);
                }
            }
        }
    }
}

RUN_TESTS(ENTRY(every_set_of_kernels_adds_in_the_same_order))
