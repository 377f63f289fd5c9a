/* Kernels for 64-bit Arm. */
#include "optim/internal.h"

#ifdef ADAMOD_NEON
#include "kernels/half.h"
#include "kernels/q8.h"

#include <arm_neon.h>
#include <math.h>
#include <string.h>

#include "kernels/cpu/contract_off.inc.h"

#define ISA neon
#define TILE_ROWS 6
#define TILE_VECTORS 4
#define REAL float
#define TYPE f32
#define CONVERT_F32
#define WIDTH 4
#define SQRT(x) ((V)vsqrtq_f32(x))
#define LESSER(x, y) ((V)vbslq_f32(vcltq_f32(x, y), x, y))
#define GREATER(x, y) ((V)vbslq_f32(vcgtq_f32(x, y), x, y))
#define MULTIPLY_ADD(x, y, z) ((V)vfmaq_f32(z, x, y))
#define SPREAD_LOW(x) vzip1q_u32((uint32x4_t)(x), (uint32x4_t)(x))
#define SPREAD_HIGH(x) vzip2q_u32((uint32x4_t)(x), (uint32x4_t)(x))
#define LOAD_F16(in) ((V)vcvt_f32_f16(vreinterpret_f16_u16(vld1_u16(in))))
#define STORE_F16(out, x) vst1_u16(out, vreinterpret_u16_f16(vcvt_f16_f32(x)))
#include "kernels/cpu/kernels.inc.h"

#define REAL double
#define TYPE f64
#define WIDTH 2
#define SQRT(x) ((V)vsqrtq_f64(x))
#define LESSER(x, y) ((V)vbslq_f64(vcltq_f64(x, y), x, y))
#define GREATER(x, y) ((V)vbslq_f64(vcgtq_f64(x, y), x, y))
#define MULTIPLY_ADD(x, y, z) ((V)vfmaq_f64(z, x, y))
#include "kernels/cpu/kernels.inc.h"

const kernel_set adamod__kernels_neon = {"neon", &adamod__table_neon_f32, &adamod__table_neon_f64};

#include "kernels/cpu/contract_restore.inc.h"
#else
typedef int adamod__no_neon; /* a translation unit may not be empty */
#endif
