/* y = activation(z), z = gamma h + beta + residual, h = (x - m) scale, scale = 1 / sqrt(v + eps)  (Ioffe and Szegedy 2015).
 * With g the gradient of z:
 *     dx = gamma scale (g - mean(g) - h mean(g h)),   dgamma = sum of g h,   dbeta = sum of g,   dresidual = g,
 * means and sums over the pixels of a channel. Outside training m and v are constants: dx = gamma scale g.
 *
 * Inputs: x, residual or none, gamma, beta, mean, variance. Outputs: y, and mean and variance as this run leaves them.
 * Attributes: eps, momentum, activation, synced. saved is [2, channels]: m, then scale. relu's gradient follows from y. */
#include "core/error.h"
#include "nn/graph.h"
#include "nn/ops/attributes.h"
#include "nn/op.h"

#include <math.h>

static int batch_norm_shape(nn_node *node, const nn_shape *in, nn_shape *out) {
    const nn_shape *x = &in[0], *residual = &in[1];
    const nn_batch_norm_attributes *a = node->attributes;
    if (x->ndim != 2 && x->ndim != 4) return adamod__refuse("x must be images or a matrix");
    const int64_t channels = x->dim[x->ndim - 1];
    if (node->input[1] >= 0 && !nn_same_shape(x, residual)) return adamod__refuse("x and residual must have one shape");
    for (int i = 2; i < 6; i++) {
        if (in[i].ndim == 1 && !in[i].rows && in[i].dim[0] == channels) continue;
        return adamod__refuse("%s must be a vector of %lld, the channels of x", node->op->inputs[i],
                              (long long)channels);
    }
    if (a->activation != NN_LINEAR && a->activation != NN_RELU)
        return adamod__refuse("the activation must be linear or relu");
    if (!(a->eps > 0) || !(a->momentum >= 0 && a->momentum <= 1))
        return adamod__refuse("eps %g and momentum %g, expected eps > 0 and 0 <= momentum <= 1", a->eps, a->momentum);
    out[0] = *x;
    out[1] = in[4];
    out[2] = in[5];
    node->synced = a->synced;
    node->momentum = a->momentum;
    node->saved = (nn_shape){.ndim = 2, .dim = {2, channels}};
    node->backward_needs = 1u << 0 | 1u << 2;
    if (a->activation == NN_RELU) node->backward_needs |= NN_NEEDS_OUTPUT | 1u << 3; /* or computes z again */
    return 0;
}

/* The batch's mean and variance of a channel go to saved as mean and scale, and into the running ones. */
static void batch_moments(const nn_call *c, int64_t k) {
    const nn_array *x = &c->input[0];
    const int64_t n = nn_pixels(x);
    const float *at = (const float *)x->data + k;
    float *mean = c->output[1].data, *variance = c->output[2].data;
    double sum = 0, squares = 0;
    for (int64_t p = 0; p < n; p++) sum += at[p * x->stride];
    const double m = n ? sum / (double)n : 0;
    for (int64_t p = 0; p < n; p++) squares += (at[p * x->stride] - m) * (at[p * x->stride] - m);
    const double v = n ? squares / (double)n : 0, momentum = n ? NN_ATTR(batch_norm, c)->momentum : 0;
    c->saved[k] = (float)m;
    c->saved[nn_channels(x) + k] = (float)(1 / sqrt(v + NN_ATTR(batch_norm, c)->eps));
    const double added[2] = {momentum * m, momentum * squares / (double)(n > 1 ? n - 1 : 1)};
    if (c->sync->added) {
        c->sync->added[k] = added[0];
        c->sync->added[nn_channels(x) + k] = added[1];
    } else {
        mean[k] = nn_run(mean[k], momentum, added[0]);
        variance[k] = nn_run(variance[k], momentum, added[1]);
    }
}

static void batch_norm_forward(const nn_call *c) {
    const nn_array *x = &c->input[0], *r = &c->input[1], *y = &c->output[0];
    const float *gamma = c->input[2].data, *beta = c->input[3].data;
    const int64_t channels = nn_channels(x);
    for (int64_t k = 0; k < channels; k++) {
        if (c->training) {
            batch_moments(c, k);
        } else {
            c->saved[k] = ((const float *)c->input[4].data)[k];
            c->saved[channels + k] =
                (float)(1 / sqrt((double)((const float *)c->input[5].data)[k] + NN_ATTR(batch_norm, c)->eps));
        }
        for (int64_t p = 0; p < nn_pixels(x); p++) {
            const double h =
                ((double)((const float *)x->data)[p * x->stride + k] - c->saved[k]) * c->saved[channels + k];
            const double z = gamma[k] * h + beta[k] + (r->data ? ((const float *)r->data)[p * r->stride + k] : 0.0);
            ((float *)y->data)[p * y->stride + k] =
                (float)(NN_ATTR(batch_norm, c)->activation == NN_RELU && z < 0 ? 0 : z);
        }
    }
}

/* The gradient of z, at pixel p. */
static double grad_at(const nn_call *c, int64_t p, int64_t k) {
    const int64_t at = p * c->output[0].stride + k;
    const bool off = NN_ATTR(batch_norm, c)->activation == NN_RELU && !(((const float *)c->output[0].data)[at] > 0);
    return off ? 0 : c->grad->output[0][at];
}

static double h_at(const nn_call *c, int64_t p, int64_t k) {
    const nn_array *x = &c->input[0];
    return ((double)((const float *)x->data)[p * x->stride + k] - c->saved[k]) * c->saved[nn_channels(x) + k];
}

/* x and residual may be one value, with one gradient. So a number's dx is complete before its residual's gradient
 * begins. */
static void channel_grad(const nn_call *c, int64_t k, double sum_g, double sum_gh) {
    const nn_array *x = &c->input[0], *r = &c->input[1];
    const int64_t n = nn_pixels(x);
    const double factor = (double)((const float *)c->input[2].data)[k] * c->saved[nn_channels(x) + k];
    for (int64_t p = 0; p < n; p++) {
        const double g = grad_at(c, p, k);
        const double centered = c->training ? g - (sum_g + h_at(c, p, k) * sum_gh) / (double)n : g;
        if (c->grad->input[0]) {
            float *const dx = &c->grad->input[0][p * x->stride + k];
            *dx = (float)((c->grad->accumulate[0] ? *dx : 0) + factor * centered);
        }
        if (c->grad->input[1]) {
            float *const dr = &c->grad->input[1][p * r->stride + k];
            *dr = (float)((c->grad->accumulate[1] ? *dr : 0) + g);
        }
    }
}

static void batch_norm_backward(const nn_call *c) {
    float *dgamma = c->grad->input[2], *dbeta = c->grad->input[3];
    for (int64_t k = 0; k < nn_channels(&c->input[0]); k++) {
        double sum_g = 0, sum_gh = 0;
        for (int64_t p = 0; p < nn_pixels(&c->input[0]); p++) {
            sum_g += grad_at(c, p, k);
            sum_gh += grad_at(c, p, k) * h_at(c, p, k);
        }
        if (dgamma) dgamma[k] = (float)((c->grad->accumulate[2] ? dgamma[k] : 0) + sum_gh);
        if (dbeta) dbeta[k] = (float)((c->grad->accumulate[3] ? dbeta[k] : 0) + sum_g);
        channel_grad(c, k, sum_g, sum_gh);
    }
}

const nn_op nn_op_batch_norm = {
    .name = "batch_norm",
    .inputs = {"x", "residual", "gamma", "beta", "mean", "variance"},
    .norms = 1u << 2 | 1u << 3,
    .attributes_size = sizeof(nn_batch_norm_attributes),
    .shape = batch_norm_shape,
    .ref = {.forward = batch_norm_forward, .backward = batch_norm_backward},
    .aliases = {0, 1 + 4, 1 + 5},
    .running = 1u << 1 | 1u << 2,
    .full_inputs = 1u << 2 | 1u << 3 | 1u << 4 | 1u << 5,
    .strided_inputs = 1u << 0 | 1u << 1,
    .strided_outputs = 1u << 0,
};

nn_value nn_batch_norm(nn_graph *g, nn_value x, nn_value residual, nn_value gamma, nn_value beta, nn_value mean,
                       nn_value variance, double eps, double momentum, nn_activation activation) {
    return nn_add_node(g, &nn_op_batch_norm, 6, (nn_value[]){x, residual, gamma, beta, mean, variance},
                       &(nn_batch_norm_attributes){
                           .eps = eps, .momentum = momentum, .activation = activation, .synced = g->synced_norms});
}

void nn_sync_norms(nn_graph *g) { g->synced_norms = true; }
