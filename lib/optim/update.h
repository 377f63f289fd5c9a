/* How rules that look at whole arrays work: a driver, and the pieces of an update it is made of.
 *
 * An element-wise rule has no driver: update.c cuts arrays into chunks for threads, chunks into blocks for kernels, and a
 * kernel applies the formula to a block. A driver runs before that. It may only look, and change coefficients (AdaShift);
 * or update arrays itself, all of them (Adafactor) or those of some variants (a rule that treats matrices in a way of
 * their own and other arrays as Adam does). */
#ifndef ADAMOD_UPDATE_H
#define ADAMOD_UPDATE_H

#include "optim/internal.h"

/* Of rules with a driver, every array has coefficients of its own, which run may change: space->coefs[space->coef_of[i]];
 * all but variant, l2 and clip. They can depend on the array's shape (step_info.rows and cols), and so can its variant. */
struct rule_driver {
    /* Called once in every update, before the kernels. Items without a gradient take no part. It lays out its own chunks,
     * if it takes any: space->first_chunk, and space->partial for two sums of each. */
    void (*run)(const work *w, work_space *space);
    /* The variants that run updates itself, a bit for each; arrays of the others are left to the kernels. */
    uint32_t takes;
    /* Bytes of space->workspace that run needs, which it finds aligned to 64 and with any contents; NULL: none.
     * SIZE_MAX: more than there can be. */
    size_t (*workspace)(const work *w);
};

static inline bool adamod__driver_takes(const work *w, const adamod__coef_f64 *c) {
    return w->rule->driver && (w->rule->driver->takes >> c->variant & 1);
}

/* An item's arrays as the block loop sees them. */
typedef struct block_source {
    const work_item *item;
    const adamod__coef_f64 *coef;
    const real_kernels *kernels; /* of the type of computation */
    adamod_type compute;
    adamod_type state_type;
    void *state[KERNEL_STATES];  /* where element 0 is in this update; NULL: none, or not one number for each element */
    float *scale[KERNEL_STATES]; /* of states in 8 bits */
    bool transform;              /* the gradient takes more than a factor */
    update_pair update;
    uint64_t key;  /* of random numbers */
    update_fn low; /* takes the bf16 parameter as it is; NULL: there is none for these types */
} block_source;

/* Those of all items with a gradient are made before a driver runs: space->sources[i]. Making one for every chunk took 8 % of
 * SGD's time, since by then its arrays have driven all that it reads out of the caches. */
block_source adamod__source(const work *w, const work_item *item, const adamod__coef_f64 *coef);

/* The values that n <= BLOCK elements of the parameter are updated from, to be overwritten: the array itself, the buffer,
 * or the master, which first follows a parameter that was changed by hand. */
void *adamod__param(const work *w, const block_source *b, int64_t first, size_t n, block_buffers *buffer);

/* The gradient as the rule sees it: scaled, clipped, with L2 decay. */
const void *adamod__gradient(const work *w, const block_source *b, int64_t first, size_t n, block_buffers *buffer);

/* Updates n elements, BLOCK at most unless kernels take all arrays where they lie. u, if given, is the update itself in
 * place of the gradient, and rates its learning rates before and after a bound, if it has any. */
typedef struct block_rates {
    const void *eta, *step;
} block_rates;
void adamod__update_block(const work *w, const block_source *b, int64_t first, size_t n, block_buffers *buffer,
                          const void *u, const block_rates *rates, stats_counts *counts);

/* n <= BLOCK elements from element first on, in the type of computation: where they lie if they have that type, else
 * converted into buffer. */
const void *adamod__read_block(const kernel_set *kernels, adamod_type compute, const void *array, adamod_type type,
                               int64_t first, size_t n, void *buffer);
/* The way back for bf16 and f16: rounded at random, or to nearest if random is NULL. Slot 0 is the parameter, 1 + i
 * state i. */
typedef struct block_random {
    uint64_t key;
    int slot;
} block_random;
void adamod__write_block(const kernel_set *kernels, adamod_type compute, void *array, adamod_type type, int64_t first,
                         size_t n, const void *buffer, const block_random *random);

/* One number of a state whatever its shape and type, and the way back, rounded at random if it is bf16. */
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

/* For drivers whose chunks are those of the kernels: lays out those of all arrays with a gradient, and returns their
 * number; the elements of one, within its item. */
int64_t adamod__lay_given(const work *w, work_space *space);
void adamod__chunk_range(const work_context *c, int64_t chunk, size_t *item, int64_t *first, int64_t *last);
/* The item a chunk belongs to. */
size_t adamod__find_item(const work_space *space, size_t n, int64_t chunk);
/* Runs the formula over all arrays with a gradient, with SUMS_FLAG set, and sums what it leaves in eta and step, squared or as
 * it is; then those two sums of an item. */
void adamod__sum_arrays(const work *w, work_space *space, bool squares);
void adamod__array_sums(const work_space *space, size_t item, double sum[2]);
/* Adds the chunks' sums of squares to their groups' statistics, in order. */
void adamod__add_partial(const work *w, const work_space *space);

#endif
