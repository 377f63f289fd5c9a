/* An optimizer over some arrays: see bitwise.h. */
#include "bitwise.h"
#include "rule_table.h"

#include <math.h>
#include <stdlib.h>

void *room(size_t n, size_t size) {
    void *p = calloc(n + 1, size);
    if (!p) abort();
    return p;
}

void set_options(adamod_optimizer *opt, const char *text) {
    char copy[256], *rest = copy, *name, *value;
    snprintf(copy, sizeof copy, "%s", text ? text : "");
    while (next_option(&rest, &name, &value)) CHECK_INT(adamod_set_text(opt, name, value), 0);
}

/* ---- what there is to try ---- */

variant variant_of(int v) {
    option_set set;
    int bits = 0;
    while (rule_options(ROW_BITS, bits, &set)) bits++;
    const bool whole = v >= bits;
    const bool there = rule_options(whole ? ROW_WHOLE : ROW_BITS, whole ? v - bits : v, &set);
    return there ? (variant){set.rule, set.options, whole} : (variant){0};
}

const storage storages[] = {
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
const int storage_count = sizeof storages / sizeof *storages;

const int64_t shapes_mixed[MIXED][2] = {{0, 20001}, {0, 17}, {0, 0}, {0, 1}, {5, 103}, {0, 512}, {113, 150}};
const int64_t shapes_many[MANY][2] = {{0, 50001}, {0, 17}, {0, 1}, {5, 103}, {131, 127}};

config config_of(int v, int s) {
    const variant of = variant_of(v);
    return (config){.rule = of.rule,
                    .options = of.options,
                    .more = storages[s].more,
                    .type = storages[s].type,
                    .grad_type = -1,
                    .threads = 1,
                    .n = MIXED,
                    .shapes = shapes_mixed};
}

adamod_type grad_type_of(const config *c, int k) {
    return c->grad_type < 0 ? (adamod_type)((k + c->type) % 4) : (adamod_type)c->grad_type;
}

/* ---- sources ---- */

void *bitwise_gradients[4][STEPS], *bitwise_parameters[4];

static void repeat(char *data, size_t size) {
    for (size_t at = TOTAL; at < REPEATED; at += TOTAL) memcpy(data + at * size, data, TOTAL * size);
}

void bitwise_make_sources(void) {
    if (bitwise_parameters[0]) return;
    rng_state = 1;
    for (int type = ADAMOD_F32; type <= ADAMOD_F16; type++) {
        const size_t size = adamod__type_size((adamod_type)type);
        for (int t = 0; t < STEPS; t++) {
            bitwise_gradients[type][t] = room(REPEATED, size);
            for (int64_t i = 0; i < TOTAL; i++) {
                const uint64_t kind = rng() % 32;
                double x = pow(10, -6 + 8 * uniform());
                if (kind < 2) x = 0;
                if (kind == 2) x = type == ADAMOD_F64 ? 1e-310 : 1e-40;
                if (kind == 3) x = type == ADAMOD_F64 ? 1e-160 : 1e-22;
                put((adamod_type)type, bitwise_gradients[type][t], i, rng() & 1 ? x : -x);
            }
            repeat(bitwise_gradients[type][t], size);
        }
        bitwise_parameters[type] = room(REPEATED, size);
        for (int64_t i = 0; i < TOTAL; i++) put((adamod_type)type, bitwise_parameters[type], i, 2 * uniform() - 1);
        repeat(bitwise_parameters[type], size);
    }
}

/* ---- a run ---- */

/* Memory of the runs that are open, two at most: kept, since thousands of them follow each other. */
static char *kept_memory[2][5];
static int runs_open;

bool bitwise_open(bitwise_run *r, const config *c) {
    bitwise_make_sources();
    *r = (bitwise_run){.c = c};
    char **memory = kept_memory[runs_open++];
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
        memcpy(t.param, (char *)bitwise_parameters[c->type] + start * size, (size_t)count * size);
        CHECK_INT(adamod_add_tensor(r->opt, 0, &t, NULL), 0);
    }
    return true;
}

adamod_status bitwise_step(bitwise_run *r) {
    for (int type = 0; type < 4; type++) {
        const size_t size = adamod__type_size((adamod_type)type);
        memcpy(r->grad[type], bitwise_gradients[type][r->t % STEPS], (size_t)r->start[r->c->n] * size);
    }
    r->t++;
    return adamod_step(r->opt);
}

void bitwise_close(bitwise_run *r) {
    adamod_free(r->opt);
    runs_open--;
}

static void add_bytes(written_bytes *p, const void *data, size_t n) {
    if (p->n + n > p->room) {
        p->room = 2 * (p->n + n);
        p->bytes = realloc(p->bytes, p->room);
        if (!p->bytes) abort();
    }
    if (n) memcpy(p->bytes + p->n, data, n);
    p->n += n;
}

written_bytes bitwise_written(const bitwise_run *r, bool queues) {
    written_bytes p = {0};
    add_bytes(&p, r->param, (size_t)r->start[r->c->n] * adamod__type_size(r->c->type));
    for (int s = 0; state_name(s); s++) {
        if (!queues && !strcmp(state_name(s), "grad_queue")) continue;
        for (int k = 0; k < r->c->n; k++) {
            void *data = NULL;
            adamod_type type;
            int64_t count;
            if (adamod_state(r->opt, k, state_name(s), &data, &type, &count)) continue;
            add_bytes(&p, data, (size_t)count * adamod__type_size(type));
        }
    }
    return p;
}

bool same_bytes(const written_bytes *a, const written_bytes *b) {
    if (!CHECK_INT(a->n, b->n)) return false;
    if (!memcmp(a->bytes, b->bytes, a->n)) return true;
    size_t i = 0;
    while (a->bytes[i] == b->bytes[i]) i++;
    return CHECK_INT(i, a->n);
}

written_bytes bitwise_written_after(const config *c, int steps, bool queues) {
    bitwise_run r;
    written_bytes p = {0};
    if (!bitwise_open(&r, c)) return p;
    for (int t = 0; t < steps; t++) CHECK_INT(bitwise_step(&r), 0);
    p = bitwise_written(&r, queues);
    bitwise_close(&r);
    return p;
}

void expect_same(const config *a, const config *b, int steps, bool queues) {
    written_bytes x = bitwise_written_after(a, steps, queues), y = bitwise_written_after(b, steps, queues);
    if (!same_bytes(&x, &y)) {
        printf(
            "%s {%s %s}, type %d: %s, threads %d, offset %d, %d arrays, and %s, threads %d, offset %d, %d arrays%s\n",
            a->rule, a->options, a->more ? a->more : "", a->type, a->isa ? a->isa : "best", a->threads, a->offset, a->n,
            b->isa ? b->isa : "best", b->threads, b->offset, b->n, b->collect ? ", statistics" : "");
    }
    free(x.bytes);
    free(y.bytes);
}
