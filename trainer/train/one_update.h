/* One update: batches, gradients, the optimizer's step.
 *
 * On the processor an update is done when update_begin returns. On a device it is under way then, as one recording, and
 * update_end waits for it; another may begin meanwhile, not two. */
#ifndef ADAMOD_TRAINING_STEP_H
#define ADAMOD_TRAINING_STEP_H

#include "train/checkpoint.h"
#include "train/task.h"

typedef struct update {
    int64_t step;                       /* which it is: 1, 2, ... */
    int64_t items, own_items;           /* seen in all after it, and its own */
    double epoch;                       /* epochs done after it, with a fraction */
    double sums[4];                     /* as nn_cross_entropy gives them */
    double lr, norm;                    /* norm negative: not computed */
    double targets;                     /* rows that the loss counts */
    double lr_factors;                  /* the sum of its batches' */
    double own_targets, own_lr_factors; /* of the batches that this rank computed on a device */
    bool waited;                        /* a device is done with it */
    bool taken;                         /* false: something was not finite, and the recipe says to skip it */
    char diverged[200];                 /* something was not finite, and the recipe says to stop: what */
    double begin, end;                  /* for the caller */
} update;

/* Whether updates go on after update_begin. */
bool update_is_pending(const experiment *s);

/* Takes the next batches and moves at past them. collect: with the statistics of learning rates. */
int update_begin(experiment *s, checkpoint_meta *at, bool collect, update *u);
int update_end(experiment *s, update *u);

#endif
