/* classes.h - reads classes.json of a run directory: how a classifier did, class by class. A task writes it once, with its
 * test at the end; train/run.h and docs/training.md describe the format. */
#ifndef ADAMOD_REPORT_CLASSES_H
#define ADAMOD_REPORT_CLASSES_H

#include "support/json_input.h"

#include <stdint.h>

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

/* Reads the value. NULL, or what is wrong besides in->expected; then there is nothing to free. */
const char *report_classes_pull(report_classes *out, json_input *in);
void report_classes_free(report_classes *c);

#endif
