/* reader_parts.h - what the files of the reader share: how a run's files are opened, and what each of them is read by. */
#ifndef ADAMOD_READER_PARTS_H
#define ADAMOD_READER_PARTS_H

#include "support/json_input.h"
#include "support/text.h"
#include "report/reader.h"

#include <stdio.h>

/* ---- files: reader_files.c ---- */

enum { READER_BYTES = 1 << 20 }; /* of a file that is read at once, and of a line of the others */

/* Where to complain. */
typedef struct reader_place {
    char *path;
    int64_t line; /* 0: the file as a whole */
} reader_place;

int reader_fail(const reader_place *at, const char *what);  /* -1 */
char *reader_path(const char *directory, const char *name); /* to be freed; NULL: no memory */

/* Room for one more; false: no memory. */
bool reader_grow(void **array, size_t n, size_t *room, size_t item);
extern const char reader_no_memory[];

/* 1: open; 0: there is none; -1: it failed. A pipe or a device under that name would keep us waiting. */
int reader_open(const reader_place *at, FILE **out);
/* A small file, to be freed; 1, 0 or -1 as above. */
int reader_small(const reader_place *at, size_t most, char **text, size_t *n);

/* What takes the values of one line, or of a whole file. NULL, or what is wrong with them; what was not pulled from a line
 * in full must not have changed the run. */
typedef const char *reader_of(report_run *r, json_input *in);
/* A file of many lines, which may be missing. */
int reader_lines(report_run *r, const char *name, reader_of *reader);
/* A file of at most so many bytes that is one value: 1, or 0 if there is none, or -1. */
int reader_value(report_run *r, const char *name, size_t most, reader_of *reader);

/* Whether a number can be an update's, and what to say if it cannot. */
bool reader_is_step(double x);
extern const char reader_not_a_step[];

/* ---- a part of a run each ---- */

/* reader_pairs.c */
const char *reader_add_pair(report_pairs *pairs, const char *key, const char *value);
void reader_free_pairs(report_pairs *pairs);
reader_of reader_machine, reader_data;
int reader_machines(report_run *r);
/* A checksum of what the model's numbers stand for. A model of one language has only a target. */
int reader_vocabulary(report_run *r, const char *name, const char *side);

/* reader_recipe.c, reader_task.c */
int reader_recipe(report_run *r);
/* What the run says of its task; or, where it does not, the metrics that are known. */
int reader_task(report_run *r, const metric *known, int n_known);

/* reader_metrics.c, reader_histograms.c, reader_samples.c */
enum { READER_NAME = 32 }; /* bytes of a metric's name and of what is counted, with the zero at the end */
int reader_find_metric(const report_run *r, const char *name); /* -1: the run has none of this name */
reader_of reader_metrics, reader_result, reader_histogram, reader_sample;
void reader_free_samples(report_run *r);

#endif
