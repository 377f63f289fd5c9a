/* The host's side of libadamod_cuda: the handle of a device, and functions of its files.
 *
 * backend.cu opens the handle and has the library's table of functions; layout.cu makes the tables that kernels read;
 * statistics.cu has statistics. cuda_backend.h has what kernels and host share. */
#ifndef ADAMOD_CUDA_HOST_H
#define ADAMOD_CUDA_HOST_H

#include "kernels/cuda/cuda_backend.h"

struct adamod__device {
    int index, rule, processors;
    const cuda_driver *driver; /* NULL: the rule is element-wise */
    int tuning;                /* of the update; -1: the standard one */
    bool overlaps;             /* launches can start before the one ahead of them has ended */
    char name[256];
    cudaStream_t stream, side; /* the user's; one that does not wait for it */
    cudaEvent_t event;
    device_mirror *mirror; /* on the host, where the device can write */
    control *shared;
    device_limit *limits;
    void *schedules;
    const int64_t *numbers; /* within schedules */
    const float *found_inf, *loss_scale;
    /* derived from the parameters */
    device_tensor *tensors;          /* the host's copy */
    device_group *groups;            /* and of these */
    int64_t dirty_first, dirty_last; /* tensors with new pointers */
    void *arena;
    void *workspace; /* the driver's; kept from layout to layout if it is large enough */
    int64_t workspace_bytes;
    view v;
    update_class *classes;
    int n_classes;
    piece *chunk_list; /* the host's copy, for the order of sums: the update's chunks, then the driver's */
    int64_t n_list;
    float *edge; /* statistics */
    uint16_t *bin;
    void *counts;
    adamod__ranks parts;
    double *part_sums; /* as view has them */
    /* memory that a captured graph may still read: freed at the end */
    void **kept;
    int64_t n_kept;
};

/* ---- errors: a function that fails returns what one of these returned ---- */

/* Keeps the message for the caller; returns the status. */
adamod_status fail(adamod_status status, const char *format, ...) __attribute__((format(printf, 2, 3)));
adamod_status no_memory(void); /* of the host */
adamod_status failed_call(const adamod__device *d, cudaError_t error, const char *what);

adamod_status result_of(const adamod__device *d, cudaError_t error, const char *what);

#define CALL(d, call) result_of(d, call, #call)
/* Returns from the function if a CUDA call failed. */
#define TRY(d, call)                                                                                                   \
    do {                                                                                                               \
        const cudaError_t try_error = (call);                                                                          \
        if (try_error != cudaSuccess) return failed_call(d, try_error, #call);                                         \
    } while (0)

/* Makes the user's device current again at the end of a call. */
struct device_guard {
    int before;
    explicit device_guard(int index) {
        if (cudaGetDevice(&before) != cudaSuccess) before = -1;
        if (before != index) (void)cudaSetDevice(index);
        else before = -1;
    }
    ~device_guard() {
        if (before >= 0) (void)cudaSetDevice(before);
    }
};

/* ---- memory of the device ---- */

/* On the current device, which is the handle's under a device_guard. */
adamod_status allocate(const adamod__device *d, size_t bytes, void **out);

/* Keeps memory that graphs may read until the end. */
void keep(adamod__device *d, void *memory);

/* Copies between the host and the device, done when they return. */
adamod_status copy_in(adamod__device *d, void *to, const void *from, size_t bytes);
adamod_status copy_out(adamod__device *d, void *to, const void *from, size_t bytes);

/* Hands out parts of one block of memory; with no block it only counts. */
struct bump {
    char *base;
    size_t used;
    template <class T> T *take(int64_t n) {
        T *at = base ? (T *)(base + used) : NULL;
        used += ((size_t)n * sizeof(T) + 255) / 256 * 256;
        return at;
    }
};

/* ---- the stream ---- */

/* Whether it is being captured into a graph. */
adamod_status capturing(adamod__device *d, int *yes);

/* ---- layout.cu ---- */

/* Makes everything that is derived from the parameters: tables on the device, the handle's copies, classes of launches. */
adamod_status lay_out(adamod__device *d, const device_layout *l);

/* ---- statistics.cu: collect and statistics as in device.h ---- */

adamod_status collect(adamod__device *d, const float *edge, const uint16_t *bin);
/* Allocates counts at the first step that collects. */
adamod_status reserve_counts(adamod__device *d);
adamod_status statistics(adamod__device *d, stats_counts *groups, int *filled);

#endif
