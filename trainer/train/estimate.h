/* estimate.h - estimates the time of a run from a few updates and one evaluation. Nothing is written; the experiment
 * cannot be used afterwards. */
#pragma once

#include "train/task.h"

typedef struct estimate {
    double update, items; /* mean seconds and items of an update */
    int updates;          /* number of timed updates */
    double evaluation;    /* seconds of an evaluation during training */
    double whole;         /* seconds of the run with evaluations and test, without checkpoints */
    char diverged[200];   /* why there are no times: "the loss is not finite in update 7"; "": there are */
} estimate;

/* The experiment must be open for all uses. */
int estimate_run(experiment *e, estimate *out);
