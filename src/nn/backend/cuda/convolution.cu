/* Convolution and its gradient (ops/convolution.c). Where the kernel is one pixel and moves by one, it is a product of
 * matrices, a pixel a row, which cuBLASLt does in arrays inside wider ones, too. Everything else is cuDNN's, which wants
 * arrays without gaps: those inside wider ones are copied, and gradients that are added to others come from workspace. */
#include "nn/backend/cuda/cudnn.h"
#include "nn/backend/cuda/pixels.cuh"
#include "nn/backend/cuda/product.h"

#include <stdlib.h>

/* ---- shapes ---- */

static int64_t in_of(const nn_call *c) { return nn_channels(&c->input[0]); }
static int64_t out_of(const nn_call *c) { return nn_channels(&c->output[0]); }
static int64_t size_of_kernel(const nn_call *c) { return c->input[1].shape->dim[1]; }

static bool is_product(const nn_call *c) {
    return size_of_kernel(c) == 1 && c->attributes->stride == 1 && c->attributes->padding == 0;
}

static size_t size_of(nn_type type) { return type == NN_BF16 ? 2 : 4; }

static bool has_gaps(const nn_array *a) { return a->stride != nn_channels(a); }
static size_t bytes_without_gaps(const nn_array *a) {
    return (size_t)parts(nn_pixels(a) * nn_channels(a) * (int64_t)size_of(a->type), 256) * 256;
}

static conv_shape shape_of(const nn_call *c) {
    const int64_t *x = c->input[0].shape->dim, *y = c->output[0].shape->dim;
    return conv_shape{c->input[0].rows,
                      x[1],
                      x[2],
                      x[3],
                      y[1],
                      y[2],
                      y[3],
                      size_of_kernel(c),
                      c->attributes->stride,
                      c->attributes->padding,
                      c->input[0].type};
}

static cudaDataType_t data_type(nn_type type) { return type == NN_BF16 ? CUDA_R_16BF : CUDA_R_32F; }

/* By columns, as in linear.cu: y^T = W x^T, dx^T = W^T dy^T, dW^T = x^T dy. */
static product_shape product_of(const nn_call *c, conv_result result) {
    const int64_t pixels = nn_pixels(&c->input[0]), in = in_of(c), out = out_of(c);
    const int64_t x = c->input[0].stride, y = c->output[0].stride;
    const cudaDataType_t type = data_type(c->input[0].type);
    product_shape s = {true, false, out, pixels, in, in, x, y, type, type, CUBLASLT_EPILOGUE_DEFAULT, 1};
    if (result == CONV_DX) s = {false, false, in, pixels, out, in, y, x, type, type, CUBLASLT_EPILOGUE_DEFAULT, 1};
    if (result == CONV_DW) s = {false, true, in, out, pixels, x, y, in, type, CUDA_R_32F, CUBLASLT_EPILOGUE_DEFAULT, 1};
    return s;
}

/* ---- plans ---- */

/* What a node's direction has: forward y, backward the others. */
typedef struct conv_plan {
    product products[3];
    convolution convolutions[3];
    nn_type dw_type; /* of what cuDNN gives */
} conv_plan;

static void conv_release(void *prepared) {
    conv_plan *p = (conv_plan *)prepared;
    if (!p) return;
    for (int i = 0; i < 3; i++) {
        product_free(&p->products[i]);
        convolution_free(&p->convolutions[i]);
    }
    free(p);
}

static adamod_status prepare_result(const nn_call *c, conv_plan *p, conv_result result) {
    if (is_product(c)) {
        const product_shape s = product_of(c, result);
        return product_make(&p->products[result], &s, c->precision, c->training);
    }
    const conv_shape s = shape_of(c);
    p->dw_type = s.type; /* cuDNN has others, but slow ones */
    return convolution_make(&p->convolutions[result], &s, result, c->precision);
}

static adamod_status conv_prepare(const nn_call *c, void **prepared) {
    adamod_status status = is_product(c) ? product_library() : ADAMOD_OK;
    if (status) return status;
    conv_plan *p = (conv_plan *)calloc(1, sizeof *p);
    if (!p) return nn_cuda_fail(ADAMOD_ERROR_MEMORY, "out of memory for a convolution");
    if (!c->output_grad[0]) status = prepare_result(c, p, CONV_Y);
    if (c->output_grad[0] && c->input_grad[0]) status = prepare_result(c, p, CONV_DX);
    if (!status && c->output_grad[0] && c->input_grad[1]) status = prepare_result(c, p, CONV_DW);
    if (status) conv_release(p);
    else *prepared = p;
    return status;
}

/* Workspace: cuDNN's own, then x, y and W without gaps or not yet added. */
typedef struct conv_space {
    char *own, *x, *y, *w;
    size_t bytes;
} conv_space;

static conv_space space_of(const nn_call *c) {
    const conv_plan *p = (const conv_plan *)c->prepared;
    conv_space s = {};
    size_t own = 0;
    for (const convolution &v : p->convolutions) own = v.workspace > own ? v.workspace : own;
    own = (own + 255) / 256 * 256;
    const size_t x = bytes_without_gaps(&c->input[0]), y = bytes_without_gaps(&c->output[0]);
    const size_t w = (size_t)parts(nn_numbers(c->input[1].shape) * 4, 256) * 256;
    s.own = (char *)c->workspace;
    s.x = s.own + own;
    s.y = s.x + (has_gaps(&c->input[0]) || c->output_grad[0] ? x : 0);
    s.w = s.y + (has_gaps(&c->output[0]) ? y : 0);
    s.bytes = (size_t)(s.w - s.own) + (c->output_grad[0] ? w : 0);
    return s;
}

static size_t conv_workspace(const nn_call *c) {
    return (is_product(c) ? (size_t)PRODUCT_WORKSPACE : space_of(c).bytes) / sizeof(float);
}

/* ---- copies ---- */

/* Numbers of type to f32. */
template <typename T> __global__ static void add_kernel(int64_t n, const T *from, float *to, bool add) {
    const int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) to[i] = (add ? to[i] : 0) + widen(from[i]);
}

template <typename T> static void add_weights(const nn_call *c, const void *from) {
    const int64_t n = nn_numbers(c->input[1].shape);
    add_kernel<T>
        <<<(unsigned)parts(n, 256), 256, 0, stream_of(c)>>>(n, (const T *)from, c->input_grad[1], c->accumulate[1]);
}

/* An array of a call without gaps: as it is, or in its place in workspace. */
static void *without_gaps(const nn_call *c, const nn_array *a, void *data, char *place) {
    if (!has_gaps(a)) return data;
    BY_TYPE(a->type, copy_pixels, c, a, data, a->stride, place, nn_channels(a), false);
    return place;
}

/* ---- forward and backward ---- */

static void conv_forward(const nn_call *c) {
    conv_plan *p = (conv_plan *)c->prepared;
    const nn_array *x = &c->input[0], *y = &c->output[0];
    if (is_product(c)) {
        product_run(c, &p->products[CONV_Y], c->input[1].data, x->data, y->data, false, NULL);
        return;
    }
    const conv_space s = space_of(c);
    void *to = has_gaps(y) ? s.y : y->data;
    convolution_run(&p->convolutions[CONV_Y], stream_of(c), without_gaps(c, x, x->data, s.x), c->input[1].data, to,
                    s.own);
    if (has_gaps(y)) BY_TYPE(y->type, copy_pixels, c, y, to, nn_channels(y), y->data, y->stride, false);
}

static void products_backward(const nn_call *c, conv_plan *p) {
    if (c->input_grad[0])
        product_run(c, &p->products[CONV_DX], c->input[1].data, c->output_grad[0], c->input_grad[0], c->accumulate[0],
                    NULL);
    if (c->input_grad[1])
        product_run(c, &p->products[CONV_DW], c->input[0].data, c->output_grad[0], c->input_grad[1], c->accumulate[1],
                    NULL);
}

static void input_backward(const nn_call *c, conv_plan *p, const conv_space *s, void *dy) {
    const nn_array *x = &c->input[0];
    const bool direct = !has_gaps(x) && !c->accumulate[0];
    void *dx = direct ? (void *)c->input_grad[0] : s->x;
    convolution_run(&p->convolutions[CONV_DX], stream_of(c), dx, c->input[1].data, dy, s->own);
    if (!direct) BY_TYPE(x->type, copy_pixels, c, x, dx, nn_channels(x), c->input_grad[0], x->stride, c->accumulate[0]);
}

static void weights_backward(const nn_call *c, conv_plan *p, const conv_space *s, void *dy) {
    const bool direct = p->dw_type == NN_F32 && !c->accumulate[1];
    void *dw = direct ? (void *)c->input_grad[1] : s->w;
    convolution_run(&p->convolutions[CONV_DW], stream_of(c), without_gaps(c, &c->input[0], c->input[0].data, s->x), dw,
                    dy, s->own);
    if (!direct) BY_TYPE(p->dw_type, add_weights, c, dw);
}

static void conv_backward(const nn_call *c) {
    conv_plan *p = (conv_plan *)c->prepared;
    if (is_product(c)) {
        products_backward(c, p);
        return;
    }
    const conv_space s = space_of(c);
    void *dy = without_gaps(c, &c->output[0], c->output_grad[0], s.y);
    if (c->input_grad[0]) input_backward(c, p, &s, dy);
    if (c->input_grad[1]) weights_backward(c, p, &s, dy);
}

const nn_kernels nn_cuda_convolution = {conv_forward, conv_backward, NULL, conv_workspace, conv_prepare, conv_release,
                                        NULL,         NULL,          0,    false};
