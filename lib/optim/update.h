/* Drivers, for rules that look at whole arrays, and the parts of an update that they use.
 *
 * An element-wise rule has no driver: update.c cuts arrays into chunks for threads and chunks into blocks for kernels, and
 * a kernel applies the formula to a block. A driver runs before that. It can read arrays and change coefficients
 * (AdaShift), or update arrays itself: all of them (Adafactor) or those of some variants (Muon updates matrices and
 * leaves other arrays to the kernels). */
#ifndef ADAMOD_UPDATE_H
#define ADAMOD_UPDATE_H

#include "optim/internal.h"

/* With a driver, every array has its own coefficients, space->coefs[space->coef_of[i]]. They and the variant can depend on
 * the array's shape (step_info.rows and cols). run may change all but variant, l2 and clip. */
struct rule_driver {
    /* Called once in every update, before the kernels; ignores items without a gradient. If it updates arrays, it lays out
     * its own chunks: space->first_chunk, and space->partial for two sums of each. */
    void (*run)(const work *w, work_space *space);
    /* Bit mask of the variants that run updates itself; the kernels update all others. */
    uint32_t takes;
    /* Bytes of space->workspace that run needs, aligned to 64 and uninitialized; SIZE_MAX: too many. NULL: none. */
    size_t (*workspace)(const work *w);
    /* For run and workspace of matrices.h; else NULL. */
    const struct matrix_driver *matrices;
};

extern const rule_driver adamod__sums_driver;

static inline bool adamod__driver_takes(const work *w, const adamod__coef_f64 *c) {
    return w->rule->driver && (w->rule->driver->takes >> c->variant & 1);
}

/* The arrays of an item, for the loop over blocks. */
typedef struct block_source {
    const work_item *item;
    const adamod__coef_f64 *coef;
    const real_kernels *kernels; /* of the type of computation */
    adamod_type compute;
    adamod_type state_type;
    void *state[KERNEL_STATES];  /* element 0 in this update; NULL: none, or not one number for each element */
    float *scale[KERNEL_STATES]; /* of 8-bit states */
    uint8_t q8[KERNEL_STATES];   /* their kinds: see q8.h */
    bool transform;              /* the gradient needs more than a factor: clipping or L2 decay */
    update_pair update;
    uint64_t key;  /* of random numbers */
    update_fn low; /* kernel that reads and writes the bf16 parameter itself; NULL: none for these types */
} block_source;

/* Sources of all items with a gradient are made before a driver runs: space->sources[i]. Making one for each chunk took 8 %
 * of SGD's time, because the arrays have evicted its inputs from the caches by then. */
block_source adamod__source(const work *w, const work_item *item, const adamod__coef_f64 *coef);

/* Returns n <= BLOCK elements of the parameter, to be updated in place: in the array itself, the buffer, or the master,
 * which first takes over elements of the parameter that the user changed. */
void *adamod__param(const work *w, const block_source *b, int64_t first, size_t n, block_buffers *buffer);

/* The gradient as the rule sees it: scaled, clipped, with L2 decay. */
const void *adamod__gradient(const work *w, const block_source *b, int64_t first, size_t n, block_buffers *buffer);

/* A block's arrays as a kernel takes them, converted into buffer where types ask for it. u, if not NULL, replaces the gradient.
 * shaped: scaled, clipped and with L2 decay; coef, a copy of b's, then has gscale 1. */
block adamod__load_block(const work *w, const block_source *b, int64_t first, size_t n, block_buffers *buffer,
                         const void *u, bool shaped, adamod__coef_f64 *coef);

/* Updates n elements; n <= BLOCK unless kernels work on all arrays in place. u, if not NULL, is used instead of the
 * gradient; rates are then its learning rates before and after a bound, if any. */
typedef struct block_rates {
    const void *eta, *step;
} block_rates;
void adamod__update_block(const work *w, const block_source *b, int64_t first, size_t n, block_buffers *buffer,
                          const void *u, const block_rates *rates, stats_counts *counts);

/* Returns n <= BLOCK elements from element first on, in the type of computation: the array itself if it has that type,
 * else converted into buffer. */
const void *adamod__read_block(const kernel_set *kernels, adamod_type compute, const void *array, adamod_type type,
                               int64_t first, size_t n, void *buffer);
/* Writes n elements as bf16 or f16, rounded at random, or to nearest if random is NULL. Slot 0 is the parameter, 1 + i is
 * state i. */
typedef struct block_random {
    uint64_t key;
    int slot;
} block_random;
void adamod__write_block(const kernel_set *kernels, adamod_type compute, void *array, adamod_type type, int64_t first,
                         size_t n, const void *buffer, const block_random *random);

/* Read and write one number of a state of any shape and type; bf16 is rounded at random. */
double adamod__state_number(const work *w, const block_source *b, int state, int64_t i);
void adamod__set_state_number(const work *w, const block_source *b, int state, int64_t i, double value);

/* The larger of two; NaN if either is. */
static inline double adamod__larger(double a, double b) { return a != a || a > b ? a : b; }

typedef struct work_context {
    const work *w;
    work_space *space;
} work_context;

static inline thread_memory adamod__memory_of(const work_context *c, int thread) {
    return thread == 0 ? c->space->caller : adamod__thread_memory(c->w->pool, thread);
}

/* For drivers with the same chunks as the kernels: lays out the chunks of all arrays with a gradient and returns their
 * number. */
int64_t adamod__lay_given(const work *w, work_space *space);
/* The item of a chunk, and its elements [first, last) within the item. */
void adamod__chunk_range(const work_context *c, int64_t chunk, size_t *item, int64_t *first, int64_t *last);
size_t adamod__find_item(const work_space *space, size_t n, int64_t chunk);
/* Runs the formula with SUMS_FLAG over all arrays with a gradient, and sums the values it leaves in eta and step, or their
 * squares. adamod__array_sums returns the two sums of an item. */
void adamod__sum_arrays(const work *w, work_space *space, bool squares);
void adamod__array_sums(const work_space *space, size_t item, double sum[2]);
/* Adds the chunks' sums of squares to their groups' statistics, in order. */
void adamod__add_partial(const work *w, const work_space *space);

#endif
