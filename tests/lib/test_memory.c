/* Tests of the memory that the library takes: how much, from an allocator of the user's, and that any allocation may
 * fail: the call then has changed nothing, and nothing is left behind.
 *
 * SPDX-License-Identifier: MIT
 */
#include "counting_allocator.h"
#include "scratch.h"
#include "values.h"
#include "api_fixture.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>

/* ---- malloc that fails --------------------------------------------------------------------------------------------
 *
 * It obeys the countdown of counting_allocator.h, as that allocator does everywhere, where it can be replaced: with glibc
 * and without sanitizers. */

static atomic_long live_blocks; /* from malloc; 0 where it is not replaced */

#if defined(__GLIBC__) && !defined(SANITIZED)
#define MALLOC_CAN_FAIL 1
#define EXPORTED __attribute__((visibility("default"))) /* for calls from within libc */
extern void *__libc_malloc(size_t size);
extern void *__libc_calloc(size_t n, size_t size);
extern void *__libc_realloc(void *p, size_t size);
extern void *__libc_memalign(size_t alignment, size_t size);
extern void __libc_free(void *p);

static void *counted(void *p) {
    if (p) atomic_fetch_add(&live_blocks, 1);
    return p;
}

static void *failed(void) {
    errno = ENOMEM;
    return NULL;
}

EXPORTED void *malloc(size_t size) { return fails_now() ? failed() : counted(__libc_malloc(size)); }
EXPORTED void *calloc(size_t n, size_t size) { return fails_now() ? failed() : counted(__libc_calloc(n, size)); }
EXPORTED void *aligned_alloc(size_t alignment, size_t size) {
    return fails_now() ? failed() : counted(__libc_memalign(alignment, size));
}
EXPORTED int posix_memalign(void **out, size_t alignment, size_t size) {
    void *p = fails_now() ? NULL : counted(__libc_memalign(alignment, size));
    if (!p) return ENOMEM;
    *out = p;
    return 0;
}
EXPORTED void *realloc(void *p, size_t size) {
    if (!p) return malloc(size);
    return fails_now() ? failed() : __libc_realloc(p, size);
}
EXPORTED void free(void *p) {
    if (p) atomic_fetch_sub(&live_blocks, 1);
    __libc_free(p);
}
#else
#define MALLOC_CAN_FAIL 0
#endif

/* ---- Allocations that fail ---------------------------------------------------------------------------------------- */

/* An optimizer's life, call by call. Every call may meet a failing allocation; it then has changed nothing, is
 * made once more, and all ends as if nothing had been. */
static long armed;        /* which allocation fails; counted down over all calls */
static int memory_errors; /* calls that failed */

#define TRY(f, call)                                                                                                   \
    do {                                                                                                               \
        api_fixture_remember(f);                                                                                       \
        countdown = armed;                                                                                             \
        adamod_status status_ = (call);                                                                                \
        armed = countdown;                                                                                             \
        countdown = 0;                                                                                                 \
        if (status_ == ADAMOD_ERROR_MEMORY) {                                                                          \
            memory_errors++;                                                                                           \
            check_true(strstr(adamod_last_error(), "memory") != NULL, #call, __FILE__, __LINE__);                      \
            check_true(api_fixture_unchanged(f), #call " changes nothing", __FILE__, __LINE__);                        \
            status_ = (call);                                                                                          \
        }                                                                                                              \
        check_int(status_, ADAMOD_OK, #call, __FILE__, __LINE__);                                                      \
    } while (0)

static void life_of_schedules(api_fixture *f) {
    adamod_schedule *s = NULL, *t = NULL, *chain = NULL;
    const int64_t milestones[] = {2, 3}, lengths[] = {2};
    TRY(f, adamod_schedule_multistep(&s, 2, milestones, 0.5));
    TRY(f, adamod_schedule_parse(&t, "warmup(0,2)*2 > multistep(1;2)*1 > constant"));
    const adamod_schedule *parts[] = {s, t};
    TRY(f, adamod_schedule_chain(&chain, 2, parts, lengths));
    TRY(f, adamod_set_schedule(f->opt, -1, "lr", chain));
    TRY(f, adamod_set_schedule(f->opt, 0, "weight_decay", s));
    TRY(f, adamod_set_schedule(f->opt, 0, "weight_decay", NULL));
    adamod_schedule_free(s);
    adamod_schedule_free(t);
    adamod_schedule_free(chain);
}

static void life_of_raw(api_fixture *f) {
    adamod_hyper *h = NULL;
    double norm = 0;
    float m[4] = {0}, v[4] = {0}, s[4] = {0};
    TRY(f, adamod_hyper_create(&h, "adamod"));
    const adamod_span x = {.param = f->frozen, .grad = f->frozen_grad, .state = {m, v, s}, .count = 4, .step = 1};
    TRY(f, adamod_update(h, &x, 1, NULL));
    TRY(f, adamod_norm(&x, 1, NULL, &norm));
    CHECK(norm > 0);
    adamod_hyper_free(h);
}

/* Moved, and moved back. */
static void life_of_arrays(api_fixture *f) {
    float other[35] = {0};
    void *params[] = {f->matrix, f->half, &f->scalar, f->empty};
    TRY(f, adamod_set_param(f->opt, MATRIX, other));
    TRY(f, adamod_set_arrays(f->opt, FROZEN, NULL, params, NULL));
}

static void life(api_fixture *f, const char *rule, const adamod_allocator *allocator) {
    api_fixture_arrays(f, rule);
    TRY(f, adamod_create_with(&f->opt, rule, allocator));
    if (!f->opt) return;
    TRY(f, adamod_set(f->opt, "threads", 1));
    TRY(f, adamod_collect(f->opt, 1));
    life_of_schedules(f);
    TRY(f, adamod_add_group(f->opt, &f->group));
    for (int i = 0; i < FROZEN; i++) {
        const adamod_tensor t = api_fixture_tensor(f, i);
        TRY(f, adamod_add_tensor(f->opt, i % 2, &t, NULL));
    }
    TRY(f, adamod_step(f->opt));
    TRY(f, adamod_step(f->opt));
    TRY(f, adamod_save(f->opt, "state"));
    TRY(f, adamod_step(f->opt));
    TRY(f, adamod_load(f->opt, "state"));
    life_of_arrays(f);
    TRY(f, adamod_step(f->opt));
    TRY(f, adamod_evaluation(f->opt, 1));
    TRY(f, adamod_evaluation(f->opt, 0));
    life_of_raw(f);
    adamod_free(f->opt);
    f->opt = NULL;
}

/* Counts how many calls a failing allocation stopped, over all allocations of a life. */
static int lives(const char *rule, const adamod_allocator *allocator, allocation_counts *a) {
    api_fixture expected, f;
    long least = 0, k = 1;
    enter_scratch(true);
    armed = 0;
    memory_errors = 0;
    life(&expected, rule, allocator);
    for (; k < 1000; k++) {
        const long blocks = atomic_load(&live_blocks);
        armed = k;
        life(&f, rule, allocator);
        least += atomic_load(&live_blocks) - blocks;
        if (!CHECK(memcmp(&f, &expected, sizeof f) == 0)) return 0;
        if (a) CHECK_INT(a->live, 0);
        if (armed > 0) break; /* there were fewer */
    }
    CHECK(k < 1000);
    CHECK_INT(memory_errors, k - 1);
    CHECK_INT(least, 0); /* nothing is left behind */
    armed = 0;
    return memory_errors;
}

TEST(every_allocation_may_fail) {
    allocation_counts a = {0};
    const adamod_allocator allocator = counting_allocator(&a);
    const int n = lives("adamod", &allocator, &a);
    CHECK(n > 15);
    CHECK_INT(a.errors, 0);
    if (!MALLOC_CAN_FAIL) return;
    CHECK(n > 60);
    if (!getenv("ADAMOD_TEST_EMULATED")) CHECK_INT(lives("adamod", NULL, NULL), n); /* it takes as long again */
}

/* Rules with memory of their own: for whole arrays, or for weights to evaluate with. */
TEST(every_allocation_of_a_driver_may_fail) {
    if (!MALLOC_CAN_FAIL) SKIP("malloc cannot be made to fail here");
    if (getenv("ADAMOD_TEST_EMULATED")) SKIP("it takes long there, and differs in nothing");
    static const char *const rules[] = {"soap", "schedulefree_adamw", "muon", "adafactor"};
    for (size_t i = 0; i < (fast() ? 1 : sizeof rules / sizeof *rules); i++) {
        if (!CHECK(lives(rules[i], NULL, NULL) > 60)) printf("  %s\n", rules[i]);
    }
}

TEST(pool_without_memory) {
    if (!MALLOC_CAN_FAIL) SKIP("malloc cannot be made to fail here");
    adamod_pool *pool = NULL;
    int failures = 0;
    for (long k = 1; k < 100; k++) {
        countdown = k;
        const adamod_status status = adamod_pool_create(&pool, 4);
        const bool reached = countdown == 0;
        countdown = 0;
        if (!reached) break;
        failures += status != ADAMOD_OK;
        /* the system's own memory for a thread is among them */
        if (status) CHECK(status == ADAMOD_ERROR_MEMORY || status == ADAMOD_ERROR_THREADS);
        if (status) CHECK(pool == NULL);
        adamod_pool_free(pool);
        pool = NULL;
    }
    CHECK(pool != NULL);
    CHECK(failures >= 6);
    CHECK_INT(adamod_pool_threads(pool), 4);
    adamod_pool_free(pool);
}

/* ---- How much memory ---------------------------------------------------------------------------------------------- */

TEST(allocator_accounts) {
    for (int r = 0; adamod_rule_name(r); r++) {
        allocation_counts a = {0};
        const adamod_allocator allocator = counting_allocator(&a);
        api_fixture f, usual;
        size_t states = 1;
        api_fixture_arrays(&f, adamod_rule_name(r));
        if (!CHECK_INT(adamod_create_with(&f.opt, adamod_rule_name(r), &allocator), ADAMOD_OK)) return;
        CHECK_INT(a.live, 1); /* the handle itself */
        const size_t handle = a.bytes;
        for (int i = 0; i < PARAMETERS; i++) {
            const adamod_tensor t = api_fixture_tensor(&f, i);
            CHECK_INT(adamod_add_tensor(f.opt, 0, &t, NULL), ADAMOD_OK);
        }
        adamod_memory(f.opt, &states, NULL);
        CHECK_INT(a.bytes - handle, states);
        const int calls = a.calls;
        for (int i = 0; i < 12; i++) CHECK_INT(adamod_step(f.opt), ADAMOD_OK);
        CHECK_INT(a.calls, calls); /* a step takes nothing */
        /* Memory that is filled with 0xa5 gives the same results. */
        if (!api_fixture_make(&usual, adamod_rule_name(r), 0)) return;
        adamod_group_set(usual.opt, 1, "lr", 0);
        double lr = 0;
        adamod_group_get(usual.opt, 0, "lr", &lr);
        adamod_group_set(usual.opt, 1, "lr", lr);
        for (int i = 0; i < 12; i++) CHECK_INT(adamod_step(usual.opt), ADAMOD_OK);
        CHECK(memcmp(f.matrix, usual.matrix, sizeof f.matrix) == 0);
        CHECK(memcmp(f.half, usual.half, sizeof f.half) == 0);
        CHECK(f.scalar == usual.scalar);
        adamod_free(usual.opt);
        adamod_free(f.opt);
        CHECK_INT(a.live, 0);
        CHECK_INT(a.bytes, 0);
        CHECK_INT(a.errors, 0);
    }
}

/* Bytes of states for a matrix of 20 x 50, in each type. */
TEST(memory_of_states) {
    static const struct {
        const char *rule, *option;
        double value;
        int numbers; /* of the states together */
    } rules[] = {
        {"adamod", NULL, 0, 3000},    {"adam", NULL, 0, 2000},           {"amsgrad", NULL, 0, 3000},
        {"sgd", NULL, 0, 0},          {"sgd", "momentum", 0.9, 1000},    {"adagrad", NULL, 0, 1000},
        {"rmsprop", NULL, 0, 1000},   {"rmsprop", "centered", 1, 2000},  {"rmsprop", "momentum", 0.9, 2000},
        {"adadelta", NULL, 0, 2000},  {"adabound", NULL, 0, 2000},       {"amsbound", NULL, 0, 3000},
        {"adashift", NULL, 0, 11001}, {"adashift", "spatial", 1, 12000}, {"adashift", "window", 1, 2001},
        {"nosadam", NULL, 0, 2000},   {"adafactor", NULL, 0, 70},        {"adafactor", "beta1", 0.9, 1070},
        {"radam", NULL, 0, 2000},
    };
    static const adamod_type types[] = {ADAMOD_F32, ADAMOD_F64, ADAMOD_BF16, ADAMOD_F16};
    static double p[1000];
    for (size_t i = 0; i < sizeof rules / sizeof *rules; i++) {
        for (int k = 0; k < 16; k++) {
            adamod_optimizer *opt = NULL;
            const adamod_type type = types[k % 4];
            const bool stochastic = k & 4, bf16 = k & 8;
            const adamod_tensor t = {.param = p, .param_type = type, .ndim = 2, .shape = {20, 50}};
            size_t states = 1;
            if (!CHECK_INT(adamod_create(&opt, rules[i].rule), ADAMOD_OK)) return;
            if (rules[i].option) CHECK_INT(adamod_set(opt, rules[i].option, rules[i].value), ADAMOD_OK);
            if (stochastic) CHECK_INT(adamod_set_text(opt, "low_precision", "stochastic"), ADAMOD_OK);
            if (bf16) CHECK_INT(adamod_set_text(opt, "state_type", "bf16"), ADAMOD_OK);
            adamod_memory(opt, &states, NULL);
            CHECK_INT(states, 0);
            CHECK_INT(adamod_add_tensor(opt, 0, &t, NULL), ADAMOD_OK);
            adamod_memory(opt, &states, NULL);
            const int master = type_size(type) == 2 && !stochastic ? 4000 : 0;
            CHECK_INT(states, rules[i].numbers * (bf16 ? 2 : type == ADAMOD_F64 ? 8 : 4) + master);
            adamod_free(opt);
        }
    }
}

/* The 110 arrays of a ResNet-34, with an eighth of its channels; returns their elements. */
static int64_t resnet(adamod_optimizer *opt, float *p, const float *g) {
    static const int blocks[] = {3, 4, 6, 3};
    int64_t at = 0, n = 0;
#define ADD(...)                                                                                                       \
    do {                                                                                                               \
        const int64_t shape_[] = {__VA_ARGS__};                                                                        \
        const int ndim_ = (int)(sizeof shape_ / sizeof *shape_);                                                       \
        CHECK_INT(adamod_add(opt, NULL, p + at, g + at, ndim_, shape_), ADAMOD_OK);                                    \
        int64_t count_ = 1;                                                                                            \
        for (int d_ = 0; d_ < ndim_; d_++) count_ *= shape_[d_];                                                       \
        at += count_;                                                                                                  \
        n++;                                                                                                           \
    } while (0)
    ADD(8, 3, 7, 7);
    ADD(8);
    ADD(8);
    int64_t in = 8;
    for (int layer = 0; layer < 4; layer++) {
        const int64_t out = (int64_t)8 << layer;
        for (int b = 0; b < blocks[layer]; b++) {
            ADD(out, in, 3, 3);
            ADD(out);
            ADD(out);
            ADD(out, out, 3, 3);
            ADD(out);
            ADD(out);
            if (in != out) {
                ADD(out, in, 1, 1);
                ADD(out);
                ADD(out);
            }
            in = out;
        }
    }
    ADD(1000, 64);
    ADD(1000);
#undef ADD
    CHECK_INT(n, 110);
    return at;
}

TEST(memory_of_a_resnet) {
    static float p[500000], g[500000];
    adamod_optimizer *opt = NULL;
    size_t states = 0, other = 0, fresh = 0, stepped = 0;
    if (!CHECK_INT(adamod_create(&opt, "adamod"), ADAMOD_OK)) return;
    adamod_memory(opt, &states, &fresh);
    CHECK_INT(states, 0);
    CHECK(fresh > 0 && fresh < 16 * 1024);
    const int64_t elements = resnet(opt, p, g);
    CHECK(elements > 300000 && elements < 500000);
    adamod_memory(opt, &states, &other);
    CHECK_INT(states, 12 * elements);
    CHECK(other > fresh && other < 1024 * 110); /* 1 KB for each parameter */
    CHECK_INT(adamod_step(opt), ADAMOD_OK);
    adamod_memory(opt, NULL, &stepped);
    CHECK(stepped - other < 64 * 1024); /* what a step needs, which is not on the stack */
    for (int i = 0; i < 5; i++) CHECK_INT(adamod_step(opt), ADAMOD_OK);
    adamod_memory(opt, NULL, &other);
    CHECK_INT(other, stepped); /* steps take nothing more */
    /* Statistics take memory while they are on. */
    CHECK_INT(adamod_collect(opt, 1), ADAMOD_OK);
    adamod_memory(opt, NULL, &other);
    CHECK(other > stepped);
    CHECK_INT(adamod_step(opt), ADAMOD_OK);
    CHECK_INT(adamod_collect(opt, 0), ADAMOD_OK);
    adamod_memory(opt, NULL, &other);
    CHECK_INT(other, stepped);
    adamod_free(opt);
}

RUN_TESTS(ENTRY(every_allocation_may_fail), ENTRY(every_allocation_of_a_driver_may_fail), ENTRY(pool_without_memory),
          ENTRY(allocator_accounts), ENTRY(memory_of_states), ENTRY(memory_of_a_resnet))
