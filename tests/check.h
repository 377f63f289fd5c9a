/* check.h - a test program in one header, so that tests cross-compile with nothing but libc.
 *
 *     TEST(adds) { CHECK_INT(1 + 1, 2); }
 *     RUN_TESTS(ENTRY(adds), ENTRY(another))
 *
 * The program runs every test, or those whose name contains its argument, and fails if any check failed or no test ran;
 * if all were skipped, its exit status is 77.
 * A failed check is counted and the test goes on; every CHECK is 1 if it held, so "if (!CHECK(p)) return;" stops early.
 * Checks are for the main thread. Include it in one file of each program.
 *
 * SPDX-License-Identifier: MIT
 */
#ifndef CHECK_H
#define CHECK_H

#include <stdio.h>
#include <string.h>

#define TEST(name) static void test_##name(void)
#define ENTRY(name)                                                                                                    \
    { #name, test_##name }
#define RUN_TESTS(...)                                                                                                 \
    int main(int argc, char **argv) {                                                                                  \
        static const check_test tests[] = {__VA_ARGS__};                                                               \
        return check_run(tests, sizeof tests / sizeof tests[0], argc > 1 ? argv[1] : "");                              \
    }

#define CHECK(cond) check_true((cond) ? 1 : 0, #cond, __FILE__, __LINE__)
#define CHECK_INT(a, b) check_int((long long)(a), (long long)(b), #a " == " #b, __FILE__, __LINE__)
#define CHECK_STR(a, b) check_str(a, b, #a " == " #b, __FILE__, __LINE__)
#define CHECK_HAS(text, part) check_has(text, part, #text " has " #part, __FILE__, __LINE__)
/* |a - b| <= tol. Equal infinities are close; a NaN is close to nothing. */
#define CHECK_CLOSE(a, b, tol) check_close((double)(a), (double)(b), (double)(tol), #a " ~ " #b, __FILE__, __LINE__)
/* Leaves the test, which then counts as neither passed nor failed (unless a check failed before). */
#define SKIP(why)                                                                                                      \
    do {                                                                                                               \
        check_skipped = (why);                                                                                         \
        return;                                                                                                        \
    } while (0)

typedef struct check_test {
    const char *name;
    void (*run)(void);
} check_test;

static int check_failures;
static const char *check_skipped;

static inline void check_failed(const char *what, const char *file, int line) {
    check_failures++;
    printf("%s:%d: %s: ", file, line, what);
}

static inline int check_true(int ok, const char *what, const char *file, int line) {
    return ok ? 1 : (check_failed(what, file, line), printf("is false\n"), 0);
}

static inline int check_int(long long a, long long b, const char *what, const char *file, int line) {
    return a == b ? 1 : (check_failed(what, file, line), printf("%lld and %lld\n", a, b), 0);
}

static inline int check_str(const char *a, const char *b, const char *what, const char *file, int line) {
    if (a == b || (a && b && !strcmp(a, b))) return 1;
    return check_failed(what, file, line), printf("\"%s\" and \"%s\"\n", a ? a : "(null)", b ? b : "(null)"), 0;
}

static inline int check_has(const char *text, const char *part, const char *what, const char *file, int line) {
    if (text && part && strstr(text, part)) return 1;
    return check_failed(what, file, line), printf("\"%s\"\n", text ? text : "(null)"), 0;
}

static inline int check_close(double a, double b, double tol, const char *what, const char *file, int line) {
    if (a == b || (a - b <= tol && b - a <= tol)) return 1;
    return check_failed(what, file, line), printf("%.17g and %.17g differ by more than %g\n", a, b, tol), 0;
}

static inline int check_run(const check_test *tests, size_t n, const char *filter) {
    int passed = 0, failed = 0, skipped = 0;
    for (size_t i = 0; i < n; i++) {
        if (!strstr(tests[i].name, filter)) continue;
        check_failures = 0;
        check_skipped = NULL;
        tests[i].run();
        if (check_failures) failed++, printf("FAIL %s\n", tests[i].name);
        else if (check_skipped) skipped++, printf("skip %s (%s)\n", tests[i].name, check_skipped);
        else passed++, printf("ok %s\n", tests[i].name);
        fflush(stdout); /* so that a crash in the next test does not take this line with it */
    }
    printf("%d passed, %d failed", passed, failed);
    if (skipped) printf(", %d skipped", skipped);
    printf("\n");
    if (skipped && !passed && !failed) return 77;
    return failed || !passed;
}

#endif
