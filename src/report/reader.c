/* reader.c - see reader.h.
 *
 * SPDX-License-Identifier: MIT
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#define _FILE_OFFSET_BITS 64

#include "report/reader.h"

#include "base/crc32.h"
#include "base/text.h"
#include "base/file.h"
#include "base/json_input.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum {
    MOST_BYTES = 1 << 20,    /* of a file that is read at once, and of a line of the others */
    MOST_CLASSES = 16 << 20, /* bytes of classes.json: it has pictures */
    MOST_POINTS = 1 << 15,   /* of a curve; then two become one */
    MOST_BINS = 1000,
    MOST_PAIRS = 1000,
    MOST_SAMPLES = 1000,
    SAMPLE_BYTES = 8192, /* of a sentence */
    METRIC_NAME = 32,    /* bytes of a metric's name and of what is counted, with the zero at the end */
    MOST_DECIMALS = 9,
    NEIGHBOURS = 64, /* histograms that are kept lie at least a 64th of an update's number apart */
    MOST_RUNS = 4096
};

static const char no_memory[] = "out of memory";

/* Where to complain. */
typedef struct place {
    char *path;
    int64_t line; /* 0: the file as a whole */
    char *message;
    size_t size;
} place;

static int fail_at(const place *at, const char *what) {
    if (at->line) return text_fail(at->message, at->size, "%s:%" PRId64 ": %s", at->path, at->line, what);
    return text_fail(at->message, at->size, "%s: %s", at->path, what);
}

static char *path_of(const char *directory, const char *name) {
    char *path = NULL;
    return asprintf(&path, "%s/%s", directory, name) < 0 ? NULL : path;
}

/* Room for one more; false: no memory. */
static bool grow(void **array, size_t n, size_t *room, size_t item) {
    if (n < *room) return true;
    const size_t more = *room ? 2 * *room : 16;
    void *grown = realloc(*array, more * item);
    if (!grown) return false;
    *array = grown;
    *room = more;
    return true;
}

/* ---- Files ------------------------------------------------------------------------------------------------------- */

/* 1: open; 0: there is none; -1 with a message. A pipe or a device under that name would keep us waiting. */
static int open_file(const place *at, FILE **out) {
    struct stat st;
    const int fd = adamod__file_open(at->path, O_RDONLY | O_NONBLOCK);
    if (fd < 0 && errno == ENOENT) return 0;
    if (fd < 0) return fail_at(at, strerror(errno));
    if (fstat(fd, &st) == 0 && S_ISREG(st.st_mode) && (*out = fdopen(fd, "r"))) return 1;
    close(fd);
    return fail_at(at, "it is not a file that can be read");
}

/* A small file, to be freed; 1, 0 or -1 as above. */
static int read_small(const place *at, size_t most, char **text, size_t *n) {
    FILE *file = NULL;
    const int status = open_file(at, &file);
    if (status <= 0) return status;
    *text = malloc(most + 1);
    *n = *text ? fread(*text, 1, most + 1, file) : 0;
    const bool failed = ferror(file);
    fclose(file);
    if (*text && !failed && *n <= most) {
        (*text)[*n] = '\0';
        return 1;
    }
    char why[64];
    if (*text && !failed) snprintf(why, sizeof why, "it is larger than %zu MiB", most >> 20);
    else snprintf(why, sizeof why, "%s", *text ? "cannot read it" : no_memory);
    free(*text);
    *text = NULL;
    return fail_at(at, why);
}

/* What takes the values of one line. NULL, or what is wrong with them; what was not pulled from a line in full must not
 * have changed the run. */
typedef const char *line_reader(report_run *r, json_input *in);

typedef struct line {
    char text[MOST_BYTES];
    size_t n;
    bool ended; /* by a line feed */
} line;

/* False: there is none, or (n is MOST_BYTES) it is too long. */
static bool next_line(FILE *file, line *l) {
    int c = EOF;
    l->n = 0;
    while (l->n < MOST_BYTES && (c = getc_unlocked(file)) != EOF && c != '\n') l->text[l->n++] = (char)c;
    l->ended = c == '\n';
    return (l->n > 0 || l->ended) && l->n < MOST_BYTES;
}

static int complain(const place *at, const json_input *in, const char *what) {
    char text[160];
    if (what) snprintf(text, sizeof text, "%s", what);
    else snprintf(text, sizeof text, "expected %s at byte %zu", in->expected, (size_t)(in->at - in->begin) + 1);
    return fail_at(at, text);
}

static int read_each(report_run *r, FILE *file, place *at, line *l, line_reader *reader) {
    for (at->line = 1; next_line(file, l); at->line++) {
        json_input in = json_input_of(l->text, l->n);
        const char *what = reader(r, &in);
        if (!what && !in.expected) continue;
        return l->ended ? complain(at, &in, what) : 0; /* else torn: the run goes on, or it crashed in the act */
    }
    if (l->n == MOST_BYTES) return fail_at(at, "the line is longer than 1 MiB");
    return ferror(file) ? fail_at(at, "cannot read") : 0;
}

static int read_lines(report_run *r, const char *name, line_reader *reader, char *message, size_t size) {
    place at = {.path = path_of(r->directory, name), .message = message, .size = size};
    line *l = malloc(sizeof *l);
    FILE *file = NULL;
    int status = at.path && l ? open_file(&at, &file) : text_fail(message, size, "%s: out of memory", name);
    if (status > 0) status = read_each(r, file, &at, l, reader);
    if (file) fclose(file);
    free(l);
    free(at.path);
    return status;
}

/* ---- Metrics ----------------------------------------------------------------------------------------------------- */

static bool is_step(double x) { return x >= 0 && x <= 1e15 && x == floor(x); }

static const char not_a_step[] = "\"step\" is not a whole number from 0 on";

/* Which of the run's metrics has the name; -1: none. */
static int find_metric(const report_run *r, const char *name) {
    int i = 0;
    while (i < r->n_metrics && strcmp(r->metric[i].name, name) != 0) i++;
    return i < r->n_metrics ? i : -1;
}

/* What every task may record; NULL: it is none of that. */
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

/* An object's fields; kind may be NULL. Whether there was a step, or what is wrong, is the caller's to see. */
static void pull_point(const report_run *r, json_input *in, char *kind, size_t kind_size, report_point *p,
                       double *step) {
    *p = (report_point){
        .weight = 1, .time = NAN, .epoch = NAN, .loss = NAN, .nll = NAN, .lr = NAN, .grad_norm = NAN, .items = NAN};
    *step = NAN;
    for (int i = 0; i < REPORT_METRICS; i++) p->value[i] = NAN;
    for (bool more = json_input_enter(in, '{'); more; more = json_input_next(in, '}')) {
        char key[2 * METRIC_NAME]; /* so that one that is cut is no metric's */
        json_input_key(in, key, sizeof key);
        double *own = own_field(r, p, key);
        const int i = find_metric(r, key);
        if (kind && strcmp(key, "kind") == 0) json_input_text(in, kind, kind_size);
        else if (strcmp(key, "step") != 0 && !own && i < 0) json_input_skip(in);
        else {
            const double x = json_input_number(in);
            if (strcmp(key, "step") == 0) *step = x;
            if (own) *own = x;
            if (i >= 0) p->value[i] = r->metric[i].scale * x;
        }
    }
    if (is_step(*step)) p->step = (int64_t)*step;
}

/* x, of the first of two points, becomes that of both. */
static void merge_value(double *x, double y, double weight_x, double weight_y) {
    if (!isfinite(*x)) *x = y;
    else if (isfinite(y)) *x = (weight_x * *x + weight_y * y) / (weight_x + weight_y);
}

/* The first of two points that follow each other becomes both. What is counted from the start is the second's. */
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

static const char *add_point(report_series *s, const report_point *p) {
    if (s->n && p->step < s->at[s->n - 1].step) return "the update's number is lower than the one before";
    if (s->n == MOST_POINTS) {
        for (size_t i = 0; i < s->n / 2; i++) {
            s->at[i] = s->at[2 * i];
            merge(&s->at[i], &s->at[2 * i + 1]);
        }
        s->n /= 2;
    }
    if (!grow((void **)&s->at, s->n, &s->room, sizeof *s->at)) return no_memory;
    s->at[s->n] = *p;
    if (s->n) s->at[s->n].weight = fmax(1, (double)(p->step - s->at[s->n - 1].step));
    s->n++;
    return NULL;
}

static bool is_set(const char *value) { return value && *value && strcmp(value, "0") != 0; }

/* Versions before 0.2, which made no data.json, wrote "test" where there was no test data and they took the validation data.
 * That can be told where
 * the recipe has keys for test data, and all of them are empty; where text is read from files, the key for that file
 * alone counts, since recipes then had the keys of all tasks. */
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

static const char *read_metrics(report_run *r, json_input *in) {
    report_point p;
    double step;
    char kind[16] = "";
    pull_point(r, in, kind, sizeof kind, &p, &step);
    json_input_end(in);
    if (in->expected) return NULL;
    if (!is_step(step)) return not_a_step;
    if (strcmp(kind, "train") == 0) return add_point(&r->train, &p);
    if (strcmp(kind, "valid") == 0) return add_point(&r->valid, &p);
    if (strcmp(kind, "test") == 0 && has_test(r)) return add_point(&r->test, &p);
    if (strcmp(kind, "final_valid") == 0 || strcmp(kind, "test") == 0) r->final_valid = p;
    return *kind ? NULL : "there is no \"kind\""; /* a kind of later versions is none of our business */
}

/* ---- Histograms -------------------------------------------------------------------------------------------------- */

/* Counts as they stand in a line, without the zeros at both ends. */
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

/* Takes idle elements out of the others. False: they are no part of them. */
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

/* Also leaves idle elements out. */
static const char *check_histogram(histogram_line *l) {
    if (!is_step(l->step)) return not_a_step;
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
    if (!h->eta) return no_memory;
    h->effective = h->eta + h->bins;
    to_shares(&l->eta, h->eta);
    to_shares(&l->effective, h->effective);
    return NULL;
}

/* The first and the last stay; between them, none that lies too near to the one before. */
static const char *add_histogram(report_run *r, const report_histogram *h) {
    const size_t n = r->n_histograms;
    report_histogram *last = n ? &r->histogram[n - 1] : NULL;
    if (last && h->step < last->step) return "the update's number is lower than the one before";
    if (n > 1 && last->step - last[-1].step < last[-1].step / NEIGHBOURS) {
        free(last->eta);
        *last = *h;
        return NULL;
    }
    if (!grow((void **)&r->histogram, n, &r->histogram_room, sizeof *r->histogram)) return no_memory;
    r->histogram[r->n_histograms++] = *h;
    return NULL;
}

static const char *read_histogram(report_run *r, json_input *in) {
    histogram_line *l = malloc(sizeof *l);
    report_histogram h = {0};
    if (!l) return no_memory;
    pull_histogram(in, l);
    const char *what = in->expected ? NULL : check_histogram(l);
    if (!what && !in->expected) what = make_histogram(l, &h);
    if (!what && !in->expected) what = add_histogram(r, &h);
    if (what) free(h.eta);
    free(l);
    return what;
}

/* ---- Samples ----------------------------------------------------------------------------------------------------- */

static void free_sample(report_sample *s) {
    for (int i = 0; i < s->n; i++) {
        free(s->name[i]);
        free(s->text[i]);
    }
    *s = (report_sample){0};
}

static void free_samples(report_run *r) {
    for (size_t i = 0; i < r->n_samples; i++) free_sample(&r->sample[i]);
    r->n_samples = 0;
}

const char *report_sample_text(const report_sample *s, const char *name) {
    for (int i = 0; i < s->n; i++) {
        if (strcmp(s->name[i], name) == 0) return s->text[i];
    }
    return NULL;
}

/* False: no memory. */
static bool add_text(report_sample *s, const char *name, const char *text) {
    char *copies[2] = {strdup(name), strdup(text)};
    if (!copies[0] || !copies[1]) {
        free(copies[0]);
        free(copies[1]);
        return false;
    }
    s->name[s->n] = copies[0];
    s->text[s->n++] = copies[1];
    return true;
}

/* Takes the sample over; or not, with a reason. Of NULL and full: there is no need of more. */
static const char *add_sample(report_run *r, int64_t step, report_sample *s) {
    if (r->n_samples && step < r->sample_step) return "the update's number is lower than the one before";
    if (step > r->sample_step) free_samples(r);
    r->sample_step = step;
    if (r->n_samples == MOST_SAMPLES) return NULL;
    if (!grow((void **)&r->sample, r->n_samples, &r->sample_room, sizeof *r->sample)) return no_memory;
    r->sample[r->n_samples++] = *s;
    *s = (report_sample){0};
    return NULL;
}

static const char *read_sample(report_run *r, json_input *in) {
    report_sample s = {0};
    double step = NAN;
    bool memory = true;
    for (bool more = json_input_enter(in, '{'); more && memory; more = json_input_next(in, '}')) {
        char key[32], text[SAMPLE_BYTES];
        json_input_key(in, key, sizeof key);
        if (strcmp(key, "step") == 0) step = json_input_number(in);
        else if (s.n == REPORT_TEXTS) json_input_skip(in);
        else {
            json_input_text(in, text, sizeof text);
            memory = in->expected || add_text(&s, key, text);
        }
    }
    if (memory) json_input_end(in);
    const char *what = !memory          ? no_memory
                       : in->expected   ? NULL
                       : !is_step(step) ? not_a_step
                                        : add_sample(r, (int64_t)step, &s);
    free_sample(&s);
    return what;
}

/* ---- Machine and result ------------------------------------------------------------------------------------------ */

static const char *add_pair(report_pairs *pairs, const char *key, const char *value) {
    if (pairs->n == MOST_PAIRS) return "there are more than 1000 keys";
    if (!grow((void **)&pairs->at, pairs->n, &pairs->room, sizeof *pairs->at)) return no_memory;
    const report_pair p = {strdup(key), strdup(value)};
    if (!p.key || !p.value) {
        free(p.key);
        free(p.value);
        return no_memory;
    }
    pairs->at[pairs->n++] = p;
    return NULL;
}

static void free_pairs(report_pairs *pairs) {
    for (size_t i = 0; i < pairs->n; i++) {
        free(pairs->at[i].key);
        free(pairs->at[i].value);
    }
    free(pairs->at);
    *pairs = (report_pairs){0};
}

const char *report_pairs_find(const report_pairs *pairs, const char *key) {
    for (size_t i = 0; i < pairs->n; i++) {
        if (strcmp(pairs->at[i].key, key) == 0) return pairs->at[i].value;
    }
    return NULL;
}

static const char *read_machine(report_run *r, json_input *in) {
    report_pairs *pairs = &r->machine[r->n_machines];
    const char *what = NULL;
    for (bool more = json_input_enter(in, '{'); more && !what; more = json_input_next(in, '}')) {
        char key[64], value[512];
        json_input_key(in, key, sizeof key);
        json_input_scalar(in, value, sizeof value);
        if (!in->expected && *value) what = add_pair(pairs, key, value);
    }
    if (!what) json_input_end(in);
    return what;
}

static const char *read_result(report_run *r, json_input *in) {
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
    if (!is_step(step)) return not_a_step;
    r->step = (int64_t)step;
    return *r->status ? NULL : "there is no \"status\"";
}

static const char *read_classes(report_run *r, json_input *in) { return report_classes_pull(&r->classes, in); }

/* A file that is one value: 1, or 0 if there is none, or -1. */
static int read_value(report_run *r, const char *name, line_reader *reader, char *message, size_t size) {
    const size_t most = reader == read_classes ? MOST_CLASSES : MOST_BYTES;
    place at = {.path = path_of(r->directory, name), .message = message, .size = size};
    char *text = NULL;
    size_t n = 0;
    int status = at.path ? read_small(&at, most, &text, &n) : text_fail(message, size, "%s: out of memory", name);
    if (status > 0) {
        json_input in = json_input_of(text, n);
        const char *what = reader(r, &in);
        at.line = 1;
        if (in.expected) {
            for (const char *c = text; c < in.at; c++) at.line += *c == '\n';
        }
        if (what || in.expected) status = complain(&at, &in, what);
    }
    free(text);
    free(at.path);
    return status;
}

static int read_machines(report_run *r, char *message, size_t size) {
    char name[32] = "machine.json";
    while (r->n_machines < REPORT_MACHINES) {
        const int status = read_value(r, name, read_machine, message, size);
        if (status <= 0) return status;
        r->n_machines++;
        snprintf(name, sizeof name, "machine.%d.json", r->n_machines + 1);
    }
    return 0;
}

/* ---- The task ---------------------------------------------------------------------------------------------------- */

static void expect(json_input *in, const char *what) {
    if (!in->expected) in->expected = what;
}

/* Letters, digits and '_': names become parts of file names. */
static bool is_name(const char *text) {
    size_t n = 0;
    while (text[n] == '_' || (text[n] >= '0' && text[n] <= '9') || (text[n] >= 'A' && text[n] <= 'Z') ||
           (text[n] >= 'a' && text[n] <= 'z')) {
        n++;
    }
    return n && n < METRIC_NAME && !text[n];
}

static void pull_name(json_input *in, char out[METRIC_NAME]) {
    char name[2 * METRIC_NAME];
    json_input_text(in, name, sizeof name);
    if (!is_name(name)) expect(in, "a name of 1 to 31 letters, digits and '_'");
    snprintf(out, METRIC_NAME, "%s", in->expected ? "" : name);
}

/* For people, on one line. */
static void pull_words(json_input *in, char *out, size_t size) {
    json_input_text(in, out, size);
    for (char *c = out; *c; c++) {
        if ((unsigned char)*c < 0x20 || *c == 0x7f) *c = '?';
    }
}

static metric_better pull_better(json_input *in) {
    char word[16];
    json_input_text(in, word, sizeof word);
    if (strcmp(word, "lower") == 0) return METRIC_LOWER;
    if (strcmp(word, "higher") == 0) return METRIC_HIGHER;
    if (strcmp(word, "neither") != 0) expect(in, "\"lower\", \"higher\" or \"neither\"");
    return METRIC_NEITHER;
}

static double pull_scale(json_input *in) {
    const double scale = json_input_number(in);
    if (!(scale > 0 && isfinite(scale))) expect(in, "a finite scale above 0");
    return scale;
}

static int pull_decimals(json_input *in) {
    const double n = json_input_number(in);
    if (n >= 0 && n <= MOST_DECIMALS && n == floor(n)) return (int)n;
    expect(in, "a whole number from 0 to 9");
    return 0;
}

/* A copy, whose strings are one block with the name first. False: no memory. */
static bool add_metric(report_run *r, const metric *m) {
    metric *copy = &r->metric[r->n_metrics];
    char *text = NULL;
    const char *signature = m->signature ? m->signature : "";
    if (asprintf(&text, "%s%c%s%c%s%c%s%c%s", m->name, 0, m->label, 0, m->about, 0, m->unit, 0, signature) < 0)
        return false;
    *copy = *m;
    copy->name = text;
    copy->label = copy->name + strlen(copy->name) + 1;
    copy->about = copy->label + strlen(copy->label) + 1;
    copy->unit = copy->about + strlen(copy->about) + 1;
    copy->signature = *signature ? copy->unit + strlen(copy->unit) + 1 : NULL;
    r->n_metrics++;
    return true;
}

/* What is missing is as plain as can be: the name for people too, no unit, two decimals, no headline. False: no
 * memory. */
static bool pull_metric(report_run *r, json_input *in) {
    char name[METRIC_NAME] = "", label[48] = "", about[96] = "", unit[16] = "", signature[128] = "";
    metric m = {.name = name, .label = label, .about = about, .unit = unit, .scale = 1, .decimals = 2};
    m.signature = signature;
    for (bool more = json_input_enter(in, '{'); more; more = json_input_next(in, '}')) {
        char key[32];
        json_input_key(in, key, sizeof key);
        if (strcmp(key, "name") == 0) pull_name(in, name);
        else if (strcmp(key, "label") == 0) pull_words(in, label, sizeof label);
        else if (strcmp(key, "about") == 0) pull_words(in, about, sizeof about);
        else if (strcmp(key, "unit") == 0) pull_words(in, unit, sizeof unit);
        else if (strcmp(key, "signature") == 0) pull_words(in, signature, sizeof signature);
        else if (strcmp(key, "scale") == 0) m.scale = pull_scale(in);
        else if (strcmp(key, "decimals") == 0) m.decimals = pull_decimals(in);
        else if (strcmp(key, "better") == 0) m.better = pull_better(in);
        else if (strcmp(key, "headline") == 0) m.headline = json_input_flag(in);
        else json_input_skip(in);
    }
    if (!*label) m.label = name;
    if (!*about) m.about = m.label;
    if (!*name) expect(in, "a metric with a \"name\"");
    if (find_metric(r, name) >= 0) expect(in, "a metric with a name of its own");
    if (r->n_metrics == REPORT_METRICS) expect(in, "at most 16 metrics");
    return in->expected || add_metric(r, &m);
}

static void pull_subtitle(report_run *r, json_input *in) {
    r->n_subtitle = 0;
    for (bool more = json_input_enter(in, '['); more; more = json_input_next(in, ']')) {
        if (r->n_subtitle == REPORT_KEYS) expect(in, "at most 16 keys");
        else json_input_text(in, r->subtitle[r->n_subtitle++], sizeof r->subtitle[0]);
    }
}

static const char *read_task(report_run *r, json_input *in) {
    bool memory = true;
    for (bool more = json_input_enter(in, '{'); more && memory; more = json_input_next(in, '}')) {
        char key[32];
        json_input_key(in, key, sizeof key);
        if (strcmp(key, "about") == 0) pull_words(in, r->about, sizeof r->about);
        else if (strcmp(key, "items") == 0) pull_name(in, r->items);
        else if (strcmp(key, "samples") == 0) pull_words(in, r->samples, sizeof r->samples);
        else if (strcmp(key, "answers") == 0) pull_words(in, r->answers, sizeof r->answers);
        else if (strcmp(key, "limit") == 0) json_input_text(in, r->limit, sizeof r->limit);
        else if (strcmp(key, "subtitle") == 0) pull_subtitle(r, in);
        else if (strcmp(key, "metrics") == 0) {
            for (bool one = json_input_enter(in, '['); one && memory; one = json_input_next(in, ']')) {
                memory = pull_metric(r, in);
            }
        } else json_input_skip(in);
    }
    json_input_end(in);
    return memory ? NULL : no_memory;
}

/* What the run says of its task; or, where it does not, the metrics that are known. */
static int read_description(report_run *r, const metric *known, int n_known, char *message, size_t size) {
    snprintf(r->items, sizeof r->items, "tokens");
    snprintf(r->samples, sizeof r->samples, "sentences");
    const int status = read_value(r, "task.json", read_task, message, size);
    r->has_perplexity = status == 0 || find_metric(r, "ppl") >= 0;
    if (status == 0) snprintf(r->limit, sizeof r->limit, "train.evaluate_pairs");
    for (int i = 0; status == 0 && i < n_known; i++) {
        if (!known[i].headline) continue;
        if (r->n_metrics == REPORT_METRICS) return text_fail(message, size, "more than %d known metrics", r->n_metrics);
        metric m = known[i];
        m.signature = NULL; /* today's may be another */
        if (!add_metric(r, &m)) return text_fail(message, size, "%s: out of memory", r->directory);
    }
    return status < 0 ? -1 : 0;
}

/* ---- Data -------------------------------------------------------------------------------------------------------- */

static const char *pull_part(report_run *r, json_input *in) {
    char split[16] = "", name[64] = "", fingerprint[64] = "", path[96];
    for (bool more = json_input_enter(in, '{'); more; more = json_input_next(in, '}')) {
        char key[32];
        json_input_key(in, key, sizeof key);
        if (strcmp(key, "split") == 0) json_input_text(in, split, sizeof split);
        else if (strcmp(key, "key") == 0) json_input_text(in, name, sizeof name);
        else if (strcmp(key, "fingerprint") == 0) json_input_text(in, fingerprint, sizeof fingerprint);
        else json_input_skip(in);
    }
    snprintf(path, sizeof path, "%s %s", split, name);
    return in->expected ? NULL : add_pair(&r->data, path, fingerprint);
}

static const char *read_data(report_run *r, json_input *in) {
    const char *what = NULL;
    for (bool more = json_input_enter(in, '{'); more && !what; more = json_input_next(in, '}')) {
        char key[32];
        json_input_key(in, key, sizeof key);
        if (strcmp(key, "parts") == 0) {
            for (bool one = json_input_enter(in, '['); one && !what; one = json_input_next(in, ']'))
                what = pull_part(r, in);
        } else json_input_skip(in);
    }
    if (!what) json_input_end(in);
    r->has_data = true;
    return what;
}

/* A checksum of what the model's numbers stand for. A model of one language has only a target. */
static int read_vocabulary(report_run *r, const char *name, const char *side, char *message, size_t size) {
    char key[32], value[16], block[8192];
    place at = {.path = path_of(r->directory, name), .message = message, .size = size};
    FILE *file = NULL;
    int status = at.path ? open_file(&at, &file) : text_fail(message, size, "%s: out of memory", name);
    uint32_t sum = 0;
    for (size_t n; status > 0 && (n = fread(block, 1, sizeof block, file));) sum = adamod__crc32(sum, block, n);
    snprintf(key, sizeof key, "vocabulary %s", side);
    snprintf(value, sizeof value, "%08" PRIx32, sum);
    const char *what = status <= 0 ? NULL : ferror(file) ? "cannot read it" : add_pair(&r->data, key, value);
    if (what) status = fail_at(&at, what);
    if (file) fclose(file);
    free(at.path);
    return status < 0 ? -1 : 0;
}

/* ---- The recipe -------------------------------------------------------------------------------------------------- */

/* Recipes as recipe_write makes them, and a little more: nested keys with one value each, plain or in quotes. Reading
 * them here and not with the trainer's schema lets a page show runs of other versions. */

enum { LEVELS = 8, KEY = 128, VALUE = 2048 };

typedef struct section {
    int indent;
    size_t length; /* of the path that belongs to it, with its dot */
} section;

typedef struct recipe_reader {
    report_pairs *pairs;
    section level[LEVELS];
    int depth;
    char path[KEY];
} recipe_reader;

/* "value" with YAML's escapes, which are JSON's for all that a recipe holds. */
static const char *unquote(const char *from, const char *end, char *value) {
    if (*from == '"') {
        json_input in = json_input_of(from, (size_t)(end - from));
        json_input_text(&in, value, VALUE);
        if (!in.expected && in.at < end && *in.at == ' ') return NULL; /* a comment follows */
        json_input_end(&in);
        return in.expected ? "expected a value in double quotes" : NULL;
    }
    size_t n = 0;
    for (from++; from < end && n < VALUE - 1; from++) {
        if (*from == '\'' && (from + 1 == end || from[1] != '\'')) break;
        if (*from == '\'') from++;
        value[n++] = *from;
    }
    value[n] = '\0';
    return from < end && *from == '\'' ? NULL : "expected a value in single quotes";
}

static const char *plain(const char *from, const char *end, char *value) {
    const char *comment = memmem(from, (size_t)(end - from), " #", 2);
    if (comment) end = comment;
    while (end > from && (end[-1] == ' ' || end[-1] == '\r' || end[-1] == '\t')) end--;
    if (end - from >= VALUE) return "the value is longer than 2047 bytes";
    memcpy(value, from, (size_t)(end - from));
    value[end - from] = '\0';
    return NULL;
}

/* Makes path that of a key with so many spaces before it: those of deeper sections end there. */
static const char *enter_key(recipe_reader *y, int indent, const char *name, size_t n) {
    while (y->depth > 0 && y->level[y->depth - 1].indent >= indent) y->depth--;
    const size_t used = y->depth ? y->level[y->depth - 1].length : 0;
    if (!y->depth && indent) return "the key is indented, but belongs to none";
    if (!n || used + n + 2 > KEY) return "the key is empty, or longer than 126 bytes with its section";
    memcpy(y->path + used, name, n);
    y->path[used + n] = '\0';
    return NULL;
}

static const char *enter_section(recipe_reader *y, int indent) {
    const size_t n = strlen(y->path);
    if (y->depth == LEVELS) return "sections are nested too deep";
    y->path[n] = '.';
    y->level[y->depth++] = (section){indent, n + 1};
    return NULL;
}

static const char *read_recipe_line(recipe_reader *y, const char *begin, const char *end) {
    char value[VALUE] = "";
    const char *key = begin;
    while (end > begin && (end[-1] == ' ' || end[-1] == '\r')) end--;
    while (key < end && *key == ' ') key++;
    if (key == end || *key == '#') return NULL;
    const char *colon = memchr(key, ':', (size_t)(end - key));
    if (!colon || (colon + 1 < end && colon[1] != ' ')) return "expected 'key: value'";
    const char *from = colon + 1, *what = enter_key(y, (int)(key - begin), key, (size_t)(colon - key));
    while (from < end && *from == ' ') from++;
    if (what) return what;
    if (from == end || *from == '#') return enter_section(y, (int)(key - begin));
    what = *from == '"' || *from == '\'' ? unquote(from, end, value) : plain(from, end, value);
    return what ? what : add_pair(y->pairs, y->path, value);
}

static int read_recipe(report_run *r, char *message, size_t size) {
    place at = {.path = path_of(r->directory, "recipe.yaml"), .message = message, .size = size};
    recipe_reader y = {.pairs = &r->recipe};
    size_t n = 0;
    int status = at.path ? read_small(&at, MOST_BYTES, &r->recipe_text, &n) : text_fail(message, size, "out of memory");
    if (status == 0) status = fail_at(&at, "no such file, expected a run directory");
    text_slice rest = {r->recipe_text, n}, l;
    while (status > 0 && text_next_line(&rest, &l)) {
        const char *what = NULL;
        at.line++;
        if (text_check(l, at.path, at.line, message, size)) status = -1;
        else if ((what = read_recipe_line(&y, l.bytes, l.bytes + l.n))) status = fail_at(&at, what);
    }
    free(at.path);
    return status < 0 ? -1 : 0;
}

/* ---- The whole --------------------------------------------------------------------------------------------------- */

void report_run_free(report_run *r) {
    free(r->directory);
    free(r->recipe_text);
    free_pairs(&r->recipe);
    free_pairs(&r->data);
    for (int i = 0; i < REPORT_MACHINES; i++) free_pairs(&r->machine[i]);
    for (int i = 0; i < r->n_metrics; i++) free((char *)r->metric[i].name);
    free(r->train.at);
    free(r->valid.at);
    free(r->test.at);
    for (size_t i = 0; i < r->n_histograms; i++) free(r->histogram[i].eta);
    free(r->histogram);
    free_samples(r);
    free(r->sample);
    report_classes_free(&r->classes);
    *r = (report_run){0};
}

int report_run_read(report_run *out, const char *directory, const metric *known, int n_known, char *message,
                    size_t size) {
    *out = (report_run){.seconds = NAN, .training_loss = NAN, .directory = strdup(directory)};
    if (!out->directory) return text_fail(message, size, "%s: out of memory", directory);
    for (size_t n = strlen(out->directory); n > 1 && out->directory[n - 1] == '/';) out->directory[--n] = '\0';
    if (read_recipe(out, message, size) || read_machines(out, message, size) ||
        read_description(out, known, n_known, message, size) ||
        read_value(out, "data.json", read_data, message, size) < 0 ||
        read_vocabulary(out, "source.vocab", "source", message, size) ||
        read_vocabulary(out, "target.vocab", "target", message, size) ||
        read_vocabulary(out, "words.vocab", "target", message, size) ||
        read_lines(out, "metrics.jsonl", read_metrics, message, size) ||
        read_lines(out, "histograms.jsonl", read_histogram, message, size) ||
        read_lines(out, "samples.jsonl", read_sample, message, size) ||
        read_value(out, "classes.json", read_classes, message, size) < 0 ||
        read_value(out, "result.json", read_result, message, size) < 0) {
        report_run_free(out);
        return -1;
    }
    return 0;
}

/* ---- Directories of runs ----------------------------------------------------------------------------------------- */

typedef struct found {
    char *path;
    char started[64];
} found;

static bool is_run(const char *directory) {
    char *path = path_of(directory, "recipe.yaml");
    const bool is = path && access(path, F_OK) == 0;
    free(path);
    return is;
}

/* When the run was started, as text that sorts; "": not known. */
static void find_start(found *f) {
    report_run r = {.directory = f->path};
    char ignored[8];
    const char *started = read_value(&r, "machine.json", read_machine, ignored, sizeof ignored) < 0
                              ? NULL
                              : report_pairs_find(&r.machine[0], "started");
    snprintf(f->started, sizeof f->started, "%s", started ? started : "");
    free_pairs(&r.machine[0]);
}

static int by_start(const void *a, const void *b) {
    const found *x = a, *y = b;
    const int order = strcmp(x->started, y->started);
    return order ? order : strcmp(x->path, y->path);
}

static void free_found(found *list, size_t n) {
    for (size_t i = 0; i < n; i++) free(list[i].path);
    free(list);
}

static int add_found(found **list, size_t *n, size_t *room, const char *directory, const char *name) {
    char *path = name ? path_of(directory, name) : strdup(directory);
    if (path && !is_run(path)) {
        free(path);
        return 0;
    }
    if (!path || *n == MOST_RUNS || !grow((void **)list, *n, room, sizeof **list)) {
        free(path);
        return -1;
    }
    found *f = &(*list)[(*n)++];
    f->path = path;
    find_start(f);
    return 0;
}

static int search(const char *path, found **list, size_t *n, char *message, size_t size) {
    size_t room = 0;
    int status = add_found(list, n, &room, path, NULL);
    if (status == 0 && *n) return 0;
    DIR *directory = opendir(path);
    if (!directory) return text_fail(message, size, "%s: %s", path, strerror(errno));
    for (struct dirent *entry; status == 0 && (entry = readdir(directory));) {
        if (entry->d_name[0] != '.') status = add_found(list, n, &room, path, entry->d_name);
    }
    closedir(directory);
    if (status && *n == MOST_RUNS) return text_fail(message, size, "%s: more than %d runs", path, MOST_RUNS);
    if (status) return text_fail(message, size, "%s: out of memory", path);
    if (*n) return 0;
    return text_fail(message, size, "%s: not a run directory (no recipe.yaml), and no run directories in it", path);
}

int report_runs_find(const char *path, char ***out, int *n, char *message, size_t size) {
    found *list = NULL;
    size_t count = 0;
    const int status = search(path, &list, &count, message, size);
    char **names = status ? NULL : calloc(count + 1, sizeof *names);
    if (!names || !list) {
        if (!status) (void)text_fail(message, size, "%s: out of memory", path);
        free_found(list, count);
        free(names);
        return -1;
    }
    qsort(list, count, sizeof *list, by_start);
    for (size_t i = 0; i < count; i++) names[i] = list[i].path;
    free(list);
    *out = names;
    *n = (int)count;
    return 0;
}
