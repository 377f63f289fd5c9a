/* panels.h - a panel of a figure: the variants' lines over an axis, as a gnuplot script. */
#pragma once

#include "report/figures.h"

/* The first columns of a data file. */
typedef enum panel_axis { AXIS_UPDATES, AXIS_EPOCHS, AXIS_TIME, AXES } panel_axis;
extern const char *const panel_axis_names[AXES];
/* The place of a point on an axis, for series.h; axis: an int. */
double panel_place(const void *axis, const report_point *p);

/* Numbers of a data file: a space and the number, or NaN; median, least and most; the end of a block. */
void panel_number(FILE *out, double x);
void panel_spread(FILE *out, const report_spread *y);
void panel_end_block(FILE *out);

/* The number of updates in a mean of a smoothed line, a 50th of all. */
int64_t panel_window(int64_t last);

/* The ranges of the data. */
typedef struct panel_extent {
    double low, high;  /* of lines and bands */
    double last[AXES]; /* the end of each axis; 0: no such axis */
} panel_extent;

extern const panel_extent panel_no_extent;
void panel_include(panel_extent *e, const report_spread *y);
void panel_reach(panel_extent *e, panel_axis a, double x);
void panel_join(panel_extent *e, const panel_extent *with); /* low and high only */

/* The blocks of a variant in a data file; -1: none. For screen readers, each line's number of points, first and last value. */
typedef struct panel_blocks {
    int raw, line;
    struct {
        int n;
        double first, last;
        double end[AXES]; /* place of the last point on each axis */
    } line_of[2 + REPORT_COLUMN_METRICS];
} panel_blocks;

extern const panel_blocks panel_no_blocks;
void panel_extend(panel_blocks *b, int line, double y, const double place[AXES]);

/* One column of a data file over another. */
typedef struct panel {
    const char *name, *data, *y_label;
    int width;            /* of the drawing */
    int y;                /* column of the median; the next are the least and the most */
    int score;            /* index into panel_blocks.line_of */
    bool marks;           /* dots on the line */
    const char *diverged; /* data file of where runs diverged, a block for each variant; NULL: none did */
    /* set by panel_range */
    double y_low, y_high;
    bool logarithmic;
    /* set by panel_x */
    panel_axis axis;
    char x_label[40];
    double x_scale, x_last; /* divisor of x, and end of the axis */
} panel;

/* Sets the range of y to that of the data and a little more. The axis is logarithmic if the largest value of all panels that
 * share it is many times the smallest. */
void panel_range(panel *p, const panel_extent *e, const panel_extent *all);
/* Does the same for a metric. Percentages have an axis from 0 to 100, scores that should rise one from 0. If all are soon
 * above a half, the axis shows only the tens that they lie in. later: the least after the first quarter of the updates. */
void panel_score_range(panel *p, const metric *m, const panel_extent *e, double later);
void panel_x(panel *p, panel_axis a, double last);
/* Writes the marks of both axes, after their ranges are set. */
void panel_ticks(FILE *out, const panel *p);

/* Writes the panel's script and adds its drawing. b: the blocks of each variant. */
int panel_add(report_figures *f, report_group group, const panel *p, const report *r, const panel_blocks *b);
