/* libFuzzer target: sequences of calls, the same with every instruction set this processor has, on 1 and on 3 threads.
 * For any calls in any order, with any numbers: statuses, messages, parameters, states, files and statistics must be
 * the same bit for bit, except the bits of NaNs.
 *
 * An input runs twice: on one thread with the best set, and with a set and a number of threads that its bytes choose.
 * Arrays are small and pools are made once, so that a core runs some 900 inputs in a second. A fuzzer's build has
 * smaller chunks (adamod__chunk_size), so that threads share small arrays too.
 *
 *     cmake --preset fuzz && cmake --build --preset fuzz && build-fuzz/fuzz/fuzz_calls tests/fuzz/corpus/calls
 *
 * An input is a list of calls, each one byte and then the bytes that it reads; past the end they are 0.
 *
 * SPDX-License-Identifier: MIT
 */

#include "fuzz.h"
#include "adamod.h"

#include <float.h>
#include <math.h>
#include <stdbool.h>
#include <stdio.h>

enum { MOST_RULES = 64, MOST_CALLS = 24, MOST_TENSORS = 6, MOST_GROUPS = 3, MOST_UPDATES = 10, MOST_ELEMENTS = 3000 };

/* Loops of this file over elements, left out of coverage: their comparisons tell the fuzzer nothing. */
#define UNWATCHED __attribute__((no_sanitize("coverage")))

typedef struct array {
    void *p, *g;
    adamod_type p_type, g_type;
    int64_t count;
} array;

typedef struct machine {
    const uint8_t *data;
    size_t size, at;
    adamod_pool *pool; /* NULL: one thread */
    adamod_optimizer *opt;
    int rule;
    array arrays[MOST_TENSORS];
    int n, groups, updates;
    int64_t elements;
    uint64_t seen;              /* a hash of everything so far */
    uint64_t after[MOST_CALLS]; /* and what it was after each call */
    uint8_t called[MOST_CALLS];
    int calls;
} machine;

static void promise(int condition, const char *what) {
    if (condition) return;
    fprintf(stderr, "fuzz_calls: %s\n", what);
    abort();
}

static unsigned take(machine *m) { return m->at < m->size ? m->data[m->at++] : 0; }
static unsigned take_below(machine *m, unsigned n) { return take(m) % n; }

/* ---- what is compared ---- */

UNWATCHED static void see(machine *m, const void *bytes, size_t n) {
    const uint8_t *x = bytes;
    for (; n >= 8; n -= 8, x += 8) {
        uint64_t word;
        memcpy(&word, x, 8);
        m->seen = (m->seen ^ word) * 0x9e3779b97f4a7c15u;
        m->seen ^= m->seen >> 29;
    }
    for (; n > 0; n--, x++) m->seen = (m->seen ^ *x) * 0x100000001b3u;
}

static void see_number(machine *m, double x) {
    if (x != x) x = 12345; /* any NaN */
    see(m, &x, sizeof x);
}

static void see_status(machine *m, adamod_status status) {
    see(m, &status, sizeof status);
    if (status) see(m, adamod_last_error(), strlen(adamod_last_error()));
}

UNWATCHED static void see_array(machine *m, adamod_type type, const void *data, int64_t n) {
    for (int64_t i = 0; i < n; i++) {
        const uint16_t half = type == ADAMOD_BF16 || type == ADAMOD_F16 ? ((const uint16_t *)data)[i] & 0x7fffu : 0;
        uint64_t bits = 0;
        double number = 0;
        switch (type) {
            case ADAMOD_F32:
                memcpy(&bits, (const float *)data + i, 4), number = (double)((const float *)data)[i];
                break;
            case ADAMOD_F64: memcpy(&bits, (const double *)data + i, 8), number = ((const double *)data)[i]; break;
            case ADAMOD_Q8: bits = ((const uint8_t *)data)[i]; break;
            default: bits = ((const uint16_t *)data)[i]; break;
        }
        const int nan16 = half > (type == ADAMOD_BF16 ? 0x7f80u : 0x7c00u);
        if (number != number || nan16) bits = 12345;
        m->seen = (m->seen ^ bits) * 0x9e3779b97f4a7c15u;
        m->seen ^= m->seen >> 29;
    }
}

/* States by all the names that there are. */
static const char *const states[] = {"exp_avg",
                                     "exp_avg_sq",
                                     "exp_avg_lr",
                                     "max_exp_avg_sq",
                                     "momentum_buffer",
                                     "square_avg",
                                     "acc_delta",
                                     "grad_avg",
                                     "sum",
                                     "grad_queue",
                                     "master",
                                     "exp_avg_sq_row",
                                     "exp_avg_sq_col",
                                     "exp_avg_scale",
                                     "exp_avg_sq_scale",
                                     "exp_avg_lr_scale",
                                     "momentum_buffer_scale",
                                     "exp_inf",
                                     "exp_avg_var",
                                     "exp_avg_fast",
                                     "exp_avg_slow",
                                     "exp_avg_diff",
                                     "neg_pre_grad",
                                     "z",
                                     "hessian",
                                     "s",
                                     "p0",
                                     "d",
                                     "d_max",
                                     "d_numerator",
                                     "GG_0",
                                     "GG_1",
                                     "Q_0",
                                     "Q_1"};
enum { STATES = sizeof states / sizeof *states };

static void see_params(machine *m) {
    for (int i = 0; i < m->n; i++) see_array(m, m->arrays[i].p_type, m->arrays[i].p, m->arrays[i].count);
}

/* Asking for a state that does not exist takes long, as the answer is a message. So after some inputs, most inputs look
 * only for states that the rule has had so far. An input run alone, for example again, looks for all. */
static bool all_states;
static uint64_t states_of[MOST_RULES]; /* a bit for each */

static void see_all(machine *m) {
    see_params(m);
    for (int i = 0; i < m->n; i++) {
        for (int s = 0; s < STATES; s++) {
            if (!all_states && !(states_of[m->rule] >> s & 1)) continue;
            void *data;
            adamod_type type;
            int64_t count, steps = 0;
            if (adamod_state(m->opt, i, states[s], &data, &type, &count)) continue;
            states_of[m->rule] |= UINT64_C(1) << s;
            see_array(m, type, data, count);
            see_status(m, adamod_tensor_steps(m->opt, i, &steps));
            see(m, &steps, sizeof steps);
        }
    }
    const int64_t counts[2] = {adamod_steps(m->opt), adamod_skipped(m->opt)};
    see(m, counts, sizeof counts);
    see_number(m, adamod_grad_norm(m->opt));
}

/* ---- numbers ---- */

static double special(machine *m) {
    static const double numbers[] = {0,    1e-3,  0.9,   0.999,  1e-8, 1,     2,        10,        0.5,      1e-30,
                                     1e30, 1e-38, 1e-46, 5e-324, 1e19, 2e19,  3.4e38,   1e154,     1e300,    DBL_MAX,
                                     -1,   -0.5,  -1e30, 1e-20,  1e10, 65504, 1 - 1e-9, 1 - 1e-16, INFINITY, NAN};
    return numbers[take_below(m, sizeof numbers / sizeof *numbers)];
}

UNWATCHED static void put(adamod_type type, void *data, int64_t i, double x) {
    const float narrow = (float)x;
    uint32_t bits;
    memcpy(&bits, &narrow, sizeof bits);
    switch (type) {
        case ADAMOD_F32: ((float *)data)[i] = narrow; break;
        case ADAMOD_F64: ((double *)data)[i] = x; break;
        case ADAMOD_BF16: ((uint16_t *)data)[i] = (uint16_t)(bits >> 16); break;
        case ADAMOD_F16: ((uint16_t *)data)[i] = (uint16_t)(0x3c00u + (bits >> 13 & 0x83ffu)); break; /* 1 to 2 */
        case ADAMOD_Q8: ((uint8_t *)data)[i] = (uint8_t)(bits >> 16); break;
    }
}

/* Ordinary numbers of all sizes near 1, from a seed. */
UNWATCHED static void fill(adamod_type type, void *data, int64_t n, uint32_t seed) {
    for (int64_t i = 0; i < n; i++) {
        uint32_t x = (uint32_t)i * 0x9e3779b9u + seed * 0x85ebca6bu;
        x = (x ^ (x >> 16)) * 0xc2b2ae35u;
        const double size = ldexp(1 + (double)(x >> 9 & 1023) / 1024, (int)(x >> 3 & 7) - 5);
        put(type, data, i, x & 1 ? -size : size);
    }
}

static size_t size_of(adamod_type type) {
    return type == ADAMOD_F64 ? 8 : type == ADAMOD_F32 ? 4 : type == ADAMOD_Q8 ? 1 : 2;
}

static void *make(size_t bytes) {
    void *p = malloc(bytes + 1);
    promise(p != NULL, "no memory");
    return p;
}

/* ---- calls ---- */

static void drop(machine *m) {
    adamod_free(m->opt);
    for (int i = 0; i < m->n; i++) {
        free(m->arrays[i].p);
        free(m->arrays[i].g);
    }
    m->opt = NULL;
    m->n = 0;
    m->elements = 0;
    m->groups = 1;
}

static void call_create(machine *m) {
    static int rules;
    while (adamod_rule_name(rules)) rules++;
    drop(m);
    promise(rules <= MOST_RULES, "too many rules");
    m->rule = (int)take_below(m, (unsigned)rules);
    promise(adamod_create(&m->opt, adamod_rule_name(m->rule)) == ADAMOD_OK, "create");
    if (m->pool) promise(adamod_set_pool(m->opt, m->pool) == ADAMOD_OK, "pool");
}

/* The options of the rule. Looking one up takes longer than most calls. */
static const adamod_option *options_of(const machine *m, unsigned *n) {
    enum { MOST_OPTIONS = 64 };
    static adamod_option options[MOST_RULES][MOST_OPTIONS];
    static unsigned counts[MOST_RULES];
    unsigned *const count = &counts[m->rule];
    if (*count == 0) {
        const char *rule = adamod_rule_name(m->rule);
        while (adamod_option_at(rule, (int)*count, &options[m->rule][*count]) == ADAMOD_OK) {
            promise(++*count < MOST_OPTIONS, "too many options");
        }
    }
    *n = *count;
    return options[m->rule];
}

static void call_set(machine *m) {
    unsigned n;
    const adamod_option *options = options_of(m, &n);
    const adamod_option o = options[take_below(m, n)];
    if (!strcmp(o.name, "threads")) return;
    double value = special(m);
    const unsigned how = take_below(m, 4);
    if (o.kind != ADAMOD_REAL) value = o.min + (double)take_below(m, o.max < 30 ? (unsigned)(o.max - o.min) + 1 : 30);
    else if (how == 3) value = o.value;
    if (how == 1) see_status(m, adamod_group_set(m->opt, (int)take_below(m, MOST_GROUPS), o.name, value));
    else see_status(m, adamod_set(m->opt, o.name, value));
}

static void call_add(machine *m) {
    static const int64_t sizes[][3] = {{0, 0, 0},    {1, 1, 0},   {1, 3, 0}, {1, 17, 0},  {1, 256, 0},
                                       {1, 257, 0},  {1, 700, 0}, {2, 5, 7}, {2, 13, 20}, {2, 1, 600},
                                       {1, 1100, 0}, {1, 64, 0},  {1, 0, 0}, {2, 30, 31}};
    const int64_t *size = sizes[take_below(m, sizeof sizes / sizeof *sizes)];
    adamod_tensor t = {.ndim = (int)size[0], .shape = {size[1], size[2]}};
    array a = {.p_type = (adamod_type)take_below(m, 4),
               .count = size[0] == 0   ? 1
                        : size[0] == 1 ? size[1]
                                       : size[1] * size[2]};
    a.g_type = take(m) % 3 ? a.p_type : (adamod_type)take_below(m, 4);
    if (m->n == MOST_TENSORS || m->elements + a.count > MOST_ELEMENTS) return;
    const unsigned seed = take(m);
    a.p = make((size_t)a.count * size_of(a.p_type));
    a.g = make((size_t)a.count * size_of(a.g_type));
    fill(a.p_type, a.p, a.count, seed);
    fill(a.g_type, a.g, a.count, seed + 1);
    t.param = a.p, t.grad = a.g, t.param_type = a.p_type, t.grad_type = a.g_type;
    const adamod_status status = adamod_add_tensor(m->opt, (int)take_below(m, MOST_GROUPS), &t, NULL);
    see_status(m, status);
    if (status) {
        free(a.p);
        free(a.g);
        return;
    }
    m->elements += a.count;
    m->arrays[m->n++] = a;
}

/* Other gradients, with a few numbers from anywhere among them. */
static void call_gradients(machine *m) {
    const unsigned seed = take(m);
    for (int i = 0; i < m->n; i++) fill(m->arrays[i].g_type, m->arrays[i].g, m->arrays[i].count, seed + (unsigned)i);
    for (unsigned k = take_below(m, 4); k > 0 && m->n > 0; k--) {
        const array *a = &m->arrays[take_below(m, (unsigned)m->n)];
        const unsigned at = 3 * take(m);
        if (a->count > 0) put(a->g_type, a->g, at % a->count, special(m));
    }
}

static void call_step(machine *m) {
    for (unsigned k = 1 + take_below(m, 3); k > 0 && m->updates < MOST_UPDATES; k--, m->updates++) {
        see_status(m, adamod_step(m->opt));
    }
    see_params(m); /* states are seen at the end, by all the names there are, which takes long */
}

static void call_freeze(machine *m) {
    const int id = (int)take_below(m, MOST_TENSORS);
    const void *g = take(m) % 2 && id < m->n ? m->arrays[id].g : NULL;
    see_status(m, adamod_set_grad(m->opt, id, g));
}

static void call_schedule(machine *m) {
    static const char *const texts[] = {"constant",
                                        "multistep(1,3;0.1)",
                                        "warmup(1e-7,4)",
                                        "warmup_rsqrt(0,3)",
                                        "constant_rsqrt(2)",
                                        "cosine(0,5)",
                                        "linear(0.5,4)",
                                        "linear(1e30,2)",
                                        "multistep(1,2;1e20)",
                                        "multistep(1;1e-30)",
                                        "warmup(0,2)*3 > cosine(0.1,4) * 2 > constant",
                                        "linear(1,2)"};
    static const char *const names[] = {"lr",           "beta1",      "beta2", "beta3",   "eps",
                                        "weight_decay", "clip_value", "gamma", "final_lr"};
    adamod_schedule *s = NULL;
    if (take(m) % 5) {
        see_status(m, adamod_schedule_parse(&s, texts[take_below(m, sizeof texts / sizeof *texts)]));
    }
    const char *name = names[take_below(m, sizeof names / sizeof *names)];
    const int group = (int)take_below(m, MOST_GROUPS + 1) - 1;
    see_status(m, adamod_set_schedule(m->opt, group, name, s));
    double value = 0;
    see_status(m, adamod_scheduled_at(m->opt, 0, name, 1 + take(m), &value));
    see_number(m, value);
    adamod_schedule_free(s);
}

static void call_statistics(machine *m) {
    static adamod_statistics s;
    memset(&s, 0, sizeof s);
    if (take(m) % 3) see_status(m, adamod_collect(m->opt, take(m) % 4 != 0));
    const adamod_status status = adamod_get_statistics(m->opt, (int)take_below(m, MOST_GROUPS + 1) - 1, &s);
    see_status(m, status);
    if (status) return;
    const double numbers[] = {s.bounded,     s.eta_min,  s.eta_median, s.eta_max,    s.step_min,
                              s.step_median, s.step_max, s.grad_norm,  s.update_norm};
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) see_number(m, numbers[i]);
    see(m, s.eta, sizeof s.eta);
    see(m, s.step, sizeof s.step);
    see(m, (const int64_t[]){s.elements, s.nonfinite}, 2 * sizeof(int64_t));
}

static const char *file_path(void) {
    static char path[64];
    if (*path) return path;
    char folder[40]; /* in memory if it can be: saving waits for the disk */
    snprintf(folder, sizeof folder, "%s/fuzz_calls.XXXXXX", fuzz_place());
    promise(mkdtemp(folder) != NULL, "no temporary folder");
    snprintf(path, sizeof path, "%s/state", folder);
    return path;
}

static void remove_file(void) {
    char folder[64];
    snprintf(folder, sizeof folder, "%s", file_path());
    unlink(folder);
    *strrchr(folder, '/') = '\0';
    rmdir(folder);
}

/* A saved state loads as it was. */
static void call_save(machine *m) {
    static int registered;
    if (!registered++) atexit(remove_file);
    const adamod_status status = adamod_save(m->opt, file_path());
    see_status(m, status);
    if (status) return;
    if (take(m) % 2) call_gradients(m), call_step(m);
    see_status(m, adamod_load(m->opt, file_path()));
    see_all(m);
}

static void call_group(machine *m) {
    int group;
    if (m->groups >= MOST_GROUPS) return;
    see_status(m, adamod_add_group(m->opt, &group));
    m->groups++;
}

static void call_norm(machine *m) {
    adamod_span spans[MOST_TENSORS] = {{0}};
    double norm = -1;
    for (int i = 0; i < m->n; i++) {
        spans[i] = (adamod_span){.grad = m->arrays[i].g, .grad_type = m->arrays[i].g_type, .count = m->arrays[i].count};
    }
    see_status(m, adamod_norm(spans, (size_t)m->n, m->pool, &norm));
    see_number(m, norm);
}

/* A state may be written between steps. */
static void call_poke(machine *m) {
    void *data;
    adamod_type type;
    int64_t count;
    const int id = (int)take_below(m, MOST_TENSORS);
    const char *name = states[take_below(m, STATES)];
    const unsigned at = take(m);
    const double value = special(m);
    if (adamod_state(m->opt, id, name, &data, &type, &count) || count == 0) return;
    put(type, data, at % count, value);
}

static void call_counts(machine *m) {
    static const int64_t counts[] = {0, 1, 9, 1000000, INT64_C(1) << 40, (INT64_C(1) << 62) - 1, -1};
    const int id = (int)take_below(m, MOST_TENSORS);
    see_status(m, adamod_set_tensor_steps(m->opt, id, counts[take_below(m, sizeof counts / sizeof *counts)]));
    adamod_step_report report = {0};
    const adamod_status status = adamod_report(m->opt, 1 + take(m), &report);
    see_status(m, status);
    if (status) return;
    see(m, (const int64_t[]){report.attempt, report.taken}, 2 * sizeof(int64_t));
    see_number(m, report.grad_norm);
    see_number(m, report.lr);
}

/* Two updates of one array without a handle. */
static void call_raw(machine *m) {
    static const adamod_type types[] = {ADAMOD_F32, ADAMOD_BF16, ADAMOD_Q8};
    adamod_hyper *h;
    unsigned n_options;
    const adamod_option *options = options_of(m, &n_options);
    promise(adamod_hyper_create(&h, adamod_rule_name(m->rule)) == ADAMOD_OK, "hyper");
    for (unsigned k = take_below(m, 4); k > 0; k--) {
        const unsigned index = take(m);
        const double value = special(m);
        if (index < n_options) see_status(m, adamod_hyper_set(h, options[index].name, value));
    }
    double window = 1;
    const int64_t n = 1 + 5 * (int64_t)take(m);
    adamod_span x = {.count = n, .ndim = 1, .shape = {n}, .step = 1 + take_below(m, 4), .stream = take(m)};
    x.param_type = (adamod_type)take_below(m, 4);
    x.grad_type = x.param_type;
    x.state_type = types[take_below(m, 3)];
    if (x.state_type == ADAMOD_F32 && x.param_type == ADAMOD_F64) x.state_type = ADAMOD_F64;
    if (adamod_hyper_get(h, "window", &window)) window = 1;
    x.param = make((size_t)n * size_of(x.param_type));
    void *g = make((size_t)n * size_of(x.grad_type));
    x.grad = g;
    fill(x.param_type, x.param, n, take(m));
    fill(x.grad_type, g, n, take(m));
    put(x.grad_type, g, take(m) % n, special(m));
    for (int s = 0; s < ADAMOD_MAX_STATES; s++) {
        adamod_state_desc desc;
        if (adamod_state_at(h, 1, &n, s, &desc) || !desc.name) continue;
        x.state[s] = calloc((size_t)desc.count + 1, size_of(x.state_type));
        x.scale[s] = calloc((size_t)desc.count / ADAMOD_Q8_BLOCK + 2, sizeof(float));
        promise(x.state[s] && x.scale[s], "no memory");
    }
    for (int t = 0; t < 2; t++, x.step++) {
        static adamod_statistics s;
        const adamod_status status =
            t ? adamod_update_collect(h, &x, 1, m->pool, &s) : adamod_update(h, &x, 1, m->pool);
        see_status(m, status);
        if (t && !status) see(m, s.eta, sizeof s.eta);
    }
    see_array(m, x.param_type, x.param, n);
    for (int s = 0; s < ADAMOD_MAX_STATES; s++) {
        adamod_state_desc desc;
        if (x.state[s] && adamod_state_at(h, 1, &n, s, &desc) == ADAMOD_OK)
            see_array(m, x.state_type, x.state[s], desc.count);
        free(x.state[s]);
        free(x.scale[s]);
    }
    free(x.param);
    free(g);
    adamod_hyper_free(h);
}

static void (*const calls[])(machine *) = {
    call_create, call_set,   call_add,  call_gradients, call_step,   call_freeze, call_schedule, call_statistics,
    call_save,   call_group, call_norm, call_poke,      call_counts, call_raw,    call_set,      call_step};

/* ---- the same on all ---- */

static void run(machine *m) {
    m->seen = 0xcbf29ce484222325u;
    call_create(m);
    while (m->at < m->size && m->calls < MOST_CALLS) {
        const unsigned which = take_below(m, sizeof calls / sizeof *calls);
        m->called[m->calls] = (uint8_t)which;
        calls[which](m);
        m->after[m->calls++] = m->seen;
    }
    see_all(m);
    drop(m);
}

enum { THREADS = 3, MOST_ISAS = 8 };

/* As new, on one thread or on some, with an instruction set. A pool keeps the one that it was made with. */
static machine new_machine(const uint8_t *data, size_t size, int isa, int threads) {
    static adamod_pool *pools[MOST_ISAS];
    promise(isa < MOST_ISAS && setenv("ADAMOD_ISA", adamod_isa_name(isa), 1) == 0, "setenv");
    if (threads > 1 && !pools[isa]) promise(adamod_pool_create(&pools[isa], threads) == ADAMOD_OK, "pool");
    return (machine){.data = data, .size = size, .groups = 1, .pool = threads > 1 ? pools[isa] : NULL};
}

/* A number that follows from the bytes of the input. */
static unsigned hash_of(const uint8_t *data, size_t size) {
    uint32_t hash = 2166136261u;
    for (size_t i = 0; i < size; i++) hash = (hash ^ data[i]) * 16777619u;
    return hash >> 8;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static machine first, other;
    static int isas;
    static unsigned inputs;
    all_states = inputs < 3000 || inputs % 16 == 0;
    inputs++;
    while (adamod_isa_name(isas)) isas++;
    const unsigned hash = hash_of(data, size);
    /* Waking threads takes longer than all the rest: a quarter of the inputs are for them. */
    const int threads = hash % 4 == 0 || isas == 1 ? THREADS : 1;
    const int isa = threads > 1 ? (int)(hash / 4 % (unsigned)isas) : 1 + (int)(hash / 4 % (unsigned)(isas - 1));
    first = new_machine(data, size, 0, 1);
    run(&first);
    other = new_machine(data, size, isa, threads);
    run(&other);
    if (first.seen == other.seen) return 0;
    int differs = 0;
    while (differs < other.calls && other.after[differs] == first.after[differs]) differs++;
    fprintf(stderr, "call %d, number %u of the list, differs between %s on 1 thread and %s on %d\n", differs + 1,
            other.called[differs], adamod_isa_name(0), adamod_isa_name(isa), threads);
    abort();
}
