#include "report/reader_parts.h"

#include <math.h>
#include <string.h>

enum { MOST_SAMPLES = 1000, SAMPLE_BYTES = 8192 }; /* bytes of a sentence */

void reader_free_samples(report_run *r) {
    for (size_t i = 0; i < r->n_samples; i++) reader_free_pairs(&r->sample[i]);
    r->n_samples = 0;
}

/* Takes ownership of the sample, unless there are enough; or returns what is wrong. */
static const char *add_sample(report_run *r, int64_t step, report_pairs *s) {
    if (r->n_samples && step < r->sample_step) return "the update's number is lower than the one before";
    if (step > r->sample_step) reader_free_samples(r);
    r->sample_step = step;
    if (r->n_samples == MOST_SAMPLES) return NULL;
    if (!ARRAY_EXTEND(r->sample, r->n_samples)) return reader_no_memory;
    r->sample[r->n_samples++] = *s;
    *s = (report_pairs){0};
    return NULL;
}

const char *reader_sample(report_run *r, json_input *in) {
    report_pairs s = {0};
    double step = NAN;
    const char *what = NULL;
    for (bool more = json_input_enter(in, '{'); more && !what; more = json_input_next(in, '}')) {
        char key[32], text[SAMPLE_BYTES];
        json_input_key(in, key, sizeof key);
        if (strcmp(key, "step") == 0) step = json_input_number(in);
        else if (s.n == REPORT_TEXTS) json_input_skip(in);
        else {
            json_input_text(in, text, sizeof text);
            if (!in->expected) what = reader_add_pair(&s, key, text);
        }
    }
    if (!what) json_input_end(in);
    if (!what && !in->expected) what = reader_is_step(step) ? add_sample(r, (int64_t)step, &s) : reader_not_a_step;
    reader_free_pairs(&s);
    return what;
}
