/* Tests of adamod_save and adamod_load: an optimizer goes on from a file as if it had never stopped, bit for bit; what
 * is in the file; and every way a file can be wrong, after which the optimizer is as it was.
 *
 * They work in a directory of their own, in memory if there is one there.
 *
 * SPDX-License-Identifier: MIT
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif

#include "adamod.h"
#include "check.h"
#include "safetensors.h"

#include <dirent.h>
#include <fcntl.h>
#include <math.h>
#include <signal.h>
#include <stdbool.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#define FILE_NAME "state.safetensors"

/* ---- Files -------------------------------------------------------------------------------------------------------- */

static char scratch[512];

/* How many files there are; removes them if told to. */
static int files(bool remove_them) {
    DIR *dir = opendir(scratch);
    int n = 0;
    for (struct dirent *e; dir && (e = readdir(dir));) {
        if (!strcmp(e->d_name, ".") || !strcmp(e->d_name, "..")) continue;
        n++;
        if (remove_them && unlinkat(dirfd(dir), e->d_name, 0) < 0) unlinkat(dirfd(dir), e->d_name, AT_REMOVEDIR);
    }
    if (dir) closedir(dir);
    return n;
}

static void leave_scratch(void) {
    files(true);
    rmdir(scratch);
}

static void enter_scratch(void) {
    if (!scratch[0]) {
        const char *tmp = getenv("TMPDIR");
        tmp = access("/dev/shm", W_OK) == 0 ? "/dev/shm" : tmp && *tmp == '/' ? tmp : "/tmp";
        snprintf(scratch, sizeof scratch, "%s/adamod_state_XXXXXX", tmp);
        if (!mkdtemp(scratch) || chdir(scratch)) abort();
        atexit(leave_scratch);
    }
    files(true);
}

static size_t get_file(const char *name, unsigned char *bytes, size_t room) {
    FILE *f = fopen(name, "rb");
    if (!f) return 0;
    const size_t n = fread(bytes, 1, room, f);
    fclose(f);
    if (n == room) abort();
    return n;
}

static void put_file(const char *name, const void *bytes, size_t n) {
    FILE *f = fopen(name, "wb");
    if (!f || fwrite(bytes, 1, n, f) != n || fclose(f)) abort();
}

/* ---- A model: rules, and types -------------------------------------------------------------------------------------- */

static const struct {
    const char *rule, *option, *value, *option2, *value2;
} rules[] = {
    {"adamod", NULL, NULL, NULL, NULL},
    {"adamod", "flavour", "published", NULL, NULL},
    {"adam", NULL, NULL, NULL, NULL},
    {"amsgrad", NULL, NULL, NULL, NULL},
    {"sgd", NULL, NULL, NULL, NULL},
    {"sgd", "momentum", "0.9", "dampening", "0.1"},
    {"adagrad", "initial", "0.1", NULL, NULL},
    {"rmsprop", NULL, NULL, NULL, NULL},
    {"rmsprop", "centered", "1", NULL, NULL},
    {"rmsprop", "centered", "1", "momentum", "0.5"},
    {"adadelta", NULL, NULL, NULL, NULL},
    {"adabound", NULL, NULL, NULL, NULL},
    {"amsbound", NULL, NULL, NULL, NULL},
    {"adashift", "window", "3", NULL, NULL},
    {"adashift", "window", "2", "spatial", "none"},
    {"nosadam", NULL, NULL, NULL, NULL},
    {"adafactor", NULL, NULL, NULL, NULL},
    {"adafactor", "beta1", "0.9", NULL, NULL},
    {"radam", NULL, NULL, NULL, NULL},
};
enum { RULES = sizeof rules / sizeof *rules };

typedef struct kind {
    adamod_type type;
    bool stochastic, bf16_states;
} kind;
static const kind kinds[] = {
    {ADAMOD_F32, false, false}, {ADAMOD_F64, false, false}, {ADAMOD_BF16, false, false},
    {ADAMOD_BF16, true, false}, {ADAMOD_F32, false, true},  {ADAMOD_BF16, true, true},
    {ADAMOD_F16, false, false}, {ADAMOD_F16, true, true},   {ADAMOD_F64, false, true},
};
enum { KINDS = sizeof kinds / sizeof *kinds };

enum { TENSORS = 5, MOST = 35 };
static const struct {
    const char *name;
    int ndim;
    int64_t shape[3];
} layout[TENSORS] = {
    {"layer.0.weight", 2, {5, 7}}, {"layer.0.bias", 1, {9}}, {"scale", 0, {0}},
    {"nothing", 2, {0, 3}},        {"late", 3, {2, 2, 3}},
};
enum { LATE = TENSORS - 1 };

typedef struct model {
    adamod_optimizer *opt;
    kind kind;
    double p[TENSORS][MOST], g[TENSORS][MOST]; /* room for the largest type */
    bool late;                                 /* whether it has a gradient by now */
} model;

static double noise(uint64_t i) {
    uint64_t x = (i + 1) * 0x9e3779b97f4a7c15u;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return (double)((x ^ (x >> 31)) >> 11) / 4503599627370496.0 - 1;
}

static size_t type_size(adamod_type type) { return type == ADAMOD_F64 ? 8 : type == ADAMOD_F32 ? 4 : 2; }

static void set(adamod_type type, void *array, int64_t i, double x) {
    const float f = (float)x;
    uint32_t bits;
    memcpy(&bits, &f, sizeof bits);
    if (type == ADAMOD_F64) ((double *)array)[i] = x;
    if (type == ADAMOD_F32) ((float *)array)[i] = f;
    if (type == ADAMOD_BF16) ((uint16_t *)array)[i] = (uint16_t)(bits >> 16);
    /* f16 of a normal number, truncated; smaller ones become 0 */
    const uint32_t exponent = bits >> 23 & 0xff;
    const uint32_t half = exponent < 113 ? 0 : ((exponent - 112) << 10 | (bits >> 13 & 0x3ff));
    if (type == ADAMOD_F16) ((uint16_t *)array)[i] = (uint16_t)((bits >> 16 & 0x8000) | half);
}

static int64_t count_of(int k) {
    int64_t n = 1;
    for (int d = 0; d < layout[k].ndim; d++) n *= layout[k].shape[d];
    return n;
}

static void gradients(model *m, int step) {
    for (int k = 0; k < TENSORS; k++) {
        for (int64_t i = 0; i < count_of(k); i++) {
            set(m->kind.type, m->g[k], i, noise((uint64_t)(k * 10000 + step * 100 + i)));
        }
    }
}

static void make_as(model *m, int rule, kind types, const adamod_allocator *allocator, const char *rename_last) {
    memset(m, 0, sizeof *m);
    m->kind = types;
    if (!CHECK_INT(adamod_create_with(&m->opt, rules[rule].rule, allocator), ADAMOD_OK)) abort();
    if (rules[rule].option) CHECK_INT(adamod_set_text(m->opt, rules[rule].option, rules[rule].value), ADAMOD_OK);
    if (rules[rule].option2) CHECK_INT(adamod_set_text(m->opt, rules[rule].option2, rules[rule].value2), ADAMOD_OK);
    if (types.stochastic) CHECK_INT(adamod_set_text(m->opt, "low_precision", "stochastic"), ADAMOD_OK);
    if (types.bf16_states) CHECK_INT(adamod_set_text(m->opt, "state_type", "bf16"), ADAMOD_OK);
    CHECK_INT(adamod_set_text(m->opt, "nonfinite", "skip"), ADAMOD_OK);
    CHECK_INT(adamod_set(m->opt, "seed", 42), ADAMOD_OK);
    CHECK_INT(adamod_set(m->opt, "threads", 1), ADAMOD_OK);
    adamod_schedule *s = NULL;
    CHECK_INT(adamod_schedule_warmup_rsqrt(&s, 0, 6), ADAMOD_OK);
    CHECK_INT(adamod_set_schedule(m->opt, 0, "lr", s), ADAMOD_OK);
    adamod_schedule_free(s);
    for (int k = 0; k < TENSORS; k++) {
        for (int64_t i = 0; i < count_of(k); i++) set(types.type, m->p[k], i, noise((uint64_t)(k * 1000 + i)));
        adamod_tensor t = {.name = layout[k].name,
                           .param = m->p[k],
                           .grad = k == LATE ? NULL : m->g[k],
                           .param_type = types.type,
                           .grad_type = types.type,
                           .ndim = layout[k].ndim};
        if (k == LATE && rename_last) t.name = rename_last;
        memcpy(t.shape, layout[k].shape, sizeof layout[k].shape);
        CHECK_INT(adamod_add_tensor(m->opt, 0, &t, NULL), ADAMOD_OK);
    }
}

static void make(model *m, int rule, kind types) { make_as(m, rule, types, NULL, NULL); }

/* Updates from..to. Update 3 is preceded by one that is skipped, and from update 4 on all parameters take part. */
static void updates(model *m, int from, int to) {
    for (int t = from; t <= to; t++) {
        gradients(m, t);
        if (t == 3) {
            memset(m->g[0], 0xff, 8); /* NaN in every type */
            CHECK_INT(adamod_step(m->opt), ADAMOD_OK);
            gradients(m, t);
        }
        if (t == 4) {
            CHECK_INT(adamod_set_grad(m->opt, LATE, m->g[LATE]), ADAMOD_OK);
            m->late = true;
        }
        CHECK_INT(adamod_step(m->opt), ADAMOD_OK);
    }
}

/* ---- Whether two optimizers are the same -------------------------------------------------------------------------- */

static const char *const state_names[] = {
    "exp_avg",         "exp_avg_sq", "exp_avg_lr", "max_exp_avg_sq", "exp_avg_sq_row", "exp_avg_sq_col", "grad_queue",
    "momentum_buffer", "sum",        "square_avg", "grad_avg",       "acc_delta",      "master",         NULL};

typedef struct snapshot {
    unsigned char bytes[1 << 16];
    size_t n;
} snapshot;

static void put(snapshot *s, const void *data, size_t n) {
    if (s->n + n > sizeof s->bytes) abort();
    if (n) memcpy(s->bytes + s->n, data, n);
    s->n += n;
}

/* Counts, parameters and states; with their addresses, if told to. */
static void take(snapshot *s, const model *m, bool addresses) {
    s->n = 0;
    const int64_t counts[] = {adamod_steps(m->opt), adamod_skipped(m->opt), adamod_tensors(m->opt)};
    size_t states = 0, seen = 0;
    adamod_memory(m->opt, &states, NULL);
    put(s, counts, sizeof counts);
    put(s, m->p, sizeof m->p);
    for (int k = 0; k < TENSORS; k++) {
        int64_t steps = -1;
        CHECK_INT(adamod_tensor_steps(m->opt, k, &steps), ADAMOD_OK);
        put(s, &steps, sizeof steps);
        for (int i = 0; state_names[i]; i++) {
            void *data = NULL;
            adamod_type type = ADAMOD_F32;
            int64_t n = 0;
            if (adamod_state(m->opt, k, state_names[i], &data, &type, &n)) continue;
            put(s, data, (size_t)n * type_size(type));
            if (addresses) put(s, &data, sizeof data);
            seen += (size_t)n * type_size(type);
        }
    }
    CHECK_INT(seen, states); /* no state is unknown to this test */
}

static snapshot one, two;

static bool same(const model *a, const model *b) {
    take(&one, a, false);
    take(&two, b, false);
    return one.n == two.n && memcmp(one.bytes, two.bytes, one.n) == 0;
}

static char message[600];

/* Loading this fails, and the optimizer is as it was, down to where its states lie. */
static bool refused(const model *m, const char *path, adamod_status status, const char *part, int line) {
    take(&one, m, true);
    const adamod_status found = adamod_load(m->opt, path);
    snprintf(message, sizeof message, "%s", adamod_last_error());
    take(&two, m, true);
    const int failures = check_failures;
    if (status != ADAMOD_OK) check_int(found, status, part, __FILE__, line);
    else check_true(found != ADAMOD_OK, part, __FILE__, line);
    if (found) check_has(message, part, "the message", __FILE__, line);
    check_true(one.n == two.n && memcmp(one.bytes, two.bytes, one.n) == 0, "nothing changes", __FILE__, line);
    return check_failures == failures;
}
#define REFUSED(m, path, status, part) refused(m, path, status, part, __LINE__)

/* ---- Going on ----------------------------------------------------------------------------------------------------- */

TEST(goes_on_bit_for_bit) {
    enum { BEFORE = 6, ALL = 12 };
    for (int r = 0; r < RULES; r++) {
        for (int k = 0; k < KINDS; k++) {
            model first, second;
            unsigned char saved[16384], again[16384];
            enter_scratch();
            make(&first, r, kinds[k]);
            make(&second, r, kinds[k]);
            updates(&first, 1, BEFORE);
            CHECK_INT(adamod_skipped(first.opt), 1);
            CHECK_INT(adamod_save(first.opt, FILE_NAME), ADAMOD_OK);
            CHECK_INT(files(false), 1);
            /* into a fresh one, with the parameters as their owner saved them */
            memcpy(second.p, first.p, sizeof first.p);
            CHECK_INT(adamod_load(second.opt, FILE_NAME), ADAMOD_OK);
            CHECK_INT(adamod_set_grad(second.opt, LATE, second.g[LATE]), ADAMOD_OK);
            CHECK(same(&first, &second));
            const size_t n = get_file(FILE_NAME, saved, sizeof saved);
            CHECK_INT(adamod_save(second.opt, "again"), ADAMOD_OK);
            CHECK_INT(get_file("again", again, sizeof again), n);
            CHECK(memcmp(saved, again, n) == 0);
            updates(&first, BEFORE + 1, ALL);
            updates(&second, BEFORE + 1, ALL);
            if (!CHECK(same(&first, &second))) printf("  %s %d\n", rules[r].rule, k);
            int64_t steps = -1;
            CHECK_INT(adamod_tensor_steps(second.opt, LATE, &steps), ADAMOD_OK);
            CHECK_INT(steps, ALL - 3);
            CHECK_INT(adamod_steps(second.opt), ALL);
            CHECK_INT(adamod_skipped(second.opt), 1);
            adamod_free(first.opt);
            adamod_free(second.opt);
        }
    }
}

/* Back to where a file was written, more than once, in the same optimizer. */
TEST(goes_back) {
    enter_scratch();
    model m;
    static double p[TENSORS][MOST], end[TENSORS][MOST];
    make(&m, 0, kinds[3]);
    updates(&m, 1, 5);
    CHECK_INT(adamod_save(m.opt, FILE_NAME), ADAMOD_OK);
    memcpy(p, m.p, sizeof p);
    updates(&m, 6, 9);
    memcpy(end, m.p, sizeof end);
    for (int i = 0; i < 3; i++) {
        CHECK_INT(adamod_load(m.opt, FILE_NAME), ADAMOD_OK);
        CHECK_INT(adamod_steps(m.opt), 5);
        memcpy(m.p, p, sizeof p);
        updates(&m, 6, 9);
        CHECK(memcmp(end, m.p, sizeof end) == 0);
    }
    adamod_free(m.opt);
}

/* Before the first update, and with nothing to save at all. */
TEST(fresh_and_empty) {
    enter_scratch();
    model a, b;
    make(&a, 0, kinds[2]);
    make(&b, 0, kinds[2]);
    CHECK_INT(adamod_save(a.opt, FILE_NAME), ADAMOD_OK);
    CHECK_INT(adamod_load(b.opt, FILE_NAME), ADAMOD_OK);
    CHECK(same(&a, &b));
    updates(&b, 1, 4);
    CHECK_INT(adamod_load(b.opt, FILE_NAME), ADAMOD_OK);
    CHECK_INT(adamod_steps(b.opt), 0);
    adamod_optimizer *none = NULL;
    CHECK_INT(adamod_create(&none, "adamod"), ADAMOD_OK);
    CHECK_INT(adamod_save(none, "none"), ADAMOD_OK);
    CHECK_INT(adamod_load(none, "none"), ADAMOD_OK);
    CHECK_INT(adamod_load(none, FILE_NAME), ADAMOD_ERROR_MISMATCH);
    REFUSED(&b, "none", ADAMOD_ERROR_MISMATCH, "0 tensors, expected ");
    adamod_free(none);
    adamod_free(a.opt);
    adamod_free(b.opt);
}

/* Parameters are found by name, not by number. */
TEST(another_order) {
    enter_scratch();
    float p[4] = {1, 2, 3, 4}, g[4] = {1, -1, 2, 5}, q[4];
    adamod_optimizer *a = NULL, *b = NULL;
    const int64_t shape[] = {2};
    CHECK_INT(adamod_create(&a, "adamod"), ADAMOD_OK);
    CHECK_INT(adamod_create(&b, "adamod"), ADAMOD_OK);
    CHECK_INT(adamod_add(a, "x", p, g, 1, shape), ADAMOD_OK);
    CHECK_INT(adamod_add(a, "y", p + 2, g + 2, 1, shape), ADAMOD_OK);
    CHECK_INT(adamod_add(b, "y", q + 2, g + 2, 1, shape), ADAMOD_OK);
    CHECK_INT(adamod_add(b, "x", q, g, 1, shape), ADAMOD_OK);
    for (int i = 0; i < 3; i++) CHECK_INT(adamod_step(a), ADAMOD_OK);
    CHECK_INT(adamod_save(a, FILE_NAME), ADAMOD_OK);
    CHECK_INT(adamod_load(b, FILE_NAME), ADAMOD_OK);
    memcpy(q, p, sizeof q);
    for (int i = 0; i < 3; i++) {
        CHECK_INT(adamod_step(a), ADAMOD_OK);
        CHECK_INT(adamod_step(b), ADAMOD_OK);
    }
    CHECK(memcmp(p, q, sizeof p) == 0);
    adamod_free(a);
    adamod_free(b);
}

TEST(large) {
    enum { N = 300001 };
    enter_scratch();
    float *p = calloc(N, sizeof *p), *g = calloc(N, sizeof *g), *q = calloc(N, sizeof *q);
    adamod_optimizer *a = NULL, *b = NULL;
    const int64_t shape[] = {N};
    if (!p || !g || !q) abort();
    for (uint64_t i = 0; i < N; i++) g[i] = (float)noise(i);
    CHECK_INT(adamod_create(&a, "adamod"), ADAMOD_OK);
    CHECK_INT(adamod_create(&b, "adamod"), ADAMOD_OK);
    CHECK_INT(adamod_add(a, "w", p, g, 1, shape), ADAMOD_OK);
    CHECK_INT(adamod_add(b, "w", q, g, 1, shape), ADAMOD_OK);
    for (int i = 0; i < 2; i++) CHECK_INT(adamod_step(a), ADAMOD_OK);
    CHECK_INT(adamod_save(a, FILE_NAME), ADAMOD_OK);
    CHECK_INT(adamod_load(b, FILE_NAME), ADAMOD_OK);
    memcpy(q, p, N * sizeof *p);
    CHECK_INT(adamod_step(a), ADAMOD_OK);
    CHECK_INT(adamod_step(b), ADAMOD_OK);
    CHECK(memcmp(p, q, N * sizeof *p) == 0);
    adamod_free(a);
    adamod_free(b);
    free(p);
    free(q);
    free(g);
}

/* ---- What is in a file --------------------------------------------------------------------------------------------- */

static void check_entry(const adamod__st_file *f, const char *name, const char *dtype, int ndim, const int64_t *shape) {
    const adamod__st_entry *e = adamod__st_find(f, name);
    if (!CHECK(e != NULL)) {
        printf("  no %s\n", name);
        return;
    }
    CHECK_STR(adamod__st_dtype_name(e->dtype), dtype);
    CHECK_INT(e->ndim, ndim);
    for (int d = 0; d < ndim && d < e->ndim; d++) CHECK_INT(e->shape[d], shape[d]);
}

TEST(names_in_a_file) {
    static const struct {
        const char *rule, *option, *value;
        const char *states[4]; /* of a matrix */
        const char *vector[4]; /* of a vector, where it differs */
    } expected[] = {
        {"adamod", NULL, NULL, {"exp_avg", "exp_avg_sq", "exp_avg_lr"}, {0}},
        {"adam", NULL, NULL, {"exp_avg", "exp_avg_sq"}, {0}},
        {"amsgrad", NULL, NULL, {"exp_avg", "exp_avg_sq", "max_exp_avg_sq"}, {0}},
        {"sgd", NULL, NULL, {0}, {0}},
        {"sgd", "momentum", "0.9", {"momentum_buffer"}, {0}},
        {"adagrad", NULL, NULL, {"sum"}, {0}},
        {"rmsprop", NULL, NULL, {"square_avg"}, {0}},
        {"rmsprop", "centered", "1", {"square_avg", "grad_avg"}, {0}},
        {"rmsprop", "momentum", "0.9", {"square_avg", "momentum_buffer"}, {0}},
        {"adadelta", NULL, NULL, {"square_avg", "acc_delta"}, {0}},
        {"adabound", NULL, NULL, {"exp_avg", "exp_avg_sq"}, {0}},
        {"amsbound", NULL, NULL, {"exp_avg", "exp_avg_sq", "max_exp_avg_sq"}, {0}},
        {"adashift", NULL, NULL, {"exp_avg", "exp_avg_sq", "grad_queue"}, {0}},
        {"nosadam", NULL, NULL, {"exp_avg", "exp_avg_sq"}, {0}},
        {"adafactor", NULL, NULL, {"exp_avg_sq_row", "exp_avg_sq_col"}, {"exp_avg_sq"}},
        {"radam", NULL, NULL, {"exp_avg", "exp_avg_sq"}, {0}},
    };
    float w[6] = {0}, b[3] = {0};
    const float g[6] = {1, 2, 3, 4, 5, 6};
    for (size_t i = 0; i < sizeof expected / sizeof *expected; i++) {
        adamod_optimizer *opt = NULL;
        adamod__st_file f;
        char error[400], name[64];
        enter_scratch();
        CHECK_INT(adamod_create(&opt, expected[i].rule), ADAMOD_OK);
        if (expected[i].option) CHECK_INT(adamod_set_text(opt, expected[i].option, expected[i].value), ADAMOD_OK);
        CHECK_INT(adamod_add(opt, "fc.weight", w, g, 2, (const int64_t[]){2, 3}), ADAMOD_OK);
        CHECK_INT(adamod_add(opt, "fc.bias", b, g, 1, (const int64_t[]){3}), ADAMOD_OK);
        CHECK_INT(adamod_step(opt), ADAMOD_OK);
        CHECK_INT(adamod_save(opt, FILE_NAME), ADAMOD_OK);
        if (!CHECK_INT(adamod__st_open(FILE_NAME, &f, error, sizeof error), ADAMOD_OK)) return;
        size_t n = 2;
        for (int k = 0; k < 4; k++) {
            const char *vector = expected[i].vector[0] ? expected[i].vector[k] : expected[i].states[k];
            if (expected[i].states[k]) {
                n++;
                snprintf(name, sizeof name, "fc.weight.%s", expected[i].states[k]);
                CHECK(adamod__st_find(&f, name) != NULL);
            }
            if (vector) {
                n++;
                snprintf(name, sizeof name, "fc.bias.%s", vector);
                CHECK(adamod__st_find(&f, name) != NULL);
            }
        }
        if (!CHECK_INT(f.n_entries, n)) printf("  %s\n", expected[i].rule);
        check_entry(&f, "fc.weight.step", "I64", 0, NULL);
        check_entry(&f, "fc.bias.step", "I64", 0, NULL);
        CHECK_STR(adamod__st_metadata(&f, "format"), "adamod optimizer state 1");
        CHECK_STR(adamod__st_metadata(&f, "rule"), expected[i].rule);
        CHECK_STR(adamod__st_metadata(&f, "steps"), "1");
        CHECK_STR(adamod__st_metadata(&f, "skipped"), "0");
        CHECK_INT(f.n_metadata, 4);
        adamod__st_close(&f);
        adamod_free(opt);
    }
}

TEST(types_and_shapes_in_a_file) {
    adamod__st_file f;
    char error[400];
    model m;
    int64_t step = -1;
    enter_scratch();
    make(&m, 0, kinds[2]); /* bf16 with masters */
    updates(&m, 1, 5);
    CHECK_INT(adamod_save(m.opt, FILE_NAME), ADAMOD_OK);
    if (!CHECK_INT(adamod__st_open(FILE_NAME, &f, error, sizeof error), ADAMOD_OK)) return;
    CHECK_INT(f.n_entries, 25);
    check_entry(&f, "layer.0.weight.exp_avg", "F32", 2, (const int64_t[]){5, 7});
    check_entry(&f, "layer.0.weight.exp_avg_sq", "F32", 2, (const int64_t[]){5, 7});
    check_entry(&f, "layer.0.weight.exp_avg_lr", "F32", 2, (const int64_t[]){5, 7});
    check_entry(&f, "layer.0.weight.master", "F32", 2, (const int64_t[]){5, 7});
    check_entry(&f, "scale.exp_avg", "F32", 0, NULL);
    check_entry(&f, "nothing.exp_avg", "F32", 2, (const int64_t[]){0, 3});
    check_entry(&f, "late.exp_avg", "F32", 3, (const int64_t[]){2, 2, 3});
    const adamod__st_entry *e = adamod__st_find(&f, "late.step");
    if (CHECK(e != NULL)) CHECK_INT(adamod__st_read(&f, e, &step, error, sizeof error), ADAMOD_OK);
    CHECK_INT(step, 2);
    CHECK_STR(adamod__st_metadata(&f, "steps"), "5");
    CHECK_STR(adamod__st_metadata(&f, "skipped"), "1");
    adamod__st_close(&f);
    adamod_free(m.opt);
    make(&m, 13, kinds[8]); /* adashift, f64 with bf16 states */
    CHECK_INT(adamod_save(m.opt, FILE_NAME), ADAMOD_OK);
    if (!CHECK_INT(adamod__st_open(FILE_NAME, &f, error, sizeof error), ADAMOD_OK)) return;
    CHECK_INT(f.n_entries, 20);
    check_entry(&f, "layer.0.weight.grad_queue", "BF16", 3, (const int64_t[]){3, 5, 7});
    check_entry(&f, "layer.0.weight.exp_avg_sq", "BF16", 0, NULL);
    check_entry(&f, "scale.grad_queue", "BF16", 1, (const int64_t[]){3});
    adamod__st_close(&f);
    adamod_free(m.opt);
    make(&m, 0, kinds[1]); /* f64 */
    CHECK_INT(adamod_save(m.opt, FILE_NAME), ADAMOD_OK);
    if (!CHECK_INT(adamod__st_open(FILE_NAME, &f, error, sizeof error), ADAMOD_OK)) return;
    check_entry(&f, "layer.0.bias.exp_avg", "F64", 1, (const int64_t[]){9});
    adamod__st_close(&f);
    adamod_free(m.opt);
}

TEST(unusual_names) {
    static const char *const names[] = {
        "",
        " ",
        ".",
        "a",
        "a.exp_avg",
        "a.exp_avg.exp_avg",
        "a.step",
        "\"quoted\"",
        "back\\slash\\u0041",
        "module/layer/0",
        "../../etc/passwd",
        "line\nbreak\ttab",
        "control\x01\x1f\x7f",
        "\xc3\xa4\xc3\xb6\xc3\xbc \xce\xb8\xe2\x82\x81",     /* umlauts, theta with an index */
        "\xe6\xa8\xa1\xe5\x9e\x8b.\xe6\x9d\x83\xe9\x87\x8d", /* Chinese */
        "\xf0\x9f\x94\xa5",                                  /* an emoji */
        "__metadata__",
        "{\"dtype\":\"F32\"}",
        "%s%n%d",
    };
    enum { N = sizeof names / sizeof *names };
    float p[N + 1] = {0}, q[N + 1] = {0}, g[N + 1];
    adamod_optimizer *a = NULL, *b = NULL;
    char longest[3000];
    memset(longest, 'x', sizeof longest - 1);
    longest[sizeof longest - 1] = '\0';
    enter_scratch();
    CHECK_INT(adamod_create(&a, "adamod"), ADAMOD_OK);
    CHECK_INT(adamod_create(&b, "adamod"), ADAMOD_OK);
    for (int i = 0; i <= N; i++) {
        g[i] = (float)(i + 1);
        CHECK_INT(adamod_add(a, i < N ? names[i] : longest, &p[i], &g[i], 0, NULL), ADAMOD_OK);
        const int k = N - i;
        CHECK_INT(adamod_add(b, k < N ? names[k] : longest, &q[k], &g[k], 0, NULL), ADAMOD_OK);
    }
    for (int i = 0; i < 3; i++) CHECK_INT(adamod_step(a), ADAMOD_OK);
    if (!CHECK_INT(adamod_save(a, FILE_NAME), ADAMOD_OK)) printf("  %s\n", adamod_last_error());
    if (!CHECK_INT(adamod_load(b, FILE_NAME), ADAMOD_OK)) printf("  %s\n", adamod_last_error());
    memcpy(q, p, sizeof q);
    for (int i = 0; i < 3; i++) {
        CHECK_INT(adamod_step(a), ADAMOD_OK);
        CHECK_INT(adamod_step(b), ADAMOD_OK);
    }
    CHECK(memcmp(p, q, sizeof p) == 0);
    adamod_free(a);
    adamod_free(b);
    /* What is not UTF-8 cannot stand in a file, and is refused when it should. */
    float x = 0;
    CHECK_INT(adamod_create(&a, "adamod"), ADAMOD_OK);
    CHECK_INT(adamod_add(a, "caf\xe9", &x, NULL, 0, NULL), ADAMOD_OK);
    files(true);
    CHECK_INT(adamod_save(a, FILE_NAME), ADAMOD_ERROR_ARGUMENT);
    CHECK_HAS(adamod_last_error(), "UTF-8");
    CHECK_INT(files(false), 0);
    adamod_free(a);
}

/* ---- Files that are wrong ----------------------------------------------------------------------------------------- */

TEST(no_file) {
    enter_scratch();
    model m;
    make(&m, 0, kinds[0]);
    updates(&m, 1, 5);
    REFUSED(&m, "missing", ADAMOD_ERROR_IO, "missing");
    REFUSED(&m, "missing/state", ADAMOD_ERROR_IO, "missing/state");
    REFUSED(&m, "", ADAMOD_ERROR_IO, "");
    REFUSED(&m, ".", ADAMOD_OK, "."); /* a directory */
    put_file(FILE_NAME, "", 0);
    REFUSED(&m, FILE_NAME, ADAMOD_ERROR_FORMAT, FILE_NAME);
    put_file(FILE_NAME, "not a safetensors file at all", 29);
    REFUSED(&m, FILE_NAME, ADAMOD_ERROR_FORMAT, FILE_NAME);
    put_file(FILE_NAME, "\x02\0\0\0\0\0\0\0{}", 10);
    REFUSED(&m, FILE_NAME, ADAMOD_ERROR_MISMATCH, "format is ''");
    adamod_free(m.opt);
}

TEST(truncated) {
    static unsigned char bytes[1 << 16];
    enter_scratch();
    model m;
    make(&m, 0, kinds[2]);
    updates(&m, 1, 5);
    CHECK_INT(adamod_save(m.opt, FILE_NAME), ADAMOD_OK);
    updates(&m, 6, 7);
    const size_t n = get_file(FILE_NAME, bytes, sizeof bytes - 1);
    for (size_t k = 0; k < n; k += k < 64 || k > n - 64 ? 1 : 64) {
        put_file(FILE_NAME, bytes, k);
        if (!REFUSED(&m, FILE_NAME, ADAMOD_ERROR_FORMAT, FILE_NAME)) printf("  at %zu of %zu\n", k, n);
    }
    bytes[n] = 0;
    put_file(FILE_NAME, bytes, n + 1);
    REFUSED(&m, FILE_NAME, ADAMOD_ERROR_FORMAT, FILE_NAME);
    put_file(FILE_NAME, bytes, n);
    CHECK_INT(adamod_load(m.opt, FILE_NAME), ADAMOD_OK);
    adamod_free(m.opt);
}

/* Any bit of the header: refused and nothing changed, or taken where it is a digit of the two counts. */
TEST(flipped_bits) {
    static unsigned char bytes[1 << 16];
    enter_scratch();
    model m;
    make(&m, 4, kinds[2]); /* few states, so that there are not too many bits */
    updates(&m, 1, 5);
    CHECK_INT(adamod_save(m.opt, FILE_NAME), ADAMOD_OK);
    const size_t n = get_file(FILE_NAME, bytes, sizeof bytes);
    size_t header = 8;
    for (int i = 0; i < 8; i++) header += (size_t)bytes[i] << (8 * i);
    CHECK(header < n);
    int taken = 0;
    updates(&m, 6, 6);
    for (size_t bit = 0; bit < 8 * header; bit++) {
        bytes[bit / 8] ^= (unsigned char)(1u << bit % 8);
        put_file(FILE_NAME, bytes, n);
        take(&one, &m, true);
        if (adamod_load(m.opt, FILE_NAME) == ADAMOD_OK) {
            taken++;
            CHECK(bytes[bit / 8] >= '0' && bytes[bit / 8] <= '9');
            CHECK(adamod_steps(m.opt) >= 0 && adamod_steps(m.opt) <= 9 && adamod_skipped(m.opt) <= 9);
            CHECK(adamod_steps(m.opt) != 5 || adamod_skipped(m.opt) != 1);
            CHECK_INT(adamod_step(m.opt), ADAMOD_OK);
        } else {
            take(&two, &m, true);
            if (!CHECK(one.n == two.n && memcmp(one.bytes, two.bytes, one.n) == 0)) printf("  bit %zu\n", bit);
        }
        bytes[bit / 8] ^= (unsigned char)(1u << bit % 8);
    }
    CHECK(taken > 0 && taken <= 8); /* 5 and 1 are one bit away from these */
    adamod_free(m.opt);
}

TEST(files_of_other_optimizers) {
    enter_scratch();
    model m, other;
    make(&m, 0, kinds[0]);
    updates(&m, 1, 5);
    /* every other rule */
    for (int r = 2; r < RULES; r++) {
        make(&other, r, kinds[0]);
        CHECK_INT(adamod_save(other.opt, FILE_NAME), ADAMOD_OK);
        REFUSED(&m, FILE_NAME, ADAMOD_ERROR_MISMATCH, "expected 'adamod'");
        CHECK_HAS(message, rules[r].rule);
        adamod_free(other.opt);
    }
    /* other types, where those of the states differ */
    for (int k = 1; k < KINDS; k++) {
        make(&other, 0, kinds[k]);
        updates(&other, 1, 2);
        CHECK_INT(adamod_save(other.opt, FILE_NAME), ADAMOD_OK);
        const bool fits = kinds[k].type != ADAMOD_F64 && !kinds[k].bf16_states && kinds[k].stochastic;
        if (!fits) REFUSED(&m, FILE_NAME, ADAMOD_ERROR_MISMATCH, FILE_NAME);
        if (!fits) CHECK(strstr(message, "expected F32") || strstr(message, "expected 20"));
        adamod_free(other.opt);
    }
    adamod_free(m.opt);
    /* the same rule with other states */
    make(&m, 5, kinds[0]);
    make(&other, 4, kinds[0]);
    CHECK_INT(adamod_save(other.opt, FILE_NAME), ADAMOD_OK);
    REFUSED(&m, FILE_NAME, ADAMOD_ERROR_MISMATCH, "5 tensors, expected 10 for 5 parameters");
    CHECK_INT(adamod_save(m.opt, FILE_NAME), ADAMOD_OK);
    REFUSED(&other, FILE_NAME, ADAMOD_ERROR_MISMATCH, "10 tensors, expected 5");
    adamod_free(m.opt);
    adamod_free(other.opt);
    make(&m, 13, kinds[0]);
    make(&other, 14, kinds[0]); /* another window */
    CHECK_INT(adamod_save(other.opt, FILE_NAME), ADAMOD_OK);
    REFUSED(&m, FILE_NAME, ADAMOD_ERROR_MISMATCH, "has shape");
    adamod_free(m.opt);
    adamod_free(other.opt);
    /* another name */
    make(&m, 0, kinds[0]);
    make_as(&other, 0, kinds[0], NULL, "later");
    CHECK_INT(adamod_save(other.opt, FILE_NAME), ADAMOD_OK);
    REFUSED(&m, FILE_NAME, ADAMOD_ERROR_MISMATCH, "no tensor 'late.exp_avg'");
    /* fewer parameters, and more */
    float x = 0;
    CHECK_INT(adamod_save(m.opt, FILE_NAME), ADAMOD_OK);
    CHECK_INT(adamod_add(m.opt, "x", &x, NULL, 0, NULL), ADAMOD_OK);
    CHECK_INT(adamod_load(m.opt, FILE_NAME), ADAMOD_ERROR_MISMATCH);
    CHECK_HAS(adamod_last_error(), "20 tensors, expected 24 for 6 parameters");
    CHECK_INT(adamod_save(m.opt, FILE_NAME), ADAMOD_OK);
    REFUSED(&other, FILE_NAME, ADAMOD_ERROR_MISMATCH, "24 tensors, expected 20 for 5 parameters");
    adamod_free(m.opt);
    adamod_free(other.opt);
}

/* Another shape of as many elements, and of more. */
TEST(other_shapes) {
    static const struct {
        int ndim;
        int64_t shape[3];
    } shapes[] = {{1, {6}},    {2, {3, 2}}, {3, {1, 2, 3}}, {3, {2, 3, 1}},
                  {2, {2, 2}}, {2, {3, 3}}, {0, {0}},       {2, {0, 3}}};
    enter_scratch();
    float p[6] = {1, 2, 3, 4, 5, 6}, q[9] = {0};
    const float g[9] = {1, 2, 3, 4, 5, 6, 7, 8, 9};
    adamod_optimizer *opt = NULL;
    void *m = NULL, *now = NULL;
    float copy[6];
    CHECK_INT(adamod_create(&opt, "adamod"), ADAMOD_OK);
    CHECK_INT(adamod_add(opt, "w", p, g, 2, (const int64_t[]){2, 3}), ADAMOD_OK);
    CHECK_INT(adamod_step(opt), ADAMOD_OK);
    CHECK_INT(adamod_state(opt, 0, "exp_avg", &m, NULL, NULL), ADAMOD_OK);
    memcpy(copy, m, sizeof copy);
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        adamod_optimizer *other = NULL;
        CHECK_INT(adamod_create(&other, "adamod"), ADAMOD_OK);
        CHECK_INT(adamod_add(other, "w", q, g, shapes[i].ndim, shapes[i].shape), ADAMOD_OK);
        CHECK_INT(adamod_save(other, FILE_NAME), ADAMOD_OK);
        CHECK_INT(adamod_load(opt, FILE_NAME), ADAMOD_ERROR_MISMATCH);
        CHECK_HAS(adamod_last_error(), "'w.exp_avg' has shape [");
        CHECK_HAS(adamod_last_error(), "], expected [2, 3]");
        CHECK_INT(adamod_state(opt, 0, "exp_avg", &now, NULL, NULL), ADAMOD_OK);
        CHECK(now == m && memcmp(now, copy, sizeof copy) == 0);
        CHECK_INT(adamod_steps(opt), 1);
        adamod_free(other);
    }
    adamod_free(opt);
}

/* A file written anew with something changed. */
typedef struct rewritten {
    adamod__st_pair metadata[8];
    size_t n_metadata;
    adamod__st_tensor tensors[32];
    size_t n;
    void *data[32];
    adamod__st_file file;
} rewritten;

static void read_all(rewritten *r, const char *path) {
    char error[400];
    memset(r, 0, sizeof *r);
    if (!CHECK_INT(adamod__st_open(path, &r->file, error, sizeof error), ADAMOD_OK)) abort();
    for (size_t i = 0; i < r->file.n_metadata; i++) r->metadata[r->n_metadata++] = r->file.metadata[i];
    for (size_t i = 0; i < r->file.n_entries; i++) {
        const adamod__st_entry *e = &r->file.entries[i];
        r->data[i] = calloc(1, (size_t)(e->end - e->begin) + 1);
        if (!r->data[i] || adamod__st_read(&r->file, e, r->data[i], error, sizeof error)) abort();
        adamod__st_tensor *t = &r->tensors[r->n++];
        *t = (adamod__st_tensor){.name = e->name, .dtype = e->dtype, .ndim = e->ndim, .data = r->data[i]};
        memcpy(t->shape, e->shape, sizeof t->shape);
    }
}

static void write_all(const rewritten *r, const char *path) {
    char error[400];
    if (!CHECK_INT(adamod__st_write(path, r->metadata, r->n_metadata, r->tensors, r->n, error, sizeof error),
                   ADAMOD_OK)) {
        printf("  %s\n", error);
    }
}

static void forget(rewritten *r) {
    for (size_t i = 0; i < r->file.n_entries; i++) free(r->data[i]);
    adamod__st_close(&r->file);
}

static adamod__st_pair *pair_of(rewritten *r, const char *key) {
    for (size_t i = 0; i < r->n_metadata; i++) {
        if (!strcmp(r->metadata[i].key, key)) return &r->metadata[i];
    }
    abort();
}

static adamod__st_tensor *tensor_of(rewritten *r, const char *name) {
    for (size_t i = 0; i < r->n; i++) {
        if (!strcmp(r->tensors[i].name, name)) return &r->tensors[i];
    }
    abort();
}

TEST(metadata_that_is_wrong) {
    enter_scratch();
    model m;
    rewritten r;
    make(&m, 4, kinds[0]);
    updates(&m, 1, 5);
    CHECK_INT(adamod_save(m.opt, "good"), ADAMOD_OK);
    updates(&m, 6, 6);
    /* written as it was read, it is good */
    read_all(&r, "good");
    write_all(&r, FILE_NAME);
    CHECK_INT(adamod_load(m.opt, FILE_NAME), ADAMOD_OK);
    forget(&r);
    static const struct {
        const char *key, *value; /* NULL: without it */
        adamod_status status;
        const char *says;
    } cases[] = {
        {"format", NULL, ADAMOD_ERROR_MISMATCH, "format is ''"},
        {"format", "pt", ADAMOD_ERROR_MISMATCH, "format is 'pt', expected 'adamod optimizer state 1'"},
        {"format", "adamod optimizer state 2", ADAMOD_ERROR_MISMATCH, "expected 'adamod optimizer state 1'"},
        {"rule", NULL, ADAMOD_ERROR_MISMATCH, "state of rule '', expected 'sgd'"},
        {"rule", "sgdm", ADAMOD_ERROR_MISMATCH, "state of rule 'sgdm', expected 'sgd'"},
        {"steps", NULL, ADAMOD_ERROR_FORMAT, "steps"},
        {"steps", "", ADAMOD_ERROR_FORMAT, "steps"},
        {"steps", "five", ADAMOD_ERROR_FORMAT, "steps"},
        {"steps", "-1", ADAMOD_ERROR_FORMAT, "steps"},
        {"steps", "+1", ADAMOD_ERROR_FORMAT, "steps"},
        {"steps", " 1", ADAMOD_ERROR_FORMAT, "steps"},
        {"steps", "1 ", ADAMOD_ERROR_FORMAT, "steps"},
        {"steps", "1.0", ADAMOD_ERROR_FORMAT, "steps"},
        {"steps", "1e3", ADAMOD_ERROR_FORMAT, "steps"},
        {"steps", "0x10", ADAMOD_ERROR_FORMAT, "steps"},
        {"steps", "9223372036854775808", ADAMOD_ERROR_FORMAT, "steps"},
        {"steps", "99999999999999999999999999", ADAMOD_ERROR_FORMAT, "steps"},
        {"steps", "9223372036854775807", ADAMOD_ERROR_FORMAT, "steps"}, /* there is no next one */
        {"skipped", NULL, ADAMOD_ERROR_FORMAT, "skipped"},
        {"skipped", "-5", ADAMOD_ERROR_FORMAT, "skipped"},
        {"skipped", "none", ADAMOD_ERROR_FORMAT, "skipped"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        read_all(&r, "good");
        adamod__st_pair *pair = pair_of(&r, cases[i].key);
        if (cases[i].value) pair->value = cases[i].value;
        else pair->key = "something else";
        write_all(&r, FILE_NAME);
        if (!REFUSED(&m, FILE_NAME, cases[i].status, cases[i].says)) {
            printf("  %s = %s\n", cases[i].key, cases[i].value ? cases[i].value : "(none)");
            CHECK_INT(adamod_load(m.opt, "good"), ADAMOD_OK);
        }
        forget(&r);
    }
    /* none at all; and one more than is known, which does no harm */
    read_all(&r, "good");
    r.n_metadata = 0;
    write_all(&r, FILE_NAME);
    REFUSED(&m, FILE_NAME, ADAMOD_ERROR_MISMATCH, "format is ''");
    forget(&r);
    read_all(&r, "good");
    r.metadata[r.n_metadata++] = (adamod__st_pair){"author", "somebody"};
    write_all(&r, FILE_NAME);
    CHECK_INT(adamod_load(m.opt, FILE_NAME), ADAMOD_OK);
    forget(&r);
    adamod_free(m.opt);
}

TEST(tensors_that_are_wrong) {
    enter_scratch();
    model m;
    rewritten r;
    make(&m, 0, kinds[0]);
    updates(&m, 1, 5);
    CHECK_INT(adamod_save(m.opt, "good"), ADAMOD_OK);
    updates(&m, 6, 6);
    /* one missing, one too many, one in the place of another */
    read_all(&r, "good");
    r.n--;
    write_all(&r, FILE_NAME);
    REFUSED(&m, FILE_NAME, ADAMOD_ERROR_MISMATCH, "19 tensors, expected 20");
    forget(&r);
    read_all(&r, "good");
    r.tensors[r.n] = r.tensors[0];
    r.tensors[r.n++].name = "one.more";
    write_all(&r, FILE_NAME);
    REFUSED(&m, FILE_NAME, ADAMOD_ERROR_MISMATCH, "21 tensors, expected 20");
    forget(&r);
    for (size_t i = 0; i < 20; i++) {
        read_all(&r, "good");
        r.tensors[i].name = "another";
        write_all(&r, FILE_NAME);
        REFUSED(&m, FILE_NAME, ADAMOD_ERROR_MISMATCH, "no tensor '");
        forget(&r);
    }
    /* other types of the same size */
    read_all(&r, "good");
    tensor_of(&r, "late.exp_avg")->dtype = ADAMOD__ST_I32;
    write_all(&r, FILE_NAME);
    REFUSED(&m, FILE_NAME, ADAMOD_ERROR_MISMATCH, "'late.exp_avg' is I32, expected F32");
    forget(&r);
    read_all(&r, "good");
    tensor_of(&r, "late.step")->dtype = ADAMOD__ST_F64;
    write_all(&r, FILE_NAME);
    REFUSED(&m, FILE_NAME, ADAMOD_ERROR_MISMATCH, "'late.step' is F64, expected I64");
    forget(&r);
    read_all(&r, "good");
    tensor_of(&r, "late.step")->ndim = 1;
    tensor_of(&r, "late.step")->shape[0] = 1;
    write_all(&r, FILE_NAME);
    REFUSED(&m, FILE_NAME, ADAMOD_ERROR_MISMATCH, "'late.step' has shape [1], expected []");
    forget(&r);
    /* counts that cannot be */
    const int64_t counts[] = {-1, INT64_MIN, INT64_MAX};
    for (int i = 0; i < 3; i++) {
        read_all(&r, "good");
        tensor_of(&r, "late.step")->data = &counts[i];
        write_all(&r, FILE_NAME);
        if (!REFUSED(&m, FILE_NAME, ADAMOD_ERROR_FORMAT, "'late.step' is "))
            CHECK_INT(adamod_load(m.opt, "good"), ADAMOD_OK);
        forget(&r);
    }
    adamod_free(m.opt);
}

/* ---- Saving that fails -------------------------------------------------------------------------------------------- */

TEST(saving_that_fails) {
    static unsigned char good[1 << 16], now[1 << 16];
    enter_scratch();
    model m;
    make(&m, 0, kinds[0]);
    updates(&m, 1, 5);
    CHECK_INT(adamod_save(m.opt, FILE_NAME), ADAMOD_OK);
    const size_t n = get_file(FILE_NAME, good, sizeof good);
    updates(&m, 6, 7);
    take(&one, &m, true);
    CHECK_INT(adamod_save(m.opt, "no/such/directory"), ADAMOD_ERROR_IO);
    CHECK_HAS(adamod_last_error(), "no/such/directory");
    CHECK_INT(adamod_save(m.opt, ""), ADAMOD_ERROR_IO);
    CHECK(adamod_save(m.opt, ".") != ADAMOD_OK);
    CHECK(adamod_save(m.opt, FILE_NAME "/below") == ADAMOD_ERROR_IO);
    CHECK_INT(files(false), 1);
    /* a disk that is full in the middle of the file */
    struct rlimit usual;
    getrlimit(RLIMIT_FSIZE, &usual);
    signal(SIGXFSZ, SIG_IGN);
    const struct rlimit limit = {n / 2, usual.rlim_max};
    if (setrlimit(RLIMIT_FSIZE, &limit) == 0) {
        CHECK_INT(adamod_save(m.opt, FILE_NAME), ADAMOD_ERROR_IO);
        CHECK_HAS(adamod_last_error(), FILE_NAME);
        CHECK_INT(adamod_save(m.opt, "new"), ADAMOD_ERROR_IO);
        setrlimit(RLIMIT_FSIZE, &usual);
    }
    CHECK_INT(files(false), 1); /* nothing is left behind */
    CHECK_INT(get_file(FILE_NAME, now, sizeof now), n);
    CHECK(memcmp(good, now, n) == 0);
    take(&two, &m, true);
    CHECK(one.n == two.n && memcmp(one.bytes, two.bytes, one.n) == 0);
    CHECK_INT(adamod_save(m.opt, FILE_NAME), ADAMOD_OK);
    CHECK_INT(files(false), 1);
    adamod_free(m.opt);
}

TEST(unwritable_directory) {
    if (geteuid() == 0) SKIP("root may write anywhere");
    static unsigned char good[1 << 16], now[1 << 16];
    enter_scratch();
    model m;
    make(&m, 0, kinds[0]);
    CHECK_INT(adamod_save(m.opt, FILE_NAME), ADAMOD_OK);
    const size_t n = get_file(FILE_NAME, good, sizeof good);
    updates(&m, 1, 2);
    CHECK_INT(chmod(scratch, 0500), 0);
    CHECK_INT(adamod_save(m.opt, FILE_NAME), ADAMOD_ERROR_IO);
    CHECK_INT(files(false), 1);
    CHECK_INT(chmod(scratch, 0700), 0);
    CHECK_INT(get_file(FILE_NAME, now, sizeof now), n);
    CHECK(memcmp(good, now, n) == 0);
    adamod_free(m.opt);
}

/* ---- An allocator of one's own ------------------------------------------------------------------------------------ */

typedef struct accounts {
    long bytes, blocks, until_failure;
} accounts;

static void *account_alloc(void *context, size_t size, size_t alignment) {
    accounts *a = context;
    void *p = NULL;
    if (a->until_failure > 0 && --a->until_failure == 0) return NULL;
    if (posix_memalign(&p, alignment, size)) return NULL;
    a->bytes += (long)size;
    a->blocks++;
    return p;
}

static void account_free(void *context, void *p, size_t size) {
    accounts *a = context;
    a->bytes -= (long)size;
    a->blocks--;
    free(p);
}

TEST(loading_with_an_allocator) {
    enter_scratch();
    accounts a = {0};
    const adamod_allocator allocator = {account_alloc, account_free, &a};
    model m;
    make_as(&m, 0, kinds[2], &allocator, NULL);
    updates(&m, 1, 5);
    CHECK_INT(adamod_save(m.opt, FILE_NAME), ADAMOD_OK);
    const long bytes = a.bytes, blocks = a.blocks;
    for (int i = 0; i < 3; i++) CHECK_INT(adamod_load(m.opt, FILE_NAME), ADAMOD_OK);
    CHECK_INT(a.bytes, bytes);
    CHECK_INT(a.blocks, blocks);
    updates(&m, 6, 6);
    int failures = 0;
    for (long k = 1; k < 100; k++) {
        a.until_failure = k;
        take(&one, &m, true);
        const adamod_status status = adamod_load(m.opt, FILE_NAME);
        const bool reached = a.until_failure == 0;
        a.until_failure = 0;
        if (!reached) {
            CHECK_INT(status, ADAMOD_OK);
            break;
        }
        failures++;
        CHECK_INT(status, ADAMOD_ERROR_MEMORY);
        take(&two, &m, true);
        CHECK(one.n == two.n && memcmp(one.bytes, two.bytes, one.n) == 0);
        CHECK_INT(a.bytes, bytes);
    }
    CHECK(failures >= 17);
    adamod_free(m.opt);
    CHECK_INT(a.bytes, 0);
    CHECK_INT(a.blocks, 0);
}

RUN_TESTS(ENTRY(goes_on_bit_for_bit), ENTRY(goes_back), ENTRY(fresh_and_empty), ENTRY(another_order), ENTRY(large),
          ENTRY(names_in_a_file), ENTRY(types_and_shapes_in_a_file), ENTRY(unusual_names), ENTRY(no_file),
          ENTRY(truncated), ENTRY(flipped_bits), ENTRY(files_of_other_optimizers), ENTRY(other_shapes),
          ENTRY(metadata_that_is_wrong), ENTRY(tensors_that_are_wrong), ENTRY(saving_that_fails),
          ENTRY(unwritable_directory), ENTRY(loading_with_an_allocator))
