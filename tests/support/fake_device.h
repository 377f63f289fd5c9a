/* fake_device.h - a device for tests of plans: its memory is the host's, its work is done at once, and it has no
 * recordings. */
#ifndef FAKE_DEVICE_H
#define FAKE_DEVICE_H

#include "nn/backend.h"

extern const nn_device_functions fake_device_functions;
extern int fake_device_sums; /* done at the ends of passes so far */
void fake_device_sum(const nn_sum *s);

/* Puts parameters and states on this device; backend->device must be the functions above. */
adamod_status fake_device_take(nn_params *p, const nn_backend *backend, nn_precision precision);

#endif
