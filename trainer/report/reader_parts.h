/* reader_parts.h - what the files of the reader share: how a run's files are opened, and the reader of each. */
#pragma once

#include "support/array.h"
#include "support/json_input.h"
#include "support/text.h"
#include "report/reader.h"

#include <limits.h>
#include <stdio.h>

/* ---- files: reader_files.c ---- */

enum { READER_BYTES = 1 << 20 }; /* most of a small file, and of a line of others */

/* The place of an error. */
typedef struct reader_place {
    char path[PATH_MAX + 64];
    int64_t line; /* 0: the file as a whole */
} reader_place;

reader_place reader_file(const char *directory, const char *name);
int reader_fail(const reader_place *at, const char *what); /* -1 */

extern const char reader_no_memory[];

/* 1: open; 0: no such file; -1: failed. Refuses pipes and devices, which could block. */
int reader_open(const reader_place *at, FILE **out);
/* Allocates the content of a small file; 1, 0 or -1 as above. */
int reader_small(const reader_place *at, size_t most, char **text, size_t *n);

/* Reads one line, or a whole file, into the run. NULL, or what is wrong with it. A line that is wrong must not change the
 * run. */
typedef const char *reader_of(report_run *r, json_input *in);
/* Reads a file of many lines, which may be missing. */
int reader_lines(report_run *r, const char *name, reader_of *reader);
/* Reads a file of at most `most` bytes with one value: 1; 0: no such file; -1: failed. */
int reader_value(report_run *r, const char *name, size_t most, reader_of *reader);

/* Notes what a value should have been, unless an earlier one was wrong. */
void reader_expect(json_input *in, const char *what);

/* Whether a number can be that of an update, and the message if it cannot. */
bool reader_is_step(double x);
extern const char reader_not_a_step[];

/* ---- parts of a run ---- */

/* reader_pairs.c */
const char *reader_add_pair(report_pairs *pairs, const char *key, const char *value);
void reader_free_pairs(report_pairs *pairs);
reader_of reader_machine, reader_data;
int reader_machines(report_run *r);
/* Adds a checksum of a vocabulary. A model of one language has only a target. */
int reader_vocabulary(report_run *r, const char *name, const char *side);

/* reader_note.c */
int reader_note(report_run *r);

/* reader_recipe.c, reader_task.c */
int reader_recipe(report_run *r);
/* Reads task.json; without it, takes the known metrics. */
int reader_task(report_run *r, const metric *known, int n_known);

/* reader_metrics.c, reader_histograms.c, reader_samples.c */
enum { READER_NAME = 32 }; /* bytes of a metric's name and of a unit, with the final 0 */
reader_of reader_metrics, reader_result, reader_histogram, reader_sample;
void reader_free_samples(report_run *r);

/* reader_classes.c */
reader_of reader_classes;
void reader_free_classes(report_classes *c);
