/* resume.h - starts a run: from scratch, with weights of another run, or from one of its checkpoints. */
#pragma once

#include "train/checkpoint.h"
#include "train/run.h"

/* Parts that are reset, or may differ, when a run is resumed; a sum of these. */
enum {
    RESET_OPTIMIZER = 1, /* states start over; rule, options and schedules may differ */
    RESET_OPTIONS = 2,   /* options and schedules may differ; states stay */
    RESET_DATA = 4       /* data may differ: a new epoch begins, and with other validation data the best is forgotten */
};

typedef struct resume_options {
    bool resume;
    bool again;       /* it was asked for, but nothing was saved there */
    const char *from; /* a checkpoint for checkpoints_find; NULL: last */
    int reset;
    void (*note)(const char *line); /* receives notes for the user; may be NULL */
} resume_options;

/* The except of recipe_compare for a reset. */
int resume_except(int reset);

/* Loads the weights of train.init_from, if it is set; in the experiment's recipe it becomes the file. */
int resume_init(experiment *e);

/* After run_open: notes the data of a new run, or loads the checkpoint of an existing one, whose position *at becomes, and
 * deletes later checkpoints. A run that was never saved starts over. */
int resume_begin(experiment *e, run *r, const resume_options *o, checkpoint_meta *at);

/* For the other ranks, after rank 0 has called resume_begin: at is its position. */
int resume_follow(experiment *e, const char *directory, const checkpoint_meta *at);

/* For evaluation: a line if a split's data differ from those of the run (checkpoint_meta.data). False: they do not, or it
 * is not known. */
bool resume_other_data(const experiment *e, task_split split, const checkpoint_meta *at, const char *directory,
                       char *out, size_t size);
