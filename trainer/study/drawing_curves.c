/* drawing_curves.c - the curves of a panel as a data file: median, least and most over the seeds. Curves of training are
 * means over windows of updates, as in reports; evaluations stand at the union of the updates that the runs have. */
#include "study/drawing_parts.h"

#include "core/error.h"
#include "report/series.h"

#include <stdlib.h>
#include <string.h>

enum { GRID = 400, MARKED = 60 }; /* points of a smoothed line; most points of a line with dots */

/* ---- What is drawn ----------------------------------------------------------------------------------------------- */

/* The quantity of a run's points that a panel shows, for series_value. Perplexities are averaged as logarithms. */
typedef struct quantity {
    bool loss, perplexity;
    int metric; /* in report_run.metric; -1: none */
} quantity;

static bool is_perplexity(const char *name) { return strcmp(name, "ppl") == 0 || strcmp(name, "perplexity") == 0; }

static quantity quantity_of(const drawing_panel *p, const report_run *r) {
    return (quantity){strcmp(p->metric, "loss") == 0, is_perplexity(p->metric), report_find_metric(r, p->metric)};
}

static double read_quantity(const void *of, const report_point *p) {
    const quantity *q = of;
    const double y = q->loss ? p->loss : q->metric >= 0 ? p->value[q->metric] : NAN;
    if (!q->perplexity) return y;
    return isfinite(y) ? log(y) : p->nll;
}

static double shown(const quantity *q, double y) { return q->perplexity ? exp(y) : y; }

static const report_series *series_of(const report_run *r, drawing_split split) {
    if (split == DRAWING_TRAIN) return &r->train;
    return split == DRAWING_VALID || report_validates_on_test(r) ? &r->valid : &r->test;
}

/* The metric as the runs describe it; without any run, as its name says. */
static metric metric_of(const drawing_panel *p) {
    for (int i = 0; i < p->n_lines; i++) {
        for (int k = 0; k < p->line[i].n; k++) {
            const report_run *r = p->line[i].run[k];
            const int found = report_find_metric(r, p->metric);
            if (found >= 0) return r->metric[found];
        }
    }
    return (metric){.name = p->metric, .label = p->metric, .about = p->metric, .unit = "", .scale = 1};
}

/* ---- A line ------------------------------------------------------------------------------------------------------ */

/* The runs of a line while their values are read. */
typedef struct line_values {
    const drawing_panel *panel;
    const drawing_line *line;
    quantity *of;
    series_means *means; /* NULL: evaluations */
    double *room;        /* a number for each run */
    int made;
} line_values;

static void close_line(line_values *v) {
    for (int i = 0; i < v->made; i++) series_means_free(&v->means[i]);
    free(v->means);
    free(v->of);
    free(v->room);
}

static int open_line(line_values *v, const drawing_panel *p, const drawing_line *l, int64_t window) {
    *v = (line_values){.panel = p, .line = l};
    v->of = calloc((size_t)l->n + 1, sizeof *v->of);
    v->room = calloc((size_t)l->n + 1, sizeof *v->room);
    v->means = window ? calloc((size_t)l->n + 1, sizeof *v->means) : NULL;
    bool failed = !v->of || !v->room || (window && !v->means);
    for (int i = 0; i < l->n && !failed; i++) {
        v->of[i] = quantity_of(p, l->run[i]);
        if (!window) continue;
        failed = series_means_make(&v->means[i], series_of(l->run[i], p->split), read_quantity, &v->of[i], window) != 0;
        v->made += !failed;
    }
    if (!failed) return 0;
    close_line(v);
    (void)adamod__fail(ADAMOD_ERROR_MEMORY, "out of memory");
    return -1;
}

static report_spread values_at(line_values *v, double step) {
    for (int i = 0; i < v->line->n; i++) {
        const report_series *s = series_of(v->line->run[i], v->panel->split);
        const double y = v->means ? series_mean(&v->means[i], step) : series_at(s, step, read_quantity, &v->of[i]);
        v->room[i] = shown(&v->of[i], y);
    }
    return report_spread_of(v->room, v->line->n);
}

static double place_at(line_values *v, double step, int axis) {
    for (int i = 0; i < v->line->n; i++)
        v->room[i] = series_at(series_of(v->line->run[i], v->panel->split), step, panel_place, &axis);
    return report_spread_of(v->room, v->line->n).median;
}

static double last_step(const drawing_panel *p, const drawing_line *l) {
    double last = 0;
    for (int i = 0; i < l->n; i++) {
        const report_series *s = series_of(l->run[i], p->split);
        if (s->n) last = fmax(last, (double)s->at[s->n - 1].step);
    }
    return last;
}

/* The update after a given one at which the line has a point; INFINITY: none. */
static double next_step(const line_values *v, double after, double last) {
    double next = INFINITY;
    if (v->means && after < 1) return 1;
    if (v->means) return after < last ? fmin(last, floor(fmax(after + 1, after + last / GRID))) : INFINITY;
    for (int i = 0; i < v->line->n; i++) {
        const report_series *s = series_of(v->line->run[i], v->panel->split);
        const size_t k = series_before(s, after + 0.5);
        if (k < s->n) next = fmin(next, (double)s->at[k].step);
    }
    return next;
}

/* ---- The panel --------------------------------------------------------------------------------------------------- */

/* The ranges of all lines. */
typedef struct ranges {
    panel_extent e;
    double later; /* least value after the first quarter */
    double first; /* largest first value */
    int most;     /* points of a line */
} ranges;

static void write_row(FILE *out, ranges *r, double step, double epoch, const report_spread *y) {
    fprintf(out, "%.0f", step);
    panel_number(out, epoch);
    panel_spread(out, y);
    fputc('\n', out);
    panel_include(&r->e, y);
    panel_reach(&r->e, AXIS_UPDATES, step);
    panel_reach(&r->e, AXIS_EPOCHS, epoch);
}

static double write_rows(FILE *out, line_values *v, ranges *r) {
    const drawing_panel *p = v->panel;
    const double last = last_step(p, v->line);
    double value = NAN;
    int n = 0;
    for (double step = 0; isfinite(step = next_step(v, step, last));) {
        const double epoch = place_at(v, step, AXIS_EPOCHS), x = p->epochs ? epoch : step;
        const report_spread y = values_at(v, step);
        if (!y.n || !isfinite(x) || (p->until > 0 && x > p->until)) continue;
        write_row(out, r, step, epoch, &y);
        if (n++ == 0) r->first = fmax(r->first, y.median);
        if (step > last / 4) r->later = fmin(r->later, y.min);
        value = y.median;
    }
    if (n > r->most) r->most = n;
    return value;
}

static int write_line(FILE *out, const drawing_panel *p, int i, int64_t window, ranges *r, double *last) {
    const drawing_line *l = &p->line[i];
    line_values v;
    if (open_line(&v, p, l, window)) return -1;
    fprintf(out, "# line %d: update, epoch, then median, least and most of %d\n", i + 1, l->n);
    *last = write_rows(out, &v, r);
    panel_end_block(out);
    close_line(&v);
    return 0;
}

static int64_t window_of(const drawing_panel *p) {
    double last = 0;
    for (int i = 0; i < p->n_lines; i++) last = fmax(last, last_step(p, &p->line[i]));
    return p->split == DRAWING_TRAIN ? panel_window((int64_t)last) : 0;
}

static int write_data(drawing_curves *c, report_figures *f, const drawing_panel *p, int64_t window, ranges *r) {
    report_file file;
    int status = 0;
    if (report_file_open(&file, "%s", c->data)) return -1;
    for (int i = 0; i < p->n_lines && !status; i++) {
        status = write_line(file.to, p, i, window, r, &c->last[i]);
        c->any |= isfinite(c->last[i]);
        drawing_line_name(&p->line[i], isfinite(c->last[i]), c->name[i]);
    }
    return report_file_close(f, &file) || status ? -1 : 0;
}

/* "means of 4 epochs" */
static void set_note(drawing_curves *c, const drawing_panel *p, int64_t window, const ranges *r) {
    char number[32];
    const bool epochs = p->epochs && r->e.last[AXIS_UPDATES] > 0;
    const double n = (double)window * (epochs ? r->e.last[AXIS_EPOCHS] / r->e.last[AXIS_UPDATES] : 1);
    if (window < 2) return;
    if (n < 10) snprintf(number, sizeof number, "%.2g", n);
    else report_number(n, 0, number, sizeof number);
    snprintf(c->note, sizeof c->note, "means of %s %s", number, epochs ? "epochs" : "updates");
}

static void set_label(drawing_curves *c, const drawing_panel *p, const metric *m) {
    static const char *const splits[] = {"training", "validation", "test"};
    snprintf(c->y_label, sizeof c->y_label, *m->unit ? "%s %.80s (%.20s)" : "%s %.80s%.20s", splits[p->split], m->about,
             m->unit);
    c->p.y_label = c->y_label;
}

/* Losses above twice the first one are cut off: they would flatten all others. */
static void set_ranges(drawing_curves *c, const drawing_panel *p, const metric *m, ranges *r) {
    const bool falls = strcmp(p->metric, "loss") == 0 || is_perplexity(p->metric);
    c->score = !falls;
    if (falls && r->first > r->e.low) r->e.high = fmin(r->e.high, 2 * r->first);
    if (falls) panel_range(&c->p, &r->e, &r->e);
    else panel_score_range(&c->p, m, &r->e, p->split == DRAWING_TRAIN ? INFINITY : r->later);
    const panel_axis a = p->epochs ? AXIS_EPOCHS : AXIS_UPDATES;
    panel_x(&c->p, a, p->until > 0 ? p->until : 1.02 * r->e.last[a]);
    c->p.marks = p->split != DRAWING_TRAIN && r->most <= MARKED;
}

/* Marks where runs diverged: at the last value, or at the top. */
static void write_mark(FILE *out, const drawing_curves *c, const drawing_panel *p, const report_run *run) {
    const report_series *s = series_of(run, p->split);
    const quantity q = quantity_of(p, run);
    const report_point *last = s->n ? &s->at[s->n - 1] : NULL;
    const double y = last ? shown(&q, read_quantity(&q, last)) : NAN, epoch = last ? last->epoch : 0;
    fprintf(out, "%.0f", fmax(1, (double)report_last_step(run)));
    panel_number(out, isfinite(epoch) ? epoch : 0);
    panel_number(out, isfinite(y) ? fmin(fmax(y, c->p.y_low), c->p.y_high) : c->p.y_high);
    fputc('\n', out);
}

static int write_marks(drawing_curves *c, report_figures *f, const drawing_panel *p) {
    report_file file;
    if (report_file_open(&file, "%s", c->marks)) return -1;
    fprintf(file.to, "# a block for each line; where its runs diverged: update, epoch, last value\n");
    for (int i = 0; i < p->n_lines; i++) {
        for (int k = 0; k < p->line[i].n; k++) {
            if (report_fate_of(p->line[i].run[k]) != REPORT_DIVERGED) continue;
            write_mark(file.to, c, p, p->line[i].run[k]);
            c->p.diverged = c->marks;
        }
        panel_end_block(file.to);
    }
    return report_file_close(f, &file);
}

int drawing_curves_make(drawing_curves *out, report_figures *f, const drawing *d, int number) {
    const drawing_panel *p = &d->panel[number];
    const metric m = metric_of(p);
    const int64_t window = window_of(p);
    ranges r = {.e = panel_no_extent, .later = INFINITY};
    *out = (drawing_curves){.name = calloc((size_t)p->n_lines + 1, sizeof *out->name),
                            .last = calloc((size_t)p->n_lines + 1, sizeof *out->last)};
    snprintf(out->data, sizeof out->data, "%.64s-%d.dat", d->name, number + 1);
    snprintf(out->marks, sizeof out->marks, "%.64s-%d-diverged.dat", d->name, number + 1);
    if (!out->name || !out->last) return adamod__fail(ADAMOD_ERROR_MEMORY, "out of memory");
    if (write_data(out, f, p, window, &r)) return -1;
    out->p.data = out->data;
    set_label(out, p, &m);
    set_note(out, p, window, &r);
    if (!out->any) return 0;
    set_ranges(out, p, &m, &r);
    return write_marks(out, f, p);
}

void drawing_curves_free(drawing_curves *c) {
    free(c->name);
    free(c->last);
}
