/* Where parameters are, if not on the host. */
#ifndef ADAMOD_NN_PLACE_H
#define ADAMOD_NN_PLACE_H

#include "op.h"

typedef struct nn_place {
    const nn_backend *backend;
    nn_device *device;
    char name[48]; /* "cuda:0" */
    nn_precision precision;
    float *data, *grad; /* as nn_params has them */
    void *half;         /* data as bf16, if the precision is mixed: the optimizer writes both */
    int64_t count;
} nn_place;

void nn_place_free(nn_place *place);

#endif
