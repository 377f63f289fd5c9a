/* Op tests: see opcheck.h.
 *
 * How far may a result be off? u = 2^-24 is the rounding of f32.
 *
 * Gradients of ref. With y the outputs at x and d(h) = y(x + h) - y(x - h), the derivative is
 *     near = (8 d(h) - d(2h)) / 12h,   its error h^4 / 30 times the fifth derivative, which
 *     far  = (8 d(2h) - d(4h)) / 24h   has sixteen times: the error of near is about (near - far) / 15.
 * ref computes in double but stores f32, so each stored y is off by up to u |y|; these errors are independent, so
 * they add up as the root of the sum of squares. x is a multiple of 2^-16, so that x + h is exact. The gradient
 * itself may come from f32 that forward saved: 16 u of the largest. Where the sum of all that is no small number (a
 * kink of relu within the step) nothing is concluded; that must be rare.
 *
 * Kernels against ref. A sum of n terms of random sign and size t is about sqrt(n) t; its rounding error in f32 is,
 * errors being independent, about sqrt(n) u times the sum of sizes, n t: that is n u of the sum. So a result may be
 * off by (8 + n) u times its size, where sums that happen to cancel count as the typical size of the array. Data are
 * of size one: 0.1 keeps an array that ought to be 0 from asking for exact zeros. */
#include "opcheck.h"
#include "core/error.h"
#include "values.h"
#include "support/random.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const double U = 0x1p-24, U_BF16 = 0x1p-8, STEP = 0x1p-8;

const opcheck *opcheck_current;
size_t opcheck_saved_bytes;

/* To nearest, ties to even; not for NaN. */
float opcheck_to_bf16(float x) {
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    bits = (bits + 0x7fffu + (bits >> 16 & 1)) & 0xffff0000u;
    memcpy(&x, &bits, sizeof x);
    return x;
}

enum { GUARD = 64, MAX_THREADS = 4, EXTRA_ROWS = 5 };

/* ---- memory that notices ---- */

typedef struct block {
    void *data;
    size_t bytes;
} block;

static block opcheck_alloc(size_t bytes) {
    block b = {.bytes = bytes};
    if (posix_memalign(&b.data, 64, bytes + GUARD)) abort();
    memset(b.data, 0xff, bytes);
    memset((char *)b.data + bytes, 0xa5, GUARD);
    return b;
}

static void opcheck_poison(block b) {
    if (b.data) memset(b.data, 0xff, b.bytes);
}

static bool opcheck_intact(block b) {
    for (int i = 0; b.data && i < GUARD; i++) {
        if (((unsigned char *)b.data)[b.bytes + (size_t)i] != 0xa5) return false;
    }
    return true;
}

/* ---- an op with all its memory ---- */

typedef struct op_instance {
    const opcheck *o;
    nn_node node;
    nn_call call; /* as forward is given it */
    nn_gradients no_grad;
    nn_fused fused;
    nn_sync sync;
    double step; /* of the inputs' numbers; 0: any */
    int64_t count[NN_MAX_INPUTS], n_out[NN_MAX_OUTPUTS], out_capacity[NN_MAX_OUTPUTS];
    nn_shape input_shape[NN_MAX_INPUTS], out_shape[NN_MAX_OUTPUTS];
    block input[NN_MAX_INPUTS], grad[NN_MAX_INPUTS], unneeded[NN_MAX_INPUTS];
    block before[NN_MAX_INPUTS]; /* what gradients hold before a pass that adds to them */
    block out[NN_MAX_OUTPUTS], out_grad[NN_MAX_OUTPUTS], out_unneeded[NN_MAX_OUTPUTS], saved, workspace;
} op_instance;

static int64_t opcheck_count(const nn_shape *s) {
    int64_t n = s->ndim ? 1 : 0;
    for (int d = 0; d < s->ndim; d++) n *= s->dim[d];
    return n;
}

/* Numbers from pixel to pixel, and in all. */
static int64_t opcheck_stride(const nn_shape *s, int64_t gap) { return nn_last_dimension(s) + gap; }
static int64_t opcheck_spread(const nn_shape *s, int64_t gap) {
    return gap ? opcheck_count(s) / nn_last_dimension(s) * opcheck_stride(s, gap) : opcheck_count(s);
}

int64_t opcheck_numbers(const nn_array *a) {
    const int64_t n = a->rows * a->cols;
    return a->shape && a->stride > nn_channels(a) ? n / nn_channels(a) * a->stride : n;
}

static bool opcheck_wants_grad(const opcheck *o, int i) {
    return o->input[i].shape.ndim && o->input[i].type == NN_F32 && !o->input[i].no_grad;
}

static void opcheck_capacities(const opcheck *o, nn_shape *shapes) {
    for (int i = 0; i < o->n_inputs; i++) {
        shapes[i] = o->input[i].shape;
        if (shapes[i].ndim && shapes[i].rows) shapes[i].dim[0] += EXTRA_ROWS;
    }
}

static int opcheck_derive(const opcheck *o, nn_node *node, nn_shape *outputs) {
    nn_shape shapes[NN_MAX_INPUTS] = {{0}};
    opcheck_capacities(o, shapes);
    *node = (nn_node){.op = o->op, .n_inputs = o->n_inputs, .attributes = (void *)(uintptr_t)&o->attributes};
    for (int i = 0; i < o->n_inputs; i++) node->input[i] = shapes[i].ndim ? i : -1;
    memset(outputs, 0, NN_MAX_OUTPUTS * sizeof *outputs);
    return o->op->shape(node, shapes, outputs);
}

const char *opcheck_shape(const opcheck *o) {
    nn_node node;
    nn_shape outputs[NN_MAX_OUTPUTS];
    return opcheck_derive(o, &node, outputs) ? adamod__last_message() : NULL;
}

static nn_array opcheck_array(void *data, const nn_shape *s, int64_t rows, int64_t gap) {
    return (nn_array){.data = data, .rows = rows, .cols = nn_columns(s), .stride = opcheck_stride(s, gap), .shape = s};
}

/* Random numbers, or those given; a step > 0 makes them multiples of it. */
static void opcheck_fill(op_instance *r, int i) {
    const opcheck_input *in = &r->o->input[i];
    double step = r->step;
    float *x = r->input[i].data;
    if (in->step > 0) step = in->step;
    if (in->data) memcpy(x, in->data, r->input[i].bytes);
    for (int64_t k = 0; in->type == NN_F32 && k < r->count[i]; k++) {
        const double scale = in->scale != 0 ? in->scale : 1;
        if (!in->data) x[k] = (float)(in->mean + scale * nn_normal(nn_key(r->o->seed, 1, (uint64_t)i), (uint64_t)k));
        if (step > 0) x[k] = (float)(rint(x[k] / step) * step);
        if (r->o->bf16 || r->o->mixed) x[k] = opcheck_to_bf16(x[k]);
    }
}

static void opcheck_fill_weights(op_instance *r, int out) {
    float *w = r->out_grad[out].data;
    for (int64_t k = 0; k < r->n_out[out]; k++) {
        const bool has = !r->o->weighted || k < r->o->weighted;
        w[k] = has ? (float)nn_normal(nn_key(r->o->seed, 2, (uint64_t)out), (uint64_t)k) : 0;
        if ((r->o->bf16 || r->o->mixed) && !(r->o->op->full_outputs >> out & 1)) w[k] = opcheck_to_bf16(w[k]);
    }
}

static void opcheck_instance_grad(op_instance *r, int i) {
    r->grad[i] = opcheck_alloc((size_t)r->count[i] * 4);
    r->before[i] = opcheck_alloc((size_t)r->count[i] * 4);
    float *before = r->before[i].data;
    const uint64_t key = nn_key(r->o->seed, 4, (uint64_t)i);
    for (int64_t k = 0; k < r->count[i]; k++) {
        before[k] = (float)nn_normal(key, (uint64_t)k);
        if (r->o->bf16) before[k] = opcheck_to_bf16(before[k]);
    }
}

static void opcheck_instance_inputs(op_instance *r) {
    const opcheck *o = r->o;
    for (int i = 0; i < o->n_inputs; i++) {
        const nn_shape *s = &o->input[i].shape;
        if (!s->ndim) continue;
        r->count[i] = opcheck_spread(s, o->input[i].gap);
        r->input[i] = opcheck_alloc((size_t)r->count[i] * 4);
        r->unneeded[i] = opcheck_alloc((size_t)r->count[i] * 4);
        opcheck_fill(r, i);
        if (opcheck_wants_grad(o, i)) opcheck_instance_grad(r, i);
        r->input_shape[i] = *s;
        r->call.input[i] = opcheck_array(r->input[i].data, &r->input_shape[i], s->dim[0], o->input[i].gap);
    }
}

/* Whether a gradient flows back from an output. */
static bool opcheck_has_grad(const op_instance *r, int out) {
    return r->n_out[out] && !r->o->op->aliases[out] && !(r->o->op->constant_outputs >> out & 1);
}

static void opcheck_instance_output(op_instance *r, int i) {
    const opcheck *o = r->o;
    nn_shape *out = &r->out_shape[i];
    if (!out->ndim) return;
    r->out_capacity[i] = out->dim[0];
    for (int k = 0; out->rows && k < o->n_inputs; k++) {
        if (o->input[k].shape.ndim && o->input[k].shape.rows == out->rows) out->dim[0] = o->input[k].shape.dim[0];
    }
    const int64_t gap = i == 0 ? o->gap : 0;
    r->n_out[i] = opcheck_spread(out, gap);
    const size_t bytes = (size_t)r->n_out[i] * 4;
    r->out[i] = opcheck_alloc(bytes);
    r->out_unneeded[i] = opcheck_alloc(bytes);
    if (opcheck_has_grad(r, i)) r->out_grad[i] = opcheck_alloc(bytes), opcheck_fill_weights(r, i);
    const int alias = o->op->aliases[i];
    r->call.output[i] = opcheck_array(alias ? r->input[alias - 1].data : r->out[i].data, out, out->dim[0], gap);
}

/* Everything but the workspace, which is the kernel's. */
static bool opcheck_instance_make(op_instance *r, const opcheck *o, double step) {
    *r = (op_instance){.o = o, .step = step};
    if (opcheck_derive(o, &r->node, r->out_shape)) {
        printf("opcheck: %s: %s\n", o->op->name, adamod__last_message());
        return false;
    }
    r->call = (nn_call){
        .attributes = r->node.attributes, .training = o->training, .mixed = o->mixed, .key = nn_key(o->seed, 3, 0)};
    r->call.grad = &r->no_grad;
    r->call.fused = &r->fused;
    r->call.sync = &r->sync;
    opcheck_instance_inputs(r);
    for (int i = 0; i < NN_MAX_OUTPUTS; i++) opcheck_instance_output(r, i);
    if (r->node.saved.ndim) r->saved = opcheck_alloc((size_t)opcheck_count(&r->node.saved) * 4);
    opcheck_current = o;
    opcheck_saved_bytes = r->saved.bytes;
    r->call.saved = r->saved.data;
    return true;
}

static void opcheck_instance_free(op_instance *r) {
    for (int i = 0; i < NN_MAX_INPUTS; i++) {
        free(r->input[i].data);
        free(r->grad[i].data);
        free(r->before[i].data);
        free(r->unneeded[i].data);
    }
    for (int i = 0; i < NN_MAX_OUTPUTS; i++) {
        free(r->out[i].data);
        free(r->out_grad[i].data);
        free(r->out_unneeded[i].data);
    }
    free(r->saved.data);
    free(r->workspace.data);
}

static bool opcheck_instance_intact(const op_instance *r) {
    bool ok = true;
    for (int i = 0; i < NN_MAX_INPUTS; i++) {
        ok = ok && opcheck_intact(r->input[i]) && opcheck_intact(r->grad[i]) && opcheck_intact(r->unneeded[i]);
    }
    for (int i = 0; i < NN_MAX_OUTPUTS; i++) {
        ok = ok && opcheck_intact(r->out[i]) && opcheck_intact(r->out_grad[i]) && opcheck_intact(r->out_unneeded[i]);
    }
    ok = ok && opcheck_intact(r->saved) && opcheck_intact(r->workspace);
    if (!ok) printf("opcheck: %s wrote behind the end of an array\n", r->o->op->name);
    return ok;
}

/* ---- calls ---- */

/* The call of a backward pass for the inputs in the set wanted, adding to the gradients of those in the set added. */
static nn_call opcheck_backward_call(const op_instance *r, unsigned wanted, unsigned added, nn_gradients *grad) {
    nn_call c = r->call;
    *grad = (nn_gradients){0};
    c.grad = grad;
    for (int i = 0; i < r->o->n_inputs; i++) {
        if (c.input[i].data && !(r->node.backward_needs & 1u << i)) c.input[i].data = r->unneeded[i].data;
        if (wanted & 1u << i) grad->input[i] = r->grad[i].data;
        grad->accumulate[i] = added & 1u << i;
    }
    for (int i = 0; i < NN_MAX_OUTPUTS; i++) {
        if (!(r->node.backward_needs & NN_NEEDS_OUTPUT << i)) c.output[i].data = r->out_unneeded[i].data;
        grad->output[i] = r->out_grad[i].data;
    }
    return c;
}

/* The call with the rows of the capacity. */
static nn_call opcheck_full_call(const op_instance *r, nn_call c) {
    for (int i = 0; i < r->o->n_inputs; i++) {
        if (c.input[i].data && r->o->input[i].shape.rows) c.input[i].rows += EXTRA_ROWS;
    }
    for (int i = 0; i < NN_MAX_OUTPUTS; i++) c.output[i].rows = r->out_capacity[i];
    return c;
}

/* Room for what the op saves, and more if the kernels ask for it. */
static void opcheck_saved(op_instance *r, const nn_kernels *k) {
    const nn_call c = opcheck_full_call(r, r->call);
    const size_t extra = k->extra_saved ? k->extra_saved(&c) : 0;
    if (!r->node.saved.ndim) return;
    free(r->saved.data);
    r->saved = opcheck_alloc(((size_t)opcheck_count(&r->node.saved) + extra) * 4);
    r->call.saved = r->saved.data;
}

/* Makes the workspace as a plan does: for the capacity, forward and backward. */
static void opcheck_workspace(op_instance *r, const nn_kernels *k) {
    size_t most = 0;
    for (int backward = 0; k->workspace && backward < 2; backward++) {
        nn_gradients grad;
        const nn_call c = opcheck_full_call(r, backward ? opcheck_backward_call(r, ~0u, 0, &grad) : r->call);
        const size_t n = k->workspace(&c);
        if (n > most) most = n;
    }
    free(r->workspace.data);
    r->workspace = opcheck_alloc(most * sizeof(float));
    r->call.workspace = r->workspace.data;
    opcheck_saved(r, k);
}

/* Inputs that are written are made anew first, and found in the outputs after. */
static void opcheck_forward(op_instance *r, const nn_kernels *k, adamod_pool *pool) {
    for (int i = 0; i < NN_MAX_OUTPUTS; i++) {
        opcheck_poison(r->out[i]);
        if (r->n_out[i] && r->o->op->aliases[i]) opcheck_fill(r, r->o->op->aliases[i] - 1);
    }
    opcheck_poison(r->saved);
    opcheck_poison(r->workspace);
    r->call.pool = pool;
    k->forward(&r->call);
    for (int i = 0; i < NN_MAX_OUTPUTS; i++) {
        if (r->n_out[i] && r->o->op->aliases[i]) memcpy(r->out[i].data, r->call.output[i].data, r->out[i].bytes);
    }
}

static void opcheck_backward(op_instance *r, const nn_kernels *kernels, unsigned wanted, unsigned added) {
    for (int i = 0; i < r->o->n_inputs; i++) {
        opcheck_poison(r->grad[i]);
        if (wanted & added & 1u << i) memcpy(r->grad[i].data, r->before[i].data, r->grad[i].bytes);
    }
    opcheck_poison(r->workspace);
    nn_gradients grad;
    const nn_call c = opcheck_backward_call(r, wanted, added, &grad);
    kernels->backward(&c);
}

static unsigned opcheck_all_grads(const opcheck *o) {
    unsigned set = 0;
    for (int i = 0; i < o->n_inputs; i++) set |= opcheck_wants_grad(o, i) ? 1u << i : 0;
    return set;
}

/* Whether number k of an array lies between its pixels. */
static bool opcheck_between(const nn_array *a, int64_t k) { return a->shape && k % a->stride >= nn_channels(a); }

/* ---- central differences ---- */

/* Outputs at x + STEP times 1, -1, 2, -2, 4, -4. */
typedef struct differences {
    float *y[6][NN_MAX_OUTPUTS];
} differences;

static void opcheck_evaluate(op_instance *r, int i, int64_t k, differences *d) {
    static const double at[6] = {1, -1, 2, -2, 4, -4};
    float *x = (float *)r->input[i].data + k;
    const float center = *x;
    for (int e = 0; e < 6; e++) {
        *x = (float)(center + at[e] * STEP);
        opcheck_forward(r, &r->o->op->ref, NULL);
        for (int o = 0; o < NN_MAX_OUTPUTS; o++) {
            if (r->out[o].bytes) memcpy(d->y[e][o], r->out[o].data, r->out[o].bytes);
        }
    }
    *x = center;
}

/* Adds one output's part of the derivative by near and by far steps, and of the square of the noise. */
static void opcheck_add_output(const op_instance *r, int out, const differences *d, double *near, double *far,
                               double *noise) {
    const float *weight = r->out_grad[out].data;
    for (int64_t k = 0; weight && k < r->n_out[out]; k++) {
        if (weight[k] == 0 || opcheck_between(&r->call.output[out], k)) continue;
        double y[6], largest = 0;
        for (int e = 0; e < 6; e++) {
            y[e] = d->y[e][out][k];
            largest = fmax(largest, fabs(y[e]));
        }
        const double d1 = y[0] - y[1], d2 = y[2] - y[3], d4 = y[4] - y[5];
        if (d1 == 0 && d2 == 0 && d4 == 0) continue;
        *near += weight[k] * (8 * d1 - d2) / (12 * STEP);
        *far += weight[k] * (8 * d2 - d4) / (24 * STEP);
        *noise += pow(weight[k] * U * largest * 18 / (12 * STEP), 2);
    }
}

/* The derivative of the loss, and how far it may be off. */
static double opcheck_numeric(const op_instance *r, const differences *d, double *tolerance) {
    double near = 0, far = 0, noise = 0;
    for (int out = 0; out < NN_MAX_OUTPUTS; out++) opcheck_add_output(r, out, d, &near, &far, &noise);
    *tolerance = 4 * sqrt(noise) + 2 * fabs(near - far) / 15;
    return near;
}

static double opcheck_largest(const nn_array *a, const float *x, int64_t n) {
    double most = 0;
    for (int64_t k = 0; k < n; k++) most = !opcheck_between(a, k) && fabs(x[k]) > most ? fabs(x[k]) : most;
    return most;
}

static bool opcheck_gradient_of(op_instance *r, int i, const float *grad, differences *d) {
    const double largest = opcheck_largest(&r->call.input[i], grad, r->count[i]);
    int64_t open = 0;
    for (int64_t k = 0; k < r->count[i]; k++) {
        double tolerance;
        if (opcheck_between(&r->call.input[i], k)) continue;
        opcheck_evaluate(r, i, k, d);
        const double numeric = opcheck_numeric(r, d, &tolerance);
        tolerance += 16 * U * largest;
        if (tolerance > 2e-3 * (1 + largest)) {
            open++;
        } else if (!(fabs(numeric - grad[k]) <= tolerance)) {
            printf("opcheck: %s: gradient of input %d at %lld is %.9g, by differences %.9g +- %.2g\n", r->o->op->name,
                   i, (long long)k, grad[k], numeric, tolerance);
            return false;
        }
    }
    if (4 * open > r->count[i]) {
        printf("opcheck: %s: input %d: differences are no help at %lld of %lld\n", r->o->op->name, i, (long long)open,
               (long long)r->count[i]);
    }
    return 4 * open <= r->count[i];
}

bool opcheck_gradients(const opcheck *o) {
    op_instance r;
    if (!opcheck_kernels(o, &o->op->ref) || !opcheck_instance_make(&r, o, 0x1p-16)) return false;
    differences d;
    for (int k = 0; k < 6 * NN_MAX_OUTPUTS; k++)
        d.y[k / NN_MAX_OUTPUTS][k % NN_MAX_OUTPUTS] = opcheck_alloc(r.out[k % NN_MAX_OUTPUTS].bytes).data;
    opcheck_workspace(&r, &o->op->ref);
    opcheck_forward(&r, &o->op->ref, NULL);
    opcheck_backward(&r, &o->op->ref, opcheck_all_grads(o), 0);
    bool ok = true;
    for (int i = 0; i < o->n_inputs; i++) {
        if (opcheck_wants_grad(o, i)) ok = opcheck_gradient_of(&r, i, r.grad[i].data, &d) && ok;
    }
    for (int k = 0; k < 6 * NN_MAX_OUTPUTS; k++) free(d.y[k / NN_MAX_OUTPUTS][k % NN_MAX_OUTPUTS]);
    ok = opcheck_instance_intact(&r) && ok;
    opcheck_instance_free(&r);
    return ok;
}

/* ---- kernels against ref ---- */

static double opcheck_typical(const nn_array *a, const float *x, int64_t n) {
    double sum = 0;
    int64_t count = 0;
    for (int64_t k = 0; k < n; k++) {
        if (opcheck_between(a, k)) continue;
        sum += (double)x[k] * x[k];
        count++;
    }
    return count ? sqrt(sum / (double)count) : 0;
}

/* Memory between pixels must be unchanged: as before, or NaN if nothing was written. */
static bool opcheck_untouched(const op_instance *r, const char *what, const float *got, const float *before,
                              int64_t k) {
    static const unsigned char nan[4] = {0xff, 0xff, 0xff, 0xff};
    /* A device that keeps bf16 has only the upper half. */
    const size_t from = r->o->bf16 ? 2 : 0;
    if (memcmp((const char *)&got[k] + from, (before ? (const char *)&before[k] : (const char *)nan) + from,
               4 - from) == 0)
        return true;
    printf("opcheck: %s: %s at %lld, between pixels, was written\n", r->o->op->name, what, (long long)k);
    return false;
}

/* got, less before (NULL: 0), against want, all of them laid out as a. */
static bool opcheck_compare(const op_instance *r, const char *what, const nn_array *a, const float *got,
                            const float *want, const float *before, int64_t n) {
    const double typical = opcheck_typical(a, want, n) + 0.1;
    const double rounded = r->o->bf16 ? 1 + r->o->rounded : r->o->mixed ? r->o->rounded : 0;
    const double rounding = (8 + r->o->longest_sum) * U + rounded * U_BF16;
    const double factor = (r->o->slack > 0 ? r->o->slack : 1) * rounding;
    for (int64_t k = 0; k < n; k++) {
        if (opcheck_between(a, k)) {
            if (!opcheck_untouched(r, what, got, before, k)) return false;
            continue;
        }
        const double b = before ? before[k] : 0, expected = b + want[k];
        if (isinf(expected) && got[k] == (float)expected) continue;
        const double stored = r->o->bf16 ? U_BF16 : 2 * U;
        const double tolerance = factor * (fabs(want[k]) + typical) + stored * (fabs(b) + fabs(expected));
        if (!(fabs(got[k] - expected) <= tolerance)) {
            printf("opcheck: %s: %s at %lld of %lld is %.9g, ref says %.9g +- %.2g\n", r->o->op->name, what,
                   (long long)k, (long long)n, got[k], expected, tolerance);
            return false;
        }
    }
    return true;
}

static bool opcheck_compare_grads(op_instance *r, const op_instance *ref, unsigned wanted, unsigned added) {
    bool ok = true;
    for (int i = 0; ok && i < r->o->n_inputs; i++) {
        if (!(wanted & 1u << i)) continue;
        char what[80];
        snprintf(what, sizeof what, "gradient of input %d (wanted %x, added to %x)", i, wanted, added);
        const float *before = (added & 1u << i) ? r->before[i].data : NULL;
        ok = opcheck_compare(r, what, &r->call.input[i], r->grad[i].data, ref->grad[i].data, before, r->count[i]);
    }
    return ok;
}

/* Every set of gradients wanted, added to none, all or every other of them. */
static bool opcheck_all_backward(op_instance *r, const op_instance *ref, const nn_kernels *kernels) {
    static const unsigned patterns[3] = {0, ~0u, 0xaaaaaaaau};
    const unsigned all = opcheck_all_grads(r->o);
    bool ok = true;
    for (unsigned wanted = all; ok && wanted; wanted = (wanted - 1) & all) {
        for (int p = 0; ok && p < 3; p++) {
            opcheck_backward(r, kernels, wanted, wanted & patterns[p]);
            ok = opcheck_compare_grads(r, ref, wanted, wanted & patterns[p]);
        }
    }
    return ok;
}

static bool opcheck_same(const op_instance *r, const char *what, int threads, block a, block b) {
    if (!a.data || memcmp(a.data, b.data, a.bytes) == 0) return true;
    printf("opcheck: %s: %s with %d threads is not what one computes\n", r->o->op->name, what, threads);
    return false;
}

/* one holds what one thread computed. */
static bool opcheck_threads(op_instance *r, op_instance *one, const nn_kernels *kernels, int threads) {
    const unsigned all = opcheck_all_grads(r->o);
    adamod_pool *pool = NULL;
    if (adamod_pool_create(&pool, threads)) return false;
    r->call.pool = pool;
    opcheck_workspace(r, kernels); /* which may depend on the number of threads */
    opcheck_forward(r, kernels, pool);
    bool ok = true;
    for (int i = 0; i < NN_MAX_OUTPUTS; i++) ok = opcheck_same(r, "an output", threads, r->out[i], one->out[i]) && ok;
    for (unsigned added = 0; kernels->backward && added < 2; added++) {
        opcheck_backward(r, kernels, all, added ? all : 0);
        opcheck_backward(one, kernels, all, added ? all : 0);
        for (int i = 0; i < r->o->n_inputs; i++) {
            ok = opcheck_same(r, "a gradient", threads, r->grad[i], one->grad[i]) && ok;
        }
    }
    adamod_pool_free(pool);
    return ok;
}

bool opcheck_kernels(const opcheck *o, const nn_kernels *kernels) {
    op_instance ref, one, r;
    if (!opcheck_instance_make(&ref, o, 0)) return false;
    opcheck_instance_make(&one, o, 0);
    opcheck_instance_make(&r, o, 0);
    opcheck_workspace(&ref, &o->op->ref);
    opcheck_workspace(&one, kernels);
    opcheck_workspace(&r, kernels);
    opcheck_forward(&ref, &o->op->ref, NULL);
    opcheck_forward(&one, kernels, NULL);
    bool ok = true;
    for (int i = 0; ok && i < NN_MAX_OUTPUTS; i++) {
        char what[32];
        snprintf(what, sizeof what, "output %d", i);
        ok = opcheck_compare(&one, what, &one.call.output[i], one.out[i].data, ref.out[i].data, NULL, one.n_out[i]);
    }
    if (ok && kernels->backward) {
        opcheck_backward(&ref, &o->op->ref, opcheck_all_grads(o), 0);
        ok = opcheck_all_backward(&one, &ref, kernels);
    }
    for (int threads = fast() ? 3 : 1; ok && threads <= (fast() ? 3 : MAX_THREADS); threads++)
        ok = opcheck_threads(&r, &one, kernels, threads);
    ok = opcheck_instance_intact(&ref) && opcheck_instance_intact(&one) && opcheck_instance_intact(&r) && ok;
    opcheck_instance_free(&ref);
    opcheck_instance_free(&one);
    opcheck_instance_free(&r);
    return ok;
}
