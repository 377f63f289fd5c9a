/* jobs.h - several pieces of work at the same time, each in a process of its own: what one does or suffers, even a crash, is
 * its own affair, and numbers are those of a process that is alone. */
#ifndef CLI_JOBS_H
#define CLI_JOBS_H

typedef struct jobs {
    int n;                              /* 0 to n - 1, begun in this order */
    int at_once;                        /* at most */
    int (*run)(void *context, int job); /* in the new process; what it returns is its exit status */
    void *context;
    /* In this process; each may be NULL: */
    void (*ended)(void *context, int job);
    void (*look)(void *context); /* again and again while some run */
} jobs;

/* Fills status[i] with the exit status of job i, or 128 + the signal that killed it; JOBS_NOT_BEGUN: it was not begun.
 *
 * Signals to stop, and SIGUSR1, are passed on to all that run, once each: also that of Ctrl-C, which a terminal gives to
 * this process alone. After one to stop no other job is begun. Should this process be killed, the jobs are told to stop, and
 * end JOBS_GRACE seconds later at the latest, whatever they do.
 * Returns 0, or 128 + the signal that was to stop. No other thread may have been started. */
enum { JOBS_NOT_BEGUN = -1, JOBS_GRACE = 10 };
int jobs_run(const jobs *j, int *status);

#endif
