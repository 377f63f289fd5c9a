/* Attention along the paths of hypotheses, on the processor: a task is a head of a row. */
#include "nn/backend/cpu/cpu.h"
#include "nn/backend/cpu/vector.h"
#include "nn/ops/path_attention.h"

#include <assert.h>
#include <string.h>

enum { SCORES = 1024 }; /* of one head at once, on the stack */

typedef struct job {
    nn_path_view view;
    const nn_call *call;
    const nn_vector *x;
} job;

/* y += sum over n rows of the path of exp(score - most) v. A larger score rescales the sum so far. */
typedef struct sums {
    float most, sum;
} sums;

static void attend(const job *j, const float *q, const int32_t *path, int64_t n, int64_t column, sums *s, float *y) {
    const nn_path_view *v = &j->view;
    _Alignas(64) float score[SCORES];
    const float scale = (float)(1 / sqrt((double)v->size));
    for (int64_t l = 0; l < n; l++) score[l] = scale * j->x->dot(v->size, q, v->cache + path[l] * 2 * v->kv + column);
    const float most = j->x->most(n, score);
    if (most > s->most) {
        const float down = expf(s->most - most);
        j->x->scale(v->size, y, down, y, false);
        s->sum *= down;
        s->most = most;
    }
    s->sum += j->x->weights(n, nn_padded(n), s->most, score);
    for (int64_t l = 0; l < n; l++)
        j->x->scale(v->size, v->cache + (path[l] * 2 + 1) * v->kv + column, score[l], y, true);
}

static void attend_head(void *context, int64_t task) {
    const job *j = context;
    const nn_path_view *v = &j->view;
    const int64_t row = task / v->heads, head = task % v->heads, column = head * v->size;
    const float *q = v->q + row * (v->d + 2 * v->kv) + column;
    const int32_t own = nn_path_row(v, row), *path = v->paths + row * v->length;
    const int64_t n = v->positions[row] + 1;
    float *out = (float *)j->call->output[0].data + row * v->d + column;
    memset(out, 0, (size_t)v->size * sizeof *out);
    if (own < 0) return;
    assert(own < j->call->output[1].rows);
    sums s = {-INFINITY, 0};
    for (int64_t first = 0; first < n; first += SCORES)
        attend(j, q, path + first, n - first < SCORES ? n - first : SCORES, nn_path_column(v, head), &s, out);
    j->x->scale(v->size, out, 1 / s.sum, out, false);
}

static void path_attention_forward(const nn_call *c) {
    job j = {nn_path_of(c), c, nn_vector_choose()};
    nn_path_write(&j.view);
    nn_parallel(c->pool, j.view.rows * j.view.heads, attend_head, &j);
}

const nn_kernels nn_cpu_path_attention = {.forward = path_attention_forward};
