/* Tests of core/buffer.c and core/number.c.
 *
 * SPDX-License-Identifier: MIT
 */
#include "core/buffer.h"
#include "core/number.h"

#include "check.h"

#include <fenv.h>
#include <math.h>
#include <stdint.h>
#include <string.h>

TEST(a_buffer_grows) {
    adamod__buffer b = {0};
    char expected[4096];
    size_t n = 0;
    for (int i = 0; i < 500; i++) {
        adamod__buffer_text(&b, i % 2 ? "ab" : "");
        adamod__buffer_format(&b, "%d", i);
        n += (size_t)snprintf(expected + n, sizeof expected - n, "%s%d", i % 2 ? "ab" : "", i);
        CHECK_INT(b.n, n);
        CHECK_INT(b.text[b.n], 0);
    }
    CHECK(!b.failed);
    CHECK_STR(b.text, expected);
    adamod__buffer_add(&b, "\0x", 2);
    CHECK_INT(b.n, n + 2);
    CHECK_INT(b.text[n + 1], 'x');
    adamod__buffer_free(&b);
    CHECK(!b.text && !b.n && !b.room);
}

TEST(an_empty_addition_terminates) {
    adamod__buffer b = {0};
    adamod__buffer_add(&b, NULL, 0);
    if (CHECK(b.text != NULL)) CHECK_STR(b.text, "");
    adamod__buffer_format(&b, "%s", "");
    CHECK_INT(b.n, 0);
    adamod__buffer_free(&b);
}

TEST(a_buffer_fails_once) {
    adamod__buffer b = {0};
    adamod__buffer_text(&b, "kept");
    adamod__buffer_add(&b, "x", SIZE_MAX / 2); /* refused before anything is read */
    CHECK(b.failed);
    adamod__buffer_text(&b, "lost");
    adamod__buffer_format(&b, "%d", 1);
    CHECK(b.failed);
    CHECK_INT(b.n, 4);
    CHECK_STR(b.text, "kept");
    adamod__buffer_free(&b);
    CHECK(!b.failed);
}

TEST(shortest_decimals) {
    static const struct {
        double x;
        int digits;
        double whole;
        const char *text;
    } cases[] = {
        {0.1, 1, 0, "0.1"},
        {1e-8, 1, 0, "1e-08"},
        {9000, 1, 0, "9e+03"},
        {9000, 1, 1e15, "9000"},
        {1e15, 1, 1e15, "1e+15"},
        {123456, 1, 1e5, "123456"},
        {100000, 1, 1e5, "1e+05"},
        {9000, 6, 0, "9000"},
        {1e6, 6, 0, "1e+06"},
        {-0.0, 1, 1e15, "-0"},
        {0.1 + 0.2, 6, 0, "0.30000000000000004"},
        {INFINITY, 1, 1e15, "inf"},
        {-INFINITY, 6, 0, "-inf"},
        {1.0 / 3, 1, 1e15, "0.3333333333333333"},
    };
    char out[32];
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        CHECK_STR(adamod__shortest(cases[i].x, cases[i].digits, cases[i].whole, out), cases[i].text);
    }
    CHECK_HAS(adamod__shortest(NAN, 1, 1e15, out), "nan");
    CHECK_STR(adamod__number(0.001, out), "0.001");
}

TEST(every_rounding_mode_gives_the_same) {
    static const int modes[] = {FE_TONEAREST, FE_DOWNWARD, FE_UPWARD, FE_TOWARDZERO};
    char out[32];
    for (size_t i = 0; i < sizeof modes / sizeof *modes; i++) {
        fesetround(modes[i]);
        const char *text = adamod__shortest(0.3, 1, 0, out);
        char *end;
        const double x = adamod__read_number("0.1rest", &end);
        const int after = fegetround();
        fesetround(FE_TONEAREST);
        CHECK_INT(after, modes[i]);
        CHECK_STR(text, "0.3");
        CHECK(x == 0.1);
        CHECK_STR(end, "rest");
    }
}

RUN_TESTS(ENTRY(a_buffer_grows), ENTRY(an_empty_addition_terminates), ENTRY(a_buffer_fails_once),
          ENTRY(shortest_decimals), ENTRY(every_rounding_mode_gives_the_same))
