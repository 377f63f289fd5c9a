/* opcheck.h - tests any op through its kernels alone: no graph, no loss.
 *
 *     opcheck o = {.op = &nn_op_linear, .n_inputs = 3,
 *                  .input = {OPCHECK_ROWS(1, 7, 5), OPCHECK_MATRIX(4, 5), OPCHECK_VECTOR(4)}};
 *     CHECK(opcheck_gradients(&o));
 *     CHECK(opcheck_kernels(&o, &nn_cpu_linear));
 *
 * The loss is the sum of all outputs times random weights, which are the outputs' gradients. Kernels are called as a plan
 * calls them: memory is of the size the op's shape rule says, holds NaN where nothing was written, and data that
 * node->backward_needs leaves out is NaN (-1 if i32) in backward. A write behind an array's end is a failure.
 *
 * A function that returns false has printed why. */
#ifndef OPCHECK_H
#define OPCHECK_H

#include "nn/op.h"
#include "nn/ops/attributes.h"

typedef struct opcheck_input {
    nn_shape shape; /* dim[0]: the rows of this run; ndim 0: the input is not there. If shape.rows is a symbol, the
                       capacity is made larger than the rows */
    nn_type type;
    const void *data;   /* NULL: normal random numbers, f32 only */
    double mean, scale; /* of the random numbers; scale 0 means 1 */
    double step;        /* they are multiples of it; 0: any */
    bool no_grad;       /* its gradient is never asked for; of i32 it never is */
    int64_t gap; /* its pixels, and its gradient's, are this many numbers further apart than they have channels */
} opcheck_input;

#define OPCHECK_ROWS(symbol, rows_, cols_)                                                                             \
    {                                                                                                                  \
        .shape = {.rows = (symbol), .ndim = 2, .dim = {(rows_), (cols_)} }                                             \
    }
#define OPCHECK_IMAGES(symbol, rows_, height, width, channels)                                                         \
    {                                                                                                                  \
        .shape = {.rows = (symbol), .ndim = 4, .dim = {(rows_), (height), (width), (channels)} }                       \
    }
#define OPCHECK_KERNEL(out, size, in)                                                                                  \
    {                                                                                                                  \
        .shape = {.ndim = 4, .dim = {(out), (size), (size), (in)} }                                                    \
    }
#define OPCHECK_MATRIX(rows_, cols_)                                                                                   \
    {                                                                                                                  \
        .shape = {.ndim = 2, .dim = {(rows_), (cols_)} }                                                               \
    }
#define OPCHECK_VECTOR(n)                                                                                              \
    {                                                                                                                  \
        .shape = {.ndim = 1, .dim = {(n)} }                                                                            \
    }
/* Whole numbers [rows, cols], or [rows] if cols is 0. */
#define OPCHECK_INDEX(symbol, rows_, cols_, data_)                                                                     \
    { .shape = {.rows = (symbol), .ndim = (cols_) ? 2 : 1, .dim = {(rows_), (cols_)}}, .type = NN_I32, .data = (data_) }
#define OPCHECK_NONE                                                                                                   \
    {                                                                                                                  \
        .shape = {.ndim = 0 }                                                                                          \
    }

/* The member of the op that is checked. */
typedef union opcheck_attributes {
#define OPCHECK_MEMBER(op) nn_##op##_attributes op;
    OPCHECK_MEMBER(linear)
    OPCHECK_MEMBER(embedding)
    OPCHECK_MEMBER(dropout)
    OPCHECK_MEMBER(add)
    OPCHECK_MEMBER(add_norm)
    OPCHECK_MEMBER(attention)
    OPCHECK_MEMBER(cross_entropy)
    OPCHECK_MEMBER(rms_norm)
    OPCHECK_MEMBER(query_key)
    OPCHECK_MEMBER(linear_cross_entropy)
    OPCHECK_MEMBER(best)
    OPCHECK_MEMBER(path_attention)
    OPCHECK_MEMBER(convolution)
    OPCHECK_MEMBER(batch_norm)
    OPCHECK_MEMBER(average_pool)
    OPCHECK_MEMBER(scale_shift)
    OPCHECK_MEMBER(lstm)
    OPCHECK_MEMBER(locked_dropout)
    OPCHECK_MEMBER(word_dropout)
    OPCHECK_MEMBER(activity)
#undef OPCHECK_MEMBER
} opcheck_attributes;

typedef struct opcheck {
    const nn_op *op;
    opcheck_attributes attributes;
    int n_inputs;
    opcheck_input input[NN_MAX_INPUTS];
    bool training;
    uint64_t seed;    /* of data, weights and dropout */
    int64_t gap;      /* of output 0, and its gradient, as an input's */
    int64_t weighted; /* only this many first elements of an output have weights; 0: all */
    /* For opcheck_kernels: numbers that the longest sum behind a result has (see opcheck.c for what follows from
     * it), and a factor on the tolerance where an op makes errors larger than its results. 0 means 1. */
    double longest_sum, slack;
    /* Data are numbers that bf16 has, and kernels may round to bf16 what they store: each result, and `rounded` more
     * numbers on the way to it. */
    bool bf16;
    double rounded;
    /* The host's kernels in mixed precision: data are numbers that bf16 has, factors of products are rounded to it, and
     * `rounded` tells how many of these are not data. */
    bool mixed;
} opcheck;

/* The gradients of op->ref against central differences. */
bool opcheck_gradients(const opcheck *o);

/* Kernels of a backend against op->ref: output, and gradients for every subset of those wanted, with and without
 * accumulate; then, bit for bit, against themselves with 1, 2, 3 and 4 threads. */
bool opcheck_kernels(const opcheck *o, const nn_kernels *kernels);

/* For calls made by hand: parts of an nn_call that do not apply. */
#define OPCHECK_NO_PARTS                                                                                               \
    .grad = &(nn_gradients){0}, .fused = &(nn_fused){0}, .sync = &(nn_sync) { 0 }

/* The current check, and how many bytes its kernels may save: for kernels that stand for others. */
extern const opcheck *opcheck_current;
extern size_t opcheck_saved_bytes;

float opcheck_to_bf16(float x);

/* Numbers of an array's memory, those between its pixels included. */
int64_t opcheck_numbers(const nn_array *a);

/* NULL, or what the shape rule says is wrong with the inputs. */
const char *opcheck_shape(const opcheck *o);

#endif
