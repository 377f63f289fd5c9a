#include "cli/make_runs.h"

#include "core/error.h"
#include "core/file.h"
#include "support/clock.h"
#include "support/directory.h"
#include "support/text.h"
#include "cli/jobs.h"
#include "cli/run_recipe.h"
#include "cli/runs_view.h"
#include "train/progress.h"
#include "train/run.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

/* Exit status of a run that found no room on the disk: no other can begin. */
enum { RUN_HAS_NO_ROOM = 75 };

typedef struct maker {
    run_list *p;
    const make_options *o;
    scoreboard *board;
    int *run;    /* number of the run of each job */
    bool *begun; /* jobs */
    int n;       /* jobs */
    int at_once;
    double until; /* clock; 0: no limit */
    bool full;    /* the disk */
} maker;

int make_runs_minutes(void *arguments, const cli_flag *flag, const char *value) {
    char *end;
    const double minutes = strtod(value, &end);
    if (end == value || *end || !(minutes > 0 && minutes <= 1e6))
        return cli_usage(NULL, "--%s is '%.40s', expected a number above 0, at most 1000000", flag->name, value);
    memcpy((char *)arguments + flag->member, &minutes, sizeof minutes);
    return 0;
}

/* ---- the directory ---- */

/* Returns a descriptor that holds the lock, also for the processes of runs, or -1 after a message. */
static int lock_directory(const make_options *o) {
    const int error = directory_make(o->out, NULL);
    if (error) return (void)cli_fail(o->command, "%s: cannot make this directory: %s", o->out, strerror(error)), -1;
    const int fd = adamod__file_open(o->out, O_RDONLY | O_DIRECTORY);
    if (fd < 0 || access(o->out, W_OK)) {
        (void)cli_fail(o->command, "%s: cannot write in this directory: %s", o->out, strerror(errno));
    } else if (flock(fd, LOCK_EX | LOCK_NB) && errno == EWOULDBLOCK) { /* some file systems have no locks */
        (void)cli_fail(o->command, "%s is in use by another process", o->out);
    } else {
        return fd;
    }
    if (fd >= 0) close(fd);
    return -1;
}

/* ---- time ---- */

/* Seconds that are left of a run; NAN: not known. */
static double expected(const maker *m, int index) {
    const double seconds = run_list_expect(m->p, index), usual = scoreboard_usual(m->board);
    return isnan(seconds) && usual >= 0 ? usual : seconds;
}

static bool ends_in_time(const maker *m, int index) {
    const double seconds = expected(m, index);
    return isnan(seconds) || clock_seconds() + seconds <= m->until;
}

/* Whether a run would not even end if it had all the time for itself. */
static bool is_too_long(const maker *m, int index) { return expected(m, index) > 60 * m->o->minutes; }

static bool fits(void *context, int job) {
    maker *m = context;
    if (m->full || !(m->until > 0)) return m->begun[job] = !m->full;
    bool fit = ends_in_time(m, m->run[job]);
    if (!fit && is_too_long(m, m->run[job])) {
        fit = true;
        for (int i = 0; fit && i < m->n; i++) fit = m->begun[i] || !ends_in_time(m, m->run[i]);
    }
    m->begun[job] = fit;
    return fit;
}

static void tell_times(const maker *m) {
    for (int i = 0; i < m->p->n; i++) {
        const double seconds = run_list_expect(m->p, i);
        if (m->p->at[i].state != RUN_IS_OVER && !isnan(seconds)) scoreboard_expect(m->board, i, seconds);
    }
}

/* ---- a run ---- */

static bool says_no_room(const char *message) {
    return strstr(message, strerror(ENOSPC)) || strstr(message, strerror(EDQUOT));
}

/* In a process of its own. Returns 0 for a run that diverged, which is a result too. */
static int make_run(void *context, int job) {
    const maker *m = context;
    const int i = m->run[job];
    const run_entry *e = &m->p->at[i];
    train_result result = {0};
    const train_options how = {.directory = e->directory,
                               .resume = e->state == RUN_IS_BEGUN,
                               .at_once = m->o->jobs > 1 ? m->at_once : 0,
                               .board = m->board,
                               .place = i};
    if (job > 0) run_recipe_noted();
    scoreboard_begin(m->board, i);
    const int status = run_recipe(m->o->command, &e->r, &how, e->label, &result);
    if (status <= 128) scoreboard_end(m->board, i);
    else scoreboard_stop(m->board, i);
    if (status == CLI_FAILURE && says_no_room(adamod__last_message())) return RUN_HAS_NO_ROOM;
    return result.status == TRAIN_DIVERGED ? 0 : status;
}

static void drop_checkpoints(const char *directory) {
    const path_text path = path_join(directory, "checkpoints");
    DIR *d = opendir(path.text);
    for (struct dirent *e; d && (e = readdir(d));) {
        if (e->d_name[0] != '.') (void)unlinkat(dirfd(d), e->d_name, 0);
    }
    if (d) closedir(d);
    (void)rmdir(path.text);
}

/* Called when a run ends. A run that was killed has not told the board that it is over. */
static void end_run(void *context, int job, int status) {
    maker *m = context;
    run_entry *e = &m->p->at[m->run[job]];
    if (status <= 128) scoreboard_end(m->board, m->run[job]);
    else scoreboard_stop(m->board, m->run[job]);
    m->full |= status == RUN_HAS_NO_ROOM;
    if (status == 0) e->state = RUN_IS_OVER;
    else if (run_was_saved(e->directory)) e->state = RUN_IS_BEGUN;
    e->spent = run_seconds(e->directory);
    if (status == 0 && m->o->drop) drop_checkpoints(e->directory);
    tell_times(m);
}

static void draw(void *context) {
    const maker *m = context;
    runs_view_draw(m->board, m->p);
}

/* ---- all ---- */

/* Printed first, since data may take long to read. */
static void introduce(const maker *m) {
    const run_list *p = m->p;
    const int over = p->n - m->n;
    if (!isatty(STDERR_FILENO) && !(p->at[0].r.train.progress_every > 0)) return;
    fprintf(stderr, "%d run%s", p->n, p->n > 1 ? "s" : "");
    if (m->o->jobs > 1) fprintf(stderr, ", %lld at a time", (long long)m->o->jobs);
    if (over) fprintf(stderr, ", of which %d %s over", over, over > 1 ? "are" : "is");
    fprintf(stderr, "; in ");
    text_print(stderr, m->o->out);
    fprintf(stderr, "\n");
}

/* Prints how many runs are left, and the command that continues. */
static void conclude(const maker *m, int stopped) {
    int over = 0, unknown;
    const double left = run_list_left(m->p, NULL, &unknown) / m->at_once;
    char line[600], duration[32], time[64] = "";
    for (int i = 0; i < m->p->n; i++) over += m->p->at[i].state == RUN_IS_OVER;
    if (!unknown) snprintf(time, sizeof time, ", about %s left", progress_duration(left, duration));
    snprintf(line, sizeof line, "%s: %d of %d runs are over%s; %.300s goes on",
             stopped   ? "interrupted"
             : m->full ? "the disk is full"
                       : "the time is up",
             over, m->p->n, time, m->o->again);
    run_recipe_note(line);
}

static bool was_stopped(const maker *m, int status) {
    return status == JOBS_NOT_BEGUN || (status == 128 + SIGTERM && m->until > 0 && clock_seconds() >= m->until);
}

/* Names runs that failed. Returns how many. *left: how many were stopped or not begun. */
static int name_failed(const maker *m, const int *status, int *left) {
    int failed = 0;
    for (int job = 0; job < m->n; job++) {
        const char *label = m->p->at[m->run[job]].label;
        if (was_stopped(m, status[job])) {
            ++*left;
            continue;
        }
        if (status[job] > 128) (void)cli_fail(m->o->command, "%s was killed by signal %d", label, status[job] - 128);
        else if (status[job] && status[job] != RUN_HAS_NO_ROOM) (void)cli_fail(m->o->command, "%s failed", label);
        failed += status[job] != 0;
    }
    return failed;
}

static int make_all(maker *m, int *status, int *failed) {
    const bool shared = m->at_once > 1 && isatty(STDERR_FILENO);
    const jobs j = {.command = m->o->command,
                    .n = m->n,
                    .at_once = m->at_once,
                    .until = m->until,
                    .run = make_run,
                    .context = m,
                    .fits = fits,
                    .ended = end_run,
                    .look = shared ? draw : NULL};
    int left = 0;
    introduce(m);
    const int stopped = jobs_run(&j, status);
    if (shared) progress_clear();
    if (!stopped) *failed = name_failed(m, status, &left);
    if (stopped > 128 || left || m->full) conclude(m, stopped);
    return stopped;
}

static int prepare(maker *m) {
    m->board = scoreboard_create(m->p->n, (int)m->o->jobs);
    m->run = calloc((size_t)m->p->n, sizeof *m->run);
    m->begun = calloc((size_t)m->p->n, sizeof *m->begun);
    if (!m->board || !m->run || !m->begun) return cli_fail(m->o->command, "out of memory for the list of runs");
    for (int i = 0; i < m->p->n; i++) {
        if (m->p->at[i].state == RUN_IS_OVER) scoreboard_end(m->board, i);
        else m->run[m->n++] = i;
    }
    m->at_once = m->n < m->o->jobs ? m->n : m->o->jobs > 1 ? (int)m->o->jobs : 1;
    tell_times(m);
    return 0;
}

int make_runs(run_list *p, const make_options *o, int *failed) {
    if (p->n == 0) return *failed = 0;
    maker m = {.p = p, .o = o, .until = o->minutes > 0 ? clock_seconds() + 60 * o->minutes : 0};
    int *status = calloc((size_t)p->n + 1, sizeof *status);
    *failed = 0;
    const int lock = status ? lock_directory(o) : cli_fail(o->command, "out of memory for the list of runs");
    int result = !status || lock < 0 ? CLI_FAILURE : run_list_look(p) ? cli_failed(o->command) : 0;
    if (!result) result = prepare(&m);
    if (!result) result = make_all(&m, status, failed);
    if (status && lock >= 0) close(lock);
    scoreboard_free(m.board);
    free(m.run);
    free(m.begun);
    free(status);
    return result;
}
