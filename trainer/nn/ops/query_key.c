/* Queries and keys as attention takes them, from x = [q | k | v]. Each head of q and k, h = x r with r = 1 / sqrt(mean(x^2)
 * + eps), is normalised and multiplied by a gain (Henry et al. 2020), then rotated by its position p (Su et al. 2021):
 *     y_i = n_i cos(p f_i) - n_(i+m) sin(p f_i),   y_(i+m) = n_(i+m) cos(p f_i) + n_i sin(p f_i)
 * for i < m = size / 2, with f_i = base^(-i / m) and n = gain h: numbers i and i + m are a pair, as in Hugging Face's Llama.
 * v is copied. The gradient of n is dy rotated back; the rest is as in ops/rms_norm.c, for each head.
 *
 * Inputs: x, positions or none, q_gain [size] or none: q is not normalised, k_gain likewise. Attributes: heads, kv_heads,
 * base (0 or less: nothing is rotated), eps. */
#include "core/error.h"
#include "nn/op.h"
#include "nn/ops/attributes.h"
#include "nn/ops/query_key.h"

#include <math.h>
#include <string.h>

static int check_positions(const nn_shape *x, const nn_shape *positions) {
    if (positions->ndim < 1 || nn_columns(positions) != 1) return adamod__refuse("positions must be a vector");
    if (positions->rows == x->rows && positions->dim[0] == x->dim[0]) return 0;
    return adamod__refuse("there are %lld positions for %lld rows of x, or of another symbol",
                          (long long)positions->dim[0], (long long)x->dim[0]);
}

static int query_key_shape(nn_node *node, const nn_shape *in, nn_shape *out) {
    const nn_shape *x = &in[QUERY_KEY_X];
    const nn_query_key_attributes *a = NN_ATTR(query_key, node);
    if (x->ndim != 2) return adamod__refuse("x must be a matrix");
    if (a->heads < 1 || a->kv_heads < 1 || x->dim[1] < 1 || x->dim[1] % (a->heads + 2 * a->kv_heads))
        return adamod__refuse("%lld columns do not divide into %d heads of q, and %d of each k and v",
                              (long long)x->dim[1], a->heads, a->kv_heads);
    const int64_t head = x->dim[1] / (a->heads + 2 * a->kv_heads);
    for (int k = QUERY_KEY_Q_GAIN; k <= QUERY_KEY_K_GAIN; k++) {
        if (node->input[k] >= 0 && (in[k].ndim != 1 || in[k].rows || in[k].dim[0] != head))
            return adamod__refuse("%s must be a vector of %lld, the size of a head", node->op->inputs[k],
                                  (long long)head);
    }
    if (a->base > 0 && head % 2)
        return adamod__refuse("heads of %lld columns have no pairs to rotate", (long long)head);
    if (a->base > 0 && node->input[QUERY_KEY_POSITIONS] < 0) return adamod__refuse("rotation wants positions");
    *out = *x;
    for (int k = 0; k < 4; k++) node->backward_needs |= 1u << k;
    return node->input[QUERY_KEY_POSITIONS] < 0 ? 0 : check_positions(x, &in[QUERY_KEY_POSITIONS]);
}

/* One head of one row. */
typedef struct head {
    const float *x, *gain; /* gain NULL: there is no norm */
    int64_t size, at;      /* of x's first number */
    double position, base, eps;
} head;

static head head_of(const nn_call *c, int64_t row, int64_t h) {
    const nn_query_key_attributes *a = NN_ATTR(query_key, c);
    const int64_t size = nn_query_key_size(c), at = row * c->output[0].cols + h * size;
    const int32_t *positions = c->input[QUERY_KEY_POSITIONS].data;
    return (head){.x = (const float *)c->input[QUERY_KEY_X].data + at,
                  .gain = c->input[h < a->heads ? QUERY_KEY_Q_GAIN : QUERY_KEY_K_GAIN].data,
                  .size = size,
                  .at = at,
                  .position = positions ? positions[row] : 0,
                  .base = a->base,
                  .eps = a->eps};
}

static double scale_of(const head *h) {
    double squares = 0;
    for (int64_t j = 0; j < h->size; j++) squares += (double)h->x[j] * (double)h->x[j];
    return h->gain ? 1 / sqrt(squares / (double)h->size + h->eps) : 1;
}

/* Rotates number j of n, or back if sign is -1. */
static double rotated(const head *h, const double *n, int64_t j, double sign) {
    if (!(h->base > 0)) return n[j];
    const int64_t half = h->size / 2, i = j < half ? j : j - half;
    const double angle = sign * h->position * pow(h->base, -(double)i / (double)half);
    return j < half ? n[j] * cos(angle) - n[j + half] * sin(angle) : n[j] * cos(angle) + n[j - half] * sin(angle);
}

static void query_key_forward(const nn_call *c) {
    const nn_query_key_attributes *a = NN_ATTR(query_key, c);
    double *n = (double *)(void *)c->workspace;
    for (int64_t row = 0; row < c->output[0].rows; row++) {
        for (int64_t k = 0; k < a->heads + a->kv_heads; k++) {
            const head h = head_of(c, row, k);
            const double r = scale_of(&h);
            float *y = (float *)c->output[0].data + h.at;
            for (int64_t j = 0; j < h.size; j++) n[j] = (double)h.x[j] * r * (h.gain ? (double)h.gain[j] : 1);
            for (int64_t j = 0; j < h.size; j++) y[j] = (float)rotated(&h, n, j, 1);
        }
        const head v = head_of(c, row, a->heads + a->kv_heads);
        memcpy((float *)c->output[0].data + v.at, v.x, (size_t)(a->kv_heads * v.size) * sizeof(float));
    }
}

static float sum(float before, bool add, double x) { return (float)((add ? (double)before : 0) + x); }

/* gain_sums receives what the head adds to its gain's gradient. */
static void head_backward(const nn_call *c, const head *h, double *dy, double *gain_sums) {
    const double r = scale_of(h);
    float *dx = c->grad->input[QUERY_KEY_X] ? c->grad->input[QUERY_KEY_X] + h->at : NULL;
    double mean = 0;
    for (int64_t j = 0; j < h->size; j++) dy[j] = (double)c->grad->output[0][h->at + j];
    for (int64_t j = 0; j < h->size; j++) dy[h->size + j] = rotated(h, dy, j, -1);
    dy += h->size;
    for (int64_t j = 0; h->gain && j < h->size; j++) {
        const double dy_h = dy[j] * (double)h->x[j] * r;
        gain_sums[j] += dy_h;
        mean += (double)h->gain[j] * dy_h / (double)h->size;
    }
    for (int64_t j = 0; dx && j < h->size; j++) {
        const double d = h->gain ? r * ((double)h->gain[j] * dy[j] - (double)h->x[j] * r * mean) : dy[j];
        dx[j] = sum(dx[j], c->grad->accumulate[QUERY_KEY_X], d);
    }
}

/* The workspace: sums of the gains' gradients, then two rows of a head. */
static void query_key_backward(const nn_call *c) {
    const nn_query_key_attributes *a = NN_ATTR(query_key, c);
    const int64_t size = nn_query_key_size(c);
    double *gains = (double *)(void *)c->workspace;
    float *dx = c->grad->input[QUERY_KEY_X];
    for (int64_t j = 0; j < 2 * size; j++) gains[j] = 0;
    for (int64_t row = 0; row < c->output[0].rows; row++) {
        for (int64_t k = 0; k < a->heads + a->kv_heads; k++) {
            const head h = head_of(c, row, k);
            head_backward(c, &h, gains + 2 * size, gains + (k < a->heads ? 0 : size));
        }
        const head v = head_of(c, row, a->heads + a->kv_heads);
        for (int64_t i = v.at; dx && i < v.at + a->kv_heads * size; i++)
            dx[i] = sum(dx[i], c->grad->accumulate[QUERY_KEY_X], (double)c->grad->output[0][i]);
    }
    for (int k = 0; k < 2; k++) {
        float *to = c->grad->input[QUERY_KEY_Q_GAIN + k];
        for (int64_t j = 0; to && j < size; j++)
            to[j] = sum(to[j], c->grad->accumulate[QUERY_KEY_Q_GAIN + k], gains[k * size + j]);
    }
}

static size_t query_key_workspace(const nn_call *c) { return 8 * (size_t)nn_query_key_size(c); }

const nn_op nn_op_query_key = {
    .name = "query_key",
    .inputs = {"x", "positions", "q_gain", "k_gain"},
    .indices = 1u << QUERY_KEY_POSITIONS,
    .norms = 1u << QUERY_KEY_Q_GAIN | 1u << QUERY_KEY_K_GAIN,
    .attributes_size = sizeof(nn_query_key_attributes),
    .shape = query_key_shape,
    .ref = {.forward = query_key_forward, .backward = query_key_backward, .workspace = query_key_workspace},
    .in_place = 1u << QUERY_KEY_X,
};

nn_value nn_query_key(nn_graph *g, nn_value x, nn_value positions, nn_value q_gain, nn_value k_gain, int heads,
                      int kv_heads, double base, double eps) {
    return nn_add_node(g, &nn_op_query_key, 4, (nn_value[]){x, positions, q_gain, k_gain},
                       &(nn_query_key_attributes){.base = base, .eps = eps, .heads = heads, .kv_heads = kv_heads});
}
