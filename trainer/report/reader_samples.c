#include "report/reader_parts.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_SAMPLES = 1000, SAMPLE_BYTES = 8192 }; /* bytes of a sentence */

static void free_sample(report_sample *s) {
    for (int i = 0; i < s->n; i++) {
        free(s->name[i]);
        free(s->text[i]);
    }
    *s = (report_sample){0};
}

void reader_free_samples(report_run *r) {
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

/* Takes ownership of the sample, unless there are enough; or returns what is wrong. */
static const char *add_sample(report_run *r, int64_t step, report_sample *s) {
    if (r->n_samples && step < r->sample_step) return "the update's number is lower than the one before";
    if (step > r->sample_step) reader_free_samples(r);
    r->sample_step = step;
    if (r->n_samples == MOST_SAMPLES) return NULL;
    if (!reader_grow((void **)&r->sample, r->n_samples, &r->sample_room, sizeof *r->sample)) return reader_no_memory;
    r->sample[r->n_samples++] = *s;
    *s = (report_sample){0};
    return NULL;
}

const char *reader_sample(report_run *r, json_input *in) {
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
    const char *what = !memory                 ? reader_no_memory
                       : in->expected          ? NULL
                       : !reader_is_step(step) ? reader_not_a_step
                                               : add_sample(r, (int64_t)step, &s);
    free_sample(&s);
    return what;
}
