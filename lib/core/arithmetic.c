#include "core/arithmetic.h"

#define NOT_INLINED __attribute__((noinline))

#if defined(__x86_64__) && defined(__GNUC__)
#include <xmmintrin.h>

NOT_INLINED adamod__arithmetic adamod__enter_arithmetic(void) {
    const unsigned standard = 0x1f80, before = _mm_getcsr(); /* all exceptions masked, no flags */
    if (before != standard) _mm_setcsr(standard);
    return before;
}

NOT_INLINED void adamod__leave_arithmetic(adamod__arithmetic before) { _mm_setcsr(before); }

#elif defined(__aarch64__) && defined(__GNUC__)

NOT_INLINED adamod__arithmetic adamod__enter_arithmetic(void) {
    adamod__arithmetic before;
    __asm__ volatile("mrs %0, fpcr\n\tmrs %1, fpsr" : "=r"(before.control), "=r"(before.status) : : "memory");
    if (before.control) __asm__ volatile("msr fpcr, %0" : : "r"((uint64_t)0) : "memory");
    return before;
}

NOT_INLINED void adamod__leave_arithmetic(adamod__arithmetic before) {
    if (before.control) __asm__ volatile("msr fpcr, %0" : : "r"(before.control) : "memory");
    __asm__ volatile("msr fpsr, %0" : : "r"(before.status) : "memory");
}

#else

NOT_INLINED adamod__arithmetic adamod__enter_arithmetic(void) {
    adamod__arithmetic before;
    fegetenv(&before);
    fesetenv(FE_DFL_ENV);
    return before;
}

NOT_INLINED void adamod__leave_arithmetic(adamod__arithmetic before) { fesetenv(&before); }

#endif
#undef NOT_INLINED
