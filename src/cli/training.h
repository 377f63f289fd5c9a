/* What the commands around training share. */
#ifndef CLI_TRAINING_H
#define CLI_TRAINING_H

#include "cli/cli.h"
#include "tasks/tasks.h"
#include "train/train.h"

/* Ctrl-C, a termination signal and a terminal that closes ask for a stop at the next update; a second one ends the process
 * at once. SIGUSR1 asks for a checkpoint. To be called before threads are made, which inherit that signals are not for them. */
const atomic_int *training_signals(void);

#define TRAINING_DEVICE_FLAG                                                                                           \
    { "device", "cpu|cuda|cuda:N", "where to compute (the recipe's, auto: cuda if there is a GPU)" }
/* Its value into a recipe; -1 with one line in message. */
int training_device(recipe *r, const char *device, char *message, size_t size);

/* "exact 44.0 %, BLEU 63.90": the task's metrics that were measured and that keep says, on standard output. Each after
 * ", ", but the first after before. */
void training_print_metrics(const task *t, const task_result *result, bool (*keep)(const metric *), const char *before);

/* What the user should know, on standard error. */
void training_note(const char *line);

/* One run, with what the user is told before and after; the exit status. */
int training_run(const char *command, const recipe *r, const char *directory, bool resume, const char *label,
                 train_result *out);

/* A run's recipe and which of its checkpoints to read: averaged, best or last; where *which is NULL the first of them
 * that there is, which it then names. */
int training_open_run(const char *command, const char *directory, const char **which, recipe *r, char *checkpoint,
                      size_t size);

#endif
