#include "report/variants.h"

#include "core/error.h"
#include "support/text.h"

#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

void report_note(const char *format, ...) {
    va_list arguments;
    char line[1024];
    va_start(arguments, format);
    vsnprintf(line, sizeof line, format, arguments);
    va_end(arguments);
    text_line(stderr, "adamod: report: %s", line);
}

/* ---- Numbers ----------------------------------------------------------------------------------------------------- */

static int ascending(const void *a, const void *b) {
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

report_spread report_spread_of(double *x, int n) {
    int k = 0;
    for (int i = 0; i < n; i++) {
        if (isfinite(x[i])) x[k++] = x[i];
    }
    if (!k) return (report_spread){0, NAN, NAN, NAN, NAN, NAN};
    qsort(x, (size_t)k, sizeof *x, ascending);
    report_spread s = {.n = k, .min = x[0], .max = x[k - 1], .std = NAN};
    s.median = k % 2 ? x[k / 2] : (x[k / 2 - 1] + x[k / 2]) / 2;
    double sum = 0, squares = 0;
    for (int i = 0; i < k; i++) sum += x[i];
    s.mean = sum / k;
    for (int i = 0; i < k; i++) squares += (x[i] - s.mean) * (x[i] - s.mean);
    if (k > 1) s.std = sqrt(squares / (k - 1));
    return s;
}

/* ---- Columns ----------------------------------------------------------------------------------------------------- */

/* Runs may describe the same metric in other words, or write it in another scale. */
static bool same_metric(const metric *a, const metric *b) {
    if (a->signature && b->signature && strcmp(a->signature, b->signature) != 0) return false;
    return strcmp(a->name, b->name) == 0 && strcmp(a->unit, b->unit) == 0 && a->better == b->better;
}

/* Adds a column unless it exists already. False: there is no room. */
static bool add_column(metric *columns, int *n, int most, const metric *m) {
    int i = 0;
    while (i < *n && !same_metric(&columns[i], m)) i++;
    if (i < *n) return true;
    if (i == most) return false;
    columns[(*n)++] = *m;
    return true;
}

enum { MOST_RATES = REPORT_COLUMNS - REPORT_FIRST_RATE };

static int refuse_column(const report_run *run, const char *what, int most) {
    return adamod__refuse("%s: with this run the report has too many %s, expected at most %d", run->directory, what,
                          most);
}

static int add_columns(report *r, const report_run *run) {
    const metric rate = {.name = run->items, .label = run->items, .about = run->items, .unit = ""};
    if (!add_column(r->column + REPORT_FIRST_RATE, &r->n_rates, MOST_RATES, &rate))
        return refuse_column(run, "kinds of items", MOST_RATES);
    for (int i = 0; i < run->n_metrics; i++) {
        const metric *m = &run->metric[i];
        if (!m->headline || strcmp(m->name, "loss") == 0) continue;
        if (!add_column(r->column + REPORT_FIRST_METRIC, &r->n_metrics, REPORT_COLUMN_METRICS, m))
            return refuse_column(run, "metrics", REPORT_COLUMN_METRICS);
    }
    return 0;
}

/* Finds the first part of a signature that another does not have, "tok:13a", and returns its length; 0: none. */
static int own_part(const char *signature, const char *other, const char **part) {
    for (const char *at = signature; *at; at += strcspn(at, "|"), at += *at == '|') {
        const size_t n = strcspn(at, "|");
        const char *found = other;
        while ((found = strstr(found, "|")) && (strncmp(found + 1, at, n) != 0 || !strchr("|", found[n + 1]))) found++;
        if (found || (strncmp(other, at, n) == 0 && strchr("|", other[n]))) continue;
        *part = at;
        return (int)n;
    }
    return 0;
}

/* Gives metrics of the same name and unit different labels, by signature or by number. */
static void tell_labels_apart(report *r) {
    const metric *columns = r->column + REPORT_FIRST_METRIC;
    for (int i = 0; i < r->n_metrics; i++) {
        const metric *m = &columns[i], *twin = NULL;
        int before = 0;
        for (int k = 0; k < r->n_metrics; k++) {
            if (k == i || strcmp(columns[k].name, m->name) != 0 || strcmp(columns[k].unit, m->unit) != 0) continue;
            if (!twin) twin = &columns[k];
            before += k < i;
        }
        const char *part = NULL;
        const int n = twin && m->signature && twin->signature ? own_part(m->signature, twin->signature, &part) : 0;
        if (n) snprintf(r->label[i], sizeof r->label[i], "%.40s %.*s", m->label, n, part);
        else if (before) snprintf(r->label[i], sizeof r->label[i], "%.40s (%d)", m->label, before + 1);
    }
    for (int i = 0; i < r->n_metrics; i++) {
        metric *m = &r->column[REPORT_FIRST_METRIC + i];
        if (!*r->label[i]) continue;
        if (strcmp(m->about, m->label) == 0) m->about = r->label[i];
        m->label = r->label[i];
    }
}

const char *report_evaluated(const report *r) { return r->evaluates_on_test ? "test" : "validation"; }

const char *report_split(const report *r, int column) {
    if (column < REPORT_FIRST_METRIC || column >= REPORT_UPDATES) return "";
    return column < REPORT_FIRST_VALID ? "test" : report_evaluated(r);
}

static int make_columns(report *r) {
    r->evaluates_on_test = true;
    for (int i = 0; i < r->n; i++) r->evaluates_on_test &= report_validates_on_test(&r->run[i]);
    r->column[REPORT_LOSS] = (metric){"loss", "training loss", "training loss", "", 1, 3, METRIC_LOWER, true, NULL};
    const char *loss = r->evaluates_on_test ? "test loss" : "validation loss";
    r->column[REPORT_VALID] = (metric){"loss", loss, loss, "", 1, 3, METRIC_LOWER, true, NULL};
    r->column[REPORT_UPDATES] = (metric){"updates", "updates", "updates", "", 1, 0, METRIC_NEITHER, true, NULL};
    r->column[REPORT_SECONDS] = (metric){"time", "time", "training time", "s", 1, 1, METRIC_NEITHER, true, NULL};
    for (int i = 0; i < r->n; i++) {
        if (add_columns(r, &r->run[i])) return -1;
    }
    tell_labels_apart(r);
    for (int i = 0; i < r->n_metrics; i++) r->column[REPORT_FIRST_VALID + i] = r->column[REPORT_FIRST_METRIC + i];
    return 0;
}

/* ---- Results of a run -------------------------------------------------------------------------------------------- */

report_fate report_fate_of(const report_run *r) {
    if (strcmp(r->status, "finished") == 0) return REPORT_FINISHED;
    if (strcmp(r->status, "diverged") == 0) return REPORT_DIVERGED;
    return strcmp(r->status, "interrupted") == 0 ? REPORT_INTERRUPTED : REPORT_GOING;
}

const report_run *report_first_run(const report_variant *v, bool (*has)(const report_run *r)) {
    for (int i = 0; i < v->n; i++) {
        if (has(v->run[i])) return v->run[i];
    }
    return NULL;
}

int64_t report_last_step(const report_run *r) {
    const int64_t last = r->train.n ? r->train.at[r->train.n - 1].step : 0;
    return r->step > last ? r->step : last;
}

/* The mean training loss of the updates in (after, until]. */
static double mean_loss(const report_run *r, double after, double until) {
    double sum = 0, weight = 0;
    for (size_t i = 0; i < r->train.n; i++) {
        const report_point *p = &r->train.at[i];
        if ((double)p->step <= after || (double)p->step > until || !isfinite(p->loss)) continue;
        sum += p->weight * p->loss;
        weight += p->weight;
    }
    return weight > 0 ? sum / weight : NAN;
}

/* As train/mean_loss.h defines it. */
static double last_loss(const report_run *r) {
    if (isfinite(r->training_loss)) return r->training_loss;
    const double last = r->train.n ? (double)r->train.at[r->train.n - 1].step : 0;
    return mean_loss(r, 0.95 * last, last);
}

static double first_loss(const report_run *r) {
    for (size_t i = 0; i < r->train.n; i++) {
        if (isfinite(r->train.at[i].loss)) return r->train.at[i].loss;
    }
    return NAN;
}

bool report_has(const report *r, int column) {
    bool has = false, lacks_test = false;
    const bool validation = column >= REPORT_FIRST_VALID && column < REPORT_UPDATES;
    for (int i = 0; i < r->n_variants; i++) {
        const report_spread *of = r->variant[i].of;
        has |= of[column].n > 0;
        lacks_test |= validation && of[column].n > 0 && !of[column - REPORT_COLUMN_METRICS].n;
    }
    return has && (!validation || lacks_test);
}

double report_value(const report *r, const report_run *run, const report_point *p, int column) {
    if (column == REPORT_VALID) return p->loss;
    if ((column - REPORT_FIRST_METRIC) % REPORT_COLUMN_METRICS >= r->n_metrics) return NAN;
    for (int i = 0; i < run->n_metrics; i++) {
        if (same_metric(&run->metric[i], &r->column[column])) return p->value[i];
    }
    return NAN;
}

/* The value of the last evaluation that has it. Metrics may be of the averaged model, evaluated at the end on all
 * validation data; the validation loss is that of the last model, as during training. */
static double evaluated(const report *r, const report_run *run, int column) {
    const report_point *const of_test[] = {&run->final_test, run->test.n ? &run->test.at[run->test.n - 1] : NULL, NULL};
    const report_point *const of_valid[] = {column == REPORT_VALID ? NULL : &run->final_valid, &run->last_valid,
                                            run->valid.n ? &run->valid.at[run->valid.n - 1] : NULL};
    const bool test = column >= REPORT_FIRST_METRIC && column < REPORT_FIRST_VALID;
    for (int i = 0; i < 3; i++) {
        const report_point *p = test ? of_test[i] : of_valid[i];
        if (!p || p->weight == 0) continue;
        const double x = report_value(r, run, p, column);
        if (isfinite(x)) return x;
    }
    return NAN;
}

static double column_value(const report *r, const report_run *run, int column) {
    const report_point *last = run->train.n ? &run->train.at[run->train.n - 1] : NULL;
    if (column == REPORT_LOSS) return last_loss(run);
    if (column == REPORT_UPDATES) return (double)report_last_step(run);
    if (column == REPORT_SECONDS) return isfinite(run->seconds) ? run->seconds : last ? last->time : NAN;
    if (column < REPORT_UPDATES) return evaluated(r, run, column);
    if (column < REPORT_FIRST_RATE || column >= REPORT_FIRST_RATE + r->n_rates) return NAN;
    if (!last || !(last->time > 0) || strcmp(run->items, r->column[column].name) != 0) return NAN;
    return last->items / last->time;
}

/* ---- Variants ---------------------------------------------------------------------------------------------------- */

/* The worst fate of a run that still counts. */
static report_fate counted(const report_variant *v) {
    if (v->fates[REPORT_FINISHED]) return REPORT_FINISHED;
    return v->fates[REPORT_DIVERGED] == v->n ? REPORT_DIVERGED : REPORT_INTERRUPTED;
}

/* The lowest mean of a sixth of the updates, without the first sixth, in which the loss falls in any case. */
static double lowest_loss(const report_run *r, double sixth) {
    double lowest = NAN;
    for (int i = 1; i < 6; i++) lowest = fmin(lowest, mean_loss(r, i * sixth, (i + 1) * sixth));
    return lowest;
}

/* A column of the report, or one of these losses. */
enum { FIRST_LOSS = REPORT_COLUMNS, EARLY_LOSS, LOWEST_LOSS };
static double measured(const report *r, const report_run *run, const report_variant *v, int what) {
    if (what == FIRST_LOSS) return first_loss(run);
    if (what == EARLY_LOSS) return mean_loss(run, 0.95 * (double)v->early_step - 1, (double)v->early_step);
    if (what == LOWEST_LOSS) return lowest_loss(run, v->of[REPORT_UPDATES].median / 6);
    return column_value(r, run, what);
}

static report_spread spread(const report *r, const report_variant *v, int what, double *room) {
    int k = 0;
    for (int i = 0; i < v->n; i++) {
        if (report_fate_of(v->run[i]) <= counted(v)) room[k++] = measured(r, v->run[i], v, what);
    }
    return report_spread_of(room, k);
}

static int measure_variant(const report *r, report_variant *v) {
    double *room = calloc((size_t)v->n + 1, sizeof *room);
    if (!room) return -1;
    for (int c = 0; c < REPORT_COLUMNS; c++) v->of[c] = spread(r, v, c, room);
    v->early_step = (int64_t)ceil(v->of[REPORT_UPDATES].median / 6);
    v->first_loss = spread(r, v, FIRST_LOSS, room).median;
    v->early_loss = spread(r, v, EARLY_LOSS, room).median;
    v->lowest_loss = spread(r, v, LOWEST_LOSS, room).median;
    free(room);
    return 0;
}

static const char *name_of(const report_run *r) {
    const char *name = report_pairs_find(&r->recipe, "name");
    if (name && *name) return name;
    const char *directory = r->directory ? r->directory : "", *slash = strrchr(directory, '/');
    return slash && slash[1] ? slash + 1 : directory;
}

static int add_to_variant(report *r, const report_run *run) {
    int i = 0;
    while (i < r->n_variants && !(strcmp(name_of(r->variant[i].run[0]), name_of(run)) == 0 &&
                                  report_same_variant(r->variant[i].run[0], run))) {
        i++;
    }
    report_variant *v = &r->variant[i];
    if (i == r->n_variants) {
        *v = (report_variant){.run = calloc((size_t)r->n, sizeof *v->run)};
        r->n_variants++;
        if (!v->run) return -1;
    }
    v->run[v->n++] = run;
    v->fates[report_fate_of(run)]++;
    return 0;
}

/* The number of variants with the same recipe's name. */
static int namesakes(const report *r, const report_variant *v) {
    int n = 0;
    for (int i = 0; i < r->n_variants; i++) n += strcmp(name_of(r->variant[i].run[0]), name_of(v->run[0])) == 0;
    return n;
}

/* Whether an earlier variant has this name. */
static bool is_taken(const report *r, int variant, const char *name) {
    for (int i = 0; i < variant; i++) {
        if (strcmp(r->variant[i].name, name) == 0) return true;
    }
    return false;
}

/* Names are cut, so they may be equal: then a number is added at the end of what. */
static int set_name(report *r, int variant, const char *base, char *what, size_t size) {
    char **name = &r->variant[variant].name;
    const size_t room = size - 16, used = strlen(what) < room ? strlen(what) : room;
    for (int n = 2;; n++) {
        if ((*what ? asprintf(name, "%s (%s)", base, what) : asprintf(name, "%s", base)) < 0) return *name = NULL, -1;
        text_plain(*name);
        if (!is_taken(r, variant, *name)) return 0;
        free(*name);
        *name = NULL;
        snprintf(what + used, size - used, "%s%d", used ? ", " : "", n);
    }
}

/* Figures have little room: a schedule's value is clear without its key. */
static void shorten(char *label) {
    static const char *const clear[] = {"optimizer.", "schedule.lr="};
    for (size_t i = 0; i < sizeof clear / sizeof *clear; i++) {
        label[text_replace(label, strlen(label), clear[i], "")] = '\0';
    }
}

static int name_variants(report *r) {
    const char *of = NULL; /* the name that keys belong to */
    report_keys keys;
    for (int i = 0; i < r->n_variants; i++) {
        report_variant *v = &r->variant[i];
        const char *base = name_of(v->run[0]);
        const int n = namesakes(r, v);
        char what[256] = "";
        if (n > 1) {
            if (!of || strcmp(of, base) != 0) report_telling_keys(r, i, &keys);
            of = base;
            report_difference(r, i, &keys, what, sizeof what);
            if (!*what) snprintf(what, sizeof what, "another");
        }
        if (set_name(r, i, base, what, sizeof what)) return -1;
        if (!(v->label = strdup(n > 1 && n == r->n_variants ? what : v->name))) return -1;
        text_plain(v->label);
        shorten(v->label);
    }
    return 0;
}

static int make_variants(report *r) {
    for (int i = 0; i < r->n; i++) {
        if (add_to_variant(r, &r->run[i])) return -1;
    }
    for (int i = 0; i < r->n_variants; i++) {
        if (measure_variant(r, &r->variant[i])) return -1;
    }
    return name_variants(r);
}

/* ---- Loading ----------------------------------------------------------------------------------------------------- */

void report_free(report *r) {
    for (int i = 0; i < r->n; i++) report_run_free(&r->run[i]);
    for (int i = 0; i < r->n_variants; i++) {
        free(r->variant[i].run);
        free(r->variant[i].name);
        free(r->variant[i].label);
    }
    free(r->run);
    free(r->variant);
    *r = (report){0};
}

static bool same_directory(const char *a, const char *b) {
    struct stat x, y;
    return stat(a, &x) == 0 && stat(b, &y) == 0 && x.st_dev == y.st_dev && x.st_ino == y.st_ino;
}

/* Reads each run once. */
static int read_runs(report *out, const char *const *runs, int n, const metric *known, int n_known) {
    *out = (report){0};
    if (n < 1) return adamod__refuse("there are no runs to report");
    out->run = calloc((size_t)n, sizeof *out->run);
    int status = out->run ? 0 : adamod__fail(ADAMOD_ERROR_MEMORY, "out of memory");
    for (int i = 0; status == 0 && i < n; i++) {
        int twin = 0;
        while (twin < i && !same_directory(runs[twin], runs[i])) twin++;
        if (twin < i) continue;
        status = report_run_read(&out->run[out->n], runs[i], known, n_known);
        if (status == 0) out->n++;
    }
    if (status) report_free(out);
    return status;
}

/* Makes columns and variants of the runs read. */
static int make_report(report *r) {
    r->variant = calloc((size_t)r->n, sizeof *r->variant);
    int status = r->variant ? make_columns(r) : adamod__fail(ADAMOD_ERROR_MEMORY, "out of memory");
    if (status == 0 && make_variants(r)) status = adamod__fail(ADAMOD_ERROR_MEMORY, "out of memory");
    if (status) report_free(r);
    return status;
}

int report_load(report *out, const char *const *runs, int n, const metric *known, int n_known) {
    if (read_runs(out, runs, n, known, n_known)) return -1;
    return make_report(out);
}

/* ---- Tasks ------------------------------------------------------------------------------------------------------- */

/* The only task that runs name; "": several, or none. */
static const char *only_task(const report *all) {
    const char *only = "";
    for (int i = 0; i < all->n; i++) {
        const char *task = all->run[i].task;
        if (*only && *task && strcmp(only, task) != 0) return "";
        if (*task) only = task;
    }
    return only;
}

/* Moves the runs of a task from one report to another. */
static int take_task(report *from, report *to, const char *task, const char *unknown) {
    int left = 0;
    to->run = calloc((size_t)from->n, sizeof *to->run);
    if (!to->run) return -1;
    for (int i = 0; i < from->n; i++) {
        const bool own = strcmp(*from->run[i].task ? from->run[i].task : unknown, task) == 0;
        if (own) to->run[to->n++] = from->run[i];
        else from->run[left++] = from->run[i];
    }
    from->n = left;
    return 0;
}

int reports_load(reports *out, const char *const *runs, int n, const metric *known, int n_known) {
    report all;
    char task[sizeof all.run->task], unknown[sizeof task];
    *out = (reports){0};
    if (read_runs(&all, runs, n, known, n_known)) return -1;
    snprintf(unknown, sizeof unknown, "%s", only_task(&all));
    int status =
        (out->at = calloc((size_t)all.n, sizeof *out->at)) ? 0 : adamod__fail(ADAMOD_ERROR_MEMORY, "out of memory");
    for (int first = 0; !status && all.n; out->n++) {
        report *r = &out->at[out->n];
        snprintf(task, sizeof task, "%s", *all.run[0].task ? all.run[0].task : unknown);
        *r = (report){.number = out->n, .first = first};
        status =
            take_task(&all, r, task, unknown) ? adamod__fail(ADAMOD_ERROR_MEMORY, "out of memory") : make_report(r);
        first += r->n_variants;
    }
    for (int i = 0; i < out->n; i++) out->at[i].of = out->n;
    report_free(&all);
    if (status) reports_free(out);
    return status;
}

void reports_free(reports *r) {
    for (int i = 0; i < r->n; i++) report_free(&r->at[i]);
    free(r->at);
    *r = (reports){0};
}

/* ---- Notes ------------------------------------------------------------------------------------------------------- */

/* Two runs with the same seed do not measure chance. */
static void note_twins(const report_variant *v) {
    for (int i = 0; i < v->n; i++) {
        const char *seed = report_pairs_find(&v->run[i]->recipe, "train.seed");
        for (int k = 0; seed && k < i; k++) {
            const char *other = report_pairs_find(&v->run[k]->recipe, "train.seed");
            if (!other || strcmp(seed, other) != 0) continue;
            report_note("%s and %s have the same recipe and the same seed", v->run[k]->directory, v->run[i]->directory);
            return;
        }
    }
}

/* "a has no metrics yet", "a and 3 other runs have no ..." */
static void note_missing(const report *r, bool (*lacks)(const report_run *), const char *what) {
    const report_run *first = NULL;
    int n = 0;
    for (int i = 0; i < r->n; i++) {
        if (!lacks(&r->run[i])) continue;
        if (!n++) first = &r->run[i];
    }
    if (n == 1) report_note("%s has %s", first->directory, what);
    if (n > 1) report_note("%s and %d other run%s have %s", first->directory, n - 1, n == 2 ? "" : "s", what);
}

static bool lacks_metrics(const report_run *r) { return !r->train.n; }
static bool lacks_histograms(const report_run *r) { return !r->n_histograms; }

void report_notes(const report *r) {
    note_missing(r, lacks_metrics, "no metrics yet");
    note_missing(r, lacks_histograms, "no learning-rate histograms");
    for (int i = 0; i < r->n_variants; i++) note_twins(&r->variant[i]);
}
