/* A plan's inside: plan.c, join.c, calls.c, fuse.c and layout.c make it, replay.c runs it. */
#ifndef ADAMOD_NN_PLAN_H
#define ADAMOD_NN_PLAN_H

#include "nn/device_params.h"
#include "nn/graph.h"

/* An array in the block, needed in steps first..last. */
typedef struct piece {
    size_t bytes, offset;
    int first, last;        /* last < first: not needed at all */
    const struct piece *in; /* has that one's place; NULL: one of its own */
} piece;

/* The value in whose memory a value lies, from that number of a pixel on; itself: it has memory of its own. */
typedef struct plan_place {
    nn_value in;
    int64_t offset;
} plan_place;

typedef struct plan_step {
    const nn_node *node;
    nn_kernels kernels;
    nn_sharing sharing;
    nn_call call;
    bool backward;
    unsigned given; /* backward: bit k: there is a gradient of output k */
    piece partials; /* of its sums over rows */
    int paired_in;  /* its backward_weights is done with that step's; 0: by itself */
    int done_in;    /* that step does it; 0: it is done by itself */
} plan_step;

/* Numbers of the parameters' gradients that are complete after a step; and who is told, in the order of the list. */
typedef struct plan_stretch {
    int64_t first, count;
    int ready;
} plan_stretch;

typedef struct plan_watch {
    plan_stretch *list;
    int n, told; /* told: in this pass */
    nn_gradient_ready *ready;
    void *context;
} plan_watch;

/* A gradient of at most so many numbers leaves much of a device idle while it is computed, and is computed with another
 * one at most so many steps later. */
enum { PAIR_NUMBERS = 1 << 20, PAIR_STEPS = 16 };

/* Of a loss on a device, at most. */
enum { LOSS_NUMBERS = 64 };

/* What goes to a device at the beginning of a run and comes back at its end. Two runs may be under way, so there are two
 * of each buffer that the device copies from or to; what the caller writes and reads stays where it is. */
enum { SLOTS = 2 };

/* What a run is told besides its inputs, at the beginning of their block: kernels on the device read it. */
typedef struct plan_header {
    uint64_t random;                  /* the key of the run's random numbers */
    int64_t rows[NN_MAX_SYMBOLS + 1]; /* of the batch, by symbol */
} plan_header;

typedef struct plan_traffic {
    size_t *offset; /* of each value that is an input or output, in the blocks of its kind */
    size_t input_bytes, output_bytes;
    char *inputs, *outputs;                       /* the caller's */
    char *input_slot[SLOTS], *output_slot[SLOTS]; /* what is copied from and to */
    char *device_inputs;                          /* begins with a plan_header */
    float *device_one;                            /* the gradient of the loss: 1, 0, 0, ... */
    void *done[SLOTS];                            /* events */
    int64_t begun, waited;                        /* runs */
    void *recording[NN_VARIANTS][SLOTS];
    bool known[NN_VARIANTS]; /* was run once */
    bool replaying;          /* nn_plan_replay has begun the run */
} plan_traffic;

struct nn_plan {
    nn_graph *graph;
    nn_plan_options options;
    plan_step *steps;
    int n_steps, n_forward;
    nn_type *type;              /* of each value, as it is kept */
    plan_place *place;          /* of each value, and of its gradient */
    bool *converted;            /* of each value: an input that comes as f32 and is made bf16 as a run begins */
    piece *data, *grad, *saved; /* of each value; of each value; of each node */
    float *shared;              /* of channels: what steps tell each other */
    size_t shared_bytes;
    char *block;
    size_t block_bytes, unshared_bytes, workspace_bytes;
    float *workspace;
    nn_sums sums; /* of a backward pass, on a device: what its end is to sum */
    plan_watch watch;
    int64_t rows[NN_MAX_SYMBOLS + 1];
    uint64_t seed, random_step;
    nn_device_params *on_device;  /* NULL: the host */
    const nn_device_functions *f; /* of that device */
    bool unrecorded;              /* runs are not recorded */
    int constants;                /* that it has brought to the device, or found there */
    plan_traffic traffic;
};

/* ---- join.c ---- */

/* Places values inside others, once types are known, and tells steps which gradients there are before them: given,
 * accumulate. False without memory. */
bool nn_plan_join(nn_plan *plan);
/* Whether a value's memory is others', too. */
bool nn_plan_shares_block(const nn_plan *plan, nn_value v);

/* ---- fuse.c ---- */

/* What steps of a training plan on a device do for each other, once calls are begun: moments, linear parts of gradients,
 * ops inside others. */
adamod_status nn_plan_fuse(nn_plan *plan);

/* ---- layout.c ---- */

static inline size_t nn_type_bytes(nn_type type) { return type == NN_U8 ? 1 : type == NN_BF16 ? 2 : 4; }

/* Bytes of an array, a multiple of what arrays begin at; and of what a kernel asks for. */
size_t nn_plan_bytes(const nn_plan *plan, const nn_shape *shape, nn_type type);
size_t nn_plan_asked(const nn_plan *plan, size_t (*ask)(const nn_call *c), const nn_call *c);
/* Gives each array its place in the block, once types and calls are known; false without memory. */
bool nn_plan_layout(nn_plan *plan);

/* ---- calls.c ---- */

/* The types of values, once the steps are listed; or what does not fit. */
adamod_status nn_plan_types(nn_plan *plan);
/* What calls have before there is memory for values, and where sums go; the rest once there is. */
adamod_status nn_plan_calls(nn_plan *plan);
void nn_plan_finish_calls(nn_plan *plan);
/* Where an input comes to a device, as it was given. */
void *nn_plan_given(const nn_plan *plan, nn_value v);
/* Where a value and its gradient are for kernels; NULL: nowhere. */
void *nn_plan_address(const nn_plan *plan, nn_value v);
float *nn_plan_grad_address(const nn_plan *plan, nn_value v);
/* Fills the parts of a step's call that change from run to run. */
void nn_plan_bind(nn_plan *plan, plan_step *step);

/* ---- watch.c ---- */

/* After a step of a backward pass: tells of the stretches that it completes. */
void nn_plan_tell(nn_plan *plan, int step);

/* ---- replay.c ---- */

/* Buffers and events of a device's plan. */
adamod_status nn_traffic_create(nn_plan *plan);
void nn_traffic_free(nn_plan *plan);

#endif
