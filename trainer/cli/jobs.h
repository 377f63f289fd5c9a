/* jobs.h - jobs at the same time, each in a process of its own, so that a crash ends only one of them, and results are those
 * of a process that is alone. */
#pragma once

#include <stdbool.h>

typedef struct jobs {
    const char *command;                /* for messages */
    int n;                              /* jobs 0 to n - 1 begin in this order */
    int at_once;                        /* at most */
    double until;                       /* clock_seconds at which jobs get SIGTERM and no other begins; 0: never */
    int (*run)(void *context, int job); /* in the new process; returns its exit status */
    void *context;
    /* In this process; each may be NULL: */
    bool (*fits)(void *context, int job); /* whether it may begin now; asked again whenever a job has ended */
    void (*ended)(void *context, int job, int status);
    void (*look)(void *context); /* called repeatedly while jobs run */
} jobs;

/* Sets status[i] to the exit status of job i, or 128 + the signal that killed it; JOBS_NOT_BEGUN: it was not begun.
 *
 * Passes signals to stop (also that of Ctrl-C, which a terminal sends only to this process) and SIGUSR1 on to all running
 * jobs, once each. After a signal to stop no other job begins. If this process is killed, the jobs are told to stop, and end
 * at most JOBS_GRACE seconds later.
 * Returns 0, or 128 + the signal to stop, or CLI_FAILURE. Call it before starting threads. */
enum { JOBS_NOT_BEGUN = -1, JOBS_GRACE = 10 };
int jobs_run(const jobs *j, int *status);

/* Calls answer() in a child process and returns its answer; false also if fork fails. For questions that would leave this
 * process unfit to start jobs: CUDA, once initialised, does not work in processes forked later. */
bool jobs_ask(bool (*answer)(void));
