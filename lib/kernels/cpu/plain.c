/* Kernels in plain C, one element at a time. */
#include "optim/internal.h"
#include "kernels/half.h"
#include "kernels/q8.h"

#include <math.h>
#include <string.h>

#include "kernels/cpu/contract_off.inc.h"

#define ISA plain
#define TILE_ROWS 4
#define TILE_VECTORS 4
#define REAL float
#define TYPE f32
#define CONVERT_F32
#define WIDTH 1
#define SQRT(x) sqrtf(x)
#define LESSER(x, y) ((x) < (y) ? (x) : (y))
#define GREATER(x, y) ((x) > (y) ? (x) : (y))
#define MULTIPLY_ADD(x, y, z) fmaf(x, y, z)
#include "kernels/cpu/kernels.inc.h"

#define REAL double
#define TYPE f64
#define WIDTH 1
#define SQRT(x) sqrt(x)
#define LESSER(x, y) ((x) < (y) ? (x) : (y))
#define GREATER(x, y) ((x) > (y) ? (x) : (y))
#define MULTIPLY_ADD(x, y, z) fma(x, y, z)
#include "kernels/cpu/kernels.inc.h"

const kernel_set adamod__kernels_plain = {"plain", &adamod__table_plain_f32, &adamod__table_plain_f64};

#include "kernels/cpu/contract_restore.inc.h"
