/* study.h - a study: experiments, the methods compared in each, the tables and figures that show them. It is data, read from
 * a YAML file; recipes/paper.yaml is the paper. docs/reproduce.md describes the file.
 *
 *   title: An Adaptive and Momental Bound Method for Stochastic Learning
 *   link: https://arxiv.org/abs/1910.12249
 *   seeds: 3                               default of --seeds
 *   experiments:
 *     cifar10-resnet34:
 *       title: ResNet-34 on CIFAR-10
 *       recipe: cifar10-resnet34.yaml      relative to this file
 *       measure: accuracy                  a metric of the task, on the test data
 *       minutes: 5                         of one run on one H200, for the first estimate
 *       quick: {recipe: shapes.yaml, set: [train.epochs=2]}       what --quick runs instead
 *       methods:
 *         SGDM: {set: [optimizer=sgd, optimizer.lr=0.1], paper: {median: 94.48, mean: 94.52, std: 0.14}}
 *         AdaMod: {paper: {median: 94.30, mean: 94.29, std: 0.14}}
 *       sources: {paper: [optimizer.lr], authors: [train.epochs], ours: [train.checkpoint_every]}
 *   tables:
 *     table3: {title: Test accuracy, rows: [SGDM, AdaMod], columns: [cifar10-resnet34]}
 *   figures:
 *     figure4:
 *       title: Accuracy on CIFAR-10
 *       panels: [{title: Test, of: cifar10-resnet34, show: test accuracy, over: epochs}]
 *
 * A method may be another experiment's ("same: cifar10-resnet34/AdaMod"): its runs are made once. An experiment may have
 * `seeds: 1`. Names refer to what the file defines; an unknown one is refused with file, line and the nearest. */
#ifndef ADAMOD_STUDY_H
#define ADAMOD_STUDY_H

#include "study/drawing.h"
#include "study/run_list.h"

/* A list of words, each on the heap. */
typedef struct study_list {
    char **at;
    int n;
} study_list;

/* The paper's number; NAN: not given. */
typedef struct study_number {
    double median, mean, std;
    char *text; /* instead of a number: "diverges"; NULL: none */
} study_number;

typedef struct study_method {
    char *name;
    study_list set, quick_set; /* KEY=VALUE, after the recipe's and the experiment's */
    study_number paper;
    int experiment, method; /* `same`: whose runs these are; else its own place */
    int line;
} study_method;

typedef struct study_source {
    char *name;      /* "paper", "authors", "ours" */
    study_list keys; /* of the recipe */
} study_source;

typedef struct study_experiment {
    char *name, *title;
    char *recipe, *quick_recipe; /* paths */
    study_list set, quick_set;
    char *measure;
    double minutes;
    int64_t seeds; /* 0: the study's */
    study_method *method;
    int n_methods;
    study_source *source;
    int n_sources;
    int line;
} study_experiment;

typedef struct study_table {
    char *name, *title;
    study_list rows; /* names of methods */
    int *column;     /* experiments */
    int n_columns;
} study_table;

typedef struct study_panel {
    char *title;
    int experiment;
    int *method; /* its lines */
    int n_methods;
    bool rates; /* histograms of learning rates, else curves of: */
    drawing_split split;
    char *metric;
    bool epochs;
    double until;
} study_panel;

typedef struct study_figure {
    char *name, *title;
    study_panel *panel;
    int n_panels;
} study_figure;

typedef struct study {
    char *file, *title, *link;
    int64_t seeds;
    study_experiment *experiment;
    int n_experiments;
    study_table *table;
    int n_tables;
    study_figure *figure;
    int n_figures;
} study;

int study_read(study *out, const char *path);
void study_free(study *s);

/* How a study is carried out. */
typedef struct study_options {
    const char *const *name; /* of tables, figures, experiments to make; n 0: all */
    int n_names;
    int64_t seeds; /* 0: the study's */
    bool quick;
    const char *data; /* directory of the data sets; NULL: the usual one */
    const char *out;
    const char *const *set; /* KEY=VALUE for all runs */
    int n_set;
} study_options;

/* Lists the runs that the named parts need, each once, seed after seed, so that a study that is stopped has all methods
 * with the first seeds. Directories are OUT/EXPERIMENT/METHOD-seed-N. */
int study_plan(const study *s, const study_options *o, const task *const *tasks, run_list *out);

/* Writes OUT/index.html, and its tables and figures into OUT/tables and OUT/figures, from the runs in `from`, whatever
 * state they are in: what lacks is shown as lacking. */
int study_report(const study *s, const study_options *o, const run_list *p, const char *from, const metric *known,
                 int n_known);

#endif
