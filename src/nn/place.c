/* Parameters on a device. */
#include "place.h"
#include "backend.h"
#include "internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static size_t full_bytes(const nn_place *place) { return (size_t)place->count * sizeof(float); }
static size_t half_bytes(const nn_place *place) { return (size_t)place->count * 2; }

void nn_place_free(nn_place *place) {
    if (!place) return;
    const nn_device_functions *f = place->backend->device;
    if (place->device) {
        f->release(place->device, place->data, full_bytes(place));
        f->release(place->device, place->grad, full_bytes(place));
        f->release(place->device, place->half, half_bytes(place));
    }
    f->close(place->device);
    free(place);
}

static adamod_status allocate(nn_place *place) {
    const nn_device_functions *f = place->backend->device;
    void *data = NULL, *grad = NULL;
    adamod_status status = f->allocate(place->device, &data, full_bytes(place));
    place->data = data;
    if (!status) status = f->allocate(place->device, &grad, full_bytes(place));
    place->grad = grad;
    if (!status && place->precision == NN_MIXED) status = f->allocate(place->device, &place->half, half_bytes(place));
    return status;
}

/* *out NULL: it is the host. */
static adamod_status open_place(const char *device, nn_precision precision, int64_t count, nn_place **out) {
    int index;
    *out = NULL;
    if (strcmp(device, "cpu") == 0 || strcmp(device, "ref") == 0) return ADAMOD_OK;
    adamod_status status = adamod__parse_device(device, &index);
    if (status) return status;
    const nn_backend *backend = nn_backend_find("cuda");
    if (!backend) return ADAMOD_ERROR_NO_CUDA;
    nn_place *place = calloc(1, sizeof *place);
    if (!place) return adamod__fail(ADAMOD_ERROR_MEMORY, "no memory for a device");
    *place = (nn_place){.backend = backend, .precision = precision, .count = count};
    snprintf(place->name, sizeof place->name, "cuda:%d", index);
    status = backend->device->open(&place->device, index);
    if (status) nn_place_free(place);
    else *out = place;
    return status;
}

adamod_status nn_device_status(const char *device) {
    nn_place *place;
    const adamod_status status = open_place(device, NN_FULL, 0, &place);
    nn_place_free(place);
    return status;
}

adamod_status nn_params_place(nn_params *p, const char *device, nn_precision precision) {
    nn_place *place;
    adamod_status status = open_place(device, precision, p->count, &place);
    if (status || !place) return status;
    if (!p->data || p->place) {
        status = adamod__fail(ADAMOD_ERROR_ORDER, "parameters are placed once, after their memory");
    } else {
        status = allocate(place);
    }
    if (status) {
        nn_place_free(place);
        return status;
    }
    p->place = place;
    return nn_params_store(p);
}

static adamod_status fetch(const nn_place *place, float *to, const float *from) {
    const nn_device_functions *f = place->backend->device;
    f->download(place->device, to, from, full_bytes(place));
    return f->wait(place->device);
}

adamod_status nn_params_fetch(const nn_params *p) {
    return p->place ? fetch(p->place, p->data, p->place->data) : ADAMOD_OK;
}

adamod_status nn_params_fetch_grad(const nn_params *p) {
    return p->place ? fetch(p->place, p->grad, p->place->grad) : ADAMOD_OK;
}

nn_param_memory nn_params_memory(const nn_params *p, const nn_param *param) {
    const nn_place *place = p->place;
    if (!place) return (nn_param_memory){p->data + param->offset, p->grad + param->offset, NULL};
    return (nn_param_memory){place->data + param->offset, place->grad + param->offset,
                             place->half ? (char *)place->half + 2 * param->offset : NULL};
}

const char *nn_params_device(const nn_params *p) { return p->place ? p->place->name : "cpu"; }

void *nn_params_stream(const nn_params *p) {
    return p->place ? p->place->backend->device->stream(p->place->device) : NULL;
}

adamod_status nn_params_store(nn_params *p) {
    if (!p->place) return ADAMOD_OK;
    const nn_device_functions *f = p->place->backend->device;
    f->upload(p->place->device, p->place->data, p->data, full_bytes(p->place));
    if (p->place->half) f->narrow(p->place->device, p->place->half, p->place->data, p->count);
    return f->wait(p->place->device);
}
