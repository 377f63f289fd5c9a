/* progress.h - progress of a run on standard error: lines for its start and each evaluation, and between them a live line
 * on a terminal, or elsewhere (a batch system, nohup) a line from time to time.
 *
 *     [3/12] adam, seed 1  step 300/900  epoch 0.14  2m05s left, 41m10s in all  batch loss 3.1234
 *         validation loss 3.0567 (best 2.9871), exact 44 %, BLEU 63.9  9000 tokens/s
 *
 * If the operations of an item and the GPU's peak are known, the rate is followed by the share of the peak: "510000 tokens/s,
 * 44 % of peak".
 *
 * The time left includes evaluations, checkpoints and the test at the end, by the times they have taken so far. */
#pragma once

#include "train/scoreboard.h"
#include "train/task.h"
#include "train/loop.h"

#include <pthread.h>

typedef enum progress_part { PROGRESS_TRAINING, PROGRESS_EVALUATING, PROGRESS_SAVING, PROGRESS_PARTS } progress_part;

typedef struct progress {
    train_show show;
    const char *label;      /* NULL: none */
    const atomic_int *stop; /* as in train_options */
    const experiment *e;    /* NULL: outside a run */
    scoreboard *board;      /* as in train_options */
    int place;
    double every;        /* seconds between lines */
    double gap;          /* the same now: the first lines come sooner */
    double shown;        /* clock of the last line */
    int64_t first_items; /* before this process */
    /* Items per second that a GPU could train on at its data sheet's peak: the model FLOP utilization (MFU) is the share of it.
     * 0: not known. */
    double most_items;
    /* so far */
    int64_t step, items;
    double epoch, loss;
    task_result valid; /* items 0: none yet */
    double best;       /* validation metric train.best, at ... */
    int64_t best_step; /* ... this update; 0: none yet */
    double spent[PROGRESS_PARTS];
    int64_t times[PROGRESS_PARTS];
    double first_update; /* seconds of the first update */
    /* within an evaluation */
    const char *split, *what;
    double what_begun; /* clock when it had done ... */
    int64_t what_done; /* ... this many */
} progress;

/* For work outside a run, such as reading data: lines have no updates and epochs, as in "reading training pictures
 * 1200/50000  40s left". */
void progress_outside(progress *p, train_show show, const char *label, double every);

/* Prints "reading data" if reading takes longer than a moment. */
typedef struct progress_reading {
    const progress *p;
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t wake;
    bool started, over;
} progress_reading;
void progress_reading_begin(progress_reading *r, const progress *p);
void progress_reading_end(progress_reading *r);

/* The experiment must outlive it. */
void progress_begin(progress *p, const train_options *o, const experiment *e, int64_t step, int64_t items);

/* Adds the time of an update, an evaluation or a checkpoint. */
void progress_spent(progress *p, progress_part part, double seconds);

/* After an update; prints a line if it is time. */
void progress_update(progress *p, int64_t step, int64_t items, double epoch, double loss);

/* An evaluation of a split begins or (NULL) ends; meanwhile progress_within shows what the task reports. */
void progress_split(progress *p, const char *split);
void progress_within(void *p, const char *what, int64_t done, int64_t total);

/* Print lines that stay: the result of an evaluation (set best and best_step before), the run's description, any other
 * text. */
void progress_evaluated(progress *p, const task_result *valid);
void progress_introduce(progress *p, const char *text);
void progress_say(progress *p, const char *text);

/* Estimated seconds until the end of the run. */
double progress_left(const progress *p);

/* "1h05m", "2m05s", "7s". Returns out. */
const char *progress_duration(double seconds, char out[32]);

/* Clears the live line, if there is one. */
void progress_end(const progress *p);

/* For a live line without a run: columns of the terminal, columns of a text. draw replaces the line, clear removes it. */
int progress_columns(void);
int progress_width(const char *text);
void progress_draw(const char *line);
void progress_clear(void);
