/* Attention within sequences: for each head, y_j = sum_l m_jl p_jl v_l with p_j = softmax_l(q_j . k_l / sqrt(size)) and
 * m_jl = 0 or 1 / (1 - dropout). Saved, [rows, heads, 2]: the largest score, and 1 / sum_l exp(score_l - largest).
 *
 * Inputs: q or [q | k | v], [k | v] or none, ranges of the queries, ranges of the keys. Attributes: heads, kv_heads, causal,
 * dropout. Rows in no range have output and gradient 0. Ranges of queries do not overlap; ranges of keys may (several
 * hypotheses of one source), but not in a backward pass of a backend other than ref. */
#include "core/error.h"
#include "nn/ops/attention.h"
#include "nn/op.h"

#include <string.h>

static int attention_shape(nn_node *node, const nn_shape *in, nn_shape *out) {
    const nn_shape *q = &in[ATTENTION_Q], *kv = &in[ATTENTION_KV];
    const bool packed = node->input[ATTENTION_KV] < 0;
    const int heads = NN_ATTR(attention, node)->heads, kv_heads = nn_attention_kv_heads(NN_ATTR(attention, node));
    if (heads < 1 || kv_heads < 1 || heads % kv_heads)
        return adamod__refuse("%d heads of keys and values do not divide %d heads", kv_heads, heads);
    const int group = heads / kv_heads;
    if (q->ndim != 2 || (!packed && kv->ndim != 2)) return adamod__refuse("q and kv must be matrices");
    if (packed && q->dim[1] % (group + 2))
        return adamod__refuse("q has %lld columns, not %d equal parts, and there is no kv", (long long)q->dim[1],
                              group + 2);
    const int64_t d_k = packed ? q->dim[1] / (group + 2) : kv->dim[1] / 2, d = group * d_k;
    /* Beside a cache, q may still be [q | k | v]; then there is no gradient. */
    if (!packed && (kv->dim[1] != 2 * d_k || (q->dim[1] != d && q->dim[1] != d + 2 * d_k)))
        return adamod__refuse("kv has %lld columns, q wants %lld", (long long)kv->dim[1], 2LL * q->dim[1] / group);
    if (d < 1 || d % heads) return adamod__refuse("%lld columns do not divide into %d heads", (long long)d, heads);
    const nn_shape *a = &in[ATTENTION_Q_RANGES], *b = &in[ATTENTION_K_RANGES];
    if (a->ndim != 2 || a->dim[1] != 2 || b->ndim != 2 || b->dim[1] != 2)
        return adamod__refuse("ranges must be [sequences, 2]");
    if (a->rows != b->rows || a->dim[0] != b->dim[0])
        return adamod__refuse("there are not as many ranges of keys as of queries");
    if (!(NN_ATTR(attention, node)->dropout >= 0 && NN_ATTR(attention, node)->dropout < 1))
        return adamod__refuse("dropout must be in [0, 1)");
    *out = *q;
    out->dim[1] = d;
    node->saved = *q;
    node->saved.dim[1] = 2 * heads;
    node->backward_needs =
        1u << ATTENTION_Q | 1u << ATTENTION_KV | 1u << ATTENTION_Q_RANGES | 1u << ATTENTION_K_RANGES | NN_NEEDS_OUTPUT;
    return 0;
}

/* One query's row of scores, and its weights. */
typedef struct query {
    int64_t row, head, first_key, n; /* it sees keys first_key .. first_key + n - 1 */
    uint64_t random;                 /* the number of its weight for the first */
} query;

static double dot(const float *a, const float *b, int64_t n) {
    double sum = 0;
    for (int64_t i = 0; i < n; i++) sum += (double)a[i] * b[i];
    return sum;
}

/* The first column of the keys that a query's head sees. */
static int64_t k_column(const nn_attention_view *v, const query *x) { return x->head / v->group * v->size; }

static double score(const nn_attention_view *v, const query *x, int64_t key) {
    return v->scale * dot(v->q + x->row * v->q_stride + x->head * v->size,
                          v->k + (x->first_key + key) * v->k_stride + k_column(v, x), v->size);
}

/* Dropout's factor on the weight of a key. */
static double factor(const nn_call *c, const nn_attention_view *v, const query *x, int64_t key) {
    if (!v->threshold) return 1;
    const bool kept = nn_random_bits(c->key, x->random + (uint64_t)key) >= v->threshold;
    return kept ? 1 / (1 - NN_ATTR(attention, c)->dropout) : 0;
}

static void forward_query(const nn_call *c, const nn_attention_view *v, const query *x, double *weights) {
    float *out = (float *)c->output[0].data + x->row * c->output[0].cols + x->head * v->size;
    double most = -INFINITY, sum = 0;
    for (int64_t l = 0; l < x->n; l++) {
        weights[l] = score(v, x, l);
        if (weights[l] > most) most = weights[l];
    }
    for (int64_t l = 0; l < x->n; l++) {
        weights[l] = exp(weights[l] - most);
        sum += weights[l];
    }
    for (int64_t e = 0; e < v->size; e++) {
        double y = 0;
        for (int64_t l = 0; l < x->n; l++) {
            y += factor(c, v, x, l) * weights[l] / sum * v->v[(x->first_key + l) * v->k_stride + k_column(v, x) + e];
        }
        out[e] = (float)y;
    }
    float *saved = c->saved + 2 * (x->row * v->heads + x->head);
    saved[0] = x->n ? (float)most : 0;
    saved[1] = x->n ? (float)(1 / sum * exp((double)saved[0] - most)) : 0;
}

typedef void (*query_kernel)(const nn_call *c, const nn_attention_view *v, const query *x, double *memory);

static void each_query(const nn_call *c, const nn_attention_view *v, query_kernel kernel, double *memory) {
    for (int64_t i = 0; i < v->sequences; i++) {
        const int64_t q0 = v->q_ranges[2 * i], nq = v->q_ranges[2 * i + 1] - q0;
        const int64_t k0 = v->k_ranges[2 * i], nk = v->k_ranges[2 * i + 1] - k0;
        for (int64_t head = 0; head < v->heads; head++) {
            for (int64_t j = 0; j < nq; j++) {
                const query x = {q0 + j, head, k0, nn_attention_seen(v->causal, nq, nk, j),
                                 nn_attention_index(q0, v->heads, head, nk, j, 0)};
                kernel(c, v, &x, memory);
            }
        }
    }
}

static void attention_forward(const nn_call *c) {
    const nn_attention_view v = nn_attention_of(c);
    memset(c->output[0].data, 0, (size_t)(c->output[0].rows * c->output[0].cols) * sizeof(float));
    each_query(c, &v, forward_query, (double *)(void *)c->workspace);
}

/* With y = sum_l m_l p_l v_l:
 *   dv_l += m_l p_l dy,   ds_l = p_l (m_l dy . v_l - dy . y),   dq = scale sum_l ds_l k_l,   dk_l += scale ds_l q
 * Sums of gradients are kept in double: sums is [q_rows, d], then [k_rows, 2 d_k]. */
static void backward_query(const nn_call *c, const nn_attention_view *v, const query *x, double *sums) {
    const int64_t d = c->output[0].cols, d_k = v->kv_heads * v->size, column = x->head * v->size;
    const float *q = v->q + x->row * v->q_stride + column;
    const float *dy = c->grad->output[0] + x->row * d + column;
    const double dy_y = dot(dy, (const float *)c->output[0].data + x->row * d + column, v->size);
    const float *saved = c->saved + 2 * (x->row * v->heads + x->head);
    double *dq = sums + x->row * d + column;
    for (int64_t l = 0; l < x->n; l++) {
        const float *key = v->k + (x->first_key + l) * v->k_stride + k_column(v, x), *value = key + (v->v - v->k);
        double *dk = sums + v->q_rows * d + (x->first_key + l) * 2 * d_k + k_column(v, x), *dv = dk + d_k;
        const double p = exp(score(v, x, l) - saved[0]) * saved[1], m = factor(c, v, x, l);
        const double ds = v->scale * p * (m * dot(dy, value, v->size) - dy_y);
        for (int64_t e = 0; e < v->size; e++) {
            dq[e] += ds * key[e];
            dk[e] += ds * q[e];
            dv[e] += m * p * dy[e];
        }
    }
}

static void add_rows(int64_t rows, int64_t cols, const double *sums, int64_t from, float *to, int64_t stride,
                     bool add) {
    for (int64_t r = 0; to && r < rows; r++) {
        for (int64_t e = 0; e < cols; e++) {
            float *x = to + r * stride + e;
            *x = (float)((add ? *x : 0) + sums[r * from + e]);
        }
    }
}

static void attention_backward(const nn_call *c) {
    const nn_attention_view v = nn_attention_of(c);
    const int64_t d = c->output[0].cols, d_k = v.kv_heads * v.size;
    double *sums = (double *)(void *)c->workspace, *kv_sums = sums + v.q_rows * d;
    memset(sums, 0, (size_t)(v.q_rows * d + 2 * v.k_rows * d_k) * sizeof *sums);
    each_query(c, &v, backward_query, sums);
    add_rows(v.q_rows, d, sums, d, v.dq, v.q_stride, v.add_q);
    add_rows(v.k_rows, 2 * d_k, kv_sums, 2 * d_k, v.dk, v.k_stride, v.add_k);
}

/* Floats: for backward's sums; forward's weights of a row are fewer. */
static size_t attention_workspace(const nn_call *c) {
    const nn_attention_view v = nn_attention_of(c);
    return 2 * (size_t)((v.q_rows + 2 * v.k_rows) * c->output[0].cols);
}

const nn_op nn_op_attention = {
    .name = "attention",
    .inputs = {"q", "kv", "q_ranges", "k_ranges"},
    .indices = 1u << 2 | 1u << 3,
    .attributes_size = sizeof(nn_attention_attributes),
    .shape = attention_shape,
    .ref = {.forward = attention_forward, .backward = attention_backward, .workspace = attention_workspace},
};

nn_value nn_attention(nn_graph *g, nn_value q, nn_value kv, nn_value q_ranges, nn_value k_ranges, int heads,
                      bool causal, double dropout) {
    return nn_add_node(g, &nn_op_attention, 4, (nn_value[]){q, kv, q_ranges, k_ranges},
                       &(nn_attention_attributes){.heads = heads, .causal = causal, .dropout = dropout});
}

nn_value nn_grouped_attention(nn_graph *g, nn_value qkv, nn_value ranges, int heads, int kv_heads, bool causal,
                              double dropout) {
    return nn_add_node(
        g, &nn_op_attention, 4, (nn_value[]){qkv, -1, ranges, ranges},
        &(nn_attention_attributes){.heads = heads, .causal = causal, .dropout = dropout, .kv_heads = kv_heads});
}
