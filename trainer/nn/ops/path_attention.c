/* Attention of one new token of each hypothesis to those before it and to itself: for each head,
 * y = sum_l p_l v_l with p = softmax_l(q . k_l / sqrt(size)), where l goes over the rows of the cache on the hypothesis's
 * path, the last of which is the token's own and is written first. Forward only.
 *
 * Inputs: [q | k | v] [rows, d + 2 kv], cache [cache rows, 2 kv] = [k | v], paths [rows, length], positions [rows]. The
 * caller sees to it that paths lie within the cache, and that no two tokens have one row. Attributes: heads, kv_heads. */
#include "core/error.h"
#include "nn/ops/path_attention.h"
#include "nn/op.h"

#include <assert.h>
#include <string.h>

static int path_attention_shape(nn_node *node, const nn_shape *in, nn_shape *out) {
    const nn_shape *q = &in[PATH_Q], *cache = &in[PATH_CACHE], *paths = &in[PATH_PATHS], *at = &in[PATH_POSITIONS];
    const int heads = NN_ATTR(path_attention, node)->heads, kv_heads = NN_ATTR(path_attention, node)->kv_heads;
    if (q->ndim != 2 || cache->ndim != 2) return adamod__refuse("q must be [q | k | v], and cache a matrix");
    if (heads < 1 || kv_heads < 1 || heads % kv_heads)
        return adamod__refuse("%d heads of keys and values do not divide %d of queries", kv_heads, heads);
    if (q->dim[1] % (heads + 2 * kv_heads))
        return adamod__refuse("%lld columns do not divide into %d heads and twice %d", (long long)q->dim[1], heads,
                              kv_heads);
    const int64_t of_head = q->dim[1] / (heads + 2 * kv_heads), wanted = of_head * kv_heads * 2;
    if (cache->dim[1] != wanted)
        return adamod__refuse("cache has %lld columns, q wants %lld", (long long)cache->dim[1], (long long)wanted);
    if (paths->ndim != 2 || at->ndim != 1 || paths->dim[0] != q->dim[0] || at->dim[0] != q->dim[0])
        return adamod__refuse("there must be a path and a position for each row");
    out[0] = *q;
    out[0].dim[1] = heads * of_head;
    out[1] = *cache;
    return 0;
}

static void attend(const nn_path_view *v, int64_t row, int64_t head, double *weights, float *out) {
    const float *q = v->q + row * (v->d + 2 * v->kv) + head * v->size;
    const int64_t column = nn_path_column(v, head);
    const int32_t *path = v->paths + row * v->length;
    const int64_t n = v->positions[row] + 1;
    double most = -INFINITY, sum = 0;
    for (int64_t l = 0; l < n; l++) {
        const float *k = v->cache + path[l] * 2 * v->kv + column;
        double dot = 0;
        for (int64_t e = 0; e < v->size; e++) dot += (double)q[e] * k[e];
        weights[l] = dot / sqrt((double)v->size);
        most = weights[l] > most ? weights[l] : most;
    }
    for (int64_t l = 0; l < n; l++) sum += weights[l] = exp(weights[l] - most);
    for (int64_t e = 0; e < v->size; e++) {
        double y = 0;
        for (int64_t l = 0; l < n; l++) y += weights[l] / sum * v->cache[(path[l] * 2 + 1) * v->kv + column + e];
        out[e] = (float)y;
    }
}

static void path_attention_forward(const nn_call *c) {
    const nn_path_view v = nn_path_of(c);
    nn_path_write(&v);
    for (int64_t row = 0; row < v.rows; row++) {
        float *out = (float *)c->output[0].data + row * v.d;
        const int32_t own = nn_path_row(&v, row);
        if (own < 0) {
            memset(out, 0, (size_t)v.d * sizeof *out);
            continue;
        }
        assert(own < c->output[1].rows);
        for (int64_t head = 0; head < v.heads; head++)
            attend(&v, row, head, (double *)(void *)c->workspace, out + head * v.size);
    }
}

static size_t path_attention_workspace(const nn_call *c) { return 2 * (size_t)c->input[PATH_PATHS].cols; }

const nn_op nn_op_path_attention = {
    .name = "path_attention",
    .inputs = {"q", "cache", "paths", "positions"},
    .indices = 1u << PATH_PATHS | 1u << PATH_POSITIONS,
    .attributes_size = sizeof(nn_path_attention_attributes),
    .shape = path_attention_shape,
    .ref = {.forward = path_attention_forward, .workspace = path_attention_workspace},
    .aliases = {0, 1 + PATH_CACHE},
};

nn_value nn_path_attention(nn_graph *g, nn_value q, nn_value cache, nn_value paths, nn_value positions, int heads,
                           int kv_heads) {
    return nn_add_node(g, &nn_op_path_attention, 4, (nn_value[]){q, cache, paths, positions},
                       &(nn_path_attention_attributes){.heads = heads, .kv_heads = kv_heads});
}
