/* curves.c - measurements during training against updates, epochs and time, as data files and gnuplot scripts.
 *
 * For training, a variant of one run has a thin line of every recorded update and a smoothed line over it; a variant of
 * several runs has the median of their smoothed lines in a band from smallest to largest. Evaluations are joined dots. */
#include "report/panels.h"
#include "report/series.h"

#include "core/error.h"
#include "support/text.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum {
    GRID = 500,  /* points of a line */
    RAW = 1500,  /* of a thin line */
    WIDTH = 520, /* of a drawing, in pixels */
    NARROW = 390 /* of evaluations, which may be three side by side */
};

/* ---- Quantities -------------------------------------------------------------------------------------------------- */

/* Quantities of training; metrics follow in the order of the report's columns. */
typedef enum quantity { LOSS, NLL, LEARNING_RATE, GRADIENT_NORM, FIRST_METRIC } quantity;

static double quantity_of(const report *r, const report_run *run, const report_point *p, int q) {
    switch (q) {
        case LOSS: return p->loss;
        case NLL: return run->has_perplexity ? p->nll : NAN;
        case LEARNING_RATE: return p->lr;
        case GRADIENT_NORM: return p->grad_norm;
        default: return report_value(r, run, p, REPORT_FIRST_METRIC + q - FIRST_METRIC);
    }
}

/* A quantity of a run, as a series_value. */
typedef struct run_quantity {
    const report *r;
    const report_run *run;
    int q;
} run_quantity;

static double read_quantity(const void *of, const report_point *p) {
    const run_quantity *what = of;
    return quantity_of(what->r, what->run, p, what->q);
}

/* A curve of training. */
typedef struct curve {
    const char *name; /* of its files */
    const char *label;
    int quantity;
    report_group group;
    int axes; /* number of axes it is drawn over */
    bool smoothed, exponential;
} curve;

static double shown(const curve *c, double y) { return c->exponential ? exp(y) : y; }

/* ---- Data -------------------------------------------------------------------------------------------------------- */

static int64_t last_step(const report_variant *v) {
    int64_t last = 0;
    for (int i = 0; i < v->n; i++) {
        const report_series *s = &v->run[i]->train;
        if (s->n && s->at[s->n - 1].step > last) last = s->at[s->n - 1].step;
    }
    return last;
}

static void write_smooth_rows(FILE *out, const curve *c, const series_means *m, int n, double last, double *room,
                              panel_extent *e, panel_blocks *b) {
    double before = -1;
    const double points = fmin(last, GRID);
    for (int k = 0; k <= points; k++) {
        const double step = fmax(1, floor(last * k / points));
        if (step == before) continue;
        before = step;
        for (int i = 0; i < n; i++) room[i] = shown(c, series_mean(&m[i], step));
        const report_spread y = report_spread_of(room, n);
        if (!y.n) continue;
        double place[AXES] = {step, 0, 0};
        fprintf(out, "%.0f", step);
        for (int a = AXIS_EPOCHS; a < AXES; a++) {
            for (int i = 0; i < n; i++) room[i] = series_at(m[i].s, step, panel_place, &a);
            place[a] = report_spread_of(room, n).median;
            panel_number(out, place[a]);
        }
        for (int a = 0; a < AXES; a++) panel_reach(e, (panel_axis)a, place[a]);
        panel_spread(out, &y);
        fputc('\n', out);
        panel_include(e, &y);
        panel_extend(b, 0, y.median, place);
    }
}

static int write_smooth(FILE *out, const report *r, const curve *c, const report_variant *v, int64_t window,
                        panel_extent *e, panel_blocks *b) {
    series_means *m = calloc((size_t)v->n, sizeof *m);
    double *room = calloc((size_t)v->n, sizeof *room);
    int made = 0;
    if (m && room) {
        for (; made < v->n; made++) {
            const run_quantity of = {r, v->run[made], c->quantity};
            if (series_means_make(&m[made], &v->run[made]->train, read_quantity, &of, window)) break;
        }
        if (made == v->n) write_smooth_rows(out, c, m, v->n, (double)last_step(v), room, e, b);
    }
    const int status = m && room && made == v->n ? 0 : -1;
    for (int i = 0; i < made; i++) series_means_free(&m[i]);
    free(m);
    free(room);
    return status;
}

static void write_raw_point(FILE *out, const report_point *p, double y) {
    fprintf(out, "%lld", (long long)p->step);
    panel_number(out, p->epoch);
    panel_number(out, p->time);
    panel_number(out, y);
    fputc('\n', out);
}

/* Writes every point; for long runs the least and the most of each interval, which looks the same. */
static void write_raw(FILE *out, const report *r, const curve *c, const report_run *run) {
    const report_series *s = &run->train;
    const size_t stretch = s->n > RAW ? (2 * s->n + RAW - 1) / RAW : 1;
    for (size_t i = 0; i < s->n; i += stretch) {
        const report_point *ends[2] = {NULL, NULL}; /* least and most */
        double value[2] = {0, 0};
        for (size_t k = i; k < i + stretch && k < s->n; k++) {
            const double y = shown(c, quantity_of(r, run, &s->at[k], c->quantity));
            if (!isfinite(y)) continue;
            if (!ends[0] || y < value[0]) ends[0] = &s->at[k], value[0] = y;
            if (!ends[1] || y > value[1]) ends[1] = &s->at[k], value[1] = y;
        }
        if (!ends[0]) continue;
        const int first = ends[0]->step < ends[1]->step ? 0 : 1;
        write_raw_point(out, ends[first], value[first]);
        if (ends[0] != ends[1]) write_raw_point(out, ends[!first], value[!first]);
    }
}

static bool has_quantity(const report *r, const report_variant *v, int q) {
    for (int i = 0; i < v->n; i++) {
        for (size_t k = 0; k < v->run[i]->train.n; k++) {
            if (isfinite(quantity_of(r, v->run[i], &v->run[i]->train.at[k], q))) return true;
        }
    }
    return false;
}

static int write_curve(report_figures *f, const report *r, const curve *c, panel_blocks *b, panel_extent *e) {
    const int64_t window = c->smoothed ? f->window : 1;
    report_file file;
    int next = 0, status = 0;
    if (report_file_open(&file, "%s.dat", c->name)) return -1;
    for (int i = 0; i < r->n_variants && !status; i++) {
        const report_variant *v = &r->variant[i];
        b[i] = panel_no_blocks;
        if (!has_quantity(r, v, c->quantity)) continue;
        if (v->n == 1 && c->smoothed) {
            fprintf(file.to, "# variant %d, one run: update, epoch, seconds, %s\n", i + 1, c->label);
            write_raw(file.to, r, c, v->run[0]);
            panel_end_block(file.to);
            b[i].raw = next++;
        }
        fprintf(file.to,
                "# variant %d, means of %lld updates: update, epoch, seconds, %s: median, least and most of %d\n",
                i + 1, (long long)window, c->label, v->n);
        status = write_smooth(file.to, r, c, v, window, e, &b[i]);
        panel_end_block(file.to);
        b[i].line = next++;
    }
    if (report_file_close(f, &file)) return -1;
    return status ? adamod__fail(ADAMOD_ERROR_MEMORY, "out of memory") : 0;
}

/* ---- Divergence -------------------------------------------------------------------------------------------------- */

/* Writes where a run ended and its last loss; at the top of the panel if that is not finite or above. */
static void write_end(FILE *out, const report_run *run, const panel *p) {
    const report_point *last = run->train.n ? &run->train.at[run->train.n - 1] : NULL;
    const double seconds = isfinite(run->seconds) ? run->seconds : last ? last->time : 0;
    fprintf(out, "%.0f", fmax(1, (double)report_last_step(run)));
    panel_number(out, last && isfinite(last->epoch) ? last->epoch : 0);
    panel_number(out, seconds);
    panel_number(out, last && isfinite(last->loss) ? fmin(fmax(last->loss, p->y_low), p->y_high) : p->y_high);
    fputc('\n', out);
}

static int write_divergences(report_figures *f, const report *r, const panel *p, bool *any) {
    report_file file;
    *any = false;
    if (report_file_open(&file, "diverged.dat")) return -1;
    fprintf(file.to, "# a block for each variant; where its runs diverged: update, epoch, seconds, training loss\n");
    for (int i = 0; i < r->n_variants; i++) {
        for (int k = 0; k < r->variant[i].n; k++) {
            if (report_fate_of(r->variant[i].run[k]) != REPORT_DIVERGED) continue;
            write_end(file.to, r->variant[i].run[k], p);
            *any = true;
        }
        panel_end_block(file.to);
    }
    return report_file_close(f, &file);
}

/* ---- Curves of training ------------------------------------------------------------------------------------------ */

/* Losses above twice the first one are cut off: they would flatten all others. */
static void clip(report_figures *f, const report *r, panel_extent *e) {
    double first = 0;
    for (int i = 0; i < r->n_variants; i++) first = fmax(first, r->variant[i].first_loss);
    f->clipped = first > e->low && e->high > 2 * first;
    if (f->clipped) e->high = 2 * first;
}

/* others: the extent of panels with the same scale, to which this one is added. NULL: none. */
static int draw_curve(report_figures *f, const report *r, const curve *c, panel_blocks *b, panel_extent *others) {
    panel_extent e = panel_no_extent;
    bool any = false, diverged = false;
    char data[48];
    for (int i = 0; i < r->n_variants; i++) any |= has_quantity(r, &r->variant[i], c->quantity);
    if (!any) return 0;
    if (write_curve(f, r, c, b, &e)) return -1;
    if (!(e.high >= e.low)) return 0;
    snprintf(data, sizeof data, "%s.dat", c->name);
    panel p = {.data = data, .y_label = c->label, .width = WIDTH, .y = 4};
    if (c->quantity == LOSS) clip(f, r, &e);
    if (others) panel_join(others, &e);
    if (c->quantity >= FIRST_METRIC)
        panel_score_range(&p, &r->column[REPORT_FIRST_METRIC + c->quantity - FIRST_METRIC], &e, INFINITY);
    else panel_range(&p, c->exponential && others ? others : &e, others ? others : &e);
    if (c->quantity == LEARNING_RATE && !p.logarithmic && e.high > 0) { /* most schedules are constant */
        p.y_low = 0;
        p.y_high = 1.1 * e.high;
    }
    if (c->quantity == LOSS && write_divergences(f, r, &p, &diverged)) return -1;
    if (diverged) p.diverged = "diverged.dat";
    for (int a = 0; a < c->axes; a++) {
        char name[48];
        if (!(e.last[a] > 0)) continue;
        snprintf(name, sizeof name, "%s-%s", c->name, panel_axis_names[a]);
        p.name = name;
        panel_x(&p, (panel_axis)a, e.last[a]);
        if (panel_add(f, c->group, &p, r, b)) return -1;
    }
    return 0;
}

/* Metrics of training batches, for example their accuracy. */
static int draw_training_metrics(report_figures *f, const report *r, panel_blocks *b) {
    for (int i = 0; i < r->n_metrics; i++) {
        const metric *m = &r->column[REPORT_FIRST_METRIC + i];
        char name[40], label[160];
        snprintf(name, sizeof name, "train-%.20s-%d", m->name, i + 1);
        snprintf(label, sizeof label, *m->unit ? "training %s (%s)" : "training %s", m->about, m->unit);
        const curve c = {name, label, FIRST_METRIC + i, REPORT_TRAINING, AXES, true, false};
        if (draw_curve(f, r, &c, b, NULL)) return -1;
    }
    return 0;
}

/* ---- Evaluations ------------------------------------------------------------------------------------------------- */

/* Scores are what evaluations during training measure: the report's columns from the validation loss on, and the perplexity
 * unless it is among them. */
static int n_scores(const report *r) {
    bool among = false;
    for (int i = 0; i < r->n_metrics; i++) among |= strcmp(r->column[REPORT_FIRST_METRIC + i].name, "ppl") == 0;
    return 1 + r->n_metrics + !among;
}

static bool is_perplexity(const report *r, int which) { return which > r->n_metrics; }

static const metric *score_metric(const report *r, int which) {
    static const metric perplexity = {"ppl", "perplexity", "perplexity", "", 1, 2, METRIC_LOWER, false, NULL};
    return is_perplexity(r, which) ? &perplexity : &r->column[REPORT_VALID + which];
}

static const report_series *evaluations(const report_run *run, report_group group) {
    return group == REPORT_TESTS ? &run->test : &run->valid;
}

static const char *split_of(report_group group) { return group == REPORT_TESTS ? "test" : "valid"; }

/* The first update after a given one with an evaluation of any run of the variant; -1: none. */
static int64_t next_evaluation(const report_variant *v, report_group group, int64_t after) {
    int64_t next = -1;
    for (int i = 0; i < v->n; i++) {
        const report_series *s = evaluations(v->run[i], group);
        const size_t k = series_before(s, (double)after + 0.5);
        if (k < s->n && (next < 0 || s->at[k].step < next)) next = s->at[k].step;
    }
    return next;
}

/* A score of a point; or, for AXIS + a, its place on the axis a. */
enum { AXIS = 1000 };
static double read_point(const report *r, const report_run *run, const report_point *p, int which) {
    if (which >= AXIS) return panel_place(&(int){which - AXIS}, p);
    if (is_perplexity(r, which)) return exp(quantity_of(r, run, p, NLL));
    return report_value(r, run, p, REPORT_VALID + which);
}

static report_spread spread_at(const report *r, const report_variant *v, report_group group, int64_t step, int which,
                               double *room) {
    int n = 0;
    for (int i = 0; i < v->n; i++) {
        const report_series *s = evaluations(v->run[i], group);
        const size_t k = series_before(s, (double)step);
        if (k < s->n && s->at[k].step == step) room[n++] = read_point(r, v->run[i], &s->at[k], which);
    }
    return report_spread_of(room, n);
}

enum { MARKED = 60 }; /* most points of a line with dots */

/* The extent of a score. */
typedef struct score {
    panel_extent e;
    double later; /* the least value after the first quarter of the updates */
    bool drawn;   /* a variant has more than one value, so there is a line */
} score;

static void write_evaluations(FILE *out, const report *r, const report_variant *v, report_group group, double *room,
                              score *scores, panel_blocks *b) {
    for (int64_t step = -1; (step = next_evaluation(v, group, step)) >= 0;) {
        double place[AXES] = {(double)step, 0, 0};
        fprintf(out, "%lld", (long long)step);
        for (int a = AXIS_EPOCHS; a < AXES; a++) {
            place[a] = spread_at(r, v, group, step, AXIS + a, room).median;
            panel_number(out, place[a]);
        }
        for (int k = 0; k < n_scores(r); k++) {
            const report_spread y = spread_at(r, v, group, step, k, room);
            panel_spread(out, &y);
            if (!y.n) continue;
            scores[k].drawn |= b->line_of[k].n > 0;
            panel_include(&scores[k].e, &y);
            if (step > last_step(v) / 4) scores[k].later = fmin(scores[k].later, y.min);
            panel_extend(b, k, y.median, place);
            for (int a = 0; a < AXES; a++) panel_reach(&scores[k].e, (panel_axis)a, place[a]);
        }
        fputc('\n', out);
    }
}

static void write_score_names(FILE *out, const report *r) {
    for (int k = 0; k < n_scores(r); k++) {
        const metric *m = score_metric(r, k);
        fprintf(out, "%s%s%s%s", k ? ", " : "", k ? m->label : "loss", *m->unit ? " " : "", m->unit);
    }
}

static int write_split(report_figures *f, const report *r, report_group group, panel_blocks *b, score *scores) {
    report_file file;
    int next = 0;
    double *room = calloc((size_t)r->n, sizeof *room);
    if (!room) return adamod__fail(ADAMOD_ERROR_MEMORY, "out of memory");
    if (report_file_open(&file, "%s.dat", split_of(group))) {
        free(room);
        return -1;
    }
    for (int i = 0; i < r->n_variants; i++) {
        b[i] = panel_no_blocks;
        if (next_evaluation(&r->variant[i], group, -1) < 0) continue;
        fprintf(file.to, "# variant %d: update, epoch, seconds, then median, least and most of %d: ", i + 1,
                r->variant[i].n);
        write_score_names(file.to, r);
        fputc('\n', file.to);
        write_evaluations(file.to, r, &r->variant[i], group, room, scores, &b[i]);
        fprintf(file.to, "\n\n");
        b[i].line = next++;
    }
    free(room);
    return report_file_close(f, &file);
}

/* "valid-f1"; then a number if runs have different metrics of the same name, and the axis unless it is updates. */
static void name_score(const report *r, report_group group, int which, panel_axis a, char *out, size_t size) {
    const char *name = score_metric(r, which)->name;
    int twins = 1;
    for (int k = 0; k < which; k++) twins += strcmp(score_metric(r, k)->name, name) == 0;
    snprintf(out, size, "%s-%s", split_of(group), name);
    if (twins > 1) text_add(out, size, "-%d", twins);
    if (a != AXIS_UPDATES) text_add(out, size, "-%s", panel_axis_names[a]);
}

/* The evaluations of a split. */
typedef struct split {
    report_group group;
    panel_blocks *b; /* blocks of each variant */
    score *scores;
} split;

/* Extents that panels of several splits share. */
typedef struct scales {
    panel_extent loss, perplexity;
} scales;

static int draw_score(report_figures *f, const report *r, const split *of, int which, const scales *s, int width) {
    const metric *m = score_metric(r, which);
    const report_group group = of->group;
    const panel_blocks *b = of->b;
    const panel_extent *e = &of->scores[which].e;
    const bool perplexity = is_perplexity(r, which);
    char data[16], label[160];
    const char *what = which ? m->about : "loss", *split_name = group == REPORT_TESTS ? "test" : report_evaluated(r);
    snprintf(data, sizeof data, "%s.dat", split_of(group));
    snprintf(label, sizeof label, *m->unit ? "%s %s (%s)" : "%s %s", split_name, what, m->unit);
    panel p = {.data = data, .y_label = label, .width = width, .y = 4 + 3 * which, .score = which, .marks = true};
    for (int i = 0; i < r->n_variants; i++) p.marks &= b[i].line_of[which].n <= MARKED;
    if (perplexity) panel_range(&p, &s->perplexity, &s->perplexity);
    else if (which == 0) panel_range(&p, e, &s->loss);
    else panel_score_range(&p, m, e, of->scores[which].later);
    f->from_below[group] |= e->low < p.y_low;
    for (int a = 0; a < AXES; a++) {
        char name[64];
        if (!(e->last[a] > 0)) continue;
        name_score(r, group, which, (panel_axis)a, name, sizeof name);
        p.name = name;
        panel_x(&p, (panel_axis)a, 1.02 * e->last[a]);
        if (panel_add(f, perplexity ? REPORT_PERPLEXITIES : group, &p, r, b)) return -1;
    }
    return 0;
}

static int draw_split(report_figures *f, const report *r, const split *s, const scales *of) {
    bool several = false; /* loss and something else */
    int status = 0;
    for (int k = 1; k <= r->n_metrics; k++) several |= s->scores[k].drawn;
    for (int k = 0; k < n_scores(r) && !status; k++) {
        const bool narrow = several && !is_perplexity(r, k);
        if (s->scores[k].drawn) status = draw_score(f, r, s, k, of, narrow ? NARROW : WIDTH);
    }
    return status;
}

/* Writes the data of a split and adds their extent to the scales. */
static int open_split(report_figures *f, const report *r, split *s, scales *of) {
    s->b = calloc((size_t)r->n_variants, sizeof *s->b);
    s->scores = calloc((size_t)n_scores(r), sizeof *s->scores);
    if (!s->b || !s->scores) return adamod__fail(ADAMOD_ERROR_MEMORY, "out of memory");
    for (int k = 0; k < n_scores(r); k++) s->scores[k] = (score){.e = panel_no_extent, .later = INFINITY};
    if (write_split(f, r, s->group, s->b, s->scores)) return -1;
    for (int k = 0; k < n_scores(r); k++) {
        if (!s->scores[k].drawn) continue;
        if (k == 0) panel_join(&of->loss, &s->scores[k].e);
        if (is_perplexity(r, k)) panel_join(&of->perplexity, &s->scores[k].e);
    }
    return 0;
}

static void close_split(split *s) {
    free(s->b);
    free(s->scores);
}

/* ---- All of them ------------------------------------------------------------------------------------------------- */

static int draw_with(report_figures *f, const report *r, panel_blocks *b, split *valid, split *test) {
    static const curve loss = {"loss", "training loss", LOSS, REPORT_LOSSES, AXES, true, false};
    static const curve perplexity = {"perplexity", "training perplexity", NLL, REPORT_PERPLEXITIES, AXES, true, true};
    static const curve rate = {"lr", "learning rate", LEARNING_RATE, REPORT_STEPS, 1, false, false};
    static const curve norm = {"grad-norm", "gradient norm", GRADIENT_NORM, REPORT_STEPS, 1, true, false};
    scales s = {panel_no_extent, panel_no_extent};
    if (open_split(f, r, valid, &s) || open_split(f, r, test, &s)) return -1;
    return draw_curve(f, r, &loss, b, &s.loss) || draw_training_metrics(f, r, b) ||
           draw_curve(f, r, &perplexity, b, &s.perplexity) || draw_split(f, r, valid, &s) ||
           draw_split(f, r, test, &s) || draw_curve(f, r, &rate, b, NULL) || draw_curve(f, r, &norm, b, NULL);
}

int report_draw_curves(report_figures *f, const report *r) {
    split valid = {.group = REPORT_VALIDATIONS}, test = {.group = REPORT_TESTS};
    int64_t last = 0;
    for (int i = 0; i < r->n_variants; i++) {
        if (last_step(&r->variant[i]) > last) last = last_step(&r->variant[i]);
    }
    f->window = panel_window(last);
    panel_blocks *b = calloc((size_t)r->n_variants, sizeof *b);
    const int status = b ? draw_with(f, r, b, &valid, &test) : adamod__fail(ADAMOD_ERROR_MEMORY, "out of memory");
    close_split(&valid);
    close_split(&test);
    free(b);
    return status ? -1 : 0;
}
