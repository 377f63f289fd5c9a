/* ridges.c - learning rates of all elements as in the paper's Figures 1 and 3: histograms of some updates one in front of
 * another, the first at the back. All panels have the same axes, except for heights that would flatten others. */
#include "report/ridges.h"

#include "core/error.h"
#include "support/text.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum {
    PANELS = 64,      /* most of a group */
    WIDTH = 380,      /* of a panel, in pixels */
    HEIGHT = 430,     /* in pixels */
    ACROSS = 3,       /* panels side by side in the drawing of all */
    NAME_LENGTH = 34, /* characters of a variant's name above its panel */
};

/* Smaller shares do not widen the axis. */
static const double visible = 5e-4;
/* The height of the highest ridge, in distances between rows. */
static const double tallest = 3.6;

const ridge_axes ridge_no_axes = {.low = INFINITY, .high = -INFINITY};

/* ---- Facts ------------------------------------------------------------------------------------------------------- */

static bool has_histograms(const report_run *r) { return r->n_histograms > 0; }

const report_run *report_histogram_run(const report_variant *v) { return report_first_run(v, has_histograms); }

bool report_is_bounded(const report_variant *v) {
    const report_run *r = report_histogram_run(v);
    for (size_t i = 0; r && i < r->n_histograms; i++) {
        if (r->histogram[i].bounded > 0) return true;
    }
    return false;
}

static double centre(const report_histogram *h, int bin) { return h->low + (bin + 0.5) * (h->high - h->low) / h->bins; }

double report_share_above(const report_run *r, double decade) {
    double most = 0;
    for (size_t i = 0; i < r->n_histograms; i++) {
        const report_histogram *h = &r->histogram[i];
        double share = 0;
        for (int k = 0; k < h->bins; k++) share += centre(h, k) > decade ? (double)h->effective[k] : 0;
        most = fmax(most, share);
    }
    return most;
}

/* ---- Rows -------------------------------------------------------------------------------------------------------- */

/* The one of the first n histograms that is nearest to an update on a logarithmic scale; NULL: none. */
static const report_histogram *nearest(const report_run *r, size_t n, double step) {
    const report_histogram *best = NULL;
    double least = INFINITY;
    for (size_t i = 0; i < n; i++) {
        const double d = fabs(log((double)r->histogram[i].step + 1) - log(step + 1));
        if (d < least) least = d, best = &r->histogram[i];
    }
    return best;
}

/* The number of histograms up to an update; 0: all. */
static size_t histograms_until(const report_run *r, double until) {
    size_t n = 0;
    while (n < r->n_histograms && !(until > 0 && (double)r->histogram[n].step > until)) n++;
    return n;
}

/* Chooses `wanted` updates from the first to the last of n histograms with a constant ratio, so that they are dense at
 * first. Takes the nearest histogram of each, so there may be fewer; returns their number, of which `most` are kept. */
static int spread_rows(const report_run *r, size_t n_histograms, int wanted, int most, ridge_axes *out) {
    const double first = (double)r->histogram[0].step + 1, last = (double)r->histogram[n_histograms - 1].step + 1;
    int n = 0;
    for (int i = 0; i < wanted; i++) {
        const double target = first * pow(last / first, wanted > 1 ? (double)i / (wanted - 1) : 0);
        const int64_t step = nearest(r, n_histograms, target - 1)->step;
        if (n && n <= most && out->step[n - 1] == step) continue;
        if (n < most) out->step[n] = step;
        n++;
    }
    out->rows = n < most ? n : most;
    return n;
}

void ridge_choose_rows(ridge_axes *a, const report_run *r, int most, double until) {
    const size_t n = histograms_until(r, until);
    int wanted = 3 * most;
    a->rows = 0;
    if (!n) return;
    while (wanted > most && spread_rows(r, n, wanted, most, a) > most) wanted--;
    if (wanted == most) spread_rows(r, n, wanted, most, a);
}

/* The run with the last histogram, which chooses the rows of all panels; NULL: none. */
static const report_run *longest_run(const report *r) {
    const report_run *longest = NULL;
    for (int i = 0; i < r->n_variants; i++) {
        const report_run *run = report_histogram_run(&r->variant[i]);
        if (!run) continue;
        const int64_t last = run->histogram[run->n_histograms - 1].step;
        if (!longest || last > longest->histogram[longest->n_histograms - 1].step) longest = run;
    }
    return longest;
}

/* The histogram of a run for a row: of that update, or at most a twentieth away. */
static const report_histogram *row_of(const report_run *r, int64_t step) {
    const report_histogram *h = nearest(r, r->n_histograms, (double)step);
    return h && 20 * llabs((long long)(h->step - step)) <= step ? h : NULL;
}

/* ---- Panels ------------------------------------------------------------------------------------------------------ */

static const float *shares(const ridge_panel *p, const report_histogram *h) {
    return p->before ? h->eta : h->effective;
}

void ridge_widen(ridge_axes *a, ridge_panel *p) {
    for (int i = 0; i < a->rows; i++) {
        const report_histogram *h = row_of(p->run, a->step[i]);
        for (int k = 0; h && k < h->bins; k++) {
            const double share = (double)shares(p, h)[k];
            p->most = fmax(p->most, share);
            if (share < visible) continue;
            a->low = fmin(a->low, centre(h, k));
            a->high = fmax(a->high, centre(h, k));
        }
    }
}

/* Whether a bin and its neighbours are too low to be seen. */
static bool is_flat(const float *share, int bin, int bins) {
    for (int k = bin > 0 ? bin - 1 : 0; k <= bin + 1 && k < bins; k++) {
        if (share[k] > 1e-5f) return false;
    }
    return true;
}

int ridge_write_data(report_figures *f, ridge_panel *p, const ridge_axes *a) {
    report_file file;
    if (report_file_open(&file, "%s.dat", p->name)) return -1;
    fprintf(file.to, "# log10 of the learning rate %s the bound, share of the elements, row\n",
            p->before ? "before" : "after");
    p->blocks = 0;
    for (int i = 0; i < a->rows; i++) {
        const report_histogram *h = row_of(p->run, a->step[i]);
        if (!h) continue;
        fprintf(file.to, "# update %lld\n", (long long)h->step);
        fprintf(file.to, "%.6g 0 %d\n", a->low, i);
        for (int k = 0; k < h->bins; k++) {
            const double x = centre(h, k);
            if (x <= a->low || x >= a->high || is_flat(shares(p, h), k, h->bins)) continue;
            fprintf(file.to, "%.6g %.5g %d\n", x, (double)shares(p, h)[k], i);
        }
        fprintf(file.to, "%.6g 0 %d\n\n\n", a->high, i);
        p->blocks++;
    }
    return report_file_close(f, &file);
}

/* Rows go from top to bottom; every second one has room for a number. */
static void write_row_labels(FILE *out, const ridge_axes *r) {
    const char *comma = "";
    fprintf(out, "set ytics (");
    for (int i = 0; i < r->rows; i++) {
        if (i != r->rows - 1 && (i % 2 || i == r->rows - 2)) continue;
        fprintf(out, "%s'%lld' %d", comma, (long long)r->step[i], r->rows - 1 - i);
        comma = ", ";
    }
    fprintf(out, ")\n");
}

/* 1, 2 or 5 times a power of ten, at most x. */
static double round_down(double x) {
    const double power = pow(10, floor(log10(x)));
    return x >= 5 * power ? 5 * power : x >= 2 * power ? 2 * power : power;
}

static void write_decades(FILE *out, const ridge_axes *a) {
    const int every = (int)ceil((a->high - a->low) / 8); /* as many as there is room for */
    fprintf(out, "set xrange [%.6g:%.6g]\nset xtics (", a->low, a->high);
    const char *comma = "";
    for (int d = (int)ceil(a->low); d <= (int)floor(a->high); d++) {
        if (d % every) continue;
        fprintf(out, "%s'10^{%s%d}' %d", comma, d < 0 ? "−" : "", abs(d), d);
        comma = ", ";
    }
    fprintf(out, ")\n");
}

/* Writes the scale of heights and a bar that shows it, at the top, where only the first ridge could be. */
static void write_scale(FILE *out, const ridge_axes *a, double most) {
    const double share = round_down(most), length = tallest * share / most, top = a->rows - 1 + tallest;
    fprintf(out, "    height = %.6g # of all elements, in distances between rows\n", tallest / most);
    fprintf(out,
            "    set arrow 1 from graph 0.96, first %.6g to graph 0.96, first %.6g nohead linecolor rgb axis_colour "
            "linewidth 1.5 front\n",
            top - length, top);
    fprintf(out, "    set label 1 '%g %%' at graph 0.94, first %.6g right font font_name.',11' front\n", 100 * share,
            top - length / 2);
}

void ridge_write_axes(FILE *out, const ridge_axes *a) {
    fprintf(out, "rows = %d\n", a->rows);
    fprintf(out, "base(row) = rows - 1 - row\n");
    write_decades(out, a);
    fprintf(out, "set yrange [-0.6:%.6g]\n", a->rows - 1 + tallest + 0.3);
    write_row_labels(out, a);
    fprintf(out, "set tics font font_name.',11'\nset xlabel 'effective learning rate'\nset ylabel 'update'\n");
    fprintf(out, "unset key\nset border 1\nset grid noytics\nset ytics scale 0 offset 0.6\n");
}

static int write_axes(report_figures *f, const ridge_axes *a) {
    report_file file;
    if (report_file_open(&file, "rates-axes.gp")) return -1;
    fprintf(file.to, "# Shared by all panels of learning rates: rows, heights, ranges.\n");
    ridge_write_axes(file.to, a);
    return report_file_close(f, &file);
}

void ridge_write_plot(FILE *out, const ridge_panel *p, const ridge_axes *a) {
    write_scale(out, a, p->most);
    fprintf(out, "    set title ");
    report_quote(out, p->title, 100);
    fprintf(out,
            " offset 0,-0.7 noenhanced\n"
            "    plot for [i = 0:%d] '%s.dat' index i using 1:(base($3) + height * $2) with filledcurves closed \\\n"
            "         fillcolor rgb tint(%d) fillstyle solid 1 border linecolor rgb colour(%d) linewidth 0.9\n",
            p->blocks - 1, p->name, p->variant + 1, p->variant + 1);
}

/* "Histograms of the learning rates after the bound: AdaMod. The median is 1.2e-05 at update 1 and 0.003 at update 900." */
static void describe(const ridge_panel *p, report_drawing *d) {
    const report_histogram *a = &p->run->histogram[0], *b = &p->run->histogram[p->run->n_histograms - 1];
    const double first = p->before ? a->eta_median : a->step_median, last = p->before ? b->eta_median : b->step_median;
    snprintf(d->label, sizeof d->label, "Histograms of the learning rates %s the bound: %.100s.",
             p->before ? "before" : "after", p->title);
    if (isfinite(first) && isfinite(last))
        text_add(d->label, sizeof d->label, " The median is %.3g at update %lld and %.3g at update %lld.", first,
                 (long long)a->step, last, (long long)b->step);
}

/* Writes the drawing of one panel for the page, or of several, `across` side by side, for a paper. */
static int write_panels(report_figures *f, const ridge_panel *p, int n, const ridge_axes *a, const char *name,
                        report_group group, int across) {
    report_file file;
    report_drawing *d = report_figures_add(f, group, name);
    if (!d || report_file_open(&file, "%s.gp", name)) return -1;
    d->on_page = n == 1;
    if (d->on_page) describe(p, d);
    const int columns = n < across ? n : across, lines = (n + columns - 1) / columns;
    fprintf(file.to, "load 'style.gp'\nload 'rates-axes.gp'\ndo for [kind in kinds] {\n");
    fprintf(file.to, "    eval figure(kind, '%s', %d, %d)\n", name, columns * WIDTH, lines * HEIGHT);
    if (n > 1) fprintf(file.to, "    set multiplot layout %d,%d\n", lines, columns);
    for (int i = 0; i < n; i++) ridge_write_plot(file.to, &p[i], a);
    fprintf(file.to, "%s}\nset output\n", n > 1 ? "    unset multiplot\n" : "");
    return report_file_close(f, &file);
}

static int write_group(report_figures *f, ridge_panel *p, int n, const ridge_axes *a, report_group group) {
    for (int i = 0; i < n; i++) {
        if (ridge_write_data(f, &p[i], a) || write_panels(f, &p[i], 1, a, p[i].name, group, 1)) return -1;
    }
    if (n < 2) return 0;
    return group == REPORT_RATES ? write_panels(f, p, n, a, "rates", group, ACROSS)
                                 : write_panels(f, p, n, a, "bound", group, 2);
}

/* ---- All panels -------------------------------------------------------------------------------------------------- */

static void set_title(ridge_panel *p, const char *name, const char *what) {
    char shortened[NAME_LENGTH * 4 + 8];
    size_t used = 0;
    int left = NAME_LENGTH - (int)strlen(what);
    for (text_slice rest = text_of(name); rest.n && left > 0; left--) {
        const size_t n = text_code_point(rest) ? text_code_point(rest) : 1;
        memcpy(shortened + used, rest.bytes, n);
        used += n;
        rest.bytes += n;
        rest.n -= n;
    }
    shortened[used] = '\0';
    snprintf(p->title, sizeof p->title, "%s%s%s", shortened, used < strlen(name) ? "…" : "", what);
}

static int make_rates(const report *r, ridge_panel *out) {
    int n = 0;
    for (int i = 0; i < r->n_variants && n < PANELS; i++) {
        ridge_panel *p = &out[n];
        *p = (ridge_panel){.run = report_histogram_run(&r->variant[i]), .variant = i};
        if (!p->run) continue;
        n++;
        snprintf(p->name, sizeof p->name, "rates-%d", n);
        set_title(p, r->variant[i].label, "");
    }
    return n;
}

/* If only one variant has a bound, titles do not name it: the caption does. */
static int make_bounds(const report *r, ridge_panel *out) {
    int n = 0, bounded = 0;
    for (int i = 0; i < r->n_variants; i++) bounded += report_is_bounded(&r->variant[i]);
    for (int i = 0; i < r->n_variants && n + 1 < PANELS; i++) {
        if (!report_is_bounded(&r->variant[i])) continue;
        for (int after = 0; after < 2; after++, n++) {
            out[n] = (ridge_panel){.run = report_histogram_run(&r->variant[i]), .variant = i, .before = !after};
            snprintf(out[n].name, sizeof out[n].name, "bound-%d-%s", n / 2 + 1, after ? "after" : "before");
            if (bounded > 1)
                set_title(&out[n], r->variant[i].label, after ? ", after the bound" : ", before the bound");
            else set_title(&out[n], "", after ? "after the bound" : "before the bound");
        }
    }
    return n;
}

bool ridge_share_scale(ridge_panel *p, int n) {
    double least = INFINITY, common = 0;
    for (int i = 0; i < n; i++) least = p[i].most > 0 ? fmin(least, p[i].most) : least;
    for (int i = 0; i < n; i++) common = p[i].most <= 5 * least ? fmax(common, p[i].most) : common;
    for (int i = 0; i < n; i++) p[i].most = fmax(p[i].most, common);
    for (int i = 0; i < n; i++) {
        if (p[i].most > common) return false;
    }
    return true;
}

/* Rounds outwards to half decades, and to at least four decades. */
void ridge_round(ridge_axes *a) {
    a->low = floor(2 * (a->low - 0.3)) / 2;
    a->high = ceil(2 * (a->high + 0.3)) / 2;
    while (a->high - a->low < 4) a->low -= 0.5, a->high += 0.5;
}

/* Removes panels whose run has no histogram near any of the rows. */
static int keep_drawn(ridge_panel *p, int n) {
    int kept = 0;
    for (int i = 0; i < n; i++) {
        if (p[i].most > 0) p[kept++] = p[i];
    }
    return kept;
}

static int draw_panels(report_figures *f, const report *r, ridge_panel *p) {
    ridge_axes a = ridge_no_axes;
    const report_run *longest = longest_run(r);
    if (longest) ridge_choose_rows(&a, longest, RIDGE_ROWS, 0);
    int n = make_rates(r, p);
    for (int i = 0; i < n; i++) ridge_widen(&a, &p[i]);
    const int n_rates = keep_drawn(p, n);
    ridge_panel *bounds = p + n_rates;
    n = make_bounds(r, bounds);
    for (int i = 0; i < n; i++) ridge_widen(&a, &bounds[i]);
    const int n_bounds = keep_drawn(bounds, n);
    if (!(a.high >= a.low)) return 0;
    ridge_round(&a);
    f->one_scale = ridge_share_scale(p, n_rates + n_bounds);
    f->rows[0] = a.step[0];
    f->rows[1] = a.step[a.rows - 1];
    if (write_axes(f, &a) || write_group(f, p, n_rates, &a, REPORT_RATES)) return -1;
    return write_group(f, bounds, n_bounds, &a, REPORT_BOUNDS);
}

int report_draw_ridges(report_figures *f, const report *r) {
    ridge_panel *panels = calloc(2 * PANELS, sizeof *panels);
    if (!panels) return adamod__fail(ADAMOD_ERROR_MEMORY, "out of memory");
    const int status = draw_panels(f, r, panels);
    free(panels);
    return status;
}
