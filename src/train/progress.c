#include "train/progress.h"

#include "base/clock.h"
#include "base/text.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

void progress_outside(progress *p, train_show show, const char *label, double every) {
    *p = (progress){.show = show == TRAIN_LIVE || every > 0 ? show : TRAIN_SILENT,
                    .label = label,
                    .every = show == TRAIN_LIVE ? 0.1 : every,
                    .shown = show == TRAIN_LIVE ? 0 : clock_seconds()};
}

void progress_begin(progress *p, const train_options *o, const experiment *e, int64_t step, int64_t items) {
    progress_outside(p, o->show, o->label, e->recipe.train.progress_every);
    p->stop = o->stop;
    p->e = e;
    p->step = p->first_step = step;
    p->items = p->first_items = items;
}

void progress_spent(progress *p, progress_part part, double seconds) {
    p->spent[part] += seconds;
    p->times[part]++;
}

/* ---- time left ---- */

static double mean_of(const progress *p, progress_part part) {
    return p->times[part] ? p->spent[part] / (double)p->times[part] : 0;
}

/* How often something is still to be done; the last update always is an occasion. */
static double times_left(const progress *p, key_span every) {
    const epoch_length length = p->e->epoch;
    const int64_t steps = p->e->steps, n = epochs_times(length, every, steps) - epochs_times(length, every, p->step);
    return (double)(n + (p->step < steps && !epochs_due(length, every, steps)));
}

/* The evaluation at the end, from those of validation data: all is scored, and every sample answered. */
static double test_left(const progress *p) {
    const task *t = p->e->task;
    const task_split split = t->has(p->e, SPLIT_TEST) ? SPLIT_TEST : SPLIT_VALID;
    const double valid = t->count ? (double)t->count(p->e, SPLIT_VALID) : 0;
    if (!(valid > 0) || p->valid.items == 0) return 0;
    const double scoring = fmax(mean_of(p, PROGRESS_EVALUATING) - p->valid.seconds, 0) / valid;
    const double answering = p->valid.samples > 0 ? p->valid.seconds / (double)p->valid.samples : 0;
    return (double)t->count(p->e, split) * (scoring + answering);
}

double progress_left(const progress *p) {
    const recipe *r = &p->e->recipe;
    return mean_of(p, PROGRESS_TRAINING) * (double)(p->e->steps - p->step) +
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

/* A line that a terminal breaks in two could not be drawn over; the last column stays free. */
static int columns_for_progress(void) {
    struct winsize window;
    const bool known = ioctl(STDERR_FILENO, TIOCGWINSZ, &window) == 0 && window.ws_col > 1;
    return known ? window.ws_col - 1 : 79;
}

/* The bytes of a text that fill so many columns at most, a code point to each. */
static size_t first_columns(const char *text, int columns) {
    text_slice rest = text_of(text);
    while (rest.n && columns-- > 0) {
        const size_t n = text_code_point(rest) ? text_code_point(rest) : 1;
        rest.bytes += n;
        rest.n -= n;
    }
    return (size_t)(rest.bytes - text);
}

/* Over the live line that is there, or as a line of its own, in one write: other processes may write there too. */
static void show(progress *p, const char *text) {
    char line[640];
    const char *label = p->label ? p->label : "";
    const bool live = p->show == TRAIN_LIVE;
    char at[80] = "";
    if (p->e)
        snprintf(at, sizeof at, "step %lld/%lld  epoch %.2f  ", (long long)p->step, (long long)p->e->steps, p->epoch);
    snprintf(line, sizeof line - 1, "%.200s%s%s%s", label, *label ? "  " : "", at, text);
    text_plain(line); /* a label is the recipe's */
    p->shown = clock_seconds();
    if (live) fprintf(stderr, "\r\033[K%.*s", (int)first_columns(line, columns_for_progress()), line);
    else fprintf(stderr, "%s\n", line);
    fflush(stderr);
}

static bool is_time(const progress *p) { return p->show != TRAIN_SILENT && clock_seconds() - p->shown >= p->every; }

/* "  validation exact 44 %, BLEU 63.9": what is known of the headline metrics besides the loss. */
static void describe_result(const progress *p, char *out, size_t size) {
    const task *t = p->e->task;
    size_t used = 0;
    *out = '\0';
    for (int i = 1; i < t->n_metrics && used < size; i++) {
        const metric *m = &t->metrics[i];
        if (!m->headline || p->valid.items == 0 || isnan(p->valid.value[i])) continue;
        const int decimals = m->decimals > 0 ? m->decimals - 1 : 0;
        char number[32];
        used += (size_t)snprintf(out + used, size - used, "%s %s %s%s%s", used ? "," : "  validation", m->label,
                                 metric_number(m->scale * p->valid.value[i], decimals, number), *m->unit ? " " : "",
                                 m->unit);
    }
}

void progress_update(progress *p, int64_t step, int64_t items, double epoch, double loss) {
    p->step = step;
    p->items = items;
    p->epoch = epoch;
    p->loss = loss;
    if (!is_time(p)) return;
    const double spent = p->spent[PROGRESS_TRAINING];
    const double rate = spent > 0 ? (double)(items - p->first_items) / spent : 0;
    char rest[32], quality[128], text[300];
    progress_duration(progress_left(p), rest);
    describe_result(p, quality, sizeof quality);
    snprintf(text, sizeof text, "%s left  batch loss %.4f%s  %.0f %s/s", rest, loss, quality, rate, p->e->task->items);
    show(p, text);
}

void progress_split(progress *p, const char *split) {
    char text[80];
    p->split = split;
    p->what = NULL;
    if (!split || p->show != TRAIN_LIVE) return;
    snprintf(text, sizeof text, "%s set: evaluating", split);
    show(p, text);
}

void progress_within(void *context, const char *what, int64_t done, int64_t total) {
    progress *p = context;
    char rest[32] = "", text[200];
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
    const bool stops = p->stop && *p->stop; /* who has pressed Ctrl-C should see that it was heard */
    snprintf(text, sizeof text, "%s%s%s%s %lld/%lld%s%s%s", stops ? "stops after the " : "", p->split ? p->split : "",
             p->split ? " set: " : "", what, (long long)done, (long long)total, *rest ? "  " : "", rest,
             *rest ? " left" : "");
    show(p, text);
}

void progress_say(progress *p, const char *text) {
    if (p->show == TRAIN_SILENT) return;
    show(p, text);
    if (p->show == TRAIN_LIVE) fputc('\n', stderr);
}

void progress_end(const progress *p) {
    if (p->show == TRAIN_LIVE && p->shown > 0) fprintf(stderr, "\r\033[K");
}
