/* profile.h - what a plan computes with, and how long its parts take: for benchmarks and reports. */
#ifndef ADAMOD_NN_PROFILE_H
#define ADAMOD_NN_PROFILE_H

#include "nn/nn.h"

typedef struct nn_profile_step {
    const char *op; /* its name; NN_PROFILE_SUMS: the sums over rows at the end of a backward pass */
    bool backward;
    char shape[96]; /* of what it reads and writes: "[4000, 512] x [1024, 512] -> [4000, 1024]" */
    double seconds; /* of one call */
} nn_profile_step;

#define NN_PROFILE_SUMS "sums"

/* Kernels of a forward and a backward pass, one for each op and direction, and the sums at the end, in the order they run. */
int nn_profile_steps(const nn_plan *plan);

/* Times one of them by calling it many times in a row; all rows of the capacity, as always on a device. From first to
 * last in order each finds what a run would give it, but for gradients that are added up, which grow; what the plan
 * holds is then of no more use. Nothing else may be under way. */
adamod_status nn_profile_run(nn_plan *plan, int step, nn_profile_step *out);

/* Seconds of one call of enqueue, which only enqueues work on the plan's device, recorded calls times in a row. */
adamod_status nn_profile_time(nn_plan *plan, adamod_status (*enqueue)(void *context), void *context, int calls,
                              double *seconds);

/* Bytes that the plan's device holds, parameters and all plans, but not what an optimizer allocated; its name. */
size_t nn_profile_device_bytes(const nn_plan *plan);
const char *nn_profile_device_name(const nn_plan *plan, char *out, size_t size);

/* An input of a graph that each run is given anew. */
typedef struct nn_profile_input {
    const char *name;
    nn_type type;
    int rows; /* their symbol */
    size_t row_bytes;
    nn_shape shape; /* dim[0]: the capacity */
} nn_profile_input;
/* Number i of them, from 0; false: there are not so many. */
bool nn_profile_input_at(const nn_graph *g, int i, nn_profile_input *out);

/* The matrix products of a graph: every linear node has three, y = x W^T forward, dx = dy W and dW = dy^T x backward, with
 * W [out, in] and rows of x; and so has every convolution, by its definition, with the pixels under a place of the kernel
 * as a row of x. An lstm has them twice, of its input and of its state, there as if all time steps were known at once. */
typedef struct nn_profile_product {
    int rows; /* their symbol; 0: fixed */
    int64_t capacity, out, in;
    int64_t pixels; /* rows of x for each of those */
} nn_profile_product;

/* Number i of them, from 0; false: there are not so many. */
bool nn_profile_product_at(const nn_graph *g, int i, nn_profile_product *out);
/* Those three for rows of x, and nothing else, on the host; arrays have room for them. */
typedef struct nn_profile_arrays {
    float *x, *y, *dx, *dy, *w, *dw;
} nn_profile_arrays;
void nn_profile_forward_product(adamod_pool *pool, const nn_profile_product *p, int64_t rows,
                                const nn_profile_arrays *a);
void nn_profile_backward_products(adamod_pool *pool, const nn_profile_product *p, int64_t rows,
                                  const nn_profile_arrays *a);
/* What multiplies matrices on the host: "oneDNN 2.6.3". */
const char *nn_profile_library(void);

/* Operations in a second of one large product of matrices by the device's library, in the precision of the parameters:
 * what there is to reach. */
adamod_status nn_profile_peak(const nn_params *params, double *flops);

#endif
