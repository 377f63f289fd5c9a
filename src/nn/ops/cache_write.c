/* Copies row i of x to row index_i of the cache, in place: the output is the cache's memory. Where x is wider, its last
 * columns: [k | v] of [q | k | v]. Forward only.
 *
 * Inputs: cache, x, index. The caller sees to it that indices are rows of the cache, each at most once. */
#include "nn/op.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

static const char *cache_write_shape(nn_node *node, const nn_shape *in, nn_shape *out, char *message, size_t size) {
    const nn_shape *cache = &in[0], *x = &in[1], *index = &in[2];
    (void)node;
    if (cache->ndim != 2 || x->ndim != 2) return "cache and x must be matrices";
    if (cache->dim[1] > x->dim[1]) {
        snprintf(message, size, "x has %lld columns, the cache %lld", (long long)x->dim[1], (long long)cache->dim[1]);
        return message;
    }
    if (index->ndim != 1 || index->rows != x->rows || index->dim[0] != x->dim[0]) {
        snprintf(message, size, "there are %lld indices for %lld rows, or of another symbol", (long long)index->dim[0],
                 (long long)x->dim[0]);
        return message;
    }
    *out = *cache;
    return NULL;
}

static void cache_write_forward(const nn_call *c) {
    const int32_t *index = c->input[2].data;
    const int64_t d = c->output[0].cols, width = c->input[1].cols;
    for (int64_t i = 0; i < c->input[1].rows; i++) {
        assert(index[i] >= 0 && index[i] < c->output[0].rows);
        memcpy((float *)c->output[0].data + index[i] * d, (const float *)c->input[1].data + (i + 1) * width - d,
               (size_t)d * sizeof(float));
    }
}

const nn_op nn_op_cache_write = {
    .name = "cache_write",
    .inputs = {"cache", "x", "index"},
    .indices = 1u << 2,
    .shape = cache_write_shape,
    .ref = {.forward = cache_write_forward},
    .aliases = {1 + 0},
};

nn_value nn_cache_write(nn_graph *g, nn_value cache, nn_value x, nn_value index) {
    return nn_add_node(g, &nn_op_cache_write, 3, (nn_value[]){cache, x, index}, &(nn_attributes){0});
}
