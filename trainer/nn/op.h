/* op.h - for op authors.
 *
 * An op is one file, ops/NAME.c, with four things:
 *
 *   a shape rule        checks the inputs' shapes; fills the outputs' shapes, and what backward will need
 *   reference kernels   forward and backward as plain loops in double precision (kernel.h)
 *   a table             `const nn_op nn_op_NAME`, below: all that the graph and the plan know of the op
 *   a builder           the function of nn.h that adds a node of it to a graph, by nn_add_node
 *
 * Its name is in NN_OPS below, its builder in nn.h and its attributes in ops/attributes.h; no other file of the engine
 * knows it. Kernels of other backends are optional: see backend.h. */
#pragma once

#include "nn/kernel.h"

typedef struct nn_op nn_op;

/* A node of the graph. The shape rule fills the fields after attributes. */
typedef struct nn_node {
    const nn_op *op;
    int n_inputs;
    nn_value input[NN_MAX_INPUTS];   /* -1: an optional input that is not there */
    nn_value output[NN_MAX_OUTPUTS]; /* -1: there is none */
    void *attributes;                /* the op's own struct (ops/attributes.h), which the graph owns */
    nn_shape saved;          /* f32 that forward keeps for backward (mean and deviation, log-sum-exp); ndim 0: none */
    unsigned backward_needs; /* bit i: input i's data; NN_NEEDS_OUTPUT << i: output i's */
    bool synced;             /* forward and backward add numbers up over the processes of nn_plan_sync */
    double momentum;         /* of running outputs: see nn_run */
    unsigned passes;         /* bit i: the gradient of input i is that of output 0, and may have its memory */
    bool leaves_gradient;    /* backward does not write to the gradient of output 0 */
    bool recompute;          /* backward runs it again: see nn_recompute */
    int bias; /* the input that is added to each row of output 0 last, so that its gradient is the sum over
                              * rows of that output's; 0: none */
} nn_node;

#define NN_NEEDS_OUTPUT (1u << NN_MAX_INPUTS)

/* Input i is f32 unless indices or bytes says otherwise; outputs are f32. */
struct nn_op {
    const char *name;
    const char *inputs[NN_MAX_INPUTS]; /* their names, for messages */
    unsigned indices;                  /* bit i: input i is i32 */
    unsigned bytes;                    /* bit i: input i is u8 */
    size_t attributes_size;            /* bytes of a node's attributes */
    /* Fills outputs from the inputs' shapes (all have ndim 0 before; an output with ndim 0 is not there), and the node.
     * Fails with a message that names inputs, not the op: "x has 3 columns, W wants 4". */
    int (*shape)(nn_node *node, const nn_shape *inputs, nn_shape *outputs);
    unsigned biases; /* bit i: a parameter that is input i is a bias */
    unsigned norms;  /* bit i: a parameter that is input i is the gain or shift of a norm, or stands in for one */
    nn_kernels ref;
    /* Floating-point operations of the matrix products of one forward at these shapes; NULL: none to speak of. */
    double (*flops)(const nn_node *node, const nn_shape *inputs);
    int matrices; /* inputs 1 .. matrices are weights that rows of the input are multiplied with */
    /* How the plan may place the op's memory. */
    int aliases[NN_MAX_OUTPUTS]; /* 1 + the input in whose memory forward writes output i: a cache, running statistics.
                                  * That input is a state or persistent, and has no gradient; backward sees it as
                                  * forward left it, so what backward needs of it belongs into saved. 0: none */
    unsigned in_place;           /* bit i: backward reads a number of input i before it writes that number of its
                                  * gradient, so that the two may have the same memory */
    unsigned full_inputs;      /* bit i: kernels read input i as f32 in every precision; it is a parameter, an input of
                                  * the graph, a persistent state or a full output */
    unsigned full_outputs;     /* bit i: output i is f32 even where a device's plan keeps values as bf16 */
    unsigned constant_outputs; /* bit i: no gradient flows back from output i (statistics) */
    unsigned strided_inputs;   /* bit i: kernels take input i, and its gradient, with any nn_array.stride */
    unsigned strided_outputs;  /* bit i: kernels take output i, and its gradient, with any nn_array.stride */
    bool joins;                /* output 0 is all inputs side by side, in the last dimension. The plan places inputs
                                  * inside it if it can, and gradients likewise: kernels copy only the others */
    unsigned running;          /* bit i: output i is running statistics: see nn_sync.added */
};

/* The ops that devices have kernels of, too. */
#define NN_DENSE_OPS(X)                                                                                                \
    X(linear) X(embedding) X(dropout) X(add) X(add_norm) X(attention) X(cross_entropy) X(log_softmax)
#define NN_DECODING_OPS(X) X(best) X(path_attention) X(beam)
#define NN_IMAGE_OPS(X) X(convolution) X(batch_norm) X(average_pool) X(concat) X(scale_shift) X(pictures)
#define NN_RECURRENT_OPS(X) X(lstm) X(locked_dropout) X(word_dropout) X(activity)
#define NN_DECODER_OPS(X) X(gelu) X(swiglu) X(rms_norm) X(query_key) X(linear_cross_entropy)
#define NN_DEVICE_OPS(X) NN_DENSE_OPS(X) NN_DECODER_OPS(X) NN_DECODING_OPS(X) NN_IMAGE_OPS(X) NN_RECURRENT_OPS(X)

/* All ops of the library; an op that only the host has is added here. */
#define NN_OPS(X) NN_DEVICE_OPS(X)

#define NN_OP_DECLARE(name) extern const nn_op nn_op_##name;
NN_OPS(NN_OP_DECLARE)
#undef NN_OP_DECLARE

/* Adds a node with n inputs and a copy of the op's attributes; output 0's value, or -1 after a mistake. */
nn_value nn_add_node(nn_graph *g, const nn_op *op, int n, const nn_value *inputs, const void *attributes);
/* Whether both have the same rows, symbol or number, and the same other dimensions. */
bool nn_same_shape(const nn_shape *a, const nn_shape *b);
