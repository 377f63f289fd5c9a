/* make_runs.h - for commands that make many runs: those of a list that are not over, one after another or side by side. */
#pragma once

#include "cli/cli.h"
#include "study/run_list.h"

#define MAKE_RUNS_MINUTES(type, to)                                                                                    \
    CLI_FLAG(READ, "minutes", "M", "begin only runs that end in time, and stop after M minutes",                       \
             .read = make_runs_minutes, .member = offsetof(type, to))
/* Reads a double above 0. */
int make_runs_minutes(void *arguments, const cli_flag *flag, const char *value);

typedef struct make_options {
    const char *command; /* for messages: "compare" */
    const char *out;     /* directory of all runs; it is made, and locked until they end */
    int64_t jobs;        /* at the same time; 0 is 1 */
    double minutes;      /* most; 0: no limit */
    bool drop;           /* delete the checkpoints of each run that is over */
    const char *again;   /* how to go on: "the same command and --resume" */
} make_options;

/* Makes the runs that are not over, in the order of the list, each in a process of its own. A run that diverges is a
 * result. Names runs that failed, and says at the end what is left and how to go on. Sets the states of the list.
 *
 * With minutes, a run begins only if it will end in time, by run_list_expect or by the runs made so far; one that takes
 * longer than that many minutes begins when nothing else fits. Runs still going at the end stop with a checkpoint. Once a run
 * finds no room on the disk, no other begins.
 *
 * Returns 0, also if runs failed or time was too short; 128 + the signal to stop; or CLI_FAILURE, with nothing made.
 * *failed: how many failed. */
int make_runs(run_list *p, const make_options *o, int *failed);

/* Prints, for each group, how many runs are over, begun and to do, and the time and disk they need. Makes nothing. Call
 * run_list_look before. */
void make_runs_print(const run_list *p, const make_options *o);
