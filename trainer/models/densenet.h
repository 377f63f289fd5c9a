/* Densely connected networks (Huang et al., arXiv 1608.06993) for small images, as the paper trains them: each layer reads
 * all features of its block, and puts its own before them; between blocks a transition halves channels, height and
 * width. DenseNet-121 by default. */
#pragma once

#include "support/keys.h"
#include "models/vision.h"
#include "nn/nn.h"

/* The recipe's keys. */
typedef struct densenet_settings {
    struct {
        char blocks[64]; /* layers of each */
        int growth, bottleneck, stem;
        double compression;
        vision_gamma gamma;
        bool sync_norm;
    } model;
} densenet_settings;
extern const key_table densenet_keys;

/* Checks keys against each other: returns NULL, or the path of the wrong key, with a message about it. */
const char *densenet_check(const densenet_settings *s);

/* Square images [rows, size, size, channels] to logits [rows, classes]. Each transition halves the size. */
nn_value densenet_build(nn_graph *g, const densenet_settings *s, nn_value images, int classes);
