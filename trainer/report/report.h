/* report.h - makes a self-contained page with figures from run directories (train/run.h), and reads nothing else. */
#pragma once

#include "support/metric.h"

#include <limits.h>

/* Writes the page (an HTML file that needs no network), every figure as SVG and PDF in the directory PAGE-figures, and every
 * table as CSV, Markdown and LaTeX in PAGE-tables. Runs that differ only in their seed are averaged (variants.h). Notes, for
 * example of a run without histograms, go to standard error. known: the metrics of runs without task.json (reader.h). */
int report_write(const char *const *runs, int n, const metric *known, int n_known, const char *page);

/* The directory beside a page: "report-tables" of report.html. Returns its path relative to the page, a part of out. */
const char *report_beside(const char *page, const char *what, char out[PATH_MAX]);

/* Prints the table of results for a terminal, and what seeds can tell of it. */
int report_print_table(const char *const *runs, int n, const metric *known, int n_known);
