#include "report/reader_parts.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_POINTS = 1 << 15 }; /* of a curve; longer ones are thinned by half */

int report_find_metric(const report_run *r, const char *name) {
    int i = 0;
    while (i < r->n_metrics && strcmp(r->metric[i].name, name) != 0) i++;
    return i < r->n_metrics ? i : -1;
}

/* The field of a quantity that every task may record; NULL: another. */
static double *own_field(const report_run *r, report_point *p, const char *key) {
    const struct {
        const char *name;
        double *value;
    } fields[] = {{"time", &p->time}, {"epoch", &p->epoch},  {"loss", &p->loss},          {"nll", &p->nll},
                  {"lr", &p->lr},     {r->items, &p->items}, {"grad_norm", &p->grad_norm}};
    for (size_t i = 0; i < sizeof fields / sizeof *fields; i++) {
        if (strcmp(key, fields[i].name) == 0) return fields[i].value;
    }
    return NULL;
}

/* Reads the fields of an object; kind may be NULL. The caller checks step and in->expected. */
static void pull_point(const report_run *r, json_input *in, char *kind, size_t kind_size, report_point *p,
                       double *step) {
    *p = (report_point){
        .weight = 1, .time = NAN, .epoch = NAN, .loss = NAN, .nll = NAN, .lr = NAN, .grad_norm = NAN, .items = NAN};
    *step = NAN;
    for (int i = 0; i < REPORT_METRICS; i++) p->value[i] = NAN;
    for (bool more = json_input_enter(in, '{'); more; more = json_input_next(in, '}')) {
        char key[2 * READER_NAME]; /* longer than any metric's name, so a cut key matches none */
        json_input_key(in, key, sizeof key);
        double *own = own_field(r, p, key);
        const int i = report_find_metric(r, key);
        if (kind && strcmp(key, "kind") == 0) json_input_text(in, kind, kind_size);
        else if (strcmp(key, "step") != 0 && !own && i < 0) json_input_skip(in);
        else {
            const double x = json_input_number(in);
            if (strcmp(key, "step") == 0) *step = x;
            if (own) *own = x;
            if (i >= 0) p->value[i] = r->metric[i].scale * x;
        }
    }
    if (reader_is_step(*step)) p->step = (int64_t)*step;
}

/* Makes x the mean of x and y. */
static void merge_value(double *x, double y, double weight_x, double weight_y) {
    if (!isfinite(*x)) *x = y;
    else if (isfinite(y)) *x = (weight_x * *x + weight_y * y) / (weight_x + weight_y);
}

/* Merges a point with the next. Values that are counted from the start are those of the second. */
static void merge(report_point *a, const report_point *b) {
    merge_value(&a->loss, b->loss, a->weight, b->weight);
    merge_value(&a->nll, b->nll, a->weight, b->weight);
    merge_value(&a->lr, b->lr, a->weight, b->weight);
    merge_value(&a->grad_norm, b->grad_norm, a->weight, b->weight);
    for (int i = 0; i < REPORT_METRICS; i++) merge_value(&a->value[i], b->value[i], a->weight, b->weight);
    a->step = b->step;
    a->time = b->time;
    a->epoch = b->epoch;
    a->items = b->items;
    a->weight += b->weight;
}

void report_series_thin(report_series *s, size_t most) {
    if (s->n <= most || most < 3) return;
    const double first = (double)s->at[0].step, each = ((double)s->at[s->n - 1].step - first) / (double)(most - 2);
    double before = -1;
    size_t n = 1;
    for (size_t i = 1; i < s->n; i++) {
        const double window = floor(((double)s->at[i].step - first) / each);
        if (window > before) s->at[n++] = s->at[i];
        else merge(&s->at[n - 1], &s->at[i]);
        before = window;
    }
    s->n = n;
}

static const char *add_point(report_series *s, const report_point *p) {
    if (s->n && p->step < s->at[s->n - 1].step) return "the update's number is lower than the one before";
    if (s->n == MOST_POINTS) {
        for (size_t i = 0; i < s->n / 2; i++) {
            s->at[i] = s->at[2 * i];
            merge(&s->at[i], &s->at[2 * i + 1]);
        }
        s->n /= 2;
    }
    if (!ARRAY_EXTEND(s->at, s->n)) return reader_no_memory;
    s->at[s->n] = *p;
    if (s->n) s->at[s->n].weight = fmax(1, (double)(p->step - s->at[s->n - 1].step));
    s->n++;
    return NULL;
}

static bool is_set(const char *value) { return value && *value && strcmp(value, "0") != 0; }

/* Whether "test" in the files means test data. Versions before 0.2 (without data.json) also wrote it for validation data if
 * there were no test data: then all keys for test data are empty. For text files only data.test_source counts, because
 * recipes had the keys of all tasks. */
static bool has_test(const report_run *r) {
    bool keys = false, any = false;
    if (r->has_data) return true;
    if (is_set(report_pairs_find(&r->recipe, "data.source")))
        return is_set(report_pairs_find(&r->recipe, "data.test_source"));
    for (size_t i = 0; i < r->recipe.n; i++) {
        const report_pair *p = &r->recipe.at[i];
        if (strncmp(p->key, "data.test", 9) != 0) continue;
        keys = true;
        any |= is_set(p->value);
    }
    return any || !keys;
}

const char *reader_metrics(report_run *r, json_input *in) {
    report_point p;
    double step;
    char kind[16] = "";
    pull_point(r, in, kind, sizeof kind, &p, &step);
    json_input_end(in);
    if (in->expected) return NULL;
    if (!reader_is_step(step)) return reader_not_a_step;
    if (strcmp(kind, "train") == 0) return add_point(&r->train, &p);
    if (strcmp(kind, "valid") == 0) return add_point(&r->valid, &p);
    if (strcmp(kind, "test") == 0 && has_test(r)) return add_point(&r->test, &p);
    if (strcmp(kind, "final_valid") == 0 || strcmp(kind, "test") == 0) r->final_valid = p;
    return *kind ? NULL : "there is no \"kind\""; /* kinds of later versions are ignored */
}

const char *reader_result(report_run *r, json_input *in) {
    double step = NAN, inner;
    for (bool more = json_input_enter(in, '{'); more; more = json_input_next(in, '}')) {
        char key[32];
        json_input_key(in, key, sizeof key);
        if (strcmp(key, "status") == 0) json_input_text(in, r->status, sizeof r->status);
        else if (strcmp(key, "step") == 0) step = json_input_number(in);
        else if (strcmp(key, "seconds") == 0) r->seconds = json_input_number(in);
        else if (strcmp(key, "training_loss") == 0) r->training_loss = json_input_number(in);
        else if (strcmp(key, "valid") == 0) pull_point(r, in, NULL, 0, &r->last_valid, &inner);
        else if (strcmp(key, "test") == 0 && has_test(r)) pull_point(r, in, NULL, 0, &r->final_test, &inner);
        else if (strcmp(key, "test") == 0 || strcmp(key, "final_valid") == 0)
            pull_point(r, in, NULL, 0, &r->final_valid, &inner);
        else json_input_skip(in);
    }
    json_input_end(in);
    if (in->expected) return NULL;
    if (!reader_is_step(step)) return reader_not_a_step;
    r->step = (int64_t)step;
    return *r->status ? NULL : "there is no \"status\"";
}
