/* The interface between libadamod and libadamod_cuda: a table of functions, found at run time (device.c), and its structs.
 * Included from C and from CUDA C++.
 *
 * The library keeps what the host decides: names, options, which states there are. The device keeps what a step reads and
 * writes. So a step consists of launches only, and a captured graph can be replayed while learning rates, schedules and
 * step counts advance. */
#ifndef ADAMOD_DEVICE_H
#define ADAMOD_DEVICE_H

#include "adamod.h"
#include "optim/option_ids.h"

#include <stddef.h>
#include <stdint.h>

/* The largest count of updates that can be set, loaded or reached, where counting stops: the sum of two counts, done and
 * skipped, must not overflow. */
#define ADAMOD__MOST_STEPS ((INT64_C(1) << 62) - 1)

#define ADAMOD__DEVICE_VERSION 11

/* Statistics of one group, or of one chunk before it is added to its group. */
enum { FINE_BINS = 4096 }; /* 16 for each power of two, to find medians */
typedef struct stats_counts {
    int64_t elements, bounded, nonfinite;
    double least[2], most[2]; /* [0] of eta, [1] of the step */
    int64_t fine[2][FINE_BINS];
    int64_t histogram[2][ADAMOD_HIST_BINS];
    int64_t idle[2][ADAMOD_HIST_BINS]; /* elements without a gradient so far */
    double grad_sumsq, update_sumsq;
} stats_counts;

/* A parameter as the device sees it. */
typedef struct device_tensor {
    void *p;
    const void *g; /* NULL: frozen */
    float *master;
    void *state[ADAMOD_MAX_STATES];  /* NULL: there is none, or it is empty */
    float *scale[ADAMOD_MAX_STATES]; /* of states in 8 bits */
    int64_t count;
    int64_t rows, cols; /* the last two dimensions; cols 0: not a matrix */
    int64_t first;      /* the first dimension; 0: not a matrix */
    uint64_t stream;    /* of random numbers */
    int32_t group, variant;
    int32_t queue; /* state 2 is a ring of this many gradients; 0: it is not */
    uint8_t p_type, g_type, state_type;
    uint8_t has_sign; /* a bit for each state */
    uint8_t path;     /* how elements are read and written; set by libadamod_cuda */
} device_tensor;

/* A schedule as a node in an array. The parts of a chain are consecutive nodes from first on; milestones and lengths are
 * in another array, from list on. */
typedef struct device_schedule {
    int32_t kind, first;
    double number;
    int64_t whole, list;
} device_schedule;

typedef struct device_group {
    double options[OPT_COUNT];
    int32_t schedule[OPT_COUNT];  /* its first node; -1: none */
    const void *value[OPT_COUNT]; /* on the device, in place of options; NULL: none */
    uint8_t value_type[OPT_COUNT];
    uint8_t computes[RANGE_TYPES];
} device_group;

typedef struct device_limit {
    double min, max;
    number_range in[RANGE_TYPES];
    uint8_t min_open, max_open;
} device_limit;

/* Everything that follows from the parameters and groups that were added. */
typedef struct device_layout {
    const device_tensor *tensors;
    int64_t n;
    int n_groups;
    int64_t chunk; /* elements the library sums at a time: the device must sum in the same order */
    int cautious;  /* some parameters take cautious steps */
} device_layout;

/* Processes that each have a part of the parameters. add replaces n numbers by their sums over all processes; on a device,
 * x is device memory and the sum is enqueued on the stream. */
typedef struct adamod__ranks {
    int rank, ranks; /* ranks 0: this process has all parameters */
    void (*add)(void *context, double *x, int64_t n);
    void *context;
} adamod__ranks;

/* Counts kept by the device. tensor_steps has room for every parameter. */
typedef struct device_progress {
    int64_t steps, skipped;
    double norm;
    int64_t *tensor_steps;
} device_progress;

/* Optional launches of a step. */
typedef struct device_step {
    int norm;    /* the global norm is needed */
    int collect; /* statistics are wanted */
} device_step;

/* A failed step, which the device writes to the mirror. */
typedef struct device_error {
    uint32_t count; /* of errors so far; written last */
    int32_t status;
    int64_t step;   /* number of the failed update */
    int64_t tensor; /* parameter whose gradient is not finite; -1: the norm overflows; -2: it is another process's */
    int32_t group, option;
    int32_t fault, range; /* for RANGE errors: a range_fault, and RANGE_F32 or RANGE_F64 */
    double value;         /* the option's value, or the gradient's largest element */
} device_error;

/* The outcome of an attempt. check is a checksum: the host may read while the device writes. */
typedef struct device_report {
    adamod_step_report report;
    uint64_t check;
} device_report;

/* Memory that device and host share, written by the device. */
typedef struct device_mirror {
    device_error error;
    device_report reports[ADAMOD_REPORTS]; /* attempt n is at n % ADAMOD_REPORTS */
} device_mirror;

typedef struct adamod__device adamod__device;

/* If a function fails, error() is a one-line message. Functions marked * wait for the stream. */
typedef struct adamod__device_api {
    int version;
    const char *(*error)(void);
    adamod_status (*count)(int *devices);
    adamod_status (*describe)(int index, adamod_cuda_device *out);
    adamod_status (*open)(adamod__device **out, int index, int rule, const device_limit limits[OPT_COUNT]);
    void (*close)(adamod__device *d); /* * */
    adamod_status (*set_stream)(adamod__device *d, void *stream);
    adamod_status (*sync)(adamod__device *d); /* * */
    adamod_status (*capturing)(adamod__device *d, int *yes);

    adamod_status (*alloc)(adamod__device *d, size_t bytes, void **out);
    void (*release)(adamod__device *d, void *memory);                                       /* * */
    adamod_status (*copy_in)(adamod__device *d, void *to, const void *from, size_t bytes);  /* * */
    adamod_status (*copy_out)(adamod__device *d, void *to, const void *from, size_t bytes); /* * */
    adamod_status (*fill)(adamod__device *d, void *to, adamod_type type, int64_t count, double value);
    adamod_status (*widen)(adamod__device *d, float *to, const void *from, adamod_type type, int64_t count);
    /* Whether memory can be reached from this device. */
    adamod_status (*check)(adamod__device *d, const void *memory);

    adamod_status (*layout)(adamod__device *d, const device_layout *layout); /* * */
    /* Takes effect with the next step. */
    void (*repoint)(adamod__device *d, int64_t tensor, void *p, const void *g);
    adamod_status (*set_group)(adamod__device *d, int group, const device_group *to);
    adamod_status (*set_schedules)(adamod__device *d, const device_schedule *nodes, int n, const int64_t *numbers,
                                   int n_numbers); /* * */
    adamod_status (*set_scaler)(adamod__device *d, const float *found_inf, const float *loss_scale);
    adamod_status (*set_ranks)(adamod__device *d, const adamod__ranks *parts);
    adamod_status (*set_progress)(adamod__device *d, const device_progress *from); /* * */
    adamod_status (*progress)(adamod__device *d, device_progress *to);             /* * */

    adamod_status (*step)(adamod__device *d, const device_step *how);
    /* The latest error; count 0: there was none. */
    device_error (*failure)(const adamod__device *d);
    /* report returns 0 if that attempt is not kept; forget drops all reports. */
    int (*report)(const adamod__device *d, int64_t attempt, adamod_step_report *out);
    adamod_status (*forget)(adamod__device *d); /* * */

    /* edge and bin as in adamod__stats. */
    adamod_status (*collect)(adamod__device *d, const float *edge, const uint16_t *bin);
    /* Statistics of every group in the last step that was not skipped; *filled: there was one since collect. * */
    adamod_status (*statistics)(adamod__device *d, stats_counts *groups, int *filled);

    /* For benchmarks and tests without the CUDA runtime. A graph holds what was enqueued between begin and end; time
     * launches it repeatedly and returns the mean in seconds. */
    adamod_status (*stream_create)(adamod__device *d, void **out);
    void (*stream_destroy)(adamod__device *d, void *stream);
    adamod_status (*graph_begin)(adamod__device *d);
    adamod_status (*graph_end)(adamod__device *d, void **graph);
    adamod_status (*graph_launch)(adamod__device *d, void *graph);
    adamod_status (*graph_time)(adamod__device *d, void *graph, int launches, double *seconds); /* * */
    void (*graph_free)(adamod__device *d, void *graph);
    /* Copies whole KiB by a kernel; hint 1 tells the caches that nothing is used again. */
    adamod_status (*copy)(adamod__device *d, void *to, const void *from, size_t bytes, int hint);
    /* Before the first step: how AdaMod's update with states of this type (f32, q8, or bf16 as all else) is cut, in place
     * of the standard way. ADAMOD_ERROR_RANGE past the end. */
    adamod_status (*tune)(adamod__device *d, int index, adamod_type states, const char **name);
} adamod__device_api;

/* The symbol that libadamod_cuda exports. */
#define ADAMOD__DEVICE_ENTRY "adamod__cuda"
typedef const adamod__device_api *(*adamod__device_entry)(void);

#endif
