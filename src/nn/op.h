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
} nn_array;

/* One call of an op's forward or backward kernel. */
typedef struct nn_call {
    const nn_attributes *attributes;
    nn_array input[NN_MAX_INPUTS];
    nn_array output;
    float *saved;
    /* backward only */
    float *output_grad;
    float *input_grad[NN_MAX_INPUTS]; /* NULL: not wanted */
    bool accumulate[NN_MAX_INPUTS];   /* add to input_grad, which holds something; else replace it */
    /* both */
    float *workspace; /* as many floats as the kernel's workspace function asked for */
    adamod_pool *pool;
    bool training;
    uint64_t key; /* of this op's random numbers in this run: see random.h */
} nn_call;

typedef void (*nn_kernel)(const nn_call *c);

typedef struct nn_kernels {
    nn_kernel forward, backward;           /* backward NULL: the op has none */
    size_t (*workspace)(const nn_call *c); /* floats needed, asked at full capacity; NULL: none */
} nn_kernels;

/* An op: its shape rule and its reference kernels, plain loops in double precision. shape fills output, node->saved and
 * node->backward_needs from the inputs' shapes; returns NULL or what is wrong ("x has 3 columns, W wants 4"), in a buffer
 * of the caller's. */
typedef struct nn_op {
    const char *name;
    const char *(*shape)(nn_node *node, const nn_shape *inputs, nn_shape *output, char *message, size_t size);
    nn_kernels ref;
    /* Matrix-product operations of one forward at these shapes; NULL: none to speak of. */
    double (*flops)(const nn_node *node, const nn_shape *inputs);
} nn_op;

#define NN_OP_DECLARE(name) extern const nn_op nn_op_##name;
NN_OPS(NN_OP_DECLARE)
#undef NN_OP_DECLARE
extern const nn_op *const nn_ops[NN_OP_COUNT];

/* A backend: kernels in place of the reference ones, where forward is not NULL. */
typedef struct nn_backend {
    const char *name;
    nn_kernels kernels[NN_OP_COUNT];
} nn_backend;

extern const nn_backend nn_backend_cpu;

/* Each kernel of the cpu backend is in backend/cpu/NAME.c as nn_cpu_NAME. */

/* Runs task(context, i) for i in 0..n-1 on the pool; which thread runs what must not matter to the result. */
void nn_parallel(adamod_pool *pool, int64_t n, void (*task)(void *context, int64_t i), void *context);

#endif
