#include "cli/jobs.h"

#include "core/thread.h"
#include "support/clock.h"
#include "cli/cli.h"

#include <errno.h>
#include <fcntl.h>
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

/* For threads of libraries, such as OpenBLAS's, which do not block these signals. */
static void hand_over(int number) { pthread_kill(waiter, number); }

/* Blocks the signals to wait for and returns them. */
static sigset_t take_signals(sigset_t *before) {
    sigset_t set;
    waiter = pthread_self();
    sigemptyset(&set);
    for (int i = 0; i < TAKEN; i++) {
        struct sigaction old;
        const bool keep = taken[i] == SIGHUP && sigaction(SIGHUP, NULL, &old) == 0 && old.sa_handler == SIG_IGN;
        if (!keep) sigaddset(&set, taken[i]); /* ignored: nohup. SIGINT is taken even if a background job ignores it. */
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

typedef struct crew {
    const jobs *j;
    pid_t *pids;          /* of each job; 0: not running */
    int lifeline[2];      /* a pipe from this process to all of them */
    sigset_t set, before; /* signals to wait for; the mask before */
    int running;          /* how many */
    bool time_is_up;
} crew;

/* A job looks at signals only between evaluations and checkpoints, which may take minutes. */
static void *watch_parent(void *lifeline) {
    char byte;
    while (read(*(const int *)lifeline, &byte, 1) < 0 && errno == EINTR) {}
    kill(getpid(), SIGTERM);
    sleep(JOBS_GRACE);
    _exit(128 + SIGTERM);
}

/* Makes the new process end with its parent. Only the parent holds the other end of the lifeline, so reading from it ends
 * when the parent does, whatever killed it. */
static void live_with_parent(const int lifeline[2], pid_t parent) {
    static int own;
    pthread_t thread;
    close(lifeline[1]);
    own = lifeline[0];
    if (adamod__start_thread(&thread, watch_parent, &own) == 0) {
        pthread_detach(thread);
        return;
    }
    prctl(PR_SET_PDEATHSIG, SIGTERM);
    if (getppid() != parent) _exit(128 + SIGTERM);
}

/* Runs in the new process. In a group of its own it does not get the terminal's Ctrl-C a second time. */
static void become_job(const crew *c, int job, pid_t parent) {
    const jobs *j = c->j;
    setpgid(0, 0);
    live_with_parent(c->lifeline, parent);
    give_back_signals(&c->set, &c->before);
    const int status = j->run(j->context, job);
    fflush(NULL);
    _exit(status);
}

static pid_t begin(const crew *c, int job) {
    const pid_t parent = getpid();
    fflush(NULL); /* else both processes would write what is in buffers */
    const pid_t pid = fork();
    if (pid == 0) become_job(c, job, parent);
    if (pid > 0) setpgid(pid, pid);
    return pid;
}

/* Collects the jobs that have ended. Returns their number. */
static int reap(const crew *c, int *status) {
    int n = 0, how;
    for (pid_t pid; (pid = waitpid(-1, &how, WNOHANG)) > 0;) {
        for (int i = 0; i < c->j->n; i++) {
            if (c->pids[i] != pid) continue;
            c->pids[i] = 0;
            status[i] = WIFEXITED(how) ? WEXITSTATUS(how) : 128 + WTERMSIG(how);
            if (c->j->ended) c->j->ended(c->j->context, i, status[i]);
            n++;
        }
    }
    return n;
}

/* The next signal; 0: none yet, time for a look. SIGTERM to pass on once the time is up. */
static int wait_for_signal(crew *c) {
    static const struct timespec often = {.tv_nsec = 200000000};
    int number = 0;
    if (c->j->until > 0 && !c->time_is_up && clock_seconds() >= c->j->until) {
        c->time_is_up = true;
        return SIGTERM;
    }
    if (!c->j->look && !(c->j->until > 0)) return sigwait(&c->set, &number) ? 0 : number;
    number = sigtimedwait(&c->set, NULL, &often);
    return number > 0 ? number : 0;
}

/* The next job that waits and fits; n: none. */
static int find_job(const crew *c, const int *status) {
    const jobs *j = c->j;
    int i = 0;
    while (i < j->n && (c->pids[i] || status[i] != JOBS_NOT_BEGUN || (j->fits && !j->fits(j->context, i)))) i++;
    return i;
}

static void begin_jobs(crew *c, int *status) {
    for (int next; c->running < c->j->at_once && (next = find_job(c, status)) < c->j->n;) {
        c->pids[next] = begin(c, next);
        if (c->pids[next] > 0) {
            c->running++;
            continue;
        }
        c->pids[next] = 0;
        status[next] = cli_fail(c->j->command, "cannot start a process: %s", strerror(errno));
    }
}

static int wait_for_all(crew *c, int *status) {
    const jobs *j = c->j;
    int stop = 0;
    for (;;) {
        if (!stop && !c->time_is_up) begin_jobs(c, status);
        if (!c->running) return stop ? 128 + stop : 0;
        const bool had_time = !c->time_is_up;
        const int number = wait_for_signal(c);
        if (number == SIGCHLD) c->running -= reap(c, status);
        if (j->look) j->look(j->context);
        if (number == 0 || number == SIGCHLD) continue;
        if (number != SIGUSR1 && had_time == !c->time_is_up) stop = number;
        for (int i = 0; i < j->n; i++) {
            if (c->pids[i] > 0) kill(c->pids[i], number);
        }
    }
}

int jobs_run(const jobs *j, int *status) {
    crew c = {.j = j, .pids = calloc((size_t)j->n + 1, sizeof *c.pids), .lifeline = {-1, -1}};
    int stopped;
    c.set = take_signals(&c.before);
    for (int i = 0; i < j->n; i++) status[i] = JOBS_NOT_BEGUN;
    if (!c.pids) stopped = cli_fail(j->command, "out of memory for the list of runs");
    else if (pipe2(c.lifeline, O_CLOEXEC)) stopped = cli_fail(j->command, "cannot make a pipe: %s", strerror(errno));
    else stopped = wait_for_all(&c, status);
    for (int i = 0; i < 2; i++) {
        if (c.lifeline[i] >= 0) close(c.lifeline[i]);
    }
    free(c.pids);
    give_back_signals(&c.set, &c.before);
    return stopped;
}

bool jobs_ask(bool (*answer)(void)) {
    int how = 0;
    fflush(NULL);
    const pid_t pid = fork();
    if (pid == 0) _exit(answer() ? 0 : 1);
    if (pid < 0) return false;
    while (waitpid(pid, &how, 0) < 0 && errno == EINTR) continue;
    return WIFEXITED(how) && WEXITSTATUS(how) == 0;
}
