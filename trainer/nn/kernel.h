/* kernel.h - for kernel authors: what a call is given, and what a kernel may leave to the plan.
 *
 * An op has up to two kernels in each backend, forward and backward; the reference kernels (ops/NAME.c) define the result.
 * A kernel has no state: the plan puts all it needs into its nn_call. It neither allocates nor waits.
 *
 *   on the host    rows are those of this run; numbers are f32; work is cut into tasks for nn_parallel by shapes alone,
 *                  so that results do not depend on the number of threads
 *   on a device    pointers are the device's, and a kernel only enqueues work on call->device->stream. That work is
 *                  recorded and replayed, so rows are always the capacity; the number of live rows is in the device's
 *                  memory. Sums have an order that follows from sizes alone: no floating-point atomics */
#pragma once

#include "nn/nn.h"

/* A value as a kernel sees it: memory, and the rows of this run. The last dimension is fastest. An array is contiguous
 * unless the op takes others (strided_inputs, strided_outputs in op.h): then it may lie inside a wider array, whose pixels
 * are further apart than this one has channels. A matrix has a pixel in each row. */
typedef struct nn_array {
    void *data;               /* NULL: an optional input that is not there */
    int64_t rows, cols;       /* cols: the product of all dimensions but the first; 1 for a vector */
    int64_t stride;           /* numbers from pixel to pixel, here and in the gradient */
    nn_type type;             /* on the host f32, i32 or u8; a device's plan may keep f32 values as bf16 */
    int64_t offset;           /* numbers from the beginning of the array that it lies inside */
    const nn_shape *shape;    /* all dimensions; images are [rows, height, width, channels]; dim[0] is the capacity */
    const int64_t *live_rows; /* on a device: the number of rows that belong to the batch; NULL: all */
} nn_array;

/* A sum over rows that a backward pass leaves for its end: to_j = partials_0j + ... + partials_(n-1)j, added to what is
 * there if add. */
typedef struct nn_sum {
    const float *partials;
    int64_t stride, n, cols; /* partials: numbers from row to row, rows, columns */
    float *to;
    bool add;
} nn_sum;

/* The sums of a pass, with room for NN_MAX_INPUTS of each step. */
typedef struct nn_sums {
    nn_sum *list;
    int count;
} nn_sums;

/* Two numbers for each channel of an array: first[k] and first[k + stride]. first NULL: there are none. */
typedef struct nn_channel_pairs {
    float *first;
    int64_t stride;
} nn_channel_pairs;

/* A running statistic after a batch. */
static inline float nn_run(float state, double momentum, double added) {
    return (float)((1 - momentum) * state + added);
}

/* Added by a backward call; all zero in a forward call.
 *
 * A value's gradient has the value's type, so on a device output and input may point at bf16. A parameter's gradient
 * is always f32, though the parameter may be given as bf16: see type. */
typedef struct nn_gradients {
    float *output[NN_MAX_OUTPUTS]; /* NULL: 0, as the loss does not depend on this output; never all of them */
    float *input[NN_MAX_INPUTS];   /* NULL: not wanted */
    nn_type type[NN_MAX_INPUTS];
    bool accumulate[NN_MAX_INPUTS]; /* add to input, which holds something; else replace it */
    /* The rest is for devices. */
    float *partials; /* the floats that the kernels' partials asked for; they stay until the end of the backward pass */
    nn_sums *sums;   /* takes what is to be summed at that end; NULL: sum at once */
    /* Receives the sum over rows of an input's gradient, for inputs in the kernels' row_sums: the gradient of a bias that
     * was added to the input. NULL: not wanted. accumulate is false for such an input; accumulate_sums is for all of
     * them. */
    float *row_sums[NN_MAX_INPUTS];
    bool accumulate_sums;
    /* backward_weights: another call of the same op and shapes, to be done with this one. It adds to gradients of
     * parameters where this one does. NULL: none. */
    const struct nn_call *paired_with;
} nn_gradients;

/* Added on a device. */
typedef struct nn_on_device {
    void *stream;
    nn_precision precision;
    const uint64_t *random; /* the run's key; the op's is nn_stream_key(*random, node) */
    uint64_t node;
} nn_on_device;

/* Added by fusion, in training on a device; elsewhere all zero. */
typedef struct nn_fused {
    /* Mean and variance of input 0's channels over the batch, known before forward; and room for those of output 0. */
    nn_channel_pairs moments, output_moments;
    /* Room for a part of input 0's gradient, which is input[0] + a + b x with a and b of its channel; and that part of
     * output 0's. Kernels that leave nothing there write zeros where they do not accumulate. */
    nn_channel_pairs linear, output_linear;
    /* The call of the op that made input 0. These kernels do its work, too: input 0 and its gradient have no memory.
     * NULL: none. */
    const struct nn_call *maker;
    /* Forward: the call of the next op, which alone reads output 0. This kernel does its work, too, and writes output 0
     * only if that op's backward reads it. NULL: none. */
    const struct nn_call *reader;
} nn_fused;

/* Added for several processes, where nodes are synced or have running outputs; else all zero. */
typedef struct nn_sync {
    nn_add_up *add_up; /* sums numbers over processes, on a device in its memory; NULL: one process */
    void *context;
    /* On the host, in training: receives what a batch adds to running statistics, momentum times its own, output after
     * output of the op's running, and leaves the statistics as they are. NULL: the statistics take it at once. */
    double *added;
} nn_sync;

/* One call of an op's forward or backward kernel. */
typedef struct nn_call {
    const void *attributes; /* the op's own struct: ops/attributes.h */
    nn_array input[NN_MAX_INPUTS];
    nn_array output[NN_MAX_OUTPUTS]; /* an output that aliases an input has the input's memory */
    float *saved;                    /* forward keeps this for backward: node->saved, then the kernels' extra_saved */
    float *workspace;                /* the floats that the kernels' workspace function asked for */
    void *prepared;                  /* the result of the kernels' prepare for this call */
    adamod_pool *pool;
    uint64_t key; /* of this op's random numbers in this run: see random.h */
    bool training;
    bool constant; /* parameters are the same in every run */
    bool mixed;    /* on the host: products may round their factors to bf16 */
    const nn_gradients *grad;
    const nn_on_device *device; /* NULL: on the host */
    const nn_fused *fused;
    const nn_sync *sync;
} nn_call;

typedef void (*nn_kernel)(const nn_call *c);

/* Abilities of an op's kernels to work for other ops, in training on a device. Functions are asked when shapes,
 * types and strides are known, but no memory. */
typedef struct nn_fusion {
    bool takes_moments;                      /* forward uses moments */
    bool (*gives_moments)(const nn_call *c); /* whether forward can leave output_moments; NULL: no */
    bool leaves_linear;                      /* backward takes care of linear */
    bool (*takes_linear)(const nn_call *c);  /* whether backward adds output_linear; NULL: no */
    /* Whether forward and backward can do the work of the op that made input 0, which nothing else reads; NULL: no. */
    bool (*absorbs)(const nn_call *c, const char *maker_op, const nn_call *maker);
    /* Whether forward can do the work of the next op, which alone reads output 0; NULL: no. */
    bool (*finishes)(const nn_call *c, const char *reader_op, const nn_call *reader);
} nn_fusion;

/* An op's kernels in one backend. All but forward may be NULL or 0. */
typedef struct nn_kernels {
    nn_kernel forward, backward; /* backward NULL: the op has none */
    /* On a device: the part of backward that only parameters' gradients need, called after backward, or later together
     * with another's (paired_with). Input 0's gradient is backward's own. NULL: backward does everything. */
    nn_kernel backward_weights;
    size_t (*workspace)(const nn_call *c); /* floats needed, asked at full capacity */
    /* Makes descriptors and choices that are the same in every run: once for each node and direction, when a plan is made
     * and before workspace is asked. */
    adamod_status (*prepare)(const nn_call *c, void **prepared);
    void (*release)(void *prepared);
    /* Floats that forward leaves for backward right behind those that the op saves, which must be some. Asked as partials
     * is. */
    size_t (*extra_saved)(const nn_call *c);
    /* On a device: floats in which backward leaves partial sums of parameters' gradients. Asked before values have
     * memory: shapes, types, attributes and the wanted gradients of parameters are known. */
    size_t (*partials)(const nn_call *c);
    unsigned row_sums; /* bit i: backward gives row_sums[i], too */
    bool pairs;        /* backward_weights takes paired_with */
    /* Whether this call, prepared, takes a slow way that other settings would avoid: which and why, for people. */
    bool (*remark)(const nn_call *c, char *out, size_t size);
    bool (*note)(nn_note *out); /* how the open device runs this op, for people; false: there is nothing to say */
    nn_fusion fusion;
} nn_kernels;

/* Runs task(context, i) for i in 0..n-1 on the pool; which thread runs what must not matter to the result. */
void nn_parallel(adamod_pool *pool, int64_t n, void (*task)(void *context, int64_t i), void *context);

/* The product of all dimensions but the first; 1 for a vector. */
static inline int64_t nn_columns(const nn_shape *s) {
    int64_t n = 1;
    for (int d = 1; d < s->ndim; d++) n *= s->dim[d];
    return n;
}

static inline int64_t nn_last_dimension(const nn_shape *s) { return s->ndim ? s->dim[s->ndim - 1] : 1; }

/* Channels of images or columns of a matrix; and how many pixels or rows have them. */
static inline int64_t nn_channels(const nn_array *a) { return nn_last_dimension(a->shape); }
static inline int64_t nn_pixels(const nn_array *a) { return a->rows * (a->cols / nn_channels(a)); }

/* Numbers at full capacity; 0 if there is no such array. */
static inline int64_t nn_numbers(const nn_shape *s) { return s->ndim ? s->dim[0] * nn_columns(s) : 0; }
