/* panels.c - see panels.h.
 *
 * SPDX-License-Identifier: MIT
 */
#include "report/panels.h"

#include "base/text.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum {
    HEIGHT = 310, /* in pixels, without the key */
    LINE = 18,    /* of the key */
    LEFT = 92,    /* margins; the page's script finds values by them */
    RIGHT = 22,   /* half of a last number that ends there, 15000 */
    BOTTOM = 62,
    TOP = 12,
    NAME_LENGTH = 40, /* characters of a variant's name in a key */
    LETTER = 9,       /* pixels of a letter of a key, for columns: more than gnuplot thinks */
    SAMPLE = 60,      /* of the piece of line beside a name */
    LOG_FROM = 20     /* how far largest and smallest must be apart for a logarithmic axis */
};

/* ---- What is drawn ----------------------------------------------------------------------------------------------- */

const char *const panel_axis_names[AXES] = {"updates", "epochs", "time"};
const panel_extent panel_no_extent = {INFINITY, -INFINITY, {0, 0, 0}};
const panel_blocks panel_no_blocks = {.raw = -1, .line = -1};

void panel_include(panel_extent *e, const report_spread *y) {
    if (!y->n) return;
    e->low = fmin(e->low, y->min);
    e->high = fmax(e->high, y->max);
}

void panel_reach(panel_extent *e, panel_axis a, double x) {
    if (isfinite(x)) e->last[a] = fmax(e->last[a], x);
}

void panel_extend(panel_blocks *b, int line, double y) {
    if (b->line_of[line].n++ == 0) b->line_of[line].first = y;
    b->line_of[line].last = y;
}

void panel_range(panel *p, const panel_extent *e) {
    p->logarithmic = e->low > 0 && e->high > LOG_FROM * e->low;
    const double air = p->logarithmic ? pow(e->high / e->low, 0.05) : fmax(0.05 * (e->high - e->low), 1e-3 * e->high);
    p->y_low = p->logarithmic ? e->low / air : e->low - air;
    p->y_high = p->logarithmic ? e->high * air : e->high + air;
    if (e->low >= 0 && p->y_low < 0) p->y_low = 0;
    if (!(p->y_high > p->y_low)) p->y_high = p->y_low + 1;
}

void panel_x(panel *p, panel_axis a, double last) {
    const bool thousands = a == AXIS_UPDATES && last >= 20000;
    const char *unit = "";
    p->axis = a;
    p->x_scale = a == AXIS_TIME ? report_time_unit(last, &unit) : thousands ? 1000 : 1;
    p->x_last = last;
    if (a == AXIS_TIME) snprintf(p->x_label, sizeof p->x_label, "training time (%s)", unit);
    else
        snprintf(p->x_label, sizeof p->x_label,
                 a == AXIS_EPOCHS ? "epoch"
                 : thousands      ? "update (thousands)"
                                  : "update");
}

/* ---- Names in keys for print ------------------------------------------------------------------------------------- */

/* About the pixels that a code point takes in Helvetica of 12, which gnuplot does not know. */
static int letter_width(text_slice point) {
    const char c = *point.bytes;
    if (point.n > 1) return 12;
    if (strchr("ijl.,;:'|!()[] ftIr-", c)) return 5;
    if (strchr("mwMW@%", c)) return 12;
    return c >= 'A' && c <= 'Z' ? 9 : 7;
}

/* How many code points of a name fit. */
static int letters_that_fit(const char *name, int pixels) {
    int n = 0;
    for (text_slice rest = text_of(name); rest.n && n < NAME_LENGTH; n++) {
        const size_t bytes = text_code_point(rest) ? text_code_point(rest) : 1;
        if ((pixels -= letter_width((text_slice){rest.bytes, bytes})) < 0) break;
        rest.bytes += bytes;
        rest.n -= bytes;
    }
    return n > 0 ? n : 1;
}

/* ---- Scripts ----------------------------------------------------------------------------------------------------- */

/* A block of a data file and how it is drawn. */
typedef enum look { LOOK_RAW, LOOK_BAND, LOOK_LINE, LOOK_DIVERGED, LOOKS } look;

static bool has_look(const panel *p, const report_variant *v, const panel_blocks *b, look l) {
    switch (l) {
        case LOOK_RAW: return b->raw >= 0;
        case LOOK_BAND: return b->line >= 0 && v->n > 1;
        case LOOK_LINE: return b->line >= 0;
        default: return p->diverged && v->fates[REPORT_DIVERGED];
    }
}

static void write_plot(FILE *out, const panel *p, const report *r, const panel_blocks *b, int variant, look l) {
    const int block = l == LOOK_DIVERGED ? variant : l == LOOK_RAW ? b->raw : b->line, i = variant + 1;
    fprintf(out, "'%s' index %d using ($%d/%g):", l == LOOK_DIVERGED ? p->diverged : p->data, block, (int)p->axis + 1,
            p->x_scale);
    if (l == LOOK_RAW) {
        fprintf(out, "%d with lines linewidth 0.8 linecolor rgb faint(%d) notitle", p->y, i);
    } else if (l == LOOK_BAND) {
        fprintf(out,
                "%d:%d with filledcurves fillcolor rgb colour(%d) fillstyle transparent solid 0.2 noborder notitle",
                p->y + 1, p->y + 2, i);
    } else if (l == LOOK_LINE) {
        fprintf(out, "%d with %s linewidth 2 dashtype dash(%d) linecolor rgb colour(%d) title ", p->y,
                p->marks ? "linespoints pointtype 7 pointsize 0.5" : "lines", i, i);
        const char *name = r->variant[variant].label;
        report_quote(out, name, letters_that_fit(name, p->width - LEFT - RIGHT - SAMPLE));
    } else {
        fprintf(out, "%d:('×') with labels font font_name.',20' textcolor rgb colour(%d) notitle", p->y, i);
    }
}

/* Adds to the plots of a drawing; -1: no memory. */
static int add_plot(report_drawing *d, int variant, look l) {
    report_plot *grown = realloc(d->plot, ((size_t)d->n_plots + 1) * sizeof *grown);
    if (!grown) return -1;
    d->plot = grown;
    d->plot[d->n_plots++] = (report_plot){variant, l == LOOK_LINE};
    return 0;
}

static int write_plots(FILE *out, const panel *p, const report *r, const panel_blocks *b, report_drawing *d) {
    for (int l = 0; l < LOOKS; l++) {
        for (int i = 0; i < r->n_variants; i++) {
            if (!has_look(p, &r->variant[i], &b[i], (look)l)) continue;
            fprintf(out, "%s", d->n_plots ? ", \\\n         " : "    plot ");
            write_plot(out, p, r, &b[i], i, (look)l);
            if (add_plot(d, r->first + i, (look)l)) return -1;
        }
    }
    return 0;
}

/* Between marks of an axis: 1, 2 or 5 times a power of ten, so that there are at most so many. */
static double tick_step(double range, int most) {
    const double least = range / most, power = pow(10, floor(log10(least)));
    return least <= power ? power : least <= 2 * power ? 2 * power : least <= 5 * power ? 5 * power : 10 * power;
}

/* How many names fit side by side above the plot, and how many lines of them that makes. */
static int key_columns(const panel *p, const report *r, const panel_blocks *b, int *lines) {
    int longest = 0, shown = 0;
    for (int i = 0; i < r->n_variants; i++) {
        if (b[i].line < 0) continue;
        const int n = (int)text_count_tokens(TEXT_CHARACTERS, text_of(r->variant[i].label));
        if (n > longest) longest = n < NAME_LENGTH ? n : NAME_LENGTH;
        shown++;
    }
    int columns = (p->width - LEFT) / (longest * LETTER + 50);
    if (columns > shown) columns = shown;
    if (columns < 1) columns = 1;
    *lines = (shown + columns - 1) / columns;
    return columns;
}

/* The page has a key of its own, of text; what is for print has one above the plot. */
static void write_frame(FILE *out, const panel *p, const report *r, const panel_blocks *b) {
    int lines;
    const int columns = key_columns(p, r, b, &lines);
    fprintf(out, "set key maxcols %d\n", columns);
    fprintf(out, "do for [kind in 'page '.kinds] {\n    top = kind eq 'page' ? %d : %d\n    height = %d + top\n", TOP,
            TOP + LINE * lines, HEIGHT - TOP);
    fprintf(out, "    eval figure(kind, '%s', %d, height)\n    if (kind eq 'page') { unset key } else { set key }\n",
            p->name, p->width);
    fprintf(out,
            "    set lmargin at screen %d / %d.0\n    set rmargin at screen %d / %d.0\n"
            "    set bmargin at screen %d / (1.0 * height)\n    set tmargin at screen 1 - top / (1.0 * height)\n",
            LEFT, p->width, p->width - RIGHT, p->width, BOTTOM);
}

static int write_script(FILE *out, const panel *p, const report *r, const panel_blocks *b, report_drawing *d) {
    fprintf(out, "load 'style.gp'\nset xlabel ");
    report_quote(out, p->x_label, 100);
    fprintf(out, "\n# not ylabel, which goes as far to the left as gnuplot takes numbers to be wide\nset label 1 ");
    report_quote(out, p->y_label, 100);
    fprintf(
        out,
        " at screen 16 / %d.0, graph 0.5 center rotate by 90 noenhanced\nset xrange [0:%.6g]\nset yrange [%.6g:%.6g]\n",
        p->width, p->x_last / p->x_scale, p->y_low, p->y_high);
    fprintf(out, "set xtics %.6g\nset format y '%%g'\n", tick_step(p->x_last / p->x_scale, p->width / 55));
    fprintf(out, "%s", p->logarithmic ? "set logscale y\n" : "");
    write_frame(out, p, r, b);
    const int status = write_plots(out, p, r, b, d);
    fprintf(out, "\n}\nset output\n");
    return status;
}

/* ---- For those who do not see it --------------------------------------------------------------------------------- */

/* "Training loss against update. AdaMod: from 4.02 to 0.612. Adam: diverged." */
static void describe(const panel *p, const report *r, const panel_blocks *b, report_drawing *d) {
    FILE *out = fmemopen(d->label, sizeof d->label, "w");
    if (!out) return;
    fprintf(out, "%c%s against %s.", report_capital(p->y_label[0]), p->y_label + 1, p->x_label);
    for (int i = 0; i < r->n_variants; i++) {
        const int n = b[i].line_of[p->score].n;
        const bool line = b[i].line >= 0 && n, diverged = has_look(p, &r->variant[i], &b[i], LOOK_DIVERGED);
        if (!line && !diverged) continue;
        fprintf(out, " %s:", r->variant[i].name);
        if (line) fprintf(out, " from %.3g to %.3g", b[i].line_of[p->score].first, b[i].line_of[p->score].last);
        fprintf(out, "%s%s.", line && diverged ? "," : "", diverged ? " diverged" : "");
    }
    fclose(out);
    d->label[sizeof d->label - 1] = '\0';
}

int panel_add(report_figures *f, report_group group, const panel *p, const report *r, const panel_blocks *b) {
    report_file file;
    report_drawing *d = report_figures_add(f, group, p->name);
    if (!d || report_file_open(f, &file, "%s.gp", p->name)) return -1;
    d->for_page = true;
    describe(p, r, b, d);
    snprintf(d->attributes, sizeof d->attributes,
             " data-axis=\"%s\" data-label=\"%s\" data-box=\"%d %d %d %d\" data-x=\"%.6g\" data-y=\"%.6g %.6g\"%s",
             panel_axis_names[p->axis], p->x_label, LEFT, TOP, p->width - RIGHT, HEIGHT - BOTTOM,
             p->x_last / p->x_scale, p->y_low, p->y_high, p->logarithmic ? " data-log=\"\"" : "");
    const int status = write_script(file.to, p, r, b, d);
    if (report_file_close(f, &file)) return -1;
    return status ? text_fail(f->message, f->size, "out of memory") : 0;
}
