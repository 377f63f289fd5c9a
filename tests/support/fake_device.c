/* See fake_device.h. */
#include "fake_device.h"
#include "nn/device_params.h"

#include <stdlib.h>
#include <string.h>

int fake_device_sums;

struct nn_device {
    nn_device_info info;
};

static adamod_status device_open(nn_device **out, int index) {
    (void)index;
    *out = calloc(1, sizeof **out);
    return *out ? ADAMOD_OK : ADAMOD_ERROR_MEMORY;
}

static void device_close(nn_device *d) { free(d); }
static nn_device_info device_info(const nn_device *d) { return d->info; }
static void *device_stream(const nn_device *d) { return (void *)(uintptr_t)d; }

static adamod_status device_allocate(nn_device *d, void **out, size_t bytes) {
    (void)d;
    if (posix_memalign(out, 256, bytes + 256)) return ADAMOD_ERROR_MEMORY;
    memset(*out, 0, bytes);
    return ADAMOD_OK;
}

static void device_release(nn_device *d, void *memory, size_t bytes) {
    (void)d, (void)bytes;
    free(memory);
}

static void device_release_host(nn_device *d, void *memory) {
    (void)d;
    free(memory);
}

static void device_copy(nn_device *d, void *to, const void *from, size_t bytes) {
    (void)d;
    memcpy(to, from, bytes);
}

static adamod_status device_wait(nn_device *d) {
    (void)d;
    return ADAMOD_OK;
}

static adamod_status device_mark(nn_device *d, void **event) {
    *event = d;
    return ADAMOD_OK;
}

static adamod_status device_wait_for(nn_device *d, void *event) {
    (void)event;
    return device_wait(d);
}

static void device_forget(nn_device *d, void *event) { (void)d, (void)event; }

void fake_device_sum(const nn_sum *s) {
    for (int64_t j = 0; j < s->cols; j++) {
        double all = s->add ? (double)s->to[j] : 0;
        for (int64_t i = 0; i < s->n; i++) all += (double)s->partials[i * s->stride + j];
        s->to[j] = (float)all;
    }
}

static void device_sum(nn_device *d, int n, const nn_sum *sums) {
    (void)d;
    for (int i = 0; i < n; i++) fake_device_sum(&sums[i]);
    fake_device_sums += n;
}

/* To nearest, ties to even; not for NaN. */
static void device_narrow(nn_device *d, void *to, const float *from, int64_t n) {
    (void)d;
    for (int64_t i = 0; i < n; i++) {
        uint32_t bits;
        memcpy(&bits, &from[i], sizeof bits);
        const uint16_t half = (uint16_t)((bits + 0x7fffu + (bits >> 16 & 1)) >> 16);
        memcpy((char *)to + 2 * i, &half, sizeof half);
    }
}

const nn_device_functions fake_device_functions = {
    .open = device_open,
    .close = device_close,
    .info = device_info,
    .stream = device_stream,
    .allocate = device_allocate,
    .release = device_release,
    .allocate_host = device_allocate,
    .release_host = device_release_host,
    .upload = device_copy,
    .download = device_copy,
    .copy = device_copy,
    .narrow = device_narrow,
    .wait = device_wait,
    .mark = device_mark,
    .wait_for = device_wait_for,
    .forget = device_forget,
    .drop = device_forget,
    .sum = device_sum,
};

static adamod_status allocate(nn_device_params *on, float **out, int64_t n) {
    void *memory = NULL;
    const adamod_status status = device_allocate(on->device, &memory, (size_t)n * sizeof(float));
    if (!status) memset(memory, 0xff, (size_t)n * sizeof(float)); /* what is replaced may be anything */
    *out = memory;
    return status;
}

adamod_status fake_device_take(nn_params *p, const nn_backend *backend, nn_precision precision) {
    nn_device_params *on = calloc(1, sizeof *on);
    if (!on) return ADAMOD_ERROR_MEMORY;
    *on = (nn_device_params){
        .backend = backend, .name = "test:0", .precision = precision, .count = p->count, .state_count = p->state_count};
    p->on_device = on;
    adamod_status status = device_open(&on->device, 0);
    if (!status) status = allocate(on, &on->data, p->count);
    if (!status) status = allocate(on, &on->grad, p->count);
    if (!status && p->n_states) status = allocate(on, &on->states, p->state_count);
    if (!status && precision == NN_MIXED) status = device_allocate(on->device, &on->half, 2 * (size_t)p->count);
    return status ? status : nn_params_store(p);
}
