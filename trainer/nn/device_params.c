/* Parameters, persistent states and constants on a device. */
#include "nn/device_params.h"
#include "nn/backend.h"
#include "core/error.h"
#include "support/array.h"
#include "optim/optim.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static size_t full_bytes(const nn_device_params *on) { return (size_t)on->count * sizeof(float); }
static size_t half_bytes(const nn_device_params *on) { return (size_t)on->count * 2; }
static size_t state_bytes(const nn_device_params *on) { return (size_t)on->state_count * sizeof(float); }

void nn_device_params_free(nn_device_params *on) {
    if (!on) return;
    const nn_device_functions *f = on->backend->device;
    if (on->device) {
        f->release(on->device, on->data, full_bytes(on));
        f->release(on->device, on->grad, full_bytes(on));
        f->release(on->device, on->half, half_bytes(on));
        f->release(on->device, on->states, state_bytes(on));
        for (int i = 0; i < on->n_constants; i++) f->release(on->device, on->constants[i].data, on->constants[i].bytes);
    }
    free(on->constants);
    f->close(on->device);
    free(on);
}

static adamod_status allocate(nn_device_params *on) {
    const nn_device_functions *f = on->backend->device;
    void *data = NULL, *grad = NULL, *states = NULL;
    adamod_status status = f->allocate(on->device, &data, full_bytes(on));
    on->data = data;
    if (!status) status = f->allocate(on->device, &grad, full_bytes(on));
    on->grad = grad;
    if (!status && on->precision == NN_MIXED) status = f->allocate(on->device, &on->half, half_bytes(on));
    if (!status && on->state_count) status = f->allocate(on->device, &states, state_bytes(on));
    on->states = states;
    return status;
}

/* *out NULL: it is the host. */
static adamod_status open_device(const char *device, nn_precision precision, nn_device_params **out) {
    int index;
    *out = NULL;
    if (strcmp(device, "cpu") == 0 || strcmp(device, "ref") == 0) return ADAMOD_OK;
    adamod_status status = adamod__parse_device(device, &index);
    if (status) return status;
    const nn_backend *backend = nn_backend_find("cuda");
    if (!backend) return ADAMOD_ERROR_NO_CUDA;
    nn_device_params *on = calloc(1, sizeof *on);
    if (!on) return adamod__fail(ADAMOD_ERROR_MEMORY, "out of memory for a device");
    *on = (nn_device_params){.backend = backend, .precision = precision};
    snprintf(on->name, sizeof on->name, "cuda:%d", index);
    status = backend->device->open(&on->device, index);
    if (status) nn_device_params_free(on);
    else *out = on;
    return status;
}

adamod_status nn_device_status(const char *device) {
    nn_device_params *on;
    const adamod_status status = open_device(device, NN_FULL, &on);
    nn_device_params_free(on);
    return status;
}

adamod_status nn_device_note(const char *device, int i, nn_note *out) {
    nn_device_params *on;
    const adamod_status status = open_device(device, NN_FULL, &on);
    *out = (nn_note){0};
    for (const nn_backend_op *x = on ? on->backend->ops : NULL; x && x->op; x++) {
        nn_note note;
        if (x->kernels->note && x->kernels->note(&note) && i-- == 0) *out = note;
    }
    nn_device_params_free(on);
    return status;
}

adamod_status nn_params_to_device(nn_params *p, const char *device, nn_precision precision) {
    nn_device_params *on;
    adamod_status status = open_device(device, precision, &on);
    if (!status && strcmp(device, "cpu") == 0) p->precision = precision;
    if (status || !on) return status;
    if (!p->data || p->on_device) {
        status = adamod__fail(ADAMOD_ERROR_ORDER, "parameters go to a device once, after nn_params_allocate");
    } else {
        on->count = p->count;
        on->state_count = p->state_count;
        status = allocate(on);
    }
    if (status) {
        nn_device_params_free(on);
        return status;
    }
    p->on_device = on;
    return nn_params_store(p);
}

adamod_status nn_params_fetch(const nn_params *p) {
    const nn_device_params *on = p->on_device;
    if (!on) return ADAMOD_OK;
    const nn_device_functions *f = on->backend->device;
    f->download(on->device, p->data, on->data, full_bytes(on));
    if (on->states) f->download(on->device, p->state_data, on->states, state_bytes(on));
    return f->wait(on->device);
}

adamod_status nn_params_read(const nn_params *p, void *host, const void *on_device, size_t bytes) {
    const nn_device_params *on = p->on_device;
    on->backend->device->download(on->device, host, on_device, bytes);
    return on->backend->device->wait(on->device);
}

adamod_status nn_params_write(const nn_params *p, void *on_device, const void *host, size_t bytes) {
    const nn_device_params *on = p->on_device;
    on->backend->device->upload(on->device, on_device, host, bytes);
    return on->backend->device->wait(on->device);
}

adamod_status nn_params_fetch_grad(const nn_params *p) {
    return p->on_device ? nn_params_read(p, p->grad, p->on_device->grad, full_bytes(p->on_device)) : ADAMOD_OK;
}

adamod_status nn_params_store_grad(nn_params *p) {
    return p->on_device ? nn_params_write(p, p->on_device->grad, p->grad, full_bytes(p->on_device)) : ADAMOD_OK;
}

adamod_status nn_params_fetch_states(const nn_params *p) {
    const nn_device_params *on = p->on_device;
    return on && on->states ? nn_params_read(p, p->state_data, on->states, state_bytes(on)) : ADAMOD_OK;
}

adamod_status nn_params_store_states(nn_params *p) {
    const nn_device_params *on = p->on_device;
    return on && on->states ? nn_params_write(p, on->states, p->state_data, state_bytes(on)) : ADAMOD_OK;
}

void nn_params_narrow(const nn_params *p) {
    const nn_device_params *on = p->on_device;
    if (on && on->half) on->backend->device->narrow(on->device, on->half, on->data, on->count);
}

float *nn_params_states(const nn_params *p) { return p->on_device ? p->on_device->states : p->state_data; }

nn_param_memory nn_params_memory(const nn_params *p, const nn_param *param) {
    const nn_device_params *on = p->on_device;
    if (!on) return (nn_param_memory){p->data + param->offset, p->grad + param->offset, NULL};
    return (nn_param_memory){on->data + param->offset, on->grad + param->offset,
                             on->half ? (char *)on->half + 2 * param->offset : NULL};
}

const char *nn_params_device(const nn_params *p) { return p->on_device ? p->on_device->name : "cpu"; }

void *nn_params_stream(const nn_params *p) {
    return p->on_device ? p->on_device->backend->device->stream(p->on_device->device) : NULL;
}

adamod_status nn_params_store(nn_params *p) {
    const nn_device_params *on = p->on_device;
    if (!on) return ADAMOD_OK;
    const nn_device_functions *f = on->backend->device;
    f->upload(on->device, on->data, p->data, full_bytes(on));
    if (on->half) f->narrow(on->device, on->half, on->data, p->count);
    if (on->states) f->upload(on->device, on->states, p->state_data, state_bytes(on));
    return f->wait(on->device);
}

/* ---- constants ---- */

static nn_device_array *find_constant(const nn_device_params *on, const void *host) {
    for (int i = 0; i < on->n_constants; i++) {
        if (on->constants[i].host == host) return &on->constants[i];
    }
    return NULL;
}

void *nn_device_constant(const nn_device_params *on, const void *host) {
    const nn_device_array *x = find_constant(on, host);
    return x ? x->data : NULL;
}

adamod_status nn_device_keep_constant(nn_device_params *on, const void *host, size_t bytes) {
    const nn_device_functions *f = on->backend->device;
    nn_device_array *known = find_constant(on, host);
    if (known) {
        known->plans++;
        return ADAMOD_OK;
    }
    if (!ARRAY_EXTEND(on->constants, on->n_constants))
        return adamod__fail(ADAMOD_ERROR_MEMORY, "out of memory for a constant");
    nn_device_array *x = &on->constants[on->n_constants];
    *x = (nn_device_array){.host = host, .bytes = bytes, .plans = 1};
    adamod_status status = f->allocate(on->device, &x->data, bytes);
    if (status) return status;
    f->upload(on->device, x->data, host, bytes);
    status = f->wait(on->device);
    if (status) f->release(on->device, x->data, bytes);
    else on->n_constants++;
    return status;
}

void nn_device_drop_constant(nn_device_params *on, const void *host) {
    nn_device_array *x = find_constant(on, host);
    if (!x || --x->plans > 0) return;
    on->backend->device->release(on->device, x->data, x->bytes);
    *x = on->constants[--on->n_constants];
}
