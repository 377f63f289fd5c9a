/* loop.h - the training loop: from a recipe to a run directory, with interruptions and resumption. */
#pragma once

#include "train/scoreboard.h"
#include "train/task.h"

#include <stdatomic.h>

/* Progress on standard error: see progress.h. */
typedef enum train_show {
    TRAIN_SILENT,
    TRAIN_LIVE,
    TRAIN_LOG,
    TRAIN_KEPT /* only lines that stay; another process draws the live line */
} train_show;

typedef struct train_options {
    comm *comm; /* ranks; NULL: this process alone. Rank 0 writes the directory */
    const char *directory;
    bool resume;
    const char *resume_from; /* a checkpoint's name; NULL: last */
    int reset;               /* as in resume.h */
    int at_once;             /* runs on this machine at the same time, which share its cores; 0: not known */
    train_show show;
    const char *label;              /* before each line of progress; NULL: none */
    scoreboard *board;              /* of several runs; NULL: it is alone */
    int place;                      /* number of the run on the board, from 0 on */
    void (*note)(const char *line); /* receives notes for the user; may be NULL */
    const atomic_int *stop;         /* the user sets it to stop; may be NULL */
    atomic_int *save;               /* the user sets it for a checkpoint, the loop resets it; may be NULL */
    atomic_int *reading;            /* the loop resets it once the data are read; may be NULL */
} train_options;

typedef enum train_status { TRAIN_FINISHED, TRAIN_INTERRUPTED, TRAIN_DIVERGED } train_status;

typedef struct train_result {
    train_status status;
    int64_t step;
    bool early;               /* stopped by train.patience */
    double seconds;           /* of training, without evaluation */
    double train_loss;        /* see mean_loss.h; NAN: none */
    task_result valid, final; /* of the last evaluation during training, and of that at the end */
    task_split final_split;   /* of final: the test set, or else the validation set */
    const char *tested;       /* model of final: "averaged", "best" or "last" */
    int64_t tested_step;      /* updates made when that was saved */
    char reason[200];         /* why the run diverged: "the loss is not finite in update 7" */
} train_result;

/* Opens the experiment as train_run does, divided among ranks; for estimates. */
int train_open(experiment *e, const recipe *r, const train_options *o);
/* Passes notes about it to o->note. */
void train_note(const experiment *e, const recipe *r, const train_options *o);

/* A failure is on all ranks, with the same message. An interrupted or diverged run is not a failure. */
int train_run(const recipe *r, const train_options *o, train_result *out);
