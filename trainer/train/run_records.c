/* run_records.c - metrics, histograms and samples, also for TensorBoard. */
#include "train/run_parts.h"

#include "support/clock.h"

#include <math.h>
#include <stdio.h>

static void put(run_metrics *m, const char *name, double value, bool scalar) {
    if (isnan(value) || m->n == RUN_VALUES) return;
    snprintf(m->at[m->n].name, sizeof m->at[m->n].name, "%s", name);
    m->at[m->n].value = value;
    m->at[m->n++].scalar = scalar;
}

void run_measured(run_metrics *m, const char *name, double value) { put(m, name, value, true); }
void run_counted(run_metrics *m, const char *name, double value) { put(m, name, value, false); }

void run_put_metrics(const run_metrics *m, json *j, tfevents *e) {
    char tag[64];
    json_pair(j, "kind", m->kind);
    json_pair_integer(j, "step", m->step);
    if (m->model) {
        json_pair(j, "model", m->model);
        json_pair_integer(j, "model_step", m->model_step);
    }
    for (int i = 0; i < m->n; i++) {
        json_pair_number(j, m->at[i].name, m->at[i].value);
        if (!e || !m->at[i].scalar || !isfinite(m->at[i].value)) continue;
        snprintf(tag, sizeof tag, "%s/%s", m->kind, m->at[i].name);
        tfevents_scalar(e, tag, m->at[i].value);
    }
}

int run_add_metrics(run *r, const run_metrics *m) {
    json j = {0};
    tfevents e = {0};
    json_open(&j, '{');
    tfevents_begin(&e, clock_wall_seconds(), m->step);
    run_put_metrics(m, &j, &e);
    tfevents_end(&e);
    json_close(&j, '}');
    return run_append(r, RUN_METRICS, &j, &e);
}

static void add_counts(json *j, const char *name, const int64_t *counts) {
    char first_name[32];
    int first = 0, end = ADAMOD_HIST_BINS;
    while (first < end && !counts[first]) first++;
    while (first < end && !counts[end - 1]) end--;
    snprintf(first_name, sizeof first_name, "%s_first", name);
    json_pair_integer(j, first_name, first == end ? 0 : first);
    json_pair_open(j, name, '[');
    for (int i = first; i < end; i++) json_integer(j, counts[i]);
    json_close(j, ']');
}

static double log10_within(double x) {
    const double y = x > 0 ? log10(x) : ADAMOD_HIST_LOW;
    return y < ADAMOD_HIST_LOW ? ADAMOD_HIST_LOW : y > ADAMOD_HIST_HIGH ? ADAMOD_HIST_HIGH : y;
}

static void add_histogram(tfevents *e, const char *tag, double least, double most, const int64_t *counts) {
    const double width = (ADAMOD_HIST_HIGH - ADAMOD_HIST_LOW) / ADAMOD_HIST_BINS;
    const tfevents_histogram h = {ADAMOD_HIST_LOW,    width,  log10_within(least),
                                  log10_within(most), counts, ADAMOD_HIST_BINS};
    tfevents_add_histogram(e, tag, &h);
}

int run_add_histogram(run *r, int64_t step, const adamod_statistics *s) {
    const struct {
        const char *name;
        double value;
    } numbers[] = {{"bounded", s->bounded},       {"eta_min", s->eta_min},
                   {"eta_median", s->eta_median}, {"eta_max", s->eta_max},
                   {"step_min", s->step_min},     {"step_median", s->step_median},
                   {"step_max", s->step_max},     {"nonfinite", (double)s->nonfinite},
                   {"low", ADAMOD_HIST_LOW},      {"high", ADAMOD_HIST_HIGH},
                   {"bins", ADAMOD_HIST_BINS}};
    json j = {0};
    tfevents e = {0};
    json_open(&j, '{');
    json_pair_integer(&j, "step", step);
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        json_pair_number(&j, numbers[i].name, numbers[i].value);
    }
    add_counts(&j, "eta", s->eta);
    add_counts(&j, "effective", s->step);
    add_counts(&j, "idle_eta", s->idle_eta);
    add_counts(&j, "idle_effective", s->idle_step);
    json_close(&j, '}');
    if (s->elements > 0) {
        tfevents_begin(&e, clock_wall_seconds(), step);
        add_histogram(&e, "learning_rate/before_bound", s->eta_min, s->eta_max, s->eta);
        add_histogram(&e, "learning_rate/after_bound", s->step_min, s->step_max, s->step);
        tfevents_end(&e);
    }
    return run_append(r, RUN_HISTOGRAMS, &j, &e);
}

int run_add_sample(run *r, int64_t step, int n, const task_text *texts) {
    json j = {0};
    tfevents none = {0};
    json_open(&j, '{');
    json_pair_integer(&j, "step", step);
    for (int i = 0; i < n; i++) json_pair(&j, texts[i].name, texts[i].text);
    json_close(&j, '}');
    return run_append(r, RUN_SAMPLES, &j, &none);
}
