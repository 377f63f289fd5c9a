/* kernel.h - for who writes kernels: what a call is given, and what may be left to the plan.
 *
 * An op has up to two kernels in each backend, forward and backward; the reference ones (ops/NAME.c) say what is right.
 * A kernel has no state: all it needs is in its nn_call, which the plan fills. It neither allocates nor waits.
 *
 *   on the host    rows are those of this run; numbers are f32; work is cut into tasks for nn_parallel by shapes alone,
 *                  so that results do not depend on the number of threads
 *   on a device    pointers are the device's, and a kernel only enqueues work on call->stream. What it enqueues is
 *                  recorded and replayed, so rows are always the capacity; how many of them are live is in the device's
 *                  memory. Sums have an order that follows from sizes alone: no floating-point atomics */
#ifndef ADAMOD_NN_KERNEL_H
#define ADAMOD_NN_KERNEL_H

#include "nn/nn.h"

/* A value as a kernel sees it: memory, and the rows of this run. The last dimension is fastest. Arrays are contiguous,
 * unless the op says that it takes others (strided_inputs, strided_outputs in op.h): then an array may lie inside a wider
 * one, and its pixels are further apart than they have channels. A matrix has a pixel in each row. */
typedef struct nn_array {
    void *data;               /* NULL: there is none (an optional input) */
    int64_t rows, cols;       /* cols: the product of all dimensions but the first; 1 for a vector */
    int64_t stride;           /* numbers from pixel to pixel: the last dimension, where contiguous. A gradient's is its
                               * value's */
    nn_type type;             /* on the host f32, i32 or u8; a device's plan may keep f32 values as bf16 */
    int64_t offset;           /* numbers from the beginning of the array that it lies inside of */
    const nn_shape *shape;    /* all dimensions: of images [rows, height, width, channels]; dim[0] is the capacity */
    const int64_t *live_rows; /* on a device: how many of the rows belong to the batch; NULL: all of them */
} nn_array;

/* A sum over rows that a backward pass leaves for its end: to_j = partials_0j + ... + partials_(n-1)j, added to what is
 * there if add. */
typedef struct nn_sum {
    const float *partials;
    int64_t stride, n, cols; /* of partials: from row to row, rows, columns */
    float *to;
    bool add;
} nn_sum;

/* Those of a pass, with room for NN_MAX_INPUTS of each step. */
typedef struct nn_sums {
    nn_sum *list;
    int count;
} nn_sums;

/* Two numbers for each channel of an array: first[k] and first[k + stride]. first NULL: there are none. */
typedef struct nn_channel_pairs {
    float *first;
    int64_t stride;
} nn_channel_pairs;

/* A running statistic takes what a batch adds to it. */
static inline float nn_run(float state, double momentum, double added) {
    return (float)((1 - momentum) * state + added);
}

/* One call of an op's forward or backward kernel. */
typedef struct nn_call {
    const void *attributes; /* the op's own struct: ops/attributes.h */
    nn_array input[NN_MAX_INPUTS];
    nn_array output[NN_MAX_OUTPUTS]; /* one that aliases an input has that one's memory */
    float *saved;                    /* what forward keeps for backward: node->saved, then the kernels' extra_saved */
    /* Backward only. Gradients of values have the value's type, so on a device output_grad and input_grad may point at
     * bf16. Those of parameters are always f32, though the parameter may be given as bf16: see input_grad_type. */
    float *output_grad[NN_MAX_OUTPUTS]; /* NULL: 0, as the loss does not depend on this output; never all of them */
    float *input_grad[NN_MAX_INPUTS];   /* NULL: not wanted */
    nn_type input_grad_type[NN_MAX_INPUTS];
    bool accumulate[NN_MAX_INPUTS]; /* add to input_grad, which holds something; else replace it */
    /* Both. */
    float *workspace; /* as many floats as the kernels' workspace function asked for */
    adamod_pool *pool;
    bool training;
    bool constant; /* parameters are the same in every run */
    uint64_t key;  /* of this op's random numbers in this run: see random.h */
    nn_add_up
        *add_up; /* of an op whose attributes say shared: over processes, on a device in its memory; NULL: alone */
    void *add_context;
    /* On a device only. */
    const uint64_t *random; /* the run's key: the op's is nn_stream_key(*random, node) */
    uint64_t node;
    nn_precision precision;
    void *stream;
    void *prepared; /* what the kernels' prepare made for this call */
    float
        *partials; /* as many floats as the kernels' partials asked for; they stay until the end of the backward pass */
    nn_sums *sums; /* where to note what is to be summed then; NULL: sum at once */
    /* Where the sums over rows of input_grad go, for inputs that the kernels' row_sums has: the gradient of a bias that
     * was added to the input. NULL: not wanted. accumulate is false for such an input; accumulate_sums is for all of
     * them. */
    float *row_sums[NN_MAX_INPUTS];
    bool accumulate_sums;
    /* Of backward_weights: another call of the same op and shapes that is to be done with this one, and adds to
     * gradients of parameters where this one does. NULL: none. */
    const struct nn_call *paired_with;
    /* Mean and variance of input 0's channels over the batch, which are known when forward begins; and where forward leaves
     * those of output 0, for others. Of calls in training. */
    nn_channel_pairs moments, output_moments;
    /* Where backward may leave a part of input 0's gradient: that is input_grad[0] + a + b x, with a and b of its channel.
     * Kernels that leave nothing there write zeros where they do not accumulate. And where it finds that of output 0. */
    nn_channel_pairs linear, output_linear;
    /* The call of the op that made input 0, which the kernels do, too: input 0 and its gradient have no memory. NULL:
     * none. */
    const struct nn_call *maker;
    /* On the host, in training: what a batch adds to running statistics, momentum times its own, goes here, output after
     * output of the op's running; they stay as they are. NULL: they take it at once. */
    double *added;
} nn_call;

typedef void (*nn_kernel)(const nn_call *c);

/* An op's kernels in one backend. All but forward may be NULL or 0. */
typedef struct nn_kernels {
    nn_kernel forward, backward; /* backward NULL: the op has none */
    /* On a device: the part of backward that only parameters' gradients need, called after backward, or later, together
     * with another's (paired_with). Input 0 is backward's own. NULL: backward does everything. */
    nn_kernel backward_weights;
    size_t (*workspace)(const nn_call *c); /* floats needed, asked at full capacity */
    /* Once for each node and direction, when a plan is made and before workspace is asked: descriptors and choices that
     * are the same in every run. output_grad is NULL for forward. */
    adamod_status (*prepare)(const nn_call *c, void **prepared);
    void (*release)(void *prepared);
    /* On a device: floats that forward leaves for backward right behind those that the op saves, of which there are some.
     * Asked as partials is. */
    size_t (*extra_saved)(const nn_call *c);
    /* On a device: floats in which backward leaves partial sums of parameters' gradients. Asked before values have
     * memory: there are shapes, types, attributes and the parameters' gradients that are wanted. */
    size_t (*partials)(const nn_call *c);
    unsigned row_sums; /* bit i: backward gives the call's row_sums[i], too */
    bool pairs;        /* backward_weights takes paired_with */
    /* Whether this call, prepared, takes a slow way that other settings would avoid: which and why, for people. */
    bool (*remark)(const nn_call *c, char *out, size_t size);
} nn_kernels;

/* What an op's kernels do for others, in training on a device. What is asked is asked when shapes, types and strides are
 * known, but no memory. */
typedef struct nn_sharing {
    bool takes_moments;                      /* forward uses moments */
    bool (*gives_moments)(const nn_call *c); /* whether forward can leave output_moments; NULL: no */
    bool leaves_linear;                      /* backward takes care of linear */
    bool (*takes_linear)(const nn_call *c);  /* whether backward adds output_linear; NULL: no */
    /* Whether forward and backward can do the work of the op that made input 0, which nobody else reads; NULL: no. */
    bool (*absorbs)(const nn_call *c, const char *maker_op, const nn_call *maker);
} nn_sharing;

/* Runs task(context, i) for i in 0..n-1 on the pool; which thread runs what must not matter to the result. */
void nn_parallel(adamod_pool *pool, int64_t n, void (*task)(void *context, int64_t i), void *context);

/* The product of all dimensions but the first; 1 for a vector. */
static inline int64_t nn_columns(const nn_shape *s) {
    int64_t n = 1;
    for (int d = 1; d < s->ndim; d++) n *= s->dim[d];
    return n;
}

static inline int64_t nn_last_dimension(const nn_shape *s) { return s->ndim ? s->dim[s->ndim - 1] : 1; }

/* Of images and matrices, for ops that take strided ones: the last dimension, and how many times it is there. */
static inline int64_t nn_channels(const nn_array *a) { return nn_last_dimension(a->shape); }
static inline int64_t nn_pixels(const nn_array *a) { return a->rows * (a->cols / nn_channels(a)); }

/* Numbers at full capacity; 0 if there is no such array. */
static inline int64_t nn_numbers(const nn_shape *s) { return s->ndim ? s->dim[0] * nn_columns(s) : 0; }

#endif
