/* Checks and the tests' main loop: see check.h. */
#include "check.h"

#include <stdlib.h>

int check_failures;
const char *check_skipped;

static void check_failed(const char *what, const char *file, int line) {
    check_failures++;
    printf("%s:%d: %s: ", file, line, what);
}

int check_true(int ok, const char *what, const char *file, int line) {
    return ok ? 1 : (check_failed(what, file, line), printf("is false\n"), 0);
}

int check_int(long long a, long long b, const char *what, const char *file, int line) {
    return a == b ? 1 : (check_failed(what, file, line), printf("%lld and %lld\n", a, b), 0);
}

int check_str(const char *a, const char *b, const char *what, const char *file, int line) {
    if (a == b || (a && b && !strcmp(a, b))) return 1;
    return check_failed(what, file, line), printf("\"%s\" and \"%s\"\n", a ? a : "(null)", b ? b : "(null)"), 0;
}

int check_has(const char *text, const char *part, const char *what, const char *file, int line) {
    if (text && part && strstr(text, part)) return 1;
    return check_failed(what, file, line), printf("\"%s\"\n", text ? text : "(null)"), 0;
}

int check_close(double a, double b, double tol, const char *what, const char *file, int line) {
    if (a == b || (a - b <= tol && b - a <= tol)) return 1;
    return check_failed(what, file, line), printf("%.17g and %.17g differ by more than %g\n", a, b, tol), 0;
}

int check_run(const check_test *tests, size_t n, const char *filter) {
    int passed = 0, failed = 0, skipped = 0;
    for (size_t i = 0; i < n; i++) {
        if (!strstr(tests[i].name, filter) || tests[i].left_out) continue;
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

const char *source_dir(void) {
    const char *named = getenv("SOURCE_DIR");
    return named ? named : SOURCE_DIR;
}

/* For programs built with a sanitizer: a request for more memory than there is fails, as it does without. */
__attribute__((visibility("default"))) const char *__asan_default_options(void);
__attribute__((visibility("default"))) const char *__tsan_default_options(void);
const char *__asan_default_options(void) { return "allocator_may_return_null=1"; }
const char *__tsan_default_options(void) { return "allocator_may_return_null=1"; }
