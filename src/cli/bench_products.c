/* The matrix products of a training step and nothing else: what the matrix library takes for these shapes. Every linear
 * node has three, y = x W^T forward, dx = dy W and dW = dy^T x backward. All read and write the same few arrays, which
 * caches may hold: the library at its best.
 *
 * SPDX-License-Identifier: MIT
 */
#include "bench_train.h"
#include "backend/cpu/gemm.h"
#include "bench.h"
#include "graph.h"
#include "optim_bench.h"

#include <stdlib.h>

typedef struct linear {
    bool source;     /* its rows are source tokens */
    int64_t out, in; /* W is [out, in] */
} linear;

struct bench_products {
    adamod_pool *pool;
    linear *list;
    int n;
    float *x, *y, *dx, *dy, *w, *dw;
};

static float *make(int64_t count, uint64_t seed) {
    const size_t bytes = (size_t)count * sizeof(float);
    float *p = bench_alloc(bytes);
    if (p) bench_fill(p, bytes, BENCH_F32, seed);
    return p;
}

static linear linear_of(const experiment *s, int node) {
    const nn_graph *g = s->graph;
    const nn_shape *x = &g->values[g->nodes[node].input[0]].shape, *w = &g->values[g->nodes[node].input[1]].shape;
    return (linear){x->rows == translation_of(s)->symbols.src, w->dim[0], w->dim[1]};
}

static void list_linears(bench_products *p, const experiment *s) {
    for (int i = 0; i < s->graph->n_nodes; i++) {
        if (s->graph->nodes[i].op == NN_OP_linear) p->list[p->n++] = linear_of(s, i);
    }
}

static int64_t rows_of(const linear *l, const batch *b) { return l->source ? b->n_src : b->n_tgt; }

static bool make_arrays(bench_products *p, const batch *batches, int n) {
    int64_t x = 1, y = 1, w = 1;
    for (int i = 0; i < p->n; i++) {
        const linear *l = &p->list[i];
        if (l->out * l->in > w) w = l->out * l->in;
        for (int b = 0; b < n; b++) {
            const int64_t rows = rows_of(l, &batches[b]);
            if (rows * l->in > x) x = rows * l->in;
            if (rows * l->out > y) y = rows * l->out;
        }
    }
    p->x = make(x, 1), p->dx = make(x, 2);
    p->y = make(y, 3), p->dy = make(y, 4);
    p->w = make(w, 5), p->dw = make(w, 6);
    return p->x && p->dx && p->y && p->dy && p->w && p->dw;
}

bench_products *bench_products_create(const experiment *s, const batch *batches, int n) {
    bench_products *p = calloc(1, sizeof *p);
    if (!p) return NULL;
    p->pool = s->pool;
    p->list = calloc((size_t)s->graph->n_nodes, sizeof *p->list);
    if (p->list) list_linears(p, s);
    if (p->list && make_arrays(p, batches, n)) return p;
    bench_products_free(p);
    return NULL;
}

void bench_products_free(bench_products *p) {
    if (!p) return;
    float *const arrays[] = {p->x, p->y, p->dx, p->dy, p->w, p->dw};
    for (size_t i = 0; i < sizeof arrays / sizeof *arrays; i++) free(arrays[i]);
    free(p->list);
    free(p);
}

double bench_products_flops(const experiment *s, int64_t source, int64_t target) {
    double flops = 0;
    for (int i = 0; i < s->graph->n_nodes; i++) {
        if (s->graph->nodes[i].op != NN_OP_linear) continue;
        const linear l = linear_of(s, i);
        flops += 3 * 2.0 * (double)(l.source ? source : target) * (double)l.out * (double)l.in;
    }
    return flops;
}

double bench_products_run(const bench_products *p, const batch *b) {
    const double start = bench_now();
    for (int i = 0; i < p->n; i++) {
        const linear *l = &p->list[i];
        nn_gemm(p->pool, false, true, rows_of(l, b), l->out, l->in, 1, p->x, l->in, p->w, l->in, 0, p->y, l->out);
    }
    for (int i = p->n - 1; i >= 0; i--) {
        const linear *l = &p->list[i];
        const int64_t rows = rows_of(l, b);
        nn_gemm(p->pool, true, false, l->out, l->in, rows, 1, p->dy, l->out, p->x, l->in, 0, p->dw, l->in);
        nn_gemm(p->pool, false, false, rows, l->in, l->out, 1, p->dy, l->out, p->w, l->in, 0, p->dx, l->in);
    }
    return bench_now() - start;
}
