/* For drivers that multiply whole matrices: an array of two or more dimensions is a matrix [first dimension, all others].
 *
 * Large matrices are processed one after the other, each on all threads; small ones in parallel, each on one thread with
 * its own part of the workspace. The order of sums is the same. */
#ifndef ADAMOD_MATRICES_H
#define ADAMOD_MATRICES_H

#include "optim/update.h"

typedef struct matrix_driver {
    /* Whether the driver updates this array, which has a gradient and elements. NULL: always. */
    bool (*takes)(const work_item *item);
    /* Bytes of workspace for one item. */
    size_t (*bytes)(const work *w, const work_item *item);
    /* Updates item i, in a workspace aligned to 64: on the threads of pool or, if it is NULL, on this one. Its chunks are
     * space->first_chunk[i] and on, of space->chunk elements each. */
    void (*update)(const work_context *c, size_t i, char *workspace, adamod_pool *pool, int thread);
} matrix_driver;

/* run and workspace of a rule_driver with matrices. */
void adamod__matrices_run(const work *w, work_space *space);
size_t adamod__matrices_workspace(const work *w);

static inline matrix_shape adamod__whole_shape(const adamod_span *x) {
    return (matrix_shape){x->shape[0], x->count / x->shape[0], x->shape[0]};
}

static inline size_t adamod__aligned(size_t bytes) { return (bytes + 63) / 64 * 64; }

/* bytes + count * size, aligned; SIZE_MAX if it overflows or bytes is SIZE_MAX. */
static inline size_t adamod__more_bytes(size_t bytes, int64_t count, size_t size) {
    const uint64_t most = SIZE_MAX - 64;
    if (bytes > most || (uint64_t)count > (most - bytes) / size) return SIZE_MAX;
    return adamod__aligned(bytes + (size_t)count * size);
}

#endif
