/* A run gives each thread a contiguous range of tasks, the same in every run, so that its memory is still in the thread's
 * cache. A thread that is done early takes tasks from the ranges of others. */
#include "core/pool.h"

#include "core/arithmetic.h"
#include "core/error.h"
#include "core/thread.h"

#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { SPINS = 4000 };

typedef struct pool_range {
    _Alignas(64) atomic_llong next; /* on a cache line of its own */
    int64_t end;
} pool_range;

struct adamod_pool {
    int threads;   /* including the calling one */
    pid_t process; /* the process that has the threads */
    const void *owner;
    pthread_t *workers;
    pool_range *ranges;
    char *memory; /* bytes for each worker; in the heap, so that stacks can be small */
    size_t bytes;
    pool_task task;
    void *context;
    atomic_uint generation; /* number of the run: a change is the signal to start */
    atomic_bool open;       /* there is a run to join */
    atomic_int joined;      /* workers in it */
    atomic_bool stop;
    pthread_mutex_t lock; /* with wake, for workers that gave up spinning */
    pthread_cond_t wake;
    pthread_mutex_t in_use; /* one run at a time, though handles may share the pool */
};

typedef struct worker_start {
    adamod_pool *pool;
    int index;
} worker_start;

static void adamod__pause(void) {
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

static void adamod__pool_work(adamod_pool *pool, int self) {
    for (int i = 0; i < pool->threads; i++) {
        pool_range *range = &pool->ranges[(self + i) % pool->threads];
        for (;;) {
            const int64_t task = atomic_fetch_add_explicit(&range->next, 1, memory_order_relaxed);
            if (task >= range->end) break;
            pool->task(pool->context, task, self);
        }
    }
}

/* Waits for the next run: spins for a short while, as runs often follow each other, then sleeps. */
static unsigned adamod__pool_wait(adamod_pool *pool, unsigned seen) {
    for (int i = 0; i < SPINS; i++) {
        const unsigned now = atomic_load_explicit(&pool->generation, memory_order_acquire);
        if (now != seen) return now;
        adamod__pause();
    }
    pthread_mutex_lock(&pool->lock);
    while (atomic_load_explicit(&pool->generation, memory_order_acquire) == seen) {
        pthread_cond_wait(&pool->wake, &pool->lock);
    }
    pthread_mutex_unlock(&pool->lock);
    return atomic_load_explicit(&pool->generation, memory_order_acquire);
}

static void *adamod__pool_main(void *argument) {
    worker_start start = *(worker_start *)argument;
    free(argument);
    (void)adamod__enter_arithmetic(); /* a new thread inherits the settings of its creator */
    unsigned seen = 0;
    for (;;) {
        seen = adamod__pool_wait(start.pool, seen);
        if (atomic_load(&start.pool->stop)) return NULL;
        /* A worker that wakes after the run was closed has nothing to do, and no thread waits for it. */
        atomic_fetch_add(&start.pool->joined, 1);
        if (atomic_load(&start.pool->open)) adamod__pool_work(start.pool, start.index);
        atomic_fetch_sub(&start.pool->joined, 1);
    }
}

static void adamod__pool_signal(adamod_pool *pool) {
    pthread_mutex_lock(&pool->lock);
    atomic_fetch_add_explicit(&pool->generation, 1, memory_order_release);
    pthread_cond_broadcast(&pool->wake);
    pthread_mutex_unlock(&pool->lock);
}

void *adamod__pool_memory(const adamod_pool *pool, int thread) {
    return pool->memory + (size_t)(thread - 1) * pool->bytes;
}

bool adamod__pool_gone(const adamod_pool *pool) { return pool->process != getpid(); }

void adamod__pool_run(adamod_pool *pool, int64_t n, pool_task task, void *context) {
    if (!pool || pool->threads == 1 || n <= 1 || adamod__pool_gone(pool)) {
        for (int64_t i = 0; i < n; i++) task(context, i, 0);
        return;
    }
    pthread_mutex_lock(&pool->in_use);
    pool->task = task;
    pool->context = context;
    for (int i = 0; i < pool->threads; i++) {
        const int64_t share = n / pool->threads, extra = n % pool->threads;
        const int64_t begin = share * i + (i < extra ? i : extra);
        atomic_store_explicit(&pool->ranges[i].next, begin, memory_order_relaxed);
        pool->ranges[i].end = begin + share + (i < extra);
    }
    atomic_store(&pool->open, true);
    adamod__pool_signal(pool);
    adamod__pool_work(pool, 0);
    atomic_store(&pool->open, false); /* every task is taken; wait for those in work */
    for (int i = 0; atomic_load(&pool->joined) > 0; i++) {
        if (i < SPINS) {
            adamod__pause();
        } else {
            sched_yield();
        }
    }
    pthread_mutex_unlock(&pool->in_use);
}

int adamod__cores(void) {
#ifdef __linux__
    cpu_set_t set;
    if (sched_getaffinity(0, sizeof set, &set) == 0 && CPU_COUNT(&set) > 0) return CPU_COUNT(&set);
#endif
    const long n = sysconf(_SC_NPROCESSORS_ONLN);
    return n > 0 ? (int)n : 1;
}

int adamod__start_thread(pthread_t *thread, void *(*run)(void *), void *argument) {
    enum { STACK = 1 << 20 };
    pthread_attr_t attributes;
    sigset_t all, before;
    size_t stack;
    int error = pthread_attr_init(&attributes);
    if (error) return error;
    if (pthread_attr_getstacksize(&attributes, &stack) == 0 && stack < STACK)
        (void)pthread_attr_setstacksize(&attributes, STACK);
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    error = pthread_create(thread, &attributes, run, argument);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    pthread_attr_destroy(&attributes);
    return error;
}

static adamod_status adamod__pool_start(adamod_pool *pool, int threads) {
    for (int i = 1; i < threads; i++) {
        worker_start *start = malloc(sizeof *start);
        if (!start) return adamod__fail(ADAMOD_ERROR_MEMORY, "out of memory for thread %d of %d", i + 1, threads);
        *start = (worker_start){pool, i};
        const int error = adamod__start_thread(&pool->workers[i - 1], adamod__pool_main, start);
        if (error) {
            free(start);
            return adamod__fail(ADAMOD_ERROR_THREADS, "cannot start thread %d of %d: %s", i + 1, threads,
                                strerror(error));
        }
        pool->threads = i + 1;
    }
    return ADAMOD_OK;
}

static void adamod__pool_release(adamod_pool *pool) {
    if (!pool) return;
    free(pool->workers);
    free(pool->ranges);
    free(pool->memory);
    free(pool);
}

adamod_status adamod__pool_make(adamod_pool **out, int threads, size_t bytes, const void *owner) {
    bytes = (bytes + 63) / 64 * 64;
    if (threads == 0) threads = adamod__cores();
    adamod_pool *pool = calloc(1, sizeof *pool);
    if (pool) {
        pool->workers = calloc((size_t)threads, sizeof *pool->workers);
        pool->ranges = aligned_alloc(64, (size_t)threads * sizeof *pool->ranges);
        pool->memory = aligned_alloc(64, (size_t)threads * bytes);
        pool->bytes = bytes;
    }
    if (!pool || !pool->workers || !pool->ranges || !pool->memory) {
        adamod__pool_release(pool);
        return adamod__fail(ADAMOD_ERROR_MEMORY, "out of memory for a pool of %d threads", threads);
    }
    memset(pool->ranges, 0, (size_t)threads * sizeof *pool->ranges);
    pool->threads = 1;
    pool->process = getpid();
    pool->owner = owner;
    pthread_mutex_init(&pool->lock, NULL);
    pthread_mutex_init(&pool->in_use, NULL);
    pthread_cond_init(&pool->wake, NULL);
    const adamod_status status = adamod__pool_start(pool, threads);
    if (status) {
        adamod_pool_free(pool);
        return status;
    }
    *out = pool;
    return ADAMOD_OK;
}

void adamod_pool_free(adamod_pool *pool) {
    if (!pool) return;
    if (!adamod__pool_gone(pool)) {
        atomic_store(&pool->stop, true);
        adamod__pool_signal(pool);
        for (int i = 1; i < pool->threads; i++) pthread_join(pool->workers[i - 1], NULL);
        pthread_mutex_destroy(&pool->lock);
        pthread_mutex_destroy(&pool->in_use);
        pthread_cond_destroy(&pool->wake);
    } /* else a thread of the parent process may hold any of these for ever */
    adamod__pool_release(pool);
}

const void *adamod__pool_owner(const adamod_pool *pool) { return pool->owner; }

int adamod_pool_threads(const adamod_pool *pool) { return pool ? pool->threads : 1; }
