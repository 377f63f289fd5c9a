/* classes.h - how a classifier did, class by class: the file classes.json of a run directory. A task that classifies
 * writes it once, with what it tests at the end; train/run.h and docs/training.md have the format. */
#ifndef ADAMOD_REPORT_CLASSES_H
#define ADAMOD_REPORT_CLASSES_H

#include "support/json_input.h"

#include <stdint.h>

enum {
    REPORT_CLASSES = 1000,  /* that a run may have */
    REPORT_MISTAKES = 1000, /* that are kept of a file */
    REPORT_PICTURE = 256    /* pixels on a side, at most */
};

typedef struct report_mistake {
    int label, prediction;
    double probability;    /* that the model gave its prediction; NAN: not told */
    unsigned char *pixels; /* row by row, channels of a pixel side by side; NULL: there is no picture */
} report_mistake;

typedef struct report_classes {
    int64_t step;
    char split[16]; /* "test", "valid" */
    int n;          /* 0: the run has no such file */
    char **name;
    double *count; /* n rows, the true class, of n predictions */
    int height, width, channels;
    report_mistake *mistake; /* the surest first */
    int n_mistakes;
} report_classes;

/* Takes the value. NULL, or what is wrong besides in->expected; then there is nothing to free. */
const char *report_classes_pull(report_classes *out, json_input *in);
void report_classes_free(report_classes *c);

#endif
