/* panels.h - a panel of a figure: lines of variants over an axis, as a gnuplot script. */
#ifndef ADAMOD_PANELS_H
#define ADAMOD_PANELS_H

#include "report/figures.h"

/* The columns of a data file begin with these. */
typedef enum panel_axis { AXIS_UPDATES, AXIS_EPOCHS, AXIS_TIME, AXES } panel_axis;
extern const char *const panel_axis_names[AXES];

/* What a script needs to know of the data. */
typedef struct panel_extent {
    double low, high;  /* of what is drawn in full: lines and bands */
    double last[AXES]; /* 0: there is no such axis */
} panel_extent;

extern const panel_extent panel_no_extent;
void panel_include(panel_extent *e, const report_spread *y);
void panel_reach(panel_extent *e, panel_axis a, double x);
void panel_join(panel_extent *e, const panel_extent *with); /* but for the axes */

/* The blocks of a variant in a data file, -1: it has none; and of each of its lines, how many points it has and where it
 * begins and ends, for those who do not see it. */
typedef struct panel_blocks {
    int raw, line;
    struct {
        int n;
        double first, last;
        double end[AXES]; /* where the last is on each axis */
    } line_of[2 + REPORT_COLUMN_METRICS];
} panel_blocks;

extern const panel_blocks panel_no_blocks;
void panel_extend(panel_blocks *b, int line, double y, const double place[AXES]);

/* One column of a data file over another. */
typedef struct panel {
    const char *name, *data, *y_label;
    int width;            /* of the drawing */
    int y;                /* column; it is followed by the least and the most */
    int score;            /* which of panel_blocks.line_of */
    bool marks;           /* dots on the line */
    const char *diverged; /* a data file with a block for each variant: where its runs diverged; NULL: none did */
    /* by panel_range */
    double y_low, y_high;
    bool logarithmic;
    /* by panel_x */
    panel_axis axis;
    char x_label[40];
    double x_scale, x_last; /* what numbers of x are divided by, and where the axis ends */
} panel;

/* As high as the data reach, and a little more; logarithmic if the largest is many times the smallest of what several
 * panels show. */
void panel_range(panel *p, const panel_extent *e, const panel_extent *all);
void panel_x(panel *p, panel_axis a, double last);

/* Writes the panel's script and adds its drawing. b: of each variant. -1: a message is there. */
int panel_add(report_figures *f, report_group group, const panel *p, const report *r, const panel_blocks *b);

#endif
