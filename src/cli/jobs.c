#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "cli/jobs.h"

#include "cli/cli.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

/* ---- signals ---- */

/* Those that are waited for; they are blocked from here on. */
static sigset_t take_signals(sigset_t *before) {
    struct sigaction hangup;
    sigset_t set;
    sigemptyset(&set);
    for (int i = 0; i < 4; i++) {
        const int number = (const int[]){SIGINT, SIGTERM, SIGUSR1, SIGCHLD}[i];
        signal(number, SIG_DFL); /* a shell's background jobs ignore SIGINT, and some parents SIGCHLD */
        sigaddset(&set, number);
    }
    if (sigaction(SIGHUP, NULL, &hangup) == 0 && hangup.sa_handler != SIG_IGN) sigaddset(&set, SIGHUP);
    sigprocmask(SIG_BLOCK, &set, before);
    return set;
}

/* ---- processes ---- */

/* In the new process. A group of its own keeps the terminal's Ctrl-C from it, which it would get twice. */
static void become_job(const jobs *j, int job, pid_t parent, const sigset_t *before) {
    setpgid(0, 0);
    prctl(PR_SET_PDEATHSIG, SIGTERM);
    if (getppid() != parent) _exit(128 + SIGTERM);
    sigprocmask(SIG_SETMASK, before, NULL);
    const int status = j->run(j->context, job);
    fflush(NULL);
    _exit(status);
}

static pid_t begin(const jobs *j, int job, const sigset_t *before) {
    const pid_t parent = getpid();
    fflush(NULL); /* or both processes would write what is in buffers */
    const pid_t pid = fork();
    if (pid == 0) become_job(j, job, parent, before);
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
            pids[next] = begin(j, next, before);
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
    sigprocmask(SIG_SETMASK, &before, NULL);
    return stopped;
}
