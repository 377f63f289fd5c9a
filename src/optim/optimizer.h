/* The handle: groups of options, parameters with their states, and what a step keeps from one to the next. */
#ifndef ADAMOD_OPTIMIZER_H
#define ADAMOD_OPTIMIZER_H

#include "internal.h"
#include "safetensors.h"

typedef struct group {
    double options[OPT_COUNT];
    double effective[OPT_COUNT]; /* with the schedules' values for the current update */
    adamod_schedule *schedule[OPT_COUNT];
} group;

/* span.step is how many updates the parameter has had, except within a step, when it is the update's number. */
typedef struct tensor {
    char *name;
    int group;
    adamod_span span;
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
    size_t state_bytes;
    work_space space;
    adamod_pool *pool;
    bool own_pool;
    int64_t steps, skipped;
    double norm; /* negative: not computed in the last step */
    bool collect;
    adamod__stats stats;
};

/* The type states are kept in. */
adamod_type adamod__state_type(const adamod_optimizer *opt, const tensor *t);

/* The states of a parameter, in order, and then the master if there is one; false past the end. */
typedef struct state_ref {
    const char *name;
    void **data;
    adamod_type type;
    adamod_state_desc desc;
    size_t bytes;
} state_ref;
bool adamod__state_ref(const adamod_optimizer *opt, const tensor *t, int index, state_ref *out);

/* What a file holds of an optimizer, where names of tensors and keys of metadata begin with prefix: adamod_save has none,
 * a checkpoint keeps parameters beside it. The data stay the optimizer's. */
#define ADAMOD__STATE_PAIRS 4
typedef struct adamod__state_list {
    adamod__st_tensor *tensors;
    size_t n;
    adamod__st_pair metadata[ADAMOD__STATE_PAIRS];
} adamod__state_list;
adamod_status adamod__state_list_make(const adamod_optimizer *opt, const char *prefix, adamod__state_list *out);
void adamod__state_list_free(adamod__state_list *list);
/* The way back, changing nothing unless all of it fits. path is for messages. */
adamod_status adamod__state_restore(adamod_optimizer *opt, const adamod__st_file *file, const char *path,
                                    const char *prefix);

/* The stream of a parameter's random numbers follows from its name, so that it does not depend on the order of adding.
 * FNV-1a. */
uint64_t adamod__name_hash(const char *name);

void *adamod__alloc(const adamod_optimizer *opt, size_t bytes);
void adamod__free(const adamod_optimizer *opt, void *pointer, size_t bytes);

#endif
