/* Residual networks, block by block. */
#include "models/resnet.h"
#include "core/error.h"
#include "models/vision.h"

#include <math.h>
#include <stdio.h>

/* ---- settings ---- */

static const key_spec keys[] = {
    NUMBERS_KEY(resnet_settings, model.blocks, "3,4,6,3", STRICT,
                "blocks of each stage; 3,4,6,3 is ResNet-34, 2,2,2,2 ResNet-18"),
    NUMBERS_KEY(resnet_settings, model.widths, "64,128,256,512", STRICT, "channels of each stage"),
    ENUM_KEY(resnet_settings, model.norm, "batch", "batch fixup", STRICT,
             "batch norms, or none: Fixup's initial values, with scales and shifts"),
    ENUM_KEY(resnet_settings, model.gamma, "ones", VISION_GAMMAS, STRICT,
             "first values of the norms' weights; uniform: from 0 to 1, as PyTorch 1.1"),
    SWITCH_KEY(resnet_settings, model.sync_norm, "false", STRICT,
               "batch norms over the batches of all ranks, in place of each rank's own"),
};
const key_table resnet_keys = {keys, sizeof keys / sizeof *keys, sizeof(resnet_settings)};

const char *resnet_check(const resnet_settings *s) {
    int list[VISION_STAGES];
    const int stages = vision_list(s->model.blocks, VISION_BLOCKS, list);
    const int widths = vision_list(s->model.widths, VISION_WIDTH, list);
    if (!stages) return vision_no_list("model.blocks", s->model.blocks, VISION_BLOCKS), "model.blocks";
    if (!widths) return vision_no_list("model.widths", s->model.widths, VISION_WIDTH), "model.widths";
    if (stages == widths) return NULL;
    adamod__refuse("model.widths has %d numbers, expected %d, as many as model.blocks has", widths, stages);
    return "model.widths";
}

/* ---- with norms ---- */

static const nn_init fan_in = {NN_FAN_IN, 0};

static bool changes_shape(const nn_graph *g, nn_value x, int64_t width, int stride) {
    return stride != 1 || nn_shape_of(g, x).dim[3] != width;
}

/* relu(norm(conv(relu(norm(conv(x))))) + shortcut(x)) */
static nn_value block(nn_graph *g, vision_gamma gamma, nn_value x, int64_t width, int stride) {
    nn_value y = vision_convolution(g, "conv1", x, width, 3, stride, fan_in), shortcut = x;
    y = vision_norm(g, "norm1", y, -1, gamma, NN_RELU);
    y = vision_convolution(g, "conv2", y, width, 3, 1, fan_in);
    if (changes_shape(g, x, width, stride)) {
        shortcut = vision_convolution(g, "shortcut.conv", x, width, 1, stride, fan_in);
        shortcut = vision_norm(g, "shortcut.norm", shortcut, -1, gamma, NN_LINEAR);
    }
    return vision_norm(g, "norm2", y, shortcut, gamma, NN_RELU);
}

/* ---- without: Fixup ---- */

static nn_value number(nn_graph *g, const char *name, nn_init_kind kind) {
    return nn_parameter(g, name, 1, &(int64_t){1}, (nn_init){kind, 0});
}

static nn_value shifted(nn_graph *g, const char *name, nn_value x, nn_activation a) {
    return nn_scale_shift(g, x, -1, number(g, name, NN_ZEROS), -1, a);
}

/* Normal, for relu (He et al. 2015), times scale. */
static nn_init he(int64_t out, int64_t size, double scale) {
    return (nn_init){NN_NORMAL, scale * sqrt(2 / (double)(out * size * size))};
}

/* relu(scale conv(relu(conv(x + a) + b) + c) + d + shortcut(x + a)) */
static nn_value fixup_block(nn_graph *g, double shrink, nn_value x, int64_t width, int stride) {
    const nn_value a = shifted(g, "shift1", x, NN_LINEAR);
    nn_value y = vision_convolution(g, "conv1", a, width, 3, stride, he(width, 3, shrink)), shortcut = x;
    y = shifted(g, "shift2", y, NN_RELU);
    y = shifted(g, "shift3", y, NN_LINEAR);
    y = vision_convolution(g, "conv2", y, width, 3, 1, (nn_init){NN_ZEROS, 0});
    if (changes_shape(g, x, width, stride))
        shortcut = vision_convolution(g, "shortcut.conv", a, width, 1, stride, he(width, 1, 1));
    return nn_scale_shift(g, y, number(g, "scale", NN_ONES), number(g, "shift4", NN_ZEROS), shortcut, NN_RELU);
}

/* ---- the whole ---- */

static nn_value stem(nn_graph *g, const resnet_settings *s, nn_value images, int64_t width, bool fixup) {
    const nn_value x = vision_convolution(g, "stem.conv", images, width, 3, 1, fixup ? he(width, 3, 1) : fan_in);
    return fixup ? shifted(g, "stem.shift", x, NN_RELU) : vision_norm(g, "stem.norm", x, -1, s->model.gamma, NN_RELU);
}

nn_value resnet_build(nn_graph *g, const resnet_settings *s, nn_value images, int classes) {
    if (s->model.sync_norm) nn_sync_norms(g);
    int blocks[VISION_STAGES], widths[VISION_STAGES], all = 0;
    const int stages = vision_list(s->model.blocks, VISION_BLOCKS, blocks);
    const bool fixup = s->model.norm == RESNET_FIXUP;
    vision_list(s->model.widths, VISION_WIDTH, widths);
    for (int i = 0; i < stages; i++) all += blocks[i];
    nn_value x = stem(g, s, images, widths[0], fixup);
    for (int i = 0; i < stages; i++) {
        for (int k = 0; k < blocks[i]; k++) {
            const int stride = i > 0 && k == 0 ? 2 : 1;
            nn_scope_push(g, "stages.%d.%d", i, k);
            x = fixup ? fixup_block(g, 1 / sqrt((double)all), x, widths[i], stride)
                      : block(g, s->model.gamma, x, widths[i], stride);
            nn_scope_pop(g);
        }
    }
    const nn_init zeros = {NN_ZEROS, 0}, bias = {NN_UNIFORM, 1 / sqrt((double)widths[stages - 1])};
    if (!fixup) return vision_head(g, x, classes, fan_in, bias);
    return vision_head(g, shifted(g, "shift", x, NN_LINEAR), classes, zeros, zeros);
}
