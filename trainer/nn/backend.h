/* backend.h - for who writes a backend: kernels of the ops for one kind of machine.
 *
 * backend/NAME/ has a file OP.c (or .cu) for each op with `const nn_kernels nn_NAME_OP` (kernel.h), and a table of those in
 * backend.c. It need not have all ops: on the host the reference kernels stand in; on a device a plan that needs a missing
 * one is not made, and the message names it. A backend of a device brings the functions below, too. */
#ifndef ADAMOD_NN_BACKEND_H
#define ADAMOD_NN_BACKEND_H

#include "nn/kernel.h"

/* Memory and order of execution of a device. All but allocate and wait only enqueue, in order. */
typedef struct nn_device nn_device;
typedef struct nn_device_info {
    char name[128];
    size_t memory, used, most_used; /* bytes: in all, allocated by this program, and at most so far */
    char lstm[96];                  /* for people: how it runs LSTM layers, which depends on their sizes */
} nn_device_info;
typedef struct nn_device_functions {
    adamod_status (*open)(nn_device **out, int index);
    void (*close)(nn_device *d); /* NULL is fine */
    nn_device_info (*info)(const nn_device *d);
    void *(*stream)(const nn_device *d);
    adamod_status (*allocate)(nn_device *d, void **out, size_t bytes); /* filled with 0 */
    void (*release)(nn_device *d, void *memory, size_t bytes);
    /* Host memory that copies to and from the device can overlap with. */
    adamod_status (*allocate_host)(nn_device *d, void **out, size_t bytes);
    void (*release_host)(nn_device *d, void *memory);
    void (*upload)(nn_device *d, void *to, const void *from, size_t bytes);
    void (*download)(nn_device *d, void *to, const void *from, size_t bytes);
    void (*copy)(nn_device *d, void *to, const void *from, size_t bytes);
    /* Rows of row bytes, a multiple of 4: move i takes rows[i] of them from from[i] to to[i]; the lists are the host's. */
    void (*move)(nn_device *d, void *base, int64_t row, int64_t n, const int64_t *from, const int64_t *to,
                 const int64_t *rows);
    void (*narrow)(nn_device *d, void *to_bf16, const float *from, int64_t n);
    adamod_status (*wait)(nn_device *d); /* until all is done; what failed since the last wait */
    /* A point in the order of work, and waiting for it on the host. */
    adamod_status (*mark)(nn_device *d, void **event); /* *event NULL: makes one */
    adamod_status (*wait_for)(nn_device *d, void *event);
    void (*forget)(nn_device *d, void *event);
    /* What is enqueued between begin and end becomes a recording that can be enqueued as one. */
    adamod_status (*record_begin)(nn_device *d);
    adamod_status (*record_end)(nn_device *d, void **recording);
    adamod_status (*replay)(nn_device *d, void *recording);
    void (*drop)(nn_device *d, void *recording);
    /* All of these sums, which write to different places; the list is the host's. */
    void (*sum)(nn_device *d, int n, const nn_sum *sums);
    void (*watch)(nn_device *d, bool on); /* for profilers that are told where to look */
} nn_device_functions;

typedef struct nn_backend_op {
    const char *op; /* its name */
    const nn_kernels *kernels;
} nn_backend_op;

typedef struct nn_backend_sharing {
    const char *op; /* its name */
    const nn_sharing *sharing;
} nn_backend_sharing;

typedef struct nn_backend {
    const char *name;
    const nn_backend_op *ops;          /* ends with a name of NULL */
    const nn_device_functions *device; /* NULL: the host */
    const nn_backend_sharing *sharing; /* of ops that have some; ends with a name of NULL. NULL: none has */
} nn_backend;

extern const nn_backend nn_backend_cpu;

/* What the shared object of a device's backend exports as nn_backend_cuda_get: the backend, if the version fits. It
 * reports its failures through fail, which is adamod__fail. */
#define NN_BACKEND_VERSION 14
typedef adamod_status (*nn_fail)(adamod_status status, const char *format, ...);
typedef const nn_backend *(*nn_backend_get)(int version, nn_fail fail);

/* "cpu", or "cuda" from libadamod_nn_cuda.so, which is looked for beside the program, then where the system looks; the
 * environment's ADAMOD_NN_CUDA_LIBRARY names another. NULL: there is none, and the last error says why. "ref" is no
 * backend: it is what every op brings along. */
const nn_backend *nn_backend_find(const char *name);
/* A backend's kernels of an op; NULL: it has none. */
const nn_kernels *nn_backend_kernels(const nn_backend *backend, const char *op);
nn_sharing nn_backend_sharing_of(const nn_backend *backend, const char *op);

#endif
