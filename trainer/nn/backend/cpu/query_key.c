/* Norm and rotation of the heads of queries and keys: see ops/query_key.c for the formulas. Angles are computed in double
 * precision, once for all heads of a row. */
#include "nn/ops/query_key.h"
#include "nn/backend/cpu/cpu.h"
#include "nn/backend/cpu/rms.h"

#include <math.h>
#include <string.h>

typedef struct head_work {
    const nn_call *c;
    const nn_vector *x;
    int64_t size, heads, rows; /* numbers of a head; heads of q and k; rows of a task */
    double *frequency;         /* [size / 2] */
} head_work;

/* A task's memory: the gradients of both gains, one head, cosines and sines of a row. */
typedef struct head_scratch {
    float *gains, *d, *cosine, *sine;
} head_scratch;

enum { SCRATCH_HEADS = 4 };

static head_work head_work_of(const nn_call *c) {
    const nn_query_key_attributes *a = NN_ATTR(query_key, c);
    const int64_t cols = c->output[0].cols;
    return (head_work){.c = c,
                       .x = nn_vector_choose(),
                       .size = nn_query_key_size(c),
                       .heads = a->heads + a->kv_heads,
                       .rows = cols < NN_CHUNK ? NN_CHUNK / cols : 1,
                       .frequency = (double *)(void *)c->workspace};
}

static int64_t head_tasks(const head_work *w) { return nn_parts(w->c->output[0].rows, w->rows); }

static int64_t end_of(const head_work *w, int64_t task) {
    const int64_t end = (task + 1) * w->rows;
    return end < w->c->output[0].rows ? end : w->c->output[0].rows;
}

/* Behind the frequencies, which take size floats. */
static head_scratch scratch_of(const head_work *w, int64_t task) {
    float *p = w->c->workspace + nn_padded(w->size) + task * SCRATCH_HEADS * w->size;
    return (head_scratch){p, p + 2 * w->size, p + 3 * w->size, p + 3 * w->size + w->size / 2};
}

static size_t query_key_workspace(const nn_call *c) {
    const head_work w = head_work_of(c);
    return (size_t)(nn_padded(w.size) + head_tasks(&w) * SCRATCH_HEADS * w.size);
}

static void fill_frequencies(const head_work *w) {
    const double base = NN_ATTR(query_key, w->c)->base;
    const int64_t half = w->size / 2;
    for (int64_t i = 0; base > 0 && i < half; i++) w->frequency[i] = pow(base, -(double)i / (double)half);
}

/* Fills cosines and sines, these times sign. False: there is no rotation. */
static bool turn_to_row(const head_work *w, int64_t row, float sign, const head_scratch *s) {
    const int32_t *positions = w->c->input[QUERY_KEY_POSITIONS].data;
    if (!(NN_ATTR(query_key, w->c)->base > 0)) return false;
    for (int64_t i = 0; i < w->size / 2; i++) {
        const double angle = positions[row] * w->frequency[i];
        s->cosine[i] = (float)cos(angle);
        s->sine[i] = sign * (float)sin(angle);
    }
    return true;
}

NN_CLONES
static void rotate_halves(int64_t half, const float *restrict cosine, const float *restrict sine, float *restrict a,
                          float *restrict b) {
    for (int64_t i = 0; i < half; i++) {
        const float first = a[i], second = b[i];
        a[i] = first * cosine[i] - second * sine[i];
        b[i] = second * cosine[i] + first * sine[i];
    }
}

/* NULL: the head has no norm. */
static const float *gain_of(const head_work *w, int64_t head) {
    return w->c->input[head < NN_ATTR(query_key, w->c)->heads ? QUERY_KEY_Q_GAIN : QUERY_KEY_K_GAIN].data;
}

static void forward_task(void *context, int64_t task) {
    const head_work *w = context;
    const nn_call *c = w->c;
    const head_scratch s = scratch_of(w, task);
    const int64_t cols = c->output[0].cols;
    for (int64_t row = task * w->rows; row < end_of(w, task); row++) {
        const float *x = (const float *)c->input[QUERY_KEY_X].data + row * cols;
        float *y = (float *)c->output[0].data + row * cols;
        const bool turns = turn_to_row(w, row, 1, &s);
        memcpy(y, x, (size_t)cols * sizeof *y);
        for (int64_t h = 0; h < w->heads; h++, x += w->size, y += w->size) {
            const float *gain = gain_of(w, h);
            if (gain) nn_rms_apply(w->size, x, nn_rms_scale(w->x, w->size, x, NN_ATTR(query_key, c)->eps), gain, y);
            if (turns) rotate_halves(w->size / 2, s.cosine, s.sine, y, y + w->size / 2);
        }
    }
}

/* d holds the gradient of a head's result, and then of x. */
static void head_gradient(const head_work *w, int64_t head, const float *x, bool turns, const head_scratch *s) {
    const float *gain = gain_of(w, head);
    float *sums = s->gains + (head < NN_ATTR(query_key, w->c)->heads ? 0 : w->size);
    if (turns) rotate_halves(w->size / 2, s->cosine, s->sine, s->d, s->d + w->size / 2);
    if (!gain) return;
    const float scale = nn_rms_scale(w->x, w->size, x, NN_ATTR(query_key, w->c)->eps);
    nn_rms_gradient(w->x, w->size, x, scale, gain, sums, s->d);
}

static void backward_task(void *context, int64_t task) {
    const head_work *w = context;
    const nn_call *c = w->c;
    const head_scratch s = scratch_of(w, task);
    const int64_t cols = c->output[0].cols, rest = w->heads * w->size;
    memset(s.gains, 0, 2 * (size_t)w->size * sizeof *s.gains);
    for (int64_t row = task * w->rows; row < end_of(w, task); row++) {
        const float *x = (const float *)c->input[QUERY_KEY_X].data + row * cols, *dy = c->grad->output[0] + row * cols;
        float *dx = c->grad->input[QUERY_KEY_X] ? c->grad->input[QUERY_KEY_X] + row * cols : NULL;
        const bool turns = turn_to_row(w, row, -1, &s), add = c->grad->accumulate[QUERY_KEY_X];
        for (int64_t at = 0; at < rest; at += w->size) {
            memcpy(s.d, dy + at, (size_t)w->size * sizeof *s.d);
            head_gradient(w, at / w->size, x + at, turns, &s);
            if (dx) nn_cpu_multiply_add(w->size, add ? dx + at : NULL, NULL, s.d, dx + at);
        }
        if (dx) nn_cpu_multiply_add(cols - rest, add ? dx + rest : NULL, NULL, dy + rest, dx + rest);
    }
}

static void query_key_forward(const nn_call *c) {
    head_work w = head_work_of(c);
    fill_frequencies(&w);
    nn_parallel(c->pool, head_tasks(&w), forward_task, &w);
}

static void query_key_backward(const nn_call *c) {
    head_work w = head_work_of(c);
    fill_frequencies(&w);
    nn_parallel(c->pool, head_tasks(&w), backward_task, &w);
    for (int k = 0; k < 2; k++) {
        float *to = c->grad->input[QUERY_KEY_Q_GAIN + k];
        if (to)
            nn_cpu_sum_rows(c->pool, scratch_of(&w, 0).gains + k * w.size, SCRATCH_HEADS * w.size, head_tasks(&w),
                            w.size, to, c->grad->accumulate[QUERY_KEY_Q_GAIN + k]);
    }
}

const nn_kernels nn_cpu_query_key = {
    .forward = query_key_forward, .backward = query_key_backward, .workspace = query_key_workspace};
