/* The cpu backend: its table of kernels, and sums that several of them end in. */
#include "cpu.h"

/* ---- the table ---- */

/* A constant of another file is no constant to C, so that the table cannot hold copies of the kernels; its functions
 * call theirs. */
#define FORWARD(name)                                                                                                  \
    static void name##_forward(const nn_call *c) { nn_cpu_##name.forward(c); }                                         \
    static size_t name##_workspace(const nn_call *c) {                                                                 \
        return nn_cpu_##name.workspace ? nn_cpu_##name.workspace(c) : 0;                                               \
    }
#define BACKWARD(name)                                                                                                 \
    static void name##_backward(const nn_call *c) { nn_cpu_##name.backward(c); }

#define BOTH_WAYS(X) X(linear) X(embedding) X(dropout) X(add) X(add_norm) X(attention) X(cross_entropy)
#define FORWARD_ONLY(X) X(log_softmax) X(cache_write)

BOTH_WAYS(FORWARD)
BOTH_WAYS(BACKWARD)
FORWARD_ONLY(FORWARD)

const nn_backend nn_backend_cpu = {
    .name = "cpu",
    .kernels =
        {
#define ENTRY(name) [NN_OP_##name] = {name##_forward, name##_backward, name##_workspace},
#define ENTRY_FORWARD(name) [NN_OP_##name] = {name##_forward, NULL, name##_workspace},
            BOTH_WAYS(ENTRY) FORWARD_ONLY(ENTRY_FORWARD)
#undef ENTRY
#undef ENTRY_FORWARD
        },
};

/* ---- sums of rows ---- */

typedef struct sum_work {
    const float *parts;
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
        const float *row = w->parts + i * w->stride + first;
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
