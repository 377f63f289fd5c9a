/* figures.h - the figures: numbers into data files, gnuplot scripts that draw them, and the drawings made fit for the
 * page. Everything stays in PAGE-figures, so that a figure can be restyled and drawn again by hand. */
#ifndef ADAMOD_FIGURES_H
#define ADAMOD_FIGURES_H

#include "report/variants.h"

/* ---- Colours ---- */

/* Okabe and Ito's colours, which stay apart for those who do not see all of them; variants beyond take them again, each
 * eight with another dash. */
enum { REPORT_COLOURS = 8, REPORT_DASHES = 4 };

/* Whether there are more variants than colours: then names stand at the ends of lines. */
bool report_is_crowded(const report *r);

typedef enum report_shade { REPORT_FULL, REPORT_FAINT, REPORT_TINT, REPORT_SHADES } report_shade;

/* 0xRRGGBB of a variant on a light page or a dark one: of lines, of the thin lines behind them, of areas. */
unsigned report_colour(int variant, report_shade shade, bool dark);
/* "--v0", "--v0-faint", "--v0-tint": its name in the page's style. */
const char *report_colour_name(int variant, report_shade shade, char out[24]);

enum { REPORT_AXIS = 0x444444, REPORT_GRID = 0xe2e2e2 }; /* as gnuplot draws them; the page has its own */

/* ---- Drawings ---- */

typedef enum report_group {
    REPORT_VALIDATIONS,
    REPORT_TESTS,
    REPORT_LOSSES,
    REPORT_TRAINING, /* metrics that were recorded of training as well */
    REPORT_PERPLEXITIES,
    REPORT_STEPS, /* learning rate and gradient norm */
    REPORT_RATES,
    REPORT_BOUNDS,
    REPORT_GROUPS
} report_group;

/* What a script plots, in its order: something of a variant, and whether that is its line. */
typedef struct report_plot {
    int variant;
    bool line;
} report_plot;

typedef struct report_drawing {
    report_group group;
    bool on_page;         /* else it is a whole of drawings that are there one by one */
    bool for_page;        /* the script draws NAME.page.svg as well, which has no key */
    char name[64];        /* NAME.gp draws NAME.svg and NAME.pdf */
    char label[800];      /* what it shows, for those who do not see it */
    char attributes[200]; /* of the page's element, for its script */
    int least_width;      /* in pixels, below which it is not made smaller; 0: as small as need be */
    report_plot *plot;
    int n_plots;
    char *svg; /* for the page; NULL: it was not drawn */
    bool pdf;  /* there is one: not every gnuplot can */
} report_drawing;

typedef struct report_figures {
    char *directory, *link; /* link: the directory as the page names it */
    report_drawing *drawing;
    int n;
    char why[512];                  /* why there are no drawings; "": there are */
    int64_t window;                 /* updates that the smoothed training loss is a mean of */
    bool clipped;                   /* a training loss goes beyond the top of its figure */
    bool from_below[REPORT_GROUPS]; /* a line begins below the bottom of a figure */
    bool one_scale;                 /* histograms of all panels have one scale of heights */
    int64_t rows[2];                /* the first and the last update among the histograms */
} report_figures;

/* Without gnuplot there are data and scripts, but no drawings; that is no failure. */
int report_draw(report_figures *out, const report *r, const char *page);
void report_figures_free(report_figures *f);

/* ---- Between the files that make figures ---- */

/* A file of PAGE-figures, written when it is closed. NULL, or -1: a message is there. */
typedef struct report_file {
    char *name, *text;
    size_t n;
    FILE *to;
} report_file;

int report_file_open(report_file *out, const char *format, ...) __attribute__((format(printf, 2, 3)));
int report_file_close(report_figures *f, report_file *file);

/* Adds a drawing, to be made by NAME.gp; NULL: no memory. */
report_drawing *report_figures_add(report_figures *f, report_group group, const char *name);

/* A text in gnuplot's quotes, cut to so many code points. */
void report_quote(FILE *out, const char *text, int most);

int report_draw_curves(report_figures *f, const report *r);
int report_draw_ridges(report_figures *f, const report *r);

/* gnuplot's SVG as it can stand within HTML, in the page's colours, with the drawing's label and attributes, and data-v for
 * what is of a variant; to be freed. NULL: it is none, or no memory. */
char *report_svg_inline(const char *svg, size_t n, const report_drawing *d, int variants);

/* ---- Facts about histograms ---- */

/* The run whose histograms stand for the variant: the first that has some. NULL: none. */
const report_run *report_histogram_run(const report_variant *v);
/* Whether its bound ever acted. */
bool report_is_bounded(const report_variant *v);
/* The largest share of elements at or above 10^decade after the bound, among all histograms of the run. */
double report_share_above(const report_run *r, double decade);

#endif
