/* variants.h - runs in order: which are seeds of one another, and what each variant came to. */
#ifndef ADAMOD_VARIANTS_H
#define ADAMOD_VARIANTS_H

#include "report/reader.h"

#include <stdio.h>

/* Of n numbers; std divides by n - 1. NAN where there are none (std: fewer than two). */
typedef struct report_spread {
    int n;
    double median, mean, std, min, max;
} report_spread;

/* Leaves out what is not finite; sorts the numbers. */
report_spread report_spread_of(double *x, int n);

enum { REPORT_COLUMN_METRICS = 32 }; /* of all runs together */

/* The columns of the table of results. The table has losses after metrics, and that of training last. */
enum {
    REPORT_LOSS,  /* of training: mean of the last twentieth of the updates */
    REPORT_VALID, /* loss */
    /* The other headline metrics of any run, in the order in which runs first have them: of the test data; then the same of
     * the validation data, for runs without test data or without an end. */
    REPORT_FIRST_METRIC,
    REPORT_FIRST_VALID = REPORT_FIRST_METRIC + REPORT_COLUMN_METRICS,
    REPORT_UPDATES = REPORT_FIRST_VALID + REPORT_COLUMN_METRICS, /* that were made */
    REPORT_SECONDS,                                              /* of training */
    REPORT_FIRST_RATE, /* what runs count, a second, over the whole training: as with metrics */
    REPORT_COLUMNS = REPORT_FIRST_RATE + 8
};

typedef enum report_fate {
    REPORT_FINISHED,
    REPORT_GOING,
    REPORT_INTERRUPTED,
    REPORT_DIVERGED,
    REPORT_FATES
} report_fate;

/* Runs of one recipe, but for the seed and for what only records; of the same data, as far as that is known. */
typedef struct report_variant {
    char *name;  /* the recipe's; where others have that too, with what differs: "Adam (train.steps=40)" */
    char *label; /* in figures, which have little room: what differs alone, where all have the same recipe's name */
    const report_run **run;
    int n, fates[REPORT_FATES];
    /* Over the runs that finished; where none did, over those that did not diverge; else over all. */
    report_spread of[REPORT_COLUMNS];
    /* Medians over the same runs: training loss at the first update, after a sixth of the updates, and of the later
     * sixth that has the lowest. */
    double first_loss, early_loss, lowest_loss;
    int64_t early_step;
} report_variant;

typedef struct report {
    report_run *run;
    int n;
    report_variant *variant; /* in the order of their first runs */
    int n_variants;
    metric column[REPORT_COLUMNS];         /* what is in each column; the strings are the runs', or label's */
    char label[REPORT_COLUMN_METRICS][64]; /* of metrics that share a name: "BLEU tok:13a" */
    int n_metrics, n_rates;                /* of the columns for them, those that are taken */
    int number, of, first; /* of the reports of a page: which it is, of how many, the number of its first variant */
} report;

/* Of runs of one task. After a failure there is nothing to free. known: see report_run_read. */
int report_load(report *out, const char *const *runs, int n, const metric *known, int n_known);
void report_free(report *r);

/* A report for each task, in the order of their first runs: numbers of different tasks have nothing in common but names.
 * Runs whose task is not known are of the one that there is, or make one of their own. */
typedef struct reports {
    report *at;
    int n;
} reports;

int reports_load(reports *out, const char *const *runs, int n, const metric *known, int n_known);
void reports_free(reports *r);

/* Whether the table has the column: some variant has a number in it, and if it is of the validation data, some variant
 * has none of the test data. */
bool report_has(const report *r, int column);

/* Whether all runs measured the same thing in a column, so that the better number is the better run. Else why (which may
 * be NULL) is what they differ in: "label smoothing and vocabulary". */
bool report_comparable(const report *r, int column, char *why, size_t size);

/* What is known of the load that times carry, in a sentence or two; "": of one run there is nothing to compare. */
void report_times(const report *r, char *out, size_t size);

/* Whether runs are of one variant, by recipe and data. */
bool report_same_variant(const report_run *a, const report_run *b);
/* A few keys that tell the variants of one name apart, as far as keys do: the rule, if they have several, then in the
 * order in which they tell the most. */
enum { REPORT_TELLING = 16 };
typedef struct report_keys {
    const char *at[REPORT_TELLING];
    int n;
} report_keys;
void report_telling_keys(const report *r, int variant, report_keys *out);
/* What tells a variant from others of its name, by those keys: "adam, lr=0.1", "train.steps=40"; "": nothing. */
void report_difference(const report *r, int variant, const report_keys *keys, char *out, size_t size);

/* What a run measured at a point, for the column of the validation loss or of a metric, whatever the split; NAN:
 * nothing. */
double report_value(const report *r, const report_run *run, const report_point *p, int column);

report_fate report_fate_of(const report_run *r);

/* The last update of the run that is known of. */
int64_t report_last_step(const report_run *r);

/* What a reader of the report should know of the runs, as lines on standard error: files that are missing, runs
 * that are the same run twice. */
void report_notes(const report *r);

/* A line on standard error. */
void report_note(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* ---- The table ---- */

/* Divides the seconds of the table, and names what they become: s, min, h. */
double report_time_unit(double most_seconds, const char **name);

/* With so many digits after the point; whole numbers as "12,345", large ones as "1.23e+09". */
void report_number(double x, int digits, char *out, size_t size);

/* A letter as it begins a sentence; what is no small ASCII letter stays. */
char report_capital(char c);

/* A cell for each column that any variant has a number for, under a head; row 0 holds the heads, column 0 names. */
typedef struct report_table {
    int rows, columns;
    char (*cell)[96];           /* row by row */
    int of[REPORT_COLUMNS + 2]; /* its number in report.column; -1: names or runs */
} report_table;

/* What stands above a column: "training loss", "test accuracy %", "images/s". */
void report_column_head(const report *r, int column, const char *time_unit, char *out, size_t size);

int report_table_make(report_table *out, const report *r);
const char *report_table_cell(const report_table *t, int row, int column);
void report_table_free(report_table *t);
/* In so many columns if it can be; may_cut: by leaving means and deviations out if need be, also from the table. */
void report_table_print(report_table *t, FILE *out, int width, bool may_cut);

#endif
