/* record_parts.h - what the files that record a run share. */
#pragma once

#include "report/reader.h"
#include "support/json.h"
#include "support/json_input.h"

/* A run on its way to a directory. */
typedef struct record {
    report_run run;
    const char *to;   /* a temporary directory */
    const char *note; /* NULL: the run's own */
} record;

/* Reads a file of the run: 1, with its text to be freed; 0: there is none; -1. */
int record_read(const record *r, const char *name, char **text, size_t *n);
/* Writes a file, and frees the text. */
int record_write_json(const record *r, const char *name, json *j);
/* Copies the next value as it is, but numbers with `digits` digits; 0: all digits. */
void record_value(json_input *in, json *out, int digits);
void record_number(json *out, double x, int digits);

int record_metrics(record *r);
int record_histograms(record *r);
