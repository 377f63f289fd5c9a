/* Tests of what threads of the library have to do with those of the program: signals stay the program's, and what its
 * threads have set of floating-point arithmetic changes no result.
 *
 * SPDX-License-Identifier: MIT
 */
#define _GNU_SOURCE
#include "bitwise.h"

#include <fenv.h>
#include <math.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/auxv.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
#ifdef __SSE__
#include <xmmintrin.h>
#endif

/* ---- signals ---- */

static volatile sig_atomic_t handled;
static void note(int signal) { handled = signal; }

/* A signal that this thread blocks stays pending: no worker takes it. */
TEST(workers_take_no_signals) {
    static const int signals[] = {SIGTERM, SIGINT,  SIGHUP,  SIGUSR1, SIGUSR2,
                                  SIGCHLD, SIGALRM, SIGPIPE, SIGQUIT, SIGPROF};
    enum { N = 200000 };
    static float p[N], g[N];
    adamod_optimizer *opt = NULL;
    adamod_pool *pool = NULL;
    sigset_t set, before, pending;
    sigemptyset(&set);
    CHECK_INT(adamod_create(&opt, "adamod"), ADAMOD_OK);
    CHECK_INT(adamod_set(opt, "threads", 3), ADAMOD_OK);
    CHECK_INT(adamod_add(opt, "w", p, g, 1, (int64_t[]){N}), ADAMOD_OK);
    CHECK_INT(adamod_step(opt), ADAMOD_OK);
    CHECK_INT(adamod_pool_create(&pool, 3), ADAMOD_OK);
    for (size_t i = 0; i < sizeof signals / sizeof *signals; i++) sigaddset(&set, signals[i]);
    CHECK_INT(pthread_sigmask(SIG_BLOCK, &set, &before), 0);
    for (size_t i = 0; i < sizeof signals / sizeof *signals; i++) {
        struct sigaction action = {.sa_handler = note}, old;
        int taken;
        handled = 0;
        sigaction(signals[i], &action, &old);
        kill(getpid(), signals[i]);
        usleep(2000);
        CHECK_INT(handled, 0);
        sigpending(&pending);
        if (!CHECK(sigismember(&pending, signals[i]))) continue;
        sigemptyset(&pending);
        sigaddset(&pending, signals[i]);
        sigwait(&pending, &taken);
        sigaction(signals[i], &old, NULL);
    }
    /* The mask of the thread that made them is as it was. */
    sigset_t now;
    pthread_sigmask(SIG_SETMASK, &before, &now);
    for (size_t i = 0; i < sizeof signals / sizeof *signals; i++) CHECK(sigismember(&now, signals[i]));
    CHECK(!sigismember(&now, SIGWINCH));
    adamod_free(opt);
    adamod_pool_free(pool);
}

/* ---- arithmetic ---- */

enum { MODES = 4 };
/* Sets a floating-point mode, as a thread might; 0: none. false: there is no such mode here. */
static bool set_mode(int mode) {
    fesetenv(FE_DFL_ENV);
    if (mode == 1) return fesetround(FE_UPWARD) == 0;
    if (mode == 2) return fesetround(FE_TOWARDZERO) == 0;
#ifdef __SSE__
    if (mode == 3) _mm_setcsr(_mm_getcsr() | 0x8040); /* flush to zero, and subnormal operands as zeros */
    return true;
#elif defined(__aarch64__)
    if (mode == 3) __asm__ volatile("msr fpcr, %0" : : "r"((uint64_t)1 << 24));
    return true;
#else
    return mode != 3;
#endif
}

/* Two steps; the second with the mode set, after threads, if any, were started; a third with them started under it. */
static written_bytes run_in_mode(const config *c, int mode) {
    bitwise_run r;
    written_bytes out = {0};
    if (!CHECK(bitwise_open(&r, c))) return out;
    CHECK_INT(bitwise_step(&r), ADAMOD_OK);
    if (!CHECK(set_mode(mode))) return out;
    CHECK_INT(bitwise_step(&r), ADAMOD_OK);
    const int threads = c->threads > 1 ? c->threads + 1 : 1; /* other ones */
    CHECK_INT(adamod_set(r.opt, "threads", threads), ADAMOD_OK);
    CHECK_INT(bitwise_step(&r), ADAMOD_OK);
    CHECK(threads == 1 || threads_now() < 0 || threads_now() >= threads);
    if (mode == 1) CHECK_INT(fegetround(), FE_UPWARD);
    if (mode == 2) CHECK_INT(fegetround(), FE_TOWARDZERO);
    set_mode(0);
    out = bitwise_written(&r, true);
    bitwise_close(&r);
    return out;
}

static void check_modes(const config *c) {
    written_bytes expected = run_in_mode(c, 0);
    for (int mode = 1; mode < MODES; mode++) {
        written_bytes found = run_in_mode(c, mode);
        if (!CHECK(same_bytes(&expected, &found))) printf("%s {%s}: mode %d\n", c->rule, c->options, mode);
        free(found.bytes);
    }
    free(expected.bytes);
}

TEST(modes_of_the_caller_change_no_step) {
    if (getenv("ADAMOD_TEST_EMULATED")) SKIP("qemu has not all modes");
    EACH_KERNEL(v, s) {
        const config c = config_of(v, s);
        check_modes(&c);
    }
}

/* Nor do those that the pool's threads begin with, whichever rule they work for. */
TEST(modes_of_the_caller_change_no_step_of_threads) {
    if (getenv("ADAMOD_TEST_EMULATED")) SKIP("qemu has not all modes");
    static const char *const rules[] = {"adamod", "adafactor", "muon"};
    for (int v = 0, next = 0; variant_of(v).rule && next < 3; v++) {
        if (strcmp(variant_of(v).rule, rules[next]) != 0) continue;
        config c = config_of(v, next++);
        c.n = MANY;
        c.shapes = shapes_many;
        c.threads = 2;
        check_modes(&c);
    }
}

/* All else that computes. */
typedef struct numbers {
    double norm, schedule, parsed, scheduled;
    adamod_statistics statistics;
    float p[1000], m[1000], v[1000], s[1000], scales[4], values[1000];
    uint8_t codes[1000];
} numbers;

static float first[1000], gradient[1000];

static void compute(numbers *out) {
    adamod_hyper *h;
    adamod_schedule *s;
    adamod_optimizer *opt;
    memset(out, 0, sizeof *out);
    memcpy(out->p, first, sizeof out->p);
    const adamod_span span = {
        .param = out->p, .grad = gradient, .state = {out->m, out->v, out->s}, .count = 1000, .step = 1};
    CHECK_INT(adamod_hyper_create(&h, "adamod"), ADAMOD_OK);
    CHECK_INT(adamod_hyper_set_text(h, "lr", "0.1234567890123456789"), ADAMOD_OK);
    CHECK_INT(adamod_hyper_get(h, "lr", &out->parsed), ADAMOD_OK);
    CHECK_INT(adamod_update_collect(h, &span, 1, NULL, &out->statistics), ADAMOD_OK);
    CHECK_INT(adamod_update(h, &span, 1, NULL), ADAMOD_OK);
    CHECK_INT(adamod_norm(&span, 1, NULL, &out->norm), ADAMOD_OK);
    CHECK_INT(adamod_q8_encode(0, 1000, gradient, out->codes, out->scales), ADAMOD_OK);
    CHECK_INT(adamod_q8_decode(0, 1000, out->codes, out->scales, out->values), ADAMOD_OK);
    CHECK_INT(adamod_schedule_parse(&s, "warmup(0.1,3)*7 > cosine(0.1,11)"), ADAMOD_OK);
    for (int t = 1; t < 20; t++) out->schedule += (double)(float)adamod_schedule_value(s, 0.7, t) * t;
    CHECK_INT(adamod_create(&opt, "adamod"), ADAMOD_OK);
    CHECK_INT(adamod_set_schedule(opt, -1, "lr", s), ADAMOD_OK);
    CHECK_INT(adamod_scheduled_at(opt, 0, "lr", 9, &out->scheduled), ADAMOD_OK);
    adamod_free(opt);
    adamod_schedule_free(s);
    adamod_hyper_free(h);
}

TEST(modes_of_the_caller_change_nothing_else) {
    if (getenv("ADAMOD_TEST_EMULATED")) SKIP("qemu has not all modes");
    static numbers expected, found;
    set_mode(0);
    for (int i = 0; i < 1000; i++) {
        const uint32_t bits = (uint32_t)i * 2654435761u;
        gradient[i] = ldexpf((float)(int32_t)bits, -(i % 180));
        first[i] = ldexpf((float)(int32_t)(bits * 3), -(i % 170));
    }
    compute(&expected);
    for (int mode = 1; mode < MODES; mode++) {
        set_mode(mode);
        compute(&found);
        set_mode(0);
        CHECK(found.norm == expected.norm);
        CHECK(found.parsed == expected.parsed);
        CHECK(found.scheduled == expected.scheduled);
        CHECK(memcmp(&found.statistics, &expected.statistics, sizeof found.statistics) == 0);
        CHECK(memcmp(found.p, expected.p, sizeof found.p) == 0);
        CHECK(memcmp(found.v, expected.v, sizeof found.v) == 0);
        CHECK(memcmp(found.codes, expected.codes, sizeof found.codes) == 0);
        CHECK(memcmp(found.values, expected.values, sizeof found.values) == 0);
    }
}

/* Flags of exceptions are the program's, too. */
TEST(flags_are_left_alone) {
    if (getenv("ADAMOD_TEST_EMULATED")) SKIP("qemu has not all modes");
    adamod_hyper *h;
    float p[3] = {1, 1e-40f, 3}, g[3] = {1e30f, 0.1f, INFINITY}, m[3] = {0}, v[3] = {0}, s[3] = {0};
    const adamod_span span = {.param = p, .grad = g, .state = {m, v, s}, .count = 3, .step = 1};
    CHECK_INT(adamod_hyper_create(&h, "adamod"), ADAMOD_OK);
    feclearexcept(FE_ALL_EXCEPT);
    feraiseexcept(FE_DIVBYZERO);
    CHECK_INT(adamod_update(h, &span, 1, NULL), ADAMOD_OK);
    CHECK_INT(fetestexcept(FE_ALL_EXCEPT), FE_DIVBYZERO);
    feclearexcept(FE_ALL_EXCEPT);
    adamod_hyper_free(h);
}

/* ---- the environment ---- */

/* A program with more rights than its user must not load what that user names. This program is run again, with the
 * rights of another group. */
TEST(no_library_from_the_environment_with_other_rights) {
    static const char name[] = "/nowhere/named_by_the_user.so";
    if (getauxval(AT_SECURE)) { /* run again */
        CHECK_INT(adamod_cuda_status() ? ADAMOD_ERROR_NO_CUDA : ADAMOD_OK, ADAMOD_ERROR_NO_CUDA);
        CHECK(!strstr(adamod_last_error(), name));
        return;
    }
    if (getenv("ADAMOD_TEST_EMULATED")) SKIP("what runs is another program: qemu, or a loader");
    char copy[] = "/tmp/test_threads.XXXXXX", command[200];
    const int fd = mkstemp(copy);
    close(fd);
    snprintf(command, sizeof command, "cat /proc/%d/exe > %s", (int)getpid(), copy);
    const bool ready = system(command) == 0 && chown(copy, (uid_t)-1, getgid() == 65534 ? 65533 : 65534) == 0 &&
                       chmod(copy, 02755) == 0;
    pid_t child = ready ? fork() : -1;
    if (child == 0) {
        setenv("ADAMOD_CUDA_LIBRARY", name, 1);
        execl(copy, copy, "no_library_from_the_environment_with_other_rights", (char *)NULL);
        _exit(127);
    }
    int status = 0;
    const bool ran = child > 0 && waitpid(child, &status, 0) == child;
    unlink(copy);
    if (!ran) SKIP("no right to give a file to another group");
    CHECK_INT(status, 0);
}

RUN_TESTS(ENTRY(workers_take_no_signals), ENTRY_OF_ONE_THREAD(modes_of_the_caller_change_no_step),
          ENTRY(modes_of_the_caller_change_no_step_of_threads), ENTRY(modes_of_the_caller_change_nothing_else),
          ENTRY(flags_are_left_alone), ENTRY(no_library_from_the_environment_with_other_rights))
