/* Parameters and persistent states on a device. */
#ifndef ADAMOD_NN_PLACE_H
#define ADAMOD_NN_PLACE_H

#include "nn/backend.h"

typedef struct nn_device_params {
    const nn_backend *backend;
    nn_device *device;
    char name[48]; /* "cuda:0" */
    nn_precision precision;
    float *data, *grad, *states; /* as nn_params has them; states NULL: there are none */
    void *half;                  /* data as bf16, if the precision is mixed: the optimizer writes both */
    int64_t count, state_count;  /* numbers */
} nn_device_params;

void nn_device_params_free(nn_device_params *on);

#endif
