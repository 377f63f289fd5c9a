/* Convolutions: 3 x 3 with stride 1 by Winograd's algorithm, 1 x 1 as matrix products, others as products with
 * pixels gathered in rows, some images at a time. Formulas are in ops/convolution.c. */
#include "nn/backend/cpu/cpu.h"
#include "nn/ops/attributes.h"
#include "nn/backend/cpu/gemm.h"
#include "nn/backend/cpu/winograd.h"

#include <string.h>

/* About how many numbers are gathered at a time. */
enum { GATHERED = 1 << 20 };

typedef struct view {
    const nn_call *c;
    int64_t images, height, width, in, out_height, out_width, out, size;
    int64_t x_stride, y_stride, row; /* row: size * size * in, of W and of what is gathered */
    int64_t first, n, chunk;         /* images */
    bool plain;                      /* pixels of x are the rows of a product as they lie */
    float *gathered;                 /* [n * out_height * out_width, row], unless plain */
    float *narrow;                   /* mixed precision: room for rounded x (gathered), W and y's gradient */
} view;

static int64_t pixels_at_once(const view *v) { return v->chunk * v->out_height * v->out_width; }

static int64_t gathered_floats(const view *v) { return v->plain ? 0 : pixels_at_once(v) * v->row; }

static view view_of(const nn_call *c) {
    const int64_t *x = c->input[0].shape->dim, *y = c->output[0].shape->dim, *w = c->input[1].shape->dim;
    view v = {.c = c, .images = c->input[0].rows, .height = x[1], .width = x[2], .in = x[3], .out_height = y[1]};
    v.out_width = y[2], v.out = y[3], v.size = w[1];
    v.x_stride = c->input[0].stride, v.y_stride = c->output[0].stride;
    v.row = v.size * v.size * v.in;
    v.plain = v.size == 1 && NN_ATTR(convolution, c)->stride == 1 && NN_ATTR(convolution, c)->padding == 0;
    v.chunk = GATHERED / (v.out_height * v.out_width * v.row);
    if (v.chunk < 1) v.chunk = 1;
    if (v.chunk > v.images || v.plain) v.chunk = v.images;
    v.gathered = c->workspace;
    if (c->mixed && c->workspace) v.narrow = c->workspace + gathered_floats(&v);
    return v;
}

/* ---- by Winograd ---- */

static nn_winograd winograd_of(const view *v) {
    return (nn_winograd){.images = v->images,
                         .height = v->height,
                         .width = v->width,
                         .in = v->in,
                         .out = v->out,
                         .padding = NN_ATTR(convolution, v->c)->padding,
                         .x_stride = v->x_stride,
                         .y_stride = v->y_stride};
}

/* The gradient of x from the gradient of y. */
static nn_winograd winograd_back(const view *v) {
    const view turned = {.c = v->c, .images = v->images, .height = v->out_height, .width = v->out_width};
    nn_winograd s = winograd_of(&turned);
    s.in = v->out, s.out = v->in;
    s.x_stride = v->y_stride, s.y_stride = v->x_stride;
    s.padding = 2 - s.padding;
    return s;
}

static bool is_winograd(const view *v) {
    const nn_winograd there = winograd_of(v), back = winograd_back(v);
    return v->size == 3 && NN_ATTR(convolution, v->c)->stride == 1 && nn_winograd_fits(&there) &&
           nn_winograd_fits(&back);
}

/* ---- pixels in rows ---- */

/* The pixel of the image under place k of the kernel at output pixel (i, j); -1: outside. */
static int64_t pixel_under(const view *v, int64_t i, int64_t j, int64_t k) {
    const nn_convolution_attributes *a = v->c->attributes;
    const int64_t row = i * a->stride + k / v->size - a->padding, column = j * a->stride + k % v->size - a->padding;
    return row < 0 || row >= v->height || column < 0 || column >= v->width ? -1 : row * v->width + column;
}

/* An output row of an image. */
static void gather_task(void *context, int64_t task) {
    const view *v = context;
    const int64_t image = task / v->out_height, i = task % v->out_height;
    const float *x = (const float *)v->c->input[0].data + (v->first + image) * v->height * v->width * v->x_stride;
    float *to = v->gathered + task * v->out_width * v->row;
    for (int64_t j = 0; j < v->out_width; j++) {
        for (int64_t k = 0; k < v->size * v->size; k++, to += v->in) {
            const int64_t at = pixel_under(v, i, j, k);
            if (at < 0) memset(to, 0, (size_t)v->in * sizeof *to);
            else memcpy(to, x + at * v->x_stride, (size_t)v->in * sizeof *to);
        }
    }
}

/* Rows of the product that W is multiplied with. */
static nn_factor gather(view *v) {
    if (v->plain) return (nn_factor){.data = v->c->input[0].data, .stride = v->x_stride};
    nn_parallel(v->c->pool, v->n * v->out_height, gather_task, v);
    return (nn_factor){.data = v->gathered, .stride = v->row};
}

NN_CLONES
static void add_row(int64_t n, const float *restrict x, float *restrict y) {
    for (int64_t i = 0; i < n; i++) y[i] += x[i];
}

/* Adds the gathered gradients of an image to its pixels. */
static void scatter_task(void *context, int64_t image) {
    const view *v = context;
    float *dx = v->c->grad->input[0] + (v->first + image) * v->height * v->width * v->x_stride;
    const float *from = v->gathered + image * v->out_height * v->out_width * v->row;
    for (int64_t p = 0; !v->c->grad->accumulate[0] && p < v->height * v->width; p++)
        memset(dx + p * v->x_stride, 0, (size_t)v->in * sizeof *dx);
    for (int64_t p = 0; p < v->out_height * v->out_width; p++) {
        for (int64_t k = 0; k < v->size * v->size; k++, from += v->in) {
            const int64_t at = pixel_under(v, p / v->out_width, p % v->out_width, k);
            if (at >= 0) add_row(v->in, from, dx + at * v->x_stride);
        }
    }
}

/* Calls step for chunk after chunk of images; once if there are none. */
static void each_chunk(view *v, void (*step)(view *v)) {
    v->first = 0;
    do {
        v->n = v->images - v->first < v->chunk ? v->images - v->first : v->chunk;
        step(v);
        v->first += v->chunk;
    } while (v->first < v->images);
}

static int64_t pixels_before(const view *v) { return v->first * v->out_height * v->out_width; }
static int64_t pixels_now(const view *v) { return v->n * v->out_height * v->out_width; }

static nn_factor output_grad(const view *v, bool transposed) {
    return (nn_factor){v->c->grad->output[0] + pixels_before(v) * v->y_stride, v->y_stride, transposed};
}

static void forward_chunk(view *v) {
    nn_gemm(v->c->pool, &(nn_product){.m = pixels_now(v),
                                      .n = v->out,
                                      .k = v->row,
                                      .a = gather(v),
                                      .b = {v->c->input[1].data, v->row, .transposed = true},
                                      .c = (float *)v->c->output[0].data + pixels_before(v) * v->y_stride,
                                      .ldc = v->y_stride,
                                      .narrow = v->narrow});
}

static void input_grad_chunk(view *v) {
    nn_gemm(v->c->pool, &(nn_product){.m = pixels_now(v),
                                      .n = v->row,
                                      .k = v->out,
                                      .a = output_grad(v, false),
                                      .b = {.data = v->c->input[1].data, .stride = v->row},
                                      .c = v->plain ? v->c->grad->input[0] : v->gathered,
                                      .ldc = v->plain ? v->x_stride : v->row,
                                      .add = v->plain && v->c->grad->accumulate[0],
                                      .narrow = v->narrow});
    if (!v->plain) nn_parallel(v->c->pool, v->n, scatter_task, v);
}

static void weight_grad_chunk(view *v) {
    nn_gemm(v->c->pool, &(nn_product){.m = v->out,
                                      .n = v->row,
                                      .k = pixels_now(v),
                                      .a = output_grad(v, true),
                                      .b = gather(v),
                                      .c = v->c->grad->input[1],
                                      .ldc = v->row,
                                      .add = v->first > 0 || v->c->grad->accumulate[1],
                                      .narrow = v->narrow});
}

/* ---- kernels ---- */

static void convolution_forward(const nn_call *c) {
    view v = view_of(c);
    const nn_winograd s = winograd_of(&v);
    if (is_winograd(&v))
        nn_winograd_apply(c->pool, &s, c->input[0].data, c->input[1].data, false, c->output[0].data, false,
                          c->workspace);
    else each_chunk(&v, forward_chunk);
}

static void input_grad(view *v) {
    const nn_call *c = v->c;
    const nn_winograd back = winograd_back(v);
    if (is_winograd(v))
        nn_winograd_apply(c->pool, &back, c->grad->output[0], c->input[1].data, true, c->grad->input[0],
                          c->grad->accumulate[0], c->workspace);
    else each_chunk(v, input_grad_chunk);
}

static void weight_grad(view *v) {
    const nn_call *c = v->c;
    const nn_winograd s = winograd_of(v);
    if (is_winograd(v))
        nn_winograd_weights(c->pool, &s, c->input[0].data, c->grad->output[0], c->grad->input[1],
                            c->grad->accumulate[1], c->workspace);
    else each_chunk(v, weight_grad_chunk);
}

static void convolution_backward(const nn_call *c) {
    view v = view_of(c);
    if (c->grad->input[0]) input_grad(&v);
    if (c->grad->input[1]) weight_grad(&v);
}

static size_t narrow_floats(const view *v) {
    const int64_t pixels = pixels_at_once(v);
    if (!v->c->mixed) return 0;
    return nn_narrow_floats(pixels, v->row) + nn_narrow_floats(v->out, v->row) + nn_narrow_floats(pixels, v->out);
}

static size_t convolution_workspace(const nn_call *c) {
    const view v = view_of(c);
    const nn_winograd s = winograd_of(&v), back = winograd_back(&v);
    if (!is_winograd(&v)) return (size_t)gathered_floats(&v) + narrow_floats(&v);
    if (!c->grad->output[0]) return nn_winograd_apply_floats(c->pool, &s);
    const size_t a = nn_winograd_apply_floats(c->pool, &back), b = nn_winograd_weights_floats(c->pool, &s);
    return a > b ? a : b;
}

const nn_kernels nn_cpu_convolution = {
    .forward = convolution_forward, .backward = convolution_backward, .workspace = convolution_workspace};
