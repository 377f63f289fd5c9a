/* small_vision.h - a ResNet or a DenseNet with a batch of images, for tests of whole models. */
#ifndef SMALL_VISION_H
#define SMALL_VISION_H

#include "models/densenet.h"
#include "models/resnet.h"

enum { SMALL_IMAGES = 5, SMALL_ROWS = 4, SMALL_SIDE = 8, SMALL_CLASSES = 5 };

typedef struct small_vision {
    nn_params *params;
    nn_graph *graph;
    nn_plan *plan;
    nn_value loss;
    int rows; /* the symbol */
    adamod_pool *pool;
} small_vision;

/* Stages of 16 and 32 channels, or blocks of 2 and 3 layers that grow by 8; the defaults if whole. */
resnet_settings small_resnet(const char *norm);
densenet_settings small_densenet(void);

/* One of the two is NULL. Exits with a message where it cannot be made. A batch of SMALL_ROWS images is fed. */
small_vision small_vision_make(const resnet_settings *r, const densenet_settings *d, const char *backend, int threads);
small_vision small_vision_make_on(const resnet_settings *r, const densenet_settings *d, const char *device,
                                  nn_precision precision);
void small_vision_free(small_vision *s);
float small_vision_loss(small_vision *s); /* forward and backward */

#endif
