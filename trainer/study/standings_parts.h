/* standings_parts.h - between the files of standings.h. */
#pragma once

#include "report/figures.h"
#include "report/sheet.h"
#include "study/standings.h"

/* Counts the runs of a group that started; finds the largest value that trains and the sensitivity of each variant. */
void standings_look_at_values(standings *s, int group);

/* Makes the name of a file: `what` ("results", "tests"); if options name the files, NAME for "results" and NAME-tests
 * for "tests". */
typedef struct standings_name {
    char text[160];
} standings_name;
standings_name standings_file_name(const standings *s, const char *what);

/* ---- Tests ---- */

/* Why the variants of a group are not tested against each other, as the end of a sentence; NULL: they are. */
const char *standings_untested(const standings *s, int group);
/* The number of tests of leaders against others. */
int standings_count_tests(const standings *s);
/* These for people and for programs. NULL: no memory. */
sheet *standings_tests_sheet(const standings *s);
sheet *standings_tests_records(const standings *s);
void standings_print_tests(const standings *s, FILE *out);
/* Writes for each group that is not tested why it is not. */
void standings_write_untested(const standings *s, FILE *page);

/* ---- Tables and figures ---- */

/* The table of the best values, and of all values of a tuned key. NULL: no memory. */
sheet *standings_results_sheet(const standings *s);
sheet *standings_values_sheet(const standings *s);
/* Writes the remarks on the runs of the best values as sentences. */
int standings_write_remarks(const standings *s, FILE *page);

/* Draws the metric of each group against the tuned value, a line for each variant; standings-1, standings-2, ... */
int standings_draw(const standings *s, report_figures *f);
