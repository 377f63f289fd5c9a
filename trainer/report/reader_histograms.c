#include "report/reader_parts.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum {
    MOST_BINS = 1000,
    NEIGHBOURS = 64 /* kept histograms are at least a 64th of the update's number apart */
};

/* The counts of a line, without zeros at both ends. */
typedef struct counts {
    double count[MOST_BINS];
    int n;
    double first;
} counts;

static void pull_counts(json_input *in, counts *c) {
    c->n = 0;
    for (bool more = json_input_enter(in, '['); more; more = json_input_next(in, ']')) {
        const double x = json_input_number(in);
        if (!in->expected && (c->n == MOST_BINS || !(x >= 0))) in->expected = "at most 1000 counts from 0 on";
        if (!in->expected) c->count[c->n++] = x;
    }
}

typedef struct histogram_line {
    double step, bounded, eta_median, step_median, low, high, bins;
    counts eta, effective, idle_eta, idle_effective;
} histogram_line;

static void pull_histogram(json_input *in, histogram_line *l) {
    const struct {
        const char *name;
        double *value;
    } numbers[] = {{"step", &l->step},
                   {"bounded", &l->bounded},
                   {"eta_median", &l->eta_median},
                   {"step_median", &l->step_median},
                   {"low", &l->low},
                   {"high", &l->high},
                   {"bins", &l->bins},
                   {"eta_first", &l->eta.first},
                   {"effective_first", &l->effective.first},
                   {"idle_eta_first", &l->idle_eta.first},
                   {"idle_effective_first", &l->idle_effective.first}};
    const size_t n = sizeof numbers / sizeof *numbers;
    for (size_t i = 0; i < n; i++) *numbers[i].value = NAN;
    l->eta.n = l->effective.n = 0;
    l->idle_eta.n = l->idle_effective.n = -1;
    for (bool more = json_input_enter(in, '{'); more; more = json_input_next(in, '}')) {
        char key[32];
        size_t i = 0;
        json_input_key(in, key, sizeof key);
        while (i < n && strcmp(numbers[i].name, key) != 0) i++;
        if (i < n) *numbers[i].value = json_input_number(in);
        else if (strcmp(key, "eta") == 0) pull_counts(in, &l->eta);
        else if (strcmp(key, "effective") == 0) pull_counts(in, &l->effective);
        else if (strcmp(key, "idle_eta") == 0) pull_counts(in, &l->idle_eta);
        else if (strcmp(key, "idle_effective") == 0) pull_counts(in, &l->idle_effective);
        else json_input_skip(in);
    }
    json_input_end(in);
}

static bool fits(const histogram_line *l, const counts *c) {
    return c->first >= 0 && c->first == floor(c->first) && c->first + c->n <= l->bins;
}

/* Subtracts idle elements. False: there are more than elements. */
static bool take_out(counts *from, const counts *idle) {
    for (int i = 0; i < idle->n; i++) {
        const double at = idle->first + i - from->first;
        if (idle->count[i] == 0) continue;
        if (!(at >= 0 && at < from->n) || at != floor(at) || idle->count[i] > from->count[(int)at]) return false;
        from->count[(int)at] -= idle->count[i];
    }
    return true;
}

static double total(const counts *c) {
    double sum = 0;
    for (int i = 0; i < c->n; i++) sum += c->count[i];
    return sum;
}

/* Also subtracts idle elements. */
static const char *check_histogram(histogram_line *l) {
    if (!reader_is_step(l->step)) return reader_not_a_step;
    if (!(l->bins >= 1 && l->bins <= MOST_BINS && l->bins == floor(l->bins))) {
        return "\"bins\" is not a whole number from 1 to 1000";
    }
    if (!(l->low < l->high) || !isfinite(l->high - l->low)) return "\"low\" and \"high\" are not the ends of a range";
    if (!fits(l, &l->eta)) return "\"eta\" does not fit into its bins";
    if (!fits(l, &l->effective)) return "\"effective\" does not fit into its bins";
    if (!take_out(&l->eta, &l->idle_eta)) return "\"idle_eta\" is no part of \"eta\"";
    if (!take_out(&l->effective, &l->idle_effective)) return "\"idle_effective\" is no part of \"effective\"";
    return NULL;
}

static void to_shares(const counts *c, float *shares) {
    const double sum = total(c);
    for (int i = 0; i < c->n && sum > 0; i++) shares[(int)c->first + i] = (float)(c->count[i] / sum);
}

static const char *make_histogram(const histogram_line *l, report_histogram *h) {
    const double idle = l->idle_eta.n < 0 ? NAN : total(&l->idle_eta);
    *h = (report_histogram){.step = (int64_t)l->step,
                            .bounded = l->bounded,
                            .eta_median = l->eta_median,
                            .step_median = l->step_median,
                            .low = l->low,
                            .high = l->high,
                            .idle = idle > 0 ? idle / (idle + total(&l->eta)) : idle,
                            .bins = (int)l->bins};
    h->eta = calloc(2 * (size_t)h->bins, sizeof *h->eta);
    if (!h->eta) return reader_no_memory;
    h->effective = h->eta + h->bins;
    to_shares(&l->eta, h->eta);
    to_shares(&l->effective, h->effective);
    return NULL;
}

/* Keeps the first and the last, and between them none that is too near to the one before. */
static const char *add_histogram(report_run *r, const report_histogram *h) {
    const size_t n = r->n_histograms;
    report_histogram *last = n ? &r->histogram[n - 1] : NULL;
    if (last && h->step < last->step) return "the update's number is lower than the one before";
    if (n > 1 && last->step - last[-1].step < last[-1].step / NEIGHBOURS) {
        free(last->eta);
        *last = *h;
        return NULL;
    }
    if (!ARRAY_EXTEND(r->histogram, n)) return reader_no_memory;
    r->histogram[r->n_histograms++] = *h;
    return NULL;
}

const char *reader_histogram(report_run *r, json_input *in) {
    histogram_line *l = malloc(sizeof *l);
    report_histogram h = {0};
    if (!l) return reader_no_memory;
    pull_histogram(in, l);
    const char *what = in->expected ? NULL : check_histogram(l);
    if (!what && !in->expected) what = make_histogram(l, &h);
    if (!what && !in->expected) what = add_histogram(r, &h);
    if (what) free(h.eta);
    free(l);
    return what;
}
