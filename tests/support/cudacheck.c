/* Device kernels under opcheck: see cudacheck.h. */
#include "cudacheck.h"
#include "nn/backend.h"
#include "support/random.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { GUARD = 256 };

static const nn_backend *backend;
static nn_device *device;
static const nn_kernels *kernels; /* of the op under test */
static nn_type value_type;
static nn_precision precision;
static bool intact, summed;

/* Memory of all calls, taken from its beginning by each. */
enum { ARENA = 1 << 28 };
static char *arena, *staging;
static size_t taken;

bool cudacheck_open(void) {
    void *memory = NULL, *host = NULL;
    if (device) return true;
    backend = nn_backend_find("cuda");
    if (!backend || backend->device->open(&device, 0)) return false;
    if (backend->device->allocate(device, &memory, ARENA) || backend->device->allocate_host(device, &host, ARENA)) {
        return false;
    }
    arena = memory;
    staging = host;
    return true;
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
    const size_t bytes = bytes_of(&m), size = (bytes + GUARD + 255) / 256 * 256;
    if (taken + size > ARENA) {
        printf("cudacheck: %zu bytes are too many\n", taken + size);
        exit(1);
    }
    m.raw = staging + taken;
    m.there = arena + taken;
    taken += size;
    memset(m.raw + bytes, 0xa5, GUARD);
    if (type == NN_BF16) {
        for (int64_t i = 0; i < n; i++) memcpy(m.raw + 2 * i, (char *)host + 4 * i + 2, 2);
    } else {
        memcpy(m.raw, host, bytes);
    }
    return m;
}

/* All arrays in one copy. */
static void exchange(bool up) {
    if (up) backend->device->upload(device, arena, staging, taken);
    else backend->device->download(device, staging, arena, taken);
    if (up || backend->device->wait(device) == ADAMOD_OK) return;
    printf("cudacheck: %s\n", adamod_last_error());
    exit(1);
}

static void give(mirror *m, bool written) {
    if (!m->host) return;
    const size_t bytes = bytes_of(m);
    for (size_t i = 0; i < GUARD; i++) intact = intact && (unsigned char)m->raw[bytes + i] == 0xa5;
    if (written && m->type == NN_BF16) {
        memset(m->host, 0, 4 * (size_t)m->n);
        for (int64_t i = 0; i < m->n; i++) memcpy((char *)m->host + 4 * i + 2, m->raw + 2 * i, 2);
    } else if (written) {
        memcpy(m->host, m->raw, bytes);
    }
}

/* ---- calls ---- */

static nn_type type_of_input(int i) {
    if (opcheck_current->input[i].type == NN_I32) return NN_I32;
    return opcheck_current->op->full_inputs >> i & 1 ? NN_F32 : value_type;
}

static nn_type type_of_output(int i) { return opcheck_current->op->full_outputs >> i & 1 ? NN_F32 : value_type; }

/* A parameter's gradient is f32: its rows are no symbol. */
static nn_type type_of_grad(int i) { return opcheck_current->input[i].shape.rows ? value_type : NN_F32; }

static void prepare(nn_call *c) {
    c->prepared = NULL;
    if (kernels->prepare && kernels->prepare(c, &c->prepared)) {
        printf("cudacheck: %s\n", adamod_last_error());
        exit(1);
    }
}

/* Kept from call to call, NaN before the first. */
typedef struct scratch {
    float *memory;
    size_t most;
} scratch;

static float *scratch_of(scratch *s, size_t floats) {
    const size_t bytes = floats * sizeof(float);
    if (floats <= s->most) return floats ? s->memory : NULL;
    void *grown = NULL, *nan = malloc(bytes);
    if (!nan || backend->device->allocate(device, &grown, bytes)) {
        printf("cudacheck: no memory for a kernel's own\n");
        exit(1);
    }
    memset(nan, 0xff, bytes);
    backend->device->upload(device, grown, nan, bytes);
    if (backend->device->wait(device)) exit(1);
    free(nan);
    if (s->memory) backend->device->release(device, s->memory, s->most * sizeof(float));
    s->memory = grown;
    s->most = floats;
    return s->memory;
}

/* ---- sums over rows ---- */

/* Room for the sums over rows of gradients, where the kernels give them and a plan would ask: where all of a gradient is
 * written. BEFORE is there, so that sums can be added to it. */
static const float BEFORE = 0.5f;

static mirror take_sums(const nn_call *c, int i) {
    static float *host[NN_MAX_INPUTS];
    if (!c->grad->input[i] || c->grad->accumulate[i] || !(kernels->row_sums & (1u << i))) return (mirror){0};
    free(host[i]);
    host[i] = malloc((size_t)c->input[i].cols * sizeof **host);
    for (int64_t j = 0; j < c->input[i].cols; j++) host[i][j] = BEFORE;
    return take(host[i], c->input[i].cols, NN_F32);
}

/* The gradients are on the host. They may have been rounded to bf16 before they were summed, or after. */
static void check_sums(const nn_call *c, int i, const mirror *sums, bool added) {
    const double unit = type_of_grad(i) == NN_BF16 ? 0x1p-8 : 0x1p-24 * (8 + (double)c->input[i].rows);
    for (int64_t j = 0; sums->host && j < c->input[i].cols; j++) {
        double sum = added ? (double)BEFORE : 0, size = 1;
        for (int64_t k = 0; k < c->input[i].rows; k++) {
            const double x = (double)c->grad->input[i][k * c->input[i].cols + j];
            sum += x;
            size += fabs(x);
        }
        const double got = (double)((const float *)sums->host)[j];
        if (fabs(got - sum) <= unit * size) continue;
        if (summed) printf("cudacheck: column %lld of gradient %d sums to %g, not %g\n", (long long)j, i, sum, got);
        summed = false;
    }
}

/* ---- sums over processes ---- */

static void add_nothing(void *context, double *x, int64_t n) { (void)context, (void)x, (void)n; }

/* Adds the sums of a second process with the same batch: means do not change. */
static void add_the_same(void *context, double *x, int64_t n) {
    double *copy = calloc((size_t)n, sizeof *copy);
    (void)context;
    if (!copy) exit(1);
    backend->device->download(device, copy, x, (size_t)n * sizeof *copy);
    if (backend->device->wait(device)) exit(1);
    for (int64_t i = 0; i < n; i++) copy[i] *= 2;
    backend->device->upload(device, x, copy, (size_t)n * sizeof *copy);
    if (backend->device->wait(device)) exit(1);
    free(copy);
}

/* ---- a call ---- */

/* The array that a forward pass saved: the op's part, and what its kernels keep behind that from call to call. */
static float *saved_on_host(const nn_call *c, int64_t own, int64_t all) {
    static float *memory;
    static int64_t room;
    if (all > room) {
        memory = realloc(memory, (size_t)all * sizeof *memory);
        room = all;
    }
    if (c->saved) memcpy(memory, c->saved, (size_t)own * sizeof *memory);
    return c->saved ? memory : NULL;
}

static void call_device(const nn_call *c, bool backward) {
    static scratch workspace, partials;
    unsigned written = 0; /* inputs */
    nn_call d = *c;
    nn_gradients on_device = *c->grad;
    nn_on_device there = {.stream = backend->device->stream(device), .precision = precision};
    nn_sync sync = *c->sync;
    mirror in[NN_MAX_INPUTS], grad[NN_MAX_INPUTS], sums[NN_MAX_INPUTS], random;
    mirror out[NN_MAX_OUTPUTS], out_grad[NN_MAX_OUTPUTS];
    const uint64_t key = nn_run_key(opcheck_current->seed, 3);
    d.grad = &on_device;
    d.device = &there;
    d.sync = &sync;
    taken = 0;
    for (int i = 0; i < NN_MAX_INPUTS; i++) {
        const int64_t n = opcheck_numbers(&c->input[i]);
        in[i] = take(c->input[i].data, n, c->input[i].data ? type_of_input(i) : NN_F32);
        grad[i] = take(backward ? c->grad->input[i] : NULL, n, c->grad->input[i] ? type_of_grad(i) : NN_F32);
        d.input[i].data = in[i].there;
        d.input[i].type = in[i].type;
        on_device.input[i] = grad[i].there;
        on_device.type[i] = grad[i].type;
        sums[i] = backward ? take_sums(c, i) : (mirror){0};
        on_device.row_sums[i] = sums[i].there;
    }
    on_device.accumulate_sums = c->output[0].rows % 2;
    for (int i = 0; i < NN_MAX_OUTPUTS; i++) {
        const int64_t n = opcheck_numbers(&c->output[i]);
        const int alias = opcheck_current->op->aliases[i];
        out[i] = take(alias ? NULL : c->output[i].data, n, type_of_output(i));
        out_grad[i] = take(backward ? c->grad->output[i] : NULL, n, type_of_output(i));
        d.output[i].data = alias ? in[alias - 1].there : out[i].there;
        d.output[i].type = alias ? in[alias - 1].type : out[i].type;
        on_device.output[i] = out_grad[i].there;
        written |= alias ? 1u << (alias - 1) : 0;
    }
    const int64_t own = (int64_t)opcheck_saved_bytes / 4,
                  all = own + (kernels->extra_saved ? (int64_t)kernels->extra_saved(&d) : 0);
    mirror saved = take(saved_on_host(c, own, all), all, NN_F32);
    random = take((void *)(uintptr_t)&key, 2, NN_I32);
    d.saved = saved.there;
    there.random = random.there;
    if (opcheck_current->op == &nn_op_batch_norm && opcheck_current->attributes.batch_norm.synced)
        sync.add_up = backward ? add_the_same : add_nothing;
    prepare(&d);
    d.workspace = scratch_of(&workspace, kernels->workspace ? kernels->workspace(&d) : 0);
    on_device.partials = scratch_of(&partials, backward && kernels->partials ? kernels->partials(&d) : 0);
    exchange(true);
    (backward ? kernels->backward : kernels->forward)(&d);
    if (backward && kernels->backward_weights) kernels->backward_weights(&d);
    exchange(false);
    for (int i = 0; i < NN_MAX_INPUTS; i++) {
        give(&in[i], !backward && (written >> i & 1));
        give(&grad[i], true);
        give(&sums[i], true);
        check_sums(c, i, &sums[i], on_device.accumulate_sums);
    }
    for (int i = 0; i < NN_MAX_OUTPUTS; i++) {
        give(&out[i], !backward);
        give(&out_grad[i], false);
    }
    give(&saved, !backward);
    if (!backward && c->saved) memcpy(c->saved, saved.host, opcheck_saved_bytes);
    give(&random, false);
    if (kernels->release) kernels->release(d.prepared);
}

static void forward(const nn_call *c) { call_device(c, false); }
static void backward(const nn_call *c) { call_device(c, true); }

static bool check(const opcheck *o, nn_type type) {
    opcheck copy = *o;
    copy.bf16 = type == NN_BF16;
    value_type = type;
    kernels = nn_backend_kernels(backend, o->op->name);
    intact = summed = true;
    const nn_kernels shim = {.forward = forward, .backward = kernels->backward ? backward : NULL};
    const bool ok = opcheck_kernels(&copy, &shim);
    if (!intact) printf("cudacheck: %s wrote behind the end of an array\n", o->op->name);
    if (!ok || !intact || !summed)
        printf("cudacheck: %s with %s values\n", o->op->name, type == NN_BF16 ? "bf16" : "f32");
    return ok && intact && summed;
}

bool cudacheck(const opcheck *o, nn_type type) {
    precision = type == NN_BF16 ? NN_MIXED : NN_FULL;
    return check(o, type);
}

bool cudacheck_tf32(const opcheck *o) {
    precision = NN_TF32;
    return check(o, NN_F32);
}
