#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "cli/jobs.h"

#include "cli/cli.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

/* ---- signals ---- */

static const int taken[] = {SIGINT, SIGTERM, SIGUSR1, SIGCHLD, SIGHUP};
enum { TAKEN = sizeof taken / sizeof *taken };

static pthread_t waiter;

/* A library's own threads, as OpenBLAS starts them when it is loaded, do not block what the waiting thread does. */
static void hand_over(int number) { pthread_kill(waiter, number); }

/* Those that are waited for; they are blocked from here on. */
static sigset_t take_signals(sigset_t *before) {
    sigset_t set;
    waiter = pthread_self();
    sigemptyset(&set);
    for (int i = 0; i < TAKEN; i++) {
        struct sigaction old;
        const bool keep = taken[i] == SIGHUP && sigaction(SIGHUP, NULL, &old) == 0 && old.sa_handler == SIG_IGN;
        if (!keep) sigaddset(&set, taken[i]); /* nohup wants it to go on; but background jobs ignore SIGINT */
    }
    sigprocmask(SIG_BLOCK, &set, before);
    for (int i = 0; i < TAKEN; i++) {
        if (sigismember(&set, taken[i])) signal(taken[i], hand_over);
    }
    return set;
}

static void give_back_signals(const sigset_t *set, const sigset_t *before) {
    for (int i = 0; i < TAKEN; i++) {
        if (sigismember(set, taken[i])) signal(taken[i], SIG_DFL);
    }
    sigprocmask(SIG_SETMASK, before, NULL);
}

/* ---- processes ---- */

/* In the new process. A group of its own keeps the terminal's Ctrl-C from it, which it would get twice. */
static void become_job(const jobs *j, int job, pid_t parent, const sigset_t *set, const sigset_t *before) {
    setpgid(0, 0);
    prctl(PR_SET_PDEATHSIG, SIGTERM);
    if (getppid() != parent) _exit(128 + SIGTERM);
    give_back_signals(set, before);
    const int status = j->run(j->context, job);
    fflush(NULL);
    _exit(status);
}

static pid_t begin(const jobs *j, int job, const sigset_t *set, const sigset_t *before) {
    const pid_t parent = getpid();
    fflush(NULL); /* or both processes would write what is in buffers */
    const pid_t pid = fork();
    if (pid == 0) become_job(j, job, parent, set, before);
    if (pid > 0) setpgid(pid, pid);
    return pid;
}

/* Those that have ended; how many. */
static int reap(const jobs *j, pid_t *pids, int *status) {
    int n = 0, how;
    for (pid_t pid; (pid = waitpid(-1, &how, WNOHANG)) > 0;) {
        for (int i = 0; i < j->n; i++) {
            if (pids[i] != pid) continue;
            pids[i] = 0;
            status[i] = WIFEXITED(how) ? WEXITSTATUS(how) : 128 + WTERMSIG(how);
            n++;
        }
    }
    return n;
}

static int wait_for_all(const jobs *j, pid_t *pids, int *status, const sigset_t *set, const sigset_t *before) {
    int next = 0, running = 0, stop = 0;
    for (;;) {
        for (; !stop && running < j->at_once && next < j->n; next++) {
            pids[next] = begin(j, next, set, before);
            if (pids[next] > 0) {
                running++;
                continue;
            }
            pids[next] = 0;
            status[next] = cli_fail("compare", "cannot start a process: %s", strerror(errno));
        }
        int number;
        if (!running) return stop ? 128 + stop : 0;
        if (sigwait(set, &number)) continue;
        if (number == SIGCHLD) {
            running -= reap(j, pids, status);
            continue;
        }
        if (number != SIGUSR1) stop = number;
        for (int i = 0; i < j->n; i++) {
            if (pids[i] > 0) kill(pids[i], number);
        }
    }
}

int jobs_run(const jobs *j, int *status) {
    sigset_t before;
    const sigset_t set = take_signals(&before);
    pid_t *pids = calloc((size_t)j->n + 1, sizeof *pids);
    for (int i = 0; i < j->n; i++) status[i] = JOBS_NOT_BEGUN;
    const int stopped =
        pids ? wait_for_all(j, pids, status, &set, &before) : cli_fail("compare", "out of memory for the list of runs");
    free(pids);
    give_back_signals(&set, &before);
    return stopped;
}
