/* study.h - a study: experiments, the methods compared in each, the tables and figures that show them. It is data, read from
 * a YAML file; recipes/paper.yaml is the paper. docs/reproduce.md describes the file:
 *
 *   title: An Adaptive and Momental Bound Method for Stochastic Learning
 *   link: https://arxiv.org/abs/1910.12249
 *   machine: an H200                       whose minutes are given below
 *   seeds: 3                               default of --seeds
 *   quick: {seeds: 2, about: Small models. Its numbers are not the paper's.}
 *   experiments:
 *     cifar10-resnet34:
 *       title: ResNet-34 on CIFAR-10
 *       recipe: cifar10-resnet34.yaml      relative to this file
 *       set: [train.epochs=200]            in all its runs
 *       measure: accuracy                  a metric of the task, on the test data
 *       minutes: 5                         of one run
 *       gigabytes: 0.46                    on the disk, of one run
 *       samples: 50000                     to train with, that the whole data have
 *       quick: {recipe: shapes.yaml, set: [train.epochs=2], minutes: 0.1}       what --quick runs instead
 *       methods:
 *         SGDM: {set: [optimizer=sgd, optimizer.lr=0.1], quick: [optimizer.lr=0.05], paper: {median: 94.48, mean: 94.52, std: 0.14}}
 *         AdaMod: {paper: {median: 94.30, mean: 94.29, std: 0.14}, note: A footnote of its row in tables.}
 *       sources: {paper: [optimizer.lr], authors: [train.epochs], ours: [train.checkpoint_every]}
 *   tables:
 *     table3: {title: Test accuracy, rows: [SGDM, AdaMod], columns: [cifar10-resnet34]}
 *   figures:
 *     figure4:
 *       title: Accuracy on CIFAR-10
 *       panels: [{title: Test, of: cifar10-resnet34, show: test accuracy, over: epochs}]
 *
 * An experiment may tune a key, which makes a run for each value; the page then has its results against the values, as
 * standings.h has them:
 *
 *       tune: {key: optimizer.lr, values: [1e-4, 1e-3], started: 5%}
 *       methods: {Lion: {set: [optimizer=lion], factor: 0.1}}      its values are a tenth of these; {value} in its keys is one
 *
 * A method may be another experiment's ("same: cifar10-resnet34/AdaMod"): its runs are made once. With --quick this holds
 * unless it has keys in `quick`. An experiment may have `seeds: 1`. Names refer to what the file defines; an unknown one is
 * refused with file, line and the nearest. */
#pragma once

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

/* A key of which an experiment tries several values. */
typedef struct study_tune {
    char *key; /* NULL: none */
    study_list values;
    double started; /* as standings_options has it */
    bool counts_started, started_share;
} study_tune;

typedef struct study_method {
    char *name;
    int line;              /* in the file */
    char *label;           /* in figures; NULL: the name */
    char *note;            /* a footnote of its row in tables; NULL: none */
    study_list set, quick; /* KEY=VALUE, after the experiment's; quick: after both */
    double factor;         /* of the tuned values; 0: 1 */
    study_number paper;
    char *same;             /* "EXPERIMENT/METHOD"; NULL: the runs are its own */
    int experiment, method; /* that of `same`, or its own */
} study_method;

typedef struct study_source {
    char *name;      /* "paper", "authors", "ours" */
    study_list keys; /* of the recipe */
} study_source;

/* How --quick changes an experiment. */
typedef struct study_quick {
    char *recipe; /* a path */
    study_list set;
    char *measure; /* NULL: the experiment's */
    double minutes;
    int64_t seeds;   /* 0: the study's */
    study_tune tune; /* no key: the experiment's */
} study_quick;

typedef struct study_experiment {
    char *name;
    int line;
    char *title;
    char *recipe; /* a path */
    study_list set;
    char *measure;
    double minutes, gigabytes; /* 0: not known */
    int64_t seeds;             /* 0: the study's */
    double samples;            /* to train with, that the whole data have; 0: not known */
    study_tune tune;
    study_quick quick;
    study_method *method;
    int n_methods;
    study_source *source;
    int n_sources;
} study_experiment;

typedef struct study_table {
    char *name;
    int line;
    char *title;
    study_list rows;    /* names of methods */
    study_list columns; /* names of experiments */
    int *column;        /* the same as numbers */
} study_table;

typedef struct study_panel {
    char *title;
    int line;
    char *of, *show, *over; /* as in the file */
    study_list lines;       /* names of methods; none: all */
    double until;           /* end of the x axis in the paper's runs; 0: of the data */
    int experiment;
    int *method; /* the lines */
    int n_methods;
    bool rates; /* histograms of learning rates, else curves of: */
    drawing_split split;
    const char *metric;
    bool epochs;
} study_panel;

typedef struct study_figure {
    char *name;
    int line;
    char *title;
    study_panel *panel;
    int n_panels;
} study_figure;

typedef struct study {
    char *file, *title, *link, *machine;
    int64_t seeds;
    int64_t quick_seeds;
    char *quick_about;
    study_experiment *experiment;
    int n_experiments;
    study_table *table;
    int n_tables;
    study_figure *figure;
    int n_figures;
} study;

/* After a failure there is nothing to free. */
int study_read(study *out, const char *path);
/* Does the same with a text; name stands for the file, and paths are relative to its directory. */
int study_parse(study *out, const char *text, size_t n, const char *name);
void study_free(study *s);

/* How a study is carried out. */
typedef struct study_options {
    const char *const *name; /* of tables, figures, experiments to make; n 0: all */
    int n_names;
    int64_t seeds;      /* 0: the study's */
    int64_t first_seed; /* of the runs to make; 0: 1 */
    bool quick;
    bool minutes; /* the minutes in the file are of a machine like this one */
    const char *out;
    const char *const *set; /* KEY=VALUE for all runs */
    int n_set;
    const char *device; /* of --device; NULL: the recipe's */
    const task *const *tasks;
} study_options;

/* A method of an experiment, by their numbers. */
typedef struct study_place {
    int experiment, method;
} study_place;

/* The method and experiment whose runs are shown for this one: its own, or those of `same`. */
study_place study_owner(const study *s, const study_options *o, study_place of);

/* The seeds that an experiment is to have. */
int64_t study_seeds(const study *s, const study_options *o, int experiment);

/* The tuned key of an experiment and its values; NULL: it tunes none. */
const study_tune *study_tuned(const study *s, const study_options *o, int experiment);

/* A value of the tuned key. */
typedef struct study_value {
    char text[48]; /* "": nothing is tuned */
} study_value;

/* The number of values of a method, and each; 1, and "", if nothing is tuned. */
int study_count_values(const study *s, const study_options *o, int experiment);
study_value study_value_at(const study *s, const study_options *o, study_place of, int index);

/* Makes the recipe of a run, to be freed; seed 0: the recipe's. */
int study_recipe(const study *s, const study_options *o, study_place of, study_value value, int64_t seed, recipe *out);

/* Refuses a name that nothing in the study has, with the nearest. */
int study_check_names(const study *s, const study_options *o);

/* Lists the runs that the named parts need, each once, seed after seed, so that a study that is stopped has all methods
 * with the first seeds; seeds before o->first_seed are left out. Directories are OUT/EXPERIMENT/METHOD-seed-N, where a key is tuned METHOD-KEY-VALUE-seed-N. */
int study_plan(const study *s, const study_options *o, run_list *out);

/* Writes OUT/index.html, and its tables and figures into OUT/tables and OUT/figures, from the runs in the directory `from`,
 * whatever state they are in: what lacks is shown as lacking. Runs count with seeds up to the number that is asked for; in a
 * directory other than OUT, where no number is given, with all seeds. missing: for each experiment, the data that its runs lack
 * ("cifar10: adamod data prepare cifar10"), or NULL. A directory other than OUT is refused if it has no runs. */
int study_report(const study *s, const study_options *o, const char *from, const char *const *missing,
                 const metric *known, int n_known);

/* Counts directories DIRECTORY/NAME/NAME with a run that no method of the study has, which study_report does not show. first:
 * the first of them by name, as "NAME/NAME". */
int study_strangers(const study *s, const char *directory, char *first, size_t size);
