/* check.h - a test program with nothing but libc, so that tests cross-compile.
 *
 *     TEST(adds) { CHECK_INT(1 + 1, 2); }
 *     RUN_TESTS(ENTRY(adds), ENTRY(another))
 *
 * The program runs every test, or those whose name contains its argument, and fails if any check failed or no test ran;
 * if all were skipped, its exit status is 77.
 * A failed check is counted and the test goes on; every CHECK is 1 if it held, so "if (!CHECK(p)) return;" stops early.
 * Checks are for the main thread, in whichever file of the program.
 *
 * SPDX-License-Identifier: MIT
 */
#ifndef CHECK_H
#define CHECK_H

#include <stdio.h>
#include <string.h>

/* Built with a sanitizer, which has a malloc and frames of its own. */
#if defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer) || __has_feature(memory_sanitizer)
#define SANITIZED
#endif
#endif
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define SANITIZED
#endif

/* By the thread sanitizer. */
#if defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define THREAD_SANITIZED 1
#endif
#endif
#ifdef __SANITIZE_THREAD__
#define THREAD_SANITIZED 1
#endif
#ifndef THREAD_SANITIZED
#define THREAD_SANITIZED 0
#endif

#define TEST(name) static void test_##name(void)
#define ENTRY(name)                                                                                                    \
    { #name, test_##name, 0 }
/* A long test of one thread: the thread sanitizer would find nothing in it, and is not asked. */
#define ENTRY_OF_ONE_THREAD(name)                                                                                      \
    { #name, test_##name, THREAD_SANITIZED }
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
    int left_out;
} check_test;

extern int check_failures; /* of the test that runs */
extern const char *check_skipped;

int check_true(int ok, const char *what, const char *file, int line);
int check_int(long long a, long long b, const char *what, const char *file, int line);
int check_str(const char *a, const char *b, const char *what, const char *file, int line);
int check_has(const char *text, const char *part, const char *what, const char *file, int line);
int check_close(double a, double b, double tol, const char *what, const char *file, int line);
int check_run(const check_test *tests, size_t n, const char *filter);

/* The root of the source tree: SOURCE_DIR of the environment, else the one that the test was built from. */
const char *source_dir(void);

#endif
