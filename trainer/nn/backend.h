/* backend.h - for backend authors: kernels of the ops for one kind of machine.
 *
 * backend/NAME/ has a file OP.c (or .cu) for each op with `const nn_kernels nn_NAME_OP` (kernel.h), and a table of those in
 * backend.c. Ops may be missing: on the host the reference kernels stand in; on a device a plan that needs the op fails,
 * and the message names it. A device's backend has the functions below, too. */
#pragma once

#include "nn/kernel.h"

/* A device: its memory, and work in order. All functions but allocate and wait only enqueue. */
typedef struct nn_device nn_device;
typedef struct nn_device_info {
    char name[128];
    size_t memory, used, most_used; /* bytes: in all, allocated by this program, and the most so far */
} nn_device_info;
typedef struct nn_device_functions {
    adamod_status (*open)(nn_device **out, int index);
    void (*close)(nn_device *d); /* NULL is fine */
    nn_device_info (*info)(const nn_device *d);
    void *(*stream)(const nn_device *d);
    adamod_status (*allocate)(nn_device *d, void **out, size_t bytes); /* filled with 0 */
    void (*release)(nn_device *d, void *memory, size_t bytes);
    /* Host memory for copies that overlap with other work. */
    adamod_status (*allocate_host)(nn_device *d, void **out, size_t bytes);
    void (*release_host)(nn_device *d, void *memory);
    void (*upload)(nn_device *d, void *to, const void *from, size_t bytes);
    void (*download)(nn_device *d, void *to, const void *from, size_t bytes);
    void (*copy)(nn_device *d, void *to, const void *from, size_t bytes);
    /* Moves rows of `row` bytes, a multiple of 4. Move i takes rows[i] rows, from row from[i] to row to[i]. The lists are in
     * the host's memory. */
    void (*move)(nn_device *d, void *base, int64_t row, int64_t n, const int64_t *from, const int64_t *to,
                 const int64_t *rows);
    void (*narrow)(nn_device *d, void *to_bf16, const float *from, int64_t n);
    adamod_status (*wait)(nn_device *d); /* until all is done; reports what failed since the last wait */
    /* A point in the order of work, and waiting for it on the host. */
    adamod_status (*mark)(nn_device *d, void **event); /* *event NULL: makes one */
    adamod_status (*wait_for)(nn_device *d, void *event);
    void (*forget)(nn_device *d, void *event);
    /* Records the work enqueued between begin and end, to be enqueued again as one. */
    adamod_status (*record_begin)(nn_device *d);
    adamod_status (*record_end)(nn_device *d, void **recording);
    adamod_status (*replay)(nn_device *d, void *recording);
    void (*drop)(nn_device *d, void *recording);
    /* Computes sums, which write to different places; the list is the host's. */
    void (*sum)(nn_device *d, int n, const nn_sum *sums);
    void (*watch)(nn_device *d, bool on); /* for profilers that are told where to look */
} nn_device_functions;

typedef struct nn_backend_op {
    const char *op; /* its name */
    const nn_kernels *kernels;
} nn_backend_op;

typedef struct nn_backend {
    const char *name;
    const nn_backend_op *ops;          /* ends with a name of NULL */
    const nn_device_functions *device; /* NULL: the host */
} nn_backend;

extern const nn_backend nn_backend_cpu;

/* The function nn_backend_cuda_get of a device's shared object: returns the backend if the version fits. The backend
 * reports failures through fail, which is adamod__fail. */
#define NN_BACKEND_VERSION 16
typedef adamod_status (*nn_fail)(adamod_status status, const char *format, ...);
typedef const nn_backend *(*nn_backend_get)(int version, nn_fail fail);

/* "cpu", or "cuda" from libadamod_nn_cuda.so, which is looked for beside the program, then where the system looks; the
 * environment's ADAMOD_NN_CUDA_LIBRARY names another. NULL: there is none, and the last error says why. "ref" is no
 * backend: every op has reference kernels. */
const nn_backend *nn_backend_find(const char *name);
/* A backend's kernels of an op; NULL: it has none. */
const nn_kernels *nn_backend_kernels(const nn_backend *backend, const char *op);
