/* record_metrics.c - the curves of a recorded run, thinned. */
#include "study/record_parts.h"

#include "core/error.h"
#include "study/record.h"
#include "support/array.h"
#include "support/text.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- Lines ------------------------------------------------------------------------------------------------------- */

/* A line of a file. */
typedef struct line {
    text_slice text;
    char kind[16];
    double step;
    bool kept;
} line;

typedef struct lines {
    char *text; /* of the file */
    line *at;
    size_t n, room;
} lines;

static void free_lines(lines *l) {
    free(l->text);
    free(l->at);
}

static bool read_line(line *l) {
    json_input in = json_input_of(l->text.bytes, l->text.n);
    l->step = NAN;
    for (bool more = json_input_enter(&in, '{'); more; more = json_input_next(&in, '}')) {
        char key[32];
        json_input_key(&in, key, sizeof key);
        if (strcmp(key, "kind") == 0) json_input_text(&in, l->kind, sizeof l->kind);
        else if (strcmp(key, "step") == 0) l->step = json_input_number(&in);
        else json_input_skip(&in);
    }
    return !in.expected;
}

/* Reads the lines of a file with kind and step: 1; 0: there is none; -1. An incomplete one is left out. */
static int read_lines(const record *r, const char *name, lines *out) {
    size_t n = 0;
    text_slice one;
    *out = (lines){0};
    const int status = record_read(r, name, &out->text, &n);
    if (status <= 0) return status;
    for (text_slice rest = {out->text, n}; text_next_line(&rest, &one);) {
        if (!ARRAY_RESERVE(out->at, out->n + 1, out->room)) {
            free_lines(out);
            (void)adamod__fail(ADAMOD_ERROR_MEMORY, "out of memory");
            return -1;
        }
        line *l = &out->at[out->n];
        *l = (line){.text = one};
        out->n += read_line(l);
    }
    return 1;
}

/* ---- Evaluations ------------------------------------------------------------------------------------------------- */

static double value_of(const report_run *r, const report_point *p, int m) {
    return strcmp(r->metric[m].name, "loss") == 0 ? p->loss : p->value[m];
}

/* The validation that was best by a metric; -1: none. */
static int best_of(const report_run *r, int m) {
    int best = -1;
    double most = -INFINITY;
    for (size_t i = 0; i < r->valid.n; i++) {
        const double y = r->metric[m].better * value_of(r, &r->valid.at[i], m);
        if (y > most) most = y, best = (int)i;
    }
    return r->metric[m].better == METRIC_NEITHER ? -1 : best;
}

static bool is_among(const int *best, int n, size_t i) {
    for (int m = 0; m < n; m++) {
        if (best[m] == (int)i) return true;
    }
    return false;
}

/* Keeps validations with the same distance, the best and the last, and all lines of other kinds but training. */
static void keep_evaluations(const report_run *r, lines *l) {
    const size_t n = r->valid.n, room = RECORD_EVALUATIONS - (size_t)r->n_metrics - 1;
    const size_t every = n <= RECORD_EVALUATIONS ? 1 : (n + room - 1) / room;
    int best[REPORT_METRICS];
    size_t i = 0;
    for (int m = 0; m < r->n_metrics; m++) best[m] = best_of(r, m);
    for (line *at = l->at; at < l->at + l->n; at++) {
        const bool valid = strcmp(at->kind, "valid") == 0;
        at->kept = strcmp(at->kind, "train") != 0;
        if (valid) at->kept = i % every == 0 || i + 1 == n || is_among(best, r->n_metrics, i);
        i += valid;
    }
}

/* ---- Writing ----------------------------------------------------------------------------------------------------- */

static void add_number(json *j, const char *key, double x) {
    if (!isfinite(x)) return;
    json_key(j, key);
    record_number(j, x, 5);
}

static void write_point(json *j, const report_run *r, const report_point *p) {
    json_open(j, '{');
    json_pair(j, "kind", "train");
    json_pair_integer(j, "step", p->step);
    add_number(j, "epoch", p->epoch);
    add_number(j, "time", p->time);
    add_number(j, "loss", p->loss);
    if (r->has_perplexity) add_number(j, "nll", p->nll);
    for (int m = 0; m < r->n_metrics; m++) {
        const char *name = r->metric[m].name;
        if (strcmp(name, "loss") != 0 && strcmp(name, "nll") != 0)
            add_number(j, name, p->value[m] / r->metric[m].scale);
    }
    add_number(j, "lr", p->lr);
    if (isfinite(p->items)) json_pair_integer(j, r->items, (int64_t)p->items);
    add_number(j, "grad_norm", p->grad_norm);
    json_close(j, '}');
    json_end_line(j);
}

/* Without the number of items, which is the same in all. */
static void write_evaluation(json *j, const report_run *r, const line *l) {
    json_input in = json_input_of(l->text.bytes, l->text.n);
    json_open(j, '{');
    for (bool more = json_input_enter(&in, '{'); more; more = json_input_next(&in, '}')) {
        char key[64];
        json_input_key(&in, key, sizeof key);
        const bool whole = strcmp(key, "step") == 0 || strcmp(key, "model_step") == 0;
        if (strcmp(key, r->items) == 0) {
            json_input_skip(&in);
            continue;
        }
        json_key(j, key);
        record_value(&in, j, whole ? 0 : 6);
    }
    json_close(j, '}');
    json_end_line(j);
}

int record_metrics(record *r) {
    lines l;
    json j = {0};
    size_t next = 0;
    const int status = read_lines(r, "metrics.jsonl", &l);
    if (status <= 0) return status;
    report_series *train = &r->run.train;
    report_series_thin(train, RECORD_POINTS);
    keep_evaluations(&r->run, &l);
    for (size_t i = 0; i < l.n; i++) {
        if (!l.at[i].kept) continue;
        while (next < train->n && (double)train->at[next].step <= l.at[i].step)
            write_point(&j, &r->run, &train->at[next++]);
        write_evaluation(&j, &r->run, &l.at[i]);
    }
    while (next < train->n) write_point(&j, &r->run, &train->at[next++]);
    free_lines(&l);
    return record_write_json(r, "metrics.jsonl", &j);
}

/* ---- Histograms -------------------------------------------------------------------------------------------------- */

/* The last update up to a given one with a histogram; -1: none. */
static int64_t step_until(const report_run *r, int64_t until) {
    int64_t step = -1;
    for (size_t i = 0; i < r->n_histograms && r->histogram[i].step <= until; i++) step = r->histogram[i].step;
    return step;
}

static bool is_drawn(const report_run *r, int64_t step) {
    const int64_t last = r->histogram[r->n_histograms - 1].step;
    bool drawn = step == last;
    for (int64_t power = 1; power <= last; power *= 10)
        drawn |= step_until(r, power) == step || step_until(r, 3 * power) == step;
    return drawn;
}

int record_histograms(record *r) {
    lines l;
    json j = {0};
    double before = -1;
    const int status = r->run.n_histograms ? read_lines(r, "histograms.jsonl", &l) : 0;
    if (status <= 0) return status;
    for (size_t i = 0; i < l.n; i++) {
        char *text = l.at[i].step != before && is_drawn(&r->run, (int64_t)l.at[i].step)
                         ? strndup(l.at[i].text.bytes, l.at[i].text.n)
                         : NULL;
        if (!text) continue;
        before = l.at[i].step;
        json_raw(&j, text);
        json_end_line(&j);
        free(text);
    }
    free_lines(&l);
    return record_write_json(r, "histograms.jsonl", &j);
}
