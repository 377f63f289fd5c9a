/* resume.h - how a run begins: anew, with the weights of another, or from one of its own checkpoints. */
#ifndef ADAMOD_RESUME_H
#define ADAMOD_RESUME_H

#include "train/checkpoint.h"
#include "train/run.h"

/* What begins anew, or may be other than it was, when a run goes on; a sum of these. */
enum {
    RESET_OPTIMIZER = 1, /* its states are forgotten; rule, options and schedules may differ */
    RESET_OPTIONS = 2,   /* options and schedules may differ; states stay */
    RESET_DATA = 4 /* data may differ: a new epoch begins, and on other validation data a new search for the best */
};

typedef struct resume_options {
    bool resume;
    bool again;       /* not so because nothing was ever saved there */
    const char *from; /* which checkpoint, as checkpoints_find takes it; NULL: last */
    int reset;
    void (*note)(const char *line); /* told what the user should know; NULL: nobody */
} resume_options;

/* What the recipe may differ in, for run_open. */
int resume_except(int reset);

/* The weights that train.init_from names, if it does, into the parameters. The experiment's recipe then names the file. */
int resume_init(experiment *e);

/* After run_open: a new run's data are noted; one that exists goes back to its checkpoint, *at becoming where that stands.
 * Later checkpoints than that are deleted. A run that was never saved begins anew. */
int resume_begin(experiment *e, run *r, const resume_options *o, checkpoint_meta *at);

/* The same for a rank that does not write the run, once the one that does has: at is where that stands. */
int resume_follow(experiment *e, const char *directory, const checkpoint_meta *at);

/* Of a run that is evaluated: one line where a split's data are not those that its checkpoint says it had
 * (checkpoint_meta.data). False: they are, or that is not known. */
bool resume_other_data(const experiment *e, task_split split, const checkpoint_meta *at, const char *directory,
                       char *out, size_t size);

#endif
