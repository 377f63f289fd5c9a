/* Layers with their parameters, and settings that are lists, for models of images. */
#pragma once

#include "nn/nn.h"

/* Most stages of a model, blocks of a stage, and channels. */
enum { VISION_STAGES = 8, VISION_BLOCKS = 256, VISION_WIDTH = 65536 };

/* Parses whole numbers from 1 to most with commas between them: "3,4,6,3". Returns how many; 0: it is no such list. */
int vision_list(const char *text, int most, int list[VISION_STAGES]);
/* Sets the message for a wrong list: "model.blocks is 'x', expected 1 to 8 whole numbers from 1 to 256 with commas between
 * them". */
void vision_no_list(const char *path, const char *text, int most);

/* Initial gammas of batch norms; uniform: from 0 to 1, as in PyTorch 1.1. */
typedef enum vision_gamma { GAMMA_ONES, GAMMA_UNIFORM } vision_gamma;
#define VISION_GAMMAS "ones uniform"

/* A convolution without bias; pixels outside are 0, so that stride 1 keeps the size of images. */
nn_value vision_convolution(nn_graph *g, const char *name, nn_value x, int64_t out, int64_t size, int stride,
                            nn_init init);
/* eps 1e-5, momentum 0.1; residual -1: none. */
nn_value vision_norm(nn_graph *g, const char *name, nn_value x, nn_value residual, vision_gamma gamma, nn_activation a);
/* The mean of each channel over square images, and a linear layer. */
nn_value vision_head(nn_graph *g, nn_value x, int classes, nn_init weight, nn_init bias);
