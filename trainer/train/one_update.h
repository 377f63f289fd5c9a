/* one_update.h - one update: batches, gradients, the optimizer's step.
 *
 * On the CPU an update is done when update_begin returns. On a device it is then running, as one recording, and update_end
 * waits for it. One other update may begin before that. */
#pragma once

#include "train/checkpoint.h"
#include "train/task.h"

typedef struct update {
    int64_t step;                       /* number of the update: 1, 2, ... */
    int64_t items, own_items;           /* of the run so far, and of this update */
    double epoch;                       /* epochs done, with a fraction */
    double sums[4];                     /* as nn_cross_entropy gives them */
    double lr, norm;                    /* norm < 0: not computed */
    double targets;                     /* rows that the loss counts */
    double lr_factors;                  /* sum over its batches */
    double own_targets, own_lr_factors; /* of batches that this rank computed on a device */
    bool waited;                        /* the device is done */
    bool taken;                         /* false: skipped, as something was not finite */
    char diverged[200];                 /* why training must stop: what was not finite */
    double begin, end;                  /* for the caller */
} update;

/* Whether an update still runs after update_begin. */
bool update_is_pending(const experiment *s);

/* Computes the next batches and advances at. collect: with statistics of learning rates. */
int update_begin(experiment *s, checkpoint_meta *at, bool collect, update *u);
int update_end(experiment *s, update *u);
