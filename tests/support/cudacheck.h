/* cudacheck.h - the cuda backend's kernels under opcheck: kernels that take an op's arrays to the device, call the
 * device's kernel there, and bring back what it wrote.
 *
 *     CHECK(cudacheck(&o, NN_F32));
 *     CHECK(cudacheck(&o, NN_BF16));     // o.rounded says how many numbers are rounded on the way to a result
 *
 * Device memory has the size of the host's, holds NaN (-1) where nothing was written, and a write behind an array's
 * end is a failure. Values, gradients of values and parameters are of the given type, gradients of parameters f32. Where
 * kernels give sums over rows of a gradient, they must be those of the gradient they wrote. */
#ifndef CUDACHECK_H
#define CUDACHECK_H

#include "opcheck.h"

/* Whether there is a device; if not, why is in the last error. */
bool cudacheck_open(void);

bool cudacheck(const opcheck *o, nn_type type);
/* f32 values, products of factors with 11 bits: o's slack must allow for that. */
bool cudacheck_tf32(const opcheck *o);

#endif
