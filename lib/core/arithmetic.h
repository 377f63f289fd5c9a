/* The floating-point environment of a call: round to nearest, keep subnormal numbers, no traps. The calling thread may
 * have other settings (other libraries and -ffast-math set flush-to-zero for a whole thread); results must not depend on
 * them. The caller's settings and exception flags are restored when the call returns. */
#ifndef ADAMOD_ARITHMETIC_H
#define ADAMOD_ARITHMETIC_H

#include "core/platform.h"

#if defined(__x86_64__) && defined(__GNUC__)
typedef unsigned adamod__arithmetic;
#elif defined(__aarch64__) && defined(__GNUC__)
typedef struct adamod__arithmetic {
    uint64_t control, status;
} adamod__arithmetic;
#else
#include <fenv.h>
typedef fenv_t adamod__arithmetic;
#endif

/* Never inlined, so that the compiler moves no operation past them. */
adamod__arithmetic adamod__enter_arithmetic(void);
void adamod__leave_arithmetic(adamod__arithmetic before);

#endif
