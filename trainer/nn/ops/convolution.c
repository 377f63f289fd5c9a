/* y[r, i, j, o] = sum over a, b, c of x[r, i stride + a - padding, j stride + b - padding, c] w[o, a, b, c]. With g the
 * gradient of y, dx and dw are the sums of g w and of g x over the same products.
 *
 * Inputs: x [rows, height, width, in], W [out, size, size, in]. Attributes: stride, padding. */
#include "core/error.h"
#include "nn/op.h"
#include "nn/ops/attributes.h"

static int convolution_shape(nn_node *node, const nn_shape *in, nn_shape *out) {
    const nn_shape *x = &in[0], *w = &in[1];
    const nn_convolution_attributes *a = node->attributes;
    if (x->ndim != 4) return adamod__refuse("x must be images");
    if (w->ndim != 4 || w->rows || w->dim[1] != w->dim[2])
        return adamod__refuse("W must be [out, size, size, in], of fixed size");
    if (x->dim[3] != w->dim[3])
        return adamod__refuse("x has %lld channels, W wants %lld", (long long)x->dim[3], (long long)w->dim[3]);
    if (a->stride < 1 || a->padding < 0 || a->padding >= w->dim[1])
        return adamod__refuse("stride %d and padding %d, expected a stride of 1 or more, and a padding from 0 to %lld",
                              a->stride, a->padding, (long long)w->dim[1] - 1);
    const int64_t height = x->dim[1] + 2 * a->padding - w->dim[1], width = x->dim[2] + 2 * a->padding - w->dim[2];
    if (height < 0 || width < 0)
        return adamod__refuse("x is %lld x %lld with a padding of %d, smaller than the kernel of %lld x %lld",
                              (long long)x->dim[1], (long long)x->dim[2], a->padding, (long long)w->dim[1],
                              (long long)w->dim[2]);
    *out = (nn_shape){
        .rows = x->rows, .ndim = 4, .dim = {x->dim[0], height / a->stride + 1, width / a->stride + 1, w->dim[0]}};
    node->backward_needs = 1u << 0 | 1u << 1;
    return 0;
}

static double convolution_flops(const nn_node *node, const nn_shape *in) {
    const nn_convolution_attributes *a = node->attributes;
    const int64_t size = in[1].dim[1];
    const double height = (double)((in[0].dim[1] + 2 * a->padding - size) / a->stride + 1);
    const double width = (double)((in[0].dim[2] + 2 * a->padding - size) / a->stride + 1);
    return 2.0 * (double)in[0].dim[0] * height * width * (double)(in[1].dim[0] * nn_columns(&in[1]));
}

/* Calls one(context, output pixel, input pixel, offset in a kernel) for each pair of pixels that meet. */
typedef void (*meeting)(void *context, int64_t to, int64_t from, int64_t at);

static void each_meeting(const nn_call *c, meeting one, void *context) {
    const int64_t *x = c->input[0].shape->dim, *y = c->output[0].shape->dim, *w = c->input[1].shape->dim;
    const nn_convolution_attributes *t = c->attributes;
    for (int64_t to = 0; to < nn_pixels(&c->output[0]); to++) {
        const int64_t row = to / (y[1] * y[2]), i = to / y[2] % y[1], j = to % y[2];
        for (int64_t k = 0; k < w[1] * w[2]; k++) {
            const int64_t a = i * t->stride + k / w[2] - t->padding, b = j * t->stride + k % w[2] - t->padding;
            if (a < 0 || a >= x[1] || b < 0 || b >= x[2]) continue;
            one(context, to, (row * x[1] + a) * x[2] + b, k * w[3]);
        }
    }
}

typedef struct meeting_work {
    const nn_call *c;
    double *sums;
} meeting_work;

static void add_forward(void *context, int64_t to, int64_t from, int64_t at) {
    const meeting_work *m = context;
    const nn_call *c = m->c;
    const int64_t in = nn_channels(&c->input[0]), out = nn_channels(&c->output[0]);
    const float *x = (const float *)c->input[0].data + from * c->input[0].stride;
    const float *w = (const float *)c->input[1].data + at;
    for (int64_t o = 0; o < out; o++) {
        for (int64_t k = 0; k < in; k++) m->sums[to * out + o] += (double)x[k] * w[o * c->input[1].cols + k];
    }
}

static void add_input_grad(void *context, int64_t to, int64_t from, int64_t at) {
    const meeting_work *m = context;
    const nn_call *c = m->c;
    const int64_t in = nn_channels(&c->input[0]), out = nn_channels(&c->output[0]);
    const float *dy = c->grad->output[0] + to * c->output[0].stride;
    const float *w = (const float *)c->input[1].data + at;
    for (int64_t o = 0; o < out; o++) {
        for (int64_t k = 0; k < in; k++) m->sums[from * in + k] += (double)dy[o] * w[o * c->input[1].cols + k];
    }
}

static void add_weight_grad(void *context, int64_t to, int64_t from, int64_t at) {
    const meeting_work *m = context;
    const nn_call *c = m->c;
    const int64_t in = nn_channels(&c->input[0]), out = nn_channels(&c->output[0]);
    const float *dy = c->grad->output[0] + to * c->output[0].stride;
    const float *x = (const float *)c->input[0].data + from * c->input[0].stride;
    for (int64_t o = 0; o < out; o++) {
        for (int64_t k = 0; k < in; k++) m->sums[o * c->input[1].cols + at + k] += (double)dy[o] * x[k];
    }
}

/* Writes the sums over all meetings to pixels whose channels are stride apart. */
static void sum_meetings(const nn_call *c, meeting one, int64_t pixels, int64_t channels, float *to, int64_t stride,
                         bool add) {
    double *sums = (double *)(void *)c->workspace;
    for (int64_t k = 0; k < pixels * channels; k++) sums[k] = 0;
    each_meeting(c, one, &(meeting_work){c, sums});
    for (int64_t k = 0; k < pixels * channels; k++) {
        float *const at = to + k / channels * stride + k % channels;
        *at = (float)((add ? *at : 0) + sums[k]);
    }
}

static void convolution_forward(const nn_call *c) {
    const nn_array *y = &c->output[0];
    sum_meetings(c, add_forward, nn_pixels(y), nn_channels(y), y->data, y->stride, false);
}

static void convolution_backward(const nn_call *c) {
    const nn_array *x = &c->input[0], *w = &c->input[1];
    if (c->grad->input[0])
        sum_meetings(c, add_input_grad, nn_pixels(x), nn_channels(x), c->grad->input[0], x->stride,
                     c->grad->accumulate[0]);
    if (c->grad->input[1])
        sum_meetings(c, add_weight_grad, w->rows, w->cols, c->grad->input[1], w->cols, c->grad->accumulate[1]);
}

static size_t convolution_workspace(const nn_call *c) {
    int64_t most = c->output[0].rows * c->output[0].cols;
    for (int i = 0; i < 2; i++) {
        const int64_t n = c->input[i].rows * c->input[i].cols;
        most = n > most ? n : most;
    }
    return 2 * (size_t)most;
}

const nn_op nn_op_convolution = {
    .name = "convolution",
    .inputs = {"x", "W"},
    .attributes_size = sizeof(nn_convolution_attributes),
    .shape = convolution_shape,
    .ref = {.forward = convolution_forward, .backward = convolution_backward, .workspace = convolution_workspace},
    .flops = convolution_flops,
    .matrices = 1,
    .strided_inputs = 1u << 0,
    .strided_outputs = 1u << 0,
};

nn_value nn_convolution(nn_graph *g, nn_value x, nn_value w, int stride, int padding) {
    return nn_add_node(g, &nn_op_convolution, 2, (nn_value[]){x, w},
                       &(nn_convolution_attributes){.stride = stride, .padding = padding});
}
