/* reader.h - reads run directories (train/run.h describes the format) of runs that finished, crashed or still go on. A last
 * line that is incomplete is left out, and every file except recipe.yaml may be missing. Wrong content is refused with file
 * and line.
 *
 * task.json says what a run measures. Older runs do not have it: then the metrics are those that the caller knows.
 *
 * A run takes a few megabytes at most: long curves are thinned, and histograms of neighbouring updates left out. */
#pragma once

#include "support/metric.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { REPORT_METRICS = 16, REPORT_KEYS = 16 }; /* most of a run */
enum { REPORT_NOTE = 301 };                     /* bytes of note.txt, with a final 0 */

/* Measurements of an update, or means of several that were thinned to one; NAN: not measured. */
typedef struct report_point {
    int64_t step;
    double weight;      /* number of updates since the point before */
    double time, epoch; /* since the start */
    double loss, nll, lr, grad_norm;
    double items;                 /* since the start, as report_run.items names them */
    double value[REPORT_METRICS]; /* of each metric but the loss, times its scale */
} report_point;

typedef struct report_series {
    report_point *at;
    size_t n;
} report_series;

/* A histogram of log10 of the elements' learning rates from low to high: the share of elements in each bin before the bound
 * (eta) and after it (effective). Elements that never had a gradient are left out if they are known: their learning rate
 * is lr / epsilon and has no effect. */
typedef struct report_histogram {
    int64_t step;
    double bounded, eta_median, step_median, low, high;
    double idle; /* share of elements that never had a gradient; NAN: unknown, not left out */
    int bins;
    float *eta, *effective; /* one block */
} report_histogram;

/* "optimizer.beta3" and "0.999"; in the order of the file. */
typedef struct report_pair {
    char *key, *value;
} report_pair;

typedef struct report_pairs {
    report_pair *at;
    size_t n;
} report_pairs;

/* classes.json: how a classifier did, class by class. docs/training.md describes the format. */
enum {
    REPORT_CLASSES = 1000,  /* most of a run */
    REPORT_MISTAKES = 1000, /* most that are read */
    REPORT_PICTURE = 256    /* most pixels on a side */
};

typedef struct report_mistake {
    int label, prediction;
    double probability;    /* of the prediction, by the model; NAN: unknown */
    unsigned char *pixels; /* [height, width, channels]; NULL: no picture */
} report_mistake;

typedef struct report_classes {
    int64_t step;
    char split[16]; /* "test", "valid" */
    int n;          /* number of classes; 0: the run has no such file */
    char **name;
    double *count; /* [n, n]: true class, prediction */
    int height, width, channels;
    report_mistake *mistake; /* the surest first */
    int n_mistakes;
} report_classes;

/* A sample is texts by the task's names: "output" is the model's answer, "reference" the right one; others are the input. */
enum { REPORT_MACHINES = 16, REPORT_TEXTS = 6 };

typedef struct report_run {
    char *directory;
    char *recipe_text;
    report_pairs recipe;
    report_pairs machine[REPORT_MACHINES]; /* more than one: it was resumed */
    int n_machines;

    /* task.json */
    char task[64];                  /* "images"; older runs: data.task of the recipe; "": unknown */
    char about[256];                /* in a few words; "": unknown */
    char items[32];                 /* the unit of throughput: "tokens" */
    char samples[32], answers[32];  /* "sentences", "Translations" */
    char limit[64];                 /* key that limits the samples of an evaluation during training; "": none */
    char subtitle[REPORT_KEYS][64]; /* keys that describe in short what was trained */
    int n_subtitle;
    bool has_perplexity;           /* exp(nll) is meaningful: the task measures it, or there is no task.json */
    metric metric[REPORT_METRICS]; /* may include the loss, which every run has */
    int n_metrics;

    /* Fingerprints of the data, by split and key of the recipe ("train data.source"), and of the vocabularies ("vocabulary
     * target"). */
    report_pairs data;
    bool has_data; /* there is a data.json, so "test" is really test data */
    /* If data.json says that the data set in the cache was not the published one: "data set cifar100 not as published: no
     * record of how it was prepared". "": it was, or that is not known. */
    char own[200];
    char note[REPORT_NOTE]; /* note.txt; "": there is none */

    report_series train, valid, test; /* valid, test: during training */
    report_histogram *histogram;
    size_t n_histograms;
    report_pairs *sample; /* of the last update with samples: see REPORT_TEXTS */
    size_t n_samples;
    int64_t sample_step;
    report_classes classes;

    /* result.json */
    char status[24]; /* "": there is none */
    int64_t step;
    double seconds;
    double training_loss; /* see train/mean_loss.h; NAN: not recorded */
    /* The last validation during training; all validation data at the end; all test data. weight 0: none. */
    report_point last_valid, final_valid, final_test;
} report_run;

/* A run that could not be read needs no report_run_free. known: metrics for runs without task.json; only headlines count. */
int report_run_read(report_run *out, const char *directory, const metric *known, int n_known);
void report_run_free(report_run *r);

/* What is wrong with n bytes as a run's note: "is empty, expected a line of text". NULL: nothing. */
const char *report_note_fault(const char *text, size_t n);

/* NULL: no such key. */
const char *report_pairs_find(const report_pairs *pairs, const char *key);

/* In data.json and report_run.data: the number of samples that a run trained with. */
#define REPORT_TRAIN_SAMPLES "train_samples"

/* Thins a curve to `most` points at most: the first, and means over windows with the same number of updates. */
void report_series_thin(report_series *s, size_t most);

/* The place of a metric in report_run.metric, by its name; -1: none. */
int report_find_metric(const report_run *r, const char *name);

/* Whether the evaluations during training were of the test data, because no validation data were held out. */
bool report_validates_on_test(const report_run *r);

/* Lists the runs that a path stands for: itself, or if it is no run directory, all runs in it in the order in which they
 * were started. The caller frees each name, then *out. */
int report_runs_find(const char *path, char ***out, int *n);
