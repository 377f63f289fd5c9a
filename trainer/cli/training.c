#include "cli/training.h"

#include "core/error.h"
#include "support/clock.h"
#include "support/text.h"
#include "core/thread.h"
#include "train/checkpoints.h"
#include "train/progress.h"
#include "train/run.h"

#include <errno.h>
#include <math.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

adamod_status cli_trainer_status(void) { return experiment_cuda_status(); }

bool cli_trainer_note(int i, const char **op, const char **title, char *line, size_t size) {
    nn_note note;
    if (nn_device_note("cuda", i, &note) || !note.op) return false;
    *op = note.op;
    *title = note.title;
    snprintf(line, size, "%s", note.text);
    return true;
}

static atomic_int stop_wanted, save_wanted;
static atomic_int reading; /* a run reads its data, which nothing interrupts, and has nothing to save yet */

/* Programs that start others, as timeout, may send one request twice, to the process and to its group: a second one that
 * counts comes later. */
enum { SAME_REQUEST = 500 }; /* in milliseconds */

/* Differences are right where it wraps, too. */
static unsigned milliseconds(void) { return (unsigned)(uint64_t)(1000 * clock_seconds()); }

static void take_signal(int number) {
    static atomic_uint stopped_at;
    if (number == SIGUSR1) {
        save_wanted = 1;
        return;
    }
    if (reading || (stop_wanted && milliseconds() - stopped_at > SAME_REQUEST)) _exit(128 + number);
    if (stop_wanted) return;
    stopped_at = milliseconds();
    stop_wanted = number;
}

static void *wait_for_signals(void *set) {
    for (int number; !sigwait(set, &number);) take_signal(number);
    return NULL;
}

/* Signals are waited for in a thread of their own and blocked in all others: a handler would run upon the stack of a thread
 * that computes, and oneDNN's products (2.6 and 3.2) then corrupt memory. The handler is for threads that a library
 * started before, as OpenBLAS does when it is loaded. */
const atomic_int *training_signals(void) {
    static sigset_t set; /* of the thread, as long as the process lives */
    static bool started;
    pthread_t thread;
    if (started) return &stop_wanted;
    sigemptyset(&set);
    sigaddset(&set, SIGINT);
    sigaddset(&set, SIGTERM);
    signal(SIGINT, take_signal); /* which a shell's background jobs ignore */
    signal(SIGTERM, take_signal);
    sigaddset(&set, SIGUSR1);
    signal(SIGUSR1, take_signal);
    struct sigaction hangup;
    if (sigaction(SIGHUP, NULL, &hangup) == 0 && hangup.sa_handler != SIG_IGN) { /* ignored: nohup wants it to go on */
        sigaddset(&set, SIGHUP);
        signal(SIGHUP, take_signal);
    }
    signal(SIGXFSZ, SIG_IGN); /* a file at the limit of its size is a failed write, with a message, as a full disk is */
    pthread_sigmask(SIG_BLOCK, &set, NULL);
    started = adamod__start_thread(&thread, wait_for_signals, &set) == 0;
    if (started) pthread_detach(thread);
    else pthread_sigmask(SIG_UNBLOCK, &set, NULL); /* then the handler has to do */
    return &stop_wanted;
}

void training_print_metrics(const task *t, const task_result *result, bool (*keep)(const metric *), const char *label,
                            const char *before) {
    for (int i = 0; i < t->n_metrics; i++) {
        const metric *m = &t->metrics[i];
        if (!keep(m) || isnan(result->value[i])) continue;
        char number[32];
        printf("%s%s%s%s %s%s%s", before, label, *label ? " " : "", m->label,
               metric_number(m->scale * result->value[i], m->decimals, number), *m->unit ? " " : "", m->unit);
        before = ", ";
    }
}

static bool is_score(const metric *m) { return m->headline && strcmp(m->name, "loss") != 0; }

/* Each number with the split that it is of. */
static void print_finished(const char *name, const recipe *r, const train_result *t) {
    text_print(stdout, name);
    printf(": %lld update%s in %.0f s, ", (long long)t->step, t->step == 1 ? "" : "s", t->seconds);
    if (t->early) printf("stopped early, ");
    if (!isnan(t->train_loss)) printf("training loss %.4f, ", t->train_loss); /* resumed with no update to make */
    printf("validation loss %.4f", t->valid.value[0]);
    training_print_metrics(recipe_task(r), &t->final, is_score, task_split_label(t->final_split), ", ");
    if (strcmp(t->tested, "best") == 0) printf(" (best model, update %lld)", (long long)t->tested_step);
    printf("\n");
}

int training_device(recipe *r, const char *device) { return recipe_set_flag(r, "--device", "train.backend", device); }

static scoreboard *beside; /* of runs at the same time on one terminal; NULL: there are none */

/* What this process says stands on lines of its own, where another one draws over a line. */
static void begin_speaking(void) {
    if (!beside) return;
    scoreboard_lock(beside);
    progress_clear();
}

static void end_speaking(void) {
    fflush(stdout);
    if (beside) scoreboard_unlock(beside);
}

void training_note(const char *line) {
    begin_speaking();
    text_line(stderr, "adamod: %s", line);
    end_speaking();
}

static bool noted; /* the runs of a comparison would say the same again */

void training_noted(void) { noted = true; }

/* The exit status. */
static int print_result(const char *command, const recipe *r, const train_options *o, const train_result *t) {
    const char *directory = o->directory, *name = o->label ? o->label : directory;
    if (t->status == TRAIN_DIVERGED) return cli_fail(command, "%s: stopped: %s", name, t->reason);
    if (t->status == TRAIN_FINISHED) return print_finished(name, r, t), 0;
    text_print(stdout, name);
    printf(": interrupted after update %lld; continue with ", (long long)t->step);
    if (o->label) printf("the same command and --resume\n");
    else text_line(stdout, "adamod %s --resume --out %s", command, directory);
    return 128 + (stop_wanted ? stop_wanted : SIGTERM); /* another rank had it */
}

int training_run(const char *command, const recipe *r, const train_options *how, const char *label, train_result *out) {
    train_options o = *how;
    const bool first = comm_rank(o.comm) == 0; /* which speaks for all ranks */
    const bool terminal = isatty(STDERR_FILENO);
    o.show = !first ? TRAIN_SILENT : !terminal ? TRAIN_LOG : o.at_once > 1 ? TRAIN_KEPT : TRAIN_LIVE;
    o.label = label;
    beside = o.show == TRAIN_KEPT ? o.board : NULL;
    o.note = noted || !first ? NULL : training_note;
    o.stop = training_signals();
    o.save = &save_wanted;
    *out = (train_result){0};
    noted = true;
    o.reading = &reading;
    reading = 1;
    const int failed = train_run(r, &o, out);
    reading = 0;
    begin_speaking();
    const int status = failed ? cli_failed(command) : print_result(command, r, &o, out);
    end_speaking();
    return status;
}

int training_open_run(const char *command, const char *directory, const char **which, recipe *r, char *checkpoint,
                      size_t size) {
    char path[1200];
    if (recipe_defaults(r, tasks_all)) return cli_failed(command);
    snprintf(path, sizeof path, "%s/recipe.yaml", directory);
    if (access(path, R_OK))
        return cli_fail(command, "%s: not a run directory: recipe.yaml: %s", directory, strerror(errno));
    if (recipe_load(r, path) || recipe_check(r)) {
        return cli_failed(command);
    }
    if (*which && !checkpoints_is_name(*which)) {
        return cli_usage(command, "--checkpoint is '%.80s', expected averaged, best, last, step-N or a file", *which);
    }
    if (checkpoints_find(directory, which, checkpoint, size)) {
        if (*which) (void)checkpoints_offer(directory, checkpoint, false);
        return cli_failed(command);
    }
    return 0;
}
