/* Tests of the public interface but for schedules, statistics and state files, which have programs of their own: what
 * is refused and how it is said, that a refused call changes nothing, memory, threads, and the raw interface.
 *
 * Formulas are tested elsewhere.
 *
 * SPDX-License-Identifier: MIT
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif

#include "adamod.h"
#include "check.h"

#include <errno.h>
#include <float.h>
#include <locale.h>
#include <math.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <unistd.h>

/* ---- An allocation that fails -------------------------------------------------------------------------------------
 *
 * countdown 3 lets the third allocation of this thread from here on fail, and no other. The tests' own allocator obeys
 * it everywhere; malloc does too where it can be replaced, which is with glibc and without sanitizers. */

static _Thread_local volatile long countdown; /* the compiler thinks it knows that malloc reads no variables */

static bool fails_now(void) { return countdown > 0 && --countdown == 0; }

#if defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer) || __has_feature(memory_sanitizer)
#define SANITIZED
#endif
#endif
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define SANITIZED
#endif

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
/* A request for more memory than there is fails, as it does without sanitizers. */
__attribute__((visibility("default"))) const char *__asan_default_options(void);
__attribute__((visibility("default"))) const char *__tsan_default_options(void);
const char *__asan_default_options(void) { return "allocator_may_return_null=1"; }
const char *__tsan_default_options(void) { return "allocator_may_return_null=1"; }
#endif

/* ---- An allocator that keeps accounts ----------------------------------------------------------------------------- */

enum { ACCOUNTS = 256 };
typedef struct accounts {
    void *pointer[ACCOUNTS];
    size_t size[ACCOUNTS], bytes;
    int live, calls, errors; /* errors: freed with another size, or never given out, or odd requests */
} accounts;

static void *account_alloc(void *context, size_t size, size_t alignment) {
    accounts *a = context;
    void *p = NULL;
    a->calls++;
    if (fails_now()) return NULL;
    if (size == 0 || alignment == 0 || (alignment & (alignment - 1)) != 0) a->errors++;
    const long keep = countdown;
    countdown = 0; /* this one was counted already */
    if (posix_memalign(&p, alignment < sizeof(void *) ? sizeof(void *) : alignment, size)) p = NULL;
    countdown = keep;
    if (!p) return NULL;
    memset(p, 0xa5, size); /* the library must not count on zeros */
    for (int i = 0; i < ACCOUNTS; i++) {
        if (a->pointer[i]) continue;
        a->pointer[i] = p;
        a->size[i] = size;
        a->bytes += size;
        a->live++;
        return p;
    }
    abort();
}

static void account_free(void *context, void *p, size_t size) {
    accounts *a = context;
    for (int i = 0; i < ACCOUNTS; i++) {
        if (a->pointer[i] != p) continue;
        a->errors += a->size[i] != size;
        a->bytes -= a->size[i];
        a->live--;
        a->pointer[i] = NULL;
        free(p);
        return;
    }
    a->errors++;
}

/* ---- A small world, and whether it has changed --------------------------------------------------------------------
 *
 * Every type, a matrix, a scalar, an empty array and a frozen one, in two groups. */

typedef struct world {
    adamod_optimizer *opt;
    const char *rule;
    float matrix[35], matrix_grad[35];
    _Alignas(8) uint16_t half[9];
    _Alignas(8) uint16_t half_grad[9];
    double scalar, scalar_grad;
    float empty[1];
    float frozen[4], frozen_grad[4];
    int group;
} world;

enum { MATRIX, HALF, SCALAR, EMPTY, FROZEN, PARAMETERS };

/* Pseudo-random, the same everywhere: in (-1, 1). */
static double noise(uint64_t i) {
    uint64_t x = (i + 1) * 0x9e3779b97f4a7c15u;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return (double)((x ^ (x >> 31)) >> 11) / 4503599627370496.0 - 1;
}

static uint16_t to_bf16(double x) {
    const float f = (float)x;
    uint32_t bits;
    memcpy(&bits, &f, sizeof bits);
    return (uint16_t)(bits >> 16);
}

static void world_arrays(world *w, const char *rule) {
    memset(w, 0, sizeof *w);
    w->rule = rule;
    for (int i = 0; i < 35; i++) {
        w->matrix[i] = (float)noise((uint64_t)i);
        w->matrix_grad[i] = (float)noise(100 + (uint64_t)i);
    }
    for (int i = 0; i < 9; i++) {
        w->half[i] = to_bf16(noise(200 + (uint64_t)i));
        w->half_grad[i] = to_bf16(noise(300 + (uint64_t)i));
    }
    w->scalar = noise(400);
    w->scalar_grad = noise(401);
    for (int i = 0; i < 4; i++) {
        w->frozen[i] = (float)noise(500 + (uint64_t)i);
        w->frozen_grad[i] = (float)noise(600 + (uint64_t)i);
    }
}

static adamod_tensor world_tensor(world *w, int which) {
    switch (which) {
        case MATRIX:
            return (adamod_tensor){"matrix", w->matrix, w->matrix_grad, ADAMOD_F32, ADAMOD_F32,
                                   2,        {5, 7},    NULL,           {NULL},     {NULL}};
        case HALF:
            return (adamod_tensor){"half", w->half, w->half_grad, ADAMOD_BF16, ADAMOD_BF16,
                                   1,      {9},     NULL,         {NULL},      {NULL}};
        case SCALAR:
            return (adamod_tensor){"scalar", &w->scalar, &w->scalar_grad, ADAMOD_F64, ADAMOD_F64, 0,
                                   {0},      NULL,       {NULL},          {NULL}};
        case EMPTY:
            return (adamod_tensor){"empty", w->empty, w->empty, ADAMOD_F32, ADAMOD_F32,
                                   2,       {0, 3},   NULL,     {NULL},     {NULL}};
        default:
            return (adamod_tensor){"frozen", w->frozen, NULL, ADAMOD_F32, ADAMOD_F32, 1, {4}, NULL, {NULL}, {NULL}};
    }
}

/* The world with steps updates done; 0 if it could not be made. */
static int world_make(world *w, const char *rule, int steps) {
    world_arrays(w, rule);
    if (!CHECK_INT(adamod_create(&w->opt, rule), ADAMOD_OK)) return 0;
    CHECK_INT(adamod_set(w->opt, "threads", 1), ADAMOD_OK);
    CHECK_INT(adamod_add_group(w->opt, &w->group), ADAMOD_OK);
    CHECK_INT(adamod_group_set(w->opt, w->group, "lr", 0.0625), ADAMOD_OK);
    for (int i = 0; i < PARAMETERS; i++) {
        const adamod_tensor t = world_tensor(w, i);
        int64_t id = -1;
        CHECK_INT(adamod_add_tensor(w->opt, i == HALF ? w->group : 0, &t, &id), ADAMOD_OK);
        CHECK_INT(id, i);
    }
    for (int i = 0; i < steps; i++) CHECK_INT(adamod_step(w->opt), ADAMOD_OK);
    return 1;
}

/* Everything that can be seen of a world, as bytes. */
typedef struct snapshot {
    unsigned char bytes[16384];
    size_t n;
} snapshot;

static void put(snapshot *s, const void *data, size_t n) {
    if (s->n + n > sizeof s->bytes) abort();
    if (n) memcpy(s->bytes + s->n, data, n);
    s->n += n;
}

static const char *const state_names[] = {
    "exp_avg",         "exp_avg_sq", "exp_avg_lr", "max_exp_avg_sq", "exp_avg_sq_row", "exp_avg_sq_col", "grad_queue",
    "momentum_buffer", "sum",        "square_avg", "grad_avg",       "acc_delta",      "master",         NULL};
static size_t type_size(adamod_type type) { return type == ADAMOD_F64 ? 8 : type == ADAMOD_F32 ? 4 : 2; }

static void put_states(snapshot *s, const adamod_optimizer *opt, int64_t id) {
    for (int i = 0; state_names[i]; i++) {
        void *data;
        adamod_type type;
        int64_t count;
        if (adamod_state(opt, id, state_names[i], &data, &type, &count)) continue;
        put(s, &count, sizeof count);
        put(s, data, (size_t)count * type_size(type));
    }
}

static void put_options(snapshot *s, const adamod_optimizer *opt, const char *rule) {
    double value;
    for (int g = 0; adamod_group_get(opt, g, "lr", &value) == ADAMOD_OK; g++) {
        adamod_option o;
        for (int i = 0; adamod_option_at(rule, i, &o) == ADAMOD_OK; i++) {
            CHECK_INT(adamod_group_get(opt, g, o.name, &value), ADAMOD_OK);
            put(s, &value, sizeof value);
        }
    }
}

static void take(const world *w, snapshot *s) {
    s->n = 0;
    put(s, w, sizeof *w);
    if (!w->opt) return;
    const int64_t counts[] = {adamod_steps(w->opt), adamod_skipped(w->opt), adamod_tensors(w->opt)};
    const double norm = adamod_grad_norm(w->opt);
    size_t states;
    adamod_memory(w->opt, &states, NULL);
    put(s, counts, sizeof counts);
    put(s, &norm, sizeof norm);
    put(s, &states, sizeof states);
    for (int64_t id = 0; id < adamod_tensors(w->opt); id++) {
        int64_t steps = -1;
        adamod_tensor_steps(w->opt, id, &steps);
        put(s, &steps, sizeof steps);
        put_states(s, w->opt, id);
    }
    put_options(s, w->opt, w->rule);
}

static snapshot before, after;

static int unchanged(const world *w) {
    take(w, &after);
    return before.n == after.n && memcmp(before.bytes, after.bytes, before.n) == 0;
}

static char message[600];

static adamod_status keep_message(adamod_status status) {
    snprintf(message, sizeof message, "%s", adamod_last_error());
    return status;
}

/* The call fails with this status, says this, and changes nothing. */
#define REFUSED(w, call, status, part)                                                                                 \
    do {                                                                                                               \
        take(w, &before);                                                                                              \
        check_int(keep_message(call), status, #call, __FILE__, __LINE__);                                              \
        check_has(message, part, #call, __FILE__, __LINE__);                                                           \
        check_has(message, "adamod: ", #call, __FILE__, __LINE__);                                                     \
        check_true(unchanged(w), #call " changes nothing", __FILE__, __LINE__);                                        \
    } while (0)

/* ---- Null pointers, numbers out of range -------------------------------------------------------------------------- */

TEST(null_handles) {
    double value = 5;
    int64_t n = 5;
    int group = 5;
    size_t states = 5, other = 5;
    void *data = &n;
    adamod_statistics statistics;
    const adamod_tensor t = {.param = &value, .param_type = ADAMOD_F64};
    const int64_t shape[] = {1};
    float x = 0;
    CHECK_INT(adamod_create(NULL, "adam"), ADAMOD_ERROR_ARGUMENT);
    CHECK_INT(adamod_create_with(NULL, "adam", NULL), ADAMOD_ERROR_ARGUMENT);
    adamod_free(NULL);
    CHECK_INT(adamod_add(NULL, "x", &x, NULL, 1, shape), ADAMOD_ERROR_ARGUMENT);
    CHECK_HAS(adamod_last_error(), "the optimizer is NULL");
    CHECK_INT(adamod_step(NULL), ADAMOD_ERROR_ARGUMENT);
    CHECK_INT(adamod_steps(NULL), 0);
    CHECK_INT(adamod_skipped(NULL), 0);
    CHECK(adamod_grad_norm(NULL) < 0);
    CHECK_INT(adamod_set(NULL, "lr", 1), ADAMOD_ERROR_ARGUMENT);
    CHECK_INT(adamod_set_text(NULL, "lr", "1"), ADAMOD_ERROR_ARGUMENT);
    CHECK_INT(adamod_get(NULL, "lr", &value), ADAMOD_ERROR_ARGUMENT);
    CHECK_INT(adamod_add_group(NULL, &group), ADAMOD_ERROR_ARGUMENT);
    CHECK_INT(adamod_group_set(NULL, 0, "lr", 1), ADAMOD_ERROR_ARGUMENT);
    CHECK_INT(adamod_group_set_text(NULL, 0, "lr", "1"), ADAMOD_ERROR_ARGUMENT);
    CHECK_INT(adamod_group_get(NULL, 0, "lr", &value), ADAMOD_ERROR_ARGUMENT);
    CHECK_INT(adamod_add_tensor(NULL, 0, &t, &n), ADAMOD_ERROR_ARGUMENT);
    CHECK_INT(adamod_tensors(NULL), 0);
    CHECK_INT(adamod_set_param(NULL, 0, &value), ADAMOD_ERROR_ARGUMENT);
    CHECK_INT(adamod_set_grad(NULL, 0, &value), ADAMOD_ERROR_ARGUMENT);
    CHECK_INT(adamod_set_schedule(NULL, 0, "lr", NULL), ADAMOD_ERROR_ARGUMENT);
    CHECK_INT(adamod_scheduled(NULL, 0, "lr", &value), ADAMOD_ERROR_ARGUMENT);
    CHECK_INT(adamod_collect(NULL, 1), ADAMOD_ERROR_ARGUMENT);
    CHECK_INT(adamod_get_statistics(NULL, 0, &statistics), ADAMOD_ERROR_ARGUMENT);
    CHECK_INT(adamod_save(NULL, "x"), ADAMOD_ERROR_ARGUMENT);
    CHECK_INT(adamod_load(NULL, "x"), ADAMOD_ERROR_ARGUMENT);
    CHECK_INT(adamod_state(NULL, 0, "exp_avg", &data, NULL, NULL), ADAMOD_ERROR_ARGUMENT);
    CHECK_INT(adamod_tensor_steps(NULL, 0, &n), ADAMOD_ERROR_ARGUMENT);
    CHECK_INT(adamod_set_pool(NULL, NULL), ADAMOD_ERROR_ARGUMENT);
    CHECK(adamod_isa(NULL) == NULL);
    adamod_memory(NULL, &states, &other);
    CHECK_INT(states, 0);
    CHECK_INT(other, 0);
    adamod_memory(NULL, NULL, NULL);
    CHECK(value == 5 && n == 5 && group == 5 && data == &n);

    CHECK_INT(adamod_hyper_create(NULL, "adam"), ADAMOD_ERROR_ARGUMENT);
    adamod_hyper_free(NULL);
    adamod_state_desc desc;
    CHECK_INT(adamod_hyper_set(NULL, "lr", 1), ADAMOD_ERROR_ARGUMENT);
    CHECK_INT(adamod_hyper_set_text(NULL, "lr", "1"), ADAMOD_ERROR_ARGUMENT);
    CHECK_INT(adamod_hyper_get(NULL, "lr", &value), ADAMOD_ERROR_ARGUMENT);
    CHECK_INT(adamod_state_at(NULL, 1, shape, 0, &desc), ADAMOD_ERROR_ARGUMENT);
    CHECK_INT(adamod_update(NULL, NULL, 0, NULL), ADAMOD_ERROR_ARGUMENT);
    CHECK_INT(adamod_norm(NULL, 1, NULL, &value), ADAMOD_ERROR_ARGUMENT);
    CHECK_INT(adamod_norm(NULL, 0, NULL, NULL), ADAMOD_ERROR_ARGUMENT);
    CHECK_INT(adamod_pool_create(NULL, 1), ADAMOD_ERROR_ARGUMENT);
    adamod_pool_free(NULL);
    CHECK_INT(adamod_pool_threads(NULL), 1);
    adamod_option o;
    CHECK_INT(adamod_option_at(NULL, 0, &o), ADAMOD_ERROR_ARGUMENT);
    CHECK_INT(adamod_option_at("adam", 0, NULL), ADAMOD_ERROR_ARGUMENT);
    CHECK_INT(adamod_option_find(NULL, "lr", &o), ADAMOD_ERROR_ARGUMENT);
    CHECK_INT(adamod_option_find("adam", NULL, &o), ADAMOD_ERROR_ARGUMENT);
    CHECK_INT(adamod_option_find("adam", "lr", NULL), ADAMOD_ERROR_ARGUMENT);
}

TEST(null_arguments) {
    world w;
    if (!world_make(&w, "adamod", 3)) return;
    double value = 5;
    void *data = &w;
    adamod_type type = ADAMOD_F16;
    int64_t count = 7;
    float x[1] = {0};
    const int64_t shape[] = {1};
    const adamod_tensor no_param = {.ndim = 1, .shape = {1}};
    adamod_optimizer *none = NULL;
    REFUSED(&w, adamod_create(&none, NULL), ADAMOD_ERROR_ARGUMENT, "NULL");
    REFUSED(&w, adamod_create_with(&none, NULL, NULL), ADAMOD_ERROR_ARGUMENT, "NULL");
    CHECK(none == NULL);
    REFUSED(&w, adamod_set(w.opt, NULL, 1), ADAMOD_ERROR_ARGUMENT, "option's name is NULL");
    REFUSED(&w, adamod_set_text(w.opt, NULL, "1"), ADAMOD_ERROR_ARGUMENT, "option's name is NULL");
    REFUSED(&w, adamod_set_text(w.opt, "lr", NULL), ADAMOD_ERROR_ARGUMENT, "value is NULL");
    REFUSED(&w, adamod_get(w.opt, NULL, &value), ADAMOD_ERROR_ARGUMENT, "NULL");
    REFUSED(&w, adamod_get(w.opt, "lr", NULL), ADAMOD_ERROR_ARGUMENT, "out is NULL");
    REFUSED(&w, adamod_add_group(w.opt, NULL), ADAMOD_ERROR_ARGUMENT, "out is NULL");
    REFUSED(&w, adamod_group_set(w.opt, 0, NULL, 1), ADAMOD_ERROR_ARGUMENT, "NULL");
    REFUSED(&w, adamod_group_set_text(w.opt, 0, NULL, "1"), ADAMOD_ERROR_ARGUMENT, "NULL");
    REFUSED(&w, adamod_group_set_text(w.opt, 0, "lr", NULL), ADAMOD_ERROR_ARGUMENT, "NULL");
    REFUSED(&w, adamod_group_get(w.opt, 0, NULL, &value), ADAMOD_ERROR_ARGUMENT, "NULL");
    REFUSED(&w, adamod_group_get(w.opt, 0, "lr", NULL), ADAMOD_ERROR_ARGUMENT, "NULL");
    REFUSED(&w, adamod_add_tensor(w.opt, 0, NULL, &count), ADAMOD_ERROR_ARGUMENT, "tensor is NULL");
    REFUSED(&w, adamod_add_tensor(w.opt, 0, &no_param, &count), ADAMOD_ERROR_ARGUMENT, "param is NULL");
    REFUSED(&w, adamod_add(w.opt, "x", NULL, NULL, 1, shape), ADAMOD_ERROR_ARGUMENT, "x: param is NULL");
    REFUSED(&w, adamod_add(w.opt, "x", x, NULL, 1, NULL), ADAMOD_ERROR_ARGUMENT, "x: shape is NULL");
    REFUSED(&w, adamod_add(w.opt, NULL, x, NULL, 1, NULL), ADAMOD_ERROR_ARGUMENT, "shape is NULL");
    REFUSED(&w, adamod_set_param(w.opt, MATRIX, NULL), ADAMOD_ERROR_ARGUMENT, "matrix: param is NULL");
    REFUSED(&w, adamod_set_schedule(w.opt, 0, NULL, NULL), ADAMOD_ERROR_ARGUMENT, "NULL");
    REFUSED(&w, adamod_scheduled(w.opt, 0, "lr", NULL), ADAMOD_ERROR_ARGUMENT, "out is NULL");
    REFUSED(&w, adamod_scheduled(w.opt, 0, NULL, &value), ADAMOD_ERROR_ARGUMENT, "NULL");
    REFUSED(&w, adamod_state(w.opt, 0, NULL, &data, NULL, NULL), ADAMOD_ERROR_ARGUMENT, "NULL");
    REFUSED(&w, adamod_state(w.opt, 0, "exp_avg", NULL, NULL, NULL), ADAMOD_ERROR_ARGUMENT, "NULL");
    REFUSED(&w, adamod_tensor_steps(w.opt, 0, NULL), ADAMOD_ERROR_ARGUMENT, "steps is NULL");
    REFUSED(&w, adamod_get_statistics(w.opt, 0, NULL), ADAMOD_ERROR_ARGUMENT, "out is NULL");
    REFUSED(&w, adamod_save(w.opt, NULL), ADAMOD_ERROR_ARGUMENT, "NULL");
    REFUSED(&w, adamod_load(w.opt, NULL), ADAMOD_ERROR_ARGUMENT, "NULL");
    CHECK(value == 5 && data == &w && type == ADAMOD_F16 && count == 7);
    CHECK_INT(adamod_state(w.opt, MATRIX, "exp_avg", &data, NULL, NULL), ADAMOD_OK);
    CHECK_INT(adamod_state(w.opt, MATRIX, "exp_avg", &data, &type, &count), ADAMOD_OK);
    CHECK_INT(type, ADAMOD_F32);
    CHECK_INT(count, 35);

    const adamod_allocator no_alloc = {NULL, account_free, NULL}, no_free = {account_alloc, NULL, NULL};
    REFUSED(&w, adamod_create_with(&none, "adam", &no_alloc), ADAMOD_ERROR_ARGUMENT, "allocator");
    REFUSED(&w, adamod_create_with(&none, "adam", &no_free), ADAMOD_ERROR_ARGUMENT, "allocator");
    CHECK(none == NULL);
    adamod_free(w.opt);
}

TEST(numbers_out_of_range) {
    world w;
    if (!world_make(&w, "adamod", 3)) return;
    const adamod_tensor t = {.name = "t", .param = w.frozen_grad, .ndim = 1, .shape = {4}};
    adamod_schedule *s = NULL;
    adamod_statistics statistics;
    double value = 5;
    void *data = &w;
    int64_t id = 7;
    adamod_pool *pool = NULL;
    CHECK_INT(adamod_schedule_constant(&s), ADAMOD_OK);
    const int groups[] = {-2, -1, 2, 3, 1000000, INT32_MAX, INT32_MIN};
    for (size_t i = 0; i < sizeof groups / sizeof *groups; i++) {
        const int g = groups[i];
        REFUSED(&w, adamod_group_set(w.opt, g, "lr", 1), ADAMOD_ERROR_RANGE, "expected 0 <= group < 2");
        REFUSED(&w, adamod_group_set_text(w.opt, g, "lr", "1"), ADAMOD_ERROR_RANGE, "expected 0 <= group < 2");
        REFUSED(&w, adamod_group_get(w.opt, g, "lr", &value), ADAMOD_ERROR_RANGE, "group is");
        REFUSED(&w, adamod_add_tensor(w.opt, g, &t, &id), ADAMOD_ERROR_RANGE, "group is");
        REFUSED(&w, adamod_scheduled(w.opt, g, "lr", &value), ADAMOD_ERROR_RANGE, "group is");
        if (g == -1) continue; /* all groups, in these two */
        REFUSED(&w, adamod_set_schedule(w.opt, g, "lr", s), ADAMOD_ERROR_RANGE, "group is");
        REFUSED(&w, adamod_get_statistics(w.opt, g, &statistics), ADAMOD_ERROR_RANGE, "group is");
    }
    const int64_t ids[] = {-1, PARAMETERS, INT64_MAX, INT64_MIN};
    for (size_t i = 0; i < sizeof ids / sizeof *ids; i++) {
        REFUSED(&w, adamod_set_param(w.opt, ids[i], w.matrix), ADAMOD_ERROR_RANGE, "expected 0 <= number < 5");
        REFUSED(&w, adamod_set_grad(w.opt, ids[i], w.matrix_grad), ADAMOD_ERROR_RANGE, "number is");
        REFUSED(&w, adamod_state(w.opt, ids[i], "exp_avg", &data, NULL, NULL), ADAMOD_ERROR_RANGE, "number is");
        REFUSED(&w, adamod_tensor_steps(w.opt, ids[i], &id), ADAMOD_ERROR_RANGE, "number is");
    }
    REFUSED(&w, adamod_pool_create(&pool, -1), ADAMOD_ERROR_RANGE, "threads is -1");
    REFUSED(&w, adamod_pool_create(&pool, 1025), ADAMOD_ERROR_RANGE, "<= 1024");
    CHECK(value == 5 && data == &w && id == 7 && pool == NULL);
    CHECK(adamod_rule_name(-1) == NULL && adamod_rule_summary(-1) == NULL && adamod_isa_name(-1) == NULL);
    adamod_schedule_free(s);
    adamod_free(w.opt);
}

/* ---- Names -------------------------------------------------------------------------------------------------------- */

TEST(rules_by_index) {
    int n = 0;
    for (; adamod_rule_name(n); n++) {
        CHECK(adamod_rule_summary(n) && strlen(adamod_rule_summary(n)) > 10);
        CHECK(!strchr(adamod_rule_summary(n), '\n'));
        for (int i = 0; i < n; i++) CHECK(strcmp(adamod_rule_name(i), adamod_rule_name(n)) != 0);
        adamod_optimizer *opt = NULL;
        CHECK_INT(adamod_create(&opt, adamod_rule_name(n)), ADAMOD_OK);
        adamod_free(opt);
    }
    CHECK(n >= 13);
    CHECK_STR(adamod_rule_name(0), "adamod");
    CHECK(adamod_rule_name(n) == NULL && adamod_rule_summary(n) == NULL);
    CHECK(adamod_rule_name(INT32_MAX) == NULL);
}

TEST(unknown_rules) {
    adamod_optimizer *opt = NULL;
    adamod_hyper *h = NULL;
    adamod_option o;
    CHECK_INT(adamod_create(&opt, "adamodd"), ADAMOD_ERROR_NAME);
    CHECK_HAS(adamod_last_error(), "'adamodd'; did you mean 'adamod'?");
    CHECK_INT(adamod_create(&opt, "Adam"), ADAMOD_ERROR_NAME);
    CHECK_HAS(adamod_last_error(), "did you mean 'adam'?");
    CHECK_INT(adamod_create_with(&opt, "ada-bound", NULL), ADAMOD_ERROR_NAME);
    CHECK_HAS(adamod_last_error(), "did you mean 'adabound'?");
    CHECK_INT(adamod_hyper_create(&h, "RMSprop"), ADAMOD_ERROR_NAME);
    CHECK_HAS(adamod_last_error(), "did you mean 'rmsprop'?");
    CHECK_INT(adamod_option_at("nosadm", 0, &o), ADAMOD_ERROR_NAME);
    CHECK_HAS(adamod_last_error(), "did you mean 'nosadam'?");
    CHECK_INT(adamod_option_find("adashft", "lr", &o), ADAMOD_ERROR_NAME);
    CHECK_HAS(adamod_last_error(), "did you mean 'adashift'?");
    /* Nothing near: all that there is. */
    CHECK_INT(adamod_create(&opt, "stochastic gradient descent"), ADAMOD_ERROR_NAME);
    for (int i = 0; adamod_rule_name(i); i++) CHECK_HAS(adamod_last_error(), adamod_rule_name(i));
    CHECK_INT(adamod_create(&opt, ""), ADAMOD_ERROR_NAME);
    /* A word of three letters is near every other: that is no suggestion. */
    CHECK_INT(adamod_create(&opt, "xyz"), ADAMOD_ERROR_NAME);
    CHECK(!strstr(adamod_last_error(), "did you mean"));
    char longest[5000];
    memset(longest, 'a', sizeof longest - 1);
    longest[sizeof longest - 1] = '\0';
    CHECK_INT(adamod_create(&opt, longest), ADAMOD_ERROR_NAME);
    CHECK(strlen(adamod_last_error()) < 512);
    CHECK(opt == NULL && h == NULL);
}

TEST(unknown_options) {
    world w;
    if (!world_make(&w, "adamod", 3)) return;
    double value = 5;
    adamod_option o;
    adamod_hyper *h = NULL;
    CHECK_INT(adamod_hyper_create(&h, "adamod"), ADAMOD_OK);
    REFUSED(&w, adamod_set(w.opt, "beta4", 0.5), ADAMOD_ERROR_NAME, "adamod has no option 'beta4'; did you mean 'beta");
    REFUSED(&w, adamod_set_text(w.opt, "Weight_decay", "0.5"), ADAMOD_ERROR_NAME, "did you mean 'weight_decay'?");
    REFUSED(&w, adamod_get(w.opt, "clipnorm", &value), ADAMOD_ERROR_NAME, "did you mean 'clip_norm'?");
    REFUSED(&w, adamod_group_set(w.opt, 1, "flavor", 0), ADAMOD_ERROR_NAME, "did you mean 'flavour'?");
    REFUSED(&w, adamod_group_set_text(w.opt, 1, "beta_3", "0"), ADAMOD_ERROR_NAME, "did you mean 'beta3'?");
    REFUSED(&w, adamod_group_get(w.opt, 1, "maximise", &value), ADAMOD_ERROR_NAME, "did you mean 'maximize'?");
    REFUSED(&w, adamod_scheduled(w.opt, 0, "beta33", &value), ADAMOD_ERROR_NAME, "did you mean 'beta3'?");
    REFUSED(&w, adamod_set_schedule(w.opt, 0, "beta33", NULL), ADAMOD_ERROR_NAME, "did you mean 'beta3'?");
    REFUSED(&w, adamod_hyper_set(h, "epsilon", 1), ADAMOD_ERROR_NAME, "adamod has no option 'epsilon'");
    REFUSED(&w, adamod_hyper_set_text(h, "momentum", "1"), ADAMOD_ERROR_NAME, "adamod has no option 'momentum'");
    REFUSED(&w, adamod_hyper_get(h, "rho", &value), ADAMOD_ERROR_NAME, "adamod has no option 'rho'");
    REFUSED(&w, adamod_option_find("sgd", "betas", &o), ADAMOD_ERROR_NAME, "sgd has no option 'betas'");
    /* Nothing near: the rule's own. */
    REFUSED(&w, adamod_set(w.opt, "learning_rate", 1), ADAMOD_ERROR_NAME, "lr, beta1, beta2, beta3, eps, flavour");
    REFUSED(&w, adamod_option_at("adamod", 999, &o), ADAMOD_ERROR_NAME, "no option number 999");
    REFUSED(&w, adamod_option_at("adamod", -1, &o), ADAMOD_ERROR_NAME, "no option number -1");
    CHECK(value == 5);
    adamod_hyper_free(h);
    adamod_free(w.opt);
}

TEST(unknown_choices_and_states) {
    world w;
    if (!world_make(&w, "adamod", 3)) return;
    void *data = &w;
    REFUSED(&w, adamod_set_text(w.opt, "decay", "decupled"), ADAMOD_ERROR_NAME,
            "decay is 'decupled', expected one of none, l2, decoupled, independent");
    REFUSED(&w, adamod_set_text(w.opt, "flavour", "2"), ADAMOD_ERROR_NAME, "one of paper, published, keras");
    REFUSED(&w, adamod_set_text(w.opt, "nonfinite", ""), ADAMOD_ERROR_NAME, "one of pass, skip, error");
    REFUSED(&w, adamod_group_set_text(w.opt, 1, "flavour", "PAPER"), ADAMOD_ERROR_NAME, "one of paper");
    REFUSED(&w, adamod_set_text(w.opt, "lr", "fast"), ADAMOD_ERROR_RANGE, "lr is 'fast', expected a number");
    REFUSED(&w, adamod_set_text(w.opt, "lr", ""), ADAMOD_ERROR_RANGE, "expected a number");
    REFUSED(&w, adamod_set_text(w.opt, "lr", "1e-3x"), ADAMOD_ERROR_RANGE, "lr is '1e-3x', expected a number");
    REFUSED(&w, adamod_set_text(w.opt, "lr", "1e-3 "), ADAMOD_ERROR_RANGE, "expected a number");
    REFUSED(&w, adamod_set_text(w.opt, "lr", "nan"), ADAMOD_ERROR_RANGE, "lr is nan, expected 0 <= lr");
    REFUSED(&w, adamod_set_text(w.opt, "lr", "-1"), ADAMOD_ERROR_RANGE, "lr is -1, expected 0 <= lr");
    REFUSED(&w, adamod_set_text(w.opt, "maximize", "0.5"), ADAMOD_ERROR_RANGE, "a whole number");
    REFUSED(&w, adamod_state(w.opt, HALF, "exp_avgs", &data, NULL, NULL), ADAMOD_ERROR_NAME,
            "half: no state 'exp_avgs', there are exp_avg, exp_avg_sq, exp_avg_lr, master");
    REFUSED(&w, adamod_state(w.opt, MATRIX, "master", &data, NULL, NULL), ADAMOD_ERROR_NAME, "matrix: no state");
    CHECK(data == &w);
    double value = 9;
    CHECK_INT(adamod_set_text(w.opt, "decay", "independent"), ADAMOD_OK);
    CHECK_INT(adamod_get(w.opt, "decay", &value), ADAMOD_OK);
    CHECK_INT(value, 3);
    CHECK_INT(adamod_set_text(w.opt, "lr", "0x1p-3"), ADAMOD_OK);
    CHECK_INT(adamod_get(w.opt, "lr", &value), ADAMOD_OK);
    CHECK(value == 0.125);
    adamod_free(w.opt);
    adamod_optimizer *sgd = NULL;
    CHECK_INT(adamod_create(&sgd, "sgd"), ADAMOD_OK);
    CHECK_INT(adamod_add(sgd, "x", w.frozen, NULL, 1, (const int64_t[]){4}), ADAMOD_OK);
    CHECK_INT(adamod_state(sgd, 0, "exp_avg", &data, NULL, NULL), ADAMOD_ERROR_NAME);
    CHECK_HAS(adamod_last_error(), "x: no state 'exp_avg', there is none");
    adamod_free(sgd);
}

TEST(messages) {
    for (int status = 0; status >= -15; status--) {
        const char *text = adamod_strerror((adamod_status)status);
        CHECK(text && *text && strcmp(text, "unknown status") != 0);
        for (int other = 0; other > status; other--) {
            CHECK(strcmp(text, adamod_strerror((adamod_status)other)) != 0);
        }
    }
    CHECK_STR(adamod_strerror((adamod_status)-16), "unknown status");
    CHECK_STR(adamod_strerror((adamod_status)1), "unknown status");
    CHECK_STR(adamod_strerror(ADAMOD_OK), "success");
    CHECK(adamod_last_error() != NULL);
    adamod_optimizer *opt = NULL;
    if (!CHECK_INT(adamod_create(&opt, "adam"), ADAMOD_OK)) return;
    /* The line stays until the next failure, whatever succeeds meanwhile. */
    CHECK_INT(adamod_set(opt, "lr", -1), ADAMOD_ERROR_RANGE);
    keep_message(ADAMOD_OK);
    CHECK_HAS(message, "lr is -1, expected 0 <= lr");
    CHECK(!strchr(message, '\n'));
    CHECK_INT(adamod_set(opt, "lr", 1), ADAMOD_OK);
    CHECK_STR(adamod_last_error(), message);
    /* A name longer than the line. */
    char name[3000];
    memset(name, 'n', sizeof name - 1);
    name[sizeof name - 1] = '\0';
    float x = 0;
    CHECK_INT(adamod_add(opt, name, &x, NULL, 0, NULL), ADAMOD_OK);
    CHECK_INT(adamod_add(opt, name, &x, NULL, 0, NULL), ADAMOD_ERROR_NAME);
    CHECK(strlen(adamod_last_error()) < 600);
    CHECK_INT(adamod_set_param(opt, 0, NULL), ADAMOD_ERROR_ARGUMENT);
    adamod_free(opt);
}

static void *fails_elsewhere(void *out) {
    adamod_optimizer *opt = NULL;
    snprintf(out, 600, "%s|", adamod_last_error());
    adamod_create(&opt, "of another thread");
    strncat(out, adamod_last_error(), 500);
    return NULL;
}

TEST(last_error_of_each_thread) {
    adamod_optimizer *opt = NULL;
    char other[600];
    pthread_t thread;
    CHECK_INT(adamod_create(&opt, "of this thread"), ADAMOD_ERROR_NAME);
    if (!CHECK_INT(pthread_create(&thread, NULL, fails_elsewhere, other), 0)) return;
    pthread_join(thread, NULL);
    CHECK_HAS(other, "of another thread");
    CHECK(!strstr(other, "of this thread"));
    CHECK_HAS(adamod_last_error(), "of this thread");
}

/* ---- Options ------------------------------------------------------------------------------------------------------ */

static double step_from(const adamod_option *o, double x, double towards) {
    return o->kind == ADAMOD_REAL ? nextafter(x, towards) : x + (towards > x ? 1 : -1);
}

/* An option set in every way there is: taken, or refused with the bounds in the message and nothing changed. */
static void try_value(adamod_optimizer *opt, adamod_hyper *h, const adamod_option *o, double value, bool allowed) {
    double was[3] = {-7, -7, -7}, now[3] = {-7, -7, -7};
    char text[64], expected[128];
    adamod_get(opt, o->name, &was[0]);
    adamod_group_get(opt, 1, o->name, &was[1]);
    adamod_hyper_get(h, o->name, &was[2]);
    snprintf(expected, sizeof expected, "%g %s %s %s %g", o->min, o->min_open ? "<" : "<=", o->name,
             o->max_open ? "<" : "<=", o->max);
    for (int way = 0; way < 6; way++) {
        if ((way == 2 || way == 3) && o->optimizer_wide) continue;
        /* what the raw interface has no use for has a test of its own */
        if (way >= 4 && o->optimizer_wide && strcmp(o->name, "grad_scale") != 0 && strcmp(o->name, "seed") != 0)
            continue;
        if (o->kind == ADAMOD_CHOICE && way % 2) continue;
        adamod_status status = ADAMOD_OK;
        snprintf(text, sizeof text, "%.17g", value);
        if (way == 0) status = adamod_set(opt, o->name, value);
        if (way == 1) status = adamod_set_text(opt, o->name, text);
        if (way == 2) status = adamod_group_set(opt, 1, o->name, value);
        if (way == 3) status = adamod_group_set_text(opt, 1, o->name, text);
        if (way == 4) status = adamod_hyper_set(h, o->name, value);
        if (way == 5) status = adamod_hyper_set_text(h, o->name, text);
        if (!CHECK_INT(status, allowed ? ADAMOD_OK : ADAMOD_ERROR_RANGE)) printf("  %s = %.17g\n", o->name, value);
        if (!allowed && strcmp(o->name, "seed") != 0) CHECK_HAS(adamod_last_error(), expected); /* of that see below */
        adamod_get(opt, o->name, &now[0]);
        adamod_group_get(opt, 1, o->name, &now[1]);
        adamod_hyper_get(h, o->name, &now[2]);
        const int which = way / 2;
        CHECK(now[which] == (allowed ? value : was[which]));
        if (way == 0) CHECK(now[1] == now[0]); /* adamod_set is for all groups */
        if (!allowed) CHECK(memcmp(was, now, sizeof was) == 0);
    }
}

static void try_choices(adamod_optimizer *opt, const adamod_option *o) {
    int n = 0;
    double value = -7;
    for (; o->choices[n]; n++) {
        CHECK_INT(adamod_set_text(opt, o->name, o->choices[n]), ADAMOD_OK);
        CHECK_INT(adamod_get(opt, o->name, &value), ADAMOD_OK);
        CHECK_INT(value, n);
    }
    CHECK_INT(o->min, 0);
    CHECK_INT(o->max, n - 1);
}

TEST(bounds_of_every_option) {
    for (int r = 0; adamod_rule_name(r); r++) {
        const char *rule = adamod_rule_name(r);
        adamod_optimizer *opt = NULL;
        adamod_hyper *h = NULL;
        int group, i = 0;
        double value = -7;
        adamod_option o, same;
        CHECK_INT(adamod_create(&opt, rule), ADAMOD_OK);
        CHECK_INT(adamod_hyper_create(&h, rule), ADAMOD_OK);
        if (!opt || !h) return;
        CHECK_INT(adamod_add_group(opt, &group), ADAMOD_OK);
        for (; adamod_option_at(rule, i, &o) == ADAMOD_OK; i++) {
            CHECK_INT(adamod_option_find(rule, o.name, &same), ADAMOD_OK);
            CHECK(same.name == o.name && same.value == o.value && same.min == o.min && same.max == o.max);
            CHECK(o.help && *o.help && !strchr(o.help, '\n'));
            CHECK((o.kind == ADAMOD_CHOICE) == (o.choices != NULL));
            CHECK(!(o.structural && o.optimizer_wide));
            CHECK_INT(adamod_get(opt, o.name, &value), ADAMOD_OK);
            CHECK(value == o.value);
            CHECK_INT(adamod_hyper_get(h, o.name, &value), ADAMOD_OK);
            CHECK(value == o.value);
            const double just_below = o.min == -INFINITY ? NAN : step_from(&o, o.min, -INFINITY);
            const double just_above = o.max == INFINITY ? NAN : step_from(&o, o.max, INFINITY);
            try_value(opt, h, &o, o.value, true);
            try_value(opt, h, &o, o.min, !o.min_open);
            try_value(opt, h, &o, step_from(&o, o.min, INFINITY), true);
            try_value(opt, h, &o, just_below, false);
            try_value(opt, h, &o, o.max, !o.max_open);
            try_value(opt, h, &o, o.max == INFINITY ? DBL_MAX : step_from(&o, o.max, -INFINITY), true);
            try_value(opt, h, &o, just_above, false);
            try_value(opt, h, &o, NAN, false);
            try_value(opt, h, &o, -INFINITY, false);
            try_value(opt, h, &o, -1e300, false);
            if (o.max < INFINITY) try_value(opt, h, &o, INFINITY, false);
            if (o.kind != ADAMOD_REAL) try_value(opt, h, &o, o.min + 0.5, false);
            try_value(opt, h, &o, o.value, true);
            if (o.choices) try_choices(opt, &o);
        }
        CHECK(i >= 13);
        adamod_hyper_free(h);
        adamod_free(opt);
    }
}

TEST(bounds_tell_more_than_six_digits) {
    adamod_optimizer *opt = NULL;
    CHECK_INT(adamod_create(&opt, "adam"), ADAMOD_OK);
    CHECK_INT(adamod_set(opt, "seed", 9007199254740992.0), ADAMOD_ERROR_RANGE);
    /* not "seed is 9.0072e+15, expected ... <= 9.0072e+15" */
    CHECK_HAS(adamod_last_error(), "9007199254740992");
    CHECK_HAS(adamod_last_error(), "9007199254740991");
    adamod_free(opt);
}

TEST(shared_options) {
    static const struct {
        const char *name;
        double value;
        int structural, wide;
    } shared[] = {{"weight_decay", 0, 0, 0},     {"maximize", 0, 0, 0},   {"clip_value", INFINITY, 0, 0},
                  {"low_precision", 0, 1, 0},    {"state_type", 0, 1, 0}, {"grad_scale", 1, 0, 1},
                  {"clip_norm", INFINITY, 0, 1}, {"nonfinite", 0, 0, 1},  {"seed", 0, 0, 1},
                  {"threads", 0, 0, 1}};
    for (int r = 0; adamod_rule_name(r); r++) {
        const char *rule = adamod_rule_name(r);
        adamod_option o = {0};
        for (size_t i = 0; i < sizeof shared / sizeof *shared; i++) {
            CHECK_INT(adamod_option_find(rule, shared[i].name, &o), ADAMOD_OK);
            CHECK(o.value == shared[i].value);
            CHECK_INT(o.structural, shared[i].structural);
            CHECK_INT(o.optimizer_wide, shared[i].wide);
        }
        CHECK_INT(adamod_option_find(rule, "decay", &o), ADAMOD_OK);
        const bool l2 = strstr("sgd adagrad rmsprop adadelta", rule) != NULL;
        CHECK_STR(o.choices[(int)o.value], l2 ? "l2" : "decoupled");
        CHECK_INT(adamod_option_find(rule, "lr", &o), ADAMOD_OK);
        CHECK(!o.structural && !o.optimizer_wide && o.kind == ADAMOD_REAL);
    }
}

/* A rule, an option of it, the value it has when a parameter is added, one that needs other states, and one that does
 * not (or the same again). */
static const struct {
    const char *rule, *option;
    double first, other, same;
} structural[] = {
    {"adamod", "state_type", 0, 1, 0},   {"adamod", "low_precision", 0, 1, 0}, {"sgd", "momentum", 0.9, 0, 0.5},
    {"sgd", "momentum", 0, 0.9, 0},      {"rmsprop", "momentum", 0, 0.5, 0},   {"rmsprop", "momentum", 0.5, 0, 0.25},
    {"rmsprop", "centered", 0, 1, 0},    {"rmsprop", "centered", 1, 0, 1},     {"adagrad", "initial", 0, 0.5, 0},
    {"adagrad", "initial", 0.5, 0, 0.5}, {"adashift", "window", 3, 4, 3},      {"adashift", "spatial", 0, 1, 0},
    {"adashift", "spatial", 1, 0, 1},    {"adafactor", "beta1", 0, 0.5, 0},    {"adafactor", "beta1", 0.5, 0, 0.25},
};

TEST(structural_options) {
    for (size_t i = 0; i < sizeof structural / sizeof *structural; i++) {
        const char *option = structural[i].option;
        world w;
        adamod_option o;
        double value = -7;
        int empty_group = -1;
        world_arrays(&w, structural[i].rule);
        CHECK_INT(adamod_option_find(structural[i].rule, option, &o), ADAMOD_OK);
        CHECK_INT(o.structural, 1);
        CHECK_INT(adamod_create(&w.opt, structural[i].rule), ADAMOD_OK);
        CHECK_INT(adamod_set(w.opt, option, structural[i].other), ADAMOD_OK);
        CHECK_INT(adamod_set(w.opt, option, structural[i].first), ADAMOD_OK);
        CHECK_INT(adamod_add_group(w.opt, &w.group), ADAMOD_OK);
        adamod_tensor t = world_tensor(&w, MATRIX);
        CHECK_INT(adamod_add_tensor(w.opt, 0, &t, NULL), ADAMOD_OK);
        CHECK_INT(adamod_step(w.opt), ADAMOD_OK);
        REFUSED(&w, adamod_set(w.opt, option, structural[i].other), ADAMOD_ERROR_ORDER, option);
        CHECK_HAS(message, "group 0 has parameters already");
        REFUSED(&w, adamod_group_set(w.opt, 0, option, structural[i].other), ADAMOD_ERROR_ORDER,
                "decides which states");
        CHECK_INT(adamod_set(w.opt, option, structural[i].same), ADAMOD_OK);
        CHECK_INT(adamod_get(w.opt, option, &value), ADAMOD_OK);
        CHECK(value == structural[i].same);
        /* A group without parameters is free to differ. */
        CHECK_INT(adamod_group_set(w.opt, w.group, option, structural[i].other), ADAMOD_OK);
        t = world_tensor(&w, HALF);
        CHECK_INT(adamod_add_tensor(w.opt, w.group, &t, NULL), ADAMOD_OK);
        CHECK_INT(adamod_step(w.opt), ADAMOD_OK);
        REFUSED(&w, adamod_set(w.opt, option, structural[i].other), ADAMOD_ERROR_ORDER, "group 0");
        REFUSED(&w, adamod_set(w.opt, option, structural[i].first), ADAMOD_ERROR_ORDER, "group 1");
        CHECK_INT(adamod_add_group(w.opt, &empty_group), ADAMOD_OK);
        CHECK_INT(adamod_group_get(w.opt, empty_group, option, &value), ADAMOD_OK);
        CHECK(value == structural[i].same);
        adamod_free(w.opt);
    }
}

TEST(optimizer_wide_options) {
    world w;
    if (!world_make(&w, "adamod", 3)) return;
    adamod_option o;
    int seen = 0;
    for (int i = 0; adamod_option_at("adamod", i, &o) == ADAMOD_OK; i++) {
        if (!o.optimizer_wide) continue;
        seen++;
        REFUSED(&w, adamod_group_set(w.opt, 0, o.name, o.value), ADAMOD_ERROR_ARGUMENT, "use adamod_set");
        REFUSED(&w, adamod_group_set(w.opt, 1, o.name, o.value), ADAMOD_ERROR_ARGUMENT, o.name);
        if (!o.choices) {
            REFUSED(&w, adamod_group_set_text(w.opt, 1, o.name, "1"), ADAMOD_ERROR_ARGUMENT, "optimizer as a whole");
        }
        double all = -7, one = -8;
        CHECK_INT(adamod_get(w.opt, o.name, &all), ADAMOD_OK);
        CHECK_INT(adamod_group_get(w.opt, 1, o.name, &one), ADAMOD_OK);
        CHECK(all == one);
    }
    CHECK_INT(seen, 5);
    adamod_free(w.opt);
}

/* What an update through raw pointers would not look at is not for a hyper: a clip_norm that is taken and then never
 * clips is worse than one that is refused. */
TEST(hyper_refuses_what_it_would_ignore) {
    adamod_hyper *h = NULL;
    if (!CHECK_INT(adamod_hyper_create(&h, "adamod"), ADAMOD_OK)) return;
    CHECK_INT(adamod_hyper_set(h, "grad_scale", 0.5), ADAMOD_OK);
    CHECK_INT(adamod_hyper_set(h, "seed", 5), ADAMOD_OK);
    CHECK_INT(adamod_hyper_set(h, "clip_norm", 1), ADAMOD_ERROR_ARGUMENT);
    CHECK_INT(adamod_hyper_set_text(h, "nonfinite", "error"), ADAMOD_ERROR_ARGUMENT);
    CHECK_INT(adamod_hyper_set(h, "threads", 2), ADAMOD_ERROR_ARGUMENT);
    adamod_hyper_free(h);
}

TEST(groups) {
    adamod_optimizer *opt = NULL;
    if (!CHECK_INT(adamod_create(&opt, "adam"), ADAMOD_OK)) return;
    float p[3] = {1, 1, 1};
    const float g[3] = {1, 1, 1};
    int groups[2] = {-1, -1};
    double value = -7;
    CHECK_INT(adamod_set(opt, "lr", 0.5), ADAMOD_OK);
    CHECK_INT(adamod_add_group(opt, &groups[0]), ADAMOD_OK);
    CHECK_INT(adamod_group_set(opt, 0, "lr", 0.25), ADAMOD_OK);
    CHECK_INT(adamod_add_group(opt, &groups[1]), ADAMOD_OK);
    CHECK_INT(groups[0], 1);
    CHECK_INT(groups[1], 2);
    const double expected[] = {0.25, 0.5, 0.25};
    for (int i = 0; i < 3; i++) {
        CHECK_INT(adamod_group_get(opt, i, "lr", &value), ADAMOD_OK);
        CHECK(value == expected[i]);
        const adamod_tensor t = {.param = &p[i], .grad = &g[i]};
        CHECK_INT(adamod_add_tensor(opt, i, &t, NULL), ADAMOD_OK);
    }
    CHECK_INT(adamod_get(opt, "lr", &value), ADAMOD_OK);
    CHECK(value == 0.25);
    CHECK_INT(adamod_step(opt), ADAMOD_OK);
    /* Adam's first step is lr. */
    for (int i = 0; i < 3; i++) CHECK_CLOSE(p[i], 1 - expected[i], 1e-5);
    CHECK_INT(adamod_set(opt, "lr", 0), ADAMOD_OK);
    float still[3];
    memcpy(still, p, sizeof p);
    CHECK_INT(adamod_step(opt), ADAMOD_OK);
    CHECK(memcmp(still, p, sizeof p) == 0);
    adamod_free(opt);
}

/* ---- Parameters: arrays, sizes, names ----------------------------------------------------------------------------- */

TEST(overlaps) {
    world w;
    if (!world_make(&w, "adamod", 3)) return;
    float more[12] = {0};
    void *state = NULL;
    adamod_tensor t = {.name = "t", .param = more, .grad = more + 4, .ndim = 1, .shape = {4}};
    const struct {
        void *param;
        const void *grad;
        const char *says;
    } refused[] = {
        {more, more, "t: param and grad overlap"},
        {more, more + 3, "t: param and grad overlap"},
        {more + 3, more, "t: param and grad overlap"},
        {w.matrix, more, "t: its parameters overlap those of matrix"},
        {w.matrix + 34, more, "overlap those of matrix"},
        {w.half, more, "overlap those of half"},
        {w.frozen, NULL, "overlap those of frozen"},
        {w.matrix_grad + 2, more, "t: its parameters overlap the gradient of matrix"},
        {w.half_grad, NULL, "overlap the gradient of half"},
        {more, w.matrix + 31, "t: its gradient overlaps the parameters of matrix"},
        {more, w.frozen, "t: its gradient overlaps the parameters of frozen"},
    };
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++) {
        t.param = refused[i].param;
        t.grad = refused[i].grad;
        REFUSED(&w, adamod_add_tensor(w.opt, 0, &t, NULL), ADAMOD_ERROR_ARGUMENT, refused[i].says);
    }
    REFUSED(&w, adamod_set_param(w.opt, MATRIX, w.matrix_grad), ADAMOD_ERROR_ARGUMENT, "matrix: param and grad");
    REFUSED(&w, adamod_set_grad(w.opt, MATRIX, w.matrix), ADAMOD_ERROR_ARGUMENT, "matrix: param and grad");
    REFUSED(&w, adamod_set_param(w.opt, FROZEN, w.matrix + 1), ADAMOD_ERROR_ARGUMENT, "frozen: its parameters overlap");
    REFUSED(&w, adamod_set_grad(w.opt, FROZEN, w.matrix + 31), ADAMOD_ERROR_ARGUMENT, "frozen: its gradient overlaps");
    REFUSED(&w, adamod_set_param(w.opt, FROZEN, w.matrix_grad), ADAMOD_ERROR_ARGUMENT, "the gradient of matrix");
    REFUSED(&w, adamod_add(w.opt, "t", w.matrix, NULL, 0, NULL), ADAMOD_ERROR_ARGUMENT, "t: its parameters overlap");
    /* The optimizer's own arrays are no exception. */
    CHECK_INT(adamod_state(w.opt, MATRIX, "exp_avg", &state, NULL, NULL), ADAMOD_OK);
    REFUSED(&w, adamod_set_grad(w.opt, MATRIX, state), ADAMOD_ERROR_ARGUMENT, "overlap");
    REFUSED(&w, adamod_set_param(w.opt, FROZEN, state), ADAMOD_ERROR_ARGUMENT, "overlap");

    /* Neighbours do not overlap, and gradients, which are only read, may. */
    t.param = more;
    t.grad = more + 4;
    CHECK_INT(adamod_add_tensor(w.opt, 0, &t, NULL), ADAMOD_OK);
    t.name = "u";
    t.param = more + 8;
    CHECK_INT(adamod_add_tensor(w.opt, 0, &t, NULL), ADAMOD_OK);
    /* An array may be set to itself, and one without elements lie anywhere. */
    CHECK_INT(adamod_set_param(w.opt, MATRIX, w.matrix), ADAMOD_OK);
    CHECK_INT(adamod_set_param(w.opt, EMPTY, w.matrix), ADAMOD_OK);
    CHECK_INT(adamod_set_param(w.opt, EMPTY, NULL), ADAMOD_OK);
    CHECK_INT(adamod_step(w.opt), ADAMOD_OK);
    adamod_free(w.opt);
}

TEST(misaligned) {
    world w;
    if (!world_make(&w, "adamod", 3)) return;
    _Alignas(8) char bytes[200] = {0};
    static const adamod_type types[] = {ADAMOD_F32, ADAMOD_F64, ADAMOD_BF16, ADAMOD_F16};
    for (int i = 0; i < 4; i++) {
        const int size = (int)type_size(types[i]);
        for (int offset = 1; offset < size; offset++) {
            adamod_tensor t = {.name = "t", .param = bytes + offset, .param_type = types[i], .ndim = 1, .shape = {3}};
            REFUSED(&w, adamod_add_tensor(w.opt, 0, &t, NULL), ADAMOD_ERROR_ARGUMENT, "t: param is not aligned");
            t.param = bytes + 64;
            t.grad = bytes + offset;
            t.grad_type = types[i];
            REFUSED(&w, adamod_add_tensor(w.opt, 0, &t, NULL), ADAMOD_ERROR_ARGUMENT, "t: grad is not aligned");
        }
    }
    REFUSED(&w, adamod_set_param(w.opt, SCALAR, bytes + 4), ADAMOD_ERROR_ARGUMENT, "scalar: param is not aligned");
    REFUSED(&w, adamod_set_grad(w.opt, MATRIX, bytes + 2), ADAMOD_ERROR_ARGUMENT, "matrix: grad is not aligned");
    /* A vector's alignment is not needed, only an element's. */
    adamod_tensor t = {.name = "t",
                       .param = bytes + 2,
                       .param_type = ADAMOD_BF16,
                       .ndim = 1,
                       .shape = {17},
                       .grad = bytes + 100,
                       .grad_type = ADAMOD_F32};
    CHECK_INT(adamod_add_tensor(w.opt, 0, &t, NULL), ADAMOD_OK);
    CHECK_INT(adamod_step(w.opt), ADAMOD_OK);
    adamod_free(w.opt);
}

TEST(sizes) {
    world w;
    if (!world_make(&w, "adamod", 3)) return;
    float x[4] = {0};
    int64_t id = 7;
    const adamod_tensor refused[] = {
        {.name = "t", .param = x, .ndim = 1, .shape = {-1}},
        {.name = "t", .param = x, .ndim = 2, .shape = {2, -2}},
        {.name = "t", .param = x, .ndim = 2, .shape = {-2, -2}},
        {.name = "t", .param = x, .ndim = 1, .shape = {INT64_MAX}},
        {.name = "t", .param = x, .ndim = 1, .shape = {INT64_MIN}},
        {.name = "t", .param = x, .ndim = 1, .shape = {INT64_MAX / 8 + 1}},
        {.name = "t", .param = x, .ndim = 2, .shape = {INT64_MAX / 2, 3}},
        {.name = "t", .param = x, .ndim = 3, .shape = {1 << 30, 1 << 30, 1 << 30}},
        {.name = "t", .param = x, .ndim = 8, .shape = {1000, 1000, 1000, 1000, 1000, 1000, 1000, 1000}},
        {.name = "t", .param = x, .ndim = -1},
        {.name = "t", .param = x, .ndim = 9},
        {.name = "t", .param = x, .ndim = INT32_MAX},
        {.name = "t", .param = x, .ndim = INT32_MIN},
        {.name = "t", .param = x, .ndim = 1, .shape = {4}, .param_type = (adamod_type)4},
        {.name = "t", .param = x, .ndim = 1, .shape = {4}, .param_type = (adamod_type)-1},
        {.name = "t", .param = x, .ndim = 1, .shape = {4}, .grad_type = (adamod_type)99},
    };
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++) {
        REFUSED(&w, adamod_add_tensor(w.opt, 0, &refused[i], &id), ADAMOD_ERROR_ARGUMENT, "t: ");
    }
    CHECK_INT(id, 7);
    const int64_t shape[9] = {1, 1, 1, 1, 1, 1, 1, 1, 1};
    REFUSED(&w, adamod_add(w.opt, "t", x, NULL, 9, shape), ADAMOD_ERROR_ARGUMENT, "ndim is 9");
    REFUSED(&w, adamod_add(w.opt, "t", x, NULL, -1, shape), ADAMOD_ERROR_ARGUMENT, "ndim is -1");
    CHECK_INT(adamod_add(w.opt, "t", x, NULL, 8, shape), ADAMOD_OK);
    /* A zero makes a shape empty wherever it stands. */
    const adamod_tensor empty[] = {
        {.name = "e", .param = x, .ndim = 3, .shape = {0, INT64_MAX, INT64_MAX}},
        {.name = "f", .param = x, .ndim = 3, .shape = {INT64_MAX, INT64_MAX, 0}},
    };
    for (int i = 0; i < 2; i++) CHECK_INT(adamod_add_tensor(w.opt, 0, &empty[i], NULL), ADAMOD_OK);
    CHECK_INT(adamod_step(w.opt), ADAMOD_OK);
    adamod_free(w.opt);

    /* No memory for it, which is another thing. */
    world_arrays(&w, "adamod");
    CHECK_INT(adamod_create(&w.opt, "adamod"), ADAMOD_OK);
    const adamod_tensor huge = {.name = "huge", .param = x, .ndim = 1, .shape = {INT64_MAX / 8}};
    REFUSED(&w, adamod_add_tensor(w.opt, 0, &huge, NULL), ADAMOD_ERROR_MEMORY, "huge: no memory for exp_avg");
    adamod_free(w.opt);

    /* Sizes of states may overflow where those of parameters do not. */
    world_arrays(&w, "adashift");
    CHECK_INT(adamod_create(&w.opt, "adashift"), ADAMOD_OK);
    const adamod_tensor queue = {.name = "t", .param = x, .ndim = 1, .shape = {INT64_MAX / 32}};
    const adamod_tensor deep = {.name = "t", .param = x, .ndim = 8, .shape = {1, 1, 1, 1, 1, 1, 2, 2}};
    REFUSED(&w, adamod_add_tensor(w.opt, 0, &queue, NULL), ADAMOD_ERROR_ARGUMENT, "grad_queue: size overflows");
    REFUSED(&w, adamod_add_tensor(w.opt, 0, &deep, NULL), ADAMOD_ERROR_ARGUMENT, "at most 7 dimensions");
    adamod_free(w.opt);
}

TEST(names_of_parameters) {
    world w;
    if (!world_make(&w, "adamod", 3)) return;
    float x[8] = {0};
    adamod_tensor t = {.name = "matrix", .param = x};
    REFUSED(&w, adamod_add_tensor(w.opt, 0, &t, NULL), ADAMOD_ERROR_NAME, "matrix: there is a parameter of this name");
    REFUSED(&w, adamod_add_tensor(w.opt, 1, &t, NULL), ADAMOD_ERROR_NAME, "matrix: there is a parameter of this name");
    REFUSED(&w, adamod_add(w.opt, "frozen", x, NULL, 0, NULL), ADAMOD_ERROR_NAME, "frozen: there is");
    /* Names given by number: this one will be param.6, so the next without a name is taken already. */
    CHECK_INT(adamod_add(w.opt, "param.6", x, NULL, 0, NULL), ADAMOD_OK);
    REFUSED(&w, adamod_add(w.opt, NULL, x + 1, NULL, 0, NULL), ADAMOD_ERROR_NAME, "param.6: there is");
    CHECK_INT(adamod_add(w.opt, "", x + 1, NULL, 0, NULL), ADAMOD_OK);
    CHECK_INT(adamod_add(w.opt, NULL, x + 2, NULL, 0, NULL), ADAMOD_OK);
    REFUSED(&w, adamod_set_param(w.opt, 7, NULL), ADAMOD_ERROR_ARGUMENT, "param.7: ");
    /* Names are copied. */
    char name[] = "mine";
    CHECK_INT(adamod_add(w.opt, name, x + 3, NULL, 0, NULL), ADAMOD_OK);
    name[0] = 'X';
    REFUSED(&w, adamod_set_param(w.opt, 8, NULL), ADAMOD_ERROR_ARGUMENT, "mine: ");
    CHECK_INT(adamod_tensors(w.opt), 9);
    adamod_free(w.opt);
}

TEST(many_parameters) {
    enum { N = 500 };
    static float p[N], g[N];
    adamod_optimizer *opt = NULL;
    if (!CHECK_INT(adamod_create(&opt, "adam"), ADAMOD_OK)) return;
    CHECK_INT(adamod_set(opt, "lr", 0.5), ADAMOD_OK);
    for (int i = 0; i < N; i++) {
        p[i] = 0;
        g[i] = i % 2 ? 1 : -1;
        int64_t id = -1;
        const adamod_tensor t = {.param = &p[i], .grad = &g[i]};
        CHECK_INT(adamod_add_tensor(opt, 0, &t, &id), ADAMOD_OK);
        CHECK_INT(id, i);
    }
    CHECK_INT(adamod_tensors(opt), N);
    CHECK_INT(adamod_step(opt), ADAMOD_OK);
    for (int i = 0; i < N; i++) CHECK_CLOSE(p[i], i % 2 ? -0.5 : 0.5, 1e-5);
    adamod_free(opt);
}

static int64_t steps_of(const adamod_optimizer *opt, int64_t id) {
    int64_t steps = -1;
    CHECK_INT(adamod_tensor_steps(opt, id, &steps), ADAMOD_OK);
    return steps;
}

TEST(frozen_parameters) {
    world w;
    if (!world_make(&w, "adamod", 3)) return;
    world other;
    if (!world_make(&other, "adamod", 0)) return;
    CHECK_INT(adamod_steps(w.opt), 3);
    CHECK_INT(steps_of(w.opt, MATRIX), 3);
    CHECK_INT(steps_of(w.opt, FROZEN), 0);
    /* Thawed: its own first update is its first, with the bias corrections of a first. */
    CHECK_INT(adamod_set_grad(w.opt, FROZEN, w.frozen_grad), ADAMOD_OK);
    CHECK_INT(adamod_step(w.opt), ADAMOD_OK);
    CHECK_INT(adamod_set_grad(other.opt, FROZEN, other.frozen_grad), ADAMOD_OK);
    CHECK_INT(adamod_step(other.opt), ADAMOD_OK);
    CHECK(memcmp(w.frozen, other.frozen, sizeof w.frozen) == 0);
    CHECK(w.frozen[0] != (float)noise(500));
    CHECK_INT(steps_of(w.opt, FROZEN), 1);
    CHECK_INT(steps_of(w.opt, MATRIX), 4);
    CHECK_INT(adamod_steps(w.opt), 4);
    /* Frozen: nothing of it moves, states included. */
    CHECK_INT(adamod_set_grad(w.opt, MATRIX, NULL), ADAMOD_OK);
    snapshot *then = calloc(1, sizeof *then), *now = calloc(1, sizeof *now);
    if (!then || !now) abort();
    put_states(then, w.opt, MATRIX);
    put(then, w.matrix, sizeof w.matrix);
    for (int i = 0; i < 3; i++) CHECK_INT(adamod_step(w.opt), ADAMOD_OK);
    put_states(now, w.opt, MATRIX);
    put(now, w.matrix, sizeof w.matrix);
    CHECK(then->n == now->n && memcmp(then->bytes, now->bytes, now->n) == 0);
    CHECK_INT(steps_of(w.opt, MATRIX), 4);
    CHECK_INT(steps_of(w.opt, FROZEN), 4);
    CHECK_INT(adamod_steps(w.opt), 7);
    /* Other arrays: the parameter goes on where it was told to. */
    float moved[4], moved_grad[4];
    memcpy(moved, w.frozen, sizeof moved);
    memcpy(moved_grad, w.frozen_grad, sizeof moved);
    float left[4];
    memcpy(left, w.frozen, sizeof left);
    CHECK_INT(adamod_set_param(w.opt, FROZEN, moved), ADAMOD_OK);
    CHECK_INT(adamod_set_grad(w.opt, FROZEN, moved_grad), ADAMOD_OK);
    CHECK_INT(adamod_step(w.opt), ADAMOD_OK);
    CHECK(memcmp(w.frozen, left, sizeof left) == 0);
    CHECK(memcmp(moved, left, sizeof left) != 0);
    CHECK_INT(steps_of(w.opt, FROZEN), 5);
    /* All frozen: an update of nothing. */
    for (int i = 0; i < PARAMETERS; i++) CHECK_INT(adamod_set_grad(w.opt, i, NULL), ADAMOD_OK);
    CHECK_INT(adamod_set(w.opt, "clip_norm", 1), ADAMOD_OK);
    CHECK_INT(adamod_step(w.opt), ADAMOD_OK);
    CHECK_INT(adamod_steps(w.opt), 9);
    CHECK(adamod_grad_norm(w.opt) == 0);
    free(then);
    free(now);
    adamod_free(w.opt);
    adamod_free(other.opt);
}

TEST(frozen_under_every_rule) {
    for (int r = 0; adamod_rule_name(r); r++) {
        world w, frozen_first;
        if (!world_make(&w, adamod_rule_name(r), 0) || !world_make(&frozen_first, adamod_rule_name(r), 13)) return;
        /* 13 updates without it, then 12 with it, and 12 from the start: the same. */
        adamod_set_grad(w.opt, FROZEN, w.frozen_grad);
        adamod_set_grad(frozen_first.opt, FROZEN, frozen_first.frozen_grad);
        for (int i = 0; i < 12; i++) {
            CHECK_INT(adamod_step(w.opt), ADAMOD_OK);
            CHECK_INT(adamod_step(frozen_first.opt), ADAMOD_OK);
        }
        CHECK(memcmp(w.frozen, frozen_first.frozen, sizeof w.frozen) == 0);
        CHECK(w.frozen[1] != (float)noise(501));
        for (int i = 0; i < 4; i++) CHECK(isfinite(w.frozen[i]));
        adamod_free(w.opt);
        adamod_free(frozen_first.opt);
    }
}

TEST(empty_arrays_and_scalars) {
    for (int r = 0; adamod_rule_name(r); r++) {
        adamod_optimizer *opt = NULL;
        float scalar = 1, same = 1;
        const float grad = 0.5f;
        void *data = &opt;
        int64_t count = -1;
        if (!CHECK_INT(adamod_create(&opt, adamod_rule_name(r)), ADAMOD_OK)) return;
        CHECK_INT(adamod_add(opt, "nothing", NULL, NULL, 1, (const int64_t[]){0}), ADAMOD_OK);
        CHECK_INT(adamod_add(opt, "nothing with a gradient", NULL, &grad, 3, (const int64_t[]){4, 0, 2}), ADAMOD_OK);
        CHECK_INT(adamod_add(opt, "scalar", &scalar, &grad, 0, NULL), ADAMOD_OK);
        CHECK_INT(adamod_add(opt, "of one dimension", &same, &grad, 1, (const int64_t[]){1}), ADAMOD_OK);
        for (int i = 0; i < 15; i++) CHECK_INT(adamod_step(opt), ADAMOD_OK);
        CHECK(scalar == same);
        CHECK(scalar < 1);
        CHECK_INT(steps_of(opt, 0), 0);
        CHECK_INT(steps_of(opt, 1), 15);
        if (adamod_state(opt, 1, "exp_avg", &data, NULL, &count) == ADAMOD_OK) {
            CHECK(data == NULL);
            CHECK_INT(count, 0);
        }
        if (adamod_state(opt, 2, "exp_avg", &data, NULL, &count) == ADAMOD_OK) CHECK_INT(count, 1);
        adamod_free(opt);
    }
}

/* ---- Steps -------------------------------------------------------------------------------------------------------- */

TEST(step_without_parameters) {
    world w;
    world_arrays(&w, "adamod");
    CHECK_INT(adamod_create(&w.opt, "adamod"), ADAMOD_OK);
    REFUSED(&w, adamod_step(w.opt), ADAMOD_ERROR_ORDER, "no parameters were added");
    CHECK_INT(adamod_steps(w.opt), 0);
    CHECK(adamod_grad_norm(w.opt) < 0);
    adamod_free(w.opt);
}

TEST(nonfinite_gradients) {
    static const double bad[] = {NAN, INFINITY, -INFINITY};
    for (int k = 0; k < 3; k++) {
        world w, clean;
        if (!world_make(&w, "adamod", 3) || !world_make(&clean, "adamod", 3)) return;
        CHECK_INT(adamod_set_text(w.opt, "nonfinite", "error"), ADAMOD_OK);
        CHECK_INT(adamod_step(w.opt), ADAMOD_OK);
        CHECK_INT(adamod_step(clean.opt), ADAMOD_OK);
        /* one in each array in turn, and the message names the array */
        w.matrix_grad[34] = (float)bad[k];
        REFUSED(&w, adamod_step(w.opt), ADAMOD_ERROR_NONFINITE, "matrix: its gradient holds a NaN or an infinity");
        w.matrix_grad[34] = clean.matrix_grad[34];
        w.half_grad[8] = to_bf16(bad[k]);
        REFUSED(&w, adamod_step(w.opt), ADAMOD_ERROR_NONFINITE, "half: its gradient");
        w.half_grad[8] = clean.half_grad[8];
        w.scalar_grad = bad[k];
        REFUSED(&w, adamod_step(w.opt), ADAMOD_ERROR_NONFINITE, "scalar: its gradient");
        CHECK_INT(adamod_steps(w.opt), 4);
        CHECK_INT(adamod_skipped(w.opt), 0);
        CHECK_INT(adamod_set_text(w.opt, "nonfinite", "skip"), ADAMOD_OK);
        take(&w, &before);
        CHECK_INT(adamod_step(w.opt), ADAMOD_OK);
        CHECK_INT(adamod_step(w.opt), ADAMOD_OK);
        CHECK_INT(adamod_skipped(w.opt), 2);
        CHECK_INT(adamod_steps(w.opt), 4);
        CHECK(!isfinite(adamod_grad_norm(w.opt)));
        CHECK_INT(steps_of(w.opt, MATRIX), 4);
        w.scalar_grad = clean.scalar_grad;
        CHECK_INT(adamod_step(w.opt), ADAMOD_OK);
        CHECK_INT(adamod_step(clean.opt), ADAMOD_OK);
        /* after all that the two have done the same */
        CHECK(memcmp(w.matrix, clean.matrix, sizeof w.matrix) == 0);
        CHECK(memcmp(w.half, clean.half, sizeof w.half) == 0);
        CHECK(w.scalar == clean.scalar);
        CHECK_INT(adamod_set_text(w.opt, "nonfinite", "pass"), ADAMOD_OK);
        w.matrix_grad[0] = (float)bad[k];
        CHECK_INT(adamod_step(w.opt), ADAMOD_OK);
        CHECK(!isfinite(w.matrix[0]));
        CHECK(isfinite(w.matrix[1]));
        CHECK(adamod_grad_norm(w.opt) < 0);
        adamod_free(w.opt);
        adamod_free(clean.opt);
    }
}

/* Whatever the program's locale writes between whole and fraction. */
TEST(numbers_have_a_point_in_every_locale) {
    static const char *const names[] = {"de_DE.UTF-8", "de_DE.utf8", "fr_FR.UTF-8",
                                        "nl_NL.UTF-8", "de_DE",      "ru_RU.UTF-8"};
    const char *found = NULL;
    for (size_t i = 0; i < sizeof names / sizeof *names && !found; i++) found = setlocale(LC_NUMERIC, names[i]);
    if (!found) SKIP("no locale with a decimal comma is installed");
    CHECK_INT(*localeconv()->decimal_point, ',');
    adamod_optimizer *opt;
    adamod_schedule *s;
    double x = 0;
    CHECK_INT(adamod_create(&opt, "adamod"), ADAMOD_OK);
    CHECK_INT(adamod_set_text(opt, "beta1", "0.75"), ADAMOD_OK);
    CHECK_INT(adamod_get(opt, "beta1", &x), ADAMOD_OK);
    CHECK(x == 0.75);
    CHECK_INT(adamod_set_text(opt, "beta1", "0,75"), ADAMOD_ERROR_RANGE);
    CHECK_INT(adamod_set_text(opt, "beta1", "1.5"), ADAMOD_ERROR_RANGE);
    CHECK_HAS(adamod_last_error(), "1.5");
    if (CHECK_INT(adamod_schedule_parse(&s, "multistep(1;0.5)"), ADAMOD_OK)) adamod_schedule_free(s);
    CHECK_INT(*localeconv()->decimal_point, ',');
    adamod_free(opt);
    setlocale(LC_NUMERIC, "C");
}

/* Finite as it is given, and not as an update in f32 sees it. */
TEST(gradients_beyond_f32) {
    static const struct {
        double g, scale, clip;
        bool finite;
    } cases[] = {{1e300, 1, INFINITY, false},   {1e300, 1, 1, false},  {3.5e38, 1, INFINITY, false},
                 {3.4e38, 1, INFINITY, true},   {3.4e38, 1, 1, true},  {1e300, 1e-300, INFINITY, false},
                 {1e10, 1e30, INFINITY, false}, {1e10, 1e30, 1, true}, {1e7, 1e30, INFINITY, true},
                 {0, 1e300, INFINITY, false}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        for (int wide = 0; wide < 2; wide++) {
            adamod_optimizer *opt;
            double p64 = 1, g = cases[i].g;
            float p32 = 1;
            adamod_tensor t = {.name = "w", .param = wide ? (void *)&p64 : &p32, .grad = &g, .grad_type = ADAMOD_F64};
            t.param_type = wide ? ADAMOD_F64 : ADAMOD_F32;
            CHECK_INT(adamod_create(&opt, "sgd"), ADAMOD_OK);
            CHECK_INT(adamod_set(opt, "grad_scale", cases[i].scale), ADAMOD_OK);
            CHECK_INT(adamod_set(opt, "clip_norm", cases[i].clip), ADAMOD_OK);
            CHECK_INT(adamod_set_text(opt, "nonfinite", "error"), ADAMOD_OK);
            CHECK_INT(adamod_add_tensor(opt, 0, &t, NULL), ADAMOD_OK);
            const bool finite = wide || cases[i].finite;
            if (!CHECK_INT(adamod_step(opt), finite ? ADAMOD_OK : ADAMOD_ERROR_NONFINITE)) printf("    case %zu\n", i);
            if (!finite) CHECK_HAS(adamod_last_error(), "w: its gradient holds a NaN or an infinity in update 1");
            CHECK_INT(adamod_set_text(opt, "nonfinite", "skip"), ADAMOD_OK);
            CHECK_INT(adamod_step(opt), ADAMOD_OK);
            CHECK_INT(adamod_skipped(opt), !finite);
            CHECK(isfinite(p32) && isfinite(p64));
            adamod_free(opt);
        }
    }
}

TEST(reports_of_attempts) {
    world w;
    adamod_step_report r = {0};
    adamod_schedule *s;
    if (!world_make(&w, "adamod", 0)) return;
    CHECK_INT(adamod_report(NULL, 1, &r), ADAMOD_ERROR_ARGUMENT);
    CHECK_INT(adamod_report(w.opt, 1, NULL), ADAMOD_ERROR_ARGUMENT);
    CHECK_INT(adamod_report(w.opt, 0, &r), ADAMOD_ERROR_RANGE);
    CHECK_INT(adamod_report(w.opt, 1, &r), ADAMOD_ERROR_ORDER);
    CHECK_HAS(adamod_last_error(), "attempt 1 is not done yet");
    if (!CHECK_INT(adamod_schedule_warmup(&s, 0, 20), ADAMOD_OK)) return;
    CHECK_INT(adamod_set_schedule(w.opt, 0, "lr", s), ADAMOD_OK);
    adamod_schedule_free(s);
    CHECK_INT(adamod_set_text(w.opt, "nonfinite", "skip"), ADAMOD_OK);
    for (int t = 1; t <= 12; t++) { /* the tenth is skipped */
        const double kept = w.scalar_grad;
        double lr = 0;
        CHECK_INT(adamod_scheduled(w.opt, 0, "lr", &lr), ADAMOD_OK);
        if (t == 10) w.scalar_grad = NAN;
        CHECK_INT(adamod_step(w.opt), ADAMOD_OK);
        w.scalar_grad = kept;
        CHECK_INT(adamod_report(w.opt, t, &r), ADAMOD_OK);
        CHECK_INT(r.attempt, t);
        CHECK_INT(r.taken, t != 10);
        CHECK(r.lr == lr);
        CHECK(t == 10 ? r.grad_norm != r.grad_norm : r.grad_norm == adamod_grad_norm(w.opt));
    }
    CHECK_INT(adamod_steps(w.opt) + adamod_skipped(w.opt), 12);
    for (int t = 5; t <= 12; t++) CHECK_INT(adamod_report(w.opt, t, &r), ADAMOD_OK);
    CHECK_INT(adamod_report(w.opt, 4, &r), ADAMOD_ERROR_ORDER);
    CHECK_INT(adamod_report(w.opt, 13, &r), ADAMOD_ERROR_ORDER);
    CHECK_INT(adamod_save(w.opt, "reports.tmp"), ADAMOD_OK);
    CHECK_INT(adamod_load(w.opt, "reports.tmp"), ADAMOD_OK);
    CHECK_INT(adamod_report(w.opt, 12, &r), ADAMOD_ERROR_ORDER);
    remove("reports.tmp");
    adamod_free(w.opt);
}

/* A gradient that is not looked at cannot stop a step. */
TEST(nonfinite_frozen_gradients) {
    world w;
    if (!world_make(&w, "adamod", 3)) return;
    CHECK_INT(adamod_set_text(w.opt, "nonfinite", "error"), ADAMOD_OK);
    w.matrix_grad[3] = NAN;
    CHECK_INT(adamod_set_grad(w.opt, MATRIX, NULL), ADAMOD_OK);
    CHECK_INT(adamod_step(w.opt), ADAMOD_OK);
    CHECK_INT(adamod_set_grad(w.opt, MATRIX, w.matrix_grad), ADAMOD_OK);
    REFUSED(&w, adamod_step(w.opt), ADAMOD_ERROR_NONFINITE, "in update 5");
    adamod_free(w.opt);
}

TEST(gradient_norm) {
    world w;
    if (!world_make(&w, "sgd", 1)) return;
    double sum = 0, norm;
    for (int i = 0; i < 35; i++) sum += (double)w.matrix_grad[i] * (double)w.matrix_grad[i];
    for (int i = 0; i < 9; i++) {
        const uint32_t bits = (uint32_t)w.half_grad[i] << 16;
        float f;
        memcpy(&f, &bits, sizeof f);
        sum += (double)f * (double)f;
    }
    norm = sqrt(sum + w.scalar_grad * w.scalar_grad);
    CHECK(adamod_grad_norm(w.opt) == -1); /* nobody wanted it */
    CHECK_INT(adamod_set(w.opt, "clip_norm", 1e9), ADAMOD_OK);
    CHECK_INT(adamod_step(w.opt), ADAMOD_OK);
    CHECK_CLOSE(adamod_grad_norm(w.opt), norm, 1e-12 * norm);
    CHECK_INT(adamod_set(w.opt, "grad_scale", 0.25), ADAMOD_OK);
    CHECK_INT(adamod_set(w.opt, "clip_norm", 1e-3), ADAMOD_OK); /* before clipping, after scaling */
    CHECK_INT(adamod_set(w.opt, "lr", 1), ADAMOD_OK);
    const double p = w.scalar;
    CHECK_INT(adamod_step(w.opt), ADAMOD_OK);
    CHECK_CLOSE(adamod_grad_norm(w.opt), norm / 4, 1e-12 * norm);
    CHECK_CLOSE(p - w.scalar, w.scalar_grad / norm * 1e-3, 1e-12);
    CHECK_INT(adamod_set(w.opt, "clip_norm", INFINITY), ADAMOD_OK);
    CHECK_INT(adamod_step(w.opt), ADAMOD_OK);
    CHECK(adamod_grad_norm(w.opt) == -1);
    CHECK_INT(adamod_collect(w.opt, 1), ADAMOD_OK);
    CHECK_INT(adamod_step(w.opt), ADAMOD_OK);
    CHECK_CLOSE(adamod_grad_norm(w.opt), norm / 4, 1e-12 * norm);
    adamod_free(w.opt);
}

/* ---- Memory ------------------------------------------------------------------------------------------------------- */

static adamod_allocator accounting(accounts *a) { return (adamod_allocator){account_alloc, account_free, a}; }

TEST(allocator_accounts) {
    for (int r = 0; adamod_rule_name(r); r++) {
        accounts a = {0};
        const adamod_allocator allocator = accounting(&a);
        world w, usual;
        size_t states = 1;
        world_arrays(&w, adamod_rule_name(r));
        if (!CHECK_INT(adamod_create_with(&w.opt, adamod_rule_name(r), &allocator), ADAMOD_OK)) return;
        CHECK_INT(a.live, 1); /* the handle itself */
        const size_t handle = a.bytes;
        for (int i = 0; i < PARAMETERS; i++) {
            const adamod_tensor t = world_tensor(&w, i);
            CHECK_INT(adamod_add_tensor(w.opt, 0, &t, NULL), ADAMOD_OK);
        }
        adamod_memory(w.opt, &states, NULL);
        CHECK_INT(a.bytes - handle, states);
        const int calls = a.calls;
        for (int i = 0; i < 12; i++) CHECK_INT(adamod_step(w.opt), ADAMOD_OK);
        CHECK_INT(a.calls, calls); /* a step takes nothing */
        /* Memory that came filled with 0xa5 makes no difference. */
        if (!world_make(&usual, adamod_rule_name(r), 0)) return;
        adamod_group_set(usual.opt, 1, "lr", 0);
        double lr = 0;
        adamod_group_get(usual.opt, 0, "lr", &lr);
        adamod_group_set(usual.opt, 1, "lr", lr);
        for (int i = 0; i < 12; i++) CHECK_INT(adamod_step(usual.opt), ADAMOD_OK);
        CHECK(memcmp(w.matrix, usual.matrix, sizeof w.matrix) == 0);
        CHECK(memcmp(w.half, usual.half, sizeof w.half) == 0);
        CHECK(w.scalar == usual.scalar);
        adamod_free(usual.opt);
        adamod_free(w.opt);
        CHECK_INT(a.live, 0);
        CHECK_INT(a.bytes, 0);
        CHECK_INT(a.errors, 0);
    }
}

/* What is done in a life of an optimizer. Every call may meet a failing allocation; it then has changed nothing, is
 * made once more, and all ends as if nothing had been. */
static long armed;          /* which allocation fails; counted down over all calls */
static int memory_errors;   /* calls that failed */
static char directory[512]; /* for a file */

static void leave_directory(void) {
    char path[600];
    snprintf(path, sizeof path, "%s/state", directory);
    unlink(path);
    rmdir(directory);
}

static const char *state_path(void) {
    static char path[600];
    if (!*directory) {
        /* in memory if possible, where syncing costs nothing */
        const char *tmp = getenv("TMPDIR");
        tmp = access("/dev/shm", W_OK) == 0 ? "/dev/shm" : tmp ? tmp : "/tmp";
        snprintf(directory, sizeof directory, "%s/adamod_api_XXXXXX", tmp);
        if (!mkdtemp(directory)) abort();
        atexit(leave_directory);
        snprintf(path, sizeof path, "%s/state", directory);
    }
    return path;
}

#define TRY(w, call)                                                                                                   \
    do {                                                                                                               \
        take(w, &before);                                                                                              \
        countdown = armed;                                                                                             \
        adamod_status status_ = (call);                                                                                \
        armed = countdown;                                                                                             \
        countdown = 0;                                                                                                 \
        if (status_ == ADAMOD_ERROR_MEMORY) {                                                                          \
            memory_errors++;                                                                                           \
            check_true(strstr(adamod_last_error(), "memory") != NULL, #call, __FILE__, __LINE__);                      \
            check_true(unchanged(w), #call " changes nothing", __FILE__, __LINE__);                                    \
            status_ = (call);                                                                                          \
        }                                                                                                              \
        check_int(status_, ADAMOD_OK, #call, __FILE__, __LINE__);                                                      \
    } while (0)

static void life_of_schedules(world *w) {
    adamod_schedule *s = NULL, *t = NULL, *chain = NULL;
    const int64_t milestones[] = {2, 3}, lengths[] = {2};
    TRY(w, adamod_schedule_multistep(&s, 2, milestones, 0.5));
    TRY(w, adamod_schedule_parse(&t, "warmup(0,2)*2 > multistep(1;2)*1 > constant"));
    const adamod_schedule *parts[] = {s, t};
    TRY(w, adamod_schedule_chain(&chain, 2, parts, lengths));
    TRY(w, adamod_set_schedule(w->opt, -1, "lr", chain));
    TRY(w, adamod_set_schedule(w->opt, 0, "beta1", s));
    TRY(w, adamod_set_schedule(w->opt, 0, "beta1", NULL));
    adamod_schedule_free(s);
    adamod_schedule_free(t);
    adamod_schedule_free(chain);
}

static void life_of_raw(world *w) {
    adamod_hyper *h = NULL;
    double norm = 0;
    float m[4] = {0}, v[4] = {0}, s[4] = {0};
    TRY(w, adamod_hyper_create(&h, "adamod"));
    const adamod_span x = {.param = w->frozen, .grad = w->frozen_grad, .state = {m, v, s}, .count = 4, .step = 1};
    TRY(w, adamod_update(h, &x, 1, NULL));
    TRY(w, adamod_norm(&x, 1, NULL, &norm));
    CHECK(norm > 0);
    adamod_hyper_free(h);
}

static void life(world *w, const adamod_allocator *allocator) {
    world_arrays(w, "adamod");
    TRY(w, adamod_create_with(&w->opt, "adamod", allocator));
    if (!w->opt) return;
    TRY(w, adamod_set(w->opt, "threads", 1));
    TRY(w, adamod_collect(w->opt, 1));
    life_of_schedules(w);
    TRY(w, adamod_add_group(w->opt, &w->group));
    for (int i = 0; i < FROZEN; i++) {
        const adamod_tensor t = world_tensor(w, i);
        TRY(w, adamod_add_tensor(w->opt, i % 2, &t, NULL));
    }
    TRY(w, adamod_step(w->opt));
    TRY(w, adamod_step(w->opt));
    TRY(w, adamod_save(w->opt, state_path()));
    TRY(w, adamod_step(w->opt));
    TRY(w, adamod_load(w->opt, state_path()));
    TRY(w, adamod_step(w->opt));
    life_of_raw(w);
    adamod_free(w->opt);
    w->opt = NULL;
}

/* Counts how many calls a failing allocation stopped, over all allocations of a life. */
static int lives(const adamod_allocator *allocator, accounts *a) {
    world expected, w;
    long least = 0, k = 1;
    armed = 0;
    memory_errors = 0;
    life(&expected, allocator);
    for (; k < 1000; k++) {
        const long blocks = atomic_load(&live_blocks);
        armed = k;
        life(&w, allocator);
        least += atomic_load(&live_blocks) - blocks;
        if (!CHECK(memcmp(&w, &expected, sizeof w) == 0)) return 0;
        if (a) CHECK_INT(a->live, 0);
        if (armed > 0) break; /* there were not so many */
    }
    CHECK(k < 1000);
    CHECK_INT(memory_errors, k - 1);
    CHECK_INT(least, 0); /* nothing is left behind */
    armed = 0;
    return memory_errors;
}

TEST(every_allocation_may_fail) {
    accounts a = {0};
    const adamod_allocator allocator = accounting(&a);
    const int n = lives(&allocator, &a);
    CHECK(n > 15);
    CHECK_INT(a.errors, 0);
    if (!MALLOC_CAN_FAIL) return;
    CHECK(n > 60);
    CHECK_INT(lives(NULL, NULL), n);
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
    CHECK(other > fresh && other < 64 * 1024);
    CHECK_INT(adamod_step(opt), ADAMOD_OK);
    adamod_memory(opt, NULL, &stepped);
    CHECK(stepped < 64 * 1024);
    for (int i = 0; i < 5; i++) CHECK_INT(adamod_step(opt), ADAMOD_OK);
    adamod_memory(opt, NULL, &other);
    CHECK_INT(other, stepped); /* steps take nothing more */
    /* Statistics take memory while they are on. */
    CHECK_INT(adamod_collect(opt, 1), ADAMOD_OK);
    adamod_memory(opt, NULL, &other);
    CHECK(other > stepped);
    CHECK_INT(adamod_collect(opt, 0), ADAMOD_OK);
    adamod_memory(opt, NULL, &other);
    CHECK_INT(other, stepped);
    adamod_free(opt);
}

/* ---- Versions, instruction sets ----------------------------------------------------------------------------------- */

TEST(version) {
    char text[32];
    snprintf(text, sizeof text, "%d.%d.%d", ADAMOD_VERSION_MAJOR, ADAMOD_VERSION_MINOR, ADAMOD_VERSION_PATCH);
    CHECK_INT(adamod_version(), ADAMOD_VERSION);
    CHECK_STR(adamod_version_string(), text);
}

TEST(instruction_sets) {
    int n = 0;
    char keep[64] = "", known[128] = "";
    const char *was = getenv("ADAMOD_ISA");
    if (was) snprintf(keep, sizeof keep, "%s", was);
    for (; adamod_isa_name(n); n++) {
        adamod_optimizer *opt = NULL;
        setenv("ADAMOD_ISA", adamod_isa_name(n), 1);
        CHECK_INT(adamod_create(&opt, "adam"), ADAMOD_OK);
        CHECK_STR(adamod_isa(opt), adamod_isa_name(n));
        setenv("ADAMOD_ISA", "plain", 1);
        CHECK_STR(adamod_isa(opt), adamod_isa_name(n)); /* chosen when the handle is made */
        adamod_free(opt);
        snprintf(known + strlen(known), sizeof known - strlen(known), "%s%s", n ? ", " : "", adamod_isa_name(n));
    }
    CHECK(n >= 1);
    CHECK_STR(adamod_isa_name(n - 1), "plain");
    CHECK(adamod_isa_name(n) == NULL && adamod_isa_name(1000) == NULL);
    /* none, or nothing: the best */
    for (int i = 0; i < 2; i++) {
        adamod_optimizer *opt = NULL;
        if (i) setenv("ADAMOD_ISA", "", 1);
        else unsetenv("ADAMOD_ISA");
        CHECK_INT(adamod_create(&opt, "adam"), ADAMOD_OK);
        CHECK_STR(adamod_isa(opt), adamod_isa_name(0));
        adamod_free(opt);
    }
    adamod_optimizer *opt = NULL;
    adamod_hyper *h = NULL;
    double norm = 5;
    setenv("ADAMOD_ISA", "sse9", 1);
    CHECK_INT(adamod_create(&opt, "adam"), ADAMOD_ERROR_NAME);
    CHECK_HAS(adamod_last_error(), "ADAMOD_ISA is 'sse9', this processor has ");
    CHECK_HAS(adamod_last_error(), known);
    CHECK_INT(adamod_hyper_create(&h, "adam"), ADAMOD_ERROR_NAME);
    CHECK_HAS(adamod_last_error(), "ADAMOD_ISA is 'sse9'");
    CHECK_INT(adamod_norm(NULL, 0, NULL, &norm), ADAMOD_ERROR_NAME);
    CHECK(opt == NULL && h == NULL && norm == 5);
    if (was) setenv("ADAMOD_ISA", keep, 1);
    else unsetenv("ADAMOD_ISA");
}

/* ---- Threads ------------------------------------------------------------------------------------------------------ */

enum { LARGE = 70001 }; /* several chunks, none of them full at the end */
typedef struct run {
    adamod_optimizer *opt;
    float *p, *g;
    uint64_t seed;
    adamod_status status;
    adamod_pool *pool;
    int wrong;
} run;

static int run_make(run *x, const char *rule, uint64_t seed) {
    *x = (run){.p = calloc(LARGE, sizeof *x->p), .g = calloc(LARGE, sizeof *x->g), .seed = seed};
    if (!x->p || !x->g) abort();
    for (uint64_t i = 0; i < LARGE; i++) {
        x->p[i] = (float)noise(seed + i);
        x->g[i] = (float)noise(seed + LARGE + i);
    }
    const int64_t shape[] = {LARGE};
    if (!CHECK_INT(adamod_create(&x->opt, rule), ADAMOD_OK)) return 0;
    CHECK_INT(adamod_set(x->opt, "clip_norm", 100), ADAMOD_OK);
    return CHECK_INT(adamod_add(x->opt, "large", x->p, x->g, 1, shape), ADAMOD_OK);
}

static void run_free(run *x) {
    adamod_free(x->opt);
    free(x->p);
    free(x->g);
}

enum { UPDATES = 12 };

static void *run_main(void *argument) {
    run *x = argument;
    for (int i = 0; i < UPDATES && x->status == ADAMOD_OK; i++) x->status = adamod_step(x->opt);
    return NULL;
}

/* Many short runs on a pool, so that those of two threads meet. */
static void *norms_main(void *argument) {
    run *x = argument;
    const adamod_span span = {.grad = x->g, .count = LARGE};
    double expected = 0, norm = 0;
    x->status = adamod_norm(&span, 1, NULL, &expected);
    for (int i = 0; i < 300 && x->status == ADAMOD_OK; i++) {
        x->status = adamod_norm(&span, 1, x->pool, &norm);
        if (norm != expected) x->wrong++;
    }
    return NULL;
}

static void compare_runs(const run *a, const run *b) {
    void *x = NULL, *y = NULL;
    CHECK(memcmp(a->p, b->p, LARGE * sizeof(float)) == 0);
    CHECK_INT(adamod_state(a->opt, 0, "exp_avg", &x, NULL, NULL), ADAMOD_OK);
    CHECK_INT(adamod_state(b->opt, 0, "exp_avg", &y, NULL, NULL), ADAMOD_OK);
    CHECK(x && y && memcmp(x, y, LARGE * sizeof(float)) == 0);
    CHECK(adamod_grad_norm(a->opt) == adamod_grad_norm(b->opt));
}

TEST(threads_change_between_steps) {
    static const int threads[UPDATES] = {1, 2, 3, 0, 8, 1, 0, 5, 2, 2, 16, 1};
    run one, many;
    if (!run_make(&one, "adamod", 1) || !run_make(&many, "adamod", 1)) return;
    CHECK_INT(adamod_set(one.opt, "threads", 1), ADAMOD_OK);
    run_main(&one);
    CHECK_INT(one.status, ADAMOD_OK);
    for (int i = 0; i < UPDATES; i++) {
        CHECK_INT(adamod_set(many.opt, "threads", threads[i]), ADAMOD_OK);
        CHECK_INT(adamod_step(many.opt), ADAMOD_OK);
    }
    compare_runs(&one, &many);
    run_free(&one);
    run_free(&many);
}

TEST(zero_threads_is_one_for_each_core) {
    run one, many;
    double threads = -7;
    if (!run_make(&one, "adamod", 2) || !run_make(&many, "adamod", 2)) return;
    CHECK_INT(adamod_set(one.opt, "threads", 1), ADAMOD_OK);
    CHECK_INT(adamod_get(many.opt, "threads", &threads), ADAMOD_OK);
    CHECK_INT(threads, 0);
    run_main(&one);
    run_main(&many);
    CHECK_INT(many.status, ADAMOD_OK);
    compare_runs(&one, &many);
    adamod_pool *pool = NULL;
    CHECK_INT(adamod_pool_create(&pool, 0), ADAMOD_OK);
    CHECK(adamod_pool_threads(pool) >= 1);
    CHECK(adamod_pool_threads(pool) <= sysconf(_SC_NPROCESSORS_CONF));
    adamod_pool_free(pool);
    run_free(&one);
    run_free(&many);
}

TEST(a_pool_shared_by_two_threads) {
    run expected[2], shared[2];
    pthread_t thread[2];
    adamod_pool *pool = NULL;
    CHECK_INT(adamod_pool_create(&pool, 3), ADAMOD_OK);
    CHECK_INT(adamod_pool_threads(pool), 3);
    for (int i = 0; i < 2; i++) {
        const char *rule = i ? "adam" : "adamod";
        if (!run_make(&expected[i], rule, (uint64_t)i * 1000) || !run_make(&shared[i], rule, (uint64_t)i * 1000))
            return;
        CHECK_INT(adamod_set(expected[i].opt, "threads", 1), ADAMOD_OK);
        CHECK_INT(adamod_set_pool(shared[i].opt, pool), ADAMOD_OK);
        run_main(&expected[i]);
    }
    for (int phase = 0; phase < 2; phase++) {
        for (int i = 0; i < 2; i++) {
            shared[i].pool = pool;
            CHECK_INT(pthread_create(&thread[i], NULL, phase ? norms_main : run_main, &shared[i]), 0);
        }
        for (int i = 0; i < 2; i++) {
            pthread_join(thread[i], NULL);
            CHECK_INT(shared[i].status, ADAMOD_OK);
            CHECK_INT(shared[i].wrong, 0);
        }
    }
    for (int i = 0; i < 2; i++) {
        compare_runs(&expected[i], &shared[i]);
        /* handed back, the handle goes on with threads of its own */
        CHECK_INT(adamod_set_pool(shared[i].opt, NULL), ADAMOD_OK);
        CHECK_INT(adamod_set(shared[i].opt, "threads", 2), ADAMOD_OK);
    }
    adamod_pool_free(pool);
    for (int i = 0; i < 2; i++) {
        CHECK_INT(adamod_step(shared[i].opt), ADAMOD_OK);
        CHECK_INT(adamod_step(expected[i].opt), ADAMOD_OK);
        compare_runs(&expected[i], &shared[i]);
        run_free(&expected[i]);
        run_free(&shared[i]);
    }
}

TEST(pools_of_many_sizes) {
    double norms[4] = {0};
    static float g[LARGE];
    for (uint64_t i = 0; i < LARGE; i++) g[i] = (float)noise(i);
    const adamod_span x = {.grad = g, .count = LARGE};
    const int sizes[] = {1, 2, 7, 40};
    for (int i = 0; i < 4; i++) {
        adamod_pool *pool = NULL;
        CHECK_INT(adamod_pool_create(&pool, sizes[i]), ADAMOD_OK);
        CHECK_INT(adamod_pool_threads(pool), sizes[i]);
        for (int k = 0; k < 20; k++) CHECK_INT(adamod_norm(&x, 1, pool, &norms[i]), ADAMOD_OK);
        CHECK(norms[i] == norms[0] && norms[i] > 1);
        adamod_pool_free(pool);
    }
}

/* ---- Raw pointers ------------------------------------------------------------------------------------------------- */

TEST(state_descriptions) {
    adamod_hyper *h = NULL;
    adamod_state_desc desc;
    const int64_t shape[] = {2, 3, 4}, negative[] = {2, -3}, huge[] = {INT64_MAX, 2}, queue[] = {INT64_MAX / 16};
    const int64_t deep[] = {1, 1, 1, 1, 1, 1, 1, 1};
    if (!CHECK_INT(adamod_hyper_create(&h, "adafactor"), ADAMOD_OK)) return;
    CHECK_INT(adamod_state_at(h, 3, shape, 0, &desc), ADAMOD_OK);
    CHECK(desc.name == NULL && desc.count == 0);
    CHECK_INT(adamod_state_at(h, 3, shape, 1, &desc), ADAMOD_OK);
    CHECK_STR(desc.name, "exp_avg_sq_row");
    CHECK(desc.ndim == 2 && desc.shape[0] == 2 && desc.shape[1] == 3 && desc.count == 6 && desc.initial == 0);
    CHECK_INT(adamod_state_at(h, 3, shape, 2, &desc), ADAMOD_OK);
    CHECK_STR(desc.name, "exp_avg_sq_col");
    CHECK(desc.ndim == 2 && desc.shape[0] == 2 && desc.shape[1] == 4 && desc.count == 8);
    CHECK_INT(adamod_state_at(h, 3, shape, 3, &desc), ADAMOD_OK);
    CHECK(desc.name == NULL);
    CHECK_INT(adamod_state_at(h, 0, NULL, 1, &desc), ADAMOD_OK);
    CHECK_STR(desc.name, "exp_avg_sq");
    CHECK(desc.ndim == 0 && desc.count == 1);
    CHECK_INT(adamod_state_at(h, 1, NULL, 1, &desc), ADAMOD_ERROR_ARGUMENT);
    CHECK_INT(adamod_state_at(h, -1, shape, 1, &desc), ADAMOD_ERROR_ARGUMENT);
    CHECK_INT(adamod_state_at(h, 9, shape, 1, &desc), ADAMOD_ERROR_ARGUMENT);
    CHECK_INT(adamod_state_at(h, 2, negative, 1, &desc), ADAMOD_ERROR_ARGUMENT);
    CHECK_INT(adamod_state_at(h, 2, huge, 1, &desc), ADAMOD_ERROR_ARGUMENT);
    CHECK_INT(adamod_state_at(h, 3, shape, 4, &desc), ADAMOD_ERROR_RANGE);
    CHECK_HAS(adamod_last_error(), "state index is 4, expected 0 <= index < 4");
    CHECK_INT(adamod_state_at(h, 3, shape, -1, &desc), ADAMOD_ERROR_RANGE);
    CHECK_INT(adamod_state_at(h, 3, shape, 1, NULL), ADAMOD_ERROR_ARGUMENT);
    adamod_hyper_free(h);

    if (!CHECK_INT(adamod_hyper_create(&h, "adashift"), ADAMOD_OK)) return;
    CHECK_INT(adamod_hyper_set(h, "window", 5), ADAMOD_OK);
    CHECK_INT(adamod_state_at(h, 3, shape, 2, &desc), ADAMOD_OK);
    CHECK_STR(desc.name, "grad_queue");
    CHECK(desc.ndim == 4 && desc.shape[0] == 5 && desc.shape[1] == 2 && desc.shape[3] == 4 && desc.count == 120);
    CHECK_INT(adamod_state_at(h, 3, shape, 1, &desc), ADAMOD_OK);
    CHECK(desc.ndim == 0 && desc.count == 1);
    CHECK_INT(adamod_state_at(h, 1, queue, 2, &desc), ADAMOD_ERROR_ARGUMENT);
    CHECK_INT(adamod_state_at(h, 8, deep, 2, &desc), ADAMOD_ERROR_ARGUMENT);
    adamod_hyper_free(h);

    if (!CHECK_INT(adamod_hyper_create(&h, "adagrad"), ADAMOD_OK)) return;
    CHECK_INT(adamod_hyper_set(h, "initial", 0.25), ADAMOD_OK);
    CHECK_INT(adamod_state_at(h, 3, shape, 1, &desc), ADAMOD_OK);
    CHECK(desc.initial == 0.25 && desc.count == 24);
    adamod_hyper_free(h);
}

/* Arrays that belong to the caller, as adamod_state_at asks for them; in the type of computation. */
typedef struct owned {
    adamod_span span;
    void *blocks[ADAMOD_MAX_STATES];
} owned;

static void own(const adamod_hyper *h, owned *x, const adamod_tensor *t, adamod_type state_type) {
    memset(x, 0, sizeof *x);
    x->span = (adamod_span){.param = t->param,
                            .grad = t->grad,
                            .param_type = t->param_type,
                            .grad_type = t->grad_type,
                            .state_type = state_type,
                            .ndim = t->ndim,
                            .count = 1};
    memcpy(x->span.shape, t->shape, sizeof t->shape);
    for (int d = 0; d < t->ndim; d++) x->span.count *= t->shape[d];
    for (int i = 0; i < ADAMOD_MAX_STATES; i++) {
        adamod_state_desc desc;
        CHECK_INT(adamod_state_at(h, t->ndim, t->shape, i, &desc), ADAMOD_OK);
        if (!desc.name) continue;
        x->blocks[i] = x->span.state[i] = calloc((size_t)desc.count + 1, 8);
        CHECK(desc.initial == 0);
    }
}

static void disown(owned *x) {
    for (int i = 0; i < ADAMOD_MAX_STATES; i++) free(x->blocks[i]);
}

TEST(raw_updates_are_the_handles) {
    for (int r = 0; adamod_rule_name(r); r++) {
        world w, mine;
        owned x[PARAMETERS];
        adamod_span spans[PARAMETERS];
        adamod_hyper *h = NULL;
        float master[9];
        if (!world_make(&w, adamod_rule_name(r), 0)) return;
        world_arrays(&mine, adamod_rule_name(r));
        CHECK_INT(adamod_hyper_create(&h, adamod_rule_name(r)), ADAMOD_OK);
        CHECK_INT(adamod_hyper_set(h, "lr", 0.0625), ADAMOD_OK);
        CHECK_INT(adamod_set(w.opt, "lr", 0.0625), ADAMOD_OK);
        for (int i = 0; i < 9; i++) {
            const uint32_t bits = (uint32_t)mine.half[i] << 16;
            memcpy(&master[i], &bits, sizeof bits);
        }
        for (int i = 0; i < PARAMETERS; i++) {
            const adamod_tensor t = world_tensor(&mine, i);
            own(h, &x[i], &t, t.param_type == ADAMOD_F64 ? ADAMOD_F64 : ADAMOD_F32);
            if (i == HALF) x[i].span.master = master;
        }
        for (int step = 1; step <= 14; step++) {
            CHECK_INT(adamod_step(w.opt), ADAMOD_OK);
            for (int i = 0; i < PARAMETERS; i++) {
                spans[i] = x[i].span;
                spans[i].step = step;
                spans[i].stream = (uint64_t)i;
            }
            CHECK_INT(adamod_update(h, spans, PARAMETERS, NULL), ADAMOD_OK);
        }
        CHECK(memcmp(w.matrix, mine.matrix, sizeof w.matrix) == 0);
        CHECK(memcmp(w.half, mine.half, sizeof w.half) == 0);
        CHECK(w.scalar == mine.scalar);
        CHECK(memcmp(w.frozen, mine.frozen, sizeof w.frozen) == 0);
        for (int i = 0; i < PARAMETERS; i++) disown(&x[i]);
        adamod_hyper_free(h);
        adamod_free(w.opt);
    }
}

/* An optimizer whose states, masters included, are the caller's does what another does; halfway it is thrown away and a
 * new one goes on with the same states. */
TEST(states_the_caller_keeps) {
    for (int r = 0; adamod_rule_name(r); r++) {
        world w, mine;
        owned x[PARAMETERS];
        adamod_hyper *h = NULL;
        float master[9];
        if (!world_make(&w, adamod_rule_name(r), 0)) return;
        world_arrays(&mine, adamod_rule_name(r));
        CHECK_INT(adamod_hyper_create(&h, adamod_rule_name(r)), ADAMOD_OK);
        for (int i = 0; i < 9; i++) {
            const uint32_t bits = (uint32_t)mine.half[i] << 16;
            memcpy(&master[i], &bits, sizeof bits);
        }
        for (int i = 0; i < PARAMETERS; i++) {
            const adamod_tensor t = world_tensor(&mine, i);
            own(h, &x[i], &t, ADAMOD_F32);
        }
        for (int half = 0; half < 2; half++) {
            size_t states = 1;
            CHECK_INT(adamod_create(&mine.opt, adamod_rule_name(r)), ADAMOD_OK);
            CHECK_INT(adamod_add_group(mine.opt, &mine.group), ADAMOD_OK);
            CHECK_INT(adamod_group_set(mine.opt, mine.group, "lr", 0.0625), ADAMOD_OK);
            for (int i = 0; i < PARAMETERS; i++) {
                adamod_tensor t = world_tensor(&mine, i);
                memcpy(t.state, x[i].blocks, sizeof t.state);
                if (i == HALF) t.master = master;
                CHECK_INT(adamod_add_tensor(mine.opt, i == HALF ? mine.group : 0, &t, NULL), ADAMOD_OK);
                if (i != FROZEN) CHECK_INT(adamod_set_tensor_steps(mine.opt, i, 7 * half), ADAMOD_OK);
            }
            CHECK_INT(adamod_steps(mine.opt), 7 * half);
            adamod_memory(mine.opt, &states, NULL);
            CHECK_INT(states, 0);
            for (int step = 0; step < 7; step++) {
                CHECK_INT(adamod_step(w.opt), ADAMOD_OK);
                CHECK_INT(adamod_step(mine.opt), ADAMOD_OK);
            }
            CHECK_INT(adamod_steps(mine.opt), 7 * half + 7);
            adamod_free(mine.opt);
        }
        CHECK(memcmp(w.matrix, mine.matrix, sizeof w.matrix) == 0);
        CHECK(memcmp(w.half, mine.half, sizeof w.half) == 0);
        CHECK(w.scalar == mine.scalar);
        for (int i = 0; i < PARAMETERS; i++) disown(&x[i]);
        adamod_hyper_free(h);
        adamod_free(w.opt);
    }
}

TEST(states_the_caller_keeps_are_checked) {
    world w;
    if (!world_make(&w, "adamod", 3)) return;
    float a[48] = {0};
    void *state = NULL;
    adamod_tensor t = {.name = "t", .param = a, .grad = a + 4, .ndim = 1, .shape = {4}};
#define STATES(m, v, s, status, says)                                                                                  \
    t.state[0] = (m), t.state[1] = (v), t.state[2] = (s);                                                              \
    REFUSED(&w, adamod_add_tensor(w.opt, 0, &t, NULL), status, says)
    STATES(a + 8, NULL, a + 16, ADAMOD_ERROR_ARGUMENT, "t: state[1], exp_avg_sq, is NULL, and others are given");
    STATES(NULL, NULL, a + 16, ADAMOD_ERROR_ARGUMENT, "t: state[0], exp_avg, is NULL");
    STATES(a + 8, a + 11, a + 16, ADAMOD_ERROR_ARGUMENT, "t: exp_avg and exp_avg_sq overlap");
    STATES(a + 8, a + 12, a + 3, ADAMOD_ERROR_ARGUMENT, "t: param and exp_avg_lr overlap");
    STATES(a + 8, a + 7, a + 16, ADAMOD_ERROR_ARGUMENT, "t: grad and exp_avg_sq overlap");
    STATES(w.matrix + 2, a + 12, a + 16, ADAMOD_ERROR_ARGUMENT, "t: its exp_avg overlaps param of matrix");
    STATES(a + 8, w.matrix_grad, a + 16, ADAMOD_ERROR_ARGUMENT, "t: its exp_avg_sq overlaps grad of matrix");
    STATES(a + 8, a + 12, (char *)(a + 16) + 2, ADAMOD_ERROR_ARGUMENT, "t: exp_avg_lr is not aligned");
    CHECK_INT(adamod_state(w.opt, MATRIX, "exp_avg", &state, NULL, NULL), ADAMOD_OK);
    STATES(a + 8, a + 12, state, ADAMOD_ERROR_ARGUMENT, "t: its exp_avg_lr overlaps exp_avg of matrix");
    t.state[3] = a + 20;
    STATES(a + 8, a + 12, a + 16, ADAMOD_ERROR_ARGUMENT, "t: state[3] is given, and adamod has none there");
    t.state[3] = NULL;
#undef STATES
    /* They are the user's as the parameter is: nothing else may come to lie there, and they are found by name. */
    CHECK_INT(adamod_add_tensor(w.opt, 0, &t, NULL), ADAMOD_OK);
    CHECK_INT(adamod_state(w.opt, PARAMETERS, "exp_avg_sq", &state, NULL, NULL), ADAMOD_OK);
    CHECK(state == a + 12);
    REFUSED(&w, adamod_set_grad(w.opt, MATRIX, a + 9), ADAMOD_ERROR_ARGUMENT, "matrix: its gradient overlaps a state");
    adamod_tensor u = {.name = "u", .param = a + 16, .ndim = 1, .shape = {2}};
    REFUSED(&w, adamod_add_tensor(w.opt, 0, &u, NULL), ADAMOD_ERROR_ARGUMENT, "u: its parameters overlap a state of t");
    u = (adamod_tensor){.name = "u", .param = a + 20, .ndim = 1, .shape = {4}, .state = {a + 24, a + 28, a + 15}};
    REFUSED(&w, adamod_add_tensor(w.opt, 0, &u, NULL), ADAMOD_ERROR_ARGUMENT, "u: its exp_avg_lr overlaps exp_avg");
    CHECK_INT(adamod_step(w.opt), ADAMOD_OK);
    CHECK_INT(adamod_save(w.opt, "test_api_given.safetensors"), ADAMOD_OK);
    a[8] = 5;
    CHECK_INT(adamod_load(w.opt, "test_api_given.safetensors"), ADAMOD_OK);
    CHECK(a[8] == 5);
    remove("test_api_given.safetensors");
    adamod_free(w.opt);
}

TEST(many_arrays_in_one_call) {
    world w;
    if (!world_make(&w, "adamod", 3)) return;
    float p[2][40] = {{0}}, g[2][40] = {{0}};
    const int64_t ids[3] = {FROZEN, MATRIX, FROZEN};
    void *params[3] = {p[0], p[1], w.frozen};
    const void *grads[3] = {g[0], g[1], NULL};
    REFUSED(&w, adamod_set_arrays(NULL, 1, ids, params, grads), ADAMOD_ERROR_ARGUMENT, "the optimizer is NULL");
    REFUSED(&w, adamod_set_arrays(w.opt, -1, ids, params, grads), ADAMOD_ERROR_ARGUMENT, "n is -1");
    REFUSED(&w, adamod_set_arrays(w.opt, PARAMETERS + 1, NULL, NULL, NULL), ADAMOD_ERROR_RANGE, "parameter number");
    params[1] = (char *)p[1] + 2;
    REFUSED(&w, adamod_set_arrays(w.opt, 3, ids, params, grads), ADAMOD_ERROR_ARGUMENT, "matrix: param is not aligned");
    params[1] = p[0] + 3;
    REFUSED(&w, adamod_set_arrays(w.opt, 2, ids, params, grads), ADAMOD_ERROR_ARGUMENT,
            "frozen: its param overlaps param of matrix");
    params[1] = NULL;
    REFUSED(&w, adamod_set_arrays(w.opt, 2, ids, params, grads), ADAMOD_ERROR_ARGUMENT, "matrix: param is NULL");
    /* What was refused is not there, nor is the half of it that was good. */
    memcpy(w.frozen_grad, w.frozen, sizeof w.frozen);
    CHECK_INT(adamod_step(w.opt), ADAMOD_OK);
    CHECK(memcmp(w.frozen_grad, w.frozen, sizeof w.frozen) == 0);

    params[1] = p[1];
    for (int i = 0; i < 40; i++) g[0][i] = g[1][i] = 1;
    CHECK_INT(adamod_set_arrays(w.opt, 2, ids, params, grads), ADAMOD_OK);
    const float matrix = w.matrix[0];
    CHECK_INT(adamod_step(w.opt), ADAMOD_OK);
    CHECK(p[0][0] < 0 && p[1][34] < 0 && w.matrix[0] == matrix);
    /* An id twice, the last counts; the gradients alone; two that change places. */
    CHECK_INT(adamod_set_arrays(w.opt, 3, ids, params, grads), ADAMOD_OK);
    p[0][0] = 3;
    CHECK_INT(adamod_step(w.opt), ADAMOD_OK);
    CHECK(p[0][0] == 3 && memcmp(w.frozen_grad, w.frozen, sizeof w.frozen) == 0);
    CHECK_INT(adamod_set_arrays(w.opt, 1, ids, NULL, grads), ADAMOD_OK);
    CHECK_INT(adamod_step(w.opt), ADAMOD_OK);
    CHECK(memcmp(w.frozen_grad, w.frozen, sizeof w.frozen) != 0);
    CHECK_INT(adamod_set_arrays(w.opt, 2, ids, (void *[]){w.frozen, p[0]}, NULL), ADAMOD_OK);
    CHECK_INT(adamod_set_arrays(w.opt, 2, ids, (void *[]){p[0], p[1]}, (const void *[]){g[1], g[0]}), ADAMOD_OK);
    CHECK_INT(adamod_step(w.opt), ADAMOD_OK);
    CHECK_INT(adamod_set_arrays(w.opt, 0, NULL, NULL, NULL), ADAMOD_OK);
    adamod_free(w.opt);
}

TEST(steps_that_are_set) {
    world w;
    if (!world_make(&w, "adamod", 3)) return;
    int64_t steps = 0;
    REFUSED(&w, adamod_set_tensor_steps(NULL, 0, 1), ADAMOD_ERROR_ARGUMENT, "the optimizer is NULL");
    REFUSED(&w, adamod_set_tensor_steps(w.opt, 9, 1), ADAMOD_ERROR_RANGE, "parameter number is 9");
    REFUSED(&w, adamod_set_tensor_steps(w.opt, MATRIX, -1), ADAMOD_ERROR_RANGE, "matrix: steps is -1");
    REFUSED(&w, adamod_set_tensor_steps(w.opt, MATRIX, INT64_MAX), ADAMOD_ERROR_RANGE, "matrix: steps is 9223");
    CHECK_INT(adamod_set_tensor_steps(w.opt, MATRIX, 1), ADAMOD_OK);
    CHECK_INT(adamod_steps(w.opt), 3);
    CHECK_INT(adamod_set_tensor_steps(w.opt, SCALAR, 40), ADAMOD_OK);
    CHECK_INT(adamod_steps(w.opt), 40);
    CHECK_INT(adamod_step(w.opt), ADAMOD_OK);
    CHECK_INT(adamod_tensor_steps(w.opt, MATRIX, &steps), ADAMOD_OK);
    CHECK_INT(steps, 2);
    CHECK_INT(adamod_tensor_steps(w.opt, SCALAR, &steps), ADAMOD_OK);
    CHECK_INT(steps, 41);
    CHECK_INT(adamod_steps(w.opt), 41);
    int64_t all[PARAMETERS], n = adamod_tensors(w.opt);
    CHECK_INT(adamod_all_tensor_steps(w.opt, n, all), ADAMOD_OK);
    for (int64_t i = 0; i < n; i++) {
        CHECK_INT(adamod_tensor_steps(w.opt, i, &steps), ADAMOD_OK);
        CHECK_INT(all[i], steps);
    }
    REFUSED(&w, adamod_all_tensor_steps(w.opt, n + 1, all), ADAMOD_ERROR_RANGE, "n is");
    REFUSED(&w, adamod_all_tensor_steps(w.opt, -1, all), ADAMOD_ERROR_RANGE, "n is -1");
    REFUSED(&w, adamod_all_tensor_steps(w.opt, n, NULL), ADAMOD_ERROR_ARGUMENT, "steps is NULL");
    REFUSED(&w, adamod_all_tensor_steps(NULL, n, all), ADAMOD_ERROR_ARGUMENT, "the optimizer is NULL");
    adamod_free(w.opt);
}

/* All arrays of one bf16 parameter, apart from each other. */
typedef struct raw_arrays {
    uint16_t p[64];
    float g[64], master[64], m[64], v[64], s[64];
    _Alignas(8) float spare[600];
} raw_arrays;

static adamod_span raw_span(raw_arrays *a) {
    return (adamod_span){.param = a->p,
                         .grad = a->g,
                         .master = a->master,
                         .state = {a->m, a->v, a->s},
                         .param_type = ADAMOD_BF16,
                         .count = 64,
                         .step = 1};
}

/* adamod_update fails, says this, and leaves all arrays as they were; adamod_check finds the same. */
static void raw_refused(const adamod_hyper *h, raw_arrays *a, const adamod_span *spans, size_t n, adamod_status status,
                        const char *part, int line) {
    static raw_arrays copy;
    copy = *a;
    const adamod_hyper *hypers[4] = {h, h, h, h};
    check_int(n <= 4 && spans ? keep_message(adamod_check(hypers, spans, n)) : status, status, part, __FILE__, line);
    check_int(keep_message(adamod_update(h, spans, n, NULL)), status, part, __FILE__, line);
    check_has(message, part, "the message", __FILE__, line);
    check_true(memcmp(&copy, a, sizeof copy) == 0, "nothing changes", __FILE__, line);
}
#define RAW_REFUSED(spans, n, status, part) raw_refused(h, &a, spans, n, status, part, __LINE__)

static void raw_fill(raw_arrays *a) {
    memset(a, 0, sizeof *a);
    for (uint64_t i = 0; i < 64; i++) {
        a->p[i] = to_bf16(noise(i));
        a->master[i] = (float)noise(i);
        a->g[i] = (float)noise(64 + i);
    }
}

TEST(raw_overlaps) {
    static raw_arrays a;
    adamod_hyper *h = NULL;
    if (!CHECK_INT(adamod_hyper_create(&h, "adamod"), ADAMOD_OK)) return;
    raw_fill(&a);
    static const char *const names[] = {"param", "grad", "master", "exp_avg", "exp_avg_sq", "exp_avg_lr"};
    for (int i = 0; i < 6; i++) {
        for (int j = 0; j < 6; j++) {
            if (i == j) continue;
            /* array j begins in the last element of array i */
            adamod_span x = raw_span(&a);
            void **at[] = {&x.param, NULL, &x.master, &x.state[0], &x.state[1], &x.state[2]};
            char *from = i == 1 ? (char *)(uintptr_t)x.grad : *at[i];
            from += i == 0 ? 63 * 2 : 63 * 4;
            if (i == 0) from = (char *)a.p + 124; /* aligned for a float */
            if (j == 1) x.grad = from;
            else *at[j] = from;
            /* what follows array i in memory is not to be met as well */
            char both[64];
            snprintf(both, sizeof both, "%s and %s overlap", names[i < j ? i : j], names[i < j ? j : i]);
            const adamod_status status = keep_message(adamod_update(h, &x, 1, NULL));
            CHECK_INT(status, ADAMOD_ERROR_ARGUMENT);
            CHECK_HAS(message, "span 0: ");
            CHECK_HAS(message, "overlap");
            CHECK_HAS(message, names[j]);
            x = raw_span(&a);
            void **again[] = {&x.param, NULL, &x.master, &x.state[0], &x.state[1], &x.state[2]};
            from = i == 1 ? (char *)(uintptr_t)x.grad : *again[i];
            if (j == 1) x.grad = from; /* the very same array */
            else *again[j] = from;
            RAW_REFUSED(&x, 1, ADAMOD_ERROR_ARGUMENT, both);
        }
    }
    /* Two arrays of one call are updated at the same time, so what one writes the other must not touch. */
    static raw_arrays b;
    raw_fill(&b);
    for (int i = 0; i < 6; i++) {
        adamod_span both[2] = {raw_span(&a), raw_span(&b)};
        void **at[] = {&both[1].param, NULL, &both[1].master, &both[1].state[0], &both[1].state[1], &both[1].state[2]};
        const void *shared[] = {a.p, a.master, a.master, a.m, a.v, a.s};
        if (i == 1) both[1].grad = shared[i];
        else *at[i] = (void *)(uintptr_t)shared[i];
        RAW_REFUSED(both, 2, ADAMOD_ERROR_ARGUMENT, "overlap");
    }
    adamod_span both[2] = {raw_span(&a), raw_span(&b)};
    both[1].grad = a.g; /* only read */
    CHECK_INT(adamod_update(h, both, 2, NULL), ADAMOD_OK);
    adamod_hyper_free(h);
}

/* Groups that are updated one after the other are checked together before. */
TEST(raw_checks_of_several_groups) {
    adamod_hyper *adamod = NULL, *sgd = NULL;
    CHECK_INT(adamod_hyper_create(&adamod, "adamod"), ADAMOD_OK);
    CHECK_INT(adamod_hyper_create(&sgd, "sgd"), ADAMOD_OK);
    float p[20] = {0}, g[8] = {0}, m[8] = {0}, v[8] = {0}, s[8] = {0};
    const adamod_hyper *hypers[2] = {sgd, adamod};
    adamod_span x[2] = {{.param = p, .grad = g, .count = 8, .step = 1},
                        {.param = p + 8, .grad = g, .state = {m, v, s}, .count = 8, .step = 1}};
    CHECK_INT(adamod_check(hypers, x, 2), ADAMOD_OK);
    x[1].param = p + 7;
    CHECK_INT(adamod_check(hypers, x, 2), ADAMOD_ERROR_ARGUMENT);
    CHECK_HAS(adamod_last_error(), "param of span 0 and param of span 1 overlap");
    x[1].param = p + 8;
    x[1].state[2] = NULL; /* which the other rule has no need of */
    CHECK_INT(adamod_check(hypers, x, 2), ADAMOD_ERROR_ARGUMENT);
    CHECK_HAS(adamod_last_error(), "span 1: state[2], exp_avg_lr, is NULL");
    hypers[1] = NULL;
    CHECK_INT(adamod_check(hypers, x, 2), ADAMOD_ERROR_ARGUMENT);
    CHECK_HAS(adamod_last_error(), "span 1: its hyper is NULL");
    CHECK_INT(adamod_check(NULL, x, 2), ADAMOD_ERROR_ARGUMENT);
    CHECK_INT(adamod_check(hypers, NULL, 2), ADAMOD_ERROR_ARGUMENT);
    CHECK_INT(adamod_check(NULL, NULL, 0), ADAMOD_OK);
    adamod_hyper_free(adamod);
    adamod_hyper_free(sgd);
}

TEST(raw_arguments) {
    static raw_arrays a;
    adamod_hyper *h = NULL;
    if (!CHECK_INT(adamod_hyper_create(&h, "adamod"), ADAMOD_OK)) return;
    raw_fill(&a);
    adamod_span x[2];
#define WITH(change)                                                                                                   \
    x[0] = x[1] = raw_span(&a);                                                                                        \
    x[0].grad = NULL;                                                                                                  \
    x[0].param = x[0].master = x[0].state[0] = x[0].state[1] = x[0].state[2] = NULL;                                   \
    x[0].count = 0;                                                                                                    \
    x[1].change
    WITH(param = NULL);
    RAW_REFUSED(x, 2, ADAMOD_ERROR_ARGUMENT, "span 1: param is NULL");
    WITH(state[0] = NULL);
    RAW_REFUSED(x, 2, ADAMOD_ERROR_ARGUMENT, "span 1: state[0], exp_avg, is NULL");
    WITH(state[2] = NULL);
    RAW_REFUSED(x, 2, ADAMOD_ERROR_ARGUMENT, "span 1: state[2], exp_avg_lr, is NULL");
    WITH(count = -1);
    RAW_REFUSED(x, 2, ADAMOD_ERROR_ARGUMENT, "span 1: count is -1");
    WITH(count = INT64_MAX);
    RAW_REFUSED(x, 2, ADAMOD_ERROR_ARGUMENT, "span 1: count is");
    WITH(count = INT64_MAX / 8 + 1);
    RAW_REFUSED(x, 2, ADAMOD_ERROR_ARGUMENT, "span 1: count is");
    WITH(step = 0);
    RAW_REFUSED(x, 2, ADAMOD_ERROR_RANGE, "span 1: step is 0, expected 1 or more");
    WITH(step = INT64_MIN);
    RAW_REFUSED(x, 2, ADAMOD_ERROR_RANGE, "span 1: step is");
    WITH(ndim = -1);
    RAW_REFUSED(x, 2, ADAMOD_ERROR_ARGUMENT, "span 1: ndim is -1");
    WITH(ndim = 9);
    RAW_REFUSED(x, 2, ADAMOD_ERROR_ARGUMENT, "span 1: ndim is 9");
    WITH(ndim = 2);
    x[1].shape[0] = 8;
    x[1].shape[1] = 7;
    RAW_REFUSED(x, 2, ADAMOD_ERROR_ARGUMENT, "span 1: count is 64, its shape gives 56");
    WITH(param_type = (adamod_type)7);
    RAW_REFUSED(x, 2, ADAMOD_ERROR_ARGUMENT, "span 1: param_type is 7");
    WITH(grad_type = (adamod_type)-3);
    RAW_REFUSED(x, 2, ADAMOD_ERROR_ARGUMENT, "grad_type -3");
    WITH(state_type = ADAMOD_F16);
    RAW_REFUSED(x, 2, ADAMOD_ERROR_ARGUMENT, "span 1: state_type is f16, expected f32 or bf16");
    WITH(state_type = ADAMOD_F64);
    RAW_REFUSED(x, 2, ADAMOD_ERROR_ARGUMENT, "span 1: state_type is f64, expected f32 or bf16");
    WITH(state_type = (adamod_type)12);
    RAW_REFUSED(x, 2, ADAMOD_ERROR_ARGUMENT, "span 1: state_type is");
    WITH(param_type = ADAMOD_F32);
    x[1].param = a.spare;
    RAW_REFUSED(x, 2, ADAMOD_ERROR_ARGUMENT, "span 1: f32 parameters take no master");
    WITH(param = (char *)a.p + 1);
    RAW_REFUSED(x, 2, ADAMOD_ERROR_ARGUMENT, "span 1: param is not aligned");
    WITH(grad = (char *)a.spare + 2);
    RAW_REFUSED(x, 2, ADAMOD_ERROR_ARGUMENT, "span 1: grad is not aligned");
    WITH(state[1] = (char *)a.spare + 2);
    RAW_REFUSED(x, 2, ADAMOD_ERROR_ARGUMENT, "span 1: exp_avg_sq is not aligned");
    WITH(master = (char *)a.spare + 2);
    RAW_REFUSED(x, 2, ADAMOD_ERROR_ARGUMENT, "span 1: master is not aligned");
    CHECK_INT(adamod_update(h, NULL, 1, NULL), ADAMOD_ERROR_ARGUMENT);
    CHECK_INT(adamod_update(h, NULL, 0, NULL), ADAMOD_OK);
    WITH(step = 1);
    CHECK_INT(adamod_update(h, x, 2, NULL), ADAMOD_OK);
    WITH(grad = NULL); /* passed over */
    const raw_arrays copy = a;
    CHECK_INT(adamod_update(h, x, 2, NULL), ADAMOD_OK);
    CHECK(memcmp(&copy, &a, sizeof a) == 0);
    /* bf16 states may lie where floats may not */
    WITH(state_type = ADAMOD_BF16);
    for (int i = 0; i < 3; i++) x[1].state[i] = (char *)a.spare + 2 + i * 200;
    CHECK_INT(adamod_update(h, x, 2, NULL), ADAMOD_OK);
    adamod_hyper_free(h);
}

/* States of f64 parameters are f64: whoever says f32 has arrays half as long as what would be written. */
TEST(raw_states_of_another_type) {
    static raw_arrays a;
    adamod_hyper *h = NULL;
    double p[8] = {0};
    if (!CHECK_INT(adamod_hyper_create(&h, "adamod"), ADAMOD_OK)) return;
    raw_fill(&a);
    adamod_span x = {.param = p,
                     .grad = a.g,
                     .state = {a.spare, a.spare + 100, a.spare + 200},
                     .count = 8,
                     .step = 1,
                     .param_type = ADAMOD_F64,
                     .state_type = ADAMOD_F32};
    RAW_REFUSED(&x, 1, ADAMOD_ERROR_ARGUMENT, "state_type is f32, expected f64 or bf16");
    x.state_type = ADAMOD_F16;
    RAW_REFUSED(&x, 1, ADAMOD_ERROR_ARGUMENT, "state_type is f16, expected f64 or bf16");
    x.state_type = ADAMOD_F64;
    CHECK_INT(adamod_update(h, &x, 1, NULL), ADAMOD_OK);
    x.state_type = ADAMOD_BF16;
    CHECK_INT(adamod_update(h, &x, 1, NULL), ADAMOD_OK);
    adamod_hyper_free(h);
}

TEST(raw_norm) {
    const float g[] = {3, -4, NAN};
    const double d[] = {12, 84};
    double norm = 5;
    adamod_span x[] = {{.grad = g, .count = 2}, {.count = 1000}, {.grad = d, .count = 2, .grad_type = ADAMOD_F64}};
    CHECK_INT(adamod_norm(x, 1, NULL, &norm), ADAMOD_OK);
    CHECK(norm == 5);
    CHECK_INT(adamod_norm(x, 3, NULL, &norm), ADAMOD_OK);
    CHECK(norm == 85);
    CHECK_INT(adamod_norm(x, 0, NULL, &norm), ADAMOD_OK);
    CHECK(norm == 0);
    x[0].count = 3;
    CHECK_INT(adamod_norm(x, 3, NULL, &norm), ADAMOD_OK);
    CHECK(isnan(norm));
    const double infinite[] = {1, -INFINITY}, large[] = {3e200, -4e200}, small[] = {3e-200, 4e-200};
    x[0] = (adamod_span){.grad = infinite, .count = 2, .grad_type = ADAMOD_F64};
    CHECK_INT(adamod_norm(x, 1, NULL, &norm), ADAMOD_OK);
    CHECK(isinf(norm));
    x[0].grad = large;
    CHECK_INT(adamod_norm(x, 1, NULL, &norm), ADAMOD_OK);
    CHECK_CLOSE(norm / 5e200, 1, 1e-14);
    x[0].grad = small;
    CHECK_INT(adamod_norm(x, 1, NULL, &norm), ADAMOD_OK);
    CHECK_CLOSE(norm / 5e-200, 1, 1e-14);
    norm = 5;
    x[0].count = -1;
    CHECK_INT(adamod_norm(x, 1, NULL, &norm), ADAMOD_ERROR_ARGUMENT);
    CHECK_HAS(adamod_last_error(), "span 0: count is -1");
    x[0].count = 2;
    x[0].grad_type = (adamod_type)9;
    CHECK_INT(adamod_norm(x, 1, NULL, &norm), ADAMOD_ERROR_ARGUMENT);
    x[0].grad_type = ADAMOD_F64;
    x[0].grad = (const char *)large + 4;
    x[0].count = 1;
    CHECK_INT(adamod_norm(x, 1, NULL, &norm), ADAMOD_ERROR_ARGUMENT);
    CHECK_HAS(adamod_last_error(), "not aligned");
    x[0] = (adamod_span){.count = INT64_MAX};
    CHECK_INT(adamod_norm(x, 1, NULL, &norm), ADAMOD_ERROR_ARGUMENT);
    CHECK(norm == 5);
}

/* Random numbers of stochastic rounding: another for each stream, step and seed, the same for the same. */
TEST(raw_streams) {
    enum { N = 600 };
    static uint16_t p[5][N];
    static float g[N];
    adamod_hyper *h = NULL;
    if (!CHECK_INT(adamod_hyper_create(&h, "sgd"), ADAMOD_OK)) return;
    CHECK_INT(adamod_hyper_set(h, "lr", 1e-3), ADAMOD_OK);
    for (uint64_t i = 0; i < N; i++) g[i] = (float)noise(i);
    for (int k = 0; k < 5; k++) {
        for (uint64_t i = 0; i < N; i++) p[k][i] = to_bf16(noise(1000 + i));
        const adamod_span x = {.param = p[k],
                               .grad = g,
                               .param_type = ADAMOD_BF16,
                               .count = N,
                               .step = k == 2 ? 8 : 7,
                               .stream = k == 3 ? 6 : 5};
        CHECK_INT(adamod_hyper_set(h, "seed", k == 4 ? 4 : 3), ADAMOD_OK);
        CHECK_INT(adamod_update(h, &x, 1, NULL), ADAMOD_OK);
    }
    CHECK(memcmp(p[0], p[1], sizeof p[0]) == 0);
    for (int k = 2; k < 5; k++) CHECK(memcmp(p[0], p[k], sizeof p[0]) != 0);
    adamod_hyper_free(h);
}

RUN_TESTS(ENTRY(null_handles), ENTRY(null_arguments), ENTRY(numbers_out_of_range), ENTRY(rules_by_index),
          ENTRY(unknown_rules), ENTRY(unknown_options), ENTRY(unknown_choices_and_states), ENTRY(messages),
          ENTRY(last_error_of_each_thread), ENTRY(bounds_of_every_option), ENTRY(bounds_tell_more_than_six_digits),
          ENTRY(shared_options), ENTRY(structural_options), ENTRY(optimizer_wide_options),
          ENTRY(hyper_refuses_what_it_would_ignore), ENTRY(groups), ENTRY(overlaps), ENTRY(misaligned), ENTRY(sizes),
          ENTRY(names_of_parameters), ENTRY(many_parameters), ENTRY(frozen_parameters), ENTRY(frozen_under_every_rule),
          ENTRY(empty_arrays_and_scalars), ENTRY(step_without_parameters), ENTRY(nonfinite_gradients),
          ENTRY(numbers_have_a_point_in_every_locale), ENTRY(gradients_beyond_f32), ENTRY(reports_of_attempts),
          ENTRY(nonfinite_frozen_gradients), ENTRY(gradient_norm), ENTRY(allocator_accounts),
          ENTRY(every_allocation_may_fail), ENTRY(pool_without_memory), ENTRY(memory_of_states),
          ENTRY(memory_of_a_resnet), ENTRY(version), ENTRY(instruction_sets), ENTRY(threads_change_between_steps),
          ENTRY(zero_threads_is_one_for_each_core), ENTRY(a_pool_shared_by_two_threads), ENTRY(pools_of_many_sizes),
          ENTRY(state_descriptions), ENTRY(raw_updates_are_the_handles), ENTRY(raw_overlaps), ENTRY(raw_arguments),
          ENTRY(raw_checks_of_several_groups), ENTRY(raw_states_of_another_type), ENTRY(raw_norm), ENTRY(raw_streams),
          ENTRY(states_the_caller_keeps), ENTRY(states_the_caller_keeps_are_checked), ENTRY(many_arrays_in_one_call),
          ENTRY(steps_that_are_set))
