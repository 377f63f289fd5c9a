/* An optimizer on the CPU and its twin on a GPU: see cuda_pair.h. */
#include "cuda_pair.h"
#include "kernels/half.h"
#include "values.h"

#include <math.h>
#include <stdlib.h>

/* ---- the device ---- */

adamod_optimizer *owner;

const char *no_cuda(void) {
    static char why[512];
    if (owner || adamod_create_on(&owner, "sgd", "cuda") == ADAMOD_OK) return NULL;
    snprintf(why, sizeof why, "%s", adamod_last_error());
    return why;
}

int ok(adamod_status status) {
    if (status) printf("    %s\n", adamod_last_error());
    return status == ADAMOD_OK;
}

int device_ok(adamod_status status) {
    if (status) printf("    %s\n", owner->api->error());
    return status == ADAMOD_OK;
}

void *device_alloc(size_t bytes) {
    void *memory = NULL;
    DEVICE_OK(owner->api->alloc(owner->device, bytes, &memory));
    return memory;
}

void device_free(void *memory) { owner->api->release(owner->device, memory); }

void to_device(void *to, const void *from, size_t bytes) {
    if (bytes) DEVICE_OK(owner->api->copy_in(owner->device, to, from, bytes));
}

void to_host(void *to, const void *from, size_t bytes) {
    if (bytes) DEVICE_OK(owner->api->copy_out(owner->device, to, from, bytes));
}

/* ---- the same optimizer twice ---- */

static double near_of(const char *name, int ndim, const int64_t *shape, size_t count) {
    if (strncmp(name, "muon", 4) != 0 || ndim < 2 || count == 0) return 0;
    const double rows = (double)shape[0], cols = (double)count / rows;
    return sqrt(fmax(1, rows / cols)) / sqrt(fmax(rows, cols));
}

pair *pair_new(const char *name) {
    pair *x = calloc(1, sizeof *x);
    if (!x) abort();
    x->random = 12345;
    snprintf(x->what, sizeof x->what, "%s", name);
    OK(adamod_create(&x->cpu, name));
    OK(adamod_create_on(&x->gpu, name, "cuda"));
    return x;
}

void pair_free(pair *x) {
    adamod_free(x->cpu);
    adamod_free(x->gpu);
    for (int i = 0; i < x->n; i++) {
        free(x->arrays[i].p);
        free(x->arrays[i].g);
        for (int k = 0; k < 2; k++) device_free(x->arrays[i].device[k]);
    }
    free(x);
}

void pair_set_group(pair *x, int g, const char *options) {
    char text[256], *rest = text, *name, *value;
    snprintf(text, sizeof text, "%s", options);
    if (g < 0 && *text) snprintf(x->what + strlen(x->what), sizeof x->what - strlen(x->what), " %s", options);
    while (next_option(&rest, &name, &value)) {
        if (g < 0) {
            OK(adamod_set_text(x->cpu, name, value));
            OK(adamod_set_text(x->gpu, name, value));
        } else {
            OK(adamod_group_set_text(x->cpu, g, name, value));
            OK(adamod_group_set_text(x->gpu, g, name, value));
        }
    }
}

void pair_set(pair *x, const char *options) { pair_set_group(x, -1, options); }

void pair_schedule(pair *x, int g, const char *option, const char *text) {
    adamod_schedule *s;
    if (!OK(adamod_schedule_parse(&s, text))) return;
    OK(adamod_set_schedule(x->cpu, g, option, s));
    OK(adamod_set_schedule(x->gpu, g, option, s));
    adamod_schedule_free(s);
}

double pair_uniform(pair *x) {
    x->random = x->random * 6364136223846793005u + 1442695040888963407u;
    return (double)(int32_t)(x->random >> 32) * 0x1p-31;
}

void pair_put(adamod_type type, void *array, size_t i, double value) {
    const float f = (float)value;
    switch (type) {
        case ADAMOD_F32: ((float *)array)[i] = f; break;
        case ADAMOD_F64: ((double *)array)[i] = value; break;
        case ADAMOD_BF16: ((uint16_t *)array)[i] = (uint16_t)(adamod__to_bits(f) >> 16); break;
        case ADAMOD_F16: ((uint16_t *)array)[i] = adamod__f32_to_f16(f); break;
        case ADAMOD_Q8: ((uint8_t *)array)[i] = (uint8_t)f; break;
    }
}

void pair_add_at(pair *x, int g, adamod_type param, adamod_type grad, int ndim, const int64_t *shape, size_t shift) {
    pair_array *a = &x->arrays[x->n++];
    *a = (pair_array){.param_type = param, .grad_type = grad, .count = 1};
    adamod_tensor t = {.param_type = param, .grad_type = grad, .ndim = ndim};
    for (int d = 0; d < ndim; d++) a->count *= (size_t)(t.shape[d] = shape[d]);
    const size_t sizes[2] = {adamod__type_size(param), adamod__type_size(grad)};
    a->p = calloc(a->count + 1, sizes[0]);
    a->g = calloc(a->count + 1, sizes[1]);
    for (int k = 0; k < 2; k++) a->device[k] = device_alloc((a->count + shift + 1) * sizes[k]);
    a->device_p = (char *)a->device[0] + shift * sizes[0];
    a->device_g = (char *)a->device[1] + shift * sizes[1];
    for (size_t i = 0; i < a->count; i++) pair_put(param, a->p, i, pair_uniform(x));
    to_device(a->device_p, a->p, a->count * sizes[0]);
    t.param = a->p;
    t.grad = a->g;
    OK(adamod_add_tensor(x->cpu, g, &t, NULL));
    t.param = a->device_p;
    t.grad = a->device_g;
    OK(adamod_add_tensor(x->gpu, g, &t, NULL));
    x->loose = x->loose || param == ADAMOD_F64;
    a->near = near_of(x->what, ndim, shape, a->count);
}

void pair_add(pair *x, adamod_type type, int64_t count) { pair_add_at(x, 0, type, type, 1, &count, 0); }

void pair_send_grads(pair *x) {
    for (int k = 0; k < x->n; k++) {
        pair_array *a = &x->arrays[k];
        to_device(a->device_g, a->g, a->count * adamod__type_size(a->grad_type));
    }
}

void pair_grads(pair *x) {
    for (int k = 0; k < x->n; k++) {
        pair_array *a = &x->arrays[k];
        for (size_t i = 0; i < a->count; i++) {
            double g = pair_uniform(x) + 0.1;
            if (i % 37 == 5) g *= 100;
            if (i % 41 == 7) g *= 1e-6;
            if (i % 43 == 11) g = 0;
            pair_put(a->grad_type, a->g, i, g);
        }
    }
    pair_send_grads(x);
}

void pair_step(pair *x) {
    OK(adamod_step(x->cpu));
    OK(adamod_step(x->gpu));
}

/* ---- whether both are the same ---- */

double pair_value(adamod_type type, const void *array, size_t i) {
    switch (type) {
        case ADAMOD_F32: return (double)((const float *)array)[i];
        case ADAMOD_F64: return ((const double *)array)[i];
        case ADAMOD_BF16: return (double)adamod__from_bits((uint32_t)((const uint16_t *)array)[i] << 16);
        case ADAMOD_F16: return (double)adamod__f16_to_f32(((const uint16_t *)array)[i]);
        case ADAMOD_Q8: return (double)((const uint8_t *)array)[i]; /* the code */
    }
    return 0;
}

/* Several steps' distance, and one in the last place. */
static double allowance(const pair *x, int index, adamod_type type, double value) {
    static const double places[] = {[ADAMOD_F32] = 0x1p-23,
                                    [ADAMOD_F64] = 0x1p-52,
                                    [ADAMOD_BF16] = 0x1p-7,
                                    [ADAMOD_F16] = 0x1p-10,
                                    [ADAMOD_Q8] = 0};
    const double lr = x->cpu->groups[x->cpu->tensors[index].group].options[OPT_LR];
    return (double)adamod_steps(x->cpu) * lr * x->arrays[index].near + places[type] * fabs(value);
}

static bool same_value(const pair *x, int index, adamod_type type, const void *a, const void *b, size_t i) {
    const size_t size = adamod__type_size(type);
    if (memcmp((const char *)a + i * size, (const char *)b + i * size, size) == 0) return true;
    const double u = pair_value(type, a, i), v = pair_value(type, b, i);
    if (isnan(u) && isnan(v)) return true;
    if (x->arrays[index].near > 0 && fabs(u - v) <= allowance(x, index, type, u)) return true;
    return x->loose && type == ADAMOD_F64 && fabs(u - v) <= 1e-12 * fmax(fabs(u), fabs(v)) + 1e-20;
}

int same_array(const pair *x, const char *what, int index, adamod_type type, const void *host, const void *device,
               size_t count) {
    const size_t bytes = count * adamod__type_size(type);
    char *copy = malloc(bytes + 1);
    to_host(copy, device, bytes);
    size_t wrong = 0, first = 0;
    for (size_t i = 0; i < count; i++) {
        if (same_value(x, index, type, host, copy, i)) continue;
        if (!wrong++) first = i;
    }
    if (wrong) {
        printf("    %s: %s of array %d (%s, %zu elements): %zu differ, first %zu: %.17g on the CPU, %.17g on the GPU\n",
               x->what, what, index, adamod__type_name(type), count, wrong, first, pair_value(type, host, first),
               pair_value(type, copy, first));
    }
    free(copy);
    return wrong == 0;
}

int pair_same(pair *x) {
    int same = 1;
    for (int k = 0; k < x->n && same; k++) {
        const pair_array *a = &x->arrays[k];
        same = same_array(x, "the parameters", k, a->param_type, a->p, a->device_p, a->count) && same;
        state_ref s;
        for (int i = 0; adamod__state_ref(x->cpu, &x->cpu->tensors[k], i, &s); i++) {
            void *device = NULL;
            same = ok(adamod_state(x->gpu, k, s.name, &device, NULL, NULL)) && same;
            if (s.bytes) same = same_array(x, s.name, k, s.type, *s.data, device, (size_t)s.desc.count) && same;
        }
        int64_t cpu = 0, gpu = 0;
        same = ok(adamod_tensor_steps(x->cpu, k, &cpu)) && ok(adamod_tensor_steps(x->gpu, k, &gpu)) && same;
        if (cpu != gpu) printf("    %s: array %d: %lld steps and %lld\n", x->what, k, (long long)cpu, (long long)gpu);
        same = same && cpu == gpu;
    }
    return same && adamod_steps(x->cpu) == adamod_steps(x->gpu) && adamod_skipped(x->cpu) == adamod_skipped(x->gpu);
}

void pair_run(pair *x, int steps) {
    for (int t = 0; t < steps; t++) {
        pair_grads(x);
        pair_step(x);
    }
    CHECK(pair_same(x));
}

void pair_same_statistics(pair *x, int g) {
    adamod_statistics a, b;
    memset(&a, 0, sizeof a);
    memset(&b, 0, sizeof b);
    OK(adamod_get_statistics(x->cpu, g, &a));
    OK(adamod_get_statistics(x->gpu, g, &b));
    CHECK_INT(a.elements, b.elements);
    CHECK_INT(a.nonfinite, b.nonfinite);
    CHECK(memcmp(a.eta, b.eta, sizeof a.eta) == 0);
    CHECK(memcmp(a.step, b.step, sizeof a.step) == 0);
    CHECK(memcmp(a.idle_eta, b.idle_eta, sizeof a.idle_eta) == 0);
    CHECK(memcmp(a.idle_step, b.idle_step, sizeof a.idle_step) == 0);
    const double *u = &a.bounded, *v = &b.bounded;
    bool near = false; /* then so is the change of the parameters */
    for (int i = 0; i < x->n; i++) near = near || x->arrays[i].near > 0;
    if (near) CHECK_CLOSE(a.update_norm, b.update_norm, 0.05 * a.update_norm);
    for (int i = 0; i < (near ? 8 : 9); i++) {
        if (x->loose) CHECK_CLOSE(u[i], v[i], 1e-12 * fabs(u[i]));
        else if (!CHECK(u[i] == v[i])) printf("    %s: number %d: %.17g and %.17g\n", x->what, i, u[i], v[i]);
    }
}
