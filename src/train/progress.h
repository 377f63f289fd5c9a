/* progress.h - what a person sees of a run on standard error: on a terminal one live line, elsewhere (a batch system, nohup)
 * a line of its own every so many seconds.
 *
 *     adam, seed 1  step 300/900  epoch 0.14  2m05s left  loss 3.1234  exact 44 %  BLEU 63.9  9000 tokens/s
 *
 * The time left counts evaluations, checkpoints and the test at the end, as long as they have taken so far.
 *
 * SPDX-License-Identifier: MIT
 */
#ifndef ADAMOD_PROGRESS_H
#define ADAMOD_PROGRESS_H

#include "train/task.h"
#include "train/train.h"

typedef enum progress_part { PROGRESS_TRAINING, PROGRESS_EVALUATING, PROGRESS_SAVING, PROGRESS_PARTS } progress_part;

typedef struct progress {
    train_show show;
    const char *label;      /* NULL: none */
    const atomic_int *stop; /* as in train_options */
    const experiment *e;    /* NULL: outside a run */
    double every;           /* seconds between lines */
    double shown;           /* clock when the last was */
    int64_t first_step;     /* of this process, and what was seen before it */
    int64_t first_items;
    /* so far */
    int64_t step, items;
    double epoch, loss;
    task_result valid; /* items 0: none yet */
    double spent[PROGRESS_PARTS];
    int64_t times[PROGRESS_PARTS];
    /* within an evaluation */
    const char *split, *what;
    double what_begun; /* clock, when it had done ... */
    int64_t what_done; /* ... so many */
} progress;

/* Outside a run: while its data are read, before it begins, or in an evaluation alone. What the task tells is shown without
 * updates and epochs: "reading training pictures 1200/50000  40s left". */
void progress_outside(progress *p, train_show show, const char *label, double every);

/* The experiment must stay where it is. */
void progress_begin(progress *p, const train_options *o, const experiment *e, int64_t step, int64_t items);

/* Something took so many seconds; updates one by one, as many evaluations and checkpoints as there are. */
void progress_spent(progress *p, progress_part part, double seconds);

/* After an update, and what is known by then; shows it if it is time. */
void progress_update(progress *p, int64_t step, int64_t items, double epoch, double loss);

/* An evaluation begins or (NULL) ends: what the task tells of it by experiment_progress is shown meanwhile. */
void progress_split(progress *p, const char *split);
void progress_within(void *p, const char *what, int64_t done, int64_t total);

/* A line of its own, now. */
void progress_say(progress *p, const char *text);

/* Seconds until the end of the run, as far as can be told. */
double progress_left(const progress *p);

/* "1h05m", "2m05s", "7s". Returns out. */
const char *progress_duration(double seconds, char out[32]);

/* Clears the live line, if there is one. */
void progress_end(const progress *p);

#endif
