/* Included before all else by every file: the features of libc the library uses, and the platforms it supports. On others
 * it would give other bits or none, so they are refused here with one line. */
#ifndef ADAMOD_PLATFORM_H
#define ADAMOD_PLATFORM_H

#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#ifndef _FILE_OFFSET_BITS
#define _FILE_OFFSET_BITS 64 /* files above 2 GiB on 32-bit systems */
#endif

#include <float.h>
#include <stdint.h>

#if defined(__FAST_MATH__) || defined(__ASSOCIATIVE_MATH__) || defined(__RECIPROCAL_MATH__) ||                         \
    (defined(__FINITE_MATH_ONLY__) && __FINITE_MATH_ONLY__)
#error libadamod relies on IEEE arithmetic: compile it without -ffast-math, -Ofast and their parts
#elif FLT_EVAL_METHOD != 0 && FLT_EVAL_METHOD != 16 /* 16 concerns only _Float16 */
#error libadamod relies on float and double being computed as such (FLT_EVAL_METHOD 0): on 32-bit x86, compile it with -msse2 -mfpmath=sse
#elif FLT_RADIX != 2 || FLT_MANT_DIG != 24 || DBL_MANT_DIG != 53
#error libadamod relies on float and double being the binary32 and binary64 of IEEE 754
#elif defined(__BYTE_ORDER__) && __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error libadamod reads and writes its little-endian files as they lie in memory: big-endian machines are not supported
#endif

/* Processors with their own kernels. */
#if defined(__x86_64__) && defined(__GNUC__)
#define ADAMOD_X86 1
#elif defined(__aarch64__) && defined(__GNUC__)
#define ADAMOD_NEON 1
#endif

/* An array has fewer than 2^ADAMOD__COUNT_BITS elements, so that its size in bytes fits into a size_t for every type. */
#define ADAMOD__COUNT_BITS (SIZE_MAX / 8 < INT64_MAX / 8 ? 29 : 60)

#endif
