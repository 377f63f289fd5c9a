/* The training loop: from a recipe to a run directory, interrupted and resumed as often as need be. */
#ifndef ADAMOD_LOOP_H
#define ADAMOD_LOOP_H

#include "train/scoreboard.h"
#include "train/task.h"

#include <stdatomic.h>

/* What is told of progress on standard error: see progress.h. */
typedef enum train_show {
    TRAIN_SILENT,
    TRAIN_LIVE,
    TRAIN_LOG,
    TRAIN_KEPT /* only what stays, on a terminal where another process draws a live line */
} train_show;

typedef struct train_options {
    comm *comm; /* who trains together; NULL: this process alone. Rank 0 writes the directory */
    const char *directory;
    bool resume;
    const char *resume_from; /* which of its checkpoints; NULL: last */
    int reset;               /* as in resume.h */
    int at_once; /* runs on this machine at the same time, this one included: they share its cores; 0: not known */
    train_show show;
    const char *label;              /* before each line of progress; NULL: none */
    scoreboard *board;              /* the runs of which this is one; NULL: it is alone */
    int place;                      /* its place among them, from 0 on */
    void (*note)(const char *line); /* told what the user should know and does not stop a run; NULL: nobody */
    const atomic_int *stop;         /* becomes non-zero when the user wants to stop */
    atomic_int *save;               /* the same for a checkpoint, and 0 when it was made; both may be NULL */
    atomic_int
        *reading; /* becomes 0 once the data are read, before which there is nothing to save; NULL: nobody asks */
} train_options;

typedef enum train_status { TRAIN_FINISHED, TRAIN_INTERRUPTED, TRAIN_DIVERGED } train_status;

typedef struct train_result {
    train_status status;
    int64_t step;
    bool early;               /* finished because train.patience was at its end */
    double seconds;           /* of training, without evaluation */
    double train_loss;        /* see mean_loss.h; NAN: no update had one */
    task_result valid, final; /* of the last evaluation; and at the end, of ... */
    task_split final_split;   /* ... the test set, or the validation set where there is none */
    const char *tested;       /* which model that was of: "averaged", "best" or "last"; and after which update */
    int64_t tested_step;
    char reason[200]; /* of a run that diverged: "the loss is not finite in update 7" */
} train_result;

/* What train_run trains, shared out over ranks as it does it: for who wants to know what that takes. */
int train_open(experiment *e, const recipe *r, const train_options *o);
/* Tells what the user should know of it, beyond what the recipe says. */
void train_note(const experiment *e, const recipe *r, const train_options *o);

/* Fails on all ranks with the same message. An interrupted or diverged run is a result, not a failure. */
int train_run(const recipe *r, const train_options *o, train_result *out);

#endif
