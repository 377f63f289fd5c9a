/* y = activation(x W^T + b) and its gradient: matrix products by tiles, bias and activation while a tile is in the
 * cache. Formulas are in ops/linear.c. */
#include "nn/backend/cpu/activation.h"
#include "nn/ops/attributes.h"
#include "core/error.h"
#include "nn/backend/cpu/cpu.h"
#include "nn/backend/cpu/gemm.h"
#include "nn/backend/cpu/packed.h"

#include <string.h>

/* ---- gelu ---- */

/* P(N < z) of a standard normal N, where bell is exp(-z^2 / 2): Abramowitz and Stegun 7.1.26, off by at most 8e-8. */
NN_INLINE float normal_below(float z, float bell) {
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

/* Part of a matrix whose rows are stride apart. */
typedef struct part {
    int64_t rows, cols, stride;
} part;

NN_CLONES
static void add_bias(part p, const float *restrict b, float *restrict y) {
    for (int64_t i = 0; i < p.rows; i++, y += p.stride) {
        for (int64_t j = 0; j < p.cols; j++) y[j] += b[j];
    }
}

NN_CLONES
static void add_bias_relu(part p, const float *restrict b, float *restrict y) {
    for (int64_t i = 0; i < p.rows; i++, y += p.stride) {
        for (int64_t j = 0; j < p.cols; j++) {
            const float z = y[j] + b[j];
            y[j] = z < 0 ? 0 : z;
        }
    }
}

NN_CLONES
static void add_bias_gelu(part p, const float *restrict b, float *restrict saved, float *restrict y) {
    for (int64_t i = 0; i < p.rows; i++, y += p.stride, saved += p.stride) {
        for (int64_t j = 0; j < p.cols; j++) {
            const float z = y[j] + b[j];
            saved[j] = z;
            y[j] = z * normal_below(z, nn_exp_negative(-0.5f * z * z));
        }
    }
}

/* Takes some columns at a time: without a bias, an array of COLUMNS zeros stands for it. */
static void finish_tile(void *context, int64_t row, int64_t first, int64_t rows, int64_t cols) {
    enum { COLUMNS = 256 };
    static const float zeros[COLUMNS];
    const nn_call *c = context;
    const int64_t out = c->output[0].cols;
    for (int64_t col = first; col < first + cols; col += COLUMNS) {
        const part p = {rows, first + cols - col < COLUMNS ? first + cols - col : COLUMNS, out};
        const float *b = c->input[2].data ? (const float *)c->input[2].data + col : zeros;
        float *y = (float *)c->output[0].data + row * out + col;
        switch (NN_ATTR(linear, c)->activation) {
            case NN_LINEAR: add_bias(p, b, y); break;
            case NN_RELU: add_bias_relu(p, b, y); break;
            case NN_GELU: add_bias_gelu(p, b, c->saved + row * out + col, y); break;
        }
    }
}

static void linear_forward(const nn_call *c) {
    const int64_t in = c->input[1].cols, out = c->output[0].cols;
    const bool finishes = c->input[2].data || NN_ATTR(linear, c)->activation != NN_LINEAR;
    const nn_product product = {.m = c->output[0].rows,
                                .n = out,
                                .k = in,
                                .a = {.data = c->input[0].data, .stride = in},
                                .b = {c->input[1].data, in, .transposed = true},
                                .c = c->output[0].data,
                                .ldc = out,
                                .then = finishes ? finish_tile : NULL,
                                .context = (void *)(uintptr_t)c,
                                .narrow = c->mixed ? c->workspace : NULL};
    if (c->prepared) nn_packed_product(c->prepared, c->pool, &product);
    else nn_gemm(c->pool, &product);
}

/* ---- backward ---- */

/* Rows whose sum is a part of b's gradient. */
enum { PART_ROWS = 64 };

/* Most parts of W's gradient. */
enum { WEIGHT_PARTS = 8 };

/* dz = dy times the activation's slope, and the sums of its columns: for the identity, relu (from y), gelu (from z). */

NN_CLONES
static void sum_grad(part p, const float *restrict dy, float *restrict sums) {
    memset(sums, 0, (size_t)p.cols * sizeof *sums);
    for (int64_t i = 0; i < p.rows; i++, dy += p.stride) {
        for (int64_t j = 0; j < p.cols; j++) sums[j] += dy[j];
    }
}

NN_CLONES
static void relu_grad(part p, const float *restrict dy, const float *restrict y, float *restrict dz,
                      float *restrict sums) {
    memset(sums, 0, (size_t)p.cols * sizeof *sums);
    for (int64_t i = 0; i < p.rows; i++, dy += p.stride, y += p.stride, dz += p.stride) {
        for (int64_t j = 0; j < p.cols; j++) {
            const float g = dy[j];
            dz[j] = y[j] > 0 ? g : 0;
            sums[j] += dz[j];
        }
    }
}

NN_CLONES
static void gelu_grad(part p, const float *restrict dy, const float *restrict z, float *restrict dz,
                      float *restrict sums) {
    memset(sums, 0, (size_t)p.cols * sizeof *sums);
    for (int64_t i = 0; i < p.rows; i++, dy += p.stride, z += p.stride, dz += p.stride) {
        for (int64_t j = 0; j < p.cols; j++) {
            const float bell = nn_exp_negative(-0.5f * z[j] * z[j]);
            dz[j] = dy[j] * (normal_below(z[j], bell) + z[j] * bell * 0.39894228f); /* 1 / sqrt(2 pi) */
            sums[j] += dz[j];
        }
    }
}

/* The workspace's parts. */
typedef struct grad_work {
    const nn_call *c;
    float *dz;          /* NULL: it is dy */
    float *bias_sums;   /* partial gradients of b, [tasks, out] */
    float *weight_sums; /* partial gradients of W, [weight_parts, out * in], if there is more than one part */
    float *narrow;      /* mixed precision: room for rounded dz, x and W */
    int64_t tasks, weight_parts;
    size_t size;
} grad_work;

/* A small W leaves threads idle, unless the sum over rows is cut too. Rounded factors are not cut. */
static int64_t weight_parts(const nn_call *c) {
    const int64_t size = c->input[1].rows * c->input[1].cols;
    const int64_t parts = size <= 32768 && !c->mixed ? c->output[0].rows / 256 : 1;
    return parts < 1 ? 1 : parts > WEIGHT_PARTS ? WEIGHT_PARTS : parts;
}

/* The next n numbers of the workspace, which is NULL when only its size is asked for. */
static float *take(grad_work *w, int64_t n) {
    float *p = w->c->workspace ? w->c->workspace + w->size : NULL;
    w->size += (size_t)n;
    return p;
}

static grad_work grad_work_of(const nn_call *c) {
    const int64_t rows = c->output[0].rows, out = c->output[0].cols, in = c->input[1].cols;
    grad_work w = {.c = c, .tasks = nn_parts(rows, PART_ROWS), .weight_parts = weight_parts(c)};
    if (NN_ATTR(linear, c)->activation != NN_LINEAR) w.dz = take(&w, rows * out);
    w.bias_sums = take(&w, w.tasks * out);
    if (w.weight_parts > 1) w.weight_sums = take(&w, w.weight_parts * out * in);
    if (c->mixed)
        w.narrow =
            take(&w, (int64_t)(nn_narrow_floats(rows, out) + nn_narrow_floats(rows, in) + nn_narrow_floats(out, in)));
    return w;
}

static size_t linear_workspace(const nn_call *c) { return grad_work_of(c).size; }

/* Some columns at a time, so that their sums stay in the first cache. */
static void grad_task(void *context, int64_t task) {
    enum { COLUMNS = 2048 };
    const grad_work *w = context;
    const nn_call *c = w->c;
    const int64_t out = c->output[0].cols, first = task * PART_ROWS;
    const int64_t rows = c->output[0].rows - first < PART_ROWS ? c->output[0].rows - first : PART_ROWS;
    for (int64_t col = 0; col < out; col += COLUMNS) {
        const part p = {rows, out - col < COLUMNS ? out - col : COLUMNS, out};
        const int64_t at = first * out + col;
        const float *dy = c->grad->output[0] + at;
        float *sums = w->bias_sums + task * out + col;
        switch (NN_ATTR(linear, c)->activation) {
            case NN_LINEAR: sum_grad(p, dy, sums); break;
            case NN_RELU: relu_grad(p, dy, (const float *)c->output[0].data + at, w->dz + at, sums); break;
            case NN_GELU: gelu_grad(p, dy, c->saved + at, w->dz + at, sums); break;
        }
    }
}

/* dW = dz^T x, in parts of the rows. */
static int weight_products(const grad_work *w, const float *dz, nn_product *to) {
    const nn_call *c = w->c;
    const int64_t in = c->input[1].cols, out = c->output[0].cols, n = w->weight_parts;
    const float *x = c->input[0].data;
    for (int64_t i = 0; i < n; i++) {
        const int64_t first = c->output[0].rows * i / n, end = c->output[0].rows * (i + 1) / n;
        to[i] = (nn_product){.m = out, .n = in, .k = end - first, .ldc = in, .add = n == 1 && c->grad->accumulate[1]};
        to[i].a = (nn_factor){dz + first * out, out, .transposed = true};
        to[i].b = (nn_factor){.data = x + first * in, .stride = in};
        to[i].c = n > 1 ? w->weight_sums + i * out * in : c->grad->input[1];
        to[i].narrow = w->narrow;
    }
    return (int)n;
}

static nn_product input_product(const grad_work *w, const float *dz) {
    const nn_call *c = w->c;
    const int64_t in = c->input[1].cols, out = c->output[0].cols;
    return (nn_product){.m = c->output[0].rows,
                        .n = in,
                        .k = out,
                        .a = {.data = dz, .stride = out},
                        .b = {.data = c->input[1].data, .stride = in},
                        .c = c->grad->input[0],
                        .ldc = in,
                        .add = c->grad->accumulate[0],
                        .narrow = w->narrow};
}

static void linear_backward(const nn_call *c) {
    const int64_t size = c->input[1].rows * c->input[1].cols;
    float *dx = c->grad->input[0], *dw = c->grad->input[1], *db = c->grad->input[2];
    grad_work w = grad_work_of(c);
    if (w.dz || db) nn_parallel(c->pool, w.tasks, grad_task, &w);
    const float *dz = w.dz ? w.dz : c->grad->output[0];
    nn_product products[WEIGHT_PARTS + 1];
    int n = 0;
    if (dw) n += weight_products(&w, dz, products);
    if (dx) products[n++] = input_product(&w, dz);
    nn_products(c->pool, products, n);
    if (db)
        nn_cpu_sum_rows(c->pool, w.bias_sums, c->output[0].cols, w.tasks, c->output[0].cols, db,
                        c->grad->accumulate[2]);
    if (dw && w.weight_parts > 1) {
        nn_cpu_sum_rows(c->pool, w.weight_sums, size, w.weight_parts, size, dw, c->grad->accumulate[1]);
    }
}

/* Forward, of parameters that do not change. */
static adamod_status linear_prepare(const nn_call *c, void **prepared) {
    *prepared = NULL;
    if (!c->constant || c->grad->output[0]) return ADAMOD_OK;
    *prepared = nn_packed_create(c->output[0].cols, c->input[1].cols);
    return *prepared ? ADAMOD_OK : adamod__fail(ADAMOD_ERROR_MEMORY, "out of memory for a copy of a matrix");
}

static void linear_release(void *prepared) { nn_packed_free(prepared); }

const nn_kernels nn_cpu_linear = {.forward = linear_forward,
                                  .backward = linear_backward,
                                  .workspace = linear_workspace,
                                  .prepare = linear_prepare,
                                  .release = linear_release};
