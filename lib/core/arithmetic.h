/* The arithmetic of a call: rounding to nearest, subnormal numbers kept, no traps, whatever the calling thread has set
 * (flush-to-zero, say, which other libraries and -ffast-math set for a whole thread). So results do not depend on the
 * thread that computes them. What was set, flags of exceptions included, is as before when the call returns. */
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

/* Functions of their own, so that no operation is moved past them. */
adamod__arithmetic adamod__enter_arithmetic(void);
void adamod__leave_arithmetic(adamod__arithmetic before);

#endif
