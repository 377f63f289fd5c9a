#include "report/reader_parts.h"

#include "support/base64.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { NAME = 1024, PIXELS = REPORT_PICTURE * REPORT_PICTURE * 3, PIXEL_TEXT = PIXELS / 3 * 4 + 8 };

/* The content before it is checked. */
typedef struct draft {
    report_classes c;
    int rows;
    bool ragged;   /* the matrix is not square */
    size_t counts; /* numbers in the matrix */
    char *text;    /* pixels of a mistake in base64 */
    double step, height, width, channels;
} draft;

static bool is_whole(double x, double least, double most) { return x >= least && x <= most && x == floor(x); }

static bool pull_names(draft *d, json_input *in) {
    for (bool more = json_input_enter(in, '['); more; more = json_input_next(in, ']')) {
        char name[NAME];
        json_input_text(in, name, sizeof name);
        if (d->c.n == REPORT_CLASSES) reader_expect(in, "at most 1000 classes");
        if (in->expected) return true;
        if (!ARRAY_EXTEND(d->c.name, d->c.n) || !(d->c.name[d->c.n] = strdup(name))) return false;
        d->c.n++;
    }
    return true;
}

static bool pull_row(draft *d, json_input *in, int *n) {
    *n = 0;
    for (bool more = json_input_enter(in, '['); more; more = json_input_next(in, ']')) {
        const double x = json_input_number(in);
        if (!is_whole(x, 0, 1e15)) reader_expect(in, "a whole number from 0 on");
        if (++*n > REPORT_CLASSES) reader_expect(in, "at most 1000 numbers in a row");
        if (in->expected) return true;
        if (!ARRAY_EXTEND(d->c.count, d->counts)) return false;
        d->c.count[d->counts++] = x;
    }
    return true;
}

static bool pull_confusion(draft *d, json_input *in) {
    int first = 0;
    for (bool more = json_input_enter(in, '['); more; more = json_input_next(in, ']')) {
        int n;
        if (!pull_row(d, in, &n)) return false;
        if (d->rows++ == 0) first = n;
        if (d->rows > REPORT_CLASSES) reader_expect(in, "at most 1000 rows");
        d->ragged |= n != first;
    }
    d->ragged |= d->rows != first;
    return true;
}

static void pull_picture(draft *d, json_input *in) {
    for (bool more = json_input_enter(in, '{'); more; more = json_input_next(in, '}')) {
        char key[16];
        json_input_key(in, key, sizeof key);
        if (strcmp(key, "height") == 0) d->height = json_input_number(in);
        else if (strcmp(key, "width") == 0) d->width = json_input_number(in);
        else if (strcmp(key, "channels") == 0) d->channels = json_input_number(in);
        else json_input_skip(in);
    }
    if (!is_whole(d->height, 1, REPORT_PICTURE) || !is_whole(d->width, 1, REPORT_PICTURE))
        reader_expect(in, "a picture with height and width from 1 to 256");
    if (d->channels != 1 && d->channels != 3) reader_expect(in, "a picture with 1 or 3 channels");
}

/* Pixels stay text until the size of pictures is known. */
static bool pull_mistake(draft *d, json_input *in) {
    report_mistake m = {.probability = NAN};
    double label = NAN, prediction = NAN;
    *d->text = '\0';
    for (bool more = json_input_enter(in, '{'); more; more = json_input_next(in, '}')) {
        char key[16];
        json_input_key(in, key, sizeof key);
        if (strcmp(key, "label") == 0) label = json_input_number(in);
        else if (strcmp(key, "prediction") == 0) prediction = json_input_number(in);
        else if (strcmp(key, "probability") == 0) m.probability = json_input_number(in);
        else if (strcmp(key, "pixels") == 0) json_input_text(in, d->text, PIXEL_TEXT);
        else json_input_skip(in);
    }
    if (!is_whole(label, 0, REPORT_CLASSES - 1) || !is_whole(prediction, 0, REPORT_CLASSES - 1))
        reader_expect(in, "a mistake with the numbers of classes as \"label\" and \"prediction\"");
    if (m.probability < 0 || m.probability > 1) reader_expect(in, "a probability from 0 to 1");
    if (in->expected || d->c.n_mistakes == REPORT_MISTAKES) return true;
    m.label = (int)label;
    m.prediction = (int)prediction;
    if (*d->text && !(m.pixels = (unsigned char *)strdup(d->text))) return false;
    if (!ARRAY_EXTEND(d->c.mistake, d->c.n_mistakes)) {
        free(m.pixels);
        return false;
    }
    d->c.mistake[d->c.n_mistakes++] = m;
    return true;
}

static bool pull_mistakes(draft *d, json_input *in) {
    for (bool more = json_input_enter(in, '['); more; more = json_input_next(in, ']')) {
        if (!pull_mistake(d, in)) return false;
    }
    return true;
}

/* False: no memory. */
static bool pull(draft *d, json_input *in) {
    bool memory = true;
    for (bool more = json_input_enter(in, '{'); more && memory; more = json_input_next(in, '}')) {
        char key[16];
        json_input_key(in, key, sizeof key);
        if (strcmp(key, "step") == 0) d->step = json_input_number(in);
        else if (strcmp(key, "split") == 0) json_input_text(in, d->c.split, sizeof d->c.split);
        else if (strcmp(key, "classes") == 0) memory = pull_names(d, in);
        else if (strcmp(key, "confusion") == 0) memory = pull_confusion(d, in);
        else if (strcmp(key, "picture") == 0) pull_picture(d, in);
        else if (strcmp(key, "mistakes") == 0) memory = pull_mistakes(d, in);
        else json_input_skip(in);
    }
    if (memory) json_input_end(in);
    return memory;
}

/* Decodes the pixels. False: they do not have the size of a picture. */
static bool decode(report_mistake *m, const report_classes *c) {
    const size_t n = (size_t)c->height * (size_t)c->width * (size_t)c->channels;
    unsigned char *pixels = malloc(n + 1);
    const bool whole = pixels && n && base64_decode((const char *)m->pixels, pixels, n);
    free(m->pixels);
    m->pixels = whole ? pixels : NULL;
    if (!whole) free(pixels);
    return whole;
}

static const char *check(draft *d) {
    report_classes *c = &d->c;
    if (!is_whole(d->step, 0, 1e15)) return "\"step\" is not a whole number from 0 on";
    if (!*c->split) return "there is no \"split\"";
    if (!c->n) return "there are no \"classes\"";
    if (d->ragged || d->rows != c->n) return "\"confusion\" has not a row and a column for each class";
    c->step = (int64_t)d->step;
    c->height = (int)d->height;
    c->width = (int)d->width;
    c->channels = (int)d->channels;
    for (int i = 0; i < c->n_mistakes; i++) {
        report_mistake *m = &c->mistake[i];
        if (m->label >= c->n || m->prediction >= c->n) return "a mistake has the number of a class that there is not";
        if (m->pixels && !c->height) return "there are pixels, but no \"picture\" that tells their number";
        if (m->pixels && !decode(m, c)) return "\"pixels\" are not base64 of height times width times channels bytes";
    }
    return NULL;
}

static int surest_first(const void *a, const void *b) {
    const report_mistake *x = a, *y = b;
    const double p = isnan(x->probability) ? -1 : x->probability, q = isnan(y->probability) ? -1 : y->probability;
    if (p != q) return p < q ? 1 : -1;
    return x->label != y->label ? x->label - y->label : x->prediction - y->prediction;
}

void reader_free_classes(report_classes *c) {
    for (int i = 0; i < c->n; i++) free(c->name[i]);
    for (int i = 0; i < c->n_mistakes; i++) free(c->mistake[i].pixels);
    free(c->name);
    free(c->count);
    free(c->mistake);
    *c = (report_classes){0};
}

const char *reader_classes(report_run *r, json_input *in) {
    draft d = {.step = NAN, .text = malloc(PIXEL_TEXT)};
    const bool memory = d.text && pull(&d, in);
    const char *what = !memory ? reader_no_memory : in->expected ? NULL : check(&d);
    free(d.text);
    if (what || in->expected) {
        reader_free_classes(&d.c);
        return what;
    }
    if (d.c.n_mistakes > 1) qsort(d.c.mistake, (size_t)d.c.n_mistakes, sizeof *d.c.mistake, surest_first);
    r->classes = d.c;
    return NULL;
}
