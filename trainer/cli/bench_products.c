/* The matrix products of a training step alone: the matrix library's time for these shapes. Every linear node has three,
 * y = x W^T forward, dx = dy W and dW = dy^T x backward. So has a convolution, with gathered pixels for x. An lstm has them
 * for its input and for its state. All use the same few arrays, which caches may hold: the library at its best. */
#include "cli/bench_train.h"
#include "cli/bench.h"
#include "support/clock.h"
#include "cli/optim_bench.h"

#include <stdlib.h>

struct bench_products {
    adamod_pool *pool;
    nn_profile_product *list;
    int n;
    nn_profile_arrays arrays;
};

static float *make(int64_t count, uint64_t seed) {
    const size_t bytes = (size_t)count * sizeof(float);
    float *p = bench_alloc(bytes);
    if (p) bench_fill(p, bytes, BENCH_F32, seed);
    return p;
}

/* Rows of a product in a batch; NULL: the capacity. */
static int64_t rows_of(const nn_profile_product *l, const bench_batch *b) {
    const int64_t rows = l->rows > 0 && b ? bench_batch_rows(b, l->rows) : -1;
    return (rows < 0 ? l->capacity : rows) * l->pixels;
}

static bool make_arrays(bench_products *p, bool mixed, const bench_batch *batches, int n) {
    int64_t x = 1, y = 1, w = 1;
    size_t narrow = 0;
    for (int i = 0; i < p->n; i++) {
        const nn_profile_product *l = &p->list[i];
        if (l->out * l->in > w) w = l->out * l->in;
        for (int b = 0; b < n; b++) {
            const int64_t rows = rows_of(l, &batches[b]);
            if (rows * l->in > x) x = rows * l->in;
            if (rows * l->out > y) y = rows * l->out;
            const size_t room = nn_profile_narrow_floats(l, rows);
            if (mixed && room > narrow) narrow = room;
        }
    }
    nn_profile_arrays *all = &p->arrays;
    all->x = make(x, 1), all->dx = make(x, 2);
    all->y = make(y, 3), all->dy = make(y, 4);
    all->w = make(w, 5), all->dw = make(w, 6);
    if (narrow) all->narrow = make((int64_t)narrow, 7);
    return all->x && all->dx && all->y && all->dy && all->w && all->dw && (all->narrow || !narrow);
}

bench_products *bench_products_create(const experiment *s, const bench_batch *batches, int n) {
    bench_products *p = calloc(1, sizeof *p);
    if (!p) return NULL;
    p->pool = s->pool;
    nn_profile_product found;
    while (nn_profile_product_at(s->graph, p->n, &found)) p->n++;
    p->list = calloc((size_t)p->n + 1, sizeof *p->list);
    for (int i = 0; p->list && i < p->n; i++) nn_profile_product_at(s->graph, i, &p->list[i]);
    const bool mixed = experiment_bf16(s) != NULL;
    if (p->list && make_arrays(p, mixed, batches, n)) return p;
    bench_products_free(p);
    return NULL;
}

void bench_products_free(bench_products *p) {
    if (!p) return;
    const nn_profile_arrays *a = &p->arrays;
    float *const arrays[] = {a->x, a->y, a->dx, a->dy, a->w, a->dw, a->narrow};
    for (size_t i = 0; i < sizeof arrays / sizeof *arrays; i++) free(arrays[i]);
    free(p->list);
    free(p);
}

double bench_products_flops(const experiment *s, const bench_batch *b) {
    double flops = 0;
    nn_profile_product l;
    for (int i = 0; nn_profile_product_at(s->graph, i, &l); i++)
        flops += 3 * 2.0 * (double)rows_of(&l, b) * (double)l.out * (double)l.in;
    return flops;
}

double bench_products_run(const bench_products *p, const bench_batch *b) {
    const double start = clock_seconds();
    for (int i = 0; i < p->n; i++) {
        const nn_profile_product *l = &p->list[i];
        nn_profile_forward_product(p->pool, l, rows_of(l, b), &p->arrays);
    }
    for (int i = p->n - 1; i >= 0; i--) {
        const nn_profile_product *l = &p->list[i];
        nn_profile_backward_products(p->pool, l, rows_of(l, b), &p->arrays);
    }
    return clock_seconds() - start;
}
