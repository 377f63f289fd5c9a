/* result_sheets.h - the tables of results as sheets: for people as the page shows them, and for programs with one number, or
 * one test, a row. */
#pragma once

#include "report/remarks.h"
#include "report/sheet.h"
#include "report/variants.h"

/* The page's table of results, cell by cell; remarks are footnotes of the names. NULL: no memory, as for all of these. */
sheet *results_sheet(const report *r, const report_table *t, const report_remarks *m);
/* variant, metric, split, unit, runs, median, mean, std, min, max, diverged, notes. */
sheet *results_records(const report *r, const report_remarks *m);

/* Welch's tests between the best variant of each ranked column and every other. */
int tests_count(const report *r);
sheet *tests_sheet(const report *r);
/* metric, split, unit, best, other, best_runs, other_runs, difference (of the means), p. */
sheet *tests_records(const report *r);
