/* How the library and the program start threads. */
#ifndef ADAMOD_THREAD_H
#define ADAMOD_THREAD_H

#include "core/platform.h" /* first */

#include <pthread.h>

/* pthread_create of a thread that has all signals blocked, so that they reach the program's own threads, and a stack of a
 * MiB or more, whatever the limit of the program's own is. */
int adamod__start_thread(pthread_t *thread, void *(*run)(void *), void *argument);

#endif
