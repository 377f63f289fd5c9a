/* profile.h - the parts of a plan and their times, for benchmarks and reports. */
#pragma once

#include "nn/nn.h"

typedef struct nn_profile_step {
    const char *op; /* its name; NN_PROFILE_SUMS: the sums over rows at the end of a backward pass */
    bool backward;
    char shape[96]; /* "[4000, 512] x [1024, 512] -> [4000, 1024]" */
    double seconds; /* of one call */
} nn_profile_step;

#define NN_PROFILE_SUMS "sums"

/* The number of kernels in a forward and a backward pass, one for each op and direction, and the sums at the end. */
int nn_profile_steps(const nn_plan *plan);

/* Times a kernel by calling it many times in a row, with all rows of the capacity. Called in order from the first to the
 * last, each reads what a run would give it, except that gradients that are added up grow; afterwards the plan's values
 * are useless. Nothing else may be in flight. */
adamod_status nn_profile_run(nn_plan *plan, int step, nn_profile_step *out);

/* Seconds of one call of enqueue, which only enqueues work on the plan's device; recorded `calls` times in a row. */
adamod_status nn_profile_time(nn_plan *plan, adamod_status (*enqueue)(void *context), void *context, int calls,
                              double *seconds);

/* Bytes allocated on the plan's device for parameters and all plans, without the optimizer's; and its name. */
size_t nn_profile_device_bytes(const nn_plan *plan);
const char *nn_profile_device_name(const nn_plan *plan, char *out, size_t size);

/* An input of a graph that each run sets. */
typedef struct nn_profile_input {
    const char *name;
    nn_type type;
    int rows; /* their symbol */
    size_t row_bytes;
    nn_shape shape; /* dim[0]: the capacity */
} nn_profile_input;
/* Input i, from 0; false: there are fewer. */
bool nn_profile_input_at(const nn_graph *g, int i, nn_profile_input *out);

/* A weight that rows are multiplied with has three matrix products: y = x W^T forward, dx = dy W and dW = dy^T x
 * backward, with W [out, in]. In a convolution the pixels under the kernel are a row of x; in a recurrent layer the
 * weights of the state count as if all time steps were known at once. */
typedef struct nn_profile_product {
    int rows; /* their symbol; 0: fixed */
    int64_t capacity, out, in;
    int64_t pixels; /* rows of x for each row of the graph */
} nn_profile_product;

/* Weight i, from 0; false: there are fewer. */
bool nn_profile_product_at(const nn_graph *g, int i, nn_profile_product *out);
/* Computes the products for rows of x on the host; arrays have room for them. */
typedef struct nn_profile_arrays {
    float *x, *y, *dx, *dy, *w, *dw;
    float *narrow; /* room for rounded factors, of nn_profile_narrow_floats; NULL: products are of f32 */
} nn_profile_arrays;
size_t nn_profile_narrow_floats(const nn_profile_product *p, int64_t rows);
void nn_profile_forward_product(adamod_pool *pool, const nn_profile_product *p, int64_t rows,
                                const nn_profile_arrays *a);
void nn_profile_backward_products(adamod_pool *pool, const nn_profile_product *p, int64_t rows,
                                  const nn_profile_arrays *a);
/* The library that multiplies matrices on the host: "oneDNN 2.6.3"; and the instructions that it has for factors of bf16,
 * in mixed precision: "AVX512_BF16"; NULL: none, products are of f32 after rounding. */
const char *nn_profile_library(void);
const char *nn_profile_narrow(void);

/* Operations per second of one large matrix product by the device's library, in the precision of the parameters: the
 * attainable peak. */
adamod_status nn_profile_peak(const nn_params *params, double *flops);

/* The peak by the vendor's data sheet, for dense products of bf16: of a GPU by its name ("NVIDIA H200"); of the plan's
 * device, if its precision is mixed. 0: not known. */
double nn_profile_data_sheet(const char *gpu);
double nn_profile_data_sheet_peak(const nn_plan *plan);
