/* Declarations that the library's files share. Names with two underscores are internal and not exported. */
#ifndef ADAMOD_INTERNAL_H
#define ADAMOD_INTERNAL_H

#include "core/error.h" /* first: it refuses platforms */

#include "core/arithmetic.h"
#include "core/pool.h"
#include "optim/device.h"
#include "kernels/kernels.h"
#include "optim/option_ids.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

/* ---- options ---- */

typedef struct option_spec {
    option_id id;
    adamod_option info;
} option_spec;

#define OPTION_OF(id, kind, name, value, min, max, min_open, max_open, choices, structural, optimizer_wide, help)      \
    {                                                                                                                  \
        OPT_##id, { name, help, kind, value, min, max, min_open, max_open, choices, structural, optimizer_wide }       \
    }
/* id, name, default, least, most, 1 if the most itself is not allowed, help */
#define OPTION_REAL(id, name, value, min, max, open, help)                                                             \
    OPTION_OF(id, ADAMOD_REAL, name, value, min, max, 0, open, NULL, 0, 0, help)
#define OPTION_STRUCTURAL_REAL(id, name, value, min, max, open, help)                                                  \
    OPTION_OF(id, ADAMOD_REAL, name, value, min, max, 0, open, NULL, 1, 0, help)
#define OPTION_INTEGER(id, name, value, min, max, structural, help)                                                    \
    OPTION_OF(id, ADAMOD_INTEGER, name, value, min, max, 0, 0, NULL, structural, 0, help)
#define OPTION_SWITCH(id, name, value, structural, help) OPTION_INTEGER(id, name, value, 0, 1, structural, help)
#define OPTION_CHOICE(id, name, value, choices, structural, help)                                                      \
    OPTION_OF(id, ADAMOD_CHOICE, name, value, 0, sizeof(choices) / sizeof *(choices)-2, 0, 0, choices, structural, 0,  \
              help)

/* ---- rules ---- */

/* A state of one array, with the options of its group. */
typedef struct state_spec {
    const char *name; /* NULL: the rule has no state at this index */
    adamod_state_shape shape;
    double initial;
} state_spec;

/* Passes over whole arrays: see update.h. */
typedef struct rule_driver rule_driver;

/* Everything that is special about a rule. Its file in rules/ fills it in; no other file asks which rule it is. */
typedef struct rule {
    rule_id id; /* its place in tables of rules */
    const char *name;
    const char *summary, *source;
    int year;
    const option_spec *options;
    int n_options;
    bool l2_decay; /* weight_decay is L2 decay unless the options say otherwise; false: decoupled */
    double default_weight_decay;
    const struct rule *alias;  /* the same under another name, with other defaults; NULL: there is none */
    const char *file_name;     /* of an alias: the rule's, which files of states have; NULL: its own */
    bool q8;                   /* its states can be kept in 8 bits */
    unsigned more_signed;      /* besides state 0, those that can be negative: a bit for each */
    option_id q8_without;      /* an option that states in 8 bits do not go with; 0: none */
    bool averages;             /* state 0 is z, and what to evaluate with is an average: see evaluation.c */
    bool couples_arrays;       /* an update of one array depends on all others */
    bool shaped;               /* the array's dimensions matter, not only the number of its elements */
    bool matrices_only;        /* with a driver: vectors and scalars are updated element by element */
    bool sparse;               /* without momentum and decay, a gradient of 0 leaves an element as it is */
    bool uncounted;            /* the number of an update matters only in the first */
    const rule_driver *driver; /* NULL: it is element-wise */
    bool cautious;             /* it has the option of that name, with which sums.c is its driver */
    /* For the driver sums.c: changes the coefficients by the sums over an array of count elements. */
    void (*finish)(const double *options, const double sum[2], int64_t count, adamod__coef_f64 *c);
    const adamod_rule_state *states;
    int n_states;
    /* Whether an optional state exists with these options and this number of dimensions. */
    bool (*has_state)(const double *options, int ndim, const adamod_rule_state *state);
    /* Fills what the formula reads; c starts zeroed, with the common fields filled in afterwards. */
    void (*coefs)(const double *options, const step_info *info, adamod__coef_f64 *c);
} rule;

extern const rule *const adamod__rules[RULE_COUNT];

static inline unsigned adamod__signed_states(const rule *r) { return 1 | r->more_signed; }

/* The rule of this name, or NULL with the last error set. */
const rule *adamod__find_rule(const char *name);
/* The rule's name in state files. */
static inline const char *adamod__rule_in_files(const rule *r) { return r->file_name ? r->file_name : r->name; }
static inline int adamod__default_decay(const rule *r) { return r->l2_decay ? DECAY_L2 : DECAY_DECOUPLED; }

/* The option of this name, or NULL with the last error set. */
const option_spec *adamod__find_option(const rule *r, const char *name);
adamod_status adamod__check_value(const rule *r, const option_spec *o, double value);
/* The functions below check values against the range of a type of computation, f32 or f64. where, unless NULL, begins the
 * message. check_number checks one option, check_combined the combinations of a rule's options, check_numbers both;
 * combined_fault fails with the message for a combination. */
number_range adamod__number_range(option_id id, adamod_type type);
adamod_status adamod__check_number(const rule *r, const option_spec *o, double value, adamod_type type,
                                   const char *where);
adamod_status adamod__check_numbers(const rule *r, const double *options, adamod_type type, const char *where);
adamod_status adamod__check_combined(const rule *r, const double *options, double base_lr, adamod_type type,
                                     const char *where);
adamod_status adamod__combined_fault(const rule *r, range_fault fault, double value, adamod_type type,
                                     const char *where);
adamod_status adamod__parse_value(const rule *r, const option_spec *o, const char *text, double *value);
void adamod__default_options(const rule *r, double options[OPT_COUNT]);
/* Option number index of a rule, its own first, or NULL. */
const option_spec *adamod__option(const rule *r, int index);

/* All the coefficients an update of one array reads. grad_scale replaces OPT_GRAD_SCALE and includes the clipping. */
void adamod__coefs(const rule *r, const double *options, const step_info *info, double grad_scale, adamod__coef_f64 *c);
/* The states of an array of ndim dimensions, each at its index. */
void adamod__states(const rule *r, const double *options, int ndim, state_spec specs[ADAMOD_MAX_STATES]);
/* Fails if the options do not go with states in 8 bits; where begins the message. */
adamod_status adamod__check_q8_options(const rule *r, const double *options, const char *where);
/* Whether an array has state s of the rule. */
bool adamod__has_state(const rule *r, const double *options, int ndim, const adamod_rule_state *s);
/* The element count and shape of a state; ADAMOD_ERROR_ARGUMENT if it overflows. */
adamod_status adamod__state_size(const state_spec *spec, const double *options, int ndim, const int64_t *shape,
                                 adamod_state_desc *out);

struct adamod_hyper {
    const rule *rule;
    const kernel_set *kernels;
    double options[OPT_COUNT];
};

/* ---- types and shapes ---- */

static inline size_t adamod__type_size(adamod_type type) {
    switch (type) {
        case ADAMOD_F32: return 4;
        case ADAMOD_F64: return 8;
        case ADAMOD_BF16:
        case ADAMOD_F16: return 2;
        case ADAMOD_Q8: return 1;
    }
    return 0;
}
const char *adamod__type_name(adamod_type type);
/* Whether parameters and gradients can have this type. */
bool adamod__is_real(adamod_type type);
/* The product of the dimensions; -1 if one is negative or the bytes would overflow, of the largest type even. */
int64_t adamod__element_count(int ndim, const int64_t *shape);
/* "[2, 3]"; cut where it does not fit. */
void adamod__shape_text(int ndim, const int64_t *shape, char *out, size_t size);
/* Checks that a shape is possible; name is for the message. */
adamod_status adamod__check_shape(const char *name, int ndim, const int64_t *shape);
bool adamod__overlap(const void *a, size_t a_bytes, const void *b, size_t b_bytes);

/* The last two dimensions of an array, and the first. All are 0 if there are fewer than two, and of an empty array, whose
 * other dimensions may be of any size. */
typedef struct matrix_shape {
    int64_t rows, cols, first;
} matrix_shape;
static inline matrix_shape adamod__matrix_shape(const adamod_span *x) {
    if (x->ndim < 2 || x->count == 0) return (matrix_shape){0, 0, 0};
    return (matrix_shape){x->shape[x->ndim - 2], x->shape[x->ndim - 1], x->shape[0]};
}

/* f64 parameters are computed in f64, all others in f32. */
static inline adamod_type adamod__compute_type(adamod_type param) {
    return param == ADAMOD_F64 ? ADAMOD_F64 : ADAMOD_F32;
}

/* The type whose range an update must keep to: that of computation, but states of fewer bits have only f32's. */
static inline adamod_type adamod__range_type(const adamod_span *x) {
    bool states = false;
    for (int i = 0; i < ADAMOD_MAX_STATES; i++) states = states || x->state[i];
    return x->param_type == ADAMOD_F64 && (!states || x->state_type == ADAMOD_F64) ? ADAMOD_F64 : ADAMOD_F32;
}

/* ---- threads ---- */

/* Elements that one kernel call works on. A chunk, which one thread takes at a time, is a multiple of it. */
enum { BLOCK = 512 };

/* Memory for one thread while it updates a block, in the larger of the two types. Not on its stack, which may be small. */
typedef struct block_buffers {
    _Alignas(64) double g[BLOCK], p[BLOCK], state[KERNEL_STATES][BLOCK], eta[BLOCK], step[BLOCK], before[BLOCK];
    double u[BLOCK], rates[BLOCK], ones[BLOCK], sum[BLOCK]; /* for drivers */
} block_buffers;

typedef struct thread_memory {
    block_buffers *buffer;
    stats_counts *counts; /* of one chunk; the caller's is NULL where no statistics are wanted */
} thread_memory;

/* Makes a pool of threads that update with these kernels. adamod__thread_memory: of a thread other than 0. */
adamod_status adamod__update_pool(adamod_pool **out, int threads, const kernel_set *kernels);
const kernel_set *adamod__pool_kernels(const adamod_pool *pool);
thread_memory adamod__thread_memory(const adamod_pool *pool, int thread);

/* ---- statistics ---- */

typedef struct adamod__stats {
    pthread_mutex_t lock;
    float edge[ADAMOD_HIST_BINS + 1]; /* the edges of the histogram's bins */
    uint16_t bin[FINE_BINS];          /* the histogram's bin in which a fine bin begins */
    stats_counts *groups;
    int n_groups;
    bool filled; /* the last step was counted */
} adamod__stats;

void adamod__stats_init(adamod__stats *stats);
void adamod__stats_clear(stats_counts *counts);
/* Adds a block's learning rates; v: its second moments, or NULL. */
void adamod__stats_add(const adamod__stats *stats, stats_counts *counts, adamod_type type, const void *eta,
                       const void *step, const void *v, size_t n);
/* Counts the elements of a block whose parameter, or one of whose states, is not finite. */
void adamod__stats_nonfinite(stats_counts *counts, adamod_type type, const block *x);
/* Adds a chunk's counts to its group's, but not the sums of squares: their order matters. */
void adamod__stats_merge(adamod__stats *stats, int group, const stats_counts *counts);
/* The statistics of one group; -1: of all. */
void adamod__stats_result(const adamod__stats *stats, int group, adamod_statistics *out);

/* ---- updates ---- */

/* One array, with the options its group has in this update. */
typedef struct work_item {
    const adamod_span *span;
    const double *options;
    double base_lr;
    double grad_scale; /* replaces OPT_GRAD_SCALE: includes the clipping of the global norm */
    int group;
} work_item;

/* Memory that is kept from step to step, so that a step allocates nothing. Start from {0}. */
typedef struct work_space {
    int64_t *first_chunk; /* of each item, and one past the last */
    int64_t *coef_of;     /* index into coefs, for each item */
    adamod__coef_f64 *coefs;
    struct block_source *sources;  /* of each item with a gradient: see update.h */
    double *partial;               /* two numbers for each chunk, for sums whose order must not depend on threads */
    void *workspace;               /* the driver's: see update.h */
    const rule_driver *driver;     /* in this update; NULL: none */
    size_t items, n_coefs, chunks; /* how many fit */
    size_t workspace_bytes;
    int64_t chunk;        /* elements in a chunk */
    thread_memory caller; /* of the thread that steps; the others' is the pool's */
} work_space;

typedef struct work {
    const rule *rule; /* NULL: sums over gradients, no update */
    const kernel_set *kernels;
    const work_item *items;
    size_t n;
    adamod_pool *pool;    /* NULL: on this thread */
    adamod__stats *stats; /* NULL: none wanted */
} work;

/* Elements in a chunk, for arrays that have total elements in sum. */
int64_t adamod__chunk_size(int64_t total);
/* Makes room; the only part of an update that can fail. */
adamod_status adamod__work_reserve(const work *w, work_space *space);
void adamod__work_free(work_space *space);
/* The update itself; adamod__work_reserve must have succeeded for the same work. */
void adamod__work_run(const work *w, work_space *space);
/* The global norm of the scaled gradients; not finite if any element is not. */
double adamod__work_norm(const work *w, work_space *space);
double adamod__work_largest(const work *w, work_space *space);
bool adamod__misaligned(const void *p, adamod_type type);

/* One array of a parameter, for the check that no two overlap. */
typedef struct array_ref {
    const char *name;
    const char *data;
    size_t bytes;
    size_t owner; /* the parameter's number */
    int order;    /* within it, for messages */
    bool written;
} array_ref;

/* Whether an array that is written overlaps another one; gradients may share memory. If so, *a and *b are the two, in the
 * order of their owners. Sorts the arrays. */
bool adamod__find_overlap(array_ref *arrays, size_t n, const array_ref **a, const array_ref **b);

/* Checks a span's parameters and gradient (null, types, alignment, overlap); name is for the message. */
adamod_status adamod__check_arrays(const adamod_span *x, const char *name);

/* Elements of the block that begins at `at`, of an array that ends at last. */
static inline size_t adamod__block_length(int64_t last, int64_t at) {
    return last - at < BLOCK ? (size_t)(last - at) : BLOCK;
}

/* Element i of an array of f32 or f64, at any address. */
static inline double adamod__real_at(adamod_type type, const void *array, size_t i) {
    double wide;
    float narrow;
    if (type == ADAMOD_F64) memcpy(&wide, (const char *)array + i * sizeof wide, sizeof wide);
    else memcpy(&narrow, (const char *)array + i * sizeof narrow, sizeof narrow);
    return type == ADAMOD_F64 ? wide : (double)narrow;
}

#endif
