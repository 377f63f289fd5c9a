/* variants.h - groups runs that differ only in their seed into variants, and sums up the results of each. */
#pragma once

#include "report/reader.h"

#include <stdio.h>

/* Statistics of n numbers; std divides by n - 1. NAN: there are none (std: fewer than two). */
typedef struct report_spread {
    int n;
    double median, mean, std, min, max;
} report_spread;

/* Sorts the numbers; those that are not finite do not count. */
report_spread report_spread_of(double *x, int n);

enum { REPORT_COLUMN_METRICS = 32 }; /* most of all runs together */

/* The columns of the table of results, which shows the losses after the metrics. */
enum {
    REPORT_LOSS,  /* of training: mean of the last twentieth of the updates */
    REPORT_VALID, /* loss */
    /* The other headline metrics of all runs in the order of appearance: of the test data; then of the validation data, for
     * runs that have no test data or have not ended. */
    REPORT_FIRST_METRIC,
    REPORT_FIRST_VALID = REPORT_FIRST_METRIC + REPORT_COLUMN_METRICS,
    REPORT_UPDATES = REPORT_FIRST_VALID + REPORT_COLUMN_METRICS, /* made */
    REPORT_SECONDS,                                              /* of training */
    REPORT_FIRST_RATE, /* items a second over the whole training, a column for each kind */
    REPORT_COLUMNS = REPORT_FIRST_RATE + 8
};

typedef enum report_fate {
    REPORT_FINISHED,
    REPORT_GOING,
    REPORT_INTERRUPTED,
    REPORT_DIVERGED,
    REPORT_FATES
} report_fate;

/* Runs with the same recipe, except for the seed and for what is only recorded, and with the same data as far as known. */
typedef struct report_variant {
    char *name;  /* the recipe's name; if not unique, with the difference: "Adam (train.steps=40)" */
    char *label; /* in figures: only the difference if all recipes have the same name, without clear keys */
    const report_run **run;
    int n, fates[REPORT_FATES];
    /* Over finished runs; if there are none, over those that did not diverge; else over all. */
    report_spread of[REPORT_COLUMNS];
    /* Medians over the same runs of the training loss: at the first update, after a sixth of the updates, and the lowest
     * mean of the later sixths. */
    double first_loss, early_loss, lowest_loss;
    int64_t early_step;
} report_variant;

typedef struct report {
    report_run *run;
    int n;
    report_variant *variant; /* in the order of their first runs */
    int n_variants;
    metric column[REPORT_COLUMNS];         /* strings are owned by the runs or are in label */
    char label[REPORT_COLUMN_METRICS][64]; /* for metrics of the same name: "BLEU tok:13a" */
    int n_metrics, n_rates;                /* columns in use */
    bool evaluates_on_test;                /* all runs held out no validation data and evaluated on the test data */
    int number, of, first; /* its number among the `of` reports of the page; number of its first variant */
} report;

/* Loads runs of one task. After a failure there is nothing to free. known: see report_run_read. */
int report_load(report *out, const char *const *runs, int n, const metric *known, int n_known);
void report_free(report *r);

/* A report for each task, in the order of first runs: results of different tasks do not compare. Runs of an unknown task
 * belong to the only known one, or to a report of their own. */
typedef struct reports {
    report *at;
    int n;
} reports;

int reports_load(reports *out, const char *const *runs, int n, const metric *known, int n_known);
void reports_free(reports *r);

/* Whether the table has the column: a variant has a number in it, and for the validation data, none for the test data. */
bool report_has(const report *r, int column);

/* The data that a column is of, in a word: "test", "validation"; "": its label says it. */
const char *report_split(const report *r, int column);
/* The data of evaluations during training: "validation", or "test" if the runs held out none. */
const char *report_evaluated(const report *r);

/* Whether all runs measured the same thing in a column, so that the better number is the better run. Otherwise why, unless
 * NULL, gets what they differ in: "label smoothing and vocabulary". */
bool report_comparable(const report *r, int column, char *why, size_t size);

/* Says in a sentence or two whether times compare, by the machines' load; "": one run. */
void report_times(const report *r, char *out, size_t size);

/* Whether two runs belong to the same variant, by recipe and data. */
bool report_same_variant(const report_run *a, const report_run *b);
/* Finds a few keys that distinguish the variants of the same name: the rule if it differs, then the most telling first. */
enum { REPORT_TELLING = 16 };
typedef struct report_keys {
    const char *at[REPORT_TELLING];
    int n;
} report_keys;
void report_telling_keys(const report *r, int variant, report_keys *out);
/* Describes a variant by those keys: "adam, lr=0.1", "train.steps=40"; "": no key differs. */
void report_difference(const report *r, int variant, const report_keys *keys, char *out, size_t size);

/* The value of a point for the column of the validation loss or of a metric, for any split; NAN: none. */
double report_value(const report *r, const report_run *run, const report_point *p, int column);

report_fate report_fate_of(const report_run *r);

/* The first run of a variant with a property; NULL: none. */
const report_run *report_first_run(const report_variant *v, bool (*has)(const report_run *r));

/* The last recorded update of the run. */
int64_t report_last_step(const report_run *r);

/* Writes notes on the runs to standard error: missing files, runs with the same seed. */
void report_notes(const report *r);

/* Writes a line to standard error. */
void report_note(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* ---- The table ---- */

/* The number of seconds in the unit for a column of times, and its name: s, min, h. */
double report_time_unit(double most_seconds, const char **name);

/* Formats x with `digits` decimals; whole numbers as "12,345", large ones as "1.23e+09". */
void report_number(double x, int digits, char *out, size_t size);

/* Writes "median (mean ± std)", as in the paper; one number for one run, or for equal whole numbers; "–": none. Numbers are
 * divided by unit. */
void report_spread_text(const report_spread *s, int digits, double unit, char *out, size_t size);

/* Upper case of an ASCII letter. */
char report_capital(char c);

/* Row 0 has the heads, column 0 the variants' names; columns without a number are left out. */
typedef struct report_table {
    int rows, columns;
    char (*cell)[96];           /* row by row */
    int of[REPORT_COLUMNS + 2]; /* index into report.column; -1: names, or numbers of runs */
} report_table;

/* The head of a column: "training loss", "test accuracy %", "images/s". */
void report_column_head(const report *r, int column, const char *time_unit, char *out, size_t size);

int report_table_make(report_table *out, const report *r);
const char *report_table_cell(const report_table *t, int row, int column);
void report_table_free(report_table *t);
/* The width of the terminal; 120 without one. */
int report_width(void);
/* Prints the table in `width` characters if it can. may_cut: may remove means and deviations from the table. */
void report_table_print(report_table *t, FILE *out, int width, bool may_cut);
