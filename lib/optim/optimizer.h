/* The handle: groups of options, parameters with their states, and what a step keeps from one to the next. */
#ifndef ADAMOD_OPTIMIZER_H
#define ADAMOD_OPTIMIZER_H

#include "optim/internal.h"
#include "optim/ranges.h"
#include "optim/optim.h"

typedef struct group {
    double options[OPT_COUNT];
    double effective[OPT_COUNT]; /* with the schedules' values for the current update */
    adamod_schedule *schedule[OPT_COUNT];
    int node[OPT_COUNT];        /* where the device has the schedule; -1: it has none */
    bool computes[RANGE_TYPES]; /* there are parameters of which options must keep to f32's, or f64's range */
} group;

/* Where the device is to read a group's options; NULL: as they were set. */
typedef struct device_values {
    const void *value[OPT_COUNT];
    uint8_t type[OPT_COUNT];
} device_values;

/* span.step is how many updates the parameter has had, except within a step, when it is the update's number. */
typedef struct tensor {
    char *name;
    int group;
    bool given_master; /* span.master is the user's */
    bool given_states; /* span.state and span.scale are the user's */
    bool lifted;       /* its parameter and gradient are not among the ranges */
    adamod_span span;
    size_t state_bytes[ADAMOD_MAX_STATES]; /* of span.state; 0: there is none */
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
    int32_t *names; /* 2 * capacity places: parameters' numbers and 1, where the hashes of their names say; 0: free */
    adamod__ranges ranges; /* of all arrays */
    size_t state_bytes;
    work_space space;
    adamod_pool *pool;
    bool own_pool;
    int64_t steps, skipped;
    double norm;                                /* negative: not computed in the last step */
    adamod_step_report reports[ADAMOD_REPORTS]; /* attempt n is at n % ADAMOD_REPORTS; on a GPU the device keeps them */
    bool collect;
    adamod__stats stats;
    void **kept; /* the first so many parameters while those to evaluate with are in their place; NULL: they are not */
    int64_t n_kept;

    /* On a GPU. Counts above (steps, skipped, norm, a span's step) are then those of the last adamod__device_pull. */
    const adamod__device_api *api;
    adamod__device *device; /* NULL: on the CPU */
    char device_name[16];
    bool laid_out;       /* it knows all parameters and groups */
    bool groups_changed; /* it does not know all schedules */
    uint32_t errors_seen;
    device_values *values; /* of the first so many groups */
    int n_values;
};

/* ---- what its files share (optimizer.c) ---- */

/* For a handle that is NULL. */
adamod_status adamod__null_handle(void);
/* Counts that a device keeps are fetched where they are read; the handle's own are but a copy. */
adamod_status adamod__refresh(const adamod_optimizer *opt);
/* Ends the threads, if they are the handle's own. */
void adamod__drop_pool(adamod_optimizer *opt);

void *adamod__alloc(const adamod_optimizer *opt, size_t bytes);
void adamod__free(const adamod_optimizer *opt, void *pointer, size_t bytes);

/* ---- groups (groups.c) ---- */

adamod_status adamod__check_group(const adamod_optimizer *opt, int g);
/* The same where -1 stands for all groups. */
adamod_status adamod__check_group_or_all(const adamod_optimizer *opt, int g);
/* Whether the parameters that a group has can be computed with this value of an option. */
adamod_status adamod__check_in_group(const adamod_optimizer *opt, int g, const option_spec *o, double value);

/* ---- parameters and their states (tensors.c) ---- */

/* The type states are kept in. */
adamod_type adamod__type_of_states(const double *options, const adamod_span *x);
adamod_type adamod__state_type(const adamod_optimizer *opt, const tensor *t);
/* What the scales of a state in 8 bits are called. */
const char *adamod__scale_name(const char *state);
/* Of the scales of state k; 0: it has none. */
size_t adamod__scale_bytes(const tensor *t, int k);

/* The library's own states of a parameter, in order, and then its master if there is one; false past the end. */
typedef struct state_ref {
    const char *name;
    void **data;
    adamod_type type;
    adamod_state_desc desc;
    size_t bytes;
} state_ref;
bool adamod__state_ref(const adamod_optimizer *opt, const tensor *t, int index, state_ref *out);
void adamod__free_states(adamod_optimizer *opt, tensor *t);

/* The stream of a parameter's random numbers follows from its name, so that it does not depend on the order of adding.
 * FNV-1a. */
uint64_t adamod__name_hash(const char *name);

/* ---- arrays may not overlap (overlap.c) ---- */

/* That nothing the optimizer writes is written or read as anything else; the handle's ranges know all of its arrays.
 *
 * For the parameter and gradient of x alone, which are not among the ranges. */
adamod_status adamod__check_overlap(const adamod_optimizer *opt, const adamod_span *x, const char *name);
/* For all arrays, states included, of one that is not added yet. */
adamod_status adamod__check_new_overlap(const adamod_optimizer *opt, const tensor *t);

/* Makes room for one parameter more; false: no memory. What follows needs that room, or room that was used before. */
bool adamod__reserve_ranges(adamod_optimizer *opt);
void adamod__add_ranges(adamod_optimizer *opt, int64_t id);
/* All of them anew, after arrays were exchanged. */
void adamod__renew_ranges(adamod_optimizer *opt);
/* Takes a parameter and its gradient as x has them out of the ranges, or puts them there. */
void adamod__lift_range(adamod_optimizer *opt, int64_t id, const adamod_span *x);
void adamod__lay_range(adamod_optimizer *opt, int64_t id, const adamod_span *x);
/* Puts those there that it has now, if they overlap no other. */
adamod_status adamod__lay_range_checked(adamod_optimizer *opt, int64_t id);

/* ---- the step (step.c) ---- */

/* Says that an update was not taken: because of t's gradient, whose largest element as the update would have seen it is
 * given, or with NULL because the norm overflows. */
adamod_status adamod__nonfinite(const tensor *t, int64_t update, double largest);

/* ---- the weights to evaluate with (evaluation.c) ---- */

void adamod__forget_kept(adamod_optimizer *opt);

/* ---- on a GPU (device.c) ---- */

void adamod__device_close(adamod_optimizer *opt);
adamod_status adamod__device_alloc(const adamod_optimizer *opt, size_t bytes, void **out);
adamod_status adamod__device_fill(const adamod_optimizer *opt, const tensor *t, const state_ref *s);
adamod_status adamod__device_in(const adamod_optimizer *opt, void *to, const void *from, size_t bytes);
adamod_status adamod__device_out(const adamod_optimizer *opt, void *to, const void *from, size_t bytes);
/* Whether the device can reach an array of the user's; what is for the message. */
adamod_status adamod__device_check(const adamod_optimizer *opt, const char *name, const char *what, const void *array);
/* For what cannot be part of a graph: fails while one is captured. */
adamod_status adamod__device_outside(const adamod_optimizer *opt, const char *what);
/* Fetches the counts that the device keeps, and replaces them. This and what follows does nothing on the CPU. */
adamod_status adamod__device_pull(adamod_optimizer *opt);
adamod_status adamod__device_push(const adamod_optimizer *opt);
/* Before parameters or groups are added: all of it is laid out anew before the next step. */
adamod_status adamod__device_unlay(adamod_optimizer *opt);
adamod_status adamod__device_options(const adamod_optimizer *opt, int first, int last);
/* Reports of attempts before now. */
adamod_status adamod__device_forget(const adamod_optimizer *opt);
void adamod__device_repoint(adamod_optimizer *opt, int64_t id);
adamod_status adamod__device_step(adamod_optimizer *opt);
adamod_status adamod__device_collect(adamod_optimizer *opt);
adamod_status adamod__device_statistics(adamod_optimizer *opt);

#endif
