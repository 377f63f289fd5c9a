/* progress.h - what a person sees of a run on standard error: lines that stay, of its beginning and of each evaluation, and
 * between them on a terminal one live line, elsewhere (a batch system, nohup) a line every so many seconds.
 *
 *     [3/12] adam, seed 1  step 300/900  epoch 0.14  2m05s left, 41m10s in all  batch loss 3.1234
 *         validation loss 3.0567 (best 2.9871), exact 44 %, BLEU 63.9  9000 tokens/s
 *
 * The time left counts evaluations, checkpoints and the test at the end, as long as they have taken so far. */
#ifndef ADAMOD_PROGRESS_H
#define ADAMOD_PROGRESS_H

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
    double every;       /* seconds between lines that only say how far it is */
    double gap;         /* the same now: the first ones come sooner */
    double shown;       /* clock when the last was */
    int64_t first_step; /* of this process, and what was seen before it */
    int64_t first_items;
    /* so far */
    int64_t step, items;
    double epoch, loss;
    task_result valid; /* items 0: none yet */
    double best;       /* validation, by train.best, after update ... */
    int64_t best_step; /* ... this; 0: none yet */
    double spent[PROGRESS_PARTS];
    int64_t times[PROGRESS_PARTS];
    double first_update; /* of the seconds spent training */
    /* within an evaluation */
    const char *split, *what;
    double what_begun; /* clock, when it had done ... */
    int64_t what_done; /* ... so many */
} progress;

/* Outside a run: while its data are read, before it begins, or in an evaluation alone. What the task tells is shown without
 * updates and epochs: "reading training pictures 1200/50000  40s left". */
void progress_outside(progress *p, train_show show, const char *label, double every);

/* Until it ends, what reads data need not tell how far it is: a line says that it does, should it take longer than a
 * moment. */
typedef struct progress_reading {
    const progress *p;
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t wake;
    bool started, over;
} progress_reading;
void progress_reading_begin(progress_reading *r, const progress *p);
void progress_reading_end(progress_reading *r);

/* The experiment must stay where it is. */
void progress_begin(progress *p, const train_options *o, const experiment *e, int64_t step, int64_t items);

/* Something took so many seconds; updates one by one, as many evaluations and checkpoints as there are. */
void progress_spent(progress *p, progress_part part, double seconds);

/* After an update, and what is known by then; shows it if it is time. */
void progress_update(progress *p, int64_t step, int64_t items, double epoch, double loss);

/* An evaluation begins or (NULL) ends: what the task tells of it by experiment_progress is shown meanwhile. */
void progress_split(progress *p, const char *split);
void progress_within(void *p, const char *what, int64_t done, int64_t total);

/* Lines that stay. What an evaluation gave, of which best and best_step are known; what the run is; and any other text. */
void progress_evaluated(progress *p, const task_result *valid);
void progress_introduce(progress *p, const char *text);
void progress_say(progress *p, const char *text);

/* Seconds until the end of the run, as far as can be told. */
double progress_left(const progress *p);

/* "1h05m", "2m05s", "7s". Returns out. */
const char *progress_duration(double seconds, char out[32]);

/* Clears the live line, if there is one. */
void progress_end(const progress *p);

/* For who draws a live line without a run: the columns it may have; in place of the one before; and without it. */
int progress_columns(void);
int progress_width(const char *text);
void progress_draw(const char *line);
void progress_clear(void);

#endif
