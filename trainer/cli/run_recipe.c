#include "cli/run_recipe.h"

#include "core/error.h"
#include "support/clock.h"
#include "support/text.h"
#include "core/thread.h"
#include "train/progress.h"

#include <math.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static atomic_int stop_wanted, save_wanted;
static atomic_int reading; /* a run reads its data, without a look at signals, and has nothing to save yet */

/* Programs such as timeout may send one request twice, to the process and to its group. Only a signal that comes later than
 * this many milliseconds is a second request. */
enum { SAME_REQUEST = 500 };

/* It wraps around; differences stay correct. */
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

/* One thread waits for signals, and all others block them: a handler on the stack of a computing thread makes oneDNN's
 * products (2.6 and 3.2) corrupt memory. The handler is for threads that a library started before, as OpenBLAS does when it
 * is loaded. */
const atomic_int *run_recipe_signals(void) {
    static sigset_t set; /* the thread reads it */
    static bool started;
    pthread_t thread;
    if (started) return &stop_wanted;
    static const int taken[] = {SIGINT, SIGTERM, SIGUSR1,
                                SIGHUP}; /* SIGINT too, which a shell's background jobs ignore */
    struct sigaction hangup;
    sigemptyset(&set);
    for (int i = 0; i < 4; i++) {
        if (taken[i] == SIGHUP && (sigaction(SIGHUP, NULL, &hangup) || hangup.sa_handler == SIG_IGN))
            continue; /* nohup */
        sigaddset(&set, taken[i]);
        signal(taken[i], take_signal);
    }
    pthread_sigmask(SIG_BLOCK, &set, NULL);
    started = adamod__start_thread(&thread, wait_for_signals, &set) == 0;
    if (started) pthread_detach(thread);
    else pthread_sigmask(SIG_UNBLOCK, &set, NULL); /* then the handler has to do */
    return &stop_wanted;
}

void run_recipe_print_metrics(const task *t, const task_result *result, bool (*keep)(const metric *), const char *label,
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

static void print_finished(const char *name, const recipe *r, const train_result *t) {
    text_print(stdout, name);
    printf(": %lld update%s in %.0f s, ", (long long)t->step, t->step == 1 ? "" : "s", t->seconds);
    if (t->early) printf("stopped early, ");
    if (!isnan(t->train_loss)) printf("training loss %.4f, ", t->train_loss); /* resumed with no update to make */
    printf("validation loss %.4f", t->valid.value[0]);
    run_recipe_print_metrics(recipe_task(r), &t->final, is_score, task_split_label(t->final_split), ", ");
    if (strcmp(t->tested, "best") == 0) printf(" (best model, update %lld)", (long long)t->tested_step);
    printf("\n");
}

static bool task_has(const recipe *r, const char *key) {
    for (const key_table *const *table = recipe_task(r)->keys; *table; table++) {
        for (int i = 0; i < (*table)->n; i++) {
            if (strcmp((*table)->keys[i].path, key) == 0) return true;
        }
    }
    return false;
}

static int change(recipe *r, const cli_flag *f, const char *value) {
    char flag[64];
    snprintf(flag, sizeof flag, "--%s", f->name);
    if (!f->key) return recipe_set(r, value);
    if (strncmp(f->key, "decode.", 7) == 0 && !task_has(r, f->key))
        return adamod__refuse("%s is for translation, but the run is of data.task %s", flag, r->data.task);
    return recipe_set_flag(r, flag, f->key, value);
}

int recipe_change(recipe *r, const cli_changes *changes) {
    int status = 0;
    for (int i = 0; i < changes->n && !status; i++) status = change(r, changes->list[i].flag, changes->list[i].value);
    return status;
}

static scoreboard *beside; /* of runs at the same time on one terminal; NULL: none */

/* Keeps the messages of this process off the line that another one redraws. */
static void begin_speaking(void) {
    if (!beside) return;
    scoreboard_lock(beside);
    progress_clear();
}

static void end_speaking(void) {
    fflush(stdout);
    if (beside) scoreboard_unlock(beside);
}

void run_recipe_note(const char *line) {
    begin_speaking();
    text_line(stderr, "adamod: %s", line);
    end_speaking();
}

static bool noted; /* notes are not repeated by the runs of a comparison */

void run_recipe_noted(void) { noted = true; }

static int print_result(const char *command, const recipe *r, const train_options *o, const train_result *t) {
    const char *directory = o->directory, *name = o->label ? o->label : directory;
    if (t->status == TRAIN_DIVERGED) return cli_fail(command, "%s: stopped: %s", name, t->reason);
    if (t->status == TRAIN_FINISHED) return print_finished(name, r, t), 0;
    text_print(stdout, name);
    printf(": interrupted after update %lld", (long long)t->step);
    if (o->label) printf("\n"); /* the command says how all of its runs go on */
    else text_line(stdout, "; continue with adamod %s --resume --out %s", command, directory);
    return 128 + (stop_wanted ? stop_wanted : SIGTERM); /* another rank received it */
}

int run_recipe(const char *command, const recipe *r, const train_options *how, const char *label, train_result *out) {
    train_options o = *how;
    const bool first = comm_rank(o.comm) == 0; /* the rank that prints */
    const bool terminal = isatty(STDERR_FILENO);
    o.show = !first ? TRAIN_SILENT : !terminal ? TRAIN_LOG : o.at_once > 1 ? TRAIN_KEPT : TRAIN_LIVE;
    o.label = label;
    beside = o.show == TRAIN_KEPT ? o.board : NULL;
    o.note = noted || !first ? NULL : run_recipe_note;
    o.stop = run_recipe_signals();
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
