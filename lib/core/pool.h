/* pool.h - a thread pool; see adamod_pool_create. */
#ifndef ADAMOD_CORE_POOL_H
#define ADAMOD_CORE_POOL_H

#include "core/platform.h" /* first */

#include "adamod.h"

#include <stdbool.h>
#include <stddef.h>

/* Runs task(context, i, thread) once for each i in 0..n-1, on the pool's threads and the calling one, which is thread 0.
 * pool may be NULL. */
typedef void (*pool_task)(void *context, int64_t index, int thread);
void adamod__pool_run(adamod_pool *pool, int64_t n, pool_task task, void *context);

/* The number of cores this process may use: a container or taskset may allow fewer than the machine has. */
int adamod__cores(void);

/* Whether this process is a fork of the one that made the pool, so that its threads are missing. Runs then use the calling
 * thread only. */
bool adamod__pool_gone(const adamod_pool *pool);

/* Makes a pool. Each of its threads but 0 has `bytes` of memory, aligned to 64, for the time of a run. owner is any
 * pointer, which adamod__pool_owner returns. threads 0: one for each core. */
adamod_status adamod__pool_make(adamod_pool **out, int threads, size_t bytes, const void *owner);
void *adamod__pool_memory(const adamod_pool *pool, int thread);
const void *adamod__pool_owner(const adamod_pool *pool);

#endif
