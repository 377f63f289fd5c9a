/* test_exact.c - what must hold to the last bit, and what has a closed form.
 *
 * Bits: threads, instruction sets, alignment, statistics and the cutting of arrays change nothing; AdaMod without its
 * bound is Adam; a failed or skipped update leaves everything as it was. Closed forms: AdaMod under a constant
 * gradient, its bound, NosAdam's weights. And the conversions to and from bf16 and f16, over all of their numbers.
 *
 * SPDX-License-Identifier: MIT
 */
#include "optimizer.h"
#include "check.h"

#include <dirent.h>
#include <math.h>
#include <unistd.h>
#include <stdlib.h>

static bool fast(void) {
    const char *text = getenv("ADAMOD_TEST_FAST");
    return text && *text && *text != '0';
}

static uint64_t rng_state;

static uint64_t rng(void) { /* splitmix64 */
    uint64_t x = rng_state += 0x9e3779b97f4a7c15u;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
}

static double uniform(void) { return (double)(rng() >> 11) * 0x1p-53; }

static void *room(size_t n, size_t size) {
    void *p = calloc(n + 1, size);
    if (!p) abort();
    return p;
}

/* ---- bf16 and f16, by their definition ---- */

static double values16[2][0x8000]; /* of bf16 and f16, sign bit 0; past infinity: unused */

static unsigned infinity16(adamod_type type) { return type == ADAMOD_BF16 ? 0x7f80u : 0x7c00u; }

/* The value of a pattern without sign that is not a NaN; for infinity's the number that would follow the largest. */
static double decode16(adamod_type type, unsigned bits) {
    double *values = values16[type == ADAMOD_F16];
    if (values[1] == 0) {
        const int fraction_bits = type == ADAMOD_BF16 ? 7 : 10, bias = type == ADAMOD_BF16 ? 127 : 15;
        const unsigned one = 1u << fraction_bits;
        for (unsigned i = 0; i <= infinity16(type); i++) {
            const int exponent = (int)(i >> fraction_bits);
            const unsigned fraction = i & (one - 1);
            values[i] = ldexp(exponent ? one + fraction : fraction, (exponent ? exponent : 1) - bias - fraction_bits);
        }
    }
    return values[bits];
}

/* The last number of the type that is not above |x|, without its sign. */
static unsigned below16(adamod_type type, double x) {
    unsigned low = 0, high = infinity16(type);
    if (fabs(x) >= decode16(type, high)) return high;
    while (high - low > 1) {
        const unsigned middle = (low + high) / 2;
        if (decode16(type, middle) <= fabs(x)) low = middle;
        else high = middle;
    }
    return low;
}

/* To nearest, ties to even. Not for NaN. */
static uint16_t nearest16(adamod_type type, double x) {
    unsigned bits = below16(type, x);
    if (bits < infinity16(type)) {
        const double below = fabs(x) - decode16(type, bits), above = decode16(type, bits + 1) - fabs(x);
        if (above < below || (above == below && bits % 2)) bits++;
    }
    return (uint16_t)(bits | (signbit(x) ? 0x8000u : 0));
}

static bool nan16(adamod_type type, uint16_t bits) { return (bits & 0x7fffu) > infinity16(type); }

static void put(adamod_type type, void *data, int64_t i, double x) {
    if (type == ADAMOD_F64) ((double *)data)[i] = x;
    else if (type == ADAMOD_F32) ((float *)data)[i] = (float)x;
    else ((uint16_t *)data)[i] = isnan(x) ? 0x7fffu : nearest16(type, x);
}

static bool finite_at(adamod_type type, const void *data, int64_t i) {
    if (type == ADAMOD_F64) return isfinite(((const double *)data)[i]);
    if (type == ADAMOD_F32) return isfinite(((const float *)data)[i]);
    return (((const uint16_t *)data)[i] & 0x7fffu) < infinity16(type);
}

static float from_bits(uint32_t bits) {
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

static uint32_t to_bits(float x) {
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

/* ---- a rig: one optimizer over some arrays, and a picture of all it has written ---- */

enum { TOTAL = 40000, REPEATED = 160000, STEPS = 4, MOST_TENSORS = 64 };

/* Gradients of all steps in all types, and first parameters: of either sign and many sizes, with zeros and numbers
 * below the least normal one, but so that nothing overflows. TOTAL of them, then the same again. */
static void *gradients[4][STEPS], *parameters[4];

static void repeat(char *data, size_t size) {
    for (size_t at = TOTAL; at < REPEATED; at += TOTAL) memcpy(data + at * size, data, TOTAL * size);
}

static void make_sources(void) {
    if (parameters[0]) return;
    rng_state = 1;
    for (int type = ADAMOD_F32; type <= ADAMOD_F16; type++) {
        const size_t size = adamod__type_size((adamod_type)type);
        for (int t = 0; t < STEPS; t++) {
            gradients[type][t] = room(REPEATED, size);
            for (int64_t i = 0; i < TOTAL; i++) {
                const uint64_t kind = rng() % 32;
                double x = pow(10, -6 + 8 * uniform());
                if (kind < 2) x = 0;
                if (kind == 2) x = type == ADAMOD_F64 ? 1e-310 : 1e-40;
                if (kind == 3) x = type == ADAMOD_F64 ? 1e-160 : 1e-22;
                put((adamod_type)type, gradients[type][t], i, rng() & 1 ? x : -x);
            }
            repeat(gradients[type][t], size);
        }
        parameters[type] = room(REPEATED, size);
        for (int64_t i = 0; i < TOTAL; i++) put((adamod_type)type, parameters[type], i, 2 * uniform() - 1);
        repeat(parameters[type], size);
    }
}

typedef struct config {
    const char *rule, *options; /* "name=word ..." */
    const char *more;           /* options besides, or NULL */
    adamod_type type;           /* of parameters */
    int grad_type;              /* -1: each array another */
    int threads;                /* 0: not set */
    int offset;                 /* of all arrays, in elements */
    const char *isa;            /* NULL: the best */
    bool collect;               /* statistics */
    int n;                      /* arrays behind each other: */
    const int64_t (*shapes)[2]; /* rows 0: one dimension */
} config;

typedef struct rig {
    const config *c;
    adamod_optimizer *opt;
    char *param, *grad[4]; /* of all arrays */
    int64_t start[MOST_TENSORS + 1];
    int t;
} rig;

static adamod_type grad_type_of(const config *c, int k) {
    return c->grad_type < 0 ? (adamod_type)((k + c->type) % 4) : (adamod_type)c->grad_type;
}

static void set_options(adamod_optimizer *opt, const char *text) {
    char copy[256];
    snprintf(copy, sizeof copy, "%s", text ? text : "");
    for (char *rest = copy, *word; (word = strtok_r(rest, " ", &rest));) {
        char *value = strchr(word, '=');
        *value++ = '\0';
        CHECK_INT(adamod_set_text(opt, word, value), 0);
    }
}

/* Memory of the rigs that are open, two at most: kept, since thousands of them follow each other. */
static char *shelf[2][5];
static int rigs_open;

static bool rig_open(rig *r, const config *c) {
    make_sources();
    *r = (rig){.c = c};
    char **memory = shelf[rigs_open++];
    for (int i = 0; i < 5; i++) {
        if (!memory[i]) memory[i] = room(REPEATED + 3, sizeof(double));
    }
    if (c->isa) setenv("ADAMOD_ISA", c->isa, 1);
    const adamod_status status = adamod_create(&r->opt, c->rule);
    unsetenv("ADAMOD_ISA");
    if (!CHECK_INT(status, 0)) return false;
    if (c->isa) CHECK_STR(adamod_isa(r->opt), c->isa);
    set_options(r->opt, c->options);
    set_options(r->opt, c->more);
    if (c->threads) CHECK_INT(adamod_set(r->opt, "threads", c->threads), 0);
    if (c->collect) CHECK_INT(adamod_collect(r->opt, 1), 0);
    const size_t size = adamod__type_size(c->type), offset = (size_t)c->offset;
    r->param = memory[4] + offset * size;
    for (int type = 0; type < 4; type++) {
        r->grad[type] = memory[type] + offset * adamod__type_size((adamod_type)type);
    }
    for (int k = 0; k < c->n; k++) {
        const adamod_type type = grad_type_of(c, k);
        const size_t start = (size_t)r->start[k];
        adamod_tensor t = {.param = r->param + start * size,
                           .grad = r->grad[type] + start * adamod__type_size(type),
                           .param_type = c->type,
                           .grad_type = type};
        t.ndim = c->shapes[k][0] ? 2 : 1;
        t.shape[0] = c->shapes[k][t.ndim == 1];
        t.shape[1] = c->shapes[k][1];
        const int64_t count = t.shape[0] * (t.ndim == 2 ? t.shape[1] : 1);
        r->start[k + 1] = r->start[k] + count;
        if (!CHECK(r->start[k + 1] <= REPEATED)) return false;
        memcpy(t.param, (char *)parameters[c->type] + start * size, (size_t)count * size);
        CHECK_INT(adamod_add_tensor(r->opt, 0, &t, NULL), 0);
    }
    return true;
}

static adamod_status rig_step(rig *r) {
    for (int type = 0; type < 4; type++) {
        const size_t size = adamod__type_size((adamod_type)type);
        memcpy(r->grad[type], gradients[type][r->t % STEPS], (size_t)r->start[r->c->n] * size);
    }
    r->t++;
    return adamod_step(r->opt);
}

static void rig_close(rig *r) {
    adamod_free(r->opt);
    rigs_open--;
}

typedef struct picture {
    unsigned char *bytes;
    size_t n, room;
} picture;

static void add_bytes(picture *p, const void *data, size_t n) {
    if (p->n + n > p->room) {
        p->room = 2 * (p->n + n);
        p->bytes = realloc(p->bytes, p->room);
        if (!p->bytes) abort();
    }
    if (n) memcpy(p->bytes + p->n, data, n);
    p->n += n;
}

static const char *const state_names[] = {"exp_avg",         "exp_avg_sq",     "exp_avg_lr", "max_exp_avg_sq", "master",
                                          "momentum_buffer", "square_avg",     "grad_avg",   "exp_avg_sq_row", "sum",
                                          "acc_delta",       "exp_avg_sq_col", "grad_queue"};
enum { STATE_NAMES = sizeof state_names / sizeof *state_names };

/* Parameters, then one state after the other, each of all arrays; so cutting an array leaves the picture as it is. */
static picture rig_picture(const rig *r, bool queues) {
    picture p = {0};
    add_bytes(&p, r->param, (size_t)r->start[r->c->n] * adamod__type_size(r->c->type));
    for (int s = 0; s < STATE_NAMES - !queues; s++) {
        for (int k = 0; k < r->c->n; k++) {
            void *data = NULL;
            adamod_type type;
            int64_t count;
            if (adamod_state(r->opt, k, state_names[s], &data, &type, &count)) continue;
            add_bytes(&p, data, (size_t)count * adamod__type_size(type));
        }
    }
    return p;
}

static bool same_picture(const picture *a, const picture *b) {
    if (!CHECK_INT(a->n, b->n)) return false;
    if (!memcmp(a->bytes, b->bytes, a->n)) return true;
    size_t i = 0;
    while (a->bytes[i] == b->bytes[i]) i++;
    return CHECK_INT(i, a->n);
}

/* The picture after some steps from the start. */
static picture run(const config *c, int steps, bool queues) {
    rig r;
    picture p = {0};
    if (!rig_open(&r, c)) return p;
    for (int t = 0; t < steps; t++) CHECK_INT(rig_step(&r), 0);
    p = rig_picture(&r, queues);
    rig_close(&r);
    return p;
}

static void expect_same(const config *a, const config *b, int steps, bool queues) {
    picture x = run(a, steps, queues), y = run(b, steps, queues);
    if (!same_picture(&x, &y)) {
        printf(
            "%s {%s %s}, type %d: %s, threads %d, offset %d, %d arrays, and %s, threads %d, offset %d, %d arrays%s\n",
            a->rule, a->options, a->more ? a->more : "", a->type, a->isa ? a->isa : "best", a->threads, a->offset, a->n,
            b->isa ? b->isa : "best", b->threads, b->offset, b->n, b->collect ? ", statistics" : "");
    }
    free(x.bytes);
    free(y.bytes);
}

/* Every kernel there is. */
static const struct {
    const char *rule, *options;
    bool whole; /* an element depends on the whole array */
} variants[] = {
    {"adamod", "weight_decay=0.01", false},
    {"adamod", "flavour=published clip_value=3", false},
    {"adamod", "flavour=keras weight_decay=0.01 decay=l2", false},
    {"adam", "grad_scale=0.3 maximize=1", false},
    {"amsgrad", "", false},
    {"sgd", "", false},
    {"sgd", "momentum=0.9", false},
    {"sgd", "momentum=0.9 nesterov=1 weight_decay=0.01", false},
    {"adagrad", "initial=0.1", false},
    {"rmsprop", "", false},
    {"rmsprop", "momentum=0.9", false},
    {"rmsprop", "centered=1", false},
    {"rmsprop", "centered=1 momentum=0.9", false},
    {"adadelta", "", false},
    {"adabound", "weight_decay=0.1 decay=independent", false},
    {"amsbound", "", false},
    {"adashift", "window=1 spatial=none", false},
    {"adashift", "window=2 spatial=max", true},
    {"nosadam", "", false},
    {"adafactor", "weight_decay=0.1", true},
    {"adafactor", "beta1=0.9 weight_decay=0.01 decay=l2", true},
    {"radam", "beta2=0.9", false},
};
enum { VARIANTS = sizeof variants / sizeof *variants };

static const struct {
    adamod_type type;
    const char *more;
    bool random; /* random numbers are tied to an element's place in its array */
} storages[] = {
    {ADAMOD_F32, NULL, false},
    {ADAMOD_F64, NULL, false},
    {ADAMOD_BF16, NULL, false},
    {ADAMOD_F16, NULL, false},
    {ADAMOD_BF16, "low_precision=stochastic", true},
    {ADAMOD_F16, "low_precision=stochastic seed=9", true},
    {ADAMOD_F32, "state_type=bf16", true},
    {ADAMOD_F64, "state_type=bf16 clip_norm=0.5", true},
    {ADAMOD_BF16, "state_type=bf16", true},
    {ADAMOD_F16, "state_type=bf16 low_precision=stochastic clip_norm=2", true},
    {ADAMOD_BF16, "state_type=bf16 low_precision=stochastic", true}, /* with bf16 gradients: kernels of their own */
};
enum { STORAGES = sizeof storages / sizeof *storages };

/* More than one chunk in the first array and the last. */
static const int64_t shapes_mixed[][2] = {{0, 20001}, {0, 17}, {0, 0}, {0, 1}, {5, 103}, {0, 512}, {113, 150}};
enum { MIXED = sizeof shapes_mixed / sizeof *shapes_mixed };

static config config_of(int variant, int storage) {
    return (config){.rule = variants[variant].rule,
                    .options = variants[variant].options,
                    .more = storages[storage].more,
                    .type = storages[storage].type,
                    .grad_type = -1,
                    .threads = 1,
                    .n = MIXED,
                    .shapes = shapes_mixed};
}

/* All of them, or each kernel once where time is short. */
#define EACH_KERNEL(v, s)                                                                                              \
    for (int v = 0; v < VARIANTS; v++)                                                                                 \
        for (int s = fast() ? v % STORAGES : 0; s < (fast() ? v % STORAGES + 1 : STORAGES); s++)

/* Threads of this process, or -1. */
static int tasks(void) {
    DIR *dir = opendir("/proc/self/task");
    int n = 0;
    for (struct dirent *entry; dir && (entry = readdir(dir));) n += entry->d_name[0] != '.';
    return dir ? closedir(dir), n : -1;
}

/* So many that a handle takes to threads. */
static const int64_t shapes_many[][2] = {{0, 100001}, {0, 17}, {0, 1}, {5, 103}, {301, 150}};
enum { MANY = sizeof shapes_many / sizeof *shapes_many };

TEST(any_number_of_threads) {
    static const int threads[] = {2, 3, 4, 7};
    const int before = tasks();
    EACH_KERNEL(v, s) {
        config one = config_of(v, s);
        one.n = MANY;
        one.shapes = shapes_many;
        picture expected = run(&one, 2, true);
        for (int k = 0; k < 4; k++) {
            config many = one;
            many.threads = threads[k];
            if (k % 2 == (v + s) % 2) continue;
            picture p = run(&many, 2, true);
            if (!same_picture(&p, &expected)) printf("%s {%s}, %d threads\n", one.rule, one.options, threads[k]);
            free(p.bytes);
        }
        free(expected.bytes);
    }
    /* and they were at work: this would be worth nothing otherwise */
    config c = config_of(0, 0);
    c.n = MANY;
    c.shapes = shapes_many;
    c.threads = 7;
    rig r;
    if (tasks() < 0 || !rig_open(&r, &c)) return;
    CHECK_INT(rig_step(&r), 0);
    /* threads that were joined may be listed a moment longer */
    for (int i = 0; i < 500 && tasks() != before + 6; i++) usleep(10000);
    CHECK_INT(tasks(), before + 6);
    rig_close(&r);
}

TEST(any_instruction_set) {
    int sets = 0;
    while (adamod_isa_name(sets)) sets++;
    CHECK_STR(adamod_isa_name(sets - 1), "plain");
    if (sets == 1) SKIP("this processor has one only");
    EACH_KERNEL(v, s) {
        config c = config_of(v, s);
        c.isa = "plain";
        for (int k = 0; k < sets - 1; k++) {
            config other = c;
            other.isa = adamod_isa_name(k);
            expect_same(&c, &other, 3, true);
        }
    }
}

TEST(any_alignment) {
    EACH_KERNEL(v, s) {
        const config c = config_of(v, s);
        for (int offset = 1; offset <= 3; offset++) {
            config other = c;
            other.offset = offset;
            if (offset == 1 + (v + s) % 3) expect_same(&c, &other, 2, true);
        }
    }
}

TEST(statistics_change_nothing) {
    EACH_KERNEL(v, s) {
        const config c = config_of(v, s);
        config other = c;
        other.collect = true;
        expect_same(&c, &other, 2, true);
    }
}

/* One array, and the same memory as many: cut at random places, empty pieces among them. */
TEST(any_cutting_of_arrays) {
    static int64_t one[1][2] = {{0, TOTAL}}, many[MOST_TENSORS][2];
    rng_state = 2;
    EACH_KERNEL(v, s) {
        if (variants[v].whole || storages[s].random) continue;
        int64_t cut[MOST_TENSORS + 1] = {0};
        for (int k = 1; k < MOST_TENSORS; k++) {
            cut[k] = k % 5 == 0 ? cut[k - 1] : cut[k - 1] + (int64_t)(rng() % (2 * TOTAL / MOST_TENSORS));
            if (cut[k] > TOTAL) cut[k] = TOTAL;
        }
        cut[MOST_TENSORS] = TOTAL;
        for (int k = 0; k < MOST_TENSORS; k++) many[k][1] = cut[k + 1] - cut[k];
        config a = config_of(v, s);
        a.grad_type = (v + s) % 4;
        a.n = 1;
        a.shapes = (const int64_t(*)[2])one;
        config b = a;
        b.n = MOST_TENSORS;
        b.shapes = (const int64_t(*)[2])many;
        b.threads = 2;
        expect_same(&a, &b, 3, false);
    }
}

/* ---- raw spans ---- */

static void set_hyper(adamod_hyper *h, const char *text) {
    char copy[256];
    snprintf(copy, sizeof copy, "%s", text ? text : "");
    for (char *rest = copy, *word; (word = strtok_r(rest, " ", &rest));) {
        char *value = strchr(word, '=');
        *value++ = '\0';
        CHECK_INT(adamod_hyper_set_text(h, word, value), 0);
    }
}

/* One update of all elements, in pieces of these lengths, with a pool or without. */
static void raw_update(const adamod_hyper *h, adamod_type type, const void *const grad[2], char *const arrays[5],
                       int64_t n, int step, int pieces, adamod_pool *pool) {
    adamod_span spans[16] = {0};
    const size_t size = adamod__type_size(type);
    int64_t at = 0;
    for (int k = 0; k < pieces; k++) {
        const int64_t count = k == pieces - 1 ? n - at : (int64_t)(rng() % (uint64_t)(n - at + 1)) / 2;
        const size_t bytes = (size_t)at * size;
        spans[k] = (adamod_span){.param = arrays[0] + bytes,
                                 .grad = (const char *)grad[step - 1] + bytes,
                                 .param_type = type,
                                 .grad_type = type,
                                 .state_type = type,
                                 .count = count,
                                 .step = step};
        for (int i = 0; i < 3; i++) {
            adamod_state_desc desc;
            CHECK_INT(adamod_state_at(h, 1, &n, i, &desc), 0);
            if (desc.name) spans[k].state[i] = arrays[1 + i] + bytes;
        }
        at += count;
    }
    CHECK_INT(adamod_update(h, spans, (size_t)pieces, pool), 0);
}

TEST(raw_spans_cut_anywhere) {
    enum { N = TOTAL };
    adamod_pool *pool[2] = {NULL};
    make_sources();
    CHECK_INT(adamod_pool_create(&pool[1], 3), 0);
    CHECK_INT(adamod_pool_threads(pool[1]), 3);
    rng_state = 3;
    for (int v = 0; v < VARIANTS; v++) {
        if (variants[v].whole) continue;
        for (int type = ADAMOD_F32; type <= ADAMOD_F64; type++) {
            adamod_hyper *h;
            const size_t size = adamod__type_size((adamod_type)type);
            char *arrays[3][4];
            if (!CHECK_INT(adamod_hyper_create(&h, variants[v].rule), 0)) continue;
            set_hyper(h, variants[v].options);
            for (int way = 0; way < 3; way++) { /* one piece; eleven; seven on three threads */
                for (int i = 0; i < 4; i++) arrays[way][i] = room(N, size);
                memcpy(arrays[way][0], parameters[type], N * size);
                const void *const grad[2] = {gradients[type][0], gradients[type][1]};
                for (int step = 1; step <= 2; step++) {
                    raw_update(h, (adamod_type)type, grad, arrays[way], N, step,
                               way == 0   ? 1
                               : way == 1 ? 11
                                          : 7,
                               pool[way == 2]);
                }
                for (int i = 0; i < 4; i++) {
                    if (!CHECK(!memcmp(arrays[way][i], arrays[0][i], N * size))) {
                        printf("%s {%s}, type %d, array %d\n", variants[v].rule, variants[v].options, type, i);
                    }
                }
            }
            for (int way = 0; way < 3; way++) {
                for (int i = 0; i < 4; i++) free(arrays[way][i]);
            }
            adamod_hyper_free(h);
        }
    }
    adamod_pool_free(pool[1]);
}

/* A handle does what raw calls with the same numbers do, those that name its random numbers included. */
static void expect_raw(const config *c) {
    rig r;
    adamod_hyper *h;
    if (!rig_open(&r, c) || !CHECK_INT(adamod_hyper_create(&h, c->rule), 0)) return;
    set_hyper(h, c->options);
    set_hyper(h, c->more);
    const int64_t n = r.start[1];
    const size_t size = adamod__type_size(c->type);
    const bool half = c->more && strstr(c->more, "state_type=bf16");
    const bool master = size == 2 && !(c->more && strstr(c->more, "stochastic"));
    const adamod_type type = half ? ADAMOD_BF16 : adamod__compute_type(c->type), grad_type = grad_type_of(c, 0);
    adamod_span x = {.param = room((size_t)n, size),
                     .param_type = c->type,
                     .grad_type = grad_type,
                     .state_type = type,
                     .ndim = 2,
                     .shape = {c->shapes[0][0], c->shapes[0][1]},
                     .count = n,
                     .stream = r.opt->tensors[0].span.stream};
    memcpy(x.param, parameters[c->type], (size_t)n * size);
    if (master) {
        x.master = room((size_t)n, sizeof(float));
        const real_kernels *k = adamod__kernels_plain.f32;
        for (int64_t i = 0; i < n; i++) { /* conversions have a test of their own */
            (c->type == ADAMOD_BF16 ? k->load_bf16 : k->load_f16)((float *)x.master + i, (uint16_t *)x.param + i, 1);
        }
    }
    adamod_state_desc desc[ADAMOD_MAX_STATES];
    for (int i = 0; i < ADAMOD_MAX_STATES; i++) {
        CHECK_INT(adamod_state_at(h, x.ndim, x.shape, i, &desc[i]), 0);
        if (!desc[i].name) continue;
        x.state[i] = room((size_t)desc[i].count, adamod__type_size(type));
        for (int64_t j = 0; j < desc[i].count; j++) put(type, x.state[i], j, desc[i].initial);
    }
    for (x.step = 1; x.step <= 3; x.step++) {
        x.grad = gradients[grad_type][x.step - 1];
        CHECK_INT(adamod_update(h, &x, 1, NULL), 0);
        CHECK_INT(rig_step(&r), 0);
    }
    bool same = !memcmp(x.param, r.param, (size_t)n * size);
    for (int i = 0; i < ADAMOD_MAX_STATES; i++) {
        void *data = NULL;
        adamod_type found;
        int64_t count;
        if (!desc[i].name) continue;
        CHECK_INT(adamod_state(r.opt, 0, desc[i].name, &data, &found, &count), 0);
        CHECK(found == type && count == desc[i].count);
        same = same && !memcmp(data, x.state[i], (size_t)count * adamod__type_size(type));
        free(x.state[i]);
    }
    if (!CHECK(same)) printf("%s {%s %s}, type %d\n", c->rule, c->options, c->more ? c->more : "", c->type);
    free(x.param);
    free(x.master);
    adamod_hyper_free(h);
    rig_close(&r);
}

TEST(handles_and_raw_calls) {
    static const int64_t shape[1][2] = {{113, 150}};
    EACH_KERNEL(v, s) {
        config c = config_of(v, s);
        c.n = 1;
        c.shapes = shape;
        c.grad_type = (v + s) % 4;
        if (!c.more || !strstr(c.more, "clip_norm")) expect_raw(&c);
    }
}

/* Random numbers follow from a parameter's name, not from when it was added. */
TEST(any_order_of_adding) {
    enum { N = 3000 };
    static const char *const names[2] = {"weight", "bias"};
    make_sources();
    for (int v = 0; v < VARIANTS; v++) {
        uint16_t *p[2][2];
        for (int turned = 0; turned < 2; turned++) {
            adamod_optimizer *opt;
            if (!CHECK_INT(adamod_create(&opt, variants[v].rule), 0)) return;
            set_options(opt, variants[v].options);
            set_options(opt, "low_precision=stochastic state_type=bf16");
            for (int i = 0; i < 2; i++) {
                const int which = turned ? 1 - i : i;
                p[turned][which] = room(N, sizeof(uint16_t));
                memcpy(p[turned][which], parameters[ADAMOD_BF16], N * sizeof(uint16_t));
                const adamod_tensor t = {.name = names[which],
                                         .param = p[turned][which],
                                         .grad = gradients[ADAMOD_BF16][0],
                                         .param_type = ADAMOD_BF16,
                                         .grad_type = ADAMOD_BF16,
                                         .ndim = 1,
                                         .shape = {N}};
                CHECK_INT(adamod_add_tensor(opt, 0, &t, NULL), 0);
            }
            for (int t = 0; t < 4; t++) CHECK_INT(adamod_step(opt), 0);
            adamod_free(opt);
        }
        bool good = CHECK(!memcmp(p[0][0], p[1][0], N * sizeof(uint16_t)));
        good &= CHECK(!memcmp(p[0][1], p[1][1], N * sizeof(uint16_t)));
        good &= CHECK(memcmp(p[0][0], p[0][1], N * sizeof(uint16_t)) != 0); /* nor are two parameters rounded alike */
        if (!good) printf("%s {%s}\n", variants[v].rule, variants[v].options);
        for (int i = 0; i < 4; i++) free(p[i / 2][i % 2]);
    }
}

/* ---- AdaMod ---- */

/* Parameters, averages and squares; AdaMod's third state is its own. */
static void expect_adam(const config *adamod) {
    config adam = *adamod;
    adam.rule = "adam";
    rig a, b;
    char with_bound[256];
    snprintf(with_bound, sizeof with_bound, "%s beta3=0", adamod->options);
    config c = *adamod;
    c.options = with_bound;
    if (!rig_open(&a, &c) || !rig_open(&b, &adam)) return;
    for (int t = 0; t < STEPS; t++) {
        CHECK_INT(rig_step(&a), 0);
        CHECK_INT(rig_step(&b), 0);
    }
    bool same = !memcmp(a.param, b.param, (size_t)a.start[c.n] * adamod__type_size(c.type));
    for (int s = 0; s < 2; s++) {
        for (int k = 0; k < c.n; k++) {
            void *x = NULL, *y = NULL;
            adamod_type type;
            int64_t count;
            CHECK_INT(adamod_state(a.opt, k, state_names[s], &x, &type, &count), 0);
            CHECK_INT(adamod_state(b.opt, k, state_names[s], &y, &type, &count), 0);
            same = same && (count == 0 || !memcmp(x, y, (size_t)count * adamod__type_size(type)));
        }
    }
    if (!CHECK(same)) printf("{%s}, type %d\n", c.options, c.type);
    rig_close(&a);
    rig_close(&b);
}

TEST(without_its_bound_adamod_is_adam) {
    static const char *const flavours[] = {"paper", "published", "keras"};
    static const char *const besides[] = {
        "", "weight_decay=0.01 decay=l2", "weight_decay=0.01", "eps=0 maximize=1",
        "weight_decay=0.01 decay=independent beta1=0.5 beta2=0.9 lr=0.1 clip_value=1"};
    for (int flavour = 0; flavour < 3; flavour++) {
        for (int k = 0; k < 5; k++) {
            for (int s = 0; s < STORAGES; s++) {
                if (fast() && (flavour + k + s) % 5) continue;
                char options[200];
                snprintf(options, sizeof options, "flavour=%s %s", flavours[flavour], besides[k]);
                config c = config_of(0, s);
                c.options = options;
                expect_adam(&c);
            }
        }
    }
}

/* v / (1 - beta2^t) is g^2 and m / (1 - beta1^t) is g, so with eps = 0 every eta is lr / |g|, s is that times
 * 1 - beta3^t, and the step lr (1 - beta3^t) in the gradient's direction. In f64, with u = 2^-53 = 1.1e-16, off by
 *   v    2u an update of what fades as beta2: 2u / (1 - beta2) = 2000 u, halved by the root
 *   s    likewise 2u / (1 - beta3) = 2000 u (beta3 = 0.9999: 20000 u)
 *   m    2u / (1 - beta1) = 20 u
 *   1 - beta^t  u / (1 - beta) at t = 1: 1000 u, halved by the root for beta2; 10 u for beta1
 * at most, in all below 4000 u = 4.4e-13 for beta3 up to 0.999, and 22000 u for 0.9999. */
TEST(constant_gradient) {
    static const double betas[] = {0.9, 0.99, 0.999, 0.9999};
    const double gradient[5] = {1, -3, 0.007, 1e-5, -2e4};
    for (int k = 0; k < 4; k++) {
        double p[5] = {0}, lr = 0.001;
        adamod_optimizer *opt;
        if (!CHECK_INT(adamod_create(&opt, "adamod"), 0)) return;
        CHECK_INT(adamod_set(opt, "beta3", betas[k]), 0);
        CHECK_INT(adamod_set(opt, "eps", 0), 0);
        const adamod_tensor x = {
            .param = p, .grad = gradient, .param_type = ADAMOD_F64, .grad_type = ADAMOD_F64, .ndim = 1, .shape = {5}};
        CHECK_INT(adamod_add_tensor(opt, 0, &x, NULL), 0);
        for (int t = 1; t <= 4000; t++) {
            memset(p, 0, sizeof p); /* so that p is the step */
            CHECK_INT(adamod_step(opt), 0);
            const double expected = lr * -expm1(t * log1p(betas[k] - 1));
            bool good = true;
            for (int i = 0; i < 5; i++) {
                const double tolerance = (betas[k] > 0.999 ? 22000 : 4000) * 0x1p-53 * expected;
                good = good && CHECK_CLOSE(p[i], gradient[i] > 0 ? -expected : expected, tolerance);
            }
            if (!good) break;
        }
        adamod_free(opt);
    }
}

/* After a fall of the learning rate the step is the new one at once; after a rise from lr to 10 lr in a settled state,
 * k updates later it is 1 - 0.9 beta3^k of the new one. Tolerance as above; 0.99^6000 is 6e-27, so it is settled. */
TEST(changes_of_the_learning_rate) {
    double p = 0;
    const double g = 2, beta3 = 0.99;
    adamod_optimizer *opt;
    if (!CHECK_INT(adamod_create(&opt, "adamod"), 0)) return;
    CHECK_INT(adamod_set(opt, "beta3", beta3), 0);
    CHECK_INT(adamod_set(opt, "eps", 0), 0);
    const adamod_tensor x = {.param = &p, .grad = &g, .param_type = ADAMOD_F64, .grad_type = ADAMOD_F64};
    CHECK_INT(adamod_add_tensor(opt, 0, &x, NULL), 0);
    for (int t = 0; t < 6000; t++) CHECK_INT(adamod_step(opt), 0);
    CHECK_INT(adamod_set(opt, "lr", 0.01), 0);
    for (int k = 1; k <= 300; k++) {
        p = 0;
        CHECK_INT(adamod_step(opt), 0);
        if (!CHECK_CLOSE(p, -0.01 * (1 - 0.9 * pow(beta3, k)), 4000 * 0x1p-53 * 0.01)) break;
    }
    CHECK_INT(adamod_set(opt, "lr", 0.0001), 0);
    p = 0;
    CHECK_INT(adamod_step(opt), 0);
    CHECK_CLOSE(p, -0.0001, 4000 * 0x1p-53 * 0.0001);
    adamod_free(opt);
}

/* The step is eta or s, never above either; and s is never above the largest eta so far, H, but for rounding: with
 * beta3 and 1 - beta3 as the type has them, b and c, an s of at most R H gives the next one (1 + u)^2 (b R + c) H,
 * which is at most R H again if R = c (1 + u)^2 / (1 - b (1 + u)^2). In f32, b + c is off by up to 2^-24, so R is not
 * 1: 1.0002 for 0.999. */
static void check_bound(const kernel_set *set, adamod_type type, double beta3) {
    enum { N = 97 };
    const real_kernels *kernels = type == ADAMOD_F64 ? set->f64 : set->f32;
    _Alignas(64) double space[7][N] = {{0}}, highest[N] = {0};
    adamod__coef_f64 k = {.gscale = 1,
                          .clip = INFINITY,
                          .lr = 1e-3,
                          .beta1 = 0.9,
                          .beta1c = 1 - 0.9,
                          .beta2 = 0.999,
                          .beta2c = 1 - 0.999,
                          .beta3 = beta3,
                          .beta3c = 1 - beta3,
                          .eps = 1e-8};
    const double u = type == ADAMOD_F64 ? 0x1p-53 : 0x1p-24, grown = (1 + u) * (1 + u);
    const double b = type == ADAMOD_F64 ? k.beta3 : (double)(float)k.beta3;
    const double c = type == ADAMOD_F64 ? k.beta3c : (double)(float)k.beta3c;
    const double most = fmax(1, c * grown / (1 - b * grown));
    const block x = {space[0], space[1], space[2], space[3], space[4], space[5], space[6], N, 0};
#define AT(array, i) (type == ADAMOD_F64 ? ((double *)(array))[i] : (double)((float *)(array))[i])
    for (int t = 1; t <= 1500; t++) {
        k.mscale = 1 / (1 - pow(k.beta1, t));
        k.vscale = 1 / (1 - pow(k.beta2, t));
        for (int i = 0; i < N; i++) {
            /* quiet and loud for some hundred updates at a time, so that eta falls and rises */
            const double g = (t / 300 % 2 ? 100 : 0.01) * (rng() % 9 ? uniform() - 0.5 : 0);
            if (type == ADAMOD_F64) space[1][i] = g;
            else ((float *)space[1])[i] = (float)g;
        }
        kernels->update[RULE_adamod][0].stats(&x, &k);
        for (int i = 0; i < N; i++) {
            const double s = AT(x.s, i), eta = AT(x.eta, i), step = AT(x.step, i);
            highest[i] = fmax(highest[i], eta);
            if (!CHECK(step <= eta && step <= s && (step == eta || step == s)) || !CHECK(s <= most * highest[i])) {
                printf("%s, beta3 %g, update %d, element %d: eta %.17g, s %.17g, step %.17g, largest eta %.17g\n",
                       set->name, beta3, t, i, eta, s, step, highest[i]);
                return;
            }
        }
    }
#undef AT
}

TEST(the_bound_holds) {
    for (int i = 0; adamod__kernels_at(i); i++) {
        for (int type = ADAMOD_F32; type <= ADAMOD_F64; type++) {
            rng_state = 4;
            check_bound(adamod__kernels_at(i), (adamod_type)type, 0.9);
            check_bound(adamod__kernels_at(i), (adamod_type)type, 0.999);
            check_bound(adamod__kernels_at(i), (adamod_type)type, 0.9999);
        }
    }
}

/* ---- other closed forms ---- */

/* l2 adds weight_decay * p to the gradient: the same bits as a run without decay that is given this sum. The gradient
 * is near -weight_decay p on purpose, which makes the sum small. */
TEST(l2_is_a_gradient) {
    enum { N = 1030 };
    rng_state = 5;
    for (int i = 0; adamod_rule_name(i); i++) {
        float p[2][N], g[2][N];
        adamod_optimizer *opt[2];
        for (int j = 0; j < N; j++) p[0][j] = p[1][j] = (float)(2 * uniform() - 1);
        for (int k = 0; k < 2; k++) {
            if (!CHECK_INT(adamod_create(&opt[k], adamod_rule_name(i)), 0)) return;
            if (!strcmp(adamod_rule_name(i), "adashift")) CHECK_INT(adamod_set(opt[k], "window", 2), 0);
            CHECK_INT(adamod_set_text(opt[k], "decay", k ? "none" : "l2"), 0);
            CHECK_INT(adamod_set(opt[k], "weight_decay", 0.01), 0);
            CHECK_INT(adamod_add(opt[k], "x", p[k], g[k], 1, (int64_t[]){N}), 0);
        }
        CHECK_INT(adamod_set(opt[0], "grad_scale", 0.3), 0);
        CHECK_INT(adamod_set(opt[0], "clip_value", 0.02), 0);
        for (int t = 0; t < 12; t++) {
            for (int j = 0; j < N; j++) {
                g[0][j] = -p[0][j] * 0.01f / 0.3f * (float)(1 + 1e-4 * (uniform() - 0.5));
                if (j % 7 == 0) g[0][j] = (float)(uniform() - 0.5);
                float x = g[0][j] * 0.3f;
                x = x > 0.02f ? 0.02f : x < -0.02f ? -0.02f : x;
                const float added = 0.01f * p[0][j];
                g[1][j] = x + added;
            }
            CHECK_INT(adamod_step(opt[0]), 0);
            CHECK_INT(adamod_step(opt[1]), 0);
            if (!CHECK(!memcmp(p[0], p[1], sizeof p[0]))) {
                printf("%s, update %d\n", adamod_rule_name(i), t + 1);
                break;
            }
        }
        adamod_free(opt[0]);
        adamod_free(opt[1]);
    }
}

/* NosAdam at any update: v from 0 with g = 1 becomes 1 - beta2, v from 1 with g = 0 becomes beta2. The library sums
 * k^-gamma in closed form, to 1e-14 as it says; here one by one, with Kahan's correction. Powers, quotient and products
 * add a few u. */
TEST(weights_of_nosadam) {
    static const double gammas[] = {0, 0.1, 0.5, 1 - 1e-9, 1, 1.5, 3, 10};
    static const int64_t checked[] = {1, 2, 3, 63, 64, 65, 66, 100, 1000, 65536, 1000000};
    const int most = fast() ? 9 : 11;
    for (int k = 0; k < 8; k++) {
        adamod_hyper *h;
        if (!CHECK_INT(adamod_hyper_create(&h, "nosadam"), 0)) return;
        CHECK_INT(adamod_hyper_set(h, "gamma", gammas[k]), 0);
        double sum = 0, low = 0;
        int64_t t = 1;
        for (int c = 0; c < most; c++) {
            for (; t <= checked[c]; t++) {
                const double term = pow((double)t, -gammas[k]) - low, next = sum + term;
                low = (next - sum) - term;
                sum = next;
            }
            const double weight = pow((double)checked[c], -gammas[k]) / sum;
            double p[2] = {0}, m[2] = {0}, v[2] = {0, 1}, g[2] = {1, 0};
            const adamod_span x = {.param = p,
                                   .grad = g,
                                   .state = {m, v},
                                   .param_type = ADAMOD_F64,
                                   .grad_type = ADAMOD_F64,
                                   .state_type = ADAMOD_F64,
                                   .count = 2,
                                   .step = checked[c]};
            CHECK_INT(adamod_update(h, &x, 1, NULL), 0);
            bool good = CHECK_CLOSE(v[0], weight, weight * (1e-14 + 8 * 0x1p-53));
            good &= CHECK_CLOSE(v[1], 1 - weight, weight * 1e-14 + 4 * 0x1p-53);
            if (!good) printf("gamma %.17g, update %lld\n", gammas[k], (long long)checked[c]);
        }
        adamod_hyper_free(h);
    }
}

/* Sums of powers of two are exact, so these are equalities. AdaShift does not move before its window is full. */
TEST(simple_rules_in_closed_form) {
    float p = 1;
    const float g = 0.5f;
    static const struct {
        const char *rule, *options;
        double after[4];
    } forms[] = {
        {"sgd", "lr=0.25", {1 - 0.125, 1 - 0.25, 1 - 0.375, 0.5}},
        {"sgd", "lr=0.25 momentum=0.5", {1 - 0.125, 1 - 0.3125, 1 - 0.53125, 1 - 0.765625}},
        {"sgd", "lr=0.25 momentum=0.5 dampening=0.5", {1 - 0.125, 1 - 0.25, 1 - 0.375, 0.5}},
        {"sgd", "lr=0.25 momentum=0.5 nesterov=1", {1 - 0.1875, 1 - 0.40625, 1 - 0.640625, 1 - 0.8828125}},
        {"sgd", "lr=0.25 maximize=1 grad_scale=2", {1.25, 1.5, 1.75, 2}},
        {"sgd", "lr=0.25 clip_value=0.125", {1 - 0.03125, 1 - 0.0625, 1 - 0.09375, 1 - 0.125}},
        {"sgd", "lr=0 decay=independent weight_decay=0.5", {0.5, 0.25, 0.125, 0.0625}},
        {"sgd", "lr=0.5 grad_scale=1e-30 decay=decoupled weight_decay=0.5", {0.75, 0.5625, 0.421875, 0.31640625}},
        {"adashift", "window=2 lr=0.125 eps=0 spatial=none beta2=0.5", {1, 1, 0.875, 0.75}},
        {"adashift", "window=3 lr=0.125 eps=0 beta2=0.5 beta1=0.5", {1, 1, 1, 0.875}},
    };
    for (size_t k = 0; k < sizeof forms / sizeof *forms; k++) {
        adamod_optimizer *opt;
        if (!CHECK_INT(adamod_create(&opt, forms[k].rule), 0)) return;
        set_options(opt, forms[k].options);
        CHECK_INT(adamod_add(opt, "x", &p, &g, 0, NULL), 0);
        p = 1;
        for (int t = 0; t < 4; t++) {
            CHECK_INT(adamod_step(opt), 0);
            /* AdaShift with a beta1 that is no power of two: m is g to 3 u (its recursion), u = 2^-24 */
            const double tolerance = forms[k].rule[0] == 'a' ? (t + 1) * 4 * 0x1p-24 : 0;
            if (!CHECK_CLOSE(p, forms[k].after[t], tolerance))
                printf("%s {%s}, update %d\n", forms[k].rule, forms[k].options, t + 1);
        }
        adamod_free(opt);
    }
}

/* ---- the norm ---- */

static double norm_of(const adamod_span *spans, size_t n, adamod_pool *pool) {
    double norm = -1;
    CHECK_INT(adamod_norm(spans, n, pool, &norm), 0);
    return norm;
}

TEST(norm_has_the_same_bits) {
    adamod_span spans[6];
    static const int64_t counts[6] = {20001, 17, 0, 512, 19000, 470};
    make_sources();
    int64_t at = 0;
    double sum = 0;
    for (int k = 0; k < 6; k++) {
        const adamod_type type = (adamod_type)(k % 4);
        spans[k] = (adamod_span){.grad = (char *)gradients[type][0] + (size_t)at * adamod__type_size(type),
                                 .grad_type = type,
                                 .count = counts[k],
                                 .step = 1};
        for (int64_t i = 0; i < counts[k]; i++) {
            const uint16_t bits = type >= ADAMOD_BF16 ? ((const uint16_t *)spans[k].grad)[i] : 0;
            const double x = type == ADAMOD_F64   ? ((const double *)spans[k].grad)[i]
                             : type == ADAMOD_F32 ? (double)((const float *)spans[k].grad)[i]
                                                  : decode16(type, bits & 0x7fffu);
            sum += x * x;
        }
        at += counts[k];
    }
    const double norm = norm_of(spans, 6, NULL);
    CHECK_CLOSE(norm, sqrt(sum),
                TOTAL * 0x1p-53 * norm); /* as many sums, each off by u at most, on either side; halved */
    for (int threads = 1; threads <= 7; threads += threads < 4 ? 1 : 3) {
        adamod_pool *pool;
        if (!CHECK_INT(adamod_pool_create(&pool, threads), 0)) return;
        for (int i = 0; adamod_isa_name(i); i++) {
            setenv("ADAMOD_ISA", adamod_isa_name(i), 1);
            CHECK(norm_of(spans, 6, pool) == norm);
        }
        unsetenv("ADAMOD_ISA");
        adamod_pool_free(pool);
    }
    /* the way an array is aligned */
    for (int offset = 1; offset <= 3; offset++) {
        float *shifted = room(20001 + 3, sizeof *shifted);
        memcpy(shifted + offset, spans[0].grad, 20001 * sizeof *shifted);
        adamod_span moved[6];
        memcpy(moved, spans, sizeof moved);
        moved[0].grad = shifted + offset;
        CHECK(norm_of(moved, 6, NULL) == norm);
        free(shifted);
    }
}

/* Squares of these overflow or vanish; the norm does not. n equal numbers x have norm |x| sqrt(n); quotients, squares,
 * sums and root are off by less than n u, a few u here as all quotients are 1. A denormal x has few bits, all exact. */
TEST(norm_of_huge_and_tiny_numbers) {
    static const double sizes[] = {1e300, -1.7e308, 1e-300, 1e-308, 1e-310, 5e-324, 1e160, -1e-170, 1};
    double g[9];
    for (int k = 0; k < 9; k++) {
        for (int n = 1; n <= 9; n += 4) {
            for (int i = 0; i < 9; i++) g[i] = i % 2 ? sizes[k] : -sizes[k];
            const adamod_span x = {.grad = g, .grad_type = ADAMOD_F64, .count = n};
            const double expected = fabs(sizes[k]) * sqrt(n);
            if (!CHECK_CLOSE(norm_of(&x, 1, NULL), expected, 16 * 0x1p-53 * expected + 0x1p-1074)) {
                printf("%d times %g\n", n, sizes[k]);
            }
        }
    }
    float f[4] = {3e38f, -3e38f, 1e-45f, 3e38f};
    const adamod_span y = {.grad = f, .grad_type = ADAMOD_F32, .count = 4};
    CHECK_CLOSE(norm_of(&y, 1, NULL), (double)3e38f * sqrt(3), 1e23);
    g[3] = -INFINITY;
    const adamod_span x = {.grad = g, .grad_type = ADAMOD_F64, .count = 9};
    CHECK(isinf(norm_of(&x, 1, NULL)));
    g[8] = NAN;
    CHECK(isnan(norm_of(&x, 1, NULL)));
}

/* The same through a handle: a finite gradient is no error however small or large, and clip_norm divides it. */
TEST(clip_norm_of_huge_and_tiny_numbers) {
    static const double sizes[] = {1e300, 1e-300, 1e-310, 5e-324};
    for (int k = 0; k < 4; k++) {
        double p[4] = {0}, g[4];
        for (int i = 0; i < 4; i++) g[i] = sizes[k];
        adamod_optimizer *opt;
        if (!CHECK_INT(adamod_create(&opt, "sgd"), 0)) return;
        CHECK_INT(adamod_set(opt, "clip_norm", 1), 0);
        CHECK_INT(adamod_set(opt, "lr", 1), 0);
        CHECK_INT(adamod_set_text(opt, "nonfinite", "error"), 0);
        const adamod_tensor x = {
            .param = p, .grad = g, .param_type = ADAMOD_F64, .grad_type = ADAMOD_F64, .ndim = 1, .shape = {4}};
        CHECK_INT(adamod_add_tensor(opt, 0, &x, NULL), 0);
        if (!CHECK_INT(adamod_step(opt), 0)) printf("%g: %s\n", sizes[k], adamod_last_error());
        /* norm 2 |x|; factor and product are off by u each, the norm by a few */
        const double expected = sizes[k] > 1 ? 0.5 : sizes[k];
        CHECK_CLOSE(-p[3], expected, 16 * 0x1p-53 * expected + 0x1p-1074);
        CHECK_CLOSE(adamod_grad_norm(opt), 2 * sizes[k], 32 * 0x1p-53 * sizes[k] + 0x1p-1074);
        adamod_free(opt);
    }
}

/* ---- gradients that are not finite ---- */

/* Updates with a gradient that is not finite, between others, are as if they had not been: the same bits afterwards as
 * those of a twin that had none of them. */
static void check_nonfinite(int v, int s, bool skip) {
    static const double poisons[] = {NAN, INFINITY, -INFINITY};
    config c = config_of(v, s);
    rig r, twin;
    if (!rig_open(&r, &c) || !rig_open(&twin, &c)) return;
    CHECK_INT(adamod_set_text(r.opt, "nonfinite", skip ? "skip" : "error"), 0);
    CHECK_INT(adamod_set_text(twin.opt, "nonfinite", skip ? "skip" : "error"), 0);
    int skipped = 0;
    for (int t = 0; t < 3; t++) {
        const picture before = rig_picture(&r, true);
        int64_t counted[MIXED], steps;
        for (int k = 0; k < MIXED; k++) CHECK_INT(adamod_tensor_steps(r.opt, k, &counted[k]), 0);
        /* the first, last and middle element of the first, last and another array */
        const int k = t == 0 ? 0 : t == 1 ? 4 : MIXED - 1;
        const int64_t at = t == 0 ? r.start[k] : t == 1 ? (r.start[k] + r.start[k + 1]) / 2 : r.start[k + 1] - 1;
        const adamod_type type = grad_type_of(&c, k);
        for (int g = 0; g < 4; g++) {
            memcpy(r.grad[g], gradients[g][t], TOTAL * adamod__type_size((adamod_type)g));
        }
        put(type, r.grad[type], at, poisons[(t + v) % 3]);
        const adamod_status status = adamod_step(r.opt);
        CHECK_INT(status, skip ? ADAMOD_OK : ADAMOD_ERROR_NONFINITE);
        skipped += skip;
        char name[32];
        snprintf(name, sizeof name, "param.%d", k);
        if (!skip) CHECK_HAS(adamod_last_error(), name);
        CHECK_INT(adamod_steps(r.opt), t);
        CHECK_INT(adamod_skipped(r.opt), skipped);
        for (int j = 0; j < MIXED; j++) {
            CHECK_INT(adamod_tensor_steps(r.opt, j, &steps), 0);
            CHECK_INT(steps, counted[j]);
        }
        const picture after = rig_picture(&r, true);
        bool good = same_picture(&before, &after);
        good &= CHECK_INT(rig_step(&r), 0) && CHECK_INT(rig_step(&twin), 0);
        const picture mine = rig_picture(&r, true), other = rig_picture(&twin, true);
        good &= same_picture(&mine, &other);
        if (!good)
            printf("%s {%s %s}, type %d, %s\n", c.rule, c.options, c.more ? c.more : "", c.type,
                   skip ? "skip" : "error");
        free(before.bytes);
        free(after.bytes);
        free(mine.bytes);
        free(other.bytes);
    }
    rig_close(&r);
    rig_close(&twin);
}

TEST(nonfinite_error_changes_nothing) {
    EACH_KERNEL(v, s) {
        if (s % 3 == v % 3 || fast()) check_nonfinite(v, s, false);
    }
}

TEST(nonfinite_skip_changes_nothing_and_counts) {
    EACH_KERNEL(v, s) {
        if (s % 3 == v % 3 || fast()) check_nonfinite(v, s, true);
    }
}

/* pass: the element itself is no longer finite once the rule has used the gradient, and others are untouched by it in
 * element-wise rules. */
TEST(nonfinite_pass_spreads) {
    static const double poisons[] = {NAN, INFINITY, -INFINITY};
    for (int v = 0; v < VARIANTS; v++) {
        for (int type = ADAMOD_F32; type <= ADAMOD_F16; type++) {
            for (int k = 0; k < 3; k++) {
                enum { N = 40 };
                double p[N] = {0}, g[N];
                adamod_optimizer *opt;
                if (!CHECK_INT(adamod_create(&opt, variants[v].rule), 0)) return;
                set_options(opt, variants[v].options);
                CHECK_INT(adamod_set(opt, "clip_value", INFINITY), 0);
                for (int i = 0; i < N; i++) {
                    put((adamod_type)type, p, i, 0.5);
                    put((adamod_type)type, g, i, 1 + 0.125 * i);
                }
                const adamod_tensor x = {.param = p,
                                         .grad = g,
                                         .param_type = (adamod_type)type,
                                         .grad_type = (adamod_type)type,
                                         .ndim = 1,
                                         .shape = {N}};
                CHECK_INT(adamod_add_tensor(opt, 0, &x, NULL), 0);
                for (int t = 0; t < 5; t++) {
                    put((adamod_type)type, g, 7, t == 1 ? poisons[k] : 1.875);
                    CHECK_INT(adamod_step(opt), 0);
                }
                bool good = CHECK(!finite_at((adamod_type)type, p, 7)) & CHECK_INT(adamod_skipped(opt), 0);
                for (int i = 0; i < N && !variants[v].whole; i++)
                    good &= i == 7 || CHECK(finite_at((adamod_type)type, p, i));
                if (!good)
                    printf("%s {%s}, type %d, poison %g\n", variants[v].rule, variants[v].options, type, poisons[k]);
                adamod_free(opt);
            }
        }
    }
}

/* ---- finite gradients at the ends of the range ---- */

/* Whatever comes of them, it must be the same everywhere; a NaN counts as equal to a NaN. Where a rule divides by the
 * size of the gradient it just got, a finite gradient moves a parameter by an ordinary step, or by none where its
 * square overflows: with learning rates of 0.01 and 1 six updates end far below 1e6. (sgd, AdaBound's lower bound,
 * RAdam's first updates and AdaShift, which divides by an older one, follow a gradient wherever it goes.) The one
 * exception is the variance of centered rmsprop, the difference of two infinities then: it may be NaN, as in PyTorch,
 * but not pass for 0, which makes the step lr / eps times the gradient. */
TEST(gradients_at_the_ends_of_the_range) {
    static const double extremes[2][12] = {
        {0, -0.0, 1e-45, -1e-45, 1e-40, 1e-38, 1e-30, -1e-20, 1e19, -1e20, 1e30, 1e38},
        {0, -0.0, 5e-324, -5e-324, 1e-310, 1e-308, 1e-300, -1e-160, 1e154, -1e155, 1e300, 1.7e308},
    };
    enum { N = 50 };
    for (int v = 0; v < VARIANTS; v++) {
        for (int type = ADAMOD_F32; type <= ADAMOD_F64; type++) {
            double first[N];
            for (int set = 0; adamod_isa_name(set); set++) {
                double p[N] = {0}, g[N] = {0};
                adamod_optimizer *opt;
                setenv("ADAMOD_ISA", adamod_isa_name(set), 1);
                const adamod_status status = adamod_create(&opt, variants[v].rule);
                unsetenv("ADAMOD_ISA");
                if (!CHECK_INT(status, 0)) return;
                set_options(opt, variants[v].options);
                CHECK_INT(adamod_set_text(opt, "decay", "none"), 0);
                const adamod_tensor x = {.param = p,
                                         .grad = g,
                                         .param_type = (adamod_type)type,
                                         .grad_type = (adamod_type)type,
                                         .ndim = 1,
                                         .shape = {N}};
                for (int i = 0; i < N; i++) put((adamod_type)type, p, i, 0.5);
                CHECK_INT(adamod_add_tensor(opt, 0, &x, NULL), 0);
                for (int t = 0; t < 6; t++) {
                    for (int i = 0; i < N; i++)
                        put((adamod_type)type, g, i, extremes[type][(i * (t + 1) + i / 12) % 12]);
                    CHECK_INT(adamod_step(opt), 0);
                }
                static const char *const following[] = {"sgd", "radam", "adabound", "amsbound", "adashift"};
                bool bounded = !variants[v].whole;
                for (int i = 0; i < 5; i++) bounded = bounded && strcmp(variants[v].rule, following[i]) != 0;
                const bool centered = strstr(variants[v].options, "centered") != NULL;
                for (int i = 0; i < N; i++) {
                    const double end = type == ADAMOD_F64 ? p[i] : (double)((float *)p)[i];
                    if (set == 0) first[i] = end;
                    const bool same = end == first[i] || (isnan(end) && isnan(first[i]));
                    const bool small = !bounded || fabs(end) < 1e6 || (centered && isnan(end));
                    if (CHECK(same) && CHECK(small)) continue;
                    printf("%s {%s}, type %d, %s: element %d ends at %g\n", variants[v].rule, variants[v].options, type,
                           adamod_isa_name(set), i, end);
                    break;
                }
                adamod_free(opt);
            }
        }
    }
}

/* ---- conversions ---- */

/* Every pattern there is. */
TEST(loads_of_all_16_bit_numbers) {
    uint16_t in[512];
    for (int i = 0; adamod__kernels_at(i); i++) {
        for (int wide = 0; wide < 2; wide++) {
            const real_kernels *k = wide ? adamod__kernels_at(i)->f64 : adamod__kernels_at(i)->f32;
            const real_kernels *plain = wide ? adamod__kernels_plain.f64 : adamod__kernels_plain.f32;
            for (int type = ADAMOD_BF16; type <= ADAMOD_F16; type++) {
                int wrong = 0;
                for (unsigned base = 0; base < 0x10000; base += 512) {
                    double out[512], expected[512];
                    for (unsigned j = 0; j < 512; j++) in[j] = (uint16_t)(base + j);
                    (type == ADAMOD_BF16 ? k->load_bf16 : k->load_f16)(out, in, 512);
                    (type == ADAMOD_BF16 ? plain->load_bf16 : plain->load_f16)(expected, in, 512);
                    wrong += memcmp(out, expected, 512 * (wide ? sizeof(double) : sizeof(float))) != 0;
                    for (unsigned j = 0; j < 512; j++) {
                        const double x = wide ? out[j] : (double)((float *)out)[j];
                        const unsigned magnitude = in[j] & 0x7fffu;
                        wrong += (in[j] >> 15) != (signbit(x) != 0);
                        if (nan16((adamod_type)type, in[j])) wrong += !isnan(x);
                        else if (magnitude == infinity16((adamod_type)type)) wrong += !isinf(x);
                        else wrong += fabs(x) != decode16((adamod_type)type, magnitude);
                    }
                }
                CHECK_INT(wrong, 0);
            }
        }
    }
}

/* f32 numbers that are hard to round: around every bf16 and f16 number and every tie between two; infinities; NaNs with
 * all kinds of payloads; then anything. */
static uint32_t hard_pattern(uint32_t i) {
    const uint32_t near[8] = {0, 1, 0xffffffffu, 0x1000, 0xfff, 0x1001, 0x8000, 0x7fff};
    if (i < 0x80000) return ((i >> 3) << 16) + near[i & 7]; /* bf16 */
    if (i < 0x100000)
        return to_bits((float)(decode16(ADAMOD_F16, (i >> 3 & 0xffffu) % 0x7c01u) * (i & 4 ? -1 : 1))) + near[i & 7];
    if (i < 0x100400) { /* f16's subnormals and half of the least, with neighbours */
        const uint32_t j = i & 0x3ffu;
        return to_bits((float)(j / 2) * 0x1p-25f) + (j & 1 ? 1 : 0);
    }
    if (i < 0x100800) return 0x7f800000u | (uint32_t)rng() % 0x800000u | (uint32_t)(rng() & 1) << 31;
    if (i < 0x100820) return 0x7f800001u << (i & 1) | 1u << (i & 31);
    return (uint32_t)rng();
}

/* Stores to nearest: what the definition says, in every instruction set, of any length. f64 goes through f32. */
TEST(stores_to_nearest) {
    enum { N = 512 };
    float x[N];
    double wide[N];
    uint16_t out[N], expected[N];
    rng_state = 6;
    const uint32_t end = fast() ? 0x104000 : 0x180000;
    int wrong[4] = {0};
    for (uint32_t base = 0; base < end; base += N) {
        const size_t n = base / N % 7 ? N : N - 1 - base / N % 31;
        for (uint32_t j = 0; j < N; j++) {
            x[j] = from_bits(hard_pattern(base + j));
            wide[j] = (double)x[j];
        }
        for (int type = ADAMOD_BF16; type <= ADAMOD_F16; type++) {
            for (size_t j = 0; j < n; j++) {
                if (isnan(x[j])) { /* quiet, with the sign and the upper bits of the payload */
                    const uint32_t bits = to_bits(x[j]),
                                   payload = type == ADAMOD_BF16 ? bits >> 16 & 0x3fu : bits >> 13 & 0x1ffu;
                    expected[j] =
                        (uint16_t)((bits >> 16 & 0x8000u) | payload | (type == ADAMOD_BF16 ? 0x7fc0u : 0x7e00u));
                } else {
                    expected[j] = nearest16((adamod_type)type, (double)x[j]);
                }
            }
            for (int i = 0; adamod__kernels_at(i); i++) {
                const kernel_set *set = adamod__kernels_at(i);
                (type == ADAMOD_BF16 ? set->f32->store_bf16 : set->f32->store_f16)(out, x, n);
                for (size_t j = 0; j < n; j++) {
                    if (out[j] == expected[j] || wrong[i]++) continue;
                    printf("%s: %a (%08x) to type %d is %04x, expected %04x\n", set->name, (double)x[j], to_bits(x[j]),
                           type, out[j], expected[j]);
                }
                (type == ADAMOD_BF16 ? set->f64->store_bf16 : set->f64->store_f16)(out, wide, n);
                for (size_t j = 0; j < n; j++) {
                    if (out[j] == expected[j] || isnan(x[j]) || wrong[i]++) continue;
                    printf("%s: f64 %a to type %d is %04x, expected %04x\n", set->name, wide[j], type, out[j],
                           expected[j]);
                }
            }
        }
    }
    for (int i = 0; i < 4; i++) CHECK_INT(wrong[i], 0);
}

/* Stores at random: one of the two neighbours, and a number of the type is itself; the same bits in every instruction
 * set. Beyond the largest number the neighbours are that and infinity. */
TEST(stores_at_random_give_neighbours) {
    enum { N = 512 };
    float x[N];
    uint16_t out[N], expected[N];
    rng_state = 7;
    const uint32_t end = fast() ? 0x104000 : 0x180000;
    int wrong = 0, differ = 0;
    for (uint32_t base = 0; base < end; base += N) {
        const size_t n = base / N % 7 ? N : N - 1 - base / N % 31;
        const uint32_t key = (uint32_t)rng();
        for (uint32_t j = 0; j < N; j++) x[j] = from_bits(hard_pattern(base + j));
        for (int type = ADAMOD_BF16; type <= ADAMOD_F16; type++) {
            const real_kernels *plain = adamod__kernels_plain.f32;
            (type == ADAMOD_BF16 ? plain->store_bf16_random : plain->store_f16_random)(expected, x, n, key,
                                                                                       (int)(key & 3));
            for (size_t j = 0; j < n; j++) {
                if (isnan(x[j])) {
                    wrong += !nan16((adamod_type)type, expected[j]);
                    continue;
                }
                const unsigned low = below16((adamod_type)type, (double)x[j]), got = expected[j] & 0x7fffu;
                const bool exact = isinf(x[j]) || decode16((adamod_type)type, low) == fabs((double)x[j]);
                const bool good = got == low || (!exact && got == low + 1);
                if (good && (expected[j] >> 15) == (signbit(x[j]) != 0)) continue;
                if (wrong++ == 0) printf("%a to type %d is %04x\n", (double)x[j], type, expected[j]);
            }
            for (int i = 0; adamod__kernels_at(i); i++) {
                const real_kernels *k = adamod__kernels_at(i)->f32;
                (type == ADAMOD_BF16 ? k->store_bf16_random : k->store_f16_random)(out, x, n, key, (int)(key & 3));
                differ += memcmp(out, expected, n * sizeof *out) != 0;
            }
        }
    }
    CHECK_INT(wrong, 0);
    CHECK_INT(differ, 0);
}

/* How often the upper neighbour is chosen is binomial, with the distance as its probability: 6 deviations. 16 bits
 * decide for bf16 and 13 for f16, as many as f32 has more, so the probability is exact; for f16's subnormals 16 bits
 * do, and it is off by up to 2^-16. Neighbouring elements must not be alike either: how often two in a row are the same
 * is binomial too, with p^2 + (1 - p)^2. */
TEST(stores_at_random_are_unbiased) {
    enum { N = 512 };
    static const double shares[] = {1.0 / 1024, 0.03, 0.25, 0.5, 0.6, 0.9, 1023.0 / 1024};
    static const double bases[] = {1, -1.5, 3e4, 1e-3, 4e-5, -2e-6, 0}; /* the last three are subnormal in f16 */
    const int rounds = fast() ? 40 : 400;
    rng_state = 8;
    const real_kernels *k = adamod__kernels_at(0)->f32;
    for (int type = ADAMOD_BF16; type <= ADAMOD_F16; type++) {
        for (int b = 0; b < 7; b++) {
            for (int s = 0; s < 7; s++) {
                const unsigned low = below16((adamod_type)type, bases[b]);
                const double from = decode16((adamod_type)type, low), to = decode16((adamod_type)type, low + 1);
                const float value = (float)copysign(from + shares[s] * (to - from), bases[b]);
                const double p = (fabs((double)value) - from) / (to - from);
                float x[N];
                uint16_t out[N];
                double up = 0, alike = 0;
                for (int i = 0; i < N; i++) x[i] = value;
                for (int round = 0; round < rounds; round++) {
                    (type == ADAMOD_BF16 ? k->store_bf16_random : k->store_f16_random)(out, x, N, (uint32_t)rng(),
                                                                                       round % 4);
                    for (int i = 0; i < N; i++) {
                        up += (out[i] & 0x7fffu) == low + 1;
                        alike += i > 0 && out[i] == out[i - 1];
                    }
                }
                const double n = (double)N * rounds, pairs = (N - 1.0) * rounds, q = p * p + (1 - p) * (1 - p);
                bool good = CHECK_CLOSE(up, n * p, 6 * sqrt(n * p * (1 - p)) + n * 0x1p-16);
                /* pairs overlap: each is correlated with two others, so at most three times the variance */
                good &= CHECK_CLOSE(alike, pairs * q, 6 * sqrt(3 * pairs * q * (1 - q)) + n * 0x1p-16);
                if (!good) printf("type %d, %a, share %g\n", type, (double)value, p);
            }
        }
    }
}

RUN_TESTS(ENTRY(any_number_of_threads), ENTRY(any_instruction_set), ENTRY(any_alignment),
          ENTRY(statistics_change_nothing), ENTRY(any_cutting_of_arrays), ENTRY(raw_spans_cut_anywhere),
          ENTRY(handles_and_raw_calls), ENTRY(any_order_of_adding), ENTRY(without_its_bound_adamod_is_adam),
          ENTRY(constant_gradient), ENTRY(changes_of_the_learning_rate), ENTRY(the_bound_holds),
          ENTRY(l2_is_a_gradient), ENTRY(weights_of_nosadam), ENTRY(simple_rules_in_closed_form),
          ENTRY(norm_has_the_same_bits), ENTRY(norm_of_huge_and_tiny_numbers),
          ENTRY(clip_norm_of_huge_and_tiny_numbers), ENTRY(nonfinite_error_changes_nothing),
          ENTRY(nonfinite_skip_changes_nothing_and_counts), ENTRY(nonfinite_pass_spreads),
          ENTRY(gradients_at_the_ends_of_the_range), ENTRY(loads_of_all_16_bit_numbers), ENTRY(stores_to_nearest),
          ENTRY(stores_at_random_give_neighbours), ENTRY(stores_at_random_are_unbiased))
