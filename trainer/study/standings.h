/* standings.h - variants of one recipe or of several side by side, each with its best value of a tuned key: tables, a figure
 * and a page.
 *
 * The best value is the one with the best mean on the validation data, among those with which all runs finished; never by
 * the test data. Runs that held out no validation data are chosen by their training loss. */
#ifndef ADAMOD_STANDINGS_H
#define ADAMOD_STANDINGS_H

#include "report/variants.h"
#include "study/run_list.h"

typedef struct standings_options {
    const char *metric; /* a name in task.json; NULL: the first headline but the loss */
    const char *split;  /* "valid" or "test" data to show; NULL: test data if there are any */
    const char *tuned;  /* the key; NULL: none */
    double started;     /* runs that end better than this are counted; NAN: none are */
} standings_options;

/* The metric that a group shows. */
typedef struct standing_metric {
    char name[64], label[64], unit[16];
    int decimals;
    metric_better better;
    bool test;    /* of the test data, else of the validation data */
    bool by_loss; /* there are no validation data: the training loss chooses the value */
} standing_metric;

/* Runs of a variant with one value of the tuned key. */
typedef struct standing_value {
    const char *value;              /* NULL: nothing is tuned */
    int n, finished, diverged;      /* runs; the others are not over */
    int started;                    /* see standings_options */
    double *shown, *chosen;         /* of the finished runs, sorted */
    report_spread spread, choosing; /* of these */
} standing_value;

/* A variant of a group. */
typedef struct standing {
    standing_value *value;
    int n;
    int best; /* value; -1: none */
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
/* Whether a run belongs to the best value of its variant. */
bool standings_is_best(const standings *s, const run_entry *e);
/* Whether a variant is better than all others of the group by more than its spread allows for chance. */
bool standings_wins(const standings *s, int group, int variant);
/* The last part of the tuned key: "lr". */
const char *standings_key(const standings *s);
/* "test accuracy %". */
void standings_metric_text(const standing_metric *m, char *out, size_t size);

/* Prints the table for a terminal. */
int standings_print(const standings *s);
/* Writes results.md, .tex, .csv and .json into a directory that is made, and with a tuned key values.md and .tex. */
int standings_save(const standings *s, const char *directory);
/* Writes DIRECTORY/report.html, with figures in report-figures; tables are in report-tables. pages: ends of the paths of the
 * groups' own pages, in DIRECTORY. */
int standings_page(const standings *s, const char *directory, const char *const *pages);

#endif
