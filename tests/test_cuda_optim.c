/* The optimizers on a GPU give what the library gives on the CPU: the same bits, for every rule, type and option.
 * Skipped where there is no GPU. ADAMOD_TEST_LARGE=1 adds an array of more than 2^31 elements (70 GB on the device).
 *
 * SPDX-License-Identifier: MIT
 */
#define _GNU_SOURCE
#include "check.h"
#include "optimizer.h"
#include "kernels/half.h"

#include <math.h>
#include <stdlib.h>
#include <unistd.h>

/* ---- the device ---- */

static adamod_optimizer *owner; /* through which tests get at the device's memory */

static const char *no_cuda(void) {
    static char why[512];
    if (owner || adamod_create_on(&owner, "sgd", "cuda") == ADAMOD_OK) return NULL;
    snprintf(why, sizeof why, "%s", adamod_last_error());
    return why;
}
#define NEED_CUDA                                                                                                      \
    do {                                                                                                               \
        const char *why = no_cuda();                                                                                   \
        if (why) SKIP(why);                                                                                            \
    } while (0)

static int ok(adamod_status status) {
    if (status) printf("    %s\n", adamod_last_error());
    return status == ADAMOD_OK;
}
#define OK(call) CHECK(ok(call))

static int device_ok(adamod_status status) {
    if (status) printf("    %s\n", owner->api->error());
    return status == ADAMOD_OK;
}
#define DEVICE_OK(call) CHECK(device_ok(call))

static void *device_alloc(size_t bytes) {
    void *memory = NULL;
    DEVICE_OK(owner->api->alloc(owner->device, bytes, &memory));
    return memory;
}

static void device_free(void *memory) { owner->api->release(owner->device, memory); }

static void to_device(void *to, const void *from, size_t bytes) {
    if (bytes) DEVICE_OK(owner->api->copy_in(owner->device, to, from, bytes));
}

static void to_host(void *to, const void *from, size_t bytes) {
    if (bytes) DEVICE_OK(owner->api->copy_out(owner->device, to, from, bytes));
}

/* ---- the same optimizer twice ---- */

enum { MOST_ARRAYS = 1200 };

typedef struct pair_array {
    adamod_type param_type, grad_type;
    size_t count;
    void *p, *g;     /* on the host */
    void *device[2]; /* as allocated */
    void *device_p, *device_g;
    bool frozen;
} pair_array;

typedef struct pair {
    adamod_optimizer *cpu, *gpu;
    pair_array arrays[MOST_ARRAYS];
    int n;
    uint64_t random;
    char what[160]; /* for messages */
    bool loose;     /* f64: some last bits may differ */
} pair;

static double uniform(pair *x) {
    x->random = x->random * 6364136223846793005u + 1442695040888963407u;
    return (double)(int32_t)(x->random >> 32) * 0x1p-31;
}

static void put(adamod_type type, void *array, size_t i, double value) {
    const float f = (float)value;
    switch (type) {
        case ADAMOD_F32: ((float *)array)[i] = f; break;
        case ADAMOD_F64: ((double *)array)[i] = value; break;
        case ADAMOD_BF16: ((uint16_t *)array)[i] = (uint16_t)(adamod__to_bits(f) >> 16); break;
        case ADAMOD_F16: ((uint16_t *)array)[i] = adamod__f32_to_f16(f); break;
        case ADAMOD_Q8: ((uint8_t *)array)[i] = (uint8_t)f; break;
    }
}

static double value_at(adamod_type type, const void *array, size_t i) {
    switch (type) {
        case ADAMOD_F32: return (double)((const float *)array)[i];
        case ADAMOD_F64: return ((const double *)array)[i];
        case ADAMOD_BF16: return (double)adamod__from_bits((uint32_t)((const uint16_t *)array)[i] << 16);
        case ADAMOD_F16: return (double)adamod__f16_to_f32(((const uint16_t *)array)[i]);
        case ADAMOD_Q8: return (double)((const uint8_t *)array)[i]; /* the code */
    }
    return 0;
}

static pair *pair_new(const char *name) {
    pair *x = calloc(1, sizeof *x);
    if (!x) abort();
    x->random = 12345;
    snprintf(x->what, sizeof x->what, "%s", name);
    OK(adamod_create(&x->cpu, name));
    OK(adamod_create_on(&x->gpu, name, "cuda"));
    return x;
}

static void pair_free(pair *x) {
    adamod_free(x->cpu);
    adamod_free(x->gpu);
    for (int i = 0; i < x->n; i++) {
        free(x->arrays[i].p);
        free(x->arrays[i].g);
        for (int k = 0; k < 2; k++) device_free(x->arrays[i].device[k]);
    }
    free(x);
}

/* "lr=0.1 momentum=0.9" */
static void pair_set_group(pair *x, int g, const char *options) {
    char text[256];
    snprintf(text, sizeof text, "%s", options);
    if (g < 0 && *text) snprintf(x->what + strlen(x->what), sizeof x->what - strlen(x->what), " %s", options);
    for (char *word = strtok(text, " "); word; word = strtok(NULL, " ")) {
        char *value = strchr(word, '=');
        *value++ = '\0';
        if (g < 0) {
            OK(adamod_set_text(x->cpu, word, value));
            OK(adamod_set_text(x->gpu, word, value));
        } else {
            OK(adamod_group_set_text(x->cpu, g, word, value));
            OK(adamod_group_set_text(x->gpu, g, word, value));
        }
    }
}

static void pair_set(pair *x, const char *options) { pair_set_group(x, -1, options); }

/* A parameter whose arrays on the device begin so many elements after an aligned address. */
static void pair_add_at(pair *x, int g, adamod_type param, adamod_type grad, int ndim, const int64_t *shape,
                        size_t shift) {
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
    for (size_t i = 0; i < a->count; i++) put(param, a->p, i, uniform(x));
    to_device(a->device_p, a->p, a->count * sizes[0]);
    t.param = a->p;
    t.grad = a->g;
    OK(adamod_add_tensor(x->cpu, g, &t, NULL));
    t.param = a->device_p;
    t.grad = a->device_g;
    OK(adamod_add_tensor(x->gpu, g, &t, NULL));
    x->loose = x->loose || param == ADAMOD_F64;
}

static void pair_add(pair *x, adamod_type type, int64_t count) { pair_add_at(x, 0, type, type, 1, &count, 0); }

static void pair_send_grads(pair *x) {
    for (int k = 0; k < x->n; k++) {
        pair_array *a = &x->arrays[k];
        to_device(a->device_g, a->g, a->count * adamod__type_size(a->grad_type));
    }
}

/* Ordinary gradients, some large, some tiny, some zero. */
static void pair_grads(pair *x) {
    for (int k = 0; k < x->n; k++) {
        pair_array *a = &x->arrays[k];
        for (size_t i = 0; i < a->count; i++) {
            double g = uniform(x) + 0.1;
            if (i % 37 == 5) g *= 100;
            if (i % 41 == 7) g *= 1e-6;
            if (i % 43 == 11) g = 0;
            put(a->grad_type, a->g, i, g);
        }
    }
    pair_send_grads(x);
}

static void pair_step(pair *x) {
    OK(adamod_step(x->cpu));
    OK(adamod_step(x->gpu));
}

static bool same_value(const pair *x, adamod_type type, const void *a, const void *b, size_t i) {
    const size_t size = adamod__type_size(type);
    if (memcmp((const char *)a + i * size, (const char *)b + i * size, size) == 0) return true;
    const double u = value_at(type, a, i), v = value_at(type, b, i);
    if (isnan(u) && isnan(v)) return true;
    return x->loose && type == ADAMOD_F64 && fabs(u - v) <= 1e-12 * fmax(fabs(u), fabs(v)) + 1e-20;
}

static int same_array(const pair *x, const char *what, int index, adamod_type type, const void *host,
                      const void *device, size_t count) {
    const size_t bytes = count * adamod__type_size(type);
    char *copy = malloc(bytes + 1);
    to_host(copy, device, bytes);
    size_t wrong = 0, first = 0;
    for (size_t i = 0; i < count; i++) {
        if (same_value(x, type, host, copy, i)) continue;
        if (!wrong++) first = i;
    }
    if (wrong) {
        printf("    %s: %s of array %d (%s, %zu elements): %zu differ, first %zu: %.17g on the CPU, %.17g on the GPU\n",
               x->what, what, index, adamod__type_name(type), count, wrong, first, value_at(type, host, first),
               value_at(type, copy, first));
    }
    free(copy);
    return wrong == 0;
}

static int pair_same(pair *x) {
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

static void pair_run(pair *x, int steps) {
    for (int t = 0; t < steps; t++) {
        pair_grads(x);
        pair_step(x);
    }
    CHECK(pair_same(x));
}

static void same_statistics(pair *x, int g) {
    adamod_statistics a, b;
    memset(&a, 0, sizeof a);
    memset(&b, 0, sizeof b);
    OK(adamod_get_statistics(x->cpu, g, &a));
    OK(adamod_get_statistics(x->gpu, g, &b));
    CHECK_INT(a.elements, b.elements);
    CHECK(memcmp(a.eta, b.eta, sizeof a.eta) == 0);
    CHECK(memcmp(a.step, b.step, sizeof a.step) == 0);
    const double *u = &a.bounded, *v = &b.bounded;
    for (int i = 0; i < 9; i++) {
        if (x->loose) CHECK_CLOSE(u[i], v[i], 1e-12 * fabs(u[i]));
        else if (!CHECK(u[i] == v[i])) printf("    %s: number %d: %.17g and %.17g\n", x->what, i, u[i], v[i]);
    }
}

/* ---- rules, sizes, options ---- */

TEST(every_rule_gives_the_same_bits) {
    NEED_CUDA;
    static const int64_t sizes[] = {1, 2, 3, 31, 255, 256, 257, 2047, 2048, 2049, 4096, 100003};
    for (int r = 0; adamod_rule_name(r); r++) {
        pair *x = pair_new(adamod_rule_name(r));
        for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) pair_add(x, ADAMOD_F32, sizes[i]);
        pair_add_at(x, 0, ADAMOD_F32, ADAMOD_F32, 2, (int64_t[]){37, 29}, 0);
        pair_add_at(x, 0, ADAMOD_F32, ADAMOD_F32, 4, (int64_t[]){6, 5, 3, 3}, 0);
        pair_add_at(x, 0, ADAMOD_F32, ADAMOD_F32, 2, (int64_t[]){130, 1030}, 0);
        pair_add_at(x, 0, ADAMOD_F32, ADAMOD_F32, 0, NULL, 0);
        pair_add(x, ADAMOD_F32, 0);
        pair_run(x, 12);
        pair_free(x);
    }
}

static const char *const variants[][2] = {
    {"adamod", "flavour=published weight_decay=0.01"},
    {"adamod", "flavour=keras beta3=0.9 decay=independent weight_decay=0.001"},
    {"adamod", "beta3=0 eps=0.001"},
    {"adam", "flavour=published maximize=1"},
    {"adam", "decay=l2 weight_decay=0.1 clip_value=0.5"},
    {"amsgrad", "bias_correction=0"},
    {"sgd", "momentum=0.9 dampening=0.1 weight_decay=0.01"},
    {"sgd", "momentum=0.9 nesterov=1"},
    {"adagrad", "initial=0.1 lr_decay=0.01"},
    {"rmsprop", "momentum=0.9"},
    {"rmsprop", "centered=1"},
    {"rmsprop", "centered=1 momentum=0.5 weight_decay=0.01"},
    {"adadelta", "rho=0.95"},
    {"adabound", "gamma=0.01 final_lr=0.5"},
    {"amsbound", "weight_decay=0.01"},
    {"adashift", "window=3"},
    {"adashift", "window=3 spatial=none weight_decay=0.1"},
    {"nosadam", "gamma=1 bias_correction=0"},
    {"nosadam", "gamma=0.5"},
    {"adafactor", "beta1=0.9 weight_decay=0.01"},
    {"adafactor", "relative_step=0 lr=0.01 scale_parameter=0"},
    {"adafactor", "warmup_init=1 decay=l2 weight_decay=0.01 clip_threshold=0.5"},
    {"radam", "beta2=0.99"},
};

TEST(options_of_rules) {
    NEED_CUDA;
    for (size_t i = 0; i < sizeof variants / sizeof *variants; i++) {
        pair *x = pair_new(variants[i][0]);
        pair_set(x, variants[i][1]);
        pair_add(x, ADAMOD_F32, 5000);
        pair_add(x, ADAMOD_F32, 33);
        pair_add_at(x, 0, ADAMOD_F32, ADAMOD_F32, 2, (int64_t[]){64, 700}, 0);
        pair_run(x, 10);
        pair_free(x);
    }
}

/* Past the 64 terms that NosAdam adds one by one, and where RAdam is rectified. */
TEST(many_steps) {
    NEED_CUDA;
    for (int r = 0; adamod_rule_name(r); r++) {
        pair *x = pair_new(adamod_rule_name(r));
        pair_set(x, "weight_decay=0.001");
        pair_add(x, ADAMOD_F32, 2100);
        pair_run(x, getenv("ADAMOD_TEST_FAST") ? 70 : 150);
        pair_free(x);
    }
}

TEST(unaligned_arrays) {
    NEED_CUDA;
    static const adamod_type types[] = {ADAMOD_F32, ADAMOD_BF16, ADAMOD_F16, ADAMOD_F64};
    pair *x = pair_new("adamod");
    for (int i = 0; i < 4; i++) {
        for (size_t shift = 1; shift < 4; shift++) {
            pair_add_at(x, 0, types[i], types[i], 1, &(int64_t){7001}, shift);
        }
    }
    pair_run(x, 5);
    pair_free(x);
}

TEST(every_type) {
    NEED_CUDA;
    static const char *const rules[] = {"adamod", "sgd", "rmsprop", "adashift", "adafactor", "amsgrad"};
    static const char *const extra[] = {"", "momentum=0.9", "centered=1", "window=2", "beta1=0.9", ""};
    static const char *const modes[] = {"", "low_precision=stochastic", "state_type=bf16",
                                        "low_precision=stochastic state_type=bf16 seed=99"};
    for (int r = 0; r < 6; r++) {
        for (int mode = 0; mode < 4; mode++) {
            pair *x = pair_new(rules[r]);
            pair_set(x, modes[mode]);
            pair_set(x, extra[r]);
            for (int p = 0; p < 4; p++) {
                for (int g = 0; g < 4; g++) {
                    pair_add_at(x, 0, (adamod_type)p, (adamod_type)g, 2, (int64_t[]){5, 1000}, 0);
                    pair_add_at(x, 0, (adamod_type)p, (adamod_type)g, 1, &(int64_t){513}, 0);
                }
            }
            pair_run(x, 6);
            pair_free(x);
        }
    }
}

TEST(states_in_8_bits) {
    NEED_CUDA;
    static const char *const rules[][2] = {
        {"adamod", ""}, {"adam", "weight_decay=0.01"}, {"sgd", "momentum=0.9 nesterov=1"}, {"sgd", ""}};
    static const int64_t sizes[] = {1, 31, 255, 256, 257, 511, 513, 2048, 2049, 5000, 100003};
    static const adamod_type types[] = {ADAMOD_F32, ADAMOD_BF16, ADAMOD_F16, ADAMOD_F64};
    for (int r = 0; r < 4; r++) {
        for (int collect = 0; collect < 2; collect++) {
            pair *x = pair_new(rules[r][0]);
            pair_set(x, "state_type=q8 seed=5");
            pair_set(x, rules[r][1]);
            for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) pair_add(x, ADAMOD_F32, sizes[i]);
            for (int t = 0; t < 4; t++) {
                pair_add(x, types[t], 3000);
                pair_add_at(x, 0, types[t], types[t], 1, &(int64_t){4099}, 1);
            }
            OK(adamod_collect(x->cpu, collect));
            OK(adamod_collect(x->gpu, collect));
            pair_run(x, 12);
            if (collect) same_statistics(x, -1);
            ((float *)x->arrays[9].g)[300] = NAN; /* its block is lost, the others are not */
            pair_send_grads(x);
            pair_step(x);
            pair_run(x, 2);
            pair_free(x);
        }
    }
}

/* A block of zeros, then blocks of ever larger gradients: some are updated the quick way, and some are not. */
static void pair_grads_of_every_size(pair *x) {
    for (int k = 0; k < x->n; k++) {
        pair_array *a = &x->arrays[k];
        for (size_t i = 0; i < a->count; i++) {
            const int lot = (int)(i / 256) % 64;
            put(a->grad_type, a->g, i, lot == 0 ? 0 : uniform(x) * pow(10, lot - 32));
        }
    }
    pair_send_grads(x);
}

TEST(blocks_of_every_size) {
    NEED_CUDA;
    static const char *const rules[][2] = {{"adamod", ""},
                                           {"adamod", "eps=0"},
                                           {"adamod", "lr=0"},
                                           {"adamod", "lr=1e-25"},
                                           {"adam", "clip_value=1e5 decay=l2 weight_decay=0.1"},
                                           {"adam", "weight_decay=0.1 eps=1e-30"},
                                           {"sgd", "momentum=0.9"}};
    for (size_t r = 0; r < sizeof rules / sizeof *rules; r++) {
        for (int q8 = 0; q8 < 2; q8++) {
            pair *x = pair_new(rules[r][0]);
            pair_set(x, q8 ? "state_type=q8" : "state_type=bf16 low_precision=stochastic");
            pair_set(x, rules[r][1]);
            pair_add(x, q8 ? ADAMOD_F32 : ADAMOD_BF16, 256 * 64 * 2 + 77);
            pair_add(x, q8 ? ADAMOD_F32 : ADAMOD_BF16, 8192);
            for (int t = 0; t < 4; t++) {
                pair_grads_of_every_size(x);
                pair_step(x);
            }
            CHECK(pair_same(x));
            pair_free(x);
        }
    }
}

TEST(many_small_arrays) {
    NEED_CUDA;
    pair *x = pair_new("adamod");
    for (int i = 0; i < 1000; i++) pair_add(x, ADAMOD_F32, 1 + i % 97);
    pair_run(x, 3);
    pair_free(x);
}

/* ---- gradients ---- */

TEST(clipping_and_scaling) {
    NEED_CUDA;
    static const char *const modes[] = {"clip_norm=1", "clip_norm=1000000", "grad_scale=0.001 clip_norm=0.1",
                                        "grad_scale=128 clip_value=3", "nonfinite=skip"};
    for (int i = 0; i < 5; i++) {
        pair *x = pair_new("adamod");
        pair_set(x, modes[i]);
        pair_add(x, ADAMOD_F32, 100003);
        pair_add_at(x, 0, ADAMOD_BF16, ADAMOD_BF16, 1, &(int64_t){9001}, 0);
        pair_add_at(x, 0, ADAMOD_F16, ADAMOD_F16, 1, &(int64_t){700}, 1);
        pair_add_at(x, 0, ADAMOD_F64, ADAMOD_F64, 1, &(int64_t){20000}, 0);
        for (int t = 0; t < 4; t++) {
            pair_grads(x);
            pair_step(x);
            CHECK(adamod_grad_norm(x->cpu) == adamod_grad_norm(x->gpu));
        }
        CHECK(pair_same(x));
        pair_free(x);
    }
}

/* Squares of these overflow, or vanish. */
TEST(norms_beyond_the_range_of_squares) {
    NEED_CUDA;
    static const double scales[] = {1e200, 1e-200, 0};
    for (int i = 0; i < 3; i++) {
        pair *x = pair_new("sgd");
        pair_set(x, "clip_norm=1");
        pair_add(x, ADAMOD_F64, 10000);
        pair_add(x, ADAMOD_F32, 3000);
        pair_grads(x);
        for (size_t k = 0; k < x->arrays[0].count; k++) ((double *)x->arrays[0].g)[k] *= scales[i];
        for (size_t k = 0; k < x->arrays[1].count; k++) ((float *)x->arrays[1].g)[k] = 0;
        pair_send_grads(x);
        pair_step(x);
        CHECK(adamod_grad_norm(x->cpu) == adamod_grad_norm(x->gpu));
        CHECK(pair_same(x));
        pair_free(x);
    }
}

TEST(gradients_that_are_not_finite) {
    NEED_CUDA;
    static const float bad[] = {NAN, INFINITY, -INFINITY};
    for (int i = 0; i < 3; i++) {
        pair *x = pair_new("adamod");
        pair_set(x, "nonfinite=skip clip_norm=5");
        pair_add(x, ADAMOD_F32, 5000);
        pair_add(x, ADAMOD_F32, 100);
        pair_run(x, 2);
        pair_grads(x);
        ((float *)x->arrays[1].g)[42] = bad[i];
        pair_send_grads(x);
        pair_step(x);
        CHECK_INT(adamod_skipped(x->gpu), 1);
        CHECK(pair_same(x));
        pair_run(x, 2);
        CHECK_INT(adamod_steps(x->gpu), 4);
        pair_set(x, "nonfinite=pass");
        pair_grads(x);
        ((float *)x->arrays[1].g)[42] = bad[i];
        pair_send_grads(x);
        pair_step(x);
        CHECK(pair_same(x));
        pair_free(x);
    }
}

TEST(gradients_beyond_f32) {
    NEED_CUDA;
    static const struct {
        const char *options;
        double g;
        int skipped;
    } cases[] = {{"", 1e300, 1},
                 {"clip_norm=1", 1e300, 1},
                 {"", 3.4e38, 0},
                 {"grad_scale=1e30", 1e10, 1},
                 {"grad_scale=1e30 clip_norm=1", 1e10, 0}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        pair *x = pair_new("sgd");
        pair_set(x, "nonfinite=skip");
        pair_set(x, cases[i].options);
        pair_add_at(x, 0, ADAMOD_F32, ADAMOD_F64, 1, &(int64_t){700}, 0);
        for (size_t k = 0; k < 700; k++) ((double *)x->arrays[0].g)[k] = k == 600 ? cases[i].g : 0;
        pair_send_grads(x);
        pair_step(x);
        CHECK(pair_same(x));
        CHECK_INT(adamod_skipped(x->gpu), cases[i].skipped);
        pair_free(x);
    }
}

TEST(an_error_is_reported_once_and_nothing_changes) {
    NEED_CUDA;
    pair *x = pair_new("adamod");
    pair_set(x, "nonfinite=error");
    pair_add(x, ADAMOD_F32, 5000);
    pair_add(x, ADAMOD_F32, 3000);
    pair_run(x, 2);
    pair_grads(x);
    ((float *)x->arrays[1].g)[2999] = NAN;
    pair_send_grads(x);
    CHECK_INT(adamod_step(x->cpu), ADAMOD_ERROR_NONFINITE);
    char expected[256];
    snprintf(expected, sizeof expected, "%s", adamod_last_error());
    OK(adamod_step(x->gpu));
    CHECK_INT(adamod_sync(x->gpu), ADAMOD_ERROR_NONFINITE);
    CHECK_STR(adamod_last_error(), expected);
    OK(adamod_sync(x->gpu));
    CHECK(pair_same(x));
    OK(adamod_step(x->gpu)); /* the same gradients once more: the next step says so */
    DEVICE_OK(x->gpu->api->sync(x->gpu->device));
    CHECK_INT(adamod_step(x->gpu), ADAMOD_ERROR_NONFINITE);
    pair_run(x, 2);
    pair_free(x);
}

/* ---- groups, schedules, freezing ---- */

static void pair_schedule(pair *x, int g, const char *option, const char *text) {
    adamod_schedule *s;
    if (!OK(adamod_schedule_parse(&s, text))) return;
    OK(adamod_set_schedule(x->cpu, g, option, s));
    OK(adamod_set_schedule(x->gpu, g, option, s));
    adamod_schedule_free(s);
}

TEST(schedules) {
    NEED_CUDA;
    static const char *const texts[] = {"constant",          "multistep(3,6,9;0.1)",
                                        "warmup(1e-7,5)",    "warmup_rsqrt(1e-7,4)",
                                        "constant_rsqrt(4)", "cosine(0,8)",
                                        "linear(0.1,7)",     "warmup(0,3)*3 > multistep(2;0.5)*4 > cosine(1e-5,5)"};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        pair *x = pair_new("adamod");
        pair_add(x, ADAMOD_F32, 3000);
        pair_schedule(x, -1, "lr", texts[i]);
        pair_schedule(x, -1, "beta3", "linear(0.9999,10)");
        snprintf(x->what, sizeof x->what, "%s", texts[i]);
        pair_run(x, 12);
        double cpu = 0, gpu = 1;
        OK(adamod_scheduled(x->cpu, 0, "lr", &cpu));
        OK(adamod_scheduled(x->gpu, 0, "lr", &gpu));
        CHECK(cpu == gpu);
        pair_set(x, "lr=0.002");
        pair_run(x, 3);
        pair_free(x);
    }
}

TEST(a_schedule_out_of_bounds_is_an_error) {
    NEED_CUDA;
    pair *x = pair_new("adamod");
    pair_add(x, ADAMOD_F32, 300);
    pair_schedule(x, -1, "beta1", "linear(1,2)");
    pair_run(x, 1);
    pair_grads(x);
    CHECK_INT(adamod_step(x->cpu), ADAMOD_ERROR_RANGE);
    OK(adamod_step(x->gpu));
    CHECK_INT(adamod_sync(x->gpu), ADAMOD_ERROR_RANGE);
    CHECK_HAS(adamod_last_error(), "beta1 is 1, expected 0 <= beta1 < 1");
    CHECK(pair_same(x));
    pair_free(x);
}

TEST(groups_and_freezing) {
    NEED_CUDA;
    static const char *const rules[] = {"adamod", "adabound", "rmsprop", "adafactor", "adashift"};
    for (int r = 0; r < 5; r++) {
        pair *x = pair_new(rules[r]);
        int g[2];
        pair_add(x, ADAMOD_F32, 3000);
        for (int i = 0; i < 2; i++) {
            OK(adamod_add_group(x->cpu, &g[i]));
            OK(adamod_add_group(x->gpu, &g[i]));
        }
        pair_set_group(x, g[0], "lr=0.05 weight_decay=0.1");
        if (r == 2) pair_set_group(x, g[1], "momentum=0.9 centered=1"); /* another formula */
        if (r == 4) pair_set_group(x, g[1], "spatial=none window=2");
        pair_add_at(x, g[0], ADAMOD_F32, ADAMOD_F32, 2, (int64_t[]){50, 60}, 0);
        pair_add_at(x, g[1], ADAMOD_BF16, ADAMOD_BF16, 2, (int64_t[]){50, 60}, 0);
        pair_add_at(x, g[1], ADAMOD_F64, ADAMOD_F32, 1, &(int64_t){600}, 0);
        pair_schedule(x, g[1], "lr", "warmup(0,6)");
        pair_run(x, 3);
        OK(adamod_set_grad(x->cpu, 1, NULL));
        OK(adamod_set_grad(x->gpu, 1, NULL));
        pair_run(x, 3);
        OK(adamod_set_grad(x->cpu, 1, x->arrays[1].g));
        OK(adamod_set_grad(x->gpu, 1, x->arrays[1].device_g));
        pair_add_at(x, g[0], ADAMOD_F32, ADAMOD_F32, 1, &(int64_t){100}, 0); /* later than the others */
        pair_run(x, 3);
        pair_free(x);
    }
}

/* As frameworks do that allocate gradients anew for each step. */
TEST(pointers_that_change_every_step) {
    NEED_CUDA;
    enum { ARRAYS = 400, COPIES = 3 };
    pair *x = pair_new("adamod");
    for (int i = 0; i < ARRAYS; i++) pair_add(x, ADAMOD_F32, 10 + i);
    void *other[ARRAYS][COPIES];
    for (int i = 0; i < ARRAYS; i++) {
        for (int c = 0; c < COPIES; c++) other[i][c] = device_alloc((size_t)(10 + i) * 4 + 64);
    }
    for (int t = 0; t < 20; t++) {
        pair_grads(x);
        for (int i = 0; i < ARRAYS; i++) {
            void *g = (char *)other[i][t % COPIES] + 4 * (t % 5);
            to_device(g, x->arrays[i].g, x->arrays[i].count * 4);
            OK(adamod_set_grad(x->gpu, i, g));
        }
        pair_step(x);
    }
    CHECK(pair_same(x));
    for (int i = 0; i < ARRAYS * COPIES; i++) device_free(other[i / COPIES][i % COPIES]);
    pair_free(x);
}

/* The caller's states, begun from the CPU's after some steps, and gradients that move: one call a step. */
static void states_the_caller_keeps(const char *state_type) {
    enum { ARRAYS = 30, STEPS = 6, MOST = 9 };
    const bool q8 = strcmp(state_type, "q8") == 0;
    pair *x = pair_new("adamod");
    OK(adamod_set_text(x->cpu, "state_type", state_type));
    OK(adamod_set_text(x->gpu, "state_type", state_type));
    for (int i = 0; i < ARRAYS; i++) pair_add(x, i % 3 ? ADAMOD_F32 : ADAMOD_BF16, 100 + 77 * i);
    pair_run(x, STEPS);
    adamod_optimizer *mine = NULL;
    void *memory[ARRAYS][MOST] = {{NULL}}, *states[ARRAYS][MOST] = {{NULL}}, *params[ARRAYS];
    const void *grads[ARRAYS];
    OK(adamod_create_on(&mine, "adamod", "cuda"));
    OK(adamod_set_text(mine, "state_type", state_type));
    for (int i = 0; i < ARRAYS; i++) {
        pair_array *a = &x->arrays[i];
        adamod_tensor t = {.param_type = a->param_type, .grad_type = a->grad_type, .ndim = 1};
        state_ref s;
        t.shape[0] = (int64_t)a->count;
        for (int k = 0; adamod__state_ref(x->cpu, &x->cpu->tensors[i], k, &s); k++) {
            memory[i][k] = device_alloc(s.bytes + 16);
            void *to = states[i][k] = (char *)memory[i][k] + 4 * (i % 4); /* not all where vectors may begin */
            to_device(to, *s.data, s.bytes);
            if (k == (q8 ? 6 : 3)) t.master = to;
            else if (q8 && k % 2) t.scale[k / 2] = to;
            else t.state[q8 ? k / 2 : k] = to;
        }
        params[i] = t.param = memory[i][MOST - 2] = device_alloc(4 * a->count);
        to_device(t.param, a->p, a->count * adamod__type_size(a->param_type));
        OK(adamod_add_tensor(mine, 0, &t, NULL));
        OK(adamod_set_tensor_steps(mine, i, STEPS));
        grads[i] = memory[i][MOST - 1] = device_alloc(4 * a->count);
    }
    CHECK_INT(adamod_steps(mine), STEPS);
    for (int step = 0; step < STEPS; step++) {
        pair_grads(x);
        OK(adamod_step(x->cpu));
        for (int i = 0; i < ARRAYS; i++) {
            const size_t bytes = x->arrays[i].count * adamod__type_size(x->arrays[i].grad_type);
            grads[i] = step % 2 ? memory[i][MOST - 1] : x->arrays[i].device_g;
            to_device((void *)(uintptr_t)grads[i], x->arrays[i].g, bytes);
        }
        OK(adamod_set_arrays(mine, ARRAYS, NULL, params, grads));
        OK(adamod_step(mine));
        if (step == 2) OK(adamod_set_tensor_steps(mine, 1, STEPS + 3)); /* as it is */
    }
    OK(adamod_sync(mine));
    for (int i = 0; i < ARRAYS; i++) {
        const pair_array *a = &x->arrays[i];
        CHECK(same_array(x, "the parameters", i, a->param_type, a->p, params[i], a->count));
        state_ref s;
        for (int k = 0; adamod__state_ref(x->cpu, &x->cpu->tensors[i], k, &s); k++) {
            CHECK(same_array(x, s.name, i, s.type, *s.data, states[i][k], (size_t)s.desc.count));
        }
    }
    adamod_tensor t = {.param = params[0], .ndim = 1, .shape = {1}, .state = {grads, grads, grads}};
    adamod_free(mine);
    OK(adamod_create_on(&mine, "adamod", "cuda"));
    CHECK_INT(adamod_add_tensor(mine, 0, &t, NULL), ADAMOD_ERROR_DEVICE);
    CHECK_HAS(adamod_last_error(), "exp_avg is host memory");
    adamod_free(mine);
    for (int i = 0; i < ARRAYS * MOST; i++) device_free(memory[i / MOST][i % MOST]);
    pair_free(x);
}

TEST(states_the_caller_keeps) {
    NEED_CUDA;
    states_the_caller_keeps("auto");
    states_the_caller_keeps("q8");
}

/* ---- statistics ---- */

TEST(statistics_are_equal) {
    NEED_CUDA;
    for (int r = 0; adamod_rule_name(r); r++) {
        pair *x = pair_new(adamod_rule_name(r));
        int g;
        OK(adamod_add_group(x->cpu, &g));
        OK(adamod_add_group(x->gpu, &g));
        pair_set_group(x, g, "lr=0.3");
        pair_add(x, ADAMOD_F32, 30011);
        pair_add(x, ADAMOD_F32, 7);
        pair_add_at(x, g, ADAMOD_F32, ADAMOD_F32, 2, (int64_t[]){41, 530}, 0);
        pair_add_at(x, g, ADAMOD_BF16, ADAMOD_BF16, 1, &(int64_t){999}, 0);
        pair_run(x, 2);
        adamod_statistics none;
        CHECK_INT(adamod_get_statistics(x->gpu, -1, &none), ADAMOD_ERROR_ORDER);
        OK(adamod_collect(x->cpu, 1));
        OK(adamod_collect(x->gpu, 1));
        CHECK_INT(adamod_get_statistics(x->gpu, -1, &none), ADAMOD_ERROR_ORDER);
        for (int t = 0; t < 3; t++) {
            pair_run(x, 1);
            for (int which = -1; which < 2; which++) same_statistics(x, which);
        }
        OK(adamod_collect(x->cpu, 0));
        OK(adamod_collect(x->gpu, 0));
        pair_run(x, 1);
        pair_free(x);
    }
}

TEST(statistics_outlive_a_skipped_step) {
    NEED_CUDA;
    pair *x = pair_new("adamod");
    pair_set(x, "nonfinite=skip");
    pair_add(x, ADAMOD_F64, 3000);
    pair_add(x, ADAMOD_F32, 3000);
    OK(adamod_collect(x->cpu, 1));
    OK(adamod_collect(x->gpu, 1));
    pair_run(x, 2);
    ((float *)x->arrays[1].g)[0] = NAN;
    pair_send_grads(x);
    pair_step(x);
    CHECK_INT(adamod_skipped(x->gpu), 1);
    same_statistics(x, -1);
    pair_free(x);
}

/* ---- files ---- */

TEST(files_move_between_devices) {
    NEED_CUDA;
    char path[64];
    snprintf(path, sizeof path, "cuda_state.%d.tmp", (int)getpid());
    for (int r = 0; adamod_rule_name(r); r++) {
        pair *x = pair_new(adamod_rule_name(r));
        if (r == 0) pair_set(x, "state_type=q8");
        pair_add_at(x, 0, ADAMOD_F32, ADAMOD_F32, 2, (int64_t[]){40, 70}, 0);
        pair_add_at(x, 0, ADAMOD_BF16, ADAMOD_BF16, 1, &(int64_t){3000}, 0);
        pair_run(x, 3);
        /* The CPU goes on with what the GPU saved, and the other way round. */
        OK(adamod_save(x->gpu, path));
        OK(adamod_load(x->cpu, path));
        pair_run(x, 2);
        OK(adamod_save(x->cpu, path));
        pair_grads(x);
        OK(adamod_step(x->gpu)); /* a step that loading undoes, but for the parameters */
        OK(adamod_load(x->gpu, path));
        for (int k = 0; k < x->n; k++) {
            const pair_array *a = &x->arrays[k];
            to_device(a->device_p, a->p, a->count * adamod__type_size(a->param_type));
        }
        CHECK(pair_same(x));
        adamod_step_report none;
        CHECK_INT(adamod_report(x->gpu, 5, &none), ADAMOD_ERROR_ORDER); /* of the file's run, not of this one */
        pair_run(x, 2);
        pair_free(x);
    }
    unlink(path);
}

/* ---- streams and graphs ---- */

TEST(streams) {
    NEED_CUDA;
    pair *x = pair_new("adamod");
    void *stream[2] = {NULL, NULL};
    for (int i = 0; i < 2; i++) DEVICE_OK(x->gpu->api->stream_create(x->gpu->device, &stream[i]));
    pair_add(x, ADAMOD_F32, 100000);
    for (int t = 0; t < 9; t++) {
        OK(adamod_set_stream(x->gpu, t % 3 == 2 ? NULL : stream[t % 3]));
        pair_grads(x);
        pair_step(x);
        OK(adamod_sync(x->gpu));
    }
    CHECK(pair_same(x));
    OK(adamod_set_stream(x->gpu, NULL));
    for (int i = 0; i < 2; i++) x->gpu->api->stream_destroy(x->gpu->device, stream[i]);
    pair_free(x);
}

static void *capture(pair *x, void *stream) {
    void *graph = NULL;
    OK(adamod_set_stream(x->gpu, stream));
    DEVICE_OK(x->gpu->api->graph_begin(x->gpu->device));
    OK(adamod_step(x->gpu));
    DEVICE_OK(x->gpu->api->graph_end(x->gpu->device, &graph));
    return graph;
}

static void same_report(pair *x, int attempt) {
    adamod_step_report cpu = {0}, gpu = {0};
    OK(adamod_report(x->cpu, attempt, &cpu));
    OK(adamod_report(x->gpu, attempt, &gpu));
    CHECK_INT(gpu.attempt, attempt);
    CHECK_INT(gpu.taken, cpu.taken);
    CHECK(gpu.grad_norm == cpu.grad_norm && gpu.lr == cpu.lr);
}

TEST(a_captured_step_is_replayed_while_options_change) {
    NEED_CUDA;
    static const char *const rules[] = {"adamod", "adashift", "adafactor", "nosadam"};
    for (int r = 0; r < 4; r++) {
        pair *x = pair_new(rules[r]);
        void *stream = NULL;
        DEVICE_OK(x->gpu->api->stream_create(x->gpu->device, &stream));
        pair_set(x, "clip_norm=10 nonfinite=skip");
        for (int i = 0; i < 20; i++) {
            pair_add_at(x, 0, i % 2 ? ADAMOD_BF16 : ADAMOD_F32, i % 2 ? ADAMOD_BF16 : ADAMOD_F32, 2,
                        (int64_t[]){1 + i, 300}, 0);
        }
        pair_schedule(x, -1, "lr", "warmup(1e-5,7)*7 > cosine(0,10)");
        pair_run(x, 1);
        void *graph = capture(x, stream);
        for (int t = 0; t < 10; t++) {
            if (t == 3) pair_set(x, "lr=0.01");
            if (t == 5) pair_set(x, "weight_decay=0.1");
            if (t == 7) pair_set(x, "clip_norm=1");
            pair_grads(x);
            if (t == 6) ((float *)x->arrays[4].g)[0] = INFINITY;
            pair_send_grads(x);
            OK(adamod_step(x->cpu));
            DEVICE_OK(x->gpu->api->graph_launch(x->gpu->device, graph));
            OK(adamod_sync(x->gpu));
            same_report(x, t + 2);
        }
        CHECK(pair_same(x));
        CHECK_INT(adamod_steps(x->gpu), 10);
        for (int t = 4; t <= 11; t++) same_report(x, t);
        adamod_step_report none;
        CHECK_INT(adamod_report(x->gpu, 3, &none), ADAMOD_ERROR_ORDER);
        CHECK_INT(adamod_report(x->gpu, 12, &none), ADAMOD_ERROR_ORDER);
        CHECK_INT(adamod_skipped(x->gpu), 1);
        /* Other pointers in a step outside do not change the graph's. */
        void *elsewhere = device_alloc(x->arrays[0].count * 4);
        pair_grads(x);
        to_device(elsewhere, x->arrays[0].g, x->arrays[0].count * 4);
        OK(adamod_set_grad(x->gpu, 0, elsewhere));
        pair_step(x);
        OK(adamod_sync(x->gpu));
        pair_grads(x);
        OK(adamod_step(x->cpu));
        DEVICE_OK(x->gpu->api->graph_launch(x->gpu->device, graph));
        OK(adamod_sync(x->gpu));
        CHECK(pair_same(x));
        device_free(elsewhere);
        x->gpu->api->graph_free(x->gpu->device, graph);
        OK(adamod_set_stream(x->gpu, NULL));
        x->gpu->api->stream_destroy(x->gpu->device, stream);
        pair_free(x);
    }
}

TEST(what_a_graph_cannot_hold_is_refused) {
    NEED_CUDA;
    pair *x = pair_new("adamod");
    void *stream = NULL, *graph = NULL;
    DEVICE_OK(x->gpu->api->stream_create(x->gpu->device, &stream));
    pair_add(x, ADAMOD_F32, 100);
    pair_run(x, 1);
    OK(adamod_set_stream(x->gpu, stream));
    DEVICE_OK(x->gpu->api->graph_begin(x->gpu->device));
    OK(adamod_set(x->gpu, "lr", 1e-3)); /* as it was */
    CHECK_INT(adamod_set(x->gpu, "lr", 1), ADAMOD_ERROR_ORDER);
    CHECK_INT(adamod_sync(x->gpu), ADAMOD_ERROR_ORDER);
    CHECK_INT(adamod_save(x->gpu, "never.tmp"), ADAMOD_ERROR_ORDER);
    CHECK_INT(adamod_add(x->gpu, "late", x->arrays[0].device_p, NULL, 0, NULL), ADAMOD_ERROR_ARGUMENT);
    OK(adamod_step(x->gpu));
    DEVICE_OK(x->gpu->api->graph_end(x->gpu->device, &graph));
    x->gpu->api->graph_free(x->gpu->device, graph);
    OK(adamod_sync(x->gpu));
    CHECK_INT(adamod_steps(x->gpu), 1);
    OK(adamod_set_stream(x->gpu, NULL));
    x->gpu->api->stream_destroy(x->gpu->device, stream);
    pair_free(x);
}

/* ---- values on the device ---- */

TEST(options_from_device_memory) {
    NEED_CUDA;
    pair *x = pair_new("adamod");
    float *lr = device_alloc(sizeof *lr);
    double *beta3 = device_alloc(sizeof *beta3);
    pair_add(x, ADAMOD_F32, 3000);
    OK(adamod_set_device_value(x->gpu, -1, "lr", lr, ADAMOD_F32));
    OK(adamod_set_device_value(x->gpu, 0, "beta3", beta3, ADAMOD_F64));
    for (int t = 0; t < 6; t++) {
        const float rate = 0.01f / (float)(t + 1);
        const double decay = 0.9 + 0.01 * t;
        to_device(lr, &rate, sizeof rate);
        to_device(beta3, &decay, sizeof decay);
        OK(adamod_set(x->cpu, "lr", (double)rate));
        OK(adamod_set(x->cpu, "beta3", decay));
        pair_grads(x);
        pair_step(x);
    }
    CHECK(pair_same(x));
    const float bad = NAN;
    to_device(lr, &bad, sizeof bad);
    OK(adamod_step(x->gpu));
    CHECK_INT(adamod_sync(x->gpu), ADAMOD_ERROR_RANGE);
    CHECK(pair_same(x));
    OK(adamod_set_device_value(x->gpu, -1, "lr", NULL, ADAMOD_F32));
    OK(adamod_set_device_value(x->gpu, -1, "beta3", NULL, ADAMOD_F32));
    pair_set(x, "lr=0.001 beta3=0.99");
    pair_run(x, 2);
    CHECK_INT(adamod_set_device_value(x->gpu, -1, "flavour", lr, ADAMOD_F32), ADAMOD_ERROR_ARGUMENT);
    CHECK_INT(adamod_set_device_value(x->gpu, 3, "lr", lr, ADAMOD_F32), ADAMOD_ERROR_RANGE);
    CHECK_INT(adamod_set_device_value(x->gpu, 0, "lr", &bad, ADAMOD_F32), ADAMOD_ERROR_DEVICE);
    pair_free(x);
    device_free(lr);
    device_free(beta3);
}

TEST(loss_scaling_on_the_device) {
    NEED_CUDA;
    pair *x = pair_new("adamod");
    float *scale = device_alloc(sizeof *scale), *found_inf = device_alloc(sizeof *found_inf);
    pair_add(x, ADAMOD_F32, 3000);
    OK(adamod_set_scaler(x->gpu, scale, found_inf));
    for (int t = 0; t < 4; t++) {
        const float now = 65536.0f / (float)(1 << t), skip = t == 2;
        to_device(scale, &now, sizeof now);
        to_device(found_inf, &skip, sizeof skip);
        OK(adamod_set(x->cpu, "grad_scale", 1 / (double)now));
        pair_grads(x);
        if (t != 2) OK(adamod_step(x->cpu));
        OK(adamod_step(x->gpu));
    }
    CHECK_INT(adamod_skipped(x->gpu), 1);
    CHECK_INT(adamod_steps(x->gpu), 3);
    x->cpu->skipped = 1;
    CHECK(pair_same(x));
    OK(adamod_set_scaler(x->gpu, NULL, NULL));
    OK(adamod_set(x->cpu, "grad_scale", 1));
    pair_run(x, 2);
    pair_free(x);
    device_free(scale);
    device_free(found_inf);
}

/* ---- errors ---- */

TEST(errors_name_the_device) {
    NEED_CUDA;
    adamod_optimizer *opt = NULL;
    float host[4] = {0};
    CHECK_INT(adamod_create_on(&opt, "adamod", "cuda:99"), ADAMOD_ERROR_DEVICE);
    CHECK_HAS(adamod_last_error(), "cuda:99: no such device");
    adamod_cuda_device device;
    OK(adamod_cuda_device_at(0, &device));
    CHECK(device.name[0] && device.memory >= device.free_memory && device.free_memory > 0);
    CHECK_INT(adamod_cuda_device_at(99, &device), ADAMOD_ERROR_DEVICE);
    if (!OK(adamod_create_on(&opt, "adamod", "cuda:0"))) return;
    CHECK_STR(adamod_device(opt), "cuda:0");
    CHECK_INT(adamod_add(opt, "w", host, NULL, 1, (int64_t[]){4}), ADAMOD_ERROR_DEVICE);
    CHECK_HAS(adamod_last_error(), "w: param is host memory, expected memory of cuda:0");
    float *memory = device_alloc(64);
    to_device(memory, (float[16]){0}, 64);
    CHECK_INT(adamod_add(opt, "w", memory, host, 1, (int64_t[]){4}), ADAMOD_ERROR_DEVICE);
    CHECK_HAS(adamod_last_error(), "w: grad is host memory");
    /* States of 2^50 elements; the array itself is never touched. */
    CHECK_INT(adamod_add(opt, "w", memory, NULL, 1, (int64_t[]){INT64_C(1) << 50}), ADAMOD_ERROR_DEVICE_MEMORY);
    CHECK_HAS(adamod_last_error(), "cuda: out of memory");
    CHECK_HAS(adamod_last_error(), "free on cuda:0");
    CHECK_INT(adamod_tensors(opt), 0);
    OK(adamod_add(opt, "w", memory, memory + 8, 1, (int64_t[]){4}));
    OK(adamod_step(opt));
    CHECK_INT(adamod_set_grad(opt, 0, host), ADAMOD_ERROR_DEVICE);
    OK(adamod_step(opt));
    CHECK_INT(adamod_steps(opt), 2);
    size_t states, other;
    adamod_memory(opt, &states, &other);
    CHECK_INT(states, 48);
    adamod_free(opt);
    device_free(memory);
}

/* ---- more than 2^31 elements ---- */

TEST(large_array) {
    NEED_CUDA;
    if (!getenv("ADAMOD_TEST_LARGE")) SKIP("ADAMOD_TEST_LARGE is not set");
    const int64_t count = (INT64_C(1) << 31) + 5000;
    adamod_optimizer *opt = NULL;
    adamod_type state_type = ADAMOD_F32;
    float *p = device_alloc((size_t)count * 4), *g = device_alloc((size_t)count * 4);
    DEVICE_OK(owner->api->fill(owner->device, p, ADAMOD_F32, count, 1));
    DEVICE_OK(owner->api->fill(owner->device, g, ADAMOD_F32, count, 0.5));
    OK(adamod_create_on(&opt, "sgd", "cuda"));
    OK(adamod_set(opt, "momentum", 0.9));
    OK(adamod_set(opt, "clip_norm", 1e9));
    OK(adamod_add(opt, "w", p, g, 1, &count));
    OK(adamod_step(opt));
    CHECK_CLOSE(adamod_grad_norm(opt), 0.5 * sqrt((double)count), 1e-6);
    static const int64_t where[] = {0, INT64_C(1) << 30, (INT64_C(1) << 31) - 1, INT64_C(1) << 31,
                                    (INT64_C(1) << 31) + 4999};
    for (int i = 0; i < 5; i++) {
        float x = 0;
        to_host(&x, p + where[i], sizeof x);
        CHECK(x == 1 - 0.01f * 0.5f);
        void *m;
        OK(adamod_state(opt, 0, "momentum_buffer", &m, &state_type, NULL));
        to_host(&x, (float *)m + where[i], sizeof x);
        CHECK(x == 0.5f);
    }
    adamod_free(opt);
    device_free(p);
    device_free(g);
}

RUN_TESTS(ENTRY(every_rule_gives_the_same_bits), ENTRY(options_of_rules), ENTRY(many_steps), ENTRY(unaligned_arrays),
          ENTRY(every_type), ENTRY(states_in_8_bits), ENTRY(blocks_of_every_size), ENTRY(many_small_arrays),
          ENTRY(clipping_and_scaling), ENTRY(norms_beyond_the_range_of_squares), ENTRY(gradients_that_are_not_finite),
          ENTRY(gradients_beyond_f32), ENTRY(an_error_is_reported_once_and_nothing_changes), ENTRY(schedules),
          ENTRY(a_schedule_out_of_bounds_is_an_error), ENTRY(groups_and_freezing),
          ENTRY(pointers_that_change_every_step), ENTRY(states_the_caller_keeps), ENTRY(statistics_are_equal),
          ENTRY(statistics_outlive_a_skipped_step), ENTRY(files_move_between_devices), ENTRY(streams),
          ENTRY(a_captured_step_is_replayed_while_options_change), ENTRY(what_a_graph_cannot_hold_is_refused),
          ENTRY(options_from_device_memory), ENTRY(loss_scaling_on_the_device), ENTRY(errors_name_the_device),
          ENTRY(large_array))
