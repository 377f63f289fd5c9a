/* The best of log softmax of each row, on the processor. */
#include "nn/backend/cpu/cpu.h"
#include "nn/ops/attributes.h"
#include "nn/backend/cpu/vector.h"

#include <math.h>

enum {
    ROWS = 4,     /* of a task */
    STRETCH = 128 /* columns that are compared one by one only if the largest of them is good enough */
};

typedef struct job {
    const nn_call *call;
    const nn_vector *x;
} job;

/* The best so far, in order. */
typedef struct list {
    int64_t size, found;
    float *value, *column;
} list;

static bool is_wanted(const list *l, float value) { return l->found < l->size || value > l->value[l->size - 1]; }

static void insert(list *l, float value, int64_t column) {
    int64_t at = l->found < l->size ? l->found++ : l->size - 1;
    for (; at > 0 && value > l->value[at - 1]; at--) {
        l->value[at] = l->value[at - 1];
        l->column[at] = l->column[at - 1];
    }
    l->value[at] = value;
    l->column[at] = (float)column;
}

static void best_of_row(const job *j, const float *x, int64_t n, list *l) {
    double sum_x;
    const float most = j->x->most(n, x), log_sum = (float)log(j->x->sum_exp(n, x, most, &sum_x));
    for (int64_t first = 0; first < n; first += STRETCH) {
        const int64_t end = first + STRETCH < n ? first + STRETCH : n;
        if (!is_wanted(l, (j->x->most(end - first, x + first) - most) - log_sum)) continue;
        for (int64_t v = first; v < end; v++) {
            const float value = (x[v] - most) - log_sum;
            if (is_wanted(l, value)) insert(l, value, v);
        }
    }
}

static void best_rows(void *context, int64_t task) {
    const job *j = context;
    const int64_t n = j->call->input[0].cols, rows = j->call->output[0].rows, size = NN_ATTR(best, j->call)->n;
    const int64_t end = (task + 1) * ROWS < rows ? (task + 1) * ROWS : rows;
    for (int64_t i = task * ROWS; i < end; i++) {
        float *y = (float *)j->call->output[0].data + i * 2 * size;
        list l = {size, 0, y, y + size};
        best_of_row(j, (const float *)j->call->input[0].data + i * n, n, &l);
    }
}

static void best_forward(const nn_call *c) {
    job j = {c, nn_vector_choose()};
    nn_parallel(c->pool, nn_parts(c->output[0].rows, ROWS), best_rows, &j);
}

const nn_kernels nn_cpu_best = {.forward = best_forward};
