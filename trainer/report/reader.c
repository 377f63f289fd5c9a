#include "report/reader_parts.h"

#include "core/error.h"
#include "support/run_format.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_CLASSES = 16 << 20 }; /* bytes of classes.json, which has pictures */

void report_run_free(report_run *r) {
    free(r->directory);
    free(r->recipe_text);
    reader_free_pairs(&r->recipe);
    reader_free_pairs(&r->data);
    for (int i = 0; i < REPORT_MACHINES; i++) reader_free_pairs(&r->machine[i]);
    for (int i = 0; i < r->n_metrics; i++) free((char *)r->metric[i].name);
    free(r->train.at);
    free(r->valid.at);
    free(r->test.at);
    for (size_t i = 0; i < r->n_histograms; i++) free(r->histogram[i].eta);
    free(r->histogram);
    reader_free_samples(r);
    free(r->sample);
    reader_free_classes(&r->classes);
    *r = (report_run){0};
}

int report_run_read(report_run *out, const char *directory, const metric *known, int n_known) {
    *out = (report_run){.seconds = NAN, .training_loss = NAN, .directory = strdup(directory)};
    if (!out->directory) return adamod__fail(ADAMOD_ERROR_MEMORY, "%s: out of memory", directory);
    for (size_t n = strlen(out->directory); n > 1 && out->directory[n - 1] == '/';) out->directory[--n] = '\0';
    if (run_format_check(out->directory) || reader_recipe(out) || reader_machines(out) ||
        reader_task(out, known, n_known) || reader_value(out, "data.json", READER_BYTES, reader_data) < 0 ||
        reader_note(out) || reader_vocabulary(out, "source.vocab", "source") ||
        reader_vocabulary(out, "target.vocab", "target") || reader_vocabulary(out, "words.vocab", "target") ||
        reader_lines(out, "metrics.jsonl", reader_metrics) || reader_lines(out, "histograms.jsonl", reader_histogram) ||
        reader_lines(out, "samples.jsonl", reader_sample) ||
        reader_value(out, "classes.json", MOST_CLASSES, reader_classes) < 0 ||
        reader_value(out, "result.json", READER_BYTES, reader_result) < 0) {
        report_run_free(out);
        return -1;
    }
    return 0;
}
