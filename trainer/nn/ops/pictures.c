/* y_i = (images[index_i] / 255 - mean) / deviation, of a window that training draws for each row (picture_window.h);
 * black where the window lies outside of the picture.
 *
 * Inputs: images u8 [n, height, width, 3], indices, draws. Attributes: nn_picture_options. The caller makes sure
 * that indices are pictures. These are the host's only kernels: a row is a task. */
#include "core/error.h"
#include "nn/op.h"
#include "nn/ops/attributes.h"
#include "nn/ops/picture_window.h"

#include <assert.h>

static int pictures_shape(nn_node *node, const nn_shape *in, nn_shape *out) {
    const nn_picture_options *o = NN_ATTR(pictures, node);
    const nn_shape *images = &in[0], *indices = &in[1], *draws = &in[2];
    if (images->ndim != 4 || images->dim[3] != 3) return adamod__refuse("images must be [pictures, height, width, 3]");
    if (indices->ndim != 1 || draws->ndim != 1) return adamod__refuse("indices and draws must be vectors");
    if (indices->rows != draws->rows || indices->dim[0] != draws->dim[0])
        return adamod__refuse("there are other numbers of indices and draws, or of another symbol");
    if (o->size < 1 || o->size > images->dim[1] || o->size > images->dim[2])
        return adamod__refuse("size is %lld, expected 1 to what pictures of %lld x %lld have", (long long)o->size,
                              (long long)images->dim[1], (long long)images->dim[2]);
    if (o->padding < 0 || o->padding > 1024) return adamod__refuse("padding must be 0 to 1024");
    for (int k = 0; k < 3; k++) {
        if (!(o->deviation[k] > 0)) return adamod__refuse("deviations must be positive");
    }
    *out = (nn_shape){.rows = indices->rows, .ndim = 4, .dim = {indices->dim[0], o->size, o->size, 3}};
    return 0;
}

static void one_picture(void *context, int64_t i) {
    const nn_call *c = context;
    const nn_picture_options *o = NN_ATTR(pictures, c);
    const int64_t height = c->input[0].shape->dim[1], width = c->input[0].shape->dim[2], size = o->size;
    const int64_t index = ((const int32_t *)c->input[1].data)[i];
    const uint8_t *picture = (const uint8_t *)c->input[0].data + index * c->input[0].cols;
    const nn_window w = nn_draw_window(o, c->training, height, width, c->key, ((const int32_t *)c->input[2].data)[i]);
    float *to = (float *)c->output[0].data + i * c->output[0].cols;
    assert(index >= 0 && index < c->input[0].rows);
    for (int64_t y = 0; y < size; y++) {
        for (int64_t x = 0; x < size; x++) {
            const int64_t row = w.top + y, column = w.left + (w.mirror ? size - 1 - x : x);
            const bool inside = row >= 0 && row < height && column >= 0 && column < width;
            for (int64_t k = 0; k < 3; k++) {
                const uint8_t byte = inside ? picture[(row * width + column) * 3 + k] : 0;
                to[(y * size + x) * 3 + k] = nn_normal_byte(byte, o->mean[k], o->deviation[k]);
            }
        }
    }
}

static void pictures_forward(const nn_call *c) {
    nn_parallel(c->pool, c->output[0].rows, one_picture, (void *)(uintptr_t)c);
}

const nn_op nn_op_pictures = {
    .name = "pictures",
    .inputs = {"images", "indices", "draws"},
    .indices = 1u << 1 | 1u << 2,
    .bytes = 1u << 0,
    .attributes_size = sizeof(nn_pictures_attributes),
    .shape = pictures_shape,
    .ref = {.forward = pictures_forward},
};

nn_value nn_pictures(nn_graph *g, nn_value images, nn_value indices, nn_value draws, const nn_picture_options *o) {
    return nn_add_node(g, &nn_op_pictures, 3, (nn_value[]){images, indices, draws}, o);
}
