#include "report/result_sheets.h"

#include "report/ranking.h"

#include <math.h>
#include <string.h>

/* Puts a number that a program reads back exactly enough; NAN is an empty field. */
static void put_number(sheet *s, int row, int column, double x) {
    if (isfinite(x)) sheet_put(s, row, column, "%.10g", x);
}

/* ---- Results ----------------------------------------------------------------------------------------------------- */

sheet *results_sheet(const report *r, const report_table *t, const report_remarks *m) {
    sheet *s = sheet_create(
        t->rows, t->columns,
        r->n > r->n_variants ? "Results: median (mean ± standard deviation) over the runs of a variant. Bold: better "
                               "than every other variant by more than chance (Welch’s test, p < 0.05)."
                             : "Results of one run each.");
    for (int k = 0; s && k < t->columns; k++) {
        const ranking rank = ranking_of(r, t->of[k]);
        for (int i = 0; i < t->rows; i++) sheet_put(s, i, k, "%s", report_table_cell(t, i, k));
        if (ranking_is_won(&rank)) sheet_bold(s, rank.best + 1, k);
    }
    for (int i = 0; s && i < m->n; i++) {
        if (m->of[i].own) sheet_put_remark(s, i + 1, 0, report_table_cell(t, i + 1, 0), REMARKS_OWN);
        remarks_note(&m->of[i], s, i + 1, 0);
    }
    return s;
}

/* The name of a column's metric, its data and its unit, for programs. */
static void put_metric(sheet *s, int row, int first, const report *r, int column) {
    const metric *m = &r->column[column];
    const int index = (column - REPORT_FIRST_METRIC) % REPORT_COLUMN_METRICS;
    const bool scored = column >= REPORT_FIRST_METRIC && column < REPORT_UPDATES, rate = column >= REPORT_FIRST_RATE;
    const char *split = column == REPORT_LOSS    ? "train"
                        : column == REPORT_VALID ? report_evaluated(r)
                                                 : report_split(r, column);
    sheet_put(s, row, first, "%s", rate ? "throughput" : scored && *r->label[index] ? m->label : m->name);
    sheet_put(s, row, first + 1, "%s", split);
    sheet_put(s, row, first + 2, "%s%s", rate ? m->name : m->unit, rate ? "/s" : "");
}

static void put_record(sheet *s, int row, const report *r, int variant, int column, const report_remarks *m) {
    const report_variant *v = &r->variant[variant];
    const report_spread *of = &v->of[column];
    const double numbers[] = {of->median, of->mean, of->std, of->min, of->max};
    sheet_put(s, row, 0, "%s", v->name);
    put_metric(s, row, 1, r, column);
    sheet_put(s, row, 4, "%d", of->n);
    for (int k = 0; k < 5; k++) put_number(s, row, 5 + k, numbers[k]);
    sheet_put(s, row, 10, "%d", v->fates[REPORT_DIVERGED]);
    if (variant < m->n) remarks_put(&m->of[variant], s, row, 11);
}

sheet *results_records(const report *r, const report_remarks *m) {
    static const char *const heads[] = {"variant", "metric", "split", "unit", "runs",     "median",
                                        "mean",    "std",    "min",   "max",  "diverged", "notes"};
    enum { HEADS = sizeof heads / sizeof *heads };
    int n = 0, row = 1;
    for (int i = 0; i < r->n_variants; i++) {
        for (int c = 0; c < REPORT_COLUMNS; c++) n += r->variant[i].of[c].n > 0;
    }
    sheet *s = sheet_under(heads, HEADS, n, NULL);
    for (int i = 0; s && i < r->n_variants; i++) {
        for (int c = 0; c < REPORT_COLUMNS; c++) {
            if (r->variant[i].of[c].n) put_record(s, row++, r, i, c, m);
        }
    }
    return s;
}

/* ---- Tests ------------------------------------------------------------------------------------------------------- */

/* One of Welch's tests. */
typedef struct test {
    int place;           /* of the column among those tested: scores, then the loss of evaluations */
    int column, variant; /* the other one */
    ranking rank;
} test;

enum { SCORES = REPORT_UPDATES - REPORT_FIRST_METRIC };

/* Goes to the next test in the order of the table of results; begin with before_all. False: no more. */
static bool next_test(const report *r, test *at) {
    while (at->place <= SCORES) {
        while (at->rank.tested && ++at->variant < r->n_variants) {
            if (ranking_has_rival(r, at->column, &at->rank, at->variant)) return true;
        }
        const int place = at->place + 1, column = place < SCORES ? REPORT_FIRST_METRIC + place : REPORT_VALID;
        *at = (test){place, column, -1, ranking_of(r, column)};
        if (!report_has(r, column)) at->rank.tested = 0;
    }
    return false;
}

static const test before_all = {.place = -1};

int tests_count(const report *r) {
    int n = 0;
    for (test at = before_all; next_test(r, &at);) n++;
    return n;
}

/* The lead of the best variant's mean. */
static double difference(const report *r, const test *at) {
    return r->variant[at->rank.best].of[at->column].mean - r->variant[at->variant].of[at->column].mean;
}

static void put_test(sheet *s, int row, const report *r, const test *at) {
    char head[96], p[24], by[48];
    const double found = ranking_p(r, at->column, &at->rank, at->variant);
    report_column_head(r, at->column, "", head, sizeof head);
    ranking_p_words(found, p, sizeof p);
    ranking_difference(&r->column[at->column], difference(r, at), by, sizeof by);
    sheet_put(s, row, 0, "%s", head);
    sheet_put(s, row, 1, "%s", r->variant[at->rank.best].name);
    sheet_put(s, row, 2, "%s", r->variant[at->variant].name);
    sheet_put(s, row, 3, "%s", by);
    sheet_put(s, row, 4, "%s", p);
    sheet_put(s, row, 5, "%s", ranking_beats(r, at->column, &at->rank, at->variant) ? "yes" : "no");
}

sheet *tests_sheet(const report *r) {
    static const char *const heads[] = {"result", "best", "against", "difference", "Welch’s test", "more than chance"};
    enum { HEADS = sizeof heads / sizeof *heads };
    char power[300];
    int row = 1;
    ranking_power(r, power, sizeof power);
    sheet *s = sheet_under(heads, HEADS, tests_count(r), power);
    for (test at = before_all; s && next_test(r, &at);) put_test(s, row++, r, &at);
    return s;
}

sheet *tests_records(const report *r) {
    static const char *const heads[] = {"metric",    "split",      "unit",       "best", "other",
                                        "best_runs", "other_runs", "difference", "p"};
    enum { HEADS = sizeof heads / sizeof *heads };
    int row = 1;
    sheet *s = sheet_under(heads, HEADS, tests_count(r), NULL);
    for (test at = before_all; s && next_test(r, &at); row++) {
        const report_variant *best = &r->variant[at.rank.best], *other = &r->variant[at.variant];
        put_metric(s, row, 0, r, at.column);
        sheet_put(s, row, 3, "%s", best->name);
        sheet_put(s, row, 4, "%s", other->name);
        sheet_put(s, row, 5, "%d", best->of[at.column].n);
        sheet_put(s, row, 6, "%d", other->of[at.column].n);
        put_number(s, row, 7, difference(r, &at));
        put_number(s, row, 8, ranking_p(r, at.column, &at.rank, at.variant));
    }
    return s;
}
