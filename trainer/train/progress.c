#include "train/progress.h"

#include "nn/profile.h"
#include "support/clock.h"
#include "support/text.h"
#include "core/thread.h"

#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <time.h>
#include <unistd.h>

#define FIRST_GAP 5.0 /* seconds until the first line; each later gap is twice as long */

void progress_outside(progress *p, train_show show, const char *label, double every) {
    const double at_most = show == TRAIN_LIVE ? 0.1 : every;
    *p = (progress){.show = show == TRAIN_LIVE || every > 0 ? show : TRAIN_SILENT,
                    .label = label,
                    .every = at_most,
                    .gap = at_most < FIRST_GAP ? at_most : FIRST_GAP,
                    .shown = show == TRAIN_LIVE ? 0 : clock_seconds()};
}

static double find_most_items(const experiment *e) {
    const double flops = e->plan && e->task->flops ? e->task->flops(e) : 0;
    return flops > 0 ? nn_profile_data_sheet_peak(e->plan) / flops : 0;
}

void progress_begin(progress *p, const train_options *o, const experiment *e, int64_t step, int64_t items) {
    progress_outside(p, o->show, o->label, e->recipe.train.progress_every);
    p->stop = o->stop;
    p->board = o->board;
    p->place = o->place;
    p->e = e;
    p->step = step;
    p->items = p->first_items = items;
    p->most_items = find_most_items(e);
    p->loss = NAN;
}

void progress_spent(progress *p, progress_part part, double seconds) {
    if (part == PROGRESS_TRAINING && p->times[part] == 0) p->first_update = seconds;
    p->spent[part] += seconds;
    p->times[part]++;
}

/* ---- time left ---- */

static double mean_of(const progress *p, progress_part part) {
    return p->times[part] ? p->spent[part] / (double)p->times[part] : 0;
}

/* Without the first, which takes longer. */
static double mean_update(const progress *p) {
    const double n = (double)p->times[PROGRESS_TRAINING];
    return n > 1 ? (p->spent[PROGRESS_TRAINING] - p->first_update) / (n - 1) : mean_of(p, PROGRESS_TRAINING);
}

/* How often something is still due; it always is at the last update. */
static double times_left(const progress *p, key_span every) {
    const epoch_length length = p->e->epoch;
    const int64_t steps = p->e->steps, n = epochs_times(length, every, steps) - epochs_times(length, every, p->step);
    return (double)(n + (p->step < steps && !epochs_due(length, every, steps)));
}

/* Time of the evaluation at the end, estimated from the validation data: all is scored and every sample answered. */
static double test_left(const progress *p) {
    const task *t = p->e->task;
    const task_split split = t->count(p->e, SPLIT_TEST) > 0 ? SPLIT_TEST : SPLIT_VALID;
    const double valid = (double)t->count(p->e, SPLIT_VALID);
    if (!(valid > 0) || p->valid.items == 0) return 0;
    const double scoring = fmax(mean_of(p, PROGRESS_EVALUATING) - p->valid.seconds, 0) / valid;
    const double answering = p->valid.samples > 0 ? p->valid.seconds / (double)p->valid.samples : 0;
    return (double)t->count(p->e, split) * (scoring + answering);
}

double progress_left(const progress *p) {
    const recipe *r = &p->e->recipe;
    return mean_update(p) * (double)(p->e->steps - p->step) +
           mean_of(p, PROGRESS_EVALUATING) * times_left(p, r->train.evaluate_every) +
           mean_of(p, PROGRESS_SAVING) * times_left(p, r->train.checkpoint_every) + test_left(p);
}

/* ---- lines ---- */

const char *progress_duration(double seconds, char out[32]) {
    const long long n = seconds < 0 || seconds > 1e9 ? 0 : (long long)(seconds + 0.5);
    if (n >= 3600) snprintf(out, 32, "%lldh%02lldm", n / 3600, n / 60 % 60);
    else if (n >= 60) snprintf(out, 32, "%lldm%02llds", n / 60, n % 60);
    else snprintf(out, 32, "%llds", n);
    return out;
}

/* A broken line could not be drawn over, so the last column stays free. */
int progress_columns(void) {
    struct winsize window;
    const bool known = ioctl(STDERR_FILENO, TIOCGWINSZ, &window) == 0 && window.ws_col > 1;
    return known ? window.ws_col - 1 : 79;
}

/* Bytes of the first columns of a text, one code point in each. */
static size_t first_columns(const char *text, int columns) {
    text_slice rest = text_of(text);
    while (rest.n && columns-- > 0) {
        const size_t n = text_code_point(rest) ? text_code_point(rest) : 1;
        rest.bytes += n;
        rest.n -= n;
    }
    return (size_t)(rest.bytes - text);
}

int progress_width(const char *text) {
    int columns = 0;
    for (size_t at = 0; text[at]; columns++) at += first_columns(text + at, 1);
    return columns;
}

/* In one write, as other processes may write too. Labels and directories may have any characters. */
static void emit(const char *before, const char *text, int columns, const char *after) {
    char *plain = NULL, *whole = NULL;
    size_t n, size;
    FILE *memory = open_memstream(&plain, &n);
    if (memory) text_print(memory, text);
    if (!memory || fclose(memory) || !(memory = open_memstream(&whole, &size))) return free(plain);
    fprintf(memory, "%s%.*s%s", before, (int)first_columns(plain, columns), plain, after);
    if (fclose(memory) == 0) fwrite(whole, 1, size, stderr);
    fflush(stderr);
    free(plain);
    free(whole);
}

#define CLEAR "\r\033[K"

void progress_draw(const char *line) { emit(CLEAR, line, progress_columns(), ""); }
void progress_clear(void) { emit(CLEAR, "", 0, ""); }

/* A line that stays. */
static void emit_line(const progress *p, const char *text) {
    emit(p->show == TRAIN_LOG ? "" : CLEAR, text, INT_MAX, "\n");
}

/* The parts of a line, in this order. */
typedef enum part { LABEL, STEP, EPOCH, LEFT, LOSS, VALID, METRICS, RATE, TEXT, PARTS } part;
typedef struct line {
    char part[PARTS][256]; /* "": it has none */
} line;

static void join(const line *l, char *out, size_t size) {
    *out = '\0';
    for (int i = 0; i < PARTS; i++) {
        if (*l->part[i]) text_join(out, size, *l->part[i] == ',' ? "" : "  ", l->part[i]);
    }
}

/* A narrow terminal gets fewer parts. */
static void show_live(line *l) {
    static const part least[] = {RATE, METRICS, EPOCH, VALID, LABEL, LOSS};
    char text[2048];
    join(l, text, sizeof text);
    for (size_t i = 0; i < sizeof least / sizeof *least && progress_width(text) > progress_columns(); i++) {
        *l->part[least[i]] = '\0';
        join(l, text, sizeof text);
    }
    progress_draw(text);
}

static void emit_joined(const progress *p, const line *l) {
    char text[2048];
    join(l, text, sizeof text);
    emit_line(p, text);
}

static void keep(progress *p, const line *l) {
    emit_joined(p, l);
    p->shown = clock_seconds();
}

static void show(progress *p, line *l) {
    if (p->show == TRAIN_KEPT) return;
    if (p->show == TRAIN_LOG) {
        keep(p, l);
        p->gap = fmin(2 * p->gap, p->every);
        return;
    }
    show_live(l);
    p->shown = clock_seconds();
}

static bool is_time(const progress *p) {
    return p->show != TRAIN_SILENT && p->show != TRAIN_KEPT && clock_seconds() - p->shown >= p->gap;
}

static line begin_line(const progress *p) {
    line l = {0};
    const char *label = p->label ? p->label : "";
    if (p->board)
        snprintf(l.part[LABEL], sizeof l.part[LABEL], "[%d/%d]%s%.200s", p->place + 1, scoreboard_size(p->board),
                 *label ? " " : "", label);
    else snprintf(l.part[LABEL], sizeof l.part[LABEL], "%.200s", label);
    if (!p->e) return l;
    snprintf(l.part[STEP], sizeof l.part[STEP], "step %lld/%lld", (long long)p->step, (long long)p->e->steps);
    snprintf(l.part[EPOCH], sizeof l.part[EPOCH], "epoch %.2f", p->epoch);
    return l;
}

static bool left_is_known(const progress *p) { return p->times[PROGRESS_TRAINING] > 1 || p->step == p->e->steps; }

/* "2m05s left, 41m10s in all" */
static void describe_left(const progress *p, line *l) {
    char here[32], all[32];
    if (!left_is_known(p)) return;
    const double whole = p->board && scoreboard_size(p->board) > 1 ? scoreboard_left(p->board) : -1;
    progress_duration(progress_left(p), here);
    progress_duration(whole, all);
    snprintf(l->part[LEFT], sizeof l->part[LEFT], "%s left%s%s%s", here, whole >= 0 ? ", " : "", whole >= 0 ? all : "",
             whole >= 0 ? " in all" : "");
}

static const char *value_of(const metric *m, bool is_loss, double x, char out[48]) {
    char number[32];
    const int decimals = is_loss ? 4 : m->decimals > 0 ? m->decimals - 1 : 0;
    snprintf(out, 48, "%s%s%s", metric_number(m->scale * x, decimals, number), *m->unit ? " " : "", m->unit);
    return out;
}

/* " (best)" or " (best 2.9871)", with_step " (best 2.9871 at step 300)". */
static const char *describe_best(const progress *p, int i, bool with_step, char out[96]) {
    const metric *m = &p->e->task->metrics[i];
    char value[48], step[40] = "";
    *out = '\0';
    if (p->best_step == 0) return out;
    if (with_step) snprintf(step, sizeof step, " at step %lld", (long long)p->best_step);
    if (p->valid.value[i] == p->best) snprintf(out, 96, " (best)");
    else snprintf(out, 96, " (best %s%s)", value_of(m, i == 0, p->best, value), step);
    return out;
}

/* "validation loss 3.0567 (best 2.9871)" and ", exact 44 %, BLEU 63.9": the headline metrics and train.best. */
static void describe_valid(const progress *p, line *l, bool with_step) {
    const task *t = p->e->task;
    const int decides = task_metric(t, p->e->recipe.train.best);
    for (int i = 0; i < t->n_metrics && p->valid.items > 0; i++) {
        const metric *m = &t->metrics[i];
        char value[48], best[96] = "";
        if ((i > 0 && i != decides && !m->headline) || isnan(p->valid.value[i])) continue;
        if (i == decides) describe_best(p, i, with_step, best);
        value_of(m, i == 0, p->valid.value[i], value);
        char *to = l->part[i == 0 ? VALID : METRICS];
        text_add(to, sizeof l->part[0], "%s %s %s%s", i == 0 ? "validation" : ",", m->label, value, best);
    }
}

static void describe_loss(const progress *p, line *l) {
    if (!isnan(p->loss)) snprintf(l->part[LOSS], sizeof l->part[LOSS], "batch loss %.4f", p->loss);
}

static void tell_board(const progress *p) {
    const scoreboard_run now = {.left = left_is_known(p) ? progress_left(p) : -1,
                                .step = p->step,
                                .steps = p->e->steps,
                                .loss = p->loss,
                                .valid = p->valid.items > 0 ? p->valid.value[0] : NAN};
    if (p->board) scoreboard_tell(p->board, p->place, &now);
}

void progress_update(progress *p, int64_t step, int64_t items, double epoch, double loss) {
    p->step = step;
    p->items = items;
    p->epoch = epoch;
    p->loss = loss;
    tell_board(p);
    if (!is_time(p)) return;
    const double spent = p->spent[PROGRESS_TRAINING];
    const double rate = spent > 0 ? (double)(items - p->first_items) / spent : 0;
    line l = begin_line(p);
    describe_left(p, &l);
    describe_loss(p, &l);
    describe_valid(p, &l, false);
    const int used = snprintf(l.part[RATE], sizeof l.part[RATE], "%.0f %s/s", rate, p->e->task->items);
    if (p->most_items > 0)
        snprintf(l.part[RATE] + used, sizeof l.part[RATE] - (size_t)used, ", %.0f %% of peak",
                 100 * rate / p->most_items / comm_size(p->e->comm));
    show(p, &l);
}

void progress_evaluated(progress *p, const task_result *valid) {
    p->valid = *valid;
    tell_board(p);
    if (p->show == TRAIN_SILENT || valid->items == 0) return;
    line l = begin_line(p);
    describe_left(p, &l);
    describe_loss(p, &l);
    describe_valid(p, &l, true);
    keep(p, &l);
}

void progress_split(progress *p, const char *split) {
    p->split = split;
    p->what = NULL;
    if (!split || p->show != TRAIN_LIVE) return;
    line l = begin_line(p);
    snprintf(l.part[TEXT], sizeof l.part[TEXT], "%s set: evaluating", split);
    show(p, &l);
}

void progress_within(void *context, const char *what, int64_t done, int64_t total) {
    progress *p = context;
    char rest[32] = "";
    if (!p->split && p->e) return;
    if (what != p->what) {
        p->what = what;
        p->what_begun = clock_seconds();
        p->what_done = done;
    } else if (done > p->what_done) {
        const double each = (clock_seconds() - p->what_begun) / (double)(done - p->what_done);
        progress_duration(each * (double)(total - done), rest);
    }
    if (!is_time(p)) return;
    const bool stops = p->stop && *p->stop; /* Ctrl-C shows at once */
    line l = begin_line(p);
    snprintf(l.part[TEXT], sizeof l.part[TEXT], "%s%s%s%s %lld/%lld%s%s%s", stops ? "stops after the " : "",
             p->split ? p->split : "", p->split ? " set: " : "", what, (long long)done, (long long)total,
             *rest ? "  " : "", rest, *rest ? " left" : "");
    show(p, &l);
}

void progress_say(progress *p, const char *text) {
    if (p->show == TRAIN_SILENT) return;
    line l = begin_line(p);
    snprintf(l.part[TEXT], sizeof l.part[TEXT], "%s", text);
    keep(p, &l);
}

void progress_introduce(progress *p, const char *text) {
    char whole[2048], first[48] = "";
    const char *label = p->label ? p->label : "";
    if (p->show == TRAIN_SILENT) return;
    if (p->board) snprintf(first, sizeof first, "run %d of %d", p->place + 1, scoreboard_size(p->board));
    snprintf(whole, sizeof whole, "%s%s%.200s%s%s", first, *first && *label ? ", " : "", label,
             *first || *label ? ": " : "", text);
    emit_line(p, whole);
}

void progress_end(const progress *p) {
    if (p->show == TRAIN_LIVE && p->shown > 0) progress_clear();
}

/* ---- while data are read ---- */

#define MOMENT 1 /* seconds */

static void *say_that_it_reads(void *reading) {
    progress_reading *r = reading;
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += MOMENT;
    pthread_mutex_lock(&r->lock);
    while (!r->over && pthread_cond_timedwait(&r->wake, &r->lock, &until) == 0) {}
    line l = begin_line(r->p);
    snprintf(l.part[TEXT], sizeof l.part[TEXT], "reading data");
    if (!r->over && r->p->show == TRAIN_LIVE) show_live(&l);
    else if (!r->over) emit_joined(r->p, &l);
    pthread_mutex_unlock(&r->lock);
    return NULL;
}

void progress_reading_begin(progress_reading *r, const progress *p) {
    *r = (progress_reading){.p = p};
    if (p->show == TRAIN_SILENT || p->show == TRAIN_KEPT) return;
    pthread_mutex_init(&r->lock, NULL);
    pthread_cond_init(&r->wake, NULL);
    r->started = adamod__start_thread(&r->thread, say_that_it_reads, r) == 0;
}

void progress_reading_end(progress_reading *r) {
    if (!r->started) return;
    pthread_mutex_lock(&r->lock);
    r->over = true;
    pthread_cond_signal(&r->wake);
    pthread_mutex_unlock(&r->lock);
    pthread_join(r->thread, NULL);
    pthread_cond_destroy(&r->wake);
    pthread_mutex_destroy(&r->lock);
    if (r->p->show == TRAIN_LIVE) progress_clear();
}
