/* standings_values.c - what a variant does over all values of the tuned key: with which it trains, and how much depends on the
 * right one. */
#include "study/standings_parts.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

double standings_number(const char *value) {
    char *end;
    const double x = value ? strtod(value, &end) : NAN;
    return value && end > value && !*end && x > 0 && isfinite(x) ? x : NAN;
}

bool standings_has_numbers(const standings *s, int group) {
    bool differ = false;
    for (int v = 0; v < s->n_variants; v++) {
        const standing *at = standings_at(s, group, v);
        for (int i = 0; i < at->n; i++) {
            const double x = standings_number(at->value[i].value);
            if (isnan(x)) return false;
            differ |= x != standings_number(at->value[0].value);
        }
    }
    return differ;
}

/* ---- Runs that started ------------------------------------------------------------------------------------------- */

/* The best mean of all variants; NAN: none has one. */
static double best_mean(const standings *s, int group) {
    double best = NAN;
    for (int v = 0; v < s->n_variants; v++) {
        const standing *at = standings_at(s, group, v);
        if (at->best < 0) continue;
        const double x = at->value[at->best].spread.mean;
        best = s->metric[group].better == METRIC_HIGHER ? fmax(best, x) : fmin(best, x);
    }
    return best;
}

static double limit_of(const standings *s, int group) {
    if (!s->o.started_share) return s->o.started;
    const double best = best_mean(s, group), away = s->o.started * fabs(best);
    return s->metric[group].better == METRIC_HIGHER ? best - away : best + away;
}

static void count_started(const standing_metric *m, standing_value *v) {
    v->started = 0;
    for (int i = 0; i < v->finished; i++)
        v->started += m->better == METRIC_HIGHER ? v->shown[i] > m->limit : v->shown[i] < m->limit;
}

static int find_largest(const standing *at) {
    int largest = -1;
    for (int i = 0; i < at->n; i++) {
        const standing_value *v = &at->value[i];
        if (v->n == 0 || v->started < v->n) continue;
        if (largest < 0 || standings_number(v->value) > standings_number(at->value[largest].value)) largest = i;
    }
    return largest;
}

/* ---- Sensitivity ------------------------------------------------------------------------------------------------- */

/* The mean over the runs of a value of min(loss, loss at the start); a run that diverged has the loss at the start. NAN: a
 * run is not over. */
static double capped_loss(const standing *at, const standing_value *v) {
    double sum = v->diverged * at->start;
    for (int i = 0; i < v->finished; i++) sum += v->loss[i] < at->start ? v->loss[i] : at->start;
    return v->n > 0 && v->finished + v->diverged == v->n ? sum / v->n : NAN;
}

/* Wortsman et al. 2023, section 2.2, with means over the seeds. */
static double sensitivity(const standing *at) {
    double sum = 0, least = INFINITY;
    for (int i = 0; i < at->n; i++) {
        const double x = capped_loss(at, &at->value[i]);
        if (isnan(x)) return NAN;
        sum += x;
        least = fmin(least, x);
    }
    return at->n > 1 ? sum / at->n - least : NAN;
}

/* ---- All --------------------------------------------------------------------------------------------------------- */

/* The metric before the first update, if the loss says it. */
static double start_of(const standings *s, int group) {
    const standing_metric *m = &s->metric[group];
    double loss = NAN;
    for (int v = 0; v < s->n_variants; v++) loss = fmax(loss, standings_at(s, group, v)->start);
    return strcmp(m->name, "loss") == 0 ? loss : strcmp(m->name, "perplexity") == 0 ? exp(loss) : NAN;
}

void standings_look_at_values(standings *s, int group) {
    standing_metric *m = &s->metric[group];
    const bool numbers = s->o.tuned && standings_has_numbers(s, group);
    m->limit = limit_of(s, group);
    m->start = start_of(s, group);
    for (int v = 0; v < s->n_variants; v++) {
        standing *at = &s->at[group * s->n_variants + v];
        for (int i = 0; i < at->n; i++) count_started(m, &at->value[i]);
        if (!numbers) continue;
        at->largest = find_largest(at);
        at->sensitivity = sensitivity(at);
    }
}
