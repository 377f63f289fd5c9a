/* study_table.c - tables in the paper's form: median (mean ± std) over the seeds, the paper's beside it. A cell says what is
 * not as the study plans it. */
#include "study/study_parts.h"

#include "core/error.h"
#include "report/page.h"
#include "report/ranking.h"
#include "report/sheet.h"
#include "report/welch.h"

#include <math.h>
#include <stdarg.h>
#include <string.h>
#include <strings.h>

/* A cell of a table. */
typedef struct place {
    const study_results *r;
    const study_table *t;
    int row, column;
} place;

/* The method of a row in the experiment of a column; -1: it has none. */
static int method_at(const place *p) {
    return study_find_method(&p->r->s->experiment[p->t->column[p->column]], p->t->rows.at[p->row]);
}

static const study_cell *cell_at(const place *p) {
    const int method = method_at(p);
    return method < 0 ? NULL : study_cell_of(p->r, p->t->column[p->column], method);
}

static int decimals_of(const study_results *r, int experiment) {
    const metric *m = study_metric(r, experiment);
    return m ? m->decimals : 2;
}

/* ---- Text of a cell ---------------------------------------------------------------------------------------------- */

static void mark(study_marks *m, const char *format, ...) __attribute__((format(printf, 2, 3)));
static void mark(study_marks *m, const char *format, ...) {
    va_list arguments;
    size_t used = strlen(m->text);
    used += (size_t)snprintf(m->text + used, sizeof m->text - used, "%s", used ? "; " : "");
    va_start(arguments, format);
    if (used < sizeof m->text) vsnprintf(m->text + used, sizeof m->text - used, format, arguments);
    va_end(arguments);
}

study_marks study_marks_of(const study_cell *c, int wanted) {
    const int over = c->finished + c->diverged;
    study_marks m = {""};
    if (over < wanted) mark(&m, "%d of %d seeds", over, wanted);
    if (c->diverged && c->finished) mark(&m, "%d of %d diverges", c->diverged, over);
    if (*c->length) mark(&m, "%s", c->length);
    if (*c->data) mark(&m, "%s", c->data);
    if (c->validation) mark(&m, "validation data");
    return m;
}

/* Why a cell has no number. */
static const char *state_of(const study_cell *c) {
    return c->diverged ? "diverges" : c->finished ? "not measured" : c->going ? "not over" : "not run";
}

/* Writes the number, or why there is none; the marks follow. */
static void put_result(sheet *to, const place *p, const study_cell *c) {
    const int e = p->t->column[p->column], column = 1 + 2 * p->column;
    const study_marks m = study_marks_of(c, (int)study_seeds(p->r->s, p->r->o, e));
    char number[128];
    if (c->of.n) report_spread_text(&c->of, decimals_of(p->r, e), 1, number, sizeof number);
    else snprintf(number, sizeof number, "%s", state_of(c));
    const bool empty = !c->finished && !c->diverged;
    if (!c->n && p->r->missing && p->r->missing[e])
        sheet_put_remark(to, p->row + 1, column, number, "data are missing");
    else if (empty || !*m.text) sheet_put(to, p->row + 1, column, "%s", number);
    else sheet_put_remark(to, p->row + 1, column, number, m.text);
    if (*c->keys) sheet_note(to, p->row + 1, column, "These runs differ from the plan: %s.", c->keys);
    remarks_note(&c->notes, to, p->row + 1, column);
    if (c->going)
        sheet_note(to, p->row + 1, column, "%d of its runs %s not over.", c->going, c->going > 1 ? "are" : "is");
    if (c->more)
        sheet_note(to, p->row + 1, column, "%d run%s with a larger seed than asked for %s there and do%s not count.",
                   c->more, c->more > 1 ? "s" : "", c->more > 1 ? "are" : "is", c->more > 1 ? "" : "es");
    if (!c->n && p->r->missing && p->r->missing[e])
        sheet_note(to, p->row + 1, column, "Missing data: %s", p->r->missing[e]);
}

static void put_paper(sheet *to, const place *p, const study_number *x) {
    const report_spread spread = {.n = isnan(x->std) ? 1 : 2, .median = x->median, .mean = x->mean, .std = x->std};
    char number[128] = "";
    if (!isnan(x->median)) report_spread_text(&spread, 2, 1, number, sizeof number);
    sheet_put(to, p->row + 1, 2 + 2 * p->column, "%s", x->text ? x->text : number);
}

/* ---- The best ---------------------------------------------------------------------------------------------------- */

/* Whether a method is better than each other one of the column by more than chance, with runs as comparable. */
static bool is_best(const place *p) {
    const study_cell *own = cell_at(p);
    const metric *m = study_metric(p->r, p->t->column[p->column]);
    int beaten = 0;
    if (!own || !m) return false;
    for (int i = 0; i < p->t->rows.n; i++) {
        const place at = {p->r, p->t, i, p->column};
        const study_cell *other = cell_at(&at);
        if (i == p->row || !other || !other->of.n) continue;
        if (strcmp(own->length, other->length) != 0 || strcmp(own->data, other->data) != 0) return false;
        if (!welch_better(&own->of, &other->of, m->better)) return false;
        beaten++;
    }
    return beaten > 0;
}

/* The row with the best mean; -1: none. */
static int leader(const study_results *r, const study_table *t, int column) {
    const metric *m = study_metric(r, t->column[column]);
    int best = -1;
    double most = -INFINITY;
    for (int i = 0; m && i < t->rows.n; i++) {
        const place at = {r, t, i, column};
        const study_cell *c = cell_at(&at);
        if (!c || c->of.n < 2 || m->better * c->of.mean <= most) continue;
        most = m->better * c->of.mean;
        best = i;
    }
    return best;
}

/* Writes what the seeds can tell of a column: "SGDM has the best mean; against Adam (p = 0.21), AdaMod (p = 0.03) by Welch's test." */
static void write_test(const study_results *r, const study_table *t, int column, FILE *page) {
    const int best = leader(r, t, column);
    const place own = {r, t, best, column};
    const char *before = " has the best mean; against ";
    char power[300] = "", words[32];
    int least = 0;
    for (int i = 0; best >= 0 && i < t->rows.n; i++) {
        const place at = {r, t, i, column};
        const study_cell *c = i == best ? NULL : cell_at(&at), *b = cell_at(&own);
        const double p = c ? welch_p(&b->of, &c->of) : NAN;
        if (isnan(p)) continue;
        if (!least)
            html(page, "<p class=\"legend\">%s: %s", r->s->experiment[t->column[column]].title, t->rows.at[best]);
        ranking_p_words(p, words, sizeof words);
        html(page, "%s%s (%s)", before, t->rows.at[i], words);
        before = ", ";
        if (!least || c->of.n < least) least = c->of.n < b->of.n ? c->of.n : b->of.n;
    }
    if (!least) return;
    welch_power(least, power, sizeof power);
    html(page, " by Welch's test. %s</p>\n", power);
}

/* ---- The table --------------------------------------------------------------------------------------------------- */

static void put_cell(sheet *to, const place *p) {
    const int method = method_at(p);
    if (method < 0) return;
    const study_method *m = &p->r->s->experiment[p->t->column[p->column]].method[method];
    if (m->note && !p->r->o->quick) sheet_note(to, p->row + 1, 0, "%s", m->note);
    put_result(to, p, cell_at(p));
    put_paper(to, p, &m->paper);
    if (is_best(p)) sheet_bold(to, p->row + 1, 1 + 2 * p->column);
}

/* The experiment and the paper, and what each measures if that is not the same, as the table's title says. */
static void put_head(sheet *to, const study_results *r, int experiment, int column) {
    const study_experiment *e = &r->s->experiment[experiment];
    const char *name = study_measure(r, experiment);
    const metric *m = study_metric(r, experiment), *of_paper = study_metric_named(r, experiment, e->measure);
    if (strcmp(name, e->measure) == 0) {
        sheet_put(to, 0, column, "%s", e->title);
        sheet_put(to, 0, column + 1, "paper");
    } else {
        sheet_put(to, 0, column, "%s (%s%s%s)", e->title, m ? m->label : name, m && *m->unit ? " " : "",
                  m ? m->unit : "");
        /* Of the runs' own task, which may mean something else by the name: only "BLEU" for "bleu". */
        const bool same = of_paper && strcasecmp(of_paper->label, e->measure) == 0;
        sheet_put(to, 0, column + 1, "paper (%s)", same ? of_paper->label : e->measure);
    }
}

static sheet *make_sheet(const study_results *r, const study_table *t) {
    char title[512];
    snprintf(title, sizeof title, r->o->quick ? "%.400s. " STUDY_QUICK_NOTE : "%.400s", t->title);
    sheet *s = sheet_create(1 + t->rows.n, 1 + 2 * t->columns.n, title);
    if (!s) return NULL;
    for (int c = 0; c < t->columns.n; c++) put_head(s, r, t->column[c], 1 + 2 * c);
    for (int i = 0; i < t->rows.n; i++) {
        sheet_put(s, i + 1, 0, "%s", t->rows.at[i]);
        for (int c = 0; c < t->columns.n; c++) put_cell(s, &(place){r, t, i, c});
    }
    return s;
}

static void put_number(sheet *s, int row, int column, double x) {
    if (!isnan(x)) sheet_put(s, row, column, "%.10g", x);
}

static void put_record(sheet *s, int row, const place *p) {
    const study_experiment *e = &p->r->s->experiment[p->t->column[p->column]];
    const study_number *paper = &e->method[method_at(p)].paper;
    const study_cell *c = cell_at(p);
    const double numbers[] = {c->of.median, c->of.mean,    c->of.std,   c->of.min,
                              c->of.max,    paper->median, paper->mean, paper->std};
    sheet_put(s, row, 0, "%s", e->name);
    sheet_put(s, row, 1, "%s", p->t->rows.at[p->row]);
    sheet_put(s, row, 2, "%s", study_measure(p->r, p->t->column[p->column]));
    sheet_put(s, row, 3, "%lld", (long long)study_seeds(p->r->s, p->r->o, p->t->column[p->column]));
    sheet_put(s, row, 4, "%d", c->finished);
    sheet_put(s, row, 5, "%d", c->diverged);
    for (int i = 0; i < 8; i++) put_number(s, row, 6 + i, numbers[i]);
    sheet_put(s, row, 14, "%s", paper->text ? paper->text : "");
    sheet_put(s, row, 15, "%s", c->keys);
    remarks_put(&c->notes, s, row, 16);
}

/* One row a cell, for programs. */
static sheet *make_records(const study_results *r, const study_table *t) {
    static const char *const heads[] = {"experiment", "method",    "metric",     "seeds",
                                        "finished",   "diverged",  "median",     "mean",
                                        "std",        "min",       "max",        "paper median",
                                        "paper mean", "paper std", "paper says", "keys that differ from the plan",
                                        "notes"};
    enum { HEADS = sizeof heads / sizeof *heads };
    int n = 0, row = 1;
    for (int i = 0; i < t->rows.n * t->columns.n; i++)
        n += method_at(&(place){r, t, i % t->rows.n, i / t->rows.n}) >= 0;
    sheet *s = sheet_create(1 + n, HEADS, "");
    for (int i = 0; s && i < HEADS; i++) sheet_put(s, 0, i, "%s", heads[i]);
    for (int i = 0; s && i < t->rows.n * t->columns.n; i++) {
        const place p = {r, t, i % t->rows.n, i / t->rows.n};
        if (method_at(&p) >= 0) put_record(s, row++, &p);
    }
    return s;
}

int study_write_table(const study_results *r, const study_table *t, const char *directory, const char *link,
                      FILE *page) {
    static const char *const kinds[] = {"csv", "md", "tex"};
    sheet *s = make_sheet(r, t), *records = make_records(r, t);
    int status =
        s && records ? sheet_save(s, records, directory, t->name) : adamod__fail(ADAMOD_ERROR_MEMORY, "out of memory");
    html(page, "<section id=\"%s\">\n<h2>", t->name);
    study_write_name(page, t->name);
    fputs("</h2>\n", page);
    if (!status) status = sheet_html(s, page);
    for (int c = 0; c < t->columns.n; c++) write_test(r, t, c, page);
    for (int c = 0; c < t->columns.n; c++) study_write_mixture(r, t->column[c], page);
    fputs("<p class=\"legend\">The table as ", page);
    for (int i = 0; i < 3; i++)
        html(page, "%s<a href=\"%s/%s.%s\">%s</a>", i ? ", " : "", link, t->name, kinds[i], kinds[i]);
    fputs("</p>\n</section>\n", page);
    sheet_free(s);
    sheet_free(records);
    return status;
}
