/* Embedding on the processor: see ops/embedding.c for the formulas.
 *
 * Sentences share positions, so a table of sinusoids is made for each call. From one position to the next it is a
 * rotation, sin(a + f) = sin a cos f + cos a sin f, in double, which in POSITIONS steps loses nothing that a float
 * would show. */
#include "nn/backend/cpu/cpu.h"
#include "nn/ops/attributes.h"

#include <assert.h>
#include <math.h>
#include <string.h>

enum {
    POSITIONS = 1024, /* rows of that table at most; further positions are computed for each token */
    TOKENS = 32,      /* of a task of forward */
    COLUMNS = 64,     /* of other tasks */
    TABLE_ROWS = 1024 /* of a task of backward */
};

typedef struct job {
    const nn_call *call;
    int64_t d, half;
    double *frequency; /* [half] */
    float *sinusoid;   /* [positions, d] */
    int64_t positions; /* in that table */
} job;

static int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }

static size_t embedding_workspace(const nn_call *c) {
    const size_t d = (size_t)c->output[0].cols;
    return c->input[1].data ? (d / 2 * 2 + 16) / 16 * 16 + POSITIONS * d : 0;
}

/* ---- sinusoids ---- */

static NN_CLONES void rotate(int n, double *restrict s, double *restrict c, const double *restrict step_s,
                             const double *restrict step_c, float *restrict out_s, float *restrict out_c) {
    for (int e = 0; e < n; e++) {
        const double sin_e = s[e], cos_e = c[e];
        out_s[e] = (float)sin_e;
        out_c[e] = (float)cos_e;
        s[e] = sin_e * step_c[e] + cos_e * step_s[e];
        c[e] = cos_e * step_c[e] - sin_e * step_s[e];
    }
}

static void sinusoid_columns(void *context, int64_t task) {
    const job *j = context;
    const int64_t first = task * COLUMNS;
    const int n = (int)least(COLUMNS, j->half - first);
    const double rate = j->half > 1 ? -log(10000.0) / (double)(j->half - 1) : 0;
    double s[COLUMNS], c[COLUMNS], step_s[COLUMNS], step_c[COLUMNS];
    for (int e = 0; e < n; e++) {
        const double f = exp((double)(first + e) * rate);
        j->frequency[first + e] = f;
        step_s[e] = sin(f);
        step_c[e] = cos(f);
        s[e] = 0;
        c[e] = 1;
    }
    for (int64_t p = 0; p < j->positions; p++) {
        float *row = j->sinusoid + p * j->d + first;
        rotate(n, s, c, step_s, step_c, row, row + j->half);
    }
}

static void make_sinusoids(job *j) {
    const int32_t *positions = j->call->input[1].data;
    int32_t last = 0;
    for (int64_t i = 0; i < j->call->output[0].rows; i++) last = positions[i] > last ? positions[i] : last;
    j->positions = least(last + (int64_t)1, POSITIONS);
    j->frequency = (double *)(void *)j->call->workspace;
    j->sinusoid = j->call->workspace + (j->half * 2 + 16) / 16 * 16;
    for (int64_t p = 0; j->d % 2 && p < j->positions; p++) j->sinusoid[p * j->d + j->d - 1] = 0;
    nn_parallel(j->call->pool, nn_parts(j->half, COLUMNS), sinusoid_columns, j);
}

/* ---- forward ---- */

static NN_CLONES void combine(int64_t n, float scale, const float *x, const float *p, float *y) {
    if (p) {
        for (int64_t e = 0; e < n; e++) y[e] = scale * x[e] + p[e];
    } else {
        for (int64_t e = 0; e < n; e++) y[e] = scale * x[e];
    }
}

static void add_far_position(const job *j, int32_t position, float *y) {
    for (int64_t e = 0; e < j->half; e++) {
        y[e] += (float)sin(position * j->frequency[e]);
        y[j->half + e] += (float)cos(position * j->frequency[e]);
    }
}

static void forward_tokens(void *context, int64_t task) {
    const job *j = context;
    const nn_call *c = j->call;
    const int32_t *ids = c->input[0].data, *positions = c->input[1].data;
    const float *table = c->input[2].data;
    for (int64_t i = task * TOKENS; i < least((task + 1) * TOKENS, c->output[0].rows); i++) {
        assert(ids[i] >= 0 && ids[i] < c->input[2].rows);
        float *y = (float *)c->output[0].data + i * j->d;
        const bool near = positions && positions[i] >= 0 && positions[i] < j->positions;
        combine(j->d, (float)NN_ATTR(embedding, c)->scale, table + ids[i] * j->d,
                near ? j->sinusoid + positions[i] * j->d : NULL, y);
        if (positions && !near) add_far_position(j, positions[i], y);
    }
}

static void embedding_forward(const nn_call *c) {
    job j = {.call = c, .d = c->output[0].cols, .half = c->output[0].cols / 2};
    if (c->input[1].data) make_sinusoids(&j);
    nn_parallel(c->pool, nn_parts(c->output[0].rows, TOKENS), forward_tokens, &j);
}

/* ---- backward ---- */

static NN_CLONES void add(int64_t n, float scale, const float *x, float *y) {
    for (int64_t e = 0; e < n; e++) y[e] += scale * x[e];
}

/* A part of the table's gradient, which no other task touches: the tokens in it are added in their order. */
static void backward_part(void *context, int64_t task) {
    const job *j = context;
    const nn_call *c = j->call;
    const int32_t *ids = c->input[0].data;
    const int64_t across = nn_parts(j->d, COLUMNS), column = task % across * COLUMNS, n = least(COLUMNS, j->d - column);
    const int64_t first = task / across * TABLE_ROWS, rows = least(TABLE_ROWS, c->input[2].rows - first);
    float *to = c->grad->input[2] + first * j->d + column;
    for (int64_t r = 0; !c->grad->accumulate[2] && r < rows; r++) memset(to + r * j->d, 0, (size_t)n * sizeof(float));
    for (int64_t i = 0; i < c->output[0].rows; i++) {
        const int64_t r = ids[i] - first;
        if (r < 0 || r >= rows) continue;
        add(n, (float)NN_ATTR(embedding, c)->scale, c->grad->output[0] + i * j->d + column, to + r * j->d);
    }
}

static void embedding_backward(const nn_call *c) {
    job j = {.call = c, .d = c->output[0].cols};
    if (!c->grad->input[2]) return;
    nn_parallel(c->pool, nn_parts(c->input[2].rows, TABLE_ROWS) * nn_parts(j.d, COLUMNS), backward_part, &j);
}

const nn_kernels nn_cpu_embedding = {
    .forward = embedding_forward, .backward = embedding_backward, .workspace = embedding_workspace};
