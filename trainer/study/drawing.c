#include "study/drawing_parts.h"

#include "core/error.h"
#include "report/ridges.h"
#include "support/text.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* In pixels. */
enum {
    ACROSS = 3,   /* most panels side by side */
    HEIGHT = 280, /* of a panel, without title and legend */
    LEFT = 84,    /* margins of a panel */
    RIGHT = 20,
    BOTTOM = 56,
    TITLE = 32,
    LINE = 19,     /* a line of a legend */
    LETTER = 8,    /* a letter of it, in the widest fonts that stand in for Helvetica */
    SAMPLE = 30,   /* the line beside a name */
    GAP = 20,      /* between names */
    ROWS = 12,     /* most histograms of a panel */
    LENGTH = 40,   /* most characters of a name */
    FIRST_TAG = 10 /* of a legend's labels and arrows */
};

/* A place in the figure: a panel of curves, or the learning rates of a line. */
typedef struct cell {
    const drawing_panel *panel;
    drawing_curves curves;
    ridge_panel rates;
    bool drawn; /* there is something to draw */
    char title[200];
} cell;

typedef struct figure {
    const drawing *d;
    cell *cell;
    int n;
    ridge_axes axes;
    bool one_legend;    /* above all panels, which have the same lines */
    int columns, width; /* cells side by side, and the pixels of each */
} figure;

void drawing_line_name(const drawing_line *l, bool has, char out[DRAWING_NAME]) {
    int diverged = 0;
    for (int i = 0; i < l->n; i++) diverged += report_fate_of(l->run[i]) == REPORT_DIVERGED;
    const char *note = !l->n ? " (not run)" : diverged == l->n ? " (diverged)" : !has ? " (not recorded)" : "";
    snprintf(out, DRAWING_NAME, "%.64s%s", l->name, note);
}

/* ---- Data -------------------------------------------------------------------------------------------------------- */

static const report_run *run_with_histograms(const drawing_line *l) {
    for (int i = 0; i < l->n; i++) {
        if (l->run[i]->n_histograms) return l->run[i];
    }
    return NULL;
}

static void add_rates(figure *g, const drawing_panel *p, int line) {
    const drawing_line *l = &p->line[line];
    cell *c = &g->cell[g->n++];
    char name[DRAWING_NAME];
    *c = (cell){.panel = p, .rates = {.run = run_with_histograms(l), .variant = l->colour}};
    snprintf(c->rates.name, sizeof c->rates.name, "%.40s-%d-%d", g->d->name, (int)(p - g->d->panel) + 1, line + 1);
    c->drawn = c->rates.run != NULL;
    drawing_line_name(l, c->drawn, name);
    const bool titled = p->title && *p->title;
    if (titled && p->n_lines == 1) snprintf(c->title, sizeof c->title, "%s%s", p->title, name + strlen(l->name));
    else snprintf(c->title, sizeof c->title, "%s%s%s", titled ? p->title : "", titled ? ": " : "", name);
}

/* Chooses the rows of all panels of learning rates by the longest run. */
static void choose_rows(figure *g) {
    const report_run *longest = NULL;
    double until = 0;
    for (int i = 0; i < g->n; i++) {
        const report_run *r = g->cell[i].rates.run;
        if (!r) continue;
        until = fmax(until, g->cell[i].panel->until);
        if (!longest || r->histogram[r->n_histograms - 1].step > longest->histogram[longest->n_histograms - 1].step)
            longest = r;
    }
    g->axes = ridge_no_axes;
    if (longest) ridge_choose_rows(&g->axes, longest, ROWS, until);
}

/* All have the same axes and, where they can, the same scale of heights. */
static int make_rates(figure *g, report_figures *f) {
    ridge_panel *all = calloc((size_t)g->n + 1, sizeof *all);
    int n = 0, status = 0;
    if (!all) return adamod__fail(ADAMOD_ERROR_MEMORY, "out of memory");
    choose_rows(g);
    for (int i = 0; i < g->n; i++) {
        cell *c = &g->cell[i];
        if (!c->rates.run) continue;
        ridge_widen(&g->axes, &c->rates);
        c->drawn = c->rates.most > 0;
        if (c->drawn) all[n++] = c->rates;
    }
    if (n) ridge_round(&g->axes);
    ridge_share_scale(all, n);
    for (int i = 0, k = 0; i < g->n && !status; i++) {
        if (!g->cell[i].rates.run || !g->cell[i].drawn) continue;
        g->cell[i].rates = all[k++];
        status = ridge_write_data(f, &g->cell[i].rates, &g->axes);
    }
    free(all);
    return status;
}

static void join_ranges(drawing_curves *a, drawing_curves *b) {
    if (!a->score || !b->score || strcmp(a->y_label, b->y_label) != 0) return;
    a->p.y_low = b->p.y_low = fmin(a->p.y_low, b->p.y_low);
    a->p.y_high = b->p.y_high = fmax(a->p.y_high, b->p.y_high);
}

/* Panels of the same score have the same axis, so that eyes can compare them. Losses on different data cannot be compared. */
static void align_axes(figure *g) {
    for (int i = 0; i < g->n; i++) {
        for (int k = 0; k < g->n; k++) join_ranges(&g->cell[i].curves, &g->cell[k].curves);
    }
}

static int make_cells(figure *g, report_figures *f) {
    for (int i = 0; i < g->d->n_panels; i++) {
        const drawing_panel *p = &g->d->panel[i];
        for (int k = 0; p->kind == DRAWING_RATES && k < p->n_lines; k++) add_rates(g, p, k);
        if (p->kind == DRAWING_RATES) continue;
        cell *c = &g->cell[g->n++];
        *c = (cell){.panel = p};
        snprintf(c->title, sizeof c->title, "%s", p->title ? p->title : "");
        if (drawing_curves_make(&c->curves, f, g->d, i)) return -1;
        c->drawn = c->curves.any;
    }
    align_axes(g);
    return make_rates(g, f);
}

/* ---- Layout ------------------------------------------------------------------------------------------------------ */

static bool has_curves(const cell *c) { return c->panel->kind == DRAWING_CURVES; }

static bool same_lines(const cell *a, const cell *b) {
    bool same = a->panel->n_lines == b->panel->n_lines;
    for (int i = 0; i < a->panel->n_lines && same; i++)
        same =
            a->panel->line[i].colour == b->panel->line[i].colour && strcmp(a->curves.name[i], b->curves.name[i]) == 0;
    return same;
}

static const cell *first_curves(const figure *g) {
    for (int i = 0; i < g->n; i++) {
        if (has_curves(&g->cell[i])) return &g->cell[i];
    }
    return NULL;
}

static int longest_name(const cell *c) {
    int longest = 0;
    for (int i = 0; i < c->panel->n_lines; i++) {
        const int letters = (int)text_count_tokens(TEXT_CHARACTERS, text_of(c->curves.name[i]));
        if (letters > longest) longest = letters;
    }
    return longest < LENGTH ? longest : LENGTH;
}

/* The pixels of a name in the legend with what is beside it. */
static int entry_width(const cell *c) { return SAMPLE + longest_name(c) * LETTER + GAP; }

/* The number of names side by side in a legend of some width. */
static int legend_columns(const cell *c, int width) {
    const int columns = width / entry_width(c), n = c->panel->n_lines;
    return columns < 1 ? 1 : columns < n ? columns : n;
}

static int legend_width(const figure *g) { return (g->one_legend ? g->columns : 1) * g->width - LEFT + GAP; }

static void lay_out(figure *g) {
    static const int widths[ACROSS] = {520, 420, 345};
    const cell *first = first_curves(g);
    g->columns = g->n == 4 ? 2 : g->n < ACROSS ? g->n : ACROSS; /* four are a square */
    g->width = widths[g->columns - 1];
    g->one_legend = g->n > 1;
    for (int i = 0; i < g->n; i++) g->cell[i].curves.p.width = g->width;
    for (int i = 0; i < g->n; i++) g->one_legend &= !has_curves(&g->cell[i]) || same_lines(first, &g->cell[i]);
}

/* The height of the legends of a row of cells. */
static int legend_height(const figure *g, int row) {
    int most = 0;
    for (int i = row * g->columns; i < g->n && i < (row + 1) * g->columns; i++) {
        const cell *c = &g->cell[i];
        if (!has_curves(c) || !c->panel->n_lines) continue;
        const int columns = legend_columns(c, legend_width(g)), lines = (c->panel->n_lines + columns - 1) / columns;
        if (lines > most) most = lines;
    }
    return most * LINE;
}

/* The distance of a row from the top of the figure; row 0 lies below the common legend. */
static int row_top(const figure *g, int row) {
    const cell *first = first_curves(g);
    int y = g->one_legend && first ? legend_height(g, (int)(first - g->cell) / g->columns) + 6 : 0;
    for (int i = 0; i < row; i++) y += TITLE + (g->one_legend ? 0 : legend_height(g, i)) + HEIGHT;
    return y;
}

static int height_of(const figure *g) { return row_top(g, (g->n + g->columns - 1) / g->columns); }
static int width_of(const figure *g) { return g->columns * g->width; }

/* ---- Script ------------------------------------------------------------------------------------------------------ */

/* A text at a place in pixels from the upper left corner. */
static void write_label(FILE *out, const figure *g, int tag, const char *text, double x, double y, const char *how) {
    fprintf(out, "    set label %d ", tag);
    report_quote(out, text, 100);
    fprintf(out, " at screen %.5f, screen %.5f %s noenhanced\n", x / width_of(g), 1 - y / height_of(g), how);
}

/* Sets everything that a panel before it may have set otherwise. */
static void write_frame(FILE *out, const figure *g, const cell *c, double x, double y, double bottom) {
    const double w = width_of(g), h = height_of(g);
    fprintf(out,
            "    unset label\n    unset arrow\n    unset logscale\n    unset title\n    unset ylabel\n    unset key\n");
    fprintf(out, "    set border 3\n    set grid xtics ytics\n    set tics font font_name.',11'\n");
    fprintf(out, "    set xtics nomirror out scale 0.6\n    set ytics nomirror out scale 0.6 offset 0\n");
    fprintf(out, "    set lmargin at screen %.5f\n    set rmargin at screen %.5f\n", (x + LEFT) / w,
            (x + g->width - RIGHT) / w);
    fprintf(out, "    set tmargin at screen %.5f\n    set bmargin at screen %.5f\n", 1 - (bottom - HEIGHT) / h,
            1 - (bottom - BOTTOM) / h);
    write_label(out, g, 3, c->title, x + LEFT + (g->width - LEFT - RIGHT) / 2.0, y + TITLE / 2.0, "center");
}

/* A line and its name, at a place in pixels. gnuplot's own key would not reach beyond its panel. */
static void write_entry(FILE *out, const figure *g, const cell *c, int line, double x, double y) {
    const double w = width_of(g), level = 1 - y / height_of(g);
    const int colour = c->panel->line[line].colour + 1, tag = FIRST_TAG + line;
    fprintf(out,
            "    set arrow %d from screen %.5f, screen %.5f to screen %.5f, screen %.5f nohead linewidth 2 dashtype "
            "dash(%d) linecolor rgb colour(%d)\n    set label %d ",
            tag, x / w, level, (x + SAMPLE - 6) / w, level, colour, colour, tag);
    report_quote(out, c->curves.name[line], LENGTH);
    fprintf(out, " at screen %.5f, screen %.5f left font font_name.',12' noenhanced\n", (x + SAMPLE) / w, level);
}

/* The first panel has the legend of all. x, y: the corner of the panel. */
static void write_legend(FILE *out, const figure *g, const cell *c, double x, double y) {
    const int columns = legend_columns(c, legend_width(g));
    if (g->one_legend && c != first_curves(g)) return;
    if (g->one_legend) x = y = 0;
    else y += TITLE - 4;
    for (int i = 0; i < c->panel->n_lines; i++)
        write_entry(out, g, c, i, x + LEFT + i % columns * entry_width(c), y + i / columns * LINE + LINE / 2.0 + 2);
}

static void write_band(FILE *out, const cell *c, int line) {
    const panel *p = &c->curves.p;
    fprintf(out,
            "'%s' index %d using ($%d/%g):4:5 with filledcurves fillcolor rgb colour(%d) fillstyle transparent solid "
            "0.2 noborder notitle, \\\n         ",
            p->data, line, (int)p->axis + 1, p->x_scale, c->panel->line[line].colour + 1);
}

static void write_line(FILE *out, const cell *c, int line) {
    const panel *p = &c->curves.p;
    const int colour = c->panel->line[line].colour + 1;
    fprintf(out,
            "'%s' index %d using ($%d/%g):3 with %s linewidth 2 dashtype dash(%d) linecolor rgb colour(%d) notitle",
            p->data, line, (int)p->axis + 1, p->x_scale, p->marks ? "linespoints pointtype 7 pointsize 0.5" : "lines",
            colour, colour);
}

static void write_marks(FILE *out, const cell *c, int line) {
    const panel *p = &c->curves.p;
    fprintf(out,
            ", \\\n         '%s' index %d using ($%d/%g):3:('×') with labels font font_name.',20' textcolor rgb "
            "colour(%d) notitle",
            p->diverged, line, (int)p->axis + 1, p->x_scale, c->panel->line[line].colour + 1);
}

/* Not ylabel, which goes as far to the left as gnuplot takes numbers to be wide. */
static void write_y_label(FILE *out, const figure *g, int tag, const char *text, const char *font, double x) {
    fprintf(out, "    set label %d ", tag);
    report_quote(out, text, 100);
    fprintf(out, " at screen %.5f, graph 0.5 center rotate by 90 %s noenhanced\n", x / width_of(g), font);
}

static void write_curves(FILE *out, const figure *g, const cell *c, double x) {
    const panel *p = &c->curves.p;
    const int n = c->panel->n_lines;
    write_y_label(out, g, 4, c->curves.y_label, "", x + 14);
    if (*c->curves.note) write_y_label(out, g, 6, c->curves.note, "font font_name.',11'", x + 31);
    fprintf(out, "    set xlabel ");
    report_quote(out, p->x_label, 100);
    fprintf(out, " offset 0,0.7");
    fprintf(out, "\n    set xrange [0:%.6g]\n    set yrange [%.6g:%.6g]\n", p->x_last / p->x_scale, p->y_low,
            p->y_high);
    panel_ticks(out, p);
    fprintf(out, "    plot ");
    for (int i = 0; i < n; i++) {
        if (c->panel->line[i].n > 1) write_band(out, c, i);
    }
    for (int i = 0; i < n; i++) {
        fprintf(out, "%s", i ? ", \\\n         " : "");
        write_line(out, c, i);
    }
    for (int i = 0; i < n && p->diverged; i++) write_marks(out, c, i);
    fputc('\n', out);
}

/* A panel without data says so in its place. */
static void write_empty(FILE *out) {
    fprintf(out, "    set label 5 'no data yet' at graph 0.5, graph 0.5 center\n");
    fprintf(out,
            "    unset xlabel\n    unset tics\n    set xrange [0:1]\n    set yrange [0:1]\n    plot NaN notitle\n");
}

static void write_cell(FILE *out, const figure *g, int i) {
    const cell *c = &g->cell[i];
    const int row = i / g->columns;
    const double x = i % g->columns * g->width, y = row_top(g, row);
    fprintf(out, "\n    # panel %d\n", i + 1);
    write_frame(out, g, c, x, y, row_top(g, row + 1));
    if (has_curves(c)) write_legend(out, g, c, x, y);
    if (!c->drawn) {
        write_empty(out);
    } else if (has_curves(c)) {
        write_curves(out, g, c, x);
    } else {
        ridge_write_axes(out, &g->axes);
        fprintf(out, "    set xlabel offset 0,0.7\n    set ylabel offset 1\n");
        ridge_write_plot(out, &c->rates, &g->axes);
    }
}

static int write_script(report_figures *f, const figure *g, const char *name) {
    report_file file;
    if (report_file_open(&file, "%s.gp", name)) return -1;
    fprintf(file.to,
            "load 'style.gp'\ndo for [kind in kinds] {\n    eval figure(kind, '%s', %d, %d)\n    set multiplot\n", name,
            width_of(g), height_of(g));
    for (int i = 0; i < g->n; i++) write_cell(file.to, g, i);
    fprintf(file.to, "    unset multiplot\n}\nset output\n");
    return report_file_close(f, &file);
}

/* ---- For screen readers ------------------------------------------------------------------------------------------ */

/* "ResNet-34, test accuracy (%) against epoch: AdaMod ends at 94.3, Adam (not run)." */
static void describe_cell(FILE *out, const cell *c) {
    fprintf(out, " %s%s", c->title, *c->title ? ", " : "");
    if (!c->drawn) fprintf(out, "no data yet");
    else if (!has_curves(c)) fprintf(out, "histograms of effective learning rates");
    else fprintf(out, "%s against %s:", c->curves.y_label, c->curves.p.x_label);
    for (int k = 0; c->drawn && has_curves(c) && k < c->panel->n_lines; k++) {
        fprintf(out, "%s %s", k ? "," : "", c->curves.name[k]);
        if (isfinite(c->curves.last[k])) fprintf(out, " ends at %.3g", c->curves.last[k]);
    }
    fputc('.', out);
}

static void describe(const figure *g, report_drawing *d) {
    FILE *out = fmemopen(d->label, sizeof d->label, "w");
    if (!out) return;
    fprintf(out, "%s.", g->d->label);
    for (int i = 0; i < g->n; i++) describe_cell(out, &g->cell[i]);
    fclose(out);
    d->label[sizeof d->label - 1] = '\0';
}

/* ---- All --------------------------------------------------------------------------------------------------------- */

static int open_figure(figure *g, const drawing *d) {
    int n = 0;
    for (int i = 0; i < d->n_panels; i++) n += d->panel[i].kind == DRAWING_RATES ? d->panel[i].n_lines : 1;
    *g = (figure){.d = d, .cell = calloc((size_t)n + 1, sizeof *g->cell)};
    return g->cell ? 0 : adamod__fail(ADAMOD_ERROR_MEMORY, "out of memory");
}

static void close_figure(figure *g) {
    for (int i = 0; i < g->n; i++) drawing_curves_free(&g->cell[i].curves);
    free(g->cell);
}

/* The number of colours in use. */
static int colours_of(const drawing *d) {
    int most = 0;
    for (int i = 0; i < d->n_panels; i++) {
        for (int k = 0; k < d->panel[i].n_lines; k++) {
            if (d->panel[i].line[k].colour >= most) most = d->panel[i].line[k].colour + 1;
        }
    }
    return most;
}

static int draw(figure *g, report_figures *f, drawing_result *out) {
    bool any = false;
    if (report_figures_style(f) || make_cells(g, f)) return -1;
    for (int i = 0; i < g->n; i++) any |= g->cell[i].drawn;
    if (!any) {
        snprintf(out->why, sizeof out->why, "there are no data of it yet");
        return 0;
    }
    lay_out(g);
    report_drawing *d = report_figures_add(f, REPORT_LOSSES, g->d->name);
    if (!d || write_script(f, g, d->name)) return -1;
    describe(g, d);
    report_figures_draw(f, colours_of(g->d));
    out->svg = d->svg;
    out->pdf = d->pdf;
    d->svg = NULL;
    snprintf(out->why, sizeof out->why, "%s", f->why);
    return 0;
}

int drawing_make(const drawing *d, const char *directory, drawing_result *out) {
    report_figures f = {0};
    figure g;
    *out = (drawing_result){0};
    snprintf(f.directory, sizeof f.directory, "%s", directory);
    if (open_figure(&g, d)) return -1;
    const int status = draw(&g, &f, out);
    close_figure(&g);
    report_figures_free(&f);
    if (status) drawing_free(out);
    return status;
}

void drawing_free(drawing_result *r) {
    free(r->svg);
    *r = (drawing_result){0};
}
