/* Common to the kernels of linear_cross_entropy in all backends. */
#pragma once

#include "nn/kernel.h"
#include "nn/ops/attributes.h"

enum { LCE_X, LCE_W, LCE_B, LCE_TARGETS };
