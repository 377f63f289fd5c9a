/* The number words: examples checked by hand, and every number read back by a parser that shares nothing with the code.
 *
 * SPDX-License-Identifier: MIT
 */
#include "check.h"
#include "values.h"

#include "data/number_words.h"

#include <limits.h>
#include <stddef.h>

static const struct {
    int n;
    const char *german, *english;
} examples[] = {
    {0, "null", "zero"},
    {1, "eins", "one"},
    {2, "zwei", "two"},
    {6, "sechs", "six"},
    {7, "sieben", "seven"},
    {10, "zehn", "ten"},
    {11, "elf", "eleven"},
    {12, "zwölf", "twelve"},
    {13, "dreizehn", "thirteen"},
    {15, "fünfzehn", "fifteen"},
    {16, "sechzehn", "sixteen"},
    {17, "siebzehn", "seventeen"},
    {18, "achtzehn", "eighteen"},
    {19, "neunzehn", "nineteen"},
    {20, "zwanzig", "twenty"},
    {21, "einundzwanzig", "twenty-one"},
    {30, "dreißig", "thirty"},
    {32, "zweiunddreißig", "thirty-two"},
    {40, "vierzig", "forty"},
    {55, "fünfundfünfzig", "fifty-five"},
    {60, "sechzig", "sixty"},
    {66, "sechsundsechzig", "sixty-six"},
    {70, "siebzig", "seventy"},
    {77, "siebenundsiebzig", "seventy-seven"},
    {80, "achtzig", "eighty"},
    {99, "neunundneunzig", "ninety-nine"},
    {100, "einhundert", "one hundred"},
    {101, "einhunderteins", "one hundred and one"},
    {110, "einhundertzehn", "one hundred and ten"},
    {117, "einhundertsiebzehn", "one hundred and seventeen"},
    {121, "einhunderteinundzwanzig", "one hundred and twenty-one"},
    {200, "zweihundert", "two hundred"},
    {345, "dreihundertfünfundvierzig", "three hundred and forty-five"},
    {999, "neunhundertneunundneunzig", "nine hundred and ninety-nine"},
    {1000, "eintausend", "one thousand"},
    {1001, "eintausendeins", "one thousand and one"},
    {1005, "eintausendfünf", "one thousand and five"},
    {1021, "eintausendeinundzwanzig", "one thousand and twenty-one"},
    {1100, "eintausendeinhundert", "one thousand one hundred"},
    {1111, "eintausendeinhundertelf", "one thousand one hundred and eleven"},
    {2000, "zweitausend", "two thousand"},
    {10000, "zehntausend", "ten thousand"},
    {16017, "sechzehntausendsiebzehn", "sixteen thousand and seventeen"},
    {21000, "einundzwanzigtausend", "twenty-one thousand"},
    {31131, "einunddreißigtausendeinhunderteinunddreißig", "thirty-one thousand one hundred and thirty-one"},
    {100000, "einhunderttausend", "one hundred thousand"},
    {100001, "einhunderttausendeins", "one hundred thousand and one"},
    {101000, "einhunderteintausend", "one hundred and one thousand"},
    {101101, "einhunderteintausendeinhunderteins", "one hundred and one thousand one hundred and one"},
    {123456, "einhundertdreiundzwanzigtausendvierhundertsechsundfünfzig",
     "one hundred and twenty-three thousand four hundred and fifty-six"},
    {221311, "zweihunderteinundzwanzigtausenddreihundertelf",
     "two hundred and twenty-one thousand three hundred and eleven"},
    {700070, "siebenhunderttausendsiebzig", "seven hundred thousand and seventy"},
    {777777, "siebenhundertsiebenundsiebzigtausendsiebenhundertsiebenundsiebzig",
     "seven hundred and seventy-seven thousand seven hundred and seventy-seven"},
    {999999, "neunhundertneunundneunzigtausendneunhundertneunundneunzig",
     "nine hundred and ninety-nine thousand nine hundred and ninety-nine"},
};

TEST(examples_are_spelt_as_a_reader_expects) {
    char out[NUMBERS_SIZE];
    for (size_t i = 0; i < sizeof examples / sizeof examples[0]; i++) {
        CHECK_INT(numbers_german(examples[i].n, out, sizeof out), strlen(examples[i].german));
        CHECK_STR(out, examples[i].german);
        CHECK_INT(numbers_english(examples[i].n, out, sizeof out), strlen(examples[i].english));
        CHECK_STR(out, examples[i].english);
    }
}

/* ---- Reading back. Strict: what is not exactly the spelling is -1. ---- */

typedef struct entry {
    const char *word;
    int value;
} entry;

static const entry german_digits[] = {{"ein", 1},   {"zwei", 2},   {"drei", 3}, {"vier", 4}, {"fünf", 5},
                                      {"sechs", 6}, {"sieben", 7}, {"acht", 8}, {"neun", 9}, {NULL, 0}};
static const entry german_teens[] = {{"zehn", 10},     {"elf", 11},      {"zwölf", 12},    {"dreizehn", 13},
                                     {"vierzehn", 14}, {"fünfzehn", 15}, {"sechzehn", 16}, {"siebzehn", 17},
                                     {"achtzehn", 18}, {"neunzehn", 19}, {NULL, 0}};
static const entry german_tens[] = {{"zwanzig", 20}, {"dreißig", 30}, {"vierzig", 40}, {"fünfzig", 50}, {"sechzig", 60},
                                    {"siebzig", 70}, {"achtzig", 80}, {"neunzig", 90}, {NULL, 0}};
static const entry english_units[] = {{"one", 1},        {"two", 2},       {"three", 3},     {"four", 4},
                                      {"five", 5},       {"six", 6},       {"seven", 7},     {"eight", 8},
                                      {"nine", 9},       {"ten", 10},      {"eleven", 11},   {"twelve", 12},
                                      {"thirteen", 13},  {"fourteen", 14}, {"fifteen", 15},  {"sixteen", 16},
                                      {"seventeen", 17}, {"eighteen", 18}, {"nineteen", 19}, {NULL, 0}};
static const entry english_tens[] = {{"twenty", 20},  {"thirty", 30}, {"forty", 40},  {"fifty", 50}, {"sixty", 60},
                                     {"seventy", 70}, {"eighty", 80}, {"ninety", 90}, {NULL, 0}};

static int look_up(const entry *list, const char *s, size_t n) {
    for (; list->word; list++)
        if (strlen(list->word) == n && !memcmp(list->word, s, n)) return list->value;
    return -1;
}

static const char *find(const char *s, size_t n, const char *part) {
    size_t m = strlen(part);
    for (size_t i = 0; i + m <= n; i++)
        if (!memcmp(s + i, part, m)) return s + i;
    return NULL;
}

/* 1 to 99; at_end: the 1 of a bare unit is "eins". */
static int german_pair(const char *s, size_t n, int at_end) {
    if (n == 4 && !memcmp(s, "eins", 4)) return at_end ? 1 : -1;
    int value = look_up(german_digits, s, n);
    if (value == 1 && at_end) return -1;
    if (value < 0) value = look_up(german_teens, s, n);
    if (value < 0) value = look_up(german_tens, s, n);
    const char *und = value < 0 ? find(s, n, "und") : NULL;
    if (!und) return value;
    int digit = look_up(german_digits, s, (size_t)(und - s));
    int ten = look_up(german_tens, und + 3, n - 3 - (size_t)(und - s));
    return digit < 0 || ten < 0 ? -1 : ten + digit;
}

/* 1 to 999 */
static int german_group(const char *s, size_t n, int at_end) {
    const char *hundert = find(s, n, "hundert");
    if (!hundert) return german_pair(s, n, at_end);
    int digit = look_up(german_digits, s, (size_t)(hundert - s));
    size_t used = (size_t)(hundert - s) + 7;
    int rest = used == n ? 0 : german_pair(s + used, n - used, at_end);
    return digit < 0 || rest < 0 ? -1 : digit * 100 + rest;
}

static int read_german(const char *s) {
    size_t n = strlen(s);
    if (!strcmp(s, "null")) return 0;
    const char *tausend = find(s, n, "tausend");
    if (!tausend) return german_group(s, n, 1);
    int high = german_group(s, (size_t)(tausend - s), 0);
    size_t used = (size_t)(tausend - s) + 7;
    int low = used == n ? 0 : german_group(s + used, n - used, 1);
    return high < 0 || low < 0 ? -1 : high * 1000 + low;
}

static int english_pair(const char *s, size_t n) {
    int value = look_up(english_units, s, n);
    if (value < 0) value = look_up(english_tens, s, n);
    const char *hyphen = value < 0 ? find(s, n, "-") : NULL;
    if (!hyphen) return value;
    int ten = look_up(english_tens, s, (size_t)(hyphen - s));
    int unit = look_up(english_units, hyphen + 1, n - 1 - (size_t)(hyphen - s));
    return ten < 0 || unit < 1 || unit > 9 ? -1 : ten + unit;
}

/* A number below a hundred after "hundred" or "thousand": " and " and the pair. */
static int english_and(const char *s, size_t n) {
    return n > 5 && !memcmp(s, " and ", 5) ? english_pair(s + 5, n - 5) : -1;
}

static int english_group(const char *s, size_t n) {
    const char *hundred = find(s, n, " hundred");
    if (!hundred) return english_pair(s, n);
    int digit = look_up(english_units, s, (size_t)(hundred - s));
    size_t used = (size_t)(hundred - s) + 8;
    int rest = used == n ? 0 : english_and(s + used, n - used);
    return digit < 1 || digit > 9 || rest < 0 ? -1 : digit * 100 + rest;
}

static int read_english(const char *s) {
    size_t n = strlen(s);
    if (!strcmp(s, "zero")) return 0;
    const char *thousand = find(s, n, " thousand");
    if (!thousand) return english_group(s, n);
    int high = english_group(s, (size_t)(thousand - s));
    size_t used = (size_t)(thousand - s) + 9;
    int low = 0;
    if (used < n && find(s + used, n - used, "hundred"))
        low = s[used] == ' ' ? english_group(s + used + 1, n - used - 1) : -1;
    else if (used < n) low = english_and(s + used, n - used);
    return high < 0 || low < 0 ? -1 : high * 1000 + low;
}

TEST(every_number_reads_back) {
    char out[NUMBERS_SIZE];
    int longest = 0;
    for (int n = 0; n < NUMBERS_LIMIT; n += fast() ? 7 : 1) {
        int german = numbers_german(n, out, sizeof out);
        if (!CHECK_INT(german, strlen(out)) || !CHECK_INT(read_german(out), n)) return;
        int english = numbers_english(n, out, sizeof out);
        if (!CHECK_INT(english, strlen(out)) || !CHECK_INT(read_english(out), n)) return;
        if (german > longest) longest = german;
        if (english > longest) longest = english;
    }
    CHECK(longest < NUMBERS_SIZE);
}

TEST(the_parser_of_this_test_is_strict) {
    static const char *const german[] = {"",           "ein",         "hundert",     "tausend",       "einsundzwanzig",
                                         "einzwanzig", "nulltausend", "einstausend", "einhundertein", "zehnhundert",
                                         "sechszehn",  "siebenzehn",  "dreissig",    "einhundertund", "einundzehn"};
    static const char *const english[] = {"",
                                          "and",
                                          "hundred",
                                          "one hundred one",
                                          "and one",
                                          "one thousand five",
                                          "twenty one",
                                          "twenty-ten",
                                          "fourty",
                                          "ten hundred",
                                          "one thousand and one hundred",
                                          "twenty-"};
    for (size_t i = 0; i < sizeof german / sizeof german[0]; i++) CHECK_INT(read_german(german[i]), -1);
    for (size_t i = 0; i < sizeof english / sizeof english[0]; i++) CHECK_INT(read_english(english[i]), -1);
}

TEST(numbers_outside_and_small_buffers_are_refused) {
    char out[NUMBERS_SIZE];
    static const int outside[] = {-1, NUMBERS_LIMIT, INT_MIN, INT_MAX};
    for (size_t i = 0; i < 4; i++) {
        CHECK_INT(numbers_german(outside[i], out, sizeof out), -1);
        CHECK_INT(numbers_english(outside[i], out, sizeof out), -1);
    }
    for (size_t size = 0; size < NUMBERS_SIZE; size++) {
        memset(out, '#', sizeof out);
        CHECK_INT(numbers_german(221311, out, size), size > 45 ? 45 : -1);
        CHECK(out[size] == '#');
        CHECK_INT(numbers_english(1005, out, size), size > 21 ? 21 : -1);
        CHECK(out[size] == '#');
    }
    CHECK_INT(numbers_german(7, NULL, 0), -1);
}

RUN_TESTS(ENTRY(examples_are_spelt_as_a_reader_expects), ENTRY(every_number_reads_back),
          ENTRY(the_parser_of_this_test_is_strict), ENTRY(numbers_outside_and_small_buffers_are_refused))
