/* Parameters, persistent states and constants on a device. */
#pragma once

#include "nn/backend.h"

/* A constant on the device. */
typedef struct nn_device_array {
    const void *host;
    void *data;
    size_t bytes;
    int plans; /* number of plans that use it */
} nn_device_array;

typedef struct nn_device_params {
    const nn_backend *backend;
    nn_device *device;
    char name[48]; /* "cuda:0" */
    nn_precision precision;
    float *data, *grad, *states; /* as nn_params has them; states NULL: there are none */
    void *half;                  /* data as bf16, in mixed precision: the optimizer writes both */
    int64_t count, state_count;  /* numbers */
    nn_device_array *constants;
    int n_constants;
} nn_device_params;

void nn_device_params_free(nn_device_params *on);

/* Holds a constant on the device for one more plan. Constants are known by the host's address, so a constant must be
 * dropped with its last plan: other numbers may have that address later. */
adamod_status nn_device_keep_constant(nn_device_params *on, const void *host, size_t bytes);
void nn_device_drop_constant(nn_device_params *on, const void *host);
/* Its memory on the device; NULL: it is not there. */
void *nn_device_constant(const nn_device_params *on, const void *host);
