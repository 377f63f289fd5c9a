#include "report/panels.h"

#include "core/error.h"
#include "support/text.h"
#include "support/array.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum {
    HEIGHT = 310, /* in pixels, without the key */
    LINE = 18,    /* pixels of a line of the key */
    LEFT = 92,    /* margins; the page's script finds values by them */
    RIGHT = 22,   /* half of a last number such as 15000 */
    BOTTOM = 62,
    TOP = 12,
    NAME_LENGTH = 40,  /* characters of a variant's name in a key */
    LETTER = 9,        /* pixels of a letter of the key, more than gnuplot estimates */
    SAMPLE = 60,       /* pixels of the line beside a name in the key */
    WINDOWS = 50,      /* means of a smoothed line side by side */
    LOG_FROM = 20,     /* least ratio of largest to smallest for a logarithmic axis */
    WIDE = 760,        /* width of a drawing with names at the ends of lines */
    NAMED_LETTER = 7,  /* pixels of a letter of such a name */
    NAMED_LINE = 13,   /* pixels of its line */
    NAMED_LENGTH = 26, /* most characters of it */
    LEAD = 40,         /* pixels between a line and its name */
    LEAST_WIDE = 600   /* least width at which names are legible */
};

/* ---- What is drawn ----------------------------------------------------------------------------------------------- */

const char *const panel_axis_names[AXES] = {"updates", "epochs", "time"};
const panel_extent panel_no_extent = {INFINITY, -INFINITY, {0, 0, 0}};
const panel_blocks panel_no_blocks = {.raw = -1, .line = -1};

double panel_place(const void *axis, const report_point *p) {
    const int a = *(const int *)axis;
    return a == AXIS_UPDATES ? (double)p->step : a == AXIS_EPOCHS ? p->epoch : p->time;
}

void panel_number(FILE *out, double x) {
    if (isfinite(x)) fprintf(out, " %.6g", x);
    else fputs(" NaN", out);
}

void panel_spread(FILE *out, const report_spread *y) {
    panel_number(out, y->median);
    panel_number(out, y->min);
    panel_number(out, y->max);
}

/* gnuplot would not count a block without numbers. */
void panel_end_block(FILE *out) { fprintf(out, "NaN NaN NaN NaN NaN NaN\n\n\n"); }

int64_t panel_window(int64_t last) { return last / WINDOWS > 1 ? last / WINDOWS : 1; }

void panel_include(panel_extent *e, const report_spread *y) {
    if (!y->n) return;
    e->low = fmin(e->low, y->min);
    e->high = fmax(e->high, y->max);
}

void panel_reach(panel_extent *e, panel_axis a, double x) {
    if (isfinite(x)) e->last[a] = fmax(e->last[a], x);
}

void panel_join(panel_extent *e, const panel_extent *with) {
    e->low = fmin(e->low, with->low);
    e->high = fmax(e->high, with->high);
}

void panel_extend(panel_blocks *b, int line, double y, const double place[AXES]) {
    if (b->line_of[line].n++ == 0) b->line_of[line].first = y;
    b->line_of[line].last = y;
    memcpy(b->line_of[line].end, place, sizeof b->line_of[line].end);
}

void panel_range(panel *p, const panel_extent *e, const panel_extent *all) {
    p->logarithmic = all->low > 0 && all->high > LOG_FROM * all->low;
    const double air = p->logarithmic ? pow(e->high / e->low, 0.05) : fmax(0.05 * (e->high - e->low), 1e-3 * e->high);
    p->y_low = p->logarithmic ? e->low / air : e->low - air;
    p->y_high = p->logarithmic ? e->high * air : e->high + air;
    if (e->low >= 0 && p->y_low < 0) p->y_low = 0;
    if (!(p->y_high > p->y_low)) p->y_high = p->y_low + 1;
}

void panel_score_range(panel *p, const metric *m, const panel_extent *e, double later) {
    if (strcmp(m->unit, "%") == 0 && e->low >= 0 && e->high <= 102) {
        p->y_high = 102;
        if (later > 50 && later <= 100) {
            const double top = fmin(100, 10 * ceil((e->high + 1) / 10));
            p->y_low = 10 * floor((later - 1) / 10);
            p->y_high = top + 0.05 * (top - p->y_low);
        }
    } else if (m->better == METRIC_HIGHER && e->low >= 0) p->y_high = e->high > 0 ? 1.05 * e->high : 1;
    else panel_range(p, e, e);
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

/* The approximate width of a code point in Helvetica 12, which gnuplot does not know. */
static int letter_width(text_slice point) {
    const char c = *point.bytes;
    if (point.n > 1) return 12;
    if (strchr("ijl.,;:'|!()[] ftIr-", c)) return 5;
    if (strchr("mwMW@%", c)) return 12;
    return c >= 'A' && c <= 'Z' ? 9 : 7;
}

/* The number of code points of a name that fit. */
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

/* The place of a code point in a name. */
static const char *letter_at(const char *name, int index) {
    text_slice rest = text_of(name);
    for (; index > 0 && rest.n; index--) {
        const size_t bytes = text_code_point(rest) ? text_code_point(rest) : 1;
        rest.bytes += bytes;
        rest.n -= bytes;
    }
    return rest.bytes;
}

/* How many of the first code points of a name end with a word, a number or a bracket, at least half of those that there is
 * room for; else all of these. */
static int whole_words(const char *name, int most) {
    for (int n = most; n > most / 2; n--) {
        if (strchr(" ,;(", *letter_at(name, n)) && *letter_at(name, n)) return n;
    }
    return most;
}

/* Whether another variant's name begins with the same bytes. */
static bool begins_alike(const report *r, int variant, size_t bytes) {
    for (int i = 0; i < r->n_variants; i++) {
        if (i != variant && strncmp(r->variant[i].label, r->variant[variant].label, bytes) == 0) return true;
    }
    return false;
}

/* Writes a variant's name in gnuplot's quotes. One that is too long is cut behind a word; or, if another begins with the same
 * words, before its last ones, which differ. */
static void write_short_name(FILE *out, const report *r, int variant, int most) {
    const char *name = r->variant[variant].label;
    const int n = (int)text_count_tokens(TEXT_CHARACTERS, text_of(name)), head = whole_words(name, most);
    char end[256];
    if (n <= most || !begins_alike(r, variant, (size_t)(letter_at(name, head) - name))) {
        report_quote(out, name, n <= most ? most : head);
        return;
    }
    const char *tail = letter_at(name, n - most + 1), *word = tail + strcspn(tail, " ,;");
    snprintf(end, sizeof end, "…%s", word < letter_at(tail, most / 2) ? word + 1 : tail);
    report_quote(out, end, most);
}

/* ---- Scripts ----------------------------------------------------------------------------------------------------- */

/* How a block of a data file is drawn. */
typedef enum look { LOOK_RAW, LOOK_BAND, LOOK_LINE, LOOK_DIVERGED, LOOK_LEAD, LOOK_NAME, LOOKS } look;

static bool has_look(const panel *p, const report *r, int variant, const panel_blocks *b, look l) {
    const report_variant *v = &r->variant[variant];
    switch (l) {
        case LOOK_RAW: return b->raw >= 0 && !report_is_crowded(r);
        case LOOK_BAND: return b->line >= 0 && v->n > 1;
        case LOOK_LINE: return b->line >= 0;
        case LOOK_DIVERGED: return p->diverged && v->fates[REPORT_DIVERGED];
        default: return report_is_crowded(r) && b->line >= 0 && b->line_of[p->score].n > 0;
    }
}

/* Plots the name at the end of a line, or the lead to it. */
static void write_name(FILE *out, const panel *p, const report *r, int variant, look l) {
    fprintf(out, "'%s-names.dat' index %d using ", p->name, variant);
    if (l == LOOK_LEAD) {
        fprintf(out, "1:2:3:4 with vectors nohead linewidth 0.7 linecolor rgb colour(%d) notitle", variant + 1);
        return;
    }
    fprintf(out, "5:6:(");
    write_short_name(out, r, variant, NAMED_LENGTH);
    fprintf(out, ") with labels left font font_name.',11' textcolor rgb colour(%d) noenhanced notitle", variant + 1);
}

static void write_plot(FILE *out, const panel *p, const report *r, const panel_blocks *b, int variant, look l) {
    const int block = l == LOOK_DIVERGED ? variant : l == LOOK_RAW ? b->raw : b->line, i = variant + 1;
    if (l == LOOK_LEAD || l == LOOK_NAME) {
        write_name(out, p, r, variant, l);
        return;
    }
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
        write_short_name(out, r, variant, letters_that_fit(name, p->width - LEFT - RIGHT - SAMPLE));
    } else {
        fprintf(out, "%d:('×') with labels font font_name.',20' textcolor rgb colour(%d) notitle", p->y, i);
    }
}

/* Adds a plot to a drawing; -1: no memory. */
static int add_plot(report_drawing *d, int variant, look l) {
    if (!ARRAY_EXTEND(d->plot, d->n_plots)) return -1;
    d->plot[d->n_plots++] = (report_plot){variant, l == LOOK_LINE};
    return 0;
}

static int write_plots(FILE *out, const panel *p, const report *r, const panel_blocks *b, report_drawing *d) {
    for (int l = 0; l < LOOKS; l++) {
        for (int i = 0; i < r->n_variants; i++) {
            if (!has_look(p, r, i, &b[i], (look)l)) continue;
            fprintf(out, "%s", d->n_plots ? ", \\\n         " : "    plot ");
            write_plot(out, p, r, &b[i], i, (look)l);
            if (add_plot(d, r->first + i, (look)l)) return -1;
        }
    }
    return 0;
}

/* ---- Marks ------------------------------------------------------------------------------------------------------- */

/* The distance of ticks: 1, 2 or 5 times a power of ten, for at most `most` ticks. */
static double tick_step(double range, int most) {
    const double least = range / most, power = pow(10, floor(log10(least)));
    return least <= power ? power : least <= 2 * power ? 2 * power : least <= 5 * power ? 5 * power : 10 * power;
}

typedef struct ticks {
    double at[24];
    int n;
} ticks;

static void add_tick(ticks *t, double x, double low, double high) {
    if (x >= low && x <= high && t->n < (int)(sizeof t->at / sizeof *t->at)) t->at[t->n++] = x;
}

static ticks even_ticks(double low, double high, int most) {
    ticks t = {.n = 0};
    const double step = tick_step(high - low, most), air = 1e-9 * (high - low);
    for (double k = ceil(low / step - 1e-9) + 0.0; k * step <= high + air; k++)
        add_tick(&t, k * step, low - air, high + air);
    return t;
}

/* Powers of ten; with fewer than three of them, also twice and five times these; even ticks if the range is small. */
static ticks log_ticks(double low, double high) {
    const int first = (int)floor(log10(low)), last = (int)floor(log10(high)), every = (last - first) / 8 + 1;
    ticks t = {.n = 0};
    for (int d = first; d <= last; d += every) add_tick(&t, pow(10, d), low, high);
    if (t.n >= 3) return t;
    t.n = 0;
    for (int d = first; d <= last; d++) {
        add_tick(&t, pow(10, d), low, high);
        add_tick(&t, 2 * pow(10, d), low, high);
        add_tick(&t, 5 * pow(10, d), low, high);
    }
    return t.n >= 3 ? t : even_ticks(low, high, 6);
}

static ticks x_ticks(const panel *p) { return even_ticks(0, p->x_last / p->x_scale, p->width / 55); }

static ticks y_ticks(const panel *p) {
    return p->logarithmic ? log_ticks(p->y_low, p->y_high) : even_ticks(p->y_low, p->y_high, 8);
}

static void write_ticks(FILE *out, char axis, const ticks *t) {
    fprintf(out, "set %ctics (", axis);
    for (int i = 0; i < t->n; i++) fprintf(out, "%s'%.6g' %.6g", i ? ", " : "", t->at[i], t->at[i]);
    fprintf(out, ")\n");
}

void panel_ticks(FILE *out, const panel *p) {
    const ticks x = x_ticks(p), y = y_ticks(p);
    write_ticks(out, 'x', &x);
    write_ticks(out, 'y', &y);
    fprintf(out, "%s", p->logarithmic ? "set logscale y\n" : "");
}

/* ---- Names at the ends of lines ---------------------------------------------------------------------------------- */

/* In characters. */
static int longest_name(const report *r) {
    int longest = 0;
    for (int i = 0; i < r->n_variants; i++) {
        const int n = (int)text_count_tokens(TEXT_CHARACTERS, text_of(r->variant[i].label));
        if (n > longest) longest = n;
    }
    return longest < NAMED_LENGTH ? longest : NAMED_LENGTH;
}

static int width_of(const panel *p, const report *r) { return report_is_crowded(r) ? WIDE : p->width; }

/* The height without the key. */
static int height_of(const report *r) {
    const int needed = TOP + BOTTOM + NAMED_LINE * r->n_variants;
    return report_is_crowded(r) && needed > HEIGHT ? needed : HEIGHT;
}

/* The right end of the axis. */
static int right_of(const panel *p, const report *r) {
    return width_of(p, r) - RIGHT - (report_is_crowded(r) ? LEAD + NAMED_LETTER * longest_name(r) : 0);
}

static double pixel_of(const panel *p, const report *r, double y) {
    const double share =
        p->logarithmic ? log(y / p->y_low) / log(p->y_high / p->y_low) : (y - p->y_low) / (p->y_high - p->y_low);
    return height_of(r) - BOTTOM - fmin(fmax(share, 0), 1) * (height_of(r) - BOTTOM - TOP);
}

static double value_at(const panel *p, const report *r, double pixel) {
    const double share = (height_of(r) - BOTTOM - pixel) / (height_of(r) - BOTTOM - TOP);
    return p->logarithmic ? p->y_low * pow(p->y_high / p->y_low, share) : p->y_low + share * (p->y_high - p->y_low);
}

typedef struct end {
    int variant;
    double line, name; /* from the top, in pixels */
} end;

static int from_top(const void *a, const void *b) {
    const end *x = a, *y = b;
    if (x->line != y->line) return x->line < y->line ? -1 : 1;
    return x->variant - y->variant;
}

/* Places names in the order of the lines' ends, as near to them as possible. */
static void spread_names(end *e, int n, double bottom) {
    for (int i = 0; i < n; i++) e[i].name = i ? fmax(e[i].line, e[i - 1].name + NAMED_LINE) : fmax(e[i].line, TOP + 4);
    for (int i = n - 1; i >= 0; i--) e[i].name = fmin(e[i].name, i < n - 1 ? e[i + 1].name - NAMED_LINE : bottom);
}

static void write_end(FILE *out, const panel *p, const report *r, const panel_blocks *b, const end *e) {
    const double x = b->line_of[p->score].end[p->axis] / p->x_scale, last = p->x_last / p->x_scale;
    const double pixel = last / (right_of(p, r) - LEFT), y = value_at(p, r, e->line), to = value_at(p, r, e->name);
    fprintf(out, "%.6g %.6g %.6g %.6g %.6g %.6g", x, y, last + (LEAD - 6) * pixel - x, to - y, last + LEAD * pixel, to);
}

/* Writes a block for each variant: both ends of the lead, and the place of the name. */
static int write_names(report_figures *f, const panel *p, const report *r, const panel_blocks *b) {
    report_file file;
    end *e = calloc((size_t)r->n_variants, sizeof *e);
    int n = 0;
    if (!e) return adamod__fail(ADAMOD_ERROR_MEMORY, "out of memory");
    if (report_file_open(&file, "%s-names.dat", p->name)) {
        free(e);
        return -1;
    }
    for (int i = 0; i < r->n_variants; i++) {
        if (has_look(p, r, i, &b[i], LOOK_NAME))
            e[n++] = (end){.variant = i, .line = pixel_of(p, r, b[i].line_of[p->score].last)};
    }
    qsort(e, (size_t)n, sizeof *e, from_top);
    spread_names(e, n, height_of(r) - BOTTOM);
    fprintf(file.to, "# a block for each variant: the end of its line, the way to its name, the name\n");
    for (int i = 0; i < r->n_variants; i++) {
        const end *own = e;
        while (own < e + n && own->variant != i) own++;
        if (own < e + n) write_end(file.to, p, r, &b[i], own);
        else fprintf(file.to, "NaN NaN NaN NaN NaN NaN");
        fprintf(file.to, "\n\n\n");
    }
    free(e);
    return report_file_close(f, &file);
}

/* Axes and grid end where the names begin. */
static void write_short_axes(FILE *out, const panel *p, const ticks *x, const ticks *y) {
    const double last = p->x_last / p->x_scale;
    fprintf(out, "unset grid\nset border 2\nunset xlabel\n");
    fprintf(out,
            "set arrow from graph 0, graph 0 to first %.6g, graph 0 nohead linecolor rgb axis_colour linewidth 0.8\n",
            last);
    for (int i = 0; i < y->n; i++)
        fprintf(out,
                "set arrow from first 0, first %.6g to first %.6g, first %.6g nohead back linecolor rgb grid_colour "
                "linewidth 0.8\n",
                y->at[i], last, y->at[i]);
    for (int i = 0; i < x->n; i++)
        fprintf(out,
                "set arrow from first %.6g, graph 0 to first %.6g, graph 1 nohead back linecolor rgb grid_colour "
                "linewidth 0.8\n",
                x->at[i], x->at[i]);
}

/* The number of names side by side in the key, and of its lines. */
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

/* The page has its own key as text. A drawing for print has one above the plot, unless lines have names at their ends. */
static void write_frame(FILE *out, const panel *p, const report *r, const panel_blocks *b) {
    int lines = 0;
    const int width = width_of(p, r), columns = key_columns(p, r, b, &lines);
    const bool crowded = report_is_crowded(r);
    if (crowded) lines = 0;
    fprintf(out, "set key maxcols %d\n", columns);
    fprintf(out, "do for [kind in 'page '.kinds] {\n    top = kind eq 'page' ? %d : %d\n    height = %d + top\n", TOP,
            TOP + LINE * lines, height_of(r) - TOP);
    fprintf(out, "    eval figure(kind, '%s', %d, height)\n    if (kind eq 'page'%s) { unset key } else { set key }\n",
            p->name, width, crowded ? " || 1" : "");
    fprintf(out,
            "    set lmargin at screen %d / %d.0\n    set rmargin at screen %d / %d.0\n"
            "    set bmargin at screen %d / (1.0 * height)\n    set tmargin at screen 1 - top / (1.0 * height)\n",
            LEFT, width, width - RIGHT, width, BOTTOM);
    if (!crowded) return;
    fprintf(out, "    set label 2 ");
    report_quote(out, p->x_label, 100);
    fprintf(out, " at first %.6g, screen 18 / (1.0 * height) center\n", p->x_last / p->x_scale / 2);
}

static int write_script(FILE *out, const panel *p, const report *r, const panel_blocks *b, report_drawing *d) {
    const ticks x = x_ticks(p), y = y_ticks(p);
    const int right = right_of(p, r);
    /* to gnuplot the names are inside the plot */
    const double last = p->x_last / p->x_scale * (width_of(p, r) - RIGHT - LEFT) / (right - LEFT);
    fprintf(out, "load 'style.gp'\nset xlabel ");
    report_quote(out, p->x_label, 100);
    fprintf(out, "\n# not ylabel, which goes as far to the left as gnuplot takes numbers to be wide\nset label 1 ");
    report_quote(out, p->y_label, 100);
    fprintf(
        out,
        " at screen 16 / %d.0, graph 0.5 center rotate by 90 noenhanced\nset xrange [0:%.6g]\nset yrange [%.6g:%.6g]\n",
        width_of(p, r), last, p->y_low, p->y_high);
    panel_ticks(out, p);
    if (report_is_crowded(r)) write_short_axes(out, p, &x, &y);
    write_frame(out, p, r, b);
    const int status = write_plots(out, p, r, b, d);
    fprintf(out, "\n}\nset output\n");
    return status;
}

/* ---- For screen readers ------------------------------------------------------------------------------------------ */

/* Writes the label: "Training loss against update. AdaMod: from 4.02 to 0.612. Adam: diverged." */
static void describe(const panel *p, const report *r, const panel_blocks *b, report_drawing *d) {
    FILE *out = fmemopen(d->label, sizeof d->label, "w");
    if (!out) return;
    fprintf(out, "%c%s against %s.", report_capital(p->y_label[0]), p->y_label + 1, p->x_label);
    for (int i = 0; i < r->n_variants; i++) {
        const int n = b[i].line_of[p->score].n;
        const bool line = b[i].line >= 0 && n, diverged = has_look(p, r, i, &b[i], LOOK_DIVERGED);
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
    if (!d || report_file_open(&file, "%s.gp", p->name)) return -1;
    d->for_page = true;
    d->least_width = report_is_crowded(r) ? LEAST_WIDE : 0;
    describe(p, r, b, d);
    snprintf(d->attributes, sizeof d->attributes,
             " data-axis=\"%s\" data-label=\"%s\" data-box=\"%d %d %d %d\" data-x=\"%.6g\" data-y=\"%.6g %.6g\"%s",
             panel_axis_names[p->axis], p->x_label, LEFT, TOP, right_of(p, r), height_of(r) - BOTTOM,
             p->x_last / p->x_scale, p->y_low, p->y_high, p->logarithmic ? " data-log=\"\"" : "");
    const int status = write_script(file.to, p, r, b, d);
    if (report_file_close(f, &file)) return -1;
    if (!status && report_is_crowded(r) && write_names(f, p, r, b)) return -1;
    return status ? adamod__fail(ADAMOD_ERROR_MEMORY, "out of memory") : 0;
}
