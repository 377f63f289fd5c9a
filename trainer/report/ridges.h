/* ridges.h - histograms of learning rates of some updates, one in front of another, the first at the back. */
#pragma once

#include "report/figures.h"

enum { RIDGE_ROWS = 25 }; /* most histograms of a panel */

/* The axes that panels share: updates down, decades of learning rates across. */
typedef struct ridge_axes {
    int64_t step[RIDGE_ROWS];
    int rows;
    double low, high; /* decades */
} ridge_axes;
extern const ridge_axes ridge_no_axes;

typedef struct ridge_panel {
    const report_run *run;
    int variant; /* of its colour */
    bool before; /* the bound */
    char name[80], title[160];
    int blocks;  /* rows of the run */
    double most; /* the largest share; 0: no histogram near any row */
} ridge_panel;

/* Chooses at most `most` updates of a run up to `until` (0: all) with a constant ratio, so that they are dense at first. */
void ridge_choose_rows(ridge_axes *a, const report_run *r, int most, double until);
/* Widens the axes to a panel's histograms, and sets its largest share. */
void ridge_widen(ridge_axes *a, ridge_panel *p);
/* Rounds the axes outwards, after all panels. */
void ridge_round(ridge_axes *a);
/* Gives all panels one scale, so that they compare. A panel with ridges many times as tall as another's (sgd gives all
 * elements the same rate) keeps its own scale, or it would flatten the others. Returns whether all have the same. */
bool ridge_share_scale(ridge_panel *p, int n);

/* Writes NAME.dat; the settings of all panels; the plot of a panel, within `do for`. */
int ridge_write_data(report_figures *f, ridge_panel *p, const ridge_axes *a);
void ridge_write_axes(FILE *out, const ridge_axes *a);
void ridge_write_plot(FILE *out, const ridge_panel *p, const ridge_axes *a);
