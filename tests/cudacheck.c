/* Device kernels under opcheck: see cudacheck.h. */
#include "cudacheck.h"
#include "backend.h"
#include "check.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { GUARD = 256 };

static const nn_backend *backend;
static nn_device *device;
static const nn_kernels *kernels; /* of the op under test */
static nn_type value_type;
static bool intact;

bool cudacheck_open(void) {
    if (!device) backend = nn_backend_find("cuda");
    return device || (backend && backend->device->open(&device, 0) == ADAMOD_OK);
}

void cudacheck_close(void) {
    if (device) backend->device->close(device);
    device = NULL;
}

/* ---- arrays there and back ---- */

typedef struct mirror {
    void *host, *there;
    char *raw; /* the device's bytes, on the host */
    int64_t n;
    nn_type type;
} mirror;

static size_t bytes_of(const mirror *m) { return (size_t)m->n * (m->type == NN_BF16 ? 2 : 4); }

static mirror take(void *host, int64_t n, nn_type type) {
    mirror m = {.host = host, .n = n, .type = type};
    if (!host) return m;
    const size_t bytes = bytes_of(&m);
    m.raw = malloc(bytes + GUARD);
    if (!m.raw || backend->device->allocate(device, &m.there, bytes + GUARD)) {
        printf("cudacheck: %s\n", adamod_last_error());
        exit(1);
    }
    memset(m.raw + bytes, 0xa5, GUARD);
    if (type == NN_BF16) {
        for (int64_t i = 0; i < n; i++) memcpy(m.raw + 2 * i, (char *)host + 4 * i + 2, 2);
    } else {
        memcpy(m.raw, host, bytes);
    }
    backend->device->upload(device, m.there, m.raw, bytes + GUARD);
    return m;
}

static void give(mirror *m, bool written) {
    if (!m->host) return;
    const size_t bytes = bytes_of(m);
    backend->device->download(device, m->raw, m->there, bytes + GUARD);
    if (backend->device->wait(device)) {
        printf("cudacheck: %s\n", adamod_last_error());
        exit(1);
    }
    for (size_t i = 0; i < GUARD; i++) intact = intact && (unsigned char)m->raw[bytes + i] == 0xa5;
    if (written && m->type == NN_BF16) {
        memset(m->host, 0, 4 * (size_t)m->n);
        for (int64_t i = 0; i < m->n; i++) memcpy((char *)m->host + 4 * i + 2, m->raw + 2 * i, 2);
    } else if (written) {
        memcpy(m->host, m->raw, bytes);
    }
    backend->device->release(device, m->there, bytes + GUARD);
    free(m->raw);
}

/* ---- calls ---- */

static nn_type type_of_input(int i) { return opcheck_current->input[i].type == NN_I32 ? NN_I32 : value_type; }

static nn_type type_of_output(void) { return opcheck_current->op->full_output ? NN_F32 : value_type; }

/* A parameter's gradient is f32: its rows are no symbol. */
static nn_type type_of_grad(int i) { return opcheck_current->input[i].shape.rows ? value_type : NN_F32; }

static void prepare(nn_call *c) {
    c->prepared = NULL;
    if (kernels->prepare && kernels->prepare(c, &c->prepared)) {
        printf("cudacheck: %s\n", adamod_last_error());
        exit(1);
    }
}

static void call_device(const nn_call *c, bool backward) {
    nn_call d = *c;
    mirror in[NN_MAX_INPUTS], grad[NN_MAX_INPUTS], random, workspace = {0};
    const uint64_t key[2] = {opcheck_current->seed, 3};
    const bool in_place = c->output.data == c->input[0].data;
    for (int i = 0; i < NN_MAX_INPUTS; i++) {
        const int64_t n = c->input[i].rows * c->input[i].cols;
        in[i] = take(c->input[i].data, n, c->input[i].data ? type_of_input(i) : NN_F32);
        grad[i] = take(backward ? c->input_grad[i] : NULL, n, c->input_grad[i] ? type_of_grad(i) : NN_F32);
        d.input[i].data = in[i].there;
        d.input[i].type = in[i].type;
        d.input_grad[i] = grad[i].there;
        d.input_grad_type[i] = grad[i].type;
    }
    mirror out = take(in_place ? NULL : c->output.data, c->output.rows * c->output.cols, type_of_output());
    mirror out_grad = take(backward ? c->output_grad : NULL, c->output.rows * c->output.cols, type_of_output());
    mirror saved = take(c->saved, (int64_t)opcheck_saved_bytes / 4, NN_F32);
    random = take((void *)(uintptr_t)key, 4, NN_I32);
    d.output.data = in_place ? in[0].there : out.there;
    d.output.type = in_place ? in[0].type : out.type;
    d.output_grad = out_grad.there;
    d.saved = saved.there;
    d.random = random.there;
    d.node = 0;
    d.stream = backend->device->stream(device);
    prepare(&d);
    const size_t floats = kernels->workspace ? kernels->workspace(&d) : 0;
    float *scratch = floats ? malloc(floats * sizeof *scratch) : NULL;
    if (scratch) memset(scratch, 0xff, floats * sizeof *scratch);
    workspace = take(scratch, (int64_t)floats, NN_F32);
    d.workspace = workspace.there;
    (backward ? kernels->backward : kernels->forward)(&d);
    for (int i = 0; i < NN_MAX_INPUTS; i++) {
        give(&in[i], in_place && i == 0);
        give(&grad[i], true);
    }
    give(&out, !backward);
    give(&out_grad, false);
    give(&saved, !backward);
    give(&random, false);
    give(&workspace, false);
    free(scratch);
    if (kernels->release) kernels->release(d.prepared);
}

static void forward(const nn_call *c) { call_device(c, false); }
static void backward(const nn_call *c) { call_device(c, true); }

bool cudacheck(const opcheck *o, nn_type type) {
    nn_op_id id = 0;
    while (nn_ops[id] != o->op) id++;
    opcheck copy = *o;
    copy.bf16 = type == NN_BF16;
    value_type = type;
    kernels = backend->kernels[id];
    intact = true;
    const nn_kernels shim = {.forward = forward, .backward = kernels->backward ? backward : NULL};
    const bool ok = opcheck_kernels(&copy, &shim);
    if (!intact) printf("cudacheck: %s wrote behind the end of an array\n", o->op->name);
    if (!ok || !intact) printf("cudacheck: %s with %s values\n", o->op->name, type == NN_BF16 ? "bf16" : "f32");
    return ok && intact;
}
