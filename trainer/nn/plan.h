/* The inside of a plan: plan.c, join.c, calls.c, fuse.c and layout.c make it, replay.c runs it. */
#pragma once

#include "nn/device_params.h"
#include "nn/graph.h"

/* An array in the block, needed in steps first..last. */
typedef struct piece {
    size_t bytes, offset;
    int first, last;  /* last < first: not needed at all */
    struct piece *in; /* lies in the place of that piece; NULL: has its own */
} piece;

/* Where a value lies: in the memory of value `in`, from number `offset` of each pixel on. in is the value itself if it has
 * its own memory. */
typedef struct plan_place {
    nn_value in;
    int64_t offset;
} plan_place;

typedef struct plan_step {
    const nn_node *node;
    nn_kernels kernels;
    nn_fusion fusion; /* of kernels, unless the node must stay unfused */
    nn_call call;     /* points at the four below */
    nn_gradients grad;
    nn_on_device device;
    nn_fused fused;
    nn_sync sync;
    bool backward;  /* false in a backward pass: forward again */
    unsigned given; /* backward: bit k: output k has a gradient */
    piece partials; /* of its sums over rows */
    int paired_in;  /* the step that does its backward_weights, too; 0: none */
    int done_in;    /* the step that does its work, fused; 0: none */
} plan_step;

/* Numbers of the parameters' gradients that are complete after step `ready`. */
typedef struct plan_stretch {
    int64_t first, count;
    int ready;
} plan_stretch;

typedef struct plan_watch {
    plan_stretch *list;
    int n, told; /* told: reported in this pass */
    nn_gradient_ready *ready;
    void *context;
} plan_watch;

/* A gradient of at most PAIR_NUMBERS numbers leaves much of a device idle; it is computed together with another one, at
 * most PAIR_STEPS steps later. */
enum { PAIR_NUMBERS = 1 << 20, PAIR_STEPS = 16 };

/* The most numbers of a loss on a device. */
enum { LOSS_NUMBERS = 64 };

/* Copies to a device at the beginning of a run, and back at its end. Two runs may be in flight, so there are two of each
 * buffer that the device copies from or to; the caller's buffers stay where they are. */
enum { SLOTS = 2 };

/* Stands before the inputs of a run on a device, where kernels read it. */
typedef struct plan_header {
    uint64_t random;                  /* the key of the run's random numbers */
    int64_t rows[NN_MAX_SYMBOLS + 1]; /* live rows by symbol */
} plan_header;

typedef struct plan_traffic {
    size_t *offset; /* of each input and output, in the block of its kind */
    size_t input_bytes, output_bytes;
    char *inputs, *outputs;                       /* the caller's */
    char *input_slot[SLOTS], *output_slot[SLOTS]; /* the device copies from and to these */
    char *device_inputs;                          /* begins with a plan_header */
    float *device_one;                            /* the gradient of the loss: 1, 0, 0, ... */
    void *done[SLOTS];                            /* events */
    int64_t begun, waited;                        /* runs */
    void *recording[NN_VARIANTS][SLOTS];
    bool known[NN_VARIANTS]; /* has run once */
    bool replaying;          /* the run was begun by nn_plan_replay */
} plan_traffic;

struct nn_plan {
    nn_graph *graph;
    nn_plan_options options;
    plan_step *steps;
    int n_steps, n_forward;
    nn_type *type;              /* of each value, in this plan */
    plan_place *place;          /* of each value and its gradient */
    bool *converted;            /* of each value: a f32 input that is converted to bf16 as a run begins */
    piece *data, *grad, *saved; /* of each value, of its gradient, of each node */
    piece *remade;              /* of each value: of its second copy, which backward makes; bytes 0: there is none */
    float *pairs;               /* moments and linear parts of channels, for fuse.c */
    size_t pairs_bytes;
    char *block;
    size_t block_bytes, without_reuse_bytes, workspace_bytes;
    float *workspace;
    nn_sums sums; /* left for the end of a backward pass, on a device */
    plan_watch watch;
    int64_t rows[NN_MAX_SYMBOLS + 1];
    uint64_t seed, random_step;
    nn_device_params *on_device;  /* NULL: the host */
    const nn_device_functions *f; /* of that device */
    bool unrecorded;              /* runs are not recorded */
    int constants;                /* number of constants that it holds on the device */
    plan_traffic traffic;
};

/* ---- join.c ---- */

/* Places values inside others, once types are known, and fills steps' given and accumulate. False without memory. */
bool nn_plan_join(nn_plan *plan);
/* Whether a value lies in another one's memory, or others in its. */
bool nn_plan_overlaps(const nn_plan *plan, nn_value v);

/* ---- fuse.c ---- */

/* Fuses steps of a training plan on a device, once calls are begun: moments, linear parts of gradients, whole ops. */
adamod_status nn_plan_fuse(nn_plan *plan);

/* ---- layout.c ---- */

static inline size_t nn_type_bytes(nn_type type) { return type == NN_U8 ? 1 : type == NN_BF16 ? 2 : 4; }

/* Bytes of an array, a multiple of the alignment; and of what a kernel asks for. */
size_t nn_plan_bytes(const nn_plan *plan, const nn_shape *shape, nn_type type);
size_t nn_plan_asked(const nn_plan *plan, size_t (*ask)(const nn_call *c), const nn_call *c);
/* Gives each array its place in the block, once types and calls are known; false without memory. */
bool nn_plan_layout(nn_plan *plan);
/* Whether a step reads or writes a value's second copy. */
static inline bool nn_plan_uses_remade(const nn_plan *plan, const plan_step *step, nn_value v) {
    return plan->remade[v].bytes > 0 && step - plan->steps >= plan->n_forward;
}

/* ---- calls.c ---- */

/* Sets the types of values, once the steps are listed. */
adamod_status nn_plan_types(nn_plan *plan);
/* Fills calls as far as possible without memory for values; finish_calls fills the rest. */
adamod_status nn_plan_calls(nn_plan *plan);
void nn_plan_finish_calls(nn_plan *plan);
/* The memory of an input on a device, as given by the caller. */
void *nn_plan_given(const nn_plan *plan, nn_value v);
/* The memory of a value and of its gradient for kernels; NULL: none. */
void *nn_plan_address(const nn_plan *plan, nn_value v);
float *nn_plan_grad_address(const nn_plan *plan, nn_value v);
/* Fills the parts of a step's call that differ between runs. */
void nn_plan_bind(nn_plan *plan, plan_step *step);

/* ---- watch.c ---- */

/* Reports the stretches that a step of a backward pass completes. */
void nn_plan_tell(nn_plan *plan, int step);

/* ---- replay.c ---- */

/* Buffers and events of a device's plan. */
adamod_status nn_traffic_create(nn_plan *plan);
void nn_traffic_free(nn_plan *plan);
