/* figures.h - figures: data files, gnuplot scripts that draw them, and the drawings adapted to the page. All files stay in
 * PAGE-figures, so that a figure can be restyled and drawn again by hand. */
#pragma once

#include "report/variants.h"

#include <limits.h>

/* ---- Colours ---- */

/* Okabe and Ito's colours, which colour-blind readers can tell apart. After eight variants they repeat with another dash. */
enum { REPORT_COLOURS = 8, REPORT_DASHES = 4 };

/* Whether there are more variants than colours. Then lines have names at their ends. */
bool report_is_crowded(const report *r);

typedef enum report_shade { REPORT_FULL, REPORT_FAINT, REPORT_TINT, REPORT_SHADES } report_shade;

/* 0xRRGGBB of a variant on a light or a dark page. Shades: lines, thin lines behind them, areas. */
unsigned report_colour(int variant, report_shade shade, bool dark);
/* Its name in the page's style: "--v0", "--v0-faint", "--v0-tint". */
const char *report_colour_name(int variant, report_shade shade, char out[24]);

enum { REPORT_AXIS = 0x444444, REPORT_GRID = 0xe2e2e2 }; /* gnuplot's colours, which the page replaces */

/* ---- Drawings ---- */

typedef enum report_group {
    REPORT_VALIDATIONS,
    REPORT_TESTS,
    REPORT_LOSSES,
    REPORT_TRAINING, /* metrics of the training data */
    REPORT_PERPLEXITIES,
    REPORT_STEPS, /* learning rate and gradient norm */
    REPORT_RATES,
    REPORT_BOUNDS,
    REPORT_GROUPS
} report_group;

/* A plot of a script, in the script's order. */
typedef struct report_plot {
    int variant;
    bool line; /* the variant's line, not a band or a mark */
} report_plot;

typedef struct report_drawing {
    report_group group;
    bool on_page;         /* false: it joins drawings that are on the page one by one */
    bool for_page;        /* the script also draws NAME.page.svg, without a key */
    char name[64];        /* NAME.gp draws NAME.svg and NAME.pdf */
    char label[800];      /* what it shows, for screen readers */
    char attributes[200]; /* of the SVG element, for the page's script */
    int least_width;      /* in pixels; 0: any */
    report_plot *plot;
    int n_plots;
    char *svg; /* for the page; NULL: not drawn */
    bool pdf;  /* there is a PDF; not every gnuplot can draw one */
} report_drawing;

typedef struct report_figures {
    char directory[PATH_MAX];
    const char *link; /* the directory relative to the page: the end of its path */
    report_drawing *drawing;
    int n;
    char why[512];                  /* why there are no drawings; "": there are some */
    int64_t window;                 /* updates in a mean of the smoothed training loss */
    bool clipped;                   /* a training loss leaves its figure at the top */
    bool from_below[REPORT_GROUPS]; /* a line begins below the figure */
    bool one_scale;                 /* all histograms have the same scale of heights */
    int64_t rows[2];                /* the first and the last update of the histograms */
} report_figures;

/* Without gnuplot, writes data and scripts, but no drawings; this is no failure. */
int report_draw(report_figures *out, const report *r, const char *page);
void report_figures_free(report_figures *f);

/* ---- Between the files that make figures ---- */

/* A file of PAGE-figures, which is written when it is closed. */
typedef struct report_file {
    char name[80], *text;
    size_t n;
    FILE *to;
} report_file;

int report_file_open(report_file *out, const char *format, ...) __attribute__((format(printf, 2, 3)));
int report_file_close(report_figures *f, report_file *file);

/* Writes style.gp, which the scripts load. */
int report_figures_style(report_figures *f);
/* Lets gnuplot draw what was added. Sets f->why if it cannot. variants: how many colours they use. */
void report_figures_draw(report_figures *f, int variants);

/* Adds a drawing that NAME.gp will make; NULL: no memory. */
report_drawing *report_figures_add(report_figures *f, report_group group, const char *name);

/* Writes a text in gnuplot's quotes, cut to `most` code points. */
void report_quote(FILE *out, const char *text, int most);

int report_draw_curves(report_figures *f, const report *r);
int report_draw_ridges(report_figures *f, const report *r);

/* Allocates gnuplot's SVG for use within HTML: in the page's colours, with the drawing's label and attributes, and with
 * data-v for the parts of a variant. NULL: not such an SVG, or no memory. */
char *report_svg_inline(const char *svg, size_t n, const report_drawing *d, int variants);

/* ---- Facts about histograms ---- */

/* The first run of the variant with histograms, which stands for it. NULL: none. */
const report_run *report_histogram_run(const report_variant *v);
/* Whether its bound ever changed a learning rate. */
bool report_is_bounded(const report_variant *v);
/* The largest share of elements above 10^decade after the bound, in any histogram of the run. */
double report_share_above(const report_run *r, double decade);
