/* thread.h - starts threads, for the library and the program. */
#ifndef ADAMOD_THREAD_H
#define ADAMOD_THREAD_H

#include "core/platform.h" /* first */

#include <pthread.h>

/* pthread_create with all signals blocked in the new thread, so that they reach the program's own threads, and a stack of
 * at least 1 MiB. */
int adamod__start_thread(pthread_t *thread, void *(*run)(void *), void *argument);

#endif
