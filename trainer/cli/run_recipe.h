/* run_recipe.h - for commands that train: one run of a recipe with its messages, flags that change a recipe, signals. */
#pragma once

#include "cli/cli.h"
#include "tasks/tasks.h"
#include "train/loop.h"

/* Ctrl-C, a termination signal and a closed terminal ask for a stop at the next update; a second one ends the process at
 * once. SIGUSR1 asks for a checkpoint. Call it before making threads, which then leave signals to one thread. */
const atomic_int *run_recipe_signals(void);

#define RECIPE_DEVICE_FLAG(type, to)                                                                                   \
    CLI_CHANGE("device", "cpu|cuda|cuda:N", "where to compute (the recipe's; its default is a GPU if there is one)",   \
               type, to, "train.backend")
/* Makes the changes in the order given. Returns 0, or a status. */
int recipe_change(recipe *r, const cli_changes *changes);

/* Prints "test exact 44.0 %, test BLEU 63.90": the metrics that were measured and that keep accepts, each after label, the
 * split's name, or "". before: printed before the first. */
void run_recipe_print_metrics(const task *t, const task_result *result, bool (*keep)(const metric *), const char *label,
                              const char *before);

/* Prints a note for the user on standard error. */
void run_recipe_note(const char *line);
/* Notes on the data are not repeated: another run or process prints them. */
void run_recipe_noted(void);

/* Trains one run and prints its result. how: the options that say how to begin. label: its name in a comparison, or NULL.
 * Returns the exit status. */
int run_recipe(const char *command, const recipe *r, const train_options *how, const char *label, train_result *out);

/* Prints the size, memory and estimated time of a run; writes no file (dry_run.c). Returns the exit status. */
int run_recipe_dry(const recipe *r, comm *c);
