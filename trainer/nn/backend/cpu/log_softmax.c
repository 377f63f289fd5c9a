/* Log softmax of each row, on the processor. */
#include "nn/backend/cpu/cpu.h"
#include "nn/backend/cpu/vector.h"

#include <math.h>

enum { ROWS = 16 }; /* of a task */

typedef struct job {
    const nn_call *call;
    const nn_vector *x;
} job;

static NN_CLONES void subtract(int64_t n, const float *x, float most, float log_sum, float *y) {
    for (int64_t i = 0; i < n; i++) y[i] = (x[i] - most) - log_sum;
}

static void log_softmax_rows(void *context, int64_t task) {
    const job *j = context;
    const int64_t n = j->call->output[0].cols, rows = j->call->output[0].rows;
    const int64_t end = (task + 1) * ROWS < rows ? (task + 1) * ROWS : rows;
    for (int64_t i = task * ROWS; i < end; i++) {
        const float *x = (const float *)j->call->input[0].data + i * n;
        double sum_x;
        const float most = j->x->most(n, x);
        const double sum = j->x->sum_exp(n, x, most, &sum_x);
        subtract(n, x, most, (float)log(sum), (float *)j->call->output[0].data + i * n);
    }
}

static void log_softmax_forward(const nn_call *c) {
    job j = {c, nn_vector_choose()};
    nn_parallel(c->pool, nn_parts(c->output[0].rows, ROWS), log_softmax_rows, &j);
}

const nn_kernels nn_cpu_log_softmax = {.forward = log_softmax_forward};
