/* y = activation(x W^T + b) and its gradient: matrix products by tiles, bias and activation while a tile is in the cache.
 * Formulas are in ops/linear.c. */
#include "cpu.h"
#include "gemm.h"

#include <string.h>

/* ---- gelu ---- */

#define INLINE static inline __attribute__((always_inline))

/* exp(x) for x <= 0: 2^n e^r with |r| <= ln 2 / 2, and the series of e^r. */
INLINE float exp_negative(float x) {
    x = x < -87 ? -87 : x;
    const float round = 0x1.8p23f; /* adding and taking it off leaves a whole number */
    const float n = (x * 1.44269504f + round) - round;
    const float r = x - n * 0.693359375f + n * 2.12194440e-4f; /* ln 2 in two parts, the first short */
    float e = 1.0f / 5040;
    e = e * r + 1.0f / 720;
    e = e * r + 1.0f / 120;
    e = e * r + 1.0f / 24;
    e = e * r + 1.0f / 6;
    e = e * r + 0.5f;
    e = e * r + 1;
    e = e * r + 1;
    const int32_t bits = ((int32_t)n + 127) * (1 << 23);
    float power;
    memcpy(&power, &bits, sizeof power);
    return e * power;
}

/* P(N < z) of a standard normal N, of which bell is exp(-z^2 / 2): Abramowitz and Stegun 7.1.26, off by at most 8e-8. */
INLINE float normal_below(float z, float bell) {
    const float size = z < 0 ? -z : z;
    const float t = 1 / (1 + 0.3275911f * 0.70710678f * size);
    float q = 1.061405429f;
    q = q * t - 1.453152027f;
    q = q * t + 1.421413741f;
    q = q * t - 0.284496736f;
    q = q * t + 0.254829592f;
    const float tail = 0.5f * q * t * bell;
    return z < 0 ? tail : 1 - tail;
}

/* ---- forward ---- */

/* z and y are n numbers of a row; y holds the product. */
NN_CLONES
static void finish_row(nn_activation activation, int64_t n, const float *b, float *restrict z, float *restrict y) {
    if (b) {
        for (int64_t j = 0; j < n; j++) y[j] += b[j];
    }
    if (activation == NN_RELU) {
        for (int64_t j = 0; j < n; j++) y[j] = y[j] > 0 ? y[j] : 0;
    } else if (activation == NN_GELU) {
        for (int64_t j = 0; j < n; j++) {
            z[j] = y[j];
            y[j] = y[j] * normal_below(y[j], exp_negative(-0.5f * y[j] * y[j]));
        }
    }
}

static void finish_tile(void *context, int64_t row, int64_t col, int64_t rows, int64_t cols) {
    const nn_call *c = context;
    const float *b = c->input[2].data;
    for (int64_t i = row; i < row + rows; i++) {
        const int64_t at = i * c->output.cols + col;
        finish_row(c->attributes->activation, cols, b ? b + col : NULL, c->saved ? c->saved + at : NULL,
                   (float *)c->output.data + at);
    }
}

static void linear_forward(const nn_call *c) {
    const int64_t in = c->input[1].cols, out = c->output.cols;
    nn_call copy = *c;
    const nn_product product = {
        .trans_b = true,
        .m = c->output.rows,
        .n = out,
        .k = in,
        .alpha = 1,
        .a = c->input[0].data,
        .lda = in,
        .b = c->input[1].data,
        .ldb = in,
        .c = c->output.data,
        .ldc = out,
        .then = c->input[2].data || c->attributes->activation != NN_LINEAR ? finish_tile : NULL,
        .context = &copy,
    };
    nn_products(c->pool, &product, 1);
}

/* ---- backward ---- */

/* Rows whose sum is a part of b's gradient. */
enum { PART_ROWS = 64 };

/* dz = dy times the activation's slope, from y or z. */
NN_CLONES
static void slope_row(nn_activation activation, int64_t n, const float *dy, const float *from, float *restrict dz) {
    if (activation == NN_RELU) {
        for (int64_t j = 0; j < n; j++) dz[j] = from[j] > 0 ? dy[j] : 0;
    } else {
        for (int64_t j = 0; j < n; j++) {
            const float bell = exp_negative(-0.5f * from[j] * from[j]);
            dz[j] = dy[j] * (normal_below(from[j], bell) + from[j] * bell * 0.39894228f); /* 1 / sqrt(2 pi) */
        }
    }
}

typedef struct grad_work {
    const nn_call *c;
    float *dz;    /* NULL: it is dy */
    float *parts; /* of b's gradient, [tasks, out]; NULL: not wanted */
} grad_work;

static grad_work grad_work_of(const nn_call *c) {
    const bool linear = c->attributes->activation == NN_LINEAR;
    float *p = c->workspace;
    return (grad_work){c, linear ? NULL : p, p + (linear ? 0 : c->output.rows * c->output.cols)};
}

static size_t linear_workspace(const nn_call *c) {
    const int64_t n = c->output.rows * c->output.cols;
    const int64_t parts = nn_parts(c->output.rows, PART_ROWS) * c->output.cols;
    return (size_t)(parts + (c->attributes->activation == NN_LINEAR ? 0 : n));
}

/* Some columns at a time, so that their sums stay in the first cache. */
static void grad_task(void *context, int64_t task) {
    enum { COLUMNS = 2048 };
    const grad_work *w = context;
    const nn_call *c = w->c;
    const int64_t out = c->output.cols, first = task * PART_ROWS;
    const int64_t end = first + PART_ROWS < c->output.rows ? first + PART_ROWS : c->output.rows;
    const float *from = c->attributes->activation == NN_RELU ? c->output.data : c->saved;
    for (int64_t col = 0; col < out; col += COLUMNS) {
        const int64_t n = out - col < COLUMNS ? out - col : COLUMNS;
        for (int64_t i = first; i < end; i++) {
            const float *dz = c->output_grad + i * out + col;
            if (w->dz) {
                float *to = w->dz + i * out + col;
                slope_row(c->attributes->activation, n, dz, from + i * out + col, to);
                dz = to;
            }
            float *part = w->parts + task * out + col;
            if (w->parts) nn_cpu_multiply_add(n, i > first ? part : NULL, NULL, dz, part);
        }
    }
}

static void linear_backward(const nn_call *c) {
    const int64_t rows = c->output.rows, in = c->input[1].cols, out = c->output.cols;
    float *dx = c->input_grad[0], *dw = c->input_grad[1], *db = c->input_grad[2];
    grad_work w = grad_work_of(c);
    const int64_t tasks = nn_parts(rows, PART_ROWS);
    if (!db) w.parts = NULL;
    if (w.dz || w.parts) nn_parallel(c->pool, tasks, grad_task, &w);
    if (db) nn_cpu_sum_rows(c->pool, w.parts, out, tasks, out, db, c->accumulate[2]);
    const float *dz = w.dz ? w.dz : c->output_grad;
    nn_product products[2];
    int n = 0;
    if (dw) {
        products[n++] = (nn_product){.trans_a = true,
                                     .m = out,
                                     .n = in,
                                     .k = rows,
                                     .alpha = 1,
                                     .a = dz,
                                     .lda = out,
                                     .b = c->input[0].data,
                                     .ldb = in,
                                     .beta = c->accumulate[1],
                                     .c = dw,
                                     .ldc = in};
    }
    if (dx) {
        products[n++] = (nn_product){.m = rows,
                                     .n = in,
                                     .k = out,
                                     .alpha = 1,
                                     .a = dz,
                                     .lda = out,
                                     .b = c->input[1].data,
                                     .ldb = in,
                                     .beta = c->accumulate[0],
                                     .c = dx,
                                     .ldc = in};
    }
    nn_products(c->pool, products, n);
}

const nn_kernels nn_cpu_linear = {linear_forward, linear_backward, linear_workspace};
