/* pool.h - threads that share the tasks of a run; see adamod_pool_create. */
#ifndef ADAMOD_CORE_POOL_H
#define ADAMOD_CORE_POOL_H

#include "core/platform.h" /* first */

#include "adamod.h"

#include <stdbool.h>
#include <stddef.h>

/* Runs task(context, i, thread) for i in 0..n-1, each exactly once, on the pool's threads and this one; pool may be NULL.
 * Thread 0 is this one. */
typedef void (*pool_task)(void *context, int64_t index, int thread);
void adamod__pool_run(adamod_pool *pool, int64_t n, pool_task task, void *context);

/* The cores this process may use, which a container or taskset may have made fewer than the machine's. */
int adamod__cores(void);

/* Whether this is a child process, which fork gave the pool but not its threads. Runs are then this thread's. */
bool adamod__pool_gone(const adamod_pool *pool);

/* A pool whose threads, other than 0, have so many bytes each, aligned to 64, for the time of a run; owner is for those
 * who make pools to find again. threads: 0 for one on each core. */
adamod_status adamod__pool_make(adamod_pool **out, int threads, size_t bytes, const void *owner);
void *adamod__pool_memory(const adamod_pool *pool, int thread);
const void *adamod__pool_owner(const adamod_pool *pool);

#endif
