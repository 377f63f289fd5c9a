/* What an op is: the interface between graph, plan, ops and backends. */
#ifndef ADAMOD_NN_OP_H
#define ADAMOD_NN_OP_H

#include "nn.h"

/* All ops. Each has a file ops/NAME.c that defines `const nn_op nn_op_NAME`. */
#define NN_OPS(X)                                                                                                      \
    X(linear) X(embedding) X(dropout) X(add) X(add_norm) X(attention) X(cross_entropy) X(log_softmax) X(cache_write)

typedef enum nn_op_id {
#define NN_OP_ID(name) NN_OP_##name,
    NN_OPS(NN_OP_ID)
#undef NN_OP_ID
        NN_OP_COUNT
} nn_op_id;

/* Numbers an op was built with; an op's file says what it reads. */
typedef struct nn_attributes {
    double dropout, eps, scale, smoothing;
    int heads;
    bool causal;
    nn_activation activation;
} nn_attributes;

/* A node of the graph. */
typedef struct nn_node {
    nn_op_id op;
    int n_inputs;
    nn_value input[NN_MAX_INPUTS]; /* -1: an optional input that is not there */
    nn_value output;
    nn_attributes attributes;
    nn_shape saved;          /* f32 that forward keeps for backward (mean and deviation, log-sum-exp); ndim 0: none */
    unsigned backward_needs; /* bit i: input i's data; bit NN_MAX_INPUTS: the output's data */
} nn_node;

#define NN_NEEDS_OUTPUT (1u << NN_MAX_INPUTS)

/* A value as a kernel sees it: memory, and the rows of this run. Contiguous, the last dimension fastest. */
typedef struct nn_array {
    void *data;         /* NULL: there is none (an optional input) */
    int64_t rows, cols; /* cols: the product of all dimensions but the first; 1 for a vector */
    nn_type type;       /* on the host f32 or i32; a device's plan may keep f32 values as bf16 */
} nn_array;

/* A sum over rows that a backward pass leaves for its end: to_j = parts_0j + ... + parts_(n-1)j, added to what is there
 * if add. */
typedef struct nn_sum {
    const float *parts;
    int64_t stride, n, cols; /* of parts: from row to row, rows, columns */
    float *to;
    bool add;
} nn_sum;

/* Those of a pass, with room for NN_MAX_INPUTS of each step. */
typedef struct nn_sums {
    nn_sum *list;
    int count;
} nn_sums;

/* One call of an op's forward or backward kernel.
 *
 * On a device (backend/cuda) all pointers but attributes are the device's, and a kernel only enqueues work on stream.
 * Rows are then always the capacity: rows past those of the batch belong to no range and have target -1. Gradients
 * of values have the value's type, so output_grad and input_grad may point at bf16; those of parameters are always
 * f32, though the parameter may be given as bf16: see input_grad_type. */
typedef struct nn_call {
    const nn_attributes *attributes;
    nn_array input[NN_MAX_INPUTS];
    nn_array output;
    float *saved;
    /* backward only */
    float *output_grad;
    float *input_grad[NN_MAX_INPUTS]; /* NULL: not wanted */
    nn_type input_grad_type[NN_MAX_INPUTS];
    bool accumulate[NN_MAX_INPUTS]; /* add to input_grad, which holds something; else replace it */
    /* both */
    float *workspace; /* as many floats as the kernel's workspace function asked for */
    adamod_pool *pool;
    bool training;
    uint64_t key; /* of this op's random numbers in this run: see random.h */
    /* on a device only */
    const uint64_t *random; /* the run's key: the op's is nn_stream_key(*random, node) */
    uint64_t node;
    nn_precision precision;
    void *stream;
    void *prepared; /* what the kernels' prepare made for this call */
    float *parts;   /* as many floats as the kernels' parts asked for; they stay until the end of the backward pass */
    nn_sums *sums;  /* where to note what is to be summed then; NULL: sum at once */
    /* Where the sums over rows of input_grad go, for inputs that the kernels' row_sums has: the gradient of a bias that was
     * added to the input. NULL: not wanted. accumulate is false for such an input; accumulate_sums is for all of them. */
    float *row_sums[NN_MAX_INPUTS];
    bool accumulate_sums;
    /* Backward: another call of the same op and shapes, whose late part is to be done with this one's, and adds to
     * gradients of parameters where this one does. NULL: none. */
    const struct nn_call *mate;
} nn_call;

typedef void (*nn_kernel)(const nn_call *c);

typedef struct nn_kernels {
    nn_kernel forward, backward; /* backward NULL: the op has none */
    /* On a device: the part of backward that only parameters' gradients need, called after backward, or later, together
     * with another's (mate). NULL: backward does everything. */
    nn_kernel late;
    size_t (*workspace)(const nn_call *c); /* floats needed, asked at full capacity; NULL: none */
    /* Once for each node and direction, when a plan is made and before workspace is asked: descriptors and choices that
     * are the same in every run. output_grad is NULL for forward. May be NULL. */
    adamod_status (*prepare)(const nn_call *c, void **prepared);
    void (*release)(void *prepared);
    /* On a device: floats that forward leaves for backward right behind those that the op saves, of which there are some.
     * Asked as parts is. NULL: none. */
    size_t (*keeps)(const nn_call *c);
    /* On a device: floats in which backward leaves partial sums of parameters' gradients. Asked before values have memory:
     * there are shapes, types, attributes and the parameters' gradients that are wanted. NULL: none. */
    size_t (*parts)(const nn_call *c);
    unsigned row_sums; /* bit i: backward gives the call's row_sums[i], too */
    bool pairs;        /* late takes a mate */
} nn_kernels;

/* An op: its shape rule and its reference kernels, plain loops in double precision. shape fills output, node->saved and
 * node->backward_needs from the inputs' shapes; returns NULL or what is wrong ("x has 3 columns, W wants 4"), in a buffer
 * of the caller's. */
typedef struct nn_op {
    const char *name;
    const char *inputs[NN_MAX_INPUTS]; /* their names, for messages */
    unsigned indices;                  /* bit i: input i is i32; all others are f32, and so is the output */
    const char *(*shape)(nn_node *node, const nn_shape *inputs, nn_shape *output, char *message, size_t size);
    nn_kernels ref;
    /* Matrix-product operations of one forward at these shapes; NULL: none to speak of. */
    double (*flops)(const nn_node *node, const nn_shape *inputs);
    bool full_output; /* f32 even where a device's plan keeps values as bf16 */
    unsigned
        in_place; /* bit i: backward reads a number of input i before it writes that number of its gradient, so that
                          one may lie upon the other */
} nn_op;

#define NN_OP_DECLARE(name) extern const nn_op nn_op_##name;
NN_OPS(NN_OP_DECLARE)
#undef NN_OP_DECLARE
extern const nn_op *const nn_ops[NN_OP_COUNT];

/* Memory and order of execution of a device. All but allocate and wait only enqueue, in order. */
typedef struct nn_device nn_device;
typedef struct nn_device_info {
    char name[128];
    size_t memory, used, most_used; /* bytes: in all, allocated by this program, and at most so far */
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

/* A backend: kernels in place of the reference ones, where there are. On a device there must be all of them. */
typedef struct nn_backend {
    const char *name;
    const nn_kernels *kernels[NN_OP_COUNT];
    const nn_device_functions *device; /* NULL: the host */
} nn_backend;

extern const nn_backend nn_backend_cpu;

/* What the shared object of a device's backend exports as nn_backend_cuda_get: the backend, if the version fits. It
 * reports its failures through fail, which is adamod__fail. */
#define NN_BACKEND_VERSION 6
typedef adamod_status (*nn_fail)(adamod_status status, const char *format, ...);
typedef const nn_backend *(*nn_backend_get)(int version, nn_fail fail);

/* Each kernel of the cpu backend is in backend/cpu/NAME.c as nn_cpu_NAME. */

/* Runs task(context, i) for i in 0..n-1 on the pool; which thread runs what must not matter to the result. */
void nn_parallel(adamod_pool *pool, int64_t n, void (*task)(void *context, int64_t i), void *context);

#endif
