/* Tests of schedules: their formulas at the corners, the two of the paper, chains, text, and what an optimizer makes of
 * them.
 *
 * SPDX-License-Identifier: MIT
 */
#include "adamod.h"
#include "check.h"

#include <math.h>
#include <stdint.h>
#include <stdlib.h>

static double value_at(const char *text, double base, int64_t t) {
    adamod_schedule *s = NULL;
    if (!CHECK_INT(adamod_schedule_parse(&s, text), ADAMOD_OK)) {
        printf("  \"%s\": %s\n", text, adamod_last_error());
        return NAN;
    }
    const double value = adamod_schedule_value(s, base, t);
    adamod_schedule_free(s);
    return value;
}

/* A relative error of a few roundings. */
#define CHECK_VALUE(text, base, t, expected)                                                                           \
    check_close(value_at(text, base, t), expected, 4e-16 * fabs(expected), text " at " #t, __FILE__, __LINE__)

static adamod_schedule *parsed(const char *text) {
    adamod_schedule *s = NULL;
    CHECK_INT(adamod_schedule_parse(&s, text), ADAMOD_OK);
    return s;
}

/* ---- Values ------------------------------------------------------------------------------------------------------- */

TEST(constant) {
    adamod_schedule *s = NULL;
    CHECK_INT(adamod_schedule_constant(&s), ADAMOD_OK);
    const int64_t times[] = {1, 2, 1000, INT64_MAX};
    for (int i = 0; i < 4; i++) {
        CHECK(adamod_schedule_value(s, 0.1, times[i]) == 0.1);
        CHECK(adamod_schedule_value(NULL, 0.1, times[i]) == 0.1);
    }
    CHECK(adamod_schedule_value(s, 0, 5) == 0);
    adamod_schedule_free(s);
    adamod_schedule_free(NULL);
}

TEST(multistep) {
    adamod_schedule *s = NULL;
    const int64_t milestones[] = {150, 225};
    CHECK_INT(adamod_schedule_multistep(&s, 2, milestones, 0.1), ADAMOD_OK);
    CHECK(adamod_schedule_value(s, 0.1, 1) == 0.1);
    CHECK(adamod_schedule_value(s, 0.1, 150) == 0.1); /* the last before */
    CHECK_CLOSE(adamod_schedule_value(s, 0.1, 151), 0.01, 1e-17);
    CHECK_CLOSE(adamod_schedule_value(s, 0.1, 225), 0.01, 1e-17);
    CHECK_CLOSE(adamod_schedule_value(s, 0.1, 226), 0.001, 1e-17);
    CHECK_CLOSE(adamod_schedule_value(s, 0.1, 100000), 0.001, 1e-17);
    adamod_schedule_free(s);
    CHECK_INT(adamod_schedule_multistep(&s, 0, NULL, 0.1), ADAMOD_OK);
    CHECK(adamod_schedule_value(s, 0.1, 1000) == 0.1);
    adamod_schedule_free(s);
    const int64_t first[] = {1, 2, INT64_MAX};
    CHECK_INT(adamod_schedule_multistep(&s, 3, first, 2), ADAMOD_OK); /* a factor may grow */
    CHECK(adamod_schedule_value(s, 1, 1) == 1);
    CHECK(adamod_schedule_value(s, 1, 2) == 2);
    CHECK(adamod_schedule_value(s, 1, 3) == 4);
    CHECK(adamod_schedule_value(s, 1, INT64_MAX) == 4);
    adamod_schedule_free(s);
}

TEST(warmup) {
    adamod_schedule *s = NULL;
    CHECK_INT(adamod_schedule_warmup(&s, 0, 4), ADAMOD_OK);
    const double expected[] = {0.25, 0.5, 0.75, 1, 1, 1};
    for (int t = 1; t <= 6; t++) CHECK(adamod_schedule_value(s, 1, t) == expected[t - 1]);
    CHECK(adamod_schedule_value(s, 8, 3) == 6);
    adamod_schedule_free(s);
    CHECK_INT(adamod_schedule_warmup(&s, 3, 4), ADAMOD_OK); /* downwards */
    CHECK(adamod_schedule_value(s, 1, 1) == 2.5);
    CHECK(adamod_schedule_value(s, 1, 4) == 1);
    adamod_schedule_free(s);
    CHECK_INT(adamod_schedule_warmup(&s, 0.5, 1), ADAMOD_OK); /* over before it began */
    CHECK(adamod_schedule_value(s, 1, 1) == 1);
    adamod_schedule_free(s);
}

TEST(rsqrt) {
    CHECK(value_at("constant_rsqrt(4)", 3, 1) == 3);
    CHECK(value_at("constant_rsqrt(4)", 3, 4) == 3);
    CHECK_VALUE("constant_rsqrt(4)", 3, 5, 3 * sqrt(4.0 / 5));
    CHECK(value_at("constant_rsqrt(4)", 3, 16) == 1.5);
    CHECK(value_at("constant_rsqrt(1)", 3, 1) == 3);
    CHECK(value_at("constant_rsqrt(1)", 3, 9) == 1);
    CHECK(value_at("warmup_rsqrt(0,4)", 8, 1) == 2);
    CHECK(value_at("warmup_rsqrt(0,4)", 8, 3) == 6);
    CHECK(value_at("warmup_rsqrt(0,4)", 8, 4) == 8);
    CHECK(value_at("warmup_rsqrt(0,4)", 8, 16) == 4);
    CHECK_VALUE("warmup_rsqrt(0,4)", 8, 5, 8 * sqrt(4.0 / 5));
}

/* Adam's schedule for Transformers in the paper: from 1e-7 to 5e-4 over 4000 updates, then with 1/sqrt(t). */
TEST(the_papers_warmup) {
    const char *text = "warmup_rsqrt(1e-7,4000)";
    adamod_schedule *s = NULL, *same = parsed(text);
    const double base = 5e-4;
    CHECK_INT(adamod_schedule_warmup_rsqrt(&s, 1e-7, 4000), ADAMOD_OK);
    for (int64_t t = 1; t < 30000; t += t < 10 || (t > 3990 && t < 4010) ? 1 : 97) {
        const double value = adamod_schedule_value(s, base, t);
        const double expected =
            t <= 4000 ? 1e-7 + (base - 1e-7) * (double)t / 4000 : base * sqrt(4000) / sqrt((double)t);
        CHECK_CLOSE(value, expected, 1e-15 * expected);
        CHECK(value == adamod_schedule_value(same, base, t));
    }
    CHECK(adamod_schedule_value(s, base, 4000) == base);
    CHECK_CLOSE(adamod_schedule_value(s, base, 16000), base / 2, 1e-18);
    adamod_schedule_free(s);
    adamod_schedule_free(same);
}

/* AdaMod's: constant for 4000 updates, then alpha * sqrt(4000 / t). */
TEST(the_papers_constant) {
    adamod_schedule *s = NULL, *same = parsed("constant_rsqrt(4000)");
    const double alpha = 5e-4;
    CHECK_INT(adamod_schedule_constant_rsqrt(&s, 4000), ADAMOD_OK);
    for (int64_t t = 1; t < 30000; t += t < 10 || (t > 3990 && t < 4010) ? 1 : 97) {
        const double value = adamod_schedule_value(s, alpha, t);
        const double expected = t <= 4000 ? alpha : alpha * sqrt(4000 / (double)t);
        if (t <= 4000) CHECK(value == alpha);
        CHECK_CLOSE(value, expected, 1e-15 * expected);
        CHECK(value == adamod_schedule_value(same, alpha, t));
    }
    CHECK_CLOSE(adamod_schedule_value(s, alpha, 16000), alpha / 2, 1e-18);
    adamod_schedule_free(s);
    adamod_schedule_free(same);
}

TEST(cosine) {
    adamod_schedule *s = NULL;
    CHECK_INT(adamod_schedule_cosine(&s, 0.25, 1000), ADAMOD_OK);
    for (int64_t t = 1; t < 1000; t++) {
        const double expected = 0.25 + 0.75 * (1 + cos(acos(-1) * (double)t / 1000)) / 2;
        CHECK_CLOSE(adamod_schedule_value(s, 1, t), expected, 1e-15);
    }
    CHECK_CLOSE(adamod_schedule_value(s, 1, 500), 0.625, 1e-15);
    CHECK(adamod_schedule_value(s, 1, 999) > 0.25);
    CHECK(adamod_schedule_value(s, 1, 1000) == 0.25);
    CHECK(adamod_schedule_value(s, 1, 1001) == 0.25);
    CHECK(adamod_schedule_value(s, 1, INT64_MAX) == 0.25);
    adamod_schedule_free(s);
    CHECK(value_at("cosine(0,1)", 1, 1) == 0);
}

TEST(linear) {
    adamod_schedule *s = NULL;
    CHECK_INT(adamod_schedule_linear(&s, 0.9999, 1000), ADAMOD_OK);
    CHECK_CLOSE(adamod_schedule_value(s, 0.9, 1), 0.9 + 0.0999 / 1000, 3e-16);
    CHECK_CLOSE(adamod_schedule_value(s, 0.9, 500), 0.94995, 3e-16);
    CHECK(adamod_schedule_value(s, 0.9, 999) < 0.9999);
    CHECK(adamod_schedule_value(s, 0.9, 1000) == 0.9999);
    CHECK(adamod_schedule_value(s, 0.9, 1001) == 0.9999);
    adamod_schedule_free(s);
    CHECK(value_at("linear(0,4)", 1, 1) == 0.75);
    CHECK(value_at("linear(0,4)", 1, 3) == 0.25);
    CHECK(value_at("linear(0,4)", 1, 4) == 0);
    CHECK(value_at("linear(-1,2)", 1, 2) == -1);
    CHECK(value_at("linear(5,1)", 1, 1) == 5);
}

/* ---- Chains ------------------------------------------------------------------------------------------------------- */

TEST(chains) {
    adamod_schedule *up = parsed("warmup(0,4)"), *down = parsed("linear(0,2)"), *low = parsed("multistep(1;0.5)");
    adamod_schedule *chain = NULL, *nested = NULL, *text = NULL;
    const adamod_schedule *parts[] = {up, down, low};
    const int64_t lengths[] = {4, 3, -77}; /* the last is not read */
    CHECK_INT(adamod_schedule_chain(&chain, 3, parts, lengths), ADAMOD_OK);
    adamod_schedule_free(up); /* the parts were copied */
    adamod_schedule_free(down);
    adamod_schedule_free(low);
    text = parsed("warmup(0,4)*4 > linear(0,2)*3 > multistep(1;0.5)");
    /* each part counts from 1: 1 to 4; 5 to 7 as 1 to 3; 8 and on as 1 and on */
    const double expected[] = {0.25, 0.5, 0.75, 1, 0.5, 0, 0, 1, 0.5, 0.5, 0.5};
    for (int t = 1; t <= 11; t++) {
        CHECK(adamod_schedule_value(chain, 1, t) == expected[t - 1]);
        CHECK(adamod_schedule_value(text, 1, t) == expected[t - 1]);
    }
    CHECK(adamod_schedule_value(chain, 1, INT64_MAX) == 0.5);
    /* A chain in a chain: its parts' counts are of its own updates. */
    const adamod_schedule *again[] = {chain, chain};
    const int64_t two[] = {5};
    CHECK_INT(adamod_schedule_chain(&nested, 2, again, two), ADAMOD_OK);
    adamod_schedule_free(chain);
    for (int t = 1; t <= 5; t++) CHECK(adamod_schedule_value(nested, 1, t) == expected[t - 1]);
    for (int t = 6; t <= 16; t++) CHECK(adamod_schedule_value(nested, 1, t) == expected[t - 6]);
    adamod_schedule_free(nested);
    adamod_schedule_free(text);
    /* A part that is shorter than its own steps is cut off. */
    CHECK(value_at("warmup(0,100)*2 > constant", 1, 2) == 0.02);
    CHECK(value_at("warmup(0,100)*2 > constant", 1, 3) == 1);
    /* One part, no lengths. */
    adamod_schedule *one = parsed("linear(0,4)");
    const adamod_schedule *alone[] = {one};
    CHECK_INT(adamod_schedule_chain(&chain, 1, alone, NULL), ADAMOD_OK);
    CHECK(adamod_schedule_value(chain, 1, 1) == 0.75);
    CHECK(adamod_schedule_value(chain, 1, 9) == 0);
    adamod_schedule_free(chain);
    adamod_schedule_free(one);
    CHECK_CLOSE(value_at("warmup(0,500)*500 > cosine(0,10000)", 2, 500), 2, 1e-15);
    CHECK_CLOSE(value_at("warmup(0,500)*500 > cosine(0,10000)", 2, 5500), 1, 1e-15);
    CHECK(value_at("warmup(0,500)*500 > cosine(0,10000)", 2, 10500) == 0);
}

/* ---- What is refused ---------------------------------------------------------------------------------------------- */

TEST(null_arguments) {
    adamod_schedule *s = NULL, *good = parsed("constant");
    const int64_t one[] = {1};
    const adamod_schedule *parts[] = {good, NULL};
    CHECK_INT(adamod_schedule_constant(NULL), ADAMOD_ERROR_ARGUMENT);
    CHECK_INT(adamod_schedule_multistep(NULL, 1, one, 0.1), ADAMOD_ERROR_ARGUMENT);
    CHECK_INT(adamod_schedule_multistep(&s, 1, NULL, 0.1), ADAMOD_ERROR_ARGUMENT);
    CHECK_HAS(adamod_last_error(), "multistep: milestones is NULL");
    CHECK_INT(adamod_schedule_multistep(&s, -1, one, 0.1), ADAMOD_ERROR_ARGUMENT);
    CHECK_HAS(adamod_last_error(), "multistep: n is -1, expected 0 or more");
    CHECK_INT(adamod_schedule_warmup(NULL, 0, 1), ADAMOD_ERROR_ARGUMENT);
    CHECK_INT(adamod_schedule_warmup_rsqrt(NULL, 0, 1), ADAMOD_ERROR_ARGUMENT);
    CHECK_INT(adamod_schedule_constant_rsqrt(NULL, 1), ADAMOD_ERROR_ARGUMENT);
    CHECK_INT(adamod_schedule_cosine(NULL, 0, 1), ADAMOD_ERROR_ARGUMENT);
    CHECK_INT(adamod_schedule_linear(NULL, 0, 1), ADAMOD_ERROR_ARGUMENT);
    CHECK_INT(adamod_schedule_chain(NULL, 1, parts, NULL), ADAMOD_ERROR_ARGUMENT);
    CHECK_INT(adamod_schedule_chain(&s, 0, parts, NULL), ADAMOD_ERROR_ARGUMENT);
    CHECK_INT(adamod_schedule_chain(&s, -1, parts, NULL), ADAMOD_ERROR_ARGUMENT);
    CHECK_HAS(adamod_last_error(), "chain: n is -1, expected 1 or more");
    CHECK_INT(adamod_schedule_chain(&s, 1, NULL, NULL), ADAMOD_ERROR_ARGUMENT);
    CHECK_INT(adamod_schedule_chain(&s, 2, parts, NULL), ADAMOD_ERROR_ARGUMENT);
    CHECK_INT(adamod_schedule_chain(&s, 2, parts, one), ADAMOD_ERROR_ARGUMENT);
    CHECK_HAS(adamod_last_error(), "part 2 is NULL");
    CHECK_INT(adamod_schedule_parse(NULL, "constant"), ADAMOD_ERROR_ARGUMENT);
    CHECK_INT(adamod_schedule_parse(&s, NULL), ADAMOD_ERROR_ARGUMENT);
    CHECK(s == NULL);
    adamod_schedule_free(good);
}

TEST(numbers_out_of_range) {
    adamod_schedule *s = NULL, *good = parsed("constant");
    const int64_t steps[] = {0, -1, INT64_MIN};
    for (int i = 0; i < 3; i++) {
        CHECK_INT(adamod_schedule_warmup(&s, 0, steps[i]), ADAMOD_ERROR_RANGE);
        CHECK_HAS(adamod_last_error(), "expected steps >= 1");
        CHECK_INT(adamod_schedule_warmup_rsqrt(&s, 0, steps[i]), ADAMOD_ERROR_RANGE);
        CHECK_INT(adamod_schedule_constant_rsqrt(&s, steps[i]), ADAMOD_ERROR_RANGE);
        CHECK_INT(adamod_schedule_cosine(&s, 0, steps[i]), ADAMOD_ERROR_RANGE);
        CHECK_INT(adamod_schedule_linear(&s, 0, steps[i]), ADAMOD_ERROR_RANGE);
        const adamod_schedule *parts[] = {good, good};
        CHECK_INT(adamod_schedule_chain(&s, 2, parts, &steps[i]), ADAMOD_ERROR_RANGE);
        CHECK_HAS(adamod_last_error(), "chain: length 1 is");
    }
    const double numbers[] = {NAN, INFINITY, -INFINITY};
    const int64_t one[] = {1};
    for (int i = 0; i < 3; i++) {
        CHECK_INT(adamod_schedule_warmup(&s, numbers[i], 1), ADAMOD_ERROR_RANGE);
        CHECK_HAS(adamod_last_error(), "schedule: start is ");
        CHECK_INT(adamod_schedule_warmup_rsqrt(&s, numbers[i], 1), ADAMOD_ERROR_RANGE);
        CHECK_INT(adamod_schedule_cosine(&s, numbers[i], 1), ADAMOD_ERROR_RANGE);
        CHECK_HAS(adamod_last_error(), "schedule: end is ");
        CHECK_INT(adamod_schedule_linear(&s, numbers[i], 1), ADAMOD_ERROR_RANGE);
        CHECK_INT(adamod_schedule_multistep(&s, 1, one, numbers[i]), ADAMOD_ERROR_RANGE);
        CHECK_HAS(adamod_last_error(), "schedule: factor is ");
        CHECK_HAS(adamod_last_error(), ", expected a finite number");
    }
    const int64_t milestones[][2] = {{0, 1},        {-1, 1}, {5, 5}, {5, 4}, {1, INT64_MIN}, {INT64_MAX, INT64_MAX},
                                     {INT64_MAX, 1}};
    for (size_t i = 0; i < sizeof milestones / sizeof *milestones; i++) {
        CHECK_INT(adamod_schedule_multistep(&s, 2, milestones[i], 0.1), ADAMOD_ERROR_RANGE);
        CHECK_HAS(adamod_last_error(), "expected ascending numbers from 1");
    }
    CHECK(s == NULL);
    adamod_schedule_free(good);
}

/* ---- Text --------------------------------------------------------------------------------------------------------- */

TEST(texts) {
    CHECK(value_at("constant", 3, 7) == 3);
    CHECK_VALUE("multistep(150,225;0.1)", 1, 200, 0.1);
    CHECK_VALUE("warmup(1e-7,4000)", 1, 2000, 1e-7 + (1 - 1e-7) / 2);
    CHECK_VALUE("warmup_rsqrt(1e-7,4000)", 1, 16000, 0.5);
    CHECK_VALUE("constant_rsqrt(4000)", 1, 16000, 0.5);
    CHECK_CLOSE(value_at("cosine(0,10000)", 1, 5000), 0.5, 1e-15);
    CHECK_VALUE("linear(0.9999,1000)", 0.5, 500, 0.74995);
    CHECK_VALUE("warmup(0,500)*500 > cosine(0,10000)", 1, 250, 0.5);
    /* Blanks may stand anywhere between words and numbers; numbers are written as in C. */
    CHECK(value_at("  warmup ( 0 , 4 ) * 4  >linear( 0,2 )\t\n", 1, 5) == 0.5);
    CHECK(value_at("\twarmup(\n0,\n4)", 1, 3) == 0.75);
    CHECK(value_at("warmup(+0.0,4e0)", 1, 3) == 0.75);
    CHECK(value_at("multistep(0x2,3;.5)", 1, 3) == 0.5);
    CHECK(value_at("linear(-1e0,2)", 1, 1) == 0);
    CHECK(value_at("constant*1>constant*1>constant", 2, 3) == 2);
    CHECK(value_at("linear(0,1)*1>constant", 2, 1) == 0);
    CHECK(value_at("linear(0,1)*1>constant", 2, 2) == 2);
    CHECK(value_at("constant*9000000000000000>linear(0,1)", 2, 9000000000000000) == 2);
    CHECK(value_at("constant*9000000000000000>linear(0,1)", 2, 9000000000000001) == 0);
}

/* Faults, and the character each is at. */
static const struct {
    const char *text;
    int character; /* 0: the number itself is refused, no place is given */
} malformed[] = {
    {"", 1},
    {"   ", 4},
    {"constnat", 1},
    {"Constant", 1},
    {"CONSTANT", 1},
    {"constant2", 9},
    {"constant()", 9},
    {"constant(5)", 9},
    {"constant constant", 10},
    {"constant,", 9},
    {"constant*", 10},
    {"constant*5", 11},
    {"constant*x>constant", 10},
    {"constant*5>", 12},
    {"constant*5>>constant", 12},
    {"constant*5>constant*5", 22},
    {"constant*5>constant*5>", 23},
    {"constant>constant", 9},
    {">constant", 1},
    {"*5>constant", 1},
    {"constant*1.5>constant", 13},
    {"constant*1e300>constant", 15},
    {"constant*nan>constant", 10},
    {"constant*inf>constant", 10},
    {"constant*0>constant", 0},
    {"constant*-3>constant", 0},
    {"warmup", 7},
    {"warmup(", 8},
    {"warmup()", 8},
    {"warmup(1)", 9},
    {"warmup(1,)", 10},
    {"warmup(,1)", 8},
    {"warmup(1,2", 11},
    {"warmup(1,2))", 12},
    {"warmup(1,2,3)", 11},
    {"warmup(1;2)", 9},
    {"warmup(1 2)", 10},
    {"warmup[1,2]", 7},
    {"warmup{1,2}", 7},
    {"warmup(a,2)", 8},
    {"warmup(1,b)", 10},
    {"warmup(1,2.5)", 13},
    {"warmup(nan,2)", 8},
    {"warmup(inf,2)", 8},
    {"warmup(1e999,2)", 8},
    {"warmup(1,inf)", 10},
    {"warmup(1,0)", 0},
    {"warmup(1,-4)", 0},
    {"warmup(1,1e17)", 14},
    {"warm up(1,2)", 1},
    {"warmup _rsqrt(1,2)", 8},
    {"warmup_rsqrt(4000)", 18},
    {"warmup_rsqrt(1e-7,4000", 23},
    {"constant_rsqrt", 15},
    {"constant_rsqrt()", 16},
    {"constant_rsqrt(1,2)", 17},
    {"constant_rsqrt(0.5)", 19},
    {"cosine(0)", 9},
    {"cosine(0,10", 12},
    {"linear 0.9,10", 8},
    {"linear(0.9 10)", 12},
    {"multistep()", 11},
    {"multistep(;0.1)", 11},
    {"multistep(150,225)", 18},
    {"multistep(150,225;)", 19},
    {"multistep(150,;0.1)", 15},
    {"multistep(150,225;0.1", 22},
    {"multistep(150,225;0.1,5)", 22},
    {"multistep(150,225;x)", 19},
    {"multistep(1.5;0.1)", 14},
    {"multistep(225,150;0.1)", 0},
    {"multistep(0;0.1)", 0},
    {"multistep(150;inf)", 15},
    {"chain(constant)", 1},
    {"constant\x01", 9},
    {"\xe2\x82\xac", 1},
    {"constant*5>linear(0,", 21},
    {"warmup(0,5)*5 > constant)", 25},
    {"(constant)", 1},
    {"0.1", 1},
    {"lambda t: 0.1", 1},
};

TEST(malformed_texts) {
    for (size_t i = 0; i < sizeof malformed / sizeof *malformed; i++) {
        adamod_schedule *s = NULL;
        const adamod_status status = adamod_schedule_parse(&s, malformed[i].text);
        const int place = malformed[i].character;
        char expected[64];
        snprintf(expected, sizeof expected, "at character %d", place);
        const size_t length = strlen(expected), all = strlen(adamod_last_error());
        const int says = all >= length && strcmp(adamod_last_error() + all - length, expected) == 0;
        if (!CHECK_INT(status, place ? ADAMOD_ERROR_ARGUMENT : ADAMOD_ERROR_RANGE) || !CHECK(!place || says)) {
            printf("  \"%s\", expected \"%s\": %s\n", malformed[i].text, expected, adamod_last_error());
        }
        char shown[64]; /* a message shows a control character as '?' */
        snprintf(shown, sizeof shown, "%s", malformed[i].text);
        for (char *c = shown; *c; c++) *c = *c == '\x01' ? '?' : *c;
        if (place) CHECK_HAS(adamod_last_error(), shown);
        CHECK(s == NULL);
    }
}

/* Every beginning of a good text is good or refused, and nothing is lost on the way. */
TEST(truncated_texts) {
    const char *text = "warmup(1e-7,400)*400 > multistep(150,225;0.1)*9 > cosine(0,1e4)*5 > constant_rsqrt(4000)";
    char part[128];
    for (size_t n = 0; n <= strlen(text); n++) {
        adamod_schedule *s = NULL;
        snprintf(part, sizeof part, "%.*s", (int)n, text);
        const adamod_status status = adamod_schedule_parse(&s, part);
        CHECK((status == ADAMOD_OK) == (s != NULL));
        CHECK(status == ADAMOD_OK || status == ADAMOD_ERROR_ARGUMENT || status == ADAMOD_ERROR_RANGE);
        adamod_schedule_free(s);
    }
    CHECK(value_at(text, 1, 400) == 1);
}

TEST(long_texts) {
    char text[4096] = "multistep(";
    for (int i = 1; i <= 64; i++) snprintf(text + strlen(text), 20, "%s%d", i > 1 ? "," : "", i);
    const size_t milestones = strlen(text);
    strcat(text, ";2)");
    CHECK(value_at(text, 1, 65) == ldexp(1, 64));
    strcpy(text + milestones, ",65;2)");
    adamod_schedule *s = NULL;
    CHECK_INT(adamod_schedule_parse(&s, text), ADAMOD_ERROR_ARGUMENT);
    CHECK_HAS(adamod_last_error(), "at most 64 milestones");
    text[0] = '\0';
    for (int i = 0; i < 63; i++) strcat(text, "constant*1>");
    const size_t parts = strlen(text);
    strcat(text, "linear(0,1)");
    CHECK(value_at(text, 1, 63) == 1);
    CHECK(value_at(text, 1, 64) == 0);
    strcpy(text + parts, "constant*1>constant");
    CHECK_INT(adamod_schedule_parse(&s, text), ADAMOD_ERROR_ARGUMENT);
    CHECK_HAS(adamod_last_error(), "at most 64 parts");
    /* Text may be longer than a message. */
    memset(text, 'a', sizeof text - 1);
    text[sizeof text - 1] = '\0';
    CHECK_INT(adamod_schedule_parse(&s, text), ADAMOD_ERROR_ARGUMENT);
    CHECK_HAS(adamod_last_error(), "at character 1");
    memset(text, ' ', sizeof text - 1);
    CHECK_INT(adamod_schedule_parse(&s, text), ADAMOD_ERROR_ARGUMENT);
    CHECK_HAS(adamod_last_error(), "at character 4096");
    CHECK(s == NULL);
}

/* ---- In an optimizer ---------------------------------------------------------------------------------------------- */

enum { N = 37 };
typedef struct model {
    adamod_optimizer *opt;
    float p[2][N], g[N];
} model;

static void model_make(model *m, const char *rule) {
    memset(m, 0, sizeof *m);
    if (!CHECK_INT(adamod_create(&m->opt, rule), ADAMOD_OK)) abort();
    int group = -1;
    CHECK_INT(adamod_add_group(m->opt, &group), ADAMOD_OK);
    for (int i = 0; i < N; i++) {
        m->p[0][i] = m->p[1][i] = (float)sin(i);
        m->g[i] = (float)cos(3 * i);
    }
    for (int k = 0; k < 2; k++) {
        const adamod_tensor t = {.param = m->p[k], .grad = m->g, .ndim = 1, .shape = {N}};
        CHECK_INT(adamod_add_tensor(m->opt, k, &t, NULL), ADAMOD_OK);
    }
}

/* The bytes of parameters and states, and the counts. */
static int same_model(const model *a, const model *b) {
    static const char *const names[] = {"exp_avg", "exp_avg_sq", "exp_avg_lr", "momentum_buffer"};
    int same = memcmp(a->p, b->p, sizeof a->p) == 0 && adamod_steps(a->opt) == adamod_steps(b->opt);
    for (int k = 0; k < 2; k++) {
        int64_t x = -1, y = -2;
        adamod_tensor_steps(a->opt, k, &x);
        adamod_tensor_steps(b->opt, k, &y);
        same &= x == y;
        for (int i = 0; i < 4; i++) {
            void *u = NULL, *v = NULL;
            const adamod_status s = adamod_state(a->opt, k, names[i], &u, NULL, NULL);
            const adamod_status t = adamod_state(b->opt, k, names[i], &v, NULL, NULL);
            same &= s == t && (s || memcmp(u, v, N * sizeof(float)) == 0);
        }
    }
    return same;
}

/* A schedule does what setting the option before each update does. group -1: of both. */
static void check_by_hand(const char *rule, const char *option, double base, const char *text, int group) {
    model scheduled, by_hand;
    adamod_schedule *s = parsed(text);
    double value = -7;
    model_make(&scheduled, rule);
    model_make(&by_hand, rule);
    CHECK_INT(adamod_set(scheduled.opt, option, base), ADAMOD_OK);
    CHECK_INT(adamod_set(by_hand.opt, option, base), ADAMOD_OK);
    CHECK_INT(adamod_set_schedule(scheduled.opt, group, option, s), ADAMOD_OK);
    for (int64_t t = 1; t <= 20; t++) {
        const double now = adamod_schedule_value(s, base, t);
        for (int g = 0; g < 2; g++) {
            if (group != -1 && g != group) continue;
            CHECK_INT(adamod_group_set(by_hand.opt, g, option, now), ADAMOD_OK);
        }
        for (int g = 0; g < 2; g++) {
            CHECK_INT(adamod_scheduled(scheduled.opt, g, option, &value), ADAMOD_OK);
            CHECK(value == (group == -1 || group == g ? now : base));
        }
        CHECK_INT(adamod_step(scheduled.opt), ADAMOD_OK);
        CHECK_INT(adamod_step(by_hand.opt), ADAMOD_OK);
        if (!CHECK(same_model(&scheduled, &by_hand))) printf("  %s, %s: %s\n", rule, option, text);
        CHECK_INT(adamod_get(scheduled.opt, option, &value), ADAMOD_OK);
        CHECK(value == base); /* the option itself stays as it was set */
    }
    if (group != -1) CHECK(memcmp(scheduled.p[0], scheduled.p[1], sizeof scheduled.p[0]) != 0);
    adamod_schedule_free(s);
    adamod_free(scheduled.opt);
    adamod_free(by_hand.opt);
}

TEST(schedules_do_what_hands_do) {
    static const char *const texts[] = {
        "constant_rsqrt(4)", "warmup(1e-7,7)",       "warmup_rsqrt(1e-7,7)",
        "cosine(0,15)",      "multistep(3,9;0.125)", "linear(0.5,10)*5 > warmup(0,4)*6 > constant",
    };
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        for (int group = -1; group < 2; group++) {
            check_by_hand("adamod", "lr", 0.01, texts[i], group);
            if (!strcmp(texts[i], "constant_rsqrt(4)") && group == 1) check_by_hand("sgd", "lr", 0.01, texts[i], group);
        }
    }
    for (int group = -1; group < 2; group++) {
        check_by_hand("adamod", "beta3", 0.9, "linear(0.9999,10)", group);
        check_by_hand("adamod", "beta3", 0.999, "warmup(0,10)", group);
        check_by_hand("adamod", "beta1", 0.9, "linear(0.5,10)", group);
        check_by_hand("adamod", "beta2", 0.999, "linear(0.9,10)", group);
        check_by_hand("adamod", "eps", 1e-8, "linear(1e-3,10)", group);
        check_by_hand("adamod", "clip_value", 0.5, "cosine(0.1,10)", group);
        check_by_hand("adam", "weight_decay", 0.1, "cosine(0,10)", group);
    }
}

/* Two schedules on one group, an option set meanwhile, and one taken off again. */
TEST(schedules_and_options_together) {
    model a, b;
    adamod_schedule *lr = parsed("warmup(0,8)"), *beta3 = parsed("linear(0.5,8)");
    model_make(&a, "adamod");
    model_make(&b, "adamod");
    CHECK_INT(adamod_set_schedule(a.opt, -1, "lr", lr), ADAMOD_OK);
    CHECK_INT(adamod_set_schedule(a.opt, 1, "beta3", beta3), ADAMOD_OK);
    for (int64_t t = 1; t <= 12; t++) {
        const double base = t < 5 ? 1e-3 : 5e-3;
        if (t == 5) CHECK_INT(adamod_set(a.opt, "lr", base), ADAMOD_OK); /* the new base */
        if (t == 7) CHECK_INT(adamod_set_schedule(a.opt, 1, "beta3", NULL), ADAMOD_OK);
        if (t == 10) CHECK_INT(adamod_set_schedule(a.opt, 1, "beta3", NULL), ADAMOD_OK); /* none to remove */
        CHECK_INT(adamod_set(b.opt, "lr", adamod_schedule_value(lr, base, t)), ADAMOD_OK);
        CHECK_INT(adamod_group_set(b.opt, 1, "beta3", t < 7 ? adamod_schedule_value(beta3, 0.999, t) : 0.999),
                  ADAMOD_OK);
        CHECK_INT(adamod_step(a.opt), ADAMOD_OK);
        CHECK_INT(adamod_step(b.opt), ADAMOD_OK);
        CHECK(same_model(&a, &b));
    }
    adamod_schedule_free(lr);
    adamod_schedule_free(beta3);
    adamod_free(a.opt);
    adamod_free(b.opt);
}

/* The values that the next update will use: options of every kind, with a schedule and without. */
TEST(values_of_the_next_update) {
    model m;
    double value = -7;
    adamod_schedule *s = parsed("linear(0,4)");
    model_make(&m, "adamod");
    CHECK_INT(adamod_set(m.opt, "lr", 1), ADAMOD_OK);
    CHECK_INT(adamod_set(m.opt, "threads", 1), ADAMOD_OK);
    CHECK_INT(adamod_set_schedule(m.opt, 1, "lr", s), ADAMOD_OK);
    const double expected[] = {0.75, 0.5, 0.25, 0, 0};
    for (int t = 0; t < 5; t++) {
        CHECK_INT(adamod_scheduled(m.opt, 1, "lr", &value), ADAMOD_OK);
        CHECK(value == expected[t]);
        CHECK_INT(adamod_scheduled(m.opt, 0, "lr", &value), ADAMOD_OK);
        CHECK(value == 1);
        CHECK_INT(adamod_scheduled(m.opt, 1, "beta3", &value), ADAMOD_OK);
        CHECK(value == 0.999);
        CHECK_INT(adamod_scheduled(m.opt, 1, "threads", &value), ADAMOD_OK);
        CHECK(value == 1);
        CHECK_INT(adamod_step(m.opt), ADAMOD_OK);
    }
    value = -7;
    CHECK_INT(adamod_scheduled(m.opt, 2, "lr", &value), ADAMOD_ERROR_RANGE);
    CHECK_INT(adamod_scheduled(m.opt, -1, "lr", &value), ADAMOD_ERROR_RANGE);
    CHECK_INT(adamod_scheduled(m.opt, 1, "lt", &value), ADAMOD_ERROR_NAME);
    CHECK(value == -7);
    adamod_schedule_free(s);
    adamod_free(m.opt);
}

/* A new group has the options of group 0, and its schedules; the handle has copies. */
TEST(new_groups_have_the_schedules_of_group_0) {
    adamod_optimizer *opt = NULL;
    adamod_schedule *s = parsed("linear(0,4)*2 > multistep(1;3)");
    float p[2] = {0, 0};
    const float g = 1;
    int group = -1;
    CHECK_INT(adamod_create(&opt, "sgd"), ADAMOD_OK);
    CHECK_INT(adamod_set(opt, "lr", 1), ADAMOD_OK);
    CHECK_INT(adamod_set_schedule(opt, 0, "lr", s), ADAMOD_OK);
    CHECK_INT(adamod_add_group(opt, &group), ADAMOD_OK);
    adamod_schedule_free(s);
    CHECK_INT(adamod_set_schedule(opt, 0, "lr", NULL), ADAMOD_OK);
    for (int k = 0; k < 2; k++) {
        const adamod_tensor t = {.param = &p[k], .grad = &g};
        CHECK_INT(adamod_add_tensor(opt, k, &t, NULL), ADAMOD_OK);
    }
    const float expected[] = {-0.75f, -1.25f, -2.25f, -5.25f};
    for (int t = 0; t < 4; t++) {
        CHECK_INT(adamod_step(opt), ADAMOD_OK);
        CHECK(p[0] == (float)-(t + 1));
        CHECK(p[1] == expected[t]);
    }
    adamod_free(opt);
}

/* Schedules count the optimizer's updates, also those a parameter has missed, but not those that were skipped. */
TEST(schedules_count_updates) {
    adamod_optimizer *opt = NULL;
    adamod_schedule *s = parsed("warmup(0,4)");
    float p[2] = {0, 0}, g[2] = {1, 1};
    CHECK_INT(adamod_create(&opt, "sgd"), ADAMOD_OK);
    CHECK_INT(adamod_set(opt, "lr", 4), ADAMOD_OK);
    CHECK_INT(adamod_set_schedule(opt, -1, "lr", s), ADAMOD_OK);
    CHECK_INT(adamod_set_text(opt, "nonfinite", "skip"), ADAMOD_OK);
    CHECK_INT(adamod_add(opt, "x", &p[0], &g[0], 0, NULL), ADAMOD_OK);
    CHECK_INT(adamod_add(opt, "late", &p[1], NULL, 0, NULL), ADAMOD_OK);
    CHECK_INT(adamod_step(opt), ADAMOD_OK); /* lr 1 */
    g[0] = INFINITY;
    for (int i = 0; i < 3; i++) CHECK_INT(adamod_step(opt), ADAMOD_OK); /* skipped */
    g[0] = 1;
    CHECK_INT(adamod_set_grad(opt, 1, &g[1]), ADAMOD_OK);
    CHECK_INT(adamod_step(opt), ADAMOD_OK); /* lr 2, for both */
    CHECK(p[0] == -3);
    CHECK(p[1] == -2);
    adamod_schedule_free(s);
    adamod_free(opt);
}

/* A step whose schedule leaves the bounds of its option fails, changes nothing, and goes on failing until it is dealt
 * with. */
TEST(schedules_that_leave_the_bounds) {
    static const struct {
        const char *option;
        double base;
        const char *text, *says;
        int64_t last; /* the last update that is possible */
    } cases[] = {
        {"lr", 1e-3, "linear(-1e-3,10)", "lr is -0.000", 5},
        {"beta3", 0.9, "linear(1,10)", "beta3 is 1, expected 0 <= beta3 < 1", 9},
        {"beta1", 0.5, "multistep(3;2)", "beta1 is 1, expected 0 <= beta1 < 1", 3},
        {"eps", 1e-8, "multistep(2,3,4;1e300)", "eps is 1e+292, expected eps <= 1.8e+19 in f32", 2},
        {"clip_value", 1, "linear(0,4)", "clip_value is 0, expected 0 < clip_value <= inf", 3},
        {"weight_decay", 0.1, "constant*2 > linear(-5,1)", "weight_decay is -5, expected 0 <= weight_decay < inf", 2},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        model m, twin;
        adamod_schedule *s = parsed(cases[i].text);
        model_make(&m, "adamod");
        model_make(&twin, "adamod");
        CHECK_INT(adamod_set(m.opt, cases[i].option, cases[i].base), ADAMOD_OK);
        CHECK_INT(adamod_set(twin.opt, cases[i].option, cases[i].base), ADAMOD_OK);
        CHECK_INT(adamod_set_schedule(m.opt, 1, cases[i].option, s), ADAMOD_OK);
        CHECK_INT(adamod_set_schedule(twin.opt, 1, cases[i].option, s), ADAMOD_OK);
        for (int64_t t = 1; t <= cases[i].last; t++) {
            CHECK_INT(adamod_step(m.opt), ADAMOD_OK);
            CHECK_INT(adamod_step(twin.opt), ADAMOD_OK);
        }
        for (int again = 0; again < 3; again++) {
            if (!CHECK_INT(adamod_step(m.opt), ADAMOD_ERROR_RANGE)) printf("  %s\n", cases[i].text);
            CHECK_HAS(adamod_last_error(), cases[i].says);
            CHECK(same_model(&m, &twin));
        }
        CHECK_INT(adamod_set_schedule(m.opt, 1, cases[i].option, NULL), ADAMOD_OK);
        CHECK_INT(adamod_set_schedule(twin.opt, 1, cases[i].option, NULL), ADAMOD_OK);
        CHECK_INT(adamod_step(m.opt), ADAMOD_OK);
        CHECK_INT(adamod_step(twin.opt), ADAMOD_OK);
        CHECK(same_model(&m, &twin));
        adamod_schedule_free(s);
        adamod_free(m.opt);
        adamod_free(twin.opt);
    }
}

/* Only real options of a group that do not decide states can have a schedule. */
TEST(options_that_cannot_have_a_schedule) {
    adamod_schedule *s = parsed("constant");
    int can = 0, cannot = 0;
    for (int r = 0; adamod_rule_name(r); r++) {
        adamod_optimizer *opt = NULL;
        adamod_option o;
        CHECK_INT(adamod_create(&opt, adamod_rule_name(r)), ADAMOD_OK);
        for (int i = 0; adamod_option_at(adamod_rule_name(r), i, &o) == ADAMOD_OK; i++) {
            const int allowed = o.kind == ADAMOD_REAL && !o.structural && !o.optimizer_wide;
            for (int g = -1; g < 1; g++) {
                CHECK_INT(adamod_set_schedule(opt, g, o.name, s), allowed ? ADAMOD_OK : ADAMOD_ERROR_ARGUMENT);
                if (!allowed) CHECK_HAS(adamod_last_error(), o.name);
                if (!allowed) CHECK_HAS(adamod_last_error(), "cannot have a schedule");
            }
            if (allowed) can++;
            else cannot++;
        }
        CHECK_INT(adamod_set_schedule(opt, 0, "lr", NULL), ADAMOD_OK);
        CHECK_INT(adamod_set_schedule(opt, 0, "lt", s), ADAMOD_ERROR_NAME);
        adamod_free(opt);
    }
    CHECK(can > 60 && cannot > 100);
    adamod_schedule_free(s);
}

/* As many as are allowed, with all that walks them, and no more: recursion must have an end. */
TEST(chains_within_chains) {
    adamod_schedule *s = NULL;
    adamod_optimizer *opt = NULL;
    int group;
    double value;
    CHECK_INT(adamod_schedule_cosine(&s, 0, 10), ADAMOD_OK);
    for (int i = 0; i <= ADAMOD_MAX_CHAINS; i++) {
        adamod_schedule *chain = NULL;
        const adamod_schedule *parts[2] = {s, s};
        const adamod_status status = adamod_schedule_chain(&chain, i < 3 ? 2 : 1, parts, (int64_t[]){20});
        if (i == ADAMOD_MAX_CHAINS) {
            CHECK_INT(status, ADAMOD_ERROR_RANGE);
            CHECK_HAS(adamod_last_error(), "chain: part 1 nests 64 chains deep, expected fewer than 64");
            CHECK(chain == NULL);
            break;
        }
        if (!CHECK_INT(status, ADAMOD_OK)) break;
        adamod_schedule_free(s);
        s = chain;
    }
    CHECK_CLOSE(adamod_schedule_value(s, 1, 65), 0.5, 1e-12);
    CHECK_INT(adamod_create(&opt, "sgd"), ADAMOD_OK);
    CHECK_INT(adamod_set_schedule(opt, -1, "lr", s), ADAMOD_OK);
    CHECK_INT(adamod_add_group(opt, &group), ADAMOD_OK);
    CHECK_INT(adamod_scheduled_at(opt, group, "lr", 65, &value), ADAMOD_OK);
    CHECK_CLOSE(value, 0.005, 1e-12);
    adamod_free(opt);
    adamod_schedule_free(s);
}

RUN_TESTS(ENTRY(constant), ENTRY(multistep), ENTRY(warmup), ENTRY(rsqrt), ENTRY(the_papers_warmup),
          ENTRY(the_papers_constant), ENTRY(cosine), ENTRY(linear), ENTRY(chains), ENTRY(null_arguments),
          ENTRY(numbers_out_of_range), ENTRY(texts), ENTRY(malformed_texts), ENTRY(truncated_texts), ENTRY(long_texts),
          ENTRY(schedules_do_what_hands_do), ENTRY(schedules_and_options_together), ENTRY(values_of_the_next_update),
          ENTRY(new_groups_have_the_schedules_of_group_0), ENTRY(schedules_count_updates),
          ENTRY(schedules_that_leave_the_bounds), ENTRY(chains_within_chains),
          ENTRY(options_that_cannot_have_a_schedule))
