/* reader.h - run directories (see train/run.h for the format) into memory, at any moment of a run's life: finished,
 * still going or crashed. A last line that was torn is left out, and every file but recipe.yaml may be missing; what is
 * there and not as it should be is refused with file and line.
 *
 * What a run measures it says itself, in task.json. Runs without that file are older: of them, the reader takes the
 * metrics that its caller knows.
 *
 * However large the files are, a run takes a few megabytes: long curves are thinned, histograms of neighbouring updates
 * left out. */
#ifndef ADAMOD_READER_H
#define ADAMOD_READER_H

#include "support/metric.h"
#include "report/classes.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { REPORT_METRICS = 16, REPORT_KEYS = 16 }; /* that a run may have */

/* What was measured at an update, or on the average of some that were thinned to one; NAN: not measured. */
typedef struct report_point {
    int64_t step;
    double weight;      /* updates that it stands for: those since the point before */
    double time, epoch; /* since the start; epoch: times through the data */
    double loss, nll, lr, grad_norm;
    double items;                 /* since the start: report_run.items says of what */
    double value[REPORT_METRICS]; /* of each metric of the run but the loss, as it is shown: times its scale */
} report_point;

typedef struct report_series {
    report_point *at;
    size_t n, room;
} report_series;

/* Shares of the elements whose log10 of the learning rate is in each of the bins from low to high: before the bound
 * (eta) and after it (effective). Elements that never had a gradient are left out where they are known: their learning
 * rate is lr / epsilon, and moves nothing. */
typedef struct report_histogram {
    int64_t step;
    double bounded, eta_median, step_median, low, high;
    double idle; /* share of all elements that never had a gradient; NAN: not known, and among the others */
    int bins;
    float *eta, *effective; /* one block */
} report_histogram;

/* Texts by name, as the task calls them. "output" is the model's answer, "reference" what it should be; all others are
 * what it was given. */
enum { REPORT_TEXTS = 6 };
typedef struct report_sample {
    int n;
    char *name[REPORT_TEXTS], *text[REPORT_TEXTS];
} report_sample;

/* "optimizer.beta3" and "0.999"; in the order of the file. */
typedef struct report_pair {
    char *key, *value;
} report_pair;

typedef struct report_pairs {
    report_pair *at;
    size_t n, room;
} report_pairs;

enum { REPORT_MACHINES = 16 };

typedef struct report_run {
    char *directory;
    char *recipe_text;
    report_pairs recipe;
    report_pairs machine[REPORT_MACHINES]; /* more than one: it was resumed */
    int n_machines;

    /* task.json */
    char task[64];                  /* its name, "images"; of older runs the recipe's data.task; "": not known */
    char about[256];                /* the task in a few words; "": not known */
    char items[32];                 /* what throughput counts: "tokens" */
    char samples[32], answers[32];  /* what is answered, "sentences", and what its answers are called: "Translations" */
    char limit[64];                 /* the recipe's key for how many an evaluation on the way looks at; "": none */
    char subtitle[REPORT_KEYS][64]; /* keys of the recipe that tell in short what was trained */
    int n_subtitle;
    bool
        has_perplexity; /* exp of nll means something: the task measures it ("ppl", "perplexity"), or there is no task.json */
    metric metric[REPORT_METRICS]; /* the loss may be among them or not: every run has one */
    int n_metrics;

    /* What was trained and evaluated on, by split and the recipe's key ("train data.source"), with fingerprints: those of
     * data.json, and of the vocabularies ("vocabulary target"). */
    report_pairs data;
    bool has_data; /* there is a data.json: the run names splits as they are */

    report_series train, valid, test; /* valid: on the way */
    report_histogram *histogram;
    size_t n_histograms, histogram_room;
    report_sample *sample; /* of the last update that has some */
    size_t n_samples, sample_room;
    int64_t sample_step;
    report_classes classes;

    /* result.json */
    char status[24]; /* "": there is none */
    int64_t step;
    double seconds;
    double training_loss; /* as train/mean_loss.h defines it; NAN: not recorded */
    /* The validation on the way that was the last, all of the validation data at the end, all of the test data; weight 0:
     * there is none. */
    report_point last_valid, final_valid, final_test;
} report_run;

/* A run that could not be read needs no report_run_free. known: the metrics of runs
 * without task.json; those that are headlines count. */
int report_run_read(report_run *out, const char *directory, const metric *known, int n_known);
void report_run_free(report_run *r);

/* NULL: there is no text of that name. */
const char *report_sample_text(const report_sample *s, const char *name);

/* NULL: there is no such key. */
const char *report_pairs_find(const report_pairs *pairs, const char *key);

/* A path as the runs it stands for: itself, or if it is no run directory all that it holds, in the order in which they
 * were started. Names to be freed one by one, then *out. */
int report_runs_find(const char *path, char ***out, int *n);

#endif
