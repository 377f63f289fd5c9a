/* variants.c - see variants.h.
 *
 * SPDX-License-Identifier: MIT
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "variants.h"

#include "text.h"

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
    for (char *c = line; *c; c++) {
        if ((unsigned char)*c < 0x20 || *c == 0x7f) *c = '?'; /* a name must not speak to the terminal */
    }
    fprintf(stderr, "adamod: report: %s\n", line);
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

/* ---- What a run came to ------------------------------------------------------------------------------------------ */

report_fate report_fate_of(const report_run *r) {
    if (strcmp(r->status, "finished") == 0) return REPORT_FINISHED;
    if (strcmp(r->status, "diverged") == 0) return REPORT_DIVERGED;
    return strcmp(r->status, "interrupted") == 0 ? REPORT_INTERRUPTED : REPORT_GOING;
}

int64_t report_last_step(const report_run *r) {
    const int64_t last = r->train.n ? r->train.at[r->train.n - 1].step : 0;
    return r->step > last ? r->step : last;
}

/* Mean training loss of the updates after one and up to another. A mean, since a single batch tells little. */
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

static double last_loss(const report_run *r) {
    const double last = r->train.n ? (double)r->train.at[r->train.n - 1].step : 0;
    return mean_loss(r, 0.95 * last, last);
}

static double first_loss(const report_run *r) {
    for (size_t i = 0; i < r->train.n; i++) {
        if (isfinite(r->train.at[i].loss)) return r->train.at[i].loss;
    }
    return NAN;
}

/* A field of the last evaluation that has it: the test's, or where that is missing or not wanted the validation's. */
static double evaluated(const report_run *r, size_t field, bool test) {
    const report_point *candidates[] = {
        test ? &r->final_test : NULL,
        test && r->test.n ? &r->test.at[r->test.n - 1] : NULL,
        &r->final_valid,
        r->valid.n ? &r->valid.at[r->valid.n - 1] : NULL,
    };
    for (size_t i = 0; i < sizeof candidates / sizeof *candidates; i++) {
        const report_point *p = candidates[i];
        if (!p || p->weight == 0) continue;
        const double x = *(const double *)((const char *)p + field);
        if (isfinite(x)) return x;
    }
    return NAN;
}

static double column_value(const report_run *r, report_column column) {
    const report_point *last = r->train.n ? &r->train.at[r->train.n - 1] : NULL;
    switch (column) {
        case REPORT_LOSS: return last_loss(r);
        case REPORT_VALID: return evaluated(r, offsetof(report_point, loss), false);
        case REPORT_EXACT: return 100 * evaluated(r, offsetof(report_point, exact), true);
        case REPORT_BLEU: return evaluated(r, offsetof(report_point, bleu), true);
        case REPORT_UPDATES: return (double)report_last_step(r);
        case REPORT_SECONDS: return isfinite(r->seconds) ? r->seconds : last ? last->time : NAN;
        case REPORT_RATE: return last && last->time > 0 ? last->tokens / last->time : NAN;
        default: return NAN;
    }
}

/* ---- Variants ---------------------------------------------------------------------------------------------------- */

/* The worst fate that a run may have and still count. */
static report_fate counted(const report_variant *v) {
    if (v->fates[REPORT_FINISHED]) return REPORT_FINISHED;
    return v->fates[REPORT_DIVERGED] == v->n ? REPORT_DIVERGED : REPORT_INTERRUPTED;
}

typedef double measure(const report_run *r, const report_variant *v, int argument);

static double measure_column(const report_run *r, const report_variant *v, int column) {
    (void)v;
    return column_value(r, (report_column)column);
}

static double measure_first(const report_run *r, const report_variant *v, int unused) {
    (void)v, (void)unused;
    return first_loss(r);
}

static double measure_early(const report_run *r, const report_variant *v, int unused) {
    (void)unused;
    return mean_loss(r, 0.95 * (double)v->early_step - 1, (double)v->early_step);
}

static report_spread spread(const report_variant *v, measure *m, int argument, double *room) {
    int k = 0;
    for (int i = 0; i < v->n; i++) {
        if (report_fate_of(v->run[i]) <= counted(v)) room[k++] = m(v->run[i], v, argument);
    }
    return report_spread_of(room, k);
}

static int measure_variant(report_variant *v) {
    double *room = calloc((size_t)v->n + 1, sizeof *room);
    if (!room) return -1;
    for (int c = 0; c < REPORT_COLUMNS; c++) v->of[c] = spread(v, measure_column, c, room);
    v->early_step = (int64_t)ceil(v->of[REPORT_UPDATES].median / 6);
    v->first_loss = spread(v, measure_first, 0, room).median;
    v->early_loss = spread(v, measure_early, 0, room).median;
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
    while (i < r->n_variants && strcmp(r->variant[i].name, name_of(run)) != 0) i++;
    report_variant *v = &r->variant[i];
    if (i == r->n_variants) {
        *v = (report_variant){.name = name_of(run), .run = calloc((size_t)r->n, sizeof *v->run)};
        if (!v->run) return -1;
        r->n_variants++;
    }
    v->run[v->n++] = run;
    v->fates[report_fate_of(run)]++;
    return 0;
}

static int make_variants(report *r) {
    r->variant = calloc((size_t)r->n, sizeof *r->variant);
    r->n_variants = 0;
    if (!r->variant) return -1;
    for (int i = 0; i < r->n; i++) {
        if (add_to_variant(r, &r->run[i])) return -1;
    }
    for (int i = 0; i < r->n_variants; i++) {
        if (measure_variant(&r->variant[i])) return -1;
    }
    return 0;
}

/* ---- Loading ----------------------------------------------------------------------------------------------------- */

void report_free(report *r) {
    for (int i = 0; i < r->n; i++) report_run_free(&r->run[i]);
    for (int i = 0; i < r->n_variants; i++) free(r->variant[i].run);
    free(r->run);
    free(r->variant);
    *r = (report){0};
}

static bool same_directory(const char *a, const char *b) {
    struct stat x, y;
    return stat(a, &x) == 0 && stat(b, &y) == 0 && x.st_dev == y.st_dev && x.st_ino == y.st_ino;
}

int report_load(report *out, const char *const *runs, int n, char *message, size_t size) {
    *out = (report){0};
    if (n < 1) return text_fail(message, size, "there are no runs to report");
    out->run = calloc((size_t)n, sizeof *out->run);
    if (!out->run) return text_fail(message, size, "out of memory");
    int status = 0;
    for (int i = 0; status == 0 && i < n; i++) {
        int twin = 0;
        while (twin < i && !same_directory(runs[twin], runs[i])) twin++;
        if (twin < i) continue;
        status = report_run_read(&out->run[out->n], runs[i], message, size);
        if (status == 0) out->n++;
    }
    if (status == 0 && make_variants(out)) status = text_fail(message, size, "out of memory");
    if (status) report_free(out);
    return status;
}

/* ---- Notes ------------------------------------------------------------------------------------------------------- */

/* Seeds differ in their seed alone. */
static void compare_seeds(const report_run *a, const report_run *b) {
    for (size_t i = 0; i < a->recipe.n; i++) {
        const report_pair *p = &a->recipe.at[i];
        const char *other = report_pairs_find(&b->recipe, p->key);
        if (strcmp(p->key, "train.seed") == 0 || (other && strcmp(other, p->value) == 0)) continue;
        report_note("%s and %s are both named '%s', but differ in %s", a->directory, b->directory, name_of(a), p->key);
        return;
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
    for (int i = 0; i < r->n_variants; i++) {
        for (int k = 1; k < r->variant[i].n; k++) compare_seeds(r->variant[i].run[0], r->variant[i].run[k]);
    }
}
