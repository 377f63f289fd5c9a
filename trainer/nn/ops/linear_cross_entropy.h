/* Common to the kernels of linear_cross_entropy in all backends. */
#ifndef ADAMOD_NN_LINEAR_CROSS_ENTROPY_H
#define ADAMOD_NN_LINEAR_CROSS_ENTROPY_H

#include "nn/kernel.h"
#include "nn/ops/attributes.h"

enum { LCE_X, LCE_W, LCE_B, LCE_TARGETS };

#endif
