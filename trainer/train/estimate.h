/* estimate.h - how long a run would take: a few updates and one evaluation are made and timed. The experiment is of no other
 * use then; nothing is written. */
#ifndef ADAMOD_ESTIMATE_H
#define ADAMOD_ESTIMATE_H

#include "train/task.h"

typedef struct estimate {
    double update, items; /* seconds of an update, and what throughput counts of it; means */
    int updates;          /* that were timed */
    double evaluation;    /* seconds of one while training goes on */
    double whole;         /* seconds of the run, with its evaluations and the test at the end, without checkpoints */
    char diverged[200];   /* why there are no times: "the loss is not finite in update 7"; "": there are */
} estimate;

/* The experiment was opened for all uses. */
int estimate_run(experiment *e, estimate *out);

#endif
