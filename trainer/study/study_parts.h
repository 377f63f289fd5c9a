/* study_parts.h - between the files of study.h. */
#pragma once

#include "report/remarks.h"
#include "report/variants.h"
#include "study/study.h"

enum { STUDY_MOST_SEEDS = 100, STUDY_SLUG = 128 };

/* Stands in each caption with --quick: tables and figures are files too, which are shown without the page around them. */
#define STUDY_QUICK_NOTE "Made with --quick: other data and smaller models"

/* Turns the names in a study into numbers; refuses those that nothing has. */
int study_resolve(study *s);

/* The one of n names that is nearest to a mistyped one; NULL: none is near. */
const char *study_nearest(const char *name, const char *const *names, int n);

/* The number of an experiment, or of a method of it; -1: there is none. */
int study_find_experiment(const study *s, const char *name);
int study_find_method(const study_experiment *e, const char *name);

/* Whether the user asks for this part, or for all. */
bool study_wants(const study_options *o, const char *name);

/* The name of a method's directories, before "-seed-N"; and a run's directory in `root`. */
void study_slug(const study *s, study_place of, study_value value, char *out, size_t size);
void study_directory(const study *s, study_place of, study_value value, int64_t seed, const char *root, char *out,
                     size_t size);

/* The largest number of seeds that any experiment wants of the runs of a method: several experiments may show them. */
int64_t study_most_seeds(const study *s, const study_options *o, study_place of);

/* ---- Results ----------------------------------------------------------------------------------------------------- */

/* The runs of a method in an experiment, and their results. */
typedef struct study_cell {
    report_run *run;       /* in the order of their seeds, in any state */
    const report_run **at; /* pointers to them */
    int n;
    int finished, diverged, going; /* how many */
    int more;                      /* runs with larger seeds than were asked for, which do not count */
    report_spread of;              /* what the experiment measures, over the finished runs, times the metric's scale */
    char length[64];               /* of another length than planned: "30 of 300 epochs"; "": not so */
    char data[64];                 /* not of the data planned: "own files", "other data", "5 of 9 samples"; or "" */
    char keys[400];                /* all keys that are not as planned: "data.path=cifar, train.epochs=30" */
    bool validation;               /* measured on validation data, as there are no test data */
    remarks notes;                 /* what people noted of the runs */
} study_cell;

typedef struct study_results {
    const study *s;
    const study_options *o;
    const char *const *missing;
    study_cell **at; /* [experiment][method]; empty where another method has the runs */
    const char *from;
    bool all_seeds; /* runs with any seed count */
} study_results;

/* Reads the runs in a directory. After a failure there is nothing to free. */
int study_results_read(study_results *out, const study *s, const study_options *o, const char *from,
                       const char *const *missing, const metric *known, int n_known);
void study_results_free(study_results *r);

/* The cell that a method shows. */
const study_cell *study_cell_of(const study_results *r, int experiment, int method);
/* The name of the metric that an experiment measures. */
const char *study_measure(const study_results *r, int experiment);
/* The metric itself, as its runs describe it; NULL: there are no runs. */
const metric *study_metric(const study_results *r, int experiment);
/* Another metric of its runs; NULL: they have none of that name. */
const metric *study_metric_named(const study_results *r, int experiment, const char *name);

/* What is not as planned, with semicolons between: "1 of 3 seeds; 10 of 200 epochs; own files"; "": nothing. */
typedef struct study_marks {
    char text[256];
} study_marks;

study_marks study_marks_of(const study_cell *c, int wanted);

/* Compares a run with the recipe that the study plans for it, and notes the difference in the cell. */
int study_compare(study_cell *cell, const report_run *run, const recipe *planned);
/* Notes that a run has another seed than its directory is named after. */
void study_note_seed(study_cell *cell, const report_run *run, int64_t seed);
/* Notes that the data of a run have another content than those of another method. */
void study_note_data(study_cell *cell, const char *method);

/* ---- The page ---------------------------------------------------------------------------------------------------- */

/* Writes a name as a heading: "table2" as "Table 2". */
void study_write_name(FILE *page, const char *name);

/* Names the builds and machines that made the runs of an experiment. */
void study_write_makers(const study_results *r, int experiment, FILE *page);
/* Says so if there is more than one. */
void study_write_mixture(const study_results *r, int experiment, FILE *page);

/* Writes a table into a directory and onto the page. link: the directory relative to the page. */
int study_write_table(const study_results *r, const study_table *t, const char *directory, const char *link,
                      FILE *page);
int study_write_figure(const study_results *r, const study_figure *f, const char *directory, const char *link,
                       FILE *page);
/* Does the same for an experiment that tunes a key: its results at the best values, and against all. */
int study_write_tuned(const study_results *r, int experiment, const char *tables, const char *figures,
                      const metric *known, int n_known, FILE *page);
