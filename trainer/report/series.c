#include "report/series.h"

#include <math.h>
#include <stdlib.h>

size_t series_before(const report_series *s, double step) {
    size_t low = 0, high = s->n;
    while (low < high) {
        const size_t middle = (low + high) / 2;
        if ((double)s->at[middle].step < step) low = middle + 1;
        else high = middle;
    }
    return low;
}

double series_at(const report_series *s, double step, series_value *value, const void *of) {
    const size_t i = series_before(s, step);
    if (i == s->n) return NAN;
    const report_point *b = &s->at[i];
    if ((double)b->step == step) return value(of, b);
    if (i == 0) return NAN;
    const report_point *a = b - 1;
    const double share = (step - (double)a->step) / (double)(b->step - a->step);
    return value(of, a) + share * (value(of, b) - value(of, a));
}

int series_means_make(series_means *out, const report_series *s, series_value *value, const void *of, int64_t window) {
    *out = (series_means){.s = s, .window = window, .sum = calloc(2 * (s->n + 1), sizeof(double))};
    if (!out->sum) return -1;
    out->weight = out->sum + s->n + 1;
    for (size_t i = 0; i < s->n; i++) {
        const double y = value(of, &s->at[i]);
        const bool counts = isfinite(y);
        out->sum[i + 1] = out->sum[i] + (counts ? s->at[i].weight * y : 0);
        out->weight[i + 1] = out->weight[i] + (counts ? s->at[i].weight : 0);
    }
    return 0;
}

void series_means_free(series_means *m) { free(m->sum); }

double series_mean(const series_means *m, double step) {
    const report_series *s = m->s;
    if (!s->n || step < (double)s->at[0].step || step > (double)s->at[s->n - 1].step) return NAN;
    const double half = fmin((double)m->window / 2, step - (double)s->at[0].step);
    const size_t from = series_before(s, step - half), to = series_before(s, step + half + 0.5);
    const double weight = m->weight[to] - m->weight[from];
    return weight > 0 ? (m->sum[to] - m->sum[from]) / weight : NAN;
}
