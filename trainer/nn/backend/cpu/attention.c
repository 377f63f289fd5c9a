/* Attention on the processor. A head of a sequence is one item of work, cut into tiles of queries and keys that stay
 * in the cache: the scores of a tile are a product, the weights never leave it, and backward computes them again. In
 * backward, all heads that see the same keys are one item, which sums their gradients. Threads take items in turn; items
 * are independent, so the result does not depend on which thread takes which. */
#include "nn/backend/cpu/cpu.h"
#include "nn/ops/attention.h"
#include "nn/backend/cpu/vector.h"

#include <stdatomic.h>
#include <string.h>

/* The largest tile; and SLAB, the queries or keys that are computed at once: in causal attention, for all keys that any
 * of these queries sees. SLAB divides NN_LANES, so that a slab of keys lies within the padding of any query that sees
 * its first key. */
enum { QUERIES = 64, KEYS = 256, SLAB = 8 };

/* Memory of one thread. Rows are padded: those of k_t, v_t, s, ds and factor have the tile's keys, the others a head's
 * columns. */
typedef struct buffers {
    float *q, *y, *dy, *dq;             /* queries (times the scale of scores) and what belongs to them */
    float *k, *v, *dk, *dv, *k_t, *v_t; /* keys, values, their gradients, their transposes */
    float *s, *ds, *factor;             /* scores, then weights; their gradients; dropout's factors */
    float *most, *sum;                  /* of each query's scores, and of their exponentials */
} buffers;

/* An array that items read or write, whose rows belong to queries or to keys; x NULL: none. */
typedef struct array {
    const float *x;
    int64_t stride;
    bool keys;
} array;

/* Prefetches a thread's next item while it computes this one. Rows of an item are short and far apart, which no
 * processor predicts; prefetched a few at a time, they cost nothing. */
typedef struct fetcher {
    const struct item *next;
    int arrays;           /* begun */
    const float *at;      /* in the last of them */
    int64_t rows, stride; /* left of it */
} fetcher;

typedef struct job job;
typedef struct item item;
struct job {
    nn_attention_view view;
    const nn_call *call;
    const nn_vector *x;
    int64_t width; /* of a head, padded */
    float *memory;
    const array *arrays; /* that the kernel touches */
    int n_arrays;
    void (*kernel)(const item *w);
    int64_t heads; /* of an item: 1 or view.group */
    atomic_llong next;
};

/* A sequence's head, or the first of several: queries in rows q_row .. q_row + nq - 1, keys in rows k_row .. k_row + nk - 1. */
struct item {
    const job *j;
    const buffers *b;
    int64_t head, q_row, nq, k_row, nk;
    fetcher *ahead;
};

/* Queries q0 .. q0 + m - 1 and keys k0 .. k0 + n - 1 of an item; width is n, padded. */
typedef struct tile {
    int64_t q0, m, k0, n, width;
} tile;

static int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }

/* ---- memory ---- */

/* Floats of one thread; if memory is not NULL, sets the buffers. */
static size_t divide(const job *j, float *memory, buffers *b) {
    const int64_t q = least(QUERIES, nn_padded(j->view.q_rows)), k = least(KEYS, nn_padded(j->view.k_rows));
    const struct {
        float **buffer;
        int64_t floats;
    } parts[] = {
        {&b->q, q * j->width},   {&b->y, q * j->width},   {&b->dy, q * j->width}, {&b->dq, q * j->width},
        {&b->k, k * j->width},   {&b->v, k * j->width},   {&b->dk, k * j->width}, {&b->dv, k * j->width},
        {&b->k_t, k * j->width}, {&b->v_t, k * j->width}, {&b->s, q * k},         {&b->ds, q * k},
        {&b->factor, q * k},     {&b->most, q},           {&b->sum, q},
    };
    size_t used = 0;
    for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++) {
        if (memory) *parts[i].buffer = memory + used;
        used += (size_t)parts[i].floats;
    }
    return used;
}

static job attention_job(const nn_call *c) {
    job j = {.view = nn_attention_of(c), .call = c, .x = nn_vector_choose()};
    j.width = nn_padded(j.view.size);
    return j;
}

/* A byte for each row, then buffers for each thread. */
static size_t marks_floats(const job *j) {
    const int64_t most = j->view.q_rows > j->view.k_rows ? j->view.q_rows : j->view.k_rows;
    return (size_t)nn_padded(most / 4 + 1);
}

static size_t attention_workspace(const nn_call *c) {
    const job j = attention_job(c);
    buffers b;
    return marks_floats(&j) + (size_t)adamod_pool_threads(c->pool) * divide(&j, NULL, &b);
}

/* Zeros in the rows that are in no range. */
static void clear_outside(const job *j, const int32_t *ranges, int64_t rows, float *x, int64_t stride, int64_t cols) {
    char *inside = (char *)j->call->workspace;
    memset(inside, 0, (size_t)rows);
    for (int64_t i = 0; i < j->view.sequences; i++) {
        memset(inside + ranges[2 * i], 1, (size_t)(ranges[2 * i + 1] - ranges[2 * i]));
    }
    for (const char *at = inside; (at = memchr(at, 0, (size_t)(inside + rows - at))); at++) {
        memset(x + (at - inside) * stride, 0, (size_t)cols * sizeof(float));
    }
}

/* ---- items ---- */

/* False where there is no more. */
static bool take(job *j, item *w) {
    const nn_attention_view *v = &j->view;
    const int64_t n = atomic_fetch_add_explicit(&j->next, 1, memory_order_relaxed);
    const int64_t items = v->heads / j->heads; /* of a sequence */
    if (n >= v->sequences * items) return false;
    const int32_t *q = v->q_ranges + 2 * (n / items), *k = v->k_ranges + 2 * (n / items);
    w->head = n % items * j->heads;
    w->q_row = q[0], w->nq = q[1] - q[0];
    w->k_row = k[0], w->nk = k[1] - k[0];
    return true;
}

static void work(void *context, int64_t thread) {
    job *j = context;
    buffers b;
    const size_t floats = divide(j, NULL, &b);
    divide(j, j->memory + (size_t)thread * floats, &b);
    fetcher ahead;
    item now, next = {.j = j, .b = &b, .ahead = &ahead};
    for (bool more = take(j, &next); more;) {
        now = next;
        more = take(j, &next);
        ahead = (fetcher){.next = &next, .arrays = more ? 0 : j->n_arrays};
        j->kernel(&now);
    }
}

static void run(job *j, int64_t heads, void (*kernel)(const item *w), const array *arrays, int n) {
    j->heads = heads;
    j->memory = j->call->workspace + marks_floats(j);
    j->kernel = kernel;
    j->arrays = arrays;
    j->n_arrays = n;
    atomic_init(&j->next, 0);
    nn_parallel(j->call->pool, adamod_pool_threads(j->call->pool), work, j);
}

/* The first column of the keys that an item sees. */
static int64_t k_column(const item *w) { return w->head / w->j->view.group * w->j->view.size; }

/* False where all arrays have been fetched. */
static bool fetch_array(const item *w, fetcher *f) {
    if (f->arrays == w->j->n_arrays) return false;
    const array *a = &w->j->arrays[f->arrays++];
    const item *n = f->next;
    if (!a->x) return true;
    f->rows = a->keys ? n->nk : n->nq;
    f->stride = a->stride;
    f->at = a->x + (a->keys ? n->k_row : n->q_row) * a->stride + (a->keys ? k_column(n) : n->head * w->j->view.size);
    return true;
}

/* Some rows of the next item. */
static void fetch_ahead(const item *w, int64_t rows) {
    fetcher *f = w->ahead;
    const int64_t size = w->j->view.size;
    while (rows > 0 && (f->rows > 0 || fetch_array(w, f))) {
        const float *at = f->at;
        const int64_t n = least(rows, f->rows);
        for (int64_t i = 0; i < n; i++, at += f->stride) {
            for (int64_t e = 0; e < size; e += NN_LANES) __builtin_prefetch(at + e, 0, 2);
        }
        f->at = at;
        f->rows -= n;
        rows -= n;
    }
}

/* Keys of the tile that its query i sees. */
static int64_t seen(const item *w, const tile *t, int64_t i) {
    const int64_t n = nn_attention_seen(w->j->view.causal, w->nq, w->nk, t->q0 + i) - t->k0;
    return n < 0 ? 0 : least(n, t->n);
}

/* The first query of the tile that sees its key l. */
static int64_t first_to_see(const item *w, const tile *t, int64_t l) {
    const int64_t i = w->j->view.causal ? t->k0 + l - (w->nk - w->nq) - t->q0 : 0;
    return i < 0 ? 0 : least(i, t->m);
}

/* Keys that any query of the slab at i sees. */
static int64_t seen_by_slab(const item *w, const tile *t, int64_t i) {
    return seen(w, t, least(i / SLAB * SLAB + SLAB, t->m) - 1);
}

static const float *q_at(const item *w, const tile *t, const float *x, int64_t stride) {
    return x + (w->q_row + t->q0) * stride + w->head * w->j->view.size;
}

static const float *k_at(const item *w, const tile *t, const float *x) {
    return x + (w->k_row + t->k0) * w->j->view.k_stride + k_column(w);
}

/* to = q k^T for the keys that each slab sees, where q is [m, size] and k_t is [size, n]. */
static void scores(const item *w, const tile *t, float *q, float *k_t, float *to) {
    const int64_t width = w->j->width;
    for (int64_t i = 0; i < t->m; i += SLAB) {
        fetch_ahead(w, 8);
        w->j->x->product(least(SLAB, t->m - i), nn_padded(seen_by_slab(w, t, i)), w->j->view.size,
                         (nn_tile){q + i * width, width, 1}, (nn_tile){k_t, t->width, 1},
                         (nn_tile){to + i * t->width, t->width, 1}, false);
    }
}

/* to = s k, or to += s k, where s is [m, n] and k is [n, size]. */
static void mix(const item *w, const tile *t, float *s, float *k, nn_tile to, bool add) {
    const int64_t width = w->j->width;
    for (int64_t i = 0; i < t->m; i += SLAB) {
        fetch_ahead(w, 8);
        w->j->x->product(least(SLAB, t->m - i), width, seen_by_slab(w, t, i), (nn_tile){s + i * t->width, t->width, 1},
                         (nn_tile){k, width, 1}, (nn_tile){to.x + i * to.row, to.row, 1}, add);
    }
}

/* to = s^T q, or to += s^T q, where s is [m, n] and q is [m, size]. */
static void mix_back(const item *w, const tile *t, float *s, float *q, nn_tile to, bool add) {
    const int64_t width = w->j->width;
    for (int64_t l = 0; l < t->n; l += SLAB) {
        const int64_t i = first_to_see(w, t, l);
        fetch_ahead(w, 8);
        w->j->x->product(least(SLAB, t->n - l), width, t->m - i, (nn_tile){s + i * t->width + l, 1, t->width},
                         (nn_tile){q + i * width, width, 1}, (nn_tile){to.x + l * to.row, to.row, 1}, add);
    }
}

/* Dropout's factors on the tile's weights; NULL: none. In a tile with all keys, rows follow each other as their
 * random numbers do. */
static const float *draw(const item *w, const tile *t) {
    const nn_attention_view *v = &w->j->view;
    if (!v->threshold) return NULL;
    const int64_t rows = w->nk == t->n ? t->m : 1;
    for (int64_t i = 0; i < t->m; i += rows) {
        const uint64_t first = nn_attention_index(w->q_row, v->heads, w->head, w->nk, t->q0 + i, t->k0);
        nn_cpu_mask(w->j->call->key, first, rows * t->width, v->threshold, v->keep, w->b->factor + i * t->width);
    }
    return w->b->factor;
}

/* ---- forward ---- */

/* Replaces scores by exp(score - most); a larger score in a later tile rescales earlier results. */
static void weigh(const item *w, const tile *t, const float *factor, int64_t i) {
    const nn_vector *x = w->j->x;
    const buffers *b = w->b;
    const int64_t n = seen(w, t, i), end = nn_padded(seen_by_slab(w, t, i));
    float *s = b->s + i * t->width, most = x->most(n, s);
    fetch_ahead(w, 2);
    if (t->k0 == 0) {
        b->sum[i] = 0;
    } else if (most > b->most[i]) {
        const float down = (float)exp((double)b->most[i] - most);
        x->scale(w->j->width, b->y + i * w->j->width, down, b->y + i * w->j->width, false);
        b->sum[i] *= down;
    } else {
        most = b->most[i];
    }
    b->most[i] = most;
    b->sum[i] += x->weights(n, end, most, s);
    if (factor) x->drop(end, factor + i * t->width, s);
}

static void finish(const item *w, const tile *t) {
    const nn_attention_view *v = &w->j->view;
    const int64_t d = v->heads * v->size;
    for (int64_t i = 0; i < t->m; i++) {
        const int64_t row = w->q_row + t->q0 + i;
        const float sum = w->b->sum[i], scale = sum != 0 ? 1 / sum : 0;
        float *saved = w->j->call->saved + 2 * (row * v->heads + w->head);
        w->j->x->scale(v->size, w->b->y + i * w->j->width, scale,
                       (float *)w->j->call->output[0].data + row * d + w->head * v->size, false);
        saved[0] = sum != 0 ? w->b->most[i] : 0;
        saved[1] = scale;
    }
}

static void forward_queries(const item *w, tile t) {
    const job *j = w->j;
    const nn_attention_view *v = &j->view;
    const buffers *b = w->b;
    j->x->copy(t.m, v->size, q_at(w, &t, v->q, v->q_stride), v->q_stride, (float)v->scale, b->q, j->width);
    memset(b->sum, 0, (size_t)t.m * sizeof(float));
    for (; t.k0 < w->nk; t.k0 += KEYS) {
        t.n = least(KEYS, w->nk - t.k0);
        t.width = nn_padded(t.n);
        if (t.k0 > 0 && seen(w, &t, t.m - 1) == 0) break;
        if (w->nk > KEYS || t.q0 == 0) { /* else the last queries left them there */
            j->x->transpose(t.n, v->size, k_at(w, &t, v->k), v->k_stride, b->k_t, t.width);
            j->x->copy(t.n, v->size, k_at(w, &t, v->v), v->k_stride, 1, b->v, j->width);
        }
        scores(w, &t, b->q, b->k_t, b->s);
        const float *factor = draw(w, &t);
        for (int64_t i = 0; i < t.m; i++) weigh(w, &t, factor, i);
        mix(w, &t, b->s, b->v, (nn_tile){b->y, j->width, 1}, t.k0 > 0);
    }
    if (w->nk == 0) memset(b->y, 0, (size_t)(t.m * j->width) * sizeof(float));
    finish(w, &t);
}

static void forward_item(const item *w) {
    for (int64_t q0 = 0; q0 < w->nq; q0 += QUERIES) {
        forward_queries(w, (tile){.q0 = q0, .m = least(QUERIES, w->nq - q0)});
    }
}

static void attention_forward(const nn_call *c) {
    job j = attention_job(c);
    const nn_attention_view *v = &j.view;
    const int64_t d = c->output[0].cols;
    const array touched[] = {{v->q, v->q_stride, false},
                             {v->k, v->k_stride, true},
                             {v->v, v->k_stride, true},
                             {c->output[0].data, d, false}};
    clear_outside(&j, v->q_ranges, v->q_rows, c->output[0].data, d, d);
    run(&j, 1, forward_item, touched, sizeof touched / sizeof touched[0]);
}

/* ---- backward: see ops/attention.c for the formulas ---- */

/* Weights and the gradients of scores, in s and ds. */
static void backward_weights(const item *w, const tile *t) {
    const nn_attention_view *v = &w->j->view;
    const nn_vector *x = w->j->x;
    const int64_t d = v->heads * v->size;
    const float *y = q_at(w, t, w->j->call->output[0].data, d);
    scores(w, t, w->b->q, w->b->k_t, w->b->s);
    scores(w, t, w->b->dy, w->b->v_t, w->b->ds);
    const float *factor = draw(w, t);
    for (int64_t i = 0; i < t->m; i++) {
        const float *saved = w->j->call->saved + 2 * ((w->q_row + t->q0 + i) * v->heads + w->head);
        const int64_t end = nn_padded(seen_by_slab(w, t, i));
        float *s = w->b->s + i * t->width;
        fetch_ahead(w, 2);
        const float dy_y = x->dot(v->size, w->b->dy + i * w->j->width, y + i * d);
        x->weights(seen(w, t, i), end, saved[0], s);
        x->weights_gradient(end, saved[1], dy_y, factor ? factor + i * t->width : NULL, s, w->b->ds + i * t->width);
    }
}

/* The target of a gradient's products: its own place, or a buffer if a head's columns have padding. */
static nn_tile target(const item *w, const float *gradient, int64_t stride, float *buffer) {
    if (w->j->width > w->j->view.size) return (nn_tile){buffer, w->j->width, 1};
    return (nn_tile){(float *)gradient, stride, 1};
}

/* Copies the products to the gradient, or adds them, if they are in a buffer. */
static void place(const item *w, int64_t rows, nn_tile from, const float *gradient, int64_t stride, bool add) {
    if (from.x == gradient) return;
    for (int64_t i = 0; i < rows; i++) {
        w->j->x->scale(w->j->view.size, from.x + i * from.row, 1, (float *)gradient + i * stride, add);
    }
}

/* Gradients of a tile's queries and keys from each other; those of the keys go to dk and dv. */
static void backward_tile(const item *w, const tile *t, nn_tile dk, nn_tile dv, bool add) {
    const nn_attention_view *v = &w->j->view;
    const buffers *b = w->b;
    const nn_vector *x = w->j->x;
    const int64_t width = w->j->width, d = v->heads * v->size;
    x->copy(t->m, v->size, q_at(w, t, v->q, v->q_stride), v->q_stride, (float)v->scale, b->q, width);
    x->copy(t->m, v->size, q_at(w, t, w->j->call->grad->output[0], d), d, 1, b->dy, width);
    backward_weights(w, t);
    if (v->dk) {
        mix_back(w, t, b->s, b->dy, dv, add);
        mix_back(w, t, b->ds, b->q, dk, add);
    }
    if (!v->dq) return;
    const float *to = q_at(w, t, v->dq, v->q_stride);
    const nn_tile dq = target(w, to, v->q_stride, b->dq);
    const bool add_q = v->add_q || t->k0 > 0;
    mix(w, t, b->ds, b->k, dq, add_q && dq.x == to);
    place(w, t->m, dq, to, v->q_stride, add_q);
}

/* Computes dk and dv of a tile of keys, and its part of dq of all queries. add: adds to dk and dv. Returns whether
 * these have been written by now. */
static bool backward_head(const item *w, tile t, nn_tile dk, nn_tile dv, bool add) {
    for (; t.q0 < w->nq; t.q0 += QUERIES) {
        t.m = least(QUERIES, w->nq - t.q0);
        if (t.k0 > 0 && seen(w, &t, t.m - 1) == 0) continue;
        backward_tile(w, &t, dk, dv, add);
        add = true;
    }
    return add;
}

static void backward_keys(const item *w, tile t) {
    const nn_attention_view *v = &w->j->view;
    const buffers *b = w->b;
    const nn_vector *x = w->j->x;
    x->copy(t.n, v->size, k_at(w, &t, v->k), v->k_stride, (float)v->scale, b->k, w->j->width); /* for dq alone */
    x->transpose(t.n, v->size, k_at(w, &t, v->k), v->k_stride, b->k_t, t.width);
    x->transpose(t.n, v->size, k_at(w, &t, v->v), v->k_stride, b->v_t, t.width);
    const float *to_k = v->dk ? k_at(w, &t, v->dk) : b->dk, *to_v = v->dk ? k_at(w, &t, v->dv) : b->dv;
    const nn_tile dk = target(w, to_k, v->k_stride, b->dk), dv = target(w, to_v, v->k_stride, b->dv);
    bool add = v->add_k && dk.x == to_k;
    item head = *w;
    for (; head.head < w->head + v->group; head.head++) add = backward_head(&head, t, dk, dv, add);
    if (!v->dk) return;
    for (int64_t l = 0; !add && l < t.n; l++) { /* no query sees these keys */
        memset(dk.x + l * dk.row, 0, (size_t)v->size * sizeof(float));
        memset(dv.x + l * dv.row, 0, (size_t)v->size * sizeof(float));
    }
    place(w, t.n, dk, to_k, v->k_stride, v->add_k);
    place(w, t.n, dv, to_v, v->k_stride, v->add_k);
}

static void backward_item(const item *w) {
    /* Runs once even without keys: queries that see none have gradient 0. */
    for (int64_t k0 = 0; k0 == 0 || k0 < w->nk; k0 += KEYS) {
        const int64_t n = least(KEYS, w->nk - k0);
        backward_keys(w, (tile){.k0 = k0, .n = n, .width = nn_padded(n)});
    }
}

static void attention_backward(const nn_call *c) {
    job j = attention_job(c);
    const nn_attention_view *v = &j.view;
    const int64_t d = c->output[0].cols;
    if (!v->dq && !v->dk) return;
    const array touched[] = {{v->k, v->k_stride, true},      {v->v, v->k_stride, true},     {v->q, v->q_stride, false},
                             {c->grad->output[0], d, false}, {c->output[0].data, d, false}, {v->dq, v->q_stride, false},
                             {v->dk, v->k_stride, true},     {v->dv, v->k_stride, true}};
    if (v->dq && !v->add_q) clear_outside(&j, v->q_ranges, v->q_rows, v->dq, v->q_stride, d);
    if (v->dk && !v->add_k) clear_outside(&j, v->k_ranges, v->k_rows, v->dk, v->k_stride, 2 * v->kv_heads * v->size);
    run(&j, v->group, backward_item, touched, sizeof touched / sizeof touched[0]);
}

const nn_kernels nn_cpu_attention = {
    .forward = attention_forward, .backward = attention_backward, .workspace = attention_workspace};
