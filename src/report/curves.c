/* curves.c - training loss and validation against updates and time, as data files and gnuplot scripts.
 *
 * A variant of one run is a thin line, every update, and a smoothed one upon it; a variant of several runs is the
 * median of their smoothed lines, in a band from the smallest to the largest.
 *
 * SPDX-License-Identifier: MIT
 */
#include "report/figures.h"

#include "base/text.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum {
    GRID = 500,       /* points of a line */
    RAW = 1500,       /* of a thin line */
    WINDOWS = 50,     /* a smoothed line is a mean of a 50th of the updates */
    WIDTH = 520,      /* of a drawing of the loss, in pixels; of validation there may be three side by side */
    NARROW = 390,     /* so they are narrower */
    HEIGHT = 300,     /* without the key */
    LINE = 18,        /* of the key */
    NAME_LENGTH = 40, /* characters of a variant's name in a key */
    LOG_FROM = 20     /* how far largest and smallest must be apart for a logarithmic axis */
};

/* A block of a data file and how it is drawn. */
typedef enum look { LOOK_RAW, LOOK_BAND, LOOK_LINE, LOOKS } look;

/* What a script needs to know of the data. */
typedef struct extent {
    double low, high; /* of what is drawn in full: lines and bands */
    int64_t last_step;
    double last_time;
} extent;

static const extent no_extent = {INFINITY, -INFINITY, 0, 0};

static void include(extent *e, double y) {
    if (!isfinite(y)) return;
    e->low = fmin(e->low, y);
    e->high = fmax(e->high, y);
}

/* ---- Smoothing --------------------------------------------------------------------------------------------------- */

/* Training loss of one run, with sums from the start, so that the mean of any stretch is two look-ups. */
typedef struct smooth {
    const report_series *s;
    double *sum, *weight; /* of the points before each; one block */
    int64_t window;
} smooth;

static int smooth_make(smooth *out, const report_series *s, int64_t window) {
    *out = (smooth){.s = s, .window = window, .sum = calloc(2 * (s->n + 1), sizeof(double))};
    if (!out->sum) return -1;
    out->weight = out->sum + s->n + 1;
    for (size_t i = 0; i < s->n; i++) {
        const bool counts = isfinite(s->at[i].loss);
        out->sum[i + 1] = out->sum[i] + (counts ? s->at[i].weight * s->at[i].loss : 0);
        out->weight[i + 1] = out->weight[i] + (counts ? s->at[i].weight : 0);
    }
    return 0;
}

/* How many points come before an update. */
static size_t points_before(const report_series *s, double step) {
    size_t low = 0, high = s->n;
    while (low < high) {
        const size_t middle = (low + high) / 2;
        if ((double)s->at[middle].step < step) low = middle + 1;
        else high = middle;
    }
    return low;
}

/* The mean around an update; near the start of as little before it as after it, or the first losses, which fall
 * fast, would be lost. NAN beyond the last. */
static double smooth_at(const smooth *m, double step) {
    const report_series *s = m->s;
    if (!s->n || step < (double)s->at[0].step || step > (double)s->at[s->n - 1].step) return NAN;
    const double half = fmin((double)m->window / 2, step - (double)s->at[0].step);
    const size_t from = points_before(s, step - half), to = points_before(s, step + half + 0.5);
    const double weight = m->weight[to] - m->weight[from];
    return weight > 0 ? (m->sum[to] - m->sum[from]) / weight : NAN;
}

static double time_at(const report_series *s, double step) {
    const size_t i = points_before(s, step);
    if (i == s->n) return s->n && step <= (double)s->at[s->n - 1].step ? s->at[s->n - 1].time : NAN;
    if (i == 0) return s->at[0].time;
    const report_point *a = &s->at[i - 1], *b = &s->at[i];
    const double share = (step - (double)a->step) / (double)(b->step - a->step);
    return a->time + share * (b->time - a->time);
}

/* ---- Loss -------------------------------------------------------------------------------------------------------- */

/* A number in a row of data, as gnuplot knows it. */
static void write_number(FILE *out, double x) {
    if (isfinite(x)) fprintf(out, " %.6g", x);
    else fputs(" NaN", out);
}

static void write_spread(FILE *out, const report_spread *y) {
    write_number(out, y->median);
    write_number(out, y->min);
    write_number(out, y->max);
}

/* A block without numbers would not count as one, and shift those behind it. */
static void end_block(FILE *out) { fprintf(out, "NaN NaN NaN NaN NaN\n\n\n"); }

static int64_t last_step(const report_variant *v) {
    int64_t last = 0;
    for (int i = 0; i < v->n; i++) {
        const report_series *s = &v->run[i]->train;
        if (s->n && s->at[s->n - 1].step > last) last = s->at[s->n - 1].step;
    }
    return last;
}

static void write_smooth_rows(FILE *out, const smooth *m, int n, double last, double *room, extent *e) {
    double before = -1;
    const double points = fmin(last, GRID);
    for (int k = 0; k <= points; k++) {
        const double step = fmax(1, floor(last * k / points));
        if (step == before) continue;
        before = step;
        for (int i = 0; i < n; i++) room[i] = smooth_at(&m[i], step);
        const report_spread y = report_spread_of(room, n);
        for (int i = 0; i < n; i++) room[i] = time_at(m[i].s, step);
        const report_spread time = report_spread_of(room, n);
        if (!y.n) continue;
        fprintf(out, "%.0f", step);
        write_number(out, time.median);
        write_spread(out, &y);
        fputc('\n', out);
        include(e, y.min);
        include(e, y.max);
        e->last_time = fmax(e->last_time, isfinite(time.median) ? time.median : 0);
    }
    e->last_step = last > (double)e->last_step ? (int64_t)last : e->last_step;
}

static int write_smooth(FILE *out, const report_variant *v, int64_t window, extent *e) {
    smooth *m = calloc((size_t)v->n, sizeof *m);
    double *room = calloc((size_t)v->n, sizeof *room);
    int made = 0;
    if (m && room) {
        while (made < v->n && smooth_make(&m[made], &v->run[made]->train, window) == 0) made++;
        if (made == v->n) write_smooth_rows(out, m, v->n, (double)last_step(v), room, e);
    }
    const int status = m && room && made == v->n ? 0 : -1;
    for (int i = 0; i < made; i++) free(m[i].sum);
    free(m);
    free(room);
    return status;
}

static void write_raw_point(FILE *out, const report_point *p) {
    fprintf(out, "%lld", (long long)p->step);
    write_number(out, p->time);
    write_number(out, p->loss);
    fputc('\n', out);
}

/* Every point; or of long runs the least and the most of each stretch, which look the same. */
static void write_raw(FILE *out, const report_series *s) {
    const size_t stretch = s->n > RAW ? (2 * s->n + RAW - 1) / RAW : 1;
    for (size_t i = 0; i < s->n; i += stretch) {
        const report_point *least = NULL, *most = NULL;
        for (size_t k = i; k < i + stretch && k < s->n; k++) {
            const report_point *p = &s->at[k];
            if (!isfinite(p->loss)) continue;
            if (!least || p->loss < least->loss) least = p;
            if (!most || p->loss > most->loss) most = p;
        }
        if (!least) continue;
        const report_point *first = least->step < most->step ? least : most;
        const report_point *second = first == least ? most : least;
        write_raw_point(out, first);
        if (second != first) write_raw_point(out, second);
    }
}

/* The blocks of each variant in a data file; -1: it has none. */
typedef struct blocks {
    int raw, line;
} blocks;

static int write_losses(report_figures *f, const report *r, blocks *b, extent *e) {
    report_file file;
    int next = 0, status = 0;
    if (report_file_open(f, &file, "loss.dat")) return -1;
    for (int i = 0; i < r->n_variants && !status; i++) {
        const report_variant *v = &r->variant[i];
        b[i] = (blocks){-1, -1};
        if (!last_step(v) || !isfinite(v->first_loss)) continue;
        if (v->n == 1) {
            fprintf(file.to, "# variant %d, one run: update, seconds, training loss\n", i + 1);
            write_raw(file.to, &v->run[0]->train);
            end_block(file.to);
            b[i].raw = next++;
        }
        fprintf(file.to,
                "# variant %d, means of %lld updates: update, seconds, training loss: median, least and most of %d\n",
                i + 1, (long long)f->window, v->n);
        status = write_smooth(file.to, v, f->window, e);
        end_block(file.to);
        b[i].line = next++;
    }
    if (report_file_close(f, &file)) return -1;
    return status ? text_fail(f->message, f->size, "out of memory") : 0;
}

/* ---- Scripts ----------------------------------------------------------------------------------------------------- */

/* A panel: one column of a data file over another. */
typedef struct panel {
    const char *name, *data, *x_label, *y_label;
    int width;      /* of the drawing */
    int x, y;       /* columns; y is followed by the least and the most */
    double x_scale; /* divides x */
    double x_last;
    double y_low, y_high;
    bool logarithmic, marks;
} panel;

static void write_plot(FILE *out, const panel *p, const report *r, const blocks *b, int variant, look l, bool *any) {
    const int block = l == LOOK_RAW ? b[variant].raw : b[variant].line;
    if (block < 0 || (l == LOOK_BAND && r->variant[variant].n < 2)) return;
    fprintf(out, "%s'%s' index %d using ($%d/%g):", *any ? ", \\\n         " : "    plot ", p->data, block, p->x,
            p->x_scale);
    *any = true;
    const int i = variant + 1;
    if (l == LOOK_RAW) {
        fprintf(out, "%d with lines linewidth 0.8 linecolor rgb faint(%d) notitle", p->y, i);
    } else if (l == LOOK_BAND) {
        fprintf(out,
                "%d:%d with filledcurves fillcolor rgb colour(%d) fillstyle transparent solid 0.2 noborder notitle",
                p->y + 1, p->y + 2, i);
    } else {
        fprintf(out, "%d with %s linewidth 2 dashtype dash(%d) linecolor rgb colour(%d) title ", p->y,
                p->marks ? "linespoints pointtype 7 pointsize 0.5" : "lines", i, i);
        report_quote(out, r->variant[variant].name, NAME_LENGTH);
    }
}

/* Between marks of an axis: 1, 2 or 5 times a power of ten, so that there are at most so many. */
static double tick_step(double range, int most) {
    const double least = range / most, power = pow(10, floor(log10(least)));
    return least <= power ? power : least <= 2 * power ? 2 * power : least <= 5 * power ? 5 * power : 10 * power;
}

/* How many names fit side by side above the plot, and how many lines of them that makes. */
static int key_columns(const panel *p, const report *r, const blocks *b, int *lines) {
    int longest = 0, shown = 0;
    for (int i = 0; i < r->n_variants; i++) {
        if (b[i].line < 0) continue;
        const int n = (int)text_count_tokens(TEXT_CHARACTERS, text_of(r->variant[i].name));
        if (n > longest) longest = n < NAME_LENGTH ? n : NAME_LENGTH;
        shown++;
    }
    int columns = (p->width - 60) / (longest * 7 + 50);
    if (columns > shown) columns = shown;
    if (columns < 1) columns = 1;
    *lines = (shown + columns - 1) / columns;
    return columns;
}

static void write_script(FILE *out, const panel *p, const report *r, const blocks *b) {
    bool any = false;
    int lines;
    const int columns = key_columns(p, r, b, &lines);
    fprintf(out, "load 'style.gp'\nset xlabel ");
    report_quote(out, p->x_label, 100);
    fprintf(out, "\nset ylabel ");
    report_quote(out, p->y_label, 100);
    fprintf(out, " noenhanced\nset xrange [0:%.6g]\nset yrange [%.6g:%.6g]\n", p->x_last / p->x_scale, p->y_low,
            p->y_high);
    fprintf(out, "set xtics %.6g\n", tick_step(p->x_last / p->x_scale, p->width / 55));
    fprintf(out, "%s", p->logarithmic ? "set logscale y\n" : "");
    fprintf(out, "set key maxcols %d\n", columns);
    fprintf(out, "do for [kind in kinds] {\n    eval figure(kind, '%s', %d, %d)\n", p->name, p->width,
            HEIGHT + LINE * lines);
    for (int l = 0; l < LOOKS; l++) {
        for (int i = 0; i < r->n_variants; i++) write_plot(out, p, r, b, i, (look)l, &any);
    }
    fprintf(out, "\n}\nset output\n");
}

static int add_panel(report_figures *f, report_group group, const panel *p, const report *r, const blocks *b) {
    report_file file;
    report_drawing *d = report_figures_add(f, group, p->name);
    if (!d || report_file_open(f, &file, "%s.gp", p->name)) return -1;
    snprintf(d->label, sizeof d->label, "%c%s against %s", report_capital(p->y_label[0]), p->y_label + 1, p->x_label);
    write_script(file.to, p, r, b);
    return report_file_close(f, &file);
}

/* Logarithmic if the largest is many times the smallest, and a little air at both ends. */
static void set_range(panel *p, const extent *e) {
    p->logarithmic = e->low > 0 && e->high > LOG_FROM * e->low;
    const double air = p->logarithmic ? pow(e->high / e->low, 0.05) : fmax(0.05 * (e->high - e->low), 1e-3 * e->high);
    p->y_low = p->logarithmic ? e->low / air : e->low - air;
    p->y_high = p->logarithmic ? e->high * air : e->high + air;
    if (e->low >= 0 && p->y_low < 0) p->y_low = 0;
    if (!(p->y_high > p->y_low)) p->y_high = p->y_low + 1;
}

/* What has risen to more than twice its beginning is lost, and would take the room of all others. */
static void clip(report_figures *f, const report *r, extent *e) {
    double first = 0;
    for (int i = 0; i < r->n_variants; i++) first = fmax(first, r->variant[i].first_loss);
    f->clipped = first > e->low && e->high > 2 * first;
    if (f->clipped) e->high = 2 * first;
}

/* Numbers of updates of long runs, in thousands. */
typedef struct panel_x {
    const char *label;
    double scale;
} panel_x;

static panel_x x_of_updates(double last) {
    return last >= 20000 ? (panel_x){"update (thousands)", 1000} : (panel_x){"update", 1};
}

static int draw_losses(report_figures *f, const report *r, blocks *b) {
    extent e = no_extent;
    const char *unit_name;
    char x_label[40];
    if (write_losses(f, r, b, &e)) return -1;
    if (!(e.high >= e.low)) return 0;
    clip(f, r, &e);
    const double unit = report_time_unit(e.last_time, &unit_name);
    snprintf(x_label, sizeof x_label, "training time (%s)", unit_name);
    const panel_x x = x_of_updates((double)e.last_step);
    panel p = {.name = "loss-updates",
               .data = "loss.dat",
               .x_label = x.label,
               .y_label = "training loss",
               .width = WIDTH,
               .x = 1,
               .y = 3,
               .x_scale = x.scale,
               .x_last = (double)e.last_step};
    set_range(&p, &e);
    if (add_panel(f, REPORT_LOSSES, &p, r, b)) return -1;
    if (!(e.last_time > 0)) return 0;
    p.name = "loss-time";
    p.x_label = x_label;
    p.x = 2;
    p.x_scale = unit;
    p.x_last = e.last_time;
    return add_panel(f, REPORT_LOSSES, &p, r, b);
}

/* ---- Validation -------------------------------------------------------------------------------------------------- */

/* Scores: what is evaluated while training goes on. They are columns of the report, from the validation loss on. */
enum { MOST_SCORES = REPORT_UPDATES - REPORT_VALID };

static int n_scores(const report *r) { return REPORT_FIRST_METRIC - REPORT_VALID + r->n_metrics; }

/* The least update after one that any run of the variant was evaluated at; -1: there is none. */
static int64_t next_evaluation(const report_variant *v, int64_t after) {
    int64_t next = -1;
    for (int i = 0; i < v->n; i++) {
        const report_series *s = &v->run[i]->valid;
        const size_t k = points_before(s, (double)after + 0.5);
        if (k < s->n && (next < 0 || s->at[k].step < next)) next = s->at[k].step;
    }
    return next;
}

static report_spread score_at(const report *r, const report_variant *v, int64_t step, int which, double *room) {
    int n = 0;
    for (int i = 0; i < v->n; i++) {
        const report_series *s = &v->run[i]->valid;
        const size_t k = points_before(s, (double)step);
        if (k < s->n && s->at[k].step == step) room[n++] = report_value(r, v->run[i], &s->at[k], REPORT_VALID + which);
    }
    return report_spread_of(room, n);
}

/* What a script needs to know of a score. */
typedef struct score {
    extent e;
    bool drawn; /* some variant has more than one row of it, so that there is a line */
} score;

static void write_evaluations(FILE *out, const report *r, const report_variant *v, double *room, score *scores) {
    int rows[MOST_SCORES] = {0};
    for (int64_t step = -1; (step = next_evaluation(v, step)) >= 0;) {
        fprintf(out, "%lld", (long long)step);
        for (int k = 0; k < n_scores(r); k++) {
            const report_spread y = score_at(r, v, step, k, room);
            extent *e = &scores[k].e;
            write_spread(out, &y);
            include(e, y.min);
            include(e, y.max);
            if (y.n && step > e->last_step) e->last_step = step;
            rows[k] += y.n > 0;
        }
        fputc('\n', out);
    }
    for (int k = 0; k < n_scores(r); k++) scores[k].drawn |= rows[k] > 1;
}

static void write_score_names(FILE *out, const report *r) {
    for (int k = 0; k < n_scores(r); k++) {
        const metric *m = &r->column[REPORT_VALID + k];
        fprintf(out, "%s%s%s%s", k ? ", " : "", m->label, *m->unit ? " " : "", m->unit);
    }
}

static int write_validations(report_figures *f, const report *r, blocks *b, score *scores) {
    report_file file;
    int next = 0;
    double *room = calloc((size_t)r->n, sizeof *room);
    if (!room) return text_fail(f->message, f->size, "out of memory");
    if (report_file_open(f, &file, "valid.dat")) {
        free(room);
        return -1;
    }
    for (int i = 0; i < r->n_variants; i++) {
        b[i] = (blocks){-1, -1};
        if (next_evaluation(&r->variant[i], -1) < 0) continue;
        fprintf(file.to, "# variant %d: update, then median, least and most of %d: ", i + 1, r->variant[i].n);
        write_score_names(file.to, r);
        fputc('\n', file.to);
        write_evaluations(file.to, r, &r->variant[i], room, scores);
        fprintf(file.to, "\n\n");
        b[i].line = next++;
    }
    free(room);
    return report_file_close(f, &file);
}

/* Percents are seen best as parts of a hundred, and what should rise from zero on. */
static void set_score_range(panel *p, const metric *m, const extent *e) {
    if (strcmp(m->unit, "%") == 0 && e->low >= 0 && e->high <= 102) p->y_high = 102;
    else if (m->better == METRIC_HIGHER && e->low >= 0) p->y_high = e->high > 0 ? 1.05 * e->high : 1;
    else set_range(p, e);
}

/* "valid-f1"; with a number behind it where runs have different metrics of one name. */
static void name_score(const report *r, int column, char *out, size_t size) {
    const char *name = r->column[column].name;
    int twins = 1;
    for (int c = REPORT_VALID; c < column; c++) twins += strcmp(r->column[c].name, name) == 0;
    if (twins == 1) snprintf(out, size, "valid-%s", name);
    else snprintf(out, size, "valid-%s-%d", name, twins);
}

static int draw_score(report_figures *f, const report *r, const blocks *b, int which, const extent *e, int width) {
    const int column = REPORT_VALID + which;
    const metric *m = &r->column[column];
    const panel_x x = x_of_updates((double)e->last_step);
    char name[48], label[128];
    name_score(r, column, name, sizeof name);
    snprintf(label, sizeof label, *m->unit ? "%s (%s)" : "%s", m->about, m->unit);
    panel p = {.name = name,
               .data = "valid.dat",
               .x_label = x.label,
               .y_label = label,
               .width = width,
               .x = 1,
               .y = 2 + 3 * which,
               .x_scale = x.scale,
               .x_last = 1.02 * (double)e->last_step,
               .marks = true};
    set_score_range(&p, m, e);
    return add_panel(f, REPORT_VALIDATIONS, &p, r, b);
}

static int draw_validations(report_figures *f, const report *r, blocks *b) {
    score scores[MOST_SCORES];
    bool several = false; /* loss and something else */
    for (int k = 0; k < MOST_SCORES; k++) scores[k] = (score){.e = no_extent};
    if (write_validations(f, r, b, scores)) return -1;
    for (int k = 1; k < n_scores(r); k++) several |= scores[k].drawn;
    for (int k = 0; k < n_scores(r); k++) {
        if (scores[k].drawn && draw_score(f, r, b, k, &scores[k].e, several ? NARROW : WIDTH)) return -1;
    }
    return 0;
}

int report_draw_curves(report_figures *f, const report *r) {
    int64_t last = 0;
    for (int i = 0; i < r->n_variants; i++) {
        if (last_step(&r->variant[i]) > last) last = last_step(&r->variant[i]);
    }
    f->window = last / WINDOWS > 1 ? last / WINDOWS : 1;
    blocks *b = calloc((size_t)r->n_variants, sizeof *b);
    if (!b) return text_fail(f->message, f->size, "out of memory");
    const int status = draw_losses(f, r, b) || draw_validations(f, r, b) ? -1 : 0;
    free(b);
    return status;
}
