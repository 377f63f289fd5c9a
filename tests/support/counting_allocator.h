/* counting_allocator.h - an allocator that counts what it gave out, and fails when it is told to.
 *
 *     allocation_counts a = {0};
 *     const adamod_allocator allocator = counting_allocator(&a);
 *     countdown = 3;           // the third allocation of this thread from here on fails, and no other
 *
 * SPDX-License-Identifier: MIT
 */
#ifndef ADAMOD_TESTS_COUNTING_ALLOCATOR_H
#define ADAMOD_TESTS_COUNTING_ALLOCATOR_H

#include "adamod.h"

#include <stdbool.h>
#include <stddef.h>

enum { MOST_LIVE = 256 };
typedef struct allocation_counts {
    void *pointer[MOST_LIVE];
    size_t size[MOST_LIVE], bytes;
    int live, calls, errors; /* errors: freed with another size, or never given out, or odd requests */
} allocation_counts;

adamod_allocator counting_allocator(allocation_counts *a);

extern _Thread_local volatile long countdown; /* the compiler thinks it knows that malloc reads no variables */
/* Counts down; for other allocators that obey, too. */
bool fails_now(void);

#endif
