/* standings_figure.c - the metric against the tuned value. A drawing has at most as many variants as there are colours. */
#include "study/standings_parts.h"

#include "report/panels.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* A drawing. */
typedef struct chart {
    const standings *s;
    int group, first, end; /* variants */
    bool numbers;          /* all values are numbers above 0, on a logarithmic axis; else they stand side by side */
    double low, high;      /* of all variants of the group, up to where a run that learned nothing is */
    double least, last;    /* values that are numbers, of all variants */
    bool logarithmic;      /* the axis of the metric too */
    char name[64];
} chart;

enum { MANY_TIMES = 4 }; /* the lowest of a logarithmic axis */

/* Whether a value is so bad that its run learned nothing; its place is outside the chart, at the top. */
static bool is_lost(const chart *c, double x) { return x > c->s->metric[c->group].start; }

/* Extends the range of a chart by the values of a variant. */
static void include(chart *c, const standing *at) {
    for (int i = 0; i < at->n; i++) {
        const report_spread *y = &at->value[i].spread;
        const double x = standings_number(at->value[i].value);
        c->numbers &= !isnan(x);
        c->least = fmin(c->least, x);
        c->last = fmax(c->last, x);
        c->low = fmin(c->low, y->min);
        if (y->n) c->high = fmax(c->high, is_lost(c, y->max) ? fmax(y->min, c->s->metric[c->group].start) : y->max);
    }
}

/* Values outside the chart have no mark of their own but the × of those that diverged. */
static void write_block(FILE *out, const chart *c, const standing *at, double top) {
    const report_spread nothing = {.median = NAN, .min = NAN, .max = NAN};
    for (int i = 0; i < at->n; i++) {
        const standing_value *v = &at->value[i];
        const bool lost = v->spread.n && is_lost(c, v->spread.median);
        fprintf(out, "%.10g", c->numbers ? standings_number(v->value) : i);
        panel_spread(out, lost ? &nothing : &v->spread);
        panel_number(out, v->diverged || lost ? top : NAN);
        fputc('\n', out);
    }
    panel_end_block(out);
}

/* The ends of the axis: a margin around the data, in which the marks of runs that diverged are. */
static double beyond(const chart *c, double share) {
    const double span = c->high - c->low;
    if (c->logarithmic) return c->high * pow(c->high / c->low, share);
    return c->high + (span > 0 ? share * span : share * fmax(fabs(c->high), 1e-2));
}

static double below(const chart *c, double share) {
    return c->logarithmic ? c->low * c->high / beyond(c, share) : c->low + c->high - beyond(c, share);
}

/* The marks of each variant have a height of their own, above the data: those of equal values would cover each other. */
static const double lane = 0.035;
static double top_of(const chart *c) { return lane * (c->end - c->first + 1); }

static int write_data(report_figures *f, const chart *c) {
    report_file file;
    if (report_file_open(&file, "%s.dat", c->name)) return -1;
    for (int v = c->first; v < c->end; v++)
        write_block(file.to, c, standings_at(c->s, c->group, v), beyond(c, lane * (v - c->first + 1)));
    return report_file_close(f, &file);
}

static void write_axes(FILE *out, const chart *c) {
    const standing *first = standings_at(c->s, c->group, c->first);
    char y[128];
    standings_metric_text(&c->s->metric[c->group], y, sizeof y);
    fputs("load 'style.gp'\nset xlabel ", out);
    report_quote(out, standings_key(c->s), 40);
    fputs(" noenhanced\nset ylabel ", out);
    report_quote(out, y, 60);
    fprintf(out, " noenhanced\nset yrange [%.10g:%.10g]\n", below(c, 0.07), beyond(c, top_of(c)));
    if (c->logarithmic) fputs("set logscale y\nset ytics add (2, 3, 5, 7, 20, 30, 50, 70, 200, 500)\n", out);
    if (c->numbers) {
        const double beside = fmax(pow(c->last / c->least, 0.04), 1.1);
        fprintf(out, "set logscale x\nset format x '%%g'\nset xrange [%.10g:%.10g]\n", c->least / beside,
                c->last * beside);
        return;
    }
    fputs("set xtics noenhanced (", out);
    for (int i = 0; i < first->n; i++) {
        fputs(i ? ", " : "", out);
        report_quote(out, first->value[i].value, 20);
        fprintf(out, " %d", i);
    }
    fprintf(out, ")\nset xrange [-0.3:%.1f]\n", first->n - 0.7);
}

/* The bars of all variants lie below the lines of all. */
static void write_lines(FILE *out, const chart *c) {
    for (int v = c->first; v < c->end; v++) {
        const int block = v - c->first;
        fprintf(
            out,
            "%s'%s.dat' index %d using 1:2:3:4 with yerrorbars pointtype 7 pointsize 0.01 linewidth 1 linecolor rgb "
            "faint(%d) notitle",
            v > c->first ? ", \\\n         " : "    plot ", c->name, block, block + 1);
    }
    for (int v = c->first; v < c->end; v++) {
        const int block = v - c->first, colour = block + 1;
        fprintf(
            out,
            ", \\\n         '' index %d using 1:5:('×') with labels noenhanced textcolor rgb colour(%d) notitle, \\\n"
            "         '' index %d using 1:2 with linespoints pointtype 7 pointsize 0.5 linewidth 2 linecolor rgb "
            "colour(%d) title ",
            block, colour, block, colour);
        report_quote(out, c->s->variant[v], 40);
    }
    fputc('\n', out);
}

static int write_script(report_figures *f, const chart *c) {
    report_file file;
    if (report_file_open(&file, "%s.gp", c->name)) return -1;
    write_axes(file.to, c);
    fprintf(file.to, "set key maxcols 2\ndo for [kind in kinds] {\n    eval figure(kind, '%s', 520, %d)\n", c->name,
            340 + 10 * (c->end - c->first));
    write_lines(file.to, c);
    fputs("}\nset output\n", file.to);
    return report_file_close(f, &file);
}

static int draw_chart(report_figures *f, const chart *c) {
    if (write_data(f, c) || write_script(f, c)) return -1;
    report_drawing *d = report_figures_add(f, REPORT_VALIDATIONS, c->name);
    if (!d) return -1;
    char what[128];
    standings_metric_text(&c->s->metric[c->group], what, sizeof what);
    snprintf(d->label, sizeof d->label, "%s%s%s against %s; the table has its values", c->s->group[c->group],
             *c->s->group[c->group] ? ": " : "", what, standings_key(c->s));
    return 0;
}

int standings_draw(const standings *s, report_figures *f) {
    for (int g = 0; g < s->n_groups; g++) {
        const standing_metric *m = &s->metric[g];
        chart c = {
            .s = s, .group = g, .numbers = true, .low = INFINITY, .high = -INFINITY, .least = INFINITY, .last = 0};
        for (int v = 0; v < s->n_variants; v++) include(&c, standings_at(s, g, v));
        c.logarithmic = m->better == METRIC_LOWER && c.low > 0 && c.high >= MANY_TIMES * c.low;
        for (int first = 0; c.low <= c.high && first < s->n_variants; first += REPORT_COLOURS) {
            c.first = first;
            c.end = first + REPORT_COLOURS < s->n_variants ? first + REPORT_COLOURS : s->n_variants;
            if (s->o.name) snprintf(c.name, sizeof c.name, "%.40s-%d", s->o.name, first / REPORT_COLOURS + 1);
            else snprintf(c.name, sizeof c.name, "tuned-%d-%d", g + 1, first / REPORT_COLOURS + 1);
            if (draw_chart(f, &c)) return -1;
        }
    }
    report_figures_draw(f, REPORT_COLOURS);
    return 0;
}
