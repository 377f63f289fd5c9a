/* Layer normalisation of z = x + dropout(branch), and its gradient (formulas in ops/add_norm.c). Each row is read
 * once, and stays in the first-level cache. saved holds a row's mean and 1 / sqrt(variance + eps). */
#include "nn/backend/cpu/cpu.h"
#include "nn/ops/attributes.h"

#include <math.h>
#include <string.h>

/* ---- rows ---- */

#define INLINE static inline __attribute__((always_inline))

/* Sums over a row run in this many lanes on every processor. */
enum { LANES = 16 };

/* LANES numbers, anywhere in memory. */
typedef float lanes __attribute__((vector_size(LANES * sizeof(float)), aligned(4), may_alias));
typedef double double16 __attribute__((vector_size(16 * sizeof(double))));
typedef double double8 __attribute__((vector_size(8 * sizeof(double))));
typedef double double4 __attribute__((vector_size(4 * sizeof(double))));

/* The sum in double, by halves: lane j with lane j + 8, then with lane j + 4. */
INLINE double total(const lanes *x) {
    const double16 all = __builtin_convertvector(*x, double16);
    double8 eight[2];
    memcpy(eight, &all, sizeof eight);
    eight[0] += eight[1];
    double4 four[2];
    memcpy(four, &eight[0], sizeof four);
    four[0] += four[1];
    return (four[0][0] + four[0][2]) + (four[0][1] + four[0][3]);
}

/* The mean of (z - center)^power, power 1 or 2. */
INLINE double mean_power(int64_t n, const float *z, float center, int power) {
    lanes sums = {0};
    const int64_t whole = n / LANES * LANES;
    for (int64_t j = 0; j < whole; j += LANES) {
        lanes d = *(const lanes *)(z + j) - center;
        if (power == 2) d *= d;
        sums += d;
    }
    double sum = total(&sums);
    for (int64_t j = whole; j < n; j++) sum += power == 2 ? (z[j] - center) * (z[j] - center) : z[j] - center;
    return sum / (double)n;
}

/* From z in y. */
NN_CLONES
static void norm_row(int64_t n, const float *gamma, const float *beta, double eps, float *restrict y,
                     float *restrict saved) {
    const float mean = (float)mean_power(n, y, 0, 1);
    const float scale = (float)(1 / sqrt(mean_power(n, y, mean, 2) + eps));
    for (int64_t j = 0; j < n; j++) y[j] = (y[j] - mean) * scale * gamma[j] + beta[j];
    saved[0] = mean;
    saved[1] = scale;
}

/* Computes dz from z in h, and adds dy h and dy to the sums over rows. */
NN_CLONES
static void norm_row_grad(int64_t n, const float *restrict gamma, const float *restrict saved, const float *restrict dy,
                          float *restrict dgamma, float *restrict dbeta, float *restrict h, float *restrict dz) {
    const int64_t whole = n / LANES * LANES;
    const float mean = saved[0], scale = saved[1];
    for (int64_t j = 0; j < n; j++) {
        h[j] = (h[j] - mean) * scale;
        dgamma[j] += dy[j] * h[j];
        dbeta[j] += dy[j];
        dz[j] = gamma[j] * dy[j];
    }
    lanes sums_g = {0}, sums_gh = {0};
    for (int64_t j = 0; j < whole; j += LANES) {
        const lanes g = *(const lanes *)(dz + j);
        sums_g += g;
        sums_gh += g * *(const lanes *)(h + j);
    }
    double sum_g = total(&sums_g), sum_gh = total(&sums_gh);
    for (int64_t j = whole; j < n; j++) sum_g += dz[j], sum_gh += dz[j] * h[j];
    const float mean_g = (float)(sum_g / (double)n), mean_gh = (float)(sum_gh / (double)n);
    for (int64_t j = 0; j < n; j++) dz[j] = (dz[j] - mean_g - h[j] * mean_gh) * scale;
}

/* ---- tasks of some rows ---- */

/* About how many factors are drawn at once: enough to keep the generator busy, few enough for the first-level cache. */
enum { DRAWN = 1024 };

typedef struct norm_work {
    const nn_call *c;
    nn_drop drop;
    int64_t n, rows, drawn; /* columns; rows of a task, and rows whose factors are drawn at once */
} norm_work;

static norm_work norm_work_of(const nn_call *c) {
    const int64_t n = c->output[0].cols;
    return (norm_work){c, nn_cpu_drop(c), n, n < NN_CHUNK ? NN_CHUNK / n : 1, n < DRAWN ? DRAWN / n : 1};
}

static int64_t norm_tasks(const norm_work *w) { return nn_parts(w->c->output[0].rows, w->rows); }

/* A task's memory: sums over its rows for gamma and beta, rows of h and dz, and factors of some rows. */
typedef struct norm_scratch {
    float *dgamma, *dbeta, *h, *dz, *factor;
} norm_scratch;

static int64_t norm_scratch_size(const norm_work *w) { return (4 + w->drawn) * w->n; }

static norm_scratch norm_scratch_of(const norm_work *w, int64_t task) {
    float *p = w->c->workspace + task * norm_scratch_size(w);
    return (norm_scratch){p, p + w->n, p + 2 * w->n, p + 3 * w->n, p + 4 * w->n};
}

static size_t add_norm_workspace(const nn_call *c) {
    const norm_work w = norm_work_of(c);
    return (size_t)(norm_tasks(&w) * norm_scratch_size(&w));
}

/* Computes z of a row; returns its factors, or NULL if all are 1. A task's rows are asked for in order. */
static const float *row_sum(const norm_work *w, int64_t row, const norm_scratch *s, float *z) {
    const float *x = (const float *)w->c->input[0].data + row * w->n, *branch = w->c->input[1].data;
    const int64_t drawn = row % w->rows % w->drawn;
    const float *factor = branch && w->drop.drops ? s->factor + drawn * w->n : NULL;
    if (factor && drawn == 0) {
        const int64_t left = w->c->output[0].rows - row, rows = left < w->drawn ? left : w->drawn;
        nn_cpu_mask(w->drop.key, (uint64_t)(row * w->n), rows * w->n, w->drop.threshold, w->drop.scale, s->factor);
    }
    if (branch) nn_cpu_multiply_add(w->n, x, factor, branch + row * w->n, z);
    else nn_cpu_multiply_add(w->n, NULL, NULL, x, z);
    return factor;
}

static void forward_task(void *context, int64_t i) {
    const norm_work *w = context;
    const nn_call *c = w->c;
    const norm_scratch s = norm_scratch_of(w, i);
    for (int64_t row = i * w->rows; row < (i + 1) * w->rows && row < c->output[0].rows; row++) {
        float *y = (float *)c->output[0].data + row * w->n;
        row_sum(w, row, &s, y);
        norm_row(w->n, c->input[2].data, c->input[3].data, NN_ATTR(add_norm, c)->eps, y, c->saved + 2 * row);
    }
}

/* x and branch may be one value, with one gradient. So a row's dx is complete before its branch's gradient begins. */
static void backward_task(void *context, int64_t i) {
    const norm_work *w = context;
    const nn_call *c = w->c;
    const norm_scratch s = norm_scratch_of(w, i);
    memset(s.dgamma, 0, (size_t)w->n * sizeof *s.dgamma);
    memset(s.dbeta, 0, (size_t)w->n * sizeof *s.dbeta);
    for (int64_t row = i * w->rows; row < (i + 1) * w->rows && row < c->output[0].rows; row++) {
        const float *factor = row_sum(w, row, &s, s.h);
        norm_row_grad(w->n, c->input[2].data, c->saved + 2 * row, c->grad->output[0] + row * w->n, s.dgamma, s.dbeta,
                      s.h, s.dz);
        for (int k = 0; k < 2; k++) {
            float *g = c->grad->input[k] ? c->grad->input[k] + row * w->n : NULL;
            if (g) nn_cpu_multiply_add(w->n, c->grad->accumulate[k] ? g : NULL, k == 1 ? factor : NULL, s.dz, g);
        }
    }
}

static void add_norm_forward(const nn_call *c) {
    norm_work w = norm_work_of(c);
    nn_parallel(c->pool, norm_tasks(&w), forward_task, &w);
}

static void add_norm_backward(const nn_call *c) {
    norm_work w = norm_work_of(c);
    nn_parallel(c->pool, norm_tasks(&w), backward_task, &w);
    const norm_scratch first = norm_scratch_of(&w, 0);
    const float *parts[2] = {first.dgamma, first.dbeta};
    for (int k = 2; k < 4; k++) {
        float *g = c->grad->input[k];
        if (g)
            nn_cpu_sum_rows(c->pool, parts[k - 2], norm_scratch_size(&w), norm_tasks(&w), w.n, g,
                            c->grad->accumulate[k]);
    }
}

const nn_kernels nn_cpu_add_norm = {
    .forward = add_norm_forward, .backward = add_norm_backward, .workspace = add_norm_workspace};
