/* What the commands around training share. */
#ifndef CLI_TRAINING_H
#define CLI_TRAINING_H

#include "cli/cli.h"
#include "tasks/tasks.h"
#include "train/loop.h"

/* Ctrl-C, a termination signal and a terminal that closes ask for a stop at the next update; a second one ends the process
 * at once. SIGUSR1 asks for a checkpoint. To be called before threads are made, which inherit that signals are not for them. */
const atomic_int *training_signals(void);

#define TRAINING_DEVICE_FLAG                                                                                           \
    { "device", "cpu|cuda|cuda:N", "where to compute (the recipe's; its default is a GPU if there is one)" }
/* Its value into a recipe. */
int training_device(recipe *r, const char *device);

/* "test exact 44.0 %, test BLEU 63.90": the task's metrics that were measured and that keep says, on standard output, each
 * with the split that it is of, unless label is "". Each after ", ", but the first after before. */
void training_print_metrics(const task *t, const task_result *result, bool (*keep)(const metric *), const char *label,
                            const char *before);

/* What the user should know, on standard error. */
void training_note(const char *line);

/* One run, with what the user is told before and after; the exit status. Of the options, those that say how to begin. */
int training_run(const char *command, const recipe *r, const train_options *how, const char *label, train_result *out);

/* What is to be said of the data is said already: by the run before, or now by another process. */
void training_noted(void);

/* What a run of a recipe would be and take, on standard output; nothing is written. The exit status. */
int training_dry_run(const recipe *r, comm *c);

/* A run's recipe and which of its checkpoints to read: averaged, best, last, step-N or a path; where *which is NULL the
 * first there is of averaged, best and last, which it then names. */
int training_open_run(const char *command, const char *directory, const char **which, recipe *r, char *checkpoint,
                      size_t size);

#endif
