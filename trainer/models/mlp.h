/* Fully connected layers of ReLU units: a baseline that does not know which pixels are neighbours. */
#pragma once

#include "support/keys.h"
#include "nn/nn.h"

/* The recipe's keys. */
typedef struct mlp_settings {
    struct {
        int layers, width;
    } model;
} mlp_settings;
extern const key_table mlp_keys;

/* Images or rows of numbers to logits [rows, classes]. */
nn_value mlp_build(nn_graph *g, const mlp_settings *s, nn_value x, int classes);
