/* accounts.h - an allocator that keeps accounts, and fails when it is told to.
 *
 *     accounts a = {0};
 *     const adamod_allocator allocator = accounting(&a);
 *     countdown = 3;           // the third allocation of this thread from here on fails, and no other
 *
 * SPDX-License-Identifier: MIT
 */
#ifndef ADAMOD_TESTS_ACCOUNTS_H
#define ADAMOD_TESTS_ACCOUNTS_H

#include "adamod.h"

#include <stdbool.h>
#include <stddef.h>

enum { ACCOUNTS = 256 };
typedef struct accounts {
    void *pointer[ACCOUNTS];
    size_t size[ACCOUNTS], bytes;
    int live, calls, errors; /* errors: freed with another size, or never given out, or odd requests */
} accounts;

adamod_allocator accounting(accounts *a);

extern _Thread_local volatile long countdown; /* the compiler thinks it knows that malloc reads no variables */
/* Counts down; for other allocators that obey, too. */
bool fails_now(void);

#endif
