/* The cpu backend: its table of kernels, and sums that several of them end in. */
#include "nn/backend/cpu/cpu.h"
#include "nn/backend.h"

static const nn_backend_op ops[] = {
#define ENTRY(name) {#name, &nn_cpu_##name},
    NN_CPU_OPS(ENTRY)
#undef ENTRY
        {NULL, NULL},
};

const nn_backend nn_backend_cpu = {.name = "cpu", .ops = ops};

/* ---- sums of rows ---- */

typedef struct sum_work {
    const float *partials;
    int64_t stride, n, cols;
    float *sum;
    bool add;
} sum_work;

enum { SUM_COLUMNS = 128 };

NN_CLONES
static void sum_columns(const sum_work *w, int64_t first, int64_t cols) {
    double sums[SUM_COLUMNS];
    for (int64_t j = 0; j < cols; j++) sums[j] = w->add ? w->sum[first + j] : 0;
    for (int64_t i = 0; i < w->n; i++) {
        const float *row = w->partials + i * w->stride + first;
        for (int64_t j = 0; j < cols; j++) sums[j] += row[j];
    }
    for (int64_t j = 0; j < cols; j++) w->sum[first + j] = (float)sums[j];
}

static void sum_task(void *context, int64_t i) {
    const sum_work *w = context;
    const int64_t first = i * SUM_COLUMNS;
    sum_columns(w, first, w->cols - first < SUM_COLUMNS ? w->cols - first : SUM_COLUMNS);
}

void nn_cpu_sum_rows(adamod_pool *pool, const float *parts, int64_t stride, int64_t n, int64_t cols, float *sum,
                     bool add) {
    sum_work w = {parts, stride, n, cols, sum, add};
    nn_parallel(pool, nn_parts(cols, SUM_COLUMNS), sum_task, &w);
}
