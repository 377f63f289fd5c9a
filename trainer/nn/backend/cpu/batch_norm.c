/* Batch norm in two passes each way: sums over each channel, then the numbers. Formulas are in ops/batch_norm.c.
 *
 * Sums are in double precision, so the variance is the mean of squares less the square of the mean. Sums of chunks
 * of pixels, which follow from the shape alone, are added in order. */
#include "nn/backend/cpu/cpu.h"
#include "nn/ops/attributes.h"

#include <math.h>
#include <string.h>

enum { LANES = 16 }; /* channels at once */

typedef float lanes __attribute__((vector_size(LANES * sizeof(float)), aligned(4), may_alias));
typedef int32_t bits __attribute__((vector_size(LANES * sizeof(float)), aligned(4), may_alias));
typedef double wide __attribute__((vector_size(LANES * sizeof(double)), aligned(8), may_alias));

#define WIDEN(x) __builtin_convertvector(x, wide)

typedef struct job {
    const nn_call *c;
    int64_t channels, pixels, chunk; /* chunk: pixels of a task */
    int64_t tasks;
    double *sums;             /* [tasks, 2, channels] */
    int64_t parts;            /* partial sums to add up: one for each task, or one after a sum over processes */
    double count;             /* pixels behind the moments, of all synced processes */
    float *scale, *mean, *by; /* for each channel, read by the second pass */
} job;

static job job_of(const nn_call *c) {
    job j = {.c = c, .channels = nn_channels(&c->input[0]), .pixels = nn_pixels(&c->input[0])};
    j.chunk = NN_CHUNK / j.channels > 1 ? NN_CHUNK / j.channels : 1;
    j.tasks = nn_parts(j.pixels, j.chunk);
    j.parts = j.tasks;
    j.count = (double)j.pixels;
    j.sums = (double *)(void *)c->workspace;
    if (!c->workspace) return j;
    j.scale = c->workspace + 4 * j.tasks * j.channels;
    j.mean = j.scale + j.channels;
    j.by = j.mean + j.channels;
    return j;
}

static size_t batch_norm_workspace(const nn_call *c) {
    const job j = job_of(c);
    return (size_t)(4 * j.tasks * j.channels + 3 * j.channels);
}

/* Some pixels of an array. */
typedef struct run {
    float *x;
    int64_t stride;
} run;

static run run_of(const nn_array *a, const void *data, int64_t first) {
    return (run){data ? (float *)(uintptr_t)data + first * a->stride : NULL, a->stride};
}

static int64_t first_of(const job *j, int64_t task) { return task * j->chunk; }
static int64_t count_of(const job *j, int64_t task) {
    const int64_t left = j->pixels - first_of(j, task);
    return left < j->chunk ? left : j->chunk;
}

/* to_k = the sum of numbers [k] and [channels + k] of each task, in order, for channels first .. end - 1. */
static void total(const job *j, int64_t k, double out[2]) {
    out[0] = out[1] = 0;
    for (int64_t t = 0; t < j->parts; t++) {
        out[0] += j->sums[2 * t * j->channels + k];
        out[1] += j->sums[(2 * t + 1) * j->channels + k];
    }
}

/* Replaces this process's sums by those of all processes. */
static void add_up(job *j) {
    const nn_call *c = j->c;
    if (!c->sync->add_up || !c->training || j->tasks == 0) return;
    for (int64_t k = 0; k < j->channels; k++) {
        double sums[2];
        total(j, k, sums);
        j->sums[k] = sums[0];
        j->sums[j->channels + k] = sums[1];
    }
    j->parts = 1;
    c->sync->add_up(c->sync->context, j->sums, 2 * j->channels);
    c->sync->add_up(c->sync->context, &j->count, 1);
}

/* ---- forward ---- */

/* Sums of x and of x^2. */
NN_CLONES
static void sum_moments(int64_t n, int64_t channels, run a, double *sums) {
    int64_t k = 0;
    for (; k + LANES <= channels; k += LANES) {
        wide sum = {0}, squares = {0};
        const float *x = a.x + k;
        for (int64_t p = 0; p < n; p++, x += a.stride) {
            const wide v = WIDEN(*(const lanes *)x);
            sum += v;
            squares += v * v;
        }
        *(wide *)(sums + k) = sum;
        *(wide *)(sums + channels + k) = squares;
    }
    for (; k < channels; k++) {
        double sum = 0, squares = 0;
        for (int64_t p = 0; p < n; p++) {
            const double v = a.x[p * a.stride + k];
            sum += v;
            squares += v * v;
        }
        sums[k] = sum;
        sums[channels + k] = squares;
    }
}

static void moments_task(void *context, int64_t task) {
    const job *j = context;
    const nn_array *x = &j->c->input[0];
    sum_moments(count_of(j, task), j->channels, run_of(x, x->data, first_of(j, task)),
                j->sums + 2 * task * j->channels);
}

/* Writes the batch's moments to saved, and adds them to the running ones, now or later. */
static void finish_moments(void *context, int64_t k) {
    const job *j = context;
    const nn_call *c = j->c;
    const double n = j->count, momentum = j->pixels ? NN_ATTR(batch_norm, c)->momentum : 0;
    float *mean = c->output[1].data, *variance = c->output[2].data;
    double sums[2];
    total(j, k, sums);
    const double m = j->pixels ? sums[0] / n : 0, squares = fmax(sums[1] - n * m * m, 0);
    c->saved[k] = (float)m;
    c->saved[j->channels + k] = (float)(1 / sqrt((j->pixels ? squares / n : 0) + NN_ATTR(batch_norm, c)->eps));
    const double added[2] = {momentum * m, momentum * squares / (n > 1 ? n - 1 : 1)};
    if (c->sync->added) {
        c->sync->added[k] = added[0];
        c->sync->added[j->channels + k] = added[1];
    } else {
        mean[k] = nn_run(mean[k], momentum, added[0]);
        variance[k] = nn_run(variance[k], momentum, added[1]);
    }
}

static void running_moments(const job *j) {
    const float *mean = j->c->input[4].data, *variance = j->c->input[5].data;
    for (int64_t k = 0; k < j->channels; k++) {
        j->c->saved[k] = mean[k];
        j->c->saved[j->channels + k] = (float)(1 / sqrt((double)variance[k] + NN_ATTR(batch_norm, j->c)->eps));
    }
}

/* y = (x - mean) scale + beta, + r if there is one; then relu. */
#define FORWARD(name, and_r, relu)                                                                                     \
    NN_CLONES static void name(int64_t n, int64_t channels, run x, run r, const float *restrict mean,                  \
                               const float *restrict scale, const float *restrict beta, run y) {                       \
        for (int64_t p = 0; p < n; p++, x.x += x.stride, r.x += r.stride, y.x += y.stride) {                           \
            const float *const from = x.x, *const residual = r.x;                                                      \
            float *const restrict to = y.x;                                                                            \
            (void)residual;                                                                                            \
            for (int64_t k = 0; k < channels; k++) {                                                                   \
                const float z = ((from[k] - mean[k]) * scale[k] + beta[k]) and_r;                                      \
                to[k] = (relu) && z < 0 ? 0 : z;                                                                       \
            }                                                                                                          \
        }                                                                                                              \
    }
FORWARD(plain_forward, , false)
FORWARD(relu_forward, , true)
FORWARD(residual_forward, +residual[k], false)
FORWARD(residual_relu_forward, +residual[k], true)

static void forward_task(void *context, int64_t task) {
    const job *j = context;
    const nn_call *c = j->c;
    const int64_t first = first_of(j, task);
    const bool relu = NN_ATTR(batch_norm, c)->activation == NN_RELU;
    const run x = run_of(&c->input[0], c->input[0].data, first), y = run_of(&c->output[0], c->output[0].data, first);
    const run r = c->input[1].data ? run_of(&c->input[1], c->input[1].data, first) : x;
    (c->input[1].data ? (relu ? residual_relu_forward : residual_forward) : (relu ? relu_forward : plain_forward))(
        count_of(j, task), j->channels, x, r, c->saved, j->scale, c->input[3].data, y);
}

static void batch_norm_forward(const nn_call *c) {
    job j = job_of(c);
    const float *gamma = c->input[2].data;
    if (c->training) {
        nn_parallel(c->pool, j.tasks, moments_task, &j);
        add_up(&j);
        nn_parallel(c->pool, j.channels, finish_moments, &j);
    } else {
        running_moments(&j);
    }
    for (int64_t k = 0; k < j.channels; k++) j.scale[k] = gamma[k] * c->saved[j.channels + k];
    nn_parallel(c->pool, j.tasks, forward_task, &j);
}

/* ---- backward ---- */

/* Sums of g and of g (x - mean); y NULL: there is no relu. */
NN_CLONES
static void sum_gradients(int64_t n, int64_t channels, run dy, run y, run x, const float *mean, double *sums) {
    int64_t k = 0;
    for (; k + LANES <= channels; k += LANES) {
        const wide m = WIDEN(*(const lanes *)(mean + k));
        wide sum = {0}, products = {0};
        for (int64_t p = 0; p < n; p++) {
            lanes g = *(const lanes *)(dy.x + p * dy.stride + k);
            if (y.x) g = (lanes)((bits)g & (bits)(*(const lanes *)(y.x + p * y.stride + k) > 0));
            const wide v = WIDEN(g);
            sum += v;
            products += v * (WIDEN(*(const lanes *)(x.x + p * x.stride + k)) - m);
        }
        *(wide *)(sums + k) = sum;
        *(wide *)(sums + channels + k) = products;
    }
    for (; k < channels; k++) {
        double sum = 0, products = 0;
        for (int64_t p = 0; p < n; p++) {
            const double g = !y.x || y.x[p * y.stride + k] > 0 ? dy.x[p * dy.stride + k] : 0;
            sum += g;
            products += g * ((double)x.x[p * x.stride + k] - mean[k]);
        }
        sums[k] = sum;
        sums[channels + k] = products;
    }
}

static run relu_mask(const nn_call *c, int64_t first) {
    const bool relu = NN_ATTR(batch_norm, c)->activation == NN_RELU;
    return run_of(&c->output[0], relu ? c->output[0].data : NULL, first);
}

static void sums_task(void *context, int64_t task) {
    const job *j = context;
    const nn_call *c = j->c;
    const int64_t first = first_of(j, task);
    sum_gradients(count_of(j, task), j->channels, run_of(&c->output[0], c->grad->output[0], first), relu_mask(c, first),
                  run_of(&c->input[0], c->input[0].data, first), c->saved, j->sums + 2 * task * j->channels);
}

/* Parameters' gradients are of this process's pixels alone: gradients are summed over processes later. */
static void finish_parameters(void *context, int64_t k) {
    const job *j = context;
    const nn_call *c = j->c;
    const double inverse = c->saved[j->channels + k];
    float *dgamma = c->grad->input[2], *dbeta = c->grad->input[3];
    double sums[2];
    total(j, k, sums);
    if (dgamma) dgamma[k] = (float)((c->grad->accumulate[2] ? dgamma[k] : 0) + sums[1] * inverse);
    if (dbeta) dbeta[k] = (float)((c->grad->accumulate[3] ? dbeta[k] : 0) + sums[0]);
}

/* dx = scale (g - mean - (x - m) by): mean is the mean of g, by the mean of g (x - m) over the variance. */
static void finish_sums(void *context, int64_t k) {
    const job *j = context;
    const nn_call *c = j->c;
    const float *gamma = c->input[2].data;
    const double inverse = c->saved[j->channels + k];
    double sums[2];
    total(j, k, sums);
    const bool batch = c->training && j->pixels;
    j->scale[k] = (float)(gamma[k] * inverse);
    j->mean[k] = batch ? (float)(sums[0] / j->count) : 0;
    j->by[k] = batch ? (float)(sums[1] * inverse * inverse / j->count) : 0;
}

#define INPUT_GRAD(name, gradient, before)                                                                             \
    NN_CLONES static void name(const job *j, int64_t n, run dy, run y, run x, run dx) {                                \
        const float *const restrict m = j->c->saved, *const restrict mean = j->mean, *const restrict by = j->by;       \
        const float *const restrict scale = j->scale;                                                                  \
        for (int64_t p = 0; p < n; p++) {                                                                              \
            const float *const d = dy.x + p * dy.stride, *const mask = y.x + p * y.stride;                             \
            const float *const from = x.x + p * x.stride;                                                              \
            float *const restrict to = dx.x + p * dx.stride;                                                           \
            (void)mask;                                                                                                \
            for (int64_t k = 0; k < j->channels; k++) {                                                                \
                const float g = gradient;                                                                              \
                to[k] = before((g - mean[k]) - (from[k] - m[k]) * by[k]) * scale[k];                                   \
            }                                                                                                          \
        }                                                                                                              \
    }
INPUT_GRAD(plain_input_grad, d[k], )
INPUT_GRAD(plain_add_input_grad, d[k], to[k] +)
INPUT_GRAD(relu_input_grad, mask[k] > 0 ? d[k] : 0, )
INPUT_GRAD(relu_add_input_grad, mask[k] > 0 ? d[k] : 0, to[k] +)

/* Adds g to dr, or replaces it; y NULL: there is no relu. */
NN_CLONES
static void residual_grad(int64_t n, int64_t channels, run dy, run y, run dr, bool add) {
    for (int64_t p = 0; p < n; p++) {
        const float *const d = dy.x + p * dy.stride, *const mask = y.x ? y.x + p * y.stride : NULL;
        float *const restrict to = dr.x + p * dr.stride;
        for (int64_t k = 0; mask && add && k < channels; k++) to[k] += mask[k] > 0 ? d[k] : 0;
        for (int64_t k = 0; mask && !add && k < channels; k++) to[k] = mask[k] > 0 ? d[k] : 0;
        for (int64_t k = 0; !mask && add && k < channels; k++) to[k] += d[k];
        if (!mask && !add) memcpy(to, d, (size_t)channels * sizeof *to);
    }
}

/* x and residual may be one value, with one gradient. So the residual's part is added second. */
static void grad_task(void *context, int64_t task) {
    const job *j = context;
    const nn_call *c = j->c;
    const int64_t first = first_of(j, task), n = count_of(j, task);
    const bool relu = NN_ATTR(batch_norm, c)->activation == NN_RELU;
    const run dy = run_of(&c->output[0], c->grad->output[0], first), mask = relu_mask(c, first), y = relu ? mask : dy;
    const run x = run_of(&c->input[0], c->input[0].data, first), dx = run_of(&c->input[0], c->grad->input[0], first);
    const run dr = run_of(&c->input[1], c->grad->input[1], first);
    if (dx.x) {
        (c->grad->accumulate[0] ? (relu ? relu_add_input_grad : plain_add_input_grad)
                                : (relu ? relu_input_grad : plain_input_grad))(j, n, dy, y, x, dx);
    }
    if (dr.x) residual_grad(n, j->channels, dy, mask, dr, c->grad->accumulate[1]);
}

static void batch_norm_backward(const nn_call *c) {
    job j = job_of(c);
    nn_parallel(c->pool, j.tasks, sums_task, &j);
    nn_parallel(c->pool, j.channels, finish_parameters, &j);
    add_up(&j);
    nn_parallel(c->pool, j.channels, finish_sums, &j);
    if (c->grad->input[0] || c->grad->input[1]) nn_parallel(c->pool, j.tasks, grad_task, &j);
}

const nn_kernels nn_cpu_batch_norm = {
    .forward = batch_norm_forward, .backward = batch_norm_backward, .workspace = batch_norm_workspace};
