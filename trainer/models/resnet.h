/* Residual networks of basic blocks (He et al., arXiv 1512.03385) for small images, as the paper trains them: a stem of
 * 3 x 3 without pooling, stages of blocks, the second and later of which begin with a stride of 2, the mean over what is
 * left of the image, a linear layer.
 *
 * With norm "fixup" they have scales and shifts of one number each instead of norms, and weights that begin so small that
 * none are needed (Zhang et al., arXiv 1901.09321). */
#pragma once

#include "support/keys.h"
#include "models/vision.h"
#include "nn/nn.h"

/* The recipe's keys. */
typedef enum resnet_norm { RESNET_BATCH_NORM, RESNET_FIXUP } resnet_norm;

typedef struct resnet_settings {
    struct {
        char blocks[64], widths[64]; /* of each stage */
        resnet_norm norm;
        vision_gamma gamma;
        bool sync_norm;
    } model;
} resnet_settings;
extern const key_table resnet_keys;

/* Checks keys against each other: returns NULL, or the path of the wrong key, with a message about it. */
const char *resnet_check(const resnet_settings *s);

/* Square images [rows, size, size, channels] to logits [rows, classes]. */
nn_value resnet_build(nn_graph *g, const resnet_settings *s, nn_value images, int classes);
