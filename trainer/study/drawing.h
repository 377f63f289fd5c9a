/* drawing.h - a figure of one or more panels side by side, drawn by one gnuplot script: NAME.svg and NAME.pdf, from NAME.gp
 * and its data files, which stay so that it can be restyled by hand. */
#pragma once

#include "report/reader.h"

/* A line, or a row of histograms: runs that differ only in their seed. */
typedef struct drawing_line {
    const char *name;
    int colour; /* as report_colour numbers variants: a method has the same one in all panels */
    const report_run *const *run;
    int n; /* 0: named in the legend as not run yet */
} drawing_line;

typedef enum drawing_split { DRAWING_TRAIN, DRAWING_VALID, DRAWING_TEST } drawing_split;

typedef struct drawing_panel {
    const char *title; /* above it; of learning rates of several lines: "TITLE: LINE"; "": none */
    enum {
        DRAWING_CURVES, /* median over the seeds, with a band from the least to the most */
        DRAWING_RATES   /* histograms of log10 of the effective learning rates of some updates, a place for each line;
                           all of a drawing have the same axes */
    } kind;
    drawing_split split;
    const char *metric; /* name in task.json, "loss", or "perplexity" */
    bool epochs;        /* x axis in epochs, else in updates */
    double until;       /* end of the x axis; 0: of the data */
    const drawing_line *line;
    int n_lines;
} drawing_panel;

typedef struct drawing {
    const char *name;  /* "figure4", of less than 40 characters */
    const char *label; /* what it shows, for screen readers */
    const drawing_panel *panel;
    int n_panels;
} drawing;

/* The result of a drawing. */
typedef struct drawing_result {
    char *svg;     /* for use within HTML, in the page's colours; NULL: not drawn */
    bool pdf;      /* NAME.pdf exists; not every gnuplot can draw one */
    char why[256]; /* why it is not drawn: no gnuplot, no data; "": it is */
} drawing_result;

/* Draws into a directory that exists; style.gp, which all drawings there share, is written too. A run whose validation data
 * are the test data has its evaluations shown as DRAWING_TEST. Without gnuplot writes data and script only, which is no
 * failure. */
int drawing_make(const drawing *d, const char *directory, drawing_result *out);
void drawing_free(drawing_result *r);
