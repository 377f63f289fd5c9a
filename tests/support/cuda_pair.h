/* cuda_pair.h - the same optimizer twice, on the CPU and on a GPU, given the same gradients, and whether they give the same
 * bits.
 *
 *     NEED_CUDA;
 *     pair *x = pair_new("adamod");
 *     pair_add(x, ADAMOD_F32, 3000);
 *     pair_run(x, 12);             // twelve steps, and a check that all arrays are equal
 *     pair_free(x);
 *
 * SPDX-License-Identifier: MIT
 */
#ifndef ADAMOD_TESTS_CUDA_PAIR_H
#define ADAMOD_TESTS_CUDA_PAIR_H

#include "check.h"
#include "optim/optimizer.h"

/* ---- the device ---- */

/* Through which tests get at the device's memory. */
extern adamod_optimizer *owner;

/* Makes the owner; or says why there is none. */
const char *no_cuda(void);
#define NEED_CUDA                                                                                                      \
    do {                                                                                                               \
        const char *why = no_cuda();                                                                                   \
        if (why) SKIP(why);                                                                                            \
    } while (0)

/* Whether it is; if not, prints the last error. */
int ok(adamod_status status);
int device_ok(adamod_status status);
#define OK(call) CHECK(ok(call))
#define DEVICE_OK(call) CHECK(device_ok(call))

void *device_alloc(size_t bytes);
void device_free(void *memory);
void to_device(void *to, const void *from, size_t bytes);
void to_host(void *to, const void *from, size_t bytes);

/* ---- the same optimizer twice ---- */

enum { MOST_ARRAYS = 1200 };

typedef struct pair_array {
    adamod_type param_type, grad_type;
    size_t count;
    void *p, *g;     /* on the host */
    void *device[2]; /* as allocated */
    void *device_p, *device_g;
    bool frozen;
    /* Muon's matrices, whose products are in bf16 on the GPU: how far an element may be away after one step with a learning
     * rate of 1, as much as a step moves it on the average. 0: the bits are the same. */
    double near;
} pair_array;

typedef struct pair {
    adamod_optimizer *cpu, *gpu;
    pair_array arrays[MOST_ARRAYS];
    int n;
    uint64_t random;
    char what[160]; /* for messages */
    bool loose;     /* f64: some last bits may differ */
} pair;

pair *pair_new(const char *name);
void pair_free(pair *x);

/* "lr=0.1 momentum=0.9", of one group or of all. */
void pair_set_group(pair *x, int g, const char *options);
void pair_set(pair *x, const char *options);
void pair_schedule(pair *x, int g, const char *option, const char *text);

/* A parameter whose arrays on the device begin this many elements after an aligned address. */
void pair_add_at(pair *x, int g, adamod_type param, adamod_type grad, int ndim, const int64_t *shape, size_t shift);
void pair_add(pair *x, adamod_type type, int64_t count);

/* The pair's next random number, in [-1, 1); and an element of an array on the host. */
double pair_uniform(pair *x);
void pair_put(adamod_type type, void *array, size_t i, double value);
double pair_value(adamod_type type, const void *array, size_t i);
/* Ordinary gradients, some large, some tiny, some zero. */
void pair_grads(pair *x);
/* The gradients on the host, to the device. */
void pair_send_grads(pair *x);
void pair_step(pair *x);

/* An array on the host and one on the device; says what differs. */
int same_array(const pair *x, const char *what, int index, adamod_type type, const void *host, const void *device,
               size_t count);
/* All arrays and counts. */
int pair_same(pair *x);
/* Steps with ordinary gradients; then both must be the same. */
void pair_run(pair *x, int steps);
/* Checks that both have the same statistics of a group; -1: of all. */
void pair_same_statistics(pair *x, int g);

#endif
