/* variants.h - runs in order: which are seeds of one another, and what each variant came to.
 *
 * SPDX-License-Identifier: MIT
 */
#ifndef ADAMOD_VARIANTS_H
#define ADAMOD_VARIANTS_H

#include "reader.h"

#include <stdio.h>

/* Of n numbers; std divides by n - 1. NAN where there are none (std: fewer than two). */
typedef struct report_spread {
    int n;
    double median, mean, std, min, max;
} report_spread;

/* Leaves out what is not finite; sorts the numbers. */
report_spread report_spread_of(double *x, int n);

/* The columns of the table of results. */
typedef enum report_column {
    REPORT_LOSS,    /* of training: mean of the last twentieth of the updates */
    REPORT_VALID,   /* loss */
    REPORT_EXACT,   /* % of the test's sentences, or of the validation's where there is no test */
    REPORT_BLEU,    /* of the same */
    REPORT_UPDATES, /* that were made */
    REPORT_SECONDS, /* of training */
    REPORT_RATE,    /* tokens a second, over the whole training */
    REPORT_COLUMNS
} report_column;

typedef enum report_fate {
    REPORT_FINISHED,
    REPORT_GOING,
    REPORT_INTERRUPTED,
    REPORT_DIVERGED,
    REPORT_FATES
} report_fate;

typedef struct report_variant {
    const char *name;
    const report_run **run;
    int n, fates[REPORT_FATES];
    /* Over the runs that finished; where none did, over those that did not diverge; else over all. */
    report_spread of[REPORT_COLUMNS];
    /* Medians over the same runs: training loss at the first update, and after a sixth of the updates. */
    double first_loss, early_loss;
    int64_t early_step;
} report_variant;

typedef struct report {
    report_run *run;
    int n;
    report_variant *variant; /* in the order of their first runs */
    int n_variants;
} report;

/* 0, or -1 with one line in message and nothing to free. */
int report_load(report *out, const char *const *runs, int n, char *message, size_t size);
void report_free(report *r);

report_fate report_fate_of(const report_run *r);

/* The last update of the run that is known of. */
int64_t report_last_step(const report_run *r);

/* What a reader of the report should know of the runs, as lines on standard error: files that are missing, seeds that
 * differ in more than their seed. */
void report_notes(const report *r);

/* A line on standard error. */
void report_note(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* ---- The table ---- */

/* Divides the seconds of the table, and names what they become: s, min, h. */
double report_time_unit(double most_seconds, const char **name);

/* A cell for each column that any variant has a number for, under a head; row 0 holds the heads, column 0 names. */
typedef struct report_table {
    int rows, columns;
    char (*cell)[96];           /* row by row */
    int of[REPORT_COLUMNS + 2]; /* the report_column of each column; -1: names or runs */
} report_table;

int report_table_make(report_table *out, const report *r, char *message, size_t size);
const char *report_table_cell(const report_table *t, int row, int column);
void report_table_free(report_table *t);
/* In so many columns if it can be; may_cut: by leaving means and deviations out if need be, also from the table. */
void report_table_print(report_table *t, FILE *out, int width, bool may_cut);

#endif
