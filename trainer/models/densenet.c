/* Densely connected networks, layer by layer. */
#include "models/densenet.h"
#include "core/error.h"
#include "models/vision.h"

#include <math.h>
#include <stdio.h>

/* ---- settings ---- */

static const key_spec keys[] = {
    NUMBERS_KEY(densenet_settings, model.blocks, "6,12,24,16", STRICT,
                "layers of each block; 6,12,24,16 is DenseNet-121"),
    WHOLE_KEY(densenet_settings, model.growth, "32", 1, 65536, STRICT, "channels that a layer adds"),
    WHOLE_KEY(densenet_settings, model.bottleneck, "4", 1, 1024, STRICT,
              "times growth: channels between a layer's two convolutions"),
    WHOLE_KEY(densenet_settings, model.stem, "64", 1, 65536, STRICT, "channels of the first convolution"),
    REAL_KEY(densenet_settings, model.compression, "0.5", 0, 1, false, STRICT,
             "share of the channels that a transition keeps"),
    ENUM_KEY(densenet_settings, model.gamma, "ones", VISION_GAMMAS, STRICT,
             "first values of the norms' weights; uniform: from 0 to 1, as PyTorch 1.1"),
    SWITCH_KEY(densenet_settings, model.sync_norm, "false", STRICT,
               "batch norms over the batches of all ranks, in place of each rank's own"),
};
const key_table densenet_keys = {keys, sizeof keys / sizeof *keys, sizeof(densenet_settings)};

const char *densenet_check(const densenet_settings *s) {
    int blocks[VISION_STAGES];
    const int n = vision_list(s->model.blocks, VISION_BLOCKS, blocks);
    if (!n) return vision_no_list("model.blocks", s->model.blocks, VISION_BLOCKS), "model.blocks";
    int64_t channels = s->model.stem;
    for (int i = 0; i + 1 < n; i++) {
        channels += (int64_t)blocks[i] * s->model.growth;
        channels = (int64_t)((double)channels * s->model.compression);
        if (channels > 0) continue;
        adamod__refuse("model.compression is %g, which leaves no channel after block %d", s->model.compression, i + 1);
        return "model.compression";
    }
    return NULL;
}

/* ---- layers ---- */

static const nn_init fan_in = {NN_FAN_IN, 0};

static nn_value norm_relu(nn_graph *g, const densenet_settings *s, const char *name, nn_value x) {
    return vision_norm(g, name, x, -1, s->model.gamma, NN_RELU);
}

/* conv(relu(norm(conv(relu(norm(x)))))), then x. */
static nn_value layer(nn_graph *g, const densenet_settings *s, nn_value x) {
    nn_value y = norm_relu(g, s, "norm1", x);
    y = vision_convolution(g, "conv1", y, (int64_t)s->model.bottleneck * s->model.growth, 1, 1, fan_in);
    y = norm_relu(g, s, "norm2", y);
    y = vision_convolution(g, "conv2", y, s->model.growth, 3, 1, fan_in);
    return nn_concat(g, y, x);
}

static nn_value transition(nn_graph *g, const densenet_settings *s, nn_value x) {
    const int64_t kept = (int64_t)((double)nn_shape_of(g, x).dim[3] * s->model.compression);
    nn_value y = norm_relu(g, s, "norm", x);
    y = vision_convolution(g, "conv", y, kept, 1, 1, fan_in);
    return nn_average_pool(g, y, 2);
}

/* ---- the whole ---- */

nn_value densenet_build(nn_graph *g, const densenet_settings *s, nn_value images, int classes) {
    if (s->model.sync_norm) nn_sync_norms(g);
    int layers[VISION_STAGES];
    const int blocks = vision_list(s->model.blocks, VISION_BLOCKS, layers);
    nn_value x = vision_convolution(g, "stem", images, s->model.stem, 3, 1, fan_in);
    for (int i = 0; i < blocks; i++) {
        for (int k = 0; k < layers[i]; k++) {
            nn_scope_push(g, "blocks.%d.%d", i, k);
            x = layer(g, s, x);
            nn_scope_pop(g);
        }
        if (i + 1 == blocks) break;
        nn_scope_push(g, "transitions.%d", i);
        x = transition(g, s, x);
        nn_scope_pop(g);
    }
    x = norm_relu(g, s, "norm", x);
    const double bound = 1 / sqrt((double)nn_shape_of(g, x).dim[3]);
    return vision_head(g, x, classes, fan_in, (nn_init){NN_UNIFORM, bound});
}
