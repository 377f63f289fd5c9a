#include "study/standings_parts.h"

#include "core/error.h"
#include "support/array.h"
#include "report/welch.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static int fail_memory(void) { return adamod__fail(ADAMOD_ERROR_MEMORY, "out of memory for the table of results"); }

/* ---- names ---- */

static int find_name(const char *const *names, int n, const char *name) {
    int i = 0;
    while (i < n && strcmp(names[i], name) != 0) i++;
    return i;
}

static int collect_names(standings *s) {
    const run_list *p = s->p;
    s->group = calloc((size_t)p->n + 1, sizeof *s->group);
    s->variant = calloc((size_t)p->n + 1, sizeof *s->variant);
    if (!s->group || !s->variant) return fail_memory();
    for (int i = 0; i < p->n; i++) {
        const run_entry *e = &p->at[i];
        if (find_name(s->group, s->n_groups, e->group) == s->n_groups) s->group[s->n_groups++] = e->group;
        if (find_name(s->variant, s->n_variants, e->variant) == s->n_variants) s->variant[s->n_variants++] = e->variant;
    }
    s->metric = calloc((size_t)s->n_groups + 1, sizeof *s->metric);
    s->comparable = calloc((size_t)s->n_groups + 1, sizeof *s->comparable);
    s->at = calloc((size_t)(s->n_groups * s->n_variants) + 1, sizeof *s->at);
    for (int i = 0; s->at && i < s->n_groups * s->n_variants; i++)
        s->at[i].start = s->at[i].sensitivity = NAN, s->at[i].largest = -1;
    return s->metric && s->comparable && s->at ? 0 : fail_memory();
}

static standing *standing_of(const standings *s, const run_entry *e) {
    const int group = find_name(s->group, s->n_groups, e->group);
    return &s->at[group * s->n_variants + find_name(s->variant, s->n_variants, e->variant)];
}

static bool same_value(const char *a, const char *b) { return a && b ? strcmp(a, b) == 0 : a == b; }

/* The value of a run; it is added if it is new. NULL: no memory. */
static standing_value *value_of(const standings *s, const run_entry *e) {
    standing *at = standing_of(s, e);
    for (int i = 0; i < at->n; i++) {
        if (same_value(at->value[i].value, e->value)) return &at->value[i];
    }
    if (!ARRAY_EXTEND(at->value, at->n)) return NULL;
    standing_value *v = &at->value[at->n++];
    *v = (standing_value){.value = e->value,
                          .shown = calloc((size_t)s->p->n, sizeof *v->shown),
                          .chosen = calloc((size_t)s->p->n, sizeof *v->chosen),
                          .loss = calloc((size_t)s->p->n, sizeof *v->loss)};
    return v->shown && v->chosen && v->loss ? v : NULL;
}

void standings_free(standings *s) {
    for (int i = 0; s->at && i < s->n_groups * s->n_variants; i++) {
        for (int k = 0; k < s->at[i].n; k++) {
            free(s->at[i].value[k].shown);
            free(s->at[i].value[k].chosen);
            free(s->at[i].value[k].loss);
            remarks_free(&s->at[i].value[k].remarks);
        }
        free(s->at[i].value);
    }
    free(s->at);
    free(s->metric);
    free(s->comparable);
    free(s->group);
    free(s->variant);
    *s = (standings){0};
}

/* ---- numbers ---- */

/* The value of a metric at a point; NAN: none. */
static double value_at(const report_run *r, const report_point *p, const char *name) {
    if (p->weight == 0) return NAN;
    if (strcmp(name, "loss") == 0) return p->loss;
    const int i = report_find_metric(r, name);
    return i < 0 ? NAN : p->value[i];
}

/* As tables of reports have it: metrics of the end if all validation data were measured there, the loss of the last model. */
static double valid_value(const report_run *r, const char *name) {
    const double x = strcmp(name, "loss") == 0 ? NAN : value_at(r, &r->final_valid, name);
    return isfinite(x) ? x : value_at(r, &r->last_valid, name);
}

static int refuse_metric(const standings_options *o, const report_run *r) {
    char list[400] = "loss";
    for (int i = 0; i < r->n_metrics; i++) {
        const size_t used = strlen(list);
        if (strcmp(r->metric[i].name, "loss") != 0)
            snprintf(list + used, sizeof list - used, ", %s", r->metric[i].name);
    }
    return adamod__refuse("%s is '%.80s', expected one of %s", o->asks ? o->asks : "--metric", o->metric, list);
}

/* Chooses the metric that the run's group shows. */
static int choose_metric(standing_metric *out, const standings_options *o, const report_run *r) {
    const metric loss = {"loss", "loss", "loss", "", 1, 3, METRIC_LOWER, true, NULL}, *m = &loss;
    for (int i = 0; i < r->n_metrics; i++) {
        const metric *other = &r->metric[i];
        const bool fits = o->metric ? strcmp(other->name, o->metric) == 0 : other->headline;
        if (m == &loss && fits && strcmp(other->name, "loss") != 0) m = other;
    }
    if (o->metric && strcmp(o->metric, m->name) != 0) return refuse_metric(o, r);
    *out = (standing_metric){
        .decimals = m->decimals > 2 ? m->decimals : 2, .better = m->better, .limit = NAN, .start = NAN};
    snprintf(out->name, sizeof out->name, "%s", m->name);
    snprintf(out->label, sizeof out->label, "%s", m->label);
    snprintf(out->unit, sizeof out->unit, "%s", m->unit);
    out->by_loss = report_validates_on_test(r);
    out->test = o->split ? strcmp(o->split, "test") == 0 : isfinite(value_at(r, &r->final_test, m->name));
    return 0;
}

/* The loss before the first update has changed anything. */
static double first_loss(const report_run *r) {
    for (size_t i = 0; i < r->train.n; i++) {
        if (isfinite(r->train.at[i].loss)) return r->train.at[i].loss;
    }
    return NAN;
}

static void add_result(const standing_metric *m, standing *at, standing_value *v, const report_run *r) {
    const double x = m->test ? value_at(r, &r->final_test, m->name) : valid_value(r, m->name);
    at->start = fmax(at->start, first_loss(r));
    if (report_fate_of(r) != REPORT_FINISHED || !isfinite(x)) {
        v->diverged++;
        return;
    }
    v->shown[v->finished] = x;
    v->loss[v->finished] = m->test ? value_at(r, &r->final_test, "loss") : valid_value(r, "loss");
    v->chosen[v->finished++] = m->by_loss ? r->training_loss : valid_value(r, m->name);
}

static int add_run(standings *s, const run_entry *e, const metric *known, int n_known) {
    report_run r;
    standing_metric *m = &s->metric[find_name(s->group, s->n_groups, e->group)];
    standing_value *v = value_of(s, e);
    if (!v) return fail_memory();
    v->n++;
    if (e->state != RUN_IS_OVER) return 0;
    if (report_run_read(&r, e->directory, known, n_known)) return -1;
    const int failed = (*m->name ? 0 : choose_metric(m, &s->o, &r)) || remarks_add_run(&v->remarks, &r);
    if (!failed) add_result(m, standing_of(s, e), v, &r);
    report_run_free(&r);
    return failed ? -1 : 0;
}

/* ---- the best ---- */

static void choose_value(const standings *s, const standing_metric *m, standing *at) {
    const double sign = !m->by_loss && m->better == METRIC_HIGHER ? -1 : 1;
    at->best = -1;
    for (int i = 0; i < at->n; i++) {
        standing_value *v = &at->value[i];
        v->spread = report_spread_of(v->shown, v->finished);
        v->choosing = report_spread_of(v->chosen, v->finished);
        if (s->o.tuned ? v->finished < v->n || v->choosing.n < v->n : v->finished == 0) continue;
        if (at->best < 0 || sign * v->choosing.mean < sign * at->value[at->best].choosing.mean) at->best = i;
    }
}

bool standings_is_best(const standings *s, const run_entry *e) {
    const standing *at = standing_of(s, e);
    return at->best >= 0 && same_value(at->value[at->best].value, e->value);
}

/* The column of a report with the metric that a group shows. */
static int column_of(const report *r, const standing_metric *m) {
    if (strcmp(m->name, "loss") == 0) return REPORT_VALID;
    for (int c = REPORT_FIRST_METRIC; c < REPORT_FIRST_METRIC + r->n_metrics; c++) {
        if (strcmp(r->column[c].name, m->name) == 0) return m->test ? c : c + REPORT_COLUMN_METRICS;
    }
    return REPORT_VALID;
}

/* Asks it of one run for each variant. */
static int find_comparable(standings *s, int group, const metric *known, int n_known) {
    const char **runs = calloc((size_t)s->n_variants + 1, sizeof *runs);
    bool *has = calloc((size_t)s->n_variants + 1, sizeof *has);
    int n = 0, status = runs && has ? 0 : fail_memory();
    report r;
    for (int i = 0; !status && i < s->p->n; i++) {
        const run_entry *e = &s->p->at[i];
        const int variant = find_name(s->variant, s->n_variants, e->variant);
        if (e->state != RUN_IS_OVER || has[variant] || strcmp(e->group, s->group[group]) != 0) continue;
        if (!standings_is_best(s, e)) continue;
        has[variant] = true;
        runs[n++] = e->directory;
    }
    if (!status && n > 0) {
        status = report_load(&r, runs, n, known, n_known);
        if (!status) s->comparable[group] = report_comparable(&r, column_of(&r, &s->metric[group]), NULL, 0);
        if (!status) report_free(&r);
    }
    free(runs);
    free(has);
    return status;
}

bool standings_wins(const standings *s, int group, int variant) {
    const standing *at = standings_at(s, group, variant);
    bool wins = s->comparable[group] && at->best >= 0 && s->n_variants > 1;
    for (int i = 0; wins && i < s->n_variants; i++) {
        const standing *other = standings_at(s, group, i);
        if (i == variant || other->best < 0) continue;
        wins = welch_better(&at->value[at->best].spread, &other->value[other->best].spread, s->metric[group].better);
    }
    return wins;
}

int standings_make(standings *out, const run_list *p, const standings_options *o, const metric *known, int n_known) {
    *out = (standings){.p = p, .o = *o};
    int failed = collect_names(out);
    for (int i = 0; !failed && i < p->n; i++) failed = add_run(out, &p->at[i], known, n_known);
    for (int g = 0; !failed && g < out->n_groups; g++) {
        for (int v = 0; v < out->n_variants; v++) choose_value(out, &out->metric[g], &out->at[g * out->n_variants + v]);
        standings_look_at_values(out, g);
        failed = find_comparable(out, g, known, n_known);
    }
    if (failed) standings_free(out);
    return failed ? -1 : 0;
}

/* ---- words ---- */

const char *standings_key(const standings *s) {
    const char *dot = strrchr(s->o.tuned, '.');
    return dot ? dot + 1 : s->o.tuned;
}

void standings_metric_text(const standing_metric *m, char *out, size_t size) {
    snprintf(out, size, "%s %s%s%s", m->test || m->by_loss ? "test" : "validation", *m->label ? m->label : "loss",
             *m->unit ? " " : "", m->unit);
}
