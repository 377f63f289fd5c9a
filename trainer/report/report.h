/* report.h - from run directories to one self-contained page and the figures beside it. Reads run directories (see
 * train/run.h for the format) and nothing else. */
#ifndef ADAMOD_REPORT_H
#define ADAMOD_REPORT_H

#include "support/metric.h"

#include <stddef.h>

/* Writes page (an HTML file that needs no network) and, in the directory PAGE-figures beside it, every figure as SVG
 * and PDF. Runs that differ in their seed alone are averaged: see variants.h. Notes that do
 * not keep the page from being written (a run without histograms, say) go to standard error. known: the metrics of
 * runs that do not describe their own, see reader.h. */
int report_write(const char *const *runs, int n, const metric *known, int n_known, const char *page);

/* The table of final results alone, as text for a terminal. */
int report_print_table(const char *const *runs, int n, const metric *known, int n_known);

#endif
