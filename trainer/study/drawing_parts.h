/* drawing_parts.h - what the files that make a drawing share. */
#pragma once

#include "report/panels.h"
#include "study/drawing.h"

enum { DRAWING_NAME = 96 };

/* A panel of curves, as its data file has it: a block for each line. */
typedef struct drawing_curves {
    panel p; /* p.width is set by the caller */
    char data[DRAWING_NAME], marks[DRAWING_NAME], y_label[200];
    char note[64];              /* how it is smoothed; "": it is not */
    char (*name)[DRAWING_NAME]; /* of each line, for the legend: "Adam (not run)" */
    double *last;               /* of each line, its last value; NAN: no line */
    bool any;                   /* a line has a value */
    bool score;                 /* of a metric other than loss and perplexity */
} drawing_curves;

/* Writes FIGURE-NUMBER.dat, sets names, ranges and labels. The caller frees it, also after a failure. */
int drawing_curves_make(drawing_curves *out, report_figures *f, const drawing *d, int number);
void drawing_curves_free(drawing_curves *c);

/* "AdaMod", "AdaMod (not run)", "AdaMod (diverged)"; has: there is something to draw. */
void drawing_line_name(const drawing_line *l, bool has, char out[DRAWING_NAME]);
