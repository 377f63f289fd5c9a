/* fake_device.h - a device for tests of plans: it is the host's memory, and all it is asked to do is done at once. Recordings
 * it has none. */
#ifndef FAKE_DEVICE_H
#define FAKE_DEVICE_H

#include "nn/backend.h"

extern const nn_device_functions fake_device_functions;
extern int fake_device_sums; /* done at the ends of passes so far */
void fake_device_sum(const nn_sum *s);

/* Puts parameters and states there; backend's device are the functions above. */
adamod_status fake_device_take(nn_params *p, const nn_backend *backend, nn_precision precision);

#endif
