/* y = the channels of a, then those of b. Inputs that the plan has placed inside y, and gradients, are there
 * already; the others are copied.
 *
 * Inputs: a, b, with the same shape except for the last dimension. */
#include "core/error.h"
#include "nn/op.h"

#include <stdio.h>
#include <string.h>

static int concat_shape(nn_node *node, const nn_shape *in, nn_shape *out) {
    const nn_shape *a = &in[0], *b = &in[1];
    (void)node;
    if (a->ndim < 2) return adamod__refuse("a must be a matrix or images");
    if (a->rows != b->rows || a->ndim != b->ndim || memcmp(a->dim, b->dim, (size_t)(a->ndim - 1) * sizeof *a->dim) != 0)
        return adamod__refuse("a and b must be alike but in their last dimension");
    *out = *a;
    out->dim[a->ndim - 1] += b->dim[b->ndim - 1];
    return 0;
}

static void concat_forward(const nn_call *c) {
    float *y = c->output[0].data;
    for (int i = 0; i < 2; i++) {
        const nn_array *x = &c->input[i];
        for (int64_t p = 0; x->data != y && p < nn_pixels(x); p++) {
            memcpy(y + p * c->output[0].stride, (const float *)x->data + p * x->stride,
                   (size_t)nn_channels(x) * sizeof(float));
        }
        y += nn_channels(x);
    }
}

/* a and b may be one value, with one gradient. So the gradient of a is complete before that of b begins. */
static void concat_backward(const nn_call *c) {
    const float *dy = c->grad->output[0];
    for (int i = 0; i < 2; i++) {
        const nn_array *x = &c->input[i];
        float *dx = c->grad->input[i];
        for (int64_t p = 0; dx && dx != dy && p < nn_pixels(x); p++) {
            for (int64_t k = 0; k < nn_channels(x); k++) {
                float *const at = &dx[p * x->stride + k];
                *at = (float)((c->grad->accumulate[i] ? *at : 0.0) + dy[p * c->output[0].stride + k]);
            }
        }
        dy += nn_channels(x);
    }
}

const nn_op nn_op_concat = {
    .name = "concat",
    .inputs = {"a", "b"},
    .shape = concat_shape,
    .ref = {.forward = concat_forward, .backward = concat_backward},
    .strided_inputs = 1u << 0 | 1u << 1,
    .strided_outputs = 1u << 0,
    .joins = true,
};

nn_value nn_concat(nn_graph *g, nn_value a, nn_value b) {
    return nn_add_node(g, &nn_op_concat, 2, (nn_value[]){a, b}, NULL);
}
