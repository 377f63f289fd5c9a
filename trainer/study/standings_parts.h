/* standings_parts.h - between the files of standings.h. */
#ifndef ADAMOD_STANDINGS_PARTS_H
#define ADAMOD_STANDINGS_PARTS_H

#include "report/figures.h"
#include "report/sheet.h"
#include "study/standings.h"

/* The table of the best values, and of all values of a tuned key. NULL: no memory. */
sheet *standings_results_sheet(const standings *s);
sheet *standings_values_sheet(const standings *s);

/* Draws the metric of each group against the tuned value, a line for each variant; standings-1, standings-2, ... */
int standings_draw(const standings *s, report_figures *f);

#endif
