#include "nn/backend/cpu/narrow.h"
#include "nn/backend/cpu/cpu.h"
#include "nn/backend/cpu/round.h"
#include "optim/optim.h"

#include <assert.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#ifdef ADAMOD_ONEDNN
#include <dnnl.h>
#endif

/* Stored matrices are padded with zeros to multiples of PAD in both directions, so that few shapes of products occur:
 * making one takes a third of a millisecond. */
enum { PAD = NN_NARROW_ROWS };

static int64_t padded(int64_t n) { return nn_parts(n, PAD) * PAD; }

/* ---- which products ---- */

/* The bounds are measured: smaller products gain nothing, as rounding and padding take time, too. They are the same on
 * all processors, so that a model has the same meaning on each. */
bool nn_narrow_pays(int64_t m, int64_t n, int64_t k) {
    return m >= PAD && n >= PAD && k >= 16 && 2.0 * (double)m * (double)n * (double)k >= 1e6;
}

enum { LINE = 16 }; /* floats that the beginning of a room may be moved by */

size_t nn_narrow_floats(int64_t rows, int64_t cols) {
    return (size_t)(padded(rows) * padded(cols) * nn_narrow_bytes() / 4 + LINE);
}

/* ---- rounding ---- */

/* A matrix as it is stored, and its rounded copy, padded(rows) x padded(cols). */
typedef struct piece {
    const float *from;
    int64_t stride, rows, cols;
    void *to;
    int64_t tasks, task_rows;
} piece;

typedef struct pieces {
    piece list[2 * NN_MAX_PRODUCTS];
    int n;
} pieces;

NN_CLONES
static void round_to_bf16(int64_t n, const float *restrict from, uint16_t *restrict to) {
    for (int64_t i = 0; i < n; i++) to[i] = (uint16_t)(nn_rounded(from[i]) >> 16);
}

NN_CLONES
static void round_in_f32(int64_t n, const float *restrict from, uint32_t *restrict to) {
    for (int64_t i = 0; i < n; i++) to[i] = nn_rounded(from[i]) & 0xffff0000;
}

static void round_task(void *context, int64_t task) {
    const pieces *all = context;
    const piece *p = all->list;
    for (; task >= p->tasks; p++) task -= p->tasks;
    const int64_t width = padded(p->cols), bytes = nn_narrow_bytes(), end = padded(p->rows);
    const int64_t first = task * p->task_rows, last = first + p->task_rows < end ? first + p->task_rows : end;
    for (int64_t i = first; i < last; i++) {
        char *to = (char *)p->to + i * width * bytes;
        const int64_t n = i < p->rows ? p->cols : 0;
        if (bytes == 2) round_to_bf16(n, p->from + i * p->stride, (uint16_t *)(void *)to);
        else round_in_f32(n, p->from + i * p->stride, (uint32_t *)(void *)to);
        memset(to + n * bytes, 0, (size_t)((width - n) * bytes));
    }
}

/* Adds a factor of rows x cols, unless it is in the list already, and lets f refer to the copy. Returns the room that
 * is left. */
static char *add_piece(pieces *all, nn_factor *f, int64_t rows, int64_t cols, char *room) {
    piece p = {.from = f->data, .stride = f->stride, .rows = f->transposed ? cols : rows};
    p.cols = f->transposed ? rows : cols;
    p.to = room;
    p.task_rows = NN_CHUNK / padded(p.cols) + 1;
    p.tasks = nn_parts(padded(p.rows), p.task_rows);
    f->stride = padded(p.cols);
    for (int i = 0; i < all->n; i++) {
        const piece *q = &all->list[i];
        if (q->from != p.from || q->stride != p.stride || q->rows != p.rows || q->cols != p.cols) continue;
        f->data = q->to;
        return room;
    }
    f->data = p.to;
    all->list[all->n++] = p;
    return room + padded(p.rows) * padded(p.cols) * nn_narrow_bytes();
}

void nn_narrow_factors(adamod_pool *pool, nn_product *products, int n) {
    pieces all = {.n = 0};
    int64_t tasks = 0;
    char *room = NULL;
    for (int i = 0; i < n; i++) {
        nn_product *p = &products[i];
        if (!p->narrow) continue;
        if (!room) room = (char *)p->narrow + -(uintptr_t)p->narrow % (LINE * sizeof(float));
        room = add_piece(&all, &p->a, p->m, p->k, room);
        room = add_piece(&all, &p->b, p->k, p->n, room);
    }
    for (int i = 0; i < all.n; i++) tasks += all.list[i].tasks;
    if (tasks) nn_parallel(pool, tasks, round_task, &all);
}

#ifndef ADAMOD_ONEDNN

bool nn_narrow_is_stored(void) { return false; }
const char *nn_narrow_instructions(void) { return NULL; }
void nn_narrow_product(const nn_product *p) { (void)p; }

#else

/* ---- by oneDNN ---- */

static bool has(unsigned isa) { return ((unsigned)dnnl_get_effective_cpu_isa() & isa) == isa; }

static bool is_stored;
static const char *instructions; /* NULL: there are none */

/* ADAMOD_ISA chooses less here, too. */
static void look(void) {
    const char *isa = adamod__chosen_isa();
    is_stored = isa && strcmp(isa, "avx512") == 0 && has(dnnl_cpu_isa_avx512_core_bf16);
    if (is_stored) instructions = has(dnnl_cpu_isa_avx512_core_amx) ? "AMX_BF16" : "AVX512_BF16";
}

static pthread_once_t looked = PTHREAD_ONCE_INIT;

bool nn_narrow_is_stored(void) {
    pthread_once(&looked, look);
    return is_stored;
}

const char *nn_narrow_instructions(void) {
    pthread_once(&looked, look);
    return instructions;
}

/* The key of a primitive of oneDNN: C [m, n], with rows ldc apart, = A [m, k] B [k, n], or += with add. */
typedef struct shape {
    int64_t m, n, k, lda, ldb, ldc, a_transposed, b_transposed, add; /* of one type: compared as bytes */
} shape;

typedef struct primitive {
    shape shape;
    dnnl_primitive_t run;
    dnnl_memory_t a, b, c;
} primitive;

/* Each thread has its own primitives, as a primitive must not run twice at the same time. A new one replaces the
 * oldest. */
enum { PRIMITIVES = 512 };
typedef struct kept {
    dnnl_engine_t engine;
    dnnl_stream_t stream;
    primitive list[PRIMITIVES];
    int n, oldest;
} kept;

static void drop(primitive *p) {
    if (p->run) dnnl_primitive_destroy(p->run);
    if (p->a) dnnl_memory_destroy(p->a);
    if (p->b) dnnl_memory_destroy(p->b);
    if (p->c) dnnl_memory_destroy(p->c);
    *p = (primitive){0};
}

static pthread_key_t key;

static void free_kept(void *memory) {
    kept *all = memory;
    for (int i = 0; i < all->n; i++) drop(&all->list[i]);
    if (all->stream) dnnl_stream_destroy(all->stream);
    if (all->engine) dnnl_engine_destroy(all->engine);
    free(all);
}

static bool has_key;
static void make_key(void) { has_key = pthread_key_create(&key, free_kept) == 0; }

/* This thread's; NULL without memory. */
static kept *kept_here(void) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, make_key);
    kept *all = has_key ? pthread_getspecific(key) : NULL;
    if (all || !has_key || !(all = calloc(1, sizeof *all))) return all;
    if (dnnl_engine_create(&all->engine, dnnl_cpu, 0) == dnnl_success &&
        dnnl_stream_create(&all->stream, all->engine, dnnl_stream_default_flags) == dnnl_success &&
        pthread_setspecific(key, all) == 0)
        return all;
    free_kept(all);
    return NULL;
}

#if DNNL_VERSION_MAJOR >= 3
typedef dnnl_memory_desc_t description;
static bool describe(description *d, const dnnl_dims_t dims, dnnl_data_type_t type, const dnnl_dims_t strides) {
    return dnnl_memory_desc_create_with_strides(d, 2, dims, type, strides) == dnnl_success;
}
static void forget(description *d) { dnnl_memory_desc_destroy(*d); }
static bool make_memory(dnnl_memory_t *out, const description *d, dnnl_engine_t engine) {
    return dnnl_memory_create(out, *d, engine, DNNL_MEMORY_NONE) == dnnl_success;
}
static bool append_sum(dnnl_post_ops_t ops) {
    return dnnl_post_ops_append_sum(ops, 1, 0, dnnl_data_type_undef) == dnnl_success;
}
static bool plan_product(dnnl_primitive_desc_t *out, const description *d, dnnl_primitive_attr_t attr,
                         dnnl_engine_t engine) {
    return dnnl_matmul_primitive_desc_create(out, engine, d[0], d[1], NULL, d[2], attr) == dnnl_success;
}
#else
typedef dnnl_memory_desc_t description;
static bool describe(description *d, const dnnl_dims_t dims, dnnl_data_type_t type, const dnnl_dims_t strides) {
    return dnnl_memory_desc_init_by_strides(d, 2, dims, type, strides) == dnnl_success;
}
static void forget(description *d) { (void)d; }
static bool make_memory(dnnl_memory_t *out, const description *d, dnnl_engine_t engine) {
    return dnnl_memory_create(out, d, engine, DNNL_MEMORY_NONE) == dnnl_success;
}
static bool append_sum(dnnl_post_ops_t ops) { return dnnl_post_ops_append_sum(ops, 1) == dnnl_success; }
static bool plan_product(dnnl_primitive_desc_t *out, const description *d, dnnl_primitive_attr_t attr,
                         dnnl_engine_t engine) {
    dnnl_matmul_desc_t product;
    return dnnl_matmul_desc_init(&product, &d[0], &d[1], NULL, &d[2]) == dnnl_success &&
           dnnl_primitive_desc_create(out, &product, attr, engine, NULL) == dnnl_success;
}
#endif

static bool make_run(primitive *p, const description *d, dnnl_engine_t engine) {
    dnnl_primitive_attr_t attr = NULL;
    dnnl_post_ops_t ops = NULL;
    dnnl_primitive_desc_t plan = NULL;
    bool made = dnnl_primitive_attr_create(&attr) == dnnl_success && dnnl_post_ops_create(&ops) == dnnl_success;
    if (made && p->shape.add) made = append_sum(ops) && dnnl_primitive_attr_set_post_ops(attr, ops) == dnnl_success;
    made = made && plan_product(&plan, d, attr, engine) && dnnl_primitive_create(&p->run, plan) == dnnl_success;
    if (plan) dnnl_primitive_desc_destroy(plan);
    if (ops) dnnl_post_ops_destroy(ops);
    if (attr) dnnl_primitive_attr_destroy(attr);
    return made;
}

static bool make(primitive *p, const shape *s, dnnl_engine_t engine) {
    const dnnl_dims_t dims[3] = {{s->m, s->k}, {s->k, s->n}, {s->m, s->n}};
    const dnnl_dims_t strides[3] = {{s->a_transposed ? 1 : s->lda, s->a_transposed ? s->lda : 1},
                                    {s->b_transposed ? 1 : s->ldb, s->b_transposed ? s->ldb : 1},
                                    {s->ldc, 1}};
    dnnl_memory_t *const memory[3] = {&p->a, &p->b, &p->c};
    description d[3];
    int described = 0;
    p->shape = *s;
    while (described < 3 &&
           describe(&d[described], dims[described], described < 2 ? dnnl_bf16 : dnnl_f32, strides[described]))
        described++;
    bool made = described == 3 && make_run(p, d, engine);
    for (int i = 0; i < 3; i++) made = made && make_memory(memory[i], &d[i], engine);
    for (int i = 0; i < described; i++) forget(&d[i]);
    return made;
}

/* NULL without memory. */
static primitive *find(kept *all, const shape *s) {
    for (int i = 0; i < all->n; i++) {
        if (memcmp(&all->list[i].shape, s, sizeof *s) == 0) return &all->list[i];
    }
    primitive *p = all->n < PRIMITIVES ? &all->list[all->n] : &all->list[all->oldest];
    drop(p);
    if (!make(p, s, all->engine)) {
        drop(p);
        return NULL;
    }
    if (all->n < PRIMITIVES) all->n++;
    else all->oldest = (all->oldest + 1) % PRIMITIVES;
    return p;
}

static bool run(const shape *s, const uint16_t *a, const uint16_t *b, float *c) {
    kept *all = kept_here();
    primitive *p = all ? find(all, s) : NULL;
    if (!p) return false;
    const dnnl_exec_arg_t args[] = {{DNNL_ARG_SRC, p->a}, {DNNL_ARG_WEIGHTS, p->b}, {DNNL_ARG_DST, p->c}};
    return dnnl_memory_set_data_handle(p->a, (void *)(uintptr_t)a) == dnnl_success &&
           dnnl_memory_set_data_handle(p->b, (void *)(uintptr_t)b) == dnnl_success &&
           dnnl_memory_set_data_handle(p->c, c) == dnnl_success &&
           dnnl_primitive_execute(p->run, all->stream, 3, args) == dnnl_success &&
           dnnl_stream_wait(all->stream) == dnnl_success;
}

static float widened(uint16_t x) {
    const uint32_t bits = (uint32_t)x << 16;
    float y;
    memcpy(&y, &bits, sizeof y);
    return y;
}

/* Multiplies without the library, for when the library is out of memory. */
static void multiply_plainly(const shape *s, const uint16_t *a, const uint16_t *b, float *c) {
    for (int64_t i = 0; i < s->m; i++) {
        for (int64_t j = 0; j < s->n; j++) {
            float sum = s->add ? c[i * s->ldc + j] : 0;
            for (int64_t d = 0; d < s->k; d++)
                sum += widened(a[s->a_transposed ? d * s->lda + i : i * s->lda + d]) *
                       widened(b[s->b_transposed ? j * s->ldb + d : d * s->ldb + j]);
            c[i * s->ldc + j] = sum;
        }
    }
}

/* Sums at most DEPTH terms at a time: so few shapes occur, and parts of A and B stay in a cache. */
static void multiply(shape s, const uint16_t *a, const uint16_t *b, float *c) {
    enum { DEPTH = 1024 };
    for (int64_t left = s.k; left > 0; left -= DEPTH) {
        s.k = left < DEPTH ? left : DEPTH;
        if (!run(&s, a, b, c)) multiply_plainly(&s, a, b, c);
        a += s.a_transposed ? s.k * s.lda : s.k;
        b += s.b_transposed ? s.k : s.k * s.ldb;
        s.add = true;
    }
}

/* Computes the last rows, fewer than PAD, in memory of their own. */
static void last_rows(const nn_product *p, shape s, const uint16_t *a, const uint16_t *b, float *c, int64_t rows) {
    _Alignas(64) float whole[PAD * NN_NARROW_COLS];
    s.m = PAD, s.ldc = s.n, s.add = false;
    multiply(s, a, b, whole);
    for (int64_t i = 0; i < rows; i++, c += p->ldc) {
        for (int64_t j = 0; j < p->n; j++) c[j] = p->add ? c[j] + whole[i * s.n + j] : whole[i * s.n + j];
    }
}

void nn_narrow_product(const nn_product *p) {
    const uint16_t *a = (const void *)p->a.data, *b = (const void *)p->b.data;
    const int64_t whole = p->m / PAD * PAD;
    shape s;
    memset(&s, 0, sizeof s); /* shapes are compared as bytes */
    s.m = whole, s.n = p->n, s.k = padded(p->k), s.lda = p->a.stride, s.ldb = p->b.stride, s.ldc = p->ldc;
    s.a_transposed = p->a.transposed, s.b_transposed = p->b.transposed, s.add = p->add;
    if (whole) multiply(s, a, b, p->c);
    if (whole == p->m) return;
    a += p->a.transposed ? whole : whole * s.lda;
    last_rows(p, s, a, b, p->c + whole * p->ldc, p->m - whole);
}

#endif
