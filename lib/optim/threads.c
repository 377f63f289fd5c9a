/* Pools whose threads update: each has room for the blocks it works on. */
#include "optim/internal.h"

typedef struct worker_memory {
    block_buffers buffer;
    stats_counts counts;
} worker_memory;

adamod_status adamod__update_pool(adamod_pool **out, int threads, const kernel_set *kernels) {
    return adamod__pool_make(out, threads, sizeof(worker_memory), kernels);
}

adamod_status adamod_pool_create(adamod_pool **out, int threads) {
    if (!out) return adamod__refuse("out is NULL");
    if (threads < 0 || threads > 1024) {
        return adamod__fail(ADAMOD_ERROR_RANGE, "threads is %d, expected 0 <= threads <= 1024", threads);
    }
    const kernel_set *kernels = adamod__kernels_choose();
    return kernels ? adamod__update_pool(out, threads, kernels) : ADAMOD_ERROR_NAME;
}

const kernel_set *adamod__pool_kernels(const adamod_pool *pool) { return adamod__pool_owner(pool); }

thread_memory adamod__thread_memory(const adamod_pool *pool, int thread) {
    worker_memory *m = adamod__pool_memory(pool, thread);
    return (thread_memory){&m->buffer, &m->counts};
}
