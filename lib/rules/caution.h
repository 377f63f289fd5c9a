/* Shared by the CPU and GPUs: the factor of a cautious step, from how many elements of the array move. */
#ifndef ADAMOD_CAUTION_H
#define ADAMOD_CAUTION_H

#include "kernels/kernels.h"
#include "optim/option_ids.h"

#include <math.h>

/* sum[0]: the elements that move, of count. */
static ADAMOD__DEVICE inline void adamod__caution_finish(const double *o, const double *sum, int64_t count,
                                                         adamod__coef_f64 *c) {
    if (o[OPT_CAUTIOUS] != 0) c->caution = 1 / fmax(sum[0] / (double)count, 1e-3);
}

#endif
