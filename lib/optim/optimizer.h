/* The handle: groups of options, parameters with their states, and what is kept from step to step. */
#ifndef ADAMOD_OPTIMIZER_H
#define ADAMOD_OPTIMIZER_H

#include "optim/internal.h"
#include "optim/ranges.h"
#include "optim/optim.h"

typedef struct group {
    double options[OPT_COUNT];
    double effective[OPT_COUNT]; /* with the schedules' values for the current update */
    adamod_schedule *schedule[OPT_COUNT];
    int node[OPT_COUNT];        /* index of the schedule on the device; -1: none */
    bool computes[RANGE_TYPES]; /* it has parameters computed in f32, or f64: options must stay in that range */
} group;

/* Device pointers to a group's options; NULL: use the value that was set. */
typedef struct device_values {
    const void *value[OPT_COUNT];
    uint8_t type[OPT_COUNT];
} device_values;

/* span.step counts the updates of the parameter; during a step it is the number of the current one. */
typedef struct tensor {
    char *name;
    int group;
    bool given_master; /* span.master is the user's */
    bool given_states; /* span.state and span.scale are the user's */
    bool lifted;       /* its parameter and gradient are not in the ranges */
    adamod_span span;
    size_t state_bytes[ADAMOD_MAX_STATES]; /* sizes of span.state; 0: no such state */
} tensor;

struct adamod_optimizer {
    const rule *rule;
    const kernel_set *kernels;
    adamod_allocator allocator;
    group *groups;
    int n_groups;
    tensor *tensors;
    work_item *items; /* as many as tensors */
    int64_t n, capacity;
    int32_t *names;        /* hash table of names with 2 * capacity slots: parameter number + 1; 0: free */
    adamod__ranges ranges; /* address ranges of all arrays */
    size_t state_bytes;
    work_space space;
    adamod_pool *pool;
    bool own_pool;
    int64_t steps, skipped;
    double norm;                                /* negative: not computed in the last step */
    adamod_step_report reports[ADAMOD_REPORTS]; /* attempt n is at n % ADAMOD_REPORTS; on a GPU the device keeps them */
    bool collect;
    adamod__stats stats;
    void **kept; /* during an evaluation: the training weights of the first n_kept parameters; else NULL */
    int64_t n_kept;

    /* On a GPU. The counts above (steps, skipped, norm, a span's step) are then copies made by adamod__device_pull. */
    const adamod__device_api *api;
    adamod__device *device; /* NULL: on the CPU */
    char device_name[16];
    bool laid_out;       /* the device has all parameters and groups */
    bool groups_changed; /* the device does not have all schedules */
    uint32_t errors_seen;
    device_values *values; /* for the first n_values groups */
    int n_values;
};

/* ---- shared functions (optimizer.c) ---- */

/* Fails because the handle is NULL. */
adamod_status adamod__null_handle(void);
/* Updates the handle's copies of counts that a device keeps. */
adamod_status adamod__refresh(const adamod_optimizer *opt);
/* Removes the pool, and ends its threads if the handle owns it. */
void adamod__drop_pool(adamod_optimizer *opt);

void *adamod__alloc(const adamod_optimizer *opt, size_t bytes);
void adamod__free(const adamod_optimizer *opt, void *pointer, size_t bytes);

/* ---- groups (groups.c) ---- */

adamod_status adamod__check_group(const adamod_optimizer *opt, int g);
/* Also accepts -1, for all groups. */
adamod_status adamod__check_group_or_all(const adamod_optimizer *opt, int g);
/* Checks a value of an option against the types of the group's parameters. */
adamod_status adamod__check_in_group(const adamod_optimizer *opt, int g, const option_spec *o, double value);

/* ---- parameters and their states (tensors.c) ---- */

/* The type of the states. */
adamod_type adamod__type_of_states(const double *options, const adamod_span *x);
/* The name of an 8-bit state's scales. */
const char *adamod__scale_name(const char *state);
/* The size of state k's scales; 0: it has none. */
size_t adamod__scale_bytes(const tensor *t, int k);

/* The states of a parameter that the library owns, in order, then its master, if any. adamod__state_ref returns false past
 * the end. */
typedef struct state_ref {
    const char *name;
    void **data;
    adamod_type type;
    adamod_state_desc desc;
    size_t bytes;
} state_ref;
bool adamod__state_ref(const adamod_optimizer *opt, const tensor *t, int index, state_ref *out);
void adamod__free_states(adamod_optimizer *opt, tensor *t);

/* ---- arrays must not overlap (overlap.c): no array that the optimizer writes may be part of another ---- */

/* Checks the parameter and gradient of x, which are not in the ranges. */
adamod_status adamod__check_overlap(const adamod_optimizer *opt, const adamod_span *x, const char *name);
/* Checks all arrays, states included, of a parameter that is not added yet. */
adamod_status adamod__check_new_overlap(const adamod_optimizer *opt, const tensor *t);

/* Makes room for one more parameter; false if out of memory. The functions below need that room, or room freed before. */
bool adamod__reserve_ranges(adamod_optimizer *opt);
void adamod__add_ranges(adamod_optimizer *opt, int64_t id);
/* Rebuilds all ranges, after arrays were replaced. */
void adamod__renew_ranges(adamod_optimizer *opt);
/* Remove the parameter and gradient of x from the ranges, or add them. */
void adamod__lift_range(adamod_optimizer *opt, int64_t id, const adamod_span *x);
void adamod__lay_range(adamod_optimizer *opt, int64_t id, const adamod_span *x);
/* Adds the current parameter and gradient, or fails if they overlap another array. */
adamod_status adamod__lay_range_checked(adamod_optimizer *opt, int64_t id);

/* ---- the step (step.c) ---- */

/* Fails because t's gradient is not finite; largest: its largest element, scaled and clipped. With t NULL, fails because the
 * norm overflows. */
adamod_status adamod__nonfinite(const tensor *t, int64_t update, double largest);

/* ---- evaluation (evaluation.c) ---- */

/* Fails because the optimizer is in an evaluation, in which `call` is not allowed. */
adamod_status adamod__evaluates(const char *call);
/* Frees the training weights kept during an evaluation. */
void adamod__forget_kept(adamod_optimizer *opt);

/* ---- on a GPU (device.c) ---- */

void adamod__device_close(adamod_optimizer *opt);
adamod_status adamod__device_alloc(const adamod_optimizer *opt, size_t bytes, void **out);
adamod_status adamod__device_fill(const adamod_optimizer *opt, const tensor *t, const state_ref *s);
adamod_status adamod__device_in(const adamod_optimizer *opt, void *to, const void *from, size_t bytes);
adamod_status adamod__device_out(const adamod_optimizer *opt, void *to, const void *from, size_t bytes);

/* The functions below do nothing on the CPU. */

/* Checks that the device can reach an array of the user; name and what are for the message. */
adamod_status adamod__device_check(const adamod_optimizer *opt, const char *name, const char *what, const void *array);
/* Fails while the stream is captured into a graph. */
adamod_status adamod__device_outside(const adamod_optimizer *opt, const char *what);
/* Fetch the counts that the device keeps, or replace them. */
adamod_status adamod__device_pull(adamod_optimizer *opt);
adamod_status adamod__device_push(const adamod_optimizer *opt);
/* Call before adding parameters or groups: the next step lays out everything again. */
adamod_status adamod__device_unlay(adamod_optimizer *opt);
adamod_status adamod__device_options(const adamod_optimizer *opt, int first, int last);
/* Clears the reports of past attempts. */
adamod_status adamod__device_forget(const adamod_optimizer *opt);
void adamod__device_repoint(adamod_optimizer *opt, int64_t id);
adamod_status adamod__device_step(adamod_optimizer *opt);
adamod_status adamod__device_collect(adamod_optimizer *opt);
adamod_status adamod__device_statistics(adamod_optimizer *opt);

#endif
