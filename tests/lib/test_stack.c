/* Tests that no call of the library takes more stack than the header says: 32 KB, on any thread, whatever libc needs
 * within it included. Each runs on a thread whose stack was painted, and looks how deep the paint is gone.
 *
 * SPDX-License-Identifier: MIT
 */
#include "check.h"
#include "option_sets.h"
#include "scratch.h"
#include "values.h"

#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>

enum { STACK = 1 << 20, PAINT = 0xa7, MOST = 32 * 1024 };

typedef struct call {
    void (*run)(void *argument);
    void *argument;
    char *top; /* of what the call itself uses */
} call;

static void *call_main(void *argument) {
    call *c = argument;
    char here;
    c->top = &here;
    c->run(c->argument);
    return NULL;
}

/* Bytes of stack that run(argument) took. */
static size_t depth_of(void (*run)(void *), void *argument) {
    pthread_attr_t attributes;
    pthread_t thread;
    call c = {run, argument, NULL};
    char *stack = mmap(NULL, STACK, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (!CHECK(stack != MAP_FAILED)) return SIZE_MAX;
    memset(stack, PAINT, STACK);
    CHECK_INT(pthread_attr_init(&attributes), 0);
    CHECK_INT(pthread_attr_setstack(&attributes, stack, STACK), 0);
    if (!CHECK_INT(pthread_create(&thread, &attributes, call_main, &c), 0)) return SIZE_MAX;
    pthread_join(thread, NULL);
    pthread_attr_destroy(&attributes);
    size_t kept = 0;
    while (kept < STACK && (unsigned char)stack[kept] == PAINT) kept++;
    const size_t depth = (size_t)(c.top - stack) - kept;
    munmap(stack, STACK);
    return depth;
}

static void check_depth(const char *what, void (*run)(void *), void *argument) {
    const size_t depth = depth_of(run, argument);
    if (!CHECK(depth <= MOST)) fprintf(stderr, "%s takes %zu bytes of stack\n", what, depth);
    if (getenv("ADAMOD_TEST_VERBOSE")) printf("%s: %zu\n", what, depth);
}

/* ---- a life of an optimizer ---- */

enum { ROWS = 60, COLUMNS = 50, N = ROWS * COLUMNS, TYPES = 4 };
static const adamod_type types[TYPES] = {ADAMOD_F32, ADAMOD_F64, ADAMOD_BF16, ADAMOD_F16};
static double params[TYPES][N], grads[TYPES][N];
static int failures; /* checks are for the main thread */

static void want(adamod_status got, adamod_status expected) { failures += got != expected; }

static void live(void *argument) {
    const option_set *set = argument;
    adamod_optimizer *opt;
    adamod_statistics *statistics = malloc(sizeof *statistics);
    int64_t shape[2] = {ROWS, COLUMNS};
    size_t states, other;
    want(adamod_create(&opt, set->rule), ADAMOD_OK);
    apply(set->options, NULL, opt, -1, NULL);
    want(adamod_set(opt, "clip_norm", 1), ADAMOD_OK);
    want(adamod_set_text(opt, "nonfinite", "skip"), ADAMOD_OK);
    want(adamod_set(opt, "threads", 2), ADAMOD_OK);
    for (int i = 0; i < TYPES; i++) {
        const adamod_tensor t = {.param = params[i],
                                 .grad = grads[i],
                                 .param_type = types[i],
                                 .grad_type = types[TYPES - 1 - i],
                                 .ndim = 2,
                                 .shape = {shape[0], shape[1]}};
        want(adamod_add_tensor(opt, 0, &t, NULL), ADAMOD_OK);
        want(adamod_add_tensor(opt, 0, &t, NULL), ADAMOD_ERROR_ARGUMENT);
    }
    for (int collect = 0; collect < 2; collect++) {
        want(adamod_collect(opt, collect), ADAMOD_OK);
        want(adamod_step(opt), ADAMOD_OK);
    }
    want(adamod_get_statistics(opt, -1, statistics), ADAMOD_OK);
    want(adamod_save(opt, "state"), ADAMOD_OK);
    want(adamod_load(opt, "state"), ADAMOD_OK);
    want(adamod_load(opt, "/nonexistent"), ADAMOD_ERROR_IO);
    want(adamod_set_param(opt, 0, params[1]), ADAMOD_ERROR_ARGUMENT);
    adamod_memory(opt, &states, &other);
    adamod_free(opt);
    free(statistics);
}

TEST(optimizers) {
#ifdef SANITIZED
    SKIP("sanitizers take stack of their own");
#endif
    option_set set;
    const char *before = getenv("ADAMOD_ISA");
    char *kept = before ? strdup(before) : NULL;
    enter_scratch(true);
    for (int i = 0; set_at(i / 4, &set); i++) {
        const char *isa = adamod_isa_name(i % 4);
        char what[200];
        if (!isa || (fast() && (i / 4 + i % 4) % 2)) continue;
        setenv("ADAMOD_ISA", isa, 1);
        snprintf(what, sizeof what, "%s %s, %s", set.rule, set.options, isa);
        failures = 0;
        check_depth(what, live, &set);
        if (!CHECK_INT(failures, 0)) fprintf(stderr, "%s: a call did not give what was expected\n", what);
    }
    if (kept) setenv("ADAMOD_ISA", kept, 1);
    else unsetenv("ADAMOD_ISA");
    free(kept);
}

/* ---- all else ---- */

static void raw_calls(void *argument) {
    (void)argument;
    enum { SPANS = 16 };
    static float p[SPANS][100], g[SPANS][100], m[SPANS][100], v[SPANS][100], s[SPANS][100];
    static float scales[1], values[100];
    static uint8_t codes[100];
    static adamod_span spans[SPANS];
    adamod_statistics *statistics = malloc(sizeof *statistics);
    adamod_hyper *h;
    adamod_pool *pool;
    double norm;
    want(adamod_hyper_create(&h, "adamod"), ADAMOD_OK);
    want(adamod_pool_create(&pool, 3), ADAMOD_OK);
    for (int i = 0; i < SPANS; i++) {
        spans[i] = (adamod_span){.param = p[i], .grad = g[i], .state = {m[i], v[i], s[i]}, .count = 100, .step = 1};
    }
    want(adamod_update(h, spans, SPANS, NULL), ADAMOD_OK);
    want(adamod_update(h, spans, SPANS, pool), ADAMOD_OK);
    want(adamod_update_collect(h, spans, SPANS, pool, statistics), ADAMOD_OK);
    want(adamod_norm(spans, SPANS, pool, &norm), ADAMOD_OK);
    spans[SPANS - 1].param = p[0];
    want(adamod_update_collect(h, spans, SPANS, pool, statistics), ADAMOD_ERROR_ARGUMENT);
    want(adamod_q8_encode(0, 100, values, codes, scales), ADAMOD_OK);
    want(adamod_q8_decode(0, 100, codes, scales, values), ADAMOD_OK);
    adamod_pool_free(pool);
    adamod_hyper_free(h);
    free(statistics);
}

static void device_calls(void *argument) {
    (void)argument;
    adamod_optimizer *opt;
    adamod_cuda_device *device = malloc(sizeof *device);
    want(adamod_create_on(&opt, "adamod", "cuda:2000"), ADAMOD_ERROR_NAME);
    want(adamod_cuda_device_at(0, device), ADAMOD_ERROR_NO_CUDA);
    free(device);
}

TEST(raw) {
#ifdef SANITIZED
    SKIP("sanitizers take stack of their own");
#endif
    failures = 0;
    check_depth("raw calls", raw_calls, NULL);
    CHECK_INT(failures, 0);
}

TEST(looking_for_the_device) {
#ifdef SANITIZED
    SKIP("sanitizers take stack of their own");
#endif
    failures = 0;
    setenv("ADAMOD_CUDA_LIBRARY", "/nonexistent/libadamod_cuda.so.0", 1);
    check_depth("looking for the device's library", device_calls, NULL);
    CHECK_INT(failures, 0);
}

RUN_TESTS(ENTRY(optimizers), ENTRY(raw), ENTRY(looking_for_the_device))
