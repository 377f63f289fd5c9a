/* core/error.h: the thread's message, context before it, and failures kept for later. */
#include "check.h"

#include "core/error.h"

#include <pthread.h>
#include <string.h>

TEST(context_comes_first_and_the_status_stays) {
    CHECK_INT(adamod__fail(ADAMOD_ERROR_IO, "%s: no such file", "a.yaml"), ADAMOD_ERROR_IO);
    CHECK_INT(adamod__context("line %d: ", 4), ADAMOD_ERROR_IO);
    CHECK_STR(adamod__last_message(), "line 4: a.yaml: no such file");
    CHECK_STR(adamod_last_error(), "adamod: line 4: a.yaml: no such file");
    CHECK_INT(adamod__context("in all: "), ADAMOD_ERROR_IO);
    CHECK_STR(adamod__last_message(), "in all: line 4: a.yaml: no such file");
}

TEST(a_message_may_hold_the_one_before_it) {
    adamod__refuse("first");
    CHECK_INT(adamod__refuse("second, after %s", adamod__last_message()), ADAMOD_ERROR_ARGUMENT);
    CHECK_STR(adamod__last_message(), "second, after first");
}

static void *fail_elsewhere(void *out) {
    adamod__fail(ADAMOD_ERROR_MEMORY, "out of memory in a thread");
    adamod__save_failure(out);
    return NULL;
}

TEST(a_failure_crosses_threads_and_outlives_others) {
    adamod__failure kept = {ADAMOD_OK, ""};
    adamod__refuse("here");
    pthread_t thread;
    if (!CHECK_INT(pthread_create(&thread, NULL, fail_elsewhere, &kept), 0)) return;
    pthread_join(thread, NULL);
    CHECK_STR(adamod__last_message(), "here"); /* each thread has its own */
    CHECK_INT(kept.status, ADAMOD_ERROR_MEMORY);
    adamod__refuse("another");
    CHECK_INT(adamod__fail_again(&kept), ADAMOD_ERROR_MEMORY);
    CHECK_STR(adamod__last_message(), "out of memory in a thread");
    CHECK_INT(adamod__context("reading: "), ADAMOD_ERROR_MEMORY);
    CHECK_STR(adamod__last_message(), "reading: out of memory in a thread");
}

TEST(a_long_message_keeps_both_ends) {
    char path[4000];
    memset(path, 'x', sizeof path - 1);
    path[sizeof path - 1] = '\0';
    adamod__refuse("begin %s end", path);
    const char *line = adamod_last_error();
    CHECK_INT(strlen(line) < ADAMOD__MESSAGE, 1);
    CHECK(strncmp(adamod__last_message(), "begin xxx", 9) == 0);
    CHECK_STR(line + strlen(line) - 6, "xx end");
}

RUN_TESTS(ENTRY(context_comes_first_and_the_status_stays), ENTRY(a_message_may_hold_the_one_before_it),
          ENTRY(a_failure_crosses_threads_and_outlives_others), ENTRY(a_long_message_keeps_both_ends))
