/* Options, their choices and the number of the update, which decide the coefficients of an update. Read by C and by
 * CUDA C++, since on a device they are computed there (rules/coefs.inc.h, schedule.inc.h). */
#ifndef ADAMOD_OPTION_IDS_H
#define ADAMOD_OPTION_IDS_H

#include <stdint.h>

/* Every option of every rule. An option means the same in all rules that have it; its default and bounds may differ. */
typedef enum option_id {
    /* of several rules */
    OPT_LR,
    OPT_BETA1,
    OPT_BETA2,
    OPT_EPS, /* lr is divided by it alone where all gradients were zeros */
    OPT_FLAVOUR,
    OPT_BIAS_CORRECTION,
    OPT_MOMENTUM,
    OPT_NESTEROV,
    OPT_GAMMA,
    OPT_BOUND,
    OPT_BETA3,     /* of the bound */
    OPT_SKIP_IDLE, /* likewise */
    OPT_CAUTIOUS,
/* of one rule: in its file */
#define OPTION(id) OPT_##id,
#include "rules/names.inc.h"
    /* shared by all rules */
    OPT_WEIGHT_DECAY,
    OPT_DECAY,
    OPT_MAXIMIZE,
    OPT_CLIP_VALUE,
    OPT_LOW_PRECISION,
    OPT_STATE_TYPE,
    OPT_MIN_8BIT_SIZE,
    /* of the optimizer as a whole */
    OPT_GRAD_SCALE,
    OPT_CLIP_NORM,
    OPT_NONFINITE,
    OPT_SEED,
    OPT_THREADS,
    OPT_COUNT
} option_id;

enum { DECAY_NONE, DECAY_L2, DECAY_DECOUPLED, DECAY_INDEPENDENT };
enum { LOW_PRECISION_MASTER, LOW_PRECISION_STOCHASTIC };
enum { STATE_AUTO, STATE_BF16, STATE_Q8 };
enum { NONFINITE_PASS, NONFINITE_SKIP, NONFINITE_ERROR };
enum { FLAVOUR_PAPER, FLAVOUR_PUBLISHED, FLAVOUR_KERAS, FLAVOUR_ADAMD };
enum { SPATIAL_MAX, SPATIAL_NONE };
enum { BOUND_NONE, BOUND_MOMENTAL };
enum { ADJUST_ORIGINAL, ADJUST_MATCH_RMS_ADAMW, ADJUST_SPECTRAL_UNCLAMPED };

/* The numbers allowed in a type of computation: 0, and least to most. The bounds of options are for f64; f32 has some
 * numbers within them as 0 or infinity. */
typedef struct number_range {
    double least, most;
} number_range;
enum { RANGE_F32, RANGE_F64, RANGE_TYPES };

/* How an option, or a combination of several, can be out of range. */
typedef enum range_fault {
    RANGE_FINE,
    RANGE_BOUNDS, /* those that it has in any type */
    RANGE_TYPE,   /* those of the type */
    RANGE_RATE,   /* lr / eps */
    RANGE_FINAL   /* final_lr as lr's schedule makes it */
} range_fault;

typedef struct step_info {
    int64_t t;      /* which update of this array: 1, 2, ... */
    double base_lr; /* the learning rate before its schedule */
    /* The array's last two dimensions; cols 0: it is no matrix. Only for rules with a driver: arrays of other rules
     * share coefficients. */
    int64_t rows, cols;
    int64_t first, count; /* likewise: its first dimension, and all its elements */
} step_info;

#endif
