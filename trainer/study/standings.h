/* standings.h - variants of one recipe or of several side by side, each with its best value of a tuned key: tables, a figure
 * and a page.
 *
 * The best value is the one with the best mean on the validation data, among those with which all runs finished; never
 * by the test data. Runs that held out no validation data are chosen by their training loss. If means are equal, the
 * first value counts.
 *
 * If all values are numbers above 0, the sensitivity of a variant says how much of a good result depends on the right
 * value (Wortsman et al. 2023, arXiv 2309.14322): the mean over the values of min(loss, loss at the start), less its
 * least. */
#pragma once

#include "report/remarks.h"
#include "report/variants.h"
#include "study/run_list.h"

typedef struct standings_options {
    const char *metric; /* a name in task.json; NULL: the first headline but the loss */
    const char *split;  /* "valid" or "test" data to show; NULL: test data if there are any */
    const char *tuned;  /* the key; NULL: none */
    double started;     /* runs that end better than this are counted; NAN: none are */
    bool started_share; /* started is a distance from the best mean of the group, as a share of that: 0.05 */
    const char *name;   /* of files: NAME.md, NAME-values.md, NAME-1.svg; NULL: results.md, values.md, tuned-1-1.svg */
    const char *asks;   /* what names the metric, for messages; NULL: "--metric" */
} standings_options;

/* The metric that a group shows. */
typedef struct standing_metric {
    char name[64], label[64], unit[16];
    int decimals;
    metric_better better;
    bool test;    /* of the test data, else of the validation data */
    bool by_loss; /* there are no validation data: the training loss chooses the value */
    double limit; /* what a run must be better than to count as started; NAN: none are counted */
    double start; /* a loss or a perplexity before the first update, at most; NAN: not known */
} standing_metric;

/* Runs of a variant with one value of the tuned key. */
typedef struct standing_value {
    const char *value;              /* NULL: nothing is tuned */
    int n, finished, diverged;      /* runs; the others are not over */
    int started;                    /* see standings_options */
    double *shown, *chosen;         /* of the finished runs, sorted */
    report_spread spread, choosing; /* of these */
    double *loss;                   /* of the finished runs */
    remarks remarks;                /* of the runs that are over */
} standing_value;

/* A variant of a group. */
typedef struct standing {
    standing_value *value;
    int n;
    int best;           /* value; -1: none */
    double start;       /* the largest loss of a first update; NAN: not known */
    double sensitivity; /* NAN: not all runs are over, or the values are not numbers above 0 */
    int largest;        /* the largest value with which all runs started; -1: none */
} standing;

typedef struct standings {
    const run_list *p;
    standings_options o;
    const char **group, **variant; /* names, in the order of the list */
    int n_groups, n_variants;
    standing_metric *metric; /* of each group */
    bool *comparable;        /* each group: whether all runs of the best values measured the same thing */
    standing *at;            /* [group, variant] */
} standings;

/* Reads all runs of the list that are over. known: as in report_run_read. */
int standings_make(standings *out, const run_list *p, const standings_options *o, const metric *known, int n_known);
void standings_free(standings *s);

static inline const standing *standings_at(const standings *s, int group, int variant) {
    return &s->at[group * s->n_variants + variant];
}
/* A value as a number above 0; NAN: it is none. */
double standings_number(const char *value);
/* Whether the values of all variants of a group are such numbers, and differ. */
bool standings_has_numbers(const standings *s, int group);
/* Whether a run belongs to the best value of its variant. */
bool standings_is_best(const standings *s, const run_entry *e);
/* Whether a variant is better than all others of the group by more than its spread allows for chance. */
bool standings_wins(const standings *s, int group, int variant);
/* The last part of the tuned key: "lr". */
const char *standings_key(const standings *s);
/* "test accuracy %". */
void standings_metric_text(const standing_metric *m, char *out, size_t size);

/* Prints the table for a terminal, and who leads whom by more than chance. */
int standings_print(const standings *s);
/* Makes a directory and writes results.md, .tex, .csv and .json into it; tests.md, .tex and .csv if variants have two
 * runs or more; and with a tuned key values.md and .tex. */
int standings_save(const standings *s, const char *directory);
/* Writes DIRECTORY/report.html, with figures in report-figures; tables are in report-tables. pages: ends of the paths of the
 * groups' own pages, in DIRECTORY. */
int standings_page(const standings *s, const char *directory, const char *const *pages);

/* The directories of the files, and a page's links to them, relative to the page. */
typedef struct standings_files {
    const char *tables, *tables_link, *figures, *figures_link;
} standings_files;

/* Saves the tables, draws the figures, and writes both onto a page that has begun, as part of a section. */
int standings_section(const standings *s, const standings_files *to, FILE *page);
