/* small_vision.h - a ResNet or a DenseNet with a batch of images, for tests of whole models. */
#ifndef SMALL_VISION_H
#define SMALL_VISION_H

#include "models/densenet.h"
#include "models/resnet.h"
#include "nn/backend.h"

enum { SMALL_IMAGES = 5, SMALL_ROWS = 4, SMALL_SIDE = 8, SMALL_CLASSES = 5 };

typedef struct small_vision {
    nn_params *params;
    nn_graph *graph;
    nn_plan *plan;
    nn_value loss;
    int rows; /* the symbol */
    int64_t side;
    adamod_pool *pool;
} small_vision;

/* Stages of 16 and 32 channels; blocks of 2 and 3 layers that grow by 8. */
resnet_settings small_resnet(resnet_norm norm);
densenet_settings small_densenet(void);

/* Sets how many images plans of later models have room for, SMALL_IMAGES at first. A batch of one less is fed. */
void small_vision_take(int images);

/* One of the two is NULL. side: of the images. Exits with a message where it cannot be made. */
small_vision small_vision_make(const resnet_settings *r, const densenet_settings *d, int64_t side, const char *backend,
                               int threads);
small_vision small_vision_make_on(const resnet_settings *r, const densenet_settings *d, int64_t side,
                                  const char *device, nn_precision precision);
/* On a device of the test's own (fake_device.h), in f32, with as many images as the plan has room for. */
small_vision small_vision_make_with(const densenet_settings *d, const nn_backend *backend);
void small_vision_free(small_vision *s);
float small_vision_loss(small_vision *s); /* forward and backward */

/* Writes what tests/trainer/test_torch_vision.py computes again: weights, states, a batch, its gradients ("gradient/NAME"), the
 * losses of steps of gradient descent on it, and what weights and states are after these ("after/NAME"). Metadata are
 * the settings, as JSON. Exits with a message where it cannot. */
void small_vision_dump(small_vision *s, const key_table *keys, const void *settings, const char *path);

#endif
